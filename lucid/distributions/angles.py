"""Distributions of angles and of numbers from 0 to 1 by an exponential slope."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lucid
from lucid.distributions import constraints
from lucid.distributions.discrete import OfProbability
from lucid.distributions.distribution import (
    Distribution,
    Shape,
    example,
    parameters_of,
    uniform_like,
)
from lucid.docstrings import like
from lucid.nn import functional as F
from lucid.tensor.tensor import Tensor

__all__ = ["ContinuousBernoulli", "VonMises"]

_ROUNDS = 24  # all of them reject with a probability below 1e-11: each accepts 2 of 3 at least


@like(Distribution)
@example("0.5, 2.0", "0.3", variance="0.3022", log_prob="-0.7017")
class VonMises(Distribution):
    """Angles around `loc`, what the normal distribution is on a line.

    Density: exp(concentration cos(x - loc)) / (2 pi I0(concentration)). Draws are from -pi to pi,
    and have no gradient; `mean` and `variance` are the circular ones.

    Reference: Best and Fisher, "Efficient Simulation of the von Mises Distribution", 1979.

    Args:
        loc: the mean angle, a number or a tensor.
        concentration: above 0, the reciprocal of a variance where it is large; it broadcasts with
            `loc`.
    """

    arg_constraints: ClassVar = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    _formulas: ClassVar = {"mean": lambda d: d.loc, "mode": lambda d: d.loc}

    def __init__(self, loc: Any, concentration: Any, validate_args: Any = None) -> None:
        self.loc, self.concentration = parameters_of(loc, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    @property
    def variance(self) -> Tensor:
        return 1 - lucid.special.i1e(self.concentration) / lucid.special.i0e(self.concentration)

    def _log_prob(self, value: Tensor) -> Tensor:
        # I0 grows like an exponential, which is taken out of both terms
        height = self.concentration * ((value - self.loc).cos() - 1)
        norm = math.log(2 * math.pi) + lucid.special.i0e(self.concentration).log()
        return height - norm

    def _sampled(self, sample_shape: Shape) -> Tensor:
        shape = self._extended_shape(sample_shape)
        k = self.concentration.double()
        tau = 1 + (1 + 4 * k * k).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        r = lucid.where(k < 1e-5, 1 / k + k, (1 + rho * rho) / (2 * rho))
        found = lucid.zeros(shape, dtype=lucid.float64)
        done = lucid.zeros(shape, dtype=lucid.bool)
        for _ in range(_ROUNDS):
            u1, u2, u3 = (uniform_like(shape, k) for _ in range(3))
            z = (math.pi * u1).cos()
            f = (1 + r * z) / (r + z)
            c = k * (r - f)
            accepted = (c * (2 - c) > u2) | ((c / u2).log() + 1 >= c)
            angle = (u3 - 0.5).sign() * f.clamp(-1, 1).acos()
            found = lucid.where(accepted & ~done, angle, found)
            done = done | accepted
        angle = found + self.loc.double()
        return (lucid.remainder(angle + math.pi, 2 * math.pi) - math.pi).to(self.loc.dtype)


@like(Distribution)
@example("0.3", "0.2", mean="0.4302", log_prob="0.2245")
class ContinuousBernoulli(OfProbability):
    """Numbers from 0 to 1 whose density is a power of the odds `probs / (1 - probs)`.

    Density: C probs^x (1 - probs)^(1 - x), where C makes its integral 1. `probs` isn't the mean.

    Reference: Loaiza-Ganem and Cunningham, "The Continuous Bernoulli", 2019.

    Args:
        probs: from 0 to 1. Default: None, by `logits`.
        logits: the logarithm of the odds. Default: None, by `probs`.
        lims: between these `probs`, where the formulas divide by nearly 0, series are taken.

    Raises:
        OptionError: both or neither of `probs` and `logits` are given, or, where that is checked, a
            parameter is out of range.
    """

    support = constraints.unit_interval
    _formulas: ClassVar = {
        "_log_prob": lambda d, value: value * d.logits - F.softplus(d.logits) + d._log_norm(),
        "_drawn": lambda d, shape: d.icdf(uniform_like(shape, d.probs)),
    }

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: Any = None,
    ) -> None:
        self._lims = lims
        super().__init__(probs, logits, validate_args)

    @property
    def probs(self) -> Tensor:
        """The number whose odds are the base of the density."""
        eps = float(lucid.finfo(self._parameter.dtype).eps)
        return super().probs.clamp(eps, 1 - eps)

    def _is_steep(self) -> Tensor:
        low, high = self._lims
        return (self.probs <= low) | (self.probs > high)

    def _steep(self) -> Tensor:
        """`probs`, another number where these are near 1/2."""
        return lucid.where(self._is_steep(), self.probs, self._lims[0])

    def _log_norm(self) -> Tensor:
        p, x = self._steep(), (self.probs - 0.5) ** 2
        exact = ((-p).log1p() - p.log()).abs().log() - (1 - 2 * p).abs().log()
        near = math.log(2.0) + (4 / 3 + 104 / 45 * x) * x
        return lucid.where(self._is_steep(), exact, near)

    @property
    def mean(self) -> Tensor:
        p, x = self._steep(), self.probs - 0.5
        exact = p / (2 * p - 1) + 1 / ((-p).log1p() - p.log())
        return lucid.where(self._is_steep(), exact, 0.5 + (1 / 3 + 16 / 45 * x**2) * x)

    @property
    def variance(self) -> Tensor:
        p, x = self._steep(), (self.probs - 0.5) ** 2
        exact = p * (p - 1) / (1 - 2 * p) ** 2 + 1 / ((-p).log1p() - p.log()) ** 2
        return lucid.where(self._is_steep(), exact, 1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    def _cdf(self, value: Tensor) -> Tensor:
        p = self._steep()
        steep = (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        return lucid.where(self._is_steep(), steep, value).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        p = self._steep()
        steep = ((-p + value * (2 * p - 1)).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())
        return lucid.where(self._is_steep(), steep, value)

    def entropy(self) -> Tensor:
        p = self.probs
        return self.mean * ((-p).log1p() - p.log()) - self._log_norm() - (-p).log1p()
