"""Python effects after each call, such as a scheduler's: what they leave is known before it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lucid.tensor.core import TensorCore
from lucid.tensor.storage import VersionCounter


class Entries:
    """A copy of a dict's entries, with the elements and versions of tensors among them."""

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

    def __getitem__(self, key: str) -> Any:
        return self._entries[key]

    def are_there(self) -> bool:
        """Whether the dict has just these entries now."""
        owner, entries = self.owner, self._entries
        return (
            len(owner) == len(entries)
            and all(dict.get(owner, key, self) is value for key, value in entries.items())
            and all(counter.now == version for _, _, counter, version in self._tensors)
        )

    def put(self) -> None:
        """Restore the dict to these entries."""
        for key in self.owner.keys() - self._entries.keys():
            del self.owner[key]
        for key, value in self._entries.items():
            if dict.get(self.owner, key, self) is not value:
                self.owner[key] = value
        for array, elements, counter, version in self._tensors:
            np.copyto(array, elements)
            counter.now = version


def put_all(found: Sequence[Entries]) -> None:
    """Restore dicts to the entries that they had."""
    for entries in found:
        entries.put()


def all_or_nothing(call: Callable[[], object], owners: Sequence[dict[str, Any]]) -> None:
    """Make a call that changes dicts; after an interrupt they are as they were."""
    before = [*map(Entries, owners)]
    try:
        call()
    except BaseException as error:
        if not isinstance(error, Exception):
            put_all(before)
        raise


@dataclass(slots=True, eq=False)
class ReplayedEffect:
    """A Python function that is called again after each call, and sets entries of dicts.

    Attributes:
        call: the function with its arguments; what: its name, for messages.
        owners: the dicts whose entries it sets.
        anew: the keys of lists that it replaces by new ones, of the same length.
        is_foreseen: whether all that it leaves may be read later in the step, not only numbers:
            code of the user's may do more than set entries.
    """

    call: partial[Any]
    what: str
    owners: Sequence[dict[str, Any]]
    anew: Collection[str] = ()
    is_foreseen: bool = True


class ReplayedEffects:
    """The effects of a step, in its order.

    What they set is found out before a call, by calling them and restoring the dicts. The results
    are kept while the dicts stay as they were.

    Attributes:
        owners: the dicts whose entries they set.
    """

    def __init__(self) -> None:
        self.effects: list[ReplayedEffect] = []
        self.owners: list[dict[str, Any]] = []
        self._before: list[Entries] = []
        self._after: list[list[Entries]] = []  # of each effect

    def __len__(self) -> int:
        return len(self.effects)

    def add(self, effect: ReplayedEffect) -> None:
        known = {id(owner): owner for owner in (*self.owners, *effect.owners)}
        self.owners = [*known.values()]
        self.effects.append(effect)
        self.forget()

    def entries(self, number: int = -1) -> list[Entries]:
        """The entries that the dicts will have after an effect; the dicts stay as they are.

        So an effect's error comes before the call has changed anything, and nothing at the call's
        end can fail.
        """
        count = number % len(self.effects) + 1
        if not all(entries.are_there() for entries in self._before):
            self.forget()
        if len(self._after) < count:
            before, after = [*map(Entries, self.owners)], [*self._after]
            try:
                put_all(after[-1] if after else ())
                for effect in self.effects[len(after) : count]:
                    effect.call()
                    after.append([*map(Entries, self.owners)])
                put_all(before)
            except BaseException:  # an interrupt as well, while they are put back
                put_all(before)
                raise
            self._before, self._after = before, after
        return self._after[count - 1]

    def value(self, number: int, owner: dict[str, Any], key: str) -> Any:
        """One entry, as an effect leaves it."""
        return next(entries for entries in self.entries(number) if entries.owner is owner)[key]

    def take(self) -> list[Entries]:
        """The entries, which are about to be put there."""
        try:
            return self.entries()
        finally:
            self.forget()

    def forget(self) -> None:
        """Forget what was found, at the end of a call: the next one may find other entries."""
        self._after.clear()
        self._before.clear()
