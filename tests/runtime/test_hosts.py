"""Calls of Python from a native step."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.interpret import interpret
from lucid.ir.passes import optimize
from lucid.ir.types import TensorType, f32, i64
from lucid.runtime import Executable, compile_graph

MATRIX = TensorType(f32, (4, 8))


def step_of(**hosts: Any) -> Graph:
    """Writes its input, after two calls with a transposed operand and one without results."""
    graph = Graph("step")
    x = graph.add_input(MATRIX, "state", "x")
    y = ops.exp(x)
    found = graph.append_host(
        "Mix", [x, ops.transpose(y, perm=(1, 0))], [TensorType(f32, (8, 4)), TensorType(i64, (3,))]
    )
    graph.append_host("Log", [found.results[0]], [])
    z = ops.add(found.results[0], found.results[0])
    graph.outputs = [z, *found.results]
    graph.writes = [(x, ops.transpose(z, perm=(1, 0)))]
    graph.hosts = {"Mix": mix, "Log": lambda frame, operands: [], **hosts}
    return graph


def mix(frame: Any, operands: Any) -> list[np.ndarray]:
    return [operands[0].T * 10 + operands[1], np.arange(3)]


def compiled(graph: Graph) -> Executable:
    optimize(graph)
    return compile_graph(graph)


def test_results_and_writes_are_those_of_the_interpreter(rng: np.random.Generator) -> None:
    graph, x = step_of(), rng.normal(size=(4, 8)).astype(np.float32)
    outputs, (written,) = interpret(graph, [x])
    for found, expected in zip(compiled(graph).call([x]), outputs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(x, written, rtol=1e-5)


@pytest.mark.parametrize("error", [KeyError, StopIteration, GeneratorExit])
def test_an_exception_leaves_the_inputs_alone(
    error: type[BaseException], rng: np.random.Generator
) -> None:
    def fail(frame: Any, operands: Any) -> list[np.ndarray]:
        raise error("no")

    x = rng.normal(size=(4, 8)).astype(np.float32)
    before = x.copy()
    executable = compiled(step_of(Log=fail))
    for _ in range(2):
        with pytest.raises(error, match="no"):
            executable.call([x])
    np.testing.assert_array_equal(x, before)


def test_a_result_of_another_number_or_shape_is_an_error(rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, 8)).astype(np.float32)
    with pytest.raises(ValueError, match="shorter"):
        compiled(step_of(Mix=lambda frame, operands: [operands[1]])).call([x])
    with pytest.raises(ValueError, match="broadcast"):
        compiled(step_of(Mix=lambda frame, operands: [operands[0], np.arange(3)])).call([x])


def test_each_running_step_has_a_frame_of_its_own() -> None:
    barrier = threading.Barrier(2, timeout=30)

    def mark(frame: Any, operands: Any) -> list[np.ndarray]:
        assert not frame
        frame["mine"] = float(operands[0][0, 0])
        barrier.wait()
        return mix(frame, operands)

    def look(frame: Any, operands: Any) -> list[np.ndarray]:
        found.append((frame["mine"], float(operands[0][0, 0])))
        return []

    found: list[tuple[float, float]] = []
    executable = compiled(step_of(Mix=mark, Log=look))
    arrays = [np.full((4, 8), value, np.float32) for value in (-50.0, -60.0)]
    threads = [threading.Thread(target=executable.call, args=([array],)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(-60.0, -600.0), (-50.0, -500.0)]


def test_a_step_may_call_itself(rng: np.random.Generator) -> None:
    depth = []

    def again(frame: Any, operands: Any) -> list[np.ndarray]:
        if len(depth) < 3:
            depth.append(None)
            executable.call([operands[0].copy()])
        return mix(frame, operands)

    executable = compiled(step_of(Mix=again))
    x = rng.normal(size=(4, 8)).astype(np.float32)
    expected, _ = interpret(step_of(), [x])
    np.testing.assert_allclose(executable.call([x])[0], expected[0], rtol=1e-5)
    assert len(depth) == 3
