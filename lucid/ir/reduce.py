"""A small part of a graph that still fails, for whoever looks for a fault of the compiler."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from itertools import combinations

from lucid.ir.clone import copy_graph, copy_node
from lucid.ir.graph import Graph, Input, Value
from lucid.ir.text.printer import value_names

Fails = Callable[[Graph], bool]

FEW = 5  # nodes that one reads at a glance: no further attempt is made
ATTEMPTS = 12  # at leaving nodes out: what is left depends on the order
MOST_TRIED = 12  # nodes of which all sets of a few are tried


def reduce(graph: Graph, fails: Fails) -> Graph:
    """Leave out nodes of a flat graph as long as what is left fails: delta debugging.

    The results of what is left out become inputs of the same names, so whoever knows all values
    of the graph can run the parts; see `part` for what they return. The graph itself stays as it
    is, and a copy is the answer if it doesn't fail.

    Args:
        fails: whether a part shows the fault; what it raises counts as no.

    Reference: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002.
    """
    whole = named(graph)
    everything = [*range(len(whole.nodes))]
    if not everything or not _fails(fails, whole):
        return whole

    found, shuffled = whole, random.Random(0)
    for attempt in range(ATTEMPTS):
        is_last = attempt % 2 == 0

        def smaller(numbers: Sequence[int], is_last: bool = is_last) -> bool:
            return _fails(fails, part(whole, numbers, is_last))

        order = [*everything] if attempt < 2 else everything[::-1]
        if attempt > 3:
            shuffled.shuffle(order)
        kept = _fewest(_minimal(order, smaller), smaller)
        if len(kept) < len(found.nodes):
            found = part(whole, kept, is_last)
        if len(found.nodes) <= FEW:
            break
    unwritten = copy_graph(found)
    unwritten.outputs = unwritten.results()
    unwritten.writes = []
    return unwritten if found.writes and _fails(fails, unwritten) else found


def _minimal(order: Sequence[int], fail: Callable[[Sequence[int]], bool]) -> list[int]:
    """Leave out neighbours in an order, fewer and fewer, until each of those left is needed."""
    kept = [*order]
    size = max(len(kept) // 2, 1)
    while fail(kept):
        before, at = len(kept), 0
        while at < len(kept):
            rest = kept[:at] + kept[at + size :]
            if rest and fail(rest):
                kept = rest
            else:
                at += size
        if size == 1 and len(kept) == before:
            break
        size = max(size // 2, 1)
    return kept


def _fewest(kept: list[int], fail: Callable[[Sequence[int]], bool]) -> list[int]:
    """Look for a few among these that fail without the others, where none can go alone."""
    if FEW < len(kept) <= MOST_TRIED:
        for size in range(1, FEW):
            for few in combinations(sorted(kept), size):
                if fail(few):
                    return [*few]
    return kept


def named(graph: Graph) -> Graph:
    """A copy in which each value has the name that the graph's text has for it."""
    copied = copy_graph(graph)
    for value, name in value_names(copied).items():
        value.name = name
    return copied


def part(graph: Graph, numbers: Collection[int], is_last: bool) -> Graph:
    """The nodes of these numbers alone, in their order. Other values that they read are inputs.

    It returns what none of them reads; unless `is_last`, also what the graph, or a node that is
    left out, has of it.
    """
    chosen = [graph.nodes[number] for number in sorted(numbers)]
    inside = {value for node in chosen for value in node.results}
    writes = [(cell, new) for cell, new in graph.writes if new in inside]
    reads = dict.fromkeys(value for node in chosen for value in node.operands)
    reads |= dict.fromkeys(cell for cell, _ in writes)
    found = Graph(graph.name)
    found.location, found.functions, found.hosts = graph.location, graph.functions, graph.hosts
    mapping: dict[Value, Value] = {}
    kinds = {entry.value: entry for entry in graph.inputs}
    order = [entry.value for entry in graph.inputs]
    order += [value for node in graph.nodes for value in node.results]
    for value in order:
        if value not in reads or value in inside:
            continue
        entry = kinds.get(value)
        kind, source = ("arg", "") if entry is None else (entry.kind, entry.source)
        given = Value(value.type, found, None, len(found.inputs), value.name)
        mapping[value] = given
        found.inputs.append(Input(given, kind, source))
    found.nodes = [copy_node(node, found, mapping) for node in chosen]
    for node in found.nodes:
        node.gradient_of = None if node.gradient_of is None else mapping.get(node.gradient_of)
        node.region = None
    others = set(graph.nodes).difference(chosen)
    wanted = {value for node in others for value in node.operands}
    wanted = set() if is_last else wanted.union(graph.outputs)
    read = {value for node in chosen for value in node.operands}
    new = {value for _, value in writes}
    results = [x for node in chosen for x in node.results]
    found.outputs = [mapping[x] for x in results if x in wanted or (x not in read and x not in new)]
    found.writes = [(mapping[cell], mapping[new]) for cell, new in writes]
    return copy_graph(found)


def _fails(fails: Fails, graph: Graph) -> bool:
    try:
        return fails(graph)
    except Exception:
        return False
