"""Results: identity, aliasing, memory; and `.grad` as eager leaves it."""

from __future__ import annotations

import fractions
import pathlib
import types

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn


def test_results_of_two_calls_never_share_memory(agree):
    def scenario(compile):
        @compile
        def step(x):
            y = x * 2
            return y, y[0], lucid.zeros(2), lucid.tensor([1.0, 2.0]), np.ones(2)

        first, second = step(lucid.ones(2, 2)), step(lucid.ones(2, 2))
        for a in (item for item in first):
            for b in second:
                assert not np.shares_memory(np.asarray(a), np.asarray(b))
        first[2].add_(1)
        first[4][:] = 5
        return [second[:4], second[4].tolist(), step(lucid.ones(2, 2))[2]]

    agree(scenario, traces=1)


def test_aliases_within_one_call_stay_aliases(agree):
    def scenario(compile):
        @compile
        def step(x):
            y = x + 1
            return y, y, y.detach(), y.t(), y[0], [y]

        a, same, detached, transposed, row, (again,) = step(lucid.ones(2, 2))
        a.mul_(3)
        return [a, detached, transposed, row, same is a, again is a, detached is a]

    agree(scenario, traces=1)


def test_a_detached_twin_of_a_result_does_not_require_grad(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(2))

        @compile
        def step(x):
            y = w * x
            return y.detach(), y

        detached, y = step(lucid.full((2,), 3.0))
        y.sum().backward()
        return [detached, y, w]

    agree(scenario, traces=1)


def test_arguments_returned_as_they_are(agree):
    def scenario(compile):
        @compile
        def step(x, y):
            y.add_(1)
            return x, x.detach(), x[0], x.t(), y, y[1:], [x, x]

        x, y = lucid.ones(2, 2, requires_grad=True), lucid.zeros(3)
        out = step(x, y)
        flags = [out[0] is x, out[1] is x, out[4] is y, out[6][0] is x]
        out[5].mul_(7)
        out[1].add_(1)
        return [out, flags, x, y]

    agree(scenario, traces=1)


def test_views_of_state_show_the_state(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.arange(4.0).reshape(2, 2))
        buffer = lucid.zeros(3)

        @compile
        def step(x):
            buffer.add_(x)
            return w, w.detach(), w[0], buffer, buffer[1:], buffer.detach()

        first, second = step(lucid.ones(3)), step(lucid.ones(3))
        first[4].fill_(9)
        (second[2] * 2).sum().backward()
        return [first, second, first[0] is w, first[3] is buffer, first[5] is second[5], w, buffer]

    agree(scenario, traces=1)


def test_gradients_may_be_returned(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(2))

        @compile
        def step(x):
            before = w.grad
            (w * x).sum().backward()
            return before, w.grad

        outs = []
        for scale in (1.0, 2.0):
            outs.append(step(lucid.full((2,), scale)))
            assert outs[-1][1] is w.grad
        w.grad = None
        outs.append(step(lucid.ones(2)))
        return [outs, w]

    agree(scenario)


def test_python_results_pass(agree):
    def scenario(compile):
        @compile
        def step(x, lr):
            return {"n": 3, "s": "text", "none": None, "lr": lr * 2 + 1, "shape": x.shape}, (), []

        first = step(lucid.ones(2), 0.5)
        return [list(first), list(step(lucid.ones(2), 1.5)), type(first[0]["lr"]) is float]

    agree(scenario, traces=1)


# ---------------------------------------------------------------------- .grad


def test_a_path_is_a_value(agree):
    def scenario(compile):
        state = types.SimpleNamespace(folder="runs", last=None)

        @compile
        def step(x):
            state.last = pathlib.Path(state.folder) / "last.pt"
            return x * 2, state.last.with_suffix(".txt").as_posix(), state.last.parent

        results = [(*step(lucid.ones(3)), str(state.last)) for _ in range(2)]
        state.folder = "other"
        return [(x, text, str(parent), last) for x, text, parent, last in results], str(
            step(lucid.ones(3))[2]
        )

    (step,) = agree(scenario, traces=2)
    assert not step.stats.eager_reasons


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_zero_grad_before_or_after(agree, set_to_none, first):
    def scenario(compile):
        model = nn.Linear(3, 2)
        opt = lucid.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        @compile
        def step(x):
            if first:
                opt.zero_grad(set_to_none=set_to_none)
            loss = model(x).square().mean()
            loss.backward()
            opt.step()
            if not first:
                opt.zero_grad(set_to_none=set_to_none)
            return loss

        x = lucid.arange(6.0).reshape(2, 3)
        return [[step(x).detach() for _ in range(4)], model]

    agree(scenario)


def test_gradients_accumulate_into_the_same_tensor(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(2))
        w.grad = lucid.full((2,), 10.0)
        held = w.grad

        @compile
        def step(x):
            (w * x).sum().backward()

        step(lucid.ones(2))
        step(lucid.ones(2))
        return [held, w.grad is held, w]

    agree(scenario, traces=1)


def test_two_backward_calls_in_one_step_accumulate(agree):
    def scenario(compile):
        model = nn.Linear(3, 1)
        opt = lucid.optim.Adam(model.parameters(), lr=0.1)

        @compile
        def step(a, b):
            opt.zero_grad()
            (model(a).square().mean() / 2).backward()
            (model(b).square().mean() / 2).backward()
            opt.step()

        for i in range(3):
            step(lucid.ones(2, 3) + i, lucid.ones(2, 3) - i)
        return [model]

    agree(scenario, traces=1)


def test_accumulation_over_calls_with_a_step_now_and_then(agree):
    def scenario(compile):
        model = nn.Linear(3, 1)
        opt = lucid.optim.SGD(model.parameters(), lr=0.1)

        @compile
        def accumulate(x):
            loss = model(x).square().mean() / 2
            loss.backward()
            return loss

        @compile
        def update():
            opt.step()
            opt.zero_grad()

        losses = []
        for i in range(6):
            losses.append(accumulate(lucid.ones(2, 3) + i).detach())
            if i % 2:
                update()
        return [losses, model]

    steps = agree(scenario)
    assert [step.stats.traces for step in steps] == [2, 1]
    assert steps[0].stats.retrace_reasons == ["model.bias.grad: None -> f32[1]"]


def test_gradients_of_arguments(agree):
    def scenario(compile):
        @compile
        def step(x, y):
            (x * x * y).sum().backward()
            return x.grad

        x, y = lucid.full((2,), 3.0, requires_grad=True), lucid.full((2,), 2.0)
        outs = [step(x, y), step(x, y)]
        other = lucid.ones(2, requires_grad=True)
        return [outs, step(other, y), x, y, other]

    agree(scenario, traces=2)


def test_a_gradient_flows_on_into_what_the_argument_was_computed_from(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.tensor([2.0, 3.0]))

        @compile
        def step(h):
            (h * h).sum().backward()

        step(w * 5)
        step(w * 2)
        return [w]

    (step,) = agree(scenario)
    assert set(step.stats.eager_reasons) == {
        "a backward() in it goes on into the history of an argument, outside, by Mul"
    }


def test_an_argument_computed_from_what_the_step_updates(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(2))

        @compile
        def step(h):
            w.grad = None
            (h * w).sum().backward()
            with lucid.no_grad():
                w.sub_(w.grad * 0.1)

        for _ in range(3):
            step(w * 2)
        return [w]

    agree(scenario)


def test_flags_of_parameters_are_guarded(agree):
    def scenario(compile):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))

        @compile
        def step(x):
            model.zero_grad()
            model(x).sum().backward()

        step(lucid.ones(1, 2))
        model[0].requires_grad_(False)
        model.zero_grad()
        step(lucid.ones(1, 2))
        return [model]

    steps = agree(scenario, traces=2)
    assert steps[0].stats.retrace_reasons == ["model.0.weight.requires_grad: True -> False"]


def test_dropout_of_a_gradient_set_by_hand(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(2))
        opt = lucid.optim.SGD([w], lr=1.0)

        @compile
        def step(x):
            w.grad = F.relu(x)
            opt.step()

        step(lucid.tensor([1.0, -1.0]))
        step(lucid.tensor([2.0, -1.0]))
        return [w]

    agree(scenario, traces=1)


def test_a_gradient_that_is_returned_is_the_one_of_now(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(2))
        step = compile(lambda x: (w.grad, w.grad[0], w.grad.detach(), w.grad * x))
        found = []
        for n in range(3):
            w.grad = lucid.full((2,), float(n))
            found.append(step(lucid.ones(2)))
            assert found[-1][0] is w.grad
            found[-1][1].add_(10)
        return found

    agree(scenario, traces=1)


def test_a_leaf_that_the_step_made_has_its_gradient(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.tensor([2.0, 3.0]))

        @compile
        def step(x):
            made = (x * 2).detach().requires_grad_()
            (made * made * w).sum().backward()
            return made, made.grad, made.detach(), lucid.ones(2, requires_grad=True)

        found = step(lucid.tensor([1.0, 2.0]))
        assert found[0].grad is found[1]
        (found[0] * 3 + found[3]).sum().backward()
        return [found, w]

    agree(scenario, traces=1)


def test_a_leaf_that_the_step_trained_is_returned_with_its_gradient(agree):
    def scenario(compile):
        @compile
        def fit(x):
            w = lucid.zeros(2, requires_grad=True)
            b = nn.Parameter(lucid.zeros(1))
            for _ in range(3):
                loss = ((w * x + b - 1) ** 2).sum()
                loss.backward()
                with lucid.no_grad():
                    for p in (w, b):
                        p -= 0.1 * p.grad
                w.grad.zero_()
                b.grad = None
            return {"w": w, "b": b, "loss": loss, "shown": w.detach()}

        found = [fit(lucid.tensor([1.0, float(i)])) for i in range(3)]
        for each in found:
            with pytest.raises(lucid.LucidError, match="backward through the graph a second time"):
                each["loss"].backward()
            (each["w"] * each["b"]).sum().backward()
            with lucid.no_grad():
                each["w"].add_(1)
        return [[x["w"], x["b"], x["loss"].detach(), x["shown"]] for x in found]

    agree(scenario, traces=1)


def test_a_detached_argument_may_be_differentiated_in_each_call(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.tensor([2.0, 3.0]))

        @compile
        def step(x):
            w.grad = None
            x = x.detach().requires_grad_()
            (x * x * w).sum().backward()
            return x.grad

        given = lucid.tensor([1.0, 2.0])
        return [[step(given) for _ in range(3)], given, w]

    agree(scenario, traces=1)


def counting():
    count = 0

    def next_one():
        nonlocal count
        count += 1
        return count

    return next_one


class Holder:
    def __init__(self, value):
        self.value = value

    def get(self):
        return self.value


@pytest.mark.parametrize(
    "make",
    [
        lambda number, n: lambda: number,
        lambda number, n: lambda n=n: n,
        lambda number, n: lambda tensor=lucid.ones(2) * number: tensor,  # noqa: B008
        lambda number, n: Holder(number).get,
        lambda number, n: slice(0, n),
        lambda number, n: type("Named", (), {"n": n}),
        lambda number, n: lambda: 3.0,
        lambda number, n: counting(),
        lambda number, n: (lambda found: lambda: found.append(1) or len(found))([]),
    ],
)
@pytest.mark.parametrize("is_kept", [False, True])
def test_functions_with_values_of_the_call_are_no_constants(agree, make, is_kept):
    def read(found):
        if isinstance(found, slice):
            return [10, 20, 30, 40, 50][found]
        return found.n if isinstance(found, type) else [found(), found()]

    def scenario(compile):
        state = types.SimpleNamespace(n=0, kept=None)

        @compile
        def step(x):
            state.n += 1
            made = make(x.sum().item(), state.n)
            if is_kept:
                state.kept = made
                return x
            return made

        found = [step(lucid.ones(2) * i) for i in range(4)]
        return [read(each) for each in ([state.kept] if is_kept else found)]

    (step,) = agree(scenario)
    assert "which no call can make again" in step.stats.eager_reasons[0]


def test_of_objects_that_each_call_makes_anew_the_reason_is_said_once(caplog):
    step = lucid.compile(lambda x, n: (x, fractions.Fraction(n, 3)))
    found = [step(lucid.ones(2), n)[1] for n in range(4)]
    assert found == [fractions.Fraction(n, 3) for n in range(4)]
    assert caplog.text.count("which no call can make again") == 1


def test_functions_that_were_there_are_returned_natively(agree):
    def scenario(compile):
        found = []
        twice = lambda y: y * 2  # noqa: E731

        @compile
        def step(x):
            return x, twice, found.append, Holder.get, slice(0, 2)

        return [step(lucid.ones(2))[1](2.0) for _ in range(3)]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons
