"""Copies of matrix operands in the order in which the register tile reads them."""

from __future__ import annotations

from lucid.codegen.emit import memory
from lucid.codegen.llvm.builder import (
    FunctionBuilder,
    Val,
    const,
    const_lanes,
    i64,
    iota,
    vector,
)
from lucid.codegen.llvm.transposing import define_transpose
from lucid.ir.extents import is_open


def pack_rows(
    b: FunctionBuilder,
    source: Val,
    destination: Val,
    *,
    element: str,
    k: int,
    height: int,
    strides: tuple[int, int],
) -> None:
    """destination[k, i] = source[i, k] for `height` rows."""
    with b.loop(0, k) as loop:
        column = b.pinned(b.at(element, source, b.mul(loop.index, strides[1])))
        to = b.pinned(b.at(element, destination, b.mul(loop.index, height)))
        if strides[0] == 1:
            b.store(b.load(vector(element, height), column), to)
        else:
            for i in range(height):
                value = b.load(element, b.at(element, column, i * strides[0]))
                b.store(value, b.at(element, to, i))


def pack_panel(
    b: FunctionBuilder,
    source: Val,
    destination: Val,
    *,
    element: str,
    k: int,
    strides: tuple[int, int],
    lanes: int,
    width: int,
    tail: Val | int,
) -> None:
    """destination[k, c] = source[k, c] for `width` vectors of columns c.

    Args:
        tail: lanes of the last vector, which is filled up with zeros; 0 for all. If it is known
            only while code runs: columns that there are, and it is filled up with any numbers.
    """
    for v in range(width):
        start = b.at(element, source, v * lanes * strides[1])
        to = b.at(element, destination, v * lanes)
        where = b, start, to, element, k, strides, lanes, width * lanes
        if v < width - 1:
            _pack_vector(*where, lanes)
        elif isinstance(tail, Val):
            _pack_open_vector(*where, b.sub(tail, v * lanes))
        else:
            _pack_vector(*where, tail or lanes)


def _pack_vector(
    b: FunctionBuilder,
    source: Val,
    destination: Val,
    element: str,
    k: int,
    strides: tuple[int, int],
    lanes: int,
    stride: int,
    count: int,
) -> None:
    """destination[k * stride : + lanes] = the first `count` columns of row k of the source."""
    start = 0
    if strides[0] == 1 and count == lanes and lanes > 1 and (is_open(k) or k >= lanes):
        name = define_transpose(b.module, element, lanes)
        start = k - k % lanes
        with b.loop(0, start, lanes) as loop:
            block = b.at(element, source, loop.index)
            to = b.at(element, destination, b.mul(loop.index, stride))
            b.call(name, "void", block, i64(strides[1]), to, i64(stride))
    if not is_open(k) and start == k:
        return
    type_ = vector(element, lanes)
    mask = const_lanes("i1", [lane < count for lane in range(lanes)])
    with b.loop(start, k) as loop:
        row = b.at(element, source, b.mul(loop.index, strides[0]))
        if strides[1] != 1:
            scalars = [b.load(element, b.at(element, row, i * strides[1])) for i in range(count)]
            value = b.build([*scalars, *[const(element, 0)] * (lanes - count)])
        elif count == lanes:
            value = b.load(type_, row)
        else:
            value = b.masked_load(type_, row, mask)
        b.store(value, b.at(element, destination, b.mul(loop.index, stride)))


def _pack_open_vector(
    b: FunctionBuilder,
    source: Val,
    destination: Val,
    element: str,
    k: int,
    strides: tuple[int, int],
    lanes: int,
    stride: int,
    count: Val,
) -> None:
    """The same of columns that code counts, perhaps more than lanes; behind them the last again."""
    type_, start = vector(element, lanes), 0
    last = b.sub(count, 1)
    last = b.select(b.lt(last, lanes - 1), last, lanes - 1)
    if strides[0] == 1 and (is_open(k) or k >= lanes):
        name = define_transpose(b.module, element, lanes, is_cut=True)
        start = k - k % lanes
        with b.loop(0, start, lanes) as loop:
            block = b.at(element, source, loop.index)
            to = b.at(element, destination, b.mul(loop.index, stride))
            b.call(name, "void", block, i64(strides[1]), to, i64(stride), last)
    if not is_open(k) and start == k:
        return
    mask = b.tail_mask(lanes, count)
    lane = iota("i64", lanes)
    bound = b.splat(last, lanes)
    offsets = b.mul(b.select(b.lt(lane, bound), lane, bound), strides[1])
    with b.loop(start, k) as loop:
        row = b.at(element, source, b.mul(loop.index, strides[0]))
        if strides[1] == 1:
            value = b.masked_load(type_, row, mask)
        else:
            value = memory.gather(b, type_, memory.pointers_at(b, element, row, offsets), None)
        b.store(value, b.at(element, destination, b.mul(loop.index, stride)))
