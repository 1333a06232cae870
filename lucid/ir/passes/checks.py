"""Checks that can't fail, and what the others look at."""

from __future__ import annotations

from lucid.ir import ops
from lucid.ir.extents import is_open
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.passes.rewrite import inherit_notes
from lucid.ir.ranges import Ranges


def drop_satisfied_checks(graph: Graph) -> bool:
    """check(x, low, high) -> x, where the ranges of integers say that low <= x < high.

    Those are positions that ops find, constants, what is computed from them, and what an earlier
    check has let pass.

    Args:
        graph: what is rewritten, in place.

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
    if all(node.op is not ops.check for node in graph.nodes):
        return False
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


def check_before_broadcasts(graph: Graph) -> bool:
    """check(broadcast(x), low, high) -> check(x, low, high): a repeated index is looked at once.

    Args:
        graph: what is rewritten, in place.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes import check_before_broadcasts
    >>> text = '''graph g(%x: i64[4,1]) {
    ...   %y = broadcast %x {shape = [4,8]}
    ...   %i = check %y {low = 0, high = 8, message = "{}", error = "index"}
    ...   return %y
    ... }'''
    >>> graph = parse(text)
    >>> check_before_broadcasts(graph)
    True
    >>> print(graph, end="")
    graph g(%x: i64[4,1]) {
      %y = broadcast %x {shape = [4,8]} : i64[4,8]
      %i = check %x {low = 0, high = 8, message = "{}", error = "index"} : i64[4,1]
      return %y
    }
    """
    if all(node.op is not ops.check for node in graph.nodes):
        return False
    read = {*graph.results(), *(x for node in graph.nodes for x in node.operands)}
    changed = False
    for position, node in enumerate(graph.nodes):
        if node.op is not ops.check or node.result in read:
            continue
        x = _repeated(node.operands[0])
        if x is not node.operands[0]:
            graph.nodes[position] = new = Node(node.op, (x,), node.attributes, [x.type], graph)
            new.result.name = node.result.name
            inherit_notes(new, node)
            changed = True
    return changed


def _repeated(value: Value) -> Value:
    """What broadcasts show of a value, all of it; itself where none does."""
    node = value.producer
    while node is not None and node.op is ops.broadcast and not any(map(is_open, value.shape)):
        if not value.type.size:
            break
        value = node.operands[0]
        node = value.producer
    return value
