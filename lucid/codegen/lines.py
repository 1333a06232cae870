"""Emission of kernels that go line by line: the loops over lines, and checks of indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lucid.codegen import lowering
from lucid.codegen.forms import Form
from lucid.codegen.kernel import CheckKernel
from lucid.codegen.llvm import FunctionBuilder, Val, const, const_lanes, i64, vector

Cut = tuple[int, Val, Val]
"""A dim, and which part of it to go through."""


def over_lines(
    b: FunctionBuilder,
    shape: Sequence[int],
    forms: Sequence[Form],
    inside: Callable[[list[Val]], None],
    dim: int = 0,
    offsets: list[Val] | None = None,
    cut: Cut | None = None,
) -> None:
    """Run `inside` for all index tuples (of a part), with the value of each form."""
    if offsets is None:
        offsets = [i64(form.offset) for form in forms]
    if dim == len(shape):
        inside(offsets)
        return
    low, high = cut[1:] if cut is not None and cut[0] == dim else (0, shape[dim])
    with b.loop(low, high) as loop:
        moved = []
        for form, offset in zip(forms, offsets, strict=True):
            factor = form.coefficient(dim)
            moved.append(b.add(offset, b.mul(loop.index, factor)) if factor else offset)
        over_lines(b, shape, forms, inside, dim + 1, moved, cut)


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
        with b.if_(_is_outside(b, index, kernel)):
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
                loop.carry(b.or_(loop.carried[0], _is_outside(b, found, kernel)))
            wrong = loop.results[0]
        if main < size:
            mask = const_lanes("i1", [lane < size - main for lane in range(lanes)])
            found = b.masked_load(vector(element, lanes), b.at(element, start, main), mask)
            wrong = b.or_(wrong, _is_outside(b, found, kernel))
        with b.if_(b.any(wrong)), b.loop(0, size) as loop:
            search(b.at(element, start, loop.index))

    if vectors:
        over_lines(b, kernel.shape[:-1], [kernel.form], line)
    else:
        over_lines(b, kernel.shape, [kernel.form], lambda at: search(b.at(element, indices, at[0])))


def _is_outside(b: FunctionBuilder, index: Val, kernel: CheckKernel) -> Val:
    """Whether low <= index < high is wrong."""
    return b.or_(b.ge(index, kernel.high), b.lt(index, kernel.low))
