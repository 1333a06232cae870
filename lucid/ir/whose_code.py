"""Whose code something is: the library's own, the user's, or another package's."""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Collection
from typing import Any

import numpy as np

from lucid.ir.location import LIBRARY

_STANDARD = os.path.dirname(os.__file__) + os.sep
NUMPY = os.path.dirname(np.__file__) + os.sep
_BESIDE_NUMPY = os.path.dirname(os.path.dirname(np.__file__))
_USED = tuple(os.path.join(_BESIDE_NUMPY, name, "") for name in ("llvmlite", "networkx"))
_PACKAGES = ("site-packages", "dist-packages")
# Modules of the standard library, and of this one, that work on the user's objects for the user's
# code.
_FOLLOWED = tuple(
    os.path.join(_STANDARD, name)
    for name in ("collections", "contextlib.py", "copy.py", "dataclasses.py", "functools.py")
    + ("configparser.py", "reprlib.py", "statistics.py")
) + ("<frozen _collections_abc>",)
_FOLLOWED += tuple(
    os.path.join(LIBRARY, *x) for x in (("utils", "data.py"), ("optim", "plateau.py"))
)
EDGE = os.path.join(LIBRARY, "ir", "frames.py")  # by which users call the library

PRINT = print  # Python's own, where a program replaces `builtins.print` later
LIBRARYS_ATTRIBUTES = ("_compiled_", "_kept_accumulator")  # of users' objects: methods and hooks


def is_librarys(kind: type) -> bool:
    """Whether a class is the library's own."""
    return kind.__module__.partition(".")[0] == "lucid"


def is_as_users(kind: type) -> bool:
    """Whether a class is the library's own, and its objects are known as those of the user's are.

    Its code is followed, and works on the user's objects.
    """
    return kind.__module__ == "lucid.utils.data"


def is_users(thing: Any) -> bool:
    """Whether a class or function is not the library's nor Python's own."""
    code = getattr(thing, "__code__", None)
    if isinstance(code, types.CodeType):
        return is_users_file(code.co_filename)
    name = getattr(thing, "__module__", "")
    if name in sys.builtin_module_names:
        return False
    module = sys.modules.get(name)
    return module is None or is_users_file(getattr(module, "__file__", None) or "")


def is_packages(thing: Any) -> bool:
    """Whether a module, or what one defines, is Python's or of a package that is installed."""
    name = thing.__name__ if isinstance(thing, types.ModuleType) else thing.__module__
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return name in sys.builtin_module_names
    return not is_users_file(file) or any(part in file for part in _PACKAGES)


def is_followed(code: types.CodeType) -> bool:
    """Whether the instructions of some code are followed while a step is traced."""
    return _is_followed(code.co_filename)


def is_called_by_followed(
    frame: types.FrameType, also: Collection[types.CodeType] = frozenset()
) -> bool:
    """Whether the code of a frame works for code that is followed, not for the library's own.

    also: the library's code that calls the user's for the user.
    """
    caller: types.FrameType | None = frame
    while caller is not None and caller.f_code.co_filename.startswith((*_FOLLOWED, EDGE)):
        caller = caller.f_back
    if caller is None:
        return False
    return is_followed(caller.f_code) or caller.f_code in also


def is_unknown(function: Any) -> bool:
    """Whether a Python function is neither followed nor the library's, which tells by itself."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        return False
    return not is_followed(code) and not code.co_filename.startswith(LIBRARY)


@functools.lru_cache(maxsize=4096)
def _is_followed(file: str) -> bool:
    return is_users_file(file) or file.startswith(_FOLLOWED)


def is_interrupt(error: BaseException) -> bool:
    """Whether the handler of a signal has raised an error, such as that of an alarm.

    It says nothing of the code in which Python has called it, whose outcome it isn't: it is raised.
    """
    import signal

    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(x, "__code__", None) or _code_of_call(x) for x in handlers if callable(x)}
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code not in codes:
        place = place.tb_next
    return place is not None


def _code_of_call(handler: Any) -> object:
    """The code that a callable object runs."""
    function = getattr(handler, "func", type(handler).__call__)  # of a `partial`
    return getattr(function, "__code__", None)


def is_defect(error: Exception) -> bool:
    """Whether an error while something is compiled is the compiler's own, and there is another way.

    None is too little memory or stack, of which another call may have more, nor an interrupt.
    """
    return not (isinstance(error, (MemoryError, RecursionError)) or is_interrupt(error))


def is_users_file(file: str) -> bool:
    """Whether a file is the user's, or of a package that was installed."""
    if file.startswith((LIBRARY, NUMPY, *_USED, "<frozen ")):  # the last one: how Python imports
        return False
    is_pythons = file.startswith(_STANDARD) and not any(name in file for name in _PACKAGES)
    return not is_pythons
