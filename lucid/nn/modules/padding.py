"""Padding as modules: with a number, reflected, with the border, or around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from lucid.docstrings import like
from lucid.functions.border import recorded
from lucid.nn.functional.padding import pad
from lucid.nn.modules.settings import OfRank
from lucid.tensor.tensor import Tensor

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d",
    "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
    "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


_pad = recorded(pad)


class _Pad(OfRank):
    mode: ClassVar[str]
    _shown = "{0.padding}"

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        counts = (padding,) * (2 * self.rank) if isinstance(padding, int) else tuple(padding)
        self.padding = counts

    def forward(self, input: Tensor) -> Tensor:
        return _pad(input, self.padding, self.mode)


class _ConstantPad(_Pad):
    mode = "constant"
    _shown = "padding={0.padding}, value={0.value}"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return _pad(input, self.padding, "constant", self.value)


class _ReflectionPad(_Pad):
    mode = "reflect"


class _ReplicationPad(_Pad):
    mode = "replicate"


class _CircularPad(_Pad):
    mode = "circular"


class ConstantPad1d(_ConstantPad, rank=1):
    """Put a number around the last axis.

    An axis of size l becomes l + low + high.

    Args:
        padding: how much is added at both ends: an int, or (low, high) of each axis, from the last
            one on.
        value: what is put there.

    >>> nn.ConstantPad1d(1, 7.0)(lucid.ones(1, 1, 3)).shape
    lucid.Size([1, 1, 5])
    """


class ConstantPad2d(_ConstantPad, rank=2, like=ConstantPad1d): ...


class ConstantPad3d(_ConstantPad, rank=3, like=ConstantPad1d): ...


class _ZeroPad(_ConstantPad):
    _shown = "{0.padding}"

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)


@like(ConstantPad1d)
class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Put zeros around the last axis.

    >>> nn.ZeroPad1d(1)(lucid.ones(1, 1, 3)).shape
    lucid.Size([1, 1, 5])
    """


class ZeroPad2d(_ZeroPad, ConstantPad2d, like=ZeroPad1d): ...


class ZeroPad3d(_ZeroPad, ConstantPad3d, like=ZeroPad1d): ...


@like(ZeroPad1d)
class ReflectionPad1d(_ReflectionPad, rank=1):
    """Lengthen the last axis by what is inside, reflected at the border."""


class ReflectionPad2d(_ReflectionPad, rank=2, like=ReflectionPad1d): ...


class ReflectionPad3d(_ReflectionPad, rank=3, like=ReflectionPad1d): ...


@like(ReflectionPad1d)
class ReplicationPad1d(_ReplicationPad, rank=1):
    """Lengthen the last axis by copies of the border."""


class ReplicationPad2d(_ReplicationPad, rank=2, like=ReplicationPad1d): ...


class ReplicationPad3d(_ReplicationPad, rank=3, like=ReplicationPad1d): ...


@like(ReplicationPad1d)
class CircularPad1d(_CircularPad, rank=1):
    """Lengthen the last axis by what is at the other end."""


class CircularPad2d(_CircularPad, rank=2, like=CircularPad1d): ...


class CircularPad3d(_CircularPad, rank=3, like=CircularPad1d): ...
