"""Layers that take the number of their inputs from the first one."""

from __future__ import annotations

from typing import Any

import pytest

import lucid
from lucid import nn


def same_draws(lazy: Any, make: Any, x: lucid.Tensor) -> tuple[lucid.Tensor, lucid.Tensor]:
    """What a lazy layer and a usual one give that draw their parameters from one seed."""
    lucid.manual_seed(0)
    found = lazy(x)
    lucid.manual_seed(0)
    return found, make()(x)


@pytest.mark.parametrize(
    ("lazy", "usual", "shape"),
    [
        ("LazyLinear(3)", "Linear(4, 3)", (2, 4)),
        ("LazyLinear(3, bias=False)", "Linear(4, 3, bias=False)", (2, 4)),
        ("LazyConv1d(4, 3, 2, 1)", "Conv1d(2, 4, 3, 2, 1)", (2, 2, 7)),
        ("LazyConv2d(4, 3, 1, 1, 1, 2)", "Conv2d(2, 4, 3, 1, 1, 1, 2)", (2, 5, 5)),
        ("LazyConv3d(2, 2, bias=False)", "Conv3d(3, 2, 2, bias=False)", (1, 3, 3, 3, 3)),
        ("LazyConvTranspose1d(4, 3, 2)", "ConvTranspose1d(2, 4, 3, 2)", (2, 2, 5)),
        ("LazyConvTranspose2d(4, 2, 2, 0, 1)", "ConvTranspose2d(2, 4, 2, 2, 0, 1)", (1, 2, 3, 3)),
        ("LazyConvTranspose3d(4, 2)", "ConvTranspose3d(2, 4, 2)", (1, 2, 3, 3, 3)),
        ("LazyBatchNorm1d()", "BatchNorm1d(4)", (5, 4)),
        ("LazyBatchNorm2d(affine=False)", "BatchNorm2d(2, affine=False)", (5, 2, 3, 3)),
        ("LazyBatchNorm3d(1e-3)", "BatchNorm3d(2, 1e-3)", (5, 2, 3, 3, 2)),
        ("LazyInstanceNorm1d(affine=True)", "InstanceNorm1d(4, affine=True)", (5, 4, 3)),
        ("LazyInstanceNorm2d()", "InstanceNorm2d(4)", (5, 4, 3, 3)),
        ("LazyInstanceNorm3d()", "InstanceNorm3d(4)", (5, 4, 3, 3, 2)),
    ],
)
def test_after_the_first_call_it_is_the_usual_layer(lazy: str, usual: str, shape: Any) -> None:
    layer, x = eval(f"nn.{lazy}", {"nn": nn}), lucid.randn(*shape)
    found, expected = same_draws(layer, lambda: eval(f"nn.{usual}", {"nn": nn}), x)
    assert found.tolist() == expected.tolist()
    assert type(layer).__name__ == usual.partition("(")[0]
    assert repr(layer) == repr(eval(f"nn.{usual}", {"nn": nn}))
    assert layer.state_dict().keys() == eval(f"nn.{usual}", {"nn": nn}).state_dict().keys()
    assert not layer._forward_pre_hooks


def test_an_optimizer_made_before_trains_what_the_first_call_made(prepared: Any) -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(1))
    optimizer = lucid.optim.SGD(model.parameters(), 0.1)
    assert isinstance(model[0].weight, nn.UninitializedParameter)
    x = lucid.randn(8, 3)
    model(x)
    before = model[0].weight.detach().clone()

    @prepared
    def step(x: lucid.Tensor) -> lucid.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x).item() for _ in range(5)]
    assert losses[-1] < losses[0]
    assert not lucid.equal(model[0].weight.detach(), before)
    assert type(model[0].weight) is nn.Parameter


def test_a_compiled_step_asks_for_a_call_before() -> None:
    model = nn.LazyLinear(2)
    with pytest.raises(lucid.TraceError, match="LazyLinear: the first call makes the parameters"):
        lucid.compile(lambda x: model(x))(lucid.ones(1, 3))
    model(lucid.ones(1, 3))
    assert lucid.compile(lambda x: model(x))(lucid.ones(1, 3)).shape == (1, 2)


def test_channels_that_groups_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="LazyConv2d: out_channels must be divisible by groups"):
        nn.LazyConv2d(3, 1, groups=2)
    with pytest.raises(ValueError, match="LazyConv2d: in_channels must be divisible by groups"):
        nn.LazyConv2d(4, 1, groups=2)(lucid.ones(1, 3, 2, 2))
