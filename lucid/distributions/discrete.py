"""Distributions over whole numbers and categories, and continuous relaxations of them.

Reference: Maddison, Mnih and Teh, "The Concrete Distribution", 2017; Jang, Gu and Poole,
"Categorical Reparameterization with Gumbel-Softmax", 2017.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lucid
from lucid.distributions import constraints
from lucid.distributions.distribution import (
    Distribution,
    Shape,
    exactly_one,
    example,
    parameters_of,
    require_axis,
    uniform_like,
)
from lucid.distributions.positive import standard_gamma
from lucid.docstrings import like
from lucid.functions.arguments import integer
from lucid.ir.errors import MissingRuleError, OptionError
from lucid.nn import functional as F
from lucid.tensor.tensor import Tensor

__all__ = [
    "Bernoulli", "Binomial", "Categorical", "Geometric", "LogitRelaxedBernoulli", "Multinomial",
    "NegativeBinomial", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Poisson",
    "RelaxedBernoulli", "RelaxedOneHotCategorical",
]  # fmt: skip


def _clamped(probs: Tensor) -> Tensor:
    eps = float(lucid.finfo(probs.dtype).eps)
    return probs.clamp(eps, 1 - eps)


class OfProbability(Distribution):
    """A distribution given by `probs` or by `logits`, their log odds."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        exactly_one(type(self).__name__, probs, logits)
        self._given = "probs" if logits is None else "logits"
        (self._parameter,) = parameters_of(probs if logits is None else logits)
        super().__init__(self._parameter.shape, (), validate_args)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check(self._given, self.arg_constraints[self._given], self._parameter)

    @property
    def probs(self) -> Tensor:
        """The probability of 1."""
        return self._parameter if self._given == "probs" else self._parameter.sigmoid()

    @property
    def logits(self) -> Tensor:
        """The logarithm of the odds."""
        if self._given == "logits":
            return self._parameter
        p = _clamped(self._parameter)
        return p.log() - (-p).log1p()

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._parameter.shape


@like(Distribution)
@example("probs=0.25", "1.0", variance="0.1875", log_prob="-1.3863")
class Bernoulli(OfProbability):
    """1 with probability `probs`, else 0.

    Draws have the parameter's dtype, and no gradient.

    Args:
        probs: the probability, from 0 to 1. Default: None, by `logits`.
        logits: its log odds. Default: None, by `probs`.

    Raises:
        OptionError: both or neither of `probs` and `logits` are given, or, where that is checked, a
            parameter is out of range.
    """

    has_enumerate_support = True
    support = constraints.boolean
    _formulas: ClassVar = {
        "mean": lambda d: d.probs,
        "variance": lambda d: d.probs * (1 - d.probs),
        "entropy": lambda d: _surprise(d.logits, d.probs),
        "_sampled": lambda d, times: lucid.bernoulli(d.probs.expand(*d._extended_shape(times))),
    }

    @property
    def mode(self) -> Tensor:
        """The likelier value; NaN where both are as likely."""
        p = self.probs
        return lucid.where(p == 0.5, math.nan, (p >= 0.5).to(p.dtype))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(lucid.arange(2).to(self._parameter.dtype), expand)

    def _log_prob(self, value: Tensor) -> Tensor:
        logits, target = lucid.broadcast_tensors(self.logits, value)
        return -_surprise(logits, target.to(logits.dtype))


def _surprise(logits: Tensor, target: Tensor) -> Tensor:
    """The negative logarithm of the probability of each target, at these log odds."""
    return F.binary_cross_entropy_with_logits(logits, target, reduction="none")


@like(Bernoulli)
@example("probs=0.25", "2.0", mean="3.", log_prob="-1.9617")
class Geometric(OfProbability):
    """How many failures come before the first success.

    Probability: probs (1 - probs)^k for k = 0, 1, 2 and so on.

    Args:
        probs: the probability of a success, above 0 and up to 1. Default: None, by `logits`.
    """

    arg_constraints: ClassVar = {"probs": constraints.open_below(0, 1), "logits": constraints.real}
    support = constraints.nonnegative_integer
    _formulas: ClassVar = {
        "mode": lambda d: lucid.zeros_like(d.probs),
        "mean": lambda d: 1 / d.probs - 1,
        "variance": lambda d: (1 / d.probs - 1) / d.probs,
        "entropy": lambda d: _surprise(d.logits, d.probs) / d.probs,
    }

    def _sampled(self, sample_shape: Shape) -> Tensor:
        u = uniform_like(self._extended_shape(sample_shape), self._parameter)
        return (u.log() / (-self.probs).log1p()).floor()

    def _log_prob(self, value: Tensor) -> Tensor:
        failure = (-self.probs).log1p()
        return lucid.xlogy(value, 1 - self.probs) + self.probs.log() + 0 * failure


@like(Bernoulli)
@example("probs=lucid.tensor([1.0, 3.0])", "1", probs="[0.2500, 0.7500]", log_prob="-0.2877")
class Categorical(Distribution):
    """One of k categories, by the last axis of `probs` (normalized) or `logits`.

    Shapes: parameters of (…, k) give a batch of (…); draws are indices, i64.

    Args:
        probs: weights of the categories along the last axis, at least 0, which are normalized.
            Default: None, by `logits`.
        logits: logarithms of such weights, of any sum. Default: None, by `probs`.
    """

    has_enumerate_support = True
    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _formulas: ClassVar = {
        "support": lambda d: constraints.integer_interval(0, d._num_events - 1),
        "mean": lambda d: d._nan(),
        "variance": lambda d: d._nan(),
    }

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        exactly_one(type(self).__name__, probs, logits)
        require_axis(self, "probs or logits", logits if probs is None else probs)
        if probs is not None:
            self._given, self._parameter = "probs", probs / probs.sum(-1, keepdim=True)
        else:
            self._given, self._parameter = "logits", logits - logits.logsumexp(-1, keepdim=True)
        super().__init__(self._parameter.shape[:-1], (), validate_args)

    def _check_parameters(self) -> None:
        self._check(self._given, self.arg_constraints[self._given], self._parameter)

    @property
    def probs(self) -> Tensor:
        """The categories' probabilities."""
        return self._parameter if self._given == "probs" else F.softmax(self._parameter, -1)

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._parameter if self._given == "logits" else _clamped(self._parameter).log()

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._parameter.shape

    def _nan(self) -> Tensor:
        """Categories are no numbers, so they have no mean."""
        nan: Tensor = self._parameter.new_full(self._batch_shape, math.nan)
        return nan

    @property
    def _num_events(self) -> int:
        return int(self._parameter.shape[-1])

    def _sampled(self, sample_shape: Shape) -> Tensor:
        rows = self.probs.reshape(-1, self._num_events)
        count = math.prod(sample_shape)
        drawn = lucid.multinomial(rows, count, True).T
        return drawn.reshape(self._extended_shape(sample_shape))

    @property
    def mode(self) -> Tensor:
        """The likeliest category."""
        return self.probs.argmax(-1)

    def _log_prob(self, value: Tensor) -> Tensor:
        index, logits = lucid.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        lowest = float(lucid.finfo(self._parameter.dtype).min)
        return -(self.logits.clamp(min=lowest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(lucid.arange(self._num_events), expand)


class OfCategories(Distribution):
    """A vector for each draw, or some draws, of a categorical distribution."""

    arg_constraints: ClassVar = Categorical.arg_constraints

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        self._given, shape = self._categorical._given, self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def probs(self) -> Tensor:
        """The categories' probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._categorical.param_shape


@like(Categorical)
class OneHotCategorical(OfCategories):
    """A category as a vector with a single 1.

    Shapes: parameters of (…, k) give a batch of (…) and draws of (k,), in the parameters' dtype.

    >>> found = lucid.distributions.OneHotCategorical(probs=lucid.tensor([1.0, 3.0]))
    >>> found.mean, found.log_prob(lucid.tensor([0.0, 1.0]))
    (tensor([0.2500, 0.7500]), tensor(-0.2877))
    """

    has_enumerate_support = True
    support = constraints.one_hot
    _formulas: ClassVar = {
        "mode": lambda d: F.one_hot(d._categorical.mode, d._event_shape[0]).to(d.probs.dtype),
        "mean": lambda d: d.probs,
        "variance": lambda d: d.probs * (1 - d.probs),
        "entropy": lambda d: d._categorical.entropy(),
        "_log_prob": lambda d, value: d._categorical.log_prob(value.argmax(-1)),
    }

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        index = self._categorical.sample(sample_shape)
        return F.one_hot(index, self._event_shape[0]).to(self.probs.dtype)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(lucid.eye(self._event_shape[0]).to(self.probs.dtype), expand)


@like(OneHotCategorical)
class OneHotCategoricalStraightThrough(OneHotCategorical):
    """As `OneHotCategorical`, with the gradient of the probabilities.

    `rsample` draws the same vectors, whose derivative is taken as that of `probs`.

    >>> logits = lucid.zeros(3, requires_grad=True)
    >>> found = lucid.distributions.OneHotCategoricalStraightThrough(logits=logits)
    >>> found.rsample().sum(), found.rsample().requires_grad
    (tensor(1., grad_fn=<SumBackward>), True)
    """

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        probs = self.probs
        return self.sample(sample_shape) + (probs - probs.detach())


@like(Distribution)
@example("4.0", "3.0", mean="4.", log_prob="-1.6329")
class Poisson(Distribution):
    """How many events come in a unit of time, of `rate` on average.

    Probability: rate^k exp(-rate) / k!. Draws have the rate's dtype, and no gradient.

    Args:
        rate: the mean number, at least 0.
    """

    arg_constraints: ClassVar = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    _formulas: ClassVar = {
        "mode": lambda d: d.rate.floor(),
        "mean": lambda d: d.rate,
        "variance": lambda d: d.rate,
        "_log_prob": lambda d, value: lucid.xlogy(value, d.rate) - d.rate - lucid.lgamma(value + 1),
        "_sampled": lambda d, times: lucid.poisson(d.rate.expand(*d._extended_shape(times))),
    }

    def __init__(self, rate: Any, validate_args: Any = None) -> None:
        (self.rate,) = parameters_of(rate)
        super().__init__(self.rate.shape, (), validate_args)


class _OfTrials(OfProbability):
    """A distribution with a number of trials besides their probability."""

    total_count: Tensor

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: Any = None
    ) -> None:
        exactly_one(type(self).__name__, probs, logits)
        given = probs if logits is None else logits
        given, self.total_count = parameters_of(given, total_count)
        chosen = {"probs": given} if logits is None else {"logits": given}
        super().__init__(**chosen, validate_args=validate_args)


@like(Bernoulli)
@example("4, probs=0.25", "1.0", mean="1.", log_prob="-0.8630")
class Binomial(_OfTrials):
    """How many of `total_count` independent trials succeed.

    Draws have the parameters' dtype, and no gradient.

    Args:
        total_count: the number of trials, a whole number or a tensor of them.
        probs: the probability of a success, from 0 to 1. Default: None, by `logits`.
    """

    has_enumerate_support = True
    arg_constraints: ClassVar = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    _formulas: ClassVar = {
        "support": lambda d: constraints.integer_interval(0, d.total_count),
        "mode": lambda d: lucid.minimum(((d.total_count + 1) * d.probs).floor(), d.total_count),
        "mean": lambda d: d.total_count * d.probs,
        "variance": lambda d: d.total_count * d.probs * (1 - d.probs),
    }

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: Any = None
    ) -> None:
        super().__init__(total_count, probs, logits, validate_args)

    def _sampled(self, sample_shape: Shape) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return lucid.binomial(self.total_count.expand(*shape), self.probs.expand(*shape))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        trials = int(self.total_count.max().item())
        if not (self.total_count == trials).all():
            raise MissingRuleError("Binomial: enumerate_support needs one total_count for all")
        return self._enumerated(lucid.arange(trials + 1).to(self.probs.dtype), expand)

    def _log_prob(self, value: Tensor) -> Tensor:
        n, logits = self.total_count, self.logits
        ways = lucid.lgamma(n + 1) - lucid.lgamma(value + 1) - lucid.lgamma(n - value + 1)
        return ways + value * logits - n * F.softplus(logits)

    def entropy(self) -> Tensor:
        logs = self._log_prob(self.enumerate_support(expand=False))
        return -(logs.exp() * logs).sum(0)


@like(Binomial)
@example("3.0, probs=0.5", "2.0", mean="3.", log_prob="-1.6740")
class NegativeBinomial(_OfTrials):
    """Successes, of probability `probs`, before `total_count` failures.

    Args:
        total_count: the number of failures, at least 0; it needn't be whole.
        probs: the probability of a success, from 0 on, below 1. Default: None, by `logits`.
    """

    arg_constraints: ClassVar = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0, 1),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    _formulas: ClassVar = {
        "mode": lambda d: ((d.total_count - 1) * d.logits.exp()).floor().clamp(min=0),
        "mean": lambda d: d.total_count * d.logits.exp(),
        "variance": lambda d: d.mean / (-d.logits).sigmoid(),
    }

    def _sampled(self, sample_shape: Shape) -> Tensor:
        count = self.total_count.expand(*self._extended_shape(sample_shape))
        return Poisson(standard_gamma(count) * self.logits.exp()).sample()

    def _log_prob(self, value: Tensor) -> Tensor:
        count, logits = self.total_count, self.logits
        ways = lucid.lgamma(count + value) - lucid.lgamma(1.0 + value) - lucid.lgamma(count)
        return count * F.logsigmoid(-logits) + value * F.logsigmoid(logits) + ways


@like(Distribution)
@example("4, probs=lucid.tensor([1.0, 3.0])", "[1.0, 3.0]", mean="[1., 3.]", log_prob="-0.8630")
class Multinomial(OfCategories):
    """How often each of k categories comes among `total_count` draws.

    Shapes: parameters of (…, k) give a batch of (…) and draws of (k,), which sum up to
    `total_count`.

    Args:
        total_count: the number of draws.
        probs: weights of the categories along the last axis, at least 0, which are normalized.
            Default: None, by `logits`.
        logits: logarithms of such weights, of any sum. Default: None, by `probs`.

    Raises:
        OptionError: `total_count` is negative, both or neither of `probs` and `logits` are given,
            or, where that is checked, a parameter is out of range.
    """

    _formulas: ClassVar = {
        "support": lambda d: constraints.multinomial(d.total_count),
        "mean": lambda d: d.probs * d.total_count,
        "variance": lambda d: d.total_count * d.probs * (1 - d.probs),
    }

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: Any = None
    ) -> None:
        self.total_count = integer(total_count, "Multinomial", "total_count")
        if self.total_count < 0:
            raise OptionError(f"Multinomial: total_count must be at least 0, not {total_count}")
        super().__init__(probs, logits, validate_args)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        return F.one_hot(drawn, self._event_shape[0]).to(self.probs.dtype).sum(0)

    def _log_prob(self, value: Tensor) -> Tensor:
        ways = lucid.lgamma(value.sum(-1) + 1) - lucid.lgamma(value + 1).sum(-1)
        logits = lucid.where(value == 0, 0.0, self.logits)  # 0 * -inf counts as 0
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        count = lucid.tensor(float(self.total_count), dtype=self.probs.dtype)
        support = lucid.arange(1, self.total_count + 1, dtype=count.dtype)
        column = support.reshape(-1, *(1,) * self.probs.ndim)
        chances = Binomial(self.total_count, self.probs, validate_args=False).log_prob(column).exp()
        spread = (chances * lucid.lgamma(column + 1)).sum((0, -1))
        return count * self._categorical.entropy() - lucid.lgamma(count + 1) + spread


@like(Distribution)
class LogitRelaxedBernoulli(OfProbability):
    """The log odds of `RelaxedBernoulli`, the further from 0 the lower the `temperature`.

    Draws are differentiable by the parameters.

    Args:
        temperature: above 0, a number or a tensor.
        probs: the probability of 1 at temperature 0, from 0 to 1. Default: None, by `logits`.
        logits: its log odds. Default: None, by `probs`.

    Raises:
        OptionError: both or neither of `probs` and `logits` are given, or, where that is checked, a
            parameter is out of range.

    >>> found = lucid.distributions.LogitRelaxedBernoulli(0.5, logits=lucid.tensor(0.0))
    >>> found.sample((3,)).shape, found.log_prob(lucid.tensor(1.0))
    (lucid.Size([3]), tensor(-2.1413))
    """

    support = constraints.real

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: Any = None
    ) -> None:
        super().__init__(probs, logits, validate_args)
        self.temperature: float | Tensor = temperature

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        eps = float(lucid.finfo(self.logits.dtype).eps)
        u = uniform_like(self._extended_shape(sample_shape), self.logits).clamp(eps, 1 - eps)
        drawn: Tensor = (u.log() - lucid.log1p(-u) + self.logits) / self.temperature
        return drawn

    def _log_prob(self, value: Tensor) -> Tensor:
        odds = self.logits - value * self.temperature
        rate = lucid.as_tensor(self.temperature, dtype=odds.dtype).log()
        return rate + odds - 2 * lucid.softplus(odds)


@like(LogitRelaxedBernoulli)
class RelaxedBernoulli(LogitRelaxedBernoulli):
    """Numbers between 0 and 1, the nearer to both the lower the `temperature`.

    Unlike those of `Bernoulli` draws are differentiable by the parameters.

    >>> found = lucid.distributions.RelaxedBernoulli(0.5, logits=lucid.tensor(0.0))
    >>> found.sample((3,)).shape, found.log_prob(lucid.tensor(0.25))
    (lucid.Size([3]), tensor(-0.4800))
    """

    support = constraints.unit_interval

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return super().rsample(sample_shape).sigmoid()

    def _log_prob(self, value: Tensor) -> Tensor:
        inside, outside = value.log(), lucid.log1p(-value)
        return super()._log_prob(inside - outside) - inside - outside


@like(RelaxedBernoulli)
class RelaxedOneHotCategorical(Distribution):
    """Points between one-hot vectors, the nearer to them the lower the `temperature`.

    Unlike those of `OneHotCategorical` draws are differentiable by the parameters.
    Shapes: parameters of (…, k) give a batch of (…) and draws of (k,), which sum up to 1.

    Args:
        probs: weights of the categories along the last axis, at least 0, which are normalized.
            Default: None, by `logits`.
        logits: logarithms of such weights, of any sum. Default: None, by `probs`.

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

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        """Return the distribution with its logits expanded to `batch_shape`."""
        made = super().expand(batch_shape, _instance)
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
