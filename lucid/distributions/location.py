"""Distributions of a location and a scale: normal, Laplace, Cauchy, uniform and others."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lucid
from lucid.distributions import constraints
from lucid.distributions.distribution import (
    Distribution,
    Shape,
    example,
    parameters_of,
    uniform_like,
)
from lucid.docstrings import like
from lucid.functions.checks import require
from lucid.tensor.tensor import Tensor

__all__ = ["Cauchy", "Gumbel", "HalfNormal", "Laplace", "LogNormal", "Normal", "Uniform"]

_EULER = 0.57721566490153286060


class _LocationScale(Distribution):
    """`loc + scale * (a draw from the standard distribution)`."""

    loc: Tensor
    scale: Tensor
    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    _formulas: ClassVar = {"mode": lambda d: d.loc, "mean": lambda d: d.loc}

    def __init__(self, loc: Any, scale: Any, validate_args: Any = None) -> None:
        self.loc, self.scale = parameters_of(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    def _standard(self, shape: Shape) -> Tensor:
        raise NotImplementedError

    def _drawn(self, shape: Shape) -> Tensor:
        return self.loc + self.scale * self._standard(shape)


class _Gaussian(_LocationScale):
    """What normal numbers and their exponentials share."""

    _formulas: ClassVar = {
        "entropy": lambda d: 0.5 + 0.5 * math.log(2 * math.pi) + d.scale.log(),
        "_cdf": lambda d, value: 0.5 * (1 + lucid.erf((value - d.loc) / d.scale / math.sqrt(2))),
        "icdf": lambda d, value: d.loc + d.scale * lucid.special.ndtri(value),
    }

    def _standard(self, shape: Shape) -> Tensor:
        return lucid.randn(tuple(shape), dtype=self.loc.dtype)


@like(Distribution)
@example("0.0, 2.0", "1.0", variance="4.", log_prob="-1.7371")
class Normal(_Gaussian):
    """The normal distribution with mean `loc` and standard deviation `scale`.

    Density: exp(-((x - loc) / scale)^2 / 2) / (scale sqrt(2 pi)).

    Args:
        loc: the mean: a number or a tensor.
        scale: the standard deviation, above 0; it broadcasts with `loc`.
    """

    _formulas: ClassVar = {"stddev": lambda d: d.scale, "variance": lambda d: d.scale**2}

    def _log_prob(self, value: Tensor) -> Tensor:
        distance = (value - self.loc) ** 2 / (2 * self.variance)
        return -distance - self.scale.log() - 0.5 * math.log(2 * math.pi)


@like(Normal)
@example("0.0, 2.0", "1.0", variance="8.", log_prob="-1.8863")
class Laplace(_LocationScale):
    """The double exponential distribution around `loc`.

    Density: exp(-|x - loc| / scale) / (2 scale).

    Args:
        scale: the mean distance from it, above 0; it broadcasts with `loc`.
    """

    _formulas: ClassVar = {
        "variance": lambda d: 2 * d.scale**2,
        "entropy": lambda d: 1 + (2 * d.scale).log(),
        "_log_prob": lambda d, value: -(2 * d.scale).log() - (value - d.loc).abs() / d.scale,
    }

    def _standard(self, shape: Shape) -> Tensor:
        u = uniform_like(shape, self.loc) * 2 - 1
        return -u.sign() * lucid.log1p(-u.abs().clamp(max=1 - 1e-7))

    def _cdf(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return 0.5 - 0.5 * z.sign() * lucid.expm1(-z.abs())

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * lucid.log1p(-2 * term.abs())


@like(Normal)
class Cauchy(_LocationScale):
    """The quotient of two normal numbers, moved and scaled.

    Its mean is NaN, its variance infinite.

    Density: 1 / (pi scale (1 + ((x - loc) / scale)^2)).

    Args:
        loc: the median: a number or a tensor.
        scale: half of the distance of the quartiles, above 0; it broadcasts with `loc`.

    >>> found = lucid.distributions.Cauchy(0.0, 2.0)
    >>> found.cdf(lucid.tensor(2.0)), found.log_prob(lucid.tensor(1.0))
    (tensor(0.7500), tensor(-2.0610))
    """

    _formulas: ClassVar = {
        "mean": lambda d: lucid.full_like(d.loc, math.nan),
        "variance": lambda d: lucid.full_like(d.loc, math.inf),
        "entropy": lambda d: math.log(4 * math.pi) + d.scale.log(),
        "_cdf": lambda d, value: lucid.atan((value - d.loc) / d.scale) / math.pi + 0.5,
        "icdf": lambda d, value: d.loc + d.scale * lucid.tan(math.pi * (value - 0.5)),
    }

    def _standard(self, shape: Shape) -> Tensor:
        return lucid.tan(math.pi * (uniform_like(shape, self.loc) - 0.5))

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - (z**2).log1p()


@like(Normal)
@example("0.0, 2.0", "1.0", mean="1.1544", log_prob="-1.7997")
class Gumbel(_LocationScale):
    """The distribution of the largest of many numbers.

    Density: exp(z - exp(z)) / scale with z = (loc - x) / scale.

    Args:
        loc: the mode: a number or a tensor.
        scale: the scale, above 0; it broadcasts with `loc`.
    """

    _formulas: ClassVar = {
        "mean": lambda d: d.loc + d.scale * _EULER,
        "variance": lambda d: math.pi**2 / 6 * d.scale**2,
        "entropy": lambda d: d.scale.log() + (1 + _EULER),
        "_cdf": lambda d, value: (-((d.loc - value) / d.scale).exp()).exp(),
        "icdf": lambda d, value: d.loc - d.scale * (-value.log()).log(),
    }

    def _standard(self, shape: Shape) -> Tensor:
        return -(-uniform_like(shape, self.loc).log()).clamp(min=1e-30).log()

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (self.loc - value) / self.scale
        return z - z.exp() - self.scale.log()


@like(Distribution)
@example("0.0, 1.0", "2.0", mean="1.6487", log_prob="-1.8523")
class LogNormal(_Gaussian):
    """The exponential of a normal number, so positive; a product of many factors is nearly so.

    Args:
        loc: the mean of the logarithm: a number or a tensor.
        scale: the standard deviation of the logarithm, above 0; it broadcasts with `loc`.
    """

    support = constraints.positive
    _formulas: ClassVar = {
        "mean": lambda d: (d.loc + d.scale**2 / 2).exp(),
        "mode": lambda d: (d.loc - d.scale**2).exp(),
        "stddev": lambda d: d.variance.sqrt(),
    }

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return super().rsample(sample_shape).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale**2
        return square.expm1() * (2 * self.loc + square).exp()

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value.log() - self.loc) / self.scale
        return -0.5 * z**2 - self.scale.log() - 0.5 * math.log(2 * math.pi) - value.log()

    def _cdf(self, value: Tensor) -> Tensor:
        return super()._cdf(value.log())

    def icdf(self, value: Tensor) -> Tensor:
        return super().icdf(value).exp()

    def entropy(self) -> Tensor:
        return super().entropy() + self.loc


@like(Normal)
@example("2.0", "1.0", mean="1.5958", log_prob="-1.0439")
class HalfNormal(Distribution):
    """The absolute value of a normal number with mean 0.

    Density: that of the normal distribution, twice, for x >= 0.

    Args:
        scale: the standard deviation of the normal number, above 0.
    """

    arg_constraints: ClassVar = {"scale": constraints.positive}
    support = constraints.nonnegative
    _formulas: ClassVar = {
        "mode": lambda d: lucid.zeros_like(d.scale),
        "mean": lambda d: d.scale * math.sqrt(2 / math.pi),
        "variance": lambda d: d.scale**2 * (1 - 2 / math.pi),
        "entropy": lambda d: 0.5 * math.log(math.pi / 2) + 0.5 + d.scale.log(),
        "_cdf": lambda d, value: lucid.erf(value / d.scale / math.sqrt(2)),
        "icdf": lambda d, value: d.scale * lucid.special.ndtri((value + 1) / 2),
        "_drawn": lambda d, shape: lucid.randn(shape, dtype=d.scale.dtype).abs() * d.scale,
    }

    def __init__(self, scale: Any, validate_args: Any = None) -> None:
        (self.scale,) = parameters_of(scale)
        super().__init__(self.scale.shape, (), validate_args)

    def _log_prob(self, value: Tensor) -> Tensor:
        density = math.log(2) - (value / self.scale) ** 2 / 2 - self.scale.log()
        return lucid.where(value >= 0, density - 0.5 * math.log(2 * math.pi), -math.inf)


@like(Distribution)
@example("0.0, 4.0", "1.0", mean="2.", log_prob="-1.3863")
class Uniform(Distribution):
    """Numbers from [low, high), all as likely.

    Density: 1 / (high - low) inside, 0 outside.

    Args:
        low: the least number.
        high: the bound above; greater than `low`, with which it broadcasts.

    Raises:
        OptionError: `low` isn't less than `high`, where that is checked.
    """

    arg_constraints: ClassVar = {"low": constraints.dependent, "high": constraints.dependent}
    _formulas: ClassVar = {
        "support": lambda d: constraints.interval(d.low, d.high),
        "mean": lambda d: (d.high + d.low) / 2,
        "variance": lambda d: (d.high - d.low) ** 2 / 12,
        "entropy": lambda d: (d.high - d.low).log(),
        "_cdf": lambda d, value: ((value - d.low) / (d.high - d.low)).clamp(0, 1),
        "icdf": lambda d, value: d.low + value * (d.high - d.low),
        "_drawn": lambda d, shape: d.low + lucid.rand(shape, dtype=d.low.dtype) * (d.high - d.low),
    }

    def __init__(self, low: Any, high: Any, validate_args: Any = None) -> None:
        self.low, self.high = parameters_of(low, high)
        super().__init__(self.low.shape, (), validate_args)

    def _check_parameters(self) -> None:
        bounds = {"low": self.low, "high": self.high}
        require(self.low < self.high, "Uniform: low must be less than high", **bounds)

    @property
    def mode(self) -> Tensor:
        """Not a number: all values are as likely."""
        return lucid.full_like(self.low, math.nan)

    def _log_prob(self, value: Tensor) -> Tensor:
        inside = (value >= self.low) & (value < self.high)
        return lucid.where(inside, 0.0 - (self.high - self.low).log(), -math.inf)
