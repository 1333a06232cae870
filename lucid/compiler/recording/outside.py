"""What a step does to the world outside, and what it calls with values that only a call knows.

`print`, a logger, a file: the call is taken down while the step is traced, and made at each call of
the step, after its native part, with that call's values. `float(loss)`, `str(loss)`,
`"%.3f" % loss`: a function of the same meaning is called instead.
"""

from __future__ import annotations

import dis
import functools
import logging
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lucid.compiler.guards.collector import PLAIN, Substitutes
from lucid.compiler.guards.events import without_first
from lucid.compiler.guards.reads import is_hashable
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.recording.late_arrays import LateArray
from lucid.compiler.recording.late_numbers import LateScalar
from lucid.compiler.recording.texts import LateText, filled, formatted, is_late, joined
from lucid.compiler.whose_code import is_followed
from lucid.ir.location import LIBRARY
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.compiler.guards.calls import GuardCollector
    from lucid.compiler.recording.recorder import Recorder

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
}
# Methods by which objects tell the world something, by the class that has them.
_TELL: dict[str, frozenset[str]] = {
    "_io._IOBase": frozenset({"write", "writelines", "flush"}),
    "_csv.writer": frozenset({"writerow", "writerows"}),
    "csv.DictWriter": frozenset({"writerow", "writerows", "writeheader"}),
    "queue.Queue": frozenset({"put", "put_nowait"}),
    "_queue.SimpleQueue": frozenset({"put", "put_nowait"}),
    "tqdm.std.tqdm": frozenset(
        {
            *("update", "set_postfix", "set_postfix_str", "set_description", "set_description_str"),
            *("write", "refresh", "display", "clear"),
        }
    ),
}
_WRITERS = "SummaryWriter"  # of whichever package: its `add_scalar` and the like
# Functions in C that hand values on, or ask of them what they can answer.
_HAND_ON: set[Any] = {
    *(isinstance, issubclass, callable, id, getattr, setattr, hasattr, delattr, len, next, iter),
    *(list, tuple, dict, set, frozenset, enumerate, zip, map, filter, reversed, range, slice, sum),
    *(min, max, sorted, any, all, abs, round, pow, divmod, bool, hash, super, object, complex),
}
MOST_SEARCHED = 256  # entries of a container that is handed to a function
_TO_TEXT = (str, repr, ascii, format)
_MODULES = frozenset({"math", "operator", "_operator", "functools", "itertools", "copy", "lucid"})
_MODULES |= {"collections", "_collections", "_functools", "dataclasses", "types", "_abc", "numpy"}


@dataclass(slots=True)
class Said:
    """A call that is made after each call of the step: its function and its arguments."""

    function: Callable[..., Any]
    args: Any
    kwargs: Any


class Outside(Substitutes):
    """The stand-ins of one trace.

    Attributes:
        said: what is called after each call of the step, in the program's order.
    """

    def __init__(self, recorder: Recorder, collector: GuardCollector) -> None:
        self._recorder = recorder
        self._collector = collector
        self.said: list[Said] = []

    def called(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What is called instead of a function; None: the function itself."""
        if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
            if not isinstance(args[0], function.__objclass__):
                return None  # which raises an error
            method = function.__get__(args[0], type(args[0]))
            instead = self.called(method, args[1:], kwargs)
            return None if instead is None else without_first(instead)
        telling = self._telling(function, args)
        if telling is not None:
            return functools.partial(self._print if telling is print else self._say, telling)
        if not is_hashable(function):
            return None
        if (function is float or function is int) and not kwargs and self._is_number(args):
            return self._as_number(function)
        of_call = any(_holds(value, _is_of_call) for value in (*args, *kwargs.values()))
        if not of_call or not (_writes(function) or any(map(_has_late, (*args, *kwargs.values())))):
            return None
        if function in _TO_TEXT and args:
            self.refuse_within(args[0])
            if type(args[0]) is LateArray:
                return None
            is_word = is_late(args[0]) or is_live(args[0])
            return functools.partial(_written, function) if is_word else None
        if function is type and len(args) == 1:
            return lambda value: type(value.now) if is_live(value) else value.__class__
        if isinstance(getattr(function, "__self__", None), str):
            return self._of_text(function, args, kwargs)
        if not self._may_get(function) and not all(map(_is_looked_at, (*args, *kwargs.values()))):
            name = getattr(function, "__qualname__", type(function).__name__)
            self._recorder.exits.op_by_op(
                f"it hands a value that the step computes to {name}(), which isn't traced"
            )
        return None

    def template(self, template: str, values: Any) -> Any:
        """What stands for the left side of `template % values`."""
        given = values if type(values) is tuple else (values,)
        if any(_holds(value, _is_of_call) for value in given):
            return _Template(self, template)
        return None

    def joined(self, parts: Sequence[str]) -> str | None:
        """What an f-string gives."""
        return joined("", parts) if any(type(part) is LateText for part in parts) else None

    # ------------------------------------------------------------------ numbers and texts

    def refuse_within(self, value: Any) -> None:
        """Give up where a container is written that has values in it which only a call knows."""
        if isinstance(value, (*PLAIN, tuple)) and _holds(value, _is_of_call):
            self._recorder.exits.op_by_op(
                f"it writes a {type(value).__name__} with values in it that the step computes"
            )

    def _is_number(self, args: Sequence[Any]) -> bool:
        value = args[0] if len(args) == 1 else None
        if isinstance(value, TensorCore):
            return value._type.size == 1 and self._recorder.known(value) is None
        return type(value) is LateScalar

    def _as_number(self, kind: type) -> Callable[[Any], Any]:
        def convert(value: Any) -> Any:
            number = value._number("item()") if isinstance(value, TensorCore) else value
            if not is_live(number):
                return kind(number)
            return number if isinstance(number, kind) else number.apply(kind.__name__, kind)

        return convert

    def _of_text(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A method of a text."""
        template, name = function.__self__, function.__name__
        if name == "format":
            for value in (*args, *kwargs.values()):
                self.refuse_within(value)
            return lambda *args, **kwargs: filled(template, args, kwargs, percent=False)
        if name == "join" and len(args) == 1 and isinstance(args[0], (list, tuple)):
            return lambda parts: joined(template, parts)
        return None

    def _may_get(self, function: Any) -> bool:
        """Whether a function is told what it does with such values, or refuses them by itself."""
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, types.CodeType):
            return is_followed(code) or code.co_filename.startswith((LIBRARY, "<"))
        if function in _HAND_ON or not isinstance(function, (types.BuiltinFunctionType, type)):
            return True
        owner = getattr(function, "__self__", None)
        if isinstance(function, type):
            is_python = isinstance(getattr(function, "__init__", None), types.FunctionType)
            if is_python or issubclass(function, (BaseException, tuple)):
                return True
        elif isinstance(owner, (*PLAIN, str, TensorCore)) or is_live(owner):
            return True
        module = getattr(function, "__module__", None) or getattr(owner, "__name__", "")
        return str(module).partition(".")[0] in _MODULES

    # ------------------------------------------------------------------ telling the world

    def _telling(self, function: Any, args: Sequence[Any]) -> Callable[..., Any] | None:
        """What does later what a call would do now to the world outside; None: it does nothing."""
        if function is print:
            return print
        if function is warnings.warn:
            return self._warning()
        owner = getattr(function, "__self__", None)
        name = getattr(function, "__name__", "")
        if owner is None or isinstance(owner, (types.ModuleType, *PLAIN, TensorCore)):
            return None
        if isinstance(owner, logging.Logger):
            return self._logging(owner, name) if name == "log" or name in _LEVELS else None
        names = {f"{base.__module__}.{base.__qualname__}" for base in type(owner).__mro__}
        tells = any(name in _TELL.get(base, ()) for base in names)
        is_writer = any(base.endswith(_WRITERS) for base in names)
        tells = tells or (is_writer and name.startswith("add_"))
        if not tells or not self._collector.was_there(owner) or not self._is_discarded():
            return None
        found: Callable[..., Any] = function
        return found

    def _is_discarded(self) -> bool:
        """Whether nobody looks at what the call that is about to be made returns."""
        at = self._collector.at
        return at is not None and at[1] in _discarded(at[0])

    def _logging(self, logger: logging.Logger, name: str) -> Callable[..., Any]:
        frame = self._frame()
        code, line = frame.f_code, frame.f_lineno

        def log(*args: Any, **kwargs: Any) -> None:
            level, message, *values = args if name == "log" else (_LEVELS[name], *args)
            if logger.isEnabledFor(level):
                failure = kwargs.get("exc_info") or None
                made = (code.co_filename, line, message, tuple(values), failure, code.co_name)
                logger.handle(
                    logger.makeRecord(logger.name, level, *made, kwargs.get("extra"), None)
                )

        return log

    def _warning(self) -> Callable[..., Any]:
        frame = self._frame()
        file, line, names = frame.f_code.co_filename, frame.f_lineno, frame.f_globals

        def warn(message: Any, category: Any = UserWarning, *_: Any, **kwargs: Any) -> None:
            category = type(message) if isinstance(message, Warning) else category
            known = names.setdefault("__warningregistry__", {})
            module = names.get("__name__")
            kind = kwargs.get("category", category)
            warnings.warn_explicit(message, kind, file, line, module, known)

        return warn

    def _frame(self) -> types.FrameType:
        """The user's frame that is about to call."""
        assert self._collector.at is not None
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not self._collector.at[0]:
            frame = frame.f_back
        assert frame is not None
        return frame

    def _say(self, telling: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.said.append(Said(telling, args, kwargs))

    def _print(self, telling: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """The texts are those of now: what is printed may change later in the step."""
        self.said.append(Said(telling, [*map(self._shown, args)], kwargs))

    def _shown(self, value: Any) -> Any:
        if isinstance(value, str) or is_live(value):
            return value
        is_container = isinstance(value, (*PLAIN, tuple))
        if is_container and _holds(value, _is_of_call):
            return value
        self._collector.show(value)
        return str(value)


class _Template:
    """The left side of `template % values`."""

    def __init__(self, outside: Outside, template: str) -> None:
        self._outside = outside
        self._template = template

    def __mod__(self, values: Any) -> str:
        given = values if type(values) is tuple else (values,)
        for value in given:
            self._outside.refuse_within(value)
        return filled(self._template, given, {}, percent=True)


def _has_late(value: Any) -> bool:
    """Whether there is such a value in it."""
    return _holds(value, is_late)


def _holds(value: Any, is_meant: Callable[[Any], bool], depth: int = 3) -> bool:
    if is_meant(value):
        return True
    if depth and isinstance(value, (list, tuple, dict, set)) and len(value) <= MOST_SEARCHED:
        values = dict.values(value) if isinstance(value, dict) else value
        return any(_holds(item, is_meant, depth - 1) for item in values)
    return False


def _is_of_call(value: Any) -> bool:
    return is_late(value) or is_live(value) or isinstance(value, TensorCore)


def _written(write: Callable[..., str], value: Any, *how: str) -> str:
    is_same = type(value) is LateText and write in (str, format) and not any(how)
    return value if is_same else formatted(value, write, *how)


def _is_looked_at(value: Any) -> bool:
    """Whether code in C may see a value as it is now."""
    if type(value) is LateText and all(map(is_live, value.bases.values())):
        value.look()
        return True
    return not _has_late(value)


def _writes(function: Any) -> bool:
    """Whether it makes a text of what it gets."""
    is_method = isinstance(getattr(function, "__self__", None), str)
    return function in _TO_TEXT or (is_method and function.__name__ == "format")


@functools.lru_cache(maxsize=1024)
def _discarded(code: types.CodeType) -> frozenset[int]:
    """The calls whose result is dropped, by their offset."""
    found: list[int] = []
    calls: list[int] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("PRECALL", "CALL", "CALL_KW", "CALL_FUNCTION_EX"):
            calls.append(instruction.offset)
        else:
            found += calls if instruction.opname == "POP_TOP" else ()
            calls = []
    return frozenset(found)
