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
from lucid.choices import check_choice
from lucid.docstrings import like, maps
from lucid.functions.arguments import (
    axes_of,
    axis_of,
    distinct_axes,
    integer,
    listed,
    tensor_of,
)
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


@maps("[1, 2, 3, 4]", "0", "[ 1,  2,  6, 24]")
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Return the running products along `dim`: element i is the product of elements 0 to i.

    Integers and bools are multiplied as int64. The gradient is right where elements are zero, too.

    Args:
        input: a tensor of any dtype.
        dtype: what the elements are converted to before.
    """
    x = _summable(input, dtype, "cumprod")
    axis = axis_of(dim, x.ndim, "cumprod")
    return emit(ops.cumprod, (x,), axis=axis) if x.ndim else clone(x)


@maps("[1000.0, 1000.0, 1000.0]", "0", "[1000.0000, 1000.6932, 1001.0986]")
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """Return the running `logsumexp` along `dim`, computed without overflow.

    Args:
        input: a tensor; integers and bools give the default float dtype.
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


@maps("[1, 3, 6, 10]", "2", "[1, 1]")
@maps("[1, 3, 6, 10]", "[2, 3, 4]")
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
        n: how often; 0 gives the tensor itself, without what is joined to it.
        dim: the axis to go along.
        prepend: what stands before the elements along the axis.
        append: what stands after them.

    Raises:
        OptionError: `n` is negative.
    """
    x = tensor_of(input, "diff")
    axis = axis_of(dim, x.ndim, "diff")
    order = integer(n, "diff", "n")
    if order < 0:
        raise OptionError(f"diff: n must not be negative, and is {order}")
    parts = [part for part in (prepend, x, append) if part is not None]
    if order and len(parts) > 1:
        x = cat(parts, axis)
    for _ in range(min(order, x._type.shape[axis])):  # then there are no more
        size = x._type.shape[axis]
        after, before = sliced(x, axis, min(1, size), size), sliced(x, axis, 0, max(size - 1, 0))
        x = after != before if x._type.dtype.kind == "bool" else after - before
    return x


@maps("[1.0, 2.0, 3.0]", "[0.0, 2.0, 3.0]", "tensor(5.5000)")
@maps("[1.0, 2.0, 3.0]", "tensor(4.)")
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Integrate along `dim` by the trapezoidal rule, over points `x` or in steps of `dx`.

    Each pair of neighbours contributes half its sum times the distance of its points.

    Args:
        dim: the axis to go along, which the result lacks.

    Raises:
        OptionError: there are no points.
        ShapeError: another number of points than of values.
    """
    axis = axis_of(dim, y.ndim, "trapezoid")
    size = y._type.shape[axis]
    if size == 0:
        raise OptionError(f"trapezoid: no points along dim {dim}")
    pairs = sliced(y, axis, 1, size) + sliced(y, axis, 0, size - 1)
    if x is None:
        return pairs.sum(axis) * (dx / 2)
    return (broadcast(_steps(x, axis, y.ndim), pairs._type.shape) * pairs).sum(axis) / 2


trapz = trapezoid


def _steps(points: Tensor, axis: int, ndim: int) -> Tensor:
    """The distances of neighbouring points, as values of `ndim` axes have them along one."""
    steps = diff(points, dim=axis if points.ndim > 1 else 0)
    return steps if points.ndim > 1 else steps.reshape(-1, *(1,) * (ndim - 1 - axis))


@like(diff)
@maps("[1.0, 2.0, 3.0]", "[1.5000, 4.0000]")
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1
) -> Tensor:
    """Return the running integral along `dim` by the trapezoidal rule, from the second point on.

    Shapes: that of `y`, with one element less along the axis.
    """
    axis = axis_of(dim, y.ndim, "cumulative_trapezoid")
    size = y._type.shape[axis]
    pairs = (sliced(y, axis, 1, size) + sliced(y, axis, 0, size - 1)) / 2
    if x is None:
        return (pairs * dx).cumsum(axis)
    return (pairs * _steps(x, axis, y.ndim)).cumsum(axis)


@maps("[1.0, 4.0, 9.0, 16.0]", "edge_order=2", "(tensor([2., 4., 6., 8.]),)")
@maps("[1.0, 4.0, 9.0, 16.0]", "(tensor([3., 4., 6., 7.]),)")
def gradient(input: Tensor, *, spacing: Any = 1.0, dim: Any = None, edge_order: int = 1) -> Any:
    """Return central differences along each axis, one-sided at the ends, as a tuple of tensors.

    Args:
        input: a tensor of numbers, samples of a function on a grid.
        spacing: the distance of neighbours, one number for all axes, or for each axis a number or
            the vector of its coordinates. None is 1.
        dim: an axis or several to differentiate along. Default: None, each.
        edge_order: 1, or 2 for ends by the parabola through three points.

    Raises:
        OptionError: another number of spacings than of axes, or another `edge_order`.
        ShapeError: fewer than `edge_order + 1` elements, or another number of coordinates.
        DTypeError: bools and unsigned integers.
    """
    x, spacing = tensor_of(input, "gradient"), 1.0 if spacing is None else spacing
    check_choice(edge_order, "edge_order", "gradient", (1, 2))
    if x.dtype in (bool_, u8, u32):  # whose differences aren't theirs
        raise DTypeError(f"gradient: not implemented for {x.dtype!r}\nhint: tensor.float()")
    in_turn = isinstance(dim, (tuple, list)) and dim
    axes = (distinct_axes if in_turn else axes_of)(dim, x.ndim, "gradient")
    spacings = spacing if isinstance(spacing, (tuple, list)) else [spacing] * len(axes)
    if len(spacings) != len(axes) or isinstance(spacing, Tensor):
        raise OptionError(f"gradient: spacing is a number, or one for each of {len(axes)} axes")
    return tuple(_slopes(x, *each, edge_order) for each in zip(axes, spacings, strict=True))


def _slopes(x: Tensor, axis: int, spacing: Any, edge_order: int) -> Tensor:
    """Those of parabolas through three points: means of secants' slopes, the nearer counts more."""
    size = x._type.shape[axis]
    if size <= edge_order:
        raise ShapeError(f"gradient: needs at least {edge_order + 1} elements per dimension")

    def neighbours(secants: Tensor) -> tuple[Tensor, Tensor]:
        return sliced(secants, axis, 0, size - 2), sliced(secants, axis, 1, size - 1)

    slopes = diff(x, dim=axis)
    if isinstance(spacing, Tensor):
        if spacing._type.shape != (size,):
            given = listed(spacing=spacing)
            raise ShapeError(f"gradient: dim {axis} needs {size} coordinates{given}")
        steps = _steps(spacing, axis, x.ndim)
        before, after = neighbours(broadcast(steps, slopes._type.shape))
        slopes = slopes / steps
        left, right = neighbours(slopes)
        inner = (left * after + right * before) / (before + after)
    else:
        slopes = slopes / spacing
        left, right = neighbours(slopes)
        inner = (left + right) / 2
    ends = sliced(slopes, axis, 0, 1), sliced(slopes, axis, size - 2, size - 1)
    if edge_order == 2:
        nearest = sliced(inner, axis, 0, 1), sliced(inner, axis, size - 3, size - 2)
        ends = 2 * ends[0] - nearest[0], 2 * ends[1] - nearest[1]
    return cat([ends[0], inner, ends[1]], axis)
