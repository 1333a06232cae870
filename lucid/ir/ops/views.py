"""Ops that only look at their operand in another way: NumPy returns a view where it can."""

from __future__ import annotations

from builtins import slice as Slice
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.errors import ShapeError
from lucid.ir.extents import taken
from lucid.ir.op import Op, Operand, Sample, declare
from lucid.ir.ops import batching
from lucid.ir.ops.rules import broadcast_shapes, failure
from lucid.ir.strides import Strides, reshape_strides
from lucid.ir.types import Shape, TensorType

__all__ = [
    "barrier", "broadcast", "diagonal", "inverse_permutation", "reshape", "slice", "transpose",
]  # fmt: skip

Ints = tuple[int, ...]


def _infer_broadcast(x: TensorType, shape: Shape) -> TensorType:
    if broadcast_shapes(x.shape, shape) != shape:
        problem = f"the shape {list(x.shape)} doesn't broadcast to {list(shape)}"
        raise failure(ShapeError, "broadcast", problem, ("x",), (x,))
    return x.with_shape(shape)


def _broadcast_strides(old: Shape, strides: Strides, shape: Shape) -> Strides:
    kept = (0 if size == 1 else step for size, step in zip(old, strides, strict=True))
    return (0,) * (len(shape) - len(old)) + tuple(kept)


def _evaluate_broadcast(x: np.ndarray, shape: Shape) -> np.ndarray:
    """A view that can be written if `x` can, unless elements are repeated."""
    shown = np.broadcast_to(x, shape)
    if shown.size == x.size and x.flags.writeable:
        shown.flags.writeable = True
    return shown


broadcast = declare(
    Op(
        "broadcast",
        _infer_broadcast,
        _evaluate_broadcast,
        lambda g, y, x, shape: (ops.sum_to_shape(g, x.shape),),
        kind="view",
        samples=(
            Sample(((),), {"shape": (2, 3)}),
            Sample(((3,),), {"shape": (4, 3)}),
            Sample(((4, 1, 3),), {"shape": (2, 4, 5, 3)}),
            Sample(((3,),), {"shape": (3,)}),
            Sample(((1,),), {"shape": (0,)}),
        ),
        batch=batching.broadcast,
        strides=_broadcast_strides,
    )
)


def _infer_reshape(x: TensorType, shape: Shape) -> TensorType:
    if prod(shape) != x.size or any(size < 0 for size in shape):
        problem = f"{x.size} elements don't fill the shape {list(shape)}"
        raise failure(ShapeError, "reshape", problem, ("x",), (x,))
    return x.with_shape(shape)


reshape: Op = declare(
    Op(
        "reshape",
        _infer_reshape,
        lambda x, shape: x.reshape(shape),
        lambda g, y, x, shape: (ops.reshape(g, shape=x.shape),),
        kind="view",
        samples=(
            Sample(((4, 6),), {"shape": (2, 3, 4)}),
            Sample(((5,),), {"shape": (5, 1)}),
            Sample(((1, 1),), {"shape": ()}),
            Sample(((),), {"shape": (1,)}),
            Sample(((0, 3),), {"shape": (5, 0)}),
        ),
        batch=batching.reshape,
        strides=reshape_strides,
    )
)


def _infer_transpose(x: TensorType, perm: Ints) -> TensorType:
    if sorted(perm) != list(range(x.ndim)):
        problem = f"{list(perm)} is no order of {x.ndim} axes"
        raise failure(ShapeError, "transpose", problem, ("x",), (x,))
    return x.with_shape(tuple(x.shape[axis] for axis in perm))


def inverse_permutation(perm: Ints) -> Ints:
    """Return the order that undoes `perm`: transposing by one, then by the other, does nothing.

    Args:
        perm: each of 0 to n - 1, once.

    >>> from lucid.ir import ops
    >>> ops.inverse_permutation((2, 0, 1))
    (1, 2, 0)
    """
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


transpose: Op = declare(
    Op(
        "transpose",
        _infer_transpose,
        lambda x, perm: x.transpose(perm),
        lambda g, y, x, perm: (ops.transpose(g, perm=inverse_permutation(perm)),),
        kind="view",
        samples=(
            Sample(((3, 5),), {"perm": (1, 0)}),
            Sample(((2, 3, 4),), {"perm": (2, 0, 1)}),
            Sample(((2, 3, 4),), {"perm": (0, 2, 1)}),
            Sample(((4,),), {"perm": (0,)}),
            Sample(((),), {"perm": ()}),
            Sample(((0, 3),), {"perm": (1, 0)}),
        ),
        batch=batching.transpose,
        strides=lambda old, strides, perm: tuple(strides[axis] for axis in perm),
    )
)


def _infer_diagonal(x: TensorType) -> TensorType:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        problem = f"the last two axes of {list(x.shape)} are no square"
        raise failure(ShapeError, "diagonal", problem, ("x",), (x,))
    return x.with_shape(x.shape[:-1])


diagonal: Op = declare(
    Op(
        "diagonal",
        _infer_diagonal,
        lambda x: np.einsum("...ii->...i", x),
        lambda g, y, x: (ops.with_diagonal(ops.zeros_like(x), g),),
        kind="view",
        samples=(
            Sample(((4, 4),)),
            Sample(((2, 1, 3, 3),)),
            Sample(((0, 0),)),
            Sample(((3, 1, 1),)),
        ),
        batch=batching.last_axes,
        strides=lambda old, strides: (*strides[:-2], strides[-2] + strides[-1]),
    )
)


def sliced_shape(
    op: str,
    names: tuple[str, ...],
    types: tuple[TensorType, ...],
    starts: Ints,
    stops: Ints,
    steps: Ints,
) -> Shape:
    """Return the shape of the first operand's slice. Raises `ShapeError` if not normalized."""
    base = types[0]
    if not len(starts) == len(stops) == len(steps) == base.ndim:
        problem = f"starts, stops and steps must have one entry for each of {base.ndim} axes"
        raise failure(ShapeError, op, problem, names, types)
    shape = []
    for axis, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        count = taken(start, stop, step) if step else 0
        last, size = start + (count - 1) * step, base.shape[axis]
        if step == 0 or (count and not (0 <= start < size and 0 <= last < size)):
            problem = f"{start}:{stop}:{step} doesn't slice axis {axis} with size {size}"
            raise failure(ShapeError, op, problem, names, types)
        shape.append(count)
    return tuple(shape)


@lru_cache(maxsize=1024)
def numpy_slices(starts: Ints, stops: Ints, steps: Ints) -> tuple[Any, ...]:
    """Return Python slices; a stop of -1 is before index 0, and an empty range stays empty."""
    return tuple(
        Slice(start, None if stop < 0 else stop, step)
        if range(start, stop, step)
        else Slice(0, 0, 1)
        for start, stop, step in zip(starts, stops, steps, strict=True)
    )


def _infer_slice(x: TensorType, starts: Ints, stops: Ints, steps: Ints) -> TensorType:
    return x.with_shape(sliced_shape("slice", ("x",), (x,), starts, stops, steps))


def _slice(x: np.ndarray, starts: Ints, stops: Ints, steps: Ints) -> np.ndarray:
    """The elements at `range(start, stop, step)` of each axis, as a view."""
    return np.asarray(x[(*numpy_slices(starts, stops, steps), ...)])


def _slice_vjp(
    g: Operand, y: Operand, x: Operand, starts: Ints, stops: Ints, steps: Ints
) -> tuple[Any, ...]:
    """Zeros around the cotangent; with gaps between its elements it is written into zeros."""
    if all(step == 1 for step in steps):
        high = zip(x.shape, starts, g.shape, strict=True)
        after = tuple(size - start - count for size, start, count in high)
        return (ops.pad(g, ops.zero(g), low=starts, high=after),)
    into = {"starts": starts, "stops": stops, "steps": steps}
    return (ops.update_slice(ops.zeros_like(x), g, **into),)


SLICES: tuple[tuple[Shape, dict[str, Ints]], ...] = (
    ((7,), {"starts": (1,), "stops": (6,), "steps": (1,)}),
    ((7,), {"starts": (6,), "stops": (-1,), "steps": (-1,)}),
    ((4, 9), {"starts": (0, 8), "stops": (4, 0), "steps": (1, -3)}),
    ((4, 9), {"starts": (1, 0), "stops": (2, 9), "steps": (1, 2)}),
    ((5, 3), {"starts": (2, 0), "stops": (2, 3), "steps": (1, 1)}),
    ((0,), {"starts": (-1,), "stops": (-1,), "steps": (-1,)}),
    ((), {"starts": (), "stops": (), "steps": ()}),
)


def _slice_strides(old: Shape, strides: Strides, starts: Ints, stops: Ints, steps: Ints) -> Strides:
    return tuple(stride * step for stride, step in zip(strides, steps, strict=True))


slice = declare(
    Op(
        "slice",
        _infer_slice,
        _slice,
        _slice_vjp,
        kind="view",
        samples=tuple(Sample((shape,), dict(attributes)) for shape, attributes in SLICES),
        batch=batching.slicing,
        strides=_slice_strides,
    )
)


def _infer_barrier(x: TensorType, *after: TensorType) -> TensorType:
    return x


barrier = declare(
    Op(
        "barrier",
        _infer_barrier,
        lambda x, *after: x,
        lambda g, y, x, *after: (g, *(None for _ in after)),
        kind="view",
        samples=(
            Sample(((2, 3),)),
            Sample(((2, 3), (4,))),
            Sample(((), (0, 2), (1,))),
        ),
        batch=batching.barrier,
        strides=lambda old, strides: strides,
    )
)
"""The first operand, as a value of its own that is there when the others have been computed.

No pass computes once what follows from a value and what follows from its barrier, and no kernel
reads the barrier before it has those others. With one operand it is what a backward asks for of a
checkpointed block: see `lucid.ir.passes.rematerialize`.
"""
