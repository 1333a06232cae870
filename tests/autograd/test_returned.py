"""What a backward may return, and how the message names what it may not."""

from __future__ import annotations

import numpy as np
import pytest
from custom_functions import define, first_line, leaf, numbers, other_lines, text_of

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
    assert text_of(caught) == (
        "function ProductBackward returned an incorrect number of gradients (expected 2, got 1)\n"
        "  returned at test_returned.py"
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


@pytest.mark.parametrize("dtype", [lucid.float32, lucid.int64, lucid.int32, lucid.bool])
def test_it_is_summed_down_whatever_its_dtype_is(run, dtype):
    found = gradient(run, lambda ctx, g: lucid.ones(3, 2, dtype=dtype), [1.0, 2.0])
    assert found.dtype is lucid.float64
    assert numbers(found) == [3.0, 3.0]
    found = gradient(run, lambda ctx, g: lucid.ones(3, 2, dtype=dtype), 1.0)
    assert numbers(found) == 6.0


@pytest.mark.parametrize(
    ("inner", "outer"),
    [((), (1,)), ((), (0,)), ((1,), (0,)), ((0,), (3, 0)), ((2, 1), (4, 2, 3)), ((1, 3), (2, 3))],
)
def test_any_shape_that_the_inputs_expands_to_will_do(run, inner, outer):
    found = gradient(run, lambda ctx, g: lucid.ones(outer), np.zeros(inner))
    assert tuple(found.shape) == inner
    assert float(found.sum()) == np.prod(outer)


@pytest.mark.parametrize(
    ("inner", "outer"),
    [((2,), (3,)), ((1,), ()), ((2,), (1,)), ((2, 3), (3,)), ((2, 3), (3, 2)), ((2,), (0,))],
)
def test_a_gradient_of_another_shape_is_refused(run, inner, outer):
    caught = refused(run, lambda ctx, g: lucid.ones(outer), np.zeros(inner))
    assert text_of(caught) == (
        f"Function DoubleBackward returned an invalid gradient at index 0 - got {list(outer)} but "
        f"expected shape compatible with {list(inner)}\n  returned at test_returned.py"
    )


def test_the_position_of_a_wrong_gradient_is_named(run):
    caught = refused(run, lambda ctx, g: (g, lucid.ones(3)), [1.0, 2.0], [1.0, 2.0])
    assert first_line(caught) == (
        "Function ProductBackward returned an invalid gradient at index 1 - got [3] but expected "
        "shape compatible with [2]"
    )


def test_a_single_number_for_a_vector_is_refused(run):
    caught = refused(run, lambda ctx, g: g.sum(), [1.0, 2.0])
    assert first_line(caught) == (
        "Function DoubleBackward returned an invalid gradient at index 0 - got [] but expected "
        "shape compatible with [2]"
    )


@pytest.mark.parametrize("dtype", [lucid.int64, lucid.int32, lucid.bool, lucid.float32])
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
    for name, values in ("Double", [[1.0]]), ("Product", [[1.0], [1.0]]):
        caught = refused(run, lambda ctx, g: [g, g], *values)
        assert text_of(caught) == (
            f"function {name}Backward: expected Variable or None (got list)\n"
            "  returned at test_returned.py\nhint: return a tuple"
        )


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


def test_without_materialized_gradients_none_stays_none_upstream(run):
    def forward(ctx, x, seen):
        ctx.set_materialize_grads(False)
        ctx.seen = seen
        return x * 2

    def backward(ctx, g):
        ctx.seen.append(g)
        return g, None

    upstream = define(forward, backward)
    x = leaf([1.0])

    def body(x):
        seen = []
        returning(lambda ctx, g: None).apply(upstream.apply(x, seen)).sum().backward()
        return seen

    assert run(body, x) == [None]
    assert x.grad is None


def test_a_gradient_that_autograd_grad_finds_undefined_is_none_or_zeros(run):
    def body(x):
        stop, found = returning(lambda ctx, g: None), []
        for options in {"allow_unused": True}, {"materialize_grads": True}:
            found += lucid.autograd.grad(stop.apply(x * 3).sum(), x, **options)
        return found

    assert numbers(run(body, leaf([1.0]))) == [None, [0.0]]


def test_a_gradient_that_shows_what_backward_keeps_is_not_shared(run):
    """A saved tensor, a constant from outside and one element under all of them."""
    constant = leaf([5.0, 5.0], False)
    saving = define(
        lambda ctx, x: (ctx.save_for_backward(x), x * 2)[1], lambda ctx, g: ctx.saved_tensors[0]
    )
    keeping = returning(lambda ctx, g: constant)
    expanding = define(lambda ctx, x: x.sum(), lambda ctx, g: g.expand(2))
    for fn, expected in (saving, [1.0, 2.0]), (keeping, [5.0, 5.0]), (expanding, [1.0, 1.0]):
        x = leaf([1.0, 2.0])
        run(lambda x, fn=fn: fn.apply(x).sum().backward(), x)
        assert numbers(x.grad) == expected
        x.grad[0] = 9.0
        assert numbers(x.grad) == [9.0, expected[1]]
        assert (numbers(x), numbers(constant)) == ([1.0, 2.0], [5.0, 5.0])


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
