"""Reductions, statistics and running sums."""

from __future__ import annotations

import math
from math import prod as product
from typing import Any

from lucid import return_types
from lucid.dtypes import as_dtype
from lucid.functions import softmax as softmaxes
from lucid.functions.arguments import Dims, axes_of, axis_of, describe, tensor_of
from lucid.functions.elementwise import (
    abs as absolute,
)
from lucid.functions.elementwise import (
    choose,
    clone,
    exp,
    log,
    maximum,
    minimum,
    sqrt,
)
from lucid.functions.naming import numpy_names
from lucid.functions.promotion import floating, truth
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, DTypeError, OptionError
from lucid.ir.op import Op
from lucid.ir.types import DType, i64, u8
from lucid.return_types import Kind
from lucid.tensor.core import constant, emit


def _reduced(op: Op, x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Apply a reduction over axes; over none of a 0-d tensor it gives the element itself."""
    result = emit(op, (x,), axes=axes)
    return _kept(result, x, axes) if keepdim else result


def _kept(result: Tensor, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x._type.shape))
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


@numpy_names
def sum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Sum over `dim`, all axes by default; integers and bools are summed as int64.

    >>> import lucid
    >>> lucid.ones(2, 3).sum(1)
    tensor([3., 3.])
    """
    x = _summable(input, dtype, "sum")
    axes = axes_of(dim, x.ndim, "sum")
    if x._type.dtype.kind == "bool":  # asked for by dtype=lucid.bool
        return _reduced(ops.any, x, axes, keepdim)
    return _reduced(ops.sum, x, axes, keepdim)


@numpy_names
def mean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Average over `dim`, all axes by default; NaN of nothing. Raises `DTypeError` for integers."""
    x = tensor_of(input, "mean")
    if dtype is not None:
        x = _summable(x, dtype, "mean")
    _require_float(x, "mean")
    axes = axes_of(dim, x.ndim, "mean")
    total = _reduced(ops.sum, x, axes, keepdim)
    return total / float(_count(x, axes))


def _count(x: Tensor, axes: tuple[int, ...]) -> int:
    shape = x._type.shape
    return product(shape[axis] for axis in axes)


def _require_float(x: Tensor, op: str) -> None:
    if x._type.dtype.kind != "float":
        raise DTypeError(
            f"{op}: needs a floating-point tensor, got {x.dtype!r}{describe(x)}\n"
            "hint: convert with .float()"
        )


@numpy_names
def prod(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Multiply over `dim`, all axes by default; integers and bools as int64."""
    x = _summable(input, dtype, "prod")
    if dim is not None:
        axis_of(dim, x.ndim, "prod")
    axes = axes_of(dim, x.ndim, "prod")
    return _reduced(ops.all if x._type.dtype.kind == "bool" else ops.prod, x, axes, keepdim)


# ---------------------------------------------------------------------- extrema


@numpy_names
def amax(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Greatest element over `dim`, all axes by default; equal ones share the gradient."""
    x = tensor_of(input, "amax")
    return _reduced(ops.amax, x, axes_of(dim, x.ndim, "amax"), keepdim)


@numpy_names
def amin(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Smallest element over `dim`, all axes by default; equal ones share the gradient."""
    x = tensor_of(input, "amin")
    return _reduced(ops.amin, x, axes_of(dim, x.ndim, "amin"), keepdim)


@numpy_names
def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """Greatest element of all; along `dim` (values, indices); or elementwise of two tensors.

    >>> import lucid
    >>> lucid.tensor([[1, 5], [7, 2]]).max(1).indices
    tensor([1, 0])
    """
    how = ops.amax, ops.argmax, maximum
    return _extremum(return_types.max, input, dim, keepdim, other, how)


@numpy_names
def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """Smallest element of all; along `dim` (values, indices); or elementwise of two tensors."""
    how = ops.amin, ops.argmin, minimum
    return _extremum(return_types.min, input, dim, keepdim, other, how)


def _extremum(
    kind: type[Kind],
    input: Tensor,
    dim: Any,
    keepdim: bool,
    other: Any,
    how: tuple[Op, Op, Any],
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
    kept = _kept(emit(position, (x,), axis=axis), x, (axis,))
    return _picked(kind, x, kept, axis, keepdim)


def _picked(kind: type[Kind], x: Tensor, indices: Tensor, axis: int, keepdim: bool) -> Kind:
    values = emit(ops.gather, (x, indices), axis=axis)
    if keepdim:
        return kind(values, indices)
    shape = x._type.shape[:axis] + x._type.shape[axis + 1 :]
    return kind(
        emit(ops.reshape, (values,), shape=shape), emit(ops.reshape, (indices,), shape=shape)
    )


@numpy_names
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first greatest element along `dim`, or of the flattened tensor; NaN wins."""
    return _position(ops.argmax, input, dim, keepdim)


@numpy_names
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first smallest element along `dim`, or of the flattened tensor; NaN wins."""
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


# ---------------------------------------------------------------------- truth


@numpy_names
def any(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether any element over `dim` is true, that is, not zero; of uint8 a uint8, as PyTorch's."""
    x = truth(tensor_of(input, "any"), "any")
    found = _reduced(ops.any, x, axes_of(dim, x.ndim, "any"), keepdim)
    return emit(ops.cast, (found,), dtype=u8) if input.dtype is u8 else found


@numpy_names
def all(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether all elements over `dim` are true; of nothing, True; of uint8 a uint8."""
    x = truth(tensor_of(input, "all"), "all")
    found = _reduced(ops.all, x, axes_of(dim, x.ndim, "all"), keepdim)
    return emit(ops.cast, (found,), dtype=u8) if input.dtype is u8 else found


@numpy_names
def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """Number of elements over `dim` that are not zero, int64."""
    return sum(truth(tensor_of(input, "count_nonzero"), "count_nonzero"), dim)


# ---------------------------------------------------------------------- statistics


@numpy_names
def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Variance over `dim`: squared distances to the mean over `n - correction`, 1 by default.

    `unbiased=False` is `correction=0`; `x.var(False)` is read as this, as in PyTorch.
    """
    return var_mean(input, dim, unbiased, keepdim, correction=correction)[0]


@numpy_names
def var_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean, see `var`."""
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
    count = float(_count(x, axes) - correction)
    spread = _reduced(ops.sum, distance * distance, axes, keepdim) / (count if count > 0 else 0.0)
    if not keepdim and axes:
        center = emit(ops.reshape, (center,), shape=spread._type.shape)
    return spread, center


@numpy_names
def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Standard deviation over `dim`, see `var`; where it is 0, so is its derivative."""
    return _root(var(input, dim, unbiased, keepdim, correction=correction))


@numpy_names
def std_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the standard deviation and the mean, see `var`."""
    spread, center = var_mean(input, dim, unbiased, keepdim, correction=correction)
    return _root(spread), center


def _root(x: Tensor) -> Tensor:
    """Square root with derivative 0, rather than infinity, at 0."""
    zero = x == 0
    return choose(zero, 0.0, sqrt(choose(zero, 1.0, x)))


@numpy_names
def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """Return the p-norm over `dim`, all axes by default: 2 ("fro"), 1, 0, inf, -inf or any p.

    The derivative at 0 is 0. Raises: `DTypeError` for integers, `OptionError` for other names.
    """
    x = tensor_of(input, "norm")
    if dtype is not None:
        x = _summable(x, dtype, "norm")
    _require_float(x, "norm")
    axes = axes_of(dim, x.ndim, "norm")
    order = 2.0 if p is None or p == "fro" else p
    if isinstance(order, str):
        raise OptionError(f"norm: p must be a number or 'fro', not {p!r}")
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
        return _reduced(ops.sum, truth(x, "norm").to(x.dtype), axes, keepdim)
    return _reduced(ops.sum, size**order, axes, keepdim) ** (1.0 / order)


@numpy_names
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """Return `log(sum(exp(input)))` over `dim`, without overflow."""
    x = tensor_of(input, "logsumexp")
    if x._type.dtype.kind != "float":
        x = floating(x, "logsumexp")
    axes = axes_of(dim, x.ndim, "logsumexp")
    with_axes = _reduced(ops.amax, x.detach(), axes, True)
    top = choose(absolute(with_axes) == math.inf, 0.0, with_axes)
    total = log(_reduced(ops.sum, exp(x - top), axes, True)) + top
    if keepdim:
        return total
    shape = tuple(size for axis, size in enumerate(x._type.shape) if axis not in axes)
    return emit(ops.reshape, (total,), shape=shape)


# ---------------------------------------------------------------------- along an axis


@numpy_names
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running sums along `dim`; integers and bools as int64."""
    x = _summable(input, dtype, "cumsum")
    axis = axis_of(dim, x.ndim, "cumsum")
    return emit(ops.cumsum, (x,), axis=axis) if x.ndim else clone(x)


@numpy_names
def softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Return `exp(input) / sum(exp(input))` along `dim`, without overflow."""
    x = input if dtype is None else _summable(input, dtype, "softmax")
    return softmaxes.softmax(x, dim)


@numpy_names
def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Return `log(softmax(input))` along `dim`, accurate where the softmax is near 0."""
    x = input if dtype is None else _summable(input, dtype, "log_softmax")
    return softmaxes.log_softmax(x, dim)
