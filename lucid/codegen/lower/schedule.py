"""The order of kernels, where their results live, and which state is updated in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from math import prod

from lucid.codegen import costs
from lucid.codegen.kernel_ir.affine import AffineExpr, IndexMap, dot, unbroadcast
from lucid.codegen.kernel_ir.kernel import Kernel
from lucid.codegen.kernel_ir.regions import Buffer, BufferView
from lucid.codegen.llvm.target import Target
from lucid.codegen.lower.build import Builder
from lucid.codegen.lower.fuse import Fusion
from lucid.codegen.lower.groups import FusionGroup
from lucid.codegen.lower.item import Item, reads_elements
from lucid.codegen.lower.items import ItemList
from lucid.codegen.lower.layouts import choose_layouts
from lucid.codegen.lower.legalize import legalize
from lucid.codegen.program.memory_plan import place, place_open, size_of
from lucid.codegen.program.program import Apart, KernelCall, Program, lifetimes
from lucid.codegen.program.verify import verify_program
from lucid.ir import ops
from lucid.ir.clone import copy_graph
from lucid.ir.environment import VERIFY
from lucid.ir.extents import hint, is_open
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.passes.pipeline import PassLog
from lucid.ir.region_ops import body_names
from lucid.ir.strides import Strides, contiguous_strides


def make_program(
    graph: Graph,
    strides: Sequence[Strides],
    target: Target,
    fuse: bool = True,
    log: PassLog | None = None,
    *,
    is_body: bool = False,
    take: Callable[[KernelCall], None] | None = None,
) -> Program:
    """Lower a flat graph, or the body of a loop, to kernels over buffers.

    Args:
        log: gets the passes that legalize it.
        take: gets each call of a kernel as soon as it is made.

    Raises:
        MissingRuleError: an op has no lowering.
    """
    graph = copy_graph(graph)
    checked = legalize(graph, log)
    late = _behind_exits(graph)
    items = ItemList(graph, strides, checked, is_body=is_body)
    for node in graph.nodes:
        if node.op.kind == "region":
            bodies = (graph.functions[name] for name in body_names(node))
            items.bodies[node] = [_lowered_body(node, x, graph, target, fuse) for x in bodies]
    items.let_wait(late)
    fusion = Fusion(items, fuse)
    _update_in_place(fusion)
    stored = _assign_homes(fusion)
    _drop_copies_to_outputs(fusion)
    choose_layouts(fusion, stored, target)
    calls: list[KernelCall] = []
    first: dict[FusionGroup, int] = {}
    whole: dict[int, tuple[Kernel, KernelCall]] = {}  # that are one call; groups may share them
    for group in _ordered(fusion):
        if not _has_effect(group, stored):
            continue
        kernel, args = Builder(fusion, group, stored, target).build()
        checked_by = group.items[0].node if kernel.effect else None
        nodes = tuple(dict.fromkeys(item.node for item in group.items if item.node is not None))
        first[group] = len(calls)
        if id(kernel) in whole:
            same = whole[id(kernel)][1]
            for number in kernel.scratch:
                args[number].size = same.args[number].size
            calls.append(same.on(args, checked_by, nodes))
        else:
            for part, given in kernel.partition(args, items.new_temp, target):
                moved, origins = part.relocate()
                calls.append(KernelCall(moved, given, origins, checked_by, nodes))
                if part is kernel:
                    whole[id(kernel)] = kernel, calls[-1]
        calls[-1].leaves = _leaves(group, stored)
        if take is not None:
            for call in calls[first[group] :]:
                take(call)
    spans = lifetimes(calls)
    is_placed_later = not is_body or not any(is_open(buffer.size) for buffer in spans)
    offsets, size = place(spans) if is_placed_later else place_open(spans)
    cells = [cell for cell, _ in graph.writes]
    numbers = {entry.value: number for number, entry in enumerate(graph.inputs)}
    written = [numbers[cell] for cell in cells]
    live = [n for n, entry in enumerate(graph.inputs) if entry.kind == "live"]
    inputs, outputs = items.inputs, items.outputs
    program = Program(
        graph, calls, inputs, outputs, offsets, size, written, live, tuple(strides),
        lambda: _apart(fusion, first),
    )  # fmt: skip
    if program.is_open:  # which is kept, and would keep all that planning knew
        known = program.apart()
        program.apart = lambda: known
    if VERIFY.read() and not program.is_open:
        verify_program(program)
    return program


def _apart(fusion: Fusion, first: dict[FusionGroup, int]) -> list[Apart]:
    """Which calls are no single one, and why; `first` has each group's first call."""
    found: dict[Apart, None] = {}
    pairs = [(pair, False) for pair in fusion.why_apart()]
    pairs += [(pair, True) for pair in fusion.why_beside()]
    for (one, other, why), is_beside in pairs:
        earlier, later = (first.get(fusion.group_of[item]) for item in (one, other))
        if earlier is None or later is None:
            continue
        ops = one.op, other.op
        if is_beside and later < earlier:
            earlier, later, ops = later, earlier, (other.op, one.op)
        found[Apart(earlier, later, ops, why, is_beside)] = None
    return sorted(found)


def _lowered_body(node: Node, body: Graph, graph: Graph, target: Target, fuse: bool) -> Program:
    """A body; of a loop a round: the carry is state that it writes, and rows are its outputs."""
    copied, carries = copy_graph(body), node.attributes.get("carries", 0)
    copied.functions = graph.functions
    cells = [entry.value for entry in copied.inputs[:carries]]
    copied.writes = [*zip(cells, copied.outputs[:carries], strict=True)]
    copied.outputs = copied.outputs[carries:]
    strides = [contiguous_strides(entry.value.shape) for entry in copied.inputs]
    return make_program(copied, strides, target, fuse, is_body=True)


def _leaves(
    group: FusionGroup, stored: dict[Value, BufferView]
) -> tuple[tuple[Value, BufferView], ...]:
    """The values that a group leaves in memory as a whole."""
    found = [(x.value, stored[x.value]) for x in group.items if x.value in stored]
    for item in group.items:
        if item.op == "store" and item.region is not None and item.operands[0].shape == item.shape:
            found.append((item.operands[0], item.region))
    return tuple(found)


def _behind_exits(graph: Graph) -> set[Node]:
    """The nodes that only what is written needs, moved behind all others; none without exits.

    They are to wait for the last exit: fused with what an exit looks at, they couldn't store.
    """
    if not any(node.attributes.get("error") in ("exit", "finite") for node in graph.nodes):
        return set()
    needed = set(graph.outputs)
    others: list[Node] = []
    late: list[Node] = []
    for node in reversed(graph.nodes):
        if node.has_effect or any(x in needed for x in node.results):
            needed.update(node.operands)
            others.append(node)
        else:
            late.append(node)
    graph.nodes = [*others[::-1], *late[::-1]]
    return set(late)


def _has_effect(group: FusionGroup, stored: dict[Value, BufferView]) -> bool:
    """Whether a group stores, or checks, anything; what has no elements isn't computed."""
    return any(item.value is None or item.value in stored for item in group.items)


# State ----------------------------------------------------------------------------------------


def _update_in_place(fusion: Fusion) -> None:
    """Let the stores of new state go straight to the inputs where nobody needs the old value.

    The others go to a temp first, and from there to the input at the very end. Nothing is stored
    in an input before the last check of indices, and the last call of Python: a step that fails
    leaves its inputs alone.
    """
    checks = [fusion.group_of[item] for item in fusion.source.effects]
    readers = _readers(fusion)
    late: list[Item] = []
    for item in _by_size(fusion.source.items):
        assert item.cell is not None
        group = fusion.group_of[item]
        old = readers.get(item.cell, [])
        first = [*_groups_of(fusion, old), *checks]
        if not _same_elements(fusion, group, item, old) or not fusion.wait_for(group, first):
            late.append(item)
    for item in late:
        assert item.cell is not None
        _store_at_the_end(fusion, item, [*_groups_of(fusion, readers.get(item.cell, [])), *checks])
    for cell, items in fusion.source.in_place.items():
        old = readers.get(cell, [])
        first = [*_groups_of(fusion, old), *checks]
        if not all(_overwrites(fusion, old, item, first) for item in items):
            _overwrite_a_copy(fusion, cell, items, first)


def _by_size(items: list[Item]) -> list[Item]:
    """The stores of new state, of large arrays first: of two that wait for each other one loses."""
    stores = [item for item in items if item.cell is not None]
    return sorted(stores, key=lambda item: -hint(prod(item.shape)))


def _readers(fusion: Fusion) -> dict[Value, list[Item]]:
    """The items that read each input."""
    found: dict[Value, dict[Item, None]] = {}
    for item in fusion.group_of:
        for value in fusion.source.inputs_read(item):
            found.setdefault(value, {})[item] = None
    return {value: list(items) for value, items in found.items()}


def _same_elements(fusion: Fusion, group: FusionGroup, store: Item, readers: list[Item]) -> bool:
    """Whether its own group reads the old state only where, and not after, it is replaced."""
    assert store.region is not None and store.cell is not None
    target = dot(group.forms[store], store.region.strides, store.region.offset)
    for item in readers:
        if fusion.group_of[item] is not group:
            continue
        if not reads_elements(item) or max(group.stages.values()) > group.stages[store]:
            return False
        forms = group.operand_forms.get(item, group.forms[item])
        if any(read != target for read in _addresses(fusion, group, item, forms, store.cell)):
            return False
    return True


def _addresses(
    fusion: Fusion, group: FusionGroup, item: Item, forms: IndexMap, cell: Value
) -> Iterator[AffineExpr]:
    """Where an item reads an input for its element at `forms`, and what it computes anew does."""
    source = fusion.source
    for number, operand in enumerate(item.operands):
        made = source.recomputed(item, number)
        if made is not None:
            inner = fusion.operand_forms_of(operand, forms, group)
            assert inner is not None
            yield from _addresses(fusion, group, made, inner, cell)
        elif source.base(operand) is cell:
            layout = source.layout(operand)
            yield dot(unbroadcast(operand.shape, forms), layout.strides, layout.offset)


def _groups_of(fusion: Fusion, items: list[Item]) -> dict[FusionGroup, None]:
    return dict.fromkeys(fusion.group_of[item] for item in items)


def _overwrites(fusion: Fusion, readers: list[Item], item: Item, first: list[FusionGroup]) -> bool:
    """Whether parts of a state can be written in place, when all that must be first has run."""
    group = fusion.group_of[item]
    if any(fusion.group_of[reader] is group for reader in readers):
        return False
    return fusion.wait_for(group, first)


def _overwrite_a_copy(
    fusion: Fusion, cell: Value, items: list[Item], first: list[FusionGroup]
) -> None:
    """Write over parts of a copy of the state, which replaces it when all else is done."""
    source, home = fusion.source, fusion.source.homes[cell]
    temp = source.new_temp(cell.dtype, cell.type.size)
    whole = BufferView(temp, 0, home.strides)
    made = [value for value, region in source.homes.items() if region is home and value is not cell]
    for value in made:
        source.set_home(value, whole)
    begin = Item("store", None, (cell,), cell.shape, region=whole, overwritten=True)
    for item in items:
        assert item.region is not None
        item.region = BufferView(temp, item.region.offset, item.region.strides)
    held = Value(cell.type, source.graph, None)
    source.homes[held], source.producers[held] = whole, [begin, *items]
    end = Item("store", None, (held,), cell.shape, region=home)
    for item in (begin, end):
        item.index = len(source.items)
        source.items.append(item)
    copied = fusion.add_last(begin)
    for item in items:
        fusion.wait_for(fusion.group_of[item], [copied])
    done = fusion.wait_for(fusion.add_last(end), first)
    assert done, "nothing waits for a copy at the end"


def _store_at_the_end(fusion: Fusion, store: Item, first: list[FusionGroup]) -> None:
    """Divert a store of new state to a temp, which is copied when all else is done."""
    source, cell, region = fusion.source, store.cell, store.region
    assert cell is not None and region is not None
    temp = source.new_temp(cell.dtype, cell.type.size)
    store.region = BufferView(temp, 0, contiguous_strides(cell.shape))
    store.cell = None
    held = Value(cell.type, source.graph, None)
    source.homes[held] = store.region
    source.producers[held] = [store]
    copy = Item("store", None, (held,), cell.shape, region=region, index=len(source.items))
    source.items.append(copy)
    group = fusion.add_last(copy)
    done = fusion.wait_for(group, first)
    assert done, "nothing waits for a copy at the end"


# Homes ----------------------------------------------------------------------------------------


def _assign_homes(fusion: Fusion) -> dict[Value, BufferView]:
    """Give memory to every computed value that another kernel reads."""
    source = fusion.source
    wanted: dict[Value, None] = {}
    for item, group in fusion.group_of.items():
        for value in (*map(source.base, source.reads(item)), *source.read_anew(item)):
            producer = fusion.computed.get(value)
            if producer is not None and fusion.group_of[producer] is not group:
                wanted[value] = None
    stored: dict[Value, BufferView] = {}
    for value in wanted:
        region = _home_of_store(fusion, value)
        if region is None:
            buffer = source.new_temp(value.dtype, value.type.size)
            region = BufferView(buffer, 0, contiguous_strides(value.shape))
            stored[value] = region
        source.set_home(value, region)
    return stored


def _home_of_store(fusion: Fusion, value: Value) -> BufferView | None:
    """Where the value's own kernel stores it anyway, perhaps with its axes in another order."""
    producer = fusion.computed[value]
    for item in fusion.group_of[producer].items:
        region = item.region
        if item.op != "store" or item.overwritten or region is None:
            continue
        stored = item.operands[0]
        strides = _strides_behind(stored, value, region.strides)
        if strides is None or item.shape != stored.shape:
            continue
        home = BufferView(region.buffer, region.offset, strides)
        if fusion.source.reads_with_strides(value, home):
            return home
    return None


def _strides_behind(seen: Value, value: Value, strides: Strides) -> Strides | None:
    """The strides of a value of which `seen`, a transpose or the same, has these; None: neither."""
    while seen is not value:
        node = seen.producer
        if node is None or node.op is not ops.transpose:
            return None
        perm = node.attributes["perm"]
        strides = tuple(strides[perm.index(axis)] for axis in range(len(perm)))
        seen = node.operands[0]
    return strides


def _drop_copies_to_outputs(fusion: Fusion) -> None:
    """Where a kernel of its own would only copy a temp to an output, the temp is the output.

    What others read in the output, as it is assembled there, stays.
    """
    regions = [item.region for item in fusion.source.items if item.region is not None]
    assembled = {id(home.buffer) for home in fusion.source.homes.values()}
    stores = Counter(id(region.buffer) for region in regions)
    for number, group in list(fusion.groups.items()):
        first = group.items[0]
        region = first.region
        if len(group.items) == 1 and first.op == "store" and region is not None:
            whole = region.buffer.size == first.operands[0].type.size
            whole = whole and stores[id(region.buffer)] == 1
            if (
                region.buffer.kind == "output"
                and whole
                and id(region.buffer) not in assembled
                and fusion.source.becomes_output(first.operands[0], region.buffer.index)
            ):
                del fusion.groups[number]


# Order ----------------------------------------------------------------------------------------


def _ordered(fusion: Fusion) -> list[FusionGroup]:
    """All groups that have something to do, each behind those it waits for.

    They come in the order of the graph, but one after which less memory is in use than before
    comes as soon as it can, such as the update of a parameter: so what its gradient is a product
    of doesn't wait for the end of the step. What takes next to nothing comes at once, too, since
    updates wait for such numbers.
    """
    position = {group: group.items[-1].index for group in fusion.groups.values()}
    memory = _Memory(fusion)
    waiting_for = {number: _others(fusion, number) for number in fusion.groups}
    followers: dict[int, list[int]] = {}
    for number, others in waiting_for.items():
        for other in others:
            followers.setdefault(other, []).append(number)
    ready: list[tuple[int, int]] = []
    first: list[tuple[bool, int, int]] = []
    order: dict[FusionGroup, None] = {}

    def enter(number: int) -> None:
        """Note that a group may run."""
        entry = position[fusion.groups[number]], number
        heappush(ready, entry)
        taken, freed = memory.change(number)
        if taken < freed or taken <= costs.LITTLE:
            heappush(first, (taken >= freed, *entry))

    for number, others in waiting_for.items():
        if not others:
            enter(number)
    while ready or first:
        number = heappop(first)[-1] if first else heappop(ready)[-1]
        group = fusion.groups[number]
        if group in order:
            continue
        order[group] = None
        for other in memory.run(number):
            if fusion.groups[other] not in order and not waiting_for[other]:
                enter(other)
        for follower in followers.get(number, ()):
            waiting_for[follower].discard(number)
            if not waiting_for[follower]:
                enter(follower)
    assert len(order) == len(fusion.groups), "kernels wait for each other in a cycle"
    return list(order)


def _others(fusion: Fusion, number: int) -> set[int]:
    """The groups that a group waits for, those aside which others of them wait for."""
    found: set[int] = set()
    pending, seen = [number], {number}
    for each in pending:  # which grows meanwhile
        for other in fusion.precedence.direct(each):
            if other in fusion.groups:
                found.add(other)
            elif other not in seen:  # a copy that is not made after all
                seen.add(other)
                pending.append(other)
    return found


class _Memory:
    """Which temps are in use, as groups run one after the other."""

    def __init__(self, fusion: Fusion) -> None:
        homes, base = fusion.source.homes, fusion.source.base
        self._touched: dict[int, set[Buffer]] = {number: set() for number in fusion.groups}
        self._users: dict[Buffer, set[int]] = {}
        self._in_use: set[Buffer] = set()
        for item, group in fusion.group_of.items():
            values = [*map(base, item.operands), *fusion.source.read_anew(item)]
            values += [] if item.value is None else [item.value]
            regions = [*(homes[value] for value in values if value in homes)]
            for region in regions if item.region is None else [*regions, item.region]:
                if region.buffer.kind == "temp" and group.number in self._touched:
                    self._touched[group.number].add(region.buffer)
                    self._users.setdefault(region.buffer, set()).add(group.number)

    def change(self, number: int) -> tuple[int, int]:
        """How many bytes a group takes that it leaves in use, and how many it frees."""
        taken = freed = 0
        for buffer in self._touched[number]:
            is_in_use, is_last = buffer in self._in_use, len(self._users[buffer]) == 1
            if is_in_use and is_last:
                freed += size_of(buffer)
            elif not is_in_use and not is_last:
                taken += size_of(buffer)
        return taken, freed

    def run(self, number: int) -> list[int]:
        """Note that a group has run; return those that may free a temp now."""
        freeing: list[int] = []
        for buffer in self._touched[number]:
            users = self._users[buffer]
            users.discard(number)
            self._in_use.add(buffer)
            if len(users) == 1:
                freeing += users
        return freeing
