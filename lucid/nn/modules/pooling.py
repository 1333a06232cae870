"""Pools as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid.ir.errors import OptionError
from lucid.nn.functional import pooling
from lucid.nn.functional.sliding import Size, entries
from lucid.nn.modules.settings import FunctionModule, OfRank, UnaryModule, settings
from lucid.tensor.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
    "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip


class _Pool(FunctionModule, OfRank):
    """A pool, which may give the places of what it has found as well."""

    def forward(self, input: Tensor) -> Any:
        return self._result(input)


@settings
class _MaxPool(_Pool):
    _functions = pooling.max_pool1d, pooling.max_pool2d, pooling.max_pool3d
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


class MaxPool1d(_MaxPool, rank=1): ...


class MaxPool2d(_MaxPool, rank=2): ...


class MaxPool3d(_MaxPool, rank=3): ...


@settings
class _FractionalMaxPool(_Pool):
    _functions = pooling.fractional_max_pool2d, pooling.fractional_max_pool3d
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


class FractionalMaxPool2d(_FractionalMaxPool, rank=2): ...


class FractionalMaxPool3d(_FractionalMaxPool, rank=3): ...


class _MaxUnpool(FunctionModule, OfRank):
    _functions = pooling.max_unpool1d, pooling.max_unpool2d, pooling.max_unpool3d
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


class MaxUnpool1d(_MaxUnpool, rank=1): ...


class MaxUnpool2d(_MaxUnpool, rank=2): ...


class MaxUnpool3d(_MaxUnpool, rank=3): ...


@settings
class _AvgPoolNd(UnaryModule, OfRank):
    _functions = pooling.avg_pool1d, pooling.avg_pool2d, pooling.avg_pool3d
    kernel_size: Size
    stride: Size | None = None
    padding: Size = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    _shown = "kernel_size={0.kernel_size}, stride={0.stride}, padding={0.padding}"

    def __post_init__(self) -> None:
        self.stride = self.kernel_size if self.stride is None else self.stride


class AvgPool1d(_AvgPoolNd, rank=1): ...


@settings
class _DividedAvgPoolNd(_AvgPoolNd):
    divisor_override: int | None = None


class AvgPool2d(_DividedAvgPoolNd, rank=2): ...


class AvgPool3d(_DividedAvgPoolNd, rank=3): ...


@settings
class _AdaptivePool(_Pool):
    output_size: int | Sequence[int | None] | None
    _shown = "output_size={0.output_size}"


class _AdaptiveAvgPool(_AdaptivePool):
    _functions = (
        pooling.adaptive_avg_pool1d,
        pooling.adaptive_avg_pool2d,
        pooling.adaptive_avg_pool3d,
    )


class AdaptiveAvgPool1d(_AdaptiveAvgPool, rank=1): ...


class AdaptiveAvgPool2d(_AdaptiveAvgPool, rank=2): ...


class AdaptiveAvgPool3d(_AdaptiveAvgPool, rank=3): ...


@settings
class _AdaptiveMaxPool(_AdaptivePool):
    _functions = (
        pooling.adaptive_max_pool1d,
        pooling.adaptive_max_pool2d,
        pooling.adaptive_max_pool3d,
    )
    return_indices: bool = False


class AdaptiveMaxPool1d(_AdaptiveMaxPool, rank=1): ...


class AdaptiveMaxPool2d(_AdaptiveMaxPool, rank=2): ...


class AdaptiveMaxPool3d(_AdaptiveMaxPool, rank=3): ...


@settings
class _LPPoolNd(UnaryModule, OfRank):
    _functions = pooling.lp_pool1d, pooling.lp_pool2d, pooling.lp_pool3d
    norm_type: float
    kernel_size: Size
    stride: Size | None = None
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        self.norm_type = float(self.norm_type)


class LPPool1d(_LPPoolNd, rank=1): ...


class LPPool2d(_LPPoolNd, rank=2): ...


class LPPool3d(_LPPoolNd, rank=3): ...
