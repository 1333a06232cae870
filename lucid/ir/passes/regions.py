"""Regions of custom Functions: outlined into functions that are called, and inlined again."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.ir import ops
from lucid.ir.clone import copy_graph, copy_node
from lucid.ir.graph import Graph, Node, Region, Value, freeze_attributes, unused_name
from lucid.ir.passes.dce import dce, drop_unused_functions
from lucid.ir.selecting import parts_of


def outline(graph: Graph) -> bool:
    """Nodes of one region -> a call of a function that consists of them.

    Nodes count as one call while they stand together; regions inside of regions become calls inside
    of functions. What a region reads from around it are the function's parameters, what is read
    outside are its results. Regions that compute the same share a function; a different one with
    the same name gets a suffix. Dead nodes are removed before. Checkpointed blocks stay marks: of
    calls, and of nodes outside of custom Functions.

    Args:
        graph: what is rewritten, in place.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes import outline
    >>> text = '''graph g(%x: f32[3]) { %e = exp %x #1 %y = neg %e #1 return %y }
    ... region #1 F'''
    >>> graph = parse(text)
    >>> outline(graph)
    True
    >>> print(graph, end="")
    graph g(%x: f32[3]) {
      %y = call F(%x) : f32[3]
      return %y
    }
    function F(%x: f32[3]) {
      %e = exp %x : f32[3]
      %y = neg %e : f32[3]
      return %y
    }
    """
    if all(node.region is None or _region_at(node, 0) is None for node in graph.nodes):
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
        scope = _common_scope([node.scope for node in span if node.scope] or [""])
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
            unique = function.name = unused_name(name, self._functions)
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

    Args:
        graph: what is rewritten, in place.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes import inline
    >>> text = '''graph g(%x: f32[3]) { %y = call F(%x) : f32[3] return %y }
    ... function F(%x: f32[3]) { %e = exp %x return %e }'''
    >>> graph = parse(text)
    >>> inline(graph)
    True
    >>> print(graph, end="")
    graph g(%x: f32[3]) {
      %y = exp %x : f32[3]                                            "F"
      return %y
    }
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


def outline_repeated(graph: Graph) -> bool:
    """Repeated layers -> calls of one function, as are updates of parameters that are alike.

    Layers are the Modules with a number in their path (`blocks.0`, `blocks.1`), of the outermost
    such family; their gradients are another function. What is there once stays as it is. The graph
    computes the same; `inline` takes it back.
    """
    marks = _repeated_spans(graph)
    if not marks:
        return False
    trial = copy_graph(graph)
    once = _marked_once(trial, [marks.get(node) for node in graph.nodes], set(graph.functions))
    kept = {node: region for node, region in marks.items() if region not in once}
    for node in graph.nodes:
        node.region = kept.get(node, node.region)
    if kept:
        _Outliner(graph).outline(graph, 0)
    return bool(kept)


def _marked_once(
    graph: Graph, regions: Sequence[Region | None], known: set[str]
) -> set[Region | None]:
    """Which of these regions of the nodes become functions that nothing else calls."""
    for node, region in zip(graph.nodes, regions, strict=True):
        node.region = region or node.region
    order = [region for region, _ in _spans(graph.nodes, 0) if region is not None]
    _Outliner(graph).outline(graph, 0)
    calls = [str(node.attributes["function"]) for node in graph.nodes if node.op is ops.call]
    made = [name for name in calls if name not in known]
    return {region for region, name in zip(order, made, strict=True) if made.count(name) == 1}


def _repeated_spans(graph: Graph) -> dict[Node, Region]:
    """A region for each span of nodes that may be a repeated one; none for other nodes."""
    families: dict[str, set[str]] = {}
    for node in graph.nodes:
        for prefix, index in _numbered(node.scope):
            families.setdefault(prefix, set()).add(index)
    updates = _gather_updates(graph)
    parts = parts_of(graph)
    keys: list[tuple[str, object] | None] = []
    gradients: tuple[str, object] | None = None  # of the layer whose backward was the last
    for node in graph.nodes:
        layers = (x for x in _numbered(node.scope) if len(families[x[0]]) > 1)
        layer = next(layers, None)
        suffix = "" if parts[node] == "forward" else f".{parts[node]}"
        if any(region.kind == "region" for region in _regions(node)) or node.has_effect:
            keys.append(None)
        elif layer is not None:
            keys.append((f"{layer[0].rpartition('.')[2]}{suffix}", layer))
        elif parts[node] == "backward" and not node.scope:
            keys.append(gradients)  # what adds up gradients stands in no Module
        elif node in updates:
            keys.append((node.scope or "update", updates[node]))
        else:
            keys.append(None)
        if parts[node] == "backward":
            gradients = keys[-1]
    found: dict[Node, Region] = {}
    previous: tuple[str, object] | None = None
    region: Region | None = None
    for node, key in zip(graph.nodes, keys, strict=True):
        if key is not None:
            if key != previous or region is None:
                region = Region(key[0], None, node.region)
            found[node] = region
        previous = key
    return found


def _regions(node: Node) -> list[Region]:
    found, region = [], node.region
    while region is not None:
        found.append(region)
        region = region.parent
    return found


def _numbered(scope: str) -> list[tuple[str, str]]:
    """Where a path has numbers: `m.blocks.3.mlp.0` gives (m.blocks, 3) and (m.blocks.3.mlp, 0)."""
    words = scope.split(".")
    return [(".".join(words[:at]), word) for at, word in enumerate(words) if at and word.isdigit()]


def _updates(graph: Graph) -> dict[Node, Value]:
    """The nodes that compute one parameter's update, by the first state that they write.

    Scalars that several of them read, such as a learning rate, belong to none.
    """
    parts, users = parts_of(graph), graph.uses()
    owner: dict[Node, Value] = {}
    first: dict[Value, Value] = {}  # of the cells whose updates have nodes in common
    for cell, new in graph.writes:
        queue = [new]
        while queue:
            node = queue.pop().producer
            if node is None or parts[node] != "update" or all(not x.shape for x in node.results):
                continue
            if node in owner:
                one, other = _root(first, owner[node]), _root(first, cell)
                if one is not other:
                    first[other] = one
                continue
            owner[node] = cell
            queue += node.operands
    found = {node: _root(first, cell) for node, cell in owner.items()}
    for node in reversed(graph.nodes):
        if parts[node] == "update" and node not in found:
            readers = {found.get(x) for result in node.results for x in users.get(result, ())}
            (reader, *others) = readers or {None}
            if reader is not None and not others:
                found[node] = reader
    return found


def _gather_updates(graph: Graph) -> dict[Node, Value]:
    """Put the nodes of each update next to each other, at the end: nothing else reads them."""
    found, users = _updates(graph), graph.uses()
    for node in reversed(graph.nodes):
        readers = (x for result in node.results for x in users.get(result, ()))
        if node in found and any(found.get(x) is not found[node] for x in readers):
            del found[node]
    order = {cell: number for number, (cell, _) in enumerate(graph.writes)}
    rest = [node for node in graph.nodes if node not in found]
    late = [node for node in graph.nodes if node in found]
    graph.nodes = rest + sorted(late, key=lambda node: order[found[node]])
    return found


def _root(first: dict[Value, Value], cell: Value) -> Value:
    while cell in first:
        cell = first[cell]
    return cell
