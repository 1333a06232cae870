"""Rounds of Python loops of which one is recorded for all: what they compute, and what is left."""

from __future__ import annotations

import collections
import dataclasses
import linecache
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fuzzing import many

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.compiler.recording.loops import python_loops
from lucid.ir.types import f64
from lucid.tensor.tree import flatten
from lucid.utils.checkpoint import checkpoint

ROUNDS, WIDTH, LENGTH = 12, 4, 16
XS = lucid.tensor(np.random.default_rng(1).normal(size=(LENGTH, WIDTH)), dtype=f64)
Program = Callable[[Any, Any], Any]


@pytest.fixture(autouse=True)
def of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short loops be recorded as long ones are."""
    monkeypatch.setattr(python_loops, "_LEAST_NODES", 1)
    monkeypatch.setattr(python_loops, "_LEAST_ROUNDS", 3)


def given() -> tuple[lucid.Tensor, lucid.Tensor]:
    rng = np.random.default_rng(0)
    w = lucid.tensor(0.4 * rng.normal(size=(WIDTH, WIDTH)), dtype=f64, requires_grad=True)
    return w, lucid.tensor(rng.normal(size=WIDTH), dtype=f64)


def found(step: Program) -> list[Any]:
    """What two calls of a program give, the gradient of its first argument included."""
    lucid.manual_seed(0)
    w, x = given()
    made = []
    for _ in range(2):
        w.grad = None
        made += [*flatten(step(w, x))[0], w.grad]
    return [x.detach().numpy().copy() if isinstance(x, lucid.Tensor) else x for x in made]


def recorded(step: Program, restarts: int = 0) -> int:
    """Compare a compiled program with eager mode; how many loops are recorded by one round."""
    wanted, compiled = found(step), lucid.compile(step)
    for one, other in zip(found(compiled), wanted, strict=True):
        if isinstance(other, np.ndarray):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
        else:
            assert one == other
    assert not compiled.stats.eager_reasons
    assert compiled.stats.traces == 1
    assert compiled.stats.restarts == restarts
    lines = compiled.stages["trace"].splitlines()
    return sum(x.startswith("function for") and ".backward" not in x for x in lines)


@dataclasses.dataclass
class State:
    value: Any
    count: int = 3


lstm = nn.LSTMCell(WIDTH, WIDTH).to(f64)


def one_variable(w: Any, x: Any) -> Any:
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
    x.sum().backward()
    return x


def variables_that_change_places(w: Any, x: Any) -> Any:
    before = now = x
    for _ in range(ROUNDS):
        new = 2 * now - before + 0.01 * (w @ now)
        before, now = now, new
    (now * before).sum().backward()
    return now, before


def containers(w: Any, x: Any) -> Any:
    state = {"a": x, "b": (x * 2, State(x))}
    for _ in range(ROUNDS):
        y, held = state["b"]
        state = {"a": lucid.tanh(w @ y), "b": (state["a"] * 0.5, State(held.value + y))}
    sum(x.sum() for x in (state["a"], state["b"][0], state["b"][1].value)).backward()
    return state["a"], state["b"][1].value


def what_is_read_behind_the_loop(w: Any, x: Any) -> Any:
    for i in range(ROUNDS):  # noqa: B007
        z = w @ x
        x = lucid.tanh(z)
        loss = (x * x).mean()
    (loss + z.sum()).backward()
    return loss, z, i


def a_sum(w: Any, x: Any) -> Any:
    loss = 0
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        loss += (x * x).mean()
    loss.backward()
    return loss


def a_carry_that_is_written(w: Any, x: Any) -> Any:
    x = x * 1
    for _ in range(ROUNDS):
        x[0] += 1
        x = w @ x
        x[1:] *= 0.5
    x.sum().backward()
    return x


def memory_that_is_written(w: Any, x: Any) -> Any:
    field = x.repeat(2)
    with lucid.no_grad():
        for _ in range(ROUNDS):
            field[1:-1] += 0.1 * (field[2:] - 2 * field[1:-1] + field[:-2])
            x = x * 0.9 + field[:WIDTH]
    return field, x


def views(w: Any, x: Any) -> Any:
    y = x.view(2, 2)
    for _ in range(ROUNDS):
        y = lucid.tanh(w @ y.reshape(WIDTH)).view(2, 2).t()
    y.sum().backward()
    return y


def a_cell(w: Any, x: Any) -> Any:
    state = None
    for _ in range(ROUNDS):
        state = lstm((w @ x).expand(2, WIDTH), state)
    assert state is not None
    state[0].sum().backward()
    return state


def draws(w: Any, x: Any) -> Any:
    for _ in range(ROUNDS):
        x = F.dropout(lucid.tanh(w @ x), 0.3) + 0.1 * lucid.randn_like(x)
    x.sum().backward()
    return x


def a_hook(w: Any, x: Any) -> Any:
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        x.register_hook(lambda g: g * 0.9)
    x.sum().backward()
    return x


def gradients(w: Any, x: Any) -> Any:
    y = w[0] * 1
    for _ in range(ROUNDS):
        (g,) = lucid.autograd.grad((y**3).sum(), y, create_graph=True)
        y = y - 0.1 * g
    (w @ y).sum().backward()
    return y


def second_order(w: Any, x: Any) -> Any:
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
    (g,) = lucid.autograd.grad(x.sum(), w, create_graph=True)
    (g * g).sum().backward()
    return g


def checkpoints(w: Any, x: Any) -> Any:
    for _ in range(ROUNDS):
        x = checkpoint(lambda t: lucid.tanh(w @ t), x, use_reentrant=False)
    x.sum().backward()
    return x


def systems_and_determinants(w: Any, x: Any) -> Any:
    total = lucid.zeros((), dtype=f64)
    for row in w.detach().repeat(3, 1):
        x = lucid.linalg.solve(w @ w.T + lucid.eye(WIDTH, dtype=f64) * 3.0, x + row)
        total = total + lucid.logdet(lucid.outer(x, x) + 2.0 * lucid.eye(WIDTH, dtype=f64))
    total.backward()
    return total, x


def an_exception_handler(w: Any, x: Any) -> Any:
    for _ in range(ROUNDS):
        try:
            z = w @ x
            x = lucid.tanh(z)
            del z
        except ValueError:
            break
    else:
        x = x + 1
    x.sum().backward()
    return x


def a_variable_of_an_inner_function(w: Any, x: Any) -> Any:
    def inner() -> Any:
        return w @ x

    for _ in range(ROUNDS):
        x = lucid.tanh(inner())
    x.sum().backward()
    return x


def inner_functions_with_variables_of_enclosing_ones() -> Program:
    scale, factors = 0.9, [0.1, 0.2, 0.3, 0.4]

    def step(w: Any, x: Any) -> Any:
        for _ in range(ROUNDS):
            x = lucid.stack(list(x.sum() * k * scale for k in factors)) @ w.tanh()  # noqa: C400
            apply = lambda t: t * scale + 0.1  # noqa: E731
            x = apply(x)
        x.sum().backward()
        return x

    return step


def a_variable_of_an_enclosing_function() -> Program:
    total = [lucid.zeros(WIDTH, dtype=f64)]

    def step(w: Any, x: Any) -> Any:
        h = total[0]

        def advance(x: Any) -> Any:
            nonlocal h
            for _ in range(ROUNDS):
                h = list(h * 0.5 + k * x for k in (1.0, 2.0))[0]  # noqa: C400, RUF015
                x = lucid.tanh(w @ x)
            return x

        x = advance(x)
        (x * h).sum().backward()
        return x, h

    return step


def an_attribute(w: Any, x: Any) -> Any:
    state, time = State(x), State(0.5)
    for _ in range(ROUNDS):
        state.value = lucid.tanh(w @ state.value) * time.value
        time.value += 0.25
    state.value.sum().backward()
    return state.value, time.value, state.count


def entries_of_a_dict(w: Any, x: Any) -> Any:
    state = {"x": x, "pair": (x, x * 2)}
    for _ in range(ROUNDS):
        one, two = state["pair"]
        state["x"] = lucid.tanh(w @ state["x"]) + two
        state.update(pair=(two, one * 0.5))
    state["x"].sum().backward()
    return state


def items_of_a_list_of_states(w: Any, x: Any) -> Any:
    states = [x, x * 2, x * 3]
    for _ in range(ROUNDS):
        below = x
        for i in range(3):
            states[i] = below = lucid.tanh(w @ states[i] + below)
    states[-1].sum().backward()
    return states


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", lucid.zeros(WIDTH, dtype=f64))
        self.state: Any = None

    def forward(self, w: Any, x: Any) -> Any:
        self.state = lucid.tanh(w @ (x if self.state is None else self.state))
        self.total = self.total * 0.5 + self.state.detach()
        return self.state


recurrent = Recurrent()


def attributes_of_a_module(w: Any, x: Any) -> Any:
    recurrent.state, recurrent.total = None, lucid.zeros(WIDTH, dtype=f64)
    for _ in range(ROUNDS):
        made = recurrent(w, x)
    made.sum().backward()
    return made, recurrent.total, recurrent.state.detach()


def two_names_of_one(w: Any, x: Any) -> Any:
    previous, total = None, 0
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        total = total + (0 if previous is None else (x * previous).sum())
        previous = x
    total.backward()
    return x, previous is x


def the_first_round_is_another(w: Any, x: Any) -> Any:
    total = 0
    for t in range(ROUNDS):
        x = lucid.tanh(w @ x)
        if t > 0:
            total = total + x.sum()
        if t and t - 1 >= 1:
            total = total * 0.5
    total.backward()
    return x


def the_last_round_is_another(w: Any, x: Any) -> Any:
    total, n = 0, XS.shape[0]
    for t, row in enumerate(XS):
        x = lucid.tanh(w @ x + row)
        if t < n - 1:
            total = total + (x * XS[t + 1]).sum()
        else:
            total = total * 2
        if t != n - 1:
            total = total + 1
    total.backward()
    return x


def lists_in_a_dict(w: Any, x: Any) -> Any:
    made = {"x": [], "sum": [x.sum()]}
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made["x"].append(x)
        made["sum"].append(x.sum())
    (lucid.stack(made["x"]).sum() + sum(made["sum"])).backward()
    return lucid.stack(made["x"]), lucid.stack(made["sum"]), len(made["x"])


def a_list_of_an_object(w: Any, x: Any) -> Any:
    state = State([])
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        state.value.append(x)
    lucid.stack(state.value).sum().backward()
    return lucid.stack(state.value)


def a_list_of_the_callers(w: Any, x: Any) -> Any:
    """The other one is the second call's own."""

    def fill(x: Any, made: list[Any] | None = None) -> Any:
        if made is None:
            made = []
        for _ in range(ROUNDS):
            x = lucid.tanh(w @ x)
            made.append(x)
        return lucid.stack(made).sum()

    kept = [x]
    (fill(x, kept) + fill(x)).backward()
    return lucid.stack(kept)


def the_item_before(w: Any, x: Any) -> Any:
    made = [x]
    for _ in range(ROUNDS):
        made.append(lucid.tanh(w @ made[-1]))
    lucid.stack(made).sum().backward()
    return made[-1], lucid.stack(made[1:])


def the_items_at_its_number(w: Any, x: Any) -> Any:
    made, other = [x], [x * 2, x * 3]
    for t in range(1, ROUNDS):
        scale = other[t] * 0.5
        made.append(lucid.tanh(w @ made[t - 1]) + scale)
        other.append(scale + made[-1])
    (lucid.stack(made).sum() + lucid.stack(other).square().sum()).backward()
    return made[-1], made[ROUNDS - 2], lucid.stack(other)


def at_the_front(w: Any, x: Any) -> Any:
    made = [x * 3]
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.insert(0, x)
    made.insert(0, x * 5)
    made += [x * 7]
    lucid.stack(made).square().sum().backward()
    return lucid.stack(made), len(made), made[1], made[-1]


def added_one_by_one(w: Any, x: Any) -> Any:
    made = []
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made += [x]
    lucid.stack(made).square().sum().backward()
    return lucid.stack(made)


def parts_of_a_list(w: Any, x: Any) -> Any:
    made = []
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(x)
    joined = lucid.stack(made[::-1]), lucid.cat(made[2:-1]), sum(made[1:]), lucid.stack(made[:3])
    sum(part.square().sum() for part in joined).backward()
    items = made[1], made[-2]
    made.reverse()
    items = (*items, made[1], made[-2])
    made.append(x * 2)
    return (*joined, lucid.stack(made), *items, made[1], made[-2], len(made[1:]))


def items_of_a_list(w: Any, x: Any) -> Any:
    made = []
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(x)
    lucid.stack(made).sum().backward()
    return made[5], made[-3] * made[5], made[5] is made[5]


def a_list_backwards(w: Any, x: Any) -> Any:
    made = []
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(x)
    joined = lucid.stack(made[::-1])
    joined.sum().backward()
    return joined


def what_is_comprehended(w: Any, x: Any) -> Any:
    made = [lucid.tanh(w @ row + x) for row in XS]
    lucid.stack(made).square().sum().backward()
    return lucid.stack(made), made[4], len(made)


def a_sum_of_a_generator_expression(w: Any, x: Any) -> Any:
    total = sum((lucid.tanh(w @ row + x).sum() * t for t, row in enumerate(XS)), x.sum())
    total.backward()
    return total


def a_list_of_a_generator_expression(w: Any, x: Any) -> Any:
    made = list(lucid.tanh(w @ row + x) for row in XS)  # noqa: C400
    lucid.stack(made).square().sum().backward()
    return lucid.stack(made), made[4]


def a_comprehension_in_a_round(w: Any, x: Any) -> Any:
    for _ in range(ROUNDS):
        x = lucid.stack([x.sum() * k for k in (0.1, 0.2, 0.3, 0.4)]) @ w.tanh()
    x.sum().backward()
    return x


def rows(w: Any, x: Any) -> Any:
    xs, loss = XS @ w, 0
    for t in range(1, LENGTH):
        x = lucid.tanh(x + xs[t, :] * XS[t, 2])
        loss += F.mse_loss(x, XS[t])
    loss.backward()
    return loss, x, t


def rows_backwards(w: Any, x: Any) -> Any:
    xs = (XS @ w).reshape(2, 8, WIDTH)
    for t in range(-1, -9, -1):
        x = lucid.tanh(x + xs[:, t].sum(0))
    x.sum().backward()
    return x


def rows_of_the_carry(w: Any, x: Any) -> Any:
    xs = XS @ w
    for t in range(LENGTH):
        xs = xs * 0.9 + xs[t]
    xs.sum().backward()
    return xs


def tokens(w: Any, x: Any) -> Any:
    found = lucid.tensor([1, 2, 3, 0, 1, 1, 2, 3, 0, 2, 1, 1, 0, 3, 1, 2]).reshape(2, 8)
    for t in range(8):
        x = lucid.tanh(x + F.embedding(found[:, t], w).sum(0))
    x.sum().backward()
    return x


def the_row_before(w: Any, x: Any) -> Any:
    """Teacher forcing: a variable shows memory from before."""
    known, loss = XS[0], 0
    for t in range(1, LENGTH):
        x = lucid.tanh(w @ known + x)
        loss = loss + F.mse_loss(x, XS[t])
        known = XS[t]
    loss.backward()
    return loss, known


def two_names(w: Any, x: Any) -> Any:
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        best = x
    best.sum().backward()
    return best is x


def shared_memory(w: Any, x: Any) -> Any:
    shown = x.clone()
    with lucid.no_grad():
        for _ in range(ROUNDS):
            shown.data = x
            shown += 0.1
            x = lucid.tanh(w @ x)
    return x, shown


def what_gets_a_gradient_later(w: Any, x: Any) -> Any:
    first, second, third = x * 1, x * 2, x * 3
    for _ in range(ROUNDS):
        first, second, third = second, third, lucid.tanh(w @ first)
    (first + second + third).sum().backward()
    return first


def gradients_of_a_leaf(w: Any, x: Any) -> Any:
    v = x.clone().requires_grad_()
    for _ in range(ROUNDS):
        loss = ((w.detach() @ v - 1) ** 2).sum()
        loss.backward()
        with lucid.no_grad():
            v -= 0.1 * v.grad
        v.grad = None
    return v.detach()


def a_gradient(w: Any, x: Any) -> Any:
    (w * w).sum().backward()
    for _ in range(ROUNDS):
        x = lucid.tanh(w.grad @ x)
    return x


def an_object_with_a_deque(w: Any, x: Any) -> Any:
    last = collections.deque([x], maxlen=2)
    for _ in range(ROUNDS):
        last.append(lucid.tanh(w @ last[-1]))
    last[0].sum().backward()
    return [*last]


def gradients_of_what_is_left(w: Any, x: Any) -> Any:
    for _ in range(ROUNDS):
        z = w @ x
        x = lucid.tanh(z)
    (g,) = lucid.autograd.grad(x.sum(), z, retain_graph=True)
    x.sum().backward()
    return g


def its_number(w: Any, x: Any) -> Any:
    for i in range(ROUNDS):
        x = lucid.tanh(w @ x) + i
    x.sum().backward()
    return x


def a_sum_that_was_there_before(w: Any, x: Any) -> Any:
    loss = lucid.zeros((), dtype=f64)
    seen = [loss]
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        loss += x.sum()
    seen[0].backward()
    return loss


class Rows(nn.Parameter):
    """A tensor of a class that tells numbers from tensors."""

    def __getitem__(self, index: Any) -> Any:
        row = super().__getitem__(index)
        return row if isinstance(index, int) else row * 100


OWN = Rows(XS.clone())


def rows_of_a_class_of_its_own(w: Any, x: Any) -> Any:
    for t in range(LENGTH):
        x = lucid.tanh(w @ x + OWN[t])
    return x


def a_list(w: Any, x: Any) -> Any:
    made, sums = [x], []
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(x)
        sums.append(x.sum())
    joined = lucid.stack(made, -1)
    (
        joined.sum()
        + lucid.cat(made).sin().sum()
        + sum(sums) / len(sums)
        + made[-1].sum()
        + made[1].sum()
    ).backward()
    return joined, lucid.stack(sums), len(made)


def a_list_that_is_gone_over(w: Any, x: Any) -> Any:
    made, loss = [], 0
    for t in range(LENGTH):
        x = lucid.tanh(w @ x)
        made.append(x * XS[t])
    for y, row in zip(made, XS, strict=False):
        loss = loss + F.mse_loss(y, row)
    loss.backward()
    return loss


def rows_one_by_one(w: Any, x: Any) -> Any:
    for row in XS:
        x = lucid.tanh(w @ x + row)
    x.sum().backward()
    return x, row


def numbered_rows(w: Any, x: Any) -> Any:
    for t, row in enumerate(XS @ w, 1):
        x = lucid.tanh(x + row) / t + XS[t - 1]
    x.sum().backward()
    return x, t


def pairs_of_other_lengths(w: Any, x: Any) -> Any:
    for row, other in zip(XS, XS[:9], strict=False):
        x = lucid.tanh(w @ x + row - other)
    x.sum().backward()
    return x


def pairs_of_rows(w: Any, x: Any) -> Any:
    loss = 0
    for i, (row, following) in enumerate(zip(XS[:8], XS[8:], strict=True)):
        x = lucid.tanh(w @ x + row)
        loss = loss + F.mse_loss(x, following) * i
    loss.backward()
    return loss, x


def other_rows(w: Any, x: Any) -> Any:
    """The one before and behind, and from the other end."""
    total = 0
    for t in range(1, LENGTH - 1):
        x = lucid.tanh(w @ x + XS[t + 1] - XS[t - 1] + XS[LENGTH - 1 - t])
        total = total + XS[-t, 2] * x.sum()
    total.backward()
    return x, total


def from_the_last_to_the_first(w: Any, x: Any) -> Any:
    for t in reversed(range(LENGTH)):
        x = lucid.tanh(w @ x + XS[t]) * (t + 1)
    x.sum().backward()
    return x, t


def what_is_written_at_its_number(w: Any, x: Any) -> Any:
    made, table = lucid.zeros(LENGTH, WIDTH, dtype=f64), lucid.zeros(WIDTH, LENGTH + 1, dtype=f64)
    for t in range(LENGTH):
        x = lucid.tanh(w @ x)
        made[t] = x
        made[t, 1:3] += XS[t, :2]
        with lucid.no_grad():
            table[:, t + 1] = 0.5 * table[:, t] + x
    (made * made).sum().backward()
    return made, table


def a_number_that_grows(w: Any, x: Any) -> Any:
    t = 0.0
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x) + t
        t += 0.01
    x.sum().backward()
    return x, t


def a_number_that_an_inner_function_reads(w: Any, x: Any) -> Any:
    time = 0.0

    def slope() -> Any:
        return lucid.tanh(w @ x) * time

    for _ in range(ROUNDS):
        x = x + 0.1 * slope()
        time += 0.1
    x.sum().backward()
    return x, time


def ranges_at_its_number(w: Any, x: Any) -> Any:
    """Of a length that is known."""
    for t in range(1, LENGTH - 2):
        x = lucid.tanh(w @ x) + XS[t : t + 2].sum(0) * XS[t - 1 : t + 2, 1].mean()
    x.sum().backward()
    return x


def a_comparison_with_its_number(w: Any, x: Any) -> Any:
    lengths = lucid.tensor([3, 9, 5, 12])
    for t in range(LENGTH):
        x = lucid.where(t < lengths, lucid.tanh(w @ x), x)
    x.sum().backward()
    return x


@pytest.mark.parametrize(
    "program",
    [
        *(one_variable, variables_that_change_places, containers, what_is_read_behind_the_loop),
        *(a_sum, a_carry_that_is_written, memory_that_is_written, views, a_cell, draws, a_hook),
        shared_memory,
        *(rows, rows_backwards, rows_of_the_carry, tokens, the_row_before),
        *(
            two_names,
            what_gets_a_gradient_later,
            gradients,
            gradients_of_what_is_left,
            gradients_of_a_leaf,
            a_gradient,
            an_object_with_a_deque,
            second_order,
            checkpoints,
            systems_and_determinants,
            an_exception_handler,
        ),
        *(a_variable_of_an_inner_function, a_comprehension_in_a_round, its_number),
        *(a_sum_that_was_there_before, rows_of_a_class_of_its_own, a_list, rows_one_by_one),
        *(
            numbered_rows,
            pairs_of_rows,
            pairs_of_other_lengths,
            other_rows,
            from_the_last_to_the_first,
        ),
        *(what_is_written_at_its_number, a_comparison_with_its_number),
        *(a_number_that_grows, ranges_at_its_number, a_number_that_an_inner_function_reads),
        *(
            inner_functions_with_variables_of_enclosing_ones(),
            a_variable_of_an_enclosing_function(),
        ),
        *(an_attribute, entries_of_a_dict, items_of_a_list_of_states),
        *(two_names_of_one, the_first_round_is_another, the_last_round_is_another),
        *(lists_in_a_dict, a_list_of_an_object, a_list_of_the_callers, the_item_before),
        *(the_items_at_its_number, at_the_front, added_one_by_one),
        *(parts_of_a_list, a_list_backwards, items_of_a_list),
        *(what_is_comprehended, a_sum_of_a_generator_expression, a_list_of_a_generator_expression),
    ],
)
def test_one_round_is_recorded_for_all(program: Program) -> None:
    assert recorded(program) == 1


def test_a_round_that_lapack_refuses_raises_its_error_and_changes_nothing() -> None:
    def step(matrices: Any, x: Any, log: Any) -> Any:
        for matrix in matrices:
            x = lucid.linalg.solve(matrix, x)
        log.add_(1.0)
        return x

    compiled, log = lucid.compile(step), lucid.zeros(2)
    matrices = lucid.eye(3).repeat(9, 1, 1) * 2.0
    np.testing.assert_array_equal(compiled(matrices, lucid.ones(3), log).numpy(), 2.0**-9)
    matrices[5, 1] = 0.0
    with pytest.raises(lucid.linalg.LinAlgError, match="ingular"):
        compiled(matrices, lucid.ones(3), log)
    assert log.tolist() == [1.0, 1.0]
    matrices[5, 1, 1] = 4.0
    assert (
        compiled(matrices, lucid.ones(3), log).tolist()
        == step(matrices, lucid.ones(3), log).tolist()
    )
    assert log.tolist() == [3.0, 3.0] and compiled.stats.traces == 1
    assert "function for" in compiled.stages["trace"]


def test_rounds_that_find_sizes_are_recorded_one_by_one() -> None:
    """Those of a trace's first rounds say nothing of the others."""

    def step(x: Any) -> Any:
        for _ in range(60):
            x = lucid.linalg.cholesky(lucid.outer(x, x) + lucid.eye(3, dtype=f64))[:, 0].roll(1)
            x = x + (x > 0.3).nonzero().shape[0] * 0.1 - 0.5
        return x

    compiled = lucid.compile(step)
    for seed in (0, 1, 2, 0):
        x = lucid.tensor(np.random.default_rng(seed).normal(size=3))
        np.testing.assert_allclose(compiled(x).numpy(), step(x).numpy())
    assert "function for" not in compiled.stages["trace"]


def test_attributes_of_a_module_are_carried() -> None:
    assert recorded(attributes_of_a_module, restarts=1) == 1  # that binds a buffer


def test_what_a_loop_has_put_in_a_list_is_gone_over_by_another() -> None:
    assert recorded(a_list_that_is_gone_over) == 2


def test_a_list_that_two_loops_fill_is_the_stack_of_the_first_one() -> None:
    assert recorded(a_list_of_two_loops) == 1


def test_versions_count_the_writes_of_all_rounds() -> None:
    versions = [
        [x._version for x in run(*given())]
        for run in (what_is_written_at_its_number, lucid.compile(what_is_written_at_its_number))
    ]
    assert versions[0] == versions[1] == [3 * LENGTH, LENGTH]


def test_loops_in_loops() -> None:
    def step(w: Any, x: Any) -> Any:
        for _ in range(6):
            y = x
            for _ in range(7):
                y = lucid.tanh(w @ y)
            x = x + y
        x.sum().backward()
        return x

    assert (
        recorded(step) == 4
    )  # those of two rounds that Python makes, and both of the recorded one


def test_a_loop_in_a_custom_backward() -> None:
    class Decay(lucid.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            for _ in range(ROUNDS):
                g = g * 0.9 + x * 0.01
            return g

    def step(w: Any, x: Any) -> Any:
        y = Decay.apply(w @ x)
        y.sum().backward()
        return y

    assert recorded(step) == 1


# ---------------------------------------------------------------------- what stays Python's


def ranges_that_end_outside(w: Any, x: Any) -> Any:
    for t in range(1, LENGTH):
        x = lucid.tanh(w @ x) + XS[t : t + 3].sum(0)
    x.sum().backward()
    return x


def a_list_of_two_loops(w: Any, x: Any) -> Any:
    made = []
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(x)
    for _ in range(ROUNDS):
        x = lucid.sin(x)
        made.append(x)
    joined = lucid.stack(made)
    joined.sum().backward()
    return joined


def a_list_of_what_is_written_later(w: Any, x: Any) -> Any:
    made, field = [], XS[0].clone()
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(field)
    field += 1
    return lucid.stack(made), x


def a_list_of_other_sizes(w: Any, x: Any) -> Any:
    made = [x[:2]]
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(x)
    joined = lucid.cat(made)
    joined.sum().backward()
    return joined


def a_carry_that_the_next_round_writes(w: Any, x: Any) -> Any:
    made, x = [], x * 1
    for _ in range(ROUNDS):
        x += 1
        x = 0.5 * x.roll(1)
        made.append(x)
    return lucid.stack(made)


def a_branch_on_its_number(w: Any, x: Any) -> Any:
    for i in range(ROUNDS):
        x = lucid.tanh(w @ x) if i % 3 == 0 else lucid.sin(w @ x)
    x.sum().backward()
    return x


def a_list_whose_item_is_written(w: Any, x: Any) -> Any:
    made = items_made(w, x)
    for i, item in enumerate(made):
        if i == 2:
            item.mul_(2)
    lucid.stack(made).sum().backward()
    return lucid.stack(made)


def a_list_one_of_whose_items_is_written(w: Any, x: Any) -> Any:
    made = items_made(w, x)
    made[5].mul_(2)
    lucid.stack(made).sum().backward()
    return lucid.stack(made)


def a_hook_on_an_item(w: Any, x: Any) -> Any:
    made = items_made(w, x)
    handle = made[5].register_hook(lambda g: g * 3)
    lucid.stack(made).square().sum().backward()
    handle.remove()
    return x


def a_gradient_that_an_item_retains(w: Any, x: Any) -> Any:
    kept = None
    made = items_made(w, x)
    for i, item in enumerate(made):
        if i == 2:
            kept = item
            kept.retain_grad()
    lucid.stack(made).square().sum().backward()
    return kept.grad


def the_gradient_of_an_item(w: Any, x: Any) -> Any:
    made = items_made(w, x)
    item = made[5]
    return lucid.autograd.grad(lucid.stack(made).square().sum(), item)


def an_item_that_is_detached(w: Any, x: Any) -> Any:
    made = items_made(w, x)
    made[5].detach_().requires_grad_()
    lucid.stack(made).square().sum().backward()
    return x, made[5].grad


def an_item_that_is_written_at_last(w: Any, x: Any) -> Any:
    w.sum().backward()
    with lucid.no_grad():
        made = items_made(w, x)
        joined = lucid.stack(made)
        made[5].mul_(2)
        return joined, lucid.stack(made)


def an_item_that_becomes_a_leaf(w: Any, x: Any) -> Any:
    made = items_made(w.detach(), x)
    item = made[5].requires_grad_()
    (lucid.stack(made).square().sum() + w.sum()).backward()
    return item.grad


def items_made(w: Any, x: Any) -> list[Any]:
    made = []
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(x * 2)
    return made


def a_list_that_is_returned(w: Any, x: Any) -> Any:
    made = []
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(x * 2)
    x.sum().backward()
    return made


def hooks_on_items(w: Any, x: Any) -> Any:
    made = []
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(x)
    for y in made:
        y.register_hook(lambda g: 2 * g)
    lucid.stack(made).sum().backward()
    return x


def what_is_written_behind_a_list(w: Any, x: Any) -> Any:
    made, field = [], XS[0].clone()
    with lucid.no_grad():
        for _ in range(ROUNDS):
            field += 0.1
            x = lucid.tanh(w @ x)
            made.append(field)
    return lucid.stack(made), x


def a_carry_that_is_written_behind_a_list(w: Any, x: Any) -> Any:
    made, x = [], w[0] * 1
    for _ in range(ROUNDS):
        x[0] += 1
        x = x.roll(1) + XS[0]
        made.append(x)
    joined = lucid.stack(made)
    joined.sum().backward()
    return joined


def what_is_written_by_another_name(w: Any, x: Any) -> Any:
    made = lucid.zeros(LENGTH, WIDTH, dtype=f64)
    others = {"first": made[:4]}
    for t in range(4, LENGTH):
        x = lucid.tanh(w @ x) + others["first"].detach().sum()
        made[t - 4] = x
    made.sum().backward()
    return made, x


def rows_that_are_written(w: Any, x: Any) -> Any:
    field = XS.clone()
    with lucid.no_grad():
        for t in range(LENGTH):
            row = field[t]
            row += x
            x = x * 0.9
    return field, x


def its_number_in_a_call(w: Any, x: Any) -> Any:
    def scaled(i: int, row: Any) -> Any:
        return row * 2.0**-i

    for i in range(ROUNDS):
        x = lucid.tanh(w @ x) + scaled(i, XS[0])
    x.sum().backward()
    return x


def rows_of_a_list(w: Any, x: Any) -> Any:
    layers = [w, w * 2, w * 3] * ROUNDS
    for k in range(ROUNDS):
        x = lucid.tanh(layers[k] @ x)
    x.sum().backward()
    return x


def memory_that_is_shared_and_written(w: Any, x: Any) -> Any:
    field = XS[0].clone()
    shown = field.detach()
    with lucid.no_grad():
        for _ in range(ROUNDS):
            field += 0.1
            x = lucid.tanh(w @ x + shown)
            shown = field.detach()
    return field, x


def a_history_that_is_written(w: Any, x: Any) -> Any:
    kept = [lucid.zeros((), dtype=f64)]
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        kept[0].add_(x.sum())
    kept[0].backward()
    return kept[0]


def gradients_of_what_the_carry_follows_from(w: Any, x: Any) -> Any:
    x = x * w.sum()
    for _ in range(ROUNDS):
        (g,) = lucid.autograd.grad((w @ x).sum(), w, retain_graph=True)
        x = x - 0.1 * g[0]
    return x


class Sine(lucid.autograd.Function):
    """By NumPy, which the native step calls."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.slope = np.cos(x.numpy())
        return lucid.from_numpy(np.sin(x.numpy()))

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * lucid.from_numpy(ctx.slope)


def calls_of_python(w: Any, x: Any) -> Any:
    for t in range(ROUNDS):
        x = Sine.apply(w @ x + XS[t])
    x.sum().backward()
    return x


def rows_at_other_numbers(w: Any, x: Any) -> Any:
    layers = [w, w * 2, w * 3] * ROUNDS
    for k in range(ROUNDS):
        x = lucid.tanh(layers[k + 1] @ x)
    x.sum().backward()
    return x


def a_sum_from_the_sixth_round_on(w: Any, x: Any) -> Any:
    total = 0
    for t in range(ROUNDS):
        x = lucid.tanh(w @ x)
        if t >= 6:
            total = total + x.sum()
    total.backward()
    return x


def sums_up_to_a_round(w: Any, x: Any) -> Any:
    total = x.sum()
    for t in range(ROUNDS):
        x = lucid.tanh(w @ x)
        total = total + (x.sum() if t < 6 else x.sum() * 2)
    total.backward()
    return total


def sums_from_a_round_on(w: Any, x: Any) -> Any:
    total = x.sum()
    for t in range(ROUNDS):
        x = lucid.tanh(w @ x)
        total = total + (x.sum() * 2 if t > 7 else x.sum())
    total.backward()
    return total


def names_that_part(w: Any, x: Any) -> Any:
    """Both are one tensor in the first rounds, and none of the others."""
    y = x
    for t in range(ROUNDS):
        x = lucid.tanh(w @ x)
        if t < 3:
            y = x
    (x * y).sum().backward()
    return x, y


KEPT = State([])


def a_list_that_was_there_before(w: Any, x: Any) -> Any:
    KEPT.value.clear()
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        KEPT.value.append(x.detach())
    x.sum().backward()
    return lucid.stack(KEPT.value)


def keys_that_come(w: Any, x: Any) -> Any:
    state = {}
    for t in range(ROUNDS):
        x = lucid.tanh(w @ x)
        state[t] = x
    lucid.stack([*state.values()]).sum().backward()
    return x


class Meter(list[Any]):
    total: Any = 0


def an_object_that_is_a_list_as_well(w: Any, x: Any) -> Any:
    meter = Meter()
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        meter.append(x)
        meter.total = meter.total + x.sum()
    meter.total.backward()
    return meter.total, lucid.stack(list(meter))


def a_key_from_the_fourth_round_on(w: Any, x: Any) -> Any:
    state = {"x": x}
    for t in range(ROUNDS):
        state["x"] = lucid.tanh(w @ state["x"])
        if t >= 3:
            state["last"] = state["x"]
    state["x"].sum().backward()
    return state


def a_list_that_another_list_has(w: Any, x: Any) -> Any:
    made = []
    lists = [made, made]
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(x)
    lucid.stack(lists[1]).sum().backward()
    return lucid.stack(lists[0]), len(lists[1])


def a_list_that_an_iterator_has(w: Any, x: Any) -> Any:
    made = [x]
    items = iter(made)
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(x)
    lucid.stack(made).sum().backward()
    return [next(items), next(items), next(items)]


def a_table_that_is_comprehended(w: Any, x: Any) -> Any:
    made = {t: lucid.tanh(w @ x) * t for t in range(ROUNDS)}
    lucid.stack([*made.values()]).sum().backward()
    return made[3]


def the_item_before_the_last(w: Any, x: Any) -> Any:
    made = [x, x * 2]
    for t in range(1, ROUNDS):
        made.append(lucid.tanh(w @ made[t - 1]) + made[-1])
    lucid.stack(made).sum().backward()
    return made[-1]


def what_was_the_last_item(w: Any, x: Any) -> Any:
    made, total = [x], lucid.zeros((), dtype=f64)
    for t in range(ROUNDS):
        made.append(lucid.tanh(w @ made[-1]))
        if t >= 3:
            total = total + made[t].sum()
    (lucid.stack(made).sum() + total).backward()
    return made[-1], total


def a_list_that_each_round_turns(w: Any, x: Any) -> Any:
    made = []
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(x)
        made.reverse()
    lucid.stack(made).square().sum().backward()
    return lucid.stack(made)


def the_length_in_each_round(w: Any, x: Any) -> Any:
    made, count = [], 0.0
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        made.append(x)
        count += len(made)
    lucid.stack(made).sum().backward()
    return x, count


def all_pairs_comprehended(w: Any, x: Any) -> Any:
    made = [lucid.tanh(w @ x) * t * k for t in (1, 2) for k in range(ROUNDS)]
    lucid.stack(made).sum().backward()
    return lucid.stack(made)


def what_a_condition_leaves(w: Any, x: Any) -> Any:
    made = [lucid.tanh(w @ x) * t for t in range(ROUNDS) if t % 2]
    lucid.stack(made).sum().backward()
    return lucid.stack(made)


def a_tuple_of_a_generator_expression(w: Any, x: Any) -> Any:
    made = tuple(lucid.tanh(w @ row + x) for row in XS)
    lucid.stack(made).square().sum().backward()
    return made


def the_largest_of_a_generator_expression(w: Any, x: Any) -> Any:
    largest = max((lucid.tanh(w @ x) * t).sum().item() for t in range(ROUNDS))
    (w.sum() * largest).backward()
    return w.detach() * largest


def a_generator_of_its_own(w: Any, x: Any) -> Any:
    rng = np.random.default_rng(0)
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x) + float(rng.normal())
    x.sum().backward()
    return x


def a_flag(w: Any, x: Any) -> Any:
    flag = False
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x) if flag else lucid.sin(w @ x)
        flag = not flag
    x.sum().backward()
    return x


def a_break(w: Any, x: Any) -> Any:
    count = 0
    for _ in range(ROUNDS):
        x, count = lucid.tanh(w @ x), count + 1
        if count == 7:
            break
    x.sum().backward()
    return x, count


def an_error(w: Any, x: Any) -> Any:
    count = [0]
    try:
        for _ in range(ROUNDS):
            x = lucid.tanh(w @ x)
            count[0] += 1
            if count[0] == 7:
                raise ValueError
    except ValueError:
        x.sum().backward()
    return x


def a_look(w: Any, x: Any) -> Any:
    for _ in range(ROUNDS):
        x = lucid.tanh(w @ x)
        if x.abs().max().item() < 1e-9:
            break
    x.sum().backward()
    return x


def a_training(w: Any, x: Any) -> Any:
    model = nn.Linear(WIDTH, 1).to(f64)
    optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)
    with lucid.no_grad():
        model.weight.copy_(w[:1])
        model.bias.zero_()
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        loss = ((model(x) - 1) ** 2).sum()
        loss.backward()
        optimizer.step()
    return loss.detach(), model.weight.detach().clone()


def all_variables(w: Any, x: Any) -> Any:
    for _ in range(ROUNDS):
        y = lucid.tanh(w @ x)
        x = y
    locals()["y"].sum().backward()
    return x


def a_generator(w: Any, x: Any) -> Any:
    def values(x: Any) -> Iterator[Any]:
        for _ in range(ROUNDS):
            x = lucid.tanh(w @ x)
            yield x

    for y in values(x):
        x = y
    x.sum().backward()
    return x


def a_comprehension(w: Any, x: Any) -> Any:
    kept = [[lucid.tanh(w @ x + k) for k in (1, 2)] for _ in range(ROUNDS)]
    kept[3][1].sum().backward()
    return kept[2][0]


@pytest.mark.parametrize(
    "program",
    [
        *(
            rows_of_a_list,
            a_generator_of_its_own,
        ),
        *(memory_that_is_shared_and_written, rows_at_other_numbers),
        *(a_carry_that_is_written_behind_a_list, a_branch_on_its_number),
        *(keys_that_come, a_list_that_another_list_has),
        *(an_object_that_is_a_list_as_well, the_item_before_the_last),
        *(a_list_that_an_iterator_has, a_table_that_is_comprehended, all_pairs_comprehended),
        *(what_a_condition_leaves, the_largest_of_a_generator_expression),
        a_tuple_of_a_generator_expression,
        *(
            a_history_that_is_written,
            a_flag,
            a_break,
            an_error,
            a_look,
        ),
        *(all_variables, a_generator, a_comprehension),
    ],
)
def test_rounds_that_differ_or_keep_something_are_pythons(program: Program) -> None:
    assert recorded(program) == 0


@pytest.mark.parametrize(
    ("program", "restarts"),
    [
        *((a_list_that_is_returned, 1), (hooks_on_items, 1), (rows_that_are_written, 2)),
        *((a_list_whose_item_is_written, 1), (a_list_one_of_whose_items_is_written, 1)),
        *((a_hook_on_an_item, 1), (a_gradient_that_an_item_retains, 1)),
        *((the_gradient_of_an_item, 1), (an_item_that_is_detached, 1)),
        *((an_item_that_is_written_at_last, 1), (an_item_that_becomes_a_leaf, 1)),
        *((a_sum_from_the_sixth_round_on, 1), (the_length_in_each_round, 1), (names_that_part, 1)),
        (a_list_that_each_round_turns, 1),
        (what_was_the_last_item, 1),
        *((sums_up_to_a_round, 1), (sums_from_a_round_on, 1)),
        (a_key_from_the_fourth_round_on, 1),
        *((what_is_written_behind_a_list, 1), (what_is_written_by_another_name, 1)),
        *((its_number_in_a_call, 1), (ranges_that_end_outside, 1)),
        *((a_list_of_what_is_written_later, 1), (a_list_of_other_sizes, 1)),
        (a_carry_that_the_next_round_writes, 1),
    ],
)
def test_rounds_that_turn_out_to_differ_begin_again(program: Program, restarts: int) -> None:
    assert recorded(program, restarts) == 0


@pytest.mark.parametrize("index", [ROUNDS, -ROUNDS - 1])
def test_an_item_that_is_not_there_is_an_error(index: int) -> None:
    def step(w: Any, x: Any) -> Any:
        return items_made(w, x)[index]

    with pytest.raises(IndexError, match="list index out of range"):
        lucid.compile(step)(*given())


def test_a_list_that_was_there_before_gets_all_items() -> None:
    assert recorded(a_list_that_was_there_before, restarts=2) == 0  # that changes it, in rounds
    assert len(KEPT.value) == ROUNDS


def test_items_that_are_views_show_what_is_written_later() -> None:
    def step(w: Any, x: Any) -> Any:
        xs = XS.clone()
        rows = [row for row in xs]  # noqa: C416
        xs.mul_(3)
        return lucid.stack(rows)

    assert recorded(step, restarts=2) == 0


def test_items_that_python_has_made_stay_themselves() -> None:
    def step(w: Any, x: Any) -> Any:
        made = [w @ row if t < 2 else row for t, row in enumerate(XS)]
        hs = []
        for row in XS:
            x = lucid.tanh(w @ x + row)
            hs.append(x)
        (lucid.stack(made).sum() + x.sum()).backward()
        return [v.requires_grad for v in made], any(h is x for h in hs), hs[1] is hs[1 - len(hs)]

    assert recorded(step) == 2


@pytest.mark.parametrize("times", [1, 2, 3])
def test_the_first_item_of_a_list_is_the_last_one_behind_a_reverse(times: int) -> None:
    def step(w: Any, x: Any) -> Any:
        hs = [x]
        for row in XS:
            x = lucid.tanh(w @ x + row)
            hs.insert(0, x)
        for _ in range(times):
            hs.reverse()
            hs.append(w @ row)
        lucid.stack(hs).sum().backward()
        return hs[0], hs[-1], hs[3], hs[times - 1].requires_grad, lucid.stack(hs)

    assert recorded(step) == 1


def test_numbers_that_are_put_at_the_front_of_a_list_are_found_from_there() -> None:
    def step(w: Any, x: Any) -> Any:
        made = [0.5]
        for _ in range(ROUNDS):
            x = x * 0.5
            made.insert(0, x[0].item())
        return made[0], made[1], made[2], made[ROUNDS // 2], made[-2], made[-1], len(made)

    assert recorded(step) == 1


def test_parts_of_a_list_of_numbers_are_numbers() -> None:
    def step(w: Any, x: Any) -> Any:
        made = []
        for _ in range(ROUNDS):
            x = x * 0.5
            made.append(x[0].item())
        last, total = made[-4:], 0.0
        for value in last:
            total += value
        ends = last[0], last[-1], made[::-1][0]
        are_floats = [isinstance(x, float) for x in (sum(last), max(last), total, *ends)]
        return sum(last), max(last), sum(last) / len(last), total, made[2:4], ends, are_floats

    assert recorded(step) >= 1


def test_a_sum_may_begin_at_something_named() -> None:
    def step(w: Any, x: Any) -> Any:
        total = sum((w @ row for row in XS), start=x) + sum([w @ row for row in XS], start=x)
        total.sum().backward()
        return total, sum((row for row in XS[:2]), start=x)

    assert recorded(step) == 2


def test_a_list_that_rounds_have_filled_matches_a_pattern() -> None:
    def step(w: Any, x: Any) -> Any:
        match [w @ row for row in XS]:
            case [first, *_, last]:
                first.sum().backward()
                return first, last

    assert recorded(step, restarts=1) == 0


def test_a_generator_of_which_some_items_are_left_is_let_go() -> None:
    def step(w: Any, x: Any) -> Any:
        xs = XS * w.sum()
        first = next(row * 2 for row in xs)
        first.sum().backward()
        return first, any(float(row.sum()) > 1 for row in xs)

    recorded(step)


@pytest.mark.parametrize("count", range(1, 6))
def test_rows_are_numbered_from_a_start(count: int) -> None:
    def step(w: Any, x: Any) -> Any:
        for t, row in enumerate(XS[:count], start=1):
            x = lucid.tanh(w @ x) + t * row
        for t, row in enumerate(XS[:count], 5):
            x = w @ x + t * row
        x.sum().backward()
        return x

    recorded(step)


def test_rounds_that_differentiate_what_was_before_them_are_pythons() -> None:
    assert recorded(gradients_of_what_the_carry_follows_from, restarts=1) == 0


def test_rounds_that_call_python_are_pythons() -> None:
    assert recorded(calls_of_python, restarts=1) == 0  # a Function turns out to run in Python


def test_a_hook_that_counts_is_called_for_each_round() -> None:
    def step(w: Any, x: Any) -> Any:
        count = [0]

        def hook(g: Any) -> Any:
            count[0] += 1
            return g * count[0]

        for _ in range(ROUNDS):
            x = lucid.tanh(w @ x)
            x.register_hook(hook)
        x.sum().backward()
        return x, count[0]

    assert recorded(step, restarts=1) == 0  # the backward tells, after the round was recorded


def test_what_keeps_the_number_of_a_round_has_an_int() -> None:
    kept = []

    def step(w: Any, x: Any) -> Any:
        for i in range(ROUNDS):
            x = lucid.tanh(w @ x)
            kept.append(i)
        return x, i

    wanted, made = found(step), found(lucid.compile(step))
    assert made[1] == wanted[1] == ROUNDS - 1
    assert kept == [*range(ROUNDS)] * 4
    assert {*map(type, (*kept, made[1]))} == {int}


def test_rounds_that_train_are_pythons() -> None:
    wanted, compiled = found(a_training), lucid.compile(a_training)
    for one, other in zip(found(compiled), wanted, strict=True):
        np.testing.assert_allclose(one, other) if other is not None else None


HIDDEN = "calls = []\ndef is_late():\n    calls.append(0)\n    return len(calls) % 2 == 0"


def test_rounds_that_get_a_gradient_after_all_begin_again() -> None:
    hidden: dict[str, Any] = {}
    exec(compile(HIDDEN, python_loops.__file__, "exec"), hidden)
    is_late = hidden["is_late"]

    def step(w: Any, x: Any) -> Any:
        for _ in range(ROUNDS):
            x = lucid.tanh((w if is_late() else w.detach()) @ x)
        x.sum().backward()
        return x

    assert recorded(step, restarts=1) == 0


def test_a_number_that_becomes_another_kind_begins_again() -> None:
    hidden: dict[str, Any] = {}
    exec(compile(HIDDEN, python_loops.__file__, "exec"), hidden)
    is_late = hidden["is_late"]

    def step(w: Any, x: Any) -> Any:
        time: Any = 0.0
        for _ in range(ROUNDS):
            x = lucid.tanh(w.detach() @ x) * time
            time = lucid.tensor(1.0, dtype=f64) if is_late() else time + 1
        return x

    compiled = lucid.compile(step)
    compiled(*given())  # the second round, which is recorded, gives a tensor
    assert compiled.stats.restarts == 1


@pytest.mark.parametrize("leaves", ["breaks", "raises", "returns"])
def test_a_loop_that_is_left_in_the_recorded_round_begins_again(leaves: str) -> None:
    """What decides lies where no trace looks, as in an extension in C."""
    hidden: dict[str, Any] = {}
    exec(compile(HIDDEN, python_loops.__file__, "exec"), hidden)
    is_late, calls = hidden["is_late"], hidden["calls"]

    def step(w: Any, x: Any) -> Any:
        try:
            for _ in range(ROUNDS):
                x = lucid.tanh(w @ x)
                if is_late():
                    if leaves == "raises":
                        raise ValueError
                    if leaves == "returns":
                        return x
                    break
        except ValueError:
            pass
        return x

    w, x = given()
    compiled, wanted = lucid.compile(step), step(w, x)
    calls.clear()
    made = compiled(w, x)
    assert len(calls) == 4  # it has been left, and has begun again
    np.testing.assert_allclose(made.detach(), wanted.detach())


def test_a_long_loop_takes_no_longer_to_record() -> None:
    def nodes(rounds: int) -> int:
        def step(w: Any, x: Any) -> Any:
            for _ in range(rounds):
                x = lucid.tanh(w @ x)
            x.sum().backward()
            return x

        compiled = lucid.compile(step)
        compiled(*given())
        return len(compiled.stages["trace"].splitlines())

    assert nodes(20) == nodes(2000)


def test_an_error_in_a_round_has_the_users_line() -> None:
    def step(w: Any, x: Any) -> Any:
        for _ in range(ROUNDS):
            x = lucid.cat([x, x]) @ w
        return x

    messages = []
    for each in (step, lucid.compile(step)):
        with pytest.raises(lucid.LucidError) as error:
            each(*given())
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert "lucid.cat([x, x]) @ w" in messages[1]


# ---------------------------------------------------------------------- as many as a call says

COUNTS = [9, 12, 7, 16, 11, 8, 15, 10, 13, 14]


def require_same(step: Callable[..., Any], counts: list[int], traces: int) -> Any:
    """Compare a program of a count with eager mode; it is traced so often, at most."""
    compiled, made = lucid.compile(step), []
    for run in (step, compiled):
        lucid.manual_seed(0)
        np.random.seed(0)
        w, x = given()
        for count in counts:
            w.grad = None
            made.append([*flatten(run(w, x, count))[0], w.grad])
    for ours, theirs in zip(made[: len(counts)], made[len(counts) :], strict=True):
        for one, other in zip(ours, theirs, strict=True):
            if isinstance(one, lucid.Tensor):
                np.testing.assert_allclose(
                    one.detach(), other.detach(), rtol=1e-9, atol=1e-12, err_msg=str(compiled.stats)
                )
            else:
                assert one == other
    assert not compiled.stats.eager_reasons
    assert compiled.stats.traces <= traces, compiled.stats
    return compiled


def test_a_count_that_differs_from_call_to_call_is_one_program() -> None:
    def step(w: Any, x: Any, n: int) -> Any:
        total = 0
        for i in range(n):  # noqa: B007 - it is read behind the loop
            x = F.dropout(lucid.tanh(w @ x), 0.2)
            total += (x * x).sum()
        total.backward()
        return x, total, i

    require_same(step, COUNTS, traces=5)  # the first four have programs of their own


def test_a_count_that_the_step_draws_is_one_program() -> None:
    def step(w: Any, x: Any, n: int) -> Any:
        for _ in range(np.random.randint(6, 14)):
            x = lucid.tanh(w @ x)
        x.sum().backward()
        return x

    assert require_same(step, [0] * 10, traces=1)


def test_a_count_that_a_tensor_holds_is_one_program() -> None:
    def step(w: Any, x: Any, n: int) -> Any:
        for _ in range(int(XS[:n].sum(1).abs().sum().item()) + 5):
            x = lucid.tanh(w @ x)
        return x

    require_same(step, [9, 9, 9], traces=1)


def test_more_rounds_than_before_get_longer_stacks() -> None:
    def step(w: Any, x: Any, n: int) -> Any:
        for _ in range(n):
            x = lucid.tanh(w @ x)
        x.sum().backward()
        return x

    require_same(step, [9, 12, 7, 16, 11, 30, 90, 31, 10], traces=7)


def test_few_rounds_and_none() -> None:
    def step(w: Any, x: Any, n: int) -> Any:
        for _ in range(n):
            x = lucid.tanh(w @ x)
        return x

    require_same(step, [9, 12, 7, 16, 11, 3, 0, 8, 5, 3, 0], traces=8)


def test_rows_of_sequences_of_any_length_are_one_program() -> None:
    cell = nn.GRUCell(WIDTH, 3).to(f64)

    def step(w: Any, sequence: Any) -> Any:
        cell.zero_grad()
        h = lucid.zeros(2, 3, dtype=f64)
        for t in range(sequence.shape[1]):
            h = cell(sequence[:, t] @ w, h)
        h.sum().backward()
        return h.detach()

    compiled, (w, _) = lucid.compile(step), given()
    for count in COUNTS:
        sequence = lucid.randn(2, count, WIDTH, dtype=f64)
        results = []
        for each in (step, compiled):
            w.grad = None
            results.append([each(w, sequence), w.grad.clone(), cell.weight_hh.grad.clone()])
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9)
    assert not compiled.stats.eager_reasons
    assert compiled.stats.traces <= 4  # two sizes, then any, with few rows or many


CELL, HEAD = nn.GRUCell(WIDTH, WIDTH).to(f64), nn.Linear(WIDTH, WIDTH).to(f64)


def rows_by_number(xs: Any) -> Any:
    h, loss = lucid.zeros(2, WIDTH, dtype=f64), 0
    for t in range(xs.shape[1] - 1):
        h = CELL(xs[:, t], h)
        loss = loss + F.mse_loss(HEAD(h), xs[:, t + 1])
    return loss / (xs.shape[1] - 1)


def rows_themselves(xs: Any) -> Any:
    h = lucid.zeros(2, WIDTH, dtype=f64)
    for row in xs.transpose(0, 1):
        h = CELL(row, h)
    return HEAD(h)


def rows_and_their_numbers(xs: Any) -> Any:
    h, total = lucid.zeros(2, WIDTH, dtype=f64), 0
    for t, row in enumerate(xs.unbind(1)):
        h = CELL(row, h)
        total += h.sum() / (t + 1)
    return total


def rows_in_pairs(xs: Any) -> Any:
    h, loss, rows = lucid.zeros(2, WIDTH, dtype=f64), 0, xs.transpose(0, 1)
    for now, following in zip(rows[:-1], rows[1:], strict=True):  # noqa: RUF007
        h = CELL(now, h)
        loss = loss + F.mse_loss(h, following)
    return loss


def rows_from_the_end(xs: Any) -> Any:
    h = lucid.zeros(2, WIDTH, dtype=f64)
    for t in reversed(range(xs.size(1))):
        h = CELL(xs[:, t], h)
    for t in range(xs.size(1) - 1, -1, -1):
        h = CELL(xs[:, t], h)
    return h


def rows_in_a_list(xs: Any) -> Any:
    h, states, outputs = lucid.zeros(2, WIDTH, dtype=f64), [], []
    for t in range(xs.shape[1]):
        h = CELL(xs[:, t], h)
        states.append(h)
        outputs.append(HEAD(h))
    return lucid.stack(outputs, 1), lucid.cat(states, -1), sum(outputs) / len(outputs)


def rows_in_a_table(xs: Any) -> Any:
    h, made = lucid.zeros(2, WIDTH, dtype=f64), lucid.zeros(2, xs.shape[1], WIDTH, dtype=f64)
    for t in range(xs.shape[1]):
        h = CELL(xs[:, t], h)
        made[:, t] = HEAD(h)
    return made


def scores_of_pairs(xs: Any) -> Any:
    """Ranges of one, and numbers that grow with it."""
    total, time, count = 0, 0.0, 0
    for t in range(1, xs.shape[1]):
        pair = xs[:, t - 1 : t + 1].gather(2, lucid.zeros(2, 2, 1, dtype=lucid.int64))
        total = total + (time * pair).sum() + HEAD(CELL(xs[:, t])).sum() * count
        time, count = time + 0.1, count + 1
    return total / count, lucid.tensor(time)


def rows_as_far_as_they_go(xs: Any) -> Any:
    h, lengths = lucid.zeros(2, WIDTH, dtype=f64), (xs[:, :, 0] > -1).sum(1)
    for t in range(xs.shape[1]):
        h = lucid.where((t < lengths).unsqueeze(1), CELL(xs[:, t], h), h)
    return h


def teacher_forcing_by_turns(xs: Any) -> Any:
    h, loss, known = lucid.zeros(2, WIDTH, dtype=f64), 0, xs[:, 0]
    for t in range(1, xs.shape[1]):
        h = CELL(known, h)
        made = HEAD(h)
        loss = loss + F.mse_loss(made, xs[:, t])
        known = made.detach()
    return loss


def states_of_layers(xs: Any) -> Any:
    states, made = [lucid.zeros(2, WIDTH, dtype=f64) for _ in range(3)], {"last": [], "all": 0}
    for t in range(xs.shape[1]):
        below = xs[:, t]
        for i in range(3):
            states[i] = below = CELL(below, states[i])
        made["last"].append(below)
        made["all"] = made["all"] + below.sum()
    return lucid.stack(made["last"], 1), made["all"], states[0]


def states_one_by_one(xs: Any) -> Any:
    states, loss = [lucid.zeros(2, WIDTH, dtype=f64)], 0
    for row in xs.unbind(1):
        states.append(CELL(row, states[-1]))
    for state, following in zip(states[1:-1], xs.transpose(0, 1)[1:], strict=True):
        loss = loss + F.mse_loss(HEAD(state), following)
    for t in range(len(states) - 1):
        loss = loss + states[t + 1].mean() * xs[0, t, 0]
    return loss, lucid.stack([state * 2 for state in states])


def returns_from_the_end(xs: Any) -> Any:
    values, made, total = [HEAD(row).mean() for row in xs.unbind(1)], [], 0
    for value in reversed(values):
        total = value + 0.9 * total
        made.insert(0, total)
    return lucid.stack(made) - lucid.stack(values), sum(made) / len(made)


def all_but_the_first_and_the_last(xs: Any) -> Any:
    h, previous, loss, last = lucid.zeros(2, WIDTH, dtype=f64), None, 0, xs.shape[1] - 1
    for t in range(xs.shape[1]):
        h = CELL(xs[:, t], h)
        if t > 0:
            loss = loss + F.mse_loss(h, previous)
        if t < last:
            loss = loss + F.mse_loss(HEAD(h), xs[:, t + 1])
        previous = h
    return loss


def a_sum_over_rows(xs: Any) -> Any:
    return sum(HEAD(row).square().sum() for row in xs.transpose(0, 1)) / xs.shape[1]


@pytest.mark.parametrize(
    "program",
    [
        *(rows_by_number, rows_themselves, rows_and_their_numbers, rows_in_pairs),
        *(states_of_layers, states_one_by_one, returns_from_the_end, a_sum_over_rows),
        all_but_the_first_and_the_last,
        *(rows_from_the_end, rows_in_a_list, rows_in_a_table, rows_as_far_as_they_go),
        *(teacher_forcing_by_turns, scores_of_pairs),
    ],
)
def test_sequences_of_any_length_are_one_program(program: Callable[[Any], Any]) -> None:
    """Two lengths have programs of their own, as have those with too few rows to look at."""

    def step(xs: Any) -> Any:
        CELL.zero_grad()
        HEAD.zero_grad()
        found = program(xs)
        sum(x.sin().sum() for x in (found if type(found) is tuple else (found,))).backward()
        return found, CELL.weight_hh.grad, xs.grad

    compiled, made, wanted = lucid.compile(step), [], []
    for count in [*COUNTS, 3, 17, 3, 14, 4, 4]:
        for run, results in ((step, wanted), (compiled, made)):
            lucid.manual_seed(count)
            xs = lucid.randn(2, count, WIDTH, dtype=f64).requires_grad_()
            results.append(
                [x.detach().numpy().copy() for x in flatten(run(xs))[0] if x is not None]
            )
    for ours, theirs in zip(made, wanted, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert not compiled.stats.eager_reasons
    assert compiled.stats.traces <= 6, str(compiled.stats)


def test_short_sequences_with_their_targets_leave_one_program_for_all_longer_ones() -> None:
    """Two arguments have one length: where it is too short for a loop, both have a known one."""

    def step(xs: Any, targets: Any) -> Any:
        h, loss = xs.new_zeros(WIDTH), xs.new_zeros(1)
        for t in range(xs.shape[0]):
            h = lucid.tanh(xs[t] + h)
            loss += (h - targets[t]).square().sum()
        return loss

    compiled = lucid.compile(step)
    for count in (10, 12, 9, 4, 3, 13, 20, 8, 4, 11, 3):
        lucid.manual_seed(count)
        xs, targets = lucid.randn(2, count, WIDTH, dtype=f64)
        found, expected = compiled(xs, targets), step(xs, targets)
        assert abs(found - expected) <= 1e-12 * abs(expected)
    assert compiled.stats.traces == 5, str(compiled.stats)
    assert not compiled.stats.eager_reasons


def test_a_list_of_as_many_as_a_call_says_is_pythons() -> None:
    def step(w: Any, x: Any, n: int) -> Any:
        made = []
        for _ in range(np.random.randint(6, 8)):
            x = lucid.tanh(w @ x)
            made.append(x)
        return lucid.stack(made)

    assert require_same(step, [0] * 5, traces=2).stats.restarts == 0


def test_a_list_of_as_many_as_an_argument_says_has_an_open_size() -> None:
    def step(x: Any, n: int) -> Any:
        made, w = [], lucid.full((WIDTH,), 0.5, dtype=f64, requires_grad=True)
        for _ in range(n):
            x = x * w + 1
            made.append(x)
        loss = lucid.stack(made).sum() + sum(h.mean() for h in made) + made[-1][0]
        loss.backward()
        return loss.detach(), w.grad, len(made)

    compiled = lucid.compile(step)
    for count in (7, 12, 9, 6, 15, 8, 11, 30, 10):
        x = lucid.arange(WIDTH, dtype=f64)
        for one, other in zip(compiled(x, count), step(x, count), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    compiled._call_audit((x, 12), {})  # which opens the same size, and no other
    assert compiled.stats.traces == 3 and compiled.stats.audits
    assert not compiled.stats.eager_reasons and compiled._distrust is None


def test_a_count_beside_the_rows_that_it_counts_is_one_program_with_them() -> None:
    def step(xs: Any, n: int) -> Any:
        h = lucid.zeros(WIDTH, dtype=f64)
        for t in range(n):
            h = lucid.tanh(h + xs[t])
        return h

    compiled = lucid.compile(step)
    for count in COUNTS:
        xs = lucid.randn(count, WIDTH, dtype=f64)
        np.testing.assert_allclose(compiled(xs, count), step(xs, count))
    assert compiled.stats.traces <= 5
    assert not compiled.stats.eager_reasons


def test_rounds_that_differ_look_at_their_count() -> None:
    def step(w: Any, x: Any, n: int) -> Any:
        kept = []
        for _ in range(np.random.randint(6, 8)):
            x = lucid.tanh(w @ x)
            kept.append(x)
        return kept

    require_same(step, [0] * 5, traces=2)


def test_rows_at_a_number_of_each_call_are_pythons() -> None:
    def step(w: Any, x: Any, n: int) -> Any:
        for t in range(np.random.randint(6, 8)):
            x = lucid.tanh(w @ x + XS[t])
        return x

    require_same(step, [0] * 5, traces=2)


def test_a_range_of_each_call_is_not_only_for_loops() -> None:
    def step(w: Any, x: Any, n: int) -> Any:
        for i in reversed(range(np.random.randint(6, 8))):
            x = lucid.tanh(w @ x) + i
        return x, [*range(np.random.randint(6, 8))]

    require_same(step, [0] * 4, traces=4)


# ---------------------------------------------------------------------- random programs


def source(rng: random.Random) -> str:
    """A function with a loop over random statements."""
    names = ["a", "b", "c", "d"]

    def vector() -> str:
        return rng.choice([*names, "x", "XS[t]", "XS[t, :]"])

    def value(depth: int = 0) -> str:
        ways = [
            vector,
            lambda: f"lucid.tanh(w @ {vector()})",
            lambda: f"({value(depth + 1)} + {value(depth + 1)} * 0.5)",
            lambda: f"lucid.sin({value(depth + 1)})",
            lambda: f"({value(depth + 1)} * {vector()}).tanh()",
            lambda: f"lucid.where({vector()} > 0, {value(depth + 1)}, {vector()})",
            lambda: f"lucid.cat([{vector()}[2:], {vector()}[:2]])",
        ]
        return rng.choice(ways if depth < 2 else ways[:2])()

    def statement() -> str:
        one, other = rng.choice(names), rng.choice(names)
        return rng.choice(
            [
                *[f"{one} = {value()}"] * 5,
                f"{one}, {other} = {value()}, {value()}",
                f"loss = loss + ({vector()} ** 2).mean()",
                f"loss += ({vector()} * {vector()}).sum()",
                f"with lucid.no_grad(): kept.mul_(0.9).add_({one}.detach(), alpha=0.1)",
                f"kept[1:3] = {one}[1:3].detach()",
                f"{one} = {other}.detach()",
                f"{one} = {other}",
                f"{one} = {other} * 1; {one} += {other}",
                f"{one} = {other} + kept",
                f"{one} = F.dropout({value()}, 0.3)",
                f"pair = ({one}, {other}); {other}, {one} = pair[0] * 0.5, pair[1]",
            ]
        )

    begins = ["x * 1", "w[0] * 1", "lucid.zeros(4, dtype=f64)", "x"]
    lines = [f"{name} = {rng.choice(begins)}" for name in names]
    lines += [f"loss = {rng.choice(['0', '0.0', 'lucid.zeros((), dtype=f64)'])}"]
    lines += ["kept = x.clone()", f"for t in {rng.choice(['range(9)', 'range(14, 0, -1)'])}:"]
    lines += [f"    {statement()}" for _ in range(rng.randint(1, 5))]
    lines += ["out = a.sum() + (b * c).sum() + loss + d.sum() * 0.3"]
    lines += ["if out.requires_grad: out.backward()", "return a, b, c, d, loss, kept, t"]
    return "def step(w, x):\n" + "".join(f"    {line}\n" for line in lines)


def test_rounds_whose_number_a_call_says_may_train_and_keep_their_losses() -> None:
    """An `item()` in them made a trace for each number of rounds; that is what looks at it."""

    def run(compile: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        lucid.manual_seed(0)
        layer, best = nn.Linear(3, 1), [9.0]
        optimizer = lucid.optim.SGD(layer.parameters(), lr=0.05)

        def step(x: Any, rounds: int) -> Any:
            losses, total = [], 0.0
            for _ in range(rounds):
                optimizer.zero_grad()
                loss = (layer(x) - 1).pow(2).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                total += loss.item()
                best[0] = min(best[0], loss.item())
            return losses, total / rounds, losses[-1], best[0]

        compiled, x = compile(step), lucid.randn(6, 3)
        found = [compiled(x, rounds) for rounds in (3, 5, 4, 7, 9, 6, 11, 3)]
        return [flatten(x)[0] for x in found], compiled

    found, step = run(lucid.compile)
    wanted, _ = run(lambda function: function)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert step.stats.traces <= 4 and not step.stats.eager_reasons


COMPREHENSIONS: dict[str, Callable[[Callable[[], Any], int], Any]] = {
    "items": lambda train, n: [train().item() for _ in range(n)],
    "numbers": lambda train, n: [i * train().item() for i in range(n)],
    "a mean": lambda train, n: sum(losses := [train().item() for _ in range(n)]) / len(losses),
    "tensors": lambda train, n: lucid.stack([train().detach() for _ in range(n)]).mean().item(),
    "a generator": lambda train, n: sum(train().item() for _ in range(n)),
    "an array": lambda train, n: float(np.mean([train().item() for _ in range(n)])),
}


@pytest.mark.parametrize("name", COMPREHENSIONS)
def test_a_comprehension_over_as_many_as_a_call_says_may_train(name: str) -> None:
    def run(compile: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        lucid.manual_seed(0)
        layer = nn.Linear(3, 1)
        optimizer = lucid.optim.SGD(layer.parameters(), lr=0.05)

        def step(x: Any, rounds: int) -> Any:
            def train() -> Any:
                optimizer.zero_grad()
                loss = (layer(x) - 1).pow(2).mean()
                loss.backward()
                optimizer.step()
                return loss

            return COMPREHENSIONS[name](train, rounds)

        compiled, x = compile(step), lucid.randn(6, 3)
        found = [compiled(x, rounds) for rounds in (3, 5, 4, 7, 9, 6, 11, 3, 17, 8)]
        return [flatten(x)[0] for x in found], compiled

    found, step = run(lucid.compile)
    wanted, _ = run(lambda function: function)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert step.stats.traces <= 4 and not step.stats.eager_reasons


@pytest.mark.parametrize("seed", range(many(24)))
def test_random_loops_give_what_eager_mode_gives(seed: int) -> None:
    text, file = source(random.Random(seed)), f"loop_{seed}.py"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    names: dict[str, Any] = {"lucid": lucid, "F": F, "XS": XS, "f64": f64}
    exec(compile(text, file, "exec"), names)
    wanted = found(names["step"])
    for one, other in zip(found(lucid.compile(names["step"])), wanted, strict=True):
        if isinstance(other, np.ndarray):
            np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9, err_msg=text)
        else:
            assert one == other, text
