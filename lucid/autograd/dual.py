"""Tangents: one forward-mode derivative, and what ops, writes and views do to its tangents."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from lucid.autograd.node import Edge, Gradients, Node, OpNode, edge_of
from lucid.autograd.private import recorded_edge
from lucid.autograd.pushforward import push_forward
from lucid.autograd.saved import SavedTensor, with_history
from lucid.ir import ops
from lucid.ir.errors import ShapeError
from lucid.ir.op import Attributes, Op
from lucid.tensor.batched import Batched, innermost
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, apply_op
from lucid.tensor.levels import Level, R, Result
from lucid.tensor.storage import ViewGuard
from lucid.tensor.writing import replay, scatter, write_

if TYPE_CHECKING:
    from lucid.autograd.function import Function
    from lucid.tensor.tensor import Tensor


class DualLevel(Level):
    """One forward-mode derivative: the tensors that have a tangent, and their tangents.

    A view's tangent is the view of its base's tangent, so that writes to either are seen by both.

    Attributes:
        is_users: it was entered by `dual_level`, of which there is one at a time.
    """

    def __init__(self, is_users: bool = False) -> None:
        self.is_users = is_users
        self._position = len(context.levels)
        self._tangents: dict[int, tuple[weakref.ref[TensorCore], TensorCore]] = {}

    def run(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """What a function returns in which tangents count."""
        self._position = len(context.levels)
        try:
            return super().run(function, *args, **kwargs)
        finally:
            self.end()

    def end(self) -> None:
        """Let the tangents vanish."""
        self._tangents.clear()

    @contextmanager
    def below(self) -> Iterator[None]:
        """Compute without the tangents of this level and those inside of it."""
        before = context.visible
        context.visible = min(before, self._position)
        try:
            yield
        finally:
            context.visible = before

    # ------------------------------------------------------------------ tangents

    def has_tangent(self, tensor: Any) -> bool:
        """Whether the tensor has a tangent that isn't known to be zero."""
        if id(tensor) in self._tangents:
            return True
        base = getattr(tensor, "_base", None)
        return base is not None and id(base) in self._tangents

    def tangent_of(self, tensor: Any) -> TensorCore | None:
        """The tangent; None where it is zero."""
        found = self._tangents.get(id(tensor))
        if found is not None:
            return found[1]
        base = getattr(tensor, "_base", None)
        if base is None or id(base) not in self._tangents:
            return None
        with self.below():
            return cast(TensorCore, replay(self._tangents[id(base)][1], tensor._view_chain))

    def note(self, tensor: TensorCore, tangent: TensorCore | None) -> None:
        """Give a tensor its tangent, or none."""
        if tangent is None:
            self._tangents.pop(id(tensor), None)
            return
        key, tangents = id(tensor), self._tangents
        # In C: Python drops an interrupt in a callback, and a newer tensor there would have it.
        reference = weakref.ref(tensor, partial(tangents.pop, key))
        tangents[key] = reference, tangent

    def set_tangent(self, tensor: TensorCore, tangent: TensorCore) -> None:
        """As `note`, with the checks on what users give. Raises `ShapeError`."""
        require_size(tensor, tangent)
        if tangent.dtype is not tensor.dtype:
            tangent = ops.cast(tangent, dtype=tensor.dtype)
        self.note(tensor, tangent)

    def overwrite(self, target: TensorCore, tangent: TensorCore | None) -> None:
        """Note the tangent of what `target` was overwritten with; a view changes its base's."""
        base = target._base
        if base is None or id(target) in self._tangents:
            self.note(target, tangent)
            return
        whole = self.tangent_of(base)
        if tangent is None and whole is None:
            return
        with self.below():
            if whole is None:
                whole = ops.zeros_like(base)
            if tangent is None:
                tangent = ops.zeros_like(target)
            self.note(base, scatter(whole, target._view_chain, tangent))

    def note_result(self, result: TensorCore, tangent: TensorCore | None) -> None:
        """Note the tangent of a new result, and of what its node saved of it."""
        base = result._base
        if base is None or id(base) not in self._tangents:
            self.note(result, tangent)
        node = result._grad_fn
        for saved in saved_outputs(node, result._output_nr):
            self.note(saved, tangent)

    # ------------------------------------------------------------------ as a level

    def keep_private_history(self, tensor: TensorCore) -> None:
        tangent = self.tangent_of(tensor)
        if tangent is not None:
            self.note(tensor, _with_private_history(tangent))

    def map_tangent(self, tensor: TensorCore, function: Callable[[TensorCore], TensorCore]) -> None:
        tangent = self.tangent_of(tensor)
        if tangent is not None:
            self.note(tensor, function(tangent))

    def alias(self, tensor: TensorCore, alias: TensorCore) -> None:
        tangent = self.tangent_of(tensor)
        if tangent is not None:
            self.note(alias, tangent)

    def acts_on(self, op: Op | None, tensors: Sequence[Any], position: int) -> bool:
        return position < context.visible and any(map(self.has_tangent, tensors))

    def apply(
        self, op: Op, operands: Sequence[TensorCore], attributes: Attributes, position: int
    ) -> TensorCore:
        tangents = [self.tangent_of(operand) for operand in operands]
        with self.below():
            result = cast(TensorCore, apply_op(op, operands, attributes))
            tangent = None
            if result.dtype.is_floating_point:
                tangent = push_forward(op, attributes, result, operands, tangents)
        self.note_result(result, tangent)
        return result

    def write(self, target: TensorCore, value: TensorCore, position: int) -> None:
        tangent = self.tangent_of(value)
        if context.recorder is not None:
            context.recorder.note_hidden_write(innermost(target))
        with self.below():
            write_(target, value)
            if tangent is not None:
                if not target.dtype.is_floating_point:
                    tangent = None
                else:
                    tangent = ops.cast(tangent, dtype=target.dtype)
                    tangent = ops.broadcast_to(tangent, target._type.shape)
        self.overwrite(target, tangent)

    def call(
        self,
        function: type[Function],
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        position: int,
    ) -> Result:
        from lucid.autograd.function_forward import call_dual

        return call_dual(self, function, inputs, keywords)


def require_size(tensor: TensorCore, tangent: TensorCore) -> None:
    """Raise `ShapeError` unless the tangent has the tensor's shape."""
    if tangent._type.shape != tensor._type.shape:
        raise ShapeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(tensor._type.shape)} while "
            f"the given forward gradient is of size {list(tangent._type.shape)}."
        )


def _with_private_history(tensor: TensorCore) -> TensorCore:
    """The tensor with the history that only the forward that runs knows of, made its own."""
    edge = recorded_edge(tensor)
    if isinstance(tensor, Batched):
        inner = _with_private_history(tensor._inner)
        if inner is not tensor._inner:
            outer = edge_of(tensor) if edge is None else edge
            tensor = tensor._level.wrap(inner)
            return tensor if outer is None else with_history(tensor, outer)
    return tensor if edge is None else with_history(tensor, edge)


def saved_outputs(node: Node | None, output_nr: int) -> list[TensorCore]:
    """What a node saved of one of its own outputs: other handles of the same memory."""
    if isinstance(node, OpNode):
        kept = list((node.saved or {}).values())
    else:
        every = getattr(node, "_saved", None) or ()
        kept = [saved for saved in every if isinstance(saved, SavedTensor)]
    found = [saved.tensor for saved in kept if saved.output_nr == output_nr]
    return [tensor for tensor in found if tensor is not None]


class IdentityBackward(Node):
    """The history of another handle of the same tensor."""

    def __init__(self, tensor: TensorCore) -> None:
        super().__init__((edge_of(tensor),), (tensor._type,))

    def apply(self, gradients: Gradients) -> Gradients:
        return gradients


def linked_alias(tensor: TensorCore) -> Tensor:
    """Another handle of the same memory, through which gradients flow."""
    result = tensor._alias()
    if context.grad_enabled and tensor.requires_grad:
        node: Edge = (IdentityBackward(tensor), 0)
        result._grad_fn, result._output_nr = node
        result._requires_grad = True
        if tensor.is_leaf:
            message = (
                "a view of a leaf Variable that requires grad is being used in an in-place "
                "operation."
            )
            result._guard = ViewGuard(message, None, result._counter.value)
    return result
