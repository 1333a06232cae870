"""Python's `math` while a trace runs: its functions of live numbers are live numbers as well."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.inputs.watches import Watch

_FUNCTIONS = {name: item for name, item in vars(math).items() if callable(item)}


def _followed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, but of a live number a formula."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for given in args:
            if is_live(given) and not kwargs:
                return given.apply(f"math.{function.__name__}", function, args)
        return function(*args, **kwargs)

    return call


LIVE = {function: _followed(function) for function in _FUNCTIONS.values()}


@contextmanager
def live_math(watches: Iterable[object]) -> Iterator[None]:
    """Let `math.sqrt(1 - beta ** t)` stay live inside of the block; other numbers see no change.

    `math` is one for all threads. Names that the user imported from it are found among `watches`.
    """
    imported = [
        watch
        for watch in watches
        if isinstance(watch, Watch)
        and watch.key is not None
        and type(watch.expected) is types.BuiltinFunctionType
    ]
    imported = [watch for watch in imported if watch.expected in LIVE and watch.holds()]
    before = {name: getattr(math, name) for name in _FUNCTIONS}
    try:
        for name, function in _FUNCTIONS.items():
            setattr(math, name, LIVE[function])
        for watch in imported:
            watch.owner[watch.key] = LIVE[watch.expected]
        yield
    finally:
        for watch in imported:
            watch.put_back()
        for name, function in before.items():
            setattr(math, name, function)
