"""Rounds of a `for` over a `range`: when they are alike, one is recorded for all that are left.

While a step is traced, Python makes the rounds, and each of them would be recorded. So something
else is iterated in place of the `range`, which looks, before a round, at the variables that are
read before they are written, by the function's code (`loop_code.py`). If a round has changed
nothing in Python but such variables, and these to tensors of the same types, then the next one does
what it did with other tensors, and so do all that follow: Python's rounds depend on nothing else.
The next round then is recorded on stand-ins, as the body of a `scan` (`loops.py`), and the
variables become its last carry. The last round is Python's again: what is read behind the loop is
what that has made. A number that is an index of tensors alone is a row of the scan.

What doesn't fit, such as rounds that keep what they have made in a list or look at a value, is left
to Python; a pass finds equal rounds of that as well (`ir/passes/roll_up.py`), and it makes better
code of short ones, so that these are left to it.
"""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from lucid.compiler.guards.events import Stack, unheard
from lucid.compiler.recording.late_numbers import LateRange, LateSize
from lucid.compiler.recording.loop_code import LoopCode, code_of_loop
from lucid.compiler.recording.loops import Frame, Loops, loops_here, unrolling
from lucid.functions.creation import arange
from lucid.ir import ops
from lucid.ir.location import here
from lucid.ir.region_ops import CONTROL
from lucid.ir.types import i64
from lucid.tensor.core import TensorCore, constant
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import children_of, flatten, map_tree

if TYPE_CHECKING:
    from lucid.compiler.inputs.scalars import SymScalar
    from lucid.compiler.recording.recorder import Recorder
    from lucid.ir.graph import Node
    from lucid.tensor.storage import Storage

_LEAST_ROUNDS = 8
_LEAST_NODES = 2500  # that needn't be recorded: this takes some 0.2 s
_MOST_LOOKS = 3  # at rounds, until two are alike
_PLAIN = (int, float, complex, bool, str, bytes)


class _State:
    """The variables before a round that it, or what follows the loop, may read.

    Attributes:
        code: what the code of the loop tells.
        cells: those of them that inner functions share.
        _values: what they hold, by their places.
        _changing: the places of those that the last round has changed.
        _own: memory of theirs that rounds have made, and nobody else has.
    """

    @unheard
    def __init__(self, code: LoopCode, frame: types.FrameType) -> None:
        stack = Stack(frame)
        self.code = code
        self.cells = {x: y for x in code.live if type(y := stack[x]) is types.CellType}
        self._values = {x: _content(y) if (y := self.cells.get(x)) else stack[x] for x in code.live}
        tensors = [(x, y) for x, y in self._values.items() if isinstance(y, TensorCore)]
        self._versions = {place: tensor._counter.value for place, tensor in tensors}
        self._changing: list[int] = []
        self._own: set[Storage] = set()

    def _follows(self, before: _State, meet: Callable[[Any, Any], object]) -> bool:
        """Whether nothing but tensors is another one than before; `meet` gets these, and those."""
        return all(_alike(before._values[x], self._values[x], meet) for x in self._values)

    def _is_changed(self, place: int, before: _State) -> bool:
        """Whether a variable holds another value, or a tensor that got another history."""
        value = self._values[place]
        if value is not before._values[place]:
            return True
        version = self._versions.get(place)
        return version != before._versions.get(place) and value.requires_grad

    @unheard
    def carry(self, before: _State, noted: Frame) -> list[TensorCore] | None:
        """The tensors that the round since `before` has put in the place of others of their types.

        None: it has done more, or their memory is seen elsewhere as well.
        """
        self._changing = [place for place in self._values if self._is_changed(place, before)]
        leaves = chain.from_iterable(flatten(self._values[x])[0] for x in self._changing)
        held = {id(x): x for x in (*self._values.values(), *leaves) if isinstance(x, TensorCore)}
        memory = [x._storage for x in held.values()]
        self._own = {x for x in memory if x in before._own or noted.is_new(x)}
        places = [x for x in self._changing if self._values[x] is before._values[x]]
        pairs = [(self._values[place], self._values[place]) for place in places]
        if not self._follows(before, lambda *pair: pairs.append(pair)):
            return None
        found = {id(new): new for _, new in pairs}
        has_settled = all(id(old) in found or id(old) not in held for old, _ in pairs)
        is_own = all(
            (memory.count(x._storage) == 1 and x._storage in self._own)
            or x._storage not in noted.written
            for x in found.values()
        )
        keeps = all(x.requires_grad or not x.dtype.is_floating_point for x in found.values())
        keeps = keeps or all(old.requires_grad is new.requires_grad for old, new in pairs)
        fits = len(found) == len(pairs) and all(_fits(old, new) for old, new in pairs)
        fits = fits and noted.hidden <= {x._storage for x in found.values()}
        return [*found.values()] if has_settled and is_own and keeps and fits else None

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
            if place in self.cells:
                self.cells[place].cell_contents = new
            else:
                stack[place] = new
        return _State(self.code, frame)

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

        follows = _State(self.code, frame)._follows(self, meet)
        return [*made.values()] if follows and not others else None


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing
        return None


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


class Count(int):
    """The number of a round, which it may use as an index of tensors."""


def rounds(
    recorder: Recorder, numbers: range | LateRange, code: types.CodeType, offset: int
) -> Iterator[Any] | None:
    """What a `for` of the user's is to iterate over in place of a `range`, while it is traced.

    offset: of the instruction that asks for its iterator.
    """
    found = code_of_loop(code, offset)
    if found is None:
        return None
    if not isinstance(numbers, LateRange):
        least = max(_LEAST_ROUNDS, recorder.loops.looked_at.get(id(found), 0))
        return _rounds(recorder.loops, found, numbers) if len(numbers) > least else None
    count = numbers.number  # it passes for a range in `isinstance`
    if found.is_index and type(count) is not LateSize:
        return None
    is_enough = count.now > _MOST_LOOKS + 1 and count > _MOST_LOOKS + 1
    return _rounds_of_each_call(recorder.loops, found, count) if is_enough else None


def _rounds(loops: Loops, code: LoopCode, numbers: range) -> Iterator[Any]:
    done = yield from _looked_at(loops, code, numbers)
    yield from numbers[done:]


def _rounds_of_each_call(loops: Loops, code: LoopCode, count: SymScalar) -> Iterator[Any]:
    """Rounds that are as many as each call says, but enough to be looked at."""
    numbers = range(count.now)
    done = yield from _looked_at(loops, code, numbers, count)
    if done == len(numbers) - 1:
        yield count - 1
    else:
        yield from range(operator.index(count))[done:]


def _looked_at(
    loops: Loops, code: LoopCode, numbers: range, count: SymScalar | None = None
) -> Generator[Any, None, int]:
    """Look at rounds, and record one for all that are left when they are alike.

    Returns how many are over. count: how many there are, where each call says that.
    """
    state, done = _State(code, sys._getframe(2)), 0
    most = min(_MOST_LOOKS, len(numbers) - _LEAST_ROUNDS) if count is None else _MOST_LOOKS
    while done < most and loops_here() is loops:
        with loops.looking(state.cells.values()) as noted:
            yield Count(numbers[done]) if code.is_index else numbers[done]
            done, before, state = done + 1, state, _State(code, sys._getframe(2))
            carry = state.carry(before, noted)
        least = _LEAST_NODES if count is None else 0
        nodes = loops.recorder.graph.nodes[noted.start :]
        if not _is_plain(noted, nodes) or len(nodes) * (len(numbers) - done - 1) < least:
            loops.looked_at[id(code)] = len(numbers)
            break
        if carry is not None:
            if count is None or type(count) is LateSize:
                stop = numbers[-1] if count is None else count.extent - 1
                counts = arange(numbers[done], stop, numbers.step, dtype=i64)
                yield from _recorded(loops, state, carry, counts, numbers[done])
            else:
                yield from _recorded_while(loops, state, carry, count - (done + 1))
            return len(numbers) - 1  # all that is read behind the loop is made in the last one
    return done


def _recorded(
    loops: Loops, before: _State, carry: list[TensorCore], counts: Tensor, number: Any
) -> Generator[Any, None, None]:
    """Record one round for all of these counts, the first of which is the number."""
    rows, cells = [counts] if before.code.is_index else [], before.cells.values()
    length: Any = counts._type.shape[0]
    with loops.scanned(carry, rows, length, False, "for", variables=cells) as scan:
        number = scan.rows[0] if rows else number
        made = yield from _round(loops, before, carry, scan.carry, number)
        scan.made = made, []
    before.enter(sys._getframe(3), carry, scan.carry)


def _recorded_while(
    loops: Loops, before: _State, carry: list[TensorCore], count: Any
) -> Generator[Any, None, None]:
    """Record one round for as many as each call says."""
    recorder, zero, one = loops.recorder, constant(0, i64), constant(1, i64)
    limit = recorder.constant(count, i64)
    first: list[Any] = [ops.lt(zero, limit), zero, *carry]
    options: Any = {"op": ops.while_loop, "variables": before.cells.values()}
    with loops.scanned(first, [], 0, False, "for", **options) as scan:
        counted = ops.add(scan.carry[1], one)
        made = yield from _round(loops, before, carry, scan.carry[CONTROL:], 0)
        scan.made = [ops.lt(counted, limit), counted, *made], []
    before.enter(sys._getframe(3), carry, scan.carry[CONTROL:])


def _round(
    loops: Loops, before: _State, carry: list[TensorCore], stand_ins: list[Any], number: Any
) -> Generator[Any, None, list[Any]]:
    """Let Python make a round on what stands for its carry; the next carry."""
    place = here()
    entered = before.enter(sys._getframe(4), carry, stand_ins)
    try:
        yield number
    except GeneratorExit:
        loops.left.append(place)
        raise
    made = entered.next_carry(sys._getframe(4), stand_ins)
    if made is None:
        raise unrolling("has rounds that differ", [place])
    return made


def _is_plain(noted: Frame, nodes: Sequence[Node]) -> bool:
    """Whether a round does nothing but compute these."""
    calls = any(node.has_effect and node.op is not ops.check for node in nodes)
    is_indexed = any(x in noted.indexed for x in noted.written)  # perhaps by a view of a row
    return not calls and not is_indexed and noted.problem() is None
