"""In which bounds a float lies that is computed element by element, if what it is made of does.

Reference: Moore, "Interval analysis", 1966.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import isfinite, isnan, sqrt
from typing import NamedTuple

import numpy as np

from lucid.ir import ops
from lucid.ir.graph import Node, Value
from lucid.ir.op import Op
from lucid.ir.types import DType, f32, f64

# What gradients and state are below in training that goes well; state that must not be negative, as
# means of squares; numbers such as a learning rate, and what keeps a denominator from 0. With these
# the updates of nearly all optimizers stay below 1e37.
MOST, MOST_SQUARE, MOST_NUMBER, LEAST_NUMBER = 2.0**36, 2.0**72, 2.0**10, 2.0**-40
_ROUNDING = 2.0**-20  # more than ops of f32, and what code makes of them, are wrong
MOST_FACTORS = 16  # of a product that are looked at
_TINY = 2.0**-120  # what is below may be rounded to 0


class Limits(NamedTuple):
    """`low <= each element <= high`."""

    low: float
    high: float

    @staticmethod
    def of(dtype: DType) -> Limits:
        """Those of all finite numbers."""
        most = float(np.finfo(np.float64 if dtype is f64 else np.float32).max)
        return Limits(-most, most)


class Bounds:
    """The bounds of the results of nodes, and of what is assumed for them.

    The *leaves* of a value are what its bounds follow from: inputs, results of other nodes, of ops
    without a rule, and all single numbers.

    Args:
        nodes: in their order. written: the state among the inputs.
    """

    def __init__(self, nodes: Sequence[Node], written: Collection[Value]) -> None:
        self._nodes = {x.result: x for x in nodes if len(x.results) == 1}
        self._written = written
        self._signs: dict[Value, float] = {}  # of leaves that must be at least that
        self._known: dict[Value, Limits] = {}
        self._leaves: dict[Value, dict[Value, Limits]] = {}
        for node in self._nodes.values():
            for operand, is_positive in _demands(node):
                self._demand(operand, is_positive)
        for node in self._nodes.values():
            if not self._is_leaf(node.result):
                self._note(node)

    def leaves(self, value: Value) -> dict[Value, Limits] | None:
        """What must hold for its leaves, so that all elements are finite.

        None: nothing that is known would say so, or it is a leaf itself.
        """
        return self._leaves.get(value)

    def _is_leaf(self, value: Value) -> bool:
        node = self._nodes.get(value)
        return node is None or value.type.size == 1 or not (node.op in _RULES or node.op.is_view)

    def _note(self, node: Node) -> None:
        """Find the bounds of a result; none where an operand has none, or they are no finite ones.

        Each op may round a bit further: so by induction all that is computed lies in its bounds.
        """
        value = node.result
        if value.dtype not in (f32, f64):
            return
        given = [self._of(x) for x in node.operands]
        known = [x for x in given if x is not None]
        if len(known) < len(given) or not (node.op in _CHOICES or all(map(_is_finite, known))):
            return
        found = known[0] if node.op.is_view else _RULES[node.op](*known)
        if found is None:
            return
        if node.op is ops.mul and all(self._is_at_least_0(x) for x in _unpaired(value)):
            found = Limits(max(0.0, found.low), found.high)
        low, high = found.low - abs(found.low) * _ROUNDING, found.high + abs(found.high) * _ROUNDING
        if found.low >= 0:
            low = max(low, 0.0) if low >= _TINY else 0.0
        if max(-low, high) <= Limits.of(value.dtype).high / 4:
            self._known[value] = Limits(low, high)
            leaves = self._leaves[value] = {}
            for operand in node.operands:
                if operand.dtype.kind == "float":
                    leaves |= self._leaves.get(operand) or self._assumed(operand)

    def _of(self, value: Value) -> Limits | None:
        if value.dtype.kind != "float":
            return _INTEGERS.get(value.dtype.kind)
        node = value.producer
        if node is not None and node.op is ops.constant:
            number = float(node.attributes["value"])
            return None if isnan(number) else Limits(number, number)
        if self._is_leaf(value):
            return self._assumed(value)[value]
        return self._known.get(value)

    def _is_at_least_0(self, value: Value) -> bool:
        known = self._of(value)
        return known is not None and known.low >= 0

    def _assumed(self, value: Value) -> dict[Value, Limits]:
        """What is assumed for a leaf; nothing for a constant."""
        if value.producer is not None and value.producer.op is ops.constant:
            return {}
        if value.type.size == 1:
            return {value: Limits(self._signs.get(value, -MOST_NUMBER), MOST_NUMBER)}
        is_square = value in self._signs
        return {value: Limits(0.0, MOST_SQUARE) if is_square else Limits(-MOST, MOST)}

    # Signs ------------------------------------------------------------------------------

    def _demand(self, value: Value, is_positive: bool) -> None:
        """Let no element of a value be negative, or 0, by what state and numbers must be for it."""
        pending = [(value, is_positive)]
        seen: set[tuple[Value, bool]] = set()
        while pending:
            value, is_positive = pending.pop()
            if (value, is_positive) in seen:
                continue
            seen.add((value, is_positive))
            node = self._nodes.get(value)
            if node is not None and not self._is_leaf(value):
                pending += _asks(node, is_positive)
            elif value.type.size == 1:
                least = LEAST_NUMBER if is_positive else 0.0
                self._signs[value] = max(least, self._signs.get(value, 0.0))
            elif value in self._written and not is_positive:
                self._signs.setdefault(value, 0.0)


_INTEGERS = {"bool": Limits(0.0, 1.0), "int": Limits(-(2.0**63), 2.0**64)}


def _demands(node: Node) -> list[tuple[Value, bool]]:
    """The operands that an op must have positive, or not negative."""
    if node.op is ops.sqrt:
        return [(node.operands[0], False)]
    if node.op in (ops.rsqrt, ops.reciprocal, ops.div):
        return [(node.operands[-1], True)]
    return []


def _asks(node: Node, is_positive: bool) -> list[tuple[Value, bool]]:
    """What the operands must be like, so that the result is positive, or not negative."""
    operands = node.operands
    if node.op is ops.mul and not is_positive:
        return [(x, False) for x in _unpaired(node.result)]
    if node.op is ops.div:
        return [(operands[0], is_positive), (operands[1], True)]
    if node.op in (ops.mul, ops.sqrt, ops.cast) or node.op.is_view:
        return [(x, is_positive) for x in operands]
    if node.op in (ops.add, ops.maximum):  # a number keeps it from 0
        last = next((x for x in operands if x.type.size == 1), operands[-1])
        return [(x, is_positive and x is last) for x in operands]
    return [(operands[1], is_positive)] if node.op is ops.clamp else []


def _unpaired(value: Value) -> list[Value]:
    """The factors of a product that are there an odd number of times: they decide about its sign.

    That holds in floating point as well, if none is a NaN.
    """
    odd: dict[Value, None] = {}
    pending, rounds = [value], 0
    while pending:
        value, rounds = pending.pop(), rounds + 1
        node = value.producer
        if node is not None and node.op is ops.mul and rounds < MOST_FACTORS:
            pending += node.operands
        elif value in odd:
            del odd[value]
        else:
            odd[value] = None
    return list(odd)


def _is_finite(limits: Limits) -> bool:
    return isfinite(limits.low) and isfinite(limits.high)


# Rules: the bounds of the operands to those of the result -----------------------------------------


def _add(a: Limits, b: Limits) -> Limits:
    return Limits(a.low + b.low, a.high + b.high)


def _sub(a: Limits, b: Limits) -> Limits:
    return Limits(a.low - b.high, a.high - b.low)


def _mul(a: Limits, b: Limits) -> Limits:
    products = [x * y for x in a for y in b]
    return Limits(min(products), max(products))


def _reciprocal(a: Limits) -> Limits | None:
    if a.low <= 0 <= a.high:
        return None
    return Limits(1 / a.high, 1 / a.low)


def _div(a: Limits, b: Limits) -> Limits | None:
    inverse = _reciprocal(b)
    if inverse is None:
        return None
    quotients = [x * y for x in a for y in inverse]
    return Limits(min(quotients), max(quotients))


def _sqrt(a: Limits) -> Limits | None:
    return Limits(sqrt(a.low), sqrt(a.high)) if a.low >= 0 else None


def _rsqrt(a: Limits) -> Limits | None:
    return Limits(1 / sqrt(a.high), 1 / sqrt(a.low)) if a.low > 0 else None


def _abs(a: Limits) -> Limits:
    least = 0.0 if a.low <= 0 <= a.high else min(map(abs, a))
    return Limits(least, max(map(abs, a)))


def _neg(a: Limits) -> Limits:
    return Limits(-a.high, -a.low)


def _maximum(a: Limits, b: Limits) -> Limits:
    return Limits(max(a.low, b.low), max(a.high, b.high))


def _minimum(a: Limits, b: Limits) -> Limits:
    return Limits(min(a.low, b.low), min(a.high, b.high))


def _clamp(a: Limits, low: Limits, high: Limits) -> Limits:
    return _minimum(_maximum(a, low), high)


def _where(condition: Limits, a: Limits, b: Limits) -> Limits:
    return Limits(min(a.low, b.low), max(a.high, b.high))


def _sign(a: Limits) -> Limits:
    return Limits(-1.0, 1.0)


def _same(a: Limits) -> Limits:
    return a


_RULES: dict[Op, Callable[..., Limits | None]] = {
    ops.add: _add,
    ops.sub: _sub,
    ops.mul: _mul,
    ops.div: _div,
    ops.reciprocal: _reciprocal,
    ops.sqrt: _sqrt,
    ops.rsqrt: _rsqrt,
    ops.abs: _abs,
    ops.neg: _neg,
    ops.maximum: _maximum,
    ops.minimum: _minimum,
    ops.clamp: _clamp,
    ops.where: _where,
    ops.sign: _sign,
    ops.cast: _same,
}
_CHOICES = (ops.maximum, ops.minimum, ops.clamp)  # which may say no to an infinity
