"""Contractions over any axes: their loops, and kernels of those that are no matrix product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from lucid.codegen.contraction.axes import (
    Axis,
    Padded,
    axes_cost,
    choose_blocking,
    inner_block,
)
from lucid.codegen.contraction.blocked import (
    UNPLANNED,
    BlockedProduct,
    choose,
)
from lucid.codegen.contraction.matrices import Product
from lucid.codegen.emit.lowering import ELEMENTS
from lucid.codegen.kernel_ir.affine import IndexMap
from lucid.codegen.kernel_ir.instruction import Inst
from lucid.codegen.kernel_ir.nest import LoopNest, analyze, forms_of, renamed, without_dim
from lucid.codegen.kernel_ir.regions import Layout
from lucid.codegen.kernels.axes import AxesKernel
from lucid.codegen.kernels.blocked import BlockedKernel
from lucid.codegen.llvm.target import Target
from lucid.codegen.lower.image_folding import padded_windows
from lucid.codegen.lower.item import Item
from lucid.ir.extents import hint, replaced
from lucid.ir.graph import Value
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
    windows = _windows(item.node.operands[1], rhs)
    found = []
    for name in (*result, *(name for name in lhs if name not in result)):
        if sizes[name] == 1:
            continue
        kind = "inner" if name not in dims else "row" if name not in b else "column"
        kind = "batch" if name in dims and name in a and name in b else kind
        axis = Axis(kind, sizes[name], a.get(name, 0), b.get(name, 0), dims.get(name, -1))
        padded, by = windows.get(name, (None, 0))
        found.append(replace(axis, padded=padded, by=by))
    return found


def _windows(operand: Value, letters: str) -> dict[str, tuple[Padded, int]]:
    """By the names of axes, what they move along, if they are of windows over zeros around."""
    views = padded_windows(operand)
    if views is None:
        return {}
    windows, bounds = views
    axes, *apart = (windows.attributes[name] for name in ("axes", "steps", "dilations"))
    places, found = letters[len(bounds) :], {}
    for number, (place, axis, step, dilation) in enumerate(zip(places, axes, *apart, strict=True)):
        padded = Padded(number, *bounds[axis])
        found[letters[axis]], found[place] = (padded, step), (padded, dilation)
    return found


def blocked_kernel(
    axes: Sequence[Axis],
    insts: list[Inst],
    args: list[DType],
    offsets: tuple[int, int],
    target: Target,
) -> BlockedKernel | None:
    """A kernel that copies its operands block by block; None where that doesn't pay."""
    kernel = None
    if args[0].is_floating_point:
        kernel = _in_blocks(axes, insts, args, offsets, target)
    if kernel is None:
        return None
    dear = axes_cost(axes, insts, ELEMENTS[args[0]], target)
    dear *= hint(prod(axis.size for axis in axes if axis.kind == "batch"))
    return kernel if replaced(kernel.product, hint).cost() < dear else None


def matrix_kernel(
    product: Product,
    insts: list[Inst],
    sizes: Mapping[int, int],
    args: list[DType],
    target: Target,
) -> BlockedKernel:
    """The kernel of a product of two matrices for each index of a batch."""
    (rows, inner, columns), (am, ak, bk, bn) = product.sizes, product.strides
    (row, column), (a, b) = product.dims, product.places
    axes = [
        *(Axis("batch", sizes[x], a.coefficient(x), b.coefficient(x), x) for x in product.lead),
        Axis("row", rows, am, 0, row),
        Axis("column", columns, 0, bn, column),
        Axis("inner", inner, ak, bk),
    ]
    groups = axes[:-3], *([axis] for axis in axes[-3:])
    return _kernel(groups, insts, args, product.operands, (a.offset, b.offset), target)


def _in_blocks(
    axes: Sequence[Axis],
    insts: list[Inst],
    args: list[DType],
    offsets: tuple[int, int],
    target: Target,
) -> BlockedKernel | None:
    """A product that goes through its operands block by block, if it can be one.

    Rows and columns are the innermost axes of the result that all instructions walk through as one;
    what is left of them belongs to the batch. The columns are neighbours in the result.
    """
    kept = [axis for axis in axes if axis.dim >= 0]
    operands = (0, 1)
    if not kept:
        return None
    if kept[-1].kind == "row":
        axes, operands, offsets = [axis.swapped() for axis in axes], (1, 0), offsets[::-1]
    batch = [axis for axis in axes if axis.kind == "batch"]
    groups = []
    for kind in ("row", "column"):
        found = [axis for axis in axes if axis.kind == kind]
        if not found:
            return None
        first = len(found) - 1
        while first and _are_one(found[first - 1], found[first], insts):
            first -= 1
        batch += found[:first]
        groups.append(found[first:])
    inner = [axis for axis in axes if axis.kind == "inner"]
    if not inner or not all(axis.size for axis in axes):
        return None
    kernel = _kernel((batch, *groups, inner), insts, args, operands, offsets, target)
    return None if kernel.product.is_far else kernel


def _kernel(
    groups: Sequence[Sequence[Axis]],
    insts: list[Inst],
    args: list[DType],
    operands: tuple[int, int],
    offsets: tuple[int, int],
    target: Target,
) -> BlockedKernel:
    """The kernel of a product along axes of the batch, of rows, columns, and inner indices."""
    batch, rows, columns, _ = groups
    for axis in (*rows[:-1], *columns[:-1]):
        insts = [without_dim(inst, axis.dim) for inst in insts]
    ends = [(prod(x.size for x in group), group[-1].dim) for group in (rows, columns)]
    order = [*((axis.size, axis.dim) for axis in batch), *(end for end in ends if end[1] >= 0)]
    names = {dim: number for number, (_, dim) in enumerate(order)}
    sizes, vector = tuple(size for size, _ in order), names.get(ends[1][1], -1)
    body = LoopNest([*args], sizes, (), vector, 1, [renamed(i, names) for i in insts])
    analyze(body)
    b, m, n, k = (tuple(replace(x, dim=-1) for x in group) for group in groups)
    kernel = BlockedKernel(BlockedProduct(body, b, m, n, k, operands, offsets, UNPLANNED))
    kernel.take(choose(kernel.product, target))
    return kernel


def _are_one(outer: Axis, inner: Axis, insts: Sequence[Inst]) -> bool:
    """Whether all instructions walk through two dims of the result as through one."""
    step = inner.size
    return all(f.coefficient(outer.dim) == f.coefficient(inner.dim) * step for f in forms_of(insts))


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
