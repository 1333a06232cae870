"""The arguments of `Function.apply`: each at its position, whichever way it was passed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lucid.ir.errors import ArgumentError

if TYPE_CHECKING:
    from lucid.autograd.function import Function


@functools.lru_cache(maxsize=4096)
def _signature(forward: Callable[..., Any], two_methods: bool) -> inspect.Signature:
    signature = inspect.signature(forward)
    if two_methods:
        return signature
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        parameters = parameters[1:]
    return signature.replace(parameters=parameters)


@functools.lru_cache(maxsize=4096)
def _count(forward: Callable[..., Any]) -> int:
    """How many arguments by position are all that a forward of two methods takes; -1: it varies."""
    kinds = [parameter.kind for parameter in _signature(forward, True).parameters.values()]
    known = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return len(kinds) if all(kind in known for kind in kinds) else -1


def bind_arguments(
    cls: type[Function], two_methods: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by position, with keywords put in their places, and keyword-only arguments.

    In the two-method style defaults count as arguments, in the one-method style those that come
    after the last argument passed don't.
    """
    if not kwargs and (not two_methods or len(args) == _count(cls.forward)):
        return args, {}
    signature = _signature(cls.forward, two_methods)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(f"{cls.__name__}.apply: {error}") from None
    if two_methods:
        bound.apply_defaults()
    elif kwargs:
        _fill_gaps(bound, signature)
    keyword_only = {
        name: bound.kwargs[name]
        for name, parameter in signature.parameters.items()
        if name in bound.kwargs and parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    extra = {k: v for k, v in bound.kwargs.items() if k not in keyword_only}
    if extra and not any(
        p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values()
    ):
        raise ArgumentError(f"{cls.__name__}.apply: unexpected keyword arguments {sorted(extra)}")
    return bound.args, {**keyword_only, **extra}


def _fill_gaps(bound: inspect.BoundArguments, signature: inspect.Signature) -> None:
    """Bind the defaults that stand before the last argument passed."""
    positional = [
        name
        for name, p in signature.parameters.items()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    passed = [i for i, name in enumerate(positional) if name in bound.arguments]
    for name in positional[: max(passed, default=-1) + 1]:
        if name not in bound.arguments:
            bound.arguments[name] = signature.parameters[name].default
    order = list(signature.parameters)
    bound.arguments = dict(sorted(bound.arguments.items(), key=lambda kv: order.index(kv[0])))
