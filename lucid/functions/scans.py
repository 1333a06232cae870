"""Running products, extrema and logarithms of sums, differences of neighbours, and integrals.

Args:
    dim: the axis to go along, which keeps its size.
    y: the values of the function.
    x: its points: a vector, or as many as values. Default: None, equally far points.
    dx: how far these are.
"""

from __future__ import annotations

from typing import Any

from lucid import return_types
from lucid.autograd.function import Function
from lucid.autograd.native import runs_natively
from lucid.docstrings import like
from lucid.functions.arguments import axes_of, axis_of, integer, tensor_of
from lucid.functions.elementwise import clone
from lucid.functions.joining import cat
from lucid.functions.promotion import floating
from lucid.functions.reduction import _summable
from lucid.functions.shape import broadcast, sliced
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import DTypeError, OptionError, ShapeError
from lucid.ir.op import OPS
from lucid.ir.types import DType, bool_, i64, u8, u32
from lucid.return_types import Kind
from lucid.tensor.core import constant, emit

__all__ = [
    "cummax", "cummin", "cumprod", "cumulative_trapezoid", "diff", "gradient", "logcumsumexp",
    "trapezoid", "trapz",
]  # fmt: skip


def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Return the running products along `dim`: element i is the product of elements 0 to i.

    Integers and bools are multiplied as int64. The gradient is right where elements are zero, too.

    Args:
        input: a tensor of any dtype.
        dtype: what the elements are converted to before.

    >>> lucid.cumprod(lucid.tensor([1, 2, 3, 4]), 0)
    tensor([ 1,  2,  6, 24])
    """
    x = _summable(input, dtype, "cumprod")
    axis = axis_of(dim, x.ndim, "cumprod")
    return emit(ops.cumprod, (x,), axis=axis) if x.ndim else clone(x)


def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """Return the running `logsumexp` along `dim`, computed without overflow.

    Args:
        input: a tensor; integers and bools give the default float dtype.

    >>> lucid.logcumsumexp(lucid.tensor([1000.0, 1000.0, 1000.0]), 0)
    tensor([1000.0000, 1000.6932, 1001.0986])
    """
    x = floating(input, "logcumsumexp")
    axis = axis_of(dim, x.ndim, "logcumsumexp")
    return emit(ops.cumlogsumexp, (x,), axis=axis) if x.ndim else clone(x)


@like(cumprod)
def cummax(input: Tensor, dim: int) -> return_types.cummax:
    """Return (values, indices) of the greatest element so far along `dim`, the last of equals.

    From a NaN on all values are NaN.

    >>> lucid.cummax(lucid.tensor([1, 3, 2, 3]), 0)
    lucid.return_types.cummax(
    values=tensor([1, 3, 3, 3]),
    indices=tensor([0, 1, 1, 3]))
    """
    return _running_extremum(return_types.cummax, input, dim)


@like(cummax)
def cummin(input: Tensor, dim: int) -> return_types.cummin:
    """Return (values, indices) of the smallest element so far along `dim`, the last of equals.

    >>> lucid.cummin(lucid.tensor([3, 1, 2, 1]), 0)
    lucid.return_types.cummin(
    values=tensor([3, 1, 1, 1]),
    indices=tensor([0, 1, 1, 3]))
    """
    return _running_extremum(return_types.cummin, input, dim)


def _running_extremum(kind: type[Kind], input: Tensor, dim: int) -> Kind:
    op = kind.__name__
    x = tensor_of(input, op)
    axis = axis_of(dim, x.ndim, op)
    if not x.ndim:
        return kind(clone(x), constant(0, i64))
    return kind(*_RunningExtremum.apply(x, op, axis))


@runs_natively
class _RunningExtremum(Function):
    """What is greatest (smallest) so far, and where it was last reached."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, op: str, axis: int) -> tuple[Tensor, Tensor]:
        values = emit(OPS[op], (x,), axis=axis)
        places: Tensor = ops.reached(x, values, axis)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        ctx.axis = axis
        return values, places

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        zeros = ops.zeros_like(gradient)
        return emit(ops.scatter_add, (zeros, places, gradient), axis=ctx.axis), None, None


def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Return the differences of neighbours along `dim`, taken `n` times; of bools, the changes.

    Shapes: the axis loses `n` elements, but has no fewer than none.

    Args:
        input: a tensor of at least one axis.
        n: how often; 0 gives the tensor itself.
        dim: the axis to go along.
        prepend: what stands before the elements along the axis.
        append: what stands after them.

    Raises:
        OptionError: `n` is negative.

    >>> lucid.diff(lucid.tensor([1, 3, 6, 10]))
    tensor([2, 3, 4])
    >>> lucid.diff(lucid.tensor([1, 3, 6, 10]), 2)
    tensor([1, 1])
    """
    x = tensor_of(input, "diff")
    axis = axis_of(dim, x.ndim, "diff")
    parts = [part for part in (prepend, x, append) if part is not None]
    if len(parts) > 1:
        x = cat(parts, axis)
    order = integer(n, "diff", "n")
    if order < 0:
        raise OptionError(f"diff: n must not be negative, and is {order}")
    for _ in range(min(order, x._type.shape[axis])):  # then there are no more
        size = x._type.shape[axis]
        after, before = sliced(x, axis, min(1, size), size), sliced(x, axis, 0, max(size - 1, 0))
        x = after != before if x._type.dtype.kind == "bool" else after - before
    return x


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Integrate along `dim` by the trapezoidal rule, over points `x` or in steps of `dx`.

    Each pair of neighbours contributes half its sum times the distance of its points.

    Args:
        dim: the axis to go along, which the result lacks.

    Raises:
        OptionError: there are no points.
        ShapeError: another number of points than of values.

    >>> lucid.trapezoid(lucid.tensor([1.0, 2.0, 3.0]))
    tensor(4.)
    >>> lucid.trapezoid(lucid.tensor([1.0, 2.0, 3.0]), lucid.tensor([0.0, 2.0, 3.0]))
    tensor(5.5000)
    """
    axis = axis_of(dim, y.ndim, "trapezoid")
    size = y._type.shape[axis]
    if size == 0:
        raise OptionError(f"trapezoid: no points along dim {dim}")
    pairs = sliced(y, axis, 1, size) + sliced(y, axis, 0, size - 1)
    if x is None:
        return pairs.sum(axis) * (dx / 2)
    steps = diff(x) if x.ndim == 1 else diff(x, dim=axis)
    if x.ndim == 1:
        steps = steps.reshape(-1, *(1,) * (y.ndim - 1 - axis))
    return (broadcast(steps, pairs._type.shape) * pairs).sum(axis) / 2


trapz = trapezoid


@like(diff)
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1
) -> Tensor:
    """Return the running integral along `dim` by the trapezoidal rule, from the second point on.

    Shapes: that of `y`, with one element less along the axis.

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
        spacing: the distance of neighbours, one number for all axes. None is 1.
        dim: an axis or several to differentiate along. Default: None, each.
        edge_order: PyTorch's; 1 alone is supported.

    Raises:
        OptionError: several spacings or coordinates, or another `edge_order`.
        ShapeError: fewer than two elements along an axis.
        DTypeError: bools and unsigned integers.

    >>> lucid.gradient(lucid.tensor([1.0, 4.0, 9.0, 16.0]))
    (tensor([3., 4., 6., 7.]),)
    """
    x, spacing = tensor_of(input, "gradient"), 1.0 if spacing is None else spacing
    if edge_order != 1 or not isinstance(spacing, (int, float)):
        raise OptionError("gradient: takes one number as spacing, and edge_order=1")
    if x.dtype in (bool_, u8, u32):  # whose differences aren't theirs
        raise DTypeError(f"gradient: not implemented for {x.dtype!r}\nhint: tensor.float()")
    found = []
    for axis in axes_of(dim, x.ndim, "gradient"):
        size = x._type.shape[axis]
        if size < 2:
            raise ShapeError("gradient: needs at least 2 elements per dimension")
        step = diff(x, dim=axis)
        inner = (sliced(step, axis, 1, size - 1) + sliced(step, axis, 0, size - 2)) / 2
        ends = sliced(step, axis, 0, 1), sliced(step, axis, size - 2, size - 1)
        found.append(cat([ends[0], inner, ends[1]], axis) / spacing)
    return tuple(found)
