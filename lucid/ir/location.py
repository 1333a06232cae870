"""Where in the user's files something was made."""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from lucid.ir.errors import ErrorType

LIBRARY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # its folder
# An import runs between the user's line and what it makes a module of the library do.
_NOT_THE_USERS = (LIBRARY, contextlib.__file__, "<frozen importlib")


@dataclass(frozen=True, slots=True)
class Location:
    """A line of a user's file, which nodes carry and messages name.

    Attributes:
        file: the path of the file.
        line: the number of the line, from 1 on.
        source: the line as IR text quotes it, for a location that was parsed; None: read the file.

    >>> from lucid.ir import Location
    >>> place = Location("train.py", 12, "y = model(x)")
    >>> str(place), place.text
    ('train.py:12', 'y = model(x)')
    """

    file: str
    line: int
    source: str | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """The line's source, stripped; empty when it can't be read."""
        if self.source is not None:
            return self.source
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


location_at = lru_cache(maxsize=4096)(Location)  # one for all the nodes of a line


def at_line(error: ErrorType, location: Location | None) -> ErrorType:
    """The error, with the line of the user's that what it is about stands in, before a hint."""
    if location is None:
        return error
    problem, hint, remedy = str(error).partition("\nhint: ")
    place = f"{location}   {location.text}".rstrip()
    placed = type(error)(f"{problem}\n  in {place}{hint}{remedy}")
    placed.__dict__.update(error.__dict__)
    return placed


PASSED: set[str] = set()  # files that frames had, which are passed over
USERS: set[str] = set()  # and the others


def user_frame(inside: int = 1) -> FrameType | None:
    """Return the innermost frame that isn't the library's own; None when there is none.

    inside: so many frames, the caller's the innermost, are known to be the library's.
    """
    frame: FrameType | None = sys._getframe(inside)
    while frame is not None:
        file = frame.f_code.co_filename
        if file in USERS:
            break
        if file not in PASSED:
            (PASSED if file.startswith(_NOT_THE_USERS) else USERS).add(file)
            continue
        frame = frame.f_back
    return frame


# Where the user's code stood: a file and a line, or a code object and the instruction that ran,
# which is found twice as fast, and whose line is looked up when a message wants it.
Spot = tuple[str, int] | tuple[CodeType, int] | None


def user_spot() -> Spot:
    """Where the user's code stands now."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in PASSED:
        frame = frame.f_back
    if frame is not None and frame.f_code.co_filename not in USERS:
        frame = user_frame()
    return None if frame is None else (frame.f_code, frame.f_lasti)


def line_of(spot: Spot) -> tuple[str, int] | None:
    """File and line of a spot."""
    if spot is None:
        return None
    code, instruction = spot
    if isinstance(code, str):
        return code, instruction
    found = code.co_firstlineno
    for start, end, line in code.co_lines():
        if start <= instruction < end:
            found = found if line is None else line
            break
    return code.co_filename, found


class Placed:
    """What notes where the user's code has made it, in a slot of its class's own."""

    __slots__ = ()

    _spot: Spot

    @property
    def _line(self) -> tuple[str, int] | None:
        return line_of(self._spot)

    @_line.setter
    def _line(self, line: Spot) -> None:
        self._spot = line  # type: ignore[misc]


def here() -> Location | None:
    """The user's line that is running now: a walk of a few frames, no source is read."""
    frame = user_frame()
    return None if frame is None else location_at(frame.f_code.co_filename, frame.f_lineno)


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line that is running now, as if it stood there."""
    frame = user_frame()
    if frame is None:
        warnings.warn(text, category, stacklevel=2)
    elif not any(is_taken(frame, text, category) for is_taken in takers):
        warning_at(frame)(text, category)


# Those who may have it that a warning is given later: they say so.
takers: list[Callable[[FrameType, str, type[Warning]], bool]] = []


def warning_at(frame: FrameType) -> Callable[..., None]:
    """What gives warnings, as `warnings.warn` does, at the line that a frame is in now."""
    file, line, names = frame.f_code.co_filename, frame.f_lineno, frame.f_globals

    def warn(message: Any, category: Any = UserWarning, *_: Any, **__: Any) -> None:
        category = type(message) if isinstance(message, Warning) else category
        known = names.setdefault("__warningregistry__", {})
        warnings.warn_explicit(message, category, file, line, names.get("__name__"), known)

    return warn
