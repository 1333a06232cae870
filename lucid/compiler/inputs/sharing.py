"""Memory that two inputs of a step share: no problem as long as neither of them is written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from lucid.ir.errors import EagerOnlyError, LucidError
from lucid.ir.graph import Input, Value
from lucid.tensor.writing import READ_ONLY

Span = tuple[int, int]


class Sharing:
    """Finds shared memory, cheaply where an array owns its memory and so do those of the state.

    Shared storages of tensors are one input; what is left is memory that NumPy or another library
    shares behind our back. Raises `EagerOnlyError` when the state itself overlaps: in eager mode
    each op sees what those before it have written.

    Attributes:
        writes_arguments: whether an input is written that is not bound once.
        written_spans: addresses of what is written of the state, and its input; sorted.
    """

    def __init__(
        self, entries: Sequence[Input], arrays: Sequence[Any], written: set[Value]
    ) -> None:
        self._names = [entry.source or entry.value.name for entry in entries]
        self._written = frozenset(i for i, e in enumerate(entries) if e.value in written)
        bound = [(i, array) for i, array in enumerate(arrays) if array is not None]
        self._identities = {id(array): i for i, array in bound}
        self._are_owners = all(array.base is None for _, array in bound)
        spans = sorted((*_span(array), i) for i, array in bound if array.size)
        self._spans = spans
        self.written_spans = [entry for entry in spans if entry[2] in self._written]
        self._starts = [low for low, _, _ in self.written_spans]
        self.writes_arguments = any(arrays[i] is None for i in self._written)
        self._check_state()

    def _check_state(self) -> None:
        end, last = 0, -1
        for low, high, number in self._spans:
            if low < end and (number in self._written or last in self._written):
                self._refuse(last, number)
            if high > end:
                end, last = high, number

    def check(self, given: Sequence[tuple[int, np.ndarray]]) -> None:
        """Look at the arrays of one call; `given` are inputs by number, without those of state.

        Raises: `EagerOnlyError` for shared memory, `LucidError` for read-only memory that is
        written.
        """
        if not self._written:
            return
        for number, array in given:
            if number in self._written and not array.flags.writeable:
                raise LucidError(READ_ONLY)
            known = self._identities.get(id(array))
            if known is not None and (known in self._written or number in self._written):
                self._refuse(known, number)
            if array.base is not None or not self._are_owners:
                self._check_one(number, array)
        if self.writes_arguments and len(given) > 1:
            self._check_pairs(given)

    def _check_one(self, number: int, array: np.ndarray) -> None:
        low, high = _span(array)
        if number in self._written:
            for start, stop, other in self._spans:
                if low < stop and start < high:
                    self._refuse(other, number)
            return
        place = bisect_right(self._starts, high - 1) - 1
        if place >= 0 and self.written_spans[place][1] > low:
            self._refuse(self.written_spans[place][2], number)

    def _check_pairs(self, given: Sequence[tuple[int, np.ndarray]]) -> None:
        """Refuse two arrays that overlap where one is written; those that own theirs don't."""
        are_distinct = len({id(array) for _, array in given}) == len(given)
        if are_distinct and all(array.base is None for _, array in given):
            return
        entries = sorted((*_span(array), i) for i, (_, array) in enumerate(given) if array.size)
        reaching: list[tuple[int, int]] = []  # into what follows: end, entry
        for low, high, place in entries:
            number, array = given[place]
            reaching = [before for before in reaching if before[0] > low]
            for _, before in reaching:
                other, second = given[before]
                written = (number in self._written) + (other in self._written)
                # what is written must lie apart for native code, as even and odd elements don't
                if written == 2 or (written and np.shares_memory(array, second)):
                    self._refuse(*sorted((other, number)))
            reaching.append((high, place))

    def _refuse(self, first: int, second: int) -> NoReturn:
        raise EagerOnlyError(
            "two inputs of the step share memory, and one is written: "
            f"{self._names[first]} and {self._names[second]}\nhint: clone() one of them"
        )


def _span(array: np.ndarray) -> Span:
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, high
