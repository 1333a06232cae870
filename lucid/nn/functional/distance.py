"""Norms along an axis and what is made of them."""

from __future__ import annotations

from lucid.autograd.native import program
from lucid.docstrings import maps
from lucid.functions.joining import broadcast_tensors
from lucid.functions.reduction import norm
from lucid.tensor.tensor import Tensor

__all__ = ["cosine_similarity", "normalize", "pairwise_distance"]


@program
@maps("[[3.0, 4.0]]", "[[0.6000, 0.8000]]")
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Divide by the p-norm along `dim`, or by eps where the norm is smaller.

    Args:
        p: the order of the norm.
        eps: norms count as this much at least.
    """
    return input / norm(input, p, dim, keepdim=True).clamp(min=eps)


@program
@maps("[[1.0, 0.0]]", "[[1.0, 1.0]]", "[0.7071]")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between vectors along `dim`; a norm counts as eps at least.

    Args:
        x1: vectors along `dim`.
        x2: vectors; the two broadcast.
    """
    x1, x2 = broadcast_tensors(x1, x2)
    second = x2 / norm(x2, 2.0, dim, keepdim=True).clamp(min=eps)  # the latest is walked first
    first = x1 / norm(x1, 2.0, dim, keepdim=True).clamp(min=eps)
    return (first * second).sum(dim)


@program
@maps("lucid.zeros(1, 2)", "[[3.0, 4.0]]", "[5.0000]")
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
    """
    return norm(x1 - x2 + eps, p, -1, keepdim)
