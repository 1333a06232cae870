"""Host calls of single functions: what NumPy finds in data, what a random generator draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.autograd.generators import state_of
from lucid.autograd.host_replay import HostCall, MadeHostCall, OpenAxis
from lucid.ir.errors import LucidError, completed
from lucid.ir.extents import MOST
from lucid.ir.hosts import Frame
from lucid.ir.location import Location, at_line
from lucid.ir.types import TensorType, type_of_array


@dataclass(slots=True, eq=False, kw_only=True)
class Finding(HostCall):
    """A host call of a function that depends on what it is given, or draws random numbers.

    Attributes:
        find: `find(*arrays, *options)` gives arrays, which may be views of those that it gets.
        generator: the one of Python's or NumPy's that it draws from; None: it doesn't.
        is_own: whether it is a function of the library's that does nothing else, so nobody sees
            how often it is called.
        finds_sizes: whether the sizes of what it finds depend on values.
    """

    find: Callable[..., Sequence[np.ndarray]]
    options: tuple[Any, ...] = ()
    generator: Any = None
    is_own: bool = False
    finds_sizes: bool = False

    def make(self, frame: Frame, operands: Sequence[np.ndarray]) -> MadeHostCall:
        draw = self.name.rpartition(".")[2]
        undo = state_of(self.generator, draw) if self.is_followed else None
        return MadeHostCall(self, self.evaluate(operands), undo)

    def evaluate(self, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Find it. Raises what the function raises."""
        try:
            return self.find(*operands, *self.options)
        except LucidError as error:
            place = None if self.line is None else Location(*self.line)
            raise at_line(completed(error), place) from None

    def kept(self, made: MadeHostCall) -> MadeHostCall:
        """A view of what was found in is on the step's memory, which ends with the run."""
        own = [array if array.base is None else array.copy() for array in made.found]
        return MadeHostCall(made.host, own, made.state)

    def types_of(self, found: Sequence[np.ndarray]) -> tuple[TensorType, ...]:
        return tuple(map(type_of_array, found))

    def said(self, found: Sequence[np.ndarray]) -> str:
        if len(found) != len(self.types):
            return f"{len(self.types)} results -> {len(found)}"
        pairs = zip(self.types, self.types_of(found), strict=True)
        return next(f"{a} -> {b}" for a, b in pairs if str(a) != str(b))

    def results(self, frame: Frame, found: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return found


@dataclass(slots=True, eq=False, kw_only=True)
class FoundNumber(Finding):
    """A number that the step computes as a size of it: that of an array without elements."""

    is_made_again = True

    @property
    def place(self) -> OpenAxis:
        """Where it is looked at."""
        return self.code, self.line, 0, 0

    def replayed(self) -> None:
        """None: where sizes are known, such a call isn't made, so others may come next."""

    def said(self, found: Sequence[np.ndarray]) -> str:
        both = self.types, self.types_of(found)
        return " -> ".join(str(x[0].shape[0]) if x[0].shape else "none" for x in both)


def as_length(number: np.ndarray) -> Sequence[np.ndarray]:
    """An array without elements that has this length; one with all but this, if none has."""
    length = number.item()
    return [np.empty((length, 0), bool) if 0 <= length <= MOST else np.empty((), bool)]
