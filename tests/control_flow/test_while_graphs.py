"""The op `while_loop`: text, verifier, and what interpreter, kernels and native code make of it."""

from __future__ import annotations

import numpy as np
import pytest
from region_programs import results

import lucid
from lucid.codegen import costs
from lucid.ir.errors import VerifyError
from lucid.ir.interpret import interpret
from lucid.ir.text import parse
from lucid.ir.verify import verify
from lucid.runtime import compile_graph

# x is multiplied until its sum is large; the rows are filled from the first one on.
GROWING = """graph growing(%x: f32[5], %w: f32[5], %limit: f32[]) {
  %s = sum %x {axes = [0]} : f32[]
  %go = lt %s, %limit : bool[]
  %t = constant 0 : i64[]
  %end, %n, %y, %ys = while_loop step(%go, %t, %x, %w, %limit) {carries = 3, rows = 0, length = 4} \
: (bool[], i64[], f32[5], f32[4,5])
  return %end, %n, %y, %ys
}
function step(%go: bool[], %t: i64[], %x: f32[5], %w: f32[5], %limit: f32[]) {
  %one = constant 1 : i64[]
  %more = add %t, %one : i64[]
  %e = exp %w : f32[5]
  %y = mul %x, %e : f32[5]
  %s = sum %y {axes = [0]} : f32[]
  %on = lt %s, %limit : bool[]
  return %on, %more, %y, %x
}
"""
# Rounds from row `last` down to the first one; carries change places.
DOWN = """graph down(%last: i64[], %a: f32[3], %b: f32[3], %xs: f32[4,3]) {
  %zero = constant 0 : i64[]
  %go = ge %last, %zero : bool[]
  %end, %n, %p, %q, %ys, %ts = while_loop step(%go, %last, %a, %b, %xs) \
{carries = 4, rows = 1, length = 4} : (bool[], i64[], f32[3], f32[3], f32[4,3], i64[4])
  return %n, %p, %q, %ys, %ts
}
function step(%go: bool[], %t: i64[], %a: f32[3], %b: f32[3], %x: f32[3]) {
  %one = constant -1 : i64[]
  %less = add %t, %one : i64[]
  %zero = constant 0 : i64[]
  %on = ge %less, %zero : bool[]
  %sum = add %a, %x : f32[3]
  return %on, %less, %b, %sum, %sum, %t
}
"""
# A while_loop in a scan in a while_loop.
NESTED = """graph nested(%x: f32[3], %limit: f32[]) {
  %go = constant true : bool[]
  %t = constant 0 : i64[]
  %end, %n, %y = while_loop outer(%go, %t, %x, %limit) {carries = 3, rows = 0, length = 0} \
: (bool[], i64[], f32[3])
  return %n, %y
}
function outer(%go: bool[], %t: i64[], %x: f32[3], %limit: f32[]) {
  %one = constant 1 : i64[]
  %more = add %t, %one : i64[]
  %last, %ns = scan middle(%x, %limit) {carries = 1, rows = 0, length = 2, reverse = false} \
: (f32[3], i64[2])
  %three = constant 3 : i64[]
  %on = lt %more, %three : bool[]
  return %on, %more, %last
}
function middle(%x: f32[3], %limit: f32[]) {
  %m = amax %x {axes = [0]} : f32[]
  %go = lt %m, %limit : bool[]
  %t = constant 0 : i64[]
  %end, %n, %y = while_loop inner(%go, %t, %x, %limit) {carries = 3, rows = 0, length = 0} \
: (bool[], i64[], f32[3])
  %half = constant 0.25 : f32[]
  %z = mul %y, %half : f32[3]
  return %z, %n
}
function inner(%go: bool[], %t: i64[], %x: f32[3], %limit: f32[]) {
  %one = constant 1 : i64[]
  %more = add %t, %one : i64[]
  %by = constant 1.5 : f32[]
  %y = mul %x, %by : f32[3]
  %m = amax %y {axes = [0]} : f32[]
  %on = lt %m, %limit : bool[]
  return %on, %more, %y
}
"""


def array(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


@pytest.mark.parametrize("first", [0.1, 2.0, 15.0, 30.0])
def test_rounds_go_on_as_long_as_the_condition_holds(first):
    x, w, limit = np.full(5, first, np.float32), array(0.1, 0.2, 0.3, 0.4, 0.5), 100.0
    end, n, y, ys = results(GROWING, [x, w, np.array(limit, np.float32)])
    rows = np.zeros((4, 5), np.float32)
    rounds = 0
    while x.sum() < limit:
        rows[min(rounds, 3)] = x  # behind the last row there is none
        x, rounds = x * np.exp(w), rounds + 1
    assert not end and n == rounds
    np.testing.assert_allclose(y, x, rtol=1e-5)
    np.testing.assert_allclose(ys, rows, rtol=1e-5)


def test_a_condition_that_is_a_nan_ends_the_loop():
    end, n, y, ys = results(
        GROWING, [np.full(5, np.nan, np.float32), array(*range(5)), np.array(1, np.float32)]
    )
    assert not end and n == 0 and np.isnan(y).all() and not ys.any()


@pytest.mark.parametrize("last", [-1, 0, 2, 3])
def test_a_carry_says_which_row_a_round_has(last, rng):
    a, b = rng.standard_normal((2, 3)).astype(np.float32)
    xs = rng.standard_normal((4, 3)).astype(np.float32)
    n, p, q, ys, ts = results(DOWN, [np.array(last), a, b, xs])
    rows = np.zeros((4, 3), np.float32)
    for t in range(last, -1, -1):
        rows[t] = a + xs[t]
        a, b = b, rows[t]
    assert n == -1
    np.testing.assert_allclose(p, a, rtol=1e-6)
    np.testing.assert_allclose(q, b, rtol=1e-6)
    np.testing.assert_allclose(ys, rows, rtol=1e-6)
    assert ts.tolist() == [t if t <= last else 0 for t in range(4)]


def test_loops_in_loops():
    n, y = results(NESTED, [array(0.3, -1, 0.7), np.array(5, np.float32)])
    x = array(0.3, -1, 0.7)
    for _ in range(6):
        while x.max() < 5:
            x = x * np.float32(1.5)
        x = x * np.float32(0.25)
    assert n == 3
    np.testing.assert_allclose(y, x, rtol=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("carries = 3", "carries = 1", "its first carries aren't a bool[] and an i64[]"),
        ("step(%go, %t,", "step(%t, %go,", "its first carries aren't a bool[] and an i64[]"),
        ("length = 4", "length = 0", "has rows, and no length"),
        ("length = 4", "length = 3", "its body step returns (bool[], i64[], f32[5], f32[5])"),
        ("return %on, %more, %y", "return %on, %more, %s", "its body step returns"),
        ("%y = mul %x, %e :", "%y = host F(%x) :", "says python = false, and its bodies don't"),
    ],
)
def test_what_does_not_go_together_is_refused(old, new, text):
    with pytest.raises(VerifyError) as caught:
        verify(parse(GROWING.replace(old, new)))
    assert text in str(caught.value)


def test_threads_share_the_work_of_each_round(monkeypatch):
    monkeypatch.setattr(costs, "WORTH_SECONDS", 0.0)
    text = GROWING.replace("f32[5]", "f32[70000]").replace("f32[4,5]", "f32[4,70000]")
    given = [
        np.full(70000, 0.01, np.float32),
        np.full(70000, 0.3, np.float32),
        np.array(1e5, np.float32),
    ]
    before = lucid.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            lucid.set_num_threads(threads)
            executable = compile_graph(parse(text))
            assert executable.shared_count
            found.append([x.tobytes() for x in executable(given)])
    finally:
        lucid.set_num_threads(before)
    assert found[0] == found[1]
    assert interpret(parse(text), given)[0][1] == np.frombuffer(found[0][1], np.int64)
