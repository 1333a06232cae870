"""Continuous relaxations of categories: their draws are differentiable, unlike categories.

Reference: Maddison, Mnih and Teh, "The Concrete Distribution", 2017; Jang, Gu and Poole,
"Categorical Reparameterization with Gumbel-Softmax", 2017.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lucid
from lucid.distributions import constraints
from lucid.distributions.discrete import Categorical, OfProbability
from lucid.distributions.distribution import Distribution, Shape, exactly_one, uniform_like
from lucid.docstrings import like
from lucid.tensor.tensor import Tensor

__all__ = ["RelaxedBernoulli", "RelaxedOneHotCategorical"]


@like(Distribution)
class RelaxedBernoulli(OfProbability):
    """Numbers between 0 and 1, the nearer to both the lower the `temperature`.

    Unlike those of `Bernoulli` draws are differentiable by the parameters.

    Args:
        temperature: above 0, a number or a tensor.
        probs: the probability of 1 at temperature 0, from 0 to 1. Default: None, by `logits`.
        logits: its log odds. Default: None, by `probs`.

    Raises:
        OptionError: both or neither of `probs` and `logits` are given, or, where that is checked, a
            parameter is out of range.

    Example:
        >>> found = lucid.distributions.RelaxedBernoulli(0.5, logits=lucid.tensor(0.0))
        >>> found.sample((3,)).shape, found.log_prob(lucid.tensor(0.25))
        (lucid.Size([3]), tensor(-0.4800))
    """

    support = constraints.unit_interval

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: Any = None
    ) -> None:
        super().__init__(probs, logits, validate_args)
        self.temperature: float | Tensor = temperature

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        eps = float(lucid.finfo(self.logits.dtype).eps)
        u = uniform_like(self._extended_shape(sample_shape), self.logits).clamp(eps, 1 - eps)
        drawn: Tensor = (u.log() - lucid.log1p(-u) + self.logits) / self.temperature
        return drawn.sigmoid()

    def _log_prob(self, value: Tensor) -> Tensor:
        inside, outside = value.log(), lucid.log1p(-value)
        odds = self.logits - (inside - outside) * self.temperature
        rate = lucid.as_tensor(self.temperature, dtype=odds.dtype).log()
        return rate + odds - 2 * lucid.softplus(odds) - inside - outside


@like(RelaxedBernoulli)
class RelaxedOneHotCategorical(Distribution):
    """Points between one-hot vectors, the nearer to them the lower the `temperature`.

    Unlike those of `OneHotCategorical` draws are differentiable by the parameters.
    Shapes: parameters of (…, k) give a batch of (…) and draws of (k,), which sum up to 1.

    Args:
        probs: weights of the categories along the last axis, at least 0, which are normalized.
            Default: None, by `logits`.
        logits: logarithms of such weights, of any sum. Default: None, by `probs`.

    Example:
        >>> found = lucid.distributions.RelaxedOneHotCategorical(0.5, logits=lucid.zeros(2))
        >>> found.sample((3,)).shape, found.log_prob(lucid.tensor([0.25, 0.75]))
        (lucid.Size([3, 2]), tensor(-0.4800))
    """

    arg_constraints: ClassVar = Categorical.arg_constraints
    support = constraints.simplex

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: Any = None
    ) -> None:
        exactly_one(type(self).__name__, probs, logits)
        self.temperature: float | Tensor = temperature
        categories = Categorical(probs, logits, validate_args)
        given = logits if probs is None else categories.probs.log()
        self.logits: Tensor = given - given.logsumexp(-1, keepdim=True)
        shape = categories.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    def _check_parameters(self) -> None:
        """The categories have done it, of what was given."""

    def expand(self, batch_shape: Shape) -> RelaxedOneHotCategorical:
        """Return the distribution with its logits expanded to `batch_shape`."""
        made: RelaxedOneHotCategorical = super().expand(batch_shape)
        made.temperature = self.temperature  # which has no axis for the categories
        return made

    @property
    def probs(self) -> Tensor:
        """The probabilities of the categories."""
        return self.logits.exp()

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        eps = float(lucid.finfo(self.logits.dtype).eps)
        u = uniform_like(self._extended_shape(sample_shape), self.logits).clamp(eps, 1 - eps)
        scores: Tensor = (self.logits - (-u.log()).log()) / self.temperature
        return scores.softmax(-1)

    def _log_prob(self, value: Tensor) -> Tensor:
        count, logs = self.logits.shape[-1], value.log()
        rate = lucid.as_tensor(self.temperature, dtype=logs.dtype).log()
        scores = self.logits - logs * self.temperature
        scores = (scores - scores.logsumexp(-1, keepdim=True)).sum(-1)
        return scores + math.lgamma(count) + (count - 1) * rate - logs.sum(-1)
