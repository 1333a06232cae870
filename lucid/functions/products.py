"""Less common products: Kronecker's, of vectors in space, of all pairs, powers of matrices."""

from __future__ import annotations

from functools import reduce
from typing import Any

from lucid.functions.arguments import axis_of, describe, integer, tensor_of
from lucid.functions.creation import eye
from lucid.functions.elementwise import mul
from lucid.functions.joining import roll
from lucid.functions.linalg import dot, matmul, outer, tensordot
from lucid.functions.promotion import Number
from lucid.functions.reduction import norm
from lucid.functions.shape import reshaped, unsqueeze
from lucid.functions.solving import Inverse
from lucid.functions.tensors import Tensor
from lucid.ir.errors import OptionError, ShapeError


def kron(input: Tensor, other: Tensor) -> Tensor:
    """Return Kronecker's product: each element of `input` times all of `other`."""
    a, b = tensor_of(input, "kron"), tensor_of(other, "kron", "other")
    ndim = max(a.ndim, b.ndim)
    first, second = ((1,) * (ndim - t.ndim) + t._type.shape for t in (a, b))
    spread = [size for pair in zip(first, (1,) * ndim, strict=True) for size in pair]
    tiles = [size for pair in zip((1,) * ndim, second, strict=True) for size in pair]
    product = mul(reshaped(a, tuple(spread)), reshaped(b, tuple(tiles)))
    return reshaped(product, tuple(x * y for x, y in zip(first, second, strict=True)))


def inner(input: Tensor, other: Tensor) -> Tensor:
    """Return the sums of products over the last axes of both; the product with a 0-d tensor."""
    if not input.ndim or not other.ndim:
        return mul(input, other)
    return tensordot(input, other, ([-1], [-1]))


def vdot(input: Tensor, other: Tensor) -> Tensor:
    """Return the scalar product of two vectors."""
    return dot(input, other)


def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """Return `beta * input + alpha * outer(vec1, vec2)`."""
    return input * beta + outer(vec1, vec2) * alpha


def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """Return the products of vectors of three elements along `dim`, the first of size 3."""
    x, y = tensor_of(input, "cross"), tensor_of(other, "cross", "other")
    if dim is None:
        dim = next((i for i, size in enumerate(x._type.shape) if size == 3), -1)
    axis = axis_of(dim, x.ndim, "cross")
    if not x.ndim or x._type.shape[axis] != 3:
        raise ShapeError(f"cross: the vectors along dim {dim} must have 3 elements{describe(x, y)}")
    first = mul(roll(x, -1, axis), roll(y, -2, axis))
    return first - mul(roll(x, -2, axis), roll(y, -1, axis))


def matrix_power(input: Tensor, n: int) -> Tensor:
    """Return the product of n copies of square matrices, of their inverses for a negative n."""
    x, power = tensor_of(input, "matrix_power"), integer(n, "matrix_power", "n")
    if power < 0:
        return matrix_power(Inverse.apply(x), -power)
    if power == 0:
        return eye(x._type.shape[-1], dtype=x.dtype).expand(x._type.shape).clone()
    result: Tensor | None = None
    while power:
        if power & 1:
            result = x if result is None else matmul(result, x)
        power >>= 1
        if power:
            x = matmul(x, x)
    assert result is not None
    return result


def multi_dot(tensors: Any) -> Tensor:
    """Return the product of several matrices, from left to right."""
    if len(tensors) < 2:
        raise OptionError(f"multi_dot: expected at least 2 tensors but got {len(tensors)}")
    product: Tensor = reduce(matmul, tensors)
    return product


def chain_matmul(*matrices: Tensor) -> Tensor:
    """Return `multi_dot(matrices)`, or the only matrix."""
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)


_DISTANCE_MODES = (
    None,
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """Return the p-norm of each difference of a row of `x1` and one of `x2`.

    Whatever `compute_mode` allows, no product of matrices is used, which would round more.

    Shapes: (..., n, k) and (..., m, k) give (..., n, m).
    """
    if compute_mode not in _DISTANCE_MODES:
        raise OptionError(f"cdist: {compute_mode!r} is not a valid value for compute_mode")
    if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist: X1 and X2 must have the same number of columns{describe(x1, x2)}")
    return norm(unsqueeze(x1, -2) - unsqueeze(x2, -3), p, -1)
