"""Lists that the rounds of a loop fill, where one round is recorded for all: `made.append(x)`.

While that round is recorded, its variable shows something that takes what is appended and nothing
else. Behind the loop it shows what joins all of them. One that later rounds have read isn't to be
had alone: what a hook on it, or its gradient, would see isn't what its row in the stack does. So
whoever asks for more than to join, count and add begins the trace again, and the loop is unrolled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from lucid.compiler.recording.iterables import LateIterable
from lucid.compiler.recording.loops import unrolling
from lucid.functions.joining import cat, stack
from lucid.functions.reduction import sum as sum_along
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.compiler.recording.loops import Loops
    from lucid.ir.location import Location
    from lucid.tensor.storage import Storage


class FilledList(LateIterable):
    """A list of tensors of one type, most of which are the rows of one that a loop has stacked.

    Args:
        before: the items that Python's rounds have made, and what was there before.
        place: the line of the loop.
    """

    __slots__ = ("_are_read", "_before", "_behind", "_depth", "_loops", "_place", "_rows", "_shown")

    kind = list

    def __init__(self, before: list[Any], loops: Loops, place: Location | None) -> None:
        super().__init__(list, (), len(before))
        self._before, self._loops, self._place = before, loops, place
        self._depth = _depth(loops)
        self._behind: list[Any] = []
        self._rows: TensorCore | None = None
        self._are_read = False
        self._shown: list[tuple[Storage, int]] = []

    def take(self) -> list[Any]:
        """What has been appended in the round that is recorded."""
        made, self._behind = self._behind, []
        return made

    def fill(self, rows: TensorCore, count: Any, item: TensorCore, *, are_read: bool) -> None:
        """Let the rows of a tensor be what all the rounds have appended that are recorded.

        item: of the recorded round. are_read: whether later rounds read them as well.
        """
        self._rows, self.length, self._are_read = rows, len(self._before) + count, are_read
        self._shown = [(item._storage, item._storage.generation)]  # from before, if it is written

    def append(self, item: Any) -> None:
        """Append an item, in the round that is recorded or behind the loop."""
        if self._rows is not None:
            if _depth(self._loops) >= self._depth:
                self._loops.unroll("fills a list that another loop has filled")
            self.length = self.length + 1
        self._behind.append(item)

    @property
    def whole(self) -> Any:
        """All items, stacked."""
        rows: Any = self._rows
        if rows is None or any(not _fits(x, rows) for x in (*self._before, *self._behind)):
            self._look()
        if any(memory.generation != generation for memory, generation in self._shown):
            self._look()
        return cat([stack(self._before), rows, *([stack(self._behind)] if self._behind else [])])

    def summed(self, start: Any = 0) -> Any:
        """What `sum` gives of them."""
        return start + sum_along(self.whole, 0)

    @property
    def has_numbers(self) -> bool:
        return self._rows is not None and not self._are_read

    def at(self, number: Any) -> Any:
        return self.whole[number]

    def __getitem__(self, index: Any) -> Any:
        if type(index) is int and 0 <= index < len(self._before) and self._rows is not None:
            return self._before[index]
        is_last = type(index) is int and index == -1  # which this round has made
        return self._behind[-1] if is_last and self._behind else self._look()

    def __bool__(self) -> bool:
        return True

    def _look(self) -> NoReturn:
        raise unrolling("fills a list whose items are used one by one", [self._place])


def _depth(loops: Loops) -> int:
    return len(loops.frames) + len(loops.looks)


def _fits(item: Any, rows: TensorCore) -> bool:
    """Whether an item is such as the rows are."""
    is_tensor = isinstance(item, TensorCore) and item.dtype is rows.dtype
    return is_tensor and item._type.shape == rows._type.shape[1:]
