"""The autograd graph behind what a step leaves, as each call can make it again."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from lucid.autograd.hooks import name_of
from lucid.autograd.node import AccumulateGrad, Edge, Gradients, Node, edge_of
from lucid.compiler.results.left_hooks import refers_to_trace
from lucid.compiler.results.recorded import Recorded, RecordedGraph, Root, saved_by, walked
from lucid.compiler.whose_code import is_librarys
from lucid.ir.types import TensorType
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage, VersionCounter

if TYPE_CHECKING:
    from lucid.compiler.inputs.cells import GradUse
    from lucid.compiler.recording.recorder import Recorder


class Made(NamedTuple):
    """A leaf that the step made and returned, by its position among the flattened results."""

    position: int


class GradientOf(NamedTuple):
    """What is in the `.grad` of an argument, by its position, or of a tensor from outside."""

    leaf: int | TensorCore

    @staticmethod
    def use(use: GradUse) -> GradientOf:
        """The one that a trace has used."""
        assert use.leaf is not None
        return GradientOf(use.position if use.position >= 0 else use.leaf)

    def found(self, arguments: Sequence[TensorCore]) -> TensorCore | None:
        return given(self.leaf, arguments)._grad


Given = int | TensorCore  # an argument by position, or a tensor from outside
Further = Given | GradientOf  # what has a history after a call, besides results
Leaf = Further | Made
FlagBefore = tuple[Given, bool]  # whether it required grad


class Ended(NamedTuple):
    """A tensor whose history ends in the step.

    Attributes:
        node: what says why; None: it is cut from its history.
        shows_in_views: whether those of its views end as well.
    """

    tensor: Given
    node: Node | None
    shows_in_views: bool


def given(leaf: Given, arguments: Sequence[TensorCore]) -> TensorCore:
    """The tensor, in one call."""
    return arguments[leaf] if isinstance(leaf, int) else leaf


def tensor_of(
    leaf: Leaf, arguments: Sequence[TensorCore], results: Sequence[TensorCore]
) -> TensorCore:
    """The leaf, in one call."""
    if isinstance(leaf, Made):
        return results[leaf.position]
    if isinstance(leaf, GradientOf):
        gradient = leaf.found(arguments)
        assert gradient is not None
        return gradient
    return given(leaf, arguments)


class HistoryOutside(AccumulateGrad):
    """The history that an argument has outside, as far as a trace knows it.

    What arrives here goes on into that history, after the call.
    """

    __slots__ = ("_begins", "_called")

    def __init__(self, handle: TensorCore, argument: TensorCore) -> None:
        super().__init__(handle)
        node = argument._grad_fn
        assert node is not None
        self._called = node._name(), node._output_name(argument._output_nr)
        self._begins = weakref.ref(node)

    def _name(self) -> str:
        return self._called[0]

    def _output_name(self, number: int) -> str:
        return self._called[1]

    def apply(self, gradients: Gradients) -> Gradients:
        run, recorder = context.backward_run, context.recorder
        parts = super().apply(gradients)
        use = None if recorder is None else recorder.grads.get(id(self.variable))
        if recorder is not None and use is not None and run is not None:
            # else it was asked for here, and stays here
            use.goes_on = True
            recorder.onward.arrive(run, use.position)
        return parts

    @property
    def begins(self) -> Node | None:
        """The first node of the history outside, while that is there."""
        return self._begins()

    def _hooks_at(self, index: int) -> dict[int, Callable[..., Any]] | None:
        return Node._hooks_at(self, index)

    def _retain(self, index: int, tensor: TensorCore) -> None:
        """The argument's own history does that."""


class TracedHook(NamedTuple):
    """A hook that needs tensors of the step, which runs again for it.

    Attributes:
        place: its number among the hooks of the result.
    """

    place: int
    name: str


@dataclass(frozen=True, slots=True)
class Output:
    """A result that requires grad.

    Attributes:
        position: among the flattened results.
        positions: it, and those of other results with the same history.
        name: what it is, in eager mode: `output 0 of Mul`.
        root: where walks from it begin.
        saving: the nodes behind it that saved something.
        saved: positions of the results that those nodes saved.
        hooks: those that the step registered on it, which each call registers again.
        has_prehooks: whether it registered some on the node, which run with that.
    """

    position: int
    positions: tuple[int, ...]
    name: str
    root: Root
    saving: frozenset[Recorded]
    saved: frozenset[int]
    hooks: tuple[Callable[..., Any] | TracedHook, ...]
    has_prehooks: bool


@dataclass(slots=True)
class Layer:
    """Results that don't depend on one another.

    Attributes:
        upstream: results of earlier layers that they depend on, as (layer, number in it).
        leaves: what they depend on besides.
        types: of the outputs.
    """

    outputs: list[Output]
    upstream: list[tuple[int, int]]
    leaves: list[Leaf]
    types: tuple[TensorType, ...] = ()


class Counters:
    """The version counters of what a step finds and makes, numbered as each call finds them again.

    First those of the arguments, then of the gradients that it reads, of the results, and of state.

    Attributes:
        numbers: by counter, of the trace.
        of_results: by position of a result, for those with one of their own.
        state: those of tensors from outside, which stay the same.
    """

    def __init__(self, found: Sequence[VersionCounter | None], results: int) -> None:
        self.numbers = {x: i for i, x in reversed([*enumerate(found)]) if x is not None}
        first = len(found) - results
        known = [-1 if x is None else self.numbers[x] for x in found[first:]]
        self.of_results = {i: number for i, number in enumerate(known) if number >= first}
        self.state: list[VersionCounter] = []
        self._count = len(found)

    @staticmethod
    def of(
        recorder: Recorder, results: Sequence[TensorCore], handles: Sequence[TensorCore]
    ) -> Counters:
        """Those of a trace."""
        gradients = [use.original for use in recorder.grads.values() if use.was_read]
        tensors = [*handles, *gradients, *results]  # among results may be arrays
        counters = Counters([getattr(tensor, "_counter", None) for tensor in tensors], len(results))
        for cell in recorder.cells.values():
            if cell.kind == "state" and cell.counter is not None:
                counters.number_of_state(cell.counter)
        return counters

    def number_of_state(self, counter: VersionCounter) -> int:
        """The number of the counter of a tensor from outside."""
        if counter not in self.numbers:
            self.numbers[counter] = self._count + len(self.state)
            self.state.append(counter)
        return self.numbers[counter]


class Histories:
    """The autograd graph behind the results of a trace.

    Args:
        results: the flattened results.
        handles: what stands for the arguments.

    Attributes:
        counters: the version counters of what was found and made.
        calls_users: whether a walk runs code of the user's; known once layers are.
    """

    def __init__(
        self, recorder: Recorder, results: Sequence[TensorCore], handles: Sequence[TensorCore]
    ) -> None:
        self._recorder = recorder
        self._arguments = {id(handle): i for i, handle in reversed([*enumerate(handles)])}
        self._made = {id(result): i for i, result in reversed([*enumerate(results)])}
        self.counters = Counters.of(recorder, results, handles)
        self._gradients = {
            id(use.original): GradientOf.use(use)
            for use in recorder.grads.values()
            if use.original is not None
        }
        self.calls_users = False
        outer = {edge: self._leaf_key(tensor) for edge, tensor in recorder.outer.items()}
        self._graph = RecordedGraph(
            outer, self._leaf_key, self._counter_number, self._argument, recorder.twins
        )

    def layers(self, outputs: Sequence[tuple[int, TensorCore]]) -> list[Layer]:
        """Sort results that require grad, with their positions, by what they are computed from."""
        twins: dict[Edge, list[int]] = {}
        for i, (_, tensor) in enumerate(outputs):
            twins.setdefault(_edge(tensor), []).append(i)
        first = {edge: same[0] for edge, same in twins.items()}
        behind = {i: nodes_behind(edge, self._recorder.outer) for edge, i in first.items()}
        self.calls_users = any(_calls_users(node) for nodes in behind.values() for node in nodes)
        depths: dict[int, int] = {}
        uses: dict[int, list[int]] = {}
        for edge in sorted(first, key=lambda edge: edge[0]._sequence):
            i = first[edge]
            found = {e for node in behind[i] for e in node._edges if e is not None}
            uses[i] = [j for e, j in first.items() if e in found and j in depths]
            depths[i] = 1 + max((depths[j] for j in uses[i]), default=-1)
        places: dict[int, tuple[int, int]] = {}
        layers = [Layer([], [], []) for _ in set(depths.values())]
        for i, depth in depths.items():
            layer = layers[depth]
            places[i] = depth, len(layer.outputs)
            others = [outputs[j][0] for j in twins[_edge(outputs[i][1])][1:]]
            layer.outputs.append(self._output(*outputs[i], others))
            layer.upstream.extend(places[j] for j in uses[i] if places[j] not in layer.upstream)
            known = set(map(key_of, layer.leaves))
            leaves = self._leaves(_edge(outputs[i][1]), behind[i])
            layer.leaves.extend(leaf for leaf in leaves if key_of(leaf) not in known)
        types = {position: tensor._type for position, tensor in outputs}
        for layer in layers:
            layer.types = tuple(types[output.position] for output in layer.outputs)
        return layers

    def _output(self, position: int, tensor: TensorCore, twins: Sequence[int]) -> Output:
        node, number = _edge(tensor)
        hooks = (node._hooks_at(number) or {}).values()
        root = self._graph.at((node, number))
        saving = frozenset(walked([root], (), None))
        kept = {kept.counter for earlier in saving for kept in earlier.kept}
        return Output(
            position,
            (position, *twins),
            node._output_name(number),
            root,
            saving,
            frozenset(i for i, n in self.counters.of_results.items() if n in kept),
            tuple(
                TracedHook(place, name_of(hook)) if refers_to_trace(hook) else hook
                for place, hook in enumerate(hooks)
            ),
            bool(node._pre_hooks),
        )

    def _leaves(self, root: Edge, behind: Sequence[Node]) -> list[Leaf]:
        """What nodes lead to; a leaf that the step made and keeps is none."""
        outer = self._recorder.outer
        edges = [root, *(edge for node in behind for edge in node._edges)]
        tensors = [outer[edge] for edge in edges if edge is not None and edge in outer]
        tensors += [node.variable for node in behind if isinstance(node, AccumulateGrad)]
        found: dict[object, Leaf] = {}
        for tensor in tensors:
            leaf = self._leaf(tensor)
            if leaf is not None:
                found.setdefault(key_of(leaf), leaf)
        return list(found.values())

    def _leaf(self, tensor: TensorCore) -> Leaf | None:
        if id(tensor) in self._arguments:
            return self._arguments[id(tensor)]
        if id(tensor) in self._gradients:
            return self._gradients[id(tensor)]
        if self._recorder.is_outside(tensor):
            return tensor
        made = self._made.get(id(tensor))
        return None if made is None else Made(made)

    def _leaf_key(self, tensor: TensorCore) -> object:
        leaf = self._leaf(tensor)
        return None if leaf is None else key_of(leaf)

    def _counter_number(self, tensor: TensorCore) -> int | None:
        counter = tensor._counter
        if tensor._array is not None and self._recorder.is_outside(tensor):
            return self.counters.number_of_state(counter)
        return self.counters.numbers.get(counter)

    def _argument(self, tensor: TensorCore) -> int:
        return self._arguments.get(id(tensor), -1)


def memory_saved_by(node: Node) -> Iterator[Storage]:
    """Where the tensors lie that a node saved and that must not be written."""
    for saved in saved_by(node):
        if saved.tensor is not None:
            yield saved.tensor._storage
    yield from getattr(node, "_memory_read", ())


def _calls_users(node: Node) -> bool:
    """Whether a walk through a node runs code of the user's: a backward method, a hook."""
    forward = getattr(node, "_forward_cls", None)
    is_users = forward is not None and not is_librarys(forward)
    return is_users or bool(node._tensor_hooks or node._pre_hooks or node._post_hooks)


def nodes_behind(root: Edge, outer: Collection[Edge]) -> list[Node]:
    """The nodes that a gradient passes, up to where the history from outside begins."""
    found = [] if root in outer else [root[0]]
    seen = set(found)
    for node in found:  # which grows meanwhile
        for edge in node._edges:
            if edge is not None and edge not in outer and edge[0] not in seen:
                seen.add(edge[0])
                found.append(edge[0])
    return found


def _edge(tensor: TensorCore) -> Edge:
    edge = edge_of(tensor)
    assert edge is not None
    return edge


def key_of(leaf: Leaf) -> object:
    """What tells leaves apart."""
    if isinstance(leaf, GradientOf):
        return GradientOf, leaf.leaf if isinstance(leaf.leaf, int) else id(leaf.leaf)
    return id(leaf) if isinstance(leaf, TensorCore) else leaf
