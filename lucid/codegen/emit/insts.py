"""Emission of single instructions of the kernel IR: values, addresses, splats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lucid.codegen.emit import lowering, memory, philox, reductions
from lucid.codegen.kernel_ir.affine import AffineExpr
from lucid.codegen.kernel_ir.instruction import EFFECTS, Inst, OpenBits
from lucid.codegen.kernel_ir.nest import LoopNest
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const, const_lanes, i64, iota
from lucid.ir.extents import is_open
from lucid.ir.op import OPS
from lucid.ir.types import DType, f64 as float64, i32 as int32, i64 as int64


class InstEmitter:
    """Values of instructions at the current position of the loops.

    Attributes:
        env: what is computed, one lane where it doesn't vary along the vector dim.
        wide: the same repeated to all lanes, where vectors need it.
        places: partial addresses (pointer) and indices (i64) of forms, for the open loops.
        index: the loop indices that are bound.
        mask: the lanes that exist, None for all.
    """

    def __init__(self, b: FunctionBuilder, kernel: LoopNest, args: Sequence[Val]) -> None:
        self.b = b
        self.kernel = kernel
        self.args = args
        self.lanes = kernel.lanes
        self.env: dict[int, Val] = {}
        self.wide: dict[int, Val] = {}
        self.places: dict[tuple[int, AffineExpr], Val] = {}
        self.index: dict[int, Val] = {}
        self.mask: Val | None = None
        self.spilled: set[int] = set()
        self._forms: list[tuple[int, AffineExpr, str]] = []
        self._widened = self._find_widened()
        for inst in kernel.insts:
            if inst.form is not None and (inst.arg, inst.form) not in self.places:
                self._add_place(inst)

    def _add_place(self, inst: Inst) -> None:
        key = inst.arg, inst.at
        if inst.arg < 0:
            self.places[key] = i64(inst.at.offset)
            self._forms.append((*key, ""))
        else:
            element = lowering.MEMORY[self.kernel.args[inst.arg]]
            self.places[key] = self.b.at(element, self.args[inst.arg], inst.at.offset)
            self._forms.append((*key, element))

    def _find_widened(self) -> set[int]:
        """One-lane values that a vector instruction reads."""
        kernel = self.kernel
        found: set[int] = set()
        inner = kernel.vector >= len(kernel.kept)
        for number, inst in enumerate(kernel.insts):
            vector = self.is_vector(number) or (inst.op == "reduce" and inner)
            vector = vector or (inst.form is not None and kernel.vector in inst.form.dims)
            if vector:
                found.update(n for n in inst.operands if not self.is_vector(n))
        return found

    def is_vector(self, number: int) -> bool:
        return self.kernel.vector in self.kernel.dims[number]

    # Positions --------------------------------------------------------------------------

    def enter(self, dim: int, index: Val) -> None:
        """Bind a loop index: all addresses that depend on it move on."""
        self.index[dim] = index
        moved: dict[int, Val] = {}
        for arg, form, element in self._forms:
            coefficient = form.coefficient(dim)
            if not coefficient or index.name == "0":
                continue
            if coefficient not in moved:
                moved[coefficient] = self._times(index, coefficient)
            place = self.places[arg, form]
            if element:
                self.places[arg, form] = self.b.at(element, place, moved[coefficient])
            else:
                self.places[arg, form] = self._plus(place, moved[coefficient])

    def _times(self, index: Val, factor: int) -> Val:
        if index.name.isdigit():
            return i64(int(index.name) * factor)
        return index if factor == 1 else self.b.mul(index, factor)

    def _plus(self, a: Val, b: Val) -> Val:
        if a.name == "0":
            return b
        if a.name.lstrip("-").isdigit() and b.name.lstrip("-").isdigit():
            return i64(int(a.name) + int(b.name))
        return self.b.add(a, b)

    def address(self, pointer: Val, element: str, form: AffineExpr) -> Val:
        """An address over the bound loop indices."""
        for dim, coefficient in form.terms:
            offset = self._times(self.index[dim], coefficient)
            if offset.name != "0":
                pointer = self.b.at(element, pointer, offset)
        return pointer

    def index_lanes(self, form: AffineExpr, lanes: int, element: str = "i64") -> Val:
        """A form's value in each lane."""
        base = self.places[-1, form]
        if element != "i64":
            base = self.b.cast("trunc", base, element)
        base = self.b.splat(base, lanes)
        step = form.coefficient(self.kernel.vector)
        if lanes == 1 or not step:
            return base
        return self.b.add(base, self._by_lane(element, lanes, step))

    def _by_lane(self, element: str, lanes: int, step: int) -> Val:
        """0, step, 2 * step …"""
        if is_open(step):
            return self.b.mul(iota(element, lanes), step)
        return const_lanes(element, [lane * step for lane in range(lanes)])

    # Values -----------------------------------------------------------------------------

    def value(self, number: int, lanes: int) -> Val:
        known = self.env[number]
        if lanes == 1 or known.lanes == lanes:
            return known
        wide = self.wide.get(number)
        if wide is not None and wide.lanes == lanes:
            return wide
        return self.b.splat(known, lanes)

    def widen(self, number: int) -> None:
        """Repeat a value to all lanes where it is made, outside of the loops that need it."""
        if number in self._widened and self.lanes > 1 and self.env[number].lanes == 1:
            self.wide[number] = self.b.splat(self.env[number], self.lanes)

    def emit(self, number: int) -> None:
        if number in self.env:
            return
        inst = self.kernel.insts[number]
        lanes = self.lanes if self.is_vector(number) else 1
        if inst.op in EFFECTS:
            self._write(inst, lanes)
            return
        self.env[number] = self._compute(inst, lanes)
        self.widen(number)

    def emit_invariants(self, emitted: Callable[[int], object] = lambda number: None) -> None:
        """Emit what follows neither from the first instruction nor from an index.

        emitted: is told the number of each.
        """
        follows = {0}
        for number, inst in enumerate(self.kernel.insts[1:], 1):
            if not follows.isdisjoint(inst.operands):
                follows.add(number)
            elif not self.kernel.dims[number] and not inst.is_root:
                self.emit(number)
                emitted(number)

    def _compute(self, inst: Inst, lanes: int) -> Val:
        b, dtype = self.b, inst.dtype
        if isinstance(inst.attributes, OpenBits):
            return self._open_number(inst.attributes, dtype)
        if inst.op == "const":
            (value,) = np.frombuffer(inst.bits, dtype.numpy)
            return const(lowering.ELEMENTS[dtype], value.item())
        if inst.op in ("load", "gather"):
            return self._load(inst, lanes)
        if inst.op in ("index", "index_at"):
            if inst.op == "index" and dtype is int32:
                return self.index_lanes(inst.at, lanes, "i32")
            index = self.index_lanes(inst.at, lanes)
            if inst.op == "index_at":
                axis = inst.axis
                position = self.value(inst.operands[0], lanes)
                index = b.add(index, memory.element_offset(b, position, axis.size, axis.stride))
            return self._from_index(inst, index)
        if inst.op == "scan":  # over one element
            start = reductions.start(inst.fold, inst.dtype, lanes)
            element = [self.value(n, lanes) for n in inst.operands]
            return reductions.combine(b, inst.fold, inst.dtype, start, element)[0]
        if OPS[inst.op].kind == "random":
            return self._random(inst, lanes)
        operands = [self.value(n, lanes) for n in inst.operands]
        working = self.kernel.insts[inst.operands[-1]].dtype
        return lowering.apply(b, inst.op, working, operands, inst.keywords)

    def _open_number(self, number: OpenBits, dtype: DType) -> Val:
        value = i64(number.value)
        if number.is_bits and dtype.is_floating_point:
            return lowering.convert(self.b, float64, self.b.bitcast(value, "double"), dtype)
        return lowering.convert(self.b, int64, value, dtype)

    def _from_index(self, inst: Inst, index: Val) -> Val:
        return lowering.convert(self.b, int64, index, inst.dtype)

    def _random(self, inst: Inst, lanes: int) -> Val:
        b = self.b
        seed, offset = (self.env[n] for n in inst.operands)
        counters = b.add(b.splat(offset, lanes), self.index_lanes(inst.at, lanes))
        words = philox.philox_words(b, seed, counters)
        draw = philox.uniform if inst.op == "random_uniform" else philox.normal
        return draw(b, words, lowering.ELEMENTS[inst.dtype])

    # Memory -----------------------------------------------------------------------------

    def _load(self, inst: Inst, lanes: int) -> Val:
        b, dtype = self.b, inst.dtype
        pointer = self.places[inst.arg, inst.at]
        step = inst.at.coefficient(self.kernel.vector)
        if inst.op == "gather":
            offset = self._offset_of(inst)
            if offset.lanes > 1:
                return self._load_at(inst, pointer, offset, step)
            pointer = b.at(lowering.MEMORY[dtype], pointer, offset)
        return memory.load(b, dtype, pointer, lanes, step, self.mask if lanes > 1 else None)

    def _offset_of(self, inst: Inst) -> Val:
        axis = inst.axis
        return memory.element_offset(self.b, self.env[inst.operands[0]], axis.size, axis.stride)

    def _lane_offsets(self, offset: Val, step: int) -> Val:
        if not step:
            return offset
        return self.b.add(offset, self._by_lane("i64", offset.lanes, step))

    def _load_at(self, inst: Inst, pointer: Val, offset: Val, step: int) -> Val:
        element = lowering.MEMORY[inst.dtype]
        offsets = self._lane_offsets(offset, step)
        pointers = memory.pointers_at(self.b, element, pointer, offsets)
        type_ = f"<{offsets.lanes} x {element}>"
        raw = memory.gather(self.b, type_, pointers, self.mask)
        return self.b.ne(raw, 0) if inst.dtype.kind == "bool" else raw

    def _or_zero(self, inst: Inst, old: Val) -> Val:
        """What is in memory, or 0 where nothing has been added yet."""
        first = const("i1", 1)
        for dim in set(range(len(self.kernel.sizes))) - inst.at.dims:
            first = self.b.and_(first, self.b.eq(self.index[dim], 0))
        return self.b.select(self.b.splat(first, old.lanes), 0, old)

    def _write(self, inst: Inst, lanes: int) -> None:
        b, dtype = self.b, inst.dtype
        pointer = self.places[inst.arg, inst.at]
        step = inst.at.coefficient(self.kernel.vector)
        element = lowering.MEMORY[dtype]
        mask = self.mask if lanes > 1 else None
        value = self.value(inst.operands[-1], lanes)
        if inst.op != "write":
            if inst.adds:
                old = memory.load(b, dtype, pointer, lanes, step, mask)
                value = b.add(self._or_zero(inst, old) if inst.begins else old, value)
            memory.store(b, dtype, value, pointer, step, mask)
            return
        offset = self._offset_of(inst)
        if offset.lanes == 1:
            pointer = b.at(element, pointer, offset)
            if inst.adds:
                value = b.add(memory.load(b, dtype, pointer, lanes, step, mask), value)
            memory.store(b, dtype, value, pointer, step, mask)
            return
        offsets = self._lane_offsets(offset, step)
        pointers = memory.pointers_at(b, element, pointer, offsets)
        raw = b.cast("zext", value, "i8") if dtype.kind == "bool" else value
        if inst.adds:
            raw = b.add(memory.gather(b, f"<{lanes} x {element}>", pointers, mask), value)
        memory.scatter(b, raw, pointers, mask)
