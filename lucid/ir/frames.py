"""What a user sees of a traceback: their own lines, without the library's between them.

Each function that users call catches what leaves it, lets `leave` cut the traceback, and raises it
again with a bare `raise`. Python adds no entry for a frame that does so, and none of the library's
is left. `LUCID_TRACEBACK=full` keeps them all.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, TracebackType
from typing import Any, TypeVar, cast

from lucid.docstrings import described
from lucid.ir import environment
from lucid.ir.errors import ArgumentError
from lucid.ir.location import LIBRARY
from lucid.ir.misfits import is_misfit, misfit
from lucid.ir.whose_code import is_users_file

F = TypeVar("F", bound=Callable[..., Any])
Explain = Callable[[Any, tuple[Any, ...], dict[str, Any], Exception], None]
"""Raises an error of the library's for one of Python's about arguments, if it is about those."""


def leave(error: BaseException) -> None:
    """Cut an error's traceback, unless the library itself has called the function that it leaves.

    To be called in that function, in the handler that raises it again.
    """
    if sys._getframe(2).f_code.co_filename.startswith(LIBRARY) or _is_full():
        return
    shown: BaseException | None = error
    seen: set[int] = set()  # a user may have raised two errors from each other
    while shown is not None and id(shown) not in seen:
        seen.add(id(shown))
        shown.__traceback__ = _users(shown.__traceback__)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)


def _is_full() -> bool:
    return environment.TRACEBACK.read() == "full"


def cause(error: BaseException) -> BaseException | None:
    """What an error that says more is raised `from`: the first one is shown in full alone."""
    return error if _is_full() else None


def _users(entry: TracebackType | None) -> TracebackType | None:
    """The entries that aren't the library's, nor of what it has called beside the user's code."""
    kept, librarys = [], False
    while entry is not None:
        file = entry.tb_frame.f_code.co_filename
        librarys = file.startswith(LIBRARY) or (librarys and not is_users_file(file))
        if not librarys:
            kept.append(entry)
        entry = entry.tb_next
    last = None
    for entry in reversed(kept):
        entry.tb_next = last
        last = entry
    return last


# ---------------------------------------------------------------------- functions as users get them

_catching: set[CodeType] = set()  # what lets `leave` cut an error that leaves it


def catching(function: F) -> F:
    """Note that a function catches by itself what leaves it: `edge_of_class` lets it be."""
    _catching.add(cast(Any, function).__code__)
    return function


def edge(function: F, explain: Explain | None = None) -> F:
    """The function as users call it: what leaves it has the traceback that they are to see.

    Of a call that doesn't fit its parameters the error says what was meant.

    Args:
        explain: is given what else the function raises of Python's own errors about arguments.
    """

    @catching
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            try:
                return function(*args, **kwargs)
            except (TypeError, ValueError, AttributeError) as error:
                if is_misfit(error) and (wrong := misfit(function, args, kwargs, _named(function))):
                    raise ArgumentError(wrong) from None
                if explain and not sys._getframe(1).f_code.co_filename.startswith(LIBRARY):
                    explain(function, args, kwargs, error)
                raise
        except Exception as error:
            leave(error)
            raise

    @catching
    @functools.wraps(function)
    def generated(*args: Any, **kwargs: Any) -> Any:
        try:
            return (yield from function(*args, **kwargs))
        except Exception as error:
            leave(error)
            raise

    return cast(F, generated if inspect.isgeneratorfunction(function) else called)


def _named(function: Callable[..., Any]) -> str:
    """Its name, after its class's; of a constructor the class's alone."""
    parts = function.__qualname__.rpartition("<locals>.")[2].split(".")
    return ".".join(parts[-2:]).removesuffix(".__init__")


# Of one function, one: others compare what they find by identity.
_edge = functools.cache(edge)
_explain: list[Explain] = []


def explain_by(explain: Explain) -> None:
    """Let the public methods of classes explain what Python says of their arguments."""
    _explain[:] = [explain]


def _explained(*call: Any) -> None:
    for explain in _explain:
        explain(*call)


def edge_of_class(cls: type) -> type:
    """Let the public methods and the operators of a class be such functions; return the class."""
    for name, value in list(vars(cls).items()):
        if name.startswith("_") and not (name.startswith("__") and name.endswith("__")):
            continue
        found = _edged(value, None if name.startswith("__") else _explained)
        if found is not value:
            setattr(cls, name, found)
    return cls


# Interrupts come where functions begin, and behind calls: there is one fewer before an `__exit__`
# does its work, and none between an `__enter__` and its block.
_BARE = {"__init_subclass__", "__class_getitem__", "__del__", "__enter__", "__exit__"}


def _edged(value: Any, explain: Explain | None = None) -> Any:
    if isinstance(value, (classmethod, staticmethod)):
        return type(value)(_edged(value.__func__))
    is_plain = type(value) is FunctionType and value.__code__.co_filename.startswith(LIBRARY)
    if not is_plain or value.__name__ in _BARE or value.__code__ in _catching:
        return value
    if inspect.iscoroutinefunction(value):
        return value
    return _edge(described(value), explain)


def edge_of_module(name: str, *parts: str) -> None:
    """Let public functions of a module and its parts, and their own classes' methods, be such.

    What their docstrings leave out, they have from that of the module where they are.
    """
    for part in parts:
        edge_of_module(f"{name}.{part}")
    module = sys.modules[name]
    names = vars(module)
    own = [key for key, value in names.items() if getattr(value, "__module__", None) == name]
    bases: dict[type, None] = {}  # which classes have in common
    for key in names.get("__all__", [key for key in own if not key.startswith("_")]):
        value = names.get(key)
        if isinstance(value, type | FunctionType):
            described(value)
        if isinstance(value, type):
            bases |= dict.fromkeys(value.__mro__)
        elif (found := _edged(value)) is not value:
            setattr(module, key, found)
    for cls in bases:
        if cls.__module__.partition(".")[0] == "lucid":
            edge_of_class(cls)
