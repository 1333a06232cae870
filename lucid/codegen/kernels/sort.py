"""Sorting kernels: stable orders of lines, by numbers that stand for the elements.

Each element becomes an *entry*: above, an unsigned number that has the wanted order (NaN greatest,
the two zeros equal); below, in 32 bits, its position. So entries are unique, and any order of them
is a stable one. Long lines are sorted by their bytes; short ones by counting, for each entry, how
many are less; where only the first few are wanted, the least entry is looked for again and again.

Reference: D. Knuth, "The Art of Computer Programming", volume 3, 5.2 and 5.2.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from lucid.codegen import costs
from lucid.codegen.emit.lines import Cut, over_lines, part_of
from lucid.codegen.emit.lowering import MEMORY
from lucid.codegen.kernel_ir.affine import AffineExpr, form
from lucid.codegen.kernel_ir.instruction import print_form
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
from lucid.codegen.kernel_ir.origins import moved
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.kernel_ir.work import Traffic, Work
from lucid.codegen.kernels.evaluation import form_values, range_of
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const, iota, vector
from lucid.codegen.llvm.target import Target
from lucid.codegen.threads.parallel import wanted_parts
from lucid.ir.extents import ceil_div, hint, is_open
from lucid.ir.op import OPS
from lucid.ir.types import DType, Shape, i64

_DIGITS = 256
_POSITION_BITS = 32
_PADDING = 16


@dataclass(slots=True)
class SortKernel(Kernel):
    """Sort lines: a0 at `source` is read with `stride`, a1 at `target` is written; a2 is scratch.

    Attributes:
        keeps: "values" or, for argsort, "positions".
        kept: how many of each line, from its beginning, are wanted.
        parts: how the lines are cut, along one of their dims.
    """

    dtype: DType
    shape: Shape
    length: int
    source: AffineExpr
    source_stride: int
    target: AffineExpr
    target_stride: int
    descending: bool
    keeps: str
    kept: int
    parts: Partition | None = None

    @property
    def kind(self) -> str:
        return "sort"

    def __str__(self) -> str:
        dims = ", ".join(f"i{dim} in {size}" for dim, size in enumerate(self.shape))
        order = "descending" if self.descending else "ascending"
        first = f" first {self.kept}" if self.kept < self.length else ""
        return (
            f"sort({dims}) {order} {self.length} {self.dtype.name} {self.keeps}{first}: "
            f"a0[{print_form(self.source)} + k*{self.source_stride}] -> "
            f"a1[{print_form(self.target)} + k*{self.target_stride}]{self.parts or ''}"
        )

    @property
    def scratch(self) -> Sequence[int]:
        return (2,)

    def work(self, args: Sequence[Buffer]) -> Work:
        traffic = Traffic(args)
        traffic.read(0, prod(self.shape) * self.length)
        traffic.write(1, prod(self.shape) * self.length)
        return traffic.work(0)

    def seconds(self, target: Target) -> float:
        """Passes over entries; to seek a few, or to count, takes vectors for each."""
        way, length = method(self), self.length
        rounds = 2.0 + passes(self)
        if way != "digits":
            rounds = 2.0 + hint(length if way == "count" else self.kept) / 12
        entries: int = hint(prod(self.shape) * length)
        return entries * rounds * costs.SORT_STEP_SECONDS

    def partition(self, args: list[Buffer], new_temp: NewTemp, target: Target) -> list[Call]:
        """Cut the lines, each part with memory of its own."""
        wanted = wanted_parts(self.seconds(target))
        if wanted > 1 and self.shape:
            dim = max(range(len(self.shape)), key=lambda dim: min(hint(self.shape[dim]), wanted))
            lines = hint(self.shape[dim])
            size = ceil(lines / min(wanted, lines))
            count, own = ceil_div(self.shape[dim], size), args[-1].size
            args[-1].size *= count
            self.parts = Partition(dim, size, count, ((2, own),))
        return [(self, args)]

    def relocate(self) -> tuple[Kernel, Origins]:
        origins = {0: self.source.offset, 1: self.target.offset}
        source, target = (moved(x, x.offset) for x in (self.source, self.target))
        return replace(self, source=source, target=target), origins

    def accesses(self) -> Iterator[Access]:
        if 0 in self.shape or not self.length:
            return
        result = self.dtype if self.keeps == "values" else i64
        source, target = self._lines(self.length), self._lines(self.kept)
        yield Access(0, *range_of(source[0], source[2]), self.dtype)
        if self.kept:
            yield Access(1, *range_of(target[1], target[2]), result, writes=True)
        blocks = 1 if self.parts is None else self.parts.count
        yield Access(2, 0, blocks * scratch_elements(self) - 1, i64, writes=True)

    def problems(self) -> Iterator[str]:
        if not 0 <= self.kept <= self.length:
            yield f"keeps {self.kept} of {self.length} elements"
        if self.parts is not None:
            yield from self.parts.problems(self.shape)

    def evaluate(self, memory: Sequence[Memory], world: World) -> None:
        source, _, shape = self._lines(self.length)
        lines = memory[0].read(form_values(source, shape))
        op = OPS["argsort" if self.keeps == "positions" else "sort"]
        order = op.evaluate(lines, axis=len(self.shape), descending=self.descending)
        _, target, shape = self._lines(self.kept)
        places = form_values(target, shape)
        if self.parts is None:
            memory[1].write(places, order[..., : self.kept])
            return
        for low, high in self.parts.ranges(self.shape[self.parts.dim]):
            taken = [slice(None)] * self.parts.dim + [slice(low, high)]
            memory[1].write(places[tuple(taken)], np.asarray(order[tuple(taken)])[..., : self.kept])

    def _lines(self, length: int) -> tuple[AffineExpr, AffineExpr, Shape]:
        """Where elements are read and written over the dims and the places in a line."""
        dim = len(self.shape)
        source, target = (
            form(place.offset, [*place.terms, (dim, stride)])
            for place, stride in (
                (self.source, self.source_stride),
                (self.target, self.target_stride),
            )
        )
        return source, target, (*self.shape, length)

    def emit(self, b: FunctionBuilder, args: Sequence[Val]) -> None:
        emit_sort(b, self, args)

    def emit_part(
        self, b: FunctionBuilder, region: str, args: list[Val], part: Val, own: Val
    ) -> None:
        assert self.parts is not None
        for arg, size in self.parts.partials:
            args[arg] = b.at("i64", args[arg], b.mul(own, size))
        emit_sort(b, self, args, part_of(b, self.parts, self.shape, part))


def scratch_elements(kernel: SortKernel) -> int:
    """Memory for one line, in i64: entries twice, and counts of digits or ranks."""
    entries = (kernel.length + _PADDING) * (2 if is_wide(kernel) else 1)
    total = 2 * entries + max(kernel.length + _PADDING, passes(kernel) * _DIGITS // 2)
    return -(-total // 8) * 8


def is_wide(kernel: SortKernel) -> bool:
    """Whether an element fills the 64 bits that an entry of a narrow one has for everything."""
    return kernel.dtype.itemsize == 8


def passes(kernel: SortKernel) -> int:
    """The bytes of an element."""
    return kernel.dtype.itemsize


def method(kernel: SortKernel) -> str:
    """How the lines are sorted: "count", "seek" or "digits"."""
    if kernel.length <= (costs.COUNTED_WIDE if is_wide(kernel) else costs.COUNTED):
        return "count"
    return "seek" if kernel.kept <= costs.SOUGHT and not is_wide(kernel) else "digits"


def emit_sort(
    b: FunctionBuilder, kernel: SortKernel, args: Sequence[Val], cut: Cut | None = None
) -> None:
    """Sort the lines. Args: source, target, scratch."""
    forms: list[AffineExpr] = [kernel.source, kernel.target]
    over_lines(b, kernel.shape, forms, lambda at: _Line(b, kernel, args, at).sort(), cut=cut)


class _Line:
    """One line being sorted."""

    def __init__(
        self, b: FunctionBuilder, kernel: SortKernel, args: Sequence[Val], at: Sequence[Val]
    ) -> None:
        self.b = b
        self.kernel = kernel
        self.count = kernel.length
        self.memory = MEMORY[kernel.dtype]
        self.source, self.target = (
            b.at(element, pointer, offset)
            for element, pointer, offset in zip(
                (self.memory, self.memory if kernel.keeps == "values" else "i64"),
                args,
                at,
                strict=False,
            )
        )
        self.entry = "i128" if is_wide(kernel) else "i64"
        size = (kernel.length + _PADDING) * (2 if is_wide(kernel) else 1)
        self.entries, self.sorted = args[2], b.at("i64", args[2], size)
        self.counts = b.at("i64", args[2], 2 * size)
        self.lanes = 1 if is_wide(kernel) else b.target.lanes("i64")

    def sort(self) -> None:
        self._enter()
        ways = {"count": self._count, "seek": self._seek, "digits": self._by_digits}
        self._leave(ways[method(self.kernel)]())

    # Entries ----------------------------------------------------------------------------

    def _enter(self) -> None:
        """Write the entries, and behind them some that are greater than all."""
        b, count = self.b, self.count
        lanes = self.lanes if self.kernel.source_stride == 1 else 1
        main = count - count % lanes
        for low, high, width in ((0, main, lanes), (main, count, 1)):
            if not is_open(high - low) and low == high:
                continue
            with b.loop(low, high, width) as loop:
                at = b.mul(loop.index, self.kernel.source_stride)
                raw = b.load(vector(self.memory, width), b.at(self.memory, self.source, at))
                place = b.add(b.splat(loop.index, width), iota("i64", width))
                number = b.cast("zext", self._number(raw), self.entry)
                entry = b.or_(b.shl(number, _POSITION_BITS), b.cast("zext", place, self.entry))
                b.store(entry, b.at(self.entry, self.entries, loop.index))
        if method(self.kernel) != "digits":
            self._fill(count + -count % self.lanes)

    def _fill(self, high: int) -> None:
        """Write entries behind those that there are."""
        b = self.b

        def write(behind: Val | int) -> None:
            b.store(const(self.entry, -1), b.at(self.entry, self.entries, behind))

        if not is_open(high):
            for behind in range(self.count, high):
                write(behind)
            return
        with b.loop(self.count, high) as loop:
            write(loop.index)

    def _number(self, raw: Val) -> Val:
        """An unsigned number in the order of the elements."""
        b, dtype = self.b, self.kernel.dtype
        if dtype.kind == "bool":
            number = b.cast("zext", b.ne(raw, 0), "i8")
        elif dtype.kind == "float":
            bits = b.bits(b.add(raw, 0.0))
            high = dtype.itemsize * 8 - 1
            flipped = b.or_(b.ashr(bits, high), 1 << high)
            number = b.select(b.is_nan(raw), const(bits.type, -1), b.xor(bits, flipped))
        else:
            number = b.xor(raw, (1 << (dtype.itemsize * 8 - 1)) if dtype.is_signed else 0)
        return b.not_(number) if self.kernel.descending else number

    def _leave(self, ordered: Val) -> None:
        """Store what the first entries stand for."""
        b, kernel = self.b, self.kernel
        with b.loop(0, kernel.kept) as loop:
            entry = b.load(self.entry, b.at(self.entry, ordered, loop.index))
            low = b.cast("trunc", entry, "i64")
            value = b.and_(low, (1 << _POSITION_BITS) - 1)
            element = "i64"
            if kernel.keeps == "values":
                element = self.memory
                at = b.mul(value, kernel.source_stride)
                value = b.load(element, b.at(element, self.source, at))
            at = b.mul(loop.index, kernel.target_stride)
            b.store(value, b.at(element, self.target, at))

    # Ways to sort -----------------------------------------------------------------------

    def _count(self) -> Val:
        """The place of an entry is the number of those that are less."""
        b, lanes = self.b, self.lanes
        type_ = vector(self.entry, lanes)
        with b.loop(0, self.count + -self.count % lanes, lanes) as loop:
            own = b.load(type_, b.at(self.entry, self.entries, loop.index))
            with b.loop(0, self.count, 1, [const(vector("i64", lanes), 0)]) as others:
                other = b.load(self.entry, b.at(self.entry, self.entries, others.index))
                less = b.compare("ult", b.splat(other, lanes), own)
                others.carry(b.add(others.carried[0], b.cast("zext", less, "i64")))
            b.store(others.results[0], b.at("i64", self.counts, loop.index))
        with b.loop(0, self.count) as loop:
            place = b.load("i64", b.at("i64", self.counts, loop.index))
            entry = b.load(self.entry, b.at(self.entry, self.entries, loop.index))
            b.store(entry, b.at(self.entry, self.sorted, place))
        return self.sorted

    def _seek(self) -> Val:
        """Find the least entry that is not below a bound; the next bound is one above it."""
        b, lanes = self.b, self.lanes
        type_ = vector(self.entry, lanes)
        most = const(type_, -1)
        with b.loop(0, self.kernel.kept, 1, [const(self.entry, 0)]) as found:
            bound = b.splat(found.carried[0], lanes)
            with b.loop(0, self.count + -self.count % lanes, lanes, [most]) as loop:
                entry = b.load(type_, b.at(self.entry, self.entries, loop.index))
                entry = b.select(b.compare("uge", entry, bound), entry, most)
                loop.carry(self._lesser(loop.carried[0], entry))
            least = b.reduce(loop.results[0], self._lesser)
            b.store(least, b.at(self.entry, self.sorted, found.index))
            found.carry(b.add(least, 1))
        return self.sorted

    def _lesser(self, x: Val, y: Val) -> Val:
        return self.b.intrinsic("umin", x, y)

    def _by_digits(self) -> Val:
        """Distribute the entries by each byte, from the last to the first."""
        b, rounds = self.b, passes(self.kernel)
        width = b.target.lanes("i32")
        with b.loop(0, rounds * _DIGITS, width) as loop:
            b.store(const(vector("i32", width), 0), b.at("i32", self.counts, loop.index))
        with b.loop(0, self.count) as loop:
            entry = b.load(self.entry, b.at(self.entry, self.entries, loop.index))
            for number in range(rounds):
                place = self._count_of(entry, number)
                b.store(b.add(b.load("i32", place), 1), place)
        here, there = self.entries, self.sorted
        for number in range(rounds):
            # Where all have the same byte nothing moves.
            same = b.load("i32", self._count_of(b.load(self.entry, here), number))
            with b.if_else(b.ne(same, self.count)) as branch:
                with branch.then():
                    self._distribute(here, there, number)
                with branch.otherwise():
                    pass
            here, there = branch.merge(there, here), branch.merge(here, there)
        return here

    def _count_of(self, entry: Val, number: int) -> Val:
        """The address of the count of an entry's byte."""
        b = self.b
        digit = b.cast("trunc", b.lshr(entry, _POSITION_BITS + 8 * number), "i64")
        return b.at("i32", self.counts, b.add(b.and_(digit, _DIGITS - 1), number * _DIGITS))

    def _distribute(self, here: Val, there: Val, number: int) -> None:
        b = self.b
        first = number * _DIGITS
        with b.loop(first, first + _DIGITS, 1, [const("i32", 0)]) as loop:
            place = b.at("i32", self.counts, loop.index)
            size = b.load("i32", place)
            b.store(loop.carried[0], place)
            loop.carry(b.add(loop.carried[0], size))
        with b.loop(0, self.count) as loop:
            entry = b.load(self.entry, b.at(self.entry, here, loop.index))
            place = self._count_of(entry, number)
            to = b.load("i32", place)
            b.store(b.add(to, 1), place)
            b.store(entry, b.at(self.entry, there, b.cast("zext", to, "i64")))
