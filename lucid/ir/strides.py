"""Strides, in elements, of what the view ops make: the one place that knows when a view exists.

And whether two elements of an array lie at one address, so that a write to it makes no sense.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lucid.ir.op import Attributes, Op
from lucid.ir.types import Shape

Strides = tuple[int, ...]


def contiguous_strides(shape: Shape) -> Strides:
    """Row-major strides."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_contiguous(shape: Shape, strides: Strides) -> bool:
    """Whether elements lie in row-major order without gaps; axes of size 1 don't count."""
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


_CANDIDATES: Any = 1 << 16  # pairs of elements that are tried before an array is held to overlap


@lru_cache(maxsize=4096)
def overlaps_itself(shape: Shape, strides: Strides) -> bool:
    """Whether two elements lie at one address, as in a broadcast or in sliding windows.

    Where the stride of each axis is above what the axes of smaller strides span, none do: that is
    nearly every array. The others are decided exactly, but for a few with many interleaved axes,
    which are held to overlap when the search takes too long.

    >>> overlaps_itself((2, 3), (3, 1)), overlaps_itself((4, 6), (1, 1))
    (False, True)
    """
    if 0 in shape:
        return False
    axes = [(abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1]
    span = 0
    for stride, size in sorted(axes):
        if stride <= span or stride == 0:
            break
        span += stride * (size - 1)
    else:
        return False
    return any(stride == 0 for stride, _ in axes) or _meets_itself(axes)


def _meets_itself(axes: Sequence[tuple[int, int]]) -> bool:
    """Whether two different elements of an array with these strides and sizes share an address.

    Such two differ first along some axis. Then the elements at 0 along it share an address with
    those behind 0, among the elements at 0 along all axes before it.
    """
    strides, shape = zip(*axes, strict=True)
    array = as_strided(np.empty(1, np.int8), shape, strides)  # which nobody reads
    for _ in axes:
        if np.may_share_memory(array[0], array[1:], max_work=_CANDIDATES):
            return True
        array = array[0]
    return False


def reshape_strides(old_shape: Shape, strides: Strides, shape: Shape) -> Strides | None:
    """Strides of a reshaped view; None where only a copy has that shape.

    Axes are cut into the coarsest groups that hold equally many elements on both sides; a group can
    be split anew when its own axes lie behind one another in memory.
    """
    if 0 in old_shape:
        return contiguous_strides(shape)
    old = [(size, stride) for size, stride in zip(old_shape, strides, strict=True) if size != 1]
    result: list[int] = []
    position = 0
    pending = 1  # elements of the current group not yet handed to new axes
    inner = 1
    for size in shape:
        if size == 1:
            result.append(0)
            continue
        if pending == 1:
            if position == len(old):
                return None
            pending, inner = old[position]
            position += 1
            while pending % size or (pending < size):
                if position == len(old):
                    return None
                next_size, next_stride = old[position]
                if inner != next_stride * next_size:
                    return None
                pending, inner = pending * next_size, next_stride
                position += 1
        elif pending % size:
            while pending % size:
                if position == len(old):
                    return None
                next_size, next_stride = old[position]
                if inner != next_stride * next_size:
                    return None
                pending, inner = pending * next_size, next_stride
                position += 1
        pending //= size
        result.append(pending * inner)
    return tuple(result)


def window_strides(
    strides: Strides, axes: Sequence[int], steps: Sequence[int], dilations: Sequence[int]
) -> Strides:
    """Strides of windows that slide along axes: of their positions, then within them."""
    moved = list(strides)
    for axis, step in zip(axes, steps, strict=True):
        moved[axis] *= step
    return (*moved, *(strides[axis] * n for axis, n in zip(axes, dilations, strict=True)))


def view_strides(op: Op, attributes: Attributes, shape: Shape, strides: Strides) -> Strides | None:
    """Strides of a view op's result on an operand with `shape` and `strides`; None for a copy."""
    assert op.strides is not None, op.name
    return op.strides(shape, strides, **attributes)
