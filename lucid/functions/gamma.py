"""The gamma function's logarithm, derivatives and incomplete integrals, erfinv, and zeta.

Args:
    input: a tensor; integers and bools give the default float dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lucid.docstrings import like, maps
from lucid.functions.arguments import common_shape, integer
from lucid.functions.bessel import erfc
from lucid.functions.conversion import cast
from lucid.functions.elementwise import abs as absolute, choose, round, sqrt
from lucid.functions.gradients import curve, with_gradient
from lucid.functions.lapack import lapack
from lucid.functions.promotion import Number, floating, promoted
from lucid.functions.tensors import Tensor
from lucid.functions.transcendental import exp, log, log1p, polynomial, sin, tan
from lucid.ir import ops
from lucid.ir.errors import NotDifferentiableError, OptionError
from lucid.ir.philox import CENTRAL, FAR_TAIL, TAIL
from lucid.ir.types import f64
from lucid.tensor.core import constant, emit

__all__ = ["digamma", "erfinv", "igamma", "igammac", "lgamma", "mvlgamma", "polygamma"]

_SHIFT = 8  # Stirling's and Euler's series are used from here on
_PLAIN_ORDERS = 30  # of polygamma: 30! is in the range of f32
_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def _series(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The sum of c[k] / x^(2k)."""
    return polynomial(1 / (x * x), coefficients[::-1])


def _right_lgamma(x: Tensor) -> Tensor:
    """log(gamma(x)) of positive x: Stirling's series, from smaller x by the recurrence."""
    small = x < _SHIFT
    product = choose(small, x, 1.0)
    for k in range(1, _SHIFT):
        product = product * choose(small, x + k, 1.0)
    far = choose(small, x + _SHIFT, x)
    value = (far - 0.5) * log(far) - far + _HALF_LOG_TAU + _series(far, _STIRLING) / far
    return choose(far == math.inf, math.inf, value) - log(product)


def _to_integer(x: Tensor) -> Tensor:
    """The way from the nearest integer to x, exactly: it has the sines and tangents of pi x."""
    return x - round(x)


@with_gradient(lambda g, x: g * polygamma(1, x))
def _digamma(x: Tensor) -> Tensor:
    """The derivative of log(gamma(x)), by the reflection formula below 0."""
    dtype, x = x._type.dtype, cast(x, f64)
    left = x < 0
    right = choose(left, 1 - x, x)
    small, total = right < _SHIFT, constant(0.0, x._type.dtype)
    for k in range(_SHIFT):
        total = total + choose(small, 1 / (right + k), 0.0)
    far = choose(small, right + _SHIFT, right)
    halves = tuple(b / (2 * k + 2) for k, b in enumerate(_BERNOULLI))
    value = log(far) - 0.5 / far - _series(far, halves) / (far * far) - total
    way = _to_integer(x)
    reflected = value - math.pi / tan(math.pi * way)
    return cast(choose(left, choose(way == 0, math.nan, reflected), value), dtype)


def _reflected(value: Tensor, x: Tensor, n: int) -> Tensor:
    """The n-th derivative of digamma at a negative x, by its value at 1 - x.

    What they differ by is the n-th derivative of pi cot(pi x), a polynomial of the cotangent, as
    the derivative of that is -(1 + cot^2).
    """
    coefficients = [0.0, 1.0]
    for _ in range(n):
        slopes = [k * c for k, c in enumerate(coefficients)][1:]
        coefficients = [-(a + b) for a, b in zip([*slopes, 0, 0], [0, 0, *slopes], strict=True)]
    wide = cast(x, f64)  # the coefficients are large
    derivative = polynomial(1 / tan(math.pi * _to_integer(wide)), coefficients[::-1])
    return (-1.0) ** n * value - cast(derivative * math.pi ** (n + 1), x._type.dtype)


@with_gradient(lambda g, x, n: g * polygamma(n + 1, x))
def _polygamma(x: Tensor, n: int) -> Tensor:
    """The n-th derivative of digamma, for positive x (-1)^(n+1) n! zeta(n+1, x)."""
    if n > _PLAIN_ORDERS:
        return _polygamma_of_large_order(x, n)
    left, given = x < 0, x
    x = choose(left, 1 - x, x)
    s = n + 1
    total = x ** float(-s)
    for k in range(1, _SHIFT):
        total = total + (x + k) ** float(-s)
    far = x + _SHIFT
    total = total + far ** float(1 - s) / n + 0.5 * far ** float(-s)
    factor, power = float(s), far ** float(-s - 1)
    for k, bernoulli in enumerate(_BERNOULLI):
        total = total + bernoulli / math.factorial(2 * k + 2) * factor * power
        factor *= (s + 2 * k + 1) * (s + 2 * k + 2)
        power = power / (far * far)
    value = (-1.0) ** (n + 1) * math.factorial(n) * total
    return choose(left, _reflected(value, given, n), value)


def _polygamma_of_large_order(x: Tensor, n: int) -> Tensor:
    """As `_polygamma`, where n! and the powers of x leave the range of floats: by their logarithms.

    Euler and Maclaurin's sum is that of (x / (x + k))^s, which is 1 for k = 0. Where the last of
    the powers is 0, so is what comes after it.
    """
    dtype, x = x._type.dtype, cast(x, f64)
    s = float(n + 1)
    total = constant(1.0, f64)
    for k in range(1, _SHIFT):
        total = total + exp(-s * log1p(k / x))
    far = x + _SHIFT
    ratio, rest = s / far, far / float(n) + 0.5
    for k, bernoulli in enumerate(_BERNOULLI):
        rest = rest + bernoulli / math.factorial(2 * k + 2) * ratio
        ratio = ratio * ((s + 2 * k + 1) / far) * ((s + 2 * k + 2) / far)
    last = exp(-s * log1p(_SHIFT / x))
    total = choose(last > 0, total + last * rest, total)
    size = exp(math.lgamma(s) - s * log(x) + log(total))
    value = choose(x == math.inf, 0.0, size)
    return cast(value if n % 2 else -value, dtype)


@maps("[1.0, 10.0, -1.0]", "[-0.5772,  2.2518,     nan]")
def digamma(input: Tensor) -> Tensor:
    """Return the derivative of `lgamma`, the logarithmic derivative of the gamma function.

    At 0 it is an infinity of the other sign than the zero's, at negative integers NaN.
    """
    x = floating(input, "digamma")
    return choose(x == 0, choose(1 / x < 0, math.inf, -math.inf), _digamma(x))


@curve(lambda g, x: g * digamma(x))
@maps("[1.0, 5.0, 0.5, 0.0]", "[1.7764e-15, 3.1781e+00, 5.7236e-01,        inf]")
def lgamma(input: Tensor) -> Tensor:
    """Return the logarithm of the absolute value of the gamma function.

    It is infinite at 0 and the negative integers, where the gamma function has its poles.
    """
    x = cast(input, f64)  # large terms cancel
    left = x < 0  # where the reflection formula holds
    right = _right_lgamma(choose(left, 1 - x, x))
    way = choose(left, _to_integer(x), 0.5)
    reflected = math.log(math.pi) - log(absolute(sin(way * math.pi))) - right
    value = choose((way == 0) | (absolute(x) == math.inf), math.inf, choose(left, reflected, right))
    return cast(value, input._type.dtype)


def polygamma(n: int, input: Tensor) -> Tensor:
    """Return the n-th derivative of `digamma`; for n > 30 of positive numbers, and else NaN.

    It is (-1)^(n + 1) n! zeta(n + 1, input). Gradients are those of order n + 1.

    Args:
        n: an int, at least 0; 0 is `digamma` itself.

    Raises:
        OptionError: a negative `n`.

    >>> lucid.polygamma(1, lucid.tensor([1.0, 2.0]))
    tensor([1.6449, 0.6449])
    """
    order = integer(n, "polygamma", "n")
    if order < 0:
        raise OptionError(f"polygamma(n, x) does not support negative n, got {order}")
    x = floating(input, "polygamma")
    return digamma(x) if order == 0 else _polygamma(x, order)


@like(polygamma)
def polygamma_of(input: Tensor, n: int) -> Tensor:
    """Return the n-th derivative of `digamma`; for n > 30 of positive numbers, and else NaN.

    >>> lucid.tensor([1.0, 2.0]).polygamma(1)
    tensor([1.6449, 0.6449])
    """
    return polygamma(n, input)


@maps("[2.0, 3.0]", "2", "[0.4516, 1.5502]")
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """Return the logarithm of the multivariate gamma function of dimension `p`.

    It is p (p - 1) / 4 log(pi) plus the sum of lgamma(input - j / 2) over j = 0, …, p - 1.

    Args:
        input: a tensor; integers and bools give the default float dtype; it should be above (p - 1)
            / 2.
        p: an int, at least 1.

    Raises:
        OptionError: a `p` below 1.
    """
    x, size = floating(input, "mvlgamma"), integer(p, "mvlgamma", "p")
    if size < 1:
        raise OptionError(f"mvlgamma: p has to be greater than or equal to 1, got {size}")
    halves = emit(ops.iota, (), shape=(size,), axis=0, dtype=x._type.dtype) * 0.5
    total: Tensor = lgamma(x.unsqueeze(-1) - halves).sum(-1)
    return total + size * (size - 1) / 4 * math.log(math.pi)


def _quotient(x: Tensor, parts: tuple[Sequence[float], Sequence[float]]) -> Tensor:
    over, under = (polynomial(x, coefficients) for coefficients in parts)
    return over / under


def _quantile(q: Tensor, rest: Tensor) -> Tensor:
    """The normal distribution's quantile: q is the area from the middle, rest the one beyond."""
    inner = absolute(q) <= 0.425
    middle = choose(inner, q, 0.0)
    near = middle * _quotient(0.180625 - middle * middle, CENTRAL)
    rest = choose(inner, 0.5, rest)
    r = sqrt(-log(rest))
    is_far = r > 5.0
    tail = _quotient(choose(is_far, 5.0, r) - 1.6, TAIL)
    far = _quotient(choose(is_far, r, 5.0) - 5.0, FAR_TAIL)
    outer = choose(rest == 0, math.inf, choose(is_far, far, tail))
    return choose(inner, near, choose(q < 0, -outer, outer))


@curve(lambda g, y: g * (math.sqrt(math.pi) / 2) * exp(y * y))
@maps("[0.0, 0.5, -1.0]", "[0.0000, 0.4769,   -inf]")
def erfinv(input: Tensor) -> Tensor:
    """Return the number whose error function is `input`; infinite at -1 and 1, NaN beyond."""
    q = input * 0.5
    return _quantile(q, 0.5 - absolute(q)) * math.sqrt(0.5)


def ndtr(input: Tensor) -> Tensor:
    """Return the standard normal distribution's area to the left, 0.5 * erfc(-input / sqrt(2)).

    >>> lucid.special.ndtr(lucid.tensor([0.0, 1.0, -1.0]))
    tensor([0.5000, 0.8413, 0.1587])
    """
    x = floating(input, "ndtr") * math.sqrt(0.5)
    return 0.5 * erfc(-x)


@curve(lambda g, y: g * math.sqrt(2 * math.pi) * exp(0.5 * y * y))
def ndtri(input: Tensor) -> Tensor:
    """Return the number with this area of the normal distribution to the left.

    Infinite at 0 and 1, NaN beyond; right to the last digits also for the smallest areas.

    >>> lucid.special.ndtri(lucid.tensor([0.5, 0.975, 0.0]))
    tensor([0.0000, 1.9600,   -inf])
    """
    q = input - 0.5
    return _quantile(q, choose(q < 0, input, 1 - input))


_LEVELS = 30


def log_ndtr(input: Tensor) -> Tensor:
    """Return the logarithm of `ndtr`, left of -4 by Laplace's continued fraction.

    So it is finite where the area itself underflows to 0.

    >>> lucid.special.log_ndtr(lucid.tensor([0.0, -1.0, -50.0]))
    tensor([-6.9315e-01, -1.8410e+00, -1.2548e+03])
    """
    given = floating(input, "log_ndtr")
    x = cast(given, f64)
    is_left = x < -4.0
    t = choose(is_left, -x, 4.0)
    fraction = t
    for level in range(_LEVELS, 0, -1):
        fraction = t + level / fraction
    tail = -0.5 * t * t - _HALF_LOG_TAU - log(fraction)
    inner = choose(is_left, 0.0, x)
    root = math.sqrt(0.5)
    body = choose(
        inner > 0,
        log1p(-0.5 * erfc(choose(inner > 0, inner, 0.0) * root)),
        log(0.5 * erfc(choose(inner > 0, 0.0, -inner) * root)),
    )
    return cast(choose(is_left, tail, body), given._type.dtype)


def _entropy_term(x: Tensor) -> Tensor:
    return -x * log(choose(x > 0, x, 1.0))


def entr(input: Tensor) -> Tensor:
    """Return the elementwise entropy `-input * log(input)`: 0 at 0, -inf below.

    >>> lucid.special.entr(lucid.tensor([0.5, 1.0, -1.0]))
    tensor([0.3466, -0.0000,   -inf])
    """
    x = floating(input, "entr")
    return choose(x > 0, _entropy_term(x), choose(x < 0, -math.inf, x * 0))


_MOST_TERMS = 100_000


def _power_series(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The sum of x^n / (a (a + 1) … (a + n))."""
    term = 1 / a
    total = term.copy()
    for n in range(1, _MOST_TERMS):
        term = term * x / (a + n)
        total += term
        if (term <= total * 1e-17).all():
            break
    return total


def _fraction(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - …)), by Lentz's method."""
    b = x + 1 - a
    tiny = 1e-300
    c, d = np.full_like(b, 1 / tiny), 1 / np.where(b == 0, tiny, b)
    total = d.copy()
    for n in range(1, _MOST_TERMS):
        part, b = -n * (n - a), b + 2
        d = part * d + b
        d = 1 / np.where(d == 0, tiny, d)
        c = b + part / c
        c = np.where(c == 0, tiny, c)
        total *= c * d
        if (np.abs(c * d - 1) < 1e-16).all():
            break
    return total


def _of_incomplete(
    g: Tensor, a: Tensor, x: Tensor, upper: bool, needs: tuple[bool, ...]
) -> tuple[None, Tensor]:
    if needs[0]:
        raise NotDifferentiableError(
            "igamma, igammac: the derivative by the first argument is not implemented\n"
            "hint: detach() it"
        )
    slope = exp((a - 1) * log(x) - x - lgamma(a))
    return None, -g * slope if upper else g * slope


@lapack("igamma", _of_incomplete)
def _incomplete_gamma(a: np.ndarray, x: np.ndarray, upper: bool) -> np.ndarray:
    """P(a, x), or Q(a, x) = 1 - P, in f64: by the series left of a + 1, else by the fraction."""
    dtype = a.dtype
    a, x = np.broadcast_arrays(a.astype(np.float64), x.astype(np.float64))
    is_left = x < a + 1
    known = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    with np.errstate(all="ignore"):
        logs = np.array([math.lgamma(v) if v > 0 else 0.0 for v in a.ravel()]).reshape(a.shape)
        front = np.exp(a * np.log(np.where(known, x, 1.0)) - x - logs)
        lower = front * _power_series(np.where(known & is_left, a, 1.0), np.where(is_left, x, 0.0))
        rest = known & ~is_left
        above = front * _fraction(np.where(rest, a, 1.0), np.where(rest, x, 3.0))
        found = np.where(is_left, 1 - lower if upper else lower, above if upper else 1 - above)
    at_zero = ((a > 0) & (x == 0)) | (np.isposinf(a) & np.isfinite(x) & (x >= 0))
    at_end = (np.isposinf(x) & (a >= 0) & np.isfinite(a)) | ((a == 0) & (x > 0))
    found = np.where(known, found, np.nan)
    found = np.where(at_zero, 1.0 if upper else 0.0, found)
    return np.asarray(np.where(at_end, 0.0 if upper else 1.0, found)).astype(dtype)


def _incomplete(input: Tensor, other: Tensor, upper: bool) -> Tensor:
    name = "igammac" if upper else "igamma"
    a, x = promoted(input, other, name)
    a, x = floating(a, name), floating(x, name)
    shape = common_shape(name, input=a, other=x)
    return _incomplete_gamma(a.expand(*shape), x.expand(*shape), upper)


@maps("[1.0, 2.0]", "[1.0, 1.0]", "[0.6321, 0.2642]")
def igamma(input: Tensor, other: Tensor) -> Tensor:
    """Return the regularized lower incomplete gamma function, between 0 and 1.

    It is the integral of t^(a - 1) exp(-t) from 0 to x, over gamma(a); NaN for negative arguments.
    It is computed by Python, in a compiled step as well. Differentiable by `other`.

    Args:
        input: the gamma function's argument a, at least 0; no gradient goes to it.
        other: the bound x of the integral, at least 0, broadcast and promoted.

    Raises:
        NotDifferentiableError: a backward asks for the derivative by `input`.
        ShapeError: the shapes don't broadcast.
    """
    return _incomplete(input, other, False)


@like(igamma)
@maps("[1.0, 2.0]", "[1.0, 40.0]", "[3.6788e-01, 1.7418e-16]")
def igammac(input: Tensor, other: Tensor) -> Tensor:
    """Return the upper incomplete gamma function: `1 - igamma`, without loss where it is small.

    It is computed by Python, in a compiled step as well. Differentiable by `other`.
    """
    return _incomplete(input, other, True)


# Euler's and Maclaurin's sum: how many terms come before it, and the B_2k / (2 k)! in it.
_FIRST = 10
_EULER_WEIGHTS = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000,
)  # fmt: skip


def _zeta_vjp(g: Tensor, s: Tensor, q: Tensor, needs: tuple[bool, ...]) -> tuple[None, Tensor]:
    if needs[0]:
        raise NotDifferentiableError(
            "zeta: the derivative by the first argument is not implemented\nhint: detach() it"
        )
    return None, -g * s * zeta(s + 1, q)


@with_gradient(_zeta_vjp, natively=False)
def _zeta(s: Tensor, q: Tensor) -> Tensor:
    """The sum of (q + k)^-s for s > 1 and q > 0; differentiable by q, as in PyTorch."""
    total = q ** (-s)
    for k in range(1, _FIRST):
        total = total + (q + k) ** (-s)
    far = q + _FIRST
    power = far ** (-s)
    total = total + power * far / (s - 1) + 0.5 * power
    term = s * power / far  # with the factors in it, which overflow without its powers
    for k, weight in enumerate(_EULER_WEIGHTS):
        total = total + weight * term
        term = term * ((s + (2 * k + 1)) / far) * ((s + (2 * k + 2)) / far)
    return total


def zeta(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """Return Hurwitz's zeta function: the sum of (other + k)^-input over all k from 0 on.

    With an `other` of 1 it is Riemann's. It is infinite for an `input` of 1, and for one above
    where `other` is 0 or a negative integer; NaN for an `input` below 1 and for other negative
    numbers. Differentiable by `other`.

    Args:
        input: the exponent s, a tensor or a number.
        other: the first term's base q, likewise; one of the two is a tensor.

    Raises:
        NotDifferentiableError: a backward asks for the derivative by `input`.

    >>> lucid.special.zeta(lucid.tensor([2.0, 4.0]), 1)
    tensor([1.6449, 1.0823])
    """
    s, q = promoted(input, other, "zeta")
    s, q = floating(s, "zeta"), floating(q, "zeta")
    is_known = (s > 1) & (q > 0)
    known = _zeta(choose(is_known, s, 2.0), choose(is_known, q, 1.0))
    is_infinite = (s == 1) | ((s > 1) & (q <= 0) & (q % 1 == 0))
    return choose(is_known, known, choose(is_infinite, math.inf, math.nan))
