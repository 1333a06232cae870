"""Python's cycle collector while a step is traced and compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_pauses: list[bool] = []  # those of all threads that last, with whether it was on before


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let no cycles be looked for: a program is made of many objects, none of which dies early.

    Each look goes over all of them, and would take a quarter of the time to compile; and what runs
    at it, such as a callback of another package, isn't the step's. Where the collector is off
    already it stays off.
    """
    with _lock:
        _pauses.append(gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            was_on = _pauses.pop()
            if _pauses:
                _pauses[-1] |= was_on
            elif was_on:
                gc.enable()
