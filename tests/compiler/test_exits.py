"""Steps that branch on values: each path is a program, and all agree with eager mode."""

from __future__ import annotations

import logging
import math
import sys
import threading
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.compiler.inputs import present

Compile = Any


def data(count: int = 12, scales: tuple[float, ...] = (1.0, 3.0)) -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        (
            lucid.tensor(rng.normal(size=(8, 4)).astype("f4") * scales[i % len(scales)]),
            lucid.tensor(rng.normal(size=(8, 1)).astype("f4")),
        )
        for i in range(count)
    ]


def vectors(*values: float) -> list[Any]:
    return [(lucid.tensor([v, v]),) for v in values]


def training(body: Any, calls: list[Any]) -> Any:
    """A scenario: a model that `body(model, opt, x, y)` trains."""

    def scenario(compile: Compile) -> Any:
        model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 1))
        opt = lucid.optim.Adam(model.parameters(), lr=0.01)

        @compile
        def step(x: Any, y: Any) -> Any:
            return body(model, opt, x, y)

        seen: list[Any] = []
        for x, y in calls:
            try:
                seen.append(step(x, y))
            except (AssertionError, ZeroDivisionError, ValueError) as error:
                seen.append(f"{type(error).__name__}: {error}")
            seen.append([p.detach().clone() for p in model.parameters()])
        return seen, model, [dict(s) for s in opt.state.values()], lucid.get_rng_state()

    return scenario


def calling(body: Any, calls: list[Any]) -> Any:
    """A scenario: a function that is called."""

    def scenario(compile: Compile) -> Any:
        step = compile(body)
        return [step(*args) for args in calls]

    return scenario


def update(opt: Any, loss: Any) -> None:
    opt.zero_grad()
    loss.backward()
    opt.step()


def squares(model: Any, x: Any, y: Any) -> Any:
    return ((model(x) - y) ** 2).mean()


def test_a_branch_on_data_is_a_program_for_each_side(agree: Any) -> None:
    def body(model: Any, opt: Any, x: Any, y: Any) -> Any:
        loss = squares(model, x, y)
        if (x**2).mean() > 4:
            loss = loss * 0.1
        update(opt, loss)
        return loss.detach()

    (step,) = agree(training(body, data()), traces=2)
    assert not step.stats.eager_reasons and step.stats.exits > 0


def test_branches_before_and_after_the_update(agree: Any) -> None:
    def body(model: Any, opt: Any, x: Any, y: Any) -> Any:
        loss = squares(model, x, y)
        if loss > 2:
            loss = loss.sqrt()
        update(opt, loss)
        if model[0].weight.abs().max() > 0.5:
            with lucid.no_grad():
                model[0].weight.mul_(0.9)
        return loss.detach()

    (step,) = agree(training(body, data(24)))
    assert not step.stats.eager_reasons


def test_a_step_whose_loss_is_not_finite_is_skipped(agree: Any) -> None:
    def body(model: Any, opt: Any, x: Any, y: Any) -> Any:
        loss = squares(model, x, y)
        if not lucid.isfinite(loss):
            opt.zero_grad()
            return None
        update(opt, loss)
        return loss.detach()

    calls = data(8)
    calls[2] = calls[2][0] * float("nan"), calls[2][1]
    calls[5] = calls[5][0] * float("inf"), calls[5][1]
    (step,) = agree(training(body, calls), traces=2)
    assert not step.stats.eager_reasons


def test_gradients_are_clipped_by_hand(agree: Any) -> None:
    def body(model: Any, opt: Any, x: Any, y: Any) -> Any:
        loss = squares(model, x, y)
        opt.zero_grad()
        loss.backward()
        norm = sum((p.grad**2).sum() for p in model.parameters()).sqrt()
        if norm > 1.0:
            for p in model.parameters():
                p.grad.mul_(1.0 / norm)
        opt.step()
        return loss.detach(), norm

    (step,) = agree(training(body, data(16)), traces=2)
    assert not step.stats.eager_reasons


def test_an_assertion_that_holds_costs_no_trace_and_one_that_fails_changes_nothing() -> None:
    model = nn.Linear(4, 1)
    opt = lucid.optim.Adam(model.parameters(), lr=0.1)

    @lucid.compile
    def step(x: Any, y: Any) -> Any:
        loss = squares(model, x, y)
        update(opt, loss)
        if lucid.isnan(loss).any():  # as `assert` does where nobody rewrites it
            raise AssertionError(f"loss is {loss.item()}")
        return loss.detach()

    calls = data(4, (1.0,))
    for x, y in calls:
        step(x, y)
    before = [p.detach().numpy().copy() for p in model.parameters()]
    with pytest.raises(AssertionError, match="loss is nan"):
        step(calls[0][0] * float("nan"), calls[0][1])
    for p, was in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), was)
    step(*calls[0])
    assert step.stats.traces == 1 and not step.stats.eager_reasons


def test_a_loop_until_it_has_converged(agree: Any) -> None:
    def body(a: Any) -> Any:
        x, count = a, 0
        while (x - a / x).abs() > 1e-3:
            x = 0.5 * (x + a / x)
            count += 1
        return x, count

    calls = [(lucid.tensor([float(v)]),) for v in (2, 30, 1, 2, 30, 500, 1, 2, 500)]
    (step,) = agree(calling(body, calls), traces=2)  # one for no round
    assert not step.stats.eager_reasons


def test_a_line_search(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        w = lucid.tensor([3.0, -2.0])

        def f(v: Any) -> Any:
            return ((v - 1) ** 2).sum() + (v**4).sum() * 0.1

        @compile
        def step(t: Any) -> Any:
            g = lucid.func.grad(f)(w)
            before = f(w)
            count = 0
            while f(w - t * g) > before - 0.5 * t * (g**2).sum():
                t = t * 0.5
                count += 1
                if count > 20:
                    return None
            with lucid.no_grad():
                w.sub_(t * g)
            return count, before.item()

        steps = (1.0, 1.0, 4.0, 0.5, 0.01, 2.0, 1.0, 4.0)
        return [step(lucid.tensor(t)) for t in steps], w

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


def test_an_adaptive_step_size(agree: Any) -> None:
    def body(y: Any, h: float) -> Any:
        def f(y: Any) -> Any:
            return -2.0 * y + lucid.sin(y)

        half = y + 0.5 * h * f(y)
        low, high = y + h * f(y), y + h * f(half)
        error = (high - low).abs().max().item()
        if error < 0.01:
            return high, h * 1.5, True
        return y, h * max(0.2, 0.5 * 0.01 / error), False

    def scenario(compile: Compile) -> Any:
        step = compile(body)
        y, h, seen = lucid.tensor([1.0, 2.0]), 0.5, []
        for _ in range(12):
            y, h, accepted = step(y, h)
            seen.append((y, h, accepted))
        return seen

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


def test_an_episode_of_a_policy(agree: Any) -> None:
    """REINFORCE: how long an episode is depends on what was sampled."""

    def scenario(compile: Compile) -> Any:
        policy = nn.Linear(2, 2)
        opt = lucid.optim.SGD(policy.parameters(), lr=0.05)

        @compile
        def episode(state: Any) -> Any:
            logs, rewards = [], []
            for _ in range(4):
                p = lucid.softmax(policy(state), dim=-1)
                action = 1 if lucid.rand(()) < p[1] else 0
                logs.append(lucid.log(p[action]))
                state = state * 0.9 + (0.3 if action else -0.3)
                rewards.append(1.0 if action else 0.5)
                if state.abs().max() > 1.5:
                    break
            loss = -sum(log * reward for log, reward in zip(logs, rewards, strict=True))
            update(opt, loss)
            return len(rewards), loss.item()

        return [episode(lucid.tensor([0.1 * i, -0.1])) for i in range(12)], policy

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


def test_random_numbers_are_drawn_once(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        w = lucid.zeros(2)

        @compile
        def step(x: Any) -> Any:
            r = lucid.rand(2)
            if x.sum() > 0:
                r = r + lucid.randn(2)
            with lucid.no_grad():
                w.add_(r)
            return r

        return [step(*args) for args in vectors(1, -1, 1, 1, -1, -1, 1)], w, lucid.get_rng_state()

    agree(scenario, traces=2)


def test_whatever_python_asks_of_one_element(agree: Any) -> None:
    def body(a: Any, b: Any) -> Any:
        larger = max(a, b)
        both = bool(a > 0 and b > 0)
        chosen = [0.5, 1.5, 2.5][a.long()]
        return larger * 2, both, lucid.ones(int(a)), chosen, [*range(int(b.abs()))]

    pairs = ((1, 2), (2, 1), (1, 2), (2, -1), (1, 2))
    calls = [(lucid.tensor(float(a)), lucid.tensor(float(b))) for a, b in pairs]
    (step,) = agree(calling(body, calls))
    assert not step.stats.eager_reasons


def test_integers_and_truths_are_listed(agree: Any) -> None:
    def body(x: Any) -> Any:
        order = x.argsort().tolist()
        return [x[i] for i in order], (x > 0).tolist(), lucid.zeros(order[0] + 1)

    calls = [(lucid.tensor(v),) for v in ([3.0, -1.0, 2.0], [1.0, 2.0, 3.0], [3.0, -1.0, 2.0])]
    (step,) = agree(calling(body, calls), traces=3)
    assert not step.stats.eager_reasons


def test_a_branch_in_a_loop_over_samples(agree: Any) -> None:
    def body(x: Any) -> Any:
        kept = [row for row in x if row.sum() > 0]
        return lucid.stack(kept).sum(0) if kept else x[0] * 0

    rows = ([[1.0, 2.0], [-3.0, 1.0]], [[-1.0, 0.0], [-3.0, 1.0]], [[1.0, 2.0], [3.0, 1.0]])
    calls = [(lucid.tensor(value),) for value in (*rows, *rows)]
    (step,) = agree(calling(body, calls), traces=3)
    assert not step.stats.eager_reasons


def test_a_branch_in_a_step_whose_backward_is_outside(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        w = lucid.ones(2, requires_grad=True)

        @compile
        def f(x: Any) -> Any:
            y = (w * x).sum()
            return y * 2 if y > 0 else y * 3

        found = []
        for args in vectors(1.0, -1.0, 2.0, -2.0):
            w.grad = None
            f(*args).backward()
            found.append(w.grad.clone())
        return found

    agree(scenario, traces=2)


def test_a_branch_under_a_derivative_and_in_a_step_within_a_step(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        inner = compile(lambda x: x * 2 if x.sum() > 0 else x * 3)

        @compile
        def step(x: Any) -> Any:
            def f(v: Any) -> Any:
                return (inner(v) ** 2).sum() if v[0] > -1.5 else v.sum()

            value, tangent = lucid.func.jvp(f, (x,), (lucid.ones(2),))
            return lucid.func.grad(f)(x), value, tangent

        return [step(*args) for args in vectors(1.0, -1.0, 2.0, -2.0, 1.0, -1.0)]

    agree(scenario, traces=3)


def test_a_branch_on_one_example_of_a_vmap_is_refused_as_in_eager_mode() -> None:
    @lucid.compile
    def step(x: Any) -> Any:
        return lucid.func.vmap(lambda row: row * 2 if row.sum() > 0 else row)(x)

    with pytest.raises(lucid.LucidError, match="data-dependent"):
        step(lucid.ones(2, 2))


def test_host_calls_before_an_exit_are_made_once(agree: Any) -> None:
    made: list[int] = []

    class Host(lucid.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            made.append(1)
            return lucid.tensor(np.sin(x.detach().numpy()))

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    def body(x: Any) -> Any:
        y = Host.apply(x)
        if y.sum() > 0:
            y = y * 2
        return Host.apply(y).sum()

    (step,) = agree(calling(body, vectors(1.0, -1.0, 1.5, -1.5, 1.0)), traces=2)
    assert len(made) == 2 * 2 * 5 and not step.stats.eager_reasons


def test_sizes_that_numpy_finds_and_exits_take_turns(agree: Any) -> None:
    def body(x: Any) -> Any:
        if x.sum() > 2:
            x = x - 1
        found = x[x > 0]
        return found * 2 if len(found) and found.max() > 1 else found

    rows = ([1.0, 0.5, -1.0], [3.0, 2.5, -1.0], [3.0, -1.0, 0.5], [-1.0, -1.0, -2.0])
    calls = [(lucid.tensor(row),) for row in (*rows, *rows[::-1])]
    (step,) = agree(calling(body, calls))
    assert not step.stats.eager_reasons


def test_rows_of_state_that_are_found_are_written_from_rows_that_are_drawn(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        codes, used = lucid.zeros(7, 4), lucid.ones(7)

        @compile
        def step(x: Any, least: float) -> Any:
            dead = used < least
            if dead.any():
                codes[dead] = x[lucid.randperm(x.shape[0])[: int(dead.sum())]]
                used[dead] = 1.0
            used.mul_(0.7 + 0.1 * lucid.arange(7.0))
            return x.sum()

        x = lucid.arange(20.0).reshape(5, 4)
        return [(step(x, 0.75), codes.clone(), used.clone()) for _ in range(6)]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


def test_counts_by_class_of_which_more_become_state_with_each_path(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        correct, total = {0: 0, 1: 0}, {0: 0, 1: 0}

        @compile
        def count(classes: Any, found: Any) -> None:
            for expected, label in zip(classes, found, strict=True):
                if expected == label:
                    correct[expected.item()] += 1
                total[expected.item()] += 1

        for classes, found in ((0, 3), (4, 7), (6, 5)):
            count(*(lucid.tensor([n >> i & 1 for i in range(3)]) for n in (classes, found)))
        return correct, total

    agree(scenario)


def test_more_paths_than_are_compiled_run_op_by_op_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @lucid.compile(max_paths=4)
    def step(x: Any) -> Any:
        return x * [0, 1, 2, 3, 4, 5, 6, 7][x.long()]

    with caplog.at_level("WARNING", "lucid.retrace"):
        for v in (*range(8), *range(8)):
            assert step(lucid.tensor(float(v))).item() == v * v
    assert step.stats.traces == 4
    assert "4 paths" in step.stats.eager_reasons[0] and "test_exits.py" in caplog.text
    assert "lucid.cond and lucid.where" in caplog.text and len(caplog.records) <= 5


def test_paths_that_don_t_come_back_run_op_by_op_and_the_warning_names_cond(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @lucid.compile
    def step(x: Any) -> Any:
        y = x * 0
        for part in (x[0], x[1], x[2], x[3]):
            y = y + x if part > 0 else y - x
        return y

    with caplog.at_level("WARNING", "lucid.retrace"):
        for n in range(16):
            step(lucid.tensor([1.0 if n >> i & 1 else -1.0 for i in range(4)]))
    (said,) = [record.getMessage() for record in caplog.records]
    assert "part > 0" in said and "hint: lucid.cond and lucid.where" in said


def test_a_rare_path_doesn_t_displace_the_usual_one() -> None:
    @lucid.compile(audit=False)
    def step(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x * 3

    often, rarely = lucid.ones(2), -lucid.ones(2)
    for _ in range(3):
        step(often)
        step(rarely)
    for _ in range(3):
        step(often)
    usual = step._latest_program()
    step(rarely)
    assert step._latest_program() is usual
    step(rarely)
    step(rarely)
    assert step._latest_program() is not usual and step.stats.traces == 2


def test_threads_take_different_paths() -> None:
    w = lucid.zeros(1)

    @lucid.compile
    def step(x: Any) -> Any:
        s = x.sum()
        with lucid.no_grad():
            w.add_(1.0 if s > 0 else 2.0)
        return s * 2 if s > 0 else s * 3

    wrong: list[Any] = []

    def work(sign: int) -> None:
        for i in range(300):
            v = sign * (-1.0) ** i * (i + 1)
            found = step(lucid.tensor([v])).item()
            if found != (v * 2 if v > 0 else v * 3):
                wrong.append((v, found))

    threads = [threading.Thread(target=work, args=(sign,)) for sign in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and w.item() == 600 * 1.5


def test_conditions_of_graph_attention(agree: Any) -> None:
    """pyGAT asserts in each layer that nothing is NaN."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(lucid.randn(3, 4) * 0.3)
            self.a = nn.Parameter(lucid.randn(8, 1) * 0.3)

        def forward(self, x: Any, edges: Any) -> Any:
            h = x @ self.w
            assert not lucid.isnan(h).any()
            e = lucid.exp(-lucid.relu(lucid.cat([h[edges[0]], h[edges[1]]], 1) @ self.a).squeeze(1))
            assert not lucid.isnan(e).any()
            total = lucid.zeros(5).index_add(0, edges[0], e).unsqueeze(1)
            out = lucid.zeros(5, 4).index_add(0, edges[0], e.unsqueeze(1) * h[edges[1]]) / total
            assert not lucid.isnan(out).any()
            return out

    def scenario(compile: Compile) -> Any:
        net = Attention()
        opt = lucid.optim.Adam(net.parameters(), lr=0.05)
        edges = lucid.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])

        @compile
        def step(x: Any) -> Any:
            loss = (net(x, edges) ** 2).mean()
            update(opt, loss)
            return loss.detach()

        x = lucid.randn(5, 3)
        return [step(x) for _ in range(6)], net

    (step,) = agree(scenario, traces=1)
    assert not step.stats.eager_reasons


def test_a_full_graph_is_asked_for() -> None:
    def looks(x: Any) -> Any:
        return float(hash(x.numpy().tobytes()) != 63)

    with pytest.raises(lucid.TraceError, match=r"looks, with fullgraph=True: it looks at bytes"):
        lucid.compile(looks, fullgraph=True)(lucid.ones(3))
    assert lucid.compile(looks)(lucid.ones(3)) == 1.0

    @lucid.compile(fullgraph=True, dynamic=False, backend="inductor", mode="max-autotune")
    def step(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x

    assert step(lucid.ones(2)).tolist() == [2.0, 2.0]
    assert lucid.compile(looks, backend="eager", fullgraph=True)(lucid.ones(3)) == 1.0
    assert lucid.compile(looks, disable=True, fullgraph=True)(lucid.ones(3)) == 1.0
    with pytest.raises(lucid.ArgumentError, match="unexpected keyword argument 'fast'"):
        lucid.compile(looks, fast=True)


def test_a_function_that_is_never_compiled_is_called_at_each_call(agree: Any, capsys: Any) -> None:
    def scenario(compile: Compile) -> Any:
        w = lucid.full((3,), 2.0).requires_grad_()

        @lucid.compiler.disable
        def branches(x: Any, w: Any, k: float = 2.0) -> Any:
            print("called")
            if x.detach().numpy().min() > 0:
                return {"y": (x * w).sum() * k, "n": float(x.detach().max()), "none": None}
            return {"y": (x / w).sum() * k, "n": 0.0, "none": None}

        @compile
        def step(x: Any, k: float) -> Any:
            w.grad = None
            found = branches(x * 3, w, k=k)
            found["y"].backward()
            return found["y"].detach(), found["n"] + 1, found["none"], w.grad.clone()

        rows = ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, 5.0, 2.0])
        return [step(lucid.tensor(row), 1.0 + i) for i, row in enumerate(rows)]

    (step,) = agree(scenario, traces=1)
    assert not step.stats.eager_reasons and "called" in capsys.readouterr().out


def test_a_disabled_function_may_return_other_things_at_each_call(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        calls = [0]

        @lucid.compiler.disable
        def found(x: Any) -> Any:
            y = x * 2
            kinds = (y, None), (None, y), {"b": y}, [y.item()], y
            calls[0] += 1
            return kinds[calls[0] % len(kinds)]

        step = compile(lambda x: found(x))
        return [step(lucid.tensor(float(i))) for i in range(12)]

    agree(scenario, traces=5)


def test_numbers_of_a_disabled_function_are_those_of_python() -> None:
    found = lucid.compiler.disable(lambda x: (0.1, 1e300, 2**60 + 1, x.sum().item() > 1))
    step = lucid.compile(lambda x: found(x))
    for i in range(3):
        assert step(lucid.tensor(float(i))) == (0.1, 1e300, 2**60 + 1, i > 1)
    assert not step.stats.eager_reasons


def test_a_disabled_function_runs_in_the_grad_mode_of_its_call(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        @lucid.compiler.disable
        def mode(x: Any) -> Any:
            return lucid.is_grad_enabled(), (x * 2).requires_grad

        @compile
        def step(x: Any) -> Any:
            x = x.detach().requires_grad_()
            with lucid.no_grad():
                found = mode(x)
            return found, mode(x)

        return [step(lucid.ones(2)) for _ in range(3)]

    agree(scenario, traces=1)


def test_what_a_disabled_function_writes_is_written_once(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        total = lucid.zeros(2)

        @lucid.compiler.disable
        def add(x: Any) -> Any:
            total.add_(x)
            return x * 2

        step = compile(lambda x: add(x) + total)
        return [(step(lucid.ones(2)), total * 1) for _ in range(3)]

    (step,) = agree(scenario, traces=0)
    assert step.stats.eager_reasons[0] == "add.forward, a host call, writes total"


def test_a_disabled_function_may_return_one_memory_twice(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        @lucid.compiler.disable
        def twice(x: Any) -> Any:
            y = x * 2
            return y, y, y[1:]

        @compile
        def step(x: Any) -> Any:
            first, *others = twice(x)
            first.add_(1)
            return others

        return [step(lucid.ones(2)) for _ in range(3)]

    (step,) = agree(scenario, traces=0)
    assert step.stats.eager_reasons[0] == (
        "twice.forward, a host call, gives back a part, or a view, of another result's memory"
    )


def test_what_a_disabled_function_may_not_do() -> None:
    w = lucid.ones(2, requires_grad=True)
    hidden = lucid.compiler.disable(lambda x: (w * x).sum())
    with pytest.raises(lucid.LucidError, match="isn't one of its arguments"):
        lucid.compile(lambda x: hidden(x))(lucid.ones(2))
    names = lucid.compiler.disable(reason="names")(lambda x: "a name")
    assert names(1) == "a name"
    with pytest.raises(lucid.LucidError, match="returns a str"):
        lucid.compile(lambda x: names(x))(lucid.ones(2))
    with pytest.raises(lucid.ArgumentError, match="recursive"):
        lucid.compiler.disable(names, recursive=False)


def test_an_exception_of_the_users_changes_nothing_where_numbers_are_read_at_each_call() -> None:
    w = lucid.ones(1)

    @lucid.compile
    def step(x: Any, epoch: int) -> Any:
        with lucid.no_grad():
            w.add_(1.0)
        if x.sum() < 0:
            raise KeyError(f"stopped in epoch {epoch}")
        return x * epoch

    for epoch in range(8):
        step(lucid.ones(2), epoch)
    with pytest.raises(KeyError, match="stopped in epoch 8"):
        step(-lucid.ones(2), 8)
    assert w.item() == 9.0 and not step.stats.eager_reasons


def test_what_a_host_call_says_is_said_once_for_each_call(capsys: Any, caplog: Any) -> None:
    class Loud(lucid.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            print("forward", x.numpy()[0])
            logging.getLogger("loud").warning("forward of %s", x.numpy()[0])
            return lucid.from_numpy(x.numpy() * 2)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            sys.stdout.write(f"backward {g.numpy()[0]}\n")
            return lucid.from_numpy(g.numpy() * 2)

    @lucid.compiler.disable
    def shown(x: Any) -> Any:
        print("shown", x.tolist(), file=sys.stderr)
        return x + 1

    @lucid.compile
    def step(x: Any) -> Any:
        y = x.detach().requires_grad_()
        Loud.apply(shown(y)).sum().backward()
        return y.grad

    with caplog.at_level(logging.WARNING, logger="loud"):
        for i in range(3):
            assert step(lucid.tensor([float(i)])).tolist() == [2.0]
    said = capsys.readouterr()
    assert said.out == "".join(f"forward {i + 1.0}\nbackward 1.0\n" for i in range(3))
    assert said.err == "".join(f"shown [{float(i)}]\n" for i in range(3))
    assert [record.getMessage() for record in caplog.records if record.name == "loud"] == [
        f"forward of {i + 1.0}" for i in range(3)
    ]
    assert step.stats.traces == 1 and not step.stats.eager_reasons


def test_what_a_computed_key_finds_is_noted_for_the_outcome_that_was_told():
    lucid.manual_seed(3)
    table = {i: lucid.full((3,), float(i)) for i in range(10)}

    @lucid.compile
    def step(x):
        return table[x.argmax().item()] + x[:3]

    for _ in range(40):  # some of which are audited: traced again for the outcomes of the call
        x = lucid.randn(10)
        assert step(x).tolist() == (table[x.argmax().item()] + x[:3]).tolist()
    assert step.stats.traces == 10 and not step.stats.eager_reasons, step.stats.eager_reasons


def test_what_a_look_needs_of_large_products_is_compiled(
    agree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy would take ten seconds for the gradients of a network of convolutions."""
    monkeypatch.setattr(present, "_MANY_PRODUCTS", 0)
    monkeypatch.setattr(present, "evaluated", None)

    def scenario(compile: Any) -> Any:
        lucid.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 3))
        optimizer = lucid.optim.SGD(net.parameters(), lr=0.1)

        @compile
        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            if not lucid.isfinite(loss):
                return "loss"
            loss.backward()
            if nn.utils.clip_grad_norm_(net.parameters(), 1.0) > 1.0:
                optimizer.step()
            return loss

        x, y = lucid.randn(4, 1, 6, 6), lucid.tensor([0, 1, 2, 0])
        results = [step(x * k, y) for k in (1, math.nan, 2, 0.1, 1)]
        with pytest.raises(IndexError, match="target 3 is out of range"):
            step(x, lucid.tensor([0, 1, 2, 3]))
        return results, net

    agree(scenario)


def test_the_largest_number_may_be_looked_at(caplog: Any) -> None:
    x = lucid.arange(3.0)
    step = lucid.compile(lambda i: x[int(i) :])
    for number in (1, 2**63 - 1, 2**63 - 2, -(2**63)):
        assert step(lucid.tensor(number)).tolist() == x[number:].tolist()
    assert "it looks at 9223372036854775807, the largest number of 64 bits" in caplog.text
