"""Hooks on tensors, on nodes and on accumulation."""

from __future__ import annotations

import pytest
from custom_functions import Square, define, first_line, leaf, numbers

import lucid
from lucid.autograd import graph


def test_hooks_around_one_node_run_in_order(run):
    def forward(ctx, x, seen):
        ctx.seen = seen
        return x * 2

    def backward(ctx, g):
        ctx.seen.append("backward")
        return g, None

    fn = define(forward, backward)

    def body(x):
        seen = []
        a = x * 1
        a.register_hook(lambda g: seen.append("tensor hook of the input"))
        y = fn.apply(a, seen)
        y.register_hook(lambda g: seen.append("tensor hook of the output"))
        y.grad_fn.register_prehook(lambda grads: seen.append("prehook"))
        y.grad_fn.register_hook(lambda inputs, outputs: seen.append("node hook"))
        x.register_hook(lambda g: seen.append("tensor hook of the leaf"))
        x.register_post_accumulate_grad_hook(
            lambda leaf: seen.append("accumulated" if leaf.grad is not None else "not yet")
        )
        y.sum().backward()
        return seen

    assert run(body, leaf([1.0])) == [
        "tensor hook of the output",
        "prehook",
        "backward",
        "node hook",
        "tensor hook of the input",
        "tensor hook of the leaf",
        "accumulated",
    ]


def test_a_tensor_hook_sees_the_summed_gradient_once(run):
    def body(x):
        seen = []
        a = x * 1
        a.register_hook(seen.append)
        (a * 2 + a * 3).sum().backward()
        return seen

    assert numbers(run(body, leaf([1.0]))) == [[5.0]]


def test_tensor_hooks_replace_the_gradient_in_the_order_of_registration(run):
    x = leaf([1.0])

    def body(x):
        a = x * 1
        a.register_hook(lambda g: g + 1)
        a.register_hook(lambda g: g * 10)
        a.sum().backward()

    run(body, x)
    assert numbers(x.grad) == [20.0]


def test_a_hook_keeps_the_dtype(run):
    def narrow(g):
        return g.float()

    def body(x):
        x.register_hook(narrow)
        x.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert str(caught.value) == (
        "hook 'narrow' has changed the type of value (was lucid.float64 got lucid.float32)"
    )


def test_a_hook_keeps_the_shape(run):
    def body(x):
        (x * 1).sum().backward()
        a = x * 1
        a.register_hook(lambda g: lucid.ones(2, dtype=lucid.float64))
        a.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert str(caught.value) == "hook '<lambda>' has changed the size of value"


def test_a_hook_returns_a_tensor_or_none(run):
    def body(x):
        x.register_hook(lambda g: 3)
        x.sum().backward()

    with pytest.raises(TypeError) as caught:
        run(body, leaf([1.0]))
    assert str(caught.value) == (
        "expected Variable, but hook returned 'int'\n  hook '<lambda>' of the gradient f64[1]"
    )


def test_a_hook_needs_a_tensor_that_requires_grad(run):
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: x.register_hook(lambda g: g), leaf([1.0], False))
    assert str(caught.value) == ("cannot register a hook on a tensor that doesn't require gradient")


def test_hooks_registered_before_are_those_of_now():
    def add_one(leaf):
        leaf.grad.add_(1)

    def scenario(wrap):
        scale, found = [10.0], []
        x = leaf([1.0])
        step = wrap(lambda x: Square.apply(x).sum().backward())

        def after_step():
            x.grad = None
            step(x)
            found.append(numbers(x.grad))

        after_step()
        handle = x.register_hook(lambda g: g * scale[0])
        after_step()
        scale[0] = 5.0
        after_step()
        with x.register_post_accumulate_grad_hook(add_one):
            after_step()
        handle.remove()
        after_step()
        return found

    assert scenario(lambda step: step) == [[2.0], [20.0], [10.0], [11.0], [2.0]]
    assert scenario(lucid.compile) == [[2.0], [20.0], [10.0], [11.0], [2.0]]


def test_a_hook_on_an_argument_is_a_reason_to_trace_again():
    step = lucid.compile(lambda x: Square.apply(x).sum().backward())
    x, y = leaf([1.0]), leaf([1.0])
    step(x)
    y.register_hook(lambda g: g * 3)
    step(y)
    step(leaf([1.0]))
    assert numbers([x.grad, y.grad]) == [[2.0], [6.0]]
    assert step.stats.retrace_reasons == [
        "x: f64[1] that requires grad -> f64[1] that requires grad and has 1 hook"
    ]


def test_a_handle_removes_its_hook_and_ends_with_its_block(run):
    def body(x):
        seen = []
        handle = x.register_hook(lambda g: seen.append("removed"))
        handle.remove()
        handle.remove()
        with x.register_hook(lambda g: seen.append("in the block")):
            x.sum().backward()
        x.sum().backward()
        return seen

    assert run(body, leaf([1.0])) == ["in the block"]


def test_a_node_hook_may_replace_the_gradients_of_the_inputs(run):
    x = leaf([1.0])

    def body(x):
        y = Square.apply(x)
        y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 10 + outputs[0],))
        y.sum().backward()

    run(body, x)
    assert numbers(x.grad) == [21.0]


def test_a_prehook_may_replace_the_gradients_of_the_outputs(run):
    x = leaf([1.0])

    def body(x):
        y = Square.apply(x)
        y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 10,))
        y.sum().backward()

    run(body, x)
    assert numbers(x.grad) == [20.0]


@pytest.mark.parametrize("kind", ["register_hook", "register_prehook"])
def test_a_node_hook_returns_a_tuple_of_as_many(run, kind):
    def registered(replacement):
        def body(x):
            y = Square.apply(x)
            getattr(y.grad_fn, kind)(lambda *grads: replacement(grads[0]))
            y.sum().backward()

        return body

    with pytest.raises(RuntimeError) as caught:
        run(registered(lambda grads: (grads[0], grads[0])), leaf([1.0]))
    assert str(caught.value) == (
        "hook '<lambda>' has returned an incorrect number of values (got 2, but expected 1)"
    )
    with pytest.raises(TypeError) as caught:
        run(registered(lambda grads: grads[0]), leaf([1.0]))
    assert str(caught.value) == (
        "expected tuple, but hook returned 'Tensor'\n  hook '<lambda>' of SquareBackward"
    )


@pytest.mark.parametrize("kind", ["register_hook", "register_prehook"])
@pytest.mark.parametrize(
    ("replacement", "error", "message"),
    [
        (
            lambda g: g.float(),
            RuntimeError,
            "hook 'replace' has changed the type of value (was lucid.float64 got lucid.float32)",
        ),
        (lambda g: g.sum(), RuntimeError, "hook 'replace' has changed the size of value"),
        (
            lambda g: 1.0,
            TypeError,
            "expected Variable, but hook returned 'float'\n"
            "  hook 'replace' of SquareBackward, at index 0",
        ),
    ],
)
def test_a_node_hook_keeps_dtype_and_shape(run, kind, replacement, error, message):
    def replace(*grads):
        return (replacement(grads[0][0]),)

    def body(x):
        y = Square.apply(x)
        getattr(y.grad_fn, kind)(replace)
        y.sum().backward()

    x = leaf([1.0, 2.0])
    with pytest.raises(error) as caught:
        run(body, x)
    assert str(caught.value) == message
    assert x.grad is None


def test_a_node_hook_makes_no_gradient_where_none_is(run):
    fn = define(lambda ctx, x, y: x * y, lambda ctx, g: (g * 2, None))

    def body(x, y):
        z = fn.apply(x, y)
        z.grad_fn.register_hook(lambda inputs, outputs: (None, outputs[0]))
        z.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]), leaf([2.0]))
    assert str(caught.value) == (
        "can't replace a None gradient with a non-None value\n"
        "  hook '<lambda>' of FnBackward, at index 1"
    )


def test_accumulation_hooks_are_for_leaves(run):
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: (x * 1).register_post_accumulate_grad_hook(print), leaf([1.0]))
    assert str(caught.value) == (
        "post accumulate grad hooks cannot be registered on non-leaf tensors"
    )
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: x.register_post_accumulate_grad_hook(print), leaf([1.0], False))
    assert str(caught.value) == ("cannot register a hook on a tensor that doesn't require gradient")


def test_accumulation_into_given_inputs_runs_their_hooks(run):
    def body(x):
        seen = []
        x.register_post_accumulate_grad_hook(lambda leaf: seen.append("accumulated"))
        (x * 2).sum().backward(inputs=[x])
        return seen

    assert run(body, leaf([1.0])) == ["accumulated"]


def test_a_post_accumulate_hook_may_clear_the_gradient(run):
    x = leaf([1.0])

    def clear(leaf):
        leaf.grad = None

    x.register_post_accumulate_grad_hook(clear)
    run(lambda x: (x * 2).sum().backward(), x)
    assert x.grad is None


def test_a_post_accumulate_hook_may_return_its_leaf(run):
    x = leaf([1.0])
    x.register_post_accumulate_grad_hook(lambda leaf: leaf)
    run(lambda x: (x * 2).sum().backward(), x)
    assert numbers(x.grad) == [2.0]


def test_a_post_accumulate_hook_returns_nothing_else(run):
    def body(x):
        x.register_post_accumulate_grad_hook(lambda leaf: leaf.grad.mul_(2))
        (x * 2).sum().backward()

    x = leaf([1.0])
    with pytest.raises(RuntimeError) as caught:
        run(body, x)
    assert str(caught.value) == (
        "Tensor post accumulate grad hooks should return None.\n  hook '<lambda>' returned 'Tensor'"
    )


def test_hooks_around_an_accumulation_run_in_order(run):
    def body(x):
        seen = []
        y = x * 2
        node = y.grad_fn.next_functions[0][0]
        node.register_prehook(lambda grads: seen.append(("before", len(grads))))
        node.register_hook(lambda inputs, grads: seen.append(("after", inputs, len(grads))))
        x.register_hook(lambda grad: seen.append("tensor hook"))
        x.register_post_accumulate_grad_hook(lambda leaf: seen.append("accumulated"))
        y.sum().backward()
        return seen

    expected = ["tensor hook", ("before", 1), "accumulated", ("after", (), 1)]
    assert run(body, leaf([1.0])) == expected


def test_a_prehook_of_the_accumulation_may_replace_the_gradient(run):
    x = leaf([1.0])
    node = graph.get_gradient_edge(x).node
    node.register_prehook(lambda grads: (grads[0] * 5,))
    run(lambda x: (x * 2).sum().backward(), x)
    assert numbers(x.grad) == [10.0]


def test_hooks_of_a_leaf_run_once_wherever_its_use_was_compiled(prepared):
    """As an argument of a compiled function, and as a tensor that it closes over."""
    x, w = leaf([1.0]), leaf([3.0])
    x.register_hook(lambda grad: grad * 10)
    w.register_hook(lambda grad: grad * 100)
    times = prepared(lambda x: Square.apply(x) * w)
    (given,) = lucid.autograd.grad(times(x).sum(), x)
    assert numbers(given) == [60.0]
    times(x).sum().backward()
    assert numbers([x.grad, w.grad]) == [[60.0], [100.0]]


def test_hooks_of_a_compiled_result_replace_its_gradient(prepared):
    x = leaf([1.0])
    y = prepared(lambda x: Square.apply(x))(x)
    y.register_hook(lambda grad: grad * 2)
    y.grad_fn.register_prehook(lambda grads: (grads[0] + 1,))
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 10,))
    x.register_hook(lambda grad: grad - 1)
    y.sum().backward()
    assert numbers(x.grad) == [59.0]


# ---------------------------------------------------------------------- retain_grad


def test_retain_grad_keeps_the_gradient_of_an_intermediate(run):
    def body(x):
        y = x * 2
        y.retain_grad()
        y.retain_grad()
        (y * 3).sum().backward()
        return y.grad, y.retains_grad, x.retains_grad

    grad, retains, leaf_retains = run(body, leaf([1.0]))
    assert numbers(grad) == [3.0]
    assert (retains, leaf_retains) == (True, False)


def test_retain_grad_of_an_asked_input_keeps_its_gradient_once(run):
    def body(x):
        y = x * 2
        y.retain_grad()
        (y * y).sum().backward(inputs=[y, x])
        return y.grad

    x = leaf([1.0])
    assert numbers([run(body, x), x.grad]) == [[4.0], [8.0]]


def test_gradients_come_to_all_outputs_of_a_node_of_which_one_is_asked_for(run):
    """In the first walk, and in later ones, which machine code makes."""
    multiples = define(lambda ctx, x: (x * 2, x * 3), lambda ctx, g, h: g * 2 + h * 3)

    def body(x):
        doubled, trebled = multiples.apply(x)
        trebled.retain_grad()
        trebled.register_hook(lambda g: g * 10)
        (gradient,) = lucid.autograd.grad((doubled * trebled).sum(), doubled)
        return gradient, trebled.grad

    for _ in range(3):
        gradient, kept = run(body, leaf([1.0]))
        assert (numbers(gradient), numbers(kept)) == ([3.0], [20.0])


def test_retain_grad_sees_what_hooks_made_of_the_gradient(run):
    def body(x):
        y = x * 2
        y.retain_grad()
        y.register_hook(lambda g: g * 10)
        (y * 3).sum().backward()
        return y.grad

    assert numbers(run(body, leaf([1.0]))) == [30.0]


def test_retain_grad_follows_an_in_place_write(run):
    def body(x):
        y = x * 2
        y.retain_grad()
        y.mul_(5)
        (y * 3).sum().backward()
        return y.grad

    assert numbers(run(body, leaf([1.0]))) == [3.0]


def test_retain_grad_needs_a_tensor_that_requires_grad(run):
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: x.retain_grad(), leaf([1.0], False))
    assert str(caught.value) == "can't retain_grad on Tensor that has requires_grad=False"


# ---------------------------------------------------------------------- lucid.autograd.graph


def test_a_multi_grad_hook_gets_all_gradients_once(run):
    def body(x, z, unused):
        seen = []
        handle = graph.register_multi_grad_hook([x, z, unused], seen.append)
        (x * 2 + z * 3).sum().backward()
        handle.remove()
        (x * 2 + z * 3).sum().backward()
        return seen

    seen = run(body, leaf([1.0]), leaf([1.0]), leaf([1.0]))
    assert numbers(seen) == [[[2.0], [3.0], None]]


def test_a_multi_grad_hook_for_any_runs_with_the_first(run):
    def body(x, z):
        seen = []
        graph.register_multi_grad_hook([x, z], seen.append, mode="any")
        (x * 2 + z * 2).sum().backward()
        return seen

    assert numbers(run(body, leaf([1.0]), leaf([1.0]))) == [[2.0]]
    with pytest.raises(ValueError) as caught:
        graph.register_multi_grad_hook([], print, mode="some")
    assert str(caught.value) == "Expects mode to be one of ('all', 'any') but got some"


def test_a_gradient_edge_names_node_and_output(run):
    def body(x):
        edge = graph.get_gradient_edge(Square.apply(x))
        return edge.node.name(), edge.output_nr, isinstance(edge.node, graph.Node)

    assert run(body, leaf([1.0])) == ("SquareBackward", 0, True)
    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0], False))
    assert str(caught.value) == (
        "It is not possible to get the gradient edge for a Tensor that does not require gradients"
    )


def test_increment_version_tells_of_writes_by_other_means(run):
    def body(x):
        y = Square.apply(x)
        graph.increment_version(x)
        y.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert first_line(caught) == (
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [DoubleTensor [1]] is at version 1; expected version 0 instead."
    )
