"""Rounds that Python has unrolled become a loop again."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

from lucid.ir import ops
from lucid.ir.extents import hint
from lucid.ir.graph import Graph, Node, Value, unused_name
from lucid.ir.passes.loops import Hoisting, Loop
from lucid.ir.passes.rewrite import inherit_notes
from lucid.ir.passes.round_body import DEPTH, Body, Column, is_short
from lucid.ir.passes.rounds import LEAST_ROUNDS, ROUND, Rounds, Schedule, promising
from lucid.ir.region_ops import stacked
from lucid.ir.types import TensorType, i64

_SMALL = 1 << 16
"""So many bytes a round may store that only the last one's are read of: they stay in the caches."""


def roll_up_rounds(graph: Graph) -> bool:
    """Equal rounds, one after the other -> a `scan` of one of them.

    What a round hands to the next one is carried; what all read is captured; the next row of an
    array in each round, such as `x[t]`, is a row. What is read of rounds later is stacked: so a
    backward, whose rounds go the other way, gets the rows that it reads. The first and the last
    rounds, which often differ, stay as they are. All values stay bit for bit.

    Args:
        graph: what is rewritten, in place; the bodies of its loops as well.
    """
    changed = False
    pending = [graph, *graph.functions.values()]
    for part in pending:  # which grows meanwhile
        known = set(graph.functions)
        if _roll_up(part, graph.functions):
            changed = True
            pending.append(part)  # rounds of what is left, as of the last of rounds that have some
            pending += [body for name, body in graph.functions.items() if name not in known]
    return changed


def _roll_up(graph: Graph, functions: dict[str, Graph]) -> bool:
    candidates = promising(graph.nodes)
    if not candidates:
        return False
    schedule = Schedule(graph, candidates)
    bodies = _Bodies(schedule)
    for rounds in schedule.rounds():
        if bodies.of(rounds).is_worthwhile:
            schedule.loops.append(rounds)
    _settle(graph, schedule, bodies)
    if not schedule.loops:
        return False
    _Rolling(graph, functions, schedule, bodies).run()
    return True


class _Bodies:
    """The bodies of rounds, each of which follows from the loops before it."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._made: dict[tuple[Rounds, ...], Body] = {}

    def of(self, rounds: Rounds) -> Body:
        """The body of some rounds behind the loops that there are by now."""
        loops = self._schedule.loops
        key = *loops[: bisect_left(loops, rounds)], rounds
        if key not in self._made:
            self._made[key] = Body(self._schedule, rounds)
        return self._made[key]


def _settle(graph: Graph, schedule: Schedule, bodies: _Bodies) -> None:
    """Choose what of the rounds that are equal becomes loops.

    What the last round alone leaves, such as gradients, is carried as well, if it is little. Where
    more is read of that round by itself than is carried, it stays as it is, and so does what reads
    single rounds of another loop that has become shorter.
    """
    found, schedule.loops[:] = [*schedule.loops], []
    left = {schedule.same.get(x, x) for x in graph.results()}
    read = _read_outside(left, schedule, found)
    for tentative in found:
        rounds = _within(schedule, tentative)
        if rounds.length < LEAST_ROUNDS:
            continue
        body = bodies.of(rounds)
        if not body.is_worthwhile:
            continue
        ends = _ends(schedule, rounds, body, read)
        made = [schedule.nodes[rounds.stop - rounds.period + n].result for n in ends]
        if not left.issuperset(made) or sum(hint(x.type.nbytes) for x in made) > _SMALL:
            rounds = rounds.from_to(0, rounds.length - 1)
        elif ends:
            schedule.ends[rounds] = ends
        if rounds.length >= LEAST_ROUNDS:
            schedule.loops.append(rounds)


def _ends(schedule: Schedule, rounds: Rounds, body: Body, read: set[Value]) -> list[int]:
    """Where in a round is what is read of the last one alone, and not carried: `read` outside."""
    last, period = rounds.stop - rounds.period, rounds.period
    return [
        n
        for n in range(period)
        if schedule.nodes[last + n].result in read
        and schedule.nodes[last + n - period].result not in read
        and n not in body.carried
    ]


def _read_outside(left: set[Value], schedule: Schedule, loops: Sequence[Rounds]) -> set[Value]:
    """What is left, or computed with by nodes that belong to no rounds.

    What is only put together with others isn't: of all rounds it is a stack.
    """
    read = set(left)
    for node in reversed(_outside(schedule, loops)):
        is_joined = node.op is ops.concat or (node.op.is_view and read.isdisjoint(node.results))
        if not is_joined:
            read.update(schedule.operands(node))
    return read


def _outside(schedule: Schedule, loops: Sequence[Rounds]) -> list[Node]:
    """The nodes that belong to none of these loops."""
    outside: list[Node] = []
    stop = 0
    for rounds in (*loops, Rounds(len(schedule.nodes), 1, 0)):
        outside += schedule.nodes[stop : rounds.start]
        for place in range(stop, rounds.stop):
            outside += schedule.ahead.get(place, ())
        stop = rounds.stop
    return outside


def _within(schedule: Schedule, rounds: Rounds) -> Rounds:
    """The rounds that read rounds of loops only as far as those go."""
    start, period, count = rounds
    looped: list[tuple[int, int, Rounds]] = []  # offset, slot, and which loop most rounds read
    for offset in range(period):
        node = schedule.nodes[start + count // 2 * period + offset]
        for slot, value in enumerate(schedule.operands(node)):
            loop = schedule.loop_of(value)
            if loop is not None:
                looped.append((offset, slot, loop))

    def reads_loops(number: int) -> bool:
        nodes = schedule.nodes[start + number * period : start + (number + 1) * period]
        return all(
            schedule.loop_of(schedule.operands(nodes[offset])[slot]) == loop
            for offset, slot, loop in looped
        )

    begin, end = 0, count
    while begin < end and not reads_loops(begin):
        begin += 1
    while end > begin and not reads_loops(end - 1):
        end -= 1
    return rounds.from_to(begin, end)


class _Loop:
    """A loop that rounds have become.

    Attributes:
        rounds: which ones.
        node: the loop, of the graph.
        body: what one of them computes; checks: the nodes of that whose operands are to be checked.
        before, behind: nodes around it: what makes its operands, and what shows single rows.
        stacks: what all rounds have made, by the offset in a round.
    """

    def __init__(self, rounds: Rounds, body: Body, node: Node, before: Sequence[Node]) -> None:
        self.rounds = rounds
        self.node = node
        self.before = before
        self.behind: list[Node] = []
        self._body = body
        self.body, self.checks = body.graph, body.checks
        self.stacks: dict[int, Value] = {}

    def end_at(self, offset: int) -> Value | None:
        """What the last round has made at an offset, if that is carried."""
        carried = self._body.carried
        return self.node.results[carried.index(offset)] if offset in carried else None

    def stack(self, offset: int, graph: Graph) -> Value:
        """What all rounds have made at an offset, as one more result."""
        if offset not in self.stacks:
            self.stacks[offset] = self._stack(self._body.made[offset], graph)
        return self.stacks[offset]

    def late(self, graph: Graph) -> list[tuple[Value, Node]]:
        """What all rounds have made that is checked behind them, and the nodes that check it."""
        return [(self._stack(value, graph), node) for value, node in self._body.late]

    def _stack(self, made: Value, graph: Graph) -> Value:
        node = self.node
        self._body.graph.outputs.append(made)
        type = stacked(made.type, self.rounds.length)
        stack = Value(type, graph, node, len(node.results), made.name)
        node.results = (*node.results, stack)
        return stack

    def index(self, number: int) -> int:
        """Where in stacks a round is."""
        reverse = self.node.attributes["reverse"]
        return self.rounds.length - 1 - number if reverse else number


class _Rolling:
    """A graph whose rounds are put into loops."""

    def __init__(
        self, graph: Graph, functions: dict[str, Graph], schedule: Schedule, bodies: _Bodies
    ) -> None:
        self._graph = graph
        self._functions = functions
        self._schedule = schedule
        self._bodies = bodies
        self._loops: dict[int, _Loop] = {}  # by the place of their first node
        self._shown: dict[Value, Value] = {}  # rows that are read by themselves
        self._read_alone: Counter[tuple[int, int]] = Counter()  # how many, by loop and offset

    def run(self) -> None:
        """Put loops in the place of rounds."""
        graph, schedule = self._graph, self._schedule
        self._count_rows()
        for rounds in schedule.loops:
            self._loops[rounds.start] = self._made(rounds)
        parts: list[list[Node]] = []
        stop = 0
        for place, node in enumerate(schedule.nodes):
            parts.append([self._with_resolved(x) for x in schedule.ahead.get(place, ())])
            loop = self._loops.get(place)
            if loop is not None:
                parts += [[*loop.before, loop.node], loop.behind]
                stop = loop.rounds.stop
            elif place >= stop:
                parts.append([self._with_resolved(node)])
        graph.outputs = [*map(self._resolved, graph.outputs)]
        graph.writes = [(cell, self._resolved(new)) for cell, new in graph.writes]
        graph.nodes = [node for part in parts for node in part]
        for node in graph.nodes:
            if node.gradient_of is not None:
                node.gradient_of = self._mark(node.gradient_of)
        for loop in self._loops.values():
            self._check_before(loop)
        graph.drop_dead_nodes()

    def _count_rows(self) -> None:
        """Count the rounds of which what is in no loop reads what they make."""
        schedule, read = self._schedule, {*self._graph.results()}
        for node in _outside(schedule, schedule.loops):
            read.update(schedule.operands(node))
        for value in read:
            loop = schedule.loop_of(value)
            if loop is not None:
                offset = (schedule.place[value] - loop.start) % loop.period
                self._read_alone[loop.start, offset] += 1

    def _check_before(self, loop: _Loop) -> None:
        """Check before a loop what its rounds check, of all rounds together."""
        whole = Loop(self._graph, loop.node, loop.body)
        hoisting = Hoisting(whole)
        for node in loop.checks:
            value, _ = hoisting.place(node.operands[0], behind=False)
            check, at = node.op, node.attributes
            made = whole.emit(
                lambda check=check, value=value, at=at: check(value, **at),  # type: ignore[misc]
                behind=False,
            ).producer
            assert made is not None
            made.location, made.scope = node.location, node.scope

    # -------------------------------------------------------------- one loop

    def _made(self, rounds: Rounds) -> _Loop:
        """The loop of rounds."""
        body, before = self._bodies.of(rounds), list[Node]()
        ends = self._schedule.ends.get(rounds, [])
        body.finish(ends)
        operands = [self._resolved(x) for x in body.first]
        operands += [self._zeros(before, body.made[n].type) for n in ends]
        for column, values in body.rows:
            operands.append(self._rows(before, column, values, rounds.length, body.reverse))
        operands += [self._resolved(x) for x in body.captures]
        attributes = {
            "function": self._enter(body.graph),
            "carries": len(body.carried),
            "rows": len(body.rows),
            "length": rounds.length,
            "reverse": body.reverse,
        }
        types = [value.type for value in body.graph.outputs]
        node = Node(ops.scan, operands, attributes, types, self._graph)
        _note(node, self._schedule.nodes[rounds.start : rounds.stop])
        loop = _Loop(rounds, body, node, before)
        for stack, check in loop.late(self._graph):
            behind = Node(check.op, [stack], check.attributes, [stack.type], self._graph)
            behind.location, behind.scope = check.location, check.scope
            loop.behind.append(behind)
        return loop

    def _zeros(self, nodes: list[Node], type: TensorType) -> Value:
        """What is carried into the first round and read by none."""
        zero = self._emit(nodes, lambda: self._graph.constant(0, type.dtype))
        return self._emit(nodes, lambda: ops.broadcast(zero, shape=type.shape))

    def _enter(self, body: Graph) -> str:
        """Give the body a name that no function has."""
        body.name = unused_name(body.name, self._functions)
        self._functions[body.name] = body
        return body.name

    def _rows(
        self, nodes: list[Node], column: Column, values: Sequence[Value], count: int, reverse: bool
    ) -> Value:
        """An array with what the rounds read as its rows, in the order of the loop's."""
        if column.places:
            places = column.places[::-1] if reverse else column.places
            return self._emit(nodes, lambda: _listed(self._graph, places))
        if column.step.base is None:
            parts = [self._resolved(x) for x in (reversed(values) if reverse else values)]
            return self._emit(nodes, lambda: _joined(parts))
        row = self._schedule.row_of(column.first)
        assert row is not None
        assert column.step.by is not None
        numbers = row.place, row.place + column.step.by * (count - 1)
        base, axis, width = row.base, row.axis, row.width
        if axis == ROUND:
            loop, offset = self._at(row.base)
            base, axis = loop.stack(offset, self._graph), 0
            numbers = loop.index(numbers[0]), loop.index(numbers[1])
        ends = numbers[::-1] if reverse else numbers
        return self._emit(nodes, lambda: _part(base, axis, *ends, count, width))

    def _at(self, value: Value) -> tuple[_Loop, int]:
        """The loop that has made a value, and at which place of a round."""
        rounds = self._schedule.loop_of(value)
        assert rounds is not None
        offset = (self._schedule.place[value] - rounds.start) % rounds.period
        return self._loops[rounds.start], offset

    def _emit(self, nodes: list[Node], build: Callable[[], Value]) -> Value:
        """What `build` makes of values of the graph, by nodes that are appended to these."""
        graph = self._graph
        before, graph.nodes = graph.nodes, nodes
        try:
            return build()
        finally:
            graph.nodes = before

    # -------------------------------------------------------------- what is not in loops

    def _resolved(self, value: Value) -> Value:
        """What stands for a value now."""
        schedule = self._schedule
        value = schedule.same.get(value, value)
        if schedule.loop_of(value) is None:
            return value
        if value not in self._shown:
            self._shown[value] = self._show(value)
        return self._shown[value]

    def _show(self, value: Value) -> Value:
        """What a loop has made of a value: in its end, in a row, or to be computed again."""
        loop, offset = self._at(value)
        row, node, made = self._schedule.row_of(value), value.producer, list[Node]()
        assert row is not None and node is not None
        end = loop.end_at(offset) if row.place == loop.rounds.length - 1 else None
        if end is not None:
            return end
        is_stacked = (
            offset in loop.stacks or self._read_alone[loop.rounds.start, offset] >= LEAST_ROUNDS
        )
        if not is_stacked and self._is_at_hand(value, DEPTH):
            operands = [self._resolved(x) for x in node.operands]
            found = self._emit(made, lambda: node.op(*operands, **node.attributes))
        else:
            stack, place = loop.stack(offset, self._graph), loop.index(row.place)
            part = self._emit(made, lambda: ops.slice_axis(stack, 0, place, place + 1))
            found = self._emit(made, lambda: ops.reshape(part, shape=value.shape))
        found.name = value.name
        for new in made:
            inherit_notes(new, node)
        loop.behind += made
        return found

    def _is_at_hand(self, value: Value, depth: int) -> bool:
        """Whether a value is there, or follows from what is by short ops."""
        value = self._schedule.same.get(value, value)
        node = value.producer
        if node is None or self._schedule.loop_of(value) is None:
            return True
        loop, offset = self._at(value)
        number = (self._schedule.place[value] - loop.rounds.start) // loop.rounds.period
        is_end = number == loop.rounds.length - 1 and loop.end_at(offset) is not None
        if is_end or offset in loop.stacks:
            return True
        is_possible = depth > 0 and is_short(node)
        return is_possible and all(self._is_at_hand(x, depth - 1) for x in node.operands)

    def _with_resolved(self, node: Node) -> Node:
        node.operands = tuple(map(self._resolved, node.operands))
        return node

    def _mark(self, value: Value) -> Value:
        """What a node helps to compute the gradient of: of a value in rounds, their loop."""
        value = self._schedule.same.get(value, value)
        if self._schedule.loop_of(value) is None:
            return value
        return self._at(value)[0].node.results[0]


def _note(loop: Node, nodes: Sequence[Node]) -> None:
    """Say of a loop where its rounds come from."""
    loop.location = nodes[0].location
    scopes = {node.scope for node in nodes}
    loop.scope = scopes.pop() if len(scopes) == 1 else ""
    loop.gradient_of = next((x.gradient_of for x in nodes if x.gradient_of is not None), None)


def _joined(values: Sequence[Value]) -> Value:
    """The values as rows of one array."""
    return ops.concat(*(ops.reshape(x, shape=(1, *x.shape)) for x in values), axis=0)


def _listed(graph: Graph, numbers: Sequence[int]) -> Value:
    """The numbers as an array: the same steps again and again, or one by one."""
    first, count = numbers[0], len(numbers)
    by = numbers[1] - first
    period = next((n for n in range(2, count) if numbers[n] != first + n * by), count)
    if any(x != first + by * (n % period) for n, x in enumerate(numbers)):
        return _joined([graph.constant(x, i64) for x in numbers])
    iota = graph.append(ops.iota, (), {"shape": (count,), "axis": 0, "dtype": i64}).result
    within = ops.remainder(iota, graph.constant(period, i64))
    return ops.add(ops.mul(within, graph.constant(by, i64)), graph.constant(first, i64))


def _part(base: Value, axis: int, first: int, last: int, count: int, width: int) -> Value:
    """So many rows of a base along an axis, at equal distances from the first to the last one.

    A row is so many neighbours on the axis, which has these in the place of single ones.
    """
    if width > 1:
        start, shape = min(first, last), base.shape
        blocks = abs(last - first) // width + 1
        bounds = (0,) * axis, shape[:axis], (1,) * len(shape)
        base = ops.slice(
            base,
            starts=(*bounds[0], start, *(0 for _ in shape[axis + 1 :])),
            stops=(*bounds[1], start + blocks * width, *shape[axis + 1 :]),
            steps=bounds[2],
        )
        base = ops.reshape(base, shape=(*shape[:axis], blocks, width, *shape[axis + 1 :]))
        first, last = (first - start) // width, (last - start) // width
    if axis:
        others = (n for n in range(len(base.shape)) if n != axis)
        base = ops.transpose(base, perm=(axis, *others))
    step, sizes = (last - first) // (count - 1), base.shape[1:]
    if (first, step, count) == (0, 1, base.shape[0]):
        return base
    rest = (0,) * len(sizes)
    return ops.slice(
        base,
        starts=(first, *rest),
        stops=(last + (1 if step > 0 else -1), *sizes),
        steps=(step, *(1 for _ in sizes)),
    )
