"""Arrays and tensors from what a file says of them: dtype, shape and bytes, each one checked."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np

from lucid.ir.inference import MOST_AXES
from lucid.nn.parameter import Buffer, Parameter, TransientBuffer
from lucid.tensor.core import of_array
from lucid.tensor.tensor import Tensor

# What safetensors calls the dtypes that it has, and NumPy's name for the same bytes.
STORED_DTYPES = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4",
    "I32": "<i4", "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
_STORED_NAMES = {np.dtype(code): name for name, code in STORED_DTYPES.items()}
# Dtypes that are kept as bytes: complex numbers, and strings of a fixed length.
_KEPT_AS_BYTES = re.compile(r"<c8|<c16|[|]S[1-9]\d{0,8}|<U[1-9]\d{0,8}")
_LAST_CODE_POINT = 0x10FFFF

TENSOR_CLASSES: dict[str, type[Tensor]] = {
    "Tensor": Tensor,
    "Parameter": Parameter,
    "Buffer": Buffer,
    "TransientBuffer": TransientBuffer,
}


def little_endian(array: np.ndarray) -> np.ndarray:
    """The array as it lies in a file: C-contiguous, its bytes in little-endian order."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)


def is_storable(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of a dtype are data; those of objects, structures and dates aren't."""
    return _is_code(dtype.newbyteorder("<").str)


def _is_code(code: str) -> bool:
    return code in STORED_DTYPES.values() or _KEPT_AS_BYTES.fullmatch(code) is not None


def stored_name(dtype: np.dtype[Any]) -> str | None:
    """What the format calls a dtype; None for one that is kept as bytes."""
    return _STORED_NAMES.get(dtype)


def dtype_of_code(code: object) -> np.dtype[Any]:
    """The dtype that a NumPy code names, for storable ones alone. Raises `ValueError`."""
    little = "<" + code[1:] if isinstance(code, str) and code.startswith(">") else code
    if isinstance(little, str) and _is_code(little):
        return np.dtype(str(code))
    raise ValueError(f"no dtype of data is called {str(code)[:80]!r}")


def checked_shape(shape: object, dtype: np.dtype[Any], nbytes: int) -> tuple[int, ...]:
    """The shape of an array of so many bytes. Raises `ValueError` where they don't go together."""
    if not isinstance(shape, (list, tuple)) or len(shape) > MOST_AXES:
        raise ValueError(f"a shape is expected, not {str(shape)[:80]}")
    for size in shape:
        if type(size) is not int or not 0 <= size < 2**63:
            raise ValueError(f"a shape holds sizes, not {str(size)[:80]}")
    expected = prod(shape) * dtype.itemsize
    if expected != nbytes:
        raise ValueError(f"{dtype}{list(shape)} takes {expected} bytes, and there are {nbytes}")
    return tuple(shape)


def check_elements(array: np.ndarray) -> None:
    """Raise `ValueError` for bytes that are no elements: bools beside 0 and 1, no characters."""
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ValueError("a bool is neither 0 nor 1")
    if array.dtype.kind == "U" and array.size:
        points = array.reshape(-1).view(array.dtype.byteorder.replace("=", "<") + "u4")
        if points.max() > _LAST_CODE_POINT:
            raise ValueError("a string holds no characters")


def array_of_bytes(
    dtype: np.dtype[Any], shape: object, data: bytes, *, columns_first: bool = False
) -> np.ndarray:
    """A new array of the elements that some bytes are. Raises `ValueError`."""
    sizes = checked_shape(shape, dtype, len(data))
    flat = np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))
    check_elements(flat)
    return flat.reshape(sizes, order="F" if columns_first else "C")


def tensor_of(kind: object, array: object, requires_grad: object) -> Tensor:
    """A leaf on an array's memory, of the class with a name. Raises `ValueError`, `DTypeError`."""
    if not isinstance(kind, str) or kind not in TENSOR_CLASSES:
        raise ValueError(f"no class of tensors is called {str(kind)[:80]}")
    if not isinstance(array, np.ndarray) or type(requires_grad) is not bool:
        raise ValueError("a tensor is an array and whether it requires grad")
    tensor = of_array(array)
    if requires_grad and not tensor.dtype.is_floating_point:
        raise ValueError(f"a tensor of {tensor.dtype} can't require grad")
    if kind == "Parameter":
        return Parameter(tensor, requires_grad)
    tensor.__class__ = TENSOR_CLASSES[kind]
    tensor._requires_grad = requires_grad
    return tensor
