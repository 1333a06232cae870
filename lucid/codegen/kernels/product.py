"""Products of matrices that are read where they lie, cut into blocks of the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from lucid.codegen import costs
from lucid.codegen.contraction.contraction import Plan, plan
from lucid.codegen.contraction.grid import emit_grid
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
from lucid.codegen.kernel_ir.timing import nest_seconds, peak
from lucid.codegen.kernel_ir.work import Traffic, Work
from lucid.codegen.kernels.evaluation import (
    evaluate_nest,
    form_values,
    nest_accesses,
    nest_problems,
    range_of,
)
from lucid.codegen.llvm.builder import FunctionBuilder, Val, i64
from lucid.codegen.llvm.target import ELEMENT_BYTES, Target
from lucid.codegen.threads.parallel import wanted_parts
from lucid.ir.extents import hint
from lucid.ir.types import Shape


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
            return TileGrid((size, rows, columns), (-(-batch // size), 1, 1))
        p = plan(self.product.spec, target)
        by_columns = _is_large(p)
        if by_columns:
            wanted = min(wanted, max(costs.LEAST_PARTS, round(cost / costs.PRODUCT_PART_SECONDS)))
        height, width = _cut_matrix(p, ceil(wanted / products), by_columns=by_columns)
        counts = batch, -(-rows // height), -(-columns // width)
        return TileGrid((1, height, width), counts) if hint(prod(counts)) > 1 else None

    def _totals(self) -> tuple[int, int, int]:
        """Indices of the batch, rows, columns."""
        return prod(self.product.batch), self.product.rows, self.product.columns

    def _stores_every_element(self) -> bool:
        """Whether each element of the product is stored at a place of its own."""
        body = self.product.body
        return len(body.free_dims()) == len(body.sizes)

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
        return {} if self.parts is None else {"": self.parts.count}

    def emit(self, b: FunctionBuilder, args: Sequence[Val]) -> None:
        emit_grid(b, self.product, None, args, i64(0))

    def emit_part(self, b: FunctionBuilder, region: str, args: list[Val], part: Val) -> None:
        emit_grid(b, self.product, self.parts, args, part)


def _is_large(p: Plan) -> bool:
    """Whether B is read from beyond the second-level cache for each block of rows."""
    elements: int = hint(p.spec.k * p.spec.n)
    return elements * ELEMENT_BYTES[p.spec.element] > costs.PACK_BYTES


def _cut_matrix(p: Plan, wanted: int, *, by_columns: bool) -> tuple[int, int]:
    """Rows and columns of a part; multiples of the tile's.

    Args:
        by_columns: cut columns first, so that each part reads some of B alone.
    """
    spec = p.spec
    height, width = p.height, p.width if p.dots else p.panel
    tiles = [ceil(hint(spec.m) / height), ceil(hint(spec.n) / width)]
    first = int((by_columns and tiles[1] > 1) or tiles[0] < tiles[1] < wanted or tiles[0] == 1)
    counts = [1, 1]
    counts[first] = min(tiles[first], wanted)
    counts[1 - first] = min(tiles[1 - first], ceil(wanted / counts[first]))
    rows, columns = (ceil(tiles[i] / counts[i]) for i in (0, 1))
    return _whole(rows * height, spec.m), _whole(columns * width, spec.n)


def _whole(size: int, total: int) -> int:
    """A part's size, and no more than there is."""
    return total if size >= hint(total) else size
