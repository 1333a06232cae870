"""Locks that a fork takes, so that a child finds whole what they protect.

They are taken in the order in which threads take them that take several: a fork that took one of
them the other way round would wait for a thread that waits for it. Another thread that holds one is
waited for: it does not live on in the child.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

Action = Callable[[], object]


class Rank(IntEnum):
    """What a lock protects; who has one may wait for a later one, never for an earlier one."""

    STATE = 0  # what threads' steps work on
    WORKERS = 1
    CODE = 2
    LLVM = 3


class _Lock(NamedTuple):
    rank: Rank
    acquire: Action
    release: Action
    release_in_child: Action


_locks: list[_Lock] = []
# Of who compiles. A signal's handler may do so while a program's texts are written.
compiling = threading.RLock()


def hold_at_forks(
    rank: Rank, acquire: Action, release: Action, release_in_child: Action | None = None
) -> None:
    """Take a lock before each fork; release it on both sides."""
    _locks.append(_Lock(rank, acquire, release, release_in_child or release))
    _locks.sort(key=lambda lock: lock.rank)


def _before() -> None:
    for lock in _locks:
        lock.acquire()


def _after() -> None:
    for lock in reversed(_locks):
        lock.release()


def _after_in_child() -> None:
    for lock in reversed(_locks):
        lock.release_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
