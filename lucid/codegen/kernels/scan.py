"""Loops of a graph: a body's kernels run round by round, in memory of their own.

The carry lies in the results from the start: it is copied there before the first round, and each
round writes it in place. Rows are read and written where they lie, at an address that moves. The
carry of a `while_loop` says whether there is another round, and at which row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lucid.codegen import costs
from lucid.codegen.kernel_ir.kernel import Access, CallSite, Kernel, Memory, World
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.kernel_ir.work import Traffic, Work
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const, vector
from lucid.codegen.llvm.target import Target
from lucid.codegen.threads.tasks import Caller, define_kernel, regions_of
from lucid.ir.types import DType, TensorType, i64


class Place(NamedTuple):
    """Where a kernel of the body finds an argument, in bytes.

    Attributes:
        arg: of the scan.
        offset: where its element 0 lies in the first row.
        step: from one row to the next; 0 for what is no row.
    """

    arg: int
    offset: int
    step: int
    dtype: DType

    def __str__(self) -> str:
        offset = f" + {self.offset}" if self.offset else ""
        step = f" + t*{self.step}" if self.step else ""
        return f"{self.dtype.name} a{self.arg}{offset}{step}"


@dataclass(slots=True)
class ScanKernel(Kernel):
    """Rounds of a body. Arguments: what it reads, the carry, the stacks, and memory of its own.

    Attributes:
        operands: the carry to begin with, the rows, what else is read; results: carry, stacks.
        carries, rows: how many of them; bytes: of the memory of its own; flops: of all rounds, or
            of one where a carry decides how many there are.
        is_while: the first carries are whether there is another round, and its row.
        calls: the kernels of one round, and where they find their arguments.
    """

    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    carries: int
    rows: int
    length: int
    reverse: bool
    is_while: bool
    bytes: int
    flops: int
    calls: tuple[tuple[Kernel, tuple[Place, ...]], ...]

    @property
    def kind(self) -> str:
        return "loop"

    def __str__(self) -> str:
        def listed(types: Sequence[TensorType], first: int) -> str:
            return ", ".join(f"a{i}: {type}" for i, type in enumerate(types, first))

        way = " in reverse" if self.reverse else ""
        lines = [
            f"{'while' if self.is_while else 'scan'}({listed(self.operands, 0)}) -> "
            f"({listed(self.results, len(self.operands))})",
            f"  {self.length} rounds{way}, carry {self.carries}, rows {self.rows}, "
            f"{self.bytes} bytes, {self.flops} flops",
        ]
        names: dict[str, int] = {}
        for kernel, places in self.calls:
            text = str(kernel)
            if text not in names:
                names[text] = len(names)
                lines += [f"  kernel {names[text]} = " + text.replace("\n", "\n  ")]
            lines.append(f"  call {names[text]}({', '.join(map(str, places))})")
        return "\n".join(lines)

    @property
    def is_shared(self) -> bool:
        return any(kernel.is_shared for kernel, _ in self.calls)

    @property
    def scratch(self) -> Sequence[int]:
        return (len(self.operands) + len(self.results),) if self.bytes else ()

    def work(self, args: Sequence[Buffer]) -> Work:
        traffic = Traffic(args)
        for number, type in enumerate((*self.operands, *self.results)):
            (traffic.read if number < len(self.operands) else traffic.write)(number, type.size)
        return traffic.work(self.flops)

    def seconds(self, target: Target) -> float:
        return self.expected_rounds * sum(kernel.seconds(target) for kernel, _ in self.calls)

    @property
    def expected_rounds(self) -> int:
        """How many there are, as costs count."""
        return max(self.length, costs.ROUNDS) if self.is_while else self.length

    # What it means ------------------------------------------------------------------------

    def accesses(self) -> Iterator[Access]:
        for number, type in enumerate((*self.operands, *self.results)):
            if type.size:
                yield Access(number, 0, type.size - 1, type.dtype, number >= len(self.operands))
        for number in self.scratch:
            yield Access(number, 0, self.bytes // i64.itemsize - 1, i64, writes=True)

    def evaluate(self, memory: Sequence[Memory], world: World) -> None:
        for number, type in enumerate(self.operands[: self.carries]):
            whole = np.arange(type.size)
            memory[len(self.operands) + number].write(whole, memory[number].read(whole))
        for t in self._rounds(memory):
            for kernel, places in self.calls:
                kernel.evaluate([_seen(memory[p.arg], p, t) for p in places], world)

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

    def parameters(self) -> list[tuple[str, str]]:
        return [("ptr", "region"), ("ptr", "pool")] if self.is_shared else []

    def emit_call(self, site: CallSite) -> None:
        site.call([*(site.pool if self.is_shared else ()), *site.args])

    def emit(self, b: FunctionBuilder, args: Sequence[Val]) -> None:
        nobody = Val("ptr", "null")
        pool = args[:2] if self.is_shared else [nobody, nobody]
        args = args[2:] if self.is_shared else args
        first = len(self.operands)
        for number in range(self.carries):
            _fill(b, args[first + number], args[number], self.operands[number].nbytes)
        names = self._define(b)
        shared = [kernel.is_shared for kernel, _ in self.calls]
        most = max((len(places) for kernel, places in self.calls if kernel.regions()), default=0)
        caller = Caller(b, pool[0], pool[1], most)
        seconds = [kernel.seconds(b.target) for kernel, _ in self.calls]
        ahead = self.expected_rounds * sum(
            cost for cost, several in zip(seconds, shared, strict=True) if several
        )
        with self._loop(b, args) as t:
            for name, (kernel, places), cost in zip(names, self.calls, seconds, strict=True):
                given = [self._address(b, args, place, t) for place in places]
                before = pool if kernel.parameters() else ()
                wake = ahead >= costs.WAKE_SECONDS
                caller.call(regions_of(name, kernel), [*before, *given], cost, wake)

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

    def _define(self, b: FunctionBuilder) -> list[str]:
        """Add the functions of the body's kernels; those of equal texts are one."""
        names: dict[str, str] = {}
        for kernel, places in self.calls:
            text = str(kernel)
            if text not in names:
                names[text] = f"{b.name}_{len(names)}"
                define_kernel(b.module, names[text], kernel, len(places))
        return [names[str(kernel)] for kernel, _ in self.calls]

    @staticmethod
    def _address(b: FunctionBuilder, args: Sequence[Val], place: Place, t: Val) -> Val:
        address = b.at("i8", args[place.arg], place.offset)
        return b.at("i8", address, b.mul(t, place.step)) if place.step else address


def _seen(memory: Memory, place: Place, t: int) -> Memory:
    """What a kernel of the body sees of an argument of the scan in a round."""
    size = place.dtype.itemsize
    data = memory.data
    if data.dtype != place.dtype.numpy:
        data = data.view(np.uint8)[place.offset :]
        return Memory(data[: data.size // size * size].view(place.dtype.numpy))
    return Memory(data, memory.start + (place.offset + t * place.step) // size)


def _fill(b: FunctionBuilder, target: Val, source: Val | None, size: int) -> None:
    """Copy so many bytes, vectors first; None: zeros."""
    lanes = b.target.lanes("i64")
    done = 0
    for type, step in ((vector("i64", lanes), 8 * lanes), ("i8", 1)):
        stop = size // step * step
        if stop > done:
            with b.loop(done, stop, step) as loop:
                value = const(type, 0)
                if source is not None:
                    value = b.load(type, b.at("i8", source, loop.index), align=1)
                b.store(value, b.at("i8", target, loop.index), align=1)
        done = stop
