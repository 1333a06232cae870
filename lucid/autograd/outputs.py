"""What becomes of the outputs of a custom Function: which get its node as history, and how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lucid.autograd.node import (
    CopySlices,
    Gradients,
    Node,
    edge_of,
    move_retained,
    origin_line,
    sequence_numbers,
)
from lucid.autograd.private import CustomForward, note, note_written
from lucid.autograd.returned import type_name
from lucid.autograd.saved import FREED
from lucid.ir.errors import ArgumentError, LucidError, TraceError
from lucid.ir.location import warn
from lucid.ir.op import Operand
from lucid.tensor.context import context
from lucid.tensor.storage import ViewGuard

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction
    from lucid.ir.types import TensorType
    from lucid.tensor.core import TensorCore


class Finish:
    """Gives the outputs of one call their history."""

    def __init__(
        self,
        ctx: BackwardCFunction,
        inputs: Sequence[Any],
        is_differentiable: bool,
        outer: CustomForward | None,
    ) -> None:
        self.ctx = ctx
        self.inputs = {id(x): x for x in inputs}
        self.is_differentiable = is_differentiable
        self.outer = outer  # the forward that a private call is part of
        self.count = 1
        self.tracked = 1  # of the outputs, those with a gradient

    def finish(self, output: Any) -> Any:
        """What `apply` returns. Raises where marks and outputs don't fit."""
        from lucid.tensor.core import TensorCore

        ctx = self.ctx
        _refuse_container(ctx, output)
        raw = tuple(output) if isinstance(output, tuple) else (output,)
        _check_marks(ctx, raw, self.inputs)
        self.count = len(raw)
        self.tracked = sum(isinstance(v, TensorCore) and self._has_history(v) for v in raw)
        if self.is_differentiable and not self.tracked:
            _warn_of_arrays(ctx, raw)
        ctx._sequence = next(sequence_numbers)  # before that of the nodes that lead to it
        placed: dict[int, TensorCore] = {}
        numbers: dict[int, int] = {}
        finished = [self._placed(value, i, placed, numbers) for i, value in enumerate(raw)]
        types = (value._type if isinstance(value, Operand) else None for value in finished)
        ctx._output_types = cast("tuple[TensorType, ...]", tuple(types))
        if self.is_differentiable:
            ctx._seal(numbers)
        ctx._marked_outputs = tuple(
            i for i, value in enumerate(raw) if any(value is x for x in ctx.non_differentiable)
        )
        ctx.dirty_tensors = ctx.non_differentiable = ()  # they may hold the ctx
        return tuple(finished) if isinstance(output, tuple) else finished[0]

    def _placed(
        self, value: Any, index: int, placed: dict[int, TensorCore], numbers: dict[int, int]
    ) -> Any:
        """The output at one position: a tensor that is there twice stays one object."""
        from lucid.tensor.core import TensorCore

        if not isinstance(value, TensorCore):
            return value
        key = id(value)
        is_dirty = any(value is x for x in self.ctx.dirty_tensors)
        if key in placed:
            tensor = placed[key]
            self._set_history(tensor, index)
        elif key in self.inputs:
            tensor = self._dirty(value, index) if is_dirty else self._of_input(value, index)
        else:
            if is_dirty:
                value._counter.value += 1
            tensor = self._fresh(value, index)
        if key not in self.inputs or is_dirty:
            placed[key] = tensor
            if self._has_history(value):
                numbers[key] = index
        return tensor

    def _has_history(self, value: TensorCore) -> bool:
        return (
            self.is_differentiable
            and value.dtype.is_floating_point
            and not any(value is x for x in self.ctx.non_differentiable)
        )

    def _set_history(self, tensor: TensorCore, index: int) -> None:
        if self.ctx._is_private:
            note(tensor, (self.ctx, index), self.outer)
        elif tensor._requires_grad and tensor._base is None:
            tensor._grad_fn, tensor._output_nr = self.ctx, index

    def _fresh(self, value: TensorCore, index: int) -> TensorCore:
        """A tensor that forward made: the same object, unless forward gave it a history."""
        is_view = value._base is not None
        if self._has_history(value) and not self.ctx._is_private:
            self._refuse_outside(value)
        result = value
        if value._requires_grad or value._grad_fn is not None or is_view:
            result = value._alias()
        value._private = None
        return self._with_history(result, value, index, is_view)

    def _refuse_outside(self, value: TensorCore) -> None:
        """Raise in a trace for a tensor that forward didn't make, whose history would be this."""
        recorder = context.recorder
        if recorder is not None and recorder.is_outside(value) and id(value) not in recorder.own:
            raise TraceError(
                f"{self.ctx._short_name()}.forward returned a tensor from outside of the compiled "
                f"function, whose history would be that of the last call\n  {value._describe()}"
                f"{self.ctx._origin_line()}\nhint: return tensor.detach(), which shares its memory"
            )

    def _of_input(self, value: TensorCore, index: int) -> TensorCore:
        """An input that forward returns as it is: a view of it, with the Function as history."""
        return self._with_history(value._alias(), value, index, is_view=True)

    def _with_history(
        self, result: TensorCore, value: TensorCore, index: int, is_view: bool
    ) -> TensorCore:
        result._spot = self.ctx._spot
        if self._has_history(value):
            result._requires_grad = not self.ctx._is_private
            self._set_history(result, index)
            if is_view and not self.ctx._is_private:
                result._guard = _guard(self.ctx, index, self.tracked > 1, value._counter.value)
        return result

    def _dirty(self, tensor: TensorCore, index: int) -> TensorCore:
        """An input that forward wrote: the same object, with the Function as its history."""
        from lucid.tensor.writing import MADE_WITHOUT_GRAD, made_without_grad

        ctx = self.ctx
        tensor._counter.value += 1
        if ctx._is_private:
            if self._has_history(tensor):
                note_written(tensor, (ctx, index), self.outer)
            return tensor
        if not context.grad_enabled:
            return tensor._alias() if tensor.requires_grad else tensor
        base = tensor._base
        if made_without_grad(tensor):
            raise LucidError(MADE_WITHOUT_GRAD + ctx._origin_line())
        _refuse_leaf(ctx, tensor)
        if not self._has_history(tensor):
            return tensor._alias() if tensor.requires_grad else tensor
        if base is not None and self.count > 1:
            raise LucidError(
                "If your Function modifies inplace an input that is a view of another Tensor, your "
                "Function cannot return more than one Tensor. You should either make sure the "
                "input is not a view (using .clone() for example) or make your Function only "
                "return one Tensor (potentially splitting it into two Functions: one doing the "
                "inplace that returns a single Tensor and a second one for the rest)."
                f"{ctx._origin_line()}"
            )
        self._rebase(tensor, index)
        return tensor

    def _rebase(self, tensor: TensorCore, index: int) -> None:
        from lucid.tensor.writing import note_flag

        base = tensor._base
        written = tensor if base is None else base
        if context.recorder is not None:
            context.recorder.note_history(written)
        before = written._grad_fn, written._output_nr
        if base is None:
            tensor._grad_fn, tensor._output_nr = self.ctx, index
        else:
            edges = (edge_of(base), (self.ctx, index))
            base._grad_fn = CopySlices(base._type, edges, tensor._view_chain)
            base._output_nr = 0
        note_flag(written)
        written._requires_grad = True
        written._epoch += 1
        move_retained(written, *before)


def _refuse_leaf(ctx: BackwardCFunction, tensor: TensorCore) -> None:
    from lucid.tensor.writing import refusal_of_writes

    if not tensor.requires_grad:
        return
    if tensor.is_leaf:
        raise LucidError(
            "a leaf Variable that requires grad has been used in an in-place operation."
            f"{ctx._origin_line()}"
        )
    refusal = refusal_of_writes(tensor)
    if refusal is not None:
        raise LucidError(f"{refusal}{ctx._origin_line()}")


def _warn_of_arrays(ctx: BackwardCFunction, raw: Sequence[Any]) -> None:
    for value in raw:
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "f":
            warn(
                f"{ctx._forward_cls.__name__}.forward returned an {type(value).__name__} and no "
                "tensor, so no gradient flows through it\nhint: return lucid.from_numpy(array)"
            )
            return


def _refuse_container(ctx: BackwardCFunction, output: Any) -> None:
    if isinstance(output, (list, dict)):
        values = output.values() if isinstance(output, dict) else output
        if any(isinstance(value, Operand) for value in values):
            raise ArgumentError(
                f"{ctx._forward_cls.__name__}.forward returned a {type(output).__name__}, whose "
                f"tensors would have no gradient{ctx._origin_line()}\n"
                "hint: return a tensor or a tuple of tensors"
            )


def _check_marks(ctx: BackwardCFunction, raw: Sequence[Any], inputs: dict[int, Any]) -> None:
    from lucid.tensor.core import TensorCore

    for what, marked in (
        ("mark_dirty can only accept variables", ctx.dirty_tensors),
        ("mark_non_differentiable only accepts variable arguments", ctx.non_differentiable),
    ):
        for position, tensor in enumerate(marked):
            if not isinstance(tensor, TensorCore):
                kind, where = type_name(tensor), ctx._origin_line()
                raise LucidError(f"{what}, but argument {position} is of type {kind}{where}")
    for tensor in ctx.dirty_tensors:
        if id(tensor) not in inputs:
            warn(
                "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that "
                "have been mutated should be passed to ctx.mark_dirty().",
                UserWarning,
            )
        if not any(tensor is value for value in raw):
            raise LucidError(
                "Some elements marked as dirty during the forward method were not returned as "
                "output. The inputs that are modified inplace must all be outputs of the Function."
                f"{ctx._origin_line()}"
            )


def _guard(ctx: BackwardCFunction, index: int, is_one_of_many: bool, version: int) -> ViewGuard:
    """Against writes to an output that is a view: they would lose the custom backward."""
    subject = f"Output {index} of {ctx._short_name()} is a view and "
    if is_one_of_many:
        reason = (
            "This view is the output of a function that returns multiple views. Such functions do "
            "not allow the output views to be modified inplace. You should replace the inplace "
            "operation by an out-of-place one."
        )
    else:
        reason = (
            "This view was created inside a custom Function (or because an input was returned "
            "as-is) and the autograd logic to handle view+inplace would override the custom "
            "backward associated with the custom Function, leading to incorrect gradients. This "
            "behavior is forbidden. You can fix this by cloning the output of the custom Function."
        )
    return ViewGuard(
        f"{subject}is being modified inplace. {reason}",
        f"{subject}its base or another view of its base has been modified inplace. {reason}",
        version,
    )


class TwiceDifferentiated(Node):
    """Stands behind the result of a once-differentiable backward, and says so when reached."""

    _takes_undefined = True

    def __init__(self, ctx: Node, gradients: Sequence[TensorCore], returned: Sequence[Any]) -> None:
        edges = [edge_of(gradient) for gradient in gradients]
        edges += [edge for edge in ctx._edges if edge is not None]
        types: Any = tuple(getattr(value, "_type", None) for value in returned)
        super().__init__(tuple(edges), types)
        self.of = ctx._short_name()
        self._spot = ctx._spot

    def apply(self, gradients: Gradients) -> Gradients:
        raise LucidError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
            f"\n  in the backward of {self.of}{self._place()}"
        )


def refuse_second_derivative(
    ctx: Node,
    gradients: Sequence[TensorCore],
    returned: Any,
    kind: type[TwiceDifferentiated] = TwiceDifferentiated,
) -> Any:
    """The returned gradients, with a history that raises when it is differentiated."""
    from lucid.tensor.core import TensorCore

    is_tuple = isinstance(returned, tuple)
    values = returned if is_tuple else (returned,)
    node = kind(ctx, gradients, values)
    guarded = []
    for index, value in enumerate(values):
        if isinstance(value, TensorCore) and value.dtype.is_floating_point:
            value = value._alias()
            value._grad_fn, value._output_nr, value._requires_grad = node, index, True
        guarded.append(value)
    return tuple(guarded) if is_tuple else guarded[0]


def freed_behind(nodes: Iterable[Node]) -> str | None:
    """What a second backward through the nodes would raise; None if nothing is freed.

    A custom Function that has not looked at what it saved won't the next time.
    """
    freed = [
        node
        for node in nodes
        if getattr(node, "saved", ()) is None
        or (getattr(node, "_freed", False) and getattr(node, "_has_read", None) is not False)
    ]
    if not freed:
        return None
    met = max(freed, key=lambda node: node._sequence)  # the first that the walk comes to
    return FREED + origin_line(met._short_name(), met._line)
