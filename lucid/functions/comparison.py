"""Comparisons, logic and bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid.functions.arguments import describe
from lucid.functions.promotion import Number, binary, promoted, truth
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import DTypeError
from lucid.ir.op import Op
from lucid.ir.types import bool_, i64
from lucid.tensor.core import emit

Operand = Tensor | Number
_COMPARED = (Tensor, bool, int, float, np.generic, np.ndarray)  # by `==`


def _compared(op: Op, x: Any, y: Any) -> Tensor:
    """A comparison; that of a small integer with a number that its dtype can't hold is exact."""
    return binary(op, _widened(x, y), _widened(y, x))


def _widened(x: Any, other: Any) -> Any:
    if type(other) is not int or not isinstance(x, Tensor):
        return x
    dtype = x._type.dtype
    if dtype.kind != "int" or dtype is i64:
        return x
    info = np.iinfo(dtype.numpy.str)
    return x if info.min <= other <= info.max else emit(ops.cast, (x,), dtype=i64)


def eq(input: Operand, other: Operand) -> Tensor:
    """Whether elements are equal; NaN equals nothing."""
    return _compared(ops.eq, input, other)


def ne(input: Operand, other: Operand) -> Tensor:
    """Whether elements differ; NaN differs from everything."""
    return _compared(ops.ne, input, other)


def lt(input: Operand, other: Operand) -> Tensor:
    """Whether `input < other`."""
    return _compared(ops.lt, input, other)


def le(input: Operand, other: Operand) -> Tensor:
    """Whether `input <= other`."""
    return _compared(ops.le, input, other)


def gt(input: Operand, other: Operand) -> Tensor:
    """Whether `input > other`."""
    return _compared(ops.gt, input, other)


def ge(input: Operand, other: Operand) -> Tensor:
    """Whether `input >= other`."""
    return _compared(ops.ge, input, other)


def operator_eq(input: Tensor, other: Any) -> Any:
    """`==`: as `eq`; what is neither tensor, number nor array is unequal, as in `x == None`.

    Raises `ArgumentError` for an array, as all operators do.
    """
    if not isinstance(other, _COMPARED):
        return NotImplemented
    return _compared(ops.eq, input, other)


def operator_ne(input: Tensor, other: Any) -> Any:
    """`!=`: the opposite of `==`."""
    if not isinstance(other, _COMPARED):
        return NotImplemented
    return _compared(ops.ne, input, other)


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both tensors have the same shape and elements; a Python bool.

    Raises: `TraceError` inside a trace.
    """
    if input._type.shape != other._type.shape:
        return False
    return bool(_whole(ops.all, eq(input, other)).item())


def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Whether `|input - other| <= atol + rtol * |other|`, or both are the same infinity.

    Raises: `DTypeError` where the dtypes differ.
    """
    if input._type.dtype is not other._type.dtype:
        raise DTypeError(
            f"isclose: {input.dtype!r} did not match {other.dtype!r}{describe(input, other)}"
        )
    same = eq(input, other)
    if input._type.dtype.kind == "bool":
        return same
    if equal_nan and input._type.dtype.kind == "float":
        same = same | (isnan(input) & isnan(other))
    if input._type.dtype.kind == "int":
        input, other = input.double(), other.double()
    distance = (input - other).abs()
    return same | (isfinite(distance) & (distance <= (other * rtol).abs() + atol))


def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether all elements are close, see `isclose`; a Python bool.

    Raises: `TraceError` inside a trace.
    """
    return bool(_whole(ops.all, isclose(input, other, rtol, atol, equal_nan)).item())


def _whole(op: Op, x: Tensor) -> Tensor:
    return emit(op, (x,), axes=tuple(range(x.ndim)))


def isnan(input: Tensor) -> Tensor:
    """Whether each element is NaN."""
    return emit(ops.ne, (input, input))


def isinf(input: Tensor) -> Tensor:
    """Whether each element is an infinity of either sign."""
    if input._type.dtype.kind != "float":
        return emit(ops.ne, (input, input))
    return eq(input.abs(), math.inf)


def isfinite(input: Tensor) -> Tensor:
    """Whether each element is neither NaN nor infinite."""
    if input._type.dtype.kind != "float":
        return emit(ops.eq, (input, input))
    return ne(input.abs(), math.inf) & emit(ops.eq, (input, input))


# ---------------------------------------------------------------------- logic


def logical_and(input: Tensor, other: Tensor) -> Tensor:
    """Whether both elements are true, that is, not zero."""
    return emit(ops.logical_and, (truth(input, "logical_and"), truth(other, "logical_and")))


def logical_or(input: Tensor, other: Tensor) -> Tensor:
    """Whether either element is true."""
    return emit(ops.logical_or, (truth(input, "logical_or"), truth(other, "logical_or")))


def logical_xor(input: Tensor, other: Tensor) -> Tensor:
    """Whether just one of the elements is true."""
    return emit(ops.logical_xor, (truth(input, "logical_xor"), truth(other, "logical_xor")))


def logical_not(input: Tensor) -> Tensor:
    """Whether the element is zero."""
    return emit(ops.logical_not, (truth(input, "logical_not"),))


# ---------------------------------------------------------------------- bits


def _bits(bits: Op, logic: Op, input: Any, other: Any, name: str) -> Tensor:
    x, y = promoted(input, other, name)
    kind = x._type.dtype.kind
    if kind == "float":
        raise DTypeError(
            f"{name}: defined for integers and bools, not {x.dtype!r}{describe(input, other)}"
        )
    return emit(logic if kind == "bool" else bits, (x, y))


def bitwise_and(input: Operand, other: Operand) -> Tensor:
    """The bits set in both; of bools, whether both are true."""
    return _bits(ops.bit_and, ops.logical_and, input, other, "bitwise_and")


def bitwise_or(input: Operand, other: Operand) -> Tensor:
    """The bits set in either; of bools, whether either is true."""
    return _bits(ops.bit_or, ops.logical_or, input, other, "bitwise_or")


def bitwise_xor(input: Operand, other: Operand) -> Tensor:
    """The bits set in just one; of bools, whether just one is true."""
    return _bits(ops.bit_xor, ops.logical_xor, input, other, "bitwise_xor")


def bitwise_not(input: Tensor) -> Tensor:
    """The bits that are not set; of bools, the negation."""
    if input._type.dtype.kind == "float":
        raise DTypeError(f"bitwise_not: defined for integers and bools, not {input.dtype!r}")
    return emit(ops.logical_not if input._type.dtype is bool_ else ops.bit_not, (input,))


def _shift(op: Op, input: Any, other: Any, name: str) -> Tensor:
    x, y = promoted(input, other, name)
    if x._type.dtype.kind != "int":
        raise DTypeError(f"{name}: defined for integers, not {x.dtype!r}{describe(input, other)}")
    return emit(op, (x, y))


def bitwise_left_shift(input: Operand, other: Operand) -> Tensor:
    """Return `input * 2**other`, without the bits that don't fit."""
    return _shift(ops.shift_left, input, other, "bitwise_left_shift")


def bitwise_right_shift(input: Operand, other: Operand) -> Tensor:
    """Return `input // 2**other`; a negative number stays negative."""
    return _shift(ops.shift_right, input, other, "bitwise_right_shift")


def reflected_left_shift(input: Tensor, other: Number) -> Tensor:
    """Return `other << input`."""
    return bitwise_left_shift(other, input)


def reflected_right_shift(input: Tensor, other: Number) -> Tensor:
    """Return `other >> input`."""
    return bitwise_right_shift(other, input)
