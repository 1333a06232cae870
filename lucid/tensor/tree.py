"""Nested arguments and results of transformed functions, as flat lists and back.

Lists, tuples, named tuples, dicts and dataclasses are nodes; all else is a leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid.compiler.inputs.tree import map_tree

Rebuild = Callable[[list[Any]], Any]


def flatten(tree: Any) -> tuple[list[Any], Rebuild]:
    """The leaves in order, and a function from as many leaves to such a tree."""
    leaves: list[Any] = []
    map_tree(lambda leaf, _: leaves.append(leaf), tree)

    def rebuild(new: list[Any]) -> Any:
        remaining = iter(new)
        return map_tree(lambda leaf, _: next(remaining), tree)

    return leaves, rebuild


def structure(tree: Any) -> str:
    """The tree with `*` in place of each leaf, for messages.

    >>> structure((1, {"a": [2, 3]}))
    "(*, {'a': [*, *]})"
    """
    kind = type(tree)
    if kind in (list, tuple):
        inside = ", ".join(map(structure, tree))
        if kind is list:
            return f"[{inside}]"
        return f"({inside},)" if len(tree) == 1 else f"({inside})"
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        fields = zip(tree._fields, tree, strict=True)
        return f"{kind.__name__}({', '.join(f'{k}={structure(v)}' for k, v in fields)})"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{k!r}: {structure(v)}" for k, v in tree.items()) + "}"
    return "*"


def broadcast_prefix(prefix: Any, tree: Any) -> list[Any] | None:
    """One leaf of `prefix` for each leaf of `tree`, whose top the prefix has; None: it hasn't.

    >>> broadcast_prefix((0, None), ("x", ["y", "z"]))
    [0, None, None]
    """
    if not isinstance(prefix, (list, tuple, dict)):
        return [prefix] * len(flatten(tree)[0])
    if type(prefix) is not type(tree) or len(prefix) != len(tree):
        return None
    keys: Any = tree.keys() if isinstance(tree, dict) else range(len(tree))
    found: list[Any] = []
    for key in keys:
        if isinstance(prefix, dict) and key not in prefix:
            return None
        part = broadcast_prefix(prefix[key], tree[key])
        if part is None:
            return None
        found += part
    return found
