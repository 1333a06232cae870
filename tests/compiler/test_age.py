"""Which objects a trace has made: told by what Python's collector lists, each of them once."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.compiler.guards.age import Age

X = lucid.tensor([[1.0, 2.0, 4.0], [8.0, 2.0, 1.0]])


class Thing:
    """What the collector tracks."""


@pytest.fixture
def age() -> Iterator[Age]:
    """A trace's, while no cycles are looked for."""
    found = Age()
    gc.disable()
    try:
        found.begin()
        yield found
    finally:
        found.end()
        gc.enable()


def nothing() -> None:
    """Between two looks."""


def dropped() -> None:
    """What was new dies, and leaves its place to others."""
    [Thing() for _ in range(100)]


def nested() -> None:
    """Another trace runs."""
    inner = Age()
    inner.begin()
    assert inner.is_new(Thing())
    inner.end()


@pytest.mark.parametrize("between", [nothing, gc.collect, dropped, nested])
def test_what_is_new_is_known_however_often_one_looks(
    age: Age, between: Callable[[], object]
) -> None:
    old, made = gc.get_objects.__self__, list[Thing]()
    assert not age.is_new(old)
    for _ in range(3):
        made.append(Thing())
        between()
        made.append(Thing())
        assert all(map(age.is_new, made)), between.__doc__
        assert not age.is_new(old)
    made.append(Thing())
    age.settle()
    assert age.is_new(made[-1])
    known = age._new
    age.is_new(Thing())  # can't be told: it may lie where something new has died
    assert age._new is known


def test_what_was_there_is_never_new() -> None:
    olds = [Thing() for _ in range(3)]
    age = Age()
    age.begin()
    try:
        assert not any(map(age.is_new, olds))
    finally:
        age.end()


def test_several_are_told_apart_by_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    olds, age, looks = [Thing() for _ in range(3)], Age(), list[Age]()
    look = Age._look
    monkeypatch.setattr(Age, "_look", lambda age: looks.append(age) or look(age))
    age.begin()
    try:
        made = [Thing() for _ in range(3)]
        age.know([*olds, *made])
        assert [*map(age.is_new, (*olds, *made))] == [False] * 3 + [True] * 3
    finally:
        age.end()
    assert looks == [age]


def test_the_modules_below_one_are_told_apart_by_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer's setting is read live where the step hasn't made the layer: of each it is asked."""
    looks, look = list[Age](), Age._look
    monkeypatch.setattr(Age, "_look", lambda age: looks.append(age) or look(age))

    def looks_of(count: int) -> int:
        model = nn.Sequential(*[nn.LayerNorm(3, eps=0.1) for _ in range(count)])
        step = lucid.compile(lambda x: model(x))
        looks.clear()
        np.testing.assert_allclose(step(X).tolist(), model(X).tolist(), rtol=1e-5)
        assert step.stats.traces == 1 and not step.stats.eager_reasons
        return len(looks)

    assert looks_of(12) == looks_of(2)


def test_a_look_counts_only_what_is_newer_than_the_last_one(age: Age) -> None:
    """A model's hundred layers are asked for one after the other, and were there before."""
    made = [Thing() for _ in range(2000)]
    for layer in range(50):
        made.append(Thing())
        age.settle()
        assert age.is_new(made[layer])
    assert len(age._new) < 2 * len(made) + 50 * 40


def test_a_look_keeps_nothing_alive(age: Age) -> None:
    for _ in range(3):
        thing = Thing()
        reference, count = weakref.ref(thing), sys.getrefcount(thing)
        age.settle()
        assert sys.getrefcount(thing) == count
        del thing
        assert reference() is None
