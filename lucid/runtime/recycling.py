"""Memory of large results: used again once nothing shows it any more.

A result of some megabytes that is allocated anew at each call costs more for the first touch of its
pages than for its elements. So large ones lie in memory that comes back when the array and all
that refers to it, views and other libraries' included, are gone.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np

from lucid.ir.memory import empty
from lucid.ir.types import Shape
from lucid.runtime.arena import HUGE_FROM, HUGE_PAGE, Arena

LARGE_BYTES = 1 << 18  # what is smaller comes from NumPy
IDLE_BYTES = 256 << 20  # kept for later results, or as much as is in use, whichever is more
_GRANULE = 1 << 16


class Block:
    """A piece of memory that holds one array at a time.

    Attributes:
        size: in bytes; arrays of about the same size take turns with it.
    """

    __slots__ = ("_arena", "_exporter", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._arena = Arena(size)
        self._exporter: Any = ctypes.c_char * size

    def lend(self) -> Any:
        """An object that exports the memory: the base of an array on it, and of views of that."""
        return self._exporter.from_address(self._arena.address)


class _Loan(weakref.ref[Any]):
    """Notices that an exporter is gone; it keeps the memory alive until then."""

    __slots__ = ("block",)

    block: Block


class Recycling:
    """Lends memory, and takes it back when the borrower dies.

    A borrower may die at any time, also in the middle of a method of this class. Its loan is
    noted then, and looked at by whoever holds the lock.

    Attributes:
        lent, idle: bytes in use, and bytes that wait for the next array of their size.
    """

    def __init__(self, idle_bytes: int = IDLE_BYTES) -> None:
        self.lent = self.idle = 0
        self._idle_bytes = idle_bytes
        self._held: dict[int, _Loan] = {}
        self._ended: deque[_Loan] = deque()
        self._waiting: deque[Block] = deque()  # the one that waits for longest comes first
        self._lock = threading.Lock()

    def empty(self, shape: Shape, dtype: np.dtype[Any], nbytes: int) -> np.ndarray:
        """An uninitialized array of `nbytes` bytes; only large ones are on recycled memory."""
        if nbytes < LARGE_BYTES:
            return empty(shape, dtype, nbytes)
        granule = HUGE_PAGE if nbytes > HUGE_FROM else _GRANULE
        memory = self._borrow(nbytes + -nbytes % granule)
        return np.ndarray(shape, dtype, memory)

    def _borrow(self, size: int) -> Any:
        with self._lock:
            self._take_back()
            block = self._waiting_block(size) or Block(size)
            memory = block.lend()
            loan = _Loan(memory, self._end)
            loan.block = block
            self._held[id(loan)] = loan
            self.lent += size
        return memory

    def _waiting_block(self, size: int) -> Block | None:
        """The block of this size that was used last, whose pages may be in a cache."""
        for block in reversed(self._waiting):
            if block.size == size:
                self._waiting.remove(block)
                self.idle -= size
                return block
        return None

    def _end(self, loan: _Loan) -> None:
        """Take back the memory of a borrower that died, now or when the lock is free."""
        self._ended.append(loan)
        while self._ended and self._lock.acquire(blocking=False):
            try:
                self._take_back()
            finally:
                self._lock.release()

    def _take_back(self) -> None:
        while self._ended:
            loan = self._ended.popleft()
            del self._held[id(loan)]
            block = loan.block
            self.lent -= block.size
            self.idle += block.size
            self._waiting.append(block)
        while self.idle > max(self._idle_bytes, self.lent):
            self.idle -= self._waiting.popleft().size

    def after_fork(self) -> None:
        """In a child: another thread may have held the lock, and lives no longer."""
        self._lock = threading.Lock()


recycling = Recycling()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=recycling.after_fork)
