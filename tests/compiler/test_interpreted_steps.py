"""`mode="interpret"`: the optimized graph runs on the user's lines, and a debugger stops there."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn

SCRIPT = """
import lucid

@lucid.compile{options}
def step(x):
    h = x * 2 + 1
    lucid.debug.breakpoint()
    y = h.exp()
    return y.sum()

print(step(lucid.zeros(3)).tolist())
"""


def training(mode: str) -> tuple[Any, nn.Module]:
    lucid.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Dropout(0.3), nn.Linear(8, 3))
    opt = lucid.optim.Adam(model.parameters(), lr=1e-2)

    @lucid.compile(mode=mode)
    def step(x: lucid.Tensor, y: lucid.Tensor) -> tuple[lucid.Tensor, lucid.Tensor]:
        opt.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        return loss, out.argmax(1)

    return step, model


def test_a_training_step_does_what_native_code_does() -> None:
    x, y = lucid.randn(5, 6), lucid.tensor([0, 1, 2, 1, 0])
    losses, states = [], []
    for mode in ("interpret", "native"):
        step, model = training(mode)
        lucid.manual_seed(1)
        losses.append([step(x, y)[0].item() for _ in range(4)])
        states.append({key: value.numpy() for key, value in model.state_dict().items()})
        assert step.stats.calls == 4 and not step.stats.eager_reasons
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    for key, value in states[0].items():
        np.testing.assert_allclose(value, states[1][key], rtol=1e-4, atol=1e-6)


def test_a_branch_on_a_value_goes_both_ways() -> None:
    step = lucid.compile(lambda x: x * 2 if x.sum() > 0 else x - 1, mode="interpret")
    for sign in (1, -1, -1, 1):
        x = lucid.full((3,), float(sign))
        assert step(x).tolist() == (x * 2 if sign > 0 else x - 1).tolist()
    assert not step.stats.eager_reasons


def test_a_model_alone_has_gradients() -> None:
    layer = nn.Linear(3, 2)
    model = lucid.compile(layer, mode="interpret")
    for _ in range(2):
        layer.zero_grad()
        model(lucid.ones(4, 3)).square().sum().backward()
        found = layer.weight.grad.tolist()
        layer.zero_grad()
        layer(lucid.ones(4, 3)).square().sum().backward()
        np.testing.assert_allclose(found, layer.weight.grad.tolist(), rtol=1e-5)


def test_an_error_stands_at_the_users_line_and_changes_nothing() -> None:
    w = lucid.zeros(2)

    @lucid.compile(mode="interpret")
    def step(x: lucid.Tensor, i: lucid.Tensor) -> lucid.Tensor:
        w.add_(1)
        return x[i]  # here

    x = lucid.arange(4.0)
    step(x, lucid.tensor([1]))
    with pytest.raises(lucid.IndexOutOfRangeError) as caught:
        step(x, lucid.tensor([7]))
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert last.filename == __file__ and last.line == "return x[i]  # here"
    assert w.tolist() == [1.0, 1.0]


def debugged(tmp_path: Path, options: str, commands: str) -> str:
    file = tmp_path / "train.py"
    file.write_text(SCRIPT.replace("{options}", options))
    env = {key: value for key, value in os.environ.items() if key != "PYTHONBREAKPOINT"}
    run = subprocess.run(
        [sys.executable, str(file)],
        input=commands,
        capture_output=True,
        text=True,
        timeout=120,
        env=env,
        check=True,
    )
    return run.stdout


def test_a_debugger_goes_over_the_graph_on_the_users_lines(tmp_path: Path) -> None:
    shown = debugged(tmp_path, '(mode="interpret")', "p h\nn\np y\nc\n")
    assert "array([1., 1., 1.]" in shown
    assert "-> y = h.exp()" in shown
    assert "-> return y.sum()" in shown
    assert "array([2.71" in shown
    assert "8.15484" in shown


def test_elsewhere_it_stops_in_the_users_function(tmp_path: Path) -> None:
    for options in ("", '(mode="eager")'):
        shown = debugged(tmp_path, options, "p h\nc\n")
        assert "-> y = h.exp()" in shown
        assert "tensor([1., 1., 1.])" in shown


def test_what_the_user_has_set_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: seen.append("here"))
    step = lucid.compile(lambda x: lucid.debug.breakpoint() or x * 2, mode="interpret")
    assert step(lucid.ones(2)).tolist() == step(lucid.ones(2)).tolist() == [2.0, 2.0]
    lucid.debug.breakpoint()
    assert seen == ["here"] * 3
