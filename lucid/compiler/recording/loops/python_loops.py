"""Rounds of a `for`: when they are alike, one is recorded for all that are left.

While a step is traced, Python makes the rounds, and each of them would be recorded. So something
else is iterated in place of a `range`, or of what else has its things by numbers (`iterables.py`).
It looks, before a round, at the variables that are read before they are written, by the function's
code (`loop_code.py`). If a round has changed nothing in Python but such variables, and these to
tensors of the same types, or to other numbers, then the next one does what it did with other ones,
and so do all that follow: Python's rounds depend on nothing else. The next round then is recorded
on stand-ins, as the body of a `scan` (`loops.py`), and the variables become its last carry. The
last round is Python's again: what is read behind the loop is what that has made. The number of a
round is a row of the scan, and for Python one that only a call knows (`late_numbers.py`): who looks
at it begins the trace again. What the code, or an index that says the number in each round, tells
of that in time needs no such beginning.

What doesn't fit, such as rounds that change objects or look at a value, is left to Python; a pass
finds equal rounds of that as well (`ir/passes/roll_up.py`), and it makes better code of short ones,
so that these are left to it.
"""

from __future__ import annotations

import math
import operator
import sys
import types
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from lucid.compiler.inputs.scalars import is_known_before, is_live
from lucid.compiler.recording.late.iterables import LateIterable
from lucid.compiler.recording.late.late_numbers import LateScalar, LateSize, extent_of
from lucid.compiler.recording.loops.ended_loops import Iteration
from lucid.compiler.recording.loops.loop_code import LookCode, LoopCode, code_between, code_of_loop
from lucid.compiler.recording.loops.loop_state import LoopState, number_of
from lucid.compiler.recording.loops.loops import Loops, loops_here
from lucid.functions.creation import arange
from lucid.ir import ops
from lucid.ir.extents import is_open
from lucid.ir.location import here
from lucid.ir.region_ops import CONTROL
from lucid.ir.types import i64
from lucid.tensor.core import TensorCore, constant

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder

_LEAST_ROUNDS = 8
_LEAST_NODES = 2500  # that needn't be recorded: this takes some 0.2 s
_NODES_OF_A_CALL = 50  # that take as long to record as a call of Python
_MOST_LOOKS = 3  # at rounds, until two are alike
_MOST_COMPARED = 5  # where rounds compare their number: it may be that of one of the first


def rounds(
    recorder: Recorder, things: LateIterable, code: types.CodeType, offset: int
) -> Iterator[Any] | None:
    """What a `for` of the user's is to iterate over in place of some things, while it is traced.

    offset: of the instruction that asks for its iterator.
    """
    found = code_of_loop(code, offset)
    if found is None:
        return None
    count = things.length
    if type(count) is LateSize and not is_open(count.extent):
        things.length = count = count.extent
    if found.differs and (found.fills or is_live(count)):
        return None
    loops, least = recorder.loops, _most_looks(found) + 1
    if type(count) is LateScalar and found.fills:
        return None  # nobody knows how many items its list will have
    if not is_live(count):
        least = max(_LEAST_ROUNDS, loops.looked_at.get(id(found), 0))
    if (count.now if is_live(count) else count) > least and count > least:
        iteration = Iteration(things, branches=found.differs)
        between = code_between(code, offset)
        instead = chain.from_iterable(_rounds(loops, found, between, iteration))
        if not is_live(count):
            recorder.ended_loops.iterations[id(instead)] = instead, iteration
        if found.yields:
            loops.offered[id(instead)] = instead
        return instead
    if type(count) is LateSize:
        recorder.exits.refuse_short(count.extent)
    return None


def _rounds(
    loops: Loops, code: LoopCode, between: LookCode | None, iteration: Iteration
) -> Iterator[Iterable[Any]]:
    """Rounds of a known number, or of as many as each call says, but enough to be looked at.

    Those of which nothing is left to say come together, so that nothing runs between them. Rounds
    that branch by their number, `if t % 10 == 0`, or print, may be alike for `EndedLoops`.
    """
    things, state, outside = iteration.things, None, loops.recorder.outside
    told = len(outside.deferred)
    count, start, step = things.length, things.first, things.stride
    if code.yields and not loops.gathered(sys._getframe(1)):  # who gets the items isn't known
        yield things.rest(start, start + step * operator.index(count))
        return
    if not code.differs:
        done, state = yield from _looked_at(loops, code, iteration)
    has_told = len(outside.deferred) > told
    if state is None and not is_live(count):
        frame, ended = sys._getframe(1), loops.recorder.ended_loops
        if between is not None and ended.draws(frame, between):
            ended.end_round(frame, between, things)
        for item in iteration.rest():
            yield item
            if between is not None and (code.differs or has_told or ended.draws(frame, between)):
                ended.end_round(frame, between, things)
    elif is_live(count) and done == count.now - 1:
        yield (things.at(start + step * (count - 1)),)
    else:
        yield things.rest(start + step * done, start + step * operator.index(count))
    if state is not None:
        state.settle(sys._getframe(1))


def _most_looks(code: LoopCode) -> int:
    return _MOST_COMPARED if code.compares else _MOST_LOOKS


def _looked_at(
    loops: Loops, code: LoopCode, iteration: Iteration
) -> Generator[Any, None, tuple[int, LoopState | None]]:
    """Look at rounds, and record one for all that are left when they are alike.

    Returns how many are over; and the state before the recorded one, if there is one.
    """
    state, done, things = LoopState(code, sys._getframe(2), loops), 0, iteration.things
    start, step = things.first, things.stride
    is_known = not is_live(things.length)
    count: int = things.length if is_known else things.length.now
    looks: set[Any] | None = None
    most = _most_looks(code)
    most = min(most, count - _LEAST_ROUNDS) if is_known else most
    while done < most and loops_here() is loops:
        with loops.looking(state.objects) as noted:
            number = start + step * done
            noted.number = number
            iteration.begun = done + 1
            yield (things.at(number),)
            done += 1
        kinds = (float,) if is_known else (float, int)  # an int may be one of few
        state, carry = state.after(sys._getframe(2), noted, kinds=kinds)
        nodes = loops.recorder.graph.nodes[noted.start :]
        least = _LEAST_NODES if is_known else 0
        looks = noted.numbered if looks is None else looks & noted.numbered  # of all rounds
        calls = [node for node in nodes if node.has_effect and node.op is not ops.check]
        work = len(nodes) + _NODES_OF_A_CALL * len(calls)
        is_too_short = work * (count - done - 1) < least
        is_plain = noted.problem() is None and all(map(loops.is_own, calls))
        if is_too_short or not is_plain:
            loops.looked_at[id(code)] = count
            break
        if carry is not None and not looks and done >= (_MOST_LOOKS if code.compares else 1):
            if state.filled and is_known_before(things.length):  # its items are rows of a tensor
                exits = loops.recorder.exits
                things.length = exits.shown(exits.opened(things.length, here()))
            if state.filled and is_live(things.length) and type(things.length) is not LateSize:
                break
            yield from _recorded(loops, state, carry, things, done)
            return count - 1, state  # all that is read behind the loop is made in the last one
    return done, None


def _recorded(
    loops: Loops, before: LoopState, carry: list[TensorCore], things: LateIterable, done: int
) -> Generator[Any, None, None]:
    """Record one round for all that are left but the last, also where a call has their number.

    Python makes it on what stands for its carry.
    """
    place, start, step = here(), things.first, things.stride
    is_size = not is_live(things.length) or type(things.length) is LateSize
    options: Any = {"variables": before.objects}
    if is_size:
        first, last = (start + step * x for x in (done, extent_of(things.length) - 1))
        numbers = arange(first, last, step, dtype=i64)
        length: Any = numbers._type.shape[0]
        given: Any = carry, [numbers] if before.code.uses_number else [], length, False, "for"
    else:
        limit = loops.recorder.constant(things.length - (done + 1), i64)
        zero, length, options["op"] = constant(0, i64), None, ops.while_loop
        given = [ops.lt(zero, limit), zero, *carry], [], 0, False, "for"
    with loops.scanned(*given, **options) as scan:
        control = [] if is_size else scan.carry[:CONTROL]
        stand_ins = scan.carry[len(control) :]
        number: Any = first if is_size else None
        if scan.rows:
            number = number_of(loops, scan.rows[0], (first, last - step))
            if step == 1:
                before.number_items(number, first)
        elif not is_size:
            count = number_of(loops, control[1], (0, math.inf)) + done
            number = start + (count if step == 1 else step * count)
        entered = before.enter(sys._getframe(3), carry, stand_ins)
        try:
            with before.away(loops):
                yield (things.at(number),)
        except GeneratorExit:
            loops.left.append(place)
            raise
        made, rows = entered.leave(sys._getframe(3), stand_ins)
        for filled, row in zip(before.filled.values(), rows, strict=True):
            if row is None:
                filled.refuse_rounds()
        if control:
            counted = ops.add(control[1], constant(1, i64))
            made = [ops.lt(counted, limit), counted, *made]
        scan.made = made, rows
    left = entered.written_back(carry, scan.carry[len(control) :], length)
    before.enter(sys._getframe(3), carry, left)
    for filled, row, stack in zip(before.filled.values(), rows, scan.rows, strict=True):
        filled.fill(stack, loops.recorder.exits.shown(length), [row])
