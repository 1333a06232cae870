"""The interpreter: a graph's meaning in NumPy."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from lucid.ir.errors import ArgumentError, IndexOutOfRangeError, ShapeError
from lucid.ir.graph import Graph, Node
from lucid.ir.interpret import interpret
from lucid.ir.op import Op
from lucid.ir.text import parse
from lucid.ir.types import TensorType, f32

STEP = """\
graph step {
  arg %x: f32[2,3]
  state %w: f32[3] = "w"
  live %lr: f64[] = "lr"
  %p, %q = call Twice(%x) : (f32[2,3], f32[2,3])
  %g = sum %q {axes = [0]}
  %rate = cast %lr {dtype = f32}
  %change = mul %g, %rate
  %new = sub %w, %change
  write %w, %new
  return %p, %w
}
function Twice(%x: f32[2,3]) {
  %p = add %x, %x
  %q = call Negative(%p) : f32[2,3]
  return %p, %q
}
function Negative(%x: f32[2,3]) {
  %y = neg %x
  return %y
}
"""


def test_outputs_and_writes_come_back_and_inputs_stay() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    w = np.ones(3, np.float32)
    (p, old), (new,) = interpret(parse(STEP), [x, w, 0.5])
    assert p.tolist() == (2 * x).tolist()
    assert old.tolist() == [1, 1, 1] == w.tolist()
    assert new.tolist() == [4, 6, 8]


def test_results_share_memory_with_nothing() -> None:
    graph = parse("graph g(%x: f32[2,3]) { %t = transpose %x {perm = [1,0]} return %t, %t, %x }")
    x = np.zeros((2, 3), np.float32)
    results, _ = interpret(graph, [x])
    for i, result in enumerate(results):
        assert result.flags.c_contiguous and result.flags.writeable
        assert not any(np.shares_memory(result, other) for other in [x, *results[:i]])


def test_a_sum_does_not_depend_on_the_memory_layout(rng: np.random.Generator) -> None:
    """NumPy adds in the order of the memory; a view is laid out first."""
    x = rng.normal(size=(300, 7)).astype(np.float32)
    graph = parse(
        "graph g(%x: f32[300,7]) { %t = transpose %x {perm = [1,0]}"
        " %s = sum %t {axes = [0,1]} return %s }"
    )
    plain = parse("graph g(%x: f32[7,300]) { %s = sum %x {axes = [0,1]} return %s }")
    (turned,), _ = interpret(graph, [x])
    (expected,), _ = interpret(plain, [x.T.copy()])
    assert turned.tobytes() == expected.tobytes()


def test_dead_values_are_forgotten() -> None:
    """Each array is gone when the node after its last use runs."""
    made: list[weakref.ref[np.ndarray]] = []

    def evaluate(x: np.ndarray) -> np.ndarray:
        alive = [ref for ref in made if ref() is not None]
        assert len(alive) <= 1
        result = x + 1
        made.append(weakref.ref(result))
        return result

    probe = Op("probe", lambda x: x, evaluate)
    graph = Graph("chain")
    value = graph.add_input(TensorType(f32, (3,)))
    for _ in range(5):
        node = Node(probe, (value,), {}, (value.type,), graph)
        graph.nodes.append(node)
        value = node.result
    graph.outputs = [value]
    interpret(graph, [np.zeros(3, np.float32)])
    assert len(made) == 5


def test_warnings_of_numpy_are_not_errors() -> None:
    graph = parse("graph g(%x: f32[2]) { %y = log %x return %y }")
    (y,), _ = interpret(graph, [np.array([0, -1], np.float32)])
    assert y[0] == -np.inf and np.isnan(y[1])


def test_an_error_of_an_op_names_the_users_line() -> None:
    graph = parse(
        "graph g(%x: f32[3], %i: i64[]) { %y = take %x, %i {axis = 0} @1 return %y }"
        ' loc @1 net.py:7 "row = table[i]"'
    )
    with pytest.raises(IndexOutOfRangeError) as caught:
        interpret(graph, [np.zeros(3, np.float32), np.asarray(3)])
    assert str(caught.value) == (
        "take: index 3 is out of range for axis 0 with size 3\n  in net.py:7   row = table[i]"
    )


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ([], ArgumentError, "graph g takes 1 inputs, 0 were given"),
        ([np.zeros(3)], ArgumentError, "input %x: f32[3]: an array of float64 was given"),
        (
            [np.zeros(4, np.float32)],
            ShapeError,
            "input %x: f32[3]: an array of shape (4,) was given",
        ),
    ],
)
def test_inputs_must_fit(inputs: list[np.ndarray], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        interpret(parse("graph g(%x: f32[3]) { return %x }"), inputs)
    assert str(caught.value) == message
