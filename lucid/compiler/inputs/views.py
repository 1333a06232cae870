"""How tensors lie in memory that they share, and whose views they are."""

from __future__ import annotations

from typing import Any

from lucid.ir.graph import freeze_attributes
from lucid.tensor.core import TensorCore, ViewChain


def same_view(a: TensorCore, b: TensorCore) -> bool:
    """Whether tensors show the same part of one storage."""
    return a._storage is b._storage and a._chain == b._chain


def frozen_chain(chain: ViewChain) -> tuple[Any, ...]:
    """A hashable form of a view chain."""
    return tuple((op.name, freeze_attributes(attributes)) for op, attributes in chain)


def base_of(tensor: TensorCore) -> TensorCore:
    """The tensor whose history a write through `tensor` changes."""
    return tensor if tensor._base is None else tensor._base
