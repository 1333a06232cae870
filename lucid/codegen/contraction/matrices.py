"""Products of two matrices, with a batch, while their loops are being chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lucid.codegen.contraction.axes import Axis
from lucid.codegen.kernel_ir.affine import AffineExpr, form
from lucid.codegen.kernel_ir.instruction import Inst
from lucid.codegen.kernel_ir.nest import dropped, forms_of, without_dim


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
