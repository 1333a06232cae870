"""Normalization of each channel of each example."""

from __future__ import annotations

from lucid.ir.errors import ShapeError
from lucid.nn.functional.normalization import instance_norm
from lucid.nn.modules.batchnorm import _NormBase
from lucid.nn.modules.settings import OfRank, settings
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


@settings
class _InstanceNorm(_NormBase, OfRank):
    """Standardize each channel of each example.

    track_running_stats: evaluation uses means over the examples that were seen.
    """

    momentum: float = 0.1
    affine: bool = False
    track_running_stats: bool = False

    def forward(self, input: Tensor) -> Tensor:
        rank = self.rank + 2
        if input.ndim not in (rank, rank - 1):
            raise ShapeError(f"{type(self).__name__}: expected {rank - 1}D or {rank}D input")
        x = input if input.ndim == rank else input.unsqueeze(0)
        if x.shape[1] != self.num_features and self.affine:
            raise ShapeError(f"{type(self).__name__}: expected {self.num_features} channels")
        y = instance_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            live_attribute(self, "momentum"),
            live_attribute(self, "eps"),
        )
        return y if input.ndim == rank else y.squeeze(0)


class InstanceNorm1d(_InstanceNorm, rank=1):
    """Standardize each channel of each example, (n, c, l) or (c, l).

    `(x - mean) / sqrt(var + eps)`, then `weight` and `bias` if `affine`.

    Reference: Ulyanov et al., "Instance Normalization", 2016.

    Args:
        num_features: how many channels there are.
        momentum: how far the running statistics move towards the batch's; None for their mean over
            all batches.
        affine: train a weight and a bias for each channel.
        track_running_stats: keep running statistics, which eval mode uses.
        bias: whether there is a bias beside the weight.

    >>> nn.InstanceNorm1d(3)(lucid.randn(4, 3, 2)).shape
    lucid.Size([4, 3, 2])
    """


class InstanceNorm2d(_InstanceNorm, rank=2, like=InstanceNorm1d): ...


class InstanceNorm3d(_InstanceNorm, rank=3, like=InstanceNorm1d): ...
