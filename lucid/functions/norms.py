"""Norms of vectors and matrices, and the products of vectors, as `torch.linalg` has them."""

from __future__ import annotations

import math
from typing import Any

from lucid.functions.arguments import Dims, axes_of, describe
from lucid.functions.factorizations import SingularValues
from lucid.functions.naming import numpy_names
from lucid.functions.reduction import norm as _norm
from lucid.functions.shape import movedim
from lucid.functions.tensors import Tensor
from lucid.ir.errors import OptionError
from lucid.ir.types import DType


@numpy_names
def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Return the norm of order `ord` over `dim`, of all elements by default."""
    return _norm(x, ord, dim, keepdim, dtype=dtype)


@numpy_names
def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: tuple[int, int] = (-2, -1), keepdim: bool = False
) -> Tensor:
    """Return the norm of matrices.

    ord: "fro" (Frobenius); 1, -1, inf, -inf (of their sums of absolute values); "nuc", 2, -2 (the
    sum, the largest, the smallest singular value).
    """
    if ord == "fro":
        return _norm(A, 2, dim, keepdim)
    if ord not in (*_OF_SINGULAR_VALUES, 1, -1, math.inf, -math.inf):
        raise OptionError(
            f"matrix_norm: ord is 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, not {ord!r}"
        )
    if ord in _OF_SINGULAR_VALUES:
        return _spectral_norm(A, ord, dim, keepdim)
    rows, columns = (axis % A.ndim for axis in dim)
    first, second = (rows, columns) if ord in (1, -1) else (columns, rows)
    sums = A.abs().sum(first, keepdim=True)
    kept: Tensor = (sums.amax if ord > 0 else sums.amin)(second, keepdim=True)
    return kept if keepdim else kept.squeeze((rows, columns))


_OF_SINGULAR_VALUES = ("nuc", 2, -2)


def _spectral_norm(A: Tensor, ord: Any, dim: tuple[int, int], keepdim: bool) -> Tensor:
    _, values, _ = SingularValues.apply(movedim(A, dim, (-2, -1)), False)
    found: Tensor = values.sum(-1) if ord == "nuc" else getattr(values, _ENDS[ord])(-1)
    if not keepdim:
        return found
    rows, columns = sorted(axis % A.ndim for axis in dim)
    return found.unsqueeze(rows).unsqueeze(columns)


_ENDS = {2: "amax", -2: "amin"}


@numpy_names
def norm(
    A: Tensor,
    ord: Any = None,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Return the norm of vectors or matrices, by how many axes are named.

    Without `ord` the 2-norm of all elements; with `ord` and without `dim` that of a vector or
    matrix, by the tensor's rank. Raises: `OptionError` for more axes.
    """
    x = A if dtype is None else A.to(dtype)
    if ord is None:
        return _norm(x, 2, dim, keepdim)
    axes = axes_of(dim, x.ndim, "linalg.norm")
    if len(axes) == 1:
        return _norm(x, ord, axes, keepdim)
    if len(axes) != 2:
        raise OptionError(f"linalg.norm: with ord, dim names 1 or 2 axes, not {dim}{describe(A)}")
    return matrix_norm(x, ord, axes, keepdim)


@numpy_names
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Return the sums of products along `dim`, broadcast."""
    return (x * y).sum(dim)
