"""Images of other sizes, channels turned into space, windows as columns: modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid.docstrings import like
from lucid.functions.border import recorded
from lucid.nn.functional import folding, resizing
from lucid.nn.functional.sliding import Size
from lucid.nn.modules.module import Module
from lucid.nn.modules.settings import UnaryModule, settings, settings_of
from lucid.tensor.tensor import Tensor

__all__ = [
    "ChannelShuffle", "Fold", "PixelShuffle", "PixelUnshuffle", "Unfold", "Upsample",
    "UpsamplingBilinear2d", "UpsamplingNearest2d",
]  # fmt: skip


_interpolate = recorded(resizing.interpolate)


@settings
class Upsample(Module):
    """Resize all but the first two axes, to `size` or by `scale_factor`.

    Args:
        size: the new sizes; an int for all. Either this or `scale_factor`.
        scale_factor: how much longer the axes become; a number, or one for each.
        mode: "nearest", "linear" (3 axes), "bilinear" or "bicubic" (4), "trilinear" (5).
        align_corners: the centres of the corners stay where they are. Default: False.
        recompute_scale_factor: compute the factors anew from the sizes that come out. Default:
            False.

    >>> nn.Upsample(scale_factor=2)(lucid.ones(1, 1, 3)).shape
    lucid.Size([1, 1, 6])
    """

    size: Any = None
    scale_factor: Any = None
    mode: str = "nearest"
    align_corners: bool | None = None
    recompute_scale_factor: bool | None = None

    def __post_init__(self) -> None:
        if isinstance(self.scale_factor, list):
            self.scale_factor = tuple(self.scale_factor)

    def forward(self, input: Tensor) -> Tensor:
        sizes, corners = (self.size, self.scale_factor), (self.mode, self.align_corners)
        return _interpolate(input, *sizes, *corners, self.recompute_scale_factor)

    def extra_repr(self) -> str:
        given = "size" if self.scale_factor is None else "scale_factor"
        return f"{given}={getattr(self, given)!r}, mode={self.mode!r}"


@like(Upsample)
class UpsamplingNearest2d(Upsample):
    """Resize images by copying the nearest element.

    Images are (n, c, h, w).

    >>> nn.UpsamplingNearest2d(scale_factor=2)(lucid.ones(1, 1, 3, 3)).shape
    lucid.Size([1, 1, 6, 6])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


@like(UpsamplingNearest2d)
class UpsamplingBilinear2d(Upsample):
    """Resize images by bilinear interpolation between the corners' centres."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


@settings_of(resizing.pixel_shuffle)
class PixelShuffle(UnaryModule):
    upscale_factor: int


@settings_of(resizing.pixel_unshuffle)
class PixelUnshuffle(UnaryModule):
    downscale_factor: int


@settings_of(resizing.channel_shuffle)
class ChannelShuffle(UnaryModule):
    groups: int


@settings_of(folding.unfold)
class Unfold(UnaryModule):
    kernel_size: Size
    dilation: Size = 1
    padding: Size = 0
    stride: Size = 1


@settings_of(folding.fold)
class Fold(UnaryModule):
    output_size: int | Sequence[int]
    kernel_size: Size
    dilation: Size = 1
    padding: Size = 0
    stride: Size = 1
