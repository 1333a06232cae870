"""Contractions over named axes: which loops they are, and how these are tiled.

A convolution is one of windows over the padded input with the weights. Nothing is copied: every
operand is read where it lies, by its strides. The axes are those of rows (in the first operand and
the result), columns (in the second one and the result), batch (in all three) and inner ones, which
are summed over. The lanes of a vector run along a column axis, while the first operand is repeated
to all of them; or along an inner axis, and then every result is a dot product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from lucid.codegen import costs
from lucid.codegen.kernel_ir.instruction import Inst
from lucid.codegen.kernel_ir.nest import forms_of, without_dim
from lucid.codegen.llvm.target import Target
from lucid.ir.extents import hint, is_multiple, is_open


@dataclass(frozen=True, slots=True)
class Padded:
    """An axis of a padded operand along which windows slide.

    Attributes:
        number: of it among the others. `low`, `high`: the first element that isn't padding, and
            the first one behind them.
    """

    number: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop of a contraction.

    Attributes:
        kind: "batch", "row" (of a and the result), "column" (of b and the result) or "inner".
        a, b: strides in the operands, in elements.
        dim: which dim of the result it is; -1 for an inner axis.
        padded: what it moves along, so many elements at a time, with one other axis: the position
            of a window, and the place in it.
    """

    kind: str
    size: int
    a: int
    b: int
    dim: int = -1
    padded: Padded | None = None
    by: int = 0

    def swapped(self) -> Axis:
        """The same loop after the operands changed places."""
        kind = {"row": "column", "column": "row"}.get(self.kind, self.kind)
        return replace(self, kind=kind, a=self.b, b=self.a)


@dataclass(frozen=True, slots=True)
class Blocking:
    """The loops of a contraction, outermost first.

    Attributes:
        loops: the axes of the result. `steps`: elements of each that a tile takes.
        inner: the axes that are summed over.
        vector: position of the axis of the lanes in `loops`; -1 when it is the last inner axis.
        swapped: the first operand is the rhs.
    """

    loops: tuple[Axis, ...]
    steps: tuple[int, ...]
    inner: tuple[Axis, ...]
    vector: int
    lanes: int
    swapped: bool


def merge_axes(axes: Sequence[Axis], insts: list[Inst]) -> tuple[list[Axis], list[Inst]]:
    """Make one axis of neighbours that all operands and instructions walk through without a gap."""
    merged: list[Axis] = []
    for axis in axes:
        before = merged[-1] if merged else None
        if before is not None and _continues(before, axis, insts):
            merged[-1] = replace(axis, size=before.size * axis.size)
            insts = [without_dim(inst, before.dim) for inst in insts]
        else:
            merged.append(axis)
    return merged, insts


def _continues(outer: Axis, inner: Axis, insts: Sequence[Inst]) -> bool:
    if outer.kind != inner.kind or outer.padded or inner.padded:
        return False
    if (outer.a, outer.b) != (inner.a * inner.size, inner.b * inner.size):
        return False
    return inner.dim < 0 or all(
        f.coefficient(outer.dim) == f.coefficient(inner.dim) * inner.size for f in forms_of(insts)
    )


def cut_axis(
    inner: Sequence[Axis], wanted: int, whole: int = 0
) -> tuple[Axis, tuple[Axis, ...]] | None:
    """So many parts of the inner indices, or some more, as a batch axis, and the rest of them.

    It is an outer axis, unless that has twice as many; the last `whole` ones stay. None if no axis
    is cut that evenly, or parts would be short.
    """
    depth, best = hint(prod(axis.size for axis in inner)), None
    for number, axis in enumerate(inner[: len(inner) - whole]):
        if is_open(axis.size):
            continue
        most = min(axis.size, depth // costs.INNER_PART)
        counts = (n for n in range(wanted, most + 1) if axis.size % n == 0)
        count = next(counts, None)
        if count is not None and (best is None or 2 * count <= best[0]):
            best = count, number
    if best is None:
        return None
    count, number = best
    axis = inner[number]
    size = axis.size // count
    part = replace(axis, size=size, padded=None, by=0)
    batch = Axis("batch", count, axis.a * size, axis.b * size)
    rest = (*inner[:number], part, *inner[number + 1 :])
    return batch, tuple(x for x in rest if x.size != 1) or rest[:1]


# The choice of the vector axis ----------------------------------------------------------------


def choose_blocking(
    axes: Sequence[Axis], insts: Sequence[Inst], element: str, target: Target
) -> Blocking:
    """Choose vector axis, tile and order of the loops by what a multiply-add then costs."""
    full = target.lanes(element)
    _, chosen = _lane_axis(axes, insts, full)
    swapped = chosen >= 0 and axes[chosen].kind == "row"
    if swapped:
        axes = [axis.swapped() for axis in axes]
    lanes = 1 if chosen < 0 else _lanes(hint(axes[chosen].size), full)
    vector = None if chosen < 0 else axes[chosen]
    return _blocked(axes, vector, lanes, swapped, target.registers)


def axes_cost(axes: Sequence[Axis], insts: Sequence[Inst], element: str, target: Target) -> float:
    """What the multiply-adds of one inner index cost, in those of full vectors."""
    full = target.lanes(element)
    cost, chosen = _lane_axis(axes, insts, full)
    is_folded = chosen < 0 or axes[chosen].kind == "inner"
    rounds: int = hint(prod(axis.size for axis in axes if axis.kind in ("row", "column")))
    return rounds / full * cost / (costs.FOLDED_LANES if is_folded else costs.AXES_LANES)


def _lane_axis(axes: Sequence[Axis], insts: Sequence[Inst], full: int) -> tuple[float, int]:
    """What a full vector's multiply-adds cost along the best axis, and its number; -1 for none."""
    depth = max(hint(prod(axis.size for axis in axes if axis.kind == "inner")), 1)
    best, chosen = 2.0 * full, -1
    for number, axis in enumerate(axes):
        if axis.kind == "batch" or not axis.size:
            continue
        size = hint(axis.size)
        cost = full / (size / -(-size // _lanes(size, full)))
        if axis.kind == "inner":
            cost *= _reading(axis.a) * _reading(axis.b)
            cost += costs.FOLDING * full / depth
        else:
            cost *= _reading(axis.b if axis.kind == "column" else axis.a)
            stores = (f for f in forms_of([i for i in insts if i.op == "store"]))
            strided = any(abs(f.coefficient(axis.dim)) != 1 for f in stores)
            cost += 2 * full / depth if strided else 0
        if cost < best:
            best, chosen = cost, number
    return best, chosen


def _lanes(size: int, full: int) -> int:
    """A vector no longer than the axis: the next power of two."""
    return min(full, 1 << max(size - 1, 0).bit_length())


def _reading(stride: int) -> float:
    stride = hint(stride)
    if stride in (0, 1):
        return 1.0
    return costs.NEAR_LOAD if 2 <= stride <= 4 else costs.FAR_LOAD


# Tiles ----------------------------------------------------------------------------------------


def _blocked(
    axes: Sequence[Axis], chosen: Axis | None, lanes: int, swapped: bool, registers: int
) -> Blocking:
    dots = chosen is not None and chosen.kind == "inner"
    rows = sorted((x for x in axes if x.kind == "row"), key=lambda x: hint(x.size))
    columns = sorted((x for x in axes if x.kind == "column"), key=lambda x: -abs(hint(x.b)))
    inner = [x for x in axes if x.kind == "inner" and x is not chosen]
    if chosen is not None:
        if dots:
            inner.append(chosen)
        else:
            columns = [*(x for x in columns if x is not chosen), chosen]
    counts = [
        hint(x.size if dots or x is not chosen else -(-x.size // lanes)) for x in columns[-2:]
    ]
    height, *widths = best_tile(hint(rows[-1].size) if rows else 1, counts[::-1], registers, dots)
    steps = {id(rows[-1]): height} if rows else {}
    for axis, width in zip(columns[::-1], widths, strict=False):
        steps[id(axis)] = width * (lanes if axis is chosen else 1)
    outside = [x for x in axes if x.kind == "batch"] + rows[:-1]
    among = 1 if _is_better_outside(columns, rows, inner, steps) else 2
    free, tiled = columns[:-among], [*rows[-1:], *columns[-among:]]
    # The rows of a dot product are long: they stay in the cache while the columns run.
    loops = [*outside, *rows[-1:], *columns] if dots else [*outside, *free, *tiled]
    vector = -1 if dots else next((n for n, axis in enumerate(loops) if axis is chosen), -1)
    found = tuple(steps.get(id(axis), 1) for axis in loops)
    return Blocking(tuple(loops), found, tuple(inner), vector, lanes, swapped)


def _is_better_outside(
    columns: Sequence[Axis], rows: Sequence[Axis], inner: Sequence[Axis], steps: dict[int, int]
) -> bool:
    """Whether the last column axis but one goes around the rows, as examples of a batch do.

    All rows are then read anew for each of its elements, otherwise the columns for each tile.
    """
    if len(columns) < 2 or not rows or steps[id(columns[-2])] > 1:
        return False
    size, height = hint(rows[-1].size), steps[id(rows[-1])]
    read = size * hint(prod(axis.size for axis in inner))
    return bool(read <= -(-size // height) * abs(hint(columns[-2].b)))


def best_tile(
    rows: int, columns: Sequence[int], registers: int, dots: bool = False
) -> tuple[int, ...]:
    """Rows of the tile that covers everything in the least time, then its extent on each axis.

    The columns' counts are given from the innermost axis outwards; an outer one is tiled only
    where the tile has all of the inner one. Time of a round: one unit per multiply-add or load of
    a scalar, two per load of a vector, which mostly crosses a cache line, and not less than the
    eight multiply-adds that must be in flight to hide their latency.
    """
    best: tuple[float, tuple[int, ...]] | None = None
    inner, outer = (*columns, 1, 1)[:2]
    for height, width, depth in _tiles(rows, inner, outer):
        count = width * depth
        if height * count + min(height, count) + 2 >= registers:
            continue
        total, bodies = 0.0, 0
        parts = (_parts(rows, height), _parts(inner, width), _parts(outer, depth))
        for (h, a), (w, b), (d, c) in product(*parts):
            loads = 2 * (h + w * d) if dots else h + 2 * w * d
            total += a * b * c * (max(h * w * d, loads, 8) + 0.5)
            bodies += 1
        score = total * (1 + 0.02 * bodies)
        if best is None or score < best[0] * (1 - 1e-9):
            best = score, (height, width, depth)[: 1 + len(columns)]
    return best[1] if best else (1,) * (1 + len(columns))


def _tiles(rows: int, inner: int, outer: int) -> Iterator[tuple[int, int, int]]:
    for height in range(1, min(rows, 14) + 1):
        for width in range(1, min(inner, 12) + 1):
            for depth in range(1, min(outer, 12) + 1 if width == inner else 2):
                yield height, width, depth


def _parts(size: int, step: int) -> list[tuple[int, int]]:
    """Extents of the tiles along an axis, with how many there are."""
    return [(n, count) for n, count in ((step, size // step), (size % step, 1)) if n and count]


def inner_block(blocking: Blocking, itemsize: int) -> int:
    """Elements of the first inner axis whose operands stay in the second-level cache; 0 for all.

    A dot product reads every row of a tile anew for every tile of columns. Sums of a block take
    some time to fold, so it must have some rounds.
    """
    first, *rest = blocking.inner or (None,)
    if first is None or not rest or blocking.vector >= 0 or blocking.lanes == 1:
        return 0
    far, rounds = abs(hint(first.a)) + abs(hint(first.b)), hint(prod(axis.size for axis in rest))
    most = max(costs.FOLDED_BYTES // (max(far, 1) * itemsize), 1)
    least = -(-costs.LEAST_ROUNDS * blocking.lanes // max(rounds, 1))
    last = min(most, hint(first.size) - 1)
    sizes = [n for n in range(least, last + 1) if is_multiple(first.size, n)]
    return max(sizes, default=0)


def unrolled(inner: Sequence[Axis], accumulators: int) -> int:
    """How many of the inner axes, from the last one on, are to be unrolled."""
    work, found = max(accumulators, 1), 0
    for axis in reversed(inner):
        work *= hint(axis.size)
        if is_open(axis.size):
            break
        if work > costs.UNROLLED_PRODUCT:
            break
        found += 1
    return found
