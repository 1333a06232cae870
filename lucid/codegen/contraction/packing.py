"""Copies of matrix operands in the order in which the register tile reads them."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.codegen.llvm.builder import FunctionBuilder, Module, Val, const, const_lanes, i64, vector
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


def define_transpose(module: Module, element: str, lanes: int) -> str:
    """Define `void (source, source stride, destination, destination stride)` of a square block.

    It moves lanes x lanes elements through registers. One function for the whole module: inlined
    shuffles are what takes the longest to compile.
    """
    name = f"lucid_transpose_{element}{lanes}"
    if name in module.functions:
        return name
    parameters = [
        ("ptr", "source"),
        ("i64", "source_stride"),
        ("ptr", "destination"),
        ("i64", "destination_stride"),
    ]
    with FunctionBuilder(module, name, parameters, internal=True, attributes="noinline") as b:
        source, source_stride, destination, destination_stride = b.args
        type_ = vector(element, lanes)
        rows = [b.load(type_, b.at(element, source, b.mul(source_stride, i))) for i in range(lanes)]
        for i, column in enumerate(transpose(b, rows)):
            b.store(column, b.at(element, destination, b.mul(destination_stride, i)))
        b.ret()
    return name


def transpose(
    b: FunctionBuilder, rows: Sequence[Val], columns: Sequence[int] | None = None
) -> list[Val]:
    """Columns of a square block of rows, all by default.

    log2(lanes) rounds of two-operand shuffles: round s exchanges the off-diagonal s x s blocks of
    every 2s x 2s block. What no column needs isn't shuffled.
    """
    lanes = len(rows)
    wanted = range(lanes) if columns is None else columns
    current = dict(enumerate(rows))
    for size, needed in _transpose_rounds(lanes, wanted):
        low = [lane if not lane & size else (lane ^ size) + lanes for lane in range(lanes)]
        high = [lane | size if not lane & size else lane + lanes for lane in range(lanes)]
        current = {
            i: b.shuffle(current[i & ~size], current[i | size], high if i & size else low)
            for i in needed
        }
    return [current[i] for i in wanted]


def shuffles(lanes: int, columns: Sequence[int]) -> int:
    """How many shuffles `transpose` makes for these columns."""
    return sum(len(needed) for _, needed in _transpose_rounds(lanes, columns))


def _transpose_rounds(lanes: int, columns: Sequence[int]) -> list[tuple[int, list[int]]]:
    """The rounds, each with the vectors that later ones need of it."""
    found, needed, size = list[tuple[int, list[int]]](), sorted(columns), 1
    while size < lanes:
        found.append((size, needed))
        needed = sorted({i ^ flipped for i in needed for flipped in (0, size)})
        size *= 2
    return found[::-1]
