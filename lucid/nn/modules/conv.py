"""Convolution layers."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.choices import check_choice
from lucid.device import check_device
from lucid.docstrings import like
from lucid.functions.arguments import integer
from lucid.functions.border import recorded
from lucid.ir.errors import OptionError
from lucid.ir.types import DType
from lucid.nn.functional.convolution import _conv, _conv_transpose
from lucid.nn.functional.padding import pad
from lucid.nn.functional.sliding import Ints, Size, entries, same_padding
from lucid.nn.modules.linear import Weighted
from lucid.nn.modules.settings import OfRank
from lucid.tensor.tensor import Tensor

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_PADDING_MODES = ("circular", "reflect", "replicate", "zeros")


_convolved, _transposed = recorded(_conv), recorded(_conv_transpose)
_pad = recorded(pad)


class _ConvNd(OfRank, Weighted):
    """What the layers share: weight, bias, and the options as one number per axis.

    Weight and bias start uniform in ±1/sqrt(fan in), the fan being that of the weight's axes
    behind the first one.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size,
        padding: Size | str,
        dilation: Size,
        transposed: bool,
        output_padding: Size,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_device(device, name)
        if not hasattr(type(self), "rank"):  # a layer of the user's
            self.rank = 1 if isinstance(kernel_size, int) else len(kernel_size)  # type: ignore[misc]
        rank, channels = self.rank, (in_channels, out_channels)
        self.in_channels, self.out_channels = channels
        if groups <= 0:
            raise OptionError(f"{name}: groups must be a positive integer, got {groups}")
        for which, count in zip(("in_channels", "out_channels"), channels, strict=True):
            if count % groups:
                raise OptionError(f"{name}: {which}={count} must be divisible by groups={groups}")
        check_choice(padding_mode, "padding_mode", name, _PADDING_MODES)
        self.kernel_size = entries(name, "kernel_size", kernel_size, rank)
        self.stride = entries(name, "stride", stride, rank)
        self.dilation = entries(name, "dilation", dilation, rank)
        self.padding: Ints | str = (
            padding if isinstance(padding, str) else entries(name, "padding", padding, rank, 0)
        )
        if isinstance(padding, str):
            check_choice(padding, "padding", name, ("same", "valid"))
        if padding == "same" and max(self.stride) > 1:
            raise OptionError(f"{name}: padding='same' is not supported for strided convolutions")
        self.groups, self.padding_mode, self.transposed = groups, padding_mode, transposed
        self.output_padding: Ints = entries(name, "output_padding", output_padding, rank, 0)
        if transposed:
            shape = (in_channels, out_channels // groups, *self.kernel_size)
        else:
            shape = (out_channels, in_channels // groups, *self.kernel_size)
        self._add_weights(*shape, features=out_channels, bias=bias, dtype=dtype)

    @property
    def _reversed_padding_repeated_twice(self) -> list[int]:
        """The padding as `pad` takes it: low and high of the last axis, then of the one before."""
        if self.padding == "same":
            low, high = same_padding(self.kernel_size, self.dilation)
        else:
            low = high = (0,) * self.rank if isinstance(self.padding, str) else self.padding
        pairs = zip(reversed(low), reversed(high), strict=True)
        return [end for both in pairs for end in both]

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        text += f", stride={self.stride}"
        if self.padding != (0,) * self.rank:
            text += f", padding={self.padding}"
        if max(self.dilation) > 1:
            text += f", dilation={self.dilation}"
        if any(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Direct(_ConvNd):
    """A convolution; its arguments are those of `torch.nn.Conv2d`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        sliding = kernel_size, stride, padding, dilation, False, 0
        options = groups, bias, padding_mode, device, dtype
        super().__init__(in_channels, out_channels, *sliding, *options)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The result with these parameters, which layers of the user's compute from their own."""
        padding: Size | str = self.padding
        if self.padding_mode != "zeros":
            input = _pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        sliding = self.stride, padding, self.dilation, self.groups
        return _convolved(self.rank, input, weight, bias, *sliding)


class Conv1d(_Direct, rank=1):
    """Convolve along the last axis: weight (out_channels, in_channels / groups, k).

    `out[n, o, i] = bias[o] + sum over c, j of weight[o, c, j] * input[n, c, i * stride + j *
    dilation - padding]`. An axis of size l becomes (l + 2 padding - dilation (kernel_size - 1) - 1)
    / stride + 1, rounded down.

    Shapes: input (n, in_channels, l) or (in_channels, l); weight (out_channels,
    in_channels / groups, *kernel_size), bias (out_channels,). Both start uniform in
    ±1/sqrt(in_channels / groups * the elements of a window).

    Args:
        in_channels: channels of the input.
        out_channels: channels of the result.
        stride: from one window to the next; an int, or one for each axis.
        padding: how much is added at both ends of each axis; "valid" for none, "same" for as much
            as keeps the size (only with stride 1).
        dilation: the distance between the elements of a window.
        groups: the channels are cut into this many groups, which don't mix.
        padding_mode: what is added: "zeros", "reflect", "replicate" or "circular".

    >>> nn.Conv1d(3, 8, 3, stride=2, padding=1)(lucid.ones(1, 3, 8)).shape
    lucid.Size([1, 8, 4])
    """


class Conv2d(_Direct, rank=2, like=Conv1d): ...


class Conv3d(_Direct, rank=3, like=Conv1d): ...


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution; its arguments are those of `torch.nn.ConvTranspose2d`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        if padding_mode != "zeros":
            raise OptionError(f'{type(self).__name__}: Only "zeros" padding mode is supported')
        sliding = kernel_size, stride, padding, dilation, True, output_padding
        options = groups, bias, padding_mode, device, dtype
        super().__init__(in_channels, out_channels, *sliding, *options)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The result; with `output_size` its axes get these sizes, by another output padding."""
        assert not isinstance(self.padding, str)
        ends = self._ends(input, output_size)
        sliding = self.stride, self.padding, ends, self.groups, self.dilation
        return _transposed(self.rank, input, self.weight, self.bias, *sliding)

    def _ends(self, input: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        """How much longer each axis of the result gets at its end."""
        if output_size is None:
            return self.output_padding
        name, lead = type(self).__name__, input.ndim - self.rank
        wanted = tuple(integer(size, name, "output_size") for size in output_size)
        if len(wanted) == input.ndim:
            wanted = wanted[lead:]
        if len(wanted) != self.rank:
            raise OptionError(f"{name}: output_size must be {self.rank} sizes, not {output_size}")
        assert not isinstance(self.padding, str)
        sliding = self.stride, self.padding, self.dilation, self.kernel_size
        least = [
            (length - 1) * step - 2 * end + dilation * (size - 1) + 1
            for length, step, end, dilation, size in zip(input.shape[lead:], *sliding, strict=True)
        ]
        ends = tuple(size - low for size, low in zip(wanted, least, strict=True))
        if any(not 0 <= end < step for end, step in zip(ends, self.stride, strict=True)):
            most = [low + step - 1 for low, step in zip(least, self.stride, strict=True)]
            raise OptionError(f"{name}: output_size must be from {least} to {most}: {[*wanted]}")
        return ends


@like(Conv1d)
class ConvTranspose1d(_ConvTransposeNd, rank=1):
    """The transpose of `Conv1d`: weight (in_channels, out_channels / groups, k).

    Each element spreads the weights over a window of the result. An axis of size l becomes (l - 1)
    stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1.

    Shapes: input (n, in_channels, l) or (in_channels, l); weight (in_channels,
    out_channels / groups, *kernel_size), bias (out_channels,).

    Args:
        stride: the distance of windows in the result.
        padding: what `Conv1d` would have added: cut off at both ends.
        output_padding: how much longer the result is at its ends.
        padding_mode: "zeros".

    >>> nn.ConvTranspose1d(3, 8, 2, stride=2)(lucid.ones(1, 3, 4)).shape
    lucid.Size([1, 8, 8])
    """


class ConvTranspose2d(_ConvTransposeNd, rank=2, like=ConvTranspose1d): ...


class ConvTranspose3d(_ConvTransposeNd, rank=3, like=ConvTranspose1d): ...
