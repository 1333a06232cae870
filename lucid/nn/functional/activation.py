"""Elementwise activations; those whose gradient is better written by hand are Functions."""

from __future__ import annotations

import math
from typing import Any

from lucid.autograd import Function
from lucid.autograd.native import runs_natively
from lucid.functions.inplace import in_place
from lucid.ir.errors import OptionError
from lucid.nn.functional.calls import apply, where
from lucid.tensor.tensor import Tensor

__all__ = [
    "elu", "elu_", "gelu", "leaky_relu", "leaky_relu_", "logsigmoid", "mish", "relu", "relu_",
    "relu6", "sigmoid", "silu", "softplus", "tanh",
]  # fmt: skip

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_DENSITY_AT_0 = 1.0 / math.sqrt(2.0 * math.pi)
_CUBIC = 0.044715


@runs_natively
class ReLU(Function):
    """max(x, 0); the derivative at 0 is 0, and a NaN stays a NaN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.clamp(min=0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return where(y <= 0, 0.0, g)


@runs_natively
class LeakyReLU(Function):
    """x where x > 0, else `slope * x`; the derivative at 0 is the slope."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.slope = slope
        return where(x > 0, x, x * slope)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return where(x > 0, g, g * ctx.slope), None


@runs_natively
class ELU(Function):
    """x where x > 0, else `alpha * (exp(x) - 1)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return where(x > 0, x, x.clamp(max=0).expm1() * alpha)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return where(x <= 0, g * (x.clamp(max=0).exp() * ctx.alpha), g), None


@runs_natively
class GELU(Function):
    """x times the normal distribution's CDF at x.

    Reference: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 0.5 * (1.0 + (x * _SQRT_HALF).erf())

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        cdf = 0.5 * (1.0 + (x * _SQRT_HALF).erf())
        density = (x * x * -0.5).exp() * _DENSITY_AT_0
        slope: Tensor = cdf + x * density
        return g * slope


@runs_natively
class GELUTanh(Function):
    """GELU with the CDF approximated by `(1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 0.5 * (1.0 + (_SQRT_2_OVER_PI * (x + _CUBIC * (x * x * x))).tanh())

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        t = (_SQRT_2_OVER_PI * (x + _CUBIC * (x * x * x))).tanh()
        slope = (1.0 - t * t) * (_SQRT_2_OVER_PI * (1.0 + 3.0 * _CUBIC * (x * x)))
        total: Tensor = 0.5 * (1.0 + t) + x * 0.5 * slope
        return g * total


@runs_natively
class SiLU(Function):
    """x times sigmoid(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        slope: Tensor = s * (1.0 + x * (1.0 - s))
        return g * slope


@runs_natively
class Softplus(Function):
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, beta: float, threshold: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.beta, ctx.threshold = beta, threshold
        scaled = x * beta
        soft = scaled.clamp(max=threshold).exp().log1p() / beta
        return where(scaled > threshold, x, soft)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        scaled = x * ctx.beta
        return where(scaled > ctx.threshold, g, g * scaled.sigmoid()), None, None


@runs_natively
class LogSigmoid(Function):
    """log(sigmoid(x)) without overflow: min(x, 0) - log1p(exp(-|x|))."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(max=0) - (-x.abs()).exp().log1p()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        slope: Tensor = (-x).sigmoid()
        return g * slope


def result_of(x: Tensor, y: Tensor, inplace: bool) -> Tensor:
    """The result, written into `x` where the caller asked for it."""
    return x.copy_(y) if inplace else y


def source_of(x: Tensor, inplace: bool) -> Tensor:
    """What the gradient may keep: a copy where `x` will be written."""
    return x.clone() if inplace else x


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0), elementwise.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.relu(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([0.0000, 0.5000, 3.0000])
    """
    if not input.dtype.is_floating_point:
        return result_of(input, input.clamp(min=0), inplace)
    return result_of(input, apply(ReLU, input), inplace)


relu_ = in_place(relu)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(input, 0), 6), elementwise.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.relu6(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([0.0000, 0.5000, 3.0000])
    """
    return result_of(input, source_of(input, inplace).clamp(min=0, max=6), inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where it is positive, else `negative_slope * input`.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        negative_slope: the slope below 0. Default: 0.01.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.leaky_relu(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.0200,  0.5000,  3.0000])
    """
    return result_of(input, apply(LeakyReLU, source_of(input, inplace), negative_slope), inplace)


leaky_relu_ = in_place(leaky_relu)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where it is positive, else `alpha * (exp(input) - 1)`.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        alpha: what it falls to, negated. Default: 1.0.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.elu(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.8647,  0.5000,  3.0000])
    """
    return result_of(input, apply(ELU, source_of(input, inplace), alpha), inplace)


elu_ = in_place(elu)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input times the normal CDF of input; `approximate="tanh"` for the cheaper form.

    x Φ(x), where Φ is the distribution of a standard normal variable.

    Reference: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.

    Args:
        input: the tensor, of a float dtype.
        approximate: "none", or "tanh". Default: 'none'.

    Raises:
        OptionError: another `approximate`.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.gelu(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.0455,  0.3457,  2.9960])
    """
    if approximate == "none":
        return apply(GELU, input)
    if approximate == "tanh":
        return apply(GELUTanh, input)
    raise OptionError(f"gelu: approximate must be 'none' or 'tanh', not {approximate!r}")


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input), elementwise.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.silu(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.2384,  0.3112,  2.8577])
    """
    return result_of(input, apply(SiLU, source_of(input, inplace)), inplace)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta; input itself where beta * input > threshold.

    A smooth `relu`. The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        beta: how sharp the bend is. Default: 1.0.
        threshold: from where on it is taken for a line. Default: 20.0.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.softplus(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([0.1269, 0.9741, 3.0486])
    """
    return apply(Softplus, input, beta, threshold)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)), accurate for inputs of any size.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.logsigmoid(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-2.1269, -0.4741, -0.0486])
    """
    return apply(LogSigmoid, input)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input)), elementwise.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.sigmoid(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([0.1192, 0.6225, 0.9526])
    """
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent, elementwise.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.tanh(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.9640,  0.4621,  0.9951])
    """
    return input.tanh()


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input)), elementwise.

    The result is as large as the input, and of its dtype.

    Args:
        input: the tensor, of a float dtype.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.mish(lucid.tensor([-2.0, 0.5, 3.0]))
        tensor([-0.2525,  0.3752,  2.9865])
    """
    x = source_of(input, inplace)
    return result_of(input, x * softplus(x).tanh(), inplace)
