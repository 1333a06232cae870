"""Reductions over outer axes of large arrays: rows are swept in order, the sums are in memory.

Going down one vector of columns at a time would touch a page per row. Here eight rows are taken
together, the columns of a strip of them one after the other, and the accumulators of the strip
stand in memory, which stays in the L1 cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from lucid.codegen import costs
from lucid.codegen.emit import lowering, reductions
from lucid.codegen.emit.lines import smaller
from lucid.codegen.emit.loops import LoopEmitter, State
from lucid.codegen.kernel_ir.nest import LoopNest
from lucid.codegen.llvm.builder import FunctionBuilder, Val, vector
from lucid.ir.extents import hint, is_open
from lucid.ir.types import DType


def is_swept(kernel: LoopNest) -> bool:
    """Whether a kernel reduces over outer axes, and enough to pay for accumulators in memory."""
    column = len(kernel.kept) - 1
    if not kernel.reduced or kernel.vector != column or column < 0 or kernel.passes != 1:
        return False
    if any(inst.op in ("scan", "write", "accumulate") for inst in kernel.insts):
        return False
    for number, inst in enumerate(kernel.insts):
        if inst.op == "reduce" and column not in kernel.dims[inst.operands[0]]:
            return False
        if inst.op == "store" and kernel.in_pass(number) and not kernel.is_inner(number):
            return False
    columns = hint(kernel.kept[column])
    large = hint(prod(kernel.reduced)) * columns * 4 >= costs.SWEPT_BYTES
    return (
        large
        and hint(kernel.reduced[-1]) >= 2 * costs.SWEPT_ROWS
        and 4 * kernel.lanes <= columns
        and any(kernel.insts[n].op == "reduce" for n in range(len(kernel.insts)))
    )


class SweepEmitter(LoopEmitter):
    """Emits a loop kernel with the loop over columns inside of those over rows."""

    def __init__(self, b: FunctionBuilder, kernel: LoopNest, args: Sequence[Val]) -> None:
        super().__init__(b, kernel, args)
        self._sums: list[tuple[Val, DType]] = []
        self._column = self.outer - 1
        self._strip: tuple[Val, Val] | None = None  # of columns, whose sums are in memory

    def run(self) -> None:
        self._begin_pass(0)
        self._choose_dtypes(costs.SWEPT_ROWS)
        for dtype in self._parts():
            columns = self.kernel.kept[self._column]
            count = columns if not is_open(columns) and columns < costs.COLUMNS else costs.COLUMNS
            sums = self.b.alloca(lowering.ELEMENTS[dtype], count + self.lanes)
            self._sums.append((sums, dtype))
        super().run()

    def _parts(self) -> list[DType]:
        """The dtype of each accumulator; a position is one of its own."""
        found = []
        for number, dtype in zip(self.folded, self.dtypes, strict=True):
            found += [dtype, reductions.POSITION] if self.is_position(number) else [dtype]
        return found

    def _kept(self, dim: int) -> None:
        if dim != self._column:
            super()._kept(dim)
            return
        b, (low, high) = self.b, self._bounds(dim)
        with b.loop(low, high, costs.COLUMNS) as loop:
            self._strip = loop.index, smaller(b, b.add(loop.index, costs.COLUMNS), high)
            self._over(dim, [[]], self._reset)
            self._rows(self.outer)
            self._over(dim, [[]], self._conclude)

    def _over(self, dim: int, state: State, inside: Callable[[list[Val]], list[Val]]) -> State:
        if dim == self._column and self._strip is not None:
            return self._over_part(dim, *self._strip, state, inside)
        return super()._over(dim, state, inside)

    def _pointer(self, part: int) -> Val:
        assert self._strip is not None
        memory, dtype = self._sums[part]
        behind = self.b.sub(self.index[self._column], self._strip[0])
        return self.b.at(lowering.ELEMENTS[dtype], memory, behind)

    def _load_sums(self) -> list[Val]:
        return [
            self.b.load(vector(lowering.ELEMENTS[dtype], self.lanes), self._pointer(part))
            for part, (_, dtype) in enumerate(self._sums)
        ]

    def _store_sums(self, values: Sequence[Val]) -> None:
        for part, value in enumerate(values):
            self.b.store(value, self._pointer(part))

    def _reset(self, state: list[Val]) -> list[Val]:
        self._store_sums(self._starts())
        return state

    def _conclude(self, state: list[Val]) -> list[Val]:
        self._place(self.outer)
        self._finish([self._load_sums()])
        for number in range(len(self.kernel.insts)):
            if not self.kernel.in_pass(number):
                self.emit(number)
        return state

    def _rows(self, dim: int) -> None:
        low, high = self._bounds(dim)
        if dim < self.depth - 1:
            with self.b.loop(low, high) as loop, self.scope(False):
                self.enter(dim, loop.index)
                self._rows(dim + 1)
            return
        size = self.kernel.sizes[dim]
        whole = size - size % costs.SWEPT_ROWS
        stop: Val | int = whole
        is_whole = not is_open(whole) and whole == size
        if isinstance(high, Val) and not is_whole:
            stop = smaller(self.b, high, whole)
        elif isinstance(high, Val):
            stop = high
        self._row_blocks(low, stop, costs.SWEPT_ROWS)
        if not is_whole:
            self._row_blocks(whole, high, 1)

    def _row_blocks(self, low: Val | int, high: Val | int, count: int) -> None:
        if type(low) is int and type(high) is int and low >= high:
            return
        with self.b.loop(low, high, count) as loop, self.scope(False):
            self.row = loop.index, count
            self._over(self._column, [[]], self._block)

    def _block(self, state: list[Val]) -> list[Val]:
        """Some rows of one vector of columns."""
        first, count = self.row
        for level in range(self.outer + 1):
            self._place(level)
        sums = self._load_sums()
        if count == 1:
            with self.scope(False):
                self.enter(self.depth - 1, first)
                sums = self._element(sums)
        else:
            sums = self._combined([sums, self._block_sum(first, count)])
        self._store_sums(sums)
        return state

    def _block_sum(self, first: Val, count: int) -> list[Val]:
        """The rows folded as a tree, in their own dtype; the result in that of the sums."""
        wide = self.dtypes
        insts = self.kernel.insts
        self.dtypes = [insts[insts[number].operands[0]].dtype for number in self.folded]
        parts = []
        for number in range(count):
            with self.scope(False):
                self.enter(self.depth - 1, self._offset(first, number))
                parts.append(self._element(self._starts()))
        result = self._tree(parts)
        narrow, self.dtypes = self._parts(), wide
        pairs = zip(narrow, result, self._parts(), strict=True)
        return [lowering.convert(self.b, old, value, new) for old, value, new in pairs]

    def _tree(self, parts: list[list[Val]]) -> list[Val]:
        while len(parts) > 1:
            parts = [self._combined(parts[i : i + 2]) for i in range(0, len(parts), 2)]
        return parts[0]

    def _combined(self, parts: Sequence[list[Val]]) -> list[Val]:
        result: list[Val] = []
        for number, dtype in zip(self.folded, self.dtypes, strict=True):
            op = self.kernel.insts[number].fold
            place, count = len(result), 2 if self.is_position(number) else 1
            x, y = (part[place : place + count] for part in parts)
            result += reductions.combine(self.b, op, dtype, x, y)
        return result
