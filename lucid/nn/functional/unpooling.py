"""The partial inverse of max pools: maxima back at their places, zeros elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import lucid
from lucid.functions.arguments import typed
from lucid.functions.checks import in_range
from lucid.functions.gradients import with_gradient
from lucid.ir import ops
from lucid.ir.errors import OptionError, ShapeError
from lucid.nn.functional.sliding import Ints, Size, batched, entries, of_each_rank
from lucid.tensor.tensor import Tensor

__all__ = ["max_unpool1d", "max_unpool2d", "max_unpool3d"]


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
        padding: that of the pool. Default: 0.
        output_size: of the result, where several inputs of the pool have outputs of one size. None
            takes the smallest that fits.

    Example:
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
    in_range(
        places,
        0,
        prod(lengths),
        lambda: (
            f"{name}: found an invalid max index {{}}, with {prod(lengths)} elements in the output"
            f"{typed(input=input, indices=indices)}"
        ),
    )
    y = _unpooled(x.flatten(2), places, prod(lengths)).reshape(*x.shape[:2], *lengths)
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
