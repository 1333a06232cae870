"""Lists that the rounds of a loop fill, where one round is recorded for all: `made.append(x)`.

While that round is recorded, something is in the list's place that takes what is appended, or put
at its front, and nothing else. Behind the loop it stands for all of them, stacked, and for an item
there is its row. What is written there, a hook and a gradient that somebody asks for would see less
than the item (`_LentRow` in `loops.py`). So who does that, or asks for more than to join, count,
add, cut and go over, begins the trace again, and the loop is unrolled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from lucid.compiler.recording.iterables import LateIterable
from lucid.compiler.recording.late_numbers import LateScalar, LateSize, extent_of
from lucid.compiler.recording.loops import unrolling
from lucid.functions.joining import cat, stack
from lucid.functions.reduction import sum as sum_along
from lucid.functions.shape import flip
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.compiler.recording.loops import Loops
    from lucid.ir.location import Location
    from lucid.tensor.storage import Storage


class StackedList(LateIterable):
    """A list of tensors of one type that are the rows of one."""

    __slots__ = ()

    kind = list

    @property
    def whole(self) -> Any:
        """All items, stacked."""
        raise NotImplementedError

    @property
    def filled(self) -> FilledList:
        """The list that the items are in, or are from."""
        raise NotImplementedError

    def summed(self, start: Any = 0) -> Any:
        """What `sum` gives of them."""
        return start + sum_along(self.whole, 0)

    @property
    def has_numbers(self) -> bool:
        return self.filled.is_alone

    def at(self, number: Any) -> Any:
        return self.filled.lend(self.whole[number].clone())  # as an item is no view

    def __getitem__(self, index: Any) -> Any:
        if type(index) is slice and all(map(_is_known, (index.start, index.stop))):
            if index.step in (None, 1):
                return _Rows(self.whole[index], self.filled)
            return self.backwards() if index == slice(None, None, -1) else self._look()
        is_number = type(index) in (int, LateScalar, LateSize) and self.has_numbers
        if not is_number or not (-self.length <= index and index < self.length):
            return self._look()
        if type(index) is not int:
            return self.at(index)
        is_behind = index < 0 and type(self.length) is int
        return self.filled.item(self, self.length + index if is_behind else index)

    def backwards(self) -> LateIterable:
        return _Rows(flip(self.whole, (0,)), self.filled)

    def __bool__(self) -> bool:
        return bool(self.length > 0)

    def _look(self) -> NoReturn:
        self.filled.refuse()


Sequence.register(StackedList)  # `match` looks at the type itself


class _Rows(StackedList):
    """A part of such a list."""

    __slots__ = ("_filled", "_whole")

    def __init__(self, whole: Any, filled: FilledList) -> None:
        super().__init__(list, (), filled.shown(whole._type.shape[0]))
        self._whole, self._filled = whole, filled

    @property
    def whole(self) -> Any:
        return self._whole

    @property
    def filled(self) -> FilledList:
        return self._filled


class FilledList(StackedList):
    """A list of tensors of one type, most of which are the rows of one that a loop has stacked.

    Args:
        before: the items that Python's rounds have made, and what was there before.
        place: the line of the loop.

    Attributes:
        made: the list of a comprehension, into which Python itself puts what rounds make.
        last_number: in the recorded round, the number of the last item; None: unknown.
        last: its last item, where rounds read that.
    """

    __slots__ = (
        *("_ahead", "_before", "_behind", "_depth", "_grows_ahead", "_items", "_last"),
        *("_length", "_loops", "_place", "_rows", "_shown", "last_number", "made"),
    )

    def __init__(
        self,
        before: list[Any],
        loops: Loops,
        place: Location | None,
        made: list[Any] | None = None,
    ) -> None:
        self._rows: TensorCore | None = None
        super().__init__(list, (), len(before))
        self.made = made
        self._before, self._loops, self._place = before, loops, place
        self._depth = _depth(loops)
        self._ahead: list[Any] = []
        self._behind: list[Any] = []
        self._grows_ahead = False
        self._items: dict[Any, tuple[StackedList, Any]] = {}
        self._last: Any = None
        self.last_number: LateScalar | None = None
        self._shown: list[tuple[Storage, int]] = []

    @property
    def filled(self) -> FilledList:
        return self

    @property
    def length(self) -> Any:
        """How many items there are, behind the loop; each round has another number."""
        return self._look() if self._rows is None else self._length

    @length.setter
    def length(self, count: Any) -> None:
        self._length = count

    @property
    def count_before(self) -> int:
        """How many items there are before the recorded round."""
        return len(self._before)

    @property
    def is_alone(self) -> bool:
        """Whether an item can be had alone."""
        return self._rows is not None

    def item(self, part: StackedList, index: int) -> Any:
        """One at a known number, which is the same object each time."""
        key = None if part is self else id(part), index
        if key not in self._items:
            self._items[key] = part, part.at(index)
        return self._items[key][1]

    def lend(self, row: Any) -> Any:
        """A row of it, for an item."""
        return self._loops.lend(row, self._place)

    def shown(self, size: Any) -> Any:
        """A size as the user's code sees it."""
        return self._loops.recorder.exits.shown(size)

    def take(self) -> list[Any]:
        """What has been put in it in the round that is recorded."""
        if self.made is not None:
            self._behind = self.made[len(self._before) :]
            del self.made[len(self._before) :]
        self._grows_ahead = bool(self._ahead)
        made, self._ahead, self._behind = [*self._ahead, *self._behind], [], []
        return made

    def fill(self, rows: TensorCore, count: Any, item: TensorCore) -> None:
        """Let the rows of a tensor be what all the rounds have put in it that are recorded.

        item: of the recorded round.
        """
        self._rows, self.length = rows, len(self._before) + count
        self._shown = [(item._storage, item._storage.generation)]  # from before, if it is written

    def settle(self) -> None:
        """Take what a comprehension's last rounds have made."""
        for item in () if self.made is None else self.made[len(self._before) :]:
            self.append(item)
        self.made = None

    def append(self, item: Any) -> None:
        """Append an item, in the round that is recorded or behind the loop."""
        self._note_longer()
        self._behind.append(item)

    def insert(self, index: Any, item: Any) -> None:
        """Put an item at the front, as `append` does at the end."""
        if type(index) is not int or index != 0:
            self._look()
        self._note_longer()
        self._ahead.insert(0, item)

    def reverse(self) -> None:
        """Let the last item be the first one, behind the loop."""
        if self._rows is None or _depth(self._loops) >= self._depth:
            self._look()
        ahead, before, behind = (x[::-1] for x in (self._ahead, self._before, self._behind))
        if self._grows_ahead:
            self._ahead, self._before, self._behind = [], behind + before, ahead
        else:
            self._ahead, self._before, self._behind = behind, before + ahead, []
        self._grows_ahead, self._last = not self._grows_ahead, None
        self._items.clear()

    def __iadd__(self, items: Iterable[Any]) -> FilledList:
        for item in items if type(items) in (list, tuple) else self._look():
            self.append(item)
        return self

    def _note_longer(self) -> None:
        if self._rows is not None:
            if _depth(self._loops) >= self._depth:
                self._loops.unroll("fills a list that another loop has filled")
            self.length = self.length + 1
            self._items.clear()

    @property
    def whole(self) -> Any:
        rows: Any = self._rows
        own = (*self._before, *self._ahead, *self._behind)
        if rows is None or any(not _fits(x, rows) for x in own):
            self._look()
        for memory, generation in self._shown:
            self._loops.recorder.parts.read(memory)  # of what may have been written since
            if memory.generation != generation:
                self._look()
        before = [stack(self._before)] if self._before else []
        filled = [flip(rows, (0,)), *before] if self._grows_ahead else [*before, rows]
        added = [[stack(x)] if x else [] for x in (self._ahead, self._behind)]
        return cat([*added[0], *filled, *added[1]])

    def at(self, number: Any) -> Any:
        own = self._own_at(number)
        if own is not None:
            return own
        is_between = type(number) is type(self.length) is int
        whole = self.whole
        if is_between and self._rows is not None and not self._rows.requires_grad:
            whole = whole.detach()  # that others require a gradient isn't said of this one
        return self.lend(whole[number].clone())

    def _own_at(self, number: Any) -> Any:
        """The item that Python has made at a number; None: the recorded rounds have made that."""
        ahead, before, behind = self._ahead, self._before, self._behind
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

    @property
    def last(self) -> Any:
        return self._behind[-1] if self._behind else self._last

    @last.setter
    def last(self, item: Any) -> None:
        self._last = item

    def __getitem__(self, index: Any) -> Any:
        is_minus_one = type(index) is int and index == -1
        if self.last is not None and (is_minus_one or self._is_last(index)):
            return self.last
        is_first = type(index) is int and 0 <= index < len(self._before)
        if is_first and self._rows is not None and not (self._ahead or self._grows_ahead):
            return self._before[index]
        return super().__getitem__(index)

    def _is_last(self, index: Any) -> bool:
        """Whether a number of the recorded round is that of the last item."""
        if self.last_number is None or type(index) is not LateScalar or self._behind or self._ahead:
            return False
        return index.is_same_as(self.last_number)

    def __bool__(self) -> bool:
        return True

    def refuse(self) -> NoReturn:
        """Begin again with the loop unrolled that has filled it."""
        raise unrolling("fills a list whose items are used one by one", [self._place])


def is_stacked(x: object) -> TypeGuard[StackedList]:
    """Whether something is such a list; `isinstance` can't tell, for it passes for Python's."""
    return issubclass(type(x), StackedList)


def _is_known(bound: Any) -> bool:
    return bound is None or type(bound) in (int, LateSize)


def _is_same(size: Any, other: Any) -> bool:
    return type(size) is type(other) and bool(size == other)


def _depth(loops: Loops) -> int:
    return len(loops.frames) + len(loops.looks)


def _fits(item: Any, rows: TensorCore) -> bool:
    """Whether an item is such as the rows are."""
    is_tensor = isinstance(item, TensorCore) and item.dtype is rows.dtype
    return is_tensor and item._type.shape == rows._type.shape[1:]
