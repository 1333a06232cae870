"""Python values that a trace depends on: each can say whether it still holds, and be put back."""

from __future__ import annotations

import math
import types
from collections import OrderedDict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lucid.autograd.node import Edge
from lucid.tensor.context import epoch
from lucid.tensor.core import TensorCore

SCALARS = (int, float, bool, str, bytes, type(None))


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


@dataclass(slots=True)
class Watch:
    """One Python value that the trace could have read.

    Attributes:
        path: how the user gets at it.
        owner, key: where it stands: `owner[key]`, or the contents of a closure cell (key None).
        expected: what was there; ABSENT: nothing.
        in_module: whether it belongs to a Module, whose changes move the epoch.
        attribute: the name it is read by, for attributes of objects; else None.
        code: the function that reads it, for globals and closures; else None.
    """

    path: str
    owner: Any
    key: Any
    expected: Any
    in_module: bool
    attribute: str | None = None
    code: types.CodeType | None = None

    def found(self) -> Any:
        if self.key is not None:
            return item_at(self.owner, self.key)
        try:
            return self.owner.cell_contents
        except ValueError:
            return ABSENT

    def holds(self) -> bool:
        return is_same(self.found(), self.expected)

    def failure(self) -> str:
        return f"{self.path}: {brief(self.expected)} -> {brief(self.found())}"

    def put_back(self) -> None:
        self.put(self.expected)

    def put(self, value: Any) -> None:
        """Let a value be there, or nothing: ABSENT."""
        if self.key is None and value is not ABSENT:
            self.owner.cell_contents = value
        elif value is not ABSENT:
            self.owner[self.key] = value
        elif self.found() is not ABSENT:
            if self.key is None:
                del self.owner.cell_contents
            else:
                del self.owner[self.key]


def is_same(found: Any, expected: Any) -> bool:
    """Whether a value is what it was: the same object, or a number or text that is equal."""
    if found is expected:
        return True
    if type(found) is not type(expected) or not isinstance(found, SCALARS):
        return False
    if type(found) is float:
        both_nan = math.isnan(found) and math.isnan(expected)
        same_sign = math.copysign(1.0, found) == math.copysign(1.0, expected)
        return both_nan or (found == expected and same_sign)
    return bool(found == expected)


def is_number(value: Any) -> bool:
    """Whether a value can be an input of the step that is read at each call."""
    return type(value) in (int, float) or isinstance(value, np.floating)


@dataclass(slots=True)
class LengthWatch:
    """The number of entries of a list, dict or deque that was walked, or of a large set."""

    path: str
    owner: Any
    copy: Any  # None: of a large dict, or of a class of the user's
    expected: int
    in_module: bool

    def holds(self) -> bool:
        return len(self.owner) == self.expected

    def failure(self) -> str:
        return f"len({self.path}): {self.expected} -> {len(self.owner)}"

    def put_back(self) -> None:
        if self.copy is None:
            return
        if isinstance(self.owner, set):
            self.owner.clear()
            self.owner |= self.copy
        elif isinstance(self.owner, dict):
            kind = OrderedDict if isinstance(self.owner, OrderedDict) else dict
            kind.clear(self.owner)  # an optimizer's own methods would take note
            kind.update(self.owner, self.copy)
        else:
            self.owner.clear()
            self.owner.extend(self.copy)


@dataclass(slots=True)
class AbsenceWatch:
    """Names that an object's `__dict__`, a class or a module's globals don't have.

    Attributes:
        owner: the entries, or the attributes of a class.
        expected: what is there after all, while something is put back.
    """

    path: str
    owner: Any
    names: frozenset[str]
    in_module: bool
    expected: dict[str, Any] = field(default_factory=dict)

    @property
    def entries(self) -> Mapping[str, Any]:
        owner = self.owner
        return vars(owner.of) if isinstance(owner, ClassAttributes) else owner

    def found(self) -> dict[str, Any]:
        entries = self.entries
        return {name: entries[name] for name in sorted(self.names) if name in entries}

    def holds(self) -> bool:
        return self.names.isdisjoint(self.entries)

    def failure(self) -> str:
        name, value = next(iter(self.found().items()))
        return f"{self.path}{'.' if self.path else ''}{name}: {ABSENT} -> {brief(value)}"

    def put_back(self) -> None:
        for name in self.found().keys() - self.expected:
            del self.owner[name]
        for name, value in self.expected.items():
            self.owner[name] = value


@dataclass(slots=True)
class SetWatch:
    """The members of a set."""

    path: str
    owner: set[Any]
    expected: frozenset[Any]
    in_module: bool

    def holds(self) -> bool:
        return self.owner == self.expected

    def failure(self) -> str:
        return f"{self.path}: {brief(set(self.expected))} -> {brief(self.owner)}"

    def put_back(self) -> None:
        self.owner.clear()
        self.owner |= self.expected


@dataclass(slots=True)
class ArrayWatch:
    """The contents of a NumPy array from outside, which Python may have computed with.

    A tensor that is made on such an array reads it at each call, and needs no watch.
    """

    path: str
    array: np.ndarray
    expected: np.ndarray
    code: types.CodeType | None = None
    attribute: str | None = None
    in_module: bool = False

    def holds(self) -> bool:
        return self.array.tobytes() == self.expected.tobytes()

    def failure(self) -> str:
        return f"{self.path}: the contents of the array changed"

    def put_back(self) -> None:
        self.array[...] = self.expected


@dataclass(slots=True)
class FlagWatch:
    """A tensor's memory, hooks, and whether it requires grad; changing them moves the epoch.

    Attributes:
        expected: whether it requires grad; is_leaf: whether without a history.
        memory: what shows the memory, of one whose memory matters.
    """

    path: str
    tensor: TensorCore
    expected: bool
    is_leaf: bool
    storage: object  # None: it doesn't matter
    hooks: dict[int, Any]
    in_module: bool = True
    memory: TensorCore | None = None

    def __post_init__(self) -> None:
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


def _hook_dicts(tensor: TensorCore) -> list[dict[int, Any]]:
    """A leaf's hooks on its gradient, and those on its accumulation."""
    found = [tensor._hooks]
    node = None if tensor._accumulator is None else tensor._accumulator()
    if node is not None:
        found += [node.post_accumulate_hooks, node._pre_hooks, node._post_hooks]
    return [hooks for hooks in found if hooks]


def hooks_of(tensor: TensorCore) -> dict[int, Any]:
    """All hooks of a leaf by their numbers."""
    merged: dict[int, Any] = {}
    for hooks in _hook_dicts(tensor):
        merged |= hooks
    return merged


def remove_hooks(tensor: TensorCore, besides: Set[int]) -> None:
    """Remove a leaf's hooks, but for those with the given numbers."""
    for hooks in _hook_dicts(tensor):
        for number in hooks.keys() - besides:
            del hooks[number]


def remove_hooks_at(edge: Edge | None) -> None:
    """Remove the hooks on a gradient."""
    if edge is not None:
        hooks = edge[0]._hooks_at(edge[1])
        if hooks:
            hooks.clear()


AnyWatch = Watch | LengthWatch | AbsenceWatch | SetWatch | ArrayWatch | FlagWatch


def brief(value: Any) -> str:
    """A value for a message, on one line."""
    if isinstance(value, TensorCore):
        return f"a tensor {value._type}"
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 and " at 0x" not in text else f"a {type(value).__name__}"


class Guard:
    """All watches of a program, arranged so that one call's look at them costs little.

    Attributes:
        gated: those to look at only when the epoch moved.
        cells: with what must be in each; `items`: container, key and what must be there;
            `lengths`: containers with the number of their items, and where names are absent as long
            as there are no more; `others`: all else.
    """

    __slots__ = ("_absences", "cells", "gated", "items", "lengths", "others", "watches")

    def __init__(self, watches: list[AnyWatch]) -> None:
        self.watches = [watch for watch in watches if not watch.in_module]
        self.gated = [watch for watch in watches if watch.in_module]
        self.cells: list[tuple[Any, Any]] = []
        self.items: list[tuple[Any, Any, Any]] = []
        self.lengths: list[tuple[Any, int]] = []
        self.others: list[AnyWatch] = []
        self._absences: dict[int, AbsenceWatch] = {}
        for watch in self.watches:
            if isinstance(watch, LengthWatch):
                self.lengths.append((watch.owner, watch.expected))
            elif isinstance(watch, AbsenceWatch):
                self._absences[len(self.lengths)] = watch
                self.lengths.append((watch.entries, len(watch.entries)))
            elif (
                not isinstance(watch, Watch)
                or watch.expected is ABSENT
                or hasattr(watch.owner, "__missing__")  # which asking could change
            ):
                self.others.append(watch)
            elif watch.key is None:
                self.cells.append((watch.owner, watch.expected))
            else:
                owner = watch.owner
                if isinstance(owner, ClassAttributes):
                    owner = vars(owner.of)
                self.items.append((owner, watch.key, watch.expected))

    def failure(self) -> str | None:
        """The first watch that looks at every call and doesn't hold; None if all do."""
        try:
            for cell, expected in self.cells:
                if cell.cell_contents is not expected:
                    return self._first()
            for owner, key, expected in self.items:
                if owner[key] is not expected:
                    return self._first()
        except (ValueError, KeyError, IndexError):
            return self._first()
        for number, (owner, length) in enumerate(self.lengths):
            if len(owner) != length:
                absence = self._absences.get(number)
                if absence is None or not absence.holds():
                    return self._first()
                self.lengths[number] = owner, len(owner)  # something else is new there
        for watch in self.others:
            if not watch.holds():
                return watch.failure()
        return None

    def _first(self) -> str | None:
        return first_failure(self.watches)

    def gated_failure(self) -> str | None:
        return first_failure(self.gated)


def first_failure(watches: list[AnyWatch]) -> str | None:
    """Why the first watch that doesn't hold fails; None if all hold."""
    for watch in watches:
        if not watch.holds():
            return watch.failure()
    return None
