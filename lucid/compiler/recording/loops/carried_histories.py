"""Histories that a loop carries: its rounds differentiate what the round before has computed.

    loss = f()
    while loss > tol:
        loss.backward()
        opt.step()
        loss = f()

From one look to the next the nodes behind the loss are others, with the same derivatives, and what
they have saved is in other memory: this is carried. While a round is recorded, the nodes of the
round before it hold stand-ins for it; behind the loop those of the recorded round hold what the
loop leaves.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from lucid.autograd.function import BackwardCFunction
from lucid.autograd.node import (
    AccumulateGrad,
    CopySlices,
    Edge,
    Node,
    OpNode,
    OverwriteBackward,
    PartsNode,
    edge_of,
)
from lucid.autograd.saved import SavedTensor, with_history
from lucid.compiler.inputs.scalars import SymScalar
from lucid.compiler.results.tape import names_of_users
from lucid.ir.graph import freeze_attributes
from lucid.tensor.core import TensorCore, ViewChain, _new
from lucid.tensor.storage import Storage
from lucid.tensor.tree import children_of, flatten, map_tree, path_of

_PLAIN = (int, float, complex, bool, str, bytes)
Pairs = Sequence[tuple[TensorCore, TensorCore]]


class History:
    """The autograd history of some tensors at a look.

    Attributes:
        kept: saved memory that is carried, with the tensor that is carried for it.
        _others: the nodes that differ from those at the look before; _numbers: the live numbers in
            their contexts, by identity, with the equal ones of the nodes before.
    """

    def __init__(self, tensors: Iterable[TensorCore]) -> None:
        self._tensors = [*tensors]
        self._is_known = all(x._guard is None for x in self._tensors)  # else it may be gone
        self._ends = {id(x): edge_of(x) for x in self._tensors if self._is_known}
        self._contents: dict[Node, _Contents] = {}
        self.kept: dict[Storage, TensorCore] = {}
        self._others: list[Node] = []
        self._numbers: dict[int, Any] = {}
        pending = [*self._ends.values()]
        for edge in pending:  # which grows meanwhile
            if edge is None or isinstance(edge[0], AccumulateGrad) or edge[0] in self._contents:
                continue
            found = self._contents[edge[0]] = _Contents(edge[0])
            pending += found.edges

    def is_behind(self, nodes: Collection[Node]) -> bool:
        """Whether some of these nodes belong to the history."""
        return not self._contents.keys().isdisjoint(nodes)

    def follows(self, before: History, pairs: Pairs) -> dict[Storage, TensorCore] | None:
        """Saved memory before, with a tensor on the memory saved in its place now, if another.

        None: the histories differ in more than saved memory.

        pairs: tensors before, with those in their places now.
        """
        if not (self._is_known and before._is_known):
            return None
        ends = [(before._ends.get(id(x)), self._ends.get(id(y))) for x, y in pairs]
        pending, seen = [*ends], set[tuple[Edge | None, Edge | None]]()
        others, memory = dict[Node, None](), dict[Storage, TensorCore]()
        for pair in pending:  # which grows meanwhile
            one, other = pair
            if one == other or pair in seen:
                continue
            seen.add(pair)
            if one is None or other is None or one[1] != other[1]:
                return None
            if isinstance(one[0], AccumulateGrad) or isinstance(other[0], AccumulateGrad):
                if pair not in ends:  # a leaf that no place shows
                    return None
                continue
            old, new = before._contents[one[0]], self._contents[other[0]]
            tensors = new.since(old, self._numbers)
            if tensors is None:
                return None
            for x, y in tensors:
                if memory.setdefault(x._storage, y)._storage is not y._storage:
                    return None
            pending += zip(old.edges, new.edges, strict=True)
            others[other[0]] = None
        self._others = [*others]
        is_one_to_one = len({x._storage for x in memory.values()}) == len(memory)
        changes = {x: y for x, y in memory.items() if x is not y._storage}
        return changes if is_one_to_one else None

    def give(self, tensors: Sequence[TensorCore], others: Sequence[TensorCore]) -> History:
        """Give other tensors the histories of tensors, in which these are saved; returns theirs."""
        place = {id(x): y for x, y in zip(tensors, others, strict=True)}
        kept = {storage: place[id(x)] for storage, x in self.kept.items()}
        for node in self._others:
            self._contents[node].put(node, kept, self._numbers)
        for x in tensors:
            edge, y = self._ends.get(id(x)), place[id(x)]
            if edge is None:
                continue
            y._requires_grad = True
            if isinstance(edge[0], AccumulateGrad):
                edge[0].variable, y._accumulator = y, weakref.ref(edge[0])
            else:
                y._grad_fn, y._output_nr = edge
        given = History(others)
        given.kept = {x._storage: x for x in kept.values()}
        return given


class _Contents:
    """The contents of a node at a look: what it saved, and what users gave it.

    Attributes:
        edges: its own edges, and those of the tensors that it saved.
    """

    def __init__(self, node: Node) -> None:
        self._signature, self._types = [*_signature_of(node)], [type(node), *node._output_types]
        self._is_known = bool(self._signature) and not node._is_observed
        names: tuple[str, ...] = ("saved",) if isinstance(node, OpNode) else ()
        self._theirs: dict[str, Any] = {}
        if isinstance(node, BackwardCFunction):
            names = "_saved", "_freed"
            self._theirs = {name: vars(node)[name] for name in names_of_users(node)}
        self._freed = {name: getattr(node, name) for name in names}
        entries = next(iter(self._freed.values()), None) or {}
        found = entries if isinstance(entries, dict) else dict(enumerate(entries))
        self._saved: list[tuple[SavedTensor, TensorCore]] = []
        self.edges = [*node._edges]
        for key, entry in found.items():
            if entry is not None:
                self._note(key, entry)
        map_tree(self._note_theirs, self._theirs)

    def _note(self, key: int, entry: Any) -> None:
        tensor = entry.tensor if type(entry) is SavedTensor else None
        if tensor is None or entry.unpack_hook is not None or tensor._guard is not None:
            self._is_known = False
            return
        self._is_known &= tensor._counter.value == entry.version
        self._signature += [key, entry.output_nr]
        self._saved.append((entry, tensor))
        self.edges += [_edge_of_saved(entry, tensor), entry.private_edge]

    def _note_theirs(self, leaf: Any, _: str) -> None:
        if isinstance(leaf, TensorCore):
            self._is_known &= leaf._guard is None
            self.edges.append(edge_of(leaf) if leaf._guard is None else None)

    def since(self, before: _Contents, same: dict[int, Any]) -> Pairs | None:
        """The tensors saved before, each with the one saved in its place now; None: others differ.

        same: gets the live numbers in the node, by identity, with the equal ones before.
        """
        is_known = self._is_known and before._is_known and len(self.edges) == len(before.edges)
        if not is_known or self._types != before._types:
            return None
        pairs: list[tuple[TensorCore, TensorCore]] = []
        leaves = paired_leaves(before._theirs, self._theirs)
        numbers = {path: pair for path, pair in leaves.items() if _are_one_number(*pair)}
        is_like = _is_equal(before._signature, self._signature) and alike(
            before._theirs, self._theirs, lambda *pair: pairs.append(pair), numbers
        )
        saved = zip(before._saved, self._saved, strict=False)
        pairs += [(x, y) for (_, x), (_, y) in saved]
        same.update((id(new), old) for old, new in numbers.values())
        return pairs if is_like and all(_show_alike(x, y) for x, y in pairs) else None

    def put(
        self, node: Node, instead: Mapping[Storage, TensorCore], numbers: Mapping[int, Any]
    ) -> None:
        """Let a node hold other saved memory and numbers, also if a walk has freed it since."""
        for name, value in self._freed.items():
            setattr(node, name, value)
        for entry, tensor in self._saved:
            if tensor._storage in instead:
                entry.edge = _edge_of_saved(entry, tensor)
                entry.tensor = _on(tensor, instead[tensor._storage])
            assert entry.tensor is not None
            entry.version = entry.tensor._counter.value

        def other(leaf: Any, _: str) -> Any:
            if not isinstance(leaf, TensorCore) or leaf._storage not in instead:
                return numbers.get(id(leaf), leaf)
            edge, made = edge_of(leaf), _on(leaf, instead[leaf._storage])
            return made if edge is None else with_history(made, edge)

        for name, value in self._theirs.items():
            if any(other(x, "") is not x for x in flatten(value)[0]):
                vars(node)[name] = map_tree(other, value)


def _signature_of(node: Node) -> Sequence[Any]:
    """What tells apart nodes of one class with different derivatives; empty: it is unknown."""
    if isinstance(node, OpNode):
        return node.op, freeze_attributes(node.attributes)
    if isinstance(node, PartsNode):
        return node.op, node.axis, node.are_rows
    if isinstance(node, CopySlices):
        return (_steps(node.chain),)
    if isinstance(node, BackwardCFunction) and node._host_forward is None:
        return node.materialize_grads, node._marked_outputs
    return (None,) if isinstance(node, OverwriteBackward) else ()


def _edge_of_saved(entry: SavedTensor, tensor: TensorCore) -> Edge | None:
    """The history of something saved, unless that is the node's own output."""
    is_own = entry.output_nr >= 0 or entry.private_edge is not None
    return entry.edge if entry.edge is not None or is_own else edge_of(tensor)


def _on(tensor: TensorCore, whole: TensorCore) -> TensorCore:
    """The view of other memory, of which `whole` shows all, like that of a tensor on its own."""
    made = _new(whole._storage, tensor._type, None, tensor._chain)
    made._strides, made._spot = tensor.element_strides(), tensor._spot
    made._counter = whole._counter
    return made


def whole_of(tensor: TensorCore) -> TensorCore:
    """A tensor that shows all the memory of another one, without a history."""
    storage = tensor._storage
    whole = _new(storage, storage.root_type, storage.array, ())
    whole._counter, whole._spot = tensor._counter, tensor._spot
    return whole


def _show_alike(one: TensorCore, other: TensorCore) -> bool:
    """Whether tensors show the same part of their memory."""
    is_alike = one._type == other._type
    is_alike = is_alike and one._storage.root_type == other._storage.root_type
    return is_alike and _is_equal(_steps(one._chain), _steps(other._chain))


def _steps(chain: ViewChain) -> tuple[Any, ...]:
    """A chain of views, as it can be compared."""
    return tuple([(op, freeze_attributes(attributes)) for op, attributes in chain])


def _are_one_number(one: Any, other: Any) -> bool:
    """Whether two live scalars, made apart, are of one source."""
    is_found_twice = one is not other and type(one) is type(other) is SymScalar
    return is_found_twice and one.kind is other.kind and one.text == other.text


def _is_equal(old: Any, new: Any) -> bool:
    """Whether a value without tensors is what it was."""
    tensors: list[Any] = []
    return alike(old, new, lambda *pair: tensors.append(pair)) and not tensors


def paired_leaves(old: Any, new: Any) -> dict[str, tuple[Any, Any]]:
    """The leaves of two trees of one structure, paired, by path; empty where structures differ."""
    if old is new or children_of(new) is None:
        return {"": (old, new)}
    before, after = dict[str, Any](), dict[str, Any]()
    map_tree(lambda x, path: before.setdefault(path, x), old)
    map_tree(lambda x, path: after.setdefault(path, x), new)
    is_alike = before.keys() == after.keys()
    return {path: (before[path], x) for path, x in after.items()} if is_alike else {}


def alike(
    old: Any,
    new: Any,
    meet: Callable[[Any, Any], object],
    numbers: Collection[str] = (),
    path: str = "",
) -> bool:
    """Whether two values are equal but for tensors, pairs of which `meet` gets.

    numbers: the paths of numbers that may differ.
    """
    if old is new or path in numbers:
        return True
    if type(old) is not type(new):
        return False
    if isinstance(new, TensorCore):
        meet(old, new)
        return True
    if type(new) in _PLAIN:
        return repr(old) == repr(new)
    before, after = children_of(old), children_of(new)
    if before is None or after is None or [*before] != [*after]:
        return False
    return all(
        alike(before[key], value, meet, numbers, path_of(path, new, key))
        for key, value in after.items()
    )
