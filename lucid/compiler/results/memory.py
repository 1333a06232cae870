"""The memory that a running trace has met, and what must be put back after it."""

from __future__ import annotations

import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from lucid.autograd.node import (
    AccumulateGrad,
    Edge,
    Node,
    OpNode,
    PartsNode,
    edge_of,
    sequence_numbers,
)
from lucid.compiler.guards.age import owner_of
from lucid.compiler.guards.calls import GuardCollector
from lucid.compiler.guards.events import catches, unheard
from lucid.compiler.guards.guard import AnswerGuard, Guard, frozen, layout_of
from lucid.compiler.guards.restarts import RestartTrace, undo_all
from lucid.compiler.inputs.cells import Cell, CellKind, GradUse, base_of, look_of
from lucid.compiler.inputs.live_numbers import SymNumbers
from lucid.ir import ops
from lucid.ir.errors import EagerOnlyError, LucidError, TraceError
from lucid.ir.graph import Graph, Value
from lucid.ir.memory import address_of
from lucid.ir.whose_code import is_followed
from lucid.tensor.batched import Batched
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.writing import READ_ONLY, made_without_grad, replay, scatter, take_memory

_is_writeable = operator.attrgetter("flags.writeable")
# What is noted of a tensor's property before it is set.
_PROPERTIES = {
    "requires_grad": operator.attrgetter("_requires_grad"),
    "grad_fn": operator.attrgetter("_grad_fn", "_output_nr"),
    "data": operator.attrgetter("data"),
}


class TracedMemory(SymNumbers):
    """Tensors as a trace sees them: their values by now, and whose they are.

    Attributes:
        cells: buffers met, by storage.
        guards: guards that the library asked for, by text; collector: enters all others.
        positions: arguments' numbers, by the identity of what stands for them.
        counters: version counters of tensors from outside that were written, with the count before.
        versions: counts of version counters when they were first met, and by now.
        containers: numbers of the containers and objects of plain data in arguments, by identity.
        dicts: the classes of these objects, by the identity of the `__dict__`.
        drawn: copies of containers from outside, made for draws, by identity of the container;
            at_places: records drawn at numbers of the graph, likewise.
        argument_storages: the memory of arguments, which must not be met as state.
        array_owners: identities of the owners of NumPy memory that is read live; copied: memory of
            arrays that eager mode copies.
        aliases: identities of tensors made in the trace on the memory of concrete ones.
        own: identities of other tensors made in the trace that have data.
        properties: those of tensors from outside that the step has set, by identity and name, with
            what they were: `requires_grad`, `grad_fn` with its output's number, `data`.
        assigned: the memory of these tensors at the step's end, once the earlier one is back.
        refusal: the error by which the trace was given up, as the user's code may have caught it;
            failed: an error of the user's that values of this call have caused.
        root: the code that calls the user's function; may_catch: whether an `except` in the step
            may handle an error that a run finds.
        past: in the backward of a call, the nodes that its trace has left; numbers: the live
            numbers that they hold; ends: edges where gradients leave them, with their stand-ins.
        around: values of earlier traces' graphs, with their values in this one's.
        has_histories_outside: whether an argument has been computed, outside, from others.
        outer: tensors, no arguments, that the step computes with and that have a history from
            outside, with its edge; followed: nodes of such histories that a backward has met.
        undo: takes back Python state that was created for the step, and for traces before.
    """

    def __init__(
        self, name: str, collector: GuardCollector, undo: list[Callable[[], object]] | None = None
    ) -> None:
        super().__init__(Graph(name))
        self.cells: dict[Storage, Cell] = {}
        self.grads: dict[int, GradUse] = {}
        self.grad_leaf_of: dict[Storage, TensorCore] = {}
        self.counters: dict[VersionCounter, int] = {}
        self.versions: dict[VersionCounter, int] = {}
        self.properties: dict[tuple[int, str], tuple[TensorCore, Any]] = {}
        self.assigned: dict[int, tuple[TensorCore, TensorCore]] = {}
        self.positions: dict[int, int] = {}
        self.containers: dict[int, int] = {}
        self.dicts: dict[int, type] = {}
        self.drawn: dict[int, Any] = {}
        self.at_places: dict[tuple[int, Value, int], Any] = {}
        self.arguments: Sequence[TensorCore] = ()
        self.argument_storages: set[Storage] = set()
        self.array_owners: set[int] = set()
        self.copied: dict[Storage, None] = {}
        self._on_arrays: dict[tuple[Any, ...], TensorCore] = {}
        self.aliases: set[int] = set()
        self.own: set[int] = set()
        self.made: list[weakref.ref[TensorCore]] = []
        self.has_histories_outside = False
        self.outer: list[tuple[TensorCore, Edge]] = []
        self.followed: list[Node] = []
        self.past: set[Node] = set()
        self.around: dict[Value, Value] = {}
        self.ends: dict[Edge, TensorCore] = {}
        self.numbers: Sequence[Any] = ()
        self.guards: dict[str, Guard] = {}
        self.collector = collector
        self.refusal: TraceError | EagerOnlyError | None = None
        self.failed: Exception | None = None
        self.root: types.CodeType | None = None
        self.may_catch = False
        self.undo = [] if undo is None else undo
        self._made_before = len(self.undo)
        self._pending: list[Callable[[], object]] = []  # what open blocks put back
        self._first_sequence = next(sequence_numbers)

    def value_of(self, tensor: TensorCore, what: str = "an operation") -> Value:
        """The value that the tensor has by now in this trace; `what` needs it, for messages."""
        storage = tensor._storage
        if storage.recorder is not self:
            self._lift(tensor, what)
        if tensor._array is not None and context.grad_enabled:  # else a lost history may stay
            self.note_outer(tensor)
        assert storage.value is not None
        if not tensor._chain:  # and a parameter doesn't go on holding the graph
            return self.local(storage.value)
        cached = tensor._value
        if cached is not None and cached[0] == storage.generation:
            value: Value = cached[1]
            if value.graph is self.graph:
                return value
        with self.annotated():
            value = replay(self.local(storage.value), tensor._chain)
        tensor._value = (storage.generation, value)
        return value

    def local(self, value: Value) -> Value:
        """A value as what is being recorded can read it."""
        return value

    def note_write(self, target: TensorCore, value: TensorCore) -> None:
        """Note that a tensor is about to be written."""

    def meet(self, tensor: TensorCore) -> None:
        """Start the trace again where a tensor from outside is on the memory of an argument."""
        if tensor._storage in self.argument_storages:
            raise RestartTrace("finds an argument elsewhere as well", "state", [tensor._storage])

    def _lift(self, tensor: TensorCore, what: str) -> None:
        """Make a concrete buffer an input of the step."""
        storage = tensor._storage
        self.meet(tensor)
        if storage.array is None:
            if isinstance(tensor, Batched):
                tensor._concrete(what)
            raise TraceError(
                "this tensor belongs to another trace and holds no data\n"
                f"  {tensor._describe()}\n"
                "hint: return it from the function that made it"
            )
        leaf = self.grad_leaf_of.get(storage)
        if leaf is None:
            self.add_cell(storage, "state").counter = tensor._counter
        else:
            position = self.positions.get(id(leaf), -1)
            self.add_cell(storage, "grad", position, leaf if position < 0 else None)

    def add_cell(
        self, storage: Storage, kind: CellKind, position: int = -1, leaf: TensorCore | None = None
    ) -> Cell:
        """Enter a buffer as an input of the graph."""
        value = self.graph.add_input(storage.root_type, "arg" if kind == "arg" else "state")
        cell = Cell(storage, value, kind, position, leaf)
        storage.value = value
        storage.recorder = self
        storage.generation += 1
        self.cells[storage] = cell
        return cell

    def hold(self, storage: Storage, value: Value, kind: CellKind = "replaced") -> None:
        """Let memory hold a value of the graph; what is written to it stays inside."""
        storage.value, storage.recorder = value, self
        storage.generation += 1
        self.cells[storage] = Cell(storage, value, kind)

    def adopt_constant(self, tensor: TensorCore) -> None:
        """Take data that was made inside of the trace as a constant of the program."""
        self.own.add(id(tensor))
        array = tensor._array
        assert array is not None
        if self.collector.was_there(array):
            self.adopt_array(tensor, is_copied=False)
            return
        storage = tensor._storage
        if array.size and (array == array.reshape(-1)[0]).all():
            with self.annotated():
                value = self.graph.constant(array.reshape(-1)[0], tensor.dtype)
                if array.ndim:
                    value = ops.broadcast(value, shape=tensor._type.shape)
            self.hold(storage, value, "constant")
            return
        storage.array = array.copy()
        tensor._array = storage.array
        self.add_cell(storage, "constant")

    def adopt_array(self, tensor: TensorCore, is_copied: bool) -> None:
        """Read the user's NumPy array at each call; one that the trace didn't make is state."""
        self.own.add(id(tensor))
        array = tensor._array
        assert array is not None
        place = address_of(array), array.shape, array.strides, array.dtype
        known = self._on_arrays.setdefault(place, tensor)
        tensor._storage, tensor._counter = known._storage, known._counter
        self.array_owners.add(id(owner_of(array)))
        if known is tensor:
            outer = self.collector.was_there(array)
            cell = self.add_cell(tensor._storage, "state" if outer else "constant")
            cell.counter = tensor._counter
            if outer:  # the user may set shape and dtype later
                path = f"the layout of {self.collector.name_of(array) or 'an array'}"
                self.collector.answer(path, layout_of, array)
        if is_copied and self.cells[tensor._storage].kind == "state":
            self.copied.setdefault(tensor._storage)

    def write(self, target: TensorCore, value: TensorCore) -> None:
        """Write `value` through `target`'s view chain into its storage."""
        position = self.positions.get(id(base_of(target)), -1)
        if position >= 0 and made_without_grad(self.arguments[position]):
            self.run_op_by_op("it writes a view, made in no_grad mode, of a tensor with a history")
        new = self.value_of(value)
        self.value_of(target)
        self.note_write(target, value)
        storage = target._storage
        assert storage.value is not None
        if storage.array is not None:
            if not (storage.array.flags.writeable or self.cells[storage].is_inside):
                raise LucidError(READ_ONLY)
            self._note_writeable(storage, storage.array)
            self.note_counter(target._counter)
        elif self.is_outside(base_of(target)) or id(base_of(target)) in self.positions:
            self.note_counter(target._counter)  # of one whose memory the step has assigned
        if target._chain:
            with self.annotated():
                new = scatter(storage.value, target._chain, new)
        storage.value = new
        storage.generation += 1

    def _note_writeable(self, storage: Storage, array: np.ndarray) -> None:
        """The step writes an array of the user's, who may make it read-only later."""
        collector, is_users = self.collector, id(owner_of(array)) in self.array_owners
        if is_users and self.cells[storage].kind == "state":
            path = f"{collector.name_of(array) or 'an array'}.flags.writeable"
            collector.answer(path, _is_writeable, array)

    def written_arrays(self, changing: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The memory from outside that tensors have written by now, but for arrays in the graph."""
        written = (cell.storage.array for cell in self.cells.values() if cell.is_written)
        return [
            array
            for array in written
            if array is not None and not any(np.may_share_memory(array, x) for x in changing)
        ]

    # ------------------------------------------------------------------ whose it is

    def is_own(self, tensor: TensorCore) -> bool:
        """Whether the trace made the tensor, though it has data."""
        return id(tensor) in self.own or id(tensor) in self.aliases

    def is_own_memory(self, tensor: TensorCore) -> bool:
        """Whether the step itself has made the memory of a tensor."""
        cell = self.cells.get(tensor._storage)
        return tensor._storage.recorder is self and (cell is None or cell.is_inside)

    def is_outside(self, tensor: TensorCore) -> bool:
        """Whether a tensor was there before the trace, and no argument."""
        cell = self.cells.get(tensor._storage)
        is_inside = cell is not None and cell.kind in ("constant", "arg")
        return tensor._array is not None and not self.is_own(tensor) and not is_inside

    def is_outer(self, node: Node) -> bool:
        """Whether a node was recorded before the trace, and belongs to others."""
        return 0 <= node._sequence < self._first_sequence and node not in self.past

    def note_outer(self, *tensors: TensorCore) -> None:
        """Remember tensors that have a history outside, and don't stand for arguments."""
        for tensor in tensors:
            is_concrete = tensor._array is not None and not self.is_own(tensor)
            edge = edge_of(tensor) if is_concrete else None
            if edge is not None and self.is_outer(edge[0]):
                self.outer.append((tensor, edge))

    def follow_outer(self, node: Node) -> bool:
        """Whether a backward may go through a node from outside at each call.

        It may where the node saved nothing, which a backward would free, and nobody looks at it.
        """
        is_empty = type(node) is PartsNode or (type(node) is OpNode and node.saved == {})
        if not is_empty or node._is_observed:
            return False
        if not self.followed:
            found, followed = self.outer, self.followed
            self.guard_value(
                "the history of a tensor from outside",
                lambda: (
                    all(edge_of(tensor) == edge for tensor, edge in found)
                    and not any(node._is_observed for node in followed)
                ),
                True,
            )
        self.followed.append(node)
        for end in [edge[0] for edge in node._edges if edge is not None]:
            if isinstance(end, AccumulateGrad):
                self.collector.value(end.variable, "a leaf in the history of a tensor from outside")
        return True

    def refuse_outer(self) -> None:
        """Give up when the step computes with tensors that have a history outside."""
        for tensor, _ in self.outer[:1]:
            self.run_op_by_op(
                "it computes with a tensor from outside that has a history, and is no argument\n"
                f"  tensor: {tensor._describe()}"
            )

    # ------------------------------------------------------------------ what must be put back

    def note_counter(self, counter: VersionCounter) -> None:
        self.counters.setdefault(counter, counter.value)

    def note_property(self, tensor: TensorCore, name: str) -> None:
        """Remember a property of a tensor that is about to be set; see `properties`."""
        if tensor._array is not None and not self.is_own(tensor):
            self.meet(tensor)
            if (id(tensor), name) not in self.properties:
                self.properties[id(tensor), name] = tensor, _PROPERTIES[name](tensor)
        elif tensor._array is None and name == "data":
            self.own.add(id(tensor))

    def note_end(self, tensor: TensorCore) -> None:
        """Remember which memory a tensor from outside shows before it gets back its own."""
        self.assigned[id(tensor)] = tensor, tensor._same_memory()

    def at_the_end(self, tensor: TensorCore) -> TensorCore:
        """A tensor on the memory that a tensor has once the step has run."""
        return self.assigned.get(id(tensor), (tensor, tensor))[1]

    def note_history(self, tensor: TensorCore) -> None:
        """Give up when a tensor from outside is about to get another history."""
        if tensor._array is not None and not self.is_own(tensor):
            self.run_op_by_op(
                "it gives an argument, or a tensor from outside, another history, by writing it"
            )

    def _grad_use(self, leaf: TensorCore) -> GradUse | None:
        if leaf._array is None or self.is_own(leaf):
            return None
        use = self.grads.get(id(leaf))
        if use is None:
            self.meet(leaf)  # whose gradient the step may have given what stands for it
            position = self.positions.get(id(leaf), -1)
            grad = leaf._grad
            use = GradUse(leaf, position, grad, look_of(grad), grad)
            self.grads[id(leaf)] = use
        return use

    def note_grad_read(self, leaf: TensorCore) -> None:
        use = self._grad_use(leaf)
        if use is not None and not use.was_set and not use.was_read:
            use.was_read = True
            if use.original is not None:
                self.grad_leaf_of.setdefault(use.original._storage, leaf)

    def note_grad_write(self, leaf: TensorCore) -> None:
        use = self._grad_use(leaf)
        if use is not None:
            use.was_set = True

    def restore_properties(self) -> None:
        """Give tensors from outside the flags, the histories and the memory that they had."""
        for (_, name), (tensor, before) in self.properties.items():
            if name == "requires_grad":
                tensor._requires_grad = before
            elif name == "grad_fn":
                tensor._grad_fn, tensor._output_nr = before
            else:
                self.note_end(tensor)
                take_memory(tensor, before)
        self.properties.clear()

    def restore(self, failed: bool) -> None:
        """Put every concrete tensor back to what it was before the trace."""
        if failed:
            undo_all(self._pending)
        for storage in self.cells:
            storage.value = None
            storage.recorder = None
            storage.generation += 1
        for use in self.grads.values():
            use.now = None
        self.versions.clear()
        self.restore_properties()
        self.assigned.clear()
        if failed:
            self.take_back()

    def take_back(self) -> None:
        """Undo what the trace has created in Python."""
        undo_all(self.undo, self._made_before)

    @contextmanager
    def putting_back(self, put_back: Callable[[], object]) -> Iterator[None]:
        """Call `put_back()` at the end of the block; if the trace fails in it, `restore` does.

        Python looks for signals between any two calls: no `finally` is sure to be run to its end.
        What an interrupt has cut short is done again, from the start.
        """
        self._pending.append(put_back)
        try:
            yield
        finally:
            put_back()
            self._pending.remove(put_back)

    def forget_arguments(self) -> None:
        """Let go of what stood for the arguments, and of the gradients that the trace found."""
        for use in self.grads.values():
            use.original = None
            if use.position >= 0:
                use.leaf = None
        self.grad_leaf_of.clear()
        self._on_arrays.clear()

    # ------------------------------------------------------------------ guards, and giving up

    @unheard
    def guard_value(
        self, text: str, read: Callable[[], Any], expected: Any, gated: bool = False
    ) -> None:
        self.guards.setdefault(text, AnswerGuard(text, frozen(expected), read, gated=gated))

    def note_failing(self) -> None:
        """Note that what is recorded now may raise, and whether an `except` of the step is around.

        Then a run that fails goes on in eager mode, since its program knows no handler.
        """
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and not self.may_catch and frame.f_code is not self.root:
            code = frame.f_code
            self.may_catch = is_followed(code) and catches(code, frame.f_lasti)
            frame = frame.f_back

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Note an error raised in the block, which values of this call cause and others may not."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, TypeError):  # which types cause
                self.failed = error
            raise

    def run_op_by_op(self, reason: str) -> NoReturn:
        """Give the trace up, since the call makes sense op by op only."""
        error = EagerOnlyError(reason)
        self.refusal = self.refusal or error
        raise error
