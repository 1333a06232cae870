"""Arithmetic and functions of one element at a time: promotion, then one op or a few."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from lucid.autograd.native import fused, program
from lucid.docstrings import like, maps
from lucid.functions.arguments import common_shape, listed, tensor_of
from lucid.functions.checks import require
from lucid.functions.promotion import Number, binary, common_dtype, floating, operand, promoted
from lucid.functions.tensors import Tensor
from lucid.functions.updates import Update, updating
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, DivisionByZeroError, DTypeError, OptionError
from lucid.ir.op import Op
from lucid.ir.types import DType, limits_of
from lucid.layouts import check_memory_format
from lucid.tensor.core import apply_op, constant, emit

__all__ = [
    "abs", "absolute", "add", "addcdiv", "addcmul", "ceil", "clamp", "clamp_max", "clamp_min",
    "clip", "clone", "conj", "conj_physical", "div", "divide", "fix", "floor", "floor_divide",
    "fmod", "frac", "lerp", "masked_fill", "maximum", "minimum", "mul", "multiply", "nan_to_num",
    "neg", "negative", "positive", "pow", "real", "reciprocal", "remainder", "resolve_conj",
    "resolve_neg", "round", "rsqrt", "rsub", "sgn", "sign", "sqrt", "square", "sub", "subtract",
    "true_divide", "trunc", "where",
]  # fmt: skip

Operand = Tensor | Number


@maps("[1.0, 2.0]", "3", "alpha=2", "[7., 8.]")
def add(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """Return `input + alpha * other`; of two bools, whether either is true.

    Dtypes promote as in PyTorch: a tensor with axes wins over a number of the same category.

    Args:
        input: a tensor or a number.
        other: what is added, broadcast.
        alpha: a factor of `other`.
    """
    x, y = promoted(input, other, "add")
    if type(alpha) is not int or alpha != 1:
        y = scaled("add", y, alpha, "alpha")
    op = ops.logical_or if x._type.dtype.kind == "bool" else ops.add
    return apply_op(op, (x, y), {})  # type: ignore[return-value]


@maps("[5, 7]", "[1, 2]", "[4, 5]")
def sub(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """Return `input - alpha * other`, broadcast and promoted to a common dtype.

    Args:
        input: a tensor or a number.
        other: what is subtracted, likewise.
        alpha: a factor of `other`.

    Raises:
        DTypeError: one of them is of bools, which have no difference.
    """
    for value in (input, other):
        if isinstance(value, bool) or (isinstance(value, Tensor) and value.dtype.kind == "bool"):
            raise DTypeError(
                "sub: Subtraction, the `-` operator, with a bool tensor is not supported"
                "\n"
                "hint: use the `^` or `logical_xor()` operator, or `~` to invert a mask"
            )
    x, y = promoted(input, other, "sub")
    if type(alpha) is not int or alpha != 1:
        y = scaled("sub", y, alpha, "alpha")
    return apply_op(ops.sub, (x, y), {})  # type: ignore[return-value]


subtract = sub


@maps("[1.0, 2.0]", "10", "[9., 8.]")
def rsub(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """Return `other - alpha * input`: `sub` with its operands exchanged.

    Args:
        input: what is subtracted.
        other: a tensor or a number.
        alpha: a factor of `input`.
    """
    return sub(other, input, alpha=alpha)


def scaled(op: str, x: Tensor, factor: Number, name: str) -> Tensor:
    """`x * factor`; that many times an integer is an integer."""
    if x._type.dtype.kind != "float" and common_dtype((factor,), op).kind == "float":
        raise DTypeError(f"{op}: {name} must not be a float for integers, not {factor!r}")
    return mul(x, factor)


@maps("[[1.0], [2.0]]", "[3.0, 4.0]", "[[3., 4.], [6., 8.]]")
def mul(input: Operand, other: Operand) -> Tensor:
    """Return the product, broadcast and promoted; of two bools, whether both are true.

    Args:
        input: a tensor or a number.
        other: what it broadcasts with: a tensor or a number.
    """
    x, y = promoted(input, other, "mul")
    op = ops.logical_and if x._type.dtype.kind == "bool" else ops.mul
    return apply_op(op, (x, y), {})  # type: ignore[return-value]


multiply = mul


@maps("[7, -7]", "2", 'rounding_mode="floor"', "[ 3, -4]")
def div(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """Return the quotient, a float; with a rounding mode one of the common dtype.

    Division of floats by zero gives an infinity or NaN.

    Args:
        input: a tensor or a number.
        other: the divisor, likewise.
        rounding_mode: "trunc" towards zero, "floor" towards minus infinity. Default: None, no
            rounding.

    Raises:
        DivisionByZeroError: integers are divided by zero with a rounding mode.
        OptionError: another `rounding_mode`.
    """
    if rounding_mode is None:
        x, y = promoted(input, other, "div")
        return emit(ops.div, (floating(x, "div"), floating(y, "div")))
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode == "trunc":
        return _truncated_quotient(input, other)
    modes = "None, 'trunc' or 'floor'"
    raise OptionError(f"div: rounding_mode must be one of {modes}, not {rounding_mode!r}")


divide = true_divide = div


def rdiv(input: Operand, other: Operand) -> Tensor:
    """Return `other / input`; 1 / x is the reciprocal, whose derivative has no division."""
    if type(other) in (int, float) and other == 1 and isinstance(input, Tensor):
        return reciprocal(input)
    return div(other, input)


def _truncated_quotient(input: Operand, other: Operand) -> Tensor:
    x, y = promoted(input, other, "div")
    if x._type.dtype.kind == "float":
        return emit(ops.trunc, (emit(ops.div, (x, y)),))
    _refuse_zero("div", x, y, other)
    quotient = emit(ops.floor_div, (x, y))
    rest = x - quotient * y
    rounded_down: Tensor = (rest != 0) & ((x < 0) ^ (y < 0))
    return quotient + rounded_down


@like(mul)
@maps("[7, -7]", "2", "[ 3, -4]")
def floor_divide(input: Operand, other: Operand) -> Tensor:
    """Return the quotient rounded towards minus infinity, in the common dtype, as Python's `//`."""
    return _divided("floor_divide", ops.floor_div, input, other)


def rfloor_divide(input: Operand, other: Operand) -> Tensor:
    """Return `other // input`."""
    return _divided("floor_divide", ops.floor_div, other, input)


@like(mul)
@maps("[7, -7]", "3", "[1, 2]")
def remainder(input: Operand, other: Operand) -> Tensor:
    """Return the rest of the division, with the sign of the divisor, as Python's `%`.

    `input - other * floor(input / other)`; of floats by zero it is NaN.
    """
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
    require(differs, said, "zero", input=x, other=y)


@like(mul)
@program
@maps("[7, -7]", "3", "[ 1, -1]")
def fmod(input: Operand, other: Operand) -> Tensor:
    """Return the rest of the division, with the sign of the dividend, as C's `fmod`.

    `input - other * trunc(input / other)`; of floats by zero it is NaN.
    """
    x, y = promoted(input, other, "fmod")
    if x._type.dtype.kind != "float":  # an absolute value need not fit
        _refuse_zero("fmod", x, y, other)
        rest = emit(ops.remainder, (x, y))
        return choose((rest != 0) & ((rest < 0) != (x < 0)), rest - y, rest)
    rest = emit(ops.remainder, (abs(x), abs(y)))
    signed = choose(x < 0, -rest, rest)  # the rest of -0.0 is -0.0, that of a division by 0 is NaN
    return choose((x == 0) & (y != 0), x + 0.0 * rest, signed)


@maps("[1.0, 4.0, 9.0]", "0.5", "[1., 2., 3.]")
def pow(input: Operand, exponent: Operand) -> Tensor:
    """Return `input ** exponent`, broadcast and promoted.

    Squares, cubes, roots and reciprocals of floats are computed as such, as PyTorch does.

    Args:
        input: a tensor or a number.
        exponent: a number or a tensor.

    Raises:
        OptionError: integers to a negative integer number.
    """
    if isinstance(input, Tensor) and isinstance(exponent, (int, float)):
        kind = input._type.dtype.kind
        if kind == "float" and type(exponent) in (int, float) and exponent in _POWERS:
            return _POWERS[exponent](input)
        if kind != "float" and isinstance(exponent, int) and exponent < 0:
            raise OptionError(
                "pow: Integers to negative integer powers are not allowed.\n"
                "hint: convert the base with .float()"
            )
    return binary(ops.pow, input, exponent)


def rpow(input: Operand, other: Operand) -> Tensor:
    """Return `other ** input`."""
    return binary(ops.pow, other, input)


@maps("[-2.0, 3.0]", "[4., 9.]")
def square(input: Tensor) -> Tensor:
    """Return `input * input`, in the tensor's dtype; of bools, int64.

    Integers wrap around where the square doesn't fit.
    """
    x = tensor_of(input, "square")
    return x.long() ** 2 if x._type.dtype.kind == "bool" else mul(x, x)


@maps("[2.0, -4.0, 0.0]", "[ 0.5000, -0.2500,     inf]")
def reciprocal(input: Tensor) -> Tensor:
    """Return `1 / input`, a float: an infinity with the sign of the zero where the element is 0.

    Args:
        input: a tensor; integers and bools give the default float dtype.
    """
    return emit(ops.reciprocal, (floating(input, "reciprocal"),))


@maps("[4.0, 2.0, -1.0]", "[2.0000, 1.4142,    nan]")
def sqrt(input: Tensor) -> Tensor:
    """Return the square root, a float; NaN of negative numbers, and -0 of -0.

    Args:
        input: a tensor; integers and bools give the default float dtype.
    """
    return emit(ops.sqrt, (floating(input, "sqrt"),))


@maps("[4.0, 0.25]", "[0.5000, 2.0000]")
def rsqrt(input: Tensor) -> Tensor:
    """Return `1 / sqrt(input)`, a float; inf of 0, NaN of negative numbers.

    Args:
        input: a tensor; integers and bools give the default float dtype.
    """
    return emit(ops.rsqrt, (floating(input, "rsqrt"),))


def _cube(x: Tensor) -> Tensor:
    return mul(mul(x, x), x)


def _inverse_square(x: Tensor) -> Tensor:
    return reciprocal(mul(x, x))


_POWERS: dict[Any, Callable[[Tensor], Tensor]] = {
    2: square, 3: _cube, 0.5: sqrt, -0.5: rsqrt, -1: reciprocal, -2: _inverse_square,
}  # fmt: skip


@maps("[1.0, -2.0]", "[-1.,  2.]")
def neg(input: Tensor) -> Tensor:
    """Return `-input`, which for unsigned integers wraps around.

    Raises:
        DTypeError: bools; `~` inverts these.
    """
    if tensor_of(input, "neg")._type.dtype.kind == "bool":
        raise DTypeError(
            "neg: Negation, the `-` operator, on a bool tensor is not supported"
            f"{listed(input=input)}\n"
            "hint: use the `~` or `logical_not()` operator to invert a mask"
        )
    return _numeric(ops.neg, input)


negative = neg


@maps("[1.0, -2.0]", "[ 1., -2.]")
def positive(input: Tensor) -> Tensor:
    """Return the tensor itself, not a copy, as `+input` does.

    Args:
        input: a tensor of numbers.

    Raises:
        DTypeError: bools, which have no sign.
    """
    if input._type.dtype.kind == "bool":
        raise DTypeError("positive: The `+` operator, on a bool tensor is not supported.")
    return input


@maps("[True, False]", "[ True, False]")
def real(input: Tensor) -> Tensor:
    """Return the tensor itself, not a copy, of whatever dtype: there are no complex numbers."""
    return input


conj = conj_physical = resolve_conj = resolve_neg = real


@maps("[-1.5, 0.0, 2.0]", "[1.5000, 0.0000, 2.0000]")
def abs(input: Tensor) -> Tensor:
    """Return the absolute value, in the tensor's dtype; its derivative at 0 is 0."""
    return _numeric(ops.abs, input)


absolute = abs


@maps("[-2.5, 0.0, 3.0]", "[-1.,  0.,  1.]")
def sign(input: Tensor) -> Tensor:
    """Return -1, 0 or 1 in the tensor's dtype; a bool is its own sign, and the derivative is 0."""
    if tensor_of(input, "sign")._type.dtype.kind == "bool":
        return clone(input)
    return _numeric(ops.sign, input)


def _numeric(op: Op, input: Tensor) -> Tensor:
    return emit(op, (tensor_of(input, op.name),))


@program
@maps("[0.0, 10.0]", "[4.0, 20.0]", "0.25", "[ 1.0000, 12.5000]")
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
    """
    for tensor in (end, weight):
        if isinstance(tensor, Tensor) and tensor._type.dtype is not input._type.dtype:
            raise DTypeError("lerp: `end` and `weight` must have the dtype of `input`")
    difference = end - input
    is_number = type(weight) in (int, float)
    if is_number and -0.5 < weight < 0.5:
        return input + weight * difference
    from_end = end - difference * (1 - weight)
    if is_number:
        return from_end
    factor = operand(weight, input._type.dtype, "lerp")
    return choose(abs(factor) < 0.5, input + weight * difference, from_end)


@fused
@maps("lucid.ones(2)", "[2.0, 3.0]", "[4.0, 5.0]", "[ 9., 16.]")
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """Return `input + value * tensor1 * tensor2`.

    Shapes: all three broadcast to one shape, the result's. Dtypes promote.

    Args:
        input: what is added to.
        tensor1, tensor2: the factors, tensors.
        value: a number.
    """
    return input + _scaled(tensor1, value) * tensor2


@like(addcmul)
@fused
@maps("lucid.ones(2)", "[2.0, 3.0]", "[4.0, 4.0]", "[1.5000, 1.7500]")
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """Return `input + value * tensor1 / tensor2`.

    Args:
        tensor1: the dividend.
        tensor2: the divisor.

    Raises:
        DTypeError: integers alone, whose quotient would be a float.
    """
    if not any(tensor.dtype.is_floating_point for tensor in (input, tensor1, tensor2)):
        raise DTypeError(
            "addcdiv: Integer division with addcdiv is not supported\n"
            "hint: use input + value * lucid.div(tensor1, tensor2, rounding_mode='trunc')"
        )
    return input + _scaled(tensor1, value) / tensor2


def _scaled(tensor: Tensor, value: Number) -> Tensor:
    return tensor if type(value) is int and value == 1 else tensor * value


@maps("[1.7, -1.2]", "[ 1., -2.]")
def floor(input: Tensor) -> Tensor:
    """Return the largest whole number not above each element.

    In the tensor's dtype; integers are copied.
    """
    return _rounded(ops.floor, input)


@like(floor)
@maps("[1.2, -1.7]", "[ 2., -1.]")
def ceil(input: Tensor) -> Tensor:
    """Return the smallest whole number not below each element."""
    return _rounded(ops.ceil, input)


@maps("[1.7, -1.7]", "[ 1., -1.]")
def trunc(input: Tensor) -> Tensor:
    """Return each element without its fraction, towards zero; integers are copied."""
    return _rounded(ops.trunc, input)


fix = trunc


@maps("[2.345]", "decimals=1", "[2.3000]")
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Round to `decimals` places, halves to the even neighbour, as NumPy; integers are copied.

    Args:
        decimals: places behind the point; negative ones before it.

    Raises:
        DTypeError: `decimals` other than 0 of integers or bools.
    """
    if decimals == 0:
        return _rounded(ops.round, input)
    if _numeric_dtype(input, "round").kind != "float":
        raise DTypeError(f"round: decimals={decimals} needs floats, not {input.dtype!r}")
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    if decimals > 0:
        return emit(ops.round, (input * scale,)) / scale
    return emit(ops.round, (input / scale,)) * scale


@fused
@maps("[1.25, -1.25]", "[ 0.2500, -0.2500]")
def frac(input: Tensor) -> Tensor:
    """Return each element's fraction, `input - trunc(input)`, with its sign.

    Args:
        input: a tensor of floats.
    """
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


@maps("[-2.0, 0.5, 3.0]", "min=-1", "max=1", "[-1.0000,  0.5000,  1.0000]")
def clamp(input: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Bring each element into [min, max]; a NaN stays NaN, and `max` wins where `min` > `max`.

    The gradient goes to elements within the bounds, the bounds included, and to a bound that is a
    tensor where it is taken. Dtypes promote: integers with a bound of floats give floats.

    Args:
        min: a number or a tensor. Default: None, no bound.
        max: a number or a tensor. Default: None, no bound.

    Raises:
        ArgumentError: neither bound is given.
        DTypeError: bools, which have no order.
    """
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


clip = clamp


def _limits(dtype: DType) -> tuple[Number, Number]:
    if dtype.kind == "float":
        return -math.inf, math.inf
    return limits_of(dtype)


@maps("[-2.0, 0.5]", "0", "[0.0000, 0.5000]")
def clamp_min(input: Tensor, min: Operand) -> Tensor:
    """Return `clamp(input, min=min)`: no element below the bound.

    Args:
        min: a number or a tensor.
    """
    return clamp(input, min=min)


@maps("[0.5, 3.0]", "1", "[0.5000, 1.0000]")
def clamp_max(input: Tensor, max: Operand) -> Tensor:
    """Return `clamp(input, max=max)`: no element above the bound.

    Args:
        max: a number or a tensor.
    """
    return clamp(input, max=max)


@maps("[1.0, 4.0]", "[3.0, 2.0]", "[3., 4.]")
def maximum(input: Tensor, other: Tensor) -> Tensor:
    """Return the greater of two elements, broadcast; NaN where either is NaN.

    Where they are equal, each gets half of the gradient.

    Args:
        other: a tensor.
    """
    return binary(ops.maximum, input, other)


@like(maximum)
@maps("[1.0, 4.0]", "[3.0, 2.0]", "[1., 2.]")
def minimum(input: Tensor, other: Tensor) -> Tensor:
    """Return the smaller of two elements, broadcast; NaN where either is NaN."""
    return binary(ops.minimum, input, other)


@program
@maps('[float("nan"), 1.0]', "nan=-1.0", "[-1.,  1.]")
def nan_to_num(
    input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replace NaN by `nan` and infinities by the dtype's limits, or by the numbers given.

    Args:
        nan: for NaN.
        posinf: for inf. Default: the dtype's largest number.
        neginf: for -inf. Default: the dtype's smallest number.
    """
    dtype = input._type.dtype
    if dtype.kind != "float":
        return clone(input)
    info = np.finfo(dtype.numpy.str)
    high = float(info.max) if posinf is None else posinf
    low = float(info.min) if neginf is None else neginf
    finite = choose(input == math.inf, high, choose(input == -math.inf, low, input))
    return choose(input != input, nan, finite)


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(condition: Tensor, input: Operand, other: Operand) -> Tensor: ...
@maps("[True, False]", "[1.0, 2.0]", "0.0", "[1., 0.]")
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """Return `input` where `condition` holds and `other` elsewhere, broadcast and promoted.

    With the condition alone: the indices where it holds, one tensor per axis. Elements that aren't
    chosen get no gradient, and a NaN among them does no harm to the result.

    Args:
        condition: a tensor of bools.
        input, other: tensors or numbers; None, both of them, for indices.

    Raises:
        DTypeError: a condition that isn't bool.
    """
    if input is None and other is None:
        from lucid.functions.gathering import nonzero

        return nonzero(condition, as_tuple=True)
    return choose(condition, input, other)


def choose(condition: Tensor, input: Operand, other: Operand) -> Tensor:
    """`where` of three operands."""
    return emit(ops.where, _choices(condition, input, other))


def chosen(condition: Tensor, input: Operand, other: Tensor) -> Update:
    """The same, as what becomes of `other`."""
    return Update(ops.where, _choices(condition, input, other), {})


def _choices(condition: Tensor, input: Operand, other: Operand) -> tuple[Tensor, ...]:
    """The operands of `where`, two of which have one dtype."""
    if tensor_of(condition, "where", "condition")._type.dtype.kind != "bool":
        raise DTypeError(
            f"where: expected condition to be a boolean tensor, but got {condition.dtype!r}"
            f"\nhint: write a comparison, such as condition != 0"
        )
    dtype = common_dtype((input, other), "where")
    return condition, operand(input, dtype, "where"), operand(other, dtype, "where")


@updating
@maps("lucid.zeros(3)", "[True, False, True]", "7.0", "[7., 0., 7.]")
def masked_fill(input: Tensor, mask: Tensor, value: Operand) -> Update:
    """Return `input` with `value` where the bool `mask`, which broadcasts, holds.

    The result has the dtype of `input`; no gradient goes to what is replaced.

    Args:
        mask: a tensor of bools.
        value: a number or a 0-d tensor.

    Raises:
        ArgumentError: a `value` with axes.
        DTypeError: a `mask` that isn't of bools.
    """
    if isinstance(value, Tensor) and value.ndim:
        raise ArgumentError(f"masked_fill: value must be 0-d, but has {value.ndim} axes")
    dtype = input._type.dtype
    return chosen(mask, operand(value, dtype, "masked_fill"), input)


@maps("[1.0, 2.0]", "[1., 2.]")
def clone(input: Tensor, *, memory_format: object = None) -> Tensor:
    """Return a copy with row-major memory of its own, through which gradients flow.

    Raises:
        ArgumentError: what is no memory format.
    """
    if memory_format is not None:
        check_memory_format(memory_format, "clone")
    return emit(ops.cast, (input,), dtype=input._type.dtype)


@maps("[-2.5, 0.0]", "[-1.,  0.]")
def sgn(input: Tensor) -> Tensor:
    """Return `sign(input)`: lucid has no complex numbers, for which PyTorch's function differs."""
    return sign(input)
