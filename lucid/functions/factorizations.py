"""Inverses, solutions of linear systems, determinants and factorizations, with their gradients.

The derivatives of which nothing is said are those of Giles, "Collected Matrix Derivative Results
for Forward and Reverse Mode Algorithmic Differentiation", 2008. `matrices` checks the arguments.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lucid.functions.checks import require
from lucid.functions.creation import eye, ones_like
from lucid.functions.elementwise import choose
from lucid.functions.gathering import gather
from lucid.functions.gradients import with_gradient
from lucid.functions.joining import cat, diag_embed, diagonal, stack, tril, triu
from lucid.functions.lapack import lapack, solve_triangular
from lucid.functions.shape import matrix_transpose
from lucid.functions.sorting import argsort
from lucid.functions.tensors import Tensor
from lucid.ir.errors import LinAlgError

Pair = tuple[Tensor | None, Tensor | None]


def inverse(a: Tensor) -> Tensor:
    """The inverse of each square matrix."""
    if not _are_eliminated(a):
        return _inverse(a)
    return _regular("linalg.inv", *_inverses(a), a=a)


@lapack("linalg.inv", lambda g, y: -(y.mT @ g @ y.mT))
def _inverse(a: np.ndarray) -> np.ndarray:
    return np.linalg.inv(a)


def solution(a: Tensor, b: Tensor) -> Tensor:
    """The X with A X = B, for batches of one shape."""
    if not _are_eliminated(a):
        return _solution(a, b)
    return _regular("linalg.solve", *_solutions(a, b), a=a, b=b)


def _of_solution(g: Tensor, a: Tensor, y: Tensor, needs: tuple[bool, ...]) -> Pair:
    to_b = solution(a.mT, g)
    return -(to_b @ y.mT) if needs[0] else None, to_b


@lapack("linalg.solve", _of_solution)
def _solution(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.solve(a, b)


# Many small matrices: an elimination of all at once, in native code.
_FEW_ROWS, _MANY = 4, 64


def _are_eliminated(a: Tensor) -> bool:
    """Whether LAPACK, which is called for each matrix, would take many times as long."""
    *batch, n = a._type.shape[:-1]
    return 0 < n <= _FEW_ROWS and prod(batch) >= _MANY


def _regular(name: str, x: Tensor, is_regular: Tensor, **given: Tensor) -> Tensor:
    """The result. Raises `LinAlgError` where a matrix is singular."""
    kinds = ", ".join(str(tensor._type) for tensor in given.values())
    require(is_regular, f"{name}: Singular matrix (of {kinds})", "singular")
    return x


@with_gradient(lambda g, y: -(y[0].mT @ g[0] @ y[0].mT), fixed=(1,))
def _inverses(a: Tensor) -> tuple[Tensor, Tensor]:
    n = a._type.shape[-1]
    return _substituted(*_eliminated(a, eye(n, dtype=a.dtype).expand(a._type.shape))[:2])


@with_gradient(lambda g, a, y, needs: _of_solution(g[0], a, y[0], needs), fixed=(1,))
def _solutions(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return _substituted(*_eliminated(a, b)[:2])


Row = list[Tensor]


def _eliminated(a: Tensor, b: Tensor | None) -> tuple[list[Row], list[Row], Tensor]:
    """Rows of U and of C with U X = C for A X = B, by Gaussian elimination with partial pivoting.

    The last result is the sign of the rows' permutation.
    """
    n = a._type.shape[-1]
    both = a if b is None else cat([a, b], -1)
    rows = [list(row.unbind(-1)) for row in both.unbind(-2)]
    sign = ones_like(rows[0][0])
    for k in range(n):
        for i in range(k + 1, n):  # the largest is the pivot
            is_larger = rows[i][k].abs() > rows[k][k].abs()
            pairs = [*zip(rows[k], rows[i], strict=True)]
            rows[k] = [choose(is_larger, under, pivot) for pivot, under in pairs]
            rows[i] = [choose(is_larger, pivot, under) for pivot, under in pairs]
            sign = choose(is_larger, -sign, sign)
        divisor = choose(rows[k][k] == 0, 1.0, rows[k][k])  # where those below it are 0 as well
        for i in range(k + 1, n):
            factor = rows[i][k] / divisor
            rows[i][k + 1 :] = [
                x - factor * pivot
                for x, pivot in zip(rows[i][k + 1 :], rows[k][k + 1 :], strict=True)
            ]
    return [row[:n] for row in rows], [row[n:] for row in rows], sign


def _substituted(upper: list[Row], rows: list[Row]) -> tuple[Tensor, Tensor]:
    """The X with U X = C, and whether each matrix is regular."""
    found: list[Row] = []
    for i in reversed(range(len(rows))):
        row = rows[i]
        for factor, known in zip(upper[i][i + 1 :], found, strict=True):
            row = [x - factor * y for x, y in zip(row, known, strict=True)]
        found.insert(0, [x / upper[i][i] for x in row])
    pivots = stack([row[i] for i, row in enumerate(upper)], -1)
    return stack([stack(row, -1) for row in found], -2), pivots != 0


def _of_triangular(
    g: Tensor, a: Tensor, y: Tensor, upper: bool, unit: bool, needs: tuple[bool, ...]
) -> Pair:
    to_b = triangular_solution(a.mT, g, not upper, unit)
    if not needs[0]:
        return None, to_b
    whole = -(to_b @ y.mT)
    return triu(whole, int(unit)) if upper else tril(whole, -int(unit)), to_b


@lapack("linalg.solve_triangular", _of_triangular)
def triangular_solution(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool) -> np.ndarray:
    """The X with A X = B, where only a triangle of A is read."""
    batch, n = np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-1]
    found = np.empty((*batch, *b.shape[-2:]), b.dtype)
    if found.size and (n > _FEW or prod(batch) <= _FEW):
        found[...] = b
        each = a if a.shape[:-2] == batch else np.broadcast_to(a, (*batch, n, n))
        if solve_triangular(each, found, upper, unit):
            return found
    _substitute(a, b, upper, unit, found)
    return found


_FEW = 8
"""NumPy solves so few unknowns for a whole batch in less time than BLAS takes, which is called for
each matrix."""
_SUBSTITUTED = 64
"""Systems with more unknowns are solved half by half, with a product between, where NumPy is linked
with another library: its own solvers are for whole matrices."""


def _substitute(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool, x: np.ndarray) -> None:
    """Put the X with A X = B in its place."""
    n = a.shape[-1]
    if n <= _SUBSTITUTED:
        a = np.triu(a, int(unit)) if upper else np.tril(a, -int(unit))
        x[...] = np.linalg.solve(a + np.eye(n, dtype=a.dtype) if unit else a, b)
        return
    parts = slice(n // 2), slice(n // 2, n)
    first, last = parts[::-1] if upper else parts
    _substitute(a[..., first, first], b[..., first, :], upper, unit, x[..., first, :])
    rest = b[..., last, :] - a[..., last, first] @ x[..., first, :]
    _substitute(a[..., last, last], rest, upper, unit, x[..., last, :])


def _of_cofactors(g: Tensor, a: Tensor) -> Tensor:
    inv, factors = inverse(a), cofactors(a)
    along = (g * factors).sum((-2, -1), keepdim=True)
    return inv.mT * along - inv.mT @ g.mT @ factors


@lapack("linalg.det", _of_cofactors)
def cofactors(a: np.ndarray) -> np.ndarray:
    """The derivative of the determinant, also of singular matrices: det(A) times A's inverse^T."""
    scale = np.linalg.det(a)[..., None, None]
    inverses = np.linalg.inv(np.where(scale == 0, np.eye(a.shape[-1], dtype=a.dtype), a))
    condition = np.linalg.norm(a, 1, (-2, -1)) * np.linalg.norm(inverses, 1, (-2, -1))
    found: np.ndarray = inverses.swapaxes(-1, -2) * scale
    is_inexact = (scale[..., 0, 0] == 0) | (condition * np.finfo(a.dtype).eps ** 0.5 >= 1)
    if is_inexact.any():
        found[is_inexact] = _cofactors_of_singular(a[is_inexact])
    return found


def _cofactors_of_singular(a: np.ndarray) -> np.ndarray:
    """With A = U S V^T, they are det(U) det(V) U (prod of the other singular values) V^T."""
    u, s, vh = np.linalg.svd(a)
    others = np.broadcast_to(s[..., None, :], (*s.shape, s.shape[-1])).copy()
    places = np.arange(s.shape[-1])
    others[..., places, places] = 1
    sign = np.linalg.det(u) * np.linalg.det(vh)
    whole = (u * others.prod(-1)[..., None, :]) @ vh * sign[..., None, None]
    return np.asarray(whole, a.dtype)


def determinant(a: Tensor) -> Tensor:
    """The determinant of each square matrix."""
    is_expanded = _are_eliminated(a) and a._type.shape[-1] < _FEW_ROWS
    return _expanded(a) if is_expanded else _determinant(a)


@lapack("linalg.det", lambda g, a: g[..., None, None] * cofactors(a))
def _determinant(a: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.det(a))


@with_gradient(lambda g, a: g[..., None, None] * _minors(a))
def _expanded(a: Tensor) -> Tensor:
    """The determinant of matrices of up to three rows, along the first one."""
    return (a[..., 0, :] * _minors(a)[..., 0, :]).sum(-1)


def _minors(a: Tensor) -> Tensor:
    """Its derivative: the determinants without a row and a column, with their signs."""
    n = a._type.shape[-1]
    if n == 1:
        return ones_like(a)
    rows = [row.unbind(-1) for row in a.unbind(-2)]
    if n == 2:
        (p, q), (r, s) = rows
        return stack([stack([s, -r], -1), stack([-q, p], -1)], -2)
    # Those of the rows after each one, in turn: the cross product.
    after = [(rows[(i + 1) % n], rows[(i + 2) % n]) for i in range(n)]
    places = [((j + 1) % n, (j + 2) % n) for j in range(n)]
    found = [[p[j] * q[k] - p[k] * q[j] for j, k in places] for p, q in after]
    return stack([stack(row, -1) for row in found], -2)


def _of_sign_and_log_det(g: tuple[Tensor, Tensor], a: Tensor) -> Tensor:
    return matrix_transpose(inverse(a)) * g[1][..., None, None]


def sign_and_log_det(a: Tensor) -> tuple[Tensor, Tensor]:
    """The determinant's sign and the logarithm of its absolute value."""
    sign, log = (_pivots if _are_eliminated(a) else _sign_and_log_det)(a)
    return sign, log


@with_gradient(_of_sign_and_log_det, fixed=(0,))
def _pivots(a: Tensor) -> tuple[Tensor, Tensor]:
    upper, _, sign = _eliminated(a, None)
    pivots = stack([row[i] for i, row in enumerate(upper)], -1)
    return sign * pivots.sign().prod(-1), pivots.abs().log().sum(-1)


@lapack("linalg.slogdet", _of_sign_and_log_det, fixed=(0,))
def _sign_and_log_det(a: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.linalg.slogdet(a))


def _of_pseudo_inverse(g: Tensor, a: Tensor, y: Tensor) -> Tensor:
    """Reference: Golub and Pereyra, "The Differentiation of Pseudo-Inverses …", 1973."""
    outside = g.mT @ y @ y.mT
    inside = y.mT @ y @ g.mT
    return (outside - a @ y @ outside) + (inside - inside @ y @ a) - y.mT @ g @ y.mT


@lapack("linalg.pinv", _of_pseudo_inverse)
def pseudo_inverse(a: np.ndarray, rcond: float) -> np.ndarray:
    """Moore and Penrose's inverse; singular values below `rcond` times the largest count as 0."""
    return np.linalg.pinv(a, rcond)


def _of_cholesky(g: Tensor, y: Tensor) -> Tensor:
    """Reference: Murray, "Differentiation of the Cholesky Decomposition", 2016."""
    left = triangular_solution(y.mT, _mirrored(y.mT @ g) * 0.5, True, False)
    return matrix_transpose(triangular_solution(y.mT, left.mT, True, False))


@lapack("linalg.cholesky", _of_cholesky)
def cholesky(a: np.ndarray) -> np.ndarray:
    """The lower triangular L with L L^T = A, of which the lower triangle is read."""
    return np.linalg.cholesky(a)


def _mirrored(x: Tensor) -> Tensor:
    """The symmetric matrices with the lower triangles of these."""
    lower = tril(x, -1)
    upper = matrix_transpose(lower)
    return lower + upper + diag_embed(diagonal(x, dim1=-2, dim2=-1))


def _of_symmetric_eigen(g: Pair, y: tuple[Tensor, Tensor]) -> Tensor | None:
    (to_values, to_vectors), (values, vectors) = g, y
    inner = None if to_values is None else diag_embed(to_values)
    if to_vectors is not None:
        inner = _plus(inner, vectors.mT @ to_vectors * _inverse_gaps(values))
    return None if inner is None else vectors @ inner @ vectors.mT


@lapack("linalg.eigh", _of_symmetric_eigen, materialize=False)
def symmetric_eigen(a: np.ndarray, uplo: Any) -> tuple[np.ndarray, ...]:
    """Eigenvalues, ascending, and eigenvectors of symmetric matrices."""
    return tuple(np.linalg.eigh(a, uplo))


def _inverse_gaps(values: Tensor) -> Tensor:
    """1 / (values[j] - values[i]), 0 on the diagonal."""
    gaps = values[..., None, :] - values[..., :, None]
    same = eye(values._type.shape[-1], dtype=values.dtype) == 1
    return choose(same, 0.0, 1 / choose(same, 1.0, gaps))


def _of_singular_values(
    g: tuple[Tensor | None, ...], y: tuple[Tensor, Tensor, Tensor]
) -> Tensor | None:
    """Reference: Townsend, "Differentiating the Singular Value Decomposition", 2016."""
    (to_u, to_s, to_vh), (u, s, vh) = g, y
    rank = s._type.shape[-1]
    u, vh = u[..., :, :rank], vh[..., :rank, :]
    inner = None if to_s is None else diag_embed(to_s)
    gaps = _inverse_gaps(s * s)
    parts = []
    if to_u is not None:
        to_u = to_u[..., :, :rank]
        turned = u.mT @ to_u
        inner = _plus(inner, gaps * (turned - turned.mT) * s[..., None, :])
        if u._type.shape[-2] > rank:
            parts.append(((to_u - u @ turned) / s[..., None, :]) @ vh)
    if to_vh is not None:
        to_vh = to_vh[..., :rank, :]
        turned = vh @ to_vh.mT
        inner = _plus(inner, s[..., :, None] * (gaps * (turned - turned.mT)))
        if vh._type.shape[-1] > rank:
            parts.append(u @ ((to_vh - turned.mT @ vh) / s[..., :, None]))
    whole = None if inner is None else u @ inner @ vh
    for part in parts:
        whole = _plus(whole, part)
    return whole


@lapack("linalg.svd", _of_singular_values, materialize=False)
def singular_values(a: np.ndarray, is_full: bool) -> tuple[np.ndarray, ...]:
    """U, S and V^T of the singular value decomposition, reduced or with full bases."""
    return tuple(np.linalg.svd(a, is_full))


def _plus(total: Tensor | None, part: Tensor) -> Tensor:
    return part if total is None else total + part


def _of_qr(g: tuple[Tensor, Tensor], a: Tensor, y: tuple[Tensor, Tensor]) -> Tensor:
    """Reference: Walter and Lehmann, "Algorithmic Differentiation of Linear Algebra …", 2018."""
    (to_q, to_r), (q, r) = g, y
    rows, columns = r._type.shape[-2:]
    if rows >= columns:
        return _of_tall_qr(q, r, to_q, to_r)
    to_first, to_rest = to_r[..., :, :rows], to_r[..., :, rows:]
    to_q = to_q + a[..., :, rows:] @ to_rest.mT
    square = _of_tall_qr(q, r[..., :, :rows], to_q, to_first)
    return cat([square, q @ to_rest], -1)


def _of_tall_qr(q: Tensor, r: Tensor, to_q: Tensor, to_r: Tensor) -> Tensor:
    """The cotangent of a matrix of full column rank, by those of its Q and R."""
    symmetric = _mirrored(r @ to_r.mT - to_q.mT @ q)
    found = triangular_solution(r, (to_q + q @ symmetric).mT, True, False)
    return matrix_transpose(found)


@lapack("linalg.qr", _of_qr)
def orthogonal_triangular(a: np.ndarray, mode: str) -> tuple[np.ndarray, ...]:
    """Q and R of the QR decomposition, reduced or complete."""
    return tuple(np.linalg.qr(a, "complete" if mode == "complete" else "reduced"))


def _of_exponential(g: Tensor, a: Tensor) -> Tensor:
    """The upper right block of the exponential of [[A^T, G], [0, A^T]]."""
    size = a._type.shape[-1]
    above, below = cat([a.mT, g], -1), cat([a.mT * 0, a.mT], -1)
    return matrix_exponential(cat([above, below], -2))[..., :size, size:]


# Reference: Higham, "The Scaling and Squaring Method for the Matrix Exponential Revisited", 2005.
_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0,
    960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_LARGEST_NORM = 5.37


@lapack("linalg.matrix_exp", _of_exponential)
def matrix_exponential(a: np.ndarray) -> np.ndarray:
    """The exponential of square matrices, by scaling, a Pade quotient and squaring."""
    x = np.asarray(a, np.float64)
    norm = float(np.abs(x).sum(-2).max(initial=0))
    halvings = max(0, int(np.ceil(np.log2(norm / _LARGEST_NORM)))) if 0 < norm < np.inf else 0
    x = x / 2.0**halvings
    identity = np.eye(x.shape[-1])
    odd, even, power = _PADE[1] * identity, _PADE[0] * identity, identity
    for k in range(2, 14, 2):
        power = power @ x @ x
        even = even + _PADE[k] * power
        odd = odd + _PADE[k + 1] * power
    odd = x @ odd
    result = np.linalg.solve(even - odd, even + odd)
    for _ in range(halvings):
        result = result @ result
    return np.asarray(result, a.dtype)


def _of_lu(g: tuple[Tensor, ...], y: tuple[Tensor, ...]) -> Tensor:
    """The derivative of an LU factorization with the same order of the rows.

    Reference: de Hoog, Anderssen and Lukas, "Differentiation of matrix functionals using triangular
    factorization", 2011.
    """
    to_packed, (packed, _, order) = g[0], y
    lower, upper = unpacked(packed)
    rows, columns = packed._type.shape[-2:]
    count = min(rows, columns)
    top, head = lower[..., :count, :], upper[..., :, :count]
    to_lower, to_upper = tril(to_packed[..., :, :count], -1), triu(to_packed[..., :count, :])
    below = tril(top.mT @ to_lower[..., :count, :], -1)
    above = triu(to_upper[..., :, :count] @ head.mT)
    if columns > rows:
        below = below - tril(to_upper[..., :, count:] @ upper[..., :, count:].mT, -1)
    if rows > columns:
        above = above - triu(lower[..., count:, :].mT @ to_lower[..., count:, :])
    inner = _left(top, _right(below + above, head))
    if columns > rows:
        inner = cat([inner, _left(top, to_upper[..., :, count:])], -1)
    if rows > columns:
        inner = cat([inner, _right(to_lower[..., count:, :], head)], -2)
    return rows_at(inner, argsort(order, -1))


def _left(lower: Tensor, x: Tensor) -> Tensor:
    """L^-T X."""
    return triangular_solution(lower.mT, x, True, True)


def _right(x: Tensor, upper: Tensor) -> Tensor:
    """X U^-T."""
    return matrix_transpose(triangular_solution(upper, matrix_transpose(x), True, False))


def unpacked(packed: Tensor) -> tuple[Tensor, Tensor]:
    """L, with ones on its diagonal, and U."""
    rows, columns = packed._type.shape[-2:]
    count = min(rows, columns)
    lower = tril(packed[..., :, :count], -1) + eye(rows, count, dtype=packed.dtype)
    return lower, triu(packed[..., :count, :])


def rows_at(x: Tensor, order: Tensor) -> Tensor:
    """The rows of matrices in another order."""
    return gather(x, -2, order[..., None].expand(*order._type.shape, x._type.shape[-1]))


@lapack("linalg.lu_factor", _of_lu, fixed=(1, 2))
def lu_factors(a: np.ndarray, refuses_singular: bool) -> tuple[np.ndarray, ...]:
    """(packed, pivots, order) with A[order] = L U: L below packed's diagonal, U on and above it.

    pivots: int32, from 1: row i was swapped with row pivots[i].
    """
    *batch, rows, columns = a.shape
    packed = np.array(a, order="C")
    pivots = _eliminate(packed.reshape(prod(batch), rows, columns))
    pivots = pivots.reshape(*batch, min(rows, columns))
    zeros = np.argwhere(np.diagonal(packed, axis1=-2, axis2=-1) == 0)
    if refuses_singular and len(zeros):
        place = zeros[0, -1]
        raise np.linalg.LinAlgError(f"U[{place}, {place}] is zero: Singular matrix")
    return packed, pivots, _swapped(pivots, rows)


def _eliminate(a: np.ndarray) -> np.ndarray:
    """Gaussian elimination of matrices (batch, rows, columns) in place; the pivots.

    A column is finished, then a row, each by a product with what is there of L and U.

    Reference: Golub and Van Loan, "Matrix Computations", section 3.2, on Crout's method.
    """
    batch, rows, columns = a.shape
    each, count = np.arange(batch), min(rows, columns)
    pivots = np.empty((batch, count), np.int32)
    for k in range(count):
        a[:, k:, k] -= (a[:, k:, :k] @ a[:, :k, k, None])[..., 0]
        chosen = k + np.abs(a[:, k:, k]).argmax(-1)
        pivots[:, k] = chosen + 1
        a[each, k], a[each, chosen] = a[each, chosen], a[each, k]
        a[:, k, k + 1 :] -= (a[:, k, None, :k] @ a[:, :k, k + 1 :])[:, 0]
        below, head = a[:, k + 1 :, k], a[:, k, k, None]
        np.divide(below, head, out=below, where=head != 0)
    return pivots


def _swapped(pivots: np.ndarray, rows: int) -> np.ndarray:
    """The order of `rows` rows after LAPACK's pivots, each of which swaps two."""
    *batch, count = pivots.shape
    orders = np.tile(np.arange(rows), (prod(batch), 1)).tolist()
    for order, swaps in zip(orders, pivots.reshape(prod(batch), count).tolist(), strict=True):
        for i, pivot in enumerate(swaps):
            order[i], order[pivot - 1] = order[pivot - 1], order[i]
    return np.array(orders, np.int64).reshape(*batch, rows)


@lapack("linalg.lu_solve", None, fixed=(0,))
def order_of(pivots: np.ndarray, rows: int) -> np.ndarray:
    """The order of `rows` rows that LAPACK's pivots mean."""
    wrong = pivots[(pivots <= np.arange(pivots.shape[-1])) | (pivots > rows)]
    if wrong.size:
        raise LinAlgError(f"lu_solve: pivots must be between 1 and {rows}, not {wrong[0]}")
    return _swapped(pivots, rows)
