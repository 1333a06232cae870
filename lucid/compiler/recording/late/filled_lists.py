"""Lists that the rounds of a loop fill, where one round is recorded for all: `made.append(x)`.

While that round is recorded, something is in the list's place that takes what is appended, or put
at its front, and nothing else. Behind the loop it stands for all of them, stacked, and for an item
there is its row. What is written there, a hook and a gradient that somebody asks for would see less
than the item (`_Lent` in `loops.py`). So who does that, or asks for more than to join, count,
add, cut and go over, begins the trace again, and the loop is unrolled.

A list of numbers, `losses.append(loss.item())`, is the rows of a tensor as well, and Python has it
after the call: it may be returned and kept, and what `sum` or NumPy make of it is a formula. Where
a call finds how many rounds there are, the rows are more than the items, whose number is a carry of
the loop; the items stacked have an open size. There a round may also put nothing in the list, and
one of tensors may be returned, if each of them is another one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard, cast

from lucid.compiler.inputs.late import Bases, bases_of, formula_of
from lucid.compiler.inputs.scalars import Formula, is_live
from lucid.compiler.recording.late.iterables import LateIterable
from lucid.compiler.recording.late.late_numbers import LateScalar, LateSize, extent_of, number_by
from lucid.compiler.recording.loops.loops import unrolling
from lucid.functions.creation import arange
from lucid.functions.joining import cat, stack
from lucid.functions.reduction import cumsum, sum as sum_along
from lucid.functions.shape import flip
from lucid.functions.sorting import searchsorted
from lucid.ir import ops
from lucid.ir.types import DType, f64, i64
from lucid.tensor.core import TensorCore, constant
from lucid.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lucid.compiler.recording.loops.loops import Loops, Round
    from lucid.compiler.recording.recorder import Recorder
    from lucid.ir.location import Location
    from lucid.tensor.storage import Storage

_NUMBERS: dict[type, DType] = {float: f64, int: i64}


def kind_of(item: Any) -> type | None:
    """The class of the items of a list that a loop may fill with one; None: it may not."""
    kind = item.__class__
    return Tensor if type(item) is Tensor else kind if kind in _NUMBERS else None


class Rows(LateIterable):
    """A list of tensors of one type that are the rows of one: of a filled list, or a part of it.

    Or of a column of records, which tells as a filled list does what may be done with them. Or a
    list of numbers, which are the elements of a tensor.
    """

    __slots__ = ("_filled", "_whole")

    kind = list

    def __init__(self, whole: Any, filled: Any) -> None:
        super().__init__(list, (), filled.shown(whole._type.shape[0]))
        self._whole = whole
        self._filled: FilledList = filled

    @property
    def whole(self) -> Any:
        """All items, stacked."""
        return self._whole

    @property
    def filled(self) -> FilledList:
        """The list that the items are in, or are from."""
        return self._filled

    @property
    def size(self) -> Any:
        return self.length

    @property
    def recorder(self) -> Recorder:
        return self.filled.recorder

    @property
    def has_array(self) -> bool:
        """Whether it is of numbers, which are the elements of a tensor."""
        return self.filled.number is not None

    def is_of_numbers(self) -> bool:
        return self.has_array

    def applied(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The number that a function gives of its numbers; None: it gives something else."""
        if not self.has_array:
            return None
        text = f"{function.__module__}.{function.__name__}() of a list"
        return number_by(function, args, kwargs, text, self.recorder.exits)

    @property
    def now(self) -> Any:
        exits, formula, bases = self.recorder.exits, cast(Any, self.formula), self.bases
        known = {key: x.now if is_live(x) else exits.now_of(x) for key, x in bases.items()}
        return formula(known)

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        if not self.has_array:
            self._look()
        value = self.recorder.value_of(self.whole)
        return {value: value}

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        value: Any = self.recorder.value_of(self.whole)
        return lambda known: known[value].tolist()

    def summed(self, start: Any = 0) -> Any:
        """What `sum` gives of its tensors."""
        return start + sum_along(self.whole, 0)

    def refuse(self) -> NoReturn:
        """Begin again where more is asked of the items than this tells."""
        self.filled.refuse()

    @property
    def has_numbers(self) -> bool:
        return self.filled.is_alone

    def at(self, number: Any) -> Any:
        row = self.whole[number]
        return row.item() if self.has_array else self.filled.lend(row.clone())  # which is no view

    def __getitem__(self, index: Any) -> Any:
        if type(index) is slice and all(map(_is_known, (index.start, index.stop))):
            if index.step in (None, 1):
                return Rows(self.whole[index], self.filled)
            return self.backwards() if index == slice(None, None, -1) else self._look()
        is_number = type(index) in (int, LateScalar, LateSize) and self.has_numbers
        if not is_number or not (self._is_behind_start(index) and index < self.length):
            return self._look()
        if type(index) is not int:
            return self.at(index)
        is_behind = index < 0 and type(self.length) is int
        return self.filled.item(self, self.length + index if is_behind else index)

    def _is_behind_start(self, index: Any) -> bool:
        is_known = type(index) is int  # of which a length between two ends may tell
        return bool(self.length >= -index if is_known else -self.length <= index)

    def backwards(self) -> LateIterable:
        return Rows(flip(self.whole, (0,)), self.filled)

    def __bool__(self) -> bool:
        return bool(self.length > 0)

    def _look(self) -> NoReturn:
        self.refuse()


Sequence.register(Rows)  # `match` looks at the type itself


class FilledList(Rows):
    """A list of tensors of one type, most of which are the rows of one that a loop has stacked.

    Or of numbers, which the elements of one are.

    Args:
        place: the line of the loop.
        noted: the round before the recorded one.

    Attributes:
        before: the items that Python's rounds have made.
        made: the list of a comprehension, to which Python itself appends the rounds' items.
        last_number: in the recorded round, the number of the last item; None: unknown.
        last: the last items that rounds read, by their distance from the end.
        flag: the number of the stack that says in which rounds it got an item; None: in each.
    """

    __slots__ = (
        *("_ahead", "_behind", "_count", "_depth", "_grows_ahead", "_is_counted", "_items"),
        *("_length", "_loops", "_of", "_parted", "_place", "_rows", "_shown", "before", "flag"),
        *("last", "last_number", "made", "number"),
    )

    def __init__(
        self,
        before: list[Any],
        loops: Loops,
        place: Location | None,
        noted: Round,
        made: list[Any] | None = None,
    ) -> None:
        self._rows: TensorCore | None = None
        LateIterable.__init__(self, list, (), None)
        self.made = made
        self.before, self._loops, self._place = before, loops, place
        self._of = kind_of(before[-1]) if before else None
        self.number: DType | None = None if self._of is None else _NUMBERS.get(self._of)
        self.flag: int | None = None
        self._parted: tuple[TensorCore | None, bool] | None = None
        self._is_counted = False
        self._count: Any = None  # of rows that are items
        self._depth = _depth(loops, noted)
        self._ahead: list[Any] = []
        self._behind: list[Any] = []
        self._grows_ahead = False
        self._items: dict[Any, tuple[Rows, Any]] = {}
        self.last: dict[int, Any] = {}
        self.last_number: LateScalar | None = None
        self._shown: list[tuple[Storage, int]] = []

    @property
    def filled(self) -> FilledList:
        return self

    @property
    def length(self) -> Any:
        """How many items there are; in the recorded round a number of the round."""
        self._is_counted = True
        return self._look() if self._length is None else self._length

    @length.setter
    def length(self, count: Any) -> None:
        self._length = count

    @property
    def is_alone(self) -> bool:
        """Whether an item can be had alone."""
        return self._rows is not None

    @property
    def recorder(self) -> Recorder:
        return self._loops.recorder

    @property
    def is_open(self) -> bool:
        """Whether a call finds how many of the rows are items."""
        return type(self._count) is LateScalar

    def begin(self, rounds: LateScalar) -> None:
        """The recorded round begins, after so many others: have their items."""
        self._ahead, self._behind = [], []
        self._count, self.length = rounds, rounds + len(self.before)

    def item(self, part: Rows, index: int) -> Any:
        """One at a known number, which is the same object each time."""
        key = None if part is self else id(part), index
        if key not in self._items:
            self._items[key] = part, part.at(index)
        return self._items[key][1]

    def lend(self, row: Any) -> Any:
        """A row of it, for an item."""
        reason = "fills a list whose items are changed, or differentiated"
        return self._loops.lend(row, lambda: unrolling(reason, [self._place]))

    def shown(self, size: Any) -> Any:
        """A size as the user's code sees it."""
        return self.recorder.exits.shown(size)

    def take(self) -> list[Any]:
        """Take the items that the recorded round has appended."""
        if self.made is not None:
            self._behind = self.made[len(self.before) :]
            del self.made[len(self.before) :]
        self._grows_ahead = bool(self._ahead)
        made, self._ahead, self._behind = [*self._ahead, *self._behind], [], []
        return made

    def row(self) -> TensorCore | None:
        """The item that the recorded round has put in it, or a tensor that holds a number.

        None: there is none.
        """
        made = self.take()
        if not made:
            return None
        if self._of is None and (kind := kind_of(made[0])) is not None:
            self._of, self.number = kind, _NUMBERS.get(kind)
        if self._of is None or [*map(kind_of, made)] != [self._of]:
            self.refuse_rounds()
        item: TensorCore = made[0]
        return item if self.number is None else self.recorder.constant(item, self.number)

    def refuse_rounds(self) -> NoReturn:
        """Begin again where rounds don't all put an item of one kind in it."""
        raise unrolling("fills a list not alike", [self._place])

    def refuse_count(self) -> None:
        """Begin again if the round has asked how long it is, as if all rounds filled it."""
        if self._is_counted:
            self.refuse_rounds()

    def fill(
        self,
        rows: TensorCore,
        count: Any,
        shown: Iterable[TensorCore],
        flags: TensorCore | None = None,
    ) -> None:
        """Let the rows of a tensor be what all the rounds have put in it that are recorded.

        shown: what may share memory with items: that of the recorded round, which may be there from
            before the loop, and what the loop leaves.
        flags: of each of those rounds, whether it has; None: all have.
        """
        if flags is not None:
            rows, count = self._only(rows, flags, count)
        self._rows, self._count, self.length = rows, count, count + len(self.before)
        if self.number is None:
            self._shown = [(x._storage, x._storage.generation) for x in shown]

    def part(self, last: TensorCore | None, *, is_begun: bool) -> Storage:
        """Let the step return it as a list of separate tensors; returns the memory of the rows.

        last: the tensor that the loop leaves and that is also the last item.
        is_begun: whether that is so even if there is no round.
        """
        assert self._rows is not None
        self._parted = last, is_begun
        return self._rows._storage

    def parted(
        self,
    ) -> tuple[list[Any], TensorCore, LateScalar, TensorCore | None, bool, list[Any]]:
        """The parts of a returned list: items before, rows and their number, last, is_begun, items.

        Unrolls the loop where the rows have a history, or items may be one tensor.
        """
        rows = self._checked_rows()
        grows = self._grows_ahead or self._ahead
        if self._parted is None or rows.requires_grad or grows or not self.is_open:
            self._look()
        return self.before, rows, self._count, *self._parted, self._behind

    def _only(self, rows: TensorCore, flags: Any, count: Any) -> tuple[TensorCore, LateScalar]:
        """The rows that are items, one behind the other, and how many these are."""
        recorder, size = self.recorder, flags._type.shape[0]
        numbers = arange(size, dtype=i64)
        is_item = ops.logical_and(flags, ops.lt(numbers, recorder.constant(count, i64)))
        items = cumsum(ops.cast(is_item, dtype=i64), 0)
        places = ops.minimum(searchsorted(items, numbers + 1), constant(size - 1, i64))
        total = recorder.value_of(items[-1])
        found = recorder.exits.number(total, total, (), "the length of a list")
        found.bounds = 0, math.inf
        return ops.take(rows, places, axis=0), found

    def settle(self) -> None:
        """Take what a comprehension's last rounds have made."""
        for item in () if self.made is None else self.made[len(self.before) :]:
            self.append(item)
        self.made = None

    def append(self, item: Any) -> None:
        """Append an item, in the round that is recorded or behind the loop."""
        self._note_longer()
        self._behind.append(item)

    def insert(self, index: Any, item: Any) -> None:
        """Put an item at the front, as `append` does at the end."""
        if type(index) is not int or index != 0 or self.is_open:
            self._look()
        self._note_longer()
        self._ahead.insert(0, item)

    def reverse(self) -> None:
        """Let the last item be the first one, behind the loop."""
        is_over = self._rows is not None and _depth(self._loops) <= self._depth
        if not is_over or self.is_open or self.number is not None:
            self._look()
        ahead, before, behind = (x[::-1] for x in (self._ahead, self.before, self._behind))
        if self._grows_ahead:
            self._ahead, self.before, self._behind = [], behind + before, ahead
        else:
            self._ahead, self.before, self._behind = behind, before + ahead, []
        self._grows_ahead = not self._grows_ahead
        self.last.clear()
        self._items.clear()

    def __iadd__(self, items: Iterable[Any]) -> FilledList:
        for item in items if type(items) in (list, tuple) else self._look():
            self.append(item)
        return self

    def _note_longer(self) -> None:
        if self._rows is not None and _depth(self._loops) > self._depth:
            self._loops.unroll("fills a list that another loop has filled")
        if self._length is not None:
            self.length = self._length + 1
            self._items.clear()

    @property
    def whole(self) -> Any:
        filled = self._filled_items()
        if self.is_open:
            count = self._count + len(self.before)
            filled = filled[: self.recorder.exits.opened(count, self._place)]
        added = [[self._stack(x)] if x else [] for x in (self._ahead, self._behind)]
        return cat([*added[0], filled, *added[1]]) if any(added) else filled

    def _filled_items(self) -> Any:
        """The items that Python has made before the loop, and all rows."""
        rows, before = self._checked_rows(), [self._stack(self.before)] if self.before else []
        return cat([flip(rows, (0,)), *before] if self._grows_ahead else [*before, rows])

    def _stack(self, items: Sequence[Any]) -> Any:
        if self.number is None:
            return stack(items)
        recorder = self.recorder
        return stack([recorder.constant(x, self.number) for x in items])

    def _checked_rows(self) -> Any:
        """The rows, where no item was written since."""
        rows: Any = self._rows
        own = (*self.before, *self._ahead, *self._behind)
        is_alike = self._are_numbers(own) if self.number else all(_fits(x, rows) for x in own)
        if rows is None or not is_alike:
            self._look()
        for memory, generation in self._shown:
            self.recorder.parts.read(memory)  # of what may have been written since
            if memory.generation != generation:
                self._look()
        return rows

    def _are_numbers(self, items: Iterable[Any]) -> bool:
        return all(_NUMBERS.get(x.__class__) is self.number for x in items)

    def at(self, number: Any) -> Any:
        own = self._own_at(number)
        if own is not None:
            return own
        if self.is_open or self.number is not None:
            return self._found(number)
        is_between = type(number) is type(self.length) is int
        whole = self.whole
        if is_between and self._rows is not None and not self._rows.requires_grad:
            whole = whole.detach()  # that others require a gradient isn't said of this one
        return self.lend(whole[number].clone())

    def _found(self, number: Any) -> Any:
        """An item of the rounds at a number that is one."""
        recorder, rows = self.recorder, self._filled_items()
        place = self.length + number if type(number) is int and number < 0 else number
        last = constant(rows._type.shape[0] - 1, i64)
        index = ops.minimum(recorder.constant(place - len(self._ahead), i64), last)
        row = ops.take(rows, index, axis=0)
        if self.number is None:
            return self.lend(row)
        value = recorder.value_of(row)
        return recorder.exits.number(value, value, (), "an item of a list")

    def _own_at(self, number: Any) -> Any:
        """The item that Python has made at a number; None: the recorded rounds have made that."""
        ahead, before, behind = self._ahead, self.before, self._behind
        first = ahead if self._grows_ahead else [*ahead, *before]
        last = [*before, *behind] if self._grows_ahead else behind
        if type(number) is int and 0 <= number < len(first):
            return first[number]
        is_behind = type(number) is int and number < 0
        wanted = extent_of(self.length + number if is_behind else number)
        for count, item in enumerate(reversed(last), 1):
            if _is_same(extent_of(self.length - count), wanted):
                return item
        return None

    def from_end(self, number: int) -> Any:
        """An item, counted from the end, if rounds read it, or Python has made it."""
        own = self._behind
        return own[-number] if number <= len(own) else self.last.get(number - len(own))

    def __getitem__(self, index: Any) -> Any:
        is_behind = type(index) is int and index < 0
        known = self.from_end(-index if is_behind else 1)
        if known is not None and (is_behind or self._is_last(index)):
            return known
        if type(index) is slice and self.is_open and self.number is not None:
            start = index.start
            is_end = type(start) is int and start < 0 and index.stop is None is index.step
            if is_end and self._rows is not None and self.length >= -start:
                return [self[i] for i in range(start, 0)]
            return self.listed()[index]
        is_first = type(index) is int and 0 <= index < len(self.before)
        if is_first and self._rows is not None and not (self._ahead or self._grows_ahead):
            return self.before[index]
        return super().__getitem__(index)

    def _is_last(self, index: Any) -> bool:
        """Whether a number of the recorded round is that of the last item."""
        if self.last_number is None or type(index) is not LateScalar or self._behind or self._ahead:
            return False
        return index.is_same_as(self.last_number)

    def __bool__(self) -> bool:
        return bool(self.before) or bool(self.length > 0)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.listed() if self.is_open else self._look())

    def listed(self) -> list[Any]:
        """All items, as Python goes through them: the step is specialized on how many."""
        if self._rows is None:
            self._look()
        first, end = len(self.before), operator.index(self._count) + len(self.before)
        return [*self.before, *map(self._found, range(first, end)), *self._behind]

    # ------------------------------------------------------------------ a list of numbers

    def summed(self, start: Any = 0) -> Any:
        if not self.is_open:
            return super().summed(start)
        rows = self._filled_items()  # of which those that are no items count for nothing
        sizes = rows._type.shape[0], *[1] * (rows.ndim - 1)
        numbers = ops.reshape(arange(sizes[0], dtype=i64), shape=sizes)
        count = self.recorder.constant(self._count + len(self.before), i64)
        items = ops.where(ops.lt(numbers, count), rows, constant(0, rows.dtype))
        return sum(self._behind, start + sum_along(items, 0))

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        if self.number is None or self._grows_ahead or self._ahead:
            self._look()
        rows = self.recorder.value_of(self._checked_rows())
        return {rows: rows} | bases_of((*self.before, self._count, *self._behind))

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        rows, count = self.recorder.value_of(self._checked_rows()), formula_of(self._count)
        before, behind = ([*map(formula_of, x)] for x in (self.before, self._behind))

        def formula(known: Any) -> list[Any]:
            found: list[Any] = known[rows][: count(known)].tolist()
            return [*(x(known) for x in before), *found, *(x(known) for x in behind)]

        return formula

    def as_tensor(self) -> Tensor:
        """What stands for it in an index."""
        return self.whole if self.has_array else self._look()  # type: ignore[no-any-return]

    def refuse(self) -> NoReturn:
        """Begin again with the loop unrolled that has filled it."""
        raise unrolling("fills a list whose items are used one by one", [self._place])


def is_stacked(x: object) -> TypeGuard[Rows]:
    """Whether something is such a list; `isinstance` can't tell, for it passes for Python's."""
    return issubclass(type(x), Rows)


def _is_known(bound: Any) -> bool:
    return bound is None or type(bound) in (int, LateSize)


def _is_same(size: Any, other: Any) -> bool:
    return type(size) is type(other) and bool(size == other)


def _depth(loops: Loops, noted: Round | None = None) -> int:
    """In how many loops Python is, but for one whose round was noted."""
    return len(loops.frames) + sum(x is not noted for x in loops.looks)


def _fits(item: Any, rows: TensorCore) -> bool:
    """Whether an item has the dtype and shape of the rows."""
    is_tensor = isinstance(item, TensorCore) and item.dtype is rows.dtype
    return is_tensor and item._type.shape == rows._type.shape[1:]
