"""A sparse tensor saved for the backward of a custom Function: two parts with their versions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from lucid.autograd.saved import SavedTensor

if TYPE_CHECKING:
    from lucid.autograd.node import Node
    from lucid.sparse.tensor import SparseTensor
    from lucid.tensor.tensor import Tensor


class SavedSparse:
    """What `SavedTensor` is to a dense tensor."""

    __slots__ = ("_kept", "parts")

    def __init__(self, tensor: SparseTensor, is_private: bool) -> None:
        self._kept = replace(tensor)
        parts = (tensor.coordinates, tensor.entries)
        self.parts = [SavedTensor(part, -1, is_private) for part in parts]

    def let_go(self) -> None:
        """Keep the tensor no longer, only its parts."""
        coordinates, entries = (cast("Tensor", part.tensor) for part in self.parts)
        self._kept = replace(self._kept, coordinates=coordinates, entries=entries)

    def unpack(self, node: Node, is_running: bool) -> SparseTensor:
        """The tensor as it was. Raises when a part was written in place since."""
        coordinates, entries = (
            cast("Tensor", part.unpack(node, is_running)) for part in self.parts
        )
        return replace(self._kept, coordinates=coordinates, entries=entries)
