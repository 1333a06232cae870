"""The kernel IR: loops over buffers, the stage between fused groups and LLVM.

A `LoopKernel` has kept dims (outside) and reduced dims (inside). Its instructions are in SSA form;
the ones that vary along a reduced dim run once per element, in passes: a pass ends with
reductions, whose results the next one may use. The lanes of a vector run along one of the dims.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from lucid.codegen.forms import Form
from lucid.ir.types import DType, Shape, TensorType

EFFECTS = ("store", "accumulate", "write")


@dataclass(frozen=True, slots=True)
class Inst:
    """One instruction.

    Attributes:
        op: "const", "index" (the form's value), "load", "gather" (a load at an index operand),
            "reduce", "scan", "store", "accumulate" (add to memory), "write" (a store at an index
            operand), or an op's name.
        operands: numbers of earlier instructions.
        form: for memory the element's address, for "index" and random ops the value.
        arg: the buffer argument of a memory access.
        attributes: what else the rule needs, in a hashable form.
    """

    op: str
    dtype: DType
    operands: tuple[int, ...] = ()
    form: Form | None = None
    arg: int = -1
    attributes: tuple[Any, ...] = ()

    @property
    def is_root(self) -> bool:
        """Whether it has an effect."""
        return self.op in EFFECTS or self.op == "reduce"

    @property
    def has_address(self) -> bool:
        return self.arg >= 0


@dataclass(frozen=True, slots=True)
class Parts:
    """How the work of a kernel is cut, so that threads can share it: by shapes alone.

    Attributes:
        dim: the loop dim that is cut.
        size: values of the dim in each part but the last one.
        count: how many parts.
        partials: arguments of which each part gets a block of its own, one after the other, and
            the block's elements.
    """

    dim: int
    size: int
    count: int
    partials: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        text = f" in {self.count} parts of {self.size} along i{self.dim}"
        return text + "".join(f", a{arg} {size} for each" for arg, size in self.partials)


@dataclass(slots=True)
class LoopKernel:
    """A loop nest.

    Attributes:
        args: element types of the buffers that it gets.
        kept: sizes of the outer dims; dims are numbered, kept ones first.
        reduced: sizes of the inner dims.
        vector: the dim whose values fill the lanes, the last kept or the last reduced one; -1 none.
        dims: for each instruction the dims that its value depends on.
        stages: for each instruction how many passes must be over before it.
        scratch: instructions of an early pass whose values a later one reads from memory.
        parts: what threads share; None if the kernel is too short.
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
    parts: Parts | None = None

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

    def __str__(self) -> str:
        return "\n".join(_print_loop(self))


def _print_loop(kernel: LoopKernel) -> list[str]:
    args = ", ".join(f"a{i}: {dtype.name}*" for i, dtype in enumerate(kernel.args))
    lines = [f"loop({args}){kernel.parts or ''} {{"]
    indent = 1

    def open_loops(start: int, sizes: Shape) -> None:
        nonlocal indent
        for dim, size in enumerate(sizes, start):
            step = f" step {kernel.lanes} lanes" if dim == kernel.vector else ""
            lines.append("  " * indent + f"for i{dim} in {size}{step} {{")
            indent += 1

    def close_loops(count: int) -> None:
        nonlocal indent
        for _ in range(count):
            indent -= 1
            lines.append("  " * indent + "}")

    open_loops(0, kernel.kept)
    for stage in range(kernel.passes + 1):
        for number, inst in enumerate(kernel.insts):
            if not kernel.in_pass(number) and kernel.stages[number] == stage:
                lines.append("  " * indent + print_inst(kernel, number, inst))
        if stage < kernel.passes:
            lines.append("  " * indent + f"pass {stage}:")
            open_loops(len(kernel.kept), kernel.reduced)
            for number, inst in enumerate(kernel.insts):
                if kernel.in_pass(number) and kernel.stages[number] == stage:
                    kept = "  // kept for a later pass" if number in kernel.scratch else ""
                    lines.append("  " * indent + print_inst(kernel, number, inst) + kept)
            close_loops(len(kernel.reduced))
    close_loops(len(kernel.kept))
    return [*lines, "}"]


def print_form(form: Form | None) -> str:
    """The form as a sum over i0, i1, ..."""
    if form is None:
        return ""
    terms = [f"i{dim}*{value}" if value != 1 else f"i{dim}" for dim, value in form.terms]
    if form.offset or not terms:
        terms.append(str(form.offset))
    return " + ".join(terms)


def print_inst(kernel: LoopKernel, number: int, inst: Inst) -> str:
    """One line."""
    operands = ", ".join(f"%{n}" for n in inst.operands)
    details = "".join(f" {_printed(a)}" for a in inst.attributes)
    if inst.op in EFFECTS:
        arrow = "+=" if inst.op == "accumulate" else "<-"
        return f"a{inst.arg}[{print_form(inst.form)}] {arrow} {operands}{details}"
    place = print_form(inst.form)
    if inst.has_address:
        place = f" a{inst.arg}[{place}]"
    elif inst.form is not None:
        place = f" ({place})"
    operands = " " + operands if operands else ""
    return f"%{number} = {inst.op}{place}{operands}{details} : {inst.dtype.name}"


def _printed(attribute: Any) -> str:
    if isinstance(attribute, DType):
        return attribute.name
    if isinstance(attribute, bytes):
        return attribute.hex()
    return str(attribute)


@dataclass(frozen=True, slots=True)
class Grid:
    """How a product is cut for threads: into blocks of batch indices, rows and columns.

    Attributes:
        size: of a part: batch indices, rows, columns. Rows and columns are whole where several
            batch indices are together.
        counts: parts along batch, rows, columns.
        packs: parts of the copying of the operands that comes first, of each product; 0 for an
            operand that is read where it lies, or of which each part copies what it needs alone.
    """

    size: tuple[int, int, int]
    counts: tuple[int, int, int]
    packs: tuple[int, int]

    @property
    def count(self) -> int:
        return prod(self.counts)

    def __str__(self) -> str:
        counts, sizes = ("x".join(map(str, entry)) for entry in (self.counts, self.size))
        packs = f", packed in {self.packs[0]} + {self.packs[1]}" if any(self.packs) else ""
        return f" in {counts} parts of {sizes}{packs}"


@dataclass(slots=True)
class ContractKernel:
    """A product of matrices, and instructions for each element of the result.

    The dims of `body` are the batch dims, then the rows, then the columns; instruction 0 is the
    product. Operands are read at `a` (batch, rows, inner) and `b` (batch, inner, columns).

    Attributes:
        strides: elements from one row, inner index, column to the next: of a, of b.
        operands: numbers of the arguments that a and b are.
        has_scratch: the last argument is memory for packed operands.
        parts: what threads share; None if the product is too small.
    """

    body: LoopKernel
    rows: int
    inner: int
    columns: int
    batch: tuple[int, ...]
    a: Form
    b: Form
    strides: tuple[int, int, int, int]
    operands: tuple[int, int]
    has_scratch: bool
    parts: Grid | None = None

    def __str__(self) -> str:
        am, ak, bk, bn = self.strides
        head = (
            f"contract {self.rows}x{self.inner}x{self.columns} batch {list(self.batch)}: "
            f"a{self.operands[0]}[{print_form(self.a)} + m*{am} + k*{ak}] . "
            f"a{self.operands[1]}[{print_form(self.b)} + k*{bk} + n*{bn}]"
            f"{self.parts or ''}"
        )
        return f"{head}\n{self.body}"


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop of a contraction.

    Attributes:
        kind: "batch", "row" (of a and the result), "column" (of b and the result) or "inner".
        a, b: strides in the operands, in elements.
        dim: which dim of the result it is; -1 for an inner axis.
    """

    kind: str
    size: int
    a: int
    b: int
    dim: int = -1

    def swapped(self) -> Axis:
        """The same loop after the operands changed places."""
        kind = {"row": "column", "column": "row"}.get(self.kind, self.kind)
        return Axis(kind, self.size, self.b, self.a, self.dim)


@dataclass(slots=True)
class AxesKernel:
    """A contraction over any axes, and instructions for each element of the result.

    The dims of `body` are `loops`, whose sizes it has; instruction 0 is the product.

    Attributes:
        loops: axes of the result, outermost first. `steps`: elements of each in a tile.
        inner: axes that are summed over, outermost first.
        vector: position in `loops` of the axis of the lanes; -1 when it is the last inner one.
        operands: numbers of the arguments that a and b are. `offsets`: where they begin.
        block: elements of the first inner axis that all tiles go through before the next ones,
            while sums wait in the last argument; 0 for all of them at once.
        parts: what threads share; None if the product is too small.
    """

    body: LoopKernel
    loops: tuple[Axis, ...]
    steps: tuple[int, ...]
    inner: tuple[Axis, ...]
    vector: int
    lanes: int
    operands: tuple[int, int]
    offsets: tuple[int, int]
    block: int = 0
    parts: Parts | None = None

    def __str__(self) -> str:
        lines = [f"contract over axes, {self.lanes} lanes{self.parts or ''}:"]
        for number, (axis, step) in enumerate(zip(self.loops, self.steps, strict=True)):
            lanes = ", lanes" if number == self.vector else ""
            tile = f" step {step}" if step > 1 else ""
            lines.append(f"  {axis.kind} i{number} in {axis.size}{tile}{lanes}")
        for number, axis in enumerate(self.inner):
            block = f" in blocks of {self.block}" if self.block and not number else ""
            lines.append(f"  inner k{number} in {axis.size}{block}")
        for operand, offset, name in zip(self.operands, self.offsets, "ab", strict=True):
            terms = [f"i{n}*{getattr(axis, name)}" for n, axis in enumerate(self.loops)]
            terms += [f"k{n}*{getattr(axis, name)}" for n, axis in enumerate(self.inner)]
            kept = [term for term in terms if not term.endswith("*0")]
            lines.append(f"  {name}: a{operand}[{' + '.join([*kept, str(offset)])}]")
        return "\n".join([*lines, str(self.body)])


@dataclass(slots=True)
class CheckKernel:
    """Whether all indices lie in low <= i < high; else the record gets node and index."""

    dtype: DType
    shape: Shape
    form: Form
    low: int
    high: int

    def __str__(self) -> str:
        dims = ", ".join(f"i{dim} in {size}" for dim, size in enumerate(self.shape))
        place = f"a0[{print_form(self.form)}] : {self.dtype.name}"
        return f"check({dims}) {self.low} <= {place} < {self.high}"


@dataclass(slots=True)
class SortKernel:
    """Sort lines: a0 at `source` is read with `stride`, a1 at `target` is written.

    Attributes:
        keeps: "values" or, for argsort, "positions".
        kept: how many of each line, from its beginning, are wanted.
        parts: how the lines are cut, along one of their dims.
    """

    dtype: DType
    shape: Shape
    length: int
    source: Form
    source_stride: int
    target: Form
    target_stride: int
    descending: bool
    keeps: str
    kept: int
    parts: Parts | None = None

    def __str__(self) -> str:
        dims = ", ".join(f"i{dim} in {size}" for dim, size in enumerate(self.shape))
        order = "descending" if self.descending else "ascending"
        first = f" first {self.kept}" if self.kept < self.length else ""
        return (
            f"sort({dims}) {order} {self.length} {self.dtype.name} {self.keeps}{first}: "
            f"a0[{print_form(self.source)} + k*{self.source_stride}] -> "
            f"a1[{print_form(self.target)} + k*{self.target_stride}]{self.parts or ''}"
        )


@dataclass(slots=True)
class HostKernel:
    """A call of Python: the first arguments are read, the rest is filled."""

    name: str
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]

    def __str__(self) -> str:
        def listed(types: tuple[TensorType, ...], first: int) -> str:
            return ", ".join(f"a{i}: {type}" for i, type in enumerate(types, first))

        results = listed(self.results, len(self.operands))
        return f"host {self.name}({listed(self.operands, 0)}) -> ({results})"


Kernel = LoopKernel | ContractKernel | AxesKernel | CheckKernel | SortKernel | HostKernel
