"""Loop nests as kernels: maps, reductions, scans, scatters and copies.

They are cut for threads along a kept dim. Reductions to less than that become several kernels,
which fold fixed blocks first (`blocks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lucid.codegen import costs
from lucid.codegen.emit.lines import part_of
from lucid.codegen.emit.loops import LoopEmitter
from lucid.codegen.emit.lowering import MEMORY
from lucid.codegen.emit.sweep import SweepEmitter, is_swept
from lucid.codegen.emit.turned import TurnedEmitter
from lucid.codegen.kernel_ir.kernel import (
    Access,
    Call,
    Kernel,
    Memory,
    NewTemp,
    Origins,
    Partition,
    World,
)
from lucid.codegen.kernel_ir.nest import LoopNest
from lucid.codegen.kernel_ir.origins import relocated
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.kernel_ir.timing import nest_seconds
from lucid.codegen.kernel_ir.work import Traffic, Work
from lucid.codegen.kernels.evaluation import evaluate_nest, nest_accesses, nest_problems
from lucid.codegen.llvm.builder import FunctionBuilder, Val
from lucid.codegen.llvm.target import Target
from lucid.codegen.threads.parallel import best_cut, wanted_parts
from lucid.codegen.threads.split_reduction import blocked
from lucid.ir.extents import hint


@dataclass(slots=True)
class LoopKernel(Kernel):
    """A loop nest, and how threads share it."""

    body: LoopNest
    parts: Partition | None = None

    @property
    def kind(self) -> str:
        ops = {inst.op for inst in self.body.insts}
        if "write" in ops or "accumulate" in ops:
            return "scatter"
        if "scan" in ops:
            return "scan"
        if self.body.reduced:
            return "reduce"
        return "map" if ops - {"load", "store", "const", "index"} else "copy"

    def __str__(self) -> str:
        return self.body.text(str(self.parts or ""))

    def work(self, args: Sequence[Buffer]) -> Work:
        traffic = Traffic(args)
        return traffic.work(traffic.nest(self.body))

    def seconds(self, target: Target) -> float:
        return nest_seconds(self.body, self.body.lanes)

    def partition(self, args: list[Buffer], new_temp: NewTemp, target: Target) -> list[Call]:
        nest = self.body
        wanted = 1 if 0 in nest.sizes else wanted_parts(self.seconds(target))
        if wanted == 1:
            return [(self, args)]
        parts = best_cut(nest.sizes, nest.free_dims(), self._unit, wanted)
        if parts is None or hint(parts.count) < min(wanted, costs.LEAST_PARTS):
            dims = range(len(nest.kept), len(nest.sizes))
            inner = best_cut(nest.sizes, dims, self._unit, wanted)
            if inner is not None and (parts is None or hint(inner.count) > hint(parts.count)):
                several = blocked(nest, args, inner, new_temp)
                if several:
                    return [(LoopKernel(body, cut), given) for body, cut, given in several]
        self.parts = parts
        return [(self, args)]

    def _unit(self, dim: int) -> int:
        """Values of a dim that stay together: vectors, and rounds of several accumulators."""
        nest = self.body
        if dim == nest.vector:
            if dim < len(nest.kept):
                return nest.lanes * (costs.SWEPT_VECTORS if is_swept(nest) else 1)
            return nest.lanes * 4
        if dim < len(nest.kept):
            return nest.lanes if dim == nest.vector - 1 and nest.turned() else 1
        return costs.SWEPT_ROWS

    def relocate(self) -> tuple[Kernel, Origins]:
        origins: Origins = {}
        return LoopKernel(relocated(self.body, origins), self.parts), origins

    def accesses(self) -> Iterator[Access]:
        return nest_accesses(self.body, self.parts)

    def problems(self) -> Iterator[str]:
        yield from nest_problems(self.body)
        if self.parts is not None:
            is_vector = self.parts.dim == self.body.vector
            yield from self.parts.problems(self.body.sizes, self.body.lanes if is_vector else 1)
            own = {arg for arg, _ in self.parts.partials}
            for inst in self.body.effects:
                if inst.arg not in own and not self.body.is_apart(inst, self.parts.dim):
                    dim, arg = self.parts.dim, inst.arg
                    yield f"is cut along i{dim}: parts of it store the same elements of a{arg}"

    def evaluate(self, memory: Sequence[Memory], world: World) -> None:
        if self.parts is None:
            evaluate_nest(self.body, memory)
            return
        ranges = self.parts.ranges(self.body.sizes[self.parts.dim])
        for number, (low, high) in enumerate(ranges):
            own = list(memory)
            for arg, size in self.parts.partials:
                own[arg] = Memory(own[arg].data, own[arg].start + number * size)
            evaluate_nest(self.body, own, cut=(self.parts.dim, low, high))

    def emit(self, b: FunctionBuilder, args: Sequence[Val]) -> None:
        self._emitter(b, args).run()

    def emit_part(
        self, b: FunctionBuilder, region: str, args: list[Val], part: Val, own: Val
    ) -> None:
        assert self.parts is not None
        for arg, size in self.parts.partials:
            start = b.mul(part, size)
            args[arg] = b.at(MEMORY[self.body.args[arg]], args[arg], start)
        emitter = self._emitter(b, args)
        emitter.cut = part_of(b, self.parts, self.body.sizes, part)
        emitter.run()

    def _emitter(self, b: FunctionBuilder, args: Sequence[Val]) -> LoopEmitter:
        if self.body.turned():
            return TurnedEmitter(b, self.body, args)
        return (SweepEmitter if is_swept(self.body) else LoopEmitter)(b, self.body, args)
