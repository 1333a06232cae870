"""Functions whose derivative is written beside them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from lucid.autograd.function import Function
from lucid.autograd.native import runs_natively
from lucid.functions.promotion import floating
from lucid.functions.tensors import Tensor

P = ParamSpec("P")
R = TypeVar("R")
Value = Callable[[Tensor], Tensor]


def with_gradient(
    vjp: Callable[..., Any] | None,
    *,
    fixed: Sequence[int] = (),
    materialize: bool = True,
    natively: bool = True,
    calls_python: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function of tensors and options, all by position, have this gradient.

    It is a Function, which appears by its name in the IR.

    vjp: takes the cotangent, or a tuple of those of several results, and what it names of the
        arguments, of `y`, the result or results, and of `needs`, which says of each argument
        whether its gradient is asked for. What of these are tensors is saved. It gives cotangents
        of the first arguments; the others have none.
    fixed: which results have no derivative.
    materialize: whether cotangents that nobody sent are zeros, else None.
    natively: what it does follows from the arguments' types, so that its calls outside of traces
        are native programs.
    calls_python: it calls code such as LAPACK's: each size has a program of its own.
    """
    wanted = [*inspect.signature(vjp).parameters][1:] if vjp else []

    def complete(value: Callable[P, R]) -> Callable[P, R]:
        parameters = [*inspect.signature(value).parameters]

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            results = output if isinstance(output, tuple) else (output,)
            arguments = [(k, x) for k, x in zip(parameters, inputs, strict=True) if k in wanted]
            saved = {key: x for key, x in arguments if isinstance(x, Tensor)}
            ctx.names, ctx.options = tuple(saved), {k: x for k, x in arguments if k not in saved}
            ctx.save_for_backward(*saved.values(), *(results if "y" in wanted else ()))
            ctx.mark_non_differentiable(*(results[i] for i in fixed))
            ctx.set_materialize_grads(materialize)

        def backward(ctx: Any, *g: Tensor | None) -> tuple[Tensor | None, ...]:
            saved, count = ctx.saved_tensors, len(ctx.names)
            known = {**dict(zip(ctx.names, saved, strict=False)), **ctx.options}
            known["y"] = saved[count] if len(g) == 1 and "y" in wanted else saved[count:]
            known["needs"] = ctx.needs_input_grad
            assert vjp is not None
            found = vjp(g[0] if len(g) == 1 else g, *[known[key] for key in wanted])
            parts = found if isinstance(found, tuple) else (found,)
            return parts + (None,) * (len(parameters) - len(parts))

        methods: dict[str, Callable[..., Any]] = {
            "forward": value, "setup_context": setup_context, "backward": backward,
        }  # fmt: skip
        body: dict[str, Any] = {key: staticmethod(method) for key, method in methods.items()}
        body |= {"__doc__": value.__doc__, "__module__": value.__module__}
        body["_calls_python"] = calls_python
        name = "".join(word.capitalize() for word in value.__name__.split("_"))
        cls: Any = type(name, (Function,), body)
        applied: Callable[P, R] = (runs_natively(cls) if natively else cls).apply
        return applied

    return complete


def curve(vjp: Callable[..., Any]) -> Callable[[Value], Value]:
    """Let a function of one float tensor, `x` in the rule, have this gradient; it is checked."""

    def complete(value: Value) -> Value:
        def on_floats(x: Tensor) -> Tensor:
            return value(x)

        on_floats.__name__, on_floats.__doc__ = value.__name__, value.__doc__
        function = with_gradient(vjp)(on_floats)

        @wraps(value)
        def applied(input: Tensor) -> Tensor:
            return function(floating(input, value.__name__))

        return applied

    return complete
