"""Order: sort, topk, medians, quantiles, the k-th element, and places in a sorted row.

Args:
    input: a tensor of any dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid import return_types
from lucid.autograd.native import program
from lucid.choices import check_choice, check_flag
from lucid.docstrings import like, maps
from lucid.functions.arguments import axis_of, integer, tensor_of, typed
from lucid.functions.checks import require
from lucid.functions.conversion import cast
from lucid.functions.creation import linspace
from lucid.functions.elementwise import ceil, choose, clone, floor, round
from lucid.functions.gathering import gather
from lucid.functions.gradients import with_gradient
from lucid.functions.promotion import Number, operand, promoted
from lucid.functions.shape import broadcast, movedim, reshaped, sliced, squeeze, unsqueeze
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import DTypeError, OptionError, ShapeError
from lucid.ir.extents import MOST, is_open
from lucid.ir.types import bool_, i32, i64
from lucid.return_types import Kind, ValuesAndIndices
from lucid.tensor.context import context
from lucid.tensor.core import constant, emit, from_array
from lucid.tensor.levels import note_turn

__all__ = [
    "argsort", "bucketize", "histogram", "isin", "kthvalue", "median", "msort", "nanmedian",
    "nanquantile", "quantile", "searchsorted", "sort", "topk",
]  # fmt: skip


@maps("[3, 1, 2]", "[1, 2, 0]")
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Return the indices that sort the elements along `dim`, as int64.

    Equal elements keep their order in either direction, and a NaN counts as the greatest.

    Args:
        dim: the axis to sort along.
        descending: whether the greatest come first.
        stable: True or False; sorting is stable with either.

    Raises:
        ArgumentError: `stable` is no bool.
    """
    x = tensor_of(input, "argsort")
    check_flag(stable, "stable", "argsort", or_none=True)
    axis = axis_of(dim, x.ndim, "argsort")
    if not x.ndim:
        return constant(0, i64)
    return emit(ops.argsort, (x,), axis=axis, descending=bool(descending))


@like(argsort)
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> return_types.sort:
    """Return (values, indices) in order along `dim`; gradients flow to the values.

    >>> lucid.sort(lucid.tensor([3, 1, 2]), descending=True)
    lucid.return_types.sort(
    values=tensor([3, 2, 1]),
    indices=tensor([0, 2, 1]))
    """
    x = tensor_of(input, "sort")
    indices = argsort(x, dim, descending, stable)
    if not x.ndim:
        return return_types.sort(clone(x), indices)
    values = emit(ops.gather, (x, indices), axis=axis_of(dim, x.ndim, "sort"))
    return return_types.sort(values, indices)


@maps("[[3, 1], [2, 5], [1, 4]]", "[[1, 1], [2, 4], [3, 5]]")
def msort(input: Tensor) -> Tensor:
    """Return the elements in ascending order along axis 0, each column by itself."""
    return sort(input, 0).values


def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> return_types.topk:
    """Return (values, indices) of the k greatest, or smallest, elements along `dim`, in order.

    Gradients flow to the values; a NaN counts as the greatest.

    Args:
        k: how many, from 0 to the size of the axis.
        dim: the axis to look along.
        largest: whether the greatest are wanted, else the smallest.
        sorted: True or False; they are in order with either.

    Raises:
        ArgumentError: `sorted` is no bool.
        OptionError: `k` is negative or more than there are.

    >>> lucid.topk(lucid.tensor([3, 1, 4, 2]), 2)
    lucid.return_types.topk(
    values=tensor([4, 3]),
    indices=tensor([2, 0]))
    """
    x = tensor_of(input, "topk")
    check_flag(sorted, "sorted", "topk")
    axis = axis_of(dim, x.ndim, "topk")
    size = x._type.shape[axis] if x.ndim else 1
    count = integer(k, "topk", "k")
    if not 0 <= count <= size:
        raise OptionError(f"topk: selected index k out of range: {count} of {size}")
    if not x.ndim:
        return return_types.topk(clone(x), argsort(x))
    return return_types.topk(*_topk(x, count, axis, bool(largest)))


@program
def _topk(x: Tensor, count: int, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    """The first elements of the order, and their places: a program needn't order the others."""
    order = emit(ops.argsort, (x,), axis=axis, descending=largest)
    indices = clone(sliced(order, axis, 0, count))
    return emit(ops.gather, (x, indices), axis=axis), indices


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> return_types.kthvalue:
    """Return (values, indices) of the k-th smallest element along `dim`, counted from 1.

    Args:
        k: which one, from 1 to the size of the axis.
        dim: the axis to look along, which the results lack.

    Raises:
        OptionError: there is no such element.

    >>> lucid.kthvalue(lucid.tensor([3.0, 1.0, 4.0]), 2)
    lucid.return_types.kthvalue(
    values=tensor(3.),
    indices=tensor(0))
    """
    x = tensor_of(input, "kthvalue")
    axis = axis_of(dim, x.ndim, "kthvalue")
    size = x._type.shape[axis] if x.ndim else 1
    place = integer(k, "kthvalue", "k")
    if not 1 <= place <= size:
        raise OptionError(f"kthvalue: selected number k out of range for dimension {axis}: {place}")
    if not x.ndim:
        return return_types.kthvalue(clone(x), constant(0, i64))
    _, order = sort(x, axis)
    picked = clone(sliced(order, axis, place - 1, place))
    return _at(return_types.kthvalue, x, picked, axis, keepdim)


def _at(kind: type[Kind], x: Tensor, indices: Tensor, axis: int, keepdim: bool) -> Kind:
    values = emit(ops.gather, (x, indices), axis=axis)
    if keepdim:
        return kind(values, indices)
    return kind(squeeze(values, axis), squeeze(indices, axis))


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the median of all elements, or (values, indices) along `dim`.

    Of an even number it is the lower one of the two in the middle. A NaN among them is the result.

    Args:
        dim: the axis to look along, which the results lack. Default: None, the flattened tensor.

    Raises:
        OptionError: there are no elements.

    >>> lucid.median(lucid.tensor([1.0, 4.0, 2.0, 3.0]))
    tensor(2.)
    >>> lucid.median(lucid.tensor([[1, 5, 3], [9, 7, 8]]), 1)
    lucid.return_types.median(
    values=tensor([3, 8]),
    indices=tensor([2, 2]))
    """
    return _median(return_types.median, input, dim, keepdim)


@like(median)
@maps('[1.0, float("nan"), 3.0, 2.0]', "tensor(2.)")
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the `median` of the elements that are no NaN; of NaN alone it is NaN.

    Of an even number it is the lower one of the two in the middle.
    """
    return _median(return_types.nanmedian, input, dim, keepdim)


def _share_of_equals(g: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """All elements that are the median share its gradient."""
    same = (x == y) | ((x != x) & (y != y))
    return choose(same, g / same.sum(), 0.0)


@with_gradient(_share_of_equals)
def _median_of_floats(x: Tensor, kind: type[ValuesAndIndices]) -> Tensor:
    return _median_of_all(x, kind)


def _median_of_all(x: Tensor, kind: type[ValuesAndIndices]) -> Tensor:
    found: Tensor = _median(kind, reshaped(x, (x._type.size,)), 0, False).values
    return found


def _median(kind: type[ValuesAndIndices], input: Tensor, dim: int | None, keepdim: bool) -> Any:
    op = kind.__name__
    x = tensor_of(input, op)
    if dim is None:
        return (_median_of_floats if x.is_floating_point() else _median_of_all)(x, kind)
    axis = axis_of(dim, x.ndim, op)
    if not x.ndim:
        return kind(clone(x), constant(0, i64))
    size = x._type.shape[axis]
    if not size:
        raise OptionError(f"{op}: no elements along dim {dim}")
    order = sort(x, axis).indices
    missing = (x != x).long().sum(axis, keepdim=True)  # NaN come last
    if op == "median":
        place = choose(missing > 0, size - missing, (size - 1) // 2)
    else:
        place = choose(missing == size, 0, (size - 1 - missing) // 2)
    return _at(kind, x, emit(ops.gather, (order, place), axis=axis), axis, keepdim)


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@maps("[1.0, 2.0, 4.0]", "0.75", 'interpolation="lower"', "tensor(2.)")
@maps("[1.0, 2.0, 4.0]", "[0.5, 0.75]", "[2., 3.]")
def quantile(
    input: Tensor,
    q: Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """Return the q-quantiles along `dim`, or of all elements; a NaN among them is the result.

    The place is `q * (n - 1)` among n elements in order. Shapes: a vector of `q` adds a first axis.

    Args:
        input: a tensor of floats.
        q: a number in [0, 1], or a 0-d tensor or vector of such.
        dim: the axis to look along, which the result lacks. Default: None, the flattened tensor.
        interpolation: where the place is between two elements: "linear", "lower", "higher",
            "midpoint" or "nearest".

    Raises:
        DTypeError: integers or bools.
        OptionError: `q` outside of [0, 1], another `interpolation`, or no elements.
        ShapeError: `q` has more than one axis.
    """
    return _quantile(input, q, dim, keepdim, interpolation, "quantile")


@like(quantile)
@maps('[1.0, float("nan"), 2.0]', "0.5", "tensor(1.5000)")
def nanquantile(
    input: Tensor,
    q: Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """Return the `quantile` of the elements that are no NaN; of NaN alone it is NaN."""
    return _quantile(input, q, dim, keepdim, interpolation, "nanquantile")


def _quantile(
    input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, op: str
) -> Tensor:
    x = tensor_of(input, op)
    if x._type.dtype.kind != "float":
        raise DTypeError(f"{op}: needs a floating-point tensor, not {x.dtype!r}")
    check_choice(interpolation, "interpolation", op, _INTERPOLATIONS)
    if isinstance(q, (int, float)) and not 0 <= q <= 1:
        raise OptionError(f"{op}: q must be in the range [0, 1] but got {q}")
    ranks = operand(q, x._type.dtype, op)
    if ranks.ndim > 1:
        raise ShapeError(f"{op}: q must be a scalar or 1D tensor")
    ndim = x.ndim
    if dim is None:
        axis, x = 0, reshaped(x, (x._type.size,))
    else:
        axis = axis_of(dim, ndim, op)
        x = reshaped(x, (1,)) if not ndim else movedim(x, axis, -1)
    if not x._type.shape[-1]:
        raise OptionError(f"{op}: no elements")
    if isinstance(q, Tensor):
        inside = (ranks >= 0) & (ranks <= 1)
        require(inside, f"{op}: q must be in the range [0, 1]", input=input, q=q)
    values = _interpolated(x, reshaped(ranks, (ranks._type.size,)), interpolation, op)
    result = movedim(values, -1, 0)  # the quantiles first
    if keepdim and ndim:
        ones = (ranks._type.size, *(1,) * ndim)
        result = reshaped(result, ones) if dim is None else unsqueeze(result, axis + 1)
    return result if ranks.ndim else reshaped(result, result._type.shape[1:])


def _interpolated(x: Tensor, ranks: Tensor, interpolation: str, op: str) -> Tensor:
    """The quantiles along the last axis, in place of it."""
    ordered = sort(x, -1).values
    missing = (x != x).long().sum(-1, keepdim=True)
    size = x._type.shape[-1]
    last = (size - 1 - missing).to(x.dtype) if op == "nanquantile" else size - 1
    place: Tensor = ranks * last
    place = broadcast(place, (*x._type.shape[:-1], ranks._type.size)).clamp(min=0)
    if interpolation == "nearest":
        place = round(place)
    low, high = floor(place), ceil(place)
    if interpolation == "lower":
        high = low
    elif interpolation == "higher":
        low = high
    below, above = (
        emit(ops.gather, (ordered, cast(end.detach(), i64)), axis=x.ndim - 1) for end in (low, high)
    )
    share = 0.5 * (high - low) if interpolation == "midpoint" else place - floor(place)
    between = choose(low == high, below, below + (above - below) * share)
    if op == "nanquantile":
        return between
    return choose(broadcast(missing > 0, between._type.shape), float("nan"), between)


@maps("[1, 3, 5]", "3", "right=True", "tensor(2)")
@maps("[1, 3, 5]", "[0, 3, 9]", "[0, 1, 3]")
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | Number,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Return where each element belongs in a sorted row, so that the row stays sorted.

    Shapes: a row (n,) for any input, or rows (..., n) for inputs (..., m); the result has that of
    the input. dtype: int64.

    Args:
        sorted_sequence: the rows, in ascending order, which isn't checked; NaN is greatest.
        input: a tensor or a number.
        out_int32: whether the result is int32.
        right: whether behind equal elements instead of before them.
        sorter: an index of the same shape that sorts the rows, which then are in any order.
        side: "right" for `right=True`; "left" changes nothing.

    Raises:
        OptionError: another `side`.
        ShapeError: the leading axes differ, the row is 0-d, or `sorter` has another shape.
    """
    if side not in (None, "left", "right"):
        raise OptionError(f"searchsorted: side must be 'left' or 'right', not {side!r}")
    rows = tensor_of(sorted_sequence, "searchsorted", "sorted_sequence")
    if sorter is not None:
        if sorter._type.shape != rows._type.shape:
            raise ShapeError("searchsorted: sorter must have the shape of the boundaries")
        rows = gather(rows, -1, sorter)
    row, wanted = promoted(rows, input, "searchsorted")
    lead = row._type.shape[:-1]
    if not row.ndim or (row.ndim > 1 and lead != wanted._type.shape[:-1]):
        raise ShapeError(
            "searchsorted: boundaries tensor should be 1 dimension or the first N-1 dimensions of "
            "boundaries tensor and input value tensor must match"
        )
    shape = wanted._type.shape
    flat = reshaped(wanted, (*lead, -1 if not lead else shape[-1])) if lead else _vector(wanted)
    found = _bisected(row, flat, right or side == "right")
    result = reshaped(found, shape)
    return cast(result, i32) if out_int32 else result


def _vector(x: Tensor) -> Tensor:
    return reshaped(x, (x._type.size,))


def _bisected(row: Tensor, wanted: Tensor, right: bool) -> Tensor:
    """Bisection, as many steps as the row's length needs; a NaN is greater than all else."""
    size, axis = row._type.shape[-1], row.ndim - 1
    if context.recorder is None and not context.levels:
        return from_array(_places(row._array, wanted._array, "right" if right else "left"))
    note_turn()
    low = broadcast(constant(0, i64), wanted._type.shape)
    high = low + size
    for _ in range((MOST if is_open(size) else size).bit_length()):
        middle = (low + high) // 2
        element = emit(ops.gather, (row, middle.clamp(max=size - 1)), axis=axis)
        after = element <= wanted if right else element < wanted
        after = after | ((wanted != wanted) & (right | (element == element)))
        after = after & (low < high)
        low, high = choose(after, middle + 1, low), choose(after, high, middle)
    return clone(low)


def _places(row: Any, wanted: Any, side: Any) -> np.ndarray:
    """The same by NumPy, whose order of NaN it is."""
    found = np.empty(wanted.shape, np.int64)
    for index in np.ndindex(row.shape[:-1]):  # of a single row that is ()
        found[index] = np.searchsorted(row[index], wanted[index], side)
    return found


@maps("[1, 2, 9]", "[1, 5]", "[0, 1, 2]")
def bucketize(
    input: Tensor | Number, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Return the number of the bucket that each element falls into, between sorted boundaries.

    Element x falls into bucket i if `boundaries[i - 1] < x <= boundaries[i]`.

    Args:
        input: a tensor or a number.
        boundaries: a vector in ascending order, which isn't checked.
        out_int32: whether the result is int32 instead of int64.
        right: whether a boundary belongs to the bucket above it.

    Raises:
        ShapeError: boundaries without an axis.
        ShapeError: the boundaries are no vector.
    """
    rows = tensor_of(boundaries, "bucketize", "boundaries")
    if rows.ndim != 1:
        raise ShapeError(f"bucketize: boundaries must be a vector, not {rows._type}")
    return searchsorted(rows, input, out_int32=out_int32, right=right)


@maps("[[1, 2], [3, 4]]", "[2, 4, 6]", "[[False,  True], [False,  True]]")
def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Return whether each element is among the test elements; a NaN is not.

    Args:
        elements: a tensor or a number.
        test_elements: what they are compared with, of any shape, likewise.
        assume_unique: True or False; equal elements make no difference.
        invert: whether it tells those that aren't among them.

    Raises:
        ArgumentError: `assume_unique` is no bool.
    """
    check_flag(assume_unique, "assume_unique", "isin")
    x, among = promoted(elements, test_elements, "isin")
    flat = _vector(among)
    found = _is_one_of_few(x, flat) if flat._type.size <= _FEW else _is_one_of_many(x, flat)
    return ~found if invert else found


_FEW = 32  # of these each element is compared with all


def _is_one_of_few(x: Tensor, few: Tensor) -> Tensor:
    found: Tensor = (unsqueeze(x, -1) == few).any(-1)
    return found


def _is_one_of_many(x: Tensor, many: Tensor) -> Tensor:
    """The same with the one that stands where it would be in order, if that is another number."""
    if x.dtype is bool_:
        x, many = cast(x, i64), cast(many, i64)
    ordered = sort(many)[0]
    place = searchsorted(ordered, x).clamp(max=many._type.size - 1)
    return x == ordered[place]


def histogram(
    input: Tensor,
    bins: Tensor | int,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> return_types.histogram:
    """Return how many elements fall between two edges, for each two that follow one another.

    An element at the lower edge of a bin belongs to it; the last bin has its upper edge too.
    Elements outside aren't counted, nor is NaN. There is no gradient.

    dtype: that of `input`.

    Args:
        input: floats, of any shape.
        bins: the edges, a vector that ascends; or how many bins of equal width there are.
        range: where those begin and end. Default: None, at the least and the greatest element.
        weight: what each element counts, of the shape of `input`. Default: None, one each.
        density: whether to divide by the sum of all and by the bin's width.

    Raises:
        DTypeError: `input` holds integers, or edges or weights have another dtype.
        ShapeError: the edges are no vector, or the weights have another shape.
        OptionError: there is no bin, or the range is empty, or given with edges.

    >>> lucid.histogram(lucid.tensor([1.0, 2.0, 1.0, 4.0]), bins=2)
    lucid.return_types.histogram(
    hist=tensor([3., 1.]),
    bin_edges=tensor([1.0000, 2.5000, 4.0000]))
    """
    x = tensor_of(input, "histogram").detach()
    dtype = x._type.dtype
    if not dtype.is_floating_point:
        raise DTypeError(f"histogram: not implemented for {x.dtype!r}\nhint: tensor.float()")
    flat = reshaped(x, (x._type.size,))
    edges = _edges(flat, bins, range)
    count = edges._type.size - 1
    place = searchsorted(edges, flat, right=True) - 1
    inside = (flat >= edges[0]) & (flat <= edges[-1])
    amounts = cast(inside, dtype)
    if weight is not None:
        _check_parts(input=x, weight=weight)
        if weight._type.shape != x._type.shape:
            raise ShapeError(
                f"histogram: weight needs input's shape{typed(input=x, weight=weight)}"
            )
        amounts = choose(inside, reshaped(weight.detach(), flat._type.shape), 0.0)
    zeros = broadcast(constant(0, dtype), (count,))
    place = choose(inside, place.clamp(0, count - 1), 0)
    hist: Tensor = emit(ops.index_add, (zeros, place, amounts), axis=0)
    if density:
        hist = hist / (hist.sum() * (edges[1:] - edges[:-1]))
    return return_types.histogram(hist, edges)


def _edges(flat: Tensor, bins: Tensor | int, range: tuple[float, float] | None) -> Tensor:
    """Of a histogram's bins: those that are given, or such as are equally far from one another."""
    if isinstance(bins, Tensor):
        _check_parts(input=flat, bins=bins)
        if bins.ndim != 1 or bins._type.size < 2:
            raise ShapeError(f"histogram: bins must be a vector of two or more{typed(bins=bins)}")
        if range is not None:
            raise OptionError("histogram: range is of bins that are a number")
        return bins.detach()
    count, dtype = integer(bins, "histogram", "bins"), flat._type.dtype
    if count <= 0:
        raise OptionError(f"histogram: bins must be > 0, not {count}")
    if range is None:
        limits = (flat.amin(), flat.amax()) if flat._type.size else (0.0, 0.0)
    else:
        limits = range
        if range[0] > range[1]:
            raise OptionError(f"histogram: min {range[0]} is above max {range[1]}")
    low, high = (operand(limit, dtype, "histogram") for limit in limits)
    is_empty = low == high
    low, high = choose(is_empty, low - 0.5, low), choose(is_empty, high + 0.5, high)
    return linspace(low, high, count + 1, dtype=dtype)


def _check_parts(input: Tensor, **others: Tensor) -> None:
    if any(other._type.dtype is not input._type.dtype for other in others.values()):
        raise DTypeError(f"histogram: the dtypes must be input's{typed(input=input, **others)}")
