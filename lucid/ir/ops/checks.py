"""What the values of a step must be like: an error of the call that finds others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from lucid.ir.errors import (
    ArgumentError,
    AssertionFailedError,
    DivisionByZeroError,
    IndexOutOfRangeError,
    LeavesPath,
    LinAlgError,
    LucidError,
    NotFinite,
    OptionError,
    completed,
)
from lucid.ir.op import Op, Sample, declare
from lucid.ir.ops import batching
from lucid.ir.ops.evaluation import is_within
from lucid.ir.ops.rules import failure, require_index
from lucid.ir.types import TensorType

__all__ = ["check"]

ERRORS: Mapping[str, type[LucidError]] = {
    "index": IndexOutOfRangeError,
    "option": OptionError,
    "state": LucidError,
    "zero": DivisionByZeroError,
    "exit": LeavesPath,
    "finite": NotFinite,
    "assert": AssertionFailedError,
    "singular": LinAlgError,
}
"""By the name that the attribute `error` holds. The message of an exit is its number."""


def out_of_range(value: int, message: str, error: str) -> LucidError:
    """The error of a check that found `value`, which stands where the message has `{}`."""
    if error == "exit":
        left = LeavesPath("Python has found another value while the step was traced")
        left.number, left.found = int(message), value
        return left
    return completed(ERRORS[error](message.replace("{}", str(value))))


def _infer(x: TensorType, low: int, high: int, message: str, error: str) -> TensorType:
    require_index("check", ("x",), (x,), 0)
    if error not in ERRORS:
        problem = f"there is no error {error!r}; there are {', '.join(ERRORS)}"
        raise failure(ArgumentError, "check", problem, ("x",), (x,))
    return x


def examine(x: np.ndarray, low: int, high: int, message: Callable[[], str], error: str) -> None:
    """Raise the error of a check that finds something in the array; its message is made then."""
    if x.size and 0 in x.strides:  # elements that a broadcast repeats are looked at once
        x = x[tuple([slice(None if step else 1) for step in x.strides])]
    if not is_within(x, low, high):
        wrong = x[(x < low) | (x >= high)].flat[0]
        raise out_of_range(int(wrong), message(), error)


def _evaluate(x: np.ndarray, low: int, high: int, message: str, error: str) -> np.ndarray:
    examine(x, low, high, lambda: message, error)
    return x.copy()


_range = {"low": -2, "high": 5, "message": "{} is wrong", "error": "index"}
_any = {**_range, "low": -(2**62), "high": 2**62}
check = declare(
    Op(
        "check",
        _infer,
        _evaluate,
        kind="check",
        batch=batching.elementwise,
        samples=(
            Sample((np.array([0, 4, -2]),), _range),
            Sample((np.array([[3], [1]], np.int32),), _range),
            Sample((np.zeros((0, 2), np.int64),), _range),
            Sample((np.array(4),), _range),
            Sample(((2, 3),), _any),
        ),
    )
)
