"""Checks that a step makes no NaN and no infinity."""

from __future__ import annotations

from lucid.ir import ops
from lucid.ir.graph import Graph, Value
from lucid.ir.types import f64, i64

# Each element of an operand, where it isn't finite, makes one of the result that isn't.
_CARRIERS = {
    op: range(2 if op in (ops.add, ops.sub, ops.mul) else 1)
    for op in (ops.add, ops.sub, ops.mul, ops.div, ops.neg, ops.sqrt, ops.transpose, ops.reshape)
}


def check_finite(graph: Graph) -> bool:
    """Let a step end before it stores anything, unless all floats that it leaves are finite.

    x * 0 is 0 for a finite x and NaN for any other, so one sum tells of all elements of a result.
    It is the last effect of the graph, and so comes before all stores into inputs. A result that
    another one is made of, by sums and products, isn't looked at: that one tells of it as well.
    """
    found = dict.fromkeys(value for value in graph.results() if _is_computed(value))
    carried = _carried(found)
    total: Value | None = None
    for value in found:
        if value not in carried:
            zero = value * graph.constant(0.0, value.dtype)
            if value.shape:
                zero = ops.sum(zero, axes=tuple(range(len(value.shape))))
            wide = zero if value.dtype is f64 else ops.cast(zero, dtype=f64)
            total = wide if total is None else total + wide
    if total is None:
        return False
    fails = ops.cast(ops.ne(total, total), dtype=i64)
    given = {"low": 0, "high": 1, "message": "", "error": "finite"}
    graph.append(ops.check, (fails,), given)
    return True


def drop_finite_check(graph: Graph) -> bool:
    """Take the check back, for a step that passes on what isn't finite and makes none of it."""
    count = len(graph.nodes)
    graph.nodes = [x for x in graph.nodes if x.attributes.get("error") != "finite"]
    changed = len(graph.nodes) < count
    return graph.drop_dead_nodes() or changed


def _is_computed(value: Value) -> bool:
    return value.dtype.kind == "float" and value.producer is not None


def _carried(results: dict[Value, None]) -> set[Value]:
    """The values of which each of some results tells whether they are finite."""
    carried: set[Value] = set()
    pending = list(results)
    while pending:
        node = pending.pop().producer
        if node is None:
            continue
        for number in _CARRIERS.get(node.op, ()):
            operand = node.operands[number]
            if operand not in carried and operand.type.size <= node.result.type.size:
                carried.add(operand)
                pending.append(operand)
    return carried
