"""A graph as a list of items: what must be computed, stored or checked, and what each waits for.

Views and constants vanish: whoever reads them does index arithmetic. Ops that assemble a result
from parts (concat, pad, update_slice, outputs, writes) become stores into regions of a buffer, so
that each part can be computed in place by the kernel that makes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from lucid.codegen import costs
from lucid.codegen.forms import slabs
from lucid.codegen.lowering import RULES
from lucid.codegen.regions import Buffer, Layout, Region
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.strides import (
    Strides,
    contiguous_strides,
    is_contiguous,
    view_strides,
    window_strides,
)
from lucid.ir.types import DType, Shape


@dataclass(eq=False, slots=True)
class Item:
    """One thing to do.

    Attributes:
        op: name of the op that computes `value`; or "store" (operand 0 into `region`), "check"
            (that the indices in operand 0 lie in an axis of `limit` elements), "write_at", "add_to"
            (overlapping windows), "host" (a call of Python, whose operands are what it reads and
            then what it fills).
        operands: what is read; may be views.
        shape: the iteration shape of a store; otherwise that of the value.
        after: items that must have run, besides the producers of the operands.
        cell: the graph input that a store of the step's new state goes to.
        overwritten: a later item writes over parts of what this store leaves.
    """

    op: str
    node: Node | None
    operands: tuple[Value, ...]
    shape: Shape
    value: Value | None = None
    region: Region | None = None
    after: list[Item] = field(default_factory=list)
    limit: int = 0
    cell: Value | None = None
    overwritten: bool = False
    index: int = -1

    def __str__(self) -> str:
        name = self.op if self.region is None else f"{self.op} -> {self.region.buffer}"
        return f"{name}{list(self.shape)}"


INLINE = ("constant", "iota")
_INDEXED_READS = ("take", "gather")
_INDEXED_WRITES = ("index_add", "index_set", "scatter_add", "scatter")


class ItemList:
    """The items of a graph, in an order that respects dependence.

    Attributes:
        homes: where values lie that are not computed by an item on the fly: inputs, assembled
            values, copies; later all values that must be stored.
        producers: the items after which a value's home is complete.
        made_by: the item that computes a value.
        copied_arguments: copies of inputs that are only worth it in another order of axes.
    """

    def __init__(
        self, graph: Graph, strides: Sequence[Strides], checked: Sequence[Node] = ()
    ) -> None:
        self.graph = graph
        self.items: list[Item] = []
        self.homes: dict[Value, Region] = {}
        self.producers: dict[Value, list[Item]] = {}
        self.inputs: list[Buffer] = []
        self.outputs: list[Buffer] = []
        self.temps = 0
        self.made_by: dict[Value, Item] = {}
        self._short: dict[int, int] = {}
        self._held: dict[Value, Value] = {}
        self._written = {cell for cell, _ in graph.writes}
        self._uses = Counter(value for node in graph.nodes for value in node.operands)
        self._uses.update([*graph.outputs, *(value for _, value in graph.writes)])
        self.copied_arguments: dict[Value, Value] = {}
        self._copied: dict[Value, tuple[Region, Item | None]] = {}
        self._checks: dict[tuple[Value, int], Item] = {}
        self._layouts: dict[Value, Layout] = {}
        self._viewers: dict[Value, list[Node]] = {}
        self._host_calls: list[Item] = []
        for number, (entry, given) in enumerate(zip(graph.inputs, strides, strict=True)):
            self._add_input(number, entry.value, given)
        for node in graph.nodes:
            self._add_node(node)
        for node in checked:
            self._check(node, node.operands[0].shape[node.attributes["axis"]])
        for number, value in enumerate(graph.outputs):
            buffer = Buffer("output", number, value.dtype, value.type.size)
            self.outputs.append(buffer)
            if not self.becomes_output(value, number):
                self._store(value, Region(buffer, 0, contiguous_strides(value.shape)))
        self._note_viewers()
        for cell, value in graph.writes:
            store = self._store(value, self.homes[cell])
            if store is not None:
                store.cell = cell

    def becomes_output(self, value: Value, number: int) -> bool:
        """Let the temp that a value fills be the output itself, so that nothing is copied."""
        layout = self.layout(value)
        region = self.homes.get(layout.base)
        if region is None or region.buffer.kind != "temp" or layout.offset:
            return False
        if region.buffer.size != value.type.size or not value.type.size:
            return False
        if not is_contiguous(value.shape, layout.strides):
            return False
        region.buffer.kind, region.buffer.index = "output", number
        self.outputs[number] = region.buffer
        return True

    def new_temp(self, dtype: DType, size: int) -> Buffer:
        self.temps += 1
        return Buffer("temp", self.temps - 1, dtype, size)

    def _add_input(self, number: int, value: Value, strides: Strides) -> None:
        buffer = Buffer("input", number, value.dtype, value.type.size)
        self.inputs.append(buffer)
        self.homes[value] = Region(buffer, 0, strides)
        self.producers[value] = []

    def _append(self, item: Item) -> Item:
        item.index = len(self.items)
        self.items.append(item)
        return item

    def _add_node(self, node: Node) -> None:
        name = node.op.name
        if node.op.kind == "view":
            self._add_view(node)
        elif node.op.kind == "host":
            self._add_host(node)
        elif name in _ASSEMBLED:
            _ASSEMBLED[name](self, node)
        elif name in _INDEXED_WRITES:
            self._add_indexed_write(node)
        elif name not in INLINE:
            after = []
            if name in _INDEXED_READS:
                axis = node.attributes["axis"]
                after = [self._check(node, node.operands[0].shape[axis])]
            operands = node.operands
            if name == "take":
                count = operands[1].type.size
                operands = self._in_lines(operands[0], node.attributes["axis"], count), operands[1]
            if node.op.kind in ("contract", "sort"):
                operands = tuple(map(self._in_memory, operands))
            item = Item(name, node, operands, node.result.shape, node.result, after=after)
            self.producers[node.result] = [self._append(item)]
            self.made_by[node.result] = item
            self._note_short(item)

    # Views ------------------------------------------------------------------------------

    def _add_view(self, node: Node) -> None:
        """Make sure that the view can be read with strides; give it memory of its own if not."""
        operand = node.operands[0]
        layout = self.layout(operand)
        if view_strides(node.op, node.attributes, operand.shape, layout.strides) is not None:
            return
        if operand not in self._copied:
            region = self._new_region(operand)
            self._copied[operand] = region, self._store(operand, region)
        region, store = self._copied[operand]
        view = Region(region.buffer, 0, contiguous_strides(node.result.shape))
        self._assemble(node, [store], view)
        self._layouts.pop(node.result, None)

    def base(self, value: Value) -> Value:
        """The value that a chain of views looks at."""
        while (node := value.producer) and node.op.kind == "view" and not self._is_copy(value):
            value = node.operands[0]
        return value

    def _is_copy(self, value: Value) -> bool:
        return value in self.producers

    def layout(self, value: Value) -> Layout:
        """How to read a value: from its base's home if that is known, else as if contiguous."""
        known = self._layouts.get(value)
        if known is None:
            known = self._layouts[value] = self._find_layout(value)
        return known

    def _find_layout(self, value: Value) -> Layout:
        node = value.producer
        if node is not None and node.op.kind == "view" and not self._is_copy(value):
            operand = node.operands[0]
            seen = self.layout(operand)
            strides = view_strides(node.op, node.attributes, operand.shape, seen.strides)
            offset = seen.offset
            if node.op.name == "slice" and value.type.size:
                pairs = zip(node.attributes["starts"], seen.strides, strict=True)
                offset += sum(start * stride for start, stride in pairs)
            assert strides is not None, "a view that needs a copy has one"
            return Layout(seen.base, offset, strides)
        if value in self.homes:
            region = self.homes[value]
            return Layout(value, region.offset, region.strides)
        if node is not None and node.op.name == "iota":
            axis = node.attributes["axis"]
            return Layout(value, 0, tuple(int(i == axis) for i in range(len(value.shape))))
        return Layout(value, 0, contiguous_strides(value.shape))

    def set_home(self, value: Value, region: Region) -> None:
        self.homes[value] = region
        self._layouts.clear()

    def _note_viewers(self) -> None:
        """Find the views of each value that are read from its home, in order."""
        for node in self.graph.nodes:
            if node.op.kind == "view" and not self._is_copy(node.result):
                self._viewers.setdefault(self.base(node.result), []).append(node)

    def reads_with_strides(self, value: Value, region: Region) -> bool:
        """Whether every view of a value can be read if its home were this region."""
        strides: dict[Value, Strides] = {value: region.strides}
        for node in self._viewers.get(value, ()):
            operand = node.operands[0]
            seen = view_strides(node.op, node.attributes, operand.shape, strides[operand])
            if seen is None:
                return False
            strides[node.result] = seen
        return True

    # Stores -----------------------------------------------------------------------------

    def _new_region(self, value: Value) -> Region:
        buffer = self.new_temp(value.dtype, value.type.size)
        return Region(buffer, 0, contiguous_strides(value.shape))

    def _store(
        self, value: Value, region: Region, after: Sequence[Item] = (), shape: Shape | None = None
    ) -> Item | None:
        """Append a store; of a part with no elements there is nothing to do."""
        shape = value.shape if shape is None else shape
        if not prod(shape):
            return None
        return self._append(Item("store", None, (value,), shape, region=region, after=list(after)))

    def _check(self, node: Node, size: int) -> Item:
        index = self._in_memory(node.operands[1])
        key = (index, size)
        if key not in self._checks:
            item = Item("check", node, (index,), index.shape, limit=size)
            self._checks[key] = self._append(item)
        return self._checks[key]

    def _in_memory(self, value: Value) -> Value:
        """The value itself, or a stored copy of one that has no memory, a constant or an iota."""
        node = self.base(value).producer
        if node is None or node.op.name not in INLINE or self.base(value) in self.homes:
            return value
        return self._copy_of(value)

    def _in_lines(self, value: Value, axis: int, count: int) -> Value:
        """A copy of an argument of which many single elements are indexed along an axis.

        The copy may get another order of axes, so that lines of elements are indexed together.
        """
        base = self.base(value)
        lines = value.type.size // max(value.shape[axis], 1)
        if base.producer is not None or base in self._written or base not in self.homes:
            return value
        if (
            abs(self.layout(value).strides[axis]) != 1
            or lines < costs.LINES
            or count < value.shape[axis]
        ):
            return value
        copy = self._copy_of(value)
        self.copied_arguments[copy] = value
        return copy

    def _copy_of(self, value: Value) -> Value:
        if value not in self._held:
            self._held[value] = self._stored_copy(value)
        return self._held[value]

    def _stored_copy(self, value: Value) -> Value:
        region = self._new_region(value)
        store = self._store(value, region)
        held = Value(value.type, self.graph, None)
        self.homes[held] = region
        self.producers[held] = [] if store is None else [store]
        return held

    def _add_host(self, node: Node) -> None:
        """A call of Python, after the one before it."""
        operands = tuple(map(self._in_row_major_order, node.operands))
        after = self._host_calls[-1:]
        item = self._append(Item("host", node, (*operands, *node.results), (), after=after))
        self._host_calls.append(item)
        for result in node.results:
            self.homes[result] = self._new_region(result)
            self.producers[result] = [item]

    def _in_row_major_order(self, value: Value) -> Value:
        """The value itself if it fills a buffer in this order, else a copy that does."""
        region, layout = self.homes.get(self.base(value)), self.layout(value)
        if region is not None and not layout.offset and is_contiguous(value.shape, layout.strides):
            return value
        return self._stored_copy(value)

    def _assemble(self, node: Node, parts: list[Item | None], region: Region) -> None:
        self.homes[node.result] = region
        self.producers[node.result] = [part for part in parts if part is not None]

    def _add_concat(self, node: Node) -> None:
        region = self._new_region(node.result)
        axis, offset, parts = node.attributes["axis"], 0, []
        for operand in node.operands:
            start = offset * region.strides[axis]
            parts.append(self._store(operand, Region(region.buffer, start, region.strides)))
            offset += operand.shape[axis]
        self._assemble(node, parts, region)

    def _add_pad(self, node: Node) -> None:
        x, fill = node.operands
        region = self._new_region(node.result)
        low, strides = node.attributes["low"], region.strides
        inner = sum(start * stride for start, stride in zip(low, strides, strict=True))
        parts = [self._store(x, Region(region.buffer, inner, strides))]
        for starts, shape in slabs(node.result.shape, low, x.shape):
            offset = sum(start * stride for start, stride in zip(starts, strides, strict=True))
            parts.append(self._store(fill, Region(region.buffer, offset, strides), shape=shape))
        self._assemble(node, parts, region)

    def _add_update_slice(self, node: Node) -> None:
        update = node.operands[1]
        region, before = self._take_over(node)
        steps, starts = node.attributes["steps"], node.attributes["starts"]
        strides = tuple(s * k for s, k in zip(region.strides, steps, strict=True))
        offset = sum(start * stride for start, stride in zip(starts, region.strides, strict=True))
        part = Region(region.buffer, region.offset + offset, strides)
        self._assemble(node, [*before, self._store(update, part, before)], region)

    def _take_over(self, node: Node) -> tuple[Region, list[Item]]:
        """Where a result is to be assembled that begins as its first operand.

        That is the operand's own memory if nothing else reads it; otherwise it is copied.
        """
        base = node.operands[0]
        region = self.homes.get(base)
        if region is not None and region.buffer.kind == "temp" and self._uses[base] == 1:
            before = self.producers[base]
        else:
            region = self._new_region(base)
            first = self._store(base, region)
            before = [] if first is None else [first]
        for item in before:
            item.overwritten = True
        return region, before

    def _add_overlap_add(self, node: Node) -> None:
        """Store zeros, then add each window to its place."""
        source = node.operands[0]
        region = self._new_region(node.result)
        first = self._store(source.constant(0, source.dtype), region, shape=node.result.shape)
        place = {name: node.attributes[name] for name in ("axes", "steps", "dilations")}
        windows = replace(region, strides=window_strides(region.strides, **place))
        parts = [first]
        if first is not None and source.type.size:
            first.overwritten = True
            add = Item("add_to", node, (source,), source.shape, None, windows, [first])
            parts.append(self._append(add))
        self._assemble(node, parts, region)

    def _add_indexed_write(self, node: Node) -> None:
        """Write the source over the base in the order of the indices."""
        base, index, source = node.operands
        region, before = self._take_over(node)
        after = [self._check(node, base.shape[node.attributes["axis"]]), *before]
        parts: list[Item | None] = [*before]
        if source.type.size:
            write = Item("write_at", node, (index, source), source.shape, None, region, after)
            parts.append(self._append(write))
        self._assemble(node, parts, region)

    # Dependence -------------------------------------------------------------------------

    def dependences(self, item: Item) -> list[Item]:
        """The items that must run before this one."""
        found = [*item.after]
        for operand in self.reads(item):
            found += self.producers.get(self.base(operand), [])
        return found

    def reads(self, item: Item) -> list[Value]:
        """The operands that are read, not computed anew on the spot."""
        return [v for n, v in enumerate(item.operands) if self.recomputed(item, n) is None]

    def inputs_read(self, item: Item) -> list[Value]:
        """The graph's inputs that are read, also by what is computed anew."""
        found: list[Value] = []
        for number, operand in enumerate(item.operands):
            again = self.recomputed(item, number)
            if again is not None:
                found += self.inputs_read(again)
            elif self.base(operand).producer is None:
                found.append(self.base(operand))
        return found

    # Computing anew ---------------------------------------------------------------------

    def recomputed(self, item: Item, position: int) -> Item | None:
        """The item that makes an operand, if the reader should rather compute it for itself.

        That is so for a short computation on inputs whose result is repeated along axes of the
        reader: the loops over these axes come inside of it, so that it costs nothing.
        """
        operand = item.operands[position]
        if item.op not in RULES and item.op != "store" and not is_reduction(item):
            return None
        base = self.base(operand)
        made = self.made_by.get(base)
        if made is None or made.index not in self._short or not operand.type.size:
            return None
        size = operand.type.size if is_reduction(item) else prod(item.shape)
        if base.type.size >= size and item.index not in self._short:
            return None
        return made if self._has_plain_views(operand) else None

    def _has_plain_views(self, value: Value) -> bool:
        """Whether the views between a value and its base only move, repeat or drop axes."""
        while (node := value.producer) and node.op.kind == "view" and not self._is_copy(value):
            value = node.operands[0]
            if node.op.name == "reshape":
                old, new = value.shape, node.result.shape
                if [n for n in old if n != 1] != [n for n in new if n != 1]:
                    return False
        return True

    def _note_short(self, item: Item) -> None:
        """Remember elementwise items on inputs that take only a few instructions."""
        if item.op not in RULES:
            return
        total = costs.cost_of(item.op)
        for operand in item.operands:
            base = self.base(operand)
            node, made = base.producer, self.made_by.get(base)
            if node is None or (node.op.name in INLINE and base not in self.homes):
                continue
            if made is None or made.index not in self._short:
                return
            if not self._has_plain_views(operand):
                return
            total += self._short[made.index]
        if total <= costs.SHORT:
            self._short[item.index] = total


def is_reduction(item: Item) -> bool:
    """Whether the item folds axes of its operand."""
    return item.node is not None and item.op == item.node.op.name and item.node.op.kind == "reduce"


_ASSEMBLED = {
    "overlap_add": ItemList._add_overlap_add,
    "concat": ItemList._add_concat,
    "pad": ItemList._add_pad,
    "update_slice": ItemList._add_update_slice,
}
