"""What host code can reach, and may write."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lucid.compiler.guards.reads import instance_dict
from lucid.compiler.whose_code import is_librarys, is_users
from lucid.tensor.core import TensorCore

_CONTAINERS = (list, tuple, set, frozenset, deque)


def reachable(roots: Sequence[tuple[str, Any]], kind: type) -> Iterator[tuple[str, Any]]:
    """Walk through variables of functions, attributes of objects and entries of containers.

    roots: functions and objects, each with the user's expression for it.
    kind: the class of which the objects are wanted.
    """
    pending = deque(roots)
    seen: set[int] = set()
    while pending:
        path, value = pending.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, kind):
            yield path, value
        if not isinstance(value, TensorCore):
            pending += _parts(path, value)


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What is within an object, one step further."""
    if isinstance(value, types.FunctionType):
        if is_users(value):
            yield from _variables(value)
    elif isinstance(value, types.MethodType):
        yield path.rpartition(".")[0] or "self", value.__self__
        yield path, value.__func__
    elif isinstance(value, dict):
        for key, item in list(dict.items(value)):
            yield f"{path}[{key!r}]" if not isinstance(key, TensorCore) else path, item
    elif isinstance(value, _CONTAINERS):
        for i, item in enumerate(value):
            yield f"{path}[{i}]", item
    elif isinstance(value, type):
        for base in filter(is_users, value.__mro__):
            for name, item in list(vars(base).items()):
                yield f"{base.__name__}.{name}", getattr(item, "__func__", item)
    elif is_users(type(value)) or is_librarys(type(value)):
        for name, item in list((instance_dict(value) or {}).items()):
            yield f"{path}.{name}" if path else name, item
        if is_users(type(value)):
            yield "", type(value)


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue
    for code in _nested(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                value = function.__globals__[name]
                if not isinstance(value, types.ModuleType):
                    yield name, value
    yield "", function.__defaults__
    yield "", function.__kwdefaults__


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def calls_of(
    methods: Sequence[Callable[..., Any]], objects: Sequence[Any]
) -> list[tuple[str, Any]]:
    """The roots of the walk from a host call."""
    given = [(f"argument {i}", x) for i, x in enumerate(objects) if not isinstance(x, TensorCore)]
    return [*(("", method) for method in methods), *given]
