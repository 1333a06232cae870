"""Ops that copy elements to other places, at positions that are known beforehand."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.errors import ArgumentError, ShapeError
from lucid.ir.extents import taken
from lucid.ir.op import Op, Operand, Sample, declare
from lucid.ir.ops import batching
from lucid.ir.ops.rules import ANY, failure, require_axis, require_dtype
from lucid.ir.ops.views import SLICES, Ints, numpy_slices, sliced_shape
from lucid.ir.types import TensorType

__all__ = ["concat", "pad", "update_slice"]


def _infer_pad(x: TensorType, value: TensorType, low: Ints, high: Ints) -> TensorType:
    names, types = ("x", "value"), (x, value)
    require_dtype("pad", names, types, ANY)
    if value.shape != ():
        raise failure(ShapeError, "pad", "the value has no axes", names, types)
    if not len(low) == len(high) == x.ndim or min((*low, *high), default=0) < 0:
        problem = f"low {list(low)} and high {list(high)} are not counts for {x.ndim} axes"
        raise failure(ShapeError, "pad", problem, names, types)
    return x.with_shape(tuple(a + n + b for a, n, b in zip(low, x.shape, high, strict=True)))


def _inside(x: np.ndarray | Operand, low: Ints) -> dict[str, Ints]:
    """Where in the padded result `x` lies, as attributes of a slice."""
    stops = tuple(start + size for start, size in zip(low, x.shape, strict=True))
    return {"starts": low, "stops": stops, "steps": (1,) * len(low)}


def _pad(x: np.ndarray, value: np.ndarray, low: Ints, high: Ints) -> np.ndarray:
    ends = [a + n for a, n in zip(low, x.shape, strict=True)]
    result = np.empty([end + b for end, b in zip(ends, high, strict=True)], x.dtype)
    result.fill(value)
    result[tuple(map(slice, low, ends))] = x
    return result


def _pad_vjp(
    g: Operand, y: Operand, x: Operand, value: Operand, low: Ints, high: Ints
) -> tuple[Any, ...]:
    inside = _inside(x, low)
    border = ops.update_slice(g, ops.zeros_like(x), **inside)
    return ops.slice(g, **inside), ops.sum(border, axes=tuple(range(len(low))))


pad = declare(
    Op(
        "pad",
        _infer_pad,
        _pad,
        _pad_vjp,
        kind="move",
        samples=(
            Sample(((3, 5), ()), {"low": (1, 0), "high": (2, 3)}),
            Sample(((4,), ()), {"low": (0,), "high": (0,)}),
            Sample(((0, 2), ()), {"low": (1, 1), "high": (0, 0)}),
            Sample(((), ()), {"low": (), "high": ()}),
        ),
        batch=batching.pad,
    )
)


def _infer_concat(*types: TensorType, axis: int) -> TensorType:
    names = tuple(f"x{i}" for i in range(len(types)))
    if not types:
        raise ArgumentError("concat: needs at least one operand")
    require_dtype("concat", names, types, ANY)
    require_axis("concat", names, types, axis)
    first = types[0].shape
    for type in types[1:]:
        same = type.shape[:axis] == first[:axis] and type.shape[axis + 1 :] == first[axis + 1 :]
        if type.ndim != len(first) or not same:
            problem = f"the shapes differ on another axis than {axis}"
            raise failure(ShapeError, "concat", problem, names, types)
    total = sum(type.shape[axis] for type in types)
    return types[0].with_shape((*first[:axis], total, *first[axis + 1 :]))


def _concat(*arrays: np.ndarray, axis: int) -> np.ndarray:
    return np.concatenate(arrays, axis)


def _concat_vjp(g: Operand, y: Operand, *operands: Operand, axis: int) -> tuple[Any, ...]:
    cotangents, start = [], 0
    for x in operands:
        stop = start + x.shape[axis]
        cotangents.append(ops.slice_axis(g, axis, start, stop))
        start = stop
    return tuple(cotangents)


concat = declare(
    Op(
        "concat",
        _infer_concat,
        _concat,
        _concat_vjp,
        kind="move",
        samples=(
            Sample(((3, 2), (3, 5)), {"axis": 1}),
            Sample(((3,), (1,), (4,)), {"axis": 0}),
            Sample(((2, 3),), {"axis": 0}),
            Sample(((0, 4), (2, 4)), {"axis": 0}),
        ),
        batch=batching.along_axis,
    )
)


def _infer_update_slice(
    base: TensorType, update: TensorType, starts: Ints, stops: Ints, steps: Ints
) -> TensorType:
    names, types = ("base", "update"), (base, update)
    require_dtype("update_slice", names, types, ANY)
    shape = sliced_shape("update_slice", names, types, starts, stops, steps)
    if update.shape != shape:
        problem = f"the slice has the shape {list(shape)}, the update {list(update.shape)}"
        raise failure(ShapeError, "update_slice", problem, names, types)
    return base


def _update_slice(
    base: np.ndarray, update: np.ndarray, starts: Ints, stops: Ints, steps: Ints
) -> np.ndarray:
    """A copy of `base` with the elements that the slice selects replaced."""
    result = base.copy()
    result[(*numpy_slices(starts, stops, steps), ...)] = update
    return result


def _update_slice_vjp(
    g: Operand, y: Operand, base: Operand, update: Operand, **place: Ints
) -> tuple[Any, ...]:
    return ops.update_slice(g, ops.zeros_like(update), **place), ops.slice(g, **place)


def _slice_size(attributes: dict[str, Ints]) -> Ints:
    return tuple(taken(*bounds) for bounds in zip(*attributes.values(), strict=True))


update_slice = declare(
    Op(
        "update_slice",
        _infer_update_slice,
        _update_slice,
        _update_slice_vjp,
        kind="move",
        samples=tuple(
            Sample((shape, _slice_size(attributes)), dict(attributes))
            for shape, attributes in SLICES
            if prod(shape) or shape == (0,)
        ),
        batch=batching.slicing,
    )
)
