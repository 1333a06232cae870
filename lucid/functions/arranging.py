"""Arranging elements: more ways to join, cut, turn and index, and to write a part of a copy."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from functools import partial
from itertools import combinations as _combinations, combinations_with_replacement
from typing import Any

import numpy as np

from lucid.device import check_device
from lucid.docstrings import like, maps
from lucid.dtypes import as_dtype
from lucid.functions.arguments import (
    axis_of,
    distinct_axes,
    integer,
    require_computable,
    require_listable,
    shape_of,
    sizes_of,
    tensor_of,
)
from lucid.functions.checks import require_index
from lucid.functions.conversion import cast
from lucid.functions.elementwise import choose, clone
from lucid.functions.from_data import from_numpy
from lucid.functions.joining import (
    cat,
    diag_embed,
    diagonal,
    meshgrid,
    pad,
    pad as _padded,
    parts_along,
    split,
    stack,
)
from lucid.functions.reduction import norm, sum
from lucid.functions.shape import (
    broadcast,
    flip,
    matrix_transpose,
    movedim,
    reshaped,
    transpose,
    unsqueeze,
)
from lucid.functions.tensors import Tensor
from lucid.functions.updates import Update, updating
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, DTypeError, OptionError, ShapeError
from lucid.ir.strides import contiguous_strides
from lucid.ir.types import i64
from lucid.layouts import check_layout
from lucid.tensor.core import emit, from_array

__all__ = [
    "adjoint", "as_strided", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag",
    "cartesian_prod", "column_stack", "combinations", "constant_pad_nd", "diagflat",
    "diagonal_scatter", "dsplit", "dstack", "hsplit", "put", "renorm", "rot90", "select_scatter",
    "slice_scatter", "split_with_sizes", "tensor_split", "tril_indices", "triu_indices",
    "unravel_index", "vsplit",
]  # fmt: skip


def _each(function: Any, tensors: tuple[Any, ...]) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    results = tuple(function(tensor) for tensor in tensors)
    return results[0] if len(results) == 1 else results


@maps("lucid.tensor(3)", "[3]")
def atleast_1d(*tensors: Any) -> Any:
    """Return each tensor with at least one axis, a 0-d one as a vector of one element.

    Aliasing: views, or the tensors themselves.

    Args:
        *tensors: one tensor, several, or one list of them; for several the result is a tuple.
    """
    return _each(lambda x: x if x.ndim else reshaped(x, (1,)), tensors)


@maps("[1, 2]", "[[1, 2]]")
def atleast_2d(*tensors: Any) -> Any:
    """Return each tensor with at least two axes: a vector as a row, a 0-d one as a (1, 1) matrix.

    Aliasing: views where strides allow it, or the tensors themselves.

    Args:
        *tensors: one tensor, several, or one list of them; for several the result is a tuple.
    """
    return _each(lambda x: x if x.ndim >= 2 else reshaped(x, (1, x.numel())), tensors)


def _volume(x: Tensor) -> Tensor:
    shape = x._type.shape
    if len(shape) >= 3:
        return x
    return reshaped(x, (*shape, 1) if len(shape) == 2 else (1, *(shape or (1,)), 1))


def atleast_3d(*tensors: Any) -> Any:
    """Return each tensor with at least three axes, as NumPy places them.

    Shapes: () becomes (1, 1, 1), (n,) becomes (1, n, 1), and (n, m) becomes (n, m, 1).

    Args:
        *tensors: one tensor, several, or one list of them; for several the result is a tuple.

    >>> lucid.atleast_3d(lucid.zeros(4), lucid.zeros(2, 3))[1].shape
    lucid.Size([2, 3, 1])
    """
    return _each(_volume, tensors)


@like(matrix_transpose)
@maps("[[1, 2], [3, 4]]", "[[1, 3], [2, 4]]")
def adjoint(input: Tensor) -> Tensor:
    """Return the view with the last two axes exchanged, which for real numbers is the adjoint."""
    return matrix_transpose(input)


def column_stack(tensors: Any) -> Tensor:
    """Join tensors along axis 1, where vectors and 0-d tensors count as columns.

    dtypes are promoted.

    Args:
        tensors: a list or tuple of tensors with as many rows each.

    Raises:
        ShapeError: the numbers of rows differ.

    >>> lucid.column_stack([lucid.tensor([1, 2]), lucid.tensor([3, 4])])
    tensor([[1, 3],
            [2, 4]])
    """
    return cat([x if x.ndim >= 2 else reshaped(x, (x.numel(), 1)) for x in tensors], 1)


def dstack(tensors: Any) -> Tensor:
    """Join tensors along axis 2, each of them brought to three axes as by `atleast_3d`.

    dtypes are promoted.

    Args:
        tensors: a list or tuple of tensors.

    Raises:
        ShapeError: sizes on another axis differ.

    >>> lucid.dstack([lucid.tensor([1, 2]), lucid.tensor([3, 4])])
    tensor([[[1, 3],
             [2, 4]]])
    """
    return cat([_volume(x) for x in tensors], 2)


@maps("[[1, 2]]", "[[3], [4]]", "[[1, 2, 0], [0, 0, 3], [0, 0, 4]]")
def block_diag(*tensors: Tensor) -> Tensor:
    """Return the matrix with the given ones along its diagonal, and zeros elsewhere.

    Vectors count as rows, 0-d tensors as (1, 1) matrices; dtypes are promoted.

    Shapes: matrices (n_i, m_i) give (sum of n_i, sum of m_i).

    Args:
        *tensors: the blocks, at least one, from the top left.

    Raises:
        ArgumentError: a block is no tensor.
        ShapeError: a tensor of more than two axes.
    """
    blocks = [atleast_2d(tensor_of(x, "block_diag", f"tensor {i}")) for i, x in enumerate(tensors)]
    for block in blocks:
        if block.ndim > 2:
            raise ShapeError(f"block_diag: takes matrices, not a tensor of {block.ndim} axes")
    width, left, rows = builtins.sum(b.shape[1] for b in blocks), 0, []
    for block in blocks:
        rows.append(pad(block, (left, width - left - block.shape[1])))
        left += block.shape[1]
    return cat(rows, 0)


@maps("[1, 2]", "[5, 6]", "[[1, 5], [1, 6], [2, 5], [2, 6]]")
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Return all combinations of one element of each vector as rows.

    The last vector's elements run fastest. One vector is returned itself.

    Shapes: k vectors of n, m, … elements give (n m …, k).

    Args:
        *tensors: vectors, whose dtypes are promoted.

    Raises:
        ShapeError: one is no vector.
    """
    for i, x in enumerate(tensors):
        _require_vector(tensor_of(x, "cartesian_prod", f"tensor {i}"), "cartesian_prod")
    if len(tensors) == 1:
        return tensors[0]
    return stack([reshaped(x, (x.numel(),)) for x in meshgrid(*tensors, indexing="ij")], 1)


def _require_vector(x: Tensor, op: str) -> None:
    if x.ndim != 1:
        raise ShapeError(f"{op}: takes vectors, not a tensor of {x.ndim} axes")


@maps("[1, 2, 3]", "[[1, 2], [1, 3], [2, 3]]")
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return the combinations of `r` elements of a vector as rows, in the order of `itertools`.

    Elements count by their place, so equal ones give equal rows.

    Shapes: (n over r, r).

    Args:
        input: a vector of n elements.
        r: how many elements a row has.
        with_replacement: whether an element may come more than once in a row.

    Raises:
        OptionError: `r` is negative, or without replacement above the length.
        ShapeError: it is no vector.
    """
    x, size = tensor_of(input, "combinations"), integer(r, "combinations", "r")
    _require_vector(x, "combinations")
    choose_from = combinations_with_replacement if with_replacement else _combinations
    rows = _combination_count(x._type.size, size, with_replacement)
    require_computable((rows, size), "combinations")
    flat = (place for row in choose_from(range(x._type.size), size) for place in row)
    places = np.fromiter(flat if rows else (), np.int64, rows * size).reshape(rows, size)
    return x[from_array(places)]


def _combination_count(n: int, r: int, with_replacement: bool) -> int:
    """How many rows `combinations` has; of very many it need not be exact."""
    if r < 0:
        raise OptionError(f"combinations: Expect a non-negative number, but got {r}")
    if with_replacement:
        n = n + r - 1 if r else 0
    if r > n:
        return 0
    smaller = min(r, n - r)
    return math.comb(n, smaller) if smaller <= 64 else 2**64  # at least (n / smaller)**smaller


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of nearly equal parts along `dim`, or of the parts between indices.

    A number always gives that many parts, of which the first ones are longer by one and the last
    ones may be empty. Indices are where to cut: [1, 3] gives `[:1]`, `[1:3]` and `[3:]`.

    Args:
        indices_or_sections: the number of parts, above 0, or a list of indices, negative ones from
            the end.

    Raises:
        OptionError: the number of parts isn't above 0.

    >>> lucid.tensor_split(lucid.arange(5), 3)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    >>> lucid.tensor_split(lucid.arange(5), [1, 3])
    (tensor([0]), tensor([1, 2]), tensor([3, 4]))
    """
    x = tensor_of(input, "tensor_split")
    axis = axis_of(dim, x.ndim, "tensor_split")
    size = x._type.shape[axis]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, (tuple, list)):
        ends = [*indices_or_sections, size]
    else:
        count = integer(indices_or_sections, "tensor_split", "sections")
        if count <= 0:
            raise OptionError(f"tensor_split: the number of sections must be > 0, got {count}")
        require_listable(count, "tensor_split")
        longer, length = size % count, size // count
        return parts_along(x, axis, [length + (i < longer) for i in range(count)])
    parts, start = [], 0
    for end in ends:
        end = min(end + size if end < 0 else end, size)
        parts.append(x.narrow(axis, start, max(end - start, 0)) if start <= size else x[:0])
        start = max(end, 0)
    return tuple(parts)


def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of the parts of the listed sizes along `dim`: `split(input, split_sizes, dim)`.

    Args:
        split_sizes: a list of sizes that sum to that of the axis.

    Raises:
        ShapeError: the sizes don't sum to that of the axis.

    >>> lucid.split_with_sizes(lucid.arange(5), [2, 3])
    (tensor([0, 1]), tensor([2, 3, 4]))
    """
    return split(input, list(split_sizes), dim)


def _equal_parts(
    api: str, input: Tensor, indices_or_sections: Any, axis: int
) -> tuple[Tensor, ...]:
    if isinstance(indices_or_sections, int) and indices_or_sections > 0:
        size = input.shape[axis]
        if size % indices_or_sections:
            raise ShapeError(
                f"{api}: the size of axis {axis}, {size}, is not divisible by {indices_or_sections}"
            )
    return tensor_split(input, indices_or_sections, axis)


def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Return views of equal parts along axis 1, the columns of a matrix; of a vector along axis 0.

    With a list of indices it is `tensor_split`.

    Args:
        input: a tensor of at least one axis.
        indices_or_sections: the number of parts, or a list of indices where to cut.

    Raises:
        OptionError: the number of parts isn't above 0.
        ShapeError: the axis can't be cut into so many equal parts.

    >>> lucid.hsplit(lucid.tensor([[1, 2, 3], [4, 5, 6]]), [1])
    (tensor([[1],
            [4]]), tensor([[2, 3],
            [5, 6]]))
    """
    return _equal_parts("hsplit", input, indices_or_sections, 0 if input.ndim == 1 else 1)


@like(hsplit)
@maps("[[1, 2], [3, 4]]", "2", "(tensor([[1, 2]]), tensor([[3, 4]]))")
def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Return views of equal groups of rows; with a list of indices it is `tensor_split`."""
    return _equal_parts("vsplit", input, indices_or_sections, 0)


def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Return views of equal parts in depth, along axis 2.

    With a list of indices it is `tensor_split`.

    Args:
        input: a tensor of at least three axes.
        indices_or_sections: the number of parts, or a list of indices where to cut.

    Raises:
        IndexOutOfRangeError: it has fewer than three axes.
        ShapeError: the axis can't be cut into so many equal parts.

    >>> [part.shape for part in lucid.dsplit(lucid.zeros(2, 2, 6), 2)]
    [lucid.Size([2, 2, 3]), lucid.Size([2, 2, 3])]
    """
    return _equal_parts("dsplit", input, indices_or_sections, 2)


@maps("[[1, 2], [3, 4]]", "[[2, 4], [1, 3]]")
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """Return a copy turned by `k` quarters, from the first of two axes towards the second.

    For a matrix and k = 1 that is counterclockwise; negative turns go clockwise.

    Args:
        input: a tensor of at least two axes.
        k: how many quarters, modulo 4.
        dims: the two axes; negative ones count from the end.

    Raises:
        OptionError: there aren't exactly two axes, which differ.
        IndexOutOfRangeError: there is no such axis.
    """
    x = tensor_of(input, "rot90")
    if len(dims) != 2:
        raise OptionError(f"rot90: expected total rotation dims == 2, but got dims = {len(dims)}")
    first, second = distinct_axes(dims, x.ndim, "rot90")
    turns = integer(k, "rot90", "k") % 4
    if turns == 0:
        return clone(x)
    if turns == 2:
        return flip(x, (first, second))
    if turns == 1:
        return flip(clone(transpose(x, first, second)), (first,))
    return flip(transpose(x, first, second), (second,))


def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Return the windows of `size` elements along an axis, one every `step`, in a new last axis.

    An incomplete window at the end is left out. Windows that overlap share elements in memory.

    Shapes: an axis of n becomes one of (n - size) // step + 1, and the last axis has `size`.

    Args:
        dimension: the axis; negative ones count from the end.
        size: how long a window is.
        step: how far the next one is.

    Raises:
        IndexOutOfRangeError: there is no such axis.
        ShapeError: a window is longer than the axis.
        ArgumentError: `size` or `step` isn't positive.

    >>> lucid.arange(5).unfold(0, 3, 2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    x = tensor_of(input, "unfold")
    axis = axis_of(dimension, x.ndim, "unfold")
    sizes, steps = (integer(size, "unfold", "size"),), (integer(step, "unfold", "step"),)
    windows = emit(ops.windows, (x,), axes=(axis,), sizes=sizes, steps=steps, dilations=(1,))
    return windows


@maps("lucid.arange(6)", "(3, 2)", "(1, 2)", "[[0, 2], [1, 3], [2, 4]]")
def as_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Return a view whose element [i, j, …] is the one at `storage_offset + i * s + j * t + …`.

    Places are counted in the memory of `input`, in elements, with the strides s, t, …; a stride of
    0 repeats, and several axes may show an element more than once. A write to the view shows in
    `input` where each stride is above all that the axes behind it reach, as in a matrix's rows;
    through others none is made.

    Args:
        input: a contiguous tensor.
        size: the shape.
        stride: how far the next element of each axis is, 0 or more.
        storage_offset: where the first element is, counted as `Tensor.storage_offset` is. Default:
            None, at the first element of `input`.

    Raises:
        ShapeError: there are more or fewer strides than sizes, or one is negative, or an element
            would be outside of `input`.
        ArgumentError: `input` isn't contiguous.
    """
    x, shape = tensor_of(input, "as_strided"), shape_of((tuple(size),), "as_strided")
    strides = tuple(integer(step, "as_strided", "stride") for step in stride)
    if len(shape) != len(strides) or any(step < 0 for step in strides):
        raise ShapeError(f"as_strided: size {shape} needs as many strides from 0 on, not {strides}")
    if not x.is_contiguous():
        raise ArgumentError("as_strided: input must be contiguous\nhint: .contiguous() copies it")
    first = 0
    if storage_offset is not None:
        first = integer(storage_offset, "as_strided", "storage_offset")
        first -= x.storage_offset() if x._chain else 0  # of a view, which a trace can't look up
    reach = builtins.sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    stop = first + (0 if 0 in shape else reach + 1)
    if first < 0 or stop > x._type.size:
        raise ShapeError(
            f"as_strided: elements {first} to {stop - 1} of input are needed, of {x._type.size}"
        )
    flat = reshaped(x, (x._type.size,))
    long = [(n, step) for n, step in zip(shape, strides, strict=True) if n > 1 and step]
    if 0 in shape or strides == contiguous_strides(shape) or len(long) < 2:
        step = long[-1][1] if len(long) == 1 else 1
        part = emit(ops.slice, (flat,), starts=(first,), stops=(stop,), steps=(step,))
    else:
        part = emit(ops.slice, (flat,), starts=(first,), stops=(stop,), steps=(1,))
        for n, step in long:
            part = emit(ops.windows, (part,), axes=(0,), sizes=(n,), steps=(1,), dilations=(step,))
    without = [1 if not step and n else n for n, step in zip(shape, strides, strict=True)]
    return broadcast(reshaped(part, tuple(without)), shape)


@maps("[[1], [2]]", "[[1, 0], [0, 2]]")
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """Return the square matrix with all elements of `input`, in row-major order, on its diagonal.

    Args:
        input: a tensor of any shape.
    """
    x = tensor_of(input, "diagflat")
    return diag_embed(reshaped(x, (x._type.size,)), offset)


@maps("2", "2", "[[0, 1, 1], [0, 0, 1]]")
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = i64, device: Any = None, layout: Any = None
) -> Tensor:
    """Return rows and columns of the lower triangle of a matrix, in row-major order.

    `matrix[i, j]` of both vectors picks the triangle's elements.

    Shapes: (2, number of elements), first the rows.

    Args:
        row: the number of rows.
        col: the number of columns.
        offset: the last diagonal that belongs to it; above 0 right of the main one.
        dtype: of the indices. Default: int64.

    Raises:
        ShapeError: a size is negative.
        OptionError: another device or layout.
    """
    shape_of((row, col), "tril_indices")
    check_device(device, "tril_indices")
    check_layout(layout, "tril_indices")
    diagonal = integer(offset, "tril_indices", "offset")
    ends = np.clip(np.arange(1, row + 1) + min(diagonal, col), 0, col)
    return _indices(np.zeros_like(ends), ends, as_dtype(dtype, "tril_indices"))


@like(tril_indices)
@maps("2", "3", "1", "[[0, 0, 1], [1, 2, 2]]")
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = i64, device: Any = None, layout: Any = None
) -> Tensor:
    """Return rows and columns of the upper triangle of a matrix, in row-major order.

    Args:
        offset: the first diagonal that belongs to it; above 0 right of the main one.
    """
    shape_of((row, col), "triu_indices")
    check_device(device, "triu_indices")
    check_layout(layout, "triu_indices")
    diagonal = integer(offset, "triu_indices", "offset")
    starts = np.clip(np.arange(row) + min(diagonal, col), 0, col)
    return _indices(starts, np.full_like(starts, col), as_dtype(dtype, "triu_indices"))


def _indices(starts: np.ndarray, ends: np.ndarray, dtype: Any) -> Tensor:
    """The rows and the columns of what is in a range of each row."""
    counts = ends - starts
    places = np.empty((2, int(counts.sum())), dtype.numpy)
    places[0] = np.repeat(np.arange(len(counts)), counts)
    columns = np.arange(ends.max(initial=0)).astype(dtype.numpy)
    ranges = zip(starts.tolist(), ends.tolist(), strict=True)
    np.concatenate([columns[:0], *(columns[i:j] for i, j in ranges)], out=places[1])
    return from_numpy(places)


@maps("[0, 5]", "(2, 3)", "(tensor([0, 1]), tensor([0, 2]))")
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Return the coordinates of places in a flattened tensor: for each axis of `shape` one tensor.

    It undoes row-major numbering, as `argmax` without a dim gives it. Places beyond the shape
    aren't refused. The coordinates are int64.

    Args:
        indices: integer places, of any shape, which each result has too.
        shape: of the tensor that they count the elements of.

    Raises:
        ShapeError: a size is negative.
        DTypeError: the indices aren't integers.
    """
    rest, found = tensor_of(indices, "unravel_index", "indices"), []
    if rest._type.dtype.kind != "int":
        raise DTypeError(f"unravel_index: indices must be integers, not {rest.dtype!r}")
    rest, sizes = cast(rest, i64), sizes_of((shape,), "unravel_index")
    if any(size < 0 for size in sizes):
        raise ShapeError(f"unravel_index: a size is negative in {list(sizes)}")
    for size in reversed(sizes):
        found.append(rest % size)
        rest = rest // size
    return tuple(reversed(found))


@maps("lucid.zeros(4)", "lucid.ones(2)", "start=1", "end=3", "[0., 1., 1., 0.]")
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """Return a copy of `input` in which the slice `start:end:step` along `dim` is `src`.

    Gradients flow to `src`, and to `input` where it was kept.

    Args:
        src: what to put there; it broadcasts to the slice.
        start: where the slice begins. Default: None, at the front.
        end: where the slice ends. Default: None, at the end.
        step: the distance of neighbours.

    Raises:
        ShapeError: `src` doesn't broadcast to the slice.
    """
    x = tensor_of(input, "slice_scatter")
    axis = axis_of(dim, x.ndim, "slice_scatter")
    key = (*(slice(None),) * axis, slice(start, end, step))
    return _with(x, key, src)


def _with(x: Tensor, key: Any, src: Tensor) -> Tensor:
    copy = clone(x)
    copy[key] = src
    return copy


@maps("lucid.zeros(2, 2)", "lucid.ones(2)", "0", "1", "[[0., 0.], [1., 1.]]")
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Return a copy of `input` in which the part at `index` along `dim` is `src`.

    Gradients flow to `src`, and to `input` where it was kept.

    Args:
        src: what to put there, of the shape of `input` without that axis.
        index: the index; negative ones count from the end.

    Raises:
        IndexOutOfRangeError: there is no such axis, or the index isn't in it.
    """
    x = tensor_of(input, "select_scatter")
    axis = axis_of(dim, x.ndim, "select_scatter")
    return _with(x, (*(slice(None),) * axis, index), src)


@maps("lucid.zeros(2, 2)", "[1.0, 2.0]", "[[1., 0.], [0., 2.]]")
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """Return a copy of `input` in which the diagonal of two axes is `src`.

    It is the write that goes with `diagonal(input, offset, dim1, dim2)`, and `src` has the shape of
    that.

    Args:
        input: a tensor of at least two axes.
        src: what to put on the diagonal.
        dim1: the axis of rows.
        dim2: the axis of columns.

    Raises:
        ShapeError: `src` hasn't the shape of the diagonal.
    """
    x, src = tensor_of(input, "diagonal_scatter"), tensor_of(src, "diagonal_scatter", "src")
    expected = diagonal(x, offset, dim1, dim2)._type.shape
    if src._type.shape != expected:
        raise ShapeError(
            f"diagonal_scatter: src has the shape {list(src._type.shape)}, and the diagonal "
            f"{list(expected)}"
        )
    moved = movedim(x, (dim1, dim2), (-2, -1))
    rows, columns = moved._type.shape[-2:]
    row, column = (emit(ops.iota, (), shape=(rows, columns), axis=a, dtype=i64) for a in (0, 1))
    length, high = src._type.shape[-1], max(offset, 0)
    whole = pad(src, (high, columns - length - high))
    inside = column - row == offset
    return movedim(choose(inside, unsqueeze(whole, -2), moved), (-2, -1), (dim1, dim2))


def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """Return the sum over the axes that a tensor of `size` would be broadcast along.

    It is the transpose of broadcasting: what a gradient needs on its way back through `expand`.

    Args:
        *size: a shape that broadcasts to that of `input`, as ints or as one tuple.

    Raises:
        ShapeError: that shape doesn't broadcast to that of `input`.

    >>> lucid.ones(2, 3).sum_to_size(1, 3)
    tensor([[2., 2., 2.]])
    """
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    x = tensor_of(input, "sum_to_size")
    lead = x.ndim - len(shape)
    pairs = list(zip(x._type.shape[lead:], shape, strict=True)) if lead >= 0 else []
    if lead < 0 or any(mine != wanted and wanted != 1 for mine, wanted in pairs):
        raise ShapeError(f"sum_to_size: size {list(shape)} is not expandable to it")
    axes = [i + lead for i, (mine, wanted) in enumerate(pairs) if wanted != mine]
    if axes:
        x = sum(x, axes, keepdim=True)
    return reshaped(sum(x, tuple(range(lead))) if lead else x, tuple(shape))


@maps("[[3.0, 4.0], [0.3, 0.4]]", "2", "0", "1.0", "[[0.6000, 0.8000], [0.3000, 0.4000]]")
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Return a copy whose slices along `dim` are scaled down to a p-norm of at most `maxnorm`.

    Slices below it are multiplied by 1; the others by maxnorm / (norm + 1e-7), so that no norm
    divides by zero.

    Args:
        p: of the norm.
        dim: the axis whose slices are scaled; negative ones count from the end.
        maxnorm: the greatest norm that stays as it is.
    """
    x = tensor_of(input, "renorm")
    axis = axis_of(dim, x.ndim, "renorm")
    others = tuple(i for i in range(x.ndim) if i != axis)
    size = norm(x, p, others, True)
    return x * choose(size > maxnorm, maxnorm / (size + 1e-7), 1.0)


@updating
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Update:
    """Return a copy with `source` at the places `index` of the flattened tensor.

    Of several elements for one place the last one stays; with `accumulate` all are added to what is
    there.

    Args:
        index: integer places; negative ones count from the end.
        source: as many elements, of the dtype of `input`.
        accumulate: whether to add.

    Raises:
        IndexOutOfRangeError: a place is outside of the tensor.

    >>> x = lucid.tensor([[1, 2], [3, 4]])
    >>> x.put(lucid.tensor([0, -1]), lucid.tensor([8, 9]))
    tensor([[8, 2],
            [3, 9]])
    """
    x = tensor_of(input, "put")
    flat = reshaped(x, (x._type.size,))
    at, values = reshaped(index, (index.numel(),)), reshaped(source, (source.numel(),))
    op = ops.scatter_add if accumulate else ops.scatter
    given = {"input": x, "index": index, "source": source}
    operands = flat, at, values
    require_index("put", op, operands, 0, True, given)
    return Update(op, operands, {"axis": 0}, partial(reshaped, shape=x._type.shape))


@maps("[1, 2]", "(1, 2)", "7", "[7, 1, 2, 7, 7]")
def constant_pad_nd(input: Tensor, pad: Any, value: float = 0) -> Tensor:
    """Return the tensor with `value` around it; negative widths cut.

    Args:
        pad: the widths: (before, after) of the last axis, then of the one before it, and so on.
        value: what to add.

    Raises:
        ShapeError: there is an odd number of widths, or more than two for each axis.
    """
    return _padded(input, pad, value=value)
