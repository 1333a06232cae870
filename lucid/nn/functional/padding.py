"""Padding at the ends of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from lucid.functions.arguments import integer
from lucid.functions.creation import arange
from lucid.ir import ops
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.extents import is_open
from lucid.ir.ops import composites
from lucid.tensor.core import constant, from_array
from lucid.tensor.tensor import Tensor

__all__ = ["pad"]

_Mode = Literal["reflect", "edge", "wrap"]
_NUMPY_MODES: dict[str, _Mode] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Lengthen axes at both ends, or cut them off.

    `pad` is (low, high) of the last axis, then of the one before. A negative count cuts off.

    Args:
        pad: (low, high) of the last axis, then of the one before, and so on; negative counts cut
            off.
        mode: "constant" (with `value`), "reflect" (the end itself isn't repeated), "replicate" or
            "circular".
        value: what "constant" adds; None is 0.

    Raises:
        OptionError: an odd number of counts, a mode that there isn't, or more than it can add.

    >>> F.pad(lucid.tensor([[1.0, 2.0]]), (1, 2))
    tensor([[0., 1., 2., 0., 0.]])
    >>> F.pad(lucid.tensor([[1.0, 2.0, 3.0]]), (2, 0), mode="reflect")
    tensor([[3., 2., 1., 2., 3.]])
    """
    if len(pad) % 2 or len(pad) > 2 * input.ndim:
        raise OptionError(f"pad: expected at most {input.ndim} pairs of lengths, got {list(pad)}")
    ends = [integer(count, "pad", "pad") for count in pad]
    axes = {input.ndim - 1 - i: (ends[2 * i], ends[2 * i + 1]) for i in range(len(ends) // 2)}
    if mode == "constant":
        return _pad_constant(input, axes, 0.0 if value is None else value)
    if mode not in _NUMPY_MODES:
        raise OptionError(f"pad: no mode {mode!r}: constant, reflect, replicate or circular")
    if value is not None and value != 0:
        raise OptionError(f'pad: mode "{mode}" doesn\'t take in value argument')
    for axis, (low, high) in axes.items():
        input = _pad_from_inside(input, axis, low, high, mode)
    return input


def _pad_constant(x: Tensor, axes: dict[int, tuple[int, int]], value: float) -> Tensor:
    for axis, (low, high) in axes.items():
        start, stop = max(-low, 0), x.shape[axis] - max(-high, 0)
        if start > stop:
            raise ShapeError(f"pad: {low} and {high} leave less than nothing of {x._type}")
        if (start, stop) != (0, x.shape[axis]):
            x = composites.slice_axis(x, axis, start, stop)
    ends = [axes.get(axis, (0, 0)) for axis in range(x.ndim)]
    lows, highs = (tuple(max(end[side], 0) for end in ends) for side in (0, 1))
    if not any(lows + highs):
        return x.clone()
    return ops.pad(x, constant(value, x.dtype), low=lows, high=highs)


def _pad_from_inside(x: Tensor, axis: int, low: int, high: int, mode: str) -> Tensor:
    """Take along one axis: where each position reads from is known from the shape alone."""
    size = x._type.shape[axis]
    longest = {"reflect": size - 1, "circular": size}.get(mode, max(low, high))
    if max(low, high) > longest or size == 0:
        raise ShapeError(f"pad: ({low}, {high}) is too much for axis {axis} in mode {mode}")
    start, stop, width = max(-low, 0), size - max(-high, 0), (max(low, 0), max(high, 0))
    if is_open(size) and max(width) < stop - start:
        return ops.take(x, _places(stop - start, *width, mode) + start, axis=axis)
    positions = np.pad(np.arange(start, stop, dtype=np.int64), width, mode=_NUMPY_MODES[mode])
    return ops.take(x, from_array(positions), axis=axis)


def _places(size: int, low: int, high: int, mode: str) -> Tensor:
    """Where each position reads from, of an axis whose size each call has."""
    last, places = size - 1, arange(low + size + high) - low
    if mode == "circular":
        return places % size
    if mode == "reflect":
        return last - (last - places.abs()).abs()
    return last - (last - places.clamp(min=0)).clamp(min=0)
