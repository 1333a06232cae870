"""Memory of NumPy arrays: where elements lie, and new arrays that begin at a cache line.

NumPy's own arrays begin 16 bytes behind one as a rule. Then each vector that is as wide as a line
is read from two of them: products read a matrix of weights at 0.73 instead of 0.83 of the machine's
rate (256 x 256, f32, 512 bits). So what parameters, states and results lie on is made here.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

ALIGNMENT = 64  # a cache line, and the widest vector

ALIGNED_FROM = 2048  # bytes; an array that isn't NumPy's own costs a microsecond more

_FEW_BYTES = 1 << 12  # which are compared faster when they are copied

# PyArrayObject starts with the object header, then the data pointer.
_DATA = object.__basicsize__
_read = ctypes.c_size_t.from_address


def _field(array: np.ndarray) -> int:
    return _read(id(array) + _DATA).value


def _interface(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _field_is_right() -> bool:
    """Whether the layout of array objects is the expected one; it isn't on every interpreter."""
    base = np.arange(12, dtype=np.float64)
    probes = (base, base[3:], base.reshape(3, 4).T, np.empty(0), np.zeros((), np.float32))
    return all(_field(probe) == probe.ctypes.data for probe in probes)


# The address of an array's first element, ten times faster than `array.ctypes.data`.
address_of: Callable[[np.ndarray], int] = _field if _field_is_right() else _interface


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> np.ndarray:
    """An uninitialized array of `nbytes` bytes, at a multiple of 64 unless it is small."""
    if nbytes < ALIGNED_FROM:
        return np.empty(shape, dtype)
    return _aligned(np.empty(nbytes + ALIGNMENT, np.uint8), shape, dtype)


def _aligned(memory: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    return np.ndarray(shape, dtype, memory, -address_of(memory) % ALIGNMENT)


def copied(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """A row-major copy, as `np.array(array, dtype, order="C")` makes it, on such memory."""
    copy = empty(array.shape, dtype, array.size * dtype.itemsize)
    copy[...] = array
    return copy


def full(shape: tuple[int, ...], value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """`np.full` on such memory."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes >= ALIGNED_FROM and value == 0 and math.copysign(1.0, value) == 1:
        return _aligned(np.zeros(nbytes + ALIGNMENT, np.uint8), shape, dtype)  # cleared on demand
    array = empty(shape, dtype, nbytes)
    array.fill(value)
    return array


def is_available(nbytes: int) -> bool:
    """Whether the process can have so much more memory now."""
    try:
        mmap.mmap(-1, nbytes).close()
    except (OSError, ValueError):
        return False
    return True


_BLAS_BYTES = 40 << 20  # a buffer of OpenBLAS', 32 MiB, and what comes to it
_of_thread = threading.local()


def _forget_buffers() -> None:
    """A child's BLAS makes its buffers anew."""
    global _of_thread
    _of_thread = threading.local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_buffers)


def require_blas() -> None:
    """Raise `MemoryError` where NumPy's BLAS may find none: it ends the process then.

    What it has allocated it keeps, so the first call of a thread is asked alone; the product here
    is one of those that need a buffer on every processor.
    """
    if hasattr(_of_thread, "has_buffers"):
        return
    if not is_available(_BLAS_BYTES):
        raise MemoryError(
            f"NumPy's BLAS needs some {_BLAS_BYTES >> 20} MiB of memory, which can't be allocated"
        )
    square = np.ones((128, 128), np.float32)
    np.matmul(square, square)
    _of_thread.has_buffers = True


def are_same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of one type hold the same bytes."""
    if one.nbytes <= _FEW_BYTES:
        return one.tobytes() == other.tobytes()
    a, b = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, other))
    return np.array_equal(a, b)


def read_only(array: np.ndarray) -> np.ndarray:
    """One on the same memory that nobody can write."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
