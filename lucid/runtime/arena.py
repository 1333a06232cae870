"""Memory for temporaries: aligned, and on huge pages where it is large."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import weakref
from collections.abc import MutableSequence
from typing import Any, Protocol

import numpy as np

from lucid.ir.errors import TooLargeError
from lucid.ir.memory import ALIGNMENT, address_of

HUGE_PAGE = 2 << 20
# Arenas above this size are worth pages of their own.
HUGE_FROM = 4 << 20
# Of this process alone: by default a mapping is shared with forked ones, and has no huge pages.
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


class Arena:
    """Uninitialized memory that lives as long as this object.

    The first touch of a page of 4 KB takes about 2 us; on huge pages it is five times faster, and
    scattered accesses rarely miss the page table's cache.

    Raises: TooLargeError where the system has no room for it.

    Attributes:
        size: in bytes.
        address: of the first byte, a multiple of 64; of 2 MB where huge pages are asked for.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        huge = size > HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE")
        align = HUGE_PAGE if huge else ALIGNMENT
        self._mapping = _mapped(size + align) if huge else None
        if self._mapping is None:
            self._bytes: np.ndarray = np.empty(size + align, np.uint8)
        else:
            with contextlib.suppress(OSError):  # a kernel without them
                self._mapping.madvise(mmap.MADV_HUGEPAGE)
            self._bytes = np.frombuffer(self._mapping, np.uint8)
        start = address_of(self._bytes)
        self.address = start + -start % align


def _mapped(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size, **_PRIVATE)
    except (OSError, OverflowError, ValueError) as error:
        raise TooLargeError(f"unable to allocate {size / 2**30:,.1f} GiB") from error


# Sharing --------------------------------------------------------------------------------------

# What programs may keep between their calls, or room for two of the largest if that is more.
IDLE_BYTES = 1 << 30


class Tenant(Protocol):
    """What runs on an arena: the context of a program's calls."""

    arena_bytes: int
    arena: Arena | None

    def give_up_arena(self) -> None:
        """Run on no arena until it is given another one."""


class Arenas:
    """Takes large arenas from programs that weren't started for longest, for one that starts.

    A program keeps its arena from call to call: memory that was touched is much faster. But a
    function that is called with many shapes has many programs, each with the temporaries of one.
    """

    def __init__(self, idle_bytes: int = IDLE_BYTES) -> None:
        self._idle_bytes = idle_bytes
        self._lock = threading.Lock()
        # By the tenant's id: it, and the list that it stands in while no call uses it. The one
        # that got its arena first comes first.
        self._tenants: dict[int, tuple[weakref.ref[Tenant], weakref.ref[MutableSequence[Any]]]] = {}

    def provide(self, tenant: Tenant, idle: MutableSequence[Any] | None = None) -> Arena:
        """An arena of the size that a tenant needs.

        idle: where it stands while no call uses it; given when it asks for the first time.
        """
        size = tenant.arena_bytes
        if size <= HUGE_FROM:
            return Arena(size)
        with self._lock:
            known = self._tenants.pop(id(tenant), None)
            free = self._make_room(size)
            if idle is not None:
                known = weakref.ref(tenant), weakref.ref(idle)
            if known is not None:
                self._tenants[id(tenant)] = known
        return free or Arena(size)

    def _make_room(self, size: int) -> Arena | None:
        """Take arenas until the rest and a new one are within the limit; return one that fits."""
        kept, free = 0, None
        limit = max(self._idle_bytes, 2 * size) - size
        for number, (tenant_of, idle_of) in reversed(list(self._tenants.items())):
            tenant, idle = tenant_of(), idle_of()
            if tenant is None or idle is None:
                del self._tenants[number]
                continue
            arena = tenant.arena
            if arena is None:
                continue
            kept += arena.size
            if kept > limit and _leave(tenant, idle):
                kept -= arena.size
                if size <= arena.size <= 2 * size:
                    free = arena
        return free

    def after_fork(self) -> None:
        """In a child: another thread may have held the lock, and lives no longer."""
        self._lock = threading.Lock()


def _leave(tenant: Tenant, idle: MutableSequence[Any]) -> bool:
    """Have a tenant give up its arena, unless a call uses it: then it isn't in its list."""
    try:
        idle.remove(tenant)
    except ValueError:
        return False
    tenant.give_up_arena()
    idle.append(tenant)
    return True


arenas = Arenas()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=arenas.after_fork)
