"""Which items run in one loop nest: groups of items over common loop dims.

Greedy, in topological order: an item joins the group of one of its operands when every operand
computed in the group is read at exactly the indices at which it is computed, and no path leads from
the group to the item through another one. Groups of several operands merge on the same terms.
All choices follow the items' order, so that equal graphs give equal kernels.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from math import prod

from lucid.codegen import costs
from lucid.codegen.contraction.contraction import are_dots
from lucid.codegen.kernel_ir.affine import (
    ZERO,
    AffineExpr,
    IndexMap,
    PartialIndexMap,
    SplitNeeded,
    broadcast_forms,
    dot,
    form,
    fresh_dim,
    pull,
    push,
    radix,
    unbroadcast,
)
from lucid.codegen.kernel_ir.kernel import Kernel
from lucid.codegen.kernels.loop import LoopKernel
from lucid.codegen.lower.groups import (
    LONG_ROW,
    OTHER_ELEMENTS,
    OTHER_LOOPS,
    TOO_MUCH,
    FusionGroup,
    dims_of,
    kind_of,
    match_radix,
    reduced_axes,
    serial_axes,
    values_for_sums,
    writes_slices,
)
from lucid.codegen.lower.horizontal_fusion import merge_siblings
from lucid.codegen.lower.image_folding import has_small_images
from lucid.codegen.lower.item import SCANS, Item, is_reduction
from lucid.codegen.lower.items import ItemList
from lucid.codegen.lower.precedence import Precedence
from lucid.ir.extents import hint, is_multiple, is_open, replaced
from lucid.ir.graph import Node, Value
from lucid.ir.ops.contraction import split_indices
from lucid.ir.strides import Strides, contiguous_strides
from lucid.ir.types import Shape, TensorType

# Ops that read their operands at other places than that of the element that they compute.
_WHOLE_OPERANDS = (
    "take", "gather", "write_at", "add_to", "matmul", "contract",
    "random_uniform", "random_normal", *SCANS,
)  # fmt: skip
_PRODUCTS = ("matmul", "contract")


def _in_kernel(item: Item) -> tuple[bool, int]:
    """Where an item comes in a kernel: a product is first."""
    return item.op not in _PRODUCTS, item.index


def _block_of(terms: Sequence[tuple[int, int]], group: FusionGroup) -> int:
    """How many neighbours of an index are summed in memory; 0 if its dims can't be cut so."""
    sizes = [group.sizes[dim] for dim, _ in sorted(terms, key=lambda term: hint(term[1]))]
    most, least = costs.FOLDED_ROWS, costs.FOLDED_ROWS // 4
    if len(terms) == 2:
        return sizes[0] if not is_open(sizes[0]) and least <= sizes[0] <= most else 0
    if len(terms) != 1:
        return 0
    cuts = (n for n in range(most, least - 1, -1) if is_multiple(sizes[0], n))
    return next((n for n in cuts if n < hint(sizes[0])), 0)


def _inherent(item: Item, group: FusionGroup, other: FusionGroup) -> str:
    """Why nobody has tried to put an item where what it reads is computed."""
    if other.kind == "opaque":
        return f"{other.items[0].op} is a kernel of its own"
    if group.kind == "opaque":
        return f"{item.op} is a kernel of its own"
    if item.op in _WHOLE_OPERANDS:
        return f"{item.op} reads elements of it in an order of its own"
    if other.closed:
        return f"the loop of {other.items[0].op} takes in nothing more"
    return "each is in the kernel of something else that it reads"


class Fusion:
    """The groups of an item list.

    Attributes:
        precedence: which groups must run before which.
        computed: the item that computes a value.
        apart: why an item is not in the group of one that it reads; what is said of items that
            come together after all means nothing. `why_apart` reads it.
        beside: the same of two items in loops of their own that read the same array.
    """

    def __init__(self, items: ItemList, fuse: bool = True) -> None:
        self.source = items
        self.fuse = fuse
        self._for_sums = values_for_sums(items.graph)
        self.groups: dict[int, FusionGroup] = {}
        self.group_of: dict[Item, FusionGroup] = {}
        self.precedence = Precedence()
        self.apart: dict[tuple[Item, Item], str] = {}
        self.beside: dict[tuple[Item, Item], str] = {}
        self.loops: dict[object, LoopKernel] = {}
        self.products: dict[object, Kernel] = {}
        self._readers: dict[Item, list[Item]] = {}
        self._computed_operands: dict[Item, list[tuple[Value, Item]]] = {}
        self.computed: dict[Value, Item] = {
            item.value: item for item in items.items if item.value is not None
        }
        for item in items.items:
            self._place(item)
        if fuse:
            merge_siblings(self)
            self._drop_unread_copies()

    def _drop_unread_copies(self) -> None:
        """Drop stores of copies that nobody reads after all."""
        read = {
            region.buffer
            for item in self.group_of
            for value in item.operands
            if (region := self.source.homes.get(self.source.base(value))) is not None
        }
        for item in self.source.stores_of_copies():
            assert item.region is not None
            if item.region.buffer.kind == "temp" and item.region.buffer not in read:
                self.drop(item)

    def drop(self, item: Item) -> None:
        """Take out a store that nothing needs."""
        group = self.group_of.pop(item)
        group.items.remove(item)
        del group.forms[item], group.stages[item]
        self.source.items.remove(item)
        if not group.items:
            del self.groups[group.number]

    def add_last(self, item: Item) -> FusionGroup:
        """Place an item of the end in a group of its own."""
        self._start(item, "closed")
        return self.group_of[item]

    def why_beside(self) -> Iterator[tuple[Item, Item, str]]:
        """Items in two groups that read the same array: why it is read once for each."""
        for (first, second), why in self.beside.items():
            groups = [self.group_of.get(item) for item in (first, second)]
            if None not in groups and groups[0] is not groups[1]:
                yield first, second, why

    def why_apart(self) -> Iterator[tuple[Item, Item, str]]:
        """Each item, and one in another group that reads it: what kept the two apart."""
        for item, group in self.group_of.items():
            for _, producer in self.computed_operands(item):
                other = self.group_of.get(producer)
                if other is not None and other is not group:
                    yield (
                        producer,
                        item,
                        self.apart.get((producer, item)) or _inherent(item, group, other),
                    )

    # Placing one item -------------------------------------------------------------------

    def _place(self, item: Item) -> None:
        kind = kind_of(item)
        fuses = self.fuse and kind in ("map", "reduce") and item.op not in _WHOLE_OPERANDS
        if fuses and any(self._sees_through(item, n) for n in range(len(item.operands))):
            return
        if self.fuse and item.op == "write_at" and self._join_write(item):
            return
        candidates = self._candidates(item) if fuses else []
        for group in candidates:
            if self._try(item, group):
                for other in candidates:
                    if other is not self.group_of[item] and other.number in self.groups:
                        self._try_merge(item, other)
                return
        if kind == "reduce":
            any(self._fold_in_memory(item, group) for group in candidates)
        self._start(item, kind)

    def _sees_through(self, item: Item, position: int) -> bool:
        """Place an item where an operand is computed that it would read from a copy.

        A copy gives a view strides that it can't have otherwise; as loop indices it needs none.
        """
        seen = self.source.without_copies(item.operands[position])
        producer = None if seen is None else self.computed.get(self.source.base(seen))
        if seen is None or producer is None or self.group_of[producer].closed:
            return False
        given = item.operands
        self._read_instead(item, (*given[:position], seen, *given[position + 1 :]))
        if self._try(item, self.group_of[producer]):
            return True
        self._read_instead(item, given)
        return False

    def _read_instead(self, item: Item, operands: tuple[Value, ...]) -> None:
        self.source.read_instead(item, operands)
        self._computed_operands.pop(item, None)

    def computed_operands(self, item: Item) -> list[tuple[Value, Item]]:
        """The operands that an item reads and that items compute, with these."""
        found = self._computed_operands.get(item)
        if found is None:
            pairs = ((x, self.computed.get(self.source.base(x))) for x in self.source.reads(item))
            found = [(operand, producer) for operand, producer in pairs if producer is not None]
            self._computed_operands[item] = found
        return found

    def _candidates(self, item: Item) -> list[FusionGroup]:
        """The open groups that compute an operand, the latest first; products before loops."""
        found: dict[int, FusionGroup] = {}
        for _, producer in self.computed_operands(item):
            group = self.group_of[producer]
            if not group.closed and producer.value is not None:
                found[group.number] = group
        return sorted(found.values(), key=lambda g: (g.kind != "contract", -g.number))

    def _start(self, item: Item, kind: str) -> None:
        """Begin a group with one item."""
        number = self.precedence.add()
        group = FusionGroup({"contract": "contract", "opaque": "opaque"}.get(kind, "loop"), number)
        group.closed = kind in ("opaque", "closed")
        shape = item.operands[0].shape if kind == "reduce" else item.shape
        forms = []
        for size in shape:
            if size == 1:
                forms.append(ZERO)
            else:
                dim = fresh_dim()
                group.sizes[dim] = size
                forms.append(AffineExpr(0, ((dim, 1),)))
        self.groups[number] = group
        if kind == "reduce":
            self._enter_reduction(item, group, tuple(forms))
        else:
            if item.op in SCANS and item.node is not None:
                group.reduced = forms[item.node.attributes["axis"]].dims
            self._enter(item, group, tuple(forms))

    def _enter(self, item: Item, group: FusionGroup, forms: IndexMap) -> None:
        group.items.append(item)
        group.forms[item] = forms
        group.cost += costs.cost_of(item.op)
        group.stages[item] = self._stage(item, group)
        self.group_of[item] = group
        for needed in self.source.dependences(item):
            self._readers.setdefault(needed, []).append(item)
        self.precedence.wait(group.number, self._dependences(item, group))

    def _enter_reduction(self, item: Item, group: FusionGroup, forms: IndexMap) -> None:
        axes = reduced_axes(item)
        for axis in axes:
            group.reduced |= forms[axis].dims
        group.operand_forms[item] = forms
        kept = tuple(f for axis, f in enumerate(forms) if axis not in axes)
        self._enter(item, group, kept)

    def _stage(self, item: Item, group: FusionGroup) -> int:
        stage = 0
        for _, producer in self.computed_operands(item):
            if producer in group.forms:
                stage = max(stage, group.stages[producer] + (producer in group.operand_forms))
        return stage

    def _dependences(self, item: Item, group: FusionGroup) -> int:
        bits = 0
        for needed in self.source.dependences(item):
            other = self.group_of[needed]
            if other is not group:
                bits |= 1 << other.number
        return bits

    def wait_for(self, group: FusionGroup, others: Iterable[FusionGroup]) -> bool:
        """Make a group run after others; False, and nothing done, where that is a cycle."""
        needed = 0
        for other in others:
            if other is not group:
                if self.precedence.waits(other.number, group.number):
                    return False
                needed |= 1 << other.number
        self.precedence.wait(group.number, needed)
        return True

    # Joining ----------------------------------------------------------------------------

    def _try(self, item: Item, group: FusionGroup) -> bool:
        limit = costs.EPILOGUE if group.kind == "contract" else costs.LOOP
        if group.cost + costs.cost_of(item.op) > limit:
            return self._refuse(item, group, TOO_MUCH)
        if self._makes_cycle(item, group):
            return self._refuse(item, group, "another kernel has to run between them")
        if self._needs_memory_of(item, group.forms):
            return self._refuse(item, group, "it reads memory that the other still fills")
        reduces = is_reduction(item)
        while True:
            try:
                return self._join_reduction(item, group) if reduces else self._join(item, group)
            except SplitNeeded as needed:
                if not group.can_split:
                    return self._refuse(item, group, OTHER_LOOPS)
                group.split(needed.dim, needed.inner)

    def _refuse(self, item: Item, group: FusionGroup, why: str) -> bool:
        """False; and note why an item isn't in the group of what it reads."""
        for _, producer in self.computed_operands(item):
            if producer in group.forms:
                self.apart[producer, item] = why
        return False

    def _needs_memory_of(self, item: Item, others: Container[Item]) -> bool:
        """Whether an item reads memory that others fill: it is complete only after the kernel."""
        return any(other in others for other in self.source.awaited(item))

    def _makes_cycle(self, item: Item, group: FusionGroup) -> bool:
        return self.precedence.waits_any(self._dependences(item, group), group.number)

    def _join(self, item: Item, group: FusionGroup) -> bool:
        forms = self._propose(item, item.shape, group)
        if forms is None:
            return self._refuse(item, group, OTHER_LOOPS)
        if not self._reads_in_place(item, forms, group):
            return self._refuse(item, group, OTHER_ELEMENTS)
        if group.kind == "contract" and not self._follows(item, forms, group):
            return self._refuse(item, group, "all that reads it sums it, in loops of their own")
        if costs.cost_of(item.op) > costs.ONE_BY_ONE and self._are_dots(group):
            return self._refuse(item, group, "dot products come one by one, not in full vectors")
        if self._repeats_long_row(forms, group, self._stage(item, group)):
            return self._refuse(item, group, LONG_ROW)
        self._enter(item, group, forms)
        return True

    def _follows(self, item: Item, forms: IndexMap, group: FusionGroup) -> bool:
        """Whether an item belongs behind a product: not if all that reads it are reductions.

        They are loops of their own, which compute it from what is stored anyway.
        """
        covered = frozenset[int]().union(*(f.dims for f in forms))
        if covered != set(group.sizes) or item.value in self._for_sums:
            return False
        first = group.items[0]
        return first.op != "contract" or not self._has_small_images(first, item, forms, group)

    def _has_small_images(
        self, first: Item, item: Item, forms: IndexMap, group: FusionGroup
    ) -> bool:
        """Whether an item's elements, at these forms, would be stored a few at a time."""
        assert first.node is not None
        if item.region is not None:
            forms = forms[_first_without_gap(item.shape, item.region.strides) :]
        _, _, letters = split_indices(first.node.attributes["indices"])
        names = {
            dim: name for name, f in zip(letters, group.forms[first], strict=True) for dim in f.dims
        }
        order = "".join(names[dim] for f in forms for dim, _ in f.terms)
        return has_small_images(first.node, order)

    def _join_write(self, item: Item) -> bool:
        """Let a loop write what it computes at the indices themselves, so that it isn't stored.

        It becomes serial along the indices: it must be short, and fill vectors along other axes.
        """
        index, values = item.operands
        producer = self.computed.get(self.source.base(values))
        if producer is None:
            return False
        group = self.group_of[producer]
        if group.closed or group.kind != "loop" or group.reduced:
            return False
        if group.cost > costs.UNROLLED or self.computed.get(self.source.base(index)) is not None:
            return False
        if self._makes_cycle(item, group) or self._needs_memory_of(item, group.forms):
            return False
        forms = self._propose(item, item.shape, group)
        if not forms or self.operand_forms_of(values, forms, group) != group.forms[producer]:
            return False
        if not group.sizes.keys() <= dims_of(forms):
            return False
        terms, last = forms[-1].terms, len(forms) - 1
        if not writes_slices(item) or last in serial_axes(item) or len(terms) != 1:
            return False
        if hint(group.sizes[terms[0][0]]) <= costs.SMALL:
            return False
        self._enter(item, group, forms)
        group.closed = True
        return True

    def _are_dots(self, group: FusionGroup) -> bool:
        """Whether a group begins with dot products: what takes long is faster in full vectors."""
        product = group.items[0]
        if product.op != "matmul" or hint(prod(product.shape)) < costs.LINES:
            return False
        m, n = product.shape[-2:]
        a, b = (
            replaced(self.source.layout(operand).strides[-2:], hint) for operand in product.operands
        )
        k = hint(product.operands[0].shape[-1])
        return are_dots(m, n, k, a, b) or are_dots(n, m, k, b[::-1], a[::-1])

    def _join_reduction(self, item: Item, group: FusionGroup) -> bool:
        shape = item.operands[0].shape
        forms = self._propose(item, shape, group)
        if group.kind == "contract":
            return self._refuse(item, group, "the kernel of a product sums nothing else")
        if forms is None:
            return self._refuse(item, group, OTHER_LOOPS)
        axes = reduced_axes(item)
        dims = frozenset[int]().union(*(forms[axis].dims for axis in axes))
        covered = frozenset[int]().union(*(f.dims for f in forms))
        if covered != set(group.sizes) or (group.reduced and group.reduced != dims):
            return self._refuse(item, group, "it goes over other axes than the other's sums")
        if not self._reads_in_place(item, forms, group):
            return self._refuse(item, group, OTHER_ELEMENTS)
        if self._repeats_long_row(forms, group, self._stage(item, group)):
            return self._refuse(item, group, LONG_ROW)
        self._enter_reduction(item, group, forms)
        return True

    def _fold_in_memory(self, item: Item, group: FusionGroup) -> bool:
        """Let a group that sums over its rows also sum over blocks of them, into memory.

        The item, which sums over an axis before the last, then just sums what the blocks leave.
        Else all of its operand would be stored and read again, or be computed twice.
        """
        operand = item.operands[0]
        axes = reduced_axes(item)
        if item.op != "sum" or len(axes) != 1 or not group.reduced or group.kind != "loop":
            return False
        assert item.value is not None and operand.dtype is item.value.dtype
        if self._makes_cycle(item, group) or self._needs_memory_of(item, group.forms):
            return False
        forms = self._propose(item, operand.shape, group)
        if forms is None or not self._reads_in_place(item, forms, group):
            return False
        if not forms[-1].dims or not forms[-1].dims <= group.reduced:
            return False
        terms = forms[axes[0]].terms
        inner = _block_of(terms, group)
        if not inner or forms[axes[0]].dims & group.reduced:
            return False
        if len(terms) == 1:
            group.split(terms[0][0], inner)
            forms = self._propose(item, operand.shape, group)
            assert forms is not None
        self._enter_partial_sum(item, axes[0], forms, group)
        return True

    def _enter_partial_sum(
        self, item: Item, axis: int, forms: IndexMap, group: FusionGroup
    ) -> None:
        source, operand = self.source, item.operands[0]
        (outer, step), (_, _) = sorted(forms[axis].terms, key=lambda term: -term[1])
        count = operand.shape[axis] // step
        shape = (*operand.shape[:axis], count, *operand.shape[axis + 1 :])
        sums = Value(TensorType(operand.dtype, shape), source.graph, None)
        region = source.new_region(sums)
        node, index = item.node, item.index
        fold = Item("partial_sum", node, (operand,), operand.shape, region=region, index=index)
        source.homes[sums], source.producers[sums] = region, [fold]
        group.operand_forms[fold] = forms
        block = AffineExpr(0, ((outer, 1),))
        self._enter(fold, group, (*forms[:axis], block, *forms[axis + 1 :]))
        self._read_instead(item, (sums,))

    def _repeats_long_row(self, forms: IndexMap, group: FusionGroup, stage: int) -> bool:
        """Whether a pass over a row that is too long for the cache would wait for another one."""
        return stage > 0 and hint(group.row_size) > costs.ROW and group.is_inner(forms)

    def _propose(self, item: Item, shape: Shape, group: FusionGroup) -> IndexMap | None:
        """Indices over the group's dims at which an item of this shape would be computed."""
        for operand, producer in self.computed_operands(item):
            if producer not in group.forms:
                continue
            partial = self._push(operand, group.forms[producer], group)
            if partial is None:
                continue
            partial = broadcast_forms(operand.shape, shape, partial)
            forms = self._complete(partial, shape, group)
            if forms is not None:
                return forms
        return None

    def _push(self, value: Value, forms: IndexMap, group: FusionGroup) -> PartialIndexMap | None:
        """Indices of a view from those of what it looks at."""
        partial: PartialIndexMap | None = forms
        for view in self.views(value):
            if partial is None:
                return None
            partial = push(view, partial, group.sizes)
        return partial

    def views(self, value: Value) -> list[Node]:
        """The views between a value and its base, the base's neighbour first."""
        base, found = self.source.base(value), []
        while value is not base:
            node = value.producer
            assert node is not None
            found.append(node)
            value = node.operands[0]
        return found[::-1]

    def _complete(
        self, partial: PartialIndexMap, shape: Shape, group: FusionGroup
    ) -> IndexMap | None:
        """Put the reduced dims on axes along which a row's value is repeated."""
        result: list[AffineExpr] = [known for known in partial if known is not None]
        if len(result) < len(partial):
            repeated = self._along_repeated(partial, shape, group)
            if repeated is None:
                return None
            result = repeated
        covered = frozenset([dim for f in result for dim, _ in f.terms])
        kept = group.sizes.keys() - group.reduced
        if not kept <= covered or (covered & group.reduced and not group.reduced <= covered):
            return None
        return tuple(result)

    def _along_repeated(
        self, partial: PartialIndexMap, shape: Shape, group: FusionGroup
    ) -> list[AffineExpr] | None:
        used = frozenset[int]().union(*(f.dims for f in partial if f is not None))
        free = [dim for dim in group.reduced_in_order() if dim not in used]
        result: list[AffineExpr] = []
        for size, known in zip(shape, partial, strict=True):
            if known is not None:
                result.append(known)
                continue
            terms: list[tuple[int, int]] = []
            left = size
            taken = []
            while left > 1 and free:
                dim = free.pop(0)
                if not group.sizes[dim] or not is_multiple(left, group.sizes[dim]):
                    return None
                left //= group.sizes[dim]
                taken.append(dim)
            if left != 1:
                return None
            scale = 1
            for dim in reversed(taken):
                terms.append((dim, scale))
                scale *= group.sizes[dim]
            result.append(form(0, terms))
        return result

    def _reads_in_place(
        self, item: Item, forms: IndexMap, group: FusionGroup, known: Container[Item] = ()
    ) -> bool:
        """Whether each operand in the group is computed at the very indices that are read.

        known: items for which that is known.
        """
        for operand, producer in self.computed_operands(item):
            if producer not in group.forms or producer in known:
                continue
            if item.op in _WHOLE_OPERANDS:
                return False
            read = self.operand_forms_of(operand, forms, group)
            if read != group.forms[producer]:
                return False
        return not group.cuts or self._walks_without_gaps(item, forms, group)

    def _walks_without_gaps(self, item: Item, forms: IndexMap, group: FusionGroup) -> bool:
        """Whether all that an item may access keeps the parts of a product's dims together."""
        strides = contiguous_strides(item.shape) if item.region is None else item.region.strides
        if len(forms) == len(strides) and group.has_gaps(dot(forms, strides)):
            return False
        for operand in item.operands:
            read = self.operand_forms_of(operand, forms, group)
            strides = self.source.layout(self.source.base(operand)).strides
            if read is None or group.has_gaps(dot(read, strides)):
                return False
        return True

    def operand_forms_of(
        self, operand: Value, forms: IndexMap, group: FusionGroup
    ) -> IndexMap | None:
        """Indices into the base of an operand for an element of an item at `forms`."""
        read: IndexMap | None = unbroadcast(operand.shape, forms)
        for view in reversed(self.views(operand)):
            if read is None:
                return None
            read = pull(view, read, group.sizes)
        return read

    # Merging ----------------------------------------------------------------------------

    def _try_merge(self, item: Item, other: FusionGroup) -> bool:
        group = self.group_of[item]
        limit = costs.EPILOGUE if group.kind == "contract" else costs.LOOP
        if other.kind == "contract":
            return self._refuse(item, other, "it is in the kernel of another product")
        if group.cost + other.cost > limit:
            return self._refuse(item, other, TOO_MUCH)
        if self.precedence.has_path_between(group.number, other.number):
            return self._refuse(item, other, "another kernel has to run between them")
        while True:
            try:
                merged = self._merge(item, group, other)
                return merged or self._refuse(item, other, OTHER_LOOPS)
            except SplitNeeded as needed:
                owner = group if needed.dim in group.sizes else other
                if not owner.can_split:
                    return self._refuse(item, other, OTHER_LOOPS)
                owner.split(needed.dim, needed.inner)

    def _merge(self, item: Item, group: FusionGroup, other: FusionGroup) -> bool:
        shape = item.operands[0].shape if item in group.operand_forms else item.shape
        there = self._propose(item, shape, other)
        here = group.operand_forms.get(item, group.forms[item])
        if there is None:
            return False
        names = self.unify(here, there, group, other)
        if names is None:
            return False
        reduced = frozenset(names.get(dim, dim) for dim in other.reduced)
        if group.reduced and reduced and group.reduced != reduced:
            return False
        sizes = {names.get(dim, dim) for dim in other.sizes} | set(group.sizes)
        if sizes - set(group.sizes) - reduced:
            return False
        if group.kind == "contract" and (reduced or len(other.sizes) != len(group.sizes)):
            return False
        return self.absorb(group, other, names)

    def unify(
        self, here: IndexMap, there: IndexMap, group: FusionGroup, other: FusionGroup
    ) -> dict[int, int] | None:
        """Names that make the dims of another group those of this one."""
        names: dict[int, int] = {}
        for f, g in zip(here, there, strict=True):
            a, b = radix(f, group.sizes), radix(g, other.sizes)
            if a is None or b is None or not match_radix(a, b, group, other, names):
                return None
        rest = [dim for dim in other.reduced_in_order() if dim not in names]
        mine = [dim for dim in group.reduced_in_order() if dim not in names.values()]
        if rest and mine and not match_radix(mine[::-1], rest[::-1], group, other, names):
            return None
        return names

    def absorb(self, group: FusionGroup, other: FusionGroup, names: dict[int, int]) -> bool:
        """Move everything of a group into another one, unless a row would be gone over again."""
        other.rename(names)
        reduced, sizes = group.reduced, group.sizes
        group.sizes = {**group.sizes, **other.sizes}
        group.reduced = group.reduced | other.reduced
        items = sorted([*group.items, *other.items], key=_in_kernel)
        forms = {**other.forms, **group.forms}
        operand_forms = {**other.operand_forms, **group.operand_forms}
        trial = FusionGroup(group.kind, group.number)
        trial.sizes, trial.reduced = group.sizes, group.reduced
        trial.forms, trial.operand_forms, trial.cuts = forms, operand_forms, group.cuts
        trial.stages = {**other.stages, **group.stages}
        if not all(self._fits(entry, trial, group, other) for entry in self._met(group, other)):
            group.reduced, group.sizes = reduced, sizes
            return False
        group.items, group.forms, group.operand_forms = items, forms, operand_forms
        group.stages = trial.stages
        group.cost += other.cost
        self._replace(other, group)
        return True

    def _met(self, group: FusionGroup, other: FusionGroup) -> Iterable[Item]:
        """The items of two groups that may not fit into one: most often those that meet.

        With reductions all, in order, for one that waits for another is a pass of its own; and
        behind a product whose dims are cut.
        """
        if group.operand_forms or other.operand_forms or group.cuts:
            return sorted([*group.items, *other.items], key=_in_kernel)
        few, many = sorted((group, other), key=lambda each: len(each.items))
        readers = (reader for item in few.items for reader in self._readers.get(item, ()))
        return [*few.items, *(reader for reader in readers if reader in many.forms)]

    def _fits(
        self, item: Item, merged: FusionGroup, group: FusionGroup, other: FusionGroup
    ) -> bool:
        """Whether an item finds its operands in what two groups become; notes its stage.

        In its own group it does.
        """
        own, others = (group, other) if item in group.forms else (other, group)
        forms = merged.operand_forms.get(item, merged.forms[item])
        if not self._reads_in_place(item, forms, merged, own.forms):
            return False
        if self._needs_memory_of(item, others.forms):
            return False
        stage = merged.stages[item] = self._stage(item, merged)
        return not self._repeats_long_row(forms, merged, stage)

    def _replace(self, old: FusionGroup, new: FusionGroup) -> None:
        del self.groups[old.number]
        for item in old.items:
            self.group_of[item] = new
        self.precedence.merge(new.number, old.number)


def _first_without_gap(shape: Shape, strides: Strides) -> int:
    """The axis from which on elements lie equally far apart, in row-major order."""
    following: int | None = None
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            continue
        if following not in (None, strides[axis]):
            return axis + 1
        following = strides[axis] * shape[axis]
    return 0
