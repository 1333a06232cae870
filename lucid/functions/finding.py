"""Results whose sizes follow from the values: NumPy finds where, and the rest is ops.

A compiled step calls Python there. A size that differs from call to call is open in the trace that
comes then. In a trace only constants are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid.functions.arguments import require_computable
from lucid.functions.tensors import Tensor
from lucid.ir.errors import LucidError, OptionError, completed
from lucid.ir.inference import MOST_ELEMENTS, too_many
from lucid.ir.location import at_line, here
from lucid.ir.types import Shape, type_of_array
from lucid.tensor.context import context
from lucid.tensor.core import from_array, with_origins


def found(
    name: str, find: Callable[..., Sequence[np.ndarray]], x: Tensor, *options: Any, what: str = ""
) -> tuple[Tensor, ...]:
    """Tensors, without history, of the new arrays that `find(array, *options)` gives.

    In a trace the step calls `find` when it runs, and is traced anew when results have other sizes
    than before, which are open from then on.

    Args:
        name: what the user called, for messages.
        find: takes the tensor's array and the options, and returns arrays of its own.
        x: the tensor whose values say how large the results are.
        *options: constants, passed on.
        what: how messages call it, if not by its name. Default: "", the name.

    Raises:
        LucidError: in a vmap over `x`; and what `find` raises, with the user's line.
    """
    if x._type.size > MOST_ELEMENTS:
        raise with_origins(too_many(name, "read", x._type, [x._type]), [x])
    what = what or f"{name}(), whose result's size depends on data,"
    return computed(name, find, [x], *options, what=what, finds_sizes=True)


def computed(
    name: str,
    find: Callable[..., Sequence[np.ndarray]],
    tensors: Sequence[Tensor],
    *options: Any,
    what: str = "",
    finds_sizes: bool = False,
) -> tuple[Tensor, ...]:
    """The same as `found` of what `find(*arrays, *options)` gives, for several tensors.

    finds_sizes: whether the sizes of results depend on values.
    """
    arrays = [x._known(what or f"{name}()") for x in tensors]
    if any(array is None for array in arrays):
        assert context.recorder is not None
        kind: Any = {"is_own": True, "finds_sizes": finds_sizes}
        return context.recorder.hosts.find(name, find, tensors, options, **kind)
    try:
        return tuple(map(from_array, find(*arrays, *options)))
    except LucidError as error:
        raise at_line(completed(error), here()) from None


def nonzero_indices(array: np.ndarray) -> Sequence[np.ndarray]:
    """The places of elements that aren't zero, in row-major order: a vector for each axis.

    A 0-d array counts as a vector of one element.
    """
    array = np.atleast_1d(array)
    flat = np.flatnonzero(array)
    return _split(flat, array.shape, [np.empty_like(flat) for _ in array.shape])


def nonzero_rows(array: np.ndarray) -> Sequence[np.ndarray]:
    """The places of elements that aren't zero, in row-major order, as one array (n, ndim)."""
    flat = np.flatnonzero(array)
    rows = np.empty((flat.size, array.ndim), np.int64)
    _split(flat, array.shape, [*rows.T])
    return [rows]


def _split(flat: np.ndarray, shape: Shape, indices: list[np.ndarray]) -> list[np.ndarray]:
    """Fill in the indices along each axis of places in row-major order.

    `np.nonzero` of several axes takes three times as long as finding these places and dividing.
    """
    for axis in range(len(shape) - 1, 0, -1):
        before = np.floor_divide(flat, max(shape[axis], 1))
        np.subtract(flat, before * shape[axis], out=indices[axis])
        flat = before
    if shape:
        indices[0][...] = flat
    return indices


def distinct(
    array: np.ndarray, axis: int | None, with_inverse: bool, with_counts: bool
) -> Sequence[np.ndarray]:
    """The distinct elements or slices in ascending order, where each went, and how often each came.

    NaNs are different from each other.

    Args:
        array: of any dtype.
        axis: whose slices are compared; None for single elements.
        with_inverse: whether to give the places, in the array's shape, for slices as a vector.
        with_counts: whether to give the counts.
    """
    options: Any = {"return_inverse": with_inverse, "return_counts": with_counts}
    found: Any = np.unique(array, axis=axis, equal_nan=False, **options)
    if not (with_inverse or with_counts):
        return [np.ascontiguousarray(found)]
    values, *rest = found
    if with_inverse:
        rest[0] = rest[0].reshape(array.shape if axis is None else (-1,))
    return [np.ascontiguousarray(values), *(numbers.astype(np.int64) for numbers in rest)]


def runs(
    array: np.ndarray, axis: int | None, with_inverse: bool, with_counts: bool
) -> Sequence[np.ndarray]:
    """Where runs of equal elements begin, which run each element is in, and how long the runs are.

    Args:
        array: of any shape, taken in row-major order.
        axis: the axis whose slices are compared instead of elements; None for none.
        with_inverse: whether to give each element's run, in the array's shape, or each slice's.
        with_counts: whether to give the lengths.
    """
    rows = array.ravel() if axis is None else np.moveaxis(array, axis, 0)
    differs = rows[1:] != rows[:-1]
    starts = np.ones(len(rows), bool)
    starts[1:] = differs.any(axis=tuple(range(1, rows.ndim)))
    places = np.flatnonzero(starts)
    parts: list[np.ndarray] = [places]
    if with_inverse:
        shape = array.shape if axis is None else starts.shape
        parts.append((np.cumsum(starts) - 1).reshape(shape).astype(np.int64))
    if with_counts:
        parts.append(np.diff(np.append(places, len(rows))).astype(np.int64))
    return parts


def repeated(counts: np.ndarray, size: int) -> Sequence[np.ndarray]:
    """Each of `size` positions as often as its count says.

    Raises:
        OptionError: a count is negative.
        TooLargeError: they are too many.
    """
    if (counts < 0).any():
        raise OptionError(
            f"repeat_interleave: repeats can not be negative, not {counts[counts < 0][0]}\n"
            f"  repeats: {type_of_array(counts)}"
        )
    require_computable((int(counts.sum(dtype=np.float64)),), "repeat_interleave")
    return [np.repeat(np.arange(size), counts)]


def count_bins(array: np.ndarray) -> Sequence[np.ndarray]:
    """As many bins as are needed to count each number: the result of `extent`.

    Raises:
        OptionError: a number is negative.
    """
    if array.size and array.min() < 0:
        raise OptionError(
            f"bincount: only supports non-negative integers, not {array.min()}\n"
            f"  input: {type_of_array(array)}"
        )
    return extent(array, "bincount")


def count_each(array: np.ndarray, least: int) -> Sequence[np.ndarray]:
    """How often each number comes, at least so many of them; as `count_bins` otherwise."""
    require_computable((max(least, len(count_bins(array)[0])),), "bincount")
    return [np.bincount(array, minlength=least).astype(np.int64, copy=False)]


def extent(array: np.ndarray, op: str) -> Sequence[np.ndarray]:
    """One more than the greatest index, as the length of an array without elements.

    Raises `TooLargeError` for more than an op can count.
    """
    count = int(array.max()) + 1 if array.size else 0
    require_computable((count,), op)
    return [np.empty((count, 0), np.int64)]
