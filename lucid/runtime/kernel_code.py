"""The native functions of kernels that this process has, so that programs share them.

What a kernel does is said by its text. A program that comes later, for another batch size, another
mode, a part of the same model, calls the functions that are there and compiles the others.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

from lucid.codegen.llvm.jit import Library
from lucid.codegen.program.emit import Links, Loaded
from lucid.codegen.program.open_kernels import Variant


class KernelCode:
    """Loaded kernels by their keys, as long as a program uses the code that they are in.

    There is no lock: each operation is one of a dict, the collector may run `forget` within any of
    them, and who misses an entry compiles the kernel again.
    """

    def __init__(self) -> None:
        self._places: dict[str, tuple[weakref.ref[Library], str]] = {}

    def known(self, keys: Iterable[str]) -> dict[str, Loaded]:
        """Which of these kernels are loaded; they stay so as long as the result is held."""
        found: dict[str, Loaded] = {}
        for key in keys:
            place = self._places.get(key)
            library = None if place is None else place[0]()
            if place is not None and library is not None:
                found[key] = Loaded(library, place[1])
        return found

    def enter(self, links: Links, library: Library) -> None:
        """Note the kernels that a library has."""
        keys = tuple(links.defined)

        def forget(reference: weakref.ref[Library]) -> None:
            for key in keys:
                if self._places.get(key, (None,))[0] is reference:
                    self._places.pop(key, None)

        reference = weakref.ref(library, forget)
        self._places.update((key, (reference, name)) for key, name in links.defined.items())


class OpenKernelCode:
    """The same of kernels with open sizes, of which each key may have several variants."""

    def __init__(self) -> None:
        self._variants: dict[str, tuple[weakref.ref[Variant], ...]] = {}

    def find(self, key: str, values: Sequence[int]) -> Variant | None:
        """Code of a kernel that is right for these sizes."""
        for reference in self._variants.get(key, ()):
            variant = reference()
            if variant is not None and variant.fits(values):
                return variant
        return None

    def before(self, key: str, variant: Variant) -> list[Variant]:
        """The variants that `find` asks before this one."""
        found = [reference() for reference in self._variants.get(key, ())]
        place = found.index(variant) if variant in found else 0
        return [x for x in found[:place] if x is not None]

    def enter(self, key: str, variant: Variant) -> None:
        """Note a variant whose library is loaded."""

        def forget(gone: weakref.ref[Variant]) -> None:
            left = tuple(x for x in self._variants.get(key, ()) if x is not gone)
            if left:
                self._variants[key] = left
            else:
                self._variants.pop(key, None)

        self._variants[key] = (*self._variants.get(key, ()), weakref.ref(variant, forget))


kernel_code = KernelCode()
open_code = OpenKernelCode()
