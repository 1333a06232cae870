"""Texts with values in them that the step computes: each call writes its own."""

from __future__ import annotations

import functools
import numbers
import operator
import types
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from lucid.compiler.inputs.scalars import Formula, is_live
from lucid.compiler.recording.growing_lists import ListPart
from lucid.compiler.recording.late_arrays import LateArray, LateObject
from lucid.compiler.recording.late_numbers import Bases, LateScalar, bases_of, formula_of
from lucid.ir.whose_code import is_librarys
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.formatting import format_data, suffixes_of
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import flatten, is_record

if TYPE_CHECKING:
    from lucid.ir.graph import Value

_MOST_SEARCHED = 1024  # values in a container that is handed to a function
WRITERS = ("__str__", "__repr__", "__format__")
TEXTS = (str, repr, format)
_CONTAINERS = (list, tuple, set, frozenset, dict, deque)
_PLAIN = (str, bytes, numbers.Number, types.NoneType, types.EllipsisType, slice, range)
_FIXED = (*_PLAIN, type, types.FunctionType, types.BuiltinFunctionType)


def _writer(write: Callable[..., str]) -> Any:
    """The method of a `LateText` by which `write` asks for its text."""

    def written(self: LateText, *how: str) -> str:
        recorder: Any = context.recorder
        return write(self.now, *how) if recorder is None else recorder.written(self, write, *how)

    return written


class LateText(str):
    """A text that is known after the call. As a `str` it is what the call that is traced gives.

    It may be joined with others, formatted, printed, logged, kept and returned. Where somebody
    looks into it, the call runs op by op, if the step has computed what is in it.

    Attributes:
        formula: the text of a call; bases: as of a number.
    """

    __slots__ = ("bases", "formula")

    bases: Bases
    formula: Formula

    def __new__(cls, now: str, bases: Bases, formula: Formula) -> LateText:
        """`now`: what it is in the call that is traced."""
        text = super().__new__(cls, now)
        text.bases, text.formula = bases, formula
        return text

    @property
    def now(self) -> str:
        return str.__getitem__(self, slice(None)) + ""

    def look(self) -> str:
        """What it is in all calls of the program: numbers that a call finds are guarded."""
        if context.recorder is not None and not all(map(is_live, self.bases.values())):
            recorder: Any = context.recorder
            recorder.exits.op_by_op("it looks into a text with values that the step computes")
        for number in self.bases.values():
            number._look()
        return self.now

    def __add__(self, other: str) -> str:
        return joined("", (self, other))

    def __radd__(self, other: str) -> str:
        return joined("", (other, self))

    def __getitem__(self, index: Any) -> str:
        if isinstance(index, slice):
            return written(operator.getitem, self, index)
        return self.look()[index]

    __str__, __repr__, __format__ = _writer(str), _writer(repr), _writer(format)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return str

    def __copy__(self) -> LateText:
        return self

    def __deepcopy__(self, memo: object) -> LateText:
        return self


def _method(name: str) -> Callable[..., Any]:
    """A method of `str` that gives a text of each call, or else looks into it."""
    function = getattr(str, name)

    def method(self: LateText, *args: Any, **kwargs: Any) -> Any:
        if name in _CHANGES:
            return written(function, self, *args, **kwargs)
        return function(self.look(), *args, **kwargs)

    method.__name__ = name
    return method


_CHANGES = (
    *("capitalize", "casefold", "center", "expandtabs", "ljust", "lower", "lstrip", "removeprefix"),
    *("removesuffix", "replace", "rjust", "rstrip", "strip", "swapcase", "title", "upper", "zfill"),
)
_OWN = {*vars(LateText), "__init__", "__getattribute__", "__doc__", "__setattr__", "__delattr__"}
_OWN |= {"__init_subclass__", "__subclasshook__", "__dir__"}
for _name in set(dir(str)) - _OWN:
    setattr(LateText, _name, _method(_name))


def is_late(value: object) -> bool:
    """Whether a value is one that Python knows only after a call's native step."""
    return type(value) in (LateScalar, LateText, LateArray, LateObject, ListPart)


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
        if isinstance(x, _CONTAINERS) and len(found) < _MOST_SEARCHED:
            found += dict.values(x) if isinstance(x, dict) else x
    return found


def holds(value: Any, is_meant: Callable[[Any], bool]) -> bool:
    """Whether a value, or one of the first in it if it is a container, is meant."""
    return any(map(is_meant, _within(value)))


def settle(error: BaseException) -> None:
    """Let an exception that leaves the trace say what it is about in this call.

    So do those that led to it, and what they have as attributes.
    """
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        found = pending.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        found.args = tuple(map(_settled, found.args))
        vars(found).update({name: _settled(value) for name, value in vars(found).items()})
        pending += (found.__cause__, found.__context__)


def _settled(value: Any) -> Any:
    """A value, and what is in it, as it is in the call that is traced."""
    leaves, rebuild = flatten(value)
    return rebuild([*map(now_of, leaves)]) if any(map(is_number_or_text, leaves)) else value


def now_of(value: Any) -> Any:
    """What a value that only a call knows is in the call that is traced; others are themselves."""
    is_known_later = is_number_or_text(value) or type(value) in (_Parts, _Asked)
    return value.now if is_known_later else value


# ---------------------------------------------------------------------- writing


def written(function: Callable[..., str], /, *args: Any, **kwargs: Any) -> str:
    """What a function gives that writes a text of its arguments, and of what is in them.

    Each call calls it again, with what only a call knows.
    """
    given, named = [*map(_part, args)], {name: _part(value) for name, value in kwargs.items()}
    now = function(*map(now_of, given), **{name: now_of(part) for name, part in named.items()})
    bases = bases_of((*given, *named.values()))
    if not bases:
        return now
    formulas = [*map(formula_of, given)]
    by_name = {name: formula_of(part) for name, part in named.items()}

    def formula(known: Any) -> str:
        found = {name: of(known) for name, of in by_name.items()}
        return function(*[of(known) for of in formulas], **found)

    return LateText(now, bases, formula)


def joined(separator: str, parts: Iterable[str]) -> str:
    """What `separator.join(parts)` gives."""
    return written(str.join, separator, [*parts])


def of_tensor(tensor: Tensor, value: Value, now: Any) -> LateText:
    """What `str` and `repr` give for a tensor of the step."""
    suffixes, dtype = suffixes_of(tensor), tensor.dtype

    def formula(known: Any) -> str:
        return format_data(known[value], dtype, suffixes)

    return LateText(formula({value: now}), {value: value}, formula)


def _part(value: Any) -> Any:
    """A value in a text: what of it only a call knows, and what is to be asked at once."""
    if isinstance(value, Tensor):
        return _shown(value)
    if is_of_call(value) or isinstance(value, _FIXED):
        return value
    asked_now = {id(x) for x in _within(value) if is_written_by_python(x) or is_record(x)}
    leaves, rebuild = flatten(value, asked_now)
    if len(leaves) == 1 and leaves[0] is value:
        return _Asked(value)
    return _Parts([*map(_part, leaves)], rebuild)


class _Parts:
    """What only a call knows, put together of parts.

    Attributes:
        now: it in the call that is traced, as far as it is known when it is put together.
        bases, formula: as of a number; to be asked for when the text has been written.
    """

    def __init__(self, parts: list[Any], together: Callable[[list[Any]], Any]) -> None:
        self._parts = parts
        self._together = together

    @property
    def now(self) -> Any:
        return self._together([*map(now_of, self._parts)])

    @property
    def bases(self) -> Bases:
        return bases_of(self._parts)

    @property
    def formula(self) -> Formula:
        formulas, together = [*map(formula_of, self._parts)], self._together
        return lambda known: together([of(known) for of in formulas])


def asked(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, whose result is that of an object's own code: its text or an attribute."""
    return function(*args)


class _Asked:
    """An object in a text, whose own code says what is seen of it: at once, not after the call.

    Attributes:
        now: what stands for it in the call that is traced; bases, formula: as of parts.
    """

    def __init__(self, value: Any) -> None:
        self._value = value
        self._found: dict[Any, Any] = {}
        self.now = _Answers(self._answer)

    def _answer(self, function: Callable[..., Any], *args: Any) -> Any:
        key = function, *args
        if key not in self._found:
            self._found[key] = _part(asked(function, self._value, *args))
        return now_of(self._found[key])

    @property
    def bases(self) -> Bases:
        return bases_of(self._found.values())

    @property
    def formula(self) -> Formula:
        formulas = {key: formula_of(part) for key, part in self._found.items()}
        return lambda known: _Answers(lambda *key: formulas[key](known))


class _Answers:
    """Stands for an object in a text: what asks for the object's own text gets it from here.

    ask: gives an answer: to a function of the object and further arguments.
    """

    __slots__ = ("_ask",)

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def __str__(self) -> str:
        return str(self._ask(str))

    def __repr__(self) -> str:
        return str(self._ask(repr))

    def __format__(self, specification: str) -> str:
        return str(self._ask(format, specification))

    def __float__(self) -> float:
        return float(self._ask(float))

    def __int__(self) -> int:
        return int(self._ask(int))

    def __getitem__(self, key: Any) -> Any:
        return self._ask(operator.getitem, key)

    def __getattr__(self, name: str) -> Any:
        return self._ask(getattr, name)


def _shown(tensor: Tensor) -> _Parts:
    """A tensor in a text: its own text, and its number where it has one element."""
    is_number = type(tensor) is Tensor and not tensor._type.shape
    has_number = tensor._type.size == 1 and (is_number or tensor.dtype.kind != "bool")
    number = tensor.item() if has_number else None
    return _Parts([str(tensor), number], functools.partial(_Shown, is_number))


class _Shown:
    """The same in one call.

    is_number: whether `format` writes the number in any case, as of a tensor without axes.
    """

    def __init__(self, is_number: bool, found: list[Any]) -> None:
        self._text, self._number = found
        self._is_number = is_number

    def __str__(self) -> str:
        return str(self._text)

    __repr__ = __str__

    def __format__(self, specification: str) -> str:
        is_number = specification or self._is_number
        return format(self._number if is_number else self._text, specification)

    def __float__(self) -> float:
        return float(self._number)
