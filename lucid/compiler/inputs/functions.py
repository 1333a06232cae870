"""Functions that are made anew for each call, such as a `lambda` around a batch, or a `partial`.

Of such a function calls share the code; what it holds is an argument as all others are.
"""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from lucid.compiler.inputs.objects import PLAIN_DATA, SCALARS
from lucid.ir.classes import isinstance
from lucid.tensor.core import TensorCore
from lucid.tensor.tree import flatten, map_tree

Mark = Callable[[Any, str], Any]
MOST_OF_BATCH = 16  # entries: what holds more, such as a data set, is state


class Kept:
    """What among the arguments is state, known by its identity: a list that grows, a Module."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class FunctionContents(tuple[Any, ...]):
    """What a function holds: its variables from outside and its defaults, a partial's arguments.

    Each code has a class of its own, a node of trees as a named tuple is; to rebuild one from other
    contents is to make a function that holds those.

    Attributes:
        changes: whether a step has changed a container that such a function holds; then it's state.
    """

    _fields: ClassVar[tuple[str, ...]]
    _make: ClassVar[Callable[[Sequence[Any]], Any]]
    changes: ClassVar[bool] = False


_kinds: dict[tuple[Any, ...], type[FunctionContents]] = {}  # by code and number of contents


def identity_of_function(value: Any) -> tuple[Any, ...] | None:
    """What identifies a function that each call makes anew; None: it is another function, or none.

    Made anew are bound methods, partials, lambdas and functions within other functions.
    """
    if type(value) is functools.partial:
        keywords = (*value.args, *value.keywords.items(), value.__dict__ or None)
        return identity_of_function(value.func) or id(value.func), *map(_by_value, keywords)
    if type(value) is types.MethodType:
        return id(value.__func__), id(value.__self__)
    if type(value) is not types.FunctionType or not is_remade(value):
        return None
    code = value.__code__
    defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).items())
    cells = map(id, value.__closure__ or ())
    return id(code), id(value.__globals__), *cells, *map(_by_value, defaults)


def is_remade(value: Any) -> bool:
    """Whether it is a partial, or a function that is made within another one, or by `lambda`."""
    if type(value) is not types.FunctionType:
        return type(value) is functools.partial
    code = value.__code__
    is_inner = code.co_flags & inspect.CO_NESTED or code.co_name == "<lambda>"
    return bool(is_inner) and not value.__dict__


def _by_value(default: Any) -> Any:
    if type(default) is tuple:
        return tuple(map(_by_value, default))
    return (type(default), repr(default)) if isinstance(default, SCALARS) else id(default)


def name_of_code(value: Any) -> str:
    """A text that all functions, or partials, made by one line have; "" for other values."""
    if type(value) is functools.partial:
        return f"of {name_of_code(value.func) or getattr(value.func, '__qualname__', '')}"
    if not is_remade(value):
        return ""
    return f"{value.__qualname__} of line {value.__code__.co_firstlineno}"


def with_contents(function: Any, path: str, mark: Mark, around: tuple[int, ...] = ()) -> Any:
    """The contents of a function, marked; the function itself if it isn't known by its contents.

    So it is with one that binds its closure variables, or has attributes of its own. Tensors,
    numbers, texts and batches that it holds are contents; all else is state.
    """
    found = None if id(function) in around else _held(function)
    if found is None:
        return function
    kind, contents = found
    inner = (*around, id(function))

    def marked(value: Any, path: str) -> Any:
        if is_remade(value):
            made = with_contents(value, path, mark, inner)
            return Kept(value) if made is value else made
        if isinstance(value, PLAIN_DATA) or type(value) is np.ndarray:
            return mark(value, path)
        is_batch = (type(value) is tuple or not kind.changes) and _is_batch(value)
        return map_tree(mark, value, path) if is_batch else Kept(value)

    named = zip(kind._fields, contents, strict=True)
    return tuple.__new__(kind, [marked(value, f"{path}.{name}") for name, value in named])


def _is_batch(value: Any) -> bool:
    """Whether all in a container is data, and some of it a tensor; a tuple may be of numbers."""
    if type(value) not in (tuple, list, dict) or len(value) > MOST_OF_BATCH:
        return False
    items = [*value.values()] if type(value) is dict else value
    has_tensors = any(isinstance(x, (TensorCore, np.ndarray)) for x in items)
    is_data = all(isinstance(x, (*PLAIN_DATA, np.ndarray)) for x in items)
    return is_data and (has_tensors or type(value) is tuple)


def _held(function: Any) -> tuple[type[FunctionContents], list[Any]] | None:
    """The class of a function's contents, and these; None where they don't say all of it."""
    if not is_remade(function) or function.__dict__:
        return None
    if type(function) is functools.partial:
        count, keywords = len(function.args), tuple(function.keywords)
        fields = ("func", *map(str, range(count)), *keywords)

        def partial_of(contents: Sequence[Any]) -> Any:
            called, *args = contents
            given = zip(keywords, args[count:], strict=True)
            return functools.partial(called, *args[:count], **dict(given))

        contents = [function.func, *function.args, *function.keywords.values()]
        return _kind_of((count, keywords), fields, partial_of), contents
    code, variables, module = function.__code__, function.__closure__ or (), function.__globals__
    defaults, named = function.__defaults__ or (), function.__kwdefaults__ or {}
    annotations = function.__annotations__
    try:
        contents = [cell.cell_contents for cell in variables]
    except ValueError:  # a variable that isn't bound yet
        return None
    if _binds_variables(code):
        return None
    last = code.co_argcount
    fields = (*code.co_freevars, *code.co_varnames[last - len(defaults) : last], *named)
    keywords = tuple(named)
    first, behind = len(contents), len(contents) + len(defaults)

    def function_of(contents: Sequence[Any]) -> Any:
        cells = tuple(map(types.CellType, contents[:first]))
        given = tuple(contents[first:behind]) or None
        made = types.FunctionType(code, module, code.co_name, given, cells)
        made.__kwdefaults__ = dict(zip(keywords, contents[behind:], strict=True)) or None
        made.__annotations__ = annotations
        return made

    key = (code, id(module), len(defaults), keywords)
    return _kind_of(key, fields, function_of), [*contents, *defaults, *named.values()]


def _kind_of(
    key: tuple[Any, ...], fields: tuple[str, ...], make: Callable[[Sequence[Any]], Any]
) -> type[FunctionContents]:
    kind = _kinds.get(key)
    if kind is None:
        names = {"_fields": fields, "_make": staticmethod(make)}
        kind = _kinds[key] = type("FunctionContents", (FunctionContents,), names)
    return kind


@functools.lru_cache(maxsize=1024)
def _binds_variables(code: types.CodeType) -> bool:
    """Whether a function, or one within it, binds a variable from outside."""
    binds = ("STORE_DEREF", "DELETE_DEREF")
    return any(
        x.opname in binds and x.argval in code.co_freevars for x in dis.get_instructions(code)
    ) or any(_binds_variables(x) for x in code.co_consts if isinstance(x, types.CodeType))


def functions_in(tree: Any, but: Iterable[Any]) -> Iterator[Any]:
    """The functions made anew for each call in a tree of arguments, and those in their closures.

    but: the identities of objects that aren't looked into.
    """
    stack, seen = flatten(tree)[0], {*map(id, but)}
    while stack:
        value = stack.pop()
        found = None if id(value) in seen else _held(value)
        if found is not None:
            seen.add(id(value))
            yield value
            stack += found[1]


def know_as_state(tree: Any) -> None:
    """From now on containers in the closures of these functions are state: a step changes one."""
    for function in functions_in(tree, ()):
        found = _held(function)
        assert found is not None
        found[0].changes = True


def cells_in(tree: Any, but: Iterable[Any]) -> set[int]:
    """The identities of the closure cells of `functions_in(tree, but)`."""
    functions = (x for x in functions_in(tree, but) if type(x) is types.FunctionType)
    return {id(cell) for function in functions for cell in function.__closure__ or ()}
