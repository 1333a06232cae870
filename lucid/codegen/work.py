"""What a kernel has to do at least: the bytes that it moves, and its floating-point operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from lucid.codegen.kernel import (
    AxesKernel,
    CheckKernel,
    ContractKernel,
    HostKernel,
    Inst,
    Kernel,
    LoopKernel,
    SortKernel,
)
from lucid.codegen.regions import Buffer
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


def work_of(kernel: Kernel, args: Sequence[Buffer]) -> Work:
    """The work of one call."""
    traffic = _Traffic(args)
    flops = 0
    if isinstance(kernel, LoopKernel):
        flops = _loop(kernel, traffic)
    elif isinstance(kernel, ContractKernel):
        batch = prod(kernel.batch)
        flops = 2 * batch * kernel.rows * kernel.inner * kernel.columns
        for side, rows in enumerate((kernel.rows * kernel.inner, kernel.inner * kernel.columns)):
            form = (kernel.a, kernel.b)[side]
            traffic.read(kernel.operands[side], rows * prod(kernel.batch[d] for d in form.dims))
        flops += _loop(kernel.body, traffic)
    elif isinstance(kernel, AxesKernel):
        axes = (*kernel.loops, *kernel.inner)
        flops = 2 * prod(axis.size for axis in axes)
        for side, name in enumerate("ab"):
            sizes = (axis.size for axis in axes if getattr(axis, name))
            traffic.read(kernel.operands[side], prod(sizes))
        flops += _loop(kernel.body, traffic)
    elif isinstance(kernel, SortKernel):
        traffic.read(0, prod(kernel.shape) * kernel.length)
        traffic.write(1, prod(kernel.shape) * kernel.length)
    elif isinstance(kernel, CheckKernel):
        traffic.read(0, prod(kernel.shape))
    elif isinstance(kernel, HostKernel):
        for number, type in enumerate((*kernel.operands, *kernel.results)):
            (traffic.read if number < len(kernel.operands) else traffic.write)(number, type.size)
    return Work(traffic.bytes, flops, traffic.reads, traffic.writes)


class _Traffic:
    """Elements read and written, at most the whole of each buffer."""

    def __init__(self, args: Sequence[Buffer]) -> None:
        self._args = args
        self._read = dict.fromkeys(range(len(args)), 0)
        self._written = self._read.copy()

    def read(self, arg: int, elements: int) -> None:
        self._read[arg] = min(self._read[arg] + elements, self._args[arg].size)

    def write(self, arg: int, elements: int) -> None:
        self._written[arg] = min(self._written[arg] + elements, self._args[arg].size)

    @property
    def reads(self) -> tuple[int, ...]:
        return tuple(arg for arg, elements in self._read.items() if elements)

    @property
    def writes(self) -> tuple[int, ...]:
        return tuple(arg for arg, elements in self._written.items() if elements)

    @property
    def bytes(self) -> int:
        return sum(
            (self._read[n] + self._written[n]) * arg.dtype.itemsize
            for n, arg in enumerate(self._args)
        )


def _loop(kernel: LoopKernel, traffic: _Traffic) -> int:
    """Enter what instructions read and write; their operations."""
    flops = 0
    for number, inst in enumerate(kernel.insts):
        dims = kernel.dims[number]
        if inst.op in ("reduce", "scan", "store", "accumulate", "write"):
            dims = dims.union(*(kernel.dims[operand] for operand in inst.operands))
        rounds = prod(kernel.sizes[dim] for dim in dims)
        if inst.has_address:
            assert inst.form is not None
            indexed = inst.op in ("gather", "write")
            elements = rounds if indexed else prod(kernel.sizes[d] for d in inst.form.dims)
            adds = inst.op == "accumulate" or (inst.op == "write" and inst.attributes[-1] == "add")
            if inst.op in ("load", "gather") or adds:
                traffic.read(inst.arg, elements)
            if inst.op not in ("load", "gather"):
                traffic.write(inst.arg, elements)
            flops += rounds if adds and inst.dtype.is_floating_point else 0
        elif _counts(inst):
            flops += rounds
    return flops


def _counts(inst: Inst) -> bool:
    if not inst.dtype.is_floating_point or inst.op in _UNCOUNTED:
        return False
    return inst.op in ("reduce", "scan") or (inst.op in OPS and OPS[inst.op].kind == "map")
