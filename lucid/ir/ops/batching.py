"""Batching rules: an op on many examples at once, as one application of the op, or of few.

A rule is called `rule(op, size, batched, *operands, **attributes)`. Operands marked in `batched`,
at least one, have a leading axis of `size` examples that the op's attributes don't know of. The
result has that axis too, and holds for each example what the op gives for it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from lucid.ir import ops
from lucid.ir.op import Op, Operand
from lucid.ir.types import Shape, bool_

Flags = tuple[bool, ...]
Ints = tuple[int, ...]


def _with_rank(x: Operand, rank: int) -> Any:
    """Give each example `rank` axes, as broadcasting would: with 1s after the batch axis."""
    shape = x.shape
    if len(shape) == rank + 1:
        return x
    return ops.reshape_to(x, (shape[0], *(1,) * (rank + 1 - len(shape)), *shape[1:]))


def _rank(x: Operand, is_batched: bool) -> int:
    return len(x.shape) - is_batched


def _spread(size: int, batched: Flags, operands: tuple[Operand, ...]) -> list[Any]:
    """Repeat what is the same for all examples."""
    return [
        x if is_batched else ops.broadcast(x, shape=(size, *x.shape))
        for x, is_batched in zip(operands, batched, strict=True)
    ]


def elementwise(op: Op, size: int, batched: Flags, *operands: Operand, **attributes: Any) -> Any:
    """Align the examples' axes on the right, as the op broadcasts."""
    rank = max(map(_rank, operands, batched))
    aligned = [
        _with_rank(x, rank) if is_batched else x
        for x, is_batched in zip(operands, batched, strict=True)
    ]
    return op(*aligned, **attributes)


def reduction(op: Op, size: int, batched: Flags, x: Operand, axes: Ints) -> Any:
    """Fold the same axes, one further."""
    return op(x, axes=tuple(axis + 1 for axis in axes))


def along_axis(
    op: Op, size: int, batched: Flags, *operands: Operand, axis: int, **attributes: Any
) -> Any:
    """Work along the same axis, one further, with every operand for every example."""
    return op(*_spread(size, batched, operands), axis=axis + 1, **attributes)


def broadcast(op: Op, size: int, batched: Flags, x: Operand, shape: Shape) -> Any:
    """Broadcast each example."""
    return op(_with_rank(x, len(shape)), shape=(size, *shape))


def reshape(op: Op, size: int, batched: Flags, x: Operand, shape: Shape) -> Any:
    """Reshape each example: row-major order has the examples outermost."""
    return op(x, shape=(size, *shape))


def transpose(op: Op, size: int, batched: Flags, x: Operand, perm: Ints) -> Any:
    """Leave the batch axis in front."""
    return op(x, perm=(0, *(axis + 1 for axis in perm)))


def last_axes(op: Op, size: int, batched: Flags, x: Operand) -> Any:
    """What looks at the last axes alone takes the examples as it takes others in front."""
    return op(x)


def slicing(
    op: Op, size: int, batched: Flags, *operands: Operand, starts: Ints, stops: Ints, steps: Ints
) -> Any:
    """Take the batch axis whole: for `slice` and `update_slice`."""
    whole = {"starts": (0, *starts), "stops": (size, *stops), "steps": (1, *steps)}
    return op(*_spread(size, batched, operands), **whole)


def barrier(op: Op, size: int, batched: Flags, x: Operand, *after: Operand) -> Any:
    """Wait for what the others are of all examples."""
    return op(*_spread(size, batched[:1], (x,)), *after)


def pad(
    op: Op, size: int, batched: Flags, x: Operand, value: Operand, low: Ints, high: Ints
) -> Any:
    """Pad each example; values that differ are chosen where a padded mask says border."""
    if not batched[1]:
        return op(x, value, low=(0, *low), high=(0, *high))
    shape = x.shape[batched[0] :]
    border = ops.pad(ops.full(x, False, shape, bool_), x.constant(True, bool_), low=low, high=high)
    wide = op(_spread(size, batched[:1], (x,))[0], ops.zero(x), low=(0, *low), high=(0, *high))
    return ops.where(border, _with_rank(value, len(shape)), wide)


def take(op: Op, size: int, batched: Flags, x: Operand, index: Operand, axis: int) -> Any:
    """Take along the shifted axis; an index of each example's own becomes a gather."""
    if not batched[1]:
        return op(x, index, axis=axis + 1)
    if not batched[0]:
        taken = op(x, index, axis=axis)
        rank = len(taken.shape)
        return ops.transpose(taken, perm=(axis, *(i for i in range(rank) if i != axis)))
    before, behind = x.shape[1 : axis + 1], x.shape[axis + 2 :]
    taken = ops.gather(x, _spread_index(index, before, behind), axis=axis + 1)
    return ops.reshape_to(taken, (size, *before, *index.shape[1:], *behind))


def _spread_index(index: Operand, before: Shape, behind: Shape) -> Any:
    """An index per example, for the slice form, as one for the form along an axis."""
    size, count = index.shape[0], prod(index.shape[1:])
    flat = (size, *(1 for _ in before), count, *(1 for _ in behind))
    return ops.broadcast_to(ops.reshape_to(index, flat), (size, *before, count, *behind))


def slice_write(along: str) -> Callable[..., Any]:
    """Return the rule of `index_add` or `index_set`; `along` names the op per element."""

    def rule(
        op: Op,
        size: int,
        batched: Flags,
        base: Operand,
        index: Operand,
        source: Operand,
        axis: int,
    ) -> Any:
        base, source = _spread(size, (batched[0], batched[2]), (base, source))
        if not batched[1]:
            return op(base, index, source, axis=axis + 1)
        before, behind = base.shape[1 : axis + 1], base.shape[axis + 2 :]
        wide = _spread_index(index, before, behind)
        flat = ops.reshape_to(source, wide.shape)
        return getattr(ops, along)(base, wide, flat, axis=axis + 1)

    return rule


def windows(op: Op, size: int, batched: Flags, x: Operand, axes: Ints, **place: Ints) -> Any:
    """Slide along the same axes, one further: for `windows` and `overlap_add`."""
    return op(x, axes=tuple(axis + 1 for axis in axes), **place)


def contract(op: Op, size: int, batched: Flags, a: Operand, b: Operand, indices: str) -> Any:
    """Name the examples' axis by a letter that is free."""
    free = next(letter for letter in "abcdefghijklmnopqrstuvwxyz" if letter not in indices)
    terms, result = indices.split("->")
    named = zip(terms.split(","), batched, strict=True)
    wider = ",".join(free + term if is_batched else term for term, is_batched in named)
    return op(a, b, indices=f"{wider}->{free}{result}")


def matmul(op: Op, size: int, batched: Flags, a: Operand, b: Operand) -> Any:
    """Let the examples be one more axis of the batch that `matmul` has anyway."""
    rank = max(_rank(a, batched[0]), _rank(b, batched[1]))
    a = _with_rank(a, rank) if batched[0] else a
    b = _with_rank(b, rank) if batched[1] else b
    return op(a, b)
