"""The guards of a program, arranged so that one call's look at them costs little."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable, Sequence
from typing import Any

from lucid.compiler.guards.guard import (
    ABSENT,
    AnswerGuard,
    ClassAttributes,
    ContentsGuard,
    EntryGuard,
    FieldGuard,
    Guard,
)
from lucid.compiler.inputs.objects import SCALARS


class GuardTable:
    """What must hold for a program to serve a call; native code looks at the same table.

    Attributes:
        guards: those that each call looks at; gated: those to look at when the epoch moved.
        cells: closures' cells, with what must be in each.
        entries: dict, key and what must be there, or ABSENT; `items`: the same of lists.
        fields: object, name of the field and what it must hold.
        lengths: containers with the number of their entries.
        others: all else.
    """

    __slots__ = ("cells", "entries", "fields", "gated", "guards", "items", "lengths", "others")

    def __init__(self, guards: Iterable[Guard]) -> None:
        guards = list(guards)
        self.guards = [guard for guard in guards if not guard.gated]
        self.gated = [guard for guard in guards if guard.gated]
        self.cells: list[tuple[Any, Any]] = []
        self.entries: list[tuple[dict[Any, Any], Any, Any]] = []
        self.items: list[tuple[Any, Any, Any]] = []
        self.fields: list[tuple[Any, str, Any]] = []
        self.lengths: list[tuple[Any, int]] = []
        self.others: list[Guard] = []
        for guard in self.guards:
            self._enter(guard)

    def _enter(self, guard: Guard) -> None:
        if isinstance(guard, AnswerGuard) and guard.ask is len:
            self.lengths.append((guard.args[0], guard.expected))
        elif isinstance(guard, FieldGuard):
            self.fields.append((guard.owner.of, guard.key, guard.expected))
        elif isinstance(guard, ContentsGuard) and _is_of_objects(guard):
            self.lengths.append((guard.owner, len(guard.expected)))
            self.items += [(guard.owner, i, item) for i, item in enumerate(guard.expected)]
        elif isinstance(guard, EntryGuard):
            self._enter_entry(guard, guard.owner)
        else:
            self.others.append(guard)

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

    def failure(self) -> str | None:
        """The first guard that looks at every call and doesn't hold; None if all do."""
        if self._holds():
            return None
        return first_failure(self.guards)

    def _holds(self) -> bool:
        """Whether all do; it may take a number that is equal for another one."""
        try:
            for cell, expected in self.cells:
                if cell.cell_contents is not expected:
                    return False
            for owner, key, expected in self.items:
                if owner[key] is not expected:
                    return False
        except (ValueError, IndexError):
            return False
        get = dict.get
        for owner, key, expected in self.entries:
            if get(owner, key, ABSENT) is not expected:
                return False
        for owner, name, expected in self.fields:
            now = type(owner) if name == "__class__" else getattr(owner, name)
            if now is not expected:
                return False
        for owner, length in self.lengths:
            if len(owner) != length:
                return False
        return all(guard.holds() for guard in self.others)

    def gated_failure(self) -> str | None:
        """The same for those that move the epoch."""
        return first_failure(self.gated)


def _is_of_objects(guard: ContentsGuard) -> bool:
    """Whether it is a list of objects, such as parameters: each is compared by what it is."""
    is_list = type(guard.owner) is list and not guard.apart
    return is_list and not any(isinstance(item, SCALARS) for item in guard.expected)


def first_failure(guards: Sequence[Guard]) -> str | None:
    """Why the first guard that doesn't hold fails; None if all hold."""
    for guard in guards:
        if not guard.holds():
            return guard.failure()
    return None


def _dict_of(kind: Any) -> Any:
    """The dict of a class's attributes, which Python shows as a read-only mapping."""
    found = [x for x in gc.get_referents(vars(kind)) if type(x) is dict]
    return found[0] if len(found) == 1 else vars(kind)
