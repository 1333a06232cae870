"""What is made once in a process, whichever threads ask for it at a time."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Lock:
    """One at a time makes something; a thread may ask for more while it does."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget who has it: a child process has none of the threads that may."""
        self.held = threading.RLock()


_making = _Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_making.renew)


class Once(Generic[T]):
    """A function that is called once for its arguments, by one thread, while others wait.

    `functools.cache` lets several threads call it, and forgets all results but one: machine code
    would end while a thread is in it. A signal's handler may ask while it is made: what that has
    made first is the one then.
    """

    def __init__(self, make: Callable[..., T]) -> None:
        self._make = make
        self._known: dict[tuple[Hashable, ...], T] = {}
        self.cache_clear = self._known.clear
        functools.update_wrapper(self, make)

    def __call__(self, *args: Hashable) -> T:
        with _making.held:
            if args not in self._known:
                made = self._make(*args)
                self._known.setdefault(args, made)
            return self._known[args]
