"""Pools as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from lucid.nn.functional.adaptive_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
)
from lucid.nn.functional.pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from lucid.nn.functional.sliding import Size, entries
from lucid.nn.functional.unpooling import max_unpool1d, max_unpool2d, max_unpool3d
from lucid.nn.modules.module import Module
from lucid.tensor.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "LPPool1d",
    "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d",
    "MaxUnpool3d",
]  # fmt: skip


class _MaxPool(Module):
    rank: ClassVar[int]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        function = (max_pool1d, max_pool2d, max_pool3d)[self.rank - 1]
        return function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The greatest element of each window along the last axis.

    An axis of size l becomes (l + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1, rounded
    down, or up with `ceil_mode`.

    Args:
        kernel_size: the size of a window; an int, or one for each axis.
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        padding: how much -inf is added at both ends, at most half a window. Default: 0.
        dilation: the distance between the elements of a window. Default: 1.
        return_indices: return the places of the greatest elements too, flat within the axes.
            Default: False.
        ceil_mode: let a window that begins inside reach over the end. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.MaxPool1d(2)(lucid.ones(1, 1, 4)).shape
        lucid.Size([1, 1, 2])
    """

    rank = 1


class MaxPool2d(_MaxPool):
    """The greatest element of each window over the last two axes.

    An axis of size l becomes (l + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1, rounded
    down, or up with `ceil_mode`.

    Args:
        kernel_size: the size of a window; an int, or one for each axis.
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        padding: how much -inf is added at both ends, at most half a window. Default: 0.
        dilation: the distance between the elements of a window. Default: 1.
        return_indices: return the places of the greatest elements too, flat within the axes.
            Default: False.
        ceil_mode: let a window that begins inside reach over the end. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.MaxPool2d(2)(lucid.ones(1, 1, 4, 4)).shape
        lucid.Size([1, 1, 2, 2])
    """

    rank = 2


class MaxPool3d(_MaxPool):
    """The greatest element of each window over the last three axes.

    An axis of size l becomes (l + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1, rounded
    down, or up with `ceil_mode`.

    Args:
        kernel_size: the size of a window; an int, or one for each axis.
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        padding: how much -inf is added at both ends, at most half a window. Default: 0.
        dilation: the distance between the elements of a window. Default: 1.
        return_indices: return the places of the greatest elements too, flat within the axes.
            Default: False.
        ceil_mode: let a window that begins inside reach over the end. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.MaxPool3d(2)(lucid.ones(1, 1, 4, 4, 4)).shape
        lucid.Size([1, 1, 2, 2, 2])
    """

    rank = 3


class _MaxUnpool(Module):
    rank: ClassVar[int]

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__()
        name = type(self).__name__
        self.kernel_size = entries(name, "kernel_size", kernel_size, self.rank)
        steps = kernel_size if stride is None else stride
        self.stride = entries(name, "stride", steps, self.rank)
        self.padding = entries(name, "padding", padding, self.rank, 0)

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        function = (max_unpool1d, max_unpool2d, max_unpool3d)[self.rank - 1]
        return function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """The maxima that `MaxPool1d(…, return_indices=True)` gave, back at their places.

    All other elements are 0. `forward` takes the maxima, their places and, where sizes are
    ambiguous, `output_size`.

    Args:
        kernel_size: that of the pool.
        stride: that of the pool. None is `kernel_size`.
        padding: that of the pool. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> y, places = nn.MaxPool1d(2, return_indices=True)(lucid.ones(1, 1, 4))
        >>> nn.MaxUnpool1d(2)(y, places).shape
        lucid.Size([1, 1, 4])
    """

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """The maxima that `MaxPool2d(…, return_indices=True)` gave, back at their places.

    All other elements are 0. `forward` takes the maxima, their places and, where sizes are
    ambiguous, `output_size`.

    Args:
        kernel_size: that of the pool.
        stride: that of the pool. None is `kernel_size`.
        padding: that of the pool. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> y, places = nn.MaxPool2d(2, return_indices=True)(lucid.ones(1, 1, 4, 4))
        >>> nn.MaxUnpool2d(2)(y, places).shape
        lucid.Size([1, 1, 4, 4])
    """

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """The maxima that `MaxPool3d(…, return_indices=True)` gave, back at their places.

    All other elements are 0. `forward` takes the maxima, their places and, where sizes are
    ambiguous, `output_size`.

    Args:
        kernel_size: that of the pool.
        stride: that of the pool. None is `kernel_size`.
        padding: that of the pool. Default: 0.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> y, places = nn.MaxPool3d(2, return_indices=True)(lucid.ones(1, 1, 4, 4, 4))
        >>> nn.MaxUnpool3d(2)(y, places).shape
        lucid.Size([1, 1, 4, 4, 4])
    """

    rank = 3


class _AvgPoolNd(Module):
    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean of each window along the last axis.

    An axis of size l becomes floor((l + 2 padding - kernel_size) / stride) + 1; with `ceil_mode` it
    is rounded up.

    Args:
        kernel_size: the size of a window; an int, or one for each axis.
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        padding: how many elements are added at both ends of each axis. Default: 0.
        ceil_mode: let a window that begins inside reach over the end. Default: False.
        count_include_pad: let the zeros of the padding count in the mean. Default: True.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.AvgPool1d(2)(lucid.ones(1, 1, 4)).shape
        lucid.Size([1, 1, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )


class _DividedAvgPoolNd(_AvgPoolNd):
    rank: ClassVar[int]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return (avg_pool2d, avg_pool3d)[self.rank - 2](
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_DividedAvgPoolNd):
    """The mean of each window over the last two axes.

    An axis of size l becomes floor((l + 2 padding - kernel_size) / stride) + 1; with `ceil_mode` it
    is rounded up.

    Args:
        kernel_size: the size of a window; an int, or one for each axis.
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        padding: how many elements are added at both ends of each axis. Default: 0.
        ceil_mode: let a window that begins inside reach over the end. Default: False.
        count_include_pad: let the zeros of the padding count in the mean. Default: True.
        divisor_override: divide by this instead of by the number of elements.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.AvgPool2d(2)(lucid.ones(1, 1, 4, 4)).shape
        lucid.Size([1, 1, 2, 2])
    """

    rank = 2


class AvgPool3d(_DividedAvgPoolNd):
    """The mean of each window over the last three axes.

    An axis of size l becomes floor((l + 2 padding - kernel_size) / stride) + 1; with `ceil_mode` it
    is rounded up.

    Args:
        kernel_size: the size of a window; an int, or one for each axis.
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        padding: how many elements are added at both ends of each axis. Default: 0.
        ceil_mode: let a window that begins inside reach over the end. Default: False.
        count_include_pad: let the zeros of the padding count in the mean. Default: True.
        divisor_override: divide by this instead of by the number of elements.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.AvgPool3d(2)(lucid.ones(1, 1, 4, 4, 4)).shape
        lucid.Size([1, 1, 2, 2, 2])
    """

    rank = 3


class _AdaptivePoolNd(Module):
    def __init__(self, output_size: int | Sequence[int | None] | None) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptivePoolNd):
    """The means of `output_size` bins along the last axis.

    Bin i of n on an axis of size l has the elements from floor(i l / n) to ceil((i + 1) l / n).

    Args:
        output_size: how many bins each axis gets; an int for all, None leaves an axis as it is.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.AdaptiveAvgPool1d(2)(lucid.ones(1, 1, 4)).shape
        lucid.Size([1, 1, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptivePoolNd):
    """The means of `output_size` bins over the last two axes; None leaves an axis as it is.

    Bin i of n on an axis of size l has the elements from floor(i l / n) to ceil((i + 1) l / n).

    Args:
        output_size: how many bins each axis gets; an int for all, None leaves an axis as it is.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.AdaptiveAvgPool2d(2)(lucid.ones(1, 1, 4, 4)).shape
        lucid.Size([1, 1, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptivePoolNd):
    """The means of `output_size` bins over the last three axes; None leaves an axis as it is.

    Bin i of n on an axis of size l has the elements from floor(i l / n) to ceil((i + 1) l / n).

    Args:
        output_size: how many bins each axis gets; an int for all, None leaves an axis as it is.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.AdaptiveAvgPool3d(2)(lucid.ones(1, 1, 4, 4, 4)).shape
        lucid.Size([1, 1, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return adaptive_avg_pool3d(input, self.output_size)


class _AdaptiveMaxPoolNd(_AdaptivePoolNd):
    def __init__(
        self, output_size: int | Sequence[int | None] | None, return_indices: bool = False
    ) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The greatest element of each of `output_size` bins along the last axis.

    Bin i of n on an axis of size l has the elements from floor(i l / n) to ceil((i + 1) l / n).

    Args:
        output_size: how many bins each axis gets; an int for all, None leaves an axis as it is.
        return_indices: return the places of the greatest elements too, flat within the axes.
            Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.AdaptiveMaxPool1d(2)(lucid.ones(1, 1, 4)).shape
        lucid.Size([1, 1, 2])
    """

    def forward(self, input: Tensor) -> Any:
        return adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The greatest element of each of `output_size` bins over the last two axes.

    Bin i of n on an axis of size l has the elements from floor(i l / n) to ceil((i + 1) l / n).

    Args:
        output_size: how many bins each axis gets; an int for all, None leaves an axis as it is.
        return_indices: return the places of the greatest elements too, flat within the axes.
            Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.AdaptiveMaxPool2d(2)(lucid.ones(1, 1, 4, 4)).shape
        lucid.Size([1, 1, 2, 2])
    """

    def forward(self, input: Tensor) -> Any:
        return adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The greatest element of each of `output_size` bins over the last three axes.

    Bin i of n on an axis of size l has the elements from floor(i l / n) to ceil((i + 1) l / n).

    Args:
        output_size: how many bins each axis gets; an int for all, None leaves an axis as it is.
        return_indices: return the places of the greatest elements too, flat within the axes.
            Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.AdaptiveMaxPool3d(2)(lucid.ones(1, 1, 4, 4, 4)).shape
        lucid.Size([1, 1, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Any:
        return adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _LPPoolNd(Module):
    def __init__(
        self,
        norm_type: float,
        kernel_size: Size,
        stride: Size | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type = float(norm_type)
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode


class LPPool1d(_LPPoolNd):
    """The norm of order `norm_type` of each window along the last axis.

    (sum of x ** norm_type) ** (1 / norm_type) over each window.

    Args:
        norm_type: the order of the norm.
        kernel_size: the size of a window; an int, or one for each axis.
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        ceil_mode: let a window that begins inside reach over the end. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.LPPool1d(2, 2)(lucid.ones(1, 1, 4)).shape
        lucid.Size([1, 1, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        (size,) = entries("lp_pool1d", "kernel_size", self.kernel_size, 1)
        step = None if self.stride is None else entries("lp_pool1d", "stride", self.stride, 1)[0]
        return lp_pool1d(input, self.norm_type, size, step, self.ceil_mode)


class LPPool2d(_LPPoolNd):
    """The norm of order `norm_type` of each window over the last two axes.

    (sum of x ** norm_type) ** (1 / norm_type) over each window.

    Args:
        norm_type: the order of the norm.
        kernel_size: the size of a window; an int, or one for each axis.
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        ceil_mode: let a window that begins inside reach over the end. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.LPPool2d(2, 2)(lucid.ones(1, 1, 4, 4)).shape
        lucid.Size([1, 1, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return lp_pool2d(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPoolNd):
    """The norm of order `norm_type` of each window over the last three axes.

    (sum of x ** norm_type) ** (1 / norm_type) over each window.

    Args:
        norm_type: the order of the norm.
        kernel_size: the size of a window; an int, or one for each axis.
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        ceil_mode: let a window that begins inside reach over the end. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.LPPool3d(2, 2)(lucid.ones(1, 1, 4, 4, 4)).shape
        lucid.Size([1, 1, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return lp_pool3d(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)
