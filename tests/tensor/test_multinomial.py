"""Drawing indices by their weights."""

from __future__ import annotations

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


@pytest.mark.parametrize("weights", [[-1.0, 2.0], [float("nan"), 1.0], [0.0, 0.0]])
def test_what_is_no_distribution_is_refused(weights: list[float]) -> None:
    with pytest.raises(lucid.OptionError, match="multinomial"):
        lucid.multinomial(lucid.tensor(weights), 1)


def test_more_samples_than_weights_need_replacement() -> None:
    with pytest.raises(lucid.OptionError, match="cannot draw 3 of 2 without replacement"):
        lucid.multinomial(lucid.ones(2), 3)
