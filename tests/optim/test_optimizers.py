"""Update rules against their formulas, written out in NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import lucid
from lucid import optim

Rule = Callable[..., Iterator[np.ndarray]]


def sgd(
    w: np.ndarray,
    gradient: Callable[[np.ndarray], np.ndarray],
    lr: float = 1e-3,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
) -> Iterator[np.ndarray]:
    total = None
    while True:
        g = gradient(w) * (-1 if maximize else 1) + weight_decay * w
        if momentum:
            total = g if total is None else momentum * total + (1 - dampening) * g
            g = g + momentum * total if nesterov else total
        w = w - lr * g
        yield w


def adam(
    w: np.ndarray,
    gradient: Callable[[np.ndarray], np.ndarray],
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    amsgrad: bool = False,
    decoupled: bool = False,
) -> Iterator[np.ndarray]:
    m, v, largest, step = 0 * w, 0 * w, 0 * w, 0
    while True:
        step += 1
        g = gradient(w)
        if decoupled:
            w = w * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * w
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        largest = np.maximum(largest, v)
        second = (largest if amsgrad else v) / (1 - betas[1] ** step)
        w = w - lr * (m / (1 - betas[0] ** step)) / (np.sqrt(second) + eps)
        yield w


def adamw(*args: Any, weight_decay: float = 1e-2, **options: Any) -> Iterator[np.ndarray]:
    return adam(*args, weight_decay=weight_decay, decoupled=True, **options)


def rmsprop(
    w: np.ndarray,
    gradient: Callable[[np.ndarray], np.ndarray],
    lr: float = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    centered: bool = False,
) -> Iterator[np.ndarray]:
    v, mean, total = 0 * w, 0 * w, 0 * w
    while True:
        g = gradient(w) + weight_decay * w
        v = alpha * v + (1 - alpha) * g * g
        mean = alpha * mean + (1 - alpha) * g
        total = momentum * total + g / (np.sqrt(v - mean**2 if centered else v) + eps)
        w = w - lr * total
        yield w


def adagrad(
    w: np.ndarray,
    gradient: Callable[[np.ndarray], np.ndarray],
    lr: float = 1e-2,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    initial_accumulator_value: float = 0.0,
    eps: float = 1e-10,
) -> Iterator[np.ndarray]:
    total, step = 0 * w + initial_accumulator_value, 0
    while True:
        g = gradient(w) + weight_decay * w
        total = total + g * g
        w = w - lr / (1 + step * lr_decay) * g / (np.sqrt(total) + eps)
        step += 1
        yield w


CASES: list[tuple[type[optim.Optimizer], Rule, dict[str, Any]]] = [
    (optim.SGD, sgd, {}),
    (optim.SGD, sgd, {"lr": 0.05, "momentum": 0.9}),
    (optim.SGD, sgd, {"lr": 0.05, "momentum": 0.9, "dampening": 0.3}),
    (optim.SGD, sgd, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (optim.SGD, sgd, {"lr": 0.001, "maximize": True}),
    (optim.Adam, adam, {}),
    (optim.Adam, adam, {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (optim.Adam, adam, {"lr": 0.1, "amsgrad": True}),
    (optim.AdamW, adamw, {}),
    (optim.AdamW, adamw, {"lr": 0.1, "weight_decay": 0.3, "amsgrad": True}),
    (optim.RMSprop, rmsprop, {}),
    (optim.RMSprop, rmsprop, {"alpha": 0.9, "momentum": 0.5, "weight_decay": 0.1}),
    (optim.RMSprop, rmsprop, {"centered": True, "eps": 1e-2}),
    (optim.Adagrad, adagrad, {}),
    (optim.Adagrad, adagrad, {"lr": 0.3, "lr_decay": 0.1, "initial_accumulator_value": 0.5}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__} {case[2]}")
@pytest.mark.parametrize("shape", [(3, 4), ()], ids=str)
def test_twenty_steps_follow_the_formula(
    case: tuple[type[Any], Rule, dict[str, Any]], shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    kind, rule, options = case
    start, scale = rng.normal(size=shape), rng.uniform(0.5, 2.0, size=shape)
    w = lucid.tensor(start, requires_grad=True)
    factor = lucid.tensor(scale)
    optimizer = kind([w], **options)
    expected = rule(start, lambda w: 2 * scale * (w - 1), **options)
    for _ in range(20):
        optimizer.zero_grad()
        (factor * (w - 1) ** 2).sum().backward()
        optimizer.step()
        assert_allclose(w.detach().numpy(), next(expected), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad])
def test_training_a_line_gets_there(kind: Any) -> None:
    x = lucid.linspace(-1, 1, 20)
    w, b = lucid.zeros((), requires_grad=True), lucid.zeros((), requires_grad=True)
    optimizer = kind([w, b], lr=0.5 if kind in (optim.SGD, optim.Adagrad) else 0.05)
    for _ in range(200):
        optimizer.zero_grad()
        ((w * x + b - (2 * x - 1)) ** 2).mean().backward()
        optimizer.step()
    assert_allclose([w.item(), b.item()], [2, -1], atol=0.06)
