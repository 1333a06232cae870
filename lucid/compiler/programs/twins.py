"""Programs for modules and optimizers that take the place of others of the same structure.

What a program knows of a model – parameters, moments, the numbers of groups, guards – it knows by
what these are, not by paths. Where a call is given another model, its parts are found beside those
of the earlier one, and a copy of the program gets them in their place; the code is shared. Guards
then compare the other model as they did the first one, so that one that differs has no twin.
"""

from __future__ import annotations

import gc
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from copy import copy
from functools import partial
from typing import Any

import numpy as np

from lucid.autograd.host_replay import HostCall
from lucid.compiler.guards.age import owner_of
from lucid.compiler.guards.following import (
    Images,
    are_alike,
    behind,
    have_like_variables,
    held_apart,
    held_by,
    is_known_by_place,
)
from lucid.compiler.guards.guard import (
    AnswerGuard,
    Attributes,
    ContentsGuard,
    FieldGuard,
    Guard,
    PlaceGuard,
    Progress,
    TensorGuard,
    closure_of,
    copy_of,
    instance_dict,
    item_at,
)
from lucid.compiler.guards.moving_entries import MovingEntry
from lucid.compiler.guards.mutable_sources import MutableSource
from lucid.compiler.guards.table import GuardTable
from lucid.compiler.inputs.objects import SCALARS, is_same
from lucid.compiler.results.output_specs import Constant
from lucid.compiler.results.replayed_effects import ReplayedEffects
from lucid.ir.classes import isinstance
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.types import DType, TensorType
from lucid.ir.whose_code import is_users
from lucid.tensor.context import epoch
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.tree import flatten

_PLAIN = (*SCALARS, type, types.ModuleType, types.CodeType, np.generic, DType)
_SHARED = (*_PLAIN, np.ndarray, TensorType, TensorCore, Storage, VersionCounter, Graph, Node, Value)
_OURS = ("guards", "inputs", "results", "recording.guards", "recording.deferred_calls")
_MODULES = tuple(f"lucid.compiler.{name}" for name in _OURS)
_CODE = (type, types.FunctionType)
_CONTAINERS = (list, dict, set, deque)
# Of what these say the user's objects are told apart from the compiler's own lists and dicts.
_USERS_FIELDS = frozenset(("owner", "holder", "value", "hooks", "key"))


class UnlikeError(Exception):
    """There is something of an earlier model for which another one has no counterpart."""


def _is_model(thing: Any) -> bool:
    """Whether it is a Module, an optimizer, or what steps the learning rates of one."""
    kind = type(thing)
    return issubclass(kind, epoch.movers) or hasattr(kind, "_state_like") or _is_schedule(kind)


def _is_schedule(kind: type) -> bool:
    return hasattr(kind, "_advance")


def _are_like_schedules(was: Any, now: Any) -> bool:
    """Whether a schedule calls the same functions of the user's; its numbers are those of calls."""
    called = [[x for x in flatten(instance_dict(y))[0] if callable(x)] for y in (was, now)]
    return len(called[0]) == len(called[1]) and all(
        x is y or (are_alike(x, y) and have_like_variables(x, y))
        for x, y in zip(*called, strict=True)
    )


def holds_parts(thing: Any) -> bool:
    """Whether all that matters of an object is in it as entries and attributes."""
    if _is_model(thing):
        return instance_dict(thing) is not None
    if is_known_by_place(thing):
        return True
    kind = type(thing)
    if kind is np.ndarray or kind is partial:
        return True
    is_plain = issubclass(kind, (dict, list)) or instance_dict(thing) == {}
    return is_plain and kind.__module__.startswith("lucid.")


class Counterparts(Images):
    """What stands now in the place of earlier objects, and their parts beside those of these.

    Args:
        is_written: whether the program writes a tensor that it has found.

    Attributes:
        undo: takes back what was made for it: the state that an optimizer has after its first step.
        are_models: whether there are modules or optimizers among them.
        roots: what was noted as such, not as parts.
    """

    def __init__(self, is_written: Callable[[TensorCore], bool]) -> None:
        super().__init__()
        self._is_written = is_written
        self.undo: list[Callable[[], object]] = []
        self.are_models = False
        self.roots: list[tuple[Any, Any]] = []
        self._same: dict[int, Any] = {}

    def pair(self, given: Iterable[tuple[Any, Any]]) -> None:
        """Note objects, each with what stands there now, and all of their parts."""
        waiting = deque(given)
        later: list[tuple[Any, Any]] = []
        self.roots += [(was, now) for was, now in waiting if was is not now]
        while waiting or later:
            if not waiting:  # keys are known by now
                waiting += self._entries(*later.pop())
                continue
            was, now = waiting.popleft()
            if was is now:
                if not isinstance(was, _PLAIN):
                    self._same[id(was)] = was
                continue
            if type(was) is not type(now) or isinstance(was, _PLAIN):
                continue
            if isinstance(was, tuple):
                waiting += zip(was, now, strict=True) if len(was) == len(now) else ()
                continue
            if isinstance(was, types.MethodType):
                waiting.append((was.__self__, now.__self__))
                continue
            if self._is_new(was, now, _are_like):
                if isinstance(was, TensorCore):
                    waiting += (was._storage, now._storage), (was._counter, now._counter)
                self.are_models |= _is_model(was)
                waiting += zip(held_apart(was), held_apart(now), strict=True)
                if hasattr(type(was), "_state_like"):
                    self.undo += now._state_like(was, self._is_written)
                waiting.append((instance_dict(was), instance_dict(now)))
                if isinstance(was, dict):
                    later.append((was, now))
                elif isinstance(was, (list, deque)) and len(was) == len(now):
                    waiting += zip(was, now, strict=True)
                elif isinstance(was, types.CellType):
                    waiting.append((item_at(was, None), item_at(now, None)))
                elif isinstance(was, partial):
                    waiting.append((was.keywords, now.keywords))
        self.are_clear &= self._same.keys().isdisjoint(self._pairs)

    def _entries(self, was: Any, now: Any) -> Iterator[tuple[Any, Any]]:
        for key, value in dict.items(was):
            found = dict.get(now, self.of(key), self)
            if found is not self:
                yield value, found

    def is_common(self, thing: Any) -> bool:
        """Whether both have it, at one place."""
        return id(thing) in self._same

    @property
    def news(self) -> Set[int]:
        """The identities of what is given now."""
        return self._images


def _are_like(was: Any, now: Any) -> bool:
    """Whether an object may be in the place of another of its class; guards compare its parts."""
    if isinstance(was, TensorCore):
        return _are_like_tensors(was, now)
    if isinstance(was, (Storage, VersionCounter)):
        return True
    if not holds_parts(was):
        return False
    if is_known_by_place(was):
        return are_alike(was, now)
    if type(was) is partial:
        return is_same(_given_by(was), _given_by(now))
    if type(was) is np.ndarray:
        return was.base is now.base is None and _are_like_arrays(was, now)
    return not _is_schedule(type(was)) or _are_like_schedules(was, now)


def _given_by(called: partial[Any]) -> tuple[Any, ...]:
    return called.func, called.args, tuple(called.keywords.items()), bool(called.__dict__)


def _are_like_tensors(was: Any, now: Any) -> bool:
    """Whether a step sees no difference between two leaves but their elements."""
    one, other = was._storage, now._storage
    return (
        was._type == now._type
        and was._requires_grad == now._requires_grad
        and was._base is was._grad_fn is now._base is now._grad_fn is None
        and not was._chain
        and not now._chain
        and one.root_type == other.root_type
        and one.array is not None
        and other.array is not None
        and _are_like_arrays(one.array, other.array)
    )


def _are_like_arrays(was: np.ndarray, now: np.ndarray) -> bool:
    return (
        was.dtype == now.dtype
        and was.shape == now.shape
        and was.strides == now.strides
        and was.flags.writeable == now.flags.writeable
        and now.flags.aligned
    )


class Rebinding:
    """Copies what the compiler has noted for a program, with other objects in the place of some.

    What it doesn't know is shared, and may not lead to those (`check`).
    """

    def __init__(self, images: Counterparts) -> None:
        self.images = images
        self._made: dict[int, tuple[Any, Any]] = {}
        self._shared: list[Any] = []

    def of(self, value: Any) -> Any:
        """What the copy has for it."""
        if isinstance(value, SCALARS):
            return value
        image = self.images.of(value)
        if image is not value:
            return image
        known = self._made.get(id(value))
        if known is not None:
            return known[1]
        kind = type(value)
        array = self.images.of(value.array) if kind is Storage else None
        if array is not None and array is not value.array:  # of NumPy's, which the step reads
            made = copy(value)
            made.array = array
            self._made[id(value)] = value, made
            return made
        if isinstance(value, _SHARED) or id(value) in self.images.news:
            return value
        self._made[id(value)] = value, value
        made = self._copy(value, kind)
        self._made[id(value)] = value, made
        return made

    def _copy(self, value: Any, kind: Any) -> Any:
        if isinstance(value, tuple):
            parts = [self.of(x) for x in value]
            if all(x is y for x, y in zip(parts, value, strict=True)):
                return value
            return kind._make(parts) if hasattr(kind, "_make") else kind(parts)
        if kind in (list, set, frozenset, deque):
            return kind(map(self.of, value))
        if kind in (dict, OrderedDict):
            return kind((self.of(k), self.of(x)) for k, x in value.items())
        if isinstance(value, weakref.ReferenceType):
            target = self.images.of(value())
            return value if target is value() else weakref.ref(target)
        if kind is partial:
            keywords = {name: self.of(x) for name, x in value.keywords.items()}
            return partial(self.of(value.func), *map(self._held, value.args), **keywords)
        if kind is types.MethodType:
            return types.MethodType(value.__func__, self.of(value.__self__))
        if kind is types.FunctionType:
            return self._function(value)
        if issubclass(kind, Attributes):
            return value if kind is Progress else kind(self.images.of(value.of))
        is_of_code = isinstance(value, FieldGuard) and isinstance(value.owner.of, _CODE)
        if is_of_code and self.images.of(value.owner) is value.owner:
            return value  # which stays what it is
        if kind.__module__.startswith(_MODULES):
            return self._object(value, kind)
        self._shared.append(value)
        return value

    def _held(self, value: Any) -> Any:
        """Of a partial or in a cell, where containers may be the user's: these aren't copied."""
        return self._users(value) if isinstance(value, _CONTAINERS) else self.of(value)

    def _users(self, value: Any) -> Any:
        """What stands for a thing of the user's, which is shared if it is the same as before."""
        image = self.images.of(value)
        if image is value:
            self._shared.append(value)
        return image

    def _function(self, function: Any) -> Any:
        if is_users(function):  # which guards follow, up to what is in its cells
            return function
        cells = function.__closure__ or ()
        found = [self._held(x.cell_contents) for x in cells]
        if all(x is cell.cell_contents for x, cell in zip(found, cells, strict=True)):
            return function
        made = types.FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            tuple(map(types.CellType, found)),
        )
        made.__kwdefaults__ = function.__kwdefaults__
        return made

    def _object(self, value: Any, kind: Any) -> Any:
        if kind is GuardTable:
            return GuardTable([self.of(x) for x in value.guards])
        if kind is ReplayedEffects:
            value.forget()
        made: Any = object.__new__(kind)
        self._made[id(value)] = value, made
        names = [x for each in kind.__mro__ for x in vars(each).get("__slots__", ())]
        names += getattr(value, "__dict__", ())
        for name in names:
            if name in ("__dict__", "__weakref__") or not hasattr(value, name):
                continue
            object.__setattr__(made, name, self._field(value, name))
        if isinstance(made, TensorGuard):
            made.__post_init__()
        return made

    def _field(self, holder: Any, name: str) -> Any:
        found = getattr(holder, name)
        if name == "owners":  # of what comes after a call: dicts of the user's
            return [*map(self._users, found)]
        if isinstance(holder, Guard) and name == "expected":
            return self._expected(holder, found)
        if not isinstance(holder, (Guard, MutableSource, MovingEntry, Constant)):
            return self.of(found)
        if isinstance(holder, AnswerGuard) and name == "args":
            return type(found)(map(self.images.of, found))
        if isinstance(holder, Constant) and not holds_parts(found):  # a method, a weak reference
            return self._users(found)
        if name in _USERS_FIELDS and not isinstance(found, Attributes):
            return self.images.of(found)
        return self.of(found)

    def _expected(self, guard: Guard, found: Any) -> Any:
        of = self.images.of
        if isinstance(guard, ContentsGuard):
            if guard.apart and of(guard.owner) is not guard.owner:
                raise UnlikeError
            if isinstance(found, dict):
                keys = {key: key for key in copy_of(of(guard.owner))}  # native code compares these
                return {keys.get(of(key), of(key)): of(x) for key, x in found.items()}
            return type(found)(map(of, found)) if isinstance(found, (list, frozenset)) else found
        return self.of(found) if isinstance(found, (tuple, types.MethodType)) else of(found)

    def check(
        self, state: Collection[Storage], hosts: Sequence[HostCall], guards: Iterable[Guard]
    ) -> None:
        """Raise `UnlikeError` where the copy would go on with something of the earlier objects.

        state: the memory that the program is bound to; what both have, such as layers that models
            share, stays. hosts: what its code calls; guards: those of the copy.
        """
        images = self.images
        olds = _behind([was for was, _ in images.pairs], images.is_common)
        kept = [x for x in state if images.of(x) is x and (id(x) in olds or self._is_old(x))]
        shared = _behind([*self._shared, *hosts], lambda x: id(x) in images.news)
        held = map(id, behind(held_by(guards)))
        if kept or not images.identities.isdisjoint((*shared, *held)):
            raise UnlikeError

    def _is_old(self, storage: Storage) -> bool:
        """Whether memory is a part of an array that another one stands for now."""
        array, identities = storage.array, self.images.identities
        assert array is not None
        return id(array) not in identities and id(owner_of(array)) in identities


def _behind(things: Iterable[Any], ends: Callable[[Any], bool]) -> dict[int, Any]:
    """All that some objects lead to, by identity; not through classes, modules and functions."""
    seen: dict[int, Any] = {}
    waiting = [*things]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, _PLAIN) or ends(thing):
            continue
        seen[id(thing)] = thing
        if isinstance(thing, np.ndarray):
            waiting += () if thing.base is None else (thing.base,)
        elif isinstance(thing, types.FunctionType):
            waiting += closure_of(thing).values()
        elif isinstance(thing, weakref.ReferenceType):
            waiting.append(thing())
        elif not isinstance(thing, (Graph, Node, Value)):
            waiting += gc.get_referents(thing)
    return seen


def works_with(guards: Iterable[Guard]) -> set[int]:
    """The identities of the objects that guards look at."""
    found: set[int] = set()
    for guard in guards:
        found.update(map(id, guard.looked_into()))
        if not isinstance(guard.expected, (list, dict)):
            found.add(id(guard.expected))
        if isinstance(guard, TensorGuard):
            found.add(id(guard.tensor._storage))
    return found


def replaced(guards: Iterable[Guard], images: Images) -> Iterator[tuple[Any, Any]]:
    """Where guards find another object of the same class, at places that weren't left as a whole.

    Gives what was there and what is.
    """
    for guard in guards:
        if isinstance(guard, FieldGuard) or not isinstance(guard, PlaceGuard):
            continue
        for was, now in guard.pairs():
            if was is now or type(was) is not type(now) or not holds_parts(was):
                continue
            if all(images.of(x) is x for x in guard.looked_into()):
                yield was, now
