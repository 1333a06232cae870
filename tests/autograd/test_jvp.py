"""Custom Functions in forward mode: their own jvp, or the one derived from their backward."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from custom_functions import define
from tangents import f, same, tangent_of

import lucid
from lucid.autograd import Function, forward_ad
from lucid.autograd.function_forward import NO_RULE

Run = Callable[..., Any]
NOT_DERIVED = re.escape(NO_RULE) + r"\n  Fn: no jvp could be derived from its backward"


class FuncFwd(Function):
    """x y**2, with a derivative for each mode and tensors saved for each."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
        return x * y * y

    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        return g * y * y, 2 * g * x * y

    @staticmethod
    def jvp(ctx, a, b):
        x, y = ctx.saved_tensors
        return a * y * y + 2 * x * y * b


class Derived(Function):
    """The same without a jvp; saves what forward computed."""

    @staticmethod
    def forward(ctx, x, y):
        squared, product = y * y, x * y
        ctx.save_for_backward(squared, product)
        return x * squared

    @staticmethod
    def backward(ctx, g):
        squared, product = ctx.saved_tensors
        return g * squared, 2 * g * product


@pytest.mark.parametrize("function", [FuncFwd, Derived])
def test_a_function_has_a_tangent_by_its_own_rule_or_by_its_backward(
    run: Run, function: Any
) -> None:
    def body(x: Any, y: Any, v: Any, w: Any) -> Any:
        with forward_ad.dual_level():
            dx, dy = forward_ad.make_dual(x, v), forward_ad.make_dual(y, w)
            both = forward_ad.unpack_dual(function.apply(dx, dy)).tangent
            one = forward_ad.unpack_dual(function.apply(x, dy)).tangent
            return both, one

    x, y, v, w = f(1.0, 2.0), f(3.0, -1.0), f(0.5, 1.0), f(2.0, 4.0)
    both, one = run(body, x, y, v, w)
    same(both, (v * y * y + 2 * x * y * w).numpy())
    same(one, (2 * x * y * w).numpy())


@pytest.mark.parametrize("function", [FuncFwd, Derived])
def test_a_function_nests_in_both_modes(run: Run, function: Any) -> None:
    def body(x: Any, y: Any) -> Any:
        def value(x: Any, y: Any) -> Any:
            return function.apply(x, y).sum()

        hessian = lucid.func.hessian(value, argnums=1)(x, y)
        third = lucid.func.jacrev(lucid.func.jacfwd(lucid.func.jacfwd(value, 1), 0), 1)(x, y)
        return hessian, third

    hessian, third = run(body, f(1.0, 2.0), f(3.0, -1.0))
    same(hessian, np.diag([2.0, 4.0]))
    expected = np.zeros((2, 2, 2))
    expected[0, 0, 0] = expected[1, 1, 1] = 2.0
    same(third, expected)


def test_jvp_gets_zeros_or_none_for_what_has_no_tangent(run: Run) -> None:
    def jvp(ctx: Any, *tangents: Any) -> Any:
        ctx.seen.append(tangents)
        return tangents[0]

    def plain(ctx: Any, x: Any, y: Any, seen: list[Any]) -> Any:
        ctx.seen = seen
        return x * y

    def bare(ctx: Any, x: Any, y: Any, seen: list[Any]) -> Any:
        ctx.set_materialize_grads(False)
        return plain(ctx, x, y, seen)

    def body(x: Any) -> Any:
        seen: list[Any] = []
        for forward in (plain, bare):
            function = define(forward, jvp=staticmethod(jvp))
            tangent_of(lambda d, function=function: function.apply(d, x, seen), x, x)
        return [tangents[1:] for tangents in seen]

    def with_integers(x: Any) -> Any:
        seen: list[Any] = []
        function = define(plain, jvp=staticmethod(jvp))
        indices = lucid.tensor([1, 2])
        tangent_of(lambda d: function.apply(d, indices, seen), x, x)
        return seen[0][1:]

    (zeros, nothing), rest = run(body, f(1.0, 2.0))
    assert run(with_integers, f(1.0, 2.0)) == (None, None)
    assert zeros.tolist() == [0.0, 0.0]
    assert nothing is None
    assert rest == (None, None)


def test_jvp_is_not_called_without_a_tangent(run: Run) -> None:
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise AssertionError

    function = define(lambda ctx, x: x * 2, jvp=staticmethod(jvp))

    def body(x: Any) -> Any:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(function.apply(x)).tangent

    assert run(body, f(1.0)) is None


def test_what_is_saved_for_forward_has_no_tangent_in_jvp(run: Run) -> None:
    seen: list[Any] = []
    note = seen.append  # a trace can't see that it changes state

    def jvp(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        note(forward_ad.unpack_dual(x * x).tangent)
        return x * x * g

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_forward(x)
        ctx.save_for_backward(x * 3)
        return x * 2

    function = define(forward, jvp=staticmethod(jvp))
    same(run(lambda x, v: tangent_of(function.apply, x, v), f(3.0), f(1.0)), [9.0])
    assert seen == [None]


def test_none_from_jvp_is_a_zero_tangent(run: Run) -> None:
    one = define(lambda ctx, x: (x * 2, x * 3), jvp=staticmethod(lambda ctx, g: (None, g * 3)))
    none = define(lambda ctx, x: x * 2, jvp=staticmethod(lambda ctx, g: None))

    def body(x: Any, v: Any) -> Any:
        return *tangent_of(one.apply, x, v), tangent_of(none.apply, x, v)

    for found, expected in zip(run(body, f(1.0), f(1.0)), (0.0, 3.0, 0.0), strict=True):
        same(found, [expected])


def test_none_from_jvp_is_no_tangent_of_an_output_that_has_no_derivative(run: Run) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        marked = x * 3
        ctx.mark_non_differentiable(marked)
        return x * 2, marked, x.argmax()

    function = define(forward, jvp=staticmethod(lambda ctx, g: (g * 2, None, None)))
    first, marked, place = run(lambda x, v: tangent_of(function.apply, x, v), f(1.0), f(1.0))
    same(first, [2.0])
    assert marked is None and place is None


def test_an_in_place_function_changes_the_tangent_in_place(run: Run) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    own = define(forward, jvp=staticmethod(lambda ctx, g: g.mul_(2)))
    derived = define(forward, lambda ctx, g: g * 2)

    def body(x: Any, v: Any) -> Any:
        found = []
        for function in (own, derived):
            with forward_ad.dual_level():
                d = forward_ad.make_dual(x, v) * 1
                y = function.apply(d)
                found += [forward_ad.unpack_dual(y).tangent, forward_ad.unpack_dual(d).tangent]
                view = (d * 1)[:1]
                function.apply(view)
                found.append(forward_ad.unpack_dual(view).tangent)
        return found

    for found in zip(run(body, f(1.0, 2.0), f(3.0, 4.0)), [6.0, 6.0, 12.0] * 2, strict=True):
        assert found[0][0].item() == found[1]


def two(ctx: Any, x: Any) -> Any:
    return x * 2, x * 3


def marked(ctx: Any, x: Any) -> Any:
    y = x * 1
    ctx.mark_non_differentiable(y)
    return x * 2, y


def dirty(ctx: Any, x: Any) -> Any:
    x.mul_(2)
    ctx.mark_dirty(x)
    return x


SIZES = (
    "Trying to set a forward gradient that has a different size than that of the original Tensor, "
    "this is not supported. Tensor is of size [2] while the given forward gradient is of size []."
)
REFUSED = {
    "too few": (
        two,
        lambda ctx, g: g,
        "Function Fn's jvp returned an invalid number of forward gradients (expected 2 but got 1)",
    ),
    "too many": (
        lambda ctx, x: x * 2,
        lambda ctx, g: (g, g),
        "Function Fn's jvp returned an invalid number of forward gradients (expected 1 but got 2)",
    ),
    "size": (lambda ctx, x: x * 2, lambda ctx, g: g.sum(), SIZES),
    "a number": (
        lambda ctx, x: x * 2,
        lambda ctx, g: 3.0,
        "Function Fn's jvp: expected Variable or None (got float) for grad output 0.",
    ),
    "a list": (
        lambda ctx, x: x * 2,
        lambda ctx, g: [g],
        "Function Fn's jvp: expected Variable or None (got list) for grad output 0.",
    ),
    "not differentiable": (
        marked,
        lambda ctx, g: (g, g),
        "Function Fn's jvp returned a gradient at position 1, but the corresponding forward output "
        "is not a differentiable Tensor. You should return None at that position instead.",
    ),
    "a bool": (
        lambda ctx, x: (x * 2, x > 0),
        lambda ctx, g: (g, g),
        "Function Fn's jvp returned a gradient at position 1, but the corresponding forward output "
        "is not a differentiable Tensor. You should return None at that position instead.",
    ),
    "no view of the input": (
        lambda ctx, x: x,
        lambda ctx, g: g * 1,
        "Function Fn: A custom Function's forward is returning a view (or an input as-is) but the "
        "jvp is not returning a view.",
    ),
    "a view of something else": (
        lambda ctx, x: x.view(2, 1),
        lambda ctx, g: g.clone().view(2, 1),
        "Function Fn: A custom Function is returning a view but the jvp is not returning a view of "
        "the given grad input.",
    ),
    "not in place": (
        dirty,
        lambda ctx, g: g * 2,
        "Function Fn: An inplace custom Function is not modifying the forward mode gradients "
        "inplace. If the forward is modifying an input inplace, then the jvp function must modify "
        "the corresponding gradient inplace.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_jvp_returns_is_checked(run: Run, case: str) -> None:
    forward, jvp, message = REFUSED[case]
    function = define(forward, jvp=staticmethod(jvp))

    def body(x: Any, v: Any) -> Any:
        return tangent_of(lambda d: function.apply(d * 1), x, v)

    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}"):
        run(body, f(1.0, 2.0), f(1.0, 1.0))


def test_a_view_whose_jvp_returns_a_view_is_fine(run: Run) -> None:
    same_shape = define(lambda ctx, x: x, jvp=staticmethod(lambda ctx, g: g.view_as(g)))
    column = define(lambda ctx, x: x.view(2, 1), jvp=staticmethod(lambda ctx, g: g.view(2, 1)))

    def body(x: Any, v: Any) -> Any:
        return tangent_of(same_shape.apply, x, v), tangent_of(column.apply, x, v)

    flat, tall = run(body, f(1.0, 2.0), f(3.0, 4.0))
    same(flat, [3.0, 4.0])
    same(tall, [[3.0], [4.0]])


def test_a_function_without_any_derivative_says_so(run: Run) -> None:
    class Bare(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    message = (
        "You must implement the jvp function for custom autograd.Function to use it with forward "
        "mode AD. (Bare)"
    )
    with pytest.raises(NotImplementedError, match=f"^{re.escape(message)}$"):
        run(lambda x, v: tangent_of(Bare.apply, x, v), f(1.0), f(1.0))


def test_a_backward_that_is_differentiable_once_has_no_derived_tangent(run: Run) -> None:
    function = define(
        lambda ctx, x: x * 2, lucid.autograd.function.once_differentiable(lambda ctx, g: g * 2)
    )
    with pytest.raises(NotImplementedError, match=NOT_DERIVED):
        run(lambda x, v: tangent_of(function.apply, x, v), f(1.0), f(1.0))


def test_a_backward_on_arrays_has_no_derived_tangent(run: Run) -> None:
    def backward(ctx: Any, g: Any) -> Any:
        return lucid.from_numpy(g.numpy() * 2)

    function = define(lambda ctx, x: x * 2, backward)
    with pytest.raises(NotImplementedError, match=NOT_DERIVED):
        run(lambda x, v: tangent_of(function.apply, x, v), f(1.0), f(1.0))


def test_errors_in_jvp_are_the_users_own(run: Run) -> None:
    function = define(lambda ctx, x: x * 2, jvp=staticmethod(lambda ctx, g: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        run(lambda x, v: tangent_of(function.apply, x, v), f(1.0), f(1.0))
    same(run(lambda x, v: tangent_of(lambda d: d * 2, x, v), f(1.0), f(1.0)), [2.0])
