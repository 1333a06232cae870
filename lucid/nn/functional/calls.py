"""Calls of Functions with one tensor as result, which `apply` doesn't promise."""

from __future__ import annotations

from typing import Any

from lucid.autograd import Function
from lucid.tensor.tensor import Tensor


def apply(function: type[Function], *arguments: Any) -> Tensor:
    """Apply a Function that returns one tensor."""
    result: Tensor = function.apply(*arguments)
    return result
