"""Layers that take the number of their inputs from the first one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from lucid.compiler.recording import hooks as trace_hooks
from lucid.docstrings import like
from lucid.functions.arguments import kind_of, listed
from lucid.ir.errors import ArgumentError, LucidError, OptionError, ShapeError, TraceError
from lucid.ir.types import DType
from lucid.nn.functional.sliding import Size
from lucid.nn.modules import conv
from lucid.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm
from lucid.nn.modules.instancenorm import (
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    _InstanceNorm,
)
from lucid.nn.modules.linear import Linear, Weighted
from lucid.nn.modules.module import Module
from lucid.nn.uninitialized import Uninitialized, UninitializedBuffer, UninitializedParameter
from lucid.tensor.tensor import Tensor

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d",
    "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
    "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip


class LazyModuleMixin(Module):
    """Base of layers whose parameters get their shapes at the first call.

    Then `initialize_parameters` is called with the arguments, and the layer becomes one of
    `cls_to_become`. That can't be part of a compiled step.
    """

    cls_to_become: ClassVar[Any] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting = self.register_forward_pre_hook(_initialize, with_kwargs=True)

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer still has no shape."""
        held = (*self._parameters.values(), *self._buffers.values())
        return any(isinstance(tensor, Uninitialized) for tensor in held)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give all parameters their shapes and values."""
        raise LucidError(f"initialize_parameters is not implemented for {type(self).__name__}")


def _initialize(module: Module, args: Any, kwargs: Any) -> None:
    assert isinstance(module, LazyModuleMixin)
    if trace_hooks.is_tracing():
        raise TraceError(
            f"{type(module).__name__}: the first call makes the parameters, which a compiled step "
            "can't\nhint: call the module once before, as model(batch)"
        )
    module.initialize_parameters(*args, **kwargs)
    module._waiting.remove()
    del module._waiting
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


def _check(module: Module, input: Any, *ranks: int) -> None:
    """Raise for what the layer can't take: nothing is made of it. No ranks: any from 1 on."""
    name = type(module).__name__
    if not isinstance(input, Tensor):
        raise ArgumentError(f"{name}: argument 'input' must be Tensor, not {kind_of(input)}")
    if input.ndim not in ranks if ranks else not input.ndim:
        accepted = " or ".join(f"{rank}D" for rank in ranks) or "at least 1D"
        problem = f"expected {accepted} input, not {input.ndim}D"
        raise ShapeError(f"{name}: {problem}{listed(input=input)}")


class _LazyWeighted(LazyModuleMixin, Weighted):
    """An affine map whose first input says how many features it takes."""

    def _leave_open(self, bias: bool, dtype: DType | None) -> None:
        self.weight = UninitializedParameter(dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, once they have a shape."""
        if not self.has_uninitialized_params() and self.weight.numel():
            super().reset_parameters()

    def _materialize(self, *shape: int, features: int) -> None:
        if isinstance(self.weight, UninitializedParameter):
            self.weight.materialize(shape)
            if isinstance(self.bias, UninitializedParameter):
                self.bias.materialize((features,))
            self.reset_parameters()


class LazyLinear(_LazyWeighted, Linear):
    """A `Linear` with as many input features as the last axis of its first input has elements.

    Its parameters are uninitialized until then; an optimizer is made after the first call.

    Args:
        out_features: the size of the result's last axis.

    >>> nn.LazyLinear(2)(lucid.ones(5, 3)).shape
    lucid.Size([5, 2])
    """

    cls_to_become = Linear

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(0, 0, False, device, dtype)
        self.out_features = out_features
        self._leave_open(bias, dtype)

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the features from the input's last axis."""
        _check(self, input)
        self.in_features = input.shape[-1]
        self._materialize(self.out_features, self.in_features, features=self.out_features)


class _LazyConvolution(_LazyWeighted, conv._ConvNd):
    """A convolution, direct or transposed, with as many channels as its first input."""

    def __init__(self, out_channels: int, kernel_size: Size, *args: Any, **kwargs: Any) -> None:
        is_transposed = isinstance(self, conv._ConvTransposeNd)
        options = dict(zip(_OPTIONS[is_transposed], args, strict=False)) | kwargs
        has_bias, dtype = options.pop("bias", True), options.get("dtype")
        super().__init__(0, 0, kernel_size, bias=False, **options)
        self.out_channels = out_channels
        if out_channels % self.groups:
            problem = f"out_channels={self.out_channels} must be divisible by groups={self.groups}"
            raise OptionError(f"{type(self).__name__}: {problem}")
        self._leave_open(has_bias, dtype)

    def initialize_parameters(self, input: Tensor, *_: Any) -> None:
        """Take the channels from the input."""
        _check(self, input, self.rank + 1, self.rank + 2)
        self.in_channels = input.shape[-self.rank - 1]
        if self.in_channels % self.groups:
            problem = f"in_channels={self.in_channels} must be divisible by groups={self.groups}"
            raise OptionError(f"{type(self).__name__}: {problem}")
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        shape = first, second // self.groups, *self.kernel_size
        self._materialize(*shape, features=self.out_channels)


_SHARED = ("stride", "padding")
_LAST = ("padding_mode", "device", "dtype")
_OPTIONS = {
    False: (*_SHARED, "dilation", "groups", "bias", *_LAST),
    True: (*_SHARED, "output_padding", "groups", "bias", "dilation", *_LAST),
}


class LazyConv1d(_LazyConvolution, conv.Conv1d):
    """A `Conv1d` that takes `in_channels` from its first input.

    Its parameters are uninitialized until then; an optimizer is made after the first call.

    Args:
        out_channels: channels of the result.
        *args: the other arguments of that module, but for those that the input tells.
        **kwargs: the same, by name.

    >>> nn.LazyConv1d(8, 3)(lucid.ones(1, 3, 4)).shape
    lucid.Size([1, 8, 2])
    """

    cls_to_become = conv.Conv1d


class LazyConv2d(_LazyConvolution, conv.Conv2d, like=LazyConv1d):
    cls_to_become = conv.Conv2d


class LazyConv3d(_LazyConvolution, conv.Conv3d, like=LazyConv1d):
    cls_to_become = conv.Conv3d


@like(LazyConv1d)
class LazyConvTranspose1d(_LazyConvolution, conv.ConvTranspose1d):
    """A `ConvTranspose1d` that takes `in_channels` from its first input.

    >>> nn.LazyConvTranspose1d(8, 2)(lucid.ones(1, 3, 4)).shape
    lucid.Size([1, 8, 5])
    """

    cls_to_become = conv.ConvTranspose1d


class LazyConvTranspose2d(_LazyConvolution, conv.ConvTranspose2d, like=LazyConvTranspose1d):
    cls_to_become = conv.ConvTranspose2d


class LazyConvTranspose3d(_LazyConvolution, conv.ConvTranspose3d, like=LazyConvTranspose1d):
    cls_to_become = conv.ConvTranspose3d


class _LazyNorm(LazyModuleMixin):
    """A normalization that takes the channels from its first input; it is made anew then."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        start: Any = super().__init__
        start(0, *args, **kwargs)
        self._arguments = args, kwargs
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._parameters[name] = UninitializedParameter(dtype=parameter.dtype)
        for name, buffer in self._buffers.items():
            if buffer is not None and buffer.ndim:  # all but the count of batches
                self._buffers[name] = UninitializedBuffer(dtype=buffer.dtype)

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the features from the input's axis of channels."""
        assert self.cls_to_become is not None
        ranks, axis = self._accepted()
        _check(self, input, *ranks)
        args, kwargs = self._arguments
        made = self.cls_to_become(input.shape[axis], *args, **kwargs)
        del self._arguments
        self.num_features = made.num_features
        for register in ("_parameters", "_buffers"):
            for name, tensor in self.__dict__[register].items():
                if isinstance(tensor, Uninitialized):
                    values = made.__dict__[register][name].detach()
                    tensor._become(values.to(tensor.dtype))

    def _accepted(self) -> tuple[Sequence[int], int]:
        """How many axes the input may have, and which one is that of channels."""
        assert isinstance(self, _BatchNorm) and self.ranks is not None
        return self.ranks, 1


@like(LazyConv1d)
class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A `BatchNorm1d` that takes `num_features` from its first input.

    >>> nn.LazyBatchNorm1d()(lucid.ones(2, 3, 4)).shape
    lucid.Size([2, 3, 4])
    """

    cls_to_become = BatchNorm1d


@like(LazyBatchNorm1d, axes=2)
class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    cls_to_become = BatchNorm2d


@like(LazyBatchNorm1d, axes=3)
class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    cls_to_become = BatchNorm3d


class _LazyInstanceNorm(_LazyNorm):
    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(eps, momentum, affine, track_running_stats, *args, **kwargs)

    def _accepted(self) -> tuple[Sequence[int], int]:
        assert isinstance(self, _InstanceNorm)
        return (self.rank + 1, self.rank + 2), -self.rank - 1


@like(LazyBatchNorm1d)
class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """An `InstanceNorm1d` that takes `num_features` from its first input.

    Args:
        momentum: how far the running statistics move towards the batch's.
        affine: train a weight and a bias for each channel; other than in `InstanceNorm1d` the
            default.
        track_running_stats: keep running statistics, which eval mode uses; the default, too.
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d, like=LazyInstanceNorm1d):
    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d, like=LazyInstanceNorm1d):
    cls_to_become = InstanceNorm3d
