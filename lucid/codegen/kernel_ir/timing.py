"""How long loops take on one core: a model good enough to decide whether threads pay.

It looks at shapes and instructions only, so that the same program gives the same code.
"""

from __future__ import annotations

from math import log2, prod

from lucid.codegen import costs
from lucid.codegen.costs import cost_of
from lucid.codegen.kernel_ir.instruction import Inst
from lucid.codegen.kernel_ir.nest import LoopNest
from lucid.codegen.llvm.target import Target
from lucid.ir.extents import hint
from lucid.ir.types import DType


def nest_seconds(nest: LoopNest, lanes: int) -> float:
    """The slower of computing and of moving the bytes."""
    computing = moved = 0.0
    turned = nest.turned()
    for number, inst in enumerate(nest.insts):
        dims = nest.dims[number]
        if inst.op == "reduce":
            dims |= nest.dims[inst.operands[0]]
        rounds = float(prod(hint(nest.sizes[dim]) for dim in dims))
        wide = lanes if nest.vector in dims else 1
        computing += rounds / wide * _inst_seconds(nest, inst, wide, number in turned)
        if inst.form is not None and inst.has_address:
            moved += inst.dtype.itemsize * prod(hint(nest.sizes[dim]) for dim in inst.form.dims)
    rate = costs.CACHE_RATE if moved <= costs.CACHE_BYTES else costs.MEMORY_RATE
    return max(computing, moved / rate)


def _inst_seconds(nest: LoopNest, inst: Inst, lanes: int, is_turned: bool) -> float:
    """One execution for `lanes` lanes."""
    if inst.op in ("const", "product"):
        return 0.0
    if inst.has_address and inst.form is not None:
        stride = abs(hint(inst.form.coefficient(nest.vector)))
        indexed = inst.op in ("gather", "write")
        if lanes > 1 and is_turned:
            return (1 + log2(lanes)) / costs.VECTOR_INSTRUCTIONS
        if lanes > 1 and (stride > 1 or (indexed and nest.vector in _index_dims(nest, inst))):
            return lanes * costs.RANDOM_LANE
        return (2.0 if indexed else 1.0) / costs.VECTOR_INSTRUCTIONS
    return cost_of(inst.op) / costs.VECTOR_INSTRUCTIONS


def _index_dims(nest: LoopNest, inst: Inst) -> frozenset[int]:
    return nest.dims[inst.operands[0]]


def rows_at_hand(nest: LoopNest, row: int, rows: int) -> int:
    """How many rows of matrices over the dims from `row` on lie on pages that stay at hand."""
    whole = {*range(row, len(nest.sizes))}
    strides = {
        inst.arg: hint(abs(inst.form.coefficient(row))) * nest.args[inst.arg].itemsize
        for inst in nest.insts
        if inst.form is not None and whole <= {*inst.form.dims}
    }
    pages = sum(min(stride / costs.PAGE_BYTES, 1.0) for stride in strides.values())
    return int(costs.PART_PAGES / pages) if pages else rows


def peak(dtype: DType, target: Target) -> float:
    """Floating-point operations per second of a product that fills its vectors and tiles."""
    return costs.FLOPS_PER_VECTOR_BYTE * target.vector_bytes * 4 / dtype.itemsize
