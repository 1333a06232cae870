"""What a ctx offers: attributes, flags, what the node of the graph has."""

from __future__ import annotations

import pytest
from custom_functions import FREED, Square, define, first_line, leaf, numbers, text_of

import lucid
from lucid.autograd import Function
from lucid.autograd.function import BackwardCFunction, FunctionCtx


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
    with pytest.raises(AttributeError) as caught:
        run(lambda x: fn.apply(x).sum().backward(), leaf([1.0]))
    assert str(caught.value) == "'FnBackward' object has no attribute 'factor'"


ONCE_TAKEN = """
    name line edges origin sequence output_types retained retain release place seal short_name
    host_forward is_private shown_saved marked_outputs takes_undefined apply_in_run op saved shape
"""


@pytest.mark.parametrize("name", ONCE_TAKEN.split())
def test_an_attribute_may_have_any_name(run, name):
    def forward(ctx, x):
        setattr(ctx, name, 3)
        return x * 2

    fn = define(forward, lambda ctx, grad: grad * getattr(ctx, name))
    x = leaf([1.0])

    def body(x):
        y = fn.apply(x)
        y.sum().backward()
        return getattr(y.grad_fn, name)

    assert run(body, x) == 3
    assert numbers(x.grad) == [3.0]


def test_a_ctx_with_a_name_of_its_own_is_still_named_in_messages(run):
    def forward(ctx, x):
        ctx.name = "mine"
        return x * 2

    fn = define(forward, lambda ctx, grad: (grad, grad))
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: fn.apply(x).sum().backward(), leaf([1.0]))
    assert first_line(caught) == (
        "function FnBackward returned an incorrect number of gradients (expected 1, got 2)"
    )


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


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)])
def test_needs_input_grad_is_known_in_forward_setup_context_and_backward(prepared, flags):
    class Product(Function):
        @staticmethod
        def forward(x, k, y):
            return x * k * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.early = ctx.needs_input_grad
            ctx.save_for_backward(inputs[0], inputs[2])

        @staticmethod
        def backward(ctx, grad):
            ctx.late = ctx.needs_input_grad
            x, y = ctx.saved_tensors
            return (
                3 * grad * y if ctx.needs_input_grad[0] else None,
                None,
                3 * grad * x if ctx.needs_input_grad[2] else None,
            )

    def body(x, y):
        z = Product.apply(x, 3, y)
        z.sum().backward()
        return z.grad_fn.early, z.grad_fn.late

    body = prepared(body)
    for value in 1.0, 2.0:
        x, y = leaf([value], flags[0]), leaf([5.0], flags[1])
        expected = (flags[0], False, flags[1])
        assert body(x, y) == (expected, expected)
        found = [15.0] if flags[0] else None, [3 * value] if flags[1] else None
        assert (numbers(x.grad), numbers(y.grad)) == found


def test_without_grad_mode_needs_input_grad_says_what_requires_grad(run):
    def forward(ctx, x, k):
        return x * k, ctx.needs_input_grad

    def body(x):
        with lucid.no_grad():
            return define(forward).apply(x, 2)[1]

    assert run(body, leaf([1.0])) == (True, False)


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

    with pytest.warns(FutureWarning) as caught:
        assert numbers(run(lambda x: define(forward).apply(x), leaf([1.0]))) == [2.0]
    assert [str(warning.message) for warning in caught] == [
        "`mark_shared_storage` is deprecated. Tensors with shared storages are automatically "
        "tracked."
    ]


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
    assert text_of(caught) == f"{READ_TWICE}\n  in Reading, recorded at test_ctx.py"


def test_so_it_does_where_nothing_was_saved(run):
    fn = define(
        lambda ctx, x: x * (2 + len(ctx.saved_tensors)),
        lambda ctx, grad: grad * (len(ctx.saved_tensors) + len(ctx.saved_tensors)),
        clear_saved_tensors_on_access=True,
    )
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: fn.apply(x).sum().backward(), leaf([1.0]))
    assert text_of(caught) == f"{READ_TWICE}\n  in Fn, recorded at test_ctx.py"


def test_with_clear_saved_tensors_on_access_one_read_is_fine(run):
    fn = reading(1, clear_saved_tensors_on_access=True)
    x = leaf([3.0])
    run(lambda x: fn.apply(x).sum().backward(), x)
    assert numbers(x.grad) == [6.0]


def test_maybe_clear_saved_tensors_frees_them_early_where_backward_frees_them_anyway(run):
    def backward(ctx, grad):
        ctx.maybe_clear_saved_tensors()
        try:
            return grad * len(ctx.saved_tensors)
        except RuntimeError as error:
            ctx.seen.append(str(error))
            return grad * 0

    def forward(ctx, x, seen):
        ctx.save_for_backward(x)
        ctx.seen = seen
        return x * 2

    fn = define(forward, lambda ctx, grad: (backward(ctx, grad), None))
    x = leaf([1.0])

    def body(x):
        seen = []
        y = fn.apply(x, seen).sum()
        y.backward(retain_graph=True)
        retained = len(seen)
        y.backward()
        return retained, seen

    retained, seen = run(body, x)
    assert retained == 0
    assert [text.partition("\n")[0] for text in seen] == [FREED]
    assert numbers(x.grad) == [1.0]


def test_maybe_clear_saved_tensors_does_nothing_outside_of_a_backward(run):
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
