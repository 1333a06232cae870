"""Checks that can't fail."""

from __future__ import annotations

from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.ranges import Ranges


def drop_satisfied_checks(graph: Graph) -> bool:
    """check(x, low, high) -> x, where the ranges of integers say that low <= x < high.

    Those are positions that ops find, constants, what is computed from them, and what an earlier
    check has let pass.

    Args:
        graph: what is rewritten, in place.

    Example:
        >>> from lucid.ir import parse
        >>> from lucid.ir.passes import drop_satisfied_checks
        >>> text = '''graph g(%x: f32[4,8]) {
        ...   %i = argmax %x {axis = 1}
        ...   %j = check %i {low = 0, high = 8, message = "{}", error = "index"}
        ...   return %j
        ... }'''
        >>> graph = parse(text)
        >>> drop_satisfied_checks(graph)
        True
        >>> print(graph, end="")
        graph g(%x: f32[4,8]) {
          %i = argmax %x {axis = 1} : i64[4]
          return %i
        }
    """
    ranges = Ranges()
    replacement: dict[Value, Value] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        if replacement:
            node.operands = tuple(replacement.get(operand, operand) for operand in node.operands)
        if node.op is ops.check and _is_satisfied(node, ranges):
            replacement[node.result] = node.operands[0]
            continue
        ranges.note(node)
        kept.append(node)
    if replacement:
        graph.nodes = kept
        graph.substitute(replacement)
    return bool(replacement)


def _is_satisfied(node: Node, ranges: Ranges) -> bool:
    operand = node.operands[0]
    known = ranges.of(operand)
    if known is None or not operand.type.size:
        return not operand.type.size
    return known.is_within(node.attributes["low"], node.attributes["high"] - 1)
