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
    """A copy of a part.

    Attributes:
        whole: the memory that it is a part of; generation: what that was when the two agreed.
        index, line: the user's.
        writes: to the copy, which the version of the whole counts already.
    """

    whole: Storage
    generation: int
    index: Any
    line: Location | None
    writes: int = 0

    def agree(self, whole: TensorCore, copy: TensorCore) -> None:
        """The copy has been stored in the whole, of which each write to it was one."""
        writes = copy._counter.value
        whole._counter.value += writes - self.writes
        self.writes, self.generation = writes, self.whole.generation


class MovingParts:
    """Those of one trace.

    Attributes:
        by_memory: what has been read.
        looked_at: lines at which indices are looked at.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.by_memory: dict[Storage, _Part] = {}
        self._written: dict[Storage, _Part] = {}  # and not stored yet, by the memory of the whole
        self.looked_at: set[Location | None] = set()

    def index(self, tensor: TensorCore, index: Any) -> Any:
        """An index with indices of the graph where it says a place that moves.

        That is one int, or one range of a size that doesn't; all else Python looks at.
        """
        parts = list(index) if type(index) is tuple else [index]
        live = [i for i, part in enumerate(parts) if _moves(part)]
        axes = [i for i, part in enumerate(parts) if part is not None and part is not Ellipsis]
        is_basic = len(live) == 1 and all(_is_basic(x) for x in parts)
        if not is_basic or len(axes) > tensor.ndim or context.levels:
            return index
        part, axis = parts[live[0]], axes.index(live[0])
        if any(x is Ellipsis for x in parts[: live[0]]):
            axis -= len(axes)
        size, is_range = tensor._type.shape[axis], type(part) is slice
        first, count = (part.start if is_range else part).truncated(), 1
        if is_range:
            length = part.stop.truncated() - first  # the same in most calls
            count = length._look() if is_live(length) else length
        if count < 1 or not (first >= (0 if is_range else -size) and first + count <= size):
            return index
        at = self._recorder.constant(first, i64)
        parts[live[0]] = at + arange(count) if is_range else at
        return tuple(parts)

    def index_of_read(self, tensor: TensorCore, index: Any) -> Any:
        """The same, unless what is read must be a view."""
        return index if self.looked_at and here() in self.looked_at else self.index(tensor, index)

    def note(self, part: TensorCore, whole: TensorCore, index: Any) -> None:
        """Remember what has been read by such an index."""
        storage = whole._storage
        self.by_memory[part._storage] = _Part(storage, storage.generation, index, here())

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
        """What was read is about to be stored where it was: `rows[at] += x`; the part that it is.

        None: it is no such part.
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
    """Whether two indices are one object, or ranges with the same bounds."""
    if type(index) is type(other) is slice:
        return index.start is other.start and index.stop is other.stop
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
