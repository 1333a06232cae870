"""Normalization over the last axes, over groups of channels, and over neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar

import numpy as np

import lucid
from lucid.device import check_device
from lucid.docstrings import like
from lucid.functions.border import recorded
from lucid.ir.errors import OptionError
from lucid.ir.types import DType
from lucid.nn import init
from lucid.nn.functional.normalization import group_norm, layer_norm, local_response_norm, rms_norm
from lucid.nn.modules.module import Module
from lucid.nn.modules.settings import settings
from lucid.nn.parameter import Parameter
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

__all__ = ["GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


_group_norm = recorded(group_norm)
_layer_norm = recorded(layer_norm)
_local_response_norm = recorded(local_response_norm)
_rms_norm = recorded(rms_norm)


class Affine(Module):
    """A module with a weight of ones and a bias of zeros, or None in their places.

    Its constructor ends with `reset_parameters`, by which users let them start otherwise.
    """

    weight: Parameter | None
    bias: Parameter | None

    def _add_affine(
        self, shape: tuple[int, ...], weight: bool, bias: bool, dtype: DType | None
    ) -> None:
        scale = Parameter(lucid.empty(shape, dtype=dtype)) if weight else None
        shift = Parameter(lucid.empty(shape, dtype=dtype)) if bias else None
        self.register_parameter("weight", scale)
        self.register_parameter("bias", shift)

    @property
    def _has_bias(self) -> bool:
        return self.bias is not None

    def reset_parameters(self) -> None:
        """Set the weight to ones and the bias to zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class _LastAxesNorm(Module):
    """A normalization over the last axes."""

    weight: Parameter | None
    _shown = "{0.normalized_shape}, eps={0.eps}, elementwise_affine={0.elementwise_affine}"

    def __init__(
        self, shape: int | Sequence[int], eps: float | None, affine: bool, device: object
    ) -> None:
        super().__init__()
        check_device(device, type(self).__name__)
        if isinstance(shape, (int, np.integer)):
            shape = (int(shape),)
        self.normalized_shape = tuple(shape)
        self.eps = eps
        self.elementwise_affine = affine


class LayerNorm(_LastAxesNorm, Affine):
    """Standardize over the last axes, then scale by the weight and shift by the bias.

    `(x - mean) / sqrt(var + eps) * weight + bias`, with the biased variance.

    Reference: Ba et al., "Layer Normalization", 2016.

    Args:
        normalized_shape: the sizes of the last axes; an int for one.
        elementwise_affine: train a weight, and a bias where there is one.

    >>> nn.LayerNorm(3)(lucid.tensor([[1.0, 2.0, 3.0]]))
    tensor([[-1.2247,  0.0000,  1.2247]], grad_fn=<LayerNormBackward>)
    """

    _shown = _LastAxesNorm._shown + ", bias={0._has_bias}"

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, device)
        has_bias = elementwise_affine and bias
        self._add_affine(self.normalized_shape, elementwise_affine, has_bias, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        eps = live_attribute(self, "eps")
        return _layer_norm(input, self.normalized_shape, self.weight, self.bias, eps)


class RMSNorm(_LastAxesNorm):
    """Divide by the root mean square over the last axes, then scale by the weight (ones).

    Args:
        normalized_shape: the sizes of the last axes; an int for one.
        eps: keeps the division finite. None is the machine epsilon of the input's dtype.
        elementwise_affine: train a weight, and a bias where there is one.

    >>> nn.RMSNorm(2)(lucid.tensor([[3.0, 4.0]]))
    tensor([[0.8485, 1.1314]], grad_fn=<MulBackward>)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, device)
        weight = Parameter(lucid.empty(self.normalized_shape, dtype=dtype))
        self.register_parameter("weight", weight if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to ones."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return _rms_norm(input, self.normalized_shape, self.weight, live_attribute(self, "eps"))


@settings
class GroupNorm(Affine):
    """Standardize groups of channels of each example; then scale and shift each channel.

    Args:
        num_groups: into how many groups the channels are cut.
        num_channels: how many channels there are (axis 1).
        affine: train a weight and a bias for each channel.
        bias: whether there is a bias beside the weight.

    Raises:
        OptionError: the channels can't be cut into that many groups.

    >>> nn.GroupNorm(2, 4)(lucid.randn(1, 4, 3)).shape
    lucid.Size([1, 4, 3])
    """

    num_groups: int
    num_channels: int
    eps: float = 1e-5
    affine: bool = True
    device: InitVar[object] = None
    dtype: InitVar[DType | None] = None
    _: KW_ONLY
    bias: InitVar[bool] = True
    _shown = "{0.num_groups}, {0.num_channels}, eps={0.eps}, affine={0.affine}, bias={0._has_bias}"

    def __post_init__(self, device: object, dtype: DType | None, bias: bool) -> None:
        check_device(device, type(self).__name__)
        groups, channels = self.num_groups, self.num_channels
        if groups < 1 or channels % groups:
            raise OptionError(f"num_groups={groups} must divide num_channels={channels}")
        self._add_affine((channels,), self.affine, self.affine and bias, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        eps = live_attribute(self, "eps")
        return _group_norm(input, self.num_groups, self.weight, self.bias, eps)


@like(local_response_norm)
@settings
class LocalResponseNorm(Module):
    """Divide by a power of the mean square of `size` neighbouring channels.

    >>> nn.LocalResponseNorm(2)(lucid.ones(1, 3, 1)).flatten()
    tensor([1.0000, 0.9999, 0.9999])
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0
    _shown = "{0.size}, alpha={0.alpha}, beta={0.beta}, k={0.k}"

    def forward(self, input: Tensor) -> Tensor:
        return _local_response_norm(input, self.size, self.alpha, self.beta, self.k)
