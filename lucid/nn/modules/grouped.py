"""Normalization over groups of channels, each channel of an example, and neighbouring channels."""

from __future__ import annotations

from typing import ClassVar

from lucid.device import check_device
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.types import DType
from lucid.nn.functional.grouped import group_norm, instance_norm, local_response_norm
from lucid.nn.modules.module import Module
from lucid.nn.modules.normalization import BatchNorm1d, register_affine, reset_affine
from lucid.nn.parameter import Parameter
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor


class GroupNorm(Module):
    """Standardize groups of channels of each example; then scale and shift each channel."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        check_device(device, type(self).__name__)
        if num_groups < 1 or num_channels % num_groups:
            raise OptionError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        register_affine(self, (num_channels,), affine, affine, dtype)

    def reset_parameters(self) -> None:
        """Set the weight to ones and the bias to zeros."""
        reset_affine(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        eps = live_attribute(self, "eps")
        return group_norm(input, self.num_groups, self.weight, self.bias, eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class InstanceNorm1d(BatchNorm1d):
    """Standardize each channel of each example, (n, c, l) or (c, l).

    track_running_stats: evaluation uses means over the examples that were seen.
    """

    with_batch: ClassVar[int] = 3

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        rank = self.with_batch
        if input.ndim not in (rank, rank - 1):
            raise ShapeError(
                f"{type(self).__name__}: expected {rank - 1}D or {rank}D input (got {input.ndim}D "
                "input)"
            )
        x = input if input.ndim == rank else input.unsqueeze(0)
        if x.shape[1] != self.num_features and self.affine:
            raise ShapeError(
                f"{type(self).__name__}: expected {self.num_features} channels, got {input._type}"
            )
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


class InstanceNorm2d(InstanceNorm1d):
    """Standardize each channel of each example, (n, c, h, w) or (c, h, w)."""

    with_batch = 4


class InstanceNorm3d(InstanceNorm1d):
    """Standardize each channel of each example, (n, c, d, h, w) or (c, d, h, w)."""

    with_batch = 5


class LocalResponseNorm(Module):
    """Divide by a power of the mean square of `size` neighbouring channels."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
