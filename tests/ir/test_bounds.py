"""Bounds of what is computed element by element: what they promise is so, in float32."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.ir import parse
from lucid.ir.graph import Graph, Value
from lucid.ir.interpret import interpret
from lucid.ir.passes.bounds import (
    LEAST_NUMBER,
    MOST,
    MOST_NUMBER,
    MOST_SQUARE,
    Bounds,
    Limits,
)

BOUNDED: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "Adam": {"amsgrad": True, "weight_decay": 0.1},
    "AdamW": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "Adagrad": {},
    "RMSprop": {"momentum": 0.9},
    "Rprop": {},
    "ASGD": {},
}
"""Optimizers all of whose new state has bounds."""


def graph_of_updates(name: str) -> Graph:
    """The optimized graph of a step of an optimizer."""
    w = lucid.tensor([1.0, 2.0, 3.0], requires_grad=True)
    opt = getattr(lucid.optim, name)([w], lr=0.1, **BOUNDED[name])

    @lucid.compile
    def step(x: lucid.Tensor) -> None:
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()

    for _ in range(3):
        step(lucid.ones(3))
    return parse(step.stages["optimize"])


def bounds_of(graph: Graph) -> Bounds:
    return Bounds(graph.nodes, {cell for cell, _ in graph.writes})


def leaves_of(graph: Graph) -> dict[Value, Limits]:
    """What must hold so that all arrays are finite that a graph writes."""
    bounds, found = bounds_of(graph), {}
    for _, value in graph.writes:
        known = bounds.leaves(value)
        if value.type.size > 1:
            assert known is not None, f"{value} has no bounds"
            found.update(known)
    return found


@pytest.mark.parametrize("name", BOUNDED)
def test_updates_are_finite_at_all_ends_of_their_bounds(name: str) -> None:
    graph = graph_of_updates(name)
    inputs = [entry.value for entry in graph.inputs]
    limits = leaves_of(graph)
    choices = [(limits[x].low, limits[x].high) if x in limits else (0.25, 0.75) for x in inputs]
    corners, tried = [*itertools.product(*choices)], 0
    for corner in np.random.default_rng(0).permutation(corners)[:300]:
        given = [
            np.full(x.shape, number, x.dtype.numpy)
            for x, number in zip(inputs, corner, strict=True)
        ]
        taken: dict[Value, np.ndarray] = {}

        def note(
            node: Any, _: Any, result: np.ndarray, taken: dict[Value, np.ndarray] = taken
        ) -> np.ndarray:
            taken[node.result] = result
            return result

        with np.errstate(all="ignore"):
            _, written = interpret(graph, given, note)
        within = all(
            ((taken[x] >= low) & (taken[x] <= high)).all()
            for x, (low, high) in limits.items()
            if x in taken
        )
        tried += within
        for array in written if within else ():
            assert np.isfinite(array).all()
    assert tried >= 32


def limits_of(text: str) -> dict[str, Limits] | None:
    """The limits of the leaves of what a graph writes first, by their names."""
    graph = parse(text)
    found = bounds_of(graph).leaves(graph.writes[0][1])
    return None if found is None else {x.name: limits for x, limits in found.items()}


def test_a_root_wants_no_negative_state_and_a_denominator_positive_numbers() -> None:
    found = limits_of(
        "graph g { arg %g: f32[2] state %v: f32[2] live %b: f32[] live %e: f32[] "
        "%a = mul %v, %b %s = mul %g, %b %q = mul %s, %g %n = add %a, %q %r = sqrt %n"
        "%d = add %r, %e %u = div %g, %d write %v, %u return }"
    )
    assert found == {
        "g": Limits(-MOST, MOST),
        "v": Limits(0.0, MOST_SQUARE),
        "b": Limits(0.0, MOST_NUMBER),
        "e": Limits(LEAST_NUMBER, MOST_NUMBER),
    }


@pytest.mark.parametrize(
    "update",
    [
        "%u = exp %g",
        "%u = div %v, %g",  # a gradient may be 0
        "%s = sub %v, %g %u = sqrt %s",
        "%a = mul %g, %g %b = mul %a, %a %u = mul %b, %a",  # 2 ** 216
        "%c = constant inf : f32[] %u = mul %g, %c",
        "%c = constant nan : f32[] %u = maximum %g, %c",
    ],
)
def test_what_may_overflow_or_is_of_an_op_without_a_rule_has_no_bounds(update: str) -> None:
    text = f"graph g {{ arg %g: f32[2] state %v: f32[2] {update} write %v, %u return }}"
    assert limits_of(text) is None


def test_a_clamp_may_be_open_at_one_end() -> None:
    text = (
        "graph g { arg %g: f32[2] state %v: f32[2] %c = constant inf : f32[]"
        "%z = constant 0.5 : f32[] %p = clamp %g, %z, %c %u = rsqrt %p write %v, %u return }"
    )
    assert limits_of(text) == {"g": Limits(-MOST, MOST)}
