"""Ops that read or write where an index operand says; its dtype is i64 or i32.

An index counts from the end when negative; one out of range raises `IndexOutOfRangeError`. There
are two forms. `take`, `index_add`, `index_set`: the index says for whole slices where they lie on
the axis (`np.take`). `gather`, `scatter_add`, `scatter`: it says so for each element
(`torch.gather`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
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

__all__ = ["gather", "index_add", "index_set", "scatter", "scatter_add", "take"]

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
    return x.ravel().take(along_targets(x.shape, checked, axis))


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


def along_targets(shape: Shape, index: np.ndarray, axis: int) -> np.ndarray:
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


Write = Callable[[np.ndarray, Any, np.ndarray], None]  # of a source, where an index says


def _put(array: np.ndarray, places: Any, source: np.ndarray) -> None:
    """NumPy goes through an index of one axis in order, so that the last of equal ones stays."""
    array[places] = source


def _write_slices(
    op: str, write: Write, base: np.ndarray, index: np.ndarray, source: np.ndarray, axis: int
) -> np.ndarray:
    """Write the slices of a source, in the order of the index."""
    shape = base.shape
    if write is not _put and base.flags.c_contiguous:  # `np.add.at` is slow at slices
        checked = checked_index(op, index, axis, shape[axis])
        write(base.reshape(-1), _slice_targets(shape, checked, axis).ravel(), source.ravel())
        return base
    if index.ndim != 1:
        source = source.reshape(*shape[:axis], index.size, *shape[axis + 1 :])
    try:
        write(base, (*[slice(None)] * axis, index.ravel()), source)
    except IndexError:  # NumPy's, of an index out of range, before it writes
        checked_index(op, index, axis, shape[axis])
        raise
    return base


def _write_along(
    op: str, write: Write, base: np.ndarray, index: np.ndarray, source: np.ndarray, axis: int
) -> np.ndarray:
    """Write each element of a source along an axis, in the order of the index."""
    shape = base.shape
    checked = checked_index(op, index, axis, shape[axis])
    if base.flags.c_contiguous:
        places = along_targets(shape, checked, axis).ravel()
        write(base.reshape(-1), places, source.ravel())
    else:
        columns = [*np.indices(index.shape).reshape(index.ndim, -1)]
        columns[axis] = checked.ravel()
        write(base, tuple(columns), source.ravel())
    return base


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
    overwrite: Callable[..., bool] | None = None,
    *,
    is_slow: bool = False,
) -> Op:
    traits = {Trait.INDEXED, Trait.SLOW} if is_slow else {Trait.INDEXED}
    return declare(
        Op(
            name,
            infer,
            evaluate,
            vjp,
            kind="move",
            traits=traits,
            samples=samples,
            batch=batch,
            overwrite=overwrite,
        )
    )


def _write(
    name: str,
    infer: Infer,
    write: Callable[..., np.ndarray],
    at: Write,
    vjp: Any,
    samples: tuple[Sample, ...],
    batch: Callable[..., Any] = batching.along_axis,
) -> Op:
    """Declare an op that writes into a copy, or into its operand."""
    written = quiet(partial(write, name, at))

    def evaluate(base: np.ndarray, *others: np.ndarray, axis: int) -> np.ndarray:
        return written(base.copy(order="C"), *others, axis=axis)

    def overwrite(
        base: np.ndarray, index: np.ndarray, source: np.ndarray, axis: int, most: int
    ) -> bool:
        if source.size > most:
            return False
        written(base, index, source, axis=axis)
        return True

    return _move(name, infer, evaluate, vjp, samples, batch, overwrite, is_slow=True)


take = _move("take", _infer_take, _take, _take_vjp, _index_samples(writes=False), batching.take)
gather = _move(
    "gather", _infer_gather, _gather, _gather_vjp, _along_samples(writes=False), is_slow=True
)
index_add = _write(
    "index_add",
    _slice_write("index_add", NUMBERS),
    _write_slices,
    np.add.at,
    _index_add_vjp,
    _index_samples(writes=True),
    batching.slice_write("scatter_add"),
)
scatter_add = _write(
    "scatter_add",
    _along_write("scatter_add", NUMBERS),
    _write_along,
    np.add.at,
    _scatter_add_vjp,
    _along_samples(writes=True),
)
index_set = _write(
    "index_set",
    _slice_write("index_set", ANY),
    _write_slices,
    _put,
    _index_set_vjp,
    _index_samples(writes=True),
    batching.slice_write("scatter"),
)
scatter = _write(
    "scatter",
    _along_write("scatter", ANY),
    _write_along,
    _put,
    _scatter_vjp,
    _along_samples(writes=True),
)
