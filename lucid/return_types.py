"""The types of results that are several tensors, named after their functions, as in PyTorch.

Their docstrings show the functions' examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from lucid.docstrings import like

if TYPE_CHECKING:
    from lucid.tensor.tensor import Tensor


def _shown(result: Any) -> str:
    parts = zip(result._fields, result, strict=True)
    listed = ",\n".join(f"{name}={value!r}" for name, value in parts)
    return f"lucid.return_types.{type(result).__name__}(\n{listed})"


class ValuesAndIndices(NamedTuple):
    """Elements, and where they stood: the base of what `sort`, `max` and others return.

    A named tuple: both parts have names, and it unpacks.

    Args:
        values: the elements that were found.
        indices: where they stood along the axis, i64, of the same shape.

    >>> found = lucid.return_types.ValuesAndIndices(*lucid.sort(lucid.tensor([3.0, 1.0, 2.0])))
    >>> found.indices
    tensor([1, 2, 0])
    """

    values: Tensor
    indices: Tensor


Kind = TypeVar("Kind", bound=ValuesAndIndices)


class sort(ValuesAndIndices):
    """What `sort` returns: the elements in order, and where each of them stood before."""

    __slots__ = ()


class topk(ValuesAndIndices):
    """What `topk` returns: the k largest or smallest elements along an axis, and their places."""

    __slots__ = ()


class max(ValuesAndIndices):
    """What `max` returns along an axis: the largest elements, and where the first stood."""

    __slots__ = ()


class min(ValuesAndIndices):
    """What `min` returns along an axis: the smallest elements, and where the first stood."""

    __slots__ = ()


class median(ValuesAndIndices):
    """What `median` returns along an axis: the middle elements, and where they stood.

    Of an even number it is the lower of the two in the middle.
    """

    __slots__ = ()


class nanmedian(ValuesAndIndices):
    """What `nanmedian` returns along an axis: the middle elements besides NaN, and their places."""

    __slots__ = ()


class mode(ValuesAndIndices):
    """What `mode` returns: the most frequent elements along an axis, and where they stood."""

    __slots__ = ()


class kthvalue(ValuesAndIndices):
    """What `kthvalue` returns: the k-th smallest elements along an axis, and where they stood."""

    __slots__ = ()


class cummax(ValuesAndIndices):
    """What `cummax` returns: the largest elements so far along an axis, and where they stood."""

    __slots__ = ()


class cummin(ValuesAndIndices):
    """What `cummin` returns: the smallest elements so far along an axis, and where they stood."""

    __slots__ = ()


class aminmax(NamedTuple):
    """What `aminmax` returns: the smallest and the largest elements, of all or along an axis.

    Args:
        min: the smallest.
        max: the largest, of the same shape.
    """

    min: Tensor
    max: Tensor


class linalg_slogdet(NamedTuple):
    """What `linalg.slogdet` returns: determinants as sign and logarithm.

    Shapes: those of the batch, without the matrices' two axes.

    Args:
        sign: -1, 0 or 1, of the matrices' dtype.
        logabsdet: the logarithm of the absolute value; -inf of singular matrices.
    """

    sign: Tensor
    logabsdet: Tensor


class linalg_eigh(NamedTuple):
    """What `linalg.eigh` returns: the eigenvalues and eigenvectors of symmetric matrices.

    Args:
        eigenvalues: (…, n), in ascending order.
        eigenvectors: (…, n, n), one in each column, of length 1.
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


class linalg_svd(NamedTuple):
    """What `linalg.svd` returns: A = U diag(S) Vh, with orthonormal columns of U and rows of Vh.

    Args:
        U: (…, m, m), or (…, m, k) of the reduced form, where k is the lesser of m and n.
        S: (…, k), the singular values in descending order.
        Vh: (…, n, n), or (…, k, n).
    """

    U: Tensor
    S: Tensor
    Vh: Tensor


class linalg_qr(NamedTuple):
    """What `linalg.qr` returns: A = QR, with orthonormal columns of Q and an upper triangular R.

    Args:
        Q: (…, m, k), where k is the lesser of m and n, or m in the complete form; empty in the form
            without it.
        R: (…, k, n).
    """

    Q: Tensor
    R: Tensor


class linalg_lstsq(NamedTuple):
    """What `linalg.lstsq` returns; rank and singular values are empty.

    Shapes: A of (…, m, n) and B of (…, m, k).

    Args:
        solution: (…, n, k), the X of least norm that makes the norm of A X - B least.
        residuals: the sums of squared errors of each column where m > n, else empty.
        rank: empty, i64.
        singular_values: empty, as the rank.
    """

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class linalg_inv_ex(NamedTuple):
    """What `linalg.inv_ex` returns: inverses, and which matrices have one.

    Args:
        inverse: (…, n, n); NaN where a matrix is singular.
        info: (…), i32: 0 for each matrix that has an inverse, 1 for others.
    """

    inverse: Tensor
    info: Tensor


class linalg_solve_ex(NamedTuple):
    """What `linalg.solve_ex` returns: solutions, and which matrices have an inverse.

    Args:
        result: of the shape of B; NaN where a matrix is singular.
        info: (…), i32: 0 for each matrix that has an inverse, 1 for others.
    """

    result: Tensor
    info: Tensor


class linalg_cholesky_ex(NamedTuple):
    """What `linalg.cholesky_ex` returns: Cholesky factors, and which matrices have one.

    Args:
        L: (…, n, n), lower triangular, or upper where that was asked for; NaN where a matrix isn't
            positive definite.
        info: (…), i32: 0 for each matrix that has a factor, 1 for others.
    """

    L: Tensor
    info: Tensor


class linalg_lu(NamedTuple):
    """What `linalg.lu` returns: A = P L U, for matrices (…, m, n) with the lesser k of m and n.

    Args:
        P: (…, m, m), a permutation.
        L: (…, m, k), lower triangular with a diagonal of 1.
        U: (…, k, n), upper triangular.
    """

    P: Tensor
    L: Tensor
    U: Tensor


class linalg_lu_factor(NamedTuple):
    """What `linalg.lu_factor` returns: L and U in one matrix, and LAPACK's pivots.

    Args:
        LU: (…, m, n): U is the upper triangle, L what is below it, with an implied diagonal of 1.
        pivots: (…, k), i32: row i was exchanged with row pivots[i] - 1, in turn.
    """

    LU: Tensor
    pivots: Tensor


@like(linalg_lu_factor)
class linalg_lu_factor_ex(NamedTuple):
    """What `linalg.lu_factor_ex` returns: L and U in one matrix, LAPACK's pivots, and info.

    Args:
        info: (…), i32: the first zero on the diagonal of U, counted from 1; 0 where there is none.
    """

    LU: Tensor
    pivots: Tensor
    info: Tensor


class svd(NamedTuple):
    """What `svd` and `svd_lowrank` return: A = U diag(S) V^T; `linalg.svd` returns V^T itself.

    Args:
        U: (…, m, k), with orthonormal columns, or square with `some=False`.
        S: (…, k), the singular values in descending order.
        V: (…, n, k), with orthonormal columns, or square as well.
    """

    U: Tensor
    S: Tensor
    V: Tensor


@like(linalg_qr)
class qr(NamedTuple):
    """What `qr` returns: A = QR, with orthonormal columns of Q and an upper triangular R.

    Args:
        Q: (…, m, k), where k is the lesser of m and n, or m in the complete form.
    """

    Q: Tensor
    R: Tensor


class frexp(NamedTuple):
    """What `frexp` returns: `mantissa * 2 ** exponent` is the input.

    Args:
        mantissa: from 0.5 up to 1, with the input's sign.
        exponent: the power of 2, i32.
    """

    mantissa: Tensor
    exponent: Tensor


class histogram(NamedTuple):
    """What `histogram` returns: how much is in each bin, and the edges between the bins.

    Args:
        hist: (bins,).
        bin_edges: (bins + 1,).
    """

    hist: Tensor
    bin_edges: Tensor


for _kind in [value for value in vars().values() if hasattr(value, "_fields")]:
    _kind.__repr__ = _shown
    if ValuesAndIndices in _kind.__bases__:
        like(ValuesAndIndices)(_kind)
