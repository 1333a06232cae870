"""Passes keep what a graph computes, bit for bit, and leave it well formed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import cast

import hypothesis
import numpy as np
import pytest
from differentiated import differentiate
from hypothesis import strategies as st
from random_graphs import Case, cases

from lucid.ir import ops, passes
from lucid.ir.clone import copy_graph
from lucid.ir.errors import LucidError, NotDifferentiableError, VerifyError
from lucid.ir.graph import Graph, Node, Region, Value, is_same_program
from lucid.ir.interpret import interpret
from lucid.ir.location import Location
from lucid.ir.op import Op, Trait
from lucid.ir.passes.pipeline import PassLog, UsersPass
from lucid.ir.text import parse
from lucid.ir.types import DType, TensorType, f32, f64, i32, i64, u32
from lucid.ir.verify import verify

ALL = (passes.inline, passes.rematerialize, passes.concat_pads, *passes.simplify.passes)


def assert_same_bits(actual: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """Equal to the bit, zeros' signs included; one NaN is as good as another."""
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind == "f":
            a, b = (np.where(np.isnan(x), np.asarray(np.nan, x.dtype), x) for x in (a, b))
        assert a.tobytes() == b.tobytes(), f"{a}\n{b}"


@hypothesis.given(cases())
def test_no_pass_changes_a_bit(case: Case) -> None:
    graph = case.graph
    verify(graph)
    expected, _ = interpret(graph, case.inputs)
    for _ in range(2):
        for run in ALL:
            before = str(graph)
            changed = run(graph)
            verify(graph)
            assert changed == (str(graph) != before), run.__name__
            actual, _ = interpret(graph, case.inputs)
            assert_same_bits(actual, expected)


@hypothesis.given(st.randoms(use_true_random=False), st.integers(0, 1), st.sampled_from([f32, i32]))
def test_sums_of_pads_keep_their_bits(random: Random, axis: int, dtype: DType) -> None:
    """Parts that are the same, apart, or overlap, in sums of any form; some are read elsewhere."""
    graph, size, rest = Graph("sums"), 8, 3
    zero, values, arrays = None, list[Value](), list[np.ndarray]()
    for _ in range(random.randint(2, 7)):
        start, length = random.choice([(0, 2), (2, 2), (2, 2), (3, 1), (5, 3), (4, 4), (0, 8)])
        shape = (length, rest) if axis == 0 else (rest, length)
        numbers = [random.choice([-0.0, 0.0, 1.5, -2.25, 1e8]) for _ in range(length * rest)]
        arrays.append(np.array(numbers, dtype.numpy).reshape(shape))
        value = graph.add_input(TensorType(dtype, shape), "arg")
        zero = value.constant(0, dtype) if zero is None else zero
        low, high = [0, 0], [0, 0]
        low[axis], high[axis] = start, size - start - length
        values.append(ops.pad(value, zero, low=tuple(low), high=tuple(high)))
    while len(values) > 1:
        one = values.pop(random.randrange(len(values)))
        other = values.pop(random.randrange(len(values)))
        values.append(one + other)
        if random.random() < 0.15:
            graph.outputs.append(one)
    graph.outputs += values
    expected = interpret(graph, arrays)[0]
    passes.concat_pads(graph)
    verify(graph)
    assert_same_bits(interpret(graph, arrays)[0], expected)


@hypothesis.given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_rows_side_by_side_are_one_slice(random: Random, rank: int) -> None:
    """Rows of any axis, forwards, backwards or out of order, on an axis of the result."""
    sizes = [random.choice([1, 2, 3, 4]) for _ in range(rank)]
    along = random.randrange(rank)
    sizes[along] = 4
    graph = Graph("rows")
    x = graph.add_input(TensorType(f64, tuple(sizes)), "arg")
    shape = sizes[:along] + sizes[along + 1 :] + random.choice([[], [1]])
    axis = random.randrange(len(shape) + 1)
    by, number, rows = random.choice([1, 1, -1, -1, 0]), random.randrange(4), list[Value]()
    for _ in range(random.randint(2, 6)):
        row = ops.slice_axis(x, along, number, number + 1)
        rows.append(ops.reshape(row, shape=(*shape[:axis], 1, *shape[axis:])))
        number = (number + by) % 4 if random.random() < 0.9 else random.randrange(4)
    graph.outputs = [ops.concat(*rows, axis=axis)]
    array = np.arange(np.prod(sizes), dtype=np.float64).reshape(sizes)
    expected = interpret(graph, [array])[0]
    passes.canonicalize(graph)
    verify(graph)
    assert_same_bits(interpret(graph, [array])[0], expected)


@hypothesis.given(cases())
def test_an_optimized_graph_stays_as_it_is(case: Case) -> None:
    passes.optimize(case.graph)
    text = str(case.graph)
    assert not passes.optimize(case.graph)
    assert str(case.graph) == text


@hypothesis.given(cases(), st.data())
def test_outlined_regions_mean_the_same_and_can_be_inlined(case: Case, data: st.DataObject) -> None:
    graph = case.graph
    expected, _ = interpret(graph, case.inputs)
    open_regions: list[Region | None] = [None]
    for node in graph.nodes:
        if data.draw(st.booleans()) and len(open_regions) < 4:
            open_regions.append(Region(data.draw(st.sampled_from("AB")), None, open_regions[-1]))
        elif data.draw(st.booleans()) and len(open_regions) > 1:
            open_regions.pop()
        node.region = open_regions[-1]
    copied = copy_graph(graph)
    assert is_same_program(copied, graph)
    passes.outline(graph)
    verify(graph)
    assert all(node.region is None for node in graph.nodes)
    assert is_same_program(parse(str(graph)), graph)
    assert_same_bits(interpret(graph, case.inputs)[0], expected)
    passes.inline(graph)
    verify(graph)
    assert not graph.functions
    assert_same_bits(interpret(graph, case.inputs)[0], expected)
    passes.dce(copied)
    passes.dce(graph)
    assert [node.op for node in graph.nodes] == [node.op for node in copied.nodes]


@hypothesis.given(cases())
def test_gradients_are_well_formed_and_keep_their_bits(case: Case) -> None:
    graph = case.graph
    # Constants become single numbers, whose powers have another last bit than arrays' in NumPy.
    hypothesis.assume(not any(node.op is ops.pow for node in graph.nodes))
    floats = [value for value in graph.values() if value.dtype.is_floating_point]
    inputs = [entry.value for entry in graph.inputs]
    gradients = differentiate(graph, floats[-1], inputs)
    for value, gradient in zip(inputs, gradients, strict=True):
        if gradient is not None:
            assert gradient.type == value.type
            graph.outputs.append(gradient)
    verify(graph)
    assert is_same_program(parse(str(graph)), graph)
    expected, _ = interpret(graph, case.inputs)
    passes.optimize(graph)
    verify(graph)
    assert_same_bits(interpret(graph, case.inputs)[0], expected)


def chain(length: int) -> Graph:
    """x, sin x, sin sin x + x, ..."""
    graph = Graph("chain")
    x = y = graph.add_input(TensorType(f32, (2,)), name="x")
    for _ in range(length // 2):
        y = ops.add(ops.sin(y), x)
    graph.outputs = [y]
    return graph


def test_depth_is_no_limit() -> None:
    graph = chain(10_000)
    (g_x,) = differentiate(graph, graph.outputs[0], [graph.inputs[0].value])
    assert g_x is not None
    graph.outputs.append(g_x)
    passes.optimize(graph)
    assert is_same_program(parse(str(graph)), graph)
    verify(copy_graph(graph))
    interpret(graph, [np.ones(2, np.float32)])


def test_observers_see_each_pass_that_changed_something() -> None:
    graph = parse("graph g(%x: f32[3]) { %a = neg %x %b = neg %a %c = exp %x return %b }")
    log = PassLog(texts={})
    assert passes.optimize(graph, log)
    assert log.changed == ["simplify_algebra", "dce", "simplify", "optimize"]
    texts = log.texts or {}
    assert [len(parse(texts[stage]).nodes) for stage in log.changed] == [1, 0, 0, 0]
    assert {"canonicalize", "cse", *log.changed} <= log.seconds.keys()
    assert log.seconds["optimize"] >= log.seconds["simplify"] > log.seconds["dce"] > 0


def lose_nodes(graph: Graph) -> bool:
    changed = bool(graph.nodes)
    graph.nodes = []
    return changed


def test_a_pass_that_breaks_the_graph_is_caught_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "graph g(%x: f32[3]) { %y = neg %x return %y }"
    broken = passes.Pipeline("broken", [passes.canonicalize, lose_nodes, passes.dce])
    monkeypatch.setenv("LUCID_VERIFY", "0")
    broken(parse(text))
    monkeypatch.setenv("LUCID_VERIFY", "1")
    with pytest.raises(VerifyError) as caught:
        broken(parse(text))
    assert str(caught.value) == (
        "the pass lose_nodes has broken the graph: "
        "graph g: the output %y: f32[3] isn't computed in it"
    )


def test_a_pass_that_changes_what_a_graph_is_to_others_is_caught() -> None:
    def returns_more(graph: Graph) -> bool:
        graph.outputs.append(graph.outputs[0])
        return True

    graph = parse("graph g(%x: f32[3]) { %y = neg %x return %y }")
    with pytest.raises(VerifyError) as caught:
        UsersPass(returns_more)(graph)
    assert str(caught.value) == (
        "the pass returns_more has broken the graph: graph g: "
        "the types of outputs were f32[3]; now they are f32[3], f32[3]"
    )


EMPTY = "graph g(%x: f32[3]) { return %x }"


def test_pipelines_nest_and_stop_when_nothing_changes_any_more() -> None:
    left = {"halve": 3, "drop": 1}
    ran: list[str] = []

    def turn(name: str) -> passes.Pass:
        def run(graph: Graph) -> bool:
            ran.append(name)
            left[name] -= 1
            return left[name] >= 0

        run.__name__ = name
        return run

    inner = passes.Pipeline("inner", [turn("halve"), turn("drop")], rounds=9)
    log = PassLog()
    assert passes.Pipeline("outer", [inner, passes.dce])(parse(EMPTY), log)
    assert ran == ["halve", "drop", "halve", "drop", "halve", "drop", "halve"]
    assert log.changed == ["halve", "drop", "halve 2", "halve 3", "inner", "outer"]


# The rewriter ---------------------------------------------------------------------------------


def test_what_a_rule_makes_is_visited_and_what_nothing_reads_goes() -> None:
    graph = parse("graph g(%x: f32[3]) { %a = exp %x %b = sin %a %c = neg %b return %c, %x }")
    rules = passes.Rules()
    seen: list[Op] = []

    @rules.on(Trait.ELEMENTWISE)
    def note(node: Node) -> None:
        seen.append(node.op)

    @rules.on(ops.neg)
    def without_neg(node: Node) -> Value:
        return cast(Value, ops.cos(graph.inputs[0].value))

    assert passes.rewrite(graph, rules)
    assert [node.op for node in graph.nodes] == [ops.cos]
    assert seen == [ops.exp, ops.sin, ops.neg, ops.cos]
    verify(graph)


def test_each_node_is_visited_once_and_users_of_what_is_replaced_come_later() -> None:
    graph = chain(200)
    visits = Counter[Node]()
    rules = passes.Rules()

    @rules.on(ops.sin)
    def tanh(node: Node) -> Value:
        return cast(Value, ops.tanh(*node.operands))

    @rules.on(ops.add, ops.tanh)
    def count(node: Node) -> None:
        visits[node] += 1
        made = node.operands[0].producer
        assert made is None or made.op is not ops.sin, "its operands are final"

    assert passes.rewrite(graph, rules)
    assert set(visits.values()) == {1} and len(visits) == 200


def test_a_value_is_read_once_or_not() -> None:
    graph = parse("graph g(%x: f32[3]) { %a = add %x, %x %b = exp %a %c = sin %b return %b, %c }")
    rewriter = passes.Rewriter(graph)
    x, a, b, c = graph.values()
    assert [rewriter.is_read_once(value) for value in (x, a, b, c)] == [False, True, False, True]


def test_rules_that_never_end_are_an_error_and_the_graph_stays_one() -> None:
    graph = parse("graph g(%x: f32[3]) { %a = exp %x return %a }")
    rules = passes.Rules()

    @rules.on(ops.exp)
    def again(node: Node) -> Value:
        return cast(Value, ops.exp(*node.operands))

    with pytest.raises(LucidError, match="rewrite: the rules for exp never come to an end"):
        passes.rewrite(graph, rules)
    verify(graph)


IDENTITIES = [
    ("sub", 0.0, None, "x"),
    ("add", -0.0, None, "x"),
    ("add", 0.0, None, "add"),
    ("sub", -0.0, None, "sub"),
    ("mul", 1.0, None, "x"),
    ("mul", 0.0, None, "mul"),
    ("mul", -1.0, None, "neg"),
    ("div", 1.0, None, "x"),
    ("div", -1.0, None, "neg"),
    ("div", 4.0, None, "mul"),
    ("div", -0.25, None, "mul"),
    ("div", 3.0, None, "div"),
    ("div", 0.0, None, "div"),
    ("div", np.inf, None, "div"),
    ("div", 2.0**127, None, "div"),
    ("div", 2.0**-140, None, "div"),
    ("pow", 0.0, None, "broadcast"),
    ("pow", 1.0, None, "x"),
    ("pow", 2.0, None, "mul"),
    ("pow", 3.0, None, "pow"),
    ("pow", 0.5, None, "pow"),
    ("pow", -1.0, None, "reciprocal"),
    ("maximum", -np.inf, None, "x"),
    ("minimum", np.inf, None, "x"),
    ("maximum", 0.0, None, "maximum"),
    ("sub", None, -0.0, "neg"),
    ("sub", None, 0.0, "sub"),
    ("div", None, 1.0, "reciprocal"),
]
EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, 3.0, 1e-40, -1e-40, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan], np.float32
)


@pytest.mark.parametrize(("op", "right", "left", "becomes"), IDENTITIES)
def test_an_identity_holds_at_the_edges(
    op: str, right: float | None, left: float | None, becomes: str
) -> None:
    graph = Graph("identity")
    x = graph.add_input(TensorType(f32, EDGES.shape), name="x")
    a = x if left is None else graph.constant(left, f32)
    b = x if right is None else graph.constant(right, f32)
    graph.outputs = [getattr(ops, op)(a, b)]
    expected, _ = interpret(graph, [EDGES])
    passes.optimize(graph)
    (y,) = graph.outputs
    assert ("x" if y is x else y.producer.op.name) == becomes
    assert_same_bits(interpret(graph, [EDGES])[0], expected)


@pytest.mark.parametrize(
    ("number", "target", "folded"),
    [
        (np.nan, i32, False),
        (-np.inf, i64, False),
        (3e9, i32, False),
        (3e9, u32, True),
        (-1.0, u32, False),
        (-2.5, i64, True),
        (2.0**63, i64, False),
    ],
)
def test_only_a_cast_that_fits_is_folded(number: float, target: DType, folded: bool) -> None:
    graph = Graph("casts")
    graph.outputs = [ops.cast(graph.constant(number, f64), dtype=target)]
    assert passes.constant_fold(graph) == folded


# Derivatives


def differentiated(graph: Graph, *, of: int = 0) -> list[Value | None]:
    inputs = [entry.value for entry in graph.inputs]
    return differentiate(graph, graph.outputs[of], inputs)


def test_the_gradient_of_a_function_of_several_uses_is_the_sum() -> None:
    graph = parse(
        "graph g(%x: f64[3], %w: f64[2,3]) {"
        " %z = mul %w, %x %t = tanh %z %p = mul %t, %x %s = sum %p {axes = [0,1]} return %s }"
    )
    gradients = differentiated(graph)
    graph.outputs += [gradient for gradient in gradients if gradient is not None]
    verify(graph)
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=3), rng.normal(size=(2, 3))
    (_, g_x, g_w), _ = interpret(graph, [x, w])
    tangent = 1 - np.tanh(w * x) ** 2
    np.testing.assert_allclose(g_x, (np.tanh(w * x) + tangent * w * x).sum(0), rtol=1e-12)
    np.testing.assert_allclose(g_w, tangent * x * x, rtol=1e-12)


def test_gradients_can_be_differentiated_again() -> None:
    graph = parse("graph g(%x: f64[]) { %y = mul %x, %x %z = mul %y, %x return %z }")
    x = graph.inputs[0].value
    value = graph.outputs[0]
    for _ in range(3):
        (next_value,) = differentiate(graph, value, [x])
        assert next_value is not None
        graph.outputs.append(next_value)
        value = next_value
    results, _ = interpret(graph, [2.0])
    assert [float(result) for result in results] == [8.0, 12.0, 12.0, 6.0]


def test_a_seed_an_inner_value_and_the_value_itself() -> None:
    graph = parse(
        "graph g(%x: f64[2], %seed: f64[2], %far: f64[2], %i: i64[2]) {"
        " %y = neg %x %z = mul %y, %y return %z }"
    )
    x, seed, far, i = (entry.value for entry in graph.inputs)
    y, z = (node.result for node in graph.nodes)
    g_z, g_y, g_far, g_i, g_x = differentiate(graph, z, [z, y, far, i, x], seed)
    assert g_z is seed and g_far is None and g_i is None
    assert g_y is not None and g_x is not None
    graph.outputs = [g_y, g_x]
    arrays = [np.array([1.0, 2.0]), np.array([10.0, 100.0]), np.zeros(2), np.zeros(2, np.int64)]
    (d_y, d_x), _ = interpret(graph, arrays)
    assert d_y.tolist() == [-20.0, -400.0] and d_x.tolist() == [20.0, 400.0]


def test_only_nodes_between_are_visited() -> None:
    """An op without a derivative off the path is no obstacle."""
    graph = parse(
        "graph g(%x: f32[3], %y: f32[3]) {"
        " %o = argsort %y {axis = 0, descending = false} %t = take %x, %o {axis = 0}"
        " %e = exp %y %s = mul %t, %e return %s }"
    )
    before = len(graph.nodes)
    (g_x,) = differentiate(graph, graph.outputs[0], [graph.inputs[0].value])
    assert g_x is not None and g_x.name == "g_x"
    assert {node.gradient_of for node in graph.nodes[before:]} == {
        graph.nodes[3].result,
        graph.nodes[1].result,
    }


def test_derived_nodes_say_where_they_come_from() -> None:
    graph = parse("graph g(%x: f32[3]) { %y = tanh %x return %y }")
    node = graph.nodes[0]
    node.location, node.scope = Location("net.py", 3, "y = x.tanh()"), "model.0"
    differentiated(graph)
    for derived in graph.nodes[1:]:
        assert derived.location is node.location
        assert derived.scope == "model.0"
        assert derived.gradient_of is node.result


REFUSED: list[tuple[str, Callable[[Graph], Value], str]] = [
    (
        "graph g(%x: i64[3]) { %y = neg %x return %y }",
        lambda graph: graph.outputs[0],
        "differentiate: %y: i64[3] isn't of a float dtype",
    ),
    (
        "graph g(%x: f32[3]) { %y = call f(%x) : f32[3] @1 return %y }\n"
        'function f(%x: f32[3]) { %y = neg %x return %y } loc @1 net.py:3 "y = f(x)"',
        lambda graph: graph.outputs[0],
        "call: there is no derivative of call(%x: f32[3])\n  in net.py:3   y = f(x)\n"
        "hint: inline the calls first",
    ),
]


@pytest.mark.parametrize(("text", "of", "message"), REFUSED)
def test_what_has_no_derivative_is_refused(
    text: str, of: Callable[[Graph], Value], message: str
) -> None:
    graph = parse(text)
    with pytest.raises(NotDifferentiableError) as caught:
        differentiate(graph, of(graph), [graph.inputs[0].value])
    assert str(caught.value) == message
