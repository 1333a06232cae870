"""Random tensors: reproducible, of the distribution that their name says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

import lucid

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
