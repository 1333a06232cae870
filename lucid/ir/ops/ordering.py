"""Sorting along an axis: stable; a NaN is greater than every number, as in NumPy and PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.op import Op, Operand, Sample, declare
from lucid.ir.ops import batching
from lucid.ir.ops.rules import ANY, require_axis, require_dtype
from lucid.ir.types import TensorType, i64

__all__ = ["argsort", "sort"]

_TIES = np.array([2.0, 1.0, np.nan, 2.0, 0.0, 1.0, np.nan, -0.0, np.inf, 2.0])
_SAMPLES = (
    Sample(((9,),), {"axis": 0, "descending": False}),
    Sample(((9,),), {"axis": 0, "descending": True}),
    Sample(((4, 7),), {"axis": 0, "descending": True}),
    Sample(((2, 3, 5),), {"axis": 1, "descending": False}),
    Sample(((0, 3),), {"axis": 0, "descending": False}),
    Sample((_TIES,), {"axis": 0, "descending": False}),
    Sample((_TIES,), {"axis": 0, "descending": True}),
)


def _infer_sort(x: TensorType, axis: int, descending: bool) -> TensorType:
    require_dtype("sort", ("x",), (x,), ANY)
    require_axis("sort", ("x",), (x,), axis)
    return x


def _infer_argsort(x: TensorType, axis: int, descending: bool) -> TensorType:
    require_dtype("argsort", ("x",), (x,), ANY)
    require_axis("argsort", ("x",), (x,), axis)
    return x.with_dtype(i64)


def _argsort(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Equal elements stay in their order, also when descending: both ends are reversed for it."""
    if not descending:
        return _stable_order(x, axis).astype(np.int64, copy=False)
    reverse = (slice(None),) * axis + (
        slice(None, None, -1),
    )  # as `np.flip`, in a tenth of its time
    backwards = _stable_order(x[reverse], axis).astype(np.int64, copy=False)
    places: np.ndarray = x.shape[axis] - 1 - backwards
    return places[reverse]


_LONG = 1024  # elements of a vector; of fewer a merge sort takes no longer


def _stable_order(x: np.ndarray, axis: int) -> np.ndarray:
    """`np.argsort`, stable.

    Numbers of a long vector are first ordered by equal steps of their range, 16 bits, for which
    NumPy has a radix sort. What is left is nearly in order, and merge sorts are fast then.
    """
    is_long = x.ndim == 1 and x.size >= _LONG and x.dtype.itemsize > 2
    if is_long and bool((x[:-1] <= x[1:]).all()):
        return np.arange(x.size)
    steps = _steps(x) if is_long else None
    if steps is None:
        return np.argsort(x, axis, kind="stable")
    order = np.argsort(steps, kind="stable")
    return order[np.argsort(x[order], kind="stable")]


def _steps(x: np.ndarray) -> np.ndarray | None:
    """Numbers as 16 bits, a greater one never as less; None where one isn't finite."""
    least, span = float(x.min()), float(x.max()) - float(x.min())
    if not (0 < span < math.inf and math.isfinite(65535 / span)):
        return None
    return ((x.astype(np.float64) - least) * (65535 / span)).astype(np.uint16)


def _sort(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    return np.take_along_axis(x, _argsort(x, axis, descending), axis)


def _sort_vjp(g: Operand, y: Operand, x: Operand, axis: int, descending: bool) -> tuple[Any, ...]:
    """Each cotangent goes back to where its element came from."""
    order = ops.argsort(x, axis=axis, descending=descending)
    return (ops.scatter(ops.zeros_like(g), order, g, axis=axis),)


def _sorting(name: str, infer: Any, evaluate: Any, vjp: Any) -> Op:
    rule = batching.along_axis
    return declare(Op(name, infer, evaluate, vjp, kind="sort", samples=_SAMPLES, batch=rule))


sort = _sorting("sort", _infer_sort, _sort, _sort_vjp)
argsort = _sorting("argsort", _infer_argsort, _argsort, None)
