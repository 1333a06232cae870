"""What among the arguments of a call can be changed: lists, dicts, objects; and tuples."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from lucid.compiler.inputs.objects import data_of
from lucid.compiler.inputs.tree import entry_path, fields_of, is_record, items_of

Owner = tuple[str, Any]  # the user's expression for it, and itself


def owners_of(named: Sequence[tuple[str, Any]]) -> list[Owner]:
    """The containers, dataclass instances and objects of plain data in a call's arguments.

    One that is there twice is there by its first name; a tuple, which can't change, by each.
    """
    seen: set[int] = set()
    return [owner for name, value in named for owner in _owners(name, value, seen)]


def _owners(path: str, value: Any, seen: set[int]) -> Iterator[Owner]:
    if isinstance(value, tuple):
        if type(value) is tuple or hasattr(value, "_fields"):
            yield path, value
            for name, item in entries_of(value).items():
                yield from _owners(path_of(path, value, name), item, seen)
        return
    if id(value) in seen:
        return
    is_container = type(value) in (list, deque) or isinstance(value, dict) or is_record(value)
    if not is_container and data_of(value) is None:
        return
    seen.add(id(value))
    yield path, value
    for key, item in entries_of(value).items():
        yield from _owners(path_of(path, value, key), item, seen)


def entries_of(owner: Any) -> dict[Any, Any]:
    """Entries by key or number, attributes by name."""
    if isinstance(owner, dict):
        return dict(items_of(owner))
    if isinstance(owner, (list, deque, tuple)):
        return dict(enumerate(owner))
    return fields_of(owner) if is_record(owner) else dict(vars(owner))


def path_of(path: str, owner: Any, key: Any) -> str:
    """The user's expression for an entry or an attribute."""
    if isinstance(owner, dict):
        return entry_path(path, key)
    if isinstance(owner, tuple) and hasattr(owner, "_fields"):
        return f"{path}.{owner._fields[key]}"
    return f"{path}[{key}]" if isinstance(owner, (list, deque, tuple)) else f"{path}.{key}"
