"""Functions that arrange elements anew, beside NumPy's."""

import itertools

import numpy as np
import pytest

import lucid


@pytest.mark.parametrize("name", ["tril_indices", "triu_indices"])
def test_triangles_are_numpys(name):
    for rows, columns, offset in itertools.product((0, 1, 3, 5), (0, 1, 4, 6), range(-7, 8)):
        want = np.stack(getattr(np, name)(rows, offset, columns))
        found = getattr(lucid, name)(rows, columns, offset)
        assert found.tolist() == want.tolist()
    assert getattr(lucid, name)(300, 300, dtype=lucid.uint8).max().item() == 255


@pytest.mark.parametrize("dims", [(0, 1), (1, 0), (0, 2), (-1, 1)])
def test_quarter_turns_are_numpys_and_copies(dims):
    x = lucid.arange(24.0).reshape(2, 3, 4)
    for turns in range(-5, 6):
        want = np.rot90(x.numpy(), turns, dims)
        found = lucid.rot90(x, turns, dims)
        assert found.is_contiguous() and np.array_equal(found.numpy(), want)
        assert not np.shares_memory(found.numpy(), x.numpy())
        assert np.array_equal(lucid.compile(lucid.rot90)(x, turns, dims).numpy(), want)
