"""Meters and stopping rules that look at what a step computes, from packages and by hand."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn, optim


def training(step_of: Any, compile: Any, calls: int = 12) -> tuple[list[Any], Any]:
    """What the calls of a training step gave, and the step."""
    lucid.manual_seed(0)
    model = nn.Linear(3, 2, dtype=lucid.float64)
    opt = optim.SGD(model.parameters(), lr=0.25)
    x = lucid.tensor([[1.0, 2.0, -1.0], [0.5, -1.0, 1.0], [2.0, 0.0, 0.5]], dtype=lucid.float64)
    target = lucid.tensor([0, 1, 1])

    def train() -> tuple[Any, Any]:
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss, logits

    step = compile(step_of(train))
    return [step() for _ in range(calls)], step


def agrees(step_of: Any, traces: int, found: Any = lambda: None) -> None:
    """Compares both modes; every call of the compiled one runs natively."""
    expected, _ = training(step_of, lambda function: function)
    left = found()
    results, step = training(step_of, lucid.compile)
    np.testing.assert_allclose(results, expected)
    if left is not None:
        np.testing.assert_allclose(found(), left)
    assert not step.stats.eager_reasons and step.stats.traces <= traces


@pytest.fixture
def meterlib() -> Any:
    return importlib.import_module("meterlib")


def test_a_meter_of_a_package(meterlib: Any) -> None:
    meters = []

    def step_of(train: Any) -> Any:
        meter = meterlib.AverageValueMeter()
        meters.append(meter)

        def step() -> Any:
            loss, _ = train()
            meter.add(loss.item())
            return meter.mean

        return step

    agrees(step_of, 6, lambda: [meters[-1].n, meters[-1].mean, meters[-1].deviation])
    assert type(meters[-1].mean) is type(meters[0].mean) is float


def test_a_metric_that_counts_with_numpy(meterlib: Any) -> None:
    metrics = []

    def step_of(train: Any) -> Any:
        metric = meterlib.Accuracy(2)
        metrics.append(metric)

        def step() -> Any:
            _, logits = train()
            metric.update(logits.detach().numpy().argmax(1), np.array([0, 1, 1]))
            return metric.history[0]

        return step

    expected, _ = training(step_of, lambda function: function)
    found, _ = training(step_of, lucid.compile)
    assert found == expected and metrics[0].history == metrics[1].history
    assert metrics[0].right.tolist() == metrics[1].right.tolist()
    assert metrics[0].right.dtype == metrics[1].right.dtype


def test_early_stopping(meterlib: Any) -> None:
    def step_of(train: Any) -> Any:
        stopping, state = meterlib.EarlyStopping(3), {"calls": 0}

        def step() -> Any:
            loss, _ = train()
            state["calls"] += 1
            return stopping(round(loss.item(), 1)), stopping.best, state["calls"]

        return step

    expected, _ = training(step_of, lambda function: function)
    found, step = training(step_of, lucid.compile)
    assert found == expected and {stop for stop, _, _ in found} == {False, True}
    assert not step.stats.eager_reasons


def test_the_best_weights_are_kept() -> None:
    def step_of(train: Any) -> Any:
        best: dict[str, Any] = {"loss": float("inf"), "logits": None}

        def step() -> Any:
            loss, logits = train()
            if loss.item() < best["loss"]:
                best["loss"] = loss.item()
                best["logits"] = logits.detach().clone()
            return best["loss"], float(best["logits"].sum())

        return step

    agrees(step_of, 4)
