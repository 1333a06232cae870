"""Reductions: identities, how partial results combine, in which precision."""

from __future__ import annotations

import math
from collections.abc import Callable

from lucid.codegen import vmath
from lucid.codegen.emit.lowering import ELEMENTS, less, maximum, minimum
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const, vector
from lucid.ir.types import DType, f32, f64, i32

Accumulator = list[Val]
Combine = Callable[[FunctionBuilder, DType, Val, Val], Val]

# Additions into one f32 accumulator; beyond it f64 ones keep the error that of pairwise summation.
SHORT = 64
# Positions are counted in i32: half the registers, and no axis is longer.
POSITION = i32
_LAST = (1 << 31) - 1


def _add(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return b.add(x, y)


def _mul(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return b.mul(x, y)


def _or(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return b.or_(x, y)


def _and(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return b.and_(x, y)


def _log_add_exp(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    """log(e^x + e^y), from the greater one and what the difference adds, of infinities log 2."""
    high, low = maximum(b, d, x, y), minimum(b, d, x, y)
    difference = b.select(b.eq(high, low), 0.0, b.sub(low, high))
    return b.add(high, vmath.log1p(b, vmath.exp(b, difference)))


_COMBINE: dict[str, Combine] = {
    "sum": _add, "prod": _mul, "amax": maximum, "amin": minimum, "any": _or, "all": _and,
    "cumsum": _add, "cumprod": _mul, "cummax": maximum, "cummin": minimum,
    "cumlogsumexp": _log_add_exp,
}  # fmt: skip


def lowest(dtype: DType) -> float:
    """What no value is below."""
    if dtype.kind == "float":
        return -math.inf
    return 0 if not dtype.is_signed else -(1 << (dtype.itemsize * 8 - 1))


def highest(dtype: DType) -> float:
    """What no value is above."""
    if dtype.kind == "float":
        return math.inf
    if dtype.kind == "bool":
        return 1
    return (1 << (dtype.itemsize * 8 - dtype.is_signed)) - 1


def identity(op: str, dtype: DType) -> float:
    """What a reduction starts from; a sum from +0.0, as NumPy's, so that one of -0.0 is +0.0."""
    if op in ("prod", "all", "cumprod"):
        return 1
    if op in ("sum", "any", "cumsum", "recurrence"):
        return 0
    is_low = op in ("amax", "argmax", "cummax", "cumlogsumexp")
    return lowest(dtype) if is_low else highest(dtype)


def accumulated(op: str, dtype: DType, rounds: int) -> DType:
    """The dtype of the accumulators."""
    return f64 if op in ("sum", "prod") and dtype is f32 and rounds > SHORT else dtype


def start(op: str, dtype: DType, lanes: int) -> Accumulator:
    """The accumulator of nothing; a position behind all others for argmax and argmin."""
    first = const(vector(ELEMENTS[dtype], lanes), identity(op, dtype))
    if op in ("argmax", "argmin"):
        return [first, const(vector(ELEMENTS[POSITION], lanes), _LAST)]
    return [first]


def combine(
    b: FunctionBuilder, op: str, dtype: DType, x: Accumulator, y: Accumulator
) -> Accumulator:
    """Combine two accumulators; x has seen the elements before those of y, or among them.

    Of a recurrence y is a factor and a term.
    """
    if op == "recurrence":
        return [b.add(b.mul(y[0], x[0]), y[1])]
    if op not in ("argmax", "argmin"):
        return [_COMBINE[op](b, dtype, x[0], y[0])]
    return _better(b, op, dtype, x, y)


def _better(
    b: FunctionBuilder, op: str, dtype: DType, x: Accumulator, y: Accumulator
) -> Accumulator:
    """The greater (smaller) value, of equal ones the first; the first NaN before all."""
    order = (x[0], y[0]) if op == "argmax" else (y[0], x[0])
    wins, ties = less(b, dtype, *order), b.eq(x[0], y[0])
    if dtype.kind == "float":
        nan_x, nan_y = b.is_nan(x[0]), b.is_nan(y[0])
        wins = b.or_(wins, b.and_(nan_y, b.not_(nan_x)))
        ties = b.or_(ties, b.and_(nan_x, nan_y))
    wins = b.or_(wins, b.and_(ties, b.lt(y[1], x[1])))
    return [b.select(wins, new, old) for old, new in zip(x, y, strict=True)]


def across_lanes(b: FunctionBuilder, op: str, dtype: DType, x: Accumulator) -> Accumulator:
    """Fold the lanes into one by halves: a fixed order."""
    while x[0].lanes > 1:
        half = x[0].lanes // 2
        low = [b.shuffle(v, v, range(half)) for v in x]
        high = [b.shuffle(v, v, range(half, 2 * half)) for v in x]
        x = combine(b, op, dtype, low, high)
    return x


def tree(b: FunctionBuilder, op: str, dtype: DType, parts: list[Accumulator]) -> Accumulator:
    """Combine accumulators pairwise, neighbours first."""
    while len(parts) > 1:
        paired = [
            combine(b, op, dtype, *parts[i : i + 2]) if i + 1 < len(parts) else parts[i]
            for i in range(0, len(parts), 2)
        ]
        parts = paired
    return parts[0]
