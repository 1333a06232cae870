"""Algebra that holds for floats as they are: NaN, infinities and signed zeros included."""

from __future__ import annotations

import math

import numpy as np

from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.op import Trait
from lucid.ir.passes.rewrite import (
    Rules,
    broadcast_like,
    constant_like,
    producer_of,
    rewrite,
    uniform,
)

_RULES = Rules()


def simplify_algebra(graph: Graph) -> bool:
    """Apply identities that hold bit for bit under IEEE 754; the rules below say one or two each.

    So not x + 0.0 -> x, which is wrong for -0.0, and not x * 0 -> 0, wrong for NaN and infinity.
    Only the sign and the payload of a NaN may change. Constants are expected on the right.

    Args:
        graph: what is rewritten, in place.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes.simplify_algebra import simplify_algebra
    >>> graph = parse("graph g(%x: f32[3]) { %a = neg %x %y = neg %a return %y }")
    >>> simplify_algebra(graph)
    True
    >>> print(graph, end="")
    graph g(%x: f32[3]) {
      return %x
    }
    """
    return rewrite(graph, _RULES)


def _is(number: np.generic | None, wanted: float) -> bool:
    """Whether a number is the wanted one, with the same sign if it is 0; True is not 1."""
    if number is None or number.dtype.kind == "b" or number != wanted:
        return False
    return bool(wanted != 0 or number.dtype.kind != "f" or np.signbit(number) == _sign(wanted))


def _sign(number: float) -> bool:
    return math.copysign(1.0, number) < 0


def _negated(value: Value) -> Value | None:
    """What the value is the negative of."""
    node = producer_of(value, ops.neg)
    return None if node is None else node.operands[0]


def _is_float(value: Value) -> bool:
    return value.dtype.is_floating_point


@_RULES.on(ops.add)
def _add(node: Node) -> Value | None:
    """x + -0.0 -> x, x + 0 -> x for integers; a + -b -> a - b."""
    a, b = node.operands
    if _is(uniform(b), -0.0):
        return broadcast_like(node.result, a)
    if (negated := _negated(b)) is not None:
        return _sub_of(a, negated)
    if (negated := _negated(a)) is not None:
        return _sub_of(b, negated)
    return None


def _sub_of(a: Value, b: Value) -> Value:
    return ops.sub(a, b)


@_RULES.on(ops.sub)
def _sub(node: Node) -> Value | None:
    """x - 0.0 -> x; -0.0 - x -> -x; a - -b -> a + b; for integers also 0 - x -> -x, x - x -> 0."""
    a, b = node.operands
    if _is(uniform(b), 0.0):
        return broadcast_like(node.result, a)
    if _is(uniform(a), -0.0):
        return broadcast_like(node.result, ops.neg(b))
    if (negated := _negated(b)) is not None:
        return ops.add(a, negated)
    if a is b and not _is_float(a):
        return constant_like(node.result, 0)
    return None


@_RULES.on(ops.mul)
def _mul(node: Node) -> Value | None:
    """x * 1 -> x; x * -1 -> -x; x * 0 -> 0 for integers only."""
    a, b = node.operands
    number = uniform(b)
    if _is(number, 1):
        return broadcast_like(node.result, a)
    if _is(number, -1):
        return broadcast_like(node.result, ops.neg(a))
    if _is(number, 0) and not _is_float(a):
        return constant_like(node.result, 0)
    return None


@_RULES.on(ops.mul, ops.div)
def _signs_of_factors(node: Node) -> Value | None:
    """-a * -b -> a * b; -a * c -> a * -c for a constant c; / likewise."""
    a, b = (_negated(operand) for operand in node.operands)
    if a is None:
        return None
    if b is not None:
        return node.op(a, b)
    number = uniform(node.operands[1])
    if number is None or not _is_float(a):
        return None
    negative = constant_like(node.operands[1], np.negative(number))
    value = node.op(a, negative)
    return value


@_RULES.on(ops.div)
def _div(node: Node) -> Value | None:
    """x / 1 -> x; x / -1 -> -x; x / c -> x * (1/c) for powers of 2; 1 / x -> reciprocal x."""
    a, b = node.operands
    number = uniform(b)
    if number is None:
        is_one = _is(uniform(a), 1)
        return broadcast_like(node.result, ops.reciprocal(b)) if is_one else None
    if _is(number, 1):
        return broadcast_like(node.result, a)
    if _is(number, -1):
        return broadcast_like(node.result, ops.neg(a))
    inverse = _inverse_power_of_two(number)
    if inverse is None:
        return None
    return ops.mul(a, constant_like(b, inverse))


def _inverse_power_of_two(number: np.generic) -> float | None:
    """1 / number, for a power of 2 whose inverse is a normal number too."""
    divisor = float(np.asarray(number))
    if abs(math.frexp(divisor)[0]) != 0.5:
        return None
    smallest = float(np.finfo(np.asarray(number).dtype.name).tiny)
    inverse = 1 / divisor
    return inverse if min(abs(divisor), abs(inverse)) >= smallest else None


@_RULES.on(ops.pow)
def _pow(node: Node) -> Value | None:
    """x ** 0 -> 1, even for NaN; x ** 1 -> x; x ** 2 -> x * x; x ** -1 -> reciprocal x.

    NumPy computes the powers 2 and -1 in this way itself. x ** 0.5 is not sqrt x at -0.0 and -inf,
    and x * x * x rounds twice.
    """
    a, b = node.operands
    number = uniform(b)
    if number is None:
        return None
    if number == 0:
        return constant_like(node.result, 1)
    if number == 1:
        return broadcast_like(node.result, a)
    if number == 2:
        return broadcast_like(node.result, ops.mul(a, a))
    if number == -1 and _is_float(a):
        return broadcast_like(node.result, ops.reciprocal(a))
    return None


@_RULES.on(Trait.INVOLUTION)
def _twice(node: Node) -> Value | None:
    """f(f(x)) -> x: --x -> x, and not not x -> x."""
    inner = producer_of(node.operands[0], node.op)
    return None if inner is None else inner.operands[0]


@_RULES.on(ops.neg)
def _neg(node: Node) -> Value | None:
    """-(x * c) -> x * -c for a constant c."""
    product = producer_of(node.operands[0], ops.mul)
    if product is None or not _is_float(node.result):
        return None
    a, b = product.operands
    number = uniform(b)
    if number is None:
        return None
    return ops.mul(a, constant_like(b, np.negative(number)))


@_RULES.on(ops.abs)
def _abs(node: Node) -> Value | None:
    """abs(-x) -> abs x; abs(abs x) -> abs x."""
    (x,) = node.operands
    if producer_of(x, ops.abs) is not None:
        return x
    negated = _negated(x)
    if negated is None or not x.dtype.is_signed:
        return None
    return ops.abs(negated)


_ROUNDINGS = (ops.floor, ops.ceil, ops.round, ops.trunc)


@_RULES.on(*_ROUNDINGS)
def _round(node: Node) -> Value | None:
    """floor x -> x for an x that was rounded already, in any way."""
    (x,) = node.operands
    return None if producer_of(x, *_ROUNDINGS) is None else x


@_RULES.on(Trait.IDEMPOTENT)
def _of_the_same(node: Node) -> Value | None:
    """f(x, x) -> x: max(x, x), x and x, ..."""
    a, b = node.operands
    return a if a is b else None


@_RULES.on(ops.maximum, ops.minimum)
def _extremum(node: Node) -> Value | None:
    """max(x, -inf) -> x; min(x, inf) -> x; a NaN stays one."""
    a, b = node.operands
    number = uniform(b)
    limit = -math.inf if node.op is ops.maximum else math.inf
    if _is_float(a) and _is(number, limit):
        return broadcast_like(node.result, a)
    return None


@_RULES.on(ops.where)
def _where(node: Node) -> Value | None:
    """where(true, a, b) -> a; where(c, x, x) -> x; where(not c, a, b) -> where(c, b, a)."""
    condition, a, b = node.operands
    known = uniform(condition)
    if known is not None:
        return broadcast_like(node.result, a if known else b)
    if a is b:
        return broadcast_like(node.result, a)
    negation = producer_of(condition, ops.logical_not)
    if negation is None:
        return None
    return ops.where(negation.operands[0], b, a)


@_RULES.on(ops.logical_and, ops.logical_or)
def _logical(node: Node) -> Value | None:
    """x and true -> x; x and false -> false; x or false -> x ..."""
    a, b = node.operands
    known = uniform(b)
    if known is None:
        return None
    neutral = node.op is ops.logical_and
    if bool(known) == neutral:
        return broadcast_like(node.result, a)
    return constant_like(node.result, not neutral)


@_RULES.on(ops.logical_xor)
def _logical_xor(node: Node) -> Value | None:
    """x xor false -> x; x xor true -> not x."""
    a, b = node.operands
    known = uniform(b)
    if known is None:
        return None
    return broadcast_like(node.result, ops.logical_not(a) if known else a)


@_RULES.on(ops.logical_not)
def _negated_comparison(node: Node) -> Value | None:
    """not (a == b) -> a != b and back; not (a < b) isn't a >= b where there is a NaN."""
    comparison = producer_of(node.operands[0], ops.eq, ops.ne)
    if comparison is None:
        return None
    return (ops.ne if comparison.op is ops.eq else ops.eq)(*comparison.operands)


@_RULES.on(ops.bit_or, ops.bit_xor, ops.shift_left, ops.shift_right)
def _bits(node: Node) -> Value | None:
    """x | 0 -> x; x ^ 0 -> x; a shift by 0 -> x."""
    a, b = node.operands
    return broadcast_like(node.result, a) if _is(uniform(b), 0) else None
