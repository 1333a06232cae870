"""Python values that change between a call and the backward of its results: the call's count."""

from __future__ import annotations

import types

import pytest

import lucid
from lucid import nn
from lucid.autograd import Function, grad


def training():
    module = nn.Module()

    def flip():
        module.train(not module.training)

    return lambda y: y * (3.0 if module.training else 1.0), flip


def attribute():
    settings = types.SimpleNamespace(times=1)

    def flip():
        settings.times = 3 - settings.times

    return lambda y: y**settings.times, flip


def attribute_of_a_function():
    class Scaled(Function):
        scale = 2.0

        @staticmethod
        def forward(ctx, x):
            ctx.scale = Scaled.scale
            return x * Scaled.scale

        @staticmethod
        def backward(ctx, g):
            return g * ctx.scale

    def flip():
        Scaled.scale += 1

    return lambda y: Scaled.apply(y), flip


def length():
    entries = [1]
    return lambda y: y * len(entries), lambda: entries.append(1)


def entry():
    settings = {"mode": "cubed"}

    def flip():
        settings["mode"] = "cubed" if settings["mode"] == "linear" else "linear"

    return lambda y: y**3 if settings["mode"] == "cubed" else y * 5, flip


def variable():
    times = 2

    def flip():
        nonlocal times
        times = 5 - times

    return lambda y: y**times, flip


def members():
    chosen = {"sign"}
    return lambda y: -y if "sign" in chosen else y * 2, lambda: chosen.symmetric_difference_update(
        {"sign"}
    )


def tensor():
    holder = types.SimpleNamespace(factor=lucid.tensor([2.0, 3.0]))

    def flip():
        holder.factor = holder.factor + 1

    return lambda y: y * holder.factor, flip


def submodule():
    model = nn.Sequential(nn.Tanh())

    def flip():
        model[0] = nn.Sigmoid() if isinstance(model[0], nn.Tanh) else nn.Tanh()

    return lambda y: model(y), flip


def dropout():
    layer = nn.Dropout(1.0)
    return lambda y: layer(y) + y * y, lambda: layer.train(not layer.training)


KINDS = [
    training, attribute, attribute_of_a_function, length, entry, variable, members, tensor,
    submodule, dropout,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_backward_computes_with_what_the_call_has_read(agree, kind):
    def scenario(compile):
        (function, change), w = kind(), nn.Parameter(lucid.tensor([0.5, 2.0]))
        step = compile(lambda x: function(w * w * x))
        found = []
        for i in range(3):
            result = step(lucid.tensor([1.0, 0.5 + i]))
            change()
            result.sum().backward()
            found.append(result.detach())
        early, late = step(lucid.ones(2)), None
        change()
        late = step(lucid.ones(2))
        change()
        early.sum().backward()
        late.sum().backward()
        (first,) = grad(step(lucid.ones(2)).sum(), w, create_graph=True)
        change()
        first.sum().backward()
        return [found, first.detach(), w]

    agree(scenario)


@pytest.mark.parametrize("holder", [types.SimpleNamespace, nn.Module])
def test_a_place_that_was_empty_at_the_call_is_empty_for_its_backward(agree, holder):
    def scenario(compile):
        state, w = holder(), nn.Parameter(lucid.tensor([1.0, 2.0]))
        state.mean = None

        @compile
        def step(x):
            mean = x.detach()
            state.mean = mean if state.mean is None else state.mean * 0.5 + mean
            return (w * x * state.mean).square()

        for i in range(3):
            step(lucid.tensor([1.0 + i, 1.0])).sum().backward()
        return [w, state.mean]

    agree(scenario)


def test_values_are_afterwards_as_they_were():
    settings, log, w = types.SimpleNamespace(times=1), [1], nn.Parameter(lucid.ones(2))
    step = lucid.compile(lambda: w * settings.times * len(log))
    for _ in range(2):
        result = step()
        settings.times, log[:] = 3, [1, 2, 3]
        result.sum().backward()
        assert (settings.times, log) == (3, [1, 2, 3])
        settings.times, log[:] = 1, [1]
    assert w.grad is not None and w.grad.tolist() == [2.0, 2.0]


def test_what_cannot_be_put_back_is_an_error():
    class Guarded(dict):
        def __setitem__(self, key, value):
            raise KeyError(key)

    guarded, w = Guarded(times=2), nn.Parameter(lucid.ones(2))
    step = lucid.compile(lambda: w ** guarded["times"])
    result = step()
    dict.__setitem__(guarded, "times", 3)
    with pytest.raises(lucid.LucidError) as error:
        result.sum().backward()
    assert str(error.value) == (
        "what a compiled function read has changed since the call, and can't be put back to "
        "differentiate its results\n  guarded['times']: 2 -> 3\n"
        "hint: call backward() before it changes, or inside of the compiled function"
    )
    assert w.grad is None and guarded == {"times": 3}
