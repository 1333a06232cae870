"""Special functions: the numbers of mpmath and SciPy, all derivatives, compiled as eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special

import lucid
from lucid import special as S
from lucid.autograd import gradcheck, gradgradcheck

WIDE = [-300.0, -35.5, -8.0, -2.5, -1e-3, 0.0, 1e-3, 0.5, 1.0, 3.75, 7.999, 8.0, 8.001, 20.0, 120.0]
CURVES: dict[str, tuple[Callable[..., Any], Any, list[float]]] = {
    "i0": (S.i0, lambda x: mpmath.besseli(0, x), WIDE),
    "i0e": (S.i0e, lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x), WIDE),
    "i1": (S.i1, lambda x: mpmath.besseli(1, x), WIDE),
    "i1e": (S.i1e, lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x), WIDE),
    "bessel_j0": (S.bessel_j0, lambda x: mpmath.besselj(0, x), WIDE),
    "bessel_j1": (S.bessel_j1, lambda x: mpmath.besselj(1, x), WIDE),
    "erfc": (S.erfc, mpmath.erfc, [-30.0, -2.0, 0.0, 0.3, 0.5, 0.51, 1.0, 4.0, 10.0, 26.0]),
    "erfcx": (
        S.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), [-5.0, -1.0, 0.0, 0.3, 2.0, 30.0],
    ),
}  # fmt: skip
PAIRS = [
    (0.1, 0.05),
    (0.5, 3.0),
    (2.0, 1.9),
    (5.0, 30.0),
    (100.0, 99.0),
    (3000.0, 3100.0),
    (1.0, 0.0),
]
SURFACES: dict[str, tuple[Callable[..., Any], Any, list[tuple[float, float]]]] = {
    "gammainc": (S.gammainc, scipy.special.gammainc, PAIRS),
    "gammaincc": (S.gammaincc, scipy.special.gammaincc, PAIRS),
    "zeta": (S.zeta, mpmath.zeta, [(2.0, 1.0), (1.01, 0.3), (4.5, 12.0), (30.0, 2.0), (3.0, 99.0)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CURVES)
def test_values_are_right_to_the_last_digits(name: str, run: Callable[..., Any]) -> None:
    function, exact, points = CURVES[name]
    expected = np.array([float(exact(mpmath.mpf(x))) for x in points])
    found = run(function, lucid.tensor(points, dtype=lucid.float64)).numpy()
    floor = 3e-16 if name.startswith("bessel") else 0  # which are near a zero here and there
    np.testing.assert_allclose(found, expected, rtol=3e-15 if name != "erfc" else 2e-13, atol=floor)
    with np.errstate(over="ignore"):
        single = run(function, lucid.tensor(points))
        assert single.dtype is lucid.float32
        expected = expected.astype(np.float32)
    kept = np.isfinite(expected) & (np.abs(expected) > 1e-37)
    loose = 2e-5 if name in ("i0", "i1", "erfc", "erfcx") else 4e-6
    np.testing.assert_allclose(single.numpy()[kept], expected[kept], rtol=loose, atol=2e-6)


@pytest.mark.parametrize("name", SURFACES)
def test_values_of_two_arguments_are_right(name: str, run: Callable[..., Any]) -> None:
    function, exact, points = SURFACES[name]
    expected = [float(exact(*point)) for point in points]
    first, second = lucid.tensor(points, dtype=lucid.float64).T
    np.testing.assert_allclose(run(function, first, second).numpy(), expected, rtol=2e-12)
    single = run(function, first.float(), second.float())
    assert single.dtype is lucid.float32
    np.testing.assert_allclose(single.numpy(), expected, rtol=2e-3 if name == "zeta" else 1e-4)


DIFFERENTIABLE: dict[str, tuple[Callable[..., Any], list[float]]] = {
    "i0": (S.i0, [-9.5, -2.0, 0.7, 8.5]),
    "i0e": (S.i0e, [-9.5, -2.0, 0.7, 8.5]),
    "i1": (S.i1, [-9.5, -2.0, 0.7, 8.5]),
    "i1e": (S.i1e, [-9.5, -2.0, 0.7, 8.5]),
    "bessel_j0": (S.bessel_j0, [-9.5, -2.0, 0.7, 12.5]),
    "bessel_j1": (S.bessel_j1, [-9.5, -2.0, 0.7, 12.5]),
    "erfc": (S.erfc, [-2.0, 0.2, 0.7, 2.5]),
    "erfcx": (S.erfcx, [-1.0, 0.2, 0.7, 12.5]),
    "gammainc": (lambda x: S.gammainc(lucid.tensor(2.5, dtype=lucid.float64), x), [0.3, 2.0, 9.0]),
    "gammaincc": (lambda x: S.gammaincc(lucid.tensor(2.5, dtype=lucid.float64), x), [0.3, 2.0]),
    "zeta": (lambda q: S.zeta(2.5, q), [0.3, 2.0, 15.0]),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_of_both_orders_are_the_numeric_ones(name: str) -> None:
    function, points = DIFFERENTIABLE[name]
    x = lucid.tensor(points, dtype=lucid.float64, requires_grad=True)
    gradcheck(function, (x,), check_forward_ad=True)
    gradgradcheck(function, (x,))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_compiled_gradient_is_eagers_and_vmap_runs(name: str) -> None:
    function, points = DIFFERENTIABLE[name]
    x = lucid.tensor(points, dtype=lucid.float64, requires_grad=True)

    def slope(x: lucid.Tensor) -> Any:
        return lucid.autograd.grad(function(x).sum(), x)[0]

    np.testing.assert_allclose(lucid.compile(slope)(x).numpy(), slope(x).numpy(), rtol=1e-12)
    mapped = lucid.vmap(function)(x.detach())
    np.testing.assert_allclose(mapped.numpy(), function(x.detach()).numpy(), rtol=1e-14)


@pytest.mark.parametrize("function", [S.i1, S.i1e, S.bessel_j1])
def test_odd_functions_have_slope_one_half_at_zero(function: Callable[..., Any]) -> None:
    x = lucid.zeros((), requires_grad=True)
    function(x).backward()
    assert x.grad is not None and x.grad.item() == pytest.approx(0.5)


def test_edges_of_the_incomplete_gamma_functions() -> None:
    inf, nan = float("inf"), float("nan")
    a = lucid.tensor([1.0, 0.0, 0.0, -1.0, 1.0, inf, 1.0, inf])
    x = lucid.tensor([inf, 1.0, 0.0, 1.0, -1.0, 1.0, 0.0, inf])
    expected = [1.0, 1.0, nan, nan, nan, 0.0, 0.0, nan]
    np.testing.assert_array_equal(S.gammainc(a, x).numpy(), expected)
    np.testing.assert_array_equal(S.gammaincc(a, x).numpy(), [1 - value for value in expected])


def test_edges_of_zeta() -> None:
    s = lucid.tensor([1.0, 0.5, 2.0, 2.0, 2.5])
    q = lucid.tensor([1.0, 1.0, 0.0, -1.0, -0.5])
    inf, nan = float("inf"), float("nan")
    np.testing.assert_array_equal(S.zeta(s, q).numpy(), [inf, nan, inf, inf, nan])


def test_derivatives_that_do_not_exist_are_named() -> None:
    a = lucid.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match="the derivative by the first argument is not impl"):
        lucid.igamma(a, lucid.ones(1)).backward()
    with pytest.raises(RuntimeError, match="zeta: the derivative by the first argument"):
        S.zeta(a + 1, lucid.ones(1)).backward()


def test_they_are_methods_too() -> None:
    x = lucid.tensor([0.5, 2.0])
    assert x.clone().i0_().tolist() == x.i0().tolist() == lucid.i0(x).tolist()
    two = lucid.full((2,), 2.0)
    assert two.igamma(x).tolist() == lucid.igamma(two, x).tolist()
    assert two.clone().igammac_(x).tolist() == two.igammac(x).tolist()


def test_large_orders_of_zeta_do_not_overflow_in_float32(run: Callable[..., Any]) -> None:
    s, q = lucid.tensor([200.0, 170.0, 180.0, 200.0]), lucid.tensor([1.0, 1.0, 30.0, 0.1])
    expected = [1.0, 1.0, 0.0, float("inf")]
    np.testing.assert_array_equal(run(S.zeta, s, q).numpy(), expected)


def test_shapes_that_do_not_broadcast_are_named(run: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"igammac: the shapes don't broadcast\n  input: f32\[2\]"):
        run(S.gammaincc, lucid.ones(2), lucid.ones(3))


@pytest.mark.parametrize("dtype", [lucid.float64, lucid.float32], ids=str)
def test_the_normal_quantile_is_right_for_the_smallest_areas(run: Callable[..., Any], dtype: Any):
    p = lucid.tensor([1e-30, 1e-20, 1e-16, 1e-5, 0.075, 0.3, 0.5, 0.93, 0.999], dtype=dtype)
    expected = scipy.special.ndtri(p.numpy().astype(np.float64))
    rtol = 1e-15 if dtype is lucid.float64 else 3e-7
    np.testing.assert_allclose(run(S.ndtri, p).numpy(), expected, rtol=rtol)
    ends = run(S.ndtri, lucid.tensor([0.0, 1.0, -0.1, 1.1], dtype=dtype)).numpy()
    np.testing.assert_array_equal(ends, [-np.inf, np.inf, np.nan, np.nan])


def test_the_normal_quantile_has_all_derivatives():
    p = lucid.tensor([1e-3, 0.075, 0.4, 0.6, 0.95], dtype=lucid.float64, requires_grad=True)
    assert gradcheck(S.ndtri, (p,), eps=1e-8, atol=1e-3)
    assert gradgradcheck(S.ndtri, (p[1:].detach().requires_grad_(),), eps=1e-8, atol=1e-2)


NEGATIVE = [-1e-300, -1e-30, -1e-10, -0.2, -1.3, -7.7, -20.3, -700.3]


@pytest.mark.parametrize("order", [-1, 0, 1, 2, 3, 8, 29])
def test_the_gamma_function_is_reflected_at_negative_numbers(
    order: int, run: Callable[..., Any]
) -> None:
    """Order -1 is `lgamma`, 0 `digamma`; only x - floor(x) would forget how small x was."""
    points = NEGATIVE if order < 2 else NEGATIVE[3:]
    x = lucid.tensor(points, dtype=lucid.float64, requires_grad=True)

    def step(x: lucid.Tensor) -> lucid.Tensor:
        y = lucid.lgamma(x) if order < 0 else lucid.polygamma(order, x)
        y.sum().backward()
        return y

    def exact(order: int) -> list[float]:
        with mpmath.workdps(60):
            if order < 0:
                return [float(mpmath.re(mpmath.loggamma(x))) for x in points]
            return [float(mpmath.polygamma(order, x)) for x in points]

    np.testing.assert_allclose(run(step, x).detach().numpy(), exact(order), rtol=1e-11)
    assert x.grad is not None
    inner = slice(None) if order < 1 else slice(3 if order < 2 else 0, None)  # others are infinite
    np.testing.assert_allclose(x.grad.numpy()[inner], exact(order + 1)[inner], rtol=1e-10)


def test_the_gamma_function_of_negative_integers_is_infinite(run: Callable[..., Any]) -> None:
    x = lucid.tensor([-1.0, -20.0, -1.7e308], dtype=lucid.float64)
    assert run(lucid.lgamma, x).tolist() == [math.inf] * 3


@pytest.mark.parametrize("order", [31, 100, 200, 3000])
def test_polygamma_of_a_large_order_is_right_where_its_factors_are_no_floats(
    order: int, run: Callable[..., Any]
) -> None:
    points = [0.5, 1.0, 3.0, 60.0, 100.0, 1100.0, 1e5, math.inf]
    found = run(lambda x: S.polygamma(order, x), lucid.tensor(points, dtype=lucid.float64)).numpy()
    exact = [mpmath.polygamma(order, x) for x in points[:-1]]
    np.testing.assert_allclose(found, [*map(float, exact), 0.0], rtol=1e-10)


def test_polygamma_of_an_order_beyond_all_counting_ends(run: Callable[..., Any]) -> None:
    """n! / x^(n+1) leaves the floats on both sides of x = n / e."""
    x = lucid.tensor([1.0, 2.0**38, 2.0**40])
    assert run(lambda x: S.polygamma(2**40, x), x).tolist() == [-math.inf, -math.inf, 0.0]
    assert run(lambda x: S.polygamma(2**40 + 1, x), x).tolist() == [math.inf, math.inf, 0.0]


def test_differences_end_where_there_are_no_neighbours(run: Callable[..., Any]) -> None:
    x = lucid.arange(6.0).reshape(2, 3)
    assert run(lambda x: lucid.diff(x, n=2**40), x).shape == (2, 0)
    assert run(lambda x: lucid.diff(x, n=2**40, dim=0), x).shape == (0, 3)
    assert run(lambda x: lucid.diff(x * x, n=2), x).tolist() == [[2.0], [2.0]]


def test_the_gamma_function_of_many_dimensions_is_a_product() -> None:
    x = lucid.tensor([8.5, 30.0], dtype=lucid.float64)
    for p in (1, 2, 7):
        expected = scipy.special.multigammaln(30.0, p)
        assert S.multigammaln(x, p)[1].item() == pytest.approx(expected, rel=1e-14)


def test_the_entropy_of_nothing_is_no_negative_zero() -> None:
    found = lucid.special.entr(lucid.tensor([0.0, -1.0, float("nan")])).numpy()
    assert found[0] == 0 and not np.signbit(found[0])
    assert found[1] == -np.inf and np.isnan(found[2])


AT_EQUAL_ELEMENTS: dict[str, tuple[Callable[..., Any], Any, Any]] = {  # as PyTorch's
    "logaddexp": (lambda x: lucid.logaddexp(x, x.flip(0)), [2.0, 2.0], [1.0, 1.0]),
    "logaddexp of one": (lambda x: lucid.logaddexp(x, x.detach()), [2.0, -1.0], [0.5, 0.5]),
    "logcumsumexp": (lambda x: x.logcumsumexp(0), [0.0, 0.0, 0.0], [11 / 6, 5 / 6, 1 / 3]),
    "fmax": (lambda x: lucid.fmax(x, x.detach()), [1.0, -2.0], [1.0, 1.0]),
    "fmin": (lambda x: lucid.fmin(x.detach(), x), [1.0, -2.0], [0.0, 0.0]),
    "atan2": (lambda x: lucid.atan2(x, x * 0), [0.0, 4.0], [0.0, 0.0]),
    "median": (lambda x: x.median(), [3.0, 1.0, 1.0, 1.0], [0.0, 1 / 3, 1 / 3, 1 / 3]),
    "nanmedian": (lambda x: x.nanmedian(), [2.0, math.nan, 2.0], [0.5, 0.0, 0.5]),
    "norm of order 3": (lambda x: x.norm(3, -1), [[0.0, 0.0], [0.0, -2.0]], [[0.0] * 2, [0.0, -1]]),
    "norm of order 1/2": (lambda x: x.norm(0.5, -1), [[0.0, 4.0]], [[0.0, 1.0]]),
    "norm of order -1": (lambda x: x.norm(-1, -1), [[0.0, 4.0], [2.0, 2]], [[0.0] * 2, [0.25] * 2]),
}


@pytest.mark.parametrize("name", AT_EQUAL_ELEMENTS)
def test_gradients_where_elements_are_equal_or_zero(name: str, run: Callable[..., Any]) -> None:
    function, values, expected = AT_EQUAL_ELEMENTS[name]
    x = lucid.tensor(values, dtype=lucid.float64, requires_grad=True)
    run(lambda x: function(x).sum().backward(), x)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-12, atol=0)


def test_a_sum_of_logarithms_has_its_second_derivative_where_both_are_equal() -> None:
    x, y = (lucid.tensor(values, dtype=lucid.float64) for values in ([1.0, 2.0], [1.0, 5.0]))
    second = lucid.func.grad(lambda x: lucid.func.grad(lambda x: lucid.logaddexp(x, y).sum())(x)[0])
    np.testing.assert_allclose(second(x).numpy(), [0.25, 0.0], rtol=1e-12)


def test_numbers_are_taken_apart_and_stepped_through_as_numpy_does(run: Callable[..., Any]) -> None:
    x = lucid.tensor([[6.0, -0.3, 0.0], [1e-310, np.inf, 3e300]], dtype=lucid.float64)
    x.requires_grad_()
    y = lucid.tensor([7.0, -1.0, -1.0], dtype=lucid.float64)

    def step() -> Any:
        mantissa, exponent = lucid.vmap(lucid.frexp)(x)
        (mantissa[:, :2] * lucid.tensor([1.0, 0.0])).sum().backward()
        return mantissa.detach(), exponent, x.grad, lucid.vmap(lambda row: row.nextafter(y))(x)

    mantissa, exponent, gradient, after = run(step)
    for one, other in zip((mantissa, exponent), np.frexp(x.detach().numpy()), strict=True):
        assert one.dtype.numpy == other.dtype and (one.numpy() == other).all()
    assert gradient[0, 0] == 2.0**-3 and gradient[1, 0] > 1e300  # which is 2 ** 1029 / 2
    assert (after.detach().numpy() == np.nextafter(x.detach().numpy(), y.numpy())).all()
    with pytest.raises(NotImplementedError, match="nextafter has no derivative"):
        x.nextafter(y).sum().backward()
