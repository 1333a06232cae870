"""Where temps lie in the arena: memory is used again when nobody needs its old contents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lucid.codegen.kernel_ir.regions import Buffer
from lucid.ir.extents import ceil_div, hint, is_open
from lucid.ir.memory import ALIGNMENT


def place(
    spans: Mapping[Buffer, tuple[int, int]], sizes: Mapping[Buffer, int] | None = None
) -> tuple[dict[Buffer, int], int]:
    """Offsets in one arena: the largest first, each at the lowest place free for its life.

    Args:
        spans: the first and the last call that uses each temp.
        sizes: their elements; by themselves what the buffers say.

    Returns: the offsets, and the arena's size.
    """
    taken_by = {
        buffer: size_of(buffer, None if sizes is None else sizes[buffer]) for buffer in spans
    }
    order = sorted(spans, key=lambda buffer: (-taken_by[buffer], buffer.index))
    placed = np.empty((4, len(order)), np.int64)  # start, stop, first and last call, by start
    offsets: dict[Buffer, int] = {}
    for count, buffer in enumerate(order):
        first, last = spans[buffer]
        size = taken_by[buffer]
        before = placed[:, :count]
        taken = before[:2].compress((before[2] <= last) & (before[3] >= first), axis=1)
        offset = offsets[buffer] = _lowest(taken, size)
        at = np.searchsorted(before[0], offset, side="right")
        placed[:, at + 1 : count + 1] = placed[:, at:count]
        placed[:, at] = offset, offset + size, first, last
    return offsets, int(placed[1].max(initial=0))


def place_open(spans: Mapping[Buffer, tuple[int, int]]) -> tuple[dict[Buffer, Any], Any]:
    """The same where sizes are open, and nobody places temps again when they are known.

    A temp is laid where one of the same size is dead, or behind all others.
    """
    offsets: dict[Buffer, Any] = {}
    free: dict[Any, list[tuple[int, Any]]] = {}  # by sizes: until which call places are taken
    total: Any = 0
    for buffer, (first, last) in sorted(spans.items(), key=lambda entry: entry[1]):
        size: Any = ceil_div(buffer.size * buffer.dtype.itemsize, ALIGNMENT) * ALIGNMENT
        places = free.setdefault(size.key if is_open(size) else size, [])
        found = next((n for n, (until, _) in enumerate(places) if until < first), None)
        if found is None:
            offsets[buffer], total = total, total + size
        else:
            offsets[buffer] = places.pop(found)[1]
        places.append((last, offsets[buffer]))
    return offsets, total


def size_of(buffer: Buffer, elements: int | None = None) -> int:
    """Bytes, rounded up so that the next one is aligned."""
    count = hint(buffer.size) if elements is None else elements
    return -(-count * buffer.dtype.itemsize // ALIGNMENT) * ALIGNMENT


def _lowest(taken: np.ndarray, size: int) -> int:
    """The lowest offset of a gap of `size` bytes between intervals (row 0 to row 1) in order."""
    starts, stops = taken
    free_from = np.zeros(len(stops) + 1, np.int64)
    np.maximum.accumulate(stops, out=free_from[1:])
    fits = starts - free_from[:-1] >= size
    first = int(fits.argmax()) if len(fits) else 0
    return int(free_from[first if len(fits) and fits[first] else -1])
