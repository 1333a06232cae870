"""Limit gradients in place: by their common norm, or each element by its size.

Args:
    parameters: whose gradients are meant; one tensor, or several.
    norm_type: the order of the norm.
    error_if_nonfinite: raise `LucidError` for a norm that is NaN or infinite.
    max_norm: the bound.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

import lucid
from lucid.autograd.modes import no_grad
from lucid.choices import check_flags
from lucid.compiler.recording import hooks
from lucid.compiler.repeated import RepeatedByShape
from lucid.functions.checks import require
from lucid.ir.errors import OptionError
from lucid.tensor.context import within
from lucid.tensor.core import of_array
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_

_TINY = 1e-6  # keeps the scale finite for a norm of 0


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    tensors = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    gradients = [tensor.grad for tensor in tensors]
    return [gradient for gradient in gradients if gradient is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all elements of the tensors taken as one vector; 0-d.

    Args:
        tensors: what is measured; one tensor, or several.

    Raises:
        OptionError: `norm_type` isn't positive.

    >>> nn.utils.get_total_norm([lucid.tensor([3.0]), lucid.tensor([4.0])])
    tensor(5.)
    """
    check_flags("get_total_norm", foreach=foreach)
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)
    if norm_type <= 0:
        raise OptionError(f"norm_type must be positive, got {norm_type}")
    if not tensors:
        return lucid.tensor(0.0)
    total = within({"grad_enabled": False}, _norm, [x.detach() for x in tensors], norm_type)
    if error_if_nonfinite:
        _refuse_nonfinite(total, norm_type)
    return total


def _norm(tensors: list[Tensor], norm_type: float) -> Tensor:
    """One sum (or maximum) per tensor, combined at the end."""
    if norm_type == math.inf:
        parts = [tensor.abs().amax() for tensor in tensors if tensor.numel()]
        return lucid.stack(parts).amax() if parts else lucid.zeros((), dtype=tensors[0].dtype)
    if norm_type == 1.0:
        powers = [tensor.abs().sum() for tensor in tensors]
    elif norm_type == 2.0:
        powers = [(tensor * tensor).sum() for tensor in tensors]
    else:
        powers = [(tensor.abs() ** norm_type).sum() for tensor in tensors]
    total = powers[0]
    for power in powers[1:]:
        total = total + power
    if norm_type == 1.0:
        return total
    return total.sqrt() if norm_type == 2.0 else total ** (1.0 / norm_type)


def _refuse_nonfinite(total: Tensor, norm_type: float) -> None:
    text = (
        f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it "
        "cannot be clipped. To disable this error and scale the gradients by the non-finite norm "
        "anyway, set `error_if_nonfinite=False`"
    )
    require(total.isfinite(), text, "state")


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their common norm is at most `max_norm`, in place.

    Returns the norm before, 0-d. Parameters without gradient are left out.

    Raises: see `get_total_norm`.

    >>> w = lucid.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w / 2).sum().backward()
    >>> nn.utils.clip_grad_norm_([w], 1.0), w.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    check_flags("clip_grad_norm_", foreach=foreach)
    gradients = _gradients(parameters)
    if gradients and not error_if_nonfinite and _may_be_native(max_norm):
        clipped: Tensor = _clipping(float(norm_type))(_argument(max_norm), *gradients)
        return clipped
    total = get_total_norm(gradients, norm_type, error_if_nonfinite)
    _scale(gradients, max_norm, total)
    return total


@functools.lru_cache(maxsize=16)
def _clipping(norm_type: float) -> RepeatedByShape:
    """What scales gradients, given after the greatest norm, and returns their norm."""

    def clip(limit: Tensor, *gradients: Tensor) -> Tensor:
        total = get_total_norm(gradients, norm_type)
        _scale(gradients, limit.to(total.dtype), total)
        return total

    return RepeatedByShape(clip, "clip_grad_norm_", sums=True)


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale all gradients by what brings `total_norm` down to `max_norm`, in place.

    Args:
        total_norm: their norm, as `get_total_norm` gives it.

    >>> w = lucid.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w / 2).sum().backward()
    >>> nn.utils.clip_grads_with_norm_([w], 1.0, lucid.tensor(5.0))
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    check_flags("clip_grads_with_norm_", foreach=foreach)
    _scale(_gradients(parameters), max_norm, total_norm)


def _scale(gradients: Iterable[Tensor], max_norm: float | Tensor, total: Tensor) -> None:
    with no_grad():
        scale = (max_norm / (total + _TINY)).clamp(max=1.0)
        for gradient in gradients:
            write_(gradient, gradient * scale.to(gradient.dtype))


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Limit each gradient's elements to [-clip_value, clip_value], in place.

    Parameters without a gradient are left out.

    Args:
        clip_value: the bound of each element.

    >>> w = lucid.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w / 2).sum().backward()
    >>> nn.utils.clip_grad_value_([w], 3.5)
    >>> w.grad
    tensor([3.0000, 3.5000])
    """
    check_flags("clip_grad_value_", foreach=foreach)
    gradients = _gradients(parameters)
    if gradients and _may_be_native(clip_value):
        _limiting(_argument(clip_value), *gradients)
    else:
        _limit(clip_value, *gradients)


def _limit(limit: Any, *gradients: Tensor) -> None:
    with no_grad():
        for gradient in gradients:
            bound = limit.to(gradient.dtype) if isinstance(limit, Tensor) else limit
            write_(gradient, gradient.clamp(min=-bound, max=bound))


_limiting = RepeatedByShape(_limit, "clip_grad_value_")


def _may_be_native(limit: object) -> bool:
    """Whether it is a number, outside of traces, which record all that is done with it."""
    return isinstance(limit, (int, float, np.number)) and not hooks.is_tracing()


def _argument(number: float) -> Tensor:
    """A number as a tensor, which may be another one at each call of a native step."""
    return _shared_number(float(number), math.copysign(1.0, number))


@functools.lru_cache(maxsize=64)
def _shared_number(number: float, sign: float) -> Tensor:
    """0-d, f64; -0.0 isn't 0.0."""
    return of_array(np.array(number))
