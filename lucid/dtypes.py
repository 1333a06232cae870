"""Dtypes as users name them, and what follows from them: promotion, limits, the default dtype."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.ir.errors import ArgumentError, DTypeError
from lucid.ir.types import (
    DTYPES,
    DType,
    bool_,
    dtype_of_numpy,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u32,
)

__all__ = ["can_cast", "finfo", "get_default_dtype", "iinfo", "promote_types", "set_default_dtype"]

_KINDS = ("bool", "int", "float")


class _Default:
    """The dtype of Python floats, and of functions that make floats out of integers."""

    floating = f32


def get_default_dtype() -> DType:
    """Return the dtype that Python floats get; `float32` unless it was set.

    >>> lucid.get_default_dtype()
    lucid.float32
    """
    return _Default.floating


def default_dtype_place() -> tuple[Any, str]:
    """A mapping that holds the default dtype, and its key."""
    return vars(_Default), "floating"


def set_default_dtype(d: DType) -> None:
    """Set the dtype that Python floats get: `float32` or `float64`.

    Functions that make floats out of integers, or new tensors without a dtype, go by it.

    Args:
        d: the dtype from now on.

    Raises:
        DTypeError: a dtype that isn't one of floats.

    >>> lucid.set_default_dtype(lucid.float64)
    >>> lucid.tensor([0.5]).dtype
    lucid.float64
    >>> lucid.set_default_dtype(lucid.float32)
    """
    if not as_dtype(d, "set_default_dtype").is_floating_point:
        raise DTypeError(
            f"set_default_dtype: only floating-point types can be the default, not {d!r}"
        )
    _Default.floating = d


# The names of PyTorch's tensor classes, which stand for dtypes in older programs.
TENSOR_CLASSES = {
    "BoolTensor": bool_, "ByteTensor": u8, "CharTensor": i8, "ShortTensor": i16, "IntTensor": i32,
    "UInt32Tensor": u32, "LongTensor": i64, "FloatTensor": f32, "DoubleTensor": f64,
}  # fmt: skip


def of_tensor_class(name: object) -> DType | None:
    """The dtype of a tensor class or of its name, `"torch.LongTensor"`; None for all else."""
    text = name if isinstance(name, str) else getattr(name, "__name__", "")
    return TENSOR_CLASSES.get(text.rpartition(".")[2])


def tensor_class(dtype: DType) -> str:
    """The name of the tensor class of a dtype: `FloatTensor`."""
    return next(name for name, known in TENSOR_CLASSES.items() if known is dtype)


_PYTHON_TYPES = {"bool": bool_, "int": i64, "float": f64}


@dataclass(frozen=True, slots=True)
class MissingDType:
    """A dtype of PyTorch's that lucid hasn't got: who names or compares it may do so."""

    name: str
    is_floating_point: bool = False
    is_complex: bool = False

    def __repr__(self) -> str:
        return f"lucid.{self.name}"


_HALF, _COMPLEX = MissingDType("float16", True), MissingDType("complex64", is_complex=True)
_CDOUBLE = MissingDType("complex128", is_complex=True)
MISSING = {
    "float16": _HALF,
    "half": _HALF,
    "bfloat16": MissingDType("bfloat16", True),
    "complex64": _COMPLEX,
    "cfloat": _COMPLEX,
    "complex128": _CDOUBLE,
    "cdouble": _CDOUBLE,
    **{name: MissingDType(name) for name in ("uint16", "uint64")},
}


def as_dtype(value: Any, op: str) -> DType:
    """Check a `dtype=` argument; NumPy's dtypes, and Python's bool, int and float, are taken too.

    Python's types mean what they mean to NumPy and PyTorch: `int` is int64, `float` is float64.
    Raises: `ArgumentError` for what is no dtype, `DTypeError` for a dtype that lucid hasn't got.
    """
    if isinstance(value, DType):
        return value
    if value.__class__ is type and value.__module__ == "builtins":
        known = _PYTHON_TYPES.get(value.__name__)
        if known is not None:
            return known
    if isinstance(value, np.dtype):
        return dtype_of_numpy(value)
    if isinstance(value, type) and issubclass(value, np.generic):
        return dtype_of_numpy(np.dtype(value))
    names = ", ".join(f"lucid.{d.torch_name}" for d in DTYPES)
    if isinstance(value, MissingDType):
        raise DTypeError(f"{op}: there is no {value.name}\nhint: dtypes are {names}")
    raise ArgumentError(f"{op}: dtype must be one of {names}, not {value!r}")


def promote_types(type1: DType, type2: DType) -> DType:
    """Return the dtype that holds both: the higher category, and the wider type within it.

    As in PyTorch any integer with float32 gives float32; a signed integer with uint32, which
    PyTorch refuses, gives int64.

    Args:
        type1: a dtype.
        type2: another dtype.

    Raises:
        ArgumentError: one that is no dtype.

    >>> lucid.promote_types(lucid.uint8, lucid.int8)
    lucid.int16
    >>> lucid.promote_types(lucid.int64, lucid.float32)
    lucid.float32
    """
    if type1 is type2 and isinstance(type1, DType):
        return type1
    type1, type2 = as_dtype(type1, "promote_types"), as_dtype(type2, "promote_types")
    if type1.kind == type2.kind:
        return _wider(type1, type2)
    return type1 if _KINDS.index(type1.kind) > _KINDS.index(type2.kind) else type2


@functools.cache
def _wider(first: DType, second: DType) -> DType:
    """The dtype that holds all numbers of both, which are of one kind."""
    return dtype_of_numpy(np.promote_types(first.numpy, second.numpy))


def can_cast(from_: DType, to: DType) -> bool:
    """Return whether an in-place operation may store `from_` in `to`.

    The category (bool < int < float) must not go down; the width may.

    Args:
        from_: the dtype of what is stored.
        to: the dtype of where it is stored.

    Raises:
        ArgumentError: one that is no dtype.

    >>> lucid.can_cast(lucid.float64, lucid.float32), lucid.can_cast(lucid.float32, lucid.int64)
    (True, False)
    """
    lower, upper = as_dtype(from_, "can_cast"), as_dtype(to, "can_cast")
    return _KINDS.index(lower.kind) <= _KINDS.index(upper.kind)


@dataclass(frozen=True, init=False)
class finfo:  # noqa: N801 - the name that NumPy and PyTorch gave it
    """Limits of a floating-point dtype; the default dtype's when none is named.

    Its attributes are those of NumPy's: `bits`, `eps`, `max`, `min`, `tiny`, `resolution`.

    Args:
        type: a dtype of floats. Default: None, the default dtype.

    Raises:
        DTypeError: a dtype that isn't one of floats.

    >>> lucid.finfo(lucid.float32).eps
    1.1920928955078125e-07
    """

    bits: int
    eps: float
    max: float
    min: float
    tiny: float
    smallest_normal: float
    resolution: float
    dtype: str

    def __init__(self, type: DType | None = None) -> None:
        type = get_default_dtype() if type is None else as_dtype(type, "finfo")
        if not type.is_floating_point:
            raise DTypeError(
                f"finfo() requires a floating point input type, not {type!r}\nhint: use iinfo"
            )
        info = np.finfo(type.numpy.str)
        eps, most, least, tiny = (float(x) for x in (info.eps, info.max, info.min, info.tiny))
        vars(self).update(
            bits=info.bits,
            eps=eps,
            max=most,
            min=least,
            tiny=tiny,
            smallest_normal=tiny,
            resolution=info.resolution.item(),
            dtype=type.torch_name,
        )


@dataclass(frozen=True, init=False)
class iinfo:  # noqa: N801 - the name that NumPy and PyTorch gave it
    """Limits of an integer dtype: `bits`, and the numbers from `min` to `max` that it holds.

    Args:
        type: a dtype of integers.

    Raises:
        DTypeError: a dtype that isn't one of integers.

    >>> lucid.iinfo(lucid.int32).max
    2147483647
    """

    bits: int
    max: int
    min: int
    dtype: str

    def __init__(self, type: DType) -> None:
        type = as_dtype(type, "iinfo")
        if type.kind != "int":
            raise DTypeError(
                f"iinfo() requires an integer input type, not {type!r}\nhint: use finfo"
            )
        info = np.iinfo(np.dtype(type.numpy.str))
        vars(self).update(bits=info.bits, max=info.max, min=info.min, dtype=type.torch_name)
