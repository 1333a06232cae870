"""Running folds along an axis: each element of the result is made of all up to its place.

Derivatives of products and logarithms of sums are first-order linear recurrences, which run from
the other end: so nothing is divided by, and the recurrence's own derivative is another one.

Reference: Blelloch, "Prefix Sums and Their Applications", 1990.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.errors import ShapeError
from lucid.ir.op import Op, Operand, Sample, declare
from lucid.ir.ops import batching
from lucid.ir.ops.evaluation import quiet
from lucid.ir.ops.rules import (
    ANY,
    FLOATS,
    NUMBERS,
    DTypeSet,
    failure,
    require_axis,
    require_dtype,
)
from lucid.ir.ops.samples import EDGES
from lucid.ir.types import TensorType

__all__ = [
    "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "moved_on", "reached", "recurrence",
]  # fmt: skip

_TIES = np.array([[2.0, 1.0, 2.0, 3.0], [1.0, 0.0, 0.0, -1.0], [0.0, np.nan, 3.0, np.nan]])
_SMOOTH = tuple(
    Sample((shape,), {"axis": axis})
    for shape, axis in (((9,), 0), ((4, 7), 0), ((4, 7), 1), ((2, 3, 4), 1), ((3, 1), 1))
)
_SAMPLES = (*_SMOOTH, Sample(((0, 3),), {"axis": 0}), Sample(((3, 0),), {"axis": 0}))
_EDGES = tuple(Sample((x,), {"axis": x.ndim - 1}) for x in (_TIES, EDGES))
_ZERO_SUMS = (Sample((np.array([-0.0, -0.0, 0.0, -0.0]),), {"axis": 0}),)
_EDGES_DOWN = Sample((_TIES,), {"axis": 0})


def _running(
    name: str,
    fold: np.ufunc,
    vjp: Callable[..., tuple[Any, ...]],
    dtypes: DTypeSet = NUMBERS,
    samples: tuple[Sample, ...] = (),
) -> Op:
    """Declare the running fold by a function of two numbers; sums start from +0.0, as `sum`."""
    is_sum = fold in (np.add, np.logaddexp)

    def infer(x: TensorType, axis: int) -> TensorType:
        require_dtype(name, ("x",), (x,), dtypes)
        require_axis(name, ("x",), (x,), axis)
        return x

    def evaluate(x: np.ndarray, axis: int) -> np.ndarray:
        found = fold.accumulate(x, axis, dtype=x.dtype)
        return found + x.dtype.type(0) if is_sum and x.dtype.kind == "f" else found

    return declare(
        Op(
            name,
            infer,
            quiet(evaluate),
            vjp,
            kind="scan",
            samples=(*_SAMPLES, *samples),
            batch=batching.along_axis,
        )
    )


def moved_on(x: Operand, axis: int, first: Operand) -> Any:
    """Give each place the element before it on an axis, and the first place another one.

    Args:
        x: a value or a tensor.
        axis: which one, from 0 on.
        first: what comes in at the front: of the dtype of `x`, without axes.

    >>> from lucid.ir import ops
    >>> ops.moved_on(lucid.tensor([1.0, 2.0, 3.0]), 0, lucid.tensor(9.0))
    tensor([9., 1., 2.])
    """
    size = x.shape[axis]
    if not size:
        return x
    low = tuple(int(other == axis) for other in range(len(x.shape)))
    kept = ops.slice_axis(x, axis, 0, size - 1)
    return ops.pad(kept, first, low=low, high=(0,) * len(low))


def _from_the_end(op: Op, *operands: Operand, axis: int) -> Any:
    return ops.flip(op(*[ops.flip(x, axis) for x in operands], axis=axis), axis)


def _next(x: Operand, axis: int, last: Operand) -> Any:
    return ops.flip(moved_on(ops.flip(x, axis), axis, last), axis)


def _cumsum_vjp(g: Operand, y: Operand, x: Operand, axis: int) -> tuple[Any, ...]:
    return (_from_the_end(cumsum, g, axis=axis),)


def _cumprod_vjp(g: Operand, y: Operand, x: Operand, axis: int) -> tuple[Any, ...]:
    """The product of what is before, times g[i] + x[i+1] (g[i+1] + x[i+2] (g[i+2] + ...))."""
    owed = _from_the_end(recurrence, _next(x, axis, ops.zero(x)), g, axis=axis)
    return (moved_on(y, axis, ops.one(x)) * owed,)


def _extreme_vjp(g: Operand, y: Operand, x: Operand, axis: int) -> tuple[Any, ...]:
    """The latest element that reached an extreme gets its cotangent; a NaN is reached anew."""
    places = reached(x, y, axis)
    return (ops.scatter_add(ops.zeros_like(x), places, g, axis=axis),)


def reached(x: Operand, y: Operand, axis: int) -> Any:
    """Return where the running extreme `y` of `x` was reached last, by NaN too: an i64 index.

    Args:
        x: a value or a tensor.
        y: its `cummax` or `cummin`.
        axis: of that.

    >>> from lucid.ir import ops
    >>> x = lucid.tensor([1.0, 3.0, 2.0, 3.0])
    >>> ops.reached(x, ops.cummax(x, axis=0), 0)
    tensor([0, 1, 1, 3])
    """
    places = ops.indices(x, x.shape, axis)
    is_new = ops.eq(x, y)
    if x.dtype.is_floating_point:
        is_new = ops.logical_or(is_new, ops.ne(x, x))
    return cummax(ops.where(is_new, places, ops.zero(places)), axis=axis)


def _ratio(high: Operand, low: Operand) -> Any:
    """e^(low - high); of equal infinities 1."""
    difference = ops.where(ops.eq(low, high), ops.zero(low), low - high)
    return ops.exp(difference)


def _cumlogsumexp_vjp(g: Operand, y: Operand, x: Operand, axis: int) -> tuple[Any, ...]:
    """Sums of g[j] e^(x[i] - y[j]) for j >= i, by factors e^(y[j] - y[j+1]), which are up to 1."""
    following = _next(y, axis, y.constant(inf, y.dtype))
    return (_ratio(y, x) * _from_the_end(recurrence, _ratio(following, y), g, axis=axis),)


cumsum: Op = _running("cumsum", np.add, _cumsum_vjp, samples=_ZERO_SUMS)
cumprod = _running("cumprod", np.multiply, _cumprod_vjp, samples=(*_EDGES, _EDGES_DOWN))
cummax: Op = _running("cummax", np.maximum, _extreme_vjp, ANY, samples=(*_EDGES, _EDGES_DOWN))
cummin = _running("cummin", np.minimum, _extreme_vjp, ANY, samples=(*_EDGES, _EDGES_DOWN))
cumlogsumexp = _running(
    "cumlogsumexp", np.logaddexp, _cumlogsumexp_vjp, FLOATS, (*_EDGES, *_ZERO_SUMS)
)


def _infer_recurrence(a: TensorType, b: TensorType, axis: int) -> TensorType:
    names, types = ("a", "b"), (a, b)
    require_dtype("recurrence", names, types, NUMBERS)
    require_axis("recurrence", names, types, axis)
    if a.shape != b.shape:
        raise failure(ShapeError, "recurrence", "the shapes differ", names, types)
    return a


def _recurrence(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
    """y[i] = a[i] y[i-1] + b[i], where what is before the first one is 0."""
    result = np.empty_like(b, order="C")
    lines, factors, terms = (np.moveaxis(x, axis, 0) for x in (result, a, b))
    state = np.zeros(lines.shape[1:], b.dtype)
    for i in range(len(lines)):
        state = lines[i, ...] = factors[i] * state + terms[i]
    return result


def _recurrence_vjp(g: Operand, y: Operand, a: Operand, b: Operand, axis: int) -> tuple[Any, ...]:
    """The recurrence from the other end, with the factor that comes next."""
    owed = _from_the_end(recurrence, _next(a, axis, ops.zero(a)), g, axis=axis)
    return owed * moved_on(y, axis, ops.zero(y)), owed


recurrence: Op = declare(
    Op(
        "recurrence",
        _infer_recurrence,
        quiet(_recurrence),
        _recurrence_vjp,
        kind="scan",
        samples=tuple(Sample((s.operands[0],) * 2, s.attributes) for s in (*_SAMPLES, *_EDGES)),
        batch=batching.along_axis,
    )
)
