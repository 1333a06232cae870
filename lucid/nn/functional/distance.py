"""Norms along an axis and what is made of them."""

from __future__ import annotations

import math

from lucid.nn.functional.calls import where
from lucid.tensor.tensor import Tensor


def _euclidean(x: Tensor, dim: int) -> Tensor:
    """The 2-norm along `dim`, which is kept; its derivative at the origin is 0."""
    squares = (x * x).sum(dim, keepdim=True)
    zero = squares == 0
    return where(zero, 0.0, where(zero, 1.0, squares).sqrt())


def _norm(x: Tensor, p: float, dim: int) -> Tensor:
    if p == 2.0:
        return _euclidean(x, dim)
    size = x.abs()
    if p == math.inf:
        return size.amax(dim, keepdim=True)
    if p == 1.0:
        return size.sum(dim, keepdim=True)
    result: Tensor = (size**p).sum(dim, keepdim=True) ** (1.0 / p)
    return result


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Divide by the p-norm along `dim`, or by eps where the norm is smaller."""
    return input / _norm(input, p, dim).clamp(min=eps)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between vectors along `dim`; a norm counts as eps at least."""
    first = x1 / _euclidean(x1, dim).clamp(min=eps)
    second = x2 / _euclidean(x2, dim).clamp(min=eps)
    return (first * second).sum(dim)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis."""
    distance = _norm(x1 - x2 + eps, p, -1)
    return distance if keepdim else distance.squeeze(-1)
