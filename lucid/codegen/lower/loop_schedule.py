"""How the loops of a nest run: their order, the dim of the lanes, tiles, what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from lucid.codegen import costs
from lucid.codegen.kernel_ir.affine import ZERO, fresh_dim
from lucid.codegen.kernel_ir.instruction import EFFECTS, Inst
from lucid.codegen.kernel_ir.nest import LoopNest, without_dim
from lucid.codegen.llvm.target import Target
from lucid.ir.extents import hint, is_multiple


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
        (inst.op in EFFECTS, inst.form, prod(hint(sizes[dim]) for dim in inst.form.dims))
        for inst in insts
        if inst.has_address and inst.form is not None
    ]
    most = max((rounds for _, _, rounds in accesses), default=0) or 1

    def score(dim: int) -> tuple[float, int, int, int]:
        total, far = 0.0, 0
        for is_store, address, rounds in accesses:
            stride, weight = hint(address.coefficient(dim)), rounds / most
            if abs(stride) == 1:
                total += weight * (4 if is_store else 2)
            elif stride:
                total -= weight * (1 if 2 <= stride <= 4 else 4)
                far = max(far, abs(stride))
            elif not is_store:
                total += weight
        size = hint(sizes[dim])
        total -= 6 * ((size * 2 <= lanes) + (size * 4 <= lanes))
        return total, -far, size, -dim

    best = max((dim for dim in sizes if dim not in serial), key=score, default=-1)
    if any(inst.op in ("scan", "write") for inst in insts):
        named = (inst.fold if inst.op == "scan" else inst.op for inst in insts if inst.arg < 0)
        strides = [abs(hint(form.coefficient(best))) for is_store, form, _ in accesses if is_store]
        is_far = min(strides, default=0) >= costs.LINE
        return -1 if is_far and sum(map(costs.cost_of, named)) <= costs.SERIAL else best
    return best


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
        movable.sort(key=lambda dim: -abs(hint(main.coefficient(dim))))
        fixed = [dim for dim in group if dim in serial]
        return movable + fixed + [dim for dim in group if dim == vector]

    kept = by_stride([dim for dim in dims if dim not in reduced], stores or accesses)
    inner = by_stride([dim for dim in dims if dim in reduced], accesses)
    turned = _turned_dim(accesses, vector)
    if turned in kept[:-1] and kept[-1] == vector and not serial and not inner:
        kept.remove(turned)
        kept.insert(-1, turned)
    return kept + inner


def _turned_dim(accesses: Sequence[Inst], vector: int) -> int:
    """The dim along which a load is contiguous that strides over the lanes' dim; -1 if none is."""
    for inst in accesses:
        if inst.op == "load" and inst.form is not None and hint(inst.form.coefficient(vector)) > 4:
            return next((dim for dim, step in inst.form.terms if step == 1), -1)
    return -1


def collapse(
    insts: list[Inst], sizes: dict[int, int], serial: Sequence[int], reduced: frozenset[int]
) -> tuple[list[Inst], dict[int, int]]:
    """Make one dim of any two that every access walks through, one in the other, without a gap."""
    sizes = dict(sizes)
    for inner in [dim for dim in sizes if dim not in serial]:
        while inner in sizes:
            forms = [inst.form for inst in insts if inst.form is not None]
            around = (
                dim
                for dim in sizes
                if dim not in (inner, *serial) and (dim in reduced) == (inner in reduced)
                if all(f.coefficient(dim) == f.coefficient(inner) * sizes[inner] for f in forms)
            )
            if (outer := next(around, None)) is None:
                break
            sizes[inner] *= sizes.pop(outer)
            insts = [without_dim(inst, outer) for inst in insts]
    return insts, sizes


def tile(
    insts: list[Inst], order: list[int], sizes: dict[int, int], vector: int
) -> tuple[list[Inst], list[int], dict[int, int]]:
    """Cut a long vector dim that some access strides over, and put its outer part outside.

    While the next dim advances by one element, a transposition then finds in the cache the lines
    that it has touched.
    """
    accesses = [inst.form for inst in insts if inst.has_address and inst.form is not None]
    strided = [f for f in accesses if abs(f.coefficient(vector)) > 1]
    size = hint(sizes.get(vector, 0))
    if len(order) < 2 or size < 2 * costs.TILE or not strided:
        return insts, order, sizes
    if not any(f.coefficient(dim) == 1 for f in strided for dim in order):
        return insts, order, sizes
    size = sizes[vector]
    inner = next((n for n in range(costs.TILE, 15, -16) if is_multiple(size, n)), 0)
    if not inner:
        return insts, order, sizes
    outer = fresh_dim()
    sizes = {**sizes, outer: size // inner, vector: inner}
    changed = [_cut(inst, vector, outer, inner) for inst in insts]
    return changed, [outer, *order], sizes


def _cut(inst: Inst, dim: int, outer: int, inner: int) -> Inst:
    if inst.form is None:
        return inst
    return inst._replace(form=inst.form.split(dim, outer, dim, inner))


def choose_scratch(kernel: LoopNest) -> None:
    """Decide which values of an early pass are kept in memory for a later one."""
    if kernel.passes < 2 or not prod(kernel.reduced) or not kernel.reduced:
        return
    count = hint(prod(kernel.reduced))
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
