"""The border between users and the library: wrong arguments, named, and `out=`.

The functions inside of it check what they use; whatever else an argument of a wrong type makes them
raise is explained here, after the fact, so that right calls pay for nothing.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
import os
import sys
from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType, ModuleType
from typing import Any, NoReturn, TypeVar

import numpy as np

from lucid.docstrings import described
from lucid.functions.arguments import NUMPY_NAMES, complete, kind_of, remedy_for, take_numpy_names
from lucid.functions.tensors import Tensor
from lucid.ir import frames
from lucid.ir.errors import (
    ArgumentError,
    LucidError,
    OptionError,
    ShapeError,
    TooLargeError,
    TraceError,
)
from lucid.ir.frames import catching, cause, edge, explain_by, leave
from lucid.ir.inference import NO_MEMORY
from lucid.ir.location import LIBRARY
from lucid.ir.misfits import misfit, with_reduction
from lucid.ir.whose_code import is_users
from lucid.tensor import core
from lucid.tensor.context import context, within
from lucid.tensor.core import LEFT, MISSED
from lucid.tensor.writing import set_data, write_

_TWO = ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift")
_WRITING = {"__setitem__", *(f"__i{name}__" for name in (*_TWO, "pow"))}
_OPERATORS = {  # with two operands; `pow` may get three
    *(f"__{side}{name}__" for name in (*_TWO, "matmul") for side in ("", "r")),
    *(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge", "getitem")),
}
_REFLECTED = {f"__{name}__": f"__r{name}__" for name in (*_TWO, "matmul")} | {
    "__lt__": "__gt__",
    "__gt__": "__lt__",
    "__le__": "__ge__",
    "__ge__": "__le__",
}
_NO_KEYWORDS: dict[str, Any] = {}
_known: dict[FunctionType, Callable[..., Any]] = {}


def at_border(function: FunctionType, module: str, name: str) -> Callable[..., Any]:
    """The function as users get it, as `module.name`; the same one whenever it is asked for."""
    found = _known.get(function)
    if found is None:
        found = _known[function] = _bordered(described(function))
        found.__module__, found.__qualname__ = module, name
    return found


def enter_border(namespace: Any, names: dict[str, Any], module: str, prefix: str = "") -> None:
    """Put functions of the library among `names` behind the border, in a module or a class.

    Behind it a function names wrong arguments in the library's own errors, and writes into `out=`.
    The same function is always the same behind the border, called by its own name if it has that.

    Args:
        namespace: the module or class that gets them as attributes.
        names: functions by name; what isn't the library's is left out.
        module: what their `__module__` becomes.
        prefix: what stands before the name in their `__qualname__`.
    """
    own_first = sorted(names.items(), key=lambda item: item[0] != getattr(item[1], "__name__", ""))
    for name, value in own_first:
        if (
            type(value) is FunctionType
            and value.__module__.startswith(("lucid.functions.", "lucid.random", "lucid.nn.f"))
            and not name.startswith("__")
        ):
            setattr(namespace, name, at_border(value, module, prefix + name))
    for name in _WRITING & names.keys():  # by the names of their functions: `x += 1` is add_
        value = names[name]
        setattr(namespace, name, _known.get(value) or at_border(value, module, prefix + name))
    for name in _OPERATORS & names.keys():
        setattr(namespace, name, _operator(names[name], _REFLECTED.get(name)))


def public_names(names: dict[str, Any], *others: str) -> list[str]:
    """The `__all__` of a namespace that others fill: what is neither private nor a module.

    A type checker knows what `import *` brings, and looks no further where it sees an assignment to
    `__all__`. So it must not see this one: `vars()["__all__"] = public_names(vars())`.
    """
    found = {name for name, value in names.items() if not isinstance(value, ModuleType)}
    return sorted({name for name in found if not name.startswith("_")} | {*others})


def modules_at_border(names: dict[str, Any]) -> None:
    """Put the `forward` of the library's modules among `names` behind the border."""
    classes = [value for value in names.values() if isinstance(value, type)]
    for cls in {base for value in classes for base in value.__mro__}:
        forward = vars(cls).get("forward")
        if type(forward) is FunctionType and cls.__module__.startswith("lucid.nn.modules."):
            owner: Any = cls
            owner.forward = at_border(forward, cls.__module__, f"{cls.__name__}.forward")


def constructors_at_border(names: dict[str, Any], module: str) -> None:
    """Let constructors of a module's classes name wrong arguments."""
    classes = [value for value in names.values() if isinstance(value, type)]
    makers = (next(base for base in kind.__mro__ if "__init__" in vars(base)) for kind in classes)
    for cls in {*makers}:
        construct = vars(cls).get("__init__")
        if type(construct) is FunctionType and cls.__module__.startswith(module):
            owner: Any = cls
            owner.__init__ = _constructing(construct)


def _constructing(construct: FunctionType) -> Callable[..., None]:
    @catching
    @wraps(construct)
    def constructed(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            try:
                construct(self, *args, **kwargs)
            except BUILTIN as error:
                if isinstance(error, LucidError) or not _is_librarys(error):
                    raise
                newer = with_reduction(construct, kwargs)
                if newer is not None:
                    return constructed(self, *args, **newer)
                name = type(self).__name__
                if wrong := misfit(construct, (self, *args), kwargs, name):
                    raise ArgumentError(wrong) from None
                _require_kinds(construct, name, (self, *args), kwargs, error)
                kinds = [kind_of(value) for value in args]
                kinds += [f"{key}={kind_of(value)}" for key, value in kwargs.items()]
                said = _said(error, args, kwargs)
                text = f"{name}: can't be made of ({', '.join(kinds)}): {said}"
                raise _kind_for(error)(text) from cause(error)
        except Exception as error:
            leave(error)
            raise

    return constructed


def explain_calls(namespace: Any, names: dict[str, Any], modules: str | tuple[str, ...]) -> None:
    """Let functions of modules name wrong arguments; their own messages stay as they are."""
    for name, value in list(names.items()):
        public = type(value) is FunctionType and not name.startswith("_")
        if public and value.__module__.startswith(modules):
            setattr(namespace, name, _explained(described(value)))


def module_at_border(name: str) -> None:
    """Put a module's own public functions and classes behind the border, where its errors end."""
    module = sys.modules[name]
    explain_calls(module, vars(module), name)
    constructors_at_border(vars(module), name)
    frames.edge_of_module(name)


@cache
def _explained(function: FunctionType) -> Callable[..., Any]:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    takes_function = first is not None and str(first.annotation).startswith("Callable")

    @catching
    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            if takes_function and args and not callable(args[0]):
                assert first is not None
                raise ArgumentError(
                    f"{function.__name__}: argument '{first.name}' (position 1) must be a "
                    f"function, not {kind_of(args[0])}"
                )
            try:
                if kwargs and not NUMPY_NAMES.keys().isdisjoint(kwargs):
                    take_numpy_names(kwargs, function)
                result = function(*args, **kwargs)
                return edge(result) if takes_function and type(result) is FunctionType else result
            except BUILTIN as error:
                if isinstance(error, LucidError) or not _is_librarys(error):
                    raise
                _explain(function, args, kwargs, error)
        except Exception as error:
            leave(error)
            raise

    return called


# Of modules whose functions look at numbers or at states, and of functions that return no tensors.
_OTHERS = "lucid.random", "lucid.functions.protocols"
_NO_TENSORS = "bool", "int", "float", "DType", "TypeGuard", "Size"


def _is_recorded(function: FunctionType) -> bool:
    """Whether calls of a function may be known by their arguments: it gives tensors, or draws."""
    returned = str(function.__annotations__.get("return"))
    is_draw = "generator" in function.__annotations__
    is_other = function.__name__ == "forward" or function.__module__ in _OTHERS
    return is_draw or not (is_other or returned.startswith(_NO_TENSORS))


C = TypeVar("C", bound=Callable[..., Any])


def recorded(function: C) -> C:
    """A public function inside of the border, of which machine code makes calls that come again."""
    assert isinstance(function, FunctionType)
    if not _is_recorded(function):
        return function

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        made = core.call(function, args, kwargs)
        if made is LEFT:
            return function(*args, **kwargs)
        return core.record_call(function, args, kwargs) if made is MISSED else made

    return called  # type: ignore[return-value]


def _bordered(function: FunctionType) -> Callable[..., Any]:
    is_recorded = _is_recorded(function)

    @catching
    @wraps(function)
    def called(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        try:
            made = core.call(function, args, kwargs) if is_recorded and out is None else LEFT
            if made is not LEFT and made is not MISSED:
                return made
            try:
                if kwargs and not NUMPY_NAMES.keys().isdisjoint(kwargs):
                    take_numpy_names(kwargs, function)
                recorder = context.recorder
                if made is MISSED:
                    result = core.record_call(function, args, kwargs)
                elif recorder is None:
                    result = function(*args, **kwargs)
                else:
                    result = recorder.call(function, *args, **kwargs)
            except LucidError as error:
                if not isinstance(error, ArgumentError) and any(map(_is_array, args)):
                    is_method = "self" in inspect.signature(function).parameters
                    owner = f"{type(args[0]).__name__}." if is_method else ""
                    _require_kinds(function, owner + function.__name__, args, kwargs, error)
                name_operands(error, function, args, kwargs)
                raise
            except BUILTIN as error:
                if not _is_librarys(error):
                    raise
                newer = with_reduction(function, kwargs)
                if newer is not None:
                    return called(*args, out=out, **newer)
                _explain(function, args, kwargs, error)
            return result if out is None else _into(out, result, function.__name__)
        except Exception as error:
            leave(error)
            raise

    return called


@cache  # of one function, one: others compare what they find by identity
def _operator(function: FunctionType, reflected: str | None) -> Callable[..., Any]:
    """An operator, which Python calls with two operands: what it raises says what these are.

    reflected: the method by which an object of the user's answers as the other operand.
    """

    @catching
    @wraps(function)
    def called(self: Any, other: Any) -> Any:
        try:
            made = core.call(function, (self, other), _NO_KEYWORDS)
            if made is not LEFT:
                return made if made is not MISSED else core.record_call(function, (self, other), {})
            recorder = context.recorder
            if recorder is not None:
                return recorder.call(function, self, other)
            return function(self, other)
        except Exception as error:
            if isinstance(error, ArgumentError) and _answers(other, reflected):
                return NotImplemented
            by_user = not sys._getframe(1).f_code.co_filename.startswith(LIBRARY)
            if by_user and isinstance(error, LucidError):
                name_operands(error, function, (self, other), {})
            leave(error)
            raise

    return called


def _answers(operand: Any, method: str | None) -> bool:
    """Whether an operand's class has a reflected method that is the user's own, not inherited."""
    bases = type(operand).__mro__
    return is_users(next((base for base in bases if method in vars(base)), object))


def name_operands(
    error: LucidError, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Let a message say what the function's tensors are and where the user made them.

    One that lists operands already, or comes from code of the user's, stays as it is; so do those
    of traces, which have a form of their own.
    """
    if not isinstance(error, TraceError) and _is_librarys_alone(error):
        name = _SPELLED.get(function.__name__, function.__name__)
        complete(error, "" if name == "forward" else name, _tensors(function, args, kwargs))


# Operators whose functions have no name that users write; modules name themselves.
_SPELLED = {"setitem": "x[index] = value", "getitem": "x[index]"}


def _tensors(
    function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Tensor]:
    """The tensors among the arguments, by the names of the parameters, and a module's weight."""
    arguments = _arguments(function, args, kwargs)
    found: dict[str, Tensor] = {}
    for name, value in arguments.items():
        name = "input" if name == "self" else name
        parts = enumerate(value) if isinstance(value, (tuple, list)) else [(-1, value)]
        for i, part in parts:
            if isinstance(part, Tensor):
                found[name if i < 0 else f"{name}[{i}]"] = part
    weight = getattr(arguments.get("self"), "weight", None)
    if isinstance(weight, Tensor):
        found.setdefault("weight", weight)
    return found


def _arguments(
    function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    try:
        return inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError:  # NumPy's names
        return {**{f"operand {i}": value for i, value in enumerate(args)}, **kwargs}


def _is_librarys_alone(error: Exception) -> bool:
    """Whether no code of the user's ran between the function and the error."""
    place = error.__traceback__
    while place is not None:
        if not place.tb_frame.f_code.co_filename.startswith(LIBRARY):
            return False
        place = place.tb_next
    return True


# What NumPy and Python raise for arguments that nobody has checked.
BUILTIN = (AttributeError, TypeError, ValueError, ArithmeticError, LookupError, MemoryError)
# Files whose functions raise for whoever called them.
_CALLED = (os.path.dirname(np.__file__) + os.sep, contextlib.__file__, collections.__file__)


def _is_librarys(error: Exception) -> bool:
    """Whether the library's own code, or NumPy for it, raised it, not the user's that it calls."""
    place, is_librarys = error.__traceback__, False
    while place is not None:
        file = place.tb_frame.f_code.co_filename
        if not file.startswith(_CALLED):
            is_librarys = file.startswith(LIBRARY)
        place = place.tb_next
    return is_librarys


def _explain(
    function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> NoReturn:
    """Raise `ArgumentError` that says which argument it was, as far as that can be said."""
    name, signature = function.__name__, inspect.signature(function)
    if wrong := misfit(function, args, kwargs, name):
        raise ArgumentError(wrong) from None
    is_method = "self" in signature.bind(*args, **kwargs).arguments
    if is_method:
        name = f"{type(args[0]).__name__}.{name}"
    _require_kinds(function, name, args, kwargs, error)
    if isinstance(error, MemoryError):
        raise TooLargeError(f"{name}: {str(error) or NO_MEMORY}") from cause(error)
    kinds = [kind_of(value) for value in args[is_method:]]
    kinds += [f"{key}={kind_of(value)}" for key, value in kwargs.items()]
    text = f"{name}: can't be called with ({', '.join(kinds)}): {_said(error, args, kwargs)}"
    raise _kind_for(error)(text) from cause(error)


def _said(error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """An error's text, with a live number called what it stands for."""
    text = str(error)
    for value in (*args, *kwargs.values()):
        kind, shown = type(value), value.__class__
        if kind is not shown:
            text = text.replace(f"'{kind.__name__}' object", f"'{shown.__name__}' object")
    return text


def _explain_method(
    function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> None:
    if not isinstance(error, LucidError) and _is_librarys(error):
        _explain(function, args, kwargs, error)


explain_by(_explain_method)


def _is_array(value: Any) -> bool:
    """An array, or what stands for one in a trace."""
    return isinstance(value, np.ndarray)


def _require_kinds(
    function: FunctionType,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: Exception,
) -> None:
    """Raise `ArgumentError` if something else was given for a tensor, a module, an optimizer.

    name: what the user calls, for the message.
    """
    signature, arguments = inspect.signature(function), _arguments(function, args, kwargs)
    position = int("self" not in arguments)
    for parameter, value in arguments.items():
        wanted = signature.parameters.get(parameter)
        kind = None if wanted is None else _class_of(wanted.annotation, function)
        is_several = wanted is not None and wanted.kind is wanted.VAR_POSITIONAL
        for part in value if is_several else [value]:
            if wanted and kind and parameter != "self" and not isinstance(part, kind):
                found = kind_of(part) + (remedy_for(part) if kind is Tensor else "")
                raise ArgumentError(
                    f"{name}: argument '{parameter}' (position {position}) must be "
                    f"{wanted.annotation}, not {found}"
                ) from cause(error)
            position += 1


def _class_of(annotation: Any, function: FunctionType) -> type | None:
    """The library's class that an annotation names alone; None for anything else."""
    found = Tensor if annotation == "Tensor" else function.__globals__.get(str(annotation))
    is_librarys = isinstance(found, type) and found.__module__.startswith("lucid.")
    return found if is_librarys else None


def _kind_for(error: Exception) -> type[LucidError]:
    """Whether an argument has a wrong type, as a text for a number has, or a wrong value.

    There may also be no memory for what it asks for.
    """
    if isinstance(error, MemoryError):
        return TooLargeError
    says_type = str(error).startswith(("could not convert string", "invalid literal for"))
    wrong_type = says_type or isinstance(error, (AttributeError, TypeError))
    return ArgumentError if wrong_type else OptionError


def _into(out: Any, result: Any, name: str) -> Any:
    """Write results into the tensors that the user gave for them, and return these."""
    if isinstance(result, tuple):
        if not isinstance(out, (tuple, list)) or len(out) != len(result):
            raise ArgumentError(f"{name}: out= takes {len(result)} tensors, not {kind_of(out)}")
        written = [_written(one, part, name) for one, part in zip(out, result, strict=True)]
        kind: Any = type(result)
        return kind(*written) if hasattr(kind, "_fields") else tuple(written)
    return _written(out, result, name)


def _written(out: Any, result: Any, name: str) -> Any:
    if not isinstance(out, Tensor) or not isinstance(result, Tensor):
        raise ArgumentError(f"{name}: out= takes a Tensor, not {kind_of(out)}")
    if context.grad_enabled and (out.requires_grad or result.requires_grad):
        raise LucidError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )
    if out._type.shape == result._type.shape:
        return within({"grad_enabled": False}, write_, out, result)
    if out._type.size:
        raise ShapeError(
            f"{name}: out= has shape {list(out._type.shape)}, the result {list(result._type.shape)}"
            "\nhint: give it an empty tensor, which is resized, or one of the result's shape"
        )
    set_data(out, result.to(out.dtype, copy=True))
    return out
