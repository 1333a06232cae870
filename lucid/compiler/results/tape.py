"""The autograd graph that a trace leaves behind its results, as each call can use it again.

The nodes stay what they were while tracing; in place of the tensors that they saved they get
stand-ins without data; so do numbers, and what a `ctx` or a hook holds. The backward of a call is a
function of its own: it is given what the call has kept, lets that be what the stand-ins hold, and
walks through the nodes.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from lucid.autograd.ctx_changes import is_plain_object
from lucid.autograd.node import AccumulateGrad, Edge, Node, edge_of
from lucid.autograd.saved import SavedTensor, with_history
from lucid.compiler.inputs.cells import Cell
from lucid.compiler.inputs.late import is_late
from lucid.compiler.inputs.scalars import Formula, is_live
from lucid.compiler.results.memory import TracedMemory
from lucid.ir.clone import copy_graph
from lucid.ir.extents import NotOpenError
from lucid.ir.graph import Graph, Node as GraphNode, Value
from lucid.ir.passes.residuals import (
    Cut,
    equal_values,
    minimum_cut,
    nodes_between,
    repeat,
)
from lucid.ir.types import DType, TensorType, bool_
from lucid.sparse.saved import SavedSparse
from lucid.tensor.core import TensorCore, _new
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.tree import containers_in, flatten, map_tree

if TYPE_CHECKING:
    from lucid.compiler.results.histories import Histories

_MOST_LOOKED_AT = 10_000
_NO_HOLDERS = (type, types.ModuleType, Node, DType)
Contents = dict[Storage, Value]  # what memory without data holds, in the graph of a trace


class Kept(NamedTuple):
    """A tensor that a node saved, and that must not be written before the node has read it.

    Attributes:
        counter: the number of its version counter in a call; see `Histories`.
        writes: how often the step itself has written it since.
        name: its name for messages: `output 0 of Mul`.
        argument: its position among the arguments, whose names each call knows; else -1.
    """

    counter: int
    writes: int
    type: TensorType
    name: str | None
    argument: int


class Source(NamedTuple):
    """Where a call has an array for its backward: an output of the program, or an input."""

    is_output: bool
    number: int


class Tape:
    """The nodes behind the results of a trace, and what a call must keep for them.

    A backward that is itself differentiated sees histories within custom forwards as well, and
    computes the values that these need again, from what is kept.

    Args:
        roots: the results' edges. ends: edges where history from outside begins.

    Attributes:
        goes_on: whether the traced function is itself a backward: nodes lead to another tape's.
        kept: for each node that saved something, the saved tensors that others can write.
        sources: where each call has what it keeps: saved arguments and results, then residuals;
            types: the types of these.
        custom: the nodes of custom Functions in `kept`.
        tensors: tensors from outside that nodes saved; arguments: positions of saved arguments.
        is_written: whether the step has written a tensor that a node saved.
        checked: the numbers of the version counters of saved tensors.
        formulas: the formulas of the live numbers that each call keeps.
        cut: which values are residuals, and which are computed again.
        sizes: the open sizes of the trace, of which each call has its own; None: there are none.
        lengths: types of arrays without elements, whose shapes have these sizes.
        needs_sizes: whether each backward is made for known sizes.
    """

    def __init__(
        self,
        recorder: TracedMemory,
        roots: Iterable[Edge],
        ends: Collection[Edge],
        histories: Histories,
    ) -> None:
        self.goes_on = bool(recorder.past)
        self.sizes = recorder.sizes if recorder.sizes.symbols else None
        self.needs_sizes = recorder.sizes.known is not None
        self.lengths = [TensorType(bool_, (size, 0)) for size in recorder.sizes.symbols]
        self.kept: dict[Node, tuple[Kept, ...]] = {}
        self.formulas: list[Formula] = [number.formula for number in recorder.numbers]
        self._nodes = nodes_behind(roots, ends)
        hidden = _nodes_within(self._nodes, ends)
        for node in self._nodes:
            saved = saved_by(node)
            if node in recorder.past:
                self.kept[node] = ()
            elif getattr(node, "saved", None) or getattr(node, "_saved", None):
                found = (_kept(node, entry, histories) for entry in saved)
                self.kept[node] = tuple(entry for entry in found if entry is not None)
        tensors = [entry.tensor for node in self._nodes for entry in saved_by(node)]
        known = {id(x): x for x in tensors if x is not None and x._array is not None}
        self.arguments = sorted({histories.argument_of(x) for x in known.values()} - {-1})
        self.custom = [node for node in self.kept if hasattr(node, "_has_read")]
        self.tensors: list[TensorCore] = [
            x for x in known.values() if histories.argument_of(x) < 0 and not recorder.is_own(x)
        ]
        entries = [entry for kept in self.kept.values() for entry in kept]
        self.is_written = any(entry.writes for entry in entries)
        self.checked = {entry.counter for entry in entries}
        holdings = Holdings(recorder, histories, self.formulas)
        self._functions = {**recorder.graph.functions}
        self._bodies: dict[Graph, Any] = {}  # of region ops: `recording/loops/loops.py`
        for node in (*self._nodes, *hidden):
            self._bodies.update(node._inner_bodies())
        self._within: Contents = {}
        self._around: dict[Value, Storage] = {}
        for node in self._nodes:
            holdings.replace(node)
        live = holdings.take_live()
        self._contents, holdings.contents = holdings.contents, {}
        captures = [value for body in self._bodies.values() for value in body.checked_captures]
        self._read_around(recorder, self._contents, captures)
        checked = {*holdings.saved, *self._contents}
        for node in hidden:
            holdings.replace(node)
        self._hidden = holdings.contents
        self._read_around(recorder, self._hidden)
        self._nodes += hidden
        for body in self._bodies.values():
            body.settle({*self._nodes})
        self.cut = holdings.cut(self._contents, checked)
        self._again = holdings.again(self._hidden.values(), self.cut)
        self._contexts = [node for node in self._nodes if hasattr(node, "_own_names")]
        self._outer = holdings.outer
        self.sources, self._given, self._state = holdings.sources, holdings.given, holdings.state
        self._live, self.types = [*live], [value.type for value in (*live.values(), *self._given)]

    def _read_around(
        self, recorder: TracedMemory, contents: Contents, others: Iterable[Value] = ()
    ) -> None:
        """Keep, for values saved in a loop's body, the outer ones that a round computes them from.

        others: values of bodies that the backward of a round reads as well.
        """
        within = {s: value for s, value in contents.items() if value.graph in self._bodies}
        pending = [*within.values(), *others]
        seen: set[Value] = set()
        for value in pending:  # which grows meanwhile
            body = self._bodies.get(value.graph)
            if value in seen:
                continue
            seen.add(value)
            if body is not None:
                pending += body.read_around(value)
            elif value not in self._around:
                self._around[value] = storage = Storage(value.type)
                contents[storage] = recorder.around.get(value, value)
        for storage in within:
            del contents[storage]
        self._within |= within

    def walk(
        self,
        recorder: TracedMemory,
        given: Sequence[TensorCore],
        numbers: Sequence[Any],
        walk: Callable[[], Any],
        *,
        with_hidden: bool,
    ) -> Any:
        """What `walk()` returns, called while the stand-ins hold what a call has kept.

        given: tensors, in the order of the sources. numbers: in the order of `formulas`.
        with_hidden: whether histories within custom forwards are seen.
        """
        if len(given) >= len(self.sources):  # else all is freed that was saved
            self._lay_out(recorder, [*map(recorder.value_of, given)], with_hidden)
        recorder.past.update(self._nodes)
        for name, function in self._functions.items():
            recorder.graph.functions[name] = copy_graph(function)
        recorder.numbers = numbers
        recorder.collector.accept_arguments([*map(id, self._contexts)])
        with as_recorded(self._contexts, numbers, self._outer, recorder):
            return walk()

    def _lay_out(self, recorder: TracedMemory, given: Sequence[Value], with_hidden: bool) -> None:
        """Let stand-ins hold the values that were kept, or that are computed again from them."""
        count = len(self._live)
        for storage, value in zip(self._live, given, strict=False):
            recorder.hold(storage, value)
        known = dict(zip(self._given, given[count:], strict=True))
        nodes = [*self.cut.repeated, *(self._again if with_hidden else ())]
        wanted = (self._hidden if with_hidden else {}) | self._contents
        read = {operand for node in nodes for operand in node.operands} | {*wanted.values()}
        known |= {x: recorder.value_of(tensor) for x, tensor in self._state.items() if x in read}
        known = repeat(nodes, recorder.graph, known)
        for storage, value in wanted.items():
            recorder.hold(storage, known[value])
        for storage, value in self._within.items():
            recorder.hold(storage, value)
        for value, storage in self._around.items():
            if storage.recorder is recorder:
                assert storage.value is not None
                recorder.around[value] = storage.value

    def walked(
        self, roots: Iterable[Edge], ends: Collection[Edge], wanted: Collection[Edge]
    ) -> list[Node]:
        """The nodes with something saved that a walk to the wanted edges comes to, in its order."""
        needed: set[Node] = set()
        for node in sorted(nodes_behind(roots, ends), key=lambda node: node._sequence):
            edges = [edge for edge in node._edges if edge is not None]
            if any(e in wanted or (e not in ends and e[0] in needed) for e in edges):
                needed.add(node)
                needed.update(node._inner_nodes())
        found = [node for node in needed if node in self.kept]
        return sorted(found, key=lambda node: -node._sequence)


def is_read(node: Node) -> bool:
    """Whether a walk needs what the node saved, as far as earlier walks have shown."""
    return getattr(node, "_has_read", None) is not False


def nodes_behind(
    roots: Iterable[Edge], ends: Collection[Edge], met: set[Node] | None = None
) -> list[Node]:
    """The nodes that a walk from the roots comes to before the ends, those of leaves included.

    met: nodes that aren't followed; the found ones are added.
    """
    met = set() if met is None else met
    pending: list[Node] = []

    def meet(nodes: Iterable[Node]) -> None:
        new = [node for node in dict.fromkeys(nodes) if node not in met]
        met.update(new)
        pending.extend(new)

    meet(edge[0] for edge in roots if edge not in ends)
    for node in pending:  # which grows meanwhile
        meet(node._inner_nodes())
        meet(edge[0] for edge in node._edges if edge is not None and edge not in ends)
    return pending


def _nodes_within(nodes: Sequence[Node], ends: Collection[Edge]) -> list[Node]:
    """The further nodes behind the tensors that some nodes saved."""
    met = {*nodes}
    found: list[Node] = []
    stack = [*nodes]
    while stack:
        node = stack.pop()
        edges = [edge for x in saved_by(node) for edge in (x.edge, x.private_edge)]
        edges += [edge_of(x.tensor) for x in saved_by(node) if x.tensor is not None]
        edges += [edge_of(tensor) for tensor in tensors_of_users(node)]
        new = nodes_behind([edge for edge in edges if edge is not None], ends, met)
        found += new
        stack += new
    return found


def _kept(node: Node, saved: SavedTensor, histories: Histories) -> Kept | None:
    tensor = saved.tensor
    number = None if tensor is None else histories.counter_number(tensor)
    if tensor is None or number is None:
        return None
    source = node if saved.output_nr >= 0 else tensor._grad_fn
    index = saved.output_nr if saved.output_nr >= 0 else tensor._output_nr
    name = None if source is None else source._output_name(index)
    writes = tensor._counter.value - saved.version
    return Kept(number, writes, tensor._type, name, histories.argument_of(tensor))


class Holdings:
    """Puts stand-ins in the place of tensors that nodes hold, and chooses what calls keep for them.

    Attributes:
        contents: the values that stand-ins' memory holds at the end of the trace, where each call
            has others.
        saved: the memory of saved tensors, the step's state included.
        sources: where a call has what its backward is given: first live memory, then `given`.
        given: the residuals and saved values that a backward is given.
        state: the step's state that a backward finds by itself, by its value.
        outer: identities of containers from outside that contexts hold.
    """

    def __init__(
        self, recorder: TracedMemory, histories: Histories, formulas: list[Formula]
    ) -> None:
        self._recorder = recorder
        self._histories = histories
        self._formulas = formulas
        self._objects = {*recorder.containers}
        self.outer: set[int] = set()
        self._inputs = {entry.value: i for i, entry in enumerate(recorder.graph.inputs)}
        self._cells = {cell.value: cell for cell in recorder.cells.values() if not cell.is_inside}
        self._stand_ins: dict[int, tuple[TensorCore, TensorCore]] = {}
        self._storages: dict[Storage, Storage] = {}
        self._counters: dict[VersionCounter, VersionCounter] = {}
        # The memory of the trace for memory of stand-ins, where that is another.
        self._originals: dict[Storage, Storage] = {}
        self.saved: set[Storage] = set()
        self.contents: Contents = {}
        self.given: list[Value] = []
        self.sources: list[Source] = []
        self.state: dict[Value, TensorCore] = {}
        self._unwritten: dict[Value, TensorCore] = {}  # state of which a walk looks at the version

    def replace(self, node: Node) -> None:
        """Replace the tensors of one node; nodes of an earlier trace have stand-ins already."""
        if node in self._recorder.past:
            for entry in saved_by(node):
                if entry.tensor is not None:
                    self._take(entry.tensor._storage, entry.tensor._storage)
                    self.saved.add(entry.tensor._storage)
            for tensor in tensors_of_users(node):
                self._take(tensor._storage, tensor._storage)
        elif isinstance(node, AccumulateGrad):
            if not self._recorder.is_outside(node.variable):
                node.variable = self._stand_in(node.variable)
        else:
            for entry in saved_by(node):
                self._replace_saved(entry)
            for sparse in getattr(node, "_saved", None) or ():
                if isinstance(sparse, SavedSparse):
                    sparse.let_go()
            for name in names_of_users(node):
                vars(node)[name] = self._replaced(vars(node)[name])
            for hook in hooks_of(node):
                self._replaced_leaf(hook, "")

    def _replace_saved(self, entry: SavedTensor) -> None:
        tensor = entry.tensor
        if tensor is None:
            entry.packed = self._replaced(entry.packed)
            return
        if entry.output_nr < 0 and entry.edge is None and entry.private_edge is None:
            entry.edge = edge_of(tensor)
        entry.tensor = self._with_content(tensor)
        self.saved.add(entry.tensor._storage)

    def _replaced(self, value: Any) -> Any:
        was_there = self._recorder.collector.was_there
        self.outer |= {id(x) for x in containers_in(value) if was_there(x)}
        return map_tree(self._replaced_leaf, value, leaves=self._objects | self.outer)

    def _replaced_leaf(self, leaf: Any, _: str) -> Any:
        if isinstance(leaf, TensorCore):
            edge = edge_of(leaf)
            made = self._with_content(leaf)
            return made if edge is None else with_history(made, edge)
        if is_late(leaf) and self._recorder.sizes.symbols:
            raise NotOpenError("a ctx holds a number that a call finds")
        if is_live(leaf):
            self._formulas.append(leaf.formula)
            return _Number(len(self._formulas) - 1)
        if id(leaf) in self._objects:
            self._recorder.run_op_by_op(
                f"its results have a history, and a backward in that is given the "
                f"{type(leaf).__name__} that is an argument, which may be another by then\n"
                "hint: let ctx keep what is in it"
            )
        if refers_to_trace(leaf, self._recorder):
            self._recorder.run_op_by_op(
                "its results have a history, and a hook or an object in a ctx holds tensors or "
                "numbers of the step"
            )
        collector = self._recorder.collector
        collector.know_set(leaf)
        if collector.was_there(leaf) or not is_plain_object(leaf):
            return leaf
        self._recorder.run_op_by_op(
            f"its results have a history, and a ctx holds a {type(leaf).__name__} that forward has "
            "made\nhint: let ctx keep what is in it"
        )

    def _with_content(self, tensor: TensorCore) -> TensorCore:
        """What stands for a tensor, with a note of what its memory holds."""
        made = self._stand_in(tensor)
        self._take(self._recorder.at_the_end(tensor)._storage, made._storage)
        return made

    def _stand_in(self, tensor: TensorCore) -> TensorCore:
        """A tensor without data, for one that each call makes anew; else one on the same memory."""
        known = self._stand_ins.get(id(tensor))
        if known is not None:
            return known[1]
        shown = self._recorder.at_the_end(tensor)
        storage = shown._storage
        if self._is_of_a_call(storage):
            if storage not in self._storages:
                self._storages[storage] = own = Storage(storage.root_type)
                self._originals[own] = storage
            made = _new(self._storages[storage], shown._type, None, shown._chain)
            made._strides = shown.element_strides()
        else:
            made = shown._same_memory()
        counter = tensor._counter
        if counter not in self._counters:
            self._counters[counter] = VersionCounter()
            self._counters[counter].now = counter.value
        made._counter = self._counters[counter]
        made._spot = tensor._spot
        self._stand_ins[id(tensor)] = tensor, made
        return made

    def _is_of_a_call(self, storage: Storage) -> bool:
        cell = self._recorder.cells.get(storage)
        if storage.array is None or cell is None:
            return storage.array is None
        if cell.kind == "constant" and cell.value.graph is not self._recorder.graph:
            return True  # a round of the backward makes it again, with what is known of it
        return cell.kind in ("arg", "grad") or storage in self._recorder.copied

    def _take(self, storage: Storage, stand_in: Storage) -> None:
        if storage.recorder is self._recorder and self._is_of_a_call(storage):
            assert storage.value is not None
            self.contents.setdefault(stand_in, storage.value)

    def take_live(self) -> Contents:
        """Take out contents that no node saved, but a call has: writes to them aren't noticed."""
        found = {s: self._source(s, x) for s, x in self.contents.items() if s not in self.saved}
        sources = {storage: source for storage, source in found.items() if source is not None}
        self.sources += sources.values()
        return {storage: self.contents.pop(storage) for storage in sources}

    def cut(self, contents: Contents, checked: Collection[Storage]) -> Cut:
        """Choose the residuals, which become outputs of the graph.

        checked: memory whose versions a walk checks; other memory is kept as a copy.
        """
        graph = self._recorder.graph
        equal = equal_values(graph)
        contents.update((s, equal.get(value, value)) for s, value in contents.items())
        free = {s: self._source(s, value) for s, value in contents.items() if s in checked}
        found = {contents[s]: source for s, source in free.items() if source is not None}
        numbers = {entry.value for entry in graph.inputs if entry.kind == "live"}
        self._unwritten = saved = {
            value: _on(cell)
            for value, cell in self._cells.items()
            if cell.kind == "state" and not cell.is_written and cell.storage in checked
        }
        saved |= {
            cell.value: _on(cell)
            for cell in self._recorder.cells.values()
            if cell.kind == "constant" and cell.storage.value is cell.value in self._inputs
        }
        decided = minimum_cut(graph, contents.values(), {*found, *numbers, *saved})
        read = dict.fromkeys(x for node in decided.repeated for x in node.operands)
        for value in dict.fromkeys([*contents.values(), *read]):  # in an order of their own
            if value in found or value in numbers:
                self._give(value, found.get(value) or Source(False, self._inputs[value]))
            elif value in saved:
                self.state[value] = saved[value]
        for value in decided.kept:
            self._keep(value)
        return decided

    def again(self, wanted: Collection[Value], cut: Cut) -> list[GraphNode]:
        """The nodes that compute further values from what is kept; inputs for them are kept too."""
        graph = self._recorder.graph
        known = {*self.given, *self.state, *(x for node in cut.repeated for x in node.results)}
        while True:
            nodes = nodes_between(graph, known, wanted)
            read = dict.fromkeys([*(x for node in nodes for x in node.operands), *wanted])
            calls = {x for node in nodes if graph.has_effect(node) for x in node.results}
            lost = [x for x in read if x in calls or (x.producer is None and x not in known)]
            if not lost:
                return nodes
            known.update(lost)  # else Python would be called again
            for value in lost:
                if value in self._unwritten:
                    self.state[value] = self._unwritten[value]
                else:
                    self._keep(value)

    def _source(self, storage: Storage, value: Value) -> Source | None:
        """Where each call has what memory holds at the end of the trace; None: nowhere."""
        storage = self._originals.get(storage, storage)
        cell = self._recorder.cells.get(storage)
        if cell is not None and cell.kind in ("arg", "grad"):
            return Source(False, self._inputs[cell.value])
        if storage in self._histories.slots:
            return Source(True, self._histories.slots[storage])
        cell = self._cells.get(value)
        if cell is not None and cell.kind in ("arg", "grad") and not cell.is_written:
            return Source(False, self._inputs[value])
        return None

    def _keep(self, value: Value) -> None:
        outputs = self._recorder.graph.outputs
        self._give(value, Source(True, len(outputs)))
        outputs.append(value)

    def _give(self, value: Value, source: Source) -> None:
        self.given.append(value)
        self.sources.append(source)


def _on(cell: Cell) -> TensorCore:
    """A tensor on the memory of a cell."""
    storage = cell.storage
    tensor = _new(storage, storage.root_type, storage.array, ())
    if cell.counter is not None:
        tensor._counter = cell.counter
    return tensor


@contextmanager
def as_recorded(
    nodes: Sequence[Node], numbers: Sequence[Any], outer: Collection[int], recorder: TracedMemory
) -> Iterator[None]:
    """Restore contexts to what forward left, with a call's numbers, in the block and after it.

    outer: identities of containers that weren't forward's own.
    """
    recorded = [{name: vars(node)[name] for name in names_of_users(node)} for node in nodes]

    def found(leaf: Any, _: str) -> Any:
        return numbers[leaf.number] if isinstance(leaf, _Number) else leaf

    def as_found(attributes: dict[str, Any]) -> dict[str, Any]:
        made = {name: map_tree(found, tree, leaves=outer) for name, tree in attributes.items()}
        recorder.collector.accept_made(x for x in containers_in(made) if id(x) not in outer)
        return made

    for node, attributes in zip(nodes, recorded, strict=True):
        vars(node).update(as_found(attributes))
    try:
        yield
    finally:
        for node, attributes in zip(nodes, recorded, strict=True):
            for name in names_of_users(node):
                del vars(node)[name]
            vars(node).update(attributes)


class _Number:
    """Takes the place of a live number that a ctx holds: its number among those of a call."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def names_of_users(node: Node) -> list[str]:
    """The attributes of a node that may hold tensors of the user's, besides what it saved."""
    known: frozenset[str] = getattr(node, "_own_names", frozenset())
    return [name for name in vars(node) if name not in known]


def saved_by(node: Node) -> Iterator[SavedTensor]:
    """What a node saved, in the order in which its backward looks at it."""
    saved = getattr(node, "saved", None)
    entries = getattr(node, "_saved", None) or () if saved is None else saved.values()
    for entry in entries:
        if isinstance(entry, SavedTensor):
            yield entry
        elif isinstance(entry, SavedSparse):
            yield from entry.parts


def hooks_of(node: Node) -> list[Callable[..., Any]]:
    """All hooks that a walk calls at a node."""
    registers = (node._pre_hooks, node._post_hooks, *(node._tensor_hooks or {}).values())
    return [hook for hooks in registers for hook in (hooks or {}).values()]


def tensors_of_users(node: Node) -> list[TensorCore]:
    """The tensors in attributes that users gave a node."""
    leaves, _ = flatten([vars(node)[name] for name in names_of_users(node)])
    return [leaf for leaf in leaves if isinstance(leaf, TensorCore)]


def refers_to_trace(value: Any, recorder: TracedMemory) -> bool:
    """Whether an object or a hook holds stand-ins of a trace, for tensors or numbers.

    A tensor from outside, such as a parameter, is none.
    """
    stack: list[Any] = [value]
    seen: set[int] = set()
    while stack and len(seen) < _MOST_LOOKED_AT:
        item = stack.pop()
        if id(item) in seen or isinstance(item, _NO_HOLDERS):
            continue
        seen.add(id(item))
        is_traced = isinstance(item, TensorCore) and item._storage.value is not None
        if is_live(item) or (is_traced and not recorder.is_outside(item)):
            return True
        if isinstance(item, types.FunctionType):  # not what is global to it
            stack += [item.__closure__, item.__defaults__, item.__kwdefaults__]
        elif not isinstance(item, TensorCore):
            stack += gc.get_referents(item)
    return bool(stack)
