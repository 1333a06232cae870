"""Sorting: stable for every dtype and length, in whatever way the code does it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lucid.codegen import costs
from lucid.codegen.kernel_ir.affine import ZERO
from lucid.codegen.kernels.sort import SortKernel, method
from lucid.codegen.llvm.target import host_target
from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.interpret import interpret
from lucid.ir.types import DTYPES, DType, TensorType, dtype_of_numpy, f32, i64
from lucid.runtime import Executable, compile_graph
from lucid.runtime.threads import pool, set_num_threads

Array = np.ndarray[Any, Any]
LENGTHS = (0, 1, 16, 17, 128, 129, 1000)


def elements(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Few different values, the extreme ones among them."""
    if dtype.kind == "bool":
        return rng.random(shape) < 0.5
    if dtype.kind == "int":
        info = np.iinfo(dtype.numpy)
        some = [info.min, info.max, 0, 1, 255, 256, 65_536, info.max // 3]
        return rng.choice(np.array(some).astype(dtype.numpy), shape)
    normal = rng.normal(size=shape)
    special = rng.choice([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-40, 1.5], shape)
    return np.where(rng.random(shape) < 0.5, normal, special).astype(dtype.numpy)


def assert_orders(arrays: list[Array], axis: int, width: int = 64) -> None:
    """Values and positions of all arrays, upwards and downwards, are what NumPy's are."""
    graph = Graph()
    for array in arrays:
        x = graph.add_input(TensorType(dtype_of_numpy(array.dtype), array.shape))
        for op in (ops.sort, ops.argsort):
            graph.outputs += [op(x, axis=axis, descending=down) for down in (False, True)]
    target = host_target()
    target = target.with_vector_bytes(min(width, target.vector_bytes))
    found = compile_graph(graph, target=target).call(arrays)
    want, _ = interpret(graph, arrays)
    for ours, theirs in zip(found, want, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        if ours.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_elements_keep_their_order(dtype: DType, rng: np.random.Generator) -> None:
    assert_orders([elements(rng, dtype, (3, length)) for length in LENGTHS], 1)


SPREADS = {
    "normal": lambda x: x,
    "ties": lambda x: np.round(8 * x),
    "one far away": lambda x: np.where(x == x.max(), 1e30, x),
    "nan": lambda x: np.where(x > 2, np.nan, x),
    "infinite": lambda x: np.where(abs(x) > 2, np.sign(x) * np.inf, x),
    "least": lambda x: np.round(x) * np.finfo(x.dtype).smallest_subnormal,
    "all of the range": lambda x: np.clip(x / 3, -1, 1) * np.finfo(x.dtype).max,
    "zeros": lambda x: 0 * x,
    "sorted": lambda x: np.sort(np.round(8 * x)),
    "sorted but for the last one": lambda x: np.append(np.sort(x)[:-1], x.min()),
    "sorted but for a nan": lambda x: np.append(np.nan, np.sort(x)[1:]),
}


def assert_orders_stably(x: Array) -> None:
    """What eager mode computes is the one stable order, upwards and downwards."""
    upwards = ops.argsort.evaluate(x, axis=0, descending=False)
    assert np.array_equal(upwards, np.argsort(x, kind="stable"))
    downwards = ops.argsort.evaluate(x, axis=0, descending=True)
    assert np.array_equal(downwards, len(x) - 1 - np.argsort(x[::-1], kind="stable")[::-1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
def test_long_vectors_are_ordered_stably(
    spread: Any, dtype: type[np.floating[Any]], rng: np.random.Generator
) -> None:
    assert_orders_stably(spread(rng.standard_normal(5000).astype(dtype)).astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_long_vectors_of_extreme_elements_are_ordered_stably(
    dtype: DType, rng: np.random.Generator
) -> None:
    x = elements(rng, dtype, (5000,))
    assert_orders_stably(x)
    assert_orders_stably(np.nan_to_num(x, posinf=1, neginf=-1))


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_axis_is_sorted_with_any_width(width: int, axis: int, rng: np.random.Generator) -> None:
    arrays = []
    for length in (9, 200):
        shape = tuple(length if a == axis else n for a, n in enumerate((2, 3, 4)))
        arrays += [elements(rng, dtype, shape) for dtype in (f32, i64)]
    assert_orders(arrays, axis, width)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_first_few_are_found(dtype: DType, rng: np.random.Generator) -> None:
    graph, arrays = Graph(), []
    for length, first in ((300, 1), (300, 7), (300, 40), (129, 32), (50, 3)):
        arrays.append(elements(rng, dtype, (5, length)))
        x = graph.add_input(TensorType(dtype, (5, length)))
        for descending in (False, True):
            order = ops.argsort(x, axis=1, descending=descending)
            graph.outputs += [ops.slice_axis(order, 1, 0, count) * 1 for count in (1, first)]
    want, _ = interpret(graph, arrays)
    for ours, theirs in zip(compile_graph(graph).call(arrays), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def sort_kernel(executable: Executable) -> str:
    lines = executable.stages["kernels"].splitlines()
    return next(line for line in lines if " = sort(" in line)


def test_only_what_is_looked_at_is_ordered() -> None:
    """Of an order of which two slices are read: the longer one; all of it where it is a result."""
    graph = Graph()
    x = graph.add_input(TensorType(f32, (5, 300)))
    order = ops.argsort(x, axis=1, descending=True)
    graph.outputs = [ops.slice_axis(order, 1, 0, 3) * 1, ops.slice_axis(order, 1, 2, 9) * 1]
    assert "positions first 9:" in sort_kernel(compile_graph(graph))
    graph.outputs += [ops.slice_axis(order, 1, 4, 1, -1) * 1]
    assert "positions:" in sort_kernel(compile_graph(graph))
    graph.outputs = [order]
    assert "positions:" in sort_kernel(compile_graph(graph))


def test_short_lines_are_counted_and_the_first_of_long_ones_sought() -> None:
    def way(dtype: DType, length: int, kept: int) -> str:
        kernel = SortKernel(dtype, (5,), length, ZERO, 1, ZERO, 1, False, "values", kept)
        return method(kernel)

    assert way(f32, 128, 128) == way(i64, 16, 16) == "count"
    assert way(f32, 129, 5) == "seek"
    assert way(f32, 129, 129) == way(i64, 129, 5) == "digits"


@pytest.mark.parametrize("length", [60, 500])
def test_threads_share_the_lines(
    length: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "WORTH_SECONDS", 0.0)
    graph = Graph()
    x = graph.add_input(TensorType(f32, (3, length, 37)))
    graph.outputs = [ops.argsort(x, axis=1, descending=False)]
    executable = compile_graph(graph)
    assert executable.shared_count == 1
    array = elements(rng, f32, (3, length, 37))
    before = pool.num_threads
    try:
        for count in (1, 2, 3):
            set_num_threads(count)
            (order,) = executable.call([array])
            np.testing.assert_array_equal(order, np.argsort(array, axis=1, kind="stable"))
    finally:
        set_num_threads(before)
