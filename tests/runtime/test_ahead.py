"""Kernels are compiled while others are still planned."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lucid.codegen import costs
from lucid.codegen.llvm.jit import Compilation
from lucid.codegen.lower import schedule
from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.interpret import interpret
from lucid.ir.types import TensorType, f32
from lucid.runtime import compile_graph, executable
from lucid.runtime.kernel_code import KernelCode

WIDTHS = [3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25]


def chain(factor: float) -> tuple[Graph, list[np.ndarray]]:
    """A product after the other, each of another size, and arrays for it."""
    graph, rng = Graph(), np.random.default_rng(0)
    x = graph.add_input(TensorType(f32, (4, WIDTHS[0])))
    for rows, columns in itertools.pairwise(WIDTHS):
        w = graph.add_input(TensorType(f32, (rows, columns)))
        x = ops.tanh(ops.matmul(x, w)) * factor
    graph.outputs = [x]
    shapes = [entry.value.shape for entry in graph.inputs]
    return graph, [rng.normal(size=shape).astype("f4") for shape in shapes]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens in turn: a part is handed to LLVM, or all is planned."""
    found: list[str] = []

    def noted(owner: Any, name: str, event: str) -> None:
        plain: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = plain(*args, **kwargs)
            found.append(event)
            return result

        monkeypatch.setattr(owner, name, call)

    monkeypatch.setenv("LUCID_CACHE", "0")
    monkeypatch.setattr(costs, "PART_CHARACTERS", 4000)
    noted(Compilation, "take", "part")
    noted(executable, "make_program", "planned")
    return found


def test_llvm_begins_before_all_is_planned(events: list[str]) -> None:
    graph, arrays = chain(1.5)
    (result,) = compile_graph(graph).call(arrays)
    (expected,), _ = interpret(graph, arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-3)
    assert events[0] == "part"
    assert events[-1] == "part"
    assert events.count("planned") == 1


def test_it_waits_where_the_code_is_on_disk(
    events: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUCID_CACHE", "1")
    monkeypatch.setenv("LUCID_CACHE_DIR", str(tmp_path))
    graph, arrays = chain(2.5)
    first = compile_graph(graph).call(arrays)[0].tobytes()
    events.clear()
    monkeypatch.setattr(KernelCode, "known", lambda self, keys: {})
    again = compile_graph(graph)
    assert again.call(arrays)[0].tobytes() == first
    assert events == ["planned"]
    assert not again.was_compiled


def test_a_plan_that_fails_leaves_nothing_behind(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread, and no lock that others would wait for."""
    graph, arrays = chain(3.5)
    before = threading.active_count()
    with monkeypatch.context() as patch:
        patch.setattr(schedule, "lifetimes", lambda calls: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            compile_graph(graph)
    assert "part" in events
    assert threading.active_count() == before
    results: list[np.ndarray] = []
    other = threading.Thread(target=lambda: results.extend(compile_graph(graph).call(arrays)))
    other.start()
    other.join(60)
    assert len(results) == 1
