"""Lists of which each call has another length, at which the step looks.

There are those in places, which grow (`growing_lists.py`), those among the arguments, and what the
step makes of them: slices, sums of two, orders, what is looked up for each item. One class stands
for all. Its length is a live number; an entry is found from that end from which the user's code
counts; and the list as a whole is a formula, of what a call finds and of what the step has computed
by then. So `sum`, `min` or NumPy give formulas as well. For a loop, a tensor, and a place that only
a round knows, there is an array of its numbers: an input of an open size, where a call has the list
before its step begins, such as `[1] + ids` or a row that is padded to the length of the longest,
else what a call of Python makes of it.

Who needs more of a list in a place, such as each entry in turn, specializes the step on its length.
Who needs more of an argument begins the trace again, and there it is a list with the items of the
call.
"""

from __future__ import annotations

import operator
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lucid.compiler.guards.collector import PLAIN
from lucid.compiler.guards.guard import ABSENT
from lucid.compiler.guards.moving_entries import OF_ITEMS, Column
from lucid.compiler.guards.mutable_sources import ListStandIn, stands_for_list
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.late import Applied, Late, bases_of, formula_of, now_of
from lucid.compiler.inputs.objects import SCALARS, kind_of_items
from lucid.compiler.inputs.scalars import (
    ONLY_COMPUTE,
    Composite,
    SymScalar,
    is_known_before,
    is_live,
    seen,
    short_text,
)
from lucid.compiler.inputs.signature import LISTS, axis_of_argument
from lucid.compiler.recording.late.filled_lists import is_stacked
from lucid.compiler.recording.late.iterables import LateIterable
from lucid.compiler.recording.late.late_arrays import LateArray, of_numpy
from lucid.compiler.recording.late.late_numbers import LateScalar, LateSize, number_by
from lucid.compiler.recording.late.list_items import AnyItem
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
Place = tuple[Any, Any]  # an entry: where it was at the start, from the end; and itself


def _writer(write: Callable[..., str]) -> Any:
    """The method of a list by which `write` asks for its text."""

    def written(part: Any, *how: str) -> str:
        if part.is_formula():
            text: str = part.recorder.written(part, write, *how)
            return text
        return write(part.listed(), *how)

    return written


class LateSequence(ListStandIn, Late):
    """A list of which each call has another length.

    Args:
        content: a late value or live scalar whose value is the list.
        text: the user's expression for it, unlike that of any other list.
        count: the number of entries, an int or a live number; None: by its formula.
        places: the entries now, each with its place at the start; None: places are unknown.
        view: the list that finds the entries at these places; None: itself.
        array: a tensor of its numbers, if the step has one.
        item: the class of its entries, if there are none now.

    Attributes:
        kind: its class; item_kind: that of all entries, `object` where they differ.
        lists: the names of the list arguments from which it follows.
        is_made: whether the step has made it.
        is_early: whether a call has it before its native step.
        is_from_end: whether entries have the same distance from its end in all calls.
        origin: for items looked up in a container: the list of keys, and how each is looked up.
    """

    __slots__ = (
        *("_array", "_count", "_listed", "_now", "_places", "_size", "bases", "formula"),
        *("is_early", "is_from_end", "is_made", "item_kind", "kind", "lists", "origin"),
        *("recorder", "text", "view"),
    )

    def __init__(
        self,
        recorder: Recorder,
        content: Any,
        text: str,
        count: Any = None,
        places: list[Place] | None = None,
        *,
        view: Any = None,
        array: Tensor | None = None,
        item: type = object,
    ) -> None:
        self.recorder, self.text = recorder, text
        self.view: Any = self if view is None else view
        self.formula, self.bases = formula_of(content), bases_of([content])
        self._now: Any = now_of(content) if places is None else None
        self._count, self._places, self._array = count, places, array
        self._size: Any = None
        entries: Any = self._now if places is None else [x for _, x in places]
        self.item_kind: type = class_of(entries, item)
        self.kind: type = list if places is not None else type(self._now)
        self.lists: frozenset[str] = frozenset()
        self.is_early, self.is_made = False, True
        self.is_from_end = places is not None or view is None
        self.origin: Any = None
        self._listed: list[Any] | None = None  # from then on the step may change it

    @classmethod
    def of_call(
        cls, recorder: Recorder, content: Any, text: str, count: Any = None, item: type = object
    ) -> LateSequence:
        """One that a call has before its step: an argument, or what Python makes of such ones."""
        found = cls(recorder, content, text, count, item=item)
        found.is_early, found.is_made = True, not is_live(content)
        found.lists = frozenset().union(*[x.lists for x in found.bases.values()])
        recorder.at_start.lists |= found.lists
        if found.item_kind not in (int, float, str):
            found.refuse()
        return found

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.kind

    @property
    def collector(self) -> GuardCollector:
        """What is told of reads."""
        return self.recorder.collector

    @property
    def length(self) -> Any:
        """How many entries it has, before the step where Python has it there."""
        if self._listed is not None:
            return len(self._listed)
        if self._count is None:
            self._count = self._number(f"len({self.text})", len, self)
        return self._count

    @property
    def size_at_start(self) -> Any:
        return self.length

    @property
    def has_array(self) -> bool:
        """Whether there is an array of its entries, of a size of its own."""
        return self._listed is None and (self.is_early or self._array is not None)

    @property
    def size(self) -> Any:
        """The same as `length`; the library has it as the size of the array, if there is one."""
        if not self.has_array:
            return self.length
        if self._size is None:
            of_array = lambda: self.whole._type.shape[0]  # noqa: E731
            self._size = LateSize.known(self.length, of_array, self.recorder.exits)
        size = None if self._array is None else self._array._type.shape[0]
        return size if type(size) is int else self._size

    @property
    def places(self) -> list[Place]:
        if self._places is None and self.view is self:
            return [(i - len(self._now), x) for i, x in enumerate(self._now)]
        if self._places is None:
            self._places = [(None, self._entry(i)) for i in range(len(self._now))]
        return self._places

    @property
    def now(self) -> Any:
        """The entries in the call that is traced."""
        if self._listed is None and self._places is None:
            return self._now
        entries = (entry for _, entry in self.places) if self._listed is None else self._listed
        return [*map(now_of, entries)]

    def listed(self) -> list[Any]:
        """The entries as Python's list: the step is specialized on the length."""
        if self.lists:
            self.refuse()
        if self._listed is None:
            seen(self.length)
            if not self.is_from_end:
                seen(self.view.size_at_start)
            self._listed = self.view.found(self.places)
        return self._listed

    def refuse(self) -> NoReturn:
        """Begin again, with the items of arguments as they are."""
        raise RestartTrace(f"looks into {', '.join(sorted(self.lists))}", "exact", self.lists)

    def _look(self) -> list[Any]:
        return self.listed()

    def found(self, places: Sequence[Place]) -> list[Any]:
        """Its entries at some places, and what the step has put among them."""
        return [entry if at is None else self._entry(at) for at, entry in places]

    def are_all(self, kind: type) -> bool:
        """Whether all its entries are of a class, in each call."""
        return self.item_kind is kind

    # ------------------------------------------------------------------ its numbers

    def is_of_numbers(self) -> bool:
        """Whether all entries are numbers of one kind, by now and in each call."""
        kind = self.item_kind
        is_number = issubclass(kind, (int, float, np.floating)) and kind is not bool
        return self._listed is None and is_number and self.view.are_all(kind)

    def has_plain_numbers(self) -> bool:
        """Whether all are ints, or floats, as an array gives them back."""
        return self.item_kind in OF_ITEMS and self.is_of_numbers()

    def is_array(self) -> bool:
        """Whether an array has them as they are."""
        is_float = self.item_kind is float or self.has_array
        entries = () if is_float else self._now if self._places is None else self.places
        return self.has_plain_numbers() and all(map(_fits, entries))

    def is_formula(self) -> bool:
        """Whether a text of it is known after each call, and not before."""
        return bool(self.bases) and (self.is_early or self.is_of_numbers())

    def applied(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The number that a function gives of it; None where that is no number."""
        leaves = [*args, *kwargs.values()]
        if any(isinstance(x, (*PLAIN, tuple, np.ndarray)) for x in leaves if x is not self):
            return None
        if not self.is_of_numbers():
            return None
        if not self.length >= 2:
            seen(self.length)
        text = f"{function.__module__}.{function.__name__}({', '.join(map(name_of, leaves))})"
        return self._number(text, function, *args, **kwargs)

    def _number(self, text: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        return number_by(*_in_formula(function, args, kwargs), text, self.recorder.exits)

    def summed(self, start: Any = 0) -> Any:
        """What `sum` gives of its tensors, stacked; None: it has others, or not so many."""
        is_float = any(x.dtype.kind == "float" for x in _tensors_in(self))
        rows = self.recorder.rows_in(self) if is_float else None
        return None if rows is None else start + sum_along(rows, 0)

    @property
    def whole(self) -> Tensor:
        """An array of its numbers; of texts, of how long they are."""
        if self._array is None and self.is_early:
            each, kind = (_itself, self.item_kind) if self.item_kind in OF_ITEMS else (_length, int)
            self._array = self._input(Column(self.text, (), self.early, each, kind))
        if self._array is not None:
            return self._array
        open_or_begin(self.recorder, self, _ARRAY)
        found: LateArray = of_numpy(self.recorder.exits, _ARRAY, np.array, (self,), {})
        return found.as_tensor()

    def as_tensor(self) -> Tensor:
        """What stands for it in an index."""
        return self.whole

    def _input(self, column: Column) -> Tensor:
        """An array of as many entries as it has, as an input."""
        found = self.collector.take_entry(column)
        if found is ABSENT:
            self.refuse()
        place = axis_of_argument(self.recorder.positions[id(found.tensor)], 0)
        if place in self.recorder.at_start.closed:  # each length is a program of its own
            self.refuse()
        array: Tensor = found.tensor
        return array

    def of_each(self, name: str, each: Callable[[Any, Any], Any], owner: Any = ()) -> LateSequence:
        """What a function makes of each item, and of a container in which that is looked up.

        Calls whose items it doesn't take run op by op.
        """
        if not self.is_early:
            self.refuse()
        try:
            items = [each(owner, x) for x in self._now]
        except Exception:
            items = [ABSENT]
        if ABSENT in items or not items:
            self.recorder.exits.op_by_op(f"not each of {self.text} is there in {name}")
        kind, text = kind_of_items(items), f"{self.text}, each {name}"
        if kind is None or (kind is str and owner != ()):
            self.refuse()
        if owner == ():
            made = Applied(lambda items: [each(owner, x) for x in items], (self,))
            return LateSequence.of_call(self.recorder, made, text, self.length)
        array = self._input(Column(text, owner, self.early, each, kind))
        numbers = _numbers_in(self.recorder, array)
        found = LateSequence(self.recorder, numbers, text, self.length, array=array)
        found.lists, found.origin = self.lists, (self, name, each, owner)
        return found

    # ------------------------------------------------------------------ its entries

    def rows(self) -> NumberRows | None:
        """What a loop goes over by numbers; None: it gets the entries as they are."""
        if self.has_array:
            return NumberRows(self)
        is_alike = here() not in self.recorder.at_start.looked_at
        is_known = is_alike and is_known_before(self.length) and self.is_array()
        opens = is_known and open_or_begin(self.recorder, self, _ARRAY)
        return NumberRows(self) if opens else None

    def row(self, number: Any) -> Any:
        """The entry at a number, in its array."""
        return AnyItem(self, number) if self.item_kind is str else self.whole[number].item()

    def _entry(self, at: Any) -> Any:
        """The entry at a place where there is one."""
        is_of_step = self.has_array and (not self.is_early or type(at) is LateScalar)
        if self.item_kind is str or is_of_step:
            return self.row(at)
        return self._number(f"{self.text}[{name_of(at)}]", operator.getitem, self, at)

    def __len__(self) -> int:
        return int(seen(self.length))

    def __bool__(self) -> bool:
        return bool(self.length != 0)

    def __iter__(self) -> Iterator[Any]:
        return map(self.row, range(int(self.size))) if self.has_array else iter(self.listed())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.part(key)
        found = self.at(key)
        if found is not None:
            return found
        at = self.collector.index_of(seen(key))
        is_known = at is not None and self.is_from_end and self._listed is None
        if is_known and -len(self.places) <= at < 0:
            if is_live(self.length) and not self.length >= -at:
                return None  # which the answer above rules out
            return self.view.found([self.places[at]])[0]
        if at is not None and self.has_at(at) and self._has_entries():
            return self._entry(at)
        return self.listed()[key]

    def at(self, key: Any) -> Any:
        """The entry at a place that each call has; None: there is none, or no number."""
        is_place = is_live(key) and key.kind is int and key >= 0 and self.has_at(key)
        return self._entry(key) if is_place and self._has_entries() else None

    def has_at(self, at: Any) -> bool:
        """Whether there is an entry at a place, in each call."""
        size = self.size if type(at) is LateScalar else self.length
        return self._listed is None and bool(size > at if at >= 0 else size >= -at)

    def _has_entries(self) -> bool:
        """Whether each can be had by its number."""
        return self.is_early or self.has_plain_numbers()

    # ------------------------------------------------------------------ what is made of it

    def made(
        self,
        text: str,
        count: Any,
        function: Callable[..., Any],
        *args: Any,
        places: list[Place] | None = None,
        **kwargs: Any,
    ) -> LateSequence:
        """The list that a function of Python's gives of it, and of others.

        count: how many entries it has, None: by its formula; places: and what they are.
        """
        if _is_early((*args, *kwargs.values())):
            content = Applied(function, args, kwargs)
            return LateSequence.of_call(self.recorder, content, text, count, self.item_kind)
        if self.kind is tuple:
            self.refuse()
        content = Applied(*_in_formula(function, args, kwargs))
        view = self._copy() if self.view is self and self.is_made else self.view
        return LateSequence(self.recorder, content, text, count, places, view=view)

    def _copy(self) -> LateSequence:
        """Itself, as it is by now."""
        found = object.__new__(LateSequence)
        found._become(self)
        return found

    def _become(self, other: LateSequence) -> None:
        for name in LateSequence.__slots__:
            setattr(self, name, getattr(other, name))
        self.view = self if other.view is other else other.view

    def part(self, key: slice) -> Any:
        """A slice: a list of its entries where they are few, or no numbers."""
        if self._listed is not None:
            return self._listed[key]
        if self.origin is not None:
            of, *how = self.origin
            return of.part(key).of_each(*how)
        start, stop, step = bounds = [
            x._look() if type(x) is LateScalar else x for x in (key.start, key.stop, key.step)
        ]
        count, text = self.length, f"{self.text}[{name_of(slice(*bounds))}]"
        if is_live(count):
            count = count.applied(f"len({text})", _size_of_slice, (count, *map(_before, bounds)))
        is_known = self._places is not None or not self.is_early
        places = self.places[slice(*map(now_of, bounds))] if is_known else None
        found = self.made(text, count, _cut, self, *bounds, places=places)
        if found.is_early:
            return found
        is_tail = type(start) is int and start < 0 and stop is step is None
        if is_tail and not self.is_made:
            found.formula = self.view.tail_of(start) or found.formula
        found.is_from_end = self.is_from_end and step in (None, 1)
        found.is_from_end &= stop is None or (type(stop) is int and stop < 0)
        is_short = is_tail and -start <= _SHORT
        return found.listed() if is_short or not found.is_of_numbers() else found

    def as_list(self) -> Any:
        """Another list of the same entries."""
        text = f"list({self.text})"
        return self.made(text, self.length, list, self) if self.is_early else self.part(slice(None))

    def in_order(self, **kwargs: Any) -> LateSequence:
        """What `sorted` makes of it."""
        return self.made(f"sorted({self.text}, {kwargs})", self.length, sorted, self, **kwargs)

    def __mul__(self, count: Any) -> Any:
        if not _is_early((self, count)):
            return self.listed() * _as_list(count)
        return self.made(f"{self.text} * {name_of(count)}", None, operator.mul, self, count)

    __rmul__ = __mul__

    def __add__(self, others: Any) -> Any:
        return self._joined(others, behind=True)

    def __radd__(self, others: Any) -> Any:
        return self._joined(others, behind=False)

    def _joined(self, others: Any, *, behind: bool) -> Any:
        """A list of its entries and others."""
        if isinstance(others, PLAIN) and not stands_for_list(others):
            self.collector.iterate(others)
            if type(others) is self.kind and not others:
                return self[:]
        found = self._with(others, behind=behind)
        if found is not None:
            return found
        listed, others = self.listed(), _as_list(others)
        return listed + others if behind else others + listed

    def _with(self, new: Any, *, behind: bool = True) -> LateSequence | None:
        """A part of its entries and of others; None: these aren't all numbers of one kind."""
        kind: Any = self.kind
        is_list, places = stands_for_list(new), None
        if self._listed is not None or kind is deque or new.__class__ is not kind:
            return None
        if is_list and (new._listed is not None or new.item_kind is not self.item_kind):
            return None
        if not is_list:
            own: list[Place] = [(None, x) for x in new]
            places = [*self.places, *own] if behind else [*own, *self.places]
        count = self.length + (new.length if is_list else len(new))
        parts = [self, new if is_list else tree_of(new)][:: 1 if behind else -1]
        text = " + ".join([self.text, name_of(new)][:: 1 if behind else -1])
        found = self.made(text, count, operator.add, *parts, places=places)
        found.is_from_end = self.is_from_end and (found.is_early or not is_list)
        is_alike = found.is_of_numbers() and (not is_list or new.is_of_numbers())
        return found if found.is_early or (is_alike and (is_list or new)) else None

    def append(self, value: Any) -> None:
        """Add an entry."""
        self.extend([value])

    def extend(self, values: Any) -> None:
        """Add entries, each of which the step has by now."""
        if isinstance(values, PLAIN) and not stands_for_list(values):
            self.collector.iterate(values)
        if not self.is_made:
            self.refuse()
        loops, new = self.recorder.loops, [*values]
        found = None if loops.frames or loops.looks else self._with(new)
        if found is None:
            self.listed().extend(new)
        else:
            self._become(found)

    def __iadd__(self, values: Any) -> Any:
        if self.kind is tuple:
            return self + values
        self.extend(values)
        return self

    __str__, __repr__, __format__ = _writer(str), _writer(repr), _writer(format)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(self.kind, name):
            raise AttributeError(f"{self.kind.__name__!r} object has no attribute {name!r}")
        return self.as_list if name == "copy" else getattr(self.listed(), name)


def open_or_begin(recorder: Recorder, part: LateSequence, name: str) -> bool:
    """Whether an array of a list's entries has an open size; begins again where it could have.

    name: of the call that makes it.
    """
    known, line = recorder.at_start, here()
    place = name, line and (line.file, line.line), 0, 0
    is_size = is_live(part.length) and LEAST <= part.length.now <= MOST
    if is_size and known.may_open and place not in known.opened and place not in known.closed:
        raise RestartTrace("goes over a list of ever other lengths", "opened", [place])
    return is_size and place in known.opened


class NumberRows(LateIterable):
    """The entries of a list, for a loop to go over."""

    __slots__ = ("_part", "_whole")

    kind = list

    def __init__(self, part: LateSequence) -> None:
        self._part = part
        self._whole: Tensor | None = None
        exits, size = part.recorder.exits, part.size
        if not part.has_array:
            size = LateSize.known(size, lambda: self._rows()._type.shape[0], exits)
        super().__init__(list, (part,), size)

    def _rows(self) -> Any:
        if self._whole is None:
            self._whole = self._part.whole
        return self._whole

    def at(self, number: Any) -> Any:
        part = self._part
        return part.row(number) if part.has_array else self._rows()[number].item()

    def backwards(self) -> LateIterable | None:
        return self._part.part(slice(None, None, -1)).rows()  # type: ignore[no-any-return]

    def rest(self, first: int, end: int) -> Iterable[Any]:
        if is_live(self.length) and not self._part.has_array:  # the list has entries for these
            raise RestartTrace("goes over a list by rounds that differ", "looked_at", [here()])
        return super().rest(first, end)


def _of_entries(name: str) -> Callable[..., Any]:
    def operate(part: Any, *args: Any) -> Any:
        for value in args:
            if isinstance(value, PLAIN) and not stands_for_list(value):
                part.collector.iterate(value)
        return getattr(part.listed(), name)(*map(_as_list, args))

    operate.__name__ = name
    return operate


for _name in (
    *("eq", "ne", "lt", "le", "gt", "ge", "contains", "reversed"),
    *("imul", "setitem", "delitem"),
):
    setattr(LateSequence, f"__{_name}__", _of_entries(f"__{_name}__"))


def of_lists(
    collector: GuardCollector, function: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """What a function gives that only looks, of such lists."""

    def part_of(value: Any) -> Any:
        return collector.stand_ins.get(id(value), value)

    args, kwargs = [*map(part_of, args)], {name: part_of(x) for name, x in kwargs.items()}
    given = (*args, *kwargs.values())
    lists = [x for x in given if stands_for_list(x) or is_stacked(x)]
    part = min(lists, key=is_stacked)
    if function is len:
        return part.size
    if function is bool:
        return bool(part)
    if function in _MAKE_ARRAYS and len(given) == 1 and part.has_array and part.is_of_numbers():
        return _in_step(part)
    if function in REDUCTIONS:
        found = part.applied(function, args, kwargs)
        found = part.summed(*given[1:]) if found is None and function is sum else found
        if found is not None:
            return found
    if function is list:
        return part.as_list()
    is_sort = function is sorted and len(args) == 1 and {*kwargs} <= {"reverse"}
    if is_sort and not any(map(is_live, kwargs.values())) and part._has_entries():
        return part.in_order(**kwargs)
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped in (stack, cat) or (wrapped in _TENSORS and part.is_array()):
        return function(*args, **kwargs)
    is_numpys = function in _MAKE_ARRAYS or isinstance(function, _OF_NUMPY)
    if is_numpys and all(x.is_of_numbers() for x in lists):
        args, kwargs = [*map(_in_step, args)], {name: _in_step(x) for name, x in kwargs.items()}
        return of_numpy(part.recorder.exits, f"np.{function.__name__}", function, args, kwargs)
    if is_stacked(part):
        part.refuse()
    if part.has_array or (function in _SHOWS and part.is_formula()):
        instead = collector.instead(function, args, kwargs)
    else:
        args, kwargs = [*map(_as_list, args)], {name: _as_list(x) for name, x in kwargs.items()}
        instead = collector.call(function, args, kwargs)
    return (instead or function)(*args, **kwargs)


def repeated(items: Any, count: SymScalar) -> LateSequence | None:
    """`[0] * (longest - len(x))`, of lengths of arguments; None: it is another number."""
    found, recorder = Applied(operator.mul, (tree_of(items), count)), count.recorder
    is_early = count.lists and all(map(is_known_before, found.bases.values()))
    if not is_early or kind_of_items(items) is None:
        return None
    text = f"{items!r} * {count.text}"
    return LateSequence.of_call(recorder, found, text, item=type(items[0]))  # type: ignore[arg-type]


def rows_of(lists: Any) -> Tensor | None:
    """The tensor of several lists of numbers that are early, of one length; None: of others."""
    is_early = type(lists) in LISTS and all(stands_for_list(x) and x.is_early for x in lists)
    if not is_early or not lists:
        return None
    first: LateSequence = lists[0]
    kinds, sizes = {x.item_kind for x in lists}, {len(x.now) for x in lists}
    if first.item_kind not in OF_ITEMS or len(kinds) > 1 or len(sizes) > 1:
        return None
    path = short_text(f"[{', '.join(x.text for x in lists)}]")
    key = Composite(_listed, [x.early for x in lists])
    found = first.collector.take_entry(Column(path, (), key, _itself, first.item_kind))
    if found is ABSENT:
        first.refuse()
    rows: Tensor = found.tensor
    return rows


def _is_early(values: Iterable[Any]) -> bool:
    """Whether a call has before its step what is made of values, lists among them."""
    lists, bases = [x for x in values if stands_for_list(x)], bases_of(values)
    are_early = all(x.is_early for x in lists)
    return bool(lists) and are_early and all(map(is_known_before, bases.values()))


def _in_formula(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]:
    """A call with early lists replaced by their arrays, if other arguments are late."""
    if _is_early((*args, *kwargs.values())):
        return function, args, kwargs

    def late(x: Any) -> Any:
        return _numbers_in(x.recorder, x.whole) if stands_for_list(x) and x.is_early else x

    return function, [*map(late, args)], {name: late(x) for name, x in kwargs.items()}


def _numbers_in(recorder: Recorder, array: Tensor) -> Applied:
    """The list of the numbers of an array."""
    return Applied(np.ndarray.tolist, (LateArray(recorder.exits, recorder.value_of(array)),))


def _in_step(value: Any) -> Any:
    """The array of a list that has one; all else as it is."""
    if not ((stands_for_list(value) or is_stacked(value)) and value.has_array):
        return value
    return LateArray(value.recorder.exits, value.recorder.value_of(value.whole))


def name_of(value: Any) -> str:
    """A value's text in the text of a list made of it: different values, different texts."""
    if type(value) is slice:
        parts = ["" if x is None else name_of(x) for x in (value.start, value.stop, value.step)]
        return ":".join(parts if parts[2] else parts[:2])
    if type(value) in LISTS:
        return f"[{', '.join(map(name_of, value))}]"
    if is_live(value) or stands_for_list(value):
        text: str = value.text
        return text
    return repr(value) if type(value) in (*SCALARS, slice) else f"an object {id(value)}"


def tree_of(tree: Any) -> Applied:
    """A container as what a call makes of its leaves."""
    leaves, rebuild = flatten(tree)
    return Applied(lambda *found: rebuild([*found]), leaves)


def class_of(entries: Iterable[Any], otherwise: type = object) -> type:
    """The class that all entries have; of none, another one."""
    kinds = {x.__class__ for x in entries} or {otherwise}
    return kinds.pop() if len(kinds) == 1 else object


def _before(number: Any) -> Any:
    """A number as Python has it before the step, where it is there."""
    before = number.before if type(number) is LateSize else None
    return number if before is None else before


def _fits(entry: Any) -> bool:
    number = entry[1] if type(entry) is tuple else entry
    return bool(number.fits(i64)) if is_live(number) else -(2**63) <= number < 2**63


def _tensors_in(part: LateSequence) -> list[Tensor]:
    return [x for _, x in part.places if type(x) is Tensor]


def _as_list(value: Any) -> Any:
    return value.listed() if stands_for_list(value) else value


def _cut(entries: Sequence[Any], *bounds: Any) -> Sequence[Any]:
    return (entries if type(entries) is tuple else [*entries])[slice(*bounds)]


def _size_of_slice(size: int, start: Any, stop: Any, step: Any) -> int:
    return len(range(size)[slice(start, stop, step)])


def _listed(*items: Any) -> list[Any]:
    return [*items]


def _itself(_: Any, item: Any) -> Any:
    return item


def _length(_: Any, item: Any) -> int:
    return len(item)
