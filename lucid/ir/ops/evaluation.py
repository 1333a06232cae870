"""How the NumPy meanings of ops are wrapped: no warnings, always arrays, checked indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucid.ir.errors import IndexOutOfRangeError


def quiet(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """Let a NumPy function return arrays for scalars too, and overflow or divide by 0 silently."""

    @np.errstate(all="ignore")
    def evaluate(*arrays: np.ndarray, **attributes: Any) -> np.ndarray:
        return np.asarray(function(*arrays, **attributes))

    return evaluate


def checked_index(op: str, index: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Return the index counted from the start, as i64.

    Raises `IndexOutOfRangeError` for the first one that isn't in `-size <= i < size`.
    """
    index = index.astype(np.int64, copy=False)
    if index.size == 0:
        return index
    low = index.min()
    if low < -size or index.max() >= size:
        wrong = index[(index < -size) | (index >= size)].flat[0]
        raise IndexOutOfRangeError(
            f"{op}: index {wrong} is out of range for axis {axis} with size {size}"
        )
    return np.where(index < 0, index + size, index) if low < 0 else index
