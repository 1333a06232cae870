"""Distances between vectors, as modules."""

from __future__ import annotations

from lucid.nn import functional as F
from lucid.nn.modules.module import Module
from lucid.nn.modules.settings import FunctionModule, settings_of
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

__all__ = ["CosineSimilarity", "PairwiseDistance"]


@settings_of(F.cosine_similarity)
class CosineSimilarity(FunctionModule):
    dim: int = 1
    eps: float = 1e-8

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self._result(x1, x2)

    def extra_repr(self) -> str:
        return ""


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps along the last axis.

    `forward(x1, x2)`: rows with rows, each with its partner.

    Args:
        p: the order of the norm.
        eps: added to each difference.
        keepdim: keep the last axis, with size 1.

    >>> nn.PairwiseDistance()(lucid.zeros(1, 2), lucid.tensor([[3.0, 4.0]]))
    tensor([5.0000])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps, self.keepdim = eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, live_attribute(self, "eps"), self.keepdim)
