"""Custom Functions that leave lucid, for the tests of host calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lucid
from lucid.autograd import Function


class Sine(Function):
    """NumPy in forward, ops in backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return lucid.from_numpy(np.sin(x.numpy()))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos()


class Cube(Function):
    """NumPy in both, with an array on ctx."""

    @staticmethod
    def forward(ctx, x):
        ctx.array = x.numpy().copy()
        return lucid.from_numpy(ctx.array**3)

    @staticmethod
    def backward(ctx, grad):
        return lucid.from_numpy(3 * ctx.array**2 * grad.numpy())


class Double(Function):
    """Recorded ops in forward, NumPy in backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.factor = 2
        return x * ctx.factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return lucid.from_numpy(grad.numpy() * ctx.factor + 0 * x.numpy())


class PlusOne(Function):
    """In place by NumPy; its backward multiplies by 10, so that it shows."""

    @staticmethod
    def forward(ctx, x):
        x_npy = x.numpy()
        x_npy += 1
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 10


def place_of(function: Callable[..., Any], text: str) -> str:
    """How messages name the line of a function that holds a text."""
    lines, first = inspect.getsourcelines(function)
    offset, line = next((i, line) for i, line in enumerate(lines) if text in line)
    file = Path(inspect.getsourcefile(function) or "").name
    return f"{file}:{first + offset}   {line.strip()}"
