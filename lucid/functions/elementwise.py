"""Arithmetic and functions of one element at a time: promotion, then one op or a few."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lucid.functions.arguments import common_shape, describe, tensor_of, typed
from lucid.functions.checks import require
from lucid.functions.promotion import (
    Number,
    binary,
    common_dtype,
    floating,
    operand,
    promoted,
)
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, DivisionByZeroError, DTypeError, OptionError
from lucid.ir.op import Op
from lucid.ir.types import DType
from lucid.tensor.core import constant, emit

Operand = Tensor | Number

# ---------------------------------------------------------------------- arithmetic


def add(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """Return `input + alpha * other`; of two bools, whether either is true."""
    return _sum(ops.add, input, other, alpha)


def sub(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """Return `input - alpha * other`. Raises `DTypeError` for bools, which have no difference."""
    for value in (input, other):
        if isinstance(value, bool) or (isinstance(value, Tensor) and value.dtype.kind == "bool"):
            raise DTypeError(
                "sub: Subtraction, the `-` operator, with a bool tensor is not supported"
                f"{describe(input, other)}\n"
                "hint: use the `^` or `logical_xor()` operator, or `~` to invert a mask"
            )
    return _sum(ops.sub, input, other, alpha)


def rsub(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """Return `other - alpha * input`."""
    return sub(other, input, alpha=alpha)


def _sum(op: Op, input: Operand, other: Operand, alpha: Number) -> Tensor:
    x, y = promoted(input, other, op.name)
    dtype = x._type.dtype
    if type(alpha) is not int or alpha != 1:
        if dtype.kind != "float" and common_dtype((alpha,), op.name).kind == "float":
            raise DTypeError(
                f"{op.name}: For integral input tensors, argument alpha must not be a floating "
                f"point number, not {alpha!r}"
            )
        y = mul(y, alpha)
    if dtype.kind == "bool":
        return emit(ops.logical_or, (x, y))
    return emit(op, (x, y))


def mul(input: Operand, other: Operand) -> Tensor:
    """Return the product; of two bools, whether both are true."""
    x, y = promoted(input, other, "mul")
    return emit(ops.logical_and if x._type.dtype.kind == "bool" else ops.mul, (x, y))


def div(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """Return the quotient, a float; with `rounding_mode` "trunc" or "floor" of the common dtype.

    Integers divided by zero with a rounding mode give 0.
    """
    if rounding_mode is None:
        x, y = promoted(input, other, "div")
        return emit(ops.div, (floating(x, "div"), floating(y, "div")))
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode == "trunc":
        return _truncated_quotient(input, other)
    raise OptionError(
        "div: expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
        f"{rounding_mode!r}"
    )


def rdiv(input: Operand, other: Operand) -> Tensor:
    """Return `other / input`; 1 / x is the reciprocal, whose derivative has no division."""
    if type(other) in (int, float) and other == 1 and isinstance(input, Tensor):
        return reciprocal(input)
    return div(other, input)


def _truncated_quotient(input: Operand, other: Operand) -> Tensor:
    x, y = promoted(input, other, "div")
    if x._type.dtype.kind == "float":
        return emit(ops.trunc, (emit(ops.div, (x, y)),))
    quotient = emit(ops.floor_div, (x, y))
    rest = x - quotient * y
    rounded_down: Tensor = (rest != 0) & ((x < 0) ^ (y < 0)) & (y != 0)
    return quotient + rounded_down


def floor_divide(input: Operand, other: Operand) -> Tensor:
    """Return the quotient rounded towards minus infinity, of the common dtype."""
    return _divided("floor_divide", ops.floor_div, input, other)


def rfloor_divide(input: Operand, other: Operand) -> Tensor:
    """Return `other // input`."""
    return _divided("floor_divide", ops.floor_div, other, input)


def remainder(input: Operand, other: Operand) -> Tensor:
    """Return the rest of the division, with the sign of the divisor, as Python's `%`."""
    return _divided("remainder", ops.remainder, input, other)


def rremainder(input: Operand, other: Operand) -> Tensor:
    """Return `other % input`."""
    return _divided("remainder", ops.remainder, other, input)


def _divided(name: str, op: Op, x: Operand, y: Operand) -> Tensor:
    """The quotient or the rest. Raises `DivisionByZeroError` for integers."""
    first, second = promoted(x, y, name)
    if first._type.dtype.kind == "int":
        _refuse_zero(name, first, second, y)
    return emit(op, (first, second))


def _refuse_zero(name: str, x: Tensor, y: Tensor, given: Operand) -> None:
    """Raise `DivisionByZeroError` where the divisor, which the user gave as `given`, is 0."""
    said = f"{name}: an integer can't be divided by 0"
    if type(given) in (int, bool):
        if not given:
            raise DivisionByZeroError(said)
        return
    common_shape(name, input=x, other=y)
    differs = emit(ops.ne, (y, constant(0, y._type.dtype)))
    require(differs, lambda: said + typed(input=x, other=y), "zero")


def fmod(input: Operand, other: Operand) -> Tensor:
    """Return the rest of the division, with the sign of the dividend, as C's `fmod`."""
    x, y = promoted(input, other, "fmod")
    if x._type.dtype.kind != "float":  # an absolute value need not fit
        _refuse_zero("fmod", x, y, other)
        rest = emit(ops.remainder, (x, y))
        return choose((rest != 0) & ((rest < 0) != (x < 0)), rest - y, rest)
    rest = emit(ops.remainder, (abs(x), abs(y)))
    signed = choose(x < 0, -rest, rest)  # the rest of -0.0 is -0.0, that of a division by 0 is NaN
    return choose((x == 0) & (y != 0), x + 0.0 * rest, signed)


def pow(input: Operand, exponent: Operand) -> Tensor:
    """Return `input ** exponent`.

    Squares, cubes, roots and reciprocals of floats are computed as such, as PyTorch does.
    Raises: `OptionError` for an integer tensor to a negative integer number.
    """
    if isinstance(input, Tensor) and isinstance(exponent, (int, float)):
        kind = input._type.dtype.kind
        if kind == "float" and type(exponent) in (int, float) and exponent in _POWERS:
            return _POWERS[exponent](input)
        if kind == "int" and isinstance(exponent, int) and exponent < 0:
            raise OptionError(
                "pow: Integers to negative integer powers are not allowed.\n"
                "hint: convert the base with .float()"
            )
    return binary(ops.pow, input, exponent)


def rpow(input: Operand, other: Operand) -> Tensor:
    """Return `other ** input`."""
    return binary(ops.pow, other, input)


def square(input: Tensor) -> Tensor:
    """Return `input * input`; of bools, integers."""
    x = tensor_of(input, "square")
    return x.long() ** 2 if x._type.dtype.kind == "bool" else mul(x, x)


def reciprocal(input: Tensor) -> Tensor:
    """Return `1 / input`, a float."""
    return emit(ops.reciprocal, (floating(input, "reciprocal"),))


def sqrt(input: Tensor) -> Tensor:
    """Return the square root, a float; NaN of negative numbers."""
    return emit(ops.sqrt, (floating(input, "sqrt"),))


def rsqrt(input: Tensor) -> Tensor:
    """Return `1 / sqrt(input)`, a float."""
    return emit(ops.rsqrt, (floating(input, "rsqrt"),))


def _cube(x: Tensor) -> Tensor:
    return mul(mul(x, x), x)


def _inverse_square(x: Tensor) -> Tensor:
    return reciprocal(mul(x, x))


_POWERS: dict[Any, Callable[[Tensor], Tensor]] = {
    2: square,
    3: _cube,
    0.5: sqrt,
    -0.5: rsqrt,
    -1: reciprocal,
    -2: _inverse_square,
}


def neg(input: Tensor) -> Tensor:
    """Return `-input`. Raises `DTypeError` for bools."""
    if tensor_of(input, "neg")._type.dtype.kind == "bool":
        raise DTypeError(
            "neg: Negation, the `-` operator, on a bool tensor is not supported"
            f"{describe(input)}\n"
            "hint: use the `~` or `logical_not()` operator to invert a mask"
        )
    return _numeric(ops.neg, input)


def positive(input: Tensor) -> Tensor:
    """Return the tensor itself. Raises `DTypeError` for bools."""
    if input._type.dtype.kind == "bool":
        raise DTypeError("positive: The `+` operator, on a bool tensor is not supported.")
    return input


def abs(input: Tensor) -> Tensor:
    """Return the absolute value."""
    return _numeric(ops.abs, input)


def sign(input: Tensor) -> Tensor:
    """Return -1, 0 or 1 in the tensor's dtype; a bool is its own sign."""
    if tensor_of(input, "sign")._type.dtype.kind == "bool":
        return clone(input)
    return _numeric(ops.sign, input)


def _numeric(op: Op, input: Tensor) -> Tensor:
    return emit(op, (tensor_of(input, op.name),))


# ---------------------------------------------------------------------- functions of floats


def exp(input: Tensor) -> Tensor:
    """Return e to the power of `input`, a float."""
    return emit(ops.exp, (floating(input, "exp"),))


def exp2(input: Tensor) -> Tensor:
    """Return 2 to the power of `input`, a float."""
    x = floating(input, "exp2")
    return emit(ops.pow, (constant(2.0, x._type.dtype), x))


def expm1(input: Tensor) -> Tensor:
    """Return `exp(input) - 1`, accurate near zero."""
    return emit(ops.expm1, (floating(input, "expm1"),))


def log(input: Tensor) -> Tensor:
    """Return the natural logarithm, a float; -inf of 0, NaN of negative numbers."""
    return emit(ops.log, (floating(input, "log"),))


def log2(input: Tensor) -> Tensor:
    """Return the logarithm to base 2, a float."""
    return log(input) / math.log(2)


def log10(input: Tensor) -> Tensor:
    """Return the logarithm to base 10, a float."""
    return log(input) / math.log(10)


def log1p(input: Tensor) -> Tensor:
    """Return `log(1 + input)`, accurate near zero."""
    return emit(ops.log1p, (floating(input, "log1p"),))


def sin(input: Tensor) -> Tensor:
    """Return the sine of angles in radians, a float."""
    return emit(ops.sin, (floating(input, "sin"),))


def cos(input: Tensor) -> Tensor:
    """Return the cosine of angles in radians, a float."""
    return emit(ops.cos, (floating(input, "cos"),))


def tanh(input: Tensor) -> Tensor:
    """Return the hyperbolic tangent, a float."""
    return emit(ops.tanh, (floating(input, "tanh"),))


def sigmoid(input: Tensor) -> Tensor:
    """Return `1 / (1 + exp(-input))`, a float, without overflow."""
    return emit(ops.sigmoid, (floating(input, "sigmoid"),))


def erf(input: Tensor) -> Tensor:
    """Return the error function, a float."""
    return emit(ops.erf, (floating(input, "erf"),))


def relu(input: Tensor) -> Tensor:
    """Return `max(input, 0)`: a NaN stays NaN, the derivative at 0 is 0."""
    dtype = _numeric_dtype(input, "relu")
    zero = constant(0, dtype)
    return emit(ops.where, (emit(ops.le, (input, zero)), zero, input))


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return `log(1 + exp(beta * input)) / beta`; `input` itself above `threshold`."""
    x = floating(input, "softplus")
    scaled = x * beta
    linear = scaled > threshold
    curved = log1p(exp(choose(linear, 0.0, scaled))) / beta  # masked: no inf in the gradient
    return choose(linear, x, curved)


def lerp(input: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """Interpolate linearly, `input + weight * (end - input)`; exact at both ends.

    Shapes: all three broadcast to one shape, the result's.
    dtype: a float dtype, that of all tensors; lerp doesn't promote.

    Args:
        input: the values at weight 0.
        end: the values at weight 1.
        weight: where to look between them, a number or a tensor; outside of 0 to 1 it extrapolates.

    Raises:
        DTypeError: the dtypes differ.

    Example:
        >>> import lucid
        >>> lucid.lerp(lucid.tensor([0.0, 10.0]), lucid.tensor([4.0, 20.0]), 0.25)
        tensor([ 1.0000, 12.5000])
    """
    for tensor in (end, weight):
        if isinstance(tensor, Tensor) and tensor._type.dtype is not input._type.dtype:
            raise DTypeError(
                f"lerp: expected dtype {input.dtype!r} for `end` and `weight` but got "
                f"{tensor.dtype!r}"
            )
    difference = end - input
    from_start = input + weight * difference
    if type(weight) in (int, float) and -0.5 < weight < 0.5:
        return from_start
    from_end = end - difference * (1 - weight)
    if type(weight) in (int, float):
        return from_end
    factor = operand(weight, input._type.dtype, "lerp")
    return choose(abs(factor) < 0.5, from_start, from_end)


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """Return `input + value * tensor1 * tensor2`."""
    return input + _scaled(tensor1, value) * tensor2


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """Return `input + value * tensor1 / tensor2`. Raises `DTypeError` for integers alone."""
    if not any(tensor.dtype.is_floating_point for tensor in (input, tensor1, tensor2)):
        raise DTypeError(
            "addcdiv: Integer division with addcdiv is not supported\n"
            "hint: use input + value * lucid.div(tensor1, tensor2, rounding_mode='trunc')"
        )
    return input + _scaled(tensor1, value) / tensor2


def _scaled(tensor: Tensor, value: Number) -> Tensor:
    return tensor if type(value) is int and value == 1 else tensor * value


# ---------------------------------------------------------------------- rounding and limits


def floor(input: Tensor) -> Tensor:
    """Return the largest whole number not above each element; integers are copied."""
    return _rounded(ops.floor, input)


def ceil(input: Tensor) -> Tensor:
    """Return the smallest whole number not below each element; integers are copied."""
    return _rounded(ops.ceil, input)


def trunc(input: Tensor) -> Tensor:
    """Return each element without its fraction; integers are copied."""
    return _rounded(ops.trunc, input)


def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Round to `decimals` places, halves to even; integers are copied."""
    if decimals == 0:
        return _rounded(ops.round, input)
    if _numeric_dtype(input, "round").kind != "float":
        raise DTypeError(f"round: decimals={decimals} needs floats, not {input.dtype!r}")
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    if decimals > 0:
        return emit(ops.round, (input * scale,)) / scale
    return emit(ops.round, (input / scale,)) * scale


def frac(input: Tensor) -> Tensor:
    """Return each element's fraction, with its sign."""
    return input - trunc(floating(input, "frac"))


def _rounded(op: Op, input: Tensor) -> Tensor:
    if _numeric_dtype(input, op.name).kind == "float":
        return emit(op, (input,))
    return clone(input)


def _numeric_dtype(input: Tensor, op: str) -> DType:
    dtype = tensor_of(input, op)._type.dtype
    if dtype.kind == "bool":
        raise DTypeError(f"{op}: not defined for bools\nhint: convert with .long() or .float()")
    return dtype


def clamp(input: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Bring each element into [min, max]; a NaN stays NaN, and `max` wins where `min` > `max`."""
    if min is None and max is None:
        raise ArgumentError("clamp: At least one of 'min' or 'max' must not be None")
    bounds = tuple(bound for bound in (min, max) if bound is not None)
    dtype = common_dtype((input, *bounds), "clamp")
    if dtype.kind == "bool":
        raise DTypeError("clamp: not defined for bools")
    smallest, greatest = _limits(dtype)
    low = operand(smallest if min is None else min, dtype, "clamp")
    high = operand(greatest if max is None else max, dtype, "clamp")
    return emit(ops.clamp, (operand(input, dtype, "clamp"), low, high))


def _limits(dtype: DType) -> tuple[Number, Number]:
    if dtype.kind == "float":
        return -math.inf, math.inf
    info = np.iinfo(dtype.numpy.str)
    return int(info.min), int(info.max)


def clamp_min(input: Tensor, min: Operand) -> Tensor:
    """Return `clamp(input, min=min)`."""
    return clamp(input, min=min)


def clamp_max(input: Tensor, max: Operand) -> Tensor:
    """Return `clamp(input, max=max)`."""
    return clamp(input, max=max)


def maximum(input: Tensor, other: Tensor) -> Tensor:
    """Return the greater of two elements; NaN where either is NaN."""
    return binary(ops.maximum, input, other)


def minimum(input: Tensor, other: Tensor) -> Tensor:
    """Return the smaller of two elements; NaN where either is NaN."""
    return binary(ops.minimum, input, other)


def nan_to_num(
    input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replace NaN by `nan` and infinities by the dtype's limits, or by the numbers given."""
    dtype = input._type.dtype
    if dtype.kind != "float":
        return clone(input)
    info = np.finfo(dtype.numpy.str)
    high = float(info.max) if posinf is None else posinf
    low = float(info.min) if neginf is None else neginf
    finite = choose(input == math.inf, high, choose(input == -math.inf, low, input))
    return choose(input != input, nan, finite)


# ---------------------------------------------------------------------- choosing


def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """Return `input` where `condition` holds and `other` elsewhere, broadcast and promoted.

    With the condition alone: the indices where it holds, one tensor per axis.
    Raises: `DTypeError` for a condition that isn't bool.
    """
    if input is None and other is None:
        from lucid.functions.gathering import nonzero

        return nonzero(condition, as_tuple=True)
    return choose(condition, input, other)


def choose(condition: Tensor, input: Operand, other: Operand) -> Tensor:
    """`where` of three operands."""
    if tensor_of(condition, "where", "condition")._type.dtype.kind != "bool":
        raise DTypeError(
            f"where: expected condition to be a boolean tensor, but got {condition.dtype!r}"
            f"{describe(condition)}\nhint: write a comparison, such as condition != 0"
        )
    dtype = common_dtype((input, other), "where")
    return emit(
        ops.where, (condition, operand(input, dtype, "where"), operand(other, dtype, "where"))
    )


def masked_fill(input: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """Return `input` with `value`, a number or a 0-d tensor, where the bool `mask` holds."""
    if isinstance(value, Tensor) and value.ndim:
        raise ArgumentError(
            "masked_fill: only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)"
        )
    dtype = input._type.dtype
    return choose(mask, operand(value, dtype, "masked_fill"), input)


def clone(input: Tensor, *, memory_format: object = None) -> Tensor:
    """Return a copy with row-major memory of its own, through which gradients flow."""
    return emit(ops.cast, (input,), dtype=input._type.dtype)


def sgn(input: Tensor) -> Tensor:
    """Return `sign(input)`; lucid has no complex numbers."""
    return sign(input)
