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
    """Tells what was made since from what was there: objects that Python's collector knows.

    What there was is put out of the collector's sight meanwhile (`gc.freeze`), so that all that it
    finds later is new. Ages may be nested, as bodies of loops in traces are: an inner one begins
    behind a mark. What a trace has made stays young, so that a look at the young finds its cycles.
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
        """Find what is new now; what is made from now on can't be told, until this is done again.

        It stays young to the collector, which finds the cycles of a trace without what there was.
        """
        for age in {*Age._running, self}:
            age._look()
        self._is_settled = True

    def _look(self) -> None:
        """Know what is there: young objects stand in the order of their age, behind a mark the new.

        In one call of C: no other thread may find the objects that it builds referred to. It goes
        to the end of the list, which would stay in a cycle with its iterators otherwise.
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
        """Let the collector see everything again; what is new can't be told any more.

        and_inner: also for those that have begun since, which an interrupt may have left so.
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
