"""TorchScript's decorators, which programs put on their functions: here code stays Python's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final as Final, TypeVar

from lucid.choices import check_flag, check_flags, check_kind
from lucid.ir import frames
from lucid.ir.errors import ArgumentError
from lucid.tensor.tensor import Tensor

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


def trace(
    func: Code,
    example_inputs: Any = None,
    optimize: bool | None = None,
    check_trace: bool = True,
    check_inputs: Sequence[Any] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    *,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
) -> Code:
    """Return a function or module as it is; `lucid.compile` traces what calls it.

    Branches are taken anew at each call, where TorchScript keeps those of the example.

    Args:
        func: the function or module.
        example_inputs: arguments that TorchScript would trace it with.
        optimize: True, False or None; nothing is turned into TorchScript.
        check_trace: True or False; there is no trace to check.
        check_inputs: more arguments to check it with.
        check_tolerance: how far results may differ there.
        strict: True or False: whether results may hold lists and dicts, which they may.
        example_kwarg_inputs: arguments by name, as a dict.

    Raises:
        ArgumentError: an argument of another type.

    >>> double = lucid.jit.trace(lambda x: 2 * x, lucid.ones(3))
    >>> double(lucid.ones(2))
    tensor([2., 2.])
    """
    check_flags("jit.trace", check_trace=check_trace, strict=strict)
    check_kind(example_inputs, (Tensor, list, tuple, dict), "example_inputs", "jit.trace")
    check_kind(check_inputs, (list, tuple), "check_inputs", "jit.trace")
    check_kind(example_kwarg_inputs, dict, "example_kwarg_inputs", "jit.trace")
    check_kind(check_tolerance, (int, float), "check_tolerance", "jit.trace")
    return script(func, optimize)


def annotate(the_type: Any, the_value: Any) -> Any:
    """Return the value: TorchScript's mark of its type.

    Args:
        the_type: its type.
        the_value: the value.

    >>> lucid.jit.annotate(list[int], [])
    []
    """
    return the_value


def freeze(
    mod: Code,
    preserved_attrs: list[str] | None = None,
    optimize_numerics: bool = True,
) -> Code:
    """Return the module as it is: TorchScript would make constants of its parameters.

    Args:
        mod: the module.
        preserved_attrs: a list of names that stay.
        optimize_numerics: True or False.

    Raises:
        ArgumentError: an argument of another type.

    >>> lucid.jit.freeze(nn.ReLU().eval())
    ReLU()
    """
    check_kind(preserved_attrs, list, "preserved_attrs", "jit.freeze")
    check_flags("jit.freeze", optimize_numerics=optimize_numerics)
    return script(mod)


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
