"""Losses as modules."""

from __future__ import annotations

from lucid.nn import functional as F
from lucid.nn.functional.reduction import check_reduction
from lucid.nn.modules.module import Module
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CrossEntropyLoss", "HuberLoss", "KLDivLoss", "L1Loss",
    "MSELoss", "NLLLoss", "SmoothL1Loss",
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
