"""Reductions to a few values, as kernels that fold fixed blocks and one that folds their results.

A pass over a long row ends when all of it has been seen, so each pass becomes a kernel of its own,
cut into blocks. A second, tiny kernel folds what the blocks leave, in their order. Later passes
load the finished values. Sums of f32 are f64 between the blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from lucid.codegen.kernel_ir.affine import AffineExpr, form
from lucid.codegen.kernel_ir.instruction import Fold, Inst, Keywords
from lucid.codegen.kernel_ir.kernel import NewTemp, Partition
from lucid.codegen.kernel_ir.nest import LoopNest, analyze, forms_of, renamed, without_dim
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.llvm.target import Target
from lucid.ir.types import DType, f32, f64

_FOLDED = ("sum", "prod", "amax", "amin", "any", "all")

Call = tuple[LoopNest, Partition | None, list[Buffer]]


def blocked(
    kernel: LoopNest, args: Sequence[Buffer], parts: Partition, new_temp: NewTemp
) -> list[Call]:
    """The loops that together do what one does, cut along a reduced dim; [] if there are none."""
    for inst in kernel.insts:
        if inst.op in ("scan", "write", "accumulate"):
            return []
        if inst.op == "reduce" and inst.fold not in _FOLDED:
            return []
    return _Blocks(kernel, args, parts, new_temp).calls()


def stored_parts(body: LoopNest, count: int, vector: int, rest: Sequence[DType]) -> LoopNest:
    """The loops of so many parts of a product, one around the other's, which store it and no more.

    Args:
        rest: further arguments, behind both operands and what is stored.
    """
    dtype, sizes = body.args[0], (count, *body.kept)
    insts = [Inst("product", dtype), Inst("store", dtype, (0,), _row_major(sizes), 2)]
    nest = LoopNest([dtype, dtype, dtype, *rest], sizes, (), vector, 1, insts)
    analyze(nest)
    return nest


def summed(
    body: LoopNest, args: Sequence[Buffer], partial: Buffer, count: int, target: Target
) -> tuple[LoopNest, list[Buffer]]:
    """The loops of what follows a product, of which `partial` has so many parts to sum in order."""
    used = {inst.arg: args[inst.arg] for inst in body.insts if inst.has_address}
    given = [partial, *dict.fromkeys(used.values())]
    dtype, dim = partial.dtype, len(body.kept)
    place = _row_major((count, *body.kept))
    place = place.renamed({0: dim, **{n + 1: n for n in range(dim)}})
    insts = [Inst("load", dtype, (), place, 0), Inst("reduce", dtype, (0,), attributes=Fold("sum"))]
    for inst in body.insts[1:]:
        operands = tuple(n + 1 for n in inst.operands)
        arg = given.index(used[inst.arg]) if inst.has_address else inst.arg
        insts.append(inst._replace(operands=operands, arg=arg))
    kept, names, inner = [*body.kept], [*range(dim + 1)], dim - 1
    for n in range(dim - 2, -1, -1):  # all may walk through two dims as through one
        if any(f.coefficient(n) != f.coefficient(inner) * kept[inner] for f in forms_of(insts)):
            inner = n
            continue
        insts = [without_dim(inst, n) for inst in insts]
        kept[inner] *= kept[n]
        names.remove(n)
    sizes = tuple(kept[n] for n in names if n < dim)
    insts = [renamed(inst, {n: number for number, n in enumerate(names)}) for inst in insts]
    least = min(inst.dtype.itemsize for inst in insts if inst.dtype.kind != "bool")
    lanes = target.vector_bytes // least if sizes else 1
    nest = LoopNest([x.dtype for x in given], sizes, (count,), len(sizes) - 1, lanes, insts)
    analyze(nest)
    return nest, given


class _Blocks:
    """The kernels that are being made.

    Attributes:
        finished: for each reduction, once it is folded, the buffer of its values.
    """

    def __init__(
        self, kernel: LoopNest, args: Sequence[Buffer], parts: Partition, new_temp: NewTemp
    ) -> None:
        self.kernel = kernel
        self.args = args
        self.parts = parts
        self.new_temp = new_temp
        self.finished: dict[int, Buffer] = {}
        self.kept = _row_major(kernel.kept)
        self.block = prod(kernel.kept)

    def calls(self) -> list[Call]:
        kernel, found = self.kernel, []
        numbers = range(len(kernel.insts))
        for stage in range(kernel.passes):
            roots = [n for n in numbers if kernel.in_pass(n) and kernel.stages[n] == stage]
            roots = [n for n in roots if kernel.insts[n].is_root]
            if not roots:
                continue
            reductions = [n for n in roots if kernel.insts[n].op == "reduce"]
            partials = {n: self._partial(n) for n in reductions}
            found.append(self._pass(roots, partials))
            if reductions:
                found.append(self._fold(partials))
        stores = [n for n in numbers if kernel.insts[n].op == "store" and not kernel.in_pass(n)]
        if stores:
            part = _Copy(self, kernel.reduced[:0])
            part.take(stores)
            found.append(part.finish())
        return found

    def _partial(self, number: int) -> Buffer:
        dtype = self.kernel.insts[number].dtype
        op = self.kernel.insts[number].fold
        wide = f64 if dtype is f32 and op in ("sum", "prod") else dtype
        return self.new_temp(wide, self.parts.count * self.block)

    def _pass(self, roots: list[int], partials: dict[int, Buffer]) -> Call:
        """One pass over a block: what it stores, and its reductions into memory of the block."""
        part = _Copy(self, self.kernel.reduced)
        part.wide = {number: buffer.dtype for number, buffer in partials.items()}
        part.take(roots)
        blocks = []
        for number, buffer in partials.items():
            arg = part.arg(buffer)
            part.insts.append(Inst("store", buffer.dtype, (part.new[number],), self.kept, arg))
            blocks.append((arg, self.block))
        return part.finish(replace(self.parts, partials=tuple(blocks)))

    def _fold(self, partials: dict[int, Buffer]) -> Call:
        """What the blocks left, in their order."""
        part = _Copy(self, (self.parts.count,))
        place = form(0, [*self.kept.terms, (len(self.kernel.kept), self.block)])
        for number, buffer in partials.items():
            inst = self.kernel.insts[number]
            load = part.add(Inst("load", buffer.dtype, (), place, part.arg(buffer)))
            total = part.add(Inst("reduce", buffer.dtype, (load,), attributes=inst.attributes))
            if inst.dtype is not buffer.dtype:
                cast = Keywords((("dtype", inst.dtype.name),))
                total = part.add(Inst("cast", inst.dtype, (total,), attributes=cast))
            final = self.finished[number] = self.new_temp(inst.dtype, self.block)
            part.add(Inst("store", inst.dtype, (total,), self.kept, part.arg(final)))
        return part.finish()


class _Copy:
    """A kernel with some of another one's instructions.

    Attributes:
        new: the numbers that they have here.
        wide: the dtypes in which reductions leave their results.
    """

    def __init__(self, blocks: _Blocks, reduced: tuple[int, ...]) -> None:
        self.blocks = blocks
        self.reduced = reduced
        self.insts: list[Inst] = []
        self.args: list[Buffer] = []
        self.new: dict[int, int] = {}
        self.wide: dict[int, DType] = {}

    def arg(self, buffer: Buffer) -> int:
        if buffer not in self.args:
            self.args.append(buffer)
        return self.args.index(buffer)

    def add(self, inst: Inst) -> int:
        self.insts.append(inst)
        return len(self.insts) - 1

    def take(self, roots: Iterable[int]) -> None:
        """Copy instructions with all that they need; finished reductions are loaded."""
        source, finished = self.blocks.kernel, self.blocks.finished
        needed: set[int] = set()
        todo = list(roots)
        while todo:
            number = todo.pop()
            if number not in needed:
                needed.add(number)
                if number not in finished:
                    todo += source.insts[number].operands
        for number in sorted(needed):
            inst = source.insts[number]
            if number in finished:
                final = finished[number]
                inst = Inst("load", inst.dtype, (), self.blocks.kept, self.arg(final))
            else:
                operands = tuple(self.new[n] for n in inst.operands)
                inst = inst._replace(operands=operands, dtype=self.wide.get(number, inst.dtype))
                if inst.has_address:
                    inst = inst._replace(arg=self.arg(self.blocks.args[inst.arg]))
            self.new[number] = self.add(inst)

    def finish(self, parts: Partition | None = None) -> Call:
        source = self.blocks.kernel
        kept, along_row = source.kept, source.vector >= len(source.kept)
        vector, lanes = source.vector, source.lanes
        if self.reduced is not source.reduced and along_row:  # equal sizes would be chance
            vector, lanes = -1, 1
        dtypes = [buffer.dtype for buffer in self.args]
        kernel = LoopNest(dtypes, kept, self.reduced, vector, lanes, self.insts)
        analyze(kernel)
        return kernel, parts, self.args


def _row_major(sizes: Sequence[int]) -> AffineExpr:
    """The place of an element of a contiguous array of these sizes."""
    terms, scale = [], 1
    for dim in range(len(sizes) - 1, -1, -1):
        terms.append((dim, scale))
        scale *= sizes[dim]
    return form(0, list(reversed(terms)))
