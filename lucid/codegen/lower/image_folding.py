"""Convolutions of small images as products whose columns are the positions in all images.

A contraction is computed for one image after the other, if these aren't neighbours in its result.
Where an image has few positions, vectors and tiles aren't filled, and weights are read anew for
each of them. Then all positions become the columns of one product, whose result is put in order by
a loop of its own.
"""

from __future__ import annotations

from math import prod

from lucid.codegen import costs
from lucid.ir import ops
from lucid.ir.extents import hint
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.ops.contraction import split_indices
from lucid.ir.passes.rewrite import Rules, rewrite

_RULES = Rules()


def fold_images(graph: Graph) -> bool:
    """contract(a, b) -> transpose(contract(a, b)), rows before columns, where images are small."""
    return rewrite(graph, _RULES)


@_RULES.on(ops.contract)
def _folded(node: Node) -> Value | None:
    lhs, rhs, result = split_indices(node.attributes["indices"])
    if not has_small_images(node, result):
        return None
    rows, columns = ("".join(x for x in result if x in letters) for letters in (lhs, rhs))
    order = columns + rows if result[-1] in rows else rows + columns
    product = ops.contract(*node.operands, indices=f"{lhs},{rhs}->{order}")
    return ops.transpose(product, perm=tuple(map(order.index, result)))


def has_small_images(node: Node, order: str) -> bool:
    """Whether a contraction stored with its axes in this order has few neighbours in a row of it.

    The row is what the last axis is of, rows or columns; it may be the whole result's.
    """
    lhs, rhs, result = split_indices(node.attributes["indices"])
    if not node.result.dtype.is_floating_point or set(lhs) & set(rhs) & set(result):
        return False
    sizes = dict(zip(lhs + rhs, (*node.operands[0].shape, *node.operands[1].shape), strict=True))

    def extent(axes: str) -> int:
        return int(hint(prod(sizes[axis] for axis in axes)))

    rows, columns = ("".join(x for x in result if x in letters) for letters in (lhs, rhs))
    inner = "".join(axis for axis in lhs if axis not in result)
    order = "".join(axis for axis in order if sizes[axis] > 1)
    if min(map(extent, (rows, columns, inner))) < costs.MATRIX or not order:
        return False
    last = rows if order[-1] in rows else columns
    image = order[len(order.rstrip(last)) :]
    return extent(image) < min(costs.IMAGE, extent(last))
