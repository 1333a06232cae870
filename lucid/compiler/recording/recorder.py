"""The trace that is being recorded: graph, state cells, and all that must be put back after it."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from lucid.autograd import node as nodes
from lucid.autograd.node import AccumulateGrad, Edge, Node, edge_of
from lucid.compiler.guards.events import unheard
from lucid.compiler.guards.guard import AnswerGuard, Guard
from lucid.compiler.guards.restarts import RestartTrace, undo_all
from lucid.compiler.hosts.recording import HostRecording
from lucid.compiler.inputs.cells import Cell, GradUse, base_of, look_of
from lucid.compiler.inputs.live_numbers import LiveNumbers
from lucid.compiler.inputs.present import evaluate
from lucid.compiler.inputs.scalars import LiveScalar, is_live, seen
from lucid.compiler.recording import texts
from lucid.compiler.recording.exits import Exits
from lucid.compiler.recording.late_arrays import LateArray, LateData
from lucid.compiler.results.histories import HistoryOutside
from lucid.compiler.results.users_arrays import UsersArrays
from lucid.ir import ops
from lucid.ir.errors import EagerOnlyError, LucidError, TraceError
from lucid.ir.graph import Graph, Region, Value
from lucid.ir.graph import Node as GraphNode
from lucid.ir.location import LIBRARY, Location, here
from lucid.ir.op import Attributes, Op
from lucid.ir.types import DType
from lucid.tensor.batched import Batched
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, of_value, traced_view
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import READ_ONLY, made_without_grad, replay, scatter, take_memory

if TYPE_CHECKING:
    from lucid.autograd.engine import BackwardRun
    from lucid.compiler.guards.calls import GuardCollector
    from lucid.compiler.recording.outside import Outside
    from lucid.compiler.results.effects import Effect


# Files of the library that write texts for the user's code.
_WRITERS = (
    os.path.join(LIBRARY, "compiler", "recording", "outside.py"),
    os.path.join(LIBRARY, "functions", "protocols.py"),
)


class Recorder(LiveNumbers):
    """Everything that one trace touches.

    Attributes:
        graph: the nodes so far.
        hosts: the calls of custom Functions that run in Python.
        exits: what Python has looked at; outside: what the step tells the world.
        cells: buffers met, by storage.
        guards: Python values that the trace looked at.
        effects: Python effects to repeat after each call.
        positions: arguments' numbers, by the identity of what stands for them.
        counters: those of tensors from outside that were written, with what they were before.
        own_counters: those of what `.data` gave, which count for memory from outside apart.
        versions: what counters were when they were first looked at, and what they have come to.
        containers: numbers of the containers and objects of plain data in arguments, by identity.
        argument_storages: the memory of arguments, which must not be met as state.
        arrays: NumPy arrays of the user's that the program reads.
        aliases: identities of tensors made in the trace on the memory of concrete ones.
        own: identities of other tensors made in the trace that have data.
        bound: entries of an optimizer's dicts that the step has set.
        memories: what tensors from outside showed before the step assigned their `data`.
        refusal: the error that the user's code was given, and may have caught.
        ctx_change: which attribute of its ctx a backward has changed, for messages.
        past: in the backward of a call, the nodes of the trace that the call is one of; numbers:
            live ones that they hold; ends: where gradients leave them, and what stands for that.
        outer: what it computes with that is no argument, and has a history from outside.
    """

    def __init__(
        self,
        name: str,
        leaving: frozenset[object] = frozenset(),
        undo: list[Callable[[], object]] | None = None,
    ) -> None:
        super().__init__(Graph(name))
        self.hosts = HostRecording(self, leaving)
        self.exits = Exits(self)
        self.outside: Outside | None = None
        self.cells: dict[Storage, Cell] = {}
        self.guards: dict[str, Guard] = {}
        self.effects: list[Effect] = []
        self.undo = [] if undo is None else undo
        self.grads: dict[int, GradUse] = {}
        self.grad_leaf_of: dict[Storage, TensorCore] = {}
        self.counters: dict[VersionCounter, int] = {}
        self.own_counters: set[VersionCounter] = set()
        self.versions: dict[VersionCounter, int] = {}
        self.flags: dict[int, tuple[TensorCore, bool]] = {}
        self.memories: dict[int, tuple[TensorCore, TensorCore]] = {}
        self.positions: dict[int, int] = {}
        self.containers: dict[int, int] = {}
        self.arguments: Sequence[TensorCore] = ()
        self.argument_storages: set[Storage] = set()
        self.arrays = UsersArrays(self)
        self.aliases: set[int] = set()
        self.own: set[int] = set()
        self.bound: set[tuple[int, object]] = set()
        self.refusal: TraceError | EagerOnlyError | None = None
        self.ctx_change: str | None = None
        self.outer: list[TensorCore] = []
        self.past: set[Node] = set()
        self.ends: dict[Edge, TensorCore] = {}
        self.numbers: Sequence[Any] = ()
        self.made: list[weakref.ref[TensorCore]] = []
        self.scopes: list[str] = []
        self.collector: GuardCollector | None = None
        self._first_sequence = next(nodes.sequence_numbers)
        self._region: Region | None = None
        self._deriving: Node | None = None

    # ------------------------------------------------------------------ recording ops

    @unheard
    def record(self, op: Op, operands: Sequence[TensorCore], attributes: Attributes) -> Tensor:
        """Append an op on tensors; views stay views of their storage."""
        values = [self.value_of(operand, op.name) for operand in operands]
        attributes = {name: seen(value) for name, value in attributes.items()}
        node = self.graph.append(op, values, attributes)
        self._annotate(node)
        value = node.result
        if op.kind == "view":
            result = traced_view(op, operands[0], attributes, value)
        else:
            result = of_value(value)
        self.made.append(weakref.ref(result))
        if node.location is not None:
            result._line = (node.location.file, node.location.line)
        return result

    @unheard
    def constant(self, value: Any, dtype: DType) -> Tensor:
        """A 0-d constant, or the value of a live scalar."""
        value = value.number() if type(value) is LateArray else value
        with self.annotated():
            if is_live(value):
                recorded = self.live_value(value, dtype)
                if dtype is not recorded.dtype:
                    recorded = ops.cast(recorded, dtype=dtype)
            else:
                number = np.array(value, dtype.numpy)[()]
                recorded = self.graph.append(
                    ops.constant, (), {"value": number, "dtype": dtype}
                ).result
        result = of_value(recorded)  # without a line, as eager mode's
        self.made.append(weakref.ref(result))
        return result

    def value_of(self, tensor: TensorCore, what: str = "an operation") -> Value:
        """The value that the tensor has by now in this trace; `what` needs it, for messages."""
        storage = tensor._storage
        if storage.recorder is not self:
            self._lift(tensor, what)
        if tensor._array is not None and context.grad_enabled:  # else a lost history may stay
            self.note_outer(tensor)
        assert storage.value is not None
        if not tensor._chain:  # and a parameter doesn't go on holding the graph
            return storage.value
        cached = tensor._value
        if cached is not None and cached[0] == storage.generation:
            value: Value = cached[1]
            if value.graph is self.graph:
                return value
        with self.annotated():
            value = replay(storage.value, tensor._chain)
        tensor._value = (storage.generation, value)
        return value

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
        self, storage: Storage, kind: str, position: int = -1, leaf: TensorCore | None = None
    ) -> Cell:
        """Enter a buffer as an input of the graph."""
        ir_kind = "arg" if kind == "arg" else "state"
        value = self.graph.add_input(storage.root_type, ir_kind)
        cell = Cell(storage, value, kind, position, leaf)
        storage.value = value
        storage.recorder = self
        storage.generation += 1
        self.cells[storage] = cell
        return cell

    def hold(self, storage: Storage, value: Value) -> None:
        """Let memory without data hold a value; what is written to it stays inside."""
        storage.value, storage.recorder = value, self
        storage.generation += 1
        self.cells[storage] = Cell(storage, value, "replaced")

    def adopt_constant(self, tensor: TensorCore) -> None:
        """Take data that was made inside of the trace as a constant of the program."""
        self.own.add(id(tensor))
        array = tensor._array
        assert array is not None
        if self.collector is not None and self.collector.was_there(array):
            self.arrays.adopt(tensor)
            return
        storage = tensor._storage
        if array.size and (array == array.reshape(-1)[0]).all():
            with self.annotated():
                value = self.graph.constant(array.reshape(-1)[0], tensor.dtype)
                if array.ndim:
                    value = ops.broadcast(value, shape=tensor._type.shape)
            storage.value, storage.recorder = value, self
            storage.generation += 1
            self.cells[storage] = Cell(storage, value, "constant")
            return
        storage.array = array.copy()
        tensor._array = storage.array
        self.add_cell(storage, "constant")

    def write(self, target: TensorCore, value: TensorCore) -> None:
        """Write `value` through `target`'s view chain into its storage."""
        position = self.positions.get(id(base_of(target)), -1)
        if position >= 0 and made_without_grad(self.arguments[position]):
            self.run_op_by_op("it writes a view, made in no_grad mode, of a tensor with a history")
        new = self.value_of(value)
        self.value_of(target)
        storage = target._storage
        assert storage.value is not None
        if storage.array is not None:
            if not (storage.array.flags.writeable or self.cells[storage].is_inside):
                raise LucidError(READ_ONLY)
            self.note_counter(target._counter)
        elif self.is_outside(base_of(target)) or id(base_of(target)) in self.positions:
            self.note_counter(target._counter)  # of one whose memory the step has assigned
        if target._chain:
            with self.annotated():
                new = scatter(storage.value, target._chain, new)
        storage.value = new
        storage.generation += 1

    # ------------------------------------------------------------------ where nodes come from

    def _annotate(self, node: GraphNode, location: Location | None = None) -> None:
        node.location = location or self._location()
        node.scope = self.scope
        node.region = self._region
        if self._deriving is not None and self._deriving._origin is not None:
            node.gradient_of = self._deriving._origin
            producer = self._deriving._origin.producer
            if producer is not None:
                node.scope = producer.scope

    def _location(self) -> Location | None:
        deriving = self._deriving
        if deriving is not None and deriving._origin is not None and deriving._line is not None:
            return Location(*deriving._line)
        return here()

    @property
    def scope(self) -> str:
        return ".".join(filter(None, self.scopes))

    @contextmanager
    def annotated(self) -> Iterator[None]:
        """Give nodes that are appended to the graph directly their location and scope."""
        start = len(self.graph.nodes)
        yield
        nodes = self.graph.nodes[start:]
        if nodes:
            location = self._location()
            for node in nodes:
                if node.location is None:
                    self._annotate(node, location)

    @contextmanager
    def region(self, name: str, kind: str = "region") -> Iterator[Region]:
        """Tag the nodes of a custom Function's forward or backward, or of a checkpointed block."""
        before = self._region
        deriving = self._deriving
        self._region = region = Region(name, here(), before, kind)
        self._deriving = None
        try:
            yield region
        finally:
            self._region = before
            self._deriving = deriving

    @contextmanager
    def deriving(self, node: Node) -> Iterator[None]:
        """Mark nodes as computing the gradient of what `node` recorded."""
        before = self._deriving
        self._deriving = None if isinstance(node, AccumulateGrad) else node
        if self.is_outer(node):
            self.run_op_by_op(
                f"a backward() in it follows history from outside, {node._name()}{node._place()}"
            )
        try:
            yield
        finally:
            self._deriving = before

    def origin_of(self, result: TensorCore) -> Value | None:
        return result._value[1] if result._value is not None else result._storage.value

    # ------------------------------------------------------------------ what Python looks at

    def refuse_concrete(self, tensor: TensorCore, what: str) -> np.ndarray:
        """The data of a constant; all others are known only when the step runs.

        Memory that is given to NumPy can't be written: no trace would see it. A custom Function
        that asks for memory, which it may write, or for what no constant is, runs on the host.
        """
        if what in ("numpy()", "__dlpack__()"):
            self.hosts.leave()
        found = self.known(tensor)
        if found is None:
            self.hosts.leave()
            self.exits.op_by_op(f"it looks at the data of {tensor._describe()}, by {what}")
        assert found is not None
        return found

    def look(self, tensor: TensorCore, what: str) -> Any:
        """What Python gets for the only element of a tensor.

        In a method of a custom Function, which may do anything with it, that is a host call.
        """
        found = self.known(tensor)
        if found is None:
            self.hosts.leave()
            if what != "float()":
                return self.exits.of(tensor, what)
        return self.refuse_concrete(tensor, what).item()

    def array_of(self, tensor: TensorCore) -> np.ndarray:
        """What `numpy()` gives: memory, which nobody may write where no trace would see it."""
        self.hosts.leave()
        known = self.known(tensor)
        if known is not None:
            return known
        late = LateArray(self.exits, self.value_of(tensor, "numpy()"), tensor=tensor)
        return cast(np.ndarray, late)

    def is_own_memory(self, tensor: TensorCore) -> bool:
        """Whether the step itself has made the memory of a tensor."""
        cell = self.cells.get(tensor._storage)
        return tensor._storage.recorder is self and (cell is None or cell.is_inside)

    def list_of(self, tensor: TensorCore) -> Any:
        """What `tolist()` gives for a tensor that the step computes."""
        self.hosts.leave()
        return self.exits.list_of(self.value_of(tensor, "tolist()"))

    def written(self, number: LiveScalar | LateData, write: Callable[..., str], *how: str) -> str:
        """The text of a number, or an array, that each call has for itself.

        The library's own texts aren't followed: a number in one of these is looked at.
        """
        writer = sys._getframe(2).f_code.co_filename
        if writer.startswith(LIBRARY) and writer not in _WRITERS:
            return write(number._look(), *how)
        return texts.formatted(number, write, *how)

    def text_of(self, tensor: Tensor) -> str:
        """What `str` and `repr` give for a tensor."""
        self.hosts.leave()
        value = self.value_of(tensor, "str()")
        return texts.of_tensor(tensor, value, self.hosts.present.of([value])[0], self.exits)

    def known(self, tensor: TensorCore) -> np.ndarray | None:
        """The data of what constants alone decide, such as a mask made of `eye` and `arange`."""
        cell = self.cells.get(tensor._storage)
        untouched = cell is not None and cell.value is tensor._storage.value
        is_constant = untouched and cell is not None and cell.kind == "constant"
        if is_constant and tensor._array is not None:
            return _read_only(tensor._array)
        if tensor._storage.recorder is not self:
            return None
        value, known = self.value_of(tensor), self._constants()
        is_known = evaluate([value], known)
        return _read_only(np.array(known[value], order="C")) if is_known else None

    def version_of(self, tensor: TensorCore) -> int:
        """How often memory of the step's own was written; of other memory only a call knows it."""
        cell = self.cells.get(tensor._storage)
        is_own = tensor._array is None or id(tensor) in self.own
        is_own = is_own if cell is None else cell.kind == "constant"
        if not (is_own or tensor._counter in self.own_counters):
            self.run_op_by_op("it asks for the _version of an argument or of a tensor from outside")
        return tensor._counter.value

    def refuse_address(self) -> NoReturn:
        """Give up at `data_ptr()`; a custom Function that asks for an address runs on the host."""
        self.hosts.leave()
        self.run_op_by_op("it asks for the address of a tensor, by data_ptr()")

    def _constants(self) -> dict[Value, np.ndarray]:
        """The arrays that are constants of the program."""
        return {
            cell.value: cell.storage.array
            for cell in self.cells.values()
            if cell.kind == "constant" and cell.storage.array is not None
        }

    def refuse(self, what: str, remedy: str) -> NoReturn:
        place = here()
        line = "" if place is None else f"\n  at {place}   {place.text}"
        error = TraceError(f"{what} can't be compiled{line}\nhint: {remedy}")
        if self.refusal is None:
            self.refusal = error
        raise error

    def raise_caught(self) -> None:
        """Raise what the user's code was given while tracing, and may have caught."""
        if self.hosts.left is not None:
            raise self.hosts.left
        if self.refusal is not None:
            raise self.refusal

    def run_op_by_op(self, reason: str) -> NoReturn:
        """Give the trace up, since the call makes sense op by op only."""
        with self._refusing():
            raise EagerOnlyError(reason)

    def refuse_retaining(self, tensor: TensorCore) -> None:
        """Give up when a tensor from outside is to keep its gradient: its history may be there."""
        if tensor._array is not None and not self.is_own(tensor):
            self.run_op_by_op(
                "it lets an argument, or a tensor from outside, keep its gradient, by retain_grad()"
            )

    def refuse_paths_outside(self, run: BackwardRun) -> None:
        """Give up when gradients are asked for that may go through the history of an argument."""
        found = [x for x in nodes.iterate_graph(run.roots) if isinstance(x, HistoryOutside)]
        if found and any(self._is_out(x) for x, _ in run.wanted or () if x not in found):
            self.run_op_by_op(
                "it asks for the gradient with respect to a tensor that an argument may be "
                f"computed from, outside, by {found[0]._short_name()}"
            )

    def _is_out(self, node: Node) -> bool:
        """Whether a node was there before the trace, or stands for one that was."""
        if not isinstance(node, AccumulateGrad):
            return self.is_outer(node)
        return id(node.variable) in self.positions or self.is_outside(node.variable)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Remember a refusal that is raised in the block."""
        try:
            yield
        except EagerOnlyError as error:
            self.refusal = self.refusal or error
            raise

    def note_refusal(self, error: TraceError | EagerOnlyError) -> BaseException:
        """Remember an error that the user's code may catch; the error.

        In a method of a custom Function there is another way: on the host it may do as it likes.
        """
        self.hosts.leave()
        self.refusal = self.refusal or error
        return error

    @unheard
    def guard_value(
        self, text: str, read: Callable[[], Any], expected: Any, gated: bool = False
    ) -> None:
        self.guards.setdefault(text, AnswerGuard(text, read, (), expected, gated=gated))

    def is_outside(self, tensor: TensorCore) -> bool:
        """Whether a tensor was there before the trace, and no argument."""
        cell = self.cells.get(tensor._storage)
        is_inside = cell is not None and cell.kind in ("constant", "arg")
        return tensor._array is not None and not self.is_own(tensor) and not is_inside

    # ------------------------------------------------------------------ what must be put back

    def note_counter(self, counter: VersionCounter) -> None:
        self.counters.setdefault(counter, counter.value)

    def note_flag(self, tensor: TensorCore) -> None:
        if tensor._array is not None and not self.is_own(tensor):
            self.flags.setdefault(id(tensor), (tensor, tensor._requires_grad))

    def note_memory(self, tensor: TensorCore) -> None:
        """Remember the memory of a tensor that is about to be given another."""
        if tensor._array is None:
            self.own.add(id(tensor))
        elif not self.is_own(tensor):
            self.memories.setdefault(id(tensor), (tensor, tensor.data))

    def is_own(self, tensor: TensorCore) -> bool:
        """Whether the trace made the tensor, though it has data."""
        return id(tensor) in self.own or id(tensor) in self.aliases

    def restore_properties(self) -> None:
        """Give tensors from outside the flags and the memory that they had."""
        for tensor, flag in self.flags.values():
            tensor._requires_grad = flag
        for tensor, memory in self.memories.values():
            take_memory(tensor, memory)
        self.flags.clear()
        self.memories.clear()

    def note_history(self, tensor: TensorCore) -> None:
        """Give up when a tensor from outside is about to get another history."""
        if tensor._array is not None and not self.is_own(tensor):
            self.run_op_by_op(
                "it gives an argument, or a tensor from outside, another history, by writing it"
            )

    def note_outer(self, *tensors: TensorCore) -> None:
        """Remember tensors that have a history outside, and don't stand for arguments."""
        for tensor in tensors:
            is_concrete = tensor._array is not None and not self.is_own(tensor)
            edge = edge_of(tensor) if is_concrete else None
            if edge is not None and self.is_outer(edge[0]):
                self.outer.append(tensor)

    def refuse_outer(self) -> None:
        """Give up when the step computes with such."""
        for tensor in self.outer[:1]:
            self.run_op_by_op(
                "it computes with a tensor from outside that has a history, and is no argument: "
                f"{tensor._describe()}"
            )

    def is_outer(self, node: Node) -> bool:
        """Whether a node was recorded before the trace, and belongs to others."""
        return 0 <= node._sequence < self._first_sequence and node not in self.past

    def _grad_use(self, leaf: TensorCore) -> GradUse | None:
        if leaf._array is None or id(leaf) in self.aliases:
            return None
        use = self.grads.get(id(leaf))
        if use is None:
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

    def restore(self, failed: bool) -> None:
        """Put every concrete tensor back to what it was before the trace."""
        for storage in self.cells:
            storage.value = None
            storage.recorder = None
            storage.generation += 1
        for use in self.grads.values():
            use.now = None
        self.versions.clear()
        self.restore_properties()
        if failed:
            undo_all(self.undo)

    def end(self) -> None:
        """Let go of those who refer to it: what the trace met must not wait for the collector."""
        self.refusal = self.hosts.left = None  # their tracebacks do
        self.exits.end()
        del self.hosts, self.arrays, self.exits
        self.outside = None
        self.collector = None
        self.arguments = ()
        self.end_numbers()
        self.outer.clear()
        self.past.clear()
        self.ends.clear()
        self.numbers = ()

    def forget_arguments(self) -> None:
        """Let go of what stood for the arguments, and of the gradients that the trace found."""
        for use in self.grads.values():
            use.original = None
            if use.position >= 0:
                use.leaf = None
        self.grad_leaf_of.clear()
        self.arrays.forget()


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Record this thread's ops into `recorder`."""
    before = context.recorder
    context.recorder = recorder
    try:
        yield
    finally:
        context.recorder = before
