"""Copies of an operand that lies along several axes, in the order of a product's register tile.

Lanes are consecutive indices of the operand's outer axes. The copy has a row of lanes for each
index of the inner axes. Where lanes are neighbours in memory it is made of loads along them, one
for each run of neighbours; where inner indices are, of square blocks that are transposed in
registers; and else of gathers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from lucid.codegen import costs
from lucid.codegen.emit import memory
from lucid.codegen.llvm.builder import (
    FunctionBuilder,
    Module,
    Val,
    const_lanes,
    i64,
    iota,
    vector,
)
from lucid.codegen.llvm.transposing import shuffles, transpose
from lucid.ir.extents import hint, is_multiple, is_open
from lucid.ir.types import DType

MOST_OFFSET = 1 << 31  # lanes lie less than so many elements from the first one

Walk = tuple[tuple[int, int], ...]
"""Sizes and strides of the axes, outermost first, along which an index runs."""


def joined(walk: Sequence[tuple[int, int]]) -> Walk:
    """The same walk with as few axes as possible, at least one."""
    found: list[tuple[int, int]] = []
    for size, stride in walk:
        if size == 1:
            continue
        if found and found[-1][1] == stride * size:
            found[-1] = found[-1][0] * size, stride
        else:
            found.append((size, stride))
    return tuple(found) or ((1, 1),)


@dataclass(frozen=True, slots=True)
class Lines:
    """Inner indices in blocks whose elements lie within a vector of neighbours.

    Attributes:
        around: the axes that are outside of all blocks. `size`, `stride`: of the one that is cut.
        step: elements of it in a block.
        offsets: where the indices of one of them lie.
    """

    around: Walk
    size: int
    stride: int
    step: int
    offsets: tuple[int, ...]

    def block(self, size: int) -> list[int]:
        """Where the indices of a block of so many elements lie."""
        return [i * self.stride + offset for i in range(size) for offset in self.offsets]

    def blocks(self) -> Iterator[tuple[int, int, list[int]]]:
        """Where equal blocks begin and end on the axis, and what is in each."""
        rest = self.size % self.step
        if is_open(rest):
            yield 0, self.size - rest, self.block(self.step)
            yield self.size - rest, self.size, self.block(1)
            return
        if is_open(self.size) or rest < self.size:
            yield 0, self.size - rest, self.block(self.step)
        if rest:
            yield self.size - rest, self.size, self.block(rest)


def lines_of(inner: Walk, lanes: int, is_cut: bool = False) -> Lines:
    """Cut the inner indices into blocks within so many neighbours, as large as may be.

    Of an outermost axis that is cut by itself some may be missing.
    """
    offsets, axes = [0], [*inner]
    while axes:
        size, stride = axes.pop()
        far = lanes if is_open(stride) else abs(stride) or lanes
        step = max(0, lanes - 1 - (max(offsets) - min(offsets))) // far + 1
        if is_open(size) or step < size or (is_cut and not axes):
            step = step if is_open(size) else min(step, size)
            return Lines(tuple(axes), size, stride, step, tuple(offsets))
        offsets = [i * stride + offset for i in range(size) for offset in offsets]
    return Lines((), 1, 0, 1, tuple(offsets))


@dataclass(frozen=True, slots=True)
class LaneCopy:
    """How an operand is copied.

    Attributes:
        lanes: of a vector. `outer`: the axes that lanes run along.
        aligned: vectors begin at multiples of `lanes` lanes.
    """

    dtype: DType
    element: str
    lanes: int
    outer: Walk
    aligned: bool

    @property
    def runs(self) -> int:
        """Runs of equally distant lanes that a vector may consist of."""
        size = self.outer[-1][0]
        if len(self.outer) == 1 or (self.aligned and is_multiple(size, self.lanes)):
            return 1
        if not is_open(size) and self.aligned and self.lanes % size == 0:
            return self.lanes // size
        return next(n for n in range(self.lanes) if n * size >= self.lanes - 1) + 1

    def way(self, inner: Walk) -> tuple[float, str]:
        """The time of a vector in multiply-adds, and how it is copied."""
        step = abs(self.outer[-1][1])
        ways = [(costs.GATHERED_LANES, "gathered")]
        if step <= 1 or memory.is_near(self.outer[-1][1], self.lanes):
            ways.append((self.runs * (costs.RUN if step <= 1 else costs.NEAR_RUN * step), "along"))
        lines, moved = lines_of(inner, self.lanes), 0
        for first, last, found in lines.blocks():
            instructions = self.lanes + shuffles(self.lanes, _columns(found)) + len(found)
            moved += hint(last - first) // (len(found) // len(lines.offsets)) * instructions
        count = hint(lines.size) * len(lines.offsets)
        ways.append((costs.SHUFFLED * moved / count, "across"))
        return min(ways)


class LaneCopier:
    """Writes copies of an operand into a function.

    Args:
        kept: memory for an i32 for each lane.
    """

    def __init__(self, b: FunctionBuilder, copy: LaneCopy, kept: Val) -> None:
        self.b = b
        self.copy = copy
        self.kept = kept
        self.count: Val | None = None

    def emit(
        self,
        source: Val,
        target: Val,
        first: Val,
        inner: Walk,
        pitch: int,
        count: Val | None = None,
    ) -> None:
        """target[k * pitch + l] = lane first + l of inner index k.

        Behind the last lane that there is, what is copied is any element of the operand.

        Args:
            count: how many elements of the outermost inner axis to copy; None for all.
        """
        _, way = self.copy.way(inner)
        self.count = count
        offsets = self._offsets(first)
        if way == "along":
            self._along(source, target, first, inner, pitch, offsets)
        elif way == "across":
            self._across(source, target, inner, pitch, offsets)
        else:
            self._gathered(source, target, inner, pitch, offsets)

    def _offsets(self, first: Val) -> Val:
        """Where each lane lies, as i32."""
        b, lanes = self.b, self.copy.lanes
        total = prod(size for size, _ in self.copy.outer)
        rest = b.add(b.splat(b.cast("trunc", first, "i32"), lanes), iota("i32", lanes))
        last = b.number(rest.type, total - 1)
        rest = b.select(b.lt(rest, last), rest, last)
        found: Val | None = None
        for number, (size, stride) in reversed([*enumerate(self.copy.outer)]):
            index = rest
            if number:
                rest = b.binary("udiv", index, size)
                index = b.sub(index, b.mul(rest, size))
            part = b.mul(index, stride)
            found = part if found is None else b.add(found, part)
        assert found is not None
        return found

    def _along(
        self, source: Val, target: Val, first: Val, inner: Walk, pitch: int, offsets: Val
    ) -> None:
        b, copy = self.b, self.copy
        size, step = copy.outer[-1]
        type_ = vector(copy.element, copy.lanes)
        starts = b.sub(offsets, const_lanes("i32", [lane * step for lane in range(copy.lanes)]))
        b.store(starts, self.kept)
        pointers, masks = [], []
        for run in range(copy.runs):
            lane = i64(0)
            if run:
                begun = b.mul(b.add(b.binary("udiv", first, size), run), size)
                lane = b.sub(begun, first)
                lane = b.select(b.lt(lane, copy.lanes - 1), lane, i64(copy.lanes - 1))
            start = b.load("i32", b.at("i32", self.kept, lane))
            pointers.append(b.at(copy.element, source, b.cast("sext", start, "i64")))
            masks.append(b.eq(starts, b.splat(start, copy.lanes)))
        is_whole = copy.aligned and copy.runs == 1
        is_whole = is_whole and is_multiple(prod(n for n, _ in copy.outer), copy.lanes)

        def one(pointers: list[Val], to: Val) -> None:
            value: Val | None = None
            for pointer, mask in zip(pointers, masks, strict=True):
                if is_whole:
                    value = memory.load(b, copy.dtype, pointer, copy.lanes, step, None)
                elif value is None:
                    value = memory.load(b, copy.dtype, pointer, copy.lanes, step, mask)
                elif step == 1:
                    value = b.masked_load(type_, pointer, mask, value)
                else:
                    more = memory.load(b, copy.dtype, pointer, copy.lanes, step, mask)
                    value = b.select(mask, more, value)
            assert value is not None
            b.store(value, to)

        self._nest(inner, pointers, target, pitch, one)

    def _across(self, source: Val, target: Val, inner: Walk, pitch: int, offsets: Val) -> None:
        b, copy = self.b, self.copy
        b.store(offsets, self.kept)
        lines, count = lines_of(inner, copy.lanes, self.count is not None), self.count
        blocks: list[tuple[Val | int, Val | int, list[int]]] = [*lines.blocks()]
        if count is not None and not lines.around:
            main = b.sub(count, b.binary("urem", count, lines.step))
            blocks = [(0, main, lines.block(lines.step)), (main, count, lines.block(1))]
            self.count = None
        apart = len(lines.offsets) * pitch

        def one(pointers: list[Val], to: Val) -> None:
            for first, last, places in blocks:
                name = _define_transpose_lines(b.module, copy.element, copy.lanes, places)
                with b.loop(first, last, len(places) // len(lines.offsets)) as loop:
                    at = b.add(b.mul(loop.index, lines.stride), min(places))
                    block = b.at(copy.element, pointers[0], at)
                    place = b.at(copy.element, to, b.mul(loop.index, apart))
                    b.call(name, "void", block, self.kept, place, i64(pitch))

        self._nest(lines.around, [source], target, lines.size * apart, one)

    def _gathered(self, source: Val, target: Val, inner: Walk, pitch: int, offsets: Val) -> None:
        b, copy = self.b, self.copy
        wide = b.cast("sext", offsets, "i64")

        def one(pointers: list[Val], to: Val) -> None:
            places = memory.pointers_at(b, copy.element, pointers[0], wide)
            b.store(memory.gather(b, vector(copy.element, copy.lanes), places, None), to)

        self._nest(inner, [source], target, pitch, one)

    def _nest(
        self,
        inner: Walk,
        pointers: list[Val],
        target: Val,
        pitch: int,
        one: Callable[[list[Val], Val], None],
    ) -> None:
        """Call `one` for each inner index, with all pointers there."""
        if not inner:
            one(pointers, target)
            return
        b, element = self.b, self.copy.element
        (size, stride), rest = inner[0], inner[1:]
        apart = pitch * prod(n for n, _ in rest)
        unrolled = 1
        if not rest:
            unrolled = next(n for n in (4, 3, 2, 1) if is_multiple(size, n))
        ends: list[tuple[Val | int, Val | int, int]] = [(0, size, unrolled)]
        if self.count is not None:
            main = b.sub(self.count, b.binary("urem", self.count, unrolled))
            ends = [(0, main, unrolled)]
            if unrolled > 1:
                ends.append((main, self.count, 1))
            self.count = None  # of the outermost axis
        for low, high, steps in ends:
            with b.loop(low, high, steps) as loop:
                for step in range(steps):
                    index = b.add(loop.index, step) if step else loop.index
                    moved = [b.at(element, p, b.mul(index, stride)) for p in pointers]
                    to = b.at(element, target, b.mul(index, apart))
                    self._nest(rest, moved, to, pitch, one)


def _columns(places: Sequence[int]) -> list[int]:
    """The columns of a square block that begins at the first of these places."""
    return [place - min(places) for place in places]


def _define_transpose_lines(module: Module, element: str, lanes: int, places: Sequence[int]) -> str:
    """Define `void (source, offsets, target, pitch)`.

    target[k * pitch + l] = source[offsets[l] + columns[k]], by loads of neighbours.
    """
    columns = _columns(places)
    name = f"lucid_transpose_lines_{element}{lanes}_{'_'.join(map(str, columns))}"
    if name in module.functions:
        return name
    parameters = [("ptr", "source"), ("ptr", "offsets"), ("ptr", "target"), ("i64", "pitch")]
    with FunctionBuilder(module, name, parameters, internal=True, attributes="noinline") as b:
        source, offsets, target, pitch = b.args
        type_, last = vector(element, lanes), max(columns)
        mask = const_lanes("i1", [lane <= last for lane in range(lanes)])
        lines = []
        for lane in range(lanes):
            offset = b.cast("sext", b.load("i32", b.at("i32", offsets, lane)), "i64")
            place = b.at(element, source, offset)
            is_whole = last == lanes - 1
            lines.append(b.load(type_, place) if is_whole else b.masked_load(type_, place, mask))
        for number, column in enumerate(transpose(b, lines, columns)):
            b.store(column, b.at(element, target, b.mul(pitch, number)))
        b.ret()
    return name
