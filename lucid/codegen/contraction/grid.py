"""Emission of the parts of a matrix product: blocks of its batch, rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from lucid.codegen.contraction.contract import EpilogueEmitter, Finished, emit_product
from lucid.codegen.contraction.gemm import Bounds
from lucid.codegen.contraction.matrices import MatrixProduct
from lucid.codegen.emit.lines import smaller
from lucid.codegen.kernel_ir.kernel import TileGrid
from lucid.codegen.llvm.builder import FunctionBuilder, Val, i64

Range = tuple[Val, Val]


def emit_grid(
    b: FunctionBuilder,
    product: MatrixProduct,
    grid: TileGrid | None,
    args: Sequence[Val],
    part: Val,
) -> None:
    """Append one part of a product, and of what follows it, to a function; all of it if uncut."""
    total = prod(product.batch)
    if 0 in (total, product.rows, product.columns):
        return
    epilogue = EpilogueEmitter(b, product, args)
    epilogue.prepare()
    _, rows, columns = (1, 1, 1) if grid is None else grid.counts
    whole: tuple[Bounds, Bounds] = (0, product.rows), (0, product.columns)
    if grid is None or rows * columns == 1:
        ends: Bounds = 0, total
        if grid is not None:
            ends = part_range(b, part, grid.size[0], total)
        with b.loop(*ends) as loop:
            saved = dict(epilogue.places), dict(epilogue.index)
            enter_batch(b, product, epilogue, loop.index)
            emit_product(b, product, args, epilogue, *whole)
            epilogue.places, epilogue.index = saved
        return
    batch, rest = split(b, part, rows * columns)
    row, column = split(b, rest, columns)
    enter_batch(b, product, epilogue, batch)
    own = (
        whole[0] if rows == 1 else part_range(b, row, grid.size[1], product.rows),
        whole[1] if columns == 1 else part_range(b, column, grid.size[2], product.columns),
    )
    emit_product(b, product, args, epilogue, *own)


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
