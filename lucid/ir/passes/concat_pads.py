"""Sums of arrays that are padded with zeros become one array put together from parts."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain

from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.passes.rewrite import inherit_notes, uniform


def concat_pads(graph: Graph) -> bool:
    """pad(a) + pad(b) -> concat(a, b), where zeros are padded so that parts are the same or apart.

    The gradient of slices of one array is such a sum, and that of the rows of a loop is a long
    one: without the pads, whose borders are others in each round, the rounds are equal. Parts in
    one place are summed in the order of the sum. Adding 0.0 to a part makes a -0.0 in it what it
    is in the sum. Linear in the pads.

    Args:
        graph: what is rewritten, in place.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes import concat_pads
    >>> pads = "%p = pad %x, %c {low = [0], high = [2]} %q = pad %y, %c {low = [2], high = [0]}"
    >>> text = "%c = constant 0 : i64[] " + pads + " %z = add %p, %q return %z"
    >>> graph = parse("graph g(%x: i64[2], %y: i64[2]) { " + text + " }")
    >>> concat_pads(graph)
    True
    >>> print(graph, end="")
    graph g(%x: i64[2], %y: i64[2]) {
      %z = concat %x, %y {axis = 0} : i64[4]
      return %z
    }
    """
    if not any(node.op is ops.pad for node in graph.nodes):
        return False
    readers = Counter(chain.from_iterable([node.operands for node in graph.nodes]))
    readers.update(graph.results())
    sums: dict[Value, _Sum] = {}  # of what is put together so far
    made: dict[Node, list[Node]] = {}  # what stands in the place of a sum

    def found(value: Value) -> _Sum | None:
        if readers[value] != 1:
            return None
        return sums.get(value) or _pad_of_zeros(value)

    old = graph.nodes
    for node in old:
        if node.op is not ops.add:
            continue
        one, other = map(found, node.operands)
        if one is None or other is None or not one.fits(other):
            continue
        graph.nodes = made[node] = []
        sums[node.result] = one.joined(other)
        for operand in node.operands:
            sums.pop(operand, None)
    replaced: dict[Value, Value] = {}
    for value, parts in sums.items():
        assert value.producer is not None
        graph.nodes = made[value.producer]
        replaced[value] = whole = parts.whole(value)
        whole.name = whole.name or value.name
    graph.nodes = []
    for node in old:
        instead = made.get(node)
        if instead is None:
            graph.nodes.append(node)
            continue
        for new in instead:
            inherit_notes(new, node)
        graph.nodes += instead
    if replaced:
        graph.substitute(replaced)
        graph.drop_dead_nodes()
    return bool(replaced)


@dataclass(slots=True)
class _Sum:
    """What pads add up to.

    Attributes:
        axis: the one that is padded.
        parts: what lies along it, by where it begins.
        starts: where parts begin, in order.
        bare: the beginnings of parts to which no zeros of others have been added yet.
    """

    axis: int
    parts: dict[int, Value]
    starts: list[int]
    bare: set[int] = field(default_factory=set)

    def fits(self, other: _Sum) -> bool:
        """Whether each part of another sum is in the place of one of these, or apart from all."""
        if self.axis != other.axis:
            return False
        few, many = (self, other) if len(self.parts) < len(other.parts) else (other, self)
        return all(many._has_room(start, few._end(start)) for start in few.starts)

    def _end(self, start: int) -> int:
        return start + self.parts[start].shape[self.axis]

    def _has_room(self, start: int, end: int) -> bool:
        if start in self.parts:
            return self._end(start) == end
        place = bisect_left(self.starts, start)
        before, after = self.starts[:place][-1:], self.starts[place : place + 1]
        return all(self._end(x) <= start for x in before) and all(x >= end for x in after)

    def joined(self, other: _Sum) -> _Sum:
        """The sum of both, in the larger one; the nodes that it takes are emitted."""
        few, many = (self, other) if len(self.parts) < len(other.parts) else (other, self)
        for start in sorted(many.bare - few.parts.keys()):
            many._add_zero(start)
        for start in few.starts:
            if start not in many.parts:
                if start in few.bare:
                    few._add_zero(start)
                many.parts[start] = few.parts[start]
                insort(many.starts, start)
                continue
            many.parts[start] = _sum(self.parts[start], other.parts[start])
            if start not in few.bare:
                many.bare.discard(start)
        return many

    def _add_zero(self, start: int) -> None:
        self.bare.discard(start)
        if self.parts[start].dtype.kind == "float":
            part = self.parts[start]
            self.parts[start] = _sum(part, part.constant(0.0, part.dtype))

    def whole(self, value: Value) -> Value:
        """All parts with zeros between them, in the place of the value."""
        axis, size = self.axis, value.shape[self.axis]
        pieces: list[Value] = []
        position = 0
        for start in (*self.starts, size):
            if start > position:
                shape = (*value.shape[:axis], start - position, *value.shape[axis + 1 :])
                pieces.append(ops.full(value, 0, shape, value.dtype))
            if start < size:
                pieces.append(self.parts[start])
                position = self._end(start)
        whole: Value = ops.concat(*pieces, axis=axis)
        return whole


def _sum(part: Value, other: Value) -> Value:
    """The sum of a part and a number, or another one of its type."""
    return part.graph.append_typed(ops.add, (part, other), {}, part.type).result


def _pad_of_zeros(value: Value) -> _Sum | None:
    """What is padded with +0 along one axis."""
    node = value.producer
    if node is None or node.op is not ops.pad:
        return None
    x, border = node.operands
    zero = uniform(border)
    if zero is None or zero.tobytes().strip(b"\0"):
        return None
    low, high = node.attributes["low"], node.attributes["high"]
    axes = [n for n, pair in enumerate(zip(low, high, strict=True)) if any(pair)]
    if len(axes) != 1 or not x.type.size:
        return None
    (axis,) = axes
    return _Sum(axis, {low[axis]: x}, [low[axis]], {low[axis]})
