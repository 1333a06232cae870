"""Branches of a graph: the kernels of one body or of another one, as a bool says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lucid.codegen.kernel_ir.kernel import Memory, World
from lucid.codegen.kernels.body import BodyKernel, Calls
from lucid.codegen.llvm.builder import FunctionBuilder, Val
from lucid.codegen.llvm.target import Target


@dataclass(slots=True)
class BranchKernel(BodyKernel):
    """One of two bodies, as the first argument says.

    Attributes:
        then, otherwise: the calls of each.
    """

    then: Calls
    otherwise: Calls

    @property
    def bodies(self) -> Sequence[Calls]:
        return self.then, self.otherwise

    def __str__(self) -> str:
        then, otherwise = self.texts()
        sizes = f"  {self.bytes} bytes, {self.flops} flops"
        return "\n".join([self.header("branch"), sizes, *then, "  else", *otherwise])

    def seconds(self, target: Target) -> float:
        return max(self.seconds_of(calls, target) for calls in self.bodies)

    def evaluate(self, memory: Sequence[Memory], world: World) -> None:
        holds = memory[0].read(np.arange(1))[0]
        self.evaluate_calls(self.then if holds else self.otherwise, memory, world)

    def emit(self, b: FunctionBuilder, args: Sequence[Val]) -> None:
        caller = self.caller(b, args)
        with b.if_else(b.load_bool(caller.args[0])) as branch:
            with branch.then():
                caller.call(self.then, 1)
            with branch.otherwise():
                caller.call(self.otherwise, 1)
