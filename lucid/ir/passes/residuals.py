"""What a forward program keeps so that its backward doesn't compute it again: a minimum cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lucid.ir.graph import Graph, Node, Value
from lucid.ir.passes.numbering import value_number

# Bytes that could be moved in the time that one element of a map takes to compute. A value that is
# kept is written once and read once, at the speed of a cache or of memory.
_WORK_PER_ELEMENT = 1.0
_WORK_OF_FUNCTIONS = 8.0  # exp, tanh, erf …
_FUNCTIONS = frozenset((
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "erfc",
    "erfinv", "exp", "expm1", "lgamma", "log", "log1p", "pow", "sigmoid", "sin", "sinh", "tan",
    "tanh",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cut:
    """What the cut has decided, as values of the forward.

    Attributes:
        kept: the residuals, in the order in which they are handed over.
        repeated: what the backward computes again.
    """

    kept: list[Value]
    repeated: list[Value]

    def __str__(self) -> str:
        """A line for each value: bytes that are kept, or the bytes that its work is worth."""
        lines = [f"kept      {_described(x)}, {x.type.nbytes:,} bytes" for x in self.kept]
        for value in self.repeated:
            work = 0 if value.producer is None else _work(value.producer) or 0
            lines.append(f"repeated  {_described(value)}, work of {work:,.0f} bytes")
        return "\n".join(lines)


def _described(value: Value) -> str:
    node = value.producer
    op = "" if node is None else f" = {node.op.name}"
    place = "" if node is None or node.location is None else f"  {node.location}"
    return f"%{value.name or '?'}{op} : {value.type}{place}"


def keep_residuals(forward: Graph, backward: Graph, inputs: Mapping[Value, Value]) -> Cut:
    """Let the backward read from the forward what both compute, as far as that is worth it.

    `forward` gets them as outputs after its own, `backward` as inputs after its own, in one order.
    Which ones is a minimum cut between what the forward has and what only the backward computes:
    keeping a value costs its bytes, computing it again its work. Products, reductions, sorts and
    the like are not computed again.

    Args:
        forward, backward: flat graphs without calls of Python; rewritten.
        inputs: inputs of the backward that hold what an input of the forward held.

    Reference: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; the cut is that
    of Zheng et al., "AOTAutograd" (PyTorch's min-cut partitioner), 2022.
    """
    common = common_values(forward, backward, inputs)
    _drop_passed_checks(backward, common)
    kept = _minimum_cut(backward, common)
    replacement = {}
    for value in kept:
        forward.outputs.append(common[value])
        replacement[value] = backward.add_input(value.type, "arg", value.name)
    backward.substitute(replacement)
    backward.drop_dead_nodes()
    repeated = [x for node in backward.nodes for x in node.results if x in common and node.operands]
    return Cut([common[value] for value in kept], [common[value] for value in repeated])


def common_values(first: Graph, second: Graph, inputs: Mapping[Value, Value]) -> dict[Value, Value]:
    """Values of `second`, inputs included, and the equal ones of `first`: value numbering.

    inputs: inputs of `second` that are equal to one of `first`.
    """
    known: dict[tuple[object, ...], Node] = {}
    alike: dict[Value, Value] = {}
    for node in first.nodes:
        operands = tuple(alike.get(operand, operand) for operand in node.operands)
        one = known.setdefault(value_number(node, operands), node)
        alike.update(zip(node.results, one.results, strict=True))
    common = dict(inputs)
    for node in second.nodes:
        if node.op.kind == "host" or not all(operand in common for operand in node.operands):
            continue
        operands = tuple(alike.get(common[x], common[x]) for x in node.operands)
        equal = known.get(value_number(node, operands))
        if equal is not None:
            common.update(zip(node.results, equal.results, strict=True))
    return common


def _drop_passed_checks(backward: Graph, common: Mapping[Value, Value]) -> None:
    """A check whose result the forward has too has passed there."""
    passed = {node for node in backward.nodes if node.op.kind == "check" and node.result in common}
    backward.substitute({node.result: node.operands[0] for node in passed})
    backward.nodes = [node for node in backward.nodes if node not in passed]


def _minimum_cut(backward: Graph, common: Mapping[Value, Value]) -> list[Value]:
    """The values to be kept, in the order of the backward.

    Each value is an edge from "it can be computed" to "it is there" whose capacity is the cost of
    keeping it; that of the edge from the source to the former is the cost of computing it again,
    without end where that is out of the question. Inputs are there at no cost.
    """
    import networkx

    beyond = [node for node in backward.nodes if node.results[0] not in common]
    read = {operand for node in beyond for operand in node.operands}.union(backward.results())
    needed = [x for x in common if x.producer is not None and x in read]
    if not needed:
        return []
    network = networkx.DiGraph()
    seen, queue = set(needed), list(needed)
    for value in queue:  # which grows meanwhile
        node = value.producer
        kept_at = 0.0 if node is None else 2.0 * value.type.nbytes
        network.add_edge((value, 0), (value, 1), capacity=kept_at)
        again = None if node is None else _work(node)
        if again is None:
            network.add_edge("forward", (value, 0))
            continue
        network.add_edge("forward", (value, 0), capacity=again)
        assert node is not None
        for operand in node.operands:
            network.add_edge((operand, 1), (value, 0))
            if operand not in seen:
                seen.add(operand)
                queue.append(operand)
    for value in needed:
        network.add_edge((value, 1), "backward")
    _, (_, below) = networkx.minimum_cut(network, "forward", "backward")
    cut = {x for x in seen if x.producer is not None and (x, 1) in below and (x, 0) not in below}
    return [value for node in backward.nodes for value in node.results if value in cut]


def _work(node: Node) -> float | None:
    """What computing a node again costs, in bytes; None where that is out of the question."""
    kind = node.op.kind
    if kind in ("view", "create"):
        return 0.0
    if kind in ("map", "random"):
        is_function = kind == "random" or node.op.name in _FUNCTIONS
        per_element = _WORK_OF_FUNCTIONS if is_function else _WORK_PER_ELEMENT
        return per_element * sum(result.type.size for result in node.results)
    return None
