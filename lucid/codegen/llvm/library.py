"""LLVM itself: llvmlite's binding, which loads it when it is imported."""

from __future__ import annotations

from lucid.ir.errors import LucidError, OutOfMemoryError
from lucid.ir.memory import is_available

__all__ = ["llvm"]

_BYTES = 200 << 20  # of address space, which the library takes

try:
    import llvmlite.binding as llvm
except OSError as _error:
    _kind = LucidError if is_available(_BYTES) else OutOfMemoryError
    raise _kind(f"compile: LLVM can't be loaded: {_error}") from None
