"""Arguments of a compiled function that are results themselves, and get a new history in it."""

from __future__ import annotations

import pytest
from custom_functions import AddOne, Square, define, leaf, numbers, text_of

import lucid


class Scaled(lucid.autograd.Function):
    """In place, and saves what it leaves."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(3)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


def test_an_argument_with_a_history_is_no_leaf(prepared):
    body = prepared(lambda x: (x.is_leaf, x.requires_grad))
    x = leaf([1.0])
    for _ in range(2):
        assert body(x) == (True, True)
        assert body(x * 2) == (False, True)
        assert body(x.detach()) == (True, False)


def test_an_in_place_function_writes_an_argument_that_is_a_result(prepared):
    apply = prepared(AddOne.apply)
    for value in 1.0, 2.0, 3.0:
        x = leaf([value])
        a = x * 2
        view = a[0:1]
        y = apply(a)
        assert y is a
        assert (numbers(a), a._version, a.is_leaf) == ([2 * value + 1], 2, False)
        (y.sum() + 5 * view.sum()).backward()
        assert numbers(x.grad) == [6 * 10 * 2.0]


def test_what_is_computed_of_it_goes_on_from_the_new_history(prepared):
    body = prepared(lambda a: Scaled.apply(a) * 2)
    for value in 1.0, 2.0:
        x = leaf([value])
        a = x * 1
        z = body(a)
        (z + a * 100).sum().backward()
        assert (numbers(z), numbers(a)) == ([6 * value], [3 * value])
        assert numbers(x.grad) == [102 * 3 * value]


@pytest.mark.parametrize("wanted", ["argument", "result"])
def test_only_what_is_asked_for_is_differentiated(prepared, wanted):
    body = prepared(lambda a, b: (Square.apply(Scaled.apply(a)), AddOne.apply(b) * 2))
    for _ in range(2):
        x, y = leaf([1.0]), leaf([5.0])
        a, b = x * 1, y * 1
        z, _ = body(a, b)
        if wanted == "result":
            assert numbers(lucid.autograd.grad(z.sum(), x)) == [[2 * 3.0 * 3.0]]
        else:
            assert numbers(lucid.autograd.grad(b.sum(), y)) == [[10.0]]
        assert (x.grad, y.grad) == (None, None)


def test_ops_in_place_do_the_same(prepared):
    def body(a, w):
        a.mul_(w)
        a[0] = 7.0
        return a.sum()

    body = prepared(body)
    for _ in range(2):
        x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
        a = x * 1
        (body(a, w) + a[1]).backward()
        assert numbers([a, x.grad, w.grad]) == [[7.0, 8.0], [0.0, 8.0], [0.0, 4.0]]


def test_an_argument_that_did_not_require_grad_does_so_afterwards(prepared):
    fn = define(lambda ctx, b, x: (ctx.mark_dirty(b.add_(x)), b)[1], lambda ctx, g: (g, g * 5))
    apply = prepared(fn.apply)
    for _ in range(2):
        buffer, x = leaf([10.0], False), leaf([1.0])
        y = apply(buffer, x)
        assert (y is buffer, buffer.requires_grad, buffer.is_leaf) == (True, True, False)
        buffer.sum().backward()
        assert (numbers(buffer), numbers(x.grad)) == ([11.0], [5.0])


def test_the_gradient_of_a_step_goes_on_along_the_history_from_before(prepared):
    def body(a):
        Scaled.apply(a)
        loss = (a * 2).sum()
        loss.backward()
        return loss

    body = prepared(body)
    for value in 1.0, 2.0:
        x = leaf([value])
        a = Square.apply(x)
        loss = body(a)
        assert numbers([loss, a]) == [6 * value**2, [3 * value**2]]
        assert numbers(x.grad) == [2 * value * 2 * 3 * value**2]
        with pytest.raises(RuntimeError) as caught:
            a.sum().backward()
        assert text_of(caught).splitlines()[1:] == [
            "  in Scaled, recorded at test_written_arguments.py"
        ]


def test_a_gradient_that_was_to_be_retained_is_that_of_the_new_history(prepared):
    apply = prepared(AddOne.apply)
    for _ in range(2):
        x = leaf([1.0])
        a = x * 1
        a.retain_grad()
        apply(a)
        (a * 7).sum().backward()
        assert numbers([a.grad, x.grad]) == [[7.0], [70.0]]


def test_second_derivatives_go_through_the_written_argument(prepared):
    apply = prepared(Scaled.apply)
    for value in 1.0, 2.0:
        x = leaf([value])
        y = apply(x * 1)
        (first,) = lucid.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = lucid.autograd.grad(first.sum(), x)
        assert numbers([first, second]) == [[3 * value], [3 * value]]  # the output is saved


def test_a_leaf_that_requires_grad_is_refused_and_stays_as_it_is(prepared):
    apply = prepared(AddOne.apply)
    apply(leaf([1.0]) * 1)
    for _ in range(2):
        with pytest.raises(RuntimeError) as caught:
            apply(leaf([1.0]))
        assert text_of(caught) == (
            "a leaf Variable that requires grad has been used in an in-place operation.\n"
            "  in AddOne, recorded at test_written_arguments.py"
        )


def test_the_base_of_an_argument_gets_the_history_of_the_write(prepared):
    x = leaf([1.0, 2.0])
    base = x * 1
    prepared(lambda view: view.mul_(3))(base[1:])
    assert (numbers(base), base.grad_fn.name()) == ([1.0, 6.0], "CopySlices")
    base.sum().backward()
    assert numbers(x.grad) == [1.0, 3.0]
