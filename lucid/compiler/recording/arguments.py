"""What stands for a call's arguments while it is traced: handles on inputs, live scalars."""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lucid.autograd.hooks import take_hooks
from lucid.compiler.guards.argument_sources import changed_entries
from lucid.compiler.guards.guard import ABSENT, CONTENTS, identities_of
from lucid.compiler.guards.moving_entries import Column, MovingEntry, is_data, leaves_of
from lucid.compiler.guards.mutable_sources import MutableSource
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.functions import Kept, know_as_state
from lucid.compiler.inputs.objects import (
    MarkedObject,
    data_of,
    entries_of,
    is_set_of_values,
    know_by_identity,
    owners_of,
)
from lucid.compiler.inputs.scalars import WHOLE, is_whole
from lucid.compiler.inputs.signature import (
    LISTS,
    Call,
    LiveArgument,
    argument_names,
    axis_of_argument,
    live_text,
    sizes_seen,
)
from lucid.compiler.recording.late.late_arrays import LateArray
from lucid.compiler.recording.late.late_sequences import LateSequence
from lucid.compiler.recording.late.texts import text_of
from lucid.compiler.recording.names import identifier
from lucid.compiler.recording.recorder import Recorder
from lucid.compiler.results.histories import ExternalGradFn
from lucid.ir.classes import isinstance
from lucid.ir.errors import TraceError
from lucid.ir.extents import LEAST, MOST
from lucid.ir.location import here
from lucid.ir.strides import Strides
from lucid.ir.types import TensorType
from lucid.tensor.core import TensorCore, _new, attributes_of
from lucid.tensor.storage import Storage, ViewGuard, element_strides
from lucid.tensor.tree import map_tree
from lucid.tensor.writing import refusal_of_writes

if TYPE_CHECKING:
    from lucid.autograd.host_replay import OpenAxis


class StandIns:
    """The arguments with a traced handle for each tensor and a live scalar for each float.

    Tensors on one memory are inputs of their own; calls in which one of them is written run op by
    op. A tensor that is state of the step as well is its own stand-in.

    Attributes:
        args, kwargs: what the function is called with.
        values: the stand-ins for what the step's places hold.
        handles: one per tensor argument.
        pinned: tensor arguments that are state, by position.
        moving: entries at places that move, which are further arguments.
    """

    def __init__(
        self,
        recorder: Recorder,
        call: Call,
        function: Callable[..., Any],
        sources: Sequence[str],
    ) -> None:
        self._recorder = recorder
        self._is_place = False
        self._call = call
        self.handles: list[TensorCore] = []
        self.pinned: dict[int, TensorCore] = {}
        self.moving: list[MovingEntry] = []
        self._entries: dict[tuple[int, str], Any] = {}  # stand-ins, by container and path
        self._sets: defaultdict[int, list[str]] = defaultdict(list)  # paths, by identity of the set
        # Objects of plain data, with their attributes, and what stands for these.
        self._data: dict[int, tuple[Any, dict[str, Any], dict[str, Any]]] = {}
        self._seen: dict[OpenAxis, tuple[int, ...]] = {}
        self._sizes: dict[tuple[int, ...], Any] = {}  # open sizes, by an axis's earlier sizes
        recorder.arguments = call.tensors
        self._tensors, self._floats = iter(call.tensors), itertools.count()
        self._known: dict[int, Any] = {}
        self._arrays: dict[int, LateArray] = {}  # by the identity of the handle
        args, kwargs = call.marked
        names = argument_names(function, args)
        self.args = tuple(self._given(a, name) for a, name in zip(args, names, strict=True))
        self.kwargs = {name: self._given(value, name) for name, value in kwargs.items()}
        self._is_place = True
        read = zip(call.values, sources, strict=True)
        self.values = [self._given(live_text(value), path) for value, path in read]
        self._named = [*zip(names, self.args, strict=True), *self.kwargs.items()]
        self._named += zip(sources, self.values, strict=True)
        self._held: list[tuple[str, Any, dict[Any, Any]]] = []
        self._in_functions: list[tuple[Any, dict[Any, Any]]] = []  # in closures
        self._owners = call.owners()  # while objects have what they were given with

    def _given(self, value: Any, path: str) -> Any:
        """The stand-in for a value; a container that is there twice has one."""
        return map_tree(self._stand_in, value, path, known=self._known, is_whole=True)

    def _stand_in(self, leaf: Any, path: str) -> Any:
        recorder = self._recorder
        if isinstance(leaf, TensorCore):
            return self._handle(self._next_tensor(), path)
        if isinstance(leaf, np.ndarray):
            handle = self._handle(self._next_tensor(), path)
            late = LateArray(recorder.exits, recorder.value_of(handle), tensor=handle)
            return self._arrays.setdefault(id(handle), late)
        if type(leaf) is Kept:
            return leaf.value
        is_number = type(leaf) in (float, LiveArgument) or isinstance(leaf, np.floating)
        is_number |= self._is_place and is_whole(leaf)
        if is_number:
            i = next(self._floats)
            now, name = self._call.floats[i], recorder.unused_text(path)
            found = recorder.live_scalar(name, now, operator.itemgetter(i))
            if type(now) in (*LISTS, str):
                found.lists = frozenset({name})  # which another trace may have exactly
            if type(now) in LISTS:
                items = LateSequence.of_call(recorder, found, name)
                recorder.collector.let_stand(found, items)  # so that it looks for lists
                return items
            return text_of(found) if type(now) is str else found
        if is_set_of_values(leaf):
            self._sets[id(leaf)].append(path)
        marked = data_of(leaf)
        if type(leaf) is MarkedObject:
            leaf, marked = leaf.value, leaf.attributes
        if marked is not None and id(leaf) not in self._data:
            given: dict[str, Any] = {}
            self._data[id(leaf)] = leaf, dict(vars(leaf)), given
            given.update((k, self._given(v, f"{path}.{k}")) for k, v in marked.items())
        return leaf

    def _next_tensor(self) -> TensorCore:
        """The call's next tensor; a container may be another one since the call looked into it."""
        tensor = next(self._tensors, None)
        if tensor is None:
            self._recorder.run_op_by_op("another thread changes its arguments meanwhile")
        return tensor

    def take_entry(self, entry: MovingEntry) -> Any:
        """The stand-in for data at a place that moves; ABSENT where it can't be an argument."""
        place = id(entry.owner), entry.path
        if place in self._entries:
            return self._entries[place]
        value = entry.found(self._call.floats)
        is_looked_at = here() in self._recorder.at_start.looked_at and type(entry) is not Column
        if is_looked_at or not is_data(value):
            return ABSENT
        if type(entry) is Column:
            self._open(value)
        owners = owners_of([("", value)])
        if any(self._is_met(x) for _, x in owners) or any(map(self._is_state, leaves_of(value))):
            return ABSENT
        self._recorder.at_start.taken.add(here())
        new = owners_of([("", value)], self._call.kept | _ids(self._owners))
        self._owners += [owner for _, owner in new]
        self._call.take_one(value)
        self.moving.append(entry)
        given = self._entries[place] = self._given(value, entry.path)
        self._fill([(entry.path, given)])
        return given

    def _open(self, column: np.ndarray) -> None:
        """Begin again with the last axis of a column open, if it isn't known or open yet."""
        axis, known = column.ndim - 1, self._recorder.at_start
        place = axis_of_argument(len(self._call.tensors), axis)
        is_known = not known.may_open or place in known.opened or place in known.closed
        if not is_known and LEAST <= column.shape[axis] <= MOST:
            raise RestartTrace("is given lists of ever other lengths", "opened", [place])

    def _is_met(self, owner: Any) -> bool:
        """Whether it is an object of plain data that the step has found elsewhere."""
        collector = self._recorder.collector
        return data_of(owner) is not None and bool(collector.name_of(owner))

    def _is_state(self, leaf: Any) -> bool:
        """Whether a leaf is a tensor that is state of the step."""
        is_tensor = isinstance(leaf, TensorCore)
        return is_tensor and (
            leaf._storage in self._recorder.at_start.state or leaf._storage in self._recorder.cells
        )

    def lent(self) -> dict[int, TensorCore]:
        """The tensor arguments, by the identities of their handles."""
        pairs = enumerate(zip(self.handles, self._call.tensors, strict=True))
        return {id(x): tensor for i, (x, tensor) in pairs if i not in self.pinned}

    def begin(self) -> None:
        """Enter the stand-ins as arguments, before the function runs."""
        self._fill(self._named)
        held = {id(owner) for _, owner, _ in self._held}
        of_functions = [x for x in self._known.values() if id(x) not in held]
        self._in_functions = [(x, entries_of(x)) for x in of_functions]

    def _fill(self, named: Sequence[tuple[str, Any]]) -> None:
        """Put stand-ins into the attributes of objects of plain data; named: the new arguments."""
        recorder, collector = self._recorder, self._recorder.collector
        for value, _, given in self._data.values():
            if id(vars(value)) not in recorder.dicts:
                vars(value).update(given)
                recorder.dicts[id(vars(value))] = type(value)
        known = _ids(owner for _, owner, _ in self._held)
        for path, owner in owners_of(named, self._call.kept | known):
            recorder.containers[id(owner)] = len(self._held)
            self._held.append((path, owner, entries_of(owner)))
        collector.accept_arguments([*recorder.containers, *recorder.dicts, *self._sets])
        collector.given_sets = self._sets
        collector.given_tensors = self.lent()

    def put_back(self) -> None:
        """Give objects of plain data their own attributes again."""
        for value, attributes, _ in self._data.values():
            vars(value).clear()
            vars(value).update(attributes)

    def cut(self) -> None:
        """Cut the handles off the histories of the arguments."""
        for position, handle in enumerate(self.handles):
            if position not in self.pinned:
                handle._grad_fn = None
                attributes_of(handle).clear()

    def changes(self) -> list[tuple[MutableSource, Any]]:
        """The places that the function changed in containers and objects of arguments: new values.

        Raises: `RestartTrace` where a change must be known from the start.
        """
        found: list[tuple[MutableSource, Any]] = []
        counts: set[str] = set()
        changed: list[int] = []
        has_grown = False
        if any(any(changed_entries("", x, before, 0)) for x, before in self._in_functions):
            know_as_state((self.args, self.kwargs))
            raise RestartTrace("changes what a function that it is given holds")
        for number, (path, owner, before) in enumerate(self._held):
            entries = list(changed_entries(path, owner, before, number))
            if entries:
                changed.append(number)
            for source, was, now in entries:
                if is_whole(was) and isinstance(now, WHOLE) and type(now) is not bool:
                    counts.add(source.path)
                has_grown = has_grown or (source.key == CONTENTS and not isinstance(owner, dict))
                found.append((source, now))
        if self._data and (counts or has_grown):
            know_by_identity(type(value) for value, *_ in self._data.values())
            raise RestartTrace("changes an object that it is given")
        if counts:
            raise RestartTrace(f"counts in {', '.join(sorted(counts))}", "counts", counts)
        if changed:
            self._refuse_shared(changed)
        return found

    def _refuse_shared(self, changed: Sequence[int]) -> None:
        """Begin again where a changed container is known to the step by another name as well."""
        collector = self._recorder.collector
        for number in changed:
            if collector.name_of(self._owners[number]):
                self._let_be_state(number)

    def check_apart(self, bound: Set[int]) -> None:
        """Begin again where an argument was changed as state: its stand-in doesn't show that.

        bound: the identities of the containers and objects that the step has changed elsewhere.
        """
        lists = {x.text for x in self._recorder.live.values() if id(x.now) in bound}
        if lists:
            what = f"changes {', '.join(sorted(lists))} by another name"
            raise RestartTrace(what, "exact", lists)
        for number, owner in enumerate(self._owners if bound else ()):
            if not bound.isdisjoint(identities_of(owner)):
                self._let_be_state(number)

    def _let_be_state(self, number: int) -> NoReturn:
        """Begin again with a container or object as state; what a place holds runs op by op."""
        (path, *_), owner = self._held[number], self._owners[number]
        given = [("", (x, attributes)) for x, attributes, _ in self._data.values()]
        holders = [
            pair[0] for _, pair in given if any(x is owner for _, x in owners_of([("", pair)]))
        ]
        if holders:
            know_by_identity(map(type, holders))
            raise RestartTrace("changes an object that it is given")
        args, kwargs = self._call.given
        given = owners_of([("", x) for x in (*args, *kwargs.values())], self._call.kept)
        if number < len(given):
            raise RestartTrace(f"changes {path} by another name", "kept", {path})
        self._recorder.run_op_by_op(
            f"it changes the {type(owner).__name__} {path} by another name as well\n"
            "hint: use it by one of its names"
        )

    def _handle(self, tensor: TensorCore, path: str) -> TensorCore:
        """A leaf that stands for an argument."""
        position = len(self.handles)
        earlier = self._call.tensors[:position]
        same = next((i for i, other in enumerate(earlier) if other is tensor), None)
        if same is not None:
            handle = self.handles[same]
            if same in self.pinned:
                self.pinned[position] = tensor
        elif tensor._array is None:
            raise TraceError(f"argument {path} belongs to a trace that has ended")
        elif tensor._storage in self._recorder.at_start.state:
            handle = self.pinned[position] = tensor
        else:
            handle = self._new_handle(tensor, tensor._array, position, path)
        self.handles.append(handle)
        self._recorder.positions.setdefault(id(handle), position)
        return handle

    def _new_handle(
        self, tensor: TensorCore, array: np.ndarray, position: int, path: str
    ) -> TensorCore:
        storage = Storage(self._type_of(tensor, position), array)
        cell = self._recorder.add_cell(storage, "arg", position)
        if self._is_place:
            entry = self._recorder.graph.inputs[-1]
            entry.kind, entry.source = "state", path
            cell.value.name = identifier(path)
        else:
            cell.value.name = path.replace("[", "_").replace("]", "").replace("'", "")
        self._recorder.argument_storages.add(tensor._storage)
        handle: Any = _new(storage, storage.root_type, array, ())
        handle.__class__ = type(tensor)  # such as a Parameter
        handle._strides = _strides_of(array, storage)
        handle._spot = tensor._spot
        handle._counter.now = tensor._counter.now
        handle._requires_grad = tensor.requires_grad
        if tensor._requires_grad and tensor._grad_fn is not None:
            handle._grad_fn = ExternalGradFn(handle, tensor)
            self._recorder.has_histories_outside = True
            refusal = refusal_of_writes(tensor)
            handle._guard = None if refusal is None else ViewGuard(refusal, None, 0)
        handle._grad = tensor._grad
        take_hooks(handle, tensor)
        return handle  # type: ignore[no-any-return]

    def _type_of(self, tensor: TensorCore, position: int) -> TensorType:
        """A tensor's type, where sizes are open that differ from call to call.

        Those that were equal in all calls are one, as a guard makes sure of later ones.
        """
        axes = self._call.open_axes.get(position)
        if not axes:
            return tensor._type
        shape: list[Any] = [*tensor._type.shape]
        sizes = self._recorder.sizes
        for place in [axis_of_argument(position, axis) for axis in axes]:
            if place not in self._seen:  # there may be more by now
                self._seen = sizes_seen(self._call.types(), self._recorder.at_start.types)
            seen = self._seen[place]
            if seen not in self._sizes:
                self._sizes[seen] = sizes.add(seen[0]), sizes.origins[-1]
            shape[place[-1]], places = self._sizes[seen]
            places.add(place)
        return tensor._type.with_shape(tuple(shape))


def _strides_of(array: np.ndarray, storage: Storage) -> Strides:
    """An argument's strides; of one that isn't row-major, and of open sizes, those of this call."""
    return storage.strides if array.flags.c_contiguous else element_strides(array)


def _ids(owners: Iterable[Any]) -> set[int]:
    """The identities of what is one object wherever it is, unlike a tuple."""
    return {id(owner) for owner in owners if not isinstance(owner, tuple)}
