"""The environment variables that lucid reads: what each means, and what it takes.

One rule holds for all: an empty variable is as if it weren't set. So is one with a value that makes
no sense, and one warning says so. Of a list of names those that are known hold, and the warning is
of the others.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lucid.ir.location import warn

T = TypeVar("T")

MOST_THREADS = 256
LOGS = ("retrace", "compile", "cache", "eager", "exits", "nan")
_PREFIX = "LUCID_"
_SIMILAR = 0.75  # LUCID_THREADS is for LUCID_NUM_THREADS, LUCID_SERVICE_PORT for none
_warned: set[str] = set()


class UnknownNamesError(ValueError):
    """Some names of a list aren't known; `known` are the others."""

    def __init__(self, unknown: Sequence[str], known: tuple[str, ...]) -> None:
        super().__init__(", ".join(unknown))
        self.known = known


@dataclass(frozen=True, slots=True)
class Variable(Generic[T]):
    """An environment variable, declared once; the README's table is made of these.

    Attributes:
        meaning, values, default: what it is for, what it takes, what holds without it, in words.
        parse: from a value's text to what it means; raises `ValueError` for nonsense.
        unset: what is read where there is no value, or nonsense.
    """

    name: str
    meaning: str
    values: str
    default: str
    parse: Callable[[str], T]
    unset: T

    def read(self) -> T:
        """What the environment says now; where that makes no sense, warn once, and `unset`."""
        text = os.environ.get(self.name, "")
        if not text.strip():
            return self.unset
        try:
            return self.parse(text)
        except UnknownNamesError as found:
            self.refuse(
                f"there is no {found}; expected {self.values}; using {', '.join(found.known)}"
            )
            return found.known  # type: ignore[return-value]
        except ValueError:
            self.refuse(f"expected {self.values}; using the default, {self.default}")
            return self.unset

    def refuse(self, problem: str) -> None:
        """Warn, once, of what is wrong with the present value and what comes of it."""
        warn_once(f"{self.name}={os.environ.get(self.name)!r}: {problem}")


def warn_once(text: str) -> None:
    """Warn at the user's line that is running now, unless this process has said the same."""
    if text not in _warned:
        _warned.add(text)  # first, for the user may have made an error of warnings
        warn(text)


def check() -> None:
    """Warn of nonsense in any variable, and of a name that may be a misspelt one.

    A name that resembles none is another program's: Kubernetes, for one, sets LUCID_SERVICE_HOST
    and LUCID_PORT beside a service that is called lucid.
    """
    for variable in VARIABLES:
        variable.read()
    for name, close in unknown_names():
        if close:
            warn_once(f"lucid reads no variable {name}; did you mean {close}?")


def unknown_names() -> list[tuple[str, str]]:
    """Variables that look like lucid's and aren't, each with the one that is meant, or ""."""
    known = [variable.name.removeprefix(_PREFIX) for variable in VARIABLES]
    found = []
    for name in os.environ.copy():
        part = name.removeprefix(_PREFIX)
        if part != name and part not in known:
            close = difflib.get_close_matches(part, known, 1, _SIMILAR)
            found.append((name, f"{_PREFIX}{close[0]}" if close else ""))
    return found


# What there is --------------------------------------------------------------------------------


def _on_or_off(text: str) -> bool:
    word = text.strip().lower()
    if word in ("1", "on", "true", "yes"):
        return True
    if word in ("0", "off", "false", "no"):
        return False
    raise ValueError


def _switch(name: str, meaning: str, unset: bool) -> Variable[bool]:
    values = "on/off, 1/0, true/false or yes/no"
    return Variable(name, meaning, values, "on" if unset else "off", _on_or_off, unset)


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= MOST_THREADS:
        raise ValueError
    return count


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _logs(text: str) -> tuple[str, ...]:
    names = _names(text.lower())
    known = tuple(name for name in names if name in LOGS)
    if names and not known:
        raise ValueError
    if len(known) < len(names):
        raise UnknownNamesError([name for name in names if name not in LOGS], known)
    return known


NUM_THREADS: Variable[int | None] = Variable(
    "LUCID_NUM_THREADS",
    "how many threads compute a compiled step",
    f"a number from 1 to {MOST_THREADS}",
    "all processors that the process may use",
    _count,
    None,
)
CACHE = _switch("LUCID_CACHE", "keep compiled code on disk", True)
CACHE_DIR: Variable[str | None] = Variable(
    "LUCID_CACHE_DIR",
    "the folder to keep it in",
    "a folder that can be written to",
    "`lucid` in the user's cache folder",
    str,
    None,
)
LOG: Variable[tuple[str, ...]] = Variable(
    "LUCID_LOG",
    "write to stderr why a step is traced again, how long compiling takes, what the cache finds, "
    "what runs op by op, where a step takes a new path, which calls a NaN makes a step skip",
    ", ".join(LOGS),
    "nothing",
    _logs,
    (),
)
EAGER = _switch("LUCID_EAGER", "run compiled functions op by op, for a debugger", False)
NATIVE_CALLS = _switch("LUCID_NATIVE_CALLS", "let machine code check and pass arguments", True)
NATIVE_FUNCTIONS = _switch(
    "LUCID_NATIVE_FUNCTIONS",
    "run the library's Functions, such as convolutions, as native programs outside of steps; "
    "off: op by op with NumPy",
    True,
)
VERIFY = _switch(
    "LUCID_VERIFY",
    "check the graph after each pass, and the kernels, to find a fault of lucid",
    False,
)
PRINT_AFTER: Variable[tuple[str, ...]] = Variable(
    "LUCID_PRINT_AFTER",
    "write to stderr the graph after these passes, where they changed it",
    "names of passes, as `step.stages` has them, or all",
    "nothing",
    _names,
    (),
)


def _length(text: str) -> str:
    word = text.strip().lower()
    if word not in ("short", "full"):
        raise ValueError
    return word


TRACEBACK = Variable(
    "LUCID_TRACEBACK",
    "show the library's own frames in tracebacks",
    "short or full",
    "short",
    _length,
    "short",
)

VARIABLES: tuple[Variable[Any], ...] = (
    NUM_THREADS,
    CACHE,
    CACHE_DIR,
    LOG,
    EAGER,
    NATIVE_CALLS,
    NATIVE_FUNCTIONS,
    VERIFY,
    PRINT_AFTER,
    TRACEBACK,
)
