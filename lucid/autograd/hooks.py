"""Hooks: on gradients of tensors, on accumulation, and on tensors saved for the backward."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from lucid.autograd.node import Node, accumulator_of
from lucid.ir.errors import ArgumentError, LucidError
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.tensor.core import TensorCore

_numbers = itertools.count()


class HookHandle:
    """Removes the hook that was registered: by `remove()`, or at the end of a with block."""

    def __init__(self, hooks: dict[int, Callable[..., Any]], number: int) -> None:
        self._hooks = hooks
        self._number = number

    @classmethod
    def add(cls, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> Self:
        number = next(_numbers)
        hooks[number] = hook
        return cls(hooks, number)

    def remove(self) -> None:
        self._hooks.pop(self._number, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def register_tensor_hook(tensor: TensorCore, hook: Callable[..., Any]) -> HookHandle:
    """Register a hook on the gradient of a tensor. Raises for one that doesn't require grad."""
    if not tensor.requires_grad:
        raise LucidError("cannot register a hook on a tensor that doesn't require gradient")
    node = tensor.grad_fn
    if node is None:  # a leaf keeps its hooks itself, for its node may come and go
        if tensor._hooks is None:
            tensor._hooks = {}
        return HookHandle.add(tensor._hooks, hook)
    if node._tensor_hooks is None:
        node._tensor_hooks = {}
    return HookHandle.add(node._tensor_hooks.setdefault(tensor._output_nr, {}), hook)


def register_post_accumulate_hook(tensor: TensorCore, hook: Callable[..., Any]) -> HookHandle:
    """Register a hook on the accumulation into a leaf. Raises for any other tensor."""
    if not tensor.requires_grad:
        raise LucidError("cannot register a hook on a tensor that doesn't require gradient")
    if tensor.grad_fn is not None:
        raise LucidError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    node = accumulator_of(tensor)
    tensor.__dict__["_kept_accumulator"] = node
    if node.post_accumulate_hooks is None:
        node.post_accumulate_hooks = {}
    return HookHandle.add(node.post_accumulate_hooks, hook)


def retain_grad(tensor: TensorCore) -> None:
    """Keep the gradient of a non-leaf tensor in its `.grad`; nothing happens for a leaf."""
    if not tensor.requires_grad:
        raise LucidError("can't retain_grad on Tensor that has requires_grad=False")
    node = tensor.grad_fn
    if node is None:
        return
    if node.retained is None:
        node.retained = {}
    node.retained[tensor._output_nr] = weakref.ref(tensor)
    tensor._retains_grad = True


def run_tensor_hooks(hooks: dict[int, Callable[..., Any]], gradient: TensorCore) -> TensorCore:
    """Run hooks in their order; each may return a gradient in place of the one it saw."""
    from lucid.tensor.core import TensorCore as Tensor

    for hook in list(hooks.values()):
        replaced = hook(gradient)
        if replaced is None:
            continue
        name = getattr(hook, "__name__", repr(hook))
        if not isinstance(replaced, Tensor):
            raise ArgumentError(f"hook '{name}' must return None or a Tensor, got {replaced!r}")
        if replaced.dtype is not gradient.dtype:
            raise LucidError(
                f"hook '{name}' has changed the type of value "
                f"(was {gradient.dtype!r} got {replaced.dtype!r})"
            )
        if replaced.shape != gradient.shape:
            raise LucidError(f"hook '{name}' has changed the size of value")
        gradient = replaced
    return gradient


def run_pre_hooks(node: Node, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run the hooks on the gradients that arrive at a node; each may replace them."""
    for hook in list((node._pre_hooks or {}).values()):
        replaced = hook(gradients)
        if replaced is not None:
            gradients = replaced if isinstance(replaced, tuple) else (replaced,)
    return gradients


def run_post_hooks(
    node: Node, inputs: tuple[Any, ...], outputs: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Run the hooks on what a node returned; each may replace the gradients of its inputs."""
    for hook in list((node._post_hooks or {}).values()):
        replaced = hook(inputs, outputs)
        if replaced is not None:
            inputs = replaced if isinstance(replaced, tuple) else (replaced,)
    return inputs


# ---------------------------------------------------------------------- saved tensors


class SavedTensorHooks(NamedTuple):
    """What to call when a tensor is saved, and when it is read back."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def _stack() -> list[SavedTensorHooks]:
    found: list[SavedTensorHooks] = context.__dict__.setdefault("saved_tensor_hooks", [])
    return found


def pack_hook() -> SavedTensorHooks | None:
    """The innermost hooks on saved tensors; None when there are none."""
    stack = context.__dict__.get("saved_tensor_hooks")
    return stack[-1] if stack else None


@contextmanager
def saved_tensors_hooks(
    pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]
) -> Iterator[None]:
    """Pass what is saved through `pack_hook`, and through `unpack_hook` at each read.

    The innermost block wins.
    """
    message = context.__dict__.get("saved_tensor_hooks_disabled")
    if message is not None:
        raise LucidError(message)
    stack = _stack()
    stack.append(SavedTensorHooks(pack_hook, unpack_hook))
    try:
        yield
    finally:
        stack.pop()


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Raise `error_message` where saved-tensor hooks are set inside of the block."""
    before = context.__dict__.get("saved_tensor_hooks_disabled")
    context.__dict__["saved_tensor_hooks_disabled"] = error_message
    try:
        yield
    finally:
        context.__dict__["saved_tensor_hooks_disabled"] = before


def checked_unpack(unpack: Callable[[Any], Any], packed: Any, type: Any) -> TensorCore:
    """Call an unpack hook. Raises `ArgumentError` when it returns no tensor."""
    from lucid.tensor.core import TensorCore as Tensor

    tensor = unpack(packed)
    if not isinstance(tensor, Tensor):
        raise ArgumentError("Output of saved tensor unpack_hook expected to be a Tensor")
    return tensor
