"""Kernels that run other kernels: those of the bodies of region ops, in memory of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np

from lucid.codegen import costs
from lucid.codegen.kernel_ir.kernel import Access, CallSite, Effect, Kernel, Memory, World
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.kernel_ir.work import Work
from lucid.codegen.kernels.host import RAISED, HostCalls, WholeKernel
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const
from lucid.codegen.llvm.target import Target
from lucid.codegen.threads.tasks import Caller, define_kernel, regions_of
from lucid.ir.extents import is_open
from lucid.ir.types import DType, i64


class Place(NamedTuple):
    """Where a kernel of the body finds an argument, in bytes.

    Attributes:
        arg: of the kernel that runs it.
        offset: where its element 0 lies in the first row.
        step: from one row to the next; 0 for what is no row.
    """

    arg: int
    offset: int
    step: int
    dtype: DType

    def __str__(self) -> str:
        offset = f" + {self.offset}" if is_open(self.offset) or self.offset else ""
        step = f" + t*{self.step}" if is_open(self.step) or self.step else ""
        return f"{self.dtype.name} a{self.arg}{offset}{step}"


Calls = tuple[tuple[int, tuple[Place, ...]], ...]
"""The calls of a body in their order: the kernel's number, and where it finds its arguments."""


@dataclass(slots=True)
class BodyKernel(WholeKernel):
    """What runs bodies; its last argument is memory of the bodies' own.

    Attributes:
        bytes: of that memory.
        flops: of all that runs, as far as that is known before.
        kernels: those that the bodies call.
    """

    bytes: int
    flops: int
    kernels: tuple[Kernel, ...]

    @property
    def bodies(self) -> Sequence[Calls]:
        """The calls of each body."""
        raise NotImplementedError

    @property
    def kind(self) -> str:
        return "loop"

    def texts(self) -> list[list[str]]:
        """The lines that say what each body calls, and each kernel where it is called first."""
        said = 0
        found = []
        for calls in self.bodies:
            lines = []
            for number, places in calls:
                if number == said:
                    said += 1
                    lines += [f"  kernel {number} = {self.kernels[number]}".replace("\n", "\n  ")]
                lines.append(f"  call {number}({', '.join(map(str, places))})")
            found.append(lines)
        return found

    @property
    def effect(self) -> Effect:
        return "host" if self.hosts else ""

    @property
    def hosts(self) -> Sequence[Kernel]:
        return [*chain.from_iterable(kernel.hosts for kernel in self.kernels)]

    @property
    def is_shared(self) -> bool:
        return any(kernel.is_shared for kernel in self.kernels)

    @property
    def scratch(self) -> Sequence[int]:
        return (len(self.operands) + len(self.results),) if self.bytes else ()

    def work(self, args: Sequence[Buffer]) -> Work:
        return self.traffic(args).work(self.flops)

    # What it means ------------------------------------------------------------------------

    def accesses(self) -> Iterator[Access]:
        yield from WholeKernel.accesses(self)
        for number in self.scratch:
            yield Access(number, 0, self.bytes // i64.itemsize - 1, i64, writes=True)

    # LLVM IR ------------------------------------------------------------------------------

    def parameters(self) -> list[tuple[str, str]]:
        shared = [("ptr", "region"), ("ptr", "pool")] if self.is_shared else []
        python = [("ptr", "record"), ("ptr", "python"), ("i64", "first")] if self.hosts else []
        return shared + python

    def emit_call(self, site: CallSite) -> None:
        given = [*site.pool] if self.is_shared else []
        if not self.hosts:
            site.call([*given, *site.args])
            return
        given += [site.record, site.python, site.next_hosts(len(self.hosts))]
        site.call([*given, *site.args])
        site.leave_if_recorded()

    def caller(self, b: FunctionBuilder, args: Sequence[Val]) -> BodyCaller:
        """What writes the calls of bodies, of the arguments of this kernel's function."""
        return BodyCaller(b, self, args)

    def seconds_of(self, calls: Calls, target: Target) -> float:
        """What the kernels of a body take."""
        return sum(self.kernels[number].seconds(target) for number, _ in calls)

    def evaluate_calls(
        self, calls: Calls, memory: Sequence[Memory], world: World, t: int = 0
    ) -> None:
        """Run the kernels of a body in the interpreter, in the round of row `t`."""
        for number, places in calls:
            seen = [_seen(memory[place.arg], place, t) for place in places]
            self.kernels[number].evaluate(seen, world)


class BodyCaller:
    """Writes the calls of bodies, whose functions it adds to the module.

    Where sizes are open, the address of their values is one more argument of each.

    Attributes:
        args: addresses of the arguments.
    """

    def __init__(self, b: FunctionBuilder, kernel: BodyKernel, args: Sequence[Val]) -> None:
        nobody, count = Val("ptr", "null"), len(kernel.parameters())
        self._b = b
        self._kernels = kernel.kernels
        self._pool = list(args[:2]) if kernel.is_shared else [nobody, nobody]
        self._python = list(args[count - 3 : count]) if kernel.hosts else []
        self.args = args[count:]
        self._sizes = () if b.sizes is None else (b.sizes,)
        counts = {number: len(places) for calls in kernel.bodies for number, places in calls}
        for number, count in counts.items():
            is_open, each = b.sizes is not None, kernel.kernels[number]
            if each.has_function:
                define_kernel(b.module, self._name(number), each, count, is_open=is_open)
        self._hosts = HostCalls(
            b, [x for n, x in counts.items() if not kernel.kernels[n].has_function]
        )
        made = accumulate((len(each.hosts) for each in kernel.kernels), initial=0)
        self._first = [*made]  # the number of each kernel's first call of Python, among all
        shared = [count for number, count in counts.items() if kernel.kernels[number].regions()]
        most = max(shared, default=-len(self._sizes)) + len(self._sizes)
        self._caller = Caller(b, self._pool[0], self._pool[1], most)

    def call(self, calls: Calls, rounds: int, t: Val | None = None) -> None:
        """Run the kernels of a body, of which there are so many rounds; `t` is the row of this."""
        b = self._b
        kernels = [self._kernels[number] for number, _ in calls]
        seconds = [kernel.seconds(b.target) for kernel in kernels]
        ahead = rounds * sum(
            cost for cost, kernel in zip(seconds, kernels, strict=True) if kernel.is_shared
        )
        for (number, places), kernel, cost in zip(calls, kernels, seconds, strict=True):
            args = [self._address(place, t) for place in places]
            python = self._python_of(number) if kernel.hosts else []
            if not kernel.has_function:
                _, slot, first = python
                self._hosts.emit(first, slot, args, self._leave)
                continue
            pool = self._pool if len(kernel.parameters()) > len(python) else []
            wake = ahead >= costs.WAKE_SECONDS
            regions = regions_of(self._name(number), kernel)
            self._caller.call(regions, [*pool, *python, *args, *self._sizes], cost, wake)
            if python:
                with b.if_(b.ne(b.load("i64", python[0]), 0)):
                    b.ret()

    def _python_of(self, number: int) -> list[Val]:
        """What a kernel gets that calls Python."""
        record, slot, first = self._python
        return [record, slot, self._b.add(first, self._first[number])]

    def _leave(self) -> None:
        """Leave all that runs, as Python has raised."""
        self._b.store(const("i64", RAISED), self._python[0])
        self._b.ret()

    def _name(self, number: int) -> str:
        return f"{self._b.name}_{number}"

    def _address(self, place: Place, t: Val | None) -> Val:
        b = self._b
        address = b.at("i8", self.args[place.arg], place.offset)
        if not is_open(place.step) and not place.step:
            return address
        assert t is not None, "there are no rows"
        return b.at("i8", address, b.mul(t, place.step))


def _seen(memory: Memory, place: Place, t: int) -> Memory:
    """What a kernel of the body sees of an argument in a round."""
    size = place.dtype.itemsize
    data = memory.data
    if data.dtype != place.dtype.numpy:
        data = data.view(np.uint8)[place.offset :]
        return Memory(data[: data.size // size * size].view(place.dtype.numpy))
    return Memory(data, memory.start + (place.offset + t * place.step) // size)
