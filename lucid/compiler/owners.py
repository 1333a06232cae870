"""What among the arguments of a call can be changed: lists, dicts, objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from lucid.compiler.objects import data_of
from lucid.compiler.tree import entry_path, is_record

Owner = tuple[str, Any]  # the user's expression for it, and itself


def owners_of(named: Sequence[tuple[str, Any]]) -> list[Owner]:
    """The lists, dicts, dataclass instances and objects of plain data in a call's arguments."""
    seen: set[int] = set()
    return [owner for name, value in named for owner in _owners(name, value, seen)]


def _owners(path: str, value: Any, seen: set[int]) -> Iterator[Owner]:
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        for i, item in enumerate(value):
            yield from _owners(
                f"{path}[{i}]" if names is None else f"{path}.{names[i]}", item, seen
            )
        return
    if not isinstance(value, (list, dict)) and not is_record(value):
        if data_of(value) is None or id(value) in seen:
            return
        seen.add(id(value))
    yield path, value
    for key, item in entries_of(value).items():
        yield from _owners(path_of(path, value, key), item, seen)


def entries_of(owner: Any) -> dict[Any, Any]:
    """Entries by key or number, attributes by name."""
    if isinstance(owner, dict):
        return dict(owner)
    if isinstance(owner, list):
        return dict(enumerate(owner))
    if is_record(owner):
        names = [field.name for field in dataclasses.fields(owner)]
        found = {name: getattr(owner, name) for name in names if hasattr(owner, name)}
        return found | dict(getattr(owner, "__dict__", {}))
    return dict(vars(owner))


def path_of(path: str, owner: Any, key: Any) -> str:
    """The user's expression for an entry or an attribute."""
    if isinstance(owner, dict):
        return entry_path(path, key)
    return f"{path}[{key}]" if isinstance(owner, list) else f"{path}.{key}"
