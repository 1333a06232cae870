"""Forward mode: tangents of every op, dual tensors, writes and views, custom Functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from custom_functions import define
from ir.op_cases import differentiable_ops, filled, named

import lucid
from lucid.autograd import Function, forward_ad
from lucid.autograd.function_forward import NO_RULE
from lucid.ir.op import Op, Sample
from lucid.ir.types import f64
from lucid.tensor.core import of_array

Run = Callable[..., Any]
NOT_DERIVED = re.escape(NO_RULE) + r"\n  Fn: no jvp could be derived from its backward"


def f(*numbers: float) -> lucid.Tensor:
    return lucid.tensor(list(numbers), dtype=lucid.float64)


def tangent_of(body: Callable[..., Any], x: lucid.Tensor, v: lucid.Tensor) -> Any:
    """The tangents of what `body` returns for the dual of `x` and `v`."""
    with forward_ad.dual_level():
        result = body(forward_ad.make_dual(x, v))
        if isinstance(result, tuple):
            return tuple(forward_ad.unpack_dual(y).tangent for y in result)
        return forward_ad.unpack_dual(result).tangent


def same(found: Any, expected: Any) -> None:
    assert found is not None
    np.testing.assert_allclose(
        found.detach().numpy(), np.asarray(expected), rtol=1e-6, atol=1e-8, strict=True
    )


# ---------------------------------------------------------------------- every op


def smooth_samples(op: Op) -> list[Sample]:
    """Samples with drawn operands, and of any other dtype than those that the cast takes."""
    found = [s for s in op.samples if any(isinstance(x, tuple) for x in s.operands)]
    if op.name == "cast":
        found = [s for s in found if s.attributes["dtype"] is f64]
    return found


@pytest.mark.parametrize("op", [o for o in differentiable_ops() if o.kind != "random"], ids=named)
def test_the_tangent_of_an_op_is_its_directional_derivative(
    op: Op, rng: np.random.Generator
) -> None:
    """J v is a central difference in float64, and <J v, u> = <v, J^T u>."""
    samples = smooth_samples(op)
    assert samples
    for sample in samples:
        arrays = filled(sample, f64, rng)
        moving = [i for i, x in enumerate(sample.operands) if isinstance(x, tuple)]
        vs = {i: rng.normal(size=arrays[i].shape) for i in moving}

        def at(step: float, arrays: Any = arrays, vs: Any = vs, sample: Any = sample) -> Any:
            moved = [np.asarray(x + step * vs[i]) if i in vs else x for i, x in enumerate(arrays)]
            return op.evaluate(*moved, **sample.attributes)

        def function(*moved: Any, arrays: Any = arrays, vs: Any = vs, sample: Any = sample) -> Any:
            parts = iter(moved)
            operands = [next(parts) if i in vs else of_array(x) for i, x in enumerate(arrays)]
            return op(*operands, **sample.attributes)

        primals = tuple(of_array(arrays[i]) for i in moving)
        tangents = tuple(of_array(vs[i]) for i in moving)
        value, found = lucid.func.jvp(function, primals, tangents)
        expected = (at(1e-6) - at(-1e-6)) / 2e-6
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-7)
        u = of_array(rng.normal(size=value.shape))
        cotangents = lucid.func.vjp(function, *primals)[1](u)
        pairs = zip(cotangents, tangents, strict=True)
        np.testing.assert_allclose(
            (found * u).sum().item(), sum((c * v).sum().item() for c, v in pairs), atol=1e-9
        )


def test_one_operand_with_a_tangent_is_enough() -> None:
    x, v = f(1.0, 2.0), f(1.0, -1.0)
    same(tangent_of(lambda d: d * f(3.0, 4.0), x, v), [3.0, -4.0])
    same(tangent_of(lambda d: f(3.0, 4.0) / d, x, v), [-3.0, 1.0])


def test_what_does_not_depend_on_a_dual_has_no_tangent(run: Run) -> None:
    def body(x: Any, v: Any) -> Any:
        with forward_ad.dual_level():
            d = forward_ad.make_dual(x, v)
            nothing = [forward_ad.unpack_dual(y).tangent for y in (x, x * 2, d > 0, d.detach())]
            return nothing

    assert run(body, f(1.0), f(1.0)) == [None] * 4


# ---------------------------------------------------------------------- levels


def test_a_dual_tensor_unpacks_into_its_parts(run: Run) -> None:
    def body(x: Any, v: Any) -> Any:
        with forward_ad.dual_level():
            return tuple(forward_ad.unpack_dual(forward_ad.make_dual(x, v)))

    primal, tangent = run(body, f(1.0, 2.0), f(3.0, 4.0))
    same(primal, [1.0, 2.0])
    same(tangent, [3.0, 4.0])


def test_tangents_end_with_the_level(run: Run) -> None:
    def body(x: Any) -> Any:
        with forward_ad.dual_level():
            y = forward_ad.make_dual(x, x) * 2
        after = forward_ad.unpack_dual(y)
        with forward_ad.dual_level():
            return after.primal is y, after.tangent, forward_ad.unpack_dual(y).tangent

    assert run(body, f(1.0)) == (True, None, None)


def test_the_level_ends_with_an_exception_too(run: Run) -> None:
    def body(x: Any) -> Any:
        with pytest.raises(ZeroDivisionError), forward_ad.dual_level():
            1 / 0
        with forward_ad.dual_level():
            return x * 2

    same(run(body, f(1.0)), [2.0])


def test_dual_level_is_a_decorator(prepared: Run) -> None:
    @forward_ad.dual_level()
    def body(x: Any, v: Any) -> Any:
        return forward_ad.unpack_dual(forward_ad.make_dual(x, v) * 3).tangent

    step = prepared(body)
    same(step(f(1.0), f(2.0)), [6.0])
    same(step(f(1.0), f(3.0)), [9.0])


OUTSIDE = (
    "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
    "enter_dual_level() first."
)
SIZE = (
    "Trying to set a forward gradient that has a different size than that of the original Tensor, "
    "this is not supported. Tensor is of size [2] while the given forward gradient is of size [3]."
)
TWICE = (
    "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level "
    "0 is not supported."
)


def test_make_dual_says_what_is_wrong(run: Run) -> None:
    run(make_duals_wrongly, f(1.0, 2.0))


def make_duals_wrongly(x: Any) -> None:
    with pytest.raises(RuntimeError, match=f"^{re.escape(OUTSIDE)}$"):
        forward_ad.make_dual(x, x)
    with pytest.raises(RuntimeError, match=r"^Dual level must be a positive number\.$"):
        forward_ad.exit_dual_level()
    with forward_ad.dual_level():
        with pytest.raises(RuntimeError, match=f"^{re.escape(SIZE)}$"):
            forward_ad.make_dual(x, f(1.0, 2.0, 3.0))
        with pytest.raises(
            ValueError, match=r"^Expected primal to be floating point, but got: lucid\.int64$"
        ):
            forward_ad.make_dual(lucid.tensor([1, 2]), x)
        with pytest.raises(TypeError, match=r"^make_dual: tangent must be a Tensor, not float$"):
            forward_ad.make_dual(x, 1.0)  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match=f"^{re.escape(TWICE)}$"):
            forward_ad.make_dual(forward_ad.make_dual(x, x), x)
        with (
            pytest.raises(
                RuntimeError, match=r"^Nested forward mode AD is not supported at the moment$"
            ),
            forward_ad.dual_level(),
        ):
            pass


# ---------------------------------------------------------------------- writes and views


def test_writes_and_views_keep_tangents_right(run: Run) -> None:
    def body(x: Any, v: Any) -> Any:
        with forward_ad.dual_level():
            d = forward_ad.make_dual(x, v)
            base = lucid.zeros(4, dtype=lucid.float64)
            early = base[1:3]
            base[2] = d[0] * 10
            base[:2].add_(d[1:])
            late = base[2:]
            base.mul_(2)
            base[3] = 5.0
            parts = (base, early, early * base[1:3])
            found = [forward_ad.unpack_dual(y).tangent for y in parts]
            return *found, forward_ad.unpack_dual(late).primal

    whole, early, product, late = run(body, f(1.0, 2.0, 3.0), f(0.5, -1.0, 2.0))
    same(whole, [-2.0, 4.0, 10.0, 0.0])
    same(early, [4.0, 10.0])
    same(product, [2 * 6 * 4.0, 2 * 20 * 10.0])
    same(late, [20.0, 5.0])


def test_overwriting_with_a_constant_clears_the_tangent(run: Run) -> None:
    def body(d: Any) -> Any:
        y = d * 1
        y.fill_(7.0)
        z = d * 1
        z[0] = 3.0
        return y, z

    cleared, half = run(lambda x, v: tangent_of(body, x, v), f(1.0, 2.0), f(1.0, 1.0))
    assert cleared is None
    same(half, [0.0, 1.0])


def test_the_given_tangent_is_not_written(run: Run) -> None:
    v = f(1.0, 1.0)
    body = lambda x, v: tangent_of(lambda d: d.mul_(3), x, v)  # noqa: E731
    same(run(body, f(1.0, 2.0), v), [3.0, 3.0])
    same(v, [1.0, 1.0])


def test_a_dual_of_a_leaf_cannot_be_written_in_grad_mode(run: Run) -> None:
    x = f(1.0).requires_grad_()
    message = "a view of a leaf Variable that requires grad is being used in an in-place operation."
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}"):
        run(lambda x, v: tangent_of(lambda d: d.mul_(2), x, v), x, f(1.0))


# ---------------------------------------------------------------------- with reverse mode


def test_reverse_over_forward_and_forward_over_reverse(run: Run) -> None:
    def body(x: Any, v: Any) -> Any:
        x = x.detach().requires_grad_()
        with forward_ad.dual_level():
            d = forward_ad.make_dual(x, v)
            tangent = forward_ad.unpack_dual((d.exp() * d.sin()).sum()).tangent
            (outer,) = lucid.autograd.grad(tangent, x)
            y = (d.exp() * d.sin()).sum()
            (first,) = lucid.autograd.grad(y, d, create_graph=True)
            return outer, forward_ad.unpack_dual(first).tangent

    x, v = f(0.3, -1.0), f(2.0, 1.0)
    expected = 2 * np.exp(x.numpy()) * np.cos(x.numpy()) * v.numpy()
    for found in run(body, x, v):
        same(found, expected)


# ---------------------------------------------------------------------- custom Functions


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
    function = define(lambda ctx, x: (x * 2, x * 3), jvp=staticmethod(lambda ctx, g: (None, g * 3)))
    first, second = run(lambda x, v: tangent_of(function.apply, x, v), f(1.0), f(1.0))
    assert first is None
    same(second, [3.0])


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


def test_a_backward_on_arrays_has_no_derived_tangent() -> None:
    def backward(ctx: Any, g: Any) -> Any:
        return lucid.from_numpy(g.numpy() * 2)

    function = define(lambda ctx, x: x * 2, backward)
    with pytest.raises(NotImplementedError, match=NOT_DERIVED):
        tangent_of(function.apply, f(1.0), f(1.0))


def test_errors_in_jvp_are_the_users_own(run: Run) -> None:
    function = define(lambda ctx, x: x * 2, jvp=staticmethod(lambda ctx, g: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        run(lambda x, v: tangent_of(function.apply, x, v), f(1.0), f(1.0))
    same(run(lambda x, v: tangent_of(lambda d: d * 2, x, v), f(1.0), f(1.0)), [2.0])
