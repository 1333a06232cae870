"""Norms along an axis and what is made of them."""

from __future__ import annotations

import math

from lucid.docstrings import maps
from lucid.functions.elementwise import where
from lucid.functions.joining import broadcast_tensors
from lucid.tensor.tensor import Tensor

__all__ = ["cosine_similarity", "normalize", "pairwise_distance"]


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
    if p == 0.0:
        return (size != 0.0).to(x.dtype).sum(dim, keepdim=True)
    if p == 1.0:
        return size.sum(dim, keepdim=True)
    return (size**p).sum(dim, keepdim=True) ** (1.0 / p)


@maps("[[3.0, 4.0]]", "[[0.6000, 0.8000]]")
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Divide by the p-norm along `dim`, or by eps where the norm is smaller.

    Args:
        p: the order of the norm.
        eps: norms count as this much at least.
    """
    return input / _norm(input, p, dim).clamp(min=eps)


@maps("[[1.0, 0.0]]", "[[1.0, 1.0]]", "[0.7071]")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between vectors along `dim`; a norm counts as eps at least.

    Args:
        x1: vectors along `dim`.
        x2: vectors; the two broadcast.
    """
    x1, x2 = broadcast_tensors(x1, x2)
    first = x1 / _euclidean(x1, dim).clamp(min=eps)
    second = x2 / _euclidean(x2, dim).clamp(min=eps)
    return (first * second).sum(dim)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis.

    Rows are compared with rows, each with its own partner; `cdist` compares all with all.

    Args:
        x1: vectors, (*, d).
        x2: vectors; the two broadcast.
        p: the order of the norm.
        eps: added to each difference.
        keepdim: keep the last axis, with size 1.

    >>> F.pairwise_distance(lucid.zeros(1, 2), lucid.tensor([[3.0, 4.0]]))
    tensor([5.0000])
    """
    distance = _norm(x1 - x2 + eps, p, -1)
    return distance if keepdim else distance.squeeze(-1)
