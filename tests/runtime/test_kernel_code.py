"""Programs that share the native functions of equal kernels."""

from __future__ import annotations

import gc
import re

import numpy as np
import pytest

import lucid
from lucid.codegen import costs
from lucid.codegen.llvm.target import host_target
from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.types import TensorType, f32
from lucid.runtime import Executable, ahead, compile_graph, executable, kernel_code

SIZE = 40_000


def graph_of(*tail: str) -> Graph:
    """The sine of a vector, whose kernel all of them have, and further results of other sizes."""
    graph = Graph()
    x = graph.add_input(TensorType(f32, (SIZE,)))
    graph.outputs = [ops.sin(x)]
    for number, name in enumerate(tail):
        y = graph.add_input(TensorType(f32, (number + 5,)))
        graph.outputs.append(getattr(ops, name)(y))
    return graph


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The LLVM IR of all that is compiled, in a process that has no kernels yet."""
    found: list[str] = []
    compiled = executable.compiled

    def noted(modules, *args, **kwargs):  # type: ignore[no-untyped-def]
        modules(found.append)
        return compiled(modules, *args, **kwargs)

    monkeypatch.setattr(executable, "compiled", noted)
    code = kernel_code.KernelCode()
    for module in (executable, ahead):
        monkeypatch.setattr(module, "kernel_code", code)
    return found


def defined(text: str) -> int:
    return len(re.findall(r"^define void @k\d+\(", text, re.M))


def is_right(program: Executable, graph: Graph, rng: np.random.Generator) -> bool:
    arrays = [rng.random(entry.value.shape, np.float32) for entry in graph.inputs]
    names = [value.producer.op.name for value in graph.outputs if value.producer is not None]
    return all(
        np.allclose(result, getattr(np, name)(array), rtol=1e-5)
        for result, name, array in zip(program.call(arrays), names, arrays, strict=True)
    )


@pytest.mark.parametrize("worth", [None, 0.0])
def test_a_kernel_that_is_loaded_is_not_compiled_again(
    texts: list[str], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, worth: float | None
) -> None:
    """Threads share the work of it, or not."""
    if worth is not None:
        monkeypatch.setattr(costs, "WORTH_SECONDS", worth)
    graphs = [graph_of("exp"), graph_of("exp", "cos"), graph_of("exp", "cos")]
    programs = [compile_graph(graph) for graph in graphs]
    assert [defined(text) for text in texts] == [2, 1, 0]
    for program, graph in zip(programs, graphs, strict=True):
        assert is_right(program, graph, rng)


@pytest.mark.usefixtures("few_objects")
def test_code_stays_as_long_as_a_program_calls_it(
    texts: list[str], rng: np.random.Generator
) -> None:
    first = compile_graph(graph_of("exp"))
    graph = graph_of("cos")
    second = compile_graph(graph)
    del first
    gc.collect()
    assert is_right(second, graph, rng)
    third = compile_graph(graph)
    del second
    gc.collect()
    assert is_right(third, graph, rng)
    del third
    gc.collect()
    compile_graph(graph)
    assert [defined(text) for text in texts] == [2, 1, 0, 2]


def test_code_for_other_vectors_is_other_code(texts: list[str]) -> None:
    kept = [
        compile_graph(graph_of(), target=host_target().with_vector_bytes(width))
        for width in (16, 32, 16)
    ]
    assert [defined(text) for text in texts] == [1, 1, 0]
    assert len(kept) == 3


def test_a_profile_times_the_functions_of_the_step() -> None:
    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return lucid.sin(x).sum()

    x = lucid.ones(1000)
    expected = step(x)
    with step._latest_program().executable.timed() as timed:
        assert timed._libraries == [step._latest_program().executable._library]
    assert step(x) == expected
