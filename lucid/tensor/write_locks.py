"""Which thread's step works on which state: those on the same state run one after another.

There is one lock. Whoever takes over or hands over state that threads share holds it: from the look
at a step's guards until its native call has all it needs, and again from the end of the call until
gradients and versions are in their places. A short step holds it throughout, since it keeps the
interpreter's lock as well. A long one, or one that calls Python, enters a claim on what it writes
and lets the lock go meanwhile: only a step or an accumulation that needs the same waits.

A thread never waits for itself, and one that would wait in a circle gets an error instead.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any, TypeVar

import numpy as np

from lucid.codegen.llvm.forking import Rank, compiling, hold_at_forks
from lucid.ir.errors import LucidError
from lucid.tensor.context import context

Made = TypeVar("Made")
Keys = frozenset[int]  # identities: of leaves, of those who own memory, of what is traced
TRACING = 0  # what a trace claims: one thread traces at a time

lock = threading.RLock()
_changed = threading.Condition(lock)


def _is_owned(lock: Any) -> bool:
    """Whether this thread has a lock."""
    return bool(lock._is_owned())


class WriteLock:
    """What one thread has to itself, until the end of the block; it waits for it at the start."""

    __slots__ = ("keys", "thread")

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.thread = get_ident()

    def __enter__(self) -> WriteLock:
        with lock:
            if held:
                wait_for(self.keys)
            try:
                held.append(self)
            except BaseException:  # whoever interrupts comes after it
                end_claim(self)
                raise
        return self

    def __exit__(self, *_: object) -> None:
        with lock:
            end_claim(self)

    def give_up(self, key: int) -> None:
        """Let others have a part of it already."""
        with lock:
            self.keys -= {key}
            _changed.notify_all()


def end_claim(claim: WriteLock) -> None:
    """Let others have what it is about; the lock is held. Not for the first time is fine."""
    if claim in held:
        held.remove(claim)
    _changed.notify_all()


def exchange_lock(keys: Keys) -> WriteLock:
    """Let a claim take the place of the lock, which the thread holds.

    Nobody else may have claimed the same.
    """
    claim = WriteLock(keys)
    try:
        held.append(claim)
        lock.release()
    except BaseException:
        take_back(claim)
        raise
    return claim


def take_back(claim: WriteLock) -> None:
    """Take the lock in place of a claim. Who is interrupted calls it again: it goes on then."""
    while not _is_owned(lock):
        lock.acquire()
    end_claim(claim)


def unlocked(keys: Keys, run: Callable[[], Made]) -> Made:
    """What `run()` returns, with a claim in place of the lock, as `exchange_lock` has it."""
    claim = exchange_lock(keys)
    try:
        made = run()
        take_back(claim)
    except BaseException:
        take_back(claim)
        raise
    return made


held: list[WriteLock] = []
_waiting: dict[int, Keys] = {}  # by thread


def wait_for(keys: Keys) -> None:
    """Wait until no other thread claims any of this; the lock is held before and after.

    Raises: `LucidError` when those that hold it wait for this thread.
    """
    thread = get_ident()
    while others := _holders(keys, thread):
        if _wait_for(others, thread):
            raise LucidError(
                "two threads wait for each other: each is inside of a step that calls Python, and "
                "there calls another step that writes what the other thread's step works with\n"
                "hint: call it outside of the custom Function"
            )
        _waiting[thread] = keys
        try:
            _changed.wait()
        finally:
            _waiting.pop(thread, None)


def _holders(keys: Keys, thread: int) -> set[int]:
    """The other threads that claim any of this."""
    return {c.thread for c in held if c.thread != thread and not keys.isdisjoint(c.keys)}


def _wait_for(threads: Iterable[int], goal: int) -> bool:
    """Whether one of the threads waits for `goal`, directly or by way of others."""
    seen: set[int] = set()
    stack = list(threads)
    while stack:
        thread = stack.pop()
        if thread not in seen:
            seen.add(thread)
            stack += _holders(_waiting.get(thread, frozenset()), thread)
    return goal in seen


_MOST_SECONDS = 10.0  # that a fork waits


def _before_fork() -> None:
    """Take the lock when no other thread traces.

    What stands for numbers and objects meanwhile nobody would take back in the child. But the trace
    may wait for this thread, in the user's code.
    """
    is_within = _is_owned(lock)
    lock.acquire()
    thread, end = get_ident(), time.monotonic() + _MOST_SECONDS
    while not is_within and (others := _holders(frozenset([TRACING]), thread)):
        if _wait_for(others, thread) or not _changed.wait(end - time.monotonic()):
            return


def _alone() -> None:
    """In a forked process there is only the thread that forked."""
    thread = get_ident()
    held[:] = [claim for claim in held if claim.thread == thread]
    _waiting.clear()
    lock.release()


def close_blocks(error: BaseException) -> None:
    """End the blocks that an error has kept from it: what they put back comes before what follows.

    Who is interrupted as `contextlib` enters or leaves one doesn't come to its end. Its generator
    would be closed when nobody has the traceback any more, and put back what was there long before.
    """
    known: BaseException | None = error
    seen = set[int]()
    while known is not None and id(known) not in seen:  # users may tie a circle
        seen.add(id(known))
        for frame, _ in traceback.walk_tb(known.__traceback__):
            if frame.f_code.co_filename == contextlib.__file__:
                with contextlib.suppress(RuntimeError):  # it runs
                    frame.clear()
        known = known.__context__


class ThreadSnapshot:
    """The modes of the running thread, its claims, and which locks it has, to be put back.

    Python looks for signals between any two calls, also in a `finally` or before the first line of
    an `__exit__`: no way to leave a block is sure to be taken. So whoever begins something that has
    many blocks inside puts all of it back, whatever they have done.
    """

    def __init__(self) -> None:
        self._modes = dict(vars(context))
        self._lists = [(x, [*x]) for x in self._modes.values() if isinstance(x, list)]
        self._had = [*map(_is_owned, (lock, compiling))]
        self._claims = [*held]
        self._numpy: Any = np.geterr()

    def put_back(self, error: BaseException) -> None:
        """Let it be so again, after an error; not for the first time is fine."""
        close_blocks(error)
        np.seterr(**self._numpy)
        for entries, before in self._lists:
            entries[:] = before
        vars(context).update(self._modes)
        with lock:
            for claim in [*held]:
                if claim.thread == get_ident() and claim not in self._claims:
                    end_claim(claim)
        for each, had in zip((lock, compiling), self._had, strict=True):
            while not had and _is_owned(each):
                each.release()


hold_at_forks(Rank.STATE, _before_fork, lock.release, _alone)
