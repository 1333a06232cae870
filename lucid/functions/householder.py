"""Products of reflections, as LAPACK keeps the Q of a QR decomposition."""

from __future__ import annotations

from lucid.functions.arguments import listed
from lucid.functions.creation import eye
from lucid.functions.joining import diag_embed, tril, triu
from lucid.functions.lapack import matrices
from lucid.functions.linalg import matmul
from lucid.functions.solving import SolveTriangular
from lucid.functions.tensors import Tensor
from lucid.ir.errors import DTypeError, ShapeError


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

    Example:
        >>> a = lucid.tensor([[1.0], [1.0]])
        >>> lucid.linalg.householder_product(a, lucid.tensor([1.0]))
        tensor([[ 0.],
                [-1.]])
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
    t: Tensor = SolveTriangular.apply(inner, diag_embed(tau), True, True)
    return identity - matmul(matmul(v, t), v[..., :columns, :].mT)
