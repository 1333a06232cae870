"""lucid.autograd.functional: Jacobians, Hessians, and products with them."""

from __future__ import annotations

import pytest
from custom_functions import Square, leaf, numbers

from lucid.autograd import Function, functional


def cubes(x):
    return Square.apply(x) * x


def test_the_jacobian_has_the_shape_of_output_and_input(run):
    found = run(lambda x: functional.jacobian(cubes, x), leaf([1.0, 2.0]))
    assert numbers(found) == [[3.0, 0.0], [0.0, 12.0]]
    x = leaf([[1.0, 2.0, 3.0]], False)
    assert run(lambda x: functional.jacobian(lambda x: x.sum(1), x), x).shape == (1, 1, 3)


def test_tuples_of_inputs_and_outputs_give_nested_tuples(run):
    def body(x, y):
        return functional.jacobian(lambda x, y: (x * y, x + y), (x, y))

    found = run(body, leaf([1.0, 2.0]), leaf([3.0, 4.0]))
    assert numbers(found) == [
        [[[3.0, 0.0], [0.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]]],
        [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]],
    ]


def test_the_hessian(run):
    found = run(lambda x: functional.hessian(lambda x: cubes(x).sum(), x), leaf([1.0, 2.0]))
    assert numbers(found) == [[6.0, 0.0], [0.0, 12.0]]

    def body(x, y):
        return functional.hessian(lambda x, y: (x * y * y).sum(), (x, y))

    found = run(body, leaf([1.0]), leaf([3.0]))
    assert numbers(found) == [[[[0.0]], [[6.0]]], [[[6.0]], [[2.0]]]]


def test_products_from_both_sides(run):
    x, v = leaf([1.0, 2.0]), leaf([1.0, 10.0], False)
    assert numbers(run(lambda x, v: functional.vjp(cubes, x, v), x, v)) == [
        [1.0, 8.0],
        [3.0, 120.0],
    ]
    assert numbers(run(lambda x, v: functional.jvp(cubes, x, v), x, v)) == [
        [1.0, 8.0],
        [3.0, 120.0],
    ]


def test_the_jvp_of_a_linear_function(run):
    x, v = leaf([1.0, 2.0]), leaf([1.0, 10.0], False)
    found = run(lambda x, v: functional.jvp(lambda x: (x * 3, x.sum()), x, v), x, v)
    assert numbers(found) == [[[3.0, 6.0], 3.0], [[3.0, 30.0], 11.0]]


def test_the_vector_may_be_left_out_for_one_number(run):
    value, gradient = run(lambda x: functional.vjp(lambda x: x.prod(), x), leaf([2.0, 3.0]))
    assert numbers([value, gradient]) == [6.0, [3.0, 2.0]]


def test_results_have_a_history_with_create_graph_only(run):
    def body(x):
        plain = functional.jacobian(cubes, x)
        recorded = functional.jacobian(cubes, x, create_graph=True)
        recorded.sum().backward()
        return plain.requires_grad

    x = leaf([1.0, 2.0])
    assert run(body, x) is False
    assert numbers(x.grad) == [6.0, 12.0]


def test_what_does_not_depend_on_the_input_is_zero_or_an_error_if_strict(run):
    body = lambda x: functional.jacobian(lambda x: x.detach(), x)  # noqa: E731
    assert numbers(run(body, leaf([1.0, 2.0]))) == [[0.0, 0.0], [0.0, 0.0]]
    body = lambda x: functional.jacobian(lambda x: x.detach(), x, strict=True)  # noqa: E731
    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert str(caught.value) == (
        "Output 0 of the user-provided function does not require gradients. The outputs must be "
        "computed in a differentiable manner from the input when running in strict mode."
    )


def test_products_with_the_hessian(run):
    """Of sum(x³ y): rows [6xy, 3x²] and [3x², 0]."""

    def cubic(x, y):
        return (x**3 * y).sum()

    x, y, v, w = leaf([1.0, 2.0]), leaf([3.0, 4.0]), leaf([1.0, 1.0]), leaf([0.0, 2.0])
    for product in (functional.hvp, functional.vhp):
        value, both = run(lambda *a, f=product: f(cubic, a[:2], a[2:]), x, y, v, w)
        assert numbers([value, both]) == [35.0, [[18.0, 72.0], [3.0, 12.0]]]
        value, one = run(lambda x, f=product: f(lambda x: Square.apply(x).sum(), x), leaf([3.0]))
        assert numbers([value, one]) == [9.0, [2.0]]
        linear = run(lambda x, v, f=product: f(lambda x: x.sum(), x, v)[1], x, v)
        assert numbers(linear) == [0.0, 0.0]


def test_products_with_the_hessian_are_differentiable_with_create_graph(run):
    for product in (functional.hvp, functional.vhp):
        x, v = leaf([1.0, 2.0]), leaf([1.0, 1.0], False)

        def body(x, v, f=product):
            plain = f(lambda x: (x**3).sum(), x, v)[1]
            f(lambda x: (x**3).sum(), x, v, create_graph=True)[1].sum().backward()
            return plain.requires_grad

        assert run(body, x, v) is False
        assert numbers(x.grad) == [6.0, 6.0]


def test_forward_mode_uses_jvp(run):
    """Where jvp says something else than backward, it shows which one was asked."""

    class Ten(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

        @staticmethod
        def jvp(ctx, v):
            return v * 10

    def body(x):
        f = lambda x: (Ten.apply(x), x.sum())  # noqa: E731
        forward = functional.jacobian(f, x, vectorize=True, strategy="forward-mode")
        return forward, functional.jacobian(f, (x,), vectorize=True)

    forward, reverse = run(body, leaf([1.0, 2.0]))
    assert numbers(forward) == [[[10.0, 0.0], [0.0, 10.0]], [1.0, 1.0]]
    assert numbers(reverse) == [[[[2.0, 0.0], [0.0, 2.0]]], [[1.0, 1.0]]]


def test_the_hessian_by_forward_over_reverse(run):
    def body(x, y):
        return functional.hessian(
            lambda x, y: (Square.apply(x) * x * y).sum(),
            (x, y),
            vectorize=True,
            outer_jacobian_strategy="forward-mode",
        )

    (xx, xy), (yx, yy) = numbers(run(body, leaf([1.0]), leaf([2.0])))
    assert (xx, xy, yx, yy) == ([[12.0]], [[3.0]], [[3.0]], [[0.0]])


LINEAR = (
    "While computing the hessian, found that the jacobian of the user-provided function with "
    "respect to input 0 is independent of the input. This is not allowed in strict mode. You "
    "should ensure that your function is twice differentiable and that the jacobian depends on the "
    "inputs (this would be violated by a linear function for example)."
)


@pytest.mark.parametrize("name", ["hessian", "hvp", "vhp"])
def test_a_linear_function_has_no_hessian_if_strict(run, name):
    def body(x):
        vector = () if name == "hessian" else (x,)
        return getattr(functional, name)(lambda x: x.sum(), x, *vector, strict=True)

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert str(caught.value) == LINEAR


def test_an_independent_input_is_an_error_if_strict(run):
    body = lambda x, y: functional.jacobian(lambda x, y: x * 2, (x, y), strict=True)  # noqa: E731
    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]), leaf([1.0]))
    assert str(caught.value) == (
        "Output 0 of the user-provided function is independent of input 1. This is not allowed in "
        "strict mode."
    )


ERRORS = {
    "a hessian of a vector": (
        lambda x: functional.hessian(lambda x: x * 2, x),
        "The Tensor returned by the function given to hessian should contain a single element",
    ),
    "no vector": (
        lambda x: functional.vjp(lambda x: x * 2, x),
        "The vector v can only be None if the user-provided function returns a single Tensor with "
        "a single element.",
    ),
    "a vector of another shape": (
        lambda x: functional.vjp(lambda x: x * 2, x, x[:1]),
        "v has invalid size: should be lucid.Size([2]) but got lucid.Size([1]).",
    ),
    "two vectors for one input": (
        lambda x: functional.vjp(lambda x: x * 2, x, (x, x)),
        "The given v should contain a single Tensor.",
    ),
    "a product with the hessian of a vector": (
        lambda x: functional.hvp(lambda x: x * 2, x, x),
        "The Tensor returned by the function given to hvp should contain a single element",
    ),
    "a product with the hessian of two numbers": (
        lambda x: functional.vhp(lambda x: (x.sum(), x.sum()), x, x),
        "The function given to vhp should return a single Tensor",
    ),
    "no vector for a hessian": (
        lambda x: functional.vhp(lambda x: x.sum(), x),
        "The vector v can only be None if the input to the user-provided function is a single "
        "Tensor with a single element.",
    ),
    "strict and vectorized": (
        lambda x: functional.jacobian(lambda x: x * 2, x, strict=True, vectorize=True),
        "lucid.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported "
        "together. Please either set `strict=False` or `vectorize=False`.",
    ),
    "an unknown strategy": (
        lambda x: functional.jacobian(lambda x: x * 2, x, strategy="sideways"),
        'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function '
        'has more outputs than inputs, "forward-mode" tends to be more performant. Otherwise, '
        'prefer to use "reverse-mode".',
    ),
    "no tensor returned": (
        lambda x: functional.jacobian(lambda x: 3, x),
        "The outputs of the user-provided function given to jacobian must be either a Tensor or a "
        "tuple of Tensors but the given outputs of the user-provided function has type "
        "<class 'int'>.",
    ),
    "no tensor given": (
        lambda x: functional.jacobian(lambda x: x, 3),
        "The inputs given to jacobian must be either a Tensor or a tuple of Tensors but the given "
        "inputs has type <class 'int'>.",
    ),
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS.keys())
def test_errors_say_what_is_wrong(run, case):
    body, message = case
    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0, 2.0]))
    assert str(caught.value) == message
