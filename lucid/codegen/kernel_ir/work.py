"""What a kernel has to do at least: the bytes that it moves, and its floating-point operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from lucid.codegen.kernel_ir.instruction import EFFECTS, Inst
from lucid.codegen.kernel_ir.nest import LoopNest
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.ir.op import OPS

_UNCOUNTED = ("where", "cast")  # of the elementwise ops: they only choose or convert


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel's work.

    Attributes:
        bytes: of the elements that it reads and of those that it writes, each counted once.
        flops: operations on floats, one for each element of an op's result, exp or add alike; a
            product has a multiplication and an addition for each pair of factors.
        reads, writes: numbers of the arguments that it reads, and writes.
    """

    bytes: int
    flops: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]


class Traffic:
    """Elements read and written, at most the whole of each buffer."""

    def __init__(self, args: Sequence[Buffer]) -> None:
        self._args = args
        self._read = dict.fromkeys(range(len(args)), 0)
        self._written = self._read.copy()

    def read(self, arg: int, elements: int) -> None:
        self._read[arg] = min(self._read[arg] + elements, self._args[arg].size)

    def write(self, arg: int, elements: int) -> None:
        self._written[arg] = min(self._written[arg] + elements, self._args[arg].size)

    def work(self, flops: int) -> Work:
        """What was entered, with so many operations."""
        counts = self._read, self._written
        reads, writes = (tuple(n for n, elements in x.items() if elements) for x in counts)
        moved = sum(
            (self._read[n] + self._written[n]) * arg.dtype.itemsize
            for n, arg in enumerate(self._args)
        )
        return Work(moved, flops, reads, writes)

    def nest(self, nest: LoopNest) -> int:
        """Enter what instructions read and write; return their operations."""
        flops = 0
        for number, inst in enumerate(nest.insts):
            dims = nest.dims[number]
            if inst.op in ("reduce", "scan", *EFFECTS):
                dims = dims.union(*(nest.dims[operand] for operand in inst.operands))
            rounds = prod(nest.sizes[dim] for dim in dims)
            if inst.has_address:
                indexed = inst.op in ("gather", "write")
                elements = rounds if indexed else prod(nest.sizes[d] for d in inst.at.dims)
                if inst.reads_memory:
                    self.read(inst.arg, elements)
                if inst.op in EFFECTS:
                    self.write(inst.arg, elements)
                flops += rounds if inst.adds and inst.dtype.is_floating_point else 0
            elif _counts(inst):
                flops += rounds
        return flops


def _counts(inst: Inst) -> bool:
    if not inst.dtype.is_floating_point or inst.op in _UNCOUNTED:
        return False
    return inst.op in ("reduce", "scan") or (inst.op in OPS and OPS[inst.op].kind == "map")
