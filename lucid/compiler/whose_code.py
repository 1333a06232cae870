"""Whose code something is: the library's own, the user's, or another package's."""

from __future__ import annotations

import os
import sys
import types
from typing import Any

from lucid.ir.location import LIBRARY

_STANDARD = os.path.dirname(os.__file__) + os.sep


def is_librarys(kind: type) -> bool:
    """Whether a class is the library's own."""
    return kind.__module__.partition(".")[0] == "lucid"


def is_users(thing: Any) -> bool:
    """Whether a class or function is the user's, not the library's nor an installed package's."""
    code = getattr(thing, "__code__", None)
    if isinstance(code, types.CodeType):
        return is_users_file(code.co_filename)
    module = sys.modules.get(getattr(thing, "__module__", ""))
    if module is None:
        return True
    if module.__name__ == "builtins":
        return False
    return is_users_file(getattr(module, "__file__", None) or "")


def is_users_file(file: str) -> bool:
    """Whether a file is the user's."""
    others = (LIBRARY, _STANDARD, "<frozen ")  # the last one: how Python imports
    return not file.startswith(others) and "site-packages" not in file


def is_installed_or_users_file(file: str) -> bool:
    """Whether a file is neither the library's nor Python's own."""
    is_pythons = file.startswith((_STANDARD, "<frozen ")) and "site-packages" not in file
    return not is_pythons and not file.startswith(LIBRARY)
