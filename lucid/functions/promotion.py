"""PyTorch's type promotion: which dtype an operation computes in.

Tensors with dimensions come before 0-d tensors, and these before Python numbers: a later class
decides only if its category (bool < int < float) is higher.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np

from lucid.dtypes import get_default_dtype, promote_types
from lucid.functions.arguments import remedy_for, shown
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, OptionError
from lucid.ir.extents import is_open
from lucid.ir.op import Op, Operand
from lucid.ir.types import DType, bool_, f64, i64, limits_of
from lucid.tensor.context import context
from lucid.tensor.core import constant, emit, of_array

__all__ = ["result_type"]

Number = bool | int | float
_PLAIN = (float, int)


def scalar_dtype(value: Any, op: str) -> DType:
    """The dtype that a Python number stands for. Raises `ArgumentError` for anything else."""
    kind = type(value)
    if kind is float:
        return get_default_dtype()
    if kind is int:
        return i64
    if isinstance(value, (bool, np.bool_)):
        return bool_
    if isinstance(value, (int, np.integer)) and kind is not np.timedelta64:
        return i64
    if isinstance(value, (float, np.floating)):  # a live scalar says that it is a float
        return get_default_dtype()
    if is_open(value):
        return i64
    kind_name = value.__class__.__name__
    if op == "tensor":
        raise ArgumentError(f"tensor: data must be numbers, not {kind_name}")
    raise ArgumentError(
        f"{op}: operands are tensors and Python numbers, not {kind_name}{remedy_for(value)}"
    )


def result_type(*operands: Tensor | Number) -> DType:
    """Return the dtype that arithmetic on these operands gives.

    Tensors with axes come before 0-d tensors, and these before numbers: a later class decides only
    if its category (bool < int < float) is higher.

    Args:
        *operands: tensors and numbers, at least one.

    Raises:
        ArgumentError: no operand, or one that is neither a tensor nor a number.

    >>> lucid.result_type(lucid.tensor([1, 2]), 1.0)
    lucid.float32
    >>> lucid.result_type(lucid.tensor([1.0]), lucid.tensor(2.0, dtype=lucid.float64))
    lucid.float32
    """
    return common_dtype(operands, "result_type")


def common_dtype(operands: Sequence[Any], op: str) -> DType:
    """As `result_type`, for the operands of `op`."""
    dimensioned: DType | None = None
    zero: DType | None = None
    number: DType | None = None
    for operand in operands:
        if isinstance(operand, Tensor):
            type = operand._type
            if type.shape:
                dimensioned = _joined(dimensioned, type.dtype)
            else:
                zero = _joined(zero, type.dtype)
        else:
            number = _joined(number, scalar_dtype(operand, op))
    result = _ranked(dimensioned, _ranked(zero, number))
    if result is None:
        raise ArgumentError(f"{op}: needs at least one operand")
    return result


def _joined(first: DType | None, second: DType) -> DType:
    return second if first is None else promote_types(first, second)


def _ranked(higher: DType | None, lower: DType | None) -> DType | None:
    """`higher` unless the category of `lower` is above its own."""
    if higher is None or lower is None:
        return higher or lower
    if higher.kind == "bool" or (lower.kind == "float" and higher.kind != "float"):
        return promote_types(higher, lower)
    return higher


def operand(value: Any, dtype: DType, op: str) -> Tensor:
    """A tensor cast to `dtype`, or a number as a constant of it.

    Raises: `OptionError` for a number that the dtype can't hold, `ArgumentError` for no number.
    """
    if isinstance(value, Tensor):
        if value._type.dtype is dtype:
            return value
        return emit(ops.cast, (value,), dtype=dtype)
    scalar_dtype(value, op)
    if dtype.kind == "int":
        value = _integer_in_range(value, dtype, op)
    return number(value, dtype, op)


def _overflow(value: Any, dtype: DType, op: str) -> OptionError:
    """Of a number that a dtype can't hold."""
    return OptionError(
        f"{op}: value {shown(value)} cannot be converted to {dtype!r} without overflow"
    )


def number(value: Any, dtype: DType, op: str = "number") -> Tensor:
    """A number as an operand that nobody writes: where nobody notes ops equal ones are one tensor.

    Of one tensor in two places a graph would say that it is one value, an argument and a constant.

    Raises: `OptionError` for one that the dtype can't hold.
    """
    try:
        if context.recorder is None and not context.levels and type(value) in _PLAIN:
            return _known_number(value, dtype, value or str(value))
        return constant(value, dtype)
    except OverflowError:
        raise _overflow(value, dtype, op) from None


def ratio(over: int, under: int, dtype: DType) -> Tensor:
    """A quotient of two sizes as such an operand; of open ones each call computes it."""
    if not (is_open(over) or is_open(under)):
        return number(over / under, dtype)
    quotient: Tensor = ops.div(constant(over, f64), constant(under, f64))
    return ops.cast(quotient, dtype=dtype)


@lru_cache(maxsize=1024, typed=True)
def _known_number(value: float, dtype: DType, told_apart: object) -> Tensor:
    """told_apart: 0.0 and -0.0, which are equal."""
    array = np.array(value, dtype.numpy)
    array.flags.writeable = False
    return of_array(array)


def _integer_in_range(value: Any, dtype: DType, op: str) -> Any:
    """A number as an integer of `dtype`, without its fraction; a live scalar stays one."""
    if not issubclass(value.__class__, (int, float, np.generic)):
        return value
    live = type(value) is not value.__class__  # which is only what it says
    if live and not hasattr(type(value), "truncated"):
        return value
    try:
        whole: Any = value.truncated() if live else int(value)
    except (ValueError, OverflowError):
        raise OptionError(f"{op}: value {value} cannot be converted to {dtype!r}") from None
    least, greatest = limits_of(dtype)
    if not (whole.fits(dtype) if live else least <= whole <= greatest):
        raise _overflow(whole, dtype, op)
    return whole


def promoted(x: Any, y: Any, op: str) -> tuple[Tensor, Tensor]:
    """Bring two operands, at least one of them a tensor, to their common dtype."""
    if isinstance(x, Tensor):
        dtype = x._type.dtype
        if isinstance(y, Tensor):
            if y._type.dtype is dtype:
                return x, y
        elif dtype.kind == "float" and type(y) in _PLAIN:
            return x, number(y, dtype, op)
    elif isinstance(y, Tensor):
        dtype = y._type.dtype
        if dtype.kind == "float" and type(x) in _PLAIN:
            return number(x, dtype, op), y
    else:
        raise ArgumentError(
            f"{op}: at least one operand must be a Tensor, not {x!r} and {y!r}\n"
            "hint: lucid.tensor(...) makes one"
        )
    if isinstance(x, Operand) and isinstance(y, Operand) and x.dtype is y.dtype:
        return cast(tuple[Tensor, Tensor], (x, y))  # the engine's stand-in for data not kept
    dtype = common_dtype((x, y), op)
    return operand(x, dtype, op), operand(y, dtype, op)


def binary(op: Op, x: Any, y: Any) -> Tensor:
    """Apply an op of two operands in their common dtype."""
    return emit(op, promoted(x, y, op.name))


def floating(x: Any, op: str) -> Tensor:
    """The operand of a function of floats: integers and bools become the default dtype."""
    if isinstance(x, Tensor):
        if x._type.dtype.kind == "float":
            return x
        return emit(ops.cast, (x,), dtype=get_default_dtype())
    if isinstance(x, Operand):  # the engine's stand-in for data that was not kept
        return cast(Tensor, x)
    raise ArgumentError(
        f"{op}: input must be a Tensor, not {x.__class__.__name__}\n"
        "hint: lucid.tensor(...) makes one"
    )


def truth(x: Any, op: str) -> Tensor:
    """A tensor as bools: whether each element is not zero; a NaN is true."""
    if not isinstance(x, Tensor):
        scalar_dtype(x, op)
        return constant(bool(x), bool_)
    if x._type.dtype is bool_:
        return x
    return emit(ops.ne, (x, number(0, x._type.dtype)))
