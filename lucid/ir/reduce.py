"""Delta debugging: the smallest part of a graph that still shows a fault."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TypeVar

from lucid.ir.clone import copy_graph
from lucid.ir.errors import ArgumentError
from lucid.ir.graph import Graph, Node
from lucid.ir.passes.dce import dce
from lucid.ir.passes.regions import inline
from lucid.ir.selecting import part_of

FEW = 5  # nodes that one reads at a glance: no further attempt is made
ATTEMPTS = 20  # in other orders
MOST_TRIED = 12  # nodes of which all sets of a few are tried

T = TypeVar("T")
Test = Callable[[Graph], bool]
"""Whether a graph shows the fault."""


def reduce_graph(graph: Graph, shows: Test) -> Graph:
    """A graph with as few nodes as can be found that a test still accepts.

    Nodes go in ever smaller groups, until none can go alone; what reads them gets an argument
    instead. Then results and writes that the fault doesn't need go, and what only they needed.
    Where more than a few nodes are left, they go in other orders, too.

    Args:
        shows: is given copies, with calls inlined where the fault survives that.

    Raises:
        ArgumentError: the test doesn't accept the graph as it is.

    Reference: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002.
    """
    if not shows(copy_graph(graph)):
        raise ArgumentError("the check refuses the graph as it is")
    flat = copy_graph(graph)
    flat = flat if inline(flat) and shows(copy_graph(flat)) else copy_graph(graph)
    graph = flat
    while True:
        before = len(graph.nodes), len(graph.outputs) + len(graph.writes)
        graph = _with_fewer_nodes(graph, shows)
        graph = _with_fewer_results(graph, shows)
        if (len(graph.nodes), len(graph.outputs) + len(graph.writes)) == before:
            break
    shuffled, nodes = random.Random(0), [*flat.nodes]
    for attempt in range(ATTEMPTS):  # what is left depends on the order in which nodes go
        if len(graph.nodes) <= FEW:
            break
        graph = min(graph, _in_order(flat, nodes, shows, attempt != 1), key=_size)
        shuffled.shuffle(nodes)
    return graph


def _size(graph: Graph) -> int:
    return len(graph.nodes)


def _in_order(graph: Graph, order: Sequence[Node], shows: Test, are_ends: bool) -> Graph:
    """The same for nodes of a graph in another order.

    are_ends: parts return only what they don't read themselves, so the rest may stay in temps.
    """

    def taken(nodes: Sequence[Node]) -> Graph:
        found = part_of(graph, nodes)
        if are_ends:
            read = found.uses()
            found.outputs = [value for value in found.outputs if value not in read]
        return found

    def holds(nodes: Sequence[Node]) -> bool:
        return bool(nodes) and shows(taken(nodes))

    if not holds(order):
        return graph
    return taken(_fewest(_minimal(order, holds), holds))


def _fewest(found: Sequence[T], holds: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """A few of these things without the others, where none can be left out alone."""
    if FEW < len(found) <= MOST_TRIED:
        for size in range(1, FEW):
            for few in combinations(found, size):
                if holds(few):
                    return few
    return found


def _with_fewer_nodes(graph: Graph, shows: Test) -> Graph:
    def holds(nodes: Sequence[Node]) -> bool:
        return bool(nodes) and shows(part_of(graph, nodes))

    return part_of(graph, _minimal(graph.nodes, holds))


def _with_fewer_results(graph: Graph, shows: Test) -> Graph:
    results = [*range(len(graph.outputs) + len(graph.writes))]

    def kept(numbers: Sequence[int]) -> Graph:
        copied = copy_graph(graph)
        count = len(copied.outputs)
        copied.outputs = [x for n, x in enumerate(copied.outputs) if n in numbers]
        copied.writes = [x for n, x in enumerate(copied.writes, count) if n in numbers]
        dce(copied)
        read = {x for node in copied.nodes for x in node.operands} | {*copied.results()}
        read |= {cell for cell, _ in copied.writes}
        copied.inputs = [entry for entry in copied.inputs if entry.value in read]
        for number, entry in enumerate(copied.inputs):
            entry.value.index = number
        return copied

    def holds(numbers: Sequence[int]) -> bool:
        return bool(numbers) and shows(kept(numbers))

    return kept(_minimal(results, holds)) if holds(results) else graph


def _minimal(found: Sequence[T], holds: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """The algorithm ddmin: fewer of these things, of which none can be left out."""
    parts = 2
    while len(found) > 1:
        size = -(-len(found) // parts)
        groups = [found[at : at + size] for at in range(0, len(found), size)]
        rests = ([x for other in groups if other is not group for x in other] for group in groups)
        whole = next((group for group in groups if len(groups) > 1 and holds(group)), None)
        less = whole if whole is not None else next(filter(holds, rests), None)
        if less is not None:
            parts, found = (2 if whole is not None else max(2, parts - 1)), less
        elif size == 1:
            break
        else:
            parts = min(len(found), 2 * parts)
    return found
