"""Arranging elements: more ways to join, cut, turn and index, and to write a part of a copy."""

from __future__ import annotations

import builtins
import math
from itertools import combinations as _combinations
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from lucid.dtypes import as_dtype
from lucid.functions.arguments import (
    axis_of,
    describe,
    integer,
    require_computable,
    require_listable,
    shape_of,
    tensor_of,
)
from lucid.functions.checks import indexed
from lucid.functions.elementwise import choose, clone
from lucid.functions.from_data import from_numpy
from lucid.functions.joining import cat, diag_embed, meshgrid, pad, split, stack
from lucid.functions.joining import pad as _padded
from lucid.functions.reduction import norm, sum
from lucid.functions.shape import (
    flip,
    matrix_transpose,
    movedim,
    reshaped,
    transpose,
    unsqueeze,
)
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.types import i64
from lucid.tensor.core import emit, from_array

# ---------------------------------------------------------------------- ranks


def _each(function: Any, tensors: tuple[Any, ...]) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    results = tuple(function(tensor) for tensor in tensors)
    return results[0] if len(results) == 1 else results


def atleast_1d(*tensors: Any) -> Any:
    """Return each tensor, a 0-d one as a vector; one tensor, or a tuple for several."""
    return _each(lambda x: x if x.ndim else reshaped(x, (1,)), tensors)


def atleast_2d(*tensors: Any) -> Any:
    """Return each tensor with at least two axes, a vector as a row."""
    return _each(lambda x: x if x.ndim >= 2 else reshaped(x, (1, x.numel())), tensors)


def _volume(x: Tensor) -> Tensor:
    shape = x._type.shape
    if len(shape) >= 3:
        return x
    return reshaped(x, (*shape, 1) if len(shape) == 2 else (1, *(shape or (1,)), 1))


def atleast_3d(*tensors: Any) -> Any:
    """Return each tensor with at least three axes, of a matrix a last one of size 1."""
    return _each(_volume, tensors)


def adjoint(input: Tensor) -> Tensor:
    """Return the view with the last two axes exchanged."""
    return matrix_transpose(input)


# ---------------------------------------------------------------------- joining and cutting


def column_stack(tensors: Any) -> Tensor:
    """Join along axis 1, vectors as columns."""
    return cat([x if x.ndim >= 2 else reshaped(x, (x.numel(), 1)) for x in tensors], 1)


def dstack(tensors: Any) -> Tensor:
    """Join along axis 2, after `atleast_3d`."""
    return cat([_volume(x) for x in tensors], 2)


def block_diag(*tensors: Tensor) -> Tensor:
    """Return the matrix with the given ones along its diagonal, zeros elsewhere."""
    blocks = [atleast_2d(tensor_of(x, "block_diag", f"tensor {i}")) for i, x in enumerate(tensors)]
    width, left, rows = builtins.sum(b.shape[1] for b in blocks), 0, []
    for block in blocks:
        rows.append(pad(block, (left, width - left - block.shape[1])))
        left += block.shape[1]
    return cat(rows, 0)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Return all combinations of elements of vectors as rows, the last vector's running fastest."""
    if len(tensors) == 1:
        return tensors[0]
    return stack([reshaped(x, (x.numel(),)) for x in meshgrid(*tensors, indexing="ij")], 1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return the combinations of `r` elements of a vector as rows, as `itertools` orders them."""
    x, size = tensor_of(input, "combinations"), integer(r, "combinations", "r")
    choose_from = combinations_with_replacement if with_replacement else _combinations
    rows = _combination_count(x._type.size, size, with_replacement)
    require_computable((rows, size), "combinations")
    flat = (place for row in choose_from(range(x._type.size), size) for place in row)
    places = np.fromiter(flat if rows else (), np.int64, rows * size).reshape(rows, size)
    result: Tensor = x[from_array(places)]
    return result


def _combination_count(n: int, r: int, with_replacement: bool) -> int:
    """How many rows `combinations` has; of very many it need not be exact."""
    if r < 0:
        raise OptionError(f"combinations: Expect a non-negative number, but got {r}")
    if with_replacement:
        n = n + r - 1 if r else 0
    smaller = min(r, n - r)
    return math.comb(n, smaller) if smaller <= 64 else 2**64  # at least (n / smaller)**smaller


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of so many nearly equal parts along `dim`, or of those between indices."""
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
        ends = [(i + 1) * length + min(i + 1, longer) for i in range(count)]
    parts, start = [], 0
    for end in ends:
        end = min(end + size if end < 0 else end, size)
        parts.append(x.narrow(axis, start, max(end - start, 0)) if start <= size else x[:0])
        start = max(end, 0)
    return tuple(parts)


def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return `split(input, split_sizes, dim)`."""
    return split(input, list(split_sizes), dim)


def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Return `tensor_split` along axis 1, of a vector along axis 0."""
    return tensor_split(input, indices_or_sections, 0 if input.ndim == 1 else 1)


def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Return `tensor_split` along axis 0."""
    return tensor_split(input, indices_or_sections, 0)


def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Return `tensor_split` along axis 2."""
    return tensor_split(input, indices_or_sections, 2)


# ---------------------------------------------------------------------- turning and windows


def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """Return a copy turned by `k` quarters, from the first of two axes towards the second."""
    x = tensor_of(input, "rot90")
    if len(dims) != 2:
        raise OptionError(f"rot90: expected total rotation dims == 2, but got dims = {len(dims)}")
    first, second = (axis_of(dim, x.ndim, "rot90") for dim in dims)
    turns = integer(k, "rot90", "k") % 4
    if turns == 0:
        return clone(x)
    if turns == 2:
        return flip(x, (first, second))
    if turns == 1:
        return transpose(flip(x, (second,)), first, second).clone()
    return flip(transpose(x, first, second), (second,))


def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Return the windows of `size` elements, every `step`-th, along an axis: as a new last axis."""
    x = tensor_of(input, "unfold")
    axis = axis_of(dimension, x.ndim, "unfold")
    windows = emit(ops.windows, (x,), axes=(axis,), sizes=(size,), steps=(step,), dilations=(1,))
    return windows


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """Return the matrix with all elements on its diagonal."""
    x = tensor_of(input, "diagflat")
    return diag_embed(reshaped(x, (x._type.size,)), offset)


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = i64, device: Any = None, layout: Any = None
) -> Tensor:
    """Return rows and columns, two vectors, of the lower triangle of a matrix."""
    shape_of((row, col), "tril_indices")
    return _indices(np.tril_indices(row, offset, col), dtype)


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = i64, device: Any = None, layout: Any = None
) -> Tensor:
    """Return rows and columns, two vectors, of the upper triangle of a matrix."""
    shape_of((row, col), "triu_indices")
    return _indices(np.triu_indices(row, offset, col), dtype)


def _indices(places: Any, dtype: Any) -> Tensor:
    return from_numpy(np.stack(places).astype(as_dtype(dtype, "tril_indices").numpy))


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Return, per axis of `shape`, the coordinates of places in the flattened tensor."""
    sizes = [shape] if isinstance(shape, int) else list(shape)
    rest, found = indices, []
    for size in reversed(sizes):
        found.append(rest % size)
        rest = rest // size
    return tuple(reversed(found))


# ---------------------------------------------------------------------- parts of a copy


def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """Return a copy whose `start:end:step` along `dim` is `src`."""
    x = tensor_of(input, "slice_scatter")
    axis = axis_of(dim, x.ndim, "slice_scatter")
    key = (*(slice(None),) * axis, slice(start, end, step))
    return _with(x, key, src)


def _with(x: Tensor, key: Any, src: Tensor) -> Tensor:
    copy = clone(x)
    copy[key] = src
    return copy


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Return a copy whose `index` along `dim` is `src`."""
    x = tensor_of(input, "select_scatter")
    axis = axis_of(dim, x.ndim, "select_scatter")
    return _with(x, (*(slice(None),) * axis, index), src)


def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """Return a copy whose diagonal of two axes is `src`."""
    x = tensor_of(input, "diagonal_scatter")
    moved = movedim(x, (dim1, dim2), (-2, -1))
    rows, columns = moved._type.shape[-2:]
    row, column = (emit(ops.iota, (), shape=(rows, columns), axis=a, dtype=i64) for a in (0, 1))
    length, high = src._type.shape[-1], max(offset, 0)
    whole = pad(src, (high, columns - length - high))
    inside = column - row == offset
    return movedim(choose(inside, unsqueeze(whole, -2), moved), (-2, -1), (dim1, dim2))


def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """Return the sum over the axes that a tensor of `size` would be broadcast along."""
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    x = tensor_of(input, "sum_to_size")
    lead = x.ndim - len(shape)
    pairs = list(zip(x._type.shape[lead:], shape, strict=True)) if lead >= 0 else []
    if lead < 0 or any(mine != wanted and wanted != 1 for mine, wanted in pairs):
        raise ShapeError(f"sum_to_size: size {list(shape)} is not expandable to it{describe(x)}")
    axes = [i + lead for i, (mine, wanted) in enumerate(pairs) if wanted != mine]
    if axes:
        x = sum(x, axes, keepdim=True)
    return reshaped(sum(x, tuple(range(lead))) if lead else x, tuple(shape))


def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Return a copy whose slices along `dim` are scaled to a p-norm of at most `maxnorm`."""
    x = tensor_of(input, "renorm")
    axis = axis_of(dim, x.ndim, "renorm")
    others = tuple(i for i in range(x.ndim) if i != axis)
    size = norm(x, p, others, True)
    return x * choose(size > maxnorm, maxnorm / (size + 1e-7), 1.0)


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Return a copy with `source` at `index` of the flattened tensor, added with `accumulate`."""
    x = tensor_of(input, "put")
    flat = reshaped(x, (x._type.size,))
    at, values = reshaped(index, (index.numel(),)), reshaped(source, (source.numel(),))
    op = ops.scatter_add if accumulate else ops.scatter
    given = {"input": x, "index": index, "source": source}
    return reshaped(indexed("put", op, (flat, at, values), 0, True, given), x._type.shape)


def constant_pad_nd(input: Tensor, pad: Any, value: float = 0) -> Tensor:
    """Return the tensor with `value` around it: (before, after) of the last axis, and so on."""
    return _padded(input, pad, value=value)
