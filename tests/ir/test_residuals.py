"""The cut through a forward graph: what is kept for the backward, what is computed again."""

from __future__ import annotations

from collections.abc import Sequence

import networkx
import numpy as np
import pytest
from differentiated import Build, differentiate, f, random_function, relu
from fuzzing import many

from lucid.ir import ops
from lucid.ir.graph import Graph, Value
from lucid.ir.interpret import interpret
from lucid.ir.passes.flow import FlowNetwork
from lucid.ir.passes.residuals import Cut, equal_values, minimum_cut, nodes_between, repeat
from lucid.ir.types import TensorType, f32, i64
from lucid.ir.verify import verify


def read_by_backward(graph: Graph, result: Value) -> tuple[list[Value], Graph]:
    """What the derivative of a result reads of a graph; and a graph that makes it of that."""
    known = [*graph.values()]
    count = len(graph.nodes)
    cotangent = graph.add_input(result.type, name="g")
    floats = [e.value for e in graph.inputs[:-1] if e.value.dtype.is_floating_point]
    gradients = [x for x in differentiate(graph, result, floats, cotangent) if x is not None]
    nodes, graph.nodes = graph.nodes[count:], graph.nodes[:count]
    needed = {x for node in nodes for x in node.operands} | {*gradients}
    read = [value for value in known if value in needed]
    backward = Graph("backward")
    mapping = {
        value: backward.add_input(value.type, name=value.name) for value in [*read, cotangent]
    }
    mapping = repeat(nodes, backward, mapping)
    backward.outputs = [mapping[gradient] for gradient in gradients]
    backward.drop_dead_nodes()
    graph.inputs.pop()
    used = {x for node in backward.nodes for x in node.operands} | {*backward.outputs}
    return [value for value in read if mapping[value] in used], backward


def traced(build: Build, *types: TensorType) -> Graph:
    graph = Graph("forward")
    graph.outputs = [build(*(graph.add_input(type, name=f"x{i}") for i, type in enumerate(types)))]
    return graph


def cut(build: Build, *types: TensorType, free: Sequence[int] | None = None) -> Cut:
    """The cut where some inputs are there for the backward; None: all."""
    graph = traced(build, *types)
    needed, _ = read_by_backward(graph, graph.outputs[0])
    inputs = [entry.value for entry in graph.inputs]
    return minimum_cut(graph, needed, inputs if free is None else [inputs[i] for i in free])


def kept(build: Build, *types: TensorType, free: Sequence[int] | None = None) -> list[str]:
    found = cut(build, *types, free=free).kept
    return [x.name or "?" if x.producer is None else x.producer.op.name for x in found]


def repeated(build: Build, *types: TensorType, free: Sequence[int] | None = None) -> list[str]:
    return [x.op.name for x in cut(build, *types, free=free).repeated if x.operands]


def chain(x: Value) -> Value:
    return ops.tanh(ops.exp(ops.mul(x, x)))


def diamond(x: Value, w: Value) -> Value:
    h = ops.matmul(x, w)
    return ops.add(ops.sigmoid(h), ops.mul(h, relu(h)))


def softmax(x: Value) -> Value:
    e = ops.exp(x)
    total = ops.reshape(ops.sum(e, axes=(1,)), shape=(x.shape[0], 1))
    return ops.div(e, total)


def dropout(state: Value, x: Value, w: Value) -> Value:
    h = ops.matmul(x, w)
    draws = ops.random_uniform(state, shape=h.shape, dtype=f32)
    return ops.where(ops.lt(draws, h.constant(0.5, f32)), h, h.constant(0.0, f32))


def layers(x: Value, v: Value, w: Value) -> Value:
    return ops.matmul(relu(ops.matmul(x, v)), w)


def cheap(x: Value, y: Value) -> Value:
    return ops.mul(ops.add(x, y), ops.sub(x, y))


def test_of_a_chain_the_last_value_is_kept_that_gives_the_others() -> None:
    """tanh and exp have derivatives in their results, x * x in x, which is there anyway."""
    assert kept(chain, f(40, 50)) == ["exp", "tanh"]


def test_a_product_is_kept_and_what_follows_from_it_is_cheap_again() -> None:
    assert kept(layers, f(8, 16), f(16, 32), f(32, 4)) == ["matmul"]
    assert repeated(layers, f(8, 16), f(16, 32), f(32, 4)) == ["maximum"]


def test_of_a_diamond_one_value_is_enough() -> None:
    assert kept(diamond, f(8, 16), f(16, 32))[0] == "matmul"
    assert "maximum" not in kept(diamond, f(8, 16), f(16, 32))


def test_a_reduction_is_not_made_again() -> None:
    assert {"sum", "reshape"} & set(kept(softmax, f(30, 40)))
    assert "sum" not in repeated(softmax, f(30, 40))


def test_of_a_dropout_the_mask_is_kept_a_byte_an_element() -> None:
    assert kept(dropout, TensorType(i64, (2,)), f(8, 16), f(16, 32)) == ["lt"]


def test_nothing_is_kept_that_follows_from_the_inputs_at_little_cost() -> None:
    assert kept(cheap, f(40), f(40)) == []
    assert repeated(cheap, f(40), f(40)) == ["add", "sub"]


def test_an_input_that_is_not_there_later_is_kept() -> None:
    assert kept(cheap, f(40), f(40), free=()) == ["add", "sub"]
    assert kept(chain, f(40, 50), free=()) == ["x0", "exp", "tanh"]


def test_values_without_work_are_never_kept() -> None:
    def views(x: Value, w: Value) -> Value:
        flat = ops.reshape(ops.transpose(ops.matmul(x, w), perm=(1, 0)), shape=(32 * 8,))
        return ops.mul(flat, flat)

    assert kept(views, f(8, 16), f(16, 32)) in (["matmul"], ["transpose"], ["reshape"])


def test_equal_values_are_found_in_another_order_too() -> None:
    graph = Graph()
    a, b = (graph.add_input(f(3)) for _ in range(2))
    first, second = ops.add(a, b), ops.exp(ops.add(b, a))
    third = ops.exp(first)
    graph.outputs = [second, third, ops.sub(a, b)]
    assert second.producer is not None
    assert equal_values(graph) == {second.producer.operands[0]: first, third: second}


def test_a_check_that_has_passed_is_not_made_again() -> None:
    said = {"low": 0, "high": 5, "message": "{} is wrong", "error": "index"}
    graph = Graph()
    at = graph.add_input(TensorType(i64, (4,)), name="at")
    checked = ops.check(at, **said)
    found = minimum_cut(graph, [checked], [at])
    assert found.kept == []
    later = Graph()
    given = later.add_input(at.type)
    assert repeat(found.repeated, later, {at: given})[checked] is given
    assert later.nodes == []


def test_a_cut_says_in_text_what_it_costs() -> None:
    text = str(cut(layers, f(8, 16), f(16, 32), f(32, 4)))
    assert text.splitlines() == [
        "kept      matmul : f32[8,32], 1,024 bytes",
        "repeated  maximum : f32[8,32], work of 256 bytes",
    ]


@pytest.mark.parametrize("seed", range(many(20)))
def test_the_minimum_cut_nearest_to_the_sink_is_that_of_networkx(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 30))
    pairs = {(int(a), int(b)) for a, b in rng.integers(0, size, (4 * size, 2)) if a != b}
    theirs, ours = networkx.DiGraph(), FlowNetwork()
    nodes = [ours.node() for _ in range(size)]
    theirs.add_nodes_from(nodes)
    for a, b in sorted(pairs):
        capacity = float(rng.integers(0, 9)) / 4
        theirs.add_edge(a, b, capacity=capacity)
        ours.connect(a, b, capacity)
    _, (_, below) = networkx.minimum_cut(theirs, 0, 1)
    assert ours.sink_side(0, 1) == {1, *below}


@pytest.mark.parametrize("seed", range(many(20)))
def test_gradients_are_those_without_a_cut(seed: int) -> None:
    """Of the minimum cut, and of any other set of values that is enough."""
    build, types = random_function(seed)
    graph = traced(build, *types)
    needed, backward = read_by_backward(graph, graph.outputs[0])
    inputs = [entry.value for entry in graph.inputs]
    rng = np.random.default_rng(seed)
    free = [value for value in inputs if rng.random() < 0.7]
    arrays = [rng.normal(size=type.shape).astype(np.float32) * 0.3 for type in types]
    one = np.ones((), np.float32)

    def values(*wanted: Value) -> list[np.ndarray]:
        graph.outputs = [*wanted]
        return [*interpret(graph, arrays)[0]] if wanted else []

    expected, _ = interpret(backward, [*values(*needed), one])
    decided = minimum_cut(graph, needed, free)
    whatever = [x for x in graph.values() if rng.random() < 0.3]
    for chosen in (decided.kept, [*whatever, *inputs]):
        known = [*dict.fromkeys([*free, *chosen])]
        again = Graph("again")
        mapping = {value: again.add_input(value.type) for value in known}
        nodes = nodes_between(graph, {*known}, needed)
        if chosen is decided.kept:
            assert nodes == decided.repeated
            assert all(node.op.name not in ("matmul", "sum") for node in nodes)
        mapping = repeat(nodes, again, mapping)
        again.outputs = [mapping[value] for value in needed]
        verify(again)
        found, _ = interpret(again, values(*known))
        for a, b in zip(interpret(backward, [*found, one])[0], expected, strict=True):
            np.testing.assert_array_equal(a, b)
