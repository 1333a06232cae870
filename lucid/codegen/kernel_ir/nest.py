"""A loop nest: its instructions, which dim fills the lanes, the order of dims, what passes keep.

A `LoopNest` has kept dims (outside) and reduced dims (inside). Its instructions are in SSA form;
the ones that vary along a reduced dim run once per element, in passes: a pass ends with
reductions, whose results the next one may use. The lanes of a vector run along one of the dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lucid.codegen.kernel_ir.affine import AffineExpr, form
from lucid.codegen.kernel_ir.instruction import EFFECTS, Inst, print_inst
from lucid.ir.extents import hint
from lucid.ir.types import DType, Shape


@dataclass(slots=True)
class LoopNest:
    """Loops, and the instructions in them.

    Attributes:
        args: element types of the buffers that it gets.
        kept: sizes of the outer dims; dims are numbered, kept ones first.
        reduced: sizes of the inner dims.
        vector: the dim whose values fill the lanes, the last kept or the last reduced one; -1 none.
        dims: for each instruction the dims that its value depends on.
        stages: for each instruction how many passes must be over before it.
        scratch: instructions of an early pass whose values a later one reads from memory.
    """

    args: list[DType]
    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    vector: int
    lanes: int
    insts: list[Inst]
    dims: list[frozenset[int]] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.kept + self.reduced

    def is_inner(self, number: int) -> bool:
        """Whether an instruction runs inside the loops over reduced dims."""
        return bool(self.dims[number] and max(self.dims[number]) >= len(self.kept))

    @property
    def passes(self) -> int:
        roots = [n for n, inst in enumerate(self.insts) if self.in_pass(n) and inst.is_root]
        return max((self.stages[n] + 1 for n in roots), default=0)

    def in_pass(self, number: int) -> bool:
        return self.insts[number].op == "reduce" or self.is_inner(number)

    @property
    def effects(self) -> list[Inst]:
        """The instructions that write memory."""
        return [inst for inst in self.insts if inst.op in EFFECTS]

    def turned(self) -> list[int]:
        """The loads whose neighbours lie along the dim before the lanes': of rows as columns.

        Those of maps only, whose elements may be stored in any order; elements that are near, as of
        complex numbers, are shuffled anyway.
        """
        vector = self.vector
        if self.reduced or not 0 < vector == len(self.kept) - 1 or not 4 <= self.lanes <= 16:
            return []
        if self.passes or min(map(hint, self.kept[vector - 1 :])) < self.lanes:
            return []
        if any(inst.op != "store" or inst.adds for inst in self.effects):
            return []
        return [
            number
            for number, inst in enumerate(self.insts)
            if inst.op == "load"
            and inst.form is not None
            and inst.form.coefficient(vector - 1) == 1
            and abs(hint(inst.form.coefficient(vector))) >= self.lanes
        ]

    def free_dims(self) -> list[int]:
        """The kept dims of which each index writes elements of its own."""
        kept, effects = range(len(self.kept)), self.effects
        return [dim for dim in kept if all(self.is_apart(inst, dim) for inst in effects)]

    def is_apart(self, inst: Inst, dim: int) -> bool:
        """Whether what an instruction stores for one index of a dim it stores for no other one.

        Sums may overlap, those of windows: an address says all indices from this dim's on if each
        further step is longer than all that the shorter ones reach.
        """
        if dim not in inst.at.dims or not inst.adds or inst.begins:
            return dim in inst.at.dims
        steps = sorted((abs(hint(step)), other) for other, step in inst.at.terms)
        reach, is_further = 0, False
        for _, other in steps:
            step = inst.at.coefficient(other)
            step = -step if hint(step) < 0 else step
            is_further = is_further or other == dim
            if is_further and step <= reach:
                return False
            reach += (self.sizes[other] - 1) * step
        return True

    def in_order(self) -> list[int]:
        """The instructions' numbers as they run: each pass, and what comes before and after it."""
        found: list[int] = []
        for stage in range(self.passes + 1):
            for in_pass in (False, True):
                found += [
                    number
                    for number in range(len(self.insts))
                    if self.stages[number] == stage and self.in_pass(number) is in_pass
                ]
        return found

    def __str__(self) -> str:
        return self.text()

    def text(self, parts: str = "") -> str:
        """The loops; `parts` says how threads share them."""
        return "\n".join(_print_nest(self, parts))


def _print_nest(nest: LoopNest, parts: str) -> list[str]:
    args = ", ".join(f"a{i}: {dtype.name}*" for i, dtype in enumerate(nest.args))
    lines = [f"loop({args}){parts} {{"]
    indent = 1

    def open_loops(start: int, sizes: Shape) -> None:
        nonlocal indent
        for dim, size in enumerate(sizes, start):
            step = f" step {nest.lanes} lanes" if dim == nest.vector else ""
            lines.append("  " * indent + f"for i{dim} in {size}{step} {{")
            indent += 1

    def close_loops(count: int) -> None:
        nonlocal indent
        for _ in range(count):
            indent -= 1
            lines.append("  " * indent + "}")

    open_loops(0, nest.kept)
    for stage in range(nest.passes + 1):
        for number, inst in enumerate(nest.insts):
            if not nest.in_pass(number) and nest.stages[number] == stage:
                lines.append("  " * indent + print_inst(number, inst))
        if stage < nest.passes:
            lines.append("  " * indent + f"pass {stage}:")
            open_loops(len(nest.kept), nest.reduced)
            for number, inst in enumerate(nest.insts):
                if nest.in_pass(number) and nest.stages[number] == stage:
                    kept = ""
                    if number in nest.scratch:
                        kept = f"  // s{nest.scratch.index(number)}: kept for a later pass"
                    lines.append("  " * indent + print_inst(number, inst) + kept)
            close_loops(len(nest.reduced))
    close_loops(len(nest.kept))
    return [*lines, "}"]


def forms_of(insts: Sequence[Inst]) -> list[AffineExpr]:
    """All forms of the instructions."""
    return [inst.form for inst in insts if inst.form is not None]


def dropped(index: AffineExpr, dim: int) -> AffineExpr:
    """The form where the dim is 0."""
    return form(index.offset, [term for term in index.terms if term[0] != dim])


def renamed(inst: Inst, names: dict[int, int]) -> Inst:
    """The instruction over dims of other names."""
    return inst if inst.form is None else inst._replace(form=inst.form.renamed(names))


# Dims -----------------------------------------------------------------------------------------


def without_dim(inst: Inst, dim: int) -> Inst:
    """The instruction where the dim is 0."""
    if inst.form is None:
        return inst
    return inst._replace(form=dropped(inst.form, dim))


# Passes ---------------------------------------------------------------------------------------


def analyze(kernel: LoopNest) -> None:
    """Find what each instruction varies with, and in which pass it can run."""
    inner = frozenset(range(len(kernel.kept), len(kernel.sizes)))
    for inst in kernel.insts:
        dims = frozenset[int]() if inst.form is None else inst.form.dims
        stage = 0
        for operand in inst.operands:
            dims |= kernel.dims[operand]
            done = kernel.insts[operand].op == "reduce"
            stage = max(stage, kernel.stages[operand] + done)
        if inst.op == "scan":
            dims |= inner
        if inst.op == "product" or (inst.adds and not inst.begins):  # each round counts
            dims = frozenset(range(len(kernel.sizes)))
        kernel.dims.append(dims - inner if inst.op == "reduce" else dims)
        kernel.stages.append(stage)
