"""Exponentials and logarithms, circular and hyperbolic functions and their inverses.

What is no op has the textbook derivative: its gradient doesn't run through the approximation.

Args:
    input: a tensor; integers and bools give the default float dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucid.autograd.native import program
from lucid.docstrings import maps
from lucid.functions.elementwise import (
    abs as absolute,
    choose,
    maximum,
    minimum,
    reciprocal,
    rsqrt,
    sqrt,
    square,
)
from lucid.functions.gradients import curve, with_gradient
from lucid.functions.promotion import floating, promoted
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.tensor.core import constant, emit

__all__ = [
    "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "deg2rad", "erf", "exp", "exp2",
    "expm1", "hypot", "log", "log10", "log1p", "log2", "rad2deg", "sigmoid", "sin", "sinc",
    "sinh", "tan", "tanh",
]  # fmt: skip

_HALF_PI = math.pi / 2
_QUARTER_PI = math.pi / 4
_LOG_2 = math.log(2.0)
_ROOT_FROM = 40.0  # exp(-x) no longer counts, exp(x) is still far from overflow

# Minimax quotient for (atan(x) - x) / x^3 in x^2 on |x| <= 0.66.
# Reference: Moshier, "Methods and Programs for Mathematical Functions" (Cephes atan), 1989.
_ATAN_OVER = (
    -8.750608600031904122785e-1,
    -1.615753718733365076637e1,
    -7.500855792314704667340e1,
    -1.228866684490136173410e2,
    -6.485021904942025371773e1,
)
_ATAN_UNDER = (
    1.0,
    2.485846490142306297962e1,
    1.650270098316988542046e2,
    4.328810604912902668951e2,
    4.853903996359136964868e2,
    1.945506571482613964425e2,
)


@maps("[0.0, 1.0]", "[1.0000, 2.7183]")
def exp(input: Tensor) -> Tensor:
    """Return e to the power of `input`, a float; inf where that is above the dtype's range."""
    return emit(ops.exp, (floating(input, "exp"),))


@maps("[0, 3, -1]", "[1.0000, 8.0000, 0.5000]")
def exp2(input: Tensor) -> Tensor:
    """Return 2 to the power of `input`, a float; exact for whole exponents in range."""
    x = floating(input, "exp2")
    return emit(ops.pow, (constant(2.0, x._type.dtype), x))


@maps("[1e-8, 1.0], dtype=lucid.float64", "[1.0000e-08, 1.7183e+00], dtype=lucid.float64")
def expm1(input: Tensor) -> Tensor:
    """Return `exp(input) - 1`, accurate near zero, where the difference would cancel."""
    return emit(ops.expm1, (floating(input, "expm1"),))


@maps("[1.0, 2.718281828, 0.0]", "[0., 1., -inf]")
def log(input: Tensor) -> Tensor:
    """Return the natural logarithm, a float; -inf of 0, NaN of negative numbers."""
    return emit(ops.log, (floating(input, "log"),))


@maps("[1, 2, 8]", "[0., 1., 3.]")
def log2(input: Tensor) -> Tensor:
    """Return the logarithm to base 2, a float; -inf of 0, NaN of negative numbers."""
    return log(input) / math.log(2)


@maps("[1, 10, 1000]", "[0., 1., 3.]")
def log10(input: Tensor) -> Tensor:
    """Return the logarithm to base 10, a float; -inf of 0, NaN of negative numbers."""
    return log(input) / math.log(10)


@maps("[0.0, 1.0, -1.0]", "[0.0000, 0.6931,   -inf]")
def log1p(input: Tensor) -> Tensor:
    """Return `log(1 + input)`, accurate near zero; -inf of -1, NaN below."""
    return emit(ops.log1p, (floating(input, "log1p"),))


@maps("[0.0, 1.0]", "[0.0000, 0.8415]")
def sin(input: Tensor) -> Tensor:
    """Return the sine of angles in radians, a float; NaN of infinities."""
    return emit(ops.sin, (floating(input, "sin"),))


@maps("[0.0, 1.0]", "[1.0000, 0.5403]")
def cos(input: Tensor) -> Tensor:
    """Return the cosine of angles in radians, a float; NaN of infinities."""
    return emit(ops.cos, (floating(input, "cos"),))


@maps("[0.0, 1.0, -20.0]", "[ 0.0000,  0.7616, -1.0000]")
def tanh(input: Tensor) -> Tensor:
    """Return the hyperbolic tangent, a float in [-1, 1].

    Derivative: 1 - tanh(x)**2.
    """
    return emit(ops.tanh, (floating(input, "tanh"),))


@maps("[0.0, 2.0, -100.0]", "[5.0000e-01, 8.8080e-01, 3.7835e-44]")
def sigmoid(input: Tensor) -> Tensor:
    """Return `1 / (1 + exp(-input))`, a float in [0, 1].

    Nothing overflows for large negative numbers.
    """
    return emit(ops.sigmoid, (floating(input, "sigmoid"),))


@program
def erf(input: Tensor) -> Tensor:
    """Return the error function 2 / sqrt(pi) * integral of exp(-t**2) from 0 to `input`, a float.

    >>> lucid.erf(lucid.tensor([0.0, 0.5, 3.0]))
    tensor([0.0000, 0.5205, 1.0000])
    """
    return emit(ops.erf, (floating(input, "erf"),))


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Horner's rule, the highest power first."""
    result: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    whole: Tensor = result
    return whole


def _odd(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """An odd function from its right half; a zero keeps its sign."""
    half = function(absolute(x))
    return choose(x == 0, x, choose(x < 0, -half, half))


def _right_atan(a: Tensor) -> Tensor:
    """atan of numbers that aren't negative, in three ranges."""
    far, middle = a > 1 + math.sqrt(2), a > 0.66
    reduced = choose(far, -1.0 / choose(far, a, 1.0), choose(middle, (a - 1) / (a + 1), a))
    z = reduced * reduced
    curve = z * (polynomial(z, _ATAN_OVER) / polynomial(z, _ATAN_UNDER))
    quarter, half = (constant(angle, a._type.dtype) for angle in (_QUARTER_PI, _HALF_PI))
    offset = choose(far, half, choose(middle, quarter, 0.0))
    return offset + (reduced * curve + reduced)


def _right_sinh(a: Tensor) -> Tensor:
    large = a > _ROOT_FROM
    near = expm1(choose(large, 1.0, a))
    root = exp(a * 0.5)  # squared last: the result may be as large as there are numbers
    return choose(large, 0.5 * root * root, 0.5 * (near + near / (near + 1)))


def _right_asinh(a: Tensor) -> Tensor:
    large = a > 1e8
    inner = choose(large, 1.0, a)
    square = inner * inner
    return choose(large, log(a) + _LOG_2, log1p(inner + square / (1 + sqrt(square + 1))))


def _cathetus(x: Tensor) -> Tensor:
    """sqrt(1 - x^2), accurate near 1; NaN beyond."""
    return sqrt((1 - x) * (1 + x))


@curve(lambda g, x: g * reciprocal(square(cos(x))))
@maps("[0.0, 1.0]", "[0.0000, 1.5574]")
def tan(input: Tensor) -> Tensor:
    """Return the tangent of angles in radians, a float; NaN of infinities."""
    return sin(input) / cos(input)


@curve(lambda g, x: g * reciprocal(_cathetus(x)))
@maps("[0.0, 1.0, 2.0]", "[0.0000, 1.5708,    nan]")
def asin(input: Tensor) -> Tensor:
    """Return the angle in [-pi/2, pi/2] with this sine; NaN beyond [-1, 1]."""
    return 2 * _odd(_right_atan, input / (1 + _cathetus(input)))


arcsin = asin


@curve(lambda g, x: -g * reciprocal(_cathetus(x)))
@maps("[1.0, -1.0]", "[0.0000, 3.1416]")
def acos(input: Tensor) -> Tensor:
    """Return the angle in [0, pi] with this cosine; NaN beyond [-1, 1]."""
    return 2 * _right_atan(sqrt((1 - input) / (1 + input)))


arccos = acos


@curve(lambda g, x: g * reciprocal(x * x + 1))
@maps("[0.0, 1.0]", "[0.0000, 0.7854]")
def atan(input: Tensor) -> Tensor:
    """Return the angle in [-pi/2, pi/2] with this tangent; the bounds for infinities."""
    return _odd(_right_atan, input)


arctan = atan


def _atan2_vjp(g: Tensor, rise: Tensor, run: Tensor) -> tuple[Tensor, Tensor]:
    squared = run * run + rise * rise
    scaled = choose(squared == 0, 0.0, g / choose(squared == 0, 1.0, squared))
    return scaled * run, -scaled * rise


@with_gradient(_atan2_vjp)
def _atan2(rise: Tensor, run: Tensor) -> Tensor:
    """The angle of the point (run, rise) as C has it: signed zeros and infinities included."""
    up, across = absolute(rise), absolute(run)
    infinite = (up == math.inf) & (across == math.inf)
    quotient = up / choose(across == 0, 1.0, across)
    quotient = choose(across == 0, choose(up == 0, 0.0, math.inf), quotient)
    quotient = choose(infinite, 1.0, quotient)
    angle = _right_atan(choose((up != up) | (across != across), math.nan, quotient))
    angle = choose(_is_negative(run), math.pi - angle, angle)
    return choose(_is_negative(rise), -angle, angle)


def _is_negative(x: Tensor) -> Tensor:
    """Whether the sign bit is set, that of -0.0 too."""
    return (x < 0) | ((x == 0) & (1 / x < 0))


@maps("[0.0, 1.0]", "[-1.0, 0.0]", "[3.1416, 1.5708]")
def atan2(input: Tensor, other: Tensor) -> Tensor:
    """Return the angle of the points (other, input), in [-pi, pi]: 0 along positive `other`.

    The result has their common dtype.

    Args:
        input: the points' second coordinate.
        other: their first one.
    """
    y, x = promoted(input, other, "atan2")
    return _atan2(floating(y, "atan2"), floating(x, "atan2"))


arctan2 = atan2


@with_gradient(lambda g, a, b, y: (g * (a / y), g * (b / y)))
def _hypot(a: Tensor, b: Tensor) -> Tensor:
    """sqrt(a^2 + b^2), where the squares may overflow."""
    longer, shorter = maximum(absolute(a), absolute(b)), minimum(absolute(a), absolute(b))
    simple = (longer == 0) | (longer == math.inf)
    ratio = shorter / choose(simple, 1.0, longer)
    length = choose(simple, longer, longer * sqrt(1 + ratio * ratio))
    return choose((absolute(a) == math.inf) | (absolute(b) == math.inf), math.inf, length)


@maps("[3.0]", "[4.0]", "[5.]")
def hypot(input: Tensor, other: Tensor) -> Tensor:
    """Return the length of the hypotenuse over legs of these lengths.

    Sqrt(a**2 + b**2), without overflow.

    Args:
        input: one leg.
        other: the other one.
    """
    x, y = promoted(input, other, "hypot")
    return _hypot(floating(x, "hypot"), floating(y, "hypot"))


@program
@maps("[0.0, 0.5]", "[1.0000, 0.6366]")
def sinc(input: Tensor) -> Tensor:
    """Return `sin(pi x) / (pi x)`, the normalized cardinal sine, and 1 at 0."""
    x = floating(input, "sinc") * math.pi
    zero = x == 0
    return choose(zero, 1.0, sin(x) / choose(zero, 1.0, x))


@maps("[0.0, 180.0]", "[0.0000, 3.1416]")
def deg2rad(input: Tensor) -> Tensor:
    """Return angles in degrees as radians: times pi / 180.

    Args:
        input: angles; integers give the default float dtype.
    """
    return floating(input, "deg2rad") * (math.pi / 180)


@maps("[0.0, 1.0]", "[ 0.0000, 57.2958]")
def rad2deg(input: Tensor) -> Tensor:
    """Return angles in radians as degrees: times 180 / pi.

    Args:
        input: angles; integers give the default float dtype.
    """
    return floating(input, "rad2deg") * (180 / math.pi)


@curve(lambda g, x: g * cosh(x))
@maps("[0.0, 1.0]", "[0.0000, 1.1752]")
def sinh(input: Tensor) -> Tensor:
    """Return the hyperbolic sine, a float: (exp(x) - exp(-x)) / 2.

    It overflows to an infinity of the element's sign.
    """
    return _odd(_right_sinh, input)


@curve(lambda g, x: g * sinh(x))
@maps("[0.0, 1.0]", "[1.0000, 1.5431]")
def cosh(input: Tensor) -> Tensor:
    """Return the hyperbolic cosine, a float: (exp(x) + exp(-x)) / 2.

    It overflows to inf on both sides.
    """
    size = absolute(input)
    large = size > _ROOT_FROM
    near = exp(choose(large, 1.0, size))
    root = exp(size * 0.5)
    return choose(large, 0.5 * root * root, 0.5 * near + 0.5 / near)


@curve(lambda g, x: g * rsqrt(x * x + 1))
@maps("[0.0, 1.0]", "[0.0000, 0.8814]")
def asinh(input: Tensor) -> Tensor:
    """Return the inverse hyperbolic sine, a float: log(x + sqrt(x**2 + 1))."""
    return _odd(_right_asinh, input)


arcsinh = asinh


@curve(lambda g, x: g * rsqrt((x - 1) * (x + 1)))
@maps("[1.0, 2.0]", "[0.0000, 1.3170]")
def acosh(input: Tensor) -> Tensor:
    """Return the inverse hyperbolic cosine, a float; NaN below 1."""
    large = input > 1e8
    above = choose(large, 1.0, choose(input < 1, math.nan, input - 1))
    return choose(large, log(input) + _LOG_2, log1p(above + sqrt(above * (above + 2))))


arccosh = acosh


@curve(lambda g, x: g * reciprocal((1 - x) * (1 + x)))
@maps("[0.0, 0.5]", "[0.0000, 0.5493]")
def atanh(input: Tensor) -> Tensor:
    """Return the inverse hyperbolic tangent, a float; infinite at -1 and 1, NaN beyond."""
    return _odd(lambda a: 0.5 * log1p(2 * a / (1 - a)), input)


arctanh = atanh
