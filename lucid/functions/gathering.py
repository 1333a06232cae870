"""Reading and writing where an index tensor says; and what depends on the data's values."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from lucid.autograd.native import fused, program
from lucid.choices import check_choice, check_flag
from lucid.docstrings import like, maps
from lucid.functions.arguments import axis_of, common_shape, integer, tensor_of
from lucid.functions.checks import at_hand, in_range, indexed, require, require_index
from lucid.functions.conversion import cast
from lucid.functions.elementwise import choose, chosen, clone, floor, maximum, minimum, mul
from lucid.functions.finding import (
    count_bins,
    count_each,
    distinct,
    found,
    nonzero_indices,
    nonzero_rows,
    repeated,
    runs,
)
from lucid.functions.gradients import with_gradient
from lucid.functions.indexing import Pick, are_columns, getitem, replaced, replaced_at
from lucid.functions.promotion import Number, operand
from lucid.functions.shape import broadcast, reshaped
from lucid.functions.tensors import Tensor
from lucid.functions.updates import Update, updating
from lucid.ir import ops
from lucid.ir.errors import (
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    IndexShapeError,
    OptionError,
    ShapeError,
)
from lucid.ir.inference import is_many
from lucid.ir.op import Op
from lucid.ir.ops.indexing import along_targets
from lucid.ir.types import Shape, f32, f64, i64, limits_of
from lucid.tensor.core import constant, emit, from_array
from lucid.tensor.levels import note_turn

__all__ = [
    "argwhere", "bincount", "gather", "histc", "index_add", "index_copy", "index_fill",
    "index_put", "index_reduce", "index_select", "masked_scatter", "masked_select", "nonzero",
    "scatter", "scatter_add", "scatter_reduce", "take", "take_along_dim", "unique",
    "unique_consecutive",
]  # fmt: skip


def _index(index: Any, op: str) -> Tensor:
    """An index operand. Raises `DTypeError` unless it holds integers."""
    x = tensor_of(index, op, "index")
    if x._type.dtype.kind != "int":
        raise DTypeError(f"{op}: the index must hold integers, not {x.dtype!r}")
    return x if x._type.dtype is i64 else emit(ops.cast, (x,), dtype=i64)


def _lifted(x: Tensor) -> Tensor:
    """A 0-d tensor as a vector of one, which has an axis to index."""
    return x if x.ndim else reshaped(x, (1,))


@maps("[[1, 2], [3, 4]]", "1", "[[1], [0]]", "[[2], [3]]")
def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Pick elements along an axis: for dim 0, `out[i][j] = input[index[i][j]][j]`.

    Its gradient is `scatter_add`: an element that was picked twice gets both gradients.

    Shapes: `index` has as many axes as `input`, no longer than its on axes other than `dim`; the
    result has its shape.

    Args:
        dim: the axis to pick along; negative ones count from the end.
        index: integers from 0 to the size of that axis; negative ones aren't taken.

    Raises:
        IndexOutOfRangeError: an index isn't in the axis.
        DTypeError: the index holds no integers.
        ShapeError: the index has another number of axes.
    """
    x, at = tensor_of(input, "gather"), _index(index, "gather")
    axis = axis_of(dim, x.ndim, "gather")
    result = indexed(
        "gather", ops.gather, (_lifted(x), _lifted(at)), axis, False, {"input": x, "index": index}
    )
    return result if at.ndim else reshaped(result, ())


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Pick elements along an axis, as `gather`, with both tensors broadcast on the other axes.

    It goes with `argsort` and `argmax(keepdim=True)`. Without a dim both tensors are flattened.

    Args:
        indices: integers; negative ones count from the end.
        dim: the axis to pick along. Default: None, the flattened tensors.

    Raises:
        ShapeError: the numbers of axes differ.
        IndexOutOfRangeError: an index isn't in the axis.

    >>> x = lucid.tensor([[3, 1, 2]])
    >>> lucid.take_along_dim(x, x.argsort(1), 1)
    tensor([[1, 2, 3]])
    """
    x, at = tensor_of(input, "take_along_dim"), _index(indices, "take_along_dim")
    given = {"input": x, "indices": indices}
    if dim is None:
        flat = reshaped(x, (x._type.size,)), reshaped(at, (at._type.size,))
        return indexed("take_along_dim", ops.gather, flat, 0, True, given)
    axis = axis_of(dim, x.ndim, "take_along_dim")
    if at.ndim != x.ndim:
        raise ShapeError(
            "take_along_dim: input and indices should have the same number of dimensions"
        )
    pairs = list(zip(x._type.shape, at._type.shape, strict=True))
    sizes = [max(a, b) if 0 not in (a, b) else 0 for a, b in pairs]
    full_x = tuple(a if i == axis else sizes[i] for i, (a, _) in enumerate(pairs))
    full_at = tuple(b if i == axis else sizes[i] for i, (_, b) in enumerate(pairs))
    pair = broadcast(x, full_x), broadcast(at, full_at)
    return indexed("take_along_dim", ops.gather, pair, axis, True, given)


@maps("[[1, 2], [3, 4]]", "[0, -1]", "[1, 4]")
def take(input: Tensor, index: Tensor) -> Tensor:
    """Return the elements of the flattened tensor at `index`, in the shape of the index.

    Args:
        input: the tensor, counted in row-major order.
        index: integers of any shape; negative ones count from the end.

    Raises:
        IndexOutOfRangeError: an index isn't in the tensor.
        DTypeError: the index holds no integers.
    """
    x = tensor_of(input, "take")
    flat = reshaped(x, (x._type.size,))
    given = {"input": x, "index": index}
    return indexed("take", ops.take, (flat, _index(index, "take")), 0, True, given)


@maps("[[1, 2], [3, 4]]", "0", "[1, 1, 0]", "[[3, 4], [3, 4], [1, 2]]")
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return the slices of `input` along `dim` that a vector of indices names, as a copy.

    A slice may be named more than once.

    Shapes: that of `input`, with the length of the index along `dim`.

    Args:
        index: a vector of integers, or a 0-d one; negative ones aren't taken.

    Raises:
        IndexOutOfRangeError: an index isn't in the axis.
        IndexShapeError: the index has more than one axis.
    """
    x, at = tensor_of(input, "index_select"), _vector(index, "index_select")
    axis = axis_of(dim, x.ndim, "index_select")
    result = indexed(
        "index_select", ops.take, (_lifted(x), at), axis, False, {"input": x, "index": index}
    )
    return result if x.ndim else reshaped(result, ())


def _vector(index: Any, op: str) -> Tensor:
    at = _lifted(_index(index, op))
    if at.ndim != 1:
        raise IndexShapeError(f"{op}: the index is supposed to be a vector")
    return at


@updating
@maps("lucid.zeros(2, 3)", "0", "[[0, 1, 0]]", "[[1.0, 2.0, 3.0]]", "[[1., 0., 3.], [0., 2., 0.]]")
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Number | None = None,
    reduce: str | None = None,
) -> Update | Tensor:
    """Return a copy with `src[i][j]` written at `out[index[i][j]][j]` for dim 0, and so on.

    Of several elements for one place the last one stays; with `reduce` all of them count.

    Shapes: `src` is at least as long as `index` on each axis; what is beyond the index isn't used.
    dtype: that of `input`, which `src` has too.

    Args:
        dim: the axis to write along; negative ones count from the end.
        index: integers from 0 to the size of that axis, with as many axes as `input`.
        src: a tensor, or a number for all places.
        value: a number, instead of `src`.
        reduce: "add" or "multiply", what is there with what comes. Default: None, which replaces.

    Raises:
        ArgumentError: neither or both of `src` and `value` are given.
        OptionError: `reduce` is something else.
        IndexOutOfRangeError: an index isn't in the axis.
    """
    if (src is None) == (value is None):
        raise ArgumentError("scatter: takes src or value")
    source = value if src is None else src
    if reduce is None:
        return scattered("scatter", ops.scatter, input, dim, index, source)
    if reduce == "add":
        return scattered("scatter", ops.scatter_add, input, dim, index, source)
    if reduce != "multiply":
        raise OptionError(f"scatter: reduce argument must be either add or multiply, got {reduce}")
    if not isinstance(source, Tensor):
        source = broadcast(operand(source, input._type.dtype, "scatter"), index._type.shape)
    return reduced_at("scatter", input, dim, index, source, "prod", True)


@updating
@maps("lucid.zeros(2)", "0", "[0, 0, 1]", "[1.0, 2.0, 5.0]", "[3., 5.]")
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Update:
    """Return a copy with `src[i][j]` added at `out[index[i][j]][j]` for dim 0, and so on.

    All elements for one place are added, in the order of the index, so the result is the same each
    time.

    Shapes: `src` is at least as long as `index` on each axis.

    Args:
        dim: the axis to write along; negative ones count from the end.
        index: integers from 0 to the size of that axis, with as many axes as `input`.
        src: what to add, of the dtype of `input`.

    Raises:
        IndexOutOfRangeError: an index isn't in the axis.
        DTypeError: the dtypes differ.
    """
    source = tensor_of(src, "scatter_add", "src")
    return scattered("scatter_add", ops.scatter_add, input, dim, index, source)


def scattered(name: str, op: Op, input: Tensor, dim: int, index: Tensor, src: Any) -> Update:
    """Scatter with an op, which messages call by another name."""
    x, at = tensor_of(input, name), _lifted(_index(index, name))
    axis = axis_of(dim, x.ndim, name)
    shape = at._type.shape
    if isinstance(src, Tensor):
        if src._type.dtype is not x._type.dtype:
            raise DTypeError(f"{name}: Expected self.dtype to be equal to src.dtype")
        source = corner(_lifted(src), shape, name)
    else:
        source = broadcast(operand(src, x._type.dtype, name), shape)
    given = {"input": x, "index": index, **({"src": src} if isinstance(src, Tensor) else {})}
    operands = _lifted(x), at, source
    require_index(name, op, operands, axis, False, given)
    return Update(op, operands, {"axis": axis}, partial(_lowered, x))


def _lowered(x: Tensor, result: Tensor) -> Tensor:
    """A result for a tensor of which `_lifted` has made a vector."""
    return result if x.ndim else reshaped(result, ())


def corner(source: Tensor, shape: Shape, op: str) -> Tensor:
    """The part of the source that the index refers to."""
    have = source._type.shape
    if have == shape:
        return source
    if len(have) != len(shape) or any(a < b for a, b in zip(have, shape, strict=True)):
        raise ShapeError(
            f"{op}: Expected index {list(shape)} to be no larger than src {list(have)}"
        )
    zeros = (0,) * len(shape)
    return emit(ops.slice, (source,), starts=zeros, stops=shape, steps=(1,) * len(shape))


@updating
@like(scatter_add)
@maps("lucid.zeros(3)", "0", "[2, 2, 0]", "[1.0, 2.0, 4.0]", "[4., 0., 3.]")
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1
) -> Update:
    """Return a copy with `alpha * source` added to the slices that a vector of indices names.

    A slice that is named twice gets both.

    Shapes: `source` is as `input`, with the length of the index along `dim`; a 0-d one is added to
    all.

    Args:
        dim: the axis; negative ones count from the end.
        index: a vector of integers from 0 to the size of that axis.
        source: what to add, of the dtype of `input`.
        alpha: its factor.
    """
    source = tensor_of(source, "index_add", "source")
    if type(alpha) is not int or alpha != 1:
        source = mul(source, alpha)
    return _slices("index_add", ops.index_add, input, dim, index, source)


@updating
@maps("lucid.zeros(3)", "0", "[2, 0]", "[5.0, 6.0]", "[6., 0., 5.]")
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Update:
    """Return a copy with `source` in place of the slices that a vector of indices names.

    Of several slices for one place the last one stays.

    Shapes: `source` is as `input`, with the length of the index along `dim`.

    Args:
        index: a vector of integers from 0 to the size of that axis.
        source: the slices, of the dtype of `input`.

    Raises:
        IndexOutOfRangeError: an index isn't in the axis.
        ShapeError: the source has another shape.
        DTypeError: the dtypes differ.
    """
    source = tensor_of(source, "index_copy", "source")
    return _slices("index_copy", ops.index_set, input, dim, index, source)


@updating
@maps("[1, 2, 3]", "0", "[0, -1]", "9", "[9, 2, 9]")
def index_fill(input: Tensor, dim: int, index: Tensor, value: Number | Tensor) -> Update:
    """Return a copy with one value in all of the slices along `dim` that a vector of indices names.

    Args:
        index: a vector of integers; negative ones count from the end.
        value: a number or a 0-d tensor.

    Raises:
        ShapeError: the value is a tensor that isn't 0-d.
        IndexOutOfRangeError: an index isn't in the axis.
    """
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError("index_fill: only supports a 0-dimensional value")
    filling = operand(value, tensor_of(input, "index_fill")._type.dtype, "index_fill")
    return _slices("index_fill", ops.index_set, input, dim, index, filling)


def _slices(name: str, op: Op, input: Tensor, dim: int, index: Tensor, source: Tensor) -> Update:
    x, at = tensor_of(input, name), _vector(index, name)
    axis = axis_of(dim, x.ndim, name)
    if source._type.dtype is not x._type.dtype:
        raise DTypeError(f"{name}: self and source expected to have the same dtype")
    base = _lifted(x)
    shape = base._type.shape
    target = (*shape[:axis], at._type.shape[0], *shape[axis + 1 :])
    is_filled = name == "index_fill"
    given = {"input": x, "index": index, **({} if is_filled else {"source": source})}
    if source.ndim == 0:
        source = broadcast(source, target)
    operands = base, at, source
    require_index(name, op, operands, axis, is_filled, given)
    return Update(op, operands, {"axis": axis}, partial(_lowered, x))


@updating
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Update:
    """Return a copy with `values` at `input[indices]`, or added to what is there.

    Of several values for one element the last one stays; with `accumulate` all are added.

    Args:
        indices: a tuple of integer tensors, bool masks or None, one for each leading axis; None is
            the whole axis.
        values: what to write, of the dtype of `input`; it broadcasts.
        accumulate: whether to add.

    Raises:
        ArgumentError: `indices` is no tuple or list.
        IndexOutOfRangeError: there are more indices than axes, or one isn't in its axis.
        DTypeError: the dtypes differ.

    >>> at = (lucid.tensor([0, 0]),)
    >>> lucid.index_put(lucid.zeros(2), at, lucid.tensor([1.0, 2.0]), accumulate=True)
    tensor([3., 0.])
    """
    x = tensor_of(input, "index_put")
    if not isinstance(indices, (tuple, list)):
        raise ArgumentError("index_put: indices must be a tuple of tensors")
    new = tensor_of(values, "index_put", "values")
    if new._type.dtype is x._type.dtype and are_columns(tuple(indices), x):
        update = replaced_at(x, indices, new, accumulate)
        if update is not None:
            return update
    picks: list[Pick] = []
    axis = 0
    for index in indices:
        if index is None:
            axis += 1
        elif tensor_of(index, "index_put", "index")._type.dtype.kind == "bool":
            found = nonzero(index, as_tuple=True)
            picks += [Pick(axis + i, column, None) for i, column in enumerate(found)]
            axis += index.ndim
        else:
            picks.append(Pick(axis, _index(index, "index_put"), axis))
            axis += 1
    if axis > x.ndim:
        raise IndexOutOfRangeError(f"index_put: too many indices for {x._type}: {axis}")
    if new._type.dtype is not x._type.dtype:
        raise DTypeError("index_put: Index put requires the source and destination dtypes match")
    return replaced("index_put", x, x, picks, new, accumulate)


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """Return the elements where the mask holds, as a vector in row-major order.

    How many there are depends on data: a compiled step is traced anew when that changes for the
    first time, and has one program for all sizes from two on.

    Args:
        mask: bools; it broadcasts with `input`.

    Raises:
        DTypeError: the mask isn't bool.
        ShapeError: the shapes don't broadcast.

    >>> x = lucid.tensor([[1, 2], [3, 4]])
    >>> lucid.masked_select(x, x > 1)
    tensor([2, 3, 4])
    """
    x, where_ = tensor_of(input, "masked_select"), tensor_of(mask, "masked_select", "mask")
    if where_._type.dtype.kind != "bool":
        raise DTypeError("masked_select: expected BoolTensor for mask")
    shape = common_shape("masked_select", input=x, mask=where_)
    return getitem(broadcast(x, shape), broadcast(where_, shape))


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Return the indices of the elements that aren't zero, in row-major order.

    How many there are depends on data: a compiled step is traced anew when that changes for the
    first time, and has one program for all sizes from two on.
    NaN isn't zero.

    Shapes: (n, ndim), one row for each of n elements; as a tuple, ndim vectors of n.
    dtype: int64.

    Args:
        as_tuple: whether to return one vector for each axis, which can index `input`.

    >>> x = lucid.tensor([[0, 2], [3, 0]])
    >>> lucid.nonzero(x)
    tensor([[0, 1],
            [1, 0]])
    >>> x[lucid.nonzero(x, as_tuple=True)]
    tensor([2, 3])
    """
    x = tensor_of(input, "nonzero").detach()
    if as_tuple:
        return found("nonzero", nonzero_indices, x)
    return found("nonzero", nonzero_rows, x)[0]


@maps("[5, 0, 7]", "[[0], [2]]")
def argwhere(input: Tensor) -> Tensor:
    """Return the indices of the elements that aren't zero, (n, ndim) of int64: `nonzero(input)`.

    Args:
        input: the tensor, often a bool one, such as a comparison.
    """
    indices: Tensor = nonzero(input)
    return indices


def repeated_positions(repeats: Tensor, size: int) -> Tensor:
    """The index that repeats each of `size` positions as often as `repeats` says."""
    if repeats._type.shape not in ((1,), (size,)):
        raise ShapeError(f"repeat_interleave: repeats must be one number, or {size}")
    return found("repeat_interleave", repeated, repeats, size)[0]


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Return the distinct elements in ascending order, or the distinct slices along `dim`.

    NaNs are different from each other. How many there are depends on data: a compiled step is
    traced anew when that changes for the first time, and has one program for all sizes from two on.
    The result has no history.

    Args:
        sorted: True or False; they are in order with either.
        return_inverse: whether to return also where each element went.
        return_counts: whether to return also how often each came.
        dim: the axis whose slices are compared. Default: None, single elements.

    Raises:
        ArgumentError: `sorted` is no bool.

    >>> lucid.unique(lucid.tensor([3, 1, 3]))
    tensor([1, 3])
    >>> lucid.unique(lucid.tensor([3, 1, 3]), return_inverse=True, return_counts=True)
    (tensor([1, 3]), tensor([1, 0, 1]), tensor([1, 2]))
    """
    x = tensor_of(input, "unique")
    check_flag(sorted, "sorted", "unique")
    axis = None if dim is None else axis_of(dim, x.ndim, "unique")
    parts = found("unique", distinct, x.detach(), axis, bool(return_inverse), bool(return_counts))
    return parts[0] if len(parts) == 1 else parts


def where_method(input: Tensor, condition: Tensor, other: Tensor | Number) -> Tensor:
    """Return `input` where the condition holds and `other` elsewhere.

    It is `lucid.where(condition, input, other)`, written from the tensor's side.

    Shapes: all three broadcast.
    dtype: what `input` and `other` promote to.

    Args:
        input: the values where it holds.
        condition: where to take them, a tensor of bools.
        other: the values elsewhere, a number or a tensor.

    >>> x = lucid.tensor([1, -2, 3])
    >>> x.where(x > 0, 0)
    tensor([1, 0, 3])
    """
    return choose(condition, input, other)


@maps("[1, 1, 2, 1]", "return_counts=True", "(tensor([1, 2, 1]), tensor([2, 1, 1]))")
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Return the elements of the flattened tensor without repetitions of the one before.

    With `dim`, the slices along it.

    Args:
        input: a tensor of any dtype.
        return_inverse: whether to return where each element went, too.
        return_counts: whether to return how often each came in a row, too.
        dim: the axis whose slices are compared. Default: None, single elements.

    >>> lucid.unique_consecutive(lucid.tensor([[1, 1, 2], [3, 3, 3]]), dim=1)
    tensor([[1, 2],
            [3, 3]])
    """
    x = tensor_of(input, "unique_consecutive")
    axis = None if dim is None else axis_of(dim, x.ndim, "unique_consecutive")
    flags = bool(return_inverse), bool(return_counts)
    places, *others = found("unique_consecutive", runs, x.detach(), axis, *flags)
    kept = reshaped(x, (x._type.size,))[places] if axis is None else index_select(x, axis, places)
    return (kept, *others) if others else kept


_NEUTRAL = {"prod": 1, "amax": -np.inf, "amin": np.inf}


@updating
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Update | Tensor:
    """Return a copy with `src` reduced into the places that `index` names along `dim`.

    `out[index[i][j]][j]` for dim 0 becomes the reduction of what is there and all of `src` that
    goes there. "amax" and "amin" sort `src`, and "prod" sorts `index`, along `dim`. What reaches an
    extreme shares its gradient evenly.

    Shapes: `src` is at least as long as `index` on each axis.
    dtype: that of `input`, which `src` has too; a mean of integers rounds down.

    Args:
        dim: the axis to write along; negative ones count from the end.
        index: integers from 0 to the size of that axis, with as many axes as `input`.
        src: what is reduced.
        reduce: "sum", "mean", "prod", "amax" or "amin".
        include_self: whether elements of `input` take part where something is written.

    Raises:
        OptionError: `reduce` is something else.
        DTypeError: the dtypes differ.

    >>> x, index = lucid.tensor([9.0, 9.0, 9.0]), lucid.tensor([0, 0, 1])
    >>> src = lucid.tensor([1.0, 2.0, 3.0])
    >>> lucid.scatter_reduce(x, 0, index, src, "mean", include_self=False)
    tensor([1.5000, 3.0000, 9.0000])
    >>> lucid.scatter_reduce(x, 0, index, src, "amin")
    tensor([1., 3., 9.])
    """
    return reduced_at("scatter_reduce", input, dim, index, src, reduce, include_self)


@updating
@maps("lucid.ones(3) * 2", "0", "[0, 0, 2]", "[1.0, 2.0, 3.0]", '"prod"', "[4., 2., 6.]")
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Update | Tensor:
    """Return a copy with slices of `source` reduced into those that a vector of indices names.

    Slices of `input` that the index doesn't name stay.

    Shapes: `source` is as `input`, with the length of the index along `dim`.
    dtype: that of `input`, which `source` has too; a mean of integers rounds down.

    Args:
        index: a vector of integers from 0 to the size of that axis.
        source: the slices.
        reduce: "prod", "mean", "amax" or "amin"; `index_add` makes sums.
        include_self: whether slices of `input` take part where something is written.

    Raises:
        OptionError: `reduce` is something else.
        ShapeError: the index is no vector, or `source` has another shape.
        DTypeError: the dtypes differ.
    """
    x, at, slices = (
        tensor_of(input, "index_reduce"),
        tensor_of(index, "index_reduce", "index"),
        tensor_of(source, "index_reduce", "source"),
    )
    check_choice(reduce, "reduce", "index_reduce", ("mean", *_NEUTRAL))
    axis = axis_of(dim, x.ndim, "index_reduce")
    expected = list(x.shape)
    if x.ndim:
        expected[axis] = at.numel()
    if at.ndim > 1 or list(slices.shape) != expected:
        raise ShapeError(
            "index_reduce: index must be a vector, and source as input with its length along "
            f"dim {axis}"
        )
    places = reshaped(at, tuple(at.numel() if i == axis else 1 for i in range(x.ndim)))
    places = broadcast(places, slices._type.shape)
    return reduced_at("index_reduce", x, dim, places, slices, reduce, include_self)


def reduced_at(
    name: str, input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool
) -> Update | Tensor:
    """As `scatter_reduce`, which messages call by another name."""
    x, source = tensor_of(input, name), tensor_of(src, name, "src")
    check_choice(reduce, "reduce", name, ("sum", "mean", *_NEUTRAL))
    if x._type.dtype is not source._type.dtype:
        raise DTypeError(f"{name}: self and src must have one dtype")
    if is_many((x._type,)) and _FEW * index._type.size <= x._type.size:
        note_turn()
        if (at_few := at_hand(index)) is not None:
            return _reduced_at_few(name, x, dim, index, at_few, source, reduce, include_self)
    ones = broadcast(constant(1, x._type.dtype), index._type.shape)
    zeros = broadcast(constant(0, x._type.dtype), x._type.shape)
    source = corner(source, index._type.shape, name)
    hits = scattered(name, ops.scatter_add, zeros, dim, index, ones).result()
    base = x if include_self else choose(hits > 0, 0 if reduce in ("sum", "mean") else x, x)
    if reduce in ("sum", "mean"):
        total = scattered(name, ops.scatter_add, base, dim, index, source).result()
        if reduce == "sum":
            return total
        count = hits + 1 if include_self else hits
        divisor = choose(hits > 0, count, 1)
        whole = total._type.dtype.kind == "int"
        return choose(hits > 0, total // divisor if whole else total / divisor, x)
    axis = axis_of(dim, x.ndim, name)
    if not x.ndim:
        x, hits, index, source = (reshaped(t, (1,)) for t in (x, hits, index, source))
    at = cast(index, i64)
    if reduce == "prod":
        found = _products_at(source, at, axis, x._type.shape)
        result = x * found if include_self else choose(hits > 0, found, x)
    else:
        result = _extreme_at(x, at, source, hits, reduce, axis, include_self)
    return reshaped(result, input._type.shape)


_FEW = 16  # times as many elements as are written: these are reduced apart


def _reduced_at_few(
    name: str,
    x: Tensor,
    dim: int,
    index: Tensor,
    at: np.ndarray,
    source: Tensor,
    reduce: str,
    include_self: bool,
) -> Update:
    """The same where few elements are written: they are taken out, and written back."""
    axis, shape = axis_of(dim, x.ndim, name), at.shape
    source = corner(source, shape, name)
    operands = x, cast(index, i64), source
    require_index(name, ops.scatter_add, operands, axis, False, {"input": x, "index": index})
    places, order = np.unique(along_targets(x._type.shape, at, axis), return_inverse=True)
    flat, where_ = reshaped(x, (x._type.size,)), from_array(places)
    part = emit(ops.take, (flat, where_), axis=0)
    given = from_array(order.reshape(-1)), reshaped(source, (at.size,))
    made = reduced_at(name, part, 0, *given, reduce, include_self)
    new = made.result() if isinstance(made, Update) else made
    seen = partial(reshaped, shape=x._type.shape)
    return Update(ops.index_set, (flat, where_, new), {"axis": 0}, seen)


@fused
def _products_at(source: Tensor, at: Tensor, axis: int, shape: Shape) -> Tensor:
    """The product of all that goes to a place, where it is 1 if nothing does.

    In the order of their places elements are multiplied by those before them that go to the same
    one, by doubling steps; the last one of each has all of them.

    Reference: Hillis and Steele, "Data Parallel Algorithms", 1986.
    """
    order = emit(ops.argsort, (at,), axis=axis, descending=False)
    at, product = (emit(ops.gather, (x, order), axis=axis) for x in (at, source))
    high, distance, count = (0,) * at.ndim, 1, at._type.shape[axis]
    while distance < count:
        low = tuple(distance if i == axis else 0 for i in range(at.ndim))
        place, before = (
            ops.pad(ops.slice_axis(x, axis, 0, count - distance), first, low=low, high=high)
            for x, first in ((at, constant(-1, i64)), (product, ops.one(product)))
        )
        product = choose(place == at, before * product, product)
        distance *= 2
    ones = broadcast(ops.one(product), shape)
    return emit(ops.scatter, (ones, at, product), axis=axis)


def _of_extreme(
    g: Tensor,
    x: Tensor,
    at: Tensor,
    source: Tensor,
    hits: Tensor,
    y: Tensor,
    axis: int,
    include_self: bool,
) -> tuple[Tensor | None, ...]:
    """All that reach an extreme share its cotangent evenly."""
    dtype = g._type.dtype
    mine = cast(source == emit(ops.gather, (y, at), axis=axis), dtype)
    own = cast((x == y) & (hits > 0), dtype) if include_self else ops.zeros_like(x)
    share = g / emit(ops.scatter_add, (own, at, mine), axis=axis)
    return choose(hits > 0, own * share, g), None, mine * emit(ops.gather, (share, at), axis=axis)


@with_gradient(_of_extreme)
def _extreme_at(
    x: Tensor,
    at: Tensor,
    source: Tensor,
    hits: Tensor,
    reduce: str,
    axis: int,
    include_self: bool,
) -> Tensor:
    """The greatest, or smallest, of what is at a place and all that goes there.

    Written in the order of their values, the last one stays.
    """
    key = source
    if reduce == "amin":  # NaN is the greatest of both
        key = -source if source._type.dtype.kind == "float" else ~source
    order = emit(ops.argsort, (key,), axis=axis, descending=False)
    places, values = (emit(ops.gather, (t, order), axis=axis) for t in (at, source))
    neutral = constant(_neutral(reduce, x), x._type.dtype)
    base = x if include_self else broadcast(neutral, x._type.shape)
    found = emit(ops.scatter, (base, places, values), axis=axis)
    if include_self:
        found = (maximum if reduce == "amax" else minimum)(found, x)
    return choose(hits > 0, found, x)


def _neutral(reduce: str, x: Tensor) -> Number:
    if reduce == "prod" or x._type.dtype.kind == "float":
        return _NEUTRAL[reduce]
    return limits_of(x._type.dtype)[reduce != "amax"]


@updating
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Update | Tensor:
    """Return a copy with the elements of `source`, in order, where the mask holds.

    The first True in row-major order gets the first element of the source, whatever its place.
    Elements that are left over aren't used.

    Args:
        mask: bools; it broadcasts with `input`.
        source: at least as many elements as the mask has ones, of the dtype of `input`.

    Raises:
        DTypeError: the mask isn't bool, or the source has another dtype.
        IndexOutOfRangeError: the source has too few elements.

    >>> x = lucid.tensor([1, 2, 3, 4])
    >>> lucid.masked_scatter(x, x % 2 == 0, lucid.tensor([20, 40]))
    tensor([ 1, 20,  3, 40])
    """
    x, values = tensor_of(input, "masked_scatter"), tensor_of(source, "masked_scatter", "source")
    if mask.dtype.kind != "bool" or values._type.dtype is not x._type.dtype:
        raise DTypeError("masked_scatter: the mask must be bool, and source of input's dtype")
    shape = common_shape("masked_scatter", input=x, mask=mask)
    inside = reshaped(broadcast(mask, shape), (int(np.prod(shape)),))
    flat = reshaped(values, (values._type.size,))
    flags = None
    if shape == x._type.shape and is_many((x._type,)):
        note_turn()
        flags = at_hand(inside)
    if flags is not None:
        places = np.flatnonzero(flags)
        if places.size <= flat._type.size:
            at, source = from_array(places), corner(flat, places.shape, "masked_scatter")
            whole = reshaped(x, inside._type.shape)
            seen = partial(reshaped, shape=shape)
            return Update(ops.index_set, (whole, at, source), {"axis": 0}, seen)
    counted = emit(ops.cumsum, (cast(inside, i64),), axis=0)
    few = "masked_scatter: the source has fewer elements than the mask has ones"
    in_range(counted, 0, flat._type.size + 1, few, input=x, mask=mask, source=values)
    if not flat._type.size:
        return clone(broadcast(x, shape))
    place = choose(inside, counted - 1, 0)
    taken = reshaped(emit(ops.take, (flat, place), axis=0), shape)
    return chosen(reshaped(inside, shape), taken, broadcast(x, shape))


@maps("[0, 1, 0]", "[0.5, 1.0, 2.0]", "[2.5000, 1.0000]")
@maps("[1, 3, 1]", "[0, 2, 0, 1]")
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Return how often each of 0, 1, 2, … comes in a vector, or the sum of its weights.

    The size depends on data: a compiled step is traced anew for each that it meets.

    Shapes: (max(minlength, input.max() + 1),).
    dtype: int64; with weights float32 for float32 ones, else float64.

    Args:
        input: a vector of integers that aren't negative.
        weights: what each element counts, of the length of `input`. Default: None, one each.
        minlength: how long the result is at least.

    Raises:
        OptionError: a number is negative, or `minlength` is.
        ShapeError: `input` is no vector of integers.
    """
    x = tensor_of(input, "bincount")
    if x.ndim != 1 or x._type.dtype.kind != "int":
        raise ShapeError("bincount: only supports 1-d non-negative integral inputs")
    least = integer(minlength, "bincount", "minlength")
    if least < 0:
        raise OptionError(f"bincount: minlength should be >= 0, not {least}")
    if weights is None:
        return found("bincount", count_each, x, least)[0]
    count = max(least, found("bincount", count_bins, x)[0]._type.shape[0])
    if weights.dtype is not f32:
        weights = cast(weights, f64)
    zeros = broadcast(constant(0, weights._type.dtype), (count,))
    return emit(ops.index_add, (zeros, cast(x, i64), weights), axis=0)


@maps("[1.0, 2.0, 1.0, 4.0]", "bins=4", "min=0", "max=4", "[0., 2., 1., 1.]")
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Return how many elements fall into each of `bins` equal parts of [min, max].

    Elements outside aren't counted, nor is NaN; one at `max` belongs to the last part. Where min
    equals max, the least and greatest element are the limits; where these are equal, 1 less and 1
    more are.

    dtype: that of `input`.

    Args:
        input: floats, of any shape.
        bins: how many parts, above 0.
        min: the lower limit.
        max: the upper limit.

    Raises:
        DTypeError: `input` holds integers, of whose dtype the result would be.
        OptionError: `bins` isn't above 0.
        OptionError: the range isn't finite, or `max` is below `min`.
    """
    x = tensor_of(input, "histc")
    if not x._type.dtype.is_floating_point:
        raise DTypeError(f"histc: not implemented for {x.dtype!r}\nhint: tensor.float()")
    count = integer(bins, "histc", "bins")
    if count <= 0:
        raise OptionError(f"histc: bins must be > 0, not {count}")
    flat = reshaped(x, (x._type.size,)).detach()
    low, high = (operand(limit, x._type.dtype, "histc") for limit in (min, max))
    if min == max and flat._type.size:
        low, high, is_finite = _range(flat)
        require(is_finite, "histc: the range of the elements is not finite")
    elif not min <= max:
        raise OptionError(f"histc: max must be larger than min, and they are {max} and {min}")
    return _counts(flat, low, high, count)


@program
def _range(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The least and the greatest element, and whether both are finite."""
    low, high = x.amin(), x.amax()
    return low, high, low.isfinite() & high.isfinite()


@program
def _counts(flat: Tensor, low: Tensor, high: Tensor, count: int) -> Tensor:
    """How many elements fall into each part of a range."""
    is_point = high == low
    low, high = choose(is_point, low - 1, low), choose(is_point, high + 1, high)
    inside = (flat >= low) & (flat <= high)
    bucket = cast(floor((flat - low) * count / (high - low)), i64).clamp(0, count - 1)
    dtype = flat._type.dtype
    zeros = broadcast(constant(0, dtype), (count,))
    return emit(ops.index_add, (zeros, choose(inside, bucket, 0), cast(inside, dtype)), axis=0)
