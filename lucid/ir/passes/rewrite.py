"""Rewriting: one sweep over the nodes, with rules that stand in a table by op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.types import DType

Rule = Callable[[Node], Value | None]
_SAME_ELEMENTS = ("broadcast", "reshape", "transpose", "slice")


class Rules:
    """Rewrite rules by the name of the op whose nodes they look at.

    A rule is given a node whose operands are final, and returns a value to be used in place of the
    node's result, or None to leave it. What it emits on the way is placed before the node.
    """

    def __init__(self) -> None:
        self._rules: dict[str, list[Rule]] = {}

    def on(self, *names: str) -> Callable[[Rule], Rule]:
        """Decorate a rule for nodes of these ops; earlier ones are tried first."""

        def enter(rule: Rule) -> Rule:
            for name in names:
                self._rules.setdefault(name, []).append(rule)
            return rule

        return enter

    def __call__(self, node: Node) -> Value | None:
        for rule in self._rules.get(node.op.name, ()):
            value = rule(node)
            if value is not None:
                return value
        return None


def rewrite(graph: Graph, rule: Rule) -> bool:
    """Apply a rule to each node once, in order: linear in the nodes. True if anything changed.

    New nodes take over the line, scope and marks of the node that they replace, and its name.
    """
    old_nodes, graph.nodes = graph.nodes, []
    replacement: dict[Value, Value] = {}
    for node in old_nodes:
        if replacement:
            node.operands = tuple(replacement.get(operand, operand) for operand in node.operands)
        start = len(graph.nodes)
        value = rule(node)
        if value is None:
            del graph.nodes[start:]
            graph.nodes.append(node)
            continue
        for new in graph.nodes[start:]:
            inherit_notes(new, node)
        value.name = value.name or node.result.name
        replacement[node.result] = value
    if replacement:
        graph.substitute(replacement)
    return bool(replacement)


def inherit_notes(new: Node, old: Node) -> None:
    """Say of a new node what is said of the node that it stands for."""
    new.location = old.location
    new.scope = old.scope
    new.gradient_of = old.gradient_of
    new.region = old.region


def uniform(value: Value) -> np.generic | None:
    """The number that every element of the value is, if a constant says so."""
    while (node := value.producer) is not None:
        if node.op.name == "constant":
            constant: np.generic = node.attributes["value"]
            return constant
        if node.op.name not in _SAME_ELEMENTS:
            return None
        value = node.operands[0]
    return None


def constant_like(result: Value, number: Any) -> Value:
    """A value of the result's type, each element the number: Python's or NumPy's."""
    return broadcast_like(result, result.constant(number, result.dtype))


def broadcast_like(result: Value, value: Value) -> Value:
    """The value, repeated to the result's shape where it has another."""
    if value.shape == result.shape:
        return value
    broadcast: Value = ops.broadcast(value, shape=result.shape)
    return broadcast


def producer_of(value: Value, name: str) -> Node | None:
    """The node that makes the value, if it is one of this op."""
    node = value.producer
    return node if node is not None and node.op.name == name else None


def is_exact_embedding(source: DType, target: DType) -> bool:
    """Whether every number of the source dtype is one of the target."""
    return source is target or target.name in _WIDER.get(source.name, "").split()


_WIDER = {
    "bool": "u8 i8 i16 i32 u32 i64 f32 f64",
    "u8": "i16 i32 u32 i64 f32 f64",
    "i8": "i16 i32 i64 f32 f64",
    "i16": "i32 i64 f32 f64",
    "i32": "i64 f64",
    "u32": "i64 f64",
    "f32": "f64",
}
