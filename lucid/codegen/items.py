"""A graph as a list of items: what must be computed, stored or checked, and what each waits for.

Views and constants vanish: whoever reads them does index arithmetic. Ops that assemble a result
from parts (concat, pad, update_slice, outputs, writes) become stores into regions of a buffer, so
that each part can be computed in place by the kernel that makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.strides import Strides, contiguous_strides, is_contiguous, view_strides
from lucid.ir.types import DType, Shape


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory of one dtype.

    Attributes:
        kind: "input", "output" (a slot of the table) or "temp" (in the arena).
        index: number of the input or output; of a temp its serial number.
        size: elements; for inputs as many as their strides span.
    """

    kind: str
    index: int
    dtype: DType
    size: int

    def __str__(self) -> str:
        return f"{self.kind}{self.index}"


@dataclass(frozen=True, slots=True)
class Region:
    """A strided part of a buffer; offset and strides in elements."""

    buffer: Buffer
    offset: int
    strides: Strides


@dataclass(eq=False, slots=True)
class Item:
    """One thing to do.

    Attributes:
        op: name of the op that computes `value`; or "store" (operand 0 into `region`), "check"
            (that the indices in operand 0 lie in an axis of `limit` elements), "write_at".
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


@dataclass(frozen=True, slots=True)
class Layout:
    """How a value is read: strides over its axes, in the home of `base`."""

    base: Value
    offset: int
    strides: Strides


INLINE = ("constant", "iota")
_INDEXED_READS = ("take", "gather")
_INDEXED_WRITES = ("index_add", "index_set", "scatter_add", "scatter")


class ItemList:
    """The items of a graph, in an order that respects dependence.

    Attributes:
        homes: where values lie that are not computed by an item on the fly: inputs, assembled
            values, copies; later all values that must be stored.
        producers: the items after which a value's home is complete.
    """

    def __init__(
        self, graph: Graph, strides: Sequence[Strides | None], checked: Sequence[Node] = ()
    ) -> None:
        self.graph = graph
        self.items: list[Item] = []
        self.homes: dict[Value, Region] = {}
        self.producers: dict[Value, list[Item]] = {}
        self.inputs: list[Buffer] = []
        self.outputs: list[Buffer] = []
        self.temps = 0
        self._checks: dict[tuple[Value, int], Item] = {}
        self._layouts: dict[Value, Layout] = {}
        for number, (entry, given) in enumerate(zip(graph.inputs, strides, strict=True)):
            self._add_input(number, entry.value, given)
        for node in graph.nodes:
            self._add_node(node)
        for node in checked:
            self._check(node, node.operands[0].shape[node.attributes["axis"]])
        for number, value in enumerate(graph.outputs):
            buffer = Buffer("output", number, value.dtype, value.type.size)
            self.outputs.append(buffer)
            self._store(value, Region(buffer, 0, contiguous_strides(value.shape)))
        for cell, value in graph.writes:
            store = self._store(value, self.homes[cell])
            if store is not None:
                store.cell = cell

    def new_temp(self, dtype: DType, size: int) -> Buffer:
        self.temps += 1
        return Buffer("temp", self.temps - 1, dtype, size)

    def _add_input(self, number: int, value: Value, strides: Strides | None) -> None:
        if strides is None:
            strides = contiguous_strides(value.shape)
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
        elif name in _ASSEMBLED:
            _ASSEMBLED[name](self, node)
        elif name in _INDEXED_WRITES:
            self._add_indexed_write(node)
        elif name not in INLINE:
            after = []
            if name in _INDEXED_READS:
                axis = node.attributes["axis"]
                after = [self._check(node, node.operands[0].shape[axis])]
            item = Item(name, node, node.operands, node.result.shape, node.result, after=after)
            self.producers[node.result] = [self._append(item)]

    # Views ------------------------------------------------------------------------------

    def _add_view(self, node: Node) -> None:
        """Make sure that the view can be read with strides; copy what it looks at if not."""
        operand = node.operands[0]
        layout = self.layout(operand)
        if view_strides(node.op, node.attributes, operand.shape, layout.strides) is None:
            self._copy(operand)

    def _copy(self, value: Value) -> None:
        """Give a view contiguous memory of its own."""
        region = self._new_region(value)
        store = self._store(value, region)
        self.homes[value] = region
        self.producers[value] = [] if store is None else [store]
        self._layouts.clear()

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
            # A reshape that needs a copy gets one before anyone reads it.
            unknown = (0,) * len(value.shape)
            return Layout(seen.base, offset, unknown if strides is None else strides)
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

    def reads_with_strides(self, value: Value, region: Region) -> bool:
        """Whether every view of a value can be read if its home were this region."""
        if is_contiguous(value.shape, region.strides):
            return True
        return all(
            node.op.name != "reshape" or self.base(node.result) is not value
            for node in self.graph.nodes
            if node.op.kind == "view"
        )

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
        return self._append(
            Item("store", None, (value,), shape, region=region, after=list(after))
        )

    def _check(self, node: Node, size: int) -> Item:
        index = node.operands[1]
        key = (index, size)
        if key not in self._checks:
            item = Item("check", node, (index,), index.shape, limit=size)
            self._checks[key] = self._append(item)
        return self._checks[key]

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
        base, update = node.operands
        region = self._new_region(node.result)
        first = self._store(base, region)
        steps, starts = node.attributes["steps"], node.attributes["starts"]
        strides = tuple(s * k for s, k in zip(region.strides, steps, strict=True))
        offset = sum(start * stride for start, stride in zip(starts, region.strides, strict=True))
        after = [] if first is None else [first]
        if first is not None:
            first.overwritten = True
        second = self._store(update, Region(region.buffer, offset, strides), after)
        self._assemble(node, [first, second], region)

    def _add_indexed_write(self, node: Node) -> None:
        """Copy the base, then write the source over it in the order of the indices."""
        base, index, source = node.operands
        region = self._new_region(node.result)
        first = self._store(base, region)
        after = [self._check(node, base.shape[node.attributes["axis"]])]
        if first is not None:
            first.overwritten = True
            after.append(first)
        parts = [first]
        if source.type.size:
            write = Item("write_at", node, (index, source), source.shape, None, region, after)
            parts.append(self._append(write))
        self._assemble(node, parts, region)

    # Dependence -------------------------------------------------------------------------

    def dependences(self, item: Item) -> list[Item]:
        """The items that must run before this one."""
        found = [*item.after]
        for operand in item.operands:
            found += self.producers.get(self.base(operand), [])
        return found


_ASSEMBLED = {
    "concat": ItemList._add_concat,
    "pad": ItemList._add_pad,
    "update_slice": ItemList._add_update_slice,
}


def slabs(shape: Shape, low: Shape, inner: Shape) -> list[tuple[Shape, Shape]]:
    """The border of a padded array as disjoint boxes: starts and shapes."""
    found: list[tuple[Shape, Shape]] = []
    for axis, size in enumerate(shape):
        before, after = low[:axis], shape[axis + 1 :]
        stop = low[axis] + inner[axis]
        for start, count in ((0, low[axis]), (stop, size - stop)):
            if count:
                starts = (*before, start, *(0 for _ in after))
                found.append((starts, (*inner[:axis], count, *after)))
    return found


def lower_pointwise_scatter(graph: Graph) -> list[Node]:
    """scatter_add(b, i, s) with one index per line = where(iota == i, b + s, b): no serial loop.

    Without duplicates on the axis each element gets at most one addend, so that the sum becomes
    elementwise and fuses; the gradient of a cross-entropy has this form. Returns the nodes that
    are gone: their indices must still be checked.
    """
    replacement: dict[Value, Value] = {}
    gone: list[Node] = []
    old, graph.nodes = graph.nodes, []
    for node in old:
        node.operands = tuple(replacement.get(v, v) for v in node.operands)
        result = _pointwise(node)
        if result is None:
            graph.nodes.append(node)
        else:
            gone.append(node)
            replacement[node.result] = result
    graph.substitute(replacement)
    return gone


def _pointwise(node: Node) -> Value | None:
    if node.op.name not in ("scatter_add", "scatter"):
        return None
    base, index, source = node.operands
    axis: int = node.attributes["axis"]
    expected = (*base.shape[:axis], 1, *base.shape[axis + 1 :])
    if index.shape != expected or not base.type.size:
        return None
    negative = ops.lt(index, ops.zero(index))
    size = index.constant(base.shape[axis], index.dtype)
    position = ops.where(negative, ops.add(index, size), index)
    count = ops.indices(index, base.shape, axis, index.dtype)
    updated = ops.add(base, source) if node.op.name == "scatter_add" else source
    result = ops.where(ops.eq(count, position), updated, base)
    assert isinstance(result, Value)
    return result
