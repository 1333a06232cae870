"""Histories that end in a step: results that can't be differentiated any more, and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from lucid.autograd.node import Edge, Gradients, Node, edge_of
from lucid.autograd.outputs import freed_behind
from lucid.compiler.results.histories import Ended, Given, given, nodes_behind
from lucid.ir.errors import EagerOnlyError, LucidError
from lucid.tensor.context import epoch
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.compiler.inputs.signature import Call

KEEPS_GRADIENT = (
    "it gives a tensor another history, by writing it, that keeps its gradient by retain_grad()"
)


class LostBackward(Node):
    """Behind a result whose graph was freed inside of the compiled step, or was lost by a write."""

    def __init__(self, result: TensorCore, message: str) -> None:
        super().__init__((), (result._type,))
        self._message = message

    def apply(self, gradients: Gradients) -> Gradients:
        raise LucidError(self._message)


def lost_backward(result: TensorCore, outer: Collection[Edge]) -> LostBackward | None:
    """The node behind a result that can't be differentiated any more; None for all others.

    outer: where history from outside begins, which is known at each call only.
    """
    if not result.requires_grad:
        return None
    message = result._lost_history()
    edge = None if message is not None else edge_of(result)
    if edge is not None:
        message = freed_behind(nodes_behind(edge, outer))
    return None if message is None else LostBackward(result, message)


def end_history(ended: Ended, arguments: Sequence[TensorCore]) -> None:
    """Cut a tensor from its history, or leave it one that says why there is none."""
    tensor, node = given(ended.tensor, arguments), ended.node
    tensor._grad_fn, tensor._output_nr = node, 0
    tensor._epoch += ended.shows_in_views
    if tensor._requires_grad != (node is not None):
        tensor._requires_grad = node is not None
        epoch.count += 1


def check_rewritten(known: Given, call: Call) -> None:
    """Refuse a tensor whose history isn't its own alone, though it gets another in the step."""
    tensor = given(known, call.tensors)
    if tensor._retains_grad:
        raise EagerOnlyError(KEEPS_GRADIENT)
    base = tensor._base
    is_view = isinstance(known, int) and base is not None and base._storage is tensor._storage
    if is_view and not any(other is base for other in call.tensors):
        raise EagerOnlyError(
            "it gives an argument another history, by writing it, that is a view of a tensor which "
            "is no argument"
        )
