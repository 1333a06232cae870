"""The native functions of kernels that this process has, so that programs share them.

What a kernel does is said by its text. A program that comes later, for another batch size, another
mode, a part of the same model, calls the functions that are there and compiles the others.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping

from lucid.codegen.llvm.jit import Library
from lucid.codegen.program.emit import Emitted, Loaded


class KernelCode:
    """Loaded kernels by their keys, as long as a program uses the code that they are in."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[weakref.ref[Library], str]] = {}
        self._lock = threading.RLock()  # the collector may run `_forget` at any time

    def known(self, keys: Iterable[str]) -> dict[str, Loaded]:
        """Which of these kernels are loaded; they stay so as long as the result is held."""
        found: dict[str, Loaded] = {}
        with self._lock:
            for key in keys:
                place = self._places.get(key)
                library = None if place is None else place[0]()
                if place is not None and library is not None:
                    found[key] = Loaded(library, place[1])
        return found

    def enter(self, emitted: Emitted, library: Library) -> None:
        """Note the kernels that a library has."""
        names: Mapping[str, str] = emitted.defined

        def forget(reference: weakref.ref[Library]) -> None:
            with self._lock:
                for key in names:
                    if self._places.get(key, (None,))[0] is reference:
                        del self._places[key]

        reference = weakref.ref(library, forget)
        with self._lock:
            self._places.update((key, (reference, name)) for key, name in names.items())


kernel_code = KernelCode()
