"""relu, and softplus, the smooth one."""

from __future__ import annotations

from lucid.functions.elementwise import where
from lucid.functions.gradients import with_gradient
from lucid.functions.promotion import floating
from lucid.functions.tensors import Tensor

__all__ = ["relu", "softplus"]


@with_gradient(lambda g, y: where(y <= 0, 0.0, g))
def _relu(x: Tensor) -> Tensor:
    """max(x, 0); the derivative at 0 is 0, and a NaN stays a NaN."""
    return x.clamp(min=0)


def _softplus_vjp(g: Tensor, x: Tensor, beta: float, threshold: float) -> Tensor:
    scaled = x * beta
    return where(scaled > threshold, g, g * scaled.sigmoid())


@with_gradient(_softplus_vjp)
def _softplus(x: Tensor, beta: float, threshold: float) -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold."""
    scaled = x * beta
    soft = scaled.clamp(max=threshold).exp().log1p() / beta
    return where(scaled > threshold, x, soft)


def relu(input: Tensor) -> Tensor:
    """Return `max(input, 0)`: a NaN stays NaN, the derivative at 0 is 0.

    Args:
        input: a tensor of numbers.

    >>> lucid.relu(lucid.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """
    if input._type.dtype.kind != "float":
        return input.clamp(min=0)
    return _relu(input)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta; input itself where beta * input > threshold.

    A smooth `relu`. The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        beta: how sharp the bend is.
        threshold: from where on it is taken for a line.

    >>> F.softplus(lucid.tensor([-2.0, 0.5, 3.0]))
    tensor([0.1269, 0.9741, 3.0486])
    """
    return _softplus(floating(input, "softplus"), beta, threshold)
