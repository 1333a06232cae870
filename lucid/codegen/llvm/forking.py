"""Locks that a fork takes, so that a child finds whole what they protect.

They are taken in the order in which they were entered here, which is that of threads which take
several. Another thread that holds one is waited for: it does not live on in the child.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

Action = Callable[[], object]


class _Held(NamedTuple):
    acquire: Action
    release: Action
    release_in_child: Action


_locks: list[_Held] = []


def hold_at_forks(acquire: Action, release: Action, release_in_child: Action | None = None) -> None:
    """Take a lock before each fork; release it on both sides."""
    _locks.append(_Held(acquire, release, release_in_child or release))


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
