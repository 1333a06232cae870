"""Distributions over positive numbers with tails heavier, or lighter, than the exponential's."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lucid
from lucid.distributions import constraints
from lucid.distributions.distribution import Distribution, Shape, parameters_of, uniform_like
from lucid.distributions.standard_gamma import standard_gamma
from lucid.docstrings import like
from lucid.tensor.tensor import Tensor

__all__ = ["FisherSnedecor", "HalfCauchy", "InverseGamma", "Kumaraswamy", "Pareto", "Weibull"]

_EULER = 0.5772156649015329


@like(Distribution)
class Weibull(Distribution):
    """An exponential number to the power of 1 / `concentration`, times `scale`.

    Distribution function: 1 - exp(-(x / scale)^concentration) for x > 0.

    Args:
        scale: the factor, above 0.
        concentration: the shape, above 0: with 1 it is the exponential distribution.

    Example:
        >>> found = lucid.distributions.Weibull(2.0, 1.0)
        >>> found.mean, found.log_prob(lucid.tensor(1.0))
        (tensor(2.), tensor(-1.1931))
    """

    arg_constraints: ClassVar = {
        "scale": constraints.positive,
        "concentration": constraints.positive,
    }
    support = constraints.positive
    _formulas: ClassVar = {
        "mean": lambda d: d.scale * d._moment(1),
        "variance": lambda d: d.scale**2 * (d._moment(2) - d._moment(1) ** 2),
    }

    def __init__(self, scale: Any, concentration: Any, validate_args: Any = None) -> None:
        self.scale, self.concentration = parameters_of(scale, concentration)
        super().__init__(self.scale.shape, (), validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        u = uniform_like(self._extended_shape(sample_shape), self.scale)
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

    def _cdf(self, value: Tensor) -> Tensor:
        return -lucid.expm1(-((value / self.scale) ** self.concentration))

    def entropy(self) -> Tensor:
        inverse = 1 / self.concentration
        return _EULER * (1 - inverse) + (self.scale * inverse).log() + 1


@like(Weibull)
class Pareto(Distribution):
    """`scale` times the exponential of an exponential number of rate `alpha`.

    Distribution function: 1 - (scale / x)^alpha for x >= scale. The mean is infinite up to alpha =
    1, the variance up to 2.

    Args:
        scale: the least value, above 0.
        alpha: the rate, above 0: the less, the heavier the tail.

    Example:
        >>> found = lucid.distributions.Pareto(1.0, 3.0)
        >>> found.mean, found.log_prob(lucid.tensor(2.0))
        (tensor(1.5000), tensor(-1.6740))
    """

    arg_constraints: ClassVar = {"scale": constraints.positive, "alpha": constraints.positive}
    _formulas: ClassVar = {"mode": lambda d: d.scale}

    def __init__(self, scale: Any, alpha: Any, validate_args: Any = None) -> None:
        self.scale, self.alpha = parameters_of(scale, alpha)
        super().__init__(self.scale.shape, (), validate_args)

    @property
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        u = uniform_like(self._extended_shape(sample_shape), self.scale)
        return self.scale * (-u.log() / self.alpha).exp()

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

    def _cdf(self, value: Tensor) -> Tensor:
        return 1 - (self.scale / value) ** self.alpha

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + 1 / self.alpha


@like(Weibull)
class HalfCauchy(Distribution):
    """The size of a Cauchy number with median 0: its mean and variance are infinite.

    Density: 2 / (pi scale (1 + (x / scale)^2)) for x >= 0.

    Args:
        scale: the median, above 0.

    Example:
        >>> found = lucid.distributions.HalfCauchy(2.0)
        >>> found.cdf(lucid.tensor(2.0)), found.log_prob(lucid.tensor(1.0))
        (tensor(0.5000), tensor(-1.3679))
    """

    arg_constraints: ClassVar = {"scale": constraints.positive}
    support = constraints.nonnegative
    _formulas: ClassVar = {
        "mode": lambda d: lucid.zeros_like(d.scale),
        "mean": lambda d: lucid.full_like(d.scale, math.inf),
        "variance": lambda d: lucid.full_like(d.scale, math.inf),
    }

    def __init__(self, scale: Any, validate_args: Any = None) -> None:
        (self.scale,) = parameters_of(scale)
        super().__init__(self.scale.shape, (), validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        u = uniform_like(self._extended_shape(sample_shape), self.scale)
        return self.scale * (math.pi / 2 * u).tan()

    def _log_prob(self, value: Tensor) -> Tensor:
        relative = value / self.scale
        inside = math.log(2 / math.pi) - self.scale.log() - lucid.log1p(relative**2)
        return lucid.where(relative >= 0, inside, -math.inf)

    def _cdf(self, value: Tensor) -> Tensor:
        return 2 / math.pi * lucid.atan(value / self.scale)

    def entropy(self) -> Tensor:
        return math.log(2 * math.pi) + self.scale.log()


@like(Weibull)
class InverseGamma(Distribution):
    """The reciprocal of a gamma number.

    The mean is infinite up to a concentration of 1, the variance up to 2.

    Args:
        concentration: the gamma distribution's shape, above 0.
        rate: its rate, above 0; it broadcasts with the concentration.

    Example:
        >>> found = lucid.distributions.InverseGamma(3.0, 2.0)
        >>> found.mean, found.log_prob(lucid.tensor(1.0))
        (tensor(1.), tensor(-0.6137))
    """

    arg_constraints: ClassVar = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.positive
    _formulas: ClassVar = {"mode": lambda d: d.rate / (d.concentration + 1)}

    def __init__(self, concentration: Any, rate: Any, validate_args: Any = None) -> None:
        self.concentration, self.rate = parameters_of(concentration, rate)
        super().__init__(self.rate.shape, (), validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.rate / standard_gamma(self.concentration.expand(*shape))

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

    Example:
        >>> found = lucid.distributions.Kumaraswamy(2.0, 1.0)
        >>> found.mean, found.cdf(lucid.tensor(0.5))
        (tensor(0.6667), tensor(0.2500))
    """

    arg_constraints: ClassVar = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    _formulas: ClassVar = {
        "mean": lambda d: d._moment(1),
        "variance": lambda d: d._moment(2) - d._moment(1) ** 2,
    }

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: Any = None) -> None:
        self.concentration1, self.concentration0 = parameters_of(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        u = uniform_like(self._extended_shape(sample_shape), self.concentration1)
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

    def _cdf(self, value: Tensor) -> Tensor:
        return 1 - (1 - value**self.concentration1) ** self.concentration0

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = lucid.digamma(b + 1) + _EULER
        return 1 - 1 / b + (1 - 1 / a) * harmonic - a.log() - b.log()


@like(Weibull)
class FisherSnedecor(Distribution):
    """The quotient of two independent mean squares of `df1` and `df2` normal numbers.

    The mean is NaN up to df2 = 2, the variance up to 4.

    Args:
        df1: how many the upper mean square has, above 0.
        df2: how many the lower one has, above 0.

    Example:
        >>> found = lucid.distributions.FisherSnedecor(3.0, 6.0)
        >>> found.mean, found.log_prob(lucid.tensor(1.0))
        (tensor(1.5000), tensor(-0.9829))
    """

    arg_constraints: ClassVar = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    _formulas: ClassVar = {"mean": lambda d: lucid.where(d.df2 > 2, d.df2 / (d.df2 - 2), math.nan)}

    def __init__(self, df1: Any, df2: Any, validate_args: Any = None) -> None:
        self.df1, self.df2 = parameters_of(df1, df2)
        super().__init__(self.df1.shape, (), validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
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
