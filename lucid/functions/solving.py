"""Inverses, determinants and solutions of linear systems.

The derivatives are those of Giles, "Collected Matrix Derivative Results for Forward and Reverse
Mode Algorithmic Differentiation", 2008.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid.functions.elementwise import mul
from lucid.functions.joining import tril, triu
from lucid.functions.lapack import OfNumPy, call
from lucid.functions.shape import matrix_transpose
from lucid.functions.tensors import Tensor


class Inverse(OfNumPy):
    """The inverse of each square matrix."""

    @staticmethod
    def forward(a: Tensor) -> Tensor:
        inverse: Tensor = call("inv", np.linalg.inv, a)
        return inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        found: Tensor = -(inverse.mT @ g @ inverse.mT)
        return found


class Solve(OfNumPy):
    """The X with A X = B, for matrices of as many axes."""

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        x: Tensor = call("solve", np.linalg.solve, a, b)
        return x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        a, _ = inputs
        ctx.save_for_backward(a, output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        a, x = ctx.saved_tensors
        to_b: Tensor = Solve.apply(a.mT, g)
        return -(to_b @ x.mT) if ctx.needs_input_grad[0] else None, to_b


class SolveTriangular(OfNumPy):
    """The X with A X = B, where only a triangle of A is read."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, upper: bool, unit: bool) -> Tensor:
        x: Tensor = call("solve_triangular", lambda a, b: _triangular(a, b, upper, unit), a, b)
        return x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        a, _, upper, unit = inputs
        ctx.save_for_backward(a, output)
        ctx.upper = upper
        ctx.unit = unit

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        a, x = ctx.saved_tensors
        upper, unit = ctx.upper, ctx.unit
        to_b: Tensor = SolveTriangular.apply(a.mT, g, not upper, unit)
        if not ctx.needs_input_grad[0]:
            return None, to_b, None, None
        whole = -(to_b @ x.mT)
        part = triu(whole, int(unit)) if upper else tril(whole, -int(unit))
        return part, to_b, None, None


def _triangular(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool) -> np.ndarray:
    a = np.triu(a, 1 if unit else 0) if upper else np.tril(a, -1 if unit else 0)
    if unit:
        a = a + np.eye(a.shape[-1], dtype=a.dtype)
    return np.linalg.solve(a, b)


class Determinant(OfNumPy):
    """The determinant of each square matrix."""

    @staticmethod
    def forward(a: Tensor) -> Tensor:
        value: Tensor = call("det", np.linalg.det, a)
        return value

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        (a,) = inputs
        ctx.save_for_backward(a)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        found: Tensor = g[..., None, None] * Cofactors.apply(a)
        return found


class Cofactors(OfNumPy):
    """The derivative of the determinant, also of singular matrices.

    With A = U S V^T, they are det(U) det(V) U (prod of the other singular values) V^T.
    """

    @staticmethod
    def forward(a: Tensor) -> Tensor:
        cofactors: Tensor = call("det", _cofactors, a)
        return cofactors

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        (a,) = inputs
        ctx.save_for_backward(a)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        inverse: Tensor = Inverse.apply(a)
        cofactors: Tensor = Cofactors.apply(a)
        along = (g * cofactors).sum((-2, -1), keepdim=True)
        return inverse.mT * along - inverse.mT @ g.mT @ cofactors


def _cofactors(a: np.ndarray) -> np.ndarray:
    u, s, vh = np.linalg.svd(a)
    others = np.broadcast_to(s[..., None, :], (*s.shape, s.shape[-1])).copy()
    places = np.arange(s.shape[-1])
    others[..., places, places] = 1
    sign = np.linalg.det(u) * np.linalg.det(vh)
    whole = (u * others.prod(-1)[..., None, :]) @ vh * sign[..., None, None]
    return np.asarray(whole, a.dtype)


class SignAndLogDet(OfNumPy):
    """The determinant's sign and the logarithm of its absolute value."""

    @staticmethod
    def forward(a: Tensor) -> tuple[Tensor, Tensor]:
        sign, logarithm = call("slogdet", lambda a: tuple(np.linalg.slogdet(a)), a)
        return sign, logarithm

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        (a,) = inputs
        sign, _ = output
        ctx.mark_non_differentiable(sign)
        ctx.save_for_backward(a)

    @staticmethod
    def backward(ctx: Any, _: Tensor, g: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        inverse: Tensor = Inverse.apply(a)
        return mul(matrix_transpose(inverse), g[..., None, None])


class PseudoInverse(OfNumPy):
    """Moore and Penrose's inverse; singular values below `rcond` times the largest count as 0."""

    @staticmethod
    def forward(a: Tensor, rcond: float) -> Tensor:
        pinv: Tensor = call("pinv", lambda a: np.linalg.pinv(a, rcond), a)
        return pinv

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        a, _ = inputs
        ctx.save_for_backward(a, output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        """Reference: Golub and Pereyra, "The Differentiation of Pseudo-Inverses …", 1973."""
        a, p = ctx.saved_tensors
        outside = g.mT @ p @ p.mT
        inside = p.mT @ p @ g.mT
        return (outside - a @ p @ outside) + (inside - inside @ p @ a) - p.mT @ g @ p.mT, None
