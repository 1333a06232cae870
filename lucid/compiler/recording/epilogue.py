"""The end of a trace: what Python holds by then becomes outputs and writes of the graph."""

from __future__ import annotations

import gc
import pathlib
import types
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from lucid.autograd.hooks import hooks_of
from lucid.autograd.node import AccumulateGrad, OpNode, edge_of
from lucid.compiler.guards.collector import PLAIN
from lucid.compiler.guards.guard import (
    OF_ITEMS,
    Progress,
    brief,
    closure_of,
    instance_dict,
    is_exhausted,
)
from lucid.compiler.guards.mutable_sources import MutableSource
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.cells import GradUse
from lucid.compiler.inputs.late import is_late
from lucid.compiler.inputs.objects import SCALARS, know_by_identity
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.inputs.signature import Call
from lucid.compiler.recording.deferred_calls import DeferredCall
from lucid.compiler.recording.late.filled_lists import FilledList
from lucid.compiler.recording.late.growing_lists import settled
from lucid.compiler.recording.late.late_arrays import LateArray
from lucid.compiler.recording.late.texts import is_of_call
from lucid.compiler.recording.loops.loops import RegionNode
from lucid.compiler.recording.recorder import Recorder
from lucid.compiler.results.histories import Histories, History, calls_users, lost_graph
from lucid.compiler.results.output_specs import (
    Constant,
    Found,
    GradMetadata,
    GraphOutput,
    GraphOutputView,
    InputView,
    LateOutput,
    MemoryAlias,
    OutputSpec,
    Run,
    Views,
    leaf_of,
)
from lucid.compiler.results.pytree import BuiltContainer, flatten, is_made_key, is_node
from lucid.compiler.results.side_effects import SideEffects
from lucid.compiler.results.tape import nodes_behind
from lucid.ir.classes import isinstance
from lucid.ir.errors import EagerOnlyError
from lucid.ir.extents import Extent, replaced
from lucid.ir.graph import Value
from lucid.ir.types import DType
from lucid.ir.whose_code import is_users
from lucid.tensor.core import TensorCore, ViewChain, of_array
from lucid.tensor.size import Size
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.tensor import Tensor

_CONSTANT_TUPLES = (tuple, Size)
# What all calls may share, though a step made it: numbers, texts, and code.
_SHARED = (
    *(*SCALARS, np.generic, range, slice, DType, type, tuple, pathlib.PurePath),
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
)


@dataclass(slots=True, eq=False)
class Epilogue:
    """What a step leaves, as each call makes it again.

    Attributes:
        result: the function's result; finals: the values of bound places.
        leaves: the leaves of these; tensors: the leaves that are tensors or arrays, numbered as
            flattened results.
        grads: the gradients that were set; None: no gradient.
        counters: a version counter, by an argument's position, a gradient's use or itself, and how
            far it moves.
        history: the history of results that can be differentiated outside; None: there is none.
        deferred: the calls after each call, with specs of their arguments.
    """

    result: OutputSpec
    finals: list[OutputSpec]
    leaves: list[OutputSpec]
    tensors: list[OutputSpec]
    grads: list[tuple[GradUse, OutputSpec | None]]
    counters: list[tuple[int | GradUse | VersionCounter, int]]
    history: History | None
    deferred: list[DeferredCall]


class EpilogueBuilder:
    """Turns results, gradients and written state into output specs."""

    def __init__(self, recorder: Recorder, handles: list[TensorCore], call: Call) -> None:
        self._recorder = recorder
        self._collector = recorder.collector
        self._handles = handles
        self._arguments = call.tensors
        self._refuse_hooks()
        self._slots: dict[Any, int] = {}
        self._specs: dict[int, OutputSpec] = {}
        self._owners: dict[Storage, tuple[GraphOutput, VersionCounter]] = {}
        self._originals = {
            id(use.original): use for use in recorder.grads.values() if use.original is not None
        }
        self._found_counters: dict[VersionCounter, int | GradUse] = {
            use.original._counter: use
            for use in self._originals.values()
            if use.original is not None
        }
        self._found_counters |= {x._counter: i for i, x in reversed([*enumerate(handles)])}
        self._made: dict[int, BuiltContainer] = {}
        self._new_leaves: set[int] = set()
        self._filled: set[Storage] = set()
        self._open: list[BuiltContainer] = []
        self._leaves: list[tuple[Any, OutputSpec]] = []
        self._bases: list[tuple[Any, OutputSpec]] = []  # of results; a write into these goes there
        self._source: MutableSource | None = None

    def finish(self, result: Any, finals: Sequence[Any], side_effects: SideEffects) -> Epilogue:
        """Take down everything; the graph gets its outputs and writes.

        finals: what the places of `side_effects` are bound to.
        """
        recorder = self._recorder
        try:
            made = self._tree(result), [*map(self._final, side_effects.bound, finals)]
        except RecursionError:
            recorder.run_op_by_op("what it leaves is nested more deeply than Python calls")
        deferred = self._deferred()
        grads = self._gradients()
        shown = {id(leaf) for leaf, _ in self._leaves}
        hidden = {id(base) for base, _ in self._bases} - shown
        self._leaves += {id(x): (x, made) for x, made in self._bases if id(x) in hidden}.values()
        kinds = (TensorCore, np.ndarray)
        tensors: list[tuple[Any, OutputSpec]] = [
            (x, made) for x, made in self._leaves if isinstance(x, kinds) and not is_late(x)
        ]
        kept = {x._storage for x, _ in tensors if isinstance(x, TensorCore)} | self._filled
        leaving = {x._storage for use, _ in grads if (x := use.now) is not None} | kept
        given = {x for x, cell in recorder.cells.items() if not cell.is_inside}
        recorder.loops.apart.refuse_leaving(leaving, given)
        self._fit_loops(tensors)
        history = self._history(tensors, side_effects, hidden)
        for storage, cell in recorder.cells.items():
            if cell.is_written:
                assert storage.value is not None
                recorder.graph.writes.append((cell.value, storage.value))
        recorder.loops.finish()
        self._note_shared_gradients()
        leaves = [spec for _, spec in self._leaves]
        numbered = [spec for _, spec in tensors]
        before, found = recorder.counters.items(), self._found_counters
        moved = [(found.get(c, c), c.value - version) for c, version in before]
        counters = [(counter, delta) for counter, delta in moved if delta]
        return Epilogue(*made, leaves, numbered, grads, counters, history, deferred)

    def _fit_loops(self, tensors: Sequence[tuple[Any, OutputSpec]]) -> None:
        """Let loops keep what backwards outside read of them, which come to no new leaf.

        Where these call methods of the user's, which may do anything, begin again without loops.
        """
        found = [x for x, spec in tensors if _is_open(x, spec)]
        edges = [edge for x in found if (edge := edge_of(x)) is not None]
        loops, outer = self._recorder.loops, self._recorder.ends
        for region in nodes_behind(edges, outer):
            if isinstance(region, AccumulateGrad) and id(region.variable) in self._new_leaves:
                self._refuse_keeping(region.variable)
            if isinstance(region, RegionNode) and region not in self._recorder.past:
                ends = [edge for edge in region._edges if edge is not None]
                if any(map(calls_users, nodes_behind([(region, 0)], ends))):
                    loops.unroll_all("is differentiated outside, by methods of its own")
                region.fit(loops)

    def _deferred(self) -> list[DeferredCall]:
        """What the step tells the world."""
        outside = self._recorder.outside
        told, outside.deferred = outside.deferred, []
        for call in told:
            call.args = [*map(self._argument_spec, call.args)]
            call.kwargs = {name: self._argument_spec(value) for name, value in call.kwargs.items()}
        return told

    def _argument_spec(self, value: Any) -> OutputSpec:
        """The spec of a deferred call's argument: objects from outside, such as files, stay."""
        value = self._collector.stand_in_for(value)
        is_made = is_node(value) and not self._is_found(value)
        is_of_each = is_made or is_of_call(value) or isinstance(value, (*PLAIN, tuple))
        return self._tree(value) if is_of_each else Constant(value)

    def _final(self, source: MutableSource, value: Any) -> OutputSpec:
        """The spec of the value that a place is bound to."""
        self._source = source
        made = self._tree(value)
        self._source = None
        return made

    def _tree(self, value: Any) -> OutputSpec:
        """The spec of a result; an object that is there twice has one spec."""
        value = settled(self._collector.stand_in_for(value))
        if type(value) is Extent:  # what an object of the library's has noted, as Python has it
            value = self._recorder.exits.shown(value)
        known = self._made.get(id(value))
        if known in self._open:
            raise EagerOnlyError(
                f"it makes a container that holds itself, a {type(value).__name__}"
            )
        if known is not None:
            return known
        if is_late(value) or not is_node(value) or self._is_found(value):
            spec = self._spec_of(value)
            self._leaves.append((value, spec))
            return spec
        if id(value) in self._recorder.drawn:
            raise EagerOnlyError(f"it returns or keeps a {type(value).__name__} that it draws")
        own = instance_dict(value)
        if own is not None and self._collector.name_of(own) and self._is_found(own):
            raise EagerOnlyError(
                f"it makes and returns or keeps a {type(value).__name__}, whose __dict__ was there "
                "before"
            )
        if isinstance(value, dict) and any(
            is_made_key(x, self._collector.was_there) for x in value
        ):
            raise EagerOnlyError(f"it makes keys of a {type(value).__name__} that it makes")
        children, rebuild = flatten(value)
        made = self._made[id(value)] = BuiltContainer(rebuild)
        self._open.append(made)
        made.children = [*map(self._tree, children)]
        self._open.pop()
        if not _is_constant(made, value):
            return made
        del self._made[id(value)]
        return self._spec_of(value)

    def _is_found(self, value: Any) -> bool:
        """Whether a container or an object was there before: it is itself a result then."""
        return id(value) in self._recorder.containers or self._collector.was_there(value)

    def _slot(self, key: Any, value: Value) -> int:
        if key not in self._slots:
            self._slots[key] = len(self._recorder.graph.outputs)
            self._recorder.graph.outputs.append(value)
        return self._slots[key]

    def _spec_of(self, leaf: Any) -> OutputSpec:
        known = self._specs.get(id(leaf))
        if known is None:
            known = self._specs[id(leaf)] = self._new_spec(leaf)
        return known

    def _new_spec(self, leaf: Any) -> OutputSpec:
        if is_late(leaf):
            if type(leaf) is FilledList and leaf.number is None:
                return self._rows_of(leaf)
            if type(leaf) is LateArray:
                position = self._recorder.positions.get(id(leaf.tensor), -1)
                if position >= 0 and leaf.whole is None:
                    return Found("array", lambda run: run.call.tensors[position]._array)
                if (found := leaf.found) is not None:
                    return Found("array", lambda _: found())
                leaf.settle()
                is_array = leaf.kind is np.ndarray  # a number may be an element of a graph, too
                if is_array and leaf.tensor is not None and leaf.whole is None:
                    whole = self._spec_of(leaf.tensor)
                    return Found("array", lambda run: whole.of(run).detach().numpy())
            slots = {key: self._slot(x, x) for key, x in leaf.bases.items() if not is_live(x)}
            early = {key: self._spec_of(x) for key, x in leaf.bases.items() if is_live(x)}
            return LateOutput(leaf.formula, slots, early)
        if is_live(leaf):
            formula = leaf.formula
            return Found("number", lambda run: formula(run.call.floats))
        if isinstance(leaf, TensorCore):
            return self._outside(leaf) or self._inside(leaf)
        if id(leaf) in self._recorder.containers:
            number = self._recorder.containers[id(leaf)]
            return Found("container", lambda run: run.call.owners()[number])
        if id(leaf) in self._recorder.dicts:
            know_by_identity([self._recorder.dicts[id(leaf)]])
            raise RestartTrace("keeps the __dict__ of an object that it is given")
        self._collector.know_set(leaf)
        is_callers = id(leaf) in self._collector.given_functions  # another one in each call
        if self._collector.was_there(leaf) and not is_callers:
            return Constant(leaf)
        if isinstance(leaf, np.ndarray):
            stand_in = self._collector.stand_in_for(leaf)
            if stand_in is not leaf:
                return self._spec_of(stand_in)
            self._collector.refuse_beside(leaf)
            return Found("copy", lambda _: leaf.copy())
        if (isinstance(leaf, _SHARED) or _is_value(leaf)) and self._is_fixed(leaf):
            return Constant(leaf)
        if isinstance(leaf, OF_ITEMS) and not is_exhausted(leaf):
            place = Progress(leaf)
            if self._collector.was_there(place["items"]):
                return self._iterator(self._spec_of(place["items"]), place["at"])
        source, what = self._source, f"an object of {type(leaf).__name__} that it made"
        what = what.replace("made", "is given") if is_callers else what
        how = "returns" if source is None else f"keeps in {source.path}"
        line = "" if source is None else self._collector.line_of(source)
        does = f"it {how} {what}"
        raise EagerOnlyError(f"{does}, {brief(leaf)}, which no call can make again{line}", does)

    def _rows_of(self, filled: FilledList) -> OutputSpec:
        """How to make a list of tensors that the rounds of a loop have filled."""
        before, rows, count, last, is_begun, behind = filled.parted()
        value = self._recorder.value_of(rows)
        self._filled.add(rows._storage)
        slot, number = self._slot(value, value), self._spec_of(count)
        latest = None if last is None else self._tree(last)
        around = [*map(self._tree, before)], [*map(self._tree, behind)]

        def made(run: Run) -> list[Any]:
            found: list[Any] = [of_array(x.copy()) for x in run.outputs[slot][: number.of(run)]]
            first, others = ([x.of(run) for x in part] for part in around)
            ending = found or (first if is_begun else [])
            if latest is not None and ending:  # else the last one has a tensor of its own
                ending[-1] = latest.of(run)
            return [*first, *found, *others]

        return Found("rows", made)

    def _iterator(self, items: OutputSpec, at: int) -> OutputSpec:
        """An iterator that the step has made, of a list or tuple that was there, at a place."""

        def iterator(run: Run) -> Any:
            found: Any = iter(items.of(run))
            found.__setstate__(at)
            return found

        return Found("iterator", iterator)

    def _is_fixed(self, leaf: Any) -> bool:
        """Whether all calls may share a leaf: it holds nothing that the step has made.

        A function that the user's step defines isn't shared, as it may change what it holds; the
        standard library's are, such as those that it keeps for a singledispatchmethod.
        """
        if isinstance(leaf, type):
            return False
        if isinstance(leaf, types.FunctionType) and is_users(leaf):
            return False
        return all(type(x) in SCALARS or self._collector.was_there(x) for x in _parts_of(leaf))

    def _outside(self, leaf: TensorCore) -> OutputSpec | None:
        """The spec of a tensor from outside, or on memory from there; None for others."""
        recorder, storage = self._recorder, leaf._storage
        if id(leaf) in recorder.positions:
            position = recorder.positions[id(leaf)]
            return Found("argument", lambda run: run.call.tensors[position])
        if id(leaf) in self._originals:
            use = self._originals[id(leaf)]
            return Found("gradient", lambda run: leaf_of(use, run.call.tensors)._grad)
        if id(leaf) in recorder.aliases:
            recorder.value_of(leaf)  # it is new at each call, though no op has read its memory
        cell = recorder.cells.get(storage)
        if cell is None:
            met = storage.recorder is recorder or leaf._array is None
            return None if met else Constant(leaf)
        if cell.is_inside or (leaf.requires_grad and leaf._lost_history()):
            return None
        if leaf._array is not None and id(leaf) not in recorder.aliases:
            return Constant(leaf)
        base = leaf._base
        is_view = base is not None and base._storage is storage
        if base is not None and is_view and (*base._chain, *leaf._view_chain) == leaf._chain:
            # It shows its memory as when it was made, and not after `x.t_()`.
            is_given = id(base) in recorder.positions or recorder.is_outside(base)
            is_derived = type(leaf.grad_fn) is OpNode and (base.is_leaf or is_given)
            if is_derived or not leaf.requires_grad:
                self._refuse_keeping(leaf)
                return InputView(self._spec_of(base), self._views(leaf._view_chain))
        if leaf.requires_grad or _is_leaf(leaf) or type(leaf) is not Tensor:
            is_frozen = not (leaf.requires_grad or _is_leaf(leaf))
            what = type(leaf).__name__ if is_frozen else "tensor that requires grad"
            recorder.run_op_by_op(
                f"it returns or keeps a {what} on memory of an argument or of a "
                f"tensor from outside\n  tensor: {leaf._describe()}"
            )
        counter = leaf._counter
        version = counter.value if counter in recorder.own_counters else None
        found = self._found_counters.get(counter, counter)
        return MemoryAlias(cell, self._views(leaf._chain), found, version)

    def _views(self, chain: ViewChain) -> Views:
        slots: dict[Extent, int] = {}

        def note(size: Extent) -> Extent:
            value = self._recorder.exits.shown(size).whole
            slots[size] = self._slot(value, value)
            return size

        replaced(chain, note)
        return Views(chain, slots)

    def _inside(self, leaf: TensorCore) -> OutputSpec:
        """The spec of a tensor that the step has made."""
        self._recorder.parts.keep(leaf._storage)
        if _is_leaf(leaf) and not (leaf._retains_grad or hooks_of(leaf)):
            self._new_leaves.add(id(leaf))
        else:
            self._refuse_keeping(leaf)
        return self._computed(leaf)

    def _refuse_keeping(self, leaf: TensorCore) -> None:
        """Give up where a leaf that the step made, and returns, may get a gradient by its history.

        One that no history leads to may get the gradient of another step.
        """
        if leaf._retains_grad or (_is_leaf(leaf) and _is_reached(leaf)):
            how = "keeps its gradient by retain_grad()" if leaf._retains_grad else "is a new leaf"
            self._recorder.run_op_by_op(
                f"it returns or keeps a tensor that {how}\n  tensor: {leaf._describe()}"
            )

    def _computed(self, leaf: TensorCore) -> GraphOutput:
        """An output of the program: the tensor that owns it, or one that shares its memory."""
        self._recorder.value_of(leaf)
        storage = leaf._storage
        assert storage.value is not None
        past = self._past(leaf)
        version = leaf._counter.value
        base = None
        if leaf.requires_grad and _is_base(leaf._base, storage):
            base = self._spec_of(leaf._base)
            self._bases.append((leaf._base, base))
        if storage not in self._owners:
            slot = self._slot(storage, storage.value)
            of_owner = None if leaf._chain else past
            made = GraphOutput(slot, storage.value.type, version, of_owner)
            self._owners[storage] = made, leaf._counter
            if not leaf._chain:
                return made
        owner, counter = self._owners[storage]
        if isinstance(base, GraphOutput):  # what is detached may have come before it
            owner = base
        own = None if leaf._counter is counter else (leaf._counter, version)
        return GraphOutputView(owner, self._views(leaf._chain), past, own)

    def _past(self, result: TensorCore) -> GradMetadata | None:
        lost = lost_graph(result, self._recorder)
        guard = result._guard if result.requires_grad else None
        is_leaf = _is_leaf(result) or (result._grad_fn is None and type(result) is not Tensor)
        leaf = (type(result), result._requires_grad) if is_leaf else None
        gradient = None
        if is_leaf and result._grad is not None:
            if result._grad.requires_grad:
                self._refuse_keeping(result)
            gradient = self._spec_of(result._grad)
            self._leaves.append((result._grad, gradient))
        found = GradMetadata(lost, guard, leaf, gradient)
        return None if found.count(None) == len(found) else found

    def _gradients(self) -> list[tuple[GradUse, OutputSpec | None]]:
        """Those that were set. Gives up where one can be differentiated outside."""
        found: list[tuple[GradUse, OutputSpec | None]] = []
        for use in self._recorder.grads.values():
            assert use.leaf is not None
            grad = use.now
            is_known = use.was_read and grad is use.original
            if use.was_set and not is_known:
                spec = None if grad is None else self._spec_of(grad)
                if grad is not None and spec is not None and _is_open(grad, spec):
                    self._recorder.run_op_by_op(
                        "it leaves a gradient with a history in a .grad, by "
                        f"backward(create_graph=True)\n  tensor: {use.leaf._describe()}"
                    )
                found.append((use, spec))
        return found

    def _refuse_hooks(self) -> None:
        """Give up where the step leaves hooks on its arguments."""
        for handle, argument in zip(self._handles, self._arguments, strict=True):
            if handle is not argument and _hooks_on(handle) - _hooks_on(argument):
                self._recorder.run_op_by_op("it registers a hook on a tensor that it is given")

    def _history(
        self,
        tensors: Sequence[tuple[Any, OutputSpec]],
        side_effects: SideEffects,
        hidden: Collection[int],
    ) -> History | None:
        """Which results can be differentiated outside, and with respect to what; None: none.

        hidden: ids of those of which there are but views.
        """
        outputs = [
            (i, tensor) for i, (tensor, spec) in enumerate(tensors) if _is_open(tensor, spec)
        ]
        if not outputs:
            return None
        recorder = self._recorder
        recorder.refuse_outer()
        results, moved = [tensor for tensor, _ in tensors], side_effects.moved
        histories = Histories(recorder, results, self._handles, moved)
        return histories.behind(outputs, self._slots, side_effects.function, hidden)

    def _note_shared_gradients(self) -> None:
        """Note which gradients the step meets elsewhere, too."""
        collector, cells = self._collector, self._recorder.cells
        known = {tensor._storage for _, tensor in collector.tensors()}
        known.update(storage for storage, cell in cells.items() if cell.kind == "state")
        known.update(use.leaf._storage for use in self._originals.values() if use.leaf is not None)
        for use in self._originals.values():
            if use.original is not None and use.original._storage in known:
                use.storage = use.original._storage


def _is_leaf(made: TensorCore) -> bool:
    """Whether gradients have come or may come to a tensor, whatever its flag says by now."""
    return made._grad_fn is None and (made.requires_grad or _is_reached(made))


def _is_base(base: TensorCore | None, storage: Storage) -> TypeGuard[TensorCore]:
    """Whether it owns that memory, with a history and nobody who sees gradients come to it."""
    if base is None or base._grad_fn is None or base._storage is not storage or base._chain:
        return False
    return not base._grad_fn._is_observed


def _is_reached(made: TensorCore) -> bool:
    """Whether a history leads to a leaf, or one has left a gradient there."""
    node = None if made._accumulator is None else made._accumulator()
    return node is not None or made._grad is not None


def _is_constant(made: BuiltContainer, value: Any) -> bool:
    """Whether it is a tuple of numbers, names and such tuples: all calls may share it."""
    return type(value) in _CONSTANT_TUPLES and all(
        type(part) is Constant and (isinstance(item, SCALARS) or type(item) in _CONSTANT_TUPLES)
        for part, item in zip(made.children, value, strict=True)
    )


def _is_open(tensor: Any, spec: OutputSpec) -> bool:
    """Whether a result can be differentiated outside, with respect to what the step found."""
    if isinstance(spec, GraphOutput) and spec.past is not None and spec.past.lost is not None:
        return False
    return isinstance(spec, (GraphOutput, InputView)) and tensor.grad_fn is not None


def _hooks_on(tensor: TensorCore) -> set[int]:
    """Numbers of the hooks on an argument, or on the node that its gradient goes to."""
    history = tensor._grad_fn
    own = None if history is None else history._hooks_at(tensor._output_nr)
    return {*hooks_of(tensor), *(own or ())}


def _parts_of(leaf: Any) -> list[Any]:
    """What a function, a method or a slice refers to."""
    if isinstance(leaf, types.FunctionType):
        return [*closure_of(leaf).values()]
    if isinstance(leaf, types.MethodType):
        return [leaf.__self__, leaf.__func__]
    return [leaf.start, leaf.stop, leaf.step] if isinstance(leaf, slice) else []


def _is_value(leaf: Any) -> bool:
    """Whether an object, such as a date, refers to nothing and is known by what it equals."""
    kind: Any = type(leaf)
    is_compared = kind.__eq__ is not object.__eq__ and kind.__hash__ is not None
    return is_compared and not gc.is_tracked(leaf)
