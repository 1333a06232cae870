"""A graph as a list of items: what must be computed, stored or checked, and what each waits for.

Views and constants vanish: whoever reads them does index arithmetic. Ops that assemble a result
from parts (concat, pad, update_slice, outputs, writes) become stores into regions of a buffer, so
that each part can be computed in place by the kernel that makes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

from lucid.codegen import costs
from lucid.codegen.emit.lowering import RULES
from lucid.codegen.kernel_ir.regions import Buffer, BufferView, Layout
from lucid.codegen.lower.assembled import ASSEMBLED, Assembler
from lucid.codegen.lower.item import Item, is_reduction, reads_elements
from lucid.codegen.program.program import Program
from lucid.ir import ops
from lucid.ir.errors import MissingRuleError
from lucid.ir.extents import hint, is_open
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.ops.attention import read_by_rows
from lucid.ir.ranges import Ranges
from lucid.ir.strides import (
    Strides,
    contiguous_strides,
    is_contiguous,
    view_strides,
)
from lucid.ir.types import DType, Shape

INLINE = (ops.constant, ops.iota, ops.parameter)
_INDEXED_READS = (ops.take, ops.gather)


def _symbols(sizes: Iterable[Any]) -> set[int]:
    """Those that open sizes among some are made of."""
    return {n for size in sizes if is_open(size) for n in size.sizes.symbols_in(size.key)}


class _Short(NamedTuple):
    """A computation that a reader may repeat.

    Attributes:
        leaves: what it reads in memory, and through which views.
        grows: whether the result is much larger than that.
    """

    cost: int
    leaves: dict[Value, set[Value]]
    grows: bool


class ItemList:
    """The items of a graph, in an order that respects dependence.

    Attributes:
        homes: where values lie that are not computed by an item on the fly: inputs, assembled
            values, copies; later all values that must be stored.
        producers: the items after which a value's home is complete.
        made_by: the item that computes a value.
        in_place: state that is written over in parts, and the items that do.
        copied_arguments: copies of inputs that are only worth it in another order of axes.
        bodies: the programs of what region ops run.

    Args:
        is_body: it is one of those.
    """

    def __init__(
        self,
        graph: Graph,
        strides: Sequence[Strides],
        checked: Sequence[Node] = (),
        *,
        is_body: bool = False,
    ) -> None:
        self.graph = graph
        self.items: list[Item] = []
        self.homes: dict[Value, BufferView] = {}
        self.producers: dict[Value, list[Item]] = {}
        self.inputs: list[Buffer] = []
        self.outputs: list[Buffer] = []
        self.temps = 0
        self.made_by: dict[Value, Item] = {}
        self._short: dict[Item, _Short] = {}
        self._held: dict[Value, Value] = {}
        self._assembler = Assembler(self, graph)
        self.in_place = self._assembler.in_place
        self._written = {cell for cell, _ in graph.writes}
        self.copied_arguments: dict[Value, Value] = {}
        self.bodies: dict[Node, list[Program]] = {}
        self._is_body = is_body
        self._copied: dict[Value, tuple[BufferView, Item | None]] = {}
        self._ranges = Ranges()
        self._named_checks: dict[Node, Item] = {}
        self._checks: dict[tuple[Layout, Shape, int], Item] = {}
        self._layouts: dict[Value, Layout] = {}
        self._viewers: dict[Value, list[Node]] = {}
        self._reads: dict[Item, tuple[list[Value], list[Value]]] = {}  # read, and read anew
        self._dependences: dict[Item, list[Item]] = {}
        self._awaited: dict[Item, list[Item]] = {}
        self._found_by: dict[int, Item] = {}  # by symbol, the call of Python that finds a size
        self.effects: list[Item] = []
        self._has_barriers = any(node.op is ops.barrier for node in graph.nodes)
        for number, (entry, given) in enumerate(zip(graph.inputs, strides, strict=True)):
            self._add_input(number, entry.value, given)
        for node in graph.nodes if is_body else ():
            if node.op is ops.check:  # was looked at before all rounds
                self._ranges.note(node)
        for node in graph.nodes:
            self._add_node(node)
            self._ranges.note(node)
        for node in checked:
            self.check(node, node.operands[0].shape[node.attributes["axis"]])
        for number, value in enumerate(graph.outputs):
            buffer = Buffer("output", number, value.dtype, value.type.size)
            self.outputs.append(buffer)
            if not self.becomes_output(value, number):
                self.store(value, BufferView(buffer, 0, contiguous_strides(value.shape)))
        self._note_viewers()
        for cell, value in graph.writes:
            if cell not in self.in_place:
                store = self.store(value, self.homes[cell])
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
        self.homes[value] = BufferView(buffer, 0, strides)
        self.producers[value] = []

    def let_wait(self, nodes: Collection[Node]) -> None:
        """Let what computes these nodes wait for the last check, or call of Python, of others."""
        last = [item for item in self.effects if item.node not in nodes][-1:]
        for item in self.items if nodes else ():
            if item.node in nodes:
                item.after = [*item.after, *last]

    def append(self, item: Item) -> Item:
        item.index = len(self.items)
        self.items.append(item)
        return item

    def _add_node(self, node: Node) -> None:
        name = node.op.name
        if node.op.is_view:
            self._add_view(node)
        elif node.op.kind == "host":
            item = self._in_turn(self._add_results(node))
            for symbol in _symbols([size for result in node.results for size in result.shape]):
                self._found_by.setdefault(symbol, item)
        elif node.op.kind == "region":
            item = self._add_results(node)
            item.after = self.effects[-1:]  # what its bodies read at indices is checked before
            (self._in_turn if node.has_effect else self.append)(item)
        elif node.op.kind == "check":
            self._add_range(node)
        elif name in ASSEMBLED:
            self._assembler.add(node)
        elif node.op not in INLINE:
            after = []
            if node.op in _INDEXED_READS:
                axis = node.attributes["axis"]
                after = self.check(node, node.operands[0].shape[axis])
            operands = node.operands
            if node.op is ops.take:
                count = operands[1].type.size
                operands = self._in_lines(operands[0], node.attributes["axis"], count), operands[1]
            if node.op.kind in ("contract", "sort", "attention"):
                operands = tuple(map(self._in_memory, operands))
            if node.op.kind == "attention":
                rows = read_by_rows(node.op, len(operands))
                each = enumerate(operands)
                operands = tuple(self._with_rows(x) if n in rows else x for n, x in each)
            item = Item(name, node, operands, node.result.shape, node.result, after=after)
            self.producers[node.result] = [self.append(item)]
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
            region = self.new_region(operand)
            self._copied[operand] = region, self.store(operand, region)
        region, store = self._copied[operand]
        view = BufferView(region.buffer, 0, contiguous_strides(node.result.shape))
        self.assemble(node, [store], view)
        self._layouts.pop(node.result, None)

    def without_copies(self, value: Value) -> Value | None:
        """A view as if none before it were a copy, for loop indices only; None if none is."""
        node = value.producer
        if node is None or not node.op.is_view:
            return None
        seen = self.without_copies(node.operands[0])
        if seen is None and not self._is_copy(value):
            return None
        operands = (seen or node.operands[0],)
        return Node(node.op, operands, node.attributes, [value.type], self.graph).result

    def stores_of_copies(self) -> list[Item]:
        """The stores that make copies of values for their views."""
        return [store for _, store in self._copied.values() if store is not None]

    def base(self, value: Value) -> Value:
        """The value that a chain of views looks at."""
        while (node := value.producer) and node.op.is_view and not self._is_copy(value):
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
        if node is not None and node.op.is_view and not self._is_copy(value):
            operand = node.operands[0]
            seen = self.layout(operand)
            strides = view_strides(node.op, node.attributes, operand.shape, seen.strides)
            offset = seen.offset
            if node.op is ops.slice and value.type.size:
                pairs = zip(node.attributes["starts"], seen.strides, strict=True)
                offset += sum(start * stride for start, stride in pairs)
            assert strides is not None, "a view that needs a copy has one"
            return Layout(seen.base, offset, strides)
        if value in self.homes:
            region = self.homes[value]
            return Layout(value, region.offset, region.strides)
        if node is not None and node.op is ops.iota:
            axis = node.attributes["axis"]
            return Layout(value, 0, tuple(int(i == axis) for i in range(len(value.shape))))
        return Layout(value, 0, contiguous_strides(value.shape))

    def set_home(self, value: Value, region: BufferView) -> None:
        self.homes[value] = region
        self._layouts.clear()

    def _note_viewers(self) -> None:
        """Find the views of each value that are read from its home, in order."""
        for node in self.graph.nodes:
            if node.op.is_view and not self._is_copy(node.result):
                self._viewers.setdefault(self.base(node.result), []).append(node)

    def reads_with_strides(self, value: Value, region: BufferView) -> bool:
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

    def new_region(self, value: Value) -> BufferView:
        buffer = self.new_temp(value.dtype, value.type.size)
        return BufferView(buffer, 0, contiguous_strides(value.shape))

    def store(
        self,
        value: Value,
        region: BufferView,
        after: Sequence[Item] = (),
        shape: Shape | None = None,
    ) -> Item | None:
        """Append a store; of a part with no elements there is nothing to do."""
        shape = value.shape if shape is None else shape
        if not prod(shape):
            return None
        return self.append(Item("store", None, (value,), shape, region=region, after=list(after)))

    def check(self, node: Node, size: int) -> list[Item]:
        """The checks that a node's indices have passed before it runs.

        None where they can't be out of range; named ones where these say enough.
        """
        index = node.operands[1]
        known = self._ranges.of(index)
        if known is not None and known.is_within(-size, size - 1):
            return [self._named_checks[check] for check in known.checks if not self._is_body]
        if self._is_body:
            raise MissingRuleError(
                f"{node.op.name}: an index in the body of a loop that nothing has checked before"
            )
        index = self._in_memory(index)
        key = (self.layout(index), index.shape, size)  # behind a barrier they are the same
        if key not in self._checks:
            item = Item("check", node, (index,), index.shape, limits=(-size, size))
            self._checks[key] = self._in_turn(item)
        return [self._checks[key]]

    def _add_range(self, node: Node) -> None:
        """A check in the user's words; of a body all rounds were checked before."""
        if self._is_body:
            return
        values = self._in_memory(node.operands[0])
        limits = node.attributes["low"], node.attributes["high"]
        item = Item("check", node, (values,), values.shape, limits=limits)
        self._named_checks[node] = self._in_turn(item)

    def _in_turn(self, item: Item) -> Item:
        """Append a check or a call of Python, after the one before it: the first error counts."""
        item.after = self.effects[-1:]
        self.effects.append(item)
        return self.append(item)

    def _in_memory(self, value: Value) -> Value:
        """The value itself, or a stored copy of one that has no memory, a constant or an iota."""
        node = self.base(value).producer
        if node is None or node.op not in INLINE or self.base(value) in self.homes:
            return value
        return self._copy_of(value)

    def _with_rows(self, value: Value) -> Value:
        """The value itself if the elements of its last axis are neighbours, else a copy."""
        if value.shape[-1] == 1 or self.layout(value).strides[-1] == 1:
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
        region = self.new_region(value)
        store = self.store(value, region)
        held = Value(value.type, self.graph, None)
        self.homes[held] = region
        self.producers[held] = [] if store is None else [store]
        return held

    def _add_results(self, node: Node) -> Item:
        """The item of a node that reads and fills whole buffers."""
        operands = tuple(map(self._in_row_major_order, node.operands))
        item = Item(node.op.name, node, (*operands, *node.results), ())
        for result in node.results:
            self.homes[result] = self.new_region(result)
            self.producers[result] = [item]
        return item

    def _in_row_major_order(self, value: Value) -> Value:
        """The value itself if it fills a buffer in this order, else a copy that does."""
        region, layout = self.homes.get(self.base(value)), self.layout(value)
        if region is not None and not layout.offset and is_contiguous(value.shape, layout.strides):
            return value
        return self._stored_copy(value)

    def assemble(self, node: Node, parts: list[Item | None], region: BufferView) -> None:
        self.homes[node.result] = region
        self.producers[node.result] = [part for part in parts if part is not None]

    # Dependence -------------------------------------------------------------------------

    def dependences(self, item: Item) -> list[Item]:
        """The items that must run before this one."""
        found = self._dependences.get(item)
        if found is None:
            found = self._dependences[item] = self._find_dependences(item)
        return found

    def awaited(self, item: Item) -> Sequence[Item]:
        """Those of them that must be over, their results in memory, before its kernel begins."""
        found = self._awaited.get(item)
        if found is None:
            found = [other for other in self.dependences(item) if other.value is None]
            for value in self.read_anew(item):
                found += self.producers.get(value, [])
            self._awaited[item] = found
        return found

    def _find_dependences(self, item: Item) -> list[Item]:
        found = [*item.after, *(self._finders(item) if self._found_by else ())]
        for operand in self.reads(item):
            found += self.producers.get(self.base(operand), [])
            if self._has_barriers:
                found += self._behind_barriers(operand)
        for value in self.read_anew(item):
            found += self.producers.get(value, [])
        return found

    def _finders(self, item: Item) -> list[Item]:
        """The calls of Python that find sizes with which an item computes."""
        made = [self.base(operand).producer for operand in item.operands]
        sizes = [x.attributes["value"] for x in made if x is not None and x.op is ops.parameter]
        given = _symbols([size for entry in self.graph.inputs for size in entry.value.shape])
        found = [self._found_by[n] for n in _symbols(sizes) - given if n in self._found_by]
        return [other for other in found if other.index < item.index]

    def _behind_barriers(self, value: Value) -> list[Item]:
        """What the barriers between a value and its base wait for."""
        found: list[Item] = []
        while (node := value.producer) and node.op.is_view and not self._is_copy(value):
            for other in node.operands[1:]:
                found += self.producers.get(self.base(other), [])
            value = node.operands[0]
        return found

    def reads(self, item: Item) -> list[Value]:
        """The operands that are read, not computed anew on the spot."""
        found = self._reads.get(item)
        return (self._find_reads(item) if found is None else found)[0]

    def read_anew(self, item: Item) -> list[Value]:
        """What is read in memory by what the item computes anew."""
        found = self._reads.get(item)
        return (self._find_reads(item) if found is None else found)[1]

    def _find_reads(self, item: Item) -> tuple[list[Value], list[Value]]:
        read: list[Value] = []
        anew: list[Value] = []
        for number, value in enumerate(item.operands):
            made = self.recomputed(item, number)
            if made is None:
                read.append(value)
            else:
                anew += self._short[made].leaves
        self._reads[item] = read, anew
        return read, anew

    def read_instead(self, item: Item, operands: tuple[Value, ...]) -> None:
        """Let an item read other operands."""
        item.operands = operands
        self._reads.pop(item, None)
        self._dependences.pop(item, None)
        self._awaited.pop(item, None)

    def inputs_read(self, item: Item) -> list[Value]:
        """The graph's inputs that are read, also by what is computed anew."""
        values = [*map(self.base, self.reads(item)), *self.read_anew(item)]
        return [value for value in values if value.producer is None]

    # Computing anew ---------------------------------------------------------------------

    def recomputed(self, item: Item, position: int) -> Item | None:
        """The item that makes an operand, if the reader should rather compute it for itself.

        That is so for a short computation whose result is repeated along axes of the reader: the
        loops over these axes come inside of it, so that it costs nothing. And for one that makes
        much of little, as the differences of all pairs: reading it would take longer.
        """
        operand = item.operands[position]
        if not reads_elements(item):
            return None
        base = self.base(operand)
        made = self.made_by.get(base)
        short = None if made is None else self._short.get(made)
        if short is None or not operand.type.size:
            return None
        size = operand.type.size if is_reduction(item) else prod(item.shape)
        if base.type.size >= size and item not in self._short and not short.grows:
            return None
        return made if self._has_plain_views(operand) else None

    def _has_plain_views(self, value: Value) -> bool:
        """Whether the views between a value and its base only move, repeat or drop axes."""
        while (node := value.producer) and node.op.is_view and not self._is_copy(value):
            value = node.operands[0]
            if node.op is ops.reshape:
                old, new = value.shape, node.result.shape
                if [n for n in old if n != 1] != [n for n in new if n != 1]:
                    return False
        return True

    def _note_short(self, item: Item) -> None:
        """Remember elementwise items that take only a few instructions on what lies in memory.

        That are inputs, and what is small and looked at in two ways, as by all pairs: no kernel
        could have it in registers.
        """
        if item.op not in RULES or (self._found_by and self._finders(item)):
            return  # for a size that is found only the item itself waits
        assert item.value is not None
        cost, size = costs.cost_of(item.op), item.value.type.size
        leaves: dict[Value, set[Value]] = {}
        for operand in item.operands:
            base = self.base(operand)
            node, made = base.producer, self.made_by.get(base)
            if node is not None and node.op in INLINE and base not in self.homes:
                continue
            short = None if made is None else self._short.get(made)
            if node is not None and not self._has_plain_views(operand):
                return
            if short is not None:
                cost += short.cost
                for leaf, views in short.leaves.items():
                    leaves.setdefault(leaf, set()).update(views)
            elif node is None or made is not None:
                leaves.setdefault(base, set()).add(operand)
            else:
                return
        grows = costs.GROWN * hint(sum(leaf.type.size for leaf in leaves)) <= hint(size)
        computed = [views for leaf, views in leaves.items() if leaf.producer is not None]
        lie_apart = grows and all(len(views) > 1 for views in computed)
        if cost <= costs.SHORT and (lie_apart or not computed):
            self._short[item] = _Short(cost, leaves, grows)
