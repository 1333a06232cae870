"""Kernels as functions: called directly or, those that threads share, one part at a time.

A part is called as `void (ptr frame, i64 part)`; the frame holds the kernel's arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucid.codegen.contract import emit_contract
from lucid.codegen.direct import emit_axes
from lucid.codegen.grid import emit_grid, emit_packing, smaller
from lucid.codegen.kernel import (
    AxesKernel,
    CheckKernel,
    ContractKernel,
    Grid,
    Kernel,
    LoopKernel,
    Parts,
    SortKernel,
)
from lucid.codegen.lines import Cut, emit_check
from lucid.codegen.llvm import FunctionBuilder, Module, Val, const
from lucid.codegen.loops import LoopEmitter
from lucid.codegen.lowering import MEMORY
from lucid.codegen.sorting import emit_sort
from lucid.codegen.sweep import SweepEmitter, is_swept

# How long the caller waits for others before it takes their processors for lost: so many times the
# estimated time of a part, and some more. A round of waiting takes about 25 ns.
_PATIENCE, _LEAST_PATIENCE = 4.0, 1e-3
_PAUSE_SECONDS = 25e-9


def parts_of(kernel: Kernel) -> Parts | Grid | None:
    """How threads share a kernel's work; None if they don't."""
    if isinstance(kernel, (LoopKernel, ContractKernel, AxesKernel, SortKernel)):
        return kernel.parts
    return None


def define_kernel(module: Module, name: str, kernel: Kernel, args: int) -> None:
    """Add the functions of a kernel; packing, where threads share it, is one of its own."""
    if parts_of(kernel) is not None:
        _define_part(module, name, kernel, args, packing=False)
        if packing_parts(kernel):
            _define_part(module, _packing(name), kernel, args, packing=True)
        return
    pointers = [("ptr", f"a{i}") for i in range(args)]
    if isinstance(kernel, CheckKernel):
        pointers = [("ptr", "record"), ("i64", "code"), *pointers]
    with FunctionBuilder(module, name, pointers, internal=True) as b:
        if isinstance(kernel, LoopKernel):
            _loops(b, kernel, b.args).run()
        elif isinstance(kernel, ContractKernel):
            emit_contract(b, kernel, b.args)
        elif isinstance(kernel, AxesKernel):
            emit_axes(b, kernel, b.args)
        elif isinstance(kernel, CheckKernel):
            emit_check(b, kernel, b.args)
        elif isinstance(kernel, SortKernel):
            emit_sort(b, kernel, b.args)
        b.ret()


def packing_parts(kernel: Kernel) -> int:
    """Parts of the copying of operands that comes before a product's own parts."""
    if not isinstance(kernel, ContractKernel) or kernel.parts is None:
        return 0
    return kernel.parts.counts[0] * sum(kernel.parts.packs)


def _packing(name: str) -> str:
    return name + "_packing"


def _loops(b: FunctionBuilder, kernel: LoopKernel, args: Sequence[Val]) -> LoopEmitter:
    return (SweepEmitter if is_swept(kernel) else LoopEmitter)(b, kernel, args)


def _define_part(module: Module, name: str, kernel: Kernel, args: int, *, packing: bool) -> None:
    parameters = [("ptr", "frame"), ("i64", "part")]
    with FunctionBuilder(module, name, parameters, internal=True) as b:
        frame, part = b.args
        pointers = [b.load("ptr", b.at("ptr", frame, i)) for i in range(args)]
        if isinstance(kernel, ContractKernel):
            (emit_packing if packing else emit_grid)(b, kernel, pointers, part)
        elif isinstance(kernel, AxesKernel):
            emit_axes(b, kernel, pointers, _cut(b, kernel.parts, kernel.body.sizes, part))
        elif isinstance(kernel, SortKernel):
            assert kernel.parts is not None
            for arg, size in kernel.parts.partials:
                pointers[arg] = b.at("i64", pointers[arg], b.mul(part, size))
            emit_sort(b, kernel, pointers, _cut(b, kernel.parts, kernel.shape, part))
        elif isinstance(kernel, LoopKernel):
            assert kernel.parts is not None
            for arg, size in kernel.parts.partials:
                own = b.mul(part, size)
                pointers[arg] = b.at(MEMORY[kernel.args[arg]], pointers[arg], own)
            emitter = _loops(b, kernel, pointers)
            emitter.cut = _cut(b, kernel.parts, kernel.sizes, part)
            emitter.run()
        b.ret()


def _cut(b: FunctionBuilder, parts: Parts | None, sizes: Sequence[int], part: Val) -> Cut:
    """The dim that is cut, and what of it belongs to a part."""
    assert parts is not None
    low = b.mul(part, parts.size)
    return parts.dim, low, smaller(b, b.add(low, parts.size), sizes[parts.dim])


class Caller:
    """Calls kernels from the step.

    Args:
        entry: address of the pool's function that runs a region.
        pool: address of its state.
        most_args: of all kernels that threads share.
    """

    def __init__(self, b: FunctionBuilder, entry: Val, pool: Val, most_args: int) -> None:
        self._b = b
        self._entry = entry
        self._pool = pool
        self._frame = b.alloca("ptr", most_args) if most_args else None

    def call(
        self, name: str, kernel: Kernel, args: Sequence[Val], seconds: float, wake: bool
    ) -> None:
        """Run a kernel, which takes about so long; a region for threads wakes them if told so."""
        parts = parts_of(kernel)
        if parts is None:
            self._b.call(name, "void", *args)
            return
        assert self._frame is not None
        for number, arg in enumerate(args):
            self._b.store(arg, self._b.at("ptr", self._frame, number))
        if packing_parts(kernel):
            self._region(_packing(name), packing_parts(kernel), seconds, wake)
        self._region(name, parts.count, seconds, wake)

    def _region(self, name: str, parts: int, seconds: float, wake: bool) -> None:
        b, frame = self._b, self._frame
        assert frame is not None
        if parts == 1:
            b.call(name, "void", frame, const("i64", 0))
            return
        values = (self._pool, Val("ptr", f"@{name}"), frame, const("i64", parts))
        patience = (_LEAST_PATIENCE + _PATIENCE * seconds / parts) / _PAUSE_SECONDS
        hints = int(wake), int(patience), max(1, round(seconds * 1e6))
        arguments = ", ".join(map(str, (*values, *(const("i64", hint) for hint in hints))))
        b.statement(f"call void {self._entry.name}({arguments})")
