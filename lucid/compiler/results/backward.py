"""How a call outside of a trace gets its gradients.

Each call of a differentiable program makes a `Record`: what the program has kept for its backward,
and the version counters of what it read. Behind the results stands a `CompiledBackward` per layer.
When a walk comes to it, a compiled function of the gradients and of what was kept walks through the
nodes that the trace has left (`tape.py`); there is one for each `Kind` of backward. Its own results
may have a history of the same kind, so derivatives of any order come without a further rule.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lucid.autograd.entry_points import find_gradients
from lucid.autograd.hooks import HookHandle
from lucid.autograd.node import (
    CustomNode,
    Edge,
    GradientEdge,
    Gradients,
    Node,
    accumulator_of,
    edge_of,
    origin_line,
)
from lucid.autograd.saved import FREED, modified, with_history_of
from lucid.compiler.inputs.watches import remove_hooks_at
from lucid.compiler.results.histories import (
    EndOf,
    Further,
    GradientOf,
    Layer,
    Leaf,
    Made,
    given,
    tensor_of,
)
from lucid.compiler.results.tape import Tape, is_read
from lucid.functions.joining import stack
from lucid.ir.errors import EagerOnlyError, LucidError
from lucid.ir.types import TensorType
from lucid.tensor.batched import Batched, BatchLevel
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, _new, alias, of_array
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.writing import rebase_history

if TYPE_CHECKING:
    from lucid.autograd.engine import BackwardRun
    from lucid.compiler.inputs.signature import Call
    from lucid.compiler.programs.program import Program
    from lucid.compiler.recording.recorder import Recorder
    from lucid.compiler.results.outcomes import Run


class Kind(NamedTuple):
    """What a backward computes.

    Attributes:
        layer: whose results it differentiates.
        sent: for each of these whether it has a gradient.
        wanted: numbers of the layer's ends whose gradients are asked for.
        is_open: whether it is itself differentiated.
    """

    layer: int
    sent: tuple[bool, ...]
    wanted: tuple[int, ...]
    is_open: bool


class Differentiable:
    """What a program needs to give its results a history.

    Attributes:
        layers: the results that require grad; each layer depends on earlier ones only.
        tape: the nodes behind them.
        further: what else gets a history; numbered after the results.
        reads: the gradients that a call finds in a `.grad`.
        counters: the version counters of state that a call notes.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        layers: list[Layer],
        tape: Tape,
        further: list[Further],
        reads: list[GradientOf],
        counters: list[VersionCounter],
        calls_users: bool,
    ) -> None:
        self.layers = layers
        self.tape = tape
        self.further = further
        self.reads = reads
        self.counters = counters
        self._users = function if calls_users else None
        self._kinds: dict[Kind, Backward] = {}
        self._leaves: list[list[tuple[Any, bool]]] = [
            [(leaf, isinstance(leaf, TensorCore)) for leaf in layer.leaves] for layer in layers
        ]
        for layer in layers:
            for output in layer.outputs:
                if output.hooks:  # each call registers them on its result
                    remove_hooks_at(output.root)

    def edges(self, arguments: Sequence[TensorCore]) -> list[list[Edge | None]]:
        """Per layer where gradients of its leaves go; None for one that the step is to make."""
        return [
            [
                leaf_edge(leaf) if is_state else _edge_of(leaf, arguments)
                for leaf, is_state in leaves
            ]
            for leaves in self._leaves
        ]

    def latest(self) -> Program | None:
        """The program of a backward that was run last, of those that aren't differentiated."""
        found = [backward.program for kind, backward in self._kinds.items() if not kind.is_open]
        return next((program for program in reversed(found) if program is not None), None)

    def backward(self, kind: Kind) -> Backward:
        """The function that computes the gradients."""
        found = self._kinds.get(kind)
        if found is None:
            walk = Walk(kind, self.layers[kind.layer], self.tape, self._users)
            found = self._kinds[kind] = Backward(walk)
        return found


def leaf_edge(leaf: TensorCore) -> Edge:
    """Where its gradient goes. The step may ask for it: the flag is set at the end."""
    if leaf._grad_fn is not None or leaf._base is not None:
        edge = edge_of(leaf)
        if edge is not None:
            return edge
    reference = leaf._accumulator
    node = None if reference is None else reference()
    return accumulator_of(leaf) if node is None else node, 0


def _edge_of(leaf: Leaf, arguments: Sequence[TensorCore]) -> Edge | None:
    if isinstance(leaf, Made):
        return None
    if isinstance(leaf, EndOf):
        return _running.edges[leaf.number]
    return leaf_edge(tensor_of(leaf, arguments, ()))


class Backward:
    """One kind of backward of a program's results, as a compiled function.

    Attributes:
        walk: what is compiled.
        walked: the nodes with something saved that it comes to, in its order.
    """

    def __init__(self, walk: Walk) -> None:
        from lucid.compiler.compiled import Compiled

        self.walk = walk
        self.walked = walk.nodes()
        self._compiled = Compiled(walk, "native")
        self.run: Callable[..., Sequence[TensorCore | None]] = self._compiled.call_natively

    @property
    def program(self) -> Program | None:
        """The one that ran last."""
        return self._compiled._latest


class Walk:
    """A walk through the nodes that a trace has left, from the results of one layer.

    Attributes:
        ctx_change: what a backward of the user's changes in its ctx, for messages.
    """

    def __init__(
        self, kind: Kind, layer: Layer, tape: Tape, users: Callable[..., Any] | None
    ) -> None:
        self.__name__ = "backward"
        if users is not None:  # what code of theirs reads is watched
            self.__wrapped__ = users
        self.kind = kind
        self._layer = layer
        self._tape = tape
        pairs = zip(layer.outputs, kind.sent, strict=True)
        self._roots = [GradientEdge(*output.root) for output, is_sent in pairs if is_sent]
        self._wanted = [GradientEdge(*layer.ends[i]) for i in kind.wanted]
        self.ctx_change: str | None = None

    def nodes(self) -> list[Node]:
        """The nodes with something saved that it comes to, in its order."""
        return self._tape.walked(self._roots, {*self._layer.ends}, {*self._wanted})

    def __call__(self, *arguments: Any) -> tuple[TensorCore | None, ...]:
        """In a trace, the gradients at the ends of the layer.

        arguments: gradients of the results, and what a call has kept.
        """
        recorder, is_open, tape = context.recorder, self.kind.is_open, self._tape
        assert recorder is not None
        recorder.ctx_change = None
        recorder.hosts.know(_running.contexts)
        count = len(self._roots)
        gradients, kept = arguments[:count], arguments[count:]
        numbers = [_live_number(recorder, i) for i in range(len(tape.formulas))]
        if is_open:
            ends = [*self._layer.ends, *(output.root for output in self._layer.outputs)]
            recorder.ends = {edge: _placeholder(edge) for edge in ends}

        def walked() -> list[TensorCore | None]:
            return find_gradients(self._roots, self._wanted, gradients, True, is_open, is_part=True)

        found = tape.walk(kept, numbers, walked, with_hidden=is_open)
        self.ctx_change = recorder.ctx_change
        return tuple(x if x is None or is_open else _whole(x) for x in found)


def _placeholder(edge: Edge) -> TensorCore:
    type = edge[0]._output_types[edge[1]]
    return of_array(np.broadcast_to(np.zeros((), type.dtype.numpy), type.shape))


def _whole(gradient: TensorCore) -> TensorCore:
    """A gradient in row-major memory of its own, as leaves have theirs."""
    return gradient._own_copy() if gradient._chain else gradient


class _Running(threading.local):
    """Which call's backward is running.

    Attributes:
        record: that of the call.
        edges: of its node: where the gradients go; and where those of its outputs do.
        contexts: what host calls of the call have left.
        numbers: the Python numbers that it has kept.
    """

    record: Record | None = None
    edges: Sequence[Edge | None] = ()
    contexts: dict[Any, Any] = {}  # noqa: RUF012 - never written
    numbers: Sequence[float] = ()


_running = _Running()


def _live_number(recorder: Recorder, number: int) -> Any:
    """A number that each call has kept."""

    def read() -> float:
        return _running.numbers[number]

    text = recorder.unused_text(f"number {number} that a ctx holds")
    return recorder.live_scalar(text, read(), lambda call: read(), read)


class Record:
    """What one call keeps for the backward of its results.

    Attributes:
        freed: those of the nodes whose saved values a backward has released.
        line: the user's line that called the step.
        behind: of a backward's results, that of the results which it differentiates.
        contexts: what host calls of the call have left for those of the backward.
    """

    __slots__ = (
        "__weakref__",
        "_counters",
        "_edges",
        "_gradients",
        "_kept",
        "_memories",
        "_numbers",
        "_passed",
        "_versions",
        "behind",
        "contexts",
        "freed",
        "line",
        "rule",
    )

    def __init__(self, rule: Differentiable, call: Call, line: tuple[str, int] | None) -> None:
        """Note what there is before the step runs."""
        self.rule = rule
        self.line = line
        self.behind = _running.record if rule.tape.goes_on else None
        self.freed: set[Node] = set() if self.behind is None else self.behind.freed
        self.contexts: dict[Any, Any] = {} if self.behind is None else {**self.behind.contexts}
        self._passed: frozenset[Kind] = frozenset()
        self._edges: Sequence[list[Edge | None]] = rule.edges(call.tensors)
        self._counters = [tensor._counter for tensor in call.tensors]
        for use in rule.reads:
            found = use.found(call.tensors)
            self._counters.append(VersionCounter() if found is None else found._counter)
        formulas = rule.tape.formulas
        self._numbers = [formula(call.floats) for formula in formulas] if formulas else ()

    def attach(
        self,
        run: Run,
        results: Sequence[TensorCore],
        gradients: Sequence[TensorCore],
    ) -> None:
        """Give the results of the call, and what else has one, their history.

        gradients: those among `Differentiable.further`, in order.
        """
        rule, arguments = self.rule, run.call.tensors
        targets: list[TensorCore] = []
        if rule.further:
            targets = [given(x, arguments) for x in rule.further if not isinstance(x, GradientOf)]
        values = [alias(target) for target in targets]
        receivers = [*results, *gradients, *values]
        counters = self._counters
        counters += [tensor._counter for tensor in receivers]
        counters += rule.counters
        self._versions = [counter.now for counter in counters]
        outputs, inputs = run.outputs, run.inputs
        self._kept: list[Any] = [
            outputs[i] if is_output else inputs[i] for is_output, i in rule.tape.all_sources
        ]
        shown: list[TensorCore] = [*rule.tape.tensors, *(arguments[i] for i in rule.tape.arguments)]
        self._memories = [(tensor, tensor._storage) for tensor in shown]
        nodes: list[CompiledBackward] = []
        for number, layer in enumerate(rule.layers):
            leaves = self._edges[number]
            if None in leaves:
                leaves = [
                    leaf_edge(results[leaf.position]) if isinstance(leaf, Made) else edge
                    for leaf, edge in zip(layer.leaves, leaves, strict=True)
                ]
            upstream: list[Edge | None] = [(nodes[k], index) for k, index in layer.upstream]
            nodes.append(CompiledBackward(self, number, (*upstream, *leaves), receivers))
        self._edges = ()
        written = {id(target) for target in targets} if targets else ()
        for target, value in zip(targets, values, strict=True):
            if id(target._base) in written:
                take_history(target, value)
            else:
                rebase_history(target, value)

    def check(self, node: CompiledBackward, walked: Sequence[Node]) -> None:
        """Raise what the first node of a walk raises that finds what it saved freed or written."""
        if not (self.freed or self.rule.tape.is_written or self._is_written()):
            return
        for met in walked:
            if not is_read(met):
                continue
            if met in self.freed:
                raise LucidError(FREED + origin_line(met._short_name(), met._line))
            self._refuse_written(node, met)

    def _is_written(self) -> bool:
        """Whether something was written since the call."""
        is_here = [counter.now for counter in self._counters] != self._versions
        return is_here or (self.behind is not None and self.behind._is_written())

    def _refuse_written(self, node: CompiledBackward, met: Node) -> None:
        counters, versions = self._counters, self._versions
        for kept in self.rule.tape.kept.get(met, ()):
            found, expected = counters[kept.counter].now, versions[kept.counter] - kept.writes
            if found != expected:
                name = kept.name if kept.argument < 0 else self._name_of(kept.argument)
                saver = f"{met._name()}{met._place()}"
                raise LucidError(modified(kept.type, name, found, expected, saver))
        if self.behind is not None:
            self.behind._refuse_written(node, met)

    def _name_of(self, argument: int) -> str | None:
        """What messages call an argument that has a history by now."""
        tape = self.rule.tape
        if argument not in tape.arguments:
            return None
        tensor, _ = self._memories[len(tape.tensors) + tape.arguments.index(argument)]
        node = tensor.grad_fn
        return None if node is None else node._output_name(tensor._output_nr)

    def refuse_moved(self, node: Node) -> None:
        """Raise when a tensor that was saved shows other memory than at the call."""
        for tensor, storage in self._memories:
            if tensor._storage is not storage:
                raise LucidError(
                    "a tensor that the gradients of a compiled function's result are computed from "
                    f"was given other memory since the call\n  {tensor._describe()}\n"
                    f"  in {node._name()}{node._place()}\n"
                    "hint: call backward() before assigning .data or calling set_()"
                )

    def refuse_other(self, node: Node) -> None:
        """Raise when something was written that a backward computes from once more."""
        for number in self.rule.tape.reads_again:
            if self._counters[number].now != self._versions[number]:
                raise LucidError(
                    "a gradient of a gradient of a compiled function's result is computed from a "
                    "tensor that was written in place since the call\n"
                    f"  in {node._name()}{node._place()}\n"
                    "hint: call backward() before it is written, or inside of the compiled function"
                )

    def free(self, nodes: Sequence[Node]) -> None:
        """Note what a backward has released, and drop everything if nothing can run any more."""
        self.freed.update(nodes)
        record: Record | None = self
        while record is not None:
            saving = record.rule.tape.kept.keys()
            if saving and saving <= self.freed and all(map(is_read, saving)):
                record._kept, record._memories, record.contexts = [], [], {}
            record = record.behind

    def gradients(
        self, node: CompiledBackward, backward: Backward, gradients: Sequence[TensorCore]
    ) -> Sequence[TensorCore | None]:
        """Those at the ends of a layer that are asked for."""
        kind = backward.walk.kind
        self.check(node, backward.walked)
        self.refuse_moved(node)
        if kind.is_open:
            self.refuse_other(node)
        walk = backward.walk
        if walk.ctx_change is not None and kind in self._passed:
            raise LucidError(
                f"{walk.ctx_change}\n  a second backward through the result of a compiled "
                "function would not find the change\n"
                "hint: call backward() inside of the compiled function"
            )
        count = len(self.rule.tape.sources)
        kept = self._kept if kind.is_open else self._kept[:count]
        arguments = (
            *map(_row_major, gradients),
            *map(_tensor_on, kept, self.rule.tape.types),
        )
        before = _running.record, _running.edges, _running.contexts, _running.numbers
        _running.numbers = self._numbers
        _running.record, _running.contexts = self if kind.is_open else None, self.contexts
        _running.edges = (*node._edges, *((node, i) for i in range(len(kind.sent))))
        contexts, context.contexts = context.contexts, self.contexts
        try:
            found = backward.run(arguments)
        except EagerOnlyError as error:
            raise LucidError(
                f"the gradients of a compiled function's result can't be computed natively: {error}"
                f"\n  in {node._name()}{node._place()}\n"
                "hint: call backward() inside of the compiled function"
            ) from None
        finally:
            _running.record, _running.edges, _running.contexts, _running.numbers = before
            context.contexts = contexts
        if walk.ctx_change is not None:
            self._passed |= {kind}
        return found


def _tensor_on(content: np.ndarray | float, type: TensorType) -> TensorCore:
    """A tensor on an array of that type, or of a number."""
    array = content if isinstance(content, np.ndarray) else np.array(content, type.dtype.numpy)
    storage = Storage(type)
    storage.array = array
    return _new(storage, type, array, ())


def _example(gradient: TensorCore | None, level: BatchLevel, number: int) -> TensorCore | None:
    """One of the gradients that a vmap computes at once."""
    is_mapped = isinstance(gradient, Batched) and gradient._level is level
    return gradient._inner[number] if is_mapped else gradient  # type: ignore[union-attr]


def _row_major(gradient: TensorCore) -> TensorCore:
    """A gradient as the backward was compiled for, however it lies."""
    array = gradient._array
    is_row_major = array is None or array.flags.c_contiguous
    return gradient if is_row_major else with_history_of(gradient, gradient._own_copy())


def take_history(view: TensorCore, value: TensorCore) -> None:
    """Let the view of a base that was written have the history that the step has derived."""
    assert view._base is not None
    view._grad_fn, view._output_nr = value._grad_fn, value._output_nr
    view._requires_grad, view._epoch = True, view._base._epoch


class CompiledBackward(CustomNode):
    """The node of one layer of a call's results."""

    __slots__ = ("_layer", "_number", "_program", "_record", "_walked")
    _takes_undefined = False
    _has_separate_outputs = True

    def __init__(
        self,
        record: Record,
        number: int,
        edges: tuple[Edge | None, ...],
        results: Sequence[TensorCore],
    ) -> None:
        layer = record.rule.layers[number]
        super().__init__(edges, layer.types)
        self._line = record.line
        self._record = record
        self._number = number
        self._layer = layer
        self._walked: Sequence[Node] = ()
        self._program: Program | None = None
        for index, output in enumerate(layer.outputs):
            if output.hooks:
                register = self._tensor_hooks = self._tensor_hooks or {}
                register[index] = {}
                for hook in output.hooks:
                    HookHandle.add(register[index], hook)
            for position in output.positions:
                tensor = results[position]
                tensor._grad_fn, tensor._output_nr, tensor._requires_grad = self, index, True
                if tensor._retains_grad:
                    self._retain(index, tensor)

    def _output_name(self, number: int) -> str:
        return self._layer.outputs[number].name

    def apply(self, gradients: Gradients) -> Gradients:
        wanted = tuple(i for i, edge in enumerate(self._edges) if edge is not None)
        return self._apply(gradients, wanted, context.grad_enabled)

    def _apply_in_run(self, run: BackwardRun, gradients: Gradients) -> Gradients:
        edges = self._edges
        if run.wanted is None and None not in edges:
            return self._apply(gradients, tuple(range(len(edges))), run.create_graph)
        wanted = tuple(i for i, edge in enumerate(edges) if run.matters(edge))
        return self._apply(gradients, wanted, run.create_graph)

    def _apply(self, gradients: Gradients, wanted: tuple[int, ...], is_open: bool) -> Gradients:
        if context.recorder is not None:
            context.recorder.run_op_by_op(
                "a backward() in it goes through the result of a compiled function that was called "
                f"outside{self._place()}"
            )
        if context.levels:
            return self._apply_in_levels(gradients, wanted, is_open)
        sent = tuple([gradient is not None for gradient in gradients])
        backward = self._record.rule.backward(Kind(self._number, sent, wanted, is_open))
        given = [gradient for gradient in gradients if gradient is not None]
        found = self._record.gradients(self, backward, given)
        self._walked, self._program = backward.walked, backward.program
        if len(wanted) == len(self._edges):
            return tuple(found)
        parts: list[TensorCore | None] = [None] * len(self._edges)
        for i, gradient in zip(wanted, found, strict=True):
            parts[i] = gradient
        return tuple(parts)

    def _apply_in_levels(
        self, gradients: Gradients, wanted: tuple[int, ...], is_open: bool
    ) -> Gradients:
        """The same in a vmap that the call was not in: one backward for each example."""
        levels = context.levels
        if not all(isinstance(level, BatchLevel) for level in levels):
            raise LucidError(
                "the results of a compiled function can't be differentiated in a forward-mode "
                f"derivative that it was not called in{self._place()}\nhint: call it inside"
            )
        found = [gradient._level for gradient in gradients if isinstance(gradient, Batched)]
        if not found:
            context.levels = []
            try:
                return self._apply(gradients, wanted, is_open)
            finally:
                context.levels = levels
        level = max(found, key=levels.index)
        rows = [
            self._apply(tuple(_example(x, level, i) for x in gradients), wanted, is_open)
            for i in range(level.size)
        ]
        columns = [[x for x in column if x is not None] for column in zip(*rows, strict=True)]
        return tuple(level.wrap(stack(column)) if column else None for column in columns)

    def _release(self) -> None:
        self._record.free(self._walked)
        if self._program is not None:
            self._program.forget_arguments()
