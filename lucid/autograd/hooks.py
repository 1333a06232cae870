"""Hooks: on gradients of tensors, on accumulation, and on tensors saved for the backward."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from lucid.autograd.node import Node, accumulator_of, edge_of
from lucid.autograd.saved import MutationGuard, copy_of
from lucid.choices import check_flag
from lucid.ir.errors import ArgumentError, LucidError, OptionError
from lucid.tensor.context import context, epoch
from lucid.tensor.core import attributes_of

if TYPE_CHECKING:
    from lucid.autograd.engine import BackwardRun
    from lucid.tensor.core import TensorCore

_numbers = itertools.count()


class HookHandle:
    """Removes the hook that was registered: by `remove()`, or at the end of a with block."""

    def __init__(
        self,
        hooks: dict[int, Callable[..., Any]],
        number: int,
        options: tuple[set[int], ...] = (),
    ) -> None:
        self._hooks = hooks
        self.id = number
        self._options = options

    @classmethod
    def add(
        cls,
        hooks: dict[int, Callable[..., Any]],
        hook: Callable[..., Any],
        options: tuple[set[int], ...] = (),
    ) -> Self:
        """Enter a hook, its number also into the sets that say how it is called."""
        number = next(_numbers)
        hooks[number] = hook
        for option in options:
            option.add(number)
        epoch.count += 1
        return cls(hooks, number, options)

    def remove(self) -> None:
        self._hooks.pop(self.id, None)
        for option in self._options:
            option.discard(self.id)
        epoch.count += 1

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
    attributes_of(tensor)["_kept_accumulator"] = node
    if node.post_accumulate_hooks is None:
        node.post_accumulate_hooks = {}
    return HookHandle.add(node.post_accumulate_hooks, hook)


def take_hooks(stand_in: TensorCore, leaf: TensorCore) -> None:
    """Give a leaf that stands for another one the same hooks."""
    if leaf._hooks:
        stand_in._hooks = dict(leaf._hooks)
    node = None if leaf._accumulator is None else leaf._accumulator()
    if node is None or not (node.post_accumulate_hooks or node._pre_hooks or node._post_hooks):
        return
    own = attributes_of(stand_in)["_kept_accumulator"] = accumulator_of(stand_in)
    own.post_accumulate_hooks = node.post_accumulate_hooks and dict(node.post_accumulate_hooks)
    own._pre_hooks = node._pre_hooks and dict(node._pre_hooks)
    own._post_hooks = node._post_hooks and dict(node._post_hooks)


def retain_grad(tensor: TensorCore) -> None:
    """Keep the gradient of a non-leaf tensor in its `.grad`; nothing happens for a leaf."""
    if not tensor.requires_grad:
        raise LucidError("can't retain_grad on Tensor that has requires_grad=False")
    node = tensor.grad_fn
    if node is None:
        return
    if context.recorder is not None:
        context.recorder.refuse_retaining(tensor)
    node._retain(tensor._output_nr, tensor)
    tensor._retains_grad = True


def run_tensor_hooks(hooks: dict[int, Callable[..., Any]], gradient: TensorCore) -> TensorCore:
    """Run hooks in their order; each may return a gradient in place of the one it saw."""
    for hook in list(hooks.values()):
        replaced = hook(gradient)
        if replaced is not None:
            check_replacement(hook, f"the gradient {gradient._type}", replaced, gradient)
            gradient = replaced
    return gradient


def check_replacement(
    hook: Callable[..., Any], of: str, replaced: Any, gradient: TensorCore | None
) -> None:
    """Raise unless what a hook returned can stand for the gradient that it saw."""
    from lucid.tensor.core import TensorCore as Tensor

    name = name_of(hook)
    if not isinstance(replaced, Tensor):
        raise ArgumentError(
            f"expected Variable, but hook returned '{type(replaced).__name__}'\n"
            f"  hook '{name}' of {of}"
        )
    if gradient is None:
        raise LucidError(
            f"can't replace a None gradient with a non-None value\n  hook '{name}' of {of}"
        )
    if replaced.dtype is not gradient.dtype:
        raise LucidError(
            f"hook '{name}' has changed the type of value "
            f"(was {gradient.dtype!r} got {replaced.dtype!r})"
        )
    if replaced.shape != gradient.shape:
        raise LucidError(f"hook '{name}' has changed the size of value")


def name_of(hook: Callable[..., Any]) -> str:
    """A hook's name, as messages show it."""
    return getattr(hook, "__name__", repr(hook))


def run_accumulate_hooks(hooks: dict[int, Callable[..., Any]], leaf: TensorCore) -> None:
    """Run what was registered for when a leaf's gradient has been added."""
    for hook in list(hooks.values()):
        returned = hook(leaf)
        if returned is not None and returned is not leaf:
            raise LucidError(
                "Tensor post accumulate grad hooks should return None.\n"
                f"  hook '{name_of(hook)}' returned '{type(returned).__name__}'"
            )


def _replacement(
    node: Node, hook: Callable[..., Any], replaced: Any, gradients: tuple[Any, ...]
) -> tuple[Any, ...]:
    if not isinstance(replaced, tuple):
        raise ArgumentError(
            f"expected tuple, but hook returned '{type(replaced).__name__}'\n"
            f"  hook '{name_of(hook)}' of {node._name()}"
        )
    if len(replaced) != len(gradients):
        raise LucidError(
            f"hook '{name_of(hook)}' has returned an incorrect number of values "
            f"(got {len(replaced)}, but expected {len(gradients)})"
        )
    for index, (new, gradient) in enumerate(zip(replaced, gradients, strict=True)):
        if new is not None:
            check_replacement(hook, f"{node._name()}, at index {index}", new, gradient)
    return replaced


def run_pre_hooks(node: Node, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run the hooks on the gradients that arrive at a node; each may replace them."""
    for hook in list((node._pre_hooks or {}).values()):
        replaced = hook(gradients)
        if replaced is not None:
            gradients = _replacement(node, hook, replaced, gradients)
    return gradients


def run_post_hooks(
    node: Node, inputs: tuple[Any, ...], outputs: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Run the hooks on what a node returned; each may replace the gradients of its inputs."""
    for hook in list((node._post_hooks or {}).values()):
        replaced = hook(inputs, outputs)
        if replaced is not None:
            inputs = _replacement(node, hook, replaced, inputs)
    return inputs


# ---------------------------------------------------------------------- saved tensors


class SavedTensorHooks(NamedTuple):
    """What to call when a tensor is saved, and when it is read back.

    Attributes:
        pack: may return a `Place`, so that writes to the tensor are noticed. None: the tensor
            itself is saved, and `unpack` gets it.
        take_private: called with what `pack` returned and the history that only a custom forward
            knows of, where it has one; returns the one to keep. None: that history itself is kept.
    """

    pack: Callable[[Any], Any] | None
    unpack: Callable[[Any], Any]
    take_private: Callable[[Any, Any], Any] | None = None


@contextmanager
def _saving_block() -> Iterator[None]:
    """Where compiled functions run op by op, since blocks from outside say what is saved how."""
    before = context.saving
    context.saving = 1 if before is None else before + 1
    try:
        yield
    finally:
        context.saving = before


@contextmanager
def saved_tensors_hooks(
    pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]
) -> Iterator[None]:
    """Pass what is saved through `pack_hook`, and through `unpack_hook` at each read.

    The innermost block wins. None and attributes of a ctx are not packed. Compiled functions that
    are called in the block run op by op.

    Args:
        pack_hook: from a tensor to whatever is to be kept of it.
        unpack_hook: from that to a tensor of the same values, shape and dtype.

    Raises:
        LucidError: `disable_saved_tensors_hooks` forbids it.

    >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
    >>> with lucid.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().copy(), lucid.tensor):
    ...     y = x.exp().sum()
    >>> y.backward()
    >>> x.grad
    tensor([2.7183, 7.3891])
    """
    present, inside = vars(context), saving_with(SavedTensorHooks(pack_hook, unpack_hook))
    before = {name: present[name] for name in inside}
    present.update(inside)
    try:
        yield
    finally:
        present.update(before)


def saving_with(hooks: SavedTensorHooks) -> dict[str, Any]:
    """The state of a thread in which hooks are in force; compiled functions run op by op there.

    Raises where `disable_saved_tensors_hooks` forbids it.
    """
    if context.saved_hooks_refused is not None:
        raise LucidError(context.saved_hooks_refused)
    saving = 1 if context.saving is None else context.saving + 1
    return {"saved_hooks": [*context.saved_hooks, hooks], "saving": saving}


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Raise `error_message` where saved-tensor hooks are set inside of the block, or are set.

    Args:
        error_message: what the error says.

    Raises:
        LucidError: hooks are in force where the block begins, or are set in it.

    >>> from lucid.autograd import graph
    >>> with graph.disable_saved_tensors_hooks("no hooks here"):
    ...     with graph.save_on_cpu():
    ...         pass
    Traceback (most recent call last):
    lucid.ir.errors.LucidError: no hooks here
    """
    if context.saved_hooks:
        raise LucidError(error_message)
    before = context.saved_hooks_refused
    context.saved_hooks_refused = error_message
    try:
        with _saving_block():
            yield
    finally:
        context.saved_hooks_refused = before


class save_on_cpu(AbstractContextManager[None]):  # noqa: N801 - the name PyTorch gives it
    """Keep saved tensors in memory of their own on the CPU, where all of lucid's are.

    What is saved is copied, so that later writes to the originals do no harm.

    Args:
        pin_memory: True or False; no GPU reads the memory.
        device_type: a string; of which device, whose memory would be freed.

    Raises:
        ArgumentError: an argument of another type.

    >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
    >>> with lucid.autograd.graph.save_on_cpu():
    ...     y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 4.])
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        check_flag(pin_memory, "pin_memory", "save_on_cpu")
        if not isinstance(device_type, str):
            raise ArgumentError(f"save_on_cpu: device_type must be a string, not {device_type!r}")
        self._hooks = saved_tensors_hooks(copy_of, lambda packed: packed)

    def __enter__(self) -> None:
        self._hooks.__enter__()

    def __exit__(self, *details: Any) -> None:
        self._hooks.__exit__(*details)


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[MutationGuard]:
    """Let saved tensors be written in place: they are copied before, so gradients stay right.

    Raises:
        LucidError: inside of another such block.

    >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
    >>> with lucid.autograd.graph.allow_mutation_on_saved_tensors():
    ...     y = x * 1
    ...     z = (y * y).sum()
    ...     _ = y.zero_()
    ...     z.backward()
    >>> x.grad
    tensor([2., 4.])
    """
    if context.mutation_guard is not None:
        raise LucidError("allow_mutation_on_saved_tensors contexts cannot be nested")
    context.mutation_guard = guard = MutationGuard()
    try:
        with _saving_block():
            yield guard
    finally:
        context.mutation_guard = None


def checked_unpack(unpack: Callable[[Any], Any], packed: Any) -> TensorCore:
    """Call an unpack hook. Raises `ArgumentError` when it returns no tensor."""
    from lucid.tensor.core import TensorCore as Tensor

    tensor = unpack(packed)
    if not isinstance(tensor, Tensor):
        raise ArgumentError(
            "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
            f"{type(tensor).__name__}"
        )
    return tensor


# ---------------------------------------------------------------------- several tensors


def register_multi_grad_hook(
    tensors: Sequence[TensorCore], fn: Callable[..., Any], *, mode: str = "all"
) -> HookHandles:
    """Call `fn` once per backward: with all gradients when the last arrived, or with the first.

    With "all", tensors that got no gradient have None there. Returns a handle whose `remove()`
    takes the hook away.

    Args:
        tensors: whose gradients are looked at; they require grad.
        fn: a function of the list of gradients, or with "any" of the one that arrived first.
        mode: "all" or "any".

    Raises:
        OptionError: another mode.

    >>> x = lucid.tensor(1.0, requires_grad=True)
    >>> y = lucid.tensor(2.0, requires_grad=True)
    >>> handle = lucid.autograd.graph.register_multi_grad_hook([x, y], print)
    >>> (x * y).backward()
    [tensor(2.), tensor(1.)]
    """
    if mode not in ("all", "any"):
        raise OptionError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    state = _Arrivals(tensors, fn, mode)
    return HookHandles([tensor.register_hook(state.hook(i)) for i, tensor in enumerate(tensors)])


class HookHandles:
    """Removes several hooks at once."""

    def __init__(self, handles: Sequence[HookHandle]) -> None:
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class _Arrivals:
    """The gradients of several tensors, as they arrive in one backward walk."""

    def __init__(self, tensors: Sequence[TensorCore], call: Callable[..., Any], mode: str) -> None:
        self._edges = [edge_of(tensor) for tensor in tensors]
        self._call = call
        self._is_any = mode == "any"
        self._run: BackwardRun | None = None
        self._gradients: dict[int, Any] = {}
        self._expected = 0

    def hook(self, index: int) -> Callable[[TensorCore], None]:
        def arrived(gradient: TensorCore) -> None:
            run = context.backward_run
            assert run is not None
            if run is not self._run:
                self._run, self._gradients = run, {}
                self._expected = run.count_reachable(self._edges)
            self._gradients[index] = gradient
            if self._is_any:
                if len(self._gradients) == 1:
                    self._call(gradient)
            elif len(self._gradients) == self._expected:
                self._call([self._gradients.get(i) for i in range(len(self._edges))])

        return arrived


def _hook_dicts(tensor: TensorCore) -> list[dict[int, Any]]:
    """A leaf's hooks on its gradient, and those on its accumulation."""
    found = [tensor._hooks]
    node = None if tensor._accumulator is None else tensor._accumulator()
    if node is not None:
        found += [node.post_accumulate_hooks, node._pre_hooks, node._post_hooks]
    return [hooks for hooks in found if hooks]


def hooks_of(tensor: TensorCore) -> dict[int, Any]:
    """All hooks of a leaf by their numbers."""
    if tensor._hooks is None and tensor._accumulator is None:
        return {}
    merged: dict[int, Any] = {}
    for hooks in _hook_dicts(tensor):
        merged |= hooks
    return merged


def remove_hooks(tensor: TensorCore, besides: Set[int]) -> None:
    """Remove a leaf's hooks, but for those with the given numbers."""
    for hooks in _hook_dicts(tensor):
        for number in hooks.keys() - besides:
            del hooks[number]
