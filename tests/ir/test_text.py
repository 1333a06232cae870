"""IR text: what is printed parses back to the same graph, and errors point at the place."""

from __future__ import annotations

import contextlib
import math
import random
import re
import struct
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from random_graphs import annotated_graphs, operand_types

from lucid.ir.errors import ParseError, VerifyError
from lucid.ir.graph import Graph, Region, Value, freeze_attributes, is_same_program
from lucid.ir.location import Location
from lucid.ir.op import OPS, Op
from lucid.ir.text import parse, print_graph
from lucid.ir.text.literals import format_number, number
from lucid.ir.types import DTYPES, TensorType, f32, f64
from lucid.ir.verify import verify


def structure(graph: Graph) -> tuple[object, ...]:
    """What a graph is, told without its text."""
    index = {value: i for i, value in enumerate(graph.values())}

    def mark(value: Value | None) -> int | None:
        return None if value is None else index.get(value)

    def line(location: Location | None) -> object:
        if location is None:
            return None
        return location.file.rpartition("/")[2], location.line, location.text

    def region(at: Region | None) -> object:
        return None if at is None else (at.name, line(at.location), region(at.parent))

    return (
        graph.name,
        line(graph.location),
        [(index[e.value], e.value.type, e.kind, e.source) for e in graph.inputs],
        [
            (
                node.op,
                [index[operand] for operand in node.operands],
                freeze_attributes(node.attributes),
                [(index[result], result.type) for result in node.results],
                (line(node.location), node.scope, mark(node.gradient_of), region(node.region)),
            )
            for node in graph.nodes
        ],
        [index[value] for value in graph.outputs],
        [(index[cell], index[new]) for cell, new in graph.writes],
        {name: structure(function) for name, function in graph.functions.items()},
    )


def test_a_graph_equals_itself_alone_and_may_be_the_same_program_as_another() -> None:
    text = "graph g(%x: f32[3]) { %y = neg %x return %y }"
    a, b = parse(text), parse(text)
    assert a == a and a != b and {a: 1, b: 2} == {b: 2, a: 1}, "equal graphs have equal hashes"
    assert is_same_program(a, b)
    b.outputs[0].name = "z"
    assert not is_same_program(a, b) and hash(b) != hash(a)


@hypothesis.given(annotated_graphs())
def test_what_is_printed_parses_back_to_the_same_graph(graph: Graph) -> None:
    hypothesis.assume(_verifies(graph))
    text = print_graph(graph)
    parsed = parse(text)
    assert print_graph(parsed) == text
    assert is_same_program(parsed, graph)
    assert structure(parsed) == structure(graph)
    verify(parsed)


def _verifies(graph: Graph) -> bool:
    verify(graph)
    return True


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.samples], ids=lambda op: op.name)
def test_every_sample_of_every_op_survives(op: Op) -> None:
    for sample in op.samples:
        for dtype in DTYPES:
            types = operand_types(op, sample, dtype)
            if types is None:
                continue
            graph = Graph("sample")
            operands = [graph.add_input(type) for type in types]
            graph.outputs = [graph.append(op, operands, dict(sample.attributes)).result]
            assert structure(parse(str(graph))) == structure(graph)


@hypothesis.given(st.integers(0, 2**64 - 1))
def test_every_bit_of_a_number_survives(bits: int) -> None:
    wide = np.uint64(bits).view(np.float64)
    narrow = np.uint32(bits >> 32).view(np.float32)
    for value, dtype in ((wide, f64), (narrow, f32)):
        assert number(format_number(value, dtype), dtype).tobytes() == value.tobytes()


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, "f32", "0.1"),
        (-0.0, "f64", "-0.0"),
        (math.nan, "f32", "nan"),
        (-math.inf, "f64", "-inf"),
        (1e30, "f32", "1e+30"),
        (True, "bool", "true"),
        (-(2**63), "i64", "-9223372036854775808"),
    ],
)
def test_numbers_are_short(value: float, dtype: str, text: str) -> None:
    found = next(d for d in DTYPES if d.name == dtype)
    assert format_number(found.numpy.type(value), found) == text


def test_a_nan_with_a_payload_is_written_with_its_bits() -> None:
    value = np.frombuffer(struct.pack("<I", 0xFFC00001), np.float32)[0]
    assert format_number(value, f32) == "nan:0xffc00001"


DUMP = """\
graph train_step @1 {
  arg   %x: f32[4,8]
  state %w: f32[3,8] = "model.0.weight"  // written
  live  %lr: f64[]   = "opt.param_groups[0]['lr']"

  %w_t = transpose %w {perm = [1,0]} : f32[8,3]                   @2 "model.0"
  %z = matmul %x, %w_t : f32[4,3]                                 @2 "model.0"
  %y, %s = call Swish(%z) : (f32[4,3], f32[4,3])                  @3
  %c = constant 0.1 : f32[]
  %g_z = mul %s, %c : f32[4,3]                                    @3 "model.1" grad of %y #2
  %step = cast %lr {dtype = f32} : f32[]
  %new = sub %w, %step : f32[3,8]
  write %w, %new
  return %y, %g_z
}
function Swish(%x: f32[4,3]) {
  %s = sigmoid %x : f32[4,3]                                      @4
  %y = mul %x, %s : f32[4,3]                                      @4
  return %y, %s
}
region #1 Outer @3
region #2 "<locals>.Inner" in #1
loc @1 digits.py:40 "def train_step(x):"
loc @2 digits.py:22 "return x @ self.weight.T  # \\"linear\\""
loc @3 "my file.py":7
loc @4 <stdin>:1
"""


def test_a_dump_reads_as_it_is_documented() -> None:
    graph = parse(DUMP)
    verify(graph)
    assert print_graph(graph) == DUMP
    node = graph.nodes[4]
    assert node.gradient_of is graph.nodes[2].results[0]
    assert node.region is not None and node.region.parent is not None
    assert node.region.name == "<locals>.Inner" and node.region.parent.name == "Outer"
    assert graph.nodes[0].location == Location("digits.py", 22)
    assert graph.inputs[2].kind == "live"
    assert len(graph.functions["Swish"].nodes) == 2


def test_names_are_made_unique_and_stay_so() -> None:
    graph = Graph("names")
    for name in ("x", "x", "x_1", "", "a b", "a_b"):
        graph.add_input(TensorType(f32, ()), name=name)
    graph.constant(1.0, f32)
    graph.constant(2.0, f32)
    names = ["x", "x_2", "x_1", "x_3", "a_b", "a_b_1"]
    header = ", ".join(f"%{name}: f32[]" for name in names)
    assert str(graph) == (
        f"graph names({header}) {{\n"
        "  %c = constant 1.0 : f32[]\n"
        "  %c_1 = constant 2.0 : f32[]\n"
        "  return\n"
        "}\n"
    )
    assert is_same_program(parse(str(graph)), graph)


def test_a_type_may_be_left_out_and_comments_are_passed_over() -> None:
    graph = parse("graph g(%x: f32[2,3]) { // hello\n %y = sum %x {axes = [1]}\n return %y\n}")
    assert graph.nodes[0].result.type == TensorType(f32, (2,))


def test_the_lines_of_two_directories_are_kept_apart_by_their_text() -> None:
    graph = parse("graph g(%x: f32[]) { %y = neg %x %z = neg %y return %z }")
    graph.nodes[0].location = Location("/a/step.py", 1, "y = -x")
    graph.nodes[1].location = Location("/b/step.py", 1, "z = -y")
    assert str(graph).endswith('loc @1 step.py:1 "y = -x"\nloc @2 step.py:1 "z = -y"\n')


def test_a_mark_of_a_value_that_is_gone_is_left_out() -> None:
    graph = parse("graph g(%x: f32[]) { %y = neg %x %z = neg %x grad of %y return %z }")
    graph.drop_dead_nodes()
    assert "grad" not in str(graph)
    assert is_same_program(parse(str(graph)), graph)


ERRORS: list[tuple[str, str]] = [
    (
        "graph g(%x: f32[3]) {\n  %y = ad %x, %x : f32[3]\n  return %y\n}",
        "line 2: no op ad; did you mean pad?\n  %y = ad %x, %x : f32[3]\n       ^",
    ),
    (
        "graph g(%xs: f32[3]) {\n  %y = neg %x : f32[3]\n  return %y\n}",
        "line 2: %x isn't defined before here; did you mean %xs?\n"
        "  %y = neg %x : f32[3]\n           ^",
    ),
    (
        "graph g(%x: f32[3]) {\n  %y = neg %x : f32[4]\n  return %y\n}",
        "line 2: neg gives f32[3] here, not f32[4]\n  %y = neg %x : f32[4]\n                ^",
    ),
    (
        "graph g(%x: f16[3]) {",
        "line 1: no dtype f16; there are bool, u8, i8, i16, i32, i64, u32, f32, f64\n"
        "graph g(%x: f16[3]) {\n            ^",
    ),
    (
        "graph g(%x: f32[3]",
        "line 1: expected `,`, found the end\ngraph g(%x: f32[3]\n" + 18 * " " + "^",
    ),
    (
        "graph g(%x: f32[2.5]) {",
        "line 1: 2.5 isn't a whole number\ngraph g(%x: f32[2.5]) {\n                ^",
    ),
    (
        "graph g(%x: f32[]) {\n  %x = neg %x\n",
        "line 2: %x is defined twice\n  %x = neg %x\n  ^",
    ),
    (
        "graph g(%x: f32[]) {\n  %y = call Twice(%x) : f32[]\n  return %y\n}",
        "line 2: there is no function Twice below the graph\n"
        "  %y = call Twice(%x) : f32[]\n            ^",
    ),
    (
        "graph g() {\n  %c = constant 1.5 : i64[]\n",
        "line 2: 1.5 is no i64\n  %c = constant 1.5 : i64[]\n                ^",
    ),
    (
        "graph g() {\n  %c = constant 3000000000 : i32[]\n",
        "line 2: 3000000000 is no i32\n  %c = constant 3000000000 : i32[]\n                ^",
    ),
    (
        "graph g() {\n  %c = constant 1 : i32[2]\n",
        "line 2: a constant has no axes: write `[]`, and broadcast it\n"
        "  %c = constant 1 : i32[2]\n                    ^",
    ),
    (
        "graph g() {\n  %c = parameter {value = -2, is_bits = true, dtype = f32}\n",
        "line 2: parameter: -2 is no f64 by its bits\n"
        "  %c = parameter {value = -2, is_bits = true, dtype = f32}\n       ^",
    ),
    (
        "graph g() {\n  %c = parameter {value = 200, is_bits = false, dtype = i8}\n",
        "line 2: parameter: 200 is no i8\n"
        "  %c = parameter {value = 200, is_bits = false, dtype = i8}\n       ^",
    ),
    (
        "graph g(%x: f32[]) {\n  %y, %z = neg %x\n",
        "line 2: 2 names for 1 results\n  %y, %z = neg %x\n      ^",
    ),
    (
        "graph g(%x: f32[]) {\n  %y = neg %x @1\n  return %y\n}",
        "line 2: no location @1 in the table at the end\n  %y = neg %x @1\n              ^",
    ),
    (
        "graph g(%x: f32[]) {\n  %y = neg %x #1\n  return %y\n}",
        "line 2: no region #1 in the table at the end\n  %y = neg %x #1\n              ^",
    ),
    ("graph g() {\n  return\n}\n~", "line 4: unexpected character\n~\n^"),
    ("graph g() {\n  return\n}\ngraph", "line 4: expected the end, found `graph`\ngraph\n^"),
    ("function g() {", "line 1: expected `graph`, found `function`\nfunction g() {\n^"),
    ("graph 3() {", "line 1: expected a name, found `3`\ngraph 3() {\n      ^"),
    (
        "graph g(%x: f32[2,3]) {\n  %y = sum %x {axes = 0.5}\n",
        "line 2: a float says its type: `f32(0.5)`\n"
        "  %y = sum %x {axes = 0.5}\n                      ^",
    ),
    (
        "graph g(%x: f32[2,-3]) {",
        "line 1: a size is negative in f32[2,-3]\ngraph g(%x: f32[2,-3]) {\n            ^",
    ),
    (
        "graph g() {\n  %y = host f() : f64[4294967296,4294967296]\n",
        "line 2: the bytes of f64[4294967296,4294967296] are more than 64 bits can count\n"
        "  %y = host f() : f64[4294967296,4294967296]\n                  ^",
    ),
    (
        "graph g(%x: f32[3]) {\n  %y = cast %x {dtype = 64}\n",
        "line 2: cast: dtype is a dtype, such as f32, not 64\n"
        "  %y = cast %x {dtype = 64}\n                        ^",
    ),
    (
        "graph g() {\n  %y = iota {shape = [3], axis = 0, dtype = 5}\n",
        "line 2: iota: dtype is a dtype, such as f32, not 5\n"
        "  %y = iota {shape = [3], axis = 0, dtype = 5}\n" + 44 * " " + "^",
    ),
    (
        "graph g(%x: f32[3]) {\n  %y = sum %x {axes = 0}\n",
        "line 2: sum: axes is a list of whole numbers of 64 bits, such as [2,3], not 0\n"
        "  %y = sum %x {axes = 0}\n                      ^",
    ),
    (
        "graph g(%x: f32[3]) {\n  %y = sum %x {axes = [[0]]}\n",
        "line 2: expected a number or a name, found `[`\n"
        "  %y = sum %x {axes = [[0]]}\n                       ^",
    ),
    (
        "graph g(%x: f32[3]) {\n  %y = sum %x {axes = [0], axes = [0]}\n",
        "line 2: sum: axes is given twice\n"
        "  %y = sum %x {axes = [0], axes = [0]}\n                           ^",
    ),
    (
        "graph g(%x: f32[3]) {\n  %y = neg %x {axis = 0}\n",
        "line 2: neg: there is no attribute axis\n"
        "  %y = neg %x {axis = 0}\n                      ^",
    ),
    (
        "graph g(%x: f32[3]) {\n  %y = sum %x\n",
        "line 2: sum: the attribute axes is missing\n  %y = sum %x\n       ^",
    ),
    (
        "graph g() {\n  %y = barrier\n",
        "line 2: barrier: takes at least 1 operands, not 0\n  %y = barrier\n       ^",
    ),
    (
        "graph g() {\n  return\n}\nfunction f() {\n  return\n}\nfunction f() {\n  return\n}",
        "line 7: function f is defined twice\nfunction f() {\n         ^",
    ),
]


@pytest.mark.parametrize(("text", "message"), ERRORS, ids=range(len(ERRORS)))
def test_an_error_shows_the_line_and_the_place(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_the_error_of_a_type_rule_points_at_the_op() -> None:
    text = "graph g(%x: f32[2,3]) {\n  %y = matmul %x, %x\n  return %y\n}"
    with pytest.raises(ParseError) as caught:
        parse(text)
    first, *_, line, caret = str(caught.value).split("\n")
    assert first.startswith("line 2: matmul: ")
    assert (line, caret) == ("  %y = matmul %x, %x", "       ^")


@hypothesis.given(st.data())
def test_no_text_makes_the_parser_fail_otherwise(data: Any) -> None:
    """A dump with a piece taken out or doubled is read, or is a ParseError."""
    start = data.draw(st.integers(0, len(DUMP)))
    stop = data.draw(st.integers(start, min(len(DUMP), start + 20)))
    text = DUMP[:start] + data.draw(st.sampled_from(["", DUMP[start:stop] * 2])) + DUMP[stop:]
    with contextlib.suppress(ParseError):
        parse(text)


def sample_texts(op: Op) -> list[str]:
    """A graph of each of the op's samples, in the first dtype that it takes."""
    texts = []
    for sample in op.samples:
        taken = (operand_types(op, sample, dtype) for dtype in DTYPES)
        types = next((types for types in taken if types is not None), None)
        if types is not None:
            graph = Graph("sample")
            operands = [graph.add_input(type) for type in types]
            graph.outputs = [graph.append(op, operands, dict(sample.attributes)).result]
            texts.append(str(graph))
    return texts


ATTRIBUTE = re.compile(r"(?<= = )(\[[^]]*\]|\"[^\"]*\"|[^][\",}\s]+)(?=[,}])")
ATTRIBUTES = """
64 -5 9223372036854775808 -9223372036854775809 [] [1] [-1] [9223372036854775808]
[4611686018427387904,4] [true] [f32] [[1]] true None f32 i64 f16 f32(0.5) i64(3) bool(true) "x"
"ik,kj->ij" "" "->" "i,j,k->ijk" 1.5 nan [1, ]
"""
SHAPE = re.compile(r"(?<=[a-z\d]\[)[\d,]*(?=\])")
SHAPES = """
-3 -2,-3 0,-1 1.5 x 9223372036854775808 9223372036854775807 4611686018427387904,4
0,9223372036854775807 1099511627776
"""


def read(text: str) -> None:
    """Parse and verify a text: it is well formed and stays so, or it is a ParseError."""
    try:
        graph = parse(text)
    except ParseError as error:
        first, *_, caret = str(error).split("\n")
        assert first.startswith("line ") and caret.strip() == "^"
    else:
        with contextlib.suppress(VerifyError):  # a call that doesn't fit
            verify(graph)
        assert print_graph(parse(print_graph(graph))) == print_graph(graph)


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.samples], ids=lambda op: op.name)
def test_no_attribute_and_no_type_makes_an_op_fail_otherwise(op: Op) -> None:
    for text in sample_texts(op)[:4]:
        for pattern, others in ((ATTRIBUTE, ATTRIBUTES.split()), (SHAPE, SHAPES.split())):
            for place in pattern.finditer(text):
                for other in others:
                    read(text[: place.start()] + other + text[place.end() :])


@pytest.mark.parametrize("seed", range(30))
def test_no_exchange_of_tokens_makes_the_parser_fail_otherwise(seed: int) -> None:
    """Tokens of printed graphs are dropped, doubled, exchanged, and replaced by others'."""
    rng = random.Random(seed)
    texts = [DUMP, *(text for op in OPS.values() if op.samples for text in sample_texts(op)[:2])]
    words = [*ATTRIBUTES.split(), *(token for text in texts for token in tokens_of(text))]
    for _ in range(100):
        tokens = tokens_of(rng.choice([DUMP, rng.choice(texts)]))
        for _ in range(rng.randint(1, 3)):
            i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
            change = rng.randrange(4)
            if change == 0:
                tokens[i] = ""
            elif change == 1:
                tokens[i] += " " + tokens[i]
            elif change == 2:
                tokens[i], tokens[j] = tokens[j], tokens[i]
            else:
                tokens[i] = rng.choice(words)
        read("".join(tokens))


def tokens_of(text: str) -> list[str]:
    """The pieces of a text that its tokens and the spaces between them are."""
    return re.findall(r"\s+|[%@#]?[\w.]+|.", text)


@pytest.mark.parametrize(
    "text",
    [
        "graph g(%x: f32[]) {\n  %y = sum %x {axes = " + "[" * 100_000,
        "graph g" + "(" * 100_000,
        "graph g(%x: f32[" + "9" * 100_000 + "]) {",
        "graph g() {\n  return\n}\nloc @1 net.py:" + "9" * 100_000,
    ],
    ids=["brackets", "parentheses", "a size", "a line"],
)
def test_what_is_deep_or_long_is_refused_as_well(text: str) -> None:
    with pytest.raises(ParseError, match=r"^line \d") as caught:
        parse(text)
    assert len(str(caught.value)) < 3000  # of a long line, what is around the place


def test_a_function_without_results_that_calls_itself_is_refused() -> None:
    graph = parse("graph g() { call f() return } function f() { call f() return }")
    with pytest.raises(VerifyError, match="the call of f has no result"):
        verify(graph)


def test_a_long_chain_of_functions_is_verified() -> None:
    count = 3000
    calls = [f"%y = call f{i + 1}(%x) : f32[]" for i in range(count)] + ["%y = neg %x"]
    bodies = [f"f{i}(%x: f32[]) {{ {call} return %y }}" for i, call in enumerate(calls)]
    verify(parse("graph " + "\nfunction ".join(["g() { return }", *bodies])))
