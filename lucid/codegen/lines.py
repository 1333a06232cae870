"""Emission of kernels that go line by line: index checks and sorting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lucid.codegen import lowering
from lucid.codegen.forms import Form
from lucid.codegen.kernel import CheckKernel, SortKernel
from lucid.codegen.llvm import FunctionBuilder, Module, Val, const, const_lanes, i64, vector
from lucid.ir.types import DType


def over_lines(
    b: FunctionBuilder,
    shape: Sequence[int],
    forms: Sequence[Form],
    inside: Callable[[list[Val]], None],
    dim: int = 0,
    offsets: list[Val] | None = None,
) -> None:
    """Run `inside` for all index tuples, with the value of each form."""
    if offsets is None:
        offsets = [i64(form.offset) for form in forms]
    if dim == len(shape):
        inside(offsets)
        return
    with b.loop(0, shape[dim]) as loop:
        moved = []
        for form, offset in zip(forms, offsets, strict=True):
            factor = form.coefficient(dim)
            moved.append(b.add(offset, b.mul(loop.index, factor)) if factor else offset)
        over_lines(b, shape, forms, inside, dim + 1, moved)


def emit_check(b: FunctionBuilder, kernel: CheckKernel, args: Sequence[Val]) -> None:
    """Write 1 + `code`, the index, into the record at the first one that is out of range.

    Args: record, code (i64), indices. Later wrong indices leave the record as it is. A line is
    looked at by vectors, and only searched when there is a wrong index in it.
    """
    record, code, indices = args
    element = lowering.MEMORY[kernel.dtype]
    step = kernel.form.coefficient(len(kernel.shape) - 1)
    vectors = bool(kernel.shape) and step == 1

    def search(place: Val) -> None:
        index = b.cast("sext", b.load(element, place), "i64")
        with b.if_(_is_outside(b, index, kernel.limit)):
            first = b.eq(b.load("i64", record), 0)
            with b.if_(first):
                b.store(code, record)
                b.store(index, b.at("i64", record, 1))

    def line(offsets: list[Val]) -> None:
        start, size = b.at(element, indices, offsets[0]), kernel.shape[-1]
        lanes = b.target.lanes(element)
        main = size - size % lanes
        wrong = const(vector("i1", lanes), 0)
        if main:
            with b.loop(0, main, lanes, [wrong]) as loop:
                found = b.load(vector(element, lanes), b.at(element, start, loop.index))
                loop.carry(b.or_(loop.carried[0], _is_outside(b, found, kernel.limit)))
            wrong = loop.results[0]
        if main < size:
            mask = const_lanes("i1", [lane < size - main for lane in range(lanes)])
            found = b.masked_load(vector(element, lanes), b.at(element, start, main), mask)
            wrong = b.or_(wrong, _is_outside(b, found, kernel.limit))
        with b.if_(b.any(wrong)), b.loop(0, size) as loop:
            search(b.at(element, start, loop.index))

    if vectors:
        over_lines(b, kernel.shape[:-1], [kernel.form], line)
    else:
        over_lines(b, kernel.shape, [kernel.form], lambda at: search(b.at(element, indices, at[0])))


def _is_outside(b: FunctionBuilder, index: Val, limit: int) -> Val:
    """Whether -limit <= index < limit is wrong."""
    return b.or_(b.ge(index, limit), b.lt(index, -limit))


# Sorting --------------------------------------------------------------------------------------


def emit_sort(b: FunctionBuilder, kernel: SortKernel, args: Sequence[Val]) -> None:
    """Bottom-up merge sort of each line, in scratch memory: stable.

    Args: source, target, scratch (two lines of keys, two of positions).
    """
    source, target, scratch = args
    element, count = lowering.MEMORY[kernel.dtype], kernel.length
    positions = kernel.keeps == "positions"
    merge = _merge_function(b.module, kernel, positions)
    keys = [scratch, b.at("i8", scratch, count * 8)]
    places = [b.at("i8", scratch, count * 16), b.at("i8", scratch, count * 24)]

    def inside(offsets: list[Val]) -> None:
        with b.loop(0, count) as loop:
            at = b.add(offsets[0], b.mul(loop.index, kernel.source_stride))
            b.store(b.load(element, b.at(element, source, at)), b.at(element, keys[0], loop.index))
            if positions:
                b.store(loop.index, b.at("i64", places[0], loop.index))
        width, turn = 1, 0
        while width < count:
            here, there = turn, 1 - turn
            b.call(
                merge, "void", keys[here], keys[there], places[here], places[there],
                i64(count), i64(width),
            )  # fmt: skip
            width, turn = width * 2, there
        kept, kept_element = keys[turn], element
        if positions:
            kept, kept_element = places[turn], "i64"
        with b.loop(0, count) as loop:
            at = b.add(offsets[1], b.mul(loop.index, kernel.target_stride))
            value = b.load(kept_element, b.at(kept_element, kept, loop.index))
            b.store(value, b.at(kept_element, target, at))

    over_lines(b, kernel.shape, [kernel.source, kernel.target], inside)


def _before(b: FunctionBuilder, dtype: DType, descending: bool, x: Val, y: Val) -> Val:
    """Whether x must stand before y; a NaN is the greatest."""
    if dtype.kind == "bool":
        x, y = b.ne(x, 0), b.ne(y, 0)
    result = lowering.less(b, dtype, *((y, x) if descending else (x, y)))
    if dtype.kind != "float":
        return result
    greater, other = (x, y) if descending else (y, x)
    return b.or_(result, b.and_(b.is_nan(greater), b.not_(b.is_nan(other))))


def _merge_function(module: Module, kernel: SortKernel, positions: bool) -> str:
    """One round: sorted runs of `width` elements are merged pairwise."""
    dtype, descending = kernel.dtype, kernel.descending
    name = f"merge_{dtype.name}_{'down' if descending else 'up'}_{kernel.keeps}"
    if name in module.functions:
        return name
    element = lowering.MEMORY[dtype]
    pointers = [("ptr", p) for p in ("from", "to", "places", "placed")]
    parameters = [*pointers, ("i64", "count"), ("i64", "width")]
    with FunctionBuilder(module, name, parameters, internal=True) as b:
        keys, merged, places, placed, count, width = b.args
        double = b.add(width, width)
        runs = b.binary("udiv", b.add(count, b.sub(double, 1)), double)
        with b.loop(0, runs) as run:
            low = b.mul(run.index, double)
            middle = _smaller(b, b.add(low, width), count)
            high = _smaller(b, b.add(low, double), count)
            with b.loop(low, high, 1, [low, middle]) as loop:
                left, right = loop.carried
                at = [_smaller(b, left, b.sub(middle, 1)), _smaller(b, right, b.sub(high, 1))]
                x, y = (b.load(element, b.at(element, keys, i)) for i in at)
                # The right one only if it must stand first: equal ones keep their order.
                take = b.and_(b.lt(right, high), _before(b, dtype, descending, y, x))
                take = b.or_(take, b.ge(left, middle))
                chosen = b.select(take, at[1], at[0])
                b.store(b.select(take, y, x), b.at(element, merged, loop.index))
                if positions:
                    place = b.load("i64", b.at("i64", places, chosen))
                    b.store(place, b.at("i64", placed, loop.index))
                one, zero = const("i64", 1), const("i64", 0)
                moved = b.add(right, b.select(take, one, zero))
                loop.carry(b.add(left, b.select(take, zero, one)), moved)
        b.ret()
    return name


def _smaller(b: FunctionBuilder, x: Val, y: Val) -> Val:
    return b.select(b.lt(x, y), x, y)
