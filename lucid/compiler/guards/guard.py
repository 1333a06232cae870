"""Guards: each says where a Python value was found, and whether the same value is there now.

An entry of a container or an attribute (`EntryGuard`), what no dict holds of an object
(`FieldGuard`), all of a container (`ContentsGuard`), NumPy's memory (`ArrayGuard`), what Python
answers when it is asked (`AnswerGuard`), and a tensor's memory, flag and hooks (`TensorGuard`).
"""

from __future__ import annotations

import ctypes
import itertools
import operator
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from lucid.autograd.hooks import hooks_of, remove_hooks
from lucid.compiler.inputs.objects import SCALARS, is_same
from lucid.compiler.inputs.scalars import is_whole
from lucid.ir.classes import isinstance
from lucid.ir.location import Location, line_of
from lucid.ir.whose_code import is_interrupt, is_librarys
from lucid.tensor.context import epoch
from lucid.tensor.core import TensorCore, ViewChain, attributes_of
from lucid.tensor.storage import Storage
from lucid.tensor.tree import items_of


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()


CONTENTS = "all entries"


def item_at(owner: Any, key: Any) -> Any:
    """`owner[key]`, a cell's content, or all entries; ABSENT where there is nothing.

    A `defaultdict` makes no entry.
    """
    if key is CONTENTS:
        return copy_of(owner)
    kind = type(owner)  # `isinstance` would take most of the time of a look for a program
    if issubclass(kind, dict):
        return dict.get(owner, key, ABSENT)
    try:
        if issubclass(kind, list):
            return list.__getitem__(owner, key)
        return owner.cell_contents if kind is types.CellType else owner[key]
    except (KeyError, IndexError, ValueError):
        return ABSENT


def identity_of_key(key: Any) -> Any:
    """What tells keys apart as a dict does: a tuple made anew is the same key."""
    if isinstance(key, SCALARS):
        return key
    if type(key) is tuple:
        return tuple(map(identity_of_key, key))
    equals: Any = type(key).__eq__
    is_itself = isinstance(key, (TensorCore, weakref.ref)) or equals is object.__eq__
    return id(key) if is_itself else key


def closure_of(function: types.FunctionType) -> dict[str, Any]:
    """The closure variables of a function that are bound, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    return {name: x for name, cell in cells if (x := item_at(cell, None)) is not ABSENT}


def put_at(owner: Any, key: Any, value: Any) -> None:
    """Put a value where `item_at` finds it; ABSENT deletes the entry."""
    if type(owner) is dict and key is not CONTENTS and value is not ABSENT:
        owner[key] = value  # as mostly
    elif key is CONTENTS:
        refill(owner, value)
    elif value is ABSENT and item_at(owner, key) is ABSENT:
        return
    elif isinstance(owner, types.CellType):
        if value is ABSENT:
            del owner.cell_contents
        else:
            owner.cell_contents = value
    else:
        kind, plain = type(owner), _plain_kind(owner)
        if not is_librarys(kind):  # an optimizer takes note; what a user's class does is done
            kind = plain
        if value is ABSENT:
            plain.__delitem__(owner, key)
            epoch.count += kind is not plain
        else:
            kind.__setitem__(owner, key, value)


def _plain_kind(owner: Any) -> Any:
    """The container's class or Python's own that it derives from."""
    kinds = (OrderedDict, dict, list, deque, set, frozenset)
    return next((kind for kind in kinds if isinstance(owner, kind)), type(owner))


def size_of(owner: Any) -> int:
    """How many entries there are, whatever a class of the user's makes of `len`."""
    size: int = _plain_kind(owner).__len__(owner)
    return size


def has_entry(owner: Any, index: int) -> bool:
    """Whether a list or deque is so long that it has an entry there."""
    return 0 <= index < size_of(owner)


def copy_of(owner: Any) -> Any:
    """The entries of a container: a dict, a frozenset or a list."""
    if isinstance(owner, dict):
        return dict(items_of(owner))
    entries = _plain_kind(owner).__iter__(owner)
    return frozenset(entries) if isinstance(owner, set) else list(entries)


def has_kept_its_order(owner: Any, before: Any) -> bool:
    """Whether at most entries were set; of a dict, also removed, or added at its end.

    before: the entries that a list, deque, dict or set had.
    """
    if isinstance(owner, dict):
        now = copy_of(owner)
        kept = [key for key in before if key in now]
        return [*now][: len(kept)] == kept
    return not isinstance(owner, set) and size_of(owner) == len(before)


def refill(owner: Any, content: Any) -> None:
    """Make these all entries of a container, by Python's own methods and not by its class's."""
    kind = _plain_kind(owner)
    if isinstance(owner, (set, dict, list, deque)):
        kind.clear(owner)
    if isinstance(owner, OrderedDict):  # whose `update` calls the `__setitem__` of a user's class
        for key, value in content.items():
            kind.__setitem__(owner, key, value)
    elif isinstance(owner, (set, dict)):
        kind.update(owner, content)
    elif isinstance(owner, (list, deque)):
        kind.extend(owner, content)


_generic_dict = ctypes.pythonapi.PyObject_GenericGetDict
_generic_dict.restype = ctypes.py_object
_generic_dict.argtypes = [ctypes.c_void_p, ctypes.c_void_p]  # a `py_object` would be unwrapped


def instance_dict(owner: Any) -> dict[str, Any] | None:
    """An object's own attributes, whatever its class says that they are; None: no `__dict__`."""
    if isinstance(owner, type):
        return None
    try:
        found = _generic_dict(id(owner), None)
    except AttributeError:
        return None
    except ctypes.ArgumentError as error:  # what ctypes makes of it, when the stack is at its end
        raise RecursionError(str(error)) from None
    return found if isinstance(found, dict) else None


def asked_of(tensor: TensorCore, asked: Set[str]) -> Set[str]:
    """What users have bound to a tensor under names that a step asks for: `CONTENTS` for all."""
    if not asked:
        return asked
    bound = attributes_of(tensor).keys()
    return bound if CONTENTS in asked else bound & asked


def identities_of(owner: Any) -> tuple[int, ...]:
    """The identities of an object and of its `__dict__`, the owners of its guarded places."""
    return (id(owner), id(instance_dict(owner))) if type(owner).__dictoffset__ else (id(owner),)


def field_of(owner: Any, name: str) -> Any:
    """What a `FieldGuard` looks at, whatever the object says that it is."""
    if name == "__class__":
        return type(owner)
    return instance_dict(owner) if name == "__dict__" else getattr(owner, name)


class Attributes:
    """An object's attributes as a mapping, where it has no `__dict__` to look into."""

    __slots__ = ("of",)

    def __init__(self, of: object) -> None:
        self.of = of

    def __getitem__(self, name: str) -> Any:
        try:
            return field_of(self.of, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        bind = setattr if _writes_alone(self.of, "__setattr__") else object.__setattr__
        bind(self.of, name, value)

    def __delitem__(self, name: str) -> None:
        unbind = delattr if _writes_alone(self.of, "__delattr__") else object.__delattr__
        unbind(self.of, name)


def _writes_alone(owner: Any, name: str) -> bool:
    """Whether an object's special method is in C: one in Python has run as part of the step."""
    is_pythons = isinstance(getattr(type(owner), name), types.FunctionType)
    return isinstance(owner, type) or not is_pythons


class ClassAttributes(Attributes):
    """A class's own attributes, unbound."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        return vars(self.of)[name]


# Iterators in C that tell how far they have come.
OF_ITEMS: tuple[type, ...] = (type(iter([])), type(iter(())))
ITERATORS: tuple[type, ...] = (*OF_ITEMS, itertools.count)


def number_of(count: Any) -> ctypes.c_ssize_t:
    """The memory in which an `itertools.count` by ones has its number, which no method sets."""
    return ctypes.c_ssize_t.from_address(id(count) + object.__basicsize__)


def counts_by_ones(iterator: Any) -> bool:
    """Whether it is an `itertools.count` by ones, of which the number is known."""
    if type(iterator) is not itertools.count:
        return False
    number = number_of(iterator).value
    return abs(number) < 2**62 and repr(iterator) == f"count({number})"


def is_exhausted(iterator: Any) -> bool:
    """Whether an iterator of a list or tuple has told that it is at its end, and let go of it."""
    return len(iterator.__reduce__()) == 2


class Progress(Attributes):
    """An iterator's position as an entry, `at`, and the list or tuple that it is of, `items`.

    The position of an `itertools.count` is its number. While a step is traced, the position may be
    a live number, which the iterator itself can't hold.
    """

    __slots__ = ()

    _standing: ClassVar[dict[int, Any]] = {}  # by the identity of the iterator

    def __getitem__(self, name: str) -> Any:
        of: Any = self.of
        if type(of) is itertools.count:
            return self._standing.get(id(of), number_of(of).value)
        _, given, *at = of.__reduce__()
        if name == "items":
            return given[0]
        return self._standing.get(id(self.of), *at or [len(given[0])])

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "items":
            return  # which stay, unless it is at its end
        if type(value) is int:
            self._standing.pop(id(self.of), None)
            if type(self.of) is itertools.count:
                number_of(self.of).value = value
            else:
                self.of.__setstate__(value)  # type: ignore[attr-defined]
                if value > len(self["items"]):  # it has told that there is no more
                    next(self.of, None)  # type: ignore[call-overload]
        else:
            self.stand_at(value)

    def stand_at(self, value: Any) -> None:
        """Let a trace find this position, until another one is put."""
        self._standing[id(self.of)] = value


def is_number(value: Any) -> bool:
    """Whether a value can be an input of the step that is read at each call."""
    return type(value) is float or isinstance(value, np.floating) or is_whole(value)


def _itself(thing: Any) -> Any:
    return thing


@dataclass(slots=True, eq=False)
class Guard:
    """A Python value that the step was specialized on.

    Attributes:
        path: how the user gets at it.
        expected: the value that was found; a copy of one that can change.
        was_read: False where the trace has only written it: then no call depends on what it was.
        gated: whether it belongs to a Module or a tensor, whose changes move the epoch.
        moves: whether each call binds what the next one finds, and expects that from then on.
        at: the code and the offset of the instruction that read it first.
    """

    path: str
    expected: Any
    at: tuple[types.CodeType, int] | None = field(default=None, kw_only=True)
    was_read: bool = field(default=True, kw_only=True)
    gated: bool = field(default=False, kw_only=True)
    moves: bool = field(default=False, kw_only=True)

    def found(self) -> Any:
        """What is there now."""
        raise NotImplementedError

    def holds(self) -> bool:
        """Whether it is what it was."""
        return is_same(self.found(), self.expected, by_content=True)

    def failure(self) -> str:
        """The change, for messages: old -> new."""
        return f"{self.path}: {brief(self.expected)} -> {brief(self.found())}"

    def place(self) -> Location | None:
        """The user's line that read it first."""
        found = line_of(self.at)
        return None if found is None else Location(*found)

    def put_back(self) -> None:
        """Restore the value where the trace has changed it."""

    def looked_into(self) -> Sequence[Any]:
        """The containers, objects and tensors that it looks into."""
        return ()

    def subject(self) -> Any:
        """The object whose age decides whether it is dropped; None: none does."""
        return next((x for x in self.looked_into() if not isinstance(x, SCALARS)), None)

    def shown(self) -> Iterable[Any]:
        """The objects that it compares by identity."""
        return (self.expected,)

    def keys(self) -> Iterable[Any]:
        """The objects that it holds and that `follow` can't replace."""
        return ()

    def pairs(self, of: Callable[[Any], Any] = _itself) -> Iterable[tuple[Any, Any]]:
        """The objects at its places, each with what is there now, in the images of containers."""
        return ()

    def follow(self, of: Callable[[Any], Any]) -> None:
        """Compare the images of objects from now on."""
        self.expected = of(self.expected)


@dataclass(slots=True, eq=False)
class PlaceGuard(Guard):
    """An entry, or all entries, of a container.

    Attributes:
        owner: the container, for `item_at`.
        holder: the object whose attributes these are.
    """

    owner: Any
    holder: Any = field(default=None, kw_only=True)

    def looked_into(self) -> Sequence[Any]:
        return (self.owner.of if isinstance(self.owner, Attributes) else self.owner,)

    def subject(self) -> Any:
        return self.looked_into()[0] if self.holder is None else self.holder

    def follow(self, of: Callable[[Any], Any]) -> None:
        self.owner, self.expected = of(self.owner), of(self.expected)


@dataclass(slots=True, eq=False)
class EntryGuard(PlaceGuard):
    """An entry of a dict or list, an attribute, a global, or what is in a closure's cell.

    ABSENT is expected where there is nothing.
    """

    key: Any

    def keys(self) -> Iterable[Any]:
        return (self.key,)

    def pairs(self, of: Callable[[Any], Any] = _itself) -> Iterable[tuple[Any, Any]]:
        return ((self.expected, item_at(of(self.owner), self.key)),)

    def found(self) -> Any:
        return item_at(self.owner, self.key)

    def holds(self) -> bool:
        return is_same(self.found(), self.expected)

    def put_back(self) -> None:
        if isinstance(self.owner, list) and self.key >= len(self.owner):
            return  # all its entries are put back at once
        put_at(self.owner, self.key, self.expected)


@dataclass(slots=True, eq=False)
class FieldGuard(EntryGuard):
    """What no dict holds of an object: its class, its `__dict__`, a function's code or defaults."""


@dataclass(slots=True, eq=False)
class ContentsGuard(PlaceGuard):
    """All entries of a list, deque, dict or set, and their order.

    Attributes:
        apart: identities of keys whose entries aren't compared: the step reads them at each call.
        was_valued: whether the trace has got hold of the entries' values as well.
        was_handed: whether code that isn't followed may have read the container.
    """

    apart: Set[Any] = frozenset()
    was_valued: bool = False
    was_handed: bool = False

    def found(self) -> Any:
        return copy_of(self.owner)

    def shown(self) -> Iterable[Any]:
        return self.expected.values() if isinstance(self.expected, dict) else self.expected

    def keys(self) -> Iterable[Any]:
        return () if isinstance(self.expected, list) else self.expected

    def pairs(self, of: Callable[[Any], Any] = _itself) -> Iterable[tuple[Any, Any]]:
        was, now = self.expected, copy_of(of(self.owner))
        if isinstance(was, dict):
            return [(x, now[key]) for key, x in was.items() if key in now]
        is_list = isinstance(was, list) and len(was) == len(now)
        return zip(was, now, strict=True) if is_list else ()

    def follow(self, of: Callable[[Any], Any]) -> None:
        self.owner = of(self.owner)
        if isinstance(self.expected, dict):
            self.expected = {key: of(x) for key, x in self.expected.items()}
        elif isinstance(self.expected, list):
            self.expected = [*map(of, self.expected)]

    def holds(self) -> bool:
        owner, expected = self.owner, self.expected
        if size_of(owner) != len(expected):
            return False
        if isinstance(owner, set):
            return bool(set.__eq__(owner, expected))
        keys: Iterable[Any] = range(len(expected))
        now, before = owner, expected
        if isinstance(owner, dict):
            entries = self.found()
            if [*entries] != [*expected]:
                return False
            keys, now, before = expected, entries.values(), expected.values()
        elif type(owner) not in (list, deque):
            now = self.found()
        return all(map(operator.is_, now, before)) or all(
            is_same(found, was) or identity_of_key(key) in self.apart
            for key, found, was in zip(keys, now, before, strict=True)
        )

    def failure(self) -> str:
        owner, expected = self.owner, self.expected
        if isinstance(owner, set):
            return f"{self.path}: {brief(set(expected))} -> {brief(owner)}"
        if size_of(owner) != len(expected):
            return f"len({self.path}): {len(expected)} -> {size_of(owner)}"
        for key, before in self.changed():
            return f"{self.path}[{key!r}]: {brief(before)} -> {brief(item_at(owner, key))}"
        return f"{self.path}: its entries are in another order"

    def changed(self) -> Iterator[tuple[Any, Any]]:
        """The entries that differ now: key, and the value before."""
        for key in self._keys():
            before = item_at(self.expected, key)
            is_same_one = is_same(item_at(self.owner, key), before)
            if not is_same_one and identity_of_key(key) not in self.apart:
                yield key, before

    def _keys(self) -> Iterable[Any]:
        """The keys or numbers of entries; of a dict also those of former ones."""
        if not isinstance(self.owner, dict):
            return range(size_of(self.owner))
        return dict.fromkeys((*self.expected, *dict.keys(self.owner)))

    def put_back(self) -> None:
        content, owner = self.expected, self.owner
        if self.apart and not isinstance(content, frozenset):
            content = content.copy()
            for key in [x for x in self._keys() if identity_of_key(x) in self.apart]:
                now = item_at(owner, key)
                if item_at(content, key) is ABSENT and now is not ABSENT:
                    content[key] = now
                elif now is ABSENT and isinstance(content, dict):
                    content.pop(key, None)
        refill(owner, content)


@dataclass(slots=True, eq=False)
class ArrayGuard(Guard):
    """The contents of a NumPy array from outside, with which Python computed; or a part of them.

    A tensor that is made on such an array reads it at each call, and needs no guard.

    Attributes:
        key: the index of the part; ABSENT: all of it.
        is_given: whether it was only given to the library, or seen by another array on its memory.
        source: path and array that each call could read live in its place; see `_source_of`.
    """

    owner: np.ndarray
    key: Any
    is_given: bool = False
    source: tuple[str, np.ndarray] | None = None

    def found(self) -> Any:
        """The part as it is now; ABSENT where the array has become too small for it."""
        try:
            return np.asarray(self.owner if self.key is ABSENT else self.owner[self.key])
        except IndexError:
            return ABSENT

    def looked_into(self) -> Sequence[Any]:
        return (self.owner,)

    def failure(self) -> str:
        return f"{self.path}: the contents of the array changed"

    def put_back(self) -> None:
        if self.key is ABSENT:
            self.owner[...] = self.expected


@dataclass(slots=True, eq=False)
class AnswerGuard(Guard):
    """The answer of `ask(*args)`, for state that is in no entry or attribute."""

    ask: Callable[..., Any]
    args: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        self.args = _Asked(self.args)

    def looked_into(self) -> Sequence[Any]:
        return self.args

    def shown(self) -> Iterable[Any]:
        return (self.expected, *self.args)

    def keys(self) -> Iterable[Any]:
        return (self.ask,)

    def pairs(self, of: Callable[[Any], Any] = _itself) -> Iterable[tuple[Any, Any]]:
        if self.ask not in (getattr, value_in):
            return ()
        return ((self.expected, AnswerGuard("", None, self.ask, (*map(of, self.args),)).found()),)

    def follow(self, of: Callable[[Any], Any]) -> None:
        self.args, self.expected = _Asked(map(of, self.args)), of(self.expected)

    def found(self) -> Any:
        try:
            answer = self.ask(*self.args)
        except Exception as error:
            if is_interrupt(error):
                raise
            return type(error)
        return answer if self.ask is value_in else frozen(answer)

    def holds(self) -> bool:
        if self.ask is layout_of:  # numbers, which are compared at each call
            return bool(layout_of(*self.args) == self.expected)
        return is_same(self.found(), self.expected, by_content=self.ask is not value_in)


class _Asked(tuple[Any, ...]):
    """A tuple of a guard's, as told apart from the user's among the referrers of an object."""

    __slots__ = ()


# An array's layout, which the user may set in place.
layout_of = operator.attrgetter("shape", "strides", "dtype")


def value_in(variable: ContextVar[Any]) -> Any:
    """What a context variable holds, a container itself; `ABSENT`: nothing."""
    return variable.get(ABSENT)


def default_of(variable: ContextVar[Any]) -> Any:
    """What a context variable gives that holds nothing; None: it has no default."""
    try:
        return variable.get()
    except LookupError:
        return None


_FLAGS = type(np.empty(0).flags)


def frozen(answer: Any) -> Any:
    """An answer that can be compared: with tuples for lists, dicts and their like, made anew."""
    if isinstance(answer, dict):
        return tuple((key, frozen(value)) for key, value in answer.items())
    if isinstance(answer, (list, tuple)) and not is_librarys(type(answer)):
        return tuple(map(frozen, answer))
    return repr(answer) if isinstance(answer, _FLAGS) else answer


@dataclass(slots=True, eq=False)
class TensorGuard(Guard):
    """A tensor's memory, hooks, and whether it requires grad; changing them moves the epoch.

    Attributes:
        expected: whether it requires grad; is_leaf: whether it has no history.
        memory: the storage and the view chain on it; None: these aren't compared.
    """

    tensor: TensorCore
    is_leaf: bool
    memory: tuple[Storage, ViewChain] | None
    hooks: dict[int, Any]

    def __post_init__(self) -> None:
        self.gated = True
        base = self.tensor._base  # a write to it changes a view
        for tensor in (self.tensor, self.tensor if base is None else base):
            epoch.watched[id(tensor)] = tensor

    def looked_into(self) -> Sequence[Any]:
        return (self.tensor,)

    def keys(self) -> Iterable[Any]:
        return self.hooks.values()

    def holds(self) -> bool:
        tensor = self.tensor
        wants = tensor._requires_grad if tensor._base is None else tensor.requires_grad
        return (
            wants == self.expected
            and (tensor._grad_fn is None) == self.is_leaf
            and not self.has_other_memory()
            and self.has_its_hooks()
        )

    def has_other_memory(self) -> bool:
        """Whether its storage or its view chain is another one, as after `w.t_()`."""
        if self.memory is None:
            return False
        storage, chain = self.memory
        tensor = self.tensor
        return tensor._storage is not storage or tensor._chain != chain

    def has_its_hooks(self) -> bool:
        return hooks_of(self.tensor).keys() == self.hooks.keys()

    def failure(self) -> str:
        now = hooks_of(self.tensor)
        if now.keys() != self.hooks.keys():
            added, removed = now.keys() - self.hooks.keys(), self.hooks.keys() - now.keys()
            return f"hooks of {self.path}: {len(added)} added, {len(removed)} removed"
        if self.has_other_memory():
            return f"{self.path}.data: assigned anew"
        if self.tensor.requires_grad != self.expected:
            return f"{self.path}.requires_grad: {self.expected} -> {not self.expected}"
        return f"{self.path}.is_leaf: {self.is_leaf} -> {not self.is_leaf}"

    def put_back(self) -> None:
        """Remove the hooks that were added; the rest is restored by the recorder."""
        remove_hooks(self.tensor, besides=self.hooks.keys())


def brief(value: Any) -> str:
    """A value for a message, on one line."""
    if isinstance(value, TensorCore):
        return f"a tensor {value._type}"
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 and " at 0x" not in text else f"a {type(value).__name__}"
