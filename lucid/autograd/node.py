"""The autograd graph: one node for each recorded op, with edges to the nodes of its operands."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from lucid.autograd.rules import Derivative, Missing, derivative_of, derivative_on, needed_by
from lucid.autograd.saved import FREED, SavedTensor
from lucid.ir import ops
from lucid.ir.errors import LucidError
from lucid.ir.inference import Application, application
from lucid.ir.location import Location, Placed, Spot
from lucid.ir.op import Attributes, Op, Operand
from lucid.ir.types import TensorType
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.autograd.engine import BackwardRun
    from lucid.ir.graph import Value
    from lucid.tensor.core import TensorCore, ViewChain

Edge = tuple["Node", int]
End: TypeAlias = "Edge | TensorCore | None"
Gradients = tuple["TensorCore | None", ...]
Gradient: TypeAlias = "TensorCore | np.ndarray"  # an array is the walk's, and shows no other one
Traced: TypeAlias = "TensorCore | Value"  # a gradient in a trace: a value is of its graph

sequence_numbers = itertools.count()


class GradientEdge(NamedTuple):
    """Where a tensor's gradient goes: an output of a node.

    `backward` and `grad` take it in a tensor's place; the tensor itself needn't be kept.

    Args:
        node: the step of the backward computation, as `grad_fn`.
        output_nr: which output of the recorded op the tensor is.

    >>> from lucid.autograd.graph import GradientEdge
    >>> x = lucid.tensor(3.0, requires_grad=True)
    >>> y = x * x
    >>> lucid.autograd.grad(GradientEdge(y.grad_fn, 0), x)
    (tensor(6.),)
    """

    node: Node
    output_nr: int


class Node(Placed):
    """A step of the backward computation, such as `tensor.grad_fn`.

    The ctx of a custom Function is a node, and a user may give it any attribute: what is lucid's
    own has a name with an underscore, PyTorch's public names aside.

    Args:
        edges: per input of the recorded op, where its gradient goes; None where it isn't wanted.
        output_types: what its incoming gradients look like, one for each output of the op.

    Attributes:
        metadata: a dict for whoever wants to note something.
        _edges: `edges`.
        _sequence: order of recording; the engine runs later nodes first.
        _output_types: `output_types`.
        _takes_undefined: whether it runs when no gradient arrived at all.
        _has_separate_outputs: whether a walk to one output has not come to the others.
        _is_joint: whether it is the history of results that have histories of their own in eager
            mode: a walk goes on along the edges to which it gives a gradient, and no others.
        _asks_what_is_wanted: whether it knows on arrays, too, which gradients a walk is for.
        _is_end: gradients with respect to what it is the history of may still be asked for.
        _composite: the name that a node alone would have for several, whose last one this is.

    >>> node = lucid.tensor(3.0, requires_grad=True).exp().grad_fn
    >>> isinstance(node, lucid.autograd.graph.Node), node.name()
    (True, 'ExpBackward')
    """

    _takes_undefined = False
    _has_separate_outputs = False
    _is_joint = False
    _asks_what_is_wanted = False
    _is_end = False

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_ends",
        "_led_to",
        "_origin",
        "_output_types",
        "_post_hooks",
        "_pre_hooks",
        "_retained",
        "_sequence",
        "_spot",
        "_tensor_hooks",
    )

    def __init__(
        self, edges: tuple[Edge | None, ...], output_types: tuple[TensorType, ...]
    ) -> None:
        self._initialize(edges, output_types)

    def _initialize(
        self, edges: tuple[Edge | None, ...], output_types: tuple[TensorType, ...]
    ) -> None:
        """What `__init__` does; that is for users, too, whom it tells what they gave wrong."""
        self._ends: tuple[End, ...] = ()
        self._led_to: tuple[Edge | None, ...] | None = edges
        self._sequence = next(sequence_numbers)
        self._output_types = output_types
        self._pre_hooks: dict[int, Callable[..., Any]] | None = None
        self._post_hooks: dict[int, Callable[..., Any]] | None = None
        self._tensor_hooks: dict[int, dict[int, Callable[..., Any]]] | None = None
        self._retained: dict[int, weakref.ref[TensorCore]] | None = None
        self._spot: Spot = None
        self._origin: Any = None  # in a trace, the value whose gradient it computes

    def _inner_nodes(self) -> Iterable[Node]:
        """The nodes of a round, through which the backward of a recorded loop walks."""
        return ()

    def _inner_bodies(self) -> Mapping[Any, Any]:
        """What was recorded of these rounds, by its graph."""
        return {}

    @property
    def _edges(self) -> tuple[Edge | None, ...]:
        """Where the gradients go; leaves get their nodes when somebody first walks here."""
        edges = self._led_to
        if edges is None:
            edges = self._led_to = tuple([_edge_to(end) for end in self._ends])
            self._ends = ()
        return edges

    @_edges.setter
    def _edges(self, edges: tuple[Edge | None, ...]) -> None:
        self._led_to, self._ends = edges, ()

    def name(self) -> str:
        """What messages call it: `SquareBackward`."""
        return self._name()

    def _name(self) -> str:
        return self.__dict__.get("_composite") or type(self).__name__

    def _name_at(self, number: int) -> str:
        """What the text of a tensor, its output with that number, calls it."""
        return self._name()

    def _short_name(self) -> str:
        """The name of what it is the backward of: `Square` for `SquareBackward`."""
        return self._name().removesuffix("Backward")

    def _output_name(self, number: int) -> str:
        """How messages call one of its outputs: `output 0 of Square`."""
        return f"output {number} of {self._short_name()}"

    def _place(self) -> str:
        """Where the user's code recorded it, for messages: `, recorded at train.py:7   code`."""
        return place_of(self._line)

    @property
    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = self.__dict__.setdefault("_metadata", {})
        return found

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        return tuple((None, 0) if edge is None else edge for edge in self._edges)

    def apply(self, gradients: Gradients) -> Gradients:
        """Gradients of the outputs to gradients of the inputs, one for each edge."""
        raise NotImplementedError

    def _on_arrays(self, gradients: Sequence[Gradient | None]) -> Sequence[Gradient | None] | None:
        """`apply` where nobody sees what happens, without tensors between gradients and results.

        A result that is an array is nobody else's. None where `apply` has to run: with tensors, so
        that one which shows a gradient's memory, or a saved tensor's, says so.
        """
        return None

    def _release(self) -> None:
        """Drop what was saved; a second backward then raises."""

    def __call__(self, *gradients: TensorCore | None) -> Any:
        """Run this node alone: gradients of its outputs to those of its inputs."""
        parts = self.apply(gradients)
        return parts[0] if len(parts) == 1 else parts

    def _hooks_at(self, index: int) -> dict[int, Callable[..., Any]] | None:
        """The tensor hooks on the gradient of one output."""
        return None if self._tensor_hooks is None else self._tensor_hooks.get(index)

    @property
    def _is_librarys(self) -> bool:
        """Whether a walk calls no code of the user's here, a hook or a custom Function."""
        return False

    @property
    def _is_observed(self) -> bool:
        """Whether a hook or somebody's `.grad` is to see a gradient here."""
        return bool(self._pre_hooks or self._post_hooks or self._tensor_hooks or self._retained)

    def _retain(self, index: int, tensor: TensorCore) -> None:
        """Keep the gradient of one output in the `.grad` of `tensor`, while that lives."""
        if self._retained is None:
            self._retained = {}
        self._retained[index] = weakref.ref(tensor)

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        """Call `hook(grad_inputs, grad_outputs)` after the node ran; it may replace grad_inputs."""
        from lucid.autograd.hooks import HookHandle

        if self._post_hooks is None:
            self._post_hooks = {}
        return HookHandle.add(self._post_hooks, hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Any:
        """Call `hook(grad_outputs)` before the node runs; it may replace them."""
        from lucid.autograd.hooks import HookHandle

        if self._pre_hooks is None:
            self._pre_hooks = {}
        return HookHandle.add(self._pre_hooks, hook)

    def __repr__(self) -> str:
        return f"<{self._name()} object at {hex(id(self))}>"


def place_of(line: tuple[str, int] | None) -> str:
    """Where a node was recorded, for messages."""
    if line is None:
        return ""
    location = Location(*line)
    return f", recorded at {location}   {location.text}"


def origin_line(function: str, line: tuple[str, int] | None) -> str:
    """A line for messages: which Function or op, and where the user called it."""
    return f"\n  in {function}{place_of(line)}"


class CustomNode(Node):
    """A node with code of the user's, which is told what the walk is about."""

    __slots__ = ()
    _takes_undefined = True

    def _apply_in_run(self, run: BackwardRun, gradients: Gradients) -> Gradients:
        """`apply`, as part of a backward walk."""
        raise NotImplementedError

    def _on_arrays_in_run(
        self, run: BackwardRun, gradients: Sequence[Gradient | None]
    ) -> Sequence[Gradient | None] | None:
        """`_on_arrays`, as part of a backward walk that is for some gradients only."""
        return None


class AccumulateGrad(Node):
    """Where the gradient of a leaf arrives: it is added to `variable.grad`."""

    __slots__ = ("post_accumulate_hooks", "variable")
    _is_end = True

    def __init__(self, variable: TensorCore) -> None:
        super().__init__((), (variable._type,))
        self._sequence = -1  # after every op that could still contribute
        self.variable = variable
        self.post_accumulate_hooks: dict[int, Callable[..., Any]] | None = None

    def _hooks_at(self, index: int) -> dict[int, Callable[..., Any]] | None:
        return self.variable._hooks

    @property
    def _is_observed(self) -> bool:
        hooks = self.variable._hooks or self.post_accumulate_hooks
        return bool(hooks or self._pre_hooks or self._post_hooks or self._retained)

    def apply(self, gradients: Gradients) -> Gradients:
        from lucid.autograd.engine import accumulate
        from lucid.autograd.hooks import run_accumulate_hooks, run_post_hooks, run_pre_hooks

        gradients = run_pre_hooks(self, gradients)
        if gradients[0] is not None:
            accumulate(self.variable, gradients[0])
            if self.post_accumulate_hooks:
                run_accumulate_hooks(self.post_accumulate_hooks, self.variable)
        run_post_hooks(self, (), gradients)
        return ()


def accumulator_of(tensor: TensorCore) -> AccumulateGrad:
    """The node that accumulates into a leaf; the same one as long as somebody holds it."""
    reference = tensor._accumulator
    node: AccumulateGrad | None = None if reference is None else reference()
    if node is None:
        node = AccumulateGrad(tensor)
        tensor._accumulator = weakref.ref(node)
    return node


def move_retained(tensor: TensorCore, node: Node | None, index: int) -> None:
    """Let `retain_grad` see the gradient of what the tensor is after an in-place write."""
    kept = None if node is None or node._retained is None else node._retained.get(index)
    if kept is not None and kept() is tensor and node is not None and tensor._grad_fn is not None:
        assert node._retained is not None
        del node._retained[index]
        tensor._grad_fn._retain(tensor._output_nr, tensor)


def edge_of(tensor: TensorCore) -> Edge | None:
    """Where a gradient for `tensor` goes; None when it doesn't require one."""
    end = end_of(tensor)
    return end if type(end) is tuple else _edge_to(end)


def end_of(tensor: TensorCore) -> End:
    """The same, but a leaf stands for the node that accumulates into it."""
    if tensor._base is not None:
        tensor._refresh()
    if not tensor._requires_grad:
        return None
    node = tensor._grad_fn if tensor._guard is None else tensor.grad_fn
    return tensor if node is None else (node, tensor._output_nr)


def _edge_to(end: End) -> Edge | None:
    return end if end is None or type(end) is tuple else (accumulator_of(end), 0)  # type: ignore[arg-type]


class OpNode(Node):
    """The backward of one op: its VJP rule, and what the rule looks at."""

    _asks_what_is_wanted = True  # what nobody wants is dropped
    __slots__ = ("_derivative", "attributes", "op", "saved")

    def __init__(
        self,
        op: Op,
        operands: Sequence[TensorCore],
        attributes: Attributes,
        result: TensorCore,
        ends: tuple[End, ...],
        known: Application | None = None,
        *,
        is_private: bool = False,
    ) -> None:
        # All that `Node.__init__` sets: eager mode makes a node for each op.
        self._ends = ends
        self._led_to = None
        self._sequence = next(sequence_numbers)
        self._output_types = (result._type,)
        self._pre_hooks = self._post_hooks = self._tensor_hooks = self._retained = None
        self._spot = result._spot
        self._origin = None
        self.op = op
        self.attributes = attributes
        recorder = context.recorder
        if recorder is not None:
            self._origin = recorder.origin_of(result)
            self._led_to, self._ends = tuple(map(_edge_to, ends)), ()  # before flags change
        known = known or application(op, operands, attributes)
        # Or what is known of the op, or the types of its operands: many nodes never run.
        self._derivative: Derivative | Application | tuple[TensorType, ...] = known
        saved: dict[int, SavedTensor] = {}
        for i in needed_by(known, tuple([end is not None for end in ends])):
            saved[i] = SavedTensor(result if i < 0 else operands[i], 0 if i < 0 else -1, is_private)
        self.saved: dict[int, SavedTensor] | None = saved

    @property
    def has_derivative(self) -> bool:
        """Whether `derivative` was found already."""
        return type(self._derivative) is Derivative

    @property
    def derivative(self) -> Derivative:
        """What a walk needs to know of the op; found when one first comes here."""
        found = self._derivative
        if not isinstance(found, Derivative):
            ends = self._ends if self._led_to is None else self._led_to
            wanted = tuple([end is not None for end in ends])
            if isinstance(found, tuple):
                found = derivative_on(self.op, found, self.attributes, wanted)
            else:
                found = derivative_of(found, wanted)
            self._derivative = found
        return found

    @property
    def operand_types(self) -> tuple[TensorType, ...]:
        found = self._derivative
        return found if isinstance(found, tuple) else found.types

    @property
    def _is_librarys(self) -> bool:
        if self._pre_hooks or self._post_hooks or self._tensor_hooks:
            return False
        for saved in (self.saved or {}).values():
            if saved.tensor is None or saved.unpack_hook is not None:
                return False
        return True

    def _name(self) -> str:
        return self.__dict__.get("_composite") or backward_name(self.op)

    def apply(self, gradients: Gradients) -> Gradients:
        gradient = gradients[0]
        if gradient is None:
            return (None,) * len(self._edges)
        saved = self.saved
        if saved is None:
            raise LucidError(FREED + origin_line(self._short_name(), self._line))
        found = self._on_arrays(gradients) if is_plain(gradient) else None
        if found is not None:
            pairs = zip(found, self.operand_types, strict=True)
            return tuple([_as_tensor(part, gradient, type) for part, type in pairs])
        operands: list[Operand] = [
            saved[i].unpack(self) if i in saved else Missing(type, gradient)
            for i, type in enumerate(self.operand_types)
        ]
        result = saved[-1].unpack(self) if -1 in saved else Missing(self._output_types[0], gradient)
        assert self.op.vjp is not None
        parts = self.op.vjp(gradient, result, *operands, **self.attributes)
        return tuple(
            None if edge is None or part is None else ops.sum_to_shape(part, type.shape)
            for edge, part, type in zip(self._edges, parts, self.operand_types, strict=True)
        )

    def _on_arrays(self, gradients: Sequence[Gradient | None]) -> Sequence[Gradient | None] | None:
        gradient, saved = gradients[0], self.saved
        if gradient is None:
            return None
        if saved is None:
            raise LucidError(FREED + origin_line(self._short_name(), self._line))
        rule = self.derivative.rule
        is_array = isinstance(gradient, np.ndarray)
        if not (rule.serves_arrays if is_array else rule.serves_tensors):
            return None
        arrays: list[Any] = [gradient if isinstance(gradient, np.ndarray) else gradient._array]
        for tensor in saved.values():
            arrays.append(array := tensor.content(self)._array)
            if array is None:  # a hook has unpacked what has no data
                return None
        found: list[Gradient | None] = rule.run(arrays)  # type: ignore[assignment]
        if rule.passed and not is_array:
            found = [gradient if n == 0 else x for n, x in zip(rule.results, found, strict=True)]
        return found

    def _release(self) -> None:
        if self.saved:
            self.saved = None


def _as_tensor(part: Gradient | None, gradient: TensorCore, type: TensorType) -> TensorCore | None:
    """What was computed from a gradient, as a tensor."""
    return gradient._followed_by(part, type) if isinstance(part, np.ndarray) else part


def is_plain(gradient: TensorCore) -> bool:
    """Whether nobody but the walk itself sees what rules do with a gradient."""
    state = context.__dict__
    return (
        not state["grad_enabled"]
        and state["recorder"] is None
        and not state["levels"]
        and gradient._array is not None
    )


class PartsNode(Node):
    """The backward of views that together are a tensor, side by side along an axis.

    Views one by one have each a gradient of the whole tensor, zero but for a part. These n arrays
    were made and added up; joined, the parts are each moved once.

    Attributes:
        op: the last view op of each part, after which the node is called.
        axis: of the tensor.
        are_rows: whether the parts have lost that axis.
    """

    __slots__ = ("are_rows", "axis", "op")
    _asks_what_is_wanted = True  # there is one edge
    _has_separate_outputs = True

    def __init__(
        self, op: Op, axis: int, are_rows: bool, of: TensorCore, parts: Sequence[TensorCore]
    ) -> None:
        super().__init__((), tuple([part._type for part in parts]))
        self._led_to, self._ends = None, (end_of(of),)
        self._spot = parts[0]._spot
        self.op, self.axis, self.are_rows = op, axis, are_rows
        for number, part in enumerate(parts):
            part._grad_fn, part._output_nr, part._requires_grad = self, number, True

    def _name(self) -> str:
        return backward_name(self.op)

    def apply(self, gradients: Gradients) -> Gradients:
        from lucid.autograd.engine import zeros_of

        count = len(gradients) - gradients.count(None)
        if not count:
            return (None,)
        parts: list[Any] = [
            zeros_of(type) if gradient is None else gradient
            for gradient, type in zip(gradients, self._output_types, strict=True)
        ]
        if self.are_rows:
            shape = self._output_types[0].shape
            longer = (*shape[: self.axis], 1, *shape[self.axis :])
            parts = [ops.reshape(part, shape=longer) for part in parts]
        joined = ops.concat(*parts, axis=self.axis)
        return (joined if count == 1 else ops.add(joined, ops.zeros_like(joined)),)

    def _on_arrays(self, gradients: Sequence[Gradient | None]) -> Sequence[Gradient | None] | None:
        from lucid.autograd.engine import data_of

        arrays, count = list[np.ndarray](), 0
        for gradient, type in zip(gradients, self._output_types, strict=True):
            if gradient is None:
                arrays.append(np.broadcast_to(type.dtype.numpy.type(0), type.shape))
                continue
            count += 1
            array = data_of(gradient)
            if array is None:
                return None
            arrays.append(array)
        if not count:
            return None
        if not self.are_rows:
            joined = np.concatenate(arrays, self.axis)
        else:
            joined = np.stack(arrays, self.axis) if self.axis else np.array(arrays)
        if count > 1:
            joined += 0  # -0.0 becomes 0.0, as in sums with the zeros of other parts
        return (joined,)


class CopySlices(Node):
    """The history of a base after a write through one of its views."""

    __slots__ = ("chain",)

    def __init__(
        self, type: TensorType, edges: tuple[Edge | None, Edge | None], chain: ViewChain
    ) -> None:
        super().__init__(edges, (type,))
        self.chain = chain

    def apply(self, gradients: Gradients) -> Gradients:
        from lucid.tensor.writing import replay, scatter

        gradient = gradients[0]
        if gradient is None:
            return None, None
        part = replay(gradient, self.chain)
        rest = None
        if self._edges[0] is not None:
            rest = scatter(gradient, self.chain, ops.zeros_like(part))
        return rest, part


class OverwriteBackward(Node):
    """The history of a tensor that was overwritten by a constant: what it was has gradient zero."""

    __slots__ = ()

    def __init__(self, tensor: TensorCore) -> None:
        super().__init__((edge_of(tensor),), (tensor._type,))

    def apply(self, gradients: Gradients) -> Gradients:
        gradient = gradients[0]
        return (None if gradient is None else ops.zeros_like(gradient),)


def iterate_graph(roots: Sequence[Node]) -> Iterator[Node]:
    """Every node reachable from the roots, each once, without recursion."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        node = stack.pop()
        yield node
        for edge in node._edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])


@cache
def backward_name(op: Op) -> str:
    """`MulBackward` for `mul`: the name of the op's nodes."""
    return "".join(part.capitalize() for part in op.name.split("_")) + "Backward"
