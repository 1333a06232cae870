"""What only the values of tensors say: checked at once, or by each call of a compiled step.

A message is kept by the step: it holds for all calls.
"""

from __future__ import annotations

from collections.abc import Callable

from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.types import i64
from lucid.tensor.context import context
from lucid.tensor.core import emit


def in_range(values: Tensor, low: int, high: int, message: Callable[[], str]) -> Tensor:
    """The values, of which each is `low <= value < high`.

    Raises `IndexOutOfRangeError`, which says where the message has `{}` what was found instead.
    """
    return _checked(values, low, high, message, "index")


def require(condition: Tensor, message: Callable[[], str], error: str = "option") -> None:
    """Raise `OptionError`, or `LucidError` (`error`: "state"), unless the condition holds."""
    fails = emit(ops.logical_not, (condition,))
    fails = emit(ops.any, (fails,), axes=tuple(range(condition.ndim)))
    _checked(emit(ops.cast, (fails,), dtype=i64), 0, 1, message, error)


def _checked(values: Tensor, low: int, high: int, message: Callable[[], str], error: str) -> Tensor:
    said = message if context.recorder is None else message()
    return emit(ops.check, (values,), low=low, high=high, message=said, error=error)
