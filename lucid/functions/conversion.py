"""Changing dtype; naming the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid import dtypes
from lucid.choices import check_flag
from lucid.device import CPU, check_device, device
from lucid.docstrings import like, maps
from lucid.functions.arguments import tensor_of
from lucid.functions.elementwise import clone
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, DTypeError
from lucid.ir.types import DType, bool_, f32, f64, i8, i16, i32, i64, u8
from lucid.layouts import check_memory_format
from lucid.tensor.core import emit

__all__ = [
    "is_complex", "is_floating_point", "is_inference", "is_nonzero", "is_same_size", "is_signed",
    "is_tensor",
]  # fmt: skip


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
    """Return the tensor in another dtype: `to(dtype)`, `to("cpu", dtype)`, `to(other)`.

    Gradients are cast back. Aliasing: the tensor itself where nothing changes, unless `copy`.

    Args:
        *args: a dtype, a device, or a tensor whose dtype is wanted, in any order.
        dtype: the dtype, also as NumPy's or Python's. Default: None, the tensor's own.
        device: the CPU, which there is alone.
        copy: whether to copy where the dtype stays.
        memory_format: PyTorch's; lucid chooses the order in memory itself.

    Raises:
        ArgumentError: what is no dtype; a dtype or a device that is given twice; `non_blocking` or
            `copy` without their names.
        DTypeError: a dtype of NumPy's that lucid hasn't got.
        OptionError: a device other than the CPU.

    >>> lucid.tensor([1.7, -1.7]).to(lucid.int32)
    tensor([ 1, -1], dtype=lucid.int32)
    """
    check_memory_format(memory_format, "to")
    if non_blocking is not False:
        check_flag(non_blocking, "non_blocking", "to")
    for arg in args:
        if isinstance(arg, str) or _is_device(arg):
            device = _once(device, arg, "device")
        elif isinstance(arg, bool):
            raise ArgumentError("to: name non_blocking= and copy=")
        elif arg is not None:
            dtype = _once(dtype, arg._type.dtype if isinstance(arg, Tensor) else arg, "dtype")
    check_device(device, "to")
    wanted = input._type.dtype if dtype is None else dtypes.as_dtype(dtype, "to")
    if wanted is input._type.dtype and copy:
        return clone(input)
    return cast(input, wanted)


def _once(before: Any, value: Any, name: str) -> Any:
    """What is given for an argument of `to`. Raises `ArgumentError` if something was before."""
    if before is not None:
        raise ArgumentError(f"to: got a {name} twice, {before!r} and {value!r}")
    return value


def _is_device(value: Any) -> bool:
    return isinstance(value, device)


def _to(name: str, dtype: DType, how: str, given: str, found: str) -> Callable[[Tensor], Tensor]:
    def convert(input: Tensor) -> Tensor:
        return cast(tensor_of(input, name), dtype)

    kind = dtype.torch_name
    shown = "" if dtype in (bool_, i64, f32) else f", dtype=lucid.{kind}"
    convert.__name__ = convert.__qualname__ = f"to_{name}"
    convert.__doc__ = f"""Return the tensor as {kind}{how}.

    Aliasing: the tensor itself where it has the dtype.

    Args:
        input: a tensor of any dtype.

    >>> lucid.tensor([{given}]).{name}()
    tensor([{found}]{shown})
    """
    return convert


_WRAPS = ", without fractions; what doesn't fit wraps, as `astype` does"
_CUTS = ", without fractions: they are cut off towards zero"
to_bool = _to("bool", bool_, ": whether each is not zero; NaN is true", "0.0, 0.5", "False,  True")
to_byte = _to("byte", u8, _WRAPS, "1, 258", "1, 2")
to_char = _to("char", i8, _WRAPS, "1, 300", " 1, 44")
to_short = _to("short", i16, _WRAPS, "1, 65537", "1, 1")
to_int = _to("int", i32, _CUTS, "1.7, -1.7", " 1, -1")
to_long = _to("long", i64, _CUTS, "1.7, -1.7", " 1, -1")
to_float = _to("float", f32, "; large integers and float64 are rounded", "1, 2", "1., 2.")
to_double = _to("double", f64, "; integers above 2**53 are rounded", "1, 2", "1., 2.")


def type_of(input: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Return the tensor in a dtype, which may be a tensor class or its name.

    Without one: the name of the tensor's class in PyTorch. Aliasing: as `to`.

    Args:
        dtype: a dtype, or `lucid.LongTensor` and the like. Default: None, to ask for the name.

    Raises:
        ArgumentError: what is neither a dtype nor a tensor class; a `non_blocking` that is no bool.

    >>> x = lucid.tensor([1.5, 2.5])
    >>> x.type()
    'torch.FloatTensor'
    >>> x.type(lucid.LongTensor)
    tensor([1, 2])
    """
    check_flag(non_blocking, "non_blocking", "type")
    if dtype is None:
        return f"torch.{dtypes.tensor_class(input._type.dtype)}"
    return cast(input, dtypes.of_tensor_class(dtype) or dtypes.as_dtype(dtype, "type"))


def _to_missing(name: str, dtype: str, instead: str) -> Callable[[Tensor], Tensor]:
    def refuse(input: Tensor) -> Tensor:
        raise DTypeError(f"{name}: there is no {dtype}\nhint: tensor.{instead}")

    refuse.__name__ = name
    refuse.__doc__ = f"""Refuse: lucid has no {dtype}, so it raises an error each time.

    Args:
        input: a tensor of any dtype.

    Raises:
        DTypeError: always; `tensor.{instead}` gives the floats that there are.

    >>> try:
    ...     lucid.ones(2).{name}()
    ... except lucid.DTypeError:
    ...     print("no {dtype}")
    no {dtype}
    """
    return refuse


to_half = _to_missing("half", "float16", "float()")
to_bfloat16 = _to_missing("bfloat16", "bfloat16", "float()")


def type_as(input: Tensor, other: Tensor) -> Tensor:
    """Return the tensor in the dtype of `other`; itself where it has it.

    Args:
        other: a tensor of the wanted dtype.

    >>> lucid.tensor([1, 2]).type_as(lucid.tensor(0.5))
    tensor([1., 2.])
    """
    return cast(input, other._type.dtype)


def cpu(input: Tensor) -> Tensor:
    """Return the tensor itself, no copy: it is on the CPU.

    >>> x = lucid.ones(2)
    >>> x.cpu() is x
    True
    """
    return tensor_of(input, "cpu")


def cuda(input: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    """Refuse: there is no such device, so it raises an error each time.

    Args:
        device: the number of a device, or its name.
        non_blocking: True or False.

    Raises:
        OptionError: always.

    >>> try:
    ...     lucid.ones(2).cuda()
    ... except lucid.OptionError:
    ...     print("no cuda")
    no cuda
    """
    check_flag(non_blocking, "non_blocking", "cuda")
    check_device("cuda" if device is None else f"cuda:{device}", "cuda")
    return input


@like(cpu)
def pin_memory(input: Tensor, device: Any = None) -> Tensor:
    """Return the tensor itself: there is no other device to copy to.

    Raises:
        OptionError: another device.
    """
    check_device(device, "pin_memory")
    return tensor_of(input, "pin_memory")


@like(cpu)
def share_memory_(input: Tensor) -> Tensor:
    """Return the tensor itself; its memory stays this process's, unlike PyTorch's."""
    return tensor_of(input, "share_memory_")


def is_shared(input: Tensor) -> bool:
    """Return whether the memory is shared with other processes, or pinned: False.

    >>> lucid.ones(2).is_shared()
    False
    """
    return False


def get_device(input: Tensor) -> int:
    """Return the number of the tensor's device, which for the CPU is -1.

    >>> lucid.ones(2).get_device()
    -1
    """
    tensor_of(input, "get_device")
    return -1


@maps("lucid.ones(2, 3)", "lucid.zeros(3, 2)", "False")
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Return whether both have the same shape; the elements don't matter.

    Args:
        other: a tensor.
    """
    return input._type.shape == other._type.shape


@maps("[1, 2], dtype=lucid.uint8", "False")
def is_signed(input: Tensor) -> bool:
    """Return whether the tensor's dtype has negative numbers, as floats have."""
    return tensor_of(input, "is_signed")._type.dtype.numpy.kind in "if"


@maps("lucid.ones(2)", "False")
def is_inference(input: Tensor) -> bool:
    """Return whether the tensor was made in inference mode: this isn't remembered, so False."""
    tensor_of(input, "is_inference")
    return False


def device_of(input: Tensor) -> device:
    """The device that holds the tensor's memory: the CPU."""
    return CPU


@maps("[1, 2]", "False")
def is_floating_point(input: Tensor) -> bool:
    """Return whether the tensor's dtype is one of floats, float32 or float64."""
    return tensor_of(input, "is_floating_point")._type.dtype.is_floating_point


@maps("lucid.ones(2)", "False")
def is_complex(input: Tensor) -> bool:
    """Return whether the tensor's dtype is complex: False, as lucid has none."""
    return tensor_of(input, "is_complex")._type.dtype.is_complex


@maps("[0.5]", "True")
def is_nonzero(input: Tensor) -> bool:
    """Return whether the only element is not zero, as a Python bool.

    A compiled step has a path for each answer.

    Args:
        input: a tensor of one element.

    Raises:
        OptionError: several elements, or none.
    """
    return bool(tensor_of(input, "is_nonzero"))


def is_tensor(obj: Any) -> bool:
    """Return whether an object is a `lucid.Tensor`, or of a class derived from it.

    Args:
        obj: an object of any kind.

    >>> lucid.is_tensor(lucid.ones(2)), lucid.is_tensor([1.0, 1.0])
    (True, False)
    """
    return isinstance(obj, Tensor)
