"""`lucid.debug.callback`, `print` and `assert_`: in order, at every call, in both modes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.compiler.programs import audits
from lucid.utils.checkpoint import checkpoint

MODES = pytest.mark.parametrize("compile", [lambda f: f, lucid.compile], ids=["eager", "compiled"])


@MODES
def test_calls_come_in_order_at_every_call_though_nobody_needs_them(
    compile: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []

    @compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        lucid.debug.callback(lambda h: seen.append(("a", h.tolist())), x * 2)
        lucid.debug.print("h={}", x)
        lucid.debug.callback(lambda: seen.append("nothing"))
        lucid.debug.callback(lambda h, n: seen.append((h.tolist(), n.item())), x + 1, x.sum())
        return x - 1

    for i in range(3):
        assert step(lucid.tensor([float(i)])).tolist() == [i - 1.0]
    assert seen == [
        entry for i in range(3) for entry in (("a", [2.0 * i]), "nothing", ([i + 1.0], float(i)))
    ]
    assert capsys.readouterr().out == "".join(f"h=tensor([{i}.])\n" for i in range(3))


@MODES
@pytest.mark.parametrize("text", ["{} {}", "{:d}", "{name}", "{", "{0.name}"])
def test_a_text_that_does_not_go_with_the_tensors_says_so(compile: Any, text: str) -> None:
    step = compile(lambda x: lucid.debug.print(text, x))
    with pytest.raises(
        lucid.OptionError, match=rf"print: '{re.escape(text)}' doesn't go with 1 te"
    ):
        step(lucid.ones(2))


@MODES
def test_gradients_go_past_it_and_what_it_does_to_its_copy_changes_nothing(compile: Any) -> None:
    seen: list[Any] = []

    def spoil(h: lucid.Tensor) -> None:
        seen.append(h.item())
        assert not h.requires_grad
        h.zero_()

    w = lucid.tensor(3.0, requires_grad=True)

    @compile
    def step() -> lucid.Tensor:
        w.grad = None
        h = w * w
        lucid.debug.callback(spoil, h)
        (h * w).backward()
        lucid.debug.callback(lambda g: seen.append(g.item()), w.grad)
        return w.grad.clone()

    assert [step().item() for _ in range(3)] == [27.0] * 3
    assert seen == [9.0, 27.0] * 3


@MODES
def test_in_a_vmap_it_is_called_for_each_example(compile: Any) -> None:
    seen: list[Any] = []
    outer = lucid.tensor(10.0)

    def one(x: lucid.Tensor) -> lucid.Tensor:
        lucid.debug.callback(lambda h, o: seen.append((h.tolist(), o.item())), x * 2, outer)
        return x.sum()

    step = compile(lambda x: lucid.vmap(one)(x))
    for _ in range(2):
        assert step(lucid.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist() == [3.0, 7.0]
    assert seen == [([2.0, 4.0], 10.0), ([6.0, 8.0], 10.0)] * 2
    twice = compile(lambda x: lucid.vmap(lucid.vmap(lambda e: one(e.reshape(1))))(x))
    del seen[:]
    twice(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert [h for h, _ in seen] == [[2.0], [4.0], [6.0], [8.0]]


@MODES
def test_in_transformations(compile: Any) -> None:
    seen: list[Any] = []

    def f(x: lucid.Tensor) -> lucid.Tensor:
        lucid.debug.callback(lambda h: seen.append(h.item()), x * 2)
        return x * x

    grad = compile(lambda x: lucid.func.grad(f)(x))
    tangent = compile(lambda x: lucid.func.jvp(f, (x,), (lucid.ones(()),))[1])
    for run in (grad, tangent):
        assert [run(lucid.tensor(3.0)).item() for _ in range(2)] == [6.0, 6.0]
    assert seen == [6.0] * 4


@MODES
def test_a_checkpointed_block_calls_it_once_though_it_is_computed_again(compile: Any) -> None:
    seen: list[Any] = []
    w = lucid.tensor(3.0, requires_grad=True)

    def inner(x: lucid.Tensor) -> lucid.Tensor:
        lucid.debug.callback(lambda h: seen.append(("inner", h.item())), x)
        return x * w

    def block(x: lucid.Tensor) -> lucid.Tensor:
        lucid.debug.callback(lambda h: seen.append(("block", h.item())), x)
        return checkpoint(inner, (x * w).exp(), use_reentrant=False).log()

    @compile
    def step(x: lucid.Tensor) -> None:
        w.grad = None
        checkpoint(block, x, use_reentrant=False).backward()
        lucid.debug.callback(lambda g: seen.append(g.item()), w.grad)

    for _ in range(3):
        step(lucid.tensor(0.0))
    assert [entry for entry in seen if entry != pytest.approx(1 / 3)] == [
        ("block", 0.0),
        ("inner", 1.0),
    ] * 3
    assert len(seen) == 9


@MODES
def test_in_a_loop_it_is_called_in_each_round(compile: Any) -> None:
    seen: list[float] = []

    def body(carry: lucid.Tensor, row: lucid.Tensor) -> Any:
        lucid.debug.callback(lambda h: seen.append(h.item()), carry)
        return carry + row, carry * row

    step = compile(lambda x: lucid.scan(body, lucid.tensor(0.0), x))
    for _ in range(2):
        assert step(lucid.tensor([1.0, 2.0, 3.0]))[0].item() == 6.0
    assert seen == [0.0, 1.0, 3.0] * 2


@MODES
def test_what_is_asserted_is_looked_at_and_a_step_that_fails_leaves_all(compile: Any) -> None:
    total = lucid.zeros(2)

    @compile
    def step(x: lucid.Tensor) -> None:
        lucid.debug.assert_(x >= 0, "x={} must not be negative")
        total.add_(x)

    for _ in range(2):
        step(lucid.ones(2))
    with pytest.raises(AssertionError, match="must not be negative") as error:
        step(lucid.tensor([1.0, -1.0]))
    assert isinstance(error.value, lucid.LucidError)
    assert "test_debug.py" in str(error.value)
    assert total.tolist() == [2.0, 2.0]


@MODES
def test_what_a_callback_raises_ends_the_step(compile: Any) -> None:
    total = lucid.zeros(())

    def look(h: lucid.Tensor) -> None:
        if h.item() > 1:
            raise KeyError("too large")

    @compile
    def step(x: lucid.Tensor) -> None:
        lucid.debug.callback(look, x)
        total.add_(x)

    step(lucid.tensor(1.0))
    with pytest.raises(KeyError, match="too large"):
        step(lucid.tensor(2.0))
    assert total.item() == 1.0


def test_a_first_call_that_is_traced_again_calls_once() -> None:
    seen: list[float] = []

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        lucid.debug.callback(lambda h: seen.append(h.item()), x)
        if x > 0:
            return x * 2
        return x * 3

    for value in (1.0, -1.0, 1.0, -1.0, 2.0):
        step(lucid.tensor(value))
    assert seen == [1.0, -1.0, 1.0, -1.0, 2.0]


def test_a_step_that_is_compared_calls_once_for_each_of_its_calls() -> None:
    seen: list[float] = []

    class Halved(lucid.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
            lucid.debug.callback(lambda h: seen.append(h.item()), x)
            return x / 2

        @staticmethod
        def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
            lucid.debug.callback(lambda h: seen.append(h.item()), g)
            return g / 2

    def step(x: lucid.Tensor) -> lucid.Tensor:
        x = x.detach().requires_grad_()
        Halved.apply(x).backward()
        return x.grad

    x, each = lucid.tensor(3.0), [3.0, 1.0]
    compiled = lucid.compile(step, verify="first")
    compiled(x)
    assert seen == each
    assert compiled.check(x).agrees
    assert seen == each * 3
    assert not lucid.debug.bisect(compiled, x, path=None).culprit
    assert seen == each * 5


def test_no_audit_calls_it_once_more() -> None:
    seen: list[float] = []

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        lucid.debug.callback(lambda h: seen.append(h.item()), x)
        return x * 2

    for number in range(4 * audits.FIRST):
        step(lucid.tensor(float(number)))
    assert seen == [*map(float, range(4 * audits.FIRST))]


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(lucid.ArgumentError, match="callback: the function gets tensors, not float"):
        lucid.debug.callback(lambda h: None, np.float64(1.0).item())
