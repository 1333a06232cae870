"""Drawing indices by their weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lucid


@pytest.mark.parametrize("native", [False, True])
def test_frequencies_follow_the_weights(native: bool) -> None:
    lucid.manual_seed(1)
    weights = lucid.tensor([1.0, 0.0, 3.0])

    def draw(w: lucid.Tensor) -> lucid.Tensor:
        return w.multinomial(4000, replacement=True)

    found = (lucid.compile(draw) if native else draw)(weights)
    counts = np.bincount(found.numpy(), minlength=3) / 4000
    np.testing.assert_allclose(counts, [0.25, 0.0, 0.75], atol=0.03)


def test_without_replacement_each_comes_once() -> None:
    lucid.manual_seed(2)
    weights = lucid.tensor([[1.0, 0.0, 3.0, 2.0]] * 200)
    found = lucid.multinomial(weights, 3).numpy()
    assert all(sorted(row) == [0, 2, 3] for row in found.tolist())
    assert (found[:, 0] == 2).mean() == pytest.approx(0.5, abs=0.12)


def test_eager_and_compiled_draw_the_same() -> None:
    weights = lucid.rand(5, 7)
    found = []
    for run in (lambda f: f, lucid.compile):
        lucid.manual_seed(5)
        found.append(run(lambda w: lucid.multinomial(w, 4))(weights).tolist())
    assert found[0] == found[1]


def test_more_samples_than_weights_need_replacement() -> None:
    with pytest.raises(lucid.OptionError, match="cannot draw 3 of 2 without replacement"):
        lucid.multinomial(lucid.ones(2), 3)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.0, -1.0], "probability tensor contains either `inf`, `nan` or element < 0"),
        ([float("nan"), 1.0], "probability tensor contains either `inf`, `nan` or element < 0"),
        ([1.0, 0.0], "invalid distribution: fewer weights above 0 than samples"),
    ],
)
@pytest.mark.parametrize("compiles", [lucid.compile, lambda function: function])
def test_weights_are_checked_in_both_modes(
    compiles: Callable[..., Callable[..., object]], weights: list[float], message: str
) -> None:
    with pytest.raises(lucid.OptionError) as caught:
        compiles(lambda p: lucid.multinomial(p, 2))(lucid.tensor(weights))
    assert str(caught.value).startswith(f"multinomial: {message}")
