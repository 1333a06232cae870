"""Incomplete gamma functions and the Hurwitz zeta function."""

from __future__ import annotations

import math

import numpy as np

from lucid.docstrings import like
from lucid.functions.arguments import common_shape
from lucid.functions.elementwise import choose, exp, log
from lucid.functions.gamma import lgamma
from lucid.functions.gradients import with_gradient
from lucid.functions.lapack import lapack
from lucid.functions.promotion import Number, floating, promoted
from lucid.functions.tensors import Tensor
from lucid.ir.errors import NotDifferentiableError

__all__ = ["igamma", "igammac"]

_MOST_TERMS = 100_000


def _series(a: np.ndarray, x: np.ndarray) -> np.ndarray:
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
        lower = front * _series(np.where(known & is_left, a, 1.0), np.where(is_left, x, 0.0))
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

    Example:
        >>> lucid.igamma(lucid.tensor([1.0, 2.0]), lucid.tensor([1.0, 1.0]))
        tensor([0.6321, 0.2642])
    """
    return _incomplete(input, other, False)


@like(igamma)
def igammac(input: Tensor, other: Tensor) -> Tensor:
    """Return the upper incomplete gamma function: `1 - igamma`, without loss where it is small.

    It is computed by Python, in a compiled step as well. Differentiable by `other`.

    Example:
        >>> lucid.igammac(lucid.tensor([1.0, 2.0]), lucid.tensor([1.0, 40.0]))
        tensor([3.6788e-01, 1.7418e-16])
    """
    return _incomplete(input, other, True)


# Euler's and Maclaurin's sum: how many terms come before it, and the B_2k / (2 k)! in it.
_FIRST = 10
_WEIGHTS = (
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
    for k, weight in enumerate(_WEIGHTS):
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

    Example:
        >>> lucid.special.zeta(lucid.tensor([2.0, 4.0]), 1)
        tensor([1.6449, 1.0823])
    """
    s, q = promoted(input, other, "zeta")
    s, q = floating(s, "zeta"), floating(q, "zeta")
    is_known = (s > 1) & (q > 0)
    known = _zeta(choose(is_known, s, 2.0), choose(is_known, q, 1.0))
    is_infinite = (s == 1) | ((s > 1) & (q <= 0) & (q % 1 == 0))
    return choose(is_known, known, choose(is_infinite, math.inf, math.nan))
