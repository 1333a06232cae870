"""Functions of one tensor whose derivative is written beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from lucid.autograd.function import Function
from lucid.autograd.native import runs_natively
from lucid.functions.promotion import floating
from lucid.functions.tensors import Tensor

Value = Callable[[Tensor], Tensor]


def with_gradient(vjp: Callable[..., Any]) -> Callable[[Callable[..., Tensor]], type[Function]]:
    """Make a Function of a tensor `x`, and of numbers, by its value and the rule of its gradient.

    vjp: takes the cotangent `g`, `x` or the result `y` or both, and the numbers. What of the two it
        names is saved.
    """
    code = vjp.__code__
    saved = [name for name in code.co_varnames[1 : code.co_argcount] if name in ("x", "y")]

    def complete(value: Callable[..., Tensor]) -> type[Function]:
        def forward(ctx: Any, x: Tensor, *numbers: Any) -> Tensor:
            y = value(x, *numbers)
            known = {"x": x, "y": y}
            ctx.save_for_backward(*(known[name] for name in saved))
            ctx.numbers = numbers
            return y

        def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
            return vjp(g, *ctx.saved_tensors, *ctx.numbers), *(None for _ in ctx.numbers)

        body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        name = "".join(part.capitalize() for part in value.__name__.split("_"))
        about = {"__doc__": value.__doc__, "__module__": value.__module__}
        return type(name, (Function,), {**about, **body})

    return complete


def curve(vjp: Callable[..., Any]) -> Callable[[Value], Value]:
    """Let a function of float tensors have this gradient, in place of that of its steps.

    So it appears by its name in the IR. The rule is as of `with_gradient`.
    """

    def complete(value: Value) -> Value:
        function: Any = runs_natively(with_gradient(vjp)(value))

        @wraps(value)
        def applied(input: Tensor) -> Tensor:
            result: Tensor = function.apply(floating(input, value.__name__))
            return result

        return applied

    return complete
