"""Host code and state: tensors from outside, random numbers, threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from custom_functions import define, leaf, numbers

import lucid


def test_host_code_sees_what_the_step_has_written_by_then(prepared):
    total = lucid.zeros(2)
    fn = define(lambda ctx, x: lucid.tensor(x.numpy() + total.numpy()))

    def body(x):
        total.add_(x)
        y = fn.apply(x)
        total.mul_(2)
        return y

    step = prepared(body)
    found = [numbers(step(lucid.tensor([k, 2 * k]))) for k in (1.0, 10.0)]
    assert found == [[2.0, 4.0], [22.0, 44.0]]
    assert numbers(total) == [24.0, 48.0]


def test_host_code_may_write_tensors_from_outside(prepared):
    count = lucid.zeros(())
    running = lucid.zeros(2)

    def forward(ctx, x):
        count.add_(1)
        running.numpy()[:] = 0.5 * running.numpy() + x.numpy()
        return x * count.item()

    fn = define(forward)

    def body(x):
        y = fn.apply(x)
        return y + running, count * 1

    step = prepared(body)
    found = [numbers(list(step(lucid.tensor([k, 2 * k])))) for k in (1.0, 10.0)]
    assert found == [[[2.0, 4.0], 1.0], [[30.5, 61.0], 2.0]]
    assert numbers([count, running]) == [2.0, [10.5, 21.0]] and count._version == 2


def test_a_compiled_function_inside_may_use_the_same_tensors(prepared):
    w, count = leaf([2.0, 3.0]), lucid.zeros(())

    @lucid.compile
    def inner(x):
        count.add_(1)
        return (w * x).sum()

    fn = define(lambda ctx, x: lucid.tensor(x.numpy() * inner(x).item()), lambda ctx, g: g)

    def body(x):
        count.mul_(2)
        (fn.apply(w * x) + w).sum().backward()
        return count + 0

    step = prepared(body)
    for k in range(1, 4):
        w.grad = None
        assert step(leaf([1.0, 1.0], False)).item() == 2**k - 1
        assert numbers(w.grad) == [2.0, 2.0]
    assert count.item() == 7.0


def test_random_numbers_drawn_on_the_host_continue_the_stream(prepared):
    def forward(ctx, x):
        return x * lucid.rand(2) + float(x.numpy()[0]) * 0

    fn = define(forward)

    def body(x):
        return lucid.rand(2), fn.apply(x), lucid.rand(2)

    def draws(step):
        lucid.manual_seed(7)
        return [numbers(list(step(lucid.ones(2)))) for _ in range(3)]

    assert draws(prepared(body)) == draws(body)
    lucid.manual_seed(7)
    assert numbers(lucid.rand(6).reshape(3, 2)) == draws(body)[0]


def test_numpys_random_numbers_are_drawn_at_every_call(prepared):
    fn = define(lambda ctx, x: lucid.tensor(x.numpy() + np.random.rand(2)))
    step = prepared(lambda x: fn.apply(x))
    np.random.seed(3)
    found = [numbers(step(lucid.tensor([0.0, 0.0], dtype=lucid.float64))) for _ in range(2)]
    np.random.seed(3)
    assert found == [np.random.rand(2).tolist() for _ in range(2)]


def test_threads_do_not_share_a_ctx():
    barrier = threading.Barrier(4, timeout=30)

    def forward(ctx, x):
        ctx.mine = x.numpy().copy()
        barrier.wait()
        return x * 1

    def backward(ctx, grad):
        barrier.wait()
        return lucid.tensor(ctx.mine * grad.numpy())

    fn = define(forward, backward)

    def body(x):
        x = x.detach().requires_grad_()
        return lucid.autograd.grad(fn.apply(x).sum(), x)[0]

    step = lucid.compile(body)
    barrier_of_trace, barrier = barrier, threading.Barrier(1)
    step(lucid.tensor([0.0]))
    barrier = barrier_of_trace
    found: dict[float, Any] = {}

    def run(k: float) -> None:
        for _ in range(5):
            found[k] = numbers(step(lucid.tensor([k])))

    threads = [threading.Thread(target=run, args=(float(k),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {float(k): [float(k)] for k in range(4)}
    assert step.stats.traces == 1
