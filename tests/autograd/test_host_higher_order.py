"""Host Functions under transformations, one inside another, and with other work inside."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from custom_functions import define, leaf, numbers

import lucid
from lucid import nn
from lucid.autograd import Function

X = np.array([0.3, 0.7])


class Sine(Function):
    """Its backward is made of operations."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return lucid.from_numpy(np.sin(x.numpy()))

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos()


class BatchedSine(Sine):
    @staticmethod
    def vmap(info, in_dims, x):
        return Sine.apply(x), in_dims[0]


def apply(x):
    return Sine.apply(x)


def summed(x):
    return Sine.apply(x).sum()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda x: lucid.func.jvp(apply, (x,), (x,))[1], X * np.cos(X)),
        (lambda x: lucid.func.grad(summed)(x), np.cos(X)),
        (lambda x: lucid.func.vjp(apply, x)[1](x)[0], X * np.cos(X)),
        (lambda x: lucid.func.jacrev(apply)(x), np.diag(np.cos(X))),
        (lambda x: lucid.func.jacfwd(apply)(x), np.diag(np.cos(X))),
        (lambda x: lucid.func.hessian(summed)(x), np.diag(-np.sin(X))),
        (lambda x: lucid.vmap(BatchedSine.apply)(x), np.sin(X)),
        (lambda x: lucid.func.grad(lambda x: lucid.func.grad(summed)(x).sum())(x), -np.sin(X)),
    ],
)
def test_transformations_go_through_a_host_function(prepared, body, expected):
    step = prepared(body)
    for _ in range(2):
        np.testing.assert_allclose(step(lucid.tensor(X)).numpy(), expected, rtol=1e-12, atol=1e-15)


class Scaled(Function):
    """The jvp computes with tensors that forward left on ctx."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_forward(x)
        ctx.scale = float(x.sum())
        return lucid.from_numpy(np.sin(x.numpy()))

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * ctx.saved_tensors[0].cos() * ctx.scale


DIFFERENTIATES = "it differentiates {}, a host call, whose operations only eager mode sees"
LOOKS = "{}, a host call, runs in a vmap or a forward-mode derivative, which look at its operations"


@pytest.mark.parametrize(
    ("function", "transform", "reason"),
    [
        (Sine, lambda f: lucid.func.jacrev(f), LOOKS.format("Sine.backward")),
        (Sine, lambda f: over_cotangents(f), LOOKS.format("Sine.backward")),
        (Sine, lambda f: forward(f), LOOKS.format("Sine")),
        (Scaled, lambda f: forward(forward(f)), LOOKS.format("Scaled")),
        (Scaled, lambda f: reverse(forward(f)), LOOKS.format("Scaled")),
    ],
)
def test_where_operations_of_a_host_call_matter_the_step_runs_op_by_op(function, transform, reason):
    body = transform(function.apply)
    step = lucid.compile(lambda x: body(x))
    for x in (lucid.tensor(X), lucid.tensor(2 * X)):
        np.testing.assert_array_equal(step(x).numpy(), body(x).numpy())
    assert {*step.stats.eager_reasons} == {reason}


def forward(function):
    return lambda x: lucid.func.jvp(function, (x,), (x,))[1]


def reverse(function):
    return lucid.func.grad(lambda x: function(x).sum())


def over_cotangents(function):
    return lambda x: forward(lucid.func.vjp(function, x)[1])(x)[0]


def test_a_host_call_inside_of_a_host_call(prepared):
    inner = define(
        lambda ctx, x: lucid.from_numpy(np.exp(x.numpy())), lambda ctx, g: g * 2, "Inner"
    )
    outer = define(
        lambda ctx, x: inner.apply(x) * float(x.numpy()[0]),
        lambda ctx, g: lucid.from_numpy(g.numpy() * 3),
        "Outer",
    )
    x = leaf(X)

    def body():
        y = outer.apply(inner.apply(x) * 2)
        return y.detach(), lucid.autograd.grad(y.sum(), x)[0]

    y, g = prepared(body)()
    z = 2 * np.exp(X)
    np.testing.assert_allclose(y.numpy(), np.exp(z) * z[0], rtol=1e-12)
    assert numbers(g) == [12.0, 12.0]


def test_a_model_may_be_trained_inside(prepared):
    def forward(ctx, x):
        lucid.manual_seed(0)
        model = nn.Linear(2, 1)
        optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            with lucid.enable_grad():
                loss = (model(x.detach().float().reshape(1, 2)) - 1).square().sum()
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return x * loss.item()

    fn = define(forward)
    body = lambda x: fn.apply(x) + lucid.rand(1, dtype=x.dtype)  # noqa: E731
    inputs = [lucid.tensor(k * X) for k in (1, 2, 3)]
    lucid.manual_seed(1)
    expected = [numbers(body(x)) for x in inputs]
    lucid.manual_seed(1)
    step = prepared(body)
    np.testing.assert_allclose([numbers(step(x)) for x in inputs], expected, rtol=1e-6)


def test_a_compiled_step_may_train_a_model_from_outside_inside(prepared):
    lucid.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = lucid.optim.Adam(model.parameters(), lr=0.1)
    start = {name: p.clone() for name, p in model.state_dict().items()}

    @lucid.compile
    def train(x):
        optimizer.zero_grad()
        loss = (model(x) - 1).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    def forward(ctx, x):
        with lucid.enable_grad():
            return x * train(x.detach().float().reshape(1, 2)).item()

    fn = define(forward)
    step = prepared(lambda x: fn.apply(x))
    found = [numbers(step(lucid.tensor(k * X))) for k in (1, 1, 2)]
    trained = numbers(list(model.parameters()))
    model.load_state_dict(start)
    optimizer.state.clear()
    inputs = [lucid.tensor(k * X) for k in (1, 1, 2)]
    expected = [numbers(x * train(x.float().reshape(1, 2)).item()) for x in inputs]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    for now, then in zip(trained, numbers(list(model.parameters())), strict=True):
        np.testing.assert_allclose(now, then, rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.random.default_rng(3).random,
        lambda: np.random.RandomState(3).rand,
        lambda: random.Random(3).random,
        lambda: (np.random.seed(3), np.random.rand)[1],
        lambda: (random.seed(3), random.random)[1],
    ],
)
def test_every_random_generator_goes_on_call_by_call(prepared, make):
    draw = make()
    fn = define(lambda ctx, x: x + float(x.numpy()[0]) * 0 + draw())
    step = prepared(lambda x: fn.apply(x))
    found = [step(lucid.zeros(1, dtype=lucid.float64)).item() for _ in range(3)]
    found.append(draw())
    again = make()
    assert found == [again() for _ in range(4)]


def test_a_host_call_may_wait_for_another_threads_step():
    asked, answered = threading.Event(), threading.Event()
    waits = False

    def forward(ctx, x):
        if waits:
            asked.set()
            assert answered.wait(30)
        return lucid.from_numpy(x.numpy() * 2)

    fn = define(forward)
    step, other = lucid.compile(lambda x: fn.apply(x) + 1), lucid.compile(lambda x: x.exp().sum())
    step(lucid.ones(2))
    other(lucid.ones(1000))
    waits = True

    def answer() -> None:
        assert asked.wait(30)
        assert other(lucid.zeros(1000)).item() == 1000.0
        answered.set()

    thread = threading.Thread(target=answer)
    thread.start()
    assert numbers(step(lucid.ones(2))) == [3.0, 3.0]
    thread.join()
