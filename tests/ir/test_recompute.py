"""What a backward in the graph of its forward computes again means the same as the first time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from differentiated import random_gradient
from fuzzing import many

import lucid
from lucid import nn
from lucid.ir.clone import copy_graph
from lucid.ir.interpret import interpret
from lucid.ir.passes.recompute import recompute
from lucid.ir.verify import verify
from lucid.runtime import compile_graph


@pytest.fixture
def whatever_it_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid.ir.passes.recompute._LEAST", 1)
    monkeypatch.setattr("lucid.ir.passes.recompute._LITTLE", 0)


@pytest.mark.usefixtures("whatever_it_saves")
@pytest.mark.parametrize("seeds", [range(n, n + 25) for n in range(0, many(100), 25)])
def test_what_is_computed_again_has_the_same_bits(seeds: range) -> None:
    changed = 0
    for seed in seeds:
        graph, arrays, expected = random_gradient(seed)
        native = compile_graph(copy_graph(graph)).call(arrays)
        before = str(graph)
        assert recompute(graph) == (str(graph) != before)
        verify(graph)
        if str(graph) == before:
            continue
        changed += 1
        for found, value in zip(interpret(graph, arrays)[0], expected, strict=True):
            np.testing.assert_array_equal(found, value)
        for found, value in zip(compile_graph(graph).call(arrays), native, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
    assert changed


# Whole steps -----------------------------------------------------------------------------------

BATCH, TOKENS, WIDTH = 8, 128, 128


def transformer_step(layers: int) -> tuple[Any, nn.Module]:
    lucid.manual_seed(0)
    options = {"dropout": 0.0, "batch_first": True, "norm_first": True}
    each = [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, **options) for _ in range(layers)]
    model = nn.Sequential(*each)
    optimizer = lucid.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: lucid.Tensor) -> lucid.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lucid.compile(step), model


def test_a_layer_of_a_transformer_keeps_what_products_read_and_its_two_norms() -> None:
    """Queries, keys, values, attention, both normalized, 4 of what relu leaves; numbers of rows."""
    sizes = []
    x = lucid.randn(BATCH, TOKENS, WIDTH)
    for layers in (3, 4):
        step, _ = transformer_step(layers)
        step(x)
        sizes.append(int(step.stages["buffers"].split()[2]))
    kept = 4 * BATCH * TOKENS * WIDTH
    assert 10 * kept <= sizes[1] - sizes[0] <= 10.1 * kept


def test_a_step_has_the_same_bits_as_one_that_keeps_all(monkeypatch: pytest.MonkeyPatch) -> None:
    x, found = lucid.randn(BATCH, TOKENS, WIDTH), []
    for least in (4 << 20, 1 << 40):
        monkeypatch.setattr("lucid.ir.passes.recompute._LEAST", least)
        step, model = transformer_step(3)
        losses = [step(x).numpy() for _ in range(3)]
        found.append([*losses, *(p.detach().numpy() for p in model.parameters())])
        assert ("recompute" in step.stages) == (least < 1 << 40)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
