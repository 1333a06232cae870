"""Hooks that a step registers on its arguments and leaves there: each call registers them again."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lucid.autograd.hooks import register_post_accumulate_hook, register_tensor_hook
from lucid.autograd.node import Node, edge_of
from lucid.compiler.inputs.scalars import is_live
from lucid.ir.errors import LucidError
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.compiler.inputs.signature import Call

_MOST_LOOKED_AT = 10_000


class LeftHook(NamedTuple):
    """A hook, the argument that it is on by its position, and what registers it there."""

    position: int
    register: Callable[[TensorCore, Callable[..., Any]], object]
    hook: Callable[..., Any]

    def repeat(self, call: Call) -> None:
        self.register(call.tensors[self.position], self.hook)


def left_hooks(handles: Sequence[TensorCore], arguments: Sequence[TensorCore]) -> list[LeftHook]:
    """The hooks that the handles have got in addition to those of the arguments."""
    found = []
    seen: set[int] = set()
    for position, (handle, argument) in enumerate(zip(handles, arguments, strict=True)):
        if handle is argument or id(handle) in seen:
            continue
        seen.add(id(handle))
        before = [hooks or {} for hooks, _ in _registers(argument)]
        for (hooks, register), known in zip(_registers(handle), before, strict=True):
            found += [
                LeftHook(position, register, _kept(hook))
                for number, hook in (hooks or {}).items()
                if number not in known
            ]
    return found


def _registers(leaf: TensorCore) -> list[tuple[dict[int, Any] | None, Callable[..., object]]]:
    node = None if leaf._accumulator is None else leaf._accumulator()
    history = leaf._grad_fn
    own = leaf._hooks if history is None else history._hooks_at(leaf._output_nr)
    return [
        (own, register_tensor_hook),
        (node and node.post_accumulate_hooks, register_post_accumulate_hook),
        (node and node._pre_hooks, lambda tensor, hook: _node(tensor).register_prehook(hook)),
        (node and node._post_hooks, lambda tensor, hook: _node(tensor).register_hook(hook)),
    ]


def _node(tensor: TensorCore) -> Node:
    edge = edge_of(tensor)
    assert edge is not None
    return edge[0]


def _kept(hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, or what takes its place where it refers to tensors of the trace."""
    return _out_of_reach(getattr(hook, "__name__", "hook")) if refers_to_trace(hook) else hook


def _out_of_reach(name: str) -> Callable[..., Any]:
    def hook(*_: Any) -> None:
        raise LucidError(
            f"the hook {name} was registered on an argument of a compiled function, and refers to "
            "tensors or floats of that call, which are gone now\n"
            "hint: register it outside of the compiled function"
        )

    return hook


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
