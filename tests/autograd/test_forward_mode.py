"""Forward mode: tangents of every op, dual tensors, writes and views."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ir.op_cases import differentiable_ops, filled, named
from tangents import f, same, tangent_of

import lucid
from lucid.autograd import forward_ad
from lucid.ir.op import Op, Sample
from lucid.ir.types import f64
from lucid.tensor.core import of_array

Run = Callable[..., Any]


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
        with pytest.raises(TypeError, match=r"^unpack_dual: tensor must be a Tensor, not int$"):
            forward_ad.unpack_dual(5)  # type: ignore[arg-type]
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
