"""The adaptive softmax: PyTorch's numbers, in both modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn


def known_layer() -> nn.AdaptiveLogSoftmaxWithLoss:
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 10, [3, 6], div_value=2.0, head_bias=True)
    with lucid.no_grad():
        for k, p in enumerate(layer.parameters()):
            p.copy_(lucid.sin(lucid.arange(p.numel()).reshape(p.shape) * (k + 1.0) * 0.7))
    return layer


X = lucid.cos(lucid.arange(32.0)).reshape(4, 8)


def test_values_and_gradients_are_pytorchs(run: Callable[..., Any]) -> None:
    layer = known_layer()

    def step(x: lucid.Tensor, target: lucid.Tensor) -> Any:
        output, loss = layer(x, target)
        loss.backward()
        return output.detach(), loss.detach()

    x = X.clone().requires_grad_()
    output, loss = run(step, x, lucid.tensor([0, 4, 9, 2]))
    np.testing.assert_allclose(
        output.numpy(), [-4.179684, -3.315665, -8.68008, -3.184387], rtol=1e-5
    )
    assert loss.item() == pytest.approx(4.839954)
    assert x.grad is not None
    np.testing.assert_allclose(
        x.grad[2].numpy(),
        [0.01093, 0.264181, 0.355784, 0.476119, 0.042719, 0.010868, -0.485982, -0.314578],
        atol=2e-6,
    )
    inner = layer.get_parameter("tail.1.0.weight").grad
    assert inner is not None
    np.testing.assert_allclose(
        inner.flatten()[:4].numpy(), [-0.001334, -0.000383, 0.00092, 0.001377], atol=2e-6
    )


def test_the_likeliest_class_and_all_probabilities(run: Callable[..., Any]) -> None:
    layer = known_layer()
    assert run(layer.predict, X).tolist() == [8, 2, 1, 0]
    total = run(layer.log_prob, X).exp().sum(1)
    np.testing.assert_allclose(total.detach().numpy(), np.ones(4), rtol=1e-5)


def test_one_row_alone_has_no_axis_of_rows() -> None:
    layer = known_layer()
    output, loss = layer(X[1], lucid.tensor(4))
    assert output.shape == () and loss.item() == pytest.approx(3.315665)


def test_a_class_out_of_range_is_refused(run: Callable[..., Any]) -> None:
    layer = known_layer()
    with pytest.raises(RuntimeError, match=r"Target values should be in \[0, 9\]"):
        run(lambda x, t: layer(x, t).loss, X, lucid.tensor([0, 4, 10, 2]))
    with pytest.raises(RuntimeError, match="0D or 1D target tensor expected"):
        layer(X, lucid.zeros(4, 1, dtype=lucid.int64))
    with pytest.raises(RuntimeError, match="the same size in the batch dimension"):
        layer(X, lucid.zeros(3, dtype=lucid.int64))


@pytest.mark.parametrize("cutoffs", [[], [3, 3], [5, 3], [0, 3], [3, 10]])
def test_cutoffs_must_increase_between_the_classes(cutoffs: list[int]) -> None:
    with pytest.raises(ValueError, match="cutoffs"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs)
