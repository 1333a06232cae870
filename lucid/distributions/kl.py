"""The Kullback-Leibler divergence of two distributions, by their types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import lucid
from lucid import linalg
from lucid.compiler.recording import hooks
from lucid.distributions import composed, discrete, location, matrices
from lucid.distributions.angles import ContinuousBernoulli
from lucid.distributions.distribution import Distribution, sum_rightmost
from lucid.distributions.positive import (
    Beta,
    Dirichlet,
    Exponential,
    Gamma,
    HalfCauchy,
    InverseGamma,
    Pareto,
)
from lucid.functions.checks import require
from lucid.ir.errors import MissingRuleError
from lucid.ir.frames import edge
from lucid.tensor.tensor import Tensor

__all__ = ["kl_divergence", "register_kl"]

Rule = Callable[[Any, Any], Tensor]
_RULES: dict[tuple[type, type], Rule] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Rule], Rule]:
    """Decorate a function of two distributions of these types that returns their divergence.

    `kl_divergence` calls it for these types, and for subclasses that have no rule of their own.

    Args:
        type_p: of the first distribution.
        type_q: of the second one.

    >>> class Unit(lucid.distributions.Normal):
    ...     pass
    >>> @lucid.distributions.register_kl(Unit, Unit)
    ... def of_units(p, q):
    ...     return (p.loc - q.loc) ** 2 / 2
    >>> lucid.distributions.kl_divergence(Unit(0.0, 1.0), Unit(2.0, 1.0))
    tensor(2.)
    """

    @edge
    def registered(rule: Rule) -> Rule:
        _RULES[type_p, type_q] = rule
        return rule

    return registered


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Return KL(p || q), the mean under p of log p - log q.

    Shapes: the batches', broadcast. The rule is that of the nearest types that have one.

    Args:
        p: what draws are from.
        q: what it is compared with.

    Raises:
        MissingRuleError: a pair of types without a rule.

    >>> from lucid.distributions import Normal, kl_divergence
    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
    tensor(0.5000)
    """
    for mine in type(p).__mro__:
        for other in type(q).__mro__:
            if (mine, other) in _RULES:
                rule = _RULES[mine, other]
                hooks.meet(rule, f"kl_divergence.{rule.__name__}")
                return rule(p, q)
    kinds = f"{type(p).__name__}, {type(q).__name__}"
    raise MissingRuleError(f"no KL(p || q) of {kinds}\nhint: register_kl adds a rule")


def _normal(p: location.Normal, q: location.Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    distance = ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + distance - 1 - ratio.log())


def _laplace(p: location.Laplace, q: location.Laplace) -> Tensor:
    ratio = p.scale / q.scale
    distance = (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


def _uniform(p: location.Uniform, q: location.Uniform) -> Tensor:
    inside = (q.low <= p.low) & (q.high >= p.high)
    return lucid.where(inside, ((q.high - q.low) / (p.high - p.low)).log(), math.inf)


def _bernoulli(p: discrete.Bernoulli, q: discrete.Bernoulli) -> Tensor:
    softplus = lucid.nn.functional.softplus
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    one = lucid.where(p.probs == 0, 0.0, lucid.where(q.probs == 0, math.inf, one))
    return one + lucid.where(p.probs == 1, 0.0, lucid.where(q.probs == 1, math.inf, zero))


def _categorical(p: discrete.Categorical, q: discrete.Categorical) -> Tensor:
    never = p.probs == 0  # where logits may be -inf, with a gradient of 0
    parts = p.probs * lucid.where(never, 0.0, p.logits - q.logits)
    return lucid.where((q.probs == 0) & ~never, math.inf, parts).sum(-1)


def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    return (
        b * (p.rate / q.rate).log()
        + lucid.lgamma(b)
        - lucid.lgamma(a)
        + (a - b) * lucid.digamma(a)
        + (q.rate - p.rate) * (a / p.rate)
    )


def _beta(p: Beta, q: Beta) -> Tensor:
    parts = ((p.concentration1, q.concentration1), (p.concentration0, q.concentration0))
    total_p, total_q = (parts[0][i] + parts[1][i] for i in (0, 1))
    found: Any = lucid.lgamma(total_p) - lucid.lgamma(total_q)
    found = found - (total_p - total_q) * lucid.digamma(total_p)
    for a, b in parts:
        found = found + lucid.lgamma(b) - lucid.lgamma(a) + (a - b) * lucid.digamma(a)
    divergence: Tensor = found
    return divergence


def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    norms = lucid.lgamma(total) - lucid.lgamma(b.sum(-1))
    parts = (lucid.lgamma(a) - lucid.lgamma(b)).sum(-1)
    slopes = (a - b) * (lucid.digamma(a) - lucid.digamma(total).unsqueeze(-1))
    return norms - parts + slopes.sum(-1)


def _multivariate(p: composed.MultivariateNormal, q: composed.MultivariateNormal) -> Tensor:
    ratio = linalg.solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    distance = (q.loc - p.loc).unsqueeze(-1)
    white = linalg.solve_triangular(q.scale_tril, distance, upper=False)
    square = (ratio**2).sum((-2, -1)) + (white**2).sum((-2, -1))
    return q._half_log_det() - p._half_log_det() + 0.5 * (square - p.event_shape[0])


def _independent(p: composed.Independent, q: composed.Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise MissingRuleError("KL of Independents needs equal reinterpreted_batch_ndims")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


def _of_low_rank(p: Any, q: Any) -> Tensor:
    one, other = (composed.MultivariateNormal(d.loc, scale_tril=d.scale_tril) for d in (p, q))
    return _multivariate(one, other)


def _transformed(
    p: composed.TransformedDistribution, q: composed.TransformedDistribution
) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise MissingRuleError("KL of transformed distributions needs equal transforms")
    in_events = len(p.base_dist.batch_shape) - len(p.batch_shape)
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), max(in_events, 0))


def _wishart(p: matrices.Wishart, q: matrices.Wishart) -> Tensor:
    size, half_p, half_q = p.event_shape[0], p.df / 2, q.df / 2
    ratio = linalg.solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    return (
        q.df * (q._log_scale() - p._log_scale())
        + half_p * ((ratio**2).sum((-2, -1)) - size)
        + lucid.mvlgamma(half_q, size)
        - lucid.mvlgamma(half_p, size)
        + (half_p - half_q) * matrices.mvdigamma(half_p, size)
    )


def _half_normal(p: location.HalfNormal, q: location.HalfNormal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio - 1 - ratio.log())


def _cauchy(p: location.Cauchy, q: location.Cauchy) -> Tensor:
    square = (p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2
    return (square / (4 * p.scale * q.scale)).log()


def _gumbel(p: location.Gumbel, q: location.Gumbel) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc) / q.scale
    shape = (lucid.lgamma(1 + ratio) - distance).exp()
    return distance - ratio.log() + shape - 1 + np.euler_gamma * (ratio - 1)


def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return lucid.where(p.scale < q.scale, math.inf, found)


def _binomial(p: discrete.Binomial, q: discrete.Binomial) -> Tensor:
    one = p.probs * (p.logits - q.logits) + lucid.log1p(-p.probs) - lucid.log1p(-q.probs)
    fewer = (p.total_count < q.total_count).any()
    require(~fewer, "KL of Binomials of which the second has more trials isn't known")
    return lucid.where(p.total_count > q.total_count, math.inf, p.total_count * one)


def _log_linear(p: Distribution, q: Distribution) -> Tensor:
    """The logarithm of q's density is linear: its mean is that at the mean of p."""
    return -p.entropy() - q._log_prob(p.mean)


def _of_exponential(p: Distribution, q: Exponential) -> Tensor:
    """The mean under p of -log q, of x >= 0, is that at the mean."""
    return -p.entropy() - q.rate.log() + q.rate * p.mean


def _of_normal(p: Distribution, q: location.Normal) -> Tensor:
    """The mean under p of -log q has the mean and the variance of p alone in it."""
    square = (p.variance + (p.mean - q.loc) ** 2) / q.scale**2
    return 0.5 * (math.log(2 * math.pi) + square) + q.scale.log() - p.entropy()


def _of_proportion_uniform(p: Distribution, q: location.Uniform) -> Tensor:
    outside = (q.low > 0) | (q.high < 1)
    return lucid.where(outside, math.inf, (q.high - q.low).log() - p.entropy())


def _uniform_log_mean(low: Tensor, high: Tensor) -> Tensor:
    """The mean logarithm of numbers between these."""
    return (lucid.xlogy(high, high) - lucid.xlogy(low, low)) / (high - low) - 1


_LOG_MEANS: dict[type, Callable[[Any], Tensor]] = {
    Beta: lambda p: (
        lucid.digamma(p.concentration1) - lucid.digamma(p.concentration1 + p.concentration0)
    ),
    Pareto: lambda p: p.scale.log() + 1 / p.alpha,
    location.Uniform: lambda p: _uniform_log_mean(p.low, p.high),
}


def _by_type(table: dict[type, Callable[..., Tensor]], p: Distribution, *args: Tensor) -> Tensor:
    """What the entry for the type of p gives."""
    return next(table[kind] for kind in type(p).__mro__ if kind in table)(p, *args)


def _of_gamma(p: Distribution, q: Gamma) -> Tensor:
    a, log_mean = q.concentration, _by_type(_LOG_MEANS, p)
    mean = a * q.rate.log() - lucid.lgamma(a) + (a - 1) * log_mean - q.rate * p.mean
    return -p.entropy() - mean


def _uniform_pareto(p: location.Uniform, q: Pareto) -> Tensor:
    mean = (
        q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _uniform_log_mean(p.low, p.high)
    )
    return -p.entropy() - mean


def _uniform_beta(p: location.Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    norm = lucid.lgamma(a) + lucid.lgamma(b) - lucid.lgamma(a + b)
    one = (a - 1) * _uniform_log_mean(p.low, p.high)
    return norm - p.entropy() - one - (b - 1) * _uniform_log_mean(1 - p.high, 1 - p.low)


def _within(lower: Callable[[Any], Any], upper: Callable[[Any], Any], rule: Rule) -> Rule:
    """The rule for a uniform p, and inf where p leaves the support of q."""

    def checked(p: location.Uniform, q: Distribution) -> Tensor:
        return lucid.where((p.low < lower(q)) | (p.high > upper(q)), math.inf, rule(p, q))

    return checked


_LAPLACE_TRANSFORMS: dict[type, Callable[[Any, Tensor], Tensor]] = {
    location.Normal: lambda p, s: (0.5 * (s * p.scale) ** 2 - s * p.loc).exp(),
    Exponential: lambda p, s: p.rate / (p.rate + s),
    Gamma: lambda p, s: (1 + s / p.rate) ** -p.concentration,
    location.Uniform: lambda p, s: (
        ((-s * p.low).exp() - (-s * p.high).exp()) / (s * (p.high - p.low))
    ),
}


def _of_gumbel(p: Distribution, q: location.Gumbel) -> Tensor:
    """By the mean of exp(-x / scale)."""
    shape = (q.loc / q.scale).exp() * _by_type(_LAPLACE_TRANSFORMS, p, 1 / q.scale)
    return q.scale.log() + (p.mean - q.loc) / q.scale + shape - p.entropy()


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    """p draws what q never does."""
    shape = lucid.broadcast_shapes(p.batch_shape, q.batch_shape)
    return lucid.full_like(p.mean, math.inf).expand(shape)


def _normal_laplace(p: location.Normal, q: location.Laplace) -> Tensor:
    distance = (p.loc - q.loc) / p.scale
    mean = math.sqrt(2 / math.pi) * (-0.5 * distance**2).exp()
    mean = p.scale * (mean + distance * lucid.erf(distance * math.sqrt(0.5)))  # of |x - q.loc|
    return mean / q.scale + (2 * q.scale).log() - p.entropy()


_EQUAL: dict[type, Rule] = {
    location.Normal: _normal,
    location.LogNormal: _normal,
    location.Laplace: _laplace,
    location.Uniform: _uniform,
    discrete.Bernoulli: _bernoulli,
    discrete.Categorical: _categorical,
    discrete.OneHotCategorical: lambda p, q: _categorical(p._categorical, q._categorical),
    discrete.Poisson: lambda p, q: p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate),
    Exponential: _exponential,
    Gamma: _gamma,
    InverseGamma: lambda p, q: _gamma(*(Gamma(d.concentration, d.rate) for d in (p, q))),
    HalfCauchy: lambda p, q: ((p.scale + q.scale) ** 2 / (4 * p.scale * q.scale)).log(),
    Beta: _beta,
    Dirichlet: _dirichlet,
    composed.MultivariateNormal: _multivariate,
    composed.LowRankMultivariateNormal: _of_low_rank,
    composed.Independent: _independent,
    composed.TransformedDistribution: _transformed,
    matrices.Wishart: _wishart,
    location.HalfNormal: _half_normal,
    location.Cauchy: _cauchy,
    location.Gumbel: _gumbel,
    Pareto: _pareto,
    discrete.Binomial: _binomial,
    discrete.Geometric: _log_linear,
    ContinuousBernoulli: _log_linear,
}
_OTHER: dict[tuple[type, type], Rule] = {
    (composed.LowRankMultivariateNormal, composed.MultivariateNormal): _of_low_rank,
    (composed.MultivariateNormal, composed.LowRankMultivariateNormal): _of_low_rank,
    (Exponential, Gamma): lambda p, q: _gamma(Gamma(lucid.ones_like(p.rate), p.rate), q),
    **{(p, Exponential): _of_exponential for p in (Gamma, Beta, ContinuousBernoulli, Pareto)},
    (location.Uniform, Exponential): _within(lambda q: 0.0, lambda q: math.inf, _of_exponential),
    **{
        (p, location.Normal): _of_normal
        for p in (
            Beta,
            ContinuousBernoulli,
            Exponential,
            Gamma,
            Pareto,
            location.Gumbel,
            location.Laplace,
            location.Uniform,
        )
    },
    **{(p, Gamma): _of_gamma for p in (Beta, Pareto)},
    (location.Uniform, Gamma): _within(lambda q: 0.0, lambda q: math.inf, _of_gamma),
    (location.Uniform, Pareto): _within(lambda q: q.scale, lambda q: math.inf, _uniform_pareto),
    (location.Uniform, Beta): _within(lambda q: 0.0, lambda q: 1.0, _uniform_beta),
    (location.Uniform, ContinuousBernoulli): _within(lambda q: 0.0, lambda q: 1.0, _log_linear),
    (Beta, ContinuousBernoulli): _log_linear,
    **{(p, location.Gumbel): _of_gumbel for p in _LAPLACE_TRANSFORMS},
    **{(p, location.Uniform): _of_proportion_uniform for p in (Beta, ContinuousBernoulli)},
    (discrete.Bernoulli, discrete.Poisson): lambda p, q: (
        q.rate - p.probs * q.rate.log() - p.entropy()
    ),
    (location.Normal, location.Laplace): _normal_laplace,
}
_PROPORTIONS = (Beta, ContinuousBernoulli)
_REAL = (location.Gumbel, location.Laplace, location.Normal)
_BOUNDED = (*_PROPORTIONS, Pareto, location.Uniform)
_INFINITE: dict[type, tuple[type, ...]] = {
    **dict.fromkeys(_REAL, (*_BOUNDED, Exponential, Gamma)),
    **dict.fromkeys((Exponential, Gamma), _BOUNDED),
    Pareto: (*_PROPORTIONS, location.Uniform),
    **dict.fromkeys(_PROPORTIONS, (Pareto,)),
    discrete.Poisson: (discrete.Bernoulli, discrete.Binomial),
}
_RULES.update({(p, q): _infinite for p, others in _INFINITE.items() for q in others})
_RULES.update(_OTHER | {(kind, kind): rule for kind, rule in _EQUAL.items()})
