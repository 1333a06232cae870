"""Comparisons, logic and bits.

Args:
    input: a tensor of any dtype.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid.docstrings import like, maps
from lucid.functions.checks import at_hand
from lucid.functions.promotion import Number, binary, promoted, truth
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import DTypeError, OptionError
from lucid.ir.extents import Extent, is_open
from lucid.ir.op import Op
from lucid.ir.types import bool_, i64, limits_of
from lucid.tensor.core import emit

__all__ = [
    "allclose", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "eq", "equal", "ge", "greater", "greater_equal", "gt",
    "isclose", "isfinite", "isinf", "isnan", "le", "less", "less_equal", "logical_and",
    "logical_not", "logical_or", "logical_xor", "lt", "ne", "not_equal",
]  # fmt: skip

_AT_ONCE = 1 << 14  # elements that `equal` compares before it looks for a difference

Operand = Tensor | Number
_COMPARED = (Tensor, bool, int, float, np.generic, np.ndarray, Extent)  # by `==`


def _compared(op: Op, x: Any, y: Any) -> Tensor:
    """A comparison; that of a small integer with a number that its dtype can't hold is exact."""
    return binary(op, _widened(x, y), _widened(y, x))


def _widened(x: Any, other: Any) -> Any:
    if type(other) not in (int, Extent) or not isinstance(x, Tensor):
        return x
    dtype = x._type.dtype
    if dtype.kind != "int" or dtype is i64:
        return x
    least, greatest = limits_of(dtype)
    is_known = not is_open(other) and least <= other <= greatest
    return x if is_known else emit(ops.cast, (x,), dtype=i64)


@maps("[1.0, 2.0, 3.0]", "2", "[False,  True, False]")
def eq(input: Operand, other: Operand) -> Tensor:
    """Return whether elements are equal, as bools; NaN equals nothing.

    The operands are broadcast, and promoted to a common dtype. An int is compared exactly with
    integers of less than 64 bits, also if their dtype can't hold it. There is no gradient.

    Args:
        input: a tensor or a number.
        other: what it is compared with, a tensor or a number.

    Raises:
        ArgumentError: neither of them is a tensor.
        ShapeError: the shapes don't broadcast.
        OptionError: an int that int64 can't hold, and a tensor of integers.
    """
    return _compared(ops.eq, input, other)


@like(eq)
@maps("[1.0, 2.0, 3.0]", "2", "[ True, False,  True]")
def ne(input: Operand, other: Operand) -> Tensor:
    """Return whether elements differ, as bools; NaN differs from everything, itself included."""
    return _compared(ops.ne, input, other)


not_equal = ne


@like(eq)
@maps("[1.0, 2.0, 3.0]", "2", "[ True, False, False]")
def lt(input: Operand, other: Operand) -> Tensor:
    """Return whether `input < other`, as bools; false where either is NaN."""
    return _compared(ops.lt, input, other)


less = lt


@like(eq)
@maps("[1.0, 2.0, 3.0]", "2", "[ True,  True, False]")
def le(input: Operand, other: Operand) -> Tensor:
    """Return whether `input <= other`, as bools; false where either is NaN."""
    return _compared(ops.le, input, other)


less_equal = le


@like(eq)
@maps("[1.0, 2.0, 3.0]", "2", "[False, False,  True]")
def gt(input: Operand, other: Operand) -> Tensor:
    """Return whether `input > other`, as bools; false where either is NaN."""
    return _compared(ops.gt, input, other)


greater = gt


@like(eq)
@maps("[1.0, 2.0, 3.0]", "2", "[False,  True,  True]")
def ge(input: Operand, other: Operand) -> Tensor:
    """Return whether `input >= other`, as bools; false where either is NaN."""
    return _compared(ops.ge, input, other)


greater_equal = ge


def operator_eq(input: Tensor, other: Any) -> Tensor:
    """`==`: as `eq`; what is neither tensor, number nor array is unequal, as in `x == None`.

    Raises `ArgumentError` for an array, as all operators do.
    """
    if not isinstance(other, _COMPARED):
        return NotImplemented  # type: ignore[no-any-return]
    return _compared(ops.eq, input, other)


def operator_ne(input: Tensor, other: Any) -> Tensor:
    """`!=`: the opposite of `==`."""
    if not isinstance(other, _COMPARED):
        return NotImplemented  # type: ignore[no-any-return]
    return _compared(ops.ne, input, other)


@maps("[1, 2]", "[1.0, 2.0]", "True")
def equal(input: Tensor, other: Tensor) -> bool:
    """Return whether both tensors have one shape and equal elements, as a Python bool.

    A NaN equals nothing, so a tensor with one isn't equal to itself. Dtypes may differ: 1 equals
    1.0. A compiled step has a path for each answer.

    Args:
        input: a tensor.
        other: a tensor of any shape and dtype.
    """
    if input._type.shape != other._type.shape:
        return False
    x, y = at_hand(input), at_hand(other)
    if x is not None and y is not None and x.dtype == y.dtype:
        if x.size <= _AT_ONCE:
            return bool((x == y).all())
        rows = max(_AT_ONCE * len(x) // x.size, 1)
        return all((x[n : n + rows] == y[n : n + rows]).all() for n in range(0, len(x), rows))
    return bool(_whole(ops.all, eq(input, other)).item())


@maps("[1.0, 2.0]", "[1.000001, 2.1]", "[ True, False]")
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Return whether `|input - other| <= atol + rtol * |other|`, as bools.

    Two infinities of one sign are close, too. Integers are compared as float64; bools are close
    where they are equal.

    Args:
        input: a tensor.
        other: a tensor of the same dtype, from which it may differ.
        rtol: how much of `|other|` they may differ.
        atol: how much they may differ besides.
        equal_nan: whether two NaN are close.

    Raises:
        DTypeError: the dtypes differ.
        ShapeError: the shapes don't broadcast.
        OptionError: a tolerance is negative.
    """
    if input._type.dtype is not other._type.dtype:
        raise DTypeError(f"isclose: {input.dtype!r} did not match {other.dtype!r}")
    if rtol < 0 or atol < 0:
        raise OptionError(f"isclose: tolerances can't be negative: rtol={rtol}, atol={atol}")
    same = eq(input, other)
    if input._type.dtype.kind == "bool":
        return same
    if equal_nan and input._type.dtype.kind == "float":
        same = same | (isnan(input) & isnan(other))
    if input._type.dtype.kind == "int":
        input, other = input.double(), other.double()
    distance = (input - other).abs()
    return same | (isfinite(distance) & (distance <= (other * rtol).abs() + atol))


@like(isclose)
@maps("[1.0, 2.0]", "[1.000001, 2.0]", "True")
def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Return whether all elements are close, as `isclose` has it, as a Python bool.

    A compiled step has a path for each answer.
    """
    return bool(_whole(ops.all, isclose(input, other, rtol, atol, equal_nan)).item())


def _whole(op: Op, x: Tensor) -> Tensor:
    return emit(op, (x,), axes=tuple(range(x.ndim)))


@maps('[float("nan"), float("inf"), 1.0]', "[ True, False, False]")
def isnan(input: Tensor) -> Tensor:
    """Return whether each element is NaN, as bools; of integers and bools none is."""
    return emit(ops.ne, (input, input))


@maps('[float("nan"), float("inf"), 1.0]', "[False,  True, False]")
def isinf(input: Tensor) -> Tensor:
    """Return whether each element is an infinity of either sign, as bools; no integer is."""
    if input._type.dtype.kind != "float":
        return emit(ops.ne, (input, input))
    return eq(input.abs(), math.inf)


def isfinite(input: Tensor) -> Tensor:
    """Return whether each element is neither NaN nor infinite, as bools; all integers are finite.

    >>> lucid.isfinite(lucid.tensor([float("nan"), float("inf"), 1.0]))
    tensor([False, False,  True])
    """
    if input._type.dtype.kind != "float":
        return emit(ops.eq, (input, input))
    return ne(input.abs(), math.inf) & emit(ops.eq, (input, input))


@maps("[0.0, 2.0, 3.0]", "[True, True, False]", "[False,  True, False]")
def logical_and(input: Tensor, other: Tensor) -> Tensor:
    """Return whether both elements are true, as bools, broadcast.

    The dtypes may differ.

    Args:
        input: a tensor or a number of any dtype; what isn't zero is true, NaN too.
        other: what it is joined with, likewise.

    Raises:
        ShapeError: the shapes don't broadcast.
    """
    return emit(ops.logical_and, (truth(input, "logical_and"), truth(other, "logical_and")))


@like(logical_and)
@maps("[0.0, 2.0, 3.0]", "[True, True, False]", "[True, True, True]")
def logical_or(input: Tensor, other: Tensor) -> Tensor:
    """Return whether either element is true, as bools, broadcast."""
    return emit(ops.logical_or, (truth(input, "logical_or"), truth(other, "logical_or")))


@like(logical_and)
@maps("[0.0, 2.0, 3.0]", "[True, True, False]", "[ True, False,  True]")
def logical_xor(input: Tensor, other: Tensor) -> Tensor:
    """Return whether just one of the elements is true, as bools, broadcast."""
    return emit(ops.logical_xor, (truth(input, "logical_xor"), truth(other, "logical_xor")))


@maps("[0.0, 2.0]", "[ True, False]")
def logical_not(input: Tensor) -> Tensor:
    """Return whether each element is zero, as bools; a NaN is not."""
    return emit(ops.logical_not, (truth(input, "logical_not"),))


def _bits(bits: Op, logic: Op, input: Any, other: Any, name: str) -> Tensor:
    x, y = promoted(input, other, name)
    kind = x._type.dtype.kind
    if kind == "float":
        raise DTypeError(f"{name}: defined for integers and bools, not {x.dtype!r}")
    return emit(logic if kind == "bool" else bits, (x, y))


@maps("[5, 12]", "6", "[4, 4]")
def bitwise_and(input: Operand, other: Operand) -> Tensor:
    """Return the bits set in both; of bools, whether both are true.

    Args:
        input: a tensor or a number; integers or bools.
        other: likewise, broadcast and promoted.

    Raises:
        DTypeError: the common dtype is one of floats.
        ArgumentError: neither of them is a tensor.
    """
    return _bits(ops.bit_and, ops.logical_and, input, other, "bitwise_and")


@like(bitwise_and)
@maps("[5, 12]", "6", "[ 7, 14]")
def bitwise_or(input: Operand, other: Operand) -> Tensor:
    """Return the bits set in either; of bools, whether either is true."""
    return _bits(ops.bit_or, ops.logical_or, input, other, "bitwise_or")


@like(bitwise_and)
@maps("[5, 12]", "6", "[ 3, 10]")
def bitwise_xor(input: Operand, other: Operand) -> Tensor:
    """Return the bits set in just one; of bools, whether just one is true."""
    return _bits(ops.bit_xor, ops.logical_xor, input, other, "bitwise_xor")


@maps("[0, 5]", "[-1, -6]")
def bitwise_not(input: Tensor) -> Tensor:
    """Return the bits that are not set, `-input - 1` of signed integers; of bools, the negation.

    Args:
        input: a tensor of integers or bools.

    Raises:
        DTypeError: a tensor of floats.
    """
    if input._type.dtype.kind == "float":
        raise DTypeError(f"bitwise_not: defined for integers and bools, not {input.dtype!r}")
    return emit(ops.logical_not if input._type.dtype is bool_ else ops.bit_not, (input,))


def _shift(op: Op, input: Any, other: Any, name: str) -> Tensor:
    x, y = promoted(input, other, name)
    if x._type.dtype.kind != "int":
        raise DTypeError(f"{name}: defined for integers, not {x.dtype!r}")
    return emit(op, (x, y))


@maps("[1, 3]", "[4, 1]", "[16,  6]")
def bitwise_left_shift(input: Operand, other: Operand) -> Tensor:
    """Return `input * 2**other` without the bits that don't fit: 0 where all are shifted out.

    Args:
        input: a tensor or a number; integers.
        other: by how many bits; below 0 the result is 0.

    Raises:
        DTypeError: the common dtype isn't one of integers.
        ArgumentError: neither of them is a tensor.
    """
    return _shift(ops.shift_left, input, other, "bitwise_left_shift")


@like(bitwise_left_shift)
@maps("[20, -20]", "3", "[ 2, -3]")
def bitwise_right_shift(input: Operand, other: Operand) -> Tensor:
    """Return `input // 2**other`, rounded down; a negative number stays negative.

    Where all bits are shifted out, 0 or -1 is left.

    Args:
        other: by how many bits; below 0 counts as all of them.
    """
    return _shift(ops.shift_right, input, other, "bitwise_right_shift")


def reflected_left_shift(input: Tensor, other: Number) -> Tensor:
    """Return `other << input`."""
    return bitwise_left_shift(other, input)


def reflected_right_shift(input: Tensor, other: Number) -> Tensor:
    """Return `other >> input`."""
    return bitwise_right_shift(other, input)
