"""Contractions against NumPy in double precision: sizes, strides, tails, batches, epilogues."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.codegen import costs
from lucid.codegen.contraction import blocked
from lucid.codegen.contraction.contraction import Contraction, plan
from lucid.codegen.llvm import jit
from lucid.codegen.llvm.target import Target, host_target
from lucid.codegen.lower.schedule import make_program
from lucid.ir import ops
from lucid.ir.graph import Graph, Value
from lucid.ir.types import TensorType, dtype_named
from lucid.runtime import compile_graph

Array = np.ndarray[Any, Any]


def strides_of(array: Array) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


def input_like(graph: Graph, array: Array, kind: str = "arg") -> Value:
    names = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}
    return graph.add_input(TensorType(dtype_named(names[array.dtype.name]), array.shape), kind)


def multiply(a: Array, b: Array, c: Array, target: Target) -> Array:
    """c = a @ b by generated code, as state; all may be views, and batch axes come first."""
    graph = Graph("product")
    x, y, z = (input_like(graph, array) for array in (a, b, c))
    graph.writes = [(z, ops.matmul(x, y))]
    executable = compile_graph(graph, [strides_of(array) for array in (a, b, c)], target=target)
    executable.call([a, b, c])
    return c


def random(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "i":
        return rng.integers(-(2**20), 2**20, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def laid_out(shape: tuple[int, int], layout: str, dtype: Any, seed: int) -> Array:
    """A matrix stored by rows (N), by columns (T), or with gaps in both directions (S)."""
    if layout == "N":
        return random(shape, dtype, seed)
    if layout == "T":
        return random(shape[::-1], dtype, seed).T
    return random((2 * shape[0], 3 * shape[1]), dtype, seed)[::2, ::3]


def check(actual: Array, a: Array, b: Array) -> None:
    if actual.dtype.kind == "i":
        np.testing.assert_array_equal(actual, a @ b)
        return
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    epsilon = np.finfo(actual.dtype).eps
    assert (np.abs(actual - exact) <= a.shape[-1] * epsilon * bound + 1e-300).all()


SIZES = [(1, 1, 1), (1, 37, 20), (33, 1, 19), (7, 5, 3), (32, 64, 64), (13, 50, 33), (29, 67, 16)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.int32, np.int64))
def test_all_layouts(size: tuple[int, int, int], dtype: Any) -> None:
    m, n, k = size
    for la, lb in itertools.product("NTS", repeat=2):
        a, b = laid_out((m, k), la, dtype, 1), laid_out((k, n), lb, dtype, 2)
        check(multiply(a, b, np.zeros((m, n), dtype), host_target()), a, b)


@pytest.mark.parametrize("width", (16, 32, 64))
@pytest.mark.parametrize("layouts", ("NN", "TN", "NT", "TT"))
def test_large_operands_are_packed(layouts: str, width: int) -> None:
    m, n, k = 101, 331, 409
    target = host_target().with_vector_bytes(width)
    a, b = (
        laid_out(shape, layout, np.float32, 3)
        for shape, layout in zip(((m, k), (k, n)), layouts, strict=True)
    )
    guarded = np.full((m, n + 5), 9, np.float32)
    check(multiply(a, b, guarded[:, :n], target), a, b)
    assert (guarded[:, n:] == 9).all()


@pytest.mark.parametrize("worth", [np.inf, 0.0])
@pytest.mark.parametrize("layouts", ("NN", "NT", "NS"))
def test_operands_that_are_too_far_apart_for_a_copy_are_read_where_they_lie(
    layouts: str, worth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies count elements in 32 bits. What isn't copied has columns that aren't neighbours."""
    monkeypatch.setattr(blocked, "MOST_OFFSET", 1000)
    monkeypatch.setattr(costs, "WORTH_SECONDS", worth)
    shapes = zip(((70, 90), (90, 130)), layouts, strict=True)
    a, b = (laid_out(shape, layout, np.float32, 3) for shape, layout in shapes)
    guarded = np.full((70, 135), 9, np.float32)
    check(multiply(a, b, guarded[:, :130], host_target()), a, b)
    assert (guarded[:, 130:] == 9).all()


@pytest.mark.parametrize("view", ("T", "S"))
def test_results_go_to_any_view(view: str) -> None:
    a, b = random((21, 30)), random((30, 35), seed=1)
    for right in (b, np.ascontiguousarray(b.T).T):
        c = laid_out((21, 35), view, np.float32, 2)
        check(multiply(a, right, c, host_target()), a, right)


@pytest.mark.parametrize("width", (16, 32, 64))
@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.int64))
@pytest.mark.parametrize("rows, columns", [(2, 6), (3, 50), (5, 7), (8, 41), (13, 19), (16, 33)])
def test_few_rows_are_multiplied_by_dot_products(
    rows: int, columns: int, dtype: Any, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in parts for threads, with the same bits; nothing is copied."""
    target, inner = host_target().with_vector_bytes(width), 16 * costs.DOT_LENGTH + 5
    a, b = random((rows, inner), dtype), random((columns, inner), dtype, seed=1).T
    spec = Contraction(rows, columns, inner, "float", (inner, 1), (1, inner))
    chosen = plan(spec, target)
    assert chosen.dots and not chosen.copies
    found = []
    for worth in (np.inf, 0.0):
        monkeypatch.setattr(costs, "WORTH_SECONDS", worth)
        guarded = np.full((rows, columns + 5), 9, dtype)
        found.append(multiply(a, b, guarded[:, :columns], target))
        check(found[-1], a, b)
        assert (guarded[:, columns:] == 9).all()
    np.testing.assert_array_equal(*found)


def test_an_open_number_of_rows_may_be_any() -> None:
    """Dot products of many rows take three times as long as tiles of a copy."""
    weight = lucid.tensor(random((64, 512)))
    step = lucid.compile(lambda x: x @ weight.T)
    for rows in (8, 9, 10, 300):
        x = random((rows, 512), seed=rows)
        check(step(lucid.tensor(x)).numpy(), x, weight.numpy().T)
        assert (" dots" in str(step.stages["kernels"])) == (rows == 8)


def test_batches_broadcast() -> None:
    a, b = random((3, 2, 9, 11)), random((11, 21), seed=1)
    shared = np.broadcast_to(b, (3, 2, 11, 21))
    check(multiply(a, shared, np.zeros((3, 2, 9, 21), np.float32), host_target()), a, shared)
    own = random((3, 2, 21, 11), seed=2).swapaxes(2, 3)
    check(multiply(a, own, np.zeros((3, 2, 9, 21), np.float32), host_target()), a, own)


@pytest.mark.parametrize("size", ((50, 70, 33), (150, 300, 400), (11, 1, 40), (9, 1001, 192)))
def test_parts_give_the_same_bits(
    size: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    m, n, k = size
    a, b = random((m, k)), random((k, n), seed=1)
    found = []
    for worth in (np.inf, 0.0):
        monkeypatch.setattr(costs, "WORTH_SECONDS", worth)
        found.append(multiply(a, b, np.zeros((m, n), np.float32), host_target()).tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("worth", [np.inf, 0.0])
@pytest.mark.parametrize("op", [ops.mul, ops.exp])
def test_an_epilogue_knows_rows_and_columns(
    op: Any, worth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short one stands behind each accumulator, a long one in a function of its own."""
    monkeypatch.setattr(costs, "WORTH_SECONDS", worth)
    m, n, k = 19, 37, 23
    a, b, c = random((m, k)), random((k, n), seed=1), np.zeros((2, m, n), np.float32)
    row, column = random((m, 1), seed=2), random((1, n), seed=3)
    graph = Graph("product")
    x, y, z, r, s = (input_like(graph, array) for array in (a, b, c[0], row, column))
    product = ops.matmul(x, y) * r + s
    graph.writes = [(z, op(product, product) if op is ops.mul else op(product * 0.01))]
    compile_graph(graph).call([a, b, c[0], row, column])
    expected = (a @ b) * row + column
    expected = expected * expected if op is ops.mul else np.exp(expected * 0.01)
    np.testing.assert_allclose(c[0], expected, rtol=1e-4, atol=1e-4)
    assert not c[1].any()


@pytest.mark.parametrize("rows", (5, 300))
@pytest.mark.parametrize("layouts", ("NN", "TN", "NT", "SS"))
def test_an_empty_sum_is_zero(layouts: str, rows: int) -> None:
    """However many rows there are, for which operands would be packed."""
    shapes = (rows, 0), (0, 20)
    a, b = (laid_out(x, at, np.float32, 1) for x, at in zip(shapes, layouts, strict=True))
    c = np.ones((rows, 20), np.float32)
    multiply(a, b, c, host_target())
    assert not c.any()


def test_the_inner_loop_is_multiply_adds_without_calls() -> None:
    target = host_target()
    graph = Graph("product")
    x, y = (
        graph.add_input(TensorType(dtype_named("f32"), shape)) for shape in ((32, 64), (64, 64))
    )
    graph.outputs = [ops.matmul(x, y)]
    text = compile_graph(graph).llvm
    assembly = jit.compile_assembly(text, target)
    height = plan(Contraction(32, 64, 64, "float", (64, 1), (64, 1)), target).height
    assert assembly.count("fmadd231ps") + assembly.count("fmla") >= height
    kernel = re.search(r"^define void @k0\(.*?^}$", text, re.M | re.S)
    assert kernel is not None
    assert all(name.startswith("llvm.") for name in re.findall(r"call [^@]*@([\w.]+)", kernel[0]))


@pytest.mark.parametrize("rows, columns", [(4, 1024), (9, 1001), (48, 1030)])
def test_a_large_matrix_is_read_once_by_few_rows(rows: int, columns: int) -> None:
    a, b = random((rows, 192)), random((192, columns), seed=1)
    check(multiply(a, b, np.zeros((rows, columns), np.float32), host_target()), a, b)
    bias, third = random((columns,), seed=2), random((3, rows, 192), seed=3)
    step = lucid.compile(lambda x, y, bias: lucid.relu(x @ y + bias))
    for x in (a, third):
        found = step(*map(lucid.tensor, (x, b, bias))).numpy()
        np.testing.assert_allclose(found, np.maximum(x @ b + bias, 0), rtol=1e-3, atol=1e-3)
    step(*map(lucid.tensor, (a, b, bias)))
    assert "contract in blocks of 64 of k0" in step.stages["kernels"]


def test_the_sums_of_a_tall_tile_stay_in_registers() -> None:
    """A loop with more multiply-adds than registers keeps some of its sums in memory."""
    target = host_target().with_vector_bytes(32)
    graph = Graph("product")
    x, y = (graph.add_input(TensorType(dtype_named("f32"), shape)) for shape in ((24, 64), (64, 8)))
    graph.outputs = [ops.matmul(x, y)]
    height = plan(Contraction(24, 8, 64, "float", (64, 1), (8, 1)), target).height
    text = compile_graph(graph, target=target).llvm
    assert height <= text.count("fma.v8f32(<8 x float> %") <= target.registers


def test_blocks_of_a_product_have_as_many_rows_as_have_their_pages_at_hand() -> None:
    a, b = random((100, 1024)), random((100, 1024), seed=1)

    def rows(*beside: Array) -> int:
        step = lucid.compile(lambda x, y, *more: sum(more, x.T @ y))
        found = step(*map(lucid.tensor, (a, b, *beside))).numpy()
        np.testing.assert_allclose(found, sum(beside, a.T @ b), rtol=1e-4, atol=1e-4)
        block = re.search(r"in blocks of .*, (\d+) rows", step.stages["kernels"])
        assert block is not None
        return int(block[1])

    beside = [random((1024, 1024), seed=n) for n in (2, 3, 4)]
    pages = costs.PART_PAGES
    assert pages * 3 // 4 < rows() <= pages  # of a page each
    assert pages // 8 < rows(*beside) <= pages // 4


def test_equal_products_that_copy_their_operands_share_code_and_no_memory() -> None:
    graph = Graph("products")
    operands = [input_like(graph, random((60, 64))) for _ in range(4)]
    x, y, z, w = operands
    graph.outputs = [ops.matmul(a, ops.transpose(b, perm=(1, 0))) for a, b in ((x, y), (z, w))]
    calls = make_program(graph, [(64, 1)] * 4, host_target()).calls
    first, second = (call for call in calls if "in blocks" in str(call.kernel))
    assert str(first.kernel) == str(second.kernel)
    assert first.args[-1].size == second.args[-1].size > 64
