"""Hooks around an optimizer's step and its state dicts; in a compiled step they are part of it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn, optim


def trained(prepared: Callable[..., Any], prepare: Callable[[Any], Any], count: int = 3) -> Any:
    """The weights after some steps of an optimizer that was prepared, and the step."""
    weight = nn.Parameter(lucid.tensor([1.0, -2.0]))
    optimizer = optim.SGD([weight], lr=0.5)
    prepare(optimizer)

    @prepared
    def step() -> None:
        optimizer.zero_grad()
        weight.square().sum().backward()
        optimizer.step()

    for _ in range(count):
        step()
    return weight.detach(), step, optimizer


def test_hooks_run_before_and_after_each_step(prepared: Callable[..., Any]) -> None:
    def halve(optimizer: Any, args: Any, kwargs: Any) -> None:
        for p in optimizer.param_groups[0]["params"]:
            p.grad.mul_(0.5)

    def clamp(optimizer: Any, args: Any, kwargs: Any) -> None:
        with lucid.no_grad():
            for p in optimizer.param_groups[0]["params"]:
                p.clamp_(-0.6, 0.6)

    def prepare(optimizer: Any) -> None:
        optimizer.register_step_pre_hook(halve)
        optimizer.register_step_post_hook(clamp)

    weight, _, _ = trained(prepared, prepare, 1)
    assert weight.tolist() == pytest.approx([0.5, -0.6])
    weight, _, _ = trained(prepared, prepare, 3)
    assert weight.tolist() == pytest.approx([0.125, -0.15])


def test_a_hook_that_comes_or_goes_is_noticed(prepared: Callable[..., Any]) -> None:
    weight, step, optimizer = trained(prepared, lambda optimizer: None)
    before = weight.tolist()

    def double(optimizer: Any, args: Any, kwargs: Any) -> None:
        with lucid.no_grad():
            for p in optimizer.param_groups[0]["params"]:
                p.add_(1.0)

    handle = optimizer.register_step_post_hook(double)
    step()
    assert optimizer.param_groups[0]["params"][0].tolist() == [1.0, 1.0]
    handle.remove()
    step()
    assert optimizer.param_groups[0]["params"][0].tolist() == [0.0, 0.0]
    assert before == [0.0, 0.0]


def test_a_hook_before_may_change_the_arguments() -> None:
    weight = nn.Parameter(lucid.ones(1))
    optimizer = optim.SGD([weight], lr=0.5)
    asked = []

    def closure() -> lucid.Tensor:
        asked.append("closure")
        loss = weight.sum()
        loss.backward()
        return loss

    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((closure,), {}))
    assert optimizer.step() is not None
    assert asked == ["closure"]
    optimizer.register_step_pre_hook(lambda o, args, kwargs: "nonsense")
    with pytest.raises(RuntimeError, match="must return None or a tuple of"):
        optimizer.step()


class Shrinking(optim.SGD):
    """A step of one's own around the library's."""

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        with lucid.no_grad():
            for p in self.param_groups[0]["params"]:
                p.mul_(0.5)
        return result


def test_a_step_of_ones_own_runs_them_once(prepared: Callable[..., Any]) -> None:
    weight = nn.Parameter(lucid.ones(2))
    optimizer = Shrinking([weight], lr=1.0)
    count = lucid.zeros(())
    optimizer.register_step_post_hook(lambda o, args, kwargs: count.add_(1.0))

    @prepared
    def step() -> None:
        optimizer.zero_grad()
        (weight * 0.5).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    assert count.item() == 3
    assert weight.tolist() == pytest.approx([-0.3125, -0.3125])


def test_state_dicts_pass_through_hooks() -> None:
    weight = nn.Parameter(lucid.ones(2))
    optimizer = optim.SGD([weight], lr=0.5, momentum=0.9)
    calls: list[str] = []
    optimizer.register_state_dict_pre_hook(lambda o: calls.append("before"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "extra": 7})
    state = optimizer.state_dict()
    assert calls == ["before"] and state["extra"] == 7

    def faster(o: Any, state: Any) -> Any:
        calls.append("loading")
        groups = [{**group, "lr": 2.0} for group in state["param_groups"]]
        return {**state, "param_groups": groups}

    optimizer.register_load_state_dict_pre_hook(faster)
    optimizer.register_load_state_dict_pre_hook(lambda o, s: calls.append("first"), prepend=True)
    optimizer.register_load_state_dict_post_hook(lambda o: calls.append("loaded"))
    optimizer.load_state_dict(state)
    assert calls == ["before", "first", "loading", "loaded"]
    assert optimizer.param_groups[0]["lr"] == 2.0
    assert state["param_groups"][0]["lr"] == 0.5


def test_copies_have_no_hooks() -> None:
    optimizer = optim.SGD([nn.Parameter(lucid.ones(2))], lr=0.5)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 1 / 0)
    for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        copied.step()
        assert copied.param_groups[0]["lr"] == 0.5


# torch.optim.Muon, which orthogonalizes in bfloat16, after three steps
MUON: list[tuple[dict[str, Any], list[Any]]] = [
    (
        {},
        [
            [[0.33787, -0.70763, 1.90729], [0.72741, 0.14489, -0.32428]],
            [[-0.11771, -0.1688], [0.0138, 0.00593], [0.15189, 0.17572], [0.29945, 0.35604]],
        ],
    ),
    (
        {
            "nesterov": False,
            "adjust_lr_fn": "match_rms_adamw",
            "weight_decay": 0.0,
            "momentum": 0.5,
        },
        [
            [[0.44628, -0.90907, 1.99144], [0.91665, 0.21522, -0.44344]],
            [[-0.21922, -0.2007], [-0.00461, 0.03297], [0.20584, 0.27023], [0.41492, 0.51469]],
        ],
    ),
]


@pytest.mark.parametrize(("options", "expected"), MUON)
def test_muon_moves_as_pytorchs_does(
    options: dict[str, Any], expected: list[Any], prepared: Callable[..., Any]
) -> None:
    weights = [
        nn.Parameter(lucid.tensor([[0.5, -1.0, 2.0], [1.0, 0.25, -0.5]])),
        nn.Parameter(lucid.arange(8.0).reshape(4, 2) / 8 - 0.3),
    ]
    optimizer = optim.Muon(weights, lr=0.1, **options)

    @prepared
    def step() -> None:
        optimizer.zero_grad()
        loss: Any = sum((w.sin() * w).sum() for w in weights)
        loss.backward()
        optimizer.step()

    for _ in range(3):
        step()
    for weight, numbers in zip(weights, expected, strict=True):
        np.testing.assert_allclose(weight.detach().numpy(), numbers, atol=1e-2)
    assert set(optimizer.state_dict()["state"][0]) == {"momentum_buffer"}


def test_muons_updates_are_nearly_orthogonal() -> None:
    """All singular values of the update are near 1: within what the iteration promises."""
    lucid.manual_seed(0)
    weight = nn.Parameter(lucid.zeros(6, 4))
    optimizer = optim.Muon([weight], lr=1.0, weight_decay=0.0)
    weight.grad = lucid.randn(6, 4)
    optimizer.step()
    values = lucid.linalg.svdvals(weight.detach()) / (6 / 4) ** 0.5
    assert (values > 0.5).all() and (values < 1.3).all()


def test_muon_takes_matrices_only() -> None:
    with pytest.raises(ValueError, match="Muon: takes matrices, not"):
        optim.Muon([nn.Parameter(lucid.ones(3))])
    with pytest.raises(ValueError, match="Adjust learning rate function best is not supported"):
        optim.Muon([nn.Parameter(lucid.ones(3, 3))], adjust_lr_fn="best")


class OfAProgram(optim.SGD):
    """A class of the user's own."""


@pytest.mark.parametrize("kind", [optim.SGD, OfAProgram])
def test_what_hooks_write_down_they_write_at_each_step(
    prepared: Callable[..., Any], kind: Any
) -> None:
    weight = nn.Parameter(lucid.ones(2))
    optimizer, seen, state = kind([weight], lr=0.5), [], {"count": 0, "total": lucid.zeros(2)}

    def count(optimizer: Any, args: Any, kwargs: Any) -> None:
        state["count"] += 1
        state["total"] = state["total"] + weight.detach()

    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(count)

    @prepared
    def step() -> None:
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    for _ in range(4):
        step()
    assert seen == ["before"] * 4
    assert state["count"] == 4
    assert state["total"].tolist() == [-1.0, -1.0]  # 0.5 + 0.0 - 0.5 - 1.0


def test_hooks_of_state_dicts_run_in_a_step_that_asks_for_one(prepared: Callable[..., Any]) -> None:
    optimizer, seen = optim.SGD([nn.Parameter(lucid.ones(2))], lr=0.5), []
    optimizer.register_state_dict_post_hook(lambda *_: seen.append("after"))
    step = prepared(lambda: len(optimizer.state_dict()["param_groups"]))
    assert [step(), step(), step()] == [1, 1, 1]
    assert seen == ["after"] * 3
