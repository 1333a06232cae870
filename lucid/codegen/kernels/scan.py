"""Loops of a graph: a body's kernels run round by round.

The carry lies in the results from the start: it is copied there before the first round, and each
round writes it in place. Rows are read and written where they lie, at an address that moves. The
carry of a `while_loop` says whether there is another round, and at which row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from lucid.codegen import costs
from lucid.codegen.kernel_ir.kernel import Memory, World
from lucid.codegen.kernels.body import BodyKernel, Calls
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const, vector
from lucid.codegen.llvm.target import Target
from lucid.ir.extents import hint, is_open


@dataclass(slots=True)
class ScanKernel(BodyKernel):
    """Rounds of a body. What it reads begins with the carry and the rows; so does what it fills.

    Attributes:
        carries, rows: how many of them there are.
        is_while: the first carries are whether there is another round, and its row.
        calls: those of one round.
    """

    carries: int
    rows: int
    length: int
    reverse: bool
    is_while: bool
    calls: Calls

    @property
    def bodies(self) -> Sequence[Calls]:
        return (self.calls,)

    def __str__(self) -> str:
        way = " in reverse" if self.reverse else ""
        sizes = (
            f"  {self.length} rounds{way}, carry {self.carries}, rows {self.rows}, "
            f"{self.bytes} bytes, {self.flops} flops"
        )
        header = self.header("while" if self.is_while else "scan")
        return "\n".join([header, sizes, *self.texts()[0]])

    def seconds(self, target: Target) -> float:
        return self.expected_rounds * self.seconds_of(self.calls, target)

    @property
    def expected_rounds(self) -> int:
        """How many there are, as costs count."""
        length: int = hint(self.length)
        return max(length, costs.ROUNDS) if self.is_while else length

    # What it means ------------------------------------------------------------------------

    def evaluate(self, memory: Sequence[Memory], world: World) -> None:
        for number, type in enumerate(self.operands[: self.carries]):
            whole = np.arange(type.size)
            memory[len(self.operands) + number].write(whole, memory[number].read(whole))
        for t in self._rounds(memory):
            self.evaluate_calls(self.calls, memory, world, t)

    def _rounds(self, memory: Sequence[Memory]) -> Iterator[int]:
        """The row of each round."""
        if not self.is_while:
            yield from range(self.length)[:: -1 if self.reverse else 1]
            return
        first, one = len(self.operands), np.arange(1)
        for number, type in enumerate(self.results[self.carries :], first + self.carries):
            memory[number].write(np.arange(type.size), np.zeros(type.size, type.dtype.numpy))
        while memory[first].read(one)[0]:
            yield min(max(0, int(memory[first + 1].read(one)[0])), max(self.length - 1, 0))

    # LLVM IR ------------------------------------------------------------------------------

    def emit(self, b: FunctionBuilder, args: Sequence[Val]) -> None:
        caller, first = self.caller(b, args), len(self.operands)
        for number in range(self.carries):
            size = self.operands[number].nbytes
            _fill(b, caller.args[first + number], caller.args[number], size)
        if self.is_while or self.length:
            with self._loop(b, caller.args) as t:
                caller.call(self.calls, self.expected_rounds, t)

    @contextmanager
    def _loop(self, b: FunctionBuilder, args: Sequence[Val]) -> Iterator[Val]:
        """The loop around a round, which gets the number of its row."""
        first = len(self.operands)
        if not self.is_while:
            with b.loop(0, self.length) as loop:
                yield b.sub(self.length - 1, loop.index) if self.reverse else loop.index
            return
        for number, type in enumerate(self.results[self.carries :], first + self.carries):
            _fill(b, args[number], None, type.nbytes)
        with b.while_(lambda: b.load_bool(args[first])):
            t = b.load("i64", args[first + 1])
            t = b.intrinsic("smin", t, const("i64", max(self.length - 1, 0)))
            yield b.intrinsic("smax", t, const("i64", 0))


def _fill(b: FunctionBuilder, target: Val, source: Val | None, size: int) -> None:
    """Copy so many bytes, vectors first; None: zeros."""
    lanes = b.target.lanes("i64")
    done = 0
    for type, step in ((vector("i64", lanes), 8 * lanes), ("i8", 1)):
        stop = size // step * step
        if is_open(stop) or stop > done:
            with b.loop(done, stop, step) as loop:
                value = const(type, 0)
                if source is not None:
                    value = b.load(type, b.at("i8", source, loop.index), align=1)
                b.store(value, b.at("i8", target, loop.index), align=1)
        done = stop
