"""Who needs what is in some memory, and copies it before somebody writes there."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Protocol

from lucid.tensor.storage import Storage

if TYPE_CHECKING:
    from lucid.tensor.core import TensorCore


class Keeper(Protocol):
    """Somebody who may compute with what is in some memory now."""

    def before_write(self, storage: Storage) -> None:
        """Copy what is needed of it; only the first write to some memory is told."""

    def before_assignment(self, tensor: TensorCore) -> None:
        """Copy what is needed of a tensor that is about to show other memory."""


keepers: dict[weakref.ref[Keeper], int] = {}
"""Numbered in their order."""

_numbers = itertools.count(1)
_told: weakref.WeakKeyDictionary[Storage, int] = weakref.WeakKeyDictionary()


def add_keeper(keeper: Keeper) -> None:
    """Tell it before in-place writes, as long as it lives, or until it is removed."""
    keepers[weakref.ref(keeper, _forget)] = next(_numbers)


def remove_keeper(keeper: Keeper) -> None:
    """Tell it no more."""
    _forget(weakref.ref(keeper))


def _forget(reference: weakref.ref[Keeper]) -> None:
    keepers.pop(reference, None)


def tell_keepers(storage: Storage) -> None:
    """Let them copy what they need of memory that is about to be written.

    Those who know already are passed over: there may be many, and many writes.
    """
    known = latest = _told.get(storage, 0)
    for reference in reversed(list(keepers)):
        number, keeper = keepers.get(reference), reference()
        if number is None or keeper is None:
            continue
        if number <= known:
            break
        latest = max(latest, number)
        keeper.before_write(storage)
    if latest > known:
        _told[storage] = latest


def tell_of_assignment(tensor: TensorCore) -> None:
    """Let them copy what they need of a tensor that is about to show other memory."""
    for reference in list(keepers):
        keeper = reference()
        if keeper is not None:
            keeper.before_assignment(tensor)
