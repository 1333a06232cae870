"""What a forward keeps so that its backward need not compute it again: a minimum cut."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf, prod

from lucid.ir import ops
from lucid.ir.clone import copy_node
from lucid.ir.extents import hint
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.ops.attention import AttentionSizes
from lucid.ir.ops.contraction import split_indices
from lucid.ir.passes.cse import value_number
from lucid.ir.passes.flow import FlowNetwork
from lucid.ir.passes.rematerialize import outermost_block

# Bytes that could be moved in the time that one element of a map takes to compute. A value that is
# kept is written once and read once, at the speed of a cache or of memory.
_WORK_PER_ELEMENT = 1.0
_WORK_OF_FUNCTIONS = 8.0  # exp, tanh, erf …
_WORK_PER_PAIR = 0.25  # of the factors of a product
FUNCTIONS = frozenset((
    ops.cos, ops.erf, ops.exp, ops.expm1, ops.log, ops.log1p, ops.pow, ops.sigmoid, ops.sin,
    ops.tanh,
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cut:
    """What a minimum cut has decided.

    Attributes:
        kept: the residuals, in the order of the graph.
        repeated: the nodes that compute the other values again, from residuals and free values.
    """

    kept: list[Value]
    repeated: list[Node]

    def __str__(self) -> str:
        """A line for each value: bytes that are kept, or the bytes that its work is worth."""
        lines = [f"kept      {described(x)}, {bytes_of(x):,} bytes" for x in self.kept]
        lines += [
            f"repeated  {described(node.results[0])}, work of {_work(node) or 0:,.0f} bytes"
            for node in self.repeated
            if node.operands
        ]
        return "\n".join(lines)


def described(value: Value) -> str:
    """A value in a line: its name, op and type, its Module and the user's line."""
    node = value.producer
    parts = [f"%{value.name}"] if value.name else []
    parts += [] if node is None else [node.op.name]
    places = [] if node is None else [node.scope, str(node.location or "")]
    return "  ".join([f"{' = '.join(parts)} : {value.type}", *filter(None, places)])


def bytes_of(value: Value) -> int:
    """What keeping a value takes, by the sizes at hand."""
    return int(hint(value.type.nbytes))


def minimum_cut(graph: Graph, needed: Iterable[Value], free: Collection[Value]) -> Cut:
    """Choose what to keep of a graph's values so that the `needed` ones can be had later.

    Keeping a value costs its bytes, computing it again its work; products, reductions, sorts and
    the like are not computed again but in checkpointed blocks, of which only what enters or leaves
    them is kept. Each value is an edge from "it can be computed" to "it is
    there" whose capacity is the cost of keeping it; that of the edge from the source to the former
    is the cost of computing it again, without end where that is out of the question.

    Args:
        free: values that will be there at no cost. Other inputs of the graph are kept, or not used.

    Reference: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; the cut is that
    of Zheng et al., "AOTAutograd" (PyTorch's min-cut partitioner), 2022.
    """
    wanted = [value for value in dict.fromkeys(needed) if value not in free]
    inside = _within_blocks(graph)
    is_easy = not any(_may_be_repeated(value) for value in wanted)
    kept = set(wanted) if is_easy else _smallest(wanted, free, inside)
    order = {value: i for i, value in enumerate(_values(graph))}
    known = {*kept, *free}
    return Cut(sorted(kept, key=order.__getitem__), nodes_between(graph, known, wanted))


def _may_be_repeated(value: Value) -> bool:
    return value.producer is not None and _work(value.producer) is not None


def _within_blocks(graph: Graph) -> set[Value]:
    """Values of checkpointed blocks that nothing outside of their block reads."""
    blocks = {x: outermost_block(node) for node in graph.nodes for x in node.results}
    inside = {value for value, block in blocks.items() if block is not None}
    inside = {x for x in inside if x.producer is not None and _work(x.producer) is not None}
    for node in graph.nodes:
        block = outermost_block(node)
        inside -= {x for x in node.operands if x in inside and blocks[x] is not block}
    return inside - {*graph.results()}


def _smallest(
    wanted: Collection[Value], free: Collection[Value], inside: Collection[Value]
) -> set[Value]:
    network = FlowNetwork()
    forward, backward = network.node(), network.node()
    queue = [*wanted]
    ends = {value: (network.node(), network.node()) for value in queue}
    for value in queue:  # which grows meanwhile
        before, there = ends[value]
        network.connect(before, there, inf if value in inside else _cost(value))
        node = value.producer
        again = None if node is None else _work(node)
        network.connect(forward, before, inf if again is None else again)
        for operand in () if node is None or again is None else node.operands:
            if operand in free:
                continue
            if operand not in ends:
                ends[operand] = network.node(), network.node()
                queue.append(operand)
            network.connect(ends[operand][1], before)
    for value in wanted:
        network.connect(ends[value][1], backward)
    below = network.sink_side(forward, backward)
    return {x for x, (before, there) in ends.items() if there in below and before not in below}


def _cost(value: Value) -> float:
    """What it costs to write a value and to read it again; all else being equal, keep the later."""
    return 2.0 * bytes_of(value)


def _work(node: Node) -> float | None:
    """What computing a node again costs, in bytes; None where that is out of the question."""
    kind = node.op.kind
    if kind in ("view", "create", "check"):
        return 0.0
    if kind in ("map", "random"):
        is_function = kind == "random" or node.op in FUNCTIONS
        per_element = _WORK_OF_FUNCTIONS if is_function else _WORK_PER_ELEMENT
        return per_element * sum(map(_elements, node.results))
    if outermost_block(node) is None or node.has_effect:
        return None
    if kind in ("contract", "attention"):
        return _WORK_PER_PAIR * _pairs(node)
    return _WORK_PER_ELEMENT * sum(map(_elements, node.operands))


def _elements(value: Value) -> int:
    """How many there are, by the sizes at hand."""
    return int(hint(value.type.size))


def _pairs(node: Node) -> int:
    """How many pairs of factors a product, or the products of an attention, add up."""
    if node.op.kind == "attention":
        of = AttentionSizes.of(*node.operands[: 3 + node.attributes["has_mask"]])
        return int(hint(prod(of.scores) * (of.inner + of.columns)))
    a, b = node.operands
    if node.op is ops.matmul:
        return _elements(node.result) * int(hint(a.shape[-1]))
    lhs, rhs, _ = split_indices(node.attributes["indices"])
    sizes = dict(zip(lhs + rhs, a.shape + b.shape, strict=True))
    return prod(map(hint, sizes.values()))


def _values(graph: Graph) -> Iterable[Value]:
    yield from (entry.value for entry in graph.inputs)
    for node in graph.nodes:
        yield from node.results


def equal_values(graph: Graph) -> dict[Value, Value]:
    """For each value that is computed more than once the first one: value numbering."""
    first: dict[tuple[object, ...], Node] = {}
    equal: dict[Value, Value] = {}
    for node in graph.nodes:
        if graph.has_effect(node):
            continue
        operands = tuple(equal.get(operand, operand) for operand in node.operands)
        known = first.setdefault(value_number(node, operands), node)
        if known is not node:
            equal.update(zip(node.results, known.results, strict=True))
    return equal


def nodes_between(graph: Graph, known: Collection[Value], needed: Iterable[Value]) -> list[Node]:
    """The nodes that compute the needed values from known ones, in the order of the graph."""
    found: set[Node] = set()
    stack = [value for value in needed if value not in known]
    while stack:
        node = stack.pop().producer
        if node is not None and node not in found:
            found.add(node)
            stack += [operand for operand in node.operands if operand not in known]
    return [node for node in graph.nodes if node in found]


def repeat(
    nodes: Iterable[Node], target: Graph, known: Mapping[Value, Value]
) -> dict[Value, Value]:
    """Append copies of nodes to another graph; gives all known values and the new ones there.

    A check has passed before, and its operand stands for its result.

    Args:
        known: for values that the nodes read, those of the target.
    """
    mapping = dict(known)
    for node in nodes:
        if node.op is ops.check:
            mapping[node.result] = mapping[node.operands[0]]
            continue
        copied = copy_node(node, target, mapping)
        copied.region = None
        target.nodes.append(copied)
    return mapping
