"""The invariants of the IR, checked."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.attributes import check_arguments
from lucid.ir.errors import LucidError, VerifyError
from lucid.ir.extents import Extent
from lucid.ir.graph import INPUT_KINDS, Graph, Node, Value, has_effect
from lucid.ir.inference import result_type
from lucid.ir.region_ops import body_names, region_problem
from lucid.ir.types import DTYPES, DType, TensorType, f64, i64

LIVE_TYPES = (TensorType(f64, ()), TensorType(i64, ()))


def verify(graph: Graph) -> None:
    """Check that a graph, and each function that it calls, is well formed.

    Values are defined once, before their use, by this graph; each node's type is what its op's type
    rule gives; calls fit the functions that they name, and no function calls itself; each state is
    written at most once, with its own type. Raises `VerifyError`, which names the node and the
    user's line.
    """
    _Verifier(graph, graph.functions).run()
    for name, function in graph.functions.items():
        if function.name != name:
            raise VerifyError(f"graph {graph.name}: function {function.name} is filed under {name}")
        if function.functions or function.writes or function.hosts:
            raise VerifyError(f"function {name} has functions or writes of its own")
        _Verifier(function, graph.functions).run()
    _verify_no_function_calls_itself(graph)


class _Verifier:
    """The checks of one graph or function."""

    def __init__(self, graph: Graph, functions: dict[str, Graph]) -> None:
        self._graph = graph
        self._functions = functions
        self._defined: set[Value] = set()

    def run(self) -> None:
        self._inputs()
        for node in self._graph.nodes:
            self._node(node)
            for index, result in enumerate(node.results):
                if result.producer is not node or result.index != index:
                    raise self._error(node, f"result {result!r} says that another node made it")
                self._define(result, node)
        for value in self._graph.outputs:
            if value not in self._defined:
                raise self._error(None, f"the output {value!r} isn't computed in it")
        self._writes()

    def _error(self, node: Node | None, message: str) -> VerifyError:
        if node is None:
            return VerifyError(f"graph {self._graph.name}: {message}")
        operands = ", ".join(map(repr, node.operands))
        lines = [f"graph {self._graph.name}: {node.op.name}: {message}"]
        lines.append(f"  node: {node.op.name}({operands})")
        if node.location is not None:
            lines.append(f"  from {node.location}   {node.location.text}".rstrip())
        return VerifyError("\n".join(lines))

    def _define(self, value: Value, node: Node | None) -> None:
        if value.graph is not self._graph:
            raise self._error(node, f"{value!r} belongs to another graph")
        if value in self._defined:
            raise self._error(node, f"{value!r} is defined twice")
        if value.type.dtype not in DTYPES:
            raise self._error(node, f"%{value.name} is of no dtype {value.type.dtype!r}")
        self._defined.add(value)

    def _inputs(self) -> None:
        for index, entry in enumerate(self._graph.inputs):
            value = entry.value
            if value.producer is not None or value.index != index:
                raise self._error(None, f"input {index}, {value!r}, has a producer or other index")
            if entry.kind not in INPUT_KINDS:
                raise self._error(None, f"input {value!r} is of no kind {entry.kind!r}")
            if entry.kind == "live" and value.type not in LIVE_TYPES:
                raise self._error(None, f"live input {value!r} isn't an f64[] or i64[]")
            self._define(value, None)

    def _writes(self) -> None:
        inputs = {entry.value: entry for entry in self._graph.inputs}
        written: set[Value] = set()
        for cell, new in self._graph.writes:
            if cell not in inputs or inputs[cell].kind == "live":
                raise self._error(None, f"{cell!r} is written and is no state or argument")
            if cell in written:
                raise self._error(None, f"{cell!r} is written twice")
            if new not in self._defined:
                raise self._error(None, f"what is written to {cell!r} isn't computed in it")
            if new.type != cell.type:
                raise self._error(None, f"{cell!r} is written with a value of type {new.type}")
            written.add(cell)

    def _node(self, node: Node) -> None:
        for operand in node.operands:
            if operand.graph is not self._graph:
                raise self._error(node, f"operand {operand!r} belongs to another graph")
            if operand not in self._defined:
                raise self._error(node, f"operand {operand!r} isn't defined before it")
        for key, value in node.attributes.items():
            if not _is_normal(value):
                raise self._error(node, f"attribute {key} = {value!r} isn't a plain value")
        if node.op is ops.call:
            self._call(node)
        elif node.op is ops.host:
            self._host(node)
        elif node.op.kind == "region":
            self._region(node)
        else:
            self._types(node)

    def _types(self, node: Node) -> None:
        try:
            check_arguments(node.op, len(node.operands), node.attributes)
            inferred = result_type(node.op, [v.type for v in node.operands], node.attributes)
        except LucidError as error:
            raise self._error(node, f"its type rule refuses it: {error}") from error
        found = [result.type for result in node.results]
        if found != [inferred]:
            raise self._error(node, f"its type is {inferred}, not {', '.join(map(str, found))}")

    def _call(self, node: Node) -> None:
        name = node.attributes.get("function")
        function = self._functions.get(str(name))
        if function is None:
            raise self._error(node, f"no function {name}")
        if not node.results and not has_effect(node, self._functions):
            raise self._error(node, f"the call of {name} has no result")
        wanted = [entry.value.type for entry in function.inputs]
        if [operand.type for operand in node.operands] != wanted:
            raise self._error(node, f"{name} takes ({', '.join(map(str, wanted))})")
        given = [value.type for value in function.outputs]
        if [result.type for result in node.results] != given:
            raise self._error(node, f"{name} returns ({', '.join(map(str, given))})")

    def _region(self, node: Node) -> None:
        try:
            check_arguments(node.op, len(node.operands), node.attributes)
        except LucidError as error:
            raise self._error(node, str(error)) from error
        bodies = []
        for name in body_names(node):
            if name not in self._functions:
                raise self._error(node, f"no function {name}")
            bodies.append(self._functions[name])
        if problem := region_problem(node, bodies):
            raise self._error(node, problem)

    def _host(self, node: Node) -> None:
        if list(node.attributes) != ["function"] or type(node.attributes["function"]) is not str:
            raise self._error(node, "a host call has the name of a function, and nothing else")


def _is_normal(value: Any) -> bool:
    """Ints, bools, strings, dtypes, NumPy scalars, and flat tuples of them."""
    if isinstance(value, tuple):
        return not any(isinstance(item, tuple) for item in value) and all(map(_is_normal, value))
    return type(value) in (int, bool, str) or isinstance(value, (DType, Extent, np.generic))


def _verify_no_function_calls_itself(graph: Graph) -> None:
    done: set[str] = set()
    for name in graph.functions:
        path = {name: _callees(graph, name)}  # of calls, each with those that are left to visit
        while path:
            callee = next(path[next(reversed(path))], None)
            if callee is None:
                done.add(path.popitem()[0])
            elif callee in path:
                raise VerifyError(f"graph {graph.name}: {' calls '.join([*path, callee])}")
            elif callee not in done:
                path[callee] = _callees(graph, callee)


def _callees(graph: Graph, name: str) -> Iterator[str]:
    return iter(called_functions(graph.functions[name]))


def called_functions(graph: Graph) -> list[str]:
    """The names of the functions that the graph's own nodes call or run, each once, in order."""
    calls = [
        [node.attributes["function"]] if node.op is ops.call else body_names(node)
        for node in graph.nodes
        if node.op.kind in ("call", "region")
    ]
    return list(dict.fromkeys(chain.from_iterable(calls)))
