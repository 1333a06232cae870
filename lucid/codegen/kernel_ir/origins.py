"""Instructions that don't say where in its buffers their work begins."""

from __future__ import annotations

from dataclasses import replace

from lucid.codegen.kernel_ir.affine import AffineExpr
from lucid.codegen.kernel_ir.kernel import Origins
from lucid.codegen.kernel_ir.nest import LoopNest


def relocated(nest: LoopNest, origins: Origins) -> LoopNest:
    """Address each argument from its first access on, and enter where that is."""
    for inst in nest.insts:
        if inst.has_address:
            origins.setdefault(inst.arg, inst.at.offset)
    insts = [
        inst._replace(form=moved(inst.form, origins[inst.arg]))
        if inst.form is not None and origins.get(inst.arg, 0)
        else inst
        for inst in nest.insts
    ]
    return replace(nest, insts=insts)


def moved(form: AffineExpr, origin: int) -> AffineExpr:
    """The address from an origin on."""
    return form._replace(offset=form.offset - origin) if origin else form
