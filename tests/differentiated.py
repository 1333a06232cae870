"""Reverse-mode differentiation of graphs, an oracle for passes; and functions to differentiate.

lucid itself differentiates by its tape. Here the same VJP rules are walked over a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lucid.ir import ops
from lucid.ir.clone import copy_graph
from lucid.ir.errors import NotDifferentiableError
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.interpret import interpret
from lucid.ir.passes.rewrite import constant_like
from lucid.ir.types import TensorType, f32

Build = Callable[..., Value]


def f(*shape: int) -> TensorType:
    return TensorType(f32, shape)


def relu(x: Value) -> Value:
    return ops.maximum(x, ops.zero(x))


def halves(build: Build, *types: TensorType) -> tuple[Graph, Graph, dict[Value, Value]]:
    """A function, and a graph that runs it again and differentiates it, by all its floats."""
    forward, backward = Graph("forward"), Graph("backward")
    inputs = [forward.add_input(type, name=f"x{i}") for i, type in enumerate(types)]
    forward.outputs = [build(*inputs)]
    again = [backward.add_input(type, name=f"x{i}") for i, type in enumerate(types)]
    result = build(*again)
    cotangent = backward.add_input(result.type, name="g")
    floats = [x for x in again if x.dtype.is_floating_point]
    found = differentiate(backward, result, floats, cotangent)
    backward.outputs = [gradient for gradient in found if gradient is not None]
    backward.drop_dead_nodes()
    return forward, backward, dict(zip(again, inputs, strict=True))


def random_function(seed: int) -> tuple[Build, Sequence[TensorType]]:
    """Products, maps, reductions and views of three matrices, some used several times."""
    source = np.random.default_rng(seed)

    def build(*inputs: Value) -> Value:
        rng = np.random.default_rng(seed)
        values = list(inputs)
        for _ in range(12):
            x, y = (values[rng.integers(len(values))] for _ in range(2))
            match rng.integers(6):
                case 0:
                    values.append(ops.matmul(x, y))
                case 1:
                    values.append(rng.choice([ops.tanh, ops.sigmoid, relu, ops.sin])(x))  # type: ignore[arg-type]
                case 2:
                    values.append(rng.choice([ops.add, ops.mul, ops.sub])(x, y))  # type: ignore[arg-type]
                case 3:
                    values.append(ops.transpose(x, perm=(1, 0)))
                case 4:
                    total = ops.reshape(ops.sum(x, axes=(1,)), shape=(x.shape[0], 1))
                    values.append(ops.mul(ops.tanh(total), y))
                case _:
                    values.append(ops.where(ops.lt(x, y), x, y))
        return ops.sum(ops.mul(values[-1], values[-2]), axes=(0, 1))

    return build, [f(int(source.integers(4, 5)), 4) for _ in range(3)]


def random_gradient(seed: int) -> tuple[Graph, list[np.ndarray], list[np.ndarray]]:
    """The gradients of a random function, as a graph; arguments, and what it makes of them."""
    build, types = random_function(seed)
    _, graph, _ = halves(build, *types)
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=type.shape).astype(np.float32) * 0.3 for type in types]
    arrays.append(np.ones((), np.float32))
    return graph, arrays, interpret(copy_graph(graph), arrays)[0]


def differentiate(
    graph: Graph, of: Value, wrt: Sequence[Value], seed: Value | None = None
) -> list[Value | None]:
    """Append nodes that compute the cotangents of `wrt` from that of `of`: seed^T d(of)/d(wrt).

    Nodes are visited in the reverse of their order, so the contributions to a value are summed
    from its last use to its first. Only nodes on a path from `wrt` to `of` are visited; cotangents
    that a rule computes besides are dead nodes afterwards. The new nodes have the line and scope
    of the node that they are derived from, and its result as `gradient_of`.

    Args:
        of: a float value of the graph.
        wrt: values of the graph, inputs or not; one may be `of` itself.
        seed: the cotangent of `of`, of its type; ones by default.

    Returns:
        For each of `wrt` its cotangent; None where `of` doesn't depend on it, or only through
        integers and truth values.

    Raises:
        NotDifferentiableError: `of` isn't a float, or an op on the path has no VJP.

    Reference: Griewank and Walther, "Evaluating Derivatives", 2008, section 3.2.
    """
    if not of.dtype.is_floating_point:
        raise NotDifferentiableError(f"differentiate: {of!r} isn't of a float dtype")
    path = _path(graph, of, wrt)
    last = len(graph.nodes)
    cotangents = {of: constant_like(of, 1.0) if seed is None else seed}
    if of.producer is not None:
        _annotate(graph.nodes[last:], of.producer)
    depends = {*wrt, *(result for node in path for result in node.results)}
    for node in reversed(path):
        if any(result in cotangents for result in node.results):
            _propagate(graph, node, cotangents, depends)
    _name(cotangents, set(graph.nodes[last:]))
    return [cotangents.get(value) for value in wrt]


def _path(graph: Graph, of: Value, wrt: Sequence[Value]) -> list[Node]:
    """The nodes that depend on `wrt` and that `of` depends on, in order."""
    depends = set(wrt)
    dependent: list[Node] = []
    for node in graph.nodes:
        if any(operand in depends for operand in node.operands):
            depends.update(node.results)
            dependent.append(node)
    needed = {of}
    path: list[Node] = []
    for node in reversed(dependent):
        if any(result in needed for result in node.results):
            needed.update(node.operands)
            path.append(node)
    return path[::-1]


def _propagate(
    graph: Graph, node: Node, cotangents: dict[Value, Value], depends: set[Value]
) -> None:
    """Add what a node contributes to the cotangents of its operands."""
    start = len(graph.nodes)
    if node.op.vjp is None:
        if any(operand.dtype.is_floating_point for operand in node.operands):
            raise _not_differentiable(node)
        return
    result = node.results[0]
    parts = node.op.vjp(cotangents[result], result, *node.operands, **node.attributes)
    for operand, part in zip(node.operands, parts, strict=True):
        if part is None or operand not in depends or not operand.dtype.is_floating_point:
            continue
        contribution = ops.sum_to_shape(part, operand.shape)
        if operand in cotangents:
            contribution = ops.add(cotangents[operand], contribution)
        cotangents[operand] = contribution
    _annotate(graph.nodes[start:], node)


def _name(cotangents: dict[Value, Value], new: set[Node]) -> None:
    """Name the cotangents of values that have names: `g_h` for `h`."""
    for value, cotangent in cotangents.items():
        if value.name and not cotangent.name and cotangent.producer in new:
            cotangent.name = f"g_{value.name}"


def _annotate(derived: Sequence[Node], node: Node) -> None:
    for new in derived:
        new.location = node.location
        new.scope = node.scope
        new.gradient_of = node.results[0]


def _not_differentiable(node: Node) -> NotDifferentiableError:
    hint = "\nhint: inline the calls first" if node.op is ops.call else ""
    operands = ", ".join(map(repr, node.operands))
    place = ""
    if node.location is not None:
        place = f"\n  in {node.location}   {node.location.text}".rstrip()
    return NotDifferentiableError(
        f"{node.op.name}: there is no derivative of {node.op.name}({operands}){place}{hint}"
    )
