"""Functions that are never compiled: a step calls them, as they are, at each call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid.autograd.entry_points import grad
from lucid.autograd.function import Function, once_differentiable
from lucid.autograd.modes import set_grad_enabled
from lucid.autograd.node import AccumulateGrad, iterate_graph
from lucid.functions.from_data import tensor as as_tensor
from lucid.ir.errors import ArgumentError, LucidError
from lucid.ir.frames import edge
from lucid.ir.types import bool_, f64, i64
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.tree import Rebuild, containers_in, flatten, structure

_NUMBERS = {bool: bool_, int: i64, float: f64}


@edge
def disable(
    function: Callable[..., Any] | None = None, *, recursive: bool = True, reason: str | None = None
) -> Any:
    """Let compiled steps call a function as Python has it, op by op, with the data of each call.

    In a compiled step it is a host call: its tensors in, its tensors and numbers out, and its
    gradients by its own operations, which a backward runs op by op, once. A trace calls it as well,
    to see what it gives; what it changes in Python is put back, and what it prints isn't said.
    Elsewhere it is the function itself. As a decorator with or without arguments, as
    `torch.compiler.disable`.

    Args:
        function: what is called as it is. Default: None, for a decorator with arguments.
        recursive: whether what it calls runs as Python, too; True alone is supported.
        reason: a note for readers, which nothing looks at.

    Raises:
        ArgumentError: `recursive=False`, or what can't be called.
        LucidError: in a step, where it differentiates parameters that it isn't given as arguments,
            or returns something else than tensors and numbers.

    >>> @lucid.compiler.disable
    ... def largest(x):
    ...     return x.sort().values[-1] if x.numpy().any() else x.sum()
    >>> step = lucid.compile(lambda x: 2 * largest(x))
    >>> step(lucid.tensor([1.0, 3.0, 2.0]))
    tensor(6.)
    """
    if not recursive:
        raise ArgumentError("disable: what a function calls runs as Python, too: recursive=True")
    if function is None:
        return functools.partial(disable, reason=reason)
    if not callable(function):
        raise ArgumentError(f"disable: {type(function).__name__} is not callable")
    called = _host_function(function)

    @edge
    @functools.wraps(function)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        if context.recorder is None:
            return function(*args, **kwargs)
        leaves, rebuild = flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, TensorCore)]
        given = rebuild([_Place if isinstance(leaf, TensorCore) else leaf for leaf in leaves])
        form, *results = called.apply(given, context.grad_enabled, *tensors)
        kinds, again = _FORMS[_NUMBERS_OF_FORMS[int(form)]]
        found = iter(results)
        return again([None if kind is None else _given(next(found), kind) for kind in kinds])

    return disabled


class _Place:
    """Stands for a tensor among the arguments."""


# What functions return, but for the data, by what tells one from another; and in order.
_FORMS: dict[Any, tuple[list[type | None], Rebuild]] = {}
_NUMBERS_OF_FORMS: list[Any] = []


def _number_of_form(result: Any) -> tuple[int, list[Any]]:
    """The number of what a function returns, which a step is specialized on; and its leaves."""
    leaves, again = flatten(result)
    kinds = [None if leaf is None else type(leaf) for leaf in leaves]
    key = structure(result), *kinds, *map(type, containers_in(result))
    if key not in _FORMS:
        _FORMS[key] = kinds, again
        _NUMBERS_OF_FORMS.append(key)
    return _NUMBERS_OF_FORMS.index(key), leaves


def _given(result: Any, kind: type) -> Any:
    return result.item() if kind in _NUMBERS else result


def _host_function(function: Callable[..., Any]) -> type[Function]:
    """An `autograd.Function` whose forward calls a function and whose backward its ops'."""
    name = getattr(function, "__name__", type(function).__name__)

    class Disabled(Function):
        @staticmethod
        def forward(ctx: Any, arguments: Any, is_enabled: bool, *tensors: Any) -> Any:
            if context.recorder is not None:
                context.recorder.hosts.leave()
            with set_grad_enabled(is_enabled):
                given = [x.detach().requires_grad_(x.requires_grad) for x in tensors]
                leaves, rebuild = flatten(arguments)
                remaining = iter(given)
                args, kwargs = rebuild([next(remaining) if x is _Place else x for x in leaves])
                form, leaves = _number_of_form(function(*args, **kwargs))
            outputs = [_as_result(name, leaf) for leaf in leaves if leaf is not None]
            _refuse_hidden(name, outputs, given)
            ctx.inner = given, outputs
            return as_tensor(form), *[output.detach() for output in outputs]

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *gradients: Any) -> Any:
            given, outputs = ctx.inner
            pairs = [(x, g) for x, g in zip(outputs, gradients[1:], strict=True) if x.requires_grad]
            wanted = [x for x in given if x.requires_grad]
            found = iter(
                grad(
                    [x for x, _ in pairs],
                    wanted,
                    [g for _, g in pairs],
                    retain_graph=True,
                    allow_unused=True,
                )
                if pairs and wanted
                else [None] * len(wanted)
            )
            return None, None, *[next(found) if x.requires_grad else None for x in given]

    Disabled.__name__ = Disabled.__qualname__ = name
    for method in (Disabled.forward, Disabled.backward):
        method.__module__ = getattr(function, "__module__", None) or "__main__"
    return Disabled


def _as_result(name: str, leaf: Any) -> Any:
    if isinstance(leaf, TensorCore):
        return leaf
    if type(leaf) in _NUMBERS:
        return as_tensor(leaf, dtype=_NUMBERS[type(leaf)])
    raise LucidError(
        f"disable: {name}, called by a compiled step, returns a {type(leaf).__name__}\n"
        "hint: return tensors, numbers, and lists, tuples and dicts of them"
    )


def _refuse_hidden(name: str, outputs: list[Any], given: list[Any]) -> None:
    """Raise where gradients would go to tensors that the function wasn't given."""
    known = {id(x) for x in given}
    roots = [x.grad_fn for x in outputs if x.grad_fn is not None]
    for node in iterate_graph(roots):
        if isinstance(node, AccumulateGrad) and id(node.variable) not in known:
            raise LucidError(
                f"disable: {name}, called by a compiled step, differentiates a tensor that isn't "
                f"one of its arguments\n  tensor: {node.variable._describe()}\n"
                "hint: pass it as an argument"
            )
