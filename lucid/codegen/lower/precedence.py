"""Which groups must run before which, while items join groups and groups are merged."""

from __future__ import annotations

from collections.abc import Iterable


def bits_of(bits: int) -> Iterable[int]:
    """The numbers of the bits that are set."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


class Precedence:
    """What groups wait for, by their numbers; sets of numbers are the bits of integers.

    The transitive closure is kept, so that each question is one `and`. What a group learns goes on
    to those who wait for it, until they know it. A merged group goes by the numbers of both.
    """

    def __init__(self) -> None:
        self._before: list[int] = []
        self._direct: list[int] = []  # the part of it that a group waits for by itself
        self._followers: list[int] = []  # who waits for it by themselves
        self._names: list[int] = []  # the numbers that a group goes by
        self._merged_into: list[int] = []

    def add(self) -> int:
        """The number of a new group, which waits for nothing."""
        number = len(self._names)
        for table in (self._before, self._direct, self._followers):
            table.append(0)
        self._names.append(1 << number)
        self._merged_into.append(number)
        return number

    def current(self, number: int) -> int:
        """The number of the group that this one is part of by now."""
        while self._merged_into[number] != number:
            number = self._merged_into[number]
        return number

    def direct(self, number: int) -> set[int]:
        """The groups that a group waits for by itself."""
        return {self.current(other) for other in bits_of(self._direct[number])}

    def waits(self, number: int, other: int) -> bool:
        """Whether a group waits for another one, directly or through others."""
        return bool(self._before[number] & self._names[other])

    def waits_any(self, needed: int, other: int) -> bool:
        """Whether one of several groups waits for another one."""
        names = self._names[other]
        return any(self._before[self.current(each)] & names for each in bits_of(needed))

    def has_path_between(self, a: int, b: int) -> bool:
        """Whether one of two groups waits for the other through a third."""
        for first, second in ((a, b), (b, a)):
            if self.waits(second, first):
                return self.waits_any(self._direct[second] & ~self._names[first], first)
        return False

    def wait(self, number: int, needed: int) -> None:
        """Let a group run after those in `needed`, none of which may wait for it."""
        needed &= ~self._names[number]
        known = needed
        for other in bits_of(needed):
            other = self.current(other)
            known |= self._before[other]
            self._followers[other] |= 1 << number
        self._direct[number] |= needed
        if known & ~self._before[number]:
            self._before[number] |= known
            self._tell_followers(number)

    def merge(self, number: int, other: int) -> None:
        """Let a group be part of another one. None may lie between the two."""
        self._merged_into[other] = number
        self._names[number] |= self._names[other]
        self._followers[number] |= self._followers[other]
        for table in (self._before, self._direct):
            table[number] = (table[number] | table[other]) & ~self._names[number]
        self._tell_followers(number)

    def _tell_followers(self, number: int) -> None:
        """Let those who wait for a group wait for all that it waits for."""
        pending = [number]
        while pending:
            first = pending.pop()
            known = self._before[first]
            for follower in {self.current(each) for each in bits_of(self._followers[first])}:
                if follower != first and known & ~self._before[follower]:
                    self._before[follower] |= known
                    pending.append(follower)
