"""Functions of one or two elements for which no op is needed: logarithms of sums, signs, steps."""

from __future__ import annotations

import math
from typing import Any

from lucid.functions.elementwise import abs as absolute
from lucid.functions.elementwise import choose, div, exp, log, log1p, maximum, sigmoid
from lucid.functions.promotion import Number, floating, promoted
from lucid.functions.tensors import Tensor
from lucid.tensor.core import constant

__all__ = [
    "copysign", "float_power", "heaviside", "logaddexp", "logaddexp2", "logit", "signbit", "xlogy",
]  # fmt: skip

_LOG_2 = math.log(2.0)


def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """Return `log(exp(input) + exp(other))`, a float, without overflow.

    Two infinities of one sign give that infinity.

    Args:
        input: a tensor.
        other: a tensor, broadcast and promoted.

    Example:
        >>> import lucid
        >>> lucid.logaddexp(lucid.tensor([0.0, 1000.0]), lucid.tensor([0.0, 1000.0]))
        tensor([6.9315e-01, 1.0007e+03])
    """
    x, y = promoted(input, other, "logaddexp")
    x, y = floating(x, "logaddexp"), floating(y, "logaddexp")
    equal = x == y  # also two infinities of one sign
    distance = choose(equal, 0.0, x - y)
    return choose(equal, x + _LOG_2, maximum(x, y) + log1p(exp(-absolute(distance))))


def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """Return `log2(2**input + 2**other)`, a float, without overflow.

    Adds numbers that are kept as logarithms to base 2.

    Args:
        input: a tensor.
        other: a tensor, broadcast and promoted.

    Example:
        >>> import lucid
        >>> lucid.logaddexp2(lucid.tensor([3.0, 1000.0]), lucid.tensor([3.0, 1000.0]))
        tensor([   4., 1001.])
    """
    x, y = promoted(input, other, "logaddexp2")
    return (
        logaddexp(floating(x, "logaddexp2") * _LOG_2, floating(y, "logaddexp2") * _LOG_2) / _LOG_2
    )


def xlogy(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """Return `input * log(other)`, a float, and 0 where `input` is 0 unless `other` is NaN.

    Args:
        input: a tensor or a number.
        other: likewise, broadcast and promoted; one of the two is a tensor.

    Example:
        >>> import lucid
        >>> lucid.xlogy(lucid.tensor([0.0, 2.0]), lucid.tensor([0.0, 3.0]))
        tensor([0.0000, 2.1972])
    """
    x, y = promoted(input, other, "xlogy")
    x, y = floating(x, "xlogy"), floating(y, "xlogy")
    nothing = (x == 0) & ((y <= 0) | (y == math.inf))
    return choose(nothing, 0.0, x * log(choose(nothing, 1.0, y)))


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """Return `log(input / (1 - input))`, the inverse of `sigmoid`.

    Without `eps` it is -inf at 0, inf at 1, and NaN beyond.

    Args:
        input: a tensor; integers and bools give the default float dtype.
        eps: the input is clamped to [eps, 1 - eps] first. Default: None, it isn't.

    Example:
        >>> import lucid
        >>> lucid.logit(lucid.tensor([0.0, 0.5, 0.9]), eps=0.1)
        tensor([-2.1972,  0.0000,  2.1972])
    """
    x = floating(input, "logit")
    if eps is not None:
        x = x.clamp(eps, 1 - eps)
    return log(x / (1 - x))


def expit(input: Tensor) -> Tensor:
    """Return the logistic function, `sigmoid(input)`."""
    return sigmoid(input)


def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """Return the unit step: 0 below 0, 1 above it, and `values` at 0.

    A NaN stays NaN. The derivative by `input` is 0.

    Args:
        input: a tensor.
        values: what is taken at 0, broadcast and promoted.

    Example:
        >>> import lucid
        >>> lucid.heaviside(lucid.tensor([-1.0, 0.0, 2.0]), lucid.tensor(0.5))
        tensor([0.0000, 0.5000, 1.0000])
    """
    x, at_zero = promoted(input, values, "heaviside")
    step = choose(x > 0, constant(1, x._type.dtype), constant(0, x._type.dtype))
    return choose(x == 0, at_zero, choose(x != x, x, step))


def signbit(input: Tensor) -> Tensor:
    """Return whether the sign is negative, that of -0.0 too; a NaN's is not looked at.

    Args:
        input: a tensor of numbers.

    Example:
        >>> import lucid
        >>> lucid.signbit(lucid.tensor([-1.0, -0.0, 0.0]))
        tensor([ True,  True, False])
    """
    if not input.dtype.is_floating_point:
        below: Tensor = input < 0
        return below
    negative: Tensor = (input < 0) | ((input == 0) & (1 / input < 0))
    return negative


def copysign(input: Tensor, other: Any) -> Tensor:
    """Return the absolute value of `input` with the sign of `other`, that of -0.0 too; a float.

    Args:
        input: a tensor or a number.
        other: whose signs are taken, a tensor or a number, broadcast.

    Example:
        >>> import lucid
        >>> lucid.copysign(lucid.tensor([1.0, -2.0]), lucid.tensor([-0.0, 3.0]))
        tensor([-1.,  2.])
    """
    x, y = promoted(input, other, "copysign")
    x, y = floating(x, "copysign"), floating(y, "copysign")
    size = absolute(x)
    return choose(signbit(y), -size, size)


def float_power(input: Tensor | Number, exponent: Tensor | Number) -> Tensor:
    """Return `input ** exponent`, computed in float64, whatever the dtypes are.

    Args:
        input: a tensor or a number.
        exponent: a tensor or a number, broadcast.

    Example:
        >>> import lucid
        >>> lucid.float_power(lucid.tensor([2, 4]), -1)
        tensor([0.5000, 0.2500], dtype=lucid.float64)
    """
    base, power = (v.double() if isinstance(v, Tensor) else float(v) for v in (input, exponent))
    result: Tensor = base**power
    return result


def softsign(input: Tensor) -> Tensor:
    """Return `input / (1 + |input|)`."""
    return div(input, 1 + absolute(input))
