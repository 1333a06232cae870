"""Pooling to a given size: the mean or the greatest of each of so many windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import lucid
from lucid.docstrings import like
from lucid.functions.arguments import require_computable
from lucid.ir import ops
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.types import Shape
from lucid.nn.functional.pooling import _avg_pool, _max_pool
from lucid.nn.functional.sliding import Ints, batched, of_each_rank
from lucid.tensor.core import from_array
from lucid.tensor.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d",
]  # fmt: skip

Sizes = int | Sequence[int | None] | None


def adaptive_sizes(kind: str, rank: int, input: Tensor, output_size: Sizes) -> tuple[Ints, Shape]:
    """The output's sizes and the input's, for `adaptive_<kind>_pool<rank>d`."""
    name = f"adaptive_{kind}_pool{rank}d"
    batched(name, input, rank)
    lengths = tuple(input.shape[-rank:])
    given = output_size if isinstance(output_size, Sequence) else (output_size,) * rank
    if len(given) != rank:
        raise OptionError(f"{name}: output_size must have {rank} entries, got {list(given)}")
    wanted = tuple(n if size is None else size for n, size in zip(lengths, given, strict=True))
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

    Example:
        >>> F.adaptive_avg_pool1d(lucid.ones(2, 4, 6), 3).shape
        lucid.Size([2, 4, 3])
    """
    wanted, lengths = adaptive_sizes("avg", rank, input, output_size)
    if all(size and length % size == 0 for size, length in zip(wanted, lengths, strict=True)):
        sizes = tuple(length // size for size, length in zip(wanted, lengths, strict=True))
        return _avg_pool(rank, input, sizes)
    y = input
    for axis, size, length in zip(range(-rank, 0), wanted, lengths, strict=True):
        means = from_array(_means(length, size).astype(input.dtype.numpy))
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
            Default: False.

    Example:
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
