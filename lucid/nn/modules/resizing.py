"""Images of other sizes, channels turned into space, windows as columns: modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid.docstrings import like
from lucid.nn.functional.folding import fold, unfold
from lucid.nn.functional.resizing import (
    channel_shuffle,
    interpolate,
    pixel_shuffle,
    pixel_unshuffle,
)
from lucid.nn.functional.sliding import Size
from lucid.nn.modules.module import Module
from lucid.tensor.tensor import Tensor

__all__ = [
    "ChannelShuffle", "Fold", "PixelShuffle", "PixelUnshuffle", "Unfold", "Upsample",
    "UpsamplingBilinear2d", "UpsamplingNearest2d",
]  # fmt: skip


class Upsample(Module):
    """Resize all but the first two axes, to `size` or by `scale_factor`.

    Args:
        size: the new sizes; an int for all. Either this or `scale_factor`.
        scale_factor: how much longer the axes become; a number, or one for each.
        mode: "nearest", "linear" (3 axes), "bilinear" or "bicubic" (4), "trilinear" (5). Default:
            'nearest'.
        align_corners: the centres of the corners stay where they are. Default: False.
        recompute_scale_factor: compute the factors anew from the sizes that come out. Default:
            False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Upsample(scale_factor=2)(lucid.ones(1, 1, 3)).shape
        lucid.Size([1, 1, 6])
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.scale_factor = tuple(scale_factor) if isinstance(scale_factor, list) else scale_factor
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        given = "size" if self.scale_factor is None else "scale_factor"
        return f"{given}={getattr(self, given)!r}, mode={self.mode!r}"


@like(Upsample)
class UpsamplingNearest2d(Upsample):
    """Resize images by copying the nearest element.

    Images are (n, c, h, w).

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.UpsamplingNearest2d(scale_factor=2)(lucid.ones(1, 1, 3, 3)).shape
        lucid.Size([1, 1, 6, 6])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


@like(Upsample)
class UpsamplingBilinear2d(Upsample):
    """Resize images by bilinear interpolation between the corners' centres.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.UpsamplingBilinear2d(scale_factor=2)(lucid.ones(1, 1, 3, 3)).shape
        lucid.Size([1, 1, 6, 6])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class PixelShuffle(Module):
    """Turn channels into space: (…, c * r * r, h, w) becomes (…, c, h * r, w * r).

    Each run of r squared channels becomes a square of pixels.

    Args:
        upscale_factor: r, by how much both axes grow.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.PixelShuffle(2)(lucid.ones(1, 4, 3, 3)).shape
        lucid.Size([1, 1, 6, 6])
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Turn space into channels: (…, c, h * r, w * r) becomes (…, c * r * r, h, w).

    Each square of pixels becomes a run of channels.

    Args:
        downscale_factor: r, by how much both axes shrink.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.PixelUnshuffle(2)(lucid.ones(1, 1, 6, 6)).shape
        lucid.Size([1, 4, 3, 3])
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Return the channels in an order that takes one of each group in turn.

    Args:
        groups: the channels are cut into this many groups, which don't mix.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.ChannelShuffle(2)(lucid.arange(4.0).reshape(1, 4, 1)).flatten()
        tensor([0., 2., 1., 3.])
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class _Windows(Module):
    def __init__(
        self, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Unfold(_Windows):
    """Return the windows of (n, c, h, w) as columns: (n, c * kernel, windows).

    The windows come row by row, and a column has a window's elements channel by channel.

    Args:
        kernel_size: the size of a window; an int, or one for each axis.
        dilation: the distance between the elements of a window. Default: 1.
        padding: how many elements are added at both ends of each axis. Default: 0.
        stride: from window to window. Default: 1.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Unfold(2)(lucid.ones(1, 1, 3, 3)).shape
        lucid.Size([1, 4, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(_Windows):
    """Add columns (n, c * kernel, windows) up where their windows lie: (n, c, *output_size).

    Args:
        output_size: the size of the axes before `Unfold`.
        kernel_size: the size of a window; an int, or one for each axis.
        dilation: the distance between the elements of a window. Default: 1.
        padding: how many elements are added at both ends of each axis. Default: 0.
        stride: from window to window. Default: 1.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Fold((3, 3), 2)(lucid.ones(1, 4, 4)).shape
        lucid.Size([1, 1, 3, 3])
    """

    def __init__(
        self,
        output_size: int | Sequence[int],
        kernel_size: Size,
        dilation: Size = 1,
        padding: Size = 0,
        stride: Size = 1,
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, {super().extra_repr()}"
