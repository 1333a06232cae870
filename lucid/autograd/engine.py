"""The backward walk: one engine for eager mode and for traces.

Nodes run from the latest recorded to the earliest. An edge always leads to a node that was recorded
before, so when a node's turn comes, every contribution to its gradient has arrived. Leaves
accumulate last: an error in the middle leaves every `.grad` as it was. There is no recursion.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.hooks import run_post_hooks, run_pre_hooks, run_tensor_hooks
from lucid.autograd.node import AccumulateGrad, Edge, Node, edge_of, iterate_graph
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, LucidError, ShapeError
from lucid.ir.types import TensorType
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.tensor.core import TensorCore
    from lucid.tensor.tensor import Tensor

_accumulation = threading.Lock()


class BackwardRun:
    """One backward walk: the gradients that have arrived, and which nodes matter.

    Attributes:
        wanted: edges whose gradient is asked for; None: all leaves accumulate.
        captured: the gradients of `wanted`, as they become complete.
    """

    def __init__(
        self, retain_graph: bool, create_graph: bool, wanted: Sequence[Edge] | None
    ) -> None:
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.wanted = None if wanted is None else set(wanted)
        self.captured: dict[Edge, TensorCore] = {}
        self.arrived: dict[Node, list[TensorCore | None]] = {}
        self.queue: list[tuple[int, int, Node]] = []
        self.queued = 0
        self.needed: set[Node] | None = None

    def run(self, roots: Sequence[tuple[Edge, TensorCore]]) -> None:
        if self.wanted is not None:
            self.needed = self._needed_nodes([edge[0] for edge, _ in roots])
        before = context.grad_enabled
        context.grad_enabled = self.create_graph
        try:
            for edge, gradient in roots:
                self.send(edge, gradient)
            while self.queue:
                self._run_node(heapq.heappop(self.queue)[2])
        finally:
            context.grad_enabled = before

    def _needed_nodes(self, roots: Sequence[Node]) -> set[Node]:
        """Nodes from which a wanted edge can be reached: those that must run."""
        assert self.wanted is not None
        targets = {node for node, _ in self.wanted}
        needed: set[Node] = set()
        for node in sorted(iterate_graph(roots), key=lambda node: node.sequence):
            if any(e is not None and (e[0] in needed or e[0] in targets) for e in node.edges):
                needed.add(node)
        return needed

    def matters(self, edge: Edge | None) -> bool:
        """Whether the gradient that goes along an edge is asked for."""
        if edge is None:
            return False
        return self.needed is None or edge[0] in self.needed or edge in (self.wanted or ())

    def send(self, edge: Edge, gradient: TensorCore) -> None:
        """Add a contribution to the gradient of one output of a node."""
        if not self.matters(edge):
            return
        node, index = edge
        slots = self.arrived.get(node)
        if slots is None:
            slots = self.arrived[node] = [None] * len(node.output_types)
            self.queued += 1
            heapq.heappush(self.queue, (-node.sequence, self.queued, node))
        present = slots[index]
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
        gradients = run_pre_hooks(node, tuple(slots)) if node._pre_hooks else tuple(slots)
        recorder = context.recorder
        if recorder is None:
            parts = self._apply(node, gradients)
        else:
            with recorder.deriving(node):
                parts = self._apply(node, gradients)
        if node._post_hooks:
            parts = run_post_hooks(node, parts, gradients)
        for edge, part in zip(node.edges, parts, strict=True):
            if edge is not None and part is not None:
                self.send(edge, part)
        if not self.retain_graph:
            node.release()

    def _apply(self, node: Node, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        node_run = getattr(node, "apply_in_run", None)
        return node.apply(gradients) if node_run is None else node_run(self, gradients)

    def _finish_gradients(self, node: Node, slots: list[TensorCore | None]) -> None:
        """Run tensor hooks, keep what `retain_grad` asked for, capture what is wanted."""
        for index, gradient in enumerate(slots):
            if gradient is None:
                continue
            hooks = None
            if isinstance(node, AccumulateGrad):
                hooks = node.variable._hooks
            elif node._tensor_hooks is not None:
                hooks = node._tensor_hooks.get(index)
            if hooks:
                gradient = slots[index] = run_tensor_hooks(hooks, gradient)
            if node.retained is not None and index in node.retained:
                tensor = node.retained[index]()
                if tensor is not None:
                    accumulate(tensor, gradient)
            if self.wanted is not None and (node, index) in self.wanted:
                self.captured[node, index] = gradient


def accumulate(variable: TensorCore, gradient: TensorCore) -> None:
    """Add to `variable.grad`, in place when there is one; a first one gets memory of its own."""
    from lucid.tensor.writing import write_

    with _accumulation:
        present = variable.grad
        if present is None:
            variable.grad = own_copy(gradient)
        elif context.grad_enabled:
            variable.grad = ops.add(present, gradient)
        else:
            write_(present, ops.add(present, gradient))


def own_copy(tensor: TensorCore) -> Tensor:
    """The same numbers in memory that nobody else holds, with the history kept."""
    from lucid.tensor.core import of_array, of_value

    recorder = context.recorder
    if recorder is not None:
        copy = of_value(recorder.value_of(tensor))
    else:
        assert tensor._array is not None
        copy = of_array(np.array(tensor._array, order="C"))
    if context.grad_enabled and tensor.requires_grad:
        copy._grad_fn, copy._output_nr = tensor.grad_fn, tensor._output_nr
        copy._requires_grad = True
        if copy._grad_fn is None:
            linked = ops.reshape(tensor, shape=tensor._type.shape)
            copy._grad_fn, copy._output_nr = linked._grad_fn, linked._output_nr
    return copy


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

    Shapes: `grad_tensors` as `tensors`; None for tensors with one element. Raises: `LucidError`
    for a tensor without history, and when the graph was freed by an earlier backward.
    """
    roots = _roots(_listed(tensors), _listed(grad_tensors), create_graph)
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        BackwardRun(retain, create_graph, None).run(roots)
        return
    targets = _listed(inputs)
    if not targets:
        raise LucidError("'inputs' argument to backward() cannot be empty.")
    edges = [_input_edge(tensor, i) for i, tensor in enumerate(targets)]
    run = BackwardRun(retain, create_graph, edges)
    run.run(roots)
    for tensor, edge in dict(zip(targets, edges, strict=True)).items():
        if edge in run.captured:
            before = context.grad_enabled
            context.grad_enabled = create_graph
            try:
                accumulate(tensor, run.captured[edge])
            finally:
                context.grad_enabled = before


def grad(
    outputs: TensorCore | Sequence[TensorCore],
    inputs: TensorCore | Sequence[TensorCore],
    grad_outputs: TensorCore | Sequence[TensorCore | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of `outputs` with respect to `inputs`, always as a tuple.

    Shapes: `grad_outputs` as `outputs`; left out for outputs with one element. An input that
    the outputs don't depend on is an error, None with `allow_unused`, zeros with
    `materialize_grads`.

    >>> import lucid
    >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
    >>> lucid.autograd.grad((x * x).sum(), x)
    (tensor([2., 4.]),)
    """
    if is_grads_batched:
        raise LucidError("autograd.grad: is_grads_batched is not supported\nhint: use a loop")
    if materialize_grads and allow_unused is False:
        raise LucidError(
            "Expected allow_unused to be True or not passed when materialize_grads=True"
        )
    targets = _listed(inputs)
    if not targets:
        raise LucidError("grad requires non-empty inputs.")
    roots = _roots(_listed(outputs), _listed(grad_outputs), create_graph)
    edges = [_input_edge(tensor, i) for i, tensor in enumerate(targets)]
    retain = create_graph if retain_graph is None else retain_graph
    run = BackwardRun(retain, create_graph, edges)
    run.run(roots)
    return tuple(
        _result(run, tensor, edge, i, bool(allow_unused), materialize_grads)
        for i, (tensor, edge) in enumerate(zip(targets, edges, strict=True))
    )


def _result(
    run: BackwardRun, tensor: TensorCore, edge: Edge, i: int, allow_unused: bool, materialize: bool
) -> Any:
    found = run.captured.get(edge)
    if found is not None:
        return found
    if materialize:
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
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]


def _input_edge(tensor: Any, i: int) -> Edge:
    from lucid.tensor.core import TensorCore

    if not isinstance(tensor, TensorCore):
        raise ArgumentError(f"inputs must be Tensors, input {i} is a {type(tensor).__name__}")
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
        raise LucidError(
            f"got {len(tensors)} tensors and {len(gradients)} gradients",
        )
    roots = []
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, TensorCore):
            raise ArgumentError(f"element {i} of tensors is a {type(tensor).__name__}, no Tensor")
        edge = edge_of(tensor)
        if edge is None:
            raise LucidError(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            )
        roots.append((edge, _root_gradient(tensor, gradients[i] if gradients else None)))
    return roots


def _root_gradient(tensor: TensorCore, gradient: Any) -> TensorCore:
    from lucid.tensor.core import TensorCore

    if gradient is None:
        if tensor._type.size != 1:
            raise LucidError(
                "grad can be implicitly created only for scalar outputs "
                f"(this one is {tensor._describe()})"
            )
        ones: TensorCore = ops.full(tensor, 1.0, tensor._type.shape, tensor.dtype)
        return ones
    if not isinstance(gradient, TensorCore):
        raise ArgumentError(
            f"gradients can be either Tensors or None, but got {type(gradient).__name__}"
        )
    if gradient._type.shape != tensor._type.shape:
        raise ShapeError(
            f"Mismatch in shape: grad_output has a shape of {gradient.shape} and output has a "
            f"shape of {tensor.shape}."
        )
    if gradient.dtype is not tensor.dtype:
        gradient = ops.cast(gradient, dtype=tensor.dtype)
    return gradient


def zeros_of(type: TensorType) -> Tensor:
    """Zeros, recorded when a trace runs."""
    from lucid.tensor.core import constant

    zero = constant(0, type.dtype)
    return ops.broadcast(zero, shape=type.shape) if type.shape else zero
