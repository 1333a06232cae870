"""Calls of Python from a step, through a function of the runtime's."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.codegen.kernel import HostKernel
from lucid.codegen.llvm import FunctionBuilder, Val, const
from lucid.codegen.schedule import Program

FAILED = 2  # what the step returns when Python raised


class HostCalls:
    """Emits the calls of a program, in their order."""

    def __init__(self, b: FunctionBuilder, program: Program) -> None:
        steps = [step for step in program.steps if isinstance(step.kernel, HostKernel)]
        self._b = b
        self._count = 0
        if steps:
            self._places = b.alloca("ptr", max(1, *(len(step.args) for step in steps), 1))

    def emit(self, slot: Val, args: Sequence[Val]) -> None:
        """Call `i32 function(i64 number of the call, ptr addresses)`; leave the step if it fails.

        Args:
            slot: where the address of the function is.
            args: what the call reads, then what it fills.
        """
        b = self._b
        for place, arg in enumerate(args):
            b.store(arg, b.at("ptr", self._places, place))
        function = b.load("ptr", slot)
        number = const("i64", self._count)
        self._count += 1
        failed = b.emit("i32", f"call i32 {function.name}({number}, {self._places})")
        with b.if_(b.ne(failed, 0)):
            b.ret(const("i32", FAILED))
