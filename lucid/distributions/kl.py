"""The Kullback-Leibler divergence of two distributions, by their types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lucid
from lucid import linalg
from lucid.compiler.recording import hooks
from lucid.distributions.composed import Independent, MultivariateNormal
from lucid.distributions.discrete import Bernoulli, Categorical, OneHotCategorical, Poisson
from lucid.distributions.distribution import Distribution, sum_rightmost
from lucid.distributions.location import Laplace, LogNormal, Normal, Uniform
from lucid.distributions.positive import Beta, Dirichlet, Exponential, Gamma
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

    Example:
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

    Example:
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


def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    distance = ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + distance - 1 - ratio.log())


def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio = p.scale / q.scale
    distance = (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


def _uniform(p: Uniform, q: Uniform) -> Tensor:
    inside = (q.low <= p.low) & (q.high >= p.high)
    return lucid.where(inside, ((q.high - q.low) / (p.high - p.low)).log(), math.inf)


def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    softplus = lucid.nn.functional.softplus
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    return one + (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))


def _categorical(p: Categorical, q: Categorical) -> Tensor:
    return (p.probs * (p.logits - q.logits)).sum(-1)


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


def _multivariate(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    ratio = linalg.solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    distance = (q.loc - p.loc).unsqueeze(-1)
    white = linalg.solve_triangular(q.scale_tril, distance, upper=False)
    square = (ratio**2).sum((-2, -1)) + (white**2).sum((-2, -1))
    return q._half_log_det() - p._half_log_det() + 0.5 * (square - p.event_shape[0])


def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise MissingRuleError("KL of Independents needs equal reinterpreted_batch_ndims")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


_EQUAL: dict[type, Rule] = {
    Normal: _normal,
    LogNormal: _normal,
    Laplace: _laplace,
    Uniform: _uniform,
    Bernoulli: _bernoulli,
    Categorical: _categorical,
    OneHotCategorical: lambda p, q: _categorical(p._categorical, q._categorical),
    Poisson: lambda p, q: p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate),
    Exponential: _exponential,
    Gamma: _gamma,
    Beta: _beta,
    Dirichlet: _dirichlet,
    MultivariateNormal: _multivariate,
    Independent: _independent,
}
_RULES.update({(kind, kind): rule for kind, rule in _EQUAL.items()})
