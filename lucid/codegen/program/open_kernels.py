"""Kernels whose sizes are open: one function for all sizes, which it reads from memory.

Such a kernel is known by its text, in which n0, n1 ... stand for what is open. Its function gets
the address of words behind its arguments: the values of the formulas that its code reads, such as
n0 // 8 * 8. Where code can't do without a size, a small one for instance, it is made for that one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lucid.codegen.kernel_ir.kernel import Kernel
from lucid.codegen.llvm.jit import Library
from lucid.codegen.llvm.target import Target
from lucid.codegen.llvm.values import Module
from lucid.codegen.program.program import KernelCall
from lucid.codegen.threads.tasks import define_kernel, symbols_of
from lucid.ir.extents import LEAST, Extent, NotOpenError, Sizes, replaced

_MOST = 2**40  # of a size or stride: a product of what `Sizes` has by itself


@dataclass(frozen=True, slots=True)
class OpenKernel:
    """A kernel with symbols of its own for what is open in it.

    Attributes:
        formulas: what the symbols are in the program that calls it.
        key: equal for kernels that may share code.
    """

    kernel: Kernel
    sizes: Sizes
    formulas: tuple[Extent, ...]
    key: str


def open_kernel(call: KernelCall, target: Target) -> OpenKernel | None:
    """The open kernel that a call is of; None for a call of one without open sizes."""
    found: dict[object, Extent] = {}

    def note(extent: Extent) -> Extent:
        positive = -extent if extent.hint < 0 else extent
        found.setdefault(positive.key, positive)
        return extent

    replaced(call.kernel, note)
    if not found:
        return None
    formulas = tuple(found.values())
    hints = [formula.hint for formula in formulas]
    sizes = symbols_for(hints)
    symbols = dict(zip(found, sizes.symbols, strict=True))

    places: list[str] = []  # also of sizes that the text doesn't show

    def renamed(extent: Extent) -> object:
        size = -symbols[(-extent).key] if extent.hint < 0 else symbols[extent.key]
        places.append(str(size))
        return size

    kernel = replaced(call.kernel, renamed)
    sizes_in_order, count = " ".join(places), str(len(call.args))
    parts = repr(target), type(kernel).__name__, count, sizes_in_order, str(kernel)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return OpenKernel(kernel, sizes, formulas, key)


def symbols_for(values: Sequence[int]) -> Sizes:
    """Symbols with these values; those that are no sizes, or small ones, are looked at as bits."""
    outside = [n for n, value in enumerate(values) if not LEAST <= value < _MOST]
    return Sizes(values, is_strict=False, bits=outside, most=_MOST)


@dataclass(slots=True, weakref_slot=True, eq=False)
class Variant:
    """The code of an open kernel, and for which sizes it is right.

    Attributes:
        fits: whether it is, of the symbols' values.
        words: what its code reads, of the symbols' values.
        sizes: what it assumes, and the formulas of these words; None: it is for `hints` alone.
        symbols: its function for each region; library: what has them.
        functions: what it consists of, until that is compiled.
    """

    fits: Callable[[Sequence[int]], bool]
    words: Callable[[Sequence[int]], Sequence[int]]
    sizes: Sizes | None
    hints: tuple[int, ...]
    symbols: dict[str, str]
    library: Library | None = None

    def address(self, region: str) -> int:
        """Of the function of a region."""
        assert self.library is not None
        return self.library.addresses[self.symbols[region]]


def emit_variant(
    module: Module, name: str, given: OpenKernel, values: Sequence[int], args: int
) -> Variant:
    """Add the functions of a kernel to a module, under names that begin with this one.

    Args:
        values: of the kernel's symbols; the code is right for them, and for others as may be.
    """
    part = Module(module.target)
    fresh = symbols_for(values)
    sizes: Sizes | None = fresh
    kernel = replaced(given.kernel, lambda extent: _in(fresh, extent))
    fresh.has_text = False
    hints = tuple(values)
    try:
        define_kernel(part, name, kernel, args, is_open=True)
        fits, words = fresh.checker(), fresh.in_slots()
    except NotOpenError:
        part = Module(module.target)
        kernel = replaced(given.kernel, lambda extent: _in(fresh, extent).hint)
        define_kernel(part, name, kernel, args, is_open=True)
        fits, words = (lambda values: tuple(values) == hints), (lambda values: ())
        sizes = None
    module.functions |= part.functions
    module.globals |= part.globals
    module.declarations |= part.declarations
    for defined in part.functions:
        module.declarations.pop(defined, None)
    suffixes = kernel.regions() or ("",)
    symbols = dict(zip(suffixes, symbols_of(name, kernel), strict=True))
    return Variant(fits, words, sizes, hints, symbols)


def _in(sizes: Sizes, extent: Extent) -> Extent:
    """The same formula of other symbols: a symbol, or one with its sign changed."""
    ((monomial, factor),) = extent.key
    made: Extent = sizes.symbols[monomial[0]] * factor
    return made


def words_of(variants: Sequence[tuple[Variant, Sequence[int]]]) -> Iterator[tuple[int, list[int]]]:
    """Where the words of each call begin, behind those of the calls before it, and these words."""
    at = 0
    for variant, values in variants:
        words = list(variant.words(values))
        yield at, words
        at += len(words)
