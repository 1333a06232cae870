"""Rewriting: rules that stand in tables by op or trait, applied until none fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.errors import LucidError
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.op import Op, Trait, ops_with
from lucid.ir.types import DType

Rule = Callable[[Node], Value | None]
_SAME_ELEMENTS = frozenset({ops.broadcast, ops.reshape, ops.transpose, ops.slice})
_REWRITES_PER_NODE = 100  # more than any rules need that come to an end


class Rules:
    """Rewrite rules by the ops, or the traits of ops, whose nodes they look at.

    A rule is given a node and returns a value to be used in place of the node's result, or None to
    leave it. What it emits on the way stands where the node stood.

    >>> from lucid.ir import Node, Value, ops, parse
    >>> from lucid.ir.passes.rewrite import Rules, producer_of, rewrite
    >>> rules = Rules()
    >>> @rules.on(ops.log)
    ... def log_of_exp(node: Node) -> Value | None:
    ...     inner = producer_of(node.operands[0], ops.exp)
    ...     return None if inner is None else inner.operands[0]
    >>> graph = parse("graph g(%x: f32[2]) { %y = exp %x %z = log %y return %z }")
    >>> rewrite(graph, rules)
    True
    >>> print(graph, end="")
    graph g(%x: f32[2]) {
      return %x
    }
    """

    def __init__(self) -> None:
        self.by_op: dict[Op, list[Rule]] = {}

    def on(self, *what: Op | Trait) -> Callable[[Rule], Rule]:
        """Decorate a rule for nodes of these ops; earlier ones are tried first."""

        def enter(rule: Rule) -> Rule:
            for of in what:
                for op in [of] if isinstance(of, Op) else ops_with(of):
                    self.by_op.setdefault(op, []).append(rule)
            return rule

        return enter


def rewrite(graph: Graph, rules: Rules) -> bool:
    """Apply rules to the nodes of a graph until none fits; True if anything changed.

    Args:
        graph: what is rewritten, in place.
        rules: what is looked for, and what comes in its place.

    Raises:
        LucidError: the rules never come to an end.

    >>> from lucid.ir import Node, Value, ops, parse
    >>> from lucid.ir.passes.rewrite import Rules, rewrite, uniform
    >>> rules = Rules()
    >>> @rules.on(ops.pow)
    ... def square(node: Node) -> Value | None:
    ...     x, exponent = node.operands
    ...     return x * x if uniform(exponent) == 2 else None
    >>> text = "%two = constant 2.0 : f32[] %y = pow %x, %two return %y"
    >>> graph = parse("graph g(%x: f32[3]) { " + text + " }")
    >>> rewrite(graph, rules)
    True
    >>> print(graph, end="")
    graph g(%x: f32[3]) {
      %y = mul %x, %x : f32[3]
      return %y
    }
    """
    return Rewriter(graph).run(rules)


class Rewriter:
    """Rules applied to a graph by a worklist, with the users of each value.

    The worklist is in the order of the nodes: what a rule makes is visited next, and users of what
    it replaces come later, so that a rule finds operands that are final and nothing is visited
    twice. A node that is replaced goes, and so does what only it has read; but one with an effect
    stays, and so does one with indices, which are still to be checked. New nodes take over the
    line, scope and marks of the node that they replace, and its name. Linear in nodes and rewrites.

    Reference: the greedy pattern driver of MLIR; Lattner et al., "MLIR", 2021.

    Args:
        graph: what is rewritten, in place.

    >>> from lucid.ir import Node, Value, ops, parse
    >>> from lucid.ir.passes import Rewriter, Rules, producer_of
    >>> rules = Rules()
    >>> @rules.on(ops.abs)
    ... def abs_of_neg(node: Node) -> Value | None:
    ...     inner = producer_of(node.operands[0], ops.neg)
    ...     return None if inner is None else ops.abs(inner.operands[0])
    >>> graph = parse("graph g(%x: f32[2]) { %y = neg %x %z = abs %y return %z }")
    >>> Rewriter(graph).run(rules)
    True
    >>> print(graph, end="")
    graph g(%x: f32[2]) {
      %z = abs %x : f32[2]
      return %z
    }
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._old = graph.nodes
        self._by_op: dict[Op, list[Rule]] = {}
        self._pending: list[Node] = []
        self._gone: set[Node] = set()
        self._made: dict[Node, list[Node]] = {}  # what stands before a node, or in its place
        self._replacement: dict[Value, Value] = {}

    @cached_property
    def _users(self) -> dict[Value, list[Node]]:
        """The nodes that read each value, once per operand."""
        users: dict[Value, list[Node]] = {}
        for node in self._old:
            for operand in node.operands:
                users.setdefault(operand, []).append(node)
        return users

    @cached_property
    def _results(self) -> Counter[Value]:
        return Counter(self._graph.results())

    def is_read_once(self, value: Value) -> bool:
        """Whether a value is one operand, output or write, and nothing else."""
        return len(self._users.get(value, ())) + self._results[value] == 1

    def run(self, rules: Rules) -> bool:
        """Replace nodes by what the first rule that fits makes of them, until none does.

        True if anything changed.
        """
        graph, limit = self._graph, _REWRITES_PER_NODE * (len(self._old) + 1)
        self._by_op = rules.by_op
        self._visit(self._old)
        emitted = graph.nodes = []
        try:
            while self._pending:
                node = self._pending.pop()
                if node in self._gone:
                    continue
                for rule in rules.by_op[node.op]:
                    value = rule(node)
                    if value is not None and self._is_used(node.result):
                        self._replace(node, value, emitted)
                        emitted.clear()
                        break
                    emitted.clear()
                if len(self._replacement) > limit:
                    raise LucidError(f"rewrite: the rules for {node.op.name} never come to an end")
        finally:
            graph.nodes = self._in_order()
            if self._replacement:
                graph.substitute(self._replacement)
        return bool(self._replacement)

    def _visit(self, nodes: Sequence[Node]) -> None:
        """Let nodes that there are rules for be the next, in this order."""
        self._pending += [node for node in reversed(nodes) if node.op in self._by_op]

    def _replace(self, node: Node, value: Value, emitted: Sequence[Node]) -> None:
        old, users = node.result, self._users
        for new in emitted:
            inherit_notes(new, node)
            for operand in new.operands:
                users.setdefault(operand, []).append(new)
        value.name = value.name or old.name
        readers = users.pop(old, [])
        for reader in readers:
            reader.operands = tuple(value if x is old else x for x in reader.operands)
        if readers:
            users.setdefault(value, []).extend(readers)
        self._results[value] += self._results.pop(old, 0)
        self._replacement[old] = value
        self._made[node] = [*emitted]
        self._visit(emitted)
        if not (node.has_effect or Trait.INDEXED in node.op.traits):
            self._erase(node)

    def _erase(self, node: Node) -> None:
        """Let go of a node that nothing reads, and of those that only it has read."""
        unread = [node]
        while unread:
            node = unread.pop()
            self._gone.add(node)
            for operand in node.operands:
                users = self._users[operand]
                users.remove(node)
                made = operand.producer
                if users:
                    continue
                del self._users[operand]
                if made is None or self._graph.has_effect(made):
                    continue
                if not any(map(self._is_used, made.results)):
                    unread.append(made)

    def _is_used(self, value: Value) -> bool:
        return value in self._users or self._results[value] > 0

    def _in_order(self) -> list[Node]:
        """The nodes that are left, each where it stood, or where the one stood that it replaces."""
        if not self._made:
            return self._old
        nodes: list[Node] = []
        for old in self._old:
            pending = [old]
            while pending:
                node = pending.pop()
                if made := self._made.pop(node, None):
                    pending += [node, *reversed(made)]
                elif node not in self._gone:
                    nodes.append(node)
        return nodes


def inherit_notes(new: Node, old: Node) -> None:
    """Say of a new node what is said of the node that it stands for."""
    new.location = old.location
    new.scope = old.scope
    new.gradient_of = old.gradient_of
    new.region = old.region


def uniform(value: Value) -> np.generic | None:
    """Return the number that every element of the value is, if a constant says so, else None.

    Args:
        value: a constant, or one that is repeated, reshaped or the like.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes import uniform
    >>> text = "%c = constant 2.0 : f32[] %y = broadcast %c {shape = [3]} return %y, %x"
    >>> graph = parse("graph g(%x: f32[3]) { " + text + " }")
    >>> [uniform(value) for value in graph.outputs]
    [np.float32(2.0), None]
    """
    while (node := value.producer) is not None:
        if node.op is ops.constant:
            constant: np.generic = node.attributes["value"]
            return constant
        if node.op not in _SAME_ELEMENTS:
            return None
        value = node.operands[0]
    return None


def constant_like(result: Value, number: Any) -> Value:
    """Return a value of the result's type, each element of which is the number.

    Args:
        result: the value whose dtype and shape are wanted.
        number: Python's or NumPy's.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes import constant_like
    >>> graph = parse("graph g(%x: f32[3,2]) { return %x }")
    >>> constant_like(graph.outputs[0], 1)
    %?: f32[3,2]
    >>> [node.op for node in graph.nodes]
    [<op constant>, <op broadcast>]
    """
    return broadcast_like(result, result.constant(number, result.dtype))


def broadcast_like(result: Value, value: Value) -> Value:
    """Return the value, repeated to the result's shape where it has another.

    Args:
        result: the value whose shape is wanted.
        value: what broadcasts to it.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes import broadcast_like
    >>> graph = parse("graph g(%x: f32[2], %y: f32[3,2]) { return %x, %y }")
    >>> x, y = graph.outputs
    >>> broadcast_like(y, x).type.shape
    (3, 2)
    """
    if value.shape == result.shape:
        return value
    return ops.broadcast(value, shape=result.shape)


def producer_of(value: Value, *made_by: Op) -> Node | None:
    """Return the node that makes the value, if it is one of these ops, else None.

    Args:
        value: what is made; of a graph's input there is no node.
        *made_by: the ops that are looked for.

    >>> from lucid.ir import ops, parse
    >>> from lucid.ir.passes import producer_of
    >>> graph = parse("graph g(%x: f32[3]) { %y = exp %x return %y }")
    >>> producer_of(graph.outputs[0], ops.log, ops.exp)
    <exp(%x: f32[3]) {}>
    """
    node = value.producer
    return node if node is not None and node.op in made_by else None


def is_exact_embedding(source: DType, target: DType) -> bool:
    """Whether every number of the source dtype is one of the target.

    So says NumPy, which takes 64-bit integers for safe in f64 as well.
    """
    is_rounded = source.kind == "int" and source.itemsize == 8 and target.is_floating_point
    return np.can_cast(source.numpy, target.numpy) and not is_rounded
