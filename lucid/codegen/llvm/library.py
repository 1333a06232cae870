"""LLVM itself: llvmlite's binding, which loads it when it is imported."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import re
from functools import partial
from typing import Any

from lucid.ir.errors import LucidError, OutOfMemoryError
from lucid.ir.memory import is_available

__all__ = ["leave_memory", "llvm"]

_BYTES = 200 << 20  # of address space, which the library takes

try:
    import llvmlite.binding as llvm
except OSError as _error:
    _kind = LucidError if is_available(_BYTES) else OutOfMemoryError
    raise _kind(f"compile: LLVM can't be loaded: {_error}") from None


# An interrupt may come behind any call in Python. In two methods of llvmlite's that would leave its
# lock taken, for which other threads that compile wait for good, and a text that is freed twice.


def _by_c(kind: type, name: str) -> None:
    """Let the lock be taken, or released, in C. Who has registered calls beside it has its own."""
    own = getattr(kind, name)

    def found(lock: Any) -> Any:
        return partial(own, lock) if lock._cblist else getattr(lock._lock, name)

    setattr(kind, name, property(found))


def _close(text: Any) -> None:
    """Free a text of LLVM's, which is forgotten first."""
    pointer, text._ptr = getattr(text, "_ptr", None), None
    if pointer is not None and text._owned:
        llvm.ffi.lib.LLVMPY_DisposeString(pointer)


_lock = getattr(llvm.ffi.lib, "_lock", None)
if hasattr(_lock, "_lock") and hasattr(_lock, "_cblist"):
    _by_c(type(_lock), "__enter__")
    _by_c(type(_lock), "__exit__")
llvm.ffi.OutputString.close = _close
_NOTHING = r"(?:\w+:.*\n)*?{}: +0 kB\n"
_UNCHANGED = re.compile(
    r"^(\w+)-(\w+) r-.p .*/libllvmlite[^/]*\n"
    + _NOTHING.format("Anonymous")
    + _NOTHING.format("Swap"),
    re.MULTILINE,
)


def leave_memory() -> None:
    """Take what is LLVM's alone out of this process's memory, before a step that needs much of it.

    Its code takes some 70 MB: what has run once, as at its start, and pages around that. The
    system has the file's pages, and gives back those that are used again. So is heap that is free.
    Nothing happens where the system has no such call.
    """
    with contextlib.suppress(OSError, AttributeError):
        places = _places()
        system = ctypes.CDLL(None)
        for address, size in places:
            system.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.MADV_DONTNEED)
        system.malloc_trim(0)


@functools.cache
def _places() -> list[tuple[int, int]]:
    """Address and size of where its file is mapped and not a byte is another than there.

    The library stays where it is until the process ends.
    """
    with open("/proc/self/smaps", errors="replace") as file:  # there is none but on Linux
        found = _UNCHANGED.findall(file.read())
    return [(int(begin, 16), int(end, 16) - int(begin, 16)) for begin, end in found]
