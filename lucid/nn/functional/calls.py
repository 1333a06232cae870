"""Calls with one tensor as result, which their general forms don't promise."""

from __future__ import annotations

from typing import Any

import lucid
from lucid.autograd import Function
from lucid.tensor.tensor import Tensor


def where(condition: Tensor, yes: Tensor | float, no: Tensor | float) -> Tensor:
    """Elements of `yes` where the condition holds, else of `no`."""
    result: Tensor = lucid.where(condition, yes, no)
    return result


def apply(function: type[Function], *arguments: Any) -> Tensor:
    """Apply a Function that returns one tensor."""
    result: Tensor = function.apply(*arguments)
    return result
