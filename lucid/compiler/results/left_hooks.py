"""Hooks that a step registers on its arguments and leaves there, or that hold parts of a trace."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Sequence
from typing import Any

from lucid.autograd.hooks import hooks_of
from lucid.compiler.inputs.scalars import is_live
from lucid.ir.errors import EagerOnlyError
from lucid.tensor.core import TensorCore

_MOST_LOOKED_AT = 10_000


def refuse_left_hooks(handles: Sequence[TensorCore], arguments: Sequence[TensorCore]) -> None:
    """Raise `EagerOnlyError` where a handle has got a hook in addition to its argument's."""
    for handle, argument in zip(handles, arguments, strict=True):
        if handle is not argument and not _hooks_on(handle) <= _hooks_on(argument):
            raise EagerOnlyError("it registers a hook on a tensor that it is given")


def _hooks_on(tensor: TensorCore) -> set[int]:
    """The numbers of the hooks on a tensor's gradient, and on its node."""
    node = tensor._grad_fn
    if node is None:
        return set(hooks_of(tensor))
    hooks = (node._hooks_at(tensor._output_nr), node._pre_hooks, node._post_hooks)
    return {number for found in hooks for number in found or ()}


def refers_to_trace(hook: Callable[..., Any]) -> bool:
    """Whether a hook holds what stands for tensors and floats while a step is traced."""
    stack: list[Any] = [hook]
    seen: set[int] = set()
    while stack and len(seen) < _MOST_LOOKED_AT:
        value = stack.pop()
        if id(value) in seen or isinstance(value, (type, types.ModuleType)):
            continue
        seen.add(id(value))
        if is_live(value) or (isinstance(value, TensorCore) and value._storage.value is not None):
            return True
        if isinstance(value, types.FunctionType):  # not what is global to it
            stack += [value.__closure__, value.__defaults__, value.__kwdefaults__]
        elif not isinstance(value, TensorCore):
            stack += gc.get_referents(value)
    return bool(stack)
