"""What a host call's forward did: which tensors it returned, saved, marked and wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lucid.ir.memory import are_same_bytes
from lucid.ir.types import TensorType, type_of_array
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction

Entry = tuple[str, Any]
"""Which tensor is meant: ("input", operand), ("shared", operand) for another one on its memory,
("result", number), ("part", number) for one on the memory of another result; or ("none", 0),
("argument", position), ("other", value)."""

_NONE: Entry = ("none", 0)


class Plan(NamedTuple):
    """What a forward did: what it returned, saved and marked, and what the results are.

    Attributes:
        is_tuple: whether it returned a tuple.
        written: operands whose content it changed, and which result that is.
        containers: arguments with tensors in them that it changed: each call gets such anew.
        labels: of the results.
    """

    is_tuple: bool
    outputs: tuple[Entry, ...]
    dirty: tuple[Entry, ...]
    non_differentiable: tuple[Entry, ...]
    materialize_grads: bool
    written: tuple[tuple[int, int], ...]
    saved: tuple[Entry, ...] | None
    containers: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """One evaluation of a forward.

    Attributes:
        ctx: as the backward gets it.
        tensors: the operands, as forward got them; shapes: of these.
        arrays: the results; types: of these.
    """

    ctx: BackwardCFunction
    plan: Plan
    tensors: Sequence[Any]
    shapes: Sequence[tuple[int, ...]]
    arrays: Sequence[np.ndarray]
    types: tuple[TensorType, ...]


class Reader:
    """Finds out which of a host call's tensors a value is, and collects the results.

    Attributes:
        arrays: the results, in the memory that the user's code has them in.
    """

    def __init__(self, tensors: Sequence[Any], inputs: Sequence[Any]) -> None:
        self._tensors = tensors
        self._inputs = inputs
        self._numbers: dict[int, int] = {}
        self._memory: dict[Any, int] = {}
        for number, tensor in enumerate(tensors):
            if isinstance(tensor, TensorCore):
                self._numbers[id(tensor)] = number
                self._memory[tensor._storage] = number
        self._known: dict[int, int] = {}
        self._results: dict[Any, int] = {}
        self.arrays: list[np.ndarray] = []
        self.labels: list[str] = []

    def entry(self, value: Any, label: str) -> Entry:
        if value is None:
            return _NONE
        if not isinstance(value, TensorCore):
            return self._no_tensor(value)
        key = id(value)
        if key in self._numbers:
            return "input", self._numbers[key]
        if key not in self._known:
            number = self._sharing(value)
            if number is not None:
                return "shared", number
            number = self._part_of(value)
            if number is not None:
                return "part", number
            self._known[key] = self._results[value._storage] = self.add(
                np.asarray(value._array), label
            )
        return "result", self._known[key]

    def _sharing(self, value: TensorCore) -> int | None:
        """The operand on whose memory a tensor is."""
        if value._storage in self._memory:
            return self._memory[value._storage]
        array = value._array
        if array is None or array.base is None:
            return None
        for number, tensor in enumerate(self._tensors):
            given = tensor._array if isinstance(tensor, TensorCore) else None
            if given is not None and np.may_share_memory(given, array):
                return number
        return None

    def _part_of(self, value: TensorCore) -> int | None:
        """The result on whose memory a tensor is."""
        if value._storage in self._results:
            return self._results[value._storage]
        array = value._array
        if array is None:
            return None
        shares = (i for i, x in enumerate(self.arrays) if np.may_share_memory(x, array))
        return next(shares, None)

    def _no_tensor(self, value: Any) -> Entry:
        for position, given in enumerate(self._inputs):
            if given is value:
                return "argument", position
        return "other", value

    def entries(self, values: Sequence[Any], label: str) -> tuple[Entry, ...]:
        if not values:
            return ()
        return tuple([self.entry(x, f"{label} {i}") for i, x in enumerate(values)])

    def known(self, values: Sequence[Any]) -> tuple[Entry, ...]:
        """The inputs and outputs whose versions the values have; none for others."""
        return tuple(map(self._versioned, values))

    def _versioned(self, value: Any) -> Entry:
        if id(value) in self._known:
            return "result", self._known[id(value)]
        storage = value._storage if isinstance(value, TensorCore) else None
        return ("input", self._memory[storage]) if storage in self._memory else _NONE

    def changed(self, dirty: Sequence[Entry], lent: Sequence[np.ndarray]) -> set[int]:
        """The operands that were marked as dirty or hold something else."""
        changed = {entry[1] for entry in dirty if entry[0] == "input"}
        for number, tensor in enumerate(self._tensors):
            if isinstance(tensor, TensorCore):
                now = tensor._array
                assert now is not None
                if not are_same_bytes(now, lent[number]):
                    changed.add(number)
        return changed

    def written(self, changed: set[int]) -> tuple[tuple[int, int], ...]:
        """Operands that were written, as results."""
        return tuple(
            (n, self.add(self._tensors[n]._array, f"input {n} as it left it"))
            for n in sorted(changed)
        )

    def add(self, array: np.ndarray, label: str) -> int:
        """Enter a result."""
        self.arrays.append(array)
        self.labels.append(label)
        return len(self.arrays) - 1

    def types(self) -> tuple[TensorType, ...]:
        return tuple(map(type_of_array, self.arrays))
