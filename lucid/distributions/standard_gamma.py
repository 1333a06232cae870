"""Draws from the gamma distribution of rate 1, differentiable by the concentration."""

from __future__ import annotations

import math

import numpy as np

import lucid
from lucid.distributions.distribution import uniform_like
from lucid.functions.gradients import with_gradient
from lucid.tensor.core import from_array
from lucid.tensor.tensor import Tensor

_ROUNDS = 12  # all of them reject with a probability below 1e-13
_TIMES = np.arange(-34, 35) / 10
_NODES = np.exp(math.pi / 2 * np.sinh(_TIMES))
_WEIGHTS = 0.1 * math.pi / 2 * np.cosh(_TIMES) * _NODES


def _slope(g: Tensor, concentration: Tensor, y: Tensor) -> Tensor:
    """By dz/da = -(dF/da) / (dF/dz) of the CDF F.

    Reference: Figurnov, Mohamed and Mnih, "Implicit Reparameterization Gradients", 2018.
    """
    return g * gamma_slope(concentration.double(), y.double()).to(g.dtype)


@with_gradient(_slope, natively=False)
def standard_gamma(concentration: Tensor) -> Tensor:
    """Draw one number for each concentration, by a fixed number of trials.

    Reference: Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", 2000.
    """
    small = concentration < 1
    shape, dtype = tuple(concentration.shape), concentration.dtype
    d = lucid.where(small, concentration + 1, concentration) - 1 / 3
    c = 1 / (9 * d).sqrt()
    found, done = d, lucid.zeros(shape, dtype=lucid.bool)
    for _ in range(_ROUNDS):
        x = lucid.randn(shape, dtype=dtype)
        v = (1 + c * x) ** 3
        positive = v > 0
        inner = lucid.where(positive, v, 1.0)
        u = uniform_like(shape, concentration)
        accepted = positive & (u.log() < 0.5 * x * x + d * (1 - inner + inner.log()))
        found = lucid.where(accepted & ~done, d * inner, found)
        done = done | accepted
    boost = uniform_like(shape, concentration) ** (1 / concentration)
    return lucid.where(small, found * boost, found).clamp(min=float(lucid.finfo(dtype).tiny))


def gamma_slope(a: Tensor, x: Tensor) -> Tensor:
    """The derivative by `a` of the quantile of the gamma distribution that lies at `x`; f64.

    With t = x exp(∓u), the integral of log(t) - digamma(a) over the density, from x to the nearer
    end, becomes one over u > 0 whose integrand only decays: by the exp-sinh rule, to 1e-6.
    Reference: Takahasi and Mori, "Double Exponential Formulas for Numerical Integration", 1974.
    """
    a, x = a.unsqueeze(-1), x.unsqueeze(-1)
    scale = 1 / ((x - a).abs() + x.sqrt())
    u = scale * from_array(_NODES)
    sign = lucid.where(x < a, -1.0, 1.0)
    grown = lucid.expm1((sign * u).clamp(max=600.0))
    density = (sign * a * u - x * grown).clamp(max=0.0).exp()
    integrand = density * (x.log() + sign * u - lucid.digamma(a))
    total: Tensor = (integrand * from_array(_WEIGHTS)).sum(-1)
    return total * (sign * x * scale).squeeze(-1)
