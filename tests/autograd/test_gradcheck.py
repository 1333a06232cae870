"""gradcheck and gradgradcheck: what they find, and how they say it."""

from __future__ import annotations

import numpy as np
import pytest
from custom_functions import Exp, Square, define, first_line, leaf, numbers

import lucid
from lucid.autograd import GradcheckError, gradcheck, gradgradcheck
from lucid.compiler.compiled import Compiled

Wrong = define(lambda ctx, x: x * 2, lambda ctx, g: g * 3)
WrongTwice = define(
    lambda ctx, x: (ctx.save_for_backward(x), x * x)[1],
    lambda ctx, g: 3 * g * ctx.saved_tensors[0].detach(),
)


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("fn", [Square, Exp])
def test_right_gradients_pass(run, fn, fast_mode):
    x = leaf([0.5, -1.0])
    assert gradcheck(lambda x: run(fn.apply, x), (x,), fast_mode=fast_mode)
    assert gradgradcheck(lambda x: run(fn.apply, x), (x,), fast_mode=fast_mode)


def test_a_backward_by_numpy_is_checked_without_its_history(prepared):
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return lucid.from_numpy(np.cos(x.numpy()) * grad.numpy())

    fn = define(lambda ctx, x: (ctx.save_for_backward(x), x.sin())[1], backward)
    assert gradcheck(prepared(fn.apply), (leaf([0.5, -1.0]),))


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_inside_of_a_compiled_function_it_runs_op_by_op(prepared, check):
    body = prepared(lambda fn, x: check(fn.apply, (x,)))
    x = leaf([0.5, -1.0])
    for _ in range(2):
        assert body(Square, x) is True
    with pytest.raises(GradcheckError):
        body(WrongTwice, x)
    if isinstance(body, lucid.compiler.Compiled):
        assert set(body.stats.eager_reasons) == {"gradcheck looks at the numbers of each gradient"}


def test_a_wrong_gradient_is_shown_beside_the_numerical_one(prepared):
    with pytest.raises(GradcheckError) as caught:
        gradcheck(prepared(Wrong.apply), (leaf([1.0, 2.0]),))
    assert str(caught.value) == (
        "Jacobian mismatch for output 0 with respect to input 0,\n"
        "numerical:tensor([[2.0000, 0.0000],\n        [0.0000, 2.0000]], dtype=lucid.float64)\n"
        "analytical:tensor([[3., 0.],\n        [0., 3.]], dtype=lucid.float64)\n"
    )


def test_fast_mode_shows_both_jacobians_as_well(prepared):
    with pytest.raises(GradcheckError) as caught:
        gradcheck(prepared(Wrong.apply), (leaf([1.0, 2.0]),), fast_mode=True)
    message = str(caught.value)
    assert message.startswith("Jacobian mismatch for output 0 with respect to input 0,\nnumerical:")
    assert "computed in fast mode. Below, we recompute" in message
    assert "The max per-element difference (slow mode) is: 1.0000000000" in message


def test_without_raise_exception_it_says_false(prepared):
    assert gradcheck(prepared(Wrong.apply), (leaf([1.0]),), raise_exception=False) is False


def test_eps_is_the_step_and_atol_and_rtol_are_what_may_differ(prepared):
    x = leaf([1.0, 2.0])
    wrong, fourth = prepared(Wrong.apply), prepared(lambda x: Square.apply(Square.apply(x)))
    assert gradcheck(wrong, (x,), atol=1.5)
    assert gradcheck(wrong, (x,), rtol=0.9)
    for tolerances in ({"atol": 0.9}, {"rtol": 0.2}):
        with pytest.raises(GradcheckError):
            gradcheck(wrong, (x,), **tolerances)
    assert gradcheck(fourth, (x,))
    with pytest.raises(GradcheckError) as caught:
        gradcheck(fourth, (leaf([1.0]),), eps=0.5)
    assert str(caught.value) == (
        "Jacobian mismatch for output 0 with respect to input 0,\n"
        "numerical:tensor([[5.]], dtype=lucid.float64)\n"
        "analytical:tensor([[4.]], dtype=lucid.float64)\n"
    )


def test_the_position_of_output_and_input_is_named(prepared):
    fn = define(lambda ctx, x, y: (x + y, x * y), lambda ctx, g, h: (g, g))
    with pytest.raises(GradcheckError) as caught:
        gradcheck(prepared(fn.apply), (leaf([2.0]), leaf([3.0])))
    assert first_line(caught) == "Jacobian mismatch for output 1 with respect to input 0,"


def test_some_input_must_require_grad(prepared):
    with pytest.raises(lucid.LucidError) as caught:
        gradcheck(prepared(Square.apply), (leaf([1.0], False),), raise_exception=False)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == (
        "gradcheck expects at least one input tensor to require gradient, but none of them have "
        "requires_grad=True."
    )


def test_single_precision_warns(prepared):
    x = lucid.ones(1, requires_grad=True)
    with pytest.warns(UserWarning) as caught:
        gradcheck(prepared(Square.apply), (x,), raise_exception=False)
    assert [str(warning.message) for warning in caught] == [
        "Input #0 requires gradient and is not a double precision floating point. This check will "
        "likely fail if all the inputs are not of double precision floating point. "
    ]


def test_inputs_whose_elements_share_memory_are_refused(prepared):
    x = leaf([1.0], False).expand(3).requires_grad_()
    with pytest.raises(RuntimeError) as caught:
        gradcheck(prepared(Square.apply), (x,))
    assert str(caught.value) == (
        "The 0th input has a dimension with stride 0. gradcheck only supports inputs that are "
        "non-overlapping to be able to compute the numerical gradients correctly. You should call "
        ".contiguous on the input before passing it to gradcheck."
    )


def test_outputs_without_gradient_must_be_constant(prepared):
    with pytest.raises(GradcheckError) as caught:
        gradcheck(prepared(lambda x: x.detach() * 2), (leaf([1.0]),))
    assert str(caught.value) == "Numerical gradient for function expected to be zero"
    assert gradcheck(prepared(lambda x: (x > 0).double()), (leaf([1.0]),))


def test_a_backward_that_varies_is_found_unless_tolerated():
    calls = []

    def backward(ctx, g):
        calls.append(1)
        return g * 2 * (1 + len(calls) * 1e-7)

    fn = define(lambda ctx, x: x * 2, backward)
    with pytest.raises(GradcheckError) as caught:
        gradcheck(fn.apply, (leaf([1.0]),))
    assert str(caught.value) == (
        "Backward is not reentrant, i.e., running backward with same input and grad_output "
        "multiple times gives different values, although analytical gradient matches numerical "
        "gradient.The tolerance for nondeterminism was 0.0."
    )
    assert gradcheck(fn.apply, (leaf([1.0]),), nondet_tol=1e-3)


def without_materialized(backward):
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2

    return define(forward, backward)


def test_missing_gradients_of_outputs_must_be_handled(prepared):
    careless = without_materialized(lambda ctx, g: g * 2)
    careful = without_materialized(lambda ctx, g: None if g is None else g * 2)
    x = leaf([1.0])
    assert gradcheck(prepared(careful.apply), (x,))
    assert gradcheck(prepared(careless.apply), (x,), check_undefined_grad=False)
    with pytest.raises(GradcheckError) as caught:
        gradcheck(prepared(careless.apply), (x,))
    assert str(caught.value) == (
        "Expected backward function to handle undefined output grads: gradients that nobody sent "
        "arrive as None. It raised TypeError: unsupported operand type(s) for *: 'NoneType' and "
        "'int'"
    )


def test_missing_gradients_of_outputs_must_mean_zeros(prepared):
    one = without_materialized(
        lambda ctx, g: (lucid.ones(1, dtype=lucid.float64) if g is None else g) * 2
    )
    with pytest.raises(GradcheckError) as caught:
        gradcheck(prepared(one.apply), (leaf([1.0]),))
    assert str(caught.value) == (
        "Expected all input grads to be undefined or zero when all output grads are undefined or "
        "zero."
    )


@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_check_forward_ad_looks_at_jvp(run, factor):
    fn = define(
        lambda ctx, x: x * 2, lambda ctx, g: g * 2, jvp=staticmethod(lambda ctx, t: t * factor)
    )
    x = leaf([1.0, 2.0])
    assert gradcheck(lambda x: run(fn.apply, x), (x,))

    def check():
        return gradcheck(lambda x: run(fn.apply, x), (x,), check_forward_ad=True)

    if factor == 2.0:
        assert check()
        return
    with pytest.raises(RuntimeError) as caught:
        check()
    assert first_line(caught) == (
        "Jacobian computed with forward mode mismatch for output 0 with respect to input 0,"
    )


def test_gradgradcheck_finds_a_wrong_second_derivative(prepared):
    fn = define(
        lambda ctx, x: (ctx.save_for_backward(x), x * x)[1],
        lambda ctx, g: 2 * g * ctx.saved_tensors[0].detach(),
    )
    assert gradcheck(prepared(fn.apply), (leaf([1.0]),))
    with pytest.raises(GradcheckError):
        gradgradcheck(prepared(fn.apply), (leaf([1.0]),))


def test_cotangents_may_be_given_to_gradgradcheck(prepared):
    assert gradgradcheck(prepared(Square.apply), (leaf([1.0, 2.0]),), (leaf([0.3, 0.4]),))


def test_other_arguments_are_passed_through(prepared):
    fn = define(lambda ctx, x, k: x * k, lambda ctx, g: (g * 3, None))
    x = leaf([1.0])
    assert gradcheck(prepared(fn.apply), (x, 3))
    assert x.grad is None
    assert numbers(x) == [1.0]


def test_something_must_be_checked(prepared):
    with pytest.raises(ValueError) as caught:
        gradcheck(prepared(Square.apply), (leaf([1.0]),), check_backward_ad=False)
    assert str(caught.value) == (
        "Expected at least one of check_forward_ad or check_backward_ad to be True"
    )
    with pytest.raises(ValueError) as caught:
        gradcheck(prepared(Square.apply), (leaf([1.0]),), check_batched_forward_grad=True)
    assert str(caught.value) == (
        "Setting check_batched_forward_grad=True requires check_forward_ad to be True"
    )


def two_modes(tangents, cotangents, **attributes):
    """x * 2 with a jvp and a backward of the given factors."""
    return define(
        lambda ctx, x: x * 2,
        lambda ctx, g: g * cotangents,
        jvp=staticmethod(lambda ctx, t: t * tangents),
        **attributes,
    )


def test_only_what_is_asked_for_is_checked(prepared):
    x = leaf([1.0, 2.0])
    only = {"check_forward_ad": True, "check_backward_ad": False}
    assert gradcheck(prepared(two_modes(2.0, 3.0).apply), (x,), **only)
    assert gradcheck(prepared(two_modes(3.0, 2.0).apply), (x,))
    assert not gradcheck(prepared(two_modes(3.0, 2.0).apply), (x,), **only, raise_exception=False)


def test_batched_gradients_and_tangents_are_checked(prepared):
    def rule(factor):
        return staticmethod(lambda info, in_dims, x: (x * factor, 0))

    x = leaf([1.0, 2.0])
    batched = {"check_batched_grad": True, "check_batched_forward_grad": True}
    assert gradcheck(prepared(Square.apply), (x,), **batched, check_forward_ad=True)

    wrong_only_in_batches = define(lambda ctx, x: x * 2, lambda ctx, g: g, vmap=rule(5.0))
    fn = define(lambda ctx, x: x * 2, lambda ctx, g: wrong_only_in_batches.apply(g))
    assert gradcheck(prepared(fn.apply), (x,))
    if isinstance(prepared(fn.apply), Compiled):  # whose backward runs for each example
        assert gradcheck(prepared(fn.apply), (x,), check_batched_grad=True)
    else:
        with pytest.raises(RuntimeError) as caught:
            gradcheck(prepared(fn.apply), (x,), check_batched_grad=True)
        assert first_line(caught) == (
            "While computing batched gradients, got: Jacobian mismatch for output 0 with respect "
            "to input 0,"
        )
    fn = define(
        lambda ctx, x: x * 2, jvp=staticmethod(lambda ctx, t: wrong_only_in_batches.apply(t))
    )
    only = {"check_forward_ad": True, "check_backward_ad": False}
    assert gradcheck(prepared(fn.apply), (x,), **only)
    with pytest.raises(RuntimeError) as caught:
        gradcheck(prepared(fn.apply), (x,), **only, check_batched_forward_grad=True)
    assert first_line(caught) == (
        "While computing batched forward gradients, got: Jacobian mismatch for output 0 with "
        "respect to input 0"
    )


def test_gradgradcheck_looks_forward_over_reverse(prepared):
    x = leaf([1.0, 2.0])
    assert gradgradcheck(prepared(Square.apply), (x,), check_fwd_over_rev=True)
    inner = two_modes(5.0, 2.0)
    fn = define(lambda ctx, x: x * 2, lambda ctx, g: inner.apply(g))
    assert gradgradcheck(prepared(fn.apply), (x,))
    assert not gradgradcheck(
        prepared(fn.apply), (x,), check_fwd_over_rev=True, raise_exception=False
    )
    with pytest.raises(
        ValueError,
        match=r"^Expected at least one of check_forward_ad or check_backward_ad to be True$",
    ):
        gradgradcheck(prepared(fn.apply), (x,), check_rev_over_rev=False)
