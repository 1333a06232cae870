"""layer_norm, batch_norm, rms_norm, and norms over groups of channels and over neighbours.

What their gradients need besides the inputs is computed again in the backward, where a compiled
step finds that it has it already, and derivatives of every order are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import lucid
from lucid.autograd.modes import no_grad
from lucid.autograd.native import composite
from lucid.docstrings import like, maps
from lucid.functions.border import recorded
from lucid.functions.gradients import with_gradient
from lucid.functions.inplace import in_place
from lucid.functions.promotion import ratio
from lucid.ir.errors import OptionError, ShapeError
from lucid.nn.functional.padding import pad
from lucid.tensor.context import within
from lucid.tensor.tensor import Tensor

__all__ = [
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm",
    "rms_norm",
]  # fmt: skip

Axes = tuple[int, ...]
Parts = tuple[Tensor | None, ...]


def _moments(x: Tensor, axes: Axes) -> tuple[Tensor, Tensor, Tensor]:
    """The centred x, its mean and its (biased) variance over `axes`, which are kept as ones."""
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    return centred, mean, (centred * centred).mean(axes, keepdim=True)


def _standardized_vjp(g: Tensor, xhat: Tensor, rstd: Tensor, axes: Axes) -> Tensor:
    """The cotangent of x for `xhat = (x - mean(x)) * rstd(x)`."""
    along = (g * xhat).mean(axes, keepdim=True)
    return rstd * (g - g.mean(axes, keepdim=True) - xhat * along)


def _layer_norm_vjp(
    g: Tensor, x: Tensor, weight: Tensor | None, rank: int, eps: float, needs: tuple[bool, ...]
) -> Parts:
    axes = tuple(range(x.ndim - rank, x.ndim))
    scaled = g if weight is None else g * weight
    return _affine_vjp(g, scaled, x, axes, tuple(range(axes[0])), eps, needs)


@with_gradient(_layer_norm_vjp)
def _layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, rank: int, eps: float
) -> Tensor:
    """Standardize over the last axes, then scale and shift.

    Reference: Ba, Kiros and Hinton, "Layer Normalization", 2016.
    """
    centred, _, variance = _moments(x, tuple(range(x.ndim - rank, x.ndim)))
    y = centred * (variance + eps).rsqrt()
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


def _batch_norm_vjp(
    g: tuple[Tensor, ...], x: Tensor, weight: Tensor | None, eps: float, needs: tuple[bool, ...]
) -> Parts:
    axes = (0, *range(2, x.ndim))
    scaled = g[0] if weight is None else g[0] * _channels(weight, x)
    return _affine_vjp(g[0], scaled, x, axes, axes, eps, needs)


@with_gradient(_batch_norm_vjp, fixed=(1, 2))
def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Standardize each channel (axis 1) over the batch; also returns the batch's mean and variance.

    Reference: Ioffe and Szegedy, "Batch Normalization", 2015.
    """
    centred, mean, variance = _moments(x, (0, *range(2, x.ndim)))
    y = _scaled(centred * (variance + eps).rsqrt(), weight, bias)
    return y, mean.reshape(x.shape[1]), variance.reshape(x.shape[1])


def _affine_vjp(
    g: Tensor, scaled: Tensor, x: Tensor, axes: Axes, rows: Axes, eps: float, needs: Sequence[bool]
) -> Parts:
    """The cotangents of x, which was standardized over `axes`, of factors and of shifts."""
    centred, _, variance = _moments(x, axes)
    rstd = (variance + eps).rsqrt()
    xhat = centred * rstd
    return (
        _standardized_vjp(scaled, xhat, rstd, axes) if needs[0] else None,
        _sum(g * xhat, rows) if needs[1] else None,
        _sum(g, rows) if needs[2] else None,
    )


def _sum(x: Tensor, axes: Axes) -> Tensor:
    """Sum over `axes`; no axes means none (a method's `sum(())` means all)."""
    return x.sum(axes) if axes else x


def _channels(x: Tensor, like: Tensor) -> Tensor:
    """View a vector along axis 1 of `like`."""
    return x.reshape(1, -1, *([1] * (like.ndim - 2)))


def _check_normalized_shape(name: str, input: Tensor, shape: Sequence[int]) -> None:
    rank, own = len(shape), input._type.shape
    if not rank or own[len(own) - rank :] != tuple(shape) or rank > len(own):
        raise ShapeError(f"{name}: the last axes of input must be normalized_shape={list(shape)}")


@maps("[[1.0, 2.0, 3.0]]", "(3,)", "[[-1.2247,  0.0000,  1.2247]]")
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Standardize over the last axes, whose sizes are `normalized_shape`; then scale and shift.

    It is `(x - mean) / sqrt(var + eps) * weight + bias`, with the biased variance.

    Reference: Ba et al., "Layer Normalization", 2016.

    Raises `ShapeError` when the input's last axes have other sizes.

    Args:
        normalized_shape: the sizes of the last axes; an int for one axis.
        weight: factors, of that shape. None for 1.
        bias: shifts, of that shape. None for 0.
    """
    _check_normalized_shape("layer_norm", input, normalized_shape)
    return _layer_norm(input, weight, bias, len(normalized_shape), eps)


@maps("[[3.0, 4.0]]", "(2,)", "[[0.8485, 1.1314]]")
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide by the root mean square over the last axes, then scale.

    Reference: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    Args:
        normalized_shape: the sizes of the last axes; an int for one.
        weight: factors, of that shape. None for 1.
        eps: None is the machine epsilon of the input's dtype.
    """
    _check_normalized_shape("rms_norm", input, normalized_shape)
    if eps is None:
        eps = float(lucid.finfo(input.dtype).eps)
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    y: Tensor = input * ((input * input).mean(axes, keepdim=True) + eps).rsqrt()
    return y if weight is None else y * weight


@maps("[[1.0], [3.0]]", "None", "None", "training=True", "[[-1.0000], [ 1.0000]]")
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Standardize each channel (axis 1), by the batch if training, else by the running statistics.

    It is `(x - mean) / sqrt(var + eps) * weight + bias`. Training also moves the running statistics
    towards the batch's, in place (with the unbiased variance).

    Reference: Ioffe and Szegedy, "Batch Normalization", 2015.

    Args:
        input: (n, c, *), channels on axis 1.
        running_mean: the means of channels, (c,); written where they move.
        running_var: the variances of channels, (c,); written where they move.
        weight: a factor of each channel, (c,). None for 1.
        bias: a shift of each channel, (c,). None for 0.
        training: use the statistics of the batch, not the running ones.
        momentum: how far the running statistics move towards the new ones.

    Raises:
        ShapeError: a batch of one element for each channel while training, or statistics that
            aren't (c,).
        OptionError: running statistics are missing where they are needed.
    """
    if not training:
        if running_mean is None or running_var is None:
            raise OptionError("batch_norm: outside of training running statistics are needed")
        return _with_statistics(input, running_mean, running_var, weight, bias, eps)
    if input.ndim < 2:
        raise ShapeError(f"batch_norm: expected at least 2 axes, got {list(input.shape)}")
    count = input.shape[0] * prod(input.shape[2:])
    if count == 1:
        raise ShapeError("batch_norm: Expected more than 1 value per channel when training")
    y, mean, variance = _batch_norm(input, weight, bias, eps)

    def move() -> None:
        if running_mean is not None:
            _move(running_mean, mean, momentum)
        if running_var is not None:
            unbiased = ratio(count, count - 1, variance.dtype)
            _move(running_var, variance, momentum, unbiased)

    if count:
        within({"grad_enabled": False}, move)
    return y


@composite
def _with_statistics(
    input: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    """Standardize each channel by statistics that are known."""
    scale = (variance + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return input * _channels(scale, input) + _channels(shift, input)


@recorded
@in_place
def _move(
    running: Tensor, batch: Tensor, momentum: float | Tensor, factor: Tensor | None = None
) -> Tensor:
    """What a statistic becomes that moves towards the batch's."""
    if factor is not None:
        batch = batch * factor
    return running * (1.0 - momentum) + batch * momentum


@maps("[[1.0, 3.0, 5.0, 9.0]]", "2", "[[-1.0000,  1.0000, -1.0000,  1.0000]]")
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Standardize each group of channels (axis 1) of each example; then scale and shift channels.

    Reference: Wu and He, "Group Normalization", 2018.

    Args:
        input: (n, c, *).
        num_groups: into how many groups the channels are cut.
        weight: a factor of each channel, (c,). None for 1.
        bias: a shift of each channel, (c,). None for 0.

    Raises:
        ShapeError: the input has less than two axes.
        OptionError: the channels can't be cut into that many groups.
    """
    if input.ndim < 2:
        raise ShapeError(f"group_norm: expected at least 2 axes, got {list(input.shape)}")
    channels = input.shape[1]
    if num_groups < 1 or channels % num_groups:
        raise OptionError(f"group_norm: num_groups={num_groups} must divide {channels} channels")
    size = channels // num_groups * prod(input.shape[2:])
    grouped = input.reshape(input.shape[0], num_groups, size)
    y = _layer_norm(grouped, None, None, 1, eps).reshape(input.shape)
    return _scaled(y, weight, bias)


def _scaled(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Scale and shift each channel."""
    if weight is not None:
        y = y * _channels(weight, y)
    return y if bias is None else y + _channels(bias, y)


@like(group_norm)
@maps("[[[1.0, 3.0]]]", "[[[-1.0000,  1.0000]]]")
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Standardize each channel of each example, or by the running statistics.

    With the input's own, the running statistics move towards their means over the batch.

    Args:
        running_mean: the means of channels, (c,); written where they move.
        running_var: the variances of channels, (c,); written where they move.
        use_input_stats: use each example's own statistics, not the running ones.
        momentum: how far the running statistics move towards the new ones.

    Raises:
        ShapeError: there is one element for each channel.
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, 0.0, eps)
    count = prod(input.shape[2:])
    if count == 1:
        raise ShapeError("instance_norm: Expected more than 1 spatial element when training")
    axes = tuple(range(2, input.ndim))
    with no_grad():
        if running_mean is not None:
            _move(running_mean, input.mean(axes).mean(0), momentum)
        if running_var is not None:
            _move(running_var, input.var(axes).mean(0), momentum)
    return group_norm(input, input.shape[1], weight, bias, eps)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divide by a power of the mean square of `size` neighbouring channels.

    Reference: Krizhevsky et al., "ImageNet Classification with Deep CNNs", 2012.

    Args:
        input: (n, c, *).
        size: how many channels are looked at.
        alpha: the factor of the mean square.
        beta: the power.
        k: what is added to it.

    Raises:
        ShapeError: the input has less than three axes.

    >>> F.local_response_norm(lucid.ones(1, 3, 1), 2).flatten()
    tensor([1.0000, 0.9999, 0.9999])
    """
    if input.ndim < 3:
        raise ShapeError(f"local_response_norm: expected at least 3 axes, got {input._type}")
    square = (input * input).movedim(1, -1)
    around = pad(square, (size // 2, (size - 1) // 2)).unfold(-1, size, 1).mean(-1)
    return input / (around.movedim(-1, 1) * alpha + k) ** beta
