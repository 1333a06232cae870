"""Parts of a graph: a Module, a line, a Function or a phase, as a graph of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence

from lucid.ir import ops
from lucid.ir.clone import copy_graph, copy_node
from lucid.ir.errors import ArgumentError
from lucid.ir.graph import Graph, Input, Node, Value
from lucid.ir.text.printer import value_names

PARTS = ("forward", "backward", "update")


def part_of(graph: Graph, nodes: Collection[Node]) -> Graph:
    """Some nodes of a graph, in its order, as a graph that computes the same of what they read.

    What they read from the rest becomes arguments, what the rest reads, or the graph returns, is
    returned. State that they write is written. Values keep the names that they have in the text of
    the whole.
    """
    names = value_names(graph)
    found = Graph(graph.name)
    found.location = graph.location
    inside = {value for node in nodes for value in node.results}
    chosen = set(nodes)
    kept = [node for node in graph.nodes if node in chosen]
    writes = [(cell, new) for cell, new in graph.writes if new in inside]
    read = {value for node in kept for value in node.operands if value not in inside}
    read |= {cell for cell, _ in writes}
    mapping: dict[Value, Value] = {}
    entries = {entry.value: entry for entry in graph.inputs}
    for value in [*entries, *(result for node in graph.nodes for result in node.results)]:
        if value in read:
            entry = entries.get(value, Input(value, "arg"))
            mapping[value] = found.add_input(value.type, entry.kind, names[value], entry.source)
    for node in kept:
        copied = copy_node(node, found, mapping)
        for old, new in zip(node.results, copied.results, strict=True):
            new.name = names[old]
        found.nodes.append(copied)
    for copied in found.nodes:
        mark = copied.gradient_of
        copied.gradient_of = None if mark is None else mapping.get(mark)
    outside = {value for node in graph.nodes if node not in chosen for value in node.operands}
    outside |= {*graph.outputs, *(new for _, new in graph.writes if new not in inside)}
    found.outputs = [mapping[v] for node in kept for v in node.results if v in outside]
    found.writes = [(mapping[cell], mapping[new]) for cell, new in writes]
    found.hosts = dict(graph.hosts)
    found.functions = _called(found.nodes, graph)
    return found


def _called(nodes: Iterable[Node], graph: Graph) -> dict[str, Graph]:
    """Copies of the functions that nodes call, and of those that these call."""
    needed: dict[str, None] = {}
    queue = [*nodes]
    for node in queue:  # which grows meanwhile
        for name in _functions_of(node):
            if name in graph.functions and name not in needed:
                needed[name] = None
                queue += graph.functions[name].nodes
    return {name: copy_graph(body) for name, body in graph.functions.items() if name in needed}


def _functions_of(node: Node) -> list[str]:
    """What a node calls, or has as its body."""
    values = (node.attributes.get("function"),) if node.op is not ops.host else ()
    return [value for value in values if isinstance(value, str)]


def select(
    graph: Graph,
    *,
    module: str | None = None,
    line: int | str | None = None,
    function: str | None = None,
    part: str | None = None,
) -> Graph:
    """The part of a graph for which all that is given holds.

    Args:
        module: the path of a Module, or the end of one: `model.blocks.3`, or `blocks.3`.
        line: of the user's, as a number or with its file: `train.py:24`. The gradients of a line
            are of that line, too.
        function: a custom Function; its calls, and those of its backward.
        part: "forward", "backward", or "update", what is computed with gradients.

    Raises:
        ArgumentError: there is nothing of the kind; it lists what there is.
    """
    nodes: Sequence[Node] = graph.nodes
    for option, given, keys in (
        ("module", module, _paths_of),
        ("line", line, _lines_of),
        ("function", function, _names_of),
    ):
        if given is not None:
            nodes = _matching(nodes, option, str(given), keys)
    if part is not None:
        if part not in PARTS:
            raise ArgumentError(f"dump_ir: part is one of {', '.join(PARTS)}, not {part!r}")
        of = parts_of(graph)
        nodes = [node for node in nodes if of[node] == part]
        if not nodes:
            raise ArgumentError(f"dump_ir: there is nothing of part={part!r}")
    return part_of(graph, nodes)


def _matching(
    nodes: Sequence[Node], option: str, given: str, keys: Callable[[Node], Collection[str]]
) -> list[Node]:
    found = [node for node in nodes if given in keys(node)]
    if not found:
        known = dict.fromkeys(key for node in nodes for key in keys(node))
        listed = ", ".join(sorted(known, key=len)[:12])
        hint = f"\nhint: there are {listed}" if known else f"; the graph has no {option} at all"
        raise ArgumentError(f"dump_ir: there is nothing of {option}={given!r}{hint}")
    return found


def _paths_of(node: Node) -> list[str]:
    """The Modules that a node is in, each by its path and by the ends of that."""
    words = node.scope.split(".") if node.scope else []
    ends = range(len(words), 0, -1)
    return [".".join(words[start:stop]) for stop in ends for start in range(stop)]


def _lines_of(node: Node) -> list[str]:
    if node.location is None:
        return []
    return [f"{os.path.basename(node.location.file)}:{node.location.line}", str(node.location.line)]


def _names_of(node: Node) -> list[str]:
    if "function" not in node.attributes:
        return []
    name = str(node.attributes["function"])
    return [name, name.removesuffix(".backward"), name.partition(".backward_")[0]]


def parts_of(graph: Graph) -> dict[Node, str]:
    """Which part each node belongs to: see `PARTS`.

    A node without a mark that reads gradients is of the update. One that reads nothing but state,
    such as a learning rate or a moment, belongs to the first part that reads it.
    """
    found: dict[Node, str] = {}
    free = {entry.value for entry in graph.inputs if entry.kind != "arg"}
    unbound: set[Node] = set()
    for node in graph.nodes:
        before = {found[x.producer] for x in node.operands if x.producer is not None}
        if node.gradient_of is not None or _is_backward(node):
            found[node] = "backward"
        else:
            found[node] = "update" if before - {"forward"} else "forward"
            if all(x in free for x in node.operands):
                unbound.add(node)
                free.update(node.results)
    users = graph.uses()
    for node in reversed(graph.nodes):
        parts = {found[user] for result in node.results for user in users.get(result, ())}
        if found[node] == "update" and "backward" in parts:
            found[node] = "backward"  # a sum of gradients
        if node in unbound:
            found[node] = next((part for part in PARTS if part in parts), "forward")
    return found


def _is_backward(node: Node) -> bool:
    return node.op in (ops.call, ops.host) and ".backward" in str(node.attributes["function"])
