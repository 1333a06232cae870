"""Random programs like training steps: fused and in place, the result is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

from lucid.codegen.target import host_target
from lucid.ir import ops
from lucid.ir.graph import Graph, Value
from lucid.ir.interpret import interpret
from lucid.ir.types import TensorType, f32, i64
from lucid.runtime import compile_graph

Draw = Callable[[st.SearchStrategy[Any]], Any]
SIZES = (1, 3, 4, 6, 17, 40)


class Program:
    """A graph that is being drawn; all numbers stay small and all functions smooth."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.graph = Graph("program")
        self.rows, self.columns = draw(st.sampled_from(SIZES)), draw(st.sampled_from(SIZES))
        shapes = [(self.rows, self.columns), (self.columns,), (self.rows, 1), ()]
        self.values = [self.graph.add_input(TensorType(f32, shape), "state") for shape in shapes]
        self.values += [self.graph.add_input(TensorType(f32, shapes[0]), "state")]
        self.labels = self.graph.add_input(TensorType(i64, (self.rows, 1)))

    def pick(self, *shapes: tuple[int, ...]) -> Value | None:
        fitting = [v for v in self.values if not shapes or v.shape in shapes]
        return self.draw(st.sampled_from(fitting)) if fitting else None

    def unary(self) -> Value | None:
        op = self.draw(st.sampled_from([ops.tanh, ops.sigmoid, ops.neg, ops.sin]))
        x = self.pick()
        assert x is not None
        return op(x)

    def binary(self) -> Value | None:
        x, y = self.pick(), self.pick()
        assert x is not None and y is not None
        try:
            shape = np.broadcast_shapes(x.shape, y.shape)
        except ValueError:
            return None
        if np.prod(shape) > 400:
            return None
        op = self.draw(st.sampled_from([ops.add, ops.sub, ops.mul, ops.maximum]))
        return ops.tanh(op(x, y)) if op is ops.mul else op(x, y) * 0.5

    def reduction(self) -> Value | None:
        x = self.pick()
        assert x is not None
        axes = self.draw(st.sets(st.sampled_from(range(len(x.shape))))) if x.shape else set()
        op = self.draw(st.sampled_from([ops.sum, ops.amax]))
        y = op(x, axes=tuple(sorted(axes)))
        y = ops.tanh(y)
        kept = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
        return ops.reshape(y, shape=kept) if self.draw(st.booleans()) else y

    def softmax(self) -> Value | None:
        x = self.pick((self.rows, self.columns))
        assert x is not None
        axis = self.draw(st.sampled_from([0, 1]))
        kept = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
        e = ops.exp(ops.sub(x, ops.reshape(ops.amax(x, axes=(axis,)), shape=kept)))
        return ops.div(e, ops.reshape(ops.sum(e, axes=(axis,)), shape=kept))

    def matmul(self) -> Value | None:
        x, y = self.pick(), self.pick()
        assert x is not None and y is not None
        if len(x.shape) != 2 or len(y.shape) != 2:
            return None
        if x.shape[1] != y.shape[0]:
            y = ops.transpose(y, perm=(1, 0))
        if x.shape[1] != y.shape[0]:
            return None
        return ops.tanh(ops.matmul(x, y) * 0.1)

    def view(self) -> Value | None:
        x = self.pick()
        assert x is not None
        axes = range(len(x.shape))
        kind = self.draw(st.sampled_from(["transpose", "flat", "matrix", "half"]))
        if kind == "transpose":
            return ops.transpose(x, perm=tuple(self.draw(st.permutations(axes))))
        if kind == "flat":
            return ops.reshape(x, shape=(x.type.size,))
        if kind == "matrix" and x.type.size == self.rows * self.columns:
            return ops.reshape(x, shape=(self.rows, self.columns))
        if kind == "half" and x.shape and x.shape[0] > 1:
            return ops.slice_axis(x, 0, x.shape[0] // 2, x.shape[0])
        return None

    def assembled(self) -> Value | None:
        x, y = self.pick((self.rows, self.columns)), self.pick((self.rows, self.columns))
        assert x is not None and y is not None
        kind = self.draw(st.sampled_from(["concat", "pad", "update", "cumsum"]))
        if kind == "concat":
            return ops.concat(x, y, axis=0) if self.rows < 10 else None
        if kind == "pad":
            return ops.pad(x, ops.one(x), low=(0, 1), high=(0, 0)) if self.rows < 10 else None
        if kind == "cumsum":
            return ops.tanh(ops.cumsum(x, axis=1))
        part = ops.slice_axis(y, 0, 0, 1)
        shape = {"starts": (0, 0), "stops": part.shape, "steps": (1, 1)}
        return ops.update_slice(x, part, **shape)

    def indexed(self) -> Value | None:
        x = self.pick((self.rows, self.columns))
        assert x is not None
        kind = self.draw(st.sampled_from(["gather", "scatter_add", "take", "index_add", "columns"]))
        if kind == "gather":
            return ops.gather(x, self.labels, axis=1)
        if kind == "scatter_add":
            source = self.pick((self.rows, 1))
            return None if source is None else ops.scatter_add(x, self.labels, source, axis=1)
        rows = ops.reshape(self.labels, shape=(self.rows,))
        if kind == "columns":
            chosen = ops.take(self.draw(st.sampled_from([x, ops.sin(x)])), rows, axis=1)
            return ops.tanh(ops.index_add(x, rows, chosen * 0.1, axis=1))
        zero = ops.mul(rows, ops.zero(rows))
        if kind == "take":
            return ops.take(x, zero, axis=0)
        return ops.index_add(x, zero, ops.tanh(x), axis=0) * 0.1

    def finish(self) -> Graph:
        made = [value for value in self.values if value.producer]
        count = min(len(made), 3)
        self.graph.outputs = self.draw(st.lists(st.sampled_from(made or self.values), max_size=3))
        self.graph.outputs += made[-count:]
        for entry in self.graph.inputs:
            same = [v for v in self.values if v.type == entry.value.type]
            if same and self.draw(st.booleans()):
                self.graph.writes.append((entry.value, self.draw(st.sampled_from(same))))
        return self.graph


@st.composite
def programs(draw: Draw) -> Graph:
    program = Program(draw)
    steps = (
        program.unary, program.binary, program.binary, program.reduction, program.softmax,
        program.matmul, program.view, program.view, program.assembled, program.indexed,
    )  # fmt: skip
    for _ in range(draw(st.integers(1, 14))):
        value = draw(st.sampled_from(steps))()
        if value is not None:
            program.values.append(value)
    return program.finish()


@hypothesis.settings(max_examples=80)
@hypothesis.given(programs(), st.integers(0, 2**32), st.sampled_from([64, 32]), st.booleans())
def test_a_random_step_computes_what_the_interpreter_does(
    graph: Graph, seed: int, width: int, fuse: bool
) -> None:
    hypothesis.note(str(graph))
    rng = np.random.default_rng(seed)
    arrays = [
        rng.integers(0, entry.value.graph.inputs[0].value.shape[1], entry.value.shape)
        if entry.value.dtype is i64
        else rng.uniform(-1, 1, entry.value.shape).astype(np.float32)
        for entry in graph.inputs
    ]
    outputs, written = interpret(graph, arrays)
    target = host_target()
    target = target.with_vector_bytes(min(width, target.vector_bytes))
    executable = compile_graph(graph, target=target, fuse=fuse)
    given = [array.copy() for array in arrays]
    for ours, theirs in zip(executable.call(given), outputs, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    new = {cell: value for (cell, _), value in zip(graph.writes, written, strict=True)}
    for entry, before, after in zip(graph.inputs, arrays, given, strict=True):
        want = new.get(entry.value, before)
        np.testing.assert_allclose(after, want, rtol=1e-4, atol=1e-5)
