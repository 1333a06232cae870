"""Run a graph op by op on the user's lines, so that a debugger steps through these."""

from __future__ import annotations

import ast
import itertools
import keyword
import re
from collections.abc import Iterator, Sequence

import numpy as np

from lucid.ir.graph import Graph, Node, Value
from lucid.ir.interpret import interpreter_of
from lucid.ir.text.printer import value_names

NO_FILE = "<lucid>"  # of nodes that come from no line
STEPPING = "__lucid_stepping__"  # a global of the frames in which ops run


def step_through(
    graph: Graph, inputs: Sequence[np.ndarray | float]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """As `interpret`, each op as a statement that stands at its line in the user's file.

    Its result is a variable with the value's name. An error's traceback ends at the line, and a
    debugger that is entered there goes on from line to line in the order of the graph.
    """
    names = _variables(graph)
    arrays, run = interpreter_of(graph, inputs)
    space: dict[str, object] = {STEPPING: lambda i, *operands: run(graph.nodes[i], operands)}
    for entry, array in zip(graph.inputs, arrays, strict=True):
        space[names[entry.value]] = array
    with np.errstate(all="ignore"):
        for file, numbers in itertools.groupby(range(len(graph.nodes)), lambda i: _file(graph, i)):
            statements = [_statement(i, graph.nodes[i], names) for i in numbers]
            exec(compile(ast.Module(statements, []), file, "exec"), space)
    fresh = [np.array(space[names[value]], order="C") for value in graph.results()]
    return fresh[: len(graph.outputs)], fresh[len(graph.outputs) :]


def _file(graph: Graph, number: int) -> str:
    location = graph.nodes[number].location
    return NO_FILE if location is None else location.file


def _statement(number: int, node: Node, names: dict[Value, str]) -> ast.stmt:
    """`y, = __lucid_stepping__(number, a, b)`, at the node's line."""
    results = "".join(f"{names[value]}, " for value in node.results)
    operands = "".join(f", {names[value]}" for value in node.operands)
    call = f"{STEPPING}({number}{operands})"
    (statement,) = ast.parse(f"{results}= {call}" if results else call).body
    line = 1 if node.location is None else node.location.line
    for part in ast.walk(statement):
        if isinstance(part, (ast.stmt, ast.expr)):
            part.lineno = part.end_lineno = line
    return statement


def _variables(graph: Graph) -> dict[Value, str]:
    """The values' names as Python's: `layer.weight` is layer_weight."""
    taken: set[str] = set()
    found = {}
    for value, name in value_names(graph).items():
        plain = re.sub(r"\W", "_", name)
        plain = f"_{plain}" if plain[:1].isdigit() or keyword.iskeyword(plain) else plain
        free = next(x for x in _numbered(plain) if x not in taken)
        taken.add(free)
        found[value] = free
    return found


def _numbered(name: str) -> Iterator[str]:
    yield name
    for number in itertools.count(2):
        yield f"{name}_{number}"
