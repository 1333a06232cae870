"""Less common products: Kronecker's, of vectors in space, of all pairs, powers of matrices."""

from __future__ import annotations

from functools import reduce
from typing import Any

from lucid.docstrings import like
from lucid.functions.arguments import axis_of, integer, tensor_of
from lucid.functions.creation import eye
from lucid.functions.elementwise import mul
from lucid.functions.joining import roll
from lucid.functions.linalg import combined, dot, matmul, outer, tensordot
from lucid.functions.promotion import Number
from lucid.functions.shape import reshaped
from lucid.functions.solving import Inverse
from lucid.functions.tensors import Tensor
from lucid.ir.errors import OptionError, ShapeError

__all__ = ["addr", "chain_matmul", "cross", "inner", "kron", "matrix_power", "vdot"]


def kron(input: Tensor, other: Tensor) -> Tensor:
    """Return Kronecker's product: each element of `input` times all of `other`.

    Shapes: (n, m) and (p, q) give (n p, m q); of fewer axes, those in front have size 1.

    Args:
        other: a tensor; dtypes promote.

    Example:
        >>> lucid.kron(lucid.tensor([[1, 10]]), lucid.tensor([[1, 2], [3, 4]]))
        tensor([[ 1,  2, 10, 20],
                [ 3,  4, 30, 40]])
    """
    a, b = tensor_of(input, "kron"), tensor_of(other, "kron", "other")
    ndim = max(a.ndim, b.ndim)
    first, second = ((1,) * (ndim - t.ndim) + t._type.shape for t in (a, b))
    spread = [size for pair in zip(first, (1,) * ndim, strict=True) for size in pair]
    tiles = [size for pair in zip((1,) * ndim, second, strict=True) for size in pair]
    product = mul(reshaped(a, tuple(spread)), reshaped(b, tuple(tiles)))
    return reshaped(product, tuple(x * y for x, y in zip(first, second, strict=True)))


def inner(input: Tensor, other: Tensor) -> Tensor:
    """Return the sums of products over the last axes of both; the product with a 0-d tensor.

    Shapes: (..., k) and (other..., k) give (..., other...).

    Args:
        other: a tensor of the same dtype, with a last axis of the same size.

    Raises:
        ShapeError: the last axes differ in size.
        DTypeError: the dtypes differ, and both have axes.

    Example:
        >>> lucid.inner(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), lucid.tensor([1.0, 1.0]))
        tensor([3., 7.])
    """
    if not input.ndim or not other.ndim:
        return mul(input, other)
    return tensordot(input, other, ([-1], [-1]))


@like(dot)
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """Return the scalar product of two vectors, as `dot`: there are no complex numbers.

    Args:
        other: a vector of the same size and dtype.
    """
    return dot(input, other)


def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """Return `beta * input + alpha * outer(vec1, vec2)`.

    Shapes: (n,) and (m,) give (n, m), with which `input` broadcasts.

    Args:
        input: what is added to.
        vec1: a vector.
        vec2: a vector; dtypes promote.
        beta: a factor of `input`; with 0 its NaN and infinities don't count. Default: 1.
        alpha: a factor of the product. Default: 1.

    Raises:
        ShapeError: one of `vec1` and `vec2` is no vector, or `input` doesn't broadcast.

    Example:
        >>> lucid.addr(lucid.ones(2, 2), lucid.tensor([1.0, 2.0]), lucid.tensor([3.0, 4.0]))
        tensor([[4., 5.],
                [7., 9.]])
    """
    return combined(input, outer(vec1, vec2), beta, alpha)


def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """Return the vector products of vectors of three elements along `dim`.

    Each is perpendicular to both of its vectors, and as long as their parallelogram is large.

    Args:
        input: a tensor with an axis of size 3.
        other: likewise, broadcast.
        dim: the axis of the vectors. Default: None, the first of size 3.

    Raises:
        ShapeError: `dim` hasn't the size 3, or the shapes don't broadcast.

    Example:
        >>> lucid.cross(lucid.tensor([1.0, 0.0, 0.0]), lucid.tensor([0.0, 1.0, 0.0]))
        tensor([0., 0., 1.])
    """
    x, y = tensor_of(input, "cross"), tensor_of(other, "cross", "other")
    if dim is None:
        dim = next((i for i, size in enumerate(x._type.shape) if size == 3), -1)
    axis = axis_of(dim, x.ndim, "cross")
    if not x.ndim or x._type.shape[axis] != 3:
        raise ShapeError(f"cross: the vectors along dim {dim} must have 3 elements")
    first = mul(roll(x, -1, axis), roll(y, -2, axis))
    return first - mul(roll(x, -2, axis), roll(y, -1, axis))


def matrix_power(input: Tensor, n: int) -> Tensor:
    """Return the product of n copies of square matrices, of their inverses for a negative n.

    The identity for 0. Aliasing: for 1 the tensor itself.

    Args:
        input: square matrices (..., m, m).
        n: an int, how many there are.

    Raises:
        LinAlgError: a negative `n` of a singular matrix.
        ShapeError: a power other than 1 of matrices that aren't square.

    Example:
        >>> lucid.matrix_power(lucid.tensor([[1.0, 1.0], [0.0, 1.0]]), 5)
        tensor([[1., 5.],
                [0., 1.]])
    """
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
    """Return the product of several matrices, from left to right.

    Shapes and dtypes are those of `matmul`; the first and the last may be vectors.

    Args:
        tensors: a list or tuple of at least two matrices.

    Raises:
        OptionError: fewer than two tensors.
        ShapeError: the inner sizes differ.

    Example:
        >>> lucid.linalg.multi_dot([lucid.ones(2, 3), lucid.ones(3, 4), lucid.ones(4, 1)])
        tensor([[12.],
                [12.]])
    """
    if len(tensors) < 2:
        raise OptionError(f"multi_dot: expected at least 2 tensors but got {len(tensors)}")
    product: Tensor = reduce(matmul, tensors)
    return product


def chain_matmul(*matrices: Tensor) -> Tensor:
    """Return `linalg.multi_dot(matrices)`, the product from left to right, or the only matrix.

    Args:
        *matrices: at least one matrix.

    Raises:
        OptionError: no matrix.
        ShapeError: the inner sizes differ.

    Example:
        >>> lucid.chain_matmul(lucid.ones(2, 3), lucid.ones(3, 4), lucid.ones(4, 1))
        tensor([[12.],
                [12.]])
    """
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)
