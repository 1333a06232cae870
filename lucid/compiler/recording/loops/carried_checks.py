"""Checks of what a loop carries: a round notes what is wrong, and it is checked behind the loop.

An index that follows from the carry is known round by round. So the body goes on with one that is
right where it isn't, and carries the first wrong number that it has met; the check looks at that.
A step stores nothing before its last check, so what later rounds made of it is never seen.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.passes.loops import apart
from lucid.ir.region_ops import is_exit
from lucid.ir.types import TensorType, i64


@dataclass(slots=True, eq=False)
class CarriedCheck:
    """A check of each round, as a carry.

    Attributes:
        node: the check; neutral: a number that it accepts.
        before: the carry in a round; after: the carry for the next round.
    """

    node: Node
    neutral: int
    before: Value
    after: Value

    def holds(self, value: Value) -> Value:
        """A bool of the graph: whether a number is accepted."""
        return _is_within(value, self.node)


def carry_checks(
    graph: Graph,
    start: int,
    inputs: list[Value],
    carried: Collection[Value],
    known: set[Node],
    undone: Value | None,
) -> list[CarriedCheck]:
    """Make the checks of what is carried, among the nodes from `start` on, carries.

    From the check on the value that is checked becomes one that is right.

    Args:
        graph: the graph that is being recorded.
        start: the number of the body's first node.
        inputs: the stand-ins for carry and rows; one that is checked is replaced there.
        carried: the values that differ from round to round.
        known: checks that stay as they are.
        undone: whether a round is one that Python makes again, which then checks by itself.
    """
    found = []
    depends = set(carried)
    for node in graph.nodes[start:]:
        if node.op.kind == "region" or not depends.isdisjoint(node.operands):
            depends.update(node.results)
        if node.op is not ops.check or is_exit(node) or node in known:
            continue
        low, high = node.attributes["low"], node.attributes["high"]
        if low < high and node.operands[0] in depends and node.operands[0].type.size:
            neutral = 0 if low <= 0 < high else low
            found.append(_carried(graph, start, inputs, node, neutral, undone))
    return found


def _carried(
    graph: Graph,
    start: int,
    inputs: list[Value],
    node: Node,
    neutral: int,
    undone: Value | None,
) -> CarriedCheck:
    (value,) = node.operands
    maker = value.producer
    raw = Value(value.type, graph, maker, value.index, value.name)
    place = graph.nodes.index(node)
    if maker is None:
        inputs[inputs.index(value)] = raw
        undone = None  # such a round would leave another number
    else:
        maker.results = tuple(raw if x is value else x for x in maker.results)
    for earlier in graph.nodes[start:place]:  # as what tells whether there is such a round
        earlier.operands = tuple(raw if x is value else x for x in earlier.operands)

    def chosen() -> Value:
        wrong = graph.constant(neutral, value.dtype)
        return ops.where(_is_within(raw, node), raw, wrong)

    made, nodes = apart(graph, node, chosen)
    graph.nodes[place:place] = nodes
    last = made.producer
    assert last is not None
    last.results, value.producer, value.index = (value,), last, 0
    before = Value(TensorType(i64, ()), graph, None)

    def next_one() -> Value:
        axes = tuple(range(len(raw.shape)))
        most, least = (f(raw, axes=axes) if axes else raw for f in (ops.amax, ops.amin))
        high = graph.constant(node.attributes["high"], raw.dtype)
        worst = ops.where(ops.ge(most, high), most, least)
        worst = worst if raw.dtype is i64 else ops.cast(worst, dtype=i64)
        worst = ops.where(_is_within(before, node), worst, before)
        return worst if undone is None else ops.where(undone, before, worst)

    after, nodes = apart(graph, node, next_one)
    graph.nodes += nodes
    return CarriedCheck(node, neutral, before, after)


def _is_within(value: Value, check: Node) -> Value:
    low, high = (
        value.graph.constant(check.attributes[key], value.dtype) for key in ("low", "high")
    )
    return ops.logical_and(ops.ge(value, low), ops.lt(value, high))
