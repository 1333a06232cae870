"""Texts with values in them that the step computes: each call writes its own."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lucid.compiler.inputs.scalars import Formula, is_live
from lucid.compiler.recording.late_arrays import LateArray, LateObject
from lucid.compiler.recording.late_numbers import Bases, LateScalar, bases_of, formula_of
from lucid.tensor.core import TensorCore
from lucid.tensor.formatting import format_data, suffixes_of
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import flatten

if TYPE_CHECKING:
    from lucid.compiler.recording.exits import Exits
    from lucid.ir.graph import Value


MOST_SEARCHED = 1024  # values in a container that is handed to a function


class LateText(str):
    """A text that is known after the call. As a `str` it is what the call that is traced gives.

    It may be joined with others, formatted, printed, logged, kept and returned. Where somebody
    looks into it, the call runs op by op, if the step has computed what is in it.

    Attributes:
        formula: the text of a call; bases: as of a number.
    """

    __slots__ = ("bases", "exits", "formula")

    bases: Bases
    exits: Exits
    formula: Formula

    def __add__(self, other: str) -> LateText:
        return joined("", (self, other))

    def __radd__(self, other: str) -> LateText:
        return joined("", (other, self))

    def __str__(self) -> str:
        return self

    def __getitem__(self, index: Any) -> str:
        if isinstance(index, slice):
            return formatted(self, operator.getitem, index)
        return self.look()[index]

    def __format__(self, specification: str) -> str:
        return self if not specification else formatted(self, format, specification)

    def __repr__(self) -> str:
        return formatted(self, repr)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return str

    def __copy__(self) -> LateText:
        return self

    def __deepcopy__(self, memo: object) -> LateText:
        return self

    def look(self) -> str:
        """What it is in all calls of the program: numbers that a call finds are guarded."""
        if not all(map(is_live, self.bases.values())):
            self.exits.op_by_op("it looks into a text with values that the step computes")
        for number in self.bases.values():
            number._look()
        return plain(self)


def _looking(name: str) -> Callable[..., Any]:
    look = getattr(str, name)

    def looking(self: LateText, *args: Any, **kwargs: Any) -> Any:
        return look(self.look(), *args, **kwargs)

    looking.__name__ = name
    return looking


def _changing(name: str) -> Callable[..., Any]:
    change = getattr(str, name)

    def changed(self: LateText, *args: Any) -> str:
        return formatted(self, change, *args)

    changed.__name__ = name
    return changed


for _name in (
    *("capitalize", "casefold", "center", "expandtabs", "ljust", "lower", "lstrip", "removeprefix"),
    *("removesuffix", "replace", "rjust", "rstrip", "strip", "swapcase", "title", "upper", "zfill"),
):
    setattr(LateText, _name, _changing(_name))
_ALLOWED = {*vars(LateText), "__class__", "__new__", "__init__", "__getattribute__", "__doc__"}
_ALLOWED |= {"__setattr__", "__delattr__", "__init_subclass__", "__subclasshook__", "__dir__"}
for _name in set(dir(str)) - _ALLOWED:
    setattr(LateText, _name, _looking(_name))


def is_late(value: object) -> bool:
    """Whether a value is one that Python knows only after a call's native step."""
    return type(value) in (LateScalar, LateText, LateArray, LateObject)


def is_of_call(value: object) -> bool:
    """Whether only a call knows it: those, live scalars, and tensors."""
    return is_late(value) or is_live(value) or isinstance(value, TensorCore)


def holds(value: Any, is_meant: Callable[[Any], bool]) -> bool:
    """Whether a value, or one of the first in it if it is a container, is meant."""
    pending = [value]
    for found in pending:  # which grows meanwhile
        if is_meant(found):
            return True
        if isinstance(found, (list, tuple, dict, set)) and len(pending) < MOST_SEARCHED:
            pending += dict.values(found) if isinstance(found, dict) else found
    return False


def _text(now: str, formula: Formula, of: Iterable[Any]) -> LateText:
    parts = [*of]
    text = str.__new__(LateText, now)
    text.formula, text.bases = formula, bases_of(parts)
    known = (LateText, LateArray, LateObject, _LateShown)
    text.exits = next(exits_of(x) for x in parts if is_live(x) or type(x) in known)
    return text


def exits_of(part: Any) -> Exits:
    """Who is told that such a value is looked at."""
    exits: Exits = part.recorder.exits if is_live(part) else part.exits
    return exits


def plain(text: str) -> str:
    """The `str` of the call that is traced."""
    return text if type(text) is str else str.__getitem__(text, slice(None)) + ""


def settle(error: BaseException) -> None:
    """Let an exception that leaves the trace say what it is about in this call."""
    error.args = tuple(plain(x) if type(x) is LateText else now_of(x) for x in error.args)


def formatted(value: Any, write: Callable[..., str], *how: Any) -> LateText:
    """What `format`, `str` or `repr` give for what only a call knows."""
    of = formula_of(value)
    return _text(write(now_of(value), *how), lambda known: write(of(known), *how), (value,))


def joined(separator: str, parts: Sequence[str]) -> LateText:
    """What `separator.join(parts)` gives."""
    every = [separator, *parts]
    formulas = [formula_of(part) for part in every]

    def formula(known: Any) -> str:
        first, *others = [of(known) for of in formulas]
        found: str = first.join(others)
        return found

    now = plain(separator).join([plain(part) for part in parts])
    return _text(now, formula, every)


def filled(template: str, args: Sequence[Any], kwargs: dict[str, Any], percent: bool) -> LateText:
    """What `template.format(*args, **kwargs)` gives, or `template % args`."""
    args, kwargs = [*map(_part, args)], {name: _part(x) for name, x in kwargs.items()}
    own, given = [formula_of(x) for x in args], {name: formula_of(x) for name, x in kwargs.items()}

    def write(values: Sequence[Any], named: dict[str, Any]) -> str:
        if percent:
            return str.__mod__(plain(template), tuple(values))
        return plain(template).format(*values, **named)

    def formula(known: Any) -> str:
        return write([of(known) for of in own], {name: of(known) for name, of in given.items()})

    values = [now_of(x) for x in args]
    now = write(values, {name: now_of(x) for name, x in kwargs.items()})
    return _text(now, formula, (*args, *kwargs.values()))


def written(function: Callable[..., str], *args: Any, **kwargs: Any) -> LateText:
    """What a function makes of containers with such values in them, such as `json.dumps`."""
    leaves, rebuild = flatten((args, kwargs))
    parts = [*map(_part, leaves)]
    formulas = [*map(formula_of, parts)]

    def formula(known: Any) -> str:
        given, named = rebuild([of(known) for of in formulas])
        return function(*given, **named)

    given, named = rebuild([*map(now_of, parts)])
    return _text(function(*given, **named), formula, parts)


class _Shown:
    """A tensor in a text: its own text, and its number where it has one element.

    is_number: whether `format` writes the number in any case, as of a tensor without axes.
    """

    def __init__(self, text: str, number: Any, is_number: bool) -> None:
        self._text = text
        self._number = number
        self._is_number = is_number

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __format__(self, specification: str) -> str:
        is_number = specification or self._is_number
        return format(self._number if is_number else self._text, specification)

    def __float__(self) -> float:
        return float(self._number)


class _LateShown:
    """The same, as long as only a call knows it."""

    __slots__ = ("_is_number", "_number", "_text", "bases", "exits", "formula")

    def __init__(self, tensor: Tensor) -> None:
        text = self._text = str(tensor)
        is_number = self._is_number = type(tensor) is Tensor and not tensor._type.shape
        has_number = tensor._type.size == 1 and (is_number or tensor.dtype.kind != "bool")
        number = self._number = tensor.item() if has_number else None
        assert type(text) is LateText
        self.bases, self.exits = text.bases, text.exits
        if number is not None:
            self.bases = self.bases | bases_of((number,))
        write, read = text.formula, formula_of(number)
        self.formula: Formula = lambda known: _Shown(write(known), read(known), is_number)

    @property
    def now(self) -> _Shown:
        return _Shown(plain(self._text), now_of(self._number), self._is_number)


def _part(value: Any) -> Any:
    """A value in a text: of a tensor of the step what is shown of it."""
    return _LateShown(value) if isinstance(value, Tensor) else value


def now_of(value: Any) -> Any:
    """What a value that only a call knows is in the call that is traced; others are themselves."""
    if is_live(value) or type(value) in (LateArray, LateObject, _LateShown):
        return value.now
    return plain(value) if type(value) is LateText else value


def of_tensor(tensor: Tensor, value: Value, now: Any, exits: Exits) -> LateText:
    """What `str` and `repr` give for a tensor of the step."""
    suffixes, dtype = suffixes_of(tensor), tensor.dtype

    def formula(known: Any) -> str:
        return format_data(known[value], dtype, suffixes)

    text = str.__new__(LateText, format_data(now, dtype, suffixes))
    text.formula, text.bases, text.exits = formula, {value: value}, exits
    return text
