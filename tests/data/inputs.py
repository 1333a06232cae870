"""Numbers from names, for programs that run on PyTorch and on lucid."""

from __future__ import annotations

from typing import Any

import numpy as np


def _stream(name: str) -> np.random.RandomState:
    """`RandomState`, since its stream is frozen for good."""
    return np.random.RandomState([ord(c) for c in name])


def numbers(name: str, *shape: int) -> np.ndarray:
    """Normal numbers, f32."""
    return _stream(name).standard_normal(shape).astype(np.float32)


def uniform(name: str, *shape: int) -> np.ndarray:
    """Uniform numbers from [0, 1), f32."""
    return _stream(name).random_sample(shape).astype(np.float32)


def integers(name: str, high: int, *shape: int) -> np.ndarray:
    """Integers below `high`, i64."""
    return _stream(name).randint(0, high, shape).astype(np.int64)


def fill(model: Any, scale: float = 0.3) -> Any:
    """Give every parameter normal numbers from its name, and return the model."""
    for name, parameter in model.named_parameters():
        parameter.detach().numpy()[...] = numbers(name, *parameter.shape) * scale
    return model
