"""Linear algebra under the older names, those of `torch` itself and of the tensor's methods.

Args:
    input: matrices of floats (..., m, n).
    A: matrices of floats (..., m, n).
    LU_data: L and U in one matrix, (..., m, n).
    LU_pivots: the rows that were exchanged, int32 (..., k).

Raises:
    DTypeError: `input` holds no floats.
    ShapeError: `input` holds no such matrices.
"""

from __future__ import annotations

import math

from lucid import linalg, return_types
from lucid.docstrings import like, maps
from lucid.functions.arguments import integer
from lucid.functions.creation import eye
from lucid.functions.elementwise import choose
from lucid.functions.factorizations import order_of, unpacked
from lucid.functions.tensors import Tensor
from lucid.ir.errors import OptionError
from lucid.linalg import cholesky, det, inv, matrix_exp, pinv, slogdet

__all__ = [
    "cholesky", "cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "lu", "lu_solve",
    "lu_unpack", "matrix_exp", "pca_lowrank", "pinverse", "qr", "slogdet", "svd", "svd_lowrank",
    "triangular_solve", "vander",
]  # fmt: skip


@maps("[[2.0, 0.0], [0.0, 4.0]]", "[[0.5000, 0.0000], [0.0000, 0.2500]]")
def inverse(input: Tensor) -> Tensor:
    """Return the inverse of square matrices, as `linalg.inv`.

    Shapes: (..., n, n) gives (..., n, n).

    Args:
        input: square matrices of floats.

    Raises:
        LinAlgError: a matrix is singular.
    """
    return inv(input)


@maps("[[2.0], [0.0]]", "[[0.5000, 0.0000]]")
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """Return Moore and Penrose's inverse, for matrices of any shape and rank.

    Singular values of at most `rcond` times the largest count as 0.
    Shapes: (..., m, n) gives (..., n, m).

    Args:
        rcond: a relative bound.
    """
    return pinv(input, rtol=rcond)


@maps("[[4.0, 2.0], [2.0, 3.0]]", "tensor(2.0794)")
def logdet(input: Tensor) -> Tensor:
    """Return the logarithm of the determinant: -inf where that is 0, NaN where it is negative.

    Shapes: (..., n, n) gives (...). It doesn't overflow where the determinant does.

    Args:
        input: square matrices of floats.
    """
    sign, logarithm = slogdet(input)
    return choose(sign < 0, math.nan, logarithm)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """Return `linalg.lu_factor_ex`: without its last part unless `get_infos`.

    These are L and U in one matrix, the pivots, and for each matrix which element on the diagonal
    of U is the first zero, counted from 1, or 0.

    Args:
        pivot: whether rows are exchanged; True alone is supported.
        get_infos: whether to return the third part.

    Raises:
        OptionError: without `pivot`.
        ShapeError: no matrices.
        DTypeError: no floats.

    >>> lu, pivots = lucid.lu(lucid.tensor([[0.0, 2.0], [1.0, 3.0]]))
    >>> lu
    tensor([[1., 3.],
            [0., 2.]])
    >>> pivots
    tensor([2, 2], dtype=lucid.int32)
    """
    found = linalg.lu_factor_ex(A, pivot=pivot)
    return tuple(found) if get_infos else (found.LU, found.pivots)


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """Return the X with A X = b by what `lu` gave for A: `linalg.lu_solve` in another order.

    Args:
        b: floats (..., n, k).

    Raises:
        ShapeError: shapes that don't fit, a `b` of vectors among them.
        DTypeError: `b` and `LU_data` have different dtypes, or pivots aren't int32.

    >>> lu, pivots = lucid.lu(lucid.tensor([[0.0, 2.0], [1.0, 3.0]]))
    >>> lucid.lu_solve(lucid.tensor([[4.0], [7.0]]), lu, pivots)
    tensor([[1.],
            [2.]])
    """
    return linalg.lu_solve(LU_data, LU_pivots, b)


def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return P, L and U of what `lu` gave, with P L U the matrix; what isn't asked for is empty.

    Args:
        unpack_data: whether L and U are wanted.
        unpack_pivots: whether P is wanted.

    >>> p, l, u = lucid.lu_unpack(*lucid.lu(lucid.tensor([[0.0, 2.0], [1.0, 3.0]])))
    >>> p @ l @ u
    tensor([[0., 2.],
            [1., 3.]])
    """
    empty = LU_data.detach().new_empty(0)
    lower, upper = unpacked(LU_data) if unpack_data else (empty, empty)
    permutation = empty
    if unpack_pivots:
        order = order_of(LU_pivots, LU_data._type.shape[-2])
        permutation = linalg._permutation(order, LU_data)
    return permutation, lower, upper


@like(pinverse)
def qr(input: Tensor, some: bool = True) -> return_types.qr:
    """Return Q, with orthonormal columns, and the upper triangular R, with Q R the matrix.

    It is `linalg.qr`, reduced unless `some` is False.

    Args:
        some: whether Q has min(m, n) columns, else m.

    >>> q, r = lucid.qr(lucid.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> (q @ r).round(decimals=3)
    tensor([[3., 1.],
            [4., 2.]])
    """
    return return_types.qr(*linalg.qr(input, "reduced" if some else "complete"))


def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> return_types.svd:
    """Return U, S and V with U diag(S) V^T the matrix; V is not transposed, unlike `linalg.svd`'s.

    Shapes: (..., m, n) gives (..., m, k), (..., k) and (..., n, k), with k = min(m, n), or (..., m,
    m) and (..., n, n) for U and V without `some`.

    Args:
        some: whether U and V have k columns alone.
        compute_uv: whether U and V are wanted, else they are zeros.

    Raises:
        LinAlgError: the iteration doesn't converge, as with NaN.

    >>> u, s, v = lucid.svd(lucid.tensor([[0.0, 3.0], [2.0, 0.0], [0.0, 0.0]]))
    >>> u.shape, s, v.shape
    (lucid.Size([3, 2]), tensor([3., 2.]), lucid.Size([2, 2]))
    """
    u, s, vh = linalg.svd(input, not some)
    if not compute_uv:
        return return_types.svd(u.detach() * 0, s, vh.mT.detach() * 0)
    return return_types.svd(u, s, vh.mT)


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """Return the X with (L L^T) X = B, or (L^T L) X = B for the upper factor.

    Shapes: B is (..., n, k), as is X; batches broadcast.

    Args:
        B: matrices of floats, no vectors.
        L: Cholesky's factors, (..., n, n), of the same dtype.
        upper: whether they are upper triangles.

    Raises:
        LinAlgError: a factor is singular.
        ShapeError: shapes that don't fit.
        DTypeError: the dtypes differ, or aren't of floats.

    >>> factor = lucid.cholesky(lucid.tensor([[4.0, 2.0], [2.0, 3.0]]))
    >>> lucid.cholesky_solve(lucid.tensor([[8.0], [8.0]]), factor).round(decimals=3)
    tensor([[1.],
            [2.]])
    """
    half = linalg.solve_triangular(L.mT if upper else L, B, upper=False)
    return linalg.solve_triangular(L if upper else L.mT, half, upper=True)


def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """Return the inverse of the matrix of which L is Cholesky's factor.

    Shapes: (..., n, n) gives (..., n, n).

    Args:
        L: Cholesky's factors, of floats.
        upper: whether they are upper triangles.

    Raises:
        LinAlgError: a factor is singular.
        ShapeError: no square matrices.

    >>> a = lucid.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> (lucid.cholesky_inverse(lucid.cholesky(a)) @ a).round(decimals=3)
    tensor([[1., 0.],
            [0., 1.]])
    """
    return cholesky_solve(eye(L._type.shape[-1], dtype=L.dtype), L, upper)


def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the X with A X = b (A^T X = b with `transpose`), and A itself.

    Only one triangle of A is read. Shapes: b is (..., n, k), as is X.

    Args:
        b: matrices of floats, no vectors.
        A: matrices (..., n, n), of the same dtype.
        upper: whether the upper triangle is read, else the lower.
        transpose: whether A counts as transposed.
        unitriangular: whether the diagonal counts as 1, unread.

    Raises:
        LinAlgError: a matrix is singular.
        ShapeError: shapes that don't fit.
        DTypeError: the dtypes differ, or aren't of floats.

    >>> a = lucid.tensor([[1.0, 2.0], [0.0, 4.0]])
    >>> x, _ = lucid.triangular_solve(lucid.tensor([[5.0], [8.0]]), a)
    >>> x
    tensor([[1.],
            [2.]])
    """
    matrix, is_upper = (A.mT, not upper) if transpose else (A, upper)
    x = linalg.solve_triangular(matrix, b, upper=is_upper, unitriangular=unitriangular)
    return x, A


@maps("[2, 3]", "N=3", "[[4, 2, 1], [9, 3, 1]]")
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Return the powers 0 to N - 1 of the elements of a vector, the highest first.

    Shapes: (n,) gives (n, N).

    Args:
        x: a vector of numbers.
        N: how many powers. Default: None, as many as there are elements.
        increasing: whether the power 0 comes first.
    """
    powers = linalg.vander(x, N=N)
    return powers if increasing else powers.flip(-1)


@like(pinverse)
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int = 2, M: Tensor | None = None
) -> return_types.svd:
    """Return the `q` largest singular values with their vectors: U, S and V.

    They are cut from the exact decomposition; nothing is random, unlike PyTorch's.
    Shapes: (..., m, n) gives (..., m, q), (..., q) and (..., n, q), with q at most min(m, n).

    Args:
        q: how many are wanted.
        niter: how often PyTorch's approximation is refined, at least 0; the exact one needs none.
        M: what is subtracted from A before, of its shape or one that broadcasts. None for nothing.

    Raises:
        OptionError: `niter` is negative.

    Raises:
        OptionError: `q` is negative.

    >>> u, s, v = lucid.svd_lowrank(lucid.tensor([[0.0, 3.0], [2.0, 0.0], [0.0, 0.0]]), q=1)
    >>> u.shape, s, v.shape
    (lucid.Size([3, 1]), tensor([3.]), lucid.Size([2, 1]))
    """
    if integer(niter, "svd_lowrank", "niter") < 0:
        raise OptionError(f"svd_lowrank: niter must be at least 0, not {niter}")
    u, s, vh = linalg.svd(A if M is None else A - M, False)
    rank = min(6 if q is None else q, s._type.shape[-1])
    if rank < 0:
        raise OptionError(f"svd_lowrank: q must not be negative, and is {q}")
    return return_types.svd(u[..., :rank], s[..., :rank], vh.mT[..., :rank])


@like(svd_lowrank)
def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> return_types.svd:
    """Return U, S and V of the principal components of the rows of A.

    The columns of V are the directions, the most important first: `svd_lowrank` of A with the mean
    of each column subtracted.

    Args:
        q: how many components. Default: None, min(6, m, n).
        center: whether the means are subtracted.

    >>> _, s, v = lucid.pca_lowrank(lucid.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]), q=1)
    >>> s, v.abs()
    (tensor([1.4142]), tensor([[1.],
            [0.]]))
    """
    x = A - A.mean(-2, keepdim=True) if center else A
    return svd_lowrank(x, min(6, *A._type.shape[-2:]) if q is None else q, niter)
