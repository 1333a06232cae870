"""The affine map."""

from __future__ import annotations

from math import prod

from lucid.autograd.native import composite
from lucid.ir.errors import DTypeError, ShapeError
from lucid.ir.types import f32
from lucid.tensor.tensor import Tensor

__all__ = ["linear"]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the affine map input @ weight.T + bias of each row, as `nn.Linear` does.

    Shapes: input (*, k), weight (n, k) or (k,), bias (n,) or (); result (*, n) or (*).

    Args:
        input: (*, k).
        weight: (n, k), or (k,) for one feature.
        bias: (n,), or () beside a vector of weights. None for nothing.

    Raises:
        ShapeError: the last axes differ.
        DTypeError: input and weight are of two dtypes.

    >>> F.linear(lucid.ones(2, 3), lucid.ones(4, 3), lucid.zeros(4))
    tensor([[3., 3., 3., 3.],
            [3., 3., 3., 3.]])
    """
    if input.dtype is not weight.dtype:
        dtypes = f"input is {input.dtype!r}, weight is {weight.dtype!r}"
        remedy = "input.float()" if weight.dtype is f32 else "input.to(weight.dtype)"
        raise DTypeError(f"linear: {dtypes}\nhint: {remedy}")
    rows, matrix = input._type.shape, weight._type.shape
    if not rows or len(matrix) not in (1, 2) or rows[-1] != matrix[-1]:
        shapes = f"input of shape {list(rows)} and weight of shape {list(matrix)} don't fit"
        raise ShapeError(f"linear: {shapes}: their last axes must be equal{_remedy(input, weight)}")
    if len(matrix) == 2 and len(rows) != 2:
        return _linear_rows(bias, weight, input)
    return _linear(bias, input, weight)


# Their arguments come in the order in which gradients arrive where they run op by op.


@composite
def _linear(bias: Tensor | None, input: Tensor, weight: Tensor) -> Tensor:
    y = input @ (weight.T if weight.ndim == 2 else weight)
    return y if bias is None else y + bias


@composite
def _linear_rows(bias: Tensor | None, weight: Tensor, input: Tensor) -> Tensor:
    if input.ndim == 1:
        y = weight @ input
    else:  # one matrix product, not one per leading index
        rows = input.reshape(-1, input.shape[-1]) if input.shape[-1] else input.flatten(0, -2)
        y = (rows @ weight.T).reshape(*input.shape[:-1], weight.shape[0])
    return y if bias is None else y + bias


def _remedy(input: Tensor, weight: Tensor) -> str:
    """The hint where the input's last axes together, or its last axis but one, would fit."""
    shape, wanted = tuple(input.shape), weight.shape[-1]
    if len(shape) > 2 and prod(shape[1:]) == wanted:
        return "\nhint: put an nn.Flatten() before it"
    if len(shape) > 1 and shape[-2] == wanted:
        return "\nhint: the last axis is the one of features: input.transpose(-1, -2)"
    return ""
