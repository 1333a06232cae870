"""Kernels of products: of two matrices with a batch, or over any axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lucid.codegen.contraction.axes import Axis
from lucid.codegen.contraction.contraction import Contraction, Tiling
from lucid.codegen.emit.lowering import ELEMENTS
from lucid.codegen.kernel_ir.affine import AffineExpr, form
from lucid.codegen.kernel_ir.instruction import Inst, print_form
from lucid.codegen.kernel_ir.nest import LoopNest, analyze, dropped, forms_of, renamed, without_dim
from lucid.ir.types import DType


@dataclass(slots=True)
class MatrixProduct:
    """A product of matrices for each index of a batch, and instructions for each element of it.

    The dims of `body` are the batch dims, then the rows, then the columns; instruction 0 is the
    product. Operands are read at `a` (batch, rows, inner) and `b` (batch, inner, columns).

    Attributes:
        strides: elements from one row, inner index, column to the next: of a, of b.
        operands: numbers of the arguments that a and b are.
        tiling: as in `Contraction`.
    """

    body: LoopNest
    rows: int
    inner: int
    columns: int
    batch: tuple[int, ...]
    a: AffineExpr
    b: AffineExpr
    strides: tuple[int, int, int, int]
    operands: tuple[int, int]
    tiling: Tiling | None = None

    @property
    def spec(self) -> Contraction:
        """One of the products."""
        sizes = self.rows, self.inner, self.columns
        return replace(contraction(self.body.args[0], sizes, self.strides), tiling=self.tiling)

    def text(self, parts: str) -> str:
        """The operands and the loops; `parts` says how threads share it."""
        am, ak, bk, bn = self.strides
        tiling = "" if self.tiling is None else f", tiled {self.tiling}"
        head = (
            f"contract {self.rows}x{self.inner}x{self.columns} batch {list(self.batch)}: "
            f"a{self.operands[0]}[{print_form(self.a)} + m*{am} + k*{ak}] . "
            f"a{self.operands[1]}[{print_form(self.b)} + k*{bk} + n*{bn}]"
            f"{tiling}{parts}"
        )
        return f"{head}\n{self.body}"


@dataclass(slots=True)
class Product:
    """The loops of a matrix product while they are being chosen.

    Attributes:
        lead: the batch dims. `dims`: the row and the column dim, -1 where there is one element.
        sizes: rows, inner, columns.
        places: where the matrices lie for a batch index. `strides`: am, ak, bk, bn.
        operands: which arguments the matrices are.
    """

    lead: list[int]
    dims: tuple[int, int]
    sizes: tuple[int, int, int]
    places: tuple[AffineExpr, AffineExpr]
    strides: tuple[int, ...]
    operands: tuple[int, int] = (0, 1)

    @property
    def spec(self) -> tuple[tuple[int, int, int], tuple[int, int, int, int]]:
        am, ak, bk, bn = self.strides
        return self.sizes, (am, ak, bk, bn)

    def take_batch_as_rows(self, insts: list[Inst], sizes: dict[int, int]) -> list[Inst]:
        """Where b is the same for a whole batch, and rows follow one another: one product."""
        while self.lead and self.places[1].coefficient(self.lead[-1]) == 0:
            batch, (row, column), rows = self.lead[-1], self.dims, self.sizes[0]
            step = self.places[0].coefficient(batch)
            if row < 0:
                self.dims = batch, column
                self.strides = step, *self.strides[1:]
            elif step == self.strides[0] * rows and all(
                f.coefficient(batch) == f.coefficient(row) * rows for f in forms_of(insts)
            ):
                insts = [without_dim(inst, batch) for inst in insts]
            else:
                break
            self.sizes = rows * sizes[batch], *self.sizes[1:]
            self.places = dropped(self.places[0], batch), self.places[1]
            self.lead.pop()
        return insts

    def prefers_transposed(self, insts: list[Inst]) -> bool:
        """Whether more accesses are contiguous along the rows than along the columns."""
        score = 0
        row, column = self.dims
        for inst in insts:
            if inst.has_address and inst.form is not None:
                weight = 2 if inst.op == "store" else 1
                along = inst.form.coefficient(row) == 1, inst.form.coefficient(column) == 1
                score += weight * (along[0] - along[1])
        return score > 0

    def transpose(self) -> None:
        """Make it the product of the transposed matrices, which gives the transposed result."""
        self.dims = self.dims[::-1]
        rows, inner, columns = self.sizes
        self.sizes = columns, inner, rows
        self.places = self.places[::-1]
        self.strides = self.strides[::-1]
        self.operands = self.operands[::-1]

    def chosen(self, insts: list[Inst], sizes: dict[int, int], args: list[DType]) -> MatrixProduct:
        rows, inner, columns = self.sizes
        kept = [dim for dim in (*self.lead, *self.dims) if dim >= 0]
        names = {dim: number for number, dim in enumerate(kept)}
        batch = tuple(sizes[dim] for dim in self.lead)
        body = LoopNest(
            args,
            (*batch, *(size for size in (rows, columns) if size != 1)),
            (),
            names.get(self.dims[1], -1),
            1,
            [renamed(inst, names) for inst in insts],
        )
        analyze(body)
        a, b = (place.renamed(names) for place in self.places)
        strides = self.spec[1]
        return MatrixProduct(body, rows, inner, columns, batch, a, b, strides, self.operands)


def join_parts(
    index: AffineExpr, insts: list[Inst], sizes: dict[int, int]
) -> tuple[int, tuple[tuple[int, int], ...], list[Inst]]:
    """Make the parts of a dim one again, as far as all instructions walk through them as one.

    Returns the dim, -1 for one element; the terms of the parts outside of it; the instructions.
    """
    if not index.terms:
        return -1, (), insts
    (*outer, (dim, _)) = index.terms
    while outer and all(
        f.coefficient(outer[-1][0]) == f.coefficient(dim) * sizes[dim] for f in forms_of(insts)
    ):
        part, _ = outer.pop()
        sizes[dim] *= sizes.pop(part)
        insts = [without_dim(inst, part) for inst in insts]
    return dim, tuple(outer), insts


def contraction(
    dtype: DType, sizes: tuple[int, int, int], strides: tuple[int, int, int, int]
) -> Contraction:
    """One product without its batch; strides of axes of one element don't matter."""
    rows, inner, columns = sizes
    am, ak, bk, bn = strides
    if columns == 1 or not inner:
        bn = 1
    if inner == 1:
        ak, bk = 1, columns
    return Contraction(rows, columns, inner, ELEMENTS[dtype], (am, ak), (bk, bn))


def as_matrices(axes: Sequence[Axis], offsets: tuple[int, int]) -> Product | None:
    """A product of two matrices for each index of the batch, if the axes are no more than that."""
    kinds = {kind: [x for x in axes if x.kind == kind] for kind in ("row", "column", "inner")}
    if any(len(found) > 1 for found in kinds.values()):
        return None
    one = Axis("", 1, 0, 0)
    row, column, inner = (found[0] if found else one for found in kinds.values())
    lead = [x for x in axes if x.kind == "batch"]
    return Product(
        [x.dim for x in lead],
        (row.dim, column.dim),
        (row.size, inner.size, column.size),
        (
            form(offsets[0], [(x.dim, x.a) for x in lead]),
            form(offsets[1], [(x.dim, x.b) for x in lead]),
        ),
        (row.a, inner.a, inner.b, column.b),
    )
