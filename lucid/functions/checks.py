"""What only the values of tensors say: checked at once, or by each call of a compiled step.

A message is kept by the step: it holds for all calls. Shapes and dtypes are to be checked before,
since a trace finds them before any value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from lucid.functions.arguments import typed
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import LucidError
from lucid.ir.inference import application
from lucid.ir.location import at_line, here
from lucid.ir.op import Op
from lucid.ir.ops.checks import examine
from lucid.ir.ops.evaluation import is_within
from lucid.ir.types import i32, i64
from lucid.tensor.context import context
from lucid.tensor.core import emit, with_origins
from lucid.tensor.levels import are_checked, note_turn

Operands = Mapping[str, Tensor]


def in_range(
    values: Tensor, low: int, high: int, text: str, hint: str = "", /, **given: Tensor
) -> None:
    """Raise `IndexOutOfRangeError` unless each `low <= value < high`.

    Where the text has `{}` it says what was found instead, where it has `{high}` and `{last}` that
    bound and the number before it; between it and the hint the given operands are listed.
    """

    def said() -> str:
        bounded = text.replace("{high}", str(high)).replace("{last}", str(high - 1))
        return _said(bounded, hint, given)

    _check(values, low, high, said, "index")


def _said(text: str, hint: str, given: Operands) -> str:
    return f"{text}{typed(**given) if given else ''}{hint}"


def within_axis(
    op: str, index: Tensor, axis: int, size: int, from_end: bool, given: Operands
) -> None:
    """Raise `IndexOutOfRangeError` unless an axis of this size has all that the index names.

    op, given: what the user called, with which operands. from_end: negative indices are taken.
    """
    low = -size if from_end else 0
    _check(index, low, size, partial(_out_of_bounds, op, axis, size, given), "index")


def _out_of_bounds(op: str, axis: int, size: int, given: Operands) -> str:
    text = f"{op}: index {{}} is out of bounds for dimension {axis} with size {size}"
    return text + typed(**given)


def indexed(
    op: str, primitive: Op, operands: tuple[Tensor, ...], axis: int, from_end: bool, given: Operands
) -> Tensor:
    """Apply an op whose second operand is an index, as `require_index` has checked it."""
    require_index(op, primitive, operands, axis, from_end, given)
    return emit(primitive, operands, axis=axis)


def require_index(
    op: str, primitive: Op, operands: tuple[Tensor, ...], axis: int, from_end: bool, given: Operands
) -> None:
    """Check the types of an op's operands, and then the second one, which is an index.

    op, given, from_end: as in `within_axis`.
    """
    x, index = operands[:2]
    try:
        application(primitive, operands, {"axis": axis})
    except LucidError as error:
        text = str(with_origins(error, operands)).removeprefix(primitive.name)
        raise type(error)(op + text) from None
    within_axis(op, index, axis, x._type.shape[axis], from_end, given)


def require(
    condition: Tensor, text: str, error: str = "option", hint: str = "", /, **given: Tensor
) -> None:
    """Raise `OptionError` unless the condition holds.

    error: "state" for `LucidError`, "zero" for `DivisionByZeroError`, "singular" for `LinAlgError`.
    text, hint, given: as in `in_range`.
    """
    array = at_hand(condition)
    if array is not None and array.all():
        return
    if context.levels and are_checked(condition, np.all):
        return
    note_turn()
    fails = emit(ops.logical_not, (condition,))
    fails = emit(ops.any, (fails,), axes=tuple(range(condition.ndim)))
    said = partial(_said, text, hint, given)
    _check(emit(ops.cast, (fails,), dtype=i64), 0, 1, said, error)


def at_hand(values: Tensor) -> np.ndarray | None:
    """The array of values that can be looked at now, outside of traces and transformations."""
    return None if context.recorder is not None or context.levels else values._array


def _check(values: Tensor, low: int, high: int, message: Callable[[], str], error: str) -> None:
    array = at_hand(values)
    if array is not None:
        try:
            examine(array, low, high, message, error)
        except LucidError as wrong:
            raise at_line(wrong, here()) from None
    elif not (context.levels and are_checked(values, partial(is_within, low=low, high=high))):
        said = message() if context.recorder is None else context.recorder.said(message)
        if values._type.dtype not in (i32, i64):
            values = emit(ops.cast, (values,), dtype=i64)
        low, high = max(low, -(2**63)), min(high, 2**63 - 1)  # further bounds exclude nothing
        emit(ops.check, (values,), low=low, high=high, message=said, error=error)
