"""What is too large to be compared at each call is compared in turn: a change is found in time."""

from __future__ import annotations

import array
import collections
import mmap
import types

import numpy as np
import pytest
from border.harness import NotAsEagerError, X, is_same, observed

import lucid
from lucid.compiler.guards.guard import LargeGuard

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
    "bytes of a large buffer": (
        lambda: bytearray(10 * ELEMENTS),
        lambda d: d.count(1),
        lambda d, v: d.__setitem__(7_000_000 if v == FIRST else 9, 1),
    ),
    "a byte of a large buffer": (
        lambda: bytearray(10 * ELEMENTS),
        lambda d: d[7_000_000],
        lambda d, v: d.__setitem__(7_000_000, 1 if v == FIRST else 2),
    ),
    "a large buffer that grows": (
        lambda: bytearray(ELEMENTS),
        len,
        lambda d, v: d.extend(bytes(ELEMENTS)),
    ),
    "a view of a large buffer": (
        lambda: memoryview(array.array("d", [1.0]) * ELEMENTS),
        lambda d: bytes(d).find(bytes(8)),
        lambda d, v: d.__setitem__(700_000 if v == FIRST else 9, 0.0),
    ),
    "every other byte of a large buffer": (
        lambda: memoryview(bytearray(2 * ELEMENTS))[::2],
        lambda d: bytes(d).count(1),
        lambda d, v: d.__setitem__(700_000 if v == FIRST else 9, 1),
    ),
    "a file in memory": (
        lambda: mmap.mmap(-1, ELEMENTS),
        lambda d: d.find(b"\x01"),
        lambda d, v: d.__setitem__(700_000 if v == FIRST else 9, 1),
    ),
    "the values of a large dict": (
        lambda: table_and(dict.values),
        lambda d: sum(d[1]),
        lambda d, v: d[0].update(w15000=v),
    ),
    "a large dict behind a proxy": (
        lambda: table_and(types.MappingProxyType),
        lambda d: sum(d[1].values()),
        lambda d, v: d[0].update(w15000=v),
    ),
}


def table_and(view):
    data = table()
    return data, view(data)


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


SEEN = (
    *("an element of an array", "mean of an array", "sum of a list"),
    *("bytes of a large buffer", "a byte of a large buffer", "the values of a large dict"),
)


@pytest.mark.parametrize("name", SEEN)
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


@pytest.mark.parametrize("kind", ["buffer", "values"])
def test_a_call_looks_at_a_part_of_what_only_c_looks_into(kind):
    data = bytearray(50 * ELEMENTS) if kind == "buffer" else table()
    view = data if kind == "buffer" else data.values()
    step = lucid.compile(lambda x: x * len(view), audit=False)
    step(X)
    guards = step._latest_program().guards
    (large,) = [guard for guard in guards.guards if isinstance(guard, LargeGuard)]
    large.holds()
    assert 0 < large._turn < len(large.expected) / 10


def test_a_large_buffer_that_a_step_reads_can_be_resized_and_closed():
    data, file = bytearray(ELEMENTS), mmap.mmap(-1, ELEMENTS)
    step = lucid.compile(lambda x: x * (len(data) + file.find(b"\0")))
    assert step(X).tolist() == step(X).tolist()
    data.extend(b"\0")
    assert step(X).tolist() == (X * (ELEMENTS + 1)).tolist()
    file.close()
    with pytest.raises(ValueError):
        step(X)
