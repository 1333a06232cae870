"""Texts with values in them that the step computes: each call writes its own."""

from __future__ import annotations

import functools
import math
import numbers
import operator
import re
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lucid.compiler.inputs.late import (
    Applied,
    Bases,
    Late,
    bases_of,
    formula_of,
    is_late,
    now_of,
    writer,
)
from lucid.compiler.inputs.scalars import Formula, is_known_before, is_live
from lucid.compiler.recording.late.late_numbers import LateScalar, number_in
from lucid.compiler.results import pytree
from lucid.ir.classes import isinstance
from lucid.ir.whose_code import is_librarys
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.formatting import format_data, suffixes_of
from lucid.tensor.size import Size, new_size
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import flatten, is_record

if TYPE_CHECKING:
    from lucid.ir.graph import Value

_MOST_SEARCHED = 1024  # values in a container that is handed to a function
_MOST_ENTRIES = 1024  # in a table, which each call compares
_IN_TABLES = {str, int, float}
WRITERS = ("__str__", "__repr__", "__format__")
TEXTS = (str, repr, format)
_CONTAINERS = (list, tuple, set, frozenset, deque)
_PLAIN = (str, bytes, numbers.Number, types.NoneType, types.EllipsisType, slice, range)
_FORMATS = (str.format, str.format_map)
_PERCENT = re.compile(r"%[^%a-zA-Z]*([a-zA-Z])")  # conversions of a template
_FIXED = (*_PLAIN, type, types.FunctionType, types.BuiltinFunctionType)


class LateText(str, Late):
    """A text that is known after the call. As a `str` it is what the call that is traced gives.

    It may be joined with others, formatted, printed, logged, kept and returned. Where somebody
    looks into it, the call runs op by op, if the step has computed what is in it.
    """

    __slots__ = ("bases", "formula", "numbers")

    numbers: Sequence[Any]

    def __new__(
        cls, now: str, bases: Bases, formula: Formula, numbers: Sequence[Any] = ()
    ) -> LateText:
        """`now`: what it is in the call that is traced; `numbers`: all that say it, if ints do."""
        text = super().__new__(cls, now)
        text.bases, text.formula = bases, formula
        text.numbers = numbers or ([*bases.values()] if all(map(is_live, bases.values())) else ())
        return text

    @property
    def now(self) -> str:
        return str.__getitem__(self, slice(None)) + ""

    def _look(self) -> str:
        """What it is in all calls of the program: numbers that a call finds are guarded."""
        if context.recorder is not None and not self.numbers:
            recorder: Any = context.recorder
            recorder.exits.op_by_op("it looks into a text with values that the step computes")
        for number in self.numbers:
            number._look()
        return self.now

    def __add__(self, other: str) -> str:
        return joined("", (self, other))

    def __radd__(self, other: str) -> str:
        return joined("", (other, self))

    def __getitem__(self, index: Any) -> str:
        if isinstance(index, slice):
            return written(operator.getitem, self, index)
        return self._look()[index]

    __str__, __repr__, __format__ = writer(str), writer(repr), writer(format)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return str

    def __copy__(self) -> LateText:
        return self

    def __deepcopy__(self, memo: object) -> LateText:
        return self


def _ask(name: str, asked: Applied, text: LateText, args: Sequence[Any]) -> Any:
    """What is asked of a text that each call knows before, on which all calls agree."""
    number = next(iter(text.bases.values()))
    others = map(repr, map(now_of, args))
    shown = _AS_WRITTEN.get(name, "{0}.{name}({1})")
    number.recorder.guard_formula(
        shown.format(number.text, ", ".join(others), name=name),
        asked.early,
        asked.now,
    )
    return asked.now


def _method(name: str) -> Callable[..., Any]:
    """A method of `str` that gives a text of each call, or else looks into it."""
    function = getattr(str, name)

    def method(self: LateText, *args: Any, **kwargs: Any) -> Any:
        if name in _CHANGES:
            return written(function, self, *args, **kwargs)
        if name in _PARTS and not kwargs and is_early_text(self):
            return next(iter(self.bases.values())).recorder.parts_of(self, function, args)
        if name in _ASKS and not kwargs:
            asked = Applied(function, (self, *args))
            if all(map(is_known_before, asked.bases.values())):
                return _ask(name, asked, self, args)
        args = tuple(x._look() if type(x) is LateText else x for x in args)
        return function(self._look(), *args, **kwargs)

    method.__name__ = name
    return method


_CHANGES = (
    *("capitalize", "casefold", "center", "expandtabs", "ljust", "lower", "lstrip", "removeprefix"),
    *("removesuffix", "replace", "rjust", "rstrip", "strip", "swapcase", "title", "upper", "zfill"),
    *("__mul__", "__rmul__"),
)
_PARTS = ("split", "rsplit", "splitlines")
_AS_WRITTEN = {
    "__eq__": "{0} == {1}",
    "__ne__": "{0} != {1}",
    "__len__": "len({0})",
    "__contains__": "{1} in {0}",
}
_ASKS = {*_AS_WRITTEN, "startswith", "endswith", "count", "find", "isdigit", "isalpha", "isspace"}
_OWN = {*vars(LateText), "__init__", "__getattribute__", "__doc__", "__setattr__", "__delattr__"}
_OWN |= {"__init_subclass__", "__subclasshook__", "__dir__"}
for _name in set(dir(str)) - _OWN:
    setattr(LateText, _name, _method(_name))


def is_early_text(value: object) -> bool:
    """Whether it is made of texts among the arguments, which another trace may have exactly."""
    if type(value) is not LateText:
        return False
    return all(is_known_before(x) and x.lists for x in value.bases.values())


def is_number_or_text(value: object) -> bool:
    """Whether only a call knows a value that is no tensor."""
    return is_late(value) or is_live(value)


def is_of_call(value: object) -> bool:
    """Whether only a call knows it: those, live scalars, and tensors."""
    return is_number_or_text(value) or isinstance(value, TensorCore)


def is_written_by_python(value: object) -> bool:
    """Whether Python code writes the text of an object, with what only a call knows perhaps."""
    kind = type(value)
    if isinstance(value, (*_PLAIN, type, types.ModuleType)) or is_librarys(kind):
        return False
    return any(type(getattr(kind, name, None)) is types.FunctionType for name in WRITERS)


def is_in_text(value: object) -> bool:
    """Whether a text of it may be another one in each call."""
    return is_of_call(value) or is_written_by_python(value)


def _within(value: Any) -> list[Any]:
    """A value, and the first of those in it if it is a container."""
    found = [value]
    for x in found:  # which grows meanwhile
        if not isinstance(x, TensorCore) and not is_late(x) and len(found) < _MOST_SEARCHED:
            found += _held_by(x)
    return found


def _held_by(value: Any) -> Iterable[Any]:
    """What is in a value of which code in C writes a text with all that is in it."""
    if isinstance(value, dict):
        return dict.values(value)
    if isinstance(value, types.SimpleNamespace):
        return vars(value).values()
    if type(value) is slice:
        return value.start, value.stop, value.step
    if isinstance(value, _CONTAINERS):
        return value
    return value.args if is_plain_error(value) else ()


def is_plain_error(value: Any) -> bool:
    """Whether it is an exception of which its arguments are all that is in its text."""
    if not isinstance(value, BaseException) or is_written_by_python(value):
        return False
    return type(value).__str__ in (BaseException.__str__, KeyError.__str__)


def holds(value: Any, is_meant: Callable[[Any], bool]) -> bool:
    """Whether a value, or one of the first in it if it is a container, is meant."""
    return any(map(is_meant, _within(value)))


def settle(error: BaseException) -> None:
    """Let an exception that leaves the trace say what it is about in this call.

    So do those that led to it, and what they have as attributes.
    """
    for found in _with_what_led_to(error):
        found.args = tuple(map(tree_now, found.args))
        vars(found).update({name: tree_now(value) for name, value in vars(found).items()})


def unsettled(error: BaseException) -> Any:
    """What an exception, or one that led to it, still holds though it is of the trace; or None.

    Such are tensors that the step has computed, and numbers in the user's objects.
    """
    pending: list[Any] = []
    for found in _with_what_led_to(error):
        pending += (*found.args, *vars(found).values())
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if is_number_or_text(value) or (isinstance(value, TensorCore) and value._array is None):
            return value
        if id(value) not in seen and pytree.is_node(value):
            seen.add(id(value))
            pending += pytree.flatten(value)[0]
    return None


def _with_what_led_to(error: BaseException) -> list[BaseException]:
    found: dict[int, BaseException] = {}
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is not None and id(one) not in found:
            found[id(one)] = one
            pending += (one.__cause__, one.__context__)
    return [*found.values()]


def tree_now(value: Any) -> Any:
    """A value, and what is in it, as it is in the call that is traced."""
    leaves, rebuild = flatten(value)
    return rebuild([*map(now_of, leaves)]) if any(map(is_number_or_text, leaves)) else value


# ---------------------------------------------------------------------- writing


def written(function: Callable[..., str], /, *args: Any, **kwargs: Any) -> str:
    """What a function gives that writes a text of its arguments, and of what is in them.

    Each call calls it again, with what only a call knows.
    """
    _ask_what_raises(function, args, kwargs)
    parts = Applied(function, [*map(_part, args)], {k: _part(x) for k, x in kwargs.items()})
    now: str = parts.now  # which asks objects, whose answers have bases
    bases = parts.bases
    if not bases:
        return now
    # Where ints say all of it, as of names in a table, whoever looks into it looks at these.
    given = flatten((args, kwargs))[0]
    said_by = [_ints_of(x) for x in given if is_number_or_text(x)]
    is_all = all(said_by) and all(isinstance(x, _PLAIN) for x in given)
    numbers = [number for ints in said_by for number in ints] if is_all else ()
    return LateText(now, bases, parts.formula, numbers)


def _ints_of(late: Any) -> Sequence[Any]:
    """The ints that say all of a number or text that only a call knows; empty: others do."""
    if type(late) is LateText:
        return late.numbers
    return [late] if type(late) is LateScalar and issubclass(late.kind, int) else ()


def entry_of(table: Sequence[Any], number: LateScalar) -> Any:
    """What is at a place that a call computes, which is within the table."""
    if not isinstance(table[0], str):
        return number_in(table, number)
    found = Applied(table.__getitem__, [number])
    return LateText(found.now, found.bases, found.formula, [number])


def table_of(owner: Any) -> tuple[Any, ...] | None:
    """The texts of a sequence, or of a dict with them by their places; or its ints, or floats.

    None: it has others.
    """
    if type(owner) not in (dict, list, tuple, range) or len(owner) > _MOST_ENTRIES:
        return None
    if type(owner) is dict and len(owner) == 1 + max(
        (x for x in owner if type(x) is int), default=-1
    ):
        owner = [owner.get(i) for i in range(len(owner))]
    if type(owner) is dict:
        return None
    kinds = {x.__class__ if is_known_before(x) else type(x) for x in owner}
    fits = kinds != {int} or all(abs(now_of(x)) < 2**63 for x in owner)
    return tuple(owner) if len(kinds) == 1 and kinds <= _IN_TABLES and fits else None


def _ask_what_raises(
    function: Callable[..., str], args: Sequence[Any], kwargs: dict[str, Any]
) -> None:
    """Ask whether numbers can be written so: an infinity as `%d`, an int as a character.

    A call finds it out before it stores anything, since the step may handle the error.
    """
    template = args[1] if function is format and len(args) > 1 else args[0]
    if type(template) is not str:
        return
    percent = _PERCENT.findall(template) if function is str.__mod__ else ()
    is_character = "c" in percent or (
        template.endswith("c") if function is format else function in _FORMATS and "c}" in template
    )
    is_whole = not {"d", "i", "u"}.isdisjoint(percent)
    if is_character or is_whole:
        for number in filter(is_live, _within([*args, *kwargs.values()])):
            if is_character and issubclass(number.kind, int):
                bool(0 <= number <= sys.maxunicode)
            elif is_whole and issubclass(number.kind, float):
                bool(abs(number) < math.inf) or bool(number != number)


def joined(separator: str, parts: Iterable[str]) -> str:
    """What `separator.join(parts)` gives."""
    return written(str.join, separator, [*parts])


def text_of(argument: Any) -> LateText:
    """What stands for a text among the arguments that each call has for itself."""
    key = id(argument)
    return LateText(argument.now, {key: argument}, operator.itemgetter(key))


def of_tensor(tensor: Tensor, value: Value, now: Any) -> LateText:
    """What `str` and `repr` give for a tensor of the step."""
    suffixes, dtype = suffixes_of(tensor), tensor.dtype

    def formula(known: Any) -> str:
        return format_data(known[value], dtype, suffixes)

    return LateText(formula({value: now}), {value: value}, formula)


def _part(value: Any) -> Any:
    """A value in a text: what of it only a call knows, and what is to be asked at once."""
    if isinstance(value, Tensor):
        return _Asked(value)
    if is_of_call(value) or isinstance(value, _FIXED):
        return value
    if type(value) is types.SimpleNamespace:
        return Applied(types.SimpleNamespace, (), {k: _part(x) for k, x in vars(value).items()})
    if is_plain_error(value):
        return Applied(
            functools.partial(BaseException.__new__, type(value)), [*map(_part, value.args)]
        )
    if type(value) is Size:  # whose text Python code writes
        return Applied(lambda *sizes: new_size(Size, sizes), value)
    asked_now = {id(x) for x in _within(value) if is_written_by_python(x) or is_record(x)}
    leaves, rebuild = flatten(value, asked_now)
    if len(leaves) == 1 and leaves[0] is value:
        return _Asked(value)
    return Applied(lambda *parts: rebuild([*parts]), [*map(_part, leaves)])


def asked(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, whose result is that of an object's own code: its text or an attribute."""
    return function(*args)


class _Asked(Late):
    """A tensor or an object in a text, whose own code says at once what is seen of it."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._found: dict[Any, Any] = {}
        self.now = Answers(self._answer)

    def _answer(self, function: Callable[..., Any], *args: Any) -> Any:
        key = function, *args
        if key not in self._found:
            recorder: Any = context.recorder
            if recorder is not None and function not in TEXTS:
                recorder.collector.call(function, (self._value, *args), {})  # as code in C reads it
            is_number = function is float and isinstance(self._value, Tensor)
            found = self._value.item() if is_number else asked(function, self._value, *args)
            if recorder is not None and function not in TEXTS:
                recorder.collector.read_text(found)
            self._found[key] = _part(found)
        return now_of(self._found[key])

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        return bases_of(self._found.values())

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        formulas = {key: formula_of(part) for key, part in self._found.items()}
        return lambda known: Answers(lambda *key: formulas[key](known))


def _asking(function: Callable[..., Any], kind: Callable[[Any], Any] = lambda found: found) -> Any:
    return lambda answers, *args: kind(answers._ask(function, *args))


class Answers:
    """Stands for an object in a text: what asks for the object's own text gets it from here.

    ask: gives an answer: to a function of the object and further arguments.
    """

    __slots__ = ("_ask",)

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    __str__, __repr__, __format__ = _asking(str, str), _asking(repr, str), _asking(format, str)
    __float__, __int__ = _asking(float, float), _asking(int, int)
    __getitem__, __getattr__ = _asking(operator.getitem), _asking(getattr)
