"""The multinomial distribution: how often each of several categories comes."""

from __future__ import annotations

from typing import Any, ClassVar

import lucid
from lucid.distributions import constraints
from lucid.distributions.discrete import Binomial, OfCategories
from lucid.distributions.distribution import Distribution, Shape
from lucid.docstrings import like
from lucid.functions.arguments import integer
from lucid.ir.errors import OptionError
from lucid.nn import functional as F
from lucid.tensor.tensor import Tensor

__all__ = ["Multinomial"]


@like(Distribution)
class Multinomial(OfCategories):
    """How often each of k categories comes among `total_count` draws.

    Shapes: parameters of (…, k) give a batch of (…) and draws of (k,), which sum up to
    `total_count`.

    Args:
        total_count: the number of draws. Default: 1.
        probs: weights of the categories along the last axis, at least 0, which are normalized.
            Default: None, by `logits`.
        logits: logarithms of such weights, of any sum. Default: None, by `probs`.

    Raises:
        OptionError: `total_count` is negative, both or neither of `probs` and `logits` are given,
            or, where that is checked, a parameter is out of range.

    Example:
        >>> found = lucid.distributions.Multinomial(4, probs=lucid.tensor([1.0, 3.0]))
        >>> found.mean, found.log_prob(lucid.tensor([1.0, 3.0]))
        (tensor([1., 3.]), tensor(-0.8630))
    """

    _formulas: ClassVar = {
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

    @property
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

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
