"""What `data_ptr()` gives in a trace: something to tell by whether two tensors share memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lucid.compiler.inputs.cells import Cell, GradUse
from lucid.compiler.inputs.signature import Call
from lucid.compiler.results.outcomes import leaf_of, storage_of
from lucid.ir.errors import TraceError
from lucid.ir.strides import view_strides
from lucid.runtime.addresses import address_of
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder

_NUMBERS_METHODS = (
    "int index float add radd sub rsub mul rmul floordiv rfloordiv mod rmod divmod "
    "and rand or ror xor lshift rshift neg invert lt le gt ge bool str format"
)


class DataPointer:
    """The address of a traced tensor's first element, which is known only to each call.

    It equals those of tensors that begin at the same place: of what the step makes that is known,
    of what it is given it is compared with the addresses of the traced call, and the step is
    specialized on the answer. The memory of state stays where it is, so it can be compared with a
    number as well. A step that returns one returns the address of the call.

    Attributes:
        tensor: what it is the address of.
    """

    def __init__(self, tensor: TensorCore) -> None:
        self.tensor = tensor
        self._storage = storage = tensor._storage
        self._offset = _offset(tensor) * tensor.dtype.itemsize
        self._address = None if storage.array is None else address_of(storage.array) + self._offset

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DataPointer):
            if self._storage is other._storage:
                return self._offset == other._offset
            if self._address is None or other._address is None:
                return False
            self._ask()
            other._ask()
            return self._address == other._address
        if isinstance(other, int):
            if not self._is_of_state():
                self._refuse()
            return self._address == other
        return NotImplemented

    def __hash__(self) -> int:
        if self._address is None:
            return hash((self._storage, self._offset))
        self._ask()
        return hash(self._address)

    def __repr__(self) -> str:
        return f"<data_ptr() of {self.tensor._describe()}>"

    def _ask(self) -> None:
        """Specialize the step on which of the addresses that were asked for are equal."""
        recorder = context.recorder
        source = None if recorder is None else _source_of(self._storage, recorder)
        if recorder is not None and source is not None:
            recorder.addresses[self._storage, self._offset] = source

    def _is_of_state(self) -> bool:
        recorder = context.recorder
        return recorder is not None and type(_source_of(self._storage, recorder)) is np.ndarray

    def _refuse(self, *operands: Any) -> NoReturn:
        what = f"arithmetic on data_ptr() of {self.tensor._describe()}"
        if context.recorder is None:
            raise TraceError(f"{what}: the trace that it belongs to has ended")
        context.recorder.refuse(
            what, "compare it with the data_ptr() of another tensor, or return it"
        )


for _name in _NUMBERS_METHODS.split():
    setattr(DataPointer, f"__{_name}__", DataPointer._refuse)

Source = Cell | GradUse | np.ndarray
"""Whose memory it is: an input's, that of a gradient which a call finds, or state's."""

Asked = Mapping[tuple[Storage, int], Source]
"""The places that a trace compared, as memory and the bytes before them."""


def _source_of(storage: Storage, recorder: Recorder) -> Source | None:
    """Where a call finds the memory; None for what the step makes."""
    leaf = recorder.grad_leaf_of.get(storage)
    if leaf is not None:
        return recorder.grads[id(leaf)]
    cell = recorder.cells.get(storage)
    if cell is not None and cell.kind == "constant":
        return None
    return cell if cell is not None and cell.kind == "arg" else storage.array


def _address(storage: Storage) -> int:
    assert storage.array is not None
    return address_of(storage.array)


class AddressGuard:
    """A step was specialized on which of several places in memory are the same."""

    def __init__(self, asked: Asked) -> None:
        self._places = [(source, offset) for (_, offset), source in asked.items()]
        addresses = [_address(storage) + offset for storage, offset in asked]
        self._expected = _first_ones(addresses)

    @staticmethod
    def of(asked: Asked) -> AddressGuard | None:
        """The guard for what a trace compared; None where no call finds it at another place."""
        moves = any(type(source) is not np.ndarray for source in asked.values())
        return AddressGuard(asked) if moves else None

    def failure(self, call: Call) -> str | None:
        """Whether other ones are the same in a call."""
        addresses = [address_of(_memory(source, call)) + n for source, n in self._places]
        if _first_ones(addresses) == self._expected:
            return None
        return "data_ptr(): other tensors begin at the same address"


def _first_ones(addresses: Iterable[int]) -> list[int]:
    """For each address the number of the first that equals it."""
    first: dict[int, int] = {}
    return [first.setdefault(address, i) for i, address in enumerate(addresses)]


def _memory(source: Source, call: Call) -> np.ndarray:
    """The array that the place is counted from, in a call."""
    array: np.ndarray | None
    if isinstance(source, GradUse):
        grad = leaf_of(source, call)._grad
        array = None if grad is None else grad._storage.array
    elif isinstance(source, Cell):
        is_part = source.kind == "arg" and not source.is_whole
        storage = storage_of(source, call)
        array = call.tensors[source.position]._array if is_part else storage.array
    else:
        array = source
    assert array is not None
    return array


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
