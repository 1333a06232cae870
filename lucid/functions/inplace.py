"""In-place variants: the function's result, written into its first operand."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import prod
from typing import Any, Concatenate, ParamSpec

import numpy as np

from lucid.autograd.node import move_retained
from lucid.choices import check_flag
from lucid.docstrings import described
from lucid.functions.arguments import shape_of, tensor_of
from lucid.functions.conversion import cast
from lucid.functions.elementwise import clone
from lucid.functions.promotion import Number, operand
from lucid.functions.tensors import Tensor
from lucid.functions.updates import Update
from lucid.ir import ops
from lucid.ir.errors import LucidError, ShapeError
from lucid.ir.inference import MANY_ELEMENTS
from lucid.tensor import core
from lucid.tensor.context import context, epoch
from lucid.tensor.core import constant, emit
from lucid.tensor.writing import (
    overwrite_,
    refusal_of_writes,
    refuse_overlaps,
    set_data,
    write_,
)

P = ParamSpec("P")
Function = Callable[Concatenate[Tensor, P], Tensor]


def in_place(function: Function[P]) -> Function[P]:
    """The variant of a function that writes its result into the first operand and returns that.

    Where history is recorded, the function gets a copy of the operand, as its derivative may need
    what the write destroys. The variant raises `DTypeError` where the result's category is above
    the operand's, and `ShapeError` where its shape is another one.
    """

    update: Callable[..., Update | Tensor] = vars(function).get("update", function)
    is_update = update is not function

    def written(input: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        is_recorded = _is_recorded(input, *args, *kwargs.values())
        if is_update and context.recorder is None:
            made = update(input, *args, **kwargs)
            if isinstance(made, Update):
                return made.write(input)  # no derivative needs what it destroys
            if not is_recorded:
                return write_(input, made)
        elif not is_recorded and _may_combine(input):
            from lucid.tensor.combined import combined  # with the compiler, which it needs

            found = combined(function, input, args, kwargs)
            if found is not None and overwrite_(input, *found, {}):
                return input
        made = update(clone(input) if is_recorded else input, *args, **kwargs)
        return made.write(input) if isinstance(made, Update) else write_(input, made)

    return _named(written, function, "Write the result of `{}` into the tensor, and return that.")


def _may_combine(input: Any) -> bool:
    """Whether the ops of a function may be one that writes: where it pays, and nobody sees them."""
    state = context.__dict__
    is_seen = state["recorder"] is not None or state["forward"] is not None or state["compared"]
    is_seen = is_seen or core.natively is core.leave_to_python
    if is_seen or not isinstance(input, Tensor) or input._array is None:
        return False
    levels = state["levels"]
    return levels[-1].combines if levels else input._type.size >= MANY_ELEMENTS


def _is_recorded(*operands: Any) -> bool:
    """Whether history will be kept, which then may need what the write destroys."""
    if context.grad_enabled:
        for operand in operands:
            if not isinstance(operand, Tensor):
                continue
            may_be = operand._requires_grad or operand._base is not None or context.levels
            if may_be and operand._is_recorded():
                return True
    return False


def reshaping(function: Function[P]) -> Function[P]:
    """The variant of a view function that makes the handle the view.

    The memory stays the same, so other handles to it keep their shape and see the same elements.
    The variant raises `LucidError` for a leaf that requires grad, and for a view of one.
    """

    def reshaped_(input: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        has_history, is_view = input.requires_grad, bool(input._view_chain)
        recorder = None if input.is_traced else context.recorder
        is_leaf = has_history and (input.is_leaf or refusal_of_writes(input) is not None)
        if is_leaf:
            name = function.__name__
            raise LucidError(
                f"{name}_: can't change the shape of a leaf that requires grad in place\n"
                f"hint: write x = x.{name}(...)"
            )
        if recorder is not None and (has_history or is_view):
            recorder.run_op_by_op(f"it calls {function.__name__}_() of a view from outside")
        if has_history or is_view or input.is_traced:
            _become(input, function(input if is_view else _base_of(input), *args, **kwargs))
        else:
            set_data(input, function(input, *args, **kwargs))
        return input

    return _named(reshaped_, function, "Make the tensor what `{}` gives, and return it.")


def _named(variant: Function[P], function: Function[P], summary: str) -> Function[P]:
    """Let a variant show its function's signature, and its own summary before the function's text.

    `inspect.signature` follows `__wrapped__`. The function's example stays in the text: it says
    what is written.
    """
    shown: Any = variant
    shown.__name__ = shown.__qualname__ = f"{function.__name__}_"
    text = inspect.cleandoc(described(function).__doc__ or "")
    shown.__doc__ = f"{summary.format(function.__name__)}\n\n{text}"
    shown.__wrapped__ = function
    return variant


def _base_of(input: Tensor) -> Tensor:
    """What `input` is now, to be the base of the view that it becomes, and of those that it has."""
    base = input.detach()
    base._requires_grad, base._grad_fn = input._requires_grad, input._grad_fn
    base._output_nr, base._epoch = input._output_nr, input._epoch + 1  # its views look again
    return base


def _become(input: Tensor, view: Tensor) -> None:
    """Make a handle one like its view."""
    before = input._grad_fn, input._output_nr
    input._type, input._chain, input._array = view._type, view._chain, view._array
    input._strides, input._value = view._strides, view._value
    input._base, input._view_chain, input._epoch = view._base, view._view_chain, view._epoch
    input._requires_grad, input._grad_fn = view._requires_grad, view._grad_fn
    input._output_nr = view._output_nr
    move_retained(input, *before)
    epoch.count += 1


def resize_(input: Tensor, *sizes: Any) -> Tensor:
    """Give the tensor another shape, in place, and return it.

    It gets new memory, with the elements that it had at the front, in row-major order, and zeros
    behind them. It is for tensors without history: no gradient flows through the change.

    Args:
        *sizes: the shape, as ints or as one tuple.

    Raises:
        ShapeError: a size is negative.
        LucidError: the tensor requires grad.

    >>> x = lucid.tensor([1, 2, 3])
    >>> x.resize_(2, 2)
    tensor([[1, 2],
            [3, 0]])
    """
    shape = shape_of(sizes, "resize_")
    if input.requires_grad:
        raise LucidError(
            f"resize_: cannot resize variables that require grad, such as this {input._type}\n"
            "hint: x.detach().resize_(...), or x.reshape(...) for as many elements"
        )
    size = prod(shape)
    kept = min(size, input._type.size)
    flat = emit(ops.reshape, (input.detach(),), shape=(input._type.size,))
    front = emit(ops.slice, (flat,), starts=(0,), stops=(kept,), steps=(1,))
    zero = constant(0, input._type.dtype)
    whole = emit(ops.pad, (front, zero), low=(0,), high=(size - kept,))
    set_data(input, emit(ops.reshape, (whole,), shape=shape).detach())
    return input


def resize_as_(input: Tensor, other: Tensor) -> Tensor:
    """Give the tensor the shape of `other`, in place, as `resize_` does, and return it.

    Args:
        other: whose shape it gets.

    >>> lucid.tensor([1, 2, 3]).resize_as_(lucid.zeros(2))
    tensor([1, 2])
    """
    return resize_(input, *other._type.shape) if other.ndim else resize_(input, ())


def set_(input: Tensor, source: Tensor) -> Tensor:
    """Make the tensor one on the memory of `source`, with its shape, and return it.

    Later writes to one show in the other.

    Args:
        input: the tensor, whose own memory it lets go of.
        source: a tensor, whose history isn't taken over.

    >>> x, y = lucid.zeros(2), lucid.ones(3)
    >>> x.set_(y)
    tensor([1., 1., 1.])
    >>> y[0] = 5.0
    >>> x
    tensor([5., 1., 1.])
    """
    set_data(input, tensor_of(source, "set_", "source").detach())
    return input


def apply_(input: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Overwrite each element with what a Python function gives for it, and return the tensor.

    Slow, as Python is called for each element; no gradient flows through it, and no trace can
    record it.

    Args:
        callable: takes a Python number and returns one.

    >>> lucid.tensor([1, 2]).apply_(lambda x: 10 * x)
    tensor([10, 20])
    """
    refuse_overlaps(input)
    array = input.detach().numpy()
    array[...] = np.reshape([callable(item) for item in array.ravel().tolist()], array.shape)
    input._counter.value += 1
    return input


def map_(input: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Overwrite each element with a Python function of it and of the one in `tensor` at its place.

    Slow, as Python is called for each element; no gradient flows through it, and no trace can
    record it.

    Args:
        input: the tensor, which is returned.
        tensor: the second operands; it broadcasts to the shape of `input`.
        callable: takes two Python numbers and returns one.

    >>> lucid.tensor([1, 2]).map_(lucid.tensor([10, 20]), lambda a, b: a + b)
    tensor([11, 22])
    """
    refuse_overlaps(input)
    array = input.detach().numpy()
    others = np.broadcast_to(tensor.detach().numpy(), array.shape)
    pairs = zip(array.ravel().tolist(), others.ravel().tolist(), strict=True)
    array[...] = np.reshape([callable(a, b) for a, b in pairs], array.shape)
    input._counter.value += 1
    return input


def copy_(input: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Overwrite the tensor with `src`, broadcast and cast, and return it.

    Floats are truncated where the tensor holds integers. Gradients flow to `src`.

    Args:
        src: a tensor whose shape broadcasts to that of `input`, of any dtype.

    Raises:
        ArgumentError: `src` is no tensor, or `non_blocking` no bool.
        ShapeError: `src` doesn't broadcast.

    >>> lucid.zeros(2, dtype=lucid.int64).copy_(lucid.tensor([1.7, -1.7]))
    tensor([ 1, -1])
    """
    if non_blocking is not False:
        check_flag(non_blocking, "non_blocking", "copy_")
    source = tensor_of(src, "copy_", "src")
    return write_(input, cast(source, input._type.dtype))


def fill_(input: Tensor, value: Number | Tensor) -> Tensor:
    """Overwrite every element with one value, and return the tensor.

    Args:
        value: a number or a 0-d tensor, to which gradients flow.

    Raises:
        ShapeError: the value is a tensor that isn't 0-d.

    >>> lucid.zeros(3).fill_(2.5)
    tensor([2.5000, 2.5000, 2.5000])
    """
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError("fill_: only supports 0-dimension value tensors")
    return write_(input, operand(value, input._type.dtype, "fill_"))


def zero_(input: Tensor) -> Tensor:
    """Overwrite every element with 0, and return the tensor.

    >>> x = lucid.ones(3)
    >>> x[1:].zero_()
    tensor([0., 0.])
    >>> x
    tensor([1., 0., 0.])
    """
    return fill_(input, 0)


def fill_diagonal_(input: Tensor, fill_value: Number) -> Tensor:
    """Overwrite the main diagonal of a matrix with a number, and return the matrix.

    It need not be square: the shorter side says how many elements are written.

    Args:
        input: a matrix.
        fill_value: the number.

    Raises:
        ShapeError: it is no matrix.

    >>> lucid.zeros(2, 3).fill_diagonal_(1)
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    if input.ndim != 2:
        raise ShapeError("fill_diagonal_: takes a matrix")
    fill_(input.diagonal(), fill_value)
    return input


def detach_(input: Tensor) -> Tensor:
    """Cut the tensor from its history, in place, and return it: it becomes a leaf without gradient.

    `detach` leaves the tensor as it is and returns another handle to its memory.

    Raises:
        LucidError: it is a view, whose history is that of its base.

    >>> x = lucid.ones(2, requires_grad=True) * 2
    >>> x.detach_().requires_grad
    False
    """
    if input._base is not None or input._guard is not None:
        raise LucidError(
            f"Can't detach views in-place. Use detach() instead.\n  {input._describe()}"
        )
    if context.recorder is not None and input.requires_grad:
        context.recorder.note_property(input, "grad_fn")
    input._grad_fn, input._output_nr = None, 0
    return input.requires_grad_(False)
