"""What becomes of the outputs of forward."""

from __future__ import annotations

from collections import namedtuple

import pytest
from custom_functions import Identity, Pair, define, first_line, leaf, numbers, text_of

import lucid

Two = namedtuple("Two", "a b")

VIEW = (
    "Output 0 of Identity is a view and is being modified inplace. This view was created inside a "
    "custom Function (or because an input was returned as-is) and the autograd logic to handle "
    "view+inplace would override the custom backward associated with the custom Function, leading "
    "to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of "
    "the custom Function."
)


def test_each_tensor_of_a_tuple_is_tracked(run):
    def body(x):
        first, second = Pair.apply(x, [])
        return first.requires_grad, second.requires_grad, first.output_nr, second.output_nr

    assert run(body, leaf([1.0])) == (True, True, 0, 1)


def test_a_tuple_of_one_stays_a_tuple(run):
    fn = define(lambda ctx, x: (x * 2,))
    result = run(lambda x: fn.apply(x), leaf([1.0]))
    assert type(result) is tuple
    assert len(result) == 1


def test_a_namedtuple_becomes_a_plain_tuple(run):
    fn = define(lambda ctx, x: Two(x * 2, x * 3), lambda ctx, g, h: g)
    assert run(lambda x: type(fn.apply(x)) is tuple, leaf([1.0]))


@pytest.mark.parametrize("kind", [list, dict])
def test_a_container_of_tensors_is_refused_by_name(run, kind):
    fn = define(lambda ctx, x: [x * 2] if kind is list else {"y": x * 2})
    with pytest.raises(TypeError) as caught:
        run(lambda x: fn.apply(x), leaf([1.0]))
    assert text_of(caught) == (
        f"Fn.forward returned a {kind.__name__}, whose tensors would have no gradient\n"
        "  in Fn, recorded at test_outputs.py\n"
        "hint: return a tensor or a tuple of tensors"
    )


@pytest.mark.parametrize("materialize", [True, False])
def test_entries_that_are_no_tensors_pass_through_and_have_none_as_gradient(run, materialize):
    def forward(ctx, x, seen):
        ctx.set_materialize_grads(materialize)
        ctx.seen = seen
        return x * 2, "name"

    def backward(ctx, grad, nothing):
        ctx.seen.append(nothing)
        return grad * 2, None

    fn = define(forward, backward)

    def body(x):
        seen = []
        y, name = fn.apply(x, seen)
        y.sum().backward()
        return name, seen

    assert run(body, leaf([1.0])) == ("name", [None])


def test_tensors_in_a_container_among_the_outputs_are_not_tracked(run):
    fn = define(lambda ctx, x: (x * 2, [x * 3], {"y": x * 4}), lambda ctx, g, *rest: g * 2)

    def body(x):
        y, in_list, in_dict = fn.apply(x)
        y.sum().backward()
        return y.requires_grad, in_list[0].requires_grad, in_dict["y"].requires_grad

    x = leaf([1.0])
    assert run(body, x) == (True, False, False)
    assert numbers(x.grad) == [2.0]


@pytest.mark.parametrize("value", [None, 3, "text"])
def test_an_output_that_is_no_tensor_is_returned_as_it_is(run, value):
    fn = define(lambda ctx, x: value)
    assert run(lambda x: fn.apply(x), leaf([1.0])) == value


def test_an_input_returned_as_it_is_becomes_a_view_with_the_custom_backward(run):
    x = leaf([1.0])

    def body(x):
        y = Identity.apply(x)
        y.sum().backward()
        return y is x, x.is_leaf, y.grad_fn.name()

    assert run(body, x) == (False, True, "IdentityBackward")
    assert numbers(x.grad) == [2.0]


def test_a_returned_input_shares_memory(run):
    def body(x):
        y = Identity.apply(x)
        with lucid.no_grad():
            y.add_(1)
        return x._version

    x = leaf([1.0])
    assert run(body, x) == 1
    assert numbers(x) == [2.0]


def test_a_returned_input_is_a_new_object_even_without_grad(run):
    assert run(lambda x: Identity.apply(x) is x, leaf([1.0], False)) is False


def test_an_input_returned_twice_gives_two_views(run):
    fn = define(lambda ctx, x: (x, x), lambda ctx, g, h: 2 * g + 3 * h)
    x = leaf([1.0])

    def body(x):
        y, z = fn.apply(x)
        (y + 10 * z).sum().backward()
        return y is z

    assert run(body, x) is False
    assert numbers(x.grad) == [32.0]


def test_writing_to_a_returned_input_would_lose_the_backward_and_is_refused(run):
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: Identity.apply(x).add_(1), leaf([1.0]))
    assert str(caught.value) == VIEW


def test_writing_to_an_output_that_is_a_view_is_refused(run):
    fn = define(lambda ctx, x: x.view(2, 1), lambda ctx, g: g.view(2), "Identity")
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: fn.apply(x).add_(1), leaf([1.0, 2.0]))
    assert str(caught.value) == VIEW


def test_writing_to_a_view_of_such_an_output_is_refused_as_well(run):
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: Identity.apply(x)[0].add_(1), leaf([1.0, 2.0]))
    assert str(caught.value) == VIEW


def test_several_views_have_a_message_of_their_own(run):
    fn = define(lambda ctx, x: (x, x * 2), lambda ctx, g, h: g)
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: fn.apply(x)[0].add_(1), leaf([1.0]))
    assert str(caught.value) == (
        "Output 0 of Fn is a view and is being modified inplace. This view is the output of a "
        "function that returns multiple views. Such functions do not allow the output views to be "
        "modified inplace. You should replace the inplace operation by an out-of-place one."
    )


def test_one_view_among_outputs_without_gradient_has_the_message_of_one(run):
    def forward(ctx, x):
        constant = x * 2
        ctx.mark_non_differentiable(constant)
        return x, constant, 3

    fn = define(forward, lambda ctx, *grads: grads[0], "Identity")
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: fn.apply(x)[0].add_(1), leaf([1.0]))
    assert str(caught.value) == VIEW


STALE = VIEW.replace("is being", "its base or another view of its base has been")


@pytest.mark.parametrize(
    "write",
    [
        lambda a, y: a.mul_(3),
        lambda a, y: a.detach().mul_(3),
        lambda a, y: a[0:1].mul_(3),
        lambda a, y: y.detach().mul_(3),
    ],
    ids=["input", "input.detach()", "part of the input", "output.detach()"],
)
@pytest.mark.parametrize(
    "use",
    [
        lambda y: y.sum().backward(),
        lambda y: y * 2,
        lambda y: y.grad_fn,
        lambda y: y.is_leaf,
        lambda y: y[0:1].sum().backward(),
    ],
    ids=["backward", "product", "grad_fn", "is_leaf", "view"],
)
def test_a_returned_input_whose_memory_was_written_has_no_history_any_more(run, write, use):
    """Its data is new, its history of old: gradients would be wrong without an error."""

    def body(x):
        a = x * 1
        y = Identity.apply(a)
        write(a, y)
        use(y)

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0, 2.0]))
    assert first_line(caught) == STALE


def test_a_write_in_no_grad_to_a_returned_input_ends_its_history_as_well(run):
    def body(x):
        y = Identity.apply(x)
        with lucid.no_grad():
            y.add_(1)
        y.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert first_line(caught) == STALE


def test_what_was_computed_of_a_returned_input_before_the_write_keeps_its_history(run):
    def body(x):
        a = x * 1
        y = Identity.apply(a)
        z = y * 3
        a.mul_(3)
        (z + a).sum().backward()

    x = leaf([1.0])
    run(body, x)
    assert numbers(x.grad) == [2.0 * 3 + 3]


def test_a_returned_input_may_be_looked_at_after_the_step_wrote_it(run):
    """As a step does that updates a parameter in the end."""

    def body(x):
        y = Identity.apply(x)
        y.sum().backward()
        with lucid.no_grad():
            x.sub_(x.grad)
        return y

    x = leaf([1.0])
    y = run(body, x)
    assert (numbers(x), y.tolist(), y.requires_grad) == ([-1.0], [-1.0], True)
    with pytest.raises(RuntimeError) as caught:
        y.backward(leaf([1.0], False))
    assert first_line(caught) == STALE


def test_the_invalid_history_of_a_view_can_be_printed():
    x = leaf([1.0])
    y = Identity.apply(x)
    x.detach().add_(1)
    assert repr(y) == "tensor([2.], dtype=lucid.float64, grad_fn=<Invalid>)"


def test_an_output_in_two_slots_is_one_object_and_its_gradient_comes_in_the_last(run):
    def forward(ctx, x, seen):
        ctx.seen = seen
        y = x * 2
        return y, y

    def backward(ctx, first, second):
        ctx.seen.append((first, second))
        return first + second, None

    fn = define(forward, backward)

    def body(x):
        seen = []
        y, z = fn.apply(x, seen)
        (y + 10 * z).sum().backward()
        return y is z, seen

    same, seen = run(body, leaf([1.0]))
    assert same
    assert numbers(seen[0]) == [[0.0], [11.0]]


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


def test_marking_something_that_is_no_tensor_is_refused(run):
    def forward(ctx, x):
        ctx.mark_non_differentiable(3)
        return x * 2

    with pytest.raises(RuntimeError) as caught:
        run(lambda x: define(forward).apply(x), leaf([1.0]))
    assert text_of(caught) == (
        "mark_non_differentiable only accepts variable arguments, but argument 0 is of type int\n"
        "  in Fn, recorded at test_outputs.py"
    )


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


def test_gradients_have_the_outputs_dtype_on_the_way_in_and_the_inputs_on_the_way_out(run):
    def forward(ctx, x, seen):
        ctx.seen = seen
        return x.float()

    def backward(ctx, grad):
        ctx.seen.append(str(grad.dtype))
        return grad, None

    fn = define(forward, backward)
    x = leaf([1.0])

    def body(x):
        seen = []
        fn.apply(x, seen).sum().backward()
        return seen

    assert run(body, x) == ["lucid.float32"]
    assert x.grad.dtype is lucid.float64
