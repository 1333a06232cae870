"""What distributions of the user's are written with: `lucid.distributions.utils`."""

from __future__ import annotations

from functools import cached_property as lazy_property
from numbers import Number
from typing import Any

import lucid
from lucid.distributions.distribution import parameters_of, sum_rightmost
from lucid.ir import frames
from lucid.ir.errors import ArgumentError
from lucid.nn import functional as F
from lucid.tensor.tensor import Tensor

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits",
    "sum_rightmost", "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Return numbers and tensors as tensors of one shape.

    dtype: numbers get that of the first tensor, or the default one.

    Args:
        *values: numbers and tensors.

    Raises:
        ArgumentError: something else.

    >>> lucid.distributions.utils.broadcast_all(lucid.tensor([1.0, 2.0]), 3)
    (tensor([1., 2.]), tensor([3., 3.]))
    """
    if not all(isinstance(value, (Tensor, Number)) for value in values):
        raise ArgumentError("broadcast_all: takes numbers and tensors")
    return parameters_of(*values)


def clamp_probs(probs: Tensor) -> Tensor:
    """Return probabilities, moved by the dtype's eps from 0 and 1 where they are nearer.

    Args:
        probs: the probabilities.

    >>> lucid.distributions.utils.clamp_probs(lucid.tensor([0.0, 0.5])) > 0
    tensor([True, True])
    """
    eps = float(lucid.finfo(probs.dtype).eps)
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Return the logarithms of probabilities, or of their odds, log(p / (1 - p)).

    Args:
        probs: the probabilities.
        is_binary: whether each is that of a 1, with odds. Default: False, of a class.

    >>> lucid.distributions.utils.probs_to_logits(lucid.tensor([0.25, 0.5]), is_binary=True)
    tensor([-1.0986,  0.0000])
    """
    clamped = clamp_probs(probs)
    return clamped.log() - lucid.log1p(-clamped) if is_binary else clamped.log()


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Return the probabilities of logits: their softmax along the last axis, or sigmoids.

    Args:
        logits: logarithms, up to a constant, or log-odds.
        is_binary: whether each is the log-odds of a 1. Default: False, of a class.

    >>> lucid.distributions.utils.logits_to_probs(lucid.zeros(4))
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    return lucid.sigmoid(logits) if is_binary else F.softmax(logits, -1)


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Return lower triangular matrices with these elements, row by row.

    Shapes: (…, n (n + 1) / 2) gives (…, n, n) with `diag` 0.

    Args:
        vec: the elements.
        diag: the last diagonal that has some. Default: 0, the main one; -1 is the one below it.

    >>> lucid.distributions.utils.vec_to_tril_matrix(lucid.tensor([1.0, 2.0, 3.0]))
    tensor([[1., 0.],
            [2., 3.]])
    """
    count = vec.shape[-1]
    size = round(((1 + 8 * count + 4 * diag * (diag + 1)) ** 0.5 - 1 - 2 * diag) / 2)
    row, column = lucid.tril_indices(size, size, diag)
    matrix = vec.new_zeros(*vec.shape[:-1], size * size)
    places = (row * size + column).expand(vec.shape)
    return matrix.scatter(-1, places, vec).reshape(*vec.shape[:-1], size, size)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """Return the elements of lower triangular matrices, row by row.

    Shapes: (…, n, n) gives (…, n (n + 1) / 2) with `diag` 0.

    Args:
        mat: the matrices.
        diag: the last diagonal that counts. Default: 0, the main one.

    >>> lucid.distributions.utils.tril_matrix_to_vec(lucid.tensor([[1.0, 0.0], [2.0, 3.0]]))
    tensor([1., 2., 3.])
    """
    size = mat.shape[-1]
    row, column = lucid.tril_indices(size, size, diag)
    found: Tensor = mat[..., row, column]
    return found


frames.edge_of_module(__name__)
