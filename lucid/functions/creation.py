"""New tensors: filled, or counted.

Args:
    dtype: of the result; None is the default dtype, `lucid.get_default_dtype()`.
    fill_value: a number or a 0-d tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from lucid.docstrings import like, maps
from lucid.functions.arguments import (
    integer,
    is_live,
    one_way,
    require_computable,
    shape_of,
    tensor_of,
)
from lucid.functions.conversion import cast
from lucid.functions.elementwise import choose, clone
from lucid.functions.from_data import as_leaf, tensor
from lucid.functions.options import LikeOptions, TensorOptions, taken, with_options
from lucid.functions.promotion import Number, operand, scalar_dtype
from lucid.functions.tensors import Tensor
from lucid.ir import memory, ops
from lucid.ir.errors import ArgumentError, OptionError, ShapeError
from lucid.ir.extents import is_open
from lucid.ir.location import user_spot
from lucid.ir.types import DType, Shape, bool_, f32, f64, i8, i16, i32, i64, u8
from lucid.layouts import check_memory_format
from lucid.tensor.context import context
from lucid.tensor.core import constant, emit, from_array, of_own_array

__all__ = [
    "arange", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "empty", "empty_like",
    "eye", "FloatTensor", "full", "full_like", "IntTensor", "linspace", "logspace",
    "LongTensor", "ones", "ones_like", "scalar_tensor", "ShortTensor", "zeros", "zeros_like",
]  # fmt: skip


def filled(shape: Shape, value: Any, dtype: DType) -> Tensor:
    """A new tensor with memory of its own, filled with a number or a 0-d tensor."""
    plain = type(value) in (bool, int, float)
    if plain and context.recorder is None:
        if dtype.kind == "int":
            operand(value, dtype, "full")  # raises for what doesn't fit
        return of_own_array(memory.full(shape, value, dtype.numpy), user_spot())
    whole = operand(value, dtype, "full")
    return clone(emit(ops.broadcast, (whole,), shape=shape))


def _filled(size: tuple[Any, ...], value: Any, op: str, **options: Any) -> Tensor:
    dtype, requires_grad = taken(op, **options)
    return as_leaf(filled(shape_of(size, op), value, dtype), requires_grad)


def _options_of(input: Tensor, options: TensorOptions) -> TensorOptions:
    """Options with the dtype of `input` where they say none."""
    return {**options, "dtype": options.get("dtype") or input._type.dtype}


def _new(
    input: Tensor, size: tuple[Any, ...], value: Any, op: str, **options: Unpack[TensorOptions]
) -> Tensor:
    """A tensor in the dtype of `input`; in a vmap over that each example has memory of its own."""
    dtype, requires_grad = taken(op, **_options_of(input, options))
    result = filled(shape_of(size, op), value, dtype)
    if context.levels:
        from lucid.tensor.batched import mapped_as

        result = mapped_as(input, result)
    return as_leaf(result, requires_grad)


def legacy_tensor(dtype: DType, data: tuple[Any, ...]) -> Tensor:
    """What `FloatTensor(data)` and `FloatTensor(2, 3)` make: of data, or of a shape with zeros."""
    if len(data) == 1 and not isinstance(data[0], int):
        from lucid.tensor.size import Size

        if not isinstance(data[0], Size):
            return tensor(data[0], dtype=dtype)
    return filled(shape_of(data, "Tensor"), 0, dtype) if data else filled((0,), 0, dtype)


def new(input: Tensor, *data: Any) -> Tensor:
    """Return a tensor of the dtype of `input`, made as `Tensor(*data)` makes one.

    Sizes give zeros of that shape, a list or an array gives its elements, and no argument a vector
    without elements. Of `input` nothing but the dtype counts.

    Args:
        input: whose dtype the new tensor has.
        *data: sizes of axes, or one list, array or tensor.

    >>> x = lucid.tensor([1, 2])
    >>> x.new(2, 2)
    tensor([[0, 0],
            [0, 0]])
    >>> x.new([5, 6, 7])
    tensor([5, 6, 7])
    """
    return legacy_tensor(input._type.dtype, data or (0,))


@with_options
@maps("()", "dtype=lucid.int64", "tensor(0)")
@maps("2", "3", "[[0., 0., 0.], [0., 0., 0.]]")
def zeros(*sizes: Any, size: Any = None, **options: Unpack[TensorOptions]) -> Tensor:
    """Return a new tensor of zeros: `zeros(2, 3)` and `zeros((2, 3))` are the same.

    A size of 0 gives a tensor without elements, the shape `()` a 0-d tensor.

    Args:
        *sizes: the shape, as ints or as one tuple or list of them.
        size: the shape by keyword, instead of `sizes`.

    Raises:
        ShapeError: a size is negative.
        ArgumentError: there is no size, or `sizes` and `size` are both given.
    """
    return _filled(one_way(sizes, size, "size", "zeros"), 0, "zeros", **options)


@like(zeros)
@with_options
@maps("2", "dtype=lucid.bool", "[True, True]")
@maps("2", "3", "[[1., 1., 1.], [1., 1., 1.]]")
def ones(*sizes: Any, size: Any = None, **options: Unpack[TensorOptions]) -> Tensor:
    """Return a new tensor of ones: `ones(2, 3)` and `ones((2, 3))` are the same.

    With `dtype=lucid.bool` every element is True. The shape `()` gives a 0-d tensor.
    """
    return _filled(one_way(sizes, size, "size", "ones"), 1, "ones", **options)


@like(zeros)
@with_options
def empty(*sizes: Any, size: Any = None, **options: Unpack[LikeOptions]) -> Tensor:
    """Return a new tensor that is meant to be written to; it holds zeros.

    Other libraries leave whatever the memory held before. Zeros make eager and compiled code agree,
    so a program that reads an element which it never wrote gets the same result each time.

    Args:
        memory_format: any memory format; the result is row-major all the same.

    >>> buffer = lucid.empty(2, 2)
    >>> buffer[0] = 7.0
    >>> buffer
    tensor([[7., 7.],
            [0., 0.]])
    """
    check_memory_format(options.pop("memory_format", None), "empty")
    return _filled(one_way(sizes, size, "size", "empty"), 0, "empty", **options)


@with_options
@maps("(2,)", "0.5", "[0.5000, 0.5000]")
@maps("(2, 3)", "7", "[[7, 7, 7], [7, 7, 7]]")
def full(size: Any, fill_value: Number | Tensor, **options: Unpack[TensorOptions]) -> Tensor:
    """Return a new tensor in which every element is `fill_value`.

    dtype: by the value: bool for a bool, int64 for an int, the default dtype for a float, and a
    tensor's own.

    Args:
        size: the shape, a tuple or list of ints; an int makes a vector.
        fill_value: a number, or a 0-d tensor, through which gradients flow.
        dtype: of the result. Default: None, by the value.

    Raises:
        ShapeError: a size is negative.
    """
    if options.get("dtype") is None:
        of_tensor = fill_value._type.dtype if isinstance(fill_value, Tensor) else None
        options["dtype"] = of_tensor or scalar_dtype(fill_value, "full")
    return _filled((size,), fill_value, "full", **options)


@with_options
@maps("[[1, 2], [3, 4]]", "[[0, 0], [0, 0]]")
def zeros_like(input: Tensor, **options: Unpack[LikeOptions]) -> Tensor:
    """Return a new tensor of zeros in the shape and dtype of `input`.

    It has memory and history of its own: nothing but the type of `input` is looked at.

    Args:
        input: whose shape and dtype are taken.
        dtype: of the result. Default: None, that of `input`.
        requires_grad: whether gradients are recorded for it, whatever `input` says.
        memory_format: without effect, the result is row-major.
    """
    return _filled_like(input, 0, "zeros_like", **options)


@like(zeros_like)
@with_options
@maps("[3.5, 4.5]", "dtype=lucid.int32", "[1, 1], dtype=lucid.int32")
@maps("[3.5, 4.5]", "[1., 1.]")
def ones_like(input: Tensor, **options: Unpack[LikeOptions]) -> Tensor:
    """Return a new tensor of ones in the shape and dtype of `input`.

    It has memory and history of its own; that `input` requires grad doesn't make the ones require
    it.
    """
    return _filled_like(input, 1, "ones_like", **options)


@like(ones_like)
@with_options
def empty_like(input: Tensor, **options: Unpack[LikeOptions]) -> Tensor:
    """Return a new tensor to be written to, in the shape and dtype of `input`; it holds zeros.

    As with `empty`, the zeros are guaranteed, so eager and compiled code agree.

    >>> out = lucid.empty_like(lucid.tensor([1.0, 2.0, 3.0]))
    >>> out.fill_(4)
    tensor([4., 4., 4.])
    """
    return _filled_like(input, 0, "empty_like", **options)


@like(ones_like)
@with_options
@maps("[1.0, 2.0]", "9", "[9., 9.]")
def full_like(input: Tensor, fill_value: Number | Tensor, **options: Unpack[LikeOptions]) -> Tensor:
    """Return a new tensor of one value in the shape and dtype of `input`.

    dtype: that of `input`, unlike `full`, which goes by the value. In a `vmap` over `input` each
    example gets memory of its own, so that the result can be written to.

    Raises:
        ArgumentError: `input` is no tensor.
    """
    return _filled_like(input, fill_value, "full_like", **options)


def _filled_like(
    input: Tensor, value: Any, op: str, memory_format: object = None, **options: Any
) -> Tensor:
    check_memory_format(memory_format, op)
    return _new(input, (tensor_of(input, op)._type.shape,), value, op, **options)


@like(full)
@with_options
def new_zeros(input: Tensor, *size: Any, **options: Unpack[TensorOptions]) -> Tensor:
    """Return zeros of another shape in the dtype of `input`.

    For code that is to work in whichever dtype its argument has: `x.new_zeros(3)` is
    `lucid.zeros(3, dtype=x.dtype)`.

    Args:
        input: whose dtype is taken.
        *size: the shape, as ints or as one tuple or list of them.
        dtype: another dtype. Default: None, that of `input`.

    >>> lucid.tensor([1, 2]).new_zeros(2, 2)
    tensor([[0, 0],
            [0, 0]])
    """
    return _new(input, size, 0, "new_zeros", **options)


@like(new_zeros)
@with_options
def new_ones(input: Tensor, *size: Any, **options: Unpack[TensorOptions]) -> Tensor:
    """Return ones of another shape in the dtype of `input`.

    The shape of `input` doesn't matter: `x.new_ones(3)` is `lucid.ones(3, dtype=x.dtype)`.

    >>> lucid.tensor([True]).new_ones((2, 2))
    tensor([[True, True],
            [True, True]])
    """
    return _new(input, size, 1, "new_ones", **options)


@like(new_zeros)
@with_options
def new_empty(input: Tensor, *size: Any, **options: Unpack[TensorOptions]) -> Tensor:
    """Return a tensor to be written to, of another shape in the dtype of `input`: zeros.

    It is what `empty` makes, so what isn't written reads as zero.

    >>> lucid.tensor([1, 2]).new_empty(3)
    tensor([0, 0, 0])
    """
    return _new(input, size, 0, "new_empty", **options)


@like(new_zeros)
@with_options
def new_full(
    input: Tensor, size: Any, fill_value: Number | Tensor, **options: Unpack[TensorOptions]
) -> Tensor:
    """Return a tensor of one value, of another shape and in the dtype of `input`.

    The value is converted to that dtype, where `full` would choose the dtype by the value.

    Args:
        size: the shape, a tuple or list of ints.

    >>> lucid.tensor([0.5]).new_full((2, 2), 3)
    tensor([[3., 3.],
            [3., 3.]])
    """
    return _new(input, (size,), fill_value, "new_full", **options)


@like(new_zeros)
@with_options
def new_tensor(input: Tensor, data: Any, **options: Unpack[TensorOptions]) -> Tensor:
    """Return a new tensor with a copy of `data`, in the dtype of `input`.

    As `lucid.tensor`, but for the dtype, which isn't inferred from the data.

    Args:
        data: a number, nested lists, an array or a tensor.

    Raises:
        ShapeError: the lists are ragged.

    >>> lucid.tensor([0.5]).new_tensor([1, 2, 3])
    tensor([1., 2., 3.])
    """
    return tensor(data, **_options_of(input, options))


@with_options
@maps("1", "0", "-0.25", "[1.0000, 0.7500, 0.5000, 0.2500]")
@maps("5", "[0, 1, 2, 3, 4]")
def arange(
    start: Number, end: Number | None = None, step: Number = 1, **options: Unpack[TensorOptions]
) -> Tensor:
    """Return the vector `start`, `start + step`, `start + 2 step`, … below `end`.

    `arange(n)` counts from 0 to n - 1. With a negative step it goes down and stays above `end`.
    Each element is computed as `start + i * step`, in float64 for floats, so errors don't add up.

    Shapes: (ceil((end - start) / step),), which is 0 where start equals end.
    dtype: int64 if all three are ints, else the default dtype; of an integer `dtype` that is given
    the three numbers are truncated first.

    Args:
        start: the first number; with one argument it is the end, and the first is 0.
        end: where to stop, itself left out.
        step: the distance of neighbours, not 0.
        dtype: of the result. Default: None, by the numbers.

    Raises:
        OptionError: the step is 0, or has the wrong sign to get from start to end.
        ArgumentError: an argument is no number.
    """
    if end is None:
        start, end = 0, start
    first, last = (_number(value, "arange", live=True) for value in (start, end))
    stride = _number(step, "arange")
    whole = all(isinstance(value, int) or is_open(value) for value in (first, last, stride))
    wanted, requires_grad = taken("arange", i64 if whole else None, **options)
    if wanted.kind == "int" and not whole:
        first, last, stride, whole = int(first), int(last), int(stride), True
    if stride == 0:
        raise OptionError("arange: step must be nonzero")
    span = last - first if is_live(first) or first != 0 else last
    steps = math.ceil(span / stride) if not whole else span if stride == 1 else -(-span // stride)
    count = steps if is_open(steps) else int(steps)
    if count < 0:
        raise OptionError("arange: upper bound and lower bound inconsistent with step sign")
    (size,) = shape_of((count,), "arange")
    return as_leaf(_progression(first, stride, size, wanted, whole), requires_grad)


def _number(value: Any, op: str, live: bool = False) -> int | float:
    """A Python number for an argument that shapes depend on; what it is of a live scalar.

    live: such a scalar may stay one, as only numbers that are computed from it say a size.
    """
    if isinstance(value, (np.generic, Tensor)):
        value = value.item()
    if not live and is_live(value):
        value = int(value) if isinstance(value, int) else float(value)
    if value.__class__ not in (int, float, bool) and not is_open(value):
        raise ArgumentError(f"{op}: needs Python numbers for a shape, not {value!r}")
    number: int | float = value
    return number


def _progression(first: Any, stride: Any, count: int, dtype: DType, whole: bool) -> Tensor:
    """`first + i * stride`; computed in float64 unless all numbers are whole."""
    inner = i64 if whole else f64
    if context.recorder is None:
        values = np.arange(count, dtype=inner.numpy)
        values *= inner.numpy.type(stride)
        values += inner.numpy.type(first)
        return from_array(values.astype(dtype.numpy, copy=False))
    index = emit(ops.iota, (), shape=(count,), axis=0, dtype=inner)
    if stride != 1:
        index = emit(ops.mul, (index, constant(stride, inner)))
    if is_live(first) or first != 0:
        index = emit(ops.add, (index, constant(first, inner)))
    return clone(cast(index, dtype))


@with_options
@maps("0", "10", "4", "dtype=lucid.int64", "[ 0,  3,  6, 10]")
@maps("0", "1", "5", "[0.0000, 0.2500, 0.5000, 0.7500, 1.0000]")
def linspace(
    start: Number | Tensor, end: Number | Tensor, steps: int, **options: Unpack[TensorOptions]
) -> Tensor:
    """Return `steps` evenly spaced numbers from `start` to `end`, both included.

    They are computed in float64 and from both ends, so both are met exactly; an integer dtype
    truncates at last. One step gives `start` alone, none a vector without elements.

    Args:
        start: the first number, or a 0-d tensor.
        end: the last number, or a 0-d tensor.
        steps: how many numbers, at least 0.

    Raises:
        OptionError: `steps` is negative.
        ShapeError: a tensor that isn't 0-d.
    """
    wanted, requires_grad = taken("linspace", **options)
    count = integer(steps, "linspace", "steps")
    if count < 0:
        raise OptionError(f"linspace: number of steps must be non-negative, not {count}")
    require_computable((count,), "linspace")
    if context.recorder is None and {type(start), type(end)} <= {int, float}:
        return as_leaf(_between(float(start), float(end), count, wanted), requires_grad)
    first, last = operand(start, f64, "linspace"), operand(end, f64, "linspace")
    if first.ndim or last.ndim:
        raise ShapeError(f"linspace: start and end must be 0-d, not {first._type} and {last._type}")
    index = emit(ops.iota, (), shape=(count,), axis=0, dtype=f64)
    step = (last - first) / max(count - 1, 1)
    # from both ends, so that both are met exactly
    values = choose(2 * index < count, first + step * index, last - step * (count - 1 - index))
    return as_leaf(clone(cast(values, wanted)), requires_grad)


def _between(first: float, last: float, count: int, dtype: DType) -> Tensor:
    """What `linspace` gives for numbers, with half as many passes over memory."""
    step, half = (last - first) / max(count - 1, 1), (count + 1) // 2
    values = np.arange(count, dtype=np.float64)
    near, far = values[:half], values[half:]
    with np.errstate(all="ignore"):
        near *= step
        near += first
        np.subtract(count - 1, far, out=far)
        far *= step
        np.subtract(last, far, out=far)
    return cast(from_array(values), dtype)


@like(linspace)
@with_options
@maps("0", "3", "4", "base=2", "[1., 2., 4., 8.]")
def logspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: int,
    base: float = 10.0,
    **options: Unpack[TensorOptions],
) -> Tensor:
    """Return `steps` numbers from `base**start` to `base**end`, evenly spaced in the exponent.

    It is `base ** linspace(start, end, steps)`, computed in float64 and converted at last.

    Args:
        start: the first exponent.
        end: the last exponent, included.
        base: what is raised to the exponents.
    """
    wanted, requires_grad = taken("logspace", **options)
    exponents = linspace(start, end, steps, dtype=f64)
    powers = emit(ops.pow, (constant(float(base), f64), exponents))
    return as_leaf(clone(cast(powers, wanted)), requires_grad)


@with_options
@maps("2", "3", "dtype=lucid.int64", "[[1, 0, 0], [0, 1, 0]]")
@maps("2", "[[1., 0.], [0., 1.]]")
def eye(n: int, m: int | None = None, **options: Unpack[TensorOptions]) -> Tensor:
    """Return an (n, m) matrix with ones on the main diagonal and zeros elsewhere.

    For n = m it is the identity matrix; else the longer side ends in zeros.

    Args:
        n: the number of rows.
        m: the number of columns. Default: None, as many as rows.

    Raises:
        ShapeError: n or m is negative.
    """
    wanted, requires_grad = taken("eye", **options)
    shape = shape_of((n, n if m is None else m), "eye")
    if context.recorder is None:
        return as_leaf(from_array(np.eye(*shape, dtype=wanted.numpy)), requires_grad)
    rows = emit(ops.iota, (), shape=shape, axis=0, dtype=i64)
    columns = emit(ops.iota, (), shape=shape, axis=1, dtype=i64)
    return as_leaf(clone(cast(rows == columns, wanted)), requires_grad)


@with_options
def scalar_tensor(s: Number, **options: Unpack[TensorOptions]) -> Tensor:
    """Return a 0-d tensor that holds one number, in the default dtype.

    Unlike `lucid.tensor(s)`, which makes an int64 tensor of an int, it doesn't look at the kind of
    number.

    Args:
        s: the number.

    >>> lucid.scalar_tensor(3)
    tensor(3.)
    >>> lucid.tensor(3)
    tensor(3)
    """
    return _filled(((),), s, "scalar_tensor", **options)


def FloatTensor(*data: Any) -> Tensor:
    """Return a float32 tensor of data, or of a shape: `FloatTensor([2, 3])` has two elements.

    `FloatTensor(2, 3)` has two rows of three zeros, and `FloatTensor()` no element. Newer programs
    write `lucid.tensor` and `lucid.zeros`.

    Args:
        *data: a list, an array or a tensor, or else sizes.

    >>> lucid.FloatTensor([2, 3])
    tensor([2., 3.])
    >>> lucid.FloatTensor(2, 3)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    return legacy_tensor(f32, data)


def _legacy(name: str, dtype: DType, zeros: str = "with zeros") -> Callable[..., Tensor]:
    def make(*data: Any) -> Tensor:
        return legacy_tensor(dtype, data)

    kind = dtype.torch_name
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""Return a tensor of {kind}, of data, or of a shape {zeros}.

    An older name for `lucid.tensor(data, dtype=lucid.{kind})` and `lucid.zeros(*sizes,
    dtype=lucid.{kind})`.

    Args:
        *data: a list, an array or a tensor, or else sizes.

    >>> x = lucid.{name}([1, 0])
    >>> x.shape, x.dtype, lucid.{name}(3, 2).shape
    (lucid.Size([2]), lucid.{kind}, lucid.Size([3, 2]))
    """
    return make


DoubleTensor = _legacy("DoubleTensor", f64)
ByteTensor = _legacy("ByteTensor", u8)
CharTensor = _legacy("CharTensor", i8)
ShortTensor = _legacy("ShortTensor", i16)
IntTensor = _legacy("IntTensor", i32)
LongTensor = _legacy("LongTensor", i64)
BoolTensor = _legacy("BoolTensor", bool_, "filled with False")
