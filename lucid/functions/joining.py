"""Joining tensors, cutting them apart, and shifting their elements.

Args:
    tensors: a list or tuple of at least one tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any

import numpy as np

from lucid.autograd.native import fused, program
from lucid.autograd.node import PartsNode
from lucid.choices import check_choice
from lucid.docstrings import like, maps
from lucid.functions.arguments import (
    axis_of,
    distinct_axes,
    integer,
    is_live,
    require_listable,
    sizes_of,
    tensor_of,
)
from lucid.functions.creation import arange
from lucid.functions.elementwise import choose, clone
from lucid.functions.promotion import Number, common_dtype, operand
from lucid.functions.shape import (
    broadcast,
    movedim,
    permuted,
    range_along,
    reshaped,
    sliced,
    unsqueeze,
)
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, OptionError, ShapeError
from lucid.ir.extents import is_open
from lucid.ir.location import user_spot
from lucid.ir.memory import read_only
from lucid.ir.ops.rules import broadcast_all
from lucid.ir.strides import reshape_strides
from lucid.ir.types import DType, Shape, i64
from lucid.tensor.context import context, within
from lucid.tensor.core import (
    constant,
    emit,
    is_recorded_alone,
    is_unrecorded,
    of_array,
    view_of_memory,
)
from lucid.tensor.levels import note_turn

__all__ = [
    "broadcast_shapes", "broadcast_tensors", "cat", "chunk", "concat", "concatenate", "diag",
    "diag_embed", "diagonal", "hstack", "meshgrid", "roll", "row_stack", "split", "stack", "trace",
    "tril", "triu", "unbind", "vstack",
]  # fmt: skip

Tensors = Sequence[Tensor]


def _listed(tensors: Any, op: str) -> list[Tensor]:
    if isinstance(tensors, Tensor):
        raise ArgumentError(f"{op}: takes a list or tuple of tensors, not a Tensor")
    parts = [tensor_of(part, op, f"element {i}") for i, part in enumerate(tensors)]
    if not parts:
        raise OptionError(f"{op}: expected a non-empty list of Tensors")
    return parts


def cat(tensors: Tensors, dim: int = 0) -> Tensor:
    """Join tensors along an axis that all of them have.

    Vectors without elements, of shape (0,), fit whatever the other shapes are, as in PyTorch.

    Shapes: the other axes have the same sizes; along `dim` the sizes are added.
    dtype: what the dtypes promote to.

    Raises:
        ShapeError: a tensor is 0-d, or sizes on another axis differ.
        OptionError: there are no tensors.

    >>> lucid.cat([lucid.tensor([1, 2]), lucid.tensor([3])])
    tensor([1, 2, 3])
    >>> lucid.cat([lucid.zeros(2, 1), lucid.ones(2, 2)], 1)
    tensor([[0., 1., 1.],
            [0., 1., 1.]])
    """
    rows = None if context.recorder is None else context.recorder.rows_in(tensors)
    if rows is not None:
        axis = axis_of(dim, rows.ndim - 1, "cat")
        moved = movedim(rows, 0, axis)
        shape = moved._type.shape
        return reshaped(moved, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))
    parts = _listed(tensors, "cat")
    real = [part for part in parts if part._type.shape != (0,)] or parts
    if () in [part._type.shape for part in real]:
        raise ShapeError("cat: zero-dimensional tensor cannot be concatenated\nhint: use stack")
    axis = axis_of(dim, real[0].ndim, "cat")
    shape = real[0]._type.shape
    nothing = (*shape[:axis], 0, *shape[axis + 1 :])
    left_out = [part for part in parts if part._type.shape == (0,) != shape]
    joined = [*real, *(reshaped(part, nothing) for part in left_out if part.requires_grad)]
    return _joined(joined, axis, common_dtype(parts, "cat"))


def _joined(parts: Tensors, axis: int, dtype: DType) -> Tensor:
    return emit(ops.concat, tuple([operand(part, dtype, "cat") for part in parts]), axis=axis)


concat = concatenate = cat


def stack(tensors: Tensors, dim: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis, which becomes axis `dim` of the result.

    dtype: what the dtypes promote to.

    Args:
        tensors: a list or tuple of at least one tensor, 0-d ones too.
        dim: where the new axis goes; -1 puts it last.

    Raises:
        ShapeError: the shapes differ.
        OptionError: there are no tensors.

    >>> x, y = lucid.tensor([1, 2]), lucid.tensor([3, 4])
    >>> lucid.stack([x, y])
    tensor([[1, 2],
            [3, 4]])
    >>> lucid.stack([x, y], -1)
    tensor([[1, 3],
            [2, 4]])
    """
    rows = None if context.recorder is None else context.recorder.rows_in(tensors)
    if rows is not None:
        return movedim(rows, 0, axis_of(dim, rows.ndim, "stack"))
    parts = _listed(tensors, "stack")
    shape = parts[0]._type.shape
    if any(part._type.shape != shape for part in parts):
        raise ShapeError("stack: expects each tensor to be equal size")
    axis = axis_of(dim, len(shape) + 1, "stack")
    longer = (*shape[:axis], 1, *shape[axis:])
    longer_parts = [reshaped(part, longer) for part in parts]
    return _joined(longer_parts, axis, common_dtype(longer_parts, "stack"))


def hstack(tensors: Tensors) -> Tensor:
    """Join tensors side by side: along axis 1, vectors and 0-d tensors along axis 0.

    The first tensor decides which of the two it is. dtypes are promoted.

    Raises:
        ShapeError: sizes on another axis differ.

    >>> lucid.hstack([lucid.tensor([1, 2]), lucid.tensor([3])])
    tensor([1, 2, 3])
    >>> lucid.hstack([lucid.tensor([[1], [2]]), lucid.tensor([[3], [4]])])
    tensor([[1, 3],
            [2, 4]])
    """
    parts = [part if part.ndim else reshaped(part, (1,)) for part in _listed(tensors, "hstack")]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Tensors) -> Tensor:
    """Join tensors one below the other, along axis 0; vectors and 0-d tensors count as one row.

    dtypes are promoted.

    Raises:
        ShapeError: rows have different lengths.

    >>> lucid.vstack([lucid.tensor([1, 2]), lucid.tensor([[3, 4], [5, 6]])])
    tensor([[1, 2],
            [3, 4],
            [5, 6]])
    """
    parts = _listed(tensors, "vstack")
    return cat([p if p.ndim >= 2 else reshaped(p, (1, p._type.size)) for p in parts], 0)


row_stack = vstack


def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of the parts of `tensor` along `dim`, of one size or of the listed sizes.

    With one size the last part may be smaller; an axis of size 0 gives one empty part. `chunk`
    takes the number of parts.

    Args:
        tensor: what is cut.
        split_size_or_sections: an int, the size of each part, or a list of sizes that sum to that
            of the axis.

    Raises:
        ShapeError: the listed sizes don't sum to the size of the axis, one is negative, or the
            tensor is 0-d.
        OptionError: the size is negative, or 0 where the axis isn't.

    >>> lucid.split(lucid.arange(5), 2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    >>> lucid.split(lucid.arange(5), [1, 4])
    (tensor([0]), tensor([1, 2, 3, 4]))
    """
    x = tensor_of(tensor, "split")
    axis = axis_of(dim, x.ndim, "split")
    if not x.ndim:
        raise ShapeError("split: split expects at least a 1-dimensional tensor")
    size = x._type.shape[axis]
    if isinstance(split_size_or_sections, (tuple, list)):
        sizes = list(sizes_of((split_size_or_sections,), "split"))
        if any(part < 0 for part in sizes):
            raise ShapeError(f"split: expects split_sizes have only non-negative entries: {sizes}")
        if sum(sizes) != size:
            raise ShapeError(f"split: split_sizes must sum to {size} on axis {axis}, not {sizes}")
    else:
        step = integer(split_size_or_sections, "split", "split_size")
        if step < 0 or (step == 0 and size):
            raise OptionError(f"split: expects split_size be non-negative, but got {step}")
        require_listable(size // (step or 1), "split")
        sizes = [min(step, size - at) for at in range(0, size, step or 1)] or [0]
    return parts_along(x, axis, sizes)


def split_method(self: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of the parts of the tensor along `dim`, of one size or of the listed sizes.

    As `lucid.split`, whose second argument PyTorch calls otherwise on the method.

    Args:
        split_size: an int, the size of each part but for the last, or a list of sizes that sum to
            that of the axis.

    Raises:
        ShapeError: the listed sizes don't sum to the size of the axis.

    >>> lucid.arange(5).split(3)
    (tensor([0, 1, 2]), tensor([3, 4]))
    >>> lucid.arange(5).unsafe_split([1, 4])
    (tensor([0]), tensor([1, 2, 3, 4]))
    """
    return split(self, split_size, dim)


split_method.__name__ = "split"


@maps("lucid.arange(5)", "4", "(tensor([0, 1]), tensor([2, 3]), tensor([4]))")
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of at most `chunks` parts of equal size along `dim`, the last maybe smaller.

    The size is rounded up, so there may be fewer parts than were asked for: 5 elements in 4 chunks
    are 3 parts. An axis of size 0 gives exactly `chunks` empty ones. `tensor_split` always gives
    the number asked for.

    Args:
        chunks: the number of parts, above 0.

    Raises:
        OptionError: `chunks` isn't above 0.
        ShapeError: the tensor is 0-d.
    """
    if chunks <= 0:
        raise OptionError(f"chunk: expects `chunks` to be greater than 0, got: {chunks}")
    x = tensor_of(input, "chunk")
    axis = axis_of(dim, x.ndim, "chunk")
    if not x.ndim:
        raise ShapeError("chunk: chunk expects at least a 1-dimensional tensor")
    size = x._type.shape[axis]
    if not size:
        require_listable(chunks, "chunk")
        return split(x, [0] * chunks, axis)
    return split(x, -(-size // chunks), axis)


@like(chunk)
@maps("[[1, 2], [3, 4]]", "1", "(tensor([1, 3]), tensor([2, 4]))")
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Return a tuple of views, one for each index along `dim`, without that axis.

    It is what iterating over a tensor gives, for any axis.

    Raises:
        ShapeError: the tensor is 0-d.
    """
    x = tensor_of(input, "unbind")
    axis = axis_of(dim, x.ndim, "unbind")
    if not x.ndim:
        raise ShapeError("unbind: Dimension specified as 0 but tensor has no dimensions")
    require_listable(x._type.shape[axis], "unbind")
    if context.recorder is not None and is_open(x._type.shape[axis]) and not context.levels:
        made: tuple[Tensor, ...] = context.recorder.rows_of(x, axis)
        return made
    return rows_along(x, axis)


def rows_along(x: Tensor, axis: int) -> tuple[Tensor, ...]:
    """The same for an axis from the front, whose size is known."""
    return parts_along(x, axis, [1] * x._type.shape[axis], are_rows=True)


def parts_along(
    x: Tensor, axis: int, sizes: list[int], *, are_rows: bool = False
) -> tuple[Tensor, ...]:
    """Views of all of a tensor, one beside the other along an axis, with one history.

    Args:
        sizes: of the parts; they sum to that of the axis.
        are_rows: whether the parts, all of size 1, lose the axis.
    """
    if len(sizes) < 2 or not is_recorded_alone(x):
        return _views_along(x, axis, sizes, are_rows)
    op = ops.reshape if are_rows else ops.slice
    if context.levels:
        parts = _views_along(x, axis, sizes, are_rows)
        context.levels[-1].share_history(partial(PartsNode, op, axis, are_rows), x, parts)
        return parts
    parts = within({"grad_enabled": False}, _views_along, x, axis, sizes, are_rows)
    PartsNode(op, axis, are_rows, x, parts)
    return parts


_MOST_OF_A_RECORD = 128  # values (`runtime.entry.calls.MOST_VALUES`); up to that it is as fast


def _views_along(x: Tensor, axis: int, sizes: list[int], are_rows: bool) -> tuple[Tensor, ...]:
    shape = x._type.shape
    rest = (*shape[:axis], *shape[axis + 1 :])
    ends = list(accumulate(sizes))
    ranges = zip([0, *ends], ends, strict=False)
    axes = rest if are_rows else (*sizes, *rest)
    is_long = len(sizes) * (1 + are_rows) >= _MOST_OF_A_RECORD
    if is_long and x._array is not None and min(axes, default=2) > 1:
        note_turn()
        if is_unrecorded(x):
            return _seen_in_memory(x, axis, ranges, are_rows)
    if not are_rows:
        return tuple([sliced(x, axis, start, stop) for start, stop in ranges])
    return tuple([reshaped(sliced(x, axis, start, stop), rest) for start, stop in ranges])


def _seen_in_memory(
    x: Tensor, axis: int, ranges: Iterable[tuple[int, int]], are_rows: bool
) -> tuple[Tensor, ...]:
    """The same views where nobody keeps their history, without an op for each.

    Axes of size 1 are left to the ops.
    """
    memory: Any = x._array
    shape, before, spot = memory.shape, (slice(None),) * axis, user_spot()
    last = ((ops.reshape, {"shape": (*shape[:axis], *shape[axis + 1 :])}),) if are_rows else ()
    parts = []
    for start, stop in ranges:
        part = memory[(*before, start, ...) if are_rows else (*before, slice(start, stop))]
        taken = ops.slice, range_along(shape, axis, start, stop, 1)
        parts.append(view_of_memory(x, part, taken, *last, spot=spot))
    return tuple(parts)


@maps("[[1, 2], [3, 4], [5, 6]]", "-1", "0", "[[3, 4], [5, 6], [1, 2]]")
@maps("[1, 2, 3, 4]", "1", "[4, 1, 2, 3]")
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Return a copy with the elements moved along the axes, in a circle.

    What falls off at the end comes in at the front, and the other way round. Without `dims` the
    flattened tensor is rolled, and gets its shape back.

    Args:
        shifts: how far, an int or one for each axis; negative ones move towards the front, any size
            counts modulo the axis.
        dims: an axis, or as many as shifts. Default: None, the flattened tensor.

    Raises:
        ArgumentError: there are more shifts than axes, or fewer.
    """
    x = tensor_of(input, "roll")
    amounts = shifts if isinstance(shifts, (tuple, list)) else (shifts,)
    if dims is None or (isinstance(dims, tuple) and not dims):
        if len(amounts) != 1:
            raise ArgumentError("roll: shifts and dimensions must align")
        return reshaped(roll(reshaped(x, (x._type.size,)), amounts[0], 0), x._type.shape)
    axes = dims if isinstance(dims, (tuple, list)) else (dims,)
    if len(amounts) != len(axes):
        raise ArgumentError(f"roll: {len(amounts)} shifts and {len(axes)} dims must align")
    result = x
    for amount, dim in zip(amounts, axes, strict=True):
        axis = axis_of(dim, x.ndim, "roll")
        size = x._type.shape[axis]
        if size and (is_open(amount) or (is_live(amount) and isinstance(amount, int))):
            places = (arange(size) - constant(amount, i64)) % size
            result = ops.take(result, places, axis=axis)
            continue
        cut = (size - integer(amount, "roll", "shifts")) % size if size else 0
        if cut:
            result = cat([sliced(result, axis, cut, size), sliced(result, axis, 0, cut)], axis)
    return clone(x) if result is x else result


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return the diagonal of two axes, which becomes the last axis of the result.

    With an offset beyond the matrix it has no elements.

    Aliasing: a view, which writes show through.

    Args:
        input: a tensor of at least two axes.
        dim1: the axis of rows.
        dim2: the axis of columns.

    Raises:
        OptionError: both axes are the same.
        IndexOutOfRangeError: there is no such axis.

    >>> x = lucid.tensor([[1, 2, 3], [4, 5, 6]])
    >>> lucid.diagonal(x)
    tensor([1, 5])
    >>> lucid.diagonal(x, 1)
    tensor([2, 6])
    """
    x = tensor_of(input, "diagonal")
    first, second = axis_of(dim1, x.ndim, "diagonal"), axis_of(dim2, x.ndim, "diagonal")
    if first == second or x.ndim < 2:
        raise OptionError(f"diagonal: diagonal dimensions cannot be identical {dim1}, {dim2}")
    rest = tuple(axis for axis in range(x.ndim) if axis not in (first, second))
    if rest or (first, second) != (0, 1):
        x = permuted(x, (*rest, first, second))
    offset = integer(offset, "diagonal", "offset")
    *outer, rows, columns = x._type.shape
    length = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    row, column = (max(-offset, 0), max(offset, 0)) if length else (0, 0)
    flat = (*outer, rows * columns)
    if reshape_strides(x._type.shape, x.element_strides(), flat) is None:
        square = sliced(x, len(outer), row, row + length, 1)
        square = sliced(square, len(outer) + 1, column, column + length, 1)
        return emit(ops.diagonal, (square,))
    start = row * columns + column  # a write through these views is one to the diagonal alone
    stop = start + (length - 1) * (columns + 1) + 1 if length else start
    return sliced(reshaped(x, flat), len(outer), start, stop, columns + 1)


@maps("[[1, 2], [3, 4]]", "[1, 4]")
@maps("[1, 2]", "[[1, 0], [0, 2]]")
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """Return the square matrix with a vector on its diagonal, or a matrix's diagonal as a copy.

    Applied twice it gives the vector back. `diagonal` gives a view.

    Args:
        input: a vector or a matrix.
        diagonal: which one; above 0 right of the main diagonal, below 0 left of it.

    Raises:
        ShapeError: it is neither a vector nor a matrix.
    """
    x, diagonal = tensor_of(input, "diag"), integer(diagonal, "diag", "diagonal")
    if x.ndim == 1:
        return diag_embed(x, diagonal)
    if x.ndim == 2:
        return clone(_diagonal(x, diagonal))
    raise ShapeError(f"diag: Supports 1D or 2D tensors. Got {x.ndim}D")


_diagonal = diagonal


@maps("[1, 2]", "1", "[[0, 1, 0], [0, 0, 2], [0, 0, 0]]")
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return square matrices with the vectors along the last axis on their diagonals.

    All other elements are zero.

    Shapes: (..., n) to (..., m, m) with m = n + |offset|; the two last axes at `dim1` and `dim2`.

    Args:
        input: a tensor of at least one axis.
        dim1: where the matrices' rows are in the result.
        dim2: where their columns are, another axis.

    Raises:
        IndexOutOfRangeError: there are no such axes.
        OptionError: they are the same.
    """
    x = tensor_of(input, "diag_embed")
    places = distinct_axes((dim1, dim2), x.ndim + 1, "diag_embed")
    return movedim(_on_diagonal(x, integer(offset, "diag_embed", "offset")), (-2, -1), places)


@program
def _on_diagonal(x: Tensor, offset: int) -> Tensor:
    """Square matrices along the last two axes.

    In one laid out row by row an element of the diagonal has as many zeros behind it as a row.
    """
    *batch, length = x._type.shape
    size = length + abs(offset)
    flat = reshaped(pad(unsqueeze(x, -1), (0, size)), (*batch, length * (size + 1)))
    start = max(offset, -offset * size)
    flat = pad(flat, (start, size * size - start - length * (size + 1)))
    return reshaped(flat, (*batch, size, size))


def _row(rows: int, columns: int) -> Tensor:
    return emit(ops.iota, (), shape=(rows, columns), axis=0, dtype=i64)


def _column(rows: int, columns: int) -> Tensor:
    return emit(ops.iota, (), shape=(rows, columns), axis=1, dtype=i64)


@maps("[[1.0, 2.0], [3.0, 4.0]]", "tensor(5.)")
def trace(input: Tensor) -> Tensor:
    """Return the sum of the elements on a matrix's main diagonal, as a 0-d tensor.

    The matrix need not be square.

    Args:
        input: a matrix.

    Raises:
        ShapeError: it is no matrix.
    """
    if input.ndim != 2:
        raise ShapeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return diagonal(input).sum()


@maps("[[1, 2], [3, 4]]", "[[1, 0], [3, 4]]")
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """Return a copy of the matrices with zeros above the given diagonal: their lower triangles.

    Shapes: (..., n, m), the result's too.

    Args:
        input: a tensor of at least two axes.
        diagonal: the last one that is kept; above 0 right of the main one, below 0 left of it.

    Raises:
        ShapeError: it has fewer than two axes.
    """
    return _triangle(input, "tril", diagonal)


@like(tril)
@maps("[[1, 2], [3, 4]]", "1", "[[0, 2], [0, 0]]")
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """Return a copy of the matrices with zeros below the given diagonal: their upper triangles.

    Args:
        diagonal: the first one that is kept; above 0 right of the main one, below 0 left of it.
    """
    return _triangle(input, "triu", diagonal)


@fused
def _triangle(input: Tensor, op: str, diagonal: int) -> Tensor:
    x = tensor_of(input, op)
    if x.ndim < 2:
        raise ShapeError(f"{op}: input tensor must have at least 2 dimensions")
    rows, columns = x._type.shape[-2:]
    diagonal = integer(diagonal, op, "diagonal")
    if context.recorder is None and not context.levels and type(diagonal) is int:
        return choose(_known_triangle(rows, columns, op, diagonal), x, False)
    distance = _column(rows, columns) - _row(rows, columns)
    inside = distance <= diagonal if op == "tril" else distance >= diagonal
    return choose(inside, x, False)


@lru_cache(64)
def _known_triangle(rows: int, columns: int, op: str, diagonal: int) -> Tensor:
    """Where the elements of a triangle lie, which nobody writes."""
    inside = np.tri(rows, columns, diagonal if op == "tril" else diagonal - 1, bool)
    return of_array(read_only(inside if op == "tril" else ~inside))


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: Number | None = None
) -> Tensor:
    """Return a copy with `value` added around the tensor; negative widths cut from it.

    Shapes: `pad` holds (before, after) of the last axis, then of the one before it, and so on.

    Args:
        pad: the widths, two for each axis, beginning with the last one.
        mode: "constant", which is what there is here.
        value: what to add. Default: None, which is 0.

    Raises:
        ShapeError: there is an odd number of widths, or more than two for each axis, or more is cut
            than there is.
        OptionError: the mode is another one.
    """
    if mode != "constant":
        raise OptionError(f"pad: mode 'constant' is what there is, not {mode!r}")
    x = tensor_of(input, "pad")
    widths = tuple(integer(width, "pad", "width") for width in pad)
    if len(widths) % 2 or len(widths) // 2 > x.ndim:
        raise ShapeError(
            f"pad: needs a pair of widths for at most {x.ndim} axes, not {list(widths)}"
        )
    low, high = [0] * x.ndim, [0] * x.ndim
    for i in range(len(widths) // 2):
        low[-1 - i], high[-1 - i] = widths[2 * i], widths[2 * i + 1]
    x = _cropped(x, low, high)
    filling = operand(0 if value is None else value, x._type.dtype, "pad")
    positive_low, positive_high = (tuple(max(w, 0) for w in side) for side in (low, high))
    return emit(ops.pad, (x, filling), low=positive_low, high=positive_high)


def _cropped(x: Tensor, low: list[int], high: list[int]) -> Tensor:
    for axis, size in enumerate(x._type.shape):
        start, stop = max(-low[axis], 0), size - max(-high[axis], 0)
        if stop < start:
            raise ShapeError(f"pad: cuts more than the {size} elements of axis {axis}")
        if (start, stop) != (0, size):
            x = sliced(x, axis, start, stop)
    return x


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return views of all tensors in the shape that they broadcast to.

    Repeated elements share one place in memory, so clone a view before writing to it.

    Args:
        *tensors: the tensors, of any dtypes, which stay as they are.

    Raises:
        ShapeError: the shapes don't broadcast.

    >>> lucid.broadcast_tensors(lucid.tensor([[1], [2]]), lucid.tensor([5, 6]))
    (tensor([[1, 1],
            [2, 2]]), tensor([[5, 6],
            [5, 6]]))
    """
    shapes = [tensor._type.shape for tensor in tensors]
    shape = broadcast_all(*shapes)
    if shape is None:
        raise _no_broadcast(shapes)
    return tuple(broadcast(tensor, shape) for tensor in tensors)


@maps("(2, 1)", "(3,)", "lucid.Size([2, 3])")
def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the shape that all shapes broadcast to, without making a tensor.

    Shapes are aligned at their last axes; sizes agree where they are equal or one is 1.

    Args:
        *shapes: tuples of ints.

    Raises:
        ShapeError: they don't broadcast.
    """
    from lucid.tensor.size import Size

    try:
        return Size(np.broadcast_shapes(*shapes))
    except ValueError:
        raise _no_broadcast(shapes) from None


def _no_broadcast(shapes: Sequence[Shape]) -> ShapeError:
    listed = ", ".join(str(list(shape)) for shape in shapes)
    return ShapeError(f"broadcast_shapes: {listed} don't broadcast to one shape")


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Return views of vectors spread over a grid, one axis for each vector.

    Element (i, j) of the first is element i of the first vector, of the second element j of the
    second one.

    Shapes: vectors of n, m, … elements give tensors of shape (n, m, …), with "xy" (m, n, …).

    Args:
        *tensors: vectors or 0-d tensors, or one list of them.
        indexing: "ij", or "xy", which swaps the first two axes.

    Raises:
        OptionError: the indexing is neither of the two.
        ShapeError: a tensor has more than one axis.

    >>> rows, columns = lucid.meshgrid(lucid.arange(2), lucid.arange(3))
    >>> rows
    tensor([[0, 0, 0],
            [1, 1, 1]])
    >>> columns
    tensor([[0, 1, 2],
            [0, 1, 2]])
    """
    check_choice(indexing, "indexing", "meshgrid", ("ij", "xy"))
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    if any(tensor_of(vector, "meshgrid").ndim > 1 for vector in tensors):
        raise ShapeError("meshgrid: expects 0-d or 1-d tensors")
    vectors = [reshaped(vector, (vector._type.size,)) for vector in tensors]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(order) > 1:
        order[0], order[1] = 1, 0
    sizes = [0] * len(order)
    for axis, vector in zip(order, vectors, strict=True):
        sizes[axis] = vector._type.size
    return tuple(
        broadcast(
            reshaped(vector, (vector._type.size, *(1,) * (len(order) - 1 - axis))), tuple(sizes)
        )
        for axis, vector in zip(order, vectors, strict=True)
    )
