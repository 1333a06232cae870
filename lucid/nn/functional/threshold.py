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
    """input, brought into [min_val, max_val].

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        min_val: the lower bound. Default: -1.0.
        max_val: the upper bound. Default: 1.0.
        inplace: write the result into `input` and return that. Default: False.

    Raises:
        OptionError: `min_val` is above `max_val`.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.hardtanh(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-1.0000,  0.5000,  1.0000])
    """
    if min_val > max_val:
        raise OptionError(
            f"hardtanh: min_val cannot be greater than max_val, but {min_val} > {max_val}"
        )
    return result_of(input, source_of(input, inplace).clamp(min_val, max_val), inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """input / 6 + 1 / 2, brought into [0, 1].

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.hardsigmoid(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([0.1667, 0.5833, 1.0000])
    """
    return result_of(input, (input + 3.0).clamp(0.0, 6.0) / 6.0, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input).

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.hardswish(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.3333,  0.2917,  3.0000])
    """
    x = source_of(input, inplace)
    inside = x * (x + 3.0) / 6.0
    y = where(x <= -3.0, 0.0, where(x < 3.0, inside, x))
    return result_of(input, y, inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where it is above the threshold, else `value`.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        threshold: what the input must be above.
        value: what stands for the rest.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.threshold(lucid.tensor([-2.0, 0.5, 3.0]), 1.0, 0.0)
        tensor([0., 0., 3.])
    """
    x = source_of(input, inplace)
    return result_of(input, where(x > threshold, x, value), inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu with the two constants that keep mean 0 and variance 1.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.selu(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-1.5202,  0.5254,  3.1521])
    """
    return result_of(input, elu(source_of(input, inplace), _SELU_ALPHA) * _SELU_SCALE, inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where it is positive, else `alpha * (exp(input / alpha) - 1)`.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        alpha: how fast it falls, and to what. Default: 1.0.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.celu(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.8647,  0.5000,  3.0000])
    """
    x = source_of(input, inplace)
    low = (x.clamp(max=0.0) / alpha).expm1() * alpha
    return result_of(input, where(x > 0.0, x, low), inplace)


def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|).

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.softsign(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.6667,  0.3333,  0.7500])
    """
    return input / (input.abs() + 1.0)


def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input).

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.tanhshrink(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-1.0360,  0.0379,  2.0049])
    """
    return input - input.tanh()


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """input moved towards 0 by lambd, not beyond it.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        lambd: where the threshold is. Default: 0.5.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.softshrink(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-1.5000,  0.0000,  2.5000])
    """
    return where(input > lambd, input - lambd, where(input < -lambd, input + lambd, input * 0.0))


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """input, and 0 where it is within [-lambd, lambd].

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        lambd: where the threshold is. Default: 0.5.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.hardshrink(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-2.,  0.,  3.])
    """
    return where((input >= -lambd) & (input <= lambd), 0.0, input)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """input where it is positive, else `weight * input`; one weight, or one per channel (axis 1).

    Raises `ShapeError` for another number of weights.

    Args:
        input: the tensor, of a float dtype.
        weight: the slope below 0, (1,), or (c,) for channels on axis 1.

    Raises:
        ShapeError: another number of weights.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.prelu(lucid.tensor([-2.0, 3.0]), lucid.tensor([0.25]))
        tensor([-0.5000,  3.0000])
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
    """The first half along `dim` times the sigmoid of the second.

    The result has half the size along `dim`.

    Reference: Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2016.

    Args:
        input: the tensor, of a float dtype.
        dim: the axis. Default: -1.

    Raises:
        ShapeError: the size along `dim` is odd.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.glu(lucid.tensor([1.0, 2.0, 0.0, 0.0]))
        tensor([0.5000, 1.0000])
    """
    if input.ndim == 0 or input.shape[axis_of(dim, input.ndim, "glu")] % 2:
        raise ShapeError(
            f"glu: Halving dimension must be even, but dimension {dim} of {input._type}"
        )
    value, gate = input.chunk(2, dim)
    return value * gate.sigmoid()


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Tensor:
    """Draw from the relaxed categorical distribution; `hard`: one-hot, with the soft gradient.

    Reference: Jang et al., "Categorical Reparameterization with Gumbel-Softmax", 2017.

    Args:
        logits: the logarithms of weights.
        tau: the temperature: the smaller, the nearer to one-hot. Default: 1.0.
        hard: one-hot in the forward, with the gradient of the soft draw. Default: False.
        dim: the axis. Default: -1.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.gumbel_softmax(lucid.zeros(3), hard=True).sum()
        tensor(1.)
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
    """Zero whole channels of (n, c, l) or (c, l) with probability p, and scale the others.

    A channel is kept whole or set to 0 whole, in each example by itself; what is kept is scaled by
    1 / (1 - p).

    Raises `OptionError` for p outside of [0, 1].

    Args:
        input: the tensor, of a float dtype.
        p: the probability of an element to be dropped. Default: 0.5.
        training: draw; else the input comes back. Default: True.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.dropout1d(lucid.ones(1, 2, 2), training=False).shape
        lucid.Size([1, 2, 2])
    """
    return _channel_dropout("dropout1d", input, p, training, inplace, (2, 3))


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (n, c, h, w) or (c, h, w) with probability p, and scale the others.

    A channel is kept whole or set to 0 whole, in each example by itself; what is kept is scaled by
    1 / (1 - p).

    Raises `OptionError` for p outside of [0, 1].

    Args:
        input: the tensor, of a float dtype.
        p: the probability of an element to be dropped. Default: 0.5.
        training: draw; else the input comes back. Default: True.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.dropout2d(lucid.ones(1, 2, 2, 2), training=False).shape
        lucid.Size([1, 2, 2, 2])
    """
    return _channel_dropout("dropout2d", input, p, training, inplace, (3, 4))


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (n, c, d, h, w) with probability p, and scale the others.

    A channel is kept whole or set to 0 whole, in each example by itself; what is kept is scaled by
    1 / (1 - p).

    Raises `OptionError` for p outside of [0, 1].

    Args:
        input: the tensor, of a float dtype.
        p: the probability of an element to be dropped. Default: 0.5.
        training: draw; else the input comes back. Default: True.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.dropout3d(lucid.ones(1, 2, 2, 2, 2), training=False).shape
        lucid.Size([1, 2, 2, 2, 2])
    """
    return _channel_dropout("dropout3d", input, p, training, inplace, (4, 5))


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Set elements to what selu has far left, with probability p; keep mean 0 and variance 1.

    Reference: Klambauer et al., "Self-Normalizing Neural Networks", 2017.

    Args:
        input: the tensor, of a float dtype.
        p: the probability of an element to be dropped. Default: 0.5.
        training: draw; else the input comes back. Default: False.
        inplace: write the result into `input` and return that. Default: False.

    Raises:
        OptionError: p is outside of [0, 1].

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.alpha_dropout(lucid.ones(4), 0.5, training=False)
        tensor([1., 1., 1., 1.])
    """
    return _alpha_dropout(input, p, training, inplace, tuple(input.shape))


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """As `alpha_dropout`, of whole channels: all of (n, c) that follows is kept or dropped.

    Reference: Klambauer et al., "Self-Normalizing Neural Networks", 2017.

    Args:
        input: the tensor, (n, c, *), of a float dtype.
        p: the probability of a channel to be dropped. Default: 0.5.
        training: draw; else the input comes back. Default: False.
        inplace: write the result into `input` and return that. Default: False.

    Raises:
        OptionError: p is outside of [0, 1].
        ShapeError: the input has less than two axes, where it is drawn.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.feature_alpha_dropout(lucid.ones(1, 4), 0.5, training=False)
        tensor([[1., 1., 1., 1.]])
    """
    if training and input.ndim < 2:
        raise ShapeError(
            "feature_alpha_dropout: Feature dropout requires at least 2 dimensions in the input"
        )
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return _alpha_dropout(input, p, training, inplace, shape)


def _alpha_dropout(
    input: Tensor, p: float, training: bool, inplace: bool, shape: tuple[int, ...]
) -> Tensor:
    """One draw for each element of `shape`, which broadcasts with the input."""
    if not 0.0 <= p <= 1.0:
        raise OptionError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return result_of(input, input * 0.0, inplace)
    low = -_SELU_ALPHA * _SELU_SCALE
    scale = ((1 - p) * (1 + p * low * low)) ** -0.5
    keep = lucid.rand(shape, dtype=input.dtype) >= p
    y = where(keep, source_of(input, inplace), low) * scale - scale * p * low
    return result_of(input, y, inplace)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """leaky_relu with slopes drawn from [lower, upper] if training, else their mean.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        lower: the least slope. Default: 0.125.
        upper: the greatest slope. Default: 0.3333333333333333.
        training: draw slopes; else take their mean. Default: False.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.rrelu(lucid.tensor([-2.0, 0.5, 3.0]), 0.2, 0.4)
        tensor([-0.6000,  0.5000,  3.0000])
    """
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
