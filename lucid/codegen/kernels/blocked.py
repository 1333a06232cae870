"""Products that go through their operands block by block, cut into blocks of the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from lucid.codegen import costs
from lucid.codegen.contraction.axes import Axis, cut_axis
from lucid.codegen.contraction.blocked import (
    BlockedEmitter,
    BlockedPlan,
    BlockedProduct,
    BlockMemory,
    blocked_emitter,
    choose,
)
from lucid.codegen.contraction.gemm import Bounds
from lucid.codegen.emit.lines import part_range, split
from lucid.codegen.kernel_ir.affine import AffineExpr, form
from lucid.codegen.kernel_ir.kernel import (
    Access,
    Call,
    Kernel,
    Memory,
    NewTemp,
    Origins,
    TileGrid,
    World,
)
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
from lucid.codegen.llvm.builder import FunctionBuilder, Val, i64
from lucid.codegen.llvm.target import Target
from lucid.codegen.threads.parallel import wanted_parts
from lucid.codegen.threads.split_reduction import stored_parts, summed
from lucid.ir.extents import ceil_div, hint, is_open
from lucid.ir.types import Shape, i64 as int64

PACKING = "_packing"  # the region that copies the first operand before the product's own


@dataclass(slots=True)
class BlockedKernel(Kernel):
    """A product, and how threads share it; None if it is too small."""

    product: BlockedProduct
    parts: TileGrid | None = None

    def take(self, plan: BlockedPlan) -> None:
        """Set the plan, which may need one argument more: memory for copies."""
        self.product.plan = plan
        if plan.copies:
            self.product.body.args.append(int64)

    @property
    def kind(self) -> str:
        return "contract"

    def __str__(self) -> str:
        return self.product.text(str(self.parts or ""))

    @property
    def scratch(self) -> Sequence[int]:
        return (len(self.product.body.args) - 1,) if self.product.plan.copies else ()

    @property
    def _totals(self) -> tuple[int, int, int]:
        """Indices of the batch, rows, columns."""
        return prod(self.product.batch), self.product.rows, self.product.columns

    @property
    def _stores_every_element(self) -> bool:
        """Whether each element of the product is stored at a place of its own."""
        body = self.product.body
        return len(body.free_dims()) == len(body.sizes)

    @property
    def _axes(self) -> tuple[Axis, ...]:
        p = self.product
        return (*p.batch_axes, *p.row_axes, *p.column_axes, *p.inner)

    def work(self, args: Sequence[Buffer]) -> Work:
        traffic = Traffic(args)
        for side, name in enumerate("ab"):
            sizes = (axis.size for axis in self._axes if getattr(axis, name))
            traffic.read(self.product.operands[side], prod(sizes))
        flops = 2 * prod(axis.size for axis in self._axes)
        return traffic.work(flops + traffic.nest(self.product.body))

    def seconds(self, target: Target) -> float:
        """The multiply-adds, and what is computed from the product."""
        p, body = self.product, self.product.body
        flops: float = 2.0 * hint(prod(axis.size for axis in self._axes))
        lanes = target.vector_bytes // body.args[0].itemsize
        narrow = hint(p.columns) < lanes or hint(p.rows) < 4
        rate = peak(body.args[0], target) * (costs.SMALL_TILE_FLOPS if narrow else 1.0)
        return flops / rate + nest_seconds(body, lanes)

    @property
    def _read(self) -> int:
        """Elements of both operands of one product."""
        elements: int = hint(self.product.depth * (self.product.rows + self.product.columns))
        return elements

    # Parts --------------------------------------------------------------------------------

    def partition(self, args: list[Buffer], new_temp: NewTemp, target: Target) -> list[Call]:
        self.parts = self._grid(target)
        several = self._along_inner(args, new_temp, target)
        return several or [(self, self._with_memory(args))]

    def _with_memory(self, args: list[Buffer]) -> list[Buffer]:
        """The arguments, of which the last one is as large as the parts need it."""
        rows = self.product.rows if self.parts is None else self.parts.size[1]
        count = 1 if self.parts is None else self.parts.count
        memory = BlockMemory(self.product, rows)
        if self.product.plan.copies:
            args[-1].size = -(-(memory.of_all + memory.of_part * count) // 8)
        return args

    def _along_inner(self, args: list[Buffer], new_temp: NewTemp, target: Target) -> list[Call]:
        """Products of some of the inner indices each, and their sum; none if that is no better.

        Parts have the whole result. It is too small to be cut, or it is little beside the operands,
        and what they copy of both for a block stays in their cache, while columns would all read a
        copy of the first operand.
        """
        p, wanted = self.product, min(self._wanted(target), 2 * costs.LEAST_PARTS)
        count = 1 if self.parts is None else hint(self.parts.count)
        is_block = p.plan.pack_a == "whole" and not p.plan.skips and hint(prod(p.batch)) == 1
        is_block &= hint(p.columns) <= hint(p.plan.columns)
        is_block &= hint(BlockMemory(p, p.rows).of_b) * 2 <= costs.BLOCK_BYTES
        is_block &= hint(costs.PARTIAL_SUM * wanted * p.rows * p.columns) <= self._read
        if wanted == 1 or not (is_block or count < min(wanted, costs.LEAST_PARTS)):
            return []
        cut = cut_axis(p.inner, wanted)
        if cut is None or not self._stores_every_element:
            return []
        batch, inner = cut
        vector = len(p.body.sizes) if p.body.vector >= 0 else -1
        body = stored_parts(p.body, batch.size, vector, ())
        axes = (batch, *p.batch_axes)
        product = replace(p, body=body, batch_axes=axes, inner=inner, operands=(0, 1))
        plan = choose(product, target)
        is_block = p.plan.pack_a != "in place" and plan.pack_b == "block" and not plan.skips
        if is_block and hint(p.columns) <= hint(plan.columns):
            plan = replace(plan, pack_a="block")
        first = BlockedKernel(product)
        first.take(plan)
        partial = new_temp(p.body.args[0], prod(body.sizes))
        given = [args[p.operands[0]], args[p.operands[1]], partial]
        given += [new_temp(int64, 1) for _ in first.scratch]
        first.parts = first._grid(target)
        nest, rest = summed(p.body, args, partial, batch.size, target)
        total = LoopKernel(nest).partition(rest, new_temp, target)
        return [(first, first._with_memory(given)), *total]

    def _wanted(self, target: Target) -> int:
        """Parts that pay, of which each copies what it needs of the operands."""
        cost = self.seconds(target)
        most = max(costs.LEAST_PARTS, round(cost / costs.PRODUCT_PART_SECONDS))
        return min(wanted_parts(cost), most)

    def _grid(self, target: Target) -> TileGrid | None:
        """Cut the batch if it is large, else rows and columns, by whole tiles."""
        batch, rows, columns = totals = self._totals
        products, most_rows, most_columns = map(hint, totals)
        wanted, plan = self._wanted(target), self.product.plan
        if wanted == 1 or not self._stores_every_element:
            return None
        tiles = ceil(most_rows / plan.height)
        packs = min(tiles, 16) if plan.pack_a == "whole" else 0
        if products >= min(wanted, 2 * costs.LEAST_PARTS):
            size = ceil(products / min(wanted, products))
            return TileGrid((size, rows, columns), (ceil_div(batch, size), 1, 1), packs)
        wanted = ceil(wanted / products)
        height, width = self._part(wanted, tiles, ceil(most_columns / plan.panel))
        height, row_parts = _cut(rows, height * plan.height)
        width, column_parts = _cut(columns, width * plan.panel)
        counts = batch, row_parts, column_parts
        if hint(prod(counts)) < 2:
            return None
        return TileGrid((1, height, width), counts, packs)

    def _part(self, wanted: int, tiles: int, panels: int) -> tuple[int, int]:
        """Tiles and panels of a part: as many parts as are wanted, or can be, which copy little.

        Each reads its rows of the first operand, and copies its columns of the second one.
        """
        _, rows, columns = map(hint, self._totals)
        plan = self.product.plan
        copied = costs.COPIED if plan.copies else 1.0
        most = min(tiles, max(1, rows // costs.PART_ROWS)) if plan.copies else tiles

        def parts(across: int) -> tuple[int, int]:
            return min(most, ceil(wanted / across)), across

        def cost(counts: tuple[int, int]) -> tuple[int, float]:
            down, across = counts
            lacking = max(0, wanted - down * across)
            return lacking, down * columns * copied + across * rows

        one = plan.pack_a == "block"  # whose copy of the first operand serves once
        if one:
            wanted = max(wanted, ceil(rows / costs.WAITING_ROWS))
        down, across = min(map(parts, range(1, 1 + (1 if one else min(wanted, panels)))), key=cost)
        return ceil(tiles / down), ceil(panels / across)

    def relocate(self) -> tuple[Kernel, Origins]:
        origins: Origins = {}
        p = self.product
        pairs = zip(p.operands, p.offsets, strict=True)
        x, y = (offset - origins.setdefault(arg, offset) for arg, offset in pairs)
        product = replace(p, offsets=(x, y), body=relocated(p.body, origins))
        return BlockedKernel(product, self.parts), origins

    # What it means ------------------------------------------------------------------------

    def accesses(self) -> Iterator[Access]:
        p = self.product
        for arg, (place, sizes) in zip(p.operands, self._operands(), strict=True):
            yield Access(arg, *range_of(place, sizes), p.body.args[arg])
        yield from nest_accesses(p.body, None)

    def problems(self) -> Iterator[str]:
        p = self.product
        loops, sizes = (  # an open size may be 1 in an instance
            tuple(size for size in sizes if size != 1)
            for sizes in (p.body.sizes, (*p.batch, p.rows, p.columns))
        )
        if loops != sizes or p.body.reduced:
            yield f"has loops over {p.body.sizes} for a product of {sizes}"
        yield from nest_problems(p.body, has_product=True)
        if self.parts is not None:
            yield from self.parts.problems(self._totals)
            if not self._stores_every_element:
                yield "is cut into parts that store the same elements"

    def _operands(self) -> list[tuple[AffineExpr, Shape]]:
        """Where the elements of both operands lie, over all axes."""
        found = []
        for name, absent, offset in zip("ab", ("column", "row"), self.product.offsets, strict=True):
            place = form(offset, [(n, getattr(x, name)) for n, x in enumerate(self._axes)])
            sizes = tuple(
                1 if x.kind == absent or not getattr(x, name) else x.size for x in self._axes
            )
            found.append((place, sizes))
        return found

    def evaluate(self, memory: Sequence[Memory], world: World) -> None:
        p, axes = self.product, self._axes
        places = zip(p.operands, self._operands(), strict=True)
        read = [(arg, form_values(*place)) for arg, place in places]
        a, b = (memory[arg].read(index) for arg, index in read)
        numbers = list(range(len(axes)))
        product = contracted(a, b, numbers, len(axes) - len(p.inner)).reshape(p.body.sizes)
        if self.parts is None:
            evaluate_nest(p.body, memory, product=product, operands=read)
            return
        for block in self.parts.blocks():
            chosen = np.zeros(self._totals, np.bool_)
            chosen[block] = True
            only = chosen.reshape(p.body.sizes)
            evaluate_nest(p.body, memory, product=product, only=only, operands=read)

    # LLVM IR ------------------------------------------------------------------------------

    def regions(self) -> dict[str, int]:
        if self.parts is None:
            return {}
        packing = self.product.copies_of_a * self.parts.packs
        return {**({PACKING: packing} if packing else {}), "": self.parts.count}

    def emit(self, b: FunctionBuilder, args: Sequence[Val]) -> None:
        batch, rows, columns = self._totals
        emitter = blocked_emitter(b, self.product, args, rows, i64(0))
        if emitter.blocking.pack_a == "whole":
            with b.loop(0, self.product.copies_of_a) as loop:
                emitter.enter_copy(loop.index)
                emitter.pack_a(0, ceil_div(rows, emitter.blocking.height))
        _run(b, emitter, (0, batch), (0, rows), (0, columns))

    def emit_part(
        self, b: FunctionBuilder, region: str, args: list[Val], part: Val, own: Val
    ) -> None:
        grid, product = self.parts, self.product
        assert grid is not None
        emitter = blocked_emitter(b, product, args, grid.size[1], own)
        if region == PACKING:
            number, piece = split(b, part, grid.packs)
            emitter.enter_copy(number)
            tiles = ceil_div(product.rows, emitter.blocking.height)
            emitter.pack_a(*part_range(b, piece, ceil_div(tiles, grid.packs), tiles))
            return
        first, rest = split(b, part, grid.counts[1] * grid.counts[2])
        row, column = split(b, rest, grid.counts[2])
        numbers = zip((first, row, column), grid.size, self._totals, strict=True)
        batch, rows, columns = (
            part_range(b, *entry) if is_open(count) or count > 1 else (0, entry[-1])
            for entry, count in zip(numbers, grid.counts, strict=True)
        )
        _run(b, emitter, batch, rows, columns)


def _cut(total: int, size: int) -> tuple[int, int]:
    """The size of a part, and how many there are: all in one where a part has that at hand."""
    return (total, 1) if size >= hint(total) else (size, ceil_div(total, size))


def _run(b: FunctionBuilder, emitter: BlockedEmitter, batch: Bounds, *block: Bounds) -> None:
    """Rows and columns of the products of some batch indices."""
    sizes, after = emitter.product.batch, emitter.after
    if not sizes:
        emitter.run_part(*block)
        return
    with b.loop(*batch) as loop:
        saved = dict(after.places), dict(after.index)
        rest = loop.index
        for dim in range(len(sizes) - 1, -1, -1):
            rest, index = split(b, rest, sizes[dim]) if dim else (rest, rest)
            after.enter(dim, index)
        emitter.run_part(*block)
        after.places, after.index = saved
