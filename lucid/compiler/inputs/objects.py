"""Values by what they are: numbers, and objects of plain data, as a batch or a configuration.

Such an object is known by its class and by what is in it, not by its identity; the tensors in it
are arguments. One that a step changes stays what it is: an object whose attributes are places.
"""

from __future__ import annotations

import datetime
import enum
import math
import pathlib
import sys
import types
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from lucid.compiler.inputs.late import is_late
from lucid.compiler.inputs.scalars import is_live
from lucid.ir.classes import isinstance
from lucid.ir.memory import are_same_bytes
from lucid.ir.types import DType, has_dtype
from lucid.ir.whose_code import is_librarys, is_users
from lucid.tensor.core import TensorCore
from lucid.tensor.tree import attributes_beside, children_of, path_of

BY_VALUE = (bool, int, str, bytes, type(None), complex, range, np.integer, np.bool_)
SCALARS = (int, float, bool, str, bytes, complex, type(None))
PLAIN_DATA = (TensorCore, float, np.floating, slice, DType, *BY_VALUE)
# Classes whose objects can't change, and whose `repr` says all that they are.
BY_TEXT = frozenset(
    (datetime.date, datetime.datetime, datetime.time, datetime.timedelta, Decimal, Fraction)
) | {uuid.UUID, pathlib.PosixPath, pathlib.WindowsPath, np.datetime64, np.timedelta64}
SETS: tuple[type, ...] = (set, type({}.keys()))  # that can change
_MOST_IN_SETS = 256
_NAMESPACES = ("SimpleNamespace", "Namespace")
_changed: set[type] = set()  # classes whose objects a step has changed


class MarkedObject:
    """An object of plain data in a call's arguments, with marks among its attributes."""

    __slots__ = ("attributes", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.attributes: dict[str, Any] = {}


def know_by_identity(kinds: Iterable[type]) -> None:
    """From now on calls know objects of these classes by identity: a step changes one of them."""
    _changed.update(kinds)


def data_of(value: Any, inside: tuple[int, ...] = ()) -> dict[str, Any] | None:
    """The attributes of an object of plain data; None for any other object.

    One that computes what is read of it isn't plain, and nothing is read of it here.
    """
    kind = type(value)
    if issubclass(kind, TensorCore) or type(kind.__getattribute__) is types.FunctionType:
        return None
    attributes = getattr(value, "__dict__", None)
    if type(attributes) is not dict or not attributes or kind in _changed or id(value) in inside:
        return None
    if callable(value) or isinstance(value, (type, types.ModuleType, enum.Enum)):
        return None
    library = kind.__module__.partition(".")[0]
    is_users = library != "lucid" and library not in sys.stdlib_module_names
    if library == "__main__" or is_users or kind.__name__ in _NAMESPACES:
        within = (*inside, id(value))
        return attributes if all(_is_plain(x, within) for x in attributes.values()) else None
    return None


def is_set_of_values(value: Any) -> bool:
    """Whether it is a set, or the keys of a dict, whose items are known by value.

    A large one that can change isn't: it is known by identity, and what is looked up in it guarded.
    """
    is_small = type(value) in SETS and len(value) <= _MOST_IN_SETS
    is_set = is_small or type(value) is frozenset
    return is_set and all(isinstance(x, BY_VALUE) for x in value)


def kind_of_items(items: Iterable[Any]) -> type | None:
    """Of which class all items of a list are: int, float or str; None: they are others."""
    kinds = {*map(type, items)}
    kind = kinds.pop() if len(kinds) == 1 else None
    return kind if kind in (int, float, str) else None


def types_and_items(values: Collection[Any]) -> list[Any]:
    """The types and items of a set, in a fixed order: equal for sets that no step tells apart."""
    return [(type(x), x) for x in values]


def text_by_value(value: Any) -> str | None:
    """The `repr` by which a date, a decimal number, a path is known; None for all else.

    Equality doesn't: `Decimal("1.0") == Decimal("1.00")`. A zone of the user's may be anything.
    """
    if type(value) not in BY_TEXT:
        return None
    zone = getattr(value, "tzinfo", None)
    return None if zone is not None and is_users(type(zone)) else repr(value)


def _is_plain(value: Any, inside: tuple[int, ...]) -> bool:
    if isinstance(value, PLAIN_DATA) or type(value) in BY_TEXT:
        return True
    if type(value) is np.ndarray:
        return has_dtype(value)
    if is_late(value):  # in a trace, what stands for an array
        return True
    if isinstance(value, frozenset):
        return is_set_of_values(value)
    if isinstance(value, (list, deque, tuple, dict)):
        within = (*inside, id(value))
        items = value.values() if isinstance(value, dict) else value
        return id(value) in inside or all(_is_plain(item, within) for item in items)
    return data_of(value, inside) is not None


def entries_of(owner: Any) -> dict[Any, Any]:
    """Entries of a container by key or number, attributes of an object by name."""
    children = children_of(owner)
    return dict(vars(owner)) if children is None else children | attributes_beside(owner)


def walk(tree: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any, bool]]:
    """Each container, object of plain data and leaf: the user's expression, itself, is it a leaf.

    In order, the contents of objects of plain data included. A mutable one that is there twice
    comes by its first expression alone, a tuple by each.

    seen: the identities of those that have come; further ones are added.
    """
    children = children_of(tree)
    if type(tree) is MarkedObject:
        tree, children = tree.value, tree.attributes
    elif children is None:
        children = data_of(tree)
    else:
        children |= attributes_beside(tree)
    if children is None:
        yield path, tree, True
    elif id(tree) not in seen:
        if not isinstance(tree, tuple):
            seen.add(id(tree))
        yield path, tree, False
        for key, item in children.items():
            yield from walk(item, path_of(path, tree, key), seen)


def owners_of(named: Iterable[tuple[str, Any]], but: Collection[int] = ()) -> list[tuple[str, Any]]:
    """The containers and objects of plain data in a call's arguments, by expression.

    but: the identities of those that aren't looked into.
    """
    seen = {*but}
    parts = [part for name, value in named for part in walk(value, name, seen)]
    return [(path, value) for path, value, is_leaf in parts if not is_leaf]


def visit_leaves(visit: Callable[[Any, str], None], tree: Any, path: str = "") -> None:
    """Call `visit(leaf, path)` for each leaf, and for what tells trees of equal leaves apart.

    These are the classes of objects of plain data, and the factories of `defaultdict`s.
    """
    for inner, value, is_leaf in walk(tree, path, set()):
        if is_leaf:
            visit(value, inner)
        elif children_of(value) is None:
            visit(type(value), f"{inner}.__class__")
        elif isinstance(value, defaultdict):
            visit(value.default_factory, f"{inner}.default_factory")


def is_same(found: Any, expected: Any, *, by_content: bool = False) -> bool:
    """Whether a value is what was expected: the same object, or an equal number or text.

    by_content: whether an equal array counts as the same. Otherwise it doesn't: it has strides of
        its own, and may be written.
    """
    if found is expected:
        return True
    kind = type(found)
    if kind is not type(expected) or is_live(found):
        return False
    if issubclass(kind, (float, np.floating)):
        both_nan = math.isnan(found) and math.isnan(expected)
        same_sign = math.copysign(1.0, found) == math.copysign(1.0, expected)
        return both_nan or (found == expected and same_sign)
    if kind is tuple or (isinstance(found, tuple) and is_librarys(kind)):  # such as a shape
        return _are_same(found, expected, by_content=by_content)
    if kind in (slice, range):
        return _are_same(_bounds(found), _bounds(expected), by_content=by_content)
    if kind is types.MethodType:
        return found.__func__ is expected.__func__ and found.__self__ is expected.__self__
    if isinstance(found, np.ndarray):
        is_data = found.dtype.kind in "biufc"
        if found.shape != expected.shape or found.dtype != expected.dtype:
            return False
        if is_data and not by_content:
            return False
        if found.dtype.hasobject:
            parts = found.ravel().tolist(), expected.ravel().tolist()
            return _are_same(*parts, by_content=by_content)
        return are_same_bytes(found, expected)
    if not isinstance(found, (*SCALARS, frozenset, np.generic)) or _is_of_call(found):
        return False
    return bool(found == expected)


def _is_of_call(value: Any) -> bool:
    """Whether it is, or has in it, what a trace looks at when it is compared."""
    if type(value) in (frozenset, tuple):
        return any(map(_is_of_call, value))
    return is_live(value) or is_late(value)


def _bounds(value: slice | range) -> tuple[Any, ...]:
    return value.start, value.stop, value.step


def _are_same(found: Any, expected: Any, *, by_content: bool) -> bool:
    pairs = zip(found, expected, strict=False)
    return len(found) == len(expected) and all(is_same(*x, by_content=by_content) for x in pairs)
