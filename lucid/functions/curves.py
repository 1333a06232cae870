"""Functions of one tensor whose derivative is written beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from lucid.autograd.function import Function
from lucid.functions.promotion import floating
from lucid.functions.tensors import Tensor

Value = Callable[[Tensor], Tensor]


def curve(slope: Callable[..., Tensor]) -> Callable[[Value], Value]:
    """Let a function of one float tensor have this derivative, in place of that of its steps.

    So it appears by its name in the IR. The slope is one of `x`, of the function's result `y`, or
    of both: what its parameters name is saved.
    """
    code = slope.__code__
    saved = code.co_varnames[: code.co_argcount]

    def complete(value: Value) -> Value:
        name = value.__name__

        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = value(x)
            known = {"x": x, "y": y}
            ctx.save_for_backward(*(known[each] for each in saved))
            return y

        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * slope(*ctx.saved_tensors)

        body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        function: Any = type(name.capitalize(), (Function,), {"__doc__": f"{name} of x.", **body})

        @wraps(value)
        def applied(input: Tensor) -> Tensor:
            result: Tensor = function.apply(floating(input, name))
            return result

        return applied

    return complete
