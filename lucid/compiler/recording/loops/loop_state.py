"""What the rounds of a Python loop may change, where one of them is recorded for all.

That is the variables of the frame, and what is in the containers, objects and cells that rounds
change: places, each of which holds something before a round and after it. A round that has only put
tensors of the same types, or other numbers, in places does to the next one what that does to its
own next one.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from lucid.compiler.guards.events import Stack, unheard
from lucid.compiler.guards.guard import instance_dict
from lucid.compiler.guards.reads import REGISTERS
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.recording.late.filled_lists import FilledList, kind_of
from lucid.compiler.recording.late.late_numbers import LateScalar
from lucid.compiler.recording.loops.carried_histories import (
    History,
    Pairs,
    alike,
    paired_leaves,
    whole_of,
)
from lucid.compiler.recording.loops.loop_code import LoopCode
from lucid.compiler.recording.loops.loops import Loops, Round, unrolling
from lucid.ir import ops
from lucid.ir.classes import isinstance
from lucid.ir.graph import Node, Value
from lucid.ir.location import here
from lucid.ir.ranges import Range
from lucid.ir.types import bool_, f64, i64
from lucid.ir.whose_code import is_librarys
from lucid.tensor.core import TensorCore, constant
from lucid.tensor.storage import Storage
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import flatten, map_tree
from lucid.tensor.writing import take_memory, write_

_CONTAINERS = (list, deque, dict, OrderedDict, defaultdict, Counter, types.CellType)
_MOST_ENTRIES = 4096
_ROUNDS_OF_INTS, _LARGE = 256, 2**30  # a product of two counters fits
_AT_MOST = (  # what gives no int that is larger than one that it is given
    *(ops.abs, ops.cast, ops.clamp, ops.floor_div, ops.maximum, ops.minimum, ops.neg),
    *(ops.remainder, ops.where),
)


class _Plain:
    """Has attributes, and nothing else."""


class _Held(dict[Any, Any]):
    """A dict of the compiler's, as told apart from the user's among an object's referrers."""


def _references() -> int:
    """The `getrefcount` of a list that only a variable of a function refers to."""
    x: list[Any] = []
    return sys.getrefcount(x)


_REFERENCES = _references()


_Place = int | tuple[int, int, Any]
"""A variable's word in the frame, or (identity of an object, number of its container, key).

A number below 0 is an item of a list, counted from its end.
"""


class LoopState:
    """The Python state before a round: all that the round, or the code behind the loop, may read.

    Its places are variables of the frame, and the entries of objects that rounds change.

    Attributes:
        code: what the code of the loop tells.
        opened: the objects that rounds change, by identity, shared closure cells among them.
        growing: lists that get longer; reads_last: how many of a list's last items rounds read,
            which are places then.
        _lists, _items: those lists and all that variables hold, by identity; their items.
        _values: the values in all places.
        _changing: the places whose values the last round has changed.
        filled: the stand-ins for lists to which it has appended a tensor; _shown: where the only
            reference to each list is: a container and a key, or the frame.
        own: memory in places that rounds have made, and nobody else refers to.
        _written: tensors from before the loop, with a history, that rounds write, by identity.
        _numbers: the tensors that are carried for numbers, by place and path in the tree there.
        _counts: how often each tensor of the carry was written before the recorded round; then in
            it.
        history: the history of the tensors in all places, as a round of Python's begins.
        carried: the history whose saved memory is carried, as rounds differentiate what earlier
            rounds have computed; once the recorded round is over, the one behind it.
    """

    @unheard
    def __init__(
        self, code: LoopCode, frame: types.FrameType, loops: Loops, like: LoopState | None = None
    ) -> None:
        stack = Stack(frame)
        self.code, self._loops = code, loops
        variables: dict[_Place, Any] = {place: stack[place] for place in code.live}
        cells = {place: x for place, x in variables.items() if type(x) is types.CellType}
        self.opened: dict[int, Any] = {id(x): x for x in cells.values()}
        self.growing = _Held()
        self.reads_last = 0
        if like is not None:
            self.opened |= like.opened
            self.growing.update(like.growing)
            self.reads_last = like.reads_last
        found = [
            (identity, number, holder)
            for identity, owner in self.opened.items()
            for number, holder in enumerate(_holders(owner) or ())
        ]
        is_first = {id(holder): (i, n) for i, n, holder in reversed(found)}  # of an object and its
        self._holders = {(i, n): x for i, n, x in found if is_first[id(x)] == (i, n)}  # __dict__
        self._values = _Held({x: y for x, y in variables.items() if x not in cells})
        if code.makes is not None:
            self._values[code.makes] = stack[code.makes]
        lists = [x for x in self._values.values() if type(x) is list and id(x) not in self.opened]
        lists += loops.gathered(frame)
        self._lists = _Held({id(x): x for x in lists if len(x) <= _MOST_ENTRIES} | self.growing)
        self._items = {identity: [*x] for identity, x in self._lists.items()}
        for of, holder in self._holders.items():
            self._values.update({(*of, key): value for key, value in _entries(holder)})
            if id(holder) in loops.assigned:
                self._values[*of, "data"] = loops.memory_of(holder)
        tensors = [(x, y) for x, y in self._values.items() if isinstance(y, TensorCore)]
        self._versions = {place: tensor._counter.value for place, tensor in tensors}
        self._show_last(self._items)
        self.filled: dict[int, FilledList] = {}
        self._shown: dict[int, tuple[Any, Any]] = {}
        self._changing: list[_Place] = []
        self.own: set[Storage] = set()
        self._written: dict[int, TensorCore] = {}
        self._numbers: dict[tuple[_Place, str], TensorCore] = {}
        self._counts: list[int] = []
        self.history: History | None = None
        self.carried: History | None = None

    def _follows(self, before: LoopState, meet: Callable[[Any, Any], object]) -> bool:
        """Whether only tensors, and numbers that are carried, differ from those before.

        `meet` gets each tensor before, with the one now.
        """
        numbers = defaultdict[_Place, set[str]](set)
        for place, path in before._numbers:
            numbers[place].add(path)
        pairs = {x: (before._values[x], y) for x, y in self._values.items()}
        return all(alike(*pairs[x], meet, numbers[x]) for x in pairs)

    def _number(self, value: Any) -> Tensor:
        """The tensor that is carried for a number."""
        kind = f64 if value.__class__ is float else i64
        return self._loops.recorder.constant(value, kind)

    def _note_numbers(
        self, before: LoopState, kinds: tuple[type, ...], others: Collection[_Place]
    ) -> None:
        """Note the numbers for which tensors are to be carried; see `carry`."""
        before._numbers, self._numbers = {}, {}
        for place, value in self._values.items():
            may_be = place in others
            for path, (old, new) in paired_leaves(before._values[place], value).items():
                if _is_another(old, new, kinds) or (may_be and _are_of(kinds, old, new)):
                    before._numbers[place, path] = self._number(old)
                    self._numbers[place, path] = self._number(new)

    def _is_changed(self, place: _Place, before: LoopState) -> bool:
        """Whether a variable holds another value, or a tensor that got another history."""
        value = self._values[place]
        if value is not before._values[place]:
            return True
        is_written = self._versions.get(place) != before._versions.get(place)
        return is_written and value.requires_grad and not value.is_leaf

    @unheard
    def carry(
        self,
        before: LoopState,
        noted: Round,
        *,
        kinds: tuple[type, ...],
        others: Collection[_Place] = (),
        appended: Collection[int] = (),
    ) -> list[TensorCore] | None:
        """The tensors to be carried: those that the round since `before` has put into places.

        None: the round has changed more, or their memory is visible elsewhere as well.

        kinds: the classes of numbers that are carried as well.
        others: variables that other rounds may change; appended: lists they may append to.
        """
        if noted.reads_last > self.reads_last:
            self.reads_last = noted.reads_last
            self._show_last(self._items)
        if [*self._values] != [*before._values] or not self._note_filled(before, noted, appended):
            return None
        self._note_numbers(before, kinds, others)
        may_change = {x for x in others if _may_be_another(before._values[x], self._values[x])}
        changed = [x for x in self._values if x in may_change or self._is_changed(x, before)]
        self._changing = [place for place in changed if (place, "") not in self._numbers]
        leaves = chain.from_iterable(flatten(self._values[x])[0] for x in self._changing)
        held = {id(x): x for x in (*self._values.values(), *leaves) if isinstance(x, TensorCore)}
        for assigned in self._loops.assigned & held.keys() & self.opened.keys():
            del held[assigned]  # whose memory is a place of its own
        memory = [x._storage for x in held.values()]
        self.own = {x for x in memory if x in before.own or noted.is_new(x)}
        self.own |= noted.new_among(memory)
        places = [x for x in self._changing if self._values[x] is before._values[x]]
        pairs = [(self._values[place], self._values[place]) for place in places]
        pairs += zip(before._numbers.values(), self._numbers.values(), strict=True)
        if not self._follows(before, lambda *pair: pairs.append(pair)):
            return None
        pairs = [*{(id(old), id(new)): (old, new) for old, new in pairs}.values()]  # of each once
        found = {id(new): new for _, new in pairs}
        has_settled = all(id(old) in found or id(old) not in held for old, _ in pairs)
        written = [x for x in found.values() if x._storage in noted.written]
        same = {id(old) for old, new in pairs if old is new}
        is_own = all(
            memory.count(x._storage) == 1 and (x._storage in self.own or id(x) in same)
            for x in written
        )
        self._written = {id(x): x for x in written if x._storage not in self.own}
        keeps = all(x.requires_grad or not x.dtype.is_floating_point for x in found.values())
        keeps = keeps or all(old.requires_grad is new.requires_grad for old, new in pairs)
        fits = len(found) == len(pairs) and all(_fits(old, new) for old, new in pairs)
        fits = fits and noted.hidden <= {x._storage for x in found.values()}
        if not (has_settled and is_own and keeps and fits and self._are_own()):
            return None
        return [*found.values(), *self._carry_history(before, noted, pairs)]

    @unheard
    def note_history(self) -> None:
        """Note what the tensors in all places were computed from, before the round."""
        leaves = chain.from_iterable(flatten(x)[0] for x in self._values.values())
        self.history = History(x for x in leaves if isinstance(x, TensorCore) and x.requires_grad)

    def _carry_history(self, before: LoopState, noted: Round, pairs: Pairs) -> list[TensorCore]:
        """The saved memory to be carried, if a round has differentiated the history before it."""
        if before.history is None or self._written or not before.history.is_behind(noted.walked):
            return []
        self.note_history()
        assert self.history is not None
        changes = self.history.follows(before.history, pairs)
        if changes is None:
            return []
        self.carried = self.history
        self.history.kept = {x._storage: whole_of(x) for x in changes.values()}
        return [*self.history.kept.values()]

    def without_histories(self, tensors: Sequence[TensorCore]) -> list[TensorCore]:
        """The tensors to be carried, detached if their histories are carried by saved memory."""
        is_detached = self.carried is not None
        return [x._same_memory() if is_detached and x.requires_grad else x for x in tensors]

    def give_history(
        self, carry: Sequence[TensorCore], others: Sequence[TensorCore]
    ) -> History | None:
        """Give other tensors the history of those that are carried, if it is carried as well."""
        return None if self.carried is None else self.carried.give(carry, others)

    def _follow_history(self, made: dict[int, Any], carry: Sequence[TensorCore]) -> bool:
        """Note the history behind a round that began with this state; False: it is another one."""
        if self.carried is None:
            return True
        behind, kept = History(made.values()), self.carried.kept
        changes = behind.follows(self.carried, [(x, made[id(x)]) for x in carry])
        if changes is None or not changes.keys() <= kept.keys():
            return False
        made.update((id(kept[x]), whole_of(y)) for x, y in changes.items())
        found = [made[id(x)] for x in kept.values()]
        self.carried, behind.kept = behind, {x._storage: x for x in found}
        return True

    @property
    def objects(self) -> list[Any]:
        """What rounds may change beside variables, and lists that they fill."""
        return [*self.opened.values(), *self._holders.values()]

    def after(
        self, frame: types.FrameType, noted: Round, **options: Any
    ) -> tuple[LoopState, list[TensorCore] | None]:
        """The state behind a round that began with this one, and what `carry` tells of it.

        Where it has changed objects, and these can be looked into, nothing else is told of it.
        """
        state = LoopState(self.code, frame, self._loops, self)
        carry = state.carry(self, noted, **options)
        noted.changed = [x for x in noted.changed if id(x.owner) not in state.filled]
        if not noted.changed:
            return state, carry
        for owner, _, length in noted.changed:
            if length is not None and len(owner) > length:
                state.growing.setdefault(id(owner), owner)
            elif id(owner) not in state.growing:
                state.opened[id(owner)] = owner
        if all(_holders(x) is not None for x in state.opened.values()):
            noted.changed, state = [], LoopState(self.code, frame, self._loops, state)
        return state, None

    @unheard
    def _note_filled(self, before: LoopState, noted: Round, appended: Collection[int]) -> bool:
        """Note lists with one more tensor, or number, in them; False: others differ."""
        others = {id(self._values.get(place)) for place in appended}
        for identity, items in self._items.items():
            earlier = before._items.get(identity)
            more = 0 if earlier is None else len(items) - len(earlier)
            if earlier is None:
                continue
            if more == 0:
                kinds = {*map(kind_of, items)}
                is_filled = identity in others and len(kinds) <= 1 and None not in kinds
                if is_filled and self._shown_at(self._lists[identity]) is not None:
                    self.filled[identity] = FilledList([*items], self._loops, here(), noted)
                continue
            ends = (items[:more], items[more:]), (items[len(earlier) :], items[: len(earlier)])
            new = next((new for new, kept in ends if _are_same(kept, earlier)), [])
            if len(new) != 1 or kind_of(new[0]) is None:
                return False
            x = self._lists[identity]
            made = x if x is self._values.get(self.code.makes) else None
            self.filled[identity] = FilledList([*items], self._loops, here(), noted, made)
        return True

    def only_fills(self, made: Any, before: LoopState) -> bool:
        """Whether only lists have got longer since `before`."""
        places = [*self._values] == [*before._values]
        are_same = places and all(x is before._values[at] for at, x in self._values.items())
        others = (x for x in self._lists if x != id(made))
        return are_same and all(_are_same(self._items[x], before._items.get(x, ())) for x in others)

    def _are_own(self) -> bool:
        """Whether each filled list has one reference of the user's; notes where it is."""
        found = {identity: self._shown_at(self._lists[identity]) for identity in self.filled}
        self._shown = {identity: at for identity, at in found.items() if at is not None}
        return len(self._shown) == len(found)

    def _shown_at(self, x: list[Any]) -> tuple[Any, Any] | None:
        """Where the user's only reference to a list of the trace is; None: there are more."""
        collector = self._loops.recorder.collector
        if collector.was_there(x):
            return None
        count, others = collector.referrers_to(x)
        theirs = sys.getrefcount(x) - _REFERENCES - count
        holders = [holder for other in others for holder in _holders(other) or ()]
        places = []  # no inner function may share the variable
        for holder in (None, *holders):
            for key, value in self._values.items() if holder is None else _entries(holder):
                if value is x and (holder is not None or type(key) is int):
                    places.append((holder, key))
        return places[0] if theirs == len(places) == 1 else None

    def _show_last(self, items: Mapping[int, Sequence[Any]]) -> None:
        """Let the last items of lists be places, as many as rounds read."""
        for identity, x in items.items():
            read = range(1, min(self.reads_last, len(x)) + 1)
            self._values.update({(identity, -number, None): x[-number] for number in read})

    def _last_of_filled(self) -> dict[int, list[Any]]:
        numbers = range(self.reads_last, 0, -1)
        return {i: [x.from_end(number) for number in numbers] for i, x in self.filled.items()}

    def count_items(self, rounds: LateScalar) -> None:
        """Let filled lists know how many rounds there were before the recorded one."""
        for filled in self.filled.values():
            filled.begin(rounds)

    def number_items(self, number: Any, first: int) -> None:
        """Let filled lists know the number of their last item, by that of the recorded round."""
        for filled in self.filled.values():
            filled.last_number = number + (len(filled.before) - 1 - first)

    def fit_items(self, frame: types.FrameType, ways: Sequence[list[Any]]) -> None:
        """Give all ways through a round an item for each list, with a flag whether it is real.

        A list to which no way appends gets its own object back.
        """
        for column, (identity, filled) in reversed([*enumerate([*self.filled.items()])]):
            if all(items[column] is None for items in ways):
                filled.refuse_count()
                del self.filled[identity]
                _store(Stack(frame), *self._shown.pop(identity), self._lists[identity])
                for items in ways:
                    del items[column]
        for column, filled in enumerate(self.filled.values()):
            made = [items[column] for items in ways]
            known = next(x for x in made if x is not None)
            if any(x is not None and x._type != known._type for x in made):
                filled.refuse_rounds()
            if any(x is None for x in made):
                filled.refuse_count()
                filled.flag = len(ways[0])
                zeros = ops.broadcast(constant(0, known.dtype), shape=known._type.shape)
                for items, x in zip(ways, made, strict=True):
                    items[column] = zeros if x is None else x
                    items.append(constant(x is not None, bool_))

    def refuse_written(
        self, rows: set[Storage], made: Sequence[Storage], stand_ins: Sequence[TensorCore]
    ) -> None:
        """Begin again where the round, or a later one, writes the memory that it has put in lists.

        made: that of the next carry.
        """
        noted = self._loops.frames[-1]
        written = {x for x in noted.written if noted.is_from_before(x)}
        held, seen = rows, set[Storage]()
        while held - seen:
            seen |= held
            held = {x._storage for new, x in zip(made, stand_ins, strict=True) if new in held}
        if seen & written:
            raise unrolling("writes what it has put in a list", [here()])

    def settle(self, frame: types.FrameType) -> None:
        """Put the stand-in for a comprehension's list in its place, behind the loop."""
        for filled in self.filled.values():
            if filled.made is not None and self.code.makes is not None:
                filled.settle()
                Stack(frame)[self.code.makes] = filled

    @contextmanager
    def away(self, loops: Loops) -> Iterator[None]:
        """In the block a round is recorded, whose places don't show memory that it writes."""
        memory = {x._storage for x in self._written.values()} - loops.away
        loops.away |= memory
        try:
            yield
        finally:
            loops.away -= memory

    def written_back(
        self, carry: Sequence[TensorCore], others: Sequence[TensorCore], rounds: Any
    ) -> list[TensorCore]:
        """What the places hold behind the loop: a tensor that was written stays that tensor.

        rounds: how many rounds there are, as versions count the writes of each; None: unknown.
        """
        for x, other, writes in zip(carry, others, self._counts, strict=True):
            if id(x) in self._written:
                write_(x, other)
                x._counter.value += writes * rounds - 1 if type(rounds) is int else 0
        return [x if id(x) in self._written else y for x, y in zip(carry, others, strict=True)]

    @unheard
    def enter(
        self, frame: types.FrameType, carry: Sequence[TensorCore], others: Sequence[TensorCore]
    ) -> LoopState:
        """Put other tensors in the places of those that are carried; returns the new state."""
        instead = {id(x): other for x, other in zip(carry, others, strict=True)}
        stack, known = Stack(frame), dict[int, Any]()
        numbers = {at: instead[id(x)] for at, x in self._numbers.items()}
        known_numbers = {at: number_of(self._loops, x) for at, x in numbers.items()}
        for place in self._changing:

            def other(x: Any, path: str, place: _Place = place) -> Any:
                return known_numbers.get((place, path), instead.get(id(x), x))

            self._put(stack, place, map_tree(other, self._values[place], known=known))
        shown = [x for x in self.filled.items() if x[1].made is None]
        for identity, filled in shown:
            _store(stack, *self._shown[identity], filled)
        for (place, path), number in known_numbers.items():
            if not path:
                self._put(stack, place, number)
        entered = LoopState(self.code, frame, self._loops, self)
        entered._numbers, entered._changing, entered.filled = numbers, self._changing, self.filled
        entered._written, entered._counts = self._written, [x._counter.value for x in others]
        entered._show_last(self._last_of_filled())
        return entered

    @unheard
    def put_number(self, frame: types.FrameType, place: int, number: Any) -> None:
        """Put a number into a variable for whose number a tensor is carried."""
        if (place, "") in self._numbers:
            self._put(Stack(frame), place, number)

    def _put(self, stack: Stack, place: _Place, value: Any) -> None:
        if isinstance(place, int):
            stack[place] = value
        elif place[1] < 0:
            self.filled[place[0]].last[-place[1]] = value
        else:
            holder = self._holders[place[:2]]
            if isinstance(holder, TensorCore) and place[2] == "data":
                self._loops.memories[value._storage] = value
            _store(stack, holder, place[2], value)

    def leave(
        self, frame: types.FrameType, carry: Sequence[TensorCore]
    ) -> tuple[list[Any], list[Any]]:
        """The next carry of a round that began with this state, and what it appended to lists.

        For a list without a new item None, for a number a tensor. Raises a restart where the round
        has changed more than its carry, or an item is written later in it.
        """
        made = self._next_carry(frame, carry)
        if made is None:
            raise unrolling("has rounds that differ", [here()])
        pairs = zip(carry, self._counts, strict=True)
        self._counts = [x._counter.value - count for x, count in pairs]
        rows = [filled.row() for filled in self.filled.values()]
        memory = [x._storage for x in made]
        self.refuse_written({x._storage for x in rows if x is not None}, memory, carry)
        return made, rows

    @unheard
    def _next_carry(self, frame: types.FrameType, carry: Sequence[TensorCore]) -> list[Any] | None:
        made: dict[int, Any] = {id(x): x for x in carry}
        others: list[TensorCore] = []

        def meet(old: TensorCore, new: TensorCore) -> None:
            if id(old) in made and _fits(old, new) and new.requires_grad <= old.requires_grad:
                made[id(old)] = new
            else:
                others.append(new)

        now = LoopState(self.code, frame, self._loops, self)
        now._show_last(self._last_of_filled())
        if [*now._values] != [*self._values]:
            return None
        for (place, path), x in self._numbers.items():
            leaves = paired_leaves(self._values[place], now._values[place])
            _, value = leaves.get(path, (None, None))
            if value.__class__ is not (float if x.dtype is f64 else int):
                return None
            made[id(x)] = self._number(value)
        follows = now._follows(self, meet) and not others
        if not follows or not self._stay_one(now):
            return None
        if not self._follow_history(made, carry):
            return None
        found = [*made.values()]
        return found if self.ints_fit(carry, found) else None

    def ints_fit(
        self,
        carry: Sequence[TensorCore],
        made: Sequence[TensorCore],
        items: Sequence[TensorCore] = (),
    ) -> bool:
        """Whether carried ints stay within 64 bits, as rounds add to them and don't multiply them.

        items: the items appended to lists, in the lists' order.
        """
        ints = [id(x) for x in self._numbers.values() if x.dtype is i64]
        pairs = [(x, y) for x, y in zip(carry, made, strict=True) if id(x) in ints]
        starts = {self._loops.recorder.value_of(x): i for i, (x, _) in enumerate(pairs)}
        nodes = self._loops.recorder.graph.nodes[self._loops.frames[-1].start :]
        known = _terms(nodes, starts)
        terms = [known.get(self._loops.recorder.value_of(y), Counter()) for _, y in pairs]
        sizes = [1] * len(pairs)
        for _ in range(_ROUNDS_OF_INTS):
            sums = [x for x in terms if x is not None]
            sizes = [1 + sum(sizes[i] * count for i, count in x.items()) for x in sums]
            if len(sums) < len(terms) or max(sizes, default=0) > _LARGE:
                return False
        rows = zip(self.filled.values(), items, strict=False)
        put = [known.get(self._loops.recorder.value_of(x), Counter()) for y, x in rows if y.number]
        return all(
            x is not None and sum(sizes[i] * count for i, count in x.items()) <= _LARGE for x in put
        )

    def _stay_one(self, now: LoopState) -> bool:
        """Whether places that hold the same tensor hold the same one again."""
        moved: dict[int, Any] = {}
        for place in self._changing:
            pairs = zip(
                flatten(self._values[place])[0], flatten(now._values[place])[0], strict=True
            )
            for old, new in pairs:
                if isinstance(old, TensorCore) and moved.setdefault(id(old), new) is not new:
                    return False
        return True


def _terms(nodes: Iterable[Node], starts: Mapping[Value, int]) -> dict[Value, Counter[int] | None]:
    """Upper bounds of values as sums of start values: how often each is a term; None: no bound.

    Values that aren't in the result depend on no start value.
    """
    terms: dict[Value, Counter[int] | None] = {x: Counter([i]) for x, i in starts.items()}
    for node in nodes:
        found = [terms[x] for x in node.operands if x in terms and x.dtype.kind == "int"]
        if found:
            parts = [x for x in found if x is not None]
            term = _term(node, parts) if len(parts) == len(found) else None
            terms.update(dict.fromkeys(node.results, term))
    return terms


def _term(node: Node, parts: Sequence[Counter[int]]) -> Counter[int] | None:
    """The bound of a node's result by those of its operands."""
    if node.op in (ops.add, ops.sub):
        return sum(parts, Counter())
    if node.op is ops.mul:
        factors = [x.producer for x in node.operands if x.producer]
        sizes = [abs(int(x.attributes["value"])) for x in factors if x.op is ops.constant]
        size = sizes[0] if sizes else _LARGE
        return Counter({i: count * size for part in parts for i, count in part.items()})
    is_at_most = node.op in _AT_MOST or node.op.is_view
    return functools.reduce(operator.or_, parts) if is_at_most else None


def _holders(owner: Any) -> list[Any] | None:
    """The containers that have all of an object's state; None: it has more, or many entries."""
    kind = type(owner)
    if isinstance(owner, TensorCore):
        return [owner]  # which has a gradient
    if kind in _CONTAINERS:
        return [owner] if kind is types.CellType or len(owner) <= _MOST_ENTRIES else None
    attributes = instance_dict(owner)
    if attributes is None or kind.__basicsize__ != _Plain.__basicsize__:
        return None
    registers = [attributes[name] for name in REGISTERS if name in attributes]
    is_modules = len(registers) == len(REGISTERS)
    return [attributes, *registers] if is_modules or not any(map(is_librarys, kind.mro())) else None


def _entries(holder: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(holder, TensorCore):
        return [("grad", holder._grad)]
    if type(holder) is types.CellType:
        try:
            return [(None, holder.cell_contents)]
        except ValueError:  # nothing
            return [(None, None)]
    return enumerate(holder) if type(holder) in (list, deque) else holder.items()


def _store(stack: Stack, holder: Any, key: Any, value: Any) -> None:
    """Store into a container; holder None: into a word of the frame."""
    if isinstance(holder, TensorCore) and key == "data":
        take_memory(holder, value)
    elif isinstance(holder, TensorCore):
        holder._grad = value
    elif type(holder) is types.CellType:
        holder.cell_contents = value
    else:
        (stack if holder is None else holder)[key] = value


def _are_same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _is_another(old: Any, new: Any, kinds: tuple[type, ...]) -> bool:
    """Whether both are numbers of one of these types, and not the same one."""
    if old is new or not _are_of(kinds, old, new):
        return False
    return is_live(old) or is_live(new) or type(old) is not type(new) or old != new


def _may_be_another(old: Any, new: Any) -> bool:
    """Whether another round may replace a tensor, unless it is a leaf, which rounds only write."""
    is_leaf = new is old and isinstance(new, TensorCore) and new.requires_grad and new.is_leaf
    return isinstance(new, TensorCore) and not is_leaf


def _are_of(kinds: tuple[type, ...], old: Any, new: Any) -> bool:
    return new.__class__ in kinds and old.__class__ is new.__class__


def _fits(old: TensorCore, new: TensorCore) -> bool:
    is_alike = type(new) is Tensor and new._type == old._type
    return is_alike and new._grad is None and not new._retains_grad


def number_of(loops: Loops, counter: TensorCore, ends: tuple[Any, Any] | None = None) -> LateScalar:
    """A number that a tensor holds.

    ends: what it is in the first and in the last round that is recorded.
    """
    value = loops.recorder.value_of(counter)
    number = loops.recorder.exits.number(value, value, (), "a number of a round")
    if ends is not None:
        low, high = number.bounds = ends if ends[0] <= ends[1] else ends[::-1]
        if type(low) is type(high) is int:
            loops.frames[-1].ranges[value] = Range(low, high)
    return number
