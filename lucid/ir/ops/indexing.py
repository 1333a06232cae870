"""Ops that read or write where an index operand says; its dtype is i64 or i32.

An index counts from the end when negative; one out of range raises `IndexOutOfRangeError`. There
are two forms. `take`, `index_add`, `index_set`: the index says for whole slices where they lie on
the axis (`np.take`). `gather`, `scatter_add`, `scatter`: it says so for each element
(`torch.gather`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.errors import ShapeError
from lucid.ir.op import Op, Operand, Sample, Trait, declare
from lucid.ir.ops import batching
from lucid.ir.ops.evaluation import checked_index, quiet
from lucid.ir.ops.rules import (
    ANY,
    NUMBERS,
    DTypeSet,
    Infer,
    failure,
    require_axis,
    require_dtype,
    require_index,
)
from lucid.ir.types import Shape, TensorType

_READ = ("x", "index")
_WRITE = ("base", "index", "source")


def _index_samples(writes: bool) -> tuple[Sample, ...]:
    """Samples of the slice form: duplicates, negative ones, 0-d, 2-d, and empty indices."""
    cases: tuple[tuple[Shape, int, np.ndarray], ...] = (
        ((6,), 0, np.array([0, 5, 2, 2, -1])),
        ((4, 7), 0, np.array([3, 0, 3])),
        ((4, 7), 1, np.array([[1, -7], [6, 1]], np.int32)),
        ((3, 5, 2), 1, np.array(4)),
        ((6,), 0, np.array(-2)),
        ((2, 3), 0, np.zeros((0,), np.int64)),
        ((0, 3), 1, np.array([2, 0])),
    )
    samples = []
    for shape, axis, index in cases:
        source = (*shape[:axis], *index.shape, *shape[axis + 1 :])
        operands = (shape, index, source) if writes else (shape, index)
        samples.append(Sample(operands, {"axis": axis}))
    return tuple(samples)


def _along_samples(writes: bool) -> tuple[Sample, ...]:
    """Samples of the form along an axis: the index may be shorter on other axes."""
    cases: tuple[tuple[Shape, int, np.ndarray], ...] = (
        ((6,), 0, np.array([0, 5, 2, 2, -1])),
        ((4, 3), 0, np.array([[3, 0, 1], [3, -4, 0]], np.int32)),
        ((4, 3), 1, np.array([[2], [0], [0], [-1]])),
        ((3, 5), 1, np.array([[4, 4, 0, 1, 1, 0, 2]])),
        ((2, 3, 2), 1, np.array([[[0, 2], [1, 2]], [[2, 2], [0, 0]]])),
        ((2, 3), 0, np.zeros((0, 3), np.int64)),
    )
    samples = []
    for shape, axis, index in cases:
        operands = (shape, index, index.shape) if writes else (shape, index)
        samples.append(Sample(operands, {"axis": axis}))
    return tuple(samples)


def _infer_take(x: TensorType, index: TensorType, axis: int) -> TensorType:
    require_dtype("take", _READ, (x, index), ANY, besides=1)
    require_index("take", _READ, (x, index))
    require_axis("take", _READ, (x, index), axis)
    return x.with_shape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))


def _require_along(
    op: str, names: tuple[str, ...], types: tuple[TensorType, ...], axis: int
) -> None:
    """Raise `ShapeError` unless the index lies within the first operand, off the axis."""
    x, index = types[:2]
    require_index(op, names, types)
    require_axis(op, names, types, axis)
    if index.ndim != x.ndim:
        problem = f"the index needs {x.ndim} axes, not {index.ndim}"
        raise failure(ShapeError, op, problem, names, types)
    for other, (size, taken) in enumerate(zip(x.shape, index.shape, strict=True)):
        if other != axis and taken > size:
            problem = f"the index is longer on axis {other}, {taken} for {size}"
            raise failure(ShapeError, op, problem, names, types)


def _infer_gather(x: TensorType, index: TensorType, axis: int) -> TensorType:
    require_dtype("gather", _READ, (x, index), ANY, besides=1)
    _require_along("gather", _READ, (x, index), axis)
    return x.with_shape(index.shape)


def _slice_write(op: str, dtypes: DTypeSet) -> Infer:
    """Return the type rule of `index_add` and `index_set`."""

    def infer(base: TensorType, index: TensorType, source: TensorType, axis: int) -> TensorType:
        types = (base, index, source)
        require_dtype(op, _WRITE, types, dtypes, besides=1)
        require_index(op, _WRITE, types)
        require_axis(op, _WRITE, types, axis)
        shape = (*base.shape[:axis], *index.shape, *base.shape[axis + 1 :])
        if source.shape != shape:
            problem = f"the source needs the shape {list(shape)}, not {list(source.shape)}"
            raise failure(ShapeError, op, problem, _WRITE, types)
        return base

    return infer


def _along_write(op: str, dtypes: DTypeSet) -> Infer:
    """Return the type rule of `scatter_add` and `scatter`."""

    def infer(base: TensorType, index: TensorType, source: TensorType, axis: int) -> TensorType:
        types = (base, index, source)
        require_dtype(op, _WRITE, types, dtypes, besides=1)
        _require_along(op, _WRITE, types, axis)
        if source.shape != index.shape:
            problem = f"the source needs the index's shape, not {list(source.shape)}"
            raise failure(ShapeError, op, problem, _WRITE, types)
        return base

    return infer


def _take(x: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    try:
        return np.asarray(x.take(index, axis))
    except IndexError:  # NumPy's, of an index out of range
        return np.asarray(x.take(checked_index("take", index, axis, x.shape[axis]), axis))


def _gather(x: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    checked = checked_index("gather", index, axis, x.shape[axis])
    return x.ravel().take(_along_targets(x.shape, checked, axis))


def _slice_targets(shape: Shape, index: np.ndarray, axis: int) -> np.ndarray:
    """Flat positions in an array of `shape` of what `np.take` with a checked index reads."""
    inner = prod(shape[axis + 1 :])
    is_small = index.size < _KEPT and prod(shape) < _KEPT
    offsets = (_known_starts if is_small else _starts)(shape, axis)
    flat: np.ndarray = offsets + (index * inner).reshape(1, -1, 1)
    return flat


def _starts(shape: Shape, axis: int) -> np.ndarray:
    """Flat positions of the elements at index 0 of an axis: (outer, 1, inner)."""
    outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
    starts: np.ndarray = np.arange(outer)[:, None, None] * (shape[axis] * inner) + np.arange(inner)
    return starts


def _along_targets(shape: Shape, index: np.ndarray, axis: int) -> np.ndarray:
    """Flat positions in an array of `shape` of what a checked index along `axis` reads."""
    offsets = _known_offsets if index.size < _KEPT else _offsets
    inner = prod(shape[axis + 1 :])
    flat: np.ndarray = offsets(shape, index.shape, axis) + (index if inner == 1 else index * inner)
    return flat


_KEPT = 2**12  # offsets of an index with fewer elements are kept


def _offsets(shape: Shape, counts: Shape, axis: int) -> np.ndarray:
    """Flat positions of the first elements along an axis, for an index with these sizes."""
    flat = np.zeros(counts, np.int64)
    stride = 1
    for other in reversed(range(len(shape))):
        if other != axis:
            column = np.arange(counts[other]) * stride
            flat += column.reshape(-1, *(1 for _ in shape[other + 1 :]))
        stride *= shape[other]
    return flat


_known_offsets = lru_cache(256)(_offsets)
_known_starts = lru_cache(256)(_starts)


def _put(flat: np.ndarray, targets: np.ndarray, source: np.ndarray) -> None:
    """`np.put` in a third of the time."""
    flat[targets] = source


def _writing(
    op: str, targets: Callable[..., np.ndarray], write: Callable[..., None]
) -> Callable[..., np.ndarray]:
    """Return the meaning of an op that writes into a copy, in the order of the index."""

    def evaluate(base: np.ndarray, index: np.ndarray, source: np.ndarray, axis: int) -> np.ndarray:
        result = base.copy(order="C")
        checked = checked_index(op, index, axis, base.shape[axis])
        write(result.reshape(-1), targets(base.shape, checked, axis).ravel(), source.ravel())
        return result

    return quiet(evaluate)


def _slice_winners(like: Operand, index: Operand, shape: Shape, axis: int) -> Any:
    """Where the source of `index_set` stays: at the last one of equal indices."""
    count = prod(index.shape)
    order = ops.reshape_to(ops.indices(like, (count,), 0), index.shape)
    nothing = ops.full(like, 0, (shape[axis],), order.dtype)
    last = ops.take(ops.index_set(nothing, index, order, axis=0), index, axis=0)
    wins = ops.eq(last, order)
    ones = (1,) * (len(shape) - axis - 1)
    return ops.reshape_to(wins, ((1,) * axis) + index.shape + ones)


def _index_set_vjp(
    g: Operand, y: Operand, base: Operand, index: Operand, source: Operand, axis: int
) -> tuple[Any, ...]:
    kept = ops.index_set(g, index, ops.zeros_like(source), axis=axis)
    wins = _slice_winners(g, index, base.shape, axis)
    return kept, None, ops.where(wins, ops.take(g, index, axis=axis), ops.zero(g))


def _scatter_vjp(
    g: Operand, y: Operand, base: Operand, index: Operand, source: Operand, axis: int
) -> tuple[Any, ...]:
    """As `index_set`; equal indices meet only within one line along the axis."""
    kept = ops.scatter(g, index, ops.zeros_like(source), axis=axis)
    order = ops.indices(g, index.shape, axis)
    nothing = ops.full(g, 0, base.shape, order.dtype)
    last = ops.gather(ops.scatter(nothing, index, order, axis=axis), index, axis=axis)
    taken = ops.gather(g, index, axis=axis)
    return kept, None, ops.where(ops.eq(last, order), taken, ops.zero(g))


def _take_vjp(g: Operand, y: Operand, x: Operand, index: Operand, axis: int) -> tuple[Any, ...]:
    return ops.index_add(ops.zeros_like(x), index, g, axis=axis), None


def _gather_vjp(g: Operand, y: Operand, x: Operand, index: Operand, axis: int) -> tuple[Any, ...]:
    return ops.scatter_add(ops.zeros_like(x), index, g, axis=axis), None


def _index_add_vjp(
    g: Operand, y: Operand, base: Operand, index: Operand, source: Operand, axis: int
) -> tuple[Any, ...]:
    return g, None, ops.take(g, index, axis=axis)


def _scatter_add_vjp(
    g: Operand, y: Operand, base: Operand, index: Operand, source: Operand, axis: int
) -> tuple[Any, ...]:
    return g, None, ops.gather(g, index, axis=axis)


def _move(
    name: str,
    infer: Infer,
    evaluate: Callable[..., Any],
    vjp: Any,
    samples: tuple[Sample, ...],
    batch: Callable[..., Any] = batching.along_axis,
    *,
    is_slow: bool = False,
) -> Op:
    traits = {Trait.INDEXED, Trait.SLOW} if is_slow else {Trait.INDEXED}
    return declare(
        Op(name, infer, evaluate, vjp, kind="move", traits=traits, samples=samples, batch=batch)
    )


take = _move("take", _infer_take, _take, _take_vjp, _index_samples(writes=False), batching.take)
gather = _move(
    "gather", _infer_gather, _gather, _gather_vjp, _along_samples(writes=False), is_slow=True
)
index_add = _move(
    "index_add",
    _slice_write("index_add", NUMBERS),
    _writing("index_add", _slice_targets, np.add.at),
    _index_add_vjp,
    _index_samples(writes=True),
    batching.slice_write("scatter_add"),
    is_slow=True,
)
scatter_add = _move(
    "scatter_add",
    _along_write("scatter_add", NUMBERS),
    _writing("scatter_add", _along_targets, np.add.at),
    _scatter_add_vjp,
    _along_samples(writes=True),
    is_slow=True,
)
# np.put goes through the index in order, so that the last of equal ones stays.
index_set = _move(
    "index_set",
    _slice_write("index_set", ANY),
    _writing("index_set", _slice_targets, _put),
    _index_set_vjp,
    _index_samples(writes=True),
    batching.slice_write("scatter"),
    is_slow=True,
)
scatter = _move(
    "scatter",
    _along_write("scatter", ANY),
    _writing("scatter", _along_targets, _put),
    _scatter_vjp,
    _along_samples(writes=True),
    is_slow=True,
)
