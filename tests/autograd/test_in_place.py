"""Custom Functions that write to their inputs."""

from __future__ import annotations

import contextlib

import pytest
from custom_functions import AddOne, Identity, Square, define, first_line, leaf, numbers, text_of

import lucid

NO_INPUT = (
    "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been "
    "mutated should be passed to ctx.mark_dirty()."
)


def test_the_output_is_the_input_with_a_new_history_and_version(run):
    def body(x):
        a = x * 1
        y = AddOne.apply(a)
        y.sum().backward()
        return y is a, a._version, a.grad_fn.name()

    x = leaf([1.0])
    # add_ counts, and mark_dirty counts
    assert run(body, x) == (True, 2, "AddOneBackward")
    assert numbers(x.grad) == [10.0]


def test_a_dirty_input_must_be_returned(run):
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x * 2

    with pytest.raises(RuntimeError) as caught:
        run(lambda x: define(forward).apply(x * 1), leaf([1.0]))
    assert text_of(caught) == (
        "Some elements marked as dirty during the forward method were not returned as output. The "
        "inputs that are modified inplace must all be outputs of the Function.\n"
        "  in Fn, recorded at test_in_place.py"
    )


def test_marking_what_is_no_input_only_warns(run):
    def forward(ctx, x):
        y = x * 2
        ctx.mark_dirty(y)
        return y

    with pytest.warns(UserWarning) as caught:
        y = run(lambda x: define(forward).apply(x), leaf([1.0]))
    assert numbers(y) == [2.0]
    assert [str(warning.message) for warning in caught] == [NO_INPUT]


def test_what_is_no_input_must_be_returned_as_well(run):
    def forward(ctx, x):
        ctx.mark_dirty(x * 2)
        return x * 3

    with (
        pytest.warns(UserWarning) as warned,
        pytest.raises(RuntimeError) as caught,
    ):
        run(lambda x: define(forward).apply(x), leaf([1.0]))
    assert [str(warning.message) for warning in warned] == [NO_INPUT]
    assert text_of(caught) == (
        "Some elements marked as dirty during the forward method were not returned as output. The "
        "inputs that are modified inplace must all be outputs of the Function.\n"
        "  in Fn, recorded at test_in_place.py"
    )


def test_marking_what_is_no_tensor_is_refused(run):
    def forward(ctx, x):
        ctx.mark_dirty(x, 3)
        return x

    with pytest.raises(RuntimeError) as caught:
        run(lambda x: define(forward).apply(x * 1), leaf([1.0]))
    assert text_of(caught) == (
        "mark_dirty can only accept variables, but argument 1 is of type int\n"
        "  in Fn, recorded at test_in_place.py"
    )


def test_a_leaf_that_requires_grad_cannot_be_written(run):
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: AddOne.apply(x), leaf([1.0]))
    assert text_of(caught) == (
        "a leaf Variable that requires grad has been used in an in-place operation.\n"
        "  in AddOne, recorded at test_in_place.py"
    )


def test_under_no_grad_it_can_and_the_result_is_detached(run):
    def body(x):
        with lucid.no_grad():
            y = AddOne.apply(x)
        return y is x, y.requires_grad, x.requires_grad, x.is_leaf

    x = leaf([1.0])
    assert run(body, x) == (False, False, True, True)
    assert numbers(x) == [2.0]


def test_an_input_that_does_not_require_grad_stays_itself(run):
    def body(x):
        y = AddOne.apply(x)
        return y is x, y.requires_grad

    x = leaf([1.0], False)
    assert run(body, x) == (True, False)
    assert numbers(x) == [2.0]


def test_an_input_that_did_not_require_grad_may_do_so_afterwards(run):
    def forward(ctx, x, w):
        x.add_(w.detach())
        ctx.mark_dirty(x)
        return x

    fn = define(forward, lambda ctx, g: (g, 3 * g))
    w = leaf([2.0])

    def body(w):
        x = lucid.ones(1, dtype=lucid.float64)
        y = fn.apply(x, w)
        y.sum().backward()
        return y is x, x.requires_grad

    assert run(body, w) == (True, True)
    assert numbers(w.grad) == [3.0]


def test_a_dirty_view_rewrites_the_history_of_its_base(run):
    def body(x):
        a = x * 1
        view = a[0:1]
        AddOne.apply(view)
        a.sum().backward()
        return a, a.grad_fn.name(), view.grad_fn.name()

    x = leaf([1.0, 2.0])
    a, base_node, view_node = run(body, x)
    assert numbers(a) == [2.0, 2.0]
    assert numbers(x.grad) == [10.0, 1.0]
    assert (base_node, view_node) == ("CopySlices", "SliceBackward")


def test_a_later_reader_of_the_view_sees_the_new_history(run):
    def body(x):
        a = x * 1
        view = a[0:1]
        AddOne.apply(view)
        (view * 3).sum().backward()

    x = leaf([1.0, 2.0])
    run(body, x)
    assert numbers(x.grad) == [30.0, 0.0]


def test_a_dirty_view_works_with_a_single_output_only(run):
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x, x * 2

    fn = define(forward, lambda ctx, g, h: g)
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: fn.apply((x * 1)[0:1]), leaf([1.0, 2.0]))
    assert text_of(caught) == (
        "If your Function modifies inplace an input that is a view of another Tensor, your "
        "Function cannot return more than one Tensor. You should either make sure the input is not "
        "a view (using .clone() for example) or make your Function only return one Tensor "
        "(potentially splitting it into two Functions: one doing the inplace that returns a single "
        "Tensor and a second one for the rest).\n  in Fn, recorded at test_in_place.py"
    )


def test_a_view_of_a_leaf_that_requires_grad_cannot_be_written(run):
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: AddOne.apply(x[0:1]), leaf([1.0, 2.0]))
    assert text_of(caught) == (
        "a view of a leaf Variable that requires grad is being used in an in-place operation.\n"
        "  in AddOne, recorded at test_in_place.py"
    )


def test_versions_are_shared_by_views_and_detached_aliases_but_not_by_data(run):
    def body(x):
        a = x * 1
        view, detached, data = a[0:1], a.detach(), a.data
        a.add_(1)
        return view._version, detached._version, data._version

    assert run(body, leaf([1.0, 2.0])) == (1, 1, 0)


def test_in_place_ops_count_versions_by_themselves(run):
    def body(x):
        a = x * 1
        a.add_(1).mul_(2)
        a[0] = 1.0
        a.zero_()
        return a._version

    assert run(body, leaf([1.0])) == 4


def test_raw_writes_of_numpy_do_not_count():
    x = leaf([1.0], False)
    x.numpy()[0] = 5.0
    assert x._version == 0
    assert numbers(x) == [5.0]


def test_what_is_saved_before_an_in_place_write_is_noticed(run):
    def body(x):
        a = x * 1
        b = a * a
        AddOne.apply(a)
        b.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([2.0]))
    assert first_line(caught) == (
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [DoubleTensor [1]], which is output 0 of AddOne, is at version 2; expected "
        "version 0 instead."
    )


def test_other_ops_before_and_after_keep_their_gradients(run):
    def body(x):
        a = x * 3
        AddOne.apply(a)
        Square.apply(a).sum().backward()

    x = leaf([2.0])
    run(body, x)
    assert numbers(x.grad) == [2 * 7.0 * 10 * 3]


def test_a_failed_forward_leaves_the_history_of_its_input(run):
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        raise ValueError("in forward")

    fn = define(forward)

    def body(x):
        a = x * 1
        with contextlib.suppress(ValueError):
            fn.apply(a)
        (a * 2).sum().backward()
        return a.grad_fn.name()

    x = leaf([1.0])
    assert run(body, x) == "MulBackward"
    assert numbers(x.grad) == [2.0]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[0:1],
        lambda x: (x * 1)[0:1],
        lambda x: x.detach()[0:1],
        lambda x: Identity.apply(x),
        lambda x: Identity.apply(x * 1),
    ],
    ids=["leaf", "non-leaf", "without grad", "returned leaf", "returned non-leaf"],
)
def test_views_are_not_detached_in_place(run, view):
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: view(x).detach_(), leaf([1.0, 2.0]))
    assert first_line(caught) == "Can't detach views in-place. Use detach() instead."


@pytest.mark.parametrize(
    "write",
    [lambda a: a.zero_(), lambda a: a.fill_(3.0), lambda a: a.copy_(a.detach() * 2)],
    ids=["zero_", "fill_", "copy_"],
)
def test_what_is_overwritten_by_a_constant_has_gradient_zero(run, write):
    x = leaf([1.0, 2.0])

    def body(x):
        a = x * 1
        write(a)
        Square.apply(a).sum().backward()
        return a.requires_grad, a.is_leaf, a.grad_fn.name()

    assert run(body, x) == (True, False, "OverwriteBackward")
    assert numbers(x.grad) == [0.0, 0.0]


def test_a_function_may_overwrite_its_input_by_a_constant(run):
    def forward(ctx, x):
        x.zero_()
        ctx.mark_dirty(x)
        return x

    fn = define(forward, lambda ctx, g: g * 10)
    x = leaf([1.0])

    def body(x):
        y = fn.apply(x * 1)
        y.sum().backward()
        return y

    assert numbers(run(body, x)) == [0.0]
    assert numbers(x.grad) == [10.0]
