"""Python effects after each call, such as a scheduler's: what they leave is known before it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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


class ReplayedEffect:
    """A Python function that is called again after each call, and sets entries of dicts.

    What it sets is found out before a call, by calling it and restoring the dicts. The result is
    kept while the dicts stay as they were.

    Attributes:
        call: the function with its arguments; what: its name, for messages.
        owners: the dicts whose entries it and the effects before it set.
        anew: the keys of lists that it replaces by new ones, of the same length.
        is_foreseen: whether all that it leaves may be read later in the step, not only numbers:
            code of the user's may do more than set entries.
    """

    def __init__(
        self,
        call: partial[Any],
        what: str,
        owners: Sequence[dict[str, Any]],
        anew: Collection[str] = (),
        is_foreseen: bool = True,
    ) -> None:
        self.call = call
        self.what = what
        self.owners = owners
        self.anew = anew
        self.is_foreseen = is_foreseen
        self._earlier: ReplayedEffect | None = None
        self._before: list[Entries] = []
        self._after: list[Entries] = []

    def follow(self, earlier: ReplayedEffect) -> None:
        """Take place after an earlier effect, whose dicts this one then knows as well."""
        self._earlier = earlier
        known = {id(owner): owner for owner in (*earlier.owners, *self.owners)}
        self.owners = [*known.values()]

    def entries(self) -> list[Entries]:
        """The entries that the dicts will have; the dicts stay as they are.

        So an effect's error comes before the call has changed anything, and nothing at the call's
        end can fail.
        """
        missing: list[ReplayedEffect] = []
        known: ReplayedEffect | None = self
        while known is not None and not known._is_found():
            missing.append(known)
            known = known._earlier
        if missing:
            before = [*map(Entries, self.owners)]
            try:
                for effect in reversed(missing):
                    effect._find(before)
                put_all(before)
            except BaseException:  # an interrupt as well, while they are put back
                put_all(before)
                raise
        return self._after

    def _is_found(self) -> bool:
        return bool(self._before) and all(entries.are_there() for entries in self._before)

    def _find(self, before: list[Entries]) -> None:
        """Find the entries that the dicts will have, and leave the dicts with them.

        before: the entries by now, of these dicts and further ones; those that the earlier effect
        leaves are known.
        """
        put_all(before if self._earlier is None else self._earlier._after)
        self.call()
        self._after = [*map(Entries, self.owners)]
        self._before = before[: len(self.owners)]

    def value(self, owner: dict[str, Any], key: str) -> Any:
        """One entry."""
        return next(entries for entries in self.entries() if entries.owner is owner)[key]

    def take(self) -> list[Entries]:
        """The entries, which are about to be put there."""
        try:
            return self.entries()
        finally:
            self.forget()

    def forget(self) -> None:
        """Forget what was found, at the end of a call: the next one may find other entries."""
        self._before, self._after = [], []
