"""20 training steps of a net for each kind of custom Function: see data/custom_nets.py.

Compiled steps give what eager steps give, and both give PyTorch's recorded numbers.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from all_custom_nets import CASES, NETS, NetCase
from custom_nets import OPTIMIZERS
from parity_cases import DTYPES, STEPS, Arrays
from recording import load

import lucid

RECORDED = load(Path(__file__).parents[1] / "data" / "custom_nets.npz")

# Relative to the largest entry of an array, after 20 steps.
TOLERANCE = {"float32": 2e-5, "float64": 1e-11}


def recorded_results(case: NetCase) -> Arrays:
    """What torch gave, by result."""
    prefix = f"{case}/"
    return {k.removeprefix(prefix): v for k, v in RECORDED.items() if k.startswith(prefix)}


def assert_close(found: Arrays, expected: Arrays, tolerance: float, what: str) -> None:
    """Compare dtype, shape and values of all results."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, f"{what}: {name}"
        np.testing.assert_allclose(
            found[name],
            value,
            rtol=0,
            atol=tolerance * np.abs(value).max(),
            err_msg=f"{what}: {name}",
        )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_steps_are_eager_steps_and_both_are_those_of_torch(case: NetCase) -> None:
    steps: list[Any] = []

    def compiled(step: Any) -> Any:
        steps.append(lucid.compile(step))
        return steps[-1]

    eager = case.net.run(lucid, lambda step: step, case.dtype, case.optimizer)
    native = case.net.run(lucid, compiled, case.dtype, case.optimizer)
    tolerance = TOLERANCE[case.dtype]
    assert_close(native, eager, tolerance, "compiled and eager")
    assert_close(eager, recorded_results(case), tolerance, "eager and torch")
    assert_close(native, recorded_results(case), tolerance, "compiled and torch")
    (stats,) = [step.stats for step in steps]
    assert (stats.calls, stats.traces) == (STEPS, 1), stats.retrace_reasons


def test_all_that_is_recorded_is_compared() -> None:
    assert {key.split("/")[0] for key in RECORDED} == {str(case) for case in CASES}
    assert len({str(case) for case in CASES}) == 2 * len(NETS)
    nets = [net.name for net in NETS]
    assert {(case.net.name, case.dtype) for case in CASES} == set(product(nets, DTYPES))
    assert {(case.optimizer, case.dtype) for case in CASES} == set(product(OPTIMIZERS, DTYPES))


@pytest.mark.parametrize("result", ["losses", "norms", "parameter w", "gradient v"])
def test_a_difference_is_found(result: str) -> None:
    expected = recorded_results(CASES[0])
    wrong = expected[result].copy()
    wrong.flat[np.abs(wrong).argmax()] *= 1.001
    with pytest.raises(AssertionError, match=result):
        assert_close(expected | {result: wrong}, expected, TOLERANCE["float32"], "planted")
