"""Regions of custom Functions: outlined into functions that are called, and inlined again."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.ir import ops
from lucid.ir.clone import copy_node
from lucid.ir.graph import Graph, Node, Region, Value, freeze_attributes
from lucid.ir.passes.dce import dce, drop_unused_functions


def outline(graph: Graph) -> bool:
    """Nodes of one region -> a call of a function that consists of them.

    Nodes count as one call while they stand together; regions inside of regions become calls inside
    of functions. What a region reads from around it are the function's parameters, what is read
    outside are its results. Regions that compute the same share a function; a different one with
    the same name gets a suffix. Dead nodes are removed before. Checkpointed blocks stay marks: of
    calls, and of nodes outside of custom Functions.
    """
    if all(_region_at(node, 0) is None for node in graph.nodes):
        return False
    dce(graph)
    _Outliner(graph).outline(graph, 0)
    return True


class _Outliner:
    """The functions made so far, by what they compute."""

    def __init__(self, root: Graph) -> None:
        self._functions = root.functions
        self._names: dict[tuple[object, ...], str] = {
            (_stem(name), *_meaning(body)): name for name, body in root.functions.items()
        }

    def outline(self, graph: Graph, depth: int) -> None:
        """Turn the regions at a nesting depth of a graph into calls."""
        spans = _spans(graph.nodes, depth)
        used = _used_outside(graph, spans)
        nodes: list[Node] = []
        replacement: dict[Value, Value] = {}
        for region, span in spans:
            if region is None:
                nodes += span
                continue
            results = [value for node in span for value in node.results if value in used]
            function, operands, scope = self._function(region, span, results, depth)
            types = [value.type for value in results]
            name = {"function": self._enter(region.name, function)}
            call = Node(ops.call, operands, name, types, graph)
            call.location = region.location
            call.scope = scope
            call.region = next(region.blocks, None)
            call.gradient_of = next((n.gradient_of for n in span if n.gradient_of), None)
            # Values that stay inside are only met outside in marks "gradient of".
            if results:
                replacement |= {v: call.results[0] for node in span for v in node.results}
            for old, new in zip(results, call.results, strict=True):
                new.name = old.name
                replacement[old] = new
            nodes.append(call)
        graph.nodes = nodes
        graph.substitute(replacement)

    def _function(
        self, region: Region, span: Sequence[Node], results: Sequence[Value], depth: int
    ) -> tuple[Graph, list[Value], str]:
        """The span as a graph of its own, what it is to be called with, and the call's scope."""
        function = Graph(region.name)
        mapping: dict[Value, Value] = {}
        inside = {value for node in span for value in node.results}
        operands = list(dict.fromkeys(v for n in span for v in n.operands if v not in inside))
        for value in operands:
            mapping[value] = function.add_input(value.type, name=value.name)
        scope = _common_scope([node.scope for node in span])
        if scope.split(".")[-1] == region.name:
            scope = scope.rpartition(".")[0]
        for node in span:
            copied = copy_node(node, function, mapping)
            copied.scope = _inner_scope(node.scope, scope, region.name)
            function.nodes.append(copied)
        for copied in function.nodes:
            mark = copied.gradient_of
            copied.gradient_of = None if mark is None else mapping.get(mark)
        function.outputs = [mapping[value] for value in results]
        self.outline(function, depth + 1)
        for node in function.nodes:
            node.region = None
        return function, operands, scope

    def _enter(self, name: str, function: Graph) -> str:
        """File a function, unless one of this name with the same meaning is there already."""
        meaning = (name, *_meaning(function))
        if meaning not in self._names:
            unique, count = name, 0
            while unique in self._functions:
                count += 1
                unique = f"{name}_{count}"
            function.name = unique
            self._functions[unique] = function
            self._names[meaning] = unique
        return self._names[meaning]


def _stem(name: str) -> str:
    """A function's name without the number that made it unique."""
    stem, _, count = name.rpartition("_")
    return stem if count.isdigit() and stem else name


def _spans(nodes: Sequence[Node], depth: int) -> list[tuple[Region | None, list[Node]]]:
    """Neighbouring nodes with the same region at a depth."""
    spans: list[tuple[Region | None, list[Node]]] = []
    for node in nodes:
        region = _region_at(node, depth)
        if not spans or spans[-1][0] is not region:
            spans.append((region, []))
        spans[-1][1].append(node)
    return spans


def _region_at(node: Node, depth: int) -> Region | None:
    """The custom Function's call that a node is in, at a nesting depth, 0 outermost."""
    chain: list[Region] = []
    region = node.region
    while region is not None:
        if region.kind == "region":
            chain.append(region)
        region = region.parent
    return chain[-1 - depth] if depth < len(chain) else None


def _used_outside(graph: Graph, spans: Sequence[tuple[Region | None, list[Node]]]) -> set[Value]:
    """Values that are read by another span than the one that computes them, or are results."""
    used = set(graph.results())
    span_of = {v: i for i, (_, span) in enumerate(spans) for n in span for v in n.results}
    for index, (_, span) in enumerate(spans):
        for node in span:
            used.update(v for v in node.operands if span_of.get(v, index) != index)
    return used


def _common_scope(scopes: Sequence[str]) -> str:
    common = scopes[0].split(".")
    for scope in scopes[1:]:
        parts = scope.split(".")
        same = (a == b for a, b in zip(common, parts, strict=False))
        common = common[: next((i for i, equal in enumerate(same) if not equal), len(parts))]
    return ".".join(common)


def _inner_scope(scope: str, outer: str, function: str) -> str:
    """What of a scope is left inside of a function that is called in the scope `outer`."""
    for prefix in (_joined(outer, function), outer):
        if scope == prefix:
            return ""
        if prefix and scope.startswith(f"{prefix}."):
            return scope[len(prefix) + 1 :]
    return scope


def _joined(*scopes: str) -> str:
    return ".".join(filter(None, scopes))


def _meaning(function: Graph) -> tuple[object, ...]:
    """Equal for functions that are the same but for the names of their values."""
    numbers = {value: number for number, value in enumerate(function.values())}
    nodes = tuple(
        (
            node.op.name,
            tuple(numbers[operand] for operand in node.operands),
            freeze_attributes(node.attributes),
            node.location,
            node.scope,
            None if node.gradient_of is None else numbers.get(node.gradient_of),
        )
        for node in function.nodes
    )
    types = tuple(entry.value.type for entry in function.inputs)
    return types, nodes, tuple(numbers[value] for value in function.outputs)


def inline(graph: Graph) -> bool:
    """call f(x) -> the nodes of f, with x for its parameters; calls inside of f too.

    The nodes' scope is the call's, then the function's name, then their own. A node without a line
    gets the call's, and so does one without a mark of what it is the gradient of. Of the functions
    only the bodies of region ops are left.
    """
    if not any(node.op is ops.call for node in graph.nodes):
        return drop_unused_functions(graph)
    inlined: list[Node] = []
    replacement: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.op is ops.call:
            node.operands = tuple(replacement.get(value, value) for value in node.operands)
            results = _inline(graph, node, inlined)
            replacement.update(zip(node.results, results, strict=True))
        else:
            inlined.append(node)
    graph.nodes = inlined
    graph.substitute(replacement)
    drop_unused_functions(graph)
    return True


def _inline(graph: Graph, call: Node, inlined: list[Node]) -> list[Value]:
    """Append the nodes of the function that a node calls; return the values of its results."""
    name = call.attributes["function"]
    function = graph.functions[name]
    parameters = (entry.value for entry in function.inputs)
    mapping = dict(zip(parameters, call.operands, strict=True))
    for node in function.nodes:
        copied = copy_node(node, graph, mapping)
        copied.location = node.location or call.location
        copied.scope = _joined(call.scope, name, node.scope)
        copied.region = call.region
        mark = node.gradient_of
        copied.gradient_of = call.gradient_of if mark is None else mapping.get(mark)
        if node.op is ops.call:
            results = _inline(graph, copied, inlined)
            mapping.update(zip(node.results, results, strict=True))
        else:
            inlined.append(copied)
    results = [mapping[value] for value in function.outputs]
    for old, new in zip(call.results, results, strict=True):
        new.name = old.name or new.name
    return results
