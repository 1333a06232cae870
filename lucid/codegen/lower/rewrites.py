"""Identities that turn what automatic differentiation makes into what kernels are good at."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from math import prod

from lucid.codegen import costs
from lucid.ir import ops
from lucid.ir.extents import hint
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.op import Trait
from lucid.ir.passes.rewrite import Rewriter, Rules, rewrite
from lucid.ir.strides import Strides, contiguous_strides, view_strides
from lucid.ir.types import Shape


def _is_zero(value: Value) -> bool:
    """Whether all elements are the constant +0."""
    node = value.producer
    while node is not None and node.op.is_view:
        node = node.operands[0].producer
    return (
        node is not None and node.op is ops.constant and not any(node.attributes["value"].tobytes())
    )


def chain_scatters(graph: Graph) -> bool:
    """index_add(0, i, a) + index_add(0, j, b) -> index_add(index_add(0, i, a), j, b).

    One array is filled instead of two, which would be added. A sum that starts with +0 is never
    -0, so that nothing is lost. The order in which elements are summed is that of the operands.
    """
    rewriter, rules = Rewriter(graph), Rules()

    @rules.on(ops.add)
    def sum_of_scatters(node: Node) -> Value | None:
        first, second = (operand.producer for operand in node.operands)
        if first is None or second is None or node.operands[0].shape != node.operands[1].shape:
            return None
        if first is second or not _starts_with_zero(first) or not _starts_with_zero(second):
            return None
        if not all(map(rewriter.is_read_once, node.operands)):
            return None
        if second.op not in _SUMS or not _is_zero(second.operands[0]):
            return None
        return _value(second.op(first.result, *second.operands[1:], **second.attributes))

    return rewriter.run(rules)


_SUMS = (ops.index_add, ops.scatter_add)


def _starts_with_zero(node: Node | None) -> bool:
    while node is not None and node.op in _SUMS:
        if _is_zero(node.operands[0]):
            return True
        node = node.operands[0].producer
    return False


def lift_reshapes(graph: Graph) -> bool:
    """f(reshape(x), y) -> reshape(f(x, reshape(y))), where x repeats elements of another array.

    What is repeated along an axis that a reshape merges with another one can't be read by strides;
    before the reshape it can.
    """
    return rewrite(graph, _REPEATED)


_REPEATED = Rules()


@_REPEATED.on(Trait.ELEMENTWISE)
def _elementwise_of_repeated(node: Node) -> Value | None:
    shape = node.result.shape
    for operand in node.operands:
        view = operand.producer
        if view is None or view.op is not ops.reshape or operand.shape != shape:
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
    if node is None or not node.op.is_view:
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


def reduce_small_first(graph: Graph) -> bool:
    """Put reductions of what is small, and what follows from them, before what is much larger.

    Only the order changes. Loops are fused in that order: one over all classes of all samples can
    then use the number of samples that count, which otherwise is summed with the losses, after it.
    """
    reach: dict[Value, int] = {e.value: hint(e.value.type.size) for e in graph.inputs}
    behind = dict.fromkeys(reach, -1)  # the node after which a value can be computed at once
    sizes: list[int] = []
    peaks: list[int] = []  # the nodes that are larger than all behind them
    early: set[Value] = set()  # reductions of what is small, and what follows from them
    moved: dict[Node, int] = {}
    for number, node in enumerate(graph.nodes):
        size, at = 0, -1
        for result in node.results:
            size = max(size, hint(result.type.size))
        for operand in node.operands:
            size, at = max(size, reach[operand]), max(at, behind[operand])
        sizes.append(size)
        while peaks and sizes[peaks[-1]] <= size:
            peaks.pop()
        peaks.append(number)
        if node.has_effect:
            at = number
        for result in node.results:
            reach[result], behind[result] = size, at
        if node.op.is_reduction or not early.isdisjoint(node.operands):
            early.update(node.results)
            if at < number and size * costs.GROWN <= sizes[peaks[bisect_right(peaks, at)]]:
                _move(node, moved, behind)
    if not moved:
        return False
    follow: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node in moved:
            follow.setdefault(moved[node], []).append(node)
    order = [*follow.get(-1, ())]
    for number, node in enumerate(graph.nodes):
        order += [] if node in moved else [node, *follow.get(number, ())]
    changed = order != graph.nodes
    graph.nodes = order
    return changed


def _move(node: Node, moved: dict[Node, int], behind: Mapping[Value, int]) -> None:
    """Enter a node, and what it is computed from, with the place that they can go to."""
    pending = [node]
    while pending:
        each = pending.pop()
        if each in moved or each.has_effect:
            continue
        moved[each] = behind[each.results[0]]  # those of a node are at one place
        pending += [x.producer for x in each.operands if x.producer is not None]


def _value(result: object) -> Value:
    assert isinstance(result, Value)
    return result
