"""Equal rounds of a graph: stretches of nodes that do the same with the values of their round.

A loop that Python has unrolled is a stretch of nodes that repeats. What a round reads is made in
the round itself, or in the one before (it is *carried*), or before all rounds: then it is the same
for all, or from round to round the next row of something, or a value of each round's own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from lucid.ir import ops
from lucid.ir.extents import hint
from lucid.ir.graph import Graph, Node, Value, freeze_attributes
from lucid.ir.op import Op, Trait
from lucid.ir.passes.periods import Repetition, repetitions
from lucid.ir.ranges import Range, Ranges
from lucid.ir.region_ops import is_exit

LEAST_ROUNDS = 4
"""Fewer are no loop."""
LEAST_NODES = 160
"""Of all rounds together: fewer are compiled in some 20 ms."""


class Row(NamedTuple):
    """What a value is of others: what an array has at an index of an axis, or a round of a loop.

    Attributes:
        base: the array; or what the first of the rounds has made.
        axis: which one the value doesn't have, or has a part of; or `ROUND`.
        place: where on it, or in which round.
        width: so many elements of the axis, from the place on.
    """

    base: Value
    axis: int
    place: int
    width: int = 1


ROUND = -1


class Step(NamedTuple):
    """How what a round reads in a place follows from what the round before reads there.

    Attributes:
        base, axis, width: of the rows; None and 0 where it is the same, or each round's own.
        by: how many rows further, or before it where that is negative; None where it varies.
    """

    base: Value | None
    axis: int
    by: int | None
    width: int = 1

    def then(self, other: Step) -> Step | None:
        """What both steps are, one after the other; None if a loop can't take them."""
        rows = [step for step in (self, other) if step.base is not None]
        if self == other or not rows:
            return self if self == other else None
        found = rows[0]._replace(by=None)
        is_own = OWN in (self, other) or found.axis == ROUND
        return None if is_own or rows[-1]._replace(by=None) != found else found


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
        operands: what a node reads, with these in the place of others.
        numbers: single numbers that follow from constants and live inputs alone.
        indices: the ranges of the indices of nodes, where these are known to be right.
        place: where in `nodes` a value is made, if it is there.
        loops: the rounds that become loops, in order; ends: where in these is what is read of the
            last round alone.
    """

    def __init__(self, graph: Graph, candidates: Sequence[Repetition]) -> None:
        self.nodes: list[Node] = []
        self.ahead: dict[int, list[Node]] = {}
        self.same = _repeated(graph, candidates)
        self.numbers = _numbers(graph)
        self.place: dict[Value, int] = {}
        self.loops: list[Rounds] = []
        self.ends: dict[Rounds, list[int]] = {}
        self.indices = _indices(graph)
        self.operands = _read(graph, self.same).__getitem__
        self._stretches: list[tuple[int, int]] = []
        self._rows: dict[Value, Row | None] = {}  # of what values from before all loops are rows
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
        results = node.results
        if results and results[0] in self.same:
            return
        place = len(self.nodes)
        for value in results:
            self.place[value] = place
        self.nodes.append(node)

    def _append_stretch(self, nodes: Sequence[Node]) -> None:
        """Append what repeats, and let come before it what can."""
        start, ahead = len(self.nodes), list[Node]()
        parts: set[Value] = set()  # what shows a row of something from before
        place, operands_of, append = self.place.get, self.operands, self._append
        is_own = self._kept.isdisjoint
        for node in nodes:
            op = node.op
            comes_before = op.kind == "create" or not is_own(node.results)
            if not (comes_before or op in _SHOW_ROWS):
                append(node)
                continue
            operands = operands_of(node)
            if max([place(x, -1) for x in operands], default=-1) >= start:
                append(node)
                continue
            if op is ops.reshape:
                comes_before = comes_before or (operands[0] in parts and _drops_axis(node))
            elif op is ops.slice and operands[0] not in parts:
                comes_before = comes_before or _taken_axis(node) is not None
            if not comes_before:
                self._append(node)
            elif node.result not in self.same:
                ahead.append(node)
                if op.is_view:
                    parts.add(node.result)
            elif op.is_view:
                parts.add(self.same[node.result])
        if ahead:
            self.ahead[start] = ahead
        self._stretches.append((start, len(self.nodes)))

    def row_of(self, value: Value) -> Row | None:
        """Of what a value is a row, if it is one."""
        loop = self.loop_of(value)
        if loop is None:
            if value not in self._rows:
                self._rows[value] = _row_of(value, self.same)
            return self._rows[value]
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
        tokens = [*range(len(self.nodes))]
        known: dict[object, int] = {}
        seen: dict[object, int] = {}  # the same by identities: few are many values' own
        for start, stop in self._stretches:
            for number, node in enumerate(self.nodes[start:stop], start):
                if not (_is_free(node.op) and len(node.results) == 1) and not self._repeats(node):
                    continue
                attributes = node.attributes
                types = [value._type for value in node.operands]
                types.append(node.results[0]._type)
                key = (node.op, id(attributes) if attributes else 0, *map(id, types))
                token = seen.get(key)
                if token is None:
                    applied = node.op, freeze_attributes(attributes), *types
                    token = seen[key] = known.setdefault(applied, number)
                tokens[number] = token
        return np.array(tokens, np.int64)

    def _repeats(self, node: Node) -> bool:
        """Whether a round may have a node; one that checks its index itself isn't known to."""
        is_known = Trait.INDEXED not in node.op.traits or node in self.indices
        return is_known and _can_repeat(node)

    def _alike(self, start: int, stop: int, period: int) -> Iterator[tuple[int, int]]:
        """The parts of a repetition in which each node also reads what the one before does."""
        least = max(LEAST_NODES, LEAST_ROUNDS * period)
        reads = _Reads(self, start, stop, period)
        begin = start
        while begin < stop:
            end = reads.follow_until(begin)
            if end - begin >= least:
                yield begin, end
            begin = end - period + 1 if end < stop else stop

    def step(self, then: Value, now: Value) -> Step:
        """How one value from before the rounds follows from another one."""
        if then is now:
            return SAME
        one, other = self.row_of(then), self.row_of(now)
        if one is None or other is None or one._replace(place=other.place) != other:
            return OWN
        if one == other:
            return SAME  # each round takes the same part anew
        return Step(one.base, one.axis, other.place - one.place, one.width)

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


class _Reads:
    """What the nodes of a repetition read, each beside what the node a period before reads.

    Args:
        schedule, start, stop, period: where the repetition is.
    """

    def __init__(self, schedule: Schedule, start: int, stop: int, period: int) -> None:
        self._schedule = schedule
        self._stop, self._period = stop, period
        place_of, operands = schedule.place.get, schedule.operands
        read = [operands(node) for node in schedule.nodes[start:stop]]
        counts = [len(x) for x in read]
        values = [value for x in read for value in x]
        width = sum(counts[:period])  # of a period: nodes that repeat have as many operands
        places = np.repeat(np.arange(start, stop), counts)
        made = np.array([place_of(x, -1) for x in values], np.int64)
        self._now, self._then = values[width:], values[: len(values) - width]
        self._places = places[width:]
        self._made, self._earlier = made[width:], made[: len(made) - width]
        self._width = width

    def follow_until(self, begin: int) -> int:
        """The first node from a place on that doesn't read what follows in a round of its own.

        That is what the node a period before reads, one round later.
        """
        period, width = self._period, self._width
        steps: dict[int, Step] = {}  # by the operand's number in a round
        first = int(np.searchsorted(self._places, begin + period))
        count = 64
        while first < len(self._places):
            part = slice(first, first + count)
            made, earlier, places = self._made[part], self._earlier[part], self._places[part]
            is_inner = made >= begin
            is_first = made - period < begin  # what it carries is from before the rounds
            follows = np.where(is_first, earlier < begin, earlier == made - period)
            follows &= places - made < 2 * period
            is_outer = ~is_inner & (earlier < begin)
            bad = np.flatnonzero(~(is_outer | (is_inner & follows)))
            end = int(bad[0]) if len(bad) else len(places)
            for number in (first + np.flatnonzero(is_outer[:end])).tolist():
                step = self._schedule.step(self._then[number], self._now[number])
                found = steps.setdefault(number % width, step)
                if found != step:
                    both = found.then(step)
                    if both is None:
                        return int(self._places[number])
                    steps[number % width] = both
            if len(bad):
                return int(places[end])
            first, count = first + count, 4 * count
        return self._stop


_SHOW_ROWS = frozenset((ops.reshape, ops.slice))
_OF_FUNCTIONS = ("region", "call")  # kinds of ops that run functions


def _can_repeat(node: Node) -> bool:
    """Whether a round may have a node: it has no effect, but for checks of indices."""
    op = node.op
    if op.has_effect and (op is not ops.check or is_exit(node)):
        return False
    return len(node.results) == 1 and op.kind not in _OF_FUNCTIONS


@cache
def _is_free(op: Op) -> bool:
    """Whether nodes of an op may come before others: it checks nothing, and has no index."""
    return not (op.has_effect or op.kind in _OF_FUNCTIONS or Trait.INDEXED in op.traits)


def _read(graph: Graph, same: dict[Value, Value]) -> dict[Node, tuple[Value, ...]]:
    """What the nodes of a graph read, where some values are the same as others."""
    found = {node: node.operands for node in graph.nodes}
    if same:
        is_as_it_is, get = same.keys().isdisjoint, same.get
        for node, operands in found.items():
            if not is_as_it_is(operands):
                found[node] = tuple([get(value, value) for value in operands])
    return found


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


_DEEPEST = 64
"""How many nodes one after the other are looked at that compute the same: rounds are longer."""


def _repeated(graph: Graph, candidates: Sequence[Repetition]) -> dict[Value, Value]:
    """What is computed of inputs alone, and the same, several times: all but the first of each.

    Of a stretch that repeats it is the same in most rounds: what comes back in some, as a batch in
    each epoch, is a part of something at another place each time.
    """
    numbers = {entry.value: ~place for place, entry in enumerate(graph.inputs)}
    known: dict[object, int] = {}  # numbers of what is computed, by op, attributes and operands'
    frozen: dict[object, int] = {}  # a number for equal attributes
    shared: dict[int, int] = {}  # the same by identity
    kept: list[Node] = []
    places: list[int] = []  # of these
    depths: list[int] = []
    others: dict[int, list[Node]] = {}
    has_number = numbers.__contains__
    for place, node in enumerate(graph.nodes):
        if not (all(map(has_number, node.operands)) and _is_free(node.op)):
            continue
        if len(node.results) != 1:
            continue
        operands = [numbers[value] for value in node.operands]
        if len(operands) > 1 and Trait.COMMUTATIVE in node.op.traits:
            operands.sort()
        attributes = shared.get(id(node.attributes))
        if attributes is None:
            found = freeze_attributes(node.attributes)
            attributes = shared[id(node.attributes)] = frozen.setdefault(found, len(frozen))
        number = known.setdefault((node.op, attributes, *operands), len(kept))
        if number < len(kept):
            numbers[node.results[0]] = number
            others.setdefault(number, []).append(node)
            continue
        kept.append(node)
        places.append(place)
        depths.append(1 + max([depths[n] for n in operands if n >= 0], default=0))
        if depths[number] < _DEEPEST:
            numbers[node.results[0]] = number

    def are_enough(number: int) -> bool:
        count, place = len(others[number]) + 1, places[number]
        rounds = [(x.stop - x.start) // x.period for x in candidates if x.start <= place < x.stop]
        return count >= LEAST_ROUNDS and all(2 * count > x for x in rounds)

    return {
        node.result: kept[number].result
        for number, nodes in others.items()
        if kept[number].op.kind == "create" or are_enough(number)
        for node in nodes
    }


def _numbers(graph: Graph) -> set[Value]:
    """Single numbers that follow from constants and live inputs alone."""
    found = {entry.value for entry in graph.inputs if entry.kind == "live"}
    for node in graph.nodes:
        is_one = len(node.results) == 1 and node.results[0]._type.size == 1
        if is_one and found.issuperset(node.operands) and _is_free(node.op):
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
    if axis is None:
        return None
    return Row(base, axis, node.attributes["starts"][axis], node.result.shape[axis])


def _taken_axis(node: Node) -> int | None:
    """The axis of which a slice takes one index, or several neighbours, and all of the others."""
    sizes, taken, steps = node.operands[0].shape, node.result.shape, node.attributes["steps"]
    axes = [axis for axis, size in enumerate(sizes) if size != taken[axis]]
    if len(axes) != 1 or not all(step > 0 for n, step in enumerate(steps) if n != axes[0]):
        return None
    (axis,) = axes
    return axis if taken[axis] == 1 or (steps[axis] == 1 and taken[axis]) else None


def _drops_axis(node: Node) -> bool:
    """Whether a node leaves out the axis of which a slice has taken one index."""
    if node.op is not ops.reshape:
        return False
    inner = node.operands[0].producer
    if inner is None or inner.op is not ops.slice:
        return False
    axis, shape = _taken_axis(inner), inner.result.shape
    if axis is None or shape[axis] != 1:
        return False
    return node.result.shape == (*shape[:axis], *shape[axis + 1 :])
