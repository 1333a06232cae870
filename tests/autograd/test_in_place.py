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


@pytest.mark.parametrize(
    ("value", "kind"), [(3, "int"), ("text", "str"), (None, "NoneType"), ([1], "list")]
)
def test_marking_what_is_no_tensor_is_refused(run, value, kind):
    def forward(ctx, x):
        ctx.mark_dirty(x, value)
        return x

    with pytest.raises(RuntimeError) as caught:
        run(lambda x: define(forward).apply(x * 1), leaf([1.0]))
    assert text_of(caught) == (
        f"mark_dirty can only accept variables, but argument 1 is of type {kind}\n"
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


def test_several_inputs_may_be_dirty(run):
    def forward(ctx, x, y):
        ctx.mark_dirty(x)  # is replaced by the next call
        ctx.mark_dirty(x.mul_(2), y.mul_(3))
        return y, x

    fn = define(forward, lambda ctx, g, h: (g * 10, h * 100))

    def body(x, y):
        a, b = x * 1, y * 1
        first, second = fn.apply(a, b)
        (first + 2 * second).sum().backward()
        return first is b, second is a, b.output_nr, a.output_nr, a, b

    x, y = leaf([1.0]), leaf([5.0])
    assert numbers(run(body, x, y)) == [True, True, 0, 1, [2.0], [15.0]]
    assert numbers([x.grad, y.grad]) == [[10.0], [200.0]]


def test_a_dirty_input_returned_twice_is_one_object(run):
    fn = define(
        lambda ctx, x: (ctx.mark_dirty(x.mul_(2)), x, x)[1:],
        lambda ctx, g, h: g * 10 + h * 100,
    )
    x = leaf([1.0])

    def body(x):
        a = x * 1
        first, second = fn.apply(a)
        first.sum().backward()
        return first is a, second is a

    assert run(body, x) == (True, True)
    assert numbers(x.grad) == [100.0]


def test_a_dirty_input_may_be_marked_as_not_differentiable(run):
    def forward(ctx, x):
        ctx.mark_dirty(x.mul_(2))
        ctx.mark_non_differentiable(x)
        return x

    def body(x):
        a = x * 1
        y = define(forward).apply(a)
        return y, y.requires_grad, y is a, a

    assert numbers(run(body, leaf([1.0]))) == [[2.0], False, False, [2.0]]


def test_written_twice_the_backward_runs_twice(run):
    x = leaf([1.0])
    y = run(lambda x: AddOne.apply(AddOne.apply(x * 1)), x)
    y.sum().backward()
    assert (numbers(y), numbers(x.grad)) == ([3.0], [100.0])


def test_what_is_saved_is_what_forward_leaves(run):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x.copy_(x.exp())
        ctx.mark_dirty(x)
        return x

    fn = define(forward, lambda ctx, g: g * ctx.saved_tensors[0])
    x = leaf([0.0])

    def body(x):
        y = fn.apply(x * 1)
        (first,) = lucid.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = lucid.autograd.grad(first.sum(), x)
        return first, second

    assert numbers(run(body, x)) == [[1.0], [1.0]]


def test_what_is_outside_of_the_step_is_written_at_each_call(prepared):
    """An argument, a buffer, a parameter under no_grad: data, versions and identity."""
    buffer, w = leaf([1.0], False), leaf([1.0])

    def body(x):
        with lucid.no_grad():
            AddOne.apply(w)
        return AddOne.apply(x), AddOne.apply(buffer), w * 2

    body = prepared(body)
    for k in 1, 2, 3:
        x = leaf([10.0 * k], False)
        y, z, product = body(x)
        product.sum().backward()
        assert (y is x, z is buffer) == (True, True)
        assert numbers([x, buffer, w]) == [[10.0 * k + 1], [1.0 + k], [1.0 + k]]
        assert (x._version, buffer._version, w._version) == (2, 2 * k, 2 * k)
        assert numbers(w.grad) == [2.0 * k]
        assert (w.is_leaf, buffer.requires_grad) == (True, False)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (lambda a: a[1:], [1.0, 10.0]),
        (lambda a: a.view(2, 1)[1:].t(), [1.0, 10.0]),
        (lambda a: a.view(1, 2), [10.0, 10.0]),
        (lambda a: a[1], [1.0, 10.0]),
    ],
    ids=["slice", "transposed slice", "all of it", "element"],
)
def test_a_dirty_view_of_any_kind_rewrites_its_base(prepared, view, expected):
    def body(x):
        a = x * 1
        shown, written = a.view(2, 1), view(a)
        AddOne.apply(written)
        (shown.sum() + 5 * written.sum()).backward()
        return shown._version, written._version

    body = prepared(body)
    for values in [1.0, 2.0], [3.0, 4.0]:
        x = leaf(values)
        assert body(x) == (2, 2)
        assert numbers(x.grad) == [e if e == 1.0 else 6 * e for e in expected]


def test_a_base_that_did_not_require_grad_does_so_after_a_write_through_a_view(run):
    fn = define(lambda ctx, v, x: (ctx.mark_dirty(v.add_(x)), v)[1], lambda ctx, g: (g, g * 7))
    x = leaf([3.0])

    def body(x):
        base = lucid.zeros(2, dtype=lucid.float64)
        fn.apply(base[:1], x)
        (base * base).sum().backward()
        return base.requires_grad, base.is_leaf

    assert run(body, x) == (True, False)
    assert numbers(x.grad) == [42.0]


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


def test_a_view_of_a_leaf_that_is_a_view_itself_cannot_be_written(run):
    x = lucid.ones(4)[1:].requires_grad_()
    for write in (lambda x: x[1:].mul_(2), lambda x: x.t().zero_(), lambda x: x[:, None].add_(x)):
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
            run(write, x)
    assert x.tolist() == [1.0, 1.0, 1.0]


MADE_WITHOUT_GRAD = (
    "A view was created in no_grad mode and is being modified inplace with grad mode enabled. "
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your "
    "code by moving both the view and the inplace either both inside the no_grad block (if you "
    "don't want the inplace to be tracked) or both outside (if you want the inplace to be tracked)."
)


VIEW_LINE = "\n  input: f64[1]  from test_in_place.py"


@pytest.mark.parametrize("of_leaf", [True, False])
@pytest.mark.parametrize(
    ("write", "origin", "after"),
    [
        (lambda view, x: AddOne.apply(view), "\n  in AddOne, recorded at test_in_place.py", 4.0),
        (lambda view, x: view.add_(1), VIEW_LINE, 4.0),
        (lambda view, x: view.mul_(x[:1]), VIEW_LINE, 9.0),
    ],
    ids=["Function", "op", "op with a gradient"],
)
def test_a_view_made_without_grad_cannot_be_written_with_it(run, write, origin, after, of_leaf):
    """Its base would not know of it: the gradient would be that of what it held before."""

    def body(x, is_allowed):
        base = x if of_leaf else x * 1
        with lucid.no_grad():
            view = base[:1]
        with lucid.set_grad_enabled(not is_allowed):
            write(view, x)
        return base * 1

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([3.0, 2.0]), False)
    assert text_of(caught).startswith(MADE_WITHOUT_GRAD + origin)
    assert numbers(run(body, leaf([3.0, 2.0]), True)) == [after, 2.0]


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
