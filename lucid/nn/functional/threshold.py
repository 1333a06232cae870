"""Activations made of straight pieces, and those that compare or gate."""

from __future__ import annotations

from typing import Any

import lucid
from lucid.functions.arguments import axis_of
from lucid.functions.softmax import softmax
from lucid.ir.errors import OptionError, ShapeError
from lucid.nn.functional.activation import elu, result_of, source_of
from lucid.nn.functional.calls import where
from lucid.tensor.tensor import Tensor

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """input, brought into [min_val, max_val]."""
    if min_val > max_val:
        raise OptionError(
            f"hardtanh: min_val cannot be greater than max_val, but {min_val} > {max_val}"
        )
    return result_of(input, source_of(input, inplace).clamp(min_val, max_val), inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """input / 6 + 1 / 2, brought into [0, 1]."""
    return result_of(input, (input + 3.0).clamp(0.0, 6.0) / 6.0, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input)."""
    x = source_of(input, inplace)
    inside = x * (x + 3.0) / 6.0
    y = where(x <= -3.0, 0.0, where(x < 3.0, inside, x))
    return result_of(input, y, inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where it is above the threshold, else `value`."""
    x = source_of(input, inplace)
    return result_of(input, where(x > threshold, x, value), inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu with the two constants that keep mean 0 and variance 1."""
    return result_of(input, elu(source_of(input, inplace), _SELU_ALPHA) * _SELU_SCALE, inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where it is positive, else `alpha * (exp(input / alpha) - 1)`."""
    x = source_of(input, inplace)
    low = (x.clamp(max=0.0) / alpha).expm1() * alpha
    return result_of(input, where(x > 0.0, x, low), inplace)


def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|)."""
    return input / (input.abs() + 1.0)


def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    return input - input.tanh()


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """input moved towards 0 by lambd, not beyond it."""
    return where(input > lambd, input - lambd, where(input < -lambd, input + lambd, input * 0.0))


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """input, and 0 where it is within [-lambd, lambd]."""
    return where((input >= -lambd) & (input <= lambd), 0.0, input)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """input where it is positive, else `weight * input`; one weight, or one per channel (axis 1).

    Raises `ShapeError` for another number of weights.
    """
    if weight.numel() != 1:
        channels = input.shape[1] if input.ndim > 1 else 1
        if weight.ndim != 1 or weight.numel() != channels:
            raise ShapeError(
                f"prelu: Mismatch of parameter numbers and input channel size. Found parameter "
                f"numbers = {weight.numel()} and channel size = {channels}."
            )
        weight = weight.reshape(-1, *(1,) * (input.ndim - 2))
    else:
        weight = weight.reshape(())
    return where(input > 0.0, input, input * weight)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim` times the sigmoid of the second."""
    if input.ndim == 0 or input.shape[axis_of(dim, input.ndim, "glu")] % 2:
        raise ShapeError(
            f"glu: Halving dimension must be even, but dimension {dim} of {input._type}"
        )
    value, gate = input.chunk(2, dim)
    return value * gate.sigmoid()


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Tensor:
    """Draw from the relaxed categorical distribution; `hard`: one-hot, with the soft gradient.

    Reference: Jang et al., "Categorical Reparameterization with Gumbel-Softmax", 2017.
    """
    noise = lucid.empty_like(logits.detach()).exponential_().clamp(min=1e-30).log()
    soft = softmax((logits - noise) / tau, dim)
    if not hard:
        return soft
    index: Any = soft.max(dim, keepdim=True)[1]
    one_hot = lucid.zeros_like(logits.detach()).scatter(dim, index, 1.0)
    return one_hot - soft.detach() + soft


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (n, c, l) or (c, l) with probability p, and scale the others."""
    return _channel_dropout("dropout1d", input, p, training, inplace, (2, 3))


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (n, c, h, w) or (c, h, w) with probability p, and scale the others."""
    return _channel_dropout("dropout2d", input, p, training, inplace, (3, 4))


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (n, c, d, h, w) with probability p, and scale the others."""
    return _channel_dropout("dropout3d", input, p, training, inplace, (4, 5))


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Set elements to what selu has far left, with probability p; keep mean 0 and variance 1.

    Reference: Klambauer et al., "Self-Normalizing Neural Networks", 2017.
    """
    if not 0.0 <= p <= 1.0:
        raise OptionError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return result_of(input, input * 0.0, inplace)
    low = -_SELU_ALPHA * _SELU_SCALE
    scale = ((1 - p) * (1 + p * low * low)) ** -0.5
    keep = lucid.rand(input.shape, dtype=input.dtype) >= p
    y = where(keep, source_of(input, inplace), low) * scale - scale * p * low
    return result_of(input, y, inplace)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """leaky_relu with slopes drawn from [lower, upper] if training, else their mean."""
    x = source_of(input, inplace)
    slope: float | Tensor = (lower + upper) / 2
    if training:
        slope = lucid.rand(x.shape, dtype=x.dtype) * (upper - lower) + lower
    return result_of(input, where(x >= 0.0, x, x * slope), inplace)


def _channel_dropout(
    name: str, x: Tensor, p: float, training: bool, inplace: bool, ranks: tuple[int, int]
) -> Tensor:
    from lucid.nn.functional.dropout import dropout

    if x.ndim not in ranks:
        raise ShapeError(f"{name}: takes {ranks[0]} or {ranks[1]} axes, not {x._type}")
    if not 0.0 <= p <= 1.0:
        raise OptionError(f"{name}: dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return x
    lead = x.ndim - ranks[0] + 1
    mask = dropout(lucid.ones(*x.shape[:lead], *(1,) * (x.ndim - lead), dtype=x.dtype), p)
    return result_of(x, x * mask, inplace)
