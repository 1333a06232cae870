"""Pools as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid.ir.errors import OptionError
from lucid.nn.functional import pooling
from lucid.nn.functional.sliding import Size, entries
from lucid.nn.modules.settings import FunctionModule, OfRank, UnaryModule, calling, settings
from lucid.tensor.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
    "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip


@settings
class _MaxPool(FunctionModule):
    kernel_size: Size
    stride: Size | None = None
    padding: Size = 0
    dilation: Size = 1
    return_indices: bool = False
    ceil_mode: bool = False
    _shown = (
        "kernel_size={0.kernel_size}, stride={0.stride}, padding={0.padding}, "
        "dilation={0.dilation}, ceil_mode={0.ceil_mode}"
    )

    def __post_init__(self) -> None:
        self.stride = self.kernel_size if self.stride is None else self.stride

    def forward(self, input: Tensor) -> Any:
        return self._result(input)


@calling(pooling.max_pool1d)
class MaxPool1d(_MaxPool):
    """The greatest element of each window along the last axis."""


@calling(pooling.max_pool2d)
class MaxPool2d(_MaxPool):
    """The greatest element of each window over the last two axes."""


@calling(pooling.max_pool3d)
class MaxPool3d(_MaxPool):
    """The greatest element of each window over the last three axes."""


@settings
class _FractionalMaxPool(FunctionModule):
    kernel_size: Size
    output_size: Size | None = None
    output_ratio: float | Sequence[float] | None = None
    return_indices: bool = False
    _random_samples: Tensor | None = None
    _shown = (
        "kernel_size={0.kernel_size}, output_size={0.output_size}, output_ratio={0.output_ratio}"
    )

    def __post_init__(self) -> None:
        if (self.output_size is None) == (self.output_ratio is None):
            raise OptionError(
                f"{type(self).__name__} requires specifying either an output size or a ratio"
            )

    def forward(self, input: Tensor) -> Any:
        return self._result(input)


@calling(pooling.fractional_max_pool2d)
class FractionalMaxPool2d(_FractionalMaxPool):
    """The greatest element of each of many windows at random places over the last two axes."""


@calling(pooling.fractional_max_pool3d)
class FractionalMaxPool3d(_FractionalMaxPool):
    """The greatest element of each of many windows at random places over the last three axes."""


class _MaxUnpool(FunctionModule, OfRank):
    _shown = "kernel_size={0.kernel_size}, stride={0.stride}, padding={0.padding}"

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
        return self._result(input, indices, output_size=output_size)


@calling(pooling.max_unpool1d)
class MaxUnpool1d(_MaxUnpool, rank=1):
    """The maxima that `MaxPool1d(…, return_indices=True)` gave, back at their places."""


@calling(pooling.max_unpool2d)
class MaxUnpool2d(_MaxUnpool, rank=2):
    """The maxima that `MaxPool2d(…, return_indices=True)` gave, back at their places."""


@calling(pooling.max_unpool3d)
class MaxUnpool3d(_MaxUnpool, rank=3):
    """The maxima that `MaxPool3d(…, return_indices=True)` gave, back at their places."""


@settings
class _AvgPoolNd(UnaryModule):
    kernel_size: Size
    stride: Size | None = None
    padding: Size = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    _shown = "kernel_size={0.kernel_size}, stride={0.stride}, padding={0.padding}"

    def __post_init__(self) -> None:
        self.stride = self.kernel_size if self.stride is None else self.stride


@calling(pooling.avg_pool1d)
class AvgPool1d(_AvgPoolNd):
    """The mean of each window along the last axis."""


@settings
class _DividedAvgPoolNd(_AvgPoolNd):
    divisor_override: int | None = None


@calling(pooling.avg_pool2d)
class AvgPool2d(_DividedAvgPoolNd):
    """The mean of each window over the last two axes."""


@calling(pooling.avg_pool3d)
class AvgPool3d(_DividedAvgPoolNd):
    """The mean of each window over the last three axes."""


@settings
class _AdaptivePoolNd(FunctionModule):
    output_size: int | Sequence[int | None] | None
    _shown = "output_size={0.output_size}"

    def forward(self, input: Tensor) -> Any:
        return self._result(input)


@calling(pooling.adaptive_avg_pool1d)
class AdaptiveAvgPool1d(_AdaptivePoolNd):
    """The means of `output_size` bins along the last axis."""


@calling(pooling.adaptive_avg_pool2d)
class AdaptiveAvgPool2d(_AdaptivePoolNd):
    """The means of `output_size` bins over the last two axes; None leaves an axis as it is."""


@calling(pooling.adaptive_avg_pool3d)
class AdaptiveAvgPool3d(_AdaptivePoolNd):
    """The means of `output_size` bins over the last three axes; None leaves an axis as it is."""


@settings
class _AdaptiveMaxPoolNd(_AdaptivePoolNd):
    return_indices: bool = False


@calling(pooling.adaptive_max_pool1d)
class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The greatest element of each of `output_size` bins along the last axis."""


@calling(pooling.adaptive_max_pool2d)
class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The greatest element of each of `output_size` bins over the last two axes."""


@calling(pooling.adaptive_max_pool3d)
class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The greatest element of each of `output_size` bins over the last three axes."""


@settings
class _LPPoolNd(OfRank):
    norm_type: float
    kernel_size: Size
    stride: Size | None = None
    ceil_mode: bool = False
    _shown = (
        "norm_type={0.norm_type}, kernel_size={0.kernel_size}, stride={0.stride}, "
        "ceil_mode={0.ceil_mode}"
    )

    def __post_init__(self) -> None:
        self.norm_type = float(self.norm_type)

    def forward(self, input: Tensor) -> Tensor:
        pool = (pooling.lp_pool1d, pooling.lp_pool2d, pooling.lp_pool3d)[self.rank - 1]
        return pool(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPoolNd, rank=1):
    """The norm of order `norm_type` of each window along the last axis.

    (sum of x ** norm_type) ** (1 / norm_type) over each window.

    Args:
        norm_type: the order of the norm.
        stride: from window to window; an int, or one for each axis. None is `kernel_size`.
        ceil_mode: let a window that begins inside reach over the end.

    >>> nn.LPPool1d(2, 2)(lucid.ones(1, 1, 4)).shape
    lucid.Size([1, 1, 2])
    """


class LPPool2d(_LPPoolNd, rank=2, like=LPPool1d): ...


class LPPool3d(_LPPoolNd, rank=3, like=LPPool1d): ...
