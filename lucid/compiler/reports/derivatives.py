"""The derivatives that a step has used, against central differences of its ops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lucid.ir import ops
from lucid.ir.clone import rewritten
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.interpret import every_value, interpret
from lucid.ir.passes.regions import inline
from lucid.ir.types import TensorType, f64

STEP = 1e-6  # of a central difference, relative to 1 + |x|
TRIES = 3
TOLERANCE = 1e-3  # of the terms' sum; a difference in f64 is right to 1e-9 where ops are smooth


def wrong_derivative(
    recorded: Graph, inputs: Sequence[np.ndarray | float]
) -> tuple[Graph, Node] | None:
    """The first op whose VJP isn't the transpose of its derivative, with the graph it is in.

    <g, J v> = <J^T g, v> is tried in f64 for some random g and v, of which one alone may hide what
    is wrong, with the operands that the op has in the step. Left out are elements of the result at
    a kink, where differences to both sides are two, and operands that the rule gives no gradient
    for. Of ops on operands of the same types one is tried.
    """
    graph = rewritten(recorded, inline)
    used = {node.gradient_of for node in graph.nodes}
    values = every_value(graph, inputs)
    seen: set[str] = set()
    for node in graph.nodes:
        if len(node.results) != 1 or node.result not in used or not _is_tried(node):
            continue
        key = f"{node!r} {node.attributes}"
        if key not in seen:
            seen.add(key)
            if not _is_right(node, [values[operand] for operand in node.operands]):
                return graph, node
    return None


def _is_tried(node: Node) -> bool:
    floats = node.result.dtype.kind == "float" and node.op.kind != "host"
    return floats and node.op.vjp is not None and "dtype" not in node.attributes


def _is_right(node: Node, operands: Sequence[np.ndarray]) -> bool:
    random = np.random.default_rng(0)
    return all(_is_right_along(node, operands, random) for _ in range(TRIES))


def _is_right_along(
    node: Node, operands: Sequence[np.ndarray], random: np.random.Generator
) -> bool:
    """Whether it is for one g and v."""
    wide = [np.asarray(x, np.float64) if x.dtype.kind == "f" else x for x in operands]
    given = _pulled_back(node, wide, np.zeros(node.result.shape))
    along = [
        None if part is None else random.normal(size=x.shape) * (1 + np.abs(x))
        for x, part in zip(wide, given, strict=True)
    ]
    with np.errstate(all="ignore"):
        behind, here, ahead = (
            np.asarray(node.op.evaluate(*_moved(wide, along, h), **node.attributes))
            for h in (-STEP, 0.0, STEP)
        )
        found, is_smooth = slope(behind, here, ahead, STEP)
    g = np.where(is_smooth, random.normal(size=here.shape), 0.0)
    g = np.asarray(g, np.float64)
    terms = np.where(is_smooth, found, 0.0) * g
    total, size = float(terms.sum()), float(np.abs(terms).sum())
    for part, v in zip(_pulled_back(node, wide, g), along, strict=True):
        if part is not None and v is not None:
            total -= float((part * v).sum())
            size += float(np.abs(part * v).sum())
    return not np.isfinite(total) or abs(total) <= TOLERANCE * max(size, STEP)


def slope(
    behind: np.ndarray, here: np.ndarray, ahead: np.ndarray, step: float
) -> tuple[np.ndarray, np.ndarray]:
    """The central difference, and where those to both sides agree: the others are at a kink."""
    left, right = (here - behind) / step, (ahead - here) / step
    is_smooth = np.abs(left - right) <= TOLERANCE * (np.abs(left) + np.abs(right) + 1)
    return (left + right) / 2, is_smooth


def _is_float(x: np.ndarray) -> bool:
    return x.dtype.kind == "f"


def _moved(
    operands: Sequence[np.ndarray], along: Sequence[np.ndarray | None], h: float
) -> list[np.ndarray]:
    return [x if v is None else np.asarray(x + h * v) for x, v in zip(operands, along, strict=True)]


def _pulled_back(
    node: Node, operands: Sequence[np.ndarray], g: np.ndarray
) -> list[np.ndarray | None]:
    """What the op's VJP gives for each operand."""
    graph = Graph(node.op.name)
    types = [
        TensorType(f64, x.shape) if _is_float(x) else value.type
        for x, value in zip(operands, node.operands, strict=True)
    ]
    given = [graph.add_input(type) for type in types]
    cotangent = graph.add_input(TensorType(f64, g.shape))
    result = graph.append(node.op, given, node.attributes).result
    assert node.op.vjp is not None
    parts: Sequence[Value | None] = node.op.vjp(cotangent, result, *given, **node.attributes)
    wanted = [
        None if part is None or type.dtype is not f64 else ops.sum_to_shape(part, type.shape)
        for part, type in zip(parts, types, strict=True)
    ]
    graph.outputs = [part for part in wanted if part is not None]
    arrays = iter(interpret(graph, [*operands, g])[0])
    return [None if part is None else next(arrays) for part in wanted]
