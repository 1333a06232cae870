"""Norms of vectors and matrices, and the products of vectors, as `torch.linalg` has them."""

from __future__ import annotations

import math
from typing import Any

from lucid.choices import check_choice
from lucid.functions.arguments import Dims, axes_of, listed
from lucid.functions.factorizations import singular_values
from lucid.functions.reduction import norm as _norm
from lucid.functions.shape import movedim
from lucid.functions.tensors import Tensor
from lucid.ir.errors import OptionError
from lucid.ir.types import DType


def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Return the norm of order `ord` over `dim`, of all elements by default.

    It is `sum(abs(x)**ord)**(1 / ord)`; inf and -inf are the greatest and the smallest absolute
    value, 0 the number of elements that aren't 0.

    Args:
        x: a tensor of floats, unless `dtype` makes it one.
        ord: the order, a number.
        dim: an axis or several, which the result lacks. Default: None, all of them.
        dtype: what the elements are converted to before.

    Raises:
        DTypeError: integers or bools without a `dtype` of floats.
        OptionError: a string but "fro".

    >>> lucid.linalg.vector_norm(lucid.tensor([3.0, -4.0]))
    tensor(5.)
    >>> lucid.linalg.vector_norm(lucid.tensor([3.0, -4.0]), 1)
    tensor(7.)
    """
    return _norm(x, ord, dim, keepdim, dtype=dtype)


def matrix_norm(
    A: Tensor,
    ord: Any = "fro",
    dim: tuple[int, int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Return the norm of matrices: of their elements, sums or singular values.

    Args:
        A: a tensor of floats, unless `dtype` makes it one.
        ord: "fro" (Frobenius); 1, -1 (the largest, the smallest of the columns' sums of absolute
            values); inf, -inf (of the rows'); "nuc", 2, -2 (the sum, the largest, the smallest
            singular value).
        dim: the axes of rows and columns, which the result lacks.
        dtype: what the elements are converted to before.

    Raises:
        OptionError: another `ord`.
        DTypeError: integers or bools without a `dtype` of floats.

    >>> lucid.linalg.matrix_norm(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), 1)
    tensor(6.)
    """
    if dtype is not None:
        A = A.to(dtype)
    if ord == "fro":
        return _norm(A, 2, dim, keepdim)
    check_choice(ord, "ord", "matrix_norm", (*_OF_SINGULAR_VALUES, 1, -1, math.inf, -math.inf))
    if ord in _OF_SINGULAR_VALUES:
        return _spectral_norm(A, ord, dim, keepdim)
    rows, columns = (axis % A.ndim for axis in dim)
    first, second = (rows, columns) if ord in (1, -1) else (columns, rows)
    sums = A.abs().sum(first, keepdim=True)
    kept: Tensor = (sums.amax if ord > 0 else sums.amin)(second, keepdim=True)
    return kept if keepdim else kept.squeeze((rows, columns))


_OF_SINGULAR_VALUES = ("nuc", 2, -2)


def _spectral_norm(A: Tensor, ord: Any, dim: tuple[int, int], keepdim: bool) -> Tensor:
    _, values, _ = singular_values(movedim(A, dim, (-2, -1)), False)
    found: Tensor = values.sum(-1) if ord == "nuc" else getattr(values, _ENDS[ord])(-1)
    if not keepdim:
        return found
    rows, columns = sorted(axis % A.ndim for axis in dim)
    return found.unsqueeze(rows).unsqueeze(columns)


_ENDS = {2: "amax", -2: "amin"}


def norm(
    A: Tensor,
    ord: Any = None,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Return the norm of vectors or matrices, by how many axes are named.

    Without `ord` it is the 2-norm of all elements; with `ord` and without `dim` that of a vector or
    matrix, by the tensor's rank. One axis is as `vector_norm`, two are as `matrix_norm`.

    Args:
        A: a tensor of floats, unless `dtype` makes it one.
        ord: the order.
        dim: an axis or two, which the result lacks. Default: None, all of them.
        dtype: what the elements are converted to before.

    Raises:
        DTypeError: integers or bools without a `dtype` of floats.
        OptionError: an `ord` for more than two axes, or one that there isn't.

    >>> lucid.linalg.norm(lucid.tensor([[3.0, 4.0], [6.0, 8.0]]), 2, dim=1)
    tensor([ 5., 10.])
    >>> lucid.linalg.norm(lucid.tensor([[3.0, 0.0], [0.0, 4.0]]), "nuc")
    tensor(7.)
    """
    x = A if dtype is None else A.to(dtype)
    if ord is None:
        return _norm(x, 2, dim, keepdim)
    axes = axes_of(dim, x.ndim, "linalg.norm")
    if len(axes) == 1:
        return _norm(x, ord, axes, keepdim)
    if len(axes) != 2:
        raise OptionError(f"linalg.norm: with ord, dim names 1 or 2 axes, not {dim}{listed(A=A)}")
    return matrix_norm(x, ord, axes, keepdim)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Return the sums of products along `dim`, of vectors that broadcast.

    Args:
        x: a tensor of numbers.
        y: another one.
        dim: the axis of the vectors' elements, which the result lacks.

    Raises:
        ShapeError: the shapes don't broadcast.

    >>> lucid.linalg.vecdot(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), lucid.tensor([1.0, 10.0]))
    tensor([21., 43.])
    """
    return (x * y).sum(dim)
