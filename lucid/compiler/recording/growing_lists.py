"""Lists and deques that grow: a history of losses, a window of rewards, at which the step looks.

A step is not specialized on how long such a list is. Its length is a live number; an entry is found
from that end from which the user's code counts; and what `sum`, `min` or NumPy make of its numbers
is a formula, of the list that a call finds and of what the step has added by then. Where Python
needs more than that, such as each entry in turn, the step is specialized on the length after all.
"""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lucid.compiler.guards.collector import PLAIN
from lucid.compiler.guards.guard import is_number, item_at
from lucid.compiler.guards.mutable_sources import (
    GrowingList,
    ListStandIn,
    MutableSource,
    stands_for_list,
)
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.late import Applied, Bases, Late, bases_of, formula_of, now_of
from lucid.compiler.inputs.scalars import ONLY_COMPUTE, Formula, is_known_before, is_live, seen
from lucid.compiler.recording.iterables import LateIterable
from lucid.compiler.recording.late_arrays import LateArray, of_numpy
from lucid.compiler.recording.late_numbers import LateScalar, LateSize, number_by
from lucid.compiler.results.side_effects import holds_state, restart_to_bind
from lucid.functions.from_data import as_tensor, tensor
from lucid.functions.joining import cat, stack
from lucid.functions.reduction import sum as sum_along
from lucid.ir.classes import isinstance
from lucid.ir.extents import LEAST, MOST
from lucid.ir.location import here
from lucid.ir.types import i64
from lucid.ir.whose_code import PRINT
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import flatten

if TYPE_CHECKING:
    from lucid.compiler.guards.calls import GuardCollector
    from lucid.compiler.recording.recorder import Recorder

# Functions of all entries whose result is a number of the same kind for two entries or more.
REDUCTIONS: frozenset[Any] = ONLY_COMPUTE | {
    *(sum, min, max, statistics.mean, statistics.fmean, statistics.median, statistics.stdev),
    *(statistics.pstdev, statistics.variance, statistics.pvariance),
}
_TENSORS = frozenset({tensor, as_tensor})
_MAKE_ARRAYS, _OF_NUMPY = (np.array, np.asarray), (np.ufunc, type(np.sum))
_SHOWS = frozenset({str, repr, format, PRINT})
_ARRAY = "np.array"  # what calls are named that make one
_SHORT = 4  # entries of a part that is a list of live numbers, and no formula
_LAST = 256  # entries of a list that each call asks whether they are numbers
_Place = tuple[int | None, Any]  # an entry: where it was at the start, from the end; and itself


def _writer(write: Callable[..., str]) -> Any:
    """The method of a `ListPart` by which `write` asks for its text."""

    def written(part: Any, *how: str) -> str:
        if part.is_formula():
            text: str = part.view.recorder.written(part, write, *how)
            return text
        return write(part.listed(), *how)

    return written


class ListPart(ListStandIn, Late):
    """A part of a growing list, as the step has cut it out; the list itself is one as well.

    Attributes:
        is_made: whether it is one that the step has made, not a list from outside.
        now: the entries in the call that is traced.
        places: those, and where each was at the start.
        text: how the user got at it.
        is_from_end: whether entries are where they are, as seen from its end.
    """

    __slots__ = ("_listed", "_size", "bases", "formula", "is_from_end", "places", "text", "view")

    is_made = True

    def __init__(
        self, of: Any, places: list[_Place], size: Any, formula: Formula, text: str
    ) -> None:
        self.view: Any = of.view
        self.places = places
        self._size: Any = size
        self.formula = formula
        self.text = text
        self.bases = of.bases
        self.is_from_end = True
        self._listed: list[Any] | None = None  # from then on the step may change it

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return list

    @property
    def size(self) -> Any:
        """How many entries it has: an int, or a live number."""
        return self._size if self._listed is None else len(self._listed)

    @property
    def now(self) -> Any:
        entries = (entry for _, entry in self.places) if self._listed is None else self._listed
        return [*map(now_of, entries)]

    def listed(self) -> list[Any]:
        if self._listed is None:
            seen(self.size if self.is_from_end else self.view.size_at_start)
            self._listed = self.view.found(self.places)
        return self._listed

    def _look(self) -> list[Any]:
        return self.listed()

    def is_of_numbers(self) -> bool:
        """Whether all entries are numbers of one kind, by now and in each call."""
        kinds = {entry.__class__ for _, entry in self.places}
        kind = next(iter(kinds)) if len(kinds) == 1 else object
        is_number = issubclass(kind, (int, float, np.floating)) and kind is not bool
        return self._listed is None and is_number and self.view.are_all(kind)

    def has_plain_numbers(self) -> bool:
        """Whether all are ints, or floats, as an array gives them back."""
        kinds = {type(now_of(x)) for _, x in self.places}
        return kinds <= {int, float} and self.is_of_numbers()

    def is_array(self) -> bool:
        """Whether an array has them as they are."""
        whole = [x for _, x in self.places if x.__class__ is int]
        return self.has_plain_numbers() and all(map(_fits, whole))

    def is_formula(self) -> bool:
        """Whether a text of it is known after each call, and not before."""
        return bool(self.bases) and self.is_of_numbers()

    def applied(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The number that a function gives of it; None where that is no number."""
        leaves = [*args, *kwargs.values()]
        if any(isinstance(x, (*PLAIN, tuple, np.ndarray)) for x in leaves if x is not self):
            return None
        if not self.is_of_numbers():
            return None
        if not self.size >= 2:
            seen(self.size)
        inside = [x.text if stands_for_list(x) or is_live(x) else repr(x) for x in leaves]
        text = f"{function.__module__}.{function.__name__}({', '.join(inside)})"
        return self._number(text, function, args, kwargs)

    def _number(
        self, text: str, function: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None
    ) -> Any:
        recorder = self.view.recorder
        return number_by(function, args, kwargs or {}, text, recorder.exits, recorder)

    def as_tensor(self) -> Tensor:
        """What `tensor` makes of it, in the dtype of its numbers."""
        open_or_begin(self.view.recorder, self, _ARRAY)
        found: LateArray = of_numpy(self.view.recorder.exits, _ARRAY, np.array, (self,), {})
        return found.as_tensor()

    def rows(self) -> NumberRows | None:
        is_alike = here() not in self.view.recorder.at_start.looked_at
        is_known = is_alike and is_known_before(self.size) and self.is_array()
        opens = is_known and open_or_begin(self.view.recorder, self, _ARRAY)
        return NumberRows(self) if opens else None

    def __len__(self) -> int:
        return int(seen(self.size))

    def __bool__(self) -> bool:
        return bool(self.size != 0)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.listed())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.part(key)
        found = self.at(key)
        if found is not None:
            return found
        at = self.view.collector.index_of(seen(key))
        is_known = at is not None and self.is_from_end and self._listed is None
        if is_known and -len(self.places) <= at < 0:
            if is_live(self.size) and not self.size >= -at:
                return None  # which the answer above rules out
            return self.view.found([self.places[at]])[0]
        if at is not None and self.has_at(at) and self.has_plain_numbers():
            return self._number(f"{self.text}[{at}]", operator.getitem, (self, at))
        return self.listed()[key]

    def at(self, key: Any) -> Any:
        """The number at a place that each call has; None: there is none, or no number."""
        is_place = is_live(key) and key.kind is int and key >= 0 and self.has_at(key)
        if not is_place or not self.has_plain_numbers():
            return None
        return self._number(f"{self.text}[{key.text}]", operator.getitem, (self, key))

    def has_at(self, at: Any) -> bool:
        """Whether there is an entry at a place, in each call."""
        return self._listed is None and bool(self.size > at if at >= 0 else self.size >= -at)

    def part(self, key: slice) -> Any:
        """A slice: a list of its entries where they are few, or no numbers."""
        if self._listed is not None:
            return self._listed[key]
        start, stop, step = bounds = [
            x._look() if type(x) is LateScalar else x for x in (key.start, key.stop, key.step)
        ]
        places = self.places[slice(*map(now_of, bounds))]
        parts = f"{'' if start is None else start}:{'' if stop is None else stop}"
        size, text = self.size, f"{self.text}[{parts}]"
        if is_live(size):
            size = size.applied(f"len({text})", _size_of_slice, (size, *bounds))
        is_tail = type(start) is int and start < 0 and stop is step is None
        if is_tail and self is self.view:
            content = self.view.tail_of(start)
        else:
            content = Applied(_cut, (self, *bounds)).formula
        found = ListPart(self, places, size, content, text)
        found.is_from_end = self.is_from_end and step in (None, 1)
        found.is_from_end &= stop is None or (type(stop) is int and stop < 0)
        found.bases = self.bases | bases_of(bounds)
        is_short = is_tail and -start <= _SHORT
        return found.listed() if is_short or not found.is_of_numbers() else found

    def __add__(self, others: Any) -> Any:
        return self._joined(others, behind=True)

    def __radd__(self, others: Any) -> Any:
        return self._joined(others, behind=False)

    def _joined(self, others: Any, *, behind: bool) -> Any:
        """A list of its entries and others."""
        if isinstance(others, PLAIN) and not stands_for_list(others):
            self.view.collector.iterate(others)
        others = _as_list(others)
        found = self._with(others, behind=behind) if type(others) is list else None
        if found is not None:
            return found
        listed = self.listed()
        return listed + others if behind else others + listed

    def _with(self, new: list[Any], *, behind: bool = True) -> ListPart | None:
        """A part of its entries and some of the step's own; None: these aren't all numbers."""
        kind: type = self.__class__
        if self._listed is not None or kind is not list:
            return None
        own: list[_Place] = [(None, x) for x in new]
        places = [*self.places, *own] if behind else [*own, *self.places]
        parts = (self, _tree(new)) if behind else (_tree(new), self)
        text = f"{self.text}, and {len(new)} more"
        found = ListPart(
            self, places, self.size + len(new), Applied(operator.add, parts).formula, text
        )
        found.is_from_end = self.is_from_end
        found.bases = self.bases | bases_of(new)
        return found if new and found.is_of_numbers() else None

    def append(self, value: Any) -> None:
        """Add an entry."""
        self.extend([value])

    def extend(self, values: Any) -> None:
        """Add entries, each of which the step has by now."""
        if isinstance(values, PLAIN) and not stands_for_list(values):
            self.view.collector.iterate(values)
        loops, new = self.view.recorder.loops, [*values]
        found = None if loops.frames or loops.looks else self._with(new)
        if found is None:
            self.listed().extend(new)
            return
        self.places, self._size, self.text = found.places, found.size, found.text
        self.formula, self.bases = found.formula, found.bases

    def __iadd__(self, values: Any) -> Any:
        self.extend(values)
        return self

    __str__, __repr__, __format__ = _writer(str), _writer(repr), _writer(format)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.listed(), name)


def open_or_begin(recorder: Recorder, part: ListPart, name: str) -> bool:
    """Whether an array of the entries of a part has an open size; if it may have, begins again.

    name: of the call that makes it.
    """
    known, line = recorder.at_start, here()
    place = name, line and (line.file, line.line), 0, 0
    is_size = is_live(part.size) and LEAST <= len(part.places) <= MOST
    if is_size and known.may_open and place not in known.opened and place not in known.closed:
        raise RestartTrace("goes over a list of ever other lengths", "opened", [place])
    return is_size and place in known.opened


class NumberRows(LateIterable):
    """The numbers of a part, for a loop to go over."""

    __slots__ = ("_part", "_whole")

    kind = list

    def __init__(self, part: ListPart) -> None:
        self._part = part
        self._whole: Tensor | None = None
        exits = part.view.recorder.exits
        size = LateSize.known(part.size, lambda: self._rows()._type.shape[0], exits)
        super().__init__(list, (part,), size)

    def _rows(self) -> Any:
        if self._whole is None:
            self._whole = self._part.as_tensor()
        return self._whole

    def at(self, number: Any) -> Any:
        return self._rows()[number].item()

    def backwards(self) -> LateIterable | None:
        return self._part.part(slice(None, None, -1)).rows()  # type: ignore[no-any-return]

    def rest(self, first: int, end: int) -> Iterable[Any]:
        if is_live(self.length):  # Python's rounds: the list has its entries for these
            raise RestartTrace("goes over a list by rounds that differ", "looked_at", [here()])
        return super().rest(first, end)


class SortedPart(ListPart):
    """The numbers of a part in their order, each of which is found by its place."""

    __slots__ = ("_now", "_places")

    def __init__(self, of: ListPart, kwargs: Mapping[str, Any]) -> None:
        self._now: list[Any] = sorted(of.now, **kwargs)
        formula = Applied(sorted, (of,), kwargs).formula
        super().__init__(of, [], of.size, formula, f"sorted({of.text})")
        self._places: list[_Place] | None = None
        self.is_from_end = False

    @property
    def now(self) -> Any:
        return [*self._now] if self._places is None else super().now

    @property
    def places(self) -> list[_Place]:
        if self._places is None:
            numbers = [f"{self.text}[{i}]" for i in range(len(self._now))]
            get = operator.getitem
            found = [self._number(text, get, (self, i)) for i, text in enumerate(numbers)]
            self._places = [(None, x) for x in found]
        return self._places

    @places.setter
    def places(self, places: list[_Place]) -> None:
        self._places = places


class GrowingView(ListPart):
    """Stands for one growing list while a step is traced; the list itself isn't touched.

    Attributes:
        places: its entries by now.
        size_at_start: its size when the step began.
    """

    is_made = False

    def __init__(self, source: GrowingList, recorder: Recorder, collector: GuardCollector) -> None:
        self.view = self
        self.source = source
        self.owner = owner = source.owner
        self.recorder = recorder
        self.collector = collector
        source.done = []
        self._count = count = len(owner)
        self.places = [(i - count, x) for i, x in enumerate(owner)]
        text = recorder.unused_text(size_text := f"len({source.path})")
        self._name = source.path + text.removeprefix(size_text)  # there may be others by this path

        def size() -> int:  # of the list that is there in a call
            return len(source.owner)

        self._size = self.size_at_start = recorder.live_scalar(text, count, lambda _: size(), size)
        self.is_from_end = True
        self._listed = None
        self._added = 0  # entries at the end among which are all that the step has put there
        self._taken: int | None = 0  # entries at the start that are gone; None: unknown
        self._is_any_other = False  # whether the step has put one at a place that a call says

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.owner)

    # ------------------------------------------------------------------ looking

    @property
    def now(self) -> Any:
        return self._of_kind(super().now)

    @property
    def text(self) -> str:  # type: ignore[override]
        count = len(self.source.done)
        return self.source.path + (f", changed {count} times" if count else "")

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        return _tree([args for _, args in self.source.done]).bases

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        """The entries in a call, when so much has been done to them as by now."""
        source, kind = self.source, list if isinstance(self.owner, list) else deque
        steps = [(getattr(kind, name), _tree(args).formula) for name, args in source.done]

        def formula(known: Any) -> Any:
            found = copy.copy(source.owner)
            for change, args in steps:
                change(found, *args(known))
            return found

        return formula

    def tail_of(self, start: int) -> Formula:
        """The last entries of a list in a call, without a look at the others."""
        source, done = self.source, self.source.done
        if type(self.owner) is not list or any(name != "append" for name, _ in done):
            return Applied(_cut, (self, start, None, None)).formula
        added = [formula_of(args[0]) for _, args in done]
        return lambda known: [*source.owner[start:], *(of(known) for of in added)][start:]

    def listed(self) -> Any:
        seen(self.size)
        return self._of_kind(self.found(self.places))

    def _of_kind(self, entries: list[Any]) -> Any:
        return entries if isinstance(self.owner, list) else deque(entries, self.owner.maxlen)

    def found(self, places: Sequence[_Place]) -> list[Any]:
        """Entries as the user's code gets them.

        Raises `RestartTrace` where some are state that must be an argument of the trace.
        """
        if self._is_any_other:
            self._refuse()
        known = self.source.keys
        unknown = [
            MutableSource(f"{self.source.path}[{at}]", self.owner, at)
            for at, entry in places
            if at is not None and at not in known and holds_state(entry) and not is_number(entry)
        ]
        if unknown and self.source.place is not None:
            self._refuse()
        if unknown:
            self.collector.restart = restart_to_bind(unknown)
            raise self.collector.restart
        return [entry if at is None else self._entry(at, entry) for at, entry in places]

    def _entry(self, at: int, entry: Any) -> Any:
        source, owner = self.source, self.owner
        text, known = f"{self._name}[{at}]", source.keys
        if at in known:
            if (at + self._count if at < 0 else at - self._count) in known:  # two names of one
                seen(self.size_at_start)
            return entry
        if not is_number(entry):
            self.collector.guard_entry(text, owner, at)
            return entry
        kind, text = type(entry), f"{text} at the start"
        self.recorder.guard_value(f"type({text})", lambda: type(item_at(source.owner, at)), kind)

        def found() -> Any:
            return source.owner[at]

        return self.recorder.live_scalar(text, entry, lambda call: found(), found)

    def are_all(self, kind: type) -> bool:
        """Whether all entries are of a class, in each call; of many the last and new ones."""
        if self._is_any_other:
            self._refuse()
        source, expected = self.source, frozenset((kind,))

        def kinds() -> frozenset[type]:
            owner, (whose, asked) = source.owner, source.asked.get(kind, (None, 0))
            asked = asked if whose is owner else 0
            start = min(asked, len(owner) - _LAST) if asked <= len(owner) else 0
            source.asked[kind] = owner, len(owner)
            found = itertools.islice(reversed(owner), len(owner) - max(start, 0))
            return frozenset(map(type, found)) | expected

        found = kinds() == expected
        if found:
            self.recorder.guard_value(f"the types in {self._name}", kinds, expected)
        return found

    # ------------------------------------------------------------------ what instructions do

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, slice):
            entry = self.collector.substitutes.entry(self.owner, key)
            entry = self.at(key) if entry is None else entry
            if entry is not None:
                return entry
            at = self.collector.index_of(seen(key))
            is_known = at is not None and 0 <= at < len(self.places) and self._taken is not None
            if is_known and self.places[at][0] is not None and self.size - self._added > at:
                return self._from_start(at)
        return super().__getitem__(key)

    def _from_start(self, key: int) -> Any:
        """An entry that the step has found there, counted from the start."""
        return self.found([((self._taken or 0) + key, self.places[key][1])])[0]

    def append(self, value: Any) -> None:
        """Add an entry; a deque that is full loses its first one."""
        self._change("append", value)
        maxlen = getattr(self.owner, "maxlen", None)
        self.places.append((None, value))
        self._added += 1
        if maxlen is None or self.size < maxlen:
            self._size = self.size + 1
        else:
            del self.places[0]
            self._size = maxlen
            self._taken = None if self._taken is None else self._taken + 1

    def extend(self, values: Any) -> None:
        """Add entries one by one."""
        if isinstance(values, PLAIN):
            self.collector.iterate(values)
        for value in [*values]:
            self.append(value)

    def __iadd__(self, values: Any) -> Any:
        self.extend(values)
        return self.owner

    def clear(self) -> None:
        """Have none."""
        self._change("clear")
        self.places = []
        self._size = self._added = 0
        self._is_any_other = False

    def popleft(self) -> Any:
        """Take the first entry of a deque."""
        return self._take_first("popleft")

    def pop(self, *index: int) -> Any:
        """Take an entry of a list, or the last one."""
        if index == (0,) and isinstance(self.owner, list):
            return self._take_first("pop", 0)
        return self._take_last() if index in ((), (-1,)) else self._refuse()

    def __delitem__(self, key: Any) -> None:
        is_list = type(self.owner) is list
        if key in (0, -1) and is_list:
            self.pop(key)
        elif is_list and key == slice(None):
            self.clear()
        elif is_list and type(key) is slice and key.start is key.step is None:
            self._cut_to(self.part(slice(key.stop, None)))
        else:
            self._refuse()

    def _cut_to(self, entries: Any) -> None:
        """Have just these, which are numbers of its own, and new ones."""
        is_own = type(entries) is ListPart and entries.view is self
        if not is_own or not entries.is_from_end or not entries.is_of_numbers():
            self._refuse()
        self._change("__setitem__", slice(None), entries)
        self.places, self._size = [*entries.places], entries.size
        self._added, self._taken = len(self.places), None
        self._is_any_other = False

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) is slice and key == slice(None) and isinstance(self.owner, list):
            self._cut_to(value)
            return
        if is_known_before(key) and key.__class__ is int and key >= 0 and key < self.size:
            if not (self._added and key == self.size - 1):  # as after `buffer.append(None)`
                self._change("__setitem__", key, value)
                self._is_any_other = True
                return
            key = -1
        key = seen(key)
        if type(key) is int and -len(self.places) <= key < 0 and self.size >= -key:
            self._change("__setitem__", key, value)
            self.places[key] = None, value
            self._added = max(self._added, -key)
        else:
            self._refuse()

    def __imul__(self, count: Any) -> Any:
        return self._refuse()

    def _take_first(self, name: str, *args: Any) -> Any:
        if self._taken is None or not is_live(self.size) or not self.size > self._added:
            return self._refuse()
        value = self._from_start(0)
        self._change(name, *args)
        del self.places[0]
        self._size = self.size - 1
        self._taken += 1
        return value

    def _take_last(self) -> Any:
        if not is_live(self.size) or not self.size >= 1:
            return self._refuse()
        value = self[-1]
        self._change("pop")
        del self.places[-1]
        self._size = self.size - 1
        self._added = max(self._added - 1, 0)
        return value

    def _refuse(self) -> NoReturn:
        """Begin again, without this, where a change needs to know all entries."""
        self.collector.refuse_growing(self.source.path, self.owner)
        raise AssertionError

    def _change(self, name: str, *args: Any) -> None:
        self.collector.note_growth(self.owner)
        self.source.done.append((name, args))

    def __getattr__(self, name: str) -> Any:
        if name in ("copy", "__copy__") and isinstance(self.owner, deque):
            return self.listed
        if name.startswith("__") or not hasattr(self.owner, name):
            raise AttributeError(f"{type(self.owner).__name__!r} object has no attribute {name!r}")
        if name == "maxlen":
            return self.owner.maxlen
        if name == "copy":
            return functools.partial(self.part, slice(None))
        if name in ("index", "count"):
            return getattr(self.listed(), name)
        return self._refuse()


def _of_entries(name: str) -> Callable[..., Any]:
    def operate(part: Any, *args: Any) -> Any:
        for value in args:
            if isinstance(value, PLAIN) and not stands_for_list(value):
                part.view.collector.iterate(value)
        return getattr(part.listed(), name)(*map(_as_list, args))

    operate.__name__ = name
    return operate


for _name in (
    *("mul", "rmul", "eq", "ne", "lt", "le", "gt", "ge", "contains", "reversed"),
    *("imul", "setitem", "delitem"),
):
    setattr(ListPart, f"__{_name}__", _of_entries(f"__{_name}__"))


def of_lists(
    collector: GuardCollector, function: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """What a function gives that only looks, of growing lists or parts of them."""

    def part_of(value: Any) -> Any:
        return collector.stand_ins.get(id(value), value)

    args, kwargs = [*map(part_of, args)], {name: part_of(x) for name, x in kwargs.items()}
    given = (*args, *kwargs.values())
    part = next(x for x in given if stands_for_list(x))
    if function is len:
        return part.size
    if function is bool:
        return bool(part)
    if function in REDUCTIONS:
        found = part.applied(function, args, kwargs)
        if found is not None:
            return found
    if function is list:
        return part.part(slice(None))
    is_sort = function is sorted and len(args) == 1 and {*kwargs} <= {"reverse"}
    if is_sort and part.has_plain_numbers():
        return SortedPart(part, kwargs)
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped in (stack, cat) or (wrapped in _TENSORS and part.is_array()):
        return function(*args, **kwargs)
    is_sum = function is sum and any(x.dtype.kind == "float" for x in _tensors_in(part))
    rows = part.view.recorder.rows_in(part) if is_sum else None
    if rows is not None:
        return sum([*args[1:], *kwargs.values()], sum_along(rows, 0))
    is_numpys = function in _MAKE_ARRAYS or isinstance(function, _OF_NUMPY)
    if is_numpys and all(x.is_of_numbers() for x in given if stands_for_list(x)):
        return of_numpy(part.view.recorder.exits, f"np.{function.__name__}", function, args, kwargs)
    if function in _SHOWS and part.is_formula():
        instead = collector.instead(function, args, kwargs)
    else:
        args, kwargs = [*map(_as_list, args)], {name: _as_list(x) for name, x in kwargs.items()}
        instead = collector.call(function, args, kwargs)
    return (instead or function)(*args, **kwargs)


def settled(value: Any) -> Any:
    """What the step leaves, where it has what stands for a list or an array, or a part of one."""
    if type(value) is LateArray and value.is_made:
        return value
    if type(value) in (GrowingView, LateArray) and value.owner is not None:
        return value.owner
    if issubclass(type(value), ListPart) and not value.is_of_numbers():
        return value.listed()
    return value


def _fits(number: Any) -> bool:
    return bool(number.fits(i64)) if is_live(number) else -(2**63) <= number < 2**63


def _tensors_in(part: ListPart) -> list[Tensor]:
    return [x for _, x in part.places if type(x) is Tensor]


def _as_list(value: Any) -> Any:
    return value.listed() if stands_for_list(value) else value


def _tree(tree: Any) -> Applied:
    """A container as what a call makes of its leaves."""
    leaves, rebuild = flatten(tree)
    return Applied(lambda *found: rebuild([*found]), leaves)


def _cut(entries: Sequence[Any], *bounds: Any) -> list[Any]:
    return [*entries][slice(*bounds)]


def _size_of_slice(size: int, start: Any, stop: Any, step: Any) -> int:
    return len(range(size)[slice(start, stop, step)])
