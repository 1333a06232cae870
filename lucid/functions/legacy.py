"""Names that PyTorch keeps for older programs: `FloatTensor(…)` and its kind."""

from __future__ import annotations

from typing import Any

from lucid.docstrings import like
from lucid.functions.creation import legacy_tensor
from lucid.functions.tensors import Tensor
from lucid.ir.types import bool_, f32, f64, i8, i16, i32, i64, u8

__all__ = [
    "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "IntTensor",
    "LongTensor", "ShortTensor",
]  # fmt: skip


def FloatTensor(*data: Any) -> Tensor:
    """Return a float32 tensor of data, or of a shape: `FloatTensor([2, 3])` has two elements.

    `FloatTensor(2, 3)` has two rows of three zeros, and `FloatTensor()` no element. Newer programs
    write `lucid.tensor` and `lucid.zeros`.

    Args:
        *data: a list, an array or a tensor, or else sizes.

    Example:
        >>> lucid.FloatTensor([2, 3])
        tensor([2., 3.])
        >>> lucid.FloatTensor(2, 3)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    return legacy_tensor(f32, data)


def DoubleTensor(*data: Any) -> Tensor:
    """Return a float64 tensor of data, or of a shape with zeros.

    An older name for `lucid.tensor(data, dtype=lucid.float64)` and `lucid.zeros(*sizes,
    dtype=lucid.float64)`.

    Args:
        *data: a list, an array or a tensor, or else sizes.

    Example:
        >>> x = lucid.DoubleTensor([1, 0])
        >>> x.shape, x.dtype, lucid.DoubleTensor(3, 2).shape
        (lucid.Size([2]), lucid.float64, lucid.Size([3, 2]))
    """
    return legacy_tensor(f64, data)


@like(DoubleTensor, float64="uint8")
def ByteTensor(*data: Any) -> Tensor:
    """Return a uint8 tensor of data, or of a shape with zeros."""
    return legacy_tensor(u8, data)


@like(DoubleTensor, float64="int8")
def CharTensor(*data: Any) -> Tensor:
    """Return an int8 tensor of data, or of a shape with zeros."""
    return legacy_tensor(i8, data)


@like(DoubleTensor, float64="int16")
def ShortTensor(*data: Any) -> Tensor:
    """Return an int16 tensor of data, or of a shape with zeros."""
    return legacy_tensor(i16, data)


@like(DoubleTensor, float64="int32")
def IntTensor(*data: Any) -> Tensor:
    """Return an int32 tensor of data, or of a shape with zeros."""
    return legacy_tensor(i32, data)


@like(DoubleTensor, float64="int64")
def LongTensor(*data: Any) -> Tensor:
    """Return an int64 tensor of data, or of a shape with zeros."""
    return legacy_tensor(i64, data)


@like(DoubleTensor, float64="bool")
def BoolTensor(*data: Any) -> Tensor:
    """Return a bool tensor of data, or of a shape filled with False."""
    return legacy_tensor(bool_, data)
