"""Nested arguments and results: lists, tuples, dicts and dataclasses with leaves in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

Leaf = Callable[[Any, str], Any]


def map_tree(function: Leaf, tree: Any, path: str = "") -> Any:
    """Rebuild `tree` with `function(leaf, path)` in place of each leaf.

    Lists, tuples, named tuples, dicts and dataclass instances are nodes; all else is a leaf.
    """
    kind = type(tree)
    if kind in (list, tuple):
        return kind([map_tree(function, item, f"{path}[{i}]") for i, item in enumerate(tree)])
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        named = zip(tree._fields, tree, strict=True)
        return kind(*(map_tree(function, item, f"{path}.{name}") for name, item in named))
    if isinstance(tree, dict):
        items = [(key, map_tree(function, item, f"{path}[{key!r}]")) for key, item in tree.items()]
        return _rebuilt_dict(tree, items)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = {
            field.name: map_tree(function, getattr(tree, field.name), f"{path}.{field.name}")
            for field in dataclasses.fields(tree)
        }
        result = object.__new__(kind)
        for name, value in fields.items():
            object.__setattr__(result, name, value)
        return result
    return function(tree, path)


def _rebuilt_dict(tree: Any, items: list[tuple[Any, Any]]) -> Any:
    if type(tree) is dict:
        return dict(items)
    try:
        rebuilt = tree.copy()
        rebuilt.update(items)
    except (AttributeError, TypeError):
        return dict(items)
    return rebuilt
