"""Containers and objects that Python binds anew, and programs that follow them.

A step that appends to `self.log` means the list that is there then. So `self.log = []` at each
epoch is no reason for another trace, and neither is a new meter among the arguments: a program
knows containers, and objects of the user's, by where it has found them. Where others stand there
now, of the same classes, and two places show one object only if they did so before, its guards and
sources look at those from then on. What is in them is compared as it was before.
"""

from __future__ import annotations

import enum
import functools
import gc
import sys
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any

import numpy as np

from lucid.compiler.guards.guard import (
    ITERATORS,
    Attributes,
    Guard,
    Progress,
    closure_of,
    instance_dict,
    item_at,
)
from lucid.compiler.guards.mutable_sources import MutableSource, stands_for_list
from lucid.compiler.inputs.functions import is_remade
from lucid.compiler.inputs.objects import SCALARS, is_same
from lucid.ir.classes import isinstance
from lucid.ir.whose_code import is_as_users, is_librarys, is_users
from lucid.tensor.core import TensorCore

_PYTHONS = frozenset(
    (object, list, dict, set, deque, OrderedDict, defaultdict, Counter, types.SimpleNamespace)
) | frozenset(ITERATORS)
_GUARDED = (*SCALARS, TensorCore, type, types.ModuleType, types.FunctionType, types.CodeType)
_BASES = ("abc", "typing", "collections.abc")
_ATTRIBUTES_ARE_INSIDE = sys.version_info >= (3, 13)  # of an object, also where it has a `__dict__`


class Places:
    """The containers and objects that a program's guards have found, by place.

    Args:
        guards: the guards of the program.
        held: objects that it holds in other ways, which can't be replaced.
    """

    def __init__(self, guards: Sequence[Guard], held: Iterable[Any]) -> None:
        self._showing: list[Guard] = []
        self._of: dict[int, list[Guard]] = {}  # guards by the container that they look into
        self._at: dict[int, list[Guard]] = {}  # guards by the object that they expect
        for guard in guards:
            for owner in guard.looked_into():
                self._of.setdefault(id(owner), []).append(guard)
            shown = [x for x in guard.shown() if is_known_by_place(x)]
            for thing in shown:
                self._at.setdefault(id(thing), []).append(guard)
            if shown:
                self._showing.append(guard)
        self._fixed = {id(x) for x in behind((*held, *held_by(guards)))}

    def images(self, given: Sequence[tuple[Any, Any]], *, has_moved: bool) -> Images | None:
        """What stands at these places now; None: the same objects, or such as can't replace them.

        given: the arguments of the traced call, each with that of the call now.
        has_moved: whether the epoch has moved, so that gated guards may find other objects.
        """
        images, known = Images(), 0
        images.begin(given)
        images.enter(guard for guard in self._showing if has_moved or not guard.gated)
        while known < len(images.pairs):
            news, known = images.pairs[known:], len(images.pairs)
            for old, _ in news:
                images.enter(self._of.get(id(old), ()))
        for old, _ in images.pairs:
            images.enter(self._at.get(id(old), ()))
        olds = images.identities
        met = self._of.keys() | self._at.keys() | self._fixed
        is_free = met.isdisjoint({id(now) for _, now in images.pairs} - olds)
        is_free = is_free and self._fixed.isdisjoint(olds)
        is_free = is_free and all(images.of(was) is now for was, now in given)
        return images if olds and images.are_clear and is_free else None

    def take(self, images: Images) -> None:
        """Have all guards compare the images from now on."""
        touched: dict[int, Guard] = {}
        for index in (self._of, self._at):
            moved = [(new, index.pop(id(old), [])) for old, new in images.pairs]
            for new, guards in moved:
                index[id(new)] = guards
                touched.update((id(guard), guard) for guard in guards)
        for guard in touched.values():
            guard.follow(images.of)


class Images:
    """The image of each container or object of a trace: what stands in its place now.

    Attributes:
        are_clear: whether each object has one image, and no two have the same one.
    """

    def __init__(self) -> None:
        self._pairs: dict[int, tuple[Any, Any]] = {}
        self._images: set[int] = set()
        self.are_clear = True

    @property
    def identities(self) -> Set[int]:
        """The identities of the objects that have images."""
        return self._pairs.keys()

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """Each object with its image, in the order in which they were found."""
        return [*self._pairs.values()]

    def of(self, thing: Any) -> Any:
        """The image of an object; itself where it has none."""
        if type(thing) in (Attributes, Progress):
            owner = self.of(thing.of)
            return thing if owner is thing.of else type(thing)(owner)
        found = self._pairs.get(id(thing))
        return thing if found is None else found[1]

    def begin(self, given: Iterable[tuple[Any, Any]]) -> None:
        """Note arguments, each with what is given for it now."""
        for was, now in given:
            self._note(was, now)

    def back(self) -> Images:
        """The inverse: the objects that were there, as images of those that are."""
        made = Images()
        made._pairs = {id(now): (now, was) for was, now in self.pairs}
        return made

    def enter(self, guards: Iterable[Guard]) -> None:
        """Note the images that some guards find."""
        for guard in guards:
            self.begin(guard.pairs(self.of))

    def _is_new(self, was: Any, now: Any, are_like: Callable[[Any, Any], bool]) -> bool:
        """Note an image, of an object that had none; whether that is so."""
        known = self._pairs.get(id(was))
        if known is not None:
            self.are_clear &= known[1] is now
            return False
        if was is now or not are_like(was, now):
            return False
        self.are_clear &= id(now) not in self._images
        self._pairs[id(was)] = was, now
        self._images.add(id(now))
        return True

    def _note(self, was: Any, now: Any) -> None:
        if self._is_new(was, now, are_alike):
            self._note(instance_dict(was), instance_dict(now))  # who looks into it may not say so
            for parts in zip(held_apart(was), held_apart(now), strict=True):
                self._note(*parts)


def has_another(guard: Guard) -> bool:
    """Whether a guard finds another container or object of the expected one's class."""
    return any(was is not now and are_alike(was, now) for was, now in guard.pairs())


def held_by(guards: Iterable[Guard]) -> Iterator[Any]:
    """The objects that guards hold and that `Images` can't replace, such as keys of dicts."""
    for guard in guards:
        yield from guard.keys()
        yield from (x for x in guard.shown() if not is_known_by_place(x))


def is_known_by_place(thing: Any) -> bool:
    """Whether it is known by its place: a container, or an object of a class of the user's.

    So are functions that a line makes anew, with their variables from outside.
    """
    kind = type(thing)
    if kind in (list, dict, types.CellType):
        return True
    if kind is types.FunctionType:
        return is_remade(thing)
    if isinstance(thing, (*_GUARDED, enum.Enum)):
        return False
    return all(map(_is_open, kind.__mro__))


@functools.cache
def _is_open(kind: type) -> bool:
    """Whether all state of a class's objects is in their entries and attributes."""
    is_pythons = kind in _PYTHONS or kind.__module__ in _BASES
    return is_pythons or is_as_users(kind) or (is_users(kind) and not is_librarys(kind))


def held_apart(thing: Any) -> Sequence[Any]:
    """The objects that an object holds neither as an entry nor as an attribute."""
    if isinstance(thing, defaultdict):
        return (thing.default_factory,)
    return (thing.__closure__ or ()) if type(thing) is types.FunctionType else ()


def are_alike(was: Any, now: Any) -> bool:
    """Whether an object may be the image of another: same class, and same structure."""
    if type(was) is not type(now) or not is_known_by_place(was):
        return False
    if isinstance(was, deque):
        return bool(was.maxlen == now.maxlen)
    if type(was) is types.FunctionType:
        is_same_code = was.__code__ is now.__code__ and is_same(
            _beside_code(was), _beside_code(now)
        )
        return is_same_code and (is_users(was) or have_like_variables(was, now))
    factories = held_apart(was), held_apart(now)
    return all(x == y or are_alike(x, y) for x, y in zip(*factories, strict=True))


def have_like_variables(was: Any, now: Any, around: Sequence[Any] = ()) -> bool:
    """Whether functions that are alike compute the same with equal arguments.

    Their variables from outside are the same, or equal numbers, or such functions.
    """
    for cells in zip(held_apart(was), held_apart(now), strict=True):
        one, other = (item_at(cell, None) for cell in cells)
        is_equal = is_same(one, other) or any(one is x for x in around)
        if not is_equal and not (
            type(one) is types.FunctionType
            and are_alike(one, other)
            and have_like_variables(one, other, (*around, one))
        ):
            return False
    return True


def _beside_code(function: types.FunctionType) -> tuple[Any, ...]:
    named = (function.__kwdefaults__ or {}).items()
    return function.__globals__, function.__defaults__, tuple(named), bool(function.__dict__)


def behind(held: Iterable[Any]) -> Iterator[Any]:
    """The objects that are held, and those behind such as don't follow what Python binds anew."""
    seen: set[int] = set()
    waiting = [*held]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, types.FunctionType):
            if is_known_by_place(thing):
                yield thing
            waiting += () if is_users(thing) else closure_of(thing).values()
        if isinstance(thing, (*_GUARDED, MutableSource, Guard)) or stands_for_list(thing):
            continue
        yield thing
        if isinstance(thing, np.ndarray):
            waiting += thing.ravel().tolist() if thing.dtype.hasobject else ()
        elif isinstance(thing, weakref.ReferenceType):
            waiting.append(thing())
        elif not is_known_by_place(thing):
            waiting += _referents(thing)


def _referents(thing: Any) -> list[Any]:
    """What an object refers to; its attributes are behind its `__dict__`, whose place is known."""
    found = gc.get_referents(thing)
    own = instance_dict(thing) if _ATTRIBUTES_ARE_INSIDE and type(thing).__dictoffset__ else None
    if own is None:
        return found
    attributes = Counter(map(id, own.values()))
    attributes.subtract(map(id, found))  # below 0: how often something else than these refers to it
    return [own, *(x for x in found if attributes[id(x)] < 0)]
