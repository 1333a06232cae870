"""One of many equal rounds as the body of a loop, and what the loop gets.

Of what rounds have computed that are a loop already, a later loop reads rows: a backward those of
the forward. What is shorter to compute again from other rows isn't kept, as a recorded loop's
backward doesn't keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from lucid.ir import ops
from lucid.ir.extents import hint
from lucid.ir.graph import Graph, Input, Node, Value
from lucid.ir.passes.loops import free_nodes
from lucid.ir.passes.residuals import FUNCTIONS
from lucid.ir.passes.rounds import OWN, ROUND, SAME, Rounds, Schedule, Step
from lucid.ir.ranges import Range, Ranges
from lucid.ir.types import TensorType, i64

DEPTH = 6  # how many nodes behind a value are looked at that is to be computed again
_COPIED = 2  # how many times more a round computes than what is brought into order for it
_LONG = FUNCTIONS | {
    ops.div, ops.floor_div, ops.reciprocal, ops.remainder, ops.rsqrt, ops.sqrt
}  # fmt: skip
"""Elementwise ops that take more time than to read a row."""


class Column(NamedTuple):
    """What the rounds read in one place, that is made before all of them.

    Attributes:
        first, second, last: what these rounds read.
        step: how one follows from the one before.
        places: where all rounds' are on their axis, if those are no equal steps.
    """

    first: Value
    second: Value
    last: Value
    step: Step
    places: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[Step, Value, tuple[int, ...]]:
        return self.step, self.first, self.places

    @property
    def nbytes(self) -> int:
        return int(hint(self.first.type.nbytes))


class Body:
    """The body of a loop while it is made of a round.

    Args:
        schedule: the nodes of the graph.
        rounds: which of them the loop is.

    Attributes:
        graph: what a round computes. Its inputs and outputs stand there in the end.
        made: what each node of a round has become.
        first: what is carried into the first round; `carried`: the offset in the round of the node
            that makes it.
        rows: what goes on from round to round; of values of each round's own, also all of them.
        captures: what all rounds read.
        checks: the nodes that check what follows from rows, in each round.
        late: what else is checked, each with the node of the graph that does. The rounds go on
            with numbers that are right, so it can be checked behind them.
    """

    def __init__(self, schedule: Schedule, rounds: Rounds) -> None:
        self.graph = Graph("round")
        self.made: list[Value] = []
        self.first: list[Value] = []
        self.carried: list[int] = []
        self.rows: list[tuple[Column, list[Value]]] = []
        self.captures: list[Value] = []
        self.checks: list[Node] = []
        self.late: list[tuple[Value, Node]] = []
        self._schedule = schedule
        self._rounds = rounds
        self._inputs: dict[object, Value] = {}
        self._first_of_all: list[Node] = []  # of what all rounds read, or make alike
        self._copied = 0  # bytes of what a round reads that doesn't lie in order
        self._by_kind: tuple[list[Value], list[Value], list[Value]] = [], [], []
        self._kept: set[object] = set()
        self._again: dict[object, Value] = {}
        self._ranges = Ranges()
        self._free: dict[Value, bool] = {}  # what no carry comes into, and whether rows do
        self._right: dict[Value, Value] = {}  # what stands for numbers that may be wrong
        self._columns: dict[tuple[int, int], Column] = {}  # by the offset and the operand's slot
        self._is_right = True  # whether there are numbers that the late checks accept
        self._assumes = False  # that an index is right which follows from what is carried
        self._plan()
        for offset in range(rounds.period):
            self._copy(offset)

    @property
    def reverse(self) -> bool:
        """Whether the rounds go from the last row to the first, as most bytes of rows do."""
        rows = [x for x, _ in self.rows if x.step.base is not None]
        return sum((x.step.by or 0) * x.nbytes for x in rows) < 0

    @property
    def is_worthwhile(self) -> bool:
        """Whether a round computes something, and what is copied for its sake is little.

        Its own values are single numbers: a layer's weights aren't put into one array.
        """
        numbers, copied = self._schedule.numbers, self._copied
        work = [x for x in self.graph.nodes if not (x.op.is_view or x.op.kind == "create")]
        for column, values in self.rows:
            if column.places:
                continue
            if not (numbers.issuperset(values) if column.step is OWN else self._is_steady(column)):
                return False
            if column.step.axis > 0 or abs(column.step.by or 0) > column.step.width:
                copied += column.nbytes
        if self.late and (self._assumes or not self._is_right):
            return False  # rounds that go on behind a check that has failed know no more than it
        return len(work) > 1 and _COPIED * copied <= sum(hint(x.result.type.nbytes) for x in work)

    # -------------------------------------------------------------- what rounds read

    def _copy(self, offset: int) -> None:
        """Append what the node at an offset of a round does."""
        start, period, _ = self._rounds
        schedule = self._schedule
        node = schedule.nodes[start + period + offset]
        begin = schedule.operands(schedule.nodes[start + offset])
        operands = []
        for slot, value in enumerate(schedule.operands(node)):
            place = schedule.place.get(value, -1)
            if place >= start + period:
                operands.append(self.made[place - start - period])
            elif place >= start:
                operands.append(self._carry(place - start, begin[slot]))
            else:
                operands.append(self._outer(self._column(offset, slot), offset, slot))
        operands = [self._right.get(x, x) for x in operands]
        if node in schedule.indices:
            self._require(operands[1], schedule.indices[node])
        if node.op is ops.check and operands[0] not in self._free:
            self.made.append(self._check_late(operands[0], node))
            return
        self.made.append(self._append(node, operands))
        if node.op is ops.check:
            self.checks.append(self.graph.nodes[-1])

    def _check_late(self, value: Value, node: Node) -> Value:
        """What the rounds go on with in place of a value that the graph's node checks."""
        low, high = node.attributes["low"], node.attributes["high"] - 1
        self.late.append((value, node))
        self._is_right &= low <= high and value.type.size > 0
        ends = [self.graph.constant(x, value.dtype) for x in (low, max(low, high))]
        right = self._right[value] = ops.clamp(value, *ends)
        for made in self.graph.nodes[-3:]:
            self._ranges.note(made)
        return right

    def _require(self, index: Value, known: Range) -> None:
        """Say of an index in the body what is known of all rounds' indices."""
        if not self._ranges.knows(index, known):
            self._assumes |= index not in self._free
            at = {"low": known.low, "high": known.high + 1}
            words = {"message": "index {} is out of range", "error": "index"}
            check = Node(ops.check, [index], at | words, [index.type], self.graph)
            self.graph.nodes.append(check)
            self._ranges.note(check)

    def _append(self, node: Node, operands: Sequence[Value]) -> Value:
        copied = Node(node.op, operands, dict(node.attributes), [node.result.type], self.graph)
        copied.location, copied.scope = node.location, node.scope
        copied.result.name = node.result.name
        self.graph.nodes.append(copied)
        self._ranges.note(copied)
        free_nodes([copied], self._free, False)
        return copied.result

    def _column(self, offset: int, slot: int) -> Column:
        """What rounds read from before, as that operand of the node at that offset."""
        if (place := (offset, slot)) not in self._columns:
            self._columns[place] = self._column_at(offset, slot)
        return self._columns[place]

    def _column_at(self, offset: int, slot: int) -> Column:
        schedule, count = self._schedule, self._rounds.length
        first, second, last = (self._read(offset, slot, n) for n in (0, 1, count - 1))
        step = schedule.step(first, second)
        row = schedule.row_of(first)
        if step is OWN or row is None or row.axis == ROUND:
            return Column(first, second, last, step)
        rows = [schedule.row_of(self._read(offset, slot, n)) for n in range(count)]
        places = [x.place for x in rows if x is not None]
        gaps = {now - then for then, now in pairwise(places)}
        if len(gaps) == 1 and (not (by := gaps.pop()) or by % row.width == 0):
            return Column(first, second, last, step)
        step = Step(row.base, row.axis, None, row.width)
        return Column(first, second, last, step, tuple(places))

    def _read(self, offset: int, slot: int, number: int) -> Value:
        """What the node at an offset of a round reads."""
        start, period, _ = self._rounds
        schedule = self._schedule
        return schedule.operands(schedule.nodes[start + offset + number * period])[slot]

    def _input(self, key: object, kind: int, type: TensorType, name: str) -> Value:
        self._inputs[key] = value = Value(type, self.graph, None, 0, name)
        self._by_kind[kind].append(value)
        if kind:
            self._free[value] = kind == 1
        return value

    def _carry(self, offset: int, first: Value) -> Value:
        """What the round before has made at an offset; `first`: what the first round gets."""
        if (key := (offset, first)) not in self._inputs:
            self.first.append(first)
            self.carried.append(offset)
            return self._input(key, 0, first.type, first.name)
        return self._inputs[key]

    def _outer(self, column: Column, offset: int = 0, slot: int = 0) -> Value:
        """What a round reads from before; the place matters for values of its own."""
        first, step, key = column.first, column.step, column.key
        if step is OWN:
            values = [self._read(offset, slot, n) for n in range(self._rounds.length)]
            if (own := tuple(values)) not in self._inputs:
                self.rows.append((column, values))
                self._input(own, 1, first.type, first.name)
            return self._inputs[own]
        if step is SAME:
            return self._capture(first)
        if key in self._again:
            return self._again[key]
        if column.places:
            made = self._part(column)
        elif key in self._kept:
            made = self._row(column)
        else:
            operands = self._operands(column)
            assert operands is not None and first.producer is not None
            made = self._append(first.producer, [self._outer(x) for x in operands])
        self._again[key] = made
        return made

    def _capture(self, value: Value) -> Value:
        """What all rounds read; constants and views they make themselves."""
        node = value.producer
        if value in self._inputs:
            return self._inputs[value]
        if node is not None and (is_cheap(node) or _is_constant(value)):
            inner = [self._capture(x) for x in self._schedule.operands(node)]
            self._inputs[value] = made = self._append(node, inner)
            self._first_of_all.append(self.graph.nodes[-1])
            return made
        self.captures.append(value)
        return self._input(value, 2, value.type, value.name)

    def _row(self, column: Column) -> Value:
        """The row of a round, in the shape that it reads."""
        step, shape = column.step, column.first.shape
        assert step.base is not None
        bare = shape
        if step.axis != ROUND and step.width == 1:
            bare = (*step.base.shape[: step.axis], *step.base.shape[step.axis + 1 :])
        self.rows.append((column, []))
        row = self._input(column.key, 1, column.first.type.with_shape(bare), column.first.name)
        if bare == shape:
            return row
        made = ops.reshape(row, shape=shape)
        self._free[made] = True
        return made

    def _part(self, column: Column) -> Value:
        """The part of an array that a round reads, at a place that the round is given."""
        (base, axis, _, width), shape, places = column.step, column.first.shape, column.places
        assert base is not None
        self._copied += column.nbytes
        if places not in self._inputs:
            self.rows.append((column, []))
            self._input(places, 1, TensorType(i64, ()), "start")
        start, whole, known = self._inputs[places], self._capture(base), len(self.graph.nodes)
        self._require(start, Range(min(places), max(places)))
        index = ops.reshape(start, shape=(1,))
        if width > 1:
            index = ops.add(index, self.graph.append(ops.iota, (), _iota(width)).result)
        made = ops.take(whole, index, axis=axis)
        made = made if made.shape == shape else ops.reshape(made, shape=shape)
        for node in self.graph.nodes[known:]:
            self._ranges.note(node)
        return made

    # -------------------------------------------------------------- what is computed again

    def _plan(self) -> None:
        """Choose the rows that are read; all else follows from them."""
        (start, period, _), schedule = self._rounds, self._schedule
        found: dict[object, Column] = {}
        for offset, node in enumerate(schedule.nodes[start + period : start + 2 * period]):
            for slot, value in enumerate(schedule.operands(node)):
                if schedule.place.get(value, -1) < start:
                    column = self._column(offset, slot)
                    if not (column.places or column.step is SAME or column.step is OWN):
                        found[column.key] = column
        for column in sorted(found.values(), key=lambda x: schedule.place.get(x.first, -1)):
            self._kept.update(x.key for x in self._sources(column, DEPTH))

    def _sources(self, column: Column, depth: int) -> set[Column]:
        """The rows that must be read besides those that are, for what is in a column."""
        if column.step is SAME or column.key in self._kept:
            return set()
        operands = self._operands(column) if depth else None
        if operands is None:
            return {column}
        found = {x for operand in operands for x in self._sources(operand, depth - 1)}
        node = column.first.producer
        assert node is not None
        weight = 1 if node.op.is_view else 2
        is_small = sum(x.nbytes for x in found) * weight <= column.nbytes
        return found if is_small else {column}

    def _operands(self, column: Column) -> list[Column] | None:
        """What a column follows from, by a short op in rounds that are a loop; else None."""
        schedule, nodes = self._schedule, [x.producer for x in column[:3]]
        node = nodes[0]
        if schedule.loop_of(column.first) is None or node is None:
            return None
        if not is_short(node):
            return None
        found = []
        for first, second, last in zip(
            *(schedule.operands(x) for x in nodes if x is not None), strict=True
        ):
            operand = Column(first, second, last, schedule.step(first, second))
            if operand.step is OWN or not self._is_steady(operand):
                return None
            found.append(operand)
        return found

    def _is_steady(self, column: Column) -> bool:
        """Whether the last round reads what follows from the first ones by equal steps.

        Those in between do: rounds that are a loop are equal, all but the first.
        """
        first, last, step = column.first, column.last, column.step
        if step is SAME:
            return self._schedule.step(first, last) is SAME
        row, end = self._schedule.row_of(first), self._schedule.row_of(last)
        assert row is not None and step.by is not None
        return end == row._replace(place=row.place + step.by * (self._rounds.length - 1))

    # -------------------------------------------------------------- the end

    def finish(self, ends: Sequence[int]) -> None:
        """Give the graph its inputs, and the next carry as outputs.

        `ends` are carried as well, though no round reads them: what is made at these offsets.
        What all rounds make alike comes first, so that rounds in a round are seen to be equal.
        """
        for offset in ends:
            made = self.made[offset]
            self._input(("end", offset), 0, made.type, made.name)
            self.carried.append(offset)
        for value in (x for kind in self._by_kind for x in kind):
            value.index = len(self.graph.inputs)
            self.graph.inputs.append(Input(value, "arg"))
        self.graph.outputs = [self.made[offset] for offset in self.carried]
        first = dict.fromkeys(self._first_of_all)
        self.graph.nodes = [*first, *(node for node in self.graph.nodes if node not in first)]


def _iota(size: int) -> dict[str, object]:
    return {"shape": (size,), "axis": 0, "dtype": i64}


def is_short(node: Node) -> bool:
    """Whether it takes less time to compute a value again than to keep it in memory."""
    return node.op.is_view or (node.op.is_elementwise and node.op not in _LONG)


def is_cheap(node: Node) -> bool:
    """Whether a body makes a value itself instead of being given it."""
    return node.op in (ops.constant, ops.iota) or (node.op.is_view and len(node.operands) == 1)


def _is_constant(value: Value) -> bool:
    """Whether a number follows from constants alone, so that passes find what it is."""
    node = value.producer
    if node is None or value.type.size != 1 or not (node.op.is_elementwise or is_cheap(node)):
        return False
    return all(map(_is_constant, node.operands))
