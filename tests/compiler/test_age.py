"""Which objects a trace has made: told by what Python's collector lists, each of them once."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator

import pytest

from lucid.compiler.guards.age import Age


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
    assert not age.is_new(Thing())


def test_what_was_there_is_never_new() -> None:
    olds = [Thing() for _ in range(3)]
    age = Age()
    age.begin()
    try:
        assert not any(map(age.is_new, olds))
    finally:
        age.end()


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
