"""What a traceback shows: the user's lines, and none of the library's between them and the message.

`test_mistakes.py` asks the same of single mistakes; here it is what users are given to call: all
public functions, functions that these give back, decorators, hooks and closures.
"""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lucid
from lucid import nn
from lucid.ir.location import LIBRARY
from lucid.utils.checkpoint import checkpoint

TESTS = Path(__file__).parent


def misfit(x: lucid.Tensor, *_: Any) -> lucid.Tensor:
    """A function of the user's with a mistake in it."""
    return x @ lucid.ones(7, 7)


def misfits(x: lucid.Tensor) -> Any:
    yield misfit(x)


class Failing(lucid.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: lucid.Tensor) -> Any:
        return misfit(grad)


class FailingOnce(Failing):
    @staticmethod
    @lucid.autograd.function.once_differentiable
    def backward(ctx: Any, grad: lucid.Tensor) -> Any:
        return misfit(grad)


class Mistaken(nn.Module):
    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return misfit(x)


def leaf() -> lucid.Tensor:
    return lucid.ones(2, 3, requires_grad=True)


def of_an_optimizer(cls: type, *args: Any) -> None:
    cls([leaf()], lr=0.1).step(*args)


def in_a_profiler(call: Callable[[], Any]) -> None:
    with lucid.profiler.profile():
        call()


def parametrized(module: nn.Module) -> None:
    nn.utils.parametrize.register_parametrization(nn.Linear(3, 3), "weight", module)


def averaged() -> None:
    model = lucid.optim.swa_utils.AveragedModel(nn.Linear(3, 3), avg_fn=misfit)
    model.update_parameters(nn.Linear(3, 3))
    model.update_parameters(nn.Linear(3, 3))


def hooked(register: str) -> Any:
    module = nn.Linear(3, 3)
    getattr(module, register)(lambda module, given, *_: misfit(given[0]))
    return module(leaf())


def with_a_hook(x: lucid.Tensor) -> None:
    x.register_hook(misfit)
    x.sum().backward()


X = lucid.ones(2, 3)
CALLS: dict[str, Callable[[], Any]] = {
    "no_grad": lambda: lucid.no_grad()(misfit)(X),
    "no_grad without parentheses": lambda: lucid.no_grad(misfit)(X),
    "enable_grad": lambda: lucid.enable_grad()(misfit)(X),
    "inference_mode": lambda: lucid.inference_mode()(misfit)(X),
    "set_grad_enabled": lambda: lucid.set_grad_enabled(True)(misfit)(X),
    "no_grad, of a generator": lambda: list(lucid.no_grad()(misfits)(X)),
    "autocast": lambda: lucid.autocast("cpu", enabled=False)(misfit)(X),
    "detect_anomaly": lambda: lucid.autograd.detect_anomaly()(misfit)(X),
    "dual_level": lambda: lucid.autograd.forward_ad.dual_level()(misfit)(X),
    "disable": lambda: lucid.compiler.disable(misfit)(X),
    "disable, with a reason": lambda: lucid.compiler.disable(reason="C")(misfit)(X),
    "compile": lambda: lucid.compile(misfit)(X),
    "compile, interpreted": lambda: lucid.compile(misfit, mode="interpret")(X),
    "a compiled Module": lambda: lucid.compile(Mistaken())(X),
    "record_function": lambda: lucid.profiler.record_function("part")(misfit)(X),
    "grad": lambda: lucid.func.grad(misfit)(X),
    "vmap": lambda: lucid.func.vmap(misfit)(X),
    "jvp": lambda: lucid.func.jvp(misfit, (X,), (X,)),
    "what vjp gives": lambda: lucid.func.vjp(lucid.sin, X)[1](lucid.ones(7)),
    "what linearize gives": lambda: lucid.func.linearize(lucid.sin, X)[1](lucid.ones(7)),
    "checkpoint": lambda: checkpoint(misfit, leaf(), use_reentrant=False),
    "a backward": lambda: Failing.apply(leaf()).sum().backward(),
    "a backward that is marked": lambda: FailingOnce.apply(leaf()).sum().backward(),
    "a hook of a tensor": lambda: with_a_hook(leaf() * 2),
    "a hook before a Module": lambda: hooked("register_forward_pre_hook"),
    "a hook after a Module": lambda: hooked("register_forward_hook"),
    "a closure": lambda: of_an_optimizer(lucid.optim.SGD, lambda: misfit(X)),
    "a closure of LBFGS": lambda: of_an_optimizer(lucid.optim.LBFGS, lambda: misfit(X)),
    "a parametrization": lambda: parametrized(Mistaken()),
    "an average of models": averaged,
    "profiled": lambda: in_a_profiler(lambda: misfit(X)),
    "a compiled function, profiled": lambda: in_a_profiler(lambda: lucid.compile(misfit)(X)),
    "a backward, profiled": lambda: in_a_profiler(CALLS["a backward"]),
    "a closure, profiled": lambda: in_a_profiler(CALLS["a closure"]),
    "step.profile": lambda: lucid.compile(misfit).profile(X),
    "step.check": lambda: lucid.compile(misfit).check(X),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_users_lines_are_shown_alone(name: str) -> None:
    with pytest.raises(lucid.LucidError) as caught:
        CALLS[name]()
    shown = traceback.format_exception(caught.value)
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert not [file for file in files if file.startswith(LIBRARY)], "".join(shown)
    assert not [line for line in shown if "another exception" in line or "direct cause" in line]


# Run in a process of its own: such calls may leave modes and settings behind.
EVERY_CALL = """
import importlib, sys, traceback, types, warnings
warnings.simplefilter("ignore")
sys.breakpointhook = lambda: None  # lucid.debug.breakpoint is among them
sys.path.insert(0, sys.argv[1])
import lucid
from docstrings import namespaces
from lucid.ir.location import LIBRARY

class Nothing:
    pass

def shown(call, *args):
    try:
        return call(*args), None
    except Exception as error:
        files = (frame.filename for frame in traceback.extract_tb(error.__traceback__))
        return None, next((file for file in files if file.startswith(LIBRARY)), None)

for space, names in namespaces().items():
    # Ops and passes are what the compiler is made of: its own calls go through them.
    if space in ("lucid.ir", "lucid.ir.ops", "lucid.ir.passes"):
        continue
    module = importlib.import_module(space) if space in sys.modules else None
    for name in names if module is not None else ():
        function = getattr(module, name)
        if not callable(function):
            continue
        for given in ([], [Nothing()], [lucid.ones(2, 3)] * 2, [Nothing()] * 9):
            result, file = shown(function, *given)
            if file is None and type(result) is types.FunctionType:
                result, file = shown(result, Nothing())
            if file is not None:
                print(f"{space}.{name}: {file}")
print("done")
"""


def test_every_public_function_hides_what_is_below_it() -> None:
    command = [sys.executable, "-c", EVERY_CALL, str(TESTS)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert found.stdout == "done\n", found.stdout + found.stderr
