"""Anomaly mode names the backward that made NaN."""

from __future__ import annotations

import pytest
from custom_functions import Square, define, first_line, leaf, numbers, other_lines

import lucid
from lucid import autograd

MakesNaN = define(lambda ctx, x: x * 2, lambda ctx, g: g * float("nan"), "MakesNaN")
MESSAGE = "Function 'MakesNaNBackward' returned nan values in its 0th output."


def test_the_function_and_its_line_are_named(run):
    def body(x):
        with autograd.detect_anomaly():
            y = MakesNaN.apply(x)
            y.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert first_line(caught) == MESSAGE
    assert other_lines(caught).startswith("  MakesNaNBackward, recorded at test_anomaly.py:")
    assert other_lines(caught).endswith("y = MakesNaN.apply(x)")


def test_ops_are_named_as_well(run):
    def body(x):
        with autograd.detect_anomaly():
            (x.sqrt() * 0).sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([0.0]))
    assert first_line(caught) == ("Function 'SqrtBackward' returned nan values in its 0th output.")


def test_around_a_compiled_step_it_finds_the_same(run):
    x = leaf([1.0])
    with pytest.raises(RuntimeError) as caught, autograd.detect_anomaly():
        run(lambda x: MakesNaN.apply(x).sum().backward(), x)
    assert first_line(caught) == MESSAGE
    assert x.grad is None


def test_around_the_backward_of_a_compiled_result_it_finds_that_call(prepared):
    """The backward of a compiled call is one Function."""
    x, seen = leaf([1.0]), []
    a = x * 1
    a.register_hook(seen.append)
    y = prepared(lambda a: MakesNaN.apply(a))(a)
    with pytest.raises(RuntimeError) as caught, autograd.detect_anomaly():
        y.sum().backward()
    name = y.grad_fn.name()
    assert name in ("MakesNaNBackward", "CompiledBackward")
    assert first_line(caught) == f"Function '{name}' returned nan values in its 0th output."
    assert f"{name}, recorded at test_anomaly.py:" in other_lines(caught)
    assert x.grad is None and seen == []
    z = prepared(lambda a: Square.apply(a))(a)
    with autograd.detect_anomaly():
        z.sum().backward()
    assert numbers([x.grad, seen]) == [[2.0], [[2.0]]]


def test_numbers_pass(run):
    def body(x):
        with autograd.detect_anomaly():
            (x * 2).sum().backward()

    x = leaf([1.0])
    run(body, x)
    assert numbers(x.grad) == [2.0]


def test_without_check_nan_nothing_is_looked_at(run):
    def body(x):
        with autograd.detect_anomaly(check_nan=False):
            MakesNaN.apply(x).sum().backward()

    x = leaf([1.0])
    run(body, x)
    assert lucid.isnan(x.grad).all()


def test_the_mode_ends_with_its_block_though_it_raises(run):
    def body():
        with autograd.detect_anomaly():
            assert autograd.is_anomaly_enabled()
            assert autograd.is_anomaly_check_nan_enabled()
            raise KeyError

    with pytest.raises(KeyError):
        run(body)
    assert not autograd.is_anomaly_enabled()


def test_set_detect_anomaly_works_at_once_and_as_a_block(run):
    def modes():
        found = []

        def note():
            found.append((autograd.is_anomaly_enabled(), autograd.is_anomaly_check_nan_enabled()))

        autograd.set_detect_anomaly(True)
        note()
        with autograd.set_detect_anomaly(False):
            note()
        note()
        autograd.set_detect_anomaly(False)
        note()
        with autograd.set_detect_anomaly(True, check_nan=False):
            note()
        note()
        return found

    on, off = (True, True), (False, False)
    assert run(modes) == [on, off, on, off, (True, False), off]


def test_set_detect_anomaly_as_a_block_names_the_function(run):
    def body(x, mode):
        with autograd.set_detect_anomaly(mode):
            MakesNaN.apply(x).sum().backward()

    x = leaf([1.0])
    with pytest.raises(RuntimeError) as caught:
        run(body, x, True)
    assert first_line(caught) == MESSAGE
    assert x.grad is None
    run(body, x, False)
    assert lucid.isnan(x.grad).all()


def test_detect_anomaly_decorates(run):
    @autograd.detect_anomaly()
    def step(x):
        MakesNaN.apply(x).sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(step, leaf([1.0]))
    assert first_line(caught) == MESSAGE
