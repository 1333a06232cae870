"""What becomes of the outputs of a custom Function: which get its node as history, and how."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from lucid.autograd.node import Gradients, Node, edge_of, iterate_graph
from lucid.ir.errors import ArgumentError, LucidError
from lucid.ir.location import user_frame
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction
    from lucid.tensor.core import TensorCore


def calling_line() -> tuple[str, int] | None:
    """The user's line that is running."""
    frame = user_frame()
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def finish(ctx: BackwardCFunction, inputs: Sequence[Any], output: Any) -> Any:
    """Give the outputs of forward their history. Raises where marks and outputs don't fit."""
    from lucid.tensor.core import TensorCore

    name = ctx._forward_cls.__name__
    if isinstance(output, (list, dict)) and _holds_tensor(output):
        raise ArgumentError(
            f"{name}.forward returned a {type(output).__name__}, whose tensors would have no "
            "gradient\nhint: return a tensor or a tuple of tensors"
        )
    is_tuple = isinstance(output, tuple)
    raw = tuple(output) if is_tuple else (output,)
    differentiable = context.grad_enabled and any(edge is not None for edge in ctx.edges)
    _check_marks(ctx, raw, inputs)
    placed: dict[int, Any] = {}
    finished = []
    for index, value in enumerate(raw):
        if not isinstance(value, TensorCore):
            finished.append(value)
        elif id(value) in placed:
            tensor = placed[id(value)]
            tensor._output_nr = index
            finished.append(tensor)
        else:
            tensor = _finish_one(ctx, inputs, value, index, len(raw), differentiable)
            if not any(value is x for x in inputs):
                placed[id(value)] = tensor
            finished.append(tensor)
    ctx.output_types = tuple(
        cast(Any, t._type if isinstance(t, TensorCore) else None) for t in finished
    )
    if differentiable:
        ctx.sequence = _fresh_sequence()
        ctx.seal([*finished, *raw])
        _check_reachable(ctx)
    return tuple(finished) if is_tuple else finished[0]


def _fresh_sequence() -> int:
    from lucid.autograd.node import _sequence

    return next(_sequence)


def _check_reachable(ctx: BackwardCFunction) -> None:
    recorder = context.recorder
    if recorder is not None:
        ctx.origin = None


def _holds_tensor(container: Any) -> bool:
    from lucid.tensor.core import TensorCore

    values = container.values() if isinstance(container, dict) else container
    return any(isinstance(value, TensorCore) for value in values)


def _check_marks(ctx: BackwardCFunction, raw: Sequence[Any], inputs: Sequence[Any]) -> None:
    from lucid.tensor.core import TensorCore

    for what, marked in (
        ("mark_dirty", ctx.dirty_tensors),
        ("mark_non_differentiable", ctx.non_differentiable),
    ):
        for position, tensor in enumerate(marked):
            if not isinstance(tensor, TensorCore):
                raise LucidError(
                    f"{what} only accepts input tensors, but argument {position} is of type "
                    f"{type(tensor).__name__}"
                    if what == "mark_dirty"
                    else f"{what} only accepts variable arguments, but got {type(tensor).__name__}"
                )
    for tensor in ctx.dirty_tensors:
        if not any(tensor is x for x in inputs):
            warnings.warn(
                f"{ctx.name()}: only input Tensors should be given to ctx.mark_dirty(). If a "
                "Tensor is not an input, there is no need to pass it to mark_dirty().",
                UserWarning,
                stacklevel=4,
            )
        elif not any(tensor is value for value in raw):
            raise LucidError(
                "Some elements marked as dirty during the forward method were not returned as "
                "output. The inputs that are modified inplace must all be outputs of the Function."
            )


def _finish_one(
    ctx: BackwardCFunction,
    inputs: Sequence[Any],
    value: TensorCore,
    index: int,
    count: int,
    differentiable: bool,
) -> TensorCore:
    from lucid.tensor.core import alias

    is_input = any(value is x for x in inputs)
    is_dirty = is_input and any(value is x for x in ctx.dirty_tensors)
    unmarked = not any(value is x for x in ctx.non_differentiable)
    is_float = value.dtype.is_floating_point
    if is_dirty:
        return _finish_dirty(ctx, value, index, count, differentiable and unmarked)
    if is_input:
        result: TensorCore = alias(value)
    elif value._grad_fn is not None or value._requires_grad or value._base is not None:
        result = alias(value)
    else:
        result = value
    result._line = ctx.line
    if differentiable and unmarked and is_float:
        result._grad_fn, result._output_nr, result._requires_grad = ctx, index, True
        if is_input or value._chain:
            result._forbid_inplace = _view_message(ctx, index, count)
    return result


def _view_message(ctx: BackwardCFunction, index: int, count: int) -> str:
    name = ctx.name()
    if count > 1:
        return (
            f"Output {index} of {name} is a view and is being modified inplace. This view is the "
            "output of a function that returns multiple views. Such functions do not allow the "
            "output views to be modified inplace. You should replace the inplace operation by an "
            "out-of-place one."
        )
    return (
        f"Output {index} of {name} is a view and is being modified inplace. This view was created "
        "inside a custom Function (or because an input was returned as-is) and the autograd logic "
        "to handle view+inplace would override the custom backward associated with the custom "
        "Function, leading to incorrect gradients. This behavior is forbidden. You can fix this "
        "by cloning the output of the custom Function."
    )


def _finish_dirty(
    ctx: BackwardCFunction, tensor: TensorCore, index: int, count: int, differentiable: bool
) -> TensorCore:
    """An input that forward wrote: the same object, with the Function as its history."""
    from lucid.autograd.node import CopySlices

    tensor._counter.value += 1
    if not context.grad_enabled:
        return tensor
    if tensor.requires_grad and tensor.is_leaf:
        raise LucidError(
            "a leaf Variable that requires grad has been used in an in-place operation."
        )
    if not differentiable:
        return tensor
    base = tensor._base
    if context.recorder is not None:
        context.recorder.note_history(tensor if base is None else base)
    if base is None:
        tensor._grad_fn, tensor._output_nr, tensor._requires_grad = ctx, index, True
        tensor._epoch += 1
        return tensor
    if base.is_leaf and base._requires_grad:
        raise LucidError(
            "a view of a leaf Variable that requires grad is being used in an in-place operation."
        )
    if count > 1:
        raise LucidError(
            f"{ctx.name()}: if your Function modifies in place an input that is a view of another "
            "Tensor, it must return that input as its only output"
        )
    from lucid.tensor.core import alias

    written = alias(tensor)
    written._grad_fn, written._output_nr, written._requires_grad = ctx, index, True
    base._grad_fn = CopySlices(base, written, tensor._view_chain)
    base._output_nr, base._requires_grad = 0, True
    base._epoch += 1
    return tensor


class TwiceDifferentiated(Node):
    """Stands behind the result of a once-differentiable backward, and says so when reached."""

    def __init__(self, ctx: Node, gradients: Sequence[TensorCore], count: int) -> None:
        edges = [edge_of(gradient) for gradient in gradients]
        edges += [edge for edge in ctx.edges if edge is not None]
        super().__init__(tuple(edges), (None,) * count)  # type: ignore[arg-type]
        self.of = ctx.name()

    def apply(self, gradients: Gradients) -> Gradients:
        raise LucidError(
            "trying to differentiate twice a function that was marked with @once_differentiable "
            f"({self.of})"
        )


def refuse_second_derivative(ctx: Node, gradients: Sequence[TensorCore], returned: Any) -> Any:
    """The returned gradients, with a history that raises when it is differentiated."""
    from lucid.tensor.core import TensorCore, alias

    is_tuple = isinstance(returned, tuple)
    values = returned if is_tuple else (returned,)
    node = TwiceDifferentiated(ctx, gradients, len(values))
    guarded = []
    for index, value in enumerate(values):
        if isinstance(value, TensorCore) and value.dtype.is_floating_point:
            value = alias(value)
            value._grad_fn, value._output_nr, value._requires_grad = node, index, True
        guarded.append(value)
    return tuple(guarded) if is_tuple else guarded[0]


def reaches_freed(tensor: TensorCore) -> bool:
    """Whether a second backward through the tensor's history would find it freed."""
    if tensor.grad_fn is None:
        return False
    return any(
        getattr(node, "_freed", False) or getattr(node, "saved", ()) is None
        for node in iterate_graph([tensor.grad_fn])
    )
