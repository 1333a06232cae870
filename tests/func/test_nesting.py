"""Transformations in each other, over ops and over custom Functions, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.autograd import Function
from lucid.func import grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp, vmap as mapped

Run = Callable[..., Any]


class Square(Function):
    """Saves an input."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


class Exp(Function):
    """Saves an output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * g


class SinSquared(Function):
    """Saves what it computed on the way: its second derivative goes through that."""

    @staticmethod
    def forward(ctx, x):
        s, c = x.sin(), x.cos()
        ctx.save_for_backward(s, c)
        return s * s

    @staticmethod
    def backward(ctx, g):
        s, c = ctx.saved_tensors
        return 2 * s * c * g


class Two(Function):
    """Two outputs, a number among the arguments, two methods."""

    @staticmethod
    def forward(x, y, k):
        return x * y * k, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y, ctx.k = inputs
        ctx.save_for_backward(x, y, output[0])
        ctx.save_for_forward(x, y)

    @staticmethod
    def backward(ctx, g, h):
        x, y, _ = ctx.saved_tensors
        return g * y * ctx.k + h, g * x * ctx.k + h, None


class TwoWithJvp(Two):
    @staticmethod
    def jvp(ctx, a, b, _):
        x, y = ctx.saved_tensors
        return (a * y + x * b) * ctx.k, a + b


class TwoWithVmap(TwoWithJvp):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, x, y, k):
        x, y = (t if d is None else t.movedim(d, 0) for t, d in zip((x, y), in_dims, strict=False))
        assert info.batch_size == x.shape[0]
        return TwoWithVmap.apply(x, y, k), (0, 0)


def of_two(function: Any) -> Callable[..., Any]:
    def body(x: Any) -> Any:
        a, b = function.apply(x, x.cos(), 3)
        return a + 2 * b

    return body


def two(x: Any) -> Any:
    return x * x.cos() * 3 + 2 * (x + x.cos())


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "Square": (Square.apply, lambda x: x * x),
    "Exp": (Exp.apply, lambda x: x.exp()),
    "SinSquared": (SinSquared.apply, lambda x: x.sin() * x.sin()),
    "Two": (of_two(Two), two),
    "TwoWithJvp": (of_two(TwoWithJvp), two),
    "TwoWithVmap": (of_two(TwoWithVmap), two),
}


def total(f: Any) -> Callable[..., Any]:
    return lambda x: f(x).sum()


# Each takes the function, a point and a direction, both (4, 3).
NESTINGS: dict[str, Callable[..., Any]] = {
    "vmap": lambda f, x, v: mapped(f)(x),
    "vmap of vmap": lambda f, x, v: mapped(mapped(f))(x),
    "grad": lambda f, x, v: grad(total(f))(x),
    "vmap of grad": lambda f, x, v: mapped(grad(total(f)))(x),
    "grad of vmap": lambda f, x, v: grad(total(mapped(f, in_dims=1, out_dims=1)))(x),
    "grad of vmap of vmap": lambda f, x, v: grad(lambda t: (mapped(mapped(f))(t) * v).sum())(x),
    "grad of grad of vmap": lambda f, x, v: grad(lambda t: (grad(total(mapped(f)))(t) * v).sum())(
        x
    ),
    "grad of vmap of grad": lambda f, x, v: grad(lambda t: (mapped(grad(total(f)))(t) * v).sum())(
        x
    ),
    "jvp": lambda f, x, v: jvp(f, (x,), (v,)),
    "jvp of vmap": lambda f, x, v: jvp(mapped(f), (x,), (v,)),
    "vmap of jvp": lambda f, x, v: mapped(lambda a, b: jvp(f, (a,), (b,)))(x, v),
    "jvp of grad": lambda f, x, v: jvp(grad(total(f)), (x,), (v,)),
    "grad of jvp": lambda f, x, v: grad(lambda t: jvp(f, (t,), (v,))[1].sum())(x),
    "jvp of jvp": lambda f, x, v: jvp(lambda t: jvp(f, (t,), (v,))[1], (x,), (v,)),
    "jvp of vmap of grad": lambda f, x, v: jvp(mapped(grad(total(f))), (x,), (v,)),
    "vmap of vjp": lambda f, x, v: mapped(lambda a, b: vjp(f, a)[1](b))(x, v),
    "jacrev": lambda f, x, v: jacrev(f)(x[0]),
    "jacfwd": lambda f, x, v: jacfwd(f)(x[0]),
    "vmap of jacrev": lambda f, x, v: mapped(jacrev(f))(x),
    "vmap of jacfwd": lambda f, x, v: mapped(jacfwd(f))(x),
    "hessian": lambda f, x, v: hessian(total(f))(x[0]),
    "jacrev of jacrev": lambda f, x, v: jacrev(jacrev(total(f)))(x[0]),
    "jacfwd of jacfwd": lambda f, x, v: jacfwd(jacfwd(total(f)))(x[0]),
    "jacrev of jacfwd": lambda f, x, v: jacrev(jacfwd(total(f)))(x[0]),
    "vmap of hessian": lambda f, x, v: mapped(hessian(total(f)))(x),
    "jacfwd of hessian": lambda f, x, v: jacfwd(hessian(total(f)))(x[0]),
    "jacrev of hessian": lambda f, x, v: jacrev(hessian(total(f)))(x[0]),
    "jacrev of vmap of hessian": lambda f, x, v: jacrev(mapped(hessian(total(f))))(x[:2]),
}


def close(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        for a, b in zip(found, expected, strict=True):
            close(a, b)
    else:
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)


def point(rng: np.random.Generator) -> lucid.Tensor:
    return lucid.from_numpy(rng.normal(size=(4, 3)))


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_custom_function_nests_as_its_ops_do(
    nesting: str, function: str, rng: np.random.Generator
) -> None:
    x, v = point(rng), point(rng)
    own, by_ops = FUNCTIONS[function]
    close(NESTINGS[nesting](own, x, v), NESTINGS[nesting](by_ops, x, v))


@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_compiled_nesting_gives_what_eager_gives(nesting: str, rng: np.random.Generator) -> None:
    """All Functions in one program: what is traced is what they record."""
    x, v = point(rng), point(rng)

    def body(x: Any, v: Any) -> Any:
        return [NESTINGS[nesting](own, x, v) for own, _ in FUNCTIONS.values()]

    for found, expected in zip(lucid.compile(body)(x, v), body(x, v), strict=True):
        close(found, expected)


def test_known_values(run: Run) -> None:
    def body(x: Any) -> Any:
        cubes = total(lambda t: t**3)
        return (
            grad(cubes)(x),
            mapped(grad(lambda t: t**3))(x),
            hessian(cubes)(x),
            jacrev(jacfwd(cubes))(x),
            value_and_grad(cubes)(x),
        )

    first, each, second, again, both = run(body, lucid.tensor([1.0, 2.0]))
    assert first.tolist() == each.tolist() == [3.0, 12.0]
    assert second.tolist() == again.tolist() == [[6.0, 0.0], [0.0, 12.0]]
    assert (both[0].item(), both[1].tolist()) == (9.0, [3.0, 12.0])


def test_an_inner_derivative_is_not_confused_with_an_outer_one(run: Run) -> None:
    """d/dx (x d/dy (x y)) = 2 x, in each mix of modes."""

    def forward(f: Any) -> Any:
        return lambda x: jvp(f, (x,), (lucid.ones_like(x),))[1]

    def body(x: Any) -> Any:
        return tuple(
            outer(lambda x, inner=inner: x * inner(lambda y: x * y)(lucid.ones_like(x) * 5))(x)
            for outer in (grad, forward)
            for inner in (grad, forward)
        )

    assert [y.item() for y in run(body, lucid.tensor(3.0))] == [6.0] * 4


def test_the_inner_input_may_be_the_outer_one(run: Run) -> None:
    """f(x) = d/dy (x y^2) at y = x is 2 x^2, whose derivative is 4 x."""

    def body(x: Any) -> Any:
        return grad(lambda x: grad(lambda y: x * y * y)(x))(x)

    assert run(body, lucid.tensor(3.0)).item() == 12.0


def test_detach_cuts_every_level(run: Run) -> None:
    x = lucid.tensor([1.0, 2.0])
    outer = grad(lambda t: mapped(lambda s: s.detach() * s)(t).sum())
    assert run(outer, x).tolist() == [1.0, 2.0]
    tangent = run(lambda x: jvp(lambda t: t.detach() * t, (x,), (x,))[1], x)
    assert tangent.tolist() == [1.0, 4.0]
    twice = grad(lambda t: (t * grad(lambda s: (s.detach() * s).sum())(t)).sum())
    assert run(twice, x).tolist() == [1.0, 2.0]


def test_results_require_grad_only_for_what_is_outside(run: Run) -> None:
    x, w = lucid.tensor([1.0, 2.0]), lucid.tensor([3.0, 4.0], requires_grad=True)
    for transformed in (
        grad(total(Square.apply)),
        hessian(total(Square.apply)),
        jacrev(Exp.apply),
        mapped(grad(Square.apply)),
        grad(total(mapped(Square.apply))),
    ):
        assert not run(transformed, x).requires_grad
    found = run(grad(lambda t: (t * t * w).sum()), x)
    assert lucid.autograd.grad(found.sum(), w)[0].tolist() == [2.0, 4.0]

    def both(x: Any) -> Any:
        y, pull_back = vjp(lambda t: t * w, x)
        return y, pull_back(lucid.ones(2))[0]

    assert all(result.requires_grad for result in run(both, x))
    with lucid.no_grad():
        assert grad(lambda t: (t * t * w).sum())(x).tolist() == [6.0, 16.0]
        assert not grad(lambda t: (t * t * w).sum())(x).requires_grad


def test_grad_of_a_tensor_that_requires_grad_is_differentiable(run: Run) -> None:
    x = lucid.tensor([1.0, 2.0], requires_grad=True)
    found = run(grad(lambda t: (t**3).sum()), x)
    assert lucid.autograd.grad(found.sum(), x)[0].tolist() == [6.0, 12.0]
    assert x.grad is None


def test_compiled_functions_can_be_transformed() -> None:
    step = lucid.compile(lambda t: (t * t * t).sum())
    x = lucid.tensor([1.0, 2.0])
    assert grad(step)(x).tolist() == [3.0, 12.0]
    assert mapped(grad(step))(lucid.stack([x, 2 * x])).tolist() == [[3.0, 12.0], [12.0, 48.0]]
    assert hessian(step)(x).tolist() == [[6.0, 0.0], [0.0, 12.0]]
    assert jvp(step, (x,), (x,))[1].item() == 27.0


def test_a_compiled_custom_function_can_be_transformed() -> None:
    square = lucid.compile(lambda t: Square.apply(t))
    total = lambda t: square(t).sum()  # noqa: E731
    x = lucid.tensor([1.0, 2.0])
    assert jacrev(square)(x).tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert mapped(jacrev(square))(x[None]).tolist() == [[[2.0, 0.0], [0.0, 4.0]]]
    assert grad(lambda t: grad(total)(t).sum())(x).tolist() == [2.0, 2.0]
    assert hessian(total)(x).tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert jacfwd(jacrev(total))(x).tolist() == [[2.0, 0.0], [0.0, 2.0]]
    both, pull_back = vjp(square, x)
    assert both.tolist() == [1.0, 4.0]
    assert mapped(pull_back)(lucid.eye(2))[0].tolist() == [[2.0, 0.0], [0.0, 4.0]]


def test_a_compiled_result_is_differentiated_by_parts_that_hang_together() -> None:
    """One input of the compiled function is made of the other: nothing is counted twice."""
    x = lucid.tensor([1.0, 2.0], requires_grad=True)
    a = x * 3
    y = lucid.compile(lambda x, a: Square.apply(a) + x)(x, a)
    (found,) = lucid.autograd.grad(y, x, lucid.eye(2), is_grads_batched=True, retain_graph=True)
    assert found.tolist() == [[19.0, 0.0], [0.0, 37.0]]
    rows = mapped(lambda v: lucid.autograd.grad(y, [x, a], v, retain_graph=True))(lucid.eye(2))
    assert [row.tolist() for row in rows] == [
        [[19.0, 0.0], [0.0, 37.0]],
        [[6.0, 0.0], [0.0, 12.0]],
    ]


def test_a_compiled_function_with_state_is_pulled_back_for_many_at_once() -> None:
    count = lucid.zeros(())

    @lucid.compile
    def step(x: Any) -> Any:
        count.add_(1)
        return x * x * count

    assert jacrev(step)(lucid.tensor([1.0, 2.0])).tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert count == 1


def test_a_training_step_may_use_transformations(run: Run) -> None:
    """Gradients of each example, clipped, averaged: the step of private training."""
    w = lucid.tensor([[0.5], [-1.0]], requires_grad=True)
    x, y = lucid.tensor([[1.0, 2.0], [3.0, -1.0], [0.0, 1.0]]), lucid.tensor([1.0, 2.0, 0.5])
    optimizer = lucid.optim.SGD([w], lr=0.1)

    def step(x: Any, y: Any) -> Any:
        def loss(w: Any, x: Any, y: Any) -> Any:
            return ((x @ w).squeeze(-1) - y) ** 2

        each = mapped(grad(loss), in_dims=(None, 0, 0))(w.detach(), x, y)
        norms = each.flatten(1).norm(dim=1)
        scale = lucid.clamp(1.0 / norms, max=1.0)
        w.grad = (each * scale[:, None, None]).mean(0)
        optimizer.step()
        return norms

    norms = run(step, x, y)
    residuals = x.numpy() @ np.array([[0.5], [-1.0]]) - y.numpy()[:, None]
    each = 2 * residuals * x.numpy()
    expected = np.linalg.norm(each, axis=1)
    np.testing.assert_allclose(norms.numpy(), expected, rtol=1e-6)
    clipped = (each * np.minimum(1, 1 / expected)[:, None]).mean(0)
    np.testing.assert_allclose(
        w.detach().numpy()[:, 0], np.array([0.5, -1.0]) - 0.1 * clipped, rtol=1e-6
    )
