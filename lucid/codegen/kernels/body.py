"""Kernels that run other kernels: those of the bodies of region ops, in memory of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lucid.codegen import costs
from lucid.codegen.kernel_ir.kernel import Access, CallSite, Kernel, Memory, World
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.kernel_ir.work import Traffic, Work
from lucid.codegen.llvm.builder import FunctionBuilder, Val
from lucid.codegen.llvm.target import Target
from lucid.codegen.threads.tasks import Caller, define_kernel, regions_of
from lucid.ir.types import DType, TensorType, i64


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
        offset = f" + {self.offset}" if self.offset else ""
        step = f" + t*{self.step}" if self.step else ""
        return f"{self.dtype.name} a{self.arg}{offset}{step}"


Calls = tuple[tuple[Kernel, tuple[Place, ...]], ...]
"""The kernels of a body in their order, and where they find their arguments."""


@dataclass(slots=True)
class BodyKernel(Kernel):
    """What runs bodies. Arguments: what it reads, what it fills, and memory of the bodies' own.

    Attributes:
        operands: what it reads; results: what it fills.
        bytes: of the memory of the bodies' own.
        flops: of all that runs, as far as that is known before.
    """

    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    bytes: int
    flops: int

    @property
    def bodies(self) -> Sequence[Calls]:
        """The kernels of each body."""
        raise NotImplementedError

    @property
    def kind(self) -> str:
        return "loop"

    def header(self, name: str) -> str:
        """The first line of its text: arguments and results with their types."""

        def listed(types: Sequence[TensorType], first: int) -> str:
            return ", ".join(f"a{i}: {type}" for i, type in enumerate(types, first))

        return f"{name}({listed(self.operands, 0)}) -> ({listed(self.results, len(self.operands))})"

    def texts(self) -> list[list[str]]:
        """The lines that say what each body calls, and each kernel where it is called first."""
        names: dict[str, int] = {}
        found = []
        for calls in self.bodies:
            lines = []
            for kernel, places in calls:
                text = str(kernel)
                if text not in names:
                    names[text] = len(names)
                    lines += [f"  kernel {names[text]} = " + text.replace("\n", "\n  ")]
                lines.append(f"  call {names[text]}({', '.join(map(str, places))})")
            found.append(lines)
        return found

    @property
    def is_shared(self) -> bool:
        return any(kernel.is_shared for calls in self.bodies for kernel, _ in calls)

    @property
    def scratch(self) -> Sequence[int]:
        return (len(self.operands) + len(self.results),) if self.bytes else ()

    def work(self, args: Sequence[Buffer]) -> Work:
        traffic = Traffic(args)
        for number, type in enumerate((*self.operands, *self.results)):
            (traffic.read if number < len(self.operands) else traffic.write)(number, type.size)
        return traffic.work(self.flops)

    # What it means ------------------------------------------------------------------------

    def accesses(self) -> Iterator[Access]:
        for number, type in enumerate((*self.operands, *self.results)):
            if type.size:
                yield Access(number, 0, type.size - 1, type.dtype, number >= len(self.operands))
        for number in self.scratch:
            yield Access(number, 0, self.bytes // i64.itemsize - 1, i64, writes=True)

    # LLVM IR ------------------------------------------------------------------------------

    def parameters(self) -> list[tuple[str, str]]:
        return [("ptr", "region"), ("ptr", "pool")] if self.is_shared else []

    def emit_call(self, site: CallSite) -> None:
        site.call([*(site.pool if self.is_shared else ()), *site.args])

    def caller(self, b: FunctionBuilder, args: Sequence[Val]) -> BodyCaller:
        """What writes the calls of bodies, of the arguments of this kernel's function."""
        return BodyCaller(b, self, args)


class BodyCaller:
    """Writes the calls of bodies, whose functions it adds to the module: of equal texts one.

    Attributes:
        args: addresses of the arguments.
    """

    def __init__(self, b: FunctionBuilder, kernel: BodyKernel, args: Sequence[Val]) -> None:
        nobody = Val("ptr", "null")
        self._b = b
        self._pool = list(args[:2]) if kernel.is_shared else [nobody, nobody]
        self.args = args[2:] if kernel.is_shared else args
        self._names: dict[str, str] = {}
        most = 0
        for each, places in (call for calls in kernel.bodies for call in calls):
            text = str(each)
            if text not in self._names:
                self._names[text] = f"{b.name}_{len(self._names)}"
                define_kernel(b.module, self._names[text], each, len(places))
            most = max(most, len(places) if each.regions() else 0)
        self._caller = Caller(b, self._pool[0], self._pool[1], most)

    def call(self, calls: Calls, rounds: int, t: Val | None = None) -> None:
        """Run the kernels of a body, of which there are so many rounds; `t` is the row of this."""
        b = self._b
        seconds = [kernel.seconds(b.target) for kernel, _ in calls]
        ahead = rounds * sum(
            cost for cost, (kernel, _) in zip(seconds, calls, strict=True) if kernel.is_shared
        )
        for (kernel, places), cost in zip(calls, seconds, strict=True):
            given = [self._address(place, t) for place in places]
            before = self._pool if kernel.parameters() else ()
            wake = ahead >= costs.WAKE_SECONDS
            name = self._names[str(kernel)]
            self._caller.call(regions_of(name, kernel), [*before, *given], cost, wake)

    def _address(self, place: Place, t: Val | None) -> Val:
        b = self._b
        address = b.at("i8", self.args[place.arg], place.offset)
        if not place.step:
            return address
        assert t is not None, "there are no rows"
        return b.at("i8", address, b.mul(t, place.step))


def evaluate_calls(calls: Calls, memory: Sequence[Memory], world: World, t: int = 0) -> None:
    """Run the kernels of a body in the interpreter, in the round of row `t`."""
    for kernel, places in calls:
        kernel.evaluate([_seen(memory[place.arg], place, t) for place in places], world)


def seconds_of(calls: Calls, target: Target) -> float:
    """What the kernels of a body take."""
    return sum(kernel.seconds(target) for kernel, _ in calls)


def _seen(memory: Memory, place: Place, t: int) -> Memory:
    """What a kernel of the body sees of an argument in a round."""
    size = place.dtype.itemsize
    data = memory.data
    if data.dtype != place.dtype.numpy:
        data = data.view(np.uint8)[place.offset :]
        return Memory(data[: data.size // size * size].view(place.dtype.numpy))
    return Memory(data, memory.start + (place.offset + t * place.step) // size)
