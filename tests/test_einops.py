"""einops on tensors, beside what it makes of NumPy's arrays: as it is, in steps, as layers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from einops import einsum, pack, parse_shape, rearrange, reduce, repeat, unpack
from einops.layers.lucid import EinMix, Rearrange, Reduce

import lucid
from lucid import nn

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "split": lambda x: rearrange(x, "b (h d) -> h b d", h=2),
    "flatten": lambda x: rearrange(x, "b d -> (b d)"),
    "list": lambda x: rearrange([x, x], "k b d -> b k d"),
    "repeat": lambda x: repeat(x, "b d -> b k d", k=3),
    "einsum": lambda x: einsum(x, x, "b d, c d -> b c"),
    "pack": lambda x: pack([x, x[:, None]], "b * d")[0],
    "unpack": lambda x: unpack(x, [(2,), (2,)], "b *")[1],
    "shape": lambda x: x * parse_shape(x, "b _")["b"],
    **{
        name: lambda x, name=name: reduce(x, "b (d k) -> b d", name, k=2)
        for name in ("min", "max", "sum", "mean", "prod")
    },
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_numpys_and_are_one_program_for_all_sizes(name: str) -> None:
    function = FUNCTIONS[name]
    step = lucid.compile(function)
    for size in range(3, 9):
        x = np.random.default_rng(size).normal(size=(size, 4)).astype(np.float32)
        expected = function(x)
        for found in (function(lucid.tensor(x)), step(lucid.tensor(x))):
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert (step.stats.traces, step.stats.eager_reasons) == (3, [])


@pytest.mark.parametrize("compiled", [False, True])
def test_layers_train(compiled: bool) -> None:
    lucid.manual_seed(0)
    model = nn.Sequential(
        Rearrange("b (h w) c -> b h w c", h=2),
        EinMix("b h w c -> b h d", weight_shape="w c d", bias_shape="d", w=3, c=2, d=4),
        EinMix("b h (k d) -> b d (h k)", weight_shape="h", h=2, k=2),
        Reduce("b d h -> b d", "max"),
    )
    assert [tuple(p.shape) for p in model.parameters()] == [(3, 2, 4), (1, 1, 4), (2,)]
    optimizer = lucid.optim.Adam(model.parameters(), lr=0.05)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = ((model(x) - 1) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    run, x = lucid.compile(step) if compiled else step, lucid.randn(5, 6, 2)
    losses = [run(x).item() for _ in range(50)]
    assert losses[-1] < 0.5 * losses[0]
    if compiled:
        assert (run.stats.traces, run.stats.eager_reasons) == (1, [])


@pytest.mark.parametrize("order", ["import einops, lucid", "import lucid, einops"])
def test_whichever_is_imported_first(order: str) -> None:
    code = f"{order}; print(einops.rearrange(lucid.zeros(2, 3), 'a b -> b a').shape)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "lucid.Size([3, 2])\n"
