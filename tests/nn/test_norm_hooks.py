"""`nn.utils.weight_norm` and `spectral_norm`: hooks that leave the weight on the module."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import lucid
from lucid import nn

NORMS = pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])


@NORMS
def test_the_module_keeps_its_class_and_has_a_hook(norm: Callable[..., Any]) -> None:
    layer = norm(nn.Linear(3, 2))
    assert type(layer) is nn.Linear
    (hook,) = layer._forward_pre_hooks.values()
    assert hook.name == "weight"
    assert "weight" not in dict(layer.named_parameters())
    assert isinstance(layer.weight, lucid.Tensor)


@NORMS
def test_a_normalized_module_is_pickled(norm: Callable[..., Any]) -> None:
    layer = norm(nn.Linear(3, 2)).eval()
    x = lucid.ones(1, 3)
    loaded = pickle.loads(pickle.dumps(layer))
    assert lucid.equal(loaded(x), layer(x))
    loaded.bias.data.fill_(7.0)
    assert not lucid.equal(loaded(x), layer(x))
    assert list(loaded.state_dict()) == list(layer.state_dict())


def test_it_is_copied_as_long_as_its_weight_has_no_history() -> None:
    layer = nn.utils.spectral_norm(nn.Linear(3, 2)).eval()
    copied = copy.deepcopy(layer)
    nn.utils.remove_spectral_norm(copied)
    assert "weight_orig" in layer.state_dict() and "weight" in copied.state_dict()
    layer(lucid.ones(1, 3))
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(layer)


@NORMS
def test_an_assigned_weight_holds_until_the_next_call(norm: Callable[..., Any]) -> None:
    layer, x = norm(nn.Linear(3, 2)).eval(), lucid.ones(1, 3)
    expected = layer(x)
    layer.weight = lucid.ones(2, 3)
    assert layer.weight.tolist() == [[1.0] * 3] * 2
    assert lucid.equal(layer(x), expected)
    assert layer.weight.tolist() != [[1.0] * 3] * 2


@NORMS
def test_a_parameter_in_its_place_is_refused_by_the_next_call(norm: Callable[..., Any]) -> None:
    layer = norm(nn.Linear(3, 2))
    layer.weight = nn.Parameter(lucid.ones(2, 3))
    with pytest.raises(TypeError, match="cannot assign 'Tensor' as parameter 'weight'"):
        layer(lucid.ones(1, 3))


def test_before_the_first_call_a_spectral_norm_lets_the_weight_be_initialized() -> None:
    """As in DCGAN's `weights_init`, which runs over discriminators that have the norm already."""
    layer = nn.utils.spectral_norm(nn.Linear(3, 2))
    nn.init.constant_(layer.weight.data, 2.0)
    assert layer.weight_orig.tolist() == [[2.0] * 3] * 2


def test_the_optimizer_goes_on_with_the_same_parameter() -> None:
    layer = nn.Linear(3, 2)
    before = layer.weight
    nn.utils.spectral_norm(layer)
    assert layer.weight_orig is before


@NORMS
def test_the_weight_of_the_last_call_is_differentiated(
    norm: Callable[..., Any], prepared: Callable[..., Any]
) -> None:
    """A penalty on the weight that the call has left, as if it were computed beside it."""
    lucid.manual_seed(0)
    layer = norm(nn.Linear(3, 2))
    x = lucid.randn(4, 3)

    @prepared
    def step(x: lucid.Tensor) -> lucid.Tensor:
        layer.zero_grad()
        loss = layer(x).square().mean() + layer.weight.abs().sum()
        loss.backward()
        return loss.detach()

    name = next(n for n, _ in layer.named_parameters() if n != "bias")
    found = []
    for _ in range(3):
        step(x)
        found.append(layer.get_parameter(name).grad.tolist())  # type: ignore[union-attr]
    lucid.manual_seed(0)
    layer = norm(nn.Linear(3, 2))
    lucid.randn(4, 3)
    for expected in found:
        layer.zero_grad()
        (layer(x).square().mean() + layer.weight.abs().sum()).backward()
        grad = layer.get_parameter(name).grad
        assert grad is not None
        assert grad.flatten().tolist() == pytest.approx(
            lucid.tensor(expected).flatten().tolist(), rel=1e-4, abs=1e-5
        )


def test_after_a_compiled_call_the_weight_is_differentiated_outside() -> None:
    layer = nn.utils.weight_norm(nn.Linear(3, 2))
    forward = lucid.compile(lambda x: layer(x))
    for _ in range(2):
        layer.zero_grad()
        forward(lucid.ones(1, 3))
        layer.weight.square().sum().backward()
        grad = layer.weight_g.grad
        assert lucid.allclose(grad, 2 * layer.weight_g.detach())


@NORMS
def test_both_forwards_of_a_discriminator_are_differentiated(
    norm: Callable[..., Any], run: Callable[..., Any]
) -> None:
    net = norm(nn.Linear(3, 1))
    real, fake = lucid.ones(2, 3), lucid.zeros(2, 3)

    def step() -> lucid.Tensor:
        loss = net(fake).mean() - net(real).mean()
        loss.backward()
        return loss.detach()

    run(step)
    assert all(p.grad is not None for p in net.parameters())


def test_a_lazy_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="weight_norm: the module's parameter 'weight' is not"):
        nn.utils.weight_norm(nn.LazyLinear(3))


def test_what_is_not_normalized_cannot_be_freed() -> None:
    with pytest.raises(ValueError, match=r"spectral_norm of 'weight' not found in Linear"):
        nn.utils.remove_spectral_norm(nn.utils.weight_norm(nn.Linear(1, 1)))
    with pytest.raises(ValueError, match="n_power_iterations must be positive"):
        nn.utils.spectral_norm(nn.Linear(1, 1), n_power_iterations=0)
