"""The guards of a program, arranged so that one call's look at them costs little."""

from __future__ import annotations

import gc
import operator
import types
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from lucid.compiler.guards.guard import (
    ABSENT,
    AnswerGuard,
    ClassAttributes,
    ContentsGuard,
    EntryGuard,
    FieldGuard,
    Guard,
    field_of,
)
from lucid.compiler.inputs.objects import SCALARS
from lucid.ir.classes import isinstance


class GuardTable:
    """The guards of a program by how they are compared; native code reads the same table.

    Attributes:
        cells: (closure cell, expected content).
        entries: (dict, key, expected value or ABSENT); items: (list, index, expected value).
        contents: (dict, expected entries in their order).
        fields: (object, name of the field, expected value).
        lengths: (container, expected number of entries).
        others: guards that Python compares, by `holds`.
    """

    __slots__ = (
        "cells",
        "contents",
        "entries",
        "fields",
        "guards",
        "items",
        "lengths",
        "others",
    )

    def __init__(self, guards: Sequence[Guard]) -> None:
        self.guards = guards
        self.cells: list[tuple[Any, Any]] = []
        self.contents: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self.entries: list[tuple[dict[Any, Any], Any, Any]] = []
        self.items: list[tuple[Any, Any, Any]] = []
        self.fields: list[tuple[Any, str, Any]] = []
        self.lengths: list[tuple[Any, int]] = []
        self.others: list[Guard] = []
        for guard in self.guards:
            self._enter(guard)

    def _enter(self, guard: Guard) -> None:
        if guard.moves:
            self.others.append(guard)
        elif type(guard) is EntryGuard:
            self._enter_entry(guard, guard.owner)
        elif type(guard) is FieldGuard:
            self.fields.append((guard.owner.of, guard.key, guard.expected))
        elif type(guard) is AnswerGuard and guard.ask is len:
            self.lengths.append((guard.args[0], guard.expected))
        elif type(guard) is ContentsGuard and _is_of_objects(guard):
            self._enter_contents(guard.owner, guard.expected)
        else:
            self.others.append(guard)

    def _enter_contents(self, owner: Any, expected: Any) -> None:
        if type(owner) is dict and expected:
            self.contents.append((owner, expected))
            return
        self.lengths.append((owner, len(expected)))
        if type(owner) is list:
            self.items += [(owner, i, item) for i, item in enumerate(expected)]

    def _enter_entry(self, guard: EntryGuard, owner: Any) -> None:
        if isinstance(owner, ClassAttributes):
            owner = _dict_of(owner.of)
        if isinstance(owner, dict):
            self.entries.append((owner, guard.key, guard.expected))
        elif guard.expected is ABSENT or type(owner) not in (list, types.CellType):
            self.others.append(guard)
        elif type(owner) is list:
            self.items.append((owner, guard.key, guard.expected))
        else:
            self.cells.append((owner, guard.expected))

    def failing(self) -> Guard | None:
        """The first guard that doesn't hold; None if all hold."""
        if self._holds():
            return None
        return next((guard for guard in self.guards if not guard.holds()), None)

    def _holds(self) -> bool:
        """Whether all guards hold, most by identity: an equal number may count as another value."""
        try:
            for cell, expected in self.cells:
                if cell.cell_contents is not expected:
                    return False
            for owner, key, expected in self.items:
                if owner[key] is not expected:
                    return False
        except (ValueError, IndexError):
            return False
        for contents, expected in self.contents:
            if not all(map(operator.is_, contents, expected)):
                return False
            if not all(map(operator.is_, contents.values(), expected.values())):
                return False
            if len(contents) != len(expected):
                return False
        get = dict.get
        for owner, key, expected in self.entries:
            if get(owner, key, ABSENT) is not expected:
                return False
        for owner, name, expected in self.fields:
            if field_of(owner, name) is not expected:
                return False
        for owner, length in self.lengths:
            if len(owner) != length:
                return False
        return all(guard.holds() for guard in self.others)


def _is_of_objects(guard: ContentsGuard) -> bool:
    """Whether a container is a list or a dict of objects, which are compared by identity.

    An `OrderedDict` must be empty.
    """
    kind, expected = type(guard.owner), guard.expected
    if kind not in (list, dict) and (kind is not OrderedDict or expected):
        return False
    if guard.apart:
        return False
    items = expected.values() if isinstance(expected, dict) else expected
    return not any(isinstance(item, SCALARS) for item in items)


def _dict_of(kind: Any) -> Any:
    """The dict of a class's attributes, which Python shows as a read-only mapping."""
    found = [x for x in gc.get_referents(vars(kind)) if type(x) is dict]
    return found[0] if len(found) == 1 else vars(kind)
