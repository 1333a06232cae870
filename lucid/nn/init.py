"""Initial values of parameters, written in place and without gradient."""

from __future__ import annotations

import math
import sys
from statistics import NormalDist
from typing import Any

import numpy as np

import lucid
from lucid.autograd.modes import no_grad
from lucid.functions.border import explain_calls
from lucid.ir.errors import OptionError, ShapeError
from lucid.tensor.core import from_array
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_

_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}
_LIKELY = 0.3  # drawing again until all lie inside is quick from this probability on


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """How much a layer's weights are to be scaled up for the nonlinearity that follows it.

    param: the negative slope of "leaky_relu", 0.01 by default.
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        raise OptionError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def _write(tensor: Tensor, value: Tensor) -> Tensor:
    with no_grad():
        write_(tensor, value)
    return tensor


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Draw from the uniform distribution on [a, b)."""
    unit = lucid.rand(tensor.shape, dtype=tensor.dtype, generator=generator)
    return _write(tensor, unit * (b - a) + a)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Draw from the normal distribution."""
    if std < 0:
        raise OptionError(f"normal_ expects std >= 0.0, but found std {std}")
    unit = lucid.randn(tensor.shape, dtype=tensor.dtype, generator=generator)
    return _write(tensor, unit * std + mean)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Draw from the normal distribution cut off at a and b (values, not multiples of std)."""
    if a > b or std <= 0:
        raise OptionError(f"trunc_normal_: needs a <= b and std > 0, got {a=}, {b=}, {std=}")
    normal = NormalDist()
    low, high = normal.cdf((a - mean) / std), normal.cdf((b - mean) / std)
    if high - low >= _LIKELY:
        with no_grad():
            normal_(tensor, mean, std, generator)
            while (outside := (tensor < a) | (tensor > b)).any():
                again = lucid.randn(tensor.shape, dtype=tensor.dtype, generator=generator)
                write_(tensor, lucid.where(outside, again * std + mean, tensor))
        return tensor
    unit = lucid.rand(tensor.shape, dtype=lucid.float64, generator=generator).numpy()
    tiny = np.finfo(np.float64).tiny
    quantile = np.vectorize(normal.inv_cdf, otypes=[np.float64])
    drawn = quantile(np.clip(low + unit * (high - low), tiny, 1 - 2**-53)) * std + mean
    return _write(tensor, from_array(np.clip(drawn, a, b)))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with a number."""
    return _write(tensor, lucid.full((), val, dtype=tensor.dtype))


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with 0."""
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with 1."""
    return constant_(tensor, 1)


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with ones on its diagonal and zeros elsewhere."""
    if tensor.ndim != 2:
        raise ShapeError(f"Only tensors with 2 dimensions are supported, got {tensor._type}")
    return _write(tensor, from_array(np.eye(*tensor.shape, dtype=tensor.dtype.numpy)))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Make a convolution's weight (out, in, *sizes) pass its input channels on as they are."""
    if groups < 1 or tensor.shape[0] % groups:
        raise OptionError(f"dirac_: dim 0 must be divisible by groups, {tensor.shape[0]}, {groups}")
    out, channels = tensor.shape[0] // groups, tensor.shape[1]
    array = np.zeros(tuple(tensor.shape), tensor.dtype.numpy)
    middle = tuple(size // 2 for size in tensor.shape[2:])
    for group in range(groups):
        for i in range(min(out, channels)):
            array[(group * out + i, i, *middle)] = 1
    return _write(tensor, from_array(array))


def _fans(tensor: Tensor) -> tuple[int, int]:
    """Inputs and outputs of each unit of a weight (out, in, *receptive field)."""
    if tensor.ndim < 2:
        raise ShapeError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, got "
            f"{tensor._type}"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform with variance gain^2 * 2 / (fan_in + fan_out).

    Reference: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", 2010.
    """
    bound = gain * math.sqrt(6.0 / max(sum(_fans(tensor)), 1))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with variance gain^2 * 2 / (fan_in + fan_out)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / max(sum(_fans(tensor)), 1)), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise OptionError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan = _fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Uniform with variance gain^2 / fan; `a` is the slope of "leaky_relu".

    Reference: He et al., "Delving Deep into Rectifiers", 2015.
    """
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Normal with variance gain^2 / fan; `a` is the slope of "leaky_relu"."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with an orthogonal matrix: the rows (or the columns, if fewer) are orthonormal.

    Shapes: (rows, *), the other axes taken as one.
    Reference: Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of learning
    in deep linear neural networks", 2013.
    """
    if tensor.ndim < 2:
        raise ShapeError(
            f"Only tensors with 2 or more dimensions are supported, got {tensor._type}"
        )
    if 0 in tensor.shape:
        return tensor
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    drawn = lucid.randn(rows, columns, dtype=lucid.float64, generator=generator).numpy()
    q, r = np.linalg.qr(drawn.T if rows < columns else drawn)
    q = q * np.sign(np.diagonal(r))  # the signs that make the distribution uniform
    matrix = (q.T if rows < columns else q) * gain
    return _write(tensor, from_array(np.ascontiguousarray(matrix).reshape(tensor.shape)))


# Names that programs written for PyTorch use.
_calculate_fan_in_and_fan_out = _fans
xavier_uniform = xavier_uniform_
xavier_normal = xavier_normal_
kaiming_uniform = kaiming_uniform_
kaiming_normal = kaiming_normal_


explain_calls(sys.modules[__name__], dict(vars()), __name__)
