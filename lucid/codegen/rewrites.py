"""Identities that turn what automatic differentiation makes into what kernels are good at."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from lucid.ir import ops
from lucid.ir.graph import Node, Value
from lucid.ir.strides import Strides, contiguous_strides, view_strides
from lucid.ir.types import Shape

Uses = Mapping[Value, int]
"""How many operands, outputs and writes each value is."""


def sum_of_pads(node: Node, uses: Uses, sums: dict[Value, list[Node]]) -> Value | None:
    """pad(a) + pad(b) = concat(a, b), where zeros are padded so that no two parts overlap.

    The gradient of slices of one array is such a sum. Adding 0.0 to a part makes a -0.0 in it what
    it is in the sum.

    Args:
        sums: the pads of each sum that was replaced so far.
    """
    if node.op.name != "add":
        return None
    parts = [pad for operand in node.operands for pad in _pads(operand, uses, sums)]
    axis = _common_axis(parts)
    if axis is None or not all(_pads(operand, uses, sums) for operand in node.operands):
        return None
    parts.sort(key=lambda part: part.attributes["low"][axis])
    pieces = _pieces(parts, axis, node.result.shape[axis])
    if pieces is None:
        return None
    result = _value(ops.concat(*pieces, axis=axis))
    sums[result] = parts
    return result


def _pads(value: Value, uses: Uses, sums: Mapping[Value, list[Node]]) -> list[Node]:
    """The pads that a value is the sum of; none if it is anything else."""
    node = value.producer
    if node is None or uses.get(value, 0) != 1:
        return []
    if node.op.name == "pad" and _is_zero(node.operands[1]):
        return [node]
    return sums.get(value, [])


def _pieces(parts: list[Node], axis: int, size: int) -> list[Value] | None:
    """What lies along the axis, zeros between the parts; None where parts overlap."""
    x = parts[0].operands[0]
    pieces: list[Value] = []
    position = 0
    for part in [*parts, None]:
        start = size if part is None else part.attributes["low"][axis]
        if start < position:
            return None
        if start > position:
            shape = (*x.shape[:axis], start - position, *x.shape[axis + 1 :])
            pieces.append(ops.full(x, 0, shape, x.dtype))
        if part is not None:
            operand = part.operands[0]
            pieces.append(operand + 0.0 if x.dtype.kind == "float" else operand)
            position = start + operand.shape[axis]
    return pieces


def _common_axis(pads: list[Node]) -> int | None:
    """The one axis that all of them pad."""
    axes = {
        axis
        for pad in pads
        for axis, border in enumerate(
            zip(pad.attributes["low"], pad.attributes["high"], strict=True)
        )
        if any(border)
    }
    return axes.pop() if len(axes) == 1 else None


def _is_zero(value: Value) -> bool:
    """Whether all elements are the constant +0."""
    node = value.producer
    while node is not None and node.op.kind == "view":
        node = node.operands[0].producer
    return (
        node is not None
        and node.op.name == "constant"
        and not any(node.attributes["value"].tobytes())
    )


def sum_of_scatters(node: Node, uses: Uses) -> Value | None:
    """index_add(0, i, a) + index_add(0, j, b) = index_add(index_add(0, i, a), j, b).

    One array is filled instead of two, which would be added. A sum that starts with +0 is never
    -0, so that nothing is lost. The order in which elements are summed is that of the operands.
    """
    if node.op.name != "add":
        return None
    first, second = (operand.producer for operand in node.operands)
    if first is None or second is None or node.operands[0].shape != node.operands[1].shape:
        return None
    if first is second or not _starts_with_zero(first) or not _starts_with_zero(second):
        return None
    if any(uses.get(operand, 0) != 1 for operand in node.operands):
        return None
    if second.op.name not in _SUMS or not _is_zero(second.operands[0]):
        return None
    result = _value(second.op(first.result, *second.operands[1:], **second.attributes))
    assert result.producer is not None
    result.producer.location = second.location
    return result


_SUMS = ("index_add", "scatter_add")


def _starts_with_zero(node: Node | None) -> bool:
    while node is not None and node.op.name in _SUMS:
        if _is_zero(node.operands[0]):
            return True
        node = node.operands[0].producer
    return False


def elementwise_of_repeated(node: Node) -> Value | None:
    """f(reshape(x), y) = reshape(f(x, reshape(y))), where x repeats elements of another array.

    What is repeated along an axis that a reshape merges with another one can't be read by strides;
    before the reshape it can.
    """
    if node.op.kind != "map":
        return None
    shape = node.result.shape
    for operand in node.operands:
        view = operand.producer
        if view is None or view.op.name != "reshape" or operand.shape != shape:
            continue
        inner = view.operands[0]
        before = strides_of(inner)
        if before is None or strides_of(operand) is not None or 0 not in before:
            continue
        groups = _merged_axes(inner.shape, shape)
        if groups is None:
            continue
        parts = [
            inner if other is operand else _unmerged(other, groups, inner.shape)
            for other in node.operands
        ]
        return _value(ops.reshape(node.op(*parts, **node.attributes), shape=shape))
    return None


def strides_of(value: Value) -> Strides | None:
    """Strides of a view of something contiguous; None where only a copy has its shape."""
    node = value.producer
    if node is None or node.op.kind != "view":
        return contiguous_strides(value.shape)
    seen = strides_of(node.operands[0])
    if seen is None:
        return contiguous_strides(value.shape)  # the view of a copy
    return view_strides(node.op, node.attributes, node.operands[0].shape, seen)


def _merged_axes(old: Shape, new: Shape) -> list[Shape] | None:
    """For each new axis the sizes of the old ones that it merges; None if one is cut."""
    groups: list[Shape] = []
    position = 0
    for size in new:
        start = position
        while position < len(old) and (prod(old[start:position]) < size or position == start):
            position += 1
        if prod(old[start:position]) != size:
            return None
        groups.append(old[start:position])
    rest = old[position:]
    if prod(rest) != 1 or not groups:
        return None
    groups[-1] = groups[-1] + rest
    return groups


def _unmerged(value: Value, groups: list[Shape], shape: Shape) -> Value:
    """An operand that is broadcast to the merged shape, in the shape before."""
    if not value.shape:
        return value
    mine = groups[len(groups) - len(value.shape) :]
    sizes = [
        part if size != 1 else (1,) * len(part)
        for size, part in zip(value.shape, mine, strict=True)
    ]
    return _value(ops.reshape(value, shape=tuple(n for part in sizes for n in part)))


def _value(result: object) -> Value:
    assert isinstance(result, Value)
    return result
