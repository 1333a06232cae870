"""Checks that a step makes no NaN and no infinity."""

from __future__ import annotations

from collections.abc import Iterable

from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.op import Op
from lucid.ir.passes.bounds import Bounds, Limits
from lucid.ir.types import f64, i64

# Each element of an operand, where it isn't finite, makes one of the result that isn't.
_CARRIERS = {
    op: range(2 if op in (ops.add, ops.sub, ops.mul) else 1)
    for op in (ops.add, ops.sub, ops.mul, ops.div, ops.neg, ops.sqrt, ops.transpose, ops.reshape)
}


def check_finite(graph: Graph) -> bool:
    """Let a step end before it stores anything, unless all floats that it leaves are finite.

    The new state of an optimizer isn't waited for where bounds of what it is computed from say that
    it is finite (`bounds.py`): these are looked at in its place. So what is finite may fail, if it
    is out of these bounds; `check_finite_exactly` is to decide then.
    """
    bounds = Bounds(_late(graph), {cell for cell, _ in graph.writes})
    looked_at: dict[Value, Limits] = {}
    others: dict[Value, None] = {}
    for value in _computed(graph):
        known = bounds.leaves(value)
        if known is None:
            others[value] = None
        else:
            looked_at.update(known)
    looked_at |= {x: Limits.of(x.dtype) for x in others if x not in looked_at}
    return _check(graph, looked_at)


def check_finite_exactly(graph: Graph) -> bool:
    """Let a step end before it stores anything, if and only if a float that it leaves isn't finite.

    A result that another one is made of, by sums and products, isn't looked at: that one tells of
    it as well.
    """
    found = _computed(graph)
    carried = _carried(found)
    return _check(graph, {x: Limits.of(x.dtype) for x in found if x not in carried})


def drop_finite_check(graph: Graph) -> bool:
    """Take the check back, for a step that passes on what isn't finite and makes none of it."""
    count = len(graph.nodes)
    graph.nodes = [x for x in graph.nodes if x.attributes.get("error") != "finite"]
    changed = len(graph.nodes) < count
    return graph.drop_dead_nodes() or changed


def _computed(graph: Graph) -> dict[Value, None]:
    """The floats that a step leaves and has not found."""
    return {
        x: None
        for x in graph.results()
        if x.dtype.kind == "float" and x.producer is not None and 0 not in x.shape
    }


def _late(graph: Graph) -> list[Node]:
    """The nodes, in order, that nothing but what is written needs."""
    needed = set(graph.outputs)
    late: list[Node] = []
    for node in reversed(graph.nodes):
        if node.has_effect or any(x in needed for x in node.results):
            needed.update(node.operands)
        else:
            late.append(node)
    return late[::-1]


def _check(graph: Graph, looked_at: dict[Value, Limits]) -> bool:
    """Append the last effect of a graph: so it comes before all stores into inputs.

    Of each value the greatest element is compared, which is a NaN if any is. What the step computes
    is gone over in its order, as soon as it is there, and what it was given at the end.
    """
    position = {x: n for n, node in enumerate(graph.nodes) for x in node.results}
    found = sorted(looked_at, key=lambda x: position.get(x, len(position)))
    greatest: dict[float, Value] = {}
    least: dict[float, Value] = {}
    for value in found:
        limits = looked_at[value]
        size = value if limits.low >= 0 else ops.abs(value)
        _enter(greatest, limits.high, _folded(ops.amax, size), ops.maximum)
        if limits.low >= 0:
            _enter(least, limits.low, _folded(ops.amin, value), ops.minimum)
    holds = [ops.le(x, graph.constant(high, f64)) for high, x in greatest.items()]
    holds += [ops.ge(x, graph.constant(low, f64)) for low, x in least.items()]
    if not holds:
        return False
    fails = ops.cast(ops.logical_not(_all(holds)), dtype=i64)
    given = {"low": 0, "high": 1, "message": "", "error": "finite"}
    graph.append(ops.check, (fails,), given)
    return True


def _folded(op: Op, value: Value) -> Value:
    """The greatest or least element of a value, in f64."""
    if value.shape:
        value = op(value, axes=tuple(range(len(value.shape))))
    return value if value.dtype is f64 else ops.cast(value, dtype=f64)


def _enter(table: dict[float, Value], limit: float, value: Value, op: Op) -> None:
    table[limit] = op(table[limit], value) if limit in table else value


def _all(conditions: Iterable[Value]) -> Value:
    first, *others = conditions
    for other in others:
        first = ops.logical_and(first, other)
    return first


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
