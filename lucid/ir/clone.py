"""Copies of graphs, and of nodes from one graph into another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from lucid.ir.graph import Graph, Input, Node, Value


def copy_graph(graph: Graph, outputs: Sequence[Value] | None = None) -> Graph:
    """Return a graph with the same text that shares no node, value or table with the original.

    outputs: values that the copy is to give instead of the graph's own; then it writes nothing.
    """
    copied = Graph(graph.name)
    copied.location = graph.location
    mapping: dict[Value, Value] = {}
    for entry in graph.inputs:
        old = entry.value
        mapping[old] = value = Value(old.type, copied, None, old.index, old.name)
        copied.inputs.append(Input(value, entry.kind, entry.source))
    for node in graph.nodes:
        copied.nodes.append(copy_node(node, copied, mapping))
    for node in copied.nodes:
        mark = node.gradient_of
        if mark is not None:  # one that is gone is so here as well: it would hold the original
            gone = Value(mark.type, copied, None, mark.index, mark.name)
            node.gradient_of = mapping.setdefault(mark, gone)
    copied.outputs = [mapping[x] for x in (graph.outputs if outputs is None else outputs)]
    writes = graph.writes if outputs is None else ()
    copied.writes = [(mapping[cell], mapping[new]) for cell, new in writes]
    copied.hosts = dict(graph.hosts)
    copied.functions = {name: copy_graph(body) for name, body in graph.functions.items()}
    return copied


_noted = attrgetter("operands", "gradient_of", "location", "scope", "region")


class Snapshot:
    """A graph as it is now, to be put back: that takes a fifth of the time of a copy.

    What rewrites the graph meanwhile may move its nodes, give them other operands and notes, and
    name values. Attributes of nodes, types, and what functions get stay as they are.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._functions = dict(graph.functions)
        self._parts = [*map(_Part, (graph, *graph.functions.values()))]

    def put_back(self) -> Graph:
        """Let the graph be so again."""
        self._graph.functions = self._functions
        for part in self._parts:
            part.put_back()
        return self._graph


class _Part:
    """What a snapshot has of a graph, or of a function of it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes, self._outputs, self._writes = graph.nodes, [*graph.outputs], [*graph.writes]
        graph.nodes = [*graph.nodes]
        self._notes = [*map(_noted, graph.nodes)]
        self._names = [value.name for value in graph.values()]

    def put_back(self) -> None:
        graph = self._graph
        graph.nodes, graph.outputs, graph.writes = self._nodes, self._outputs, self._writes
        for node, notes in zip(graph.nodes, self._notes, strict=True):
            node.operands, node.gradient_of, node.location, node.scope, node.region = notes
        for value, name in zip(graph.values(), self._names, strict=True):
            value.name = name


def rewritten(graph: Graph, rewrite: Callable[[Graph], object]) -> Graph:
    """Return a copy that a pass, or a pipeline of them, has rewritten."""
    copied = copy_graph(graph)
    rewrite(copied)
    return copied


def copy_node(node: Node, target: Graph, mapping: dict[Value, Value]) -> Node:
    """Return a node of `target` like `node`, and enter its results in `mapping`; append it not.

    The operands are looked up in `mapping`; what it is the gradient of stays the original's.
    """
    types = [result._type for result in node.results]
    operands = [mapping[operand] for operand in node.operands]
    copied = Node(node.op, operands, dict(node.attributes), types, target)
    copied.location = node.location
    copied.scope = node.scope
    copied.gradient_of = node.gradient_of
    copied.region = node.region
    for old, new in zip(node.results, copied.results, strict=True):
        new.name = old.name
        mapping[old] = new
    return copied
