"""Contractions against NumPy in double precision: sizes, strides, tails, batches, epilogues."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

from lucid.codegen.contraction.gemm import (
    BatchAxis,
    Contraction,
    Epilogue,
    Position,
    emit_gemm,
    plan,
    row_tile,
    scratch_bytes,
)
from lucid.codegen.llvm import jit
from lucid.codegen.llvm.builder import FunctionBuilder, Module, Val
from lucid.codegen.llvm.target import Target, host_target

Array = np.ndarray[Any, Any]
ELEMENTS = {"float32": "float", "float64": "double", "int32": "i32", "int64": "i64"}


def aligned(size: int) -> Array:
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def strides_of(array: Array) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


def multiply(
    a: Array,
    b: Array,
    c: Array,
    target: Target,
    *,
    epilogue: Epilogue | None = None,
    rows: list[tuple[int, int]] | None = None,
) -> Array:
    """c = a @ b by generated code; `c` may be any view, and batch axes come first."""
    sa, sb, sc = strides_of(a), strides_of(b), strides_of(c)
    batch = tuple(
        BatchAxis(*axis) for axis in zip(c.shape, sa[:-2], sb[:-2], sc[:-2], strict=False)
    )
    spec = Contraction(
        m=c.shape[-2],
        n=c.shape[-1],
        k=a.shape[-1],
        element=ELEMENTS[c.dtype.name],
        a_strides=(sa[-2], sa[-1]),
        b_strides=(sb[-2], sb[-1]),
        c_strides=(sc[-2], sc[-1]),
        batch=batch[: c.ndim - 2],
    )
    module = Module(target)
    parameters = [
        ("ptr", "a"),
        ("ptr", "b"),
        ("ptr", "c"),
        ("ptr", "w"),
        ("i64", "l"),
        ("i64", "h"),
    ]
    with FunctionBuilder(module, "kernel", parameters) as builder:
        pa, pb, pc, scratch, low, high = builder.args
        row_range = None if rows is None else (low, high)
        emit_gemm(builder, spec, pa, pb, pc, scratch, epilogue, row_range)
        builder.ret()
    library = jit.load(module.text(), target, ["kernel"])
    signature = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 2
    call = ctypes.CFUNCTYPE(None, *signature)(library.addresses["kernel"])
    size = max(scratch_bytes(s, target) for s in (spec, spec.swapped()))
    memory = aligned(size + 64)
    memory[size:] = 77
    for first, last in rows or [(0, c.shape[-2])]:
        call(a.ctypes.data, b.ctypes.data, c.ctypes.data, memory.ctypes.data, first, last)
    assert (memory[size:] == 77).all()
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


@pytest.mark.parametrize("view", ("T", "S"))
def test_results_go_to_any_view(view: str) -> None:
    a, b = random((21, 30)), random((30, 35), seed=1)
    for right in (b, np.ascontiguousarray(b.T).T):
        c = laid_out((21, 35), view, np.float32, 2)
        check(multiply(a, right, c, host_target()), a, right)


def test_batches_broadcast() -> None:
    a, b = random((3, 2, 9, 11)), random((11, 21), seed=1)
    shared = np.broadcast_to(b, (3, 2, 11, 21))
    check(multiply(a, shared, np.zeros((3, 2, 9, 21), np.float32), host_target()), a, shared)
    own = random((3, 2, 21, 11), seed=2).swapaxes(2, 3)
    check(multiply(a, own, np.zeros((3, 2, 9, 21), np.float32), host_target()), a, own)


@pytest.mark.parametrize("size", ((50, 70, 33), (150, 300, 400), (11, 1, 40)))
def test_split_rows_give_the_same_bits(size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = random((m, k)), random((k, n), seed=1)
    target = host_target()
    whole = multiply(a, b, np.zeros((m, n), np.float32), target)
    spec = Contraction(m, n, k, "float", (k, 1), (n, 1), (n, 1))
    cut = row_tile(spec, target) * 2
    cut = cut if cut < m else m
    split = multiply(a, b, np.zeros((m, n), np.float32), target, rows=[(cut, m), (0, cut)])
    assert whole.tobytes() == split.tobytes()


def test_an_epilogue_sees_rows_columns_and_masks() -> None:
    m, n, k = 19, 37, 23
    a, b, c = random((m, k)), random((k, n), seed=1), np.zeros((2, m, n), np.float32)
    base = c.ctypes.data

    def scaled(builder: FunctionBuilder, value: Val, place: Position) -> None:
        factor = builder.cast(
            "sitofp", builder.add(builder.mul(place.row, 100), place.col), "float"
        )
        value = builder.mul(value, builder.splat(factor, value.lanes))
        address = builder.emit("ptr", f"inttoptr i64 {base} to ptr")
        pointer = builder.at("float", address, place.offset)
        if place.mask is None:
            builder.store(value, pointer)
        else:
            builder.masked_store(value, pointer, place.mask)

    target = host_target()
    multiply(a, b, c[0], target, epilogue=scaled)
    lanes = target.lanes("float")
    columns = np.arange(n) // lanes * lanes
    factors = np.arange(m)[:, None] * 100 + columns
    np.testing.assert_allclose(c[0], (a @ b) * factors, rtol=1e-4, atol=1e-2)
    assert not c[1].any()


def test_an_empty_sum_is_zero() -> None:
    c = np.ones((5, 20), np.float32)
    multiply(np.zeros((5, 0), np.float32), np.zeros((0, 20), np.float32), c, host_target())
    assert not c.any()


def test_the_inner_loop_is_multiply_adds_without_calls() -> None:
    target = host_target()
    module = Module(target)
    spec = Contraction(32, 64, 64, "float", (64, 1), (64, 1), (64, 1))
    with FunctionBuilder(module, "kernel", [("ptr", "a"), ("ptr", "b"), ("ptr", "c")]) as b:
        emit_gemm(b, spec, b.args[0], b.args[1], b.args[2])
        b.ret()
    assembly = jit.compile_assembly(module.text(), target)
    assert assembly.count("fmadd231ps") + assembly.count("fmla") >= plan(spec, target).height
    assert "call" not in assembly
