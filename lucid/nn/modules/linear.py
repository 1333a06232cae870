"""Affine layers."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid.device import check_device
from lucid.functions.border import recorded
from lucid.ir.types import DType
from lucid.nn import init
from lucid.nn.functional.embedding import bilinear
from lucid.nn.functional.linear import linear
from lucid.nn.modules.module import Module
from lucid.nn.modules.settings import settings
from lucid.nn.parameter import Parameter
from lucid.tensor.tensor import Tensor

__all__ = ["Bilinear", "Flatten", "Identity", "Linear", "Unflatten"]


_linear = recorded(linear)
_bilinear = recorded(bilinear)


class Identity(Module):
    """Returns its input; takes any arguments.

    A place holder for a layer that isn't there.

    Args:
        *args: not looked at.
        **kwargs: not looked at.

    >>> nn.Identity()(lucid.ones(2))
    tensor([1., 1.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Weighted(Module):
    """A module with a weight and a bias, or None in its place, both uniform in ±1/sqrt(fan in)."""

    weight: Parameter
    bias: Parameter | None

    def _add_weights(self, *shape: int, features: int, bias: bool, dtype: DType | None) -> None:
        self.weight = Parameter(lucid.empty(shape, dtype=dtype))
        shift = Parameter(lucid.empty(features, dtype=dtype)) if bias else None
        self.register_parameter("bias", shift)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan = math.prod(self.weight.shape[1:])
            bound = 1 / math.sqrt(fan) if fan else 0.0
            init.uniform_(self.bias, -bound, bound)


class Linear(Weighted):
    """input @ weight.T + bias, over the last axis.

    Weight (out_features, in_features) and bias (out_features,) start uniform in
    [-1/sqrt(in_features), 1/sqrt(in_features)).

    Args:
        in_features: the size of the input's last axis.
        out_features: the size of the result's last axis.

    >>> nn.Linear(3, 2)(lucid.ones(5, 3)).shape
    lucid.Size([5, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        check_device(device, type(self).__name__)
        self.in_features, self.out_features = in_features, out_features
        shape = out_features, in_features
        self._add_weights(*shape, features=out_features, bias=bias, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        return _linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


@settings
class Flatten(Module):
    """Join the axes from `start_dim` to `end_dim` into one.

    The first axis, of the batch, stays by default.

    Args:
        start_dim: the first of the axes.
        end_dim: the last of the axes.

    >>> nn.Flatten()(lucid.ones(2, 3, 4)).shape
    lucid.Size([2, 12])
    """

    start_dim: int = 1
    end_dim: int = -1
    _shown = "start_dim={0.start_dim}, end_dim={0.end_dim}"

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)


class Bilinear(Weighted):
    """input1 @ weight[k] @ input2 + bias[k], weights uniform in ±1/sqrt(in1_features).

    `forward(input1, input2)`: weight (out_features, in1_features, in2_features).

    Args:
        in1_features: of the first input.
        in2_features: of the second input.
        out_features: of the result, one matrix each.

    >>> nn.Bilinear(2, 4, 3)(lucid.ones(5, 2), lucid.ones(5, 4)).shape
    lucid.Size([5, 3])
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        check_device(device, type(self).__name__)
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        shape = out_features, in1_features, in2_features
        self._add_weights(*shape, features=out_features, bias=bias, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        bound = 1 / math.sqrt(self.in1_features) if self.in1_features else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return _bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class Unflatten(Module):
    """Split axis `dim` into axes of the given sizes.

    Args:
        dim: the axis to split.
        unflattened_size: the sizes of the new axes; -1 for what is left.

    >>> nn.Unflatten(1, (2, 3))(lucid.ones(4, 6)).shape
    lucid.Size([4, 2, 3])
    """

    _shown = "dim={0.dim}, unflattened_size={0.unflattened_size}"

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)
