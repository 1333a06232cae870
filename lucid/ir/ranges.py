"""What numbers an integer value can hold, as far as the graph says: interval arithmetic.

Reference: Cousot and Cousot, "Static determination of dynamic properties of programs", 1976.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import dropwhile
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.graph import Node, Value
from lucid.ir.op import Op
from lucid.ir.types import DType, Shape, limits_of

_SAME_ELEMENTS = (ops.reshape, ops.transpose, ops.broadcast)


@dataclass(frozen=True, slots=True)
class Range:
    """`low <= number <= high`, once these checks have passed."""

    low: int
    high: int
    checks: frozenset[Node] = frozenset()

    def is_within(self, low: int, high: int) -> bool:
        return low <= self.low and self.high <= high

    def meet(self, other: Range) -> Range:
        """What is known when both hold; the one that says all of it, alone."""
        if self.is_within(other.low, other.high):
            return self
        if other.is_within(self.low, self.high):
            return other
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Range(low, max(low, high), self.checks | other.checks)


class Ranges:
    """The ranges of a graph's integers and bools, whose nodes are noted in their order.

    What a check says of its operand holds for whatever is noted after it.

    Args:
        known: the ranges of values that no node computes.
    """

    def __init__(self, known: Mapping[Value, Range] = MappingProxyType({})) -> None:
        self._known = dict(known)

    def is_satisfied(self, check: Node) -> bool:
        """Whether a check can't fail."""
        low, high = check.attributes["low"], check.attributes["high"]
        return self.knows(check.operands[0], Range(low, high - 1))

    def of(self, value: Value) -> Range | None:
        """The range of a value; None for floats."""
        found = _limits(value.dtype)
        while found is not None:
            known = self._known.get(value)
            if known is not None:
                found = found.meet(known)
            node = value.producer
            if node is None or not node.op.is_view:
                break
            value = node.operands[0]
        return found

    def knows(self, value: Value, wanted: Range) -> bool:
        """Whether a value is known to be within a range."""
        found = self.of(value)
        return found is not None and found.is_within(wanted.low, wanted.high)

    def check_of(self, value: Value, given: Value) -> Node | None:
        """A check that says of what is given for an integer what is known of that, if anything."""
        found, limits = self.of(value), _limits(value.dtype)
        if value.dtype.kind != "int" or found is None or found == limits:
            return None
        said = {"low": found.low, "high": found.high + 1, "message": "{}", "error": "index"}
        return Node(ops.check, (given,), said, (given.type,), given.graph)

    def note(self, node: Node) -> None:
        """Find the range of a node's result; narrow that of what it checks."""
        if node.op is ops.check:
            self._narrow(node)
        elif len(node.results) == 1 and node.results[0]._type.dtype.kind != "float":
            result = node.results[0]
            limits, rule = _limits(result.dtype), _RULES.get(node.op)
            if limits is None or rule is None or node.op.is_view:
                return
            found = rule(self, node)
            if found is not None and found.is_within(limits.low, limits.high):  # it hasn't wrapped
                known = self._known.get(result)  # by a check that was noted before
                self._known[result] = found if known is None else known.meet(found)

    def _narrow(self, node: Node) -> None:
        low, high = node.attributes["low"], node.attributes["high"] - 1
        value = node.operands[0]
        known = self.of(value)
        assert known is not None, "a check looks at integers"
        checked = Range(low, high, frozenset([node])) if low <= high else known
        self._known[node.result] = found = known.meet(checked)
        self._known[value] = found
        while (made := value.producer) is not None and made.op in _SAME_ELEMENTS:
            if not value.type.size:
                break
            value = made.operands[0]
            seen = self.of(value)
            self._known[value] = found if seen is None else seen.meet(found)


def _limits(dtype: DType) -> Range | None:
    if dtype.kind == "bool":
        return Range(0, 1)
    if dtype.kind != "int":
        return None
    return Range(*limits_of(dtype))


# ---------------------------------------------------------------------- rules, by op

Rule = Callable[[Ranges, Node], "Range | None"]
_RULES: dict[Op, Rule] = {}


def _on(*of: Op) -> Callable[[Rule], Rule]:
    def enter(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(of, rule))
        return rule

    return enter


def _hull(*ranges: Range | None) -> Range | None:
    """The least range with all of them; None if one isn't known."""
    found = [known for known in ranges if known is not None]
    if len(found) != len(ranges) or not found:
        return None
    checks = frozenset[Node]().union(*(known.checks for known in found))
    return Range(min(r.low for r in found), max(r.high for r in found), checks)


def _monotone(function: Callable[..., int]) -> Rule:
    """The rule of an op that no operand's growth makes less."""

    def rule(ranges: Ranges, node: Node) -> Range | None:
        known = [ranges.of(operand) for operand in node.operands]
        both = _hull(*known)
        if both is None:
            return None
        low = function(*(r.low for r in known if r is not None))
        high = function(*(r.high for r in known if r is not None))
        return Range(low, high, both.checks)

    return rule


_RULES[ops.add] = _monotone(lambda a, b: a + b)
_RULES[ops.maximum] = _monotone(max)
_RULES[ops.minimum] = _monotone(min)
_RULES[ops.clamp] = _monotone(lambda x, low, high: min(max(x, low), high))
_RULES[ops.sort] = _RULES[ops.amax] = _RULES[ops.amin] = _monotone(lambda x: x)


@_on(ops.cast)
def _cast(ranges: Ranges, node: Node) -> Range | None:
    """Of floats: the whole numbers that draws times constants are cut to."""
    x = node.operands[0]
    if x.dtype.kind != "float":
        return ranges.of(x)
    ends = _drawn(x)
    return None if ends is None else Range(int(min(ends)), int(max(ends)))


def _drawn(x: Value, depth: int = 4) -> tuple[Any, Any] | None:
    """Between which floats random numbers lie, times constants and rounded down.

    Rounding is monotone: what the ends become is what no number in between gets beyond.
    """
    node, element = x.producer, x.dtype.numpy.type
    if node is None or not depth or x.dtype.kind != "float":
        return None
    if node.op is ops.random_uniform:
        return element(0), np.nextafter(element(1), element(0))
    if node.op is ops.constant:
        number = element(node.attributes["value"])
        return (number, number) if np.isfinite(number) else None
    if node.op not in (ops.mul, ops.floor):
        return None
    known = [ends for operand in node.operands if (ends := _drawn(operand, depth - 1))]
    if len(known) < len(node.operands):
        return None
    with np.errstate(over="ignore"):
        if node.op is ops.floor:
            return np.floor(known[0][0]), np.floor(known[0][1])
        corners = [a * b for a in known[0] for b in known[1]]
    return (min(corners), max(corners)) if np.isfinite(corners).all() else None


@_on(ops.constant)
def _constant(ranges: Ranges, node: Node) -> Range:
    number = int(node.attributes["value"])
    return Range(number, number)


@_on(ops.iota, ops.argmax, ops.argmin, ops.argsort)
def _position(ranges: Ranges, node: Node) -> Range:
    shape = node.operands[0].shape if node.operands else node.attributes["shape"]
    return Range(0, max(shape[node.attributes["axis"]] - 1, 0))


@_on(ops.take, ops.gather, ops.cummax, ops.cummin)
def _picked(ranges: Ranges, node: Node) -> Range | None:
    return ranges.of(node.operands[0])


@_on(ops.concat, ops.pad, ops.update_slice)
def _of_any(ranges: Ranges, node: Node) -> Range | None:
    return _hull(*map(ranges.of, node.operands))


@_on(ops.index_set, ops.scatter)
def _of_base_or_source(ranges: Ranges, node: Node) -> Range | None:
    return _hull(ranges.of(node.operands[0]), ranges.of(node.operands[2]))


@_on(ops.sub, ops.mul)
def _at_corners(ranges: Ranges, node: Node) -> Range | None:
    a, b = map(ranges.of, node.operands)
    both = _hull(a, b)
    if a is None or b is None or both is None:
        return None
    sign = -1 if node.op is ops.sub else 1
    corners = [x * y if sign == 1 else x - y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Range(min(corners), max(corners), both.checks)


@_on(ops.neg)
def _negated(ranges: Ranges, node: Node) -> Range | None:
    x = ranges.of(node.operands[0])
    return None if x is None else Range(-x.high, -x.low, x.checks)


@_on(ops.abs)
def _absolute(ranges: Ranges, node: Node) -> Range | None:
    x = ranges.of(node.operands[0])
    if x is None:
        return None
    ends = abs(x.low), abs(x.high)
    return Range(0 if x.low <= 0 <= x.high else min(ends), max(ends), x.checks)


@_on(ops.floor_div, ops.remainder)
def _divided(ranges: Ranges, node: Node) -> Range | None:
    """By a positive number that is known."""
    x, divisor = map(ranges.of, node.operands)
    if x is None or divisor is None or divisor.low != divisor.high or divisor.low <= 0:
        return None
    if node.op is ops.remainder:
        return Range(0, divisor.low - 1, divisor.checks)
    return Range(x.low // divisor.low, x.high // divisor.low, x.checks | divisor.checks)


@_on(ops.sum, ops.cumsum)
def _added_up(ranges: Ranges, node: Node) -> Range | None:
    x = node.operands[0]
    known = ranges.of(x)
    if known is None:
        return None
    axes = node.attributes["axes"] if node.op is ops.sum else (node.attributes["axis"],)
    count = prod(x.shape[axis] for axis in axes)
    least = min(count, 1) if node.op is ops.cumsum else count
    ends = [n * end for n in (least, count) for end in (known.low, known.high)]
    return Range(min(ends), max(ends), known.checks)


@_on(ops.where)
def _chosen(ranges: Ranges, node: Node) -> Range | None:
    """Of `where(x < c, x + n, x)`, with which an index is counted from the front, more is known."""
    condition, yes, no = node.operands
    test, added = (_without_broadcast(value).producer for value in (condition, yes))
    known = ranges.of(no)
    if test is not None and test.op is ops.lt and known is not None:
        bound = ranges.of(test.operands[1])
        if _is_same(test.operands[0], no) and bound is not None and bound.low == bound.high:
            return _counted_from_the_front(ranges, known, bound.low, no, added)
    return _hull(ranges.of(yes), known)


def _is_same(a: Value, b: Value) -> bool:
    """Whether an op of elements finds the same one in both of two values at each place."""
    return _without_broadcast(a) is _without_broadcast(b)


def _without_broadcast(value: Value) -> Value:
    """What a value is a broadcast of, axes of size 1 in front included, or all of one element."""
    found = inner = value
    while (node := value.producer) is not None and node.op in _SAME_ELEMENTS:
        value = node.operands[0]
    if value.type.size == 1:
        return value
    while (node := inner.producer) is not None and node.op in (ops.reshape, ops.broadcast):
        if node.op is ops.broadcast and inner is not found:
            break  # its places are others, by a reshape that none has taken back
        inner = node.operands[0]
        if node.op is ops.broadcast or _behind_ones(inner.shape) == _behind_ones(found.shape):
            found = inner
    return found


def _behind_ones(shape: Shape) -> Shape:
    return tuple(dropwhile(lambda size: size == 1, shape))


def _counted_from_the_front(
    ranges: Ranges, x: Range, bound: int, value: Value, added: Node | None
) -> Range | None:
    if x.low >= bound:
        return x
    if added is None or added.op is not ops.add:
        return None
    same = [_is_same(operand, value) for operand in added.operands]
    if True not in same:
        return None
    other = added.operands[same[0]]
    shift = ranges.of(other)
    if shift is None:
        return None
    moved = Range(x.low + shift.low, min(x.high, bound - 1) + shift.high, x.checks | shift.checks)
    if x.high < bound:
        return moved
    return _hull(moved, Range(max(x.low, bound), x.high, x.checks))
