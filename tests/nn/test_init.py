"""Initial values: moments, bounds, structure."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import lucid
from lucid.nn import init

UNIFORM: dict[str, tuple[Callable[[lucid.Tensor], lucid.Tensor], float]] = {
    "xavier_uniform_": (init.xavier_uniform_, math.sqrt(6 / 500)),
    "xavier_uniform_ gain": (lambda t: init.xavier_uniform_(t, 2.0), 2 * math.sqrt(6 / 500)),
    "kaiming_uniform_": (init.kaiming_uniform_, math.sqrt(6 / 200)),
    "kaiming_uniform_ sqrt(5)": (lambda t: init.kaiming_uniform_(t, math.sqrt(5)), 200**-0.5),
    "kaiming_uniform_ fan_out": (
        lambda t: init.kaiming_uniform_(t, mode="fan_out", nonlinearity="relu"),
        math.sqrt(6 / 300),
    ),
}
NORMAL: dict[str, tuple[Callable[[lucid.Tensor], lucid.Tensor], float]] = {
    "normal_": (lambda t: init.normal_(t, 0.0, 0.3), 0.3),
    "xavier_normal_": (init.xavier_normal_, math.sqrt(2 / 500)),
    "kaiming_normal_": (init.kaiming_normal_, math.sqrt(2 / 200)),
}


@pytest.fixture
def weight() -> lucid.Tensor:
    lucid.manual_seed(11)
    return lucid.empty(300, 200, requires_grad=True)


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform(name: str, weight: lucid.Tensor) -> None:
    fill, bound = UNIFORM[name]
    assert fill(weight) is weight
    values = weight.detach().numpy()
    assert bound * 0.999 < np.abs(values).max() <= bound * 1.000001
    assert_allclose([values.mean(), values.std()], [0, bound / math.sqrt(3)], atol=0.01 * bound)
    assert weight.is_leaf


@pytest.mark.parametrize("name", NORMAL)
def test_normal(name: str, weight: lucid.Tensor) -> None:
    fill, std = NORMAL[name]
    values = fill(weight).detach().numpy()
    assert_allclose([values.mean(), values.std()], [0, std], atol=0.02 * std)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 2.0), (2.0, 3.0), (-9.0, -4.0)])
def test_trunc_normal_stays_inside(low: float, high: float, weight: lucid.Tensor) -> None:
    values = init.trunc_normal_(weight[:20], 0.0, 1.0, low, high).detach().numpy()
    assert low <= values.min() < values.max() <= high
    from scipy.stats import truncnorm

    expected = truncnorm(low, high)
    assert_allclose(values.mean(), expected.mean(), atol=4 * expected.std() / math.sqrt(4000))


def test_constants(weight: lucid.Tensor) -> None:
    assert (init.constant_(weight, 2.5) == 2.5).all()
    assert (init.ones_(weight) == 1).all()
    assert (init.zeros_(weight) == 0).all()
    assert_array_equal(init.eye_(lucid.empty(2, 3)).numpy(), np.eye(2, 3))


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 2, 3)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    matrix = init.orthogonal_(lucid.empty(shape, dtype=lucid.float64), 2.0).numpy()
    matrix = matrix.reshape(shape[0], -1) / 2
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    assert_allclose(gram, np.eye(len(gram)), atol=1e-12)


def test_gains() -> None:
    assert init.calculate_gain("relu") == math.sqrt(2)
    assert init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("leaky_relu", 1.0) == 1.0
    with pytest.raises(ValueError, match="Unsupported nonlinearity swish"):
        init.calculate_gain("swish")


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="fan in and fan out need at least 2 axes"):
        init.kaiming_uniform_(lucid.empty(3))
    with pytest.raises(ValueError, match="mode must be one of 'fan_in', 'fan_out', not 'fan'"):
        init.kaiming_uniform_(lucid.empty(3, 3), mode="fan")
    with pytest.raises(ValueError, match=r"normal_ expects std >= 0.0, but found std -1"):
        init.normal_(lucid.empty(3), std=-1)
    with pytest.raises(ValueError, match="takes tensors of 3, 4 or 5 axes"):
        init.dirac_(lucid.empty(3, 3))


def test_a_sparse_start_has_as_many_zeros_in_each_column() -> None:
    w = init.sparse_(lucid.empty(9, 50), 0.3, std=2.0)
    assert (w == 0).sum(0).tolist() == [3] * 50
    assert abs(w[w != 0].std().item() - 2.0) < 0.4
    assert (w == 0).any(1).all()  # not always the same rows
    with pytest.raises(ValueError, match="Only tensors with 2 dimensions"):
        init.sparse_(lucid.empty(3), 0.5)
