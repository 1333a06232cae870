"""What a backward may return, and how the message names what it may not."""

from __future__ import annotations

import numpy as np
import pytest
from custom_functions import define, first_line, leaf, numbers, other_lines

import lucid


def returning(backward):
    return define(lambda ctx, x: x * 2, backward, "Double")


def product(backward):
    return define(lambda ctx, x, y: x * y, backward, "Product")


def gradient(run, backward, values):
    x = leaf(values)
    run(lambda x: returning(backward).apply(x).sum().backward(), x)
    return x.grad


def refused(run, backward, *values):
    fn = returning(backward) if len(values) == 1 else product(backward)
    with pytest.raises(RuntimeError) as caught:
        run(lambda *xs: fn.apply(*xs).sum().backward(), *(leaf(v) for v in values))
    return caught


def test_too_few_gradients_are_refused(run):
    caught = refused(run, lambda ctx, g: g, [1.0], [1.0])
    assert first_line(caught) == (
        "function ProductBackward returned an incorrect number of gradients (expected 2, got 1)"
    )


def test_too_many_gradients_are_refused(run):
    caught = refused(run, lambda ctx, g: (g, g), [1.0])
    assert first_line(caught) == (
        "function DoubleBackward returned an incorrect number of gradients (expected 1, got 2)"
    )


def test_the_message_points_at_the_return_line(run):
    def backward(ctx, g):
        wrong = g, g
        return wrong

    caught = refused(run, backward, [1.0])
    assert other_lines(caught).startswith("  returned at test_returned.py:")
    assert other_lines(caught).endswith("   return wrong")


def test_surplus_nones_are_forgiven(run):
    assert numbers(gradient(run, lambda ctx, g: (g * 2, None, None), [1.0])) == [2.0]


def test_a_single_none_is_fine_for_one_input(run):
    assert gradient(run, lambda ctx, g: None, [1.0]) is None


def test_a_single_none_is_too_few_for_two_inputs(run):
    caught = refused(run, lambda ctx, g: None, [1.0], [1.0])
    assert first_line(caught) == (
        "function ProductBackward returned an incorrect number of gradients (expected 2, got 1)"
    )


def test_a_gradient_of_a_larger_broadcast_shape_is_summed_down(run):
    def backward(ctx, g):
        return lucid.ones(3, 2, dtype=lucid.float64)

    assert numbers(gradient(run, backward, [1.0, 2.0])) == [3.0, 3.0]


def test_a_gradient_of_another_shape_is_refused(run):
    caught = refused(run, lambda ctx, g: lucid.ones(3, dtype=lucid.float64), [1.0, 2.0])
    assert first_line(caught) == (
        "Function DoubleBackward returned an invalid gradient at index 0 - got [3] but expected "
        "shape compatible with [2]"
    )


def test_a_single_number_for_a_vector_is_refused(run):
    caught = refused(run, lambda ctx, g: g.sum(), [1.0, 2.0])
    assert first_line(caught) == (
        "Function DoubleBackward returned an invalid gradient at index 0 - got [] but expected "
        "shape compatible with [2]"
    )


@pytest.mark.parametrize("dtype", [lucid.int64, lucid.bool, lucid.float32])
def test_a_gradient_of_another_dtype_is_cast(run, dtype):
    found = gradient(run, lambda ctx, g: lucid.ones(2, dtype=dtype), [1.0, 2.0])
    assert found.dtype is lucid.float64
    assert numbers(found) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.0, "float"),
        (1, "int"),
        (True, "bool"),
        (np.ones(1), "numpy.ndarray"),
        (np.float64(1), "numpy.float64"),
        ("text", "str"),
        ({}, "dict"),
        (([1.0],), "list"),
        (((None,),), "tuple"),
        (pytest.MonkeyPatch(), "MonkeyPatch"),
    ],
)
def test_what_is_no_tensor_is_refused(run, value, kind):
    caught = refused(run, lambda ctx, g: value, [1.0])
    assert first_line(caught) == (
        f"function DoubleBackward: expected Variable or None (got {kind}) at position 1"
    )


def test_a_list_instead_of_a_tuple_is_refused(run):
    for values in ([1.0],), ([1.0], [1.0]):
        caught = refused(run, lambda ctx, g: [g, g], *values)
        assert "expected Variable or None (got list)" in first_line(caught)
        assert other_lines(caught).endswith("hint: return a tuple")


def test_a_gradient_for_an_input_that_does_not_require_it_is_dropped(run):
    fn = product(lambda ctx, g: (g * 3, g * 4))
    x, y = leaf([1.0]), leaf([1.0], False)
    run(lambda x, y: fn.apply(x, y).sum().backward(), x, y)
    assert numbers(x.grad) == [3.0]
    assert y.grad is None


@pytest.mark.parametrize("dtype", [lucid.float64, lucid.int64, lucid.bool])
def test_it_is_dropped_whatever_its_shape_and_the_dtype_of_the_input_are(run, dtype):
    fn = product(lambda ctx, g: (g * 3, lucid.ones(7)))
    x, y = leaf([1.0, 1.0]), lucid.tensor([1, 0], dtype=dtype)
    run(lambda x, y: fn.apply(x, y).sum().backward(), x, y)
    assert numbers(x.grad) == [3.0, 3.0]
    assert y.grad is None


def test_but_it_must_be_a_tensor(run):
    fn = product(lambda ctx, g: (g, 1.0))
    with pytest.raises(RuntimeError) as caught:
        run(lambda x, y: fn.apply(x, y).sum().backward(), leaf([1.0]), leaf([1.0], False))
    assert first_line(caught) == (
        "function ProductBackward: expected Variable or None (got float) at position 2"
    )


def test_none_is_zeros_for_a_custom_function_upstream_and_nothing_for_a_leaf(run):
    def forward(ctx, x, seen):
        ctx.seen = seen
        return x * 2

    def backward(ctx, g):
        ctx.seen.append(g)
        return g, None

    upstream = define(forward, backward)
    stop = returning(lambda ctx, g: None)
    x, z = leaf([1.0]), leaf([1.0])

    def body(x, z):
        seen = []
        y = stop.apply(upstream.apply(x, seen)) + stop.apply(z * 2)
        y.sum().backward()
        return seen

    assert numbers(run(body, x, z)) == [[0.0]]
    assert numbers(x.grad) == [0.0]
    assert z.grad is None


def test_the_same_tensor_for_two_leaves_is_not_shared_by_their_grads(run):
    fn = product(lambda ctx, g: (g, g))
    x, y = leaf([1.0]), leaf([1.0])
    run(lambda x, y: fn.apply(x, y).sum().backward(), x, y)
    x.grad.add_(1)
    assert numbers(y.grad) == [1.0]


def test_the_incoming_gradient_is_not_shared_either(run):
    x, seed = leaf([1.0]), leaf([1.0], False)
    run(lambda x, seed: returning(lambda ctx, g: g).apply(x).backward(seed), x, seed)
    x.grad.add_(1)
    assert numbers(seed) == [1.0]
