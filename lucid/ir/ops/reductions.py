"""Ops that fold axes away: reduced axes are dropped."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.errors import ShapeError
from lucid.ir.op import Op, Operand, Sample, Trait, declare
from lucid.ir.ops import batching
from lucid.ir.ops.evaluation import quiet
from lucid.ir.ops.rules import (
    ANY,
    BOOLS,
    NUMBERS,
    DTypeSet,
    Infer,
    failure,
    require_axis,
    require_dtype,
)
from lucid.ir.types import TensorType, i64

__all__ = ["all", "amax", "amin", "any", "argmax", "argmin", "prod", "sum"]

Ints = tuple[int, ...]

_TIES = np.array([[2.0, 1.0, 2.0], [1.0, 0.0, 0.0], [0.0, np.nan, 3.0]])
_SAMPLES = (
    Sample(((4, 7),), {"axes": (0,)}),
    Sample(((4, 7),), {"axes": (1,)}),
    Sample(((3, 2, 5),), {"axes": (0, 2)}),
    Sample(((3, 2, 5),), {"axes": (1,)}),
    Sample(((3, 2),), {"axes": (0, 1)}),
    Sample(((3, 2),), {"axes": ()}),
    Sample(((),), {"axes": ()}),
    Sample(((37,),), {"axes": (0,)}),
    Sample(((0, 3),), {"axes": (1,)}),
    Sample((_TIES,), {"axes": (1,)}),
)
_EMPTY = (Sample(((0, 3),), {"axes": (0,)}), Sample(((0,),), {"axes": (0,)}))


def _reduced(name: str, dtypes: DTypeSet, empty: bool) -> Infer:
    """Return the type rule of a reduction; `empty`: it has a value for no elements."""

    def infer(x: TensorType, axes: Ints) -> TensorType:
        require_dtype(name, ("x",), (x,), dtypes)
        for axis in axes:
            require_axis(name, ("x",), (x,), axis)
            if not empty and x.shape[axis] == 0:
                raise failure(ShapeError, name, f"axis {axis} has no elements", ("x",), (x,))
        if len({*axes}) != len(axes):
            raise failure(ShapeError, name, f"an axis is twice in {list(axes)}", ("x",), (x,))
        return x.with_shape(tuple(n for axis, n in enumerate(x.shape) if axis not in axes))

    return infer


def _reduction(
    name: str,
    evaluate: Callable[..., Any],
    dtypes: DTypeSet,
    vjp: Callable[..., tuple[Any, ...]] | None = None,
    empty: bool = True,
    traits: Set[Trait] = frozenset(),
) -> Op:
    samples = _SAMPLES + _EMPTY if empty else _SAMPLES
    infer = _reduced(name, dtypes, empty)
    rule = batching.reduction
    return declare(
        Op(name, infer, quiet(evaluate), vjp, "reduce", traits, samples=samples, batch=rule)
    )


def _prod_vjp(g: Operand, y: Operand, x: Operand, axes: Ints) -> tuple[Any, ...]:
    """Each element gets the product of all the others, without a division: zeros don't hurt.

    The reduced axes are made one; the others' product is the one before times the one behind.
    """
    rest = tuple(axis for axis in range(len(x.shape)) if axis not in axes)
    perm = (*rest, *axes)
    shape = (*(x.shape[axis] for axis in rest), -1)
    moved = ops.transpose(x, perm=perm)
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    rows = ops.reshape(moved, shape=(*shape[:-1], count))
    last, one = len(rest), ops.one(x)
    before = ops.moved_on(ops.cumprod(rows, axis=last), last, one)
    behind = ops.moved_on(ops.cumprod(ops.flip(rows, last), axis=last), last, one)
    others = before * ops.flip(behind, last)
    cotangents = ops.reshape(g, shape=(*g.shape, 1)) * others
    ordered = ops.reshape(cotangents, shape=moved.shape)
    return (ops.transpose(ordered, perm=ops.inverse_permutation(perm)),)


def _extreme_vjp(g: Operand, y: Operand, x: Operand, axes: Ints) -> tuple[Any, ...]:
    """The elements that reach the extreme share the cotangent evenly; a NaN makes all of it NaN."""
    reached = ops.cast(ops.eq(x, ops.keep_axes(y, x.shape, axes)), dtype=x.dtype)
    count = ops.sum(reached, axes=axes)
    return (reached * ops.keep_axes(g / count, x.shape, axes),)


def _sum(x: np.ndarray, axes: Ints) -> Any:
    return np.add.reduce(x, axes, dtype=x.dtype)


def _prod(x: np.ndarray, axes: Ints) -> Any:
    return np.multiply.reduce(x, axes, dtype=x.dtype)


sum = _reduction(
    "sum",
    _sum,
    NUMBERS,
    lambda g, y, x, axes: (ops.expand_reduced(g, x.shape, axes),),
    traits={Trait.SLOW},
)
prod = _reduction("prod", _prod, NUMBERS, _prod_vjp, traits={Trait.SLOW})
# A NaN wins, and there is no extreme of no elements.
amax = _reduction(
    "amax", lambda x, axes: np.maximum.reduce(x, axes), ANY, _extreme_vjp, empty=False
)
amin = _reduction(
    "amin", lambda x, axes: np.minimum.reduce(x, axes), ANY, _extreme_vjp, empty=False
)
any = _reduction("any", lambda x, axes: np.logical_or.reduce(x, axes), BOOLS)
all = _reduction("all", lambda x, axes: np.logical_and.reduce(x, axes), BOOLS)

_AXIS_SAMPLES = (
    Sample(((4, 7),), {"axis": 0}),
    Sample(((4, 7),), {"axis": 1}),
    Sample(((3, 2, 5),), {"axis": 1}),
    Sample(((33,),), {"axis": 0}),
    Sample(((1,),), {"axis": 0}),
    Sample(((0, 3),), {"axis": 1}),
    Sample((_TIES,), {"axis": 1}),
)


def _position(name: str, evaluate: Callable[..., Any]) -> Op:
    """Declare argmax or argmin: the first one where several tie; a NaN wins."""

    def infer(x: TensorType, axis: int) -> TensorType:
        require_dtype(name, ("x",), (x,), ANY)
        require_axis(name, ("x",), (x,), axis)
        if x.shape[axis] == 0:
            raise failure(ShapeError, name, f"axis {axis} has no elements", ("x",), (x,))
        return TensorType(i64, x.shape[:axis] + x.shape[axis + 1 :])

    def positions(x: np.ndarray, axis: int) -> np.ndarray:
        return np.asarray(evaluate(x, axis), np.int64)

    rule = batching.along_axis
    return declare(Op(name, infer, positions, kind="reduce", samples=_AXIS_SAMPLES, batch=rule))


argmax = _position("argmax", np.argmax)
argmin = _position("argmin", np.argmin)
