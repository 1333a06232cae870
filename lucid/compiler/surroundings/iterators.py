"""Iterators from outside, such as one of a data loader: a trace would take an item for a constant.

What an iterator has given can't be given back. So a step that advances one is refused.
"""

from __future__ import annotations

import gc
import itertools
import operator
import types
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from lucid.compiler.surroundings.codes import Executed
from lucid.ir.errors import EagerOnlyError, TraceError


def is_iterator(value: object) -> bool:
    """Whether it is an iterator of Python's own, or a generator."""
    kind = type(value)
    return kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")


class Iterators:
    """How far iterators have come, at some time.

    Args:
        found: each with the user's expression for it.
    """

    def __init__(self, found: Iterable[tuple[str, Any]]) -> None:
        self._before = [(path, iterator, _position(iterator)) for path, iterator in found]

    @contextmanager
    def refusing_moves(self, ran: Executed) -> Iterator[None]:
        """Raise `TraceError` when the block advances one, unless it raises an error of its own.

        ran: the code of this thread, as known at the end of the block.
        """
        try:
            yield
        except BaseException as error:
            if not isinstance(error, Exception) or isinstance(error, EagerOnlyError):
                self._refuse_moves(ran)  # the step would run again, with the items that follow
            raise
        self._refuse_moves(ran)

    @contextmanager
    def ignoring_moves(self) -> Iterator[None]:
        """Take what the block, a host call, advances for where it was: each call does so."""
        moved = [path for path, _ in self._moved()]
        try:
            yield
        finally:
            others = {path for path, _ in self._moved()}.difference(moved)
            self._before = [
                (path, iterator, _position(iterator) if path in others else position)
                for path, iterator, position in self._before
            ]

    def _moved(self) -> list[tuple[str, Any]]:
        return [
            (path, iterator)
            for path, iterator, position in self._before
            if not _are_same(_position(iterator), position)
        ]

    def _refuse_moves(self, ran: Executed) -> None:
        for path, iterator in self._moved():
            is_generator = isinstance(iterator, types.GeneratorType)
            if is_generator and ran.codes is not None and iterator.gi_code not in ran.codes:
                continue  # another thread has advanced it
            raise TraceError(
                f"{path}, a {type(iterator).__name__}, was advanced while the step was traced: "
                "what it gave would be the same at every call\n"
                "hint: take the item outside of the compiled function, and pass it as an argument"
            )


def _position(iterator: Any) -> list[Any]:
    """What is something else after the iterator has given an item; compared by identity."""
    if isinstance(iterator, types.GeneratorType):
        frame = iterator.gi_frame
        if frame is None or iterator.gi_running:
            return [frame is None]
        names = dict(frame.f_locals)
        return [frame.f_lasti, *names, *names.values(), *_position_of(iterator.gi_yieldfrom)]
    if isinstance(iterator, itertools.count):
        return [repr(iterator)]
    if isinstance(iterator, itertools.cycle):  # which goes through a list of its own, once it can
        return [_turn(iterator)]
    held = gc.get_referents(iterator)  # what an enumerate, a zip or a chain goes through
    held += [item for part in held if type(part) is tuple for item in part]
    return [operator.length_hint(iterator, -1), *(x for part in held for x in _position_of(part))]


def _turn(iterator: itertools.cycle[Any]) -> int:
    """How many items are left of a turn; 0 where Python doesn't say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            rest = iterator.__reduce__()[1]
        except TypeError:
            return 0
    return operator.length_hint(rest[0], 0)


def _position_of(value: Any) -> list[Any]:
    return _position(value) if is_iterator(value) else []


def _are_same(now: list[Any], before: list[Any]) -> bool:
    pairs = zip(now, before, strict=False)
    return len(now) == len(before) and all(
        a is b or (type(a) is type(b) and isinstance(a, (int, str)) and a == b) for a, b in pairs
    )
