"""NumPy arrays of the user's that a trace makes tensors from: each call reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.compiler.guards.age import owner_of
from lucid.runtime.addresses import address_of
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage

if TYPE_CHECKING:
    from lucid.compiler.results.memory import TracedMemory


class UsersArrays:
    """Those of one trace.

    Attributes:
        live: identities of those who own their memory.
        copied: memory of those of which eager mode makes copies.
    """

    def __init__(self, recorder: TracedMemory) -> None:
        self._recorder = recorder
        self.live: set[int] = set()
        self.copied: dict[Storage, None] = {}
        self._tensors: dict[tuple[Any, ...], TensorCore] = {}

    def adopt(self, tensor: TensorCore, is_copied: bool = False) -> None:
        """Read the user's NumPy array at each call; one that the trace didn't make is state."""
        recorder = self._recorder
        recorder.own.add(id(tensor))
        array = tensor._array
        assert array is not None
        known = self._tensors.setdefault(_place_of(array), tensor)
        tensor._storage, tensor._counter = known._storage, known._counter
        self.live.add(id(owner_of(array)))
        if known is tensor:
            collector = recorder.collector
            outer = collector is None or collector.was_there(array)
            cell = recorder.add_cell(tensor._storage, "state" if outer else "constant")
            cell.counter = tensor._counter
        if is_copied and recorder.cells[tensor._storage].kind == "state":
            self.copied.setdefault(tensor._storage)

    def forget(self) -> None:
        """Let go of the tensors on them."""
        self._tensors.clear()


def _place_of(array: np.ndarray) -> tuple[Any, ...]:
    return address_of(array), array.shape, array.strides, array.dtype
