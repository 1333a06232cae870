"""`lucid.compile(verify="first")` compares what the first call makes before it changes anything."""

from __future__ import annotations

from typing import Any

import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.codegen.emit import lowering


@pytest.fixture(autouse=True)
def without_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCID_CACHE", "0")


def training(**options: Any) -> tuple[Any, nn.Module, lucid.optim.Optimizer]:
    lucid.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 3))
    opt = lucid.optim.Adam(model.parameters(), lr=1e-2)

    @lucid.compile(**options)
    def step(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss

    return step, model, opt


X, Y = lucid.randn(5, 6), lucid.tensor([0, 1, 2, 1, 0])


def test_what_is_right_runs_as_without_it() -> None:
    (step, model, _), (plain, other, _) = training(verify="first"), training()
    for _ in range(3):
        assert step(X, Y).tolist() == plain(X, Y).tolist()
    for key, tensor in model.state_dict().items():
        assert tensor.tolist() == other.state_dict()[key].tolist()
    assert step.stats.calls == 3


def test_what_is_wrong_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    step, model, opt = training(verify="first")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with monkeypatch.context() as patch:
        patch.setitem(lowering.RULES, "tanh", lowering.RULES["sin"])
        for _ in range(2):  # the second call is verified as well: none has been right yet
            with pytest.raises(
                lucid.LucidError, match=r"first call .* nothing was changed\n.*code: k"
            ):
                step(X, Y)
    after = model.state_dict()
    assert all(value.tolist() == after[key].tolist() for key, value in before.items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(not state["exp_avg"].any() for state in opt.state.values())


def test_later_calls_and_signatures_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    step = lucid.compile(lambda x: x.tanh(), verify="first")
    step(lucid.ones(3))
    monkeypatch.setitem(lowering.RULES, "tanh", lowering.RULES["sin"])
    assert step(lucid.ones(4, 2)).tolist() != lucid.ones(4, 2).tanh().tolist()


def test_there_is_no_other_word_for_it() -> None:
    with pytest.raises(lucid.OptionError, match=r'verify="first" compares .*="interpret" has none'):
        lucid.compile(lambda x: x, verify="first", mode="interpret")
    with pytest.raises(lucid.OptionError, match="verify must be one of 'never', 'first'"):
        lucid.compile(lambda x: x, verify="always")


def test_units_in_the_last_place_are_counted() -> None:
    step = lucid.compile(lambda x: x.exp())
    (row,) = step.check(lucid.linspace(0, 3, 100)).rows
    assert 0 <= row.ulps <= 2
    assert row.ulps == 0 or f"({row.ulps:.3g} ulp)" in str(row)
