"""Gradients before the next backward: forgotten, or filled with zeros."""

from __future__ import annotations

from collections.abc import Iterable

from lucid.tensor.context import within
from lucid.tensor.tensor import Tensor


def reset_gradients(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    """Forget the gradients, or fill them with zeros, which have no history."""
    gradients = []
    for parameter in parameters:
        if set_to_none:
            parameter.grad = None
        elif (gradient := parameter.grad) is not None:
            if gradient.requires_grad:
                _end_history(gradient)
            gradients.append(gradient)
    within({"grad_enabled": False}, _fill, gradients)


def _end_history(gradient: Tensor) -> None:
    if gradient.grad_fn is None:
        gradient.requires_grad_(False)
    else:
        gradient.detach_()


def _fill(gradients: Iterable[Tensor]) -> None:
    for gradient in gradients:
        gradient.zero_()
