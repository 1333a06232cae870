"""Pools: the greatest element, or the mean, of each window.

The gradient of a maximum goes to its first place in the window, or to the first NaN.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import lucid
from lucid.autograd import Function
from lucid.autograd.native import runs_natively
from lucid.docstrings import like
from lucid.functions.elementwise import where
from lucid.functions.gradients import with_gradient
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
from lucid.tensor.core import from_array
from lucid.tensor.tensor import Tensor

__all__ = [
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d",
    "max_pool2d", "max_pool3d",
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
def _averages(x: Tensor, divisor: float | Tensor, windows: Windows, lengths: Shape) -> Tensor:
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
    windows = Windows(sizes, steps, dilations, low, low)
    if any(2 * n > span for n, span in zip(low, windows.spans, strict=True)):
        raise OptionError(f"{name}: padding {list(low)} must be at most half of the kernel's span")
    lengths = tuple(x.shape[2:])
    if ceil_mode:
        high = _reaching(windows, lengths)
        windows = Windows(sizes, steps, dilations, low, high)
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
        padding: how much -inf is added at both ends, at most half a window. Default: 0.
        ceil_mode: let a window that begins inside reach over the end. Default: False.
        return_indices: return the places of the greatest elements too, flat within the axes.
            Default: False.

    Example:
        >>> F.max_pool1d(lucid.ones(1, 2, 6), 2).shape
        lucid.Size([1, 2, 3])
    """
    name = f"max_pool{rank}d"
    x, had_batch = batched(name, input, rank)
    windows = _pool_windows(name, x, kernel_size, (stride, padding, dilation), ceil_mode)
    if return_indices:
        places = _places_of_greatest(x, windows)
        flat = ops.gather(x.flatten(2), places.flatten(2), axis=2)
        both = flat.reshape(places.shape), places
        return both if had_batch else (both[0].squeeze(0), both[1].squeeze(0))
    y: Tensor = MaxPool.apply(x, windows)
    return y if had_batch else y.squeeze(0)


max_pool1d, max_pool2d, max_pool3d = of_each_rank(_max_pool)


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
        padding: how many elements are added at both ends of each axis. Default: 0.
        count_include_pad: let the zeros of the padding count in the mean. Default: True.
        divisor_override: divide by this instead of by the number of elements.

    Raises:
        OptionError: a `padding` of more than half a window, or a divisor of 0.

    Example:
        >>> F.avg_pool1d(lucid.ones(1, 2, 6), 2).shape
        lucid.Size([1, 2, 3])
    """
    name = f"avg_pool{rank}d"
    if divisor_override == 0:
        raise OptionError(f"{name}: divisor must be not zero")
    x, had_batch = batched(name, input, rank)
    windows = _pool_windows(name, x, kernel_size, (stride, padding, 1), ceil_mode)
    divisor: float | Tensor = float(divisor_override or prod(windows.sizes))
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

    Example:
        >>> F.lp_pool1d(lucid.ones(1, 2, 6), 2, 2).shape
        lucid.Size([1, 2, 3])
    """
    mean = _avg_pool(rank, input**norm_type, kernel_size, stride, 0, ceil_mode)
    total = mean * prod(entries(f"lp_pool{rank}d", "kernel_size", kernel_size, rank))
    return (total.sign() * total.abs()) ** (1.0 / norm_type)


lp_pool1d, lp_pool2d, lp_pool3d = of_each_rank(_lp_pool)
