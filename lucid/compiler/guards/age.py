"""Which objects were there before a trace, and which ones it has made itself."""

from __future__ import annotations

import gc
import operator
from collections.abc import Sequence
from functools import partial
from itertools import chain, compress, repeat, takewhile
from typing import Any, ClassVar

import numpy as np


class Age:
    """Tells objects made since `begin` from older ones, as far as Python's collector tracks them.

    Older objects are hidden from the collector meanwhile (`gc.freeze`), so all that it lists later
    is new. Ages may be nested, as loop bodies in a trace are: an inner one begins at a mark object.
    What a trace has made stays in the young generation, where a collection finds its cycles.
    """

    _running: ClassVar[list[Age]] = []

    def __init__(self) -> None:
        self._new = np.empty(0, np.int64)  # in order; who dies leaves its identity to a newer one
        self._old: set[int] = set()
        self._seen: tuple[object, int] = None, -1  # a mark behind what is known; collections so far
        self._before = self._new  # what outer ones have found when it began
        self._is_settled = False

    def begin(self) -> None:
        """What is made from now on is new; whoever is interrupted here calls `end`, too."""
        for age in Age._running:
            age._look()
        if Age._running:
            self._before = Age._running[0]._new
            self._seen = [], _collections()
        else:
            gc.freeze()
        Age._running.append(self)

    def is_new(self, value: object) -> bool:
        """Whether an object that the collector tracks was made since."""
        self.know((value,))
        return self._is_known(value)

    def know(self, values: Sequence[object]) -> None:
        """Find out which of some objects are new, by one look: each goes over all that is young.

        The caller keeps them alive: another object in the place of an old one would be old.
        """
        if not self._is_settled:
            unknown = [x for x in values if id(x) not in self._old and not self._is_known(x)]
            if unknown:
                self._look()
                self._old.update([id(x) for x in unknown if not self._is_known(x)])

    def _is_known(self, value: object) -> bool:
        place = self._new.searchsorted(id(value))
        return bool(place < len(self._new) and self._new[place] == id(value))

    def settle(self) -> None:
        """Find what is new now; objects made later aren't known as new until the next `settle`.

        New objects stay in the collector's young generation, older ones stay hidden from it.
        """
        for age in {*Age._running, self}:
            age._look()
        self._is_settled = True

    def _look(self) -> None:
        """Enter the tracked objects, or only those behind the last mark: they are listed by age.

        It is one call of C, as other threads must not find its lists among an object's referrers,
        and goes to the end of the list, which would stay in a cycle with its iterators otherwise.
        """
        looks = _collections()
        last, generation = (self._seen[0], 0) if looks == self._seen[1] else (None, None)
        self._seen = [], looks
        listed = chain.from_iterable(map(reversed, map(gc.get_objects, (generation,))))
        newer = listed if last is None else takewhile(partial(operator.is_not, last), listed)
        found = np.fromiter(chain(map(id, newer), compress(listed, repeat(False))), np.int64)
        if last is None:
            found = found[np.isin(found, self._before, invert=True)]
        self._new = np.sort(np.concatenate([self._new, found]), kind="stable")

    def end(self, *, and_inner: bool = False) -> None:
        """Let the collector see older objects again; what is new can't be told any more.

        and_inner: end also the ages that have begun since, which an interrupt may have left.
        """
        if self in Age._running:
            place = Age._running.index(self)
            del Age._running[place : None if and_inner else place + 1]
            self._new, self._is_settled = self._new[:0], True
        if not Age._running:  # also where an interrupt has come between
            gc.unfreeze()


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def owner_of(array: np.ndarray) -> Any:
    """The array whose memory this one is a view of; or the file or buffer that it comes from."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner
