"""What stands in a trace for a NumPy array that a host forward left on its ctx."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

if TYPE_CHECKING:
    from lucid.tensor.core import TensorCore
    from lucid.tensor.tensor import Tensor


class HostArray:
    """An array whose elements each call computes anew; its shape and dtype stay the same.

    It passes for an array in `isinstance`, and can become a tensor. Whoever computes with it by
    NumPy leaves the trace.

    Args:
        tensor: of the trace, its elements.
        leave: called with what somebody wants; doesn't return.
    """

    __slots__ = ("_leave", "_tensor")

    def __init__(self, tensor: TensorCore, leave: Callable[[str], NoReturn]) -> None:
        self._tensor = tensor
        self._leave = leave

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray

    def on(self, tensor: TensorCore) -> HostArray:
        """The same with other elements."""
        return HostArray(tensor, self._leave)

    def as_tensor(self) -> Tensor:
        """A tensor on the array's memory."""
        return self._tensor._same_memory()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._tensor._type.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._tensor._type.dtype.numpy

    @property
    def ndim(self) -> int:
        return len(self._tensor._type.shape)

    @property
    def size(self) -> int:
        return self._tensor._type.size

    def __getattr__(self, name: str) -> NoReturn:
        self._leave(name)


def _leaving(name: str) -> Callable[..., NoReturn]:
    def leave(self: HostArray, *args: object, **kwargs: object) -> NoReturn:
        self._leave(name)

    return leave


_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "divmod"),
    *("and", "or", "xor", "lshift", "rshift"),
)
_OTHERS = (
    *("neg", "pos", "abs", "invert", "eq", "ne", "lt", "le", "gt", "ge", "bool", "int", "float"),
    *("complex", "index", "round", "len", "iter", "getitem", "setitem", "contains", "array"),
    *("array_ufunc", "array_function", "repr", "str", "format", "hash", "copy", "deepcopy"),
)
for _name in (*(side + name for name in _BINARY for side in ("", "r", "i")), *_OTHERS):
    setattr(HostArray, f"__{_name}__", _leaving(f"__{_name}__"))
