"""lucid.autograd.functional: Jacobians, Hessians, and products with them."""

from __future__ import annotations

import pytest
from custom_functions import Square, leaf, numbers

from lucid.autograd import functional


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
