"""Python values that change between a call and the backward of its results.

What forward has read is what it was at the call; what a backward method reads is what it is then.
"""

from __future__ import annotations

import dataclasses
import types
from contextlib import nullcontext

import numpy as np
import pytest

import lucid
from lucid import nn, optim
from lucid.autograd import Function, detect_anomaly, grad


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


def slope():
    layer = nn.LeakyReLU(0.25)

    def flip():
        layer.negative_slope = 1 if layer.negative_slope == 0.25 else layer.negative_slope / 2

    return lambda y: layer(-y) * y, flip


def rate():
    optimizer = optim.SGD([nn.Parameter(lucid.ones(1))], lr=0.25)
    group = optimizer.param_groups[0]

    def flip():
        group["lr"] = 1 if group["lr"] == 0.25 else group["lr"] / 2

    return lambda y: y * group["lr"], flip


def rates():
    optimizer = optim.Adam([nn.Parameter(lucid.ones(1))], betas=(0.5, 0.75))
    group = optimizer.param_groups[0]

    def flip():
        group["betas"] = (group["betas"][1], group["betas"][0])

    return lambda y: y * group["betas"][0] + y**2 * group["betas"][1], flip


def schedule():
    optimizer = optim.SGD([nn.Parameter(lucid.ones(1))], lr=0.25)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def flip():
        optimizer.step()
        scheduler.step()

    return lambda y: y * scheduler.get_last_lr()[0], flip


def array():
    factors = np.array([2.0, 3.0], np.float32)

    def flip():
        factors[:] = factors + 1

    return lambda y: y * lucid.tensor(factors), flip


def array_of_a_function():
    factors = np.array([2.0, 3.0], np.float32)

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            return x * lucid.tensor(factors)

        @staticmethod
        def backward(ctx, g):
            return g * lucid.tensor(factors)

    def flip():
        factors[:] = factors + 1

    return lambda y: Scaled.apply(y).sin(), flip


KINDS = [
    array, array_of_a_function,
    training, attribute, attribute_of_a_function, length, entry, variable, members, tensor,
    submodule, dropout, slope, rate, rates, schedule,
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


def test_a_backward_elsewhere_computes_with_the_hyper_parameters_of_the_call_as_well(agree):
    def scenario(compile):
        layer, w = nn.LeakyReLU(0.25), nn.Parameter(lucid.tensor([0.5, -2.0]))
        step = compile(lambda x: layer(w * x))

        @compile
        def differentiate(y):
            y.sum().backward()

        for i in range(3):
            result = step(lucid.ones(2))
            layer.negative_slope = 0.5 + i
            differentiate(result)
            result = step(lucid.ones(2))
            layer.negative_slope = 0.75 + i
            with detect_anomaly():
                result.sum().backward()
        return [w, layer.negative_slope]

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


@pytest.mark.parametrize("around", [nullcontext, detect_anomaly])
def test_a_backward_leaves_values_as_they_are_by_then(agree, around):
    """Even where they could not be put back: it doesn't look at what forward has read."""

    class Guarded(dict):
        def __setitem__(self, key, value):
            if key in self:
                raise KeyError(key)
            super().__setitem__(key, value)

    def scenario(compile):
        settings, log, w = Guarded(times=2), [1], nn.Parameter(lucid.tensor([1.0, 3.0]))
        step = compile(lambda: w ** settings["times"] * len(log))
        found = []
        for number in range(3):
            result = step()
            dict.__setitem__(settings, "times", 3 + number)
            log.append(number)
            with around():
                result.sum().backward()
            found += [w.grad.clone(), dict(settings), list(log)]
        return found

    agree(scenario)


def test_a_backward_method_reads_what_is_there_when_it_runs(agree):
    def scenario(compile):
        factors = {"of": 2.0}

        class Scaled(Function):
            scale = 1.0

            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, g):
                return g * Scaled.scale * factors["of"]

        f, found = compile(Scaled.apply), []
        for number in range(4):
            x = lucid.ones(2, requires_grad=True)
            y = f(x)
            Scaled.scale = 2.0 + number
            factors["of"] += 1
            y.sum().backward()
            found.append(x)
        return found

    agree(scenario)


def test_what_forward_has_changed_by_now_is_what_backward_reads(agree):
    def scenario(compile):
        state = types.SimpleNamespace(total=lucid.zeros(2), count=0)

        class Counting(Function):
            @staticmethod
            def forward(ctx, x):
                state.total = state.total + x.detach()
                state.count += 1
                return x * state.total

            @staticmethod
            def backward(ctx, g):
                return g * 2 + state.total * state.count

        f, found = compile(Counting.apply), []
        for number in range(4):
            x = lucid.tensor([1.0, 2.0 + number], requires_grad=True)
            y = f(x)
            if number == 2:
                state.count += 1
            y.sum().backward()
            found += [x, state.total, state.count]
        return found

    agree(scenario)


def test_what_a_backward_method_writes_is_written_by_each_backward(agree):
    def scenario(compile):
        order, counted = [], {"backward": 0}
        kept = types.SimpleNamespace(gradient=lucid.zeros(2))

        class Noted(Function):
            calls = 0

            @staticmethod
            def forward(ctx, x):
                order.append("forward")
                return x * 1

            @staticmethod
            def backward(ctx, g):
                order.append("backward")
                counted["backward"] += 1
                Noted.calls += 1
                kept.gradient = kept.gradient * 0.5 + g
                return g + kept.gradient

        @compile
        def f(x):
            y = Noted.apply(x)
            y.register_hook(lambda g: order.append("hook"))
            return y * 3

        found = []
        for _ in range(4):
            x = lucid.ones(2, requires_grad=True)
            y = f(x)
            order.append("called")
            y.sum().backward()
            found += [x, kept.gradient]
        return [*found, order, counted, Noted.calls]

    agree(scenario)


def test_a_backward_leaves_memory_that_the_call_has_assigned(agree):
    def scenario(compile):
        w = lucid.tensor(2.0, requires_grad=True)

        @compile
        def step(x):
            w.data = w.data * 2
            return w * x

        found = []
        for _ in range(3):
            y = step(lucid.tensor(1.0))
            y.backward()
            found += [y, w]
        return found

    agree(scenario)


@dataclasses.dataclass
class Options:
    times: object


class Plain:
    def __init__(self, times):
        self.times = times


KINDS_OF_ARGUMENTS = {
    "dict": (lambda times: {"times": times}, lambda o: o["times"], dict.__setitem__),
    "list": (lambda times: [times], lambda o: o[0], lambda o, _, times: o.__setitem__(0, times)),
    "record": (Options, lambda o: o.times, setattr),
    "object": (Plain, lambda o: o.times, setattr),
    "nested": (
        lambda times: ({"of": [times]}, 1.0),
        lambda o: o[0]["of"][-1],
        lambda o, _, times: o[0]["of"].append(times),
    ),
}


@pytest.mark.parametrize("is_tensor", [False, True])
@pytest.mark.parametrize("kind", KINDS_OF_ARGUMENTS)
def test_an_argument_holds_for_a_backward_what_it_held_at_the_call(agree, kind, is_tensor):
    make, read, change = KINDS_OF_ARGUMENTS[kind]
    value = lucid.tensor if is_tensor else float

    def scenario(compile):
        w = nn.Parameter(lucid.tensor([0.5, 2.0]))
        step = compile(lambda x, options: (w * w * x * read(options)).sin().sum())
        found = []
        for number in range(3):
            options = make(value(2.0))
            first = step(lucid.ones(2), options)
            change(options, "times", value(3.0 + number))
            second = step(lucid.ones(2), options)
            change(options, "times", value(5.0))
            first.backward()
            found += [w.grad.clone(), read(options)]
            (g,) = grad(second, w, create_graph=True)
            change(options, "times", value(7.0))
            g.sum().backward()
            found += [w.grad.clone(), read(options)]
        return found

    agree(scenario)


@pytest.mark.parametrize("is_tensor", [False, True])
@pytest.mark.parametrize("kind", KINDS_OF_ARGUMENTS)
def test_a_backward_method_finds_in_an_argument_what_is_there_by_then(agree, kind, is_tensor):
    make, read, change = KINDS_OF_ARGUMENTS[kind]
    value = lucid.tensor if is_tensor else float

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x, options):
            ctx.options = options
            return x * read(options)

        @staticmethod
        def backward(ctx, g):
            return g * read(ctx.options), None

    def scenario(compile):
        w = nn.Parameter(lucid.tensor([0.5, 2.0]))
        step = compile(lambda x, options: (Scaled.apply(w * x, options) * read(options)).sum())
        found = []
        for number in range(3):
            options = make(value(2.0))
            first = step(lucid.ones(2), options)
            if number:
                change(options, "times", value(3.0))
            first.backward(retain_graph=True)
            found += [w.grad.clone(), read(options)]
            change(options, "times", value(4.0 + number))
            first.backward()
            found += [w.grad.clone(), read(options)]
        return found

    agree(scenario)


@pytest.mark.parametrize("kind", KINDS_OF_ARGUMENTS)
def test_a_backward_method_that_runs_for_second_derivatives_finds_it_as_well(agree, kind):
    make, read, change = KINDS_OF_ARGUMENTS[kind]

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x, options):
            ctx.options = options
            return x * read(options)

        @staticmethod
        def backward(ctx, g):
            return g * read(ctx.options), None

    def scenario(compile):
        w, found = nn.Parameter(lucid.tensor([0.5, 2.0])), []
        step = compile(lambda x, options: (Scaled.apply(w * x, options) * w * x).sum())
        for number in range(3):
            options = make(2.0)
            loss = step(lucid.ones(2), options)
            if number == 2:
                change(options, "times", 3.0)
            (g,) = grad(loss, w, create_graph=True)
            change(options, "times", 4.0 + number)
            g.sum().backward()
            found += [g, w.grad.clone(), read(options)]
        return found

    agree(scenario)
