"""Matrix products as loops around one register tile, with the consumer fused as an epilogue.

A tile holds height x width-vectors accumulators while k runs over the whole inner dimension, so
every element is summed in the order of k: the result depends on neither blocking nor threads.
B is read as row vectors, A through broadcasts, both where they lie or were copied (`blocked.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from lucid.codegen import costs
from lucid.codegen.contraction.contraction import Contraction, plan
from lucid.codegen.emit.lines import smaller
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const, const_lanes, i64, vector
from lucid.codegen.llvm.target import ELEMENT_BYTES
from lucid.ir.extents import ceil_div, hint, is_open


@dataclass(frozen=True, slots=True)
class Position:
    """Where a vector of results belongs: C[row, col : col + lanes].

    Attributes:
        mask: the lanes that exist; None for all.
    """

    row: Val
    col: Val
    mask: Val | None


Bounds = tuple[Val | int, Val | int]
Epilogue = Callable[[FunctionBuilder, Val, Position], None]
"""Stores, or uses otherwise, a vector of finished sums."""
Ask = Callable[[Val], None]
"""Asks for some of the lines that a tile will need, with a line of inner indices that begins."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Columns that a tile computes: the first one, and how its part of B is read.

    Attributes:
        tail: lanes of the last vector; 0 for all; None: as many as are left of the columns.
        depth: how many inner indices there are; None for all.
    """

    col: Val
    width: int
    pointer: Val
    stride: int
    tail: int | None
    depth: Val | None = None


class Emitter:
    """Writes the loops of one contraction.

    Args:
        operands: where A and B are.
        epilogue: called where a vector of sums is finished.
    """

    def __init__(
        self,
        b: FunctionBuilder,
        spec: Contraction,
        operands: tuple[Val, Val],
        epilogue: Epilogue,
    ) -> None:
        self.b = b
        self.spec = spec
        self.plan = plan(spec, b.target)
        self.epilogue = epilogue
        self.a, self.b_source = operands
        self.type = vector(spec.element, self.plan.lanes)
        self.line = costs.LINE_BYTES // ELEMENT_BYTES[spec.element]
        self.lines = max(1, hint(spec.k) // self.line)  # of inner indices, where rows are asked for
        self.prepare: Callable[[Val, Val, int], None] | None = None
        self.columns: Bounds = 0, spec.n
        self.is_padded = False  # B has whole vectors, also behind its last column

    def run(self, rows: Bounds) -> None:
        """Append some rows of these columns to the function."""
        if self.plan.dots:
            self._dots(rows)
        else:
            self._over_columns(lambda *panel: self._rows(rows, self._panel(*panel)))

    def _over_columns(self, inside: Callable[[Val, int, int | None], None]) -> None:
        """Run `inside` for the first column, the width and the tail of each panel.

        Those of a part are whole panels, or go up to the last one.
        """
        b, n, (first, last) = self.b, self.spec.n, self.columns
        whole, *rest = self.plan.panels

        def behind() -> None:
            for panels in rest:
                if not is_open(n):
                    inside(i64(panels.low), panels.width, panels.tail)
                    continue
                with b.loop(panels.low, panels.high, panels.width * self.plan.lanes) as loop:
                    inside(loop.index, panels.width, panels.tail)

        if is_open(whole.high) or whole.high:
            stop: Val | int = whole.high
            if isinstance(last, Val):
                stop = smaller(b, last, whole.high) if rest or is_open(n) else last
            with b.loop(first, stop, self.plan.panel) as loop:
                inside(b.pinned(loop.index), whole.width, whole.tail)
        if not rest:
            return
        if isinstance(last, Val):
            with b.if_(b.and_(b.eq(last, n), b.lt(i64(first), last))):
                behind()
        else:
            behind()

    # Rows and panels ----------------------------------------------------------------------

    def _rows(self, rows: Bounds, panel: Panel) -> None:
        """Tiles of these rows, which are whole ones or go up to the last row, against a panel."""
        b, m, height, (low, high) = self.b, self.spec.m, self.plan.height, rows
        rest: Any = m % height
        full: Any = m - rest

        def tiles(low: Val | int, high: Val | int, height: int) -> None:
            with b.loop(low, high, height) as loop:
                self._tile_at(b.pinned(loop.index), height, panel)

        if is_open(full) or full:
            is_whole = not is_open(rest) and not rest
            end = high if is_whole else full
            if isinstance(high, Val) and not is_whole:
                end = smaller(b, high, full)
            tiles(low, end, height)
        if is_open(rest) or rest:
            if isinstance(high, Val):
                with b.if_(b.eq(high, m)):
                    self._last_rows(tiles)
            else:
                self._last_rows(tiles)

    def _last_rows(self, block: Callable[[Val | int, Val | int, int], None]) -> None:
        """The rows behind whole tiles: in one lower tile; if it is open how many, in some."""
        m, height = self.spec.m, self.plan.height
        if not is_open(m % height):
            if m % height:
                block(m - m % height, m, m % height)
            return
        low: Any = m - m % height
        for lower in (8, 4, 2, 1):
            if lower < height:
                high = low + (m - low) // lower * lower
                block(low, high, lower)
                low = high

    def _panel(self, col: Val, width: int, tail: int | None) -> Panel:
        line, step = self.spec.b_strides
        pointer = self.b.at(self.spec.element, self.b_source, self.b.mul(col, step))
        return Panel(col, width, pointer, line, tail)

    def _tile_at(self, row: Val, height: int, panel: Panel) -> None:
        """The tile whose first row this is."""
        ask = self._asking(row, height, panel)
        sums = self._tile(self._lines(row, height), height, panel, ask=ask)
        self._finish(sums, row, height, panel)

    def _lines(self, row: Val, height: int) -> Val:
        """Where the rows of a tile begin in A."""
        return self.b.at(self.spec.element, self.a, self.b.mul(row, self.spec.a_strides[0]))

    def _asking(self, row: Val, height: int, panel: Panel) -> Ask | None:
        """Ask for what a tile reads and fills once its sums are done, some rows at a time.

        A processor waits for few lines at once: all of them together would keep what is multiplied
        waiting, too.
        """
        b, prepare = self.b, self.prepare
        if prepare is None:
            return None
        each = ceil_div(height, self.lines)

        def ask(k: Val) -> None:
            first = b.mul(b.binary("udiv", k, self.line), each)
            with b.if_(b.lt(first, height)):
                for i in range(each):
                    at = smaller(b, b.add(first, i), height - 1)
                    prepare(b.add(row, at), panel.col, panel.width * self.plan.lanes)

        return ask

    # The register tile --------------------------------------------------------------------

    def _tile(
        self,
        tile: Val,
        height: int,
        panel: Panel,
        before: Sequence[Val] = (),
        ask: Ask | None = None,
    ) -> list[Val]:
        """Sums over all of k, row by row, added to those `before`."""
        b, depth = self.b, self.spec.k if panel.depth is None else panel.depth
        mask = None if self.is_padded else self._mask(panel)
        sums = list(before) or [const(self.type, 0)] * (height * panel.width)
        # LLVM mixes the steps of a tile of one vector, whose scalars serve once: sums then wait in
        # memory. One of 6 x 2 has 78 GFLOP/s of two steps, 68 of one. More than 4 only take time.
        most = b.target.registers if panel.width == 1 else 32
        unroll = next(n for n in (4, 2, 1) if n == 1 or n * len(sums) <= most)

        def steps(sums: Sequence[Val], k: Val, count: int) -> list[Val]:
            return self._steps(sums, tile, panel, k, count, mask)

        low: Any = 0
        if ask is not None:
            low = self._whole(depth, self.line)
            if type(low) is int and not low:
                ask(i64(0))
            else:
                with b.loop(0, low, self.line, sums) as lines:
                    ask(lines.index)
                    with b.loop(0, self.line, unroll, lines.carried) as loop:
                        k = b.add(lines.index, loop.index)
                        loop.carry(*steps(loop.carried, k, unroll))
                    lines.carry(*loop.results)
                sums = lines.results
        for count in (unroll, 1) if unroll > 1 else (1,):
            high = self._whole(depth, count)
            if type(high) is int and type(low) is int and high - low <= count:
                sums = steps(sums, i64(low), high - low) if low < high else sums
            else:
                with b.loop(low, high, count, sums) as loop:
                    loop.carry(*steps(loop.carried, loop.index, count))
                sums = loop.results
            low = high
        return sums

    def _whole(self, count: Any, step: int) -> Any:
        """The multiple of `step` up to a number, which code may find."""
        if isinstance(count, Val):
            return self.b.sub(count, self.b.binary("urem", count, step)) if step > 1 else count
        return count - count % step

    def _steps(
        self,
        sums: Sequence[Val],
        tile: Val,
        panel: Panel,
        k: Val,
        count: int,
        mask: Val | None,
    ) -> list[Val]:
        """Rounds k .. k + count - 1; in the mask are the lanes of the last vector to load."""
        b, element, width = self.b, self.spec.element, panel.width
        strides, apart = self.spec.a_strides, self.plan.lanes * self.spec.b_strides[1]
        sums = list(sums)
        height = len(sums) // width
        a = b.pinned(b.at(element, tile, b.mul(k, strides[1])))
        row = b.pinned(b.at(element, panel.pointer, b.mul(k, panel.stride)))
        for step in range(count):
            vectors = []
            for v in range(width):
                at = b.at(element, row, step * panel.stride + v * apart)
                vectors.append(self._load(at, mask if v == width - 1 else None))
            for i in range(height):
                scalar = b.load(element, b.at(element, a, i * strides[0] + step * strides[1]))
                factor = b.splat(scalar, self.plan.lanes)
                for v in range(width):
                    sums[i * width + v] = b.muladd(factor, vectors[v], sums[i * width + v])
        return sums

    def _load(self, pointer: Val, mask: Val | None) -> Val:
        b = self.b
        return (
            b.load(self.type, pointer) if mask is None else b.masked_load(self.type, pointer, mask)
        )

    def _mask(self, panel: Panel) -> Val | None:
        """The lanes of a panel's last vector; None for all."""
        return self._tail_mask(self.b, panel.tail, panel.col, panel.width)

    def _tail_mask(
        self, b: FunctionBuilder, tail: int | None, column: Val, width: int
    ) -> Val | None:
        """The lanes of the last of so many vectors that begin at a column; None for all."""
        lanes = self.plan.lanes
        if tail is None:
            left = b.sub(i64(self.spec.n), b.add(column, (width - 1) * lanes))
            return b.tail_mask(lanes, left)
        return const_lanes("i1", [lane < tail for lane in range(lanes)]) if tail else None

    def _finish(self, sums: Sequence[Val], row: Val, height: int, panel: Panel) -> None:
        b, lanes, mask = self.b, self.plan.lanes, self._mask(panel)
        for i in range(height):
            this_row = b.add(row, i) if i else row
            for v in range(panel.width):
                col = b.add(panel.col, v * lanes) if v else panel.col
                place = Position(this_row, col, mask if v == panel.width - 1 else None)
                self.epilogue(b, sums[i * panel.width + v], place)

    # Dot products -------------------------------------------------------------------------

    def _dots(self, rows: Bounds) -> None:
        """Every element as a dot product along k, those of a tile side by side.

        All rows meet the columns of a tile before the next ones are read.
        """
        height, width = self.plan.height, self.plan.width

        def across(column: Val, columns: int) -> None:
            self._in_tiles(
                rows, height, lambda row, count: self._dot_tile((row, column), (count, columns))
            )

        self._in_tiles(self.columns, width, across)

    def _in_tiles(self, bounds: Bounds, size: int, inside: Callable[[Val, int], None]) -> None:
        """Run `inside` for tiles of indices; of those left, whose number code finds, for each."""
        b, (low, high) = self.b, bounds
        if type(low) is int and type(high) is int:
            stop = high - (high - low) % size
            if stop - low == size:
                inside(i64(low), size)
            elif low < stop:
                with b.loop(low, stop, size) as loop:
                    inside(loop.index, size)
            if stop < high:
                inside(i64(stop), high - stop)
            return
        count = b.sub(i64(high), low)
        end = b.add(b.sub(count, b.binary("urem", count, size)), low)
        with b.loop(low, end, size) as loop:
            inside(loop.index, size)
        if size > 1:
            with b.loop(end, high) as loop:
                inside(loop.index, 1)

    def _dot_tile(self, start: tuple[Val, Val], shape: tuple[int, int]) -> None:
        b, spec, lanes = self.b, self.spec, self.plan.lanes
        rows, columns = (
            [b.add(first, i) if i else first for i in range(count)]
            for first, count in zip(start, shape, strict=True)
        )
        pointers = (
            [b.at(spec.element, self.a, b.mul(row, spec.a_strides[0])) for row in rows],
            [b.at(spec.element, self.b_source, b.mul(col, spec.b_strides[1])) for col in columns],
        )
        sums = [const(self.type, 0)] * (len(rows) * len(columns))
        main = spec.k - spec.k % lanes
        if is_open(main) or main:
            with b.loop(0, main, lanes, sums) as loop:
                loop.carry(*self._dot_step(pointers, loop.carried, loop.index, None))
            sums = loop.results
        if is_open(spec.k - main):
            mask = b.tail_mask(lanes, i64(spec.k - main))
            sums = self._dot_step(pointers, sums, i64(main), mask)
        elif spec.k % lanes:
            mask = const_lanes("i1", [lane < spec.k % lanes for lane in range(lanes)])
            sums = self._dot_step(pointers, sums, i64(main), mask)
        for total, (row, column) in zip(sums, product(rows, columns), strict=True):
            self.epilogue(b, b.reduce(total, b.add), Position(row, column, None))

    def _dot_step(
        self, pointers: Sequence[Sequence[Val]], sums: Sequence[Val], k: Val, mask: Val | None
    ) -> list[Val]:
        b = self.b
        xs, ys = (
            [self._load(b.at(self.spec.element, pointer, k), mask) for pointer in of]
            for of in pointers
        )
        return [b.muladd(x, y, total) for (x, y), total in zip(product(xs, ys), sums, strict=True)]
