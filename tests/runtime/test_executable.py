"""Calls of compiled graphs: state in place, errors, guards, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from lucid.codegen import costs
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError
from lucid.ir.graph import Graph
from lucid.ir.location import Location
from lucid.ir.types import TensorType, f32, f64, i64
from lucid.runtime import compile_graph

VECTOR = TensorType(f32, (37,))


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def counter() -> Graph:
    """Adds a live rate times x to a state, and returns what the state was."""
    graph = Graph("counter")
    state = graph.add_input(TensorType(f32, (3,)), "state", source="model.total")
    x = graph.add_input(TensorType(f32, (3,)), "arg", "x")
    rate = graph.add_input(TensorType(f64, ()), "live", "rate")
    graph.writes = [(state, ops.add(state, ops.mul(x, ops.cast(rate, dtype=f32))))]
    graph.outputs = [state]
    return graph


def test_state_is_written_in_place_and_results_are_fresh() -> None:
    executable = compile_graph(counter())
    state, x = floats(1, 2, 3), floats(1, 1, 1)
    (first,) = executable.call([state, x, 2.0])
    (second,) = executable.call([state, x, 0.5])
    assert first.tolist() == [1, 2, 3]
    assert second.tolist() == [3, 4, 5]
    assert state.tolist() == [3.5, 4.5, 5.5]


def test_two_states_can_be_exchanged() -> None:
    graph = Graph()
    a, b = (graph.add_input(VECTOR, "state") for _ in range(2))
    graph.writes = [(a, b), (b, a)]
    x, y = np.arange(37, dtype=np.float32), -np.arange(37, dtype=np.float32)
    executable = compile_graph(graph)
    executable.call([x, y])
    assert x[3] == -3 and y[3] == 3
    executable.call([x, y])
    assert x[3] == 3 and y[3] == -3


def test_a_state_is_read_elsewhere_before_it_changes() -> None:
    graph = Graph()
    a, b = (graph.add_input(VECTOR, "state") for _ in range(2))
    new = ops.add(a, ops.slice(a, starts=(36,), stops=(-1,), steps=(-1,)))  # a + flip(a)
    graph.writes = [(a, new), (b, ops.cumsum(ops.mul(a, new), axis=0))]
    x, y = np.arange(37, dtype=np.float32), np.zeros(37, np.float32)
    want = x + x[::-1]
    total = np.cumsum(x * want, dtype=np.float32)
    compile_graph(graph).call([x, y])
    np.testing.assert_array_equal(x, want)
    np.testing.assert_array_equal(y, total)


def test_a_norm_of_the_state_scales_the_state() -> None:
    """The reduction over the whole state must be over before its first element changes."""
    graph = Graph()
    a = graph.add_input(TensorType(f32, (4, 9)), "state")
    norm = ops.sqrt(ops.sum(ops.mul(a, a), axes=(0, 1)))
    graph.writes = [(a, ops.div(a, norm))]
    x = np.arange(36, dtype=np.float32).reshape(4, 9)
    want = x / np.sqrt((x * x).sum())
    compile_graph(graph).call([x])
    np.testing.assert_allclose(x, want, rtol=1e-6)


def test_a_strided_state_is_written_through_its_strides() -> None:
    graph = counter()
    memory = np.zeros((3, 4), np.float32)
    state = memory[:, 1]
    executable = compile_graph(graph, [(4,), None, None])
    executable.call([state, floats(1, 2, 3), 1.0])
    assert memory[:, 1].tolist() == [1, 2, 3]
    assert memory.sum() == 6


def test_outputs_share_memory_with_nothing() -> None:
    graph = Graph()
    x = graph.add_input(VECTOR)
    graph.outputs = [x, x, ops.reshape(x, shape=(37, 1))]
    given = np.arange(37, dtype=np.float32)
    results = compile_graph(graph).call([given])
    for number, result in enumerate(results):
        assert result.flags.c_contiguous
        for other in (given, *results[:number]):
            assert not np.shares_memory(result, other)
        np.testing.assert_array_equal(result.ravel(), given)


# Errors ---------------------------------------------------------------------------------------


def embedding_step() -> Graph:
    """Changes a table, then looks up rows in another one: the check still comes first."""
    graph = Graph("embed")
    table = graph.add_input(TensorType(f32, (5, 3)), "state")
    index = graph.add_input(TensorType(i64, (4,)))
    taken = ops.take(table, index, axis=0)
    assert taken.producer is not None
    taken.producer.location = Location("train.py", 12)
    graph.writes = [(table, table + 1.0)]
    graph.outputs = [ops.sum(taken, axes=(1,))]
    return graph


@pytest.mark.parametrize("wrong", [5, -6, 2**40])
def test_a_wrong_index_raises_and_writes_nothing(wrong: int) -> None:
    executable = compile_graph(embedding_step())
    table, index = np.zeros((5, 3), np.float32), np.array([0, -5, wrong, 4])
    message = rf"^take: index {wrong} is out of range for axis 0 with size 5\n  in train.py:12"
    with pytest.raises(IndexOutOfRangeError, match=message):
        executable.call([table, index])
    assert not table.any()
    index[2] = -1
    (got,) = executable.call([table, index])
    assert got.tolist() == [0, 0, 0, 0]
    assert table.all()


def test_no_state_changes_before_the_last_check() -> None:
    """The index comes from a new state, whose kernel the order of writes would put last."""
    graph = Graph()
    total, position = graph.add_input(VECTOR, "state"), graph.add_input(TensorType(i64, (1,)))
    table = graph.add_input(TensorType(f32, (5,)))
    moved = ops.add(position, ops.one(position))
    graph.writes = [(total, total + 1.0), (position, moved)]
    graph.outputs = [ops.take(table, moved, axis=0)]
    executable = compile_graph(graph)
    state, place = np.zeros(37, np.float32), np.array([3])
    (got,) = executable.call([state, place, np.arange(5, dtype=np.float32)])
    assert got.tolist() == [4] and place.tolist() == [4] and state.all()
    with pytest.raises(IndexOutOfRangeError, match=r"^take: index 5 is out of range"):
        executable.call([state, place, np.arange(5, dtype=np.float32)])
    assert place.tolist() == [4]
    assert state.tolist() == [1] * 37


@pytest.mark.parametrize(
    "write",
    [
        lambda b, i, s: ops.index_add(b, i, s, axis=0),
        lambda b, i, s: ops.index_set(b, i, s, axis=0),
        lambda b, i, s: ops.scatter(b, i, s, axis=0),
        lambda b, i, s: ops.scatter_add(b, i, s, axis=0),
        lambda b, i, s: ops.gather(b, i, axis=0),
    ],
)
def test_all_indexed_ops_check(write: Callable[..., ops.Operand]) -> None:
    graph = Graph()
    base = graph.add_input(TensorType(f32, (4,)))
    index = graph.add_input(TensorType(i64, (2,)))
    source = graph.add_input(TensorType(f32, (2,)))
    graph.outputs = [write(base, index, source)]
    executable = compile_graph(graph)
    with pytest.raises(IndexOutOfRangeError, match=r"index 4 is out of range for axis 0"):
        executable.call([np.zeros(4, np.float32), np.array([1, 4]), np.zeros(2, np.float32)])


def test_the_gradient_of_a_gather_checks_too() -> None:
    """With one index per line it becomes elementwise, but the index is still checked."""
    graph = Graph()
    base = graph.add_input(TensorType(f32, (2, 4)))
    index = graph.add_input(TensorType(i64, (2, 1)))
    graph.outputs = [ops.scatter_add(base, index, ops.full(base, 1.0, (2, 1), f32), axis=1)]
    executable = compile_graph(graph)
    zeros = np.zeros((2, 4), np.float32)
    (got,) = executable.call([zeros, np.array([[-1], [2]])])
    assert got.tolist() == [[0, 0, 0, 1], [0, 0, 1, 0]]
    with pytest.raises(IndexOutOfRangeError, match=r"^scatter_add: index -5 is out of range"):
        executable.call([zeros, np.array([[0], [-5]])])


WRONG_INPUTS: list[tuple[list[object], type[Exception], str]] = [
    ([floats(1, 2, 3)], ArgumentError, "the step takes 3 inputs, 1 were given"),
    ([[1, 2, 3], floats(0, 0, 0), 1.0], ArgumentError, r"input 0 \(model.total\) is an array"),
    ([None, floats(0, 0, 0), 1.0], ArgumentError, "is an array, not a NoneType"),
    ([floats(1, 2, 3), floats(0, 0, 0), None], ArgumentError, "is a number, not a NoneType"),
    ([floats(1, 2), floats(0, 0, 0), 1.0], ShapeError, r"shape \(3,\) expected, not \(2,\)"),
    ([floats(1, 2, 3), np.zeros(3), 1.0], DTypeError, "float32 expected, not float64"),
    ([np.zeros(6, np.float32)[::2], floats(0, 0, 0), 1.0], ArgumentError, "strides of"),
]


@pytest.mark.parametrize(("inputs", "error", "message"), WRONG_INPUTS)
def test_a_wrong_input_is_refused(inputs: list[object], error: type, message: str) -> None:
    executable = compile_graph(counter())
    with pytest.raises(error, match=message):
        executable.call(inputs)
    (got,) = executable.call([floats(1, 2, 3), floats(0, 0, 0), 1.0])
    assert got.tolist() == [1, 2, 3]


def test_a_state_with_repeated_elements_is_refused() -> None:
    with pytest.raises(ArgumentError, match="is written, but several of its elements"):
        compile_graph(counter(), [(0,), None, None])


def test_a_graph_may_be_empty() -> None:
    graph = Graph()
    assert compile_graph(graph).call([]) == []
    x = graph.add_input(TensorType(f32, (0, 3)))
    graph.outputs = [ops.sum(x, axes=(0,)), ops.exp(x)]
    zero, nothing = compile_graph(graph).call([np.zeros((0, 3), np.float32)])
    assert zero.tolist() == [0, 0, 0]
    assert nothing.shape == (0, 3)


def test_a_state_bound_again_after_a_refused_call_is_the_new_one() -> None:
    executable = compile_graph(counter())
    first, second, x = floats(1, 2, 3), floats(4, 5, 6), floats(1, 1, 1)
    executable.call([first, x, 1.0])
    with pytest.raises(ShapeError):
        executable.call([second, floats(1), 1.0])
    (before,) = executable.call([first, x, 1.0])
    assert before.tolist() == [2, 3, 4]
    assert (first.tolist(), second.tolist()) == ([3, 4, 5], [4, 5, 6])


def test_a_read_only_state_is_refused() -> None:
    state = floats(1, 2, 3)
    state.flags.writeable = False
    with pytest.raises(ArgumentError, match="is written, but is read-only"):
        compile_graph(counter()).call([state, floats(0, 0, 0), 1.0])


def test_an_argument_that_shares_memory_with_a_state_keeps_its_value() -> None:
    """Each element of the new state needs an old element that lies elsewhere."""
    graph = Graph()
    state, x = (graph.add_input(VECTOR, kind) for kind in ("state", "arg"))
    flipped = ops.slice(x, starts=(36,), stops=(-1,), steps=(-1,))
    graph.writes = [(state, ops.add(state, flipped))]
    memory = np.arange(37, dtype=np.float32)
    executable = compile_graph(graph)
    for _ in range(2):
        want = memory + memory[::-1]
        executable.call([memory, memory])
        np.testing.assert_array_equal(memory, want)


def test_two_states_that_share_memory_are_refused() -> None:
    graph = Graph()
    a, b = (graph.add_input(VECTOR, "state") for _ in range(2))
    graph.writes = [(a, a + 1.0), (b, b + 2.0)]
    memory = np.zeros(37, np.float32)
    with pytest.raises(ArgumentError, match="are both written and share memory"):
        compile_graph(graph).call([memory, memory])


# Threads --------------------------------------------------------------------------------------


def test_threads_may_call_at_once() -> None:
    graph = Graph()
    x = graph.add_input(TensorType(f32, (64, 64)))
    product = ops.matmul(ops.exp(x), x)
    graph.outputs = [ops.sum(ops.matmul(product, product), axes=(0,))]
    executable = compile_graph(graph)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(64, 64)).astype(np.float32) * 0.1 for _ in range(4)]
    want = [executable.call([array])[0] for array in arrays]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            (got,) = executable.call([arrays[number]])
            if not np.array_equal(got, want[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def long_step(count: int) -> Graph:
    """Each kernel takes elements of what the one before made, at indices of its own."""
    graph = Graph("long")
    x = graph.add_input(TensorType(f32, (3,)))
    value: ops.Operand = x
    for number in range(count):
        index = graph.add_input(TensorType(i64, (3,)), "arg", f"i{number}")
        value = ops.tanh(ops.take(value, index, axis=0))
    graph.outputs = [value]
    return graph


@pytest.mark.parametrize("count", [1, 40, 150])
def test_a_step_of_many_kernels_is_several_functions(count: int) -> None:
    executable = compile_graph(long_step(count), fuse=False)
    parts = -(-executable.kernel_count // costs.PART_CALLS)
    assert executable.llvm.count("@step_from_") == (2 * parts if parts > 1 else 0)
    x, expected = floats(0.5, -1, 2), floats(0.5, -1, 2)
    order = np.array([2, 0, 1])
    for _ in range(count):
        expected = np.tanh(expected[order])
    (found,) = executable.call([x, *[order] * count])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for place in {0, count // 2, count - 1}:
        indices = [order] * count
        indices[place] = np.array([0, 0, 3 + place])
        with pytest.raises(IndexOutOfRangeError, match=f"index {3 + place} is out of range"):
            executable.call([x, *indices])


def test_results_are_the_same_each_time() -> None:
    graph = Graph()
    x = graph.add_input(TensorType(f32, (1000, 77)))
    graph.outputs = [ops.sum(x, axes=(0, 1)), ops.sum(x, axes=(0,)), ops.sum(x, axes=(1,))]
    executable = compile_graph(graph)
    array = np.random.default_rng(1).normal(size=(1000, 77)).astype(np.float32)
    first = executable.call([array])
    for _ in range(3):
        for ours, theirs in zip(executable.call([array.copy()]), first, strict=True):
            np.testing.assert_array_equal(ours, theirs)
