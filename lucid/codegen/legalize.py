"""Rewrites of a graph into ops that the kernels are good at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf

from lucid.codegen import costs
from lucid.codegen.rewrites import elementwise_of_repeated, sum_of_pads, sum_of_scatters
from lucid.codegen.unfolding import as_product
from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.passes.rewrite import inherit_notes


def legalize(graph: Graph) -> list[Node]:
    """Replace nodes by simpler ones, where there are any.

    Returns the indexed nodes that are gone: their indices must still be checked.
    """
    uses = Counter(operand for node in graph.nodes for operand in node.operands)
    uses.update([*graph.outputs, *(value for _, value in graph.writes)])
    replacement: dict[Value, Value] = {}
    sums: dict[Value, list[Node]] = {}
    gone: list[Node] = []
    reduced = _reduced_axes(graph)
    old, graph.nodes = graph.nodes, []
    for node in old:
        node.operands = tuple(replacement.get(v, v) for v in node.operands)
        start = len(graph.nodes)
        result = _pointwise_scatter(node) or _reduction_of_gather(node, reduced)
        if result is not None:
            gone.append(node)
        elif node.op.kind == "check":
            result = node.operands[0]
        else:
            result = _simpler(node, uses, sums)
        if result is None:
            result = _disjoint_windows(node)
        for made in graph.nodes[start:]:
            inherit_notes(made, node)
        if result is None or node.op.kind == "check":
            graph.nodes.append(node)
        if result is not None:
            replacement[node.result] = result
            uses[result] += uses[node.result]
    graph.substitute(replacement)
    graph.drop_dead_nodes()
    return gone


def _simpler(node: Node, uses: Mapping[Value, int], sums: dict[Value, list[Node]]) -> Value | None:
    return (
        _trivial_reduction(node)
        or sum_of_pads(node, uses, sums)
        or sum_of_scatters(node, uses)
        or elementwise_of_repeated(node)
        or as_product(node)
    )


def _trivial_reduction(node: Node) -> Value | None:
    """Over axes of one element: a reshape; its position is 0."""
    if node.op.kind != "reduce":
        return None
    x, attributes = node.operands[0], node.attributes
    axes = attributes["axes"] if "axes" in attributes else (attributes["axis"],)
    if any(x.shape[axis] != 1 for axis in axes):
        return None
    type_ = node.result.type
    if "axis" in attributes:
        result = ops.full(x, 0, type_.shape, type_.dtype)
    else:
        result = ops.reshape(x, shape=type_.shape)
    assert isinstance(result, Value)
    return result


def _pointwise_scatter(node: Node) -> Value | None:
    """scatter_add(b, i, s) with one index per line = where(iota == i, b + s, b): no serial loop.

    Without duplicates on the axis each element gets at most one addend, so that the sum becomes
    elementwise and fuses; the gradient of a cross-entropy has this form.
    """
    if node.op.name not in ("scatter_add", "scatter"):
        return None
    base, index, source = node.operands
    axis: int = node.attributes["axis"]
    if index.shape != ops.kept_axes(base.shape, (axis,)) or not base.type.size:
        return None
    position = _from_the_front(index, base.shape[axis])
    count = ops.indices(index, base.shape, axis, index.dtype)
    updated = ops.add(base, source) if node.op.name == "scatter_add" else source
    result = ops.where(ops.eq(count, position), updated, base)
    assert isinstance(result, Value)
    return result


def _reduced_axes(graph: Graph) -> dict[Value, set[int]]:
    """The axes along which each value is reduced."""
    found: dict[Value, set[int]] = {}
    for node in graph.nodes:
        if node.op.kind == "reduce" and "axes" in node.attributes:
            found.setdefault(node.operands[0], set()).update(node.attributes["axes"])
    return found


def _reduction_of_gather(node: Node, reduced: Mapping[Value, set[int]]) -> Value | None:
    """gather(x, i) = amax(where(iota == i, x, -inf)), with one index per line of a computed x.

    Where the lines are long, and gone over anyway for sums of what x is made of, x need not be
    stored for the sake of a few elements: the loss of a cross-entropy has this form.
    """
    if node.op.name != "gather" or not node.result.dtype.is_floating_point:
        return None
    x, index = node.operands
    axis: int = node.attributes["axis"]
    if x.shape[axis] < costs.LONG:
        return None
    if index.shape != ops.kept_axes(x.shape, (axis,)) or not _is_reduced_near(x, axis, reduced):
        return None
    count = ops.indices(index, x.shape, axis, index.dtype)
    nothing = ops.full(x, -inf, x.shape, x.dtype)
    chosen = ops.where(ops.eq(count, _from_the_front(index, x.shape[axis])), x, nothing)
    result = ops.reshape(ops.amax(chosen, axes=(axis,)), shape=index.shape)
    assert isinstance(result, Value)
    return result


def _is_reduced_near(x: Value, axis: int, reduced: Mapping[Value, set[int]]) -> bool:
    """Whether x is computed, elementwise, from something that is reduced along the axis."""
    seen: set[Value] = set()
    todo = [x]
    while todo:
        value = todo.pop()
        node = value.producer
        if node is None or node.op.kind != "map" or value in seen or value.shape != x.shape:
            continue
        seen.add(value)
        if any(axis in reduced.get(other, ()) for other in (value, *node.operands)):
            return True
        todo += node.operands
    return False


def _from_the_front(index: Value, size: int) -> Value:
    """Indices that count from the end as those from the beginning."""
    negative = ops.lt(index, ops.zero(index))
    result = ops.where(negative, ops.add(index, index.constant(size, index.dtype)), index)
    assert isinstance(result, Value)
    return result


def _disjoint_windows(node: Node) -> Value | None:
    """overlap_add of windows that touch but don't overlap: a reshape, with zeros behind."""
    attributes = node.attributes
    if node.op.name != "overlap_add" or set(attributes["dilations"]) != {1}:
        return None
    x, axes = node.operands[0], attributes["axes"]
    rank = len(node.result.shape)
    if attributes["steps"] != x.shape[rank:]:
        return None
    order: list[int] = []
    for axis in range(rank):
        order += [axis, rank + axes.index(axis)] if axis in axes else [axis]
    steps = dict(zip(axes, attributes["steps"], strict=True))
    covered = tuple(size * steps.get(axis, 1) for axis, size in enumerate(x.shape[:rank]))
    result = ops.reshape(ops.transpose(x, perm=tuple(order)), shape=covered)
    behind = tuple(n - size for n, size in zip(node.result.shape, covered, strict=True))
    if any(behind):
        result = ops.pad(result, ops.zero(x), low=(0,) * rank, high=behind)
    assert isinstance(result, Value)
    return result
