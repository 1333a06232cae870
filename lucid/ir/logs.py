"""What the library says of its own work: a channel of `logging` for each kind of message.

`lucid.retrace`, `lucid.compile`, `lucid.cache`, `lucid.eager`, `lucid.exits` and `lucid.nan` are
loggers as any: their levels and handlers are the user's. `LUCID_LOG=retrace,cache` shows a channel
on stderr where no handler of the user's would.
"""

from __future__ import annotations

import contextlib
import logging
import sys

from lucid.ir.environment import LOG

_FORM = logging.Formatter("lucid: %(message)s")


def say(channel: str, text: str, *values: object, level: int = logging.INFO) -> None:
    """Log a message of a channel."""
    logger = logging.getLogger(f"lucid.{channel}")
    if channel in LOG.read() and not (logger.isEnabledFor(level) and logger.hasHandlers()):
        record = logger.makeRecord(logger.name, level, "", 0, text, values, None)
        to_stderr(_FORM.format(record) + "\n")
    elif logger.hasHandlers():
        logger.log(level, text, *values)
    elif logger.isEnabledFor(level):  # Python would show the text alone, with no word of lucid
        logger.log(level, f"lucid: {text}", *values)


def to_stderr(text: str) -> None:
    """Write a text there, unless it is None, as of a service, closed or full."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(text)


def is_on(channel: str, level: int = logging.INFO) -> bool:
    """Whether somebody listens: for messages that cost something to make."""
    return channel in LOG.read() or logging.getLogger(f"lucid.{channel}").isEnabledFor(level)
