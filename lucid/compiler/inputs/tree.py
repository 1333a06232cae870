"""Nested arguments: lists, deques, tuples, dicts and dataclasses with leaves in them."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, ItemsView
from typing import Any, cast

from lucid.compiler.whose_code import is_librarys
from lucid.ir.types import DType

Leaf = Callable[[Any, str], Any]


def map_tree(
    function: Leaf,
    tree: Any,
    path: str = "",
    leaves: Collection[int] = frozenset(),
    known: dict[int, Any] | None = None,
) -> Any:
    """Rebuild `tree` with `function(leaf, path)` in place of each leaf.

    Lists, deques, tuples, named tuples, dicts and dataclass instances are nodes; all else is a
    leaf, and so are those nodes whose identity is among `leaves`. A node that can change and that
    is there twice is rebuilt once; it may hold itself.

    known: what such nodes have become, by identity; for several trees that share some.
    """
    return _mapped(function, tree, path, leaves, {} if known is None else known)


def _mapped(
    function: Leaf, tree: Any, path: str, leaves: Collection[int], known: dict[int, Any]
) -> Any:
    if leaves and id(tree) in leaves:
        return function(tree, path)
    kind = type(tree)
    if isinstance(tree, tuple) and (kind is tuple or hasattr(tree, "_fields")):
        names = getattr(tree, "_fields", None)
        items = [
            _mapped(
                function, item, f"{path}[{i}]" if not names else f"{path}.{names[i]}", leaves, known
            )
            for i, item in enumerate(tree)
        ]
        return tuple(items) if names is None else kind(*items)
    is_list, is_dict = kind in (list, deque), isinstance(tree, dict)
    if not (is_list or is_dict or is_record(tree)):
        return function(tree, path)
    if id(tree) in known:
        return known[id(tree)]
    made = known[id(tree)] = _empty_like(tree)
    if is_list:
        for i, item in enumerate(tree):
            made.append(_mapped(function, item, f"{path}[{i}]", leaves, known))
    elif is_dict:
        put = OrderedDict.__setitem__ if isinstance(tree, OrderedDict) else dict.__setitem__
        for key, item in items_of(tree):
            put(made, key, _mapped(function, item, entry_path(path, key), leaves, known))
    else:
        for name, item in fields_of(tree).items():
            value = _mapped(function, item, f"{path}.{name}", leaves, known)
            object.__setattr__(made, name, value)
    return made


def _empty_like(tree: Any) -> Any:
    if type(tree) is list:
        return []
    if type(tree) is deque:
        return deque(maxlen=tree.maxlen)
    return empty_dict(tree) if isinstance(tree, dict) else object.__new__(type(tree))


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
