"""LLVM itself: llvmlite's binding, which loads it when it is imported."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import re

from lucid.ir.errors import LucidError, OutOfMemoryError
from lucid.ir.memory import is_available

__all__ = ["leave_memory", "llvm"]

_BYTES = 200 << 20  # of address space, which the library takes

try:
    import llvmlite.binding as llvm
except OSError as _error:
    _kind = LucidError if is_available(_BYTES) else OutOfMemoryError
    raise _kind(f"compile: LLVM can't be loaded: {_error}") from None

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
