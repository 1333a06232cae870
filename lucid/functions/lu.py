"""The LU factorization with partial pivoting, packed as LAPACK's `getrf` returns it."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid.functions.creation import eye
from lucid.functions.gathering import gather
from lucid.functions.joining import cat, tril, triu
from lucid.functions.lapack import LinAlgError, OfNumPy, call
from lucid.functions.shape import matrix_transpose
from lucid.functions.solving import SolveTriangular
from lucid.functions.sorting import argsort
from lucid.functions.tensors import Tensor


class Factor(OfNumPy):
    """(packed, pivots, order) with A[order] = L U: L below packed's diagonal, U on and above it.

    pivots: int32, from 1: row i was swapped with row pivots[i]. The derivatives are those of an
    LU factorization with the same order.
    Reference: de Hoog, Anderssen and Lukas, "Differentiation of matrix functionals using triangular
    factorization", 2011.
    """

    @staticmethod
    def forward(a: Tensor, refuses_singular: bool) -> tuple[Tensor, Tensor, Tensor]:
        found = call("lu_factor", lambda a: _factored(a, refuses_singular), a)
        packed, pivots, order = found
        return packed, pivots, order

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        packed, pivots, order = output
        ctx.mark_non_differentiable(pivots, order)
        ctx.save_for_backward(packed, order)

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor, None]:
        packed, order = ctx.saved_tensors
        lower, upper = unpacked(packed)
        rows, columns = packed._type.shape[-2:]
        count = min(rows, columns)
        top, head = lower[..., :count, :], upper[..., :, :count]
        to_lower, to_upper = tril(g[..., :, :count], -1), triu(g[..., :count, :])
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
        return rows_at(inner, argsort(order, -1)), None


def _left(lower: Tensor, x: Tensor) -> Tensor:
    """L^-T X."""
    found: Tensor = SolveTriangular.apply(lower.mT, x, True, True)
    return found


def _right(x: Tensor, upper: Tensor) -> Tensor:
    """X U^-T."""
    found: Tensor = SolveTriangular.apply(upper, matrix_transpose(x), True, False)
    return matrix_transpose(found)


def unpacked(packed: Tensor) -> tuple[Tensor, Tensor]:
    """L, with ones on its diagonal, and U."""
    rows, columns = packed._type.shape[-2:]
    count = min(rows, columns)
    lower = tril(packed[..., :, :count], -1) + eye(rows, count, dtype=packed.dtype)
    return lower, triu(packed[..., :count, :])


def rows_at(x: Tensor, order: Tensor) -> Tensor:
    """The rows of matrices in another order."""
    return gather(x, -2, order[..., None].expand(*order._type.shape, x._type.shape[-1]))


def _factored(a: np.ndarray, refuses_singular: bool) -> tuple[np.ndarray, ...]:
    rows, columns = a.shape[-2:]
    count, batch = min(rows, columns), a.shape[:-2]
    packed = np.array(a, order="C")
    pivots = np.empty((*batch, count), np.int32)
    order = np.empty((*batch, rows), np.int64)
    for place in np.ndindex(*batch):
        pivots[place], order[place] = _eliminate(packed[place])
        zeros = np.flatnonzero(np.diagonal(packed[place]) == 0)
        if refuses_singular and zeros.size:
            raise np.linalg.LinAlgError(f"U[{zeros[0]}, {zeros[0]}] is zero: Singular matrix")
    return packed, pivots, order


def _eliminate(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian elimination of one matrix in place; what was swapped, and the rows' order."""
    rows, count = a.shape[0], min(a.shape)
    pivots, order = np.empty(count, np.int32), np.arange(rows)
    for k in range(count):
        chosen = k + int(np.argmax(np.abs(a[k:, k])))
        pivots[k] = chosen + 1
        if chosen != k:
            a[[k, chosen]] = a[[chosen, k]]
            order[[k, chosen]] = order[[chosen, k]]
        if a[k, k] != 0:
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return pivots, order


class Order(OfNumPy):
    """The order of `rows` rows that LAPACK's pivots mean."""

    @staticmethod
    def forward(pivots: Tensor, rows: int) -> Tensor:
        found: Tensor = call("lu_solve", lambda pivots: _order(pivots, rows), pivots)
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.mark_non_differentiable(output)


def _order(pivots: np.ndarray, rows: int) -> np.ndarray:
    order = np.empty((*pivots.shape[:-1], rows), np.int64)
    for place in np.ndindex(*pivots.shape[:-1]):
        own = np.arange(rows)
        for i, pivot in enumerate(pivots[place]):
            if not i < pivot <= rows:
                raise LinAlgError(f"lu_solve: pivots must be between 1 and {rows}, not {pivot}")
            own[[i, pivot - 1]] = own[[pivot - 1, i]]
        order[place] = own
    return order
