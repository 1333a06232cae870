"""Attention and its gradient, cut along blocks of queries, or along the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, prod

import numpy as np

from lucid.codegen import costs
from lucid.codegen.contraction.attention import Attention, AttentionEmitter
from lucid.codegen.costs import cost_of
from lucid.codegen.emit.lines import part_of
from lucid.codegen.kernel_ir.affine import AffineExpr
from lucid.codegen.kernel_ir.instruction import print_form
from lucid.codegen.kernel_ir.kernel import (
    Access,
    Call,
    Kernel,
    Memory,
    NewTemp,
    Origins,
    Partition,
    World,
)
from lucid.codegen.kernel_ir.origins import moved
from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.kernel_ir.timing import peak
from lucid.codegen.kernel_ir.work import Traffic, Work
from lucid.codegen.kernels.evaluation import form_values, range_of
from lucid.codegen.llvm.builder import FunctionBuilder, Val
from lucid.codegen.llvm.target import Target
from lucid.codegen.threads.parallel import wanted_parts
from lucid.ir import ops
from lucid.ir.extents import ceil_div, hint, replaced
from lucid.ir.ops.attention import rows_first
from lucid.ir.types import DType, Shape, i64


@dataclass(slots=True)
class AttentionKernel(Kernel):
    """Attention or its gradient: the operands, then the result and scratch memory.

    Attributes:
        scratch_size: elements of the memory that each part needs.
        parts: how blocks of queries, or indices of the batch, are cut.
    """

    spec: Attention
    scratch_size: int
    parts: Partition | None = None

    @property
    def kind(self) -> str:
        return "attention"

    def __str__(self) -> str:
        x, sizes = self.spec, self.spec.sizes
        mask = "" if x.mask is None else f"{x.mask.name} mask"
        mask += "" if x.fill == -inf else f" of {x.fill!r}"
        flags = (
            ("gradient", x.gradient), ("causal", x.causal), ("nan", x.nan_rows),
            (mask, bool(mask)), ("dropout", x.has_dropout),
        )  # fmt: skip
        said = "".join(f" {name}" for name, is_set in flags if is_set)
        places = ", ".join(f"a{n}[{print_form(place)}]" for n, place in enumerate(x.places))
        return (
            f"attention{said} {x.dtype.name} {'x'.join(map(str, sizes.batch)) or 'one'} of "
            f"{sizes.rows} queries {sizes.keys} keys, {sizes.inner} {sizes.columns}, blocks of "
            f"{x.block[0]}x{x.block[1]}: {places}, {self.scratch_size} own{self.parts or ''}"
        )

    @property
    def scratch(self) -> Sequence[int]:
        return (len(self.spec.names) + 1,)

    @property
    def _units(self) -> int:
        batch = prod(self.spec.sizes.batch)
        return batch if self.spec.gradient else batch * self.spec.query_blocks

    def work(self, args: Sequence[Buffer]) -> Work:
        traffic = Traffic(args)
        for number, (place, shape) in enumerate(self._operands()):
            traffic.read(number, prod(shape[dim] for dim in place.dims))
        traffic.write(len(self.spec.names), args[len(self.spec.names)].size)
        return traffic.work(self._flops() + 4 * self._scores())

    def _scores(self) -> int:
        """The scores that are computed: with a causal mask half of them, if there are many."""
        sizes = self.spec.sizes
        seen = sizes.keys
        if self.spec.causal:
            seen = min(sizes.keys, (min(sizes.rows, sizes.keys) + self.spec.block[0]) // 2)
        return prod(sizes.batch) * sizes.rows * seen

    def _flops(self) -> int:
        sizes = self.spec.sizes
        wide = (
            3 * sizes.inner + 2 * sizes.columns
            if self.spec.gradient
            else sizes.inner + sizes.columns
        )
        return 2 * self._scores() * wide

    def seconds(self, target: Target) -> float:
        lanes = target.lanes(self.spec.element)
        instructions = cost_of("exp") + 6
        instructions += cost_of("random_uniform") if self.spec.has_dropout else 0
        at_hand: AttentionKernel = replaced(self, hint)
        elementwise = at_hand._scores() / lanes * instructions / costs.VECTOR_INSTRUCTIONS
        return at_hand._flops() / peak(self.spec.dtype, target) + elementwise

    def partition(self, args: list[Buffer], new_temp: NewTemp, target: Target) -> list[Call]:
        """Cut the units, each part with memory of its own."""
        units = hint(self._units)
        wanted = min(wanted_parts(self.seconds(target)), units)
        count = 1
        if wanted > 1:
            size = ceil(units / wanted)
            count = ceil_div(self._units, size)
            own = self.scratch_size
            self.parts = Partition(0, size, count, ((self.scratch[0], own),))
        args[-1].size = -(-count * self.scratch_size * self.spec.dtype.itemsize // i64.itemsize)
        return [(self, args)]

    def relocate(self) -> tuple[Kernel, Origins]:
        places = self.spec.places
        origins = {number: place.offset for number, place in enumerate(places)}
        spec = replace(self.spec, places=tuple(moved(place, place.offset) for place in places))
        return replace(self, spec=spec), origins

    # What it means ------------------------------------------------------------------------

    def _operands(self) -> Iterator[tuple[AffineExpr, Shape]]:
        """Where each operand lies, and its shape with the whole batch."""
        x = self.spec
        sizes = x.sizes
        q, k, v = (
            (sizes.rows, sizes.inner),
            (sizes.keys, sizes.inner),
            (sizes.keys, sizes.columns),
        )
        rows = (sizes.rows,)
        own = {
            "q": q, "k": k, "v": v, "mask": (sizes.rows, sizes.keys), "state": (2,), "keep": (),
            "sums": rows, "errors": rows, "delta": rows, "g": (sizes.rows, sizes.columns),
        }  # fmt: skip
        for name, place in zip(x.names, x.places, strict=True):
            yield place, (*sizes.batch, *own[name])

    def _dtype_of(self, name: str) -> DType:
        if name == "mask":
            assert self.spec.mask is not None
            return self.spec.mask
        return i64 if name == "state" else self.spec.dtype

    def accesses(self) -> Iterator[Access]:
        for number, (place, shape) in enumerate(self._operands()):
            dtype = self._dtype_of(self.spec.names[number])
            yield Access(number, *range_of(place, shape), dtype)
        last, count = len(self.spec.names), 1 if self.parts is None else self.parts.count
        yield Access(last, 0, self._result_size() - 1, self.spec.dtype, writes=True)
        size = count * self.scratch_size * self.spec.dtype.itemsize // i64.itemsize
        yield Access(last + 1, 0, max(size, 1) - 1, i64, writes=True)

    def _shapes(self) -> list[Shape]:
        sizes = self.spec.sizes
        return sizes.gradients if self.spec.gradient else sizes.parts

    def _result_size(self) -> int:
        return sum(map(prod, self._shapes()))

    def problems(self) -> Iterator[str]:
        x = self.spec
        if 0 in (*x.sizes.scores, x.sizes.inner, x.sizes.columns):
            yield "has a size of 0"
        for name in ("q", "k", "v", *(["g"] if x.gradient else [])):
            width = x.sizes.inner if name in "qk" else x.sizes.columns
            if width > 1 and x.stride(name, 1) != 1:
                yield f"reads {name} with a stride of {x.stride(name, 1)} along a row"
        if self.parts is not None:
            yield from self.parts.problems((self._units,))

    def evaluate(self, memory: Sequence[Memory], world: World) -> None:
        x = self.spec
        given = []
        for number, (place, shape) in enumerate(self._operands()):
            values = memory[number].read(form_values(place, shape))
            if x.names[number] in ("state", "keep"):
                values = values.reshape(shape[len(x.sizes.batch) :])
            given.append(np.broadcast_to(values, shape) if values.ndim > 1 else values)
        op = ops.attention_grad if x.gradient else ops.attention
        found = op.evaluate(
            *given,
            causal=x.causal,
            has_mask=x.mask is not None,
            has_dropout=x.has_dropout,
            nan_rows=x.nan_rows,
            fill=x.dtype.numpy.type(x.fill),
        )
        for low, high in self.parts.ranges(self._units) if self.parts else ((0, self._units),):
            places = np.flatnonzero(self._owned(low, high))
            memory[len(x.names)].write(places, found[places])

    def _owned(self, low: int, high: int) -> np.ndarray:
        """Which elements of the result belong to some units."""
        sizes, found = self.spec.sizes, []
        rank = len(sizes.output)
        for shape in self._shapes():
            unit = np.arange(prod(sizes.batch)).reshape(*sizes.batch, 1)
            if not self.spec.gradient:
                unit = unit * self.spec.query_blocks
                unit = unit + np.arange(sizes.rows) // self.spec.block[0]
            unit = unit if len(shape) < rank else unit[..., None]
            owner = np.broadcast_to(unit, shape)
            order = rows_first(shape) if len(shape) == rank else range(len(shape))
            found.append(owner.transpose(tuple(order)).ravel())
        owners = np.concatenate(found)
        return np.asarray((owners >= low) & (owners < high))

    # LLVM IR ------------------------------------------------------------------------------

    def emit(self, b: FunctionBuilder, args: Sequence[Val]) -> None:
        self._run(b, args, 0, self._units)

    def emit_part(
        self, b: FunctionBuilder, region: str, args: list[Val], part: Val, own: Val
    ) -> None:
        assert self.parts is not None
        for arg, size in self.parts.partials:
            args[arg] = b.at(self.spec.element, args[arg], b.mul(own, size))
        _, low, high = part_of(b, self.parts, (self._units,), part)
        self._run(b, args, low, high)

    def _run(
        self, b: FunctionBuilder, args: Sequence[Val], low: Val | int, high: Val | int
    ) -> None:
        emitter = AttentionEmitter(b, self.spec, args)
        with b.loop(low, high) as loop:
            (emitter.run_gradient if self.spec.gradient else emitter.run_output)(loop.index)
