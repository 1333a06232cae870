"""What made compiled training steps fast, without timing them: kernels, memory, instructions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn

Step = Callable[..., Any]
BATCH, INPUTS, HIDDEN, CLASSES = 32, 20, 48, 10


def classifier() -> nn.Module:
    layers = (nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(HIDDEN, CLASSES))


def trained(optimizer: Callable[..., Any], clip: bool = False) -> Step:
    """A compiled step that leaves no gradient, after its first call."""
    model = classifier()
    updates = optimizer(model.parameters())

    @lucid.compile
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        updates.step()
        updates.zero_grad()
        return loss

    rng = np.random.default_rng(0)
    x = lucid.tensor(rng.normal(size=(BATCH, INPUTS)).astype(np.float32))
    step(x, lucid.tensor(rng.integers(0, CLASSES, BATCH)))
    return step


def sgd(parameters: Any) -> Any:
    return lucid.optim.SGD(parameters, lr=0.1)


def adam(parameters: Any) -> Any:
    return lucid.optim.Adam(parameters, lr=1e-3)


def products(step: Step) -> list[str]:
    """The texts of the products that are called, one for each call."""
    text = step.stages["kernels"]
    kernels = dict(re.findall(r"kernel (k\d+) = (.*?)(?=\nkernel |\ncall )", text, re.DOTALL))
    called = re.findall(r"^call (k\d+)", text, re.MULTILINE)
    return [kernels[name] for name in called if kernels[name].startswith("contract")]


def of_weights(found: list[str]) -> list[str]:
    """Those that sum over the batch."""
    return [text for text in found if f"\n  inner k0 in {BATCH}\n" in text]


@pytest.mark.parametrize("optimizer", [sgd, adam])
def test_an_update_follows_its_gradient_at_once(optimizer: Callable[..., Any]) -> None:
    """Three products forwards, two for inputs; those for weights store new state, no gradient."""
    found = products(trained(optimizer))
    assert len(found) == 8
    assert len(of_weights(found)) == 3
    for text in of_weights(found):
        stored = re.findall(r"^ +%\d+: (a\d+)\[.*\] <- (%\d+)", text, re.MULTILINE)
        read = set(re.findall(r"load (a\d+)\[", text))
        assert stored and "%0" not in {value for _, value in stored}
        assert {array for array, _ in stored} <= read, "what is stored replaces what was read"


def test_a_clipped_gradient_is_stored_once() -> None:
    """The norm needs all of them before the first update."""
    found = of_weights(products(trained(sgd, clip=True)))
    assert len(found) == 3
    for text in found:
        assert re.findall(r"<- (%\d+)", text) == ["%0"]


def test_no_operand_is_transposed_in_memory() -> None:
    """No loop but reads and writes along the same axes; products read operands as they lie."""
    text = trained(adam).stages["kernels"]
    kernels = re.findall(r"kernel k\d+ = (loop.*?\n)(?=kernel |call )", text, re.DOTALL)
    copies = [
        kernel
        for kernel in kernels
        if re.search(r"%\d+ = load a\d+\[i1\*", kernel) and re.search(r"\[i0\*.* <- ", kernel)
    ]
    assert not copies


SAFE = (
    r"llvm\.(fma|fmuladd|fabs|sqrt|copysign|ldexp|floor|ceil|trunc|rint|roundeven|minimum|maximum"
    r"|minnum|maxnum|umin|umax|smin|smax|prefetch|ctlz|masked\.\w+|vector\.reduce\.\w+)\."
    r"|llvm\.x86\.avx512\.mask\.scalef\."  # one instruction, for which LLVM has no other name
    r"|llvm\.read(cycle|steady)counter"  # the step's own, not an inner loop's
)


def test_inner_loops_are_vectors_without_calls(rng: np.random.Generator) -> None:
    """Functions like exp are instructions; nothing is called but the program's own kernels."""

    @lucid.compile
    def step(x: Tensor) -> Tensor:
        y = x.exp().log1p().tanh() + x.sin() * lucid.erf(x) + lucid.sigmoid(x).log()
        return lucid.softmax(y, 1).square().sum() + nn.functional.gelu(x).mean()

    x = lucid.tensor(rng.normal(size=(64, 256)).astype(np.float32), requires_grad=True)
    step(x).backward()
    code = step.stages["llvm"]
    declared = re.findall(r"^declare .* @([\w.]+)\(", code, re.MULTILINE)
    assert declared
    assert [name for name in declared if not re.match(SAFE, name)] == []
    assert re.search(r"= f(mul|add|sub) <\d+ x float>", code)


def test_cross_entropy_and_its_gradient_take_one_exponential() -> None:
    """The rows are read once for each pass, and no array of log-probabilities is stored."""

    @lucid.compile
    def step(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        return lucid.autograd.grad(nn.functional.cross_entropy(x, y), x)[0]

    x = lucid.randn(64, 1000, requires_grad=True)
    step(x, lucid.randint(0, 1000, (64,)))
    assert step.stages["kernels"].count("= exp ") == 1
    assert step.stages["buffers"].count("temp") <= 2  # what is there for each row
