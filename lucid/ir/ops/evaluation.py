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
    get, put = _STATE.get, _STATE.set
    if isinstance(function, np.ufunc) and function.nin == 2:
        return _quiet_pair(function)

    def evaluate(*arrays: np.ndarray, **attributes: Any) -> np.ndarray:
        before = get()
        try:
            put(_IGNORE)  # an interrupt may come right after it
            result = function(*arrays, **attributes)
        finally:
            put(before)
        return result if type(result) is np.ndarray else np.asarray(result)

    return evaluate


def _quiet_pair(function: np.ufunc) -> Callable[..., np.ndarray]:
    """The same for what takes two arrays, as most of arithmetic does: without packing them."""
    get, put = _STATE.get, _STATE.set

    def evaluate(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        before = get()
        try:
            put(_IGNORE)
            result = function(x, y)
        finally:
            put(before)
        return result if type(result) is np.ndarray else np.asarray(result)

    return evaluate


def checked_index(op: str, index: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Return the index counted from the start, as i64.

    Raises `IndexOutOfRangeError` for the first one that isn't in `-size <= i < size`.
    """
    index = index.astype(np.int64, copy=False)
    if is_within(index, 0, size):
        return index
    if not is_within(index, -size, size):
        wrong = index[(index < -size) | (index >= size)].flat[0]
        raise IndexOutOfRangeError(
            f"{op}: index {wrong} is out of range for axis {axis} with size {size}"
        )
    return np.where(index < 0, index + size, index)


_FEW = 24


def is_within(x: np.ndarray, low: int, high: int) -> bool:
    """Whether all of an array of integers have `low <= x < high`.

    Of few elements Python finds the least and the greatest faster than NumPy. Of more one pass is
    enough: the distances from `low`, of 64 bits without a sign, are greater for what lies below it.
    """
    if x.size <= _FEW:
        values = x.ravel().tolist()
        return not values or (low <= min(values) and max(values) < high)
    if x.dtype != np.int64 or not -_MOST <= low <= high <= _MOST:
        return bool(low <= x.min() and x.max() < high)
    distances = (x - low if low else x).view(np.uint64)
    return bool(np.maximum.reduce(distances, None) < high - low)


_MOST = 2**62
