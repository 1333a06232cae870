"""Python's cycle collector while a step is traced and compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Newborns:
    """What was made since: objects that the collector, which is paused, has not looked at yet."""

    def __init__(self) -> None:
        self._earlier: list[Any] = []
        gc.collect(0)  # from now on those that there were are of another generation
        self._later: list[Any] = []
        self._young: set[int] | None = None

    def may_have(self, value: object) -> bool:
        """Whether a value may be new; False: it is known to have been there before."""
        if self._young is None:
            self._young = {id(x) for x in gc.get_objects(generation=0)}
        is_known = id(self._later) in self._young and id(self._earlier) not in self._young
        return not is_known or not gc.is_tracked(value) or id(value) in self._young


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
