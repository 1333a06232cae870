"""What is too large to be compared at each call is compared in turn: a change is found in time."""

from __future__ import annotations

import array
import collections
import types

import numpy as np
import pytest
from border.harness import NotAsEagerError, X, is_same, observed

import lucid

CALLS = 300  # within which a change must have been found
WORDS = 30_000
ELEMENTS = 1_000_000
FIRST, SECOND = 5e6, 9e6  # what is written


def words():
    return [float(i % 7) for i in range(WORDS)]


def table():
    return {f"w{i}": float(i % 7) for i in range(WORDS)}


def objects():
    return [types.SimpleNamespace(v=1.0) for i in range(WORDS)]


def rows():
    return [[1.0, 2.0] for _ in range(WORDS)]


PROGRAMS = {
    "sum of a list": (words, sum, lambda d, v: d.__setitem__(20_000, v)),
    "a loop over a list": (
        words,
        lambda d: sum(v * 2 for v in d),
        lambda d, v: d.__setitem__(-1, v),
    ),
    "every item by its index": (
        words,
        lambda d: sum(d[i] for i in range(len(d))),
        lambda d, v: d.__setitem__(15_000, v),
    ),
    "a word's index": (
        words,
        lambda d: d.index(6.0),
        lambda d, v: d.__setitem__(1 if v == FIRST else 0, 6.0),
    ),
    "a list that grows": (words, len, lambda d, v: d.append(v)),
    "values of a dict": (table, lambda d: sum(d.values()), lambda d, v: d.update(w29999=v)),
    "lookups in a dict": (
        table,
        lambda d: sum(d[f"w{i}"] for i in range(0, WORDS, 3)),
        lambda d, v: d.update(w15000=v),
    ),
    "attributes of objects": (
        objects,
        lambda d: sum(o.v for o in d),
        lambda d, v: setattr(d[-1], "v", v),
    ),
    "rows of a table": (
        rows,
        lambda d: sum(row[0] for row in d),
        lambda d, v: d[20_000].__setitem__(0, v),
    ),
    "a deque": (
        lambda: collections.deque(words()),
        sum,
        lambda d, v: d.__setitem__(15_000, v),
    ),
    "the largest of a set": (lambda: set(words()), max, lambda d, v: d.add(v)),
    "mean of an array": (
        lambda: np.ones(ELEMENTS),
        lambda d: float(d.mean()),
        lambda d, v: d.__setitem__(700_000, v),
    ),
    "an element of an array": (
        lambda: np.ones(ELEMENTS),
        lambda d: float(d[700_000]),
        lambda d, v: d.__setitem__(700_000, v),
    ),
    "an array that C looks at": (
        lambda: np.arange(float(ELEMENTS)),
        lambda d: int(np.searchsorted(d, 10.5)),
        lambda d, v: d.__setitem__(slice(6, 20), 10.0 if v == FIRST else 11.0),
    ),
    "an array that becomes a list": (
        lambda: np.ones(WORDS),
        lambda d: sum(d.tolist()),
        lambda d, v: d.__setitem__(9, v),
    ),
    "a large array.array": (
        lambda: array.array("d", words()),
        sum,
        lambda d, v: d.__setitem__(20_000, v),
    ),
    "bytes of a buffer": (
        lambda: bytearray(WORDS),
        lambda d: d.count(1),
        lambda d, v: d.__setitem__(20_000 if v == FIRST else 9, 1),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_change_in_large_data_is_found_in_time(name):
    make, read, change = PROGRAMS[name]
    data = make()

    def step(x):
        return x * read(data)

    compiled = lucid.compile(step)
    before = observed(step(X))
    if not is_same(observed(compiled(X)), before) or not is_same(observed(compiled(X)), before):
        raise NotAsEagerError("the first calls differ")
    change(data, FIRST)
    expected = observed(step(X))
    assert not is_same(expected, before), "the change makes no difference"
    for _ in range(CALLS):
        if is_same(observed(compiled(X)), expected):
            break
    else:
        raise NotAsEagerError(f"the old value after {CALLS} calls")
    if compiled.stats.traces > 5:
        raise NotAsEagerError(f"{compiled.stats.traces} traces")


@pytest.mark.parametrize("name", ["an element of an array", "mean of an array", "sum of a list"])
def test_what_has_moved_is_seen_at_once_from_then_on(name):
    """All of it is looked at from then on, or it has become a live input."""
    make, read, change = PROGRAMS[name]
    data = make()

    def step(x):
        return x * read(data)

    compiled = lucid.compile(step)
    compiled(X)
    change(data, FIRST)
    for _ in range(CALLS):
        if is_same(observed(compiled(X)), observed(step(X))):
            break
    change(data, SECOND)
    if not is_same(observed(compiled(X)), observed(step(X))):
        raise NotAsEagerError("a second change of the same entry isn't seen at once")


def test_so_is_all_else_in_it():
    data = words()
    compiled = lucid.compile(lambda x: x * sum(data))
    compiled(X)
    data[20_000] = FIRST
    for _ in range(CALLS):
        if is_same(observed(compiled(X)), observed(X * sum(data))):
            break
    data[25_000] = SECOND
    if not is_same(observed(compiled(X)), observed(X * sum(data))):
        raise NotAsEagerError("another entry isn't seen at once")
