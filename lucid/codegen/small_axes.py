"""Last axes of two to four elements, as in positions (n, 3): their elements become values apart.

Sums over such an axis fill no vectors. With a value for each coordinate, what is computed between
two sums runs over the axis before it, in full vectors and in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import cast

from lucid.codegen import costs
from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.passes.rewrite import inherit_notes


def split_small_axes(graph: Graph) -> None:
    """Compute the coordinates of what is summed over a small last axis apart from each other."""
    users: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for operand in node.operands:
            users.setdefault(operand, []).append(node)
    chosen = _chosen(graph, users)
    if chosen:
        _Split(graph, chosen).run()


def _is_small(value: Value) -> bool:
    shape = value.shape
    return len(shape) > 1 and 1 < shape[-1] <= costs.SMALL and prod(shape[:-1]) >= costs.LINES


def _is_sum(node: Node, over_last: bool) -> bool:
    """Whether a node is a sum of coordinates, or of all but these."""
    if node.op is not ops.sum or not _is_small(node.operands[0]):
        return False
    return (len(node.operands[0].shape) - 1 in node.attributes["axes"]) == over_last


def _chosen(graph: Graph, users: dict[Value, list[Node]]) -> set[Value]:
    """The elementwise values that are connected with a sum of coordinates."""
    pending = [node.operands[0] for node in graph.nodes if _is_sum(node, over_last=True)]
    found: set[Value] = set()
    while pending:
        value = pending.pop()
        node = value.producer
        if value in found or node is None or node.op.kind != "map" or not _is_small(value):
            continue
        found.add(value)
        near = [*node.operands, *(x for user in users.get(value, ()) for x in user.results)]
        pending += [other for other in near if other.shape == value.shape]
    return found


class _Split:
    """The graph with the coordinates of chosen values apart."""

    def __init__(self, graph: Graph, chosen: set[Value]) -> None:
        self._graph = graph
        self._chosen = chosen
        self._apart: dict[Value, list[Value]] = {}  # of values that are computed in no other way
        self._parts: dict[Value, list[Value]] = {}  # of other values, views
        self._whole: dict[Value, Value] = {}

    def run(self) -> None:
        graph = self._graph
        old, graph.nodes = graph.nodes, []
        for node in old:
            start = len(graph.nodes)
            if not self._compute_apart(node):
                node.operands = tuple(map(self._as_whole, node.operands))
                graph.nodes.append(node)
            for made in graph.nodes[start:]:
                if made is not node:
                    inherit_notes(made, node)
        graph.outputs = [*map(self._as_whole, graph.outputs)]
        graph.writes = [(cell, self._as_whole(value)) for cell, value in graph.writes]
        graph.drop_dead_nodes()

    def _compute_apart(self, node: Node) -> bool:
        """Compute the coordinates of a node's result, or the sum of coordinates that it is."""
        if len(node.results) == 1 and node.result in self._chosen:
            count = node.result.shape[-1]
            operands = [self._coordinates(operand, count) for operand in node.operands]
            self._apart[node.result] = [
                node.op(*coordinates, **node.attributes)
                for coordinates in zip(*operands, strict=True)
            ]
            return True
        apart = self._apart.get(node.operands[0]) if node.operands else None
        if apart is not None and _is_sum(node, over_last=True):
            self._whole[node.result] = _total(apart, node.attributes["axes"])
        elif apart is not None and _is_sum(node, over_last=False):
            self._apart[node.result] = [ops.sum(x, **node.attributes) for x in apart]
        else:
            return False
        return True

    def _coordinates(self, value: Value, count: int) -> list[Value]:
        """The coordinates of an operand, which may be broadcast along the last axis."""
        if value in self._apart:
            return self._apart[value]
        if value not in self._parts:
            whole, last = self._as_whole(value), len(value.shape) - 1
            parts = [whole]
            if last >= 0:
                ends = range(value.shape[last])
                parts = [ops.slice_axis(whole, last, end, end + 1) for end in ends]
                parts = [ops.reshape(part, shape=value.shape[:-1]) for part in parts]
            self._parts[value] = parts
        parts = self._parts[value]
        return parts if len(parts) == count else parts * count

    def _as_whole(self, value: Value) -> Value:
        """The value for who needs all of it."""
        if value in self._apart and value not in self._whole:
            parts = [ops.reshape(part, shape=(*part.shape, 1)) for part in self._apart[value]]
            self._whole[value] = ops.concat(*parts, axis=len(value.shape) - 1)
        return self._whole.get(value, value)


def _total(apart: Sequence[Value], axes: tuple[int, ...]) -> Value:
    """The sum of all coordinates, and over the other axes."""
    total = apart[0]
    for other in apart[1:]:
        total = ops.add(total, other)
    rest = tuple(axis for axis in axes if axis < len(total.shape))
    return cast(Value, ops.sum(total, axes=rest) if rest else total)
