"""Pools of volumes, greatest elements of bins, and power means of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import lucid
from lucid.ir import ops
from lucid.nn.functional.pooling import (
    adaptive_sizes,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    pool_greatest,
)
from lucid.nn.functional.sliding import Size
from lucid.tensor.core import from_array
from lucid.tensor.tensor import Tensor

__all__ = [
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "lp_pool1d", "lp_pool2d",
    "lp_pool3d",
]  # fmt: skip

Sizes = int | Sequence[int | None] | None


def adaptive_max_pool1d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """The greatest element of each of `output_size` bins along the last axis.

    Bin i of n on an axis of size l has the elements from floor(i l / n) to ceil((i + 1) l / n), so
    neighbours may share some.

    Shapes: input (batch, c, *axes) or (c, *axes); the result has `output_size` for the axes.

    Args:
        input: the tensor, of a float dtype.
        output_size: how many bins each axis gets; an int for all, None leaves an axis as it is.
        return_indices: return the places of the greatest elements too, flat within the axes.
            Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.adaptive_max_pool1d(lucid.arange(6.0)[None], 3)
        tensor([[1., 3., 5.]])
    """
    return _adaptive_max_pool(1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """The greatest element of each of `output_size` bins over the last two axes.

    Bin i of n on an axis of size l has the elements from floor(i l / n) to ceil((i + 1) l / n), so
    neighbours may share some.

    Shapes: input (batch, c, *axes) or (c, *axes); the result has `output_size` for the axes.

    Args:
        input: the tensor, of a float dtype.
        output_size: how many bins each axis gets; an int for all, None leaves an axis as it is.
        return_indices: return the places of the greatest elements too, flat within the axes.
            Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.adaptive_max_pool2d(lucid.arange(16.0).reshape(1, 4, 4), 2)
        tensor([[[ 5.,  7.],
                 [13., 15.]]])
    """
    return _adaptive_max_pool(2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """The greatest element of each of `output_size` bins over the last three axes.

    Bin i of n on an axis of size l has the elements from floor(i l / n) to ceil((i + 1) l / n), so
    neighbours may share some.

    Shapes: input (batch, c, *axes) or (c, *axes); the result has `output_size` for the axes.

    Args:
        input: the tensor, of a float dtype.
        output_size: how many bins each axis gets; an int for all, None leaves an axis as it is.
        return_indices: return the places of the greatest elements too, flat within the axes.
            Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.adaptive_max_pool3d(lucid.arange(8.0).reshape(1, 2, 2, 2), 1)
        tensor([[[[7.]]]])
    """
    return _adaptive_max_pool(3, input, output_size, return_indices)


def _adaptive_max_pool(rank: int, input: Tensor, output_size: Sizes, return_indices: bool) -> Any:
    wanted, lengths = adaptive_sizes("max", rank, input, output_size)
    if all(size and length % size == 0 for size, length in zip(wanted, lengths, strict=True)):
        sizes = tuple(length // size for size, length in zip(wanted, lengths, strict=True))
        return pool_greatest(rank, input, sizes, return_indices)
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


def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: int,
    stride: int | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The norm of order `norm_type` of each window along the last axis.

    (sum of x ** norm_type) ** (1 / norm_type) over each window of (n, c, *axes) or (c, *axes).

    Args:
        input: the tensor, of a float dtype.
        norm_type: the order of the norm.
        kernel_size: the size of a window; an int, or one for each axis.
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        ceil_mode: let a window that begins inside reach over the end. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.lp_pool1d(lucid.ones(1, 1, 2), 2, 2).flatten()
        tensor([1.4142])
    """
    mean = avg_pool1d(input**norm_type, kernel_size, stride, 0, ceil_mode)
    return _root(mean * kernel_size, norm_type)


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: Size,
    stride: Size | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The norm of order `norm_type` of each window over the last two axes.

    (sum of x ** norm_type) ** (1 / norm_type) over each window of (n, c, *axes) or (c, *axes).

    Args:
        input: the tensor, of a float dtype.
        norm_type: the order of the norm.
        kernel_size: the size of a window; an int, or one for each axis.
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        ceil_mode: let a window that begins inside reach over the end. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.lp_pool2d(lucid.ones(1, 1, 2, 2), 2, 2).flatten()
        tensor([2.])
    """
    mean = avg_pool2d(input**norm_type, kernel_size, stride, 0, ceil_mode)
    sizes = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
    return _root(mean * (sizes[0] * sizes[1]), norm_type)


def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: Size,
    stride: Size | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The norm of order `norm_type` of each window over the last three axes.

    (sum of x ** norm_type) ** (1 / norm_type) over each window of (n, c, *axes) or (c, *axes).

    Args:
        input: the tensor, of a float dtype.
        norm_type: the order of the norm.
        kernel_size: the size of a window; an int, or one for each axis.
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        ceil_mode: let a window that begins inside reach over the end. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.lp_pool3d(lucid.ones(1, 1, 2, 2, 2), 2, 2).flatten()
        tensor([2.8284])
    """
    mean = avg_pool3d(input**norm_type, kernel_size, stride, 0, ceil_mode)
    sizes = (kernel_size,) * 3 if isinstance(kernel_size, int) else tuple(kernel_size)
    return _root(mean * math.prod(sizes), norm_type)


def _root(total: Tensor, norm_type: float) -> Tensor:
    result: Tensor = (total.sign() * total.abs()) ** (1.0 / norm_type)
    return result
