"""Maps that read rows where they write columns: blocks are transposed in registers.

Lane by lane such a load touches a line of memory for each element, and where the lines are a power
of two apart, as in a square matrix of 1,024 rows, they drive each other out of the caches before
their next element is read. Here a block of rows is transposed first, whole vectors at a time, into
memory that stays in the L1 cache; the loops over the block then read that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lucid.codegen import costs
from lucid.codegen.emit import memory
from lucid.codegen.emit.loops import LoopEmitter
from lucid.codegen.emit.lowering import MEMORY
from lucid.codegen.kernel_ir.nest import LoopNest
from lucid.codegen.llvm.builder import FunctionBuilder, Val, i64
from lucid.codegen.llvm.transposing import define_transpose
from lucid.ir.extents import is_open


class TurnedEmitter(LoopEmitter):
    """Emits a loop kernel with turned loads, in blocks of as many rows as there are lanes."""

    def __init__(self, b: FunctionBuilder, kernel: LoopNest, args: Sequence[Val]) -> None:
        super().__init__(b, kernel, args)
        self._rows, self._columns = self.outer - 2, self.outer - 1
        count = self.lanes * costs.TILE
        self._packed = {
            number: b.alloca(MEMORY[kernel.insts[number].dtype], count)
            for number in kernel.turned()
        }

    def _kept(self, dim: int) -> None:
        if dim != self._rows:
            super()._kept(dim)
            return
        b, size = self.b, self.kernel.sizes[dim]
        main = size - size % self.lanes
        low, high = self._bounds(dim)
        with b.loop(low, self._least(high, main), self.lanes) as loop:
            self._block(loop.index)
            loop.carry()
        if is_open(main) or main < size:  # which is the last part's
            start = b.select(b.lt(low, main), main, low) if isinstance(low, Val) else main
            with b.loop(start, high) as loop:
                self._row_at(loop.index, lambda: super(TurnedEmitter, self)._kept(dim + 1))
                loop.carry()

    def _least(self, high: Val | int, most: int) -> Val | int:
        if not isinstance(high, Val):
            return most
        return self.b.select(self.b.lt(high, most), high, most)

    def _block(self, row: Val) -> None:
        """As many rows as there are lanes, from one on, a few columns at a time."""
        b, dim = self.b, self._columns
        size = self.kernel.sizes[dim]
        main = size - size % self.lanes
        low, high = self._bounds(dim)
        stop = self._least(high, main)
        with b.loop(low, stop, costs.TILE) as loop:
            end = b.add(loop.index, costs.TILE)
            end = b.select(b.lt(end, stop), end, stop)
            self._transpose(row, loop.index, end)
            with b.loop(0, self.lanes) as rows:
                at = b.add(row, rows.index)
                self._row_at(at, lambda: self._over_columns(rows.index, loop.index, end))
                rows.carry()
            loop.carry()
        if not is_open(main) and main == size:
            return
        with b.if_else(b.eq(i64(high), size)) as branch:
            with branch.then(), b.loop(0, self.lanes) as rows:
                at = b.add(row, rows.index)
                self._row_at(at, self._last_columns)
                rows.carry()
            with branch.otherwise():
                pass

    def _row_at(self, row: Val, inside: Callable[[], None]) -> None:
        with self.scope(keep=False):
            self.enter(self._rows, row)
            self._place(self._columns)
            inside()

    def _transpose(self, row: Val, low: Val, high: Val) -> None:
        """Put the columns of a block from low to high into memory as rows."""
        b, lanes = self.b, self.lanes
        with b.loop(low, high, lanes) as loop, self.scope(keep=False):
            self.enter(self._rows, row)
            self.enter(self._columns, loop.index)
            for number, block in self._packed.items():
                inst = self.kernel.insts[number]
                element = MEMORY[inst.dtype]
                source, stride = (
                    self.places[inst.arg, inst.at],
                    inst.at.coefficient(self._columns),
                )
                to = b.at(element, block, b.sub(loop.index, low))
                name = define_transpose(b.module, element, lanes)
                b.call(name, "void", source, i64(stride), to, i64(costs.TILE))
            loop.carry()

    def _over_columns(self, number: Val, low: Val, high: Val) -> None:
        """The columns of a block's row, whose turned loads are read from where it lies."""
        b = self.b
        with b.loop(low, high, self.lanes) as loop, self.scope(keep=False):
            self.enter(self._columns, loop.index)
            for load, block in self._packed.items():
                dtype = self.kernel.insts[load].dtype
                at = b.add(b.mul(number, costs.TILE), b.sub(loop.index, low))
                pointer = b.at(MEMORY[dtype], block, at)
                self.env[load] = memory.load(b, dtype, pointer, self.lanes, 1, None)
            self._place(self.outer)
            self._row()
            loop.carry()

    def _last_columns(self) -> None:
        """What is left of a row behind full vectors."""
        size = self.kernel.sizes[self._columns]

        def inside(state: list[Val]) -> list[Val]:
            self._place(self.outer)
            self._row()
            return state

        self._rest(self._columns, size - size % self.lanes, self.lanes, [[]], inside, False)
