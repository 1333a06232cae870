"""Random programs like training steps: fused, in place, shared by threads, the result is right."""

from __future__ import annotations

import math
from collections.abc import Iterator

import hypothesis
import numpy as np
import pytest
from fuzzing import many
from hypothesis import strategies as st
from random_programs import numbers, programs

from lucid.codegen import costs
from lucid.codegen.llvm.target import host_target
from lucid.ir.graph import Graph
from lucid.ir.interpret import interpret
from lucid.ir.text import parse
from lucid.runtime import compile_graph
from lucid.runtime.threads import pool, set_num_threads


@pytest.fixture(autouse=True, scope="module")
def as_before() -> Iterator[None]:
    count = pool.num_threads
    yield
    set_num_threads(count)


@hypothesis.settings(max_examples=many(60))
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


def test_an_output_that_is_read_where_it_is_assembled_is_written_before() -> None:
    """A pad by nothing, which no pass has dropped, is both."""
    text = """graph program(%x: f32[2]) {
      %sum = sum %x {axes = [0]} : f32[]
      %one = reshape %sum {shape = [1]} : f32[1]
      %c = constant 1.0 : f32[]
      %pad = pad %one, %c {low = [0], high = [0]} : f32[1]
      %tanh = tanh %pad : f32[1]
      return %pad, %tanh
    }"""
    for fuse in (False, True):
        executable = compile_graph(parse(text), fuse=fuse)
        pad, tanh = executable.call([np.array([0.25, 0.5], np.float32)])
        assert pad.tolist() == [0.75]
        assert tanh.tolist() == [pytest.approx(math.tanh(0.75))]
