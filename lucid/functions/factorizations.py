"""Cholesky, QR, eigenvalues of symmetric matrices, singular values, and the exponential."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid.functions.creation import eye
from lucid.functions.elementwise import choose
from lucid.functions.joining import cat, diag_embed, diagonal, tril
from lucid.functions.lapack import OfNumPy, call
from lucid.functions.shape import matrix_transpose
from lucid.functions.solving import SolveTriangular
from lucid.functions.tensors import Tensor


class Cholesky(OfNumPy):
    """The lower triangular L with L L^T = A, of which the lower triangle is read.

    Reference: Murray, "Differentiation of the Cholesky Decomposition", 2016.
    """

    @staticmethod
    def forward(a: Tensor) -> Tensor:
        factor: Tensor = call("cholesky", np.linalg.cholesky, a)
        return factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (factor,) = ctx.saved_tensors
        inner = _mirrored(factor.mT @ g) * 0.5
        left: Tensor = SolveTriangular.apply(factor.mT, inner, True, False)
        right: Tensor = SolveTriangular.apply(factor.mT, left.mT, True, False)
        return matrix_transpose(right)


def _mirrored(x: Tensor) -> Tensor:
    """The symmetric matrices with the lower triangles of these."""
    lower = tril(x, -1)
    upper = matrix_transpose(lower)
    return lower + upper + diag_embed(diagonal(x, dim1=-2, dim2=-1))


class SymmetricEigen(OfNumPy):
    """Eigenvalues, ascending, and eigenvectors of symmetric matrices."""

    @staticmethod
    def forward(a: Tensor, uplo: Any) -> tuple[Tensor, Tensor]:
        values, vectors = call("eigh", lambda a: tuple(np.linalg.eigh(a, uplo)), a)
        return values, vectors

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        values, vectors = output
        ctx.save_for_backward(values, vectors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, to_values: Tensor | None, to_vectors: Tensor | None
    ) -> tuple[Tensor | None, None]:
        values, vectors = ctx.saved_tensors
        inner = None if to_values is None else diag_embed(to_values)
        if to_vectors is not None:
            turned = vectors.mT @ to_vectors * _inverse_gaps(values)
            inner = turned if inner is None else inner + turned
        return (None if inner is None else vectors @ inner @ vectors.mT), None


def _inverse_gaps(values: Tensor) -> Tensor:
    """1 / (values[j] - values[i]), 0 on the diagonal."""
    gaps = values[..., None, :] - values[..., :, None]
    same = eye(values._type.shape[-1], dtype=values.dtype) == 1
    return choose(same, 0.0, 1 / choose(same, 1.0, gaps))


class SingularValues(OfNumPy):
    """U, S and V^T of the singular value decomposition, reduced or with full bases.

    Reference: Townsend, "Differentiating the Singular Value Decomposition", 2016.
    """

    @staticmethod
    def forward(a: Tensor, is_full: bool) -> tuple[Tensor, Tensor, Tensor]:
        u, s, vh = call("svd", lambda a: tuple(np.linalg.svd(a, is_full)), a)
        return u, s, vh

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        u, s, vh = output
        ctx.save_for_backward(u, s, vh)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, to_u: Tensor | None, to_s: Tensor | None, to_vh: Tensor | None
    ) -> tuple[Tensor | None, None]:
        u, s, vh = ctx.saved_tensors
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
        return whole, None


def _plus(total: Tensor | None, part: Tensor) -> Tensor:
    return part if total is None else total + part


class OrthogonalTriangular(OfNumPy):
    """Q and R of the QR decomposition, reduced or complete.

    Reference: Walter and Lehmann, "Algorithmic Differentiation of Linear Algebra Functions", 2018.
    """

    @staticmethod
    def forward(a: Tensor, mode: str) -> tuple[Tensor, Tensor]:
        q, r = call("qr", lambda a: _qr(a, mode), a)
        return q, r

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        a, mode = inputs
        q, r = output
        ctx.save_for_backward(a, q, r)
        ctx.mode = mode

    @staticmethod
    def backward(ctx: Any, to_q: Tensor, to_r: Tensor) -> tuple[Tensor, None]:
        a, q, r = ctx.saved_tensors
        rows, columns = r._type.shape[-2:]
        if rows >= columns:
            return _qr_vjp(q, r, to_q, to_r), None
        rest = a[..., :, rows:]
        to_first, to_rest = to_r[..., :, :rows], to_r[..., :, rows:]
        square = _qr_vjp(q, r[..., :, :rows], to_q + rest @ to_rest.mT, to_first)
        return cat([square, q @ to_rest], -1), None


def _qr_vjp(q: Tensor, r: Tensor, to_q: Tensor, to_r: Tensor) -> Tensor:
    """The cotangent of a matrix of full column rank, by those of its Q and R."""
    symmetric = _mirrored(r @ to_r.mT - to_q.mT @ q)
    found: Tensor = SolveTriangular.apply(r, (to_q + q @ symmetric).mT, True, False)
    return matrix_transpose(found)


def _qr(a: np.ndarray, mode: str) -> tuple[np.ndarray, np.ndarray]:
    q, r = np.linalg.qr(a, "complete" if mode == "complete" else "reduced")
    return q, r


class MatrixExponential(OfNumPy):
    """The exponential of square matrices, by scaling, a Pade quotient and squaring."""

    @staticmethod
    def forward(a: Tensor) -> Tensor:
        power: Tensor = call("matrix_exp", _exponential, a)
        return power

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        (a,) = inputs
        ctx.save_for_backward(a)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        """The upper right block of the exponential of [[A^T, G], [0, A^T]]."""
        (a,) = ctx.saved_tensors
        size = a._type.shape[-1]
        above, below = cat([a.mT, g], -1), cat([a.mT * 0, a.mT], -1)
        both: Tensor = MatrixExponential.apply(cat([above, below], -2))
        return both[..., :size, size:]


# Reference: Higham, "The Scaling and Squaring Method for the Matrix Exponential Revisited", 2005.
_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0,
    960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_LARGEST_NORM = 5.37


def _exponential(a: np.ndarray) -> np.ndarray:
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
