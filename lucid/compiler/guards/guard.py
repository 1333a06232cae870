"""Guards: each says where a Python value was found, and whether it still is what it was there."""

from __future__ import annotations

import itertools
import math
import operator
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lucid.autograd.hooks import hooks_of, remove_hooks
from lucid.compiler.inputs.live_math import original_of
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.inputs.tree import items_of
from lucid.ir.location import Location
from lucid.tensor.context import epoch
from lucid.tensor.core import TensorCore

SCALARS = (int, float, bool, str, bytes, complex, type(None))
AT_ONCE, IN_TURN = 4096, 1024  # entries that a call looks at; of larger containers a part in turn
BYTES_AT_ONCE, BYTES_IN_TURN = 1 << 18, 1 << 16  # the same for the contents of an array


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()


def item_at(owner: Any, key: Any) -> Any:
    """`owner[key]`, ABSENT where there is nothing; a dict isn't asked for what it makes then."""
    if isinstance(owner, dict):
        return dict.get(owner, key, ABSENT)
    try:
        return owner[key]
    except (KeyError, IndexError):
        return ABSENT


class Attributes:
    """An object's attributes as a mapping, where it has no `__dict__` to look into."""

    __slots__ = ("of",)

    def __init__(self, of: object) -> None:
        self.of = of

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self.of, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self.of, name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self.of, name)


class ClassAttributes(Attributes):
    """A class's own attributes, unbound."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        return vars(self.of)[name]


def is_same(found: Any, expected: Any) -> bool:
    """Whether a value is what it was: the same object, or a number or text that is equal."""
    if found is expected:
        return True
    kind = type(found)
    if kind is not type(expected) or is_live(found):
        return False
    if kind is float:
        both_nan = math.isnan(found) and math.isnan(expected)
        same_sign = math.copysign(1.0, found) == math.copysign(1.0, expected)
        return both_nan or (found == expected and same_sign)
    if kind is tuple or kind is slice:
        parts = (found, expected) if kind is tuple else map(_of_slice, (found, expected))
        return _are_same(*parts)
    if kind is types.MethodType:
        return found.__func__ is expected.__func__ and found.__self__ is expected.__self__
    if isinstance(found, np.ndarray):
        is_like = found.shape == expected.shape and found.dtype == expected.dtype
        return bool(is_like and found.tobytes() == expected.tobytes())
    if not isinstance(found, (*SCALARS, frozenset, range, np.generic)):
        return False
    return bool(found == expected)


def _of_slice(value: slice) -> tuple[Any, ...]:
    return value.start, value.stop, value.step


def _are_same(found: Any, expected: Any) -> bool:
    return len(found) == len(expected) and all(map(is_same, found, expected))


def is_number(value: Any) -> bool:
    """Whether a value can be an input of the step that is read at each call."""
    return type(value) in (int, float) or isinstance(value, np.floating)


@dataclass(slots=True, eq=False)
class Guard:
    """A Python value that the step was specialized on.

    Attributes:
        path: how the user gets at it.
        was_read: False where the trace has only written it: then no call depends on what it was.
        gated: whether it belongs to a Module or a tensor, whose changes move the epoch.
        at: the code that read it first, and which instruction.
    """

    path: str
    at: tuple[types.CodeType, int] | None = field(default=None, kw_only=True)
    was_read: bool = field(default=True, kw_only=True)
    gated: bool = field(default=False, kw_only=True)

    def holds(self) -> bool:
        """Whether it is what it was."""
        raise NotImplementedError

    def failure(self) -> str:
        """What has become of it, for messages: old -> new."""
        raise NotImplementedError

    def place(self) -> Location | None:
        """The user's line that read it first."""
        if self.at is None:
            return None
        code, offset = self.at
        for start, stop, line in code.co_lines():
            if start <= offset < stop and line is not None:
                return Location(code.co_filename, line)
        return None

    def put_back(self) -> None:
        """Let it be what it was again, where it was changed by the trace."""

    def moved_parts(self) -> Iterator[Guard]:
        """Of what is compared in turn, guards of what has changed, to be compared at each call."""
        return iter(())


@dataclass(slots=True, eq=False)
class EntryGuard(Guard):
    """An entry of a dict or list, an attribute, a global, or the contents of a closure's cell.

    Attributes:
        owner, key: where it stands: `owner[key]`, or what is in a cell (key None).
        expected: what was there; ABSENT: nothing.
        holder: the object whose attribute it is.
    """

    owner: Any
    key: Any
    expected: Any
    holder: Any = None

    def found(self) -> Any:
        if self.key is not None:
            return original_of(item_at(self.owner, self.key))
        try:
            return original_of(self.owner.cell_contents)
        except ValueError:
            return ABSENT

    def holds(self) -> bool:
        return is_same(self.found(), self.expected)

    def failure(self) -> str:
        return f"{self.path}: {brief(self.expected)} -> {brief(self.found())}"

    def put_back(self) -> None:
        value = self.expected
        if self.key is None and value is not ABSENT:
            self.owner.cell_contents = value
        elif value is not ABSENT:
            if isinstance(self.owner, list) and self.key >= len(self.owner):
                return  # all its entries are put back at once
            self.owner[self.key] = value
        elif self.found() is not ABSENT:
            if self.key is None:
                del self.owner.cell_contents
            else:
                del self.owner[self.key]


@dataclass(slots=True, eq=False)
class ContentsGuard(Guard):
    """All entries of a list, deque, dict or set, and their order.

    Of a large one each call looks at some of them, and the calls that follow at the others.

    Attributes:
        expected: a copy; of a dict, of any class, a dict.
        apart: keys of entries that the step reads at each call.
        was_valued: whether what is in it has been looked at as well.
    """

    owner: Any
    expected: Any
    apart: Set[Any] = frozenset()
    holder: Any = None
    was_valued: bool = False
    _turn: int = 0
    _keys: Sequence[Any] = ()

    def holds(self) -> bool:
        size = len(self.expected)
        if size <= AT_ONCE or len(self.owner) != size:
            return self.holds_whole()
        stop = min(self._turn + IN_TURN, size)
        if not self._holds_from(self._turn, stop):
            return False  # nor will it the next time that it's asked
        self._turn = stop % size
        return True

    def holds_whole(self) -> bool:
        """Whether all of it is what it was."""
        owner, expected = self.owner, self.expected
        if len(owner) != len(expected):
            return False
        if isinstance(owner, set):
            return bool(owner == expected)
        if not isinstance(owner, dict):
            return self._are_same(owner, expected, range(len(expected)))
        kind = OrderedDict if isinstance(owner, OrderedDict) else dict
        keys = list(expected)
        if not all(map(operator.is_, kind.keys(owner), keys)) and [*kind.keys(owner)] != keys:
            return False
        return self._holds_at(keys)

    def _holds_from(self, start: int, stop: int) -> bool:
        """Whether a part is; of a dict or a set, not its order."""
        owner, expected = self.owner, self.expected
        if isinstance(owner, (dict, set)):
            if not self._keys:
                self._keys = list(expected)
            keys = self._keys[start:stop]
            return owner.issuperset(keys) if isinstance(owner, set) else self._holds_at(keys)
        now = list(itertools.islice(owner, start, stop))
        return self._are_same(now, expected[start:stop], range(start, stop))

    def _holds_at(self, keys: Sequence[Any]) -> bool:
        now = [dict.get(self.owner, key, ABSENT) for key in keys]
        return self._are_same(now, [self.expected[key] for key in keys], keys)

    def _are_same(self, now: Any, before: Any, keys: Any) -> bool:
        if all(map(operator.is_, now, before)):
            return True
        return all(
            is_same(found, was) or key in self.apart
            for key, found, was in zip(keys, now, before, strict=True)
        )

    def failure(self) -> str:
        owner, expected = self.owner, self.expected
        if isinstance(owner, set):
            return f"{self.path}: {brief(set(expected))} -> {brief(owner)}"
        if len(owner) != len(expected):
            return f"len({self.path}): {len(expected)} -> {len(owner)}"
        for key, before, now in self.changed():
            return f"{self.path}[{key!r}]: {brief(before)} -> {brief(now)}"
        return f"{self.path}: its entries are in another order"

    def changed(self) -> Iterator[tuple[Any, Any, Any]]:
        """The entries that are something else now: key, what was there, what is."""
        owner, expected = self.owner, self.expected
        is_dict = isinstance(owner, dict)
        keys = dict.fromkeys((*expected, *dict.keys(owner))) if is_dict else range(len(owner))
        for key in keys:
            before = dict.get(expected, key, ABSENT) if is_dict else expected[key]
            now = item_at(owner, key)
            if key not in self.apart and not is_same(now, before):
                yield key, before, now

    def moved_parts(self) -> Iterator[Guard]:
        is_long = not isinstance(self.owner, set) and len(self.expected) > AT_ONCE
        if is_long and len(self.owner) == len(self.expected):
            for key, _, now in self.changed():
                yield EntryGuard(f"{self.path}[{key!r}]", self.owner, key, now)

    def put_back(self) -> None:
        content = self.expected
        if self.apart and not isinstance(content, frozenset):
            content = content.copy()
            for key in self.apart:
                if item_at(content, key) is ABSENT:
                    content[key] = item_at(self.owner, key)
        refill(self.owner, content)


def copy_of(owner: Any) -> Any:
    """The entries of a container, as a `ContentsGuard` keeps them."""
    if isinstance(owner, dict):
        return dict(items_of(owner))
    return frozenset(owner) if isinstance(owner, set) else list(owner)


def refill(owner: Any, content: Any) -> None:
    """Let a container have just these entries."""
    if isinstance(owner, set):
        owner.clear()
        owner |= content
    elif isinstance(owner, dict):
        kind = OrderedDict if isinstance(owner, OrderedDict) else dict
        kind.clear(owner)  # an optimizer's own methods would take note
        kind.update(owner, content)
    elif isinstance(owner, (list, deque)):
        owner.clear()
        owner.extend(content)


@dataclass(slots=True, eq=False)
class LengthGuard(Guard):
    """How many entries a container has."""

    owner: Any
    expected: int

    def holds(self) -> bool:
        return len(self.owner) == self.expected

    def failure(self) -> str:
        return f"len({self.path}): {self.expected} -> {len(self.owner)}"


@dataclass(slots=True, eq=False)
class ArrayGuard(Guard):
    """The contents of a NumPy array from outside, with which Python computed; or a part of them.

    A tensor that is made on such an array reads it at each call, and needs no guard.

    Attributes:
        key: which part; ABSENT: all of it.
        expected: a copy.
    """

    owner: np.ndarray
    key: Any
    expected: Any
    _turn: int = 0

    def part(self) -> Any:
        return self.owner if self.key is ABSENT else self.owner[self.key]

    def holds(self) -> bool:
        try:
            now = np.asarray(self.part())
        except IndexError:
            return False
        expected = self.expected
        if now.shape != expected.shape or now.dtype != expected.dtype:
            return False
        if now.dtype.hasobject:
            return _are_same(now.ravel().tolist(), expected.ravel().tolist())
        if now.nbytes <= BYTES_AT_ONCE:
            return bool(now.tobytes() == expected.tobytes())
        part = slice(self._turn, self._turn + max(BYTES_IN_TURN // now.itemsize, 1))
        elements = now.reshape(-1) if now.flags.c_contiguous else now.flat
        if elements[part].tobytes() != expected.reshape(-1)[part].tobytes():
            return False
        self._turn = 0 if part.stop >= now.size else part.stop
        return True

    def moved_parts(self) -> Iterator[Guard]:
        now, expected = np.asarray(self.part()), self.expected
        if now.nbytes > BYTES_AT_ONCE and now.shape == expected.shape:
            for index in zip(*np.nonzero(now != expected), strict=True):
                name = f"{self.path}[{', '.join(map(str, index))}]"
                yield ArrayGuard(name, now, index, np.array(now[index]))

    def holds_whole(self) -> bool:
        return is_same(np.asarray(self.part()), self.expected)

    def failure(self) -> str:
        return f"{self.path}: the contents of the array changed"

    def put_back(self) -> None:
        if self.key is ABSENT:
            self.owner[...] = self.expected


@dataclass(slots=True, eq=False)
class FieldGuard(Guard):
    """A part of an object that no dict holds: its class, a function's code or defaults.

    Attributes:
        name: of the attribute; `__class__` stands for `type(owner)`.
    """

    owner: Any
    name: str
    expected: Any

    def found(self) -> Any:
        return type(self.owner) if self.name == "__class__" else getattr(self.owner, self.name)

    def holds(self) -> bool:
        return self.found() is self.expected

    def failure(self) -> str:
        return f"{self.path}: {brief(self.expected)} -> {brief(self.found())}"

    def put_back(self) -> None:
        if self.name != "__class__":
            setattr(self.owner, self.name, self.expected)


@dataclass(slots=True, eq=False)
class AnswerGuard(Guard):
    """What Python answers when it is asked again: `ask(*args)`, of what no place shows."""

    ask: Callable[..., Any]
    args: tuple[Any, ...]
    expected: Any

    def found(self) -> Any:
        try:
            answer = self.ask(*self.args)
        except Exception as error:
            return type(error)
        return _frozen(answer)

    def holds(self) -> bool:
        return is_same(self.found(), self.expected)

    def failure(self) -> str:
        return f"{self.path}: {brief(self.expected)} -> {brief(self.found())}"


_FLAGS = type(np.empty(0).flags)


def _frozen(answer: Any) -> Any:
    """An answer, with tuples for what is made anew for each: lists, dicts, and their like."""
    if isinstance(answer, dict):
        return tuple((key, _frozen(value)) for key, value in answer.items())
    if isinstance(answer, (list, tuple)):
        return tuple(map(_frozen, answer))
    return repr(answer) if isinstance(answer, _FLAGS) else answer


@dataclass(slots=True, eq=False)
class TensorGuard(Guard):
    """A tensor's memory, hooks, and whether it requires grad; changing them moves the epoch.

    Attributes:
        expected: whether it requires grad; is_leaf: whether without a history.
        storage: its memory; None: that doesn't matter.
        memory: what shows the memory, of one whose memory matters.
    """

    tensor: TensorCore
    expected: bool
    is_leaf: bool
    storage: object
    hooks: dict[int, Any]
    memory: TensorCore | None = None

    def __post_init__(self) -> None:
        self.gated = True
        if self.storage is not None:
            self.memory = self.tensor._same_memory()
        base = self.tensor._base  # a write to it changes a view
        for tensor in (self.tensor, self.tensor if base is None else base):
            epoch.watched[id(tensor)] = tensor

    def holds(self) -> bool:
        tensor = self.tensor
        return (
            tensor.requires_grad == self.expected
            and (tensor._grad_fn is None) == self.is_leaf
            and not self.has_other_memory()
            and self.has_its_hooks()
        )

    def has_other_memory(self) -> bool:
        return self.storage is not None and self.tensor._storage is not self.storage

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
