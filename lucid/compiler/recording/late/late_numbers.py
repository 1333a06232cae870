"""Numbers that the step computes: `loss.item()`, which Python has only after the call."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.late import Applied, Bases, Late, Unseen, bases_of, looks
from lucid.compiler.inputs.scalars import (
    EXTREMES,
    OPS,
    WHOLE,
    Formula,
    Number,
    SymScalar,
    in_order,
    is_live,
    is_of_sizes,
)
from lucid.functions.from_data import tensor
from lucid.ir import ops
from lucid.ir.classes import isinstance
from lucid.ir.extents import Extent, is_open
from lucid.ir.memory import read_only
from lucid.ir.op import Op
from lucid.ir.types import DType, f64, i64, limits_of
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.size import Size

if TYPE_CHECKING:
    from lucid.compiler.inputs.live_numbers import SymNumbers
    from lucid.compiler.recording.exits import Exits
    from lucid.ir.graph import Value
    from lucid.ir.location import Location

_DIVISIONS: dict[Any, Op] = {
    operator.truediv: ops.div,
    operator.floordiv: ops.floor_div,
    operator.mod: ops.remainder,
}
_ON_INTS: dict[Any, Op] = _DIVISIONS | {
    x: OPS[x] for x in (operator.add, operator.sub, operator.mul, operator.neg, abs)
}
# To where Python raises OverflowError.
_GROWING = (math.exp, operator.pow)
_TOTAL = (
    *(operator.add, operator.sub, operator.mul, operator.neg, abs, float, math.fabs, math.copysign),
    *EXTREMES,
    *(math.tanh, math.atan, math.atan2, math.asinh, math.erf, math.erfc, math.exp, math.hypot),
    *(math.degrees, math.radians, math.cbrt),
)
_ROUNDED: dict[Any, Op] = {math.floor: ops.floor, math.ceil: ops.ceil, round: ops.round}
_TO_INT = (int, math.trunc, math.floor, math.ceil, round)


def _is_rounded(number: Any, *digits: Any) -> Any:
    return digits or isinstance(number, int) or abs(number) < 2.0**63


def _is_power(base: Any, exponent: Any) -> Any:
    if is_live(exponent) or not float(exponent).is_integer():
        return base > 0
    return exponent >= 0 or base != 0


def _is_small_power(meaning: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Whether it is one that never overflows, as `0.9**t` by the number of a round."""
    base, exponent = (*args, None)[:2]
    if meaning is not operator.pow or is_live(base) or type(exponent) is not LateScalar:
        return False
    number, more = exponent._shift
    ends = [] if number.bounds is None else [end + more for end in number.bounds]
    try:
        return bool(ends) and base > 0 and all(float(base) ** end < math.inf for end in ends)
    except OverflowError:
        return False


def _has_remainder(number: Any, divisor: Any) -> Any:
    return abs(number) < math.inf and abs(divisor) > 0


def _is_logarithm(number: Any, *base: Any) -> Any:
    return not number <= 0 and all(not x <= 0 and x != 1 for x in base)


# Of which arguments Python computes a function: each call finds out before it stores anything. Of
# all others, a NaN not among them, these raise an error, which the step may handle.
_RAISES: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_DIVISIONS, lambda _, divisor: divisor != 0),
    **dict.fromkeys((math.sin, math.cos, math.tan), lambda number: abs(number) != math.inf),
    **dict.fromkeys((math.log, math.log2, math.log10), _is_logarithm),
    math.log1p: lambda number: not number <= -1,
    math.sqrt: lambda number: not number < 0,
    **dict.fromkeys((math.asin, math.acos), lambda number: not abs(number) > 1),
    math.acosh: lambda number: not number < 1,
    math.atanh: lambda number: not abs(number) >= 1,
}
_DEFINED: dict[Any, Callable[..., Any]] = {
    **_RAISES,
    **dict.fromkeys(_TOTAL, lambda *_: True),
    **dict.fromkeys(_TO_INT, _is_rounded),
    **dict.fromkeys((math.expm1, math.sinh, math.cosh), lambda number: abs(number) < 709),
    math.exp2: lambda number: number < 1023,
    **dict.fromkeys((math.fmod, math.remainder), _has_remainder),
    operator.pow: _is_power,
}


def is_close(a: Any, b: Any, *, rel_tol: Any = 1e-9, abs_tol: Any = 0.0) -> bool:
    """`math.isclose`, by comparisons."""
    if rel_tol < 0 or abs_tol < 0:
        raise ValueError("tolerances must be non-negative")
    apart = abs(b - a)
    return bool(
        a == b or (apart < math.inf and apart <= max(rel_tol * max(abs(a), abs(b)), abs_tol))
    )


_SAME_AS: dict[Any, Callable[..., bool]] = {
    math.isclose: is_close,
    **dict.fromkeys((math.isnan, np.isnan), lambda number: number != number),
    **dict.fromkeys((math.isfinite, np.isfinite), lambda number: abs(number) < math.inf),
    **dict.fromkeys((math.isinf, np.isinf), lambda number: abs(number) == math.inf),
}


class LateScalar(SymScalar, Late):
    """A number whose value a call has when its native step has run.

    Attributes:
        bounds: the least and the greatest number that it is in any round of a loop; None: unknown.

    Arithmetic on it goes on: in the graph, for tensors and comparisons, and as a formula in Python,
    which each call takes for what is kept of it. A comparison is an exit, and so is what could
    raise an error: after the step nothing may. Who needs its digits runs the call op by op.
    """

    __slots__ = ("_args", "_bases", "_find", "_kind", "_seen", "_shift", "bounds", "exits")

    def __init__(
        self,
        kind: type,
        find: Callable[[], Number],
        formula: Formula,
        text: str,
        exits: Exits,
        bases: Bases | None,
        value: Value | None,
        args: Sequence[Any] = (),
    ) -> None:
        super().__init__(kind(0), formula, text, exits.recorder)
        self._kind = kind
        self._find: Callable[[], Number] | None = find
        self._args = args
        self.exits = exits
        self._bases = bases  # None: those of its arguments
        self._seen: int | None = None  # by who has looked: a key in a text is one after the trace
        self._shift: tuple[Any, int] = self, 0  # for an int: that it is another one, and how much
        self.bounds: tuple[Any, Any] | None = None
        if value is not None and value.dtype is i64:
            self._whole = value
        else:
            self._value = value

    @property
    def kind(self) -> type:
        return self._kind

    @property
    def now(self) -> Any:
        """What it is in the call that is traced, which NumPy computes when somebody asks."""
        if self._find is not None:
            for number in in_order(self, lambda x: [y for y in x._late if y._find is not None]):
                number._now, number._find = number._find(), None
        return self._now

    @property
    def _late(self) -> list[LateScalar]:
        """Those of its arguments that are such numbers, of which rounds may have made a chain."""
        return [x for x in self._args if issubclass(type(x), LateScalar)]

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        if self._bases is None:
            chain = in_order(self, lambda x: [y for y in x._late if y._bases is None])
            made = {*map(id, chain)}
            self._bases = bases_of(x for of in chain for x in of._args if id(x) not in made)
        return self._bases

    @property
    def value(self) -> Value:
        """The number as an f64 of the graph."""
        if self._value is None and self._whole is not None:
            with self.recorder.annotated():
                self._value = ops.cast(self._whole, dtype=f64)
        elif self._value is None:
            self._value = self._called(f64)
        return self._value

    @property
    def whole(self) -> Value:
        """An int as an i64 of the graph."""
        if self._whole is None and self._kind is bool and self._value is not None:
            with self.recorder.annotated():
                self._whole = ops.cast(self._value, dtype=i64)
        elif self._whole is None:
            self._whole = self._called(i64)
        return self._whole

    @property
    def ends(self) -> tuple[Any, Any] | None:
        """The least and the greatest number that an int is in any round of a loop, if known."""
        base, added = self._shift
        bounds = None if base is None else base.bounds
        return None if bounds is None else (bounds[0] + added, bounds[1] + added)

    def is_same_as(self, other: LateScalar) -> bool:
        """Whether both are one number, by how it was computed."""
        return self._shift[0] is other._shift[0] and self._shift[1] == other._shift[1]

    def is_within(self, low: int, high: Any) -> bool:
        """Whether an int is known to be one of these in all rounds of a loop."""
        ends = self.ends
        return ends is not None and ends[0] >= low and ends[1] <= high

    @property
    def is_recorded(self) -> bool:
        """Whether it is in the graph by now; else only its formula is, which may do."""
        return self._value is not None or self._whole is not None

    def _called(self, dtype: DType) -> Value:
        """The number by a call of its formula within the native step."""
        values, compute = within_step(self)

        def call(*arrays: np.ndarray) -> list[np.ndarray]:
            return [np.array(compute(arrays), dtype.numpy)]

        results, _ = self.exits.call(self.text, call, values)
        return results[0]

    def _give_up(self, what: str) -> NoReturn:
        self.exits.op_by_op(f"{what} {self.text}, which is known only when the step has run")
        raise AssertionError

    def fits(self, dtype: DType) -> bool:
        """Whether an int is within the range of a dtype."""
        least, greatest = limits_of(dtype)
        return dtype is i64 or bool(least <= self <= greatest)

    # ------------------------------------------------------------------ arithmetic

    def apply(self, name: str, meaning: Callable[..., Any], args: Sequence[Any] = ()) -> Any:
        """A function of numbers; this one alone, or `args`, one of which it is."""
        if meaning in _SAME_AS:
            return _SAME_AS[meaning](*(args or [self]))
        return super().apply(name, meaning, args)

    def applied(self, text: str, meaning: Callable[..., Any], args: Sequence[Any]) -> Any:
        shift = _shifted(meaning, args)
        if shift is not None and shift[0] is None:
            return shift[1]
        found = Applied(meaning, args)
        is_defined: Any = isinstance(meaning, np.ufunc) or meaning in _DEFINED
        if meaning in _DEFINED:
            is_defined = _DEFINED[meaning](*args)
        if meaning is operator.pow or not is_defined:
            kind = type(self._checked(meaning, found))
        elif getattr(meaning, "__module__", None) == "math" and meaning not in _TO_INT:
            kind = float
        else:
            kind = type(meaning(*[arg.__class__(1) if is_live(arg) else arg for arg in args]))
        if (issubclass(kind, np.generic) and kind is not np.float64) or not is_defined:
            return self.recorder.with_arrays(text, meaning, args, {})
        if kind not in (int, float, np.float64):
            self._give_up(f"it computes {text} of")
        grows = meaning in _GROWING and kind is float and not _is_small_power(meaning, args)
        if not grows and any(type(x) is LateScalar and not x.is_recorded for x in args):
            value = None
        elif kind is int:
            value = self._whole_of(meaning, args)
        else:
            value = self._computed(meaning, args, kind)
        of_call = found.formula, text, self.exits, None, value, args
        number = LateScalar(kind, lambda: found.now, *of_call)
        if grows and (value is None or not abs(number) < math.inf):
            self._give_up(f"it computes {text} of")
        if is_of_sizes(meaning, args):
            number.made_of = meaning, args
        if shift is not None:
            number._shift = shift
        return number

    def _checked(self, meaning: Callable[..., Any], found: Applied) -> Any:
        """The result in the call that is traced; raises its error if the exits so far imply one."""
        try:
            return found.now
        except Exception:
            if meaning not in _RAISES:
                self._give_up(f"it takes {getattr(meaning, '__name__', 'a function')} of")
            raise

    def _whole_of(self, meaning: Callable[..., Any], args: Sequence[Any]) -> Value | None:
        """An int by an op of the graph."""
        op, found = EXTREMES.get(meaning) or _ON_INTS.get(meaning), None
        with self.recorder.annotated():
            if meaning in _TO_INT and len(args) == 1 and isinstance(args[0], int):
                found = _side(args[0], i64, self.recorder)
            elif meaning in _TO_INT and len(args) == 1:
                whole: Value = _ROUNDED.get(meaning, ops.trunc)(args[0].value)
                found = ops.cast(whole, dtype=i64)
            elif op is not None and all(isinstance(x, int) and _is_small(x) for x in args):
                sides = [_side(arg, i64, self.recorder) for arg in args]
                found = functools.reduce(op, sides) if meaning in EXTREMES else op(*sides)
        return found

    def _computed(
        self, meaning: Callable[..., Any], args: Sequence[Any], kind: type
    ) -> Value | None:
        if meaning is float:
            return self.value
        if meaning in _DIVISIONS:
            with self.recorder.annotated():
                sides = [_side(arg, f64, self.recorder) for arg in args]
                found: Value = _DIVISIONS[meaning](*sides)
            return found
        return super()._computed(meaning, args, kind)

    # ------------------------------------------------------------------ looking at the value

    def _look(self) -> Any:
        if issubclass(self.kind, int):
            if self._seen is None:
                self._seen = self.exits.ask(self.whole, self.text, is_number=True)
            return self._seen
        return self._give_up("it looks at the digits of")

    def _compare(self, symbol: str, meaning: Callable[..., Any], other: Any) -> Any:
        of_numpy = issubclass(self.kind, np.generic) or isinstance(other, np.generic)
        if isinstance(other, np.generic) and not is_live(other):
            other = other.item()
        both = issubclass(self.kind, int) and isinstance(other, WHOLE)
        answer = self._answer(meaning, other) if both else None
        if answer is not None:
            return answer
        dtype = i64 if both and _is_small(other) else f64
        with self.recorder.annotated():
            sides = [_side(x, dtype, self.recorder) for x in (self, other)]
            condition = OPS[meaning](*sides)
        shown = other.text if is_live(other) else repr(other)
        holds = self.exits.holds(condition, f"{self.text} {symbol} {shown}")
        return np.bool_(holds) if of_numpy else holds

    def _answer(self, meaning: Callable[..., Any], other: Any) -> bool | None:
        """The result of a comparison, if it is the same in all rounds of a loop; None: unknown."""
        one, two = self.ends, getattr(other, "ends", None) if is_live(other) else (other, other)
        if one is None or two is None:
            return None
        less, more = one[1] < two[0], one[0] > two[1]
        if meaning in (operator.eq, operator.ne):
            return meaning is operator.ne if less or more else None
        if meaning in (operator.lt, operator.ge):
            is_so = less or (False if one[0] >= two[1] else None)
        else:
            is_so = more or (False if one[1] <= two[0] else None)
        return None if is_so is None else is_so is (meaning in (operator.lt, operator.gt))

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __float__(self) -> float:
        return float(self._give_up("it looks at the digits of"))

    def __int__(self) -> int:
        return int(self.truncated()._look())


def _shifted(meaning: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, int] | None:
    """A sum or a difference of ints as a base and a constant: `i + 3` is (i, 3).

    Two with the same base differ by a constant, so a range such as `i + 1 : i + 4` has a length.
    None: it has no such form.
    """
    if meaning not in (operator.add, operator.sub):
        return None
    if not all(type(x) is int or (type(x) is LateScalar and x.kind is int) for x in args):
        return None
    parts: list[tuple[Any, int]] = [(None, x) if type(x) is int else x._shift for x in args]
    (one, left), (other, right) = parts
    if meaning is operator.sub:
        return (
            (None if one is other else one, left - right) if one is other or other is None else None
        )
    return (other if one is None else one, left + right) if one is None or other is None else None


def number_by(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    text: str,
    exits: Exits,
) -> SymScalar | None:
    """The number that a function gives of lists that each call has; None: it is none."""
    found = Applied(function, args, kwargs)
    now, bases = found.now, found.bases
    if type(now) not in (int, float, np.float64):
        return None
    if not all(map(is_live, bases.values())):
        return LateScalar(type(now), lambda: now, found.formula, text, exits, bases, None)
    early: Any = found.early
    number = SymScalar(now, early, text, exits.recorder, None if bases else lambda: early(()))
    number.lists = frozenset().union(*[x.lists for x in bases.values()])
    return number


def number_in(table: Sequence[Number], place: LateScalar) -> LateScalar:
    """The number at a place that a call computes, which is within the table."""
    exits, last = place.exits, len(table) - 1
    dtype = i64 if isinstance(table[0], int) else f64
    column = exits.recorder.value_of(tensor([*table], dtype=dtype))
    with exits.recorder.annotated():
        ends = (exits.recorder.graph.constant(end, i64) for end in (0, last))
        found = ops.take(column, ops.clamp(place.whole, *ends), axis=0)
    return exits.number(found, found, (), f"an entry of a table at {place.text}")


class LateList(Unseen):
    """What `tolist()` gives where only a call knows how many numbers, or of more than a few.

    The step may keep it, return it, and add it to lists. Whoever looks at it begins the trace
    again, and there the list has its numbers one by one.

    Args:
        line: where it was made.
    """

    __slots__ = ("_exits", "_line", "_value")

    def __init__(self, exits: Exits, value: Value, line: Location | None) -> None:
        self._exits = exits
        self._value = value
        self._line = line

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return list

    @property
    def now(self) -> Any:
        return self._exits.now_of(self._value).tolist()

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        return {self._value: self._value}

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        read: Any = operator.itemgetter(self._value)
        return lambda known: read(known).tolist()

    def _look(self, *_: Any) -> NoReturn:
        raise RestartTrace("looks into what tolist() gives", "looked_at", [self._line])


looks(LateList, "copy", "deepcopy")


class LateSize(LateScalar):
    """An open size, as the user's code sees it: an int. The library gets its extent.

    Questions about it are assumptions on the extent, and arithmetic on it gives open sizes.

    Attributes:
        before: the same number as Python has it before the step; None: the step finds it.
    """

    __slots__ = ("_extent", "_find_extent", "before")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._extent: Any = None
        self._find_extent: Callable[[], Any] | None = None
        self.before: SymScalar | None = None

    @classmethod
    def known(cls, early: SymScalar, find: Callable[[], Any], exits: Exits) -> LateSize:
        """One that Python has before the step; `find` gives its extent, where that is needed."""
        key = id(early)
        of_call: Any = operator.itemgetter(key)
        now = lambda: early.now  # noqa: E731
        size = cls(int, now, of_call, early.text, exits, {key: early}, None)
        size.before, size.lists, size._find_extent = early, early.lists, find
        return size

    @property
    def extent(self) -> Any:
        """The extent that the library gets for it."""
        if self._extent is None and self._find_extent is not None:
            self._extent, self._find_extent = self._find_extent(), None
        return self._extent

    @extent.setter
    def extent(self, extent: Extent) -> None:
        self._extent = extent

    @property
    def ends(self) -> tuple[Any, Any]:
        return self.extent, self.extent

    @property
    def value(self) -> Value:
        self._whole = self.whole
        return super().value

    @property
    def whole(self) -> Value:
        if self._whole is None and self._extent is not None:
            self._whole = self.recorder.graph.constant(self._extent, i64)
        elif self._whole is None and self.before is not None:
            self._whole = self.before.whole
        assert self._whole is not None
        return self._whole

    def applied(self, text: str, meaning: Callable[..., Any], args: Sequence[Any]) -> Any:
        before: list[Any] = [x.before if type(x) is LateSize else x for x in args]
        found: Any = None
        if not any(x is None or type(x) is LateScalar for x in before):
            found = next(x for x in before if is_live(x)).applied(text, meaning, before)
        if is_of_sizes(meaning, args) and all(map(_is_known, args)):
            divisor = args[-1] if meaning in (operator.floordiv, operator.mod) else 1
            if is_live(found) and self._extent is None:
                return LateSize.known(found, lambda: meaning(*map(extent_of, args)), self.exits)
            if divisor != 0:
                size = self.exits.shown(meaning(*map(extent_of, args)))
                if is_live(found) and type(size) is LateSize and size.before is None:
                    size.before, size.lists = found, found.lists
                return size
        return super().applied(text, meaning, args) if found is None else found

    def _look(self) -> Any:
        if is_open(self.extent):
            self.exits.refuse_given(self.extent)
        return super()._look()

    def _compare(self, symbol: str, meaning: Callable[..., Any], other: Any) -> Any:
        early = other.before if type(other) is LateSize else other
        is_before = type(early) is SymScalar and self.before is not None
        is_size = type(other) is LateSize and not (self._extent is None or other._extent is None)
        if is_before and not is_size:
            return meaning(self.before, early)
        if type(other) in (int, LateSize):
            return meaning(self.extent, extent_of(other))
        return super()._compare(symbol, meaning, other)


def _is_known(number: Any) -> bool:
    return type(number) is LateSize or (isinstance(number, int) and not is_live(number))


def place_of(x: Any) -> Any:
    """Python's number for a whole one of NumPy's that only a call knows; all else as it is."""
    is_number = issubclass(type(x), Late) and x.__class__ is np.int64 and not is_live(x)
    return x.number() if is_number else x


def extent_of(x: Any) -> Any:
    """Sizes as the library knows them: what the user's code passes, with extents in it."""
    x = place_of(x)
    kind = type(x)
    if kind is LateSize:
        return x.extent
    if kind is LateScalar or kind is SymScalar:
        return x.recorder.as_size(x)
    if kind is slice:
        return slice(*map(_bound_of, (x.start, x.stop, x.step)))
    if kind in (tuple, list, Size):
        return (list if kind is list else tuple)(map(extent_of, x))
    return x


def _bound_of(x: Any) -> Any:
    recorder = context.recorder
    if recorder is not None and isinstance(x, TensorCore):
        return recorder.size_of(x)
    return extent_of(x)


def within_step(late: Late) -> tuple[list[Value], Callable[[Sequence[np.ndarray]], Any]]:
    """The operands of a host call that evaluates a late value, and how it does so with these."""
    values, readers = [], []
    bases, formula = late.bases, cast(Any, late.formula)
    for key, base in bases.items():
        kind = base.__class__ if is_live(base) else None
        dtype = i64 if is_live(base) and isinstance(base, WHOLE) else f64
        readers.append((key, kind))
        values.append(base if kind is None else base.recorder.live_value(base, dtype))

    def compute(arrays: Sequence[np.ndarray]) -> Any:
        pairs = zip(readers, arrays, strict=False)  # behind which others may be
        return formula({key: read_only(x) if of is None else of(x[()]) for (key, of), x in pairs})

    return values, compute


def _is_small(number: Any) -> bool:
    """Whether a whole number is one of the graph's, or may be a constant of it."""
    return is_live(number) or abs(number) < 2**62


def _side(arg: Any, dtype: DType, recorder: SymNumbers) -> Value:
    """An operand of an op."""
    if not is_live(arg):
        return recorder.graph.constant(float(arg) if dtype is f64 else int(arg), dtype)
    if dtype is f64:
        value: Value = arg.value
        return value
    return recorder.live_value(arg, i64)
