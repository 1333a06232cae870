"""Vector functions against mpmath, NumPy and SciPy: accuracy, edges and lane counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special

from lucid.codegen import vmath
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const

Array = np.ndarray[Any, Any]
Apply = Callable[..., Array]
ELEMENTS = {"float32": "float", "float64": "double", "int32": "i32", "int64": "i64", "bool": "i1"}

LANES = (1, 4, 8, 16)
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[Array], Array], Any]] = {
    "exp": (vmath.exp, np.exp, mpmath.exp),
    "expm1": (vmath.expm1, np.expm1, mpmath.expm1),
    "log": (vmath.log, np.log, mpmath.log),
    "log1p": (vmath.log1p, np.log1p, mpmath.log1p),
    "tanh": (vmath.tanh, np.tanh, mpmath.tanh),
    "sigmoid": (vmath.sigmoid, scipy.special.expit, lambda x: 1 / (1 + mpmath.exp(-x))),
    "erf": (vmath.erf, scipy.special.erf, mpmath.erf),
    "sin": (vmath.sin, np.sin, mpmath.sin),
    "cos": (vmath.cos, np.cos, mpmath.cos),
    "sqrt": (vmath.sqrt, np.sqrt, mpmath.sqrt),
    "rsqrt": (vmath.rsqrt, lambda x: 1 / np.sqrt(x), lambda x: 1 / mpmath.sqrt(x)),
    "reciprocal": (vmath.reciprocal, lambda x: 1 / x, lambda x: 1 / x),
}
POSITIVE = {"log", "sqrt", "rsqrt"}


def arguments(name: str, dtype: Any, count: int) -> Array:
    """Arguments of every size down to denormal ones, and many of size one."""
    rng = np.random.default_rng(0)
    info = np.finfo(dtype)
    exponents = rng.uniform(info.minexp - 20, info.maxexp, count)
    moderate = [rng.normal(0, s, count) for s in (0.1, 1.0, 4.0, 50.0, 300.0)]
    x = np.concatenate([2.0**exponents * rng.choice([-1, 1], count), *moderate]).astype(dtype)
    if name in POSITIVE:
        x = np.abs(x)
    if name == "log1p":
        x = np.where(x <= -1, -x, x)
    return x


def ulps(actual: Array, exact: Array) -> Array:
    """Error in units of the last place of `actual`'s format; exact overflow counts as none."""
    finite = np.finfo(actual.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(actual.dtype)
        unit = np.maximum(np.spacing(np.abs(rounded)), finite.smallest_subnormal)
        error = np.abs(actual.astype(np.float64) - exact) / unit.astype(np.float64)
    same = (actual == rounded) | (np.isnan(actual) & np.isnan(exact))
    return np.where(same, 0, error)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float_functions_are_within_four_ulps(name: str, lanes: int, apply: Apply) -> None:
    function, reference, _ = FUNCTIONS[name]
    x = arguments(name, np.float32, 20_000)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    error = ulps(apply(function, x, lanes=lanes), exact)
    assert error.max() <= 4, (x[error.argmax()], error.max())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_double_functions_are_within_four_ulps(name: str, apply: Apply) -> None:
    function, _, exact = FUNCTIONS[name]
    x = arguments(name, np.float64, 150)
    y = apply(function, x, lanes=8)
    with mpmath.workprec(1200 if name in ("sin", "cos") else 140):
        for argument, value in zip(x.tolist(), y.tolist(), strict=True):
            if name == "log1p" and argument == -1:
                continue
            true = exact(mpmath.mpf(argument))
            rounded = float(true)
            if rounded == value:
                continue
            unit = mpmath.mpf(float(np.spacing(abs(rounded))))
            assert abs(mpmath.mpf(value) - true) <= 4 * unit, (argument, value, rounded)


@pytest.mark.parametrize("lanes", (1, 4, 16))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_double_functions_are_the_same_for_any_lane_count(
    name: str, lanes: int, apply: Apply
) -> None:
    function = FUNCTIONS[name][0]
    x = arguments(name, np.float64, 200)
    same_bits(apply(function, x, lanes=lanes), apply(function, x, lanes=8))


def same_bits(actual: Array, expected: Array) -> None:
    """Equal values, signs of zeros included; any NaN equals any other."""
    np.testing.assert_array_equal(actual, expected)
    if actual.dtype.kind == "f":
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(actual[number]), np.signbit(expected[number]))


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_edges_are_numpys(name: str, dtype: Any, apply: Apply) -> None:
    """Zeros with their signs, infinities, NaN and the domain's border."""
    function, reference, _ = FUNCTIONS[name]
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1.0, -2.0], dtype)
    with np.errstate(all="ignore"):
        expected = reference(x)
    actual = apply(function, x, lanes=8)
    exact = (expected == 0) | ~np.isfinite(expected)
    same_bits(actual[exact], expected[exact])
    np.testing.assert_allclose(actual, expected, rtol=1e-6 if dtype == np.float32 else 1e-14)


def test_exp_is_the_same_without_an_exponent_instruction(apply: Apply) -> None:
    for dtype in (np.float32, np.float64):
        x = np.linspace(-750, 710, 4001).astype(dtype)
        same_bits(
            apply(vmath.exp, x, lanes=8, ldexp=False), apply(vmath.exp, x, lanes=8, ldexp=True)
        )


def test_sine_near_a_multiple_of_pi_keeps_its_digits(apply: Apply) -> None:
    """The double nearest to a multiple of pi / 2, and the largest one."""
    x = np.array([5.319372648326541416707296656673541083813475031793921822e255, 1.7e308, 1e22])
    with mpmath.workprec(1300):
        exact = np.array([float(mpmath.cos(mpmath.mpf(v))) for v in x.tolist()])
    np.testing.assert_allclose(apply(vmath.cos, x, lanes=4), exact, rtol=4e-16)


POWER_EDGES = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 2.5, -2.5, np.inf, -np.inf]
POWER_EDGES += [np.nan, 1e-40, -1e-40, 1e30, -1e30, 1e-310, 16777217.0, 1 + 2**-20]


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_power_has_the_edges_of_c(dtype: Any, lanes: int, apply: Apply) -> None:
    edges = np.array(POWER_EDGES).astype(dtype)
    x, y = (grid.ravel() for grid in np.meshgrid(edges, edges))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    actual = apply(vmath.power, x, y, lanes=lanes)
    exact = (expected == 0) | ~np.isfinite(expected)
    same_bits(actual[exact], expected[exact])
    tiny = float(np.finfo(dtype).smallest_subnormal)
    np.testing.assert_allclose(
        actual, expected, rtol=3e-7 if dtype == np.float32 else 1e-15, atol=2 * tiny
    )


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("dtype", (np.float32, np.float64))
@pytest.mark.parametrize("power", [0.5, 1.5, 2.5, 3.0, 4.0, -0.5, -1.5, -2.0, -2.5])
def test_a_constant_power_is_as_near_as_any(
    power: float, dtype: Any, lanes: int, apply: Apply
) -> None:
    """By products and roots: the edges of C, and two units in the last place at most."""

    def constant(b: FunctionBuilder, x: Val) -> Val:
        return vmath.power(b, x, const(x.type, power))

    edges = np.array(POWER_EDGES).astype(dtype)
    with np.errstate(all="ignore"):
        expected = np.power(edges, np.full_like(edges, power))
    actual = apply(constant, edges, lanes=lanes)
    exact = (expected == 0) | ~np.isfinite(expected)
    same_bits(actual[exact], expected[exact])
    x = np.exp(np.random.default_rng(4).normal(0, 6, 800)).astype(dtype)
    x[:2] = [1e25, 1e-25] if dtype == np.float32 else [1e125, 1e-120]
    with mpmath.workprec(200):
        true = [mpmath.power(mpmath.mpf(float(v)), power) for v in x]
        found = apply(constant, x, lanes=lanes)
        limit = 0.51 if dtype == np.float32 else 2.0
        normal = np.finfo(dtype)
        for value, wanted in zip(found.tolist(), true, strict=True):
            if not normal.tiny <= wanted <= normal.max:
                continue
            unit = float(np.spacing(dtype(abs(float(wanted)))))
            assert abs(mpmath.mpf(value) - wanted) <= limit * mpmath.mpf(unit)


def test_float_power_is_nearly_correctly_rounded(apply: Apply) -> None:
    rng = np.random.default_rng(1)
    x = np.exp(rng.normal(0, 3, 50_000)).astype(np.float32)
    y = rng.normal(0, 8, 50_000).astype(np.float32)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    assert ulps(apply(vmath.power, x, y, lanes=16), exact).max() < 0.51


def test_double_power_is_within_two_ulps(apply: Apply) -> None:
    rng = np.random.default_rng(2)
    x = np.exp(rng.normal(0, 3, 1500))
    y = rng.uniform(-740, 709, 1500) / np.log(x)
    x[:400], y[:400] = 1 + rng.normal(0, 1e-6, 400), rng.normal(0, 1e8, 400)
    z = apply(vmath.power, x, y, lanes=8)
    with mpmath.workprec(200):
        for a, e, value in zip(x.tolist(), y.tolist(), z.tolist(), strict=True):
            true = mpmath.power(a, e)
            unit = float(np.spacing(abs(float(true))))
            if math.isinf(value) and math.isinf(float(true)):
                continue
            assert abs(mpmath.mpf(value) - true) <= 2 * mpmath.mpf(unit), (a, e, value)


ROUNDING = {
    "floor": (vmath.floor, np.floor),
    "ceil": (vmath.ceil, np.ceil),
    "trunc": (vmath.trunc, np.trunc),
    "rint": (vmath.rint, np.rint),
    "sign": (vmath.sign, np.sign),
    "absolute": (vmath.absolute, np.abs),
}


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
@pytest.mark.parametrize("name", ROUNDING)
def test_rounding_and_sign_are_numpys(name: str, dtype: Any, apply: Apply) -> None:
    function, reference = ROUNDING[name]
    x = np.array([-0.3, 0.5, 1.5, 2.5, -2.5, 1e30, -7.7, 0.0, -0.0, np.inf, -np.inf, np.nan], dtype)
    for lanes in LANES:
        same_bits(apply(function, x, lanes=lanes), reference(x))


FLOAT_PAIRS = [0.0, -0.0, 1.0, -1.0, 0.7, -3.3, 7.5, 1e20, -1e20, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_maximum_and_minimum_keep_nan(dtype: Any, apply: Apply) -> None:
    x, y = (g.ravel() for g in np.meshgrid(np.array(FLOAT_PAIRS, dtype), np.array(FLOAT_PAIRS)))
    y = y.astype(dtype)
    np.testing.assert_array_equal(apply(vmath.maximum, x, y, lanes=8), np.maximum(x, y))
    np.testing.assert_array_equal(apply(vmath.minimum, x, y, lanes=8), np.minimum(x, y))


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_float_division_with_remainder_is_numpys(dtype: Any, lanes: int, apply: Apply) -> None:
    values = np.array(FLOAT_PAIRS, dtype)
    x, y = (g.ravel() for g in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        same_bits(apply(vmath.floor_divide, x, y, lanes=lanes), np.floor_divide(x, y))
        same_bits(apply(vmath.remainder, x, y, lanes=lanes), np.remainder(x, y))


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("dtype", (np.int32, np.int64))
def test_integer_division_cant_trap(dtype: Any, lanes: int, apply: Apply) -> None:
    info = np.iinfo(dtype)
    values = np.array([0, 1, -1, 2, -2, 7, -7, info.max, info.min, info.min + 1], dtype)
    x, y = (g.ravel() for g in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        same_bits(apply(vmath.integer.floor_divide, x, y, lanes=lanes), x // y)
        same_bits(apply(vmath.integer.remainder, x, y, lanes=lanes), x % y)


@pytest.mark.parametrize("dtype", (np.int32, np.int64))
def test_integer_power_wraps_as_numpys(dtype: Any, apply: Apply) -> None:
    values = np.array([0, 1, -1, 2, -3, 10, 77], dtype)
    x, y = (g.ravel() for g in np.meshgrid(values, np.array([0, 1, 2, 5, 31, 63], dtype)))
    same_bits(apply(vmath.integer.power, x, y, lanes=4), x**y)
    negative = apply(vmath.integer.power, values, np.full_like(values, -3), lanes=4)
    np.testing.assert_array_equal(negative, [0, 1, -1, 0, 0, 0, 0])


DTYPES = (np.float32, np.float64, np.int32, np.int64, np.bool_)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("result", DTYPES)
def test_conversions_are_those_of_astype(source: Any, result: Any, apply: Apply) -> None:
    x = np.array([0, 1, -1, 2.75, -3.5, 1e6, 123456, 0.25]).astype(source)
    element = ELEMENTS[np.dtype(result).name]
    for lanes in (1, 8):
        y = apply(lambda b, v: vmath.convert(b, v, element), x, lanes=lanes, result=result)
        same_bits(y, x.astype(result))


def test_conversion_of_numbers_out_of_range_is_defined(apply: Apply) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30])
    y = apply(lambda b, v: vmath.convert(b, v, "i32"), x, lanes=4, result=np.int32)
    info = np.iinfo(np.int32)
    np.testing.assert_array_equal(y, [0, info.max, info.min, info.max])
