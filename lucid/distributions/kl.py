"""The Kullback-Leibler divergence of two distributions, by their types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import lucid
from lucid import linalg
from lucid.compiler.recording import hooks
from lucid.distributions import composed, discrete, location
from lucid.distributions.angles import ContinuousBernoulli
from lucid.distributions.distribution import Distribution, sum_rightmost
from lucid.distributions.positive import Beta, Dirichlet, Exponential, Gamma, Pareto
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
    return one + (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))


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
    return kl_divergence(p.base_dist, q.base_dist)


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


def _beta_uniform(p: Beta, q: location.Uniform) -> Tensor:
    outside = (q.low > 0) | (q.high < 1)
    return lucid.where(outside, math.inf, (q.high - q.low).log() - p.entropy())


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
    Beta: _beta,
    Dirichlet: _dirichlet,
    composed.MultivariateNormal: _multivariate,
    composed.LowRankMultivariateNormal: _of_low_rank,
    composed.Independent: _independent,
    composed.TransformedDistribution: _transformed,
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
    (location.Uniform, Exponential): lambda p, q: lucid.where(
        p.low < 0, math.inf, _of_exponential(p, q)
    ),
    **{(p, location.Normal): _of_normal for p in (Beta, ContinuousBernoulli, Exponential, Gamma)},
    **{
        (p, location.Normal): _of_normal
        for p in (location.Gumbel, location.Laplace, location.Uniform)
    },
    (Beta, location.Uniform): _beta_uniform,
    (location.Normal, location.Laplace): _normal_laplace,
}
_RULES.update(_OTHER | {(kind, kind): rule for kind, rule in _EQUAL.items()})
