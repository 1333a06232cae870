"""Names that PyTorch keeps for older programs: `FloatTensor(…)` and its kind."""

from __future__ import annotations

from typing import Any

from lucid.functions.creation import legacy_tensor
from lucid.functions.tensors import Tensor
from lucid.ir.types import bool_, f32, f64, i8, i16, i32, i64, u8


def FloatTensor(*data: Any) -> Tensor:
    """Return a float32 tensor of data, or of a shape with zeros: `FloatTensor(2, 3)`."""
    return legacy_tensor(f32, data)


def DoubleTensor(*data: Any) -> Tensor:
    """Return a float64 tensor of data, or of a shape with zeros."""
    return legacy_tensor(f64, data)


def ByteTensor(*data: Any) -> Tensor:
    """Return a uint8 tensor of data, or of a shape with zeros."""
    return legacy_tensor(u8, data)


def CharTensor(*data: Any) -> Tensor:
    """Return an int8 tensor of data, or of a shape with zeros."""
    return legacy_tensor(i8, data)


def ShortTensor(*data: Any) -> Tensor:
    """Return an int16 tensor of data, or of a shape with zeros."""
    return legacy_tensor(i16, data)


def IntTensor(*data: Any) -> Tensor:
    """Return an int32 tensor of data, or of a shape with zeros."""
    return legacy_tensor(i32, data)


def LongTensor(*data: Any) -> Tensor:
    """Return an int64 tensor of data, or of a shape with zeros."""
    return legacy_tensor(i64, data)


def BoolTensor(*data: Any) -> Tensor:
    """Return a bool tensor of data, or of a shape filled with False."""
    return legacy_tensor(bool_, data)
