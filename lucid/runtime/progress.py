"""One line about a compilation that takes long, on a terminal, with the stage that it is at."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import weakref
from typing import Self

from lucid.ir.logs import say

AFTER_SECONDS = 1.0

logger = logging.getLogger("lucid.compile")
_of_thread = threading.local()


class Progress:
    """A compilation, while the block lasts. Its line is said once, by a thread that waits for it.

    Nothing is started where standard error is no terminal, or the logger `lucid.compile` is set to
    say less than warnings.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.stage = "trace"
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        self._before = _current()
        _of_thread.progress = weakref.ref(self)  # an interrupt may keep the block from its end
        if self._before is None and _is_terminal() and logger.isEnabledFor(logging.WARNING):
            self._timer = threading.Timer(AFTER_SECONDS, _say, (weakref.ref(self),))
            self._timer.daemon = True
            with contextlib.suppress(RuntimeError):  # there can't be more threads
                self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        _of_thread.progress = None if self._before is None else weakref.ref(self._before)
        if self._timer is not None:
            self._timer.cancel()


def _say(reference: weakref.ref[Progress]) -> None:
    """Say how long it has taken, unless an interrupt has ended it."""
    progress = reference()
    if progress is not None:
        say(
            "compile",
            "compiling %s has taken %g s so far, and is at the %s",
            progress.name,
            AFTER_SECONDS,
            progress.stage,
            level=logging.WARNING,
        )


def at(stage: str) -> None:
    """Note which stage this thread's compilation has come to."""
    progress = _current()
    if progress is not None:
        progress.stage = stage


def _current() -> Progress | None:
    """The innermost compilation of this thread; None outside of any."""
    reference = getattr(_of_thread, "progress", None)
    return None if reference is None else reference()


def _is_terminal() -> bool:
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, OSError, ValueError):  # it is None, closed, or an object of the user's
        return False
