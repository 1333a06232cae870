"""What `data_ptr()` gives in a trace: something to tell by whether two tensors share memory."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid.ir.errors import TraceError
from lucid.ir.strides import view_strides
from lucid.runtime.addresses import address_of
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

_NUMBERS_METHODS = (
    "int index float add radd sub rsub mul rmul floordiv rfloordiv mod rmod divmod "
    "and rand or ror xor lshift rshift neg invert lt le gt ge bool str format"
)


class DataPointer:
    """The address of a traced tensor's first element, which is known only to each call.

    It equals those of tensors that begin at the same place of the same memory, in every call. A
    step that returns it returns the address of the call.

    Attributes:
        tensor: what it is the address of.
    """

    def __init__(self, tensor: TensorCore) -> None:
        self.tensor = tensor
        storage, offset = tensor._storage, _offset(tensor) * tensor.dtype.itemsize
        here = storage.array
        self._place = (storage, offset) if here is None else (None, address_of(here) + offset)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DataPointer):
            return self._place == other._place
        if isinstance(other, int):
            self._refuse()
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._place)

    def __repr__(self) -> str:
        return f"<data_ptr() of {self.tensor._describe()}>"

    def _refuse(self, *operands: Any) -> NoReturn:
        what = f"arithmetic on data_ptr() of {self.tensor._describe()}"
        if context.recorder is None:
            raise TraceError(f"{what}: the trace that it belongs to has ended")
        context.recorder.refuse(
            what, "compare it with the data_ptr() of another tensor, or return it"
        )


for _name in _NUMBERS_METHODS.split():
    setattr(DataPointer, f"__{_name}__", DataPointer._refuse)


def _offset(tensor: TensorCore) -> int:
    """Elements from the beginning of the memory to the tensor's first."""
    storage, offset = tensor._storage, 0
    type, strides = storage.root_type, storage.strides
    for op, attributes in tensor._chain:
        if op.name == "slice":
            offset += sum(i * step for i, step in zip(attributes["starts"], strides, strict=True))
        seen = view_strides(op, attributes, type.shape, strides)
        assert seen is not None, "a chain has views only"
        type, strides = op.infer(type, **attributes), seen
    return offset
