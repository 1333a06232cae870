"""Dropout: the mask comes from the generator's state, so eager and compiled draw the same bits."""

from __future__ import annotations

import lucid
from lucid.docstrings import like, maps
from lucid.functions.elementwise import where
from lucid.functions.gradients import with_gradient
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.location import warn
from lucid.ir.types import f32
from lucid.nn.functional.activation import SELU_ALPHA, SELU_SCALE, result_of, source_of
from lucid.nn.functional.sliding import of_each_rank
from lucid.tensor.tensor import Tensor

__all__ = [
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout",
]  # fmt: skip


def _noise(uniform: Tensor, keep: float, like: Tensor) -> Tensor:
    return (uniform < keep).to(like.dtype) / keep


@with_gradient(lambda g, uniform, keep: g * _noise(uniform, keep, g))
def _dropout(x: Tensor, uniform: Tensor, keep: float) -> Tensor:
    """x where a uniform number falls below `keep`, scaled by 1 / keep, else 0 * x."""
    return x * _noise(uniform, keep, x)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p), if training.

    Aliasing: the result is `input` itself when nothing is to be done.

    Raises `OptionError` for p outside of [0, 1].

    Args:
        p: the probability of an element to be dropped.
        training: draw; else the input comes back.

    >>> F.dropout(lucid.ones(3), training=False)
    tensor([1., 1., 1.])
    >>> F.dropout(lucid.ones(1000), 0.5).mean() < 1.2
    tensor(True)
    """
    if not 0.0 <= p <= 1.0:
        raise OptionError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0 or not input._type.size:
        return input
    if p == 1.0:
        return result_of(input, input * 0.0, inplace)
    return result_of(input, _dropout(input, lucid.rand(input.shape, dtype=f32), 1.0 - p), inplace)


@like(dropout)
def _dropoutnd(
    rank: int, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (n, c, l) or (c, l) with probability p while training.

    A channel is kept whole or set to 0 whole, in each example by itself; what is kept is scaled by
    1 / (1 - p). As in PyTorch, `dropout2d` takes three axes as (n, c, l), and two as (n, c), and
    warns of it.

    Raises:
        OptionError: p is outside of [0, 1].
        ShapeError: the input has another number of axes.

    >>> F.dropout1d(lucid.ones(1, 2, 2), training=False).shape
    lucid.Size([1, 2, 2])
    """
    name, axes = f"dropout{rank}d", input.ndim
    if axes not in (rank + 1, rank + 2) and (rank, axes) != (2, 2):
        raise ShapeError(f"{name}: takes {rank + 1} or {rank + 2} axes, not {input._type}")
    if rank == 2 and axes < 4:
        taken = "(n, c, l), as dropout1d does" if axes == 3 else "(n, c), as dropout does"
        warn(f"dropout2d: takes an input of {axes} axes as {taken}")
    if not 0.0 <= p <= 1.0:
        raise OptionError(f"{name}: dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    count = 2 if rank == 2 else axes - rank  # of the axes that say which channel
    shape = (*input.shape[:count], *(1,) * (axes - count))
    return result_of(input, input * dropout(lucid.ones(shape, dtype=input.dtype), p), inplace)


dropout1d, dropout2d, dropout3d = of_each_rank(_dropoutnd)


@like(_dropoutnd)
@maps("lucid.ones(4)", "0.5", "training=False", "[1., 1., 1., 1.]")
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Set elements to what selu has far left, with probability p; keep mean 0 and variance 1.

    Reference: Klambauer et al., "Self-Normalizing Neural Networks", 2017.

    Raises:
        OptionError: p is outside of [0, 1].
    """
    return _alpha_dropout(input, p, training, inplace, tuple(input.shape))


@like(alpha_dropout)
@maps("lucid.ones(1, 4)", "0.5", "training=False", "[[1., 1., 1., 1.]]")
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """As `alpha_dropout`, of whole channels: all of (n, c) that follows is kept or dropped.

    Args:
        input: the tensor, (n, c, *), of a float dtype.
        p: the probability of a channel to be dropped.

    Raises:
        OptionError: p is outside of [0, 1].
        ShapeError: the input has less than two axes, where it is drawn.
    """
    if training and input.ndim < 2:
        raise ShapeError("feature_alpha_dropout: needs at least 2 axes")
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
    low = -SELU_ALPHA * SELU_SCALE
    scale = ((1 - p) * (1 + p * low * low)) ** -0.5
    keep = lucid.rand(shape, dtype=input.dtype) >= p
    y = where(keep, source_of(input, inplace), low) * scale - scale * p * low
    return result_of(input, y, inplace)
