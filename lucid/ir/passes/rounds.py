"""Equal rounds of a graph: stretches of nodes that do the same with the values of their round.

A loop that Python has unrolled is a stretch of nodes that repeats. What a round reads is made in
the round itself, or in the one before (it is *carried*), or before all rounds: then it is the same
for all, or from round to round the next row of something, or a value of each round's own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lucid.ir import ops
from lucid.ir.extents import hint
from lucid.ir.graph import Graph, Node, Value, freeze_attributes
from lucid.ir.op import Trait
from lucid.ir.passes.periods import Repetition, repetitions
from lucid.ir.ranges import Range, Ranges
from lucid.ir.region_ops import is_exit
from lucid.ir.types import TensorType

LEAST_ROUNDS = 4
"""Fewer are no loop."""
LEAST_NODES = 160
"""Of all rounds together: fewer are compiled in some 20 ms."""


class Row(NamedTuple):
    """What a value is of others: what an array has at an index of an axis, or a round of a loop.

    Attributes:
        base: the array; or what the first of the rounds has made.
        axis: which one the value doesn't have, or has with one element; or `ROUND`.
        place: where on it, or in which round.
    """

    base: Value
    axis: int
    place: int


ROUND = -1


class Step(NamedTuple):
    """How what a round reads in a place follows from what the round before reads there.

    Attributes:
        base, axis: of the rows; None and 0 where it is the same, or each round's own.
        by: how many rows further, or before it where that is negative.
    """

    base: Value | None
    axis: int
    by: int


SAME, OWN = Step(None, 0, 0), Step(None, 0, 1)


class Rounds(NamedTuple):
    """Equal rounds: `length` of `period` nodes each, from the place `start` of a schedule on."""

    start: int
    period: int
    length: int

    @property
    def stop(self) -> int:
        return self.start + self.length * self.period

    def from_to(self, begin: int, end: int) -> Rounds:
        """Those of the rounds from one number to another one."""
        return Rounds(self.start + begin * self.period, self.period, end - begin)


def promising(nodes: Sequence[Node]) -> list[Repetition]:
    """Where the same ops come again and again with results of the same shapes, at a glance.

    Layers with weights of their own, and updates of parameters, are none of these.
    """
    known: dict[object, int] = {}
    keys = [(node.op, node.results[0]._type.shape if node.results else None) for node in nodes]
    numbers = [known.setdefault(key, len(known)) for key in keys]
    found = repetitions(np.array(numbers, np.int64), LEAST_ROUNDS, LEAST_NODES)
    return [x for x in found if not _have_own_inputs(nodes, x)]


def _have_own_inputs(nodes: Sequence[Node], repetition: Repetition) -> bool:
    """Whether what repeats reads another input of the graph each time, halfway through."""
    start, stop, period = repetition
    middle = start + (stop - start) // (2 * period) * period
    for one, other in zip(
        nodes[middle - period : middle], nodes[middle : middle + period], strict=True
    ):
        for x, y in zip(one.operands, other.operands, strict=False):
            if x is not y and x.producer is None and y.producer is None and x.type.size != 1:
                return True
    return False


class Schedule:
    """The nodes of a graph in an order in which rounds are alike.

    What is the same in several rounds, as a transposed weight, is there once. That and constants,
    and what only shows a part of something from before a stretch that repeats, come before it.

    Args:
        graph: it stays as it is.
        candidates: the stretches.

    Attributes:
        nodes: all others, in order.
        ahead: what comes before the node at a place.
        same: values that are the same as another one, which is there in place of them.
        numbers: single numbers that follow from constants and live inputs alone.
        indices: the ranges of the indices of nodes, where these are known to be right.
        place: where in `nodes` a value is made, if it is there.
        loops: the rounds that become loops, in order.
    """

    def __init__(self, graph: Graph, candidates: Sequence[Repetition]) -> None:
        self.nodes: list[Node] = []
        self.ahead: dict[int, list[Node]] = {}
        self._applied = _applied(graph)
        self.same = _repeated(graph, self._applied)
        self.numbers = _numbers(graph)
        self.place: dict[Value, int] = {}
        self.loops: list[Rounds] = []
        self.indices = _indices(graph)
        self._operands: dict[Node, tuple[Value, ...]] = {}
        self._starts: list[int] = []
        self._stretches: list[tuple[int, int]] = []
        self._kept = {*self.same.values()}
        begin = 0
        for start, stop, _ in candidates:
            for node in graph.nodes[begin:start]:
                self._append(node)
            self._append_stretch(graph.nodes[start:stop])
            begin = stop
        for node in graph.nodes[begin:]:
            self._append(node)

    def _append(self, node: Node) -> None:
        if node.results and node.results[0] in self.same:
            return
        for value in node.results:
            self.place[value] = len(self.nodes)
        self.nodes.append(node)

    def _append_stretch(self, nodes: Sequence[Node]) -> None:
        """Append what repeats, and let come before it what can."""
        start, ahead = len(self.nodes), list[Node]()
        parts: set[Value] = set()  # what shows a row of something from before
        for node in nodes:
            operands, op = self.operands(node), node.op
            comes_before = op.kind == "create" or (
                len(node.results) == 1 and node.results[0] in self._kept
            )
            if op is ops.reshape and _drops_axis(node):
                comes_before = comes_before or operands[0] in parts
            elif op is ops.slice and _taken_axis(node) is not None:
                comes_before = comes_before or operands[0] not in parts
            if not comes_before or any(self.place.get(x, -1) >= start for x in operands):
                self._append(node)
            elif node.result not in self.same:
                ahead.append(node)
                if node.op.is_view:
                    parts.add(node.result)
            elif node.op.is_view:
                parts.add(self.same[node.result])
        if ahead:
            self.ahead[start] = ahead
        self._stretches.append((start, len(self.nodes)))

    def operands(self, node: Node) -> tuple[Value, ...]:
        """What a node reads."""
        found = self._operands.get(node)
        if found is None:
            found, same = node.operands, self.same
            if not same.keys().isdisjoint(found):
                found = tuple([same.get(value, value) for value in found])
            self._operands[node] = found
        return found

    def row_of(self, value: Value) -> Row | None:
        """Of what a value is a row, if it is one."""
        loop = self.loop_of(value)
        if loop is None:
            return _row_of(value, self.same)
        number, offset = divmod(self.place[value] - loop.start, loop.period)
        return Row(self.nodes[loop.start + offset].result, ROUND, number)

    def loop_of(self, value: Value) -> Rounds | None:
        """The rounds that make a value, if they become a loop."""
        place = self.place.get(value, -1)
        number = bisect_right(self.loops, (place, len(self.nodes), 0)) - 1
        return self.loops[number] if number >= 0 and place < self.loops[number].stop else None

    # -------------------------------------------------------------- equal rounds

    def rounds(self) -> Iterator[Rounds]:
        """The rounds that there are, in order; what `loops` gets meanwhile counts."""
        tokens = self._tokens()
        for begin, end in self._stretches:
            for first, last, period in repetitions(tokens[begin:end], LEAST_ROUNDS, LEAST_NODES):
                for start, stop in self._alike(begin + first, begin + last, period):
                    found = self._cut(start, stop, period)
                    if found is not None:
                        yield found

    def _tokens(self) -> np.ndarray:
        """Equal numbers for nodes that compute alike; nodes that no round has are like no other."""
        tokens = np.arange(len(self.nodes), dtype=np.int64)
        known: dict[object, int] = {}
        types: dict[int, int] = {}  # the number of a type, by its id: few are many values' own
        numbers: dict[TensorType, int] = {}
        for start, stop in self._stretches:
            for number in range(start, stop):
                node = self.nodes[number]
                if not _can_repeat(node):
                    continue
                if Trait.INDEXED in node.op.traits and node not in self.indices:
                    continue  # it checks its index itself
                key = [self._applied[node]]
                for value in (*node.operands, node.results[0]):
                    of = types.get(id(value._type))
                    if of is None:
                        of = numbers.setdefault(value._type, len(numbers))
                        types[id(value._type)] = of
                    key.append(of)
                tokens[number] = known.setdefault(tuple(key), number)
        return tokens

    def _alike(self, start: int, stop: int, period: int) -> Iterator[tuple[int, int]]:
        """The parts of a repetition in which each node also reads what the one before does."""
        begin, steps = start, dict[tuple[int, int], Step]()
        for place in range(start + period, stop):
            if place - begin < period or self._follows(place, period, begin, steps):
                continue
            if place - begin >= max(LEAST_NODES, LEAST_ROUNDS * period):
                yield begin, place
            begin, steps = place - period + 1, {}
        if stop - begin >= max(LEAST_NODES, LEAST_ROUNDS * period):
            yield begin, stop

    def _follows(
        self, place: int, period: int, begin: int, steps: dict[tuple[int, int], Step]
    ) -> bool:
        """Whether a node reads what the node a period before reads, one round later.

        begin: where the rounds do; steps: what is known of operands from before them.
        """
        place_of, here, before = self.place, self.nodes[place], self.nodes[place - period]
        pairs = zip(self.operands(here), self.operands(before), strict=True)
        for slot, (now, then) in enumerate(pairs):
            made, earlier = place_of.get(now, -1), place_of.get(then, -1)
            if made >= begin:
                is_first = made - period < begin  # what it carries is from before the rounds
                follows = earlier < begin if is_first else earlier == made - period
                if not follows or place - made >= 2 * period:
                    return False
            elif earlier >= begin:
                return False
            else:
                step = self.step(then, now)
                if steps.setdefault((place % period, slot), step) != step:
                    return False
        return True

    def step(self, then: Value, now: Value) -> Step:
        """How one value from before the rounds follows from another one."""
        if then is now:
            return SAME
        one, other = self.row_of(then), self.row_of(now)
        if one is None or other is None or one[:2] != other[:2] or other.place == one.place:
            return OWN
        return Step(*one[:2], other.place - one.place)

    def _cut(self, start: int, stop: int, period: int) -> Rounds | None:
        """Choose where a round begins: nothing skips a round, and little is carried."""
        skipping, carried = np.zeros(2 * period + 1, np.int64), np.zeros(2 * period + 1, np.int64)
        longest: dict[Value, int] = {}
        for place in range(stop - period, stop):
            for value in self.operands(self.nodes[place]):
                distance = place - self.place.get(value, -1)
                if self.place.get(value, -1) < start:
                    continue
                longest[value] = max(longest.get(value, 0), distance)
                if distance > period:  # a round that begins in between has it from two before
                    end = (place - start) % period + period + 1
                    skipping[end - (distance - period)] += 1
                    skipping[end] -= 1
        for value, distance in longest.items():
            first = (self.place[value] - start) % period + 1
            nbytes = hint(value.type.nbytes)
            carried[first] += nbytes
            carried[first + min(distance, period)] -= nbytes
        skips, bytes = (np.cumsum(x)[: 2 * period] for x in (skipping, carried))
        skips, bytes = (x[:period] + x[period:] for x in (skips, bytes))
        allowed = [n for n in range(period) if not skips[n]]
        if not allowed:
            return None
        offset = min(allowed, key=lambda n: (bytes[n], n))
        length = (stop - start - offset) // period
        return Rounds(start + offset, period, length) if length >= LEAST_ROUNDS else None


_OF_FUNCTIONS = ("region", "call")  # kinds of ops that run functions


def _can_repeat(node: Node) -> bool:
    """Whether a round may have a node: it has no effect, but for checks of indices."""
    op = node.op
    if op.has_effect and (op is not ops.check or is_exit(node)):
        return False
    return len(node.results) == 1 and op.kind not in _OF_FUNCTIONS


def _can_move(node: Node) -> bool:
    """Whether a node may come before others: it checks nothing, and has no index."""
    op = node.op
    if op.has_effect or op.kind in _OF_FUNCTIONS or len(node.results) != 1:
        return False
    return Trait.INDEXED not in op.traits


def _indices(graph: Graph) -> dict[Node, Range]:
    """The ranges of indices that are known to be right, by the nodes that have them."""
    found: dict[Node, Range] = {}
    ranges, indexed = Ranges(), {node for node in graph.nodes if Trait.INDEXED in node.op.traits}
    for node in graph.nodes if indexed else ():
        if node in indexed:
            size = node.operands[0].shape[node.attributes["axis"]]
            known = ranges.of(node.operands[1])
            if known is not None and known.is_within(-size, size - 1):
                found[node] = known
        ranges.note(node)
    return found


def _applied(graph: Graph) -> dict[Node, int]:
    """Equal numbers for nodes with the same op and equal attributes."""
    known: dict[object, int] = {}
    return {
        node: known.setdefault((node.op, freeze_attributes(node.attributes)), len(known))
        for node in graph.nodes
    }


def _repeated(graph: Graph, applied: dict[Node, int]) -> dict[Value, Value]:
    """What is computed of inputs alone, and the same, several times: all but the first of each."""
    numbers = {entry.value: ~place for place, entry in enumerate(graph.inputs)}
    known: dict[object, int] = {}  # numbers of what is computed, by op, attributes and operands'
    kept: list[Node] = []
    others: dict[int, list[Node]] = {}
    for node in graph.nodes:
        operands = [numbers.get(value) for value in node.operands]
        if None in operands or not _can_move(node):
            continue
        if len(operands) > 1 and Trait.COMMUTATIVE in node.op.traits:
            operands.sort()
        number = known.setdefault((applied[node], *operands), len(kept))
        numbers[node.results[0]] = number
        if number == len(kept):
            kept.append(node)
        else:
            others.setdefault(number, []).append(node)
    return {
        node.result: kept[number].result
        for number, nodes in others.items()
        if len(nodes) + 1 >= LEAST_ROUNDS or kept[number].op.kind == "create"
        for node in nodes
    }


def _numbers(graph: Graph) -> set[Value]:
    """Single numbers that follow from constants and live inputs alone."""
    found = {entry.value for entry in graph.inputs if entry.kind == "live"}
    for node in graph.nodes:
        is_one = len(node.results) == 1 and node.results[0]._type.size == 1
        if is_one and found.issuperset(node.operands) and _can_move(node):
            found.add(node.result)
    return found


def _row_of(value: Value, same: dict[Value, Value]) -> Row | None:
    """What a slice of one index of an axis shows, or a reshape of it without that axis."""
    node = value.producer
    if node is not None and node.op is ops.reshape:
        if not _drops_axis(node):
            return None
        node = node.operands[0].producer
    if node is None or node.op is not ops.slice:
        return None
    axis = _taken_axis(node)
    base = same.get(node.operands[0], node.operands[0])
    return None if axis is None else Row(base, axis, node.attributes["starts"][axis])


def _taken_axis(node: Node) -> int | None:
    """The axis of which a slice takes one index, and all of the others."""
    sizes, taken, steps = node.operands[0].shape, node.result.shape, node.attributes["steps"]
    axes = [axis for axis, size in enumerate(sizes) if size != taken[axis]]
    is_whole = all(step > 0 for axis, step in enumerate(steps) if axis not in axes)
    return axes[0] if is_whole and len(axes) == 1 and taken[axes[0]] == 1 else None


def _drops_axis(node: Node) -> bool:
    """Whether a node leaves out the axis of which a slice has taken one index."""
    if node.op is not ops.reshape:
        return False
    inner = node.operands[0].producer
    if inner is None or inner.op is not ops.slice:
        return False
    axis, shape = _taken_axis(inner), inner.result.shape
    return axis is not None and node.result.shape == (*shape[:axis], *shape[axis + 1 :])
