"""Memory that tensors share: a NumPy buffer, or a value of the graph being traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lucid.ir.extents import is_open
from lucid.ir.strides import Strides, contiguous_strides
from lucid.ir.types import TensorType, type_of_array
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.ir.graph import Value


class VersionCounter:
    """Counts the in-place writes that a saved tensor must not have seen.

    Attributes:
        now: the count outside of any trace; a trace counts its own writes for itself, so that other
            threads see nothing of them.
        value: the count for the thread that asks.
    """

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0

    @property
    def value(self) -> int:
        recorder = context.recorder
        return self.now if recorder is None else recorder.versions.setdefault(self, self.now)

    @value.setter
    def value(self, value: int) -> None:
        recorder = context.recorder
        if recorder is None:
            self.now = value
        else:
            recorder.versions[self] = value


class ViewGuard(NamedTuple):
    """Refuses writes that the history of a view would not know of.

    Attributes:
        written: what a write through the view raises, if it requires grad.
        stale: what reading its history raises once its memory was written otherwise; None: nothing.
        version: of the memory when the view was made.
    """

    written: str
    stale: str | None
    version: int


class Storage:
    """A buffer and, while a trace runs, the value that the buffer would hold by now.

    Attributes:
        array: the whole buffer; None when it exists only in a trace.
        root_type: type of the whole buffer, which view chains start from.
        value: what the buffer holds in the trace of `recorder`; a new value after each write.
        recorder: the trace that `value` belongs to; None outside of any.
        generation: counts the writes seen by `value`, so that views know when to be derived anew.
    """

    __slots__ = ("__weakref__", "array", "generation", "recorder", "root_type", "value")

    def __init__(self, root_type: TensorType, array: np.ndarray | None = None) -> None:
        self.array = array
        self.root_type = root_type
        self.value: Value | None = None
        self.recorder: object = None
        self.generation = 0

    @staticmethod
    def of_array(array: np.ndarray) -> Storage:
        return Storage(type_of_array(array), array)

    @staticmethod
    def of_value(value: Value, recorder: object) -> Storage:
        storage = Storage(value.type)
        storage.value = value
        storage.recorder = recorder
        return storage

    @property
    def strides(self) -> Strides:
        """Strides of the whole buffer in elements; one that only a trace knows is row-major.

        So is one whose size is open.
        """
        if self.array is None or is_open(self.root_type.size):
            return contiguous_strides(self.root_type.shape)
        return element_strides(self.array)


def element_strides(array: np.ndarray) -> Strides:
    """An array's strides in elements."""
    size = array.itemsize
    return tuple(stride // size for stride in array.strides)
