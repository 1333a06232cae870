"""Statistics of samples, and functions of one or two elements that need no op of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid import return_types
from lucid.functions.arguments import Dims, axis_of, describe, tensor_of
from lucid.functions.elementwise import choose, maximum, minimum
from lucid.functions.finding import found, runs
from lucid.functions.joining import cat
from lucid.functions.linalg import matmul
from lucid.functions.naming import numpy_names
from lucid.functions.promotion import Number, floating, promoted
from lucid.functions.reduction import norm, sum
from lucid.functions.scans import diff
from lucid.functions.shape import matrix_transpose, reshaped, sliced, unsqueeze
from lucid.functions.sorting import sort
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import DTypeError, OptionError, ShapeError
from lucid.ir.types import DType, bool_, i64
from lucid.tensor.core import constant, emit, from_array

__all__ = [
    "aminmax", "angle", "corrcoef", "cov", "cumulative_trapezoid", "dist", "fmax", "fmin", "gcd",
    "gradient", "isneginf", "isposinf", "isreal", "lcm", "ldexp", "mode", "nanmean", "nansum",
    "pdist", "unique_consecutive",
]  # fmt: skip


@numpy_names
def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False
) -> return_types.aminmax:
    """Return (min, max), the least and the greatest element, of all or along `dim`.

    Args:
        input: a tensor of any dtype.
        dim: one axis, which the results lack. Default: None, all of them.
        keepdim: whether the axis stays, with size 1. Default: False.

    Raises:
        ShapeError: an axis has no elements.

    Example:
        >>> import lucid
        >>> lucid.aminmax(lucid.tensor([[1, 5], [7, 2]]), dim=1)
        lucid.return_types.aminmax(
        min=tensor([1, 2]),
        max=tensor([5, 7]))
    """
    x = tensor_of(input, "aminmax")
    axes: Any = tuple(range(x.ndim)) if dim is None else dim
    return return_types.aminmax(x.amin(axes, keepdim=keepdim), x.amax(axes, keepdim=keepdim))


@numpy_names
def nansum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Return the sum over `dim` of the elements that are no NaN; of none it is 0.

    Args:
        input: a tensor of any dtype; integers and bools are summed as int64.
        dim: an axis or several, which the result lacks. Default: None, all of them.
        keepdim: whether the axes stay, with size 1. Default: False.
        dtype: what the elements are converted to before. Default: None.

    Raises:
        IndexOutOfRangeError: there is no such axis.

    Example:
        >>> import lucid
        >>> lucid.nansum(lucid.tensor([1.0, float("nan"), 2.0]))
        tensor(3.)
    """
    x = tensor_of(input, "nansum")
    return sum(choose(x != x, 0, x), dim, keepdim, dtype=dtype)


@numpy_names
def nanmean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Return the mean over `dim` of the elements that are no NaN; of none it is NaN.

    Args:
        input: a tensor of any dtype; of integers and bools the mean is a float.
        dim: an axis or several, which the result lacks. Default: None, all of them.
        keepdim: whether the axes stay, with size 1. Default: False.
        dtype: the dtype to sum in. Default: None.

    Raises:
        IndexOutOfRangeError: there is no such axis.

    Example:
        >>> import lucid
        >>> lucid.nanmean(lucid.tensor([1.0, float("nan"), 2.0]))
        tensor(1.5000)
    """
    x = tensor_of(input, "nanmean")
    count = sum(x == x, dim, keepdim)
    return nansum(x, dim, keepdim, dtype=dtype) / count


@numpy_names
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> return_types.mode:
    """Return (values, indices) of the most frequent element along `dim`.

    Of equally frequent ones it is the least; the index is that of its last occurrence.

    Args:
        input: a tensor of any dtype.
        dim: the axis to look along, which the results lack. Default: -1.
        keepdim: whether the axis stays, with size 1. Default: False.

    Raises:
        ShapeError: the axis has no elements.
        IndexOutOfRangeError: there is no such axis.

    Example:
        >>> import lucid
        >>> lucid.mode(lucid.tensor([2, 1, 3, 2]))
        lucid.return_types.mode(
        values=tensor(2),
        indices=tensor(3))
    """
    x = tensor_of(input, "mode")
    if not x.ndim:
        return return_types.mode(x.clone(), constant(0, i64))
    axis = axis_of(dim, x.ndim, "mode")
    ordered, places = sort(x.movedim(axis, -1), stable=True)
    same = unsqueeze(ordered, -1) == unsqueeze(ordered, -2)
    best = same.sum(-1).argmax(-1, keepdim=True)
    last = best + _at(same.sum(-1), best) - 1
    index = _at(places, last)
    values = _at(x.movedim(axis, -1), index)
    values, index = values.movedim(-1, axis), index.movedim(-1, axis)
    if keepdim:
        return return_types.mode(values, index)
    return return_types.mode(values.squeeze(axis), index.squeeze(axis))


def _at(x: Tensor, index: Tensor) -> Tensor:
    return emit(ops.gather, (x, index), axis=x.ndim - 1)


def cov(
    input: Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> Tensor:
    """Return the covariances of variables, the rows, from observations, the columns.

    Shapes: (variables, observations) gives (variables, variables), a vector or a number a 0-d
    tensor.

    Args:
        input: a tensor of at most two axes; integers give floats.
        correction: what is taken off the number of observations to divide by. Default: 1.
        fweights: how often each observation counts, a vector of integers. Default: None, once.
        aweights: how much each observation counts, a vector. Default: None, equally.

    Raises:
        ShapeError: more than two axes.

    Example:
        >>> import lucid
        >>> lucid.cov(lucid.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    x = floating(input, "cov")
    if x.ndim > 2:
        raise ShapeError(f"cov: expected input to have two or fewer dimensions{describe(x)}")
    rows = reshaped(x, (1, x._type.size)) if x.ndim < 2 else x
    weights: Any = None
    for given in (fweights, aweights):
        if given is not None:
            weights = given if weights is None else weights * given
    count = rows._type.shape[1]
    if weights is None:
        centred = rows - rows.mean(1, keepdim=True)
        result = matmul(centred, matrix_transpose(centred)) / max(count - correction, 0)
    else:
        total = weights.sum()
        centred = rows - (rows * weights).sum(1, keepdim=True) / total
        if aweights is None:
            divisor = total - correction
        else:
            divisor = total - correction * (weights * aweights).sum() / total
        result = matmul(centred * weights, matrix_transpose(centred)) / divisor
    return reshaped(result, ()) if x.ndim < 2 else result


def corrcoef(input: Tensor) -> Tensor:
    """Return the correlations of variables, the rows, from observations, the columns.

    They are within [-1, 1]; of a variable that does not vary they are NaN. Shapes: as `cov`.

    Args:
        input: a tensor of at most two axes; integers give floats.

    Raises:
        ShapeError: more than two axes.

    Example:
        >>> import lucid
        >>> lucid.corrcoef(lucid.tensor([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    c = cov(input)
    if not c.ndim:
        return c / c
    deviation = c.diagonal().sqrt()
    result: Tensor = c / deviation[:, None] / deviation[None, :]
    return result.clamp(-1, 1)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """Return the p-norm of the difference of two tensors, over all elements: a 0-d tensor.

    Args:
        input: a tensor.
        other: what is subtracted, which broadcasts.
        p: the order, as in `norm`. Default: 2.

    Raises:
        DTypeError: the difference is no tensor of floats.

    Example:
        >>> import lucid
        >>> lucid.dist(lucid.tensor([1.0, 2.0]), lucid.tensor([4.0, 6.0]))
        tensor(5.)
    """
    return norm(input - other, p)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Return the p-norms of the differences of all pairs of rows.

    The pairs are in the order (0, 1), (0, 2), … (1, 2), …
    Shapes: (n, k) gives (n (n - 1) / 2,).

    Args:
        input: a matrix.
        p: which norm. Default: 2.

    Raises:
        ShapeError: `input` is no matrix.

    Example:
        >>> import lucid
        >>> lucid.pdist(lucid.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
        tensor([5.0000, 1.0000, 4.2426])
    """
    x = tensor_of(input, "pdist")
    if x.ndim != 2:
        raise ShapeError(f"pdist: takes a matrix{describe(x)}")
    first, second = (from_array(a) for a in np.triu_indices(x._type.shape[0], 1))
    return norm(x[first] - x[second], p, -1)


def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1
) -> Tensor:
    """Return the running integral along `dim` by the trapezoidal rule, from the second point on.

    Shapes: that of `y`, with one element less along the axis.

    Args:
        y: the values of the function.
        x: its points: a vector, or as many as values. Default: None, equally far points.
        dx: how far these are. Default: 1.
        dim: the axis to go along. Default: -1.

    Raises:
        IndexOutOfRangeError: there is no such axis.

    Example:
        >>> import lucid
        >>> lucid.cumulative_trapezoid(lucid.tensor([1.0, 2.0, 3.0]))
        tensor([1.5000, 4.0000])
    """
    axis = axis_of(dim, y.ndim, "cumulative_trapezoid")
    size = y._type.shape[axis]
    pairs = (sliced(y, axis, 1, size) + sliced(y, axis, 0, size - 1)) / 2
    if x is None:
        return (pairs * dx).cumsum(axis)
    steps = diff(x) if x.ndim == 1 else diff(x, dim=axis)
    if x.ndim == 1:
        steps = steps.reshape(-1, *(1,) * (y.ndim - 1 - axis))
    return (pairs * steps).cumsum(axis)


def gradient(input: Tensor, *, spacing: Any = 1.0, dim: Any = None, edge_order: int = 1) -> Any:
    """Return central differences along each axis, one-sided at the ends, as a tuple of tensors.

    Args:
        input: a tensor of numbers, samples of a function on a grid.
        spacing: the distance of neighbours, one number for all axes. Default: 1.
        dim: an axis or several to differentiate along. Default: None, each.
        edge_order: PyTorch's; 1 alone is supported. Default: 1.

    Raises:
        OptionError: several spacings or coordinates, or another `edge_order`.
        ShapeError: fewer than two elements along an axis.

    Example:
        >>> import lucid
        >>> lucid.gradient(lucid.tensor([1.0, 4.0, 9.0, 16.0]))
        (tensor([3., 4., 6., 7.]),)
    """
    x = tensor_of(input, "gradient")
    if edge_order != 1 or not isinstance(spacing, (int, float)):
        raise OptionError("gradient: takes one number as spacing, and edge_order=1")
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    found = []
    for axis in (axis_of(d, x.ndim, "gradient") for d in dims):
        size = x._type.shape[axis]
        if size < 2:
            raise ShapeError(f"gradient: needs at least 2 elements per dimension{describe(x)}")
        step = diff(x, dim=axis)
        inner = (sliced(step, axis, 1, size - 1) + sliced(step, axis, 0, size - 2)) / 2
        ends = sliced(step, axis, 0, 1), sliced(step, axis, size - 2, size - 1)
        found.append(cat([ends[0], inner, ends[1]], axis) / spacing)
    return tuple(found)


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    """Return the elements of the flattened tensor without repetitions of the one before.

    Args:
        input: a tensor of any dtype.
        return_inverse: whether to return where each element went, too. Default: False.
        return_counts: whether to return how often each came in a row, too. Default: False.
        dim: PyTorch's; None alone is supported. Default: None.

    Raises:
        OptionError: a `dim`.

    Example:
        >>> import lucid
        >>> lucid.unique_consecutive(lucid.tensor([1, 1, 2, 1]), return_counts=True)
        (tensor([1, 2, 1]), tensor([2, 1, 1]))
    """
    if dim is not None:
        raise OptionError("unique_consecutive: only of the flattened tensor, without dim")
    x = tensor_of(input, "unique_consecutive")
    flags = bool(return_inverse), bool(return_counts)
    places, *others = found("unique_consecutive", runs, x.detach(), *flags)
    results = (reshaped(x, (x._type.size,))[places], *others)
    return results[0] if len(results) == 1 else results


# ---------------------------------------------------------------------- elements


def fmax(input: Tensor, other: Tensor) -> Tensor:
    """Return the greater of two elements, broadcast; where one is a NaN, the other.

    Args:
        input: a tensor of any dtype.
        other: a tensor or a number.

    Example:
        >>> import lucid
        >>> lucid.fmax(lucid.tensor([1.0, float("nan")]), lucid.tensor([3.0, 2.0]))
        tensor([3., 2.])
    """
    x, y = promoted(input, other, "fmax")
    return choose(x != x, y, choose(y != y, x, maximum(x, y)))


def fmin(input: Tensor, other: Tensor) -> Tensor:
    """Return the smaller of two elements, broadcast; where one is a NaN, the other.

    Args:
        input: a tensor of any dtype.
        other: a tensor or a number.

    Example:
        >>> import lucid
        >>> lucid.fmin(lucid.tensor([1.0, float("nan")]), lucid.tensor([3.0, 2.0]))
        tensor([1., 2.])
    """
    x, y = promoted(input, other, "fmin")
    return choose(x != x, y, choose(y != y, x, minimum(x, y)))


def gcd(input: Tensor, other: Tensor) -> Tensor:
    """Return the greatest common divisor of two integers, broadcast, by Euclid's algorithm.

    It isn't negative; of 0 and 0 it is 0.

    Args:
        input: a tensor of integers.
        other: a tensor of integers or an int.

    Raises:
        DTypeError: floats or bools.

    Example:
        >>> import lucid
        >>> lucid.gcd(lucid.tensor([12, 7]), lucid.tensor([18, 0]))
        tensor([6, 7])
    """
    x, y = promoted(input, other, "gcd")
    if x._type.dtype.kind != "int":
        raise DTypeError(f"gcd: defined for integers, not {x.dtype!r}")
    a, b = x.abs(), y.abs()
    for _ in range(_LONGEST_EUCLID[x._type.dtype.numpy.itemsize]):
        rest = a % choose(b == 0, 1, b)
        a, b = choose(b == 0, a, b), choose(b == 0, b, rest)
    return a


_LONGEST_EUCLID = {1: 13, 2: 24, 4: 46, 8: 92}  # divisions of the largest pair of Fibonacci numbers


def lcm(input: Tensor, other: Tensor) -> Tensor:
    """Return the least common multiple of two integers, broadcast; 0 where one is 0.

    Args:
        input: a tensor of integers.
        other: a tensor of integers or an int.

    Raises:
        DTypeError: floats or bools.

    Example:
        >>> import lucid
        >>> lucid.lcm(lucid.tensor([4, 7]), lucid.tensor([6, 0]))
        tensor([12,  0])
    """
    x, y = promoted(input, other, "lcm")
    divisor = gcd(x, y)
    return (x // choose(divisor == 0, 1, divisor) * y).abs()


def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """Return `input * 2 ** other`, broadcast, as a float: the inverse of taking it apart.

    Args:
        input: a tensor; integers and bools give the default float dtype.
        other: the exponents, a tensor.

    Raises:
        ArgumentError: a number in place of a tensor.

    Example:
        >>> import lucid
        >>> lucid.ldexp(lucid.tensor([1.0, 3.0]), lucid.tensor([4, -1]))
        tensor([16.0000,  1.5000])
    """
    return floating(input, "ldexp") * 2.0 ** floating(other, "ldexp")


def isposinf(input: Tensor) -> Tensor:
    """Return whether each element is positive infinity, which no integer is.

    Args:
        input: a tensor of any dtype.

    Example:
        >>> import lucid
        >>> lucid.isposinf(lucid.tensor([1.0, float("inf"), -float("inf")]))
        tensor([False,  True, False])
    """
    return _equals(input, math.inf, "isposinf")


def isneginf(input: Tensor) -> Tensor:
    """Return whether each element is negative infinity, which no integer is.

    Args:
        input: a tensor of any dtype.

    Example:
        >>> import lucid
        >>> lucid.isneginf(lucid.tensor([1.0, float("inf"), -float("inf")]))
        tensor([False, False,  True])
    """
    return _equals(input, -math.inf, "isneginf")


def _equals(input: Tensor, value: Number, op: str) -> Tensor:
    result: Tensor = floating(input, op) == value
    return result


def isreal(input: Tensor) -> Tensor:
    """Return whether each element is real: always, as lucid has no complex numbers.

    Args:
        input: a tensor of any dtype.

    Example:
        >>> import lucid
        >>> lucid.isreal(lucid.tensor([1.0, 2.0]))
        tensor([True, True])
    """
    x = tensor_of(input, "isreal")
    return emit(ops.broadcast, (constant(True, bool_),), shape=x._type.shape)


def angle(input: Tensor) -> Tensor:
    """Return the angle on the complex plane: 0, or pi of negative numbers; NaN of NaN.

    Args:
        input: a tensor; integers and bools give the default float dtype.

    Example:
        >>> import lucid
        >>> lucid.angle(lucid.tensor([2.0, -2.0]))
        tensor([0.0000, 3.1416])
    """
    x = floating(input, "angle")
    return choose(x != x, x, choose(x < 0, math.pi, 0.0))


def xlog1py(input: Any, other: Any) -> Tensor:
    """Return `input * log1p(other)`, a float, and 0 where `input` is 0 unless `other` is NaN.

    Args:
        input: a tensor or a number.
        other: likewise, broadcast and promoted; one of the two is a tensor.

    Example:
        >>> import lucid
        >>> lucid.special.xlog1py(lucid.tensor([0.0, 2.0]), lucid.tensor([-1.0, 3.0]))
        tensor([0.0000, 2.7726])
    """
    x, y = promoted(input, other, "xlog1py")
    nothing = (x == 0) & (y == y)
    return choose(nothing, 0.0, x * choose(nothing, 0.0, y).log1p())
