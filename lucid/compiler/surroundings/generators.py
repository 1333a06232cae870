"""Random generators of Python and NumPy, whose numbers a trace would take for constants."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from lucid.compiler.surroundings.codes import Executed
from lucid.ir.errors import TraceError

GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)


class Generators:
    """The states of the global generators, and of others within reach, at some time.

    Args:
        others: each with the user's expression for it.
        methods: variables and attributes that hold a method of one.
    """

    def __init__(self, others: Iterable[tuple[str, Any]], methods: Iterable[str]) -> None:
        self._methods = frozenset(methods)
        self._before: list[tuple[str, Callable[[], Any], Callable[[Any], None], Any]] = []
        self._add("random", random.getstate, random.setstate)
        self._add("numpy.random", np.random.get_state, np.random.set_state)
        for path, generator in others:
            if isinstance(generator, random.Random):
                self._add(path, generator.getstate, generator.setstate)
            elif isinstance(generator, np.random.RandomState):
                self._add(path, generator.get_state, generator.set_state)
            else:
                self._add(path, *_of_bits(generator.bit_generator))

    def _add(self, name: str, get: Callable[[], Any], put: Callable[[Any], None]) -> None:
        self._before.append((name, get, put, get()))

    def refuse_use(self, ran: Executed) -> None:
        """Raise when numbers were drawn: the program would have them as constants.

        ran: the code of this thread; what it can't have drawn, others have.
        """
        for name, _ in self._changed(ran):
            raise TraceError(
                f"{name} was used while the step was traced: its numbers would be the same at "
                "every call\n"
                "hint: draw with lucid.rand, lucid.randn or lucid.randint, which are part of "
                "the step, or pass the numbers as arguments"
            )

    def put_back(self, ran: Executed) -> None:
        """Undo what this thread drew."""
        for _, put in self._changed(ran):
            put()

    def _changed(self, ran: Executed) -> list[tuple[str, Callable[[], None]]]:
        changed: list[tuple[str, Callable[[], None]]] = [
            (name, partial(put, before))
            for name, get, put, before in self._before
            if pickle.dumps(get()) != pickle.dumps(before)
        ]
        return changed if changed and ran.could_draw(self._methods) else []


def _of_bits(bits: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    return lambda: bits.state, lambda state: setattr(bits, "state", state)
