"""Who needs what is in some memory, and copies it before somebody writes there."""

from __future__ import annotations

import weakref
from typing import Protocol

from lucid.tensor.storage import Storage


class Keeper(Protocol):
    """Somebody who may compute with what is in some memory now."""

    def before_write(self, storage: Storage) -> None:
        """Copy what is needed of it."""


keepers: set[weakref.ref[Keeper]] = set()


def add_keeper(keeper: Keeper) -> None:
    """Tell it before each in-place write, as long as it lives, or until it is removed."""
    keepers.add(weakref.ref(keeper, keepers.discard))


def remove_keeper(keeper: Keeper) -> None:
    """Tell it no more."""
    keepers.discard(weakref.ref(keeper))


def tell_keepers(storage: Storage) -> None:
    """Let them copy what they need of memory that is about to be written."""
    for reference in list(keepers):
        keeper = reference()
        if keeper is not None:
            keeper.before_write(storage)
