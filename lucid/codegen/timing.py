"""How long kernels take on one core: a model good enough to decide whether threads pay.

It looks at shapes and instructions only, so that the same program gives the same code.
"""

from __future__ import annotations

from math import prod

from lucid.codegen.costs import cost_of
from lucid.codegen.kernel import (
    AxesKernel,
    CheckKernel,
    ContractKernel,
    HostKernel,
    Inst,
    Kernel,
    LoopKernel,
    SortKernel,
)
from lucid.codegen.lowering import ELEMENTS
from lucid.codegen.sorting import method, passes
from lucid.codegen.target import Target
from lucid.ir.types import DType

# Measured on one core of a current server processor; others differ by less than the model errs.
VECTOR_INSTRUCTIONS = 4.5e9  # per second, of full width
FLOPS_PER_VECTOR_BYTE = 2.8e9  # of matrix products: per second and byte of the vector width
SMALL_TILE_FLOPS = 0.5  # fraction of that where a vector or a tile isn't filled
CACHE_BYTES = 1 << 20
CACHE_RATE = 60e9  # bytes per second, up to that size
MEMORY_RATE = 20e9
RANDOM_LANE = 1.2e-9  # seconds for each lane that is read or written at an address of its own
HOST_SECONDS = 1e-3  # of a call of Python: it may take long
SORT_STEP = 1.5e-9  # seconds for each element and pass of a sort


def seconds(kernel: Kernel, target: Target) -> float:
    """The estimated time of a call of a kernel in one thread."""
    if isinstance(kernel, LoopKernel):
        return loop_seconds(kernel, kernel.lanes)
    if isinstance(kernel, ContractKernel):
        return contract_seconds(kernel, target)
    if isinstance(kernel, AxesKernel):
        return axes_seconds(kernel, target)
    if isinstance(kernel, HostKernel):
        return HOST_SECONDS
    if isinstance(kernel, CheckKernel):
        return prod(kernel.shape) / VECTOR_INSTRUCTIONS
    return sort_seconds(kernel)


def loop_seconds(kernel: LoopKernel, lanes: int) -> float:
    """The slower of computing and of moving the bytes."""
    computing = moved = 0.0
    for number, inst in enumerate(kernel.insts):
        dims = kernel.dims[number]
        if inst.op == "reduce":
            dims |= kernel.dims[inst.operands[0]]
        rounds = float(prod(kernel.sizes[dim] for dim in dims))
        wide = lanes if kernel.vector in dims else 1
        computing += rounds / wide * _inst_seconds(kernel, inst, wide)
        if inst.form is not None and inst.has_address:
            moved += inst.dtype.itemsize * prod(kernel.sizes[dim] for dim in inst.form.dims)
    return max(computing, moved / (CACHE_RATE if moved <= CACHE_BYTES else MEMORY_RATE))


def _inst_seconds(kernel: LoopKernel, inst: Inst, lanes: int) -> float:
    """One execution for `lanes` lanes."""
    if inst.op in ("const", "product"):
        return 0.0
    if inst.has_address and inst.form is not None:
        stride = abs(inst.form.coefficient(kernel.vector))
        indexed = inst.op in ("gather", "write")
        if lanes > 1 and (stride > 1 or (indexed and kernel.vector in _index_dims(kernel, inst))):
            return lanes * RANDOM_LANE
        return (2.0 if indexed else 1.0) / VECTOR_INSTRUCTIONS
    return cost_of(inst.op) / VECTOR_INSTRUCTIONS


def _index_dims(kernel: LoopKernel, inst: Inst) -> frozenset[int]:
    return kernel.dims[inst.operands[0]]


def sort_seconds(kernel: SortKernel) -> float:
    """Passes over entries; to seek a few, or to count, takes vectors for each."""
    way, length = method(kernel), kernel.length
    rounds = 2.0 + passes(kernel)
    if way != "digits":
        rounds = 2.0 + (length if way == "count" else kernel.kept) / 12
    return prod(kernel.shape) * length * rounds * SORT_STEP


def contract_seconds(kernel: ContractKernel, target: Target) -> float:
    """The multiply-adds, and what is computed from the product."""
    dtype = kernel.body.args[0]
    batch = prod(kernel.batch)
    flops = 2.0 * batch * kernel.rows * kernel.inner * kernel.columns
    return flops / product_rate(kernel, dtype, target) + loop_seconds(
        kernel.body, target.lanes(ELEMENTS[dtype])
    )


def product_rate(kernel: ContractKernel, dtype: DType, target: Target) -> float:
    """Floating-point operations per second of a product."""
    narrow = kernel.columns < target.lanes(ELEMENTS[dtype]) or kernel.rows < 4
    return _peak(dtype, target) * (SMALL_TILE_FLOPS if narrow else 1.0)


def _peak(dtype: DType, target: Target) -> float:
    return FLOPS_PER_VECTOR_BYTE * target.vector_bytes * 4 / dtype.itemsize


def axes_seconds(kernel: AxesKernel, target: Target) -> float:
    """The same for a product over axes."""
    dtype = kernel.body.args[0]
    rounds = float(prod(axis.size for axis in (*kernel.loops, *kernel.inner)))
    filled = kernel.lanes / target.lanes(ELEMENTS[dtype])
    product = 2.0 * rounds / (_peak(dtype, target) * max(filled * SMALL_TILE_FLOPS, 0.1))
    return product + loop_seconds(kernel.body, kernel.lanes)
