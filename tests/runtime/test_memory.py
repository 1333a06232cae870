"""One arena for all temporaries of a step, and nothing allocated once it runs but its results."""

from __future__ import annotations

import gc
import mmap
import tracemalloc

import numpy as np
import pytest

from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.types import TensorType, f32
from lucid.runtime import compile_graph
from lucid.runtime.arena import HUGE_PAGE, Arena


def training_step() -> Graph:
    """Two products with what belongs between them, a loss, and updates of the state."""
    graph = Graph("step")
    v = graph.add_input(TensorType(f32, (256, 128)), "state")
    w = graph.add_input(TensorType(f32, (128, 64)), "state")
    x = graph.add_input(TensorType(f32, (100, 256)))
    hidden = ops.tanh(ops.matmul(x, v))
    y = ops.matmul(hidden, w)
    loss = ops.sum(ops.mul(y, y), axes=(0, 1))
    dw = ops.matmul(ops.transpose(hidden, perm=(1, 0)), y)
    dh = ops.matmul(y, ops.transpose(w, perm=(1, 0)))
    dv = ops.matmul(ops.transpose(x, perm=(1, 0)), dh * (1.0 - hidden * hidden))
    graph.writes = [(v, v - dv * 1e-4), (w, w - dw * 1e-4)]
    graph.outputs = [loss]
    return graph


@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 20])
def test_arenas_are_aligned(size: int) -> None:
    assert Arena(size).address % 64 == 0


def test_large_arenas_begin_at_a_huge_page() -> None:
    arena = Arena(5 << 20)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        assert arena.address % HUGE_PAGE == 0


def test_a_step_has_one_arena_and_keeps_it() -> None:
    executable = compile_graph(training_step())
    inputs = [np.ones(entry.value.shape, np.float32) for entry in training_step().inputs]
    executable.call(inputs)
    (context,) = executable.free
    arena = context.arena
    for _ in range(3):
        executable.call(inputs)
    assert executable.free == [context]
    assert context.arena is arena


def test_nothing_is_allocated_but_the_results() -> None:
    executable = compile_graph(training_step())
    inputs = [np.ones(entry.value.shape, np.float32) for entry in training_step().inputs]
    for _ in range(3):
        executable.call(inputs)
    gc.collect()
    tracemalloc.start()
    try:
        executable.call(inputs)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(20):
            executable.call(inputs)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 4000
    assert peak - before < 8000


def test_a_result_that_memory_has_no_room_for_is_a_memory_error() -> None:
    """More bytes than a 64-bit processor can address, however freely the system promises them."""
    size = 1 << 24
    graph = Graph("huge")
    x = graph.add_input(TensorType(f32, (1,)))
    graph.outputs = [ops.broadcast(x, shape=(size, size)) + 1.0]
    executable = compile_graph(graph)
    with pytest.raises(MemoryError, match=r"unable to allocate .* GiB"):
        executable([np.ones(1, np.float32)])
