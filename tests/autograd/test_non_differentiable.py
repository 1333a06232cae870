"""Outputs without a gradient: of integers, and marked ones."""

from __future__ import annotations

import pytest
from custom_functions import Pair, define, first_line, leaf, numbers, text_of

import lucid
from lucid.autograd import Function


def test_integer_outputs_have_no_gradient_and_get_zeros_of_their_own_dtype(run):
    def forward(ctx, x, seen):
        ctx.seen = seen
        return x * 2, x.long(), x > 0

    def backward(ctx, *grads):
        ctx.seen.extend(grads)
        return grads[0], None

    fn = define(forward, backward)

    def body(x):
        seen = []
        y, i, b = fn.apply(x, seen)
        y.sum().backward()
        return i.requires_grad, i.grad_fn, b.is_leaf, seen

    requires_grad, node, is_leaf, seen = run(body, leaf([1.0]))
    assert (requires_grad, node, is_leaf) == (False, None, True)
    assert [g.dtype for g in seen] == [lucid.float64, lucid.int64, lucid.bool]
    assert numbers(seen) == [[1.0], [0], [False]]


def test_outputs_marked_as_not_differentiable_are_leaves_and_get_zeros(run):
    def body(x):
        seen = []
        y, z = Pair.apply(x, seen, lambda ctx, y, z: ctx.mark_non_differentiable(z))
        y.sum().backward()
        return z.requires_grad, z.is_leaf, seen

    requires_grad, is_leaf, seen = run(body, leaf([1.0, 1.0]))
    assert (requires_grad, is_leaf) == (False, True)
    assert numbers(seen[0]) == [[1.0, 1.0], [0.0, 0.0]]


def test_without_materialized_gradients_they_are_none(run):
    def prepare(ctx, y, z):
        ctx.mark_non_differentiable(z)
        ctx.set_materialize_grads(False)

    def body(x):
        seen = []
        y, _ = Pair.apply(x, seen, prepare)
        y.sum().backward()
        return seen[0][1] is None

    assert run(body, leaf([1.0]))


def test_the_last_call_of_mark_non_differentiable_wins(run):
    def prepare(ctx, y, z):
        ctx.mark_non_differentiable(y)
        ctx.mark_non_differentiable(z)

    def body(x):
        y, z = Pair.apply(x, [], prepare)
        return y.requires_grad, z.requires_grad

    assert run(body, leaf([1.0])) == (True, False)


def test_gradient_does_not_flow_through_an_output_marked_as_not_differentiable(run):
    x = leaf([1.0])

    def body(x):
        y, z = Pair.apply(x, [], lambda ctx, y, z: ctx.mark_non_differentiable(z))
        (y + 100 * z).sum().backward()

    run(body, x)
    assert numbers(x.grad) == [2.0]


@pytest.mark.parametrize(
    ("value", "kind"), [(3, "int"), ("text", "str"), (None, "NoneType"), ([1], "list")]
)
def test_marking_something_that_is_no_tensor_is_refused(run, value, kind):
    def forward(ctx, x):
        y = x * 2
        ctx.mark_non_differentiable(y, value)
        return y

    for requires_grad in True, False:
        with pytest.raises(RuntimeError) as caught:
            run(lambda x: define(forward).apply(x), leaf([1.0], requires_grad))
        assert text_of(caught) == (
            "mark_non_differentiable only accepts variable arguments, but argument 1 is of type "
            f"{kind}\n  in Fn, recorded at test_non_differentiable.py"
        )


def test_setup_context_may_mark_as_well(run):
    class Sorted(Function):
        @staticmethod
        def forward(x):
            return x.sort()[0], x * 100, x.argsort()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def backward(ctx, values, scaled, order):
            return values * 2 + scaled

    def body(x):
        outputs = Sorted.apply(x)
        (outputs[0] + outputs[1]).sum().backward()
        return [y.requires_grad for y in outputs]

    x = leaf([2.0, 1.0])
    assert run(body, x) == [True, False, False]
    assert numbers(x.grad) == [2.0, 2.0]


def test_marking_a_tensor_that_is_not_returned_changes_nothing(run):
    fn = define(lambda ctx, x: (ctx.mark_non_differentiable(x * 5), x * 2)[1], lambda ctx, g: g * 3)
    x = leaf([1.0])
    run(lambda x: fn.apply(x).sum().backward(), x)
    assert numbers(x.grad) == [3.0]


def test_a_returned_input_marked_as_not_differentiable_is_a_detached_alias(run):
    def forward(ctx, x):
        ctx.mark_non_differentiable(x)
        return x

    def body(x):
        y = define(forward).apply(x)
        return y is x, y.requires_grad, y.grad_fn, x.requires_grad

    assert run(body, leaf([1.0])) == (False, False, None, True)


def test_nothing_is_left_to_differentiate_when_all_outputs_are_marked(run):
    def forward(ctx, x):
        y = x * 2
        ctx.mark_non_differentiable(y)
        return y

    with pytest.raises(RuntimeError) as caught:
        run(lambda x: define(forward).apply(x).sum().backward(), leaf([1.0]))
    assert first_line(caught) == (
        "element 0 of tensors does not require grad and does not have a grad_fn"
    )
