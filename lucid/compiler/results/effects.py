"""What a step does in Python after each call, such as a scheduler's: found out before the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.tensor.core import TensorCore
from lucid.tensor.storage import VersionCounter


@dataclass(frozen=True, slots=True)
class Effect:
    """What is repeated after each call.

    Attributes:
        call: does it; what: its name, for messages.
        owners: the dicts whose entries it sets.
    """

    call: Callable[[], object]
    what: str
    owners: Sequence[dict[str, Any]]


class Entries:
    """What is in a dict, the elements of tensors there included."""

    __slots__ = ("_entries", "_tensors", "owner")

    def __init__(self, owner: dict[str, Any]) -> None:
        self.owner = owner
        self._entries = dict.copy(owner)
        values = self._entries.values()
        self._tensors: list[tuple[Any, Any, VersionCounter, int]] = [
            (x._array, np.array(x._array), x._counter, x._counter.now)
            for x in values
            if isinstance(x, TensorCore) and x._array is not None
        ]

    def put(self) -> None:
        """Let it be there again."""
        for key in self.owner.keys() - self._entries.keys():
            del self.owner[key]
        for key, value in self._entries.items():
            if dict.get(self.owner, key, self) is not value:
                self.owner[key] = value
        for array, elements, counter, version in self._tensors:
            np.copyto(array, elements)
            counter.now = version


def changed_by(effects: Iterable[Effect]) -> list[Entries]:
    """What is in the dicts that effects change after these, one after the other.

    Afterwards they are as before: what an effect raises comes before the call has changed anything,
    and the call has nothing to do at its end that could fail.
    """
    before: dict[int, Entries] = {}
    try:
        for effect in effects:
            for owner in effect.owners:
                before.setdefault(id(owner), Entries(owner))
            effect.call()
        after = [Entries(entries.owner) for entries in before.values()]
        for entries in before.values():
            entries.put()
    except BaseException:
        for entries in before.values():
            entries.put()
        raise
    return after
