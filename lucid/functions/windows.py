"""Windows that weigh the ends of a stretch of a signal down."""

from __future__ import annotations

import math
from typing import Any

from lucid.functions.arguments import integer
from lucid.functions.creation import arange, ones
from lucid.functions.tensors import Tensor
from lucid.ir.errors import OptionError
from lucid.ir.types import DType


def _angles(name: str, length: Any, periodic: bool, dtype: DType | None) -> Tensor | None:
    """2 pi t / period for each place t; None where there are less than two."""
    count = integer(length, name, "window_length")
    if count < 0:
        raise OptionError(f"{name}: window_length must be non-negative, not {count}")
    if count < 2:
        return None
    steps = arange(count, dtype=dtype) if dtype is not None else arange(float(count))
    return steps * (2 * math.pi / (count if periodic else count - 1))


def _short(length: int, dtype: DType | None) -> Tensor:
    return ones(length, dtype=dtype)


def hann_window(window_length: int, periodic: bool = True, *, dtype: DType | None = None) -> Tensor:
    """Return half of 1 - cos: zero at both ends, or one step before the next period's."""
    angles = _angles("hann_window", window_length, periodic, dtype)
    return _short(window_length, dtype) if angles is None else 0.5 - 0.5 * angles.cos()


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Return alpha - beta cos."""
    angles = _angles("hamming_window", window_length, periodic, dtype)
    return _short(window_length, dtype) if angles is None else alpha - beta * angles.cos()


def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: DType | None = None
) -> Tensor:
    """Return 0.42 - 0.5 cos + 0.08 cos of the double angle."""
    angles = _angles("blackman_window", window_length, periodic, dtype)
    if angles is None:
        return _short(window_length, dtype)
    return 0.42 - 0.5 * angles.cos() + 0.08 * (2 * angles).cos()


def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: DType | None = None
) -> Tensor:
    """Return a triangle from 0 to 1 and back."""
    angles = _angles("bartlett_window", window_length, periodic, dtype)
    if angles is None:
        return _short(window_length, dtype)
    return 1 - (angles / math.pi - 1).abs()
