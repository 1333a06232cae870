"""What makes kernels fast, read from the assembler listing: vectors, and no calls, in inner loops.

What stands in the listing of other processors looks different, so these tests are for x86-64.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from lucid.codegen.llvm.jit import compile_assembly
from lucid.codegen.llvm.target import host_target
from lucid.ir import ops
from lucid.ir.graph import Graph, Value
from lucid.ir.types import TensorType, f32
from lucid.runtime import compile_graph

Build = Callable[..., Sequence[Value]]

x86_with_fma = pytest.mark.skipif(
    not (host_target().triple.startswith("x86_64") and host_target().has_fma),
    reason="another processor",
)
WIDE = "zmm" if host_target().vector_bytes == 64 else "ymm"


def inner_loops(build: Build, *shapes: tuple[int, ...]) -> list[list[str]]:
    """The instructions of every loop that contains no other loop."""
    graph = Graph()
    graph.outputs = list(build(*(graph.add_input(TensorType(f32, shape)) for shape in shapes)))
    listing = compile_assembly(compile_graph(graph).llvm, host_target())
    lines = [line.split("#")[0].strip() for line in listing.splitlines()]
    labels = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
    loops = []
    for number, line in enumerate(lines):
        jump = re.fullmatch(r"j\w+\s+(\.L\w+)", line)
        if jump and labels.get(jump[1], number) < number:
            loops.append((labels[jump[1]], number))
    inner = [
        (first, last)
        for first, last in loops
        if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in loops)
    ]
    return [lines[first : last + 1] for first, last in inner]


def softmax(x: Value) -> Value:
    e = ops.exp(ops.sub(x, ops.reshape(ops.amax(x, axes=(1,)), shape=(x.shape[0], 1))))
    return ops.div(e, ops.reshape(ops.sum(e, axes=(1,)), shape=(x.shape[0], 1)))


KERNELS: dict[str, tuple[Build, tuple[tuple[int, ...], ...], str]] = {
    "a map of functions": (
        lambda x: [ops.tanh(x) * ops.sigmoid(x) + ops.exp(x)], ((4096,),), "vfmadd",
    ),
    "a sum": (lambda x: [ops.sum(x, axes=(0,))], ((100_000,),), "vadd"),
    "softmax of rows": (lambda x: [softmax(x)], ((50, 1000),), "vfmadd"),
    "columns": (lambda x: [ops.sum(x * x, axes=(0,))], ((300, 640),), "vadd"),
    "a product": (lambda a, b: [ops.matmul(a, b)], ((64, 128), (128, 128)), "vfmadd"),
    "a shared product": (lambda a, b: [ops.matmul(a, b)], ((300, 500), (500, 640)), "vfmadd"),
    "a product of a transposed matrix": (
        lambda a, b: [ops.matmul(a, ops.transpose(b, perm=(1, 0)))], ((64, 128), (128, 128)),
        "vfmadd",
    ),
}  # fmt: skip


@x86_with_fma
@pytest.mark.parametrize("name", KERNELS)
def test_inner_loops_have_wide_vectors_and_no_calls(name: str) -> None:
    build, shapes, instruction = KERNELS[name]
    loops = inner_loops(build, *shapes)
    assert any(
        line.startswith(instruction) and WIDE in line and "ss" not in line.split()[0]
        for loop in loops
        for line in loop
    )
    calls = [line for loop in loops for line in loop if line.startswith("call")]
    assert [line for line in calls if "transpose" not in line] == []
