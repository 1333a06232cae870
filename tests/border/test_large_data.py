"""What is large is compared at each call as well; very large arrays make calls run op by op."""

from __future__ import annotations

import array
import collections
import mmap
import types

import numpy as np
import pytest
from border.harness import NotAsEagerError, X, is_same, observed

import lucid

WORDS = 3_000
MANY_WORDS = 30_000
ELEMENTS = 1_000_000
FIRST, SECOND = 5e6, 9e6  # what is written


def words(count=WORDS):
    return [float(i % 7) for i in range(count)]


def table():
    return {f"w{i}": float(i % 7) for i in range(WORDS)}


def objects():
    return [types.SimpleNamespace(v=1.0) for i in range(WORDS)]


def rows():
    return [[1.0, 2.0] for _ in range(WORDS)]


PROGRAMS = {
    "sum of a list": (lambda: words(MANY_WORDS), sum, lambda d, v: d.__setitem__(20_000, v)),
    "a loop over a list": (
        words,
        lambda d: sum(v * 2 for v in d),
        lambda d, v: d.__setitem__(-1, v),
    ),
    "every item by its index": (
        words,
        lambda d: sum(d[i] for i in range(len(d))),
        lambda d, v: d.__setitem__(1_500, v),
    ),
    "a word's index": (
        words,
        lambda d: d.index(6.0),
        lambda d, v: d.__setitem__(1 if v == FIRST else 0, 6.0),
    ),
    "a list that grows": (words, len, lambda d, v: d.append(v)),
    "values of a dict": (table, lambda d: sum(d.values()), lambda d, v: d.update(w2999=v)),
    "lookups in a dict": (
        table,
        lambda d: sum(d[f"w{i}"] for i in range(0, WORDS, 3)),
        lambda d, v: d.update(w1500=v),
    ),
    "attributes of objects": (
        objects,
        lambda d: sum(o.v for o in d),
        lambda d, v: setattr(d[-1], "v", v),
    ),
    "rows of a table": (
        rows,
        lambda d: sum(row[0] for row in d),
        lambda d, v: d[2_000].__setitem__(0, v),
    ),
    "a deque": (
        lambda: collections.deque(words()),
        sum,
        lambda d, v: d.__setitem__(1_500, v),
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
        lambda d, v: d.__setitem__(2_000, v),
    ),
    "bytes of a buffer": (
        lambda: bytearray(WORDS),
        lambda d: d.count(1),
        lambda d, v: d.__setitem__(2_000 if v == FIRST else 9, 1),
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
        lambda d, v: d[0].update(w1500=v),
    ),
    "a large dict behind a proxy": (
        lambda: table_and(types.MappingProxyType),
        lambda d: sum(d[1].values()),
        lambda d, v: d[0].update(w1500=v),
    ),
}


def table_and(view):
    data = table()
    return data, view(data)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_change_in_large_data_is_seen_at_once(name):
    make, read, change = PROGRAMS[name]
    data = make()

    def step(x):
        return x * read(data)

    compiled = lucid.compile(step)
    before = observed(step(X))
    if not is_same(observed(compiled(X)), before) or not is_same(observed(compiled(X)), before):
        raise NotAsEagerError("the first calls differ")
    for value in (FIRST, SECOND):
        change(data, value)
        expected = observed(step(X))
        if value == FIRST:
            assert not is_same(expected, before), "the change makes no difference"
        for _ in range(2):
            if not is_same(observed(compiled(X)), expected):
                raise NotAsEagerError("an old value")
    if compiled.stats.traces > 5:
        raise NotAsEagerError(f"{compiled.stats.traces} traces")


def test_a_very_large_array_that_python_computes_with_is_read_by_each_call():
    data = np.arange(3_000_000.0)
    tensor = lucid.from_numpy(data)
    step = lucid.compile(lambda x: x * lucid.from_numpy(data[[5, 2_000_000]]))
    other = lucid.compile(lambda x: x * lucid.from_numpy(data)[5] + tensor[2_000_000])
    for value in (7.0, 9.0):
        data[2_000_000] = value
        assert step(lucid.ones(2, dtype=lucid.float64)).tolist() == [5.0, value]
        assert other(lucid.tensor(2.0, dtype=lucid.float64)).item() == 10.0 + value
    assert not other.stats.eager_reasons and other.stats.traces == 1
    assert not step.stats.eager_reasons and step.stats.traces == 1
    digits = lucid.compile(lambda x: x * len(data.data))
    assert digits(lucid.ones(1)).item() == len(data)
    assert "it looks at an array from outside" in str(digits.stats.eager_reasons)


def test_a_large_buffer_that_a_step_reads_can_be_resized_and_closed():
    data, file = bytearray(ELEMENTS), mmap.mmap(-1, ELEMENTS)
    step = lucid.compile(lambda x: x * (len(data) + file.find(b"\0")))
    assert step(X).tolist() == step(X).tolist()
    data.extend(b"\0")
    assert step(X).tolist() == (X * (ELEMENTS + 1)).tolist()
    file.close()
    with pytest.raises(ValueError):
        step(X)
