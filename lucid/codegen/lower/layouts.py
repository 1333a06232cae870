"""In which order the axes of temps lie in memory: so that the lanes of most accesses are adjacent.

What is indexed along its last axis is read and written one element at a time. Stored with another
axis last, the same access moves whole lines. The values that share loops with it follow it, if what
all accesses of their kernels cost gets smaller by that.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from math import prod

from lucid.codegen import costs
from lucid.codegen.kernel_ir.instruction import Inst
from lucid.codegen.kernel_ir.regions import Buffer, BufferView
from lucid.codegen.llvm.target import Target
from lucid.codegen.lower.build import Builder
from lucid.codegen.lower.fuse import Fusion
from lucid.codegen.lower.groups import FusionGroup
from lucid.ir.extents import hint
from lucid.ir.graph import Value
from lucid.ir.strides import Strides, contiguous_strides, is_contiguous

Place = tuple[FusionGroup, int]
"""A dim of a group."""
_INDEXED = ("take", "gather", "write_at")


def choose_layouts(fusion: Fusion, stored: dict[Value, BufferView], target: Target) -> None:
    """Give temps another order of axes where that pays; `stored` and all items follow."""
    if any(item.op in ("take", "write_at") for item in fusion.source.items):
        layouts = _Layouts(fusion, stored, target)
        layouts.improve()
        layouts.read_arguments()


class _Layouts:
    """The search for better orders of axes.

    Attributes:
        movable: temps that nothing but loops reads and writes, and the values that fill them.
    """

    def __init__(self, fusion: Fusion, stored: dict[Value, BufferView], target: Target) -> None:
        self.fusion = fusion
        self.source = fusion.source
        self.stored = stored
        self.target = target
        self.loops = [g for g in fusion.groups.values() if g.kind == "loop"]
        self._accesses: dict[FusionGroup, tuple[list[Inst], list[Buffer]]] = {}
        self.movable = self._find_movable()

    def accesses(self, group: FusionGroup) -> tuple[list[Inst], list[Buffer]]:
        """A group's instructions, and the buffers of their arguments."""
        if group not in self._accesses:
            body = Builder(self.fusion, group, self.stored, self.target).instructions()
            self._accesses[group] = body.insts, body.args
        return self._accesses[group]

    @functools.cached_property
    def users(self) -> dict[Buffer, list[FusionGroup]]:
        """The loops that each buffer is an argument of."""
        found: dict[Buffer, list[FusionGroup]] = {}
        for group in self.loops:
            for buffer in self.accesses(group)[1]:
                found.setdefault(buffer, []).append(group)
        return found

    def _find_movable(self) -> dict[Buffer, list[Value]]:
        found: dict[Buffer, list[Value]] = {}
        fixed: set[Buffer] = set()
        for value, region in self.source.homes.items():
            others = found.setdefault(region.buffer, [])
            if not _is_plain(value, region) or (others and others[0].shape != value.shape):
                fixed.add(region.buffer)
            others.append(value)
        for item, group in self.fusion.group_of.items():
            target = item.region
            if target is not None and not self._fills(target, found.get(target.buffer)):
                fixed.add(target.buffer)
            if group.kind != "loop":
                bases = [self.source.base(v) for v in (*item.operands, *filter(None, [item.value]))]
                bases += self.source.read_anew(item)
                fixed |= {self.source.homes[v].buffer for v in bases if v in self.source.homes}
        return {buffer: values for buffer, values in found.items() if buffer not in fixed}

    def _fills(self, region: BufferView, values: list[Value] | None) -> bool:
        return values is not None and region == self.source.homes[values[0]]

    # Search -----------------------------------------------------------------------------

    def improve(self) -> None:
        for group in self.loops:
            if not any(item.op in _INDEXED for item in group.items):
                continue
            for number, inst in enumerate(self.accesses(group)[0]):
                dims = self._chosen_one_by_one(group, number, inst)
                for dim in group.sizes if dims else ():
                    if (
                        dim not in dims
                        and hint(group.sizes[dim]) >= costs.LINES
                        and self._try((group, dim))
                    ):
                        break

    def _chosen_one_by_one(self, group: FusionGroup, number: int, inst: Inst) -> frozenset[int]:
        """The dims of the index of an access to adjacent elements of a movable value."""
        insts, args = self.accesses(group)
        if inst.op not in ("gather", "write") or abs(inst.axis.stride) != 1:
            return frozenset()
        return dims_of(insts)[inst.operands[0]] if args[inst.arg] in self.movable else frozenset()

    def _try(self, start: Place) -> bool:
        """Put a dim innermost in all that is connected by it, if that pays."""
        last = self._connected(start)
        touched = {group: None for buffer in last for group in self.users[buffer]}
        before = sum(self._cost(group) for group in touched)
        old = {buffer: self.source.homes[self.movable[buffer][0]] for buffer in last}
        for buffer, axis in last.items():
            self._move(buffer, _with_last(self.movable[buffer][0].shape, axis))
        if sum(self._cost(group) for group in touched) <= before * costs.WORTHWHILE:
            return True
        for buffer, region in old.items():
            self._move(buffer, region.strides)
        return False

    def _connected(self, start: Place) -> dict[Buffer, int]:
        """The axes that run along with a dim, in the group and in all that share values with it."""
        found: dict[Buffer, int] = {}
        places: dict[Place, None] = {start: None}
        todo = [start]
        while todo:
            place = todo.pop(0)
            for buffer, axis in self._axes_along(*place):
                if buffer in found or not self._can_put_last(buffer, axis):
                    continue
                found[buffer] = axis
                stride = self.source.homes[self.movable[buffer][0]].strides[axis]
                for user in self.users[buffer]:
                    for other in self._dims_with(user, buffer, stride):
                        if other not in places:
                            places[other] = None
                            todo.append(other)
        return found

    def _axes_along(self, group: FusionGroup, dim: int) -> Iterator[tuple[Buffer, int]]:
        """The movable values that a group goes through by a dim, and which axis that is."""
        insts, args = self.accesses(group)
        for inst in insts:
            if not inst.has_address or inst.form is None or args[inst.arg] not in self.movable:
                continue
            value = self.movable[args[inst.arg]][0]
            strides = self.source.homes[value].strides
            for axis, size in enumerate(value.shape):
                if size != 1 and strides[axis] == inst.form.coefficient(dim):
                    yield args[inst.arg], axis

    def _dims_with(self, group: FusionGroup, buffer: Buffer, stride: int) -> Iterator[Place]:
        insts, args = self.accesses(group)
        for inst in insts:
            if inst.has_address and inst.form is not None and args[inst.arg] is buffer:
                yield from ((group, dim) for dim, step in inst.form.terms if step == stride)

    def _can_put_last(self, buffer: Buffer, axis: int) -> bool:
        values = self.movable[buffer]
        strides = _with_last(values[0].shape, axis)
        region = BufferView(buffer, 0, strides)
        return strides != self.source.homes[values[0]].strides and all(
            self.source.reads_with_strides(value, region) for value in values
        )

    def _move(self, buffer: Buffer, strides: Strides) -> None:
        region = BufferView(buffer, 0, strides)
        for value in self.movable[buffer]:
            self.source.set_home(value, region)
            if value in self.stored:
                self.stored[value] = region
        for item in self.fusion.group_of:
            if item.region is not None and item.region.buffer is buffer:
                item.region = region
        for user in self.users[buffer]:
            self._accesses.pop(user, None)

    def read_arguments(self) -> None:
        """Read arguments where they are, if their copies got the same order of axes."""
        for copy, value in self.source.copied_arguments.items():
            region, layout = self.source.homes[copy], self.source.layout(value)
            if is_contiguous(copy.shape, region.strides):
                home = self.source.homes[layout.base]
                self.source.set_home(copy, BufferView(home.buffer, layout.offset, layout.strides))
                for item in self.source.producers[copy]:
                    self.fusion.drop(item)

    # Cost -------------------------------------------------------------------------------

    def _cost(self, group: FusionGroup) -> float:
        """Time of a group's accesses along its best dim, for the sizes at hand."""
        insts, _ = self.accesses(group)
        varies = dims_of(insts)
        serial: frozenset[int] = frozenset()
        for inst in insts:
            if inst.op == "write":
                serial |= varies[inst.operands[0]]
        sizes: dict[int, int] = {dim: hint(size) for dim, size in group.sizes.items()}
        times = [
            sum(access_cost(inst, dim, varies) for inst in insts) * max(1.0, costs.LINES / size)
            for dim, size in sizes.items()
            if dim not in serial
        ]
        return prod(sizes.values()) * min(times, default=costs.LINES * costs.ADJACENT)


def access_cost(inst: Inst, dim: int, varies: Sequence[frozenset[int]]) -> float:
    """Time of one vector of an access along a dim."""
    if not inst.has_address or inst.form is None:
        return 0.0
    step = inst.form.coefficient(dim)
    factor = costs.SCATTERED if inst.op in ("store", "write") else 1.0
    if inst.op in ("gather", "write") and dim in varies[inst.operands[0]]:
        return costs.INDEXED * factor
    if not step:
        return costs.REPEATED
    return costs.ADJACENT if step == 1 else costs.APART * factor


def dims_of(insts: Sequence[Inst]) -> list[frozenset[int]]:
    """The dims that the value of each instruction varies with."""
    found: list[frozenset[int]] = []
    for inst in insts:
        dims = frozenset[int]() if inst.form is None else inst.form.dims
        found.append(dims.union(*(found[operand] for operand in inst.operands)))
    return found


def _is_plain(value: Value, region: BufferView) -> bool:
    """Whether a value fills a temp of its own in row-major order."""
    whole = region.buffer.kind == "temp" and region.buffer.size == value.type.size
    return whole and not region.offset and is_contiguous(value.shape, region.strides)


def _with_last(shape: Sequence[int], axis: int) -> Strides:
    """Strides without gaps where one axis is the innermost, the others stay in order."""
    order = [*(n for n in range(len(shape)) if n != axis), axis]
    strides = [0] * len(shape)
    for place, stride in zip(
        order, contiguous_strides(tuple(shape[n] for n in order)), strict=True
    ):
        strides[place] = stride
    return tuple(strides)
