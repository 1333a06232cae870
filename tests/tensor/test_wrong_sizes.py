"""Sizes and lengths that an operation can't have, and those that are merely nothing."""

from __future__ import annotations

import pickle
import re
from functools import partial
from typing import Any

import pytest

import lucid
import lucid.nn.functional as F
from lucid.nn.utils import rnn


@pytest.mark.parametrize("with_replacement", [False, True])
def test_there_are_no_combinations_of_more_than_there_is(with_replacement: bool) -> None:
    count = 0 if with_replacement else 2
    found = lucid.combinations(lucid.arange(count), 3, with_replacement)
    assert found.shape == (0, 3) and found.dtype is lucid.int64


def test_what_requires_grad_is_not_resized() -> None:
    x = lucid.ones(3, requires_grad=True)
    with pytest.raises(lucid.LucidError, match="cannot resize variables that require grad"):
        x.resize_(2, 2)
    assert x.shape == (3,)


@pytest.mark.parametrize("length", [0, 4, -1])
def test_a_packed_sequence_lies_in_its_padded_tensor(length: int) -> None:
    with pytest.raises(lucid.OptionError, match=f"{length} isn't from 1 to 3$"):
        rnn.pack_padded_sequence(lucid.ones(3, 2, 1), [3, length])


def test_a_size_is_made_of_ints() -> None:
    for wrong in ([2, 1.5], "ab"):
        with pytest.raises(TypeError, match=r"Size: takes ints, and number \d of them is (fl|str)"):
            lucid.Size(wrong)
    assert lucid.Size([lucid.tensor(2), True]) == (2, 1)
    assert pickle.loads(pickle.dumps(lucid.Size([2, 3]))) == (2, 3)


@pytest.mark.parametrize(
    "run",
    [
        lambda x, n: F.conv2d(x, lucid.ones(1, 1, 2, 2), stride=n),
        lambda x, n: F.conv2d(x, lucid.ones(1, 1, 2, 2), padding=(n, 1)),
        lambda x, n: F.max_pool2d(x, n),
        lambda x, n: F.unfold(x, n),
        lambda x, n: F.interpolate(x, size=n),
        lambda x, n: F.adaptive_avg_pool2d(x, n),
        lambda x, n: F.adaptive_max_pool2d(x, (n, None)),
        lambda x, n: F.embedding(x.long(), lucid.ones(4, 2), padding_idx=n),
        lambda x, n: F.one_hot(x.long(), n),
        lambda x, n: F.cross_entropy(x[0, 0], x[0, 0, 0].long(), ignore_index=n),
        lambda x, n: x.tril(n),
        lambda x, n: lucid.triu_indices(3, 3, n),
        lambda x, n: lucid.diag_embed(x, n),
        lambda x, n: x.narrow(2, 0, n),
        lambda x, n: lucid.vander(x[0, 0, 0], n),
    ],
)
@pytest.mark.parametrize("size", [1.5, float("nan")])
def test_a_size_or_place_is_not_cut_to_an_int(run: Any, size: Any) -> None:
    for call in (run, lucid.compile(run)):
        with pytest.raises(lucid.ArgumentError, match=re.escape(f"must be an int, not {size!r}")):
            call(lucid.ones(1, 1, 4, 4), size)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_lists_that_are_too_deep_or_in_themselves_make_no_tensor(is_compiled: bool) -> None:
    deep: Any = 1.0
    for _ in range(64):
        deep = [deep]
    itself: list[Any] = [1.0]
    itself.append(itself)
    assert lucid.tensor(deep).ndim == 64
    for wrong in ([deep], itself):
        call = partial(lucid.tensor, wrong)
        with pytest.raises(lucid.ShapeError, match=r"^tensor: lists on more than 64 levels"):
            (lucid.compile(lambda made=call: made()) if is_compiled else call)()
