"""Tensors saved for the backward: with the version they had, and without reference cycles."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from lucid.dtypes import tensor_class
from lucid.ir.errors import LucidError
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.autograd.node import Edge, Node
    from lucid.autograd.private import CustomForward
    from lucid.ir.types import TensorType
    from lucid.tensor.core import TensorCore
    from lucid.tensor.storage import Storage

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)


class Place:
    """What is kept instead of a tensor that will be computed again: its number among such."""

    __slots__ = ("__weakref__", "_counter", "_type", "number", "original")

    def __init__(self, tensor: TensorCore, number: int) -> None:
        self._counter = tensor._counter
        self._type = tensor._type
        self.number = number
        self.original: weakref.ref[TensorCore] | None = None

    @property
    def tensor(self) -> TensorCore | None:
        """The tensor, as long as somebody else holds it, for messages."""
        return None if self.original is None else self.original()


class SavedTensor:
    """A tensor kept for the backward.

    An output of the node itself is kept without its history, so that node and output don't keep one
    another alive; unpacking restores it.

    Attributes:
        output_nr: which output of the saving node it is; -1: none.
        version: of the tensor when it was saved; a later one means that it was written since.
        edge: a history that the kept tensor itself hasn't: restored when it is unpacked.
        private_edge: the history that a custom forward gave it; only a backward that is itself
            recorded sees it.
    """

    __slots__ = (
        "__weakref__",
        "edge",
        "output_nr",
        "packed",
        "private_edge",
        "tensor",
        "unpack_hook",
        "version",
    )

    def __init__(self, tensor: TensorCore, output_nr: int, is_private: bool = False) -> None:
        state = context.__dict__
        counter, recorder = tensor._counter, state["recorder"]
        now = counter.now
        self.version = now if recorder is None else recorder.versions.setdefault(counter, now)
        self.output_nr = output_nr
        self.edge: Edge | None = None
        self.private_edge: Edge | None = None
        self.packed: Any = None
        self.unpack_hook: Any = None
        self.tensor: TensorCore | None = None
        if state["saved_hooks"] and not is_private:
            self._pack(tensor)
        else:
            self.tensor = tensor if output_nr < 0 else tensor._alias()
        if state["mutation_guard"] is not None:
            state["mutation_guard"].watch(tensor._storage, self)
        if state["forward"] is not None:
            self._note_private(tensor, state["forward"], is_private)

    def _note_private(self, tensor: TensorCore, forward: CustomForward, is_private: bool) -> None:
        from lucid.autograd.private import recorded_edge

        if self.output_nr < 0:
            self.private_edge = recorded_edge(tensor)
        if context.saved_hooks and not is_private and self.private_edge is not None:
            take = context.saved_hooks[-1].take_private
            if take is not None:
                self.private_edge = take(self.packed, self.private_edge)
        if self.private_edge is not None:
            for level in context.levels:
                level.keep_private_history(tensor)
        if is_private:
            forward.guard.watch(tensor._storage, self)

    def _pack(self, tensor: TensorCore) -> None:
        from lucid.autograd.node import edge_of

        hooks = context.saved_hooks[-1]
        if hooks.pack is None:
            self.tensor = tensor if self.output_nr < 0 else tensor._alias()
            self.unpack_hook = hooks.unpack
            return
        if self.output_nr < 0:
            self.edge = edge_of(tensor)
        array = tensor._array
        is_shared = array is not None and not array.flags.writeable  # a number of many ops
        given = tensor._own_copy() if is_shared else tensor._alias()
        version = given._counter.value if is_shared else self.version
        before = context.grad_enabled
        context.grad_enabled = False
        try:
            self.packed = hooks.pack(given)
        finally:
            context.grad_enabled = before
        if given._counter.value != version:
            raise LucidError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as "
                "input to pack hook cannot be modified by in-place operations as this can lead to "
                "unexpected side-effects."
            )
        if type(self.packed) is Place:
            self.packed.original = weakref.ref(tensor)
        self.unpack_hook = hooks.unpack

    def unpack(self, node: Node, differentiably: bool = True) -> TensorCore:
        """The tensor as it was. Raises when it was written in place since."""
        tensor = self.content(node)
        if self.output_nr >= 0:
            return with_history(tensor, (node, self.output_nr))
        if self.edge is not None:
            return with_history(tensor, self.edge)
        if self.private_edge is not None and differentiably and context.grad_enabled:
            return with_history(tensor, self.private_edge)
        return tensor

    def content(self, node: Node) -> TensorCore:
        """The tensor without history. Raises when it was written in place since."""
        tensor = self.tensor
        if tensor is None:
            from lucid.autograd.hooks import checked_unpack

            if type(self.packed) is Place and self.packed._counter.value != self.version:
                raise LucidError(self._modified(self.packed, self.packed.tensor, node))
            return checked_unpack(self.unpack_hook, self.packed)
        if tensor._counter.value != self.version:
            raise LucidError(self._modified(tensor, tensor, node))
        if self.unpack_hook is None:
            return tensor
        found: TensorCore = self.unpack_hook(tensor)
        return with_history_of(tensor, found) if context.grad_enabled else found

    def _modified(self, saved: TensorCore | Place, tensor: TensorCore | None, node: Node) -> str:
        source: Node | None = node
        number = self.output_nr
        if number < 0:
            source, number = (None, 0) if tensor is None else (tensor._grad_fn, tensor._output_nr)
        name = None if source is None else source._output_name(number)
        origin = f"{node._name()}{node._place()}"
        return modified(saved._type, name, saved._counter.value, self.version, origin)

    def keep_copy(self) -> None:
        """Keep a copy instead of the tensor, which is about to be written in place."""
        from lucid.autograd.node import edge_of

        tensor = self.tensor
        if tensor is None or tensor._counter.value != self.version:
            return
        if self.output_nr < 0 and self.edge is None and self.private_edge is None:
            self.edge = edge_of(tensor)
        self.tensor = copy_of(tensor)
        self.version = self.tensor._counter.value


def modified(type: TensorType, name: str | None, found: int, expected: int, saver: str) -> str:
    """PyTorch's text for a saved tensor that was written, with the line that saved it."""
    origin = "" if name is None else f", which is {name},"
    return (
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [{tensor_class(type.dtype)} {list(type.shape)}]{origin} is at version "
        f"{found}; expected version {expected} instead.\n  saved for {saver}"
    )


def copy_of(tensor: TensorCore) -> TensorCore:
    """The same numbers in memory that nobody else holds, without history."""
    return tensor._own_copy()


def with_history(tensor: TensorCore, edge: Edge) -> TensorCore:
    """A tensor on the same memory whose gradient goes along `edge`."""
    from lucid.autograd.node import AccumulateGrad
    from lucid.tensor.core import attributes_of

    restored = tensor._alias()
    restored._requires_grad = True
    node, number = edge
    if isinstance(node, AccumulateGrad):  # it stands for the leaf
        restored._accumulator = weakref.ref(node)
        attributes_of(restored)["_kept_accumulator"] = node
    else:
        restored._grad_fn, restored._output_nr = node, number
    return restored


def with_history_of(tensor: TensorCore, other: TensorCore) -> TensorCore:
    """`other`, or a tensor on its memory whose gradient goes where that of `tensor` goes."""
    from lucid.autograd.node import edge_of

    edge = edge_of(tensor)
    return other if edge is None else with_history(other, edge)


class MutationGuard:
    """Copies saved tensors before somebody writes to their memory."""

    def __init__(self) -> None:
        self._watched: dict[Storage, list[weakref.ref[SavedTensor]]] = {}

    def watch(self, storage: Storage, saved: SavedTensor) -> None:
        self._watched.setdefault(storage, []).append(weakref.ref(saved))

    def before_write(self, target: TensorCore) -> None:
        """Let what was saved of the target's memory keep a copy."""
        for reference in self._watched.pop(target._storage, ()):
            saved = reference()
            if saved is not None:
                saved.keep_copy()
