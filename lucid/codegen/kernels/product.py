"""Products of matrices with what follows them elementwise, cut into blocks of the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from lucid.codegen import costs
from lucid.codegen.contraction.contract import emit_contract
from lucid.codegen.contraction.contraction import Plan, plan, product_scratch, scratch_bytes
from lucid.codegen.contraction.grid import emit_grid, emit_packing
from lucid.codegen.contraction.matrices import MatrixProduct
from lucid.codegen.emit.lowering import ELEMENTS
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
from lucid.codegen.kernel_ir.origins import moved, relocated
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.kernel_ir.timing import nest_seconds, peak, rows_at_hand
from lucid.codegen.kernel_ir.work import Traffic, Work
from lucid.codegen.kernels.evaluation import (
    evaluate_nest,
    form_values,
    nest_accesses,
    nest_problems,
    range_of,
)
from lucid.codegen.llvm.builder import FunctionBuilder, Val
from lucid.codegen.llvm.target import ELEMENT_BYTES, Target
from lucid.codegen.threads.parallel import wanted_parts
from lucid.ir.extents import hint
from lucid.ir.types import Shape

PACKING = "_packing"  # the region that copies operands before the product's own


@dataclass(slots=True)
class ContractKernel(Kernel):
    """A product of matrices, and how threads share it; None if it is too small."""

    product: MatrixProduct
    parts: TileGrid | None = None

    @property
    def kind(self) -> str:
        return "contract"

    def __str__(self) -> str:
        return self.product.text(str(self.parts or ""))

    @property
    def scratch(self) -> Sequence[int]:
        return (len(self.product.body.args) - 1,) if self.product.has_scratch else ()

    def work(self, args: Sequence[Buffer]) -> Work:
        p, traffic = self.product, Traffic(args)
        flops = 2 * prod(p.batch) * p.rows * p.inner * p.columns
        for side, rows in enumerate((p.rows * p.inner, p.inner * p.columns)):
            place = (p.a, p.b)[side]
            traffic.read(p.operands[side], rows * prod(p.batch[d] for d in place.dims))
        return traffic.work(flops + traffic.nest(p.body))

    def seconds(self, target: Target) -> float:
        """The multiply-adds, and what is computed from the product."""
        p, dtype = self.product, self.product.body.args[0]
        flops: float = 2.0 * hint(prod(p.batch) * p.rows * p.inner * p.columns)
        lanes = target.lanes(ELEMENTS[dtype])
        narrow = hint(p.columns) < lanes or hint(p.rows) < 4
        rate = peak(dtype, target) * (costs.SMALL_TILE_FLOPS if narrow else 1.0)
        return flops / rate + nest_seconds(p.body, lanes)

    # Parts --------------------------------------------------------------------------------

    def partition(self, args: list[Buffer], new_temp: NewTemp, target: Target) -> list[Call]:
        self.parts = self._grid(target)
        if self.parts is not None and self.product.has_scratch:
            args[-1].size = -(-self._scratch_bytes(self.parts, target) // 8)
        return [(self, args)]

    def _grid(self, target: Target) -> TileGrid | None:
        """Cut a product: the batch if it is large, else rows and columns."""
        batch, rows, columns = self._totals()
        if 0 in (batch, rows, columns) or not self._stores_every_element():
            return None
        cost, products = self.seconds(target), hint(batch)
        wanted = wanted_parts(cost)
        if wanted == 1:
            return None
        if products >= min(wanted, 2 * costs.LEAST_PARTS):
            size = ceil(products / min(wanted, products))
            return TileGrid((size, rows, columns), (-(-batch // size), 1, 1), (0, 0))
        p = plan(self.product.spec, target)
        if _is_large(p):
            wanted = min(wanted, max(costs.LEAST_PARTS, round(cost / costs.PRODUCT_PART_SECONDS)))
        by_columns = _is_large(p) or (p.pack_b and cost < costs.PACK_APART_SECONDS)
        batch_dims = len(self.product.batch)
        most = rows_at_hand(self.product.body, batch_dims, rows) if by_columns else rows
        height, width = _cut_matrix(p, ceil(wanted / products), most, by_columns=by_columns)
        counts = batch, -(-rows // height), -(-columns // width)
        at_hand = tuple(map(hint, counts))
        if prod(at_hand) < 2:
            return None
        packs = (0, 0) if at_hand[1:] == (1, 1) else _packs(p)
        if at_hand[1] == 1:
            packs = packs[0], 0
        return TileGrid((1, height, width), counts, packs)

    def _totals(self) -> tuple[int, int, int]:
        """Indices of the batch, rows, columns."""
        return prod(self.product.batch), self.product.rows, self.product.columns

    def _stores_every_element(self) -> bool:
        """Whether each element of the product is stored at a place of its own."""
        body = self.product.body
        return len(body.free_dims()) == len(body.sizes)

    def _scratch_bytes(self, grid: TileGrid, target: Target) -> int:
        """Packed operands: of each part, or of each product whose parts share them."""
        spec = self.product.spec
        if tuple(map(hint, grid.counts[1:])) == (1, 1):
            return grid.counts[0] * scratch_bytes(spec, target)
        return grid.counts[0] * product_scratch(plan(spec, target))

    def relocate(self) -> tuple[Kernel, Origins]:
        p, origins = self.product, Origins()
        a, b = (
            moved(place, origins.setdefault(arg, place.offset))
            for arg, place in zip(p.operands, (p.a, p.b), strict=True)
        )
        product = replace(p, a=a, b=b, body=relocated(p.body, origins))
        return ContractKernel(product, self.parts), origins

    # What it means ------------------------------------------------------------------------

    def accesses(self) -> Iterator[Access]:
        p = self.product
        if 0 in self._totals():
            return
        for arg, (place, sizes) in zip(p.operands, self._operands(), strict=True):
            if 0 not in sizes:
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
            yield from self.parts.problems(self._totals())
            if not self._stores_every_element():
                yield "is cut into parts that store the same elements"

    def _operands(self) -> list[tuple[AffineExpr, Shape]]:
        """Where the elements of both matrices lie, over the batch and two dims more."""
        p, lead = self.product, len(self.product.batch)
        am, ak, bk, bn = p.strides
        sides = ((p.a, am, ak, (p.rows, p.inner)), (p.b, bk, bn, (p.inner, p.columns)))
        return [
            (form(place.offset, [*place.terms, (lead, first), (lead + 1, second)]), (*p.batch, *xy))
            for place, first, second, xy in sides
        ]

    def evaluate(self, memory: Sequence[Memory], world: World) -> None:
        p = self.product
        if 0 in self._totals():
            return
        read = [
            (arg, form_values(*at)) for arg, at in zip(p.operands, self._operands(), strict=True)
        ]
        a, b = (memory[arg].read(index) for arg, index in read)
        found = np.matmul(a, b)
        shape = p.body.sizes
        if self.parts is None:
            evaluate_nest(p.body, memory, product=found.reshape(shape), operands=read)
            return
        for block in self.parts.blocks():
            chosen = np.zeros(self._totals(), np.bool_)
            chosen[block] = True
            only = chosen.reshape(shape)
            evaluate_nest(p.body, memory, product=found.reshape(shape), only=only, operands=read)

    # LLVM IR ------------------------------------------------------------------------------

    def regions(self) -> dict[str, int]:
        if self.parts is None:
            return {}
        packing = self.parts.counts[0] * sum(self.parts.packs)
        return {**({PACKING: packing} if packing else {}), "": self.parts.count}

    def emit(self, b: FunctionBuilder, args: Sequence[Val]) -> None:
        emit_contract(b, self.product, args)

    def emit_part(self, b: FunctionBuilder, region: str, args: list[Val], part: Val) -> None:
        assert self.parts is not None
        emit = emit_packing if region == PACKING else emit_grid
        emit(b, self.product, self.parts, args, part)


def _is_large(p: Plan) -> bool:
    """Whether B is read from beyond the second-level cache for each block of rows."""
    elements: int = hint(p.spec.k * p.spec.n)
    return elements * ELEMENT_BYTES[p.spec.element] > costs.SMALL_OPERAND_BYTES


def _cut_matrix(p: Plan, wanted: int, most: int, *, by_columns: bool) -> tuple[int, int]:
    """Rows and columns of a part; multiples of the tile's.

    Args:
        most: rows, where there are twice as many.
        by_columns: cut columns first. What must be packed of B then belongs to one part.
    """
    spec = p.spec
    height, width = p.height, p.width if p.dots else p.panel
    tiles = [ceil(hint(spec.m) / height), ceil(hint(spec.n) / width)]
    first = int((by_columns and tiles[1] > 1) or tiles[0] < tiles[1] < wanted or tiles[0] == 1)
    counts = [1, 1]
    if by_columns and hint(spec.m) >= 2 * most:
        first, counts[0] = 0, ceil(hint(spec.m) / most)
    else:
        counts[first] = min(tiles[first], wanted)
    counts[1 - first] = min(tiles[1 - first], ceil(wanted / counts[first]))
    rows, columns = (ceil(tiles[i] / counts[i]) for i in (0, 1))
    return _whole(rows * height, spec.m), _whole(columns * width, spec.n)


def _whole(size: int, total: int) -> int:
    """A part's size, and no more than there is."""
    return total if size >= hint(total) else size


def _packs(p: Plan) -> tuple[int, int]:
    """How many parts copy the operands first."""
    size = ELEMENT_BYTES[p.spec.element]
    m, n, k = hint(p.spec.m), hint(p.spec.n), hint(p.spec.k)
    tiles = ceil(m / p.height), ceil(n / p.panel)
    elements = m * k, n * k
    wanted = [max(1, min(n * size // costs.PACK_PART_BYTES, 16)) for n in elements]
    of_a, of_b = (min(n, most) for n, most in zip(wanted, tiles, strict=True))
    return of_a if p.pack_a else 0, of_b if p.pack_b else 0
