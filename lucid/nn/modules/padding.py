"""Padding as modules: with a number, reflected, with the border, or around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from lucid.nn.functional.padding import pad
from lucid.nn.modules.module import Module
from lucid.tensor.tensor import Tensor


class _Pad(Module):
    rank: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        counts = (padding,) * (2 * self.rank) if isinstance(padding, int) else tuple(padding)
        self.padding = counts

    def forward(self, input: Tensor) -> Tensor:
        return pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return str(self.padding)


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ReflectionPad(_Pad):
    mode = "reflect"


class _ReplicationPad(_Pad):
    mode = "replicate"


class _CircularPad(_Pad):
    mode = "circular"


class ConstantPad1d(_ConstantPad):
    """Put a number around the last axis."""

    rank = 1


class ConstantPad2d(_ConstantPad):
    """Put a number around the last two axes."""

    rank = 2


class ConstantPad3d(_ConstantPad):
    """Put a number around the last three axes."""

    rank = 3


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return str(self.padding)


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Put zeros around the last axis."""


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Put zeros around the last two axes."""


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Put zeros around the last three axes."""


class ReflectionPad1d(_ReflectionPad):
    """Lengthen the last axis by what is inside, reflected at the border."""

    rank = 1


class ReflectionPad2d(_ReflectionPad):
    """Lengthen the last two axes by what is inside, reflected at the border."""

    rank = 2


class ReflectionPad3d(_ReflectionPad):
    """Lengthen the last three axes by what is inside, reflected at the border."""

    rank = 3


class ReplicationPad1d(_ReplicationPad):
    """Lengthen the last axis by copies of the border."""

    rank = 1


class ReplicationPad2d(_ReplicationPad):
    """Lengthen the last two axes by copies of the border."""

    rank = 2


class ReplicationPad3d(_ReplicationPad):
    """Lengthen the last three axes by copies of the border."""

    rank = 3


class CircularPad1d(_CircularPad):
    """Lengthen the last axis by what is at the other end."""

    rank = 1


class CircularPad2d(_CircularPad):
    """Lengthen the last two axes by what is at the other end."""

    rank = 2


class CircularPad3d(_CircularPad):
    """Lengthen the last three axes by what is at the other end."""

    rank = 3
