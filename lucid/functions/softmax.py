"""softmax and log_softmax along one axis, by subtracting the largest logit first."""

from __future__ import annotations

import math
from collections.abc import Callable

from lucid.docstrings import like, maps
from lucid.functions.elementwise import where
from lucid.functions.gradients import with_gradient
from lucid.functions.tensors import Tensor
from lucid.ir.errors import DTypeError, IndexOutOfRangeError
from lucid.ir.location import warn
from lucid.ir.types import DType

__all__ = ["log_softmax", "softmax", "softmin"]


def _softmax_vjp(g: Tensor, y: Tensor, dim: int) -> Tensor:
    return y * (g - (g * y).sum(dim, keepdim=True))


@with_gradient(_softmax_vjp)
def _softmax(x: Tensor, dim: int) -> Tensor:
    """exp(x) over its sum along an axis. A row of -inf gives NaN."""
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


@with_gradient(_softmax_vjp)
def masked_softmax(x: Tensor, dim: int) -> Tensor:
    """Softmax in which -inf means "not there": a row of -inf gives zeros, not NaN."""
    largest = x.amax(dim, keepdim=True)
    e = (x - where(largest == -math.inf, 0.0, largest)).exp()
    total = e.sum(dim, keepdim=True)
    return e / where(total == 0, 1.0, total)


@with_gradient(lambda g, y, dim: g - y.exp() * g.sum(dim, keepdim=True))
def _log_softmax(x: Tensor, dim: int) -> Tensor:
    """x - log(sum(exp(x))) along an axis."""
    z = x - x.amax(dim, keepdim=True)
    return z - z.exp().sum(dim, keepdim=True).log()


def _implicit_dim(name: str, ndim: int) -> int:
    warn(
        f"Implicit dimension choice for {name} has been deprecated. "
        "Change the call to include dim=X as an argument.",
        UserWarning,
    )
    return 0 if ndim in (0, 1, 3) else 1


def _along(
    function: Callable[[Tensor, int], Tensor],
    name: str,
    x: Tensor,
    dim: int | None,
    dtype: DType | None,
) -> Tensor:
    """Apply `function` along an axis that is checked here; a 0-d tensor counts as one element."""
    if dtype is not None:
        x = x.to(dtype)
    shape = x._type.shape
    if x._type.dtype.kind != "float":
        raise DTypeError(
            f"{name}: floats are needed, not {x._type}\nhint: {name}(x, dim, dtype=lucid.float32)"
        )
    if dim is None:
        dim = _implicit_dim(name, len(shape))
    rank = len(shape) or 1
    if not -rank <= dim < rank:
        raise IndexOutOfRangeError(
            f"{name}: Dimension out of range (expected to be in range of "
            f"[{-rank}, {rank - 1}], but got {dim})"
        )
    if not shape:
        return _along(function, name, x.reshape(1), 0, None).reshape(())
    return x.clone() if 0 in shape else function(x, dim % rank)


@maps("[1.0, 2.0, 3.0]", "0", "[0.0900, 0.2447, 0.6652]")
def softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:
    """Return exp(input) divided by its sum along `dim`, the largest logit subtracted first.

    The elements along the axis add up to 1; a row of -inf gives NaN.

    Args:
        input: a tensor of floats.
        dim: the axis. Default: None, PyTorch's old choice, with a warning.
        dtype: the input is cast to it first.

    Raises:
        DTypeError: integers without a dtype.
    """
    return _along(_softmax, "softmax", input, dim, dtype)


@like(softmax)
@maps("[0.0, 1000.0]", "0", "[-1000.,     0.]")
def log_softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:
    """Return log(softmax(input, dim)), accurate where the softmax underflows.

    It is `input - logsumexp(input, dim)`.
    """
    return _along(_log_softmax, "log_softmax", input, dim, dtype)


@like(softmax)
def softmin(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:
    """Return softmax(-input, dim): the smallest element has the largest share.

    Raises:
        DTypeError: integers without a dtype.

    >>> lucid.nn.functional.softmin(lucid.tensor([1.0, 2.0]), 0)
    tensor([0.7311, 0.2689])
    """
    return _along(_softmax, "softmin", -input, dim, dtype)
