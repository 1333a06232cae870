"""Emission of the parts of a matrix product: blocks of its batch, rows and columns.

Where operands are packed, parts of their own do that first, into memory that all parts of the
product read. Every element is still summed in the order of k.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from lucid.codegen.contraction.contract import (
    EpilogueEmitter,
    Finished,
    TileEmitter,
    emit_product,
    follow,
)
from lucid.codegen.contraction.contraction import (
    Contraction,
    plan,
    product_scratch,
    scratch_bytes,
    whole_a_bytes,
)
from lucid.codegen.contraction.gemm import Bounds, Emitter, Epilogue
from lucid.codegen.contraction.matrices import MatrixProduct
from lucid.codegen.contraction.packing import pack_rows
from lucid.codegen.emit import lowering
from lucid.codegen.emit.lines import smaller
from lucid.codegen.kernel_ir.kernel import TileGrid
from lucid.codegen.llvm.builder import FunctionBuilder, Val, i64
from lucid.ir.extents import ceil_div, is_open

Range = tuple[Val, Val]


def emit_grid(
    b: FunctionBuilder, product: MatrixProduct, grid: TileGrid, args: Sequence[Val], part: Val
) -> None:
    """Append one part of a product, and of what follows it, to a function."""
    epilogue = EpilogueEmitter(b, product, args)
    epilogue.prepare()
    _, rows, columns = grid.counts
    if rows * columns == 1:
        _emit_batches(b, product, grid, args, epilogue, part)
        return
    batch, rest = split(b, part, rows * columns)
    row, column = split(b, rest, columns)
    enter_batch(b, product, epilogue, batch)
    emitter = _grid_emitter(b, product, args, epilogue, batch)
    if columns > 1:
        emitter.columns = part_range(b, column, grid.size[2], product.columns)
    if emitter.plan.pack_b and not grid.packs[1]:
        emitter.pack_columns()
    own = part_range(b, row, grid.size[1], product.rows) if rows > 1 else (0, product.rows)
    emitter.run_part(own)


def emit_packing(
    b: FunctionBuilder, product: MatrixProduct, grid: TileGrid, args: Sequence[Val], part: Val
) -> None:
    """Append one part of the copying of operands to a function."""
    of_a, of_b = grid.packs
    epilogue = EpilogueEmitter(b, product, args)
    batch, piece = split(b, part, of_a + of_b)
    enter_batch(b, product, epilogue, batch)
    emitter = _grid_emitter(b, product, args, epilogue, batch)
    if not of_a:
        emitter.pack_b_part(piece, of_b)
    elif not of_b:
        emitter.pack_a_part(piece, of_a)
    else:
        with b.if_else(b.lt(piece, of_a)) as branch:
            with branch.then():
                emitter.pack_a_part(piece, of_a)
            with branch.otherwise():
                emitter.pack_b_part(b.sub(piece, of_a), of_b)


def split(b: FunctionBuilder, number: Val, count: int) -> tuple[Val, Val]:
    """Quotient and remainder of a number that isn't negative."""
    if count == 1:
        return number, i64(0)
    return b.binary("udiv", number, count), b.binary("urem", number, count)


def part_range(b: FunctionBuilder, number: Val, size: int, total: int) -> Range:
    """What part `number` has of `total` indices, `size` in each."""
    low = b.mul(number, size)
    return low, smaller(b, b.add(low, size), total)


# Batches --------------------------------------------------------------------------------------


def enter_batch(
    b: FunctionBuilder, product: Finished, epilogue: EpilogueEmitter, number: Val
) -> None:
    """Bind the indices of the batch dims, of which `number` counts all combinations."""
    for dim in range(len(product.batch) - 1, -1, -1):
        if dim:
            number, index = split(b, number, product.batch[dim])
        else:
            index = number
        epilogue.enter(dim, index)


def _emit_batches(
    b: FunctionBuilder,
    product: MatrixProduct,
    grid: TileGrid,
    args: Sequence[Val],
    epilogue: EpilogueEmitter,
    part: Val,
) -> None:
    """Several whole products, one after the other, with scratch memory of their own."""
    args = list(args)
    total = prod(product.batch)
    if product.has_scratch:
        own = scratch_bytes(product.spec, b.target)
        args[-1] = b.at("i8", args[-1], b.mul(part, own))
    low, high = part_range(b, part, grid.size[0], total)
    with b.loop(low, high) as loop:
        saved = dict(epilogue.places), dict(epilogue.index)
        enter_batch(b, product, epilogue, loop.index)
        emit_product(b, product, args, epilogue)
        epilogue.places, epilogue.index = saved


# Blocks of one product ------------------------------------------------------------------------


def _grid_emitter(
    b: FunctionBuilder,
    product: MatrixProduct,
    args: Sequence[Val],
    epilogue: EpilogueEmitter,
    batch: Val,
) -> GridEmitter:
    element = lowering.MEMORY[product.body.args[0]]
    pointers = [
        epilogue.address(b.at(element, args[n], form.offset), element, form)
        for n, form in zip(product.operands, (product.a, product.b), strict=True)
    ]
    spec = product.spec
    scratch = None
    if product.has_scratch:
        own = product_scratch(plan(spec, b.target))
        scratch = b.at("i8", args[-1], b.mul(batch, own))
    emitter = (GridEmitter if epilogue.sums is None else GridTileEmitter)(
        b, spec, (pointers[0], pointers[1]), scratch, epilogue.element
    )
    follow(emitter, epilogue)
    return emitter


class GridEmitter(Emitter):
    """A block of rows and columns, from operands that are packed as a whole."""

    def __init__(
        self,
        b: FunctionBuilder,
        spec: Contraction,
        operands: tuple[Val, Val],
        scratch: Val | None,
        epilogue: Epilogue,
    ) -> None:
        super().__init__(b, spec, operands, scratch, epilogue)
        self.whole_a = scratch
        if scratch is not None and self.plan.pack_b:
            self.packed_b = b.at("i8", scratch, whole_a_bytes(self.plan))

    def run_part(self, rows: Bounds) -> None:
        if self.plan.dots:
            self._dots(rows)
        else:
            self._rows(rows)

    def _block(self, low: Val | int, high: Val | int, height: int) -> None:
        b, p, spec = self.b, self.plan, self.spec
        if type(low) is int and type(high) is int and low >= high:
            return
        if p.pack_a:
            assert self.whole_a is not None
            self.packed_a = b.at(spec.element, self.whole_a, b.mul(i64(low), spec.k))
        self._over_columns(
            lambda *panel: self._tiles(low, high, height, self._panel(*panel)),
        )

    # Packing ------------------------------------------------------------------------------

    def pack_a_part(self, piece: Val, pieces: int) -> None:
        """Copy some tiles of rows of A."""
        b, p, spec = self.b, self.plan, self.spec
        size = ceil_div(ceil_div(spec.m, p.height), pieces) * p.height
        low, high = part_range(b, piece, size, spec.m)
        rest = spec.m % p.height
        full = spec.m - rest
        if is_open(full) or full:
            is_whole = not is_open(rest) and not rest
            with b.loop(low, high if is_whole else smaller(b, high, full), p.height) as loop:
                self._pack_tile(loop.index, p.height)
        if is_open(rest) or rest:
            with b.if_(b.and_(b.eq(high, spec.m), b.lt(low, spec.m))):
                self._last_rows(self._pack_tiles)

    def _pack_tiles(self, low: Val | int, high: Val | int, height: int) -> None:
        with self.b.loop(low, high, height) as loop:
            self._pack_tile(loop.index, height)

    def _pack_tile(self, row: Val, height: int) -> None:
        b, spec = self.b, self.spec
        assert self.whole_a is not None
        pack_rows(
            b,
            b.at(spec.element, self.a, b.mul(row, spec.a_strides[0])),
            b.at(spec.element, self.whole_a, b.mul(row, spec.k)),
            element=spec.element,
            k=spec.k,
            height=height,
            strides=spec.a_strides,
        )

    def pack_b_part(self, piece: Val, pieces: int) -> None:
        """Copy some panels of columns of B."""
        b, p, spec = self.b, self.plan, self.spec
        size = ceil_div(ceil_div(spec.n, p.panel), pieces) * p.panel
        self.columns = part_range(b, piece, size, spec.n)
        self.pack_columns()


class GridTileEmitter(GridEmitter, TileEmitter):
    """The same for an epilogue that is emitted once."""
