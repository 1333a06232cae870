"""Parts of tensors at places that a number says which each call has for itself: `rows[self.at]`.

Such an index is one of the graph, so a step isn't specialized on each place. What is read so is a
copy, where eager mode has a view: whoever writes it, keeps it, or reads it when the tensor has been
written meanwhile, begins the trace again, and there the number is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.scalars import WHOLE, is_live
from lucid.compiler.recording.exits import number_at
from lucid.compiler.recording.late.late_numbers import LateScalar, place_of
from lucid.functions.creation import arange
from lucid.ir.location import Location, here
from lucid.ir.types import i64
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder
    from lucid.tensor.storage import Storage

_BASIC = (*WHOLE, slice, type(None), type(Ellipsis))


@dataclass(slots=True, eq=False)
class _Part:
    """A copy of a part of a tensor, where eager mode has a view.

    Attributes:
        whole: the memory that it is a part of; generation: its write count when the two agreed.
        index, line: the user's index and line.
        writes: how many writes to the copy are counted in the whole's version.
    """

    whole: Storage
    generation: int
    index: Any
    line: Location | None
    writes: int = 0

    def agree(self, whole: TensorCore, copy: TensorCore) -> None:
        """The copy has been stored in the whole: count its writes as writes to the whole."""
        writes = copy._counter.value
        whole._counter.value += writes - self.writes
        self.writes, self.generation = writes, self.whole.generation


class MovingParts:
    """The moving parts that one trace has read.

    Attributes:
        by_memory: the parts, by the memory of the copy.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.by_memory: dict[Storage, _Part] = {}
        self._written: dict[Storage, _Part] = {}  # parts to be stored, by the whole's memory

    def with_numbers(self, index: Any) -> Any:
        """An index with Python's numbers where NumPy's say places, and tensors in `x[i : i + 8]`.

        An int among tensors is one that picks elements, and stays an array.
        """
        parts = index if type(index) is tuple else (index,)
        is_basic = all(map(_is_basic, parts))

        def known(x: Any) -> Any:
            if type(x) is slice:
                bounds = place_of(x.start), place_of(x.stop)
                if x.step is None and all(is_live(y) or self._is_place(y) for y in bounds):
                    look = self._recorder.look
                    bounds = tuple([y if is_live(y) else look(y, "item()") for y in bounds])
                return slice(*bounds, x.step)
            return place_of(x) if is_basic else x

        return tuple(map(known, parts)) if type(index) is tuple else known(index)

    def _is_place(self, x: Any) -> bool:
        """Whether it is a tensor of one integer that each call has for itself."""
        is_int = isinstance(x, TensorCore) and x._type.dtype.kind == "int" and x._type.size == 1
        return is_int and not context.levels and self._recorder.known(x) is None

    def index(self, tensor: TensorCore, index: Any) -> Any:
        """An index with index tensors in the place of live ints and ranges.

        These must be adjacent, and the rest of the index basic; otherwise the index is unchanged.
        """
        parts = list(index) if type(index) is tuple else [index]
        live = [i for i, part in enumerate(parts) if _moves(part)]
        axes = [i for i, part in enumerate(parts) if part is not None and part is not Ellipsis]
        is_basic = len(live) > 0 and live[-1] - live[0] < len(live) and all(map(_is_basic, parts))
        if not is_basic or len(axes) > tensor.ndim or context.levels:
            return index
        before = len(axes) if any(x is Ellipsis for x in parts[: live[0]]) else 0
        sizes = [tensor._type.shape[axes.index(i) - before] for i in live]
        places = [self._places(parts, i, n) for i, n in zip(live, sizes, strict=True)]
        behind = 0  # axes of the result, of ranges
        for i, place in reversed([*zip(live, places, strict=True)]):
            if place is None:
                return index
            parts[i] = place.reshape(-1, *[1] * behind) if place.ndim and behind else place
            behind += place.ndim
        return tuple(parts)

    def in_turn(self, index: Any) -> tuple[Any, Any] | None:
        """An index of live ranges and vectors as two indices, to be applied one after the other.

        As for `x[perm, :, top:bottom, left:right]`. None: it is no such index.
        """
        if type(index) is not tuple or not any(map(_moves, index)):
            return None
        is_vector = [isinstance(x, TensorCore) and x._type.ndim == 1 for x in index]
        others = [x for x, vector in zip(index, is_vector, strict=True) if not vector]
        if len(others) == len(index) or any(type(x) is not slice for x in others):
            return None
        pairs = [*zip(index, is_vector, strict=True)]
        ranges = tuple([slice(None) if vector else x for x, vector in pairs])
        return ranges, tuple([x if vector else slice(None) for x, vector in pairs])

    def _places(self, parts: list[Any], number: int, size: Any) -> Any:
        """A tensor of the elements that an int or a range takes; None where Python looks at it."""
        part = parts[number]
        is_range = type(part) is slice
        first = (part.start if is_range else part).truncated()
        if not is_range:
            loops = self._recorder.loops
            in_rounds = type(first) is LateScalar and bool(loops.frames or loops.looks)
            is_inside = in_rounds or (first >= -size and first + 1 <= size)  # or a body says it
            return self._recorder.constant(first, i64) if is_inside else None
        end = part.stop.truncated()
        count = self._length(end - first, number)
        in_rounds = type(first) is LateScalar and first.is_within(0, size - count)
        if count < 1 or not (in_rounds or (first >= 0 and end <= size)):
            return None
        return self._recorder.constant(first, i64) + arange(count)

    def _length(self, length: Any, number: int) -> Any:
        """The length of a live range: the same in all calls, or else an open size.

        It is a size of its own, not computed from the bounds, which may be 0 or 1.
        """
        if not is_live(length):
            return length
        line, hosts, lengths = here(), self._recorder.hosts, self._recorder.at_start.lengths
        place, exits = number_at(line, "range"), self._recorder.exits
        size = None if hosts.rounds else exits.size_found(length, place)
        if size is not None:
            return size
        differs = lengths.setdefault((line, number), length.now) != length.now
        may_open = hosts.may_open and not hosts.rounds
        if differs and may_open and place not in (*hosts.closed, *hosts.opened):
            raise RestartTrace(f"has {length.text} for a size", "opened", [place])
        asked, found = len(exits.path), length._look()
        if len(exits.path) > asked:  # by what a call finds, for the first time
            exits.sizes_asked[asked] = place
        return found

    def index_of_read(self, tensor: TensorCore, index: Any) -> Any:
        """`index`, unless the line's reads must be views."""
        return index if self.are_looked_at() else self.index(tensor, index)

    def are_looked_at(self) -> bool:
        """Whether what the user's line reads must be views."""
        looked_at = self._recorder.at_start.looked_at
        return bool(looked_at) and here() in looked_at

    def note(
        self, part: TensorCore, whole: TensorCore, index: Any, line: Location | None = None
    ) -> None:
        """Remember what has been read by such an index, at a line, or at this one."""
        storage = whole._storage
        self.by_memory[part._storage] = _Part(storage, storage.generation, index, line or here())

    def read(self, storage: Storage) -> None:
        """Memory is about to be read."""
        part = self.by_memory.get(storage)
        if part is not None and part.whole.generation != part.generation:
            self._look(part)
        if storage in self._written:
            self._look(self._written[storage])

    def write(self, storage: Storage) -> None:
        """Memory is about to be written: a part must be stored before anybody reads the rest."""
        part = self.by_memory.get(storage)
        if part is not None:
            self._written[part.whole] = part

    def store(self, whole: TensorCore, index: Any, value: Any) -> _Part | None:
        """A part is about to be stored where it was read, as by `rows[at] += x`; returns it.

        None: the value is no such part.
        """
        part = self.by_memory.get(value._storage) if isinstance(value, TensorCore) else None
        if part is None or part.whole is not whole._storage or not _is_same(part.index, index):
            return None
        self._written.pop(part.whole, None)
        return part

    def finish(self) -> None:
        """The user's code has run."""
        for part in self._written.values():
            self._look(part)

    def keep(self, storage: Storage) -> None:
        """A tensor on some memory is a result, which others may write."""
        if storage in self.by_memory:
            self._look(self.by_memory[storage])

    def end(self) -> None:
        """Let go of them."""
        self.by_memory.clear()
        self._written.clear()

    def _look(self, part: _Part) -> NoReturn:
        raise RestartTrace("writes or keeps a part at a place that moves", "looked_at", [part.line])


def _is_same(index: Any, other: Any) -> bool:
    """Whether two indices are one object, or made of the same ones."""
    if type(index) is type(other) is slice:
        return index.start is other.start and index.stop is other.stop
    if type(index) is type(other) is tuple:
        return len(index) == len(other) and all(map(_is_same, index, other))
    return index is other


def _is_basic(part: Any) -> bool:
    return isinstance(part, _BASIC) and type(part) is not bool


def _moves(part: Any) -> bool:
    """Whether a part of an index says a place by a number that is read at each call."""
    if type(part) is not slice:
        return is_live(part) and isinstance(part, WHOLE)
    bounds = part.start, part.stop
    are_ints = all(isinstance(x, WHOLE) for x in bounds)
    return part.step is None and are_ints and all(map(is_live, bounds))
