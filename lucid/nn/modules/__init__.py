"""Layers, containers and losses as modules.

Args:
    device: the CPU; for PyTorch's sake.
    dtype: of the parameters. None is the default dtype.
    eps: keeps the division finite.
    kernel_size: the size of a window; an int, or one for each axis.
    bias: whether there is one.
    norm_type: of which order that norm is.
    sparse: False; gradients are dense.
    norm: a last module, or None.
"""

from importlib import import_module
from typing import Any

from lucid import ported


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if hasattr(nn := import_module("lucid.nn"), name):
        return getattr(nn, name)
    return ported.submodule(__name__, name)
