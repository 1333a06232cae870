"""New tensors from data: lists, arrays, other libraries' tensors.

Args:
    dtype: of the result. Default: None, by the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lucid.device import check_device
from lucid.dtypes import as_dtype, get_default_dtype, promote_types
from lucid.functions.conversion import cast
from lucid.functions.elementwise import clone
from lucid.functions.promotion import operand, scalar_dtype
from lucid.functions.shape import reshaped
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, OptionError, ShapeError
from lucid.ir.extents import is_open
from lucid.ir.types import DType, bool_, has_dtype, i64
from lucid.tensor.arrays import (
    OFTEN,
    copied_array,
    is_nested,
    native_dtype,
    plain_array,
    plain_data,
)
from lucid.tensor.context import context
from lucid.tensor.core import constant, emit, from_array, of_users_array

__all__ = ["as_tensor", "asarray", "from_dlpack", "from_numpy", "frombuffer", "tensor"]

MOST_LIVE = 128  # numbers of one tensor that a trace goes on reading; each is an input of its own


def tensor(
    data: Any, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return a new tensor with a copy of `data`: a number, nested lists, an array, or a tensor.

    A tensor is copied without its history; later writes to `data` don't show.

    dtype: that of an array or tensor; of numbers int64, bool, or the default dtype, and of mixed
    ones what they promote to.

    Args:
        data: the numbers. An empty list makes a tensor of shape (0,).

    Raises:
        ShapeError: the lists are ragged.
        OptionError: a number doesn't fit the dtype.
        TraceError: lists hold batched tensors of a vmap; `stack` says what they mean.

    >>> lucid.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    >>> lucid.tensor([1, 2.5])
    tensor([1.0000, 2.5000])
    """
    check_device(device, "tensor")
    wanted = None if dtype is None else as_dtype(dtype, "tensor")
    shown: type = data.__class__
    if context.recorder is not None and (rows := context.recorder.numbers_in(data)) is not None:
        data, wanted = rows, wanted or _dtype_of_number(rows._type.dtype.numpy.type().item())
    elif type(data) is not shown and shown in (np.ndarray, range):  # which only a call knows
        is_empty = shown is range and not data.length > 0  # then it is one of floats
        data = range(0) if is_empty else data.as_tensor()
    if isinstance(data, Tensor):
        result = clone(cast(data.detach(), wanted or data._type.dtype)).detach()
    elif shown is not list and _is_of_call(data):
        result = constant(data, wanted or _dtype_of_number(data))
    else:
        if hasattr(data, "__array__") and not isinstance(data, np.generic):
            data = plain_array(data, "tensor")
        if _is_read_live(data):
            shared = of_users_array(data, "tensor", is_copied=True)
            result = clone(cast(shared, wanted or shared._type.dtype)).detach()
        elif is_nested(data):
            data = plain_data(data, "tensor")
            if _is_of_step(data):
                result = _recorded(data, wanted)
            else:
                result = from_array(_array_of_lists(data, wanted))
        else:
            result = from_array(_array(data, wanted))
    return as_leaf(result, requires_grad)


def _is_of_step(data: Any) -> bool:
    """Whether there are tensors in nested lists, or numbers that the trace reads at each call."""
    if context.recorder is None or context.levels:
        return False
    leaves = list(_leaves(data))
    live = sum(map(_is_of_call, leaves))
    return 0 < live <= MOST_LIVE or any(isinstance(leaf, Tensor) for leaf in leaves)


def _is_of_call(number: Any) -> bool:
    """Whether it is a live scalar, whose class is only what it says, or an open size."""
    return type(number) is not number.__class__ or is_open(number)


def _is_read_live(data: Any) -> bool:
    """Whether a trace goes on reading the array, so that nothing of it is frozen."""
    return context.recorder is not None and isinstance(data, np.ndarray) and has_dtype(data)


def as_leaf(result: Tensor, requires_grad: bool) -> Tensor:
    """The tensor, as one that requires grad if it was asked for."""
    return result.requires_grad_() if requires_grad else result


def _array(data: Any, dtype: DType | None) -> np.ndarray:
    """A new array of the data in a dtype that lucid has."""
    if isinstance(data, (np.ndarray, np.generic)):
        return copied_array(np.asarray(data), dtype, "tensor")
    found = scalar_dtype(data, "tensor") if dtype is None else dtype
    if not isinstance(data, (bool, int, float)):
        scalar_dtype(data, "tensor")
    return _converted(data, found)


def _array_of_lists(data: Any, dtype: DType | None) -> np.ndarray:
    if isinstance(data, np.ndarray):  # the numbers of a range
        for end in (data[0], data[-1]):
            _converted(int(end), dtype or i64)  # raises if they don't fit
        return copied_array(data, dtype, "tensor")
    leaves = list(_leaves(data))
    if dtype is None:
        dtype = _dtype_of_leaves(leaves)
    are_numbers = OFTEN.issuperset(map(type, leaves))
    if not are_numbers and any(isinstance(leaf, (Tensor, np.ndarray)) for leaf in leaves):
        data = _plain(data)
    return _converted(data, dtype)


def _recorded(data: Any, dtype: DType | None) -> Tensor:
    """Nested lists in a trace, where tensors and live numbers in them stay what each call finds."""
    leaves = list(_leaves(data))
    dtype = dtype or _dtype_of_leaves(leaves)
    shape = _converted(_zeros(data), bool_).shape  # raises if the lists are ragged
    parts = [_flat(leaf, dtype) for leaf in leaves]
    return reshaped(emit(ops.concat, parts, axis=0), shape).detach()


def _flat(leaf: Any, dtype: DType) -> Tensor:
    """What stands in a list, as a tensor of one axis without history."""
    if isinstance(leaf, np.ndarray):
        leaf = tensor(leaf)
    found = operand(leaf, dtype, "tensor").detach()
    return reshaped(found, (found.numel(),))


def _zeros(data: Any) -> Any:
    """Nested lists as long, of zeros."""
    if is_nested(data):
        return [_zeros(item) for item in data]
    is_array = isinstance(data, (Tensor, np.ndarray))
    return np.zeros(tuple(data.shape)).tolist() if is_array else 0


def _converted(data: Any, dtype: DType) -> np.ndarray:
    try:
        return np.array(data, dtype.numpy)
    except OverflowError as error:
        raise OptionError(f"tensor: a value doesn't fit {dtype!r}: {error}") from None
    except (ValueError, TypeError) as error:
        raise ShapeError(
            f"tensor: {error}\nhint: nested lists need the same length on each level"
        ) from None


def _leaves(data: Any) -> Iterator[Any]:
    if not is_nested(data):
        yield data
    elif OFTEN.issuperset(map(type, data)):
        yield from data
    else:
        for item in data:
            yield from _leaves(item)


def _dtype_of_leaves(leaves: list[Any]) -> DType:
    if not leaves:
        return get_default_dtype()
    found = bool_
    # Of plain numbers one of each kind says it.
    kinds = {type(leaf): leaf for leaf in leaves}
    for leaf in kinds.values() if OFTEN.issuperset(kinds) else leaves:
        kind = type(leaf)
        if kind in OFTEN:
            dtype = scalar_dtype(leaf, "tensor")
        elif isinstance(leaf, Tensor):
            dtype = leaf._type.dtype
        elif isinstance(leaf, np.ndarray):
            dtype = native_dtype(leaf.dtype)
        else:
            dtype = _dtype_of_number(leaf)
        found = promote_types(found, dtype)
    return found


def _dtype_of_number(number: Any) -> DType:
    """One of NumPy's has a dtype of its own; a live scalar is of the class that it says."""
    kind = number.__class__
    if issubclass(kind, np.generic):
        return native_dtype(np.dtype(kind))
    return scalar_dtype(number, "tensor")


def _plain(data: Any) -> Any:
    """Nested lists without tensors and arrays in them."""
    if is_nested(data):
        return [_plain(item) for item in data]
    if isinstance(data, Tensor):
        return data._concrete("tensor() of a list of tensors,").tolist()
    return data.tolist() if isinstance(data, np.ndarray) else data


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Return `data` as a tensor, on the same memory where dtype and kind of data allow it.

    Aliasing: a tensor of that dtype is returned itself, with its history; an array of that dtype
    shares its memory. All other data is copied.

    Args:
        data: a tensor, an array, a number or nested lists.

    Raises:
        ShapeError: lists are ragged.

    >>> import numpy as np
    >>> array = np.array([1.0, 2.0])
    >>> x = lucid.as_tensor(array)
    >>> array[0] = 9.0
    >>> x
    tensor([9., 2.], dtype=lucid.float64)
    """
    check_device(device, "as_tensor")
    if isinstance(data, Tensor):
        return data if dtype is None else cast(data, as_dtype(dtype, "as_tensor"))
    if isinstance(data, np.ndarray):
        if not issubclass(type(data), np.ndarray):  # a trace's, which says that it is one
            late: Any = data
            return as_tensor(late.as_tensor(is_copied=False), dtype)
        data = plain_array(data, "as_tensor")
        if dtype is None or _is_read_live(data):
            shared = of_users_array(data, "as_tensor")
            return shared if dtype is None else cast(shared, as_dtype(dtype, "as_tensor"))
        wanted = as_dtype(dtype, "as_tensor")
        if data.dtype != wanted.numpy:
            data = copied_array(data, wanted, "as_tensor")
        return of_users_array(data, "as_tensor")
    return tensor(data, dtype=dtype)


def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return `obj` as a tensor: a copy if `copy`, else sharing memory where that can be.

    With `requires_grad` the result is a leaf, cut from the history of a tensor that was passed.

    Args:
        obj: a tensor, an array, a number or nested lists.
        copy: whether to copy in any case; None and False share memory as `as_tensor` does.

    >>> x = lucid.tensor([1.0, 2.0])
    >>> lucid.asarray(x) is x
    True
    >>> lucid.asarray(x, copy=True) is x
    False
    """
    made = tensor(obj, dtype=dtype) if copy else as_tensor(obj, dtype, device)
    return as_leaf(made.detach() if requires_grad else made, requires_grad)


def from_numpy(ndarray: np.ndarray) -> Tensor:
    """Return a tensor on the array's memory: writes to one show in the other.

    The dtype is the array's. A subclass of NumPy's class is seen as `np.asarray` shows it. A copy
    of bytes in another order than the processor's couldn't be shared: such an array has no dtype of
    lucid's.

    Args:
        ndarray: the array, whose strides may be any.

    Raises:
        ArgumentError: it is no array.
        DTypeError: lucid hasn't got its dtype.
        OptionError: it is a masked array with masked elements.

    >>> import numpy as np
    >>> array = np.zeros(3, np.float32)
    >>> x = lucid.from_numpy(array)
    >>> x[1] = 5.0
    >>> array
    array([0., 5., 0.], dtype=float32)
    """
    if not isinstance(ndarray, np.ndarray):
        raise ArgumentError(f"from_numpy: expected np.ndarray (got {type(ndarray).__name__})")
    return of_users_array(ndarray)


def from_dlpack(ext_tensor: Any) -> Tensor:
    """Return a tensor on the memory of another library's CPU array, by the DLPack protocol.

    Nothing is copied: writes to one show in the other. Arrays of NumPy are taken as by
    `from_numpy`.

    Args:
        ext_tensor: what has `__dlpack__`, such as a tensor of PyTorch or an array of JAX.

    Raises:
        DTypeError: lucid hasn't got its dtype.

    >>> import numpy as np
    >>> lucid.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    if isinstance(ext_tensor, np.ndarray):
        return of_users_array(ext_tensor, "from_dlpack")
    return of_users_array(np.from_dlpack(ext_tensor))


def frombuffer(
    buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """Return a vector on the memory of an object that has bytes: writes to one show in the other.

    Memory that can't be written, such as that of `bytes`, makes a tensor that can't be either.

    Args:
        buffer: what has Python's buffer protocol: bytes, a bytearray, an mmap, an array.
        dtype: of the elements.
        count: how many elements there are. Default: -1, all.
        offset: the byte at which the first one begins.

    Raises:
        OptionError: there is no element, or not as many bytes as `count` needs, or bytes are left
            over without it.

    >>> lucid.frombuffer(bytes([1, 0, 2, 0]), dtype=lucid.int16)
    tensor([1, 2], dtype=lucid.int16)
    """
    wanted = as_dtype(dtype, "frombuffer")
    try:
        found: np.ndarray = np.frombuffer(buffer, wanted.numpy, count, offset)
    except (TypeError, ValueError) as error:
        raise OptionError(f"frombuffer: {error}") from None
    if not found.size:
        raise OptionError("frombuffer: both the buffer's length and count must not be 0")
    return as_leaf(of_users_array(found), requires_grad)
