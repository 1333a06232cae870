"""Custom Functions under vmap: with a rule of their own, and without."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from custom_functions import define

import lucid
from lucid.autograd import Function
from lucid.func import grad, jacrev, jvp, vmap as mapped

Run = Callable[..., Any]
X = np.arange(6.0).reshape(2, 3)
SEEN: list[Any] = []
note = SEEN.append  # a trace can't see that it changes state


def tensor(array: Any = X) -> lucid.Tensor:
    return lucid.from_numpy(np.array(array))


class Scale(Function):
    """x * k with a rule that doubles, so that it shows."""

    @staticmethod
    def forward(x, k):
        return x * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.k = inputs
        ctx.save_for_backward(x, output)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        assert x.shape == y.shape == g.shape
        return g * ctx.k, None

    @staticmethod
    def jvp(ctx, v, _):
        (x,) = ctx.saved_tensors
        assert x.shape == v.shape
        return v * ctx.k * 5

    @staticmethod
    def vmap(info, in_dims, x, k):
        note((info, info.batch_size, info.randomness, in_dims, tuple(x.shape)))
        return 2 * Scale.apply(x, k).movedim(in_dims[0], -1), -1


def test_the_vmap_staticmethod_gets_info_axes_and_whole_tensors(run: Run) -> None:
    found = run(lambda x: mapped(lambda t: Scale.apply(t, 3), in_dims=1, out_dims=1)(x), tensor())
    np.testing.assert_array_equal(found.numpy(), 6 * X)
    info, size, randomness, in_dims, shape = SEEN.pop()
    assert (size, randomness, in_dims, shape) == (3, "error", (1, None), (2, 3))
    assert info == (3, "error")
    run(lambda x: mapped(lambda t: Scale.apply(t, 3), randomness="same")(x), tensor())
    assert SEEN.pop()[1:] == (2, "same", (0, None), (2, 3))


def test_the_vmap_staticmethod_is_used_under_other_transformations(run: Run) -> None:
    def body(x: Any) -> Any:
        each = lambda t: Scale.apply(t, 3)  # noqa: E731
        return (
            grad(lambda t: mapped(each)(t).sum())(x),
            mapped(grad(lambda t: each(t).sum()))(x),
            jvp(mapped(each), (x,), (x,))[1],
            mapped(lambda t: jvp(each, (t,), (t,))[1])(x),
            mapped(mapped(each))(lucid.stack([x, x])),
        )

    outside, inside, tangent, inner_tangent, nested = run(body, tensor())
    np.testing.assert_array_equal(outside.numpy(), np.full((2, 3), 6.0))
    np.testing.assert_array_equal(inside.numpy(), np.full((2, 3), 3.0))
    np.testing.assert_array_equal(tangent.numpy(), 30 * X)
    np.testing.assert_array_equal(inner_tangent.numpy(), 15 * X)
    np.testing.assert_array_equal(nested.numpy(), np.stack([12 * X] * 2))


def test_the_vmap_staticmethod_is_not_used_without_examples(run: Run) -> None:
    SEEN.clear()
    one = lambda t: t + Scale.apply(lucid.ones(3, dtype=lucid.float64), 3)  # noqa: E731
    run(lambda x: mapped(one)(x), tensor())
    assert SEEN == []


EXPECTED = (
    "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree "
    "structure compatible with the output. "
)
RULES: dict[str, tuple[Callable[..., Any], str]] = {
    "one": (lambda info, in_dims, x: x * 2, f"{EXPECTED}Got a {lucid.Tensor} instead"),
    "three": (lambda info, in_dims, x: (x * 2, 0, 1), f"{EXPECTED}Got 3 returns instead"),
    "dims": (
        lambda info, in_dims, x: (x * 2, (0, 1)),
        "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) "
        "tuple. Expected out_dims=(0, 1) to be compatible with the structure of `output`. out_dims "
        "has structure (*, *) but output has structure *.",
    ),
}


@pytest.mark.parametrize("case", RULES)
def test_what_the_vmap_staticmethod_returns_is_checked(run: Run, case: str) -> None:
    rule, message = RULES[case]
    function = define(lambda ctx, x: x * 2, vmap=staticmethod(rule))
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}"):
        run(lambda x: mapped(function.apply)(x), tensor())


def test_two_rules_are_one_too_many(run: Run) -> None:
    function = define(
        lambda ctx, x: x * 2,
        vmap=staticmethod(lambda info, in_dims, x: (x, 0)),
        generate_vmap_rule=True,
    )
    message = (
        "You tried to vmap over Fn, but it has both generate_vmap_rule=True and an overridden vmap "
        "staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap "
        "staticmethod to avoid ambiguity."
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        run(lambda x: mapped(function.apply)(x), tensor())


# ---------------------------------------------------------------------- derived


class Product(Function):
    """x @ w in one method; notes what it was asked for."""

    @staticmethod
    def forward(ctx, x, w):
        assert x.ndim == 1
        note(ctx.needs_input_grad)
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        assert x.ndim == g.ndim == 1
        return g @ w.T, x[:, None] * g[None, :]


@pytest.mark.parametrize("declared", [False, True])
def test_forward_and_backward_are_mapped_without_a_rule(run: Run, declared: bool) -> None:
    """Also in the one-method style. An input that the examples share gets the sum."""
    function = type("Product", (Product,), {"generate_vmap_rule": declared})
    w = tensor(np.arange(12.0).reshape(3, 4))

    def body(x: Any, w: Any) -> Any:
        layer = mapped(function.apply, in_dims=(0, None))
        return layer(x, w), *grad(lambda x, w: (layer(x, w) ** 2).sum(), (0, 1))(x, w)

    y, gx, gw = run(body, tensor(), w)
    np.testing.assert_allclose(y.numpy(), X @ w.numpy())
    np.testing.assert_allclose(gx.numpy(), 2 * X @ w.numpy() @ w.numpy().T)
    np.testing.assert_allclose(gw.numpy(), 2 * X.T @ X @ w.numpy())


def test_needs_input_grad_tells_of_derivatives_outside(run: Run) -> None:
    w = tensor(np.ones((3, 4)))
    layer = mapped(Product.apply, in_dims=(0, None))
    run(layer, tensor(), w)
    assert SEEN[-1] == (False, False)
    run(grad(lambda x: layer(x, w).sum()), tensor())
    assert SEEN[-1] == (True, False)
    run(grad(lambda w: layer(tensor(), w).sum()), w)
    assert SEEN[-1] == (False, True)
    run(lambda x: jvp(lambda x: layer(x, w), (x,), (x,)), tensor())
    assert SEEN[-1] == (True, False)


def test_gradients_of_a_shared_input_inside_are_of_each_example(run: Run) -> None:
    def body(x: Any, w: Any) -> Any:
        return mapped(grad(lambda w, x: Product.apply(x, w).sum()), in_dims=(None, 0))(w, x)

    found = run(body, tensor(), tensor(np.ones((3, 4))))
    np.testing.assert_allclose(found.numpy(), np.repeat(X[:, :, None], 4, 2))


def test_a_gradient_that_is_the_same_for_all_examples_counts_for_each(run: Run) -> None:
    constant = define(
        lambda ctx, x, w: (x * w).sum(),
        lambda ctx, g: (None, lucid.ones(1, dtype=lucid.float64)),
    )
    w = tensor(np.ones(1))
    layer = mapped(constant.apply, in_dims=(0, None))
    assert run(grad(lambda w: layer(tensor(), w).sum()), w).tolist() == [2.0]


def test_in_place_functions_are_mapped(run: Run) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    function = define(forward, lambda ctx, g: g * 20)

    def body(x: Any) -> Any:
        def each(t: Any) -> Any:
            copy = t * 1
            result = function.apply(copy)
            assert result is copy
            return (result * copy).sum()

        return mapped(each)(x), grad(lambda t: mapped(each)(t).sum())(x), mapped(grad(each))(x)

    value, outside, inside = run(body, tensor())
    np.testing.assert_allclose(value.numpy(), (4 * X * X).sum(1))
    np.testing.assert_allclose(outside.numpy(), 80 * X)
    np.testing.assert_allclose(inside.numpy(), 80 * X)


def test_outputs_of_all_kinds_are_mapped(run: Run) -> None:
    """A number, a marked output, an input as it is, an integer output, one twice."""

    def forward(ctx: Any, x: Any) -> Any:
        order = x.argsort(descending=True)
        marked, y = x * 10, x * 2
        ctx.mark_non_differentiable(marked)
        return y, marked, order, x, 5

    def backward(ctx: Any, g: Any, marked: Any, order: Any, same: Any, number: Any) -> Any:
        assert number is None
        assert order.shape == marked.shape == g.shape
        return g * 2 + same

    function = define(forward, backward)

    def body(x: Any) -> Any:
        def each(t: Any) -> Any:
            y, marked, order, same, number = function.apply(t)
            assert number == 5
            return y + marked + same + order

        return mapped(each)(x), grad(lambda t: mapped(each)(t).sum())(x), mapped(jacrev(each))(x)

    value, outside, inside = run(body, tensor())
    np.testing.assert_allclose(value.numpy(), 13 * X + np.array([2.0, 1.0, 0.0]))
    np.testing.assert_allclose(outside.numpy(), np.full((2, 3), 3.0))
    np.testing.assert_allclose(inside.numpy(), np.stack([3 * np.eye(3)] * 2))


def test_what_backward_returns_is_checked_for_each_example(run: Run) -> None:
    function = define(lambda ctx, x: x * 2, lambda ctx, g: (g, g))
    with pytest.raises(
        RuntimeError,
        match=r"^function FnBackward returned an incorrect number of gradients "
        r"\(expected 1, got 2\)\n",
    ):
        run(lambda x: grad(lambda t: mapped(function.apply)(t).sum())(x), tensor())


NO_RULE = (
    "You tried to vmap over Fn, but it does not have vmap support: it has no vmap staticmethod, "
    "and its {method} can't run on all examples at once. Please override and "
    "implement the vmap staticmethod."
)


def on_arrays(ctx: Any, x: Any) -> Any:
    return lucid.from_numpy(np.sin(x.numpy()))


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (on_arrays, "vmap: numpy() needs the data of one example, but all are computed at once"),
        (
            lambda ctx, x: x if x.sum() > 0 else -x,
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control "
            "flow. We don't support that yet.",
        ),
    ],
)
def test_a_forward_that_looks_at_data_needs_a_rule(
    run: Run, flag: bool, forward: Any, reason: str
) -> None:
    function = define(forward, generate_vmap_rule=flag)
    with pytest.raises(RuntimeError) as info:
        run(mapped(function.apply), tensor())
    assert str(info.value).split("\n")[:2] == [NO_RULE.format(method="forward"), reason]


def test_a_forward_on_arrays_is_mapped_by_its_rule(run: Run) -> None:
    function = define(on_arrays)

    def rule(info: Any, in_dims: Any, x: Any) -> Any:
        return function.apply(x), 0

    ruled = define(lambda ctx, x: function.apply(x), vmap=staticmethod(rule))
    np.testing.assert_allclose(run(mapped(ruled.apply), tensor()).numpy(), np.sin(X))


@pytest.mark.parametrize("outside", [False, True])
def test_a_backward_that_looks_at_data_needs_a_rule(run: Run, outside: bool) -> None:
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * float(x.sum())

    function = define(lambda ctx, x: (ctx.save_for_backward(x), x * x)[1], backward)
    total = lambda t: function.apply(t).sum()  # noqa: E731
    of_each, of_all = mapped(grad(total)), grad(lambda x: mapped(total)(x).sum())
    with pytest.raises(RuntimeError) as info:
        run(of_all if outside else of_each, tensor())
    assert str(info.value).startswith(f"{NO_RULE.format(method='backward')}\nvmap: ")


def test_nothing_is_kept_alive_by_a_mapped_call(run: Run) -> None:
    import gc
    import weakref

    function = define(
        lambda ctx, x: (lambda y: (ctx.save_for_backward(x, y), y)[1])(x * x),
        lambda ctx, g: g * 2 * ctx.saved_tensors[0],
    )
    gc.collect()
    gc.disable()
    try:
        x = tensor().requires_grad_()
        y = run(mapped(lambda t: function.apply(t)), x)
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()
