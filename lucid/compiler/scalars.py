"""Python numbers that stay inputs of a step: a learning rate, a float argument, a count."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.ir import ops
from lucid.ir.graph import Value
from lucid.ir.op import Op
from lucid.ir.types import f64

if TYPE_CHECKING:
    from lucid.compiler.recorder import Recorder

Number = int | float
Formula = Callable[[Sequence[Number]], Any]  # of the numbers among a call's arguments
_UFUNCS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.power: operator.pow,
    np.negative: operator.neg,
    np.absolute: operator.abs,
}


class LiveScalar:
    """A number whose value is read at each call; arithmetic on it is recorded in f64.

    It passes for a float or an int in `isinstance`. It is a formula, in Python, of what the call
    finds, so what is stored of it has Python's own value. An operation that no op stands for gives
    an input of the step, computed before it runs. Whoever looks at its value gets the one of now,
    and the step is guarded by what was seen: by the answer, where a branch asked `t % 10 == 0`.
    """

    __slots__ = ("_value", "formula", "now", "recorder", "text")

    def __init__(
        self, value: Value | None, now: Number, formula: Formula, text: str, recorder: Recorder
    ) -> None:
        self._value = value
        self.now = now
        self.formula = formula
        self.text = text
        self.recorder = recorder

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.now)

    @property
    def value(self) -> Value:
        """The number as an f64 of the graph."""
        if self._value is None:
            source = LiveSource(self.text, formula=self.formula)
            self._value = self.recorder.live_scalar(source, self.now).value
        return self._value

    # ------------------------------------------------------------------ arithmetic

    def _combine(
        self, symbol: str, meaning: Callable[..., Any], op: Op | None, other: Any, reflected: bool
    ) -> Any:
        if isinstance(other, np.ndarray) or (
            isinstance(other, np.generic) and not isinstance(other, float)
        ):
            now = self._look()
            return meaning(other, now) if reflected else meaning(now, other)
        if not isinstance(other, (int, float)):
            return NotImplemented
        sides = (other, self) if reflected else (self, other)
        left, right = map(_formula, sides)
        now = meaning(*map(_now, sides))
        value = None
        if op is not None:
            with self.recorder.annotated():
                value = op(*map(self._recorded, sides))
        text = f"{_text(sides[0])} {symbol} {_text(sides[1])}"
        return LiveScalar(
            value, now, lambda call: meaning(left(call), right(call)), text, self.recorder
        )

    def _recorded(self, side: Any) -> Value:
        if is_live(side):
            recorded: Value = side.value
            return recorded
        return self.recorder.graph.constant(float(side), f64)

    def apply(
        self, name: str, meaning: Callable[..., Any], args: Sequence[Any] = (), op: Op | None = None
    ) -> Any:
        """A function of numbers; this one alone, or `args`, one of which it is."""
        args = args or (self,)
        formulas = [*map(_formula, args)]
        now = meaning(*map(_now, args))

        def formula(call: Sequence[Number]) -> Any:
            return meaning(*[of(call) for of in formulas])

        text = f"{name}({', '.join(map(_inner_text, args))})"
        if type(now) not in (int, float):
            self.recorder.guard_formula(text, formula, now)
            return now
        value = None
        if op is not None:
            with self.recorder.annotated():
                value = op(self.value)
        return LiveScalar(value, now, formula, text, self.recorder)

    def __add__(self, other: Any) -> Any:
        return self._combine("+", operator.add, ops.add, other, False)

    def __radd__(self, other: Any) -> Any:
        return self._combine("+", operator.add, ops.add, other, True)

    def __sub__(self, other: Any) -> Any:
        return self._combine("-", operator.sub, ops.sub, other, False)

    def __rsub__(self, other: Any) -> Any:
        return self._combine("-", operator.sub, ops.sub, other, True)

    def __mul__(self, other: Any) -> Any:
        return self._combine("*", operator.mul, ops.mul, other, False)

    def __rmul__(self, other: Any) -> Any:
        return self._combine("*", operator.mul, ops.mul, other, True)

    def __truediv__(self, other: Any) -> Any:
        return self._combine("/", operator.truediv, ops.div, other, False)

    def __rtruediv__(self, other: Any) -> Any:
        return self._combine("/", operator.truediv, ops.div, other, True)

    def __pow__(self, other: Any) -> Any:
        return self._combine("**", operator.pow, ops.pow, other, False)

    def __rpow__(self, other: Any) -> Any:
        return self._combine("**", operator.pow, ops.pow, other, True)

    def __floordiv__(self, other: Any) -> Any:
        return self._combine("//", operator.floordiv, None, other, False)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._combine("//", operator.floordiv, None, other, True)

    def __mod__(self, other: Any) -> Any:
        return self._combine("%", operator.mod, None, other, False)

    def __rmod__(self, other: Any) -> Any:
        if isinstance(other, str):
            return other % self._look()
        return self._combine("%", operator.mod, None, other, True)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __neg__(self) -> Any:
        return self.apply("-", operator.neg, op=ops.neg)

    def __abs__(self) -> Any:
        return self.apply("abs", abs, op=ops.abs)

    def __pos__(self) -> LiveScalar:
        return self

    def __round__(self, digits: int | None = None) -> Any:
        return self.apply("round", lambda number: round(number, digits))

    def __floor__(self) -> Any:
        return self.apply("floor", math.floor)

    def __ceil__(self) -> Any:
        return self.apply("ceil", math.ceil)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy's functions of numbers stay live; with an array in it, they look."""
        if any(isinstance(x, np.ndarray) and x.ndim for x in inputs) or kwargs:
            return getattr(ufunc, method)(*map(_seen, inputs), **kwargs)
        if ufunc in _UFUNCS:
            return _UFUNCS[ufunc](*(x if is_live(x) else float(x) for x in inputs))
        if len(inputs) == 1 and method == "__call__":
            return self.apply(ufunc.__name__, lambda x: float(ufunc(x)), op=op_of(ufunc))
        return getattr(ufunc, method)(*map(_seen, inputs), **kwargs)

    # ------------------------------------------------------------------ looking at the value

    def _look(self) -> Any:
        return self._ask(self.text, lambda number: number)

    def _ask(self, text: str, question: Callable[[Number], Any]) -> Any:
        """The answer of now, which the step is specialized on."""
        of, answer = self.formula, question(self.now)
        self.recorder.guard_formula(text, lambda call: question(of(call)), answer)
        return answer

    def _compare(self, symbol: str, meaning: Callable[..., Any], other: Any) -> Any:
        if isinstance(other, np.ndarray):
            return meaning(self._look(), other)
        if not isinstance(other, (int, float, np.generic)):
            return NotImplemented
        left, right = self.formula, _formula(other)
        answer = bool(meaning(self.now, _now(other)))
        self.recorder.guard_formula(
            f"{self.text} {symbol} {_text(other)}",
            lambda call: bool(meaning(left(call), right(call))),
            answer,
        )
        return answer

    def __eq__(self, other: object) -> Any:
        return self._compare("==", operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return self._compare("!=", operator.ne, other)

    def __lt__(self, other: Any) -> Any:
        return self._compare("<", operator.lt, other)

    def __le__(self, other: Any) -> Any:
        return self._compare("<=", operator.le, other)

    def __gt__(self, other: Any) -> Any:
        return self._compare(">", operator.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self._compare(">=", operator.ge, other)

    def __bool__(self) -> bool:
        return bool(self._ask(f"bool({self.text})", bool))

    def __float__(self) -> float:
        return float(self._look())

    def __int__(self) -> int:
        return int(self._ask(f"int({self.text})", int))

    def __trunc__(self) -> int:
        return int(self)

    def __index__(self) -> int:
        return operator.index(self._look())

    def __hash__(self) -> int:
        return hash(self._look())

    def __repr__(self) -> str:
        return repr(self._look())

    def __format__(self, specification: str) -> str:
        return format(self._look(), specification)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._look(), name)

    def __copy__(self) -> LiveScalar:
        return self

    def __deepcopy__(self, memo: object) -> LiveScalar:
        return self


def is_live(value: object) -> bool:
    """Whether `value` is a live scalar; `isinstance` can't tell, for it passes for a number."""
    return type(value) is LiveScalar


def _seen(value: Any) -> Any:
    return value._look() if is_live(value) else value


def _now(value: Any) -> Any:
    return value.now if is_live(value) else value


def _formula(value: Any) -> Formula:
    if is_live(value):
        formula: Formula = value.formula
        return formula
    return lambda call: value


def _inner_text(value: Any) -> str:
    return str(value.text) if is_live(value) else repr(value)


def _text(value: Any) -> str:
    """A side of an expression, for messages."""
    if not is_live(value):
        return repr(value)
    return f"({value.text})" if " " in value.text else str(value.text)


def op_of(function: object) -> Op | None:
    """The op that a function of `math` or NumPy is, if there is one."""
    name = getattr(function, "__name__", "")
    return getattr(ops, name) if name in ("sqrt", "exp", "log", "sin", "cos", "tanh") else None


class LiveSource:
    """Where a live scalar comes from.

    Attributes:
        text: how the user gets at it, such as `opt.param_groups[0]['lr']`.
        read: returns the number of now; None if it needs the call's arguments.
        argument: for an argument of the step, its position among the numbers; else None.
        formula: the number of a call.
    """

    __slots__ = ("argument", "formula", "read", "text")

    def __init__(
        self,
        text: str,
        read: Callable[[], Any] | None = None,
        argument: int | None = None,
        formula: Formula | None = None,
    ) -> None:
        self.text = text
        self.read = read
        self.argument = argument
        if argument is not None:
            self.formula: Formula = operator.itemgetter(argument)
        elif read is not None:
            self.formula = lambda call: read()
        else:
            assert formula is not None
            self.formula = formula
