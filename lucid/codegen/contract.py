"""Emission of matrix products with what follows them elementwise."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.codegen import costs, lowering
from lucid.codegen.gemm import Emitter, Position, _Panel
from lucid.codegen.insts import InstEmitter
from lucid.codegen.kernel import ContractKernel
from lucid.codegen.llvm import FunctionBuilder, Val, i64
from lucid.codegen.products import contraction


class EpilogueEmitter(InstEmitter):
    """The instructions of a product's kernel for a vector of the result."""

    def __init__(self, b: FunctionBuilder, kernel: ContractKernel, args: Sequence[Val]) -> None:
        super().__init__(b, kernel.body, args)
        self.lanes = b.target.lanes(lowering.MEMORY[kernel.body.args[0]])
        batch, last = len(kernel.batch), len(kernel.body.sizes) - 1
        self.row_dim = batch if kernel.rows != 1 else -1
        self.column_dim = last if kernel.columns != 1 else -1
        work = sum(costs.cost_of(inst.op) for inst in kernel.body.insts[1:] if not inst.has_address)
        self.sums: Val | None = None
        if work > costs.INLINE:
            element = lowering.MEMORY[kernel.body.args[0]]
            self.sums = b.alloca(element, b.target.registers * self.lanes)

    def prepare(self) -> None:
        """Emit what is the same for all elements; to be called outside of the loops."""
        follows = {0}
        for number, inst in enumerate(self.kernel.insts[1:], 1):
            if not follows.isdisjoint(inst.operands):
                follows.add(number)
            elif not self.kernel.dims[number] and not inst.is_root:
                self.emit(number)

    def element(self, b: FunctionBuilder, product: Val, place: Position) -> None:
        """Everything for the lanes of `product`."""
        saved = dict(self.env), dict(self.wide), dict(self.places), self.lanes
        self.mask, self.lanes = place.mask, product.lanes
        for dim, index in ((self.row_dim, place.row), (self.column_dim, place.col)):
            if dim >= 0:
                self.enter(dim, index)
        self.env[0] = product
        for number in range(1, len(self.kernel.insts)):
            self.emit(number)
        self.env, self.wide, self.places, self.lanes = saved
        self.mask = None


def emit_contract(b: FunctionBuilder, kernel: ContractKernel, args: Sequence[Val]) -> None:
    """Append a product, and what follows it, to a function."""
    if 0 in (*kernel.batch, kernel.rows, kernel.columns):
        return
    epilogue = EpilogueEmitter(b, kernel, args)
    epilogue.prepare()
    _over_batch(b, kernel, args, epilogue, 0)


def _over_batch(
    b: FunctionBuilder,
    kernel: ContractKernel,
    args: Sequence[Val],
    epilogue: EpilogueEmitter,
    dim: int,
) -> None:
    if dim == len(kernel.batch):
        emit_product(b, kernel, args, epilogue)
        return
    with b.loop(0, kernel.batch[dim]) as loop:
        saved = dict(epilogue.places), dict(epilogue.index)
        epilogue.enter(dim, loop.index)
        _over_batch(b, kernel, args, epilogue, dim + 1)
        epilogue.places, epilogue.index = saved


def emit_product(
    b: FunctionBuilder, kernel: ContractKernel, args: Sequence[Val], epilogue: EpilogueEmitter
) -> None:
    """Append the product for the batch indices that are bound."""
    dtype = kernel.body.args[0]
    element = lowering.MEMORY[dtype]
    pointers = [
        epilogue.address(b.at(element, args[n], form.offset), element, form)
        for n, form in zip(kernel.operands, (kernel.a, kernel.b), strict=True)
    ]
    spec = contraction(dtype, (kernel.rows, kernel.inner, kernel.columns), kernel.strides)
    scratch = args[-1] if kernel.has_scratch else None
    operands = pointers[0], pointers[1]
    if epilogue.sums is None:
        emitter = Emitter(b, spec, operands, scratch, epilogue.element)
    else:
        emitter = TileEmitter(b, spec, operands, scratch, epilogue.element)
        emitter.sums = epilogue.sums
    emitter.run((0, spec.m))


class TileEmitter(Emitter):
    """Finishes a tile in a loop over its vectors: an epilogue that is long is emitted once.

    Repeated for each accumulator it would take more time to compile than it saves.

    Attributes:
        sums: memory for the accumulators of a tile.
    """

    sums: Val

    def _finish(self, sums: Sequence[Val], row: Val, height: int, panel: _Panel) -> None:
        b, lanes, element = self.b, self.plan.lanes, self.spec.element
        for number, value in enumerate(sums):
            b.store(value, b.at(element, self.sums, number * lanes))
        width = panel.width * lanes

        def finish(i: Val, column: Val, mask: Val | None, count: int) -> None:
            at = b.add(b.mul(i, width), column)
            value = b.load(self.type, b.at(element, self.sums, at))
            place = Position(b.add(row, i), b.add(panel.col, column), i64(0), mask, count)
            self.epilogue(b, value, place)

        whole = panel.width - 1 if panel.tail else panel.width
        with b.loop(0, height) as rows:
            if whole:
                with b.loop(0, whole * lanes, lanes) as columns:
                    finish(rows.index, columns.index, None, lanes)
            if panel.tail:
                mask = self._mask(panel.width - 1, panel)
                finish(rows.index, i64(whole * lanes), mask, panel.tail)
