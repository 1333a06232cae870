"""Loops in compiled steps: recorded once where all rounds are the same, else unrolled."""

from __future__ import annotations

import array
import io
import queue
import random
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.autograd import Function
from lucid.ir.types import f64
from lucid.tensor.tree import flatten


def randn(*shape: int, grad: bool = True) -> lucid.Tensor:
    return lucid.randn(*shape, dtype=f64).requires_grad_(grad)


class Straight(Function):
    """A sign whose gradient is no derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign() * 0.5

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 + g * x


class Backwards(Function):
    """Its backward is a loop."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return lucid.scan(lambda h, row: (h * 0.5 + row, h), g, lucid.stack([g, g * x]))[0]


class World:
    """What a program reads and writes."""

    def __init__(self) -> None:
        lucid.manual_seed(1)
        self.w = randn(3, 3)
        self.v = randn(3)
        self.buffer = lucid.zeros(3, dtype=f64)
        self.norm = nn.BatchNorm1d(3).to(f64)
        self.count = 0
        self.list: list[Any] = []
        self.init, self.xs = randn(2, 3), randn(5, 2, 3)


def scan(*args: Any, **kwargs: Any) -> Any:
    return lucid.scan(*args, **kwargs)


def plain(world):
    def step(h, x):
        h = lucid.tanh(h @ world.w + x + world.v)
        return h, h.sin()

    return step


def with_inner_computation(world):
    u = world.w.exp()

    def step(h, x):
        return lucid.tanh(h @ u + x * world.v.sum()), (h * u[0]).sum()

    return step


def noise(world):
    def step(h, x):
        h = h * 0.5 + nn.functional.dropout(x, 0.5) * lucid.rand(3, dtype=f64)
        return h, h

    return step


def custom(world):
    def step(h, x):
        h = Straight.apply(h * world.v + x)
        return h, Straight.apply(h)

    return step


def statistics(world):
    def step(h, x):
        h = world.norm(x) + h * 0.1
        return h, h * world.norm.running_mean.clone()

    return step


def in_place(world):
    def step(h, x):
        with lucid.no_grad():
            world.buffer.mul_(0.5).add_(x[0])
            world.buffer[1] += 1
        return h * world.buffer.clone() + x, world.buffer * 2

    return step


def detached(world):
    def step(h, x):
        h = lucid.tanh(h.detach() @ world.w + x)
        return h, h

    return step


def passing_on(world):
    def step(h, x):
        return h, (world.w, h, x, lucid.ones(2), (h > 0))

    return step


def replacing(world):
    def step(h, x):
        return x * world.v, h * h

    return step


def nested(world):
    def step(h, x):
        h, inner = lucid.scan(lambda g, row: (g * row.cos() + world.v, g.sum()), h[0], x)
        return h + x, inner

    return step


def reading_outwards(world):
    def step(h, x):
        u = h * world.v

        def inner(g, row):
            return (g * h[0] + u[1] * x[1] + row).sin(), g * u.sum()

        g, ys = lucid.scan(inner, h[0], x, reverse=True)
        return h.cos() + g, ys

    return step


def looping(world):
    def step(h, x):
        h = lucid.fori_loop(0, 3, lambda i, v: (v * world.v + i).sin(), h)
        return h, lucid.map(lambda row: row.exp() * world.v, x)

    return step


def inner_gradient(world):
    def step(h, x):
        with lucid.enable_grad():
            p = h.detach().requires_grad_()
            (g,) = lucid.autograd.grad(((p * world.v + x) ** 2).sum(), p, create_graph=True)
        return h - 0.1 * g, g

    return step


def with_a_loop_in_its_backward(world):
    def step(h, x):
        return Backwards.apply(h * world.v + x), h

    return step


def local_list(world):
    def step(h, x):
        parts = []
        for i in range(3):
            parts.append(h[:, i] * world.v[i])
        cell = {"h": lucid.stack(parts, 1)}
        cell["h"] = cell["h"] + x
        return cell["h"], None

    return step


def module(world):
    cell = nn.LSTMCell(3, 3, dtype=f64)

    def step(h, x):
        h, c = cell(x, (h, h * 0.5))
        return h, c

    return step


def checkpointed(world):
    from lucid.utils.checkpoint import checkpoint

    def step(h, x):
        h = checkpoint(lambda h: lucid.tanh(h @ world.w).exp() * 0.1, h) + x
        return h, h

    return step


def indexing(world):
    def step(h, x):
        i = (x[0, 0] > 0).long()
        return h * world.v[i] + x, world.w[i]

    return step


def tokens(world):
    def step(h, x):
        row = (x[:, 0] > 0).long() + 1
        h = lucid.tanh(h + nn.functional.embedding(row, world.w))
        return h, nn.functional.cross_entropy(h @ world.w, row)

    return step


def index_from_outside(world):
    places = lucid.tensor([2, 0])

    def step(h, x):
        return h * 0.5 + x + world.w[places].sum(0), world.v[places[0]] * h

    return step


def found_place(world):
    def step(h, x):
        i = (h[0, 0] > 0).long()
        return h * world.v[i] + x, world.w[i]

    return step


def carried_places(world):
    """Indices that follow from the carry: several, some from the end, and in an inner loop."""

    def step(h, x):
        places = (h * 2).long().clamp(-9, 9).remainder(5) - 2

        def inner(g, row):
            i = (g[0] * 3).long().remainder(3)
            return g * 0.5 + row + world.w[i], world.v[i - 3]

        g, ys = lucid.scan(inner, h[0], x)
        return (h + world.w[places[:, 0]]).tanh() + x, (world.v[places].sum() * h, g, ys)

    return step


def table(world):
    def step(h, x):
        def body(i, v):
            return v * world.w[i] + world.v[-i] + x[i - 2]

        return lucid.fori_loop(0, 2, body, h), h

    return step


class Half:
    def factor(self) -> float:
        return 0.5


class Quarter(Half):
    def factor(self) -> float:
        return super().factor() / 2


def asks_objects(world):
    """By methods of C and of `super`, which change nothing."""
    pattern, length = re.compile("a"), timedelta(seconds=2)

    def step(h, x):
        factor = Quarter().factor() if pattern.match("a") else 1.0
        return h * factor + x * length.total_seconds(), h

    return step


def number(world):
    def step(h, x):
        return h * x.sum().item() * 0.1, h

    return step


RECORDED = [
    asks_objects, number,
    plain, with_inner_computation, noise, custom, statistics, in_place, detached, passing_on,
    replacing, nested, looping, inner_gradient, local_list, module, reading_outwards, indexing,
    with_a_loop_in_its_backward,
    tokens, table, index_from_outside, found_place, carried_places,
]  # fmt: skip


# What a round does in Python, or that can't be taken apart: unrolled.


def counting(world):
    def step(h, x):
        world.count += 1
        return h * world.count + x, h

    return step


def keeping(world):
    def step(h, x):
        world.list.append(1)
        return h * len(world.list) + x, h

    return step


def looking(world):
    def step(h, x):
        if h.sum() > 0:
            return h * 0.5 + x, h
        return h * world.v + x, -h

    return step


def binds_a_name_around(world):
    count = 0

    def step(h, x):
        nonlocal count
        count += 1
        return h * 0.5 + x * count, h

    return step


def python_numbers(world):
    random.seed(3)

    def step(h, x):
        return h * 0.5 + x * random.random(), h

    return step


def state_of_a_module(world):
    keeper = nn.Identity()
    keeper.count = 0

    def step(h, x):
        keeper.count += 1
        return h * 0.5 + x * keeper.count, h

    return step


def kept_by_a_module(world):
    keeper = nn.Identity()
    keeper.h = lucid.zeros(2, 3, dtype=f64)

    def step(h, x):
        before = keeper.h
        keeper.h = (h + x).detach()
        return h * 0.5 + x + before, h

    return step


def sometimes_wrong(world):
    rounds = [0]

    def step(h, x):
        rounds[0] += 1
        if rounds[0] > 3:
            raise ValueError("enough")
        return h + x, h

    def caught(h, x):
        try:
            return step(h, x)
        except ValueError:
            return h - x, h

    return caught


def writes_the_carry(world):
    def step(h, x):
        h = h * 1.0
        g = h.detach()
        g.mul_(2)
        return h + x, g

    return step


def leaking(world):
    seen = {}

    def step(h, x):
        before = seen.get("h", 0)
        seen["h"] = h.detach() * 2
        return h * 0.5 + x + before, h

    return step


def iterating(world):
    numbers = iter(range(100))

    def step(h, x):
        return h * next(numbers) * 0.1 + x, h

    return step


UNROLLED = [counting, keeping, looking, leaking, iterating,
    binds_a_name_around, python_numbers, state_of_a_module, kept_by_a_module, sometimes_wrong,
]  # fmt: skip


def program(make: Callable[[World], Any], way: str, world: World, **options: Any) -> Any:
    def forward(init, xs):
        carry, ys = lucid.scan(make(world), init, xs, **options)
        leaves = [x for x in flatten((carry, ys))[0] if x is not None]
        loss = sum((x * x).sum() for x in leaves if x.dtype is f64)
        return leaves, loss

    def values(init, xs):
        with lucid.no_grad():
            return forward(init, xs)[0]

    def gradient(init, xs):
        leaves, loss = forward(init, xs)
        inputs = init, xs, world.w, world.v
        found = lucid.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
        return [*(x.detach() for x in leaves), *found]

    def backward(init, xs):
        for x in (world.w, world.v):
            x.grad = None
        _, loss = forward(init * 1.0, xs)
        if loss.requires_grad:
            loss.backward()
        return loss.detach()

    def second(init, xs):
        inputs = init, xs, world.w, world.v
        options = {"allow_unused": True, "materialize_grads": True}
        found = lucid.autograd.grad(forward(init, xs)[1], inputs, create_graph=True, **options)
        total = sum((x * x).sum() for x in found)
        return [*(x.detach() for x in found), *lucid.autograd.grad(total, inputs, **options)]

    return {"values": values, "gradient": gradient, "backward": backward, "second": second}[way]


def outcome(make: Any, way: str, compiles: bool, calls: int, **options: Any) -> Any:
    world = World()
    run = program(make, way, world, **options)
    step = lucid.compile(run) if compiles else run
    found = []
    for _ in range(calls):
        found.append([x.detach().numpy().copy() for x in flatten(step(world.init, world.xs))[0]])
    found.append([x.numpy().copy() for x in (world.buffer, world.norm.running_mean)])
    for x in (world.w, world.v):
        found.append([] if x.grad is None else [x.grad.numpy().copy()])
    found.append([lucid.get_rng_state().numpy().copy(), np.array(world.buffer._version)])
    found.append([np.array([world.count, len(world.list)])])
    return found, step


def check(make: Any, way: str, calls: int = 3, **options: Any) -> Any:
    wanted, _ = outcome(make, way, False, calls, **options)
    found, step = outcome(make, way, True, calls, **options)
    for expected, got in zip(wanted, found, strict=True):
        for x, y in zip(expected, got, strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-9, atol=1e-9)
    return step


@pytest.mark.parametrize("way", ["values", "gradient", "backward", "second"])
@pytest.mark.parametrize("make", RECORDED, ids=lambda make: make.__name__)
def test_what_is_the_same_in_each_round_is_recorded_once(make, way):
    step = check(make, way)
    assert not step.stats.eager_reasons and not step.stats.restarts
    assert " = scan " in step.dump_ir()


@pytest.mark.parametrize("way", ["values", "gradient"])
@pytest.mark.parametrize("make", UNROLLED, ids=lambda make: make.__name__)
def test_what_each_round_does_anew_is_unrolled(make, way):
    step = check(make, way)
    text = "" if step.stats.eager_reasons else step.dump_ir()
    assert " = scan " not in text


def of_numpy() -> Callable[[], float]:
    rng = np.random.default_rng(0)
    return lambda: float(rng.normal())


def of_python() -> Callable[[], float]:
    rng = random.Random(0)
    return lambda: rng.gauss(0, 1)


def of_a_text() -> Callable[[], float]:
    text = io.StringIO("0123456789")
    return lambda: float(text.read(1))


def of_an_array() -> Callable[[], float]:
    numbers = array.array("d", [0.0])

    def count() -> float:
        numbers[0] += 1
        return numbers[0]

    return count


def of_a_buffer() -> Callable[[], float]:
    found = bytearray()

    def count() -> float:
        found.append(1)
        return float(len(found))

    return count


def of_a_queue() -> Callable[[], float]:
    numbers = queue.Queue()
    for number in range(9):
        numbers.put(float(number))
    return numbers.get


@pytest.mark.parametrize(
    "make", [of_numpy, of_python, of_a_text, of_an_array, of_a_buffer, of_a_queue]
)
def test_what_each_round_takes_of_an_object_that_the_step_has_made_is_its_own(make):
    def step(x):
        take = make()
        return lucid.scan(lambda h, _: (h + take(), None), x, length=5)[0]

    x = lucid.zeros(2, dtype=f64)
    np.testing.assert_allclose(lucid.compile(step)(x), step(x))


@pytest.mark.parametrize("make", RECORDED, ids=lambda make: make.__name__)
def test_options(make):
    check(make, "values", 1, reverse=True)
    check(make, "gradient", 1, reverse=True, checkpoint_every=2)


@pytest.mark.parametrize("make", [plain, noise, statistics, nested, module, carried_places])
def test_second_derivatives_with_options(make):
    """Checkpoints are of a loop, whatever is in its rounds."""
    check(make, "gradient", 1, checkpoint_every=2)
    check(make, "second", 1, reverse=True, checkpoint_every=2)


@pytest.mark.parametrize("make", [checkpointed, writes_the_carry, in_place])
def test_others_keep_their_meaning(make):
    check(make, "gradient")


@pytest.mark.parametrize("length", [0, 1])
@pytest.mark.parametrize("make", [plain, noise, in_place, nested, passing_on])
def test_no_round_and_one(make, length):
    def run(init, xs):
        world = World()
        carry, ys = lucid.scan(make(world), init, xs)
        leaves = [x for x in flatten((carry, ys))[0] if x is not None]
        loss = sum((x * x).sum() for x in leaves if x.dtype is f64)
        found = lucid.autograd.grad(loss, (init, xs), allow_unused=True, materialize_grads=True)
        return [*(x.detach() for x in leaves), *found]

    init, xs = World().init, randn(length, 2, 3)
    for x, y in zip(run(init, xs), lucid.compile(run)(init, xs), strict=True):
        np.testing.assert_allclose(y.numpy(), x.numpy(), atol=1e-12)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_rounds_of_no_examples(kind):
    """Whose temporaries have no elements."""
    layer = kind(3, 4)
    for run in (layer, lucid.compile(layer)):
        x = lucid.zeros(5, 0, 3, requires_grad=True)
        y, _ = run(x)
        y.sum().backward()
        assert (y.shape, x.grad.shape) == ((5, 0, 4), (5, 0, 3))


def test_results_can_be_differentiated_outside():
    world = World()

    def forward(init, xs):
        return lucid.scan(plain(world), init, xs)

    def run(forward):
        """Gradients; and what is raised where the graph was freed, or a weight written."""
        raised = []
        for is_written in (False, True):
            last, ys = forward(world.init, world.xs)
            loss = (last * ys).sum()
            found = lucid.autograd.grad(loss, (world.init, world.xs, world.w), retain_graph=True)
            if is_written:
                with lucid.no_grad():
                    world.w.mul_(1.0)
            else:
                loss.backward()
            with pytest.raises(lucid.LucidError) as error:
                loss.backward()
            raised.append(re.sub(r"version \d", "version n", str(error.value)))
        return found, raised

    step = lucid.compile(forward)
    (wanted, texts), (found, others) = run(forward), run(step)
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-9)
    assert others == texts
    assert step.dump_ir().count(" = scan ") == 1 and not step.stats.restarts


def test_a_loop_with_a_method_of_the_users_is_unrolled_where_it_is_differentiated_outside():
    world = World()
    step = lucid.compile(
        lambda xs: lucid.scan(lambda h, x: ((Straight.apply(h) + x).sin(), None), xs[0], xs)[0]
    )
    wanted = lucid.autograd.grad(step.__wrapped__(world.xs).sum(), world.xs)[0]
    found = lucid.autograd.grad(step(world.xs).sum(), world.xs)[0]
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-9)
    assert " = scan " not in step.dump_ir()


def test_vmap_and_jvp_in_a_step():
    world = World()

    def f(xs):
        return lucid.scan(plain(world), world.init, xs)[1]

    def run(x, v):
        return lucid.vmap(f)(x), lucid.func.jvp(f, (x[0],), (v[0],))

    x, v = randn(4, 5, 2, 3).detach(), randn(4, 5, 2, 3).detach()
    wanted, found = flatten(run(x, v))[0], flatten(lucid.compile(run)(x, v))[0]
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=1e-9)


def test_equal_rounds_in_a_vmap_are_a_loop_again():
    w = randn(3, 3).detach()

    def f(h, x):
        return lucid.scan(lambda h, _: ((h @ w + x).tanh(), None), h, length=80)[0]

    h, x = randn(4, 2, 3).detach(), randn(4, 2, 3).detach()
    step = lucid.compile(lambda h, x: lucid.vmap(f)(h, x))
    np.testing.assert_allclose(
        step(h, x).detach().numpy(), lucid.vmap(f)(h, x).detach().numpy(), rtol=1e-9
    )
    assert step.stages["roll_up_rounds"].count(" = scan ") == 1


def test_a_round_that_differentiates_is_differentiated():
    world = World()
    w = world.w.detach()

    def f(init, xs):
        def slopes(h, x):
            return (h * x).cos().sum() + (h @ w).square().sum()

        def body(h, x):
            g = lucid.func.grad(slopes)(h, x)
            return h.sin() + g, lucid.func.jvp(lambda h: slopes(h, x), (h,), (x,))[1]

        last, ys = lucid.scan(body, init, xs)
        return (last * last).sum() + ys.square().sum()

    grad = lucid.func.grad(f, argnums=(0, 1))
    init, xs = world.init.detach(), world.xs.detach()
    step = lucid.compile(grad)
    for a, b in zip(grad(init, xs), step(init, xs), strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-9)
    assert step.dump_ir().count(" = scan ") == 2


def gradient_of(y: Any, *inputs: Any, **options: Any) -> Any:
    found = lucid.autograd.grad(y.sum(), inputs, retain_graph=True, **options)
    return found if len(found) > 1 else found[0]


def rows_of_what_a_weight_scales(w, x):
    """With the gradient of a weight, through the row."""
    step = lambda c, row: (c - 0.1 * gradient_of(row * c * w, w), c.sum())  # noqa: E731
    return lucid.scan(step, x, lucid.stack([x * w] * 5))


def a_loop_in_a_loop(w, x):
    inner = lambda c: looped(lambda c: c - 0.1 * gradient_of(c * w, w), c * 0.9)  # noqa: E731
    return looped(inner, x * w)


def what_a_loop_has_made(w, x):
    """In each round, of a loop's own result."""
    return looped(lambda c: c - 0.1 * gradient_of(looped(lambda d: d * w * 0.9, c), w), x * w)


def a_carry_of_the_other_from_the_start(w, x):
    c = x * w
    return looped(lambda c, d: (c - 0.1 * gradient_of(c * d, c), d), c, c * 2)


def a_carry_of_the_other_from_then_on(w, x):
    def body(c, d):
        c = c - 0.1 * gradient_of(c * d * w, c)
        return c, c * 2

    return looped(body, x * w, x * w * 2)


def a_leaf_that_the_step_has_made(w, x):
    v = x.clone().requires_grad_()
    return looped(lambda c: c - 0.1 * gradient_of(c * c, v), v * 2)


def all_leaves_of_a_backward(w, x):
    def body(c):
        (c * w).sum().backward(retain_graph=True)
        return c * 0.9

    return looped(body, x * w), w.grad


def a_weight_that_the_next_carry_follows_from(w, x):
    y = looped(lambda c: c * w - 0.1 * gradient_of(c * w, w), x)
    return y, gradient_of(y, w)


def the_carry_alone(w, x):
    """By both numbers carried; one that no carry follows from; and of what a round makes."""
    u = lucid.full((3,), 0.4, dtype=f64, requires_grad=True)

    def body(c, d):
        of_c, of_d = gradient_of((c * x + d) ** 2, c, d, create_graph=True)
        return c - 0.1 * of_c, d - 0.1 * of_d * gradient_of(c * u, u)

    c, d = looped(body, w * 1, w * 2)
    return c, d, gradient_of(c * d, w)


def what_is_detached(w, x):
    def body(c):
        c = c.detach().requires_grad_()
        return (c - 0.1 * gradient_of(c * c * w, c)).detach() - 0.1 * gradient_of(c.data * w, w)

    return looped(body, x * w)


def looped(body: Any, *carry: Any) -> Any:
    def step(_: Any, carry: Any) -> Any:
        found = body(*carry)
        return found if isinstance(found, tuple) else (found,)

    found = lucid.fori_loop(0, 4, step, carry)
    return found if len(found) > 1 else found[0]


@pytest.mark.parametrize(
    ("program", "is_recorded"),
    [
        (rows_of_what_a_weight_scales, False),
        (a_loop_in_a_loop, False),
        (what_a_loop_has_made, False),
        (a_carry_of_the_other_from_the_start, False),
        (a_carry_of_the_other_from_then_on, False),
        (a_leaf_that_the_step_has_made, False),
        (all_leaves_of_a_backward, False),
        (a_weight_that_the_next_carry_follows_from, False),
        (the_carry_alone, True),
        (what_is_detached, True),
    ],
)
def test_a_gradient_in_a_round_goes_on_into_the_rounds_before(program, is_recorded):
    """Where what is asked for lies beyond the carry or the row, all rounds are recorded."""
    compiled, found = lucid.compile(program), []
    for step in (program, compiled):
        w = lucid.full((3,), 0.9, dtype=f64, requires_grad=True)
        made = step(w, lucid.tensor([0.1, 0.5, -0.3], dtype=f64))
        found.append([x.detach().numpy() for x in flatten(made)[0]])
    for expected, one in zip(*found, strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-12)
    assert not compiled.stats.eager_reasons
    assert bool(compiled.stats.restarts) is not is_recorded


@pytest.mark.parametrize("has_first", [False, True])
def test_a_carry_that_gets_or_loses_its_history_in_a_round_has_none_in_others(has_first):
    w = lucid.full((3,), 0.9, dtype=f64, requires_grad=True)

    def step(x):
        def body(c):
            new = c * w - gradient_of(c * w, c)
            return new.detach() if has_first else new

        return looped(body, x * w if has_first else x)

    for each in (step, lucid.compile(step)):
        with pytest.raises(RuntimeError, match="does not require grad"):
            each(lucid.ones(3, dtype=f64))


@pytest.mark.parametrize("is_while", [False, True])
def test_a_loop_gives_the_leaf_that_its_last_round_has_made(is_while):
    def body(c):
        return (c - 0.1 * gradient_of(c * c, c)).detach().requires_grad_()

    def step(x):
        c = x.clone().requires_grad_()
        if is_while:
            (c,) = lucid.while_loop(lambda c: c.sum() > 1, lambda c: (body(c),), (c,))
        else:
            c = looped(body, c)
        (c**3).sum().backward()
        return c.detach(), c.grad, c.is_leaf

    compiled, x = lucid.compile(step), lucid.tensor([0.1, 0.5, 1.2], dtype=f64)
    for one, expected in zip(compiled(x), step(x), strict=True):
        np.testing.assert_allclose(one, expected)
    assert compiled.stats.restarts == is_while and not compiled.stats.eager_reasons


def test_what_no_result_depends_on_has_no_gradient():
    """Not even zeros, which an infinite derivative would make NaN."""

    def run(h, z):
        def body(carry, _):
            h, z = carry
            return (h.sin() + 1, z.sqrt() * h), None

        loss = lucid.scan(body, (h, z), length=5)[0][0].sum()
        return lucid.autograd.grad(loss, (h, z), allow_unused=True)

    h = lucid.tensor([0.0, 0.2, 0.3], dtype=f64, requires_grad=True)
    z = lucid.zeros(3, dtype=f64, requires_grad=True)
    step = lucid.compile(run)
    wanted, found = run(h, z), step(h, z)
    np.testing.assert_allclose(found[0].numpy(), wanted[0].numpy(), rtol=1e-12)
    assert found[1] is None and wanted[1] is None and " = scan " in step.dump_ir()


def test_a_graph_may_be_gone_through_twice():
    world = World()

    def run(init, xs):
        loss = lucid.scan(plain(world), init, xs)[1].sum()
        first = lucid.autograd.grad(loss, world.w, retain_graph=True)[0]
        return first, lucid.autograd.grad(loss, (world.w, init))

    a, (b, _) = lucid.compile(run)(world.init, world.xs)
    assert a.tolist() == b.tolist()


def test_hooks_of_what_a_loop_reads():
    def outcome(compiles):
        world = World()
        world.w.register_hook(lambda g: g * 2)

        def run(init, xs):
            world.w.grad = None
            lucid.scan(plain(world), init, xs)[1].sum().backward()

        (lucid.compile(run) if compiles else run)(world.init.detach(), world.xs.detach())
        return world.w.grad.numpy()

    np.testing.assert_allclose(outcome(True), outcome(False), rtol=1e-9)


def test_the_trace_does_not_grow_with_the_length():
    def nodes(length):
        world = World()

        def run(init, xs):
            loss = lucid.scan(plain(world), init, xs)[1].sum()
            return lucid.autograd.grad(loss, (world.w, init, xs))

        step = lucid.compile(run)
        step(world.init, randn(length, 2, 3))
        return len(step.dump_ir().splitlines())

    assert nodes(3) == nodes(300)


def test_an_error_in_a_round_leaves_what_the_rounds_before_have_done():
    def outcome(compiles):
        world = World()

        def run(init, xs):
            def step(h, x):
                with lucid.no_grad():
                    world.buffer.add_(x[0])
                return lucid.cat([h, h]), None

            try:
                lucid.scan(step, init, xs)
            except lucid.ShapeError:
                return init * 2

        step = lucid.compile(run) if compiles else run
        return step(world.init, world.xs).tolist(), world.buffer.tolist()

    assert outcome(True) == outcome(False)


def test_an_index_is_checked_before_the_loop():
    world = World()

    def run(rows):
        def step(h, row):
            h = h + nn.functional.embedding(row, world.w).sum()
            return h, h

        return lucid.autograd.grad(lucid.scan(step, world.init, rows)[0].sum(), world.w)

    step = lucid.compile(run)
    good = lucid.tensor([[0, 1], [2, 0]])
    np.testing.assert_allclose(step(good)[0].numpy(), run(good)[0].numpy())
    for call in (run, step):
        with pytest.raises(IndexError, match="index 7 is out of range for 3 rows") as caught:
            call(lucid.tensor([[0, 1], [7, 0]]))
        assert "nn.functional.embedding(row, world.w)" in str(caught.value)


def test_an_index_that_follows_from_the_carry_is_checked_behind_the_loop():
    world = World()

    def run(n, count):
        def step(state, row):
            n, h = state
            with lucid.no_grad():
                world.buffer.add_(1)
            return (n + 1, h + world.w[n]), h

        (_, h), _ = lucid.scan(step, (n, world.v * 1.0), length=2)
        return lucid.autograd.grad((h * h).sum(), world.w)

    step = lucid.compile(run)
    first = lucid.tensor(1)
    np.testing.assert_allclose(step(first, 2)[0].numpy(), run(first, 2)[0].numpy())
    assert " = scan " in step.dump_ir() and not step.stats.restarts
    before = world.buffer.tolist()
    texts = []
    for wrong in (2, -5):
        for call in (step, run):
            with pytest.raises(
                IndexError, match=f"index {max(wrong, -5) + (wrong > 0)} is out"
            ) as e:
                call(lucid.tensor(wrong), 2)
            texts.append(str(e.value))
            assert "world.w[n]" in texts[-1]
            if call is step:
                assert world.buffer.tolist() == before
            before = world.buffer.tolist()
    assert texts[::2] == texts[1::2]


def test_checkpoints_take_the_memory_of_a_block_and_of_the_carries():
    def arena(every):
        world = World()

        def run(init, xs):
            def step(h, x):
                return (h @ world.w + x).tanh() * h.sin() + h.cos(), None

            last, _ = lucid.scan(step, init, xs, checkpoint_every=every)
            return lucid.autograd.grad(last.sum(), world.w)

        step = lucid.compile(run)
        step(randn(32, 3), randn(400, 1, 1))
        return int(step.stages["buffers"].split()[2])

    rounds, carry = arena(None) / 400, 32 * 3 * 8
    assert rounds > 3 * carry  # what a round saves
    assert arena(20) < 2 * (400 / 20 * carry + 20 * rounds)


def test_errors_in_a_step_are_those_of_eager_mode():
    @lucid.compile
    def step(x):
        return lucid.scan(lambda c, x: (c + 1.5, x), 0, x)

    with pytest.raises(lucid.DTypeError, match=r"there is f32\[\] where i64\[\] was"):
        step(lucid.ones(3))


def test_each_length_has_a_program_of_its_own():
    def run(xs):
        return lucid.scan(lambda h, x: (h * 0.5 + x * len(xs), h.sum()), xs[0], xs)

    step = lucid.compile(run)
    with lucid.no_grad():
        for length in (3, 5, 9, 17, 5, 33):
            xs = randn(length, 2, 3)
            for a, b in zip(run(xs), step(xs), strict=True):
                np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-9)


@pytest.mark.parametrize(
    "loop",
    [
        lambda w, xs: lucid.scan(lambda c, x: (c * w, x * w), lucid.zeros(3), xs),
        lambda w, xs: (lucid.map(lambda x: x * w, xs),),
        lambda w, xs: (lucid.fori_loop(0, len(xs), lambda i, c: c * w, lucid.ones(3)),),
    ],
)
def test_no_rounds_have_no_gradient(loop):
    step = lucid.compile(loop)
    w = lucid.ones(3, requires_grad=True)
    for rounds in (2, 0):
        xs = lucid.ones(rounds, 3)
        for found, expected in zip(step(w, xs), loop(w, xs), strict=True):
            assert found.tolist() == expected.tolist() and found.shape == expected.shape
            assert found.requires_grad is expected.requires_grad is (rounds > 0)
    assert not step.stats.eager_reasons
