"""Places that a step binds anew: attributes, entries of containers, variables, a tensor's memory.

What such a place holds at the end of the step is one more result of it, which each call puts there.
If it held tensors or numbers at the start, they are one more argument, which each call reads there.
With its places as arguments and results the recorded function has no hidden state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lucid.compiler.guards.argument_sources import ArgumentSource
from lucid.compiler.guards.calls import GuardCollector
from lucid.compiler.guards.guard import (
    CONTENTS,
    ContentsGuard,
    EntryGuard,
    Guard,
    identities_of,
    is_number,
    item_at,
)
from lucid.compiler.guards.mutable_sources import (
    AppendEffect,
    ChangingArray,
    DynamicNumber,
    GrowingList,
    Identity,
    MutableSource,
    TensorProperty,
    bound,
    identity_of,
    is_window,
    source_of,
)
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.late import key_of
from lucid.compiler.inputs.objects import data_of, owners_of
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.inputs.signature import Call
from lucid.compiler.results.memory import TracedMemory
from lucid.compiler.results.output_specs import Constant, LateOutput, OutputSpec
from lucid.compiler.results.pytree import BuiltContainer, is_made_key
from lucid.ir.classes import isinstance
from lucid.tensor.core import TensorCore
from lucid.tensor.tree import flatten
from lucid.tensor.write_locks import TRACING, Keys


def restart_to_bind(sources: Sequence[MutableSource]) -> RestartTrace:
    """The restart for places that the step binds: what they hold is an argument from then on."""
    found = {source.identity: source for source in sources}
    bound.update(found)
    text = ", ".join(source.path for source in sources)
    return RestartTrace(f"binds {text}", "sources", found)


def holds_state(value: Any) -> bool:
    """Whether a value is a container or a text, or has tensors, numbers or plain data in it."""
    return isinstance(value, (list, deque, dict, str)) or any(
        isinstance(leaf, (TensorCore, np.ndarray)) or is_number(leaf) or data_of(leaf) is not None
        for leaf in flatten(value)[0]
    )


def inside(known: Collection[MutableSource]) -> frozenset[Identity]:
    """The places in values of other places: such a value is an argument with all that is in it.

    A step that changes an object and then binds the object's place has both as sources. At the next
    call another object is there, so the place in the earlier object isn't the step's any more.
    """
    apart = (DynamicNumber, GrowingList, ChangingArray)
    places = [x for x in known if not isinstance(x, apart)]
    held = [(x, _parts_of(value)) for x in places if holds_state(value := x.found())]

    def is_in(place: MutableSource, others: Collection[tuple[MutableSource, set[int]]]) -> bool:
        return any(place.identity[0] in parts for other, parts in others if other is not place)

    outside = [(x, parts) for x, parts in held if not is_in(x, held)]
    return frozenset(x.identity for x in known if is_in(x, outside))


def _parts_of(value: Any) -> set[int]:
    """The identities of an argument's containers and objects, and of what has their attributes."""
    owners = [owner for _, owner in owners_of([("", value)])]
    return {identity for owner in owners for identity in identities_of(owner)}


@dataclass(slots=True, eq=False)
class _Window:
    """A list of numbers, in a place where each call leaves another one: guards follow it.

    Attributes:
        final: the number of the place among `SideEffects.bound`; key: the place's key.
        lists: the sources whose owner is the list; guards: those that expect the list.
    """

    final: int
    key: Any
    lists: Sequence[MutableSource]
    guards: Sequence[Guard]

    def move(self, found: list[Any]) -> None:
        """Let sources and guards expect the list that a call has left."""
        for source in self.lists:
            source.owner = found
        for guard in self.guards:
            if isinstance(guard, ContentsGuard):
                guard.expected[self.key] = found
            else:
                guard.expected = found


def _standing(known: Collection[MutableSource]) -> list[MutableSource]:
    """Copies of sources; one of a growing list that is bound anew has the list there now.

    If its place holds no list of numbers any more, or is a source itself, a copy of the place.
    """
    found: dict[Identity, MutableSource] = {}
    whole = {x.identity for x in known}
    for source in map(copy, known):  # other programs of the function may follow other containers
        place = source.place if isinstance(source, GrowingList) else None
        if place is not None:
            source.owner, is_whole = place.found(), place.identity in whole
            source = source if is_window(source.owner) and not is_whole else copy(place)
        found.setdefault(source.identity, source)
    return [*found.values()]


class SideEffects:
    """A function with the mutable sources that it binds as further arguments and results.

    Attributes:
        read: the places whose state is an argument.
        bound: the places that get a new value.
        numbers: places of numbers that it only reads, live.
        growing: growing lists, of which it reads what it needs; windows: those of them whose places
            it binds to other lists.
        arrays: changing arrays, which it reads and writes in their memory.
    """

    def __init__(self, function: Callable[..., Any], known: Collection[MutableSource]) -> None:
        self.function = function
        self.read: list[MutableSource] = []
        self.bound: list[MutableSource] = []
        self.numbers: list[DynamicNumber] = []
        self._is_in_arguments = False
        self._known: set[Identity] = set()
        self._before: list[Any] = []
        self._given: Sequence[Any] = ()
        known = _standing(known)
        self.windows: list[_Window] = []
        self.growing = [source for source in known if isinstance(source, GrowingList)]
        self.arrays = [source for source in known if isinstance(source, ChangingArray)]
        lists = {
            id(source.owner): source
            for source in known
            if source.key is CONTENTS and isinstance(source.owner, (list, deque))
        }
        for growing in self.growing:
            growing.keys = set()
        for source in known:
            whole = lists.get(id(source.owner), source)
            grows = isinstance(whole, GrowingList)
            is_read_with_it = whole is not source and (not grows or is_number(source.found()))
            if isinstance(source, (GrowingList, ChangingArray)) or is_read_with_it:
                continue
            if isinstance(source, DynamicNumber):
                if is_number(source.found()):
                    self.numbers.append(source)
                continue
            self._known.add(source.identity)
            value = source.found()
            if holds_state(value):
                if isinstance(whole, GrowingList):
                    whole.keys.add(source.key)
                self.read.append(source)
                self._before.append(value)

    @property
    def is_empty(self) -> bool:
        return not self.read and not self.bound

    @property
    def unguarded(self) -> frozenset[Identity]:
        """The places that need no guards, since the step reads them at each call."""
        found = (*self.read, *self.numbers, *self.growing, *self.arrays)
        return frozenset(source.identity for source in found)

    @property
    def sources(self) -> list[MutableSource]:
        """All places that it reads at each call, or binds."""
        return [*self.read, *self.bound, *self.numbers, *self.growing, *self.arrays]

    @property
    def keeps_guards(self) -> bool:
        """Whether binding the places leaves what is guarded as it is."""
        moved = {window.final for window in self.windows}
        return all(
            number in moved or source.identity in self.unguarded or isinstance(source, AppendEffect)
            for number, source in enumerate(self.bound)
        )

    @property
    def claims(self) -> Keys:
        """Claims against other threads: the owners of the places, and tracing.

        A trace would have stand-ins in places.
        """
        sources = (*self.read, *self.bound, *self.growing, *self.arrays)
        moving = [source for window in self.windows for source in window.lists]
        owners = {x.identity[0] for x in sources if not _is_given(x) and x not in moving}
        return frozenset({TRACING, *owners})

    @property
    def moved(self) -> list[TensorCore]:
        """Tensors whose `.data` it finds to be other memory in other calls."""
        data = [x for x in self.read if isinstance(x, TensorProperty) and x.key == "data"]
        return [x.owner for x in data if x.position < 0]

    @property
    def bound_in_arguments(self) -> set[int]:
        """The numbers of the containers and objects among the arguments that it changes."""
        return {source.number for source in self.bound if isinstance(source, ArgumentSource)}

    @property
    def bound_elsewhere(self) -> set[int]:
        """The identities of the containers and objects outside of arguments that it changes."""
        return {source.identity[0] for source in self.bound if not _is_given(source)}

    def values(self) -> list[Any]:
        """What the places hold now."""
        return [source.found() for source in self.read]

    # ------------------------------------------------------------------ while tracing

    def enter(self, values: Sequence[Any], recorder: TracedMemory) -> None:
        """Put stand-ins into the places."""
        for number in self.numbers:
            number.enter(recorder)
        self._given = values  # before the first is put: an interrupt has them put back
        for source, value, before in zip(self.read, values, self._before, strict=True):
            source.put(value)
            if is_live(value):
                recorder.aside.append((source, value, before))

    def leave(
        self,
        collector: GuardCollector,
        recorder: TracedMemory,
        of_arguments: Sequence[tuple[MutableSource, Any]],
    ) -> list[Any]:
        """Find the places that were bound, put everything back, and return their final values.

        of_arguments: places in arguments that were changed, with their final values.

        Raises: `RestartTrace`.
        """
        bound_numbers = [number for number in self.numbers if not number.leave()]
        given = zip(self.read, self._given, strict=True)
        self.bound = [source for source, value in given if not source.holds(value)]
        known = {source.identity for source in self.read}
        of_tensors = [pair for pair in _set_properties(recorder) if pair[0].identity not in known]
        changed = [*collector.changes(), *of_tensors]
        added = [AppendEffect(x.path, x.owner, x.done) for x in self.growing if x.done]
        self.bound += added
        self.bound += [source for source, _ in changed]
        finals = [source.found() for source in self.bound]
        for source in self.read:
            if isinstance(source, TensorProperty) and source.key == "data":
                recorder.note_end(source.owner)
        recorder.restore_properties()
        self.put_back()
        collector.put_back()
        for source in self.bound:
            if is_live(source.key):
                recorder.run_op_by_op(
                    f"it keeps something by a number that each call has for itself, {source.path}"
                )
            source.key = key_of(source.key)
            if is_made_key(source.key, collector.was_there):
                recorder.run_op_by_op(f"it makes a key of a dict, a {type(source.key).__name__}")
        if bound_numbers:  # they are state of the step after all
            raise restart_to_bind([source_of(number) for number in bound_numbers])
        self._take_up(changed, collector, recorder)
        self._is_in_arguments = bool(of_arguments)
        self.bound += [source for source, _ in of_arguments]
        finals += [value for _, value in of_arguments]
        return finals

    def _take_up(
        self,
        changed: list[tuple[MutableSource, Any]],
        collector: GuardCollector,
        recorder: TracedMemory,
    ) -> None:
        """Raise `RestartTrace` for bound places whose contents must be arguments of the trace.

        Places in state that the trace has made, as an optimizer's first step does, give it up: the
        next trace can't find them at its start.
        """
        standing = {x.place.identity for x in self.growing if x.place is not None}
        new: list[MutableSource] = [
            source
            for source, before in changed
            if source.identity not in self._known
            and holds_state(before)
            and not isinstance(source, AppendEffect)
            and not _is_given(source)
            and source.identity not in standing
            and collector.was_read(source)
        ]
        entries = [(x, was) for x, was in changed if x in new and x.key is not CONTENTS]
        shown = [x.owner for x in self.growing if x.place is not None] + [x for _, x in entries]
        for source, before in entries:
            if is_window(before) and sum(x is before for x in shown) == 1:
                new[new.index(source)] = GrowingList(source.path, before, source)
        places = [x.place for x in self.growing if any(x.owner is was for _, was in entries)]
        new += [x for x in places if x is not None]  # which show one list that others show, too
        for source, _ in entries:
            if collector.has_made(source.owner):
                recorder.run_op_by_op(f"it binds what its first call makes, {source.path}")
        if new:
            raise restart_to_bind(new)

    def note_windows(
        self, guards: Sequence[Guard], finals: Sequence[OutputSpec], leaves: Sequence[OutputSpec]
    ) -> None:
        """Find the windows: growing lists that each call binds anew, at no other place.

        Other lists that are bound anew are found again by `follow`, as any container.
        """
        places = {source.identity: number for number, source in enumerate(self.bound)}
        kept = {id(x.value) for x in leaves if type(x) is Constant}
        for growing in self.growing:
            place, owner = growing.place, growing.owner
            number = None if place is None else places.get(place.identity)
            if place is None or number is None or id(owner) in kept:
                continue
            final, showing = finals[number], [x for x in guards if _shows(x, owner)]
            is_made = type(final) is LateOutput or type(final) is BuiltContainer
            if not is_made or finals.count(final) > 1:
                continue
            if not all(_is_of_place(x, place, owner) for x in showing):
                continue
            lists = [growing, *(x for x in self.bound if x.owner is owner)]
            self.windows.append(_Window(number, place.key, lists, showing))
            for guard in showing:
                guard.moves = True

    def put_back(self) -> None:
        """Take the stand-ins out of the places again."""
        for number in self.numbers:
            number.leave()
        if self._given:
            for source, value in zip(self.read, self._before, strict=True):
                source.put(value)
        self._given = ()

    def forget(self) -> None:
        """Let go of what the places held while the step was traced."""
        self._before = []
        for growing in self.growing:
            growing.done = []
        for source in self.bound:
            if _is_given(source):
                source.owner = None
            elif isinstance(source, AppendEffect):
                source.done = []

    # ------------------------------------------------------------------ calling

    def deliver(self, finals: Sequence[Any], call: Call, appended: list[None]) -> None:
        """Bind the places after a call; one that was interrupted can be done again.

        appended: one None for each addition to a list that was made: a single call of C adds and
            notes that, so no addition is made twice.
        """
        if self._is_in_arguments:
            call.owners()  # before any of them changes
        additions: list[partial[None]] = []
        for source, value in zip(self.bound, finals, strict=True):
            if isinstance(source, AppendEffect):
                additions += source.additions(value)
            else:
                source.bind(value, call)
        appended.extend(map(partial.__call__, additions[len(appended) :]))
        for window in self.windows:  # last, so that what is added may be done again
            if type(finals[window.final]) is list:
                window.move(finals[window.final])


def _shows(guard: Guard, thing: object) -> bool:
    """Whether a guard looks into an object, or compares it by identity."""
    return any(x is thing for x in (*guard.looked_into(), *guard.shown()))


def _is_of_place(guard: Guard, place: MutableSource, found: Any) -> bool:
    """Whether a guard is of a place or its container, and expects a list there and nowhere else."""
    if isinstance(guard, ContentsGuard):
        is_there = guard.owner is place.owner and item_at(guard.expected, place.key) is found
        return is_there and sum(x is found for x in guard.shown()) == 1
    return isinstance(guard, EntryGuard) and identity_of(guard.owner, guard.key) == place.identity


def _is_given(source: MutableSource) -> bool:
    """Whether a source is in an argument, or a property of one, and so another one in each call."""
    return isinstance(source, ArgumentSource) or (
        isinstance(source, TensorProperty) and source.position >= 0
    )


def _set_properties(recorder: TracedMemory) -> list[tuple[MutableSource, Any]]:
    """The flags and the memory of tensors that the step set, with what they were."""
    collector = recorder.collector
    names = {id(tensor): path for path, tensor in collector.tensors()}
    found: list[tuple[MutableSource, Any]] = []
    for (_, name), (tensor, noted) in recorder.properties.items():
        before = True if name == "grad_fn" else noted  # whether there was one
        path = f"{names.get(id(tensor), 'a tensor')}.{name}"
        position = recorder.positions.get(id(tensor), -1)
        source = TensorProperty(path, tensor, name, position)
        if not source.holds(before):
            found.append((source, before))
    return found
