"""Emission of matrix products with what follows them elementwise."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol

from lucid.codegen import costs
from lucid.codegen.contraction.gemm import Emitter, Panel, Position
from lucid.codegen.emit import lowering, memory
from lucid.codegen.emit.insts import InstEmitter
from lucid.codegen.kernel_ir.affine import AffineExpr
from lucid.codegen.kernel_ir.instruction import Inst
from lucid.codegen.kernel_ir.nest import LoopNest
from lucid.codegen.llvm.builder import FunctionBuilder, Val, i64
from lucid.codegen.llvm.target import ELEMENT_BYTES
from lucid.ir.extents import hint


class Finished(Protocol):
    """A product as what follows it sees it: the dims of `body` are batch dims, rows, columns."""

    @property
    def body(self) -> LoopNest: ...
    @property
    def batch(self) -> tuple[int, ...]: ...
    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> int: ...


class EpilogueEmitter(InstEmitter):
    """The instructions of a product's kernel for a vector of the result."""

    def __init__(self, b: FunctionBuilder, product: Finished, args: Sequence[Val]) -> None:
        super().__init__(b, product.body, args)
        self.lanes = b.target.lanes(lowering.MEMORY[product.body.args[0]])
        batch, last = len(product.batch), len(product.body.sizes) - 1
        self.row_dim = batch if product.rows != 1 else -1
        self.column_dim = last if product.columns != 1 else -1
        self.product = product
        self.batch = product.batch
        self.slots: dict[int, Val] = {}
        self.sums: Val | None = None
        self._row = "", ""  # whose places are known in a block of code
        self._row_places = self.places

    def prepare(self) -> None:
        """Emit what is the same for all elements; to be called outside of the loops."""
        insts = self.kernel.insts[1:]
        if sum(costs.cost_of(i.op) for i in insts if not i.has_address) > costs.INLINE:
            element = lowering.MEMORY[self.kernel.args[0]]
            self.sums = self.b.alloca(element, self.b.target.registers * self.lanes)
        self.emit_invariants(self._put_away)
        self.wide.clear()

    def _put_away(self, number: int) -> None:
        """Keep a value in memory: in a register it would take the place of an accumulator."""
        value = self.env[number]
        if value.name[0] == "%":
            self.slots[number] = self.b.alloca(value.type)
            self.b.store(value, self.slots[number])

    def take_over(self, caller: EpilogueEmitter, slots: Sequence[Val]) -> None:
        """In a function that finishes tiles: know what the caller has prepared."""
        self.env = dict(caller.env)
        for number, slot in zip(caller.slots, slots, strict=True):
            self.env[number] = self.b.load(caller.env[number].type, slot)
            self.widen(number)

    def prefetch(self, row: Val, column: Val, count: int) -> None:
        """Ask for the lines that a row of a tile reads or fills, so that they are there in time."""
        b, lines = self.b, self._streamed()
        for arg, place in dict.fromkeys((i.arg, i.form) for i in lines if i.form is not None):
            element = lowering.MEMORY[self.kernel.args[arg]]
            at = b.add(b.mul(row, place.coefficient(self.row_dim)), column)
            start = b.at(element, self.places[arg, place], at)
            for offset in range(0, count, 64 // ELEMENT_BYTES[element]):
                memory.prefetch(b, b.at(element, start, offset))

    def asks(self, is_copied: bool) -> bool:
        """Whether rows of the result come with lines that are read, or B is copied.

        Those that are only filled have to come as well then: of Adam's four arrays behind a
        weight's gradient, 1024 x 1024, products take 6.6 ms with all of them asked for, 7.8
        without. Where none are, stores needn't wait: 1024 x 512, inner 128, 0.83 ms, 0.87.
        """
        return any(is_copied or inst.op == "load" for inst in self._streamed())

    def _streamed(self) -> list[Inst]:
        """What goes by rows of the result: nothing of small ones, which are near anyway.

        To ask for each line of a dozen of them takes as long to compile as all else.
        """
        insts, size = self.kernel.insts, hint(prod(self.kernel.sizes))
        far = [i for i in insts if i.has_address and size * i.dtype.itemsize > costs.NEAR_BYTES]
        return [i for i in far if self._is_streamed(i.form)]

    def _is_streamed(self, place: AffineExpr | None) -> bool:
        """Whether each row of the result has a line of its own there."""
        if place is None or not place.coefficient(self.row_dim):
            return False
        return place.coefficient(self.column_dim) == 1

    def element(self, b: FunctionBuilder, product: Val, place: Position) -> None:
        """Everything for the lanes of `product`."""
        saved = dict(self.env), dict(self.wide), dict(self.places), self.lanes
        self.mask, self.lanes = place.mask, product.lanes
        if self._row != (place.row.name, b.block):
            if self.row_dim >= 0:
                self.enter(self.row_dim, place.row)
            self._row, self._row_places = (place.row.name, b.block), dict(self.places)
        self.places = dict(self._row_places)
        if self.column_dim >= 0:
            self.enter(self.column_dim, place.col)
        self.env[0] = product
        for number, slot in self.slots.items():
            self.env[number] = b.load(self.env[number].type, slot)
            self.widen(number)
        for number in range(1, len(self.kernel.insts)):
            self.emit(number)
        self.env, self.wide, self.places, self.lanes = saved
        self.mask = None


class TileEmitter(Emitter):
    """Finishes a tile in a function of its own: an epilogue that is long is emitted once.

    Repeated for each accumulator it would take more time to compile than it saves; and what LLVM
    keeps in registers for it, constants above all, must not take those of the accumulators.
    """

    @property
    def finishing(self) -> EpilogueEmitter:
        """What is emitted there."""
        raise NotImplementedError

    def _finish(self, sums: Sequence[Val], row: Val, height: int, panel: Panel) -> None:
        b, lanes, element = self.b, self.plan.lanes, self.spec.element
        epilogue, kept = self.finishing, self.finishing.sums
        assert kept is not None
        for number, value in enumerate(sums):
            b.store(value, b.at(element, kept, number * lanes))
        batch = [epilogue.index[dim] for dim in range(len(epilogue.batch))]
        passed = [*epilogue.args, *epilogue.slots.values(), kept, row, panel.col, *batch]
        if b.sizes is not None:
            passed.append(b.sizes)
        name = f"{b.name}_{height}x{panel.width}"
        name += "_open" if panel.tail is None else f"_{panel.tail}" if panel.tail else ""
        if name not in b.module.functions:
            parameters = [(value.type, f"p{i}") for i, value in enumerate(passed)]
            with FunctionBuilder(b.module, name, parameters, internal=True) as f:
                if b.sizes is not None:
                    f.read_sizes(f.args.pop())
                self._define(f, height, panel)
                f.ret()
        b.call(name, "void", *passed)

    def _define(self, b: FunctionBuilder, height: int, panel: Panel) -> None:
        """What follows the product, for a tile whose sums are in memory."""
        caller, lanes = self.finishing, self.plan.lanes
        count = len(caller.args)
        epilogue = EpilogueEmitter(b, caller.product, b.args[:count])
        slots, rest = b.args[count:][: len(caller.slots)], b.args[count + len(caller.slots) :]
        kept, row, column, *batch = rest
        epilogue.take_over(caller, slots)
        for dim, index in enumerate(batch):
            epilogue.enter(dim, index)
        width = panel.width * lanes

        def finish(i: Val, at: Val, mask: Val | None) -> None:
            place = b.at(self.spec.element, kept, b.add(b.mul(i, width), at))
            value = b.load(self.type, place)
            position = Position(b.add(row, i), b.add(column, at), mask)
            epilogue.element(b, value, position)

        whole = panel.width if panel.tail == 0 else panel.width - 1
        mask = self._tail_mask(b, panel.tail, column, panel.width)
        with b.loop(0, height) as rows:
            if whole:
                with b.loop(0, whole * lanes, lanes) as columns:
                    finish(rows.index, columns.index, None)
            if panel.tail != 0:
                finish(rows.index, i64(whole * lanes), mask)
