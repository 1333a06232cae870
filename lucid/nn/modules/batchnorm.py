"""Normalization over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar

import lucid
from lucid.choices import check_choice
from lucid.device import check_device
from lucid.docstrings import like
from lucid.ir.errors import ShapeError
from lucid.ir.types import DType, i64
from lucid.nn import init
from lucid.nn.functional.normalization import batch_norm
from lucid.nn.modules.module import Module
from lucid.nn.modules.normalization import Affine
from lucid.nn.modules.settings import settings
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"]


class _Tracking(Affine):
    """What has running statistics, or None in their places."""

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None


@settings
class _NormBase(_Tracking):
    """What normalizations with running statistics share.

    momentum: how far the running statistics move towards each batch's; None averages all batches.
    track_running_stats: without it there are none, and evaluation uses the batch's statistics too;
        where it is set to False later, batches leave those that there are as they were.
    """

    num_features: int
    eps: float = 1e-5
    momentum: float | None = 0.1
    affine: bool = True
    track_running_stats: bool = True
    device: InitVar[object] = None
    dtype: InitVar[DType | None] = None
    _: KW_ONLY
    bias: InitVar[bool] = True
    _shown = (
        "{0.num_features}, eps={0.eps}, momentum={0.momentum}, affine={0.affine}, "
        "bias={0._has_bias}, track_running_stats={0.track_running_stats}"
    )

    def __post_init__(self, device: object, dtype: DType | None, bias: bool) -> None:
        check_device(device, type(self).__name__)
        count = self.num_features
        self._add_affine((count,), self.affine, self.affine and bias, dtype)
        start = {
            "running_mean": lucid.zeros(count, dtype=dtype),
            "running_var": lucid.ones(count, dtype=dtype),
            "num_batches_tracked": lucid.tensor(0, dtype=i64),
        }
        for name, tensor in start.items():
            self.register_buffer(name, tensor if self.track_running_stats else None)
        self.reset_parameters()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *rest: Any, **named: Any
    ) -> None:
        """Weights of other programs often come without a count of batches: it stays as it is."""
        if self.num_batches_tracked is not None:
            state_dict.setdefault(f"{prefix}num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, *rest, **named)

    def reset_running_stats(self) -> None:
        """Forget all batches."""
        if self.running_mean is not None and self.running_var is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
        if self.num_batches_tracked is not None:
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Forget all batches; set the weight to ones and the bias to zeros."""
        self.reset_running_stats()
        super().reset_parameters()


class _BatchNorm(_NormBase):
    """Standardize each channel over the batch, then scale and shift."""

    ranks: ClassVar[Sequence[int] | None] = None

    def _check_input_dim(self, input: Tensor) -> None:
        """Raise `ShapeError` for a wrong number of axes; norms of users say which they take."""
        if self.ranks is not None and input.ndim not in self.ranks:
            accepted = " or ".join(f"{rank}D" for rank in self.ranks)
            raise ShapeError(f"{type(self).__name__}: expected {accepted} input, not {input.ndim}D")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if input.shape[1] != self.num_features:
            raise ShapeError(f"{type(self).__name__}: axis 1 must be {self.num_features} channels")
        training = self.training or self.running_mean is None
        tracks = self.training and self.track_running_stats  # which users may set later
        momentum = self._count_batch() if tracks else 0.0
        mean, variance = self.running_mean, self.running_var
        if training and not tracks:
            mean = variance = None
        eps = live_attribute(self, "eps")
        return batch_norm(input, mean, variance, self.weight, self.bias, training, momentum, eps)

    def _count_batch(self) -> float | Tensor:
        """Count this batch; return the weight that its statistics get."""
        count, mean = self.num_batches_tracked, self.running_mean
        if count is not None:
            count.add_(1)
        momentum: float | None = live_attribute(self, "momentum")
        if momentum is not None:
            return momentum
        return 0.0 if count is None or mean is None else 1.0 / count.to(mean.dtype)


class BatchNorm1d(_BatchNorm):
    """Standardize each channel over the batch, (n, c) or (n, c, l), then scale and shift.

    `(x - mean) / sqrt(var + eps) * weight + bias` for each channel. While training the statistics
    are those of the batch, and the running ones move; in eval mode they are the running ones.

    Raises `ShapeError` for a batch of one element for each channel while training.

    Reference: Ioffe and Szegedy, "Batch Normalization", 2015.

    Args:
        num_features: how many channels there are.
        momentum: how far the running statistics move towards the batch's; None for their mean over
            all batches.
        affine: train a weight and a bias for each channel.
        track_running_stats: keep running statistics, which eval mode uses. Set to False later, it
            leaves those that there are as they were.
        bias: whether there is a bias beside the weight.

    >>> nn.BatchNorm1d(3)(lucid.randn(4, 3, 2)).shape
    lucid.Size([4, 3, 2])
    """

    ranks = (2, 3)


@like(BatchNorm1d, axes=2)
class BatchNorm2d(_BatchNorm):
    """Standardize each channel of (n, c, h, w) over the batch, as `BatchNorm1d` does."""

    ranks = (4,)


@like(BatchNorm1d, axes=3)
class BatchNorm3d(_BatchNorm):
    """Standardize each channel of (n, c, d, h, w) over the batch, as `BatchNorm1d` does."""

    ranks = (5,)


@like(BatchNorm1d)
class SyncBatchNorm(_BatchNorm):
    """Standardize each channel over the batch of all processes, of which there is one here.

    It takes two axes and more, (n, c, ...), and does what `BatchNorm1d` does.

    Args:
        process_group: must be None.

    Raises:
        ArgumentError: a `process_group`.
        ShapeError: an input of fewer than two axes.

    >>> nn.SyncBatchNorm(3)(lucid.randn(4, 3, 2, 5)).shape
    lucid.Size([4, 3, 2, 5])
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: None = None,
        device: object = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        check_choice(process_group, "process_group", "SyncBatchNorm", (None,))
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ShapeError(f"SyncBatchNorm: expected at least 2D input, not {input.ndim}D")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: None = None) -> Any:
        """Put a `SyncBatchNorm` in the place of each `BatchNorm` in a module; return the module.

        They share parameters and running statistics. A `BatchNorm` itself gives another module.

        Args:
            module: what to look through.
            process_group: must be None.

        Raises:
            ArgumentError: a `process_group`.

        >>> model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        >>> type(nn.SyncBatchNorm.convert_sync_batchnorm(model)[1]).__name__
        'SyncBatchNorm'
        """
        check_choice(process_group, "process_group", "convert_sync_batchnorm", (None,))
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            found = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                bias=module.bias is not None,
            )
            found.train(module.training)
            for name, parameter in module.named_parameters(recurse=False):
                setattr(found, name, parameter)
            for name, buffer in module.named_buffers(recurse=False):
                setattr(found, name, buffer)
            return found
        for name, child in module.named_children():
            converted = cls.convert_sync_batchnorm(child)
            if converted is not child:
                module.add_module(name, converted)
        return module
