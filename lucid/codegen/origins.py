"""Kernels that don't say where in its buffers their work begins, so that equal ones are one.

A loop of the user's that is unrolled does the same at another place in each round: rows of a
sequence, slices of a state. Where each argument begins is told by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lucid.codegen.forms import Form
from lucid.codegen.kernel import (
    AxesKernel,
    CheckKernel,
    ContractKernel,
    Inst,
    Kernel,
    LoopKernel,
    SortKernel,
)

Origins = dict[int, int]


def without_origins(kernel: Kernel) -> tuple[Kernel, Origins]:
    """Address each argument from its first access on; return where that is, in elements."""
    origins: Origins = {}
    if isinstance(kernel, LoopKernel):
        return _moved_loop(kernel, origins), origins
    if isinstance(kernel, ContractKernel):
        a, b = (
            _moved(form, origins.setdefault(arg, form.offset))
            for arg, form in zip(kernel.operands, (kernel.a, kernel.b), strict=True)
        )
        return replace(kernel, a=a, b=b, body=_moved_loop(kernel.body, origins)), origins
    if isinstance(kernel, AxesKernel):
        pairs = list(zip(kernel.operands, kernel.offsets, strict=True))
        x, y = (offset - origins.setdefault(arg, offset) for arg, offset in pairs)
        return replace(kernel, offsets=(x, y), body=_moved_loop(kernel.body, origins)), origins
    if isinstance(kernel, SortKernel):
        origins.update({0: kernel.source.offset, 1: kernel.target.offset})
        source, target = (_moved(form, form.offset) for form in (kernel.source, kernel.target))
        return replace(kernel, source=source, target=target), origins
    if isinstance(kernel, CheckKernel):
        origins[0] = kernel.form.offset
        return replace(kernel, form=_moved(kernel.form, kernel.form.offset)), origins
    return kernel, origins


def _moved_loop(kernel: LoopKernel, origins: Origins) -> LoopKernel:
    for inst in kernel.insts:
        if inst.has_address:
            assert inst.form is not None
            origins.setdefault(inst.arg, inst.form.offset)
    return replace(kernel, insts=_moved_insts(kernel.insts, origins))


def _moved_insts(insts: Sequence[Inst], origins: Mapping[int, int]) -> list[Inst]:
    return [
        replace(inst, form=_moved(inst.form, origins[inst.arg]))
        if inst.has_address and inst.form is not None
        else inst
        for inst in insts
    ]


def _moved(form: Form, origin: int) -> Form:
    return replace(form, offset=form.offset - origin) if origin else form
