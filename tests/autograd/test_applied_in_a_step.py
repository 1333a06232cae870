"""A custom Function is applied in a compiled function; what comes after is done outside."""

from __future__ import annotations

import pytest
from custom_functions import Exp, Identity, Pair, Square, define, first_line, leaf, numbers

import lucid
from lucid.autograd.function import once_differentiable

FREED = "Trying to backward through the graph a second time (or directly access saved tensors after"


def returning(backward):
    return define(lambda ctx, x: x * 2, backward, "Double")


WRONG = [
    (lambda ctx, g: (g, g), "function DoubleBackward returned an incorrect number of gradients "),
    (lambda ctx, g: [g], "function DoubleBackward: expected Variable or None (got list)"),
    (lambda ctx, g: 1.0, "function DoubleBackward: expected Variable or None (got float) at posi"),
    (
        lambda ctx, g: lucid.ones(3),
        "Function DoubleBackward returned an invalid gradient at index ",
    ),
    (lambda ctx, g: g.sum(), "Function DoubleBackward returned an invalid gradient at index 0 - g"),
    (lambda ctx, g: g * ctx.k, "'DoubleBackward' object has no attribute 'k'"),
]


@pytest.mark.parametrize(("backward", "message"), WRONG)
def test_what_backward_may_not_return_is_noticed_outside(prepared, backward, message):
    fn = returning(backward)
    y = prepared(lambda x: fn.apply(x))(leaf([1.0, 2.0]))
    with pytest.raises((RuntimeError, AttributeError)) as caught:
        y.sum().backward()
    assert first_line(caught).startswith(message)


RIGHT = [
    (lambda ctx, g: (g * 2, None, None), [2.0, 2.0]),
    (lambda ctx, g: lucid.ones(3, 2), [3.0, 3.0]),
    (lambda ctx, g: lucid.ones(2, dtype=lucid.int64), [1.0, 1.0]),
    (lambda ctx, g: None, None),
]


@pytest.mark.parametrize(("backward", "expected"), RIGHT)
def test_what_backward_may_return_is_fitted_outside(prepared, backward, expected):
    fn, x = returning(backward), leaf([1.0, 2.0])
    prepared(lambda x: fn.apply(x))(x).sum().backward()
    assert numbers(x.grad) == expected


def test_a_second_backward_is_refused_when_something_was_saved(prepared):
    x = leaf([1.0])
    y = prepared(lambda x: Square.apply(x))(x)
    y.sum().backward()
    with pytest.raises(RuntimeError) as caught:
        y.sum().backward()
    assert first_line(caught).startswith(FREED)


def test_a_second_backward_is_fine_when_nothing_was_saved(prepared):
    fn, x = returning(lambda ctx, g: g * 2), leaf([1.0])
    y = prepared(lambda x: fn.apply(x))(x)
    y.sum().backward()
    y.sum().backward()
    assert numbers(x.grad) == [4.0]


def test_a_write_to_what_was_saved_is_noticed(prepared):
    x = leaf([1.0, 2.0])
    y = prepared(lambda x: Square.apply(x))(x)
    x.detach().add_(1)
    with pytest.raises(RuntimeError) as caught:
        y.sum().backward()
    assert first_line(caught) == (
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [DoubleTensor [2]] is at version 1; expected version 0 instead."
    )


def test_a_write_to_the_output_of_an_op_that_was_saved_is_noticed(prepared):
    a = leaf([1.0, 2.0]) * 1
    y = prepared(lambda x: Square.apply(x))(a)
    a.detach().add_(1)
    with pytest.raises(RuntimeError) as caught:
        y.sum().backward()
    assert first_line(caught) == (
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [DoubleTensor [2]], which is output 0 of Mul, is at version 1; expected "
        "version 0 instead."
    )


def test_writing_to_a_returned_input_is_refused_outside(prepared):
    y = prepared(lambda x: Identity.apply(x))(leaf([1.0]))
    with pytest.raises(RuntimeError) as caught:
        y.add_(1)
    assert first_line(caught).startswith(
        "Output 0 of Identity is a view and is being modified inplace. This view was created inside"
    )


def test_without_grad_a_returned_input_shares_its_memory(prepared):
    x = leaf([1.0], False)
    y = prepared(lambda x: Identity.apply(x))(x)
    y.add_(1)
    assert (y is x, numbers(x)) == (False, [2.0])


@pytest.mark.parametrize("fn", [Square, Exp])
def test_second_derivatives_are_right(prepared, fn):
    x = leaf([2.0])
    y = prepared(lambda x: fn.apply(x))(x)
    (first,) = lucid.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = lucid.autograd.grad(first.sum(), x)
    expected = [4.0, 2.0] if fn is Square else numbers([y, y])
    assert [first.item(), second.item()] == pytest.approx(
        expected if fn is Square else [e[0] for e in expected]
    )


def test_once_differentiable_is_refused_outside(prepared):
    fn, x = returning(once_differentiable(lambda ctx, g: g * 2)), leaf([2.0])
    y = prepared(lambda x: fn.apply(x))(x)
    (first,) = lucid.autograd.grad((y * y).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError) as caught:
        first.sum().backward()
    assert first_line(caught) == (
        "trying to differentiate twice a function that was marked with @once_differentiable"
    )


def test_one_of_several_outputs_is_differentiated_and_the_others_get_zeros_or_none(prepared):
    def body(x, materialize):
        return Pair.apply(x, [], lambda ctx, y, z: ctx.set_materialize_grads(materialize))

    for materialize, expected in ((True, [0.0]), (False, None)):
        x = leaf([1.0])
        _, z = prepared(lambda x, m=materialize: body(x, m))(x)
        z.sum().backward()
        assert numbers(x.grad) == expected


def test_marked_and_integer_outputs_have_no_history(prepared):
    def forward(ctx, x):
        y, z = x * 2, x * 3
        ctx.mark_non_differentiable(z)
        return y, z, x.long(), "name", None

    fn, x = define(forward, lambda ctx, *grads: grads[0] * 2), leaf([1.0])
    y, z, i, name, nothing = prepared(lambda x: fn.apply(x))(x)
    (y + z).sum().backward()
    assert (z.requires_grad, z.is_leaf, i.requires_grad, name, nothing) == (
        False,
        True,
        False,
        "name",
        None,
    )
    assert numbers(x.grad) == [2.0]


def test_an_output_in_two_slots_stays_one_object(prepared):
    def forward(ctx, x):
        y = x * 2
        return y, y

    fn, x = define(forward, lambda ctx, first, second: first + second), leaf([1.0])
    y, z = prepared(lambda x: fn.apply(x))(x)
    (y + 10 * z).sum().backward()
    assert y is z
    assert numbers(x.grad) == [11.0]


def test_no_graph_is_made_in_no_grad(prepared):
    def body(x):
        with lucid.no_grad():
            return Square.apply(x)

    assert prepared(body)(leaf([1.0])).requires_grad is False
    with lucid.no_grad():
        assert prepared(lambda x: Square.apply(x))(leaf([1.0])).requires_grad is False


def test_requires_grad_of_an_argument_is_seen_outside(prepared):
    def body(x):
        x.requires_grad_()
        return Square.apply(x).sum()

    step, x = prepared(body), leaf([3.0], False)
    step(x).backward()
    step(x).backward()
    assert (x.requires_grad, numbers(x.grad)) == (True, [12.0])


@pytest.mark.parametrize(
    "change", [lambda x: x.requires_grad_(False), lambda x: x.detach_()], ids=["flag", "detach_"]
)
def test_an_argument_that_no_longer_requires_grad_does_not_outside_either(prepared, change):
    x = leaf([1.0])
    y = prepared(lambda x: Square.apply(change(x)))(x)
    assert (y.requires_grad, x.requires_grad, x.is_leaf) == (False, False, True)
