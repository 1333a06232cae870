"""Host calls of single functions: what NumPy finds in data, what a random generator draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.autograd.generators import state_of
from lucid.autograd.host_replay import HostCall, MadeHostCall
from lucid.ir.errors import LucidError, completed
from lucid.ir.extents import LEAST, MOST, Extent, is_open
from lucid.ir.hosts import SIZING, Frame
from lucid.ir.location import Location, at_line
from lucid.ir.types import TensorType, type_of_array

_MOST_KNOWN = 256  # shapes of what is found
_UNKNOWN: Any = object()

OpenAxis = tuple[object, tuple[str, int] | None, int, int]
"""An axis of a result whose size values decide: which function, the user's line, which result."""


@dataclass(slots=True, eq=False, kw_only=True)
class Finding(HostCall):
    """A host call of a function that depends on what it is given, or draws random numbers.

    Attributes:
        find: `find(*arrays, *options)` gives arrays, which may be views of those that it gets.
        generator: the one of Python's or NumPy's that it draws from; None: it doesn't.
        is_own: whether it is a function of the library's that does nothing else, so nobody sees
            how often it is called.
        finds_sizes: whether the sizes of what it finds depend on values.
    """

    find: Callable[..., Sequence[np.ndarray]]
    options: tuple[Any, ...]
    generator: Any = None
    is_own: bool = False
    finds_sizes: bool = False
    _known: tuple[Any, dict[Any, Any]] = (None, {})  # sizes by shapes, for what is expected

    def make(self, frame: Frame, operands: Sequence[np.ndarray]) -> MadeHostCall:
        draw = self.name.rpartition(".")[2]
        undo = state_of(self.generator, draw) if self.is_followed else None
        return MadeHostCall(self, self.evaluate(operands), undo)

    def evaluate(self, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Find it. Raises what the function raises."""
        try:
            return self.find(*operands, *self.options)
        except LucidError as error:
            place = None if self.line is None else Location(*self.line)
            raise at_line(completed(error), place) from None

    def kept(self, made: MadeHostCall, found: Sequence[np.ndarray]) -> MadeHostCall:
        """A view of what was found in is on the step's memory, which ends with the run."""
        own = [array if array.base is None else array.copy() for array in found]
        return MadeHostCall(made.host, own, made.state)

    def compared(self, frame: Frame, found: Sequence[np.ndarray]) -> str | None:
        is_usual = self._sizes(found) == {} and SIZING not in frame
        return None if is_usual else HostCall.compared(self, frame, found)

    def difference(self, found: Sequence[np.ndarray]) -> str | None:
        return None if self._sizes(found) is not None else self.said(self.seen(found))

    def _sizes(self, found: Sequence[np.ndarray]) -> Mapping[Extent, int] | None:
        """`sizes_in` of what was found: most often the same as before."""
        of, known = self._known
        if of is not self.expected:
            self._known = of, known = self.expected, {}
        key = tuple([(array.dtype, array.shape) for array in found])
        sizes: Mapping[Extent, int] | None = known.get(key, _UNKNOWN)
        if sizes is _UNKNOWN:
            if len(known) >= _MOST_KNOWN:
                known.clear()
            sizes = known[key] = sizes_in(self.expected, self.seen(found), {})
        return sizes

    def difference_at_hand(self, found: Sequence[np.ndarray]) -> str | None:
        sizes = self.sizes_of(found)
        is_same = all(size.hint == value for size, value in sizes.items())
        return None if is_same else self.said(self.seen(found))

    def sizes_of(self, found: Sequence[np.ndarray]) -> Mapping[Extent, int]:
        """What the open sizes are in what was found, which fits."""
        return self._sizes(found) or {}

    @property
    def result_types(self) -> Sequence[TensorType]:
        types: Sequence[TensorType] = self.expected
        return types

    def varied(self, found: Sequence[np.ndarray]) -> set[OpenAxis]:
        """The axes of results whose sizes are others than expected."""
        return varied_axes(self, self.expected, self.seen(found), {})

    def seen(self, found: Sequence[np.ndarray]) -> tuple[TensorType, ...]:
        return tuple(map(type_of_array, found))

    def said(self, now: tuple[TensorType, ...]) -> str:
        if len(now) != len(self.expected):
            return f"{len(self.expected)} results -> {len(now)}"
        pairs = zip(self.expected, now, strict=True)
        return next(f"{a} -> {b}" for a, b in pairs if str(a) != str(b))

    def results(self, frame: Frame, found: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return found


def sizes_in(
    expected: Sequence[TensorType], now: Sequence[TensorType], given: Mapping[Extent, int]
) -> dict[Extent, int] | None:
    """What the open sizes of results are in results of now's types; None: they don't fit.

    given: open sizes that are known before, as those of operands.
    """
    sizes = {**given}
    known: Any
    if len(now) != len(expected):
        return None
    for before, type in zip(expected, now, strict=True):
        if before.dtype is not type.dtype or before.ndim != type.ndim:
            return None
        for known, size in zip(before.shape, type.shape, strict=True):
            if not is_open(known):
                if known != size:
                    return None
            elif not LEAST <= size <= MOST or sizes.setdefault(known, size) != size:
                return None
    return sizes


def varied_axes(
    host: HostCall,
    expected: Sequence[TensorType],
    now: Sequence[TensorType],
    given: Mapping[Extent, int],
) -> set[OpenAxis]:
    """The axes of results whose sizes are others than known ones, or than those of operands."""
    if [(x.dtype, x.ndim) for x in now] != [(x.dtype, x.ndim) for x in expected]:
        return set()
    shapes: Sequence[Sequence[Any]] = [type.shape for type in expected]
    return {
        (host.code, host.line, number, axis)
        for number, (shape, type) in enumerate(zip(shapes, now, strict=True))
        for axis, (known, size) in enumerate(zip(shape, type.shape, strict=True))
        if size != (given.get(known, size) if is_open(known) else known)
    }


@dataclass(slots=True, eq=False, kw_only=True)
class FoundNumber(Finding):
    """A number that the step computes as a size of it: that of an array without elements."""

    is_made_again = True

    @property
    def place(self) -> OpenAxis:
        """Where it is looked at."""
        return self.code, self.line, 0, 0

    def replayed(self) -> None:
        """None: where sizes are known, such a call isn't made, so others may come next."""

    def said(self, now: tuple[TensorType, ...]) -> str:
        return " -> ".join(
            str(types[0].shape[0]) if types[0].shape else "none" for types in (self.expected, now)
        )


def as_length(number: np.ndarray) -> Sequence[np.ndarray]:
    """An array without elements that has this length; one with all but this, if none has."""
    length = number.item()
    return [np.empty((length, 0), bool) if 0 <= length <= MOST else np.empty((), bool)]
