"""What programs don't do: copy, fill, transpose or read memory more often than they must."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from lucid.codegen.kernel_ir.affine import slabs
from lucid.ir import ops
from lucid.ir.graph import Graph, Value
from lucid.ir.interpret import interpret
from lucid.ir.passes import concat_pads
from lucid.ir.types import TensorType, f32, i64
from lucid.runtime import Executable, compile_graph

Shape = tuple[int, ...]
LINES, COLUMNS, CHOSEN = 32, 48, 80


def inputs(graph: Graph, *shapes: Shape, kind: str = "arg") -> list[Value]:
    return [graph.add_input(TensorType(f32, shape), kind) for shape in shapes]


def indices(graph: Graph, count: int) -> Value:
    return graph.add_input(TensorType(i64, (count,)))


def run(graph: Graph, rng: np.random.Generator, limit: int = 2) -> Executable:
    """Compile a graph, and hold its results and the state that it leaves against the interpreter's.

    Args:
        limit: indices are below it.
    """
    arrays = [
        rng.integers(0, limit, entry.value.shape)
        if entry.value.dtype is i64
        else rng.normal(size=entry.value.shape).astype(np.float32)
        for entry in graph.inputs
    ]
    outputs, written = interpret(graph, [array.copy() for array in arrays])
    executable = compile_graph(graph)
    given = [array.copy() for array in arrays]
    for ours, theirs in zip(executable.call(given), outputs, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
        same_zeros = (ours != 0) | (np.signbit(ours) == np.signbit(theirs))
        assert np.all(same_zeros)
    new = {cell: value for (cell, _), value in zip(graph.writes, written, strict=True)}
    for entry, before, after in zip(graph.inputs, arrays, given, strict=True):
        np.testing.assert_allclose(after, new.get(entry.value, before), rtol=1e-5, atol=1e-5)
    return executable


# Borders --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "low", "inner", "boxes"),
    [
        ((7,), (2,), (4,), 2),
        ((3, 5, 9), (0, 1, 2), (3, 3, 6), 3),
        ((3, 5, 9), (0, 0, 1), (3, 5, 7), 3),
        ((3, 1, 9), (0, 0, 4), (3, 1, 3), 3),
        ((3, 5, 9), (1, 2, 0), (2, 2, 6), 4),
        ((3, 5, 9), (0, 1, 1), (3, 0, 6), 4),
    ],
)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_what_is_around_an_array_is_filled_once_and_line_ends_with_the_next_lines(
    shape: Shape, low: Shape, inner: Shape, boxes: int, order: Shape
) -> None:
    order = tuple(axis for axis in order if axis < len(shape))
    memory = np.zeros([shape[axis] for axis in order], np.int32)
    array = memory.transpose(np.argsort(order))
    strides = tuple(stride // 4 for stride in array.strides)
    found = slabs(shape, strides, low, inner)
    for offset, box, steps in found:
        indices = np.indices(box).reshape(len(box), -1)
        np.add.at(memory.reshape(-1), offset + np.array(steps) @ indices, 1)
    wanted = np.ones(shape, np.int32)
    wanted[tuple(slice(n, n + size) for n, size in zip(low, inner, strict=True))] = 0
    np.testing.assert_array_equal(array, wanted)
    if order == tuple(range(len(shape))):
        assert sum(0 not in box for _, box, _ in found) <= boxes


# Lines ----------------------------------------------------------------------------------------


def test_columns_that_are_indexed_together_are_moved_as_lines(rng: np.random.Generator) -> None:
    """Along the last axis of a temp: stored the other way round it needs no index per lane."""
    graph = Graph()
    (x,) = inputs(graph, (COLUMNS, LINES))
    index = indices(graph, CHOSEN)
    x = ops.exp(ops.transpose(x, perm=(1, 0)))
    y = ops.take(x, index, axis=1) * 2.0
    z = ops.index_add(ops.zeros_like(x), index, y, axis=1)
    graph.outputs = [ops.sum(z, axes=(0,)), ops.sum(y, axes=(0,))]
    executable = run(graph, rng, COLUMNS)
    assert "masked.gather" not in executable.llvm
    assert "masked.scatter" not in executable.llvm


@pytest.mark.parametrize("is_sorted", [False, True])
def test_what_is_computed_of_lines_is_added_to_others_at_once(
    is_sorted: bool, rng: np.random.Generator
) -> None:
    """A sparse matrix times a dense one: products of single elements are nowhere stored."""
    graph = Graph()
    x, values, base = inputs(graph, (LINES, 24), (CHOSEN,), (LINES, 24))
    at, to = indices(graph, CHOSEN), indices(graph, CHOSEN)
    weights = ops.reshape(values, shape=(CHOSEN, 1))
    terms = ops.take(x, at, axis=0) * weights
    graph.outputs = [ops.index_add(base, to, terms, axis=0)]
    executable = compile_graph(graph)
    assert "temp" not in executable.stages["buffers"]
    arrays = [rng.normal(size=e.value.shape).astype(np.float32) for e in graph.inputs[:3]]
    places = rng.integers(-LINES, LINES // 2, (2, CHOSEN))  # many twice, some lines never
    arrays += list(np.sort(places) if is_sorted else places)
    want, _ = interpret(graph, arrays)
    np.testing.assert_array_equal(executable.call(arrays)[0], want[0])


def test_what_single_elements_are_added_to_is_computed_in_vectors(rng: np.random.Generator) -> None:
    graph = Graph()
    (values,) = inputs(graph, (CHOSEN,))
    (base,) = inputs(graph, (LINES,))
    graph.outputs = [ops.index_add(base, indices(graph, CHOSEN), values * values, axis=0)]
    assert run(graph, rng).kernel_count > 2


def test_an_argument_is_copied_only_for_another_order_of_axes(rng: np.random.Generator) -> None:
    """Here the result is row-major, so that lines would have to be turned back."""
    graph = Graph()
    (x,) = inputs(graph, (LINES, COLUMNS))
    graph.outputs = [ops.take(x, indices(graph, CHOSEN), axis=1), ops.tanh(x)]
    executable = run(graph, rng, COLUMNS)
    assert executable.stages["buffers"].startswith("arena of 0 bytes")


# Sums of parts --------------------------------------------------------------------------------


def test_the_gradient_of_slices_is_put_together_without_filling(rng: np.random.Generator) -> None:
    graph = Graph()
    parts = inputs(graph, (6, 1), (6, 2), (6, 1))
    first, second, third = (
        ops.pad(ops.neg(part) * 0.0, ops.zero(part), low=(0, low), high=(0, high))
        for part, low, high in zip(parts, (0, 1, 3), (3, 1, 0), strict=True)
    )
    graph.outputs = [ops.add(ops.add(first, second), third)]
    concat_pads(graph)
    assert run(graph, rng).kernel_count == len(parts)


def test_gradients_of_two_gathers_fill_one_array(rng: np.random.Generator) -> None:
    graph = Graph()
    x, a, b = inputs(graph, (9, 40), (5, 40), (7, 40))
    first, second = indices(graph, 5), indices(graph, 7)
    zeros = ops.zeros_like(x)
    sums = [
        ops.index_add(zeros, first, a, axis=0),
        ops.index_add(zeros, second, b, axis=0),
    ]
    graph.outputs = [ops.add(*sums)]
    # Two checks, one filling, two sums.
    assert run(graph, rng, 9).kernel_count == 5


# Views ----------------------------------------------------------------------------------------


def test_what_a_reshape_repeats_is_not_copied(rng: np.random.Generator) -> None:
    graph = Graph()
    x, y = inputs(graph, (6, 4, 1), (6, 40))
    repeated = ops.reshape(ops.broadcast(x, shape=(6, 4, 10)), shape=(6, 40))
    graph.outputs = [ops.mul(repeated, y)]
    executable = run(graph, rng)
    assert executable.kernel_count == 1
    assert executable.stages["buffers"].startswith("arena of 0 bytes")


def test_a_product_is_stored_in_the_order_that_is_read(rng: np.random.Generator) -> None:
    """The heads of an attention, side by side: a reshape of a transposition."""
    graph = Graph()
    a, b = inputs(graph, (4, 6, 8), (4, 8, 5))
    heads = ops.transpose(ops.matmul(a, b), perm=(1, 0, 2))
    graph.outputs = [ops.exp(ops.reshape(heads, shape=(6, 20)))]
    executable = run(graph, rng)
    assert executable.kernel_count == 1
    assert executable.stages["buffers"].startswith("arena of 0 bytes")


def test_a_product_that_is_an_output_with_its_axes_exchanged_is_read_there(
    rng: np.random.Generator,
) -> None:
    graph = Graph()
    a, b = inputs(graph, (24, 16), (16, 40))
    product = ops.matmul(a, b)
    graph.outputs = [ops.transpose(product, perm=(1, 0)), ops.amax(product, axes=(0, 1))]
    calls = run(graph, rng).calls
    assert {x.kind for call in calls for x in call.args if x.size == 24 * 40} == {"output"}


@pytest.mark.parametrize("rows", [(6, 4), (1, 24), (2, 3, 4)], ids=str)
def test_what_follows_a_product_of_flattened_rows_follows_at_once(
    rows: Shape, rng: np.random.Generator
) -> None:
    """A linear layer over more than two axes."""
    graph = Graph()
    x, w, bias, residual = inputs(graph, (*rows, 8), (8, 40), (40,), (*rows, 40))
    flat = ops.matmul(ops.reshape(x, shape=(24, 8)), w)
    y = ops.add(ops.reshape(flat, shape=(*rows, 40)), bias)
    graph.outputs = [ops.add(ops.tanh(y), residual)]
    assert run(graph, rng).kernel_count == 1


def test_a_product_keeps_its_rows_together(rng: np.random.Generator) -> None:
    """What is added repeats along a part of the rows: a kernel of its own adds it."""
    graph = Graph()
    x, w, positions = inputs(graph, (6, 4, 8), (8, 40), (4, 40))
    flat = ops.matmul(ops.reshape(x, shape=(24, 8)), w)
    graph.outputs = [ops.add(ops.reshape(flat, shape=(6, 4, 40)), positions)]
    executable = run(graph, rng)
    assert executable.kernel_count == 2
    kernels = executable.stages["kernels"]
    assert "  row m0 in 24\n" in kernels and "  batch" not in kernels


def test_loops_over_the_same_array_are_one(rng: np.random.Generator) -> None:
    graph = Graph()
    x, y = inputs(graph, (6, 40), (6, 40))
    graph.outputs = [ops.sum(ops.exp(x), axes=(1,)), ops.sum(ops.mul(x, y), axes=(1,)), ops.neg(y)]
    assert run(graph, rng).kernel_count == 1


# State ----------------------------------------------------------------------------------------

PLACE = {"starts": (4, 0), "stops": (6, 8), "steps": (1, 1)}


def update_of_rows(graph: Graph, cell: Value, rows: Value) -> Sequence[Value]:
    graph.writes = [(cell, ops.update_slice(cell, ops.exp(rows), **PLACE))]
    return []


def sum_into_rows(graph: Graph, cell: Value, rows: Value) -> Sequence[Value]:
    index = indices(graph, 2)
    graph.writes = [(cell, ops.index_add(cell, index, ops.exp(rows), axis=0))]
    return []


def several_updates(graph: Graph, cell: Value, rows: Value) -> Sequence[Value]:
    new = ops.index_add(cell, indices(graph, 2), rows, axis=0)
    new = ops.update_slice(new, ops.neg(rows), **PLACE)
    graph.writes = [(cell, new)]
    return [ops.sum(new, axes=(0,)), ops.sum(cell, axes=(1,))]


@pytest.mark.parametrize("update", [update_of_rows, sum_into_rows, several_updates])
def test_parts_of_state_are_written_in_place(
    update: Callable[[Graph, Value, Value], Sequence[Value]], rng: np.random.Generator
) -> None:
    graph = Graph()
    (cell,) = inputs(graph, (500, 8), kind="state")
    (rows,) = inputs(graph, (2, 8))
    graph.outputs = list(update(graph, cell, rows))
    executable = run(graph, rng, 500)
    arena = int(executable.stages["buffers"].split()[2])
    assert arena < 500 * 8 * 4


def shift(graph: Graph, cell: Value, rows: Value) -> Sequence[Value]:
    """The rows that are written are read a row further on."""
    moved = {**PLACE, "starts": (5, 0), "stops": (7, 8)}
    graph.writes = [(cell, ops.update_slice(cell, ops.slice(cell, **moved), **PLACE))]
    return []


def index_from_the_result(graph: Graph, cell: Value, rows: Value) -> Sequence[Value]:
    """An index that could be wrong is known only when the new state is."""
    new = ops.index_add(cell, indices(graph, 2), rows, axis=0)
    first = ops.reshape(ops.slice(new, starts=(0, 0), stops=(2, 1), steps=(1, 1)), shape=(2,))
    chosen = ops.cast(ops.gt(first, ops.zero(first)), dtype=i64)
    graph.writes = [(cell, new)]
    return [ops.take(rows, chosen, axis=0)]


def two_cells(graph: Graph, cell: Value, rows: Value) -> Sequence[Value]:
    (other,) = inputs(graph, (500, 8), kind="state")
    new = ops.update_slice(cell, rows, **PLACE)
    graph.writes = [(cell, new), (other, new)]
    return []


def old_and_new(graph: Graph, cell: Value, rows: Value) -> Sequence[Value]:
    """The old state is needed after the new one."""
    new = ops.update_slice(cell, rows, **PLACE)
    total = ops.sum(new, axes=(0,))
    graph.writes = [(cell, new)]
    return [ops.mul(cell, total)]


def first_row(graph: Graph, cell: Value, rows: Value) -> Sequence[Value]:
    """All rows need the first one, of which each computes for itself what it needs."""
    graph.writes = [(cell, cell - ops.slice_axis(cell, 0, 0, 1) * 0.1)]
    return []


def last_row_first(graph: Graph, cell: Value, rows: Value) -> Sequence[Value]:
    graph.writes = [(cell, cell - ops.flip(cell, 0) * 0.1)]
    return []


@pytest.mark.parametrize(
    "update", [shift, index_from_the_result, two_cells, old_and_new, first_row, last_row_first]
)
def test_state_that_is_still_needed_is_copied_first(
    update: Callable[[Graph, Value, Value], Sequence[Value]], rng: np.random.Generator
) -> None:
    graph = Graph()
    (cell,) = inputs(graph, (500, 8), kind="state")
    (rows,) = inputs(graph, (2, 8))
    graph.outputs = list(update(graph, cell, rows))
    run(graph, rng, 500)


def test_a_short_chain_on_state_is_written_in_place(rng: np.random.Generator) -> None:
    graph = Graph()
    (cell,) = inputs(graph, (500, 8), kind="state")
    graph.writes = [(cell, ops.neg(cell * 0.9))]
    assert not _temp_sizes(run(graph, rng))


@pytest.mark.parametrize("large_first", [True, False])
def test_of_two_updates_that_wait_for_each_other_the_smaller_is_copied(
    rng: np.random.Generator, large_first: bool
) -> None:
    """Each gradient reads what the other one's update replaces."""
    graph = Graph()
    (a,) = inputs(graph, (30, 50), kind="state")
    (x,) = inputs(graph, (50, 1), kind="state")
    error = ops.matmul(a, x)
    of_a = ops.matmul(error, ops.transpose(x, perm=(1, 0)))
    of_x = ops.matmul(ops.transpose(a, perm=(1, 0)), error)
    graph.writes = [(a, a - of_a * 0.1), (x, x - of_x * 0.1)]
    if not large_first:
        graph.writes.reverse()
    executable = run(graph, rng)
    assert _temp_sizes(executable) == [30 * 4, 50 * 4], "the error, and the new x"


def _temp_sizes(executable: Executable) -> list[int]:
    lines = executable.stages["buffers"].splitlines()[1:]
    places = [line.split(": ")[1].split("  ")[0].split(" .. ") for line in lines]
    return sorted(int(stop) - int(start) for start, stop in places)


# Elements of lines ----------------------------------------------------------------------------


LONG = 100


def log_softmax(x: Value) -> Value:
    shifted = ops.sub(x, ops.keep_axes(ops.amax(x, axes=(1,)), x.shape, (1,)))
    total = ops.sum(ops.exp(shifted), axes=(1,))
    return ops.sub(shifted, ops.keep_axes(ops.log(total), x.shape, (1,)))


def test_a_loss_of_chosen_elements_stores_no_others(rng: np.random.Generator) -> None:
    """Of the logarithms of a softmax one per line is chosen where they are computed."""
    graph = Graph()
    (x,) = inputs(graph, (LINES, LONG))
    labels = graph.add_input(TensorType(i64, (LINES, 1)))
    graph.outputs = [ops.neg(ops.gather(log_softmax(x), labels, axis=1))]
    executable = run(graph, rng)
    assert _temp_sizes(executable) == []
    assert "gather" not in executable.stages["kernels"]


def test_rows_that_wait_for_a_sum_of_what_is_small_are_gone_over_once(
    rng: np.random.Generator,
) -> None:
    """The number of lines that count is known before the softmax that it divides is computed."""
    graph = Graph()
    x, weights = inputs(graph, (LINES, LONG), (LINES,))
    counted, y = ops.exp(weights), log_softmax(x)
    total = ops.sum(ops.sum(y, axes=(1,)) * counted, axes=(0,))
    count = ops.sum(counted, axes=(0,))
    graph.outputs = [total / count, y / count]
    assert max(_temp_sizes(run(graph, rng)), default=0) <= LINES * 4


def test_of_a_long_array_the_next_row_is_asked_for_meanwhile(rng: np.random.Generator) -> None:
    def prefetches(rows: int) -> int:
        graph = Graph()
        (x,) = inputs(graph, (rows, 300))
        graph.outputs = [log_softmax(x)]
        return run(graph, rng).llvm.count("call void @llvm.prefetch")

    assert prefetches(1000) > 0
    assert prefetches(100) == 0, "all of it is in the cache"


def test_what_a_product_copies_next_is_asked_for_while_it_multiplies() -> None:
    """A first operand with lines of rows is copied block by block, like the second one."""

    def asked(inner: int, rows: int) -> int:
        graph = Graph()
        a, b = inputs(graph, (inner, rows), (inner, 128))
        graph.outputs = [ops.matmul(ops.transpose(a, perm=(1, 0)), b)]
        return compile_graph(graph).llvm.count("i32 0, i32 2, i32 1)")

    assert asked(512, 256) > 0
    assert asked(16, 32) == 0, "nothing is copied"


def test_rows_beside_a_product_are_asked_for_unless_they_are_small(
    rng: np.random.Generator,
) -> None:
    def asked(rows: int) -> int:
        graph = Graph()
        a, b, x, y = inputs(graph, (rows, 20), (20, 40), (rows, 40), (rows, 40))
        graph.outputs = [ops.matmul(a, b) * x + y]
        return run(graph, rng).llvm.count("call void @llvm.prefetch")

    assert asked(640) > 0
    assert asked(40) == 0, "all of it is in the cache"


def test_what_lies_in_memory_anyway_is_indexed_there(rng: np.random.Generator) -> None:
    graph = Graph()
    (x,) = inputs(graph, (LINES, LONG))
    labels = graph.add_input(TensorType(i64, (LINES, 1)))
    graph.outputs = [ops.gather(x, labels, axis=1), ops.sum(x, axes=(1,))]
    assert "gather" in run(graph, rng).stages["kernels"]


@pytest.mark.parametrize("columns", [3, LONG])
def test_chosen_elements_are_what_they_were(columns: int) -> None:
    """A NaN elsewhere in the line does no harm; one that is chosen, or a zero's sign, stays."""
    graph = Graph()
    (x,) = inputs(graph, (4, columns))
    labels = graph.add_input(TensorType(i64, (4, 1)))
    negated = ops.neg(x)
    graph.outputs = [ops.gather(negated, labels, axis=1), ops.sum(negated, axes=(1,))]
    array = np.full((4, columns), 2.0, np.float32)
    array[:, :3] = [[np.nan, 1, 2], [0.0, 5, np.nan], [np.inf, 1, 2], [3, -np.inf, 4]]
    chosen = np.array([[0], [0], [0], [1 - columns]])
    executable = compile_graph(graph)
    assert ("gather" in executable.stages["kernels"]) == (columns == 3), "lines are short"
    ours, _ = executable.call([array, chosen])
    want = np.take_along_axis(-array, chosen, 1)
    np.testing.assert_array_equal(ours, want)
    np.testing.assert_array_equal(np.signbit(ours[1:]), np.signbit(want[1:]))


def test_places_are_compared_with_any_index() -> None:
    """In i32, which has no number beyond 2**31; none of these is a place."""
    graph = Graph()
    (x,) = inputs(graph, (1, LONG))
    index = graph.add_input(TensorType(i64, (6, 1)))
    places = ops.indices(x, (LONG,), 0)
    graph.outputs = [ops.where(ops.eq(places, index), x, ops.neg(x))]
    array = np.arange(1.0, LONG + 1, dtype=np.float32)[None]
    chosen = np.array([[0], [LONG - 1], [LONG], [-1], [2**32 + 3], [-(2**32) + 3]])
    (ours,) = compile_graph(graph).call([array, chosen])
    np.testing.assert_array_equal(ours, np.where(np.arange(LONG) == chosen, array, -array))


# Products -------------------------------------------------------------------------------------


def test_what_only_sums_read_is_not_stored(rng: np.random.Generator) -> None:
    """The squares of a gradient's norm: the sum's loop makes them from the gradient itself."""
    graph = Graph()
    x, error = inputs(graph, (40, 30), (40, 50))
    (w,) = inputs(graph, (30, 50), kind="state")
    gradient = ops.matmul(ops.transpose(x, perm=(1, 0)), error)
    norm = ops.sqrt(ops.sum(ops.mul(gradient, gradient), axes=(0, 1)))
    graph.writes = [(w, w - ops.div(gradient, norm))]
    executable = run(graph, rng)
    assert _temp_sizes(executable) == [30 * 50 * 4], "the gradient"
    assert executable.kernel_count == 2


def test_dot_products_are_stored_before_what_takes_long(rng: np.random.Generator) -> None:
    """Of each there is one at a time: an exponential of it would have one lane."""
    graph = Graph()
    x, w = inputs(graph, (LINES, COLUMNS), (COLUMNS, 1))
    graph.outputs = [ops.exp(ops.neg(ops.matmul(x, w)))]
    executable = run(graph, rng)
    assert executable.kernel_count == 2
    assert "neg" in executable.stages["kernels"].split("kernel k1")[0]


# Order ----------------------------------------------------------------------------------------


def temps_in_use(executable: Executable, size: int) -> float:
    """The arena's size, in matrices of so many elements."""
    return int(executable.stages["buffers"].split()[2]) / (4 * size)


def test_what_a_gradient_is_a_product_of_does_not_wait_for_the_end_of_the_step(
    rng: np.random.Generator,
) -> None:
    layers, rows, columns = 8, 96, 64
    graph = Graph()
    (x,) = inputs(graph, (rows, columns))
    weights = inputs(graph, *[(columns, columns)] * layers, kind="state")
    hidden = [x]
    for w in weights:
        hidden.append(ops.tanh(ops.matmul(hidden[-1], w)))
    gradient, updates = hidden[-1], []
    for w, before, y in zip(weights[::-1], hidden[-2::-1], hidden[:0:-1], strict=True):
        g = gradient * y
        updates.append((w, ops.matmul(ops.transpose(before, perm=(1, 0)), g)))
        gradient = ops.matmul(g, ops.transpose(w, perm=(1, 0))) * 0.1
    graph.writes = [(w, w - dw * 0.01) for w, dw in updates]
    executable = run(graph, rng)
    assert temps_in_use(executable, rows * columns) <= layers + 3


def test_behind_a_barrier_memory_is_read_when_what_stands_before_is_done(
    rng: np.random.Generator,
) -> None:
    """Without it the two loops over x would be one, and their results kept until the end."""
    used = []
    for is_apart in (True, False):
        graph = Graph()
        x, w = inputs(graph, (32, 32), (32, 32))
        e = ops.sigmoid(x)
        g = ops.matmul(e, w)
        again = ops.barrier(x, g) if is_apart else x
        f = ops.sin(ops.sigmoid(again) * 0.5)
        graph.outputs = [ops.tanh(ops.matmul(ops.tanh(g), f) * 0.01) + f]
        executable = run(graph, rng)
        used.append(temps_in_use(executable, 32 * 32))
    assert used[0] == used[1] - 1


def test_indices_behind_a_barrier_are_checked_once(rng: np.random.Generator) -> None:
    graph = Graph()
    (x,) = inputs(graph, (COLUMNS, LINES))
    index = indices(graph, CHOSEN)
    first = ops.take(x, index, axis=0)
    again = ops.take(x, ops.barrier(index, first), axis=0)
    graph.outputs = [ops.exp(first), ops.sin(again)]
    executable = run(graph, rng)
    assert executable.stages["kernels"].count("call k") - 2 <= 1


# All pairs ------------------------------------------------------------------------------------


def differences(x: Value) -> Value:
    count = x.shape[0]
    rows = ops.reshape(x, shape=(count, 1))
    columns = ops.reshape(x, shape=(1, count))
    result: Value = ops.sub(columns, rows)
    return result


def temps_of(executable: Executable) -> int:
    return executable.stages["buffers"].count("temp")


def test_differences_of_all_pairs_are_computed_where_they_are_read(
    rng: np.random.Generator,
) -> None:
    """Two sums, along rows and along columns, are two kernels: neither reads n**2 elements."""
    graph = Graph()
    (x,) = inputs(graph, (LINES,))
    d = differences(x)
    graph.outputs = [ops.sum(ops.sin(d), axes=(0,)), ops.sum(ops.exp(d), axes=(1,))]
    assert temps_of(run(graph, rng)) == 0


def test_so_are_those_of_what_the_step_computes(rng: np.random.Generator) -> None:
    """The positions themselves are stored, once, before what reads them."""
    graph = Graph()
    (x,) = inputs(graph, (LINES,))
    d = differences(ops.sin(x))
    graph.outputs = [ops.sum(ops.sin(d), axes=(0,)), ops.sum(ops.exp(d), axes=(1,))]
    assert temps_of(run(graph, rng)) == 1


def test_what_a_row_gives_and_what_it_takes_from_it_stay_one_kernel(
    rng: np.random.Generator,
) -> None:
    """A short product of a row's sum is no reason to store the sum and to begin anew."""
    graph = Graph()
    x, w = inputs(graph, (LINES, COLUMNS), (COLUMNS,))
    total = ops.sum(ops.exp(x), axes=(1,))
    scaled = ops.reshape(total, shape=(LINES, 1)) * ops.reshape(w, shape=(1, COLUMNS))
    graph.outputs = [ops.exp(x) * scaled]
    executable = run(graph, rng)
    assert executable.kernel_count == 1


def test_pairs_of_state_are_those_before_it_changes(rng: np.random.Generator) -> None:
    graph = Graph()
    (x,) = inputs(graph, (LINES,), kind="state")
    d = differences(x)
    graph.writes = [(x, x + ops.sum(d * d, axes=(1,)) * 1e-3)]
    graph.outputs = [ops.sum(ops.exp(d), axes=(0,))]
    run(graph, rng)
