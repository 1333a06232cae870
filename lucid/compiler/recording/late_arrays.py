"""Arrays that a step gives: what `numpy()` returns for a tensor that it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.compiler.inputs.scalars import Formula
from lucid.compiler.recording.late_numbers import Bases

if TYPE_CHECKING:
    from lucid.compiler.recording.exits import Exits
    from lucid.ir.graph import Value
    from lucid.tensor.core import TensorCore


class LateArray:
    """An array that is known after the call; it may be returned, kept and told to others.

    Where somebody looks at more than its shape and type, the call runs op by op.

    Attributes:
        formula, bases: as of a number.
    """

    __slots__ = ("_generation", "_storage", "_what", "bases", "dtype", "exits", "formula", "shape")

    def __init__(self, tensor: TensorCore, value: Value, exits: Exits) -> None:
        self.shape = tensor._type.shape
        self.dtype = tensor._type.dtype.numpy
        self.bases: Bases = {value: value}
        self.formula = _output(value)
        self.exits = exits
        self._what = f"the data of {tensor._describe()}, by numpy()"
        self._storage = tensor._storage
        self._generation = tensor._storage.generation

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray

    @property
    def base(self) -> None:
        """It owns its memory."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.shape[0] if self.shape else self._look()

    def _look(self, *_: Any, **__: Any) -> Any:
        return self.exits.op_by_op(f"it looks at {self._what}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__array_interface__", "__array_struct__"):
            raise AttributeError(name)
        return self._look()

    def settle(self) -> None:
        """Raise where its memory was written since: in eager mode it would show that."""
        if self._storage.generation != self._generation:
            self.exits.op_by_op(f"it writes memory that it gives as {self._what}")


def _output(value: Value) -> Formula:
    def formula(known: Any) -> Any:
        return known[value]

    return formula


def _looking(name: str) -> Callable[..., Any]:
    def look(self: LateArray, *_: Any, **__: Any) -> Any:
        return self._look()

    look.__name__ = name
    return look


for _name in set(dir(np.ndarray)) - {*dir(object), *vars(LateArray)}:
    if _name.startswith("__") and _name not in ("__array_interface__", "__array_struct__"):
        setattr(LateArray, _name, _looking(_name))
for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__repr__", "__str__"):
    setattr(LateArray, _name, _looking(_name))
LateArray.__format__ = _looking("__format__")  # type: ignore[method-assign]
