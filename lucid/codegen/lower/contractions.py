"""Contractions over any axes: their loops, and kernels of those that are no matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lucid.codegen.contraction.axes import Axis, choose_blocking, inner_block
from lucid.codegen.emit.lowering import ELEMENTS
from lucid.codegen.kernel_ir.affine import IndexMap
from lucid.codegen.kernel_ir.instruction import Inst
from lucid.codegen.kernel_ir.nest import LoopNest, analyze, renamed
from lucid.codegen.kernel_ir.regions import Layout
from lucid.codegen.kernels.axes import AxesKernel
from lucid.codegen.llvm.target import Target
from lucid.codegen.lower.item import Item
from lucid.ir.ops.contraction import split_indices
from lucid.ir.types import DType


def axes_of(item: Item, layouts: Sequence[Layout], forms: IndexMap) -> list[Axis]:
    """The loops of a `contract`: those of the result in its order, then those that are summed."""
    assert item.node is not None
    lhs, rhs, result = split_indices(item.node.attributes["indices"])
    a = dict(zip(lhs, layouts[0].strides, strict=True))
    b = dict(zip(rhs, layouts[1].strides, strict=True))
    sizes = dict(zip(lhs, item.operands[0].shape, strict=True))
    sizes.update(zip(rhs, item.operands[1].shape, strict=True))
    dims = {name: next(iter(f.dims), -1) for name, f in zip(result, forms, strict=True)}
    found = []
    for name in (*result, *(name for name in lhs if name not in result)):
        if sizes[name] == 1:
            continue
        kind = "inner" if name not in dims else "row" if name not in b else "column"
        kind = "batch" if name in dims and name in a and name in b else kind
        found.append(Axis(kind, sizes[name], a.get(name, 0), b.get(name, 0), dims.get(name, -1)))
    return found


def axes_kernel(
    axes: Sequence[Axis],
    insts: list[Inst],
    args: list[DType],
    offsets: tuple[int, int],
    target: Target,
) -> AxesKernel:
    """The kernel of a product over axes, of which `insts` are the instructions per element."""
    blocking = choose_blocking(axes, insts, ELEMENTS[args[0]], target)
    names = {axis.dim: number for number, axis in enumerate(blocking.loops)}
    sizes = tuple(axis.size for axis in blocking.loops)
    loops = tuple(replace(axis, dim=number) for number, axis in enumerate(blocking.loops))
    body = LoopNest(args, sizes, (), blocking.vector, 1, [renamed(i, names) for i in insts])
    analyze(body)
    return AxesKernel(
        body,
        loops,
        blocking.steps,
        blocking.inner,
        blocking.vector,
        blocking.lanes,
        (1, 0) if blocking.swapped else (0, 1),
        offsets[::-1] if blocking.swapped else offsets,
        inner_block(blocking, args[0].itemsize),
    )
