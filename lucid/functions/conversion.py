"""Changing dtype; naming the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid import dtypes
from lucid.device import CPU, check_device, device
from lucid.functions.arguments import tensor_of
from lucid.functions.elementwise import clone
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, DTypeError
from lucid.ir.types import DType, bool_, f32, f64, i8, i16, i32, i64, u8
from lucid.layouts import check_memory_format
from lucid.tensor.core import emit


def cast(input: Tensor, dtype: DType) -> Tensor:
    """The tensor in a dtype; itself where it has it."""
    return input if input._type.dtype is dtype else emit(ops.cast, (input,), dtype=dtype)


def to(
    input: Tensor,
    *args: Any,
    dtype: Any = None,
    device: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Return the tensor in a dtype: `to(dtype)`, `to("cpu", dtype)`, `to(other)`.

    Aliasing: the tensor itself where nothing changes, unless `copy`.
    """
    check_memory_format(memory_format, "to")
    for arg in args:
        if isinstance(arg, Tensor):
            dtype = arg._type.dtype
        elif isinstance(arg, str) or _is_device(arg):
            device = arg
        elif isinstance(arg, bool):
            raise ArgumentError("to: name non_blocking= and copy=")
        elif arg is not None:
            dtype = arg
    check_device(device, "to")
    wanted = input._type.dtype if dtype is None else dtypes.as_dtype(dtype, "to")
    if wanted is input._type.dtype and copy:
        return clone(input)
    return cast(input, wanted)


def _is_device(value: Any) -> bool:
    return isinstance(value, device)


def to_float(input: Tensor) -> Tensor:
    """Return the tensor as float32."""
    return cast(tensor_of(input, "float"), f32)


def to_double(input: Tensor) -> Tensor:
    """Return the tensor as float64."""
    return cast(tensor_of(input, "double"), f64)


def to_byte(input: Tensor) -> Tensor:
    """Return the tensor as uint8, without fractions; what doesn't fit wraps, as `astype` does."""
    return cast(tensor_of(input, "byte"), u8)


def to_char(input: Tensor) -> Tensor:
    """Return the tensor as int8, without fractions; what doesn't fit wraps."""
    return cast(tensor_of(input, "char"), i8)


def to_short(input: Tensor) -> Tensor:
    """Return the tensor as int16, without fractions; what doesn't fit wraps."""
    return cast(tensor_of(input, "short"), i16)


def to_int(input: Tensor) -> Tensor:
    """Return the tensor as int32, without fractions."""
    return cast(tensor_of(input, "int"), i32)


def to_long(input: Tensor) -> Tensor:
    """Return the tensor as int64, without fractions."""
    return cast(tensor_of(input, "long"), i64)


def to_bool(input: Tensor) -> Tensor:
    """Return whether each element is not zero."""
    return cast(tensor_of(input, "bool"), bool_)


def type_of(input: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Return the tensor in a dtype, which may be a tensor class or its name.

    Without one: the name of the tensor's class in PyTorch. Aliasing: as `to`.

    >>> import lucid
    >>> x = lucid.tensor([1.5, 2.5])
    >>> x.type()
    'torch.FloatTensor'
    >>> x.type(lucid.LongTensor)
    tensor([1, 2])
    """
    if dtype is None:
        return f"torch.{dtypes.tensor_class(input._type.dtype)}"
    return cast(input, dtypes.of_tensor_class(dtype) or dtypes.as_dtype(dtype, "type"))


def _to_missing(name: str, dtype: str, instead: str) -> Callable[[Tensor], Tensor]:
    def refuse(input: Tensor) -> Tensor:
        raise DTypeError(f"{name}: there is no {dtype}\nhint: tensor.{instead}")

    refuse.__name__, refuse.__doc__ = name, f"Raise `DTypeError`: there is no {dtype}."
    return refuse


to_half = _to_missing("half", "float16", "float()")
to_bfloat16 = _to_missing("bfloat16", "bfloat16", "float()")


def type_as(input: Tensor, other: Tensor) -> Tensor:
    """Return the tensor in the dtype of `other`."""
    return cast(input, other._type.dtype)


def cpu(input: Tensor) -> Tensor:
    """Return the tensor itself: it is on the CPU."""
    return input


def cuda(input: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    """Raise `OptionError`: there is no such device."""
    check_device("cuda", "cuda")
    return input


def pin_memory(input: Tensor, device: Any = None) -> Tensor:
    """Return the tensor itself: there is no other device to copy to."""
    return input


def share_memory_(input: Tensor) -> Tensor:
    """Return the tensor itself; its memory stays this process's."""
    return input


def is_shared(input: Tensor) -> bool:
    """Whether the memory is shared with other processes, or pinned: no."""
    return False


def get_device(input: Tensor) -> int:
    """Return the device's number, -1 for the CPU."""
    return -1


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have one shape."""
    return input._type.shape == other._type.shape


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return tensor_of(input, "is_signed")._type.dtype.numpy.kind in "if"


def is_inference(input: Tensor) -> bool:
    """Whether the tensor was made in inference mode: not remembered, False."""
    return False


def device_of(input: Tensor) -> device:
    """`.device`: the CPU."""
    return CPU


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating-point one."""
    return tensor_of(input, "is_floating_point")._type.dtype.is_floating_point


def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex: never."""
    return tensor_of(input, "is_complex")._type.dtype.is_complex


def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero, a Python bool."""
    return bool(input)


def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor."""
    return isinstance(obj, Tensor)
