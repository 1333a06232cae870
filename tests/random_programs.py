"""Random programs like training steps: smooth functions of small numbers, state written in place.

What compares numbers (an order, a maximum's place) is drawn on values that no rounding touches, so
that the interpreter and the compiled code take the same side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from lucid.ir import ops
from lucid.ir.errors import LucidError
from lucid.ir.graph import Graph, Value
from lucid.ir.op import OPS
from lucid.ir.types import DType, TensorType, f32, f64, i64

Draw = Callable[[st.SearchStrategy[Any]], Any]
SIZES = (1, 2, 3, 4, 6, 16, 17, 40)
LARGEST = 6000  # elements of a value

EXACT = {
    "neg", "abs", "maximum", "minimum", "where", "amax", "amin", "gather", "take", "concat", "pad",
    "update_slice", "reshape", "transpose", "slice", "broadcast", "sort", "argsort", "argmax",
    "argmin", "lt", "ge", "eq", "logical_not", "index_set", "any", "all", "constant", "iota",
    "windows", "scatter",
}  # fmt: skip


class Program:
    """A graph that is being drawn; all numbers stay small."""

    def __init__(self, draw: Draw, sizes: tuple[int, ...] = SIZES) -> None:
        self.draw = draw
        self.graph = Graph("program")
        self.dtype: DType = draw(st.sampled_from([f32, f32, f32, f64]))
        self.rows, self.columns = draw(st.sampled_from(sizes)), draw(st.sampled_from(sizes))
        self.batch = draw(st.sampled_from([1, 2, 3, 5]))
        matrix = (self.rows, self.columns)
        shapes = [matrix, (self.columns,), (self.rows, 1), (), matrix, (self.batch, *matrix)]
        self.inputs = [self.graph.add_input(TensorType(self.dtype, s), "state") for s in shapes]
        self.labels = self.graph.add_input(TensorType(i64, (self.rows, 1)))
        self.values = list(self.inputs)

    # Choices ----------------------------------------------------------------------------

    def pick(self, *shapes: tuple[int, ...]) -> Value | None:
        """Some value of one of these shapes, late ones rather than early ones."""
        fitting = [v for v in self.values if not shapes or v.shape in shapes]
        if not fitting:
            return None
        recent = fitting[-3:] if self.draw(st.booleans()) else fitting
        return self.draw(st.sampled_from(recent))

    def some(self) -> Value:
        value = self.pick()
        assert value is not None
        return value

    def matrix(self) -> Value:
        value = self.pick((self.rows, self.columns))
        assert value is not None
        return value

    def exact(self) -> Value:
        return self.draw(st.sampled_from([v for v in self.values if is_exact(v)]))

    def axis(self, x: Value) -> int:
        return self.draw(st.sampled_from(range(len(x.shape))))

    # Steps ------------------------------------------------------------------------------

    def unary(self) -> Value | None:
        names = ("tanh", "sigmoid", "neg", "sin", "abs", "erf")
        op: Callable[[Value], Value] = getattr(ops, self.draw(st.sampled_from(names)))
        return op(self.some())

    def binary(self) -> Value | None:
        x, y = self.some(), self.some()
        try:
            shape = np.broadcast_shapes(x.shape, y.shape)
        except ValueError:
            return None
        if np.prod(shape) > LARGEST:
            return None
        op = self.draw(st.sampled_from([ops.add, ops.sub, ops.mul, ops.maximum]))
        if op is ops.maximum:
            return op(x, y)
        return ops.tanh(op(x, y)) if op is ops.mul else op(x, y) * 0.5

    def choice(self) -> Value | None:
        """where(x < c, y, z), with a mask that may be repeated along axes."""
        x = self.exact()
        if x.dtype is not self.dtype:
            return None
        mask = ops.lt(x, ops.full(x, 0.25, x.shape, x.dtype))
        y = self.pick(x.shape, (self.rows, self.columns))
        if y is None:
            return None
        try:
            mask = ops.broadcast_to(mask, y.shape)
        except (LucidError, ValueError):
            return None
        return ops.where(mask, y, self.pick(y.shape) if self.draw(st.booleans()) else ops.neg(y))

    def reduction(self) -> Value | None:
        x = self.some()
        axes = self.draw(st.sets(st.sampled_from(range(len(x.shape))))) if x.shape else set()
        op = self.draw(st.sampled_from([ops.sum, ops.sum, ops.amax]))
        y = op(x, axes=tuple(sorted(axes)))
        if op is ops.sum:
            y = ops.tanh(y)
        kept = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
        return ops.reshape(y, shape=kept) if self.draw(st.booleans()) else y

    def softmax(self) -> Value | None:
        x = self.some()
        if not x.shape:
            return None
        axis = self.axis(x)
        kept = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
        e = ops.exp(ops.sub(x, ops.reshape(ops.amax(x, axes=(axis,)), shape=kept)))
        return ops.div(e, ops.reshape(ops.sum(e, axes=(axis,)), shape=kept))

    def normalized(self) -> Value | None:
        """(x - mean) / sqrt(variance + 0.1), along one or two axes."""
        x = self.some()
        if not x.shape:
            return None
        first = self.axis(x)
        axes = tuple(sorted({first, self.axis(x)}))
        kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
        count = float(np.prod([x.shape[a] for a in axes]))
        centred = x - ops.reshape(ops.sum(x, axes=axes) * (1 / count), shape=kept)
        variance = ops.sum(ops.mul(centred, centred), axes=axes) * (1 / count)
        return ops.mul(centred, ops.reshape(ops.rsqrt(variance + 0.1), shape=kept))

    def matmul(self) -> Value | None:
        x, y = self.some(), self.some()
        if min(len(x.shape), len(y.shape)) < 2:
            return None
        if x.shape[-1] != y.shape[-2]:
            y = ops.swap_axes(y, -1, -2)
        try:
            product = ops.matmul(x, y)
        except LucidError:
            return None
        if product._type.size > LARGEST:
            return None
        return (
            ops.tanh(product * 0.1)
            if self.draw(st.booleans())
            else product * (1.0 / max(x.shape[-1], 1))
        )

    def view(self) -> Value | None:
        x = self.some()
        axes = range(len(x.shape))
        kind = self.draw(st.sampled_from(["transpose", "flat", "matrix", "half", "part", "flip"]))
        if kind == "transpose":
            return ops.transpose(x, perm=tuple(self.draw(st.permutations(axes))))
        if kind == "flat":
            return ops.reshape(x, shape=(x._type.size,))
        if kind == "matrix" and x._type.size == self.rows * self.columns:
            return ops.reshape(x, shape=(self.rows, self.columns))
        if not x.shape:
            return None
        axis = self.axis(x)
        if kind == "half" and x.shape[axis] > 1:
            return ops.slice_axis(x, axis, x.shape[axis] // 2, x.shape[axis])
        if kind == "part" and x.shape[axis] > 2:
            return ops.slice_axis(x, axis, 1, x.shape[axis], 2)
        if kind == "flip":
            return ops.flip(x, axis)
        return None

    def repeated(self) -> Value | None:
        x = self.some()
        sizes = st.sampled_from([self.rows, self.columns])
        shape = tuple(self.draw(sizes) if n == 1 else n for n in x.shape)
        if np.prod(shape) > LARGEST:
            return None
        return ops.broadcast_to(x, shape)

    def assembled(self) -> Value | None:
        x = self.some()
        y = self.pick(x.shape)
        if not x.shape or y is None or x._type.size > LARGEST // 2:
            return None
        axis = self.axis(x)
        kind = self.draw(st.sampled_from(["concat", "pad", "cumsum", "cumprod", "cummin"]))
        if kind == "concat":
            return ops.concat(x, y, axis=axis)
        if kind == "pad":
            ends = [self.draw(st.integers(0, 2)) for _ in x.shape], [0] * len(x.shape)
            low, high = (tuple(end) for end in self.draw(st.permutations(ends)))
            return ops.pad(x, ops.one(x), low=low, high=high)
        return ops.tanh(OPS[kind](x, axis=axis))

    def updated(self) -> Value | None:
        """A part written over, by something that may be a part of the same array."""
        x = self.some()
        if not x.shape:
            return None
        axis = self.axis(x)
        n = x.shape[axis]
        start = self.draw(st.integers(0, n - 1))
        count = self.draw(st.integers(1, n - start))
        step = self.draw(st.sampled_from([1, 1, 2]))
        count = len(range(start, start + count, step))
        place: dict[str, Any] = {
            "starts": tuple(start if a == axis else 0 for a in range(len(x.shape))),
            "stops": tuple(
                start + (count - 1) * step + 1 if a == axis else size
                for a, size in enumerate(x.shape)
            ),
            "steps": tuple(step if a == axis else 1 for a in range(len(x.shape))),
        }
        whole = self.pick(x.shape)
        assert whole is not None
        first = self.draw(st.integers(0, n - count))
        part = ops.slice_axis(whole, axis, first, first + count)
        kind = self.draw(st.sampled_from(["as it is", "flipped", "with the old"]))
        if kind == "flipped":
            part = ops.flip(part, axis)
        elif kind == "with the old":
            part = ops.mul(part, ops.slice(x, **place))
        return ops.update_slice(x, part, **place)

    def mixed(self) -> Value | None:
        """What a state may become: each of its elements with another one of it."""
        x = self.draw(st.sampled_from([x for x in self.inputs if x.shape]))
        axis = self.axis(x)
        first = self.draw(st.integers(0, x.shape[axis] - 1))
        is_flipped = self.draw(st.booleans())
        other = ops.flip(x, axis) if is_flipped else ops.slice_axis(x, axis, first, first + 1)
        return ops.maximum(x, other * 0.5)

    def indexed(self) -> Value | None:
        x = self.matrix()
        names = ["gather", "scatter_add", "scatter", "take", "index_add", "index_set", "columns"]
        kind = self.draw(st.sampled_from(names))
        if kind == "gather":
            return ops.gather(x, self.labels, axis=1)
        rows = ops.reshape(self.labels, shape=(self.rows,))
        if kind in ("scatter_add", "scatter"):
            source = self.pick((self.rows, 1))
            op = getattr(ops, kind)
            return None if source is None else op(x, self.labels, source, axis=1)
        chosen = ops.take(self.draw(st.sampled_from([x, ops.sin(x)])), rows, axis=1)
        if kind == "columns":
            return ops.tanh(ops.index_add(x, rows, chosen * 0.1, axis=1))
        if kind == "index_set":
            return ops.index_set(x, rows, chosen, axis=1)
        places = ops.remainder(rows, ops.full(rows, self.rows, rows.shape, i64))
        if kind == "take":
            return ops.take(x, places, axis=0)
        return ops.index_add(self.matrix(), places, ops.tanh(x), axis=0) * 0.1

    def ordered(self) -> Value | None:
        """What a sort or an argmax chooses."""
        x = self.exact()
        if not x.shape or x.dtype is not self.dtype:
            return None
        axis = self.axis(x)
        descending = self.draw(st.booleans())
        kind = self.draw(st.sampled_from(["sort", "argsort", "argmax", "mask"]))
        if kind == "sort":
            return ops.sort(x, axis=axis, descending=descending)
        other = self.pick(x.shape)
        assert other is not None
        if kind == "argsort":
            order = ops.argsort(x, axis=axis, descending=descending)
            return ops.gather(other, order, axis=axis)
        kept = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
        place = ops.reshape((ops.argmin if descending else ops.argmax)(x, axis=axis), shape=kept)
        if kind == "argmax":
            return ops.gather(other, place, axis=axis)
        hit = ops.eq(ops.broadcast_to(place, x.shape), ops.indices(x, x.shape, axis))
        return ops.where(hit, other, ops.neg(other))

    def convolution(self) -> Value | None:
        """Windows of rows against the first columns of a matrix: a one-dimensional convolution."""
        x = self.pick((self.batch, self.rows, self.columns))
        assert x is not None
        size = self.draw(st.sampled_from([1, 2, 3]))
        step = self.draw(st.sampled_from([1, 2]))
        if self.columns < size:
            return None
        place: dict[str, Any] = {
            "axes": (2,),
            "sizes": (size,),
            "steps": (step,),
            "dilations": (1,),
        }
        seen = ops.windows(x, **place)
        w = self.matrix()
        weight = ops.slice_axis(w, 1, 0, size)
        kind = self.draw(st.sampled_from(["product", "pool", "back", "weights"]))
        if kind == "product":
            return ops.contract(seen, weight, indices="bclk,ck->bl") * 0.1
        if kind == "pool":
            return ops.amax(seen, axes=(3,))
        lengths = {"axes": (2,), "lengths": (self.columns,), "steps": (step,), "dilations": (1,)}
        if kind == "back":
            return ops.tanh(ops.overlap_add(ops.sin(seen), **lengths))
        total = ops.sum(seen, axes=(3,))
        return ops.contract(seen, total, indices="bclk,bdl->dck") * 0.02

    def finish(self) -> Graph:
        made = [value for value in self.values if value.producer]
        self.graph.outputs = self.draw(st.lists(st.sampled_from(made or self.values), max_size=3))
        self.graph.outputs += made[-min(len(made), 3) :]
        for cell in self.inputs:
            same = [v for v in self.values if v._type == cell._type]
            if self.draw(st.booleans()):
                self.graph.writes.append((cell, self.draw(st.sampled_from(same[::-1]))))
        return self.graph


def is_exact(value: Value) -> bool:
    """Whether no rounding touches a value."""
    node = value.producer
    return node is None or (node.op.name in EXACT and all(map(is_exact, node.operands)))


@st.composite
def programs(draw: Draw, steps: int = 16, sizes: tuple[int, ...] = SIZES) -> Graph:
    """A program of about this many steps."""
    program = Program(draw, sizes)
    add = (
        program.unary, program.binary, program.binary, program.reduction, program.softmax,
        program.matmul, program.view, program.view, program.assembled, program.indexed,
        program.updated, program.updated, program.choice, program.normalized, program.ordered,
        program.convolution, program.repeated, program.mixed,
    )  # fmt: skip
    for _ in range(draw(st.integers(1, steps))):
        value = draw(st.sampled_from(add))()
        if value is not None and value.dtype is program.dtype and value._type.size <= LARGEST:
            program.values.append(value)
    return program.finish()


def numbers(graph: Graph, seed: int) -> list[np.ndarray]:
    """Inputs for such a program: floats in (-1, 1), labels that are columns."""
    rng = np.random.default_rng(seed)
    columns = graph.inputs[0].value.shape[1]
    return [
        rng.integers(0, columns, entry.value.shape)
        if entry.value.dtype is i64
        else rng.uniform(-1, 1, entry.value.shape).astype(entry.value.dtype.numpy)
        for entry in graph.inputs
    ]
