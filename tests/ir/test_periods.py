"""Repetitions in sequences."""

from __future__ import annotations

import numpy as np
import pytest

from lucid.ir.passes.periods import _GUESSES, _WIDTHS, Repetition, _guesses, repetitions


def test_stretches_that_repeat_are_found_between_others() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 9, 123), rng.integers(0, 9, 7)
    noise = [np.arange(100, 150), np.arange(200, 203)]
    tokens = np.concatenate([noise[0], np.tile(one, 30), noise[1], np.tile(other, 90)])
    start = 50 + 123 * 30 + 3
    wanted = [Repetition(50, 50 + 123 * 30, 123), Repetition(start, start + 7 * 90, 7)]
    assert repetitions(tokens, 4, 100) == wanted


def test_of_loops_in_a_loop_the_outer_one_is_found() -> None:
    inner = np.array([1, 2, 3, 1, 2, 4])
    tokens = np.tile(np.concatenate([np.tile(inner, 5), [7, 8]]), 20)
    assert repetitions(tokens, 4, 100) == [Repetition(0, 640, 32)]


def test_of_long_loops_in_few_rounds_the_outer_one_is_found() -> None:
    """Windows at the outer distance are rare beside those at the inner one."""
    inner, rng = np.arange(60), np.random.default_rng(0)
    tokens = np.tile(np.concatenate([np.tile(inner, 40), rng.integers(60, 99, 9)]), 4)
    assert repetitions(tokens, 4, 100) == [Repetition(0, len(tokens), 2409)]


def test_of_two_that_have_elements_in_common_the_shorter_one_begins_later() -> None:
    one, other = [1, 2, 3, 4], [2, 3, 4, 1, 5, 6]  # the second begins as the first goes on
    tokens = np.array([1, *one[1:], *(one * 40), *(other * 20)])
    first, second = repetitions(tokens, 4, 40)
    assert first.period == 4 and second.period == 6
    assert first.stop == second.start and second.stop == len(tokens)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_few_rounds_and_short_sequences_are_nothing(count: int) -> None:
    assert repetitions(np.arange(count), 4, 1) == []
    assert repetitions(np.tile([1, 2, 3], count // 25 + 1), 4, 9) == []


@pytest.mark.parametrize("size", [20_000, 160_000])
def test_few_periods_are_tried_however_long_the_sequence_is(size: int) -> None:
    """Each costs time that grows with the sequence, so all of them together grow so."""
    tokens = np.random.default_rng(0).integers(0, 20, size)
    assert len(_guesses(tokens, size // 4)) <= _GUESSES * len(_WIDTHS)
