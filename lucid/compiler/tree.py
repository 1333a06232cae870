"""Nested arguments and results: lists, tuples, dicts and dataclasses with leaves in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from typing import Any

from lucid.ir.types import DType

Leaf = Callable[[Any, str], Any]


def map_tree(
    function: Leaf, tree: Any, path: str = "", leaves: Collection[int] = frozenset()
) -> Any:
    """Rebuild `tree` with `function(leaf, path)` in place of each leaf.

    Lists, tuples, named tuples, dicts and dataclass instances are nodes; all else is a leaf, and so
    are those nodes whose identity is among `leaves`.
    """
    if leaves and id(tree) in leaves:
        return function(tree, path)
    kind = type(tree)
    if kind in (list, tuple):
        return kind(
            [map_tree(function, item, f"{path}[{i}]", leaves) for i, item in enumerate(tree)]
        )
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        named = zip(tree._fields, tree, strict=True)
        return kind(*(map_tree(function, item, f"{path}.{name}", leaves) for name, item in named))
    if isinstance(tree, dict):
        items = [
            (key, map_tree(function, item, entry_path(path, key), leaves))
            for key, item in tree.items()
        ]
        return _rebuilt_dict(tree, items)
    if is_record(tree):
        fields = {
            f.name: map_tree(function, getattr(tree, f.name), f"{path}.{f.name}", leaves)
            for f in dataclasses.fields(tree)
        }
        result = object.__new__(kind)
        for name, value in fields.items():
            object.__setattr__(result, name, value)
        return result
    return function(tree, path)


def entry_path(path: str, key: object) -> str:
    """What a dict's entry is called; the name of a key's type where it is no text or number."""
    is_short = isinstance(key, (str, int, float, bool, type(None), tuple))
    return f"{path}[{key!r}]" if is_short else f"{path}[a {type(key).__name__}]"


def is_record(value: Any) -> bool:
    """Whether a value is an instance of a dataclass whose fields are looked into."""
    return dataclasses.is_dataclass(value) and not isinstance(value, (type, DType))


def containers(tree: Any, path: str = "") -> Iterator[tuple[str, Any, list[Any]]]:
    """Every list, dict and dataclass instance in a tree, with its path and what it holds."""
    items: list[tuple[str, Any]] = []
    if isinstance(tree, (list, tuple)):
        items = [(f"{path}[{i}]", item) for i, item in enumerate(tree)]
    elif isinstance(tree, dict):
        items = [(entry_path(path, key), item) for key, item in tree.items()]
    elif is_record(tree):
        items = [(f"{path}.{name}", item) for name, item in vars(tree).items()]
    else:
        return
    if not isinstance(tree, tuple):
        yield path, tree, [part for item in items for part in item]
    for place, item in items:
        yield from containers(item, place)


def _rebuilt_dict(tree: Any, items: list[tuple[Any, Any]]) -> Any:
    if type(tree) is dict:
        return dict(items)
    try:
        rebuilt = tree.copy()
        dict.update(rebuilt, items)  # a Counter's own one counts
    except (AttributeError, TypeError):
        return dict(items)
    return rebuilt
