"""Square blocks whose rows become columns, in registers."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.codegen.llvm.builder import FunctionBuilder, Module, Val, vector


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
        places = [b.at(element, source, b.mul(source_stride, row)) for row in range(lanes)]
        rows = [b.load(type_, place) for place in places]
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
