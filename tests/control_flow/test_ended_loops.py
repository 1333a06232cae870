"""Python loops that end on a value: one program for every number of rounds, and eager's values."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import linecache
import logging
import random
import re
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from fuzzing import many

import lucid
from lucid.compiler.recording.loops import ended_loops
from lucid.ir.types import f64
from lucid.tensor.tree import flatten

W = lucid.tensor(0.4 * np.random.default_rng(1).normal(size=(3, 3)), dtype=f64)
STARTS = (0.0, 1e-3, 0.3, 2.0, 70.0, 1e-3, 900.0)


def values(x: Any) -> list[Any]:
    x = [*x.values()] if isinstance(x, dict) else x
    if isinstance(x, (tuple, list)):
        return [len(x), *(z for y in x for z in values(y))]
    return [x.detach().numpy().copy() if isinstance(x, lucid.Tensor) else x]


def traces(step: Callable[..., Any], starts: Sequence[float] = STARTS, **options: Any) -> int:
    """Compare a compiled step with eager mode; how often it is traced."""
    compiled = lucid.compile(step, **options)
    for start in starts:
        x = start * lucid.tensor([1.0, -0.5, 0.25], dtype=f64)
        lucid.manual_seed(0)
        wanted = values(step(x))
        lucid.manual_seed(0)
        for one, other in zip(values(compiled(x)), wanted, strict=True):
            assert type(one) is type(other)
            assert type(one) is not int or one == other
            if type(one) is not int:  # which may be larger than those of NumPy
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert not compiled.stats.eager_reasons
    return compiled.stats.traces


def told(step: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    """What a step returns, and what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        return step(*args), out.getvalue()


def assert_alike(text: str, other: str) -> None:
    """Compare texts whose numbers may be rounded otherwise in their last digits."""
    number = r"-?\d+\.\d+(?:e[-+]\d+)?"
    assert re.sub(number, "", text) == re.sub(number, "", other)
    pairs = zip(re.findall(number, text), re.findall(number, other), strict=True)
    for one, wanted in pairs:
        np.testing.assert_allclose(float(one), float(wanted), rtol=1e-7, atol=2e-3)


def test_a_fixed_point_by_a_for_with_a_break() -> None:
    def step(x: Any) -> Any:
        for _ in range(100):
            new = lucid.tanh(W @ x) + 1
            err = (new - x).abs().max()
            x = new
            if err.item() < 1e-6:
                break
        return x, err

    assert traces(step) == 1


def test_a_while_that_makes_no_round_has_a_path_of_its_own() -> None:
    def step(x: Any) -> Any:
        while x.norm() > 1:
            x = x / 2
        return x

    assert traces(step, [70.0, 3.0, 900.0, 1e9]) == 1
    assert traces(step) == 2


def test_the_number_of_rounds_is_known_behind_the_loop() -> None:
    def step(x: Any) -> Any:
        err, rounds = float("inf"), 0
        while err > 1e-6 and rounds < 100:
            rounds += 1
            new = lucid.tanh(W @ x) + 1
            err, x = (new - x).abs().max().item(), new
        return x, rounds, err, x * rounds

    assert traces(step) == 1


def test_a_loop_is_over_or_left() -> None:
    def step(x: Any) -> Any:
        for k in range(12):
            x = x * 0.5
            if x.abs().max() < 1e-2:
                break
            x = x - 1e-4 * k
        else:
            return x * 100, k
        return x, k

    assert traces(step) == 3  # the first round's answer, and two ends
    assert traces(step, [70.0, 900.0, 2.0, 0.3]) == 2


def test_a_while_true_and_a_look_in_a_function() -> None:
    def is_close(a: Any, b: Any) -> bool:
        return lucid.allclose(a, b, atol=1e-6)

    def step(x: Any) -> Any:
        while True:
            new = lucid.tanh(W @ x) + 1
            if is_close(new, x):
                break
            x = new
        return new, x

    assert traces(step) == 1


def test_newtons_method_and_its_gradient() -> None:
    """Also where the native loop makes no round."""

    def step(x: Any) -> Any:
        a = (x.abs().sum() + 0.9).requires_grad_()
        root = a
        for k in range(60):  # noqa: B007
            new = 0.5 * (root + a / root)
            if (new - root).abs() < 1e-6 * new.abs():
                break
            root = new
        (gradient,) = lucid.autograd.grad(root, a)
        return root.detach(), gradient, k

    assert traces(step, [*STARTS, 0.05, 0.06, 0.1]) <= 3  # with stacks that hold enough rounds


def test_gradients_within_rounds() -> None:
    def step(x: Any) -> Any:
        for _ in range(50):
            x = x.detach().requires_grad_()
            (gradient,) = lucid.autograd.grad((x**2 + lucid.cos(x)).sum(), x)
            x = x - 0.3 * gradient
            if gradient.abs().max().item() < 1e-6:
                break
        return x.detach()

    assert traces(step) == 2


def test_training_on_the_solution_of_an_inner_loop() -> None:
    def program(compile: Callable[..., Any]) -> list[Any]:
        w = W.clone().requires_grad_()
        opt = lucid.optim.SGD([w], lr=0.05)

        @compile
        def step(x: Any) -> Any:
            opt.zero_grad()
            z = lucid.zeros(3, dtype=f64)
            for _ in range(100):
                new = lucid.tanh(w @ z + x)
                err = (new - z).abs().max()
                z = new
                if err.item() < 1e-6:
                    break
            loss = (z * z).sum()
            loss.backward()
            opt.step()
            return loss.detach()

        found = [step(start * lucid.ones(3, dtype=f64)).item() for start in STARTS]
        if compile is lucid.compile:
            assert step.stats.traces <= 2  # one with stacks of 64 rounds
        return [*found, *values(w)]

    for one, other in zip(program(lucid.compile), program(lambda step: step), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_rounds_that_branch() -> None:
    """An adaptive step that is accepted or not: both ways are one body."""

    def step(x: Any) -> Any:
        t, h, accepted, y = lucid.tensor(0.0, dtype=f64), 0.5, 0, x.clone()
        while t < 2:
            k1 = -y * y.abs()
            new = y + h * k1
            err = (h * (-new * new.abs() - k1)).abs().max().item()
            if err < 1e-1:
                t, y = t + h, new
                accepted += 1
                h = h * 1.5
            else:
                h = h * 0.5
        return y, accepted, h

    assert traces(step) == 2


def test_a_condition_that_is_known_until_a_branch_is_taken() -> None:
    def step(x: Any) -> Any:
        t, h, rounds = lucid.tensor(0.0, dtype=f64), 1.0, 0
        while t < 1:
            rounds += 1
            if (h * x).abs().max() < 0.1:
                t = t + h
            else:
                h = h * 0.5
        return t, h, rounds

    assert traces(step, [2.0, 0.3, 2.0, 70.0, 0.6]) == 1


def test_the_best_of_all_rounds() -> None:
    def step(x: Any) -> Any:
        best, least, at = x, lucid.tensor(1e9, dtype=f64), 0
        for k in range(40):
            x = 0.8 * x + 0.1 * lucid.sin(9 * x)
            loss = (x * x).sum()
            if loss < 0.999 * least:
                best, least, at = x, loss, k
            if least < 0.05:
                break
        return best + 0, least, at, k

    assert traces(step) <= 4


def test_memory_that_may_be_shared_behind_branches_is_not_written_apart() -> None:
    def step(x: Any) -> Any:
        best, n = x * 1, 0
        while x.abs().max() > 1e-2:
            x = x * 0.5
            n += 1
            if (x.sum() * 7) % 2 > 1:
                best = x
        best.add_(1)
        return best + x, n

    traces(step)


def _views(x: Any) -> Any:
    first = x[0]
    while x.abs().max() > 1e-2:
        x = x * 0.5
        first = x[0]
    return first, x


def _the_best(x: Any) -> Any:
    best, least = x, 1e9
    for _ in range(40):
        x = x * 0.8
        loss = x.pow(2).sum().item()
        if loss < least:
            best, least = x, loss
        if loss < 0.01:
            break
    return best, x


def _the_best_in_an_object(x: Any) -> Any:
    held = {"best": x * 1}
    for _ in range(40):
        x = x * 0.8
        if x.sum() > 0.5:
            held["best"] = x
        if x.abs().max() < 0.1:
            break
    return held, x


def _the_argument_itself(x: Any) -> Any:
    best = x
    for _ in range(30):
        x = x * 0.5 + 0.01
        if x.sum() > 0.3:
            best = x * 2
        if x.abs().max() < 0.1:
            break
    return best, x


def _behind_another_loop(x: Any) -> Any:
    best = x
    while x.abs().max() > 0.5:
        x = x * 0.5
        if x.sum() > 0.2:
            best = x
    other = best * 0
    while x.abs().max() > 1e-2:
        other = best
        x = x * 0.7
    return best, other


def _written_behind(x: Any) -> Any:
    first = x[0]
    while x.abs().max() > 1e-2:
        x = x * 0.5
        first = x[0]
    first.add_(1)
    return x * 1


@pytest.mark.parametrize(
    "step",
    [
        *(_views, _the_best, _the_best_in_an_object, _the_argument_itself),
        *(_behind_another_loop, _written_behind),
    ],
)
def test_memory_that_is_shared_behind_a_loop_is_one_memory(step: Callable[..., Any]) -> None:
    """The caller sees what it writes by one name by the others as well, its argument too."""

    def program(step: Callable[..., Any]) -> list[Any]:
        seen = []
        for start in (70.0, 0.015, 0.3, 0.03, 0.0, 900.0, 2.0, 0.3):
            x = start * lucid.tensor([1.0, -0.5, 0.25], dtype=f64)
            found = _tensors(step(x))
            for tensor in found:
                tensor.add_(1)
            seen += values([x, *found])
        return seen

    for one, other in zip(program(lucid.compile(step)), program(step), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def _tensors(x: Any) -> list[Any]:
    if isinstance(x, lucid.Tensor):
        return [x]
    return [z for y in (x.values() if isinstance(x, dict) else x) for z in _tensors(y)]


def test_the_latest_and_the_one_before_are_new_memory() -> None:
    """As a loop that never shares memory is one native loop, whatever of it is returned."""

    def step(x: Any) -> Any:
        old = x * 0
        while (x - old).abs().max() > 1e-3:
            old, x = x, x * 0.5 + 0.1
        return old, x

    assert traces(step, [*STARTS, 0.5, 5.0, 50.0, 500.0]) <= 4


def test_ints_of_python_have_more_than_64_bits() -> None:
    """What multiplies them, or adds them to each other in a circle, isn't made natively."""

    def doubled(x: Any) -> Any:
        k, inverse = 1, x * 0
        while x.abs().max() > 1e-2:
            x, k = x * 0.7, k * 4
            inverse = inverse + x / k
        return x, k, inverse

    def fibonacci(x: Any) -> Any:
        a, b = 1, 1
        while x.abs().max() > 1e-2:
            x, a, b = x * 0.9, b, a + b
        return x, a, b

    def by_two_ways(x: Any) -> Any:
        a, b = 1, 1
        while x.abs().max() > 1e-2:
            x = x * 0.9
            if (x.sum() * 8) % 2 > 1:
                a = a + b
            else:
                b = a + b
        return x, a, b

    for step in (doubled, fibonacci, by_two_ways):
        traces(step, [0.1, 0.3, 9e9])


def test_sums_of_counters_are_numbers_of_a_native_loop() -> None:
    def step(x: Any) -> Any:
        n, total, left, at = 0, 0, 700, 50
        while x.abs().max() > 1e-2:
            n += 1
            total += 2 * n
            left, at = max(left - n, 0), at % 7 + 1
            x = x * 0.7
        return x, n, total, left, at

    assert traces(step, [*STARTS, 5.0, 50.0, 500.0, 5000.0]) == 2


def test_a_branch_in_what_is_differentiated_is_a_path() -> None:
    def step(x: Any) -> Any:
        a = x.clone().requires_grad_()
        y = a * 1
        for _ in range(20):
            y = lucid.where(y > 0, y, -y).sqrt() if y.sum() > 0.5 else y * 0.5 + 0.1
            if y.sum() < 0.6:
                break
        (gradient,) = lucid.autograd.grad(y.sum(), a)
        return y.detach(), gradient

    traces(step, [0.3, 2.0, 0.3, 1.0])


def test_another_look_ends_the_loop_as_well() -> None:
    def step(x: Any) -> Any:
        loss = x.sum()
        for k in range(50):  # noqa: B007
            x = x * x + 0.1
            loss = x.sum()
            if lucid.isnan(loss):
                break
            if loss.abs() > 1e6:
                x = x / loss
                break
        return x, loss, k

    assert traces(step) <= 6


def test_a_round_that_is_undone_has_no_gradient() -> None:
    """Its values may be infinite, of which 0 times is a NaN."""

    def step(x: Any) -> Any:
        a = (x.abs().sum() + 1.5).requires_grad_()
        y = a
        while y < 1e30:
            z = y * y
            if z > 1e4:
                break
            y = z + lucid.sqrt(1e4 - z)
        (gradient,) = lucid.autograd.grad(y, a)
        return y.detach(), gradient

    traces(step, [0.0, 0.1, 0.2, 0.5, 2.0, 0.01])


def test_random_numbers_go_on_behind_the_loop() -> None:
    def step(x: Any) -> Any:
        sample = lucid.rand(3, dtype=f64)
        while sample.sum() > 0.4 + x.abs().sum():
            sample = lucid.rand(3, dtype=f64)
        return sample, lucid.rand(2)

    assert traces(step) <= 3


def test_objects_that_rounds_change() -> None:
    class State:
        def __init__(self, x: Any) -> None:
            self.x, self.rounds = x, 0

    def step(x: Any) -> Any:
        state = State(x)
        while True:
            state.x = state.x * 0.5
            state.rounds += 1
            if state.x.abs().max() < 1e-2:
                break
        return state.x, state.rounds

    traces(step)


def test_what_rounds_take_from_an_iterator_is_theirs() -> None:
    def step(x: Any) -> Any:
        numbers = iter([0.5, 0.25, 2.0, 0.1, 0.5, 0.01, 0.5, 0.1, 0.3, 0.2, 0.1])
        while x.abs().max() > 0.02:
            x = x * next(numbers)
        return x

    traces(step)


def test_a_long_while_is_looked_at_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it can be interrupted."""
    monkeypatch.setattr(ended_loops, "_MOST_ROUNDS", 8)

    def step(x: Any) -> Any:
        n = 0
        while x.abs().max() > 1e-2:
            x = x * 0.7
            n += 1
        return x, n

    traces(step, [2.0, 70.0, 0.3, 900.0])


def test_loops_in_loops() -> None:
    def step(x: Any) -> Any:
        total = 0
        for _ in range(3):
            while x.abs().max() > 0.1:
                x = x * 0.6
                total += 1
            x = x * 8
        return x, total

    traces(step)


def test_a_nan_ends_the_loop_or_not_as_in_eager_mode() -> None:
    def step(x: Any) -> Any:
        n = 0
        while not x.max() < 0.1:
            x = x * 0.5
            n += 1
            if n > 20:
                break
        return x, n

    traces(step, [*STARTS, float("nan"), float("inf")])


@pytest.mark.parametrize("patience", [3, 5])
def test_training_until_nothing_gets_better(patience: int) -> None:
    """A counter ends it, which a branch counts; the best weights are kept."""

    def step(x: Any) -> Any:
        w = x.clone().requires_grad_()
        opt = lucid.optim.SGD([w], lr=0.02)
        best, wait, kept = float("inf"), 0, w.detach().clone()
        for epoch in range(60):  # noqa: B007
            opt.zero_grad()
            loss = (w**2).sum() + 2 * lucid.cos(3 * w).sum()
            loss.backward()
            opt.step()
            if loss.item() < best - 1e-4:
                best, wait, kept = loss.item(), 0, w.detach().clone()
            else:
                wait += 1
            if wait == patience:
                break
        return w.detach(), w.grad, loss.detach(), best, kept, epoch

    assert traces(step) <= 4


def test_a_model_is_trained_until_it_fits() -> None:
    def program(compile: Callable[..., Any]) -> list[Any]:
        lucid.manual_seed(0)
        net = lucid.nn.Linear(3, 1, dtype=f64)
        opt = lucid.optim.Adam(net.parameters(), lr=0.05)
        data = lucid.randn(12, 3, dtype=f64)

        @compile
        def fit(x: Any) -> Any:
            for epoch in range(80):  # noqa: B007
                opt.zero_grad()
                loss = ((net(data)[:, 0] - data @ x) ** 2).mean()
                loss.backward()
                opt.step()
                if loss.item() < 0.1:
                    break
            return loss.detach(), epoch

        found = []
        for start in (0.3, 1.0, 0.1, 0.9, 0.5, 1.0):
            found += values(fit(start * lucid.tensor([1.0, -0.5, 0.25], dtype=f64)))
            found += values([x.grad for x in net.parameters()])
        if compile is lucid.compile:
            assert fit.stats.traces <= 3 and not fit.stats.eager_reasons
        return [*found, *values([*net.parameters()])]

    for one, other in zip(program(lucid.compile), program(lambda step: step), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_gradients_that_add_up_over_rounds() -> None:
    def step(x: Any) -> Any:
        w = x.clone().requires_grad_()
        for _ in range(40):
            ((w - 1) ** 2).sum().backward()
            with lucid.no_grad():
                w -= 0.05 * w.grad
                if w.grad.norm().item() < 1e-2:
                    break
                w.grad.mul_(0.5)
        return w.detach(), w.grad

    assert traces(step) <= 4


def test_a_loss_that_rounds_differentiate_has_no_part_in_what_is_differentiated_later() -> None:
    net = lucid.nn.Sequential(lucid.nn.Linear(3, 4), lucid.nn.BatchNorm1d(4)).double()
    data = lucid.randn(8, 3, dtype=f64)

    def step(start: Any) -> Any:
        net.zero_grad()
        first = x = start.clone().requires_grad_()
        for _ in range(9):
            old, x = x, x * 0.5
            loss = (net(data) ** 2).mean()
            loss.backward()
            if (x - old).abs().max() < 0.05:
                break
        ((x * 2 + 1) ** 2).sum().backward()
        return first.grad, loss.detach(), [p.grad.clone() for p in net.parameters()]

    assert traces(step) <= 4


class _Scaled(lucid.autograd.Function):
    """Its ctx holds a tensor, and a number that each call has."""

    @staticmethod
    def forward(ctx: Any, x: Any, by: float) -> Any:
        ctx.x, ctx.by = x, by * 2
        return x.sin() * by

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.x.cos() * ctx.by / 2, None


def a_look_before_each_backward(loss_of: Any, opt: Any, bound: float) -> Any:
    loss = loss_of()
    while loss > bound:
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss = loss_of()
    return loss


def two_looks_before_each_backward(loss_of: Any, opt: Any, bound: float) -> Any:
    loss, rounds = loss_of(), 0
    while loss.item() > bound and rounds < 70:
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss = loss_of()
        rounds += 1
    return loss.detach(), rounds


def an_early_stop(loss_of: Any, opt: Any, bound: float) -> Any:
    losses = []
    for _ in range(90):
        loss = loss_of()
        losses.append(loss.item())
        if not lucid.isfinite(loss) or loss < bound:
            break
        opt.zero_grad()
        loss.backward()
        opt.step()
    return losses


def the_best_so_far(loss_of: Any, opt: Any, bound: float) -> Any:
    best, wait = float("inf"), 0
    for epoch in range(80):  # noqa: B007
        loss = loss_of()
        if loss.item() < best - bound / 100:
            best, wait = loss.item(), 0
        else:
            wait += 1
        if wait == 3:
            break
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.detach(), best, epoch


def what_is_differentiated_behind(loss_of: Any, opt: Any, bound: float) -> Any:
    before, loss = loss_of(), loss_of()
    while loss > bound:
        opt.zero_grad()
        loss.backward()
        opt.step()
        before, loss = loss, loss_of()
    opt.zero_grad()
    (loss * 2).backward()
    return loss.detach(), before.detach()


@pytest.mark.parametrize(
    "fit",
    [
        a_look_before_each_backward,
        two_looks_before_each_backward,
        an_early_stop,
        the_best_so_far,
        what_is_differentiated_behind,
    ],
)
@pytest.mark.parametrize("kind", ["adam", "dropout", "function"])
def test_rounds_that_differentiate_what_was_there_at_the_look(kind: str, fit: Any) -> None:
    """What nodes have saved is carried; so are statistics, and random numbers."""

    def program(compile: Callable[..., Any]) -> list[Any]:
        lucid.manual_seed(3)
        inner = [lucid.nn.BatchNorm1d(4), lucid.nn.Dropout(0.1)] if kind == "dropout" else []
        net = lucid.nn.Sequential(lucid.nn.Linear(3, 4), *inner, lucid.nn.ReLU(inplace=True))
        net = lucid.nn.Sequential(net, lucid.nn.Linear(4, 1)).double()
        first = {name: x.clone() for name, x in net.state_dict().items()}
        data, wanted = lucid.randn(12, 3, dtype=f64), lucid.randn(12, 1, dtype=f64)
        adam = lucid.optim.Adam(net.parameters(), lr=0.03)
        opt = adam if kind == "adam" else lucid.optim.SGD(net.parameters(), lr=0.05)

        def loss_of() -> Any:
            found = net(data)
            found = (
                _Scaled.apply(found, opt.param_groups[0]["lr"] * 30)
                if kind == "function"
                else found
            )
            return ((found - wanted) ** 2).mean()

        step, found = compile(lambda bound: fit(loss_of, opt, bound)), []
        start = float(loss_of())
        for part in (0.6, 0.9, 0.7, 0.8, 0.65, 0.75):
            net.load_state_dict(first)
            lucid.manual_seed(4)
            result = step(part * start)
            found += values(result)
            if isinstance(result, lucid.Tensor):
                assert result.requires_grad
                net.zero_grad()
                result.backward()
            found += values([[*net.state_dict().values()], [x.grad for x in net.parameters()]])
        if compile is lucid.compile:
            assert step.stats.traces <= 3 and not step.stats.eager_reasons
        return found

    for one, other in zip(program(lucid.compile), program(lambda step: step), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-12)


def test_newtons_method_makes_a_leaf_in_each_round() -> None:
    """Whose second derivative is that of a gradient with a graph, taken before the look."""

    def step(c: Any) -> Any:
        x = (c * 0 + 2.0).requires_grad_()
        (slope,) = lucid.autograd.grad(((x - c) ** 4).sum() + (x * x).sum(), x, create_graph=True)
        while slope.abs().max() > 1e-9:
            (second,) = lucid.autograd.grad(slope.sum(), x)
            x = (x - slope / second).detach().requires_grad_()
            value = ((x - c) ** 4).sum() + (x * x).sum()
            (slope,) = lucid.autograd.grad(value, x, create_graph=True)
        return x.detach(), slope.detach()

    assert traces(step) <= 2


def test_two_losses_and_gradients_that_add_up_behind_a_look() -> None:
    def step(x: Any) -> Any:
        w, v = ((x + i).clone().requires_grad_() for i in (1.5, 1.0))
        one, other = ((w - 0.2) ** 2).sum(), (v * v).exp().sum() + (w * v).sum() / 9
        while one + other > 3.5:
            (one / 2).backward(retain_graph=True)
            (one / 2 + other).backward()
            with lucid.no_grad():
                for leaf in (w, v):
                    leaf -= 0.02 * leaf.grad
                    leaf.grad.mul_(0.5)
            one, other = ((w - 0.2) ** 2).sum(), (v * v).exp().sum() + (w * v).sum() / 9
        return one.detach(), other.detach(), w.grad, v.grad, w.detach(), v.detach()

    assert traces(step, [0.0, 0.1, 0.25, -0.1, 0.3, -0.3]) <= 2


def test_a_tensor_that_was_saved_before_a_look_is_not_written_unseen() -> None:
    w = lucid.tensor([1.0, 2.0, 3.0], dtype=f64, requires_grad=True)

    def step(bound: Any) -> Any:
        out = (w - 0.5).exp()
        loss = out.sum()
        while loss > bound:
            w.grad = None
            loss.backward()
            with lucid.no_grad():
                w.sub_(0.1 * w.grad)
            out = (w - 0.5).exp()
            loss = out.sum()
        with lucid.no_grad():
            out.mul_(2)
        return loss

    for run in (step, lucid.compile(step)):
        for bound in (9.0, 6.0):
            with lucid.no_grad():
                w.copy_(lucid.tensor([1.0, 2.0, 3.0], dtype=f64))
            with pytest.raises(lucid.LucidError, match="modified by an inplace operation"):
                run(lucid.tensor(bound)).backward()


def test_bisection_branches_and_ends_by_its_number() -> None:
    def step(x: Any) -> Any:
        c = x.abs().sum() + 0.1
        low, high, moved = c * 0, c + 1, 0
        for _ in range(40):
            middle = (low + high) / 2
            if middle**3 + middle > c:
                high = middle
            else:
                low, moved = middle, moved + 1
        return low, high, moved

    assert traces(step) <= 4


def test_branches_that_write() -> None:
    def step(x: Any) -> Any:
        x, kept, n = x * 1, lucid.zeros(3, dtype=f64), 0
        while n < 30:
            if x.norm() > 0.5:
                x *= 0.8
                kept[0] += 1
            else:
                x += 0.1
                kept.add_(x)
            n += 1
        return x, kept

    assert traces(step) <= 4


def test_branches_that_write_what_they_share() -> None:
    """What a branch has bound to a tensor sees what another one writes to that later."""

    def step(x: Any) -> Any:
        x, buffer, n = x * 1, lucid.zeros(3, dtype=f64), 0
        seen = x * 2
        while n < 30:
            if (x.sum() * 8) % 2 > 1:
                seen = buffer
            else:
                buffer += x
            x = x * 0.9
            n += 1
        return seen * 1, buffer * 1, x

    traces(step, [0.3, 2.0, 0.7])


def test_an_answer_that_is_kept_in_a_variable() -> None:
    def a_break(x: Any) -> Any:
        for k in range(60):  # noqa: B007
            old, x = x, 0.8 * x + 0.1 * lucid.cos(x)
            done = (x - old).abs().max().item() < 1e-5
            x = x * 1
            if done:
                break
        return x, k, done

    def a_condition(x: Any) -> Any:
        done, rounds = False, 0
        while not done and rounds < 50:
            old, x = x, 0.8 * x + 0.1 * lucid.cos(x)
            done = bool((x - old).abs().max() < 1e-5)
            rounds += 1
        return x, rounds, done

    for step in (a_break, a_condition):
        assert traces(step, [2.0, 70.0, 0.3, 900.0]) <= 2


def test_two_conditions_end_a_loop_together() -> None:
    def step(x: Any) -> Any:
        for k in range(60):  # noqa: B007
            old, x = x, 0.8 * x + 0.1 * lucid.cos(x)
            if (x - old).abs().max() < 1e-5 and (x.sum() - old.sum()).abs() < 1e-5:
                break
        return x, k

    assert traces(step, [2.0, 70.0, 0.3, 900.0]) <= 2


def test_the_state_of_rounds_in_tuples_and_deques() -> None:
    class State(NamedTuple):
        x: Any
        n: int
        rate: float

    def step(x: Any) -> Any:
        state, latest = State(x, 0, 1.0), deque(maxlen=2)
        while True:
            latest.append(state.x)
            state = State(0.4 * sum(latest), state.n + 1, state.rate * 0.9)
            if state.x.abs().max() < 1e-2:
                break
        return state, latest[0] * 1

    assert traces(step, [2.0, 70.0, 0.3, 900.0]) <= 2


def test_what_a_round_has_made_and_written_in_place_is_differentiated() -> None:
    def step(x: Any) -> Any:
        w = x.clone().requires_grad_()
        y = w * 1.0
        while (y * y).sum().item() < 50:
            z = y * 1.1
            z.add_(0.01)
            y = z * z * 0.1 + y * 1.05 + 0.2
            if y.max().item() > 30:
                break
        (y * y).sum().backward()
        return y, w.grad

    assert traces(step, (0.3, 0.4, 0.6)) == 1


def test_a_check_on_a_way_that_is_not_gone_does_not_fail() -> None:
    def step(x: Any) -> Any:
        n, at = 0, lucid.tensor(0)
        while n < 20:
            if at < 3:
                x, at = x * x[at] + 0.5, at + 1
            else:
                x, at = x * 0.5, at - 2
            n += 1
        return x, at

    traces(step, [0.3, 0.7, 0.1])


def test_a_place_behind_the_last_row_is_not_looked_at() -> None:
    """A counter ends the loop, before the round that would look there."""

    def step(x: Any) -> Any:
        found, k = x.sum(), 0
        while k < len(x):
            if x[k] > 0:
                found = found + x[k - 1]
            k += 1
        return found, k

    assert traces(step) <= 3

    def step_first(x: Any) -> Any:
        found, k = x.sum(), 0
        while k < len(x) - 1:
            k += 1
            if x[k] < 0:
                continue
            found = found * x[k]
        return found, k

    assert traces(step_first) <= 3


def test_a_place_where_nothing_is_ends_the_trace_of_a_loop() -> None:
    """Rounds go on with a place that is right, so Python would be told that forever."""

    @lucid.compile
    def step(x: Any, n: int) -> Any:
        found, k = x.sum(), 0
        while k < n:
            k += 1
            if x[k] > 0:
                found = found + 1
        return found

    for start, n in ((1.0, 3), (-1.0, 3), (2.0, 3), (0.5, 4), (1.0, 2)):
        x = start * lucid.tensor([1.0, -2.0, 3.0, -4.0])
        if n < len(x):
            assert step(x, n).item() == -2 * start + sum(v > 0 for v in x[1 : n + 1].tolist())
        else:
            with pytest.raises(IndexError, match="index 4 is out of bounds"):
                step(x, n)


def test_memory_that_rounds_assign() -> None:
    def always(x: Any) -> Any:
        p = x * 2
        while x.abs().max() > 1e-2:
            p.data = p.data * 0.9
            x = x * 0.5 + 1e-3 * p.sum()
        return x

    def on_one_way(x: Any) -> Any:
        p, z = x * 2, x * 0
        for _ in range(20):
            if (x.sum() * 8) % 2 > 1:
                p.data = p.data * 0.9
            else:
                z = z + p
            x = x * 0.9 + 0.1 * z.mean()
        return x, z

    assert traces(always, [1.0, 3.0, 0.7]) == 1
    traces(on_one_way, [1.0, 3.0, 0.7])


@pytest.mark.parametrize(
    "update",
    [
        "w.data -= 0.1 * w.grad; w.grad.zero_()",
        "w.data = w.data - 0.1 * w.grad; w.grad = None",
        "w.data.sub_(0.1 * w.grad.data); w.grad.data.zero_()",
        "w.data.add_(w.grad, alpha=-0.1); w.grad.data = w.grad.data * 0",
        "w.data = w.data - 0.1 * w.grad; w.data.mul_(0.999); w.grad = None",
        "(g,) = lucid.autograd.grad(loss, w); w.data -= 0.1 * g",
    ],
)
def test_descent_by_the_memory_of_a_leaf(update: str) -> None:
    text = f"""
def step(x):
    w = lucid.zeros_like(x).requires_grad_()
    for i in range(100):
        loss = ((w * w.detach().cos() - x) ** 2).sum()
        {"" if "autograd" in update else "loss.backward()"}
        {update}
        if loss.item() < 1e-3 * (x * x).sum().item():
            break
    return w, 0 if w.grad is None else w.grad, loss.detach(), i
"""
    scope = {"lucid": lucid}
    linecache.cache[update] = (len(text), None, text.splitlines(True), update)
    exec(compile(text, update, "exec"), scope)
    assert traces(scope["step"], [0.3, 0.5, 0.1, 0.4, 0.05]) <= 2


def test_a_power_by_the_number_of_a_round() -> None:
    def step(x: Any) -> Any:
        x, m, v = x.clone().requires_grad_(), lucid.zeros_like(x), lucid.zeros_like(x)
        for t in range(1, 200):
            loss = (x**2).sum()
            loss.backward()
            m = 0.9 * m + 0.1 * x.grad.data
            v = 0.99 * v + 0.01 * x.grad.data**2
            x.data -= 0.1 * (m / (1 - 0.9**t)) / ((v / (1 - 0.99**t)).sqrt() + 1e-8)
            x.grad.zero_()
            if loss.item() < 1e-2:
                break
        return x, t

    assert traces(step, [2.0, 1.0, 3.0, 1.5, 2.5]) == 1


def test_new_memory_that_a_round_writes() -> None:
    def step(x: Any) -> Any:
        for i in range(100):  # noqa: B007
            new = 0.6 * x + 0.1 * (W @ x)
            new.clamp_(-3, 0.9)
            new[new.abs() < 1e-4] = 0
            change = (new - x).norm()
            x = new
            if change < 1e-3:
                break
        return x, i

    assert traces(step, [2.0, 70.0, 0.3, 900.0]) <= 2


def test_memory_that_rounds_assign_is_shared_as_in_eager_mode() -> None:
    def step(x: Any) -> Any:
        p, seen = lucid.zeros_like(x).requires_grad_(), x.clone()
        while x.abs().max() > 1e-2:
            seen = p.data
            p.data = p.data + x
            x = x * 0.5
        with lucid.no_grad():
            p.mul_(2)
            seen.add_(1)
        return p, seen

    traces(step, [1.0, 3.0, 0.7, 1e-3])


def test_long_sums_of_ints_are_looked_at_once() -> None:
    def step(x: Any) -> Any:
        n = m = 1
        while x.abs().max() > 1e-2:
            x = x * 0.7
            for _ in range(40):
                n = max(n, m) + min(n, m) - min(m, n)
            m += 1
        return x, n, m

    traces(step, [2.0, 70.0])


def _until_a_number(x: Any) -> Any:
    done, n = False, 0
    while not done:
        x = 0.7 * x
        n += 1
        err = x.norm().item()
        done = err < 1e-2 or n >= 25
    return x, n


def _until_a_tensor(x: Any) -> Any:
    done, history = False, list[float]()
    while not done:
        x = 0.7 * x
        err = x.norm()
        history.append(err.item())
        done = err < 1e-2 or len(history) >= 25
    return x, history


def _while_both_hold(x: Any) -> Any:
    history, going = list[float](), True
    while going:
        x = 0.7 * x
        history.append(x.norm().item())
        going = not history[-1] < 1e-2 and len(history) < 25
    return x, history


def _what_ended_it(x: Any) -> Any:
    done, n = False, 0
    while not done:
        x = 0.7 * x
        n += 1
        done = n >= 25 or x.norm() < 1e-2
    return x, n, done


def _an_end_in_an_else(x: Any) -> Any:
    for i in range(12):  # noqa: B007
        x = 0.7 * x
        if x.norm() < 1e-1:
            break
    else:
        x, i = x * 0, -1
    return x, i


@pytest.mark.parametrize(
    "step",
    [
        *(_until_a_number, _until_a_tensor, _while_both_hold, _an_end_in_an_else),
        _what_ended_it,
    ],
)
def test_what_ends_a_loop_is_kept_in_a_variable(step: Callable[..., Any]) -> None:
    is_kept = step is _until_a_tensor and sys.version_info >= (3, 12)  # no instruction shows it
    most = 9 if step is _what_ended_it or is_kept else 2
    assert traces(step, [2.0, 1.0, 3.0, 900.0, 0.5, 1e4]) <= most


# ---------------------------------------------------------------------- what rounds tell


def _printed(
    step: Callable[..., Any], starts: Sequence[float] = (2.0, 70.0, 0.3, 900.0, 5.0)
) -> Any:
    """The statistics of a compiled step, of which all is compared with eager mode."""
    compiled = lucid.compile(step)
    for start in starts:
        x = start * lucid.tensor([1.0, -0.5, 0.25], dtype=f64)
        (found, text), (wanted, wanted_text) = told(compiled, x), told(step, x)
        assert_alike(text, wanted_text)
        for one, other in zip(values(found), values(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9)
    assert not compiled.stats.eager_reasons
    return compiled.stats


def test_what_rounds_print() -> None:
    def step(x: Any) -> Any:
        print("from", x)
        k = 0
        while x.norm() > 1e-2:
            x = 0.7 * x
            k += 1
            print(k, x.norm().item(), sep=": ", end=";")
            print(f"{k:3d} {x.sum():.4f}", x[:2])
        print("behind", k, x.norm().item())
        return x

    assert _printed(step).traces == 1


def test_what_rounds_print_now_and_then() -> None:
    def step(x: Any) -> Any:
        best = 1e9
        for i in range(60):
            x = 0.8 * x + 0.1 * (W @ x)
            norm = x.norm().item()
            if i % 5 == 0:
                print(f"round {i}: {norm:.6f}")
            if norm < best / 3:
                print("better than", best, "in", i)
                best = norm
            if norm < 1e-2:
                print("done")
                break
        else:
            print("not done")
        return x, best

    assert _printed(step).traces <= 3


def test_loops_in_loops_that_print() -> None:
    def step(x: Any) -> Any:
        k = 0
        while x.norm() > 0.1:
            y = x
            while y.norm() > 0.5 * x.norm():
                y = 0.8 * y
                print("inner", y.norm().item())
            x = y
            k += 1
            print("outer", k)
        return x, k

    _printed(step)


def test_what_rounds_log_and_show() -> None:
    logger, records = logging.getLogger("rounds"), list[tuple[str, Any]]()
    logger.setLevel(logging.INFO)
    logger.propagate = False

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append((record.getMessage(), record.args))

    logger.addHandler(Handler())

    def step(x: Any) -> Any:
        k = 0
        while x.norm() > 1e-2:
            x = 0.7 * x
            k += 1
            logger.info("round %d: %.4f", k, x.norm().item())
            logger.debug("unseen %s", k)
        logger.info(f"ended after {k}")
        return x

    compiled = lucid.compile(step)
    for start in (2.0, 70.0, 0.3):
        x = start * lucid.tensor([1.0, -0.5, 0.25], dtype=f64)
        step(x)
        wanted, records[:] = [*records], []
        compiled(x)
        assert records == wanted
        records.clear()
    assert compiled.stats.traces == 1 and not compiled.stats.eager_reasons


def test_an_error_of_what_rounds_tell_ends_that() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            if self.tell() > 40:
                raise OSError("no space left")
            return super().write(text)

    def step(x: Any) -> Any:
        while x.norm() > 1e-2:
            x = 0.7 * x
            print(f"{x.norm():.4f}")
        return x

    def text(step: Callable[..., Any]) -> str:
        out = Full()
        with contextlib.redirect_stdout(out), pytest.raises(OSError, match="no space"):
            step(lucid.tensor([2.0, 1.0], dtype=f64))
        return out.getvalue()

    assert text(lucid.compile(step)) == text(step)


# ---------------------------------------------------------------------- rounds of a known number


def _trained_with_a_line_now_and_then(x: Any, rounds: int) -> Any:
    w = lucid.zeros_like(x).requires_grad_()
    losses, best, kept = [], 1e9, w.detach().clone()
    for epoch in range(1, rounds + 1):
        loss = ((W @ w - x) ** 2).mean()
        loss.backward()
        with lucid.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        if loss.item() < best:
            best = loss.item()
        if epoch % 20 == 0 or epoch == 1:
            print(f"Epoch [{epoch}/{rounds}], loss {loss.item():.4f}")
            losses.append(loss.item())
            kept = w.detach().clone()
    return w.detach(), best, losses, kept


def _printed_in_each_round(x: Any, rounds: int) -> Any:
    w = lucid.zeros_like(x).requires_grad_()
    for i in range(rounds):
        loss = ((W @ w - x) ** 2).sum()
        loss.backward()
        w.data -= 0.05 * w.grad
        w.grad.zero_()
        print(i, loss.item())
    return w.detach()


def _of_two_sides(x: Any, rounds: int) -> Any:
    total = lucid.zeros_like(x)
    for i in range(rounds):
        x = lucid.tanh(W @ x) + (0.1 if i % 3 == 0 else -0.1)
        if i % 2:
            total = total + x
    return x, total


@pytest.mark.parametrize(
    "step", [_trained_with_a_line_now_and_then, _printed_in_each_round, _of_two_sides]
)
def test_long_loops_that_print_or_branch_by_their_number_are_recorded_once(
    step: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = []
    monkeypatch.setattr(ended_loops, "_LEAST_NODES", 1)
    for rounds in (200, 400):
        compiled = lucid.compile(functools.partial(step, rounds=rounds))
        for start in (0.3, 2.0):
            x = start * lucid.tensor([1.0, -0.5, 0.25], dtype=f64)
            (found, text), (wanted, wanted_text) = told(compiled, x), told(step, x, rounds)
            assert_alike(text, wanted_text)
            for one, other in zip(values(found), values(wanted), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-7)
        assert compiled.stats.traces == 1 and not compiled.stats.eager_reasons
        nodes.append(len(compiled.stages["trace"].splitlines()))
    assert nodes[1] < 1.1 * nodes[0]


def test_what_a_few_rounds_do_is_not_computed_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_loops, "_LEAST_NODES", 1)
    data = lucid.randn(2000, 3, dtype=f64)

    @lucid.compile
    def step(x: Any) -> Any:
        tests = []
        for i in range(100):
            x = 0.9 * x + 0.1 * (W @ x)
            if i % 50 == 0:
                tests.append((data @ x).square().mean())
        return x, lucid.stack(tests)

    step(lucid.ones(3, dtype=f64))
    assert step.stats.restarts == 1 and "while" not in step.stages["trace"]


# ---------------------------------------------------------------------- what rounds put in lists


def test_a_history_of_numbers_is_returned_as_long_as_there_were_rounds() -> None:
    def step(x: Any) -> Any:
        losses = [-1.0]
        for _ in range(100):
            new = lucid.tanh(W @ x) + 1
            losses.append((new - x).abs().max().item())
            x = new
            if losses[-1] < 1e-6:
                break
        losses.append(0.25)
        return losses, len(losses), losses[-2], sum(losses) / len(losses), max(losses)

    assert traces(step) == 1


def test_what_numpy_and_tensors_make_of_a_history() -> None:
    def step(x: Any) -> Any:
        history: dict[str, list[Any]] = {"norm": [], "rounds": []}
        while x.norm() > 1e-3:
            x = x * 0.5
            history["norm"].append(x.norm().item())
            history["rounds"].append(len(history["rounds"]))
        norms = history["norm"]
        whole = lucid.tensor(norms), np.mean(norms), float(np.array(norms).sum()), norms[-3:]
        return history, *whole, lucid.tensor(history["rounds"])

    assert traces(step, [70.0, 3.0, 900.0, 1e9, 5.0]) == 1


def test_rounds_read_what_the_rounds_before_have_put_in_a_list() -> None:
    def step(x: Any) -> Any:
        losses: list[float] = []
        while len(losses) < 2 or abs(losses[-1] - losses[-2]) > 1e-6:
            x = lucid.tanh(W @ x) + 1
            losses.append((x * x).sum().item())
            if len(losses) >= 40:
                break
        return losses, x

    assert traces(step) == 1


def test_tensors_that_rounds_collect_and_their_gradient() -> None:
    def step(x: Any) -> Any:
        x = start = x.clone().requires_grad_()
        states, sizes = [x], list[Any]()
        while x.norm() > 1e-3:
            x = 0.5 * x + 0.1 * (W @ x).tanh()
            states.append(x)
            sizes.append((x * x).sum())
        stacked = lucid.stack(states)
        loss = (stacked * stacked).sum() + sum(sizes) / len(sizes) + states[-1].sum()
        loss = loss + states[2].sum() + lucid.cat(states).sin().sum()
        loss.backward()
        return stacked, lucid.stack(sizes), loss, start.grad

    # Stacks for the gradient hold 16 rounds, or 64.
    assert traces(step, [70.0, 3.0, 900.0, 70.0, 0.3, 1e6, 5.0]) <= 3


def test_gradients_through_collected_states_are_right() -> None:
    def loss(x: Any) -> Any:
        states = []
        while (x * x).sum() > 0.05:
            x = 0.6 * x + 0.1 * (W @ x).tanh()
            states.append(x * x[0])
        return (lucid.stack(states).cumsum(0) ** 2).sum() + states[-1].sum()

    compiled = lucid.compile(loss)
    for start in (1.0, 3.0, 20.0, 8.0):
        x = (start * lucid.tensor([1.0, -0.5, 0.25], dtype=f64)).requires_grad_()
        assert lucid.autograd.gradcheck(compiled, (x,))
        assert lucid.autograd.gradgradcheck(compiled, (x,))
    assert not compiled.stats.eager_reasons


def test_what_a_round_puts_in_a_list_on_either_side_of_a_branch() -> None:
    def step(x: Any) -> Any:
        steps, rate = list[float](), 1.0
        while x.norm() > 1e-2:
            if x[0] > 0.2:
                x = x * 0.6
                steps.append(x.norm().item())
            else:
                x, rate = x * 0.5, rate * 0.5
                steps.append(rate)
        return steps, x

    assert traces(step, [2.0, 70.0, 5.0, 900.0]) <= 2


def test_what_a_round_puts_in_a_list_now_and_then() -> None:
    def step(x: Any) -> Any:
        best, found, kept, unused = 1e9, list[float](), list[Any](), [1.0]
        for i in range(60):
            x = 0.7 * x + 0.05 * (W @ x)
            norm = x.norm().item()
            if i % 3 == 2:
                found.append(norm)
            if norm < best / 2:
                best = norm
                kept.append(x)
            if norm > 1e9:
                unused.append(norm)
            if norm < 1e-2:
                break
        if not found:
            return x, best
        mean = sum(found) / len(found)
        return x, found, mean, found[-1], max(found), len(kept), lucid.stack(kept).sum(0), unused

    assert traces(step, [70.0, 900.0, 5.0, 300.0, 20.0]) <= 3


def _path_with_its_start(x: Any) -> Any:
    path = [x]
    while x.norm() > 1e-2:
        x = 0.7 * x
        path.append(x)
    return path, x


def _path_before_each_step(x: Any) -> Any:
    path = []
    while x.norm() > 1e-2:
        path.append(x)
        x = 0.7 * x
    path.append(x)
    return {"path": path, "x": x, "again": path}


def _two_paths(x: Any) -> Any:
    path, now_and_then = [], []
    for i in range(80):
        x = 0.7 * x
        if i % 3 == 1:
            now_and_then.append(x * 2)
        path.append(x.clone())
        if x.norm() < 1e-2:
            break
    return path, now_and_then


def _path_and_what_is_in_it(x: Any) -> Any:
    path, before = [], x
    while x.norm() > 1e-2:
        before = x
        x = 0.7 * x
        path.append(x)
    return path, before


def _one_tensor_twice(x: Any) -> Any:
    path, best = [], x
    for i in range(30):
        x = 0.8 * x
        if i % 4 == 0:
            best = x
        path.append(best)
        if x.norm() < 1e-2:
            break
    return path


def _one_tensor_in_two_lists(x: Any) -> Any:
    path, other = [], []
    while x.norm() > 1e-2:
        x = 0.7 * x
        path.append(x)
        other.append(x)
    return path, other


@pytest.mark.parametrize(
    ("step", "most"),
    [
        *((_path_with_its_start, 2), (_path_before_each_step, 2), (_two_paths, 2)),
        *((_path_and_what_is_in_it, 9), (_one_tensor_twice, 9), (_one_tensor_in_two_lists, 9)),
    ],
)
def test_lists_of_tensors_are_returned(step: Callable[..., Any], most: int) -> None:
    compiled = lucid.compile(step)
    for start in (2.0, 70.0, 0.3, 900.0, 0.013, 1e-3):
        x = start * lucid.tensor([1.0, -0.5, 0.25], dtype=f64)
        found, wanted = compiled(x), step(x)
        for one, other in zip(values(found), values(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9)
        assert _sharing(found, x) == _sharing(wanted, x)
    assert compiled.stats.traces <= most and not compiled.stats.eager_reasons


def _sharing(found: Any, x: Any) -> list[Any]:
    """Which tensors of a result are one object, or on one memory."""
    tensors = [*flatten(found)[0], x]
    pairs = [*itertools.combinations(range(len(tensors)), 2)]
    arrays = [t.numpy() for t in tensors]
    one = [(i, j) for i, j in pairs if tensors[i] is tensors[j]]
    return [one, [(i, j) for i, j in pairs if np.shares_memory(arrays[i], arrays[j])]]


@pytest.mark.parametrize("verbose", [False, True])
def test_what_rounds_note_if_they_are_told_to(verbose: bool) -> None:
    def step(x: Any) -> Any:
        history: list[float] = []
        while x.norm() > 1e-2:
            x = 0.7 * x
            if verbose:
                history.append(x.norm().item())
        history.append(0.5)
        return x, history

    assert traces(step, [2.0, 70.0, 0.3]) == 1


def _counted_in_a_round(x: Any) -> Any:
    found: list[float] = []
    while x.norm() > 0.1 and len(found) < 3:
        x = 0.9 * x
        if x[0] > 0.5:
            found.append(x.norm().item())
    return found, x


def _of_two_kinds(x: Any) -> Any:
    found: list[Any] = []
    while x.norm() > 0.1:
        x = 0.9 * x
        if x[0] > 0.5:
            found.append(x.norm().item())
        else:
            found.append(1)
    return found


def _differentiated_now_and_then(x: Any) -> Any:
    x = start = x.clone().requires_grad_()
    found = [x]
    while x.norm() > 0.1:
        x = 0.9 * x
        if x[0] > 0.5:
            found.append(x)
    return lucid.autograd.grad(lucid.stack(found).sum() + x.sum(), start)[0]


def _written_behind(x: Any) -> Any:
    states = []
    while x.norm() > 0.1:
        x = 0.7 * x
        states.append(x)
    x.add_(1)
    return lucid.stack(states)


def _written_in_place(x: Any) -> Any:
    x, states = x.clone(), []
    while x.norm() > 0.1:
        x.mul_(0.7)
        states.append(x)
    return lucid.stack(states)


def _shown_twice(x: Any) -> Any:
    first: list[float] = []
    second = first
    while x.norm() > 0.1:
        x = 0.7 * x
        first.append(x.norm().item())
    return first, second, first is second


def _returned(x: Any) -> Any:
    states = []
    while x.norm() > 0.1:
        x = 0.7 * x
        states.append(x)
    states[-1].add_(1)
    return states, x


def _put_now_and_then(x: Any) -> Any:
    found = []
    while x.norm() > 0.1:
        x = 0.7 * x
        if x[0] > 0.5:
            found.append(x.norm().item())
    return found


def _large_ints(x: Any) -> Any:
    found, number = [], 1
    while x.norm() > 1e-9:
        x, number = 0.7 * x, number * 3
        found.append(number)
    return found


def _taken(x: Any) -> Any:
    found = []
    while x.norm() > 0.1:
        x = 0.7 * x
        found.append(x.norm().item())
    last = found.pop()
    return found, last, [round(number, 3) for number in found]


@pytest.mark.parametrize(
    "step",
    [
        *(_written_behind, _written_in_place, _shown_twice, _returned, _put_now_and_then),
        *(_large_ints, _taken, _counted_in_a_round, _of_two_kinds, _differentiated_now_and_then),
    ],
)
def test_lists_that_are_not_rows_of_a_loop_are_those_of_eager_mode(
    step: Callable[..., Any],
) -> None:
    traces(step, [2.0, 70.0, 900.0])


# ---------------------------------------------------------------------- random loops

_UPDATES = (
    "x = 0.5 * lucid.tanh(x) + 0.1 * y",
    "x = x * 0.6 + 0.01 * s",
    "x, y = y * 0.6 + 0.1, x * 0.5 + 0.1",
    "x = x - 0.3 * (x - lucid.sin(y))",
    "x = lucid.tanh(W @ x) + 0.1",
)
_ENDS = (
    *("err < {tol}", "err.item() < {tol}", "lucid.allclose(x, old, atol={tol})"),
    *("not (err > {tol})", "(x - old).abs().max().item() <= {tol}"),
)
_MORE = (
    *("n += 1", "s = s * 0.9", "y = y * 0.8 + 0.1 * x", "m = m + 1", "s = err.item()"),
    *("box[0] = box[0] * 0.5 + x.sum()", "y = lucid.where(x > 0, x, y)", "d['k'] = d['k'] + 1"),
    *(
        "buf.mul_(0.5).add_(x.detach())",
        "pair = (pair[0] + 1, pair[1] * 0.9)",
        "z = z.detach() * 1",
    ),
    *("z += 0.1", "with lucid.no_grad(): p -= 0.1 * p", "p.data = p.data * 0.9"),
    *("(p * x.detach()).sum().backward()", "p.data -= 0.1 * x.detach()", "p.grad = None"),
    *("print(n, s)", "print(f'{err.item():.5f}', k, end=';')"),
)
_BRANCHES = ("x.sum() > 0.2", "err.item() < 0.5", "s < 0.8", "n % 2 == 0", "m > 1")
_SIDES = (
    *("best = x", "y = y * 0.5", "n += 1", "s = s * 0.5", "x = x * 0.9", "best = old"),
    *("buf.add_(1)", "z -= 0.2", "z = buf * 2", "pair = (pair[0] * 1, pair[1] + 1)", "z = buf"),
    *("n = 0", "p.grad = None", "buf[0] = s", "best = x.detach().clone()", "d['k'] = n"),
    *("p.data = x.detach() * 0.5", "print('side', n)", "print(f'{s:.5f}')"),
)
_COLLECTED_BY_SIDES = ("ls.append(s)", "xs.append(z * 2)", "ns.append(n)")
_COLLECTED = (
    *("xs.append(x)", "xs.append(y * 2)", "ls.append(err.item())", "ls.append(s)", "ns.append(n)"),
    *("ls.append(float(n))", "xs.append(buf * 1)", "xs.append(z)", "ns.append(len(ns) + n)"),
    *("s = ls[-1]", "y = y + 0.1 * xs[-1]", "ls.append(ls[-1] * 0.5 + ls[-2])"),
)
_OTHER_ENDS = ("n > 7", "s < 0.3", "lucid.isnan(x).any()", "x.abs().max().item() > 3")


def _program(rng: random.Random) -> str:
    """The text of a step: a loop that ends on a value, and what it leaves."""
    tol, is_differentiated = rng.choice(["0.05", "0.01", "1e-3"]), rng.random() < 0.4

    collects = rng.random() < 0.6

    def branch() -> list[str]:
        sides = [*_SIDES, *(_COLLECTED_BY_SIDES * 2 if collects else ())]
        lines = [f"if {rng.choice(_BRANCHES)}:", "    " + rng.choice(sides)]
        return lines + (["else:", "    " + rng.choice(_SIDES)] if rng.random() < 0.5 else [])

    end = rng.choice(_ENDS).format(tol=tol)
    body = ["old = x", rng.choice(_UPDATES), "err = (x - old).abs().max()"]
    body += rng.choices(_MORE, k=rng.randrange(3))
    body += branch() if rng.random() < 0.4 else []
    other = [f"if {rng.choice(_OTHER_ENDS)}:", "    break"] if rng.random() < 0.3 else []
    kind = rng.choice(["for", "for", "else", "while", "and", "or", "true", "count", "done"])
    if kind in ("for", "else", "true"):
        way = ["return x.detach() * 1, n, s"] if rng.random() < 0.1 else ["break"]
        if rng.random() < 0.2:
            body += [f"end = {end}", rng.choice(_MORE)]
            end = "end"
        elif rng.random() < 0.2:
            end += " and " + rng.choice(_BRANCHES)
        body += [f"if {end}:", *("    " + x for x in way)]
    elif kind == "count":
        body += branch()
    elif kind == "done":
        body.append(rng.choice([f"done = {end} or g > 12", f"done = g > 30 or {end}"]))
    for line in rng.choices(_COLLECTED, k=rng.randrange(1, 4)) if collects else ():
        body.insert(rng.choice([3, len(body)]), line)
    body += other + rng.choices(_MORE, k=rng.randrange(3)) + ["n += 1", "g += 1"]
    head = {
        **dict.fromkeys(("for", "else"), f"for k in range({rng.choice([3, 9, 30, 60])}):"),
        "while": f"while err > {tol} and g < 100:",
        "and": f"while g < {rng.choice([4, 30])} and err > {tol}:",
        "or": f"while not (err < {tol} or g > 12):",
        "true": "while g < 500:",
        "done": "while not done:",
        "count": f"for k in range({rng.choice([12, 40])}):",
    }[kind]
    lines = ["x0 = x = x.clone()" + (".requires_grad_()" if is_differentiated else "")]
    lines += [
        "best, y, n, s, k, g = x, x * 0.5, 0, 1.0, 0, 0",
        "err, m, done = lucid.tensor(10.0), lucid.tensor(0), False",
    ]
    lines += ["box, d, pair = [x.detach().sum()], {'k': 0}, (0, 1.0)"]
    lines += ["buf, z = lucid.zeros_like(x), x.detach() * 2", "p = buf.clone().requires_grad_()"]
    lines += ["xs, ls, ns = [x * 2], [1.0, 2.0], []"]
    lines += [head, *("    " + x for x in body)]
    lines += ["else:", "    x = x * 3"] if kind == "else" else []
    left = "x.detach(), y.detach(), best.detach() * 1, err.detach(), n, k, s, m"
    left += ", box[0].detach(), d['k'], buf * 1, z * 1, pair, p.detach() * 1"
    left += ", 0 if p.grad is None else p.grad * 1"
    if collects:
        lines.append(
            rng.choice(["ls.append(0.5)", "x = x * 2", "xs.append(x * 3)", "x.detach().add_(1)"])
        )
        lines.append("stacked = lucid.stack(xs)")
        left += ", ls, ls[-1], sum(ns), len(xs), stacked.detach(), lucid.tensor(ls), max(ls)"
    if is_differentiated:
        more = " + (stacked * stacked).sum()" if collects else ""
        lines.append(f"g, = lucid.autograd.grad((x * x + y + best).sum(){more}, x0)")
        left += ", g"
    return "\n    ".join(["def step(x):", *lines, f"return {left}"]) + "\n"


@pytest.mark.parametrize("seed", range(many(12)))
def test_random_loops(seed: int) -> None:
    text, name = _program(random.Random(seed)), f"<loop {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = {"lucid": lucid, "W": W}
    exec(compile(text, name, "exec"), scope)
    step: Any = scope["step"]
    compiled = lucid.compile(step)
    rng = np.random.default_rng(seed)
    for power in (-2, 0, 1, -3, 0, 1):
        x = lucid.tensor(rng.normal(size=3) * 10.0**power, dtype=f64)
        found, found_texts = told(compiled, x)
        wanted, wanted_texts = told(step, x)
        assert_alike(found_texts, wanted_texts)
        for one, other in zip(values(found), values(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9, err_msg=text)
