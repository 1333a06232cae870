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
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
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
from lucid.compiler.recording.loops.loops import Frame, Loops, Scan, loops_here, unrolling
from lucid.ir import ops
from lucid.ir.extents import hint
from lucid.ir.graph import Node as GraphNode, Value
from lucid.ir.location import LIBRARY, USERS, Location, here, user_frame
from lucid.ir.passes.cse import value_number
from lucid.ir.region_ops import CONTROL
from lucid.ir.types import bool_, i64
from lucid.ir.whose_code import is_librarys
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, constant, of_value
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
_MOST_STATES = 256  # of what shares memory behind the rounds of a loop
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
        before: the state at the look; begun: how many rounds of a `for` had begun.
        noted: what the round does; closing: ends the noting.
        looks: how many rounds were watched; branches: whether a round branches on another value.
    """

    look: _Look
    below: list[Any]
    stays: bool
    before: LoopState
    begun: Any
    noted: Frame
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


class _Way(NamedTuple):
    """A way through the branches of the recorded round, and what it leaves.

    Attributes:
        asked: the looks on it, with their answers.
        stays: whether the loop goes on; begun: how many rounds of a `for` have begun.
        holds: the answer of the last look, where the loop may go on with either.
        made: the next carry; memory: the storages of it; new: those that the round has made.
        items: what it has appended to lists; told: its deferred calls.
        held: for a tensor appended to a list, the storage, and its number in the carry.
        written: memory from before that it has written: the value left there, and the version.
        entered: the state with which it began; with_history: the next carry with its histories.
    """

    asked: list[_Asked]
    stays: TensorCore
    begun: list[TensorCore]
    holds: list[TensorCore]
    made: list[TensorCore]
    items: list[Any]
    held: dict[int, tuple[Storage, int | None]]
    told: list[DeferredCall]
    memory: list[Storage]
    new: set[Storage]
    written: dict[Storage, tuple[Value, int]]
    entered: LoopState
    with_history: list[TensorCore]

    @property
    def branches(self) -> list[_Asked]:
        return [x for x in self.asked if not x.ends]


@dataclass(slots=True, eq=False)
class _Recorded:
    """A round that is being recorded, from one look to the next one.

    Attributes:
        watched: the round before it; place: the line of the look.
        carry: the tensors that are carried, for the places of `state`.
        scan: the loop that is being recorded; frame: what its body is noted to do.
        stand_ins: the stand-ins for the carry, with `histories` and `versions` as a round begins.
        entered: the state with stand-ins in its places; begun: how many `for` rounds had begun.
        holds: the answer of the look, where the loop may go on with either.
        asked: the looks on the way that Python goes now; ways: the finished ways; plan: the answers
            at branches on the next way.
        work: the bytes that each way has computed; seen: how many nodes are counted in them.
        drawn: the draws of the first way with their results, by the nodes `draws`; again: those
            that are left for another way.
    """

    watched: _Watched
    iteration: Iteration | None
    place: Location | None
    carry: list[TensorCore]
    state: LoopState
    scan: Scan
    frame: Frame
    closing: ExitStack
    stand_ins: list[TensorCore]
    histories: list[tuple[Node | None, int, bool]]
    versions: list[int]
    entered: LoopState
    begun: Any
    holds: TensorCore | None
    asked: list[_Asked] = field(default_factory=list)
    ways: list[_Way] = field(default_factory=list)
    plan: list[bool] = field(default_factory=list)
    work: list[int] = field(default_factory=list)
    seen: int = 0
    drawn: list[tuple[tuple[Any, ...], Any]] = field(default_factory=list)
    draws: set[GraphNode] = field(default_factory=set)
    again: Iterator[tuple[Any, Any]] = field(default_factory=lambda: iter(()))


class EndedLoops:
    """The loops of a trace that end on a value.

    Attributes:
        iterations: how far each `for` is, by the identity of its iterator, with the iterator.
    """

    def __init__(self, loops: Loops) -> None:
        self._loops = loops
        self.iterations: dict[int, tuple[Any, Iteration]] = {}
        self._watched: dict[tuple[int, int], _Watched] = {}
        self._recorded: _Recorded | None = None
        self._answers: list[tuple[Any, bool]] = []
        self._refused: set[tuple[types.CodeType, int]] = set()
        self._branching: set[tuple[types.CodeType, int]] = set()
        self._telling: dict[tuple[types.CodeType, int], int] = {}
        self._undone: dict[tuple[types.CodeType, int], int] = {}
        self._drawing: set[tuple[types.CodeType, int]] = set()

    def end(self) -> None:
        """Let go of the user's frames; a round that didn't come to its look is no body."""
        recorded, self._recorded = self._recorded, None
        if recorded is not None:
            self._loops.left.append(recorded.place)
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
        watched, iteration = self._watched.get(look.loop), self._iteration(look)
        is_between = watched is not None and watched.look.is_between
        is_between = is_between and look.source not in self._drawing
        if is_between and watched and iteration is not None and type(iteration.begun) is int:
            nodes = len(self._loops.recorder.graph.nodes) - watched.noted.start
            if nodes * (things.length - iteration.begun) < _LEAST_NODES:
                self._refused.add(look.source)
        self._ask(look, None, lambda: True)

    def draws(self, frame: types.FrameType, code: LookCode) -> bool:
        """Whether rounds of a loop branch on what they draw, each way of which would be a path."""
        return (frame.f_code, code.header) in self._drawing

    def draw(self, what: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """The result of a draw, made once for all ways through the branches of a round."""
        recorded, nodes = self._recorded, self._loops.recorder.graph.nodes
        if recorded is None or self._loops.frames[-1:] != [recorded.frame]:
            return make()
        if recorded.ways:
            known, found = next(recorded.again, ((), None))
            if type(found) is not LateScalar or not _are_one_draw(what, known):
                raise unrolling(_DRAWS_OTHERWISE, [recorded.place])
            return found
        start = len(nodes)
        found = make()
        recorded.drawn.append((what, found))
        recorded.draws.update(node for node in nodes[start:] if node.has_effect)
        return found

    def _ask(self, look: _Look, condition: Value | None, find: Any) -> bool:
        if self._answers and self._answers[0][0] == look.at:
            return self._answers.pop(0)[1]
        loops, recorded = self._loops, self._recorded
        if recorded is not None and loops.frames[-1:] == [recorded.frame]:
            return self._answer_in(recorded, look, condition, find)
        is_looked_at = loops.frames or look.source in self._refused or loops_here() is not loops
        is_known = look.code.iterator is None or self._iteration(look) is not None
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
                        return self._begin(watched, look, condition, found[0], found[1])
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
        collector = self._loops.recorder.collector
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

    def _iteration(self, look: _Look) -> Iteration | None:
        place = look.code.iterator
        found = None if place is None else self.iterations.get(id(Stack(look.frame)[place]))
        return None if found is None else found[1]

    # ------------------------------------------------------------------ rounds of Python's

    def _watch(
        self, look: _Look, stays: bool, state: LoopState | None, looks: int, *, branches: bool
    ) -> None:
        """Look at the round that begins now."""
        loops, iteration, closing = self._loops, self._iteration(look), ExitStack()
        if state is None:
            code = LoopCode(False, False, False, look.code.live, None, False)
            state = LoopState(code, look.frame, loops)
        state.note_history()
        noted = closing.enter_context(loops.looking(state.objects))
        noted.may_look = True
        branches |= iteration is not None and iteration.branches
        begun = None if iteration is None else iteration.begun
        self._watched[look.loop] = _Watched(
            look, look.below, stays, state, begun, noted, closing, looks, branches
        )

    def _next_state(
        self, watched: _Watched, look: _Look
    ) -> tuple[LoopState, list[TensorCore] | None] | None:
        """The state behind a round and what is to be carried, if anything; None: it can't be."""
        before, noted = watched.before, watched.noted
        others = look.code.stored if watched.branches else []
        self._part(look.frame, others)
        state = LoopState(before.code, look.frame, self._loops, before)
        kinds, appended = (float, int), look.code.appended
        carry = state.carry(before, noted, kinds=kinds, others=others, appended=appended)
        if noted.refused is not None or noted.has_effects:
            return None
        changed = [x for x in noted.changed if id(x.owner) not in state.filled]
        if changed:
            if not state.opens(changed):
                return None
            return LoopState(before.code, look.frame, self._loops, state), None
        return state, carry if carry or noted.written else None

    def _part(self, frame: types.FrameType, places: list[int]) -> None:
        """Give variables that hold one tensor tensors of their own: a round may set just one."""
        stack, seen = Stack(frame), set[int]()
        for place in places:
            value = stack[place]
            if isinstance(value, TensorCore) and id(value) in seen and not value.requires_grad:
                own = stack[place] = self._tensor(self._loops.recorder.value_of(value))
                self._loops.apart.note({own._storage: {value._storage}}, [], here())
            seen.add(id(value))

    # ------------------------------------------------------------------ the round that is recorded

    def _begin(
        self, watched: _Watched, look: _Look, condition: Value | None, state: LoopState, carry: Any
    ) -> bool:
        """Let Python make a round on stand-ins, behind the look at this condition."""
        loops, iteration = self._loops, self._iteration(look)
        zero, begun = constant(0, i64), None if iteration is None else iteration.begun
        stays = self._stays(watched, condition)
        first = [self._goes_on(stays, zero, iteration), zero, self._end(stays), zero]
        if iteration is not None:
            first.append(self._constant(begun))
        if look.code.stays is None:
            assert condition is not None
            first.append(self._holds(condition, True))
        count = len(first)
        closing = ExitStack()
        bare = state.without_histories(carry)
        options: Any = {"op": ops.while_loop, "variables": state.objects}
        rounds = iteration.things.length - begun if look.is_between and iteration else 0
        scan = closing.enter_context(
            loops.scanned([*first, *bare], [], rounds, False, "while", **options)
        )
        frame, place = loops.frames[-1], here()
        frame.may_look = True
        try:
            closing.enter_context(state.away(loops))
            stand_ins = scan.carry[count:]
            if iteration is not None:
                ends = (begun, iteration.things.length - 1) if type(begun) is int else None
                iteration.begun = number_of(loops, scan.carry[CONTROL + 2], ends)
            versions = [x._counter.value for x in stand_ins]
            watched.look, watched.begun = look, begun
            self._recorded = recorded = _Recorded(
                *(watched, iteration, place, carry, state, scan, frame, closing),
                *(
                    stand_ins,
                    [*map(_history_of, stand_ins)],
                    versions,
                    state,
                    None if iteration is None else iteration.begun,
                ),
                scan.carry[count - 1] if look.code.stays is None else None,
            )
            return self._enter(recorded)
        except BaseException:
            self._recorded = None
            closing.__exit__(*sys.exc_info())
            raise

    def _enter(self, recorded: _Recorded) -> bool:
        """Let the places hold stand-ins, at the look at which the round begins; its answer."""
        watched, iteration, state = recorded.watched, recorded.iteration, recorded.state
        frame = watched.look.frame
        recorded.entered = state.enter(frame, recorded.carry, recorded.stand_ins)
        recorded.entered.take_history(state, recorded.carry, recorded.stand_ins)
        recorded.asked, recorded.again = [], iter(recorded.drawn)
        recorded.entered.count_items(number_of(self._loops, recorded.scan.carry[1], (0, math.inf)))
        if iteration is not None:
            iteration.begun = recorded.begun
            place, item = watched.look.code.target, iteration.item(recorded.begun)
            if place is not None and type(watched.begun) is int and is_live(item):
                state.put_number(frame, place, item)
        if recorded.holds is None:
            return watched.stays
        return self._branch(recorded, watched.look.at, recorded.holds)

    def _branch(self, recorded: _Recorded, at: tuple[Any, ...], holds: TensorCore) -> bool:
        """The answer of a look with either of which the loop may go on, on the way that is made."""
        number = len([x for x in recorded.asked if not x.ends])
        if number == _MOST_BRANCHES:
            raise unrolling("branches too often", [recorded.place])
        if number == len(recorded.plan):
            recorded.plan.append(True)
        answer = recorded.plan[number]
        recorded.asked.append(_Asked(at, holds, answer, False))
        return answer

    def _stays(self, watched: _Watched, condition: Value | None) -> TensorCore:
        """Whether the loop goes on behind a look; None: that is the end of a round."""
        if condition is None or watched.look.code.stays is None:
            return constant(True, bool_)
        return self._holds(condition, watched.stays)

    def _answer_in(
        self, recorded: _Recorded, look: _Look, condition: Value | None, find: Any
    ) -> bool:
        """The answer that Python gets for a look within the recorded round."""
        known, place = recorded.watched.look, recorded.place
        if look.at == known.at and look.frame is known.frame:
            if look.event is known.event or recorded.watched.below != look.below:
                raise unrolling("looks at several values at once", [place])
            known.event = look.event
            with _with_histories(recorded.carry):
                return self._finish(recorded, condition)
        if look.loop != known.loop or condition is None:
            return bool(find())
        holds, stays = self._holds(condition, True), look.code.stays
        if stays is None:
            return self._branch(recorded, look.at, holds)
        recorded.asked.append(_Asked(look.at, holds, stays, True))
        return stays

    def _finish(self, recorded: _Recorded, condition: Value | None) -> bool:
        """Close the body at its second look, and let Python go on behind the loop.

        Where a round branches, Python makes it again before that, to go another way.
        """
        state, watched, iteration = recorded.state, recorded.watched, recorded.iteration
        plan = recorded.plan
        try:
            recorded.ways.append(self._way_of(recorded, condition))
            self._note_work(recorded)
            while plan and not plan[-1]:
                plan.pop()
            if plan:
                plan[-1] = False
                return self._enter(recorded)
            self._recorded = None
            calls = self._fit_items(recorded)
            self._join(recorded)
        except BaseException:
            self._recorded = None
            recorded.closing.__exit__(*sys.exc_info())
            raise
        scan, first = recorded.scan, len(recorded.scan.carry) - len(recorded.carry)
        items = scan.made[1]
        with _with_histories(items):
            recorded.closing.close()
        left = state.written_back(recorded.carry, scan.carry[first:], None)
        self._fill(recorded, calls, items, left)
        state.enter(watched.look.frame, recorded.carry, left)
        way = recorded.ways[0]
        way.entered.leave_history(way.with_history, left)
        self._note_memory(recorded, left)
        if iteration is not None:
            iteration.begun = number_of(self._loops, scan.carry[CONTROL + 2])
        last = None if recorded.holds is None else scan.carry[first - 1]
        self._let_know(watched.look, condition, not watched.stays)
        return self._leave(recorded, scan.carry[CONTROL], last)

    def _way_of(self, recorded: _Recorded, condition: Value | None) -> _Way:
        """The way that Python has just gone through the round, and what it leaves."""
        state, watched, iteration = recorded.state, recorded.watched, recorded.iteration
        with_history = recorded.entered.next_carry(watched.look.frame, recorded.stand_ins)
        if with_history is None:
            raise unrolling("has rounds that differ", [recorded.place])
        made = state.without_histories(with_history)
        pairs = zip(recorded.stand_ins, recorded.versions, strict=True)
        state.writes = [x._counter.value - version for x, version in pairs]
        items = recorded.entered.appended(made, recorded.stand_ins)
        held = _held(state.filled.values(), items, made)
        memory, written = [x._storage for x in made], dict[Storage, tuple[Value, int]]()
        seen = [*memory, *(x for x, _ in held.values())]
        new = {x for x in seen if recorded.frame.is_new(x)}
        stays = self._stays(watched, condition)
        begun = [] if iteration is None else [self._constant(iteration.begun)]
        is_open = recorded.holds is not None
        holds = [self._holds(condition, True)] if is_open and condition is not None else []
        if recorded.frame.written and recorded.asked:
            made = [self._as_it_is(recorded, x) for x in made]
            items = [x if x is None else self._as_it_is(recorded, x) for x in items]
            written = self._take_back(recorded)
        if recorded.ways and next(recorded.again, None) is not None:
            raise unrolling(_DRAWS_OTHERWISE, [recorded.place])
        told = recorded.frame.take_told()
        leaves = held, told, memory, new, written, recorded.entered, with_history
        return _Way(recorded.asked, stays, begun, holds, made, items, *leaves)

    def _fit_items(self, recorded: _Recorded) -> CallsOfRounds:
        """Let all ways have the same rows to be stacked, for lists and for deferred calls."""
        ways = recorded.ways
        frame = recorded.watched.look.frame
        recorded.state.fit_items(frame, [way.items for way in ways])
        calls = CallsOfRounds([way.told for way in ways])
        for way, rows in zip(ways, calls.rows, strict=True):
            way.items.extend(rows)
        return calls

    def _fill(
        self,
        recorded: _Recorded,
        calls: CallsOfRounds,
        items: Sequence[TensorCore],
        left: Sequence[TensorCore],
    ) -> None:
        """Fill lists with the items of all rounds, and deferred calls with their rows."""
        scan = recorded.scan
        rounds = number_of(self._loops, scan.carry[scan.counted], (0, math.inf))
        filled_lists = recorded.state.filled.values()
        for filled, rows, item in zip(filled_lists, scan.rows, items, strict=False):
            flags = None if filled.flag is None else scan.rows[filled.flag]
            filled.fill(rows, rounds, [item, *left], flags)
        calls.fill(self._loops.recorder, scan.rows[len(scan.rows) - len(calls.rows[0]) :], rounds)

    def _note_work(self, recorded: _Recorded) -> None:
        """Unroll where rounds branch by their number, and one way computes much more than another.

        Each round would compute both, such as the test of a model in every hundredth round.
        """
        nodes = self._loops.recorder.graph.nodes
        new = nodes[max(recorded.seen, recorded.frame.start) :]
        recorded.seen = len(nodes)
        recorded.work.append(sum(hint(x.type.nbytes) for node in new for x in node.results))
        is_by_number = recorded.iteration is not None and recorded.iteration.branches
        if is_by_number and max(recorded.work) > 2 * min(recorded.work) + _LITTLE:
            raise unrolling("does much more in some rounds", [recorded.place])

    def _let_know(self, look: _Look, condition: Value | None, answer: bool) -> None:
        """Let the tensor that was looked at hold the answer that ended the loop.

        Python may look at it again, as with `done = err < tol or …`, and then `while not done`.
        """
        recorder = self._loops.recorder
        if condition is None or condition.graph is recorder.graph or not look.code.keeps:
            return
        asked = Stack(look.frame)[look.code.below.stop]
        if isinstance(asked, TensorCore) and asked._storage.value is condition:
            asked._storage.value = recorder.value_of(constant(answer, bool_))
            asked._storage.generation += 1

    def _note_memory(self, recorded: _Recorded, tensors: list[TensorCore]) -> None:
        """Note what of the memory that a loop leaves may be shared in eager mode.

        It goes through all states that sequences of ways can lead to. A state has a label for each
        tensor of the carry: the storage from before the loop, or a number for memory that rounds
        have made. Tensors with equal labels in some state may share memory.
        """
        apart, own, left = self._loops.apart, recorded.state.own, [x._storage for x in tensors]
        starts = [x._storage for x in recorded.carry]
        number = {x._storage: i for i, x in enumerate(recorded.stand_ins)}
        ways = [(way.memory, way.new) for way in recorded.ways]
        labels = [id(x) if x in own and not apart.knows(x) else x for x in starts]
        pending, seen = [_numbered(labels)], set[tuple[Any, ...]]()
        while pending:
            labels = pending.pop()
            if tuple(labels) in seen:
                continue
            if len(seen) == _MOST_STATES:
                raise unrolling("branches, and leaves memory that is shared,", [recorded.place])
            seen.add(tuple(labels))
            for made, new in ways:
                found = [labels[number[x]] if x in number else x for x in made]
                pending.append(_numbered([id(x) if x in new else x for x in found]))
        may_be = {
            x: {state[i] for state in seen if isinstance(state[i], Storage)} - {x}
            for i, x in enumerate(left)
        }
        pairs = [
            (left[i], left[j])
            for i, j in itertools.combinations(range(len(left)), 2)
            if any(state[i] == state[j] for state in seen)
        ]
        held: list[tuple[Storage, set[Storage]]] = []
        for filled in recorded.state.filled.values():
            if filled.number is None:
                held += self._note_items(recorded, filled, tensors, may_be, pairs)
        pairs += [
            (x, y)
            for (x, some), (y, others) in itertools.combinations(held, 2)
            if not some.isdisjoint(others)
        ]
        apart.note(may_be, pairs, recorded.place)

    def _note_items(
        self,
        recorded: _Recorded,
        filled: FilledList,
        left: list[TensorCore],
        may_be: dict[Storage, set[Storage]],
        pairs: list[tuple[Storage, Storage]],
    ) -> list[tuple[Storage, set[Storage]]]:
        """Note what memory a list's tensors may share, if each item is another tensor.

        So it is if rounds make the items, or append what they began with and replace it. Returns
        the list's memory with the recorded round's storages that may be in it; [] otherwise.
        """
        ways, carry = recorded.ways, recorded.carry
        put = [way.held[id(filled)] for way in ways if id(filled) in way.held]
        begins = [x._storage for x in recorded.stand_ins]
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
        last = next(iter(numbers)) if len(numbers) == 1 else None
        last = None if first else last
        is_begun = last is not None and any(carry[last] is x for x in filled.before[-1:])
        rows = filled.part(None if last is None else left[last], is_begun=is_begun)
        may_be[rows] = {carry[k]._storage for k in first}
        for k, x in enumerate(left):
            if k != last and any(way.memory[k] in held for way in ways):
                pairs.append((rows, x._storage))
            if carry[k]._storage in before and not (k == last and is_begun):
                may_be[x._storage] |= {carry[k]._storage}  # if there is no round
        return [(rows, held)]

    def _join(self, recorded: _Recorded) -> None:
        """Make the next carry of the ways' carries: each round selects by its answers."""
        scan, ways, iteration = recorded.scan, recorded.ways, recorded.iteration
        one, states = constant(1, i64), list[Storage]()
        ended = [x for way in ways for x in way.asked if x.ends]
        if len(ways) > 1 or ended:
            self._loops.refuse_effects(recorded.frame, () if ended else recorded.draws)
            states = self._states(recorded)
        known = {x: self._tensor(recorded.frame.written[x][0]) for x in states}
        number, counted = ops.add(scan.carry[1], one), ops.add(scan.carry[3], one)
        rows, at = list[list[TensorCore]](), _UNDONE
        for way in ways:
            fails = [self._is(x.holds, not x.answer) for x in way.asked if x.ends]
            goes_on = self._goes_on(way.stays, number, iteration, *way.begun)
            end, undone = self._end(way.stays), self._is(constant(False, bool_), True)
            for place, fail in reversed([*enumerate(fails, at)]):
                end = ops.where(fail, constant(place, i64), end)
                undone = ops.logical_or(undone, fail)
            if fails:
                goes_on = ops.logical_and(goes_on, ops.logical_not(undone))
            at += len(fails)
            left = [
                self._tensor(way.written[x][0]) if x in way.written else known[x] for x in states
            ]
            rows.append(
                [goes_on, end, undone, *way.begun, *way.holds, *way.made, *left, *way.items]
            )
        equality = _Equality(self._loops.recorder, recorded.frame.start)
        chosen = self._chosen(recorded, [*zip(ways, rows, strict=True)], 0, equality)
        goes_on, end, undone, *new = chosen
        count = len(new) - len(ways[0].items)
        new, items = new[:count], new[count:]
        count -= len(states)
        made = new[len(ways[0].begun) + len(ways[0].holds) : count]
        if not recorded.entered.ints_fit(recorded.stand_ins, made, items):  # by one way or another
            raise unrolling("has rounds that differ", [recorded.place])
        if ended:
            old = [scan.carry[3], *scan.carry[CONTROL + 2 :], *known.values()]
            pairs = zip(old, [counted, *new], strict=True)
            counted, *new = [ops.where(undone, x, y) for x, y in pairs]
            scan.counted, scan.undone = 3, undone
        for storage, x in zip(states, new[count:], strict=True):
            storage.value = self._loops.recorder.value_of(x)
            storage.generation += 1
            versions = [way.written[storage][1] for way in ways if storage in way.written]
            recorded.frame.written[storage][1].value = max(versions)
        for way in ways:
            held = {x for x, _ in way.held.values()}
            recorded.entered.refuse_written(held, way.memory, recorded.stand_ins)
        scan.made = [goes_on, number, end, counted, *new[:count]], items

    def _as_it_is(self, recorded: _Recorded, x: TensorCore) -> TensorCore:
        """A tensor that stays what it is now when what the round has written is taken back."""
        if x._storage not in recorded.frame.written:
            return x
        history = _history_of(x)
        if history[0] is None and x.requires_grad:
            raise unrolling("branches, and writes a leaf,", [recorded.place])
        tensor = self._tensor(self._loops.recorder.value_of(x))
        tensor._grad_fn, tensor._output_nr, tensor._requires_grad = history
        return tensor

    def _take_back(self, recorded: _Recorded) -> dict[Storage, tuple[Value, int]]:
        """Undo the round's writes to memory from before it; returns what they had left there."""
        found = {}
        for storage, (before, counter, version) in recorded.frame.written.items():
            assert storage.value is not None
            found[storage] = storage.value, counter.value
            storage.value, counter.value = before, version
            storage.generation += 1
        for x, history in zip(recorded.stand_ins, recorded.histories, strict=True):
            x._grad_fn, x._output_nr, x._requires_grad = history
        return found

    def _states(self, recorded: _Recorded) -> list[Storage]:
        """The memory from before that some way writes; unrolls where it is visible elsewhere.

        The round that Python has made shows that for one of the ways alone.
        """
        frame, own = recorded.frame, [x._storage for x in recorded.stand_ins]
        written = [x for x in frame.written if frame.is_from_before(x)]
        states = [x for x in written if x not in own]
        carried = [x._storage for x in recorded.carry]
        seen = recorded.watched.noted.written
        is_apart = not {*states} & {*carried}
        for i in (i for i, x in enumerate(own) if x in written):
            is_own = carried[i] in recorded.state.own and carried.count(carried[i]) == 1
            is_apart = is_apart and (is_own or carried[i] in seen)
            for way in recorded.ways:
                is_new = way.memory[i] in way.new and way.memory.count(way.memory[i]) == 1
                is_apart = is_apart and (is_new or way.memory[i] is own[i])
        for way in recorded.ways:
            pairs = zip(way.memory, own, strict=True)
            is_apart = is_apart and all(x is y or x not in written for x, y in pairs)
        if not is_apart:
            raise unrolling("branches, and writes what may be shared,", [recorded.place])
        return states

    def _chosen(
        self,
        recorded: _Recorded,
        ways: list[tuple[_Way, list[TensorCore]]],
        depth: int,
        equality: _Equality,
    ) -> list[TensorCore]:
        """The results of the way that a round takes, of ways that are equal up to a branch."""
        if len(ways) == 1:
            return ways[0][1]
        sides = []
        for answer in (True, False):
            part = [x for x in ways if x[0].branches[depth].answer is answer]
            sides.append(self._chosen(recorded, part, depth + 1, equality))
        holds = ways[0][0].branches[depth].holds
        pairs = [(x, x if equality.are_one(x, y) else y) for x, y in zip(*sides, strict=True)]
        if any(x is not y and (x.requires_grad or y.requires_grad) for x, y in pairs):
            # Of a side that isn't taken a derivative may be infinite, and 0 times that is a NaN.
            raise unrolling("branches, and is differentiated", [recorded.place])
        return [x if x is y else ops.where(holds, x, y) for x, y in pairs]

    def _leave(self, recorded: _Recorded, end: TensorCore, holds: TensorCore | None) -> bool:
        """The answer that Python gets behind the loop, by how it has ended in this call."""
        recorder, watched = self._loops.recorder, recorded.watched
        is_over = watched.look.is_between and not any(
            x.ends for y in recorded.ways for x in y.asked
        )
        found = _OVER
        if not is_over:
            found = recorder.exits.ask(recorder.value_of(end), "how a loop ends")
        for check in recorded.scan.checks:
            given, wrong = check.attributes, recorder.exits.now_of(check.operands[0]).item()
            if not given["low"] <= wrong < given["high"]:  # an error that Python is to raise
                raise unrolling("looks where nothing is", [recorded.place])
        if found == _LEFT:
            return not watched.stays
        if found == _OVER:
            if recorded.iteration is not None:
                recorded.iteration.begun = recorded.iteration.things.length
            if holds is None:
                return watched.stays
            answer = recorder.value_of(ops.cast(holds, dtype=i64))
            return bool(recorder.exits.ask(answer, "how the last round of a loop goes on"))
        at = _UNDONE
        for way in recorded.ways:
            for number, asked in enumerate(way.asked):
                if asked.ends and at == found:
                    self._answers = [(x.at, x.answer) for x in way.asked[:number]]
                    self._answers.append((asked.at, not asked.answer))
                at += asked.ends
        loop = watched.look.source
        self._undone[loop] = self._undone.get(loop, 0) + 1
        if self._undone[loop] == _MOST_UNDONE:
            self._refused.add(loop)
        return watched.stays if holds is None else self._answers.pop(0)[1]

    def _constant(self, number: Any) -> TensorCore:
        return self._loops.recorder.constant(number, i64)

    def _tensor(self, value: Value) -> TensorCore:
        tensor = of_value(value)
        self._loops.recorder.made.append(weakref.ref(tensor))
        return tensor

    def _holds(self, condition: Value, answer: bool) -> TensorCore:
        """Whether a bool of the graph is this."""
        return self._is(self._tensor(condition), answer)

    def _is(self, holds: TensorCore, answer: bool) -> TensorCore:
        return holds if answer else ops.logical_not(holds)

    def _goes_on(
        self,
        stays: TensorCore,
        number: TensorCore,
        iteration: Iteration | None,
        begun: TensorCore | None = None,
    ) -> TensorCore:
        """Whether there is another round: a look says so, and a `for` has things left."""
        if iteration is None:
            return ops.logical_and(stays, ops.lt(number, constant(_MOST_ROUNDS, i64)))
        begun = self._constant(iteration.begun) if begun is None else begun
        return ops.logical_and(stays, ops.lt(begun, self._constant(iteration.things.length)))

    def _end(self, stays: TensorCore) -> TensorCore:
        """How the loop has ended if it has, as a number."""
        return ops.where(stays, constant(_OVER, i64), constant(_LEFT, i64))


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


def _history_of(x: TensorCore) -> tuple[Node | None, int, bool]:
    return x.grad_fn, x._output_nr, x.requires_grad


def _numbered(labels: Sequence[Any]) -> list[Any]:
    """Labels in a canonical form: the ints, for memory of rounds, numbered as they come."""
    numbers: dict[Any, int] = {}
    made = [x for x in labels if type(x) is not Storage]
    for x in made:
        numbers.setdefault(x, len(numbers))
    return [x if type(x) is Storage else numbers[x] for x in labels]


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
