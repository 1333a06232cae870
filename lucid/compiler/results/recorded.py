"""The autograd graph of a trace, without its tensors: what a walk through it reads and frees."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lucid.autograd.node import AccumulateGrad, Edge, Node, place_of
from lucid.autograd.saved import SavedTensor
from lucid.ir.types import TensorType
from lucid.sparse.saved import SavedSparse
from lucid.tensor.storage import VersionCounter

if TYPE_CHECKING:
    from lucid.tensor.core import TensorCore


class Kept(NamedTuple):
    """A tensor that a node saved, and that must not be written before the node has read it.

    Attributes:
        counter: the number of its version counter among those of the rule.
        name: what it is, for messages: `output 0 of Mul`.
        argument: its position, if it is one: each call names the history that it has.
    """

    counter: int
    type: TensorType
    name: str | None
    argument: int


@dataclass(slots=True, eq=False)
class Recorded:
    """A node of the trace.

    Attributes:
        sequence: of its recording; a walk comes to later ones first.
        function: the Function or op that it is the node of; name: its own.
        saves: whether it saved something, so that a walk frees it.
        reads: whether the backward of a custom Function has looked at that; None: not known.
        twin: what it is in the function's own history, where a backward has run that again.
        edges: nodes that its gradients go to, and which of their outputs; or leaves.
    """

    sequence: int
    name: str
    function: str
    line: tuple[str, int] | None
    saves: bool
    kept: tuple[Kept, ...]
    twin: Recorded | None
    reads: bool | None = None
    edges: list[tuple[Recorded | Leaf, int]] = field(default_factory=list)

    @property
    def is_read(self) -> bool:
        """Whether a walk needs what it saved, as far as one has shown."""
        if self.reads is None and self.twin is not None:
            return self.twin.is_read
        return self.reads is not False

    def note_reads(self, node: Node) -> None:
        """Note what a walk through it has shown, when its function ran again."""
        has_read = getattr(node, "_has_read", None)
        if has_read is not None:
            self.reads = bool(self.reads or has_read)

    @property
    def origin(self) -> str:
        """What it is, and where the user's code recorded it."""
        return f"{self.name}{place_of(self.line)}"

    def written(self, counters: Sequence[VersionCounter], versions: Sequence[int]) -> Kept | None:
        """The first of the tensors that it saved which was written since the call.

        versions: what the counters were after the call.
        """
        for kept in self.kept:
            if counters[kept.counter].value != versions[kept.counter]:
                return kept
        return None


class Leaf(NamedTuple):
    """Where a walk in the step ends, by what tells leaves apart."""

    key: object


Root = tuple[Recorded | Leaf, int]


class RecordedGraph:
    """The nodes behind the results of a trace.

    Args:
        outer: keys of leaves, by the edges where history from outside begins.
        leaf_key: what tells a leaf from others; None for one that nobody has.
        counter: the number of the version counter of a tensor, if a call can find that again.
        argument: the position of an argument, by what stands for it; -1 for others.
        twins: what nodes are in the history of a function that has run again.
    """

    def __init__(
        self,
        outer: dict[Edge, object],
        leaf_key: Callable[[TensorCore], object],
        counter: Callable[[TensorCore], int | None],
        argument: Callable[[TensorCore], int],
        twins: Mapping[Node, Recorded],
    ) -> None:
        self._outer = outer
        self._leaf_key = leaf_key
        self._counter = counter
        self._argument = argument
        self._twins = twins
        self._nodes: dict[Node, Recorded] = {}

    def at(self, root: Edge) -> Root:
        """Where a walk begins that goes along an edge."""
        if root in self._outer:
            return Leaf(self._outer[root]), 0
        found = self._node(root[0])
        if not isinstance(found, Recorded):
            return found, 0
        queue = [root[0]]
        for node in queue:  # which grows meanwhile
            recorded = self._nodes[node]
            if recorded.edges or not any(node._edges):
                continue
            for edge in node._edges:
                if edge is None:
                    continue
                if edge in self._outer:
                    recorded.edges.append((Leaf(self._outer[edge]), 0))
                    continue
                target = self._node(edge[0])
                recorded.edges.append((target, edge[1]))
                if isinstance(target, Recorded):
                    queue.append(edge[0])
        return found, root[1]

    def _node(self, node: Node) -> Recorded | Leaf:
        if isinstance(node, AccumulateGrad):
            return Leaf(self._leaf_key(node.variable))
        if node not in self._nodes:
            saved = list(saved_by(node))
            kept = (self._kept(node, entry) for entry in saved)
            self._nodes[node] = Recorded(
                node._sequence,
                node._name(),
                node._short_name(),
                node._line,
                bool(getattr(node, "saved", None) or getattr(node, "_saved", None)),
                tuple(entry for entry in kept if entry is not None),
                self._twins.get(node),
            )
        return self._nodes[node]

    def _kept(self, node: Node, saved: SavedTensor) -> Kept | None:
        tensor = saved.tensor
        if tensor is None:
            return None
        number = self._counter(tensor)
        if number is None:
            return None
        source = node if saved.output_nr >= 0 else tensor._grad_fn
        index = saved.output_nr if saved.output_nr >= 0 else tensor._output_nr
        name = None if source is None else source._output_name(index)
        return Kept(number, tensor._type, name, self._argument(tensor))


def saved_by(node: Node) -> Iterator[SavedTensor]:
    """What a node saved, in the order in which its backward looks at it."""
    saved = getattr(node, "saved", None)
    entries = getattr(node, "_saved", None) or () if saved is None else saved.values()
    for entry in entries:
        if isinstance(entry, SavedTensor):
            yield entry
        elif isinstance(entry, SavedSparse):
            yield from entry.parts


def walked(
    roots: Sequence[Root], ends: Collection[Root], wanted: Collection[object] | None
) -> list[Recorded]:
    """The nodes with something saved that a walk comes to, in its order.

    ends: outputs of nodes whose gradient it leaves to another walk.
    wanted: keys of the leaves that it is to come to; None: it goes everywhere.
    """
    reached: set[Recorded] = set()
    stack = [*roots]
    while stack:
        root = stack.pop()
        node = root[0]
        if isinstance(node, Recorded) and node not in reached and root not in ends:
            reached.add(node)
            stack += node.edges
    nodes = sorted(reached, key=lambda node: node.sequence)
    if wanted is not None:
        needed: set[Recorded] = set()
        for node in nodes:
            if any(
                target.key in wanted
                if isinstance(target, Leaf)
                else target in needed or (target, number) in ends
                for target, number in node.edges
            ):
                needed.add(node)
        nodes = [node for node in nodes if node in needed]
    return [node for node in reversed(nodes) if node.saves]


def twins_of(pairs: Sequence[tuple[Root, Edge]]) -> dict[Node, Recorded]:
    """What the nodes of a function that has run again were when it was recorded.

    pairs: where walks from its results begin, then and now.
    """
    found: dict[Node, Recorded] = {}
    stack = [(root[0], edge[0]) for root, edge in pairs]
    while stack:
        recorded, node = stack.pop()
        if isinstance(recorded, Recorded) and node not in found:
            found[node] = recorded
            edges = [edge for edge in node._edges if edge is not None]
            if len(edges) == len(recorded.edges):
                stack += [(x[0], y[0]) for x, y in zip(recorded.edges, edges, strict=True)]
    return found
