"""Random programs like training steps: fused, in place, shared by threads, the result is right."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from random_programs import numbers, programs

from lucid.codegen import costs
from lucid.codegen.llvm.target import host_target
from lucid.ir.graph import Graph
from lucid.ir.interpret import interpret
from lucid.runtime import compile_graph
from lucid.runtime.threads import pool, set_num_threads


@pytest.fixture(autouse=True, scope="module")
def as_before() -> Iterator[None]:
    count = pool.num_threads
    yield
    set_num_threads(count)


@hypothesis.settings(max_examples=120)
@hypothesis.given(
    programs(), st.integers(0, 2**32), st.sampled_from([64, 32, 16]), st.booleans(), st.booleans()
)
def test_a_random_step_computes_what_the_interpreter_does(
    graph: Graph, seed: int, width: int, fuse: bool, share: bool
) -> None:
    hypothesis.note(str(graph))
    arrays = numbers(graph, seed)
    outputs, written = interpret(graph, arrays)
    new = {cell: value for (cell, _), value in zip(graph.writes, written, strict=True)}
    cells = [new.get(entry.value, old) for entry, old in zip(graph.inputs, arrays, strict=True)]
    target = host_target()
    target = target.with_vector_bytes(min(width, target.vector_bytes))
    with pytest.MonkeyPatch.context() as patch:
        if share:
            patch.setattr(costs, "WORTH_SECONDS", 0.0)
        executable = compile_graph(graph, target=target, fuse=fuse)
    bits = []
    for count in (1, 2) if share else (1,):
        set_num_threads(count)
        given = [np.array(array) for array in arrays]
        found = [*executable.call(given), *given]
        for ours, theirs in zip(found, [*outputs, *cells], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)
        bits.append([array.tobytes() for array in found])
    assert bits[0] == bits[-1], "two threads give other bits than one"
