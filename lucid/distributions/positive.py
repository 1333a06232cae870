"""Distributions over positive numbers, proportions, and with heavy tails."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lucid
from lucid.distributions import constraints
from lucid.distributions.distribution import Distribution, Shape, parameters_of, uniform_like
from lucid.distributions.standard_gamma import standard_gamma
from lucid.docstrings import like
from lucid.nn import functional as F
from lucid.tensor.tensor import Tensor

__all__ = ["Beta", "Chi2", "Dirichlet", "Exponential", "Gamma", "StudentT"]


@like(Distribution)
class Exponential(Distribution):
    """The time to the next event, of `rate` per unit.

    Density: rate exp(-rate x) for x >= 0.

    Args:
        rate: how many events come per unit, above 0.

    Example:
        >>> found = lucid.distributions.Exponential(2.0)
        >>> found.mean, found.log_prob(lucid.tensor(1.0))
        (tensor(0.5000), tensor(-1.3069))
    """

    arg_constraints: ClassVar = {"rate": constraints.positive}
    support = constraints.nonnegative
    _formulas: ClassVar = {
        "mode": lambda d: lucid.zeros_like(d.rate),
        "mean": lambda d: 1 / d.rate,
        "variance": lambda d: d.rate**-2,
    }

    def __init__(self, rate: Any, validate_args: Any = None) -> None:
        (self.rate,) = parameters_of(rate)
        super().__init__(self.rate.shape, (), validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        u = uniform_like(self._extended_shape(sample_shape), self.rate)
        return -u.log() / self.rate

    def _log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    def _cdf(self, value: Tensor) -> Tensor:
        return -lucid.expm1(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -lucid.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - self.rate.log()


@like(Exponential)
class Gamma(Distribution):
    """The gamma distribution: the time to the event number `concentration`, of `rate` per unit.

    Density: rate^c x^(c - 1) exp(-rate x) / gamma(c), with the concentration c, which needn't be
    whole.

    Args:
        concentration: the shape, above 0.
        rate: how many events come per unit, above 0; it broadcasts with the concentration.

    Example:
        >>> found = lucid.distributions.Gamma(3.0, 2.0)
        >>> found.mean, found.log_prob(lucid.tensor(1.0))
        (tensor(1.5000), tensor(-0.6137))
    """

    arg_constraints: ClassVar = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.nonnegative
    _formulas: ClassVar = {
        "mode": lambda d: ((d.concentration - 1) / d.rate).clamp(min=0),
        "mean": lambda d: d.concentration / d.rate,
        "variance": lambda d: d.concentration / d.rate**2,
    }

    def __init__(self, concentration: Any, rate: Any, validate_args: Any = None) -> None:
        self.concentration, self.rate = parameters_of(concentration, rate)
        super().__init__(self.concentration.shape, (), validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return standard_gamma(self.concentration.expand(*shape)) / self.rate

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
class Chi2(Gamma):
    """The sum of the squares of `df` normal numbers: a `Gamma` of concentration df / 2, rate 1/2.

    Args:
        df: the degrees of freedom, above 0; they needn't be whole.

    Example:
        >>> found = lucid.distributions.Chi2(3.0)
        >>> found.mean, found.log_prob(lucid.tensor(1.0))
        (tensor(3.), tensor(-1.4189))
    """

    arg_constraints: ClassVar = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: Any = None) -> None:
        (self.df,) = parameters_of(df)
        super().__init__(0.5 * self.df, 0.5, validate_args)


@like(Exponential)
class Beta(Distribution):
    """Proportions, by two concentrations.

    Density: in proportion to x^(a - 1) (1 - x)^(b - 1) for 0 <= x <= 1.

    Args:
        concentration1: a, above 0.
        concentration0: b, above 0; it broadcasts with a.

    Example:
        >>> found = lucid.distributions.Beta(2.0, 3.0)
        >>> found.mean, found.log_prob(lucid.tensor(0.5))
        (tensor(0.4000), tensor(0.4055))
    """

    arg_constraints: ClassVar = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    _formulas: ClassVar = {
        "mean": lambda d: d.concentration1 / (d.concentration1 + d.concentration0)
    }

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: Any = None) -> None:
        self.concentration1, self.concentration0 = parameters_of(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
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
class Dirichlet(Distribution):
    """Proportions of several parts, by their concentrations: `Beta` for more than two.

    Shapes: the concentrations' last axis is the event's, the others are the batch's. A draw sums up
    to 1.

    Args:
        concentration: a tensor of numbers above 0, with at least one axis.

    Example:
        >>> found = lucid.distributions.Dirichlet(lucid.tensor([1.0, 3.0]))
        >>> found.mean, found.log_prob(lucid.tensor([0.5, 0.5]))
        (tensor([0.2500, 0.7500]), tensor(-0.2877))
    """

    arg_constraints: ClassVar = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    _formulas: ClassVar = {
        "mode": lambda d: _mode_of_shares(d.concentration),
        "mean": lambda d: d.concentration / d.concentration.sum(-1, keepdim=True),
    }

    def __init__(self, concentration: Tensor, validate_args: Any = None) -> None:
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
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
class StudentT(Distribution):
    """A normal number over the root of an independent mean square; moved and scaled.

    The mean is NaN up to df = 1; the variance is infinite up to 2, and NaN up to 1.

    Args:
        df: the degrees of freedom, above 0.
        loc: what is added. Default: 0.
        scale: the factor before that, above 0. Default: 1.

    Example:
        >>> found = lucid.distributions.StudentT(3.0)
        >>> found.variance, found.log_prob(lucid.tensor(1.0))
        (tensor(3.), tensor(-1.5763))
    """

    arg_constraints: ClassVar = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    _formulas: ClassVar = {
        "mode": lambda d: d.loc,
        "mean": lambda d: lucid.where(d.df > 1, d.loc, math.nan),
    }

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: Any = None
    ) -> None:
        self.df, self.loc, self.scale = parameters_of(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
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
