"""What a forward leaves for its backward in the same graph: cheap values are computed again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

from lucid.ir import ops
from lucid.ir.clone import copy_node
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.passes.residuals import bytes_of, minimum_cut

_LEAST = 4 << 20  # bytes: what saves less isn't worth another kernel
_LITTLE = 1 << 16  # bytes: what takes no more, such as a row's mean, is kept
_PRODUCTS = ("contract", "attention")
_NEXT = 2  # products that read a gradient: for the weights, and for the layer before


def recompute(graph: Graph) -> bool:
    """h(f(x)) -> h(f(barrier(x, g))) behind the place where most memory is in use.

    What is computed before that place and read behind it are residuals, as between the graphs of a
    forward and a backward; what is kept of them is chosen in the same way, by a minimum cut. The
    others are computed again where the first node behind the place reads them, not before `g`: the
    operand of a product, or of an attention, that comes before that node.

    Reference: see `lucid.ir.passes.residuals.minimum_cut`.
    """
    at = _fullest(graph)
    return at is not None and _Residuals(graph, at).compute_again()


def _fullest(graph: Graph) -> int | None:
    """Behind which node residuals take most memory; None if that is little.

    What is read for the last time some products later is one, in short, not what goes from one
    node of a forward or a backward to the next.
    """
    last: dict[Value, int] = {}  # the node that reads a value last, or a view of it
    products = [0]  # up to each node
    for number, node in enumerate(graph.nodes):
        last.update((_base(operand), number) for operand in node.operands)
        products.append(products[-1] + (node.op.kind in _PRODUCTS))
    ending: list[int] = [0] * len(graph.nodes)
    in_use, most, found = 0, _LEAST, None
    for number, node in enumerate(graph.nodes):
        for value in node.results if node.op.kind not in ("view", "create") else ():
            end = last.get(value, number)
            if products[end + 1] - products[number + 1] > _NEXT:
                in_use += bytes_of(value)
                ending[end] += bytes_of(value)
        in_use -= ending[number]
        if in_use > most:
            most, found = in_use, number
    return found


def _base(value: Value) -> Value:
    """What a chain of views looks at."""
    while value.producer is not None and value.producer.op.is_view:
        value = value.producer.operands[0]
    return value


class _Residuals:
    """The residuals of the nodes behind a place.

    Attributes:
        early: nodes up to that place, and maps and views of their results: wherever these stand,
            they would be computed together with what they read.
        first: for each value of theirs the first of the other nodes that reads it.
        tokens: operands of products behind the place, with the number of the product.
    """

    def __init__(self, graph: Graph, at: int) -> None:
        self._graph = graph
        self._early: set[Node] = set()
        self._first: dict[Value, int] = {}
        self._tokens: list[tuple[int, Value]] = []
        made: set[Value] = set()  # by early nodes
        for number, node in enumerate(graph.nodes):
            if number <= at or self._follows(node, made):
                self._early.add(node)
                made.update(node.results if node.operands else ())
                continue
            for operand in node.operands:
                self._first.setdefault(operand, number)
            if node.op.kind in _PRODUCTS:
                self._tokens += [(number, x) for x in node.operands if self._is_late(x)][:1]

    def _follows(self, node: Node, made: set[Value]) -> bool:
        """Whether a node behind the place computes with early values, and with no others."""
        if node.op.kind not in ("map", "view", "create"):
            return False
        is_known = not any(map(self._is_late, node.operands))
        return is_known and (not node.operands or not made.isdisjoint(node.operands))

    def _is_late(self, value: Value) -> bool:
        return value.producer is not None and value.producer not in self._early

    def compute_again(self) -> bool:
        """Let the other nodes read what is computed again; False where that saves little."""
        graph = self._graph
        free = {*graph.outputs, *(entry.value for entry in graph.inputs)}
        for node in self._early:
            free.update(x for x in node.results if not node.operands or bytes_of(x) <= _LITTLE)
        there = free.union(value for _, value in graph.writes)
        needed = {
            value: number
            for value, number in self._first.items()
            if value.producer in self._early and value not in there and self._token(number)
        }
        cut = minimum_cut(graph, needed, free)
        before, after = (sum(map(bytes_of, {*map(_base, x)} - free)) for x in (needed, cut.kept))
        if before - after < _LEAST:
            return False
        self._insert(self._places(cut.repeated, needed), needed)
        return graph.drop_dead_nodes() or True

    def _token(self, number: int) -> tuple[Value, ...]:
        """What is there some time before a node behind the place; nothing: it comes too soon."""
        found = bisect_left(self._tokens, number, key=lambda token: token[0])
        return () if not found else (self._tokens[found - 1][1],)

    def _places(self, repeated: list[Node], needed: dict[Value, int]) -> dict[Node, int]:
        """The nodes to compute again, in their order, and in front of which node of the graph.

        Views of what is kept are not among them, nor checks, which have passed.
        """
        again: set[Value] = set()
        nodes: list[Node] = []
        for node in repeated:
            is_free = node.op.kind in ("view", "create", "check") or not node.operands
            if not is_free or not again.isdisjoint(node.operands):
                again.update(node.results)
                nodes.append(node)
        first = {value: number for value, number in needed.items() if value in again}
        places: dict[Node, int] = {}
        for node in reversed(nodes):
            place = min(first[x] for x in node.results if x in first)
            places[node] = place
            for operand in node.operands:
                first[operand] = min(first.get(operand, place), place)
        return {node: places[node] for node in nodes}

    def _insert(self, places: dict[Node, int], needed: Collection[Value]) -> None:
        graph = self._graph
        again: dict[Value, Value] = {}
        inserted: dict[int, list[Node]] = {}
        for node, place in places.items():
            nodes = inserted.setdefault(place, [])
            if node.op is ops.check:
                again[node.result] = again[node.operands[0]]
                continue
            mapping = {x: again.get(x, x) for x in node.operands}
            if again.keys().isdisjoint(node.operands):
                read = max(node.operands, key=bytes_of)
                barrier = Node(ops.barrier, (read, *self._token(place)), {}, (read.type,), graph)
                barrier.location, barrier.scope = node.location, node.scope
                mapping[read] = barrier.result
                nodes.append(barrier)
            copied = copy_node(node, graph, mapping)
            copied.region = None
            again.update((x, mapping[x]) for x in node.results)
            nodes.append(copied)
        wanted = {value: again[value] for value in needed if value in again}
        order: list[Node] = []
        for number, node in enumerate(graph.nodes):
            order += inserted.get(number, ())
            order.append(node)
            if node not in self._early and not wanted.keys().isdisjoint(node.operands):
                node.operands = tuple(wanted.get(x, x) for x in node.operands)
        graph.nodes = order
