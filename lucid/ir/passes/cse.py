"""Common subexpression elimination, by value numbering."""

from __future__ import annotations

from lucid.ir.graph import Graph, Node, Value, freeze_attributes
from lucid.ir.op import Trait


def cse(graph: Graph) -> bool:
    """Keep the first of several nodes that compute the same value (local value numbering).

    Ops are pure, so equal op, operands and attributes mean equal results; random ops have their
    state as an operand. Only calls of Python are not, and stay. The operands of a commutative op
    may stand in either order. A name goes on to the value that is kept, if that has none.

    Reference: Cocke, "Global common subexpression elimination", 1970.

    Args:
        graph: what is rewritten, in place.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes.cse import cse
    >>> graph = parse("graph g(%x: f32[3]) { %a = exp %x %b = exp %x return %a, %b }")
    >>> cse(graph)
    True
    >>> print(graph, end="")
    graph g(%x: f32[3]) {
      %a = exp %x : f32[3]
      return %a, %a
    }
    """
    first: dict[tuple[object, ...], Node] = {}
    replacement: dict[Value, Value] = {}
    for node in graph.nodes:
        if graph.has_effect(node):
            continue
        operands = tuple([replacement.get(operand, operand) for operand in node.operands])
        kept = first.setdefault(value_number(node, operands), node)
        if kept is node:
            continue
        for result, original in zip(node.results, kept.results, strict=True):
            replacement[result] = original
            if node.operands:  # a constant stands for more than the use that it was named for
                original.name = original.name or result.name
    if not replacement:
        return False
    graph.substitute(replacement)
    gone = replacement.keys()
    graph.nodes = [node for node in graph.nodes if gone.isdisjoint(node.results)]
    return True


def value_number(node: Node, operands: tuple[Value, ...]) -> tuple[object, ...]:
    """What decides a node's value: equal for nodes whose results are equal."""
    ids = [*map(id, operands)]
    if len(ids) > 1 and Trait.COMMUTATIVE in node.op.traits:
        ids.sort()
    return node.op, freeze_attributes(node.attributes), *ids
