"""Automatic differentiation: the engine's entry points, custom Functions, grad modes."""

from lucid.autograd import function, graph
from lucid.autograd.engine import backward, grad
from lucid.autograd.function import Function
from lucid.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from lucid.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)

__all__ = [
    "Function",
    "GradcheckError",
    "backward",
    "enable_grad",
    "function",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
]
