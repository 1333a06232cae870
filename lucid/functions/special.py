"""Functions of one or two elements for which no op is needed: logarithms of sums, signs, steps."""

from __future__ import annotations

import math
from typing import Any

from lucid.functions.elementwise import abs as absolute
from lucid.functions.elementwise import choose, div, exp, log, log1p, maximum, sigmoid
from lucid.functions.promotion import Number, floating, promoted
from lucid.functions.tensors import Tensor
from lucid.tensor.core import constant

_LOG_2 = math.log(2.0)


def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """Return `log(exp(input) + exp(other))`, without overflow."""
    x, y = promoted(input, other, "logaddexp")
    x, y = floating(x, "logaddexp"), floating(y, "logaddexp")
    equal = x == y  # also two infinities of one sign
    distance = choose(equal, 0.0, x - y)
    return choose(equal, x + _LOG_2, maximum(x, y) + log1p(exp(-absolute(distance))))


def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """Return `log2(2**input + 2**other)`, without overflow."""
    x, y = promoted(input, other, "logaddexp2")
    return (
        logaddexp(floating(x, "logaddexp2") * _LOG_2, floating(y, "logaddexp2") * _LOG_2) / _LOG_2
    )


def xlogy(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """Return `input * log(other)`, and 0 where `input` is 0 unless `other` is NaN."""
    x, y = promoted(input, other, "xlogy")
    x, y = floating(x, "xlogy"), floating(y, "xlogy")
    nothing = (x == 0) & ((y <= 0) | (y == math.inf))
    return choose(nothing, 0.0, x * log(choose(nothing, 1.0, y)))


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """Return `log(input / (1 - input))`; with `eps`, of input clamped to [eps, 1 - eps]."""
    x = floating(input, "logit")
    if eps is not None:
        x = x.clamp(eps, 1 - eps)
    return log(x / (1 - x))


def expit(input: Tensor) -> Tensor:
    """Return the logistic function, `sigmoid(input)`."""
    return sigmoid(input)


def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """Return 0 below 0, 1 above, and `values` at 0."""
    x, at_zero = promoted(input, values, "heaviside")
    step = choose(x > 0, constant(1, x._type.dtype), constant(0, x._type.dtype))
    return choose(x == 0, at_zero, choose(x != x, x, step))


def signbit(input: Tensor) -> Tensor:
    """Return whether the sign is negative, that of -0.0 too; a NaN's is not looked at."""
    if not input.dtype.is_floating_point:
        below: Tensor = input < 0
        return below
    negative: Tensor = (input < 0) | ((input == 0) & (1 / input < 0))
    return negative


def copysign(input: Tensor, other: Any) -> Tensor:
    """Return the absolute value of `input` with the sign of `other`."""
    x, y = promoted(input, other, "copysign")
    x, y = floating(x, "copysign"), floating(y, "copysign")
    size = absolute(x)
    return choose(signbit(y), -size, size)


def float_power(input: Tensor | Number, exponent: Tensor | Number) -> Tensor:
    """Return `input ** exponent`, computed in float64."""
    base, power = (v.double() if isinstance(v, Tensor) else float(v) for v in (input, exponent))
    result: Tensor = base**power
    return result


def softsign(input: Tensor) -> Tensor:
    """Return `input / (1 + |input|)`."""
    return div(input, 1 + absolute(input))
