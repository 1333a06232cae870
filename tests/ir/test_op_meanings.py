"""What ops mean at the edges: NaN, infinities, -0.0, integer ends, kinks; how exact they are."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from ir.op_cases import Taped, filled, gradients, standing_ops
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from lucid.ir import ops
from lucid.ir.op import Op
from lucid.ir.ops import contraction
from lucid.ir.types import bool_, f32, f64, i32, i64, u32

NAN, INF = math.nan, math.inf
I32_MIN, I32_MAX = -(2**31), 2**31 - 1


def assert_same(found: np.ndarray, expected: ArrayLike) -> None:
    """Equal, with the sign of zero."""
    wanted = np.asarray(expected, found.dtype)
    np.testing.assert_array_equal(found, wanted)
    if found.dtype.kind == "f":
        number = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found)[number], np.signbit(wanted)[number])


def apply(name: str, *operands: ArrayLike, **attributes: Any) -> np.ndarray:
    op: Op = getattr(ops, name)
    return op.evaluate(*map(np.asarray, operands), **attributes)


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("neg", ([0.0, NAN],), [-0.0, NAN]),
        ("abs", ([-0.0, -INF, NAN],), [0.0, INF, NAN]),
        ("sign", ([-2.0, 0.0, 3.0, NAN],), [-1.0, 0.0, 1.0, NAN]),
        ("div", ([1.0, -1.0, 0.0], 0.0), [INF, -INF, NAN]),
        ("floor_div", ([7.0, -7.0, 7.0, 1.0], [2.0, 2.0, -2.0, 0.0]), [3.0, -4.0, -4.0, INF]),
        ("remainder", ([7.0, -7.0, 7.0, 1.0], [4.0, 4.0, -4.0, 0.0]), [3.0, 1.0, -1.0, NAN]),
        ("pow", ([0.0, -8.0, 4.0, NAN, INF], [0.0, 1 / 3, 0.5, 0.0, -1.0]), [1, NAN, 2, 1, 0]),
        ("maximum", ([1.0, NAN, 1.0], [2.0, 1.0, NAN]), [2.0, NAN, NAN]),
        ("minimum", ([1.0, NAN, 1.0], [2.0, 1.0, NAN]), [1.0, NAN, NAN]),
        ("clamp", ([-2.0, 0.5, 3.0, NAN], -1.0, 1.0), [-1.0, 0.5, 1.0, NAN]),
        ("clamp", ([-2.0, 0.5, 3.0], 1.0, -1.0), [-1.0, -1.0, -1.0]),
        ("clamp", ([-2.0, 0.5], NAN, [1.0, -1.0]), [NAN, NAN]),
        ("log", ([-1.0, 0.0, INF],), [NAN, -INF, INF]),
        ("log1p", ([-2.0, -1.0, -0.0],), [NAN, -INF, -0.0]),
        ("expm1", ([-INF, -0.0, 1000.0],), [-1.0, -0.0, INF]),
        ("sqrt", ([-1.0, -0.0, INF],), [NAN, -0.0, INF]),
        ("rsqrt", ([0.0, -0.0, INF, -1.0],), [INF, -INF, 0.0, NAN]),
        ("reciprocal", ([0.0, -0.0, -INF],), [INF, -INF, -0.0]),
        ("sin", ([-0.0, INF],), [-0.0, NAN]),
        ("tanh", ([-0.0, INF, -INF],), [-0.0, 1.0, -1.0]),
        ("sigmoid", ([0.0, 1000.0, -1000.0, INF, -INF, NAN],), [0.5, 1, 0, 1, 0, NAN]),
        ("erf", ([-0.0, INF, -INF, 30.0, NAN],), [-0.0, 1.0, -1.0, 1.0, NAN]),
        ("round", ([0.5, 1.5, 2.5, -0.5, -1.5],), [0.0, 2.0, 2.0, -0.0, -2.0]),
        ("trunc", ([1.7, -1.7, -0.3],), [1.0, -1.0, -0.0]),
        ("floor", ([-0.3, -0.0, 2.0],), [-1.0, -0.0, 2.0]),
        ("ceil", ([-0.3, 0.2, NAN],), [-0.0, 1.0, NAN]),
    ],
)
def test_floats_at_the_edges(
    name: str, operands: tuple[ArrayLike, ...], expected: ArrayLike
) -> None:
    assert_same(apply(name, *operands), expected)


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("floor_div", ([7, -7, 7, -7, 5], [2, 2, -2, -2, 0]), [3, -4, -4, 3, 0]),
        ("remainder", ([7, -7, 7, -7, 5], [4, 4, -4, -4, 0]), [3, 1, -1, -3, 0]),
        ("floor_div", ([I32_MIN], [-1]), [I32_MIN]),
        ("remainder", ([I32_MIN], [-1]), [0]),
        ("add", ([I32_MAX], [1]), [I32_MIN]),
        ("abs", ([I32_MIN, -3],), [I32_MIN, 3]),
        ("pow", ([2, -3, 0, 7], [10, 3, 0, 0]), [1024, -27, 1, 1]),
        ("pow", ([2, -1, -1, 1, 0], [-1, -3, -2, -5, -1]), [0, -1, 1, 1, 0]),
        ("shift_left", ([1, 1, 1, 1], [0, 31, 32, -1]), [1, I32_MIN, 0, 0]),
        ("shift_right", ([-8, -8, 8, -8], [1, 40, 40, -1]), [-4, -1, 0, -1]),
        ("bit_not", ([0, -1],), [-1, 0]),
    ],
)
def test_integers_at_the_edges(
    name: str, operands: tuple[ArrayLike, ...], expected: ArrayLike
) -> None:
    found = apply(name, *(np.asarray(x, np.int32) for x in operands))
    assert found.dtype == np.int32
    assert_same(found, expected)


def test_comparisons_follow_ieee() -> None:
    a, b = [1.0, NAN, NAN, 0.0], [NAN, 1.0, NAN, -0.0]
    for name, last in (("eq", True), ("le", True), ("ge", True), ("lt", False), ("gt", False)):
        assert_same(apply(name, a, b), [False, False, False, last])
    assert_same(apply("ne", a, b), [True, True, True, False])


@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_a_float_becomes_the_nearest_integer_that_there_is(source: type) -> None:
    x = np.array([NAN, INF, -INF, 1e30, -1e30, 2.9, -2.9], source)
    assert_same(apply("cast", x, dtype=i32), [0, I32_MAX, I32_MIN, I32_MAX, I32_MIN, 2, -2])
    ends = 2**63 - 1, -(2**63)
    assert_same(apply("cast", x, dtype=i64), [0, *ends, *ends, 2, -2])
    assert_same(apply("cast", x, dtype=u32), [0, 2**32 - 1, 0, 2**32 - 1, 0, 2, 0])
    assert_same(apply("cast", x, dtype=bool_), [True] * 7)


def test_other_casts() -> None:
    assert_same(apply("cast", [2**32 + 5, -1], dtype=u32), [5, 2**32 - 1])
    assert_same(apply("cast", [2**31, -(2**31) - 1], dtype=i32), [I32_MIN, I32_MAX])
    assert_same(apply("cast", [1e300, -0.0, 1e-300], dtype=f32), [INF, -0.0, 0.0])
    assert_same(apply("cast", [True, False], dtype=f64), [1.0, 0.0])
    assert_same(apply("cast", [0.0, -0.0, 0.1], dtype=bool_), [False, False, True])


def test_a_nan_wins_reductions() -> None:
    x = [[1.0, NAN, 3.0], [4.0, 2.0, 4.0]]
    assert_same(apply("amax", x, axes=(1,)), [NAN, 4.0])
    assert_same(apply("amin", x, axes=(0, 1)), NAN)
    assert_same(apply("argmax", x, axis=1), [1, 0])
    assert_same(apply("argmin", x, axis=1), [1, 1])


def test_reductions_of_nothing() -> None:
    empty = np.zeros((0, 2), np.float32)
    assert_same(apply("sum", empty, axes=(0,)), [0.0, 0.0])
    assert_same(apply("prod", empty, axes=(0,)), [1.0, 1.0])
    assert_same(apply("any", empty.astype(bool), axes=(0,)), [False, False])
    assert_same(apply("all", empty.astype(bool), axes=(0,)), [True, True])


def test_sorting_is_stable_and_nan_is_the_greatest() -> None:
    x = np.array([2.0, NAN, 1.0, NAN, -0.0, 0.0, 2.0])
    assert_same(apply("sort", x, axis=0, descending=False), [-0.0, 0.0, 1, 2, 2, NAN, NAN])
    assert_same(apply("argsort", x, axis=0, descending=False), [4, 5, 2, 0, 6, 1, 3])
    assert_same(apply("sort", x, axis=0, descending=True), [NAN, NAN, 2, 2, 1, -0.0, 0.0])
    assert_same(apply("argsort", x, axis=0, descending=True), [1, 3, 0, 6, 2, 4, 5])


def test_a_slice_may_run_backwards_and_an_empty_one_stays_empty() -> None:
    x = np.arange(5)
    assert_same(apply("slice", x, starts=(4,), stops=(-1,), steps=(-2,)), [4, 2, 0])
    assert apply("slice", x, starts=(-1,), stops=(-1,), steps=(-1,)).shape == (0,)
    assert np.shares_memory(x, apply("slice", x, starts=(1,), stops=(3,), steps=(1,)))
    updated = apply("update_slice", x, [9, 8, 7], starts=(4,), stops=(-1,), steps=(-2,))
    assert_same(updated, [7, 1, 8, 3, 9])


def test_equal_indices_accumulate_or_the_last_one_stays() -> None:
    index = [1, -2, 1]  # all the same element
    base, source = [10.0, 20.0, 30.0], [1.0, 2.0, 4.0]
    assert_same(apply("index_add", base, index, source, axis=0), [10.0, 27.0, 30.0])
    assert_same(apply("index_set", base, index, source, axis=0), [10.0, 4.0, 30.0])
    assert_same(apply("scatter_add", base, index, source, axis=0), [10.0, 27.0, 30.0])
    assert_same(apply("scatter", base, index, source, axis=0), [10.0, 4.0, 30.0])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_indexing_means_what_numpy_means(axis: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 4, 5))
    index = rng.integers(-3, 3, (2, 2))
    taken = apply("take", x, index, axis=axis)
    assert_same(taken, np.take(x, index, axis))
    expected = np.moveaxis(x, axis, 0).copy()
    source = rng.normal(size=taken.shape)
    np.add.at(expected, index, np.moveaxis(source, (axis, axis + 1), (0, 1)))
    added = apply("index_add", x, index, source, axis=axis)
    np.testing.assert_allclose(added, np.moveaxis(expected, 0, axis), rtol=1e-12)
    along = rng.integers(-3, 3, x.shape)
    assert_same(apply("gather", x, along, axis=axis), np.take_along_axis(x, along, axis))
    unique = np.argsort(x, axis)
    put = x.copy()
    np.put_along_axis(put, unique, 2 * x, axis)
    assert_same(apply("scatter", x, unique, 2 * x, axis=axis), put)


# Kinks: as PyTorch has them


def gradient(name: str, *operands: ArrayLike, **attributes: Any) -> list[np.ndarray | None]:
    leaves = [Taped(np.asarray(x, np.float64)) for x in operands]
    y = leaves[0].emit(getattr(ops, name), leaves, attributes)
    found = gradients(y, Taped(np.ones(y.shape)), leaves)
    return [None if g is None else g.array for g in found]


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("abs", ([0.0, -0.0, -2.0],), [[0.0, 0.0, -1.0]]),
        ("sign", ([1.0, 0.0],), [[0.0, 0.0]]),
        ("round", ([1.0, 0.5],), [[0.0, 0.0]]),
        ("maximum", ([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]), [[0.5, 0, 1], [0.5, 1, 0]]),
        ("maximum", ([NAN, 1.0], [1.0, NAN]), [[1.0, 1.0], [1.0, 1.0]]),
        ("minimum", ([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]), [[0.5, 1, 0], [0.5, 0, 1]]),
        (
            "clamp",
            ([-1.0, 0.0, 0.5, 1.0, 2.0, NAN], [0.0] * 6, [1.0] * 6),
            [[0, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0]],
        ),
        ("clamp", ([-1.0, 3.0, 4.0], [3.0] * 3, [1.0] * 3), [[0, 0, 0], [0, 0, 0], [1, 1, 1]]),
        (
            "pow",
            ([0.0, 0.0, 0.0, 0.0, -2.0, 2.0, 0.0, 0.0], [2.0, 0.0, 1.0, 3.0, 2.0, 0.0, 0.5, -1.0]),
            [[0, 0, 1, 0, -4, 0, INF, -INF], [0, 0, 0, 0, NAN, math.log(2), 0, -INF]],
        ),
        ("remainder", ([5.5, -5.5], [-2.0, 3.0]), [[1.0, 1.0], [3.0, 2.0]]),
        ("floor_div", ([5.5, -5.5], [-2.0, 3.0]), [None, None]),
        ("sqrt", ([0.0, 4.0],), [[INF, 0.25]]),
    ],
)
def test_derivatives_at_kinks(
    name: str, operands: tuple[ArrayLike, ...], expected: list[ArrayLike | None]
) -> None:
    for found, wanted in zip(gradient(name, *operands), expected, strict=True):
        if wanted is None or found is None:
            assert found is wanted
        else:
            np.testing.assert_array_equal(found, wanted)


def test_ties_of_an_extreme_share() -> None:
    for name in ("amax", "amin"):
        (found,) = gradient(name, [[1.0, 3.0, 3.0], [1.0, 1.0, 1.0]], axes=(0, 1))
        ties = 2 if name == "amax" else 4
        assert found is not None
        assert found.sum() == 1.0
        assert (found == 1 / ties).sum() == ties


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([2.0, 3.0, 4.0], [12.0, 8.0, 6.0]),
        ([0.0, 3.0, 4.0], [12.0, 0.0, 0.0]),
        ([0.0, 3.0, 0.0], [0.0, 0.0, 0.0]),
        ([5.0], [1.0]),
        ([], []),
    ],
)
def test_a_product_is_differentiated_at_zeros(x: list[float], expected: list[float]) -> None:
    (found,) = gradient("prod", x, axes=(0,))
    np.testing.assert_array_equal(found, expected)


def test_a_product_of_two_zeros_has_a_second_derivative() -> None:
    x = Taped(np.array([0.0, 3.0, 0.0]))
    (g,) = gradients(y := ops.prod(x, axes=(0,)), ops.one(y), [x])
    (second,) = gradients(g, Taped(np.array([1.0, 0.0, 0.0])), [x])
    np.testing.assert_array_equal(second.array, [0.0, 0.0, 3.0])


def test_running_products_of_zeros_have_derivatives_of_any_order() -> None:
    """Of y = x0, x0 x1, x0 x1 x2 where two factors are 0."""
    x = Taped(np.array([0.0, 3.0, 0.0]))
    g = Taped(np.array([1.0, 10.0, 100.0]))
    (first,) = gradients(ops.cumprod(x, axis=0), g, [x])
    np.testing.assert_array_equal(first.array, [31.0, 0.0, 0.0])
    (second,) = gradients(first, Taped(np.array([1.0, 0.0, 0.0])), [x])
    np.testing.assert_array_equal(second.array, [0.0, 10.0, 300.0])


def test_running_extremes_go_to_the_latest_and_nan_is_reached_anew() -> None:
    x = Taped(np.array([1.0, 3.0, 3.0, 2.0, NAN, 5.0, NAN]))
    y = ops.cummax(x, axis=0)
    np.testing.assert_array_equal(ops.reached(x, y, 0).array, [0, 1, 2, 2, 4, 4, 6])
    (found,) = gradients(y, Taped(np.arange(1.0, 8.0)), [x])
    np.testing.assert_array_equal(found.array, [1.0, 2.0, 7.0, 0.0, 11.0, 0.0, 7.0])


def test_running_logarithms_of_sums_of_infinities() -> None:
    x = Taped(np.array([-INF, -INF, 1.0, 1.0]))
    y = ops.cumlogsumexp(x, axis=0)
    np.testing.assert_allclose(y.array, [-INF, -INF, 1.0, 1.0 + math.log(2)])
    (found,) = gradients(y, Taped(np.array([0.0, 0.0, 1.0, 2.0])), [x])
    np.testing.assert_allclose(found.array, [0.0, 0.0, 2.0, 1.0])


@pytest.mark.parametrize("order", [1, 2, 3])
def test_powers_of_zero_have_finite_derivatives_of_any_order(order: int) -> None:
    x, exponent = Taped(np.array([0.0, 2.0])), Taped(np.array(2.0))
    y = ops.pow(x, exponent)
    for _ in range(order):
        (y,) = gradients(y, ops.ones_like(y), [x])
    expected = {1: [0.0, 4.0], 2: [2.0, 2.0], 3: [0.0, 0.0]}[order]
    np.testing.assert_allclose(y.array, expected, atol=1e-15)


def test_the_last_of_equal_indices_gets_the_cotangent() -> None:
    base, source = Taped(np.zeros(3)), Taped(np.ones(4))
    for op in (ops.index_set, ops.scatter):
        y = op(base, Taped(np.array([1, -2, 2, 1])), source, axis=0)
        found = gradients(y, Taped(np.array([2.0, 3.0, 4.0])), [base, source])
        np.testing.assert_array_equal(found[0].array, [2.0, 0.0, 0.0])
        np.testing.assert_array_equal(found[1].array, [0.0, 0.0, 4.0, 3.0])


# Exactness


EXACT = {
    "exp": (mpmath.exp, -80, 80),
    "expm1": (mpmath.expm1, -5, 5),
    "log": (mpmath.log, 1e-6, 1e6),
    "log1p": (mpmath.log1p, -0.9, 100),
    "sqrt": (mpmath.sqrt, 0, 1e6),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), 1e-6, 1e6),
    "sin": (mpmath.sin, -30, 30),
    "cos": (mpmath.cos, -30, 30),
    "tanh": (mpmath.tanh, -10, 10),
    "sigmoid": (lambda x: 1 / (1 + mpmath.exp(-x)), -80, 80),
    "erf": (mpmath.erf, -7, 7),
}


@pytest.mark.parametrize("dtype", [f32, f64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", EXACT)
def test_functions_are_exact_to_a_few_units_in_the_last_place(
    name: str, dtype: Any, rng: np.random.Generator
) -> None:
    exact, low, high = EXACT[name]
    x = rng.uniform(low, high, 300).astype(dtype.numpy)
    found = apply(name, x)
    with mpmath.workdps(40):
        wanted = [exact(mpmath.mpf(float(value))) for value in x]
        errors = [abs(mpmath.mpf(float(y)) - w) for y, w in zip(found, wanted, strict=True)]
    unit = np.spacing(np.abs(np.array([float(w) for w in wanted], dtype.numpy)))
    assert max(float(e) / float(u) for e, u in zip(errors, unit, strict=True)) <= 4


def test_erf_is_exact_to_one_unit_in_float64(rng: np.random.Generator) -> None:
    ends = [0.84375, 1.25, 1 / 0.35, 6.0, 1e-300, 1e-20]
    x = np.array([*ends, *np.nextafter(ends, 0), *rng.normal(size=200)])
    found = apply("erf", x)
    expected = np.array([math.erf(value) for value in x])
    assert (np.abs(found - expected) <= np.spacing(np.abs(expected))).all()


# The tape and the samples of these tests


def test_shape_operands_keep_to_their_domain(rng: np.random.Generator) -> None:
    for op in standing_ops():
        for sample in op.samples:
            for operand, array in zip(sample.operands, filled(sample, f64, rng), strict=True):
                if isinstance(operand, tuple) and sample.domain is not None and array.size:
                    assert sample.domain[0] <= array.min() <= array.max() <= sample.domain[1]


@pytest.mark.parametrize(
    "indices", ["nchwij,ocij->nohw", "nohw,nchwij->ocij", "bgkhwij,gokij->bgohw"]
)
@pytest.mark.parametrize("batch", [1, 3])
def test_products_with_windows_of_an_image_are_done_part_by_part(
    indices: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows lie on one another in memory, and a copy of all at once is large."""
    monkeypatch.setattr(contraction, "_MOST_COPIED", 50)
    rng = np.random.default_rng(0)
    sizes = {"n": batch, "b": batch, "c": 4, "g": 2, "k": 3, "o": 5, "h": 6, "w": 5, "i": 3, "j": 2}
    terms = indices.split("->")[0].split(",")
    operands = [rng.normal(size=[sizes[name] for name in term]) for term in terms]
    place = next(k for k, term in enumerate(terms) if term.endswith("hwij"))
    *outer, height, width, i, j = operands[place].shape
    image = rng.normal(size=(*outer, height + i - 1, width + j - 1))
    operands[place] = sliding_window_view(image, (i, j), axis=(-2, -1))
    expected = np.einsum(indices, *operands)
    found = ops.contract.evaluate(*operands, indices=indices)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
