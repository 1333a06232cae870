"""What a workload is: data, mathematics in each framework's own words, and an optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Loss = Callable[..., Any]  # (parameters by name, *batch) -> loss
Model = Callable[..., Any]  # (parameters by name, inputs) -> scores, f32[n, classes]
Gradients = Callable[..., tuple[float, Arrays]]


@dataclass(frozen=True)
class Optimizer:
    """SGD or Adam; with a weight decay it is AdamW, with `clip` the gradients' norm is bounded."""

    name: str
    rate: float
    decay: float = 0.0
    clip: float | None = None


@dataclass
class Workload:
    """One training step, in float32.

    Attributes:
        title: what it is, in a few words.
        parameters: initial values by name.
        batches: arguments of the loss, besides the parameters, used in turns.
        torch_loss: module -> loss, for torch and for lucid.
        jax_loss: () -> loss.
        numpy_gradients: () -> function that returns the loss and all gradients, by hand.
        optimizer: None: the step ends with the gradients.
        torch_model: module -> model, where the loss is the cross-entropy of its scores.
        classes: how many scores there are for each target.
    """

    title: str
    parameters: Arrays
    batches: list[tuple[np.ndarray, ...]]
    torch_loss: Callable[[Any], Loss]
    jax_loss: Callable[[], Loss]
    optimizer: Optimizer | None = None
    numpy_gradients: Callable[[], Gradients] | None = None
    torch_model: Callable[[Any], Model] | None = None
    classes: int = 0


def cross_entropy(torch: Any) -> Callable[[Any, Any], Any]:
    """The mean over scores, f32[n, classes], and n targets in any shape."""
    F = torch.nn.functional

    def loss(scores: Any, targets: Any) -> Any:
        return F.cross_entropy(scores, targets.flatten())

    return loss


def cross_entropy_of(torch_model: Callable[[Any], Model]) -> Callable[[Any], Loss]:
    """A workload's `torch_loss` from its `torch_model`."""

    def of(torch: Any) -> Loss:
        model, criterion = torch_model(torch), cross_entropy(torch)

        def loss(P: Any, x: Any, y: Any) -> Any:
            return criterion(model(P, x), y)

        return loss

    return of


def uniform(rng: np.random.Generator, fan_in: int, *shape: int) -> np.ndarray:
    """Draw f32[shape] as PyTorch's layers do: within 1/sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)
    return rng.uniform(-bound, bound, shape).astype(np.float32)


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Draw f32[shape] from a normal distribution."""
    return (scale * rng.standard_normal(shape)).astype(np.float32)
