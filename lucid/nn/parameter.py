"""Parameter: a tensor that a Module registers when it is assigned to an attribute."""

from __future__ import annotations

from typing import Any, Self

import lucid
from lucid.ir.errors import ArgumentError
from lucid.ir.location import user_spot
from lucid.tensor.storage import VersionCounter
from lucid.tensor.tensor import Tensor

__all__ = ["Buffer", "Parameter"]


class Parameter(Tensor):
    """A leaf tensor to be trained; it shares the memory of `data` and requires grad by default.

    Args:
        data: its elements. None for an empty one.
        requires_grad: whether it is trained.

    >>> nn.Parameter(lucid.zeros(2)).requires_grad
    True
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Self:
        if data is None:
            data = lucid.empty(0)
        if not isinstance(data, Tensor):
            raise ArgumentError(
                f"Parameter: a Tensor is needed, not {type(data).__name__}\n"
                "hint: lucid.nn.Parameter(lucid.tensor(data))"
            )
        return cls._of(data, requires_grad)

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        """Everything is set by `__new__`."""

    @classmethod
    def _of(cls, data: Tensor, requires_grad: bool) -> Self:
        parameter: Any = data._alias()
        parameter.__class__ = cls
        parameter._counter = VersionCounter()
        if parameter._spot is None:
            parameter._spot = user_spot()
        parameter._set_requires_grad(requires_grad)
        return parameter  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    __str__ = __repr__

    def __format__(self, specification: str) -> str:
        return super().__format__(specification) if specification else str(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if id(self) not in memo:
            memo[id(self)] = self._of(self.detach().clone(), self.requires_grad)
        copied: Self = memo[id(self)]
        return copied

    def __reduce_ex__(self, protocol: Any = 2) -> tuple[Any, ...]:
        return _restore, (type(self), self.detach().numpy(), self.requires_grad)


class Buffer(Tensor):
    """A tensor that is state but isn't trained: a Module that it is assigned to registers it.

    Args:
        data: its elements. None for an empty one.
        persistent: whether it belongs into the state dict.

    >>> nn.Buffer(lucid.zeros(2)).requires_grad
    False
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = lucid.empty(0)
        if not isinstance(data, Tensor):
            raise ArgumentError(f"Buffer: a Tensor is needed, not {type(data).__name__}")
        buffer: Any = data._alias()
        buffer.__class__ = Buffer if persistent else TransientBuffer
        made: Buffer = buffer
        return made

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        """Everything is set by `__new__`."""


class TransientBuffer(Buffer):
    """A buffer that is left out of the state dict."""

    __slots__ = ()


def _restore(cls: type[Parameter], array: Any, requires_grad: bool) -> Parameter:
    return cls._of(lucid.from_numpy(array), requires_grad)
