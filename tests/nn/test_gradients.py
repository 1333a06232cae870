"""Every function's hand-written gradient, and the gradient of that, against finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid.autograd import gradcheck, gradgradcheck

Case = tuple[str, Callable[..., lucid.Tensor], tuple[tuple[int, ...], ...]]

CLASSES = lucid.tensor([1, 3, -100, 0])
WEIGHT = lucid.tensor([0.5, 1.0, 2.0, 1.5, 0.1], dtype=lucid.float64)
ROWS = lucid.tensor([[0, 2], [2, 1]])
MASK = lucid.tensor([[True, False, True], [False, False, False]])


def _attention(q: lucid.Tensor, k: lucid.Tensor, v: lucid.Tensor) -> lucid.Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=MASK)


CASES: list[Case] = [
    ("relu", F.relu, ((3, 4),)),
    ("leaky_relu", lambda x: F.leaky_relu(x, 0.2), ((3, 4),)),
    ("elu", lambda x: F.elu(x, 1.5), ((3, 4),)),
    ("gelu", F.gelu, ((3, 4),)),
    ("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), ((3, 4),)),
    ("silu", F.silu, ((3, 4),)),
    ("mish", F.mish, ((3, 4),)),
    ("softplus", lambda x: F.softplus(x, 2.0, 3.0), ((3, 4),)),
    ("logsigmoid", F.logsigmoid, ((3, 4),)),
    ("softmax", lambda x: F.softmax(x, 0), ((3, 4),)),
    ("log_softmax", lambda x: F.log_softmax(x, 1), ((3, 4, 2),)),
    ("linear", F.linear, ((2, 3, 4), (5, 4), (5,))),
    ("layer_norm", lambda x, w, b: F.layer_norm(x, (3, 4), w, b), ((2, 3, 4), (3, 4), (3, 4))),
    ("rms_norm", lambda x, w: F.rms_norm(x, (4,), w), ((3, 4), (4,))),
    (
        "batch_norm",
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        ((4, 3, 2), (3,), (3,)),
    ),
    ("embedding", lambda w: F.embedding(ROWS, w), ((3, 4),)),
    ("cross_entropy", lambda x: F.cross_entropy(x, CLASSES), ((4, 5),)),
    (
        "cross_entropy weighted and smoothed",
        lambda x: F.cross_entropy(x, CLASSES, WEIGHT, label_smoothing=0.1),
        ((4, 5),),
    ),
    ("cross_entropy of probabilities", F.cross_entropy, ((4, 5), (4, 5))),
    ("nll_loss", lambda x: F.nll_loss(x, CLASSES, WEIGHT, reduction="none"), ((4, 5),)),
    ("mse_loss", F.mse_loss, ((3, 4), (3, 4))),
    ("l1_loss", F.l1_loss, ((3, 4), (3, 4))),
    ("smooth_l1_loss", F.smooth_l1_loss, ((3, 4), (3, 4))),
    ("huber_loss", lambda x, t: F.huber_loss(x, t, delta=0.7), ((3, 4), (3, 4))),
    ("bce with logits", F.binary_cross_entropy_with_logits, ((3, 4), (3, 4))),
    ("bce", lambda x, t: F.binary_cross_entropy(x.sigmoid(), t.sigmoid()), ((3, 4), (3, 4))),
    ("kl_div", lambda x, t: F.kl_div(x, t.sigmoid(), reduction="batchmean"), ((3, 4), (3, 4))),
    ("normalize", F.normalize, ((3, 4),)),
    ("normalize by the 3-norm", lambda x: F.normalize(x, 3.0), ((3, 4),)),
    ("cosine_similarity", F.cosine_similarity, ((3, 4), (3, 4))),
    ("pad reflect", lambda x: F.pad(x, (1, 2), mode="reflect"), ((2, 4),)),
    ("pad and crop", lambda x: F.pad(x, (-1, 2, 1, 0), value=3.0), ((2, 4),)),
    ("attention", _attention, ((2, 4), (3, 4), (3, 5))),
    (
        "causal attention",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ((2, 3, 4), (2, 3, 4), (2, 3, 5)),
    ),
]


def _inputs(shapes: tuple[tuple[int, ...], ...], rng: np.random.Generator) -> list[lucid.Tensor]:
    """Numbers of either sign that keep away from 0, where some functions have a kink."""
    arrays = (rng.uniform(0.2, 1.5, s) * rng.choice([-1.0, 1.0], s) for s in shapes)
    return [lucid.tensor(array, requires_grad=True) for array in arrays]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_gradients_are_those_of_finite_differences(case: Case, rng: np.random.Generator) -> None:
    _, function, shapes = case
    assert gradcheck(function, _inputs(shapes, rng))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_gradients_of_gradients_are_those_of_finite_differences(
    case: Case, rng: np.random.Generator
) -> None:
    _, function, shapes = case
    assert gradgradcheck(function, _inputs(shapes, rng))


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "gelu", "silu", "softplus"])
def test_gradients_at_extremes_are_finite(name: str) -> None:
    x = lucid.tensor([-1e4, -200.0, -0.0, 0.0, 200.0, 1e4], requires_grad=True)
    getattr(F, name)(x).sum().backward()
    assert x.grad is not None
    assert np.isfinite(x.grad.numpy()).all()


def test_the_gradient_of_relu_at_zero_is_zero() -> None:
    x = lucid.tensor([0.0, -0.0, math.nan, -1.0, 1.0], requires_grad=True)
    F.relu(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 1.0, 0.0, 1.0]


def test_only_the_gradients_that_are_asked_for_are_computed() -> None:
    x, weight = lucid.ones(2, 3), lucid.ones(3, requires_grad=True)
    F.layer_norm(x, (3,), weight).sum().backward()
    assert weight.grad is not None
    assert x.grad is None


def test_the_norm_of_the_origin_has_gradient_zero() -> None:
    x = lucid.zeros(2, 3, requires_grad=True)
    F.normalize(x).sum().backward()
    assert x.grad is not None
    assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize("norm", [lambda x: lucid.norm(x, 0), lambda x: F.pdist(x, 0).sum() - 1])
def test_a_count_of_what_is_not_zero_has_gradient_zero(
    norm: Callable[[lucid.Tensor], lucid.Tensor], prepared: Callable[..., Any]
) -> None:
    x = lucid.tensor([[0.0, 2.0], [-1.0, math.inf], [0.0, math.nan]], requires_grad=True)
    y = prepared(norm)(x)
    y.backward()
    assert y.item() == 4
    assert x.grad is not None
    assert not x.grad.any()


# What PyTorch's derivatives don't look at the result of: an activation may overwrite it.
OVERWRITTEN: dict[str, Callable[[lucid.Tensor], lucid.Tensor]] = {
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 1, 1),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x, 1),
    "div": lambda x: x / (2 + x * x),
    "softsign": F.softsign,
    "normalize": lambda x: F.normalize(x, dim=1),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(2)),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "gelu": F.gelu,
}


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_an_activation_may_be_written_into_the_result(
    run: Callable[..., None], name: str, rng: np.random.Generator
) -> None:
    layer = OVERWRITTEN[name]
    data = rng.standard_normal((2, 3, 4, 4)).astype(np.float32)
    if name == "max_pool1d":
        data = data[0]

    def gradient(inplace: bool) -> np.ndarray:
        def body(x: lucid.Tensor) -> None:
            F.relu(layer(x), inplace=inplace).square().sum().backward()

        x = lucid.tensor(data, requires_grad=True)
        run(body, x)
        assert x.grad is not None
        return x.grad.numpy()

    np.testing.assert_allclose(gradient(True), gradient(False), 1e-6)
