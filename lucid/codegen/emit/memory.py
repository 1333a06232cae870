"""Loads and stores of a loop kernel's lanes: contiguous, repeated, strided or at given indices."""

from __future__ import annotations

from lucid.codegen.emit.lowering import MEMORY
from lucid.codegen.llvm.builder import (
    FunctionBuilder,
    Val,
    const,
    const_lanes,
    element_of,
    iota,
    lanes_of,
    vector,
)
from lucid.codegen.llvm.target import ELEMENT_BYTES
from lucid.codegen.llvm.values import first_lanes, mangled
from lucid.ir.extents import is_open
from lucid.ir.types import DType


def load(
    b: FunctionBuilder, dtype: DType, pointer: Val, lanes: int, stride: int, mask: Val | None
) -> Val:
    """Lanes at `pointer`, `stride` elements apart; those that the mask leaves out are 0."""
    type_ = vector(MEMORY[dtype], lanes)
    if lanes == 1:
        raw = b.load(type_, pointer)
    elif stride == 1:
        raw = b.load(type_, pointer) if mask is None else b.masked_load(type_, pointer, mask)
    elif stride == -1:
        first = _last_lane(b, element_of(type_), pointer, lanes)
        mask = None if mask is None else _reversed(b, mask)
        raw = b.load(type_, first) if mask is None else b.masked_load(type_, first, mask)
        raw = _reversed(b, raw)
    elif is_near(stride, lanes):
        raw = _load_near(b, type_, pointer, stride, mask)
    else:
        raw = gather(b, type_, lane_pointers(b, type_, pointer, stride), mask)
    return b.ne(raw, 0) if dtype.kind == "bool" else raw


def store(
    b: FunctionBuilder, dtype: DType, value: Val, pointer: Val, stride: int, mask: Val | None
) -> None:
    """Store lanes `stride` elements apart, but for those that the mask leaves out.

    Without registers for masks strided lanes are stored one by one (`Target.can_mask_stores`).
    """
    raw = b.cast("zext", value, "i8") if dtype.kind == "bool" else value
    if value.lanes == 1:
        b.store(raw, pointer)
    elif stride == 1:
        if mask is None:
            b.store(raw, pointer)
        else:
            b.masked_store(raw, pointer, mask)
    elif stride == -1:
        first = _last_lane(b, raw.element, pointer, raw.lanes)
        if mask is None:
            b.store(_reversed(b, raw), first)
        else:
            b.masked_store(_reversed(b, raw), first, _reversed(b, mask))
    elif not b.target.can_mask_stores and (count := first_lanes(mask, value.lanes)) is not None:
        for lane in range(count):
            b.store(b.extract(raw, lane), b.at(raw.element, pointer, lane * stride))
    elif is_near(stride, value.lanes):
        _store_near(b, raw, pointer, stride, mask)
    else:
        scatter(b, raw, lane_pointers(b, raw.type, pointer, stride), mask)


def _last_lane(b: FunctionBuilder, element: str, pointer: Val, lanes: int) -> Val:
    """The address of the last of lanes that go backwards; outside of memory where it is masked."""
    return b.emit("ptr", f"getelementptr {element}, {pointer}, i64 {1 - lanes}")


def _reversed(b: FunctionBuilder, value: Val) -> Val:
    return b.shuffle(value, value, range(value.lanes - 1, -1, -1))


def is_near(stride: int, lanes: int) -> bool:
    """Whether strided lanes are better moved as whole vectors, and shuffled, than one by one."""
    return not is_open(stride) and 2 <= stride <= 4 <= lanes


def _spread_mask(b: FunctionBuilder, mask: Val, stride: int, part: int) -> Val:
    """The lanes of neighbours, of part number `part`, that strided lanes in the mask lie in."""
    lanes = mask.lanes
    places = range(part * lanes, (part + 1) * lanes)
    chosen = [lanes if place % stride else place // stride for place in places]
    return b.shuffle(mask, const(mask.type, 0), chosen)


def _load_near(b: FunctionBuilder, type_: str, pointer: Val, stride: int, mask: Val | None) -> Val:
    """Load vectors of neighbours, no element beyond the last lane, and pick from them."""
    lanes, element = lanes_of(type_), element_of(type_)
    count = first_lanes(mask, lanes)
    starts = [part * lanes for part in range(stride)]
    if mask is not None and not count:
        parts = [
            b.masked_load(type_, b.at(element, pointer, start), _spread_mask(b, mask, stride, part))
            for part, start in enumerate(starts)
        ]
        return _picked(b, parts, starts, stride, lanes)
    assert count
    extent = (count - 1) * stride + 1
    if extent <= lanes:
        inside = const_lanes("i1", [lane < extent for lane in range(lanes)])
        parts, starts = [b.masked_load(type_, pointer, inside)], [0]
    else:
        starts = [min(start, extent - lanes) for start in starts if start < extent]
        parts = [b.load(type_, b.at(element, pointer, start)) for start in starts]
    found = _picked(b, parts, starts, stride, count)
    return found if mask is None else b.select(mask, found, 0)


def _picked(
    b: FunctionBuilder, parts: list[Val], starts: list[int], stride: int, count: int
) -> Val:
    """The first `count` lanes, which lie in vectors that begin at `starts`; others are anything."""
    lanes, result = parts[0].lanes, parts[0]
    taken = 0  # lanes of the result that are right
    for number, (part, start) in enumerate(zip(parts, starts, strict=True)):
        here = [lane for lane in range(taken, count) if lane * stride < start + lanes]
        chosen = [*range(lanes)]
        for lane in here:
            chosen[lane] = lane * stride - start + (lanes if number else 0)
        result = b.shuffle(result, part, chosen)
        taken += len(here)
    return result


def _store_near(
    b: FunctionBuilder, value: Val, pointer: Val, stride: int, mask: Val | None
) -> None:
    """Store the lanes as parts of `stride` vectors of neighbours, whose other lanes are left."""
    lanes = value.lanes
    for part in range(stride):
        places = range(part * lanes, (part + 1) * lanes)
        spread = b.shuffle(value, value, [place // stride for place in places])
        if mask is None:
            chosen = const_lanes("i1", [place % stride == 0 for place in places])
        else:
            chosen = _spread_mask(b, mask, stride, part)
        b.masked_store(spread, b.at(value.element, pointer, part * lanes), chosen)


def prefetch(b: FunctionBuilder, pointer: Val, writes: bool = False, is_soon: bool = True) -> None:
    """Ask for the cache line of an address that will be read, or written.

    What isn't needed soon comes to the second-level cache only.
    """
    level = 3 if is_soon else 2
    b.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    b.statement(f"call void @llvm.prefetch.p0({pointer}, i32 {int(writes)}, i32 {level}, i32 1)")


def lane_pointers(b: FunctionBuilder, type_: str, pointer: Val, stride: int) -> Val:
    """The address of each lane of a strided vector."""
    lanes = int(type_[1 : type_.index("x")])
    if is_open(stride):
        offsets = b.mul(iota("i64", lanes), stride)
    else:
        offsets = const_lanes("i64", [lane * stride for lane in range(lanes)])
    return pointers_at(b, element_of(type_), pointer, offsets)


def pointers_at(b: FunctionBuilder, element: str, pointer: Val, offsets: Val) -> Val:
    """One pointer per lane, `offsets` (i64 lanes) elements from `pointer`."""
    type_ = vector("ptr", offsets.lanes)
    return b.emit(type_, f"getelementptr inbounds {element}, {pointer}, {offsets}")


def gather(b: FunctionBuilder, type_: str, pointers: Val, mask: Val | None) -> Val:
    """Load each lane from its own address; those that the mask leaves out are 0."""
    lanes = pointers.lanes
    mask = const(vector("i1", lanes), 1) if mask is None else mask
    name = f"llvm.masked.gather.{mangled(type_)}.v{lanes}p0"
    b.module.declare(name, type_, [pointers.type, mask.type, type_])
    align = ELEMENT_BYTES[element_of(type_)]
    passed = const(type_, 0)
    text = f"{pointers.type} align {align} {pointers.name}, {mask}, {passed}"
    return b.emit(type_, f"call {type_} @{name}({text})")


def scatter(b: FunctionBuilder, value: Val, pointers: Val, mask: Val | None) -> None:
    """Store each lane at its own address, the first one first."""
    lanes = pointers.lanes
    mask = const(vector("i1", lanes), 1) if mask is None else mask
    name = f"llvm.masked.scatter.{mangled(value.type)}.v{lanes}p0"
    b.module.declare(name, "void", [value.type, pointers.type, mask.type])
    align = ELEMENT_BYTES[value.element]
    text = f"{value}, {pointers.type} align {align} {pointers.name}, {mask}"
    b.statement(f"call void @{name}({text})")


def element_offset(b: FunctionBuilder, index: Val, size: int, stride: int) -> Val:
    """Elements from the start of an axis to a checked index, which may count from the end."""
    wide = b.cast("sext", index, "i64")
    position = b.select(b.lt(wide, 0), b.add(wide, size), wide)
    return position if stride == 1 else b.mul(position, stride)
