"""Functions that are made anew for each call, such as a `lambda` around a batch, or a `partial`.

Of such a function calls share the code. Where it is made in one frame, its variables are the same
as well, and it is the same function to them; one with variables of its own is another one.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

from lucid.compiler.inputs.objects import SCALARS


class Kept:
    """What among the arguments is state, known by its identity: a list that grows."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def identity_of_function(value: Any) -> tuple[Any, ...] | None:
    """What functions have in common of which each call makes its own; None: it is none of these.

    Such are methods of an object, partials, and functions made within others, or by `lambda`.
    """
    if type(value) is functools.partial:
        keywords = (*value.args, *value.keywords.items(), value.__dict__ or None)
        return identity_of_function(value.func) or id(value.func), *map(_by_value, keywords)
    if type(value) is types.MethodType:
        return id(value.__func__), id(value.__self__)
    if type(value) is not types.FunctionType or value.__dict__:
        return None
    code = value.__code__
    if not (code.co_flags & inspect.CO_NESTED or code.co_name == "<lambda>"):
        return None
    defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).items())
    cells = map(id, value.__closure__ or ())
    return id(code), id(value.__globals__), *cells, *map(_by_value, defaults)


def _by_value(default: Any) -> Any:
    if type(default) is tuple:
        return tuple(map(_by_value, default))
    return (type(default), repr(default)) if isinstance(default, SCALARS) else id(default)
