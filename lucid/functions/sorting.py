"""Order: sort, argsort, topk.

Args:
    input: a tensor of any dtype.
"""

from __future__ import annotations

from lucid import return_types
from lucid.choices import check_flag
from lucid.docstrings import like
from lucid.functions.arguments import axis_of, integer, tensor_of
from lucid.functions.elementwise import clone
from lucid.functions.naming import numpy_names
from lucid.functions.shape import sliced
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import OptionError
from lucid.ir.types import i64
from lucid.tensor.core import constant, emit

__all__ = ["argsort", "msort", "sort", "topk"]


@numpy_names
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Return the indices that sort the elements along `dim`, as int64.

    Equal elements keep their order in either direction, and a NaN counts as the greatest.

    Args:
        dim: the axis to sort along. Default: -1.
        descending: whether the greatest come first. Default: False.
        stable: True or False; sorting is stable with either. Default: False.

    Raises:
        ArgumentError: `stable` is no bool.

    Example:
        >>> lucid.argsort(lucid.tensor([3, 1, 2]))
        tensor([1, 2, 0])
    """
    x = tensor_of(input, "argsort")
    check_flag(stable, "stable", "argsort", or_none=True)
    axis = axis_of(dim, x.ndim, "argsort")
    if not x.ndim:
        return constant(0, i64)
    return emit(ops.argsort, (x,), axis=axis, descending=bool(descending))


@numpy_names
@like(argsort)
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> return_types.sort:
    """Return (values, indices) in order along `dim`; gradients flow to the values.

    Example:
        >>> lucid.sort(lucid.tensor([3, 1, 2]), descending=True)
        lucid.return_types.sort(
        values=tensor([3, 2, 1]),
        indices=tensor([0, 2, 1]))
    """
    x = tensor_of(input, "sort")
    indices = argsort(x, dim, descending, stable)
    if not x.ndim:
        return return_types.sort(clone(x), indices)
    values = emit(ops.gather, (x, indices), axis=axis_of(dim, x.ndim, "sort"))
    return return_types.sort(values, indices)


def msort(input: Tensor) -> Tensor:
    """Return the elements in ascending order along axis 0, each column by itself.

    Example:
        >>> lucid.msort(lucid.tensor([[3, 1], [2, 5], [1, 4]]))
        tensor([[1, 1],
                [2, 4],
                [3, 5]])
    """
    return sort(input, 0).values


@numpy_names
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> return_types.topk:
    """Return (values, indices) of the k greatest, or smallest, elements along `dim`, in order.

    Gradients flow to the values; a NaN counts as the greatest.

    Args:
        k: how many, from 0 to the size of the axis.
        dim: the axis to look along. Default: -1.
        largest: whether the greatest are wanted, else the smallest. Default: True.
        sorted: True or False; they are in order with either. Default: True.

    Raises:
        ArgumentError: `sorted` is no bool.
        OptionError: `k` is negative or more than there are.

    Example:
        >>> lucid.topk(lucid.tensor([3, 1, 4, 2]), 2)
        lucid.return_types.topk(
        values=tensor([4, 3]),
        indices=tensor([2, 0]))
    """
    x = tensor_of(input, "topk")
    check_flag(sorted, "sorted", "topk")
    axis = axis_of(dim, x.ndim, "topk")
    size = x._type.shape[axis] if x.ndim else 1
    count = integer(k, "topk", "k")
    if not 0 <= count <= size:
        raise OptionError(f"topk: selected index k out of range: {count} of {size}")
    indices = argsort(x, dim, descending=largest)
    if not x.ndim:
        return return_types.topk(clone(x), indices)
    indices = clone(sliced(indices, axis, 0, count))
    return return_types.topk(emit(ops.gather, (x, indices), axis=axis), indices)
