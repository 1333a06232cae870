"""Statistics: extrema, sums and means without NaN, the mode, covariances."""

from __future__ import annotations

from typing import Any

from lucid import return_types
from lucid.docstrings import like
from lucid.functions.arguments import Dims, axis_of, numpy_names, tensor_of
from lucid.functions.elementwise import choose
from lucid.functions.products import matmul
from lucid.functions.promotion import floating
from lucid.functions.reduction import sum
from lucid.functions.shape import matrix_transpose, reshaped, unsqueeze
from lucid.functions.sorting import sort
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import ShapeError
from lucid.ir.types import DType, i64
from lucid.tensor.core import constant, emit

__all__ = ["aminmax", "corrcoef", "cov", "mode", "nanmean", "nansum"]


@numpy_names
def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False
) -> return_types.aminmax:
    """Return (min, max), the least and the greatest element, of all or along `dim`.

    Args:
        input: a tensor of any dtype.
        dim: one axis, which the results lack. Default: None, all of them.

    Raises:
        ShapeError: an axis has no elements.

    Example:
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
        dtype: what the elements are converted to before. Default: None.

    Example:
        >>> lucid.nansum(lucid.tensor([1.0, float("nan"), 2.0]))
        tensor(3.)
    """
    x = tensor_of(input, "nansum")
    return sum(choose(x != x, 0, x), dim, keepdim, dtype=dtype)


@numpy_names
@like(nansum)
def nanmean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Return the mean over `dim` of the elements that are no NaN; of none it is NaN.

    Args:
        input: a tensor of any dtype; of integers and bools the mean is a float.
        dtype: the dtype to sum in. Default: None.

    Example:
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

    Raises:
        ShapeError: the axis has no elements.

    Example:
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
        >>> lucid.cov(lucid.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    x = floating(input, "cov")
    if x.ndim > 2:
        raise ShapeError("cov: expected input to have two or fewer dimensions")
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


@like(cov)
def corrcoef(input: Tensor) -> Tensor:
    """Return the correlations of variables, the rows, from observations, the columns.

    They are within [-1, 1]; of a variable that does not vary they are NaN. Shapes: as `cov`.

    Example:
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
