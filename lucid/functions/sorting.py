"""Order: sort, argsort, topk."""

from __future__ import annotations

from lucid import return_types
from lucid.functions.arguments import axis_of, integer, tensor_of
from lucid.functions.elementwise import clone
from lucid.functions.naming import numpy_names
from lucid.functions.shape import sliced
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import OptionError
from lucid.ir.types import i64
from lucid.tensor.core import constant, emit


@numpy_names
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Return the indices that sort along `dim`; equal ones keep their order, NaN is greatest."""
    x = tensor_of(input, "argsort")
    axis = axis_of(dim, x.ndim, "argsort")
    if not x.ndim:
        return constant(0, i64)
    return emit(ops.argsort, (x,), axis=axis, descending=bool(descending))


@numpy_names
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> return_types.sort:
    """Return (values, indices) in order along `dim`; equal elements keep theirs, NaN is greatest.

    >>> import lucid
    >>> lucid.tensor([3, 1, 2]).sort().values
    tensor([1, 2, 3])
    """
    x = tensor_of(input, "sort")
    indices = argsort(x, dim, descending, stable)
    if not x.ndim:
        return return_types.sort(clone(x), indices)
    values = emit(ops.gather, (x, indices), axis=axis_of(dim, x.ndim, "sort"))
    return return_types.sort(values, indices)


def msort(input: Tensor) -> Tensor:
    """Return the elements in ascending order along axis 0."""
    return sort(input, 0).values


@numpy_names
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> return_types.topk:
    """Return (values, indices) of the k greatest (or smallest) elements along `dim`, in order.

    `sorted=False` is sorted all the same.
    """
    x = tensor_of(input, "topk")
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
