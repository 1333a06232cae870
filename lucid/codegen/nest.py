"""A loop nest: its instructions, which dim fills the lanes, the order of dims, what passes keep.

A `LoopNest` has kept dims (outside) and reduced dims (inside). Its instructions are in SSA form;
the ones that vary along a reduced dim run once per element, in passes: a pass ends with
reductions, whose results the next one may use. The lanes of a vector run along one of the dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from lucid.codegen import costs
from lucid.codegen.forms import ZERO, Form, form, fresh_dim
from lucid.codegen.instruction import EFFECTS, Inst, print_inst
from lucid.codegen.target import Target
from lucid.ir.types import DType, Shape

# Elements of a line that a transposition reads from one line after the other.
_TILE = 64


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

    def free_dims(self) -> list[int]:
        """The kept dims of which each index writes elements of its own."""
        free = set(range(len(self.kept)))
        for inst in self.effects:
            assert inst.form is not None
            free &= inst.form.dims
        return sorted(free)

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


def forms_of(insts: Sequence[Inst]) -> list[Form]:
    """All forms of the instructions."""
    return [inst.form for inst in insts if inst.form is not None]


def dropped(index: Form, dim: int) -> Form:
    """The form where the dim is 0."""
    return form(index.offset, [term for term in index.terms if term[0] != dim])


def renamed(inst: Inst, names: dict[int, int]) -> Inst:
    """The instruction over dims of other names."""
    return inst if inst.form is None else replace(inst, form=inst.form.renamed(names))


# Dims -----------------------------------------------------------------------------------------


def lanes_for(insts: Sequence[Inst], target: Target) -> int:
    """Lanes of a full vector of the smallest number type that is computed with."""
    sizes = [inst.dtype.itemsize for inst in insts if inst.dtype.kind != "bool"]
    return target.vector_bytes // min(sizes, default=4)


def choose_vector(
    insts: Sequence[Inst],
    sizes: dict[int, int],
    serial: Sequence[int],
    reduced: frozenset[int],
    lanes: int,
) -> int:
    """The dim along which most accesses, stores above all, are contiguous; -1 if there is none.

    An access counts as often as it is made: a store of sums next to nothing beside their terms.
    """
    accesses = [
        (inst.op in EFFECTS, inst.form, prod(sizes[dim] for dim in inst.form.dims))
        for inst in insts
        if inst.has_address and inst.form is not None
    ]
    most = max((rounds for _, _, rounds in accesses), default=0) or 1

    def score(dim: int) -> tuple[float, int, int, int]:
        total, far = 0.0, 0
        for is_store, address, rounds in accesses:
            stride, weight = address.coefficient(dim), rounds / most
            if stride == 1:
                total += weight * (4 if is_store else 2)
            elif stride:
                total -= weight * (1 if 2 <= stride <= 4 else 4)
                far = max(far, abs(stride))
            elif not is_store:
                total += weight
        total -= 6 * ((sizes[dim] * 2 <= lanes) + (sizes[dim] * 4 <= lanes))
        return total, -far, sizes[dim], -dim

    return max((dim for dim in sizes if dim not in serial), key=score, default=-1)


def order_dims(
    insts: Sequence[Inst],
    dims: list[int],
    serial: Sequence[int],
    reduced: frozenset[int],
    vector: int,
) -> list[int]:
    """Kept dims, then reduced ones, each by falling stride of the main access, the vector last."""
    accesses = [inst for inst in insts if inst.has_address and inst.form is not None]
    stores = [inst for inst in accesses if inst.op in EFFECTS]

    def by_stride(group: list[int], candidates: list[Inst]) -> list[int]:
        movable = [dim for dim in group if dim not in serial and dim != vector]
        forms = [inst.form for inst in candidates if inst.form is not None]
        main = max(forms, key=lambda f: len(f.dims & set(group)), default=ZERO)
        movable.sort(key=lambda dim: -abs(main.coefficient(dim)))
        fixed = [dim for dim in group if dim in serial]
        return movable + fixed + [dim for dim in group if dim == vector]

    kept = by_stride([dim for dim in dims if dim not in reduced], stores or accesses)
    inner = by_stride([dim for dim in dims if dim in reduced], accesses)
    return kept + inner


def collapse(
    insts: list[Inst], order: list[int], sizes: dict[int, int], reduced: frozenset[int]
) -> tuple[list[Inst], list[int], dict[int, int]]:
    """Make one dim of neighbours that every access walks through without a gap."""
    order = list(order)
    at = len(order) - 2
    while at >= 0:
        outer, inner = order[at], order[at + 1]
        forms = [inst.form for inst in insts if inst.form is not None]
        if (outer in reduced) == (inner in reduced) and all(
            f.coefficient(outer) == f.coefficient(inner) * sizes[inner] for f in forms
        ):
            sizes[inner] *= sizes.pop(outer)
            insts = [without_dim(inst, outer) for inst in insts]
            order.pop(at)
        at -= 1
    return insts, order, sizes


def tile(
    insts: list[Inst], order: list[int], sizes: dict[int, int], vector: int
) -> tuple[list[Inst], list[int], dict[int, int]]:
    """Cut a long vector dim that some access strides over, and put its outer part outside.

    While the next dim advances by one element, a transposition then finds in the cache the lines
    that it has touched.
    """
    accesses = [inst.form for inst in insts if inst.has_address and inst.form is not None]
    strided = [f for f in accesses if abs(f.coefficient(vector)) > 1]
    size = sizes.get(vector, 0)
    if len(order) < 2 or size < 2 * _TILE or not strided:
        return insts, order, sizes
    if not any(f.coefficient(dim) == 1 for f in strided for dim in order):
        return insts, order, sizes
    inner = next((n for n in range(_TILE, 15, -16) if size % n == 0), 0)
    if not inner:
        return insts, order, sizes
    outer = fresh_dim()
    sizes = {**sizes, outer: size // inner, vector: inner}
    changed = [_cut(inst, vector, outer, inner) for inst in insts]
    return changed, [outer, *order], sizes


def _cut(inst: Inst, dim: int, outer: int, inner: int) -> Inst:
    if inst.form is None:
        return inst
    return replace(inst, form=inst.form.split(dim, outer, dim, inner))


def without_dim(inst: Inst, dim: int) -> Inst:
    """The instruction where the dim is 0."""
    if inst.form is None:
        return inst
    return replace(inst, form=dropped(inst.form, dim))


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
        if inst.op == "product":
            dims = frozenset(range(len(kernel.sizes)))
        kernel.dims.append(dims - inner if inst.op == "reduce" else dims)
        kernel.stages.append(stage)


def choose_scratch(kernel: LoopNest) -> None:
    """Decide which values of an early pass are kept in memory for a later one."""
    if kernel.passes < 2 or not prod(kernel.reduced) or not kernel.reduced:
        return
    count = prod(kernel.reduced)
    across = kernel.vector >= 0 and kernel.vector < len(kernel.kept)
    room = costs.KEPT_BYTES // (count * (kernel.lanes if across else 1))
    work = work_of(kernel)
    computed: set[int] = set()
    for stage in range(kernel.passes):
        kept, fresh = early_values(kernel, stage, computed, work)
        computed |= fresh
        for number in sorted(kept - set(kernel.scratch)):
            room -= kernel.insts[number].dtype.itemsize
            if room >= 0:
                kernel.scratch.append(number)


def early_values(
    kernel: LoopNest, stage: int, computed: set[int], work: list[int]
) -> tuple[set[int], set[int]]:
    """Expensive values of earlier passes that a pass reads, and all that it computes."""
    kept: set[int] = set()
    fresh: set[int] = set()
    todo = [
        operand
        for number, inst in enumerate(kernel.insts)
        if inst.is_root and kernel.in_pass(number) and kernel.stages[number] == stage
        for operand in inst.operands
    ]
    while todo:
        number = todo.pop()
        if number in fresh or number in kept or not kernel.is_inner(number):
            continue
        if number in computed and work[number] > costs.KEPT:
            kept.add(number)
        else:
            fresh.add(number)
            todo += kernel.insts[number].operands
    return kept, fresh


def work_of(kernel: LoopNest) -> list[int]:
    """What it takes to compute each value anew within a pass; a shared part counts twice."""
    result: list[int] = []
    for number, inst in enumerate(kernel.insts):
        if not kernel.is_inner(number) or inst.op in ("load", "const", "index"):
            result.append(0)
        elif inst.op == "scan":
            result.append(costs.KEPT + 1)
        else:
            below = sum(result[operand] for operand in inst.operands)
            result.append(min(costs.cost_of(inst.op) + below, 1 << 20))
    return result
