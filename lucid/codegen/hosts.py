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
            self._places = b.alloca("ptr", max(1, *sizes))

    def emit(self, count: int, slot: Val, args: Sequence[Val]) -> None:
        """Call `i32 function(i64 number of the call, ptr addresses)`; leave the step if it fails.

        Args:
            count: of the calls before.
            slot: where the address of the function is.
            args: what the call reads, then what it fills.
        """
        b = self._b
        for place, arg in enumerate(args):
            b.store(arg, b.at("ptr", self._places, place))
        function = b.load("ptr", slot)
        number = const("i64", count)
        failed = b.emit("i32", f"call i32 {function.name}({number}, {self._places})")
        with b.if_(b.ne(failed, 0)):
            b.ret(const("i32", FAILED))
