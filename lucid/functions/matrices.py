"""Linear algebra under the older names, those of `torch` itself and of the tensor's methods."""

from __future__ import annotations

import math

from lucid import linalg, return_types
from lucid.functions.creation import eye
from lucid.functions.elementwise import choose
from lucid.functions.lu import Order, unpacked
from lucid.functions.tensors import Tensor
from lucid.linalg import cholesky, det, inv, matrix_exp, pinv, slogdet

__all__ = [
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "det",
    "inverse",
    "logdet",
    "lu",
    "lu_solve",
    "lu_unpack",
    "matrix_exp",
    "pca_lowrank",
    "pinverse",
    "qr",
    "slogdet",
    "svd",
    "svd_lowrank",
    "triangular_solve",
    "vander",
]


def inverse(input: Tensor) -> Tensor:
    """Return the inverse of square matrices. Raises `LinAlgError` for singular ones."""
    return inv(input)


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """Return Moore and Penrose's inverse; singular values below `rcond` times the largest are 0."""
    return pinv(input, rtol=rcond)


def logdet(input: Tensor) -> Tensor:
    """Return the logarithm of the determinant: -inf where that is 0, NaN where it is negative."""
    sign, logarithm = slogdet(input)
    return choose(sign < 0, math.nan, logarithm)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """Return `linalg.lu_factor_ex`: without its last part unless `get_infos`."""
    found = linalg.lu_factor_ex(A, pivot=pivot)
    return tuple(found) if get_infos else (found.LU, found.pivots)


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """Return `linalg.lu_solve` with its arguments in another order."""
    return linalg.lu_solve(LU_data, LU_pivots, b)


def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return P, L and U of what `lu` gave; what isn't asked for is empty."""
    empty = LU_data.detach().new_empty(0)
    lower, upper = unpacked(LU_data) if unpack_data else (empty, empty)
    permutation = empty
    if unpack_pivots:
        order: Tensor = Order.apply(LU_pivots, LU_data._type.shape[-2])
        permutation = linalg._permutation(order, LU_data)
    return permutation, lower, upper


def qr(input: Tensor, some: bool = True) -> return_types.qr:
    """Return `linalg.qr`, reduced unless `some` is False."""
    return return_types.qr(*linalg.qr(input, "reduced" if some else "complete"))


def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> return_types.svd:
    """Return U, S and V, not its transpose as `linalg.svd` does."""
    u, s, vh = linalg.svd(input, not some)
    if not compute_uv:
        return return_types.svd(u.detach() * 0, s, vh.mT.detach() * 0)
    return return_types.svd(u, s, vh.mT)


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """Return the X with (L L^T) X = B, or (L^T L) X = B for the upper factor."""
    half = linalg.solve_triangular(L.mT if upper else L, B, upper=False)
    return linalg.solve_triangular(L if upper else L.mT, half, upper=True)


def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """Return the inverse of the matrix of which L is Cholesky's factor."""
    return cholesky_solve(eye(L._type.shape[-1], dtype=L.dtype), L, upper)


def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the X with A X = b (A^T X = b with `transpose`) and A."""
    matrix, is_upper = (A.mT, not upper) if transpose else (A, upper)
    x = linalg.solve_triangular(matrix, b, upper=is_upper, unitriangular=unitriangular)
    return x, A


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Return the powers 0 to N - 1 of the elements of a vector, the highest first."""
    powers = linalg.vander(x, N=N)
    return powers if increasing else powers.flip(-1)


def svd_lowrank(A: Tensor, q: int | None = 6) -> return_types.svd:
    """Return the `q` largest singular values with their vectors: U, S and V."""
    u, s, vh = linalg.svd(A, False)
    rank = min(6 if q is None else q, s._type.shape[-1])
    return return_types.svd(u[..., :rank], s[..., :rank], vh.mT[..., :rank])


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True) -> return_types.svd:
    """Return U, S and V of the principal components of the rows of A."""
    x = A - A.mean(-2, keepdim=True) if center else A
    return svd_lowrank(x, min(6, *A._type.shape[-2:]) if q is None else q)
