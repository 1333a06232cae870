"""How long loops take on one core: a model good enough to decide whether threads pay.

It looks at shapes and instructions only, so that the same program gives the same code.
"""

from __future__ import annotations

from math import prod

from lucid.codegen.costs import cost_of
from lucid.codegen.kernel_ir.instruction import Inst
from lucid.codegen.kernel_ir.nest import LoopNest
from lucid.codegen.llvm.target import Target
from lucid.ir.types import DType

# Measured on one core of a current server processor; others differ by less than the model errs.
VECTOR_INSTRUCTIONS = 4.5e9  # per second, of full width
FLOPS_PER_VECTOR_BYTE = 2.8e9  # of matrix products: per second and byte of the vector width
SMALL_TILE_FLOPS = 0.5  # fraction of that where a vector or a tile isn't filled
CACHE_BYTES = 1 << 20
CACHE_RATE = 60e9  # bytes per second, up to that size
MEMORY_RATE = 20e9
RANDOM_LANE = 1.2e-9  # seconds for each lane that is read or written at an address of its own


def nest_seconds(nest: LoopNest, lanes: int) -> float:
    """The slower of computing and of moving the bytes."""
    computing = moved = 0.0
    for number, inst in enumerate(nest.insts):
        dims = nest.dims[number]
        if inst.op == "reduce":
            dims |= nest.dims[inst.operands[0]]
        rounds = float(prod(nest.sizes[dim] for dim in dims))
        wide = lanes if nest.vector in dims else 1
        computing += rounds / wide * _inst_seconds(nest, inst, wide)
        if inst.form is not None and inst.has_address:
            moved += inst.dtype.itemsize * prod(nest.sizes[dim] for dim in inst.form.dims)
    return max(computing, moved / (CACHE_RATE if moved <= CACHE_BYTES else MEMORY_RATE))


def _inst_seconds(nest: LoopNest, inst: Inst, lanes: int) -> float:
    """One execution for `lanes` lanes."""
    if inst.op in ("const", "product"):
        return 0.0
    if inst.has_address and inst.form is not None:
        stride = abs(inst.form.coefficient(nest.vector))
        indexed = inst.op in ("gather", "write")
        if lanes > 1 and (stride > 1 or (indexed and nest.vector in _index_dims(nest, inst))):
            return lanes * RANDOM_LANE
        return (2.0 if indexed else 1.0) / VECTOR_INSTRUCTIONS
    return cost_of(inst.op) / VECTOR_INSTRUCTIONS


def _index_dims(nest: LoopNest, inst: Inst) -> frozenset[int]:
    return nest.dims[inst.operands[0]]


def peak(dtype: DType, target: Target) -> float:
    """Floating-point operations per second of a product that fills its vectors and tiles."""
    return FLOPS_PER_VECTOR_BYTE * target.vector_bytes * 4 / dtype.itemsize
