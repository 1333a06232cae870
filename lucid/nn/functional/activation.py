"""Elementwise activations; those whose gradient is better written by hand have it above."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid.autograd.native import fused, program
from lucid.docstrings import like, maps
from lucid.functions import rectifiers
from lucid.functions.arguments import axis_of
from lucid.functions.elementwise import where
from lucid.functions.gradients import with_gradient
from lucid.functions.inplace import in_place
from lucid.functions.rectifiers import softplus
from lucid.functions.softmax import softmax
from lucid.functions.transcendental import sigmoid, tanh
from lucid.ir.errors import DTypeError, OptionError, ShapeError
from lucid.ir.location import warn
from lucid.tensor.tensor import Tensor

__all__ = [
    "celu", "celu_", "elu", "elu_", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid",
    "hardswish", "hardtanh", "hardtanh_", "leaky_relu", "leaky_relu_", "logsigmoid", "mish",
    "prelu", "relu", "relu6", "relu_", "rrelu", "rrelu_", "selu", "selu_", "sigmoid", "silu",
    "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "threshold_",
]  # fmt: skip

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_DENSITY_AT_0 = 1.0 / math.sqrt(2.0 * math.pi)
_CUBIC = 0.044715


@with_gradient(lambda g, x, low, high: where((x <= low) | (x >= high), 0.0, g))
def _hardtanh(x: Tensor, low: float, high: float) -> Tensor:
    """x, brought into [low, high]; the derivative is 0 at the bounds, where `clamp` has 1."""
    return x.clamp(low, high)


@with_gradient(lambda g, x, slope: where(x > 0, g, g * slope))
def _leaky_relu(x: Tensor, slope: float) -> Tensor:
    """x where x > 0, else `slope * x`; the derivative at 0 is the slope."""
    return where(x > 0, x, x * slope)


@with_gradient(lambda g, x, alpha: where(x <= 0, g * (x.clamp(max=0).exp() * alpha), g))
def _elu(x: Tensor, alpha: float) -> Tensor:
    """x where x > 0, else `alpha * (exp(x) - 1)`."""
    return where(x > 0, x, x.clamp(max=0).expm1() * alpha)


def _gelu_vjp(g: Tensor, x: Tensor) -> Tensor:
    cdf = 0.5 * (1.0 + (x * _SQRT_HALF).erf())
    density = (x * x * -0.5).exp() * _DENSITY_AT_0
    return g * (cdf + x * density)


@with_gradient(_gelu_vjp)
def _gelu(x: Tensor) -> Tensor:
    """x times the normal distribution's CDF at x.

    Reference: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
    """
    return x * 0.5 * (1.0 + (x * _SQRT_HALF).erf())


def _gelu_tanh_vjp(g: Tensor, x: Tensor) -> Tensor:
    t = (_SQRT_2_OVER_PI * (x + _CUBIC * (x * x * x))).tanh()
    slope = (1.0 - t * t) * (_SQRT_2_OVER_PI * (1.0 + 3.0 * _CUBIC * (x * x)))
    return g * (0.5 * (1.0 + t) + x * 0.5 * slope)


@with_gradient(_gelu_tanh_vjp)
def _gelu_tanh(x: Tensor) -> Tensor:
    """GELU with the CDF approximated by `(1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`."""
    return x * 0.5 * (1.0 + (_SQRT_2_OVER_PI * (x + _CUBIC * (x * x * x))).tanh())


def _silu_vjp(g: Tensor, x: Tensor) -> Tensor:
    s = x.sigmoid()
    return g * (s * (1.0 + x * (1.0 - s)))


@with_gradient(_silu_vjp)
def _silu(x: Tensor) -> Tensor:
    """x times sigmoid(x)."""
    return x * x.sigmoid()


@with_gradient(lambda g, x: g * (-x).sigmoid())
def _log_sigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)) without overflow: min(x, 0) - log1p(exp(-|x|))."""
    return x.clamp(max=0) - (-x.abs()).exp().log1p()


@program
def _hardsigmoid(x: Tensor) -> Tensor:
    return hardtanh(x + 3.0, 0.0, 6.0) / 6.0


@program
def _hardswish(x: Tensor) -> Tensor:
    inner = hardtanh(x, -3.0, 3.0)
    return where(x < 3.0, inner * (inner + 3.0) / 6.0, x)


@program
def _mish(x: Tensor) -> Tensor:
    return x * softplus(x).tanh()


@program
def _selu(x: Tensor) -> Tensor:
    return elu(x, SELU_ALPHA) * SELU_SCALE


@program
def _celu(x: Tensor, alpha: float) -> Tensor:
    return where(x > 0.0, x, (x.clamp(max=0.0) / alpha).expm1() * alpha)


@fused
def _threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    return where(x <= threshold, value, x)


def result_of(x: Tensor, y: Tensor, inplace: bool) -> Tensor:
    """The result, written into `x` where the caller asked for it."""
    return x.copy_(y) if inplace else y


def source_of(x: Tensor, inplace: bool) -> Tensor:
    """What the gradient may keep: a copy where `x` will be written."""
    return x.clone() if inplace else x


@maps("[-2.0, 0.5, 3.0]", "[0.0000, 0.5000, 3.0000]")
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0), elementwise.

    The result is as large as the input, and of its dtype.
    """
    return result_of(input, rectifiers.relu(input), inplace)


relu_ = in_place(relu)


@like(relu)
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(input, 0), 6), elementwise; the derivative at 0 and 6 is 0."""
    return hardtanh(input, 0.0, 6.0, inplace)


@like(relu)
@maps("[-2.0, 0.5, 3.0]", "[-0.0200,  0.5000,  3.0000]")
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where it is positive, else `negative_slope * input`.

    Args:
        negative_slope: the slope below 0.
    """
    return result_of(input, _leaky_relu(source_of(input, inplace), negative_slope), inplace)


leaky_relu_ = in_place(leaky_relu)


@like(relu)
@maps("[-2.0, 0.5, 3.0]", "[-0.8647,  0.5000,  3.0000]")
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where it is positive, else `alpha * (exp(input) - 1)`.

    Args:
        alpha: what it falls to, negated.
    """
    return result_of(input, _elu(source_of(input, inplace), alpha), inplace)


elu_ = in_place(elu)


@maps("[-2.0, 0.5, 3.0]", "[-0.0455,  0.3457,  2.9960]")
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input times the normal CDF of input; `approximate="tanh"` for the cheaper form.

    x Φ(x), where Φ is the distribution of a standard normal variable.

    Reference: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.

    Args:
        approximate: "none", or "tanh".

    Raises:
        OptionError: another `approximate`.
    """
    if approximate == "none":
        return _gelu(input)
    if approximate == "tanh":
        return _gelu_tanh(input)
    raise OptionError(f"gelu: approximate must be 'none' or 'tanh', not {approximate!r}")


@like(relu)
@maps("[-2.0, 0.5, 3.0]", "[-0.2384,  0.3112,  2.8577]")
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input), elementwise."""
    return result_of(input, _silu(source_of(input, inplace)), inplace)


@like(relu)
@maps("[-2.0, 0.5, 3.0]", "[-2.1269, -0.4741, -0.0486]")
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)), accurate for inputs of any size."""
    return _log_sigmoid(input)


@like(relu)
@maps("[-2.0, 0.5, 3.0]", "[-0.2525,  0.3752,  2.9865]")
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input)), elementwise."""
    return result_of(input, _mish(source_of(input, inplace)), inplace)


@like(relu)
@maps("[-2.0, 0.5, 3.0]", "[-1.0000,  0.5000,  1.0000]")
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """input, brought into [min_val, max_val]; the derivative at both is 0.

    Args:
        min_val: the lower bound; of integers its whole part.
        max_val: the upper bound, likewise.

    Raises:
        OptionError: `min_val` is above `max_val`.
        DTypeError: bools.
    """
    if min_val > max_val:
        raise OptionError(f"hardtanh: min_val={min_val} is greater than max_val={max_val}")
    if input.dtype is lucid.bool:
        raise DTypeError("hardtanh: not defined for bools")
    if not input.dtype.is_floating_point:
        return result_of(input, input.clamp(int(min_val), int(max_val)), inplace)
    y = _hardtanh(source_of(input, inplace), min_val, max_val)
    return result_of(input, y, inplace)


hardtanh_ = in_place(hardtanh)


@like(relu)
@maps("[-2.0, 0.5, 3.0]", "[0.1667, 0.5833, 1.0000]")
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """input / 6 + 1 / 2, brought into [0, 1]; the derivative at -3 and 3 is 0."""
    return result_of(input, _hardsigmoid(input), inplace)


@like(relu)
@maps("[-2.0, 0.5, 3.0]", "[-0.3333,  0.2917,  3.0000]")
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input)."""
    return result_of(input, _hardswish(source_of(input, inplace)), inplace)


@like(relu)
@maps("[-2.0, 0.5, 3.0]", "1.0", "0.0", "[0., 0., 3.]")
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where it is above the threshold, else `value`; a NaN stays a NaN.

    Args:
        threshold: what the input must be above.
        value: what stands for the rest.
    """
    return result_of(input, _threshold(source_of(input, inplace), threshold, value), inplace)


threshold_ = in_place(threshold)


@like(relu)
@maps("[-2.0, 0.5, 3.0]", "[-1.5202,  0.5254,  3.1521]")
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu with the two constants that keep mean 0 and variance 1."""
    return result_of(input, _selu(source_of(input, inplace)), inplace)


selu_ = in_place(selu)


@like(elu)
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where it is positive, else `alpha * (exp(input / alpha) - 1)`.

    Args:
        alpha: how fast it falls, and to what.
    """
    return result_of(input, _celu(source_of(input, inplace), alpha), inplace)


celu_ = in_place(celu)


@fused
@like(relu)
@maps("[-2.0, 0.5, 3.0]", "[-0.6667,  0.3333,  0.7500]")
def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|)."""
    return input / (input.abs() + 1.0)


@fused
@like(relu)
@maps("[-2.0, 0.5, 3.0]", "[-1.0360,  0.0379,  2.0049]")
def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    return input - input.tanh()


@program
@maps("[-2.0, 0.5, 3.0]", "[-1.5000,  0.0000,  2.5000]")
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """input moved towards 0 by lambd, not beyond it.

    The result is as large as the input, and of its dtype.

    Args:
        lambd: where the threshold is, at least 0.

    Raises:
        OptionError: a threshold below 0.
    """
    if lambd < 0:
        raise OptionError(f"softshrink: lambd must be at least 0, not {lambd}")
    return where(input > lambd, input - lambd, where(input < -lambd, input + lambd, input * 0.0))


@program
@like(softshrink)
@maps("[-2.0, 0.5, 3.0]", "[-2.,  0.,  3.]")
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """input, and 0 where it is within [-lambd, lambd]."""
    return where((input >= -lambd) & (input <= lambd), 0.0, input)


@program
@maps("[-2.0, 3.0]", "[0.25]", "[-0.5000,  3.0000]")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """input where it is positive, else `weight * input`; one weight, or one per channel (axis 1).

    Raises `ShapeError` for another number of weights.

    Args:
        weight: the slope below 0, (1,), or (c,) for channels on axis 1.

    Raises:
        ShapeError: another number of weights.
    """
    if weight.numel() != 1:
        channels = input.shape[1] if input.ndim > 1 else 1
        if weight.ndim != 1 or weight.numel() != channels:
            raise ShapeError(f"prelu: {weight.numel()} weights don't go with {channels} channels")
        weight = weight.reshape(-1, *(1,) * (input.ndim - 2))
    else:
        weight = weight.reshape(())
    return where(input > 0.0, input, input * weight)


@program
@maps("[1.0, 2.0, 0.0, 0.0]", "[0.5000, 1.0000]")
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim` times the sigmoid of the second.

    The result has half the size along `dim`.

    Reference: Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2016.

    Raises:
        ShapeError: the size along `dim` is odd.
    """
    if input.ndim == 0 or input.shape[axis_of(dim, input.ndim, "glu")] % 2:
        raise ShapeError(f"glu: the size of dim {dim} must be even")
    value, gate = input.chunk(2, dim)
    return value * gate.sigmoid()


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Draw from the relaxed categorical distribution; `hard`: one-hot, with the soft gradient.

    Reference: Jang et al., "Categorical Reparameterization with Gumbel-Softmax", 2017.

    Args:
        logits: the logarithms of weights.
        tau: the temperature: the smaller, the nearer to one-hot.
        hard: one-hot in the forward, with the gradient of the soft draw.
        eps: has no effect, as in PyTorch, and warns where it is another number.

    >>> F.gumbel_softmax(lucid.zeros(3), hard=True).sum()
    tensor(1.)
    """
    if eps != 1e-10:
        warn("gumbel_softmax: `eps` is deprecated and has no effect")
    noise = lucid.empty_like(logits.detach()).exponential_().clamp(min=1e-30).log()
    soft = softmax((logits - noise) / tau, dim)
    if not hard:
        return soft
    index: Any = soft.max(dim, keepdim=True)[1]
    one_hot = lucid.zeros_like(logits.detach()).scatter(dim, index, 1.0)
    return one_hot - soft.detach() + soft


@like(relu)
@maps("[-2.0, 0.5, 3.0]", "0.2", "0.4", "[-0.6000,  0.5000,  3.0000]")
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """leaky_relu with slopes drawn from [lower, upper] if training, else their mean.

    Args:
        lower: the least slope.
        upper: the greatest slope.
        training: draw slopes; else take their mean.

    Raises:
        OptionError: `lower` is above `upper`.
    """
    if lower > upper:
        raise OptionError(f"rrelu: lower={lower} must not be above upper={upper}")
    x = source_of(input, inplace)
    slope: float | Tensor = (lower + upper) / 2
    if training:
        slope = lucid.rand(x.shape, dtype=x.dtype) * (upper - lower) + lower
    return result_of(input, where(x > 0.0, x, x * slope), inplace)


rrelu_ = in_place(rrelu)
