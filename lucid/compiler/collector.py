"""Python's cycle collector while a step is traced and compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let no cycles be looked for: a program is made of many objects, none of which dies early.

    Each look goes over all of them, and would take a quarter of the time to compile. Where the
    collector is off already it stays off.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
