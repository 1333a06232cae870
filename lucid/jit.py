"""TorchScript's decorators, which programs put on their functions: here code stays Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lucid.ir import frames

Code = TypeVar("Code", bound=Callable[..., Any])


def script(obj: Code, *args: Any, **kwargs: Any) -> Code:
    """Return a function or module as it is; `lucid.compile` compiles what calls it."""
    return obj


def export(fn: Code) -> Code:
    """Return the method as it is."""
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Return the function as it is, or a decorator that does."""
    return drop if callable(drop) else export


def unused(fn: Code) -> Code:
    """Return the function as it is."""
    return fn


def is_scripting() -> bool:
    """Return False."""
    return False


def is_tracing() -> bool:
    """Return False: `lucid.compiler.is_compiling` says whether a step is traced."""
    return False


frames.edge_of_module(__name__)
