"""Small compositions of ops that derivative rules, passes and the tensor layer share.

Operands are of any one class: IR values, or tensors. `like` is any operand; it only says of which.
"""

from __future__ import annotations

from typing import Any

from lucid.ir import ops
from lucid.ir.op import Operand
from lucid.ir.types import DType, Shape, i64

__all__ = [
    "broadcast_to", "expand_reduced", "flip", "full", "indices", "keep_axes", "kept_axes",
    "one", "ones_like", "reshape_to", "slice_axis", "sum_to_shape", "swap_axes",
    "with_diagonal", "zero", "zeros_like",
]  # fmt: skip


def zero(like: Operand) -> Any:
    """Return the 0-d 0 of the dtype of `like`, which broadcasts with it.

    Args:
        like: decides the dtype, and by its class what is made: a value of its graph, or a tensor.

    >>> from lucid.ir import ops
    >>> ops.zero(lucid.tensor([2, 3]))
    tensor(0)
    """
    return like.constant(0, like.dtype)


def one(like: Operand) -> Any:
    """Return the 0-d 1 of the dtype of `like`, which broadcasts with it.

    Args:
        like: decides the dtype, and by its class what is made: a value of its graph, or a tensor.

    >>> from lucid.ir import ops
    >>> ops.one(lucid.tensor([2, 3]))
    tensor(1)
    """
    return like.constant(1, like.dtype)


def full(like: Operand, value: float, shape: Shape, dtype: DType) -> Any:
    """Return a value repeated to a shape: a broadcast constant, not a buffer.

    Args:
        like: decides by its class what is made: a value of its graph, or a tensor.
        value: the number.
        shape: the result's shape.
        dtype: its element type.

    >>> from lucid.ir import ops
    >>> ops.full(lucid.tensor(0.0), 7, (2, 2), lucid.int64)
    tensor([[7, 7],
            [7, 7]])
    """
    filled = like.constant(value, dtype)
    return ops.broadcast(filled, shape=shape) if shape else filled


def zeros_like(x: Operand) -> Any:
    """Return zeros of the shape and dtype of `x`: a broadcast constant, not a buffer.

    Args:
        x: a value or a tensor.

    >>> from lucid.ir import ops
    >>> ops.zeros_like(lucid.tensor([2, 3]))
    tensor([0, 0])
    """
    return full(x, 0, x.shape, x.dtype)


def ones_like(x: Operand) -> Any:
    """Return ones of the shape and dtype of `x`: a broadcast constant, not a buffer.

    Args:
        x: a value or a tensor.

    >>> from lucid.ir import ops
    >>> ops.ones_like(lucid.tensor([2, 3]))
    tensor([1, 1])
    """
    return full(x, 1, x.shape, x.dtype)


def indices(like: Operand, shape: Shape, axis: int, dtype: DType = i64) -> Any:
    """Return each element's index along an axis of a shape: 0, 1, 2 and so on.

    Args:
        like: decides by its class what is made: a value of its graph, or a tensor.
        shape: the result's shape.
        axis: along which the index grows; it repeats along the others.
        dtype: the result's element type. Default: i64.

    >>> from lucid.ir import ops
    >>> ops.indices(lucid.tensor(0.0), (2, 3), 1)
    tensor([[0, 1, 2],
            [0, 1, 2]])
    """
    return like.emit(ops.iota, (), {"shape": shape, "axis": axis, "dtype": dtype})


def kept_axes(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Return `shape` with size 1 on `axes`: what a reduction with keepdims has.

    Args:
        shape: a tuple of sizes.
        axes: positions in it, from 0 on.

    >>> from lucid.ir import ops
    >>> ops.kept_axes((2, 3, 4), (0, 2))
    (1, 3, 1)
    """
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape))


def keep_axes(y: Operand, shape: Shape, axes: tuple[int, ...]) -> Any:
    """Give `y`, reduced from `shape` over `axes`, these axes back with size 1.

    Args:
        y: of `shape` without `axes`.
        shape: what was reduced.
        axes: over which of its axes, from 0 on.

    >>> from lucid.ir import ops
    >>> ops.keep_axes(lucid.tensor([1.0, 2.0]), (2, 3), (1,)).shape
    lucid.Size([2, 1])
    """
    return reshape_to(y, kept_axes(shape, axes))


def expand_reduced(g: Operand, shape: Shape, axes: tuple[int, ...]) -> Any:
    """Repeat `g`, of the shape that a reduction of `shape` over `axes` has, back to `shape`.

    It is the transpose of a sum.

    Args:
        g: of `shape` without `axes`.
        shape: what was reduced.
        axes: over which of its axes, from 0 on.

    >>> from lucid.ir import ops
    >>> ops.expand_reduced(lucid.tensor([1.0, 2.0]), (2, 3), (1,))
    tensor([[1., 1., 1.],
            [2., 2., 2.]])
    """
    return broadcast_to(keep_axes(g, shape, axes), shape)


def reshape_to(x: Operand, shape: Shape) -> Any:
    """Reshape to a shape, unless `x` has it, and is returned as it is.

    Args:
        x: a value or a tensor.
        shape: sizes with the same product; none is -1.

    >>> from lucid.ir import ops
    >>> ops.reshape_to(lucid.tensor([1.0, 2.0]), (2, 1))
    tensor([[1.],
            [2.]])
    """
    return x if x.shape == shape else ops.reshape(x, shape=shape)


def broadcast_to(x: Operand, shape: Shape) -> Any:
    """Broadcast to a shape, unless `x` has it, and is returned as it is.

    Args:
        x: a value or a tensor.
        shape: what its shape broadcasts to, aligned at the last axis.

    >>> from lucid.ir import ops
    >>> ops.broadcast_to(lucid.tensor([1.0, 2.0]), (2, 2))
    tensor([[1., 2.],
            [1., 2.]])
    """
    return x if x.shape == shape else ops.broadcast(x, shape=shape)


def sum_to_shape(g: Operand, shape: Shape) -> Any:
    """Sum over the axes that broadcasting from `shape` repeated: the transpose of broadcasting.

    Args:
        g: a value or a tensor of a shape that `shape` broadcasts to.
        shape: the result's.

    >>> from lucid.ir import ops
    >>> ops.sum_to_shape(lucid.ones(2, 3), (3,))
    tensor([2., 2., 2.])
    """
    lead = len(g.shape) - len(shape)
    if not lead and g.shape == shape:
        return g
    repeated = (axis for axis, size in enumerate(shape) if size == 1 and g.shape[lead + axis] != 1)
    axes = (*range(lead), *(lead + axis for axis in repeated))
    return reshape_to(ops.sum(g, axes=axes) if axes else g, shape)


def flip(x: Operand, axis: int) -> Any:
    """Reverse the order of the elements along one axis; a view, by a slice with step -1.

    Args:
        x: a value or a tensor.
        axis: which one, from 0 on.

    >>> from lucid.ir import ops
    >>> ops.flip(lucid.tensor([1.0, 2.0, 3.0]), 0)
    tensor([3., 2., 1.])
    """
    size = x.shape[axis]
    return slice_axis(x, axis, size - 1, -1, -1) if size else x


def slice_axis(x: Operand, axis: int, start: int, stop: int, step: int = 1) -> Any:
    """Slice one axis and keep the others; a stop of -1 is before index 0, for negative steps.

    Args:
        x: a value or a tensor.
        axis: which one, from 0 on.
        start: the first index.
        stop: where it ends, an index that isn't part of it; none counts from the end.
        step: the distance between indices, not 0.

    >>> from lucid.ir import ops
    >>> ops.slice_axis(lucid.tensor([1.0, 2.0, 3.0]), 0, 2, -1, -1)
    tensor([3., 2., 1.])
    """
    starts, stops, steps = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return ops.slice(x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def swap_axes(x: Operand, a: int, b: int) -> Any:
    """Exchange two axes; negative ones count from the end. The result is a view.

    Args:
        x: a value or a tensor.
        a, b: the two axes.

    >>> from lucid.ir import ops
    >>> ops.swap_axes(lucid.ones(2, 3, 4), 0, -1).shape
    lucid.Size([4, 3, 2])
    """
    order = list(range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    return ops.transpose(x, perm=tuple(order))


def with_diagonal(x: Operand, new: Operand) -> Any:
    """Return square matrices with other numbers on their diagonals.

    Shapes: x: (…, n, n), new: (…, n).

    Args:
        x: the matrices.
        new: what the diagonals become.

    >>> from lucid.ir import ops
    >>> ops.with_diagonal(lucid.zeros(2, 2), lucid.tensor([3.0, 5.0]))
    tensor([[3., 0.],
            [0., 5.]])
    """
    n = x.shape[-1]
    rows, columns = (indices(x, (n, n), axis) for axis in (0, 1))
    return ops.where(ops.eq(rows, columns), ops.reshape(new, shape=(*new.shape, 1)), x)
