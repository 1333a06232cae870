"""Custom Functions in a function that is compiled alone: its results are differentiated outside."""

from __future__ import annotations

import pytest
from custom_functions import FREED, Exp, Square, define, leaf, numbers, text_of

import lucid


def test_needs_input_grad_is_false_for_inputs_that_nobody_asked_for(prepared):
    def backward(ctx, grad):
        return grad * (10 if ctx.needs_input_grad == (True, True) else 1), grad

    apply = prepared(define(lambda ctx, x, y: x * y, backward).apply)
    for _ in range(2):
        x, y = leaf([1.0]), leaf([2.0])
        (alone,) = lucid.autograd.grad(apply(x, y).sum(), x)
        both = lucid.autograd.grad(apply(x, y).sum(), [x, y])
        apply(x, y).sum().backward()
        assert numbers([alone, *both, x.grad]) == [[1.0], [10.0], [1.0], [10.0]]


@pytest.mark.parametrize("dtype", [lucid.float32, lucid.float64])
def test_a_saved_output_that_was_written_is_noticed(prepared, dtype):
    apply = prepared(Exp.apply)
    for _ in range(2):
        x = lucid.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
        y = apply(x)
        y.detach()[0] = 3.0
        with pytest.raises(RuntimeError) as caught:
            y.sum().backward()
        kind = "FloatTensor" if dtype is lucid.float32 else "DoubleTensor"
        assert text_of(caught).partition("\n")[0] == (
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: [{kind} [2]], which is output 0 of Exp, is at version 1; expected version "
            "0 instead."
        )
        assert x.grad is None


def test_an_output_that_nobody_saved_may_be_written(prepared):
    pair = prepared(lambda x: (Square.apply(x), Exp.apply(x)))
    for _ in range(2):
        x = leaf([3.0])
        y, z = pair(x)
        for written in y, z:
            written.detach().zero_()
        y.sum().backward()
        assert numbers(x.grad) == [6.0]


def test_what_is_freed_is_named(prepared):
    def apply(x):
        return Exp.apply(Square.apply(x))

    apply = prepared(apply)
    for _ in range(2):
        y = apply(leaf([1.0])).sum()
        y.backward()
        with pytest.raises(RuntimeError) as caught:
            y.backward()
        message = f"{FREED}\n  in Exp, recorded at test_differentiated_outside.py"
        assert text_of(caught) == message


def test_what_was_freed_inside_is_named(run):
    def body(x):
        y = Square.apply(x)
        y.sum().backward()
        return y

    y = run(body, leaf([1.0]))
    with pytest.raises(RuntimeError) as caught:
        y.sum().backward()
    assert text_of(caught) == f"{FREED}\n  in Square, recorded at test_differentiated_outside.py"
