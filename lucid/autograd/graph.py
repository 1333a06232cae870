"""Access to the autograd graph: nodes, edges, and hooks on the tensors saved in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lucid.autograd.hooks import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    register_multi_grad_hook,
    save_on_cpu,
    saved_tensors_hooks,
)
from lucid.autograd.node import GradientEdge, Node, edge_of
from lucid.ir.errors import LucidError

if TYPE_CHECKING:
    from lucid.tensor.core import TensorCore

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks",
    "get_gradient_edge", "increment_version", "register_multi_grad_hook", "save_on_cpu",
    "saved_tensors_hooks",
]  # fmt: skip


def get_gradient_edge(tensor: TensorCore) -> GradientEdge:
    """Return where the tensor's gradient goes, so that the tensor itself needn't be kept.

    Args:
        tensor: one that requires grad, leaf or not.

    Raises:
        LucidError: it doesn't require grad.

    >>> x = lucid.tensor(3.0, requires_grad=True)
    >>> edge = lucid.autograd.graph.get_gradient_edge(x * x)
    >>> lucid.autograd.grad(edge, x)
    (tensor(6.),)
    """
    edge = edge_of(tensor)
    if edge is None:
        raise LucidError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    return GradientEdge(*edge)


def increment_version(tensor: TensorCore | Sequence[TensorCore]) -> None:
    """Tell that memory was written by other means, so that saved tensors notice.

    A backward that needs what was saved before raises then.

    Args:
        tensor: what was written, or a list or tuple of several.

    >>> x = lucid.zeros(2)
    >>> x.numpy()[:] = 1
    >>> lucid.autograd.graph.increment_version(x)
    >>> x._version
    1
    """
    for written in tensor if isinstance(tensor, (list, tuple)) else (tensor,):
        written._counter.value += 1
