"""How the NumPy meanings of ops are wrapped: no warnings, always arrays, checked indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy._core import umath as _umath

from lucid.ir.errors import IndexOutOfRangeError

_STATE: Any = getattr(_umath, "_extobj_contextvar", None)  # what np.errstate sets, see below
_IGNORE: Any = None if _STATE is None else _umath._make_extobj(all="ignore")


def quiet(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """Let a NumPy function return arrays for scalars too, and overflow or divide by 0 silently.

    `np.errstate` takes twice as long as a small addition, so what it does is done without it: NumPy
    keeps the state in a context variable. Where a version of NumPy has none, `np.errstate` serves.
    """
    if _STATE is None:
        return np.errstate(all="ignore")(lambda *a, **k: np.asarray(function(*a, **k)))
    enter, leave = _STATE.set, _STATE.reset
    if isinstance(function, np.ufunc) and function.nin == 2:
        return _quiet_pair(function)

    def evaluate(*arrays: np.ndarray, **attributes: Any) -> np.ndarray:
        before = enter(_IGNORE)
        try:
            result = function(*arrays, **attributes)
        finally:
            leave(before)
        return result if type(result) is np.ndarray else np.asarray(result)

    return evaluate


def _quiet_pair(function: np.ufunc) -> Callable[..., np.ndarray]:
    """The same for what takes two arrays, as most of arithmetic does: without packing them."""
    enter, leave = _STATE.set, _STATE.reset

    def evaluate(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        before = enter(_IGNORE)
        try:
            result = function(x, y)
        finally:
            leave(before)
        return result if type(result) is np.ndarray else np.asarray(result)

    return evaluate


def checked_index(op: str, index: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Return the index counted from the start, as i64.

    Raises `IndexOutOfRangeError` for the first one that isn't in `-size <= i < size`.
    """
    index = index.astype(np.int64, copy=False)
    if index.size == 0:
        return index
    low, high = bounds(index)
    if low < -size or high >= size:
        wrong = index[(index < -size) | (index >= size)].flat[0]
        raise IndexOutOfRangeError(
            f"{op}: index {wrong} is out of range for axis {axis} with size {size}"
        )
    return np.where(index < 0, index + size, index) if low < 0 else index


_FEW = 64


def bounds(x: np.ndarray) -> tuple[int, int]:
    """The least and the greatest of an array of integers; of few Python finds them faster."""
    if x.size <= _FEW:
        values = x.ravel().tolist()
        return min(values), max(values)
    return x.min(), x.max()
