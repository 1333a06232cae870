"""Region ops: what types their bodies must have, and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.types import TensorType, bool_, i64

Run = Callable[[Graph, Sequence[np.ndarray]], Sequence[np.ndarray]]
BODIES = {
    ops.scan: ("function",),
    ops.while_loop: ("function",),
    ops.cond: ("function", "otherwise"),
}
"""The attributes that name the functions that a region op runs."""
CONTROL = 2  # so many carries control a while_loop: whether there is a round, and its row
_CONTROL_TYPES = [TensorType(bool_, ()), TensorType(i64, ())]


def body_names(node: Node) -> list[str]:
    """The names of the functions that a region op runs; of all other ops there are none."""
    return [str(node.attributes[key]) for key in BODIES.get(node.op, ())]


def is_loop(node: Node) -> bool:
    """Whether it runs rounds of a body."""
    return node.op in (ops.scan, ops.while_loop)


class ScanParts(NamedTuple):
    """The operands and results of a loop, by what they are; or types, or data, of these."""

    carries: list[Value]
    rows: list[Value]
    captures: list[Value]
    last: list[Value]
    stacks: list[Value]

    @staticmethod
    def of(node: Node) -> ScanParts:
        """Those of a node."""
        carries, rows = node.attributes["carries"], node.attributes["rows"]
        given, found = [*node.operands], [*node.results]
        return ScanParts(
            given[:carries],
            given[carries : carries + rows],
            given[carries + rows :],
            found[:carries],
            found[carries:],
        )


def calls_python(bodies: Iterable[Graph]) -> bool:
    """Whether bodies of a region op call Python, themselves or in bodies of their own."""
    nodes = chain.from_iterable(body.nodes for body in bodies)
    return any(node.has_effect and node.op is not ops.check for node in nodes)


def is_exit(node: Node) -> bool:
    """Whether Python looks at the value that a node checks."""
    return node.op is ops.check and node.attributes["error"] == "exit"


def stacked(type: TensorType, length: int) -> TensorType:
    """The type of so many rows."""
    return TensorType(type.dtype, (length, *type.shape))


def region_problem(node: Node, bodies: Sequence[Graph]) -> str | None:
    """Why a region op and its bodies don't go together; None if they do."""
    for body in bodies:
        if any(map(is_exit, body.nodes)):
            return f"its body {body.name} looks at a value"
    if calls_python(bodies) is not node.has_effect:
        return f"says python = {str(node.has_effect).lower()}, and its bodies don't"
    if node.op is ops.cond:
        return _branch_problem(node, bodies)
    return _control_problem(node) or _loop_problem(node, bodies[0])


def _branch_problem(node: Node, bodies: Sequence[Graph]) -> str | None:
    """What is wrong with the operands and results of a cond."""
    given, found = ([value.type for value in values] for values in (node.operands, node.results))
    if given[:1] != _CONTROL_TYPES[:1]:
        return "its first operand isn't a bool[]"
    for body in bodies:
        taken = [entry.value.type for entry in body.inputs]
        if taken != given[1:]:
            return f"its body {body.name} takes ({', '.join(map(str, taken))})"
        returned = [value.type for value in body.outputs]
        if returned != found:
            return f"its body {body.name} returns ({', '.join(map(str, returned))})"
    return None


def _control_problem(node: Node) -> str | None:
    """What is wrong with the carries that control a while_loop."""
    if node.op is not ops.while_loop:
        return None
    first = [value.type for value in node.operands[: node.attributes["carries"]][:CONTROL]]
    return None if first == _CONTROL_TYPES else "its first carries aren't a bool[] and an i64[]"


def _loop_problem(node: Node, body: Graph) -> str | None:
    length, parts = node.attributes["length"], ScanParts.of(node)
    least = node.attributes["carries"] + node.attributes["rows"]
    if any(n < 0 for n in (length, node.attributes["carries"], node.attributes["rows"])):
        return "has a negative number of carries, rows or rounds"
    if least > len(node.operands) or node.attributes["carries"] > len(node.results):
        return "has fewer operands, or results, than it says"
    if node.op is ops.while_loop and not length and (parts.rows or parts.stacks):
        return "has rows, and no length"
    carried = [value.type for value in parts.carries]
    taken = [entry.value.type for entry in body.inputs]
    rows = [stacked(type, length) for type in taken[len(carried) :][: len(parts.rows)]]
    wanted = [*taken[: len(carried)], *rows, *taken[len(carried) + len(rows) :]]
    if [value.type for value in node.operands] != wanted:
        return f"its body {body.name} takes ({', '.join(map(str, taken))})"
    given = [value.type for value in body.outputs]
    found = [*carried, *(stacked(type, length) for type in given[len(carried) :])]
    if given[: len(carried)] != carried or [value.type for value in node.results] != found:
        return f"its body {body.name} returns ({', '.join(map(str, given))})"
    return None


def run_region(
    node: Node, bodies: Sequence[Graph], operands: Sequence[np.ndarray], run: Run
) -> list[np.ndarray]:
    """The results of a region op, whose bodies are run by `run`."""
    if node.op is ops.cond:
        return [*run(bodies[0 if operands[0].item() else 1], operands[1:])]
    (body,) = bodies
    count, rows = node.attributes["carries"], node.attributes["rows"]
    length: int = node.attributes["length"]
    carry, captures = [*operands[:count]], operands[count + rows :]
    stacks = [np.zeros(x.shape, x.dtype.numpy) for x in ScanParts.of(node).stacks]
    made = 0
    while carry[0].item() if node.op is ops.while_loop else made < length:
        if node.op is ops.while_loop:
            t = min(max(0, carry[1].item()), length - 1)
        else:
            t = length - 1 - made if node.attributes["reverse"] else made
        found = run(body, [*carry, *(x[t] for x in operands[count : count + rows]), *captures])
        carry, made = [*found[:count]], made + 1
        for stack, y in zip(stacks, found[count:], strict=True):
            stack[t] = y
    return [*carry, *stacks]
