"""Which ops share a kernel: facts about whole programs, and that fusing changes no result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lucid.ir import ops
from lucid.ir.graph import Graph, Value
from lucid.ir.interpret import interpret
from lucid.ir.types import TensorType, f32, i64
from lucid.runtime import Executable, compile_graph

ROWS, COLUMNS = 6, 40


def row_mean(x: Value) -> Value:
    return ops.sum(x, axes=(1,)) * (1 / x.shape[1])


def column(x: Value) -> Value:
    return ops.reshape(x, shape=(x.shape[0], 1))


def softmax(x: Value) -> Value:
    e = ops.exp(ops.sub(x, column(ops.amax(x, axes=(1,)))))
    return ops.div(e, column(ops.sum(e, axes=(1,))))


def layer_norm(x: Value, gain: Value, shift: Value) -> Value:
    centred = ops.sub(x, column(row_mean(x)))
    variance = row_mean(ops.mul(centred, centred))
    scaled = ops.mul(centred, column(ops.rsqrt(variance + 1e-5)))
    return ops.add(ops.mul(scaled, gain), shift)


def linear_relu(x: Value, w: Value, bias: Value) -> Value:
    z = ops.add(ops.matmul(x, ops.transpose(w, perm=(1, 0))), bias)
    return ops.maximum(z, ops.zero(z))


def chain(x: Value) -> Value:
    for _ in range(5):
        x = ops.tanh(x * 0.5 + 1.0)
    return x


def transposed_sum(x: Value) -> Value:
    flipped = ops.transpose(ops.exp(x), perm=(1, 0))
    return ops.transpose(ops.add(flipped, flipped), perm=(1, 0))


def through_reshape(x: Value) -> Value:
    flat = ops.reshape(ops.neg(x), shape=(ROWS * COLUMNS,))
    parts = ops.reshape(ops.mul(flat, flat), shape=(ROWS, 4, COLUMNS // 4))
    return ops.add(parts, parts)


def normalized_sum(x: Value) -> Value:
    """A row's reduction that feeds the next one, and a sum of rows beside it."""
    y = softmax(x)
    return ops.sum(ops.mul(y, ops.log(y)), axes=(1,))


def two_reductions(x: Value) -> Value:
    mean, square = row_mean(x), row_mean(ops.mul(x, x))
    return ops.sub(square, ops.mul(mean, mean))


def chosen_logits(x: Value) -> Value:
    """The cross-entropy's value and gradient per row."""
    graph = x.graph
    labels = graph.add_input(TensorType(i64, (ROWS, 1)))
    return ops.scatter_add(softmax(x), labels, ops.full(x, -1.0, (ROWS, 1), f32), axis=1)


X, ROW, W = (ROWS, COLUMNS), (COLUMNS,), (COLUMNS, COLUMNS)

PROGRAMS: list[tuple[Callable[..., Value], tuple[tuple[int, ...], ...], int]] = [
    (chain, (X,), 1),
    (softmax, (X,), 1),
    (layer_norm, (X, ROW, ROW), 1),
    (linear_relu, (X, W, ROW), 1),
    (transposed_sum, (X,), 1),
    (through_reshape, (X,), 1),
    (normalized_sum, (X,), 1),
    (two_reductions, (X,), 1),
    (chosen_logits, (X,), 2),  # the check of the labels
]


def build(program: Callable[..., Value], shapes: tuple[tuple[int, ...], ...]) -> Graph:
    graph = Graph(program.__name__)
    operands = [graph.add_input(TensorType(f32, shape)) for shape in shapes]
    graph.outputs = [program(*operands)]
    return graph


def arrays_for(graph: Graph, rng: np.random.Generator) -> list[np.ndarray]:
    return [
        rng.integers(0, 3, entry.value.shape)
        if entry.value.dtype is i64
        else rng.normal(size=entry.value.shape).astype(np.float32)
        for entry in graph.inputs
    ]


def assert_right(executable: Executable, graph: Graph, rng: np.random.Generator) -> None:
    arrays = arrays_for(graph, rng)
    want, _ = interpret(graph, arrays)
    for ours, theirs in zip(executable.call(arrays), want, strict=True):
        scale = max(1.0, float(np.abs(theirs).max(initial=0)))
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6 * scale)


@pytest.mark.parametrize(
    ("program", "shapes", "kernels"), PROGRAMS, ids=lambda p: getattr(p, "__name__", None)
)
def test_a_pattern_is_one_kernel(
    program: Callable[..., Value],
    shapes: tuple[tuple[int, ...], ...],
    kernels: int,
    rng: np.random.Generator,
) -> None:
    graph = build(program, shapes)
    executable = compile_graph(graph)
    assert executable.kernel_count == kernels, executable.stages["kernels"]
    assert_right(executable, graph, rng)
    assert_right(compile_graph(graph, fuse=False), graph, rng)


def test_a_fused_program_needs_no_memory_between() -> None:
    executable = compile_graph(build(softmax, (X,)))
    assert executable.stages["buffers"].startswith("arena of 0 bytes")


def test_equal_layers_share_their_code(rng: np.random.Generator) -> None:
    graph = Graph()
    x = graph.add_input(TensorType(f32, X))
    for _ in range(4):
        w, b = (graph.add_input(TensorType(f32, shape)) for shape in (W, ROW))
        x = linear_relu(x, w, b)
    graph.outputs = [x]
    executable = compile_graph(graph)
    assert (executable.kernel_count, executable.function_count) == (4, 1)
    assert_right(executable, graph, rng)


def test_a_value_isn_t_read_before_it_is_complete(rng: np.random.Generator) -> None:
    """y = x + sum(x), z = y + sum(y) over all elements: no kernel can do both of a long row."""
    graph = Graph()
    x = graph.add_input(TensorType(f32, (200, 300)))
    y = ops.add(x, ops.sum(x, axes=(0, 1)) * 1e-4)
    graph.outputs = [ops.add(y, ops.sum(y, axes=(0, 1)) * 1e-4)]
    executable = compile_graph(graph)
    assert executable.kernel_count > 1
    assert_right(executable, graph, rng)


def test_no_path_leads_out_of_a_kernel_and_back(rng: np.random.Generator) -> None:
    """The product between two elementwise ops on x keeps them apart."""
    graph = Graph()
    x = graph.add_input(TensorType(f32, (8, 8)))
    a = ops.exp(x)
    graph.outputs = [ops.add(a, ops.matmul(a, a))]
    executable = compile_graph(graph)
    assert executable.kernel_count == 2
    assert_right(executable, graph, rng)


def flipped(x: Value) -> Value:
    return ops.flip(ops.flip(x, 0), 1)


def after_a_sort(x: Value) -> Value:
    """What is sorted is read again beside the sorted: one kernel would wait for itself."""
    a = ops.exp(x)
    return ops.add(a, ops.sort(a, axis=1, descending=False))


def around_a_sort(x: Value, y: Value) -> Value:
    a = ops.exp(x)
    b = ops.add(ops.sort(a, axis=1, descending=False), y)
    return ops.mul(a, b)


def around_an_update(x: Value) -> Value:
    """The updated array is complete only after the kernel that makes its parts."""
    a = ops.exp(x)
    place = {"starts": (1, 0), "stops": (2, COLUMNS), "steps": (1, 1)}
    b = ops.update_slice(a, ops.slice(ops.neg(x), **place), **place)
    return ops.add(a, flipped(b))


def around_a_concatenation(x: Value) -> Value:
    a = ops.exp(x)
    halves = ops.slice_axis(a, 1, COLUMNS // 2, COLUMNS), ops.slice_axis(a, 1, 0, COLUMNS // 2)
    return ops.add(flipped(ops.concat(*halves, axis=1)), a)


def around_a_copy(x: Value) -> Value:
    """Another order of the elements that the kernel of the first op has just stored."""
    a = ops.exp(x)
    return ops.add(flipped(ops.concat(a, axis=0)), a)


@pytest.mark.parametrize(
    ("program", "shapes"),
    [
        (around_a_copy, (X,)),
        (after_a_sort, (X,)),
        (around_a_sort, (X, X)),
        (around_an_update, (X,)),
        (around_a_concatenation, (X,)),
    ],
    ids=lambda p: getattr(p, "__name__", None),
)
def test_kernels_don_t_wait_for_themselves(
    program: Callable[..., Value],
    shapes: tuple[tuple[int, ...], ...],
    rng: np.random.Generator,
) -> None:
    graph = build(program, shapes)
    assert_right(compile_graph(graph), graph, rng)


def test_parts_are_written_where_they_belong(rng: np.random.Generator) -> None:
    """A concatenation copies nothing: its parts are computed into their places."""
    graph = Graph()
    x = graph.add_input(TensorType(f32, X))
    graph.outputs = [ops.concat(ops.exp(x), ops.neg(x), axis=1)]
    assert_right(compile_graph(graph), graph, rng)


def test_kernels_can_be_read() -> None:
    text = compile_graph(build(softmax, (X,))).stages["kernels"]
    assert "for i0 in 6 {" in text
    assert "reduce %0 amax : f32" in text
    assert "pass 2:" in text


def test_rounds_of_an_unrolled_loop_share_their_kernels(rng: np.random.Generator) -> None:
    """Each round reads and stores another row; the first one alone has its state elsewhere."""
    graph = Graph()
    sequence = graph.add_input(TensorType(f32, (9, 4, 8)))
    weight = graph.add_input(TensorType(f32, (8, 8)))
    state = graph.add_input(TensorType(f32, (4, 8)))
    states = []
    for t in range(9):
        row = ops.slice(sequence, starts=(t, 0, 0), stops=(t + 1, 4, 8), steps=(1, 1, 1))
        state = ops.tanh(ops.matmul(state, weight) + ops.reshape(row, shape=(4, 8)))
        states.append(ops.reshape(state, shape=(1, 4, 8)))
    graph.outputs = [ops.concat(*states, axis=0)]
    executable = compile_graph(graph)
    assert (executable.kernel_count, executable.function_count) == (9, 2)
    assert_right(executable, graph, rng)


def test_lanes_follow_the_terms_of_sums_not_the_sums(rng: np.random.Generator) -> None:
    """Four sums for each of 16 channels, next to which the images' elements count for more."""
    graph = Graph()
    x, y = (graph.add_input(TensorType(f32, (5, 16, 6, 32))) for _ in range(2))
    sums = [ops.sum(term, axes=(0, 2, 3)) for term in (x, y, x * y, x * x)]
    graph.outputs = sums
    executable = compile_graph(graph)
    (before, inside) = executable.stages["kernels"].split("pass 0:")
    assert "lanes" in inside and "lanes" not in before
    assert_right(executable, graph, rng)


@pytest.mark.parametrize("shape", [(5,), (5, 3)])
def test_an_index_without_axes_takes_of_what_was_just_computed(
    rng: np.random.Generator, shape: tuple[int, ...]
) -> None:
    """The result has fewer axes than the operand, so it can't run over the operand's indices."""
    graph = Graph()
    x, place = graph.add_input(TensorType(f32, shape)), graph.add_input(TensorType(i64, ()))
    taken = x * 2.0
    for _ in shape:
        taken = ops.take(taken, place, axis=0)
    graph.outputs = [taken]
    array = rng.standard_normal(shape).astype(np.float32)
    (found,) = compile_graph(graph).call([array, np.array(2)])
    np.testing.assert_array_equal(found, 2 * array[(2,) * len(shape)])


def test_a_table_of_numbers_is_filled_by_one_kernel() -> None:
    numbers = [0.5 * n * n for n in range(24)]
    graph = Graph()
    x = graph.add_input(TensorType(f32, (24,)))
    parts = [ops.reshape(graph.constant(n, f32), shape=(1,)) for n in numbers]
    graph.outputs = [ops.concat(*parts, axis=0), ops.sum(x, axes=(0,))]
    executable = compile_graph(graph)
    found, _ = executable.call([np.zeros(24, np.float32)])
    np.testing.assert_array_equal(found, np.array(numbers, np.float32))
    assert executable.stages["kernels"].count("call ") == 2
