"""Gradients of convolutions by themselves, for custom Functions: `lucid.nn.grad.conv2d_input`.

Args:
    grad_output: the gradient with respect to the convolution's result.
    stride: the convolution's.
    padding: the convolution's.
    dilation: the convolution's.
    groups: the convolution's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lucid.functions.border import explain_calls
from lucid.ir.errors import ShapeError
from lucid.nn.functional.convolution import (
    Geometry,
    convolution_input_gradient,
    convolution_weight_gradient,
    geometry_of,
)
from lucid.nn.functional.sliding import Size, of_each_rank, same_dtype
from lucid.tensor.tensor import Tensor

__all__ = [
    "conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input",
    "conv3d_weight",
]  # fmt: skip


def _convnd_input(
    rank: int,
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of `conv1d` with respect to its input.

    Args:
        input_size: the input's shape, (n, c, l).
        weight: the convolution's, (o, c / groups, k).

    Raises:
        ShapeError: the shapes don't go together.

    >>> x, weight, grad = lucid.zeros(1, 2, 8), lucid.ones(4, 2, 3), lucid.ones(1, 4, 6)
    >>> lucid.nn.grad.conv1d_input(x.shape, weight, grad).shape
    lucid.Size([1, 2, 8])
    """
    name, size, options = f"conv{rank}d_input", tuple(input_size), (stride, padding, dilation)
    geometry = _geometry(name, rank, (size, tuple(weight.shape)), grad_output, options, groups)
    same_dtype(name, grad_output, weight)
    rest = geometry.windows.rest(size[2:], tuple(grad_output.shape[2:]))
    return convolution_input_gradient(grad_output, weight, geometry, rest)


def _convnd_weight(
    rank: int,
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of `conv1d` with respect to its weight.

    Args:
        input: the convolution's, (n, c, l).
        weight_size: the weight's shape, (o, c / groups, k).

    Raises:
        ShapeError: the shapes don't go together.

    >>> x, weight, grad = lucid.ones(1, 2, 8), lucid.zeros(4, 2, 3), lucid.ones(1, 4, 6)
    >>> lucid.nn.grad.conv1d_weight(x, weight.shape, grad).shape
    lucid.Size([4, 2, 3])
    """
    name, size, options = f"conv{rank}d_weight", tuple(weight_size), (stride, padding, dilation)
    geometry = _geometry(name, rank, (tuple(input.shape), size), grad_output, options, groups)
    same_dtype(name, input, grad_output)
    return convolution_weight_gradient(input, grad_output, geometry)


def _geometry(
    name: str,
    rank: int,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    grad_output: Tensor,
    options: tuple[Size, Size | str, Size],
    groups: int,
) -> Geometry:
    """The convolution of an input and a weight of these shapes, whose result `grad_output` fits."""
    size, weight = shapes
    fit = len(size) == len(weight) == rank + 2 and size[1] == weight[1] * groups
    if not fit or groups < 1 or weight[0] % groups:
        raise ShapeError(
            f"{name}: an input of size {list(size)} and a weight of size {list(weight)} don't go "
            f"together with groups={groups}"
        )
    geometry = geometry_of(name, size, weight, options, groups)
    wanted = [size[0], weight[0], *geometry.windows.counts(size[2:])]
    if list(grad_output.shape) != wanted:
        raise ShapeError(f"{name}: grad_output must be {wanted}, not {list(grad_output.shape)}")
    return geometry


conv1d_input, conv2d_input, conv3d_input = of_each_rank(_convnd_input)
conv1d_weight, conv2d_weight, conv3d_weight = of_each_rank(_convnd_weight)

explain_calls(sys.modules[__name__], dict(vars()), __name__)
