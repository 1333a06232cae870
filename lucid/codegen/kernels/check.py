"""Checks of indices: whether all of them lie in a range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from lucid.codegen import costs
from lucid.codegen.emit import lowering
from lucid.codegen.emit.lines import over_lines
from lucid.codegen.kernel_ir.affine import AffineExpr
from lucid.codegen.kernel_ir.instruction import print_form
from lucid.codegen.kernel_ir.kernel import Access, CallSite, Effect, Kernel, Memory, Origins, World
from lucid.codegen.kernel_ir.origins import moved
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.kernel_ir.work import Traffic, Work
from lucid.codegen.kernels.evaluation import form_values, range_of
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const, const_lanes, i64, vector
from lucid.codegen.llvm.target import Target
from lucid.ir.errors import IndexOutOfRangeError
from lucid.ir.extents import hint, is_open
from lucid.ir.types import DType, Shape


@dataclass(slots=True)
class CheckKernel(Kernel):
    """Whether all indices lie in low <= i < high; else the record gets node and index."""

    dtype: DType
    shape: Shape
    form: AffineExpr
    low: int
    high: int

    @property
    def effect(self) -> Effect:
        return "check"

    @property
    def kind(self) -> str:
        return "check"

    def __str__(self) -> str:
        dims = ", ".join(f"i{dim} in {size}" for dim, size in enumerate(self.shape))
        place = f"a0[{print_form(self.form)}] : {self.dtype.name}"
        return f"check({dims}) {self.low} <= {place} < {self.high}"

    def work(self, args: Sequence[Buffer]) -> Work:
        traffic = Traffic(args)
        traffic.read(0, prod(self.shape))
        return traffic.work(0)

    def seconds(self, target: Target) -> float:
        return float(hint(prod(self.shape))) / costs.VECTOR_INSTRUCTIONS

    def relocate(self) -> tuple[Kernel, Origins]:
        origin = self.form.offset
        return replace(self, form=moved(self.form, origin)), {0: origin}

    def accesses(self) -> Iterator[Access]:
        if 0 not in self.shape:
            yield Access(0, *range_of(self.form, self.shape), self.dtype)

    def evaluate(self, memory: Sequence[Memory], world: World) -> None:
        found = memory[0].read(form_values(self.form, self.shape)).ravel()
        wrong = found[(found < self.low) | (found >= self.high)]
        if wrong.size:
            raise IndexOutOfRangeError(
                f"index {wrong[0]} is out of range, from {self.low} to {self.high - 1}"
            )

    def parameters(self) -> list[tuple[str, str]]:
        return [("ptr", "record"), ("i64", "code")]

    def emit(self, b: FunctionBuilder, args: Sequence[Val]) -> None:
        emit_check(b, self, args)

    def emit_call(self, site: CallSite) -> None:
        site.call([site.record, site.next_check(), *site.args])
        site.leave_if_recorded()


def emit_check(b: FunctionBuilder, kernel: CheckKernel, args: Sequence[Val]) -> None:
    """Write 1 + `code`, the index, into the record at the first one that is out of range.

    Args: record, code (i64), indices. Later wrong indices leave the record as it is. A line is
    looked at by vectors, and only searched when there is a wrong index in it.
    """
    record, code, indices = args
    element = lowering.MEMORY[kernel.dtype]
    step = kernel.form.coefficient(len(kernel.shape) - 1)
    vectors = bool(kernel.shape) and step == 1

    def search(place: Val) -> None:
        index = b.cast("sext", b.load(element, place), "i64")
        with b.if_(_is_outside(b, index, kernel)):
            first = b.eq(b.load("i64", record), 0)
            with b.if_(first):
                b.store(code, record)
                b.store(index, b.at("i64", record, 1))

    def line(offsets: list[Val]) -> None:
        start, size = b.at(element, indices, offsets[0]), kernel.shape[-1]
        lanes = b.target.lanes(element)
        main = size - size % lanes
        wrong = const(vector("i1", lanes), 0)
        if is_open(main) or main:
            with b.loop(0, main, lanes, [wrong]) as loop:
                found = b.load(vector(element, lanes), b.at(element, start, loop.index))
                loop.carry(b.or_(loop.carried[0], _is_outside(b, found, kernel)))
            wrong = loop.results[0]
        if is_open(main):
            mask = b.tail_mask(lanes, i64(size - main))
            found = b.masked_load(vector(element, lanes), b.at(element, start, main), mask)
            outside = _is_outside(b, found, kernel)
            wrong = b.or_(wrong, b.and_(outside, mask))
        elif main < size:
            mask = const_lanes("i1", [lane < size - main for lane in range(lanes)])
            found = b.masked_load(vector(element, lanes), b.at(element, start, main), mask)
            wrong = b.or_(wrong, _is_outside(b, found, kernel))
        with b.if_(b.any(wrong)), b.loop(0, size) as loop:
            search(b.at(element, start, loop.index))

    if vectors:
        over_lines(b, kernel.shape[:-1], [kernel.form], line)
    else:
        over_lines(b, kernel.shape, [kernel.form], lambda at: search(b.at(element, indices, at[0])))


def _is_outside(b: FunctionBuilder, index: Val, kernel: CheckKernel) -> Val:
    """Whether low <= index < high is wrong."""
    return b.or_(b.ge(index, kernel.high), b.lt(index, kernel.low))
