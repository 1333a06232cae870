"""Last axes of two to four elements, as in positions (n, 3): their elements become values apart.

Sums over such an axis fill no vectors. With a value for each coordinate, what is computed between
two sums runs over the axis before it, in full vectors and in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from lucid.codegen import costs
from lucid.ir import ops
from lucid.ir.extents import hint, is_open
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.op import Trait
from lucid.ir.passes.rewrite import Rules, rewrite


def split_small_axes(graph: Graph) -> bool:
    """Compute the coordinates of what is summed over a small last axis apart from each other.

    f(x) -> concat(f(x[..., 0]), f(x[..., 1]), ...), of which those who sum coordinates, or compute
    with them, read the parts.
    """
    chosen = _chosen(graph, graph.uses())
    if not chosen:
        return False
    apart: dict[Value, list[Value]] = {}  # the coordinates of values that were computed apart
    sliced: dict[Value, list[Value]] = {}  # and of others
    read_often = _read_often(chosen, {*graph.results()})
    rules = Rules()

    def whole(parts: list[Value]) -> Value:
        columns = [ops.reshape(part, shape=(*part.shape, 1)) for part in parts]
        value: Value = ops.concat(*columns, axis=len(parts[0].shape))
        apart[value] = parts
        return value

    def coordinates(value: Value, count: int) -> list[Value]:
        """The coordinates of an operand, which may be broadcast along the last axis."""
        parts = apart.get(value) or sliced.get(value)
        if parts is None:
            parts = sliced[value] = _sliced(_transposed(value) if value in read_often else value)
        return parts if len(parts) == count else parts * count

    @rules.on(Trait.ELEMENTWISE)
    def compute_apart(node: Node) -> Value | None:
        if node.result not in chosen:
            return None
        count = node.result.shape[-1]
        operands = [coordinates(operand, count) for operand in node.operands]
        return whole([node.op(*xs, **node.attributes) for xs in zip(*operands, strict=True)])

    @rules.on(ops.sum)
    def sum_apart(node: Node) -> Value | None:
        parts = apart.get(node.operands[0])
        if parts is None:
            return None
        if _is_sum(node, over_last=True):
            return _total(parts, node.attributes["axes"])
        if _is_sum(node, over_last=False):
            return whole([ops.sum(x, **node.attributes) for x in parts])
        return None

    return rewrite(graph, rules)


def _is_small(value: Value) -> bool:
    *outer, last = value.shape or (0,)
    is_few = not is_open(last) and 1 < last <= costs.SMALL
    return is_few and bool(outer) and hint(prod(outer)) >= costs.LINES


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
        if value in found or node is None or not node.op.is_elementwise or not _is_small(value):
            continue
        found.add(value)
        near = [*node.operands, *(x for user in users.get(value, ()) for x in user.results)]
        pending += [other for other in near if other.shape == value.shape]
    return found


def _read_often(chosen: set[Value], left: set[Value]) -> set[Value]:
    """What is read again and again along the axis before the last, and lies row by row.

    So do inputs and results, which are `left`; of others the layout is chosen by who reads them.
    """
    found: set[Value] = set()
    for result in chosen:
        assert result.producer is not None
        for value in result.producer.operands:
            is_along = _is_small(value) and value.shape[-2:] == result.shape[-2:]
            if is_along and costs.GROWN * hint(value.type.size) <= hint(result.type.size):
                base = value
                while base.producer is not None and base.producer.op.is_view:
                    base = base.producer.operands[0]
                if base.producer is None or base in left:
                    found.add(value)
    return found


def _transposed(value: Value) -> Value:
    """A copy of a value in which each coordinate lies by itself."""
    last = len(value.shape) - 1
    columns = [ops.reshape(part, shape=(1, *part.shape)) for part in _sliced(value)]
    return ops.transpose(ops.concat(*columns, axis=0), perm=(*range(1, last + 1), 0))


def _sliced(value: Value) -> list[Value]:
    """The coordinates of a value, views of it."""
    last = len(value.shape) - 1
    if last < 0:
        return [value]
    ends = range(value.shape[last])
    parts = [ops.slice_axis(value, last, end, end + 1) for end in ends]
    return [ops.reshape(part, shape=value.shape[:-1]) for part in parts]


def _total(apart: Sequence[Value], axes: tuple[int, ...]) -> Value:
    """The sum of all coordinates, and over the other axes."""
    total = apart[0]
    for other in apart[1:]:
        total = ops.add(total, other)
    rest = tuple(axis for axis in axes if axis < len(total.shape))
    return ops.sum(total, axes=rest) if rest else total
