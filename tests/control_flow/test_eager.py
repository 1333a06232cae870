"""What control flow means: the Python loop that it says."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import lucid
from lucid.autograd import gradcheck, gradgradcheck
from lucid.ir.errors import ArgumentError, DTypeError, OptionError, ShapeError
from lucid.ir.types import f64

Pair = namedtuple("Pair", "h c")


def randn(*shape: int) -> lucid.Tensor:
    return lucid.randn(*shape, dtype=f64).requires_grad_()


@pytest.fixture(autouse=True)
def _seed() -> None:
    lucid.manual_seed(0)


def cumulated(total, x):
    new = lucid.tanh(total * x + x)
    return new, (new * 2, total)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("every", [None, 1, 3, 7, 20])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_scan_is_a_loop(reverse, every, length):
    init, xs = randn(3), randn(length, 3)
    carry, ys = lucid.scan(cumulated, init, xs, reverse=reverse, checkpoint_every=every)
    state, kept = init, []
    for t in reversed(range(length)) if reverse else range(length):
        state, y = cumulated(state, xs[t])
        kept.append(y)
    if reverse:
        kept.reverse()
    assert carry.tolist() == state.tolist()
    for i, part in enumerate(ys):
        assert part.tolist() == lucid.stack([y[i] for y in kept]).tolist()


@pytest.mark.parametrize("every", [None, 2])
def test_gradients_of_scan(every):
    w = randn(3, 3)

    def f(init, xs, w):
        def step(h, x):
            h = lucid.tanh(h @ w + x)
            return h, h.sin()

        carry, ys = lucid.scan(step, init, xs, checkpoint_every=every)
        return carry, ys

    inputs = (randn(2, 3), randn(5, 2, 3), w)
    assert gradcheck(f, inputs)
    assert gradgradcheck(f, inputs)


def test_a_carry_is_any_tree_and_numbers_are_tensors():
    def f(carry, x):
        pair, count = carry["pair"], carry["n"]
        return {"pair": Pair(pair.h + x["a"], pair.c * x["a"]), "n": count + 1}, None

    init = {"pair": Pair(lucid.zeros(2), lucid.ones(2)), "n": 0}
    carry, ys = lucid.scan(f, init, {"a": lucid.full((3, 2), 2.0)})
    assert ys is None
    assert isinstance(carry["pair"], Pair)
    assert carry["pair"].h.tolist() == [6.0, 6.0]
    assert carry["pair"].c.tolist() == [8.0, 8.0]
    assert carry["n"].item() == 3


def test_length_without_xs():
    carry, ys = lucid.scan(lambda c, x: (c + 1, c if x is None else -c), 0, length=3)
    assert carry.item() == 3
    assert ys.tolist() == [0, 1, 2]


def test_no_rounds_give_ys_without_rows_and_draw_nothing():
    before = lucid.get_rng_state().tolist()
    init = randn(3)
    carry, (y, z) = lucid.scan(
        lambda c, x: (c + lucid.rand(3, dtype=f64), (x * 2, c > 0)), init, lucid.zeros(0, 4)
    )
    assert carry is init or carry.tolist() == init.tolist()
    assert (y.shape, y.dtype, z.shape, z.dtype) == ((0, 4), lucid.float32, (0, 3), lucid.bool)
    assert lucid.get_rng_state().tolist() != before  # randn drew, f did not
    state = lucid.get_rng_state().tolist()
    lucid.scan(lambda c, x: (c + lucid.rand(3, dtype=f64), None), init, length=0)
    assert lucid.get_rng_state().tolist() == state


def test_rows_without_elements():
    carry, ys = lucid.scan(lambda c, x: (c, x + c), lucid.ones(()), lucid.zeros(3, 0))
    assert carry.item() == 1
    assert ys.shape == (3, 0)


def test_fori_loop_with_ints_and_with_tensors():
    for lower, upper in ((2, 6), (lucid.tensor(2), 6), (2, lucid.tensor(6))):
        assert lucid.fori_loop(lower, upper, lambda i, x: x * i, 1).item() == 2 * 3 * 4 * 5
    assert lucid.fori_loop(3, 1, lambda i, x: x * i, 7).item() == 7


def test_map_takes_a_tree_of_rows():
    xs = (randn(4, 2), lucid.arange(4))
    ys = lucid.map(lambda x: {"s": x[0].sum() * x[1], "n": x[1]}, xs)
    assert ys["n"].tolist() == [0, 1, 2, 3]
    assert np.allclose(ys["s"].tolist(), (xs[0].sum(1) * xs[1]).tolist())
    assert gradcheck(lambda x: lucid.map(lambda row: row.exp().prod(), x), (randn(3, 2),))


def test_while_loop_has_gradients_however_often_it_goes_round():
    def f(x):
        return lucid.while_loop(
            lambda i, y: y.abs().sum() < 50, lambda i, y: (i + 1, y * 1.5 + x), (0, x)
        )[1]

    assert gradcheck(f, (randn(3),))
    assert gradgradcheck(f, (randn(3),))
    i, _y = lucid.while_loop(lambda i, y: i < 0, lambda i, y: (i + 1, y), (0, lucid.ones(2)))
    assert i.item() == 0


def test_cond_runs_one_branch():
    ran = []

    def first(x, y):
        ran.append("first")
        return x * y

    def second(x, y):
        ran.append("second")
        return x - y

    x, y = randn(2), randn(2)
    for pred in (True, lucid.tensor([1.0]), x.square().sum() >= 0):
        assert lucid.cond(pred, first, second, (x, y)).tolist() == (x * y).tolist()
    assert lucid.cond(False, first, second, [x, y]).tolist() == (x - y).tolist()
    assert ran == ["first"] * 3 + ["second"]
    assert gradcheck(lambda x, y: lucid.cond(x.sum() > 0, first, second, (x, y)), (x, y))


def test_vmap_and_forward_mode():
    w = randn(3, 3)

    def f(x):
        return lucid.scan(lambda h, row: (lucid.tanh(h @ w + row), h.sum()), x[0] * 0, x)

    x, v = randn(4, 5, 3).detach(), randn(4, 5, 3).detach()
    carry, ys = lucid.vmap(f)(x)
    for i in range(4):
        assert np.allclose(carry[i].tolist(), f(x[i])[0].tolist())
        assert np.allclose(ys[i].tolist(), f(x[i])[1].tolist())
    (_, _out), (_, tangent) = lucid.func.jvp(f, (x[0],), (v[0],))
    eps = 1e-6
    numeric = (f(x[0] + eps * v[0])[1] - f(x[0] - eps * v[0])[1]) / (2 * eps)
    assert np.allclose(tangent.tolist(), numeric.tolist(), atol=1e-7)


def test_each_example_of_a_vmap_takes_its_own_way():
    w = randn(3, 3).detach()

    def branches(x):
        return lucid.cond(x.sum() > 0, lambda x: (x.exp(), 1), lambda x: (x @ w, 2), (x,))

    def rounds(x):
        def body(n, x):
            return n + 1, x * 1.5 + (x @ w).tanh() * 0.1

        return lucid.while_loop(lambda n, x: ((x * x).sum() < 9) & (n < 50), body, (0, x))

    xs = lucid.stack([lucid.ones(3) * s for s in (1.0, -1.0, 0.2, -0.01, 5.0)]).to(w.dtype)
    for f in (branches, rounds, lambda x: rounds(branches(x)[0])):
        found = lucid.vmap(f)(xs)
        wanted = [f(x) for x in xs]
        for number, part in enumerate(found):
            for i in range(5):
                one = lucid.as_tensor(wanted[i][number])
                assert np.allclose(part[i].tolist(), one.tolist(), rtol=1e-10)
        slopes = lucid.vmap(
            lucid.func.grad(lambda x, f=f: (f(x)[-2 if f is branches else -1]).sum())
        )
        of_each = [
            lucid.func.grad(lambda x, f=f: f(x)[-2 if f is branches else -1].sum())(x) for x in xs
        ]
        assert np.allclose(slopes(xs).tolist(), [g.tolist() for g in of_each], rtol=1e-10)
        step = lucid.compile(lucid.vmap(f))
        for part, again in zip(found, step(xs), strict=True):
            assert np.allclose(part.tolist(), again.tolist(), rtol=1e-10)


def test_branches_of_different_types_are_refused_in_a_vmap():
    for other, error in ((lambda x: x[:1], ShapeError), (lambda x: x.float(), DTypeError)):
        with pytest.raises(error, match="what both branches give in a vmap must keep its types"):
            lucid.vmap(lambda x, o=other: lucid.cond(x.sum() > 0, lambda x: x, o, (x,)))(
                randn(4, 3)
            )


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: lucid.scan(1, 0, length=1), ArgumentError, "must be a function, not int"),
        (lambda: lucid.scan(lambda c, x: c, 0, length=1), ArgumentError, "must return (carry, y)"),
        (lambda: lucid.scan(lambda c, x: (c, x), 0), ArgumentError, "needs a length"),
        (
            lambda: lucid.scan(lambda c, x: ((c, c), x), 0, length=1),
            ArgumentError,
            "must have the structure * of 1 tensors, not (*, *) of 2",
        ),
        (
            lambda: lucid.scan(lambda c, x: (c + 0.5, x), 0, length=1),
            DTypeError,
            "there is f32[] where i64[] was\n  before: i64[]  from ",
        ),
        (
            lambda: lucid.scan(lambda c, x: (lucid.cat([c, c]), x), lucid.ones(2), length=1),
            ShapeError,
            "there is f32[4] where f32[2] was",
        ),
        (
            lambda: lucid.scan(lambda c, x: (c, x), 0, (lucid.ones(2), lucid.ones(3))),
            ShapeError,
            "equally many rows: f32[2], f32[3]",
        ),
        (
            lambda: lucid.scan(lambda c, x: (c, x), 0, lucid.ones(2), length=3),
            ShapeError,
            "f32[2], and length is 3",
        ),
        (lambda: lucid.scan(lambda c, x: (c, x), 0, lucid.ones(())), ShapeError, "has no axis"),
        (lambda: lucid.scan(lambda c, x: (c, x), 0, length=-1), OptionError, "not be negative"),
        (
            lambda: lucid.scan(lambda c, x: (c, x), 0, length=1, checkpoint_every=0),
            OptionError,
            "must be at least 1",
        ),
        (lambda: lucid.scan(lambda c, x: (c, "y"), 0, length=1), ArgumentError, "not str"),
        (lambda: lucid.cond("x", abs, abs), ArgumentError, "must be a bool or a Tensor, not str"),
        (lambda: lucid.cond(lucid.ones(2), abs, abs), ShapeError, "one element, not f32[2]"),
        (lambda: lucid.cond(True, abs, abs, 3), ArgumentError, "must be a tuple, not int"),
        (lambda: lucid.while_loop(abs, abs, 3), ArgumentError, "must be a tuple, not int"),
        (
            lambda: lucid.while_loop(lambda x: x < 3, lambda x: x + 1, (0,)),
            ArgumentError,
            "must return a tuple of 1",
        ),
        (
            lambda: lucid.while_loop(lambda x: 1.0, lambda x: (x,), (0,)),
            ArgumentError,
            "must return a bool or a Tensor, not float",
        ),
    ],
)
def test_wrong_arguments_are_named(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
