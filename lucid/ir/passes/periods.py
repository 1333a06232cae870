"""Repetitions in a sequence of numbers: where the same stretch comes again and again.

Reference: Karp and Rabin, "Efficient randomized pattern-matching algorithms", 1987, for the hashes
of windows; a repetition is a *run* of Kolpakov and Kucherov, "Finding maximal repetitions", 1999.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

_BASE = np.uint64(0x9E3779B97F4A7C15)
_WIDTHS = (2, 8, 32)  # of the windows whose distance to the one before is a period, perhaps
_GUESSES = 6  # how many periods are tried for each width


class Repetition(NamedTuple):
    """A stretch of a sequence, `[start, stop)`, each element of which is that a period before."""

    start: int
    stop: int
    period: int


def repetitions(tokens: np.ndarray, rounds: int, least: int) -> list[Repetition]:
    """The longest stretches that repeat, none of which overlaps another, in order.

    Of equal windows the distances are counted, and the most frequent ones are tried as periods: so
    the time grows as n log n, and a stretch whose period is rare beside those of others is missed.

    Args:
        tokens: i64[n], equal where two elements count as the same.
        rounds: how often the stretch must come at least.
        least: how long it must be at least.
    """
    found: list[Repetition] = []
    guesses = _guesses(tokens, len(tokens) // rounds)
    for period in sorted(guesses):
        found += _with_period(tokens, period, max(rounds * period, least))
    for period in sorted(_between(found, rounds) - guesses):
        found += _with_period(tokens, period, max(rounds * period, least))
    kept: list[Repetition] = []
    for start, stop, period in sorted(found, key=lambda x: (x.start - x.stop, x.period)):
        for other in kept:  # two that follow each other may have some elements in common
            if start < other.stop <= stop:
                start = other.stop
            elif start <= other.start < stop:
                stop = other.start
        is_inside = any(x.start < stop and start < x.stop for x in kept)
        if not is_inside and stop - start >= max(rounds * period, least):
            kept.append(Repetition(start, stop, period))
    return sorted(kept)


def _between(found: Sequence[Repetition], rounds: int) -> set[int]:
    """Distances between equal repetitions that come often: those of rounds that have rounds."""
    starts: dict[tuple[int, int], list[int]] = {}
    for start, stop, period in found:
        starts.setdefault((stop - start, period), []).append(start)
    gaps = Counter(now - then for x in starts.values() for then, now in pairwise(x))
    return {gap for gap, count in gaps.most_common(_GUESSES) if count >= rounds - 1}


def _guesses(tokens: np.ndarray, most: int) -> set[int]:
    """Distances between equal windows that come often."""
    found: set[int] = set()
    hashes, width, factor = _mixed(tokens), 1, _BASE
    with np.errstate(over="ignore"):
        for wanted in _WIDTHS:
            while width < wanted:
                hashes = hashes[:-width] * factor + hashes[width:]
                factor, width = factor * factor, 2 * width
            order = np.argsort(hashes, kind="stable")
            same = hashes[order[1:]] == hashes[order[:-1]]
            counts = np.bincount(np.diff(order)[same], minlength=1)
            often = np.argsort(-counts[: most + 1], kind="stable")[:_GUESSES]
            found.update(int(gap) for gap in often if gap and counts[gap] * 4 > gap)
            if len(hashes) <= 2 * width:
                break
    return found


def _mixed(tokens: np.ndarray) -> np.ndarray:
    """The tokens as numbers whose bits are mixed, so that their sums tell windows apart."""
    with np.errstate(over="ignore"):
        mixed = (tokens.astype(np.uint64) + np.uint64(1)) * _BASE
        mixed ^= mixed >> np.uint64(29)
        return np.asarray(mixed * np.uint64(0xBF58476D1CE4E5B9))


def _with_period(tokens: np.ndarray, period: int, least: int) -> Iterator[Repetition]:
    """The maximal stretches of so many elements with a period."""
    if len(tokens) < least:
        return
    differs = np.flatnonzero(tokens[period:] != tokens[:-period])
    starts = np.concatenate([[0], differs + 1])
    stops = np.concatenate([differs, [len(tokens) - period]]) + period
    for number in np.flatnonzero(stops - starts >= least):
        yield Repetition(int(starts[number]), int(stops[number]), period)
