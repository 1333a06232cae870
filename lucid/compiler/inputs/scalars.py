"""Python numbers that stay inputs of a step: a learning rate, a float argument, a count."""

from __future__ import annotations

import functools
import hashlib
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.ir import ops
from lucid.ir.classes import isinstance
from lucid.ir.graph import Value
from lucid.ir.op import Op
from lucid.ir.types import DType, f64, i64, limits_of
from lucid.tensor.tree import flatten

if TYPE_CHECKING:
    from lucid.compiler.inputs.live_numbers import SymNumbers

Number = int | float
WHOLE = (int, np.integer)
_Binary = Callable[[Any, Any], Any]
Formula = Callable[[Sequence[Number]], Any]  # of the numbers among a call's arguments
EXTREMES: dict[object, Callable[[Value, Value], Value]] = {
    min: lambda x, y: ops.where(ops.lt(y, x), y, x),  # of equal ones, and of NaN, the first
    max: lambda x, y: ops.where(ops.gt(y, x), y, x),
}
_OF_ONE = (ops.sqrt, ops.exp, ops.log, ops.sin, ops.cos, ops.tanh)
# Which op computes what a function of Python's and one of NumPy's give for floats.
OPS: dict[object, Op] = {
    meaning: op
    for op, *meanings in (
        (ops.add, operator.add, np.add),
        (ops.sub, operator.sub, np.subtract),
        (ops.mul, operator.mul, np.multiply),
        (ops.div, operator.truediv, np.true_divide),
        (ops.pow, operator.pow, np.power),
        (ops.neg, operator.neg, np.negative),
        (ops.abs, abs, np.absolute),
        (ops.eq, operator.eq, np.equal),
        (ops.ne, operator.ne, np.not_equal),
        (ops.lt, operator.lt, np.less),
        (ops.le, operator.le, np.less_equal),
        (ops.gt, operator.gt, np.greater),
        (ops.ge, operator.ge, np.greater_equal),
        *((op, getattr(math, op.name), getattr(np, op.name)) for op in _OF_ONE),
    )
    for meaning in meanings
}
_DIVISIONS = (
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.lshift,
    operator.rshift,
)  # the number on the right may be an error
_ON_SIZES = (
    *(operator.add, operator.sub, operator.mul, operator.neg, operator.floordiv, operator.mod),
)
_TOTAL = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.invert,
    operator.neg,
    abs,
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
    *EXTREMES,
)
_NO_NUMBERS = (type(None), str, bytes, list, tuple, dict, set, frozenset)
_IN_C = type(math.sqrt)
_OF_NUMPY = (type(np.sum), type(np.array))
ONLY_COMPUTE: frozenset[Any] = frozenset(
    {
        *(float, int, np.float64, np.float32),
        *(np.clip, np.interp, np.mean, np.sum, np.prod, np.max, np.min, np.round, np.std, np.var),
        *(np.median, np.average, np.dot, np.polyval, np.array, np.asarray, np.full, np.linspace),
        *(np.arange, np.stack, np.concatenate, np.hstack, np.vstack, np.diag, np.outer, np.diff),
        *(np.cumsum, np.sort, np.argsort, np.argmax, np.argmin, np.percentile, np.quantile),
    }
)
_RECORDED = (int, float, bool, np.float64)  # numbers whose arithmetic the graph can do in f64
_LONGEST = 200  # of a text that stays whole
_MANY = 64  # formulas that one consists of


class Composite:
    """A formula: a function of what other formulas give.

    In a loop, each round makes a formula of those of the round before, and may read one twice. So
    each is computed once for a call, and in order: not one within another.

    Attributes:
        count: of the formulas that it consists of, as often as each is read; no more than matter.
    """

    __slots__ = ("_function", "_order", "_parts", "count")

    def __init__(self, function: Callable[..., Any], parts: Sequence[Callable[[Any], Any]]) -> None:
        self._function, self._parts = function, parts
        self.count: int = min(1 + sum([x.count for x in parts if type(x) is Composite]), _MANY)
        self._order: list[Composite] = []

    def __call__(self, known: Any) -> Any:
        if not self._order:
            parts = lambda of: [x for x in of._parts if type(x) is Composite]  # noqa: E731
            self._order = in_order(self, parts)
        found: dict[Any, Any] = {}
        for of in self._order:
            values = [found[x] if type(x) is Composite else x(known) for x in of._parts]
            found[of] = of._function(*values)
        return found[self]


def in_order(last: Any, parts: Callable[[Any], Sequence[Any]]) -> list[Any]:
    """Something and all that it is made of, each behind its own parts; it comes last."""
    found: dict[int, Any] = {}
    pending = [last]
    while pending:
        missing = [x for x in parts(pending[-1]) if id(x) not in found]
        pending += missing
        if not missing:
            one = pending.pop()
            found[id(one)] = one
    return [*found.values()]


def _operation(symbol: str, meaning: Callable[..., Any]) -> tuple[_Binary, _Binary]:
    """An operator of live scalars with the other operand on its right, and on its left."""
    return (
        lambda number, other: number._combine(symbol, meaning, other, False),
        lambda number, other: number._combine(symbol, meaning, other, True),
    )


def _function(name: str, meaning: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda number: number.apply(name, meaning)


def _refused(meaning: Callable[..., Any], sides: Sequence[Any]) -> Any:
    """Python's error for operands that don't go together; else NotImplemented."""
    if any(type(x) in _NO_NUMBERS for x in sides):
        meaning(*[x.kind(1) if is_live(x) else x for x in sides])  # whose words name the classes
    return NotImplemented


def _is_late_data(other: object) -> bool:
    """Whether it is an array that only a call knows, whose operators take live numbers."""
    kinds = (np.ndarray, np.generic)
    return isinstance(other, kinds) and not issubclass(type(other), kinds) and not is_live(other)


def _comparison(symbol: str, meaning: Callable[..., Any]) -> _Binary:
    def compare(number: Any, other: Any) -> Any:
        if _is_late_data(other):
            return NotImplemented
        if isinstance(other, np.ndarray):
            return number._with_arrays(symbol, meaning, (number, other), {})
        if not isinstance(other, (int, float, np.generic)):
            return _refused(meaning, (number, other))
        return number._compare(symbol, meaning, other)

    return compare


class SymScalar:
    """A number whose value is read at each call; arithmetic on floats is recorded in f64.

    It passes for a float or an int in `isinstance`. It is a formula, in Python, of what the call
    finds, so what is stored of it has Python's own value. Arithmetic on ints, which have no size
    in Python, and an operation that no op stands for give an input of the step, computed before
    it runs. Whoever looks at its value gets the one of now, and the step is guarded by what was
    seen: by the answer, where a branch asked `t % 10 == 0`; by the type of the result, or the
    error, where that depends on the numbers.

    Attributes:
        read: gives the number without looking at the call's arguments; None: only `formula` does.
        made_of: the function and the ints that it was computed by, if these may be open sizes.
        size: its open size, or its int, once the library has needed it as a size.
        lists: the lists among the arguments whose lengths determine it, and the texts there that
            do, by the user's expressions.
    """

    __slots__ = (
        *("_now", "_value", "_whole", "formula", "lists", "made_of", "read", "recorder", "size"),
        "text",
    )

    def __init__(
        self,
        now: Number,
        formula: Formula,
        text: str,
        recorder: SymNumbers,
        read: Callable[[], Any] | None = None,
    ) -> None:
        self._value: Value | None = None
        self._whole: Value | None = None
        self._now = now
        self.formula = formula
        self.text = short_text(text)
        self.recorder = recorder
        self.read = read
        self.made_of: tuple[Callable[..., Any], Sequence[Any]] | None = None
        self.size: Any = None
        self.lists: frozenset[str] = frozenset()
        recorder.has_numbers = True

    @property
    def now(self) -> Any:
        """What it is in the call that is traced."""
        return self._now

    @property
    def kind(self) -> type:
        return type(self._now)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.kind

    @property
    def value(self) -> Value:
        """The number as an f64 of the graph, as Python converts it."""
        if self._value is None:
            of, read = self.formula, self.read
            if self.kind is float:
                self._value = self._input(f64, of, read)
            else:
                as_float = None if read is None else lambda: float(read())
                self._value = self._input(f64, lambda call: float(of(call)), as_float)
        return self._value

    @property
    def whole(self) -> Value:
        """The number, an int that fits, as an i64 of the graph."""
        if self._whole is None:
            self._whole = self._input(i64, self.formula, self.read)
        return self._whole

    @property
    def is_recorded(self) -> bool:
        """Whether it is in the graph by now, as it may be a size there."""
        return self._whole is not None

    def _input(self, dtype: DType, formula: Formula, read: Callable[[], Any] | None) -> Value:
        return self.recorder.live_input(SymSource(self.text, self.now, formula, read), dtype)

    def truncated(self) -> SymScalar:
        """The number as an int. Raises what `int` raises."""
        if issubclass(self.kind, int):
            return self
        whole: SymScalar = self.apply("int", int)
        return whole

    def fits(self, dtype: DType) -> bool:
        """Whether an int is within the range of a dtype."""
        low, high = limits_of(dtype)
        text = f"{low} <= {_text(self)} <= {high}"
        return bool(self._ask(text, lambda number: low <= number <= high, dtype is i64))

    def is_place_in(self, size: int) -> bool:
        """Whether it is the place of an entry of a list of that size, counted from its begin."""
        if not issubclass(self.kind, WHOLE):
            return False
        return bool(self._ask(f"0 <= {_text(self)} < {size}", lambda number: 0 <= number < size))

    # ------------------------------------------------------------------ arithmetic

    def apply(self, name: str, meaning: Callable[..., Any], args: Sequence[Any] = ()) -> Any:
        """`meaning` of this number, or of `args`, of which this number is one."""
        args = args or (self,)
        return self.applied(f"{name}({', '.join(map(_inner_text, args))})", meaning, args)

    def _combine(
        self, symbol: str, meaning: Callable[..., Any], other: Any, reflected: bool
    ) -> Any:
        sides = (other, self) if reflected else (self, other)
        if _is_late_data(other):
            return NotImplemented
        if isinstance(other, np.ndarray):
            return self._with_arrays(symbol, meaning, sides, {})
        if isinstance(other, complex):
            return meaning(*map(seen, sides))
        if isinstance(other, (str, list, tuple)) and meaning is operator.mul and self.kind is int:
            found = self.recorder.repeated(other, self)
            return _refused(meaning, sides) if found is None else found
        if not isinstance(other, (int, float, np.generic)) or _is_of_kind(other, self):
            return _refused(meaning, sides)
        return self.applied(f"{_text(sides[0])} {symbol} {_text(sides[1])}", meaning, sides)

    def applied(self, text: str, meaning: Callable[..., Any], args: Sequence[Any]) -> Any:
        """What a function gives, as a number that follows from the arguments.

        Raises what the function raises.
        """
        formulas = [*map(_formula, args)]
        formula = Composite(meaning, formulas)
        if not _is_total(meaning, args):
            kind_of = partial(_kind, meaning)
            kind = kind_of(*map(_now, args))
            self.recorder.guard_formula(f"type({text})", Composite(kind_of, formulas), kind)
        now = meaning(*map(_now, args))
        if not _is_result(now):
            self.recorder.guard_formula(text, formula, now)
            return now
        result = SymScalar(now, formula, text, self.recorder)
        result._value = self._computed(meaning, args, type(now))
        result.lists = frozenset().union(*[x.lists for x in args if is_live(x)])
        if is_of_sizes(meaning, args):
            result.made_of = meaning, args
        return result

    def _computed(
        self, meaning: Callable[..., Any], args: Sequence[Any], kind: type
    ) -> Value | None:
        """The number by an op of the graph, where one computes what Python does."""
        if meaning in (float, np.float64):
            return args[0].value if kind is meaning else None
        op = EXTREMES.get(meaning) or OPS.get(meaning)
        kinds = {arg.__class__ for arg in args}
        is_float = kind in (float, np.float64) and not kinds.isdisjoint((float, np.float64))
        if op is ops.log and len(args) > 1:  # the logarithm to a base
            return None
        if op is None or not is_float or not kinds.issubset(_RECORDED):
            return None
        try:
            constants = [None if is_live(arg) else float(arg) for arg in args]
        except OverflowError:
            return None
        with self.recorder.annotated():
            graph = self.recorder.graph
            pairs = zip(args, constants, strict=True)
            operands = [arg.value if c is None else graph.constant(c, f64) for arg, c in pairs]
            found: Value = functools.reduce(op, operands) if meaning in EXTREMES else op(*operands)
        return found

    __add__, __radd__ = _operation("+", operator.add)
    __sub__, __rsub__ = _operation("-", operator.sub)
    __mul__, __rmul__ = _operation("*", operator.mul)
    __truediv__, __rtruediv__ = _operation("/", operator.truediv)
    __floordiv__, __rfloordiv__ = _operation("//", operator.floordiv)
    __mod__, __rmod__ = _operation("%", operator.mod)
    __and__, __rand__ = _operation("&", operator.and_)
    __or__, __ror__ = _operation("|", operator.or_)
    __xor__, __rxor__ = _operation("^", operator.xor)
    __lshift__, __rlshift__ = _operation("<<", operator.lshift)
    __rshift__, __rrshift__ = _operation(">>", operator.rshift)
    _power, __rpow__ = _operation("**", operator.pow)
    __invert__ = _function("~", operator.invert)
    __neg__ = _function("-", operator.neg)
    __abs__ = _function("abs", abs)
    __floor__ = _function("floor", math.floor)
    __ceil__ = _function("ceil", math.ceil)

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return pow(self._look(), seen(other), seen(modulus))
        return self._power(other)

    def __divmod__(self, other: Any) -> Any:
        return _divided(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return _divided(other, self)

    def __pos__(self) -> SymScalar:
        return self

    def __round__(self, digits: int | None = None) -> Any:
        return self.apply("round", round, (self,) if digits is None else (self, digits))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy's functions of numbers are numbers; with an array in it, an array."""
        is_of_numbers = all(isinstance(x, (int, float, np.generic)) for x in inputs)
        if method != "__call__" or kwargs or not is_of_numbers:
            return self._with_arrays(ufunc.__name__, getattr(ufunc, method), inputs, kwargs)
        return self.apply(f"np.{ufunc.__name__}", ufunc, inputs)

    def _with_arrays(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Any
    ) -> Any:
        """What a function of NumPy's gives of arrays and numbers; ints, such as sizes, it sees."""
        numbers = [x for x in args if is_live(x)]
        if all(type(x) is SymScalar and isinstance(x, WHOLE) for x in numbers):
            return function(*map(seen, args), **kwargs)
        return self.recorder.with_arrays(f"np.{name}", function, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """What NumPy makes of it: an array holds the number of now."""
        return np.array(self._look(), dtype)

    # ------------------------------------------------------------------ looking at the value

    def _look(self) -> Any:
        return self._ask(self.text, lambda number: number)

    def _ask(self, text: str, question: Callable[[Number], Any], is_entered: bool = False) -> Any:
        """The answer to a question about the number now, on which the step is specialized."""
        of, answer = self.formula, question(self.now)
        self.recorder.guard_formula(text, lambda call: question(of(call)), answer, is_entered)
        return answer

    def _compare(self, symbol: str, meaning: Callable[..., Any], other: Any) -> Any:
        return self.applied(f"{self.text} {symbol} {_text(other)}", meaning, (self, other))

    __eq__ = _comparison("==", operator.eq)
    __ne__ = _comparison("!=", operator.ne)
    __lt__ = _comparison("<", operator.lt)
    __le__ = _comparison("<=", operator.le)
    __gt__ = _comparison(">", operator.gt)
    __ge__ = _comparison(">=", operator.ge)

    def __bool__(self) -> bool:
        return bool(self._ask(f"bool({self.text})", bool))

    def __float__(self) -> float:
        return float(self._look())

    def __int__(self) -> int:
        self.recorder.note_size(self)
        return int(self._ask(f"int({self.text})", int))

    def __trunc__(self) -> int:
        return int(self)

    def __index__(self) -> int:
        self.recorder.note_size(self)
        return operator.index(self._look())

    def __hash__(self) -> int:
        return hash(self._look())

    def __str__(self) -> str:
        return self.recorder.written(self, str)

    def __repr__(self) -> str:
        return self.recorder.written(self, repr)

    def __format__(self, specification: str) -> str:
        return self.recorder.written(self, format, specification)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if issubclass(self.kind, np.generic) and name == "dtype":
            return np.dtype(self.kind)
        if issubclass(self.kind, np.generic) and name == "item":
            kind = type(self.kind().item())
            return partial(self.apply, kind.__name__, kind)
        return getattr(self._look(), name)

    def __copy__(self) -> SymScalar:
        return self

    def __deepcopy__(self, memo: object) -> SymScalar:
        return self


def is_live(value: object) -> bool:
    """Whether `value` is a live scalar; `isinstance` can't tell, for it passes for a number."""
    return issubclass(type(value), SymScalar)


def is_of_sizes(meaning: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Whether a function of ints is one that open sizes have as well."""
    return meaning in _ON_SIZES and all(isinstance(x, WHOLE) for x in args)


def _is_late_array(value: object) -> bool:
    """Whether it is a stand-in that passes for an array by `__class__`."""
    return isinstance(value, np.ndarray) and not issubclass(type(value), np.ndarray)


def is_whole(value: object) -> bool:
    """Whether it is an int of Python's or NumPy's, and no live number."""
    kind = type(value)
    return kind is int or (kind is not np.timedelta64 and issubclass(kind, np.integer))


def is_known_before(value: object) -> bool:
    """Whether it is a live number that Python knows before the native step runs."""
    return type(value) is SymScalar


def live_function(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[..., Any] | None:
    """What to call instead of a function in C that gets live numbers, so that its result is live.

    None where the function may do more than compute, gets no live number, or gives no number.
    """
    if type(function) is _IN_C and function in EXTREMES:
        return _live_extreme(function, args, kwargs)
    if not only_computes(function):
        return None
    leaves, rebuild = flatten((tuple(args), dict(kwargs)))
    live = [leaf for leaf in leaves if is_live(leaf)]
    if not live or any(map(_is_late_array, leaves)):  # NumPy asks such an array itself
        return None
    special = max(live, key=lambda number: len(type(number).__mro__))
    is_plain = not kwargs and len(leaves) == len(args)
    if type(special) is not SymScalar and not (is_plain and function.__module__ == "math"):
        return None
    name = f"{function.__module__}.{function.__name__}".removeprefix("builtins.")

    def meaning(*leaves: Any) -> Any:
        args, kwargs = rebuild([*leaves])
        return function(*args, **kwargs)

    if is_plain:
        if function in (float, int) and special.kind is function:
            return lambda number: number
        return lambda *args: special.apply(name, function, args)
    now = meaning(*map(_now, leaves))
    if not (_is_result(now) or type(now) is bool):
        return None
    inside = ", ".join(
        [*map(_nested_text, args), *(f"{k}={_nested_text(x)}" for k, x in kwargs.items())]
    )
    return lambda *args, **kwargs: special.applied(f"{name}({inside})", meaning, leaves)


def _live_extreme(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[..., Any] | None:
    """What to call instead of `min` or `max` of numbers of one type, some of them live."""
    of_one = len(args) == 1 and type(args[0]) in (list, tuple)
    numbers = (*(args[0] if of_one else args),)  # of a list that the step may change afterwards
    live = [x for x in numbers if is_live(x)]
    kinds = {x.__class__ for x in numbers}
    if kwargs or not live or len(numbers) < 2 or kinds not in ({float}, {int}):
        return None
    special = max(live, key=lambda number: len(type(number).__mro__))
    return lambda *_: special.apply(function.__name__, function, numbers)


def only_computes(function: Any) -> bool:
    """Whether it is a function in C that does nothing but compute its result."""
    if type(function) is _IN_C and function.__module__ == "math":
        return True
    return type(function) in (type, *_OF_NUMPY) and function in ONLY_COMPUTE


def _is_result(value: Any) -> bool:
    return type(value) is float or isinstance(value, np.floating) or is_whole(value)


def _nested_text(value: Any) -> str:
    """An argument in the text of a call, which tells calls apart."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_nested_text, value))}]"
    if isinstance(value, np.ndarray):
        return f"the array at {id(value):#x}"  # which the formula holds
    return _inner_text(value)


def _is_of_kind(value: object, number: SymScalar) -> bool:
    """Whether it is of a subclass of the number's class, whose own operators come first."""
    return type(value) is not type(number) and issubclass(type(value), type(number))


def seen(value: Any) -> Any:
    """A number, or a tuple of some, as Python sees it: the step is specialized on live ones."""
    kind = type(value)
    if kind in _SEEN or (kind is tuple and _SEEN.issuperset(map(type, value))):
        return value
    if isinstance(value, tuple) and any(map(is_live, value)):
        return tuple(map(seen, value))
    if not is_live(value):
        return value
    return operator.index(value) if isinstance(value, int) else value._look()


_SEEN = frozenset((int, float, bool, str, type(None)))  # of the attributes of ops most


def _now(value: Any) -> Any:
    return value.now if is_live(value) else value


def _formula(value: Any) -> Formula:
    if is_live(value):
        formula: Formula = value.formula
        return formula
    return lambda call: value


def _inner_text(value: Any) -> str:
    return str(value.text) if is_live(value) else repr(value)


def short_text(text: str) -> str:
    """A text cut to what a message can show; different texts stay different."""
    if len(text) <= _LONGEST:
        return text
    of_all = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8)
    return f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 3 :]} #{of_all.hexdigest()}"


def _text(value: Any) -> str:
    """A side of an expression, for messages."""
    if not is_live(value):
        return repr(value)
    return f"({value.text})" if " " in value.text else str(value.text)


def _divided(number: Any, divisor: Any) -> Any:
    """`divmod`, whose error has words of its own."""
    try:
        return number // divisor, number % divisor
    except ZeroDivisionError:
        return divmod(_now(number), _now(divisor))


def _is_total(meaning: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Whether a function can't raise, and its result's type follows from the arguments' types."""
    kinds = [arg.__class__ for arg in args]
    if isinstance(meaning, np.ufunc) or meaning in _TOTAL:
        return True
    if meaning in _DIVISIONS:
        return not is_live(args[1])
    if meaning is operator.pow:
        return kinds == [int, int] and not is_live(args[1]) and args[1] >= 0
    return meaning in (round, math.floor, math.ceil, math.trunc) and kinds[0] is int


def _kind(meaning: Callable[..., Any], *args: Any) -> type:
    """The type of what a function gives, or of what it raises."""
    try:
        return type(meaning(*args))
    except Exception as error:
        return type(error)


@dataclass(frozen=True, slots=True)
class SymSource:
    """Where a live number comes from.

    Attributes:
        text: how the user gets at it, such as `opt.param_groups[0]['lr']`.
        now: the number while tracing.
        formula: the number of a call.
        read: returns the number of now; None if it needs the call's arguments.
    """

    text: str
    now: Number
    formula: Formula
    read: Callable[[], Any] | None = None
