"""The private history of what a custom forward computes.

A forward runs with gradients off, so its tensors have no history. But its backward can be
differentiated, and a tensor that forward computed and saved is there a function of the inputs: to
take it for a constant would make second derivatives silently wrong. So while a forward runs that
may be differentiated, its ops record nodes as in grad mode, noted beside the tensors' own history.
What is saved keeps its note; all other notes end with the forward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from lucid.autograd.node import CopySlices, Edge, OpNode, edge_of
from lucid.autograd.saved import MutationGuard
from lucid.ir.op import Attributes, Op
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.ir.inference import Application
    from lucid.tensor.core import TensorCore, ViewChain


class CustomForward:
    """A custom forward that is running.

    Attributes:
        is_active: whether notes made in it still count.
        touched: tensors with notes that could outlive it.
        guard: copies what the noted nodes saved before it is written in place: unlike in grad mode,
            nobody asked for these nodes, so they must not make an error of the write.
    """

    __slots__ = ("guard", "is_active", "touched")

    def __init__(self) -> None:
        self.is_active = True
        self.guard = MutationGuard()
        self.touched: list[TensorCore] = []


class PrivateRecord(NamedTuple):
    """A tensor's history inside of a forward.

    Attributes:
        edge: where its gradient goes; None for a constant.
        base: of a view, the note that its base had: it is derived anew when that has another.
    """

    forward: CustomForward
    edge: Edge | None
    base: PrivateRecord | None


@contextmanager
def custom_forward(is_differentiable: bool) -> Iterator[CustomForward | None]:
    """Note the histories of what is computed in the block; they count until its end.

    Yields the forward that this one is part of.
    """
    before = context.forward
    if not is_differentiable:
        yield before
        return
    forward = context.forward = CustomForward()
    try:
        yield before
    finally:
        context.forward = before
        forward.is_active = False
        for tensor in forward.touched:
            if tensor._private is not None and tensor._private.forward is forward:
                tensor._private = None
        forward.touched.clear()


def _active_note(tensor: TensorCore) -> PrivateRecord | None:
    note = tensor._private
    return note if note is not None and note.forward.is_active else None


def note(tensor: TensorCore, edge: Edge | None, forward: CustomForward | None = None) -> None:
    """Give a tensor its history in a forward; that is the innermost one, if none is named."""
    forward = context.forward if forward is None else forward
    assert forward is not None
    base = None if tensor._base is None else _active_note(tensor._base)
    tensor._private = PrivateRecord(forward, edge, base)
    forward.touched.append(tensor)


def private_edge(tensor: TensorCore) -> Edge | None:
    """Where a gradient for `tensor` goes, for the forward that runs; None for a constant."""
    noted = _active_note(tensor)
    base = tensor._base
    if base is not None:
        base_note = _active_note(base)
        if base_note is not None and (noted is None or noted.base is not base_note):
            note(tensor, _derived_edge(base, tensor._view_chain))
            noted = tensor._private
    return edge_of(tensor) if noted is None else noted.edge


def _derived_edge(base: TensorCore, chain: ViewChain) -> Edge | None:
    """The history of the view of `base` as it is by now."""
    from lucid.tensor.writing import replay

    before = context.grad_enabled
    context.grad_enabled = False
    try:
        return private_edge(replay(base, chain))
    finally:
        context.grad_enabled = before


def recorded_edge(tensor: TensorCore) -> Edge | None:
    """The history that only forwards which still run know of; None when there is none."""
    if context.forward is None:
        return None
    edge = private_edge(tensor)
    return edge if _active_note(tensor) is not None else None


def record_op(
    op: Op,
    operands: Sequence[TensorCore],
    attributes: Attributes,
    result: TensorCore,
    known: Application | None = None,
) -> None:
    """Note that a forward computed `result`."""
    edges = tuple(map(private_edge, operands))
    if result._type.dtype.is_floating_point and any(edge is not None for edge in edges):
        node = OpNode(op, operands, attributes, result, edges, known, is_private=True)
        forward = context.forward
        assert forward is not None
        base = None if result._base is None else _active_note(result._base)
        result._private = PrivateRecord(forward, (node, 0), base)


def note_written(
    target: TensorCore, edge: Edge | None, forward: CustomForward | None = None
) -> None:
    """Note that `target` was overwritten by something with the history `edge`."""
    base = target._base
    if base is None:
        if edge is not None or private_edge(target) is not None:
            note(target, edge, forward)
        return
    rest = private_edge(base)
    if edge is not None or rest is not None:
        note(base, (CopySlices(base._type, (rest, edge), target._view_chain), 0), forward)
