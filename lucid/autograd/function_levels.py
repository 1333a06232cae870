"""Calls of custom Functions while a vmap or a forward-mode derivative runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from lucid.autograd.dual import DualLevel
from lucid.autograd.function import call_function
from lucid.autograd.private import private_edge
from lucid.tensor.batched import Batched
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.levels import Result, acting_level

if TYPE_CHECKING:
    from lucid.autograd.function import Function


def call_in_levels(
    function: type[Function], inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> Result:
    """The Function's output and ctx; the innermost level that knows an input acts first."""
    acting = acting_level(None, inputs)
    if acting is not None:
        level, position = acting
        return level.call(function, inputs, keywords, position)
    return call_below(function, inputs, keywords)


def call_below(
    function: type[Function], inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> Result:
    """Call a Function that no level acts on any more.

    Forward sees all tangents, so that what it saves has one. Those of its outputs are not what its
    ops give but what the Function's own rule says.
    """
    before = context.visible
    context.visible = sys.maxsize
    try:
        output, ctx = call_function(function, inputs, keywords, is_needed)
    finally:
        context.visible = before
    for value in output if isinstance(output, tuple) else (output,):
        if isinstance(value, TensorCore):
            _forget_tangents(value)
    return output, ctx


def _duals() -> list[DualLevel]:
    return [level for level in context.levels if isinstance(level, DualLevel)]


def is_needed(value: Any) -> bool:
    """Whether a rule may ask for the derivative with respect to an input."""
    if any(level.has_tangent(value) for level in _duals()):
        return True
    inner = isinstance(value, Batched) and is_needed(value._inner)
    return inner or is_differentiated(value)


def _forget_tangents(tensor: TensorCore) -> None:
    for level in _duals():
        level.note(tensor, None)
    if isinstance(tensor, Batched):
        _forget_tangents(tensor._inner)


def is_differentiated(value: Any) -> bool:
    """Whether a derivative may be asked for with respect to a tensor, outside of its vmaps."""
    if not isinstance(value, TensorCore):
        return False
    if context.grad_enabled:
        found = value.requires_grad
    else:
        found = context.forward is not None and private_edge(value) is not None
    seen = [level for level in _duals() if level._position < context.visible]
    if found or any(level.has_tangent(value) for level in seen):
        return True
    return isinstance(value, Batched) and is_differentiated(value._inner)
