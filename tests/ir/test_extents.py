"""Sizes that are open: they compute as ints do, and what they are asked is noted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from lucid.ir.extents import (
    NotOpenError,
    Sizes,
    ceil_div,
    hint,
    is_multiple,
    is_open,
    replaced,
    taken,
)

Formula = Callable[[Any, Any], Any]

FORMULAS: list[Formula] = [
    lambda n, m: n + m,
    lambda n, m: 3 - n,
    lambda n, m: n * m * 2 - n * m,
    lambda n, m: n * 64 // 8,
    lambda n, m: n * m // m,
    lambda n, m: n // 8,
    lambda n, m: (n + 1) // m,
    lambda n, m: 100 // n,
    lambda n, m: n % 8,
    lambda n, m: 100 % n,
    lambda n, m: -n // 8,
    lambda n, m: ceil_div(n, 8) * 8,
    lambda n, m: ceil_div(n * m, n),
    lambda n, m: n - n // 8 * 8 + n % 8,
    lambda n, m: abs(m - n),
    lambda n, m: max(n, m) - min(n, 7),
    lambda n, m: taken(0, n, 2) + taken(n - 1, -1, -3) + taken(1, n - 1, 1),
    lambda n, m: sum((n, m, 1)) + divmod(n, 4)[1],
]
QUESTIONS: list[Formula] = [
    lambda n, m: n < m,
    lambda n, m: n <= 8,
    lambda n, m: n < 8,
    lambda n, m: n * 2 >= m + 1,
    lambda n, m: n % 8 == 0,
    lambda n, m: bool(n // 8),
    lambda n, m: n // 4 != m // 4,
    lambda n, m: is_multiple(n * 8, 4),
    lambda n, m: n - 20 < 0 < n,
    lambda n, m: (n - 5) // 3 < 0,
    lambda n, m: -n // 8 >= -1,
]


@pytest.mark.parametrize("formula", FORMULAS)
@hypothesis.given(st.tuples(*[st.integers(2, 60)] * 4))
def test_a_formula_has_its_value_for_all_sizes_for_which_assumptions_hold(
    formula: Formula, sizes: tuple[int, int, int, int]
) -> None:
    n, m, other_n, other_m = sizes
    open_ = Sizes([n, m], is_strict=False)
    made = formula(*open_.symbols)
    assert hint(made) == formula(n, m)
    holds = open_.checker()
    assert holds((n, m))
    if holds((other_n, other_m)):
        expected = formula(other_n, other_m)
        assert open_.evaluator([made])((other_n, other_m)) == [expected]
        assert not is_open(made) or open_.at((other_n, other_m))(made) == expected


@pytest.mark.parametrize("question", QUESTIONS)
@hypothesis.given(st.tuples(*[st.integers(2, 60)] * 4))
def test_an_answer_is_right_for_all_sizes_for_which_assumptions_hold(
    question: Formula, sizes: tuple[int, int, int, int]
) -> None:
    n, m, *others = sizes
    open_ = Sizes([n, m], is_strict=False)
    answer = question(*open_.symbols)
    assert answer == question(n, m)
    if open_.checker()(others):
        assert answer == question(*others)


@pytest.mark.parametrize(
    "question",
    [
        lambda n: n > 0,
        lambda n: n != 1,
        lambda n: 0 in (n, 3),
        lambda n: n * 64 >= n,
        lambda n: n + 1 == n,
        lambda n: n * 2 == n + n,
        lambda n: n < 2**60,
        lambda n: (n * 8) % 4 == 0,
    ],
)
def test_what_holds_for_all_sizes_is_no_assumption(question: Callable[[Any], bool]) -> None:
    sizes = Sizes([13])
    assert question(sizes.symbols[0]) == question(13)
    assert not sizes.assumptions


def test_sizes_for_which_a_formula_divides_by_zero_do_not_fit() -> None:
    open_ = Sizes([6, 2], is_strict=False)
    n, m = open_.symbols
    made = (n * m + 1) // (n - m - 2)
    assert open_.checker()((9, 2)) and open_.evaluator([made])((9, 2)) == [3]
    assert not open_.checker()((6, 4))


def test_sizes_of_none_and_one_are_never_open() -> None:
    sizes = Sizes([13])
    assert [value for value in range(15) if sizes.checker()([value])] == list(range(2, 15))


@pytest.mark.parametrize(
    "use",
    [
        lambda n: list(range(n)),
        lambda n: [0] * n,
        lambda n: int(n),
        lambda n: n / 2,
        lambda n: 1.5 * n,
        lambda n: 2**n,
        lambda n: 1 << n,
        lambda n: n.bit_length(),
        lambda n: "abc"[n:],
        lambda n: bytes(n),
    ],
)
def test_who_needs_the_value_of_an_open_size_is_told(use: Callable[[Any], object]) -> None:
    (n,) = Sizes([13]).symbols
    with pytest.raises(NotOpenError):
        use(n)


def test_two_formulas_that_are_equal_by_chance_are_no_assumption_but_the_end() -> None:
    n, m = Sizes([8, 16]).symbols
    assert n != m
    with pytest.raises(NotOpenError, match="by chance"):
        assert n * 2 == m
    n, m = Sizes([8, 16], is_strict=False).symbols
    assert n * 2 == m


def test_symbols_that_are_no_sizes_may_be_anything() -> None:
    sizes = Sizes([1, 13], is_strict=False, bits=[0])
    one, n = sizes.symbols
    assert one == 1
    assert one < n
    assert sizes.checker()((1, 40))
    assert not sizes.checker()((0, 40))


@dataclass(frozen=True)
class _Pair:
    first: Any
    second: tuple[Any, ...]


def test_extents_are_replaced_in_plain_data_and_what_has_none_is_shared() -> None:
    (n,) = Sizes([13]).symbols
    closed = _Pair(1, (2, 3))
    data = [_Pair(n, (n * 2, 3)), closed, {"a": n}]
    made = replaced(data, lambda extent: extent.hint)
    assert made == [_Pair(13, (26, 3)), closed, {"a": 13}]
    assert made[1] is closed
    assert replaced(closed, lambda extent: extent.hint) is closed
