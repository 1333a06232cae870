"""Calls of Python from a step, through a function of the runtime's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lucid.codegen import costs
from lucid.codegen.kernel_ir.kernel import Access, CallSite, Effect, Kernel, Memory, World
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.kernel_ir.work import Traffic, Work
from lucid.codegen.llvm.builder import FunctionBuilder, Val
from lucid.codegen.llvm.target import Target
from lucid.ir.hosts import host_function
from lucid.ir.types import TensorType

FAILED = 2  # what the step returns when Python raised
RAISED = -1  # what the record of checks has where Python raised in a loop


@dataclass(slots=True)
class WholeKernel(Kernel):
    """A kernel of whole arrays: its operands, which are read, then its results."""

    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]

    def header(self, name: str) -> str:
        """Its arguments and results with their types."""

        def listed(types: Sequence[TensorType], first: int) -> str:
            return ", ".join(f"a{i}: {type}" for i, type in enumerate(types, first))

        return f"{name}({listed(self.operands, 0)}) -> ({listed(self.results, len(self.operands))})"

    def traffic(self, args: Sequence[Buffer]) -> Traffic:
        """What it reads and writes."""
        found = Traffic(args)
        for number, type in enumerate((*self.operands, *self.results)):
            (found.read if number < len(self.operands) else found.write)(number, type.size)
        return found

    def accesses(self) -> Iterator[Access]:
        for number, type in enumerate((*self.operands, *self.results)):
            if type.size:
                yield Access(number, 0, type.size - 1, type.dtype, number >= len(self.operands))


@dataclass(slots=True)
class HostKernel(WholeKernel):
    """A call of Python."""

    name: str
    has_function: ClassVar[bool] = False

    @property
    def effect(self) -> Effect:
        return "host"

    @property
    def hosts(self) -> Sequence[Kernel]:
        return (self,)

    @property
    def label(self) -> str:
        return self.name

    @property
    def kind(self) -> str:
        return "host"

    def __str__(self) -> str:
        return self.header(f"host {self.name}")

    def work(self, args: Sequence[Buffer]) -> Work:
        return self.traffic(args).work(0)

    def seconds(self, target: Target) -> float:
        return costs.HOST_SECONDS

    def evaluate(self, memory: Sequence[Memory], world: World) -> None:
        count = len(self.operands)
        given = [
            place.read(np.arange(type.size)).reshape(type.shape)
            for place, type in zip(memory, self.operands, strict=False)
        ]
        found = host_function(world.hosts, self.name)(world.frame, given)
        for place, array in zip(memory[count:], found, strict=True):
            place.write(np.arange(array.size), np.asarray(array).ravel())

    def emit_call(self, site: CallSite) -> None:
        site.call_python()


class HostCalls:
    """Emits calls of so many arguments each, in their order."""

    def __init__(self, b: FunctionBuilder, sizes: Sequence[int]) -> None:
        self._b = b
        if sizes:
            self._places = b.alloca("ptr", 1 + max(sizes))

    def emit(self, number: Val, slot: Val, args: Sequence[Val], leave: Callable[[], None]) -> None:
        """Call `i32 function(ptr table)`; `leave` the function that is written if it fails.

        The table has the number of the call, then addresses.

        Args:
            number: of the call, among those of the step.
            slot: where the address of the function is.
            args: what the call reads, then what it fills.
        """
        b = self._b
        b.store(number, self._places)
        for place, arg in enumerate(args, 1):
            b.store(arg, b.at("ptr", self._places, place))
        function = b.load("ptr", slot)
        answer = b.emit("i32", f"call i32 {function.name}({self._places})")
        with b.if_(b.ne(answer, 1)):
            leave()
