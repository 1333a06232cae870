"""Functions that compare elements with one another, of many: as NumPy does, in little memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid

RUNS = pytest.mark.parametrize("run", [lambda f: f, lucid.compile], ids=["eager", "compiled"])
DTYPES = [np.int64, np.float32, np.int8, np.bool_]
LARGE = 200_000  # a comparison of all with all would take 40 GB


def most_frequent(row: np.ndarray) -> tuple[Any, int]:
    values, counts = np.unique(row, return_counts=True)
    value = values[counts.argmax()]
    return value, int(np.flatnonzero(row == value)[-1])


@RUNS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 5, 50, 3000])
def test_mode_is_the_least_of_the_most_frequent(count: int, dtype: Any, run: Any) -> None:
    rows = np.random.default_rng(count).integers(0, max(2, count // 3), (3, count)).astype(dtype)
    values, indices = run(lucid.mode)(lucid.tensor(rows))
    expected = [most_frequent(row) for row in rows]
    assert [*zip(values.tolist(), indices.tolist(), strict=True)] == expected
    columns = lucid.mode(lucid.tensor(rows.T.copy()), 0, keepdim=True)
    assert columns[0].tolist() == [values.tolist()] and columns[1].tolist() == [indices.tolist()]


def test_mode_has_the_gradient_of_the_element_that_it_is() -> None:
    x = lucid.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 1.0]], requires_grad=True)
    lucid.mode(x)[0].sum().backward()
    assert x.grad.tolist() == [[0, 0, 1], [0, 1, 0]]


def test_mode_of_nans_is_what_is_there() -> None:
    nan = float("nan")
    value, index = lucid.mode(lucid.tensor([nan, nan, 1.0, 1.0]))
    assert (value.item(), index.item()) == (1, 3)
    value, index = lucid.mode(lucid.tensor([nan, nan]))
    assert np.isnan(value.item()) and index.item() == 0


@pytest.mark.parametrize("shape", [(40_000,), (300, 200), (1, 40_000), (40_000, 1), (5, 0), ()])
def test_equal_looks_at_every_element(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 9, shape).astype(np.float32)
    for array in (x, x.T, np.broadcast_to(x, (2, *shape))):
        given = lucid.from_numpy(array.copy())
        assert lucid.equal(given, lucid.from_numpy(array.copy()))
        for place in (0, array.size // 2, -1) if array.size else ():
            other = array.copy()
            other.reshape(-1)[place] = np.nan
            assert not lucid.equal(given, lucid.from_numpy(other))
            assert not lucid.equal(lucid.from_numpy(other), lucid.from_numpy(other))
    turned = lucid.from_numpy(x.T.copy()).mT if x.ndim > 1 else lucid.from_numpy(x)
    assert lucid.equal(turned, lucid.from_numpy(x))


@RUNS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 3, 32, 33, 100])
def test_isin_is_numpys(count: int, dtype: Any, run: Any) -> None:
    rng = np.random.default_rng(count)
    x, among = (rng.integers(0, 60, shape).astype(dtype) for shape in ((4, 50), count))
    for invert in (False, True):
        found = run(lambda x, y, invert=invert: lucid.isin(x, y, invert=invert))(
            lucid.tensor(x), lucid.tensor(among)
        )
        np.testing.assert_array_equal(found.numpy(), np.isin(x, among, invert=invert))


@RUNS
def test_a_nan_is_in_nothing(run: Callable[..., Any]) -> None:
    nan, inf = float("nan"), float("inf")
    x, among = lucid.tensor([nan, 1.0, inf, -inf]), lucid.tensor([nan, inf] * 20 + [1.0])
    assert run(lucid.isin)(x, among).tolist() == [False, True, True, False]


@RUNS
def test_large_ones_take_little_memory(run: Callable[..., Any]) -> None:
    x = lucid.arange(LARGE) % 1000
    x[7] = 3
    assert run(lucid.isin)(x, x[: LARGE // 2]).all()
    value, index = run(lucid.mode)(x)
    assert (value.item(), index.item()) == (3, LARGE - 997)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("batches", [((), ()), ((3,), ()), ((), (3,)), ((2, 1), (3,))])
def test_products_of_columns_and_rows_are_numpys(batches: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    column, row = (rng.integers(-5, 5, 300).astype(dtype) for _ in range(2))
    if dtype is not np.int64:
        column[:3], row[:3] = (-0.0, np.inf, np.nan), (-0.0, np.inf, np.nan)
    a = np.broadcast_to(column[:, None], (*batches[0], 300, 1)).copy()
    b = np.broadcast_to(row, (*batches[1], 1, 300)).copy()
    with np.errstate(all="ignore"):
        expected = a @ b
    found = (lucid.from_numpy(a) @ lucid.from_numpy(b)).numpy()
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == dtype and not np.signbit(found[found == 0]).any()


@pytest.mark.parametrize("shape", [(), (3,), (0, 3), (3, 0), (4, 5), (2, 3, 4), (64, 1, 2, 300)])
def test_the_places_of_what_is_not_zero_are_numpys(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(3).integers(-1, 2, shape)
    for given in (array, np.transpose(array)):
        x = lucid.from_numpy(np.asarray(given))
        np.testing.assert_array_equal(x.nonzero().numpy(), np.argwhere(x.numpy()))
        places = x.nonzero(as_tuple=True)
        for ours, numpys in zip(places, np.nonzero(np.atleast_1d(x.numpy())), strict=True):
            np.testing.assert_array_equal(ours.numpy(), numpys)
