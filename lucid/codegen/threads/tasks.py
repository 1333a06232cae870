"""Kernels as functions: called directly or, those that threads share, one part at a time.

A part is called as `void (ptr frame, i64 part)`; the frame holds the kernel's arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucid.codegen import costs
from lucid.codegen.kernel_ir.kernel import Kernel
from lucid.codegen.llvm.builder import FunctionBuilder, Module, Val, const


def symbols_of(name: str, kernel: Kernel) -> list[str]:
    """The functions of a kernel: one, or one for each region that threads share."""
    return [name + region for region in kernel.regions() or ("",)]


def declare_kernel(module: Module, name: str, kernel: Kernel) -> None:
    """Let the module call the functions of a kernel, which are loaded already."""
    if kernel.regions():
        for symbol in symbols_of(name, kernel):
            module.declare(symbol, "void", [type for type, _ in _PART])


def define_kernel(module: Module, name: str, kernel: Kernel, args: int) -> None:
    """Add the functions of a kernel."""
    regions = kernel.regions()
    for region in reversed(regions):
        with FunctionBuilder(module, name + region, _PART) as b:
            frame, part = b.args
            pointers = [b.load("ptr", b.at("ptr", frame, i)) for i in range(args)]
            kernel.emit_part(b, region, pointers, part)
            b.ret()
    if regions:
        return
    parameters = [*kernel.parameters(), *(("ptr", f"a{i}") for i in range(args))]
    with FunctionBuilder(module, name, parameters) as b:
        kernel.emit(b, b.args)
        b.ret()


_PART = [("ptr", "frame"), ("i64", "part")]


class Caller:
    """Calls kernels from the step.

    Args:
        entry: address of the pool's function that runs a region.
        pool: address of its state.
        most_args: of all kernels that threads share.

    Attributes:
        pool: both addresses.
    """

    def __init__(self, b: FunctionBuilder, entry: Val, pool: Val, most_args: int) -> None:
        self._b = b
        self.pool = entry, pool
        self._frame = b.alloca("ptr", most_args) if most_args else None

    def call(
        self, name: str, kernel: Kernel, args: Sequence[Val], seconds: float, wake: bool
    ) -> None:
        """Run a kernel, which takes about so long; a region for threads wakes them if told so."""
        regions = kernel.regions()
        if not regions:
            self._b.call(name, "void", *args)
            return
        assert self._frame is not None
        for number, arg in enumerate(args):
            self._b.store(arg, self._b.at("ptr", self._frame, number))
        for region, parts in regions.items():
            self._region(name + region, parts, seconds, wake)

    def _region(self, name: str, parts: int, seconds: float, wake: bool) -> None:
        b, frame = self._b, self._frame
        assert frame is not None
        if parts == 1:
            b.call(name, "void", frame, const("i64", 0))
            return
        values = (self.pool[1], Val("ptr", f"@{name}"), frame, const("i64", parts))
        patience = (costs.LEAST_PATIENCE + costs.PATIENCE * seconds / parts) / costs.PAUSE_SECONDS
        hints = int(wake), int(patience), max(1, round(seconds * 1e6))
        arguments = ", ".join(map(str, (*values, *(const("i64", hint) for hint in hints))))
        b.statement(f"call void {self.pool[0].name}({arguments})")
