"""Linear algebra under the names of `torch.linalg`.

Factorizations, inverses and solutions come from NumPy's LAPACK: in a compiled step they are host
calls, and what is around them stays native. Gradients of every order are made of tensor operations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid.functions.arguments import describe, typed
from lucid.functions.creation import arange
from lucid.functions.factorizations import (
    Cholesky,
    MatrixExponential,
    OrthogonalTriangular,
    SingularValues,
    SymmetricEigen,
)
from lucid.functions.from_data import from_numpy
from lucid.functions.householder import householder_product as householder_product
from lucid.functions.joining import broadcast_shapes, diagonal
from lucid.functions.lapack import LinAlgError as LinAlgError
from lucid.functions.lapack import call, matrices
from lucid.functions.linalg import matmul as matmul
from lucid.functions.lu import Factor, Order, rows_at, unpacked
from lucid.functions.norms import matrix_norm, norm, vecdot, vector_norm
from lucid.functions.products import cross as cross
from lucid.functions.products import matrix_power, multi_dot
from lucid.functions.shape import broadcast, matrix_transpose, movedim, reshape
from lucid.functions.solving import (
    Determinant,
    Inverse,
    PseudoInverse,
    SignAndLogDet,
    Solve,
    SolveTriangular,
)
from lucid.functions.tensors import Tensor
from lucid.ir import frames
from lucid.ir.errors import DTypeError, OptionError, ShapeError
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
    linalg_svd,
)

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]


# ---------------------------------------------------------------------- systems


def inv(A: Tensor) -> Tensor:
    """Return the inverse of square matrices. Raises `LinAlgError` for singular ones."""
    result: Tensor = Inverse.apply(matrices(A, "linalg.inv", square=True))
    return result


def det(A: Tensor) -> Tensor:
    """Return the determinant of square matrices."""
    result: Tensor = Determinant.apply(matrices(A, "linalg.det", square=True))
    return result


def slogdet(A: Tensor) -> linalg_slogdet:
    """Return the determinant's sign and the logarithm of its absolute value."""
    return linalg_slogdet(*SignAndLogDet.apply(matrices(A, "linalg.slogdet", square=True)))


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """Return the X with A X = B, or X A = B without `left`.

    B is a batch of matrices, or of vectors if it has one axis or A's batch shape and a last axis.
    Raises: `LinAlgError` for singular matrices.
    """
    a = matrices(A, "linalg.solve", square=True)
    is_vector = B.ndim == 1 or B._type.shape == a._type.shape[:-1]
    b = B[..., None] if is_vector else B
    if not left:
        return matrix_transpose(solve(a.mT, b.mT))
    _check_pair(a, b, "linalg.solve", a._type.shape[-1])
    x: Tensor = Solve.apply(*_same_batch(a, b))
    return x.squeeze(-1) if is_vector else x


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """Return the X with A X = B (X A = B without `left`); only one triangle of A is read."""
    a = matrices(A, "linalg.solve_triangular", square=True)
    b = matrices(B, "linalg.solve_triangular", "B")
    if not left:
        x = solve_triangular(a.mT, b.mT, upper=not upper, unitriangular=unitriangular)
        return matrix_transpose(x)
    _check_pair(a, b, "linalg.solve_triangular", a._type.shape[-1])
    result: Tensor = SolveTriangular.apply(*_same_batch(a, b), bool(upper), bool(unitriangular))
    return result


def _check_pair(a: Tensor, b: Tensor, op: str, rows: int) -> None:
    if a._type.dtype is not b._type.dtype:
        raise DTypeError(f"{op}: A and B must have the same dtype{describe(a, b)}")
    if b.ndim < 2 or b._type.shape[-2] != rows:
        raise ShapeError(f"{op}: Incompatible shapes of A and B for the equation{describe(a, b)}")


def _same_batch(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    lead = tuple(broadcast_shapes(a._type.shape[:-2], b._type.shape[:-2]))
    return (
        broadcast(a, (*lead, *a._type.shape[-2:])),
        broadcast(b, (*lead, *b._type.shape[-2:])),
    )


def pinv(
    A: Tensor, *, atol: float | None = None, rtol: float | None = None, hermitian: bool = False
) -> Tensor:
    """Return Moore and Penrose's inverse; small singular values, relative to `rtol`, count as 0."""
    a = matrices(A, "linalg.pinv")
    if atol is not None:
        raise OptionError("linalg.pinv: atol is not supported\nhint: use rtol")
    result: Tensor = PseudoInverse.apply(a, _cutoff(a, rtol))
    return result


def _cutoff(a: Tensor, rtol: float | None) -> float:
    """What part of the largest singular value counts as 0."""
    if rtol is not None:
        return float(rtol)
    return float(max(a._type.shape[-2:]) * np.finfo(a._type.dtype.numpy.str).eps)


def lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> linalg_lstsq:
    """Return, as `solution`, the X of least norm that makes the norm of A X - B least."""
    a = matrices(A, "linalg.lstsq")
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
    return linalg_lstsq(x.squeeze(-1) if is_vector else x, residuals, rank, empty)


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """Return the inverse of A as a map from its axes from `ind` on to those before."""
    first, last = A._type.shape[:ind], A._type.shape[ind:]
    flat = reshape(A, math.prod(first), math.prod(last))
    return reshape(inv(flat), (*last, *first))


def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """Return the X whose tensordot with A's last axes is B; `dims` are moved to the end of A."""
    if dims is not None:
        A = movedim(A, tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    unknown = A._type.shape[B.ndim :]
    flat = reshape(A, B._type.size, math.prod(unknown))
    return reshape(solve(flat, reshape(B, -1)), unknown)


# ---------------------------------------------------------------------- factorizations


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """Return the lower triangular L with L L^T = A, or its transpose.

    Raises: `LinAlgError` for matrices that aren't positive definite.
    """
    a = matrices(A, "linalg.cholesky", square=True)
    factor: Tensor = Cholesky.apply(a.mT if upper else a)
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

    info: Tensor = call(name, attempt, A)
    return info


def cholesky_ex(
    A: Tensor, *, upper: bool = False, check_errors: bool = False
) -> linalg_cholesky_ex:
    """Return (L, info); where info isn't 0, L is NaN. Eager only."""
    a = matrices(A, "linalg.cholesky_ex", square=True)
    found = _checked("cholesky_ex", a, np.linalg.cholesky, lambda x: cholesky(x, upper=upper))
    return linalg_cholesky_ex(*found)


def inv_ex(A: Tensor, *, check_errors: bool = False) -> linalg_inv_ex:
    """Return (inverse, info); where info isn't 0, the inverse is NaN. Eager only."""
    a = matrices(A, "linalg.inv_ex", square=True)
    return linalg_inv_ex(*_checked("inv_ex", a, np.linalg.inv, inv))


def _checked(name: str, a: Tensor, function: Any, result: Any) -> tuple[Tensor, Tensor]:
    """A result and, per matrix, 0 or a number that is not 0 where there is none."""
    info = _info(name, a, function)
    failed = (info != 0)[..., None, None]
    identity = from_numpy(np.eye(a._type.shape[-1], dtype=a._type.dtype.numpy.str))
    found = result(a.where(~failed, identity))
    return found.where(~failed, math.nan), info


def eigh(A: Tensor, UPLO: str = "L") -> linalg_eigh:
    """Return eigenvalues, ascending, and eigenvectors (columns) of symmetric matrices."""
    return linalg_eigh(*SymmetricEigen.apply(matrices(A, "linalg.eigh", square=True), UPLO))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Return the eigenvalues of symmetric matrices, ascending."""
    return eigh(A, UPLO).eigenvalues


def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> linalg_svd:
    """Return U, S, Vh with A = U diag(S) Vh, S descending; reduced without `full_matrices`."""
    return linalg_svd(*SingularValues.apply(matrices(A, "linalg.svd"), bool(full_matrices)))


def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """Return the singular values, descending."""
    return svd(A, False).S


def qr(A: Tensor, mode: str = "reduced") -> linalg_qr:
    """Return Q, with orthonormal columns, and the upper triangular R, with Q R = A.

    mode: "reduced", "complete" or "r", whose Q is empty.
    """
    a = matrices(A, "linalg.qr")
    if mode not in ("reduced", "complete", "r"):
        raise OptionError(f"linalg.qr: mode is 'reduced', 'complete' or 'r', not {mode!r}")
    q, r = OrthogonalTriangular.apply(a, mode)
    if mode == "r":
        q = from_numpy(np.empty(0, a._type.dtype.numpy.str))
    return linalg_qr(q, r)


def lu(A: Tensor, *, pivot: bool = True) -> linalg_lu:
    """Return P, L and U with A = P L U: a permutation, unit lower and upper triangular."""
    _check_pivot("linalg.lu", pivot)
    packed, _, order = Factor.apply(matrices(A, "linalg.lu"), False)
    lower, upper = unpacked(packed)
    return linalg_lu(_permutation(order, packed), lower, upper)


def _permutation(order: Tensor, like: Tensor) -> Tensor:
    """The matrix P with (P X)[order] = X."""
    found: Tensor = (arange(order._type.shape[-1])[:, None] == order[..., None, :]).to(like.dtype)
    return found


def _check_pivot(name: str, pivot: bool) -> None:
    if not pivot:
        raise OptionError(f"{name}: LU without pivoting is not implemented on the CPU")


def _check_pivots(pivots: Tensor, packed: Tensor) -> None:
    if pivots.dtype is not i32:
        raise DTypeError(
            "linalg.lu_solve: pivots should be a Tensor of scalar type lucid.int32"
            f"{typed(LU=packed, pivots=pivots)}"
        )
    if pivots.shape[-1:] != packed.shape[-1:]:
        raise ShapeError(
            "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the "
            f"matrix{typed(LU=packed, pivots=pivots)}"
        )


def lu_factor(A: Tensor, *, pivot: bool = True) -> linalg_lu_factor:
    """Return L and U in one matrix, and LAPACK's pivots. Raises `LinAlgError` for singular ones."""
    _check_pivot("linalg.lu_factor", pivot)
    return linalg_lu_factor(*Factor.apply(matrices(A, "linalg.lu_factor"), True)[:2])


def lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> linalg_lu_factor_ex:
    """Return L and U in one matrix, pivots, and the first zero on U's diagonal, from 1; else 0."""
    _check_pivot("linalg.lu_factor_ex", pivot)
    a = matrices(A, "linalg.lu_factor_ex")
    packed, pivots, _ = Factor.apply(a, bool(check_errors))
    is_zero = packed.detach().diagonal(dim1=-2, dim2=-1) == 0
    first = is_zero.int().argmax(-1).int() + 1
    return linalg_lu_factor_ex(packed, pivots, first * is_zero.any(-1).int())


def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """Return the X with A X = B (X A = B without `left`), by what `lu_factor` gave for A.

    adjoint: with A transposed.
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
    order: Tensor = Order.apply(pivots, size)
    order = broadcast(order, (*packed._type.shape[:-2], size))
    if adjoint:
        x = SolveTriangular.apply(upper.mT, b, False, False)
        x = SolveTriangular.apply(lower.mT, x, True, True)
        return rows_at(x, order.argsort(-1))
    x = SolveTriangular.apply(lower, rows_at(b, order), False, True)
    found: Tensor = SolveTriangular.apply(upper, x, True, False)
    return found


def matrix_exp(A: Tensor) -> Tensor:
    """Return the exponential of square matrices."""
    result: Tensor = MatrixExponential.apply(matrices(A, "linalg.matrix_exp", square=True))
    return result


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Return the powers 0 to N - 1 of the elements of vectors, along a new last axis."""
    powers: Tensor = x[..., None] ** arange(x._type.shape[-1] if N is None else N)
    return powers


def matrix_rank(
    A: Tensor, *, atol: float | None = None, rtol: float | None = None, hermitian: bool = False
) -> Tensor:
    """Return how many singular values are above `atol` and `rtol` times the largest."""
    a = matrices(A, "linalg.matrix_rank").detach()
    values = svdvals(a)
    limit = values.amax(-1, keepdim=True) * (0.0 if rtol is None and atol else _cutoff(a, rtol))
    if atol is not None:
        limit = limit.clamp(min=atol)
    rank: Tensor = (values > limit).sum(-1)
    return rank


def cond(A: Tensor, p: Any = None) -> Tensor:
    """Return the condition number of matrices in the norm `p`, 2 by default."""
    a = matrices(A, "linalg.cond")
    if p in (None, 2, -2):
        values = svdvals(a)
        first, last = values[..., 0], values[..., -1]
        return last / first if p == -2 else first / last
    return matrix_norm(a, p) * matrix_norm(inv(a), p)


frames.edge_of_module(__name__)
