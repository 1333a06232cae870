"""The threads of the BLAS that NumPy calls, while the library calls NumPy's LAPACK."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np

# Rows from which a factorization gains by threads. With fewer they cost more than they do, and
# where other processes run as well hundreds of times more: OpenBLAS' threads wait by spinning.
_LARGE = 256

# Builds for NumPy's wheels, with 64-bit integers, and of distributions.
_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)

_lock = threading.Lock()
_before = [0, 0]  # calls under way, and how many threads there were before the first


@contextmanager
def few_threads(arrays: Iterable[np.ndarray]) -> Iterator[None]:
    """Let NumPy's BLAS have one thread for small matrices, and else no more than lucid has.

    Where it isn't OpenBLAS nothing changes.
    """
    functions = _functions()
    if functions is None:
        yield
        return
    read, write = functions
    is_small = all(size < _LARGE for array in arrays for size in array.shape[-2:])
    most = 1 if is_small else _threads()
    with _lock:
        if not _before[0]:
            _before[1] = read()
        _before[0] += 1
        write(min(read(), most))
    try:
        yield
    finally:
        with _lock:
            _before[0] -= 1
            if not _before[0]:
                write(_before[1])


def _threads() -> int:
    from lucid.runtime.threads import pool  # LLVM comes with it

    return pool.num_threads


@cache
def _functions() -> tuple[ctypes._NamedFuncPointer, ctypes._NamedFuncPointer] | None:
    """What reads and what sets the number of threads, of the library that NumPy is linked with."""
    module = np.linalg._umath_linalg
    library = ctypes.PyDLL(module.__file__)  # a look-up goes through what it is linked with
    for name in _NAMES:
        get, put = name.format("get"), name.format("set")
        if hasattr(library, get) and hasattr(library, put):
            return getattr(library, get), getattr(library, put)
    return None
