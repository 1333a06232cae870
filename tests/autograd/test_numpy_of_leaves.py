"""`numpy()` of tensors that require grad is refused, wherever they were made."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import LucidError

REFUSED = "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
READERS = [lambda x: x.numpy(), lambda x: np.array(x), lambda x: np.asarray(x)]


def made(x):
    return lucid.tensor([1.0, 2.0], requires_grad=True)


def given(x):
    return x


def computed(x):
    return x * 2


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("which", [made, given, computed])
def test_the_array_of_a_tensor_that_requires_grad_is_refused(run, read, which):
    with pytest.raises(LucidError) as caught:
        run(lambda x: read(which(x)), lucid.ones(2, requires_grad=True))
    assert str(caught.value) == REFUSED


@pytest.mark.parametrize("read", READERS)
def test_it_is_given_detached_or_where_nothing_is_recorded(run, read):
    def body():
        leaf = lucid.tensor([1.0, 2.0], requires_grad=True)
        with lucid.no_grad():
            return read(leaf), read(leaf.detach())

    for array in run(body):
        assert array.tolist() == [1.0, 2.0]


def test_tolist_gives_the_numbers_of_a_leaf(run):
    assert run(lambda: lucid.tensor([1.0, 2.0], requires_grad=True).tolist()) == [1.0, 2.0]
