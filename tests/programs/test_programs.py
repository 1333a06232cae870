"""PyTorch programs run with only their imports changed: PyTorch's numbers, eager and compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import program_runs
import pytest
from recording import load

import lucid

RECORDED = load(Path(program_runs.__file__).with_name("programs.npz"))

# Relative to the largest entry of an array. Optimizers that divide by the root of a squared
# gradient enlarge the rounding of float32 where the gradient is small.
TOLERANCE = 2e-5
SMALLEST = 1e-3


def assert_same(actual: program_runs.Arrays, expected: program_runs.Arrays) -> None:
    """The same results by name, dtype, shape and value; what isn't a float exactly."""
    assert actual.keys() == expected.keys()
    for name, wanted in expected.items():
        found = actual[name]
        assert (name, found.dtype, found.shape) == (name, wanted.dtype, wanted.shape)
        if wanted.dtype.kind == "f":
            scale = max(np.abs(wanted).max(initial=0), SMALLEST)
            np.testing.assert_allclose(found, wanted, 0, TOLERANCE * scale, err_msg=name)
        else:
            np.testing.assert_array_equal(found, wanted, err_msg=name)


@pytest.mark.parametrize("name", program_runs.NAMES)
def test_a_program_gives_what_it_gives_with_pytorch(name: str) -> None:
    expected = {
        key.removeprefix(f"{name}/"): array
        for key, array in RECORDED.items()
        if key.startswith(f"{name}/")
    }
    assert expected, "not recorded: run tests/data/record_programs.py"
    module = program_runs.load(name, "lucid")
    eager, _ = program_runs.run(module, lambda step: step)
    assert_same(eager, expected)
    compiled, step = program_runs.run(module, lucid.compile)
    assert_same(compiled, eager)
    assert step.stats.traces == getattr(module, "TRACES", 1), step.stats.retrace_reasons


def test_nothing_recorded_is_left_out() -> None:
    assert {key.split("/")[0] for key in RECORDED} == set(program_runs.NAMES)


def test_a_difference_is_found() -> None:
    with pytest.raises(AssertionError):
        assert_same({"a": np.array([1.0, 2.0])}, {"a": np.array([1.0, 2.0001])})
    with pytest.raises(AssertionError):
        assert_same({"a": np.array([1])}, {"a": np.array([2])})
    with pytest.raises(AssertionError):
        assert_same({}, {"a": np.zeros(2)})
