"""Random tensors: reproducible, of the distribution that their name says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.ir import philox

DRAWS: dict[str, Callable[[], lucid.Tensor]] = {
    "rand": lambda: lucid.rand(3, 4),
    "randn": lambda: lucid.randn((3, 4), dtype=lucid.float64),
    "randint": lambda: lucid.randint(10, (3, 4)),
    "randperm": lambda: lucid.randperm(12),
    "normal": lambda: lucid.normal(1.0, 2.0, (3, 4)),
    "bernoulli": lambda: lucid.bernoulli(lucid.full((3, 4), 0.5)),
    "rand_like": lambda: lucid.rand_like(lucid.zeros(3, 4)),
    "uniform_": lambda: lucid.zeros(3, 4).uniform_(-1, 1),
    "normal_": lambda: lucid.zeros(3, 4).normal_(),
    "bernoulli_": lambda: lucid.zeros(12).bernoulli_(0.5),
    "random_": lambda: lucid.zeros(12).random_(5),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_gives_the_same_numbers_again(name: str) -> None:
    lucid.manual_seed(7)
    first, second = DRAWS[name](), DRAWS[name]()
    lucid.manual_seed(7)
    assert DRAWS[name]().equal(first)
    state = lucid.get_rng_state()
    assert DRAWS[name]().equal(second)
    lucid.set_rng_state(state)
    assert DRAWS[name]().equal(second)
    assert not second.equal(first)


def test_generators_are_independent() -> None:
    one, other = lucid.Generator().manual_seed(1), lucid.Generator().manual_seed(2)
    first = lucid.rand(4, generator=one)
    assert not lucid.rand(4, generator=other).equal(first)
    assert lucid.rand(4, generator=one.manual_seed(1)).equal(first)
    assert one.initial_seed() == 1
    with pytest.raises(lucid.ShapeError, match=r"the state is i64\[2\], not f32\[3\]"):
        one.set_state(lucid.zeros(3))
    with pytest.raises(lucid.OptionError, match="more than 64 bits"):
        one.manual_seed(2**64)


@pytest.mark.parametrize(
    ("sample", "distribution"),
    [
        (lambda: lucid.rand(4000), stats.uniform()),
        (lambda: lucid.randn(4000, dtype=lucid.float64), stats.norm()),
        (lambda: lucid.zeros(4000).uniform_(-3, 1), stats.uniform(-3, 4)),
        (lambda: lucid.normal(5.0, 2.0, (4000,)), stats.norm(5, 2)),
    ],
)
def test_the_distribution_is_what_the_name_says(
    sample: Callable[[], lucid.Tensor], distribution: stats.rv_continuous
) -> None:
    lucid.manual_seed(0)
    assert stats.kstest(sample().numpy(), distribution.cdf).pvalue > 1e-3


def test_integers_permutations_and_coins() -> None:
    lucid.manual_seed(0)
    numbers = lucid.randint(-2, 3, (5000,))
    assert np.unique(numbers.numpy()).tolist() == [-2, -1, 0, 1, 2]
    assert lucid.randint(5, (3,), dtype=lucid.float32).dtype is lucid.float32
    assert sorted(lucid.randperm(50).tolist()) == list(range(50))
    coins = lucid.bernoulli(lucid.full((5000,), 0.2))
    assert abs(coins.mean().item() - 0.2) < 0.03
    assert lucid.bernoulli(lucid.tensor([0.0, 1.0])).tolist() == [0, 1]
    assert lucid.normal(lucid.tensor([1.0, 9.0]), 1e-6).round().tolist() == [1, 9]


def test_a_draw_does_not_ask_for_gradients() -> None:
    x = lucid.rand(3, requires_grad=True)
    assert x.is_leaf
    assert not lucid.default_generator.state.requires_grad
    assert not lucid.bernoulli(x).requires_grad
    assert lucid.normal(0, 0.1, size=(2, 1), requires_grad=True).is_leaf


def test_a_normal_draw_is_a_number_to_the_score_function() -> None:
    """As in REINFORCE: a gradient through the draw would take the mean's away."""
    mean, std = (lucid.tensor([x], requires_grad=True) for x in (0.5, 2.0))

    def gradient() -> tuple[lucid.Tensor, lucid.Tensor]:
        action = lucid.normal(mean, std)
        log_prob = lucid.distributions.Normal(mean, std).log_prob(action).sum()
        return action, *lucid.autograd.grad(log_prob, mean)

    for action, found in (gradient(), lucid.compile(gradient)()):
        assert not action.requires_grad
        np.testing.assert_allclose(found.numpy(), (action.numpy() - 0.5) / 4, rtol=1e-5)


def test_counts_have_their_means_and_variances(run: Any) -> None:
    rates, trials = lucid.tensor([0.5, 4.0, 300.0]), lucid.tensor([3.0, 40.0, 7.0])
    chances = lucid.tensor([0.2, 0.5, 1.0])

    def draw() -> tuple[lucid.Tensor, lucid.Tensor]:
        lucid.manual_seed(4)
        return lucid.poisson(rates.expand(4000, 3)), lucid.binomial(trials.expand(4000, 3), chances)

    events, successes = run(draw)
    np.testing.assert_allclose(events.mean(0).numpy(), rates.numpy(), rtol=0.06)
    np.testing.assert_allclose(events.var(0).numpy(), rates.numpy(), rtol=0.1)
    np.testing.assert_allclose(successes.mean(0).numpy(), (trials * chances).numpy(), rtol=0.05)
    assert (successes <= trials).all()
    generator = lucid.Generator().manual_seed(5)
    first = lucid.poisson(rates, generator=generator)
    assert lucid.equal(first, lucid.poisson(rates, lucid.Generator().manual_seed(5)))
    with pytest.raises(ValueError, match=r"binomial: probabilities must be in \[0, 1\]"):
        lucid.binomial(lucid.ones(1), lucid.tensor([1.5]))


def test_a_step_draws_the_counts_that_eager_mode_draws_and_moves_on_behind_them() -> None:
    rates = lucid.tensor([[0.0, 0.5, 4.0], [12.0, 300.0, 1e9]])
    step = lucid.compile(lambda: (lucid.poisson(rates), lucid.poisson(rates)))
    for _ in range(3):
        lucid.manual_seed(-4)
        first, second = lucid.poisson(rates), lucid.poisson(rates)
        assert not lucid.equal(first, second)
        lucid.manual_seed(-4)
        found = step()
        assert lucid.get_rng_state().tolist() == [-4, 12]
        assert lucid.equal(found[0], first) and lucid.equal(found[1], second)
    assert step.stats.traces == 1 and not step.stats.eager_reasons


def test_dropped_channels_of_selu_networks_are_dropped_whole(run: Any) -> None:
    lucid.manual_seed(6)
    x = lucid.randn(400, 8, 5)
    y = run(lambda x: F.feature_alpha_dropout(x, 0.3, training=True), x)
    dropped = (y == y[:, :, :1]).all(2)
    assert abs(dropped.float().mean().item() - 0.3) < 0.03
    assert abs(y.mean().item()) < 0.05
    assert abs(y.std().item() - 1) < 0.05
    with pytest.raises(RuntimeError, match="needs at least 2 axes"):
        lucid.nn.FeatureAlphaDropout()(lucid.ones(3))


@pytest.mark.parametrize("dtype", [lucid.float32, lucid.float64])
@pytest.mark.parametrize("draw", [lucid.rand, lucid.randn])
def test_many_numbers_are_the_ones_that_are_defined(draw: Any, dtype: lucid.dtype) -> None:
    """Native code draws them, whose counts are round ones, and NumPy in blocks."""
    reference = philox.uniform if draw is lucid.rand else philox.normal
    odd = [(7, (37,)), (8, (5, 13)), (9, (1,)), (9, (0, 3)), (10, (65_535,)), (11, (3, 21_851))]
    for seed, shape in [(3, (300, 211)), (-5, (40_001,)), (7, (1024,)), (7, (2, 1031)), *odd]:
        lucid.manual_seed(seed)
        lucid.rand(3)
        found = draw(shape, dtype=dtype).numpy()
        assert lucid.get_rng_state().tolist() == [seed, 3 + found.size]
        expected = reference(seed, 3, shape, dtype.numpy)
        np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))
    whole = reference(9, 5, (20_000,), dtype.numpy)
    np.testing.assert_array_equal(whole[8000:8400], reference(9, 8005, (400,), dtype.numpy))


def test_a_layer_with_many_weights_is_made_by_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    few = philox.philox_words

    def of_few(seed: int, offset: int, n: int) -> Any:
        assert n < 1024, "NumPy draws the weights of a layer"
        return few(seed, offset, n)

    monkeypatch.setattr(philox, "philox_words", of_few)
    assert nn.Linear(512, 300).weight.std() < 0.05
    assert 0.95 < nn.Embedding(1000, 64).weight.std() < 1.05
