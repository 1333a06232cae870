"""Windows that slide along axes, and the sum of overlapping windows that is their transpose."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lucid.ir import ops
from lucid.ir.errors import ArgumentError, ShapeError
from lucid.ir.op import Op, Operand, Sample, declare
from lucid.ir.ops import batching
from lucid.ir.ops.rules import NUMBERS, failure, require_dtype
from lucid.ir.strides import Strides, view_strides, window_strides
from lucid.ir.types import Shape, TensorType

__all__ = ["overlap_add", "windows"]

Ints = tuple[int, ...]


def window_count(length: int, size: int, step: int, dilation: int) -> int:
    """How many windows fit into an axis; less than 1 where it is shorter than one.

    >>> window_count(7, size=3, step=2, dilation=1)
    3
    """
    return (length - dilation * (size - 1) - 1) // step + 1


def _check_windows(
    op: str, x: TensorType, rank: int, axes: Ints, given: tuple[Ints, Ints, Ints]
) -> None:
    """Raise unless there is one positive size, step and dilation for each of different axes."""
    if any(len(entry) != len(axes) for entry in given) or any(n < 1 for n in sum(given, ())):
        problem = f"sizes, steps and dilations must be positive, one for each of axes {list(axes)}"
        raise failure(ArgumentError, op, problem, ("x",), (x,))
    if any(n >= 2**63 for n in sum(given, ())):
        problem = f"sizes, steps and dilations must fit into 64 bits, not {list(map(list, given))}"
        raise failure(ArgumentError, op, problem, ("x",), (x,))
    if len(set(axes)) != len(axes) or not all(0 <= axis < rank for axis in axes):
        problem = f"{list(axes)} are not different axes of {rank}"
        raise failure(ShapeError, op, problem, ("x",), (x,))


def _infer_windows(
    x: TensorType, axes: Ints, sizes: Ints, steps: Ints, dilations: Ints
) -> TensorType:
    _check_windows("windows", x, x.ndim, axes, (sizes, steps, dilations))
    shape = _windowed(x.shape, axes, sizes, steps, dilations)
    for axis, size, dilation in zip(axes, sizes, dilations, strict=True):
        if shape[axis] < 1:
            span = dilation * (size - 1) + 1
            problem = f"a window spans {span} elements of axis {axis}, which has {x.shape[axis]}"
            raise failure(ShapeError, "windows", problem, ("x",), (x,))
    return x.with_shape(shape)


def _windowed(shape: Shape, axes: Ints, sizes: Ints, steps: Ints, dilations: Ints) -> Shape:
    """The shape of the windows."""
    result = list(shape)
    for axis, *window in zip(axes, sizes, steps, dilations, strict=True):
        result[axis] = window_count(shape[axis], *window)
    return (*result, *sizes)


def _windows(x: np.ndarray, **place: Ints) -> np.ndarray:
    """A view like `sliding_window_view`'s; read-only where windows share elements."""
    shape, strides, are_apart = _layout(x.shape, x.strides, **place)
    if not x.flags.c_contiguous:
        return as_strided(x, shape, strides, writeable=are_apart)
    view = np.ndarray(shape, x.dtype, x, 0, strides)  # whose base is known
    view.flags.writeable = x.flags.writeable and are_apart
    return view


@lru_cache(256)
def _layout(shape: Shape, strides: Strides, **place: Ints) -> tuple[Shape, Strides, bool]:
    """Shape and strides of the windows, and whether they have no element in common.

    So it is if they lie one after the other, or are woven into each other without a place in
    common.
    """
    shown = _windowed(shape, **place)
    axes = zip(*(place[k] for k in ("axes", "sizes", "steps", "dilations")), strict=True)
    are_apart = all(
        step > (n - 1) * apart or apart > (shown[axis] - 1) * step for axis, n, step, apart in axes
    )
    moved = view_strides(windows, place, shape, strides)
    assert moved is not None
    return shown, moved, are_apart


def _windows_vjp(g: Operand, y: Operand, x: Operand, **place: Ints) -> tuple[Any, ...]:
    return (ops.overlap_add(g, **_transposed(x.shape, place)),)


def _transposed(shape: Shape, place: dict[str, Ints]) -> dict[str, Ints]:
    """The attributes of the overlap-add that undoes windows over a shape."""
    lengths = tuple(shape[axis] for axis in place["axes"])
    return {"lengths": lengths, **{k: place[k] for k in ("axes", "steps", "dilations")}}


WINDOWS: tuple[tuple[Shape, dict[str, Ints]], ...] = (
    ((7,), {"axes": (0,), "sizes": (3,), "steps": (1,), "dilations": (1,)}),
    ((2, 9, 8), {"axes": (1, 2), "sizes": (3, 2), "steps": (2, 3), "dilations": (1, 2)}),
    ((4, 9), {"axes": (0, 1), "sizes": (2, 3), "steps": (2, 3), "dilations": (1, 1)}),
    ((3, 10, 40), {"axes": (2, 1), "sizes": (2, 2), "steps": (2, 2), "dilations": (1, 1)}),
    ((0, 5), {"axes": (1,), "sizes": (5,), "steps": (4,), "dilations": (1,)}),
    ((5, 3), {"axes": (0,), "sizes": (1,), "steps": (3,), "dilations": (1,)}),
)


def _strides(
    shape: Shape, strides: Strides, axes: Ints, sizes: Ints, steps: Ints, dilations: Ints
) -> Strides:
    """A longer step than the axis has no second window, nor such a dilation another element."""
    steps, dilations = (
        tuple(min(n, shape[axis]) for n, axis in zip(numbers, axes, strict=True))
        for numbers in (steps, dilations)
    )
    return window_strides(strides, axes, steps, dilations)


windows: Op = declare(
    Op(
        "windows",
        _infer_windows,
        _windows,
        _windows_vjp,
        kind="view",
        samples=tuple(Sample((shape,), dict(place)) for shape, place in WINDOWS),
        batch=batching.windows,
        strides=_strides,
    )
)


def _infer_overlap_add(
    x: TensorType, axes: Ints, lengths: Ints, steps: Ints, dilations: Ints
) -> TensorType:
    require_dtype("overlap_add", ("x",), (x,), NUMBERS)
    rank = x.ndim - len(axes)
    _check_windows("overlap_add", x, rank, axes, (lengths, steps, dilations))
    sizes = x.shape[rank:]
    shape = list(x.shape[:rank])
    for axis, length, *window in zip(axes, lengths, sizes, steps, dilations, strict=True):
        size, step, dilation = window
        if size < 1 or window_count(length, size, step, dilation) != shape[axis]:
            problem = (
                f"{length} elements on axis {axis} haven't {shape[axis]} windows of {size} "
                f"with step {step} and dilation {dilation}"
            )
            raise failure(ShapeError, "overlap_add", problem, ("x",), (x,))
        shape[axis] = length
    return x.with_shape(tuple(shape))


def _overlap_add(
    x: np.ndarray, axes: Ints, lengths: Ints, steps: Ints, dilations: Ints
) -> np.ndarray:
    """Zeros, to which each window is added at its place: first all first elements, and so on."""
    rank = x.ndim - len(axes)
    shape = list(x.shape[:rank])
    for axis, length in zip(axes, lengths, strict=True):
        shape[axis] = length
    result = np.zeros(shape, x.dtype)
    with np.errstate(all="ignore"):
        for place in product(*map(range, x.shape[rank:])):
            part: list[Any] = [slice(None)] * rank
            for axis, at, step, dilation in zip(axes, place, steps, dilations, strict=True):
                start = at * dilation
                part[axis] = slice(start, start + step * (x.shape[axis] - 1) + 1, step)
            source: tuple[Any, ...] = (..., *place)
            result[tuple(part)] += x[source]
    return result


def _overlap_add_vjp(
    g: Operand, y: Operand, x: Operand, lengths: Ints, **place: Ints
) -> tuple[Any, ...]:
    sizes = tuple(x.shape[len(x.shape) - len(lengths) :])
    return (ops.windows(g, sizes=sizes, **place),)


overlap_add: Op = declare(
    Op(
        "overlap_add",
        _infer_overlap_add,
        _overlap_add,
        _overlap_add_vjp,
        kind="move",
        samples=tuple(
            Sample((_windowed(shape, **place),), _transposed(shape, place))
            for shape, place in WINDOWS
        ),
        batch=batching.windows,
    )
)
