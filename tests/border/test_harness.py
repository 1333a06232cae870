"""The harness finds what it is for: planted faults, and programs that would test nothing."""

from __future__ import annotations

import types

import pytest
from border.harness import NotAsEagerError, WrongProgramError, X, calls, compare

from lucid.ir.errors import TraceError

state = types.SimpleNamespace(scale=1.0)


def is_traced(compile):
    return getattr(compile, "options", None) == {}


def frozen(compile):
    """A value that the step reads once only, as a compiler would that has no guard for it."""
    state.scale = 1.0
    kept = []
    step = compile(lambda x: x * 2)

    def call(x):
        if is_traced(compile):
            kept.append(state.scale)
            return step(x) * kept[0]
        return step(x) * state.scale

    return calls(call, lambda: setattr(state, "scale", 2.0))


def unchanging(compile):
    return calls(compile(lambda x: x * 2), lambda: None)


def unrepeatable(compile):
    state.scale += 1
    return [X * state.scale, X]


def refused(message):
    def program(compile):
        def step(x):
            if is_traced(compile):
                raise TraceError(message)
            return x * state.scale

        state.scale = 1.0
        return calls(step, lambda: setattr(state, "scale", 2.0))

    return program


def test_a_frozen_value_is_found():
    with pytest.raises(NotAsEagerError, match="result 2 is"):
        compare(frozen)


@pytest.mark.parametrize("program", [unchanging, unrepeatable])
def test_a_program_that_shows_nothing_is_an_error_of_its_own(program):
    with pytest.raises(WrongProgramError):
        compare(program)


def test_a_refusal_must_name_a_line_and_a_remedy():
    honest = "a clock\n  at test_harness.py:9   x * time()\nhint: pass it as an argument"
    compare(refused(honest), or_said=True)
    with pytest.raises(NotAsEagerError):
        compare(refused(honest))
    with pytest.raises(NotAsEagerError):
        compare(refused("a clock\nhint: pass it as an argument"), or_said=True)
    with pytest.raises(NotAsEagerError):
        compare(refused("a clock\n  at test_harness.py:9   x * time()"), or_said=True)
