"""How tensors and nodes lie in memory, for machine code that makes them."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from lucid.autograd.function import BackwardCFunction
from lucid.autograd.node import AccumulateGrad, OpNode
from lucid.autograd.rules import Derivative
from lucid.autograd.saved import SavedTensor
from lucid.ir.environment import NATIVE_CALLS
from lucid.ir.inference import Application
from lucid.ir.memory import address_of
from lucid.ir.types import TensorType
from lucid.runtime.entry.layout import UnknownLayoutError, constructor_of, layout_of, slot_offset
from lucid.runtime.entry.words import Layout
from lucid.runtime.once import Once
from lucid.tensor.context import epoch
from lucid.tensor.core import TensorCore, _new
from lucid.tensor.lazy_grads import GradBuffers
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.tensor import Tensor

logger = logging.getLogger("lucid.native")
# What each object has of its own; the rest is as in a template.
_OWN_OF_EACH = {
    Tensor: ("_storage", "_array", "_counter"), Storage: ("array",), VersionCounter: (),
    OpNode: ("_ends", "_sequence", "_spot", "attributes", "saved"),
    BackwardCFunction: ("_ends", "_sequence", "_spot"),
    SavedTensor: ("version", "tensor"),
}  # fmt: skip


class Offsets:
    """Where the slots of our own classes lie.

    Attributes:
        copied: of a class, the slots that are as in a template: a table of them.
        new: the function that makes an object.
    """

    def __init__(self) -> None:
        batch = object.__new__(GradBuffers)
        self.epoch = slot_offset(type(epoch)(), "count")
        slots = {kind: slots_of(kind) for kind in _OWN_OF_EACH}
        if not slots[BackwardCFunction].items() <= slots[OpNode].items():
            raise UnknownLayoutError("nodes of Functions")
        self.gradient = slots[Tensor]["_gradient"]
        self.new = constructor_of(object)
        self.copied = {
            kind: np.array([at for name, at in found.items() if name not in _OWN_OF_EACH[kind]])
            for kind, found in slots.items()
        }
        self.fields = {
            "storage_array": slots[Storage]["array"],
            "storage_root_type": slots[Storage]["root_type"],
            "counter_now": slots[VersionCounter]["now"],
            **{
                f"batch_{name}": slot_offset(batch, name)
                for name in GradBuffers.__slots__
                if name != "outputs"
            },
        }
        leaf = object.__new__(AccumulateGrad)
        self.fields["leaf_hooks"] = slot_offset(leaf, "post_accumulate_hooks")
        self.fields["leaf_variable"] = slot_offset(leaf, "variable")
        derivative = object.__new__(Derivative)
        for name in ("words", "attributes"):
            self.fields[f"derivative_{name}"] = slot_offset(derivative, name)
        application = object.__new__(Application)
        for name in ("result_type", "step", "form"):
            self.fields[f"application_{name}"] = slot_offset(application, name)
        tensor_type = object.__new__(TensorType)
        for name in ("dtype", "size"):
            self.fields[f"type_{name}"] = slot_offset(tensor_type, name)
        for start, kind in (("tensor", Tensor), ("node", OpNode), ("saved", SavedTensor)):
            for name, at in slots[kind].items():
                field = f"{start}_{name.removeprefix('_')}"
                if field in Layout.__slots__:
                    self.fields[field] = at


def slots_of(kind: type) -> dict[str, int]:
    """Where the slots of a class lie in its objects."""
    value: Any = object.__new__(kind)
    names = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ())]
    return {name: slot_offset(value, name) for name in names if not name.startswith("__")}


@Once
def measured() -> tuple[Layout, Offsets] | None:
    """The layout that native code is made for; None where calls stay in Python."""
    if not NATIVE_CALLS.read():
        return None
    try:
        offsets = Offsets()
        return layout_of(offsets.fields), offsets
    except UnknownLayoutError as reason:
        logger.info("calls go through Python: %s", reason)
        return None


class Tables:
    """Tables of words for native code, and all objects that they refer to."""

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets
        self._kept: list[Any] = []

    def _keep(self, value: Any) -> int:
        """The address of an object, which stays alive."""
        self._kept.append(value)
        return id(value)

    def _words(self, words: Sequence[int]) -> int:
        """The address of a table."""
        table = np.array(words or [0], np.int64)
        self._kept.append(table)
        return address_of(table)

    def _template(
        self, value: Any, base: type[Any] | None = None, own: Collection[str] = ()
    ) -> int:
        """How to make an object like `value`.

        base: has all slots of its class, which may be one of many. own: slots that each object has
        for itself, of a class that `Offsets` doesn't know.
        """
        kind = type(value)
        if own:
            offsets = np.array([at for name, at in slots_of(kind).items() if name not in own])
        else:
            offsets = self._offsets.copied[base or kind]
        shown = len(offsets), address_of(offsets)
        self._kept += offsets, value
        return self._words((self._offsets.new, id(kind), id(()), id(value), *shown))

    def _tensor(self, type: TensorType, tensor: TensorCore, version: int) -> tuple[int, int, int]:
        """Templates of the storage, the counter and the tensor of a result."""
        counter = VersionCounter()
        counter.now = version
        tensor._strides = None
        own = self._template(tensor, Tensor)  # it may be a parameter
        return self._template(Storage(type)), self._template(counter), own


def own(value: Any) -> int:
    """The address of an object, with a reference that native code is to drop."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return id(value)


def template_of(type: TensorType) -> Tensor:
    """A tensor without memory."""
    return _new(Storage(type), type, None, ())
