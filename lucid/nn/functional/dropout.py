"""Dropout: the mask comes from the generator's state, so eager and compiled draw the same bits."""

from __future__ import annotations

from typing import Any

import lucid
from lucid.autograd import Function
from lucid.autograd.native import runs_natively
from lucid.ir.errors import OptionError
from lucid.ir.types import f32
from lucid.nn.functional.calls import apply
from lucid.tensor.tensor import Tensor

__all__ = ["dropout"]


@runs_natively
class Dropout(Function):
    """x where a uniform number falls below `keep`, scaled by 1 / keep, else 0 * x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, uniform: Tensor, keep: float) -> Tensor:
        noise = (uniform < keep).to(x.dtype) / keep
        ctx.save_for_backward(noise)
        return x * noise

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (noise,) = ctx.saved_tensors
        return g * noise, None, None


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p), if training.

    Aliasing: the result is `input` itself when nothing is to be done.

    Raises `OptionError` for p outside of [0, 1].

    Args:
        input: the tensor, of a float dtype.
        p: the probability of an element to be dropped. Default: 0.5.
        training: draw; else the input comes back. Default: True.
        inplace: write the result into `input` and return that. Default: False.

    Example:
        >>> import lucid
        >>> import lucid.nn.functional as F
        >>> F.dropout(lucid.ones(3), training=False)
        tensor([1., 1., 1.])
        >>> F.dropout(lucid.ones(1000), 0.5).mean() < 1.2
        tensor(True)
    """
    if not 0.0 <= p <= 1.0:
        raise OptionError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0 or 0 in input.shape:
        return input
    if p == 1.0:
        y: Tensor = input * 0.0
    else:
        y = apply(Dropout, input, lucid.rand(input.shape, dtype=f32), 1.0 - p)
    return input.copy_(y) if inplace else y
