"""Normalization over groups of channels, and over neighbouring channels."""

from __future__ import annotations

from lucid.device import check_device
from lucid.docstrings import like
from lucid.ir.errors import OptionError
from lucid.ir.types import DType
from lucid.nn.functional.grouped import group_norm, local_response_norm
from lucid.nn.modules.module import Module
from lucid.nn.modules.normalization import register_affine, reset_affine
from lucid.nn.parameter import Parameter
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

__all__ = ["GroupNorm", "LocalResponseNorm"]


class GroupNorm(Module):
    """Standardize groups of channels of each example; then scale and shift each channel.

    Args:
        num_groups: into how many groups the channels are cut.
        num_channels: how many channels there are (axis 1).
        affine: train a weight and a bias for each channel. Default: True.

    Raises:
        OptionError: the channels can't be cut into that many groups.

    Example:
        >>> nn.GroupNorm(2, 4)(lucid.randn(1, 4, 3)).shape
        lucid.Size([1, 4, 3])
    """

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
            raise OptionError(f"num_groups={num_groups} must divide num_channels={num_channels}")
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


@like(local_response_norm)
class LocalResponseNorm(Module):
    """Divide by a power of the mean square of `size` neighbouring channels.

    Example:
        >>> nn.LocalResponseNorm(2)(lucid.ones(1, 3, 1)).flatten()
        tensor([1.0000, 0.9999, 0.9999])
    """

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
