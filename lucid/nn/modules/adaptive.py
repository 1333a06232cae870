"""The softmax of many classes, of which a few are frequent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import lucid
from lucid.functions.arguments import typed
from lucid.functions.checks import require
from lucid.ir.errors import LucidError, OptionError
from lucid.ir.types import DType
from lucid.nn import functional as F
from lucid.nn.modules.container import ModuleList, Sequential
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.module import Module
from lucid.tensor.tensor import Tensor

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    """The target's log probability in each row, and the mean of its negative."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """The classes up to the first cutoff, and clusters of those up to each next one.

    The head has the frequent classes and the clusters; `tail[i]` the classes of a cluster, by a
    projection whose width is `in_features / div_value**(i + 1)`. All clusters are computed for all
    rows, so that a step's shapes don't depend on the targets.

    Reference: Grave et al., "Efficient softmax approximation for GPUs", 2017.

    Args:
        in_features: features of the input.
        n_classes: how many classes there are, the frequent ones first.
        cutoffs: where each cluster begins, increasing.
        div_value: by how much each cluster's projection is narrower than the one before.
        head_bias: whether the head has a bias.

    Raises:
        OptionError: the cutoffs don't increase, or lie outside of the classes.

    >>> layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10])
    >>> layer(lucid.ones(2, 8), lucid.tensor([1, 15])).output.shape
    lucid.Size([2])
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        given = list(cutoffs)
        if not given:
            raise OptionError("cutoffs should be a sequence of length larger than 0")
        is_increasing = all(0 < one < other for one, other in pairwise(given))
        if not is_increasing or given[0] <= 0 or given[-1] > n_classes - 1:
            raise OptionError(f"cutoffs must rise from 1 to {n_classes - 1} at most, not {given}")
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*given, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size = given[0]
        self.n_clusters = len(given)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            width = int(in_features // div_value ** (i + 1))
            count = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, width, False, device, dtype),
                    Linear(width, count, False, device, dtype),
                )
            )

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> _ASMoutput:
        """The log probabilities of the targets, and their loss. Raises for classes out of range."""
        if target.ndim > 1 or input.ndim != target.ndim + 1:
            raise LucidError(
                "0D or 1D target tensor expected, with an input of one axis more"
                f"{typed(input=input, target=target)}"
            )
        if target.ndim and input.shape[0] != target.shape[0]:
            raise LucidError(
                "Input and target should have the same size in the batch dimension."
                f"{typed(input=input, target=target)}"
            )
        is_known = (target >= 0) & (target < self.n_classes)
        text = f"Target values should be in [0, {self.n_classes - 1}]"
        require(is_known, text, "state", target=target)
        index = target.long()
        rows = input if target.ndim else input.unsqueeze(0)
        found = self.log_prob(rows).gather(1, index.reshape(-1, 1)).squeeze(1)
        output = found if target.ndim else found.squeeze(0)
        return _ASMoutput(output, -found.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """The log probabilities of all classes: (n, in_features) to (n, n_classes)."""
        head = F.log_softmax(self.head(input), -1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            own = head[:, self.shortlist_size + i].unsqueeze(1)
            parts.append(F.log_softmax(cluster(input), -1) + own)
        return lucid.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class in each row, the frequent ones before what a cluster holds."""
        head = self.head(input)
        best, every = head.argmax(1), self.log_prob(input).argmax(1)
        return lucid.where(best < self.shortlist_size, best, every)
