"""Losses as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid.nn import functional as F
from lucid.nn.functional.reduction import check_reduction
from lucid.nn.modules.module import Module
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "CTCLoss",
    "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss",
    "MarginRankingLoss", "MSELoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss",
    "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
    "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]  # fmt: skip


class _Loss(Module):
    """A loss that is reduced."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction


class _WeightedLoss(_Loss):
    """A loss with a weight per class or element, which is a buffer."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        check_reduction(reduction)
        super().__init__(reduction)
        self.register_buffer("weight", weight)


class MSELoss(_Loss):
    """(input - target)^2.

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.mse_loss`.

    Args:
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.MSELoss()(lucid.ones(2), lucid.zeros(2))
        tensor(1.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, self.reduction)


class L1Loss(_Loss):
    """|input - target|.

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.l1_loss`.

    Args:
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.L1Loss()(lucid.ones(2), lucid.zeros(2))
        tensor(1.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, self.reduction)


class SmoothL1Loss(_Loss):
    """Quadratic below beta, linear above.

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.smooth_l1_loss`.

    Args:
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.
        beta: where squares turn to a line; 0 for none. Default: 1.0.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.SmoothL1Loss()(lucid.tensor([0.5, 3.0]), lucid.zeros(2))
        tensor(1.3125)
    """

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, self.reduction, live_attribute(self, "beta"))


class HuberLoss(_Loss):
    """Quadratic up to delta, linear above.

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.huber_loss`.

    Args:
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.
        delta: where squares turn to a line. Default: 1.0.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.HuberLoss()(lucid.tensor([0.5, 3.0]), lucid.zeros(2))
        tensor(1.3125)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, self.reduction, live_attribute(self, "delta"))


class KLDivLoss(_Loss):
    """target * (log(target) - input) for log probabilities in `input`.

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.kl_div`.

    Args:
        reduction: "none", "sum", "mean" over all elements, or "batchmean" over axis 0, which is the
            divergence. Default: 'mean'.
        log_target: the target holds log probabilities too. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.KLDivLoss()(lucid.tensor([0.5, 0.5]).log(), lucid.tensor([0.25, 0.75]))
        tensor(0.0654)
    """

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, self.reduction, self.log_target)


class NLLLoss(_WeightedLoss):
    """Negative log likelihood of the target classes under log probabilities.

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.nll_loss`.

    Args:
        weight: a factor for each class. None for 1.
        ignore_index: targets of this class count nothing. Default: -100.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.NLLLoss()(lucid.tensor([[-0.5, -1.0]]), lucid.tensor([1]))
        tensor(1.)
    """

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(weight, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class CrossEntropyLoss(_WeightedLoss):
    """Cross entropy of softmax(input) with target classes or class probabilities.

    Shapes: input (n, classes, *) of logits; target of class indices (n, *), or of probabilities of
    the input's shape. `forward(input, target)`; see `functional.cross_entropy`.

    Args:
        weight: a factor for each class, (classes,). None for 1.
        ignore_index: targets of this class count nothing. Default: -100.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.
        label_smoothing: how much of each target is spread over all classes, from 0 to 1. Default:
            0.0.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.CrossEntropyLoss()(lucid.zeros(1, 4), lucid.tensor([3]))
        tensor(1.3863)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        smoothing = live_attribute(self, "label_smoothing")
        return F.cross_entropy(
            input, target, self.weight, self.ignore_index, self.reduction, smoothing
        )


class BCELoss(_WeightedLoss):
    """Cross entropy of probabilities with targets in [0, 1].

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.binary_cross_entropy`.

    Args:
        weight: factors of the losses; None for 1.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.BCELoss()(lucid.tensor([0.5, 0.9]), lucid.ones(2))
        tensor(0.3993)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """Cross entropy of sigmoid(input) with targets in [0, 1].

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.binary_cross_entropy_with_logits`.

    Args:
        weight: factors of the losses; None for 1.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.
        pos_weight: what a positive target counts.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.BCEWithLogitsLoss()(lucid.zeros(2), lucid.ones(2))
        tensor(0.6931)
    """

    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, self.reduction, self.pos_weight
        )


class _MarginLoss(_Loss):
    """A loss with a margin."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin


class CosineEmbeddingLoss(_MarginLoss):
    """1 - cos where the target is 1, max(cos - margin, 0) where it is -1.

    `forward(input1, input2, target)`; see `functional.cosine_embedding_loss`.

    Args:
        margin: the cosine from which on pairs of target -1 count. Default: 0.0.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.CosineEmbeddingLoss()(lucid.eye(2), lucid.eye(2), lucid.tensor([1, -1]))
        tensor(0.5000)
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        margin = live_attribute(self, "margin")
        return F.cosine_embedding_loss(input1, input2, target, margin, self.reduction)


class MarginRankingLoss(_MarginLoss):
    """max(-target * (input1 - input2) + margin, 0).

    `forward(input1, input2, target)`: the target is 1 where the first should be greater, -1 where
    the second.

    Args:
        margin: how far apart the two must be for no loss. Default: 0.0.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.MarginRankingLoss()(lucid.ones(1), lucid.zeros(1), lucid.ones(1))
        tensor(0.)
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        margin = live_attribute(self, "margin")
        return F.margin_ranking_loss(input1, input2, target, margin, self.reduction)


class HingeEmbeddingLoss(_MarginLoss):
    """input where the target is 1, max(margin - input, 0) where it is -1.

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.hinge_embedding_loss`.

    Args:
        margin: how far apart the two must be for no loss. Default: 1.0.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.HingeEmbeddingLoss()(lucid.tensor([0.2, 0.3]), lucid.tensor([1.0, -1.0]))
        tensor(0.4500)
    """

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(margin, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        margin = live_attribute(self, "margin")
        return F.hinge_embedding_loss(input, target, margin, self.reduction)


class TripletMarginLoss(_MarginLoss):
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0) for the p-norm.

    `forward(anchor, positive, negative)`; see `functional.triplet_margin_loss`.

    Args:
        margin: how far apart the two must be for no loss. Default: 1.0.
        p: the order of the norm. Default: 2.0.
        eps: added to each difference. Default: 1e-06.
        swap: the negative's distance is the smaller of those to anchor and positive. Default:
            False.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.TripletMarginLoss()(lucid.zeros(1, 2), lucid.zeros(1, 2), lucid.tensor([[0.3, 0.4]]))
        tensor(0.5000)
    """

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
    """As `TripletMarginLoss`, with a distance of the caller's.

    `forward(anchor, positive, negative)`.

    Args:
        distance_function: gives the distances of two batches. None is the Euclidean distance.
        margin: how far apart the two must be for no loss. Default: 1.0.
        swap: the negative's distance is the smaller of those to anchor and positive. Default:
            False.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> x, y = lucid.zeros(1, 2), lucid.ones(1, 2)
        >>> taxi = lambda a, b: (a - b).abs().sum(-1)
        >>> nn.TripletMarginWithDistanceLoss(distance_function=taxi)(x, x, y)
        tensor(0.)
    """

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
    """log(1 + exp(-target * input)).

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.soft_margin_loss`.

    Args:
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.SoftMarginLoss()(lucid.zeros(2), lucid.tensor([1.0, -1.0]))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Binary cross entropy of each class, averaged over the last axis.

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.multilabel_soft_margin_loss`.

    Args:
        weight: a factor for each class. None for 1.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.MultiLabelSoftMarginLoss()(lucid.zeros(1, 2), lucid.ones(1, 2))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, self.weight, self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """Mean over the other classes of max(margin - input[target] + input, 0) ** p.

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.multi_margin_loss`.

    Args:
        p: the power, 1 or 2. Default: 1.
        margin: how far apart the two must be for no loss. Default: 1.0.
        weight: a factor for each class. None for 1.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.MultiMarginLoss()(lucid.tensor([[0.1, 0.9]]), lucid.tensor([0]))
        tensor(0.9000)
    """

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
    """Negative log likelihood of a normal distribution with a mean and a variance.

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target, var)`; see
    `functional.gaussian_nll_loss`.

    Args:
        full: add the term that doesn't depend on the input. Default: False.
        eps: keeps the division finite. Default: 1e-06.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.GaussianNLLLoss()(lucid.zeros(2), lucid.ones(2), lucid.ones(2))
        tensor(0.5000)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        eps = live_attribute(self, "eps")
        return F.gaussian_nll_loss(input, target, var, self.full, eps, self.reduction)


class PoissonNLLLoss(_Loss):
    """Negative log likelihood of a Poisson distribution with (the logarithm of) a rate.

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.poisson_nll_loss`.

    Args:
        log_input: the input holds logarithms of rates. Default: True.
        full: add the term that doesn't depend on the input. Default: False.
        eps: keeps the division finite. Default: 1e-08.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.PoissonNLLLoss()(lucid.zeros(2), lucid.ones(2))
        tensor(1.)
    """

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
    """The mean of max(1 - (x[target] - x[other]), 0), for targets up to the first -1.

    A loss, reduced to a number unless `reduction="none"`. `forward(input, target)`; see
    `functional.multilabel_margin_loss`.

    Args:
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.MultiLabelMarginLoss()(lucid.tensor([[0.1, 0.9, 0.4]]), lucid.tensor([[1, -1, 0]]))
        tensor(0.2333)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, self.reduction)


class CTCLoss(_Loss):
    """-log p(targets | log_probs), over all alignments with blanks between labels.

    `forward(log_probs, targets, input_lengths, target_lengths)`; see `functional.ctc_loss`.

    Reference: Graves et al., 2006.

    Args:
        blank: the class of the blank. Default: 0.
        reduction: "none" for each element's loss, "sum", or "mean" over them. Default: 'mean'.
        zero_infinity: infinite losses, of targets that are too long, and their gradients are 0.
            Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> log_probs = nn.LogSoftmax(-1)(lucid.zeros(4, 1, 3))
        >>> nn.CTCLoss()(log_probs, lucid.tensor([[1, 2]]), lucid.tensor([4]), lucid.tensor([2]))
        tensor(0.8432)
    """

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
