"""Pools of volumes, greatest elements of bins, and power means of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

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

Sizes = int | Sequence[int | None] | None


def adaptive_max_pool1d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Tensor:
    """The greatest element of each of `output_size` bins along the last axis."""
    return _adaptive_max_pool(1, input, output_size)


def adaptive_max_pool2d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Tensor:
    """The greatest element of each of `output_size` bins over the last two axes."""
    return _adaptive_max_pool(2, input, output_size)


def adaptive_max_pool3d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Tensor:
    """The greatest element of each of `output_size` bins over the last three axes."""
    return _adaptive_max_pool(3, input, output_size)


def _adaptive_max_pool(rank: int, input: Tensor, output_size: Sizes) -> Tensor:
    wanted, lengths = adaptive_sizes("max", rank, input, output_size)
    if all(size and length % size == 0 for size, length in zip(wanted, lengths, strict=True)):
        sizes = tuple(length // size for size, length in zip(wanted, lengths, strict=True))
        return pool_greatest(rank, input, sizes)
    y = input
    for axis, size, length in zip(range(-rank, 0), wanted, lengths, strict=True):
        places = from_array(_bins(length, size))
        spread = ops.take(y, places.reshape(-1), axis=y.ndim + axis)
        spread = spread.unflatten(axis, tuple(places.shape))
        y = spread.max(axis).values
    return y


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
    """The norm of order `norm_type` of each window along the last axis."""
    mean = avg_pool1d(input**norm_type, kernel_size, stride, 0, ceil_mode)
    return _root(mean * kernel_size, norm_type)


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: Size,
    stride: Size | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The norm of order `norm_type` of each window over the last two axes."""
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
    """The norm of order `norm_type` of each window over the last three axes."""
    mean = avg_pool3d(input**norm_type, kernel_size, stride, 0, ceil_mode)
    sizes = (kernel_size,) * 3 if isinstance(kernel_size, int) else tuple(kernel_size)
    return _root(mean * math.prod(sizes), norm_type)


def _root(total: Tensor, norm_type: float) -> Tensor:
    result: Tensor = (total.sign() * total.abs()) ** (1.0 / norm_type)
    return result
