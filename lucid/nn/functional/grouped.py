"""Normalization over groups of channels of each example, and over neighbouring channels."""

from __future__ import annotations

from math import prod

from lucid.autograd.modes import no_grad
from lucid.docstrings import like
from lucid.ir.errors import OptionError, ShapeError
from lucid.nn.functional.normalization import _layer_norm, batch_norm
from lucid.nn.functional.padding import pad
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_

__all__ = ["group_norm", "instance_norm", "local_response_norm"]


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

    Example:
        >>> F.group_norm(lucid.tensor([[1.0, 3.0, 5.0, 9.0]]), 2)
        tensor([[-1.0000,  1.0000, -1.0000,  1.0000]])
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
    shape = (1, -1, *(1,) * (y.ndim - 2))
    if weight is not None:
        y = y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


@like(group_norm)
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
        use_input_stats: use each example's own statistics, not the running ones. Default: True.
        momentum: how far the running statistics move towards the new ones. Default: 0.1.

    Raises:
        ShapeError: there is one element for each channel.

    Example:
        >>> F.instance_norm(lucid.tensor([[[1.0, 3.0]]]))
        tensor([[[-1.0000,  1.0000]]])
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, 0.0, eps)
    count = prod(input.shape[2:])
    if count == 1:
        raise ShapeError("instance_norm: Expected more than 1 spatial element when training")
    axes = tuple(range(2, input.ndim))
    with no_grad():
        if running_mean is not None:
            mean = input.mean(axes).mean(0)
            write_(running_mean, running_mean * (1.0 - momentum) + mean * momentum)
        if running_var is not None:
            variance = input.var(axes).mean(0)
            write_(running_var, running_var * (1.0 - momentum) + variance * momentum)
    return group_norm(input, input.shape[1], weight, bias, eps)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divide by a power of the mean square of `size` neighbouring channels.

    Reference: Krizhevsky et al., "ImageNet Classification with Deep CNNs", 2012.

    Args:
        input: (n, c, *).
        size: how many channels are looked at.
        alpha: the factor of the mean square. Default: 0.0001.
        beta: the power. Default: 0.75.
        k: what is added to it. Default: 1.0.

    Raises:
        ShapeError: the input has less than three axes.

    Example:
        >>> F.local_response_norm(lucid.ones(1, 3, 1), 2).flatten()
        tensor([1.0000, 0.9999, 0.9999])
    """
    if input.ndim < 3:
        raise ShapeError(f"local_response_norm: expected at least 3 axes, got {input._type}")
    square = (input * input).movedim(1, -1)
    around = pad(square, (size // 2, (size - 1) // 2)).unfold(-1, size, 1).mean(-1)
    return input / (around.movedim(-1, 1) * alpha + k) ** beta
