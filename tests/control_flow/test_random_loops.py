"""Random loops and branches in each other: eager mode, interpreter and native code agree."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fuzzing import many

import lucid
from lucid.ir.types import f64
from lucid.tensor.tree import flatten

ROWS, WIDTH = 2, 3
REGIONS = ("scan", "while", "cond")
Body = Callable[[Any, Any], Any]


class Cells:
    """Makes the functions of loops: each a random program over a carry, a row and what is around.

    A program is a list of choices that is drawn once, so that all modes run the same.
    """

    def __init__(self, rng: np.random.Generator, weights: list[lucid.Tensor]) -> None:
        self._rng = rng
        self._weights = weights
        self.drawn: set[tuple[int, str]] = set()

    def body(self, depth: int, around: int) -> Body:
        """The body of a loop that is in `depth` others, and captures so many of their values."""
        rng, weights = self._rng, self._weights
        steps: list[tuple[Any, ...]] = []
        count = 2 + around + len(weights)
        for _ in range(int(rng.integers(2, 6))):
            kinds = ["tanh", "sin", "mul", "add", "matmul", "where", "sum", "cat", "weight"]
            kind = str(rng.choice([*kinds, *REGIONS] if depth < 2 else kinds))
            self.drawn.add((depth, kind))
            args = tuple(int(n) for n in rng.integers(0, count, 2))
            inner = self.body(depth + 1, count - len(weights)) if kind in REGIONS else None
            options = {"reverse": bool(rng.integers(2)), "every": rng.choice([0, 2])}
            steps.append((kind, *args, inner, options))
            count += 1
        shown = [int(n) for n in rng.integers(0, count, 2)]

        def run(carry: Any, row: Any, outer: tuple[Any, ...] = ()) -> Any:
            values = [carry, row, *outer, *weights]
            values += [weights[0]] * (2 + around + len(weights) - len(values))
            for kind, a, b, inner, options in steps:
                values.append(_step(kind, values[a], values[b], inner, options, values, weights))
            return lucid.tanh(values[-1] + carry * 0.3 + row), [values[n] * 1.0 for n in shown]

        return run


def _step(
    kind: str,
    x: Any,
    y: Any,
    inner: Body | None,
    options: dict[str, Any],
    values: list[Any],
    weights: list[Any],
) -> Any:
    outer = tuple(value for value in values if all(value is not w for w in weights))
    if kind == "cond":
        assert inner is not None
        return lucid.cond(
            x.sum() > y.sum(), lambda: inner(x * 0.5, y, outer)[0], lambda: x * 0.5 + y
        )
    if kind == "while":
        most = (x.sum() > 0).long() * 2 + (y.sum() > 0)

        def again(n: Any, h: Any) -> tuple[Any, Any]:
            assert inner is not None
            return n + 1, inner(h, y * 0.5, outer)[0]

        n, h = lucid.while_loop(lambda n, h: (n < most) & ((h * h).sum() < 20), again, (0, x * 0.5))
        return h + n * 0.1
    if kind == "scan":
        rows = lucid.stack([x * 0.5, y.sin(), x - y])
        last, ys = lucid.scan(
            lambda h, r: inner(h, r, outer),  # type: ignore[misc]
            y.tanh(),
            rows,
            reverse=options["reverse"],
            checkpoint_every=int(options["every"]) or None,
        )
        return last + sum(part.sum(0) for part in ys) * 0.1
    return {
        "tanh": lambda: x.tanh(),
        "sin": lambda: x.sin() + y,
        "mul": lambda: x * y,
        "add": lambda: x + y * 0.5,
        "matmul": lambda: (x @ weights[0][:1].T) * y,
        "where": lambda: lucid.where(x > 0.1, y, x * 0.5),
        "sum": lambda: x.sum(-1, keepdim=True) + y,
        "cat": lambda: lucid.cat([x[:, :1], y[:, 1:]], 1),
        "weight": lambda: x * weights[1].exp() + weights[0].T.sum() * 0.1,
    }[kind]()


SEEDS = range(many(16))


def test_each_kind_of_region_is_in_each_other():
    drawn: set[tuple[int, str]] = set()
    for seed in SEEDS:
        cells = Cells(np.random.default_rng(seed), [])
        cells.body(0, 0)
        drawn |= cells.drawn
    assert drawn.issuperset((depth, kind) for depth in (0, 1) for kind in REGIONS)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_loops(seed):
    rng = np.random.default_rng(seed)

    def randn(*shape: int) -> lucid.Tensor:
        return lucid.tensor(rng.normal(size=shape), dtype=f64, requires_grad=True)

    weights = [randn(ROWS, WIDTH), randn(ROWS, WIDTH)]
    body = Cells(rng, weights).body(0, 0)
    init, xs = randn(ROWS, WIDTH), randn(int(rng.integers(1, 5)), ROWS, WIDTH)
    options = {"reverse": bool(rng.integers(2)), "checkpoint_every": [None, 2][rng.integers(2)]}

    def run(init: Any, xs: Any) -> Any:
        found = lucid.scan(body, init, xs, **options)
        leaves = flatten(found)[0]
        loss = sum((x * x).sum() for x in leaves)
        inputs = (init, xs, *weights)
        first = lucid.autograd.grad(loss, inputs, create_graph=True, materialize_grads=True)
        norm = sum((g * g).sum() for g in first)
        second = lucid.autograd.grad(norm, inputs, allow_unused=True, materialize_grads=True)
        return [x.detach() for x in (*leaves, *first, *second)]

    step = lucid.compile(run)
    for wanted, found in zip(run(init, xs), step(init, xs), strict=True):
        scale = float(np.abs(wanted.numpy()).max(initial=1.0))
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-7, atol=1e-9 * scale)
    assert not step.stats.restarts and not step.stats.eager_reasons
    assert " = scan " in step.dump_ir()
    if seed % 8 == 0:
        assert "agree" in str(step.check(init, xs))


@pytest.mark.parametrize("seed", (0, 5))
def test_random_loops_differentiated_outside(seed):
    rng = np.random.default_rng(seed)

    def randn(*shape: int) -> lucid.Tensor:
        return lucid.tensor(rng.normal(size=shape), dtype=f64, requires_grad=True)

    weights = [randn(ROWS, WIDTH), randn(ROWS, WIDTH)]
    body = Cells(rng, weights).body(0, 0)
    init, xs = randn(ROWS, WIDTH), randn(5, ROWS, WIDTH)
    every = 2 if seed % 2 else None

    def forward(init: Any, xs: Any) -> Any:
        return flatten(lucid.scan(body, init, xs, checkpoint_every=every))[0]

    def run(forward: Callable[..., Any]) -> Any:
        leaves = forward(init, xs)
        inputs = (init, xs, *weights)
        options = {"create_graph": True, "materialize_grads": True}
        first = lucid.autograd.grad(sum(x.square().sum() for x in leaves), inputs, **options)
        norm = sum(g.square().sum() for g in first)
        second = lucid.autograd.grad(norm, inputs, allow_unused=True, materialize_grads=True)
        return [x.detach().numpy() for x in (*leaves, *first, *second)]

    step = lucid.compile(forward)
    for wanted, found in zip(run(forward), run(step), strict=True):
        scale = float(np.abs(wanted).max(initial=1.0))
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-9 * scale)
    assert not step.stats.restarts and not step.stats.eager_reasons
    assert " = scan " in step.dump_ir() and " = scan " in str(step.stages["backward"])


TRANSFORMED: dict[str, Callable[[Callable[..., Any], Any], Any]] = {
    "jvp": lambda f, x: lucid.func.jvp(f, (x,), (x.cos(),)),
    "jvp_of_grad": lambda f, x: lucid.func.jvp(lucid.func.grad(f), (x,), (x.cos(),)),
    "grad_of_jvp": lambda f, x: lucid.func.grad(lambda x: lucid.func.jvp(f, (x,), (x.cos(),))[1])(
        x
    ),
    "jvp_of_jvp": lambda f, x: lucid.func.jvp(
        lambda x: lucid.func.jvp(f, (x,), (x.sin(),))[1], (x,), (x.cos(),)
    ),
    "jacfwd": lambda f, x: lucid.func.jacfwd(lambda v: f(x * 0.5 + v))(x[0]),
    "jacrev": lambda f, x: lucid.func.jacrev(lambda v: lucid.stack([f(x * v), f(v)]))(x),
    "hessian": lambda f, x: lucid.func.hessian(lambda v: f(x * 0.5 + v))(x[0]),
    "vmap": lambda f, x: lucid.vmap(f)(lucid.stack([x, x.sin(), -x])),
    "vmap_of_grad": lambda f, x: lucid.vmap(lucid.func.grad(f))(lucid.stack([x, x.sin(), -x])),
    "grad_of_vmap": lambda f, x: lucid.func.grad(
        lambda x: lucid.vmap(f)(lucid.stack([x, x.sin(), -x])).square().sum()
    )(x),
    "vmap_of_vmap": lambda f, x: lucid.vmap(
        lambda a: lucid.vmap(lambda b: f(a * b))(lucid.stack([x, x.sin(), -x]))
    )(lucid.stack([x, x.cos()])),
}


@pytest.mark.parametrize(
    ("name", "seed"),
    [(name, i % 2 + 2 * j) for i, name in enumerate(TRANSFORMED) for j in range(many(1))],
)
def test_random_loops_in_transformations(name, seed):
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])

    def randn(*shape: int) -> lucid.Tensor:
        return lucid.tensor(rng.normal(size=shape), dtype=f64)

    weights = [randn(ROWS, WIDTH), randn(ROWS, WIDTH)]
    body = Cells(rng, weights).body(0, 0)
    x, xs = randn(ROWS, WIDTH), randn(5, ROWS, WIDTH)

    def loss(x: Any) -> Any:
        start = x if seed % 2 else lucid.zeros(ROWS, WIDTH, dtype=f64)
        found = lucid.scan(body, start, xs * x if seed % 3 else xs + x)
        return sum((y * y).sum() for y in flatten(found)[0])

    def run(x: Any) -> Any:
        return TRANSFORMED[name](loss, x)

    step = lucid.compile(run)
    for wanted, found in zip(flatten(run(x))[0], flatten(step(x))[0], strict=True):
        scale = float(np.abs(wanted.numpy()).max(initial=1.0))
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-7, atol=1e-9 * scale)
    assert not step.stats.eager_reasons
    if not seed:
        assert "agree" in str(step.check(x))


_PLACES = lucid.tensor([2, 0])
_INDEXED: dict[str, Callable[[Any], Any]] = {
    "from outside": lambda x: x[_PLACES].sin(),
    "from outside, after a value": lambda x: x.sin()[_PLACES],
    "a constant of the round": lambda x: x.index_put((lucid.tensor([1]),), x.new_zeros(())),
    "constants of the round": lambda x: x.index_add(0, lucid.tensor([2, 1]), x[:2].exp()),
    "chosen in the round": lambda x: x[x.argsort()[:2]],
    "written in the round": lambda x: x[lucid.tensor([0, 1]).clone().mul_(2)] * x[0],
    "sorted": lambda x: x.sort(descending=True)[0].sin(),
    "the largest so far": lambda x: x.cummax(0)[0] * x,
    "searched for": lambda x: x[lucid.searchsorted(x.sort()[0], x)] * x,
    "of a loop within": lambda x: lucid.scan(
        lambda c, q: (c + x[x.argsort()[:1]] * q, c), x[:1], x
    )[0],
    "of a branch": lambda x: lucid.cond(
        x.sum() > 5, lambda: x.topk(2)[0].exp(), lambda: x.sort()[0][:2]
    ),
}


@pytest.mark.parametrize("name", _INDEXED)
def test_indices_in_rounds_differentiated_outside(name):
    def run(forward: Callable[..., Any]) -> Any:
        x = lucid.tensor(np.arange(12.0).reshape(4, 3) % 5, requires_grad=True)
        (forward(x) * 2).sum().backward()
        (first,) = lucid.autograd.grad(forward(x).square().sum(), x, create_graph=True)
        (second,) = lucid.autograd.grad(first.square().sum(), x)
        return [y.detach().numpy() for y in (x.grad, first, second)]

    def forward(x: Any) -> Any:
        return lucid.map(_INDEXED[name], x)

    step = lucid.compile(forward)
    for wanted, found in zip(run(forward), run(step), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-7)
    assert not step.stats.eager_reasons
