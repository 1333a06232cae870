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
    vector,
)
from lucid.codegen.llvm.target import ELEMENT_BYTES
from lucid.codegen.llvm.values import mangled
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

    Without registers for masks a masked store may take as long as 40 others (AMD).
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
    elif mask is None and b.target.vector_bytes < 64:
        for lane in range(value.lanes):
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
    """Load `stride` vectors of neighbours, no element beyond the last lane, and pick from them."""
    lanes = int(type_[1 : type_.index("x")])
    parts = []
    for part in range(stride):
        at = b.at(element_of(type_), pointer, part * lanes)
        if mask is not None:
            parts.append(b.masked_load(type_, at, _spread_mask(b, mask, stride, part)))
        elif part < stride - 1:
            parts.append(b.load(type_, at))
        else:
            inside = [lane <= lanes - stride for lane in range(lanes)]
            parts.append(b.masked_load(type_, at, const_lanes("i1", inside)))
    homes = [divmod(lane * stride, lanes) for lane in range(lanes)]
    result = parts[0]
    for number in range(1, stride):
        kept = [place if number == 1 else lane for lane, (_, place) in enumerate(homes)]
        chosen = [
            lanes + place if home == number else old
            for (home, place), old in zip(homes, kept, strict=True)
        ]
        result = b.shuffle(result, parts[number], chosen)
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


def prefetch(b: FunctionBuilder, pointer: Val, writes: bool = False) -> None:
    """Ask for the cache line of an address that will be read, or written."""
    b.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    b.statement(f"call void @llvm.prefetch.p0({pointer}, i32 {int(writes)}, i32 3, i32 1)")


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
