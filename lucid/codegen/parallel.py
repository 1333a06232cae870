"""How kernels are cut into parts that threads share.

Whether and where is decided here, at compile time, by shapes and estimated costs alone: never by
the number of threads. Every part computes what it would compute in a single thread, in the same
order, so results are bit-identical for any number of threads.

Loops are cut along a kept dim, products into blocks of rows and columns. Reductions to less than
that become several kernels, which fold fixed blocks first (`blocks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod

from lucid.codegen.blocks import blocked
from lucid.codegen.contraction import Plan, aligned_bytes, plan, scratch_bytes
from lucid.codegen.kernel import (
    EFFECTS,
    AxesKernel,
    ContractKernel,
    Grid,
    Inst,
    Kernel,
    LoopKernel,
    Parts,
    SortKernel,
)
from lucid.codegen.products import contraction
from lucid.codegen.regions import Buffer
from lucid.codegen.sweep import ROWS, is_swept
from lucid.codegen.target import ELEMENT_BYTES, Target
from lucid.codegen.timing import axes_seconds, contract_seconds, loop_seconds, sort_seconds
from lucid.ir.types import DType

# Handing work over takes half a microsecond, and what one processor wrote comes to another at some
# 40 GB/s. A few parts are enough to even out that one thread begins late; more of them cost claims.
WORTH_SECONDS = 6e-6
SHORT_PART_SECONDS, PART_SECONDS = 3e-6, 8e-6
LEAST_PARTS, MOST_PARTS = 4, 64
# Large products stream their operands for each part: parts of them should not be small.
PRODUCT_PART_SECONDS = 150e-6
SMALL_OPERAND_BYTES = 256 * 1024
# In longer products a packed B is made by parts of their own, and read by all.
PACK_APART_SECONDS = 60e-6
_PACK_PART_BYTES = 64 * 1024
# A sweep over rows wants this many vectors of columns at once.
_SWEPT_VECTORS = 16

NewTemp = Callable[[DType, int], Buffer]
Call = tuple[Kernel, list[Buffer]]


def shared(kernel: Kernel, args: list[Buffer], new_temp: NewTemp, target: Target) -> list[Call]:
    """The kernel cut into parts, or several kernels that do the same; as it is if that is fast."""
    if isinstance(kernel, LoopKernel):
        return _share_loop(kernel, args, new_temp)
    if isinstance(kernel, AxesKernel):
        kernel.parts = _cut_axes(kernel, target)
    elif isinstance(kernel, ContractKernel):
        kernel.parts = grid_of(kernel, target)
        if kernel.parts is not None and kernel.has_scratch:
            args[-1].size = -(-grid_scratch(kernel, kernel.parts, target) // 8)
    elif isinstance(kernel, SortKernel):
        kernel.parts = _cut_lines(kernel, args[-1])
    return [(kernel, args)]


def wanted_parts(seconds: float, part_seconds: float = PART_SECONDS) -> int:
    """How many parts work of this length should have; 1 if it should stay whole."""
    if seconds < WORTH_SECONDS:
        return 1
    few = min(LEAST_PARTS, max(2, int(seconds / SHORT_PART_SECONDS)))
    return min(MOST_PARTS, max(few, round(seconds / part_seconds)))


# Loops ----------------------------------------------------------------------------------------


def _share_loop(kernel: LoopKernel, args: list[Buffer], new_temp: NewTemp) -> list[Call]:
    if 0 in kernel.sizes:
        return [(kernel, args)]
    wanted = wanted_parts(loop_seconds(kernel, kernel.lanes))
    if wanted == 1:
        return [(kernel, args)]
    parts = best_cut(kernel, _free_dims(kernel), wanted)
    if parts is None or parts.count < min(wanted, LEAST_PARTS):
        dims = range(len(kernel.kept), len(kernel.sizes))
        inner = best_cut(kernel, dims, wanted)
        if inner is not None and (parts is None or inner.count > parts.count):
            several = blocked(kernel, args, inner, new_temp)
            if several:
                return list(several)
    kernel.parts = parts
    return [(kernel, args)]


def _free_dims(kernel: LoopKernel) -> list[int]:
    """The kept dims along which each part stores elements of its own."""
    free = set(range(len(kernel.kept)))
    for inst in _effects(kernel):
        assert inst.form is not None
        free &= inst.form.dims
    return sorted(free)


def _effects(kernel: LoopKernel) -> list[Inst]:
    return [inst for inst in kernel.insts if inst.op in EFFECTS]


def best_cut(kernel: LoopKernel, dims: Sequence[int], wanted: int) -> Parts | None:
    """Cut the outermost dim that gives enough parts, else the one that gives the most."""
    best: Parts | None = None
    for dim in dims:
        unit = _unit(kernel, dim)
        units = ceil(kernel.sizes[dim] / unit)
        size = ceil(units / min(wanted, units)) * unit
        count = ceil(kernel.sizes[dim] / size)
        if count > (1 if best is None else best.count):
            best = Parts(dim, size, count)
        if units >= wanted:
            break
    return best


def _unit(kernel: LoopKernel, dim: int) -> int:
    """Values of a dim that stay together: vectors, and rounds of several accumulators."""
    if dim == kernel.vector:
        if dim < len(kernel.kept):
            return kernel.lanes * (_SWEPT_VECTORS if is_swept(kernel) else 1)
        return kernel.lanes * 4
    return 1 if dim < len(kernel.kept) else ROWS


def _cut_lines(kernel: SortKernel, scratch: Buffer) -> Parts | None:
    """Cut the lines of a sort, each part with memory of its own."""
    wanted = wanted_parts(sort_seconds(kernel))
    if wanted == 1 or not kernel.shape:
        return None
    dim = max(range(len(kernel.shape)), key=lambda dim: min(kernel.shape[dim], wanted))
    size = ceil(kernel.shape[dim] / min(wanted, kernel.shape[dim]))
    count, own = ceil(kernel.shape[dim] / size), scratch.size
    scratch.size *= count
    return Parts(dim, size, count, ((2, own),))


# Products -------------------------------------------------------------------------------------


def grid_of(kernel: ContractKernel, target: Target) -> Grid | None:
    """Cut a product: the batch if it is large, else rows and columns."""
    batch = prod(kernel.batch)
    if 0 in (batch, kernel.rows, kernel.columns) or not _stores_every_element(kernel):
        return None
    cost = contract_seconds(kernel, target)
    wanted = wanted_parts(cost)
    if wanted == 1:
        return None
    if batch >= min(wanted, 2 * LEAST_PARTS):
        size = ceil(batch / min(wanted, batch))
        return Grid((size, kernel.rows, kernel.columns), (ceil(batch / size), 1, 1), (0, 0))
    p = plan_of(kernel, target)
    if _is_large(p):
        wanted = min(wanted, max(LEAST_PARTS, round(cost / PRODUCT_PART_SECONDS)))
    rows, columns = _cut_matrix(
        p, ceil(wanted / batch), by_columns=_is_large(p) or (p.pack_b and cost < PACK_APART_SECONDS)
    )
    counts = batch, ceil(kernel.rows / rows), ceil(kernel.columns / columns)
    if prod(counts) < 2:
        return None
    packs = (0, 0) if counts[1:] == (1, 1) else _packs(p)
    if counts[1] == 1:
        packs = packs[0], 0
    return Grid((1, rows, columns), counts, packs)


def _stores_every_element(kernel: ContractKernel) -> bool:
    """Whether each element of the product is stored at a place of its own."""
    return len(_free_dims(kernel.body)) == len(kernel.body.sizes)


def _cut_axes(kernel: AxesKernel, target: Target) -> Parts | None:
    """Cut a loop over the result of a product over axes, by whole tiles."""
    wanted = wanted_parts(axes_seconds(kernel, target))
    if wanted == 1 or 0 in kernel.body.sizes:
        return None
    best: Parts | None = None
    for dim in _free_dims(kernel.body):
        units = ceil(kernel.loops[dim].size / kernel.steps[dim])
        size = ceil(units / min(wanted, units)) * kernel.steps[dim]
        count = ceil(kernel.loops[dim].size / size)
        if count > (1 if best is None else best.count):
            best = Parts(dim, size, count)
        if units >= wanted:
            break
    return best


def plan_of(kernel: ContractKernel, target: Target) -> Plan:
    """The blocking of one of the kernel's products."""
    sizes = kernel.rows, kernel.inner, kernel.columns
    return plan(contraction(kernel.body.args[0], sizes, kernel.strides), target)


def _is_large(p: Plan) -> bool:
    """Whether B is read from beyond the second-level cache for each block of rows."""
    return p.spec.k * p.spec.n * ELEMENT_BYTES[p.spec.element] > SMALL_OPERAND_BYTES


def _cut_matrix(p: Plan, wanted: int, *, by_columns: bool) -> tuple[int, int]:
    """Rows and columns of a part; multiples of the tile's.

    Args:
        by_columns: cut columns first. What must be packed of B then belongs to one part.
    """
    spec = p.spec
    height, width = (4, 4) if p.dots else (p.height, p.panel)
    tiles = [ceil(spec.m / height), ceil(spec.n / width)]
    first = int((by_columns and tiles[1] > 1) or tiles[0] < tiles[1] < wanted or tiles[0] == 1)
    counts = [1, 1]
    counts[first] = min(tiles[first], wanted)
    counts[1 - first] = min(tiles[1 - first], ceil(wanted / counts[first]))
    rows, columns = (ceil(tiles[i] / counts[i]) for i in (0, 1))
    return min(rows * height, spec.m), min(columns * width, spec.n)


def _packs(p: Plan) -> tuple[int, int]:
    """How many parts copy the operands first."""
    size = ELEMENT_BYTES[p.spec.element]
    tiles = ceil(p.spec.m / p.height), ceil(p.spec.n / p.panel)
    elements = p.spec.m * p.spec.k, p.spec.n * p.spec.k
    wanted = [max(1, min(n * size // _PACK_PART_BYTES, 16)) for n in elements]
    of_a, of_b = (min(n, most) for n, most in zip(wanted, tiles, strict=True))
    return of_a if p.pack_a else 0, of_b if p.pack_b else 0


def whole_a_bytes(p: Plan) -> int:
    """Memory of all of A, packed."""
    rows = ceil(p.spec.m / p.height) * p.height
    return aligned_bytes(rows * p.spec.k if p.pack_a else 0, p.spec.element)


def product_scratch(p: Plan) -> int:
    """Memory of the packed operands of one product."""
    return whole_a_bytes(p) + aligned_bytes(p.b_elements, p.spec.element)


def grid_scratch(kernel: ContractKernel, grid: Grid, target: Target) -> int:
    """Memory for packed operands: of each part, or of each product whose parts share them."""
    p = plan_of(kernel, target)
    if grid.counts[1:] == (1, 1):
        return grid.counts[0] * scratch_bytes(p.spec, target)
    return grid.counts[0] * product_scratch(p)
