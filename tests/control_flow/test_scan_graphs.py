"""The op `scan`: text, verifier, and what interpreter, kernels and native code make of it."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid.codegen import costs
from lucid.codegen.llvm.target import host_target
from lucid.codegen.lower.schedule import make_program
from lucid.codegen.program.interpret import interpret_program
from lucid.codegen.program.parse import parse_kernel, parse_kernels
from lucid.codegen.program.program import Program
from lucid.ir import ops, passes
from lucid.ir.errors import ParseError, VerifyError
from lucid.ir.graph import Graph, is_same_program
from lucid.ir.interpret import interpret
from lucid.ir.strides import contiguous_strides
from lucid.ir.text import parse
from lucid.ir.verify import verify
from lucid.runtime import compile_graph

RNN = """graph rnn(%h: f32[2,3], %xs: f32[LEN,2,3], %w: f32[3,3]) {
  %last, %ys = scan step(%h, %xs, %w) {carries = 1, rows = 1, length = LEN, reverse = REV} \
: (f32[2,3], f32[LEN,2,3])
  return %last, %ys
}
function step(%h: f32[2,3], %x: f32[2,3], %w: f32[3,3]) {
  %a = matmul %h, %w : f32[2,3]
  %s = add %a, %x : f32[2,3]
  %new = tanh %s : f32[2,3]
  return %new, %a
}
"""
# Carries change places, one is passed on, a row is a carry as it was, or something from outside.
PLACES = """graph places(%a: f64[3], %b: f64[3], %c: i64[], %xs: bool[LEN], %w: f64[5]) {
  %p, %q, %n, %r, %s, %t, %u, %v = scan step(%a, %b, %c, %xs, %w) {carries = 3, rows = 1, \
length = LEN, reverse = REV} : (f64[3], f64[3], i64[], f64[LEN,3], f64[LEN,5], bool[LEN], \
i64[LEN], f64[LEN,2])
  %sum = add %p, %q : f64[3]
  return %p, %q, %n, %r, %s, %t, %u, %v, %sum
}
function step(%a: f64[3], %b: f64[3], %c: i64[], %x: bool[], %w: f64[5]) {
  %one = constant 1 : i64[]
  %more = add %c, %one : i64[]
  %chosen = where %x, %b, %a : f64[3]
  %half = constant 0.5 : f64[]
  %halves = broadcast %half {shape = [2]} : f64[2]
  return %b, %chosen, %more, %a, %w, %x, %c, %halves
}
"""
# A loop in a loop: the inner one reads the outer carry and row.
NESTED = """graph nested(%h: f32[4], %xs: f32[LEN,4], %w: f32[4,4]) {
  %last, %ys = scan outer(%h, %xs, %w) {carries = 1, rows = 1, length = LEN, reverse = REV} \
: (f32[4], f32[LEN,3,4])
  return %last, %ys
}
function outer(%h: f32[4], %x: f32[4], %w: f32[4,4]) {
  %e = exp %x : f32[4]
  %last, %ys = scan inner(%h, %e, %w) {carries = 1, rows = 0, length = 3, reverse = false} \
: (f32[4], f32[3,4])
  %d = sub %last, %x : f32[4]
  return %d, %ys
}
function inner(%h: f32[4], %x: f32[4], %w: f32[4,4]) {
  %m = reshape %h {shape = [1,4]} : f32[1,4]
  %p = matmul %m, %w : f32[1,4]
  %r = reshape %p {shape = [4]} : f32[4]
  %s = add %r, %x : f32[4]
  %y = tanh %s : f32[4]
  return %y, %s
}
"""
# Rows without elements, and a carry that has none.
EMPTY = """graph empty(%a: f32[0,3], %xs: f32[LEN,0], %b: f32[]) {
  %p, %q, %y = scan step(%a, %b, %xs) {carries = 2, rows = 1, length = LEN, reverse = REV} \
: (f32[0,3], f32[], f32[LEN,0])
  return %p, %q, %y
}
function step(%a: f32[0,3], %b: f32[], %x: f32[0]) {
  %s = sum %x {axes = [0]} : f32[]
  %t = add %b, %s : f32[]
  %y = add %x, %t : f32[0]
  return %a, %t, %y
}
"""
# What each round adds at a row of places, one of which may come again, and at one place.
ADDED = """graph added(%a: f64[3,5,2], %b: f64[3,5,2], %c: f64[4], %ps: i64[LEN], %q: i64[], \
%rs: i64[LEN,2], %xs: f64[LEN,3,2], %ys: f64[LEN,3,2,2], %zs: f64[LEN]) {
  %at = check %ps {low = -5, high = 5, message = "", error = "index"} : i64[LEN]
  %two = check %rs {low = -5, high = 5, message = "", error = "index"} : i64[LEN,2]
  %here = check %q {low = -4, high = 4, message = "", error = "index"} : i64[]
  %p, %s, %r = scan step(%a, %b, %c, %ps, %rs, %xs, %ys, %zs, %q) {carries = 3, rows = 5, \
length = LEN, reverse = REV} : (f64[3,5,2], f64[3,5,2], f64[4])
  return %p, %s, %r
}
function step(%a: f64[3,5,2], %b: f64[3,5,2], %c: f64[4], %at: i64[], %two: i64[2], \
%x: f64[3,2], %y: f64[3,2,2], %z: f64[], %q: i64[]) {
  %its = check %at {low = -5, high = 5, message = "", error = "index"} : i64[]
  %of_two = check %two {low = -5, high = 5, message = "", error = "index"} : i64[2]
  %of_q = check %q {low = -4, high = 4, message = "", error = "index"} : i64[]
  %zero = constant 0.0 : f64[]
  %none = broadcast %zero {shape = [3,5,2]} : f64[3,5,2]
  %one = index_add %none, %at, %x {axis = 1} : f64[3,5,2]
  %more = add %a, %one : f64[3,5,2]
  %both = index_add %none, %two, %y {axis = 1} : f64[3,5,2]
  %again = add %both, %b : f64[3,5,2]
  %four = broadcast %zero {shape = [4]} : f64[4]
  %some = index_add %four, %q, %z {axis = 0} : f64[4]
  %last = add %c, %some : f64[4]
  return %more, %again, %last
}
"""
ALL = {"rnn": RNN, "places": PLACES, "nested": NESTED, "empty": EMPTY, "added": ADDED}


def graph_of(text: str, length: int = 5, reverse: bool = False) -> Graph:
    return parse(text.replace("LEN", str(length)).replace("REV", str(reverse).lower()))


def arrays(graph: Graph, rng: np.random.Generator) -> list[np.ndarray]:
    found = []
    for entry in graph.inputs:
        array = np.asarray(rng.standard_normal(entry.value.shape))
        if entry.value.dtype.is_floating_point and array.size > 4:
            array.ravel()[:: max(1, array.size // 2)] = np.nan
        found.append(
            (array > 0 if entry.value.dtype.kind == "bool" else array).astype(
                entry.value.dtype.numpy
            )
        )
    return found


def lowered(graph: Graph) -> Program:
    strides = [contiguous_strides(entry.value.shape) for entry in graph.inputs]
    return make_program(graph, strides, host_target())


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 7])
@pytest.mark.parametrize("name", ALL)
def test_interpreter_kernels_and_native_code_agree(name, length, reverse, rng):
    graph = graph_of(ALL[name], length, reverse)
    verify(graph)
    assert is_same_program(parse(str(graph)), graph)
    given = arrays(graph, rng)
    wanted = interpret(graph, given)[0]
    plain = compile_graph(graph)(given)
    passes.optimize(graph)
    for found in (
        plain,
        interpret(graph, given)[0],
        interpret_program(lowered(graph), given)[0],
        compile_graph(graph)(given),
    ):
        for x, y in zip(wanted, found, strict=True):
            np.testing.assert_allclose(y, x, rtol=2e-5, atol=1e-6)
            assert y.dtype == x.dtype and y.shape == x.shape


def test_what_rounds_add_at_a_row_of_places_is_added_at_once():
    graph = graph_of(ADDED)
    passes.optimize(graph)
    (loop,) = [node for node in graph.nodes if node.op is ops.scan]
    assert loop.attributes["carries"] == 1
    assert [node.op for node in graph.nodes].count(ops.index_add) == 2


def test_the_interpreter_goes_round_as_often_as_it_says(rng):
    graph = graph_of(RNN, 3, True)
    h, xs, w = given = [rng.standard_normal(e.value.shape, np.float32) for e in graph.inputs]
    last, ys = interpret(graph, given)[0]
    for t in (2, 1, 0):
        np.testing.assert_allclose(ys[t], h @ w, rtol=1e-5)
        h = np.tanh(h @ w + xs[t])
    np.testing.assert_allclose(last, h, rtol=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("length = 5", "length = 4", "its body step takes (f32[2,3], f32[2,3], f32[3,3])"),
        ("scan step", "scan other", "no function other"),
        ("return %new, %a", "return %w, %a", "its body step returns (f32[3,3], f32[2,3])"),
        ("return %new, %a", "return %new", "its body step returns (f32[2,3])"),
        ("carries = 1", "carries = 4", "has fewer operands, or results, than it says"),
        ("%new = tanh %s :", "%new = host F(%s) :", "says python = false, and its bodies don't"),
    ],
)
def test_what_does_not_go_together_is_refused(old, new, text):
    with pytest.raises(VerifyError) as caught:
        verify(parse(RNN.replace("LEN", "5").replace("REV", "false").replace(old, new)))
    assert text in str(caught.value)


def test_attributes_are_checked_when_text_is_parsed():
    with pytest.raises(ParseError, match="reverse is true or false"):
        graph_of(RNN.replace("REV", "3"))
    with pytest.raises(VerifyError, match="the attribute reverse is missing"):
        verify(graph_of(RNN.replace(", reverse = REV", "")))


def test_a_pass_of_the_users_goes_into_bodies():
    seen = []

    def note(graph: Graph) -> bool:
        seen.append(graph.name)
        return False

    passes.optimizing([note])(graph_of(NESTED))
    assert seen == ["nested", "outer", "inner"]


@pytest.mark.parametrize("name", ALL)
def test_the_kernel_says_all_of_it_in_its_text(name):
    program = lowered(graph_of(ALL[name], 5, True))
    for call in program.calls:
        assert parse_kernel(call.text) == call.kernel
    assert list(parse_kernels(program.kernel_text()))


@pytest.mark.parametrize("name", ["rnn", "nested"])
def test_threads_share_the_work_of_each_round(name, rng, monkeypatch):
    monkeypatch.setattr(costs, "WORTH_SECONDS", 0.0)
    large = {"rnn": {"2,3]": "33,3]"}, "nested": {"4]": "256]", "[4,": "[256,"}}
    text = ALL[name]
    for size, larger in large[name].items():
        text = text.replace(size, larger)
    graph = graph_of(text)
    given = arrays(graph, rng)
    before = lucid.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            lucid.set_num_threads(threads)
            executable = compile_graph(graph)
            assert executable.shared_count
            found.append([x.tobytes() for x in executable(given)])
    finally:
        lucid.set_num_threads(before)
    assert found[0] == found[1]
    for x, y in zip(interpret(graph, given)[0], executable(given), strict=True):
        np.testing.assert_allclose(y, x, rtol=2e-4, atol=1e-4)


def test_temps_of_a_body_are_planned_once_for_all_rounds():
    sizes = {n: lowered(graph_of(RNN, n)).arena_bytes for n in (10, 1000)}
    assert sizes[10] == sizes[1000]


def test_what_a_check_says_holds_wherever_it_stands_in_a_body():
    """All rounds were checked before the loop; passes may put a read of the index first."""
    graph = parse("""graph g(%h: f32[2], %is: i64[3], %js: i64[3], %table: f32[4]) {
  %last = scan step(%h, %is, %js, %table) {carries = 1, rows = 2, length = 3, reverse = false} \
: f32[2]
  return %last
}
function step(%h: f32[2], %i: i64[], %j: i64[], %table: f32[4]) {
  %a = reshape %i {shape = [1]} : i64[1]
  %b = reshape %j {shape = [1]} : i64[1]
  %both = concat %a, %b {axis = 0} : i64[2]
  %row = take %table, %both {axis = 0} : f32[2]
  %right = check %both {low = 0, high = 4, message = "{}", error = "index"} : i64[2]
  %new = add %h, %row : f32[2]
  return %new
}
""")
    table = np.array([1, 10, 100, 1000], np.float32)
    given = [np.zeros(2, np.float32), np.array([0, 1, 3]), np.array([2, 2, 0]), table]
    (found,) = compile_graph(graph)(given)
    np.testing.assert_array_equal(found, [1011, 201])


def test_an_index_counted_from_the_front_is_right_where_it_is_seen_in_two_shapes():
    """Passes leave a view out where broadcasting gives the same: of one element, all are one."""
    graph = parse("""graph g(%h: f32[1], %is: i64[3], %table: f32[4]) {
  %right = check %is {low = -4, high = 4, message = "{}", error = "index"} : i64[3]
  %last = scan step(%h, %is, %table) {carries = 1, rows = 1, length = 3, reverse = false} : f32[1]
  return %last
}
function step(%h: f32[1], %i: i64[], %table: f32[4]) {
  %zero = constant 0 : i64[]
  %four = constant 4 : i64[]
  %a = reshape %i {shape = [1]} : i64[1]
  %right = check %a {low = -4, high = 4, message = "{}", error = "index"} : i64[1]
  %low = lt %a, %zero : bool[1]
  %up = add %four, %i : i64[]
  %there = where %low, %up, %i : i64[1]
  %row = take %table, %there {axis = 0} : f32[1]
  %new = add %h, %row : f32[1]
  return %new
}
""")
    table = np.array([1, 10, 100, 1000], np.float32)
    given = [np.zeros(1, np.float32), np.array([0, -1, 2]), table]
    (found,) = compile_graph(graph)(given)
    np.testing.assert_array_equal(found, [1101])
