"""Anomaly mode: a backward that makes NaN raises, and names what it is the backward of."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

import numpy as np

from lucid.ir.errors import EagerOnlyError, LucidError
from lucid.ir.frames import edge
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.autograd.node import Gradients, Node

P = ParamSpec("P")
R = TypeVar("R")


def is_anomaly_enabled() -> bool:
    """Whether this thread is in anomaly mode, be it with or without the search for NaN.

    >>> with lucid.autograd.detect_anomaly(check_nan=False):
    ...     lucid.autograd.is_anomaly_enabled()
    True
    """
    return context.anomaly is not None


def is_anomaly_check_nan_enabled() -> bool:
    """Whether this thread looks for NaN in what backwards return.

    >>> with lucid.autograd.detect_anomaly(check_nan=False):
    ...     lucid.autograd.is_anomaly_check_nan_enabled()
    False
    """
    return bool(context.anomaly)


class detect_anomaly:  # noqa: N801 - the name PyTorch gives it
    """Raise where a backward returns NaN; the message names the Function or op and its line.

    For debugging: compiled functions run op by op in the block.

    Args:
        check_nan: False looks at nothing.

    >>> x = lucid.zeros(1, requires_grad=True)
    >>> with lucid.autograd.detect_anomaly():
    ...     (x.sqrt() * 0).sum().backward()
    Traceback (most recent call last):
    lucid.ir.errors.LucidError: Function 'SqrtBackward' returned nan values in its 0th...
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._mode: bool | None = bool(check_nan)
        self._before: list[bool | None] = []

    def __enter__(self) -> Self:
        self._before.append(context.anomaly)
        _set(self._mode)
        return self

    def __exit__(self, *_: object) -> None:
        context.anomaly = self._before[-1]  # without a call, behind which interrupts come
        del self._before[-1]

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def watched(*args: P.args, **kwargs: P.kwargs) -> R:
            with detect_anomaly(bool(self._mode)):
                return function(*args, **kwargs)

        return edge(watched)


class set_detect_anomaly(detect_anomaly):  # noqa: N801 - the name PyTorch gives it
    """Turn anomaly mode on or off, at once, and until the end of the block if it is used as one.

    Args:
        mode: whether it is on.
        check_nan: whether backwards that return NaN raise while it is on.

    >>> with lucid.autograd.set_detect_anomaly(True):
    ...     lucid.autograd.is_anomaly_enabled()
    True
    >>> lucid.autograd.is_anomaly_enabled()
    False
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(check_nan)
        self._initial = context.anomaly
        if not mode:
            self._mode = None
        _set(self._mode)

    def __enter__(self) -> Self:
        self._before.append(self._initial)
        _set(self._mode)
        return self


def _set(mode: bool | None) -> None:
    if mode is not None and context.recorder is not None:
        raise EagerOnlyError(
            "anomaly mode looks at the numbers of each backward\n"
            "hint: put it around the call of the compiled function"
        )
    context.anomaly = mode


def check_anomaly(node: Node, parts: Gradients) -> None:
    """Raise when a node returned NaN."""
    if not context.anomaly:
        return
    for i, part in enumerate(parts):
        if part is None or part._array is None or not part.dtype.is_floating_point:
            continue
        if np.isnan(part._array).any():
            raise LucidError(
                f"Function '{node._name()}' returned nan values in its {i}th output.{_where(node)}"
            )


def _where(node: Any) -> str:
    place: str = node._place()
    return f"\n  {node._name()}{place}" if place else ""
