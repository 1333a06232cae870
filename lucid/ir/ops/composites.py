"""Small compositions of ops that derivative rules, passes and the tensor layer share.

Operands are of any one class: IR values, or tensors. `like` is any operand; it only says of which.
"""

from __future__ import annotations

from typing import Any

from lucid.ir import ops
from lucid.ir.op import Operand
from lucid.ir.types import DType, Shape, i64


def zero(like: Operand) -> Any:
    """Return the 0-d 0 of the dtype of `like`."""
    return like.constant(0, like.dtype)


def one(like: Operand) -> Any:
    """Return the 0-d 1 of the dtype of `like`."""
    return like.constant(1, like.dtype)


def full(like: Operand, value: float, shape: Shape, dtype: DType) -> Any:
    """Return a value repeated to a shape: a broadcast constant, not a buffer."""
    filled = like.constant(value, dtype)
    return ops.broadcast(filled, shape=shape) if shape else filled


def zeros_like(x: Operand) -> Any:
    """Return zeros of the type of `x`."""
    return full(x, 0, x.shape, x.dtype)


def ones_like(x: Operand) -> Any:
    """Return ones of the type of `x`."""
    return full(x, 1, x.shape, x.dtype)


def indices(like: Operand, shape: Shape, axis: int, dtype: DType = i64) -> Any:
    """Return each element's index along `axis`."""
    return like.emit(ops.iota, (), {"shape": shape, "axis": axis, "dtype": dtype})


def kept_axes(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Return `shape` with size 1 on `axes`: what a reduction with keepdims has."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape))


def keep_axes(y: Operand, shape: Shape, axes: tuple[int, ...]) -> Any:
    """Give `y`, reduced from `shape` over `axes`, these axes back with size 1."""
    return reshape_to(y, kept_axes(shape, axes))


def expand_reduced(g: Operand, shape: Shape, axes: tuple[int, ...]) -> Any:
    """Repeat `g`, of the shape that a reduction of `shape` over `axes` has, back to `shape`."""
    return broadcast_to(keep_axes(g, shape, axes), shape)


def reshape_to(x: Operand, shape: Shape) -> Any:
    """Reshape, unless `x` has the shape."""
    return x if x.shape == shape else ops.reshape(x, shape=shape)


def broadcast_to(x: Operand, shape: Shape) -> Any:
    """Broadcast, unless `x` has the shape."""
    return x if x.shape == shape else ops.broadcast(x, shape=shape)


def sum_to_shape(g: Operand, shape: Shape) -> Any:
    """Sum over the axes that broadcasting from `shape` repeated: the transpose of broadcasting."""
    if g.shape == shape:
        return g
    lead = len(g.shape) - len(shape)
    repeated = (axis for axis, size in enumerate(shape) if size == 1 and g.shape[lead + axis] != 1)
    axes = (*range(lead), *(lead + axis for axis in repeated))
    return reshape_to(ops.sum(g, axes=axes) if axes else g, shape)


def flip(x: Operand, axis: int) -> Any:
    """Reverse the order along one axis."""
    size = x.shape[axis]
    return slice_axis(x, axis, size - 1, -1, -1) if size else x


def slice_axis(x: Operand, axis: int, start: int, stop: int, step: int = 1) -> Any:
    """Slice one axis and keep the others; a stop of -1 is before index 0, for negative steps."""
    starts, stops, steps = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return ops.slice(x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def swap_axes(x: Operand, a: int, b: int) -> Any:
    """Exchange two axes; negative ones count from the end."""
    order = list(range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    return ops.transpose(x, perm=tuple(order))
