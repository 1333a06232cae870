"""TorchScript's decorators, which programs put on their functions: here code stays Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lucid.choices import check_flag, check_flags, check_kind
from lucid.ir import frames
from lucid.ir.errors import ArgumentError

Code = TypeVar("Code", bound=Callable[..., Any])


def script(obj: Code, optimize: bool | None = None, *, example_inputs: Any = None) -> Code:
    """Return a function or module as it is; `lucid.compile` compiles what calls it.

    Args:
        obj: the function, class or module.
        optimize: True, False or None; nothing is turned into TorchScript.
        example_inputs: arguments, as a list or a dict, whose types TorchScript would take over;
            here any call may have others.

    Raises:
        ArgumentError: an argument of another type.

    >>> double = lucid.jit.script(lambda x: 2 * x)
    >>> double(lucid.ones(2))
    tensor([2., 2.])
    """
    if not callable(obj):
        raise ArgumentError(f"jit.script: a function, class or module is needed, not {obj!r}")
    check_flags("jit.script", optimize=optimize)
    check_kind(example_inputs, (list, tuple, dict), "example_inputs", "jit.script")
    return obj


def export(fn: Code) -> Code:
    """Return the method as it is: TorchScript's mark of what a module's script has to hold.

    Args:
        fn: the method.

    >>> double = lucid.jit.export(lambda x: 2 * x)
    >>> double(lucid.ones(2))
    tensor([2., 2.])
    """
    return fn


def ignore(drop: Any = False, *, drop_on_export: bool | None = None) -> Any:
    """Return the function as it is, or a decorator that does: TorchScript would leave it to Python.

    Args:
        drop: the function, or True or False for a decorator.
        drop_on_export: True, False or None; there is no export.

    Raises:
        ArgumentError: an argument of another type.

    >>> @lucid.jit.ignore(drop=True)
    ... def double(x):
    ...     return 2 * x
    >>> double(lucid.ones(2))
    tensor([2., 2.])
    """
    check_flags("jit.ignore", drop_on_export=drop_on_export)
    if callable(drop):
        return drop
    check_flag(drop, "drop", "jit.ignore")
    return export


def unused(fn: Code) -> Code:
    """Return the function as it is: TorchScript's mark of what a script never calls.

    Args:
        fn: the function.

    >>> double = lucid.jit.unused(lambda x: 2 * x)
    >>> double(lucid.ones(2))
    tensor([2., 2.])
    """
    return fn


def is_scripting() -> bool:
    """Return False: nothing is ever turned into TorchScript, in a compiled step or elsewhere.

    >>> lucid.jit.is_scripting()
    False
    """
    return False


def is_tracing() -> bool:
    """Return False: `lucid.compiler.is_compiling` says whether a step is traced.

    >>> lucid.jit.is_tracing()
    False
    """
    return False


frames.edge_of_module(__name__)
