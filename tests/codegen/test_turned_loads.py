"""Maps that read rows where they write columns: blocks transposed in registers, and their edges."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

import lucid
from lucid.codegen.emit.turned import TurnedEmitter
from lucid.codegen.kernels.loop import LoopKernel
from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.interpret import interpret
from lucid.ir.types import DType, TensorType, bool_, f32, f64, i32, i64, u8
from lucid.runtime import compile_graph

SIZES = (16, 31, 32, 64, 65, 100, 128, 200, 257)


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many loads of each kernel that was made are turned, where any are."""
    found: list[int] = []
    partition = LoopKernel.partition

    def noted(kernel: LoopKernel, *args: object) -> object:
        found.extend([len(kernel.body.turned())] if kernel.body.turned() else [])
        return partition(kernel, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(LoopKernel, "partition", noted)
    return found


def array_of(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rng.integers(-40, 40, shape), dtype.numpy)


@pytest.mark.parametrize("dtype", [f32, f64, i32, i64])
@pytest.mark.parametrize("seed", range(6))
def test_all_elements_are_those_of_the_transposed_array(
    dtype: DType, seed: int, turned: list[int]
) -> None:
    """Beside others, in sizes that fill vectors and blocks or don't; and what each row computes."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(n) for n in rng.choice(SIZES, 2))
    graph = Graph()
    x, y, z, row, column = (
        graph.add_input(TensorType(dtype, shape))
        for shape in ((rows, columns), (rows, columns), (columns, rows), (columns, 1), (rows,))
    )
    total = ops.transpose(x, perm=(1, 0)) * z + ops.transpose(y, perm=(1, 0)) * (row * row)
    graph.outputs = [total + column, ops.transpose(x, perm=(1, 0))]
    arrays = [array_of(rng, dtype, entry.value.shape) for entry in graph.inputs]
    expected, _ = interpret(graph, arrays)
    for ours, theirs in zip(compile_graph(graph).call(arrays), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert turned


@pytest.mark.parametrize("dtype", [bool_, u8, f32])
@pytest.mark.parametrize("perm", list(permutations(range(3))))
def test_any_axes_may_change_places(perm: tuple[int, int, int], dtype: DType) -> None:
    rng = np.random.default_rng(0)
    graph = Graph()
    x = graph.add_input(TensorType(dtype, (35, 80, 48)))
    graph.outputs = [ops.transpose(x, perm=perm)]
    array = rng.integers(0, 2, (35, 80, 48)).astype(dtype.numpy)
    (found,) = compile_graph(graph).call([array])
    np.testing.assert_array_equal(found, array.transpose(perm))


@pytest.mark.parametrize("shape", [(2048, 512), (515, 2050), (64, 16400), (16401, 33)])
def test_threads_share_rows_or_columns(shape: tuple[int, int], turned: list[int]) -> None:
    threads = lucid.get_num_threads()
    try:
        for count in (1, 2, 3):
            lucid.set_num_threads(count)
            graph = Graph()
            x = graph.add_input(TensorType(f32, shape))
            graph.outputs = [ops.transpose(x, perm=(1, 0)) * 2.0]
            array = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
            (found,) = compile_graph(graph).call([array])
            np.testing.assert_array_equal(found, array.T * 2)
    finally:
        lucid.set_num_threads(threads)
    assert turned


def test_sizes_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """One machine code for matrices of all sizes, some of them smaller than a vector."""
    made: list[object] = []
    run = TurnedEmitter.run
    monkeypatch.setattr(TurnedEmitter, "run", lambda self: made.append(self) or run(self))

    @lucid.compile
    def turn(x: lucid.Tensor) -> lucid.Tensor:
        return x.mT + 1

    for size in (160, 176, 33, 50, 7, 64, 15, 16, 200, 1, 129):
        x = lucid.randn(3, size, size + 3)
        np.testing.assert_array_equal(turn(x).numpy(), x.numpy().swapaxes(1, 2) + 1)
    assert made


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 100])
@pytest.mark.parametrize("dtype", [f32, f64, i32, u8, bool_])
def test_lanes_may_go_backwards(dtype: DType, size: int) -> None:
    """As what is read is reversed, and what is written; no element outside of it is touched."""
    rng = np.random.default_rng(size)
    graph = Graph()
    x = graph.add_input(TensorType(dtype, (3, size)))
    back = ops.flip(x, 1)
    larger = ops.maximum(x, ops.slice_axis(back, 1, 0, 1))
    whole = {"starts": (0, size - 1), "stops": (3, -1), "steps": (1, -1)}
    graph.outputs = [
        ops.maximum(back, x), ops.flip(larger, 1), ops.update_slice(x, larger, **whole)
    ]  # fmt: skip
    arrays = [array_of(rng, dtype, (3, size))]
    expected, _ = interpret(graph, arrays)
    executable = compile_graph(graph)
    for ours, theirs in zip(executable.call(arrays), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if dtype is f32 and size >= 15:
        assert "gather" not in executable.llvm
