"""Products of vectors, matrices and batches of them; powers of matrices."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

from lucid.autograd.native import program
from lucid.docstrings import like, maps
from lucid.functions.arguments import axis_of, integer, tensor_of, typed
from lucid.functions.creation import eye
from lucid.functions.elementwise import mul, scaled
from lucid.functions.factorizations import inverse
from lucid.functions.joining import roll
from lucid.functions.promotion import Number
from lucid.functions.shape import permuted, reshape, reshaped
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import DTypeError, OptionError, ShapeError
from lucid.tensor.core import emit

__all__ = [
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "cross", "dot", "ger",
    "inner", "kron", "matmul", "matrix_power", "mm", "mv", "outer", "spmm", "tensordot", "vdot",
]  # fmt: skip


def _pair(input: Any, other: Any, op: str) -> tuple[Tensor, Tensor]:
    """Check that both are tensors of one dtype; products don't promote, as in PyTorch."""
    a, b = tensor_of(input, op), tensor_of(other, op, "other")
    if a._type.dtype is not b._type.dtype:
        raise DTypeError(
            f"{op}: expected both operands to have the same dtype, but got {a.dtype!r} and "
            f"{b.dtype!r}\nhint: convert one with .to(other.dtype)"
        )
    return a, b


def _ranked(input: Any, other: Any, ranks: tuple[int, int], op: str) -> tuple[Tensor, Tensor]:
    a, b = _pair(input, other, op)
    if (a.ndim, b.ndim) != ranks:
        raise ShapeError(f"{op}: expects tensors with {ranks[0]} and {ranks[1]} dimensions")
    return a, b


@maps("[[1.0, 2.0], [3.0, 4.0]]", "[1.0, 1.0]", "[3., 7.]")
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Return the matrix product; vectors are rows or columns, leading axes are batches.

    Shapes: (..., n, k) and (..., k, m) give (..., n, m), with (...) broadcast; a vector's axis is
    left out of the result: two vectors give a scalar.

    Args:
        input: a tensor of at least one axis, or a sparse matrix.
        other: likewise, of the same dtype.

    Raises:
        ShapeError: the inner sizes differ, the batches don't broadcast, or one has no axis.
        DTypeError: the dtypes differ; products don't promote.
    """
    if _is_sparse(input, other):
        return _sparse_product(input, other)
    a, b = _pair(input, other, "matmul")
    first, second = a._type.shape, b._type.shape
    if len(first) >= 2 and len(second) >= 2:
        return emit(ops.matmul, (a, b))
    if not first or not second:
        raise ShapeError(
            "matmul: both arguments to matmul need to be at least 1D\n"
            "hint: use * to multiply by a scalar"
        )
    inner = (first[-1], second[-2] if len(second) > 1 else second[0])
    if inner[0] != inner[1]:
        raise ShapeError(f"matmul: the inner dimensions differ, {inner[0]} and {inner[1]}")
    left = reshaped(a, (1, first[0])) if len(first) == 1 else a
    right = reshaped(b, (second[0], 1)) if len(second) == 1 else b
    product = emit(ops.matmul, (left, right))
    shape = product._type.shape
    if len(second) == 1:
        shape = shape[:-1]
    if len(first) == 1:
        shape = shape[:-1] if len(second) == 1 else (*shape[:-2], shape[-1])
    return reshaped(product, shape)


def rmatmul(input: Tensor, other: Tensor) -> Tensor:
    """Return `other @ input`."""
    return matmul(other, input)


def _is_sparse(*operands: Any) -> bool:
    return any(getattr(operand, "is_sparse", False) for operand in operands)


def _sparse_product(input: Any, other: Any) -> Tensor:
    from lucid.sparse.tensor import product

    result: Tensor = product(input, other)
    return result


@maps("[[1.0, 2.0], [3.0, 4.0]]", "lucid.eye(2) * 2", "[[2., 4.], [6., 8.]]")
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Return the product of two matrices: (n, k) and (k, m) give (n, m).

    One of them may be a sparse matrix, whose entries get gradients; the result is dense.

    Args:
        input: a matrix.
        mat2: a matrix of the same dtype.

    Raises:
        ShapeError: shapes that don't fit.
        DTypeError: the dtypes differ; products don't promote.
    """
    if _is_sparse(input, mat2):
        return _sparse_product(input, mat2)
    return emit(ops.matmul, _ranked(input, mat2, (2, 2), "mm"))


def spmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Return the product of two matrices, the first of them sparse: an older name of `mm`.

    Args:
        input: a sparse matrix (n, k), or a dense one.
        mat2: a dense matrix (k, m).

    Raises:
        ShapeError: shapes that don't fit.
        DTypeError: the dtypes differ; products don't promote.

    >>> a = lucid.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2))
    >>> lucid.spmm(a, lucid.eye(2))
    tensor([[0., 2.],
            [3., 0.]])
    """
    return mm(input, mat2)


@like(mm)
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Return the products of two batches of matrices, one by one.

    Shapes: (b, n, k) and (b, k, m) give (b, n, m). Batches don't broadcast; those of `matmul` do.

    Args:
        input: a batch of matrices.
        mat2: a batch of as many, of the same dtype.

    >>> lucid.bmm(lucid.ones(3, 2, 4), lucid.ones(3, 4, 5)).shape
    lucid.Size([3, 2, 5])
    """
    a, b = _ranked(input, mat2, (3, 3), "bmm")
    if a._type.shape[0] != b._type.shape[0]:
        raise ShapeError("bmm: the batches differ in size")
    return emit(ops.matmul, (a, b))


@like(spmm)
@maps("[[1.0, 2.0], [3.0, 4.0]]", "[1.0, 1.0]", "[3., 7.]")
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Return the product of a matrix and a vector: (n, k) and (k,) give (n,).

    Args:
        input: a matrix.
        vec: a vector of the same dtype.
    """
    return matmul(*_ranked(input, vec, (2, 1), "mv"))


@like(spmm)
@maps("[1.0, 2.0]", "[3.0, 4.0]", "tensor(11.)")
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Return the scalar product of two vectors: the sum of the products of their elements.

    Args:
        input: a vector.
        tensor: a vector of the same size and dtype.
    """
    a, b = _ranked(input, tensor, (1, 1), "dot")
    if a._type.shape != b._type.shape:
        raise ShapeError("dot: inconsistent tensor size")
    return matmul(a, b)


@maps("[1, 2]", "[3, 4]", "[[3, 4], [6, 8]]")
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Return the product of each element with each: (n,) and (m,) give (n, m); promoted.

    Args:
        input: a vector.
        vec2: a vector, of any dtype.

    Raises:
        ShapeError: one of them is no vector.
    """
    a, b = tensor_of(input, "outer"), tensor_of(vec2, "outer", "vec2")
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError("outer: expects two vectors")
    return reshaped(a, (a._type.size, 1)) * b


ger = outer


@like(mm)
@maps("[10.0, 20.0]", "lucid.eye(2)", "lucid.eye(2)", "alpha=3", "[[13., 20.], [10., 23.]]")
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """Return `beta * input + alpha * (mat1 @ mat2)`.

    Shapes: (n, k) and (k, m) give (n, m), with which `input` broadcasts.

    Args:
        input: what is added to.
        mat1: a matrix.
        beta: a factor of `input`; with 0 its NaN and infinities don't count.
        alpha: a factor of the product.
    """
    return combined("addmm", input, mm(mat1, mat2), beta, alpha)


@like(addmm)
@maps("[10.0, 20.0]", "lucid.eye(2)", "[1.0, 2.0]", "[11., 22.]")
def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """Return `beta * input + alpha * (mat @ vec)`.

    Shapes: (n, k) and (k,) give (n,), with which `input` broadcasts.

    Args:
        mat: a matrix.
        vec: a vector of the same dtype.
    """
    return combined("addmv", input, mv(mat, vec), beta, alpha)


@like(addmm)
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """Return `beta * input + alpha * (batch1 @ batch2)`.

    Shapes: (b, n, k) and (b, k, m) give (b, n, m), with which `input` broadcasts.

    Args:
        batch1: a batch of matrices.
        batch2: a batch of as many, of the same dtype.

    >>> lucid.baddbmm(lucid.tensor(10.0), lucid.ones(1, 2, 3), lucid.ones(1, 3, 2), beta=2)
    tensor([[[23., 23.],
             [23., 23.]]])
    """
    return combined("baddbmm", input, bmm(batch1, batch2), beta, alpha)


@like(baddbmm)
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """Return `beta * input + alpha * (batch1 @ batch2).sum(0)`.

    Shapes: (b, n, k) and (b, k, m) give (n, m), with which `input` broadcasts.

    >>> lucid.addbmm(lucid.tensor(10.0), lucid.ones(4, 2, 3), lucid.ones(4, 3, 2))
    tensor([[22., 22.],
            [22., 22.]])
    """
    return combined("addbmm", input, bmm(batch1, batch2).sum(0, dtype=batch1.dtype), beta, alpha)


def combined(op: str, base: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """`beta * base + alpha * product`; with a beta of 0, NaN in `base` doesn't count."""
    if type(alpha) is not int or alpha != 1:
        product = scaled(op, product, alpha, "alpha")
    if isinstance(beta, (int, float)) and beta == 0:
        return product
    if type(beta) is not int or beta != 1:
        base = scaled(op, base, beta, "beta")
    return base + product


def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Sum products over the last `dims` axes of `a` and the first of `b`, or over listed axes.

    Shapes: the axes of `a` that are left, then those of `b`.

    Args:
        a: a tensor.
        b: a tensor of the same dtype.
        dims: how many axes, or two lists of axes: those of `a` and, in the same order, of `b`.

    Raises:
        ShapeError: the sizes of axes that belong together differ.
        DTypeError: the dtypes differ; products don't promote.

    >>> lucid.tensordot(lucid.ones(2, 3, 4), lucid.ones(4, 3, 5), ([1, 2], [1, 0])).shape
    lucid.Size([2, 5])
    """
    x, y = _pair(a, b, "tensordot")
    if isinstance(dims, int):
        left, right = list(range(x.ndim - dims, x.ndim)), list(range(dims))
    else:
        left, right = (
            [axis % t.ndim for axis in axes] for t, axes in zip((x, y), dims, strict=True)
        )
    kept_left = [axis for axis in range(x.ndim) if axis not in left]
    kept_right = [axis for axis in range(y.ndim) if axis not in right]
    shape_x, shape_y = x._type.shape, y._type.shape
    if [shape_x[i] for i in left] != [shape_y[i] for i in right]:
        raise ShapeError("tensordot: contracted dimensions need to match")
    outer_x, outer_y = [shape_x[i] for i in kept_left], [shape_y[i] for i in kept_right]
    summed = prod(shape_x[axis] for axis in left)
    matrix_x = reshaped(permuted(x, (*kept_left, *left)), (prod(outer_x), summed))
    matrix_y = reshaped(permuted(y, (*right, *kept_right)), (summed, prod(outer_y)))
    return reshape(emit(ops.matmul, (matrix_x, matrix_y)), (*outer_x, *outer_y))


@maps("[[1, 10]]", "[[1, 2], [3, 4]]", "[[ 1,  2, 10, 20], [ 3,  4, 30, 40]]")
def kron(input: Tensor, other: Tensor) -> Tensor:
    """Return Kronecker's product: each element of `input` times all of `other`.

    Shapes: (n, m) and (p, q) give (n p, m q); of fewer axes, those in front have size 1.

    Args:
        other: a tensor; dtypes promote.
    """
    a, b = tensor_of(input, "kron"), tensor_of(other, "kron", "other")
    ndim = max(a.ndim, b.ndim)
    first, second = ((1,) * (ndim - t.ndim) + t._type.shape for t in (a, b))
    spread = [size for pair in zip(first, (1,) * ndim, strict=True) for size in pair]
    tiles = [size for pair in zip((1,) * ndim, second, strict=True) for size in pair]
    product = mul(reshaped(a, tuple(spread)), reshaped(b, tuple(tiles)))
    return reshaped(product, tuple(x * y for x, y in zip(first, second, strict=True)))


@maps("[[1.0, 2.0], [3.0, 4.0]]", "[1.0, 1.0]", "[3., 7.]")
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Return the sums of products over the last axes of both; the product with a 0-d tensor.

    Shapes: (..., k) and (other..., k) give (..., other...).

    Args:
        other: a tensor of the same dtype, with a last axis of the same size.

    Raises:
        ShapeError: the last axes differ in size.
        DTypeError: the dtypes differ, and both have axes.
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


@maps("lucid.ones(2, 2)", "[1.0, 2.0]", "[3.0, 4.0]", "[[4., 5.], [7., 9.]]")
def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """Return `beta * input + alpha * outer(vec1, vec2)`.

    Shapes: (n,) and (m,) give (n, m), with which `input` broadcasts.

    Args:
        input: what is added to.
        vec1: a vector.
        vec2: a vector; dtypes promote.
        beta: a factor of `input`; with 0 its NaN and infinities don't count.
        alpha: a factor of the product.

    Raises:
        ShapeError: one of `vec1` and `vec2` is no vector, or `input` doesn't broadcast.
    """
    return combined("addr", input, outer(vec1, vec2), beta, alpha)


@maps("[1.0, 0.0, 0.0]", "[0.0, 1.0, 0.0]", "[0., 0., 1.]")
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """Return the vector products of vectors of three elements along `dim`.

    Each is perpendicular to both of its vectors, and as long as their parallelogram is large.

    Args:
        input: a tensor with an axis of size 3.
        other: likewise, of as many axes; the other ones broadcast.
        dim: the axis of the vectors. Default: None, the first of size 3.

    Raises:
        ShapeError: `dim` hasn't the size 3, or the shapes don't broadcast.
    """
    x, y = tensor_of(input, "cross"), tensor_of(other, "cross", "other")
    if dim is None:
        dim = next((i for i, size in enumerate(x._type.shape) if size == 3), -1)
    axis = axis_of(dim, x.ndim, "cross")
    if not x.ndim == y.ndim > 0 or {x._type.shape[axis], y._type.shape[axis]} != {3}:
        raise ShapeError(
            f"cross: the vectors along dim {dim} must have 3 elements, in tensors of as many axes"
            f"{typed(input=x, other=y)}"
        )
    return _cross(x, y, axis)


@program
def _cross(x: Tensor, y: Tensor, axis: int) -> Tensor:
    first = mul(roll(x, -1, axis), roll(y, -2, axis))
    return first - mul(roll(x, -2, axis), roll(y, -1, axis))


@maps("[[1.0, 1.0], [0.0, 1.0]]", "5", "[[1., 5.], [0., 1.]]")
def matrix_power(input: Tensor, n: int) -> Tensor:
    """Return the product of n copies of square matrices, of their inverses for a negative n.

    The identity for 0. Aliasing: for 1 the tensor itself.

    Args:
        input: square matrices (..., m, m).
        n: an int, how many there are.

    Raises:
        LinAlgError: a negative `n` of a singular matrix.
        ShapeError: a power other than 1 of matrices that aren't square.
        ShapeError: they aren't square matrices.
    """
    x, power = tensor_of(input, "matrix_power"), integer(n, "matrix_power", "n")
    if x.ndim < 2 or x._type.shape[-1] != x._type.shape[-2]:
        raise ShapeError(f"matrix_power: takes square matrices, not {x._type}")
    if power < 0:
        return matrix_power(inverse(x), -power)
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

    >>> lucid.linalg.multi_dot([lucid.ones(2, 3), lucid.ones(3, 4), lucid.ones(4, 1)])
    tensor([[12.],
            [12.]])
    """
    if len(tensors) < 2:
        raise OptionError(f"multi_dot: expected at least 2 tensors but got {len(tensors)}")
    product: Tensor = reduce(matmul, tensors)
    return product


@maps("lucid.ones(2, 3)", "lucid.ones(3, 4)", "lucid.ones(4, 1)", "[[12.], [12.]]")
def chain_matmul(*matrices: Tensor) -> Tensor:
    """Return `linalg.multi_dot(matrices)`, the product from left to right, or the only matrix.

    Args:
        *matrices: at least one matrix.

    Raises:
        OptionError: no matrix.
        ShapeError: the inner sizes differ.
        ShapeError: one is no matrix, or the inner sizes differ.
    """
    for i, x in enumerate(matrices):
        if tensor_of(x, "chain_matmul", f"matrix {i}").ndim != 2:
            raise ShapeError(f"chain_matmul: takes matrices, not a tensor of {x.ndim} axes")
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)
