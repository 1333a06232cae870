"""TorchScript's decorators, which programs put on their functions: here code stays Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lucid.ir import frames

Code = TypeVar("Code", bound=Callable[..., Any])


def script(obj: Code, *args: Any, **kwargs: Any) -> Code:
    """Return a function or module as it is; `lucid.compile` compiles what calls it.

    Args:
        obj: the function, class or module.
        *args, **kwargs: TorchScript's options, without a meaning here.

    Example:
        >>> import lucid
        >>> double = lucid.jit.script(lambda x: 2 * x)
        >>> double(lucid.ones(2))
        tensor([2., 2.])
    """
    return obj


def export(fn: Code) -> Code:
    """Return the method as it is: TorchScript's mark of what a module's script has to hold.

    Args:
        fn: the method.

    Example:
        >>> import lucid
        >>> double = lucid.jit.export(lambda x: 2 * x)
        >>> double(lucid.ones(2))
        tensor([2., 2.])
    """
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Return the function as it is, or a decorator that does: TorchScript would leave it to Python.

    Args:
        drop: the function; anything else for a decorator. Default: False.
        **kwargs: TorchScript's options, without a meaning here.

    Example:
        >>> import lucid
        >>> @lucid.jit.ignore(drop=True)
        ... def double(x):
        ...     return 2 * x
        >>> double(lucid.ones(2))
        tensor([2., 2.])
    """
    return drop if callable(drop) else export


def unused(fn: Code) -> Code:
    """Return the function as it is: TorchScript's mark of what a script never calls.

    Args:
        fn: the function.

    Example:
        >>> import lucid
        >>> double = lucid.jit.unused(lambda x: 2 * x)
        >>> double(lucid.ones(2))
        tensor([2., 2.])
    """
    return fn


def is_scripting() -> bool:
    """Return False: nothing is ever turned into TorchScript, in a compiled step or elsewhere.

    Example:
        >>> import lucid
        >>> lucid.jit.is_scripting()
        False
    """
    return False


def is_tracing() -> bool:
    """Return False: `lucid.compiler.is_compiling` says whether a step is traced.

    Example:
        >>> import lucid
        >>> lucid.jit.is_tracing()
        False
    """
    return False


frames.edge_of_module(__name__)
