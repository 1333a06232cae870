"""lucid's numbers are PyTorch's, eager and compiled: see data/parity_cases.py for the cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from parity_cases import CASES, DTYPES, Arrays, Case
from recording import load

import lucid

RECORDED = load(Path(__file__).parent / "data" / "torch.npz")

# Relative to the largest entry of an array. Torch's own float32 and float64 results are 1.3e-6
# apart after 20 steps; the float64 one is small enough to tell where an epsilon stands.
TOLERANCE = {"float32": 1e-5, "float64": 1e-11}


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float, what: str) -> None:
    """Compare dtype, shape and values, NaN included."""
    assert actual.dtype == expected.dtype, what
    assert actual.shape == expected.shape, what
    finite = np.abs(expected[np.isfinite(expected)])
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=tolerance * max(finite, default=1.0), err_msg=what
    )


def expected_results(case: Case, dtype: str) -> Arrays:
    """What torch gave, by result."""
    prefix = f"{case.name}/{dtype}/"
    return {k.removeprefix(prefix): v for k, v in RECORDED.items() if k.startswith(prefix)}


# Compiled, cases have the dtypes in turn: test_lowering.py compiles each op for both.
RUNS = [
    pytest.param(case, mode, dtype, id=f"{case.name}-{mode}-{dtype}")
    for i, case in enumerate(CASES)
    for j, dtype in enumerate(DTYPES)
    for mode in ("eager", "compiled")
    if mode == "eager" or i % 2 == j
]


@pytest.mark.parametrize(("case", "mode", "dtype"), RUNS)
def test_numbers_are_those_of_torch(case: Case, mode: str, dtype: str) -> None:
    expected = expected_results(case, dtype)
    assert expected, "not recorded: run tests/data/record_torch.py"
    decorator = lucid.compile if mode == "compiled" else lambda step: step
    actual = case.run(lucid, decorator, dtype)
    assert actual.keys() == expected.keys()
    for result, value in expected.items():
        assert_close(actual[result], value, TOLERANCE[dtype], result)


def test_nothing_recorded_is_left_out() -> None:
    assert {key.split("/")[0] for key in RECORDED} == {case.name for case in CASES}


def test_a_difference_is_found() -> None:
    with pytest.raises(AssertionError):
        assert_close(np.array([1.0, 2.0]), np.array([1.0, 2.0001]), 1e-5, "")
    with pytest.raises(AssertionError):
        assert_close(np.array([np.nan]), np.array([1.0]), 1e-5, "")
    with pytest.raises(AssertionError):
        assert_close(np.zeros((2, 1)), np.zeros((1, 2)), 1e-5, "")
    with pytest.raises(AssertionError):
        assert_close(np.zeros(2), np.zeros(2, np.float32), 1e-5, "")
