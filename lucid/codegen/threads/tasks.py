"""Kernels as functions: called directly or, those that threads share, one part at a time.

A part is called as `void (ptr frame, i64 part, i64 own)`; the frame holds the kernel's arguments,
and `own` is the number of the piece of scratch memory that no part has which runs meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lucid.codegen import costs
from lucid.codegen.kernel_ir.kernel import Kernel
from lucid.codegen.llvm.builder import FunctionBuilder, Module, Val, const
from lucid.ir.extents import hint, is_open


def symbols_of(name: str, kernel: Kernel) -> list[str]:
    """The functions of a kernel: one, or one for each region that threads share."""
    return [name + region for region in kernel.regions() or ("",)]


def declare_kernel(module: Module, name: str, kernel: Kernel, args: int) -> None:
    """Let the module call the functions of a kernel, which are loaded already."""
    types = [type for type, _ in (_PART if kernel.regions() else kernel.parameters())]
    if not kernel.regions():
        types += ["ptr"] * args
    for symbol in symbols_of(name, kernel):
        module.declare(symbol, "void", types)


def define_kernel(
    module: Module, name: str, kernel: Kernel, args: int, *, is_open: bool = False
) -> None:
    """Add the functions of a kernel, of open sizes with the address of these behind all else."""
    regions = kernel.regions()
    for region in reversed(regions):
        with FunctionBuilder(module, name + region, _PART) as b:
            frame, part, own = b.args
            pointers = [b.load("ptr", b.at("ptr", frame, i)) for i in range(args)]
            if is_open:
                b.read_sizes(b.load("ptr", b.at("ptr", frame, args)))
            kernel.emit_part(b, region, pointers, part, own)
            b.ret()
    if regions:
        return
    parameters = [*kernel.parameters(), *(("ptr", f"a{i}") for i in range(args))]
    if is_open:
        parameters.append(("ptr", "sizes"))
    with FunctionBuilder(module, name, parameters) as b:
        if is_open:
            b.read_sizes(b.args.pop())
        kernel.emit(b, b.args)
        b.ret()


_PART = [("ptr", "frame"), ("i64", "part"), ("i64", "own")]


@dataclass(frozen=True, slots=True)
class Region:
    """A function of a kernel.

    Attributes:
        parts: that threads share; None if it is called as a whole.
        count: how many there are, where that is open.
    """

    function: Val
    parts: int | None
    count: Val | None = None


def regions_of(name: str, kernel: Kernel) -> list[Region]:
    """The functions of a kernel in the order in which they run."""
    parts = kernel.regions()
    if not parts:
        return [Region(Val("ptr", f"@{name}"), None)]
    return [
        Region(
            Val("ptr", f"@{name + region}"), count, const("i64", count) if is_open(count) else None
        )
        for region, count in parts.items()
    ]


def _listed(values: Sequence[Val]) -> str:
    return ", ".join(map(str, values))


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
        self, regions: Sequence[Region], args: Sequence[Val], seconds: float, wake: bool
    ) -> None:
        """Run a kernel, which takes about so long; a region for threads wakes them if told so."""
        if regions[0].parts is None:
            self._b.statement(f"call void {regions[0].function.name}({_listed(args)})")
            return
        assert self._frame is not None
        for number, arg in enumerate(args):
            self._b.store(arg, self._b.at("ptr", self._frame, number))
        for region in regions:
            self._region(region, seconds, wake)

    def _region(self, region: Region, seconds: float, wake: bool) -> None:
        b, frame = self._b, self._frame
        assert frame is not None and region.parts is not None
        if hint(region.parts) == 1 and region.count is None:
            one = _listed([frame, const("i64", 0), const("i64", 0)])
            b.statement(f"call void {region.function.name}({one})")
            return
        count = const("i64", region.parts) if region.count is None else region.count
        values = (self.pool[1], region.function, frame, count)
        patience = costs.LEAST_PATIENCE + costs.PATIENCE * seconds / hint(region.parts)
        hints = int(wake), int(patience / costs.PAUSE_SECONDS), max(1, round(seconds * 1e6))
        arguments = ", ".join(map(str, (*values, *(const("i64", hint) for hint in hints))))
        b.statement(f"call void {self.pool[0].name}({arguments})")
