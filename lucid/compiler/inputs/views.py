"""How tensors lie in memory that they share, and whose views they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid.ir.graph import freeze_attributes
from lucid.tensor.core import TensorCore, ViewChain
from lucid.tensor.writing import made_without_grad


def same_view(a: TensorCore, b: TensorCore) -> bool:
    """Whether tensors on one storage show the same part of it."""
    return a._chain == b._chain


def frozen_chain(chain: ViewChain) -> tuple[Any, ...]:
    """A hashable form of a view chain."""
    return tuple((op.name, freeze_attributes(attributes)) for op, attributes in chain)


def base_of(tensor: TensorCore) -> TensorCore:
    """The tensor whose history a write through `tensor` changes."""
    return tensor if tensor._base is None else tensor._base


def shared_bases(tensors: Sequence[TensorCore]) -> list[TensorCore]:
    """Those that several of the tensors are views of, and that are none of them.

    Or one, if it knows nothing of the base's history: it can't be written then.
    """
    known = {id(tensor) for tensor in tensors}
    views: dict[int, set[int]] = {}
    found: list[TensorCore] = []
    for tensor in tensors:
        base = tensor._base
        if base is None or id(base) in known or base._storage is not tensor._storage:
            continue
        of_base = views.setdefault(id(base), set())
        of_base.add(id(tensor))
        if len(of_base) == 2 or made_without_grad(tensor):
            found.append(base)
            known.add(id(base))
    return found


def kinship(tensors: Sequence[TensorCore]) -> list[tuple[int, int]]:
    """Which of the tensors are views, and of which others among them."""
    numbers = {id(tensor): i for i, tensor in reversed([*enumerate(tensors)])}
    return [
        (i, numbers[id(tensor._base)])
        for i, tensor in enumerate(tensors)
        if id(tensor._base) in numbers and base_of(tensor)._storage is tensor._storage
    ]
