"""Nested Python values: lists, deques, tuples, named tuples, dicts and dataclasses with leaves.

`map_tree` rebuilds one; `flatten` makes it a list of leaves, and a function back to such a tree.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, ItemsView, Mapping, Sequence
from functools import partial
from typing import Any, cast

from lucid.ir.classes import isinstance
from lucid.ir.types import DType
from lucid.ir.whose_code import is_librarys

Leaf = Callable[[Any, str], Any]
Rebuild = Callable[[list[Any]], Any]


def children_of(tree: Any) -> dict[Any, Any] | None:
    """What a node holds by number, key or name; None for a leaf.

    Lists, deques, tuples, named tuples, dicts and dataclass instances are nodes.
    """
    if type(tree) in (list, deque, tuple) or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        return dict(enumerate(tree))
    if isinstance(tree, dict):
        return dict(items_of(tree))
    return fields_of(tree) if is_record(tree) else None


def containers_in(tree: Any) -> list[Any]:
    """The nodes of a tree that can change, each once."""
    found: dict[int, Any] = {}
    pending = [tree]
    for item in pending:  # which grows meanwhile
        children = None if id(item) in found else children_of(item)
        if children is not None:
            pending += children.values()
            if not isinstance(item, tuple):
                found[id(item)] = item
    return [*found.values()]


@dataclasses.dataclass(frozen=True, slots=True)
class Attribute:
    """The name of an attribute of a dict or named tuple, beside the keys of its entries."""

    name: str


def attributes_beside(tree: Any) -> dict[Attribute, Any]:
    """What users have bound to a dict or tuple of a class of theirs, unless these are entries."""
    kind = type(tree)
    if not isinstance(tree, (dict, tuple)) or not kind.__dictoffset__ or is_librarys(kind):
        return {}
    own = vars(tree)
    return {} if own is tree else {Attribute(name): value for name, value in own.items()}


def path_of(path: str, owner: Any, key: Any) -> str:
    """The user's expression for an entry or an attribute; of an odd key, the name of its type."""
    if type(key) is Attribute:
        return f"{path}.{key.name}"
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
    is_whole: bool = False,
) -> Any:
    """Rebuild `tree` with `function(leaf, path)` in place of each leaf.

    Nodes whose identity is among `leaves` are leaves, too. A node that can change and that is there
    twice is rebuilt once; it may hold itself.

    known: what such nodes have become, by identity; for several trees that share some.
    is_whole: whether attributes of dicts are nodes as well; else they are what they were.
    """
    return _mapped(function, tree, path, leaves, {} if known is None else known, is_whole)


def _mapped(
    function: Leaf,
    tree: Any,
    path: str,
    leaves: Collection[int],
    known: dict[int, Any],
    is_whole: bool,
) -> Any:
    kind = type(tree)
    if kind is tuple and id(tree) not in leaves:
        parts = enumerate(tree)
        return tuple(
            [_mapped(function, x, f"{path}[{i}]", leaves, known, is_whole) for i, x in parts]
        )
    if id(tree) in known:
        return known[id(tree)]
    children = None if id(tree) in leaves else children_of(tree)
    if children is None:
        return function(tree, path)
    beside = attributes_beside(tree)
    if is_whole:
        children |= beside
    if isinstance(tree, tuple):
        found = {
            key: _mapped(function, item, path_of(path, tree, key), leaves, known, is_whole)
            for key, item in children.items()
        }
        attributes = {key.name: found.get(key, item) for key, item in beside.items()}
        return named_tuple(kind, [found[i] for i in range(len(tree))], attributes)
    made = known[id(tree)] = _empty_like(tree)
    for key, item in children.items():
        value = _mapped(function, item, path_of(path, tree, key), leaves, known, is_whole)
        if isinstance(tree, (list, deque)):
            made.append(value)
        elif type(key) is Attribute:
            vars(made)[key.name] = value
        elif isinstance(tree, dict):
            (OrderedDict if isinstance(tree, OrderedDict) else dict).__setitem__(made, key, value)
        else:
            object.__setattr__(made, key, value)
    return made


def named_tuple(kind: type, items: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """A named tuple of these items, with these attributes.

    Its constructor isn't called: that of a class of SciPy's or the user's may take other arguments.
    """
    make: Any = getattr(kind, "_make", partial(tuple.__new__, kind))
    made = make(items)
    for name, item in attributes.items():
        vars(made)[name] = item
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
    if attributes is tree:  # by `self.__dict__ = self`
        object.__setattr__(empty, "__dict__", empty)
    elif attributes:
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
    kind = type(value)
    return dataclasses.is_dataclass(kind) and not issubclass(kind, (type, DType))


def flatten(tree: Any, kept: Collection[int] = frozenset()) -> tuple[list[Any], Rebuild]:
    """The leaves in order, and a function from as many leaves to a tree as this one is now.

    Nodes whose identity is among `kept` are leaves, too.
    """
    leaves: list[Any] = []
    skeleton = map_tree(lambda leaf, _: leaves.append(leaf), tree, leaves=kept)
    kind = type(tree)
    if kind in (list, tuple) and len(leaves) == len(tree) and all(map(operator.is_, leaves, tree)):
        return leaves, kind

    def rebuild(new: list[Any]) -> Any:
        remaining = iter(new)
        return map_tree(lambda leaf, _: next(remaining), skeleton)

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
