"""Python floats that stay inputs of a compiled step: a learning rate, a float argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.ir import ops
from lucid.ir.graph import Value
from lucid.ir.types import f64

if TYPE_CHECKING:
    from lucid.compiler.recorder import Recorder


class LiveScalar:
    """A float whose value is read at each call; arithmetic on it is recorded in f64.

    It passes for a float in `isinstance`. Whoever looks at its value (`if lr > 0`, `float(lr)`,
    `math.sqrt(lr)`) gets the value of now, and the step is guarded by it.
    """

    __slots__ = ("now", "recorder", "sources", "value")
    __array_ufunc__ = None  # NumPy leaves its operators to ours

    def __init__(
        self, value: Value, now: float, sources: frozenset[LiveSource], recorder: Recorder
    ) -> None:
        self.value = value
        self.now = now
        self.sources = sources
        self.recorder = recorder

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float

    def _look(self) -> float:
        self.recorder.guard_live(self)
        return self.now

    def __float__(self) -> float:
        return self._look()

    def __bool__(self) -> bool:
        return bool(self._look())

    def __int__(self) -> int:
        return int(self._look())

    def __hash__(self) -> int:
        return hash(self._look())

    def __repr__(self) -> str:
        return repr(self._look())

    def __format__(self, specification: str) -> str:
        return format(self._look(), specification)

    def __eq__(self, other: object) -> bool:
        return bool(self._look() == _seen(other))

    def __lt__(self, other: Any) -> bool:
        return bool(self._look() < _seen(other))

    def __le__(self, other: Any) -> bool:
        return bool(self._look() <= _seen(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self._look() > _seen(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self._look() >= _seen(other))

    def _combine(self, op: Any, other: Any, reflected: bool, meaning: Callable[..., float]) -> Any:
        if isinstance(other, (np.ndarray, np.generic)) and not isinstance(other, float):
            now = self._look()
            return meaning(other, now) if reflected else meaning(now, other)
        if not is_live(other) and not isinstance(other, (int, float)):
            return NotImplemented
        graph = self.recorder.graph
        if is_live(other):
            right, now, sources = other.value, other.now, other.sources
        else:
            right, now = graph.constant(float(other), f64), float(other)
            sources = frozenset()
        left, now_left = self.value, self.now
        if reflected:
            left, right, now_left, now = right, left, now, now_left
        with self.recorder.annotated():
            value = op(left, right)
        result = meaning(now_left, now)
        return LiveScalar(value, result, self.sources | sources, self.recorder)

    def __add__(self, other: Any) -> Any:
        return self._combine(ops.add, other, False, lambda a, b: a + b)

    def __radd__(self, other: Any) -> Any:
        return self._combine(ops.add, other, True, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return self._combine(ops.sub, other, False, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._combine(ops.sub, other, True, lambda a, b: a - b)

    def __mul__(self, other: Any) -> Any:
        return self._combine(ops.mul, other, False, lambda a, b: a * b)

    def __rmul__(self, other: Any) -> Any:
        return self._combine(ops.mul, other, True, lambda a, b: a * b)

    def __truediv__(self, other: Any) -> Any:
        return self._combine(ops.div, other, False, lambda a, b: a / b)

    def __rtruediv__(self, other: Any) -> Any:
        return self._combine(ops.div, other, True, lambda a, b: a / b)

    def __pow__(self, other: Any) -> Any:
        return self._combine(ops.pow, other, False, lambda a, b: a**b)

    def __rpow__(self, other: Any) -> Any:
        return self._combine(ops.pow, other, True, lambda a, b: a**b)

    def __neg__(self) -> LiveScalar:
        with self.recorder.annotated():
            value = ops.neg(self.value)
        return LiveScalar(value, -self.now, self.sources, self.recorder)

    def __floordiv__(self, other: Any) -> Any:
        return self._look() // _seen(other)

    def __rfloordiv__(self, other: Any) -> Any:
        return other // self._look()

    def __mod__(self, other: Any) -> Any:
        return self._look() % _seen(other)

    def __rmod__(self, other: Any) -> Any:
        return other % self._look()

    def __divmod__(self, other: Any) -> Any:
        return divmod(self._look(), _seen(other))

    def __rdivmod__(self, other: Any) -> Any:
        return divmod(other, self._look())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._look(), digits)

    def __trunc__(self) -> int:
        return int(self._look())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._look(), name)

    def __pos__(self) -> LiveScalar:
        return self

    def __abs__(self) -> LiveScalar:
        with self.recorder.annotated():
            value = ops.abs(self.value)
        return LiveScalar(value, abs(self.now), self.sources, self.recorder)


def is_live(value: object) -> bool:
    """Whether `value` is a live scalar; `isinstance` can't tell, for it passes for a float."""
    return type(value) is LiveScalar


def _seen(value: Any) -> Any:
    return value._look() if is_live(value) else value


class LiveSource:
    """Where a live scalar comes from.

    Attributes:
        read: returns the number of now.
        text: how the user gets at it, such as `opt.param_groups[0]['lr']`.
        argument: for an argument of the step, its position among the floats; else None.
    """

    __slots__ = ("argument", "read", "text")

    def __init__(
        self, text: str, read: Callable[[], Any] | None, argument: int | None = None
    ) -> None:
        self.text = text
        self.read = read
        self.argument = argument
