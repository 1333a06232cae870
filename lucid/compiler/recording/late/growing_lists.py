"""Lists and deques that grow: a history of losses, a window of rewards, at which the step looks.

Such a list is state in its place, which the step reads and changes at each call. What it makes of
one is a `LateSequence`, as it is itself (`late_sequences.py`).
"""

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from lucid.compiler.guards.collector import PLAIN
from lucid.compiler.guards.guard import is_number, item_at
from lucid.compiler.guards.mutable_sources import GrowingList, MutableSource, stands_for_list
from lucid.compiler.inputs.late import Bases, formula_of
from lucid.compiler.inputs.scalars import Formula, is_known_before, is_live, seen
from lucid.compiler.recording.late.late_arrays import LateArray
from lucid.compiler.recording.late.late_sequences import LateSequence, Place, class_of, tree_of
from lucid.compiler.results.side_effects import holds_state, restart_to_bind
from lucid.ir.classes import isinstance

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder

_LAST = 256  # entries of a list that each call asks whether they are numbers


class GrowingView(LateSequence):
    """Stands for one growing list while a step is traced; the list itself isn't touched.

    Attributes:
        size_at_start: its size when the step began.
    """

    is_early = is_made = False
    is_from_end = True
    lists: frozenset[str] = frozenset()
    size_at_start: Any = None

    def __init__(self, source: GrowingList, recorder: Recorder) -> None:
        self.view, self.recorder, self.source = self, recorder, source
        self.owner = owner = source.owner
        source.done = []
        self.kind, self._before = type(owner), len(owner)
        self._places: list[Place] = [(i - self._before, x) for i, x in enumerate(owner)]
        self._now = self._listed = self._array = self.origin = None
        text = recorder.unused_text(size_text := f"len({source.path})")
        self._name = source.path + text.removeprefix(size_text)  # there may be others by this path

        def size() -> int:  # of the list that is there in a call
            return len(source.owner)

        count = recorder.live_scalar(text, self._before, lambda _: size(), size)
        self._count = self.size_at_start = count
        self._added = 0  # so many entries at the end contain all that the step has put
        self._removed: int | None = 0  # entries at the start that are gone; None: unknown
        self._is_any_other = False  # whether the step has set an entry by a live number

    @property
    def item_kind(self) -> type:  # type: ignore[override]
        return class_of([x for _, x in self._places])

    # ------------------------------------------------------------------ looking

    @property
    def now(self) -> Any:
        return self._of_kind(super().now)

    @property
    def text(self) -> str:  # type: ignore[override]
        count = len(self.source.done)
        return self._name + (f", changed {count} times" if count else "")

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        return tree_of([args for _, args in self.source.done]).bases

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        """The entries in a call, with the changes of the step so far."""
        source, kind = self.source, list if isinstance(self.owner, list) else deque
        steps = [(getattr(kind, name), tree_of(args).formula) for name, args in source.done]

        def formula(known: Any) -> Any:
            found = copy.copy(source.owner)
            for change, args in steps:
                change(found, *args(known))
            return found

        return formula

    def tail_of(self, start: int) -> Formula | None:
        """The last entries of a list in a call, without a look at the others."""
        source, done = self.source, self.source.done
        if type(self.owner) is not list or any(name != "append" for name, _ in done):
            return None
        added = [formula_of(args[0]) for _, args in done]
        return lambda known: [*source.owner[start:], *(of(known) for of in added)][start:]

    def listed(self) -> Any:
        seen(self.size)
        return self._of_kind(self.found(self.places))

    def _of_kind(self, entries: list[Any]) -> Any:
        return entries if isinstance(self.owner, list) else deque(entries, self.owner.maxlen)

    def found(self, places: Sequence[Place]) -> list[Any]:
        """Entries as the user's code gets them.

        Raises `RestartTrace` where some are state that must be an argument of the trace.
        """
        if self._is_any_other:
            self._refuse()
        known = self.source.keys
        unknown = [
            MutableSource(f"{self.source.path}[{at}]", self.owner, at)
            for at, entry in places
            if type(at) is int and at not in known and holds_state(entry) and not is_number(entry)
        ]
        if unknown and self.source.place is not None:
            self._refuse()
        if unknown:
            self.collector.restart = restart_to_bind(unknown)
            raise self.collector.restart
        return [entry if at is None else self._found_at(at, entry) for at, entry in places]

    def _found_at(self, at: Any, entry: Any) -> Any:
        if type(at) is tuple:  # of another list, which has taken the place of its entries
            return at[0][at[1]]
        source, owner = self.source, self.owner
        text, known = f"{self._name}[{at}]", source.keys
        if at in known:
            if (at + self._before if at < 0 else at - self._before) in known:  # two names of one
                seen(self.size_at_start)
            return entry
        if not is_number(entry):
            self.collector.value(self.collector.guard_entry(text, owner, at).expected, text, owner)
            return entry
        kind, text = type(entry), f"{text} at the start"
        self.recorder.guard_value(f"type({text})", lambda: type(item_at(source.owner, at)), kind)

        def found() -> Any:
            return source.owner[at]

        return self.recorder.live_scalar(text, entry, lambda call: found(), found)

    def are_all(self, kind: type) -> bool:
        """Whether all entries are of a class, in each call; of many the last and new ones."""
        if self._is_any_other:
            self._refuse()
        source, expected = self.source, frozenset((kind,))

        def kinds() -> frozenset[type]:
            owner, (whose, asked) = source.owner, source.asked.get(kind, (None, 0))
            asked = asked if whose is owner else 0
            start = min(asked, len(owner) - _LAST) if asked <= len(owner) else 0
            source.asked[kind] = owner, len(owner)
            found = itertools.islice(reversed(owner), len(owner) - max(start, 0))
            return frozenset(map(type, found)) | expected

        found = kinds() == expected
        if found:
            self.recorder.guard_value(f"the types in {self._name}", kinds, expected)
        return found

    # ------------------------------------------------------------------ what instructions do

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, slice):
            entry = self.collector.substitutes.entry(self.owner, key)
            entry = self.at(key) if entry is None else entry
            if entry is not None:
                return entry
            at = self.collector.index_of(seen(key))
            is_known = at is not None and 0 <= at < len(self.places) and self._removed is not None
            if is_known and self.places[at][0] is not None and self.size - self._added > at:
                return self._from_start(at)
        return super().__getitem__(key)

    def _from_start(self, key: int) -> Any:
        """An entry that the step has found there, counted from the start."""
        return self.found([((self._removed or 0) + key, self.places[key][1])])[0]

    def append(self, value: Any) -> None:
        """Add an entry; a deque that is full loses its first one."""
        self._change("append", value)
        maxlen = getattr(self.owner, "maxlen", None)
        self.places.append((None, value))
        self._added += 1
        if maxlen is None or self.size < maxlen:
            self._count = self.size + 1
        else:
            del self.places[0]
            self._count = maxlen
            self._removed = None if self._removed is None else self._removed + 1

    def extend(self, values: Any) -> None:
        """Add entries one by one."""
        if isinstance(values, PLAIN):
            self.collector.iterate(values)
        for value in [*values]:
            self.append(value)

    def __iadd__(self, values: Any) -> Any:
        self.extend(values)
        return self.owner

    def clear(self) -> None:
        """Have none."""
        self._change("clear")
        self._places = []
        self._count = self._added = 0
        self._is_any_other = False

    def popleft(self) -> Any:
        """Take the first entry of a deque."""
        return self._take_first("popleft")

    def pop(self, *index: int) -> Any:
        """Take an entry of a list, or the last one."""
        if index == (0,) and isinstance(self.owner, list):
            return self._take_first("pop", 0)
        return self._take_last() if index in ((), (-1,)) else self._refuse()

    def __delitem__(self, key: Any) -> None:
        is_list = type(self.owner) is list
        if key in (0, -1) and is_list:
            self.pop(key)
        elif is_list and key == slice(None):
            self.clear()
        elif is_list and type(key) is slice and key.start is key.step is None:
            self._cut_to(self.part(slice(key.stop, None)))
        else:
            self._refuse()

    def sort(self, *, key: Any = None, reverse: Any = False) -> None:
        """Bring its numbers in order."""
        if key is not None or is_live(reverse) or not self.has_plain_numbers():
            self._refuse()
        self._cut_to(self.in_order(reverse=reverse))

    def _cut_to(self, entries: Any) -> None:
        """Replace all entries by a list of numbers."""
        if type(entries) is not LateSequence or not entries.is_of_numbers():
            self._refuse()
        entries = entries._copy()  # which the step may change afterwards
        is_own = entries.view is self and entries.is_from_end
        numbers = enumerate(() if is_own else entries.now, -len(entries.now))
        places = entries.places if is_own else [((entries, i), x) for i, x in numbers]
        self._change("__setitem__", slice(None), entries)
        self._places, self._count = [*places], entries.length
        self._added, self._removed = len(self.places), None
        self._is_any_other = False

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) is slice and key == slice(None) and isinstance(self.owner, list):
            self._cut_to(value)
            return
        if is_known_before(key) and key.__class__ is int and key >= 0 and key < self.size:
            if not (self._added and key == self.size - 1):  # as after `buffer.append(None)`
                self._change("__setitem__", key, value)
                self._is_any_other = True
                return
            key = -1
        key = seen(key)
        if type(key) is int and -len(self.places) <= key < 0 and self.size >= -key:
            self._change("__setitem__", key, value)
            self.places[key] = None, value
            self._added = max(self._added, -key)
        else:
            self._refuse()

    def __imul__(self, count: Any) -> Any:
        return self._refuse()

    def _take_first(self, name: str, *args: Any) -> Any:
        if self._removed is None or not is_live(self.size) or not self.size > self._added:
            return self._refuse()
        value = self._from_start(0)
        self._change(name, *args)
        del self.places[0]
        self._count = self.size - 1
        self._removed += 1
        return value

    def _take_last(self) -> Any:
        if not is_live(self.size) or not self.size >= 1:
            return self._refuse()
        value = self[-1]
        self._change("pop")
        del self.places[-1]
        self._count = self.size - 1
        self._added = max(self._added - 1, 0)
        return value

    def _refuse(self) -> NoReturn:
        """Begin again, without this, where a change needs to know all entries."""
        self.collector.refuse_growing(self.source.path, self.owner)
        raise AssertionError

    def _change(self, name: str, *args: Any) -> None:
        self.collector.note_growth(self.owner)
        self.source.done.append((name, args))

    def __getattr__(self, name: str) -> Any:
        if name in ("copy", "__copy__") and isinstance(self.owner, deque):
            return self.listed
        if name == "maxlen" and isinstance(self.owner, deque):
            return self.owner.maxlen
        known = name in ("copy", "index", "count") or not hasattr(self.kind, name)
        return super().__getattr__(name) if known else self._refuse()


def settled(value: Any) -> Any:
    """The stand-in for a list or an array, or a part of one, as the value that the step leaves."""
    if type(value) is LateArray and value.is_made:
        return value
    if type(value) in (GrowingView, LateArray) and value.owner is not None:
        return value.owner
    if stands_for_list(value) and not (value.is_early or value.is_of_numbers()):
        return value.listed()
    return value
