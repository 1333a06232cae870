"""Norms and products under the names of `torch.linalg`."""

from __future__ import annotations

import math
from typing import Any

from lucid.functions.arguments import Dims, axes_of, describe
from lucid.functions.linalg import matmul
from lucid.functions.naming import numpy_names
from lucid.functions.products import cross, matrix_power, multi_dot
from lucid.functions.reduction import norm as _norm
from lucid.functions.tensors import Tensor
from lucid.ir.errors import OptionError
from lucid.ir.types import DType

__all__ = [
    "cross",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "multi_dot",
    "norm",
    "vecdot",
    "vector_norm",
]


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
    """Return the Frobenius norm of matrices, or with 1, -1, inf, -inf that of their sums."""
    if ord == "fro":
        return _norm(A, 2, dim, keepdim)
    if ord not in (1, -1, math.inf, -math.inf):
        raise OptionError(f"matrix_norm: ord is 'fro', 1, -1, inf or -inf, not {ord!r}")
    rows, columns = (axis % A.ndim for axis in dim)
    first, second = (rows, columns) if ord in (1, -1) else (columns, rows)
    sums = A.abs().sum(first, keepdim=True)
    kept: Tensor = (sums.amax if ord > 0 else sums.amin)(second, keepdim=True)
    return kept if keepdim else kept.squeeze((rows, columns))


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
