"""Lists, deques and sets that a step writes and doesn't look at: each call writes them again.

Nothing tells who reads a list. So while the step is traced, something else stands wherever Python
finds it, which takes down what is written. Whoever looks at what is in it ends the trace: from then
on its contents are state of the step, as those of other places are.
"""

from __future__ import annotations

import gc
import operator
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lucid.compiler.inputs.watches import AnyWatch, Attributes, Watch
from lucid.compiler.surroundings.places import (
    CONTENTS,
    Contents,
    Identity,
    Members,
    Place,
    Variable,
)
from lucid.ir.errors import TraceError
from lucid.tensor.context import context

Written = tuple[str, tuple[Any, ...]]  # a method, and what it was called with


class IsRead(BaseException):
    """The step looks at what is in a log: the trace starts again, with that as state.

    No `Exception`, so that a program that is being traced doesn't catch it.
    """

    def __init__(self, log: Log, is_looked_at: bool) -> None:
        self.place = log.as_state(is_looked_at)
        self.is_state = is_looked_at and not log.of_host


class Log(Place):
    """A list, deque or set to which each call does what the step did while it was traced.

    Attributes:
        of_host: whether it is here because host calls write it.
        stand_in: what stands for it while a step is traced.
    """

    __slots__ = ("_holders", "_replaced", "of_host", "stand_in")

    def __init__(self, path: str, owner: Any, of_host: bool = False) -> None:
        super().__init__(path, owner, CONTENTS)
        self.of_host = of_host
        self._holders: dict[Identity, Place] = {}
        self._replaced: list[tuple[Place, Any, Any]] = []
        self.stand_in: Any = None

    def as_state(self, is_looked_at: bool) -> Place:
        """The same place for a step that looks at what is in it."""
        if isinstance(self.owner, set):
            return Members(self.path, self.owner, CONTENTS)
        return Contents(self.path, self.owner, CONTENTS, is_looked_at=is_looked_at)

    def note_holders(self, watches: Iterable[AnyWatch], functions: Iterable[Any]) -> None:
        """Find out where Python finds the list."""
        for place in (*_watched(watches), *_defaults(functions)):
            if _replaced(place.found(), self.owner, None) is not None:
                self._holders[place.identity] = place

    def enter(self, recorder: object) -> None:
        """Let something else stand for the list, for the code whose ops go into `recorder`."""
        stand_in = self.stand_in = _STAND_INS[type(self.owner)](self, recorder)
        for place in self._holders.values():
            before = place.found()
            value = _replaced(before, self.owner, stand_in)
            if value is not None:
                place.put(value[0])
                self._replaced.append((place, before, place.found()))

    def leave(self) -> list[Written]:
        """Put the list back; return what was written.

        Raises `IsRead` when it was looked at, or written behind the back of what stood for it; also
        when that is still held by somebody, who could look at it later. Raises `TraceError` when
        a host call writes it as well.
        """
        stand_in, self.stand_in = self.stand_in, None
        if stand_in is None:
            return []
        self._put_back()
        written: list[Written] = stand_in._written
        is_looked_at, is_alone = stand_in._is_read, stand_in._is_alone()
        _refill(self.owner, stand_in._initial)
        if written and stand_in._host:
            raise conflict(self.path, stand_in._host)
        stand_in._written = []
        reference = weakref.ref(stand_in)
        del stand_in
        if reference() is not None:
            gc.collect()
        if is_looked_at or not is_alone or reference() is not None:
            raise IsRead(self, is_looked_at)
        return written

    @property
    def count(self) -> int:
        """How often it was written by now."""
        return len(self.stand_in._written)

    def copy(self) -> Any:
        """What is in it now."""
        return self.owner.copy()

    def note_host(self, name: str, before: Any) -> None:
        """Take what `name`, a host call, has left: it will do so at each call by itself."""
        if not _is_same(self.owner, before):
            self.stand_in._host = name
            self.stand_in._shadow = self.owner.copy()

    def restore(self, before: Any) -> None:
        """Undo what a host call that failed has left."""
        _refill(self.owner, before)

    def settle(self) -> None:
        """Undo what host calls have left, but for the knowledge of it."""
        stand_in = self.stand_in
        if stand_in is not None and stand_in._host:
            stand_in._is_others |= not stand_in._is_alone()
            _refill(self.owner, stand_in._initial)
            stand_in._shadow = self.owner.copy()

    def _put_back(self) -> None:
        while self._replaced:
            place, before, value = self._replaced.pop()
            if place.found() is value:  # else the step has bound it anew
                place.put(before)

    def put(self, value: list[Written]) -> None:
        for name, args in value:
            getattr(self.owner, name)(*args)


def conflict(path: str, host: str) -> TraceError:
    """What to raise when the traced code and a host call write the same."""
    return TraceError(
        f"Python state changed while the step was traced: {path}, which {host}, a host call, "
        "changes as well\n"
        "Nobody knows then what it is after a call.\n"
        "hint: change it in one place"
    )


def real(value: Any) -> Any:
    """The list itself, for what stands for it."""
    return value._of.owner if isinstance(value, _StandIn) else value


def _is_same(now: Any, expected: Any) -> bool:
    if isinstance(now, set):
        return bool(now == expected)
    return len(now) == len(expected) and all(map(operator.is_, now, expected))


def _refill(owner: Any, content: Any) -> None:
    if _is_same(owner, content):
        return
    owner.clear()
    owner.update(content) if isinstance(owner, set) else owner.extend(content)


def can_be_log(value: Any) -> bool:
    """Whether something can stand for a value of that type."""
    return type(value) in _WRITES


# ---------------------------------------------------------------------- where Python finds it


def _watched(watches: Iterable[AnyWatch]) -> Iterator[Place]:
    for watch in watches:
        if isinstance(watch, Watch):
            kind = Variable if watch.key is None else Place
            yield kind(watch.path, watch.owner, watch.key)


def _defaults(functions: Iterable[Any]) -> Iterator[Place]:
    for function in functions:
        if isinstance(function, types.FunctionType):
            yield Place("", Attributes(function), "__defaults__")


def _replaced(value: Any, old: Any, new: Any) -> tuple[Any] | None:
    """What a value is with `new` for `old`, in a tuple; None: it doesn't lead there."""
    if value is old:
        return (new,)
    if isinstance(value, types.BuiltinMethodType) and value.__self__ is old:
        return (getattr(new, value.__name__, None),)
    if type(value) is types.MethodType and value.__self__ is old:
        return (getattr(new, value.__name__),)
    if not isinstance(value, tuple):
        return None
    items = [_replaced(item, old, new) for item in value]
    if not any(items):
        return None
    found = [x if item is None else item[0] for x, item in zip(value, items, strict=True)]
    kind = type(value)
    return (kind(*found) if hasattr(kind, "_fields") else kind(found),)


# ---------------------------------------------------------------------- what stands for it

_WRITES: dict[type, frozenset[str]] = {
    list: frozenset({"append", "extend", "insert", "clear"}),
    deque: frozenset({"append", "appendleft", "extend", "extendleft", "clear"}),
    set: frozenset({"add", "discard", "update", "difference_update", "clear"}),
}
_ITERATE = frozenset({"extend", "extendleft", "update", "difference_update"})
_OF_ALL_OBJECTS = frozenset(
    {
        *("__class__", "__new__", "__init__", "__getattribute__", "__setattr__", "__delattr__"),
        *("__init_subclass__", "__subclasshook__", "__class_getitem__", "__doc__", "__hash__"),
    }
)
_REFLECTED = frozenset({"__radd__", "__rmul__", "__ror__", "__rand__", "__rsub__", "__rxor__"})


class _StandIn:
    """Takes down what is written; looking at it raises `IsRead`, of the log.

    Other threads, and host calls, have the list itself.
    """

    __slots__ = (
        *("__weakref__", "_host", "_initial", "_is_others", "_is_read", "_of", "_recorder"),
        *("_shadow", "_thread", "_written"),
    )

    def __init__(self, log: Log, recorder: object) -> None:
        self._of = log
        self._recorder = recorder
        self._initial = log.owner.copy()
        self._shadow = log.owner.copy()  # what is in the list but for what goes behind our back
        self._host = ""  # that has written it
        self._written: list[Written] = []
        self._is_read = self._is_others = False
        self._thread = threading.get_ident()

    def _is_alone(self) -> bool:
        """Whether nobody else of this thread wrote the list."""
        return not self._is_others and _is_same(self._of.owner, self._shadow)

    def _is_recorded(self) -> bool:
        return context.recorder is self._recorder and threading.get_ident() == self._thread

    def _pass_on(self, name: str, args: tuple[Any, ...]) -> Any:
        """Do to the list what another thread or a host call does."""
        if threading.get_ident() != self._thread:
            getattr(self._initial, name)(*args)
            getattr(self._shadow, name)(*args)
        found = getattr(self._of.owner, name)(*args)
        return self if found is self._of.owner else found


def _writing(name: str) -> Callable[..., Any]:
    def write(self: _StandIn, *args: Any) -> Any:
        if not self._is_recorded():
            return self._pass_on(name, args)
        if name in _ITERATE:
            args = tuple(map(list, args))
        self._written.append((name, args))
        return None

    return write


def _writing_in_place(name: str) -> Callable[..., Any]:
    def write(self: _StandIn, other: Any) -> Any:
        getattr(self, name)(other)
        return self

    return write


def _reading(name: str) -> Callable[..., Any]:
    def read(self: _StandIn, *args: Any, **options: Any) -> Any:
        if self._is_recorded():
            self._is_read = True
            raise IsRead(self._of, is_looked_at=True)
        return getattr(self._of.owner, name)(*args, **options)

    return read


def _stand_in_for(kind: type) -> type[_StandIn]:
    """A class with the methods of `kind`, which it passes for in `isinstance`."""
    names = (*dir(kind), *_REFLECTED)
    methods: dict[str, Any] = {
        name: _reading(name)
        for name in names
        if name not in _OF_ALL_OBJECTS and callable(getattr(kind, name, len))
    }
    methods |= {name: _writing(name) for name in _WRITES[kind]}
    in_place = {"__ior__": "update"} if kind is set else {"__iadd__": "extend"}
    methods |= {name: _writing_in_place(of) for name, of in in_place.items()}
    methods |= {"__slots__": (), "__class__": property(lambda _: kind)}
    if kind is deque:
        methods["maxlen"] = property(lambda self: self._of.owner.maxlen)
    return type(f"_StandInFor{kind.__name__.title()}", (_StandIn,), methods)


_STAND_INS = {kind: _stand_in_for(kind) for kind in _WRITES}
