"""Constant folding."""

from __future__ import annotations

import numpy as np

from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.op import Trait
from lucid.ir.passes.rewrite import Rules, broadcast_like, constant_like, rewrite, uniform
from lucid.ir.types import limits_of

_RULES = Rules()


def constant_fold(graph: Graph) -> bool:
    """f(c, d) -> the number that it is, for elementwise f; a view of a repeated c -> c, repeated.

    Only one number is ever computed and stored: f(broadcast c) becomes broadcast f(c). The number
    is what the op's NumPy reference gives.

    Args:
        graph: what is rewritten, in place.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes.constant_fold import constant_fold
    >>> text = "%c = constant 2.0 : f32[] %d = mul %c, %c %y = add %x, %d return %y"
    >>> graph = parse("graph g(%x: f32[3]) { " + text + " }")
    >>> constant_fold(graph)
    True
    >>> print(graph, end="")
    graph g(%x: f32[3]) {
      %d = constant 4.0 : f32[]
      %y = add %x, %d : f32[3]
      return %y
    }
    """
    return rewrite(graph, _RULES)


@_RULES.on(Trait.ELEMENTWISE)
def _fold_elementwise(node: Node) -> Value | None:
    numbers = []
    for operand in node.operands:
        number = uniform(operand)
        if number is None:
            return None
        numbers.append(np.asarray(number))
    if node.op is ops.cast and not _is_defined(numbers[0], node.result):
        return None
    with np.errstate(all="ignore"):
        folded = np.asarray(node.op.evaluate(*numbers, **node.attributes))
    if folded.dtype.kind == "f" and np.isnan(folded):
        folded = np.asarray(np.nan, folded.dtype)  # its sign depends on the processor
    return constant_like(node.result, folded[()])


def _is_defined(number: np.ndarray, result: Value) -> bool:
    """Whether the cast of a number has one meaning: a float must fit the integers it goes to."""
    if number.dtype.kind != "f" or result.dtype.kind != "int":
        return True
    least, greatest = limits_of(result.dtype)
    return bool(np.isfinite(number)) and least <= float(number) < float(greatest)


@_RULES.on(Trait.VIEW)
def _fold_view(node: Node) -> Value | None:
    source = node.operands[0].producer
    if source is None or not source.op.is_view:
        return None
    value = node.operands[0]
    if uniform(value) is None:
        return None
    while value.producer is not None and value.producer.op.is_view:
        value = value.producer.operands[0]
    return broadcast_like(node.result, value)
