"""Derivatives of derivatives: through inputs, outputs and intermediates that were saved."""

from __future__ import annotations

import math
import re

import pytest
from custom_functions import Exp, Identity, Square, define, first_line, leaf, numbers, other_lines

import lucid
from lucid import nn
from lucid.autograd import gradcheck, gradgradcheck
from lucid.autograd.function import once_differentiable
from lucid.autograd.saved import FREED


def second(fn):
    """The second derivative of the sum of `fn`, as a body."""

    def body(x):
        (g,) = lucid.autograd.grad(fn(x).sum(), x, create_graph=True)
        return lucid.autograd.grad(g.sum(), x)[0]

    return body


def cube(save, factor=3.0):
    """x ** 3, whose backward is `factor` times what `save(x)` gives in forward."""

    def forward(ctx, x):
        ctx.save_for_backward(save(x))
        return x * x * x

    return define(forward, lambda ctx, g: g * factor * ctx.saved_tensors[0], "Cube")


def by_op(x):
    return x * x


def by_function(x):
    return Square.apply(x)


def by_identity(x):
    return Identity.apply(x * x)


def in_place(x):
    square = x * 2
    square.mul_(x)
    return square.div_(2)


def through_a_view(x):
    square = lucid.zeros_like(x)
    square[1:] = (x * x)[1:]
    square[:1].copy_((x * x)[:1])
    return square


def a_view_whose_base_is_written_later(x):
    square = x * 1
    view = square.view(-1, 1)
    square.mul_(x)
    return view.view(-1)


def after_an_inner_grad_mode(x):
    with lucid.no_grad():
        return x * x


SAVES = [
    by_op,
    by_function,
    by_identity,
    in_place,
    through_a_view,
    a_view_whose_base_is_written_later,
    after_an_inner_grad_mode,
]


@pytest.mark.parametrize("fn", [Square, Exp])
def test_double_backward_goes_through_saved_inputs_and_outputs(run, fn):
    expected = [2.0, 2.0] if fn is Square else [1.0, 1.0]
    assert numbers(run(second(fn.apply), leaf([0.0, 0.0]))) == expected


@pytest.mark.parametrize("save", SAVES, ids=lambda save: save.__name__)
def test_double_backward_is_right_through_a_saved_intermediate(run, save):
    factor = 1.5 if save is by_identity else 3.0  # the backward of Identity doubles
    fn = cube(save, 3.0)
    found = numbers(run(second(fn.apply), leaf([1.0, 2.0])))
    assert found == [6.0 * 3.0 / factor, 12.0 * 3.0 / factor]


@pytest.mark.parametrize("save", [by_op, by_function, in_place], ids=lambda save: save.__name__)
def test_so_are_all_higher_derivatives(run, save):
    fn = cube(save)

    def body(x):
        y = fn.apply(x)
        found = []
        for _ in range(3):
            (y,) = lucid.autograd.grad(y.sum(), x, create_graph=True)
            found.append(y)
        return found

    assert numbers(run(body, leaf([2.0]))) == [[12.0], [12.0], [6.0]]


def test_an_intermediate_on_two_inputs(run):
    def forward(ctx, x, w):
        product = x * w
        ctx.save_for_backward(x, w, product.tanh())
        return product.tanh()

    def backward(ctx, g):
        x, w, y = ctx.saved_tensors
        slope = g * (1 - y * y)
        return slope * w, slope * x

    fn = define(forward, backward)
    x, w = leaf([0.3, -0.5]), leaf([0.7, 0.2])
    assert gradcheck(lambda x, w: run(fn.apply, x, w), (x, w))
    assert gradgradcheck(lambda x, w: run(fn.apply, x, w), (x, w))


def test_the_first_derivative_sees_a_plain_intermediate(run):
    def backward(ctx, g):
        (saved,) = ctx.saved_tensors
        ctx.facts = saved.requires_grad, saved.grad_fn
        return g * 3 * saved

    fn = define(lambda ctx, x: (ctx.save_for_backward(x * x), x * x * x)[1], backward)

    def body(x):
        y = fn.apply(x)
        y.sum().backward()
        return y.grad_fn.facts

    assert run(body, leaf([1.0])) == (False, None)


def test_what_forward_detached_stays_a_constant(run):
    fn = cube(lambda x: (x * x).detach())

    def body(x):
        (g,) = lucid.autograd.grad(fn.apply(x).sum(), x, create_graph=True)
        return g.requires_grad

    assert run(body, leaf([1.0])) is False


def test_a_hessian_by_grad_of_grad(run):
    def body(x):
        (g,) = lucid.autograd.grad(Square.apply(x).prod(), x, create_graph=True)
        return [lucid.autograd.grad(entry, x, retain_graph=True)[0] for entry in g]

    assert numbers(run(body, leaf([2.0, 3.0]))) == [[18.0, 24.0], [24.0, 8.0]]


def test_a_gradient_penalty(run):
    x = leaf([1.0, 2.0])

    def body(x):
        (g,) = lucid.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
        (g * g).sum().backward()

    run(body, x)
    assert numbers(x.grad) == [8.0, 16.0]


def test_create_graph_implies_retain_graph_unless_it_is_denied(run):
    x = leaf([1.0])

    def retained(x):
        y = Square.apply(x).sum()
        lucid.autograd.grad(y, x, create_graph=True)
        y.backward()

    run(retained, x)
    assert numbers(x.grad) == [2.0]

    def denied(x):
        y = Square.apply(x).sum()
        lucid.autograd.grad(y, x, create_graph=True, retain_graph=False)
        y.backward()

    with pytest.raises(RuntimeError, match=f"^{re.escape(FREED)}\n  in Square, recorded at "):
        run(denied, leaf([1.0]))


# ---------------------------------------------------------------------- once_differentiable


Once = define(
    lambda ctx, x: (ctx.save_for_backward(x), x * x)[1],
    once_differentiable(lambda ctx, g: 2 * g * ctx.saved_tensors[0]),
    "Once",
)
TWICE = "trying to differentiate twice a function that was marked with @once_differentiable"


def twice_by_grad(x):
    (g,) = lucid.autograd.grad((Once.apply(x) ** 2).sum(), x, create_graph=True)
    lucid.autograd.grad(g.sum(), x)


def twice_by_backward(x):
    (g,) = lucid.autograd.grad((Once.apply(x) ** 2).sum(), x, create_graph=True)
    g.sum().backward()


@pytest.mark.parametrize("body", [twice_by_grad, twice_by_backward])
def test_differentiating_twice_what_is_once_differentiable_is_refused(run, body):
    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert first_line(caught) == TWICE
    assert other_lines(caught).startswith(
        "  in the backward of Once, recorded at test_higher_order.py:"
    )


def test_once_is_fine_and_its_backward_runs_without_grad(run):
    x = leaf([3.0])

    def body(x):
        y = Once.apply(x).sum()
        (g,) = lucid.autograd.grad(y, x, create_graph=True)
        y.backward()
        return g.requires_grad

    assert run(body, x) is False
    assert numbers(x.grad) == [6.0]


@pytest.mark.parametrize(
    ("shape", "loss"),
    [
        ((4, 3), lambda w, x: nn.functional.linear(x, w).tanh().sum()),
        ((4, 3), lambda w, x: (x @ w.t()).tanh().sum()),
        ((2, 5, 3), lambda w, x: nn.functional.bilinear(x @ lucid.ones(3, 5), x, w).sum() ** 2),
    ],
)
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_contiguous_leaves_can_be_flattened(run, shape, loss, create_graph):
    """As in products with a Hessian: `cat([g.view(-1) for g in grad(loss, parameters)])`."""
    weight = lucid.linspace(-1, 1, math.prod(shape)).reshape(shape).requires_grad_()

    def flat(w, x):
        (gradient,) = lucid.autograd.grad(loss(w, x), w, create_graph=create_graph)
        return gradient.view(-1), gradient.is_contiguous()

    found, is_contiguous = run(flat, weight, lucid.ones(6, 3))
    assert is_contiguous and found.requires_grad == create_graph
