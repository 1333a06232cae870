"""Reading of a processor's clock, for steps that note how long each kernel takes."""

from __future__ import annotations

from lucid.codegen.llvm.builder import FunctionBuilder, Module, Val
from lucid.codegen.llvm.target import Target

NOW = "now"  # exported by a timed module: i64 (), the clock


class Clock:
    """Notes the time in a step.

    Args:
        ticks: address of the notes, i64 each: when the step began, and when each kernel was over;
            None notes nothing.
    """

    def __init__(self, b: FunctionBuilder, ticks: Val | None) -> None:
        self._b = b
        self._ticks = ticks

    def note(self, place: int) -> None:
        """Note the time in a place of the notes."""
        if self._ticks is None:
            return
        now = self._b.call(counter_of(self._b.target), "i64")
        self._b.store(now, self._b.at("i64", self._ticks, place))


def define_now(module: Module) -> None:
    """Add the function that tells the time, so that ticks can be compared with seconds."""
    with FunctionBuilder(module, NOW, [], "i64") as b:
        b.ret(b.call(counter_of(module.target), "i64"))


def counter_of(target: Target) -> str:
    """The intrinsic of a clock of constant rate that a process may read, without a call.

    On x86 the cycle counter is one; on ARM it may not be read, and counts cycles of the moment.
    """
    is_x86 = target.triple.startswith(("x86", "i386", "i686"))
    return "llvm.readcyclecounter" if is_x86 else "llvm.readsteadycounter"
