"""A line search for the strong Wolfe conditions, on Python floats and flat vectors.

Reference: Nocedal and Wright, "Numerical Optimization", 2006, algorithms 3.5 and 3.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lucid.tensor.tensor import Tensor

DECREASE, CURVATURE = 1e-4, 0.9
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Point:
    """A step length with the loss, the gradient and the slope along the direction there."""

    t: float
    loss: float
    gradient: Tensor
    slope: float


Probe = Callable[[float], Point]


def cubic_minimum(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through two points with their slopes is least, within bounds."""
    low, high = bounds or (min(a.t, b.t), max(a.t, b.t))
    first = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = first * first - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2.0
    left, right = (a, b) if a.t <= b.t else (b, a)
    root = math.sqrt(square)
    bend = right.slope - left.slope + 2 * root
    if not bend:  # a line
        return (low + high) / 2.0
    share = (right.slope + root - first) / bend
    return min(max(right.t - (right.t - left.t) * share, low), high)


def strong_wolfe(probe: Probe, start: Point, t: float, longest: float, limit: int) -> Point:
    """Return a point that satisfies the conditions, or the best that was found.

    start: the point at 0. longest: the largest element of the direction. limit: how many points
    after the first are tried.
    """
    ends, tries, is_found = _bracket(probe, start, t, limit)
    spent = tries - 1  # the first one isn't counted
    was_slow = False
    while not is_found and spent < limit:
        low, high = sorted(ends, key=lambda point: point.t)
        if (high.t - low.t) * longest < TOLERANCE:
            break
        trial = cubic_minimum(ends[0], ends[1])
        trial, was_slow = _away_from_ends(trial, low.t, high.t, was_slow)
        new = probe(trial)
        spent += 1
        best, other = _ranked(ends)
        if new.loss > start.loss + DECREASE * trial * start.slope or new.loss >= best.loss:
            ends = [new if point is other else point for point in ends]
            continue
        is_found = abs(new.slope) <= -CURVATURE * start.slope
        turned = not is_found and new.slope * (other.t - best.t) >= 0
        ends = [new if point is best else best if turned else point for point in ends]
    return _ranked(ends)[0]


def _ranked(ends: list[Point]) -> tuple[Point, Point]:
    """The end with the smaller loss, and the other one; the first of equals."""
    if ends[0].loss <= ends[-1].loss:
        return ends[0], ends[-1]
    return ends[-1], ends[0]


def _bracket(probe: Probe, start: Point, t: float, limit: int) -> tuple[list[Point], int, bool]:
    """Lengthen the step until two points enclose what is searched, or one has it."""
    before, new, tries = start, probe(t), 1
    while tries <= limit:
        too_high = new.loss > start.loss + DECREASE * new.t * start.slope
        if too_high or (tries > 2 and new.loss >= before.loss):
            return [before, new], tries, False
        if abs(new.slope) <= -CURVATURE * start.slope:
            return [new], tries, True
        if new.slope >= 0:
            return [before, new], tries, False
        bounds = (new.t + 0.01 * (new.t - before.t), new.t * 10)
        before, t = new, cubic_minimum(before, new, bounds)
        new, tries = probe(t), tries + 1
    return [start, new], tries, False


def _away_from_ends(t: float, low: float, high: float, was_slow: bool) -> tuple[float, bool]:
    """Keep a trial from creeping along an end: the second one that is close to it is moved off."""
    margin = 0.1 * (high - low)
    if min(high - t, t - low) >= margin:
        return t, False
    if not (was_slow or t >= high or t <= low):
        return t, True
    return (high - margin if high - t < t - low else low + margin), False
