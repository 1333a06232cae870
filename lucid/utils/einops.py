"""Tensors for einops: its functions take them, and its layers are modules of `lucid.nn`.

Needs `pip install einops`. Nobody needs to import this: as soon as both packages are there,
`from einops import rearrange` takes tensors, and `einops.layers.lucid` has the layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from einops._backends import AbstractBackend, get_backend
from einops.layers import RearrangeMixin, ReduceMixin
from einops.layers._einmix import _EinmixMixin

import lucid
from lucid import nn

__all__ = ["EinMix", "Rearrange", "Reduce"]


class Backend(AbstractBackend):
    """What einops does with tensors."""

    framework_name = "lucid"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, lucid.Tensor)

    def from_numpy(self, x: np.ndarray) -> lucid.Tensor:
        return lucid.from_numpy(x)

    def to_numpy(self, x: lucid.Tensor) -> np.ndarray:
        return x.detach().numpy()

    def arange(self, start: int, stop: int) -> lucid.Tensor:
        return lucid.arange(start, stop)

    def transpose(self, x: lucid.Tensor, axes: Sequence[int]) -> lucid.Tensor:
        return x.permute(axes)

    def reduce(self, x: lucid.Tensor, operation: str, axes: Sequence[int]) -> lucid.Tensor:
        if operation == "prod":  # of one axis at a time
            for axis in sorted(axes, reverse=True):
                x = x.prod(axis)
            return x
        function = {"min": "amin", "max": "amax"}.get(operation, operation)
        found: lucid.Tensor = getattr(x, function)(dim=tuple(axes))
        return found

    def stack_on_zeroth_dimension(self, tensors: list[lucid.Tensor]) -> lucid.Tensor:
        return lucid.stack(tensors)

    def add_axis(self, x: lucid.Tensor, new_position: int) -> lucid.Tensor:
        return x.unsqueeze(new_position)

    def tile(self, x: lucid.Tensor, repeats: Sequence[int]) -> lucid.Tensor:
        return x.repeat(repeats)

    def concat(self, tensors: list[lucid.Tensor], axis: int) -> lucid.Tensor:
        return lucid.cat(tensors, axis)

    def is_float_type(self, x: lucid.Tensor) -> bool:
        return x.is_floating_point()

    def einsum(self, pattern: str, *x: lucid.Tensor) -> lucid.Tensor:
        return lucid.einsum(pattern, *x)


for _kind in (lucid.Tensor, nn.Parameter):  # else the first step would be what changes einops
    get_backend(_kind(lucid.zeros(())))


class Rearrange(RearrangeMixin, nn.Module):
    """`einops.rearrange` as a module.

    >>> Rearrange("b (h w) -> b h w", h=2)(lucid.zeros(3, 4)).shape  # doctest: +SKIP
    lucid.Size([3, 2, 2])
    """

    def forward(self, input: lucid.Tensor) -> lucid.Tensor:
        found: lucid.Tensor = self._apply_recipe(input)  # type: ignore[no-untyped-call]
        return found


class Reduce(ReduceMixin, nn.Module):
    """`einops.reduce` as a module.

    >>> Reduce("b c h w -> b c", "mean")(lucid.zeros(3, 2, 4, 4)).shape  # doctest: +SKIP
    lucid.Size([3, 2])
    """

    def forward(self, input: lucid.Tensor) -> lucid.Tensor:
        found: lucid.Tensor = self._apply_recipe(input)  # type: ignore[no-untyped-call]
        return found


class EinMix(_EinmixMixin, nn.Module):
    """A linear map of some axes, described as in `einops.einsum`, with weights of its own.

    >>> layer = EinMix("b c -> b d", weight_shape="c d", c=4, d=5)  # doctest: +SKIP
    >>> layer(lucid.zeros(3, 4)).shape  # doctest: +SKIP
    lucid.Size([3, 5])
    """

    def _create_parameters(
        self,
        weight_shape: Sequence[int],
        weight_bound: float,
        bias_shape: Sequence[int] | None,
        bias_bound: float,
    ) -> None:
        self.weight = nn.Parameter(lucid.empty(*weight_shape).uniform_(-weight_bound, weight_bound))
        self.bias = None
        if bias_shape is not None:
            self.bias = nn.Parameter(lucid.empty(*bias_shape).uniform_(-bias_bound, bias_bound))

    def _create_rearrange_layers(
        self,
        pre_reshape_pattern: str | None,
        pre_reshape_lengths: dict[str, int] | None,
        post_reshape_pattern: str | None,
        post_reshape_lengths: dict[str, int] | None,
    ) -> None:
        self.pre_rearrange = self.post_rearrange = None
        if pre_reshape_pattern is not None:
            self.pre_rearrange = Rearrange(pre_reshape_pattern, **(pre_reshape_lengths or {}))
        if post_reshape_pattern is not None:
            self.post_rearrange = Rearrange(post_reshape_pattern, **(post_reshape_lengths or {}))

    def forward(self, input: lucid.Tensor) -> lucid.Tensor:
        if self.pre_rearrange is not None:
            input = self.pre_rearrange(input)
        found = lucid.einsum(self.einsum_pattern, input, self.weight)
        if self.bias is not None:
            found = found + self.bias
        return found if self.post_rearrange is None else self.post_rearrange(found)
