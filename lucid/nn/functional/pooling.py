"""Pools: the greatest element, or the mean, of each window; adaptive ones, and inverses.

The gradient of a maximum goes to its first place in the window, or to the first NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

import lucid
from lucid.autograd import Function
from lucid.autograd.native import program, runs_natively
from lucid.docstrings import ending, like
from lucid.functions.arguments import integer, require_computable, tensor_of
from lucid.functions.checks import in_range
from lucid.functions.elementwise import where
from lucid.functions.gradients import with_gradient
from lucid.functions.promotion import floating, number
from lucid.ir import ops
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.types import Shape, i32
from lucid.nn.functional.sliding import (
    Ints,
    Size,
    Windows,
    add_windows,
    batched,
    entries,
    last_axes,
    of_each_rank,
    times,
    windows_of,
)
from lucid.tensor.context import context
from lucid.tensor.core import from_array
from lucid.tensor.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "fractional_max_pool2d", "fractional_max_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d",
    "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip


def _kept(y: Tensor, rank: int) -> Tensor:
    """Give a pool's result axes of size 1 for the places in a window."""
    return y.reshape(*y.shape, *([1] * rank))


def _lowest(x: Tensor) -> float:
    return -float("inf") if x.dtype.is_floating_point else float(lucid.iinfo(x.dtype).min)


@runs_natively
class MaxPool(Function):
    """The greatest element of each window; a NaN wins."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, windows: Windows) -> Tensor:
        view = windows_of(x, windows, _lowest(x))
        y: Tensor = ops.amax(view, axes=last_axes(view, windows.rank))
        ctx.save_for_backward(x, y._alias().clone())  # activations are written into the result
        ctx.windows = windows
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, y = ctx.saved_tensors
        windows: Windows = ctx.windows
        with lucid.no_grad():
            mine = _first_greatest(windows_of(x, windows, _lowest(x)), y, windows)
        spread = where(mine, _kept(g, windows.rank), 0.0)
        return add_windows(spread, windows, tuple(x.shape[-windows.rank :])), None


def _first_greatest(view: Tensor, y: Tensor, windows: Windows) -> Tensor:
    """Whether an element of a window is the first of those that equal its maximum `y`."""
    rank, count = windows.rank, prod(windows.sizes)
    greatest = _kept(y, rank)
    hit = (view == greatest) | (view != view)
    position = ops.reshape(ops.indices(view, (count,), 0, i32), shape=windows.sizes)
    first = where(hit, position, count).amin(last_axes(view, rank), keepdim=True)
    found: Tensor = position == first
    return found


def _avg_vjp(g: Tensor, divisor: float | Tensor, windows: Windows, lengths: Shape) -> Tensor:
    spread = _kept(g / divisor, windows.rank).expand(*g.shape, *windows.sizes)
    return add_windows(spread, windows, lengths)


@with_gradient(_avg_vjp)
def _averages(x: Tensor, divisor: Tensor, windows: Windows, lengths: Shape) -> Tensor:
    """The sum of each window, divided by a number or by one per window."""
    view = windows_of(x, windows)
    return ops.sum(view, axes=last_axes(view, windows.rank)) / divisor


# Arguments ------------------------------------------------------------------------------------


def _pool_windows(
    name: str,
    x: Tensor,
    kernel_size: Size,
    options: tuple[Size | None, Size, Size],
    ceil_mode: bool,
) -> Windows:
    """The windows of a pool over all but the first two axes of `x`."""
    rank = x.ndim - 2
    stride, padding, dilation = options
    sizes = entries(name, "kernel_size", kernel_size, rank)
    steps = entries(name, "stride", kernel_size if stride is None else stride, rank)
    dilations = entries(name, "dilation", dilation, rank)
    low = entries(name, "padding", padding, rank, 0)
    make = _windows if context.recorder is None else _windows.__wrapped__  # sizes may be open there
    return make(name, Windows(sizes, steps, dilations, low, low), tuple(x.shape[2:]), ceil_mode)


@lru_cache(256)
def _windows(name: str, windows: Windows, lengths: Shape, ceil_mode: bool) -> Windows:
    """The windows over axes of these lengths, of which the last ones may reach over the end."""
    low = windows.low
    if any(2 * n > span for n, span in zip(low, windows.spans, strict=True)):
        raise OptionError(f"{name}: padding {list(low)} must be at most half of the kernel's span")
    if ceil_mode:
        windows = replace(windows, high=_reaching(windows, lengths))
    counts = windows.counts(lengths)
    if min(counts) < 1:
        raise ShapeError(f"{name}: the output size ({times(counts)}) is too small")
    return windows


def _reaching(windows: Windows, lengths: Shape) -> Ints:
    """Padding behind so that the last window, if it begins before the end, is whole."""
    found = []
    places = zip(lengths, windows.low, windows.spans, windows.steps, strict=True)
    for length, low, span, step in places:
        count = -(-(length + 2 * low - span) // step) + 1
        if (count - 1) * step >= length + low:
            count -= 1
        found.append(max(low, (count - 1) * step + span - length - low))
    return tuple(found)


def _max_pool(
    rank: int,
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest element of each window along the last axis, of (n, c, l) or (c, l).

    An axis of size l becomes (l + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1, rounded
    down. Ties go to the first. With `return_indices` the result is a pair.

    Args:
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        padding: how much -inf is added at both ends, at most half a window.
        ceil_mode: let a window that begins inside reach over the end.
        return_indices: return the places of the greatest elements too, flat within the axes.

    >>> F.max_pool1d(lucid.ones(1, 2, 6), 2).shape
    lucid.Size([1, 2, 3])
    """
    name = f"max_pool{rank}d"
    x, had_batch = batched(name, input, rank)
    windows = _pool_windows(name, x, kernel_size, (stride, padding, dilation), ceil_mode)
    if return_indices:
        both = _with_places(x, windows)
        return both if had_batch else (both[0].squeeze(0), both[1].squeeze(0))
    y: Tensor = MaxPool.apply(x, windows)
    return y if had_batch else y.squeeze(0)


max_pool1d, max_pool2d, max_pool3d = of_each_rank(_max_pool)


@program
def _with_places(x: Tensor, windows: Windows) -> tuple[Tensor, Tensor]:
    """The windows' first maxima, and where in the input these are."""
    places = _places_of_greatest(x, windows)
    flat: Tensor = ops.gather(x.flatten(2), places.flatten(2), axis=2)
    return flat.reshape(places.shape), places


def _places_of_greatest(x: Tensor, windows: Windows) -> Tensor:
    """Where in the input each window's first maximum lies, counted over all but the first axes."""
    rank, lengths = windows.rank, x.shape[2:]
    with lucid.no_grad():
        view = windows_of(x, windows, _lowest(x))
        y = ops.amax(view, axes=last_axes(view, rank))
        mine = _first_greatest(view, y, windows).flatten(-rank)
        within = mine.to(i32).argmax(-1)
        place = lucid.zeros_like(within)
        for axis in range(rank):
            inner = prod(windows.sizes[axis + 1 :])
            offset = within // inner % windows.sizes[axis] * windows.dilations[axis]
            start = lucid.arange(y.shape[2 + axis]) * windows.steps[axis] - windows.low[axis]
            start = start.reshape(-1, *([1] * (rank - 1 - axis)))
            place = place * lengths[axis] + start + offset
        return place


@like(_max_pool)
def _avg_pool(
    rank: int,
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window along the last axis, of (n, c, l) or (c, l).

    An axis of size l becomes floor((l + 2 padding - kernel_size) / stride) + 1; with `ceil_mode` it
    is rounded up.

    Args:
        padding: how many elements are added at both ends of each axis.
        count_include_pad: let the zeros of the padding count in the mean.
        divisor_override: divide by this instead of by the number of elements.

    Raises:
        OptionError: a `padding` of more than half a window, or a divisor of 0.

    >>> F.avg_pool1d(lucid.ones(1, 2, 6), 2).shape
    lucid.Size([1, 2, 3])
    """
    name = f"avg_pool{rank}d"
    if divisor_override == 0:
        raise OptionError(f"{name}: divisor must be not zero")
    x, had_batch = batched(name, input, rank)
    windows = _pool_windows(name, x, kernel_size, (stride, padding, 1), ceil_mode)
    divisor = number(divisor_override or prod(windows.sizes), x.dtype)
    if divisor_override is None and (ceil_mode or not count_include_pad) and max(windows.high):
        counts = _elements(windows, tuple(x.shape[2:]), count_include_pad)
        divisor = from_array(counts.astype(x.dtype.numpy))
    y = _averages(x, divisor, windows, tuple(x.shape[2:]))
    return y if had_batch else y.squeeze(0)


_, avg_pool2d, avg_pool3d = of_each_rank(_avg_pool)


@like(_avg_pool)
def avg_pool1d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window along the last axis, of (n, c, l) or (c, l)."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def _elements(windows: Windows, lengths: Shape, count_padding: bool) -> np.ndarray:
    """How many elements of each window count: of the input, perhaps with its own padding."""
    result = np.ones((), np.int64)
    places = zip(lengths, windows.low, windows.sizes, windows.steps, strict=True)
    for count, (length, low, size, step) in zip(windows.counts(lengths), places, strict=True):
        starts = np.arange(count) * step - low
        first, last = (-low, length + low) if count_padding else (0, length)
        inside = np.minimum(starts + size, last) - np.maximum(starts, first)
        result = result[..., None] * inside
    return result


@like(_max_pool)
def _lp_pool(
    rank: int,
    input: Tensor,
    norm_type: float,
    kernel_size: Size,
    stride: Size | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The norm of order `norm_type` of each window along the last axis.

    (sum of x ** norm_type) ** (1 / norm_type) over each window of (n, c, *axes) or (c, *axes).

    Args:
        norm_type: the order of the norm.

    >>> F.lp_pool1d(lucid.ones(1, 2, 6), 2, 2).shape
    lucid.Size([1, 2, 3])
    """
    x = tensor_of(input, f"lp_pool{rank}d")
    mean = _avg_pool(rank, x**norm_type, kernel_size, stride, 0, ceil_mode)
    total = mean * prod(entries(f"lp_pool{rank}d", "kernel_size", kernel_size, rank))
    return (total.sign() * lucid.relu(total.abs())) ** (1.0 / norm_type)  # no gradient to zeros


lp_pool1d, lp_pool2d, lp_pool3d = of_each_rank(_lp_pool)


Sizes = int | Sequence[int | None] | None


def adaptive_sizes(kind: str, rank: int, input: Tensor, output_size: Sizes) -> tuple[Ints, Shape]:
    """The output's sizes and the input's, for `adaptive_<kind>_pool<rank>d`."""
    name = f"adaptive_{kind}_pool{rank}d"
    batched(name, input, rank)
    lengths = tuple(input.shape[-rank:])
    given = output_size if isinstance(output_size, Sequence) else (output_size,) * rank
    if len(given) != rank:
        raise OptionError(f"{name}: output_size must have {rank} entries, got {list(given)}")
    wanted = tuple(
        length if size is None else integer(size, name, "output_size")
        for length, size in zip(lengths, given, strict=True)
    )
    if min(wanted) < 0 or min(lengths) < 1:
        raise ShapeError(f"{name}: can't pool {list(lengths)} elements to {list(wanted)}")
    return wanted, lengths


def _adaptive_avg_pool(rank: int, input: Tensor, output_size: Sizes) -> Tensor:
    """The means of `output_size` bins along the last axis; a None leaves an axis as it is.

    Bin i of n on an axis of size l has the elements from floor(i l / n) to ceil((i + 1) l / n), so
    neighbours may share some.

    Shapes: input (batch, c, *axes) or (c, *axes); the result has `output_size` for the axes.

    Args:
        output_size: how many bins each axis gets; an int for all, None leaves an axis as it is.

    >>> F.adaptive_avg_pool1d(lucid.ones(2, 4, 6), 3).shape
    lucid.Size([2, 4, 3])
    """
    wanted, lengths = adaptive_sizes("avg", rank, input, output_size)
    if all(size and length % size == 0 for size, length in zip(wanted, lengths, strict=True)):
        sizes = tuple(length // size for size, length in zip(wanted, lengths, strict=True))
        return _avg_pool(rank, input, sizes)
    y = floating(input, f"adaptive_avg_pool{rank}d")
    for axis, size, length in zip(range(-rank, 0), wanted, lengths, strict=True):
        means = from_array(_means(length, size).astype(y.dtype.numpy))
        y = (y.movedim(axis, -1) @ means).movedim(-1, axis)
    return y


def _means(length: int, size: int) -> np.ndarray:
    """The matrix (length, size) that takes the mean of each bin, from floor to ceiling."""
    require_computable((length, size), "adaptive_avg_pool")
    matrix = np.zeros((length, size))
    for i in range(size):
        start, stop = i * length // size, -(-(i + 1) * length // size)
        matrix[start:stop, i] = 1 / (stop - start)
    return matrix


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = of_each_rank(_adaptive_avg_pool)


@like(_adaptive_avg_pool)
def _adaptive_max_pool(
    rank: int, input: Tensor, output_size: Sizes, return_indices: bool = False
) -> Any:
    """The greatest element of each of `output_size` bins along the last axis.

    Args:
        return_indices: return the places of the greatest elements too, flat within the axes.

    >>> F.adaptive_max_pool1d(lucid.ones(2, 4, 6), 3).shape
    lucid.Size([2, 4, 3])
    """
    wanted, lengths = adaptive_sizes("max", rank, input, output_size)
    if all(size and length % size == 0 for size, length in zip(wanted, lengths, strict=True)):
        sizes = tuple(length // size for size, length in zip(wanted, lengths, strict=True))
        return _max_pool(rank, input, sizes, return_indices=return_indices)
    y, places = input, lucid.arange(math.prod(lengths)).reshape(lengths).expand(input.shape)
    for axis in range(-1, -rank - 1, -1):  # ties go to the first row, and in it the first column
        length, size = lengths[axis], wanted[axis]
        greatest = _spread(y, axis, length, size).max(axis)
        if return_indices:
            chosen = _spread(places, axis, length, size).gather(
                axis, greatest.indices.unsqueeze(axis)
            )
            places = chosen.squeeze(axis)
        y = greatest.values
    return (y, places) if return_indices else y


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = of_each_rank(_adaptive_max_pool)


def _spread(x: Tensor, axis: int, length: int, size: int) -> Tensor:
    """The elements of each bin of an axis, along a new axis behind it, which then has its name."""
    bins = from_array(_bins(length, size))
    spread: Tensor = ops.take(x, bins.reshape(-1), axis=x.ndim + axis)
    return spread.unflatten(axis, tuple(bins.shape))


def _bins(length: int, size: int) -> np.ndarray:
    """The places of each bin, as rows; a short bin repeats its last place."""
    bins = np.arange(size)
    starts, stops = bins * length // size, -(-(bins + 1) * length // size)
    width = int((stops - starts).max(initial=0))
    found: np.ndarray = np.minimum(starts[:, None] + np.arange(width), stops[:, None] - 1)
    return found


def _fractional_max_pool(
    rank: int,
    input: Tensor,
    kernel_size: Size,
    output_size: Size | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The greatest element of each of `output_size` windows at random places along the last axis.

    Neighbouring windows are one of two distances apart, in a random order for each channel.

    Reference: Graham, "Fractional Max-Pooling", 2014.

    Args:
        kernel_size: the size of a window; an int, or one for each axis.
        output_size: how many windows each axis gets; else `output_ratio` says it.
        output_ratio: how many windows for each element, above 0 and below 1.
        return_indices: return the places of the greatest elements too, flat within the axes.
        _random_samples: (n, c, axes), numbers from 0 to 1 that say where the windows are, of two
            axes the last one's first. None draws them.

    Raises:
        OptionError: neither `output_size` nor `output_ratio`, or both.
        ShapeError: the axes are too short for so many windows.
    """
    name = f"fractional_max_pool{rank}d"
    x, had_batch = batched(name, input, rank)
    lengths, sizes = tuple(x.shape[2:]), entries(name, "kernel_size", kernel_size, rank)
    if (output_size is None) == (output_ratio is None):
        raise OptionError(f"{name} requires specifying either an output_size or an output_ratio")
    if output_ratio is not None:
        ratios = output_ratio if isinstance(output_ratio, Sequence) else (output_ratio,) * rank
        output_size = [int(n * ratio) for n, ratio in zip(lengths, ratios, strict=True)]
    assert output_size is not None
    wanted = entries(name, "output_size", output_size, rank)
    if any(size + count - 1 > n for size, count, n in zip(sizes, wanted, lengths, strict=True)):
        raise ShapeError(f"{name}: {list(lengths)} elements are too few for such windows")
    samples = lucid.rand(*x.shape[:2], rank) if _random_samples is None else _random_samples
    order = (1, 0) if rank == 2 else range(rank)
    places: Tensor | int = 0
    for axis, sample in enumerate(order):
        starts = _starts(samples[..., sample], lengths[axis], wanted[axis], sizes[axis])
        within = starts.unsqueeze(-1) + lucid.arange(sizes[axis])
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = wanted[axis], sizes[axis]
        places = places * lengths[axis] + within.reshape(*within.shape[:2], *shape)
    assert isinstance(places, Tensor)
    places = places.flatten(rank + 2)
    found = x.flatten(2).gather(2, places.flatten(2)).reshape(places.shape).max(-1)
    chosen = places.gather(-1, found.indices.unsqueeze(-1)).squeeze(-1)
    y, at = (part if had_batch else part.squeeze(0) for part in (found.values, chosen))
    return (y, at) if return_indices else y


fractional_max_pool2d, fractional_max_pool3d = of_each_rank(_fractional_max_pool)[1:]
ending(
    fractional_max_pool2d,
    ">>> F.fractional_max_pool2d(lucid.ones(1, 2, 6, 6), 2, output_size=3).shape",
    "lucid.Size([1, 2, 3, 3])",
)
ending(
    fractional_max_pool3d,
    ">>> F.fractional_max_pool3d(lucid.ones(1, 2, 6, 6, 6), 2, output_size=3).shape",
    "lucid.Size([1, 2, 3, 3, 3])",
)


def _starts(samples: Tensor, length: int, count: int, size: int) -> Tensor:
    """Where the windows of each channel begin; the last one ends with the axis."""
    last = lucid.full_like(samples.unsqueeze(-1), length - size).long()
    if count == 1:
        return last
    step, first = (length - size) / (count - 1), samples.unsqueeze(-1)
    starts = ((lucid.arange(count - 1) + first) * step).long() - (first * step).long()
    return lucid.cat([starts, last], -1)


@with_gradient(lambda g, places: ops.gather(g, places, axis=2))
def _unpooled(x: Tensor, places: Tensor, count: int) -> Tensor:
    """Write numbers to their places; one that several windows gave has each one's gradient."""
    zeros = lucid.zeros(*x.shape[:2], count, dtype=x.dtype)
    return ops.scatter(zeros, places, x, axis=2)


def _max_unpool(
    rank: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Undo `max_pool1d(…, return_indices=True)` as far as it goes.

    Raises: `OptionError` for a size that the pool doesn't bring to the input's, `ShapeError`.

    Args:
        input: what the pool gave.
        indices: places, as the pool with `return_indices=True` gives them.
        kernel_size: that of the pool.
        stride: that of the pool. None is `kernel_size`.
        padding: that of the pool.
        output_size: of the result, where several inputs of the pool have outputs of one size. None
            takes the smallest that fits.

    >>> y, places = F.max_pool1d(lucid.ones(1, 2, 6), 2, return_indices=True)
    >>> F.max_unpool1d(y, places, 2).shape
    lucid.Size([1, 2, 6])
    """
    name = f"max_unpool{rank}d"
    if input.shape != indices.shape:
        raise ShapeError(f"{name}: indices must have the shape of the input")
    x, had_batch = batched(name, input, rank)
    options = kernel_size, stride, padding
    lengths = _lengths(name, tuple(x.shape[2:]), options, output_size)
    places = (indices if had_batch else indices.unsqueeze(0)).flatten(2)
    count = prod(lengths)
    text = f"{name}: found an invalid max index {{}}, with {{high}} elements in the output"
    in_range(places, 0, count, text, input=input, indices=indices)
    y = _unpooled(x.flatten(2), places, count).reshape(*x.shape[:2], *lengths)
    return y if had_batch else y.squeeze(0)


max_unpool1d, max_unpool2d, max_unpool3d = of_each_rank(_max_unpool)


def _lengths(
    name: str,
    lengths: Ints,
    options: tuple[Size, Size | None, Size],
    output_size: Sequence[int] | None,
) -> Ints:
    """The result's sizes along the pooled axes."""
    rank, (kernel_size, stride, padding) = len(lengths), options
    sizes = entries(name, "kernel_size", kernel_size, rank)
    steps = entries(name, "stride", kernel_size if stride is None else stride, rank)
    ends = entries(name, "padding", padding, rank, 0)
    found = zip(lengths, sizes, steps, ends, strict=True)
    usual = tuple((n - 1) * step + size - 2 * end for n, size, step, end in found)
    if output_size is None:
        return usual
    if len(output_size) not in (rank, rank + 2):
        raise OptionError(f"{name}: {rank} or {rank + 2} output sizes needed, not {output_size}")
    wanted = tuple(output_size)[-rank:]
    for axis, (size, middle, step) in enumerate(zip(wanted, usual, steps, strict=True)):
        if not middle - step < size < middle + step:
            span = f"above {middle - step} and below {middle + step}"
            raise OptionError(f"{name}: output_size {list(wanted)} must be {span} on axis {axis}")
    return wanted
