"""What is called in place of functions that need values which only a call of the step knows.

`float(loss)`, `str(loss)`, `"%.3f" % loss`, `json.dumps({"loss": loss.item()})`: Python wants exact
types there. A function of the same meaning is called instead, whose result is known after the call
as well. Functions in C that would look into such a value make the call run op by op.
"""

from __future__ import annotations

import functools
import json
import pprint
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lucid.compiler.guards.collector import PLAIN, Substitutes
from lucid.compiler.guards.events import without_first
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.recording.late_numbers import LateScalar
from lucid.compiler.recording.texts import (
    LateText,
    filled,
    formatted,
    holds,
    is_late,
    is_of_call,
    joined,
    written,
)
from lucid.compiler.whose_code import is_followed
from lucid.ir.location import LIBRARY
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder

# Functions in C that hand values on, or ask of them what they can answer.
_HAND_ON: frozenset[Any] = frozenset(
    {
        *(isinstance, issubclass, callable, id, getattr, setattr, hasattr, delattr, len, next),
        *(iter, list, tuple, dict, set, frozenset, enumerate, zip, map, filter, reversed, range),
        *(slice, sum, min, max, sorted, any, all, abs, round, pow, divmod, bool, hash, super),
        *(object, complex),
    }
)
_TO_TEXT = (str, repr, ascii, format)
_WRITE = (json.dumps, pprint.pformat)
_MODULES = frozenset(
    {
        *("math", "operator", "_operator", "functools", "_functools", "itertools", "copy"),
        *("collections", "_collections", "dataclasses", "types", "_abc", "numpy", "lucid"),
    }
)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, type)
_OF_CLASSES = (types.MethodDescriptorType, types.WrapperDescriptorType)
_DEBUGGERS = ("set_trace", "Pdb.set_trace", "post_mortem")


class StandInFunctions(Substitutes):
    """Those of one trace."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def called(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What is called instead of a function; None: the function itself."""
        kind = type(function)
        if kind in _OF_CLASSES:
            if not args or not isinstance(args[0], function.__objclass__):
                return None  # which raises an error
            method = function.__get__(args[0], type(args[0]))
            instead = self.called(method, args[1:], kwargs)
            return None if instead is None else without_first(instead)
        if kind not in _FUNCTIONS and not issubclass(kind, type):
            return None
        self._refuse(function, args)
        assert self._recorder.outside is not None
        telling = self._recorder.outside.instead_of(function, kwargs)
        if telling is not None:
            return telling
        if (function is float or function is int) and not kwargs and self._is_number(args):
            return functools.partial(_as_number, function)
        if isinstance(getattr(function, "__self__", None), str):
            return self._of_text(function, args, kwargs)
        given = (*args, *kwargs.values())
        if function in (*_TO_TEXT, *_WRITE) and args:
            return self._to_text(function, args[0]) if holds(given, is_of_call) else None
        if not holds(given, is_late):
            return None
        if function is type and len(args) == 1:
            return lambda value: type(value.now) if is_live(value) else value.__class__
        if not self._may_get(function, args) and not all(map(_is_looked_at, given)):
            self._recorder.exits.op_by_op(
                f"it hands a value that the step computes to {function.__qualname__}(), which "
                "isn't traced"
            )
        return None

    def template(self, template: str, values: Any) -> Any:
        """What stands for the left side of `template % values`."""
        return _Template(self, template) if holds(values, is_of_call) else None

    def joined(self, parts: Sequence[str]) -> str | None:
        """What an f-string gives."""
        return joined("", parts) if any(type(part) is LateText for part in parts) else None

    def refuse_within(self, value: Any) -> None:
        """Give up where a container is written that has values in it which only a call knows."""
        if isinstance(value, (*PLAIN, tuple)) and holds(value, is_of_call):
            self._recorder.exits.op_by_op(
                f"it writes a {type(value).__name__} with values in it that the step computes"
            )

    def _refuse(self, function: Any, args: Sequence[Any]) -> None:
        """Give up where another function, or another mode, is meant."""
        is_debugger = type(function) is types.FunctionType and function.__qualname__ in _DEBUGGERS
        if function is breakpoint or is_debugger:
            self._recorder.exits.op_by_op(
                f"it stops for a debugger, by {function.__qualname__}()",
                "LUCID_EAGER=1 runs all steps op by op",
            )
        if function is sorted and args and isinstance(args[0], TensorCore):
            self._recorder.exits.op_by_op(
                "it sorts the elements of a tensor, by sorted()", "use lucid.sort"
            )

    def _is_number(self, args: Sequence[Any]) -> bool:
        value = args[0] if len(args) == 1 else None
        if isinstance(value, TensorCore):
            return value._type.size == 1 and self._recorder.known(value) is None
        return type(value) is LateScalar

    def _of_text(self, method: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """For a method of a `str`."""
        template, given = method.__self__, (*args, *kwargs.values())
        if method.__name__ == "join" and args:
            is_lazy = not isinstance(args[0], (str, tuple, *PLAIN))
            return functools.partial(_joined, template) if is_lazy or holds(args, is_late) else None
        if method.__name__ == "format" and holds(given, is_of_call):
            for value in given:
                self.refuse_within(value)
            return lambda *args, **kwargs: filled(template, args, kwargs, percent=False)
        return None

    def _to_text(self, function: Any, value: Any) -> Any:
        """For a function that makes a text of a value."""
        if function in _WRITE:
            return functools.partial(written, function)
        if isinstance(value, (*PLAIN, tuple)) and function in (str, repr):
            return functools.partial(written, function)
        self.refuse_within(value)
        is_word = type(value) in (LateText, LateScalar) or is_live(value)
        return functools.partial(_formatted, function) if is_word else None

    def _may_get(self, function: Any, args: Sequence[Any]) -> bool:
        """Whether a function is told what it does with such values, or refuses them by itself."""
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, types.CodeType):
            return is_followed(code) or code.co_filename.startswith((LIBRARY, "<"))
        if function in _HAND_ON:
            return function not in (map, filter) or type(args[0]) not in _OF_CLASSES
        owner = getattr(function, "__self__", None)
        if isinstance(function, type):
            is_python = isinstance(getattr(function, "__init__", None), types.FunctionType)
            if is_python or issubclass(function, (BaseException, tuple)):
                return True
        elif isinstance(owner, (*PLAIN, TensorCore)) or is_live(owner):
            return True
        elif isinstance(owner, type) and function.__name__ == "__new__":
            return True  # of a named tuple
        module = getattr(function, "__module__", None) or getattr(owner, "__name__", "")
        return str(module).partition(".")[0] in _MODULES


class _Template:
    """The left side of `template % values`."""

    def __init__(self, functions: StandInFunctions, template: str) -> None:
        self._functions = functions
        self._template = template

    def __mod__(self, values: Any) -> str:
        given = values if type(values) is tuple else (values,)
        for value in given:
            self._functions.refuse_within(value)
        return filled(self._template, given, {}, percent=True)


def _as_number(kind: type, value: Any) -> Any:
    number = value._number("item()") if isinstance(value, TensorCore) else value
    if not is_live(number):
        return kind(number)
    return number if isinstance(number, kind) else number.apply(kind.__name__, kind)


def _formatted(write: Callable[..., str], value: Any, *how: str) -> str:
    is_same = type(value) is LateText and write in (str, format) and not any(how)
    return value if is_same else formatted(value, write, *how)


def _joined(separator: str, parts: Any) -> str:
    found = [*parts]
    return joined(separator, found) if any(map(is_late, found)) else separator.join(found)


def _is_looked_at(value: Any) -> bool:
    """Whether code in C may see a value as it is now."""
    if type(value) is LateText and all(map(is_live, value.bases.values())):
        value.look()
        return True
    return not holds(value, is_late)
