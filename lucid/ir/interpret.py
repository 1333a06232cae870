"""Run a graph with NumPy: the meaning that compiled code is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from lucid.ir import ops
from lucid.ir.errors import ArgumentError, LeavesPath, LucidError, NotFinite, ShapeError
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.hosts import Frame, HostFunction, host_function
from lucid.ir.inference import no_memory
from lucid.ir.location import at_line
from lucid.ir.region_ops import body_names, run_region

# What becomes of a node's result: called with the node, its operands and the result.
After = Callable[[Node, Sequence[np.ndarray], np.ndarray], np.ndarray]


def interpret(
    graph: Graph, inputs: Sequence[np.ndarray | float], after: After | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Evaluate a graph, one op after the other, with the ops' NumPy references.

    Args:
        graph: may contain calls of its functions, and of Python.
        inputs: one for each of the graph's inputs, of its dtype and shape; a Python number for
            a live input.
        after: gives what takes the place of the result of an op.

    Returns:
        The outputs, and the new values of the graph's writes in their order. They are fresh arrays:
        nothing is written to the inputs.

    Raises:
        ArgumentError, ShapeError: the inputs don't fit the graph.
        LucidError: what an op raises, such as IndexOutOfRangeError, with the user's line.
    """
    arrays = _checked(graph, inputs)
    with np.errstate(all="ignore"):
        results = _run(graph, arrays, _Tables(graph.functions, graph.hosts, after))
    fresh = [np.array(result, order="C") for result in results]
    return fresh[: len(graph.outputs)], fresh[len(graph.outputs) :]


def interpreter_of(
    graph: Graph, inputs: Sequence[np.ndarray | float]
) -> tuple[list[np.ndarray], Callable[[Node, Sequence[np.ndarray]], Sequence[np.ndarray]]]:
    """The inputs as arrays, and what evaluates the nodes of a graph, one after the other.

    Raises: `ArgumentError`, `ShapeError` as `interpret`.
    """
    tables = _Tables(graph.functions, graph.hosts)

    def run(node: Node, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        try:
            return _results(node, operands, tables)
        except (LeavesPath, NotFinite) as error:
            error.frame = tables.frame
            raise

    return _checked(graph, inputs), run


def every_value(graph: Graph, inputs: Sequence[np.ndarray | float]) -> dict[Value, np.ndarray]:
    """Evaluate a graph and keep all values, to find where others begin to differ from them."""
    known: dict[Value, np.ndarray] = {}
    tables = _Tables(graph.functions, graph.hosts)
    for entry, array in zip(graph.inputs, _checked(graph, inputs), strict=True):
        known[entry.value] = array
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            operands = [known[operand] for operand in node.operands]
            known.update(zip(node.results, _results(node, operands, tables), strict=True))
    return known


def _checked(graph: Graph, inputs: Sequence[np.ndarray | float]) -> list[np.ndarray]:
    if len(inputs) != len(graph.inputs):
        raise ArgumentError(
            f"graph {graph.name} takes {len(graph.inputs)} inputs, {len(inputs)} were given"
        )
    arrays = []
    for entry, given in zip(graph.inputs, inputs, strict=True):
        type = entry.value.type
        array = np.asarray(given, type.dtype.numpy if isinstance(given, (int, float)) else None)
        if array.dtype != type.dtype.numpy:
            raise ArgumentError(f"input {entry.value!r}: an array of {array.dtype} was given")
        if array.shape != type.shape:
            raise ShapeError(f"input {entry.value!r}: an array of shape {array.shape} was given")
        arrays.append(array)
    return arrays


@dataclass(slots=True)
class _Tables:
    """What nodes refer to by name, and what the host calls of this run share."""

    functions: dict[str, Graph]
    hosts: Mapping[str, HostFunction]
    after: After | None = None
    frame: Frame = field(default_factory=dict)


def _run(graph: Graph, inputs: Sequence[np.ndarray], tables: _Tables) -> list[np.ndarray]:
    """Evaluate the nodes, and forget each value after its last use."""
    last_uses = _last_uses(graph)
    known: dict[Value, np.ndarray] = {}
    for entry, array in zip(graph.inputs, inputs, strict=True):
        known[entry.value] = array
    for node, dying in zip(graph.nodes, last_uses, strict=True):
        computed = _results(node, [known[operand] for operand in node.operands], tables)
        known.update(zip(node.results, computed, strict=True))
        for value in dying:
            del known[value]
    return [known[value] for value in graph.results()]


def _results(node: Node, operands: Sequence[np.ndarray], tables: _Tables) -> Sequence[np.ndarray]:
    if node.op is ops.call:
        return _run(tables.functions[node.attributes["function"]], operands, tables)
    if node.op.kind == "region":
        bodies = [tables.functions[name] for name in body_names(node)]
        return run_region(node, bodies, operands, lambda body, given: _run(body, given, tables))
    if node.op is ops.host:
        function = host_function(tables.hosts, node.attributes["function"])
        given = [np.asarray(operand, order="C") for operand in operands]
        results = function(tables.frame, given)
    else:
        results = [evaluate_node(node, operands)]
    after = tables.after
    return results if after is None else [after(node, operands, result) for result in results]


def evaluated(
    node: Node,
    operands: Sequence[np.ndarray],
    functions: dict[str, Graph],
    hosts: Mapping[str, HostFunction] = MappingProxyType({}),
    frame: Frame | None = None,
) -> Sequence[np.ndarray]:
    """Evaluate one op, which may run functions, and these host calls, which share the frame."""
    tables = _Tables(functions, hosts, None, {} if frame is None else frame)
    return _results(node, operands, tables)


def evaluate_node(node: Node, operands: Sequence[np.ndarray]) -> np.ndarray:
    """Evaluate one op.

    NumPy's sums round by memory layout, so all get C order but views, and products, which copy.
    """
    if not node.op.is_view and node.op.kind != "contract":
        operands = [np.asarray(operand, order="C") for operand in operands]
    try:
        result = np.asarray(node.op.evaluate(*operands, **node.attributes))
    except LucidError as error:
        raise at_line(error, node.location) from error
    except MemoryError as error:
        raise at_line(no_memory(node.op, node.operands, error), node.location) from error
    type_ = node.result.type
    assert result.dtype == type_.dtype.numpy and result.shape == type_.shape, (
        f"{node.op.name} gave {result.dtype}{list(result.shape)}, declared is {type_}"
    )
    return result


def _last_uses(graph: Graph) -> list[list[Value]]:
    """For each node, the values that nothing after it reads; its own results if nothing does."""
    live = set(graph.results())
    dying: list[list[Value]] = []
    for node in reversed(graph.nodes):
        ending = [v for v in dict.fromkeys((*node.operands, *node.results)) if v not in live]
        live.update(ending)
        dying.append(ending)
    return dying[::-1]
