"""Ops that assemble a result from parts, as stores into regions of one buffer.

What begins as a copy of another array is written over that array itself where nobody needs it any
more; state is so updated in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from lucid.codegen import costs
from lucid.codegen.kernel_ir.affine import slabs
from lucid.codegen.kernel_ir.regions import BufferView
from lucid.codegen.lower.item import Item
from lucid.ir.extents import hint
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.strides import is_contiguous, window_strides
from lucid.ir.types import Shape

if TYPE_CHECKING:
    from lucid.codegen.lower.items import ItemList

_INDEXED = ("index_add", "index_set", "scatter_add", "scatter")
_OVERWRITES = (*_INDEXED, "update_slice")
ASSEMBLED = ("concat", "pad", "overlap_add", *_OVERWRITES)


class Assembler:
    """Adds the items of such ops to an item list.

    Attributes:
        in_place: state that is written over in parts, and the items that do.
    """

    def __init__(self, items: ItemList, graph: Graph) -> None:
        self.items = items
        self.in_place: dict[Value, list[Item]] = {}
        self._cells = {value: cell for cell, value in graph.writes}
        self._users = graph.uses()
        self._uses = Counter(value for node in graph.nodes for value in node.operands)
        self._uses.update([*graph.outputs, *(value for _, value in graph.writes)])

    def add(self, node: Node) -> None:
        {
            "concat": self._add_concat,
            "pad": self._add_pad,
            "overlap_add": self._add_overlap_add,
            "update_slice": self._add_update_slice,
        }.get(node.op.name, self._add_indexed_write)(node)

    def _add_concat(self, node: Node) -> None:
        region = self.items.new_region(node.result)
        axis, offset, parts = node.attributes["axis"], 0, []
        for operand in node.operands:
            start = offset * region.strides[axis]
            parts.append(
                self.items.store(operand, BufferView(region.buffer, start, region.strides))
            )
            offset += operand.shape[axis]
        self.items.assemble(node, parts, region)

    def _add_pad(self, node: Node) -> None:
        x, fill = node.operands
        region = self.items.new_region(node.result)
        low, strides = node.attributes["low"], region.strides
        inner = sum(start * stride for start, stride in zip(low, strides, strict=True))
        around = slabs(node.result.shape, strides, low, x.shape)
        before: list[Item] = []
        if _is_filled_whole(node.result.shape, [shape for _, shape, _ in around]):
            first = self.items.store(fill, region, shape=node.result.shape)
            before, around = [] if first is None else [first], []
            for item in before:
                item.overwritten = True
        parts = [*before, self.items.store(x, BufferView(region.buffer, inner, strides), before)]
        for offset, shape, steps in around:
            view = BufferView(region.buffer, offset, steps)
            parts.append(self.items.store(fill, view, shape=shape))
        self.items.assemble(node, parts, region)

    def _add_update_slice(self, node: Node) -> None:
        update = node.operands[1]
        region, before = self._take_over(node)
        steps, starts = node.attributes["steps"], node.attributes["starts"]
        strides = tuple(s * k for s, k in zip(region.strides, steps, strict=True))
        offset = sum(start * stride for start, stride in zip(starts, region.strides, strict=True))
        part = BufferView(region.buffer, region.offset + offset, strides)
        store = self.items.store(update, part, before)
        self._note_in_place(region, store)
        self.items.assemble(node, [*before, store], region)

    def _take_over(self, node: Node) -> tuple[BufferView, list[Item]]:
        """Where a result is to be assembled that begins as its first operand.

        That is the operand's own memory if nothing else reads it, or if it is the state that the
        result replaces; otherwise it is copied.
        """
        base = node.operands[0]
        region, made = self.items.homes.get(base), base.producer
        if region is not None and made is None and self._cell_of(node) is base:
            self.in_place[base] = []
            before: list[Item] = []
        elif region is not None and made is not None and self._may_overwrite(base, region):
            before = self.items.producers[base]
        else:
            region = self.items.new_region(base)
            first = self.items.store(base, region)
            before = [] if first is None else [first]
        for item in before:
            item.overwritten = True
        return region, before

    def _may_overwrite(self, value: Value, region: BufferView) -> bool:
        """Whether a value with one reader has memory that is not that of other views too."""
        assert value.producer is not None
        return self._uses[value] == 1 and value.producer.op.kind in ("move", "host")

    def _cell_of(self, node: Node) -> Value | None:
        """The state whose new value a result is, at once or after further writes over parts."""
        value = node.result
        while value not in self._cells:
            users = self._users.get(value, [])
            if self._uses[value] != 1 or not users or users[0].op.name not in _OVERWRITES:
                return None
            if users[0].operands[0] is not value:
                return None
            value = users[0].result
        cell = self._cells[value]
        region = self.items.homes[cell]
        once = sum(other is cell for other in self._cells.values()) == 1
        return cell if once and is_contiguous(cell.shape, region.strides) else None

    def _note_in_place(self, region: BufferView, item: Item | None) -> None:
        """Remember what is written over parts of state."""
        for cell, written in self.in_place.items():
            if item is not None and self.items.homes[cell].buffer is region.buffer:
                written.append(item)

    def _add_overlap_add(self, node: Node) -> None:
        """Store zeros, then add each window to its place."""
        source = node.operands[0]
        region = self.items.new_region(node.result)
        first = self.items.store(source.constant(0, source.dtype), region, shape=node.result.shape)
        place = {name: node.attributes[name] for name in ("axes", "steps", "dilations")}
        windows = replace(region, strides=window_strides(region.strides, **place))
        parts = [first]
        if first is not None and source.type.size:
            first.overwritten = True
            add = Item("add_to", node, (source,), source.shape, None, windows, [first])
            parts.append(self.items.append(add))
        self.items.assemble(node, parts, region)

    def _add_indexed_write(self, node: Node) -> None:
        """Write the source over the base in the order of the indices."""
        base, index, source = node.operands
        region, before = self._take_over(node)
        after = [*self.items.check(node, base.shape[node.attributes["axis"]]), *before]
        parts: list[Item | None] = [*before]
        if source.type.size:
            write = Item("write_at", node, (index, source), source.shape, None, region, after)
            self._note_in_place(region, write)
            parts.append(self.items.append(write))
        self.items.assemble(node, parts, region)


def _is_filled_whole(shape: Shape, around: Sequence[Shape]) -> bool:
    """Whether what is around an array takes longer to fill than all of it, vector by vector.

    The ends of its lines lie apart.
    """
    apart = sum(prod(part) for part in around if part and part[-1] < shape[-1])
    return bool(hint(apart) * costs.LINE_ENDS > hint(prod(shape)))
