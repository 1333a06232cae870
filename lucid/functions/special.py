"""Functions of one or two elements that need no op: logarithms of sums, signs, divisors.

Args:
    input: a tensor of any dtype.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid import return_types
from lucid.autograd.native import fused, program
from lucid.docstrings import like, maps
from lucid.functions.arguments import common_shape, tensor_of
from lucid.functions.elementwise import abs as absolute, choose, maximum
from lucid.functions.gradients import with_gradient
from lucid.functions.lapack import lapack as by_numpy
from lucid.functions.promotion import Number, floating, promoted
from lucid.functions.shape import broadcast
from lucid.functions.tensors import Tensor
from lucid.functions.transcendental import exp, log, log1p, sigmoid
from lucid.ir import ops
from lucid.ir.errors import DTypeError, MissingRuleError
from lucid.ir.types import bool_
from lucid.tensor.core import constant, emit

__all__ = [
    "angle", "copysign", "float_power", "fmax", "fmin", "frexp", "gcd", "heaviside", "isneginf",
    "isposinf", "isreal", "lcm", "ldexp", "logaddexp", "logaddexp2", "logit", "nextafter",
    "signbit", "xlogy",
]  # fmt: skip

_LOG_2 = math.log(2.0)


def _of_logaddexp(g: Tensor, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Where the two are equal, they share what comes."""
    distance = _distance(x, other)
    return g * sigmoid(distance), g * sigmoid(-distance)


@with_gradient(_of_logaddexp)
def _logaddexp(x: Tensor, other: Tensor) -> Tensor:
    return maximum(x, other) + log1p(exp(-absolute(_distance(x, other))))


def _distance(x: Tensor, y: Tensor) -> Tensor:
    """By how much `x` is larger: two infinities of one sign are equal."""
    same = (x == y) & (absolute(x) == math.inf)
    return choose(same, 0.0, x - y)


@maps("[0.0, 1000.0]", "[0.0, 1000.0]", "[6.9315e-01, 1.0007e+03]")
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """Return `log(exp(input) + exp(other))`, a float, without overflow.

    Two infinities of one sign give that infinity.

    Args:
        input: a tensor.
        other: a tensor, broadcast and promoted.
    """
    x, y = promoted(input, other, "logaddexp")
    return _logaddexp(floating(x, "logaddexp"), floating(y, "logaddexp"))


@like(logaddexp)
@program
@maps("[3.0, 1000.0]", "[3.0, 1000.0]", "[   4., 1001.]")
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """Return `log2(2**input + 2**other)`, a float, without overflow.

    Adds numbers that are kept as logarithms to base 2.
    """
    x, y = promoted(input, other, "logaddexp2")
    return (
        logaddexp(floating(x, "logaddexp2") * _LOG_2, floating(y, "logaddexp2") * _LOG_2) / _LOG_2
    )


@program
@maps("[0.0, 2.0]", "[0.0, 3.0]", "[0.0000, 2.1972]")
def xlogy(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """Return `input * log(other)`, a float, and 0 where `input` is 0 unless `other` is NaN.

    Args:
        input: a tensor or a number.
        other: likewise, broadcast and promoted; one of the two is a tensor.
    """
    x, y = promoted(input, other, "xlogy")
    x, y = floating(x, "xlogy"), floating(y, "xlogy")
    nothing = (x == 0) & ((y <= 0) | (y == math.inf))
    return choose(nothing, 0.0, x * log(choose(nothing, 1.0, y)))


@maps("[0.0, 0.5, 0.9]", "eps=0.1", "[-2.1972,  0.0000,  2.1972]")
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """Return `log(input / (1 - input))`, the inverse of `sigmoid`.

    Without `eps` it is -inf at 0, inf at 1, and NaN beyond.

    Args:
        input: a tensor; integers and bools give the default float dtype.
        eps: the input is clamped to [eps, 1 - eps] first. Default: None, it isn't.
    """
    x = floating(input, "logit")
    if eps is not None:
        x = x.clamp(eps, 1 - eps)
    return log(x / (1 - x))


@program
@maps("[-1.0, 0.0, 2.0]", "lucid.tensor(0.5)", "[0.0000, 0.5000, 1.0000]")
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """Return the unit step: 0 below 0, 1 above it, and `values` at 0.

    A NaN stays NaN. The derivative by `input` is 0.

    Args:
        input: a tensor.
        values: what is taken at 0, broadcast and promoted.
    """
    x, at_zero = promoted(input, values, "heaviside")
    step = choose(x > 0, constant(1, x._type.dtype), constant(0, x._type.dtype))
    return choose(x == 0, at_zero, choose(x != x, x, step))


@program
@maps("[-1.0, -0.0, 0.0]", "[ True,  True, False]")
def signbit(input: Tensor) -> Tensor:
    """Return whether the sign is negative, that of -0.0 too; a NaN's is not looked at.

    Args:
        input: a tensor of numbers.
    """
    if not input.dtype.is_floating_point:
        return input < 0
    return (input < 0) | ((input == 0) & (1 / input < 0))


@program
@maps("[1.0, -2.0]", "[-0.0, 3.0]", "[-1.,  2.]")
def copysign(input: Tensor, other: Any) -> Tensor:
    """Return the absolute value of `input` with the sign of `other`, that of -0.0 too; a float.

    Args:
        input: a tensor or a number.
        other: whose signs are taken, a tensor or a number, broadcast.
    """
    x, y = promoted(input, other, "copysign")
    x, y = floating(x, "copysign"), floating(y, "copysign")
    size = absolute(x)
    return choose(signbit(y), -size, size)


@fused
@maps("[2, 4]", "-1", "[0.5000, 0.2500], dtype=lucid.float64")
def float_power(input: Tensor | Number, exponent: Tensor | Number) -> Tensor:
    """Return `input ** exponent`, computed in float64, whatever the dtypes are.

    Args:
        input: a tensor or a number.
        exponent: a tensor or a number, broadcast.
    """
    base, power = (v.double() if isinstance(v, Tensor) else float(v) for v in (input, exponent))
    return base**power


@program
@maps('[1.0, float("nan")]', "[3.0, 2.0]", "[3., 2.]")
def fmax(input: Tensor, other: Tensor) -> Tensor:
    """Return the greater of two elements, broadcast; where one is a NaN, the other.

    Of equal ones it is the first, which gets the gradient.

    Args:
        other: a tensor or a number.
    """
    x, y = promoted(input, other, "fmax")
    return choose((x >= y) | (y != y), x, y)


@like(fmax)
@program
@maps('[1.0, float("nan")]', "[3.0, 2.0]", "[1., 2.]")
def fmin(input: Tensor, other: Tensor) -> Tensor:
    """Return the smaller of two elements, broadcast; where one is a NaN, the other."""
    x, y = promoted(input, other, "fmin")
    return choose((x <= y) | (y != y), x, y)


@maps("[12, 7]", "[18, 0]", "[6, 7]")
def gcd(input: Tensor, other: Tensor) -> Tensor:
    """Return the greatest common divisor of two integers, broadcast, by Euclid's algorithm.

    It isn't negative; of 0 and 0 it is 0.

    Args:
        input: a tensor of integers.
        other: a tensor of integers or an int.

    Raises:
        DTypeError: floats or bools.
    """
    x, y = promoted(input, other, "gcd")
    if x._type.dtype.kind != "int":
        raise DTypeError(f"gcd: defined for integers, not {x.dtype!r}")
    return emit(ops.gcd, (x, y))


@like(gcd)
@fused
@maps("[4, 7]", "[6, 0]", "[12,  0]")
def lcm(input: Tensor, other: Tensor) -> Tensor:
    """Return the least common multiple of two integers, broadcast; 0 where one is 0."""
    x, y = promoted(input, other, "lcm")
    divisor = gcd(x, y)
    return (x // choose(divisor == 0, 1, divisor) * y).abs()


@fused
@maps("[1.0, 3.0]", "[4, -1]", "[16.0000,  1.5000]")
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """Return `input * 2 ** other`, broadcast, as a float: the inverse of taking it apart.

    Args:
        input: a tensor; integers and bools give the default float dtype.
        other: the exponents, a tensor.

    Raises:
        ArgumentError: a number in place of a tensor.
    """
    return floating(input, "ldexp") * 2.0 ** floating(other, "ldexp")


def frexp(input: Tensor) -> return_types.frexp:
    """Return `mantissa` and `exponent` with `input == mantissa * 2 ** exponent`.

    The mantissa is from 0.5 up to 1, with the sign of `input`; 0, infinities and NaN are their own,
    with an exponent of 0. NumPy takes the numbers apart, in a compiled step by a call of Python.
    The mantissa's gradient is that of dividing by `2 ** exponent`.

    Raises:
        DTypeError: integers or bools.

    >>> lucid.frexp(lucid.tensor([6.0, -0.5]))
    lucid.return_types.frexp(
    mantissa=tensor([ 0.7500, -0.5000]),
    exponent=tensor([3, 0], dtype=lucid.int32))
    """
    x = tensor_of(input, "frexp")
    if not x._type.dtype.is_floating_point:
        raise DTypeError(f"frexp: only supports floating-point dtypes, not {x.dtype!r}")
    return return_types.frexp(*_frexp(x))


def _of_frexp(g: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> Tensor:
    exponent = y[1]
    half = exponent // 2  # 2 ** -exponent may be out of range where the product isn't
    return ldexp(ldexp(g[0], -half), half - exponent)


@by_numpy("frexp", _of_frexp, fixed=(1,))
def _frexp(x: np.ndarray) -> tuple[np.ndarray, ...]:
    return np.frexp(x)


def nextafter(input: Tensor, other: Tensor) -> Tensor:
    """Return the next float after `input` in the direction of `other`, broadcast.

    Equal ones give `other`. NumPy finds it, in a compiled step by a call of Python.

    Args:
        other: where to go, a tensor.

    Raises:
        DTypeError: integers or bools.
        MissingRuleError: a gradient is asked for: there is none.

    >>> lucid.nextafter(lucid.tensor([1.0]), lucid.tensor([2.0])) - 1
    tensor([1.1921e-07])
    """
    x, y = promoted(input, other, "nextafter")
    if not x._type.dtype.is_floating_point:
        raise DTypeError(f"nextafter: only supports floating-point dtypes, not {x.dtype!r}")
    shape = common_shape("nextafter", input=x, other=y)
    return _nextafter(broadcast(x, shape), broadcast(y, shape))


def _of_nextafter(g: Tensor) -> Tensor:
    raise MissingRuleError("nextafter has no derivative")


@by_numpy("nextafter", _of_nextafter)
def _nextafter(x: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.asarray(np.nextafter(x, other))


@maps('[1.0, float("inf"), -float("inf")]', "[False,  True, False]")
def isposinf(input: Tensor) -> Tensor:
    """Return whether each element is positive infinity, which no integer is."""
    return _equals(input, math.inf, "isposinf")


@maps('[1.0, float("inf"), -float("inf")]', "[False, False,  True]")
def isneginf(input: Tensor) -> Tensor:
    """Return whether each element is negative infinity, which no integer is."""
    return _equals(input, -math.inf, "isneginf")


def _equals(input: Tensor, value: Number, op: str) -> Tensor:
    return floating(input, op) == value


@maps("[1.0, 2.0]", "[True, True]")
def isreal(input: Tensor) -> Tensor:
    """Return whether each element is real: always, as lucid has no complex numbers."""
    x = tensor_of(input, "isreal")
    return emit(ops.broadcast, (constant(True, bool_),), shape=x._type.shape)


@fused
@maps("[2.0, -2.0]", "[0.0000, 3.1416]")
def angle(input: Tensor) -> Tensor:
    """Return the angle on the complex plane: 0, or pi of negative numbers; NaN of NaN.

    Args:
        input: a tensor; integers and bools give the default float dtype.
    """
    x = floating(input, "angle")
    return choose(x != x, x, choose(x < 0, constant(math.pi, x._type.dtype), 0.0))


@like(xlogy)
@fused
def xlog1py(input: Any, other: Any) -> Tensor:
    """Return `input * log1p(other)`, a float, and 0 where `input` is 0 unless `other` is NaN.

    >>> lucid.special.xlog1py(lucid.tensor([0.0, 2.0]), lucid.tensor([-1.0, 3.0]))
    tensor([0.0000, 2.7726])
    """
    x, y = promoted(input, other, "xlog1py")
    nothing = (x == 0) & (y == y)
    return choose(nothing, 0.0, x * choose(nothing, 0.0, y).log1p())
