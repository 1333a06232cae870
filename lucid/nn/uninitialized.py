"""Parameters and buffers whose shape the first input of their module tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import lucid
from lucid.device import check_device
from lucid.docstrings import like
from lucid.ir.errors import completed
from lucid.ir.types import DType, TensorType
from lucid.nn.naming import UninitializedError
from lucid.nn.parameter import Buffer, Parameter
from lucid.tensor.core import TensorCore
from lucid.tensor.tensor import Tensor

__all__ = ["UninitializedBuffer", "UninitializedParameter"]

_slot: Any = TensorCore.__dict__["_type"]


def _refuse(tensor: Tensor) -> TensorType:
    raise completed(
        UninitializedError(
            "Can't access the shape or the values of an uninitialized parameter or buffer.\n"
            "hint: call the module once before, as model(batch)"
        )
    )


class Uninitialized(Tensor):
    """What both are until `materialize`: a tensor with a dtype, but without shape and values.

    All that looks at more raises `UninitializedError`. It is empty, which nobody sees.
    """

    __slots__ = ()

    _type: Any = property(_refuse, _slot.__set__)

    @property
    def dtype(self) -> DType:
        known: TensorType = _slot.__get__(self)
        return known.dtype

    def materialize(
        self, shape: Sequence[int], device: object = None, dtype: DType | None = None
    ) -> None:
        """Become a Parameter or tensor of this shape, without values; the object stays the same."""
        check_device(device, "materialize")
        self._become(lucid.empty(tuple(shape), dtype=dtype or self.dtype))

    def _become(self, values: Tensor) -> None:
        """Take these values, and be an ordinary parameter or buffer from now on."""
        kind: Any = Parameter if isinstance(self, Parameter) else Tensor
        self.__class__ = kind
        self.data = values

    def detach(self) -> Tensor:
        """The same without gradient, for a state dict."""
        found: Uninitialized = self._alike()
        found._set_requires_grad(False)
        return found

    def _same_memory(self) -> Tensor:
        """One more without memory: so a watch knows that there was none."""
        found: Tensor = self._alike()
        return found

    def convert(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Take the dtype that `fn` gives to a tensor of the present one."""
        self.data = fn(lucid.empty(0, dtype=self.dtype))

    def _alike(self) -> Any:
        return _restored(type(self), self.requires_grad, self.dtype)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    __str__ = __repr__

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return memo.setdefault(id(self), self._alike())

    def __reduce_ex__(self, protocol: Any = 2) -> tuple[Any, ...]:
        return _restored, (type(self), self.requires_grad, self.dtype)


def _restored(kind: Any, requires_grad: bool, dtype: DType) -> Any:
    return kind(requires_grad=requires_grad, dtype=dtype)


class UninitializedParameter(Uninitialized, Parameter):
    """A parameter whose shape the first input of its module tells; `materialize` gives it one.

    Args:
        requires_grad: whether it is trained.
        device: the CPU; for PyTorch's sake.
        dtype: of the parameters. None is the default dtype.

    >>> p = nn.UninitializedParameter()
    >>> p.materialize((2, 3))
    >>> p.shape
    lucid.Size([2, 3])
    """

    __slots__ = ()

    def __new__(
        cls, requires_grad: bool = True, *, device: object = None, dtype: DType | None = None
    ) -> Self:
        check_device(device, "UninitializedParameter")
        return cls._of(lucid.empty(0, dtype=dtype), requires_grad)

    def __init__(
        self, requires_grad: bool = True, *, device: object = None, dtype: DType | None = None
    ) -> None:
        """Everything is set by `__new__`."""


@like(UninitializedParameter)
class UninitializedBuffer(Uninitialized, Buffer):
    """A buffer whose shape the first input of its module tells; `materialize` gives it one.

    >>> b = nn.UninitializedBuffer()
    >>> b.materialize((2, 3))
    >>> b.shape
    lucid.Size([2, 3])
    """

    __slots__ = ()

    def __new__(
        cls, requires_grad: bool = False, device: object = None, dtype: DType | None = None
    ) -> UninitializedBuffer:
        check_device(device, "UninitializedBuffer")
        made: Any = lucid.empty(0, dtype=dtype)
        made.__class__ = cls
        made._set_requires_grad(requires_grad)
        found: UninitializedBuffer = made
        return found

    def __init__(
        self, requires_grad: bool = False, device: object = None, dtype: DType | None = None
    ) -> None:
        """Everything is set by `__new__`."""
