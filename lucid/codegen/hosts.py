"""Calls of Python from a step, through a function of the runtime's."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.codegen.kernel import HostKernel
from lucid.codegen.llvm import FunctionBuilder, Val, const
from lucid.codegen.schedule import Step

FAILED = 2  # what the step returns when Python raised


class HostCalls:
    """Emits those calls among the steps of a function, in their order."""

    def __init__(self, b: FunctionBuilder, steps: Sequence[Step]) -> None:
        sizes = [len(step.args) for step in steps if isinstance(step.kernel, HostKernel)]
        self._b = b
        if sizes:
            self._places = b.alloca("ptr", 1 + max(sizes))

    def emit(self, count: int, slot: Val, args: Sequence[Val]) -> None:
        """Call `i32 function(ptr table)`; leave the step if it fails.

        The table has the number of the call, then addresses.

        Args:
            count: of the calls before.
            slot: where the address of the function is.
            args: what the call reads, then what it fills.
        """
        b = self._b
        b.store(const("i64", count), self._places)
        for place, arg in enumerate(args, 1):
            b.store(arg, b.at("ptr", self._places, place))
        function = b.load("ptr", slot)
        answer = b.emit("i32", f"call i32 {function.name}({self._places})")
        with b.if_(b.ne(answer, 1)):
            b.ret(const("i32", FAILED))
