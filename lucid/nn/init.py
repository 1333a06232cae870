"""Initial values of parameters, written in place and without gradient.

Args:
    generator: where random numbers come from. None is lucid's own.
    tensor: what is filled, in place.
    a: the lower bound.
    b: the upper bound.
    gain: a factor of the standard deviation; see `calculate_gain`.
"""

from __future__ import annotations

import math
import sys
from statistics import NormalDist
from typing import Any

import numpy as np

import lucid
from lucid.autograd.modes import no_grad
from lucid.choices import check_choice
from lucid.docstrings import like
from lucid.functions.border import explain_calls
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.memory import require_blas
from lucid.tensor.context import within
from lucid.tensor.core import from_array
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_

_GAINS = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0), "selu": 3.0 / 4,
}  # fmt: skip
_LIKELY = 0.3  # drawing again until all lie inside is quick from this probability on


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """How much a layer's weights are to be scaled up for the nonlinearity that follows it.

    Args:
        nonlinearity: "linear", "conv1d" …, "sigmoid", "tanh", "relu", "leaky_relu" or "selu".
        param: the negative slope of "leaky_relu", 0.01 by default.

    Raises:
        OptionError: another function.

    >>> nn.init.calculate_gain("relu")
    1.4142135623730951
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        raise OptionError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def _write(tensor: Tensor, value: Tensor) -> Tensor:
    within({"grad_enabled": False}, write_, tensor, value)
    return tensor


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Draw from the uniform distribution on [a, b).

    The tensor is written in place, without history, and returned.

    >>> (nn.init.uniform_(lucid.empty(1000)) < 1).all()
    tensor(True)
    """
    return within({"grad_enabled": False}, tensor.uniform_, a, b, generator=generator)


@like(uniform_)
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Draw from the normal distribution.

    Args:
        mean: the mean.
        std: the standard deviation.

    Raises:
        OptionError: `std` is negative.

    >>> nn.init.normal_(lucid.empty(1000)).std().item() < 1.2
    True
    """
    if std < 0:
        raise OptionError(f"normal_ expects std >= 0.0, but found std {std}")
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


@like(normal_)
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Draw from the normal distribution cut off at a and b (values, not multiples of std).

    Raises:
        OptionError: `std` isn't positive, or the bounds leave nothing.

    >>> nn.init.trunc_normal_(lucid.empty(1000)).abs().max() <= 2
    tensor(True)
    """
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
    """Fill with a number.

    The tensor is written in place, without history, and returned.

    Args:
        val: the number.

    >>> nn.init.constant_(lucid.empty(2), 3.0)
    tensor([3., 3.])
    """
    return _write(tensor, lucid.full((), val, dtype=tensor.dtype))


@like(uniform_)
def zeros_(tensor: Tensor) -> Tensor:
    """Fill with 0.

    >>> nn.init.zeros_(lucid.empty(2))
    tensor([0., 0.])
    """
    return constant_(tensor, 0)


@like(uniform_)
def ones_(tensor: Tensor) -> Tensor:
    """Fill with 1.

    >>> nn.init.ones_(lucid.empty(2))
    tensor([1., 1.])
    """
    return constant_(tensor, 1)


@like(uniform_)
def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with ones on its diagonal and zeros elsewhere.

    Raises:
        ShapeError: it isn't a matrix.

    >>> nn.init.eye_(lucid.empty(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if tensor.ndim != 2:
        raise ShapeError(f"Only tensors with 2 dimensions are supported, got {tensor._type}")
    return _write(tensor, from_array(np.eye(*tensor.shape, dtype=tensor.dtype.numpy)))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Make a convolution's weight (out, in, *sizes) pass its input channels on as they are.

    The tensor is written in place, without history, and returned.

    Args:
        groups: each group passes its own channels on.

    Raises:
        OptionError: its first axis can't be cut into the groups.
        ShapeError: it has no axis that a convolution slides along, or more than three.

    >>> nn.init.dirac_(lucid.empty(2, 2, 3))[0]
    tensor([[0., 1., 0.],
            [0., 0., 0.]])
    """
    if tensor.ndim not in (3, 4, 5):
        raise ShapeError(f"dirac_: takes tensors of 3, 4 or 5 axes, not {tensor._type}")
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
        raise ShapeError(f"fan in and fan out need at least 2 axes, not {tensor._type}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform with variance gain^2 * 2 / (fan_in + fan_out).

    fan_in and fan_out are the sizes of the weight's second and first axis, times those of a window.

    Reference: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", 2010.

    Args:
        tensor: what is filled, in place: (out, in, *).

    >>> nn.init.xavier_uniform_(lucid.empty(50, 100)).std().item() < 0.2
    True
    """
    bound = gain * math.sqrt(6.0 / max(sum(_fans(tensor)), 1))
    return uniform_(tensor, -bound, bound, generator)


@like(xavier_uniform_)
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with variance gain^2 * 2 / (fan_in + fan_out).

    fan_in and fan_out are the sizes of the weight's second and first axis, times those of a window.
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / max(sum(_fans(tensor)), 1)), generator)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    check_choice(mode, "mode", "nn.init", ("fan_in", "fan_out"))
    return _fans(tensor)[mode == "fan_out"]


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(max(_calculate_correct_fan(tensor, mode), 1))


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Uniform with variance gain^2 / fan; `a` is the slope of "leaky_relu".

    Reference: He et al., "Delving Deep into Rectifiers", 2015.

    Args:
        tensor: what is filled, in place: (out, in, *).
        a: the slope of "leaky_relu".
        mode: "fan_in" keeps the variance of the forward, "fan_out" of the backward.
        nonlinearity: the function that follows, as `calculate_gain` has it.

    >>> nn.init.kaiming_uniform_(lucid.empty(50, 100)).std().item() < 0.2
    True
    """
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


@like(kaiming_uniform_)
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

    Raises:
        ShapeError: it has less than two axes.

    >>> w = nn.init.orthogonal_(lucid.empty(2, 3))
    >>> lucid.allclose(w @ w.T, lucid.eye(2), atol=1e-5)
    True
    """
    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_: takes tensors of at least 2 axes, not {tensor._type}")
    if 0 in tensor.shape:
        return tensor
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    drawn = lucid.randn(rows, columns, dtype=lucid.float64, generator=generator).numpy()
    require_blas()
    q, r = np.linalg.qr(drawn.T if rows < columns else drawn)
    q = q * np.sign(np.diagonal(r))  # the signs that make the distribution uniform
    matrix = (q.T if rows < columns else q) * gain
    return _write(tensor, from_array(np.ascontiguousarray(matrix).reshape(tensor.shape)))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fill a matrix with normal numbers, of which a share of each column, rounded up, is zero.

    Reference: Martens, "Deep learning via Hessian-free optimization", 2010.

    Args:
        tensor: what is filled, in place: (rows, columns).
        sparsity: the share of zeros in each column, from 0 to 1.
        std: the standard deviation of the others.

    Raises:
        ShapeError: it hasn't two axes.

    >>> (nn.init.sparse_(lucid.empty(10, 4), 0.25) == 0).sum(0)
    tensor([3, 3, 3, 3])
    """
    if tensor.ndim != 2:
        raise ShapeError("Only tensors with 2 dimensions are supported")
    count = min(math.ceil(sparsity * tensor.shape[0]), tensor.shape[0])
    order = lucid.rand(tuple(tensor.shape), generator=generator).argsort(0).argsort(0)
    is_zero = order < count  # which may raise, before anything is written
    normal_(tensor, 0.0, std, generator)
    return _write(tensor, tensor.masked_fill(is_zero, 0.0))


# Names that programs written for PyTorch use.
_calculate_fan_in_and_fan_out = _fans
xavier_uniform = xavier_uniform_
xavier_normal = xavier_normal_
uniform = uniform_
normal = normal_
constant = constant_
eye = eye_
dirac = dirac_
orthogonal = orthogonal_
sparse = sparse_
kaiming_uniform = kaiming_uniform_
kaiming_normal = kaiming_normal_


explain_calls(sys.modules[__name__], dict(vars()), __name__)
