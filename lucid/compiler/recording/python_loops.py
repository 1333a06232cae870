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

import operator
import sys
import types
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from lucid.compiler.guards.events import Stack, unheard
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.recording.filled_lists import FilledList
from lucid.compiler.recording.iterables import LateIterable
from lucid.compiler.recording.late_numbers import LateScalar, LateSize, extent_of
from lucid.compiler.recording.loop_code import LoopCode, code_of_loop
from lucid.compiler.recording.loops import Frame, Loops, loops_here, unrolling
from lucid.functions.creation import arange
from lucid.ir import ops
from lucid.ir.location import here
from lucid.ir.region_ops import CONTROL
from lucid.ir.types import f64, i64
from lucid.tensor.core import TensorCore, constant
from lucid.tensor.storage import Storage
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import children_of, flatten, map_tree
from lucid.tensor.writing import write_

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder
    from lucid.ir.graph import Node

_LEAST_ROUNDS = 8
_LEAST_NODES = 2500  # that needn't be recorded: this takes some 0.2 s
_MOST_LOOKS = 3  # at rounds, until two are alike
_PLAIN = (int, float, complex, bool, str, bytes)


class _State:
    """The variables before a round that it, or what follows the loop, may read.

    Attributes:
        code: what the code of the loop tells.
        cells: those of them that inner functions share.
        lists: what is in the lists that rounds may fill, by the places of these.
        _values: what they hold, by their places.
        _changing: the places of those that the last round has changed.
        filled: what stands for the lists to which it has appended a tensor.
        _own: memory of theirs that rounds have made, and nobody else has.
        _written: tensors from before the loop that rounds write, with a history, by identity.
        _numbers: what is carried for numbers that the last round has changed, by their places.
        writes: how often the recorded round has written each of the carry.
    """

    @unheard
    def __init__(self, code: LoopCode, frame: types.FrameType, loops: Loops) -> None:
        stack = Stack(frame)
        self.code, self._loops = code, loops
        self.cells = {x: y for x in code.live if type(y := stack[x]) is types.CellType}
        self._values = {x: _content(y) if (y := self.cells.get(x)) else stack[x] for x in code.live}
        tensors = [(x, y) for x, y in self._values.items() if isinstance(y, TensorCore)]
        self._versions = {place: tensor._counter.value for place, tensor in tensors}
        lists = {x: self._values[x] for x in code.lists}
        self.lists = {place: [*items] for place, items in lists.items() if type(items) is list}
        self.filled: dict[int, FilledList] = {}
        self._changing: list[int] = []
        self._own: set[Storage] = set()
        self._written: dict[int, TensorCore] = {}
        self._numbers: dict[int, TensorCore] = {}
        self.writes: list[int] = []

    def _follows(self, before: _State, meet: Callable[[Any, Any], object]) -> bool:
        """Whether nothing but tensors is another one than before; `meet` gets these, and those.

        Or numbers for which tensors are carried.
        """
        pairs = {x: (before._values[x], y) for x, y in self._values.items()}
        return all(_alike(*pairs[x], meet) for x in pairs if x not in before._numbers)

    def _number(self, value: Any) -> Tensor:
        """What is carried for a number."""
        kind = f64 if value.__class__ is float else i64
        return self._loops.recorder.constant(value, kind)

    def _is_changed(self, place: int, before: _State) -> bool:
        """Whether a variable holds another value, or a tensor that got another history."""
        value = self._values[place]
        if value is not before._values[place]:
            return True
        version = self._versions.get(place)
        return version != before._versions.get(place) and value.requires_grad

    @unheard
    def carry(
        self, before: _State, noted: Frame, *, kinds: tuple[type, ...]
    ) -> list[TensorCore] | None:
        """The tensors that the round since `before` has put in the place of others of their types.

        None: it has done more, or their memory is seen elsewhere as well.

        kinds: of numbers that are carried as well.
        """
        if not self._note_filled(before):
            return None
        numbers = [
            (place, old, new)
            for place, new in self._values.items()
            if _is_another(old := before._values[place], new, kinds)
        ]
        before._numbers = {place: self._number(old) for place, old, _ in numbers}
        self._numbers = {place: self._number(new) for place, _, new in numbers}
        changed = [place for place in self._values if self._is_changed(place, before)]
        self._changing = [place for place in changed if place not in self._numbers]
        leaves = chain.from_iterable(flatten(self._values[x])[0] for x in self._changing)
        held = {id(x): x for x in (*self._values.values(), *leaves) if isinstance(x, TensorCore)}
        memory = [x._storage for x in held.values()]
        self._own = {x for x in memory if x in before._own or noted.is_new(x)}
        places = [x for x in self._changing if self._values[x] is before._values[x]]
        pairs = [(self._values[place], self._values[place]) for place in places]
        pairs += zip(before._numbers.values(), self._numbers.values(), strict=True)
        if not self._follows(before, lambda *pair: pairs.append(pair)):
            return None
        found = {id(new): new for _, new in pairs}
        has_settled = all(id(old) in found or id(old) not in held for old, _ in pairs)
        written = [x for x in found.values() if x._storage in noted.written]
        same = {id(old) for old, new in pairs if old is new}
        is_own = all(
            memory.count(x._storage) == 1 and (x._storage in self._own or id(x) in same)
            for x in written
        )
        self._written = {id(x): x for x in written if x._storage not in self._own}
        keeps = all(x.requires_grad or not x.dtype.is_floating_point for x in found.values())
        keeps = keeps or all(old.requires_grad is new.requires_grad for old, new in pairs)
        fits = len(found) == len(pairs) and all(_fits(old, new) for old, new in pairs)
        fits = fits and noted.hidden <= {x._storage for x in found.values()}
        return [*found.values()] if has_settled and is_own and keeps and fits else None

    @property
    def variables(self) -> list[Any]:
        """What rounds may change: cells, and lists."""
        return [*self.cells.values(), *(self._values[place] for place in self.lists)]

    @unheard
    def _note_filled(self, before: _State) -> bool:
        """Note lists with one more tensor in them; False: others differ."""
        for place, items in self.lists.items():
            now, earlier = self._values[place], before.lists.get(place)
            if now is not before._values[place] or earlier is None:
                continue
            added = items[len(earlier) :]  # for all that is done to it is to append
            if len(added) > 1 or any(type(x) is not Tensor for x in added):
                return False
            if added:
                self.filled[place] = FilledList(items, self._loops, here())
        return True

    def appended(self, made: Sequence[Any], stand_ins: Sequence[TensorCore]) -> list[TensorCore]:
        """What the recorded round has appended to lists, which nothing may write after that.

        made: the next carry; stand_ins: for what the round began with.
        """
        items = [filled.take() for filled in self.filled.values()]
        rows: list[TensorCore] = [x for each in items for x in each if type(x) is Tensor]
        if any(len(each) != 1 for each in items) or len(rows) != len(items):
            raise unrolling("fills a list not alike", [here()])
        noted = self._loops.frames[-1]
        written = {x for x in noted.written if noted.is_from_before(x)}
        held, seen = {x._storage for x in rows}, set[Storage]()
        while held - seen:  # by the same round, or a later one
            seen |= held
            pairs = zip(made, stand_ins, strict=True)
            held = {x._storage for new, x in pairs if new._storage in held}
        if seen & written:
            raise unrolling("writes what it has put in a list", [here()])
        return rows

    @contextmanager
    def away(self, loops: Loops) -> Iterator[None]:
        """Record a round in the block, which sees what it writes by its variables alone."""
        memory = {x._storage for x in self._written.values()} - loops.away
        loops.away |= memory
        try:
            yield
        finally:
            loops.away -= memory

    def written_back(
        self, carry: Sequence[TensorCore], others: Sequence[TensorCore], rounds: Any
    ) -> list[TensorCore]:
        """What the variables hold behind the loop: what was written is what it was.

        rounds: how many are recorded by one, of each of which versions count the writes.
        """
        for x, other, writes in zip(carry, others, self.writes, strict=True):
            if id(x) in self._written:
                write_(x, other)
                x._counter.value += writes * rounds - 1 if type(rounds) is int else 0
        return [x if id(x) in self._written else y for x, y in zip(carry, others, strict=True)]

    @unheard
    def enter(
        self, frame: types.FrameType, carry: Sequence[TensorCore], others: Sequence[TensorCore]
    ) -> _State:
        """Let others be in the place of the tensors that are carried; the state that this is."""
        instead = {id(x): other for x, other in zip(carry, others, strict=True)}
        stack, known = Stack(frame), dict[int, Any]()
        for place in self._changing:
            value = self._values[place]
            new = map_tree(lambda x, _: instead.get(id(x), x), value, known=known)
            self._put(stack, place, new)
        for place, filled in self.filled.items():
            stack[place] = filled
        numbers = {place: instead[id(x)] for place, x in self._numbers.items()}
        for place, x in numbers.items():
            self._put(stack, place, _number(self._loops, x))
        entered = _State(self.code, frame, self._loops)
        entered._numbers = numbers
        return entered

    def _put(self, stack: Stack, place: int, value: Any) -> None:
        if place in self.cells:
            self.cells[place].cell_contents = value
        else:
            stack[place] = value

    @unheard
    def next_carry(self, frame: types.FrameType, carry: Sequence[TensorCore]) -> list[Any] | None:
        """What a round that began with this state has put in the place of its carry.

        None: it has done more, after all.
        """
        made: dict[int, Any] = {id(x): x for x in carry}
        others: list[TensorCore] = []

        def meet(old: TensorCore, new: TensorCore) -> None:
            if id(old) in made and _fits(old, new) and new.requires_grad <= old.requires_grad:
                made[id(old)] = new
            else:
                others.append(new)

        now = _State(self.code, frame, self._loops)
        for place, x in self._numbers.items():
            value, kind = now._values[place], float if x.dtype is f64 else int
            if value.__class__ is not kind:
                return None
            made[id(x)] = self._number(value)
        return [*made.values()] if now._follows(self, meet) and not others else None


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing
        return None


def _is_another(old: Any, new: Any, kinds: tuple[type, ...]) -> bool:
    """Whether both are numbers of one of these types, and not the same one."""
    if old is new or new.__class__ not in kinds or old.__class__ is not new.__class__:
        return False
    return is_live(old) or is_live(new) or type(old) is not type(new) or old != new


def _fits(old: TensorCore, new: TensorCore) -> bool:
    return type(new) is Tensor and new._type == old._type


def _alike(old: Any, new: Any, meet: Callable[[Any, Any], object]) -> bool:
    """Whether a value is what it was but for the tensors in it, which `meet` gets."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if isinstance(new, TensorCore):
        meet(old, new)
        return True
    if type(new) in _PLAIN:
        return repr(old) == repr(new)
    before, after = children_of(old), children_of(new)
    if before is None or after is None or [*before] != [*after]:
        return False
    return all(_alike(before[key], value, meet) for key, value in after.items())


def rounds(
    recorder: Recorder, things: LateIterable, code: types.CodeType, offset: int
) -> Iterator[Any] | None:
    """What a `for` of the user's is to iterate over in place of some things, while it is traced.

    offset: of the instruction that asks for its iterator.
    """
    found, count = code_of_loop(code, offset), things.length
    if found is None:
        return None
    if not is_live(count):
        least = max(_LEAST_ROUNDS, recorder.loops.looked_at.get(id(found), 0))
        is_enough = count > least
        return chain.from_iterable(_rounds(recorder.loops, found, things)) if is_enough else None
    if count.now > _MOST_LOOKS + 1 and count > _MOST_LOOKS + 1:
        return chain.from_iterable(_rounds(recorder.loops, found, things))
    if type(count) is LateSize:
        recorder.exits.refuse_short(count.extent)
    return None


def _rounds(loops: Loops, code: LoopCode, things: LateIterable) -> Iterator[Iterable[Any]]:
    """Rounds of a known number, or of as many as each call says, but enough to be looked at.

    Those of which nothing is left to say come together, so that nothing runs between them.
    """
    done, count = (yield from _looked_at(loops, code, things)), things.length
    start, step = things.first, things.stride
    if is_live(count) and done == count.now - 1:
        yield (things.at(start + step * (count - 1)),)
    else:
        yield things.rest(start + step * done, start + step * operator.index(count))


def _looked_at(loops: Loops, code: LoopCode, things: LateIterable) -> Generator[Any, None, int]:
    """Look at rounds, and record one for all that are left when they are alike.

    Returns how many are over.
    """
    state, done, start, step = _State(code, sys._getframe(2), loops), 0, things.first, things.stride
    is_known = not is_live(things.length)
    count: int = things.length if is_known else things.length.now
    looks: set[Any] | None = None
    most = min(_MOST_LOOKS, count - _LEAST_ROUNDS) if is_known else _MOST_LOOKS
    while done < most and loops_here() is loops:
        with loops.looking(state.variables) as noted:
            number = start + step * done
            noted.number = number
            yield (things.at(number),)
            done, before, state = done + 1, state, _State(code, sys._getframe(2), loops)
            kinds = (float,) if is_known else (float, int)  # an int may be one of few
            carry = state.carry(before, noted, kinds=kinds)
        nodes = loops.recorder.graph.nodes[noted.start :]
        least = _LEAST_NODES if is_known else 0
        looks = noted.keys if looks is None else looks & noted.keys  # of all rounds
        is_too_short = len(nodes) * (count - done - 1) < least
        if not _is_plain(noted, nodes) or is_too_short:
            loops.looked_at[id(code)] = count
            break
        if carry is not None and not looks:
            if is_known or type(things.length) is LateSize:
                yield from _recorded(loops, state, carry, things, done)
            elif state.filled:
                break
            else:
                yield from _recorded_while(loops, state, carry, things, done)
            return count - 1  # all that is read behind the loop is made in the last one
    return done


def _recorded(
    loops: Loops, before: _State, carry: list[TensorCore], things: LateIterable, done: int
) -> Generator[Any, None, None]:
    """Record one round for all that are left but the last."""
    first, last = (things.first + things.stride * x for x in (done, extent_of(things.length) - 1))
    numbers = arange(first, last, things.stride, dtype=i64)
    xs, cells = [numbers] if before.code.uses_number else [], before.cells.values()
    length: Any = numbers._type.shape[0]
    with loops.scanned(carry, xs, length, False, "for", variables=cells) as scan:
        number = things.at(
            _number(loops, scan.rows[0], (first, last - things.stride)) if xs else first
        )
        made = yield from _round(loops, before, carry, scan.carry, number)
        rows = before.appended(made, scan.carry)
        scan.made = made, rows
        later = {x._storage for x in made}
    before.enter(sys._getframe(3), carry, before.written_back(carry, scan.carry, length))
    count = loops.recorder.exits.shown(length)
    for filled, row, stack in zip(before.filled.values(), rows, scan.rows, strict=True):
        filled.fill(stack, count, row, are_read=row._storage in later)


def _recorded_while(
    loops: Loops, before: _State, carry: list[TensorCore], things: LateIterable, done: int
) -> Generator[Any, None, None]:
    """Record one round for as many as each call says, behind those that are done."""
    count = things.length - (done + 1)
    recorder, zero, one = loops.recorder, constant(0, i64), constant(1, i64)
    limit = recorder.constant(count, i64)
    first: list[Any] = [ops.lt(zero, limit), zero, *carry]
    options: Any = {"op": ops.while_loop, "variables": before.cells.values()}
    with loops.scanned(first, [], 0, False, "for", **options) as scan:
        counted = ops.add(scan.carry[1], one)
        number = things.at(things.first + things.stride * (_number(loops, scan.carry[1]) + done))
        made = yield from _round(loops, before, carry, scan.carry[CONTROL:], number)
        scan.made = [ops.lt(counted, limit), counted, *made], []
    before.enter(sys._getframe(3), carry, before.written_back(carry, scan.carry[CONTROL:], None))


def _number(loops: Loops, counter: TensorCore, ends: tuple[Any, Any] | None = None) -> LateScalar:
    """A number that a tensor holds.

    ends: what it is in the first and in the last round that is recorded; None: unknown.
    """
    value = loops.recorder.value_of(counter)
    number = loops.recorder.exits.number(value, value, (), "a number of a round")
    if ends is not None:
        number.bounds = ends if ends[0] <= ends[1] else ends[::-1]
    return number


def _round(
    loops: Loops, before: _State, carry: list[TensorCore], stand_ins: list[Any], number: Any
) -> Generator[Any, None, list[Any]]:
    """Let Python make a round on what stands for its carry; the next carry."""
    place = here()
    entered = before.enter(sys._getframe(4), carry, stand_ins)
    versions = [x._counter.value for x in stand_ins]
    try:
        with before.away(loops):
            yield (number,)
    except GeneratorExit:
        loops.left.append(place)
        raise
    made = entered.next_carry(sys._getframe(4), stand_ins)
    if made is None:
        raise unrolling("has rounds that differ", [place])
    pairs = zip(stand_ins, versions, strict=True)
    before.writes = [x._counter.value - version for x, version in pairs]
    return made


def _is_plain(noted: Frame, nodes: Sequence[Node]) -> bool:
    """Whether a round does nothing but compute these."""
    calls = any(node.has_effect and node.op is not ops.check for node in nodes)
    return not calls and noted.problem() is None
