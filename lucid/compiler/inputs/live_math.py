"""Python's `math` while a trace runs: its functions of live numbers are live numbers as well."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from lucid.compiler.inputs.scalars import is_live

_BUILTIN = type(math.sqrt)
_FUNCTIONS = {name: item for name, item in vars(math).items() if callable(item)}


def _followed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, but of a live number a formula."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        live = [given for given in args if is_live(given)]
        if live and not kwargs:
            special = max(live, key=lambda number: len(type(number).__mro__))
            return special.apply(f"math.{function.__name__}", function, args)
        return function(*args, **kwargs)

    return call


_LIVE = {function: _followed(function) for function in _FUNCTIONS.values()}
_ORIGINALS = {id(live): function for function, live in _LIVE.items()}


def original_of(value: Any) -> Any:
    """The function that one of these stands for; any other value as it is."""
    return _ORIGINALS.get(id(value), value)


class LiveMath:
    """Lets `math.sqrt(1 - beta ** t)` stay live in a `with` block; other numbers see no change.

    `math` is one for all threads. Names that the user imported from it are replaced in the globals
    of code that is about to run.
    """

    def __init__(self) -> None:
        self._imported: list[tuple[dict[str, Any], str, Any]] = []
        self._seen: set[int] = set()

    def __enter__(self) -> LiveMath:
        for name, function in _FUNCTIONS.items():
            if getattr(math, name) is function:  # and no mock
                setattr(math, name, _LIVE[function])
        return self

    def __exit__(self, *error: object) -> None:
        for names, name, function in self._imported:
            if id(names[name]) in _ORIGINALS:
                names[name] = function
        for name, function in _FUNCTIONS.items():
            if getattr(math, name) is _LIVE[function]:
                setattr(math, name, function)

    def prepare(self, names: dict[str, Any]) -> None:
        """Replace what some code imported from `math`."""
        if id(names) in self._seen or names is vars(math):
            return
        self._seen.add(id(names))
        found = [(name, x) for name, x in names.items() if type(x) is _BUILTIN and x in _LIVE]
        for name, function in found:
            self._imported.append((names, name, function))
            names[name] = _LIVE[function]
