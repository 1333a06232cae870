"""The arguments of `apply`: positions, keywords, what is no tensor."""

from __future__ import annotations

import pytest
from custom_functions import Scale, Square, define, first_line, leaf, numbers, text_of


def test_other_arguments_arrive_untouched(run):
    fn = define(lambda ctx, x, how: x * len(how["by"]), lambda ctx, grad: (grad, None))
    x = leaf([1.0])
    y = run(lambda x: fn.apply(x, {"by": [1, 2, 3]}), x)
    assert numbers(y) == [3.0]


def test_any_object_is_an_argument_and_stays_itself(run):
    thing = object()

    def forward(ctx, x, *rest):
        ctx.same = rest[0] is thing, [type(value).__name__ for value in rest[1:]]
        return x * 2

    fn = define(forward, lambda ctx, grad: (grad * 2, *[None] * 6))
    x = leaf([1.0])

    def body(x):
        y = fn.apply(x, thing, None, "text", (1, 2), {"a": 1}, 1.5)
        y.sum().backward()
        return y.grad_fn.same, y.grad_fn.needs_input_grad

    same, needs = run(body, x)
    assert same[0]
    assert same[1][:4] == ["NoneType", "str", "tuple", "dict"]
    assert needs == (True, False, False, False, False, False, False)
    assert numbers(x.grad) == [2.0]


@pytest.mark.parametrize(("position", "value"), [(1, 5), (2, "text"), (3, None)])
def test_the_position_of_such_a_gradient_is_named(run, position, value):
    """Also of a tensor: it is the incoming gradient where `value` is None."""

    def backward(ctx, grad):
        found = [grad, None, None, None]
        found[position] = grad if value is None else value
        return tuple(found)

    fn = define(lambda ctx, x, a, b, c: x * a, backward)
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: fn.apply(x, 3, 4, 5).sum().backward(), leaf([1.0]))
    assert text_of(caught) == (
        f"function FnBackward returned a gradient different than None at position {position + 1}, "
        "but the corresponding forward input was not a Variable\n  returned at test_arguments.py"
    )


def test_a_gradient_for_something_that_is_no_tensor_is_refused(run):
    fn = define(lambda ctx, x, k: x * k, lambda ctx, grad: (grad, 1.0))
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: fn.apply(x, 3).sum().backward(), leaf([1.0]))
    assert first_line(caught) == (
        "function FnBackward returned a gradient different than None at position 2, but the "
        "corresponding forward input was not a Variable"
    )


def test_tensors_in_a_container_are_not_tracked(run):
    fn = define(lambda ctx, xs: sum(xs.values() if isinstance(xs, dict) else xs))
    beside = define(lambda ctx, x, ys: x * ys[0], lambda ctx, grad: (grad * 7, None))
    x, y = leaf([1.0]), leaf([2.0])

    def body(x, y):
        beside.apply(x, [y]).sum().backward()
        return [fn.apply(xs).requires_grad for xs in ([x, y], (x, y), {"a": x, "b": y})]

    assert run(body, x, y) == [False, False, False]
    assert numbers([x.grad, y.grad]) == [[7.0], None]


def test_keyword_arguments_take_the_slot_of_their_parameter(run):
    fn = define(lambda ctx, x, k=2: x * k, lambda ctx, grad: (grad * 5, None))
    x = leaf([1.0])

    def body(x):
        y = fn.apply(x, k=5)
        y.sum().backward()
        return y.grad_fn.needs_input_grad

    assert run(body, x) == (True, False)
    assert numbers(x.grad) == [5.0]


def test_a_default_that_is_left_out_has_no_slot_in_the_one_method_style(run):
    fn = define(lambda ctx, x, k=2: x * k, lambda ctx, grad: grad * 2)
    x = leaf([1.0])
    run(lambda x: fn.apply(x).sum().backward(), x)
    assert numbers(x.grad) == [2.0]


def test_a_tensor_passed_by_keyword_gets_its_gradient(run):
    fn = define(lambda ctx, x, y: x * y, lambda ctx, grad: (grad, 5 * grad))
    x, y = leaf([1.0]), leaf([2.0])
    run(lambda x, y: fn.apply(x, y=y).sum().backward(), x, y)
    assert numbers(y.grad) == [5.0]


def test_keywords_may_come_in_any_order(prepared):
    fn = define(
        lambda ctx, x, k=2, y=None: x * k if y is None else x * k + y,
        lambda ctx, grad: (grad * 3, None, grad * 7)[: len(ctx.needs_input_grad)],
    )
    body = prepared(lambda x, y, k: fn.apply(y=y, k=k, x=x).sum().backward())
    for k in 4, 5, 5:
        x, y = leaf([1.0]), leaf([2.0])
        body(x, y, k)
        assert numbers([x.grad, y.grad]) == [[3.0], [7.0]]


def test_keyword_only_parameters_are_allowed_and_have_no_slot(run):
    fn = define(lambda ctx, x, *, k: x * k, lambda ctx, grad: grad * 3)
    x = leaf([1.0])

    def body(x):
        y = fn.apply(x, k=3)
        y.sum().backward()
        return y, y.grad_fn.needs_input_grad

    y, needs = run(body, x)
    assert (numbers(y), numbers(x.grad), needs) == ([3.0], [3.0], (True,))


def test_an_unknown_keyword_is_named(run):
    for fn in (Square, Scale):
        with pytest.raises(TypeError) as caught:
            run(lambda x, fn=fn: fn.apply(x, power=3), leaf([1.0]))
        message = f"{fn.__name__}.apply: got an unexpected keyword argument 'power'"
        assert str(caught.value) == message


def test_an_argument_given_twice_is_named(run):
    with pytest.raises(TypeError) as caught:
        run(lambda x: Square.apply(x, x=x), leaf([1.0]))
    assert str(caught.value) == "Square.apply: multiple values for argument 'x'"


def test_a_missing_argument_is_named(run):
    fn = define(lambda ctx, x, weight: x * weight)
    with pytest.raises(TypeError) as caught:
        run(lambda x: fn.apply(x), leaf([1.0]))
    name = fn.forward.__qualname__
    assert str(caught.value) == f"{name}() missing 1 required positional argument: 'weight'"
    with pytest.raises(TypeError) as caught:
        run(lambda x: Scale.apply(), leaf([1.0]))
    assert str(caught.value) == "Scale.apply: missing a required argument: 'x'"


def test_the_same_tensor_in_two_slots_gets_both_gradients(run):
    fn = define(lambda ctx, a, b: a + b, lambda ctx, grad: (grad * 10, grad * 100))
    x = leaf([1.0])

    def body(x):
        y = fn.apply(x, x)
        (node, number), other = y.grad_fn.next_functions
        y.sum().backward()
        return node is other[0], number, other[1]

    assert run(body, x) == (True, 0, 0)
    assert numbers(x.grad) == [110.0]


def test_so_does_one_tensor_that_is_two_arguments_of_the_step(prepared):
    fn = define(lambda ctx, a, b: a * b, lambda ctx, grad: (grad * 10, grad * 100))
    body = prepared(lambda a, b: fn.apply(a, b).sum().backward())
    for _ in range(2):
        x, y = leaf([1.0]), leaf([2.0])
        body(x, x)
        body(x, y)
        assert numbers([x.grad, y.grad]) == [[120.0], [100.0]]
