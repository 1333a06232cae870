"""Who needs what is in some memory, and copies it before somebody writes there."""

from __future__ import annotations

import weakref
from typing import Protocol

from lucid.tensor.storage import Storage


class Keeper(Protocol):
    """Somebody who may compute with what is in some memory now."""

    def before_write(self, storage: Storage) -> None:
        """Copy what is needed of it."""


keepers: dict[int, weakref.ref[Keeper]] = {}


def add_keeper(keeper: Keeper) -> None:
    """Tell it before each in-place write, as long as it lives, or until it is removed."""
    number = id(keeper)
    keepers[number] = weakref.ref(keeper, lambda _: keepers.pop(number, None))


def remove_keeper(keeper: Keeper) -> None:
    """Tell it no more."""
    keepers.pop(id(keeper), None)


def tell_keepers(storage: Storage) -> None:
    """Let them copy what they need of memory that is about to be written."""
    for reference in list(keepers.values()):
        keeper = reference()
        if keeper is not None:
            keeper.before_write(storage)
