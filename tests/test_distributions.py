"""Draws: their means and variances, the same in both modes, gradients; and training with them.

Densities, entropies and divergences are compared with PyTorch's in tensor/test_against_pytorch.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import distributions as D

COUNT = 20_000
TRIL = lucid.tensor([[1.0, 0.0], [0.5, 2.0]])
FAMILIES: list[Callable[[], D.Distribution]] = [
    lambda: D.Normal(lucid.tensor([1.0, -2.0]), lucid.tensor([0.5, 2.0])),
    lambda: D.Laplace(lucid.tensor([1.0, -2.0]), 0.5),
    lambda: D.Gumbel(lucid.tensor([1.0]), 2.0),
    lambda: D.LogNormal(lucid.tensor([0.3]), 0.25),
    lambda: D.HalfNormal(lucid.tensor([2.0])),
    lambda: D.Uniform(lucid.tensor([-1.0, 2.0]), 3.0),
    lambda: D.Exponential(lucid.tensor([0.5, 2.0])),
    lambda: D.Gamma(lucid.tensor([0.3, 1.0, 7.5]), lucid.tensor([1.0, 2.0, 0.5])),
    lambda: D.Chi2(lucid.tensor([3.0])),
    lambda: D.Beta(lucid.tensor([0.5, 3.0]), lucid.tensor([0.5, 2.0])),
    lambda: D.Dirichlet(lucid.tensor([0.5, 1.0, 3.0])),
    lambda: D.StudentT(lucid.tensor([9.0]), 1.0, 2.0),
    lambda: D.Bernoulli(lucid.tensor([0.1, 0.7])),
    lambda: D.Bernoulli(logits=lucid.tensor([-1.0, 2.0])),
    lambda: D.Geometric(lucid.tensor([0.3])),
    lambda: D.Poisson(lucid.tensor([0.5, 4.0])),
    lambda: D.Binomial(lucid.tensor([3.0, 10.0]), probs=lucid.tensor([0.2, 0.6])),
    lambda: D.OneHotCategorical(lucid.tensor([1.0, 2.0, 5.0])),
    lambda: D.MultivariateNormal(lucid.tensor([1.0, -1.0]), scale_tril=TRIL),
    lambda: D.Independent(D.Normal(lucid.zeros(3), lucid.ones(3)), 1),
    lambda: D.MixtureSameFamily(
        D.Categorical(lucid.tensor([0.3, 0.7])), D.Normal(lucid.tensor([-1.0, 2.0]), 0.5)
    ),
]  # fmt: skip


@pytest.mark.parametrize("make", FAMILIES)
def test_draws_have_the_mean_and_the_variance(make: Callable[[], D.Distribution]) -> None:
    lucid.manual_seed(3)
    family = make()
    draws = family.sample((COUNT,))
    assert draws.shape == (COUNT, *family.batch_shape, *family.event_shape)
    assert not draws.requires_grad
    mean, variance = family.mean.numpy(), family.variance.numpy()
    found = draws.double().numpy()
    assert (np.abs(found.mean(0) - mean) < 5 * np.sqrt(variance / COUNT) + 1e-6).all()
    np.testing.assert_allclose(found.var(0), variance, rtol=0.15)


def test_categories_come_as_often_as_their_probabilities_say() -> None:
    lucid.manual_seed(0)
    probs = lucid.tensor([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    draws = D.Categorical(probs).sample((COUNT,))
    assert draws.shape == (COUNT, 2)
    shares = lucid.nn.functional.one_hot(draws, 3).double().mean(0)
    np.testing.assert_allclose(shares.numpy(), probs.numpy(), atol=0.02)


@pytest.mark.parametrize("make", [f for i, f in enumerate(FAMILIES) if i not in (15, 16)])
def test_a_compiled_step_draws_the_same(make: Callable[[], D.Distribution]) -> None:
    def step() -> Any:
        return make().sample((5,))

    lucid.manual_seed(1)
    expected = step()
    lucid.manual_seed(1)
    found = lucid.compile(step)()
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-6)


@pytest.mark.parametrize("run", [lambda step: step, lucid.compile], ids=["eager", "compiled"])
def test_draws_of_a_location_and_scale_are_differentiable(run: Any) -> None:
    loc = lucid.tensor([1.0, 2.0], requires_grad=True)
    scale = lucid.tensor([0.5, 3.0], requires_grad=True)

    @run
    def step() -> Any:
        draws = D.Normal(loc, scale).rsample((4,))
        draws.sum().backward()
        return draws.detach()

    lucid.manual_seed(0)
    draws = step()
    assert loc.grad is not None
    assert scale.grad is not None
    assert loc.grad.tolist() == [4.0, 4.0]
    noise = ((draws - loc.detach()) / scale.detach()).sum(0)
    np.testing.assert_allclose(scale.grad.numpy(), noise.numpy(), rtol=1e-4, atol=1e-5)


def test_a_policy_is_trained_by_the_logarithm_of_its_choices() -> None:
    logits = lucid.zeros(3, requires_grad=True)
    optimizer = lucid.optim.Adam([logits], lr=0.1)

    @lucid.compile
    def step() -> lucid.Tensor:
        policy = D.Categorical(logits=logits)
        action = policy.sample((16,))
        loss = -(policy.log_prob(action) * (action == 2)).mean() - 0.01 * policy.entropy()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    lucid.manual_seed(0)
    for _ in range(60):
        step()
    assert step.stats.traces == 1
    assert D.Categorical(logits=logits.detach()).probs[2] > 0.8


def test_own_divergences_are_registered_by_type() -> None:
    class Point(D.Distribution):
        pass

    with pytest.raises(NotImplementedError, match=r"No KL.* p type Point and q type Point"):
        D.kl_divergence(Point(), Point())

    @D.register_kl(Point, Point)
    def _points(p: Point, q: Point) -> lucid.Tensor:
        return lucid.zeros(())

    assert D.kl_divergence(Point(), Point()).item() == 0.0


def test_what_distributions_refuse() -> None:
    with pytest.raises(ValueError, match="Either `probs` or `logits` must be specified"):
        D.Bernoulli()
    with pytest.raises(NotImplementedError, match="Gamma has no rsample"):
        D.Gamma(1.0, 1.0).rsample()
    with pytest.raises(ValueError, match="Exactly one of covariance_matrix"):
        D.MultivariateNormal(lucid.zeros(2))
    assert repr(D.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
