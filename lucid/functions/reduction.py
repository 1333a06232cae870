"""Reductions, statistics and running sums.

Args:
    input: a tensor of any dtype.
    dim: an axis or several, which the result lacks. Default: None, all of them.
    dtype: what the elements are converted to before.
"""

from __future__ import annotations

import builtins
import math
from math import prod as product
from typing import Any

from lucid import return_types
from lucid.autograd.native import fused, program
from lucid.docstrings import like, maps
from lucid.dtypes import as_dtype
from lucid.functions import softmax as softmaxes
from lucid.functions.arguments import Dims, axes_of, axis_of, tensor_of
from lucid.functions.checks import require
from lucid.functions.elementwise import abs as absolute, choose, clone, maximum, minimum, sign, sqrt
from lucid.functions.products import matmul
from lucid.functions.promotion import floating, truth
from lucid.functions.shape import matrix_transpose, reshaped
from lucid.functions.sorting import sort
from lucid.functions.tensors import Tensor
from lucid.functions.transcendental import exp, log
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, DTypeError, OptionError, ShapeError
from lucid.ir.op import Op
from lucid.ir.types import DType, i64, u8
from lucid.return_types import Kind
from lucid.tensor.context import context
from lucid.tensor.core import constant, emit

__all__ = [
    "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "corrcoef", "count_nonzero",
    "cov", "cumsum", "log_softmax", "logsumexp", "max", "mean", "min", "mode", "nanmean",
    "nansum", "norm", "prod", "softmax", "std", "std_mean", "sum", "var", "var_mean",
]  # fmt: skip


def _reduced(op: Op, x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Apply a reduction over axes; over none of a 0-d tensor it gives the element itself."""
    result = emit(op, (x,), axes=axes)
    return _kept(result, x, axes) if keepdim else result


def _kept(result: Tensor, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    shape = tuple([1 if axis in axes else size for axis, size in enumerate(x._type.shape)])
    if result._type.shape == shape:
        return result
    return emit(ops.reshape, (result,), shape=shape)


def _summable(input: Any, dtype: DType | None, op: str) -> Tensor:
    """The tensor in the dtype of its sum: `dtype`, and i64 for integers and bools without one."""
    x = tensor_of(input, op)
    if dtype is not None:
        wanted = as_dtype(dtype, op)
    else:
        wanted = x._type.dtype if x._type.dtype.kind == "float" else i64
    return x if x._type.dtype is wanted else emit(ops.cast, (x,), dtype=wanted)


@maps("[True, True, False]", "tensor(2)")
@maps("lucid.ones(2, 3)", "1", "[3., 3.]")
def sum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Return the sum over `dim`, of all elements by default; of nothing it is 0.

    Integers and bools are summed as int64, floats in their own dtype.

    Raises:
        OptionError: an axis is named twice.
    """
    x = _summable(input, dtype, "sum")
    axes = axes_of(dim, x.ndim, "sum")
    if x._type.dtype.kind == "bool":  # asked for by dtype=lucid.bool
        return _reduced(ops.any, x, axes, keepdim)
    return _reduced(ops.sum, x, axes, keepdim)


@maps("[[1.0, 2.0], [3.0, 6.0]]", "0", "[2., 4.]")
def mean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Return the average over `dim`, of all elements by default; of nothing it is NaN.

    Args:
        input: a tensor of floats, unless `dtype` makes it one.

    Raises:
        DTypeError: integers or bools without a `dtype` of floats.
    """
    x = tensor_of(input, "mean")
    if dtype is not None:
        x = _summable(x, dtype, "mean")
    _require_float(x, "mean")
    axes = axes_of(dim, x.ndim, "mean")
    total = _reduced(ops.sum, x, axes, keepdim)
    return total / _count(x, axes)


def _count(x: Tensor, axes: tuple[int, ...]) -> int:
    shape = x._type.shape
    return product(shape[axis] for axis in axes)


def _require_float(x: Tensor, op: str) -> None:
    if x._type.dtype.kind != "float":
        raise DTypeError(
            f"{op}: needs a floating-point tensor, got {x.dtype!r}\nhint: convert with .float()"
        )


@maps("[[1, 2], [3, 4]]", "1", "[ 2, 12]")
def prod(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Return the product over `dim`, of all elements by default; of nothing it is 1.

    Integers and bools are multiplied as int64, floats in their own dtype.

    Args:
        dim: one axis, which the result lacks. Default: None, all of them.

    Raises:
        ArgumentError: several axes.
    """
    x = _summable(input, dtype, "prod")
    if dim is not None:
        axis_of(dim, x.ndim, "prod")
    axes = axes_of(dim, x.ndim, "prod")
    return _reduced(ops.all if x._type.dtype.kind == "bool" else ops.prod, x, axes, keepdim)


@maps("[[1, 5], [7, 2]]", "1", "[5, 7]")
def amax(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Return the greatest element over `dim`, of all by default; NaN where there is one.

    Equal ones share the gradient, unlike those of `max` along an axis.

    Args:
        dim: an axis or several, which the result lacks. Default: (), all of them.

    Raises:
        ShapeError: an axis has no elements.
    """
    x = tensor_of(input, "amax")
    return _reduced(ops.amax, x, axes_of(dim, x.ndim, "amax"), keepdim)


@like(amax)
@maps("[[1, 5], [7, 2]]", "1", "[1, 2]")
def amin(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Return the smallest element over `dim`, of all by default; NaN where there is one.

    Equal ones share the gradient, unlike those of `min` along an axis.
    """
    x = tensor_of(input, "amin")
    return _reduced(ops.amin, x, axes_of(dim, x.ndim, "amin"), keepdim)


def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """Return the greatest element of all, or (values, indices) along `dim`, or of two tensors.

    Along an axis the index is that of the first one among equals, which gets the gradient.

    Args:
        dim: the axis, which the results lack, or in its place the other tensor.
        other: a second tensor; then this is `maximum`.

    Raises:
        ArgumentError: both `dim` and `other`, or `keepdim` without a `dim`.
        ShapeError: an axis has no elements.

    >>> lucid.max(lucid.tensor([[1, 5], [7, 2]]))
    tensor(7)
    >>> lucid.max(lucid.tensor([[1, 5], [7, 2]]), 1).indices
    tensor([1, 0])
    """
    how = ops.amax, ops.argmax, maximum
    return _extremum(return_types.max, input, dim, keepdim, other, how)


@like(max)
def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """Return the smallest element of all, or (values, indices) along `dim`, or of two tensors.

    Args:
        other: a second tensor; then this is `minimum`.

    >>> lucid.min(lucid.tensor([[1, 5], [7, 2]]))
    tensor(1)
    >>> lucid.min(lucid.tensor([[1, 5], [7, 2]]), 1).indices
    tensor([0, 1])
    """
    how = ops.amin, ops.argmin, minimum
    return _extremum(return_types.min, input, dim, keepdim, other, how)


def _extremum(
    kind: type[Kind], input: Tensor, dim: Any, keepdim: bool, other: Any, how: tuple[Op, Op, Any]
) -> Any:
    name = kind.__name__
    x = tensor_of(input, name)
    whole, position, elementwise = how
    if isinstance(dim, Tensor):
        dim, other = None, dim
    if other is not None:
        if dim is not None or not isinstance(other, Tensor):
            raise ArgumentError(f"{name}: takes another tensor, or a dim, not {dim!r}, {other!r}")
        return elementwise(x, other)
    if dim is None:
        if keepdim:
            raise ArgumentError(f"{name}: keepdim needs a dim\nhint: use a{name}(keepdim=True)")
        return _reduced(whole, x, axes_of(None, x.ndim, name), False)
    axis = axis_of(dim, x.ndim, name)
    if x.ndim == 0:
        return kind(clone(x), constant(0, i64))
    found = emit(position, (x,), axis=axis)
    kept = _kept(found, x, (axis,))
    values = emit(ops.gather, (x, kept), axis=axis)
    if keepdim:
        return kind(values, kept)
    return kind(emit(ops.reshape, (values,), shape=found._type.shape), found)


@like(amax)
@maps("[[1, 5], [7, 2]]", "tensor(2)")
@maps("[[1, 5], [7, 2]]", "1", "[1, 0]")
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the index of the first greatest element along `dim`, or of the flattened tensor.

    A NaN counts as greater than all else. dtype: int64.

    Args:
        dim: one axis, which the result lacks. Default: None, the tensor in row-major order.
    """
    return _position(ops.argmax, input, dim, keepdim)


@like(argmax)
@maps("[[1, 5], [7, 2]]", "tensor(0)")
@maps("[[1, 5], [7, 2]]", "1", "[0, 1]")
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the index of the first smallest element along `dim`, or of the flattened tensor.

    A NaN counts as smaller than all else. dtype: int64.
    """
    return _position(ops.argmin, input, dim, keepdim)


def _position(op: Op, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    x = tensor_of(input, op.name)
    if dim is None or x.ndim == 0:
        if dim is not None:
            axis_of(dim, 0, op.name)
        flat = emit(ops.reshape, (x,), shape=(x._type.size,))
        result = emit(op, (flat,), axis=0)
        return _kept(result, x, tuple(range(x.ndim))) if keepdim else result
    axis = axis_of(dim, x.ndim, op.name)
    result = emit(op, (x,), axis=axis)
    return _kept(result, x, (axis,)) if keepdim else result


@like(sum)
@maps("[[0, 2], [0, 0]]", "1", "[ True, False]")
def any(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return whether any element over `dim` is true, that is, not zero; of nothing it is False.

    dtype: bool; of uint8 a uint8, as PyTorch's.
    """
    x = truth(tensor_of(input, "any"), "any")
    found = _reduced(ops.any, x, axes_of(dim, x.ndim, "any"), keepdim)
    return emit(ops.cast, (found,), dtype=u8) if input.dtype is u8 else found


@like(any)
@maps("[[3, 2], [0, 1]]", "1", "[ True, False]")
def all(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return whether all elements over `dim` are true, that is, not zero; of nothing it is True."""
    x = truth(tensor_of(input, "all"), "all")
    found = _reduced(ops.all, x, axes_of(dim, x.ndim, "all"), keepdim)
    return emit(ops.cast, (found,), dtype=u8) if input.dtype is u8 else found


@program
@maps("[[0, 2], [3, 4]]", "0", "[1, 2]")
def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """Return how many elements over `dim` are not zero, as int64; a NaN is not zero."""
    return sum(truth(tensor_of(input, "count_nonzero"), "count_nonzero"), dim)


@program
@maps("[1.0, 2.0, 3.0, 4.0]", "correction=0", "tensor(1.2500)")
def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Return the variance over `dim`, of all elements by default.

    It is the sum of the squared distances to the mean, divided by `n - correction`.

    Where `n` isn't above `correction` it is NaN or an infinity.

    Args:
        input: a tensor of floats.
        dim: an axis or several, which the result lacks. Default: None, all of them. A bool in its
            place is read as `unbiased`, as in PyTorch.
        unbiased: False is `correction=0`, True is `correction=1`.
        correction: what is taken off the number of elements. Default: None, 1.

    Raises:
        DTypeError: integers or bools.
        ArgumentError: both `unbiased` and `correction`.
    """
    return var_mean(input, dim, unbiased, keepdim, correction=correction)[0]


@like(var)
@program
@maps("[[1.0, 2.0], [3.0, 4.0]]", "0", "(tensor([2., 2.]), tensor([2., 3.]))")
def var_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean over `dim`, in this order; see `var`."""
    x = tensor_of(input, "var")
    _require_float(x, "var")
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise ArgumentError("var: takes unbiased or correction, not both")
    if correction is None:
        correction = 0 if unbiased is False else 1
    axes = axes_of(dim, x.ndim, "var")
    center = mean(x, axes, True) if axes else x
    distance = x - center
    count = _count(x, axes) - correction
    spread = _reduced(ops.sum, distance * distance, axes, keepdim) / (count if count > 0 else 0.0)
    if not keepdim and axes:
        center = emit(ops.reshape, (center,), shape=spread._type.shape)
    return spread, center


@like(var)
@program
@maps("[1.0, 2.0, 3.0]", "tensor(1.)")
def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Return the standard deviation over `dim`, the square root of `var`.

    Where it is 0, so is its derivative.
    """
    return _root(var(input, dim, unbiased, keepdim, correction=correction))


@like(var_mean)
@program
@maps("[[1.0, 2.0], [3.0, 4.0]]", "0", "(tensor([1.4142, 1.4142]), tensor([2., 3.]))")
def std_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the standard deviation and the mean over `dim`, in this order.

    The deviation is the square root of the variance; where it is 0, so is its derivative.
    """
    spread, center = var_mean(input, dim, unbiased, keepdim, correction=correction)
    return _root(spread), center


def _root(x: Tensor) -> Tensor:
    """Square root with derivative 0, rather than infinity, at 0."""
    if not (x.requires_grad or context.levels or context.forward or context.recorder):
        return sqrt(x)  # nobody asks for the derivative
    zero = x == 0
    return choose(zero, 0.0, sqrt(choose(zero, 1.0, x)))


@like(mean)
@program
@maps("[3.0, -4.0]", "1", "tensor(7.)")
@maps("[[3.0, 4.0], [6.0, 8.0]]", "dim=1", "[ 5., 10.]")
def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Return the p-norm over `dim`, of all elements by default: `sum(abs(input)**p)**(1 / p)`.

    inf is the greatest absolute value, -inf the smallest, 0 the number of elements that aren't 0.
    The derivative of the 2-norm at 0 is 0, and so is that of the number of elements everywhere.

    Args:
        p: a number; "fro" and None are 2, "nuc" is the sum of a matrix's singular values.

    Raises:
        DTypeError: integers or bools without a `dtype` of floats.
        OptionError: another string as `p`, or "nuc" over other than two axes.
        ShapeError: inf or -inf over an axis without elements.
    """
    x = tensor_of(input, "norm")
    if dtype is not None:
        x = _summable(x, dtype, "norm")
    _require_float(x, "norm")
    axes = axes_of(dim, x.ndim, "norm")
    if p == "nuc":
        from lucid.functions.norms import matrix_norm

        if len(axes) != 2:
            raise OptionError(f"norm: p='nuc' needs a matrix, two axes, not {len(axes)}")
        return matrix_norm(x, p, axes, keepdim)
    order = 2.0 if p is None or p == "fro" else p
    if isinstance(order, str):
        raise OptionError(f"norm: p must be a number, 'fro' or 'nuc', not {p!r}")
    if order == 2:
        return _root(_reduced(ops.sum, x * x, axes, keepdim))
    size = absolute(x)
    if order == math.inf:
        return _reduced(ops.amax, size, axes, keepdim)
    if order == -math.inf:
        return _reduced(ops.amin, size, axes, keepdim)
    if order == 1:
        return _reduced(ops.sum, size, axes, keepdim)
    if order == 0:
        return _reduced(ops.sum, choose(x == 0, sign(x), 1.0), axes, keepdim)
    powers = size**order if order > 1 else _power(size, order)
    return _power(_reduced(ops.sum, powers, axes, keepdim), 1.0 / order)


def _power(x: Tensor, exponent: float) -> Tensor:
    """A power of what isn't negative; where that is 0, no gradient comes through."""
    is_zero = x == 0
    at_zero = 0.0 if exponent > 0 else math.inf
    return choose(is_zero, at_zero, choose(is_zero, 1.0, x) ** exponent)


@program
@maps("[1000.0, 1000.0]", "0", "tensor(1000.6932)")
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """Return `log(sum(exp(input)))` over `dim`, computed without overflow.

    Args:
        input: a tensor; integers and bools give the default float dtype.
        dim: an axis or several, which the result lacks. Of nothing it is -inf.
    """
    x = tensor_of(input, "logsumexp")
    if x._type.dtype.kind != "float":
        x = floating(x, "logsumexp")
    axes = axes_of(dim, x.ndim, "logsumexp")
    if _count(x, axes) == 0:
        return _reduced(ops.sum, x, axes, keepdim) - math.inf
    with_axes = _reduced(ops.amax, x.detach(), axes, True)
    top = choose(absolute(with_axes) == math.inf, 0.0, with_axes)
    total = log(_reduced(ops.sum, exp(x - top), axes, True)) + top
    if keepdim:
        return total
    shape = tuple(size for axis, size in enumerate(x._type.shape) if axis not in axes)
    return emit(ops.reshape, (total,), shape=shape)


@like(sum)
@maps("[[1, 2, 3], [4, 5, 6]]", "1", "[[ 1,  3,  6], [ 4,  9, 15]]")
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Return the running sums along `dim`: element i is the sum of elements 0 to i.

    Args:
        dim: the axis to go along, which keeps its size.
    """
    x = _summable(input, dtype, "cumsum")
    axis = axis_of(dim, x.ndim, "cumsum")
    return emit(ops.cumsum, (x,), axis=axis) if x.ndim else clone(x)


@like(mean)
@maps("[0.0, 0.0, 1000.0]", "0", "[0., 0., 1.]")
def softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Return `exp(input) / sum(exp(input))` along `dim`, computed without overflow.

    Args:
        dim: the axis whose elements sum to 1 then.
    """
    x = input if dtype is None else _summable(input, dtype, "softmax")
    return softmaxes.softmax(x, dim)


@like(mean)
@maps("[0.0, 0.0, 1000.0]", "0", "[-1000., -1000.,     0.]")
def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Return `log(softmax(input))` along `dim`, accurate where the softmax is near 0.

    Args:
        dim: the axis along which the exponentials of the result sum to 1.
    """
    x = input if dtype is None else _summable(input, dtype, "log_softmax")
    return softmaxes.log_softmax(x, dim)


def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False
) -> return_types.aminmax:
    """Return (min, max), the least and the greatest element, of all or along `dim`.

    Args:
        dim: one axis, which the results lack. Default: None, all of them.

    Raises:
        ShapeError: an axis has no elements.

    >>> lucid.aminmax(lucid.tensor([[1, 5], [7, 2]]), dim=1)
    lucid.return_types.aminmax(
    min=tensor([1, 2]),
    max=tensor([5, 7]))
    """
    x = tensor_of(input, "aminmax")
    axes: Any = tuple(range(x.ndim)) if dim is None else dim
    return return_types.aminmax(x.amin(axes, keepdim=keepdim), x.amax(axes, keepdim=keepdim))


@program
@maps('[1.0, float("nan"), 2.0]', "tensor(3.)")
def nansum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Return the sum over `dim` of the elements that are no NaN; of none it is 0.

    Args:
        input: a tensor of any dtype; integers and bools are summed as int64.
    """
    x = tensor_of(input, "nansum")
    return sum(choose(x != x, 0, x), dim, keepdim, dtype=dtype)


@like(nansum)
@fused
@maps('[1.0, float("nan"), 2.0]', "tensor(1.5000)")
def nanmean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Return the mean over `dim` of the elements that are no NaN; of none it is NaN.

    Args:
        input: a tensor of any dtype; of integers and bools the mean is a float.
        dtype: the dtype to sum in.
    """
    x = tensor_of(input, "nanmean")
    count = sum(x == x, dim, keepdim)
    return nansum(x, dim, keepdim, dtype=dtype) / count


def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> return_types.mode:
    """Return (values, indices) of the most frequent element along `dim`.

    Of equally frequent ones it is the least; the index is that of its last occurrence.

    Args:
        dim: the axis to look along, which the results lack.

    Raises:
        ShapeError: the axis has no elements.

    >>> lucid.mode(lucid.tensor([2, 1, 3, 2]))
    lucid.return_types.mode(
    values=tensor(2),
    indices=tensor(3))
    """
    x = tensor_of(input, "mode")
    if not x.ndim:
        return return_types.mode(x.clone(), constant(0, i64))
    axis = axis_of(dim, x.ndim, "mode")
    lines = x.movedim(axis, -1)
    index = _most_frequent(lines)
    values = _at(lines, index)
    if keepdim:
        return return_types.mode(values.movedim(-1, axis), index.movedim(-1, axis))
    return return_types.mode(values.squeeze(-1), index.squeeze(-1))


@program
def _most_frequent(x: Tensor) -> Tensor:
    """Where the most frequent element of each line lies last, with an axis of size 1."""
    ordered, places = sort(x, stable=True)
    last, shape = ordered.ndim - 1, ordered._type.shape
    place = emit(ops.iota, (), shape=shape, axis=last, dtype=i64)
    is_new = ordered != ordered.roll(1, last)
    begin = emit(ops.cummax, (choose(is_new, place, 0),), axis=last)  # of equal ones
    return _at(places, (place - begin).argmax(-1, keepdim=True))


def _at(x: Tensor, index: Tensor) -> Tensor:
    return emit(ops.gather, (x, index), axis=x.ndim - 1)


@maps("[[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]", "[[ 1., -1.], [-1.,  1.]]")
def cov(
    input: Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> Tensor:
    """Return the covariances of variables, the rows, from observations, the columns.

    Shapes: (variables, observations) gives (variables, variables), one variable a 0-d tensor.

    Args:
        input: a tensor of at most two axes; integers give floats.
        correction: what is taken off the number of observations to divide by.
        fweights: how often each observation counts, a vector of integers. Default: None, once.
        aweights: how much each observation counts, a vector. Default: None, equally.

    Raises:
        ShapeError: more than two axes, or weights that aren't one for each observation.
        DTypeError: `fweights` that aren't integers, `aweights` that aren't floats.
        OptionError: a weight is negative.
    """
    x = floating(input, "cov")
    if x.ndim > 2:
        raise ShapeError("cov: expected input to have two or fewer dimensions")
    rows = reshaped(x, (1, x._type.size)) if x.ndim < 2 else x
    count, weights = rows._type.shape[1], None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None:
            _check_weights(given, name, count)
            weights = given if weights is None else weights * given
    if weights is None:
        centred = rows - rows.mean(1, keepdim=True)
        result = matmul(centred, matrix_transpose(centred)) / builtins.max(count - correction, 0)
    else:
        total = weights.sum()
        centred = rows - (rows * weights).sum(1, keepdim=True) / total
        if aweights is None:
            divisor = total - correction
        else:
            divisor = total - correction * (weights * aweights).sum() / total
        result = matmul(centred * weights, matrix_transpose(centred)) / divisor
    return reshaped(result, ()) if result._type.size == 1 else result


def _check_weights(weights: Tensor, name: str, count: int) -> None:
    found, kind = tensor_of(weights, "cov", name)._type, "int" if name == "fweights" else "float"
    if found.dtype.kind != kind:
        raise DTypeError(f"cov: {name} must be {kind}s, not {found.dtype!r}")
    if found.shape != (count,):
        raise ShapeError(f"cov: {name} must be one for each of {count} observations, not {found}")
    require(weights >= 0, f"cov: {name} cannot be negative", **{name: weights})


@like(cov)
@maps("[[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]]", "[[ 1., -1.], [-1.,  1.]]")
def corrcoef(input: Tensor) -> Tensor:
    """Return the correlations of variables, the rows, from observations, the columns.

    They are within [-1, 1]; of a variable that does not vary they are NaN. Shapes: as `cov`.
    """
    c = cov(input)
    if not c.ndim:
        return c / c
    deviation = c.diagonal().sqrt()
    result: Tensor = c / deviation[:, None] / deviation[None, :]
    return result.clamp(-1, 1)
