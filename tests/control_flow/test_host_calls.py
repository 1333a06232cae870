"""Calls of Python in the bodies of loops and branches: recorded once, made in each round."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import host_functions
import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.autograd import Function
from lucid.codegen.llvm.target import host_target
from lucid.codegen.lower.schedule import make_program
from lucid.codegen.program.interpret import interpret_program
from lucid.ir import parse
from lucid.ir.interpret import interpret
from lucid.ir.strides import contiguous_strides
from lucid.ir.types import f64
from lucid.ir.verify import verify
from lucid.runtime.executable import compile_graph

CALLS: list[str] = []


class Sine(host_functions.Sine):
    """NumPy in forward, ops in backward."""

    @staticmethod
    def forward(ctx, x):
        CALLS.append("forward")
        return host_functions.Sine.forward(ctx, x)


class Tanh(Function):
    """NumPy in both, with an array on ctx: the backward of a round needs the ctx of this one."""

    @staticmethod
    def forward(ctx, x):
        CALLS.append("forward")
        ctx.y = np.asarray(np.tanh(x.numpy()))
        return lucid.from_numpy(ctx.y.copy())

    @staticmethod
    def backward(ctx, grad):
        CALLS.append("backward")
        return lucid.from_numpy((1 - ctx.y**2) * grad.numpy())


class Twice(Function):
    """Recorded ops in forward, NumPy in backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        CALLS.append("backward")
        (x,) = ctx.saved_tensors
        return lucid.from_numpy(grad.numpy() * 2 * x.numpy())


def inputs() -> tuple[lucid.Tensor, lucid.Tensor]:
    lucid.manual_seed(3)
    w = (lucid.randn(3, dtype=f64) * 0.5).requires_grad_()
    return w, (lucid.randn(7, 3, dtype=f64) * 0.5).requires_grad_()


def scanned(f: Any, w: Any, xs: Any, **options: Any) -> Any:
    def step(h, x):
        h = f(h * w + x) * 0.9
        return h, h.sum()

    h, ys = lucid.scan(step, lucid.zeros(3, dtype=f64), xs, **options)
    return (h * h).sum() + (ys * ys).mean()


def as_long_as(f: Any, w: Any, xs: Any) -> Any:
    def step(i, h):
        return i + 1, f(h * w + xs[i]) * 0.9

    _, h = lucid.while_loop(lambda i, h: i < 5, step, (0, w * 1.0))
    return (h * h).sum()


def branching(f: Any, w: Any, xs: Any) -> Any:
    def step(h, x):
        h = lucid.cond(x.sum() > 0, lambda: f(h * w + x), lambda: h * 0.3 - x)
        return h, h.mean()

    h, ys = lucid.scan(step, lucid.zeros(3, dtype=f64), xs)
    return (h * h).sum() + ys.sum()


def nested(f: Any, w: Any, xs: Any) -> Any:
    def outer(h, x):
        h, _ = lucid.scan(lambda h, y: (f(h * w) + y, None), h + x, lucid.stack([x, x * 0.5]))
        return h, (h * h).sum()

    h, ys = lucid.scan(outer, lucid.zeros(3, dtype=f64), xs)
    return h.sum() + ys.sum()


LOOPS: dict[str, Callable[..., Any]] = {
    "scan": scanned,
    "reverse": functools.partial(scanned, reverse=True),
    "checkpointed": functools.partial(scanned, checkpoint_every=3),
    "while": as_long_as,
    "cond": branching,
    "nested": nested,
}
FUNCTIONS = {"sine": Sine.apply, "tanh": Tanh.apply, "twice": Twice.apply}


def training(loop: Any, f: Any) -> Any:
    def step(w, xs):
        loss = loop(f, w, xs)
        gw, gx = lucid.autograd.grad(loss, (w, xs))
        return loss.detach(), gw, gx

    return step


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_rounds_call_python_as_eager_ones_do(loop, f):
    w, xs = inputs()
    CALLS.clear()
    wanted = training(loop, f)(w, xs)
    calls = [*CALLS]
    step = lucid.compile(training(loop, f))
    for _ in range(3):
        CALLS.clear()
        for x, y in zip(step(w, xs), wanted, strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-12, atol=1e-12)
    if loop is LOOPS["checkpointed"]:  # which eager mode computes again
        assert CALLS.count("backward") == calls.count("backward")
    else:
        assert calls == CALLS
    assert not step.stats.eager_reasons
    text = step.dump_ir()
    assert "python = true" in text
    assert "agree" in str(step.check(w, xs))
    assert text.count(" = host ") < len(calls)


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_gradients_are_those_of_finite_differences(loop, f):
    step = lucid.compile(training(loop, f))
    w, xs = inputs()
    _, gradient, _ = step(w, xs)
    direction = lucid.tensor([0.3, -1.0, 0.7], dtype=f64)
    more, less = (
        step((w.detach() + s * 1e-6 * direction).requires_grad_(), xs)[0].item() for s in (1, -1)
    )
    found = (gradient * direction).sum().item()
    np.testing.assert_allclose(found, (more - less) / 2e-6, rtol=1e-6)


def test_what_python_raises_in_a_round_leaves_all_as_it_was():
    class Fails(Function):
        @staticmethod
        def forward(ctx, x):
            CALLS.append("forward")
            if x.numpy()[0] > 90:
                raise ArithmeticError("too much")
            return lucid.from_numpy(x.numpy() * 1.0)

        @staticmethod
        def backward(ctx, grad):
            return grad

    state = lucid.zeros(3, dtype=f64)

    @lucid.compile
    def step(xs):
        state.add_(1)
        h, _ = lucid.scan(lambda h, x: (Fails.apply(h + x), None), state * 0, xs)
        state.mul_(h.sum())
        return h

    small = lucid.ones(7, 3, dtype=f64)
    for _ in range(2):
        np.testing.assert_allclose(step(small).numpy(), 7.0)
    before, version = state.numpy().copy(), state._version
    large = small.clone()
    large[2] = 100.0
    for _ in range(2):
        CALLS.clear()
        with pytest.raises(ArithmeticError, match="too much"):
            step(large)
        assert len(CALLS) == 3
        np.testing.assert_array_equal(state.numpy(), before)
        assert state._version == version
    np.testing.assert_allclose(step(small).numpy(), 7.0)
    assert step.stats.traces == 1


def test_more_rounds_than_fit_take_over_what_python_has_done():
    def step(w, n):
        def body(i, h):
            return i + 1, Tanh.apply(h * w) + 0.1

        _, h = lucid.while_loop(lambda i, h: i < n, body, (lucid.tensor(0), w))
        (g,) = lucid.autograd.grad((h * h).sum(), w)
        return h.detach(), g

    compiled = lucid.compile(step)
    w, _ = inputs()
    for n in (5, 11, 20, 3, 20):
        bound = lucid.tensor(n)
        wanted = step(w, bound)
        CALLS.clear()
        found = compiled(w, bound)
        assert (CALLS.count("forward"), CALLS.count("backward")) == (n, n)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-12)
    assert compiled.stats.traces == 2
    assert not compiled.stats.eager_reasons


def test_a_path_behind_a_loop_goes_on_from_what_its_rounds_have_done():
    def step(w, xs):
        loss = scanned(Sine.apply, w, xs)
        if loss > 1.0:
            loss = loss * 2
        return Tanh.apply(loss)

    compiled = lucid.compile(step)
    w, xs = (x.detach() for x in inputs())
    for factor in (0.1, 3.0, 0.1, 3.0):
        wanted = step(w * factor, xs * factor)
        CALLS.clear()
        np.testing.assert_allclose(compiled(w * factor, xs * factor).item(), wanted.item())
        assert len(CALLS) == 8
    assert compiled.stats.traces == 2
    assert "python = true" in compiled.dump_ir()


def test_rounds_that_find_other_sizes_are_unrolled():
    def step(xs):
        return lucid.scan(lambda h, x: (h + x[x > 0].sum(), (x > 0).nonzero().sum()), xs.sum(), xs)

    compiled = lucid.compile(step)
    _, xs = inputs()
    for given in (xs.detach(), -xs.detach()):
        for x, y in zip(compiled(given), step(given), strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy())


def test_filters_are_loops_around_lapack():
    def step(a, q, zs):
        def update(carry, z):
            x, p = carry
            x, p = a @ x, a @ p @ a.T + q
            k = lucid.linalg.solve(p + q, p)
            x, p = x + k.T @ (z - x), p - k.T @ p
            return (x, p), x

        (_, p), xs = lucid.scan(update, (zs[0], lucid.eye(3, dtype=f64)), zs)
        loss = (xs * xs).sum() + lucid.trace(p)
        return loss.detach(), *lucid.autograd.grad(loss, (a, zs))

    lucid.manual_seed(2)
    a = (lucid.randn(3, 3, dtype=f64) * 0.4).requires_grad_()
    q, zs = lucid.eye(3, dtype=f64), lucid.randn(6, 3, dtype=f64).requires_grad_()
    compiled = lucid.compile(step)
    for _ in range(2):
        for x, y in zip(compiled(a, q, zs), step(a, q, zs), strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-9, atol=1e-9)
    text = compiled.dump_ir()
    assert "python = true" in text
    assert text.count("host linalg.solve") == 2  # of a round, and of its backward


def solving(a: Any, zs: Any) -> Any:
    def update(x, z):
        x = lucid.linalg.solve(a @ a.T + lucid.eye(3, dtype=f64), x) + z
        return x, x.sin()

    x, ys = lucid.scan(update, zs[0], zs)
    return (x * x).sum() + ys.sum()


def test_loops_around_lapack_are_differentiated_outside_twice_and_in_vmaps():
    lucid.manual_seed(2)
    a = (lucid.randn(3, 3, dtype=f64) * 0.4).requires_grad_()
    zs = lucid.randn(4, 6, 3, dtype=f64)

    def outside(f: Any) -> Any:
        (found,) = lucid.autograd.grad(f(a, zs[0]), a)
        return found

    def second(a):
        (g,) = lucid.autograd.grad(solving(a, zs[0]), a, create_graph=True)
        return lucid.autograd.grad((g * g).sum(), a)[0]

    def mapped(a):
        return lucid.func.vmap(lambda rows: solving(a, rows))(zs)

    compiled = lucid.compile(solving)
    for _ in range(2):
        np.testing.assert_allclose(outside(compiled).numpy(), outside(solving).numpy(), rtol=1e-9)
    assert "python = true" in compiled.stages["backward"]
    for run in (second, mapped):
        step = lucid.compile(run)
        np.testing.assert_allclose(
            step(a).detach().numpy(), run(a).detach().numpy(), rtol=1e-8, atol=1e-8
        )
        assert not step.stats.eager_reasons


def test_numpy_of_a_round_and_its_random_numbers():
    def step(xs, generator):
        def body(h, x):
            noise = lucid.from_numpy(generator.standard_normal(3))
            h = h * 0.5 + lucid.from_numpy(np.cumsum(x.numpy())) + noise
            return nn.functional.dropout(h, 0.3), lucid.from_numpy(np.sort(h.numpy()))

        with lucid.no_grad():
            return lucid.scan(body, xs[0], xs)

    _, xs = inputs()
    found = []
    for run in (step, lucid.compile(step)):
        lucid.manual_seed(4)
        generator = np.random.default_rng(1)
        for _ in range(3):
            found.append([x.numpy().copy() for x in run(xs.detach(), generator)])
    for wanted, got in zip(found[:3], found[3:], strict=True):
        for x, y in zip(wanted, got, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)
    assert "python = true" in run.dump_ir()


def test_callbacks_are_called_in_the_order_of_the_rounds():
    seen: list[float] = []

    @lucid.compile
    def step(xs):
        def body(h, x):
            h = h + x.sum()
            lucid.debug.callback(lambda t: seen.append(t.item()), h)
            return h, None

        return lucid.scan(body, lucid.tensor(0.0, dtype=f64), xs)[0]

    for _ in range(2):
        seen.clear()
        step(lucid.ones(4, 2, dtype=f64))
        assert seen == [2.0, 4.0, 6.0, 8.0]
    assert "python = true" in step.dump_ir()


@pytest.mark.parametrize("place", ["before", "behind", "after", "counted before", "counted after"])
def test_what_calls_in_rounds_change_is_seen_as_in_eager_mode(place):
    def run(compile: Any) -> Any:
        seen: list[float] = []

        class Keeps(Function):
            count = 0

            @staticmethod
            def forward(ctx, x):
                Keeps.count += 1
                seen.append(x.numpy()[0])
                return lucid.from_numpy(x.numpy() * 2)

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        def step(xs):
            def body(h, x):
                h = h + len(seen) if place == "before" else h
                h = h + Keeps.count if place == "counted before" else h
                h = Keeps.apply(h * 0.5 + x)
                return h + seen[-1] if place == "behind" else h, None

            h, _ = lucid.scan(body, xs[0], xs)
            h = h + Keeps.count if place == "counted after" else h
            return h + sum(seen) if place == "after" else h

        step = compile(step)
        _, xs = inputs()
        return [step(xs.detach()).numpy().copy() for _ in range(3)], seen

    wanted, found = run(lambda f: f), run(lucid.compile)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-12)


def test_a_body_sees_random_numbers_and_state_as_eager_mode_has_them():
    class Peek(Function):
        @staticmethod
        def forward(ctx, x):
            with lucid.no_grad():
                return lucid.from_numpy(x.numpy() + World.total.numpy())

        @staticmethod
        def backward(ctx, grad):
            return grad

    class World:
        total = lucid.zeros(3, dtype=f64)

    def step(xs):
        def body(h, x):
            h = Peek.apply(nn.functional.dropout(h + x, 0.5))
            World.total.add_(x)
            return h, None

        return lucid.scan(body, xs[0], xs)[0]

    _, xs = inputs()
    found = []
    for run in (step, lucid.compile(step)):
        lucid.manual_seed(4)
        World.total = lucid.zeros(3, dtype=f64)
        for _ in range(3):
            found.append(run(xs.detach()).numpy().copy())
            found.append(World.total.numpy().copy())
    np.testing.assert_allclose(found[:6], found[6:], rtol=1e-12)


def test_graph_kernels_and_native_code_agree_on_calls_in_bodies():
    options = "carries = 1, rows = 1, length = 5, reverse = true, python = true"
    text = """
    graph g(%x: f64[3], %xs: f64[5,3], %p: bool[]) {
      %h, %ys = scan body(%x, %xs, %p) {OPTIONS} : (f64[3], f64[5,3])
      %z = cond yes(%p, %h) {otherwise = "no", python = true} : f64[3]
      return %h, %ys, %z
    }
    function body(%h: f64[3], %x: f64[3], %p: bool[]) {
      %a = add %h, %x
      %y, %s = host count(%a) : (f64[3], f64[])
      %b = mul %y, %s
      %c = cond yes(%p, %b) {otherwise = "no", python = true} : f64[3]
      return %c, %y
    }
    function yes(%x: f64[3]) { %y = host half(%x) : f64[3] return %y }
    function no(%x: f64[3]) { %y = neg %x return %y }
    """
    graph = parse(text.replace("OPTIONS", options))
    counts = iter(range(1000))

    def count(frame, operands):
        number = frame["number"] = frame.get("number", 0) + 1
        next(counts)
        return [np.sin(operands[0]), np.array(float(number))]

    graph.hosts |= {"count": count, "half": lambda frame, operands: [operands[0] / 2]}
    verify(graph)
    rng = np.random.default_rng(0)
    for p in (True, False):
        given = [rng.standard_normal(3), rng.standard_normal((5, 3)), np.array(p)]
        wanted, _ = interpret(graph, given)
        strides = [contiguous_strides(x.shape) for x in given]
        program = make_program(graph, strides, host_target())
        program.graph.hosts = graph.hosts
        for found in (interpret_program(program, given)[0], compile_graph(graph)(given)):
            for x, y in zip(found, wanted, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-12)
    assert next(counts) == 2 * 3 * 5
