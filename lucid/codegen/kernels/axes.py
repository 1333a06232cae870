"""Contractions over any axes, with what follows them: tiles of accumulators around inner loops.

Every element is summed in the order of the inner axes (of dot products, lane by lane and block by
block): the result depends on neither tiles nor threads.

Reference: J. Zhang, F. Franchetti and T. M. Low, "High performance zero-memory overhead direct
convolutions", 2018.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from lucid.codegen import costs
from lucid.codegen.contraction.axes import Axis, Blocking, cut_axis, inner_block, unrolled
from lucid.codegen.emit import lowering, memory
from lucid.codegen.emit.insts import InstEmitter
from lucid.codegen.emit.lines import part_of
from lucid.codegen.kernel_ir.affine import AffineExpr, form
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
from lucid.codegen.kernel_ir.timing import nest_seconds, peak
from lucid.codegen.kernel_ir.work import Traffic, Work
from lucid.codegen.kernels.evaluation import (
    contracted,
    evaluate_nest,
    form_values,
    nest_accesses,
    nest_problems,
    range_of,
)
from lucid.codegen.kernels.loop import LoopKernel
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const, const_lanes, i64, vector
from lucid.codegen.llvm.target import Target
from lucid.codegen.threads.parallel import best_cut, wanted_parts
from lucid.codegen.threads.split_reduction import stored_parts, summed
from lucid.ir.extents import hint, is_open
from lucid.ir.strides import contiguous_strides
from lucid.ir.types import Shape

Pair = tuple[Val, Val]


@dataclass(slots=True)
class AxesKernel(Kernel):
    """A contraction over any axes, and instructions for each element of the result.

    The dims of `body` are `loops`, whose sizes it has; instruction 0 is the product.

    Attributes:
        loops: axes of the result, outermost first. `steps`: elements of each in a tile.
        inner: axes that are summed over, outermost first.
        vector: position in `loops` of the axis of the lanes; -1 when it is the last inner one.
        operands: numbers of the arguments that a and b are. `offsets`: where they begin.
        block: elements of the first inner axis that all tiles go through before the next ones,
            while sums wait in the last argument; 0 for all of them at once.
        parts: what threads share; None if the product is too small.
    """

    body: LoopNest
    loops: tuple[Axis, ...]
    steps: tuple[int, ...]
    inner: tuple[Axis, ...]
    vector: int
    lanes: int
    operands: tuple[int, int]
    offsets: tuple[int, int]
    block: int = 0
    parts: Partition | None = None

    @property
    def kind(self) -> str:
        return "contract"

    def __str__(self) -> str:
        lines = [f"contract over axes, {self.lanes} lanes{self.parts or ''}:"]
        for number, (axis, step) in enumerate(zip(self.loops, self.steps, strict=True)):
            lanes = ", lanes" if number == self.vector else ""
            tile = f" step {step}" if step > 1 else ""
            lines.append(f"  {axis.kind} i{number} in {axis.size}{tile}{lanes}")
        for number, axis in enumerate(self.inner):
            block = f" in blocks of {self.block}" if self.block and not number else ""
            lines.append(f"  inner k{number} in {axis.size}{block}")
        for operand, offset, name in zip(self.operands, self.offsets, "ab", strict=True):
            terms = [f"i{n}*{getattr(axis, name)}" for n, axis in enumerate(self.loops)]
            terms += [f"k{n}*{getattr(axis, name)}" for n, axis in enumerate(self.inner)]
            kept = [term for term in terms if not term.endswith("*0")]
            lines.append(f"  {name}: a{operand}[{' + '.join([*kept, str(offset)])}]")
        return "\n".join([*lines, str(self.body)])

    @property
    def scratch(self) -> Sequence[int]:
        return (len(self.body.args) - 1,) if self.block else ()

    def work(self, args: Sequence[Buffer]) -> Work:
        traffic, axes = Traffic(args), (*self.loops, *self.inner)
        flops = 2 * prod(axis.size for axis in axes)
        for side, name in enumerate("ab"):
            sizes = (axis.size for axis in axes if getattr(axis, name))
            traffic.read(self.operands[side], prod(sizes))
        return traffic.work(flops + traffic.nest(self.body))

    def seconds(self, target: Target) -> float:
        dtype = self.body.args[0]
        rounds = float(hint(prod(axis.size for axis in (*self.loops, *self.inner))))
        filled = self.lanes / target.lanes(lowering.ELEMENTS[dtype])
        product = 2.0 * rounds / (peak(dtype, target) * max(filled * costs.SMALL_TILE_FLOPS, 0.1))
        return product + nest_seconds(self.body, self.lanes)

    def partition(self, args: list[Buffer], new_temp: NewTemp, target: Target) -> list[Call]:
        """Cut a loop over the result, by whole tiles."""
        wanted, is_whole = self._cut(target), len(self.body.free_dims()) == len(self.loops)
        count = 1 if self.parts is None else hint(self.parts.count)
        if count < min(wanted, costs.LEAST_PARTS) and is_whole:
            return self._along_inner(args, new_temp, target) or [(self, args)]
        return [(self, args)]

    def _cut(self, target: Target) -> int:
        """Cut it by whole tiles, and say how many parts are wanted."""
        wanted, sizes = wanted_parts(self.seconds(target)), self.body.sizes
        if wanted > 1 and 0 not in sizes:
            dims = self.body.free_dims()
            self.parts = best_cut(sizes, dims, self.steps.__getitem__, wanted)
        return wanted

    def _along_inner(self, args: list[Buffer], new_temp: NewTemp, target: Target) -> list[Call]:
        """Products of a part of the inner indices each, and their sum; none if these are few."""
        is_dot = self.vector < 0 and self.lanes > 1
        cut = cut_axis(self.inner, 2 * costs.LEAST_PARTS, whole=int(is_dot))
        if cut is None:
            return []
        batch, inner = cut
        loops = tuple(replace(x, dim=n) for n, x in enumerate((batch, *self.loops)))
        steps, vector = (1, *self.steps), self.vector + 1 if self.vector >= 0 else -1
        blocking = Blocking(loops, steps, inner, vector, self.lanes, swapped=False)
        dtype = self.body.args[0]
        block = inner_block(blocking, dtype.itemsize)
        body = stored_parts(self.body, batch.size, vector, (dtype,) if block else ())
        partial, *waiting = (new_temp(dtype, prod(body.sizes)) for _ in body.args[2:])
        given = [args[self.operands[0]], args[self.operands[1]], partial, *waiting]
        found = replace(self, body=body, loops=loops, steps=steps, inner=inner, vector=vector)
        found.operands, found.block, found.parts = (0, 1), block, None
        found._cut(target)
        nest, rest = summed(self.body, args, partial, batch.size, target)
        return [(found, given), *LoopKernel(nest).partition(rest, new_temp, target)]

    def relocate(self) -> tuple[Kernel, Origins]:
        origins: Origins = {}
        pairs = list(zip(self.operands, self.offsets, strict=True))
        x, y = (offset - origins.setdefault(arg, offset) for arg, offset in pairs)
        return replace(self, offsets=(x, y), body=relocated(self.body, origins)), origins

    def accesses(self) -> Iterator[Access]:
        if 0 in self.body.sizes:
            return
        for arg, (place, sizes) in zip(self.operands, self._operands(), strict=True):
            if 0 not in sizes:
                yield Access(arg, *range_of(place, sizes), self.body.args[arg])
        yield from nest_accesses(self.body, None)
        for arg in self.scratch:
            yield Access(arg, 0, prod(self.body.sizes) - 1, self.body.args[arg], writes=True)

    def problems(self) -> Iterator[str]:
        sizes = tuple(axis.size for axis in self.loops)
        if self.body.sizes != sizes or self.body.reduced:
            yield f"has loops over {self.body.sizes} for a product of {sizes}"
        yield from nest_problems(self.body, has_product=True)
        if self.parts is not None:
            unit = self.steps[self.parts.dim] if self.parts.dim < len(sizes) else 1
            yield from self.parts.problems(sizes, unit)
            if self.parts.dim not in self.body.free_dims():
                yield f"is cut along i{self.parts.dim}: parts of it store the same elements"

    def _operands(self) -> list[tuple[AffineExpr, Shape]]:
        """Where the elements of both operands lie, over all axes."""
        axes = (*self.loops, *self.inner)
        found = []
        for name, absent, offset in zip("ab", ("column", "row"), self.offsets, strict=True):
            place = form(offset, [(n, getattr(axis, name)) for n, axis in enumerate(axes)])
            found.append((place, tuple(1 if x.kind == absent else x.size for x in axes)))
        return found

    def evaluate(self, memory: Sequence[Memory], world: World) -> None:
        if 0 in self.body.sizes:
            return
        axes = list(range(len(self.loops) + len(self.inner)))
        places = zip(self.operands, self._operands(), strict=True)
        read = [(arg, form_values(*place)) for arg, place in places]
        a, b = (memory[arg].read(index) for arg, index in read)
        found = contracted(a, b, axes, len(self.loops))
        if self.parts is None:
            evaluate_nest(self.body, memory, product=found, operands=read)
            return
        for low, high in self.parts.ranges(self.body.sizes[self.parts.dim]):
            cut = self.parts.dim, low, high
            evaluate_nest(self.body, memory, product=found, cut=cut, operands=read)

    def emit(self, b: FunctionBuilder, args: Sequence[Val]) -> None:
        emit_axes(b, self, args)

    def emit_part(
        self, b: FunctionBuilder, region: str, args: list[Val], part: Val, own: Val
    ) -> None:
        assert self.parts is not None
        emit_axes(b, self, args, part_of(b, self.parts, self.body.sizes, part))


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of accumulators in a tile.

    Attributes:
        offset: elements from the tile's first column in the second operand.
        places: index within the tile along each loop that isn't at its first one.
        mask: the lanes that exist; None for all.
    """

    offset: int
    places: tuple[tuple[int, int], ...]
    mask: Val | None


def _places(number: int, row: int, columns: Sequence[_Column]) -> tuple[tuple[int, int], ...]:
    """Index within the tile of an accumulator along each loop that isn't at its first one."""
    i, column = divmod(number, len(columns))
    return (((row, i),) if i else ()) + columns[column].places


def emit_axes(
    b: FunctionBuilder,
    kernel: AxesKernel,
    args: Sequence[Val],
    cut: tuple[int, Val, Val] | None = None,
) -> None:
    """Append a contraction over axes, and what follows it, to a function.

    Args:
        cut: a loop over the result, and the part of it to go through, by whole tiles.
    """
    if 0 not in kernel.body.sizes:
        emitter = AxesEmitter(b, kernel, args)
        emitter.cut = cut
        emitter.run()


class AxesEmitter(InstEmitter):
    """The loops, and the instructions of the kernel for each vector of finished sums."""

    def __init__(self, b: FunctionBuilder, kernel: AxesKernel, args: Sequence[Val]) -> None:
        super().__init__(b, kernel.body, args)
        self.product = kernel
        self.dtype = kernel.body.args[0]
        self.element = lowering.MEMORY[self.dtype]
        self.type = vector(self.element, kernel.lanes)
        self.dots = kernel.vector < 0 and kernel.lanes > 1
        self.inner = kernel.inner
        self.cut: tuple[int, Val, Val] | None = None  # a loop, and the part of it to go through
        work = sum(costs.cost_of(inst.op) for inst in kernel.body.insts[1:] if not inst.has_address)
        self.sums: Val | None = None
        if work > costs.INLINE:
            self.sums = b.alloca(self.element, b.target.registers * kernel.lanes)

    def run(self) -> None:
        self.emit_invariants()
        pointers = [
            self.b.at(self.element, self.args[number], offset)
            for number, offset in zip(self.product.operands, self.product.offsets, strict=True)
        ]
        self._blocks((pointers[0], pointers[1]))

    def _blocks(self, pointers: Pair) -> None:
        """All tiles, for one block of the first inner axis after the other."""
        block = self.product.block
        if not block:
            self._loops(0, pointers, ())
            return
        axis = self.inner[0]
        self.inner = (replace(axis, size=block), *self.inner[1:])
        with self.b.loop(0, axis.size, block) as loop:
            self.is_first = self.b.eq(loop.index, 0)
            self.is_last = self.b.eq(loop.index, axis.size - block)
            self._loops(0, self._step_from(pointers, loop.index, (axis.a, axis.b)), ())

    # Loops over the result ----------------------------------------------------------------

    def _loops(self, level: int, pointers: Pair, extents: tuple[int, ...]) -> None:
        """Open the loops from `level` on; tiles at the end of an axis are smaller."""
        if level == len(self.product.loops):
            self._tile(pointers, extents)
            return
        axis, step = self.product.loops[level], self.product.steps[level]
        main = axis.size - axis.size % step
        low, stop = self._bounds(level, main)
        if is_open(main) or main:
            self._tiles(level, (low, stop), step, pointers, extents)
        rest = axis.size - main
        if is_open(rest) and level != self.product.vector:
            with self._if_last(level):
                for lower in (n for n in (8, 4, 2, 1) if n < step):
                    end = main + (axis.size - main) // lower * lower
                    self._tiles(level, (main, end), lower, pointers, extents)
                    main = end
        elif is_open(rest) or rest:
            index = i64(main)
            there_is = self.b.if_(self.b.lt(index, axis.size)) if is_open(rest) else nullcontext()
            with self._if_last(level), there_is, self._at(level, index):
                self._loops(level + 1, self._moved(level, pointers, index), (*extents, rest))

    def _tiles(
        self,
        level: int,
        bounds: tuple[Val | int, Val | int],
        step: int,
        pointers: Pair,
        extents: tuple[int, ...],
    ) -> None:
        with self.b.loop(*bounds, step) as loop, self._at(level, loop.index):
            self._loops(level + 1, self._moved(level, pointers, loop.index), (*extents, step))

    def _bounds(self, level: int, main: int) -> tuple[Val | int, Val | int]:
        """Where the whole tiles of a loop begin and end."""
        if self.cut is None or self.cut[0] != level:
            return 0, main
        _, low, high = self.cut
        return low, self.b.select(self.b.lt(high, main), high, i64(main))

    def _if_last(self, level: int) -> AbstractContextManager[None]:
        """What is done in the last part of a loop alone."""
        if self.cut is None or self.cut[0] != level:
            return nullcontext()
        return self.b.if_(self.b.eq(self.cut[2], self.product.loops[level].size))

    @contextmanager
    def _at(self, dim: int, index: Val) -> Iterator[None]:
        saved = dict(self.places), dict(self.index)
        self.enter(dim, index)
        yield
        self.places, self.index = saved

    def _moved(self, level: int, pointers: Pair, index: Val) -> Pair:
        axis = self.product.loops[level]
        return self._step_from(pointers, index, (axis.a, axis.b))

    def _step_from(self, pointers: Pair, index: Val | int, strides: tuple[int, int]) -> Pair:
        """Both pointers `index` steps further."""
        moved = []
        for pointer, stride in zip(pointers, strides, strict=True):
            if not isinstance(index, Val):
                offset: Val | int = index * stride
            else:
                offset = self._times(index, stride) if stride else 0
            moved.append(self.b.at(self.element, pointer, offset))
        return moved[0], moved[1]

    # A tile -------------------------------------------------------------------------------

    def _tile(self, pointers: Pair, extents: tuple[int, ...]) -> None:
        loops, steps = self.product.loops, self.product.steps
        tiled = [n for n, axis in enumerate(loops) if steps[n] > 1 or n == self.product.vector]
        row = next((n for n in tiled if loops[n].kind == "row"), -1)
        height = extents[row] if row >= 0 else 1
        rows = [i * loops[row].a if i else 0 for i in range(height)]
        columns = self._columns([n for n in tiled if n != row], extents)
        sums = [const(self.type, 0)] * (height * len(columns))
        self.unrolled = unrolled(self.inner, len(sums))
        sums = self._sum(0, sums, pointers, (rows, columns))
        if self.product.block:
            sums = self._added_up(sums, row, columns)
            with self.b.if_(self.is_last):
                self._finish_all(sums, row, columns)
        else:
            self._finish_all(sums, row, columns)

    def _added_up(self, sums: Sequence[Val], row: int, columns: Sequence[_Column]) -> list[Val]:
        """Dot products folded, and added to those of earlier blocks, which wait in memory."""
        b, strides = self.b, contiguous_strides(self.kernel.sizes)
        start = self.args[-1]
        for level, stride in enumerate(strides):
            start = b.at(self.element, start, self._times(self.index[level], stride))
        result = []
        for number, value in enumerate(sums):
            offset = sum(at * strides[n] for n, at in _places(number, row, columns))
            pointer = b.at(self.element, start, offset)
            before = b.load(self.element, pointer)
            before = b.select(self.is_first, const(self.element, 0), before)
            result.append(b.add(before, b.reduce(value, b.add)))
            b.store(result[-1], pointer)
        return result

    def _columns(self, tiled: Sequence[int], extents: tuple[int, ...]) -> list[_Column]:
        """All columns of a tile, along the lanes vector by vector."""
        kernel, ranges = self.product, []
        for n in tiled:
            step = kernel.lanes if n == kernel.vector else 1
            extent = kernel.steps[n] if is_open(extents[n]) else extents[n]  # then masks tell
            ranges.append([(n, at) for at in range(0, extent, step)])
        found = []
        for places in product(*ranges):
            offset, mask = 0, None
            for n, at in places:
                offset += at * kernel.loops[n].b
                if n == kernel.vector:
                    mask = self._tail(extents[n] - at)
            found.append(_Column(offset, tuple(p for p in places if p[1]), mask))
        return found

    def _tail(self, count: int) -> Val | None:
        lanes = self.product.lanes
        if is_open(count):
            return self.b.tail_mask(lanes, i64(count))
        if count >= lanes or lanes == 1:
            return None
        return const_lanes("i1", [lane < count for lane in range(lanes)])

    # Sums ---------------------------------------------------------------------------------

    def _sum(
        self,
        level: int,
        sums: list[Val],
        pointers: Pair,
        tile: tuple[Sequence[int], Sequence[_Column]],
    ) -> list[Val]:
        """The sums after the inner axes from `level` on."""
        inner = self.inner
        if level == len(inner):
            return self._round(sums, pointers, tile, None)
        axis = inner[level]
        strides = axis.a, axis.b
        step = self.product.lanes if self.dots and level == len(inner) - 1 else 1
        main = axis.size - axis.size % step

        def one(index: Val | int, sums: list[Val]) -> list[Val]:
            return self._sum(level + 1, sums, self._step_from(pointers, index, strides), tile)

        if len(inner) - level <= self.unrolled or (not is_open(main) and main == step):
            for index in range(0, main, step):
                sums = one(index, sums)
        elif is_open(main) or main:
            with self.b.loop(0, main, step, sums) as loop:
                loop.carry(*one(loop.index, loop.carried))
            sums = loop.results
        if is_open(axis.size - main) or main < axis.size:
            last = self._step_from(pointers, main, strides)
            sums = self._round(sums, last, tile, self._tail(axis.size - main))
        return sums

    def _round(
        self,
        sums: Sequence[Val],
        pointers: Pair,
        tile: tuple[Sequence[int], Sequence[_Column]],
        mask: Val | None,
    ) -> list[Val]:
        """One multiply-add per accumulator; the smaller side of the tile stays in registers."""
        rows, columns = tile
        result = list(sums)

        def left(i: int) -> Val:
            pointer = self.b.at(self.element, pointers[0], rows[i])
            if self.dots:
                return self._vector(pointer, self.inner[-1].a, mask)
            return self.b.splat(self.b.load(self.element, pointer), self.product.lanes)

        def right(j: int) -> Val:
            pointer = self.b.at(self.element, pointers[1], columns[j].offset)
            if self.dots:
                return self._vector(pointer, self.inner[-1].b, mask)
            if self.product.vector < 0:
                return self.b.load(self.element, pointer)
            stride = self.product.loops[self.product.vector].b
            return self._vector(pointer, stride, columns[j].mask)

        short, long = (left, right) if len(rows) < len(columns) else (right, left)
        few = [short(n) for n in range(min(len(rows), len(columns)))]
        for n in range(max(len(rows), len(columns))):
            value = long(n)
            for m, other in enumerate(few):
                i, j = (m, n) if short is left else (n, m)
                at = i * len(columns) + j
                result[at] = self.b.muladd(value, other, result[at])
        return result

    def _vector(self, pointer: Val, stride: int, mask: Val | None) -> Val:
        if stride == 0:
            return self.b.splat(self.b.load(self.element, pointer), self.product.lanes)
        return memory.load(self.b, self.dtype, pointer, self.product.lanes, stride, mask)

    # Results ------------------------------------------------------------------------------

    def _finish_all(self, sums: Sequence[Val], row: int, columns: Sequence[_Column]) -> None:
        if self.sums is not None:
            self._finish_from_memory(sums, row, columns)
            return
        for number, value in enumerate(sums):
            places = _places(number, row, columns)
            mask = columns[number % len(columns)].mask
            self._finish(value, [(n, i64(at)) for n, at in places], mask)

    def _finish(self, value: Val, places: Sequence[tuple[int, Val]], mask: Val | None) -> None:
        """Everything that follows for the lanes of `value`, `places` further than the tile."""
        saved = dict(self.env), dict(self.wide), dict(self.places), dict(self.index)
        for dim, index in places:
            self.enter(dim, index)
        if self.dots and value.lanes > 1:
            value = self.b.reduce(value, self.b.add)
        self.mask, self.lanes = mask, value.lanes
        self.env[0] = value
        for number in range(1, len(self.kernel.insts)):
            self.emit(number)
        self.env, self.wide, self.places, self.index = saved
        self.mask = None

    def _finish_from_memory(
        self, sums: Sequence[Val], row: int, columns: Sequence[_Column]
    ) -> None:
        """Finish in a loop over the rows: what is long and emitted for each takes too long."""
        assert self.sums is not None
        b, lanes = self.b, sums[0].lanes
        for number, value in enumerate(sums):
            b.store(value, b.at(self.element, self.sums, number * lanes))
        with b.loop(0, len(sums) // len(columns)) as rows:
            first = b.mul(rows.index, len(columns))
            for number, column in enumerate(columns):
                at = b.mul(b.add(first, number), lanes)
                value = b.load(sums[0].type, b.at(self.element, self.sums, at))
                places = [(n, i64(index)) for n, index in column.places]
                if row >= 0:
                    places.append((row, rows.index))
                self._finish(value, places, column.mask)
