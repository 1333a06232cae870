"""Losses as modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any

from lucid.ir.errors import OptionError
from lucid.ir.misfits import reduction_of
from lucid.nn import functional as F
from lucid.nn.functional.loss import check_reduction
from lucid.nn.modules.settings import FunctionModule, settings_of
from lucid.tensor.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "CTCLoss",
    "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss",
    "MarginRankingLoss", "MSELoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss",
    "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
    "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]  # fmt: skip


class _Loss(FunctionModule):
    """A loss that is reduced; losses of users extend it with PyTorch's arguments."""

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.reduction = reduction_of(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return self._result(input, target)

    def extra_repr(self) -> str:
        return ""


class _WeightedLoss(_Loss):
    """A loss with a weight per class or element, which is a buffer."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)

    def __post_init__(self) -> None:
        check_reduction(self.reduction)


class _PairLoss(_Loss):
    """A loss of two inputs."""

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        return self._result(input1, input2, target)


class _TripletLoss(_Loss):
    """A loss of an anchor, one that belongs to it and one that doesn't."""

    margin: float

    def __post_init__(self) -> None:
        if self.margin <= 0:
            raise OptionError(f"{type(self).__name__}: margin must be above 0, not {self.margin}")

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:  # type: ignore[override]
        return self._result(anchor, positive, negative)


@settings_of(F.mse_loss)
class MSELoss(_Loss):
    reduction: str = "mean"


@settings_of(F.l1_loss)
class L1Loss(_Loss):
    reduction: str = "mean"


@settings_of(F.smooth_l1_loss)
class SmoothL1Loss(_Loss):
    reduction: str = "mean"
    beta: float = 1.0


@settings_of(F.huber_loss)
class HuberLoss(_Loss):
    reduction: str = "mean"
    delta: float = 1.0


@settings_of(F.kl_div)
class KLDivLoss(_Loss):
    reduction: str = "mean"
    log_target: bool = False


@settings_of(F.nll_loss)
class NLLLoss(_WeightedLoss):
    weight: Tensor | None = None
    ignore_index: int = -100
    reduction: str = "mean"


@settings_of(F.cross_entropy)
class CrossEntropyLoss(_WeightedLoss):
    weight: Tensor | None = None
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0


@settings_of(F.binary_cross_entropy)
class BCELoss(_WeightedLoss):
    weight: Tensor | None = None
    reduction: str = "mean"


@settings_of(F.binary_cross_entropy_with_logits)
class BCEWithLogitsLoss(_WeightedLoss):
    weight: Tensor | None = None
    reduction: str = "mean"
    pos_weight: Tensor | None = None


@settings_of(F.cosine_embedding_loss)
class CosineEmbeddingLoss(_PairLoss):
    margin: float = 0.0
    reduction: str = "mean"


@settings_of(F.margin_ranking_loss)
class MarginRankingLoss(_PairLoss):
    margin: float = 0.0
    reduction: str = "mean"


@settings_of(F.hinge_embedding_loss)
class HingeEmbeddingLoss(_Loss):
    margin: float = 1.0
    reduction: str = "mean"


@settings_of(F.triplet_margin_loss)
class TripletMarginLoss(_TripletLoss):
    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    reduction: str = "mean"


@settings_of(F.triplet_margin_with_distance_loss)
class TripletMarginWithDistanceLoss(_TripletLoss):
    _: KW_ONLY
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None
    margin: float = 1.0
    swap: bool = False
    reduction: str = "mean"


@settings_of(F.soft_margin_loss)
class SoftMarginLoss(_Loss):
    reduction: str = "mean"


@settings_of(F.multilabel_soft_margin_loss)
class MultiLabelSoftMarginLoss(_WeightedLoss):
    weight: Tensor | None = None
    reduction: str = "mean"


@settings_of(F.multi_margin_loss)
class MultiMarginLoss(_WeightedLoss):
    p: int = 1
    margin: float = 1.0
    weight: Tensor | None = None
    reduction: str = "mean"


@settings_of(F.gaussian_nll_loss)
class GaussianNLLLoss(_Loss):
    _: KW_ONLY
    full: bool = False
    eps: float = 1e-6
    reduction: str = "mean"

    def forward(  # type: ignore[override]
        self, input: Tensor, target: Tensor, var: Tensor | float
    ) -> Tensor:
        return self._result(input, target, var)


@settings_of(F.poisson_nll_loss)
class PoissonNLLLoss(_Loss):
    log_input: bool = True
    full: bool = False
    eps: float = 1e-8
    reduction: str = "mean"


@settings_of(F.multilabel_margin_loss)
class MultiLabelMarginLoss(_Loss):
    reduction: str = "mean"


@settings_of(F.ctc_loss)
class CTCLoss(_Loss):
    blank: int = 0
    reduction: str = "mean"
    zero_infinity: bool = False

    def forward(  # type: ignore[override]
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        return self._result(log_probs, targets, input_lengths, target_lengths)
