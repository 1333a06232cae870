"""What a ctx saves for backward: order, versions, lifetime."""

from __future__ import annotations

import numpy as np
import pytest
from custom_functions import (
    FREED,
    Exp,
    Square,
    define,
    first_line,
    leaf,
    numbers,
    other_lines,
    text_of,
)

import lucid


def saving(*what):
    """A Function of x that saves what the functions in `what` make of `(x, y)`."""

    def forward(ctx, x):
        y = x * 2
        for make in what:
            ctx.save_for_backward(*make(x, y))
        return y

    return define(forward, lambda ctx, grad: grad * 2)


def modified(kind: str, origin: str, version: int = 1) -> str:
    return (
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [{kind}]{origin} is at version {version}; expected version 0 instead."
    )


def test_saved_tensors_keep_their_order_and_none(run):
    fn = saving(lambda x, y: (y, None, x))

    def body(x):
        first, second, third = fn.apply(x).grad_fn.saved_tensors
        return first, second, third

    assert numbers(run(body, leaf([1.0]))) == [[2.0], None, [1.0]]


def test_each_call_of_save_for_backward_replaces_the_one_before(run):
    fn = saving(lambda x, y: (x, x), lambda x, y: (y,))
    assert run(lambda x: len(fn.apply(x).grad_fn.saved_tensors), leaf([1.0])) == 1


def test_nothing_saved_is_an_empty_tuple(run):
    fn = saving()
    assert run(lambda x: fn.apply(x).grad_fn.saved_tensors, leaf([1.0])) == ()


def test_nothing_may_be_saved_explicitly(run):
    for make in (lambda x, y: (), lambda x, y: (None, None)):
        saved = run(lambda x, make=make: saving(make).apply(x).grad_fn.saved_tensors, leaf([1.0]))
        assert saved == make(None, None)


def test_a_saved_input_that_is_no_leaf_keeps_its_history(run):
    fn = saving(lambda x, y: (x,))

    def body(x):
        a = x * 3
        saved = fn.apply(a).grad_fn.saved_tensors[0]
        return saved is a, saved.grad_fn is a.grad_fn, saved.requires_grad

    assert run(body, leaf([1.0])) == (True, True, True)


def test_inside_of_forward_only_to_save_is_set(run):
    def forward(ctx, x):
        ctx.save_for_backward(x, None)
        ctx.counts = len(ctx.saved_tensors), len(ctx.to_save)
        return x * 2

    assert run(lambda x: define(forward).apply(x).grad_fn.counts, leaf([1.0])) == (0, 2)


def test_only_tensors_can_be_saved(run):
    fn = saving(lambda x, y: (x, 3))
    with pytest.raises(TypeError) as caught:
        run(lambda x: fn.apply(x), leaf([1.0]))
    assert text_of(caught) == (
        "save_for_backward can only save variables, but argument 1 is of type int\n"
        "  in Fn, recorded at test_saved_tensors.py"
    )


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", "str"),
        (1.5, "float"),
        ([1], "list"),
        (np.ones(1), "numpy.ndarray"),
        (lucid.Size([2]), "Size"),
    ],
)
def test_the_message_names_what_was_saved_instead(run, value, kind):
    with pytest.raises(TypeError) as caught:
        run(lambda x: saving(lambda x, y: (x, y, value)).apply(x), leaf([1.0]))
    assert text_of(caught) == (
        f"save_for_backward can only save variables, but argument 2 is of type {kind}\n"
        "  in Fn, recorded at test_saved_tensors.py"
    )


def test_save_for_forward_takes_tensors_only(run):
    def forward(ctx, x):
        ctx.save_for_forward(x, "no tensor")
        return x * 2

    with pytest.raises(TypeError) as caught:
        run(lambda x: define(forward).apply(x), leaf([1.0]))
    assert text_of(caught) == (
        "save_for_forward can only save variables, but argument 1 is of type str\n"
        "  in Fn, recorded at test_saved_tensors.py"
    )


def test_what_is_saved_for_forward_is_apart_from_what_is_saved_for_backward(run):
    def forward(ctx, x):
        ctx.save_for_forward(x, x)
        ctx.save_for_backward(x)
        return x * 2

    def body(x):
        ctx = define(forward).apply(x).grad_fn
        return len(ctx.saved_for_forward), len(ctx.saved_tensors)

    assert run(body, leaf([1.0])) == (2, 1)


def test_a_saved_leaf_comes_back_as_the_same_object(run):
    assert run(lambda x: Square.apply(x).grad_fn.saved_tensors[0] is x, leaf([1.0])) is True


def test_a_saved_output_comes_back_with_the_node_as_its_history(run):
    def body(x):
        y = Exp.apply(x)
        saved = y.grad_fn.saved_tensors[0]
        return saved is y, saved.grad_fn is y.grad_fn, saved.requires_grad

    assert run(body, leaf([1.0])) == (False, True, True)


def test_a_saved_intermediate_is_a_constant_outside_of_a_recorded_backward(run):
    fn = saving(lambda x, y: (x * 3,))

    def body(x):
        saved = fn.apply(x).grad_fn.saved_tensors[0]
        return saved.requires_grad, saved.grad_fn

    assert run(body, leaf([1.0])) == (False, None)


# ---------------------------------------------------------------------- versions


def test_a_saved_input_that_was_written_is_noticed(run):
    def body(x):
        a = x + 0
        y = Square.apply(a)
        a.add_(1)
        y.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0, 2.0]))
    assert first_line(caught) == modified("DoubleTensor [2]", ", which is output 0 of Add,")
    assert text_of(caught) == (
        modified("DoubleTensor [2]", ", which is output 0 of Add,")
        + "\n  saved for SquareBackward, recorded at test_saved_tensors.py"
    )
    assert other_lines(caught).endswith("y = Square.apply(a)")


def test_a_saved_output_that_was_written_is_noticed(run):
    def body(x):
        y = Exp.apply(x)
        y.add_(1)
        y.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert first_line(caught) == modified("DoubleTensor [1]", ", which is output 0 of Exp,")


def test_an_output_saved_by_another_function_is_named(run):
    def body(x):
        a = Square.apply(x)
        y = Square.apply(a)
        a.mul_(2)
        y.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert first_line(caught) == modified("DoubleTensor [1]", ", which is output 0 of Mul,")
    assert "saved for SquareBackward, recorded at test_saved_tensors.py" in text_of(caught)


def test_a_write_through_detach_is_noticed(run):
    def body(x):
        y = Square.apply(x)
        x.detach().add_(1)
        y.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert first_line(caught) == modified("DoubleTensor [1]", "")


def test_a_write_to_the_base_of_a_saved_slice_is_noticed(run):
    def body(x):
        a = x + 0
        y = Square.apply(a[1:])
        a[0] = 3.0
        y.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0, 2.0]))
    assert first_line(caught) == modified("DoubleTensor [1]", ", which is output 0 of Slice,")


@pytest.mark.parametrize(
    "write",
    [
        lambda a: a[0:1].mul_(2),
        lambda a: a.view(2, 1).zero_(),
        lambda a: a.detach().view(2, 1)[0].mul_(2),
        lambda a: a.copy_(a * 2),
    ],
    ids=["slice", "view", "view of detach()", "copy_"],
)
@pytest.mark.parametrize("dtype", [lucid.float32, lucid.float64])
def test_a_write_to_part_of_what_was_saved_is_noticed(prepared, write, dtype):
    def body(x):
        a = x * 1
        loss = Square.apply(a).sum()
        with lucid.no_grad():
            write(a)
        loss.backward()

    body = prepared(body)
    kind = "FloatTensor [2]" if dtype is lucid.float32 else "DoubleTensor [2]"
    for _ in range(2):
        x = lucid.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
        with pytest.raises(RuntimeError) as caught:
            body(x)
        assert first_line(caught) == modified(kind, ", which is output 0 of Mul,")
        assert x.grad is None


def test_a_write_that_is_taken_back_is_noticed(run):
    def body(x):
        y = Square.apply(x)
        x.detach().add_(1).sub_(1)
        y.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert first_line(caught) == modified("DoubleTensor [1]", "", version=2)


def test_what_forward_writes_after_saving_it_is_saved_as_it_is_in_the_end(run):
    def forward(ctx, x):
        t = x * 2
        ctx.save_for_backward(t)
        t.add_(1)
        return t * 1

    fn = define(forward, lambda ctx, g: g * ctx.saved_tensors[0])
    x = leaf([3.0])
    run(lambda x: fn.apply(x).sum().backward(), x)
    assert numbers(x.grad) == [7.0]  # it is kept when forward is over, as in PyTorch


def test_what_was_written_and_is_not_read_is_no_error(run):
    fn = saving(lambda x, y: (x, y))
    x = leaf([1.0])

    def body(x):
        y = fn.apply(x)
        x.detach().add_(1)
        y.sum().backward()

    run(body, x)
    assert numbers(x.grad) == [2.0]


def test_a_write_through_data_is_not_noticed(run):
    x = leaf([1.0, 2.0])

    def body(x):
        y = Square.apply(x)
        x.data.add_(1)
        y.sum().backward()

    run(body, x)
    assert numbers(x.grad) == [4.0, 6.0]


def test_attributes_have_no_version_check(run):
    def forward(ctx, x):
        ctx.x = x
        return x * x

    fn = define(forward, lambda ctx, grad: 2 * grad * ctx.x)
    x = leaf([1.0])

    def body(x):
        y = fn.apply(x)
        x.detach().add_(1)
        y.sum().backward()

    run(body, x)
    assert numbers(x.grad) == [4.0]


def test_dtypes_are_named_in_the_message(run):
    def body(x, counts):
        y = define(
            lambda ctx, x, i: (ctx.save_for_backward(i), x * 2)[1],
            lambda ctx, grad: (grad, *ctx.saved_tensors[:0], None),
        ).apply(x, counts)
        counts.add_(1)
        return y.grad_fn.saved_tensors

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]), lucid.tensor([1]))
    assert first_line(caught) == modified("LongTensor [1]", "")


# ---------------------------------------------------------------------- lifetime of what is saved


def test_a_second_backward_is_refused(run):
    def body(x):
        y = Square.apply(x).sum()
        y.backward()
        y.backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert text_of(caught) == f"{FREED}\n  in Square, recorded at test_saved_tensors.py"


def test_saved_tensors_cannot_be_read_after_backward(run):
    def body(x):
        y = Square.apply(x)
        y.sum().backward()
        return y.grad_fn.saved_tensors

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert text_of(caught) == f"{FREED}\n  in Square, recorded at test_saved_tensors.py"


def test_with_retain_graph_they_can(run):
    x = leaf([1.0])

    def body(x):
        y = Square.apply(x).sum()
        y.backward(retain_graph=True)
        y.backward()

    run(body, x)
    assert numbers(x.grad) == [4.0]


def test_a_function_that_saved_nothing_can_be_differentiated_twice(run):
    fn = define(lambda ctx, x: x * 2, lambda ctx, grad: grad * 2)
    x = leaf([1.0])

    def body(x, one):
        y = fn.apply(x)
        y.backward(one)
        y.backward(one)

    run(body, x, leaf([1.0], False))
    assert numbers(x.grad) == [4.0]


def test_what_was_saved_and_is_not_read_does_not_hinder_a_second_backward(run):
    fn = saving(lambda x, y: (x, y))
    x = leaf([1.0])

    def body(x):
        y = fn.apply(x).sum()
        y.backward()
        y.backward()

    run(body, x)
    assert numbers(x.grad) == [4.0]
