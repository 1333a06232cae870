"""Rounding to the values that a quantized tensor could have; the gradient passes as if it didn't.

Args:
    input: a tensor of floats.
    scale: the distance of neighbouring values.
    zero_point: the integer that stands for 0.
    quant_min: the least integer.
    quant_max: the greatest integer.

Raises:
    OptionError: `quant_min` is above `quant_max`, or a number as `zero_point` is outside of them.
"""

from __future__ import annotations

from lucid.docstrings import like, maps
from lucid.functions.arguments import axis_of
from lucid.functions.elementwise import where
from lucid.functions.gradients import with_gradient
from lucid.functions.promotion import Number, floating
from lucid.functions.tensors import Tensor
from lucid.ir.errors import OptionError, ShapeError

__all__ = ["fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine"]


def _integers(x: Tensor, scale: Tensor | float, zero_point: Tensor | int) -> Tensor:
    return (x * (1 / scale)).round() + zero_point


def _straight_through(
    g: Tensor, x: Tensor, scale: Tensor | float, zero_point: Tensor | int, low: int, high: int
) -> Tensor:
    """The gradient where nothing was cut off.

    Reference: Bengio, Léonard and Courville, "Estimating or Propagating Gradients Through
    Stochastic Neurons for Conditional Computation", 2013.
    """
    integers = _integers(x, scale, zero_point)
    return where((integers >= low) & (integers <= high), g, 0.0)


@with_gradient(_straight_through)
def _fake_quantized(
    x: Tensor, scale: Tensor | float, zero_point: Tensor | int, low: int, high: int
) -> Tensor:
    return (_integers(x, scale, zero_point).clamp(low, high) - zero_point) * scale


@maps("[0.26, 9.0]", "0.5", "0", "-8", "7", "[0.5000, 3.5000]")
def fake_quantize_per_tensor_affine(
    input: Tensor,
    scale: Tensor | Number,
    zero_point: Tensor | int,
    quant_min: int,
    quant_max: int,
) -> Tensor:
    """Round to multiples of `scale`, `(q - zero_point) * scale` with an integer q in a range.

    q is `input / scale + zero_point`, rounded and cut off at `quant_min` and `quant_max`.

    The gradient is that of the identity where nothing is cut off, and 0 elsewhere.
    """
    name = "fake_quantize_per_tensor_affine"
    _check_range(name, zero_point, quant_min, quant_max)
    return _fake_quantized(floating(input, name), scale, zero_point, quant_min, quant_max)


@like(fake_quantize_per_tensor_affine)
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """Fake-quantize each entry along `axis` by its own scale and zero point.

    Args:
        scale: a vector with one for each entry along `axis`.
        zero_point: a vector with as many integers.
        axis: which axis.

    Raises:
        ShapeError: the vectors aren't as long as the axis.

    >>> scales, zeros = lucid.tensor([0.5, 1.0]), lucid.zeros(2)
    >>> lucid.fake_quantize_per_channel_affine(lucid.ones(2) * 0.7, scales, zeros, 0, -8, 7)
    tensor([0.5000, 1.0000])
    """
    name = "fake_quantize_per_channel_affine"
    _check_range(name, zero_point, quant_min, quant_max)
    axis = axis_of(axis, input.ndim, name)
    along = [1] * input.ndim
    along[axis] = input.shape[axis]
    if any(tuple(given.shape) != (along[axis],) for given in (scale, zero_point)):
        raise ShapeError(
            f"{name}: scale and zero_point must have one entry for each of axis {axis}"
        )
    return _fake_quantized(
        floating(input, name), scale.view(along), zero_point.view(along), quant_min, quant_max
    )


def _check_range(name: str, zero_point: Tensor | int, low: int, high: int) -> None:
    if low > high:
        raise OptionError(f"{name}: `quant_min` should be less than or equal to `quant_max`")
    if isinstance(zero_point, int) and not low <= zero_point <= high:
        raise OptionError(f"{name}: `zero_point` must be between `quant_min` and `quant_max`")
