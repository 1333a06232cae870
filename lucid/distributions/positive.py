"""Distributions over positive numbers and proportions, with light and heavy tails."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

import lucid
from lucid.distributions import constraints
from lucid.distributions.constraints import positive, real
from lucid.distributions.distribution import (
    Distribution,
    Shape,
    example,
    parameters_of,
    require_axis,
    uniform_like,
)
from lucid.docstrings import like
from lucid.functions.gradients import with_gradient
from lucid.nn import functional as F
from lucid.tensor.core import from_array
from lucid.tensor.tensor import Tensor

__all__ = [
    "Beta", "Chi2", "Dirichlet", "Exponential", "FisherSnedecor", "Gamma", "GeneralizedPareto",
    "HalfCauchy", "InverseGamma", "Kumaraswamy", "Pareto", "StudentT", "Weibull",
]  # fmt: skip

_ROUNDS = 12  # all of them reject with a probability below 1e-13
_TIMES = np.arange(-34, 35) / 10
_NODES = np.exp(math.pi / 2 * np.sinh(_TIMES))
_QUADRATURE = 0.1 * math.pi / 2 * np.cosh(_TIMES) * _NODES


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
    total: Tensor = (integrand * from_array(_QUADRATURE)).sum(-1)
    return total * (sign * x * scale).squeeze(-1)


@like(Distribution)
@example("2.0", "1.0", mean="0.5000", log_prob="-1.3069")
class Exponential(Distribution):
    """The time to the next event, of `rate` per unit.

    Density: rate exp(-rate x) for x >= 0.

    Args:
        rate: how many events come per unit, above 0.
    """

    arg_constraints: ClassVar = {"rate": positive}
    support = constraints.nonnegative
    _formulas: ClassVar = {
        "mode": lambda d: lucid.zeros_like(d.rate),
        "mean": lambda d: 1 / d.rate,
        "variance": lambda d: d.rate**-2,
        "entropy": lambda d: 1.0 - d.rate.log(),
        "_log_prob": lambda d, value: d.rate.log() - d.rate * value,
        "_cdf": lambda d, value: -lucid.expm1(-d.rate * value),
        "icdf": lambda d, value: -lucid.log1p(-value) / d.rate,
        "_drawn": lambda d, shape: -uniform_like(shape, d.rate).log() / d.rate,
    }

    def __init__(self, rate: Any, validate_args: Any = None) -> None:
        (self.rate,) = parameters_of(rate)
        super().__init__(self.rate.shape, (), validate_args)


@like(Exponential)
@example("3.0, 2.0", "1.0", mean="1.5000", log_prob="-0.6137")
class Gamma(Distribution):
    """The gamma distribution: the time to the event number `concentration`, of `rate` per unit.

    Density: rate^c x^(c - 1) exp(-rate x) / gamma(c), with the concentration c, which needn't be
    whole.

    Args:
        concentration: the shape, above 0.
        rate: how many events come per unit, above 0; it broadcasts with the concentration.
    """

    arg_constraints: ClassVar = {"concentration": positive, "rate": positive}
    support = constraints.nonnegative
    _formulas: ClassVar = {
        "mode": lambda d: ((d.concentration - 1) / d.rate).clamp(min=0),
        "mean": lambda d: d.concentration / d.rate,
        "variance": lambda d: d.concentration / d.rate**2,
        "_cdf": lambda d, value: lucid.special.gammainc(d.concentration, d.rate * value),
        "_drawn": lambda d, shape: standard_gamma(d.concentration.expand(*shape)) / d.rate,
    }

    def __init__(self, concentration: Any, rate: Any, validate_args: Any = None) -> None:
        self.concentration, self.rate = parameters_of(concentration, rate)
        super().__init__(self.concentration.shape, (), validate_args)

    def _log_prob(self, value: Any) -> Tensor:
        value = value if isinstance(value, Tensor) else lucid.tensor(value, dtype=self.rate.dtype)
        found: Tensor = (
            lucid.xlogy(self.concentration, self.rate)
            + lucid.xlogy(self.concentration - 1, value)
            - self.rate * value
            - lucid.lgamma(self.concentration)
        )
        return found

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + lucid.lgamma(a) + (1.0 - a) * lucid.digamma(a)


@like(Distribution)
@example("3.0", "1.0", mean="3.", log_prob="-1.4189")
class Chi2(Gamma):
    """The sum of the squares of `df` normal numbers: a `Gamma` of concentration df / 2, rate 1/2.

    Args:
        df: the degrees of freedom, above 0; they needn't be whole.
    """

    arg_constraints: ClassVar = {"df": positive}

    def __init__(self, df: Any, validate_args: Any = None) -> None:
        (self.df,) = parameters_of(df)
        super().__init__(0.5 * self.df, 0.5, validate_args)


@like(Exponential)
@example("2.0, 3.0", "0.5", mean="0.4000", log_prob="0.4055")
class Beta(Distribution):
    """Proportions, by two concentrations.

    Density: in proportion to x^(a - 1) (1 - x)^(b - 1) for 0 <= x <= 1.

    Args:
        concentration1: a, above 0.
        concentration0: b, above 0; it broadcasts with a.
    """

    arg_constraints: ClassVar = {"concentration1": positive, "concentration0": positive}
    support = constraints.unit_interval
    _formulas: ClassVar = {
        "mean": lambda d: d.concentration1 / (d.concentration1 + d.concentration0)
    }

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: Any = None) -> None:
        self.concentration1, self.concentration0 = parameters_of(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)

    def _drawn(self, shape: Shape) -> Tensor:
        one = standard_gamma(self.concentration1.expand(*shape))
        return one / (one + standard_gamma(self.concentration0.expand(*shape)))

    @property
    def mode(self) -> Tensor:
        return _mode_of_shares(lucid.stack([self.concentration1, self.concentration0], -1))[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return lucid.xlogy(a - 1, value) + lucid.xlogy(b - 1, 1 - value) - _log_beta(a, b)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (
            _log_beta(a, b)
            - (a - 1) * lucid.digamma(a)
            - (b - 1) * lucid.digamma(b)
            + (a + b - 2) * lucid.digamma(a + b)
        )


def _log_beta(a: Tensor, b: Tensor) -> Tensor:
    return lucid.lgamma(a) + lucid.lgamma(b) - lucid.lgamma(a + b)


def _mode_of_shares(concentration: Tensor) -> Tensor:
    """The most likely shares: a corner, the first, where all concentrations are below 1."""
    above = (concentration - 1).clamp(min=0)
    corner = F.one_hot(above.argmax(-1), concentration.shape[-1]).to(concentration.dtype)
    total = above.sum(-1, keepdim=True)
    return lucid.where((concentration < 1).all(-1, keepdim=True), corner, above / total)


@like(Exponential)
@example("lucid.tensor([1.0, 3.0])", "[0.5, 0.5]", mean="[0.2500, 0.7500]", log_prob="-0.2877")
class Dirichlet(Distribution):
    """Proportions of several parts, by their concentrations: `Beta` for more than two.

    Shapes: the concentrations' last axis is the event's, the others are the batch's. A draw sums up
    to 1.

    Args:
        concentration: a tensor of numbers above 0, with at least one axis.
    """

    arg_constraints: ClassVar = {"concentration": constraints.independent(positive, 1)}
    support = constraints.simplex
    _formulas: ClassVar = {
        "mode": lambda d: _mode_of_shares(d.concentration),
        "mean": lambda d: d.concentration / d.concentration.sum(-1, keepdim=True),
    }

    def __init__(self, concentration: Tensor, validate_args: Any = None) -> None:
        require_axis(self, "concentration", concentration)
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    def _drawn(self, shape: Shape) -> Tensor:
        parts = standard_gamma(self.concentration.expand(*shape))
        return parts / parts.sum(-1, keepdim=True)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        a = self.concentration
        return a * (total - a) / (total**2 * (total + 1))

    def _log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        norm = lucid.lgamma(a.sum(-1)) - lucid.lgamma(a).sum(-1)
        return lucid.xlogy(a - 1, value).sum(-1) + norm

    def entropy(self) -> Tensor:
        a, count = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        return (
            lucid.lgamma(a).sum(-1)
            - lucid.lgamma(total)
            - (count - total) * lucid.digamma(total)
            - ((a - 1) * lucid.digamma(a)).sum(-1)
        )


@like(Exponential)
@example("3.0", "1.0", variance="3.", log_prob="-1.5763")
class StudentT(Distribution):
    """A normal number over the root of an independent mean square; moved and scaled.

    The mean is NaN up to df = 1; the variance is infinite up to 2, and NaN up to 1.

    Args:
        df: the degrees of freedom, above 0.
        loc: what is added.
        scale: the factor before that, above 0.
    """

    arg_constraints: ClassVar = {"df": positive, "loc": real, "scale": positive}
    support = real
    _formulas: ClassVar = {
        "mode": lambda d: d.loc,
        "mean": lambda d: lucid.where(d.df > 1, d.loc, math.nan),
    }

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: Any = None
    ) -> None:
        self.df, self.loc, self.scale = parameters_of(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)

    def _drawn(self, shape: Shape) -> Tensor:
        x = lucid.randn(shape, dtype=self.df.dtype)
        z = 2 * standard_gamma((0.5 * self.df).expand(*shape))
        return self.loc + self.scale * x * (self.df / z).sqrt()

    @property
    def variance(self) -> Tensor:
        known = self.scale**2 * self.df / lucid.where(self.df > 2, self.df - 2, 1.0)
        rest = lucid.where(self.df > 1, math.inf, math.nan)
        return lucid.where(self.df > 2, known, rest)

    def _log_prob(self, value: Tensor) -> Tensor:
        y, half = (value - self.loc) / self.scale, 0.5 * self.df
        norm = (
            self.scale.log()
            + 0.5 * self.df.log()
            + 0.5 * math.log(math.pi)
            + lucid.lgamma(half)
            - lucid.lgamma(half + 0.5)
        )
        return -(half + 0.5) * lucid.log1p(y**2 / self.df) - norm

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        log_beta = lucid.lgamma(half) + 0.5 * math.log(math.pi) - lucid.lgamma(half + 0.5)
        above = half + 0.5
        return (
            self.scale.log()
            + above * (lucid.digamma(above) - lucid.digamma(half))
            + 0.5 * self.df.log()
            + log_beta
        )


_EULER = 0.5772156649015329


@like(Distribution)
@example("2.0, 1.0", "1.0", mean="2.", log_prob="-1.1931")
class Weibull(Distribution):
    """An exponential number to the power of 1 / `concentration`, times `scale`.

    Distribution function: 1 - exp(-(x / scale)^concentration) for x > 0.

    Args:
        scale: the factor, above 0.
        concentration: the shape, above 0: with 1 it is the exponential distribution.
    """

    arg_constraints: ClassVar = {"scale": positive, "concentration": positive}
    support = positive
    _formulas: ClassVar = {
        "mean": lambda d: d.scale * d._moment(1),
        "variance": lambda d: d.scale**2 * (d._moment(2) - d._moment(1) ** 2),
        "_cdf": lambda d, value: -lucid.expm1(-((value / d.scale) ** d.concentration)),
        "icdf": lambda d, value: d.scale * (-lucid.log1p(-value)) ** (1 / d.concentration),
    }

    def __init__(self, scale: Any, concentration: Any, validate_args: Any = None) -> None:
        self.scale, self.concentration = parameters_of(scale, concentration)
        super().__init__(self.scale.shape, (), validate_args)

    def _drawn(self, shape: Shape) -> Tensor:
        u = uniform_like(shape, self.scale)
        return self.scale * (-u.log()) ** (1 / self.concentration)

    def _moment(self, order: int) -> Tensor:
        return lucid.lgamma(1 + order / self.concentration).exp()

    @property
    def mode(self) -> Tensor:
        """Not a number for concentrations below 1, whose density has no greatest value."""
        k = self.concentration
        return self.scale * ((k - 1) / k) ** (1 / k)

    def _log_prob(self, value: Tensor) -> Tensor:
        relative = value / self.scale
        power = relative**self.concentration
        ratio = (self.concentration / self.scale).log()
        return ratio + (self.concentration - 1) * relative.log() - power

    def entropy(self) -> Tensor:
        inverse = 1 / self.concentration
        return _EULER * (1 - inverse) + (self.scale * inverse).log() + 1


@like(Weibull)
@example("1.0, 3.0", "2.0", mean="1.5000", log_prob="-1.6740")
class Pareto(Distribution):
    """`scale` times the exponential of an exponential number of rate `alpha`.

    Distribution function: 1 - (scale / x)^alpha for x >= scale. The mean is infinite up to alpha =
    1, the variance up to 2.

    Args:
        scale: the least value, above 0.
        alpha: the rate, above 0: the less, the heavier the tail.
    """

    arg_constraints: ClassVar = {"scale": positive, "alpha": positive}
    _formulas: ClassVar = {
        "support": lambda d: constraints.greater_than_eq(d.scale),
        "mode": lambda d: d.scale,
        "entropy": lambda d: (d.scale / d.alpha).log() + 1 + 1 / d.alpha,
        "_cdf": lambda d, value: 1 - (d.scale / value) ** d.alpha,
        "icdf": lambda d, value: d.scale * (1 - value) ** (-1 / d.alpha),
        "_drawn": lambda d, shape: d.scale * (-uniform_like(shape, d.scale).log() / d.alpha).exp(),
    }

    def __init__(self, scale: Any, alpha: Any, validate_args: Any = None) -> None:
        self.scale, self.alpha = parameters_of(scale, alpha)
        super().__init__(self.scale.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    def _log_prob(self, value: Tensor) -> Tensor:
        found: Tensor = self.alpha.log() + self.alpha * self.scale.log()
        found = found - (self.alpha + 1) * value.log()
        return found


@like(Weibull)
@example("0.0, 1.0, 0.5", "2.0", mean="2.", log_prob="-2.0794")
class GeneralizedPareto(Distribution):
    """What is left above a high limit: the tails of most distributions come near it.

    With z = (x - loc) / scale the distribution function is 1 - (1 + concentration z)^(-1 /
    concentration), and 1 - exp(-z) for a concentration of 0; a negative one ends the support at
    loc - scale / concentration. The mean is infinite from a concentration of 1 on, the variance
    from 1/2.

    Args:
        loc: the limit, the least value.
        scale: how wide it is, above 0.
        concentration: how heavy the tail is.
    """

    arg_constraints: ClassVar = {"loc": real, "scale": positive, "concentration": real}
    _formulas: ClassVar = {
        "support": lambda d: constraints.interval(d.loc, d._end()),
        "mode": lambda d: d.loc,
        "entropy": lambda d: d.scale.log() + d.concentration + 1,
        "_log_prob": lambda d, value: -d.scale.log() - (1 + d.concentration) * d._hazard(value),
        "_cdf": lambda d, value: -lucid.expm1(-d._hazard(value)),
        "_drawn": lambda d, shape: d.icdf(uniform_like(shape, d.loc)),
    }

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: Any = None) -> None:
        self.loc, self.scale, self.concentration = parameters_of(loc, scale, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    def _divisor(self) -> Tensor:
        """The concentration, and 1 in place of 0, so that gradients are finite."""
        return self.concentration.where(self.concentration != 0, 1.0)

    def _end(self) -> Tensor:
        end = self.loc - self.scale / self._divisor()
        return end.where(self.concentration < 0, math.inf)

    def _hazard(self, value: Tensor) -> Tensor:
        """-log(1 - cdf(value))."""
        z, k = (value - self.loc) / self.scale, self._divisor()
        return (lucid.log1p(k * z) / k).where(self.concentration != 0, z)

    def icdf(self, value: Tensor) -> Tensor:
        hazard, k = -lucid.log1p(-value), self._divisor()
        z = (lucid.expm1(k * hazard) / k).where(self.concentration != 0, hazard)
        return self.loc + self.scale * z

    @property
    def mean(self) -> Tensor:
        k = self.concentration
        return (self.loc + self.scale / (1 - k)).where(k < 1, math.inf)

    @property
    def variance(self) -> Tensor:
        k = self.concentration
        return (self.scale**2 / ((1 - k) ** 2 * (1 - 2 * k))).where(k < 0.5, math.inf)


@like(Weibull)
class HalfCauchy(Distribution):
    """The size of a Cauchy number with median 0: its mean and variance are infinite.

    Density: 2 / (pi scale (1 + (x / scale)^2)) for x >= 0.

    Args:
        scale: the median, above 0.

    >>> found = lucid.distributions.HalfCauchy(2.0)
    >>> found.cdf(lucid.tensor(2.0)), found.log_prob(lucid.tensor(1.0))
    (tensor(0.5000), tensor(-1.3679))
    """

    arg_constraints: ClassVar = {"scale": positive}
    support = constraints.nonnegative
    _formulas: ClassVar = {
        "mode": lambda d: lucid.zeros_like(d.scale),
        "mean": lambda d: lucid.full_like(d.scale, math.inf),
        "variance": lambda d: lucid.full_like(d.scale, math.inf),
        "entropy": lambda d: math.log(2 * math.pi) + d.scale.log(),
        "_cdf": lambda d, value: 2 / math.pi * lucid.atan(value / d.scale),
        "icdf": lambda d, value: d.scale * lucid.tan(math.pi / 2 * value),
        "_drawn": lambda d, shape: d.scale * (math.pi / 2 * uniform_like(shape, d.scale)).tan(),
    }

    def __init__(self, scale: Any, validate_args: Any = None) -> None:
        (self.scale,) = parameters_of(scale)
        super().__init__(self.scale.shape, (), validate_args)

    def _log_prob(self, value: Tensor) -> Tensor:
        relative = value / self.scale
        inside = math.log(2 / math.pi) - self.scale.log() - lucid.log1p(relative**2)
        return lucid.where(relative >= 0, inside, -math.inf)


@like(Weibull)
@example("3.0, 2.0", "1.0", mean="1.", log_prob="-0.6137")
class InverseGamma(Distribution):
    """The reciprocal of a gamma number.

    The mean is infinite up to a concentration of 1, the variance up to 2.

    Args:
        concentration: the gamma distribution's shape, above 0.
        rate: its rate, above 0; it broadcasts with the concentration.
    """

    arg_constraints: ClassVar = {"concentration": positive, "rate": positive}
    support = positive
    _formulas: ClassVar = {
        "mode": lambda d: d.rate / (d.concentration + 1),
        "_cdf": lambda d, value: lucid.special.gammaincc(d.concentration, d.rate / value),
        "_drawn": lambda d, shape: d.rate / standard_gamma(d.concentration.expand(*shape)),
    }

    def __init__(self, concentration: Any, rate: Any, validate_args: Any = None) -> None:
        self.concentration, self.rate = parameters_of(concentration, rate)
        super().__init__(self.rate.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return lucid.where(a > 1, self.rate / (a - 1), math.inf)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return lucid.where(a > 2, self.rate**2 / ((a - 1) ** 2 * (a - 2)), math.inf)

    def _log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        found: Tensor = a * self.rate.log() - lucid.lgamma(a) - (a + 1) * value.log()
        found = found - self.rate / value
        return found

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + lucid.lgamma(a) - (1 + a) * lucid.digamma(a)


@like(Weibull)
class Kumaraswamy(Distribution):
    """Proportions whose distribution function is 1 - (1 - x^a)^b, for 0 <= x <= 1.

    They are much like those of `Beta`, with a simpler formula.

    Args:
        concentration1: a, above 0.
        concentration0: b, above 0; it broadcasts with a.

    >>> found = lucid.distributions.Kumaraswamy(2.0, 1.0)
    >>> found.mean, found.cdf(lucid.tensor(0.5))
    (tensor(0.6667), tensor(0.2500))
    """

    arg_constraints: ClassVar = {"concentration1": positive, "concentration0": positive}
    support = constraints.unit_interval
    _formulas: ClassVar = {
        "mean": lambda d: d._moment(1),
        "variance": lambda d: d._moment(2) - d._moment(1) ** 2,
        "_cdf": lambda d, value: 1 - (1 - value**d.concentration1) ** d.concentration0,
    }

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: Any = None) -> None:
        self.concentration1, self.concentration0 = parameters_of(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)

    def _drawn(self, shape: Shape) -> Tensor:
        u = uniform_like(shape, self.concentration1)
        return (1 - u ** (1 / self.concentration0)) ** (1 / self.concentration1)

    def _moment(self, order: int) -> Tensor:
        a, b = self.concentration1, self.concentration0
        first = 1 + order / a
        logs = lucid.lgamma(first) + lucid.lgamma(b) - lucid.lgamma(first + b)
        return b * logs.exp()

    @property
    def mode(self) -> Tensor:
        """Not a number where a concentration is below 1."""
        a, b = self.concentration1, self.concentration0
        found = ((a - 1) / (a * b - 1)) ** (1 / a)
        return lucid.where((a >= 1) & (b >= 1), found, math.nan)

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return a.log() + b.log() + (a - 1) * value.log() + (b - 1) * (-(value**a)).log1p()

    def icdf(self, value: Tensor) -> Tensor:
        return (1 - (1 - value) ** (1 / self.concentration0)) ** (1 / self.concentration1)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = lucid.digamma(b + 1) + _EULER
        return 1 - 1 / b + (1 - 1 / a) * harmonic - a.log() - b.log()


@like(Weibull)
@example("3.0, 6.0", "1.0", mean="1.5000", log_prob="-0.9829")
class FisherSnedecor(Distribution):
    """The quotient of two independent mean squares of `df1` and `df2` normal numbers.

    The mean is NaN up to df2 = 2, the variance up to 4.

    Args:
        df1: how many the upper mean square has, above 0.
        df2: how many the lower one has, above 0.
    """

    arg_constraints: ClassVar = {"df1": positive, "df2": positive}
    support = positive
    _formulas: ClassVar = {"mean": lambda d: lucid.where(d.df2 > 2, d.df2 / (d.df2 - 2), math.nan)}

    def __init__(self, df1: Any, df2: Any, validate_args: Any = None) -> None:
        self.df1, self.df2 = parameters_of(df1, df2)
        super().__init__(self.df1.shape, (), validate_args)

    def _drawn(self, shape: Shape) -> Tensor:
        over = standard_gamma((self.df1 / 2).expand(*shape)) / self.df1
        tiny = float(lucid.finfo(over.dtype).tiny)
        under = (standard_gamma((self.df2 / 2).expand(*shape)) / self.df2).clamp(min=tiny)
        return (over / under).clamp(min=tiny)

    @property
    def mode(self) -> Tensor:
        """Not a number up to two degrees of freedom above."""
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return lucid.where(self.df1 > 2, found, math.nan)

    @property
    def variance(self) -> Tensor:
        one, two = self.df1, self.df2
        known = 2 * two**2 * (one + two - 2) / (one * (two - 2) ** 2 * (two - 4))
        return lucid.where(two > 4, known, math.nan)

    def _log_prob(self, value: Tensor) -> Tensor:
        one, two, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        norm = lucid.lgamma(one + two) - lucid.lgamma(one) - lucid.lgamma(two)
        body = one * ratio.log() + (one - 1) * value.log()
        return norm + body - (one + two) * lucid.log1p(ratio * value)
