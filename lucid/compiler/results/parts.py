"""Containers and objects that a step makes, taken apart: what each call must make again."""

from __future__ import annotations

import enum
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lucid.compiler.inputs.tree import entry_path, is_record, items_of
from lucid.compiler.whose_code import is_librarys, is_users
from lucid.tensor.size import Size

_HEAP_TYPE = 1 << 9  # of `__flags__`: a class that Python code has defined
_ITEMS = (list, tuple, set, frozenset, deque, bytearray)
_DICTS = (OrderedDict, defaultdict, dict)
_LAYOUTS = (*_ITEMS, *_DICTS, types.SimpleNamespace, object)
_OF_LIBRARY = "lucid.distributions."  # whose objects are plain data


class Part(NamedTuple):
    """A value in a container or object; path: how one gets there from it."""

    path: str
    value: Any


class Parts(NamedTuple):
    """What is in a container or object.

    Attributes:
        layout: the class of Python's own whose memory it has.
        items: of a dict keys and values in turn.
        attributes: those in its `__dict__`; slots: those elsewhere.
    """

    layout: type
    items: list[Part]
    attributes: dict[str, Part]
    slots: dict[str, Part]

    def all(self) -> Iterator[Part]:
        """In the order in which they are made."""
        yield from self.items
        yield from self.attributes.values()
        yield from self.slots.values()


def parts_of(value: Any) -> Parts | None:
    """What it is made of; None for what isn't known to be a container or an object of data."""
    layout = _layout_of(type(value))
    if layout is None or (layout in (object, types.SimpleNamespace) and not _is_data(value)):
        return None
    items: list[Part] = []
    if layout in _DICTS:
        for key, item in items_of(value):
            items += (Part("", key), Part(entry_path("", key), item))
    elif layout in _ITEMS:
        is_ordered = layout not in (set, frozenset)
        items = [Part(f"[{i}]" if is_ordered else "", item) for i, item in enumerate(value)]
    if kind_of(value, layout) is not type(value):
        return Parts(layout, items, {}, {})
    attributes = getattr(value, "__dict__", None) or {}
    return Parts(
        layout,
        items,
        {name: Part(f".{name}", item) for name, item in attributes.items()},
        {name: Part(f".{name}", item) for name, item in _slots_of(value)},
    )


def kind_of(value: Any, layout: type) -> type:
    """The class of what is made like a value; the library's own containers stay where they are."""
    kind = type(value)
    is_kept = layout is object or kind is Size or hasattr(kind, "_fields")  # a named tuple
    return kind if is_kept or not is_librarys(kind) else layout


def _layout_of(kind: type) -> type | None:
    for base in kind.__mro__:
        if base in _LAYOUTS:
            return base
        if not base.__flags__ & _HEAP_TYPE:
            return None
    return None


def _is_data(value: Any) -> bool:
    """Whether an object that is no container is known by its attributes."""
    kind = type(value)
    if isinstance(value, (type, enum.Enum)) or hasattr(kind, "__next__"):
        return False
    if kind.__module__.startswith(_OF_LIBRARY) or kind is types.SimpleNamespace:
        return True
    if is_record(value):  # as a sparse matrix is
        return True
    return kind is not object and is_users(kind) and not any(map(is_librarys, kind.__mro__))


def _slots_of(value: Any) -> Iterator[tuple[str, Any]]:
    for base in type(value).__mro__:
        if base.__flags__ & _HEAP_TYPE:
            for name, slot in vars(base).items():
                if isinstance(slot, types.MemberDescriptorType):
                    try:
                        yield name, slot.__get__(value)
                    except AttributeError:
                        continue


def visit_parts(
    visit: Callable[[Any, str], None],
    value: Any,
    path: str = "",
    is_leaf: Callable[[Any], bool] = lambda value: False,
    seen: set[int] | None = None,
) -> None:
    """Call `visit(leaf, path)` for what isn't taken apart, in order; a container is entered once.

    is_leaf: of what else isn't taken apart.
    """
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    parts = None if is_leaf(value) else parts_of(value)
    if parts is None:
        visit(value, path)
        return
    seen.add(id(value))
    for inner, part in parts.all():
        visit_parts(visit, part, path + inner, is_leaf, seen)
