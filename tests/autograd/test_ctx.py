"""What a ctx offers: saved tensors, versions, attributes, flags."""

from __future__ import annotations

import pytest
from custom_functions import Exp, Square, define, first_line, leaf, numbers, other_lines

import lucid
from lucid.autograd.function import BackwardCFunction, FunctionCtx

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)


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
    message = "save_for_backward can only save variables, but argument 1 is of type int"
    assert str(caught.value) == message


def test_save_for_forward_takes_tensors_only(run):
    def forward(ctx, x):
        ctx.save_for_forward(x, "no tensor")
        return x * 2

    with pytest.raises(TypeError) as caught:
        run(lambda x: define(forward).apply(x), leaf([1.0]))
    message = "save_for_forward can only save variables, but argument 1 is of type str"
    assert str(caught.value) == message


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
    assert "saved for SquareBackward, recorded at test_ctx.py:" in other_lines(caught)
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
    assert first_line(caught).startswith("one of the variables needed for gradient computation")
    assert ", is at version 1; expected version 0 instead." in first_line(caught)


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
    assert first_line(caught).startswith("one of the variables needed for gradient computation")
    assert "[DoubleTensor [1]]" in first_line(caught)


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
    assert str(caught.value) == FREED


def test_saved_tensors_cannot_be_read_after_backward(run):
    def body(x):
        y = Square.apply(x)
        y.sum().backward()
        return y.grad_fn.saved_tensors

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert str(caught.value) == FREED


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


def test_attributes_persist_over_backwards_and_are_readable_on_the_node(run):
    def forward(ctx, x):
        ctx.runs = 0
        return x * 2

    def backward(ctx, grad):
        ctx.runs += 1
        return grad * ctx.runs

    fn = define(forward, backward)
    x = leaf([1.0])

    def body(x):
        y = fn.apply(x)
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        return y.grad_fn.runs

    assert run(body, x) == 2
    assert numbers(x.grad) == [3.0]


def test_a_missing_attribute_is_named(run):
    fn = define(lambda ctx, x: x * 2, lambda ctx, grad: grad * ctx.factor)
    with pytest.raises(AttributeError, match="'FnBackward' object has no attribute 'factor'"):
        run(lambda x: fn.apply(x).sum().backward(), leaf([1.0]))


# ---------------------------------------------------------------------- needs_input_grad


def test_needs_input_grad_has_one_entry_per_argument(run):
    def forward(ctx, x, k, y):
        ctx.early = ctx.needs_input_grad
        return x * y

    fn = define(forward, lambda ctx, grad: (grad, None, None))

    def body(x, y):
        ctx = fn.apply(x, 3, y).grad_fn
        return ctx.early, ctx.needs_input_grad

    expected = (True, False, False)
    assert run(body, leaf([1.0]), leaf([1.0], False)) == (expected, expected)


def test_needs_input_grad_is_false_for_inputs_that_nobody_asked_for(run):
    def forward(ctx, x, y, seen):
        ctx.seen = seen
        return x * y

    def backward(ctx, grad):
        ctx.seen.append(ctx.needs_input_grad)
        return grad, grad, None

    fn = define(forward, backward)

    def body(x, y):
        seen = []
        z = fn.apply(x, y, seen)
        lucid.autograd.grad(z.sum(), x, retain_graph=True)
        z.sum().backward()
        return seen, z.grad_fn.needs_input_grad

    seen, after = run(body, leaf([1.0]), leaf([1.0]))
    assert seen == [(True, False, False), (True, True, False)]
    assert after == (True, True, False)


# ---------------------------------------------------------------------- identity and surface


def test_the_ctx_is_the_node(run):
    def forward(ctx, x):
        ctx.me = id(ctx)
        return x * 2

    fn = define(forward)

    def body(x):
        y = fn.apply(x)
        node = y.grad_fn
        return (
            node.me == id(node),
            isinstance(node, BackwardCFunction),
            isinstance(node, FunctionCtx),
            [base.__name__ for base in type(node).__mro__[:3]],
        )

    names = ["FnBackward", "BackwardCFunction", "FunctionCtx"]
    assert run(body, leaf([1.0])) == (True, True, True, names)


SURFACE = """
    save_for_backward save_for_forward mark_dirty mark_non_differentiable mark_shared_storage
    set_materialize_grads maybe_clear_saved_tensors register_hook register_prehook name
    saved_tensors saved_for_forward to_save needs_input_grad materialize_grads dirty_tensors
    non_differentiable next_functions metadata requires_grad apply apply_jvp
"""


@pytest.mark.parametrize("name", SURFACE.split())
def test_the_surface_is_complete(run, name):
    assert run(lambda x: hasattr(Square.apply(x).grad_fn, name), leaf([1.0]))


def test_saved_variables_is_deprecated(run):
    with pytest.warns(DeprecationWarning) as caught:
        saved = run(lambda x: Square.apply(x).grad_fn.saved_variables, leaf([1.0]))
    assert numbers(saved) == [[1.0]]
    message = "'saved_variables' is deprecated; use 'saved_tensors'"
    assert [str(warning.message) for warning in caught] == [message]


def test_mark_shared_storage_is_deprecated_and_does_nothing(run):
    def forward(ctx, x):
        ctx.mark_shared_storage((x, x))
        return x * 2

    with pytest.warns(FutureWarning, match="`mark_shared_storage` is deprecated"):
        assert numbers(run(lambda x: define(forward).apply(x), leaf([1.0]))) == [2.0]


def test_metadata_is_a_dict_of_the_node(run):
    def body(x):
        y = Square.apply(x)
        y.grad_fn.metadata["note"] = 3
        return y.grad_fn.metadata

    assert run(body, leaf([1.0])) == {"note": 3}


def test_a_node_requires_grad_and_applies_its_backward(run):
    def body(x, one):
        y = Square.apply(x)
        return y.grad_fn.requires_grad, y.grad_fn.apply(one), y.grad_fn(one)

    requires_grad, applied, called = run(body, leaf([3.0]), leaf([1.0], False))
    assert requires_grad
    assert numbers([applied, called]) == [[6.0], [6.0]]


def test_next_functions_has_one_entry_per_tensor_argument(run):
    fn = define(lambda ctx, x, k, y, w: x * y, lambda ctx, grad: (grad, None, None, None))

    def body(x, constant):
        functions = fn.apply(x * 2, 3, constant, x).grad_fn.next_functions
        names = [None if node is None else node.name() for node, _ in functions]
        return names, [number for _, number in functions], functions[2][0].variable is x

    names, numbers_, is_variable = run(body, leaf([1.0]), leaf([1.0], False))
    assert names == ["MulBackward", None, "AccumulateGrad"]
    assert numbers_ == [0, 0, 0]
    assert is_variable


# ---------------------------------------------------------------------- flags of the class


def reading(times: int, **flags):
    def backward(ctx, grad):
        for _ in range(times):
            (x,) = ctx.saved_tensors
        return 2 * grad * x

    return define(lambda ctx, x: (ctx.save_for_backward(x), x * x)[1], backward, "Reading", **flags)


READ_TWICE = (
    "saved_tensors can only be accessed once when clear_saved_tensors_on_access=True is set on the "
    "autograd.Function. Either access saved_tensors only once, or set "
    "clear_saved_tensors_on_access=False."
)


def test_with_clear_saved_tensors_on_access_a_second_read_raises(run):
    fn = reading(2, clear_saved_tensors_on_access=True)
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: fn.apply(x).sum().backward(), leaf([1.0]))
    assert str(caught.value) == READ_TWICE


def test_with_clear_saved_tensors_on_access_one_read_is_fine(run):
    fn = reading(1, clear_saved_tensors_on_access=True)
    x = leaf([3.0])
    run(lambda x: fn.apply(x).sum().backward(), x)
    assert numbers(x.grad) == [6.0]


def test_maybe_clear_saved_tensors_does_nothing_without_the_flag(run):
    def body(x):
        ctx = Square.apply(x).grad_fn
        ctx.maybe_clear_saved_tensors()
        return len(ctx.saved_tensors)

    assert run(body, leaf([1.0])) == 1


def test_boxed_grads_call_gives_backward_one_list(run):
    def forward(ctx, x, seen):
        ctx.seen = seen
        return x * 2, x * 3

    def backward(ctx, grads):
        ctx.seen.append((type(grads).__name__, len(grads)))
        second, first = grads.pop(), grads.pop()
        return first * 2 + second * 3, None

    fn = define(forward, backward, boxed_grads_call=True)
    x = leaf([1.0])

    def body(x):
        seen = []
        y, z = fn.apply(x, seen)
        (y + z).sum().backward()
        return seen

    assert run(body, x) == [("list", 2)]
    assert numbers(x.grad) == [5.0]
