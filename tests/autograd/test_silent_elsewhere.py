"""What other compilers ignore or get wrong without a word, inside of `lucid.compile`."""

from __future__ import annotations

import pytest
from custom_functions import Square, define, first_line, leaf, numbers

import lucid


def test_set_materialize_grads_false_is_respected():
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    def backward(ctx, g, h):
        return g * (7 if h is None else 1)

    fn = define(forward, backward)
    x = leaf([1.0])
    lucid.compile(lambda x: fn.apply(x)[0].sum().backward())(x)
    assert numbers(x.grad) == [7.0]


def test_a_saved_tensor_that_was_written_is_an_error():
    def step(x):
        a = x * 1
        y = Square.apply(a)
        a.add_(1)
        y.sum().backward()

    x = leaf([1.0])
    with pytest.raises(RuntimeError) as caught:
        lucid.compile(step)(x)
    assert first_line(caught).endswith(
        "[DoubleTensor [1]], which is output 0 of Add, is at version 1; expected version 0 instead."
    )
    assert x.grad is None


def test_a_wrong_number_of_gradients_is_an_error():
    fn = define(lambda ctx, x, y: x * y, lambda ctx, g: g)
    with pytest.raises(RuntimeError) as caught:
        lucid.compile(lambda x: fn.apply(x, x).sum().backward())(leaf([1.0]))
    assert first_line(caught) == (
        "function FnBackward returned an incorrect number of gradients (expected 2, got 1)"
    )


def test_no_gradient_flows_through_an_output_marked_as_not_differentiable():
    def forward(ctx, x):
        y, z = x * 2, x * 3
        ctx.mark_non_differentiable(z)
        return y, z

    fn = define(forward, lambda ctx, g, h: g * 2 + h * 100)
    x = leaf([1.0])

    def step(x):
        y, z = fn.apply(x)
        (y + z).sum().backward()

    lucid.compile(step)(x)
    assert numbers(x.grad) == [2.0]


def test_the_same_tensor_in_two_slots_is_fine():
    fn = define(lambda ctx, a, b: a * b, lambda ctx, g: (g * 10, g * 100))
    x = leaf([1.0])
    lucid.compile(lambda x: fn.apply(x, x).sum().backward())(x)
    assert numbers(x.grad) == [110.0]


def test_vjp_keyword_only_arguments_hooks_and_double_backward_are_fine():
    class Cube(lucid.autograd.Function):
        @staticmethod
        def forward(ctx, x, *, factor):
            ctx.save_for_backward(x)
            ctx.factor = factor
            return x * x * x * factor

        @staticmethod
        def vjp(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x * x * g * ctx.factor

    def step(x):
        y = Cube.apply(x, factor=2)
        y.register_hook(lambda g: g * 10)
        (first,) = lucid.autograd.grad(y.sum(), x, create_graph=True)
        first.sum().backward()
        return first

    x = leaf([1.0])
    first = lucid.compile(step)(x)
    assert numbers([first, x.grad]) == [[60.0], [120.0]]
