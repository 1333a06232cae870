"""Objects of plain data among a step's arguments: a batch, a configuration.

Such an object is known by its class and by what is in it, not by its identity; the tensors in it
are arguments. One that a step changes stays what it is: an object whose attributes are places.
"""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from lucid.compiler.inputs.tree import map_tree
from lucid.ir.types import DType
from lucid.tensor.core import TensorCore

BY_VALUE = (bool, int, str, bytes, type(None), complex, range, np.integer, np.bool_)
_PLAIN = (TensorCore, float, np.floating, slice, DType, *BY_VALUE)
_NAMESPACES = ("SimpleNamespace", "Namespace")
_changed: set[type] = set()  # classes whose objects a step has changed


def know_by_identity(kinds: Iterable[type]) -> None:
    """From now on calls know objects of these classes by their identity: a step changes such."""
    _changed.update(kinds)


def data_of(value: Any, inside: tuple[int, ...] = ()) -> dict[str, Any] | None:
    """The attributes of an object of plain data; None for any other object."""
    kind = type(value)
    attributes = getattr(value, "__dict__", None)
    if type(attributes) is not dict or not attributes or kind in _changed or id(value) in inside:
        return None
    if callable(value) or isinstance(value, (type, types.ModuleType)):
        return None
    library = kind.__module__.partition(".")[0]
    is_users = library != "lucid" and library not in sys.stdlib_module_names
    if library == "__main__" or is_users or kind.__name__ in _NAMESPACES:
        within = (*inside, id(value))
        return attributes if all(_is_plain(x, within) for x in attributes.values()) else None
    return None


def _is_plain(value: Any, inside: tuple[int, ...]) -> bool:
    if isinstance(value, _PLAIN):
        return True
    if isinstance(value, (list, deque, tuple, dict)):
        within = (*inside, id(value))
        items = value.values() if isinstance(value, dict) else value
        return id(value) in inside or all(_is_plain(item, within) for item in items)
    return data_of(value, inside) is not None


def visit_leaves(visit: Callable[[Any, str], None], tree: Any, path: str = "") -> None:
    """Call `visit(leaf, path)` for each leaf, for those in objects of plain data and their classes.

    An object or container that is there twice is looked into once.
    """
    known: dict[int, Any] = {}
    map_tree(partial(_visit, visit, set(), known), tree, path, known=known)


def _visit(
    visit: Callable[[Any, str], None], seen: set[int], known: dict[int, Any], leaf: Any, path: str
) -> None:
    attributes = data_of(leaf)
    if attributes is None:
        visit(leaf, path)
    elif id(leaf) not in seen:
        seen.add(id(leaf))
        visit(type(leaf), f"{path}.__class__")
        for name, item in attributes.items():
            map_tree(partial(_visit, visit, seen, known), item, f"{path}.{name}", known=known)
