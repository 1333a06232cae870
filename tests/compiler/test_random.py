"""Random numbers in compiled steps: the same bits as in eager mode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lucid
import lucid.nn.functional as F


def test_several_draws_of_one_step_are_those_of_eager() -> None:
    """The second draw reads both numbers of a state that the first left, whatever its length."""

    def draws() -> tuple[lucid.Tensor, ...]:
        return lucid.rand(8), lucid.rand(4), lucid.randn(3), lucid.rand(2), lucid.randn(2, 2)

    lucid.manual_seed(3)
    expected = draws()
    lucid.manual_seed(3)
    for drawn, wanted in zip(lucid.compile(draws)(), expected, strict=True):
        assert drawn.tolist() == wanted.tolist()


@pytest.fixture
def threads() -> Iterator[None]:
    """Restores the number of threads."""
    before = lucid.get_num_threads()
    yield
    lucid.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_threads_that_share_a_draw_give_the_bits_of_eager(count: int, threads: None) -> None:
    lucid.set_num_threads(count)
    shape = 999, 401  # no multiple of what a thread or a vector takes

    def draws(x: lucid.Tensor) -> tuple[lucid.Tensor, ...]:
        noise = lucid.rand(*shape)
        return noise, lucid.randn(*shape), F.dropout(x, 0.3) * noise, lucid.randint(7, shape)

    x = lucid.ones(*shape)
    step = lucid.compile(draws)
    lucid.manual_seed(5)
    expected = [draws(x) for _ in range(3)]
    lucid.manual_seed(5)
    for wanted in expected:
        for drawn, other in zip(step(x), wanted, strict=True):
            assert drawn.numpy().tobytes() == other.numpy().tobytes()
    assert step._latest_program().executable.shared_count


@pytest.mark.parametrize("of_its_own", [False, True])
def test_a_seed_may_be_another_one_in_each_call(agree, of_its_own):
    def scenario(compile):
        lucid.manual_seed(1)

        @compile
        def draw(seed):
            if not of_its_own:
                lucid.manual_seed(seed)
                return lucid.rand(4)
            return lucid.rand(4, generator=lucid.Generator().manual_seed(seed))

        seeds = (5, 6, 7, 0, 1, -1, 12345, -(2**63), 2**62, 5)
        return [draw(seed) for seed in seeds], lucid.rand(2)

    (step,) = agree(scenario, traces=3)
    assert not step.stats.eager_reasons


def test_random_numbers_are_the_same_bits_and_move_on(agree):
    def scenario(compile):
        @compile
        def draw(x):
            noise = lucid.randn(5, 3) + lucid.rand_like(x)
            return noise, F.dropout(x, 0.5), lucid.randint(10, (4, 3)), lucid.bernoulli(x * 0.5)

        x = lucid.ones(5, 3)
        first = [draw(x), lucid.rand(2), draw(x)]
        lucid.manual_seed(11)
        second = draw(x)
        state = lucid.get_rng_state()
        third = draw(x)
        lucid.set_rng_state(state)
        return [first, second, third, draw(x), lucid.get_rng_state()]

    agree(scenario, traces=1)


def test_generators_of_ones_own(agree):
    def scenario(compile):
        own = lucid.Generator().manual_seed(5)

        @compile
        def draw(generator):
            return lucid.rand(3, 2, generator=generator) + lucid.rand(3, 2, generator=own)

        other = lucid.Generator().manual_seed(7)
        found = [draw(other), draw(other), draw(own)]
        own.manual_seed(5)
        return [found, draw(other), own.get_state(), other.get_state(), lucid.rand(2)]

    agree(scenario)


def test_seeding_inside_of_a_step(agree):
    def scenario(compile):
        @compile
        def draw(x):
            lucid.manual_seed(3)
            return lucid.rand(3, 2) + x

        return [draw(lucid.ones(2)), draw(lucid.ones(2)), lucid.rand(2)]

    agree(scenario, traces=1)
