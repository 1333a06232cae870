"""The backward walk: one engine for eager mode and for traces.

Nodes run from the latest recorded to the earliest. An edge always leads to a node that was recorded
before, so when a node's turn comes, every contribution to its gradient has arrived. Leaves
accumulate last: an error in the middle leaves every `.grad` as it was. There is no recursion.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from bisect import insort_left
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from operator import itemgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from lucid.autograd.anomaly import check_anomaly
from lucid.autograd.hooks import run_post_hooks, run_pre_hooks, run_tensor_hooks
from lucid.autograd.node import (
    AccumulateGrad,
    CustomNode,
    Edge,
    Gradient,
    Gradients,
    Node,
    OpNode,
    edge_of,
    is_plain,
    iterate_graph,
)
from lucid.autograd.saved import copy_of, with_history
from lucid.ir import ops
from lucid.ir.graph import Value
from lucid.ir.inference import MANY_ELEMENTS
from lucid.ir.location import Location, Spot, here, user_spot
from lucid.ir.strides import is_contiguous
from lucid.ir.types import TensorType
from lucid.tensor import write_locks
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.tensor.core import TensorCore
    from lucid.tensor.recording import Recording
    from lucid.tensor.tensor import Tensor
_NONE: frozenset[Any] = frozenset()
_P = ParamSpec("_P")
_R = TypeVar("_R")


class BackwardRun:
    """One backward walk: the gradients that have arrived, and which nodes matter.

    Attributes:
        wanted: edges whose gradient is asked for; None: all leaves accumulate.
        captured: the gradients of `wanted`, as they become complete.
        is_part: another walk goes on from the wanted edges, with their hooks; this one ends there.
        unshared: the gradient of the leaf whose turn it is, if nobody else holds it or its memory.
        is_plain: nobody watches how the walk gets the gradients: they are no more than arrays until
            somebody is to see them.
        recorder: the trace, where what the walk computes isn't differentiated again: gradients are
            no more than values of its graph until somebody is to see them. None: no such trace.
        targets: the nodes of `wanted`.
        reached: the nodes that gradients go to, to whichever outputs of them; None: to all.
        spot: where the user's code asked for the walk, once a gradient became a tensor; location:
            the same once a trace has recorded a sum.
    """

    needed: set[Node] | None = None
    reached: Set[Node] | None = None
    unshared: TensorCore | None = None
    spot: Spot = None
    location: Location | None = None
    root_edges: Sequence[Edge] = ()

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
        self.arrived: dict[Node, list[Any]] = {}  # of `Gradient`s, or of `Traced` ones
        self.queue: list[tuple[int, Node]] = []  # by the order of recording
        self.spent: list[Node] = []
        state: dict[str, Any] = context.__dict__  # one look-up of what belongs to the thread
        recorder: Recording | None = state["recorder"]
        is_watched = create_graph or state["anomaly"] is not None or state["levels"]
        self.recorder = None if is_watched else recorder
        self.is_plain = not (is_watched or is_part or recorder is not None)
        self.targets = frozenset([node for node, _ in wanted]) if wanted else _NONE

    def run(self, roots: Sequence[tuple[Edge, Gradient | None]]) -> None:
        self.root_edges = [edge for edge, _ in roots]
        if self.wanted is not None:
            self.needed = self._unheard(self._needed_nodes)(self.roots)
            self.reached = self.needed | self.targets
        state: dict[str, Any] = context.__dict__
        if state["recorder"] is not None and not self.is_part:
            state["recorder"].refuse_paths_outside(self)
        before = state["grad_enabled"], state["forward"], state["backward_run"]
        depth = state["backward_depth"] = state["backward_depth"] + 1
        state["grad_enabled"], state["forward"] = self.create_graph, None
        state["backward_run"] = self
        try:
            if depth < _NESTING[0]:
                self._walk(roots)
            else:
                with _room_to_nest(depth):
                    self._walk(roots)
        finally:
            state["backward_depth"] -= 1
            state["grad_enabled"], state["forward"], state["backward_run"] = before
        if not self.retain_graph:  # only now: after an exception the walk can be repeated
            self._unheard(self._release)()

    @property
    def roots(self) -> list[Node]:
        return [node for node, _ in self.root_edges]

    def _release(self) -> None:
        for node in self.spent:
            node._release()

    def _unheard(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """A function that calls no code of the user's, without events of a trace."""
        return function if context.recorder is None else context.recorder.unheard(function)

    def _walk(self, roots: Sequence[tuple[Edge, Gradient | None]]) -> None:
        for edge, gradient in roots:
            if self.reached is None or edge[0] in self.reached:
                self._add(edge, self._unseen(edge[0], gradient))
        natively = _core().machine_code() if self.is_plain else None
        run_librarys = None if natively is not None else self._unheard(self._run_librarys)
        queue, reached, targets = self.queue, self.reached, self.targets
        while queue:
            if natively is not None and type(queue[-1][1]) in _NATIVE:
                natively.walk(queue, self.arrived, self.spent, self._sum_of, reached, targets)
                if not queue:
                    break
            elif run_librarys is not None and queue[-1][1]._is_librarys:
                run_librarys()
                continue
            node = queue[-1][1]
            again = None
            if natively is not None and type(node) is OpNode:
                was_found, derivative = node.has_derivative, node.derivative
                if not was_found and derivative.words is not None:
                    continue  # machine code knows the rule, of other sizes as well
                # A table of a rule pays where that comes again: not for sizes that come once.
                again = derivative if derivative.is_known else None
            del queue[-1]
            self._run_node(node)
            if natively is not None and again is not None and again.words is None:
                natively.enter_rule(again)

    def _unseen(self, node: Node, gradient: Gradient | None) -> Gradient | None:
        """The gradient of a root, as no more than its array where nobody is to see it.

        One with many elements isn't: a rule that wants a tensor would copy the array, which that
        of the user's holds too.
        """
        if gradient is None or not self.is_plain or type(node) is not OpNode:
            return gradient
        if node._output_types[0].size >= MANY_ELEMENTS:
            return gradient
        array = None if node._is_observed or node in self.targets else data_of(gradient)
        return gradient if array is None else array

    def _run_librarys(self) -> None:
        """Run the next nodes, up to one that calls code of the user's."""
        queue, is_recorded = self.queue, self.recorder is not None
        while queue and queue[-1][1]._is_librarys:
            node = queue.pop()[1]
            if not (is_recorded and type(node) is OpNode and self._record(node)):
                self._run_node(node)

    def _record(self, node: OpNode) -> bool:
        """Let a trace append what a node computes, if nobody is to see it; whether that is done."""
        assert self.recorder is not None
        if node._is_observed or node in self.targets:
            return False
        if self.needed is None or node in self.needed:
            recorded = self.recorder.differentiate(node, self.arrived[node][0])
            if recorded is None:
                return False
            self._send_all(node, recorded)
        del self.arrived[node]
        return True

    def one(self, type: TensorType) -> Gradient:
        """The gradient of what is differentiated."""
        if not self.is_plain:
            return ones(type)
        made = np.empty(type.shape, type.dtype.numpy)
        made.fill(1)
        return made

    def _needed_nodes(self, roots: Sequence[Node]) -> set[Node]:
        """Nodes from which a wanted edge can be reached: those that must run."""
        assert self.wanted is not None
        targets = self.targets
        needed: set[Node] = set()
        for node in sorted(iterate_graph(roots), key=lambda node: node._sequence):
            for edge in node._edges:
                if edge is not None and (edge[0] in needed or edge[0] in targets):
                    needed.add(node)
                    break
        return needed

    def matters(self, edge: Edge | None) -> bool:
        """Whether the gradient that goes along an edge is asked for."""
        if edge is None:
            return False
        return self.reached is None or edge[0] in self.reached

    def take(self, node: Node) -> Sequence[Gradient | None]:
        """What has arrived at a node that another one, which is recorded later, runs as well."""
        found = self.arrived.pop(node, None)
        self.spent.append(node)
        if found is None:
            return (None,) * len(node._output_types)
        self.queue.remove((node._sequence, node))
        return found

    @property
    def ends_here(self) -> bool:
        """Whether only leaves are to come, which accumulate: a node may do that, and answer ()."""
        return not self.queue and self.wanted is None

    def count_reachable(self, edges: Sequence[Edge | None]) -> int:
        """How many of the edges the walk can reach."""
        nodes = set(iterate_graph(self.roots))
        found = {edge for node in nodes for edge in node._edges}.union(self.root_edges)
        reached = [edge for edge in edges if edge is not None and edge[0] in nodes]
        return sum(edge in found or not edge[0]._has_separate_outputs for edge in reached)

    def send(self, edge: Edge, gradient: Gradient | Value | None) -> None:
        """Add a contribution to the gradient of one output of a node; None adds nothing to it."""
        if self.matters(edge):
            self._add(edge, gradient)

    def _add(self, edge: Edge, gradient: Gradient | Value | None) -> None:
        node, index = edge
        slots = self.arrived.get(node)
        if slots is None:
            slots = self.arrived[node] = [None] * len(node._output_types)
            insort_left(self.queue, (node._sequence, node), key=_sequence)
        present = slots[index]
        if gradient is not None:
            slots[index] = gradient if present is None else self._sum_of(present, gradient)

    def _sum_of(self, present: Any, gradient: Any) -> Gradient | Value:
        """Both contributions together."""
        if self.recorder is not None:
            if self.location is None:
                self.location = here()
            return self.recorder.sum_of(present, gradient, location=self.location)
        x, y = data_of(present), data_of(gradient)
        if x is None or y is None:
            return ops.add(self.shown(present), self.shown(gradient))
        array = np.asarray(ops.add.evaluate(x, y), order="C")  # of 0-d ones a number
        return array if self.is_plain else self.shown(array)

    def shown(self, gradient: Gradient | Value) -> TensorCore:
        """The gradient as a tensor, for who may see it."""
        if isinstance(gradient, np.ndarray):
            from lucid.tensor.core import of_own_array

            if self.spot is None:
                self.spot = user_spot()
            return of_own_array(gradient, self.spot)
        if isinstance(gradient, Value):
            assert self.recorder is not None
            return self.recorder.tensor_of(gradient)
        return gradient

    def _run_node(self, node: Node) -> None:
        arrived = self.arrived.pop(node)
        is_seen = node._is_observed or node in self.targets
        if self.is_plain and not is_seen:
            if type(node) is AccumulateGrad and isinstance(arrived[0], np.ndarray):
                if self.wanted is None:
                    accumulate(node.variable, _own(arrived, 0))
                return
            found = None
            if self.wanted is None or node._asks_what_is_wanted:
                found = node._on_arrays(arrived)
            elif isinstance(node, CustomNode):
                found = node._on_arrays_in_run(self, arrived)
            if found is not None:
                self._send_all(node, found)
                return
        slots = [
            None if arrived[i] is None else self.shown(_own(arrived, i))
            for i in range(len(arrived))  # a name for one would be one more reference to it
        ]
        del arrived
        self._finish_gradients(node, slots)
        if self.is_part and self._ends_at(node, slots):
            return
        if isinstance(node, AccumulateGrad):
            if self.wanted is None:
                self.unshared = slots[0] if _is_unshared(node, slots) else None
                node.apply(tuple(slots))
                self.unshared = None
            return
        if self.needed is not None and node not in self.needed:
            return
        parts = self._parts(node, tuple(slots))
        self.spent.append(node)
        if parts:  # else it is where the walk ends
            for edge, part in zip(node._edges, parts, strict=True):
                if edge is not None and not (part is None and node._is_joint):
                    self.send(edge, part)

    def _send_all(self, node: Node, parts: Sequence[Gradient | Value | None]) -> None:
        """What a node makes of its gradients, where nobody sees it, goes on along the edges."""
        self.spent.append(node)
        if not parts:  # it is where the walk ends
            return
        reached = self.reached
        for edge, part in zip(node._edges, parts, strict=True):
            if part is None or edge is None:
                continue
            if reached is None or edge[0] in reached:
                self._add(edge, part)

    def _ends_at(self, node: Node, slots: Sequence[TensorCore | None]) -> bool:
        """Whether all that arrived at a node was asked for, and is left to another walk."""
        is_captured = any((node, i) in self.captured for i in range(len(slots)))
        return is_captured and all(slot is None for slot in slots)

    def _parts(self, node: Node, gradients: Gradients) -> Gradients:
        """What a node makes of its gradients, hooks included."""
        if not node._takes_undefined:
            for gradient in gradients:
                if gradient is not None:
                    break
            else:
                return (None,) * len(node._edges)
        if node._pre_hooks:
            gradients = run_pre_hooks(node, gradients)
        recorder = context.recorder
        if recorder is None:
            parts = self._apply(node, gradients)
            if context.anomaly is not None:
                check_anomaly(node, parts)
        else:
            parts = recorder.derive(node, self._apply, gradients)
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
                slots[index] = None
                continue
            hooks = node._hooks_at(index)
            if hooks:
                gradient = slots[index] = run_tensor_hooks(hooks, gradient)
            if node._retained is not None and index in node._retained:
                tensor = node._retained[index]()
                if tensor is not None:  # never in place: who has read it keeps what it was
                    kept = tensor.grad
                    tensor.grad = own_copy(gradient) if kept is None else ops.add(kept, gradient)
            if is_wanted:
                self.captured[node, index] = _laid_out(gradient, node)


@functools.cache
def _core() -> ModuleType:
    """The file that imports this one."""
    from lucid.tensor import core

    return core


_NATIVE = frozenset((OpNode, AccumulateGrad))  # which machine code may run
_sequence = itemgetter(0)  # of an entry of the queue; of equal ones the first stays the last
_NESTING = (8, 1024)  # depths of walks inside of walks for which the interpreter's limit is raised
_FRAMES = 40  # of Python that one such level may take
_raising = threading.Lock()


@contextmanager
def _room_to_nest(depth: int) -> Iterator[None]:
    """Let backwards that call backward go deeper than Python's limit on recursion."""
    if depth > _NESTING[1]:
        yield
        return
    with _raising:
        sys.setrecursionlimit(sys.getrecursionlimit() + _FRAMES)
    try:
        yield
    finally:
        with _raising:
            sys.setrecursionlimit(sys.getrecursionlimit() - _FRAMES)


def accumulate(variable: TensorCore, gradient: Gradient) -> None:
    """Add to `variable.grad`, in place when there is one; a first one has memory of its own."""
    with write_locks.lock:
        if write_locks.held and context.recorder is None:
            write_locks.wait_for(frozenset((id(variable),)))
        present, run = variable.grad, context.backward_run
        if present is not None and context.forward is None:
            x, y = data_of(present), data_of(gradient)
            if x is not None and y is not None and x.shape == y.shape and x.dtype == y.dtype:
                from lucid.tensor.writing import add_array

                add_array(present, y)
                return
        is_unshared = run is not None and run.unshared is gradient
        if isinstance(gradient, np.ndarray):
            assert run is not None
            gradient = run.shown(gradient if _is_own(gradient) else np.array(gradient, order="C"))
            is_unshared = True
        if present is None:
            variable.grad = gradient if is_unshared else own_copy(gradient)
        elif context.grad_enabled:
            variable.grad = ops.add(present, gradient)
        else:
            from lucid.tensor.writing import write_

            write_(present, ops.add(present, gradient))


def _laid_out(gradient: TensorCore, node: Node) -> TensorCore:
    """The gradient of a leaf as `.grad` would hold it, for `view`; a broadcast one stays."""
    if not isinstance(node, AccumulateGrad) or context.levels:
        return gradient
    variable, strides = node.variable, gradient.element_strides()
    shape = gradient._type.shape
    if 0 in strides or is_contiguous(shape, strides):
        return gradient
    is_plain = is_contiguous(shape, variable.element_strides())
    return own_copy(gradient) if is_plain else gradient


def data_of(gradient: Gradient) -> np.ndarray | None:
    """The numbers of a gradient that only the walk computes with."""
    if isinstance(gradient, np.ndarray):
        return gradient
    return gradient._array if is_plain(gradient) else None


def _is_unshared(leaf: AccumulateGrad, slots: list[TensorCore | None]) -> bool:
    """Whether the gradient in a leaf's only slot can become its `.grad` as it is.

    Nobody else holds the tensor, its storage or its array, which is laid out as a copy would be.
    """
    from lucid.tensor.tensor import Tensor

    gradient = slots[0]
    if context.recorder is not None or context.grad_enabled or context.levels:
        return False
    if gradient is None or leaf._pre_hooks or leaf._post_hooks:  # hooks may keep what they get
        return False
    array = gradient._array
    if array is None or not _is_own(array):
        return False
    if type(gradient) is not Tensor or gradient._base is not None:
        return False
    if gradient._requires_grad or gradient._private is not None or gradient._counter.now:
        return False
    del gradient, array
    return _references(slots) == _references_when_alone()


def _is_own(array: np.ndarray) -> bool:
    """Whether an array is laid out as a copy, and nobody gets at its memory but through it.

    That may be lent, as that of large results is (`lucid/runtime/recycling.py`), or the part of
    another array's that begins at a cache line (`lucid/ir/memory.py`).
    """
    flags = array.flags
    if not (flags.c_contiguous and flags.writeable):  # as a broadcast to no elements isn't
        return False
    if flags.owndata:
        return True
    memory: Any = array.base
    whole = isinstance(memory, np.ndarray) and memory.flags.owndata
    return (whole or isinstance(memory, ctypes.Array)) and sys.getrefcount(memory) == 3


def _own(cell: list[Any], place: int) -> Gradient:
    """A gradient in a list, or a copy of an array that is another gradient as well."""
    gradient: Gradient = cell[place]
    if isinstance(gradient, np.ndarray):
        del gradient
        if sys.getrefcount(cell[place]) != _REFERENCES:
            return np.array(cell[place], order="C")
        return cell[place]  # type: ignore[no-any-return]
    return gradient


_HELD = [object()]
_REFERENCES = sys.getrefcount(_HELD[0])  # to what only a list holds


@functools.cache
def _references_when_alone() -> tuple[int, int, int]:
    """The same for a tensor that only a list holds, as this interpreter counts."""
    from lucid.tensor.core import of_array

    return _references([of_array(np.zeros(1))])


def _references(cell: list[Any]) -> tuple[int, int, int]:
    """How many references there are to the tensor in a list, to its storage and to its array."""
    count = sys.getrefcount
    return count(cell[0]), count(cell[0]._storage), count(cell[0]._array)


def own_copy(tensor: TensorCore) -> TensorCore:
    """The same numbers in memory that nobody else holds, with the history kept."""
    copy = copy_of(tensor)
    edge = edge_of(tensor) if context.grad_enabled else None
    return copy if edge is None else with_history(copy, edge)


def zeros_of(type: TensorType) -> Tensor:
    """Zeros, recorded when a trace runs."""
    return filled(type, 0)


def ones(type: TensorType) -> Tensor:
    """Ones, recorded when a trace runs."""
    return filled(type, 1)


def filled(type: TensorType, value: float) -> Tensor:
    """One number everywhere, recorded when a trace runs."""
    from lucid.tensor.core import constant

    number = constant(value, type.dtype)
    return ops.broadcast(number, shape=type.shape) if type.shape else number
