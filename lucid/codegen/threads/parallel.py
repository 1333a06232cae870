"""How kernels are cut into parts that threads share.

Whether and where is decided here, at compile time, by shapes and estimated costs alone: never by
the number of threads. Every part computes what it would compute in a single thread, in the same
order, so results are bit-identical for any number of threads.

Loops are cut along a kept dim, products into blocks of rows and columns. Reductions to less than
that become several kernels, which fold fixed blocks first (`blocks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from lucid.codegen import costs
from lucid.codegen.kernel_ir.kernel import Partition
from lucid.ir.extents import hint


def wanted_parts(seconds: float) -> int:
    """How many parts work of this length should have; 1 if it should stay whole."""
    if seconds < costs.WORTH_SECONDS:
        return 1
    few = min(costs.LEAST_PARTS, max(2, int(seconds / costs.SHORT_PART_SECONDS)))
    return min(costs.MOST_PARTS, max(few, round(seconds / costs.PART_SECONDS)))


def best_cut(
    sizes: Sequence[int], dims: Sequence[int], unit_of: Callable[[int], int], wanted: int
) -> Partition | None:
    """Cut the outermost dim that gives enough parts, else the one that gives the most.

    Args:
        unit_of: values of a dim that stay together.
    """
    best: Partition | None = None
    for dim in dims:
        unit = unit_of(dim)
        units = ceil(hint(sizes[dim]) / unit)
        size = ceil(units / min(wanted, units)) * unit
        count = -(-sizes[dim] // size)
        if hint(count) > (1 if best is None else hint(best.count)):
            best = Partition(dim, size, count)
        if units >= wanted:
            break
    return best
