"""New tensors: filled, or counted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid.device import check_device
from lucid.dtypes import as_dtype, get_default_dtype
from lucid.functions.arguments import integer, one_way, require_computable, shape_of, tensor_of
from lucid.functions.conversion import cast
from lucid.functions.elementwise import choose, clone
from lucid.functions.from_data import as_leaf, tensor
from lucid.functions.promotion import Number, operand, scalar_dtype
from lucid.functions.tensors import Tensor
from lucid.ir import memory, ops
from lucid.ir.errors import ArgumentError, OptionError
from lucid.ir.types import DType, Shape, f64, i64
from lucid.layouts import check_memory_format
from lucid.tensor.context import context
from lucid.tensor.core import constant, emit, from_array

# ---------------------------------------------------------------------- filled


def filled(shape: Shape, value: Any, dtype: DType) -> Tensor:
    """A new tensor with memory of its own, filled with a number or a 0-d tensor."""
    plain = type(value) in (bool, int, float)
    if plain and context.recorder is None:
        if dtype.kind == "int":
            operand(value, dtype, "full")  # raises for what doesn't fit
        return from_array(memory.full(shape, value, dtype.numpy))
    whole = operand(value, dtype, "full")
    return clone(emit(ops.broadcast, (whole,), shape=shape))


def _filled(
    size: tuple[Any, ...], value: Any, dtype: Any, device: Any, requires_grad: bool, op: str
) -> Tensor:
    check_device(device, op)
    wanted = get_default_dtype() if dtype is None else as_dtype(dtype, op)
    return as_leaf(filled(shape_of(size, op), value, wanted), requires_grad)


def _mapped_as(input: Tensor, result: Tensor) -> Tensor:
    """In a vmap, a tensor with memory for each example, if `input` has: it can be written to."""
    if not context.levels:
        return result
    from lucid.tensor.batched import mapped_as

    return mapped_as(input, result)


def legacy_tensor(dtype: DType, data: tuple[Any, ...]) -> Tensor:
    """What `FloatTensor(data)` and `FloatTensor(2, 3)` make: of data, or of a shape with zeros."""
    if len(data) == 1 and not isinstance(data[0], int):
        from lucid.tensor.size import Size

        if not isinstance(data[0], Size):
            return tensor(data[0], dtype=dtype)
    return filled(shape_of(data, "Tensor"), 0, dtype) if data else filled((0,), 0, dtype)


def new(input: Tensor, *data: Any) -> Tensor:
    """Return `Tensor(*data)` of the tensor's dtype: from data, or of a shape."""
    return legacy_tensor(input._type.dtype, data or (0,))


def zeros(
    *sizes: Any,
    size: Any = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return zeros: `zeros(2, 3)` or `zeros((2, 3))`, in the default dtype."""
    return _filled(one_way(sizes, size, "size", "zeros"), 0, dtype, device, requires_grad, "zeros")


def ones(
    *sizes: Any,
    size: Any = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return ones: `ones(2, 3)` or `ones((2, 3))`, in the default dtype."""
    return _filled(one_way(sizes, size, "size", "ones"), 1, dtype, device, requires_grad, "ones")


def empty(
    *sizes: Any,
    size: Any = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: object = None,
) -> Tensor:
    """Return a tensor to be written to; it holds zeros, so that eager and compiled agree."""
    check_memory_format(memory_format, "empty")
    return _filled(one_way(sizes, size, "size", "empty"), 0, dtype, device, requires_grad, "empty")


def full(
    size: Any,
    fill_value: Number | Tensor,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a tensor of one value; dtype: int64, bool, or the default dtype, by the value."""
    if dtype is None:
        if isinstance(fill_value, Tensor):
            dtype = fill_value._type.dtype
        else:
            dtype = scalar_dtype(fill_value, "full")
    return _filled((size,), fill_value, dtype, device, requires_grad, "full")


def zeros_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: object = None,
) -> Tensor:
    """Return zeros of the shape and dtype of `input`."""
    return full_like(input, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: object = None,
) -> Tensor:
    """Return ones of the shape and dtype of `input`."""
    return full_like(input, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def empty_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: object = None,
) -> Tensor:
    """Return a tensor to be written to, of the shape and dtype of `input`; it holds zeros."""
    return full_like(input, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def full_like(
    input: Tensor,
    fill_value: Number | Tensor,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: object = None,
) -> Tensor:
    """Return a tensor of one value with the shape and dtype of `input`."""
    x = tensor_of(input, "full_like")
    wanted = x._type.dtype if dtype is None else dtype
    result = _filled((x._type.shape,), fill_value, wanted, device, False, "full_like")
    return as_leaf(_mapped_as(x, result), requires_grad)


def new_zeros(
    input: Tensor,
    *size: Any,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return zeros of a shape, in the dtype of `input`."""
    result = _filled(size, 0, dtype or input.dtype, device, False, "new_zeros")
    return as_leaf(_mapped_as(input, result), requires_grad)


def new_ones(
    input: Tensor,
    *size: Any,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return ones of a shape, in the dtype of `input`."""
    result = _filled(size, 1, dtype or input.dtype, device, False, "new_ones")
    return as_leaf(_mapped_as(input, result), requires_grad)


def new_empty(
    input: Tensor,
    *size: Any,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a tensor to be written to, in the dtype of `input`; it holds zeros."""
    result = _filled(size, 0, dtype or input.dtype, device, False, "new_empty")
    return as_leaf(_mapped_as(input, result), requires_grad)


def new_full(
    input: Tensor,
    size: Any,
    fill_value: Number | Tensor,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a tensor of one value, in the dtype of `input`."""
    result = _filled((size,), fill_value, dtype or input.dtype, device, False, "new_full")
    return as_leaf(_mapped_as(input, result), requires_grad)


def new_tensor(
    input: Tensor,
    data: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a new tensor with a copy of `data`, in the dtype of `input`."""
    wanted = dtype or input._type.dtype
    return tensor(data, dtype=wanted, device=device, requires_grad=requires_grad)


# ---------------------------------------------------------------------- counted


def arange(
    start: Number,
    end: Number | None = None,
    step: Number = 1,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return `start`, `start + step`, … below `end`; `arange(n)` starts at 0.

    dtype: int64 if all three are ints, else the default dtype.
    """
    check_device(device, "arange")
    if end is None:
        start, end = 0, start
    numbers = tuple(_number(value, "arange") for value in (start, end, step))
    whole = all(isinstance(value, int) for value in numbers)
    wanted = as_dtype(dtype, "arange") if dtype is not None else i64
    if dtype is None and not whole:
        wanted = get_default_dtype()
    first, last, stride = numbers
    if stride == 0:
        raise OptionError("arange: step must be nonzero")
    count = math.ceil((last - first) / stride) if not whole else -((first - last) // stride)
    if count < 0:
        raise OptionError("arange: upper bound and lower bound inconsistent with step sign")
    (size,) = shape_of((count,), "arange")
    return as_leaf(_progression(first, stride, size, wanted, whole), requires_grad)


def _number(value: Any, op: str) -> int | float:
    """A Python number for an argument that shapes depend on; what it is of a live scalar."""
    if isinstance(value, (np.generic, Tensor)):
        value = value.item()
    elif type(value) is not value.__class__:  # a live scalar, which guards what is seen of it
        value = int(value) if isinstance(value, int) else float(value)
    if type(value) not in (int, float, bool):
        raise ArgumentError(
            f"{op}: needs Python numbers, as the result's shape depends on them, not {value!r}"
        )
    number: int | float = value
    return number


def _progression(first: Any, stride: Any, count: int, dtype: DType, whole: bool) -> Tensor:
    """`first + i * stride`; computed in float64 unless all numbers are whole."""
    inner = i64 if whole else f64
    if context.recorder is None:
        values = np.arange(count, dtype=inner.numpy) * inner.numpy.type(stride)
        return from_array((values + inner.numpy.type(first)).astype(dtype.numpy))
    index = emit(ops.iota, (), shape=(count,), axis=0, dtype=inner)
    if stride != 1:
        index = emit(ops.mul, (index, constant(stride, inner)))
    if first != 0:
        index = emit(ops.add, (index, constant(first, inner)))
    return clone(cast(index, dtype))


def linspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: int,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return `steps` numbers from `start` to `end`, both included, evenly spaced."""
    check_device(device, "linspace")
    count = integer(steps, "linspace", "steps")
    if count < 0:
        raise OptionError(f"linspace: number of steps must be non-negative, not {count}")
    require_computable((count,), "linspace")
    wanted = get_default_dtype() if dtype is None else as_dtype(dtype, "linspace")
    first, last = operand(start, f64, "linspace"), operand(end, f64, "linspace")
    index = emit(ops.iota, (), shape=(count,), axis=0, dtype=f64)
    step = (last - first) / float(max(count - 1, 1))
    # from both ends, so that both are met exactly
    values = choose(index < count / 2, first + step * index, last - step * (count - 1 - index))
    return as_leaf(clone(cast(values, wanted)), requires_grad)


def logspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return `steps` numbers from `base**start` to `base**end`, evenly spaced in the exponent."""
    wanted = get_default_dtype() if dtype is None else as_dtype(dtype, "logspace")
    exponents = linspace(start, end, steps, dtype=f64, device=device)
    powers = emit(ops.pow, (constant(float(base), f64), exponents))
    return as_leaf(clone(cast(powers, wanted)), requires_grad)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return ones on the diagonal of an (n, m) matrix, m = n by default, and zeros elsewhere."""
    check_device(device, "eye")
    wanted = get_default_dtype() if dtype is None else as_dtype(dtype, "eye")
    shape = shape_of((n, n if m is None else m), "eye")
    rows = emit(ops.iota, (), shape=shape, axis=0, dtype=i64)
    columns = emit(ops.iota, (), shape=shape, axis=1, dtype=i64)
    return as_leaf(clone(cast(rows == columns, wanted)), requires_grad)


def scalar_tensor(
    s: Number, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return a 0-d tensor of a number, in the default dtype."""
    return _filled(((),), s, dtype, device, requires_grad, "scalar_tensor")
