"""Loops over lines, and over what belongs to one part of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lucid.codegen.kernel_ir.affine import AffineExpr
from lucid.codegen.kernel_ir.kernel import Partition
from lucid.codegen.llvm.builder import FunctionBuilder, Val, i64

Cut = tuple[int, Val, Val]
"""A dim, and which part of it to go through."""


def over_lines(
    b: FunctionBuilder,
    shape: Sequence[int],
    forms: Sequence[AffineExpr],
    inside: Callable[[list[Val]], None],
    dim: int = 0,
    offsets: list[Val] | None = None,
    cut: Cut | None = None,
) -> None:
    """Run `inside` for all index tuples (of a part), with the value of each form."""
    if offsets is None:
        offsets = [i64(form.offset) for form in forms]
    if dim == len(shape):
        inside(offsets)
        return
    low, high = cut[1:] if cut is not None and cut[0] == dim else (0, shape[dim])
    with b.loop(low, high) as loop:
        moved = []
        for form, offset in zip(forms, offsets, strict=True):
            factor = form.coefficient(dim)
            moved.append(b.add(offset, b.mul(loop.index, factor)) if factor else offset)
        over_lines(b, shape, forms, inside, dim + 1, moved, cut)


def part_of(b: FunctionBuilder, parts: Partition, sizes: Sequence[int], part: Val) -> Cut:
    """The dim that is cut, and what of it belongs to a part."""
    return parts.dim, *part_range(b, part, parts.size, sizes[parts.dim])


def part_range(b: FunctionBuilder, number: Val, size: int, total: int) -> tuple[Val, Val]:
    """What part `number` has of `total` indices, `size` in each."""
    low = b.mul(number, size)
    return low, smaller(b, b.add(low, size), total)


def split(b: FunctionBuilder, number: Val, count: int) -> tuple[Val, Val]:
    """Quotient and remainder of a number that isn't negative."""
    if count == 1:
        return number, i64(0)
    return b.binary("udiv", number, count), b.binary("urem", number, count)


def smaller(b: FunctionBuilder, x: Val, limit: Val | int) -> Val:
    """min(x, limit)."""
    return b.select(b.lt(x, limit), x, limit)
