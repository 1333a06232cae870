"""`while_loop` in compiled steps: one op whose rounds run natively, and its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from region_programs import World, agree, tensor

import lucid
from lucid import nn
from lucid.autograd import Function
from lucid.ir.types import f64


class Third(Function):
    """A cube with its derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


def growing(world, x, limit):
    """Grow x until its norm is large, and count the rounds."""

    def body(n, x):
        return n + 1, x * 1.2 + lucid.tanh(x @ world.w) * 0.1

    return lucid.while_loop(lambda n, x: (x * x).sum() < limit, body, (0, x))


def with_a_tree(world, x, limit):
    def body(state, n):
        return {"x": state["x"] * 1.3, "sum": state["sum"] + state["x"].sin()}, n + 1

    first = {"x": x, "sum": lucid.zeros(3, dtype=f64)}
    last, n = lucid.while_loop(lambda s, n: (s["x"] * s["x"]).sum() < limit, body, (first, 0))
    return n, last["x"] + last["sum"] * world.w[0]


def custom(world, x, limit):
    def body(n, x):
        return n + 1, x + Third.apply(x) * world.w.sum().abs()

    return lucid.while_loop(lambda n, x: (x * x).sum() < limit, body, (0, x))


def condition_of_several(world, x, limit):
    def goes_on(n, x, y):
        return ((x * x).sum() < limit) & (n < 20)

    n, x, y = lucid.while_loop(goes_on, lambda n, x, y: (n + 1, x * 1.2, y * 0.5 + x), (0, x, x))
    return n, x + y @ world.w


def converted(world, x, limit):
    """The condition is a number that isn't a bool, of one element."""

    def goes_on(n, x):
        return ((x * x).sum(0, keepdim=True) < limit).long()

    return lucid.while_loop(goes_on, lambda n, x: (n + 1, x @ world.w.exp() + x), (0, x))


def in_a_scan(world, x, limit):
    def step(h, row):
        n, h = lucid.while_loop(
            lambda n, h: (h * h).sum() < limit,
            lambda n, h: (n + 1, h * 1.2 + (row @ world.w).sin() * 0.1),
            (0, h),
        )
        return (h * 0.3).sin() + x * 0.1, n

    h, ns = lucid.scan(step, x, lucid.stack([x, x * 2, x * 3]))
    return ns, h


def with_a_scan(world, x, limit):
    def body(n, x):
        inner, _ = lucid.scan(lambda h, row: ((h + row).sin(), None), x, world.w)
        return n + 1, x * 1.2 + inner * 0.1

    return lucid.while_loop(lambda n, x: (x * x).sum() < limit, body, (0, x))


def in_a_while(world, x, limit):
    def body(n, x):
        m, y = growing(world, x * 0.3, limit * 0.01)
        return n + m + 1, x * 1.2 + y * 0.1

    return lucid.while_loop(lambda n, x: (x * x).sum() < limit, body, (0, x))


def counted(world, x, limit):
    """A fori_loop whose bound is a tensor."""
    upper = limit.long() % 7
    return upper, lucid.fori_loop(upper * 0, upper, lambda i, x: x * world.w[0] + i, x)


def indexed(world, x, limit):
    def body(n, x):
        return n + 1, x * 1.2 + world.w[world.places].sum(0) * 0.01

    return lucid.while_loop(lambda n, x: (n < 5) & ((x * x).sum() < limit), body, (0, x))


def counted_index(world, x, limit):
    """Rows one after the other, and from the end."""

    def body(n, x):
        return n + 1, x * 1.3 + world.w[n] * 0.01 + world.w[:, -n - 1]

    return lucid.while_loop(lambda n, x: (n < 3) & ((x * x).sum() < limit), body, (0, x))


def chasing(world, x, limit):
    """Each round says which rows the next one reads."""

    def body(n, places, x):
        rows = world.w[places]
        following = (rows.argmax(1) + places + n).remainder(3)
        return n + 1, following, x * 1.2 + (rows.sum(0) * x).sin()

    def goes_on(n, places, x):
        return ((x * x).sum() < limit) & (n < 25)

    n, places, x = lucid.while_loop(goes_on, body, (0, world.places, x))
    return n + places.sum(), x


def in_place(world, x, limit):
    def body(n, x):
        with lucid.no_grad():
            world.buffer.mul_(0.5).add_(x)
        return n + 1, x * 1.2 + world.buffer.clone() * 0.1

    return lucid.while_loop(lambda n, x: (x * x).sum() < limit, body, (0, x))


def noise(world, x, limit):
    def body(n, x):
        return n + 1, x * (1.1 + lucid.rand(3, dtype=f64))

    return lucid.while_loop(lambda n, x: (x * x).sum() < limit, body, (0, x))


def detached(world, x, limit):
    def body(n, x, h):
        with lucid.no_grad():
            h = h * (1 + (x * x).sum() / limit)
        return n + 1, x + h * x @ world.w.abs(), h

    goes_on = lambda n, x, h: (x * x).sum() < limit  # noqa: E731
    n, x, _ = lucid.while_loop(goes_on, body, (0, x, lucid.tensor(0.1, dtype=f64)))
    return n, x


RECORDED = [
    growing, with_a_tree, custom, condition_of_several, converted, in_a_scan, with_a_scan,
    in_a_while, counted, indexed, in_place, noise, detached, counted_index, chasing,
]  # fmt: skip
LIMITS = (1.0, 10.0, 1e-3, 1e6, 1.0)  # the third makes no round, the fourth very many


def program(make: Callable[..., Any], way: str, world: World) -> Callable[..., Any]:
    def values(x, limit):
        with lucid.no_grad():
            return make(world, x, limit)

    def gradient(x, limit):
        n, y = make(world, x, limit)
        inputs, options = (x, world.w), {"allow_unused": True, "materialize_grads": True}
        found = lucid.autograd.grad((y * y.sin()).sum() + x.sum(), inputs, **options)
        return n, y.detach(), *found

    def second(x, limit):
        n, y = make(world, x, limit)
        inputs, options = (x, world.w), {"allow_unused": True, "materialize_grads": True}
        loss = (y * y.sin()).sum() + (x * x).sum() + (world.w * world.w).sum()
        first = lucid.autograd.grad(loss, inputs, create_graph=True, **options)
        total = sum((g * g).sum() for g in first)
        return n, *(g.detach() for g in first), *lucid.autograd.grad(total, inputs, **options)

    return {"values": values, "gradient": gradient, "second": second}[way]


def outcome(make: Callable[..., Any], way: str, compiles: bool) -> tuple[list[Any], Any]:
    world = World()
    run = program(make, way, world)
    step = lucid.compile(run) if compiles else run
    found = []
    for limit in LIMITS:
        result = step(tensor(0.1, 0.2, -0.3), lucid.tensor(limit, dtype=f64))
        found.append([x.detach() for x in result])
    return [*found, world.buffer, lucid.get_rng_state()], step


@pytest.mark.parametrize("way", ["values", "gradient", "second"])
@pytest.mark.parametrize("make", RECORDED, ids=lambda make: make.__name__)
def test_a_loop_is_one_op(make, way):
    (wanted, _), (found, step) = outcome(make, way, False), outcome(make, way, True)
    agree(wanted, found, rtol=1e-7)
    assert not step.stats.eager_reasons and not step.stats.restarts
    assert " = while_loop " in step.dump_ir()
    if way == "values":
        assert step.stats.traces == 1 and not step.stats.exits


# What a round does in Python, or what can't be taken apart: the number of rounds is a path.


def looking(world, x, limit):
    def body(n, x):
        return n + 1, x * (1.2 if x[0] > 0.5 else 1.5)

    return lucid.while_loop(lambda n, x: (x * x).sum() < limit, body, (0, x))


def keeping(world, x, limit):
    def body(n, x):
        world.list.append(1)
        return n + 1, x * 1.5

    return lucid.while_loop(lambda n, x: (x * x).sum() < limit, body, (0, x))


def numbers(world, x, limit):
    """The condition is one of Python's."""
    return lucid.while_loop(
        lambda n, x: bool((x * x).sum() < limit), lambda n, x: (n + 1, x * 1.5), (0, x)
    )


@pytest.mark.parametrize("make", [looking, keeping, numbers], ids=lambda make: make.__name__)
def test_what_each_round_does_in_python_makes_a_path(make):
    for way in ("values", "gradient"):
        found = []
        for compiles in (False, True):
            world = World()
            run = program(make, way, world)
            step = lucid.compile(run) if compiles else run
            found.append([step(tensor(0.3, 0.2, -0.3), lucid.tensor(n, dtype=f64)) for n in (1, 3)])
            found[-1].append(lucid.tensor(len(world.list)))
        agree(*found)
        assert " = while_loop " not in step.dump_ir() and step.stats.exits


@pytest.mark.parametrize("make", [growing, in_a_scan, in_a_while, with_a_scan, with_a_tree])
def test_gradients_are_those_of_finite_differences(make):
    world = World()
    limit = lucid.tensor(9.0, dtype=f64)

    @lucid.compile
    def gradients(x):
        n, y = make(world, x, limit)
        return n, *lucid.autograd.grad((y * y).sum(), (x, world.w))

    @lucid.compile
    def loss(x):
        with lucid.no_grad():
            n, y = make(world, x, limit)
            return (y * y).sum(), n

    x, step = tensor(0.1, 0.2, -0.3), 1e-6
    rounds, of_x, of_w = gradients(x)
    for of, gradient in ((x, of_x), (world.w, of_w)):
        flat = of.detach().reshape(-1)
        for i, slope in enumerate(gradient.reshape(-1).tolist()):
            ends = []
            for by in (step, -2 * step, step):
                flat[i] += by
                value, n = loss(x)
                assert n.tolist() == rounds.tolist()
                ends.append(value.item())
            assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-7)


def test_no_round_gives_the_carry_and_its_gradient():
    world = World()

    @lucid.compile
    def run(x, limit):
        n, y = growing(world, x, limit)
        return n, y.detach(), *lucid.autograd.grad(y.sum() * 3, (x, world.w))

    x = tensor(1.0, 2.0, 3.0)
    n, y, of_x, of_w = run(x, lucid.tensor(1.0, dtype=f64))
    assert n.item() == 0 and y.tolist() == x.tolist()
    assert of_x.tolist() == [3, 3, 3] and not of_w.any()


def test_backward_accumulates_into_parameters():
    def outcome(compiles):
        model = nn.Linear(3, 3, dtype=f64)
        with lucid.no_grad():
            model.weight.copy_(World().w * 0.1)
            model.bias.fill_(0.2)
        optimizer = lucid.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def run(x):
            optimizer.zero_grad()
            _, y = lucid.while_loop(
                lambda n, y: ((y * y).sum() < 5) & (n < 9),
                lambda n, y: (n + 1, y * 1.1 + model(y).tanh()),
                (0, x),
            )
            loss = (y - 1).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = lucid.compile(run) if compiles else run
        return [step(tensor(0.1, 0.2, 0.3, grad=False)) for _ in range(4)], model.weight, model.bias

    agree(outcome(False), outcome(True))


def test_what_rounds_stack_grows_by_programs():
    def run(x, limit):
        n, y = growing(world, x, limit)
        return n, *lucid.autograd.grad(y.sum(), (x, world.w))

    world, step = World(), lucid.compile(run)
    x = tensor(0.1, 0.2, -0.3)
    traces = []
    for limit in (1.0, 50.0, 1e4, 1.0, 1e4, 1e30, 1e4, 1.0):
        agree(run(x, lucid.tensor(limit, dtype=f64)), step(x, lucid.tensor(limit, dtype=f64)), 1e-7)
        traces.append(step.stats.traces)
    assert traces == [1, 1, 2, 2, 2, 3, 3, 3]
    assert "a while_loop of at most 16 rounds" in str(step.explain()) or step.stats.exits


def test_a_state_that_a_step_writes_is_as_it_was_where_the_stack_was_too_small():
    world = World()

    @lucid.compile
    def step(x, limit):
        with lucid.no_grad():
            world.buffer.add_(1)
        n, y = growing(world, x, limit)
        (g,) = lucid.autograd.grad(y.sum(), x)
        return n, g

    for count, limit in enumerate((1.0, 1e4, 1e4), 1):
        step(tensor(0.1, 0.2, -0.3), lucid.tensor(limit, dtype=f64))
        assert world.buffer.tolist() == [count] * 3


def test_results_can_be_differentiated_outside():
    world = World()
    limit = lucid.tensor(3.0, dtype=f64)
    step = lucid.compile(lambda x: growing(world, x, limit)[1])
    x = tensor(0.1, 0.2, -0.3)
    found = lucid.autograd.grad(step(x).sum(), (x, world.w))
    agree(lucid.autograd.grad(growing(world, x, limit)[1].sum(), (x, world.w)), found)
    assert " = while_loop " in step.dump_ir() and not step.stats.restarts


def test_forward_mode_and_vmap_in_a_step():
    world = World()
    limit = lucid.tensor(3.0, dtype=f64)

    def f(x):
        return growing(world, x, limit)[1]

    def three(x):
        return lucid.while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x.sin() + x), (0, x))[1]

    def run(x, v):
        return lucid.func.jvp(f, (x,), (v,)), lucid.vmap(three)(lucid.stack([x, v]))

    x, v = tensor(0.1, 0.2, -0.3, grad=False), tensor(1.0, 2.0, 0.5, grad=False)
    agree(run(x, v), lucid.compile(run)(x, v))


def test_errors_in_a_step_are_those_of_eager_mode():
    def shape(x):
        return lucid.while_loop(lambda x: x.sum() < 5, lambda x: (lucid.cat([x, x]),), (x,))

    def dtype(x):
        return lucid.while_loop(lambda x: x.sum() < 5, lambda x: (x.float(),), (x,))

    def several(x):
        return lucid.while_loop(lambda x: x < 5, lambda x: (x * 2,), (x,))

    def count(x):
        return lucid.while_loop(lambda x: x.sum() < 5, lambda x: (x, x), (x,))

    for run in (shape, dtype, several, count):
        texts = []
        for each in (run, lucid.compile(run)):
            with pytest.raises(lucid.LucidError) as caught:
                each(tensor(1.0, 2.0))
            texts.append((type(caught.value), str(caught.value)))
        assert texts[0] == texts[1]


def test_an_index_outside_is_no_error_where_no_round_uses_it():
    world = World()

    @lucid.compile
    def run(x, places):
        body = lambda n, x: (n + 1, x + world.w[places].sum(0))  # noqa: E731
        return lucid.while_loop(lambda n, x: (n < 3) & (x[0] > 0), body, (0, x))

    @lucid.compile
    def in_a_branch(x, places, p):
        def body(n, x):
            return n + 1, x + lucid.cond(p, lambda: world.w[places].sum(0), lambda: world.w[0])

        return lucid.while_loop(lambda n, x: (n < 3) & (x[0] > 0), body, (0, x))

    wrong = lucid.tensor([1, 10**9])
    p = lucid.tensor(True)
    with lucid.no_grad():
        assert in_a_branch(tensor(-1.0, 0, 0), wrong, p)[0].item() == 0
        with pytest.raises(IndexError, match="index 1000000000 is out of"):
            in_a_branch(tensor(1.0, 0, 0), wrong, p)
        assert in_a_branch(tensor(1.0, 0, 0), wrong, ~p)[0].item() == 3
    wrong = lucid.tensor([1, 7])
    assert run(tensor(-1.0, 0, 0, grad=False), wrong)[0].item() == 0
    with pytest.raises(IndexError, match="index 7 is out of"):
        run(tensor(1.0, 0, 0, grad=False), wrong)


def test_a_loop_ends_at_an_index_that_is_wrong():
    world = World()

    def run(x, stop):
        with lucid.no_grad():
            world.buffer.add_(1)
        n, y = lucid.while_loop(
            lambda n, y: n < stop, lambda n, y: (n + 1, y + world.w[n]), (lucid.tensor(0), x)
        )
        return n, *lucid.autograd.grad((y * y).sum(), world.w)

    step = lucid.compile(run)
    x = tensor(0.1, 0.2, 0.3)
    agree(run(x, lucid.tensor(3)), step(x, lucid.tensor(3)))
    assert " = while_loop " in step.dump_ir() and not step.stats.restarts
    before, texts = world.buffer.tolist(), []
    for call in (step, run):  # it would go on for years
        with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0") as caught:
            call(x, lucid.tensor(2**62))
        texts.append(str(caught.value))
        assert call is run or world.buffer.tolist() == before
    assert texts[0] == texts[1]


def test_a_step_of_a_loop_is_checked_stage_by_stage():
    world = World()

    def run(x):
        n, y = in_a_scan(world, x, lucid.tensor(3.0, dtype=f64))
        return n, *lucid.autograd.grad(y.sum(), (x, world.w))

    step = lucid.compile(run)
    step(tensor(0.1, 0.2, -0.3))
    assert "agree" in str(step.check(tensor(0.1, 0.2, -0.3)))


def test_a_loop_that_makes_no_round_gives_its_gradient_to_what_rounds_would_replace() -> None:
    def step(a: Any, count: Any) -> Any:
        a = a.clone().requires_grad_()

        def body(i: Any, x: Any, y: Any) -> Any:
            return i + 1, y * 2, y

        start = lucid.tensor(0), a * 3, a * 5
        _, x, y = lucid.while_loop(lambda i, x, y: i < count, body, start)
        (gradient,) = lucid.autograd.grad(x + y, a)
        return gradient

    compiled = lucid.compile(step)
    for count, wanted in ((0, 8.0), (1, 15.0), (2, 15.0)):
        given = lucid.tensor(2.0), lucid.tensor(count)
        assert compiled(*given).item() == step(*given).item() == wanted
