"""Python loops that end on a value, as Newton's method does: a `while_loop` makes their rounds.

    while err > tol:                    for _ in range(100):
        ...                                 ...
                                            if err.item() < tol:
                                                break

A value is looked at in each round, and the loop goes on with one answer. The rounds between two
looks by the same instruction do the same if what Python has at the first one differs from what it
has at the second one in variables, and in what rounds change, and there in tensors of the same
types and in numbers (`loop_state.py`). So the trace looks at a round that Python makes. The next
one, from look to look, is recorded on stand-ins, as the body of a `while_loop`, whose condition is
the answer of the second look. Behind that the places hold what the loop leaves, and Python is told
the other answer: it goes on where it left the loop in eager mode.

Where a look doesn't end the loop, with `if middle**3 > c:` in a `for` or where a counter ends it,
the rounds lie between two such looks: the answer is carried, and each round branches on it first.

A `for` is at its end as well when its things are, and a round may look at other values, by which it
ends too: `while err > tol and rounds < limit`. In the native loop a round that another look ends is
undone: it leaves what there was at the look before it. Python makes that round again, and is told
the answers. Which end it was is an exit of the step, so there is a path for each.

A long `for` that no look ends is such a loop as well where its rounds branch by their number, as in
`if t % 10 == 0`, or print: a round lies between two of their ends.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lucid.autograd.host_finding import Finding
from lucid.autograd.modes import no_grad
from lucid.autograd.node import Edge, Node, OpNode, edge_of
from lucid.compiler.guards.events import Stack
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.recording.late.filled_lists import FilledList
from lucid.compiler.recording.late.iterables import LateIterable
from lucid.compiler.recording.late.late_numbers import LateScalar
from lucid.compiler.recording.loops.calls_of_rounds import CallsOfRounds
from lucid.compiler.recording.loops.loop_code import (
    LookCode,
    LoopCode,
    code_of_look,
    reads_nothing_behind,
)
from lucid.compiler.recording.loops.loop_state import LoopState, number_of
from lucid.compiler.recording.loops.loops import (
    Loops,
    Round,
    loops_here,
    unrolling,
)
from lucid.ir import ops
from lucid.ir.extents import hint
from lucid.ir.graph import Node as GraphNode, Value
from lucid.ir.location import LIBRARY, USERS, here, user_frame
from lucid.ir.passes.cse import value_number
from lucid.ir.region_ops import CONTROL
from lucid.ir.types import bool_, i64
from lucid.ir.whose_code import is_librarys
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, constant
from lucid.tensor.storage import Storage

if TYPE_CHECKING:
    from lucid.compiler.recording.deferred_calls import DeferredCall
    from lucid.compiler.recording.recorder import Recorder

_LEFT, _OVER, _UNDONE = 0, 1, 2
"""How a loop ends: by its look, for want of rounds, or from this number on by another look."""
_MOST_LOOKS = 4  # at rounds, until one is like the next one
_LEAST_NODES = 2500  # that needn't be recorded, of a `for` that no look ends
_OF_DRAWS = (str, int, float, bool, type(None))
_LITTLE = 2**14  # bytes that may be computed for nothing in each round
_MOST_ROUNDS = 2**20  # of a `while`, until Python looks for signals again
_MOST_BRANCHES = 3  # in a round, of each of which both sides are computed
_DRAWS_OTHERWISE = "branches, and draws random numbers on one way alone"
_MOST_UNDONE = 2  # in one frame, of loops that go on then
# Of the library, what only looks: nothing else may be done between the user's code and the look.
_LOOKING = tuple(
    os.path.join(LIBRARY, x) + os.sep for x in ("compiler", "functions", "tensor", "ir")
)


@dataclass(slots=True, eq=False)
class Iteration:
    """How far a `for` over some things has come.

    Attributes:
        begun: how many rounds have begun.
        branches: whether a round branches on its number.
    """

    things: LateIterable
    begun: Any = 0
    branches: bool = False

    def item(self, begun: Any) -> Any:
        """The thing that the latest of so many begun rounds was given."""
        before = begun - 1 if self.things.stride == 1 else self.things.stride * (begun - 1)
        return self.things.at(self.things.first + before)

    def rest(self) -> Iterable[tuple[Any]]:
        """The things for the rounds that haven't begun."""
        while self.begun < self.things.length:
            self.begun += 1
            yield (self.item(self.begun),)


@dataclass(slots=True, eq=False)
class _Look:
    """A look at a value in a loop.

    Attributes:
        frame: the loop's frame; code: what its code tells; at: the instructions of this frame and
            of those that it has called.
        event: an object for each time that an instruction was told of.
        is_between: whether it is the end of a `for`'s round, and no look at a value.
    """

    frame: types.FrameType
    code: LookCode
    at: tuple[Any, ...]
    event: object
    is_between: bool = False

    @property
    def tells(self) -> int:
        """Its rank among the looks of a loop: highest for one that may end the loop."""
        return 1 if self.is_between else 0 if self.code.stays is None else 2

    @property
    def loop(self) -> tuple[int, int]:
        return id(self.frame), self.code.header

    @property
    def source(self) -> tuple[types.CodeType, int]:
        return self.frame.f_code, self.code.header

    @property
    def below(self) -> list[Any]:
        """The values on the stack, known by identity, or an `__exit__` by its object."""
        stack = Stack(self.frame)
        return [_known_by(stack[place]) for place in self.code.below]


@dataclass(slots=True, eq=False)
class _Watched:
    """A round that Python makes, from a look on.

    Attributes:
        look: the look at which it began; below: the stack there; stays: the answer of that look.
        before: the state at the look.
        noted: what the round does; closing: ends the noting.
        looks: how many rounds were watched; branches: whether a round branches on another value.
    """

    look: _Look
    below: list[Any]
    stays: bool
    before: LoopState
    noted: Round
    closing: ExitStack
    looks: int
    branches: bool


class _Asked(NamedTuple):
    """A look in a round that is being recorded, and the answer that it has got.

    Attributes:
        at: where the look is; holds: whether the value has this answer, as a bool of the graph.
        ends: whether the loop ends with the other answer; otherwise the round branches.
    """

    at: tuple[Any, ...]
    holds: TensorCore
    answer: bool
    ends: bool


class _Way:
    """A way through the branches of the recorded round, and what it leaves.

    Attributes:
        entered: the state with which it began; start: how many nodes there were.
        work: the bytes that it has computed.
        asked: the looks on it, with their answers; again: the draws that are left for it.
        stays: whether the loop goes on; control: see `_Recorded._control`.
        made: the next carry; memory: the storages of it; new: those that the round has made.
        items: what it has appended to lists; told: its deferred calls.
        held: for a tensor appended to a list, the storage, and its number in the carry.
        written: memory from before that it has written: the value left there, and the version.
        with_history: the next carry with its histories.
    """

    work: int
    stays: TensorCore
    control: list[TensorCore]
    made: list[TensorCore]
    memory: list[Storage]
    new: set[Storage]
    items: list[Any]
    told: list[DeferredCall]
    held: dict[int, tuple[Storage, int | None]]
    with_history: list[TensorCore]

    def __init__(
        self, entered: LoopState, drawn: Iterable[tuple[tuple[Any, ...], Any]], start: int
    ) -> None:
        self.entered, self.again, self.start = entered, iter(drawn), start
        self.asked: list[_Asked] = []
        self.written: dict[Storage, tuple[Value, int]] = {}

    @property
    def branches(self) -> list[_Asked]:
        return [x for x in self.asked if not x.ends]


class _Recorded:
    """A loop one round of which is recorded, from one look to the next one.

    Args:
        watched: the round before it.
        look: where it begins, at this condition; None: at the end of a round.
        state: the state there; carry: the tensors that are carried for its places.

    Attributes:
        place: the line of the look; round: what is noted of the round.
        stand_ins: the stand-ins for the carry, with their histories as a round begins.
        ways: the ways through its branches, of which the last one is being made.
        _plan: the answers at branches on that.
        _first: the number of the first stand-in among all that is carried.
        _first_begun, _round_begun: how many rounds of a `for` had begun before the loop, and before
            the round.
        _drawn: the draws of the first way with their results, by the nodes `_draws`.
    """

    def __init__(
        self,
        ended: EndedLoops,
        watched: _Watched,
        look: _Look,
        condition: Value | None,
        state: LoopState,
        carry: list[TensorCore],
    ) -> None:
        loops = self._loops = ended.loops
        self._recorder = loops.recorder
        self._ended, self.watched, self.look, self.state = ended, watched, look, state
        self.carry, self.place, iteration = carry, here(), ended.iteration(look)
        self.iteration = iteration
        self.ways: list[_Way] = []
        self._draws: set[GraphNode] = set()
        self._plan: list[bool] = []
        self._drawn: list[tuple[tuple[Any, ...], Any]] = []
        zero, stays = constant(0, i64), self._stays(condition)
        control = self._control(condition)
        first = [self._goes_on(stays, zero, control), zero, self._end(stays), zero, *control]
        self._first, self._first_begun, rounds = len(first), None, 0
        if iteration is not None:
            self._first_begun = iteration.begun
            rounds = iteration.things.length - iteration.begun if look.is_between else 0
        options: Any = {"op": ops.while_loop, "variables": state.objects}
        given = [*first, *state.without_histories(carry)]
        self.closing = ExitStack()
        self.round = self.closing.enter_context(
            loops.scanned(given, [], rounds, False, "while", **options)
        )
        self.round.may_look = True
        self.stand_ins = self.round.carry[self._first :]
        self._histories = [*map(_history_of, self.stand_ins)]

    @contextmanager
    def _undone_by_errors(self) -> Iterator[None]:
        """In the block an error ends the recording."""
        try:
            yield
        except BaseException:
            self._ended.recorded = None
            self.closing.__exit__(*sys.exc_info())
            raise

    def begin(self) -> bool:
        """Let Python make a round on stand-ins; the answer of the look at which it begins."""
        with self._undone_by_errors():
            self._ended.recorded = self
            self.closing.enter_context(self.state.away(self._loops))
            if self.iteration is not None:
                begun = self._first_begun
                ends = (begun, self.iteration.things.length - 1) if type(begun) is int else None
                self._round_begun = number_of(self._loops, self.round.carry[CONTROL + 2], ends)
            return self._enter()

    def _enter(self) -> bool:
        """Let the places hold stand-ins, at the look at which the round begins; its answer."""
        frame, iteration, state = self.look.frame, self.iteration, self.state
        entered = state.enter(frame, self.carry, self.stand_ins)
        entered.carried = state.give_history(self.carry, self.stand_ins)
        entered.count_items(number_of(self._loops, self.round.carry[1], (0, math.inf)))
        self.ways.append(_Way(entered, self._drawn, len(self._recorder.graph.nodes)))
        if iteration is not None:
            iteration.begun = self._round_begun
            place, item = self.look.code.target, iteration.item(iteration.begun)
            if place is not None and type(self._first_begun) is int and is_live(item):
                state.put_number(frame, place, item)
        if self.look.code.stays is None:
            return self._branch(self.look.at, self.round.carry[self._first - 1])
        return self.watched.stays

    def _branch(self, at: tuple[Any, ...], holds: TensorCore) -> bool:
        """The answer of a look with either of which the loop may go on, on the way that is made."""
        way, plan = self.ways[-1], self._plan
        number = len(way.branches)
        if number == _MOST_BRANCHES:
            raise unrolling("branches too often", [self.place])
        if number == len(plan):
            plan.append(True)
        way.asked.append(_Asked(at, holds, plan[number], False))
        return plan[number]

    def answer(self, look: _Look, condition: Value | None, find: Any) -> bool:
        """The answer that Python gets for a look within the recorded round."""
        known = self.look
        if look.at == known.at and look.frame is known.frame:
            if look.event is known.event or self.watched.below != look.below:
                raise unrolling("looks at several values at once", [self.place])
            known.event = look.event
            with _with_histories(self.carry):
                return self._finish(condition)
        if look.loop != known.loop or condition is None:
            return bool(find())
        holds, stays = self._holds(condition, True), look.code.stays
        if stays is None:
            return self._branch(look.at, holds)
        self.ways[-1].asked.append(_Asked(look.at, holds, stays, True))
        return stays

    def draw(self, what: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """The result of a draw, made once for all ways through the branches of a round."""
        nodes = self._recorder.graph.nodes
        if len(self.ways) > 1:
            known, found = next(self.ways[-1].again, ((), None))
            if type(found) is not LateScalar or not _are_one_draw(what, known):
                raise unrolling(_DRAWS_OTHERWISE, [self.place])
            return found
        start, found = len(nodes), make()
        self._drawn.append((what, found))
        self._draws.update(node for node in nodes[start:] if node.has_effect)
        return found

    def _finish(self, condition: Value | None) -> bool:
        """Close the body at its second look, and let Python go on behind the loop.

        Where a round branches, Python makes it again before that, to go another way.
        """
        state, plan, ways = self.state, self._plan, self.ways
        with self._undone_by_errors():
            self._end_way(ways[-1], condition)
            self._note_work()
            while plan and not plan[-1]:
                plan.pop()
            if plan:
                plan[-1] = False
                return self._enter()
            self._ended.recorded = None
            state.fit_items(self.look.frame, [way.items for way in ways])
            calls = CallsOfRounds([way.told for way in ways])
            for way, rows in zip(ways, calls.rows, strict=True):
                way.items.extend(rows)
            self._join()
        items = self.round.made[1]
        with _with_histories(items):
            self.closing.close()
        carry, rows = self.round.carry, self.round.rows
        left = ways[-1].entered.written_back(self.carry, carry[self._first :], None)
        rounds = number_of(self._loops, carry[self.round.counted], (0, math.inf))
        for filled, stack, item in zip(state.filled.values(), rows, items, strict=False):
            flags = None if filled.flag is None else rows[filled.flag]
            filled.fill(stack, rounds, [item, *left], flags)
        calls.fill(self._recorder, rows[len(rows) - len(calls.rows[0]) :], rounds)
        state.enter(self.look.frame, self.carry, left)
        ways[0].entered.give_history(ways[0].with_history, left)
        self._note_memory(left)
        if self.iteration is not None:
            self.iteration.begun = number_of(self._loops, carry[CONTROL + 2])
        self._let_know(condition, not self.watched.stays)
        return self._leave()

    def _end_way(self, way: _Way, condition: Value | None) -> None:
        """Python has gone through the round: note what the way leaves, and take it back."""
        state, noted = self.state, self.round
        way.with_history, items = way.entered.leave(self.look.frame, self.stand_ins)
        made = state.without_histories(way.with_history)
        way.held, way.memory = _held(state.filled.values(), items, made), [x._storage for x in made]
        way.new = {x for x in (*way.memory, *(x for x, _ in way.held.values())) if noted.is_new(x)}
        way.stays, way.control = self._stays(condition), self._control(condition)
        if noted.written and way.asked:
            made = [self._as_it_is(x) for x in made]
            items = [x if x is None else self._as_it_is(x) for x in items]
            way.written = noted.take_back()
            for x, history in zip(self.stand_ins, self._histories, strict=True):
                x._grad_fn, x._output_nr, x._requires_grad = history
        way.made, way.items = made, items
        if len(self.ways) > 1 and next(way.again, None) is not None:
            raise unrolling(_DRAWS_OTHERWISE, [self.place])
        way.told = noted.take_told()

    def _note_work(self) -> None:
        """Unroll where rounds branch by their number, and one way computes much more than another.

        Each round would compute both, such as the test of a model in every hundredth round.
        """
        new = self._recorder.graph.nodes[self.ways[-1].start :]
        self.ways[-1].work = sum(hint(x.type.nbytes) for node in new for x in node.results)
        work = [way.work for way in self.ways]
        is_by_number = self.iteration is not None and self.iteration.branches
        if is_by_number and max(work) > 2 * min(work) + _LITTLE:
            raise unrolling("does much more in some rounds", [self.place])

    def _let_know(self, condition: Value | None, answer: bool) -> None:
        """Let the tensor that was looked at hold the answer that ended the loop.

        Python may look at it again, as with `done = err < tol or …`, and then `while not done`.
        """
        recorder, code = self._recorder, self.look.code
        if condition is None or condition.graph is recorder.graph or not code.keeps:
            return
        asked = Stack(self.look.frame)[code.below.stop]
        if isinstance(asked, TensorCore) and asked._storage.value is condition:
            asked._storage.value = recorder.value_of(constant(answer, bool_))
            asked._storage.generation += 1

    def _note_memory(self, tensors: list[TensorCore]) -> None:
        """Note what of the memory that a loop leaves may be shared in eager mode.

        Pairs of what may be one are followed through the ways of rounds: memory that stand-ins
        have, and storages that aren't the rounds' own.
        """
        apart, begins = self._loops.apart, [x._storage for x in self.stand_ins]
        own = {x for x in self.state.own if not apart.knows(x)}
        own |= {x for way in self.ways for x in way.new}
        memory = [[x._storage for x in self.carry], *(way.memory for way in self.ways)]
        older = {x for each in memory for x in each} - own - {*begins}
        steps = []  # from what memory was before a way, or the loop, to what is on it behind that
        for each in memory:
            step = defaultdict[Storage, list[Storage]](list, {x: [x] for x in older})
            for x, begin in zip(each, begins, strict=True):
                step[x].append(begin)
            steps.append(step)
        pending = [pair for x in steps for y in x.values() for pair in itertools.product(y, y)]
        found = set[tuple[Storage, Storage]]()
        while pending:
            one, other = pair = pending.pop()
            if one is not other and pair not in found:
                found.add(pair)
                for step in steps[1:]:
                    pending += itertools.product(step[one], step[other])
        behind = dict(zip(begins, (x._storage for x in tensors), strict=True))
        pairs = [(behind.get(x, x), behind.get(y, y)) for x, y in found]
        held: list[tuple[Storage, set[Storage]]] = []
        for filled in self.state.filled.values():
            if filled.number is None:
                held += self._note_items(filled, tensors, pairs)
        pairs += [
            (x, y)
            for (x, some), (y, others) in itertools.combinations(held, 2)
            if not some.isdisjoint(others)
        ]
        apart.note(pairs, self.place)

    def _note_items(
        self, filled: FilledList, left: list[TensorCore], pairs: list[tuple[Storage, Storage]]
    ) -> list[tuple[Storage, set[Storage]]]:
        """Note what memory a list's tensors may share, if each item is another tensor.

        So it is if rounds make the items, or append what they began with and replace it. Returns
        the list's memory with the recorded round's storages that may be in it; [] otherwise.
        """
        ways, carry = self.ways, self.carry
        put = [way.held[id(filled)] for way in ways if id(filled) in way.held]
        begins = [x._storage for x in self.stand_ins]
        held, count = {x for x, _ in put}, 0
        first = {k for k, x in enumerate(begins) if x in held}
        before = {x._storage for x in filled.before}
        made = {x for way in ways for x in way.new}
        replaced = all(way.memory[k] in way.new for way in ways for k in first)
        if not (held <= made or (len(held) == len(first) == 1 and replaced)):
            return []
        if any(carry[k]._storage in before for k in first):
            return []
        while len(held) > count:
            count = len(held)
            for way in ways:
                held |= {x for x, y in zip(begins, way.memory, strict=True) if y in held}
        numbers = {k for _, k in put} if filled.flag is None else set()
        last = next(iter(numbers)) if len(numbers) == 1 and not first else None
        is_begun = last is not None and any(carry[last] is x for x in filled.before[-1:])
        rows = filled.part(None if last is None else left[last], is_begun=is_begun)
        pairs += [(rows, carry[k]._storage) for k in first]
        for k, x in enumerate(left):
            if k != last and any(way.memory[k] in held for way in ways):
                pairs.append((rows, x._storage))
            if carry[k]._storage in before and not (k == last and is_begun):
                pairs.append((x._storage, carry[k]._storage))  # if there is no round
        return [(rows, held)]

    def _join(self) -> None:
        """Make the next carry of the ways' carries: each round selects by its answers."""
        noted, ways = self.round, self.ways
        one, states = constant(1, i64), list[Storage]()
        ended = [x for way in ways for x in way.asked if x.ends]
        if len(ways) > 1 or ended:
            self._loops.refuse_effects(noted, () if ended else self._draws)
            states = self._states()
        known = {x: self._loops.tensor_on(noted.written[x][0]) for x in states}
        number, counted = ops.add(noted.carry[1], one), ops.add(noted.carry[3], one)
        rows, at = list[list[TensorCore]](), _UNDONE
        for way in ways:
            fails = [_is(x.holds, not x.answer) for x in way.asked if x.ends]
            goes_on = self._goes_on(way.stays, number, way.control)
            undone: TensorCore = constant(False, bool_)
            end = self._end(way.stays)
            for place, fail in reversed([*enumerate(fails, at)]):
                end = ops.where(fail, constant(place, i64), end)
                undone = ops.logical_or(undone, fail)
            if fails:
                goes_on = ops.logical_and(goes_on, ops.logical_not(undone))
            at += len(fails)
            there = {x: y for x, (y, _) in way.written.items() if x in known}
            left = (known | {x: self._loops.tensor_on(y) for x, y in there.items()}).values()
            rows.append([goes_on, end, undone, *way.control, *way.made, *left, *way.items])
        equality = _Equality(self._recorder, noted.start)
        goes_on, end, undone, *new = self._chosen([*zip(ways, rows, strict=True)], 0, equality)
        count = len(new) - len(ways[0].items)
        new, items = new[:count], new[count:]
        count -= len(states)
        made = new[len(ways[0].control) : count]
        entered = ways[-1].entered
        if not entered.ints_fit(self.stand_ins, made, items):  # by one way or another
            raise unrolling("has rounds that differ", [self.place])
        if ended:
            old = [noted.carry[3], *noted.carry[CONTROL + 2 :], *known.values()]
            pairs = zip(old, [counted, *new], strict=True)
            counted, *new = [ops.where(undone, x, y) for x, y in pairs]
            noted.counted, noted.undone = 3, undone
        for storage, x in zip(states, new[count:], strict=True):
            storage.value = self._recorder.value_of(x)
            storage.generation += 1
            versions = [way.written[storage][1] for way in ways if storage in way.written]
            noted.written[storage][1].value = max(versions)
        for way in ways:
            held = {x for x, _ in way.held.values()}
            entered.refuse_written(held, way.memory, self.stand_ins)
        noted.made = [goes_on, number, end, counted, *new[:count]], items

    def _as_it_is(self, x: TensorCore) -> TensorCore:
        """A tensor that stays what it is now when what the round has written is taken back."""
        if x._storage not in self.round.written:
            return x
        history = _history_of(x)
        if history[0] is None and x.requires_grad:
            raise unrolling("branches, and writes a leaf,", [self.place])
        tensor = self._loops.tensor_on(self._recorder.value_of(x))
        tensor._grad_fn, tensor._output_nr, tensor._requires_grad = history
        return tensor

    def _states(self) -> list[Storage]:
        """The memory from before that some way writes; unrolls where it is visible elsewhere.

        The round that Python has made shows that for one of the ways alone.
        """
        noted, own = self.round, [x._storage for x in self.stand_ins]
        written = [x for x in noted.written if noted.is_from_before(x)]
        states = [x for x in written if x not in own]
        carried = [x._storage for x in self.carry]
        seen = self.watched.noted.written
        is_apart = not {*states} & {*carried}
        for i in (i for i, x in enumerate(own) if x in written):
            is_own = carried[i] in self.state.own and carried.count(carried[i]) == 1
            is_apart = is_apart and (is_own or carried[i] in seen)
            for way in self.ways:
                is_new = way.memory[i] in way.new and way.memory.count(way.memory[i]) == 1
                is_apart = is_apart and (is_new or way.memory[i] is own[i])
        for way in self.ways:
            pairs = zip(way.memory, own, strict=True)
            is_apart = is_apart and all(x is y or x not in written for x, y in pairs)
        if not is_apart:
            raise unrolling("branches, and writes what may be shared,", [self.place])
        return states

    def _chosen(
        self, ways: list[tuple[_Way, list[TensorCore]]], depth: int, equality: _Equality
    ) -> list[TensorCore]:
        """The results of the way that a round takes, of ways that are equal up to a branch."""
        if len(ways) == 1:
            return ways[0][1]
        sides = []
        for answer in (True, False):
            part = [x for x in ways if x[0].branches[depth].answer is answer]
            sides.append(self._chosen(part, depth + 1, equality))
        holds = ways[0][0].branches[depth].holds
        pairs = [(x, x if equality.are_one(x, y) else y) for x, y in zip(*sides, strict=True)]
        if any(x is not y and (x.requires_grad or y.requires_grad) for x, y in pairs):
            # Of a side that isn't taken a derivative may be infinite, and 0 times that is a NaN.
            raise unrolling("branches, and is differentiated", [self.place])
        return [x if x is y else ops.where(holds, x, y) for x, y in pairs]

    def _leave(self) -> bool:
        """The answer that Python gets behind the loop, by how it has ended in this call."""
        recorder, exits, stays = self._recorder, self._recorder.exits, self.watched.stays
        found, ways = _OVER, self.ways
        asked = [(way.asked, i) for way in ways for i, x in enumerate(way.asked) if x.ends]
        if asked or not self.look.is_between:
            end = recorder.value_of(self.round.carry[CONTROL])
            found = exits.ask(end, "how a loop ends")
        for check in self.round.checks:
            given, wrong = check.attributes, exits.now_of(check.operands[0]).item()
            if not given["low"] <= wrong < given["high"]:  # an error that Python is to raise
                raise unrolling("looks where nothing is", [self.place])
        if found == _LEFT:
            return not stays
        is_open = self.look.code.stays is None
        if found == _OVER:
            if self.iteration is not None:
                self.iteration.begun = self.iteration.things.length
            if not is_open:
                return stays
            answer = ops.cast(self.round.carry[self._first - 1], dtype=i64)
            return bool(
                exits.ask(recorder.value_of(answer), "how the last round of a loop goes on")
            )
        before, number = asked[found - _UNDONE]
        answers = [(x.at, x.answer) for x in before[:number]]
        self._ended.undo(self.look, [*answers, (before[number].at, not before[number].answer)])
        return self._ended.answers.pop(0)[1] if is_open else stays

    def _holds(self, condition: Value, answer: bool) -> TensorCore:
        """Whether a bool of the graph is this."""
        return _is(self._loops.tensor_on(condition), answer)

    def _stays(self, condition: Value | None) -> TensorCore:
        """Whether the loop goes on behind a look; None: that is the end of a round."""
        if condition is None or self.look.code.stays is None:
            return constant(True, bool_)
        return self._holds(condition, self.watched.stays)

    def _control(self, condition: Value | None) -> list[TensorCore]:
        """How many rounds of a `for` have begun; the answer of a look with either of which it goes.

        Each if there is such a thing.
        """
        found, iteration = list[TensorCore](), self.iteration
        if iteration is not None:
            found.append(self._recorder.constant(iteration.begun, i64))
        if self.look.code.stays is None and condition is not None:
            found.append(self._holds(condition, True))
        return found

    def _goes_on(
        self, stays: TensorCore, number: TensorCore, control: Sequence[TensorCore]
    ) -> TensorCore:
        """Whether there is another round: a look says so, and a `for` has things left."""
        most = constant(_MOST_ROUNDS, i64)
        if self.iteration is not None:
            number, most = control[0], self._recorder.constant(self.iteration.things.length, i64)
        return ops.logical_and(stays, ops.lt(number, most))

    def _end(self, stays: TensorCore) -> TensorCore:
        """How the loop has ended if it has, as a number."""
        return ops.where(stays, constant(_OVER, i64), constant(_LEFT, i64))


class EndedLoops:
    """The loops of a trace that end on a value.

    Attributes:
        iterations: how far each `for` is, by the identity of its iterator, with the iterator.
    """

    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.iterations: dict[int, tuple[Any, Iteration]] = {}
        self._watched: dict[tuple[int, int], _Watched] = {}
        self.recorded: _Recorded | None = None
        self.answers: list[tuple[Any, bool]] = []
        self._refused: set[tuple[types.CodeType, int]] = set()
        self._branching: set[tuple[types.CodeType, int]] = set()
        self._telling: dict[tuple[types.CodeType, int], int] = {}
        self._undone: dict[tuple[types.CodeType, int], int] = {}
        self._drawing: set[tuple[types.CodeType, int]] = set()

    def end(self) -> None:
        """Let go of the user's frames; a round that didn't come to its look is no body."""
        recorded, self.recorded = self.recorded, None
        if recorded is not None:
            self.loops.left.append(recorded.place)
            recorded.closing.__exit__(GeneratorExit, GeneratorExit(), None)
        for watched in self._watched.values():
            watched.closing.close()
        self._watched.clear()
        self.iterations.clear()

    def ask(self, condition: Value, find: Any) -> bool:
        """The answer that Python gets for a condition; find: answers it as an exit."""
        look = self._look()
        return bool(find()) if look is None else self._ask(look, condition, find)

    def end_round(self, frame: types.FrameType, code: LookCode, things: LateIterable) -> None:
        """A round of a `for` ends: like a look, where rounds are alike but for branches."""
        look = _Look(frame, code, (frame.f_code,), object(), is_between=True)
        watched, iteration = self._watched.get(look.loop), self.iteration(look)
        is_between = watched is not None and watched.look.is_between
        is_between = is_between and look.source not in self._drawing
        if is_between and watched and iteration is not None and type(iteration.begun) is int:
            nodes = len(self.loops.recorder.graph.nodes) - watched.noted.start
            if nodes * (things.length - iteration.begun) < _LEAST_NODES:
                self._refused.add(look.source)
        self._ask(look, None, lambda: True)

    def draws(self, frame: types.FrameType, code: LookCode) -> bool:
        """Whether rounds of a loop branch on what they draw, each way of which would be a path."""
        return (frame.f_code, code.header) in self._drawing

    def draw(self, what: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """The result of a draw, made once for all ways through the branches of a round."""
        recorded = self._innermost
        return make() if recorded is None else recorded.draw(what, make)

    @property
    def _innermost(self) -> _Recorded | None:
        """The loop whose round Python makes on stand-ins, if no inner loop is being recorded."""
        recorded = self.recorded
        is_it = recorded is not None and self.loops.frames[-1:] == [recorded.round]
        return recorded if is_it else None

    def undo(self, look: _Look, answers: list[tuple[Any, bool]]) -> None:
        """Let Python make the round again that has ended a loop, and get these answers."""
        self.answers, loop = answers, look.source
        self._undone[loop] = self._undone.get(loop, 0) + 1
        if self._undone[loop] == _MOST_UNDONE:
            self._refused.add(loop)

    def _ask(self, look: _Look, condition: Value | None, find: Any) -> bool:
        if self.answers and self.answers[0][0] == look.at:
            return self.answers.pop(0)[1]
        loops, recorded = self.loops, self._innermost
        if recorded is not None:
            return recorded.answer(look, condition, find)
        is_looked_at = loops.frames or look.source in self._refused or loops_here() is not loops
        is_known = look.code.iterator is None or self.iteration(look) is not None
        if is_looked_at or not is_known:
            return bool(find())
        watched = self._watched.get(look.loop)
        if look.code.stays is None:
            self._branching.add(look.source)
            if condition is not None and _is_drawn(loops.recorder, condition):
                self._drawing.add(look.source)
        if watched is not None and watched.look.at != look.at:
            watched.branches |= look.code.stays is None
            if look.tells <= watched.look.tells:
                return bool(find())
            self._watched.pop(look.loop).closing.close()
            self._telling[look.source] = look.tells
            watched = None
        if look.tells < self._telling.get(look.source, 0):
            return bool(find())
        state, looks, branches = None, 0, look.code.stays is None
        if watched is not None:
            del self._watched[look.loop]
            watched.closing.close()
            looks, branches = watched.looks, watched.branches
            if watched.look.event is look.event or looks == _MOST_LOOKS:
                self._refused.add(look.source)  # an instruction that looks several times
                return bool(find())
            if watched.below == look.below:
                found = self._next_state(watched, look)
                if found is not None and found[1] is not None:
                    with _with_histories(found[1]):
                        return _Recorded(self, watched, look, condition, found[0], found[1]).begin()
                state = None if found is None else found[0]
        answer = bool(find())
        if len(look.at) > 1 or look.code.stays in (None, answer):
            self._watch(look, answer, state, looks + 1, branches=branches)
        return answer

    def is_end_of_branches(self) -> bool:
        """Whether a look may end a loop whose rounds branch on values, so that these decide it."""
        look = self._look()
        is_end = look is not None and look.code.stays is not None
        return is_end and look is not None and look.source in self._branching

    def _look(self) -> _Look | None:
        """The look that is made now, if it is one in a loop."""
        collector = self.loops.recorder.collector
        frame, inner = user_frame(2), list[Any]()
        if frame is None or not _only_looks(frame):
            return None
        while frame is not None and frame.f_code.co_filename in USERS:
            at = frame.f_code, frame.f_lasti
            code = code_of_look(*at)
            if code is not None:
                return _Look(frame, code, (*inner, at), collector.at)
            if not reads_nothing_behind(*at):
                break
            inner.append(at)
            frame = frame.f_back
        return None

    def iteration(self, look: _Look) -> Iteration | None:
        place = look.code.iterator
        found = None if place is None else self.iterations.get(id(Stack(look.frame)[place]))
        return None if found is None else found[1]

    # ------------------------------------------------------------------ rounds of Python's

    def _watch(
        self, look: _Look, stays: bool, state: LoopState | None, looks: int, *, branches: bool
    ) -> None:
        """Look at the round that begins now."""
        loops, iteration, closing = self.loops, self.iteration(look), ExitStack()
        if state is None:
            code = LoopCode(False, False, False, look.code.live, None, False)
            state = LoopState(code, look.frame, loops)
        state.note_history()
        noted = closing.enter_context(loops.looking(state.objects))
        noted.may_look = True
        branches |= iteration is not None and iteration.branches
        self._watched[look.loop] = _Watched(
            look, look.below, stays, state, noted, closing, looks, branches
        )

    def _next_state(
        self, watched: _Watched, look: _Look
    ) -> tuple[LoopState, list[TensorCore] | None] | None:
        """The state behind a round and what is to be carried, if anything; None: it can't be."""
        noted, appended = watched.noted, look.code.appended
        others = look.code.stored if watched.branches else []
        self._part(look.frame, others)
        options: Any = {"kinds": (float, int), "others": others, "appended": appended}
        state, carry = watched.before.after(look.frame, noted, **options)
        if noted.refused is not None or noted.has_effects or noted.changed:
            return None
        return state, carry if carry or noted.written else None

    def _part(self, frame: types.FrameType, places: list[int]) -> None:
        """Give variables that hold one tensor tensors of their own: a round may set just one."""
        stack, seen = Stack(frame), set[int]()
        for place in places:
            value = stack[place]
            if isinstance(value, TensorCore) and id(value) in seen and not value.requires_grad:
                own = stack[place] = self.loops.tensor_on(self.loops.recorder.value_of(value))
                self.loops.apart.note([(own._storage, value._storage)], here())
            seen.add(id(value))


def _is_drawn(recorder: Recorder, condition: Value) -> bool:
    """Whether a value is computed of what a generator of Python's or NumPy's gives."""
    pending, seen = [condition], set[Value]()
    while pending:
        value = pending.pop()
        if value.producer is None or value.shape or value in seen:
            continue
        seen.add(value)
        host = recorder.graph.hosts.get(value.producer.attributes.get("function", ""))
        if isinstance(host, Finding) and host.generator is not None:
            return True
        pending += value.producer.operands
    return False


def _are_one_draw(what: tuple[Any, ...], known: tuple[Any, ...]) -> bool:
    """Whether two draws are of one generator, with equal plain arguments."""
    parts = [*what, *known]
    return repr(what) == repr(known) and all(type(x) in _OF_DRAWS for x in parts)


class _Equality:
    """Finds equal values of several ways through a round, by value numbering, with histories."""

    def __init__(self, recorder: Recorder, start: int) -> None:
        self._recorder = recorder
        self._first: dict[Value, Value] = {}
        known = dict[Any, Sequence[Value]]()
        for node in recorder.graph.nodes[start:]:
            if not node.has_effect:
                operands = tuple(self._first.get(x, x) for x in node.operands)
                results = known.setdefault(value_number(node, operands), node.results)
                self._first.update(zip(node.results, results, strict=True))

    def are_one(self, x: TensorCore, y: TensorCore) -> bool:
        """Whether two tensors have equal values and histories."""
        values = [self._recorder.value_of(each) for each in (x, y)]
        one, other = [self._first.get(value, value) for value in values]
        return one is other and _have_one_history(edge_of(x), edge_of(y))


def _have_one_history(one: Edge | None, other: Edge | None) -> bool:
    """Whether two histories of equal values are of equal structure."""
    pending, seen = [(one, other)], set[tuple[Edge | None, Edge | None]]()
    while pending:
        pair = pending.pop()
        one, other = pair
        if one == other or pair in seen:
            continue
        seen.add(pair)
        if one is None or other is None or one[1] != other[1] or not _are_alike(one[0], other[0]):
            return False
        pending += zip(one[0]._edges, other[0]._edges, strict=True)
    return True


def _are_alike(one: Node, other: Node) -> bool:
    """Whether two nodes have the same derivative, of the same values."""
    is_known = type(one) is OpNode or is_librarys(getattr(one, "_forward_cls", object))
    is_watched = any(x._is_observed or x._tensor_hooks for x in (one, other))
    is_alike = type(one) is type(other) and len(one._edges) == len(other._edges)
    if not is_alike or not is_known or is_watched:
        return False
    return type(one) is not OpNode or (one.op is cast(OpNode, other).op)


def _held(
    lists: Iterable[FilledList], items: Sequence[TensorCore | None], made: Sequence[TensorCore]
) -> dict[int, tuple[Storage, int | None]]:
    """For each list, the storage of the tensor appended to it, and its number in the carry."""
    found = zip(lists, items, strict=True)
    return {
        id(filled): (x._storage, next((k for k, y in enumerate(made) if y is x), None))
        for filled, x in found
        if x is not None
    }


def _is(holds: TensorCore, answer: bool) -> TensorCore:
    return holds if answer else ops.logical_not(holds)


def _history_of(x: TensorCore) -> tuple[Node | None, int, bool]:
    return x.grad_fn, x._output_nr, x.requires_grad


def _known_by(x: Any) -> Any:
    """What identifies a value on the stack in all rounds: a bound `__exit__` is made anew."""
    mode = getattr(x, "__self__", None)
    if isinstance(mode, no_grad) and x.__name__ == "__exit__":
        return type(mode), [*mode._before]
    return id(x)


@contextmanager
def _with_histories(carry: Iterable[TensorCore]) -> Iterator[None]:
    """Record gradients in the block if a carry has one, also where a round is in `no_grad`."""
    before = context.grad_enabled
    context.grad_enabled = before or any(x.requires_grad for x in carry)
    try:
        yield
    finally:
        context.grad_enabled = before


def _only_looks(frame: types.FrameType) -> bool:
    """Whether the code called by a user's frame is the library's, and only looks at a value."""
    inner = sys._getframe(1)
    while inner is not frame:
        if not inner.f_code.co_filename.startswith(_LOOKING):
            return False
        assert inner.f_back is not None
        inner = inner.f_back
    return True
