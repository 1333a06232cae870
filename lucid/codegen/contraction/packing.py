"""Copies of matrix operands in the order in which the register tile reads them."""

from __future__ import annotations

from lucid.codegen.llvm.builder import FunctionBuilder, Val, const, const_lanes, i64, vector
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


def pack_columns(
    b: FunctionBuilder,
    source: Val,
    destination: Val,
    *,
    element: str,
    k: int,
    n: int,
    strides: tuple[int, int],
    lanes: int,
    width: int,
) -> None:
    """Panels of width * lanes columns, each stored [k, columns]; the last one may be narrower.

    It is filled up with zeros to whole vectors.
    """
    panel = width * lanes

    def one(column: Val, vectors: int, tail: int) -> None:
        to = b.at(element, destination, b.mul(column, k))
        for v in range(vectors):
            count = tail if tail and v == vectors - 1 else lanes
            first = b.add(column, v * lanes)
            start = b.at(element, source, b.mul(first, strides[1]))
            stride = vectors * lanes
            _pack_vector(
                b, start, b.at(element, to, v * lanes), element, k, strides, lanes, count, stride
            )

    if n >= panel:
        with b.loop(0, n - n % panel, panel) as loop:
            one(loop.index, width, 0)
    rest = n % panel
    if rest:
        one(i64(n - rest), -(-rest // lanes), rest % lanes)


def _pack_vector(
    b: FunctionBuilder,
    source: Val,
    destination: Val,
    element: str,
    k: int,
    strides: tuple[int, int],
    lanes: int,
    count: int,
    stride: int,
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
