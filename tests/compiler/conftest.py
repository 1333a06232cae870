"""Run the same scenario op by op and compiled, and compare all that can be observed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.autograd.native import op_by_op
from lucid.compiler.inputs import signature
from lucid.compiler.programs import native

Compile = Callable[..., Any]
Scenario = Callable[[Compile], Any]


def observed(value: Any) -> Any:
    """What a user can see of a value: of tensors the data, flags, version and gradient."""
    if isinstance(value, lucid.Tensor):
        return {
            "type": str(value._type),
            "data": np.array(value.detach().numpy()),
            "requires_grad": value.requires_grad,
            "is_leaf": value.is_leaf,
            "version": value._version,
            "grad": observed(value.grad) if value.is_leaf else None,
        }
    if isinstance(value, lucid.nn.Module):
        return observed([dict(value.named_parameters()), dict(value.named_buffers())])
    if isinstance(value, dict):
        return {key: observed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [observed(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return observed({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    return value


def assert_same(found: Any, expected: Any, path: str = "") -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for key in expected:
            assert_same(found[key], expected[key], f"{path}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), path
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert_same(a, b, f"{path}[{i}]")
    elif isinstance(expected, (np.ndarray, float)):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=5e-6, err_msg=path)
    else:
        assert found == expected, path


@pytest.fixture(params=["native", "portable"])
def entry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Calls enter their step natively; or through Python, as where objects look different."""
    kind: str = request.param
    if kind == "portable":
        monkeypatch.setattr(native, "_measured", lambda: None)
    return kind


@pytest.fixture
def agree() -> Callable[..., list[Any]]:
    """`agree(scenario)`: `scenario(compile)` returns the same when compile does nothing.

    `traces`: how often its compiled functions were traced in all. Returns them.
    """

    def check(scenario: Scenario, traces: int | None = None) -> list[Any]:
        made: list[Any] = []

        def native(function: Any = None, **options: Any) -> Any:
            if function is None:
                return lambda function: native(function, **options)
            made.append(lucid.compile(function, **options))
            return made[-1]

        def eager(function: Any = None, **options: Any) -> Any:
            return lucid.compile(function, mode="eager", **options)

        with op_by_op():  # eager mode by NumPy alone, which knows nothing of kernels
            lucid.manual_seed(3)
            expected = observed(scenario(eager))
            lucid.manual_seed(3)
            found = observed(scenario(native))
        assert_same(found, expected)
        if traces is not None:
            reasons = [reason for step in made for reason in step.stats.retrace_reasons]
            assert sum(step.stats.traces for step in made) == traces, reasons
        return made

    return check


@pytest.fixture
def known_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size of an argument is a trace of its own, as it is where a step looks at it."""
    monkeypatch.setattr(signature, "MOVES_OF_SIZES", 10**9)
