"""Places that Python binds: entries, attributes, variables, and the properties of a tensor."""

from __future__ import annotations

import functools
import itertools
import operator
import weakref
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from lucid.compiler.guards.guard import (
    ABSENT,
    CONTENTS,
    AnswerGuard,
    ArrayGuard,
    Attributes,
    ContentsGuard,
    EntryGuard,
    FieldGuard,
    Guard,
    TensorGuard,
    has_kept_its_order,
    identity_of_key,
    is_number,
    item_at,
    put_at,
    size_of,
)
from lucid.compiler.inputs.live_numbers import SymNumbers
from lucid.compiler.inputs.objects import data_of, is_same
from lucid.compiler.inputs.scalars import SymScalar, is_live
from lucid.compiler.inputs.signature import Call
from lucid.ir.classes import isinstance
from lucid.ir.types import has_dtype
from lucid.tensor.context import context, epoch
from lucid.tensor.core import TensorCore
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import children_of
from lucid.tensor.writing import assign_memory

ELEMENTS = "array"
Identity = tuple[int, object]
bound: set[Identity] = set()  # places that some step binds; those of dead owners mean nothing


class MutableSource:
    """An entry of a container, an attribute, a variable, or all entries: what Python can bind.

    Attributes:
        path: how the user gets at it.
        owner, key: where it is, for `item_at`.
        in_module: whether changing it moves the epoch.
    """

    __slots__ = ("in_module", "key", "owner", "path")

    def __init__(self, path: str, owner: Any, key: Any, in_module: bool = False) -> None:
        self.path = path
        self.owner = owner
        self.key = key
        self.in_module = in_module

    @property
    def identity(self) -> Identity:
        return identity_of(self.owner, self.key)

    def found(self) -> Any:
        """What is there now; ABSENT: nothing."""
        return item_at(self.owner, self.key)

    def put(self, value: Any) -> None:
        """Bind the place, unnoticed by other programs."""
        put_at(self.owner, self.key, value)

    def bind(self, value: Any, call: Call) -> None:
        """Bind the place at the end of a call."""
        if self.in_module and self.found() is value:
            return
        self.put(value)
        if self.in_module:
            epoch.count += 1

    def holds(self, value: Any) -> bool:
        """Whether it is still bound to what was put there."""
        now = self.found()
        if self.key is not CONTENTS:
            return now is value
        if isinstance(now, frozenset):
            return bool(now == value)
        if isinstance(now, dict):
            now, value = [*now, *now.values()], [*value, *value.values()]
        return len(now) == len(value) and all(map(operator.is_, now, value))


class AppendEffect(MutableSource):
    """Additions to a list, deque or set that the step doesn't look at: each call adds its own.

    Attributes:
        done: the names of the methods that were called, and their arguments.
    """

    __slots__ = ("done",)

    def __init__(self, path: str, owner: Any, done: list[tuple[str, tuple[Any, ...]]]) -> None:
        super().__init__(path, owner, CONTENTS)
        self.done = done

    def found(self) -> Any:
        return self.done

    def additions(
        self, value: Sequence[tuple[str, tuple[Any, ...]]]
    ) -> list[functools.partial[None]]:
        """The calls that make the additions with the values of a call."""
        kind = next(kind for kind in (list, set, deque) if isinstance(self.owner, kind))
        return [functools.partial(getattr(kind, name), self.owner, *args) for name, args in value]


class GrowingList(MutableSource):
    """A list or deque that grows, and at which the step looks: as far as it needs, at each call.

    Attributes:
        place: where the step binds another list, which the next call finds; None: nowhere.
        keys: the entries that are sources of their own.
        done: the changes that the running trace has made, as those of an `AppendEffect`.
        asked: for a class, the list whose entries were all of it, and how many these were.
    """

    __slots__ = ("asked", "done", "keys", "place")

    def __init__(self, path: str, owner: Any, place: MutableSource | None = None) -> None:
        super().__init__(path, owner, CONTENTS)
        self.place = place
        self.keys: set[Any] = set()
        self.asked: dict[type, tuple[Any, int]] = {}
        self.done: list[tuple[str, tuple[Any, ...]]] = []


def follow(place: Any, images: Any) -> None:
    """Let a place be in the image of its container from now on."""
    place.owner = images.of(place.owner)
    if isinstance(place, GrowingList) and place.place is not None:
        place.place.owner = images.of(place.place.owner)


def is_window(value: object) -> bool:
    """Whether it is a list of numbers, such as the last losses, which steps bind anew."""
    return type(value) is list and all(map(is_number, value))


class ChangingArray(MutableSource):
    """The elements of a NumPy array that the step writes, or that change between its calls.

    Each call reads them where they lie, and writes them there.
    """

    __slots__ = ()

    def __init__(self, path: str, array: np.ndarray) -> None:
        super().__init__(path, array, ELEMENTS)


def can_be_read_live(array: np.ndarray) -> bool:
    """Whether the graph can have an array's elements."""
    return has_dtype(array) and not any(stride % array.itemsize for stride in array.strides)


class ListStandIn:
    """A stand-in for a list whose length calls differ in; it tells itself what is read of it."""

    __slots__ = ()


def stands_for_list(value: object) -> bool:
    """Whether a value is such a stand-in; `isinstance` takes it for a list."""
    return issubclass(type(value), ListStandIn)


class TensorProperty(MutableSource):
    """A property of a tensor.

    Attributes:
        key: its name: `data`, the memory, which `tensor.data = value` assigns; `requires_grad`, of
            a leaf; `grad_fn`, whether there is a history, which `tensor.detach_()` takes away.
        position: of an argument, its number; else -1.
    """

    __slots__ = ("_data", "position")

    def __init__(self, path: str, tensor: TensorCore, name: str, position: int = -1) -> None:
        super().__init__(path, tensor, name)
        self.position = position
        self._data: weakref.ref[TensorCore] | None = None

    def found(self) -> Any:
        if self.key == "data":
            return self._memory()
        if self.key == "requires_grad":
            return bool(self.owner._requires_grad)
        return self.owner._grad_fn is not None

    def _memory(self) -> TensorCore:
        """A tensor on the memory, the same one as long as the memory is."""
        data = None if self._data is None else self._data()
        if data is None or context.recorder is not None or not self.holds(data):
            data = self.owner.data
            self._data = weakref.ref(data)
        return data

    def put(self, value: Any) -> None:
        self._give(self.owner, value)

    def bind(self, value: Any, call: Call) -> None:
        self._give(self.owner if self.position < 0 else call.tensors[self.position], value)
        epoch.count += 1

    def _give(self, tensor: TensorCore, value: Any) -> None:
        if self.key == "data":
            assign_memory(tensor, value)
        elif self.key == "requires_grad":
            tensor._requires_grad = value
        else:
            assert not value
            tensor._grad_fn, tensor._output_nr = None, 0

    def holds(self, value: Any) -> bool:
        if self.key != "data":
            return super().holds(value)
        tensor = self.owner
        return tensor._storage is value._storage and bool(tensor._chain == value._chain)


class DynamicNumber(MutableSource):
    """A number that the step only reads, and that has changed between calls.

    While the step is traced, a live scalar stands there. `source_of` gives the place as one that
    the step binds.
    """

    __slots__ = ("_before", "_stand_in")

    def __init__(self, source: MutableSource) -> None:
        super().__init__(source.path, source.owner, source.key, source.in_module)
        self._before: Any = ABSENT
        self._stand_in: SymScalar | None = None

    def enter(self, recorder: SymNumbers) -> None:
        """Put the live scalar there."""
        before = self.found()
        if is_live(before):  # the same entry, by a key that is equal to another one now
            return
        kind = type(before)
        text = recorder.unused_text(self.path)
        recorder.guard_value(f"type({text})", lambda: type(self.found()), kind)
        scalar = recorder.live_scalar(text, before, lambda call: self.found(), self.found)
        self._before, self._stand_in = before, scalar
        self.put(scalar)
        recorder.aside.append((self, scalar, before))

    def leave(self) -> bool:
        """Put the number back; whether its stand-in was still there.

        It can be done again after an interrupt.
        """
        if self._stand_in is None:
            return True
        is_there = self.found() is self._stand_in
        self.put(self._before)
        self._stand_in = None
        return is_there


def source_of(seen: EntryGuard | DynamicNumber) -> MutableSource:
    """The place that a guard looks at, or that holds a number."""
    in_module = seen.gated if isinstance(seen, EntryGuard) else seen.in_module
    return MutableSource(seen.path, seen.owner, seen.key, in_module)


def live_sources(guards: Sequence[Iterable[Guard]]) -> Iterator[MutableSource]:
    """The guarded places of a function's programs that should rather be read at each call.

    These are places of tensors and arrays that have changed, and of numbers that some step binds or
    that have changed twice: they will change again, and cause a trace each time.

    guards: the guards of each of the programs.
    """
    before: defaultdict[Identity, set[str]] = defaultdict(set)
    for number, of_program in enumerate(guards):
        for guard in itertools.chain.from_iterable(map(_of_entries, of_program)):
            source = _grown(guard) or _moved(guard)
            if source is None:
                continue
            expected, is_array = guard.expected, isinstance(source, ChangingArray)
            is_state = isinstance(source, GrowingList) or source.identity in bound
            if not is_array and (is_state or not is_number(expected)):
                yield source
                continue
            before[source.identity].add(str(number) if is_array else repr(expected))
            if len(before[source.identity]) > 1 or type(expected) is float:
                yield source if is_array else DynamicNumber(source)


def _of_entries(guard: Guard) -> Sequence[Guard]:
    """A container's guard, or guards of its changed entries if only entries were set."""
    if not isinstance(guard, ContentsGuard) or isinstance(guard.owner, set) or guard.was_handed:
        return [guard]
    owner, before, holder = guard.owner, guard.expected, guard.holder
    if size_of(owner) != len(before) or not has_kept_its_order(owner, before):
        return [guard]
    text = "{}[{!r}]" if holder is None else "{}.{}"
    return [
        EntryGuard(
            text.format(guard.path, key), value, owner, key, holder=holder, gated=guard.gated
        )
        for key, value in guard.changed()
    ]


def _grown(guard: Guard) -> GrowingList | None:
    """The list that a guard looks at, if it has another length now.

    If more than its length was read, it must be a list of numbers.
    """
    if isinstance(guard, AnswerGuard) and guard.ask is len:
        path, owner, before = guard.path[4:-1], guard.args[0], guard.expected
    elif isinstance(guard, ContentsGuard) and all(map(is_number, guard.owner)):
        path, owner, before = guard.path, guard.owner, len(guard.expected)
    else:
        return None
    is_other = type(owner) in (list, deque) and len(owner) != before
    return GrowingList(path, owner) if is_other else None


def _moved(guard: Guard) -> MutableSource | None:
    """The place that a guard looks at, if it holds another value of the same kind now."""
    if isinstance(guard, TensorGuard):
        is_other, path = guard.has_other_memory(), f"{guard.path}.data"
        return TensorProperty(path, guard.tensor, "data") if is_other else None
    if isinstance(guard, ArrayGuard):
        return None if guard.source is None or guard.holds() else ChangingArray(*guard.source)
    if not isinstance(guard, EntryGuard) or isinstance(guard, FieldGuard):
        return None
    if guard.holds() or not _may_move(guard.expected, guard.found()):
        return None
    is_followed = not isinstance(guard.expected, tuple) and _parts(guard.expected) is not None
    return None if is_followed else source_of(guard)


def _may_move(before: Any, now: Any) -> bool:
    """Whether two values have one structure, and differ in tensors, numbers and arrays at most."""
    if type(before) is not type(now):
        return False
    if type(now) is np.ndarray:
        return has_dtype(now) and (before.dtype, before.shape) == (now.dtype, now.shape)
    was, parts = _parts(before), _parts(now)
    if was is None or parts is None:
        return type(now) is Tensor or is_number(now)
    if was.keys() != parts.keys():
        return False
    pairs = [(was[key], part) for key, part in parts.items()]
    if any(one is part and isinstance(part, (list, deque, dict)) for one, part in pairs):
        return False  # a container that stays may grow
    moved = [pair for pair in pairs if not is_same(*pair)]
    return any(_may_move(*pair) for pair in pairs) and all(_may_move(*pair) for pair in moved)


def _parts(value: Any) -> dict[Any, Any] | None:
    """What is in a container or an object of plain data; None for all else."""
    children = children_of(value)
    return data_of(value) if children is None else children


def identity_of(owner: Any, key: Any) -> Identity:
    """What tells places apart."""
    if isinstance(owner, Attributes):
        return id(owner.of), ("attribute", key)
    return id(owner), identity_of_key(key)
