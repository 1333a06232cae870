"""Linear algebra under the names of `torch.linalg`.

Factorizations, inverses and solutions come from NumPy's LAPACK: in a compiled step they are host
calls, and what is around them stays native. Gradients of every order are made of tensor operations.

Args:
    A: floats (..., m, n).
    left: on which side of X the matrices stand.
    pivot: whether rows are exchanged; True alone is supported.
    B: floats of the same dtype, (..., n, k).
    hermitian: A is symmetric, and its lower triangle alone is looked at.
    upper: whether to return L^T.
    check_errors: raise for a matrix that has none, after all.

Raises:
    DTypeError: `A` holds no floats.
    ShapeError: `A` holds no such matrices.
    OptionError: `pivot` is False.
"""

from __future__ import annotations

import math
import sys
from types import FunctionType
from typing import Any

import numpy as np

from lucid.choices import check_choice
from lucid.docstrings import like, maps
from lucid.functions.arguments import integer, listed, typed
from lucid.functions.border import explain_calls, recorded
from lucid.functions.creation import arange, eye
from lucid.functions.elementwise import choose, maximum
from lucid.functions.factorizations import (
    cholesky as _cholesky,
    determinant,
    inverse,
    lu_factors,
    matrix_exponential,
    order_of,
    orthogonal_triangular,
    pseudo_inverse,
    rows_at,
    sign_and_log_det,
    singular_values,
    solution,
    symmetric_eigen,
    triangular_solution,
    unpacked,
)
from lucid.functions.from_data import from_numpy
from lucid.functions.joining import broadcast_shapes, diag_embed, diagonal, tril, triu
from lucid.functions.lapack import call, matrices
from lucid.functions.norms import matrix_norm, norm, vecdot, vector_norm
from lucid.functions.products import cross as _cross, matmul as matmul, matrix_power, multi_dot
from lucid.functions.promotion import operand
from lucid.functions.shape import broadcast, matrix_transpose, movedim, reshape, unsqueeze
from lucid.functions.tensors import Tensor
from lucid.ir.errors import DTypeError, LinAlgError as LinAlgError, OptionError, ShapeError
from lucid.ir.types import i32
from lucid.return_types import (
    linalg_cholesky_ex,
    linalg_eigh,
    linalg_inv_ex,
    linalg_lstsq,
    linalg_lu,
    linalg_lu_factor,
    linalg_lu_factor_ex,
    linalg_qr,
    linalg_slogdet,
    linalg_solve_ex,
    linalg_svd,
)

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eigh",
    "eigvalsh", "householder_product", "inv", "inv_ex", "lstsq", "lu", "lu_factor", "lu_factor_ex",
    "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot",
    "norm", "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals",
    "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip


@like(_cross)
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Return the vector products of vectors of three elements along `dim`.

    Other than of `lucid.cross` the axis is the last one, whatever sizes the others have.

    Args:
        dim: the axis of the vectors.

    >>> x, y = lucid.tensor([[1.0, 0.0, 0.0]]), lucid.tensor([[0.0, 1.0, 0.0]])
    >>> lucid.linalg.cross(x, y)
    tensor([[0., 0., 1.]])
    """
    return _cross(input, other, dim)


@maps("[[2.0, 0.0], [0.0, 4.0]]", "[[0.5000, 0.0000], [0.0000, 0.2500]]")
def inv(A: Tensor) -> Tensor:
    """Return the inverse of square matrices: A @ inv(A) is the identity.

    Args:
        A: floats (..., n, n).

    Raises:
        LinAlgError: a matrix is singular.
    """
    return inverse(matrices(A, "linalg.inv", square=True))


def det(A: Tensor) -> Tensor:
    """Return the determinant of square matrices, which is 0 for singular ones.

    Args:
        A: floats (..., n, n).

    >>> lucid.det(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(-2.)
    """
    return determinant(matrices(A, "linalg.det", square=True))


@like(det)
def slogdet(A: Tensor) -> linalg_slogdet:
    """Return the determinant's sign and the logarithm of its absolute value, without overflow.

    Of singular matrices these are 0 and -inf.

    >>> lucid.slogdet(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]))
    lucid.return_types.linalg_slogdet(
    sign=tensor(-1.),
    logabsdet=tensor(0.6931))
    """
    return linalg_slogdet(*sign_and_log_det(matrices(A, "linalg.slogdet", square=True)))


@maps("[[2.0, 0.0], [0.0, 4.0]]", "[2.0, 2.0]", "[1.0000, 0.5000]")
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """Return the X with A X = B, or X A = B without `left`.

    Shapes: B is a batch of matrices, or of vectors if it has one axis or A's batch shape and a last
    axis; X has its shape. Batches broadcast.

    Args:
        A: floats (..., n, n).
        B: floats of the same dtype, (..., n, k) or (..., n).

    Raises:
        LinAlgError: a matrix is singular.
        ShapeError: shapes that don't fit.
        DTypeError: A and B have different dtypes, or no floats.
    """
    a = matrices(A, "linalg.solve", square=True)
    is_vector = B.ndim == 1 or B._type.shape == a._type.shape[:-1]
    b = B[..., None] if is_vector else B
    if not left:
        return matrix_transpose(solve(a.mT, b.mT))
    _check_pair(a, b, "linalg.solve", a._type.shape[-1])
    x = solution(*_same_batch(a, b))
    return x.squeeze(-1) if is_vector else x


@maps("[[1.0, 2.0], [0.0, 4.0]]", "[[5.0], [8.0]]", "upper=True", "[[1.], [2.]]")
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """Return the X with A X = B, or X A = B without `left`; only one triangle of A is read.

    Args:
        A: floats (..., n, n).
        upper: whether the upper triangle is read, else the lower.
        unitriangular: whether the diagonal counts as 1, unread.

    Raises:
        LinAlgError: a matrix is singular.
        ShapeError: shapes that don't fit, a B of vectors among them.
        DTypeError: A and B have different dtypes, or no floats.
    """
    a = matrices(A, "linalg.solve_triangular", square=True)
    b = matrices(B, "linalg.solve_triangular", "B")
    if not left:
        x = solve_triangular(a.mT, b.mT, upper=not upper, unitriangular=unitriangular)
        return matrix_transpose(x)
    _check_pair(a, b, "linalg.solve_triangular", a._type.shape[-1])
    return triangular_solution(*_same_batch(a, b), bool(upper), bool(unitriangular))


def _check_pair(a: Tensor, b: Tensor, op: str, rows: int) -> None:
    if a._type.dtype is not b._type.dtype:
        raise DTypeError(f"{op}: A and B must have the same dtype{listed(A=a, B=b)}")
    if b.ndim < 2 or b._type.shape[-2] != rows:
        raise ShapeError(f"{op}: Incompatible shapes of A and B for the equation{listed(A=a, B=b)}")


def _same_batch(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    lead = tuple(broadcast_shapes(a._type.shape[:-2], b._type.shape[:-2]))
    return (broadcast(a, (*lead, *a._type.shape[-2:])), broadcast(b, (*lead, *b._type.shape[-2:])))


@maps("[[2.0], [0.0]]", "[[0.5000, 0.0000]]")
def pinv(
    A: Tensor, *, atol: float | None = None, rtol: float | None = None, hermitian: bool = False
) -> Tensor:
    """Return Moore and Penrose's inverse, for matrices of any shape and rank.

    Singular values of at most `rtol` times the largest count as 0.

    Args:
        atol: PyTorch's; None alone is supported.
        rtol: Default: None, max(m, n) times the dtype's eps.

    Raises:
        OptionError: an `atol`.
    """
    a = matrices(A, "linalg.pinv")
    if atol is not None:
        raise OptionError("linalg.pinv: atol is not supported\nhint: use rtol")
    if hermitian:
        values, vectors = eigh(a)
        kept = values.abs() > _largest(values.abs()) * _cutoff(a, rtol)
        return (vectors * (kept / values.masked_fill(~kept, 1.0)).unsqueeze(-2)) @ vectors.mT
    return pseudo_inverse(a, _cutoff(a, rtol))


def _largest(values: Tensor) -> Tensor:
    """The largest of each matrix, (..., 1); of none, none."""
    return values.amax(-1, keepdim=True) if values.shape[-1] else values


def _cutoff(a: Tensor, rtol: float | None) -> float:
    """What part of the largest singular value counts as 0."""
    if rtol is not None:
        return float(rtol)
    return float(max(a._type.shape[-2:]) * np.finfo(a._type.dtype.numpy.str).eps)


def lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> linalg_lstsq:
    """Return, as `solution`, the X of least norm that makes the norm of A X - B least.

    `residuals` are the sums of squared errors of each column where A has more rows than columns,
    else empty. `rank` is that of each matrix, and empty for "gels"; `singular_values` are A's for
    "gelsd" and "gelss", else empty.

    Args:
        B: floats of the same dtype, (..., m, k) or (..., m).
        rcond: what part of the largest singular value counts as 0. Default: None, as in `pinv`.
        driver: "gelsy", "gels" (for matrices of full rank), "gelsd" or "gelss": what is returned
            beside the solution, which always comes from the SVD. Default: None, "gelsy".

    Raises:
        OptionError: another `driver`.
        ShapeError: shapes that don't fit.
        DTypeError: A and B have different dtypes, or no floats.

    >>> a = lucid.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> lucid.linalg.lstsq(a, lucid.tensor([1.0, 3.0, 5.0])).solution.round(decimals=3)
    tensor([1., 2.])
    """
    a = matrices(A, "linalg.lstsq")
    check_choice(driver, "driver", "linalg.lstsq", (None, "gels", "gelsy", "gelsd", "gelss"))
    is_vector = B.ndim == 1 or B._type.shape == a._type.shape[:-1]
    b = B[..., None] if is_vector else B
    _check_pair(a, b, "linalg.lstsq", a._type.shape[-2])
    x = matmul(pinv(a, rtol=rcond), b)
    rows, columns = a._type.shape[-2:]
    empty = from_numpy(np.empty(0, a._type.dtype.numpy.str))
    residuals = empty
    if rows > columns:
        residuals = ((matmul(a, x) - b) ** 2).sum(-2)
    rank = from_numpy(np.empty(0, np.int64))
    if driver != "gels":
        rank = matrix_rank(a, rtol=rcond)
    values = svdvals(a.detach()) if driver in ("gelsd", "gelss") else empty
    return linalg_lstsq(x.squeeze(-1) if is_vector else x, residuals, rank, values)


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """Return the inverse of A as a map from its axes from `ind` on to those before.

    Shapes: (*first, *last), whose sizes have the same product, gives (*last, *first).

    Args:
        A: a tensor of floats.
        ind: how many axes come first.

    Raises:
        LinAlgError: the map is singular.
        ShapeError: the products of sizes differ.
        OptionError: `ind` isn't above 0.

    >>> lucid.linalg.tensorinv(lucid.eye(4).reshape(2, 2, 4)).shape
    lucid.Size([4, 2, 2])
    """
    if integer(ind, "tensorinv", "ind") <= 0:
        raise OptionError(f"tensorinv: ind must be > 0, not {ind}")
    first, last = A._type.shape[:ind], A._type.shape[ind:]
    flat = reshape(A, math.prod(first), math.prod(last))
    return reshape(inv(flat), (*last, *first))


def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """Return the X whose tensordot with A's last axes is B: `tensordot(A, X, X.ndim) == B`.

    Args:
        A: floats (*B.shape, *X.shape), whose sizes have the same product.
        B: floats of the same dtype.
        dims: axes of A that are moved to its end before.

    Raises:
        LinAlgError: the map is singular.
        ShapeError: the products of sizes differ.

    >>> a = 2 * lucid.eye(4).reshape(2, 2, 4)
    >>> lucid.linalg.tensorsolve(a, lucid.ones(2, 2))
    tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    if dims is not None:
        A = movedim(A, tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    unknown = A._type.shape[B.ndim :]
    flat = reshape(A, B._type.size, math.prod(unknown))
    return reshape(solve(flat, reshape(B, -1)), unknown)


@maps("[[4.0, 2.0], [2.0, 2.0]]", "[[2., 0.], [1., 1.]]")
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """Return the lower triangular L with L L^T = A, or its transpose.

    One triangle of A is read: the lower, with `upper` the upper.

    Args:
        A: symmetric positive definite matrices of floats (..., n, n).

    Raises:
        LinAlgError: a matrix isn't positive definite.
    """
    a = matrices(A, "linalg.cholesky", square=True)
    factor = _cholesky(a.mT if upper else a)
    return factor.mT if upper else factor


def _info(name: str, A: Tensor, function: Any) -> Tensor:
    """Per matrix, whether LAPACK refuses it; eager or on the host, for it depends on values."""

    def attempt(a: np.ndarray) -> np.ndarray:
        found = np.zeros(a.shape[:-2], np.int32)
        for place in np.ndindex(*found.shape):
            try:
                function(a[place])
            except np.linalg.LinAlgError:
                found[place] = 1
        return found

    info: Tensor = call(f"linalg.{name}", attempt, A)
    return info


def cholesky_ex(
    A: Tensor, *, upper: bool = False, check_errors: bool = False
) -> linalg_cholesky_ex:
    """Return (L, info) without an error: where a matrix isn't positive definite, L is NaN.

    info is 0 for each matrix that has an L, and 1 for others.

    Args:
        A: symmetric matrices of floats (..., n, n).

    Raises:
        LinAlgError: with `check_errors`, a matrix isn't positive definite.

    >>> lucid.linalg.cholesky_ex(lucid.tensor([[[4.0]], [[-1.0]]])).info
    tensor([0, 1], dtype=lucid.int32)
    """
    a = matrices(A, "linalg.cholesky_ex", square=True)
    if check_errors:
        return linalg_cholesky_ex(
            cholesky(a, upper=upper), from_numpy(np.zeros(a._type.shape[:-2], np.int32))
        )
    found = _checked("cholesky_ex", a, np.linalg.cholesky, lambda x: cholesky(x, upper=upper))
    return linalg_cholesky_ex(*found)


def inv_ex(A: Tensor, *, check_errors: bool = False) -> linalg_inv_ex:
    """Return (inverse, info) without an error: where a matrix is singular, the inverse is NaN.

    info is 0 for each matrix that has an inverse, and 1 for others.

    Args:
        A: floats (..., n, n).

    Raises:
        LinAlgError: with `check_errors`, a matrix is singular.

    >>> lucid.linalg.inv_ex(lucid.tensor([[[4.0]], [[0.0]]])).info
    tensor([0, 1], dtype=lucid.int32)
    """
    a = matrices(A, "linalg.inv_ex", square=True)
    if check_errors:
        return linalg_inv_ex(inv(a), from_numpy(np.zeros(a._type.shape[:-2], np.int32)))
    return linalg_inv_ex(*_checked("inv_ex", a, np.linalg.inv, inv))


def solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> linalg_solve_ex:
    """Return (result, info) without an error: where a matrix is singular, the result is NaN.

    info is 0 for each matrix that has an inverse, and 1 for others.

    Args:
        A: floats (..., n, n).
        B: floats of the same dtype, (..., n, k) or (..., n).

    Raises:
        LinAlgError: with `check_errors`, a matrix is singular.
        ShapeError: shapes that don't fit.

    >>> x = lucid.linalg.solve_ex(lucid.tensor([[[4.0]], [[0.0]]]), lucid.ones(2, 1, 1)).result
    >>> x.flatten()
    tensor([0.2500,    nan])
    """
    a = matrices(A, "linalg.solve_ex", square=True)
    if check_errors:
        info = from_numpy(np.zeros(a._type.shape[:-2], np.int32))
    else:
        info = _info("solve_ex", a, np.linalg.inv)
        a = a.where((info == 0)[..., None, None], math.nan)
    return linalg_solve_ex(solve(a, B, left=left), info)


def _checked(name: str, a: Tensor, function: Any, result: Any) -> tuple[Tensor, Tensor]:
    """A result and, per matrix, 0 or a number that is not 0 where there is none."""
    info = _info(name, a, function)
    failed = (info != 0)[..., None, None]
    identity = from_numpy(np.eye(a._type.shape[-1], dtype=a._type.dtype.numpy.str))
    found = result(a.where(~failed, identity))
    return found.where(~failed, math.nan), info


def eigh(A: Tensor, UPLO: str = "L") -> linalg_eigh:
    """Return eigenvalues, ascending, and eigenvectors (columns) of symmetric matrices.

    A = Q diag(L) Q^T; the sign of each column is LAPACK's choice.

    Args:
        A: floats (..., n, n).
        UPLO: which triangle is read: "L" or "U".

    Raises:
        OptionError: another `UPLO`.

    >>> lucid.linalg.eigh(lucid.tensor([[2.0, 1.0], [1.0, 2.0]])).eigenvalues.round(decimals=3)
    tensor([1., 3.])
    """
    check_choice(UPLO, "UPLO", "linalg.eigh", ("L", "U", "l", "u"))
    return linalg_eigh(*symmetric_eigen(matrices(A, "linalg.eigh", square=True), UPLO))


@like(eigh)
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Return the eigenvalues of symmetric matrices in ascending order.

    They are those of `eigh`.

    >>> lucid.linalg.eigvalsh(lucid.tensor([[2.0, 1.0], [1.0, 2.0]])).round(decimals=3)
    tensor([1., 3.])
    """
    return eigh(A, UPLO).eigenvalues


def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> linalg_svd:
    """Return U, S, Vh with A = U diag(S) Vh, where U and Vh are orthogonal and S descends.

    Shapes: (..., m, n) gives (..., m, m), (..., k), (..., n, n), with k = min(m, n); without
    `full_matrices` U is (..., m, k) and Vh (..., k, n).

    Args:
        full_matrices: whether U and Vh are square.
        driver: None; a routine can be chosen on GPUs alone.

    Raises:
        LinAlgError: the iteration doesn't converge, as with NaN.
        OptionError: a `driver`.

    >>> u, s, vh = lucid.linalg.svd(lucid.tensor([[0.0, 3.0], [2.0, 0.0], [0.0, 0.0]]))
    >>> u.shape, s, vh.shape
    (lucid.Size([3, 3]), tensor([3., 2.]), lucid.Size([2, 2]))
    """
    _refuse_driver(driver, "linalg.svd")
    return linalg_svd(*singular_values(matrices(A, "linalg.svd"), bool(full_matrices)))


@like(svd)
@maps("[[0.0, 3.0], [2.0, 0.0]]", "[3., 2.]")
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """Return the singular values of matrices in descending order.

    Shapes: (..., m, n) gives (..., k), with k = min(m, n).
    """
    _refuse_driver(driver, "linalg.svdvals")
    return svd(A, False).S


def _refuse_driver(driver: Any, op: str) -> None:
    if driver is not None:
        raise OptionError(f"{op}: driver={driver!r} is for matrices on a GPU\nhint: leave it out")


def qr(A: Tensor, mode: str = "reduced") -> linalg_qr:
    """Return Q, with orthonormal columns, and the upper triangular R, with Q R = A.

    Shapes: (..., m, n) gives (..., m, k) and (..., k, n), with k = min(m, n), or m if "complete".

    Args:
        mode: "reduced", "complete", or "r", whose Q is empty.

    Raises:
        OptionError: another `mode`.

    >>> q, r = lucid.linalg.qr(lucid.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> (q @ r).round(decimals=3)
    tensor([[3., 1.],
            [4., 2.]])
    """
    a = matrices(A, "linalg.qr")
    check_choice(mode, "mode", "linalg.qr", ("reduced", "complete", "r"))
    q, r = orthogonal_triangular(a, mode)
    if mode == "r":
        q = from_numpy(np.empty(0, a._type.dtype.numpy.str))
    return linalg_qr(q, r)


def lu(A: Tensor, *, pivot: bool = True) -> linalg_lu:
    """Return P, L and U with A = P L U: a permutation, unit lower and upper triangular.

    Args:
        A: floats (..., m, n), which may be singular.

    >>> lucid.linalg.lu(lucid.tensor([[0.0, 2.0], [1.0, 3.0]]))
    lucid.return_types.linalg_lu(
    P=tensor([[0., 1.],
            [1., 0.]]),
    L=tensor([[1., 0.],
            [0., 1.]]),
    U=tensor([[1., 3.],
            [0., 2.]]))
    """
    _check_pivot("linalg.lu", pivot)
    packed, _, order = lu_factors(matrices(A, "linalg.lu"), False)
    lower, upper = unpacked(packed)
    return linalg_lu(_permutation(order, packed), lower, upper)


def _permutation(order: Tensor, like: Tensor) -> Tensor:
    """The matrix P with (P X)[order] = X."""
    return (arange(order._type.shape[-1])[:, None] == order[..., None, :]).to(like.dtype)


def _check_pivot(name: str, pivot: bool) -> None:
    if not pivot:
        raise OptionError(f"{name}: LU without pivoting is not implemented on the CPU")


def _check_pivots(pivots: Tensor, packed: Tensor) -> None:
    if pivots.dtype is not i32:
        raise DTypeError(f"linalg.lu_solve: pivots must be int32{typed(LU=packed, pivots=pivots)}")
    if pivots.shape[-1:] != packed.shape[-1:]:
        raise ShapeError(
            "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the "
            f"matrix{typed(LU=packed, pivots=pivots)}"
        )


def lu_factor(A: Tensor, *, pivot: bool = True) -> linalg_lu_factor:
    """Return L and U in one matrix, and LAPACK's pivots, for `lu_solve`.

    U is the upper triangle, L what is below it, with an implied diagonal of 1. Row i was exchanged
    with row pivots[i] - 1, an int32, in turn.

    Raises:
        LinAlgError: a matrix is singular.

    >>> lucid.linalg.lu_factor(lucid.tensor([[0.0, 2.0], [1.0, 3.0]]))
    lucid.return_types.linalg_lu_factor(
    LU=tensor([[1., 3.],
            [0., 2.]]),
    pivots=tensor([2, 2], dtype=lucid.int32))
    """
    _check_pivot("linalg.lu_factor", pivot)
    return linalg_lu_factor(*lu_factors(matrices(A, "linalg.lu_factor"), True)[:2])


def lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> linalg_lu_factor_ex:
    """Return L and U in one matrix, pivots, and info: the first zero on the diagonal of U.

    It counts from 1, and is 0 where there is none.

    Args:
        check_errors: whether a singular matrix is an error.

    Raises:
        LinAlgError: a matrix is singular, with `check_errors`.

    >>> lucid.linalg.lu_factor_ex(lucid.ones(2, 2)).info
    tensor(2, dtype=lucid.int32)
    """
    _check_pivot("linalg.lu_factor_ex", pivot)
    a = matrices(A, "linalg.lu_factor_ex")
    packed, pivots, _ = lu_factors(a, bool(check_errors))
    is_zero = packed.detach().diagonal(dim1=-2, dim2=-1) == 0
    first = is_zero.int().argmax(-1).int() + 1
    return linalg_lu_factor_ex(packed, pivots, first * is_zero.any(-1).int())


def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """Return the X with A X = B, or X A = B without `left`, by what `lu_factor` gave for A.

    Args:
        LU: floats (..., n, n), both triangles in one matrix.
        pivots: int32 (..., n).
        adjoint: whether to solve with A transposed.

    Raises:
        ShapeError: shapes that don't fit, a B of vectors among them.
        DTypeError: LU and B have different dtypes, or pivots aren't int32.

    >>> lu, pivots = lucid.linalg.lu_factor(lucid.tensor([[0.0, 2.0], [1.0, 3.0]]))
    >>> lucid.linalg.lu_solve(lu, pivots, lucid.tensor([[4.0], [7.0]]))
    tensor([[1.],
            [2.]])
    """
    packed = matrices(LU, "linalg.lu_solve", "LU", square=True)
    b = matrices(B, "linalg.lu_solve", "B")
    if not left:
        return matrix_transpose(lu_solve(packed, pivots, b.mT, adjoint=not adjoint))
    size = packed._type.shape[-1]
    _check_pair(packed, b, "linalg.lu_solve", size)
    packed, b = _same_batch(packed, b)
    _check_pivots(pivots, packed)
    lower, upper = unpacked(packed)
    order = broadcast(order_of(pivots, size), (*packed._type.shape[:-2], size))
    if adjoint:
        x = triangular_solution(upper.mT, b, False, False)
        x = triangular_solution(lower.mT, x, True, True)
        return rows_at(x, order.argsort(-1))
    x = triangular_solution(lower, rows_at(b, order), False, True)
    return triangular_solution(upper, x, True, False)


@like(det)
@maps("[[0.0, 1.0], [0.0, 0.0]]", "[[1., 1.], [0., 1.]]")
def matrix_exp(A: Tensor) -> Tensor:
    """Return the exponential of square matrices, the sum of A^k / k! over all k."""
    return matrix_exponential(matrices(A, "linalg.matrix_exp", square=True))


@maps("[2, 3]", "N=3", "[[1, 2, 4], [1, 3, 9]]")
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Return the powers 0 to N - 1 of the elements of vectors, along a new last axis.

    Args:
        x: (..., n), of numbers.
        N: how many powers. Default: None, as many as the vectors have elements.
    """
    return x[..., None] ** arange(x._type.shape[-1] if N is None else integer(N, "vander", "N"))


@maps("lucid.ones(2, 2)", "tensor(1)")
def matrix_rank(
    A: Tensor,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    hermitian: bool = False,
) -> Tensor:
    """Return how many singular values are above both `atol` and `rtol` times the largest, as int64.

    Args:
        atol: an absolute bound, or one for each matrix. Default: None, 0.
        rtol: a relative bound, or one for each matrix. Default: None, max(m, n) times the dtype's
            eps, or 0 beside an `atol`.
    """
    a = matrices(A, "linalg.matrix_rank").detach()
    values = eigvalsh(a).abs() if hermitian else svdvals(a)
    least = operand(0.0 if atol is None else atol, a.dtype, "linalg.matrix_rank")
    if rtol is None:
        rtol = choose(least > 0, 0.0, _cutoff(a, None))
    part = operand(rtol, a.dtype, "linalg.matrix_rank")
    limit = maximum(unsqueeze(least, -1), _largest(values) * unsqueeze(part, -1))
    return (values > limit).sum(-1)


@maps("[[4.0, 0.0], [0.0, 2.0]]", "tensor(2.)")
def cond(A: Tensor, p: Any = None) -> Tensor:
    """Return the condition number of matrices: the norm of A times the norm of its inverse.

    Args:
        A: floats (..., m, n); square unless `p` is 2 or -2.
        p: an order as in `matrix_norm`. Default: None, 2.

    Raises:
        LinAlgError: a matrix is singular, unless `p` is 2 or -2.
        OptionError: another order.
        ShapeError: matrices that aren't square, unless `p` is 2 or -2.
    """
    a = matrices(A, "linalg.cond")
    if p in (None, 2, -2):
        values = svdvals(a)
        first, last = values[..., 0], values[..., -1]
        return last / first if p == -2 else first / last
    return matrix_norm(a, p) * matrix_norm(inv(a), p)


@maps("[[1.0], [1.0]]", "[1.0]", "[[ 0.], [-1.]]")
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """Return the first columns of H_1 H_2 … H_k, with H_i = I - tau_i v_i v_i^T.

    The product is I - V T V^T with T^-1 = diag(1/tau) + the part of V^T V above the diagonal.
    Reference: Joffrain et al., "Accumulating Householder Transformations, Revisited", 2006.

    Args:
        A: floats (..., m, n), m >= n; v_i is column i below the diagonal, 1 on it, 0 above.
        tau: floats (..., k), k <= n.

    Raises:
        ShapeError: shapes that don't fit.
        DTypeError: A and tau have different dtypes, or no floats.
    """
    a = matrices(A, "linalg.householder_product")
    rows, columns = a._type.shape[-2:]
    count = tau._type.shape[-1] if tau.ndim else 0
    if rows < columns or count > columns or tau._type.shape != (*a._type.shape[:-2], count):
        raise ShapeError(
            "linalg.householder_product: A must have at least as many rows as columns, and tau "
            f"A's batch shape and at most as many elements as A has columns{listed(A=a, tau=tau)}"
        )
    if a._type.dtype is not tau._type.dtype:
        raise DTypeError(
            f"linalg.householder_product: A and tau must have the same dtype{listed(A=a, tau=tau)}"
        )
    identity = eye(rows, columns, dtype=a.dtype)
    v = tril(a[..., :count], -1) + identity[:, :count]
    inner = triu(matmul(v.mT, v), 1) * tau[..., None] + eye(count, dtype=a.dtype)
    t = triangular_solution(inner, diag_embed(tau), True, True)
    return identity - matmul(matmul(v, t), v[..., :columns, :].mT)


explain_calls(
    sys.modules[__name__],
    {
        name: recorded(value)
        for name in __all__
        if isinstance(value := globals()[name], FunctionType)
    },
    (__name__, "lucid.functions."),
)
