"""Reducing and counting by index, and writing where a mask holds."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from lucid import return_types
from lucid.autograd.function import Function
from lucid.autograd.native import fused, runs_natively
from lucid.choices import check_choice
from lucid.functions.arguments import axis_of, common_shape, integer, tensor_of, typed
from lucid.functions.checks import in_range
from lucid.functions.conversion import cast
from lucid.functions.creation import linspace
from lucid.functions.elementwise import choose, clone, floor, maximum, minimum
from lucid.functions.finding import count_bins, found
from lucid.functions.gathering import corner, scattered
from lucid.functions.promotion import Number, operand
from lucid.functions.quantiles import searchsorted
from lucid.functions.shape import broadcast, reshaped
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import DTypeError, OptionError, ShapeError
from lucid.ir.types import Shape, f32, f64, i64
from lucid.tensor.core import constant, emit

__all__ = ["bincount", "histc", "histogram", "index_reduce", "masked_scatter", "scatter_reduce"]

_NEUTRAL = {"prod": 1, "amax": -np.inf, "amin": np.inf}


def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
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
        include_self: whether elements of `input` take part where something is written. Default:
            True.

    Raises:
        OptionError: `reduce` is something else.
        DTypeError: the dtypes differ.

    Example:
        >>> x, index = lucid.tensor([9.0, 9.0, 9.0]), lucid.tensor([0, 0, 1])
        >>> src = lucid.tensor([1.0, 2.0, 3.0])
        >>> lucid.scatter_reduce(x, 0, index, src, "mean", include_self=False)
        tensor([1.5000, 3.0000, 9.0000])
        >>> lucid.scatter_reduce(x, 0, index, src, "amin")
        tensor([1., 3., 9.])
    """
    return reduced_at("scatter_reduce", input, dim, index, src, reduce, include_self)


def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Return a copy with slices of `source` reduced into those that a vector of indices names.

    Slices of `input` that the index doesn't name stay.

    Shapes: `source` is as `input`, with the length of the index along `dim`.
    dtype: that of `input`, which `source` has too; a mean of integers rounds down.

    Args:
        index: a vector of integers from 0 to the size of that axis.
        source: the slices.
        reduce: "prod", "mean", "amax" or "amin"; `index_add` makes sums.
        include_self: whether slices of `input` take part where something is written. Default:
            True.

    Raises:
        OptionError: `reduce` is something else.
        ShapeError: the index is no vector, or `source` has another shape.
        DTypeError: the dtypes differ.

    Example:
        >>> source = lucid.tensor([1.0, 2.0, 3.0])
        >>> lucid.index_reduce(lucid.ones(3) * 2, 0, lucid.tensor([0, 0, 2]), source, "prod")
        tensor([4., 2., 6.])
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
) -> Tensor:
    """As `scatter_reduce`, which messages call by another name."""
    x, source = tensor_of(input, name), tensor_of(src, name, "src")
    check_choice(reduce, "reduce", name, ("sum", "mean", *_NEUTRAL))
    if x._type.dtype is not source._type.dtype:
        raise DTypeError(f"{name}: self and src must have one dtype")
    ones = broadcast(constant(1, x._type.dtype), index._type.shape)
    zeros = broadcast(constant(0, x._type.dtype), x._type.shape)
    source = corner(source, index._type.shape, name)
    hits = scattered(name, ops.scatter_add, zeros, dim, index, ones)
    base = x if include_self else choose(hits > 0, 0 if reduce in ("sum", "mean") else x, x)
    if reduce in ("sum", "mean"):
        total = scattered(name, ops.scatter_add, base, dim, index, source)
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
        result = _ExtremeAt.apply(x, at, source, hits, reduce, axis, include_self)
    return reshaped(result, input._type.shape)


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


@runs_natively
class _ExtremeAt(Function):
    """The greatest, or smallest, of what is at a place and all that goes there.

    Written in the order of their values, the last one stays. All that reach an extreme share its
    cotangent evenly.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        at: Tensor,
        source: Tensor,
        hits: Tensor,
        reduce: str,
        axis: int,
        include_self: bool,
    ) -> Tensor:
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
        result = choose(hits > 0, found, x)
        ctx.save_for_backward(x, at, source, hits, result)
        ctx.axis, ctx.include_self = axis, include_self
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, at, source, hits, result = ctx.saved_tensors
        dtype, axis = gradient._type.dtype, ctx.axis
        mine = cast(source == emit(ops.gather, (result, at), axis=axis), dtype)
        own = cast((x == result) & (hits > 0), dtype) if ctx.include_self else ops.zeros_like(x)
        count = emit(ops.scatter_add, (own, at, mine), axis=axis)
        share = gradient / count
        shared = mine * emit(ops.gather, (share, at), axis=axis)
        return choose(hits > 0, own * share, gradient), None, shared, None, None, None, None


def _neutral(reduce: str, x: Tensor) -> Number:
    if reduce == "prod" or x._type.dtype.kind == "float":
        return _NEUTRAL[reduce]
    info = np.iinfo(x._type.dtype.numpy.str)
    return int(info.min if reduce == "amax" else info.max)


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Return a copy with the elements of `source`, in order, where the mask holds.

    The first True in row-major order gets the first element of the source, whatever its place.
    Elements that are left over aren't used.

    Args:
        mask: bools; it broadcasts with `input`.
        source: at least as many elements as the mask has ones, of the dtype of `input`.

    Raises:
        DTypeError: the mask isn't bool, or the source has another dtype.
        IndexOutOfRangeError: the source has too few elements.

    Example:
        >>> x = lucid.tensor([1, 2, 3, 4])
        >>> lucid.masked_scatter(x, x % 2 == 0, lucid.tensor([20, 40]))
        tensor([ 1, 20,  3, 40])
    """
    x, values = tensor_of(input, "masked_scatter"), tensor_of(source, "masked_scatter", "source")
    if mask.dtype.kind != "bool" or values._type.dtype is not x._type.dtype:
        raise DTypeError("masked_scatter: the mask must be bool, and source of input's dtype")
    shape = common_shape("masked_scatter", input=x, mask=mask)
    inside = reshaped(broadcast(mask, shape), (int(np.prod(shape)),))
    counted = emit(ops.cumsum, (cast(inside, i64),), axis=0)
    flat = reshaped(values, (values._type.size,))
    in_range(counted, 0, flat._type.size + 1, partial(_too_few, x, mask, values))
    if not flat._type.size:
        return clone(broadcast(x, shape))
    place = choose(inside, counted - 1, 0)
    taken = reshaped(emit(ops.take, (flat, place), axis=0), shape)
    return choose(reshaped(inside, shape), taken, broadcast(x, shape))


def _too_few(input: Tensor, mask: Tensor, source: Tensor) -> str:
    listing = typed(input=input, mask=mask, source=source)
    return f"masked_scatter: the source has fewer elements than the mask has ones{listing}"


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Return how often each of 0, 1, 2, … comes in a vector, or the sum of its weights.

    The size depends on data: a compiled step is traced anew for each that it meets.

    Shapes: (max(minlength, input.max() + 1),).
    dtype: int64; with weights float32 for float32 ones, else float64.

    Args:
        input: a vector of integers that aren't negative.
        weights: what each element counts, of the length of `input`. Default: None, one each.
        minlength: how long the result is at least. Default: 0.

    Raises:
        OptionError: a number is negative, or `minlength` is.
        ShapeError: `input` is no vector of integers.

    Example:
        >>> lucid.bincount(lucid.tensor([1, 3, 1]))
        tensor([0, 2, 0, 1])
        >>> lucid.bincount(lucid.tensor([0, 1, 0]), lucid.tensor([0.5, 1.0, 2.0]))
        tensor([2.5000, 1.0000])
    """
    x = tensor_of(input, "bincount")
    if x.ndim != 1 or x._type.dtype.kind != "int":
        raise ShapeError("bincount: only supports 1-d non-negative integral inputs")
    needed = found("bincount", count_bins, x)[0]._type.shape[0]
    least = integer(minlength, "bincount", "minlength")
    if least < 0:
        raise OptionError(f"bincount: minlength should be >= 0, not {least}")
    count = max(least, needed)
    if weights is None:
        weights = broadcast(constant(1, i64), x._type.shape)
    elif weights.dtype is not f32:
        weights = cast(weights, f64)
    zeros = broadcast(constant(0, weights._type.dtype), (count,))
    return emit(ops.index_add, (zeros, cast(x, i64), weights), axis=0)


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Return how many elements fall into each of `bins` equal parts of [min, max].

    Elements outside aren't counted, nor is NaN; one at `max` belongs to the last part. Where min
    equals max, the least and greatest element are the limits.

    dtype: that of `input`.

    Args:
        input: floats, of any shape.
        bins: how many parts, above 0. Default: 100.
        min: the lower limit. Default: 0.
        max: the upper limit. Default: 0.

    Raises:
        DTypeError: `input` holds integers, of whose dtype the result would be.
        OptionError: `bins` isn't above 0.

    Example:
        >>> lucid.histc(lucid.tensor([1.0, 2.0, 1.0, 4.0]), bins=4, min=0, max=4)
        tensor([0., 2., 1., 1.])
    """
    x = tensor_of(input, "histc")
    if not x._type.dtype.is_floating_point:
        raise DTypeError(f"histc: not implemented for {x.dtype!r}\nhint: tensor.float()")
    count = integer(bins, "histc", "bins")
    if count <= 0:
        raise OptionError(f"histc: bins must be > 0, not {count}")
    flat = reshaped(x, (x._type.size,)).detach()
    low, high = (operand(limit, x._type.dtype, "histc") for limit in (min, max))
    if min == max:
        low, high = flat.amin(), flat.amax()
    inside = (flat >= low) & (flat <= high)
    width = choose(high == low, 1.0, high - low)
    bucket = cast(floor((flat - low) * count / width), i64).clamp(0, count - 1)
    zeros = broadcast(constant(0, x._type.dtype), (count,))
    ones = cast(inside, x._type.dtype)
    return emit(ops.index_add, (zeros, choose(inside, bucket, 0), ones), axis=0)


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
        density: whether to divide by the sum of all and by the bin's width. Default: False.

    Raises:
        DTypeError: `input` holds integers, or edges or weights have another dtype.
        ShapeError: the edges are no vector, or the weights have another shape.
        OptionError: there is no bin, or the range is empty, or given with edges.

    Example:
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
