"""Nested arguments: lists, deques, tuples, dicts and dataclasses with leaves in them."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, ItemsView
from typing import Any, cast

from lucid.compiler.whose_code import is_librarys
from lucid.ir.types import DType

Leaf = Callable[[Any, str], Any]


def children_of(tree: Any) -> dict[Any, Any] | None:
    """What a node holds by number, key or name; None for a leaf.

    Lists, deques, tuples, named tuples, dicts and dataclass instances are nodes.
    """
    if type(tree) in (list, deque, tuple) or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        return dict(enumerate(tree))
    if isinstance(tree, dict):
        return dict(items_of(tree))
    return fields_of(tree) if is_record(tree) else None


def path_of(path: str, owner: Any, key: Any) -> str:
    """The user's expression for an entry or an attribute; of an odd key, the name of its type."""
    if isinstance(owner, tuple) and hasattr(owner, "_fields"):
        return f"{path}.{owner._fields[key]}"
    if isinstance(owner, (list, deque, tuple)):
        return f"{path}[{key}]"
    return entry_path(path, key) if isinstance(owner, dict) else f"{path}.{key}"


def map_tree(
    function: Leaf,
    tree: Any,
    path: str = "",
    leaves: Collection[int] = frozenset(),
    known: dict[int, Any] | None = None,
) -> Any:
    """Rebuild `tree` with `function(leaf, path)` in place of each leaf.

    Nodes whose identity is among `leaves` are leaves, too. A node that can change and that is there
    twice is rebuilt once; it may hold itself.

    known: what such nodes have become, by identity; for several trees that share some.
    """
    return _mapped(function, tree, path, leaves, {} if known is None else known)


def _mapped(
    function: Leaf, tree: Any, path: str, leaves: Collection[int], known: dict[int, Any]
) -> Any:
    if id(tree) in known:
        return known[id(tree)]
    children = None if id(tree) in leaves else children_of(tree)
    if children is None:
        return function(tree, path)
    kind = type(tree)
    if isinstance(tree, tuple):
        items = [
            _mapped(function, item, path_of(path, tree, i), leaves, known)
            for i, item in children.items()
        ]
        return tuple(items) if kind is tuple else kind(*items)
    made = known[id(tree)] = _empty_like(tree)
    for key, item in children.items():
        value = _mapped(function, item, path_of(path, tree, key), leaves, known)
        if isinstance(tree, (list, deque)):
            made.append(value)
        elif isinstance(tree, dict):
            (OrderedDict if isinstance(tree, OrderedDict) else dict).__setitem__(made, key, value)
        else:
            object.__setattr__(made, key, value)
    return made


def _empty_like(tree: Any) -> Any:
    if isinstance(tree, dict):
        return empty_dict(tree)
    if isinstance(tree, deque):
        return deque(maxlen=tree.maxlen)
    return [] if type(tree) is list else object.__new__(type(tree))


def items_of(tree: dict[Any, Any]) -> ItemsView[Any, Any]:
    """A dict's entries in their order, whatever a class of the user's makes of `items`."""
    return OrderedDict.items(tree) if isinstance(tree, OrderedDict) else dict.items(tree)


def empty_dict(tree: dict[Any, Any]) -> dict[Any, Any]:
    """A dict of the same class, with the same attributes; of the library's, a copy."""
    kind = type(tree)
    if kind is dict:
        return {}
    if is_librarys(kind):
        return tree.copy()  # with entries, all of which are set again
    empty: Any = kind.__new__(kind)
    if isinstance(tree, defaultdict):
        empty.default_factory = tree.default_factory
    attributes = getattr(tree, "__dict__", None)
    if attributes:
        empty.__dict__.update(attributes)
    return cast(dict[Any, Any], empty)


def fields_of(record: Any) -> dict[str, Any]:
    """What a dataclass instance holds by name: its fields, and what else was put there."""
    names = [field.name for field in dataclasses.fields(record)]
    found = {name: getattr(record, name) for name in names if hasattr(record, name)}
    return found | getattr(record, "__dict__", {})


def entry_path(path: str, key: object) -> str:
    """What a dict's entry is called; the name of a key's type where it is no text or number."""
    is_short = isinstance(key, (str, int, float, bool, type(None), tuple))
    return f"{path}[{key!r}]" if is_short else f"{path}[a {type(key).__name__}]"


def is_record(value: Any) -> bool:
    """Whether a value is an instance of a dataclass whose fields are looked into."""
    return dataclasses.is_dataclass(value) and not isinstance(value, (type, DType))
