"""The types of results that are several tensors, named after their functions, as in PyTorch."""

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


@like(ValuesAndIndices)
class sort(ValuesAndIndices):
    """What `sort` returns: the elements in order, and where each of them stood before.

    >>> lucid.sort(lucid.tensor([3.0, 1.0, 2.0]))
    lucid.return_types.sort(
    values=tensor([1., 2., 3.]),
    indices=tensor([1, 2, 0]))
    """

    __slots__ = ()


@like(ValuesAndIndices)
class topk(ValuesAndIndices):
    """What `topk` returns: the k largest or smallest elements along an axis, and their places.

    >>> lucid.topk(lucid.tensor([3.0, 1.0, 2.0]), 2)
    lucid.return_types.topk(
    values=tensor([3., 2.]),
    indices=tensor([0, 2]))
    """

    __slots__ = ()


@like(ValuesAndIndices)
class max(ValuesAndIndices):
    """What `max` returns along an axis: the largest elements, and where the first of equals stood.

    >>> lucid.max(lucid.tensor([[1.0, 3.0], [4.0, 2.0]]), 1)
    lucid.return_types.max(
    values=tensor([3., 4.]),
    indices=tensor([1, 0]))
    """

    __slots__ = ()


@like(ValuesAndIndices)
class min(ValuesAndIndices):
    """What `min` returns along an axis: the smallest elements, and where the first of equals stood.

    >>> lucid.min(lucid.tensor([[1.0, 3.0], [4.0, 2.0]]), 1)
    lucid.return_types.min(
    values=tensor([1., 2.]),
    indices=tensor([0, 1]))
    """

    __slots__ = ()


@like(ValuesAndIndices)
class median(ValuesAndIndices):
    """What `median` returns along an axis: the middle elements, and where they stood.

    Of an even number it is the lower of the two in the middle.

    >>> lucid.median(lucid.tensor([3.0, 1.0, 2.0, 4.0]), 0)
    lucid.return_types.median(
    values=tensor(2.),
    indices=tensor(2))
    """

    __slots__ = ()


@like(ValuesAndIndices)
class nanmedian(ValuesAndIndices):
    """What `nanmedian` returns along an axis: the middle elements besides NaN, and their places.

    >>> lucid.nanmedian(lucid.tensor([3.0, float("nan"), 2.0, 4.0]), 0)
    lucid.return_types.nanmedian(
    values=tensor(3.),
    indices=tensor(0))
    """

    __slots__ = ()


@like(ValuesAndIndices)
class mode(ValuesAndIndices):
    """What `mode` returns: the most frequent elements along an axis, and where they stood.

    >>> lucid.mode(lucid.tensor([1.0, 2.0, 2.0]))
    lucid.return_types.mode(
    values=tensor(2.),
    indices=tensor(2))
    """

    __slots__ = ()


@like(nanmedian)
class kthvalue(ValuesAndIndices):
    """What `kthvalue` returns: the k-th smallest elements along an axis, and where they stood.

    >>> lucid.kthvalue(lucid.tensor([3.0, 1.0, 2.0]), 2)
    lucid.return_types.kthvalue(
    values=tensor(2.),
    indices=tensor(2))
    """

    __slots__ = ()


@like(ValuesAndIndices)
class cummax(ValuesAndIndices):
    """What `cummax` returns: the largest elements so far along an axis, and where they stood.

    >>> lucid.cummax(lucid.tensor([1.0, 3.0, 2.0]), 0)
    lucid.return_types.cummax(
    values=tensor([1., 3., 3.]),
    indices=tensor([0, 1, 1]))
    """

    __slots__ = ()


@like(ValuesAndIndices)
class cummin(ValuesAndIndices):
    """What `cummin` returns: the smallest elements so far along an axis, and where they stood.

    >>> lucid.cummin(lucid.tensor([3.0, 1.0, 2.0]), 0)
    lucid.return_types.cummin(
    values=tensor([3., 1., 1.]),
    indices=tensor([0, 1, 1]))
    """

    __slots__ = ()


class aminmax(NamedTuple):
    """What `aminmax` returns: the smallest and the largest elements, of all or along an axis.

    Args:
        min: the smallest.
        max: the largest, of the same shape.

    >>> lucid.aminmax(lucid.tensor([3.0, 1.0, 2.0]))
    lucid.return_types.aminmax(
    min=tensor(1.),
    max=tensor(3.))
    """

    min: Tensor
    max: Tensor


class linalg_slogdet(NamedTuple):
    """What `linalg.slogdet` returns: determinants as sign and logarithm.

    Shapes: those of the batch, without the matrices' two axes.

    Args:
        sign: -1, 0 or 1, of the matrices' dtype.
        logabsdet: the logarithm of the absolute value; -inf of singular matrices.

    >>> a = lucid.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> lucid.return_types.linalg_slogdet(*lucid.linalg.slogdet(a)).sign
    tensor(1.)
    """

    sign: Tensor
    logabsdet: Tensor


class linalg_eigh(NamedTuple):
    """What `linalg.eigh` returns: the eigenvalues and eigenvectors of symmetric matrices.

    Args:
        eigenvalues: (…, n), in ascending order.
        eigenvectors: (…, n, n), one in each column, of length 1.

    >>> a = lucid.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> lucid.return_types.linalg_eigh(*lucid.linalg.eigh(a)).eigenvalues
    tensor([1.4384, 5.5616])
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


class linalg_svd(NamedTuple):
    """What `linalg.svd` returns: A = U diag(S) Vh, with orthonormal columns of U and rows of Vh.

    Args:
        U: (…, m, m), or (…, m, k) of the reduced form, where k is the lesser of m and n.
        S: (…, k), the singular values in descending order.
        Vh: (…, n, n), or (…, k, n).

    >>> a = lucid.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> lucid.return_types.linalg_svd(*lucid.linalg.svd(a)).S
    tensor([5.5616, 1.4384])
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

    >>> a = lucid.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> lucid.return_types.linalg_qr(*lucid.linalg.qr(a)).R
    tensor([[-4.4721, -3.1305],
            [ 0.0000,  1.7889]])
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

    >>> a = lucid.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> lucid.return_types.linalg_lstsq(*lucid.linalg.lstsq(a, lucid.ones(2, 1))).solution
    tensor([[0.1250],
            [0.2500]])
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

    >>> a = lucid.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> lucid.return_types.linalg_inv_ex(*lucid.linalg.inv_ex(a)).info
    tensor(0, dtype=lucid.int32)
    """

    inverse: Tensor
    info: Tensor


class linalg_cholesky_ex(NamedTuple):
    """What `linalg.cholesky_ex` returns: Cholesky factors, and which matrices have one.

    Args:
        L: (…, n, n), lower triangular, or upper where that was asked for; NaN where a matrix isn't
            positive definite.
        info: (…), i32: 0 for each matrix that has a factor, 1 for others.

    >>> a = lucid.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> lucid.return_types.linalg_cholesky_ex(*lucid.linalg.cholesky_ex(a)).L
    tensor([[2.0000, 0.0000],
            [1.0000, 1.4142]])
    """

    L: Tensor
    info: Tensor


class linalg_lu(NamedTuple):
    """What `linalg.lu` returns: A = P L U, for matrices (…, m, n) with the lesser k of m and n.

    Args:
        P: (…, m, m), a permutation.
        L: (…, m, k), lower triangular with a diagonal of 1.
        U: (…, k, n), upper triangular.

    >>> a = lucid.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> lucid.return_types.linalg_lu(*lucid.linalg.lu(a)).U
    tensor([[4., 2.],
            [0., 2.]])
    """

    P: Tensor
    L: Tensor
    U: Tensor


class linalg_lu_factor(NamedTuple):
    """What `linalg.lu_factor` returns: L and U in one matrix, and LAPACK's pivots.

    Args:
        LU: (…, m, n): U is the upper triangle, L what is below it, with an implied diagonal of 1.
        pivots: (…, k), i32: row i was exchanged with row pivots[i] - 1, in turn.

    >>> a = lucid.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> lucid.return_types.linalg_lu_factor(*lucid.linalg.lu_factor(a)).pivots
    tensor([1, 2], dtype=lucid.int32)
    """

    LU: Tensor
    pivots: Tensor


@like(linalg_lu_factor)
class linalg_lu_factor_ex(NamedTuple):
    """What `linalg.lu_factor_ex` returns: L and U in one matrix, LAPACK's pivots, and info.

    Args:
        info: (…), i32: the first zero on the diagonal of U, counted from 1; 0 where there is none.

    >>> a = lucid.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> lucid.return_types.linalg_lu_factor_ex(*lucid.linalg.lu_factor_ex(a)).info
    tensor(0, dtype=lucid.int32)
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

    >>> a = lucid.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> lucid.return_types.svd(*lucid.svd(a)).S
    tensor([5.5616, 1.4384])
    """

    U: Tensor
    S: Tensor
    V: Tensor


@like(linalg_qr)
class qr(NamedTuple):
    """What `qr` returns: A = QR, with orthonormal columns of Q and an upper triangular R.

    Args:
        Q: (…, m, k), where k is the lesser of m and n, or m in the complete form.

    >>> a = lucid.tensor([[4.0, 2.0], [2.0, 3.0]])
    >>> lucid.return_types.qr(*lucid.qr(a)).R
    tensor([[-4.4721, -3.1305],
            [ 0.0000,  1.7889]])
    """

    Q: Tensor
    R: Tensor


class frexp(NamedTuple):
    """What `frexp` returns: `mantissa * 2 ** exponent` is the input.

    Args:
        mantissa: from 0.5 up to 1, with the input's sign.
        exponent: the power of 2, i32.

    >>> lucid.return_types.frexp(*lucid.frexp(lucid.tensor([6.0]))).exponent
    tensor([3], dtype=lucid.int32)
    """

    mantissa: Tensor
    exponent: Tensor


class histogram(NamedTuple):
    """What `histogram` returns: how much is in each bin, and the edges between the bins.

    Args:
        hist: (bins,).
        bin_edges: (bins + 1,).

    >>> lucid.return_types.histogram(*lucid.histogram(lucid.tensor([1.0, 2.0]), 2)).bin_edges
    tensor([1.0000, 1.5000, 2.0000])
    """

    hist: Tensor
    bin_edges: Tensor


for _kind in [value for value in vars().values() if hasattr(value, "_fields")]:
    _kind.__repr__ = _shown
