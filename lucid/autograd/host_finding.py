"""Host calls of single functions: what NumPy finds in data, what a random generator draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.autograd.generators import state_of
from lucid.autograd.host_replay import HostCall, MadeHostCall
from lucid.ir.errors import LucidError, completed
from lucid.ir.hosts import Frame
from lucid.ir.location import Location, at_line
from lucid.ir.types import TensorType, type_of_array


@dataclass(slots=True, eq=False, kw_only=True)
class Finding(HostCall):
    """A host call of a function that depends on what it is given, or draws random numbers.

    Attributes:
        find: `find(*arrays, *options)` gives arrays, which may be views of those that it gets.
        generator: the one of Python's or NumPy's that it draws from; None: it doesn't.
    """

    find: Callable[..., Sequence[np.ndarray]]
    options: tuple[Any, ...]
    generator: Any = None

    def make(self, frame: Frame, operands: Sequence[np.ndarray]) -> MadeHostCall:
        undo = state_of(self.generator) if self.is_followed else None
        return MadeHostCall(self, self.evaluate(operands), undo)

    def evaluate(self, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Find it. Raises what the function raises."""
        try:
            return self.find(*operands, *self.options)
        except LucidError as error:
            place = None if self.line is None else Location(*self.line)
            raise at_line(completed(error), place) from None

    def kept(self, made: MadeHostCall, found: Sequence[np.ndarray]) -> MadeHostCall:
        """A view of what was found in is on the step's memory, which ends with the run."""
        own = [array if array.base is None else array.copy() for array in found]
        return MadeHostCall(made.host, own, made.state)

    def seen(self, found: Sequence[np.ndarray]) -> tuple[TensorType, ...]:
        return tuple(map(type_of_array, found))

    def said(self, now: tuple[TensorType, ...]) -> str:
        pairs = zip(self.expected, now, strict=True)
        return next(f"{before} -> {after}" for before, after in pairs if before != after)

    def results(self, frame: Frame, found: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return found
