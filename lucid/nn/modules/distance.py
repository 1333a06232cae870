"""Distances between vectors, as modules."""

from __future__ import annotations

from lucid.nn import functional as F
from lucid.nn.modules.module import Module
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class CosineSimilarity(Module):
    """Cosine of the angle between vectors along `dim`.

    `forward(x1, x2)`; the two broadcast.

    Args:
        dim: the axis. Default: 1.
        eps: keeps the division finite. Default: 1e-08.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.CosineSimilarity()(lucid.tensor([[1.0, 0.0]]), lucid.tensor([[1.0, 1.0]]))
        tensor([0.7071])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, live_attribute(self, "eps"))


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps along the last axis.

    `forward(x1, x2)`: rows with rows, each with its partner.

    Args:
        p: the order of the norm. Default: 2.0.
        eps: added to each difference. Default: 1e-06.
        keepdim: keep the last axis, with size 1. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.PairwiseDistance()(lucid.zeros(1, 2), lucid.tensor([[3.0, 4.0]]))
        tensor([5.0000])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, live_attribute(self, "eps"), self.keepdim)
