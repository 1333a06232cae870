"""`lucid.compile(verify="first")` tries the backwards of custom Functions as well."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.autograd import Function


def function(
    forward: Callable[..., Any], backward: Callable[..., Any], **attributes: Any
) -> type[Function]:
    """A Function of the name Tried."""
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Tried", (Function,), methods | attributes)


def squared(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
    ctx.save_for_backward(x)
    return x * x


def by(factor: float) -> Callable[..., Any]:
    return lambda ctx, g: factor * ctx.saved_tensors[0] * g


def verified(tried: type[Function]) -> Any:
    """A compiled step that changes a parameter by the gradient through a Function."""
    weight = lucid.tensor([0.5, -1.5, 2.0], requires_grad=True)

    @lucid.compile(verify="first")
    def step(x: lucid.Tensor) -> lucid.Tensor:
        weight.grad = None
        loss = tried.apply(weight * x).sum()
        loss.backward()
        with lucid.no_grad():
            weight.sub_(0.1 * weight.grad)
        return loss

    step.weight = weight
    return step


X = lucid.tensor([1.0, 2.0, 3.0])


def test_a_right_one_runs() -> None:
    step = verified(function(squared, by(2.0)))
    assert step(X).item() == pytest.approx(45.25)
    assert step.weight.tolist() == pytest.approx([0.4, -0.3, -1.6], abs=1e-6)


def test_a_wrong_one_changes_nothing() -> None:
    step = verified(function(squared, by(3.0)))
    for _ in range(2):
        with pytest.raises(
            lucid.VerifyError,
            match=r"backward of Tried \(test_verified_functions.py:\d+\), called at .*:\d+, is not "
            r"the derivative of its forward: along a random direction of x it gives .*, a central "
            r"difference .*\nhint: .*surrogate_gradient = True",
        ):
            step(X)
    assert step.weight.tolist() == [0.5, -1.5, 2.0]
    assert step.weight.grad is None


def test_an_interrupt_meanwhile_changes_nothing() -> None:
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        if not lucid.compiler.is_compiling() and x.dtype is lucid.float64:
            raise KeyboardInterrupt
        return squared(ctx, x)

    step = verified(function(forward, by(2.0)))
    with pytest.raises(KeyboardInterrupt):
        step(X)
    assert step.weight.tolist() == [0.5, -1.5, 2.0]
    assert step.weight.grad is None


def test_what_is_meant_is_said_in_the_class() -> None:
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return x.round()

    def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
        return g

    with pytest.raises(lucid.VerifyError, match="straight-through"):
        verified(function(forward, backward))(X)
    verified(function(forward, backward, surrogate_gradient=True))(X)


def test_each_argument_is_tried() -> None:
    def forward(ctx: Any, x: lucid.Tensor, scale: float, other: lucid.Tensor) -> lucid.Tensor:
        ctx.save_for_backward(x, other)
        ctx.scale = scale
        return x * other * scale

    def backward(ctx: Any, g: lucid.Tensor) -> Any:
        x, other = ctx.saved_tensors
        return g * other * ctx.scale, None, g * x

    tried = function(forward, backward)

    @lucid.compile(verify="first")
    def step(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        return tried.apply(x, 2.0, y).sum()

    y = lucid.ones(3, requires_grad=True)
    with pytest.raises(lucid.VerifyError, match="direction of other it gives"):
        step(X, y)
    step(lucid.ones(3, requires_grad=True), lucid.ones(3))  # and what needs a gradient alone


def test_it_may_draw_write_leave_lucid_and_have_kinks() -> None:
    def draws(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        mask = lucid.rand_like(x)
        ctx.save_for_backward(mask)
        return x * mask

    def drawn(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
        return g * ctx.saved_tensors[0]

    def writes(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(3.0)

    def leaves(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        ctx.save_for_backward(x)
        return lucid.from_numpy(np.maximum(x.numpy(), 0.0))

    def left(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
        return lucid.from_numpy(g.numpy() * (ctx.saved_tensors[0].numpy() > 0))

    for forward, backward in ((draws, drawn), (writes, lambda ctx, g: 3.0 * g), (leaves, left)):
        state = lucid.get_rng_state()
        steps = [verified(function(forward, backward)), verified(function(forward, backward))]
        first = steps[0](X)
        lucid.set_rng_state(state)
        assert steps[1](X).tolist() == first.tolist()
    with pytest.raises(lucid.VerifyError, match="not the derivative"):
        verified(function(writes, lambda ctx, g: 2.0 * g))(X)
    with pytest.raises(lucid.VerifyError, match="not the derivative"):
        verified(function(leaves, lambda ctx, g: g))(X)


def test_what_cannot_be_tried_is_said(caplog: pytest.LogCaptureFixture) -> None:
    def narrow(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return x.to(lucid.float32) * 2

    with caplog.at_level(logging.WARNING, "lucid.compile"):
        verified(function(narrow, lambda ctx, g: 2 * g))(X)
    (record,) = [x.getMessage() for x in caplog.records if x.name == "lucid.compile"]
    assert "the backward of Tried at" in record
    assert "is not verified: its forward gives another dtype than it is given" in record


def test_one_call_of_each_signature_is_tried() -> None:
    calls = []

    def forward(ctx: Any, x: lucid.Tensor, name: str) -> lucid.Tensor:
        calls.append(name)
        return x * 1.0

    tried = function(forward, lambda ctx, g: (g, None))

    @lucid.compile(verify="first")
    def step(x: lucid.Tensor) -> lucid.Tensor:
        for name in ("a", "b", "a", "a"):
            x = tried.apply(x, name)
        return x.sum()

    step(lucid.ones(3, requires_grad=True))
    assert calls[:12] == ["a"] * 6 + ["b"] * 6  # five along the direction, and for backward
    assert calls[12:] == ["a", "b", "a", "a"]
