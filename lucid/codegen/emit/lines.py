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
    low = b.mul(part, parts.size)
    return parts.dim, low, smaller(b, b.add(low, parts.size), sizes[parts.dim])


def smaller(b: FunctionBuilder, x: Val, limit: Val | int) -> Val:
    """min(x, limit)."""
    return b.select(b.lt(x, limit), x, limit)
