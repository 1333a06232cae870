"""Texts with values in them that the step computes: each call writes its own."""

from __future__ import annotations

import functools
import numbers
import operator
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lucid.compiler.inputs.scalars import Formula, is_live
from lucid.compiler.recording.growing_lists import ListPart
from lucid.compiler.recording.late_arrays import LateArray, LateObject
from lucid.compiler.recording.late_numbers import Bases, LateScalar, bases_of, formula_of
from lucid.ir.whose_code import is_librarys
from lucid.tensor.core import TensorCore
from lucid.tensor.formatting import format_data, suffixes_of
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import empty_dict, flatten, items_of

if TYPE_CHECKING:
    from lucid.compiler.recording.exits import Exits
    from lucid.ir.graph import Value


MOST_SEARCHED = 1024  # values in a container that is handed to a function
WRITERS = ("__str__", "__repr__", "__format__")
TEXTS = frozenset({str, repr, format})
NUMBERS: dict[type, tuple[str, ...]] = {
    float: ("__float__", "__index__"),
    int: ("__int__", "__index__", "__trunc__"),
}
_OWN = {*WRITERS, *(name for names in NUMBERS.values() for name in names)}
_CONTAINERS = (list, tuple, set, frozenset, dict, deque)
_PLAIN = (str, bytes, numbers.Number, types.NoneType, types.EllipsisType, slice, range)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


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

    def __add__(self, other: str) -> str:
        return joined("", (self, other))

    def __radd__(self, other: str) -> str:
        return joined("", (other, self))

    def __str__(self) -> str:
        return self.exits.recorder.written(self, str)

    def __getitem__(self, index: Any) -> str:
        if isinstance(index, slice):
            return written(operator.getitem, self, index)
        return self.look()[index]

    def __format__(self, specification: str) -> str:
        return self.exits.recorder.written(self, format, specification)

    def __repr__(self) -> str:
        return self.exits.recorder.written(self, repr)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return str

    def __copy__(self) -> LateText:
        return self

    def __deepcopy__(self, memo: object) -> LateText:
        return self

    @property
    def now(self) -> str:
        """What it is in the call that is traced."""
        return plain(self)

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
        return written(change, self, *args)

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
    return any(type(getattr(kind, name, None)) is types.FunctionType for name in _OWN)


def is_in_text(value: object) -> bool:
    """Whether a text of it may be another one in each call."""
    return is_of_call(value) or is_written_by_python(value)


def holds(value: Any, is_meant: Callable[[Any], bool]) -> bool:
    """Whether a value, or one of the first in it if it is a container, is meant."""
    pending = [value]
    for found in pending:  # which grows meanwhile
        if is_meant(found):
            return True
        if is_plain_error(found):
            found = found.args
        if isinstance(found, _CONTAINERS) and len(pending) < MOST_SEARCHED:
            pending += dict.values(found) if isinstance(found, dict) else found
    return False


def plain(text: str) -> str:
    """The `str` of the call that is traced."""
    return text if type(text) is str else str.__getitem__(text, slice(None)) + ""


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


def written(function: Callable[..., str], /, *args: Any, **kwargs: Any) -> str:
    """What a function gives that writes a text of its arguments, and of what is in them.

    Each call calls it again, with what only a call knows.
    """
    parts = _part((args, kwargs))
    given, named = parts.now
    now = function(*given, **named)
    bases, formula = bases_of((parts,)), formula_of(parts)
    if not bases:
        return now

    def again(known: Any) -> str:
        given, named = formula(known)
        return function(*given, **named)

    return _text(now, again, bases, next(iter(_exits_in(parts))))


def joined(separator: str, parts: Iterable[str]) -> str:
    """What `separator.join(parts)` gives."""
    return written(str.join, separator, [*parts])


def _text(now: str, formula: Formula, bases: Bases, exits: Exits) -> LateText:
    text = str.__new__(LateText, now)
    text.formula, text.bases, text.exits = formula, bases, exits
    return text


class _Parts:
    """A container in a text, taken apart.

    Attributes:
        now: it in the call that is traced, as far as it is known when it is put together.
        bases, formula: as of a number; to be asked for when the text has been written.
    """

    def __init__(self, parts: list[Any], together: Callable[[list[Any]], Any]) -> None:
        self.parts = parts
        self._together = together

    @property
    def now(self) -> Any:
        return self._together([*map(now_of, self.parts)])

    @property
    def bases(self) -> Bases:
        return bases_of(self.parts)

    @property
    def formula(self) -> Formula:
        formulas, together = [*map(formula_of, self.parts)], self._together
        return lambda known: together([of(known) for of in formulas])


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
        return float(self._ask(_number_of, float))

    def __int__(self) -> int:
        return int(self._ask(_number_of, int))

    def __getitem__(self, key: Any) -> Any:
        return self._ask(operator.getitem, key)

    def __getattr__(self, name: str) -> Any:
        return self._ask(getattr, name)


def asked(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, whose result is that of an object's own code: its text or an attribute."""
    return function(*args)


class Asked:
    """An object in a text, whose own code says what is seen of it: at once, not after the call.

    Attributes:
        now: what stands for it in the call that is traced.
        parts: what it has answered, which only a call may know.
    """

    def __init__(self, value: Any) -> None:
        self._value = value
        self._found: dict[Any, Any] = {}
        self.now = _Answers(self.answer)

    def answer(self, function: Callable[..., Any], *args: Any) -> Any:
        key = function, *args
        if key not in self._found:
            self._found[key] = _part(asked(function, self._value, *args))
        return now_of(self._found[key])

    @property
    def parts(self) -> list[Any]:
        return [*self._found.values()]

    @property
    def bases(self) -> Bases:
        return bases_of(self.parts)

    @property
    def formula(self) -> Formula:
        formulas = {key: formula_of(part) for key, part in self._found.items()}
        return lambda known: _Answers(lambda *key: formulas[key](known))


def jsonable(value: Any, default: Callable[[Any], Any] | None) -> Any:
    """What `json.dumps(value, default=default)` writes down, of lists, dicts and plain values."""
    if is_of_call(value) or isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        return {key: jsonable(item, default) for key, item in items_of(value)}
    if isinstance(value, (list, tuple)):
        return [jsonable(item, default) for item in value]
    if default is None:
        return value
    given = default(value) if default not in TEXTS else asked(default, value)
    return jsonable(given, default)


def _number_of(value: Any, kind: type) -> Any:
    return asked_for(kind, value)


def asked_for(kind: type, value: Any) -> Any:
    """What an object of the user's has its own code give for `float(value)` or `int(value)`."""
    for name in NUMBERS[kind]:
        method = getattr(type(value), name, None)
        if method is not None:
            return method(value)
    return kind(value)


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


def _part(value: Any, within: tuple[Any, ...] = ()) -> Any:
    """A value in a text: what of it only a call knows, and what is to be asked at once.

    within: the containers that it is in.
    """
    if isinstance(value, Tensor):
        return _LateShown(value)
    if is_of_call(value) or isinstance(value, (*_PLAIN, type, *_FUNCTIONS)):
        return value
    if is_plain_error(value):
        return _Parts(
            [_part(value.args, (*within, value))], functools.partial(_error_of, type(value))
        )
    if is_written_by_python(value) or not isinstance(value, _CONTAINERS):
        return Asked(value)
    if any(value is x for x in within):
        return value
    inside = *within, value
    if isinstance(value, dict):
        items = [*items_of(value)]
        parts = [_part(item, inside) for _, item in items]
        return _Parts(parts, functools.partial(_dict_of, empty_dict(value), [k for k, _ in items]))
    parts = [_part(item, inside) for item in value]
    if isinstance(value, deque):
        return _Parts(parts, functools.partial(deque, maxlen=value.maxlen))
    return _Parts(
        parts,
        functools.partial(tuple.__new__, type(value)) if isinstance(value, tuple) else type(value),
    )


def is_plain_error(value: object) -> bool:
    """Whether it is an exception whose text is that of its arguments."""
    kind = type(value)
    return isinstance(value, BaseException) and (kind.__str__, kind.__repr__) == (
        BaseException.__str__,
        BaseException.__repr__,
    )


def _error_of(kind: type[BaseException], found: list[Any]) -> BaseException:
    """One with these arguments, for its text."""
    made = BaseException.__new__(kind)
    made.args = found[0]
    return made


def _dict_of(empty: dict[Any, Any], keys: Sequence[Any], found: Sequence[Any]) -> dict[Any, Any]:
    made = empty_dict(empty)
    made.update(zip(keys, found, strict=True))
    return made


def now_of(value: Any) -> Any:
    """What a value that only a call knows is in the call that is traced; others are themselves."""
    return value.now if is_live(value) or type(value) in _LATE else value


def _exits_in(part: Any) -> Iterator[Exits]:
    """Who is told that such values are looked at."""
    if is_live(part):
        yield part.recorder.exits
    elif isinstance(part, (_Parts, Asked)):
        for inner in part.parts:
            yield from _exits_in(inner)
    elif type(part) in _LATE:
        yield part.exits


_LATE = (LateText, LateArray, LateObject, _LateShown, _Parts, Asked)


def of_tensor(tensor: Tensor, value: Value, now: Any, exits: Exits) -> LateText:
    """What `str` and `repr` give for a tensor of the step."""
    suffixes, dtype = suffixes_of(tensor), tensor.dtype

    def formula(known: Any) -> str:
        return format_data(known[value], dtype, suffixes)

    text = str.__new__(LateText, format_data(now, dtype, suffixes))
    text.formula, text.bases, text.exits = formula, {value: value}, exits
    return text
