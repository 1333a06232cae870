"""Weights that a mask sets to zero: PyTorch's choice, training, several methods on one weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.nn.utils import prune

WEIGHT = [[0.1, -0.9, 0.3, 0.0], [0.7, 0.2, -0.6, 0.5], [-0.4, 0.8, -0.05, 1.0]]


def layer() -> Any:
    made = nn.Linear(4, 3)
    with lucid.no_grad():
        made.weight.copy_(lucid.tensor(WEIGHT))
        made.bias.copy_(lucid.tensor([0.3, -0.1, 0.2]))
    return made


def test_masks_are_pytorchs() -> None:
    pruned: Any = prune.l1_unstructured(layer(), "weight", amount=0.4)
    assert pruned.weight_mask.tolist() == [[0, 1, 0, 0], [1, 0, 1, 1], [1, 1, 0, 1]]
    prune.ln_structured(pruned, "weight", amount=1, n=2, dim=0)
    assert pruned.weight_mask.tolist() == [[0, 0, 0, 0], [1, 0, 1, 1], [1, 1, 0, 1]]
    prune.l1_unstructured(pruned, "weight", amount=0.5)
    assert pruned.weight_mask.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 1]]
    (hook,) = pruned._forward_pre_hooks.values()
    assert [type(method).__name__ for method in hook] == [
        "L1Unstructured",
        "LnStructured",
        "L1Unstructured",
    ]
    assert sorted(pruned.state_dict()) == ["bias", "weight_mask", "weight_orig"]
    columns: Any = prune.ln_structured(layer(), "weight", amount=0.5, n=1, dim=1)
    assert columns.weight_mask.tolist() == [[0, 1, 0, 1]] * 3


def test_several_weights_are_pruned_as_one() -> None:
    net = nn.Sequential(layer(), nn.ReLU(), layer())
    with lucid.no_grad():
        net[2].weight *= 1.01
        net[2].bias.copy_(lucid.tensor([0.29, -0.09, 0.21]))
    pairs = [(net[0], "weight"), (net[2], "bias"), (net[2], "weight")]
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=10)
    assert [int(m.get_buffer(f"{name}_mask").sum()) for m, name in pairs] == [8, 1, 8]
    assert prune.is_pruned(net)
    assert not prune.is_pruned(net[1])
    with pytest.raises(TypeError, match="must be unstructured"):
        prune.global_unstructured(pairs, prune.RandomStructured, amount=1)


def test_a_pruned_layer_is_trained_and_stays_pruned(prepared: Any) -> None:
    net: Any = prune.l1_unstructured(layer(), "weight", amount=6)
    opt = lucid.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def train(x: lucid.Tensor) -> lucid.Tensor:
        opt.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        opt.step()
        return loss.detach()

    step, mask = prepared(train), net.weight_mask.clone()
    losses = [step(lucid.ones(2, 4)).item() for _ in range(4)]
    assert losses[-1] < losses[0]
    assert (net.weight_orig.grad[mask == 0] == 0).all()
    expected = net.weight_orig.detach() * mask
    x = lucid.eye(4)
    np.testing.assert_allclose((net(x) - net.bias).T.detach().numpy(), expected.numpy(), atol=1e-6)
    prune.remove(net, "weight")
    assert [name for name, _ in net.named_parameters()] == ["bias", "weight"]
    np.testing.assert_array_equal(net.weight.detach().numpy(), expected.numpy())
    assert not net._forward_pre_hooks


def test_random_pruning_takes_as_many_as_it_is_told() -> None:
    pruned: Any = prune.random_unstructured(layer(), "weight", 5)
    assert int(pruned.weight_mask.sum()) == 7
    rows: Any = prune.random_structured(layer(), "weight", 2, dim=0)
    assert sorted(rows.weight_mask.sum(1).tolist()) == [0, 0, 4]
    assert prune.random_unstructured(layer(), "bias", 0.0).bias_mask.all()


def test_what_pruning_refuses() -> None:
    with pytest.raises(ValueError, match="has no parameter 'w'"):
        prune.l1_unstructured(layer(), "w", 1)
    with pytest.raises(ValueError, match="amount=13 must not be greater than 12"):
        prune.l1_unstructured(layer(), "weight", 13)
    with pytest.raises(ValueError, match=r"a float up to 1 or an int, at least 0: 1\.5"):
        prune.l1_unstructured(layer(), "weight", 1.5)
    with pytest.raises(TypeError, match="Invalid type for amount"):
        prune.L1Unstructured("all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs two axes"):
        prune.ln_structured(layer(), "bias", 1, 2, 0)
    with pytest.raises(ValueError, match="isn't pruned"):
        prune.remove(layer(), "weight")
    with pytest.raises(ValueError, match="importance_scores must be"):
        prune.l1_unstructured(layer(), "weight", 1, lucid.ones(3))
