"""The guards of a trace: entered as the step reads, with what the step writes itself kept apart.

A place is entered when the step first reads or writes it, with what it held before. What it holds
at the end says what the step has changed; what it was read for says what calls depend on.
"""

from __future__ import annotations

import array
import copy
import ctypes
import functools
import gc
import mmap
import types
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn

import numpy as np

from lucid.autograd.hooks import hooks_of
from lucid.autograd.node import Node
from lucid.compiler.guards.age import Age, owner_of
from lucid.compiler.guards.guard import (
    ABSENT,
    CONTENTS,
    AnswerGuard,
    ArrayGuard,
    Attributes,
    ClassAttributes,
    ContentsGuard,
    EntryGuard,
    FieldGuard,
    Guard,
    PlaceGuard,
    TensorGuard,
    copy_of,
    default_of,
    has_entry,
    has_kept_its_order,
    identity_of_key,
    instance_dict,
    item_at,
    size_of,
    value_in,
)
from lucid.compiler.guards.moving_entries import MovingEntry
from lucid.compiler.guards.mutable_sources import (
    AppendEffect,
    ChangingArray,
    GrowingList,
    Identity,
    MutableSource,
    TensorProperty,
    can_be_read_live,
    identity_of,
    source_of,
)
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.late import key_of
from lucid.compiler.inputs.objects import SCALARS, SETS, know_by_identity, text_by_value
from lucid.compiler.inputs.scalars import is_live
from lucid.ir.classes import isinstance
from lucid.ir.errors import EagerOnlyError
from lucid.ir.location import Location, here
from lucid.ir.memory import address_of
from lucid.ir.whose_code import LIBRARYS_ATTRIBUTES, is_followed, is_librarys
from lucid.tensor.core import TensorCore
from lucid.tensor.tree import is_record

PLAIN = (list, dict, set, deque)  # containers whose entries can change
_OF_CTYPES = (ctypes._SimpleCData, ctypes.Array, ctypes.Structure, ctypes.Union, ctypes._Pointer)
_BUFFERS = (bytearray, memoryview, array.array, mmap.mmap, *_OF_CTYPES)
# What only C looks into: all that they hold is asked for anew at each call.
OPAQUE: dict[type, Callable[[Any], Any]] = {
    ContextVar: value_in,
    types.MappingProxyType: lambda proxy: tuple(proxy.items()),
}
VIEWS: Any = (type({}.keys()), type({}.values()), type({}.items()))
MOST_COMPARED = 1 << 22  # bytes of an array that each call compares
_OWN = ("lucid.compiler.guards.", "lucid.compiler.recording.")  # modules of what refers to objects
_NOTED_OF_ERRORS = ("__traceback__", "__context__", "__cause__", "__suppress_context__")
_PARTS_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")


class Change(NamedTuple):
    """A change of an object, noted before it happens.

    Attributes:
        is_tracked: whether Python's collector tracks it now, so that its age can be told later.
        length: the length of a list before the change; None for other objects.
    """

    owner: Any
    is_tracked: bool
    length: int | None


def parts_of_referent(reference: Callable[[], Any]) -> tuple[Any, ...]:
    """A weak reference's referent; of a bound method, made anew each time, object and function."""
    target = reference()
    if isinstance(target, types.MethodType):
        return target.__self__, target.__func__
    return () if target is None else (target,)


class Substitutes:
    """The collector's questions to the trace: what to call, or see, instead of a function or value.

    This is the null object: it answers None to each question. A trace has `StandInFunctions`.

    Attributes:
        asking: code of the library's that asks objects for their texts on behalf of user's code.
    """

    asking: Collection[types.CodeType] = frozenset()

    def __getattr__(self, question: str) -> Callable[..., Any]:
        return lambda *_, **__: None


class Collector:
    """The reads and writes, so far, of Python objects that are older than the trace.

    Args:
        apart: places that the step reads at each call; they need no guards.

    Attributes:
        guards: by the place that each compares; `finish` drops those of objects that the step made.
        given_tensors: the tensor arguments, by the identity of each one's handle.
        asked: names of attributes that the step has looked for in vain on tensor arguments.
        take_entry: makes a `MovingEntry` a further argument; returns its stand-in, or ABSENT.
        restart: the restart that was raised, as the user's code may have swallowed it.
        changed_later: entries of dicts that something sets after the call: gives its name while the
            entries can't be read.
        meet: notes that the step uses an object of the library's.
        library_objects: objects of the library's own classes, such as optimizers, by the user's
            expression for each.
    """

    meet: Callable[[str, Any], None]

    def __init__(self, apart: Set[Identity] = frozenset()) -> None:
        self.guards: dict[Any, Guard] = {}
        self.library_objects: list[tuple[str, Any]] = []
        self._apart = apart
        self._apart_of: dict[int, set[Any]] = {}
        for owner, key in apart:
            self._apart_of.setdefault(owner, set()).add(key)
        self.at: tuple[types.CodeType, int] | None = None
        self.is_gradient: Callable[[TensorCore], bool] = lambda tensor: False
        self.written_arrays: Callable[[], Sequence[np.ndarray]] = lambda: ()  # of tensors
        self._paths: dict[int, str] = {}
        self._held: list[Any] = []  # so that identities stay what they are
        self._holders: dict[int, Any] = {}  # of what the collector doesn't track: where it was read
        self._entries: dict[int, list[EntryGuard]] = {}
        self._appended: dict[int, list[tuple[str, Any]] | None] = {}
        self._looked_at: set[int] = set()  # containers at which it looks
        self._measured: set[int] = set()  # lists whose lengths it reads
        self.stand_ins: dict[int, Any] = {}  # for growing lists and changing arrays, by identity
        self._whole: dict[int, np.ndarray] = {}  # arrays of all their memory, by its owner
        self._memories: dict[int, Any] = {}  # stand-ins for arrays, by the owner of the memory
        self._lines: dict[Any, Location | None] = {}
        self._given: set[int] = set()
        self._may_call: set[tuple[type, str]] = set()  # special methods, by the class
        self._elsewhere: set[int] = set()  # arguments that the step finds elsewhere as well
        self._weak: set[int] = set()  # what weak references refer to
        self._of_hosts: dict[Identity, str] = {}  # places that host calls of the step change
        # Objects that deferred calls may change, such as a logger's handlers, by identity.
        self.changed_at_end: dict[int, Any] = {}
        self.stored_at_end: dict[int, Location | None] = {}  # containers filled then, and the line
        self._refusals: list[tuple[str, Location | None]] = []  # for the end: restarts come first
        self._stays: set[int] = set()  # made by the trace for good, and who holds it
        self._entered: set[int] = set()  # those of `_stays` that the trace made
        self._raised: list[tuple[BaseException, list[Any]]] = []  # and `_NOTED_OF_ERRORS` before
        self._age = Age()
        self._is_finished = False
        self.is_over = False  # it ignores events that still come
        self.is_put_back = False
        self.substitutes: Any = Substitutes()
        self._is_none: Any = None  # stand-ins for False and True as the latest `is` gives
        self.refused: Callable[[Any], BaseException] = lambda error: error
        self.given_tensors: Mapping[int, TensorCore] = {}
        self.given_sets: Mapping[int, Sequence[str]] = {}  # sets known by value: their paths
        self.given_functions: Set[int] = frozenset()  # functions that each call makes anew
        self.given_cells: Set[int] = frozenset()  # closure cells of those functions
        self.asked: set[str] = set()
        self.take_entry: Callable[[MovingEntry], Any] = _take_none
        self.restart: RestartTrace | None = None
        self.changed_later: dict[tuple[int, str], Callable[[], str | None]] = {}
        self._joining: Sequence[str] = ()  # of the f-string that is being made
        self.watchers: list[list[Change]] = []  # lists that `_note_change` appends to

    # ------------------------------------------------------------------ entering

    def path_of(self, thing: object) -> str:
        """How the user got at an object; its class's name for one that the step made."""
        return self._paths.get(id(thing)) or f"a {type(thing).__name__}"

    def _add(self, identity: Any, guard: Guard) -> None:
        guard.at = self.at
        self.guards[identity] = guard

    def entry(
        self,
        path: str,
        owner: Any,
        key: Any,
        *,
        write: bool = False,
        gated: bool = False,
        holder: Any = None,
    ) -> None:
        """`owner[key]`, or what is in a cell, is about to be read or written."""
        key = key_of(key)
        if write:
            self._note_change(owner if holder is None else holder)
        identity = identity_of(owner, key)
        self.refuse_growing(path, owner)
        self._refuse_changed(path, owner, key)
        if self.changed_later and not write:
            self.refuse_later(owner, key)
        if identity in self._apart or (id(owner), CONTENTS) in self._apart:
            if write:
                self._lines.setdefault(identity, here())
                self._appended[id(owner)] = None
            return
        guard = self.guards.get(identity)
        if guard is None:
            guard = self.guard_entry(
                path, owner, key, holder=holder, was_read=not write, gated=gated
            )
            self._take_from_whole(guard)
        assert isinstance(guard, EntryGuard)
        if write:
            self._lines.setdefault(identity, here())
            self._appended[id(owner)] = None
            return
        self._looked_at.add(id(owner))
        if guard.expected is not ABSENT:
            owner = owner.of if isinstance(owner, Attributes) else owner
            self.value(guard.expected, path, owner if holder is None else holder)

    def expect(self, path: str, owner: Any, key: Any) -> None:
        """Guard `owner[key]` as it is, before a stand-in is put there for the time of the trace.

        The owner counts as old: it may be an object's `__dict__`, which Python makes when asked.
        """
        self._stays.add(id(owner))
        self._held.append(owner)
        identity = identity_of(owner, key)
        if identity not in self._apart and identity not in self.guards:
            self.guard_entry(path, owner, key, was_read=False)

    def guard_entry(self, path: str, owner: Any, key: Any, **flags: Any) -> EntryGuard:
        """Guard an entry as it is now."""
        guard = EntryGuard(path, item_at(owner, key), owner, key, **flags)
        self._entries.setdefault(id(owner), []).append(guard)
        self._add(identity_of(owner, key), guard)
        return guard

    def refuse_later(self, owner: Any, key: Any) -> None:
        """Give up if an entry is read that something is to change after the native step."""
        read = self.changed_later.get((id(owner), key))
        later = None if read is None else read()
        if later is not None:
            self._op_by_op(
                f"it reads {key.lstrip('_')!r} after {later}, which takes place after the native "
                "step"
            )

    def referrers_to(self, thing: object) -> tuple[int, list[Any]]:
        """How many of the references to an object are the compiler's own, and the other referrers.

        Of the latter those that Python's collector tracks.
        """
        own: dict[int, Any] = {id(x): x for x in vars(self).values() if type(x) in (list, dict)}
        others = []
        for referrer in gc.get_referrers(thing):
            if type(referrer).__module__.startswith(_OWN):
                own[id(referrer)] = referrer
            elif id(referrer) not in own:
                others.append(referrer)
        count = 0
        for referrer in own.values():
            for referent in gc.get_referents(referrer):
                count += referent is thing
        return count, others

    def written(self) -> Set[Identity]:
        """The places that have been changed so far."""
        return {*self._lines}

    def advanced(self, before: Set[Identity]) -> str | None:
        """The path of a place that was changed since, and is read as well; None: there is none.

        before: what had been written.
        """
        for identity in [x for x in self._lines if x not in before]:  # in their order
            guard = self.guards.get(identity)
            if guard is None and identity in self._apart:
                return f"{identity[1]}"
            if not isinstance(guard, PlaceGuard):
                continue
            is_added_to = self._appended.get(identity[0]) is not None
            is_read = guard.was_read and guard.expected is not ABSENT
            if (is_added_to or is_read) and self.was_there(guard.subject()):
                return guard.path
        return None

    def _note_change(self, owner: Any) -> None:
        """An object is about to be changed; note it, and whether its age can be told.

        What Python's collector doesn't track by now, such as an empty dict, seems to be new later.
        """
        if self.watchers:
            owner = owner.of if isinstance(owner, Attributes) else owner
            length = len(owner) if type(owner) is list else None
            change = Change(owner, gc.is_tracked(owner), length)
            for watcher in self.watchers:
                watcher.append(change)

    def _take_from_whole(self, guard: EntryGuard) -> None:
        """Guard an entry of a container that is guarded as a whole for its value at the start."""
        whole = self.guards.get(identity_of(guard.owner, CONTENTS))
        if isinstance(whole, ContentsGuard):
            if isinstance(guard.owner, dict):
                guard.expected = dict.get(whole.expected, guard.key, ABSENT)
            else:  # whose entries may have moved
                whole.was_read, guard.was_read = True, False
                if isinstance(guard.key, int):
                    is_there = guard.key < len(whole.expected)
                    guard.expected = whole.expected[guard.key] if is_there else ABSENT

    def contents(
        self,
        path: str,
        owner: Any,
        *,
        write: bool = False,
        holder: Any = None,
        takes: bool = True,
    ) -> None:
        """All entries of a container are about to be read, or to be changed.

        takes: whether the step gets hold of the entries' values.
        """
        identity = identity_of(owner, CONTENTS)
        self.refuse_growing(path, owner)
        self._refuse_changed(path, owner, CONTENTS)
        if write:
            self.know_set(owner)
            self._note_change(owner if holder is None else holder)
            self._lines.setdefault(identity, here())
        if identity in self._apart:
            return
        guard = self.guards.get(identity)
        if guard is None:
            apart = frozenset(self._apart_of.get(id(owner), ()))
            before = self._before(owner)
            keys = before if isinstance(before, dict) else range(len(before))
            for key in () if isinstance(before, frozenset) else [*keys]:
                if identity_of_key(key) in apart:
                    before[key] = ABSENT  # what stands there now is this trace's
            guard = ContentsGuard(path, before, owner, apart, holder=holder, was_read=not write)
            self._add(identity, guard)
        if write:
            return
        self._looked_at.add(id(owner))
        for key in [key for whose, key in self.changed_later if whose == id(owner)]:
            self.refuse_later(owner, key)
        assert isinstance(guard, ContentsGuard)
        guard.was_read = True
        if guard.was_valued or not takes:
            return
        guard.was_valued = True
        holder = owner if holder is None else holder
        is_dict = isinstance(owner, dict)
        for key, value in guard.expected.items() if is_dict else enumerate(guard.expected):
            if is_dict:
                self.value(key, f"a key of {path}", holder)
            if not isinstance(value, SCALARS):
                self.value(value, f"{path}[{self.text_of(key)}]", holder)

    def hand_contents(self, owner: Any) -> None:
        """Note that code which isn't followed may read a container: its numbers can't be live."""
        guard = self.guards.get(identity_of(owner, CONTENTS))
        if isinstance(guard, ContentsGuard):
            guard.was_handed = True

    def _before(self, owner: Any) -> Any:
        """What was in a container before the step wrote its first entry."""
        copy = copy_of(owner)
        for guard in self._entries.get(id(owner), ()):
            if guard.holds() or isinstance(owner, set):
                continue
            if guard.expected is ABSENT:
                dict.pop(copy, guard.key, None)
            elif isinstance(owner, dict) or guard.key < len(copy):
                copy[guard.key] = guard.expected
        return copy

    def append(self, path: str, owner: Any, method: str, args: tuple[Any, ...]) -> None:
        """Entries are about to be added to a list, deque or set that the step doesn't look at."""
        self.contents(path, owner, write=True)
        done = self._appended.setdefault(id(owner), [])
        if done is not None:
            done.append((method, args))

    def added_to(self, owner: Any) -> list[tuple[str, Any]] | None:
        """The calls that added entries to a list or deque; None: the step changed it otherwise."""
        return self._appended.get(id(owner)) if self.has_written_in([owner]) else []

    def rewrite(self, path: str, owner: Any) -> None:
        """A container is about to be changed in a way that depends on its entries."""
        self.contents(path, owner, write=True)
        self.contents(path, owner)
        self._appended[id(owner)] = None

    def note_growth(self, owner: Any) -> None:
        """A list that grows is about to be changed."""
        self._note_change(owner)
        self._lines.setdefault(identity_of(owner, CONTENTS), here())

    def refuse_growing(self, path: str, owner: Any) -> None:
        """Begin again with a whole list as state, where its stand-in can't serve the access."""
        if id(owner) in self.stand_ins and not isinstance(owner, np.ndarray):
            whole = self.stand_ins[id(owner)].source.place or MutableSource(path, owner, CONTENTS)
            self.begin_again(f"looks into {path}", "sources", {whole.identity: whole})

    def length(self, path: str, owner: Any) -> None:
        """The number of entries is about to be read."""
        self.refuse_growing(path, owner)
        is_list = type(owner) is list  # which is as long as before when the step has filled it
        if not (is_list and id(owner) in self.stored_at_end):
            self._refuse_changed(path, owner, CONTENTS)
        (self._measured if is_list else self._looked_at).add(id(owner))
        identity, whole = (len, id(owner)), self.guards.get(identity_of(owner, CONTENTS))
        if whole is not None:
            whole.was_read = True
        elif identity_of(owner, CONTENTS) not in self._apart and identity not in self.guards:
            size = len(self._before(owner))
            ask = size_of if isinstance(type(owner).__len__, types.FunctionType) else len
            self._add(identity, AnswerGuard(f"len({path})", size, ask, (owner,)))

    def place(self, path: str, owner: Any, index: int) -> None:
        """An entry of a list is about to be replaced, which must be there."""
        whole = identity_of(owner, CONTENTS)
        if not (whole in self.guards or whole in self._apart or id(owner) in self.stand_ins):
            self.answer(f"{path} has an entry {index}", has_entry, owner, index)

    def array(
        self,
        path: str,
        array: np.ndarray,
        key: Any = ABSENT,
        *,
        write: bool = False,
        given: bool = False,
    ) -> None:
        """The contents of an array, or a part of them, are about to be read or written.

        given: the library gets it, or an array of the user's on the same memory.
        """
        if not issubclass(type(array), np.ndarray):
            return  # one that the step computes says that it is one
        self._refuse_changed(path, owner_of(array), CONTENTS)
        self.refuse_beside(array, path)
        if write:
            self._note_change(array)
            self._restart_with(self._source_of(path, array), "writes")
        whole = self.guards.get((id(array), "array", repr(ABSENT)))
        if whole is not None and key is not ABSENT:
            key = ABSENT
        text = repr(key)
        guard = self.guards.get((id(array), "array", text))
        if guard is None:
            try:
                part = np.asarray(array if key is ABSENT else array[key])
            except (IndexError, TypeError, ValueError):
                return  # the step is about to find out
            guard = ArrayGuard(path, part.copy(), array, key, was_read=not write, is_given=given)
            guard.source = self._source_of(path.removesuffix(f"[{text}]"), array)
            self._add((id(array), "array", text), guard)
            self._held.append(array)
            if part.dtype.hasobject:
                for item in part.ravel().tolist():
                    self.value(item, f"an element of {path}", array)
        elif not write:
            guard.was_read = True
        assert isinstance(guard, ArrayGuard)
        guard.is_given = guard.is_given and given
        if not (write or given):
            self._refuse_stale(guard, self.written_arrays())
        if write:
            self._lines.setdefault((id(array), "array"), here())

    def write_array(self, array: np.ndarray, given: Sequence[Any]) -> Any:
        """An array is about to be written with given values; its stand-in from now on, or None."""
        if self.stand_in_for(array) is array:
            self.array(self.path_of(array), array, write=True)
        return self._made_late(array, given)

    def index_array(self, array: np.ndarray, key: Any) -> Any:
        """An array is about to be indexed; its stand-in, where only a call knows the elements.

        An array from outside that is indexed by a number of each call is read by each call.
        """
        if self.stand_in_for(array) is array and self.substitutes.is_late(key):
            self._restart_with(self._source_of(self.path_of(array), array), "looks into")
        return self._made_late(array, (key,))

    def _made_late(self, array: np.ndarray, given: Sequence[Any]) -> Any:
        """An array's stand-in, or None; an array of the step's gets one where `given` is late."""
        if not issubclass(type(array), np.ndarray):
            return None
        memory = owner_of(array)
        if self.stand_in_for(array) is array and not self.was_there(array):
            stand_in = self.substitutes.array(memory, given) if type(memory) is np.ndarray else None
            if stand_in is not None:
                self.let_stand(memory, stand_in)
        found = self.stand_in_for(array)
        return None if found is array else found

    def let_stand(self, thing: Any, stand_in: Any) -> None:
        """Let a stand-in take the place of a list, or of an array and all arrays on its memory."""
        self.stand_ins[id(thing)] = stand_in
        self._held.append(thing)
        if isinstance(thing, np.ndarray):
            self._memories[id(owner_of(thing))] = stand_in

    def refuse_beside(self, array: np.ndarray, path: str = "an array") -> None:
        """Give up where another array on the same memory has a stand-in."""
        if id(owner_of(array)) in self._memories:
            self._op_by_op(f"it gets at the elements of {path}, which change, in several ways")

    def stand_in_for(self, value: Any) -> Any:
        """The stand-in for a list or an array; the value itself where there is none."""
        found = self.stand_ins.get(id(value))
        if found is None and self._memories and type(value) is np.ndarray:
            whole = self._memories.get(id(owner_of(value)))
            index = None if whole is None else index_of(whole.owner, value)
            if whole is not None and index is not None:
                found = self.stand_ins[id(value)] = whole.part_for(value, index)
                self._held.append(value)
        return value if found is None else found

    def _source_of(self, path: str, array: np.ndarray) -> tuple[str, np.ndarray] | None:
        """The array that each call could read and write live in place of this one, and its path.

        It shows all of this one's memory, if the graph can have its elements; else None.
        """
        memory = owner_of(array)
        is_known = id(array) in self._paths
        for source in (self._whole.get(id(memory)), memory, array if is_known else None):
            if (
                type(source) is np.ndarray
                and (source is array or index_of(source, array) is not None)
                and can_be_read_live(source)
                and self.was_there(source)
            ):
                return self._paths.get(id(source), path), source
        return None

    def _restart_with(self, found: tuple[str, np.ndarray] | None, what: str) -> None:
        """Begin again with an array, a path and itself, as one that each call reads and writes."""
        if found is None or (what == "writes" and not found[1].flags.writeable):
            return
        source = ChangingArray(*found)
        if source.identity not in self._apart:
            self.begin_again(f"{what} {source.path}", "sources", {source.identity: source})

    def hand(self, array: np.ndarray) -> None:
        """An array is given to code that isn't followed, and may be written there."""
        self._note_change(array)
        self._lines.setdefault((id(array), "array"), here())

    def has_written(self, owner: Any, key: Any) -> bool:
        """Whether the step has bound an entry."""
        return identity_of(owner, key) in self._lines or identity_of(owner, CONTENTS) in self._lines

    def has_written_in(self, owners: Iterable[Any]) -> bool:
        """Whether the step has bound an entry, or an attribute, of some of these."""
        written = {owner for owner, _ in self._lines} | self.stored_at_end.keys()
        holders = (holder for x in owners for holder in (x, instance_dict(x)))
        return any(id(holder) in written for holder in holders)

    def has_changed_for(self, guard: Guard) -> bool:
        """Whether the step has changed what a guard of another collector compares."""
        if isinstance(guard, EntryGuard):
            return self.was_there(guard.subject()) and self.has_written(guard.owner, guard.key)
        if not isinstance(guard, (ContentsGuard, ArrayGuard, AnswerGuard)):
            return False
        looked_at = guard.subject()
        is_length = type(looked_at) is list and isinstance(guard, AnswerGuard) and guard.ask is len
        return any(
            owner == id(looked_at) and (key is CONTENTS or not is_length)
            for owner, key in self._lines
        )

    def field(self, path: str, owner: Any, name: str, *, gated: bool = False) -> None:
        """A part of an object that no dict holds is about to be read."""
        attributes = Attributes(owner)
        identity = identity_of(attributes, name)
        is_known = identity in self.guards or id(owner) in self._given or id(owner) in self._weak
        if not is_known:
            self._add(identity, FieldGuard(path, attributes[name], attributes, name, gated=gated))

    def answer(
        self,
        path: str,
        ask: Callable[..., Any],
        *args: Any,
        answered: Any = ABSENT,
        holder: Any = None,
    ) -> bool:
        """Guard the answer of `ask(*args)`; False if it answers with another object each time.

        answered: the answer from before the step has changed it.
        holder: the object that has the answer; None: the first of the arguments.
        """
        identity = (ask, *(x if isinstance(x, (str, int)) else id(x) for x in args))
        if identity in self.guards:
            return True
        guard = AnswerGuard(path, None, ask, args)
        guard.expected = guard.found() if answered is ABSENT else answered
        if answered is ABSENT and not guard.holds():
            return False
        self._add(identity, guard)
        self.value(guard.expected, path, args[0] if args and holder is None else holder)
        return True

    def tensor(self, path: str, tensor: TensorCore) -> None:
        """Guard a tensor from outside that the step has met: its memory, flag and hooks."""
        identity = id(tensor), "tensor"
        if identity in self.guards or tensor.is_traced or tensor._storage.array is None:
            return
        if self.is_gradient(tensor):
            return  # which a guard of its own looks at
        moves = identity_of(tensor, "data") in self._apart
        memory = None if moves else (tensor._storage, tensor._chain)
        hooks = hooks_of(tensor)
        self.guards[identity] = TensorGuard(
            path, tensor.requires_grad, tensor, tensor._grad_fn is None, memory, hooks
        )
        for hook in hooks.values():
            self.value(hook, f"a hook of {path}", tensor)

    def value(self, value: Any, path: str, holder: Any = None) -> None:
        """The step gets hold of an object, found at `path`; read what is known by itself of it."""
        is_elsewhere = id(value) in self._given and id(holder) not in self._given
        if is_elsewhere and (holder is None or self.was_there(holder)):
            self._elsewhere.add(id(value))
            if holder is not None and not _is_container(value):  # with what stands for its contents
                self._know_by_identity(value)
        if isinstance(value, SCALARS) or id(value) in self._paths or is_live(value):
            return
        self._paths[id(value)] = path
        self._held.append(value)
        if not gc.is_tracked(value) or type(value) is dict:  # which may be tracked from now on
            self._holders.setdefault(id(value), holder)
        if isinstance(value, weakref.ReferenceType):
            self._weak.update(map(id, parts_of_referent(value)))
        if isinstance(value, TensorCore):
            self.tensor(path, value)
        elif isinstance(value, np.ndarray):
            self._memory(value, path, holder)
        elif isinstance(value, types.MethodType):
            owner = path.rpartition(".")[0] or (f"{path}.__self__" if path else "self")
            self.value(value.__self__, owner, holder)
            self.value(value.__func__, path, holder)
        elif isinstance(value, types.FunctionType):
            self._function(value, path)
        elif isinstance(value, functools.partial):
            self._partial(value, path, holder)
        elif isinstance(value, types.BuiltinMethodType):
            self.value(value.__self__, f"{path}.__self__", holder)
        elif isinstance(value, tuple(OPAQUE)):
            self._opaque(value, path)
        elif isinstance(value, _BUFFERS) and self.was_there(value):
            kind = type(value).__name__
            self._op_by_op(
                f"it uses {path}, a {kind}, of which nothing tells when it changes",
                "use a list, an array of NumPy's or a tensor",
            )
        elif isinstance(value, VIEWS):
            viewed = next(x for x in gc.get_referents(value) if isinstance(x, dict))
            self.value(viewed, path, value)
            self.contents(path, viewed)
        elif is_librarys(type(value)) and not isinstance(value, (type, dict)):
            self.meet(path, value)

    def _memory(self, array: np.ndarray, path: str, holder: Any) -> None:
        """Note whose memory an array is on, and that it is held by the array's holder."""
        if isinstance(array, np.ma.MaskedArray):
            self.answer(f"{path}.mask", _bytes_of_mask, array)
        memory = owner_of(array)
        if type(array) is type(memory) is np.ndarray and memory.nbytes == array.nbytes:
            self._whole.setdefault(id(memory), array)
        if id(memory) not in self._paths:
            self._paths[id(memory)] = path
            self._held.append(memory)
            self._holders[id(memory)] = holder

    def _partial(self, value: functools.partial[Any], path: str, holder: Any) -> None:
        """Guard what a partial calls, and with what."""
        self.answer(f"{path}.func", getattr, value, "func")
        self.value(value.func, path, holder)
        for i, given in enumerate(value.args):
            self.value(given, f"{path}.args[{i}]", holder)
        self.value(value.keywords, f"{path}.keywords", value)
        self.contents(f"{path}.keywords", value.keywords)

    def _opaque(self, value: Any, path: str) -> None:
        """Guard all that an object holds which only C looks into."""
        ask = next(ask for kind, ask in OPAQUE.items() if isinstance(value, kind))
        if not self.answer(f"all of {path}", ask, value):
            self._op_by_op(f"{path} holds something else each time")
        found = ask(value)
        if found is ABSENT:
            self.value(default_of(value), f"the default of {path}", value)
        for item in found if isinstance(found, tuple) else ():
            for part in item if isinstance(item, tuple) else (item,):
                if is_live(part):
                    self._op_by_op(f"it looks at {path}, which holds a number that moves")
                self.value(part, f"an entry of {path}", value)

    def _function(self, function: types.FunctionType, path: str) -> None:
        """Guard a function's code and defaults."""
        for name in _PARTS_OF_FUNCTIONS:
            self.field(f"{path}.{name}", function, name)
        for i, default in enumerate(function.__defaults__ or ()):
            self.value(default, f"a default of {path}[{i}]", function)
        for name, default in (function.__kwdefaults__ or {}).items():
            self.value(default, f"the default of {name} of {path}", function)
        if function.__kwdefaults__ and is_followed(function.__code__):
            self.contents(f"{path}.__kwdefaults__", function.__kwdefaults__, holder=function)
        wrapped = function.__dict__.get("__wrapped__")
        if wrapped is not None:
            self.value(wrapped, path, function)

    def _op_by_op(self, reason: str, remedy: str = "", line: Location | None = None) -> NoReturn:
        """Give the trace up: the step reads, or does, another thing at each call."""
        hint = f"\nhint: {remedy}" if remedy else ""
        raise self.refused(EagerOnlyError(f"{reason}{at_line(line or here())}{hint}"))

    def begin_again(self, reason: str, kind: str = "", found: Iterable[Any] = ()) -> NoReturn:
        """Raise `RestartTrace`, whatever the user's code makes of it."""
        self.restart = RestartTrace(reason, kind, found)
        raise self.restart

    def refuse_proxy(self) -> NoReturn:
        """Give the trace up: nothing can be asked of a weak proxy whose object is gone."""
        self._op_by_op("it uses a weak proxy of an object that is gone")

    def refuse_tracing(self, function: Any) -> NoReturn:
        """Give the trace up: a profiler is told of what the user's code does in place of it."""
        name = getattr(function, "__qualname__", type(function).__name__)
        self._op_by_op(f"{name}() traces what it runs, with sys.settrace")

    def text_of(self, key: Any) -> str:
        """A dict's key in a path; a tensor by its name."""
        return self.path_of(key) if isinstance(key, TensorCore) else repr(key)

    # ------------------------------------------------------------------ what is known

    def was_there(self, thing: object) -> bool:
        """Whether an object, or an array's memory, is known to have been there before the trace."""
        if id(thing) in self._given or id(thing) in self._stays:
            return True
        if issubclass(type(thing), np.ndarray):
            thing = owner_of(thing)  # type: ignore[arg-type]
            if not isinstance(thing, np.ndarray) or id(thing) in self._stays:
                return True
        if id(thing) in self._holders:
            holder = self._holders[id(thing)]
            return holder is not None and self.was_there(holder)
        return gc.is_tracked(thing) and not self._age.is_new(thing)

    def accept_made(self, objects: Iterable[Any]) -> None:
        """Treat objects as made by the step, whoever holds them."""
        for made in objects:
            self._held.append(made)
            self._holders[id(made)] = None

    def has_looked_at(self, container: Any) -> bool:
        """Whether the step has read entries of a container, or how many there are."""
        return id(container) in self._looked_at | self._measured

    def accept_arguments(self, identities: Collection[int]) -> None:
        """Enter the identities of arguments: their contents are stand-ins for each call's."""
        self._given.update(identities)

    def identified(self, answer: bool) -> Any:
        """The stand-in for the answer of the latest `is`; None: there is none."""
        found, self._is_none = self._is_none, None
        return None if found is None else found[answer]

    def test_none(self, value: Any) -> Any:
        """A jump asks whether a value is None; returns what it is to look at instead."""
        return self.substitutes.looked_at(value)

    def identify(self, one: Any, other: Any) -> None:
        """Python asks whether two objects are the same one, and calls may be given others."""
        self._is_none = self.substitutes.is_none(one if other is None else other)
        kinds = (TensorCore, np.ndarray)  # of which others may stand for those that it is given
        are_data = any(isinstance(one, kind) and isinstance(other, kind) for kind in kinds)
        is_bare = type(other) is object is not type(one)  # a sentinel, which no tensor is
        are_alike = are_data or (issubclass(type(one), type(other)) and not is_bare)
        if isinstance(one, SCALARS) or not are_alike:
            return
        if text_by_value(one) is not None:
            what = f"a {type(one).__name__} is {self.path_of(other)}"  # calls have equal ones
            self._refusals.append((f"it looks whether {what}", here()))
            return
        for given, known in ((one, other), (other, one)):
            is_object = id(given) in self._given and not _is_container(given)
            is_other = not self._is_given(known) and self.was_there(known)
            is_other = is_other or id(given) in self._elsewhere
            if is_object and is_other:
                self._know_by_identity(given)
            if (self._is_given(given) and is_other) or id(given) in self.given_functions:
                self.know_set(given)
                what = f"a {type(given).__name__} that it is given is {self.path_of(known)}"
                self._refusals.append((f"it looks whether {what}", here()))

    def look_for_itself(self, given: Any) -> None:
        """Refuse an argument that is looked for, as a key is, by identity: it has no `__eq__`."""
        is_function = isinstance(given, types.FunctionType) and id(given) in self.given_functions
        equals: Any = type(given).__eq__
        is_itself = id(given) in self._given and equals is object.__eq__
        is_container = is_itself and _is_container(given)
        if id(given) in self.given_tensors or is_function or is_container:
            place = here()
            if place is None or place.file != copy.__file__:  # which keeps what it has copied
                reason = f"it looks for a {type(given).__name__} that it is given, by identity"
                self._refusals.append((reason, place))
            return
        if is_itself:
            self._know_by_identity(given)

    def _is_given(self, value: Any) -> bool:
        is_stand_in = isinstance(value, np.ndarray) and not issubclass(type(value), np.ndarray)
        handle = value.tensor if is_stand_in else value  # of an array
        return id(value) in self._given or id(handle) in self.given_tensors

    def know_set(self, given: object) -> None:
        """Begin again with an argument, a set that the step changes or keeps, known by identity."""
        if type(given) in SETS and id(given) in self.given_sets:
            paths = self.given_sets[id(given)]
            self.begin_again(f"changes or keeps {paths[0]}, a set", "counts", paths)

    def _know_by_identity(self, given: object) -> NoReturn:
        know_by_identity([type(given)])
        self.begin_again("finds an object elsewhere that it is given")

    def tensors(self) -> Iterator[tuple[str, TensorCore]]:
        """The tensors from outside that were met, by the user's expressions for them."""
        for guard in self.guards.values():
            if isinstance(guard, TensorGuard):
                yield guard.path, guard.tensor

    def name_of(self, thing: object) -> str:
        """The user's expression for an object; empty when unknown."""
        return self._paths.get(id(thing), "")

    def line_of(self, place: MutableSource) -> str:
        """The user's line that first wrote a place, on a line of its own."""
        found = None
        for key in (place.identity, (id(place.owner), CONTENTS)):
            found = found or self._lines.get(key)
        return at_line(found)

    def accept(self, owner: Any, value: Any) -> None:
        """Take an entry of `owner` that the trace made for good as one that was there before."""
        self._stays.update((id(owner), id(value)))
        self._entered.add(id(value))
        self._held += [owner, value]

    def has_made(self, value: object) -> bool:
        """Whether the trace has made something for good, such as an optimizer's state."""
        return id(value) in self._entered

    # ------------------------------------------------------------------ the end

    def raises(self, error: object) -> None:
        """Note an older exception that is raised: its traceback would hold traced tensors."""
        if isinstance(error, BaseException) and self.was_there(error):
            self._raised.append((error, [getattr(error, name) for name in _NOTED_OF_ERRORS]))

    def finish(self) -> None:
        """Drop the guards of what the step made itself."""
        for error, noted in self._raised:
            for name, value in zip(_NOTED_OF_ERRORS, noted, strict=True):
                setattr(error, name, value)
        self.stand_ins = {k: x for k, x in self.stand_ins.items() if getattr(x, "is_made", False)}
        self._memories = {k: x for k, x in self._memories.items() if x.is_made}
        self._age.settle()
        self.guards = {
            key: guard for key, guard in self.guards.items() if self._is_of_outside(guard)
        }
        self.library_objects = [
            (path, thing)
            for path, thing in self.library_objects
            if id(thing) not in self._given and self.was_there(thing)
        ]
        self._is_finished = True

    def look_again(self) -> None:
        """Let what was made since `finish` count as new as well."""
        self._age.settle()

    def begin(self) -> None:
        """Objects made from now on are new; `end` must follow, whatever happens."""
        self._age.begin()

    def end(self) -> None:
        """Let go of the objects that were met; `was_there` can't tell old from new any more."""
        self.is_over = True
        if not self._is_finished:
            self._is_finished = True
            self.library_objects.clear()
        self._age.end(and_inner=True)
        self.take_entry = _take_none
        for guard in self.guards.values():
            if isinstance(guard, PlaceGuard):
                guard.holder = None
        self._held.clear()
        self._holders.clear()
        self._entries.clear()
        self._appended.clear()
        self.stand_ins.clear()
        self._memories.clear()
        self._whole.clear()

    def _is_of_outside(self, guard: Guard) -> bool:
        owner = guard.subject()
        if id(owner) in self._given:
            return False
        if owner is None or self.was_there(owner):
            return True
        held = guard.owner if isinstance(guard, PlaceGuard) else owner
        return held is not owner and self.was_there(held)  # an older dict, its `__dict__` by now

    def _refuse_stale(self, guard: ArrayGuard, written: Sequence[np.ndarray]) -> None:
        """Give up when a tensor writes a guarded array: the guard would see that too late."""
        if any(np.may_share_memory(guard.owner, array) for array in written):
            self._op_by_op(
                f"it reads {guard.path} in Python, and writes a tensor on its memory",
                line=guard.place(),
            )

    def depended_on(self, live: Set[int]) -> list[Guard]:
        """The guards of all that the step has read.

        live: identities of the owners of memory that the program reads at each call.
        """
        written = self.written_arrays()
        found: list[Guard] = []
        for reason, line in self._refusals:
            self._op_by_op(reason, line=line)
        for guard in self.guards.values():
            if type(guard) is ArrayGuard and guard.was_read:
                if guard.is_given and id(owner_of(guard.owner)) in live:
                    continue
                self._refuse_stale(guard, written)
                if guard.expected.nbytes > MOST_COMPARED:
                    self._restart_with(guard.source, "computes with")
                    self._op_by_op(
                        f"it computes with {guard.path}, an array of {guard.expected.nbytes:,} "
                        "bytes, which each call would have to compare",
                        "make a tensor of it outside of the compiled function, or pass it",
                        guard.place(),
                    )
            if guard.was_read:
                found.append(guard)
        return found

    def changes(self) -> list[tuple[MutableSource, Any]]:
        """The places that hold something else now, with what they held.

        Gives the trace up for other changes of Python state.
        """
        found: dict[Identity, tuple[MutableSource, Any]] = {}
        for guard in self.guards.values():
            if isinstance(guard, ContentsGuard):
                for place, before in self._changed_contents(guard):
                    found[place.identity] = place, before
        moved = {place.identity[0] for place, _ in found.values() if place.key is CONTENTS}
        for guard in self.guards.values():
            if isinstance(guard, EntryGuard) and not isinstance(guard, FieldGuard):
                is_other = not guard.holds() or self._is_only_written(guard)
                if id(guard.owner) not in moved and is_other:
                    place = source_of(guard)
                    found.setdefault(place.identity, (place, guard.expected))
            elif isinstance(guard, ArrayGuard) and not guard.holds():
                if self._may_have_written(guard.owner):
                    self._restart_with(guard.source, "writes")
                    self._op_by_op(
                        f"it changes {self.path_of(guard.owner)}, an array of NumPy's",
                        "keep it in a tensor and write that in place (self.n[0] += 1), or change "
                        "it outside of the compiled function",
                        self._lines[id(guard.owner), "array"],
                    )
            elif isinstance(guard, TensorGuard) and not guard.has_its_hooks():
                self._op_by_op(f"it changes the hooks of {guard.path}")
        return list(found.values())

    def _is_only_written(self, guard: EntryGuard) -> bool:
        """Whether the step sets a place, without reading it, to what happens to be there now."""
        if guard.was_read or (guard.expected is ABSENT and guard.gated):
            return False  # in a module's registers, most names are absent
        is_librarys = isinstance(guard.key, str) and guard.key.startswith(LIBRARYS_ATTRIBUTES)
        return not is_librarys and identity_of(guard.owner, guard.key) in self._lines

    def _changed_contents(self, guard: ContentsGuard) -> Iterator[tuple[MutableSource, Any]]:
        """The places in a container that hold something else now, or may have moved."""
        owner, path = guard.owner, guard.path
        done = self._appended.get(id(owner))
        is_unseen = id(owner) not in self._looked_at | self._measured
        is_only_added_to = is_unseen and not guard.was_read
        if done is not None and is_only_added_to:
            yield AppendEffect(path, owner, done), guard.expected
        elif guard.holds():
            return
        elif has_kept_its_order(owner, guard.expected) and (
            isinstance(owner, dict) or identity_of(owner, CONTENTS) not in self._lines
        ):
            for key, before in list(guard.changed()):
                if guard.holder is None:
                    name = f"{path}[{self.text_of(key)}]"
                else:
                    name = f"{path}.{key}"
                if isinstance(key, weakref.ref) and not callable(item_at(owner, key)):
                    line = self._lines.get(identity_of(owner, CONTENTS))
                    self._op_by_op(f"it changes {path}, whose keys are weak references", line=line)
                if not (isinstance(key, str) and key.startswith(LIBRARYS_ATTRIBUTES)):
                    yield MutableSource(name, owner, key_of(key), guard.gated), before
        else:
            guard.was_read = True  # what the step leaves has the rest of it
            is_list = type(owner) in (list, deque)
            place = GrowingList(path, owner) if is_list else MutableSource(path, owner, CONTENTS)
            yield place, guard.expected

    def was_read(self, place: MutableSource) -> bool:
        """Whether the step depends on what a place held before."""
        if isinstance(place, TensorProperty):
            return True
        guards = [self.guards.get(place.identity), self.guards.get((id(place.owner), CONTENTS))]
        if place.key is CONTENTS:
            guards += [self.guards.get((len, id(place.owner)))]
            guards += self._entries.get(id(place.owner), ())
        return any(guard is not None and guard.was_read for guard in guards)

    @property
    def has_hosts(self) -> bool:
        """Whether a host call of the step changes Python objects."""
        return bool(self._of_hosts)

    def note_host(
        self,
        name: str,
        guards: Iterable[PlaceGuard | ArrayGuard],
        given: Set[int],
    ) -> None:
        """Note the places that a host call changes: no other part of the step may use them.

        given: identities of the host call's arguments.
        """
        for guard in guards:
            is_entry = isinstance(guard, EntryGuard)
            key = guard.key if is_entry else CONTENTS  # type: ignore[union-attr]
            changed = guard.subject()
            is_of_call = id(changed) in self._given or self._age.is_new(changed)
            if not is_of_call and id(changed) in given:
                is_of_call = not self.was_there(changed)  # such as a dict of numbers
            if is_of_call and not isinstance(changed, Node):  # a ctx is the host call's own
                self._op_by_op(
                    f"{name}, a host call, changes {guard.path}, which is another one in each call"
                )
            is_array = isinstance(guard, ArrayGuard)
            identity = identity_of(owner_of(guard.owner) if is_array else guard.owner, key)
            self._of_hosts[identity] = name
            known = (identity, (identity[0], CONTENTS))
            for met in (*self.guards, *self._apart, *self._lines):
                if met in known or (not is_entry and id(guard.owner) in met):
                    self._refuse_of_host(guard.path, name)

    def _refuse_changed(self, path: str, owner: Any, key: Any) -> None:
        """Give up where what a host call changes is about to be read or changed."""
        identity = identity_of(owner, key)
        self._refuse_stored(path, identity[0])
        changed = self.changed_at_end.get(identity[0], ABSENT)
        if changed is not ABSENT and not isinstance(owner, ClassAttributes):
            has_method = isinstance(key, str) and callable(getattr(type(changed), key, None))
            if changed is not owner and has_method and item_at(owner, key) is ABSENT:
                return
            self._op_by_op(f"it reads or changes {path}, which may listen to what the step tells")
        for changed, name in self._of_hosts.items():
            is_whole = CONTENTS in (key, changed[1]) and changed[0] == identity[0]
            if is_whole or changed == identity:
                self._refuse_of_host(path, name)

    def _refuse_stored(self, path: str, owner: int) -> None:
        """Begin again with known keys where the step looks into what it has filled."""
        if owner in self.stored_at_end:
            lines = [self.stored_at_end[owner]]
            self.begin_again(f"looks into {path}, which it fills", "looked_at", lines)

    def is_only_filled(self, owner: object) -> bool:
        """Whether a container was there before, and the step hasn't looked into it so far."""
        return self.was_there(owner) and id(owner) not in self._looked_at

    def _refuse_of_host(self, path: str, name: str) -> NoReturn:
        self._op_by_op(f"it reads or changes {path}, which {name}, a host call, changes")

    def put_back(self) -> None:
        """Restore the Python values that the step changed."""
        for kind in (ContentsGuard, Guard):  # entries are where their containers have them
            for guard in reversed(self.guards.values()):  # a view of an array may be older than it
                is_bound = isinstance(guard, kind) and not isinstance(guard, _IS_ASKED)
                if is_bound and not guard.holds() and self._goes_back(guard):
                    guard.put_back()
        self.is_put_back = True

    def _goes_back(self, guard: Guard) -> bool:
        if isinstance(guard, ArrayGuard) and not self._may_have_written(guard.owner):
            return False
        return self._is_finished or self._is_of_outside(guard)

    def _may_have_written(self, array: np.ndarray) -> bool:
        """Whether the step has, or code that it handed the array to; else another thread has."""
        return (id(array), "array") in self._lines


_IS_ASKED = AnswerGuard, FieldGuard


def _take_none(entry: MovingEntry) -> Any:
    return ABSENT


def index_of(array: np.ndarray, view: np.ndarray) -> tuple[Any, ...] | None:
    """The index of ints and ranges that gives a view of an array; None: there is none."""
    offset = address_of(view) - address_of(array)
    is_dense = array.flags.c_contiguous or array.flags.f_contiguous
    if not is_dense or not 0 <= offset < array.nbytes or array.dtype != view.dtype:
        return None
    axes = [(size, along) for size, along in zip(view.shape, view.strides, strict=True) if size > 1]
    index: list[Any] = [0] * array.ndim
    by_stride = sorted(zip(array.strides, array.shape, range(array.ndim), strict=True))
    for stride, size, axis in reversed(by_stride):
        start, offset = divmod(offset, stride)
        for count, along in axes:
            step, rest = divmod(along, stride)
            if not rest and step and 0 <= start + step * (count - 1) < size:
                stop = start + step * count
                index[axis] = slice(start, None if stop < 0 else stop, step)
                axes.remove((count, along))
                break
        else:
            index[axis] = start
    of_one = [i for i, size in enumerate(view.shape) if size == 1]
    ranges = [i for i, part in enumerate(index) if type(part) is slice]
    for i in reversed(of_one):  # before the range that is its next axis
        before = ranges[i - of_one.index(i) :]
        index.insert(before[0] if before else len(index), None)
    found = array[*index, ...]
    is_there = address_of(found) == address_of(view) and not axes and found.shape == view.shape
    return tuple(index) if is_there and _steps(found) == _steps(view) else None


def _steps(array: np.ndarray) -> list[int]:
    """The strides of the axes along which there are several elements, in their order."""
    pairs = zip(array.strides, array.shape, strict=True)
    return [stride for stride, size in pairs if size > 1]


def _bytes_of_mask(array: np.ma.MaskedArray[Any, Any]) -> bytes:
    return bytes(np.ma.getmaskarray(array).tobytes())


def _is_container(value: Any) -> bool:
    """Whether a call is given an equal one made anew: a container, or an object with fields."""
    return isinstance(value, (*PLAIN, tuple, frozenset)) or is_record(value)


def at_line(place: Location | None) -> str:
    """The user's line for a message, on a line of its own."""
    return "" if place is None else f"\n  at {place}   {place.text}"
