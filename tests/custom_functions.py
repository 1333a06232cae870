"""What the tests of custom Functions share: small Functions, and ways to make and read tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import lucid
from lucid.autograd import Function

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)


def define(
    forward: Callable[..., Any],
    backward: Callable[..., Any] = lambda ctx, *grads: grads[0],
    name: str = "Fn",
    **attributes: Any,
) -> Any:
    """Make a Function class of two functions."""
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(Function)(name, (Function,), methods | attributes)


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_out


class Exp(Function):
    """Saves its output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * ctx.saved_tensors[0]


class AddOne(Function):
    """Works in place; its backward multiplies by 10, so that it shows."""

    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * 10


class Identity(Function):
    """Returns its input; its backward doubles."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * 2


class Pair(Function):
    """Two outputs, x * 2 and x * 3, and a record of the gradients that arrive."""

    @staticmethod
    def forward(ctx, x, seen, prepare=None):
        ctx.seen = seen
        outputs = x * 2, x * 3
        if prepare is not None:
            prepare(ctx, *outputs)
        return outputs

    @staticmethod
    def backward(ctx, first, second):
        ctx.seen.append((first, second))
        return None if first is None else first * 2, None, None


class Scale(Function):
    """In the two-method style, with defaults."""

    @staticmethod
    def forward(x, factor=2, shift=3):
        return x * factor + shift

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor, ctx.inputs, ctx.output = inputs[1], inputs, output
        ctx.grad_mode = lucid.is_grad_enabled()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None, None


def leaf(values: Any, requires_grad: bool = True) -> lucid.Tensor:
    """A float64 tensor."""
    return lucid.tensor(values, dtype=lucid.float64, requires_grad=requires_grad)


def numbers(tensor: Any) -> Any:
    """The values of a tensor, of each tensor of a sequence, or None."""
    if tensor is None or isinstance(tensor, (int, float, str)):
        return tensor
    if isinstance(tensor, Sequence):
        return [numbers(entry) for entry in tensor]
    return tensor.detach().tolist()


def first_line(caught: pytest.ExceptionInfo[BaseException]) -> str:
    """The message without the lines that say where."""
    return str(caught.value).partition("\n")[0]


def text_of(caught: pytest.ExceptionInfo[BaseException]) -> str:
    """The whole message; of a place in the tests' code, the file only."""
    return re.sub(r"\.py:\d+   .*", ".py", str(caught.value))


def other_lines(caught: pytest.ExceptionInfo[BaseException]) -> str:
    """Where, and hints."""
    return str(caught.value).partition("\n")[2]
