"""Memory that two inputs of a step share: no problem as long as neither of them is written."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, NoReturn

import numpy as np

from lucid.ir.errors import EagerOnlyError
from lucid.ir.graph import Input, Value
from lucid.ir.memory import address_of

Span = tuple[int, int]


class Sharing:
    """Finds shared memory by addresses.

    Shared storages of tensors are one input; what is left is memory that NumPy or another library
    shares behind our back. Raises `EagerOnlyError` when the state itself overlaps: in eager mode
    each op sees what those before it have written.

    Args:
        entries, arrays: the inputs, and those arrays that are bound once.
        written, read: what the step does with them; what it does nothing with may lie anywhere.
        guarded: other arrays that it is specialized on, by the user's expressions.

    Attributes:
        writes_arguments: whether an input is written that is not bound once.
        written_spans: addresses of what is written of the state, and its input; sorted.
    """

    def __init__(
        self,
        entries: Sequence[Input],
        arrays: Sequence[Any],
        written: set[Value],
        read: set[Value],
        guarded: Sequence[tuple[str, np.ndarray]] = (),
    ) -> None:
        self._names = [entry.source or entry.value.name or "an input" for entry in entries]
        self._names += [name for name, _ in guarded]
        self._written = frozenset(i for i, e in enumerate(entries) if e.value in written)
        used = written | read
        self._idle = frozenset(i for i, e in enumerate(entries) if e.value not in used)
        bound = [(i, array) for i, array in enumerate(arrays) if array is not None]
        bound = [(i, array) for i, array in bound if i not in self._idle]
        self._guarded = [(len(entries) + i, array) for i, (_, array) in enumerate(guarded)]
        self._take(bound)
        self.writes_arguments = any(arrays[i] is None for i in self._written)

    def on(self, arrays: Sequence[Any]) -> Sharing:
        """The same of a step on other state. Raises `EagerOnlyError` as the class does."""
        made = copy(self)
        bound = [(i, x) for i, x in enumerate(arrays) if x is not None and i not in self._idle]
        made._take(bound)
        return made

    def _take(self, bound: Sequence[tuple[int, np.ndarray]]) -> None:
        self._refuse_overlaps([(*_span(array), i) for i, array in bound if array.size])
        bound = [*bound, *self._guarded]
        spans = sorted((*_span(array), i) for i, array in bound if array.size)
        self._spans = spans
        self.written_spans = [entry for entry in spans if entry[2] in self._written]
        self._starts = [low for low, _, _ in self.written_spans]

    def is_written(self, number: int) -> bool:
        """Whether the step writes the input of this number."""
        return number in self._written

    @property
    def spans(self) -> list[Span]:
        """Addresses of the state, sorted; those that overlap are one."""
        found: list[Span] = []
        for low, high, _ in self._spans:
            before = found.pop() if found and low < found[-1][1] else (low, high)
            found.append((before[0], max(before[1], high)))
        return found

    def check(self, given: Sequence[tuple[int, np.ndarray]]) -> None:
        """Look at the arrays of one call; `given` are inputs by number, without those of state.

        Raises: `EagerOnlyError` for memory that is written and shared, or read-only: what
        eager mode says of it is its own, and NumPy's.
        """
        if not self._written:
            return
        if self._idle:
            given = [(number, array) for number, array in given if number not in self._idle]
        spans = [(*_span(array), number) for number, array in given if array.size]
        for low, high, number in spans:
            last = bisect_left(self._starts, high)  # of those that are written, which lie apart
            nearest = self.written_spans[max(last - 1, 0) : last]
            for start, stop, other in self._spans if number in self._written else nearest:
                if low < stop and start < high:
                    self._refuse(other, number)
        if self.writes_arguments:
            self._refuse_overlaps(spans)
            for number, array in given:
                if number in self._written and not array.flags.writeable:
                    raise EagerOnlyError(f"it writes {self._names[number]}, which is read-only")

    def _refuse_overlaps(self, spans: Iterable[tuple[int, int, int]]) -> None:
        """Raise where two overlap of which one is written."""
        end = written_end = 0
        last = last_written = -1
        for low, high, number in sorted(spans):
            is_written = number in self._written
            if low < (end if is_written else written_end):
                self._refuse(*sorted((last if is_written else last_written, number)))
            if high > end:
                end, last = high, number
            if is_written and high > written_end:
                written_end, last_written = high, number

    def _refuse(self, first: int, second: int) -> NoReturn:
        raise EagerOnlyError(
            "two inputs of the step share memory, and one is written: "
            f"{self._names[first]} and {self._names[second]}\nhint: clone() one of them"
        )


def _span(array: np.ndarray) -> Span:
    if array.flags.c_contiguous:  # a tenth of the time
        low = address_of(array)
        return low, low + array.nbytes
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, high
