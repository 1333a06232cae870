"""Python floats that stay inputs; the rest of Python's numbers, which choose the program."""

from __future__ import annotations

import math
from math import sqrt

import numpy as np
import pytest

import lucid
from lucid import nn


@pytest.mark.parametrize(
    "formula",
    [
        lambda a, b: a + b - 1,
        lambda a, b: 2 * a / b + b / 3,
        lambda a, b: -a * b + abs(-b),
        lambda a, b: a**2 + 2**b + +a,
        lambda a, b: 1 - a ** (1 + b),
        lambda a, b: np.float64(2) * a + a * np.float64(2),
        lambda a, b: (a if a is a else b) + True,
    ],
)
def test_arithmetic_stays_live(agree, formula):
    def scenario(compile):
        step = compile(lambda x, a, b: x * formula(a, b))
        return [step(lucid.ones(2), a, b) for a, b in [(0.5, 2.0), (1.5, 3.0), (2.5, 0.25)]]

    agree(scenario, traces=1)


@pytest.mark.parametrize(
    "formula",
    [
        lambda a: math.sqrt(a) + math.exp(-a) * sqrt(a),
        lambda a: round(a, 1) + math.floor(a) + a // 2 + a % 2,
        lambda a: divmod(a, 2)[1] + 7 // a + 7 % a,
        lambda a: np.sqrt(a) + np.float64(3) ** a + math.pow(2, a) + math.hypot(a, 3.0),
        lambda a: min(a, 1.0) + max([0.25, 1 - a, a]) - min(-0.0, a) + min(1, math.floor(a)),
        lambda a: (np.ones(2) * a + np.multiply(a, [1.0, 2.0]) - (a > np.ones(2))).sum().item(),
    ],
)
def test_functions_of_numbers_stay_live(agree, formula):
    def scenario(compile):
        step = compile(lambda x, a: x * formula(a))
        return [step(lucid.ones(2), a) for a in (0.5, 0.5, 1.5, 1.5)]

    agree(scenario, traces=1)


def test_a_tensor_of_a_number_of_numpy_has_its_dtype(agree):
    def scenario(compile):
        step = compile(lambda x, a: (lucid.tensor(np.sqrt(a)), lucid.tensor([np.exp(a), a]), x * a))
        return [step(lucid.ones(2), a) for a in (0.5, 0.5, 1.5, 1.5)]

    agree(scenario, traces=1)


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        (lambda a: float(f"{a:.3f}"), "a (a branch looked at it): 0.5 -> 1.5"),
        (lambda a: a if a > 1.0 else -a, "a > 1.0 (a branch looked at it): False -> True"),
        (lambda a: {0.5: 1.0}.get(a, 2.0), "a == 0.5 (a branch looked at it): True -> False"),
        (lambda a: len(range(int(a * 3))), "int(a * 3) (a branch looked at it): 1 -> 4"),
        (lambda a: float(a) + a.is_integer(), "a (a branch looked at it): 0.5 -> 1.5"),
        (lambda a: max(a, 1), "a < 1 (a branch looked at it): True -> False"),
        (lambda a: bool(a) + (a == 0.5), "a == 0.5 (a branch looked at it): True -> False"),
        (lambda a: (a != 0.5) + (a <= 0.9), "a != 0.5 (a branch looked at it): False -> True"),
        (lambda a: (a >= 1) + math.isnan(a), "a >= 1 (a branch looked at it): False -> True"),
        (
            lambda a: a + math.isclose(a, 0.5, abs_tol=0.3),
            "math.isclose(a, 0.5, abs_tol=0.3) (a branch looked at it): True -> False",
        ),
    ],
)
def test_what_was_seen_of_a_number_guards_the_step(agree, formula, reason):
    def scenario(compile):
        step = compile(lambda x, a: x * formula(a))
        return [step(lucid.ones(2), a) for a in (0.5, 0.5, 1.5, 1.5)]

    steps = agree(scenario, traces=2)
    assert steps[0].stats.retrace_reasons == [reason]


def test_a_branch_depends_on_its_answer_and_not_on_the_number(agree):
    def scenario(compile):
        step = compile(lambda x, a: x * a if a > 1.0 else -x * a)
        return [step(lucid.ones(2), a) for a in (0.5, 0.25, 1.5, 2.5, 0.125)]

    agree(scenario, traces=2)


def test_live_values_pass_for_floats():
    @lucid.compile
    def step(x, lr):
        assert isinstance(lr, float) and not isinstance(lr, int)
        return x * lr if isinstance(lr, (int, float)) else x

    step(lucid.ones(2), 0.5)
    assert step(lucid.ones(2), 2.5).tolist() == [2.5, 2.5]
    assert step.stats.traces == 1


def test_the_class_of_a_live_value_is_that_of_the_number(agree):
    def scenario(compile):
        rates = {float: 0.5, int: 2}
        lengths = []

        @compile
        def step(x, a):
            lengths.append(1)
            found = a, a * 2, x.sum().item(), x.numel() + a
            names = [type(number).__name__ for number in found]
            return x * rates[type(a)], names, [type(number) is float for number in found], type(a)

        return [step(lucid.ones(2), a) for a in (0.5, 1.5, 2, 2.5)]

    agree(scenario)


def test_live_values_in_tensor_functions(agree):
    def scenario(compile):
        @compile
        def step(x, a):
            y = lucid.where(x > a, x, a)
            z = lucid.full((2,), a) + lucid.tensor(a) + lucid.tensor([1.0]) * a
            x.fill_(a)
            return y, z, x.clamp(min=a), lucid.maximum(x, lucid.tensor(a)), x.pow(a), a - x

        return [step(lucid.tensor([0.1, 5.0]), a) for a in (0.5, 2.0)]

    agree(scenario)


@pytest.mark.parametrize(
    "make",
    [
        lambda x, a, n: lucid.tensor([a, 2 * a, 3.0]),
        lambda x, a, n: lucid.tensor(((a, 1), (n, a)), dtype=lucid.float64),
        lambda x, a, n: lucid.tensor([x.sum().item(), a]),
        lambda x, a, n: lucid.tensor([[x.sum(), 1], [2.0, a]]),
        lambda x, a, n: lucid.tensor([n, 7]) * lucid.as_tensor([a]),
        lambda x, a, n: lucid.tensor([x * a, x.detach()]),
    ],
)
def test_tensors_of_lists_of_live_numbers(agree, make):
    def scenario(compile):
        step = compile(make)
        return [step(lucid.ones(2) * a, a, 2) for a in (0.5, 1.5, 2.5)]

    agree(scenario, traces=1)
    with pytest.raises(lucid.ShapeError, match="nested lists need the same length"):
        lucid.compile(lambda a: lucid.tensor([[a, 1.0], [a]]))(0.5)


def test_returns_of_an_episode(agree):
    def scenario(compile):
        @compile
        def discounted(rewards):
            returns, following = [], 0.0
            for reward in reversed(rewards):
                following = reward + 0.9 * following
                returns.insert(0, following)
            return lucid.tensor(returns)

        return [discounted([float(i), 2.0, 0.5]) for i in range(4)]

    agree(scenario, traces=1)


_ROWS = lucid.arange(80.0).reshape(20, 4)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize(
    "use",
    [
        lambda x, i: x * i + (x + i) / (i + 1),
        lambda x, i: (_ROWS[i] * x, _ROWS[i : i + 5].sum(0)),
        lambda x, i: (x.sum(), i, i.item() + 0.5, int(i) + 1, f"{i}: {i:3d}", str(i), repr(i)),
        lambda x, i: x * [0.1 * k for k in range(12)][i] + np.sqrt(i) * (i**2 // 3),
        lambda x, i: (x * 2 if i >= 0 else x, i.dtype == kind_of(i), lucid.full((2,), i)),
    ],
)
def test_whole_numbers_of_numpy_become_live_as_those_of_python(agree, kind, use):
    def scenario(compile):
        step = compile(use)
        return [step(lucid.ones(4), i) for i in np.arange(12).astype(kind)]

    (step,) = agree(scenario, traces=3)
    assert not step.stats.eager_reasons


def kind_of(number):
    return np.dtype(type(number))


def test_a_whole_number_of_numpy_in_a_place_and_in_a_container_is_live(agree):
    def scenario(compile):
        state = {"i": np.int64(0)}

        @compile
        def step(x, batch):
            state["i"] += 1
            return x * state["i"] + batch["i"] * x

        return [step(lucid.ones(3), {"i": i}) for i in np.arange(12)], state["i"]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


def test_a_range_of_small_whole_numbers_of_numpy_does_not_wrap_around(agree):
    def scenario(compile):
        rows = lucid.arange(600.0).reshape(300, 2)
        step = compile(lambda i, j: rows[i:j] * 2)
        return [step(i, np.uint16(i) + 10) for i in np.arange(244, 256).astype(np.uint8)]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


def test_floats_in_nested_arguments_are_live(agree):
    def scenario(compile):
        step = compile(lambda x, table, *rest: x * table["lr"] + table["deep"][0] + rest[0])
        return [step(lucid.ones(2), {"lr": v, "deep": [v]}, v) for v in (0.5, 1.5)]

    agree(scenario, traces=1)


def test_hyper_parameters_of_all_groups_are_live(agree):
    def scenario(compile):
        a, b = nn.Linear(2, 2), nn.Linear(2, 1)
        opt = lucid.optim.AdamW(
            [{"params": a.parameters(), "lr": 0.1}, {"params": b.parameters()}], lr=0.01
        )

        @compile
        def step(x):
            opt.zero_grad()
            b(a(x)).square().sum().backward()
            opt.step()

        for i in range(5):
            for group in opt.param_groups:
                group["lr"] *= 0.9
                group["betas"] = (0.9 - 0.01 * i, 0.99)
                group["weight_decay"] = 0.01 + 0.001 * i
                group["eps"] = 1e-8 * (i + 1)
            step(lucid.ones(3, 2))
        return [a, b]

    agree(scenario, traces=1)


def test_a_weight_decay_that_becomes_zero_retraces(agree):
    def scenario(compile):
        model = nn.Linear(2, 1)
        opt = lucid.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)

        @compile
        def step(x):
            opt.zero_grad()
            model(x).square().sum().backward()
            opt.step()

        step(lucid.ones(3, 2))
        opt.param_groups[0]["weight_decay"] = 0.0
        step(lucid.ones(3, 2))
        opt.param_groups[0]["nesterov"] = False
        step(lucid.ones(3, 2))
        return [model]

    agree(scenario)


def test_an_array_of_python_numbers_that_move_is_compared_at_each_call(agree):
    def scenario(compile):
        def step(x, rate):
            rates = np.linspace(0.0, rate, 5)
            rates[0] = 9.0
            return x * float(rates[1]) + float(rates.sum())

        step = compile(step)
        return [step(lucid.ones(3), rate) for rate in (1.0, 1.0, 2.0, 2.0)]

    agree(scenario, traces=2)
