"""Losses against their formulas in NumPy, and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

import lucid
import lucid.nn as nn
import lucid.nn.functional as F

REDUCE: dict[str, Any] = {"mean": np.mean, "sum": np.sum, "none": lambda loss: loss}


def _close(actual: lucid.Tensor, expected: Any) -> None:
    assert_allclose(actual.detach().numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reduction", REDUCE)
def test_losses_on_real_numbers(reduction: str, rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(2, 3, 4)) * 2
    d, reduce = np.abs(a - b), REDUCE[reduction]
    x, t = lucid.tensor(a), lucid.tensor(b)
    _close(F.mse_loss(x, t, reduction=reduction), reduce(d**2))
    _close(F.l1_loss(x, t, reduction=reduction), reduce(d))
    smooth = np.where(d < 0.5, d**2, d - 0.25)
    _close(F.smooth_l1_loss(x, t, reduction=reduction, beta=0.5), reduce(smooth))
    huber = np.where(d <= 0.5, d**2 / 2, 0.5 * (d - 0.25))
    _close(F.huber_loss(x, t, reduction=reduction, delta=0.5), reduce(huber))


def test_what_an_absolute_difference_was_made_of_may_be_written() -> None:
    x = lucid.tensor([1.0, -2.0, 3.0], requires_grad=True)
    predicted = x * 2
    loss = F.l1_loss(predicted, lucid.zeros(3))
    predicted.add_(9.0)
    loss.backward()
    assert x.grad is not None
    _close(x.grad, np.array([2.0, -2.0, 2.0], np.float32) / 3)


@pytest.mark.parametrize("reduction", REDUCE)
def test_losses_on_probabilities(reduction: str, rng: np.random.Generator) -> None:
    z, t = rng.normal(size=(3, 4)) * 5, rng.uniform(size=(3, 4))
    reduce, p = REDUCE[reduction], special.expit(z)
    expected = reduce(-(t * np.log(p) + (1 - t) * np.log1p(-p)))
    target = lucid.tensor(t)
    _close(F.binary_cross_entropy(lucid.tensor(p), target, reduction=reduction), expected)
    logits = lucid.tensor(z)
    _close(F.binary_cross_entropy_with_logits(logits, target, reduction=reduction), expected)
    q = special.log_softmax(z, 1)
    loss = F.kl_div(lucid.tensor(q), target, reduction=reduction)
    _close(loss, reduce(t * (np.log(t) - q)))


def test_the_divergence_of_what_is_no_probability_is_nan() -> None:
    t = np.array([0.0, 1.0, -1.0, np.nan, np.inf])
    loss = F.kl_div(lucid.full((5,), 0.5, dtype=lucid.float64), lucid.tensor(t), reduction="none")
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(loss, special.xlogy(t, t) - t * 0.5)


def test_pos_weight_counts_the_positive_part(rng: np.random.Generator) -> None:
    z, t, w = rng.normal(size=(3, 4)), rng.uniform(size=(3, 4)), rng.uniform(size=4)
    loss = nn.BCEWithLogitsLoss(pos_weight=lucid.tensor(w))(lucid.tensor(z), lucid.tensor(t))
    _close(loss, -(w * t * special.log_expit(z) + (1 - t) * special.log_expit(-z)).mean())


def test_binary_cross_entropy_stays_finite_at_the_ends() -> None:
    loss = F.binary_cross_entropy(lucid.tensor([0.0, 1.0]), lucid.tensor([1.0, 0.0]))
    assert loss.item() == 100.0
    with pytest.raises(ValueError, match="all elements of input should be between 0 and 1"):
        F.binary_cross_entropy(lucid.tensor([1.5]), lucid.tensor([1.0]))
    with pytest.raises(ValueError, match=r"Target size must be the same as input size"):
        F.binary_cross_entropy(lucid.zeros(2), lucid.zeros(1))


def test_extreme_logits_give_exact_losses() -> None:
    logits, target = lucid.tensor([200.0, -200.0, 200.0]), lucid.tensor([1.0, 0.0, 0.0])
    loss = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    assert loss.tolist() == [0.0, 0.0, 200.0]
    assert F.cross_entropy(lucid.tensor([[1e4, 0.0]]), lucid.tensor([1])).item() == 1e4


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(smoothing: float, weighted: bool, rng: np.random.Generator) -> None:
    z, y = rng.normal(size=(4, 3, 2)), np.array([[0, 2], [-100, 1], [1, 1], [2, -100]])
    w = rng.uniform(0.5, 2.0, 3) if weighted else np.ones(3)
    logs, counted = special.log_softmax(z, 1), y != -100
    index = np.where(counted, y, 0)
    weights = w[index] * counted
    hard = -np.take_along_axis(logs, index[:, None], 1)[:, 0] * weights
    soft = -(logs * w[:, None]).sum(1) * counted
    losses = (1 - smoothing) * hard + smoothing / 3 * soft
    arguments = lucid.tensor(z), lucid.tensor(y), lucid.tensor(w) if weighted else None
    for reduction, expected in (
        ("none", losses),
        ("sum", losses.sum()),
        ("mean", losses.sum() / weights.sum()),
    ):
        _close(
            F.cross_entropy(*arguments, reduction=reduction, label_smoothing=smoothing), expected
        )


def test_cross_entropy_of_class_probabilities(rng: np.random.Generator) -> None:
    z, p = rng.normal(size=(4, 3)), rng.dirichlet(np.ones(3), 4)
    losses = -(special.log_softmax(z, 1) * p).sum(1)
    x, target = lucid.tensor(z), lucid.tensor(p)
    _close(F.cross_entropy(x, target), losses.mean())
    _close(F.cross_entropy(x, target, reduction="none"), losses)
    _close(F.cross_entropy(x[0], target[0]), losses[0])
    classes = np.eye(3)[[0, 2, 1, 1]]
    _close(
        F.cross_entropy(x, lucid.tensor([0, 2, 1, 1]), label_smoothing=0.3),
        F.cross_entropy(x, lucid.tensor(classes), label_smoothing=0.3).item(),
    )


def test_cross_entropy_is_nll_loss_of_log_softmax(rng: np.random.Generator) -> None:
    x, y = lucid.tensor(rng.normal(size=(4, 3))), lucid.tensor([0, 1, 2, 2])
    _close(F.nll_loss(F.log_softmax(x, 1), y), F.cross_entropy(x, y).item())
    _close(nn.NLLLoss()(nn.LogSoftmax(1)(x), y), nn.CrossEntropyLoss()(x, y).item())
    _close(F.cross_entropy(x[1], y[1]), F.cross_entropy(x[1:2], y[1:2]).item())


def test_when_all_targets_are_ignored_the_mean_is_nan_and_the_gradient_zero() -> None:
    x = lucid.zeros(2, 3, requires_grad=True)
    loss = F.cross_entropy(x, lucid.tensor([-100, -100]))
    loss.backward()
    assert math.isnan(loss.item())
    assert x.grad is not None
    assert not x.grad.numpy().any()


def test_an_empty_batch_has_no_mean() -> None:
    assert math.isnan(F.cross_entropy(lucid.zeros(0, 3), lucid.zeros(0, dtype=lucid.int64)).item())


@pytest.mark.parametrize("target", [3, -1])
def test_a_target_that_is_no_class_is_an_error(target: int) -> None:
    with pytest.raises(
        IndexError, match=f"cross_entropy: target {target} is out of range for 3 classes"
    ) as caught:
        F.cross_entropy(lucid.zeros(2, 3), lucid.tensor([0, target]))
    assert "hint: only ignore_index (-100) may lie outside" in str(caught.value)
    loss = F.cross_entropy(lucid.zeros(2, 3), lucid.tensor([0, target]), ignore_index=target)
    assert loss.item() == pytest.approx(math.log(3))


def test_wrong_arguments_are_named() -> None:
    x = lucid.zeros(2, 3)
    with pytest.raises(ValueError, match="average is not a valid value for reduction"):
        F.cross_entropy(x, lucid.tensor([0, 1]), reduction="average")
    with pytest.raises(ValueError, match=r"target must be \[2\], as axis 1 has the classes"):
        F.cross_entropy(x, lucid.tensor([0, 1, 2]))
    with pytest.raises(TypeError, match="expected an int64 target of class indices"):
        F.cross_entropy(x, lucid.zeros(2))
    with pytest.raises(ValueError, match="one number for each of 3 classes"):
        F.cross_entropy(x, lucid.tensor([0, 1]), lucid.ones(2))
    with pytest.raises(ValueError, match=r"label_smoothing must be between 0.0 and 1.0. Got: 2"):
        F.cross_entropy(x, lucid.tensor([0, 1]), label_smoothing=2)


@pytest.mark.parametrize(
    ("flags", "reduction"),
    [
        ({"size_average": False}, "sum"),
        ({"size_average": True, "reduce": None}, "mean"),
        ({"reduce": False}, "none"),
        ({"size_average": False, "reduce": True}, "sum"),
    ],
)
def test_older_programs_say_by_flags_how_a_loss_is_reduced(
    flags: dict[str, Any], reduction: str, prepared: Any
) -> None:
    x, t, weight = lucid.randn(5, 3), lucid.tensor([0, 2, 1, 1, 0]), lucid.tensor([0.5, 1.0, 2.0])
    with pytest.warns(UserWarning, match=f"please write reduction='{reduction}' instead"):
        found = prepared(lambda x: F.cross_entropy(x, t, weight=weight, **flags))(x)
        module = nn.CrossEntropyLoss(weight, **flags)
    assert module.reduction == reduction
    expected = F.cross_entropy(x, t, weight, reduction=reduction).tolist()
    assert found.tolist() == module(x, t).tolist() == expected


def test_a_loss_of_the_users_extends_pytorchs_bases() -> None:
    class Focal(nn.modules.loss._WeightedLoss):
        def __init__(self, weight: Any = None, gamma: float = 2.0, reduction: str = "mean") -> None:
            super().__init__(weight, None, None, reduction)
            self.gamma = gamma

    class Shifted(nn.modules.loss._Loss):
        def __init__(self, size_average: Any = None) -> None:
            super().__init__(size_average=size_average)

    loss = Focal(lucid.ones(3), reduction="sum")
    assert loss.reduction == "sum"
    assert [*loss.state_dict()] == ["weight"]
    with pytest.warns(UserWarning, match="size_average"):
        assert Shifted(False).reduction == "sum"
    with pytest.raises(TypeError, match="size_averages"):
        nn.MSELoss(size_averages=False)


def test_a_target_that_would_broadcast_warns() -> None:
    with pytest.warns(UserWarning, match=r"target of size \[3\] that is different to the"):
        F.mse_loss(lucid.zeros(3, 1), lucid.zeros(3))


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (nn.MSELoss(), F.mse_loss),
        (nn.L1Loss(), F.l1_loss),
        (nn.SmoothL1Loss(), F.smooth_l1_loss),
        (nn.HuberLoss(), F.huber_loss),
        (nn.KLDivLoss("batchmean"), lambda x, t: F.kl_div(x, t, reduction="batchmean")),
        (nn.BCELoss(), F.binary_cross_entropy),
        (nn.BCEWithLogitsLoss(), F.binary_cross_entropy_with_logits),
    ],
)
def test_modules_call_the_functions(module: nn.Module, function: Any) -> None:
    x, t = lucid.tensor([0.2, 0.7]), lucid.tensor([0.4, 0.1])
    assert module(x, t).item() == function(x, t).item()
