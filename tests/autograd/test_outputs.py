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


def test_entries_of_every_kind_keep_their_places(run):
    fn = define(
        lambda ctx, x: (None, x * 2, 5, "text", (1, 2), x * 3, None),
        lambda ctx, *g: g[1] * 2 + g[5] * 3 if not any((g[0], *g[2:5], g[6])) else None,
    )

    def body(x):
        found = fn.apply(x)
        (found[1] + 10 * found[5]).sum().backward()
        return found

    x = leaf([1.0])
    assert numbers(run(body, x)) == [None, [2.0], 5, "text", [1, 2], [3.0], None]
    assert numbers(x.grad) == [32.0]


def test_an_empty_tuple_stays_one(run):
    assert run(lambda x: define(lambda ctx, x: ()).apply(x), leaf([1.0])) == ()


KINDS = [
    (lucid.float64, (2,)),
    (lucid.float64, ()),
    (lucid.float32, (2,)),
    (lucid.float64, (0,)),
]


@pytest.mark.parametrize("materialize", [True, False])
def test_a_gradient_that_did_not_arrive_is_zeros_like_its_output_or_none(prepared, materialize):
    """Outputs that differ in shape and dtype, each of them used alone."""

    def forward(ctx, x):
        ctx.set_materialize_grads(materialize)
        return x * 2, x.sum(), (x * 2).float(), x[:0] * 1

    def backward(ctx, *grads):
        ctx.kinds = [None if g is None else (g.dtype, tuple(g.shape)) for g in grads]
        return sum(g.double().sum() for g in grads if g is not None) * lucid.ones(2)

    fn = define(forward, backward)

    def body(x, used):
        outputs = fn.apply(x)
        outputs[used].sum().backward()
        return outputs[0].grad_fn.kinds

    body = prepared(body)
    for used, expected in (0, 2.0), (1, 1.0), (2, 2.0), (3, 0.0), (0, 2.0):
        x = leaf([1.0, 2.0])
        arrived = [kind if i == used else None for i, kind in enumerate(KINDS)]
        assert body(x, used) == (KINDS if materialize else arrived)
        assert numbers(x.grad) == [expected, expected]


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        (lambda ctx, x: x.sum(), lambda ctx, g: (g * 5).expand(2), [5.0, 5.0]),
        (lambda ctx, x: x[:0] * 2, lambda ctx, g: lucid.zeros(2) + g.sum(), [0.0, 0.0]),
        (lambda ctx, x: x.view(1, 2).expand(3, 2) * 1, lambda ctx, g: g.sum(0) * 5, [15.0, 15.0]),
        (lambda ctx, x: x.view(2, 1).t(), lambda ctx, g: g.view(2) * 5, [5.0, 5.0]),
        (lambda ctx, x: lucid.ones(2), lambda ctx, g: g * 5, [5.0, 5.0]),
    ],
    ids=["0-d", "empty", "larger", "transposed view", "constant"],
)
def test_an_output_may_have_any_shape(prepared, forward, backward, expected):
    fn = define(forward, backward)
    body = prepared(lambda x: fn.apply(x).sum().backward())
    for values in [1.0, 2.0], [3.0, 4.0]:
        x = leaf(values)
        body(x)
        assert numbers(x.grad) == expected


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
    assert first_line(caught) == VIEW


def test_writing_to_an_output_that_is_a_view_is_refused(run):
    fn = define(lambda ctx, x: x.view(2, 1), lambda ctx, g: g.view(2), "Identity")
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: fn.apply(x).add_(1), leaf([1.0, 2.0]))
    assert first_line(caught) == VIEW


def test_writing_to_a_view_of_such_an_output_is_refused_as_well(run):
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: Identity.apply(x)[0].add_(1), leaf([1.0, 2.0]))
    assert first_line(caught) == VIEW


def test_several_views_have_a_message_of_their_own(run):
    fn = define(lambda ctx, x: (x, x * 2), lambda ctx, g, h: g)
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: fn.apply(x)[0].add_(1), leaf([1.0]))
    assert first_line(caught) == (
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
    assert first_line(caught) == VIEW


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


@pytest.mark.parametrize(
    ("inner", "outer"), [(lucid.float64, lucid.float32), (lucid.float32, lucid.float64)]
)
def test_gradients_have_the_outputs_dtype_on_the_way_in_and_the_inputs_on_the_way_out(
    prepared, inner, outer
):
    def backward(ctx, grad):
        ctx.dtype = str(grad.dtype)
        return grad * 3

    fn = define(lambda ctx, x: x.to(outer), backward)

    def body(x):
        y = fn.apply(x)
        y.sum().backward()
        return y.dtype, y.grad_fn.dtype

    body = prepared(body)
    for value in 1.0, 2.0:
        x = lucid.tensor([value], dtype=inner, requires_grad=True)
        assert body(x) == (outer, str(outer))
        assert x.grad.dtype is inner
        assert numbers(x.grad) == [3.0]
