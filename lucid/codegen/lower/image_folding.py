"""Convolutions of small images as products whose columns are the positions in all images.

A contraction is computed for one image after the other, if these aren't neighbours in its result.
Where an image has few positions, vectors and tiles aren't filled, and weights are read anew for
each of them. Then all positions become the columns of one product, whose result is put in order by
a loop of its own.

Where many of the elements that a convolution multiplies are zeros around small images, the images
are the innermost axis: neighbouring columns are then at one position, and a product in blocks
leaves out what meets zeros alone (`contraction/blocked.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from lucid.codegen import costs
from lucid.ir import ops
from lucid.ir.extents import hint
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.ops.contraction import split_indices
from lucid.ir.passes.cse import cse
from lucid.ir.passes.rewrite import Rules, producer_of, rewrite, uniform

Bounds = tuple[int, int]
_RULES = Rules()
_SLICE = ("starts", "stops", "steps")


def fold_images(graph: Graph) -> bool:
    """contract(a, b) -> transpose(contract(a, b)), rows before columns, where images are small."""
    changed = rewrite(graph, _RULES)
    if changed:
        cse(graph)  # copies that several convolutions read
    return changed


@_RULES.on(ops.contract)
def _with_images_innermost(node: Node) -> Value | None:
    """contract(w, windows(pad(x))) -> the same of a transposed x: positions, channels, images."""
    views = padded_windows(node.operands[1])
    if views is None or not node.result.dtype.is_floating_point:
        return None
    lhs, rhs, result = split_indices(node.attributes["indices"])
    windows, bounds = views
    along, sizes = windows.attributes["axes"], dict(zip(rhs, node.operands[1].shape, strict=True))
    of_x, places = rhs[: len(bounds)], rhs[len(bounds) :]
    positions = "".join(of_x[axis] for axis in along)
    rows = "".join(x for x in result if x in lhs)
    images = "".join(x for x in of_x if x in result and x not in positions)
    channels = "".join(x for x in of_x if x not in positions + images)
    if set(rows) & set(rhs) or not set(positions) <= set(result) or set(places) & set(result):
        return None
    order = positions + channels + images
    if not images or of_x == order or not channels:
        return None

    def extent(axes: str) -> int:
        return int(hint(prod(sizes[axis] for axis in axes)))

    row_count = int(hint(node.result.type.size)) // max(extent(positions + images), 1)
    if min(row_count, extent(channels)) < costs.PADDED_MATRIX or extent(images) < costs.IMAGES:
        return None
    if extent(places) > costs.PLACES:
        return None
    if _share_inside(windows, bounds) > costs.INSIDE:
        return None
    perm = tuple(map(of_x.index, order))
    view = ops.windows(
        _copied(windows.operands[0], perm),
        **{**windows.attributes, "axes": tuple(map(perm.index, along))},
    )
    stored = rows + positions + images
    indices = f"{lhs},{order}{places}->{stored}"
    product = ops.contract(node.operands[0], view, indices=indices)
    return ops.transpose(product, perm=tuple(map(stored.index, result)))


def _copied(x: Value, perm: tuple[int, ...]) -> Value:
    """An array whose axes lie in another order; of a slice, one of the whole array."""
    node = producer_of(x, ops.slice)
    if node is not None:
        place = {name: tuple(node.attributes[name][axis] for axis in perm) for name in _SLICE}
        part: Value = ops.slice(_copied(node.operands[0], perm), **place)
        return part
    none = (0,) * len(perm)
    x = ops.transpose(x, perm=perm)
    copy: Value = ops.pad(x, x.constant(0, x.dtype), low=none, high=none)
    return copy


def _has_images_innermost(node: Node) -> bool:
    """Whether neighbours in a contraction's result are at one position of padded windows."""
    _, rhs, result = split_indices(node.attributes["indices"])
    views = padded_windows(node.operands[1])
    if views is None or result[-1:] not in rhs:
        return False
    return rhs.index(result[-1]) not in views[0].attributes["axes"]


def padded_windows(value: Value) -> tuple[Node, list[Bounds]] | None:
    """The view, if a value is windows, and what isn't zeros around on each axis that it is of."""
    windows = producer_of(value, ops.windows)
    bounds = None if windows is None else _bounds(windows.operands[0])
    return None if windows is None or bounds is None else (windows, bounds)


def _bounds(x: Value) -> list[Bounds] | None:
    """From where to where an array isn't padding, along each axis."""
    node = x.producer
    if node is not None and node.op is ops.transpose:
        inside = _bounds(node.operands[0])
        return inside and [inside[axis] for axis in node.attributes["perm"]]
    if node is not None and node.op is ops.slice and {*node.attributes["steps"]} == {1}:
        inside = _bounds(node.operands[0])
        starts = node.attributes["starts"]
        return inside and [(a - n, b - n) for (a, b), n in zip(inside, starts, strict=True)]
    if node is None or node.op is not ops.pad or uniform(node.operands[1]) != 0:
        return None
    low = node.attributes["low"]
    if not any((*low, *node.attributes["high"])):
        return _bounds(node.operands[0])
    return [(n, n + size) for n, size in zip(low, node.operands[0].shape, strict=True)]


def _share_inside(windows: Node, bounds: Sequence[Bounds]) -> float:
    """The share of the windows' elements that aren't padding."""
    share = 1.0
    names = ("axes", "sizes", "steps", "dilations")
    along = zip(*(windows.attributes[name] for name in names), strict=True)
    for axis, size, step, dilation in along:
        low, high = map(hint, bounds[axis])
        count = hint(windows.result.shape[axis])
        places = np.add.outer(np.arange(count) * step, np.arange(size) * dilation)
        share *= float(((places >= low) & (places < high)).mean())
    return share


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
    if order[-1:] != result[-1:] and _has_images_innermost(node):
        return True
    order = "".join(axis for axis in order if sizes[axis] > 1)
    if min(map(extent, (rows, columns, inner))) < costs.MATRIX or not order:
        return False
    last = rows if order[-1] in rows else columns
    image = order[len(order.rstrip(last)) :]
    return extent(image) < min(costs.IMAGE, extent(last))
