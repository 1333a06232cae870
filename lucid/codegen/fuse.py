"""Which items run in one loop nest: groups of items over common loop dims.

Greedy, in topological order: an item joins the group of one of its operands when every operand
computed in the group is read at exactly the indices at which it is computed, and no path leads from
the group to the item through another one. Groups of several operands merge on the same terms.
All choices follow the items' order, so that equal graphs give equal kernels.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from lucid.codegen import costs
from lucid.codegen.forms import (
    ZERO,
    Form,
    Forms,
    PartialForms,
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
from lucid.codegen.groups import Group, bits_of, kind_of, match_radix, reduced_axes, values_for_sums
from lucid.codegen.item import Item, is_reduction
from lucid.codegen.items import ItemList
from lucid.codegen.siblings import merge_siblings
from lucid.ir.graph import Node, Value
from lucid.ir.strides import contiguous_strides
from lucid.ir.types import Shape

# Ops that read their operands at other places than that of the element that they compute.
_WHOLE_OPERANDS = (
    "take", "gather", "write_at", "add_to", "matmul", "contract", "cumsum",
    "random_uniform", "random_normal",
)  # fmt: skip
_PRODUCTS = ("matmul", "contract")


class Fusion:
    """The groups of an item list.

    Attributes:
        before: for each group number the set, as bits, of groups that must run before it.
    """

    def __init__(self, items: ItemList, fuse: bool = True) -> None:
        self.source = items
        self.fuse = fuse
        self._for_sums = values_for_sums(items.graph)
        self.groups: dict[int, Group] = {}
        self.group_of: dict[Item, Group] = {}
        self.before: dict[int, int] = {}
        self.nearest: dict[int, int] = {}  # the part of it that a group waits for by itself
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

    def add_last(self, item: Item) -> Group:
        """Place an item of the end in a group of its own."""
        self._start(item, "closed")
        return self.group_of[item]

    # Placing one item -------------------------------------------------------------------

    def _place(self, item: Item) -> None:
        kind = kind_of(item)
        fuses = self.fuse and kind in ("map", "reduce") and item.op not in _WHOLE_OPERANDS
        if fuses and any(self._sees_through(item, n) for n in range(len(item.operands))):
            return
        candidates = self._candidates(item) if fuses else []
        for group in candidates:
            if self._try(item, group):
                for other in candidates:
                    if other is not self.group_of[item] and other.number in self.groups:
                        self._try_merge(item, other)
                return
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
        item.operands = (*given[:position], seen, *given[position + 1 :])
        if self._try(item, self.group_of[producer]):
            return True
        item.operands = given
        return False

    def _candidates(self, item: Item) -> list[Group]:
        """The open groups that compute an operand, the latest first; products before loops."""
        found: dict[int, Group] = {}
        for operand in self.source.reads(item):
            producer = self.computed.get(self.source.base(operand))
            if producer is not None:
                group = self.group_of[producer]
                if not group.closed and producer.value is not None:
                    found[group.number] = group
        return sorted(found.values(), key=lambda g: (g.kind != "contract", -g.number))

    def _start(self, item: Item, kind: str) -> None:
        """Begin a group with one item."""
        number = len(self.before)
        group = Group({"contract": "contract", "opaque": "opaque"}.get(kind, "loop"), number)
        group.closed = kind in ("opaque", "closed")
        shape = item.operands[0].shape if kind == "reduce" else item.shape
        forms = []
        for size in shape:
            if size == 1:
                forms.append(ZERO)
            else:
                dim = fresh_dim()
                group.sizes[dim] = size
                forms.append(Form(0, ((dim, 1),)))
        self.groups[number] = group
        self.before[number] = self.nearest[number] = 0
        if kind == "reduce":
            self._enter_reduction(item, group, tuple(forms))
        else:
            if item.op == "cumsum" and item.node is not None:
                group.reduced = forms[item.node.attributes["axis"]].dims
            self._enter(item, group, tuple(forms))

    def _enter(self, item: Item, group: Group, forms: Forms) -> None:
        group.items.append(item)
        group.forms[item] = forms
        group.cost += costs.cost_of(item.op)
        group.stages[item] = self._stage(item, group)
        self.group_of[item] = group
        self._wait(group, self._dependences(item, group))

    def _enter_reduction(self, item: Item, group: Group, forms: Forms) -> None:
        axes = reduced_axes(item)
        for axis in axes:
            group.reduced |= forms[axis].dims
        group.operand_forms[item] = forms
        kept = tuple(f for axis, f in enumerate(forms) if axis not in axes)
        self._enter(item, group, kept)

    def _stage(self, item: Item, group: Group) -> int:
        stages = [0]
        for operand in self.source.reads(item):
            producer = self.computed.get(self.source.base(operand))
            if producer is not None and producer in group.forms:
                stages.append(group.stages[producer] + (producer in group.operand_forms))
        return max(stages)

    def _dependences(self, item: Item, group: Group) -> int:
        bits = 0
        for needed in self.source.dependences(item):
            other = self.group_of[needed]
            if other is not group:
                bits |= 1 << other.number
        return bits

    def _wait(self, group: Group, needed: int) -> None:
        """Add dependences of a group, and of all that wait for it."""
        bits = needed | self._closure(needed)
        own = 1 << group.number
        self.nearest[group.number] |= needed
        if bits & ~self.before[group.number]:
            self.before[group.number] |= bits
            for number in self.groups:
                if self.before[number] & own:
                    self.before[number] |= bits

    def _closure(self, bits: int) -> int:
        result = 0
        for number in bits_of(bits):
            result |= self.before[number]
        return result

    def wait_for(self, group: Group, others: Iterable[Group]) -> bool:
        """Make a group run after others; False, and nothing done, where that is a cycle."""
        own = 1 << group.number
        needed = 0
        for other in others:
            if other is not group:
                if self.before[other.number] & own:
                    return False
                needed |= 1 << other.number
        self._wait(group, needed)
        return True

    # Joining ----------------------------------------------------------------------------

    def _try(self, item: Item, group: Group) -> bool:
        limit = costs.EPILOGUE if group.kind == "contract" else costs.LOOP
        if group.cost + costs.cost_of(item.op) > limit or self._makes_cycle(item, group):
            return False
        if self._needs_memory_of(item, group.forms):
            return False
        reduces = is_reduction(item)
        while True:
            try:
                return self._join_reduction(item, group) if reduces else self._join(item, group)
            except SplitNeeded as needed:
                if not group.can_split:
                    return False
                group.split(needed.dim, needed.inner)

    def _needs_memory_of(self, item: Item, others: Container[Item]) -> bool:
        """Whether an item waits for stores of others: they are complete only after the kernel."""
        needed = self.source.dependences(item)
        return any(other.value is None and other in others for other in needed)

    def _makes_cycle(self, item: Item, group: Group) -> bool:
        needed = self._dependences(item, group)
        return bool(self._closure(needed) >> group.number & 1)

    def _join(self, item: Item, group: Group) -> bool:
        forms = self._propose(item, item.shape, group)
        if forms is None or not self._reads_in_place(item, forms, group):
            return False
        if group.kind == "contract" and not self._follows(item, forms, group):
            return False
        if self._repeats_long_row(item, forms, group):
            return False
        self._enter(item, group, forms)
        return True

    def _follows(self, item: Item, forms: Forms, group: Group) -> bool:
        """Whether an item belongs behind a product: not if all that reads it are reductions.

        They are loops of their own, which compute it from what is stored anyway.
        """
        covered = frozenset[int]().union(*(f.dims for f in forms))
        return covered == set(group.sizes) and item.value not in self._for_sums

    def _join_reduction(self, item: Item, group: Group) -> bool:
        shape = item.operands[0].shape
        forms = self._propose(item, shape, group)
        if group.kind == "contract" or forms is None:
            return False
        axes = reduced_axes(item)
        dims = frozenset[int]().union(*(forms[axis].dims for axis in axes))
        covered = frozenset[int]().union(*(f.dims for f in forms))
        if covered != set(group.sizes) or (group.reduced and group.reduced != dims):
            return False
        if not self._reads_in_place(item, forms, group):
            return False
        if self._repeats_long_row(item, forms, group):
            return False
        self._enter_reduction(item, group, forms)
        return True

    def _repeats_long_row(self, item: Item, forms: Forms, group: Group) -> bool:
        """Whether a pass over a row that is too long for the cache would wait for another one."""
        return group.row_size > costs.ROW and group.is_inner(forms) and self._stage(item, group) > 0

    def _propose(self, item: Item, shape: Shape, group: Group) -> Forms | None:
        """Indices over the group's dims at which an item of this shape would be computed."""
        for operand in self.source.reads(item):
            producer = self.computed.get(self.source.base(operand))
            if producer is None or producer not in group.forms:
                continue
            partial = self._push(operand, group.forms[producer], group)
            if partial is None:
                continue
            partial = broadcast_forms(operand.shape, shape, partial)
            forms = self._complete(partial, shape, group)
            if forms is not None:
                return forms
        return None

    def _push(self, value: Value, forms: Forms, group: Group) -> PartialForms | None:
        """Indices of a view from those of what it looks at."""
        partial: PartialForms | None = forms
        for view in self._views(value):
            if partial is None:
                return None
            partial = push(view, partial, group.sizes)
        return partial

    def _views(self, value: Value) -> list[Node]:
        """The views between a value and its base, the base's neighbour first."""
        base, found = self.source.base(value), []
        while value is not base:
            node = value.producer
            assert node is not None
            found.append(node)
            value = node.operands[0]
        return found[::-1]

    def _complete(self, partial: PartialForms, shape: Shape, group: Group) -> Forms | None:
        """Put the reduced dims on axes along which a row's value is repeated."""
        used = frozenset[int]().union(*(f.dims for f in partial if f is not None))
        free = [dim for dim in group.reduced_in_order() if dim not in used]
        result: list[Form] = []
        for size, known in zip(shape, partial, strict=True):
            if known is not None:
                result.append(known)
                continue
            terms: list[tuple[int, int]] = []
            left = size
            taken = []
            while left > 1 and free:
                dim = free.pop(0)
                if not group.sizes[dim] or left % group.sizes[dim]:
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
        covered = frozenset[int]().union(*(f.dims for f in result))
        kept = set(group.sizes) - group.reduced
        if not kept <= covered or (covered & group.reduced and not group.reduced <= covered):
            return None
        return tuple(result)

    def _reads_in_place(self, item: Item, forms: Forms, group: Group) -> bool:
        """Whether each operand in the group is computed at the very indices that are read."""
        for operand in self.source.reads(item):
            producer = self.computed.get(self.source.base(operand))
            if producer is None or producer not in group.forms:
                continue
            if item.op in _WHOLE_OPERANDS:
                return False
            read = self.operand_forms_of(operand, forms, group)
            if read != group.forms[producer]:
                return False
        return not group.cuts or self._walks_without_gaps(item, forms, group)

    def _walks_without_gaps(self, item: Item, forms: Forms, group: Group) -> bool:
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

    def operand_forms_of(self, operand: Value, forms: Forms, group: Group) -> Forms | None:
        """Indices into the base of an operand for an element of an item at `forms`."""
        read: Forms | None = unbroadcast(operand.shape, forms)
        for view in reversed(self._views(operand)):
            if read is None:
                return None
            read = pull(view, read, group.sizes)
        return read

    # Merging ----------------------------------------------------------------------------

    def _try_merge(self, item: Item, other: Group) -> bool:
        group = self.group_of[item]
        limit = costs.EPILOGUE if group.kind == "contract" else costs.LOOP
        if other.kind == "contract" or group.cost + other.cost > limit:
            return False
        if self._path_between(group, other):
            return False
        while True:
            try:
                return self._merge(item, group, other)
            except SplitNeeded as needed:
                owner = group if needed.dim in group.sizes else other
                if not owner.can_split:
                    return False
                owner.split(needed.dim, needed.inner)

    def _path_between(self, a: Group, b: Group) -> bool:
        """Whether one of the groups waits for the other through a third."""
        for first, second in ((a, b), (b, a)):
            between = self.nearest[second.number] & ~(1 << first.number)
            if not self.before[second.number] >> first.number & 1:
                continue
            for number in bits_of(between):
                if number in self.groups and self.before[number] >> first.number & 1:
                    return True
        return False

    def _merge(self, item: Item, group: Group, other: Group) -> bool:
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

    def unify(self, here: Forms, there: Forms, group: Group, other: Group) -> dict[int, int] | None:
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

    def absorb(self, group: Group, other: Group, names: dict[int, int]) -> bool:
        """Move everything of a group into another one, unless a row would be gone over again."""
        other.rename(names)
        reduced, sizes = group.reduced, group.sizes
        group.sizes = {**group.sizes, **other.sizes}
        group.reduced = group.reduced | other.reduced
        items = sorted(
            [*group.items, *other.items], key=lambda entry: (entry.op not in _PRODUCTS, entry.index)
        )
        forms = {**other.forms, **group.forms}
        operand_forms = {**other.operand_forms, **group.operand_forms}
        trial = Group(group.kind, group.number)
        trial.sizes, trial.reduced = group.sizes, group.reduced
        trial.forms, trial.operand_forms, trial.cuts = forms, operand_forms, group.cuts
        if not all(self._fits(entry, trial) for entry in items):
            group.reduced, group.sizes = reduced, sizes
            return False
        group.items, group.forms, group.operand_forms = items, forms, operand_forms
        group.stages = trial.stages
        group.cost += other.cost
        self._replace(other, group)
        return True

    def _fits(self, item: Item, group: Group) -> bool:
        """Whether an item of a merged group still finds its operands; notes its stage."""
        forms = group.operand_forms.get(item, group.forms[item])
        if not self._reads_in_place(item, forms, group) or self._needs_memory_of(item, group.forms):
            return False
        group.stages[item] = self._stage(item, group)
        return not self._repeats_long_row(item, forms, group)

    def _replace(self, old: Group, new: Group) -> None:
        del self.groups[old.number]
        for item in old.items:
            self.group_of[item] = new
        mine, gone = 1 << new.number, 1 << old.number
        bits = (self.before[new.number] | self.before[old.number]) & ~mine & ~gone
        self.before[new.number] = bits
        near = self.nearest[new.number] | self.nearest[old.number]
        self.nearest[new.number] = near & ~mine & ~gone
        for number in self.groups:
            if number != new.number and self.before[number] & (mine | gone):
                self.before[number] = self.before[number] & ~gone | mine | bits
                if self.nearest[number] & gone:
                    self.nearest[number] = self.nearest[number] & ~gone | mine
