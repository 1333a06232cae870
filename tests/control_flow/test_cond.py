"""`cond`: the op with two bodies, and what a compiled step makes of it, gradients included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from region_programs import World, agree, results, tensor

import lucid
from lucid.ir.errors import VerifyError
from lucid.ir.text import parse
from lucid.ir.types import f64
from lucid.ir.verify import verify

BRANCHES = """graph branches(%p: bool[], %x: f32[5], %w: f32[5]) {
  %y, %n = cond up(%p, %x, %w) {otherwise = "down"} : (f32[5], i64[])
  return %y, %n
}
function up(%x: f32[5], %w: f32[5]) {
  %e = exp %w : f32[5]
  %s = sum %e {axes = [0]} : f32[]
  %y = mul %x, %s : f32[5]
  %n = constant 1 : i64[]
  return %y, %n
}
function down(%x: f32[5], %w: f32[5]) {
  %n = constant 0 : i64[]
  return %x, %n
}
"""


@pytest.mark.parametrize("p", [True, False])
def test_one_body_runs(p):
    x, w = np.arange(10, dtype=np.float32).reshape(2, 5)
    y, n = results(BRANCHES, [np.array(p), x, w])
    assert n == p
    np.testing.assert_allclose(y, x * np.exp(w).sum() if p else x, rtol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("up(%p,", "up(%x,", "its first operand isn't a bool[]"),
        ('"down"', '"sideways"', "no function sideways"),
        ("return %x, %n", "return %n, %x", "its body down returns (i64[], f32[5])"),
        ("down(%x: f32[5], %w: f32[5])", "down(%x: f32[5])", "its body down takes (f32[5])"),
        ("%y = mul %x, %s :", "%y = host F(%x) :", "says python = false, and its bodies don't"),
    ],
)
def test_what_does_not_go_together_is_refused(old, new, text):
    with pytest.raises(VerifyError) as caught:
        verify(parse(BRANCHES.replace(old, new)))
    assert text in str(caught.value)


def plain(world, p, x):
    return lucid.cond(p, lambda x: (x @ world.w).sin(), lambda x: x.exp() * 2, (x,))


def closing_over(world, p, x):
    """The sides read what is outside, and not the same of it."""
    y = x.sin()
    return lucid.cond(p, lambda: y @ world.w + x, lambda: x * 3)


def passing_on(world, p, x):
    return lucid.cond(p, lambda x, y: (x, y), lambda x, y: (y, x), (x, world.w[0]))[0]


def trees(world, p, x):
    def then(x):
        return {"a": x * 2, "n": 1, "none": None, "b": [x.sum(), lucid.ones(2, dtype=f64)]}

    def otherwise(x):
        return {"a": x @ world.w, "n": 1, "none": None, "b": [x[0], lucid.zeros(2, dtype=f64)]}

    found = lucid.cond(p, then, otherwise, (x,))
    assert found["n"] == 1 and found["none"] is None
    return found["a"] + found["b"][0] + found["b"][1].sum()


def without_history(world, p, x):
    """On one side the result has none."""
    return lucid.cond(p, lambda: lucid.full((3,), 2.0, dtype=f64), lambda: x * world.w[0])


def integers(world, p, x):
    n = lucid.cond(p, lambda: (x > 0).sum(), lambda: (x > 0.15).sum() + 5)
    return x * n


def nested(world, p, x):
    def then(x):
        return lucid.cond(x.sum() > 0.1, lambda: x @ world.w, lambda: x.sin())

    return lucid.cond(p, then, lambda x: lucid.cond(x[0] < 0, then, lambda x: x.cos(), (x,)), (x,))


def in_a_scan(world, p, x):
    def step(h, row):
        h = lucid.cond((h.sum() > 0) == p, lambda: (h @ world.w).sin() + row, lambda: h.cos() * row)
        return h, h * 2

    last, ys = lucid.scan(step, x, lucid.stack([x, x * 2, x - 1, x.sin()]))
    return last + ys.sum(0)


def in_a_while(world, p, x):
    def body(n, x):
        return n + 1, lucid.cond(
            (n % 2 == 0) == p, lambda: x * 1.5, lambda: x + (x @ world.w) * 0.1
        )

    return lucid.while_loop(lambda n, x: ((x * x).sum() < 9) & (n < 30), body, (0, x))[1]


def of_loops(world, p, x):
    """A loop on each side, and a cond in one of them, in a loop."""

    def then():
        def body(n, y):
            y = lucid.cond(y[0] > 1, lambda: y * 1.1, lambda: y * 1.4 + world.w[0] * 0.1)
            return n + 1, y

        return lucid.while_loop(lambda n, y: ((y * y).sum() < 8) & (n < 40), body, (0, x))[1]

    def otherwise():
        return lucid.scan(lambda h, row: ((h * row).sin(), None), x, world.w)[0]

    return lucid.cond(p, then, otherwise)


def in_place(world, p, x):
    def then():
        with lucid.no_grad():
            world.buffer.add_(x)
        return x * 2

    def otherwise():
        return x * world.buffer.clone() + x

    return lucid.cond(p, then, otherwise)


def noise(world, p, x):
    y = lucid.cond(p, lambda: x * lucid.rand(3, dtype=f64), lambda: x * 2)
    return y + lucid.rand(3, dtype=f64)


def indexed(world, p, x):
    return lucid.cond(p, lambda: x * world.w[world.places].sum(0), lambda: x * world.w[1])


RECORDED = [
    plain, closing_over, passing_on, trees, without_history, integers, nested, in_a_scan,
    in_a_while, of_loops, in_place, noise, indexed,
]  # fmt: skip


def program(make: Callable[..., Any], way: str, world: World) -> Callable[..., Any]:
    options = {"allow_unused": True, "materialize_grads": True}

    def values(p, x):
        with lucid.no_grad():
            return make(world, p, x)

    def gradient(p, x):
        y = make(world, p, x)
        found = lucid.autograd.grad((y * y.sin()).sum() + x.sum(), (x, world.w), **options)
        return y.detach(), *found

    def second(p, x):
        y = make(world, p, x)
        loss = (y * y.sin()).sum() + (x * x).sum() + (world.w * world.w).sum()
        first = lucid.autograd.grad(loss, (x, world.w), create_graph=True, **options)
        total = sum((g * g).sum() for g in first)
        return *(g.detach() for g in first), *lucid.autograd.grad(total, (x, world.w), **options)

    return {"values": values, "gradient": gradient, "second": second}[way]


def outcome(make: Callable[..., Any], way: str, compiles: bool) -> tuple[list[Any], Any]:
    world = World()
    run = program(make, way, world)
    step = lucid.compile(run) if compiles else run
    found = [
        step(lucid.tensor(p), tensor(0.1 + 0.2 * n, 0.2, -0.3))
        for n, p in enumerate([True, False, False, True])
    ]
    return [*found, world.buffer, lucid.get_rng_state()], step


@pytest.mark.parametrize("way", ["values", "gradient", "second"])
@pytest.mark.parametrize("make", RECORDED, ids=lambda make: make.__name__)
def test_both_sides_are_one_op(make, way):
    (wanted, _), (found, step) = outcome(make, way, False), outcome(make, way, True)
    agree(wanted, found, rtol=1e-8)
    assert not step.stats.eager_reasons and not step.stats.restarts
    assert step.stats.traces == 1 or make in (in_a_while, of_loops)  # which may need larger stacks
    assert " = cond " in step.dump_ir() or (make is passing_on and way == "gradient")


@pytest.mark.parametrize("make", [plain, closing_over, nested, in_a_scan, of_loops])
@pytest.mark.parametrize("p", [True, False])
def test_gradients_are_those_of_finite_differences(make, p):
    world = World()
    loss = lucid.compile(lambda p, x: (make(world, p, x) ** 2).sum().detach())

    @lucid.compile
    def gradients(p, x):
        y = make(world, p, x)
        return lucid.autograd.grad((y * y).sum(), (x, world.w), materialize_grads=True)

    p, x, step = lucid.tensor(p), tensor(0.1, 0.2, -0.35), 1e-6
    for of, gradient in zip((x, world.w), gradients(p, x), strict=True):
        flat = of.detach().reshape(-1)
        for i, slope in enumerate(gradient.reshape(-1).tolist()):
            ends = []
            for by in (step, -2 * step, step):
                flat[i] += by
                ends.append(loss(p, x).item())
            assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-7)


# What is no op: Python looks at the condition, and each side is a path.


def of_other_shapes(world, p, x):
    return lucid.cond(p, lambda: x[:2], lambda: x).sum() * x


def of_other_numbers(world, p, x):
    return x * lucid.cond(p, lambda: 2, lambda: 3)


def counting(world, p, x):
    def then():
        world.list.append(1)
        return x * 2

    return lucid.cond(p, then, lambda: x * 3)


def raising(world, p, x):
    def otherwise():
        if len(world.list) == 0:
            raise ValueError("never")
        return x

    try:
        return lucid.cond(p, lambda: x * 2, otherwise)
    except ValueError:
        return x * 5


@pytest.mark.parametrize(
    "make", [of_other_shapes, of_other_numbers, counting, raising], ids=lambda make: make.__name__
)
def test_sides_that_python_tells_apart_are_paths(make):
    (wanted, _), (found, step) = outcome(make, "gradient", False), outcome(make, "gradient", True)
    agree(wanted, found)
    assert step.stats.exits and " = cond " not in step.dump_ir()


def test_an_index_outside_is_an_error_of_its_side_alone():
    world = World()

    @lucid.compile
    def run(p, places):
        return lucid.cond(p, lambda: world.w[places].sum(), lambda: world.w.sum())

    wrong = lucid.tensor([1, 7])
    with lucid.no_grad():
        assert run(lucid.tensor(False), wrong).item() == pytest.approx(world.w.sum().item())
        with pytest.raises(IndexError, match="index 7 is out of"):
            run(lucid.tensor(True), wrong)


def test_results_can_be_differentiated_outside():
    world, x = World(), tensor(0.1, 0.2, -0.3)
    step = lucid.compile(lambda p, x: plain(world, p, x))
    for p in (lucid.tensor(True), lucid.tensor(False)):
        wanted = lucid.autograd.grad(plain(world, p, x).sum(), (x, world.w), materialize_grads=True)
        found = lucid.autograd.grad(step(p, x).sum(), (x, world.w), materialize_grads=True)
        agree(wanted, found)
    assert " = cond " in step.dump_ir() and not step.stats.restarts


def test_a_step_with_branches_is_checked_stage_by_stage():
    world = World()
    step = lucid.compile(program(of_loops, "gradient", world))
    for p in (True, False):
        given = lucid.tensor(p), tensor(0.1, 0.2, -0.3)
        step(*given)
        assert "agree" in str(step.check(*given))
