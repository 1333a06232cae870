"""Losses on pairs, triples, margins and distributions as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid.nn import functional as F
from lucid.nn.modules.loss import _Loss, _WeightedLoss
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor


class _MarginLoss(_Loss):
    """A loss with a margin."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin


class CosineEmbeddingLoss(_MarginLoss):
    """1 - cos where the target is 1, max(cos - margin, 0) where it is -1."""

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        margin = live_attribute(self, "margin")
        return F.cosine_embedding_loss(input1, input2, target, margin, self.reduction)


class MarginRankingLoss(_MarginLoss):
    """max(-target * (input1 - input2) + margin, 0)."""

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        margin = live_attribute(self, "margin")
        return F.margin_ranking_loss(input1, input2, target, margin, self.reduction)


class HingeEmbeddingLoss(_MarginLoss):
    """input where the target is 1, max(margin - input, 0) where it is -1."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(margin, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        margin = live_attribute(self, "margin")
        return F.hinge_embedding_loss(input, target, margin, self.reduction)


class TripletMarginLoss(_MarginLoss):
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0) for the p-norm."""

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, reduction)
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        margin, eps = live_attribute(self, "margin"), live_attribute(self, "eps")
        return F.triplet_margin_loss(
            anchor, positive, negative, margin, self.p, eps, self.swap, self.reduction
        )


class TripletMarginWithDistanceLoss(_MarginLoss):
    """As `TripletMarginLoss`, with a distance of the caller's."""

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, reduction)
        self.distance_function = distance_function
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=live_attribute(self, "margin"),
            swap=self.swap,
            reduction=self.reduction,
        )


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input))."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Binary cross entropy of each class, averaged over the last axis."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, self.weight, self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """Mean over the other classes of max(margin - input[target] + input, 0) ** p."""

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, reduction)
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        margin = live_attribute(self, "margin")
        return F.multi_margin_loss(input, target, self.p, margin, self.weight, self.reduction)


class GaussianNLLLoss(_Loss):
    """Negative log likelihood of a normal distribution with a mean and a variance."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        eps = live_attribute(self, "eps")
        return F.gaussian_nll_loss(input, target, var, self.full, eps, self.reduction)


class PoissonNLLLoss(_Loss):
    """Negative log likelihood of a Poisson distribution with (the logarithm of) a rate."""

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        eps = live_attribute(self, "eps")
        return F.poisson_nll_loss(input, target, self.log_input, self.full, eps, self.reduction)


class MultiLabelMarginLoss(_Loss):
    """The mean of max(1 - (x[target] - x[other]), 0), for targets up to the first -1."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, self.reduction)


class CTCLoss(_Loss):
    """-log p(targets | log_probs), over all alignments with blanks between labels."""

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        return F.ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )
