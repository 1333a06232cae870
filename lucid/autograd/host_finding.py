"""Host calls of single functions: what NumPy finds in data, what a random generator draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.autograd.generators import state_of
from lucid.autograd.host_replay import HostCallMismatch, MadeHostCall, note, replayed
from lucid.autograd.host_world import place_text
from lucid.ir.errors import LucidError, completed
from lucid.ir.hosts import Frame
from lucid.ir.location import Location, at_line
from lucid.ir.types import TensorType, type_of_array


@dataclass(slots=True, eq=False)
class Finding:
    """A host call of a function that depends on what it is given, or draws random numbers.

    Attributes:
        name: of lucid's function, or of NumPy's.
        find: `find(*arrays, *options)` gives new arrays, none of which requires grad.
        generator: the one of Python's or NumPy's that it draws from; None: it doesn't.
        line: the user's line.
        types: of what it found while tracing.
        is_followed: whether a forward that follows in the step may find something else.
    """

    name: str
    find: Callable[..., Sequence[np.ndarray]]
    options: tuple[Any, ...]
    line: tuple[str, int] | None
    generator: Any = None
    types: tuple[TensorType, ...] = ()
    is_followed: bool = False

    @property
    def code(self) -> object:
        """What tells it from other host calls."""
        return self.name

    def __call__(self, frame: Frame, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        made = replayed(self.code)
        if made is None:
            undo = state_of(self.generator) if self.is_followed else None
            made = MadeHostCall(self, self.evaluate(operands), undo)
        arrays: Sequence[np.ndarray] = made.found
        found = tuple(map(type_of_array, arrays))
        if self.is_followed or found != self.types:
            calls = note(frame, made)
            if found != self.types:
                raise self._differs(found, calls)
        return arrays

    def evaluate(self, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Find it. Raises what the function raises."""
        try:
            return self.find(*operands, *self.options)
        except LucidError as error:
            place = None if self.line is None else Location(*self.line)
            raise at_line(completed(error), place) from None

    def fits(self, made: MadeHostCall) -> bool:
        """Whether this call is traced for what a call of another program found."""
        return made.host.code == self.code and tuple(map(type_of_array, made.found)) == self.types

    def _differs(
        self, found: Sequence[TensorType], made: Sequence[MadeHostCall]
    ) -> HostCallMismatch:
        pairs = zip(self.types, found, strict=True)
        before, now = next(pair for pair in pairs if pair[0] != pair[1])
        reason = f"{self.name}: {before} -> {now}"
        return HostCallMismatch(
            f"{reason}, found by the step's call{place_text(self.line)}", reason, made
        )
