"""Values that Python has only when the native step has run: formulas of the step's outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, NoReturn

from lucid.compiler.inputs.scalars import Composite, Formula, is_known_before, is_live
from lucid.ir.classes import isinstance
from lucid.tensor.context import context
from lucid.tensor.tree import fields_of, is_record

Bases = dict[Any, Any]  # a value of the graph, or a live scalar, by a key


class Late:
    """A value that a call has when its native step has run.

    Attributes:
        now: what it is in the call that is traced.
        bases: what it follows from: outputs of the step, which are values of the graph, and live
            scalars, whose numbers are those before the step.
        formula: gives it, of what its bases are in a call, by their keys. It must not raise: the
            step has stored its results by then.
    """

    __slots__ = ()

    now: Any
    bases: Bases
    formula: Formula

    @property
    def early(self) -> Formula:
        """The same where all bases are live scalars: of the numbers that a call finds."""
        formula: Any = self.formula
        numbers = {key: number.formula for key, number in self.bases.items()}
        return lambda call: formula({key: of(call) for key, of in numbers.items()})


class Unseen(Late):
    """A late value that may be kept and handed on; any other use of it is a look at the value."""

    __slots__ = ()

    def _look(self, *_: Any) -> NoReturn:
        raise NotImplementedError

    def handed_to(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What is called instead of a function in C that gets it; None: the function."""
        return self._look()

    @property
    def now(self) -> Any:
        return self._look()

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        return self._look()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._look()


_ARITHMETIC = (
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "divmod"),
    *("lshift", "rshift", "and", "or", "xor"),
)


def looks(cls: type[Unseen], *names: str) -> None:
    """Let what Python asks an object for, by special methods of these names, be a look at it."""
    for name in names:
        setattr(cls, f"__{name}__", lambda self, *_: self._look())


looks(
    Unseen,
    *("iter", "len", "contains", "reversed", "getitem", "setitem", "delitem"),
    *("bool", "hash", "index", "int", "float", "complex", "str", "repr", "format"),
    *("neg", "pos", "abs", "invert", "round", "trunc", "floor", "ceil"),
    *("lt", "le", "gt", "ge", "eq", "ne", *_ARITHMETIC, *(f"r{name}" for name in _ARITHMETIC)),
)


class Applied(Late):
    """The result of a function of values, some of which are late or live numbers."""

    __slots__ = ("_args", "_function", "_kwargs")

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] = {}
    ) -> None:
        self._function = function
        self._args = args
        self._kwargs = kwargs

    @property
    def now(self) -> Any:
        named = {name: now_of(value) for name, value in self._kwargs.items()}
        return self._function(*tuple(map(now_of, self._args)), **named)  # `events.used_in` reads it

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        return bases_of((*self._args, *self._kwargs.values()))

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        function, names, count = self._function, [*self._kwargs], len(self._args)
        formulas = [*map(formula_of, (*self._args, *self._kwargs.values()))]
        if not names:
            return Composite(function, formulas)

        def named(*values: Any) -> Any:
            return function(*values[:count], **dict(zip(names, values[count:], strict=True)))

        return Composite(named, formulas)


def writer(write: Callable[..., str]) -> Any:
    """The method by which `write` asks for the text of a value, one that each call has perhaps."""

    def written(value: Any, *how: str) -> str:
        recorder: Any = context.recorder
        return write(value.now, *how) if recorder is None else recorder.written(value, write, *how)

    return written


def is_late(value: object) -> bool:
    """Whether Python knows a value only after a call's native step."""
    return issubclass(type(value), Late)


def now_of(value: Any) -> Any:
    """What something is in the call that is traced."""
    return value.now if is_late(value) or is_live(value) else value


def early_formula(value: Any) -> Formula | None:
    """The formula of a value by the numbers that a call finds; None: they don't determine it."""
    if is_known_before(value):
        formula: Formula = value.formula
        return formula
    is_early = is_late(value) and value.bases and all(map(is_known_before, value.bases.values()))
    return value.early if is_early else None


def key_of(key: Any) -> Any:
    """A dict's key without late parts: its hash was taken, so it is the same in all calls.

    An object without an `__eq__` of its own stays that object, whatever its attributes are.
    """
    if isinstance(key, tuple):
        return getattr(key, "_make", tuple)(map(key_of, key))
    if type(key) is frozenset:
        return frozenset(map(key_of, key))
    key = now_of(key)
    equals: Any = type(key).__eq__
    if equals is object.__eq__:
        return key
    parts = fields_of(key) if is_record(key) else getattr(key, "__dict__", {})
    moving = {name: part for name, part in parts.items() if is_late(part) or is_live(part)}
    if moving:
        key = copy(key)
        for name, part in moving.items():
            object.__setattr__(key, name, now_of(part))
    return key


def bases_of(parts: Iterable[Any]) -> Bases:
    """The bases of all late values and live numbers among some values."""
    found: Bases = {}
    for part in parts:
        if is_late(part):
            found |= part.bases
        elif is_live(part):
            found[id(part)] = part
    return found


def formula_of(value: Any) -> Formula:
    """What gives a value in a call, of the values of its bases there."""
    if is_late(value):
        formula: Formula = value.formula
        return formula
    if is_live(value):
        key = id(value)
        return lambda known: known[key]
    return lambda known: value
