"""The backward walk: one engine for eager mode and for traces.

Nodes run from the latest recorded to the earliest. An edge always leads to a node that was recorded
before, so when a node's turn comes, every contribution to its gradient has arrived. Leaves
accumulate last: an error in the middle leaves every `.grad` as it was. There is no recursion.
"""

from __future__ import annotations

import heapq
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lucid.autograd.anomaly import check_anomaly
from lucid.autograd.hooks import run_post_hooks, run_pre_hooks, run_tensor_hooks
from lucid.autograd.node import (
    AccumulateGrad,
    CustomNode,
    Edge,
    GradientEdge,
    Gradients,
    Node,
    edge_of,
    iterate_graph,
)
from lucid.autograd.saved import copy_of, with_history
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, LucidError, OptionError, ShapeError
from lucid.ir.types import TensorType
from lucid.tensor import claims
from lucid.tensor.context import context
from lucid.tensor.size import Size

if TYPE_CHECKING:
    from lucid.tensor.core import TensorCore
    from lucid.tensor.tensor import Tensor


class BackwardRun:
    """One backward walk: the gradients that have arrived, and which nodes matter.

    Attributes:
        wanted: edges whose gradient is asked for; None: all leaves accumulate.
        captured: the gradients of `wanted`, as they become complete.
        is_part: another walk goes on from the wanted edges, and runs their hooks.
    """

    def __init__(
        self,
        retain_graph: bool,
        create_graph: bool,
        wanted: Sequence[Edge] | None,
        is_part: bool = False,
    ) -> None:
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.wanted = None if wanted is None else set(wanted)
        self.is_part = is_part
        self.captured: dict[Edge, TensorCore] = {}
        self.arrived: dict[Node, list[TensorCore | None]] = {}
        self.queue: list[tuple[int, int, Node]] = []
        self.queued = 0
        self.needed: set[Node] | None = None
        self.roots: list[Node] = []
        self.spent: list[Node] = []

    def run(self, roots: Sequence[tuple[Edge, TensorCore]]) -> None:
        self.roots = [edge[0] for edge, _ in roots]
        if self.wanted is not None:
            self.needed = self._needed_nodes(self.roots)
        with _walking(self):
            for edge, gradient in roots:
                self.send(edge, gradient)
            while self.queue:
                self._run_node(heapq.heappop(self.queue)[2])
        if not self.retain_graph:  # only now: after an exception the walk can be repeated
            for node in self.spent:
                if context.recorder is not None:
                    context.recorder.refuse_release(node)
                node._release()

    def _needed_nodes(self, roots: Sequence[Node]) -> set[Node]:
        """Nodes from which a wanted edge can be reached: those that must run."""
        assert self.wanted is not None
        targets = {node for node, _ in self.wanted}
        needed: set[Node] = set()
        for node in sorted(iterate_graph(roots), key=lambda node: node._sequence):
            if any(e is not None and (e[0] in needed or e[0] in targets) for e in node._edges):
                needed.add(node)
        return needed

    def matters(self, edge: Edge | None) -> bool:
        """Whether the gradient that goes along an edge is asked for."""
        if edge is None:
            return False
        return self.needed is None or edge[0] in self.needed or edge in (self.wanted or ())

    def count_reachable(self, edges: Sequence[Edge | None]) -> int:
        """How many of the edges the walk can reach."""
        nodes = set(iterate_graph(self.roots))
        return sum(edge is not None and edge[0] in nodes for edge in edges)

    def send(self, edge: Edge, gradient: TensorCore | None) -> None:
        """Add a contribution to the gradient of one output of a node; None adds nothing to it."""
        if not self.matters(edge):
            return
        node, index = edge
        slots = self.arrived.get(node)
        if slots is None:
            slots = self.arrived[node] = [None] * len(node._output_types)
            self.queued += 1
            heapq.heappush(self.queue, (-node._sequence, self.queued, node))
        present = slots[index]
        if gradient is not None:
            slots[index] = gradient if present is None else ops.add(present, gradient)

    def _run_node(self, node: Node) -> None:
        slots = self.arrived.pop(node)
        self._finish_gradients(node, slots)
        if isinstance(node, AccumulateGrad):
            if self.wanted is None:
                node.apply(tuple(slots))
            return
        if self.needed is not None and node not in self.needed:
            return
        parts = self._parts(node, tuple(slots))
        for edge, part in zip(node._edges, parts, strict=True):
            if edge is not None:
                self.send(edge, part)
        self.spent.append(node)

    def _parts(self, node: Node, gradients: Gradients) -> Gradients:
        """What a node makes of its gradients, hooks included."""
        if not node._takes_undefined and all(gradient is None for gradient in gradients):
            return (None,) * len(node._edges)
        if node._pre_hooks:
            gradients = run_pre_hooks(node, gradients)
        recorder = context.recorder
        if recorder is None:
            parts = self._apply(node, gradients)
            if context.anomaly is not None:
                check_anomaly(node, parts)
        else:
            with recorder.deriving(node):
                parts = self._apply(node, gradients)
        return run_post_hooks(node, parts, gradients) if node._post_hooks else parts

    def _apply(self, node: Node, gradients: Gradients) -> Gradients:
        if isinstance(node, CustomNode):
            return node._apply_in_run(self, gradients)
        return node.apply(gradients)

    def _finish_gradients(self, node: Node, slots: list[TensorCore | None]) -> None:
        """Run tensor hooks, keep what `retain_grad` asked for, capture what is wanted."""
        for index, gradient in enumerate(slots):
            if gradient is None:
                continue
            is_wanted = self.wanted is not None and (node, index) in self.wanted
            if is_wanted and self.is_part:
                self.captured[node, index] = gradient
                continue
            hooks = None
            if isinstance(node, AccumulateGrad):
                hooks = node.variable._hooks
            elif node._tensor_hooks is not None:
                hooks = node._tensor_hooks.get(index)
            if hooks:
                gradient = slots[index] = run_tensor_hooks(hooks, gradient)
            if node._retained is not None and index in node._retained:
                tensor = node._retained[index]()
                if tensor is not None:
                    accumulate(tensor, gradient)
            if is_wanted:
                self.captured[node, index] = gradient


@contextmanager
def _walking(run: BackwardRun) -> Iterator[None]:
    """The state of the thread while a walk goes on."""
    before = context.grad_enabled, context.forward, context.backward_run
    context.grad_enabled = run.create_graph
    context.forward, context.backward_run = None, run
    context.backward_depth += 1
    try:
        with _room_to_nest(context.backward_depth):
            yield
    finally:
        context.backward_depth -= 1
        context.grad_enabled, context.forward, context.backward_run = before


_NESTING = (8, 1024)  # depths of walks inside of walks for which the interpreter's limit is raised
_FRAMES = 40  # of Python that one such level may take
_raising = threading.Lock()


@contextmanager
def _room_to_nest(depth: int) -> Iterator[None]:
    """Let backwards that call backward go deeper than Python's limit on recursion."""
    if not _NESTING[0] <= depth <= _NESTING[1]:
        yield
        return
    with _raising:
        sys.setrecursionlimit(sys.getrecursionlimit() + _FRAMES)
    try:
        yield
    finally:
        with _raising:
            sys.setrecursionlimit(sys.getrecursionlimit() - _FRAMES)


def accumulate(variable: TensorCore, gradient: TensorCore) -> None:
    """Add to `variable.grad`, in place when there is one; a first one gets memory of its own."""
    from lucid.tensor.writing import write_

    with claims.lock:
        if claims.held and context.recorder is None:
            claims.wait_for(frozenset((id(variable),)))
        present = variable.grad
        if present is None:
            variable.grad = own_copy(gradient)
        elif context.grad_enabled:
            variable.grad = ops.add(present, gradient)
        else:
            write_(present, ops.add(present, gradient))


def own_copy(tensor: TensorCore) -> TensorCore:
    """The same numbers in memory that nobody else holds, with the history kept."""
    copy = copy_of(tensor)
    edge = edge_of(tensor) if context.grad_enabled else None
    return copy if edge is None else with_history(copy, edge)


# ---------------------------------------------------------------------- entry points


def backward(
    tensors: TensorCore | Sequence[TensorCore],
    grad_tensors: TensorCore | Sequence[TensorCore | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    *,
    inputs: TensorCore | Sequence[TensorCore] | None = None,
) -> None:
    """Accumulate the gradients of `tensors` into the `.grad` of leaves (only `inputs`, if given).

    Each tensor may be given as its `GradientEdge`. Shapes: `grad_tensors` as `tensors`; None for
    tensors with one element. Raises: `LucidError` for a tensor without history, and when the graph
    was freed by an earlier backward.
    """
    roots = _roots(_listed(tensors), _listed(grad_tensors), create_graph)
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        BackwardRun(retain, create_graph, None).run(roots)
        return
    targets = _listed(inputs)
    if not targets:
        raise LucidError("`inputs` argument to `backward()` cannot be empty.")
    edges = [_input_edge(tensor) for tensor in targets]
    for i, (tensor, edge) in enumerate(zip(targets, edges, strict=True)):
        if isinstance(tensor, GradientEdge) and not isinstance(edge[0], AccumulateGrad):
            raise OptionError(
                f"backward: input {i} is the GradientEdge of an intermediate, of {edge[0].name()}, "
                "so there is no tensor for its .grad\nhint: autograd.grad returns its gradient"
            )
    run = BackwardRun(retain, create_graph, edges)
    run.run(roots)
    before = context.grad_enabled
    context.grad_enabled = create_graph
    try:
        for edge, tensor in dict(zip(edges, targets, strict=True)).items():
            if edge in run.captured:
                _accumulate_at(tensor, edge, run.captured[edge])
    finally:
        context.grad_enabled = before


def _accumulate_at(tensor: TensorCore, edge: Edge, gradient: TensorCore) -> None:
    node, index = edge
    if isinstance(node, AccumulateGrad):
        node.apply((gradient,))  # with its hooks
    elif node._retained is None or index not in node._retained:  # else the walk has kept it
        accumulate(tensor, gradient)


def grad(
    outputs: TensorCore | Sequence[TensorCore],
    inputs: TensorCore | Sequence[TensorCore],
    grad_outputs: TensorCore | Sequence[TensorCore | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of `outputs` with respect to `inputs`, always as a tuple.

    Each tensor may be given as its `GradientEdge`. Shapes: `grad_outputs` as `outputs`; left out
    for outputs with one element. An input that the outputs don't depend on is an error, None with
    `allow_unused`, zeros with `materialize_grads`. `only_inputs` is ignored: no other leaf's
    `.grad` is ever touched.

    >>> import lucid
    >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
    >>> lucid.autograd.grad((x * x).sum(), x)
    (tensor([2., 4.]),)
    """
    if materialize_grads and allow_unused is False:
        raise OptionError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    if is_grads_batched:
        return _batched(
            outputs,
            inputs,
            grad_outputs,
            create_graph or bool(retain_graph),
            create_graph,
            allow_unused,
            materialize_grads,
        )
    targets = _listed(inputs)
    if not targets:
        raise LucidError("`inputs` argument to `grad()` cannot be empty.")
    retain = create_graph if retain_graph is None else retain_graph
    found = find_gradients(outputs, targets, grad_outputs, retain, create_graph)
    return tuple(
        _result(gradient, tensor, i, bool(allow_unused), materialize_grads)
        for i, (tensor, gradient) in enumerate(zip(targets, found, strict=True))
    )


def find_gradients(
    outputs: Any,
    inputs: Sequence[TensorCore],
    grad_outputs: Any,
    retain_graph: bool,
    create_graph: bool,
    *,
    is_part: bool = False,
) -> list[TensorCore | None]:
    """`grad`, with None for each input that the outputs don't depend on."""
    roots = _roots(_listed(outputs), _listed(grad_outputs), create_graph)
    edges = [_input_edge(tensor) for tensor in inputs]
    run = BackwardRun(retain_graph, create_graph, edges, is_part)
    run.run(roots)
    return [run.captured.get(edge) for edge in edges]


def _batched(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any,
    retain_graph: bool,
    create_graph: bool,
    allow_unused: bool | None,
    materialize_grads: bool,
) -> tuple[Tensor | None, ...]:
    """`grad` for each entry of the cotangents' first axis, stacked."""
    from lucid.functions.joining import stack

    ys, batches = _listed(outputs), _listed(grad_outputs)
    for i, (y, batch) in enumerate(zip(ys, batches, strict=False)):
        if batch is None or batch.ndim == 0 or batch.shape[1:] != y.shape:
            shape = None if batch is None else batch.shape[1:]
            raise ShapeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output "
                "as the batch dimension. The sizes of the remaining dimensions are expected to "
                "match the shape of corresponding output, but a mismatch was detected: "
                f"grad_output[{i}] has a shape of {shape} and output[{i}] has a shape of {y.shape}."
                " If you only want some tensors in `grad_output` to be considered batched, "
                "consider using vmap."
            )
    if not batches or any(len(batch) != len(batches[0]) for batch in batches):
        raise ShapeError(
            "is_grads_batched=True takes grad_outputs with one and the same first axis"
        )
    size = len(batches[0])
    rows = [
        grad(ys, inputs, [batch[k] for batch in batches], retain_graph or k + 1 < size,
             create_graph, True, allow_unused, False, materialize_grads)
        for k in range(size)
    ]  # fmt: skip
    return tuple(
        None if column[0] is None else stack(list(column)) for column in zip(*rows, strict=True)
    )


def _result(
    found: TensorCore | None, tensor: Any, i: int, allow_unused: bool, materialize: bool
) -> Any:
    if found is not None:
        return found
    if materialize:
        if isinstance(tensor, GradientEdge):
            raise LucidError(
                "materialize_grads cannot be used when the given input is a GradientEdge"
            )
        return ops.zeros_like(tensor)
    if allow_unused:
        return None
    raise LucidError(
        f"The differentiated Tensor at index {i} appears to not have been used in the graph. "
        "Set allow_unused=True if this is the desired behavior."
    )


def _listed(tensors: Any) -> list[Any]:
    if tensors is None:
        return []
    is_single = isinstance(tensors, GradientEdge) or hasattr(tensors, "requires_grad")
    if isinstance(tensors, Iterable) and not is_single:
        return list(tensors)  # a list, a tuple, a generator, the values of a dict
    return [tensors]


def _input_edge(tensor: Any) -> Edge:
    from lucid.tensor.core import TensorCore

    if isinstance(tensor, GradientEdge):
        return tensor.node, tensor.output_nr
    if not isinstance(tensor, TensorCore):
        raise ArgumentError(
            f"all inputs have to be Tensors or GradientEdges, but got {type(tensor).__name__}"
        )
    edge = edge_of(tensor)
    if edge is None:
        raise LucidError("One of the differentiated Tensors does not require grad")
    return edge


def _roots(
    tensors: Sequence[Any], gradients: Sequence[Any], create_graph: bool
) -> list[tuple[Edge, TensorCore]]:
    """The edges that the walk starts from, each with its gradient."""
    from lucid.tensor.core import TensorCore

    if gradients and len(gradients) != len(tensors):
        raise LucidError(f"got {len(tensors)} tensors and {len(gradients)} gradients")
    roots: list[tuple[Edge, TensorCore]] = []
    for i, tensor in enumerate(tensors):
        gradient = gradients[i] if gradients else None
        if isinstance(tensor, GradientEdge):
            node, number = tensor
            type_, text = node._output_types[number], f"output {number} of {node._name()}"
            roots.append(((node, number), _root_gradient(type_, text, gradient, i)))
            continue
        if not isinstance(tensor, TensorCore):
            raise ArgumentError(f"element {i} of tensors is a {type(tensor).__name__}, no Tensor")
        edge = edge_of(tensor)
        if edge is None:
            raise LucidError(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            )
        roots.append((edge, _root_gradient(tensor.type, tensor._describe(), gradient, i)))
    return roots


def _root_gradient(output: TensorType, text: str, gradient: Any, i: int) -> TensorCore:
    from lucid.tensor.core import TensorCore

    if gradient is None:
        if output.size != 1:
            raise LucidError(
                f"grad can be implicitly created only for scalar outputs\n  output {i}: {text}"
            )
        return _filled(output, 1)
    if not isinstance(gradient, TensorCore):
        raise ArgumentError(
            f"gradients can be either Tensors or None, but got {type(gradient).__name__}"
        )
    if gradient._type.shape != output.shape:
        raise ShapeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {gradient.shape} and output[{i}] "
            f"has a shape of {Size(output.shape)}."
        )
    cast: TensorCore = gradient
    if gradient.dtype is not output.dtype:
        cast = ops.cast(gradient, dtype=output.dtype)
    return cast


def zeros_of(type: TensorType) -> Tensor:
    """Zeros, recorded when a trace runs."""
    return _filled(type, 0)


def _filled(type: TensorType, value: float) -> Tensor:
    from lucid.tensor.core import constant

    number = constant(value, type.dtype)
    return ops.broadcast(number, shape=type.shape) if type.shape else number
