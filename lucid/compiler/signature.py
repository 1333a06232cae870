"""What of a call decides which program runs: structure of the arguments, tensor types, values."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from lucid.ir.strides import is_contiguous
from lucid.tensor.core import TensorCore, of_array
from lucid.tensor.storage import Storage

_BY_VALUE = (bool, int, str, bytes, type(None), complex, np.integer, np.bool_)


class Call:
    """The arguments of one call, flattened.

    Attributes:
        key: equal for calls that the same program may serve.
        tensors: tensor arguments; NumPy arrays are among them, as tensors on their memory.
        floats: float arguments.
        objects: arguments of other classes; the key holds their identity.
    """

    __slots__ = ("_parts", "_storages", "floats", "objects", "tensors")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._parts: list[Any] = []
        self.tensors: list[TensorCore] = []
        self.floats: list[float] = []
        self.objects: list[Any] = []
        self._storages: dict[Storage, int] = {}
        for value in args:
            self._add(value)
        for name in sorted(kwargs):
            self._parts.append(name)
            self._add(kwargs[name])

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(self._parts)

    def _add(self, value: Any) -> None:
        kind = type(value)
        if isinstance(value, TensorCore):
            self._add_tensor(value)
        elif kind is float or isinstance(value, np.floating):
            self._parts.append(float)
            self.floats.append(float(value))
        elif isinstance(value, _BY_VALUE):
            self._parts += (kind, value)
        elif kind in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
            self._parts += (kind, len(value))
            for item in value:
                self._add(item)
        elif isinstance(value, dict):
            self._parts += (kind, tuple(value))
            for item in value.values():
                self._add(item)
        elif isinstance(value, np.ndarray):
            self._parts.append(np.ndarray)
            self._add_tensor(of_array(value))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            self._parts.append(kind)
            for field in dataclasses.fields(value):
                self._add(getattr(value, field.name))
        else:
            self._parts += (kind, id(value))
            self.objects.append(value)

    def _add_tensor(self, tensor: TensorCore) -> None:
        strides = tensor.element_strides()
        shape = tensor.type.shape
        same = self._storages.setdefault(tensor._storage, len(self.tensors))
        self._parts += (
            tensor.type,
            None if is_contiguous(shape, strides) else strides,
            tensor.requires_grad,
            same,
        )
        self.tensors.append(tensor)
