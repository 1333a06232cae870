"""The autograd graph behind what a step leaves, as each call can make it again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from lucid.autograd.node import (
    AccumulateGrad,
    Edge,
    Gradients,
    Node,
    accumulator_of,
    edge_of,
)
from lucid.autograd.outputs import freed_behind
from lucid.compiler.results.memory import TracedMemory
from lucid.compiler.results.tape import Tape, hooks_of, nodes_behind
from lucid.ir.classes import isinstance
from lucid.ir.errors import LucidError
from lucid.ir.types import TensorType
from lucid.ir.whose_code import is_librarys
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import VersionCounter

_grad_fn, _view_chain = attrgetter("_grad_fn"), attrgetter("_view_chain")


class EndOf(NamedTuple):
    """Where gradients leave the history of an earlier call, whose backward is differentiated.

    Attributes:
        number: the edge of that call's `CompiledBackward` at which they go on.
    """

    number: int


Given = int | TensorCore  # an argument by position, or a tensor from outside
Leaf = Given | EndOf


class LostBackward(Node):
    """Behind a result whose graph was freed inside of the compiled step, or was lost by a write."""

    def __init__(
        self, edges: tuple[Edge, ...], type: TensorType, message: str, called: str
    ) -> None:
        super().__init__(edges, (type,))
        self._message = message
        self._called = called

    def _name_at(self, number: int) -> str:
        return self._called

    def apply(self, gradients: Gradients) -> Gradients:
        raise LucidError(self._message)


class LostGraph(NamedTuple):
    """What is left of the history of a result that can't be differentiated any more.

    Attributes:
        type: the result's type; message: the error of a walk through it.
        leaves: the leaves that the history led to; called: the node's name in the result's text.
    """

    type: TensorType
    message: str
    leaves: tuple[Given, ...]
    called: str

    def node(self, arguments: Sequence[TensorCore]) -> LostBackward:
        """The node that stands for it in a call."""
        leaves = [arguments[leaf] if isinstance(leaf, int) else leaf for leaf in self.leaves]
        edges = tuple(map(leaf_edge, leaves))
        return LostBackward(edges, self.type, self.message, self.called)


def lost_graph(result: TensorCore, recorder: TracedMemory) -> LostGraph | None:
    """The history of a result that can't be differentiated any more; None if it can."""
    if not result.requires_grad:
        return None
    message = result._lost_history()
    edge = None if message is not None else edge_of(result)
    nodes = [] if edge is None else nodes_behind([edge], ())
    message = message or freed_behind(nodes)
    if message is None:
        return None
    met = [node.variable for node in nodes if isinstance(node, AccumulateGrad)]
    places = [recorder.positions.get(id(tensor), -1) for tensor in met]
    leaves = [
        tensor if place < 0 else place
        for place, tensor in zip(places, met, strict=True)
        if place >= 0 or recorder.is_outside(tensor)
    ]
    called = "Invalid" if edge is None else edge[0]._name_at(edge[1])
    return LostGraph(result._type, message, tuple(leaves), called)


class ExternalGradFn(AccumulateGrad):
    """The history that an argument has outside, as far as a trace knows it."""

    __slots__ = ("_called",)

    def __init__(self, handle: TensorCore, argument: TensorCore) -> None:
        super().__init__(handle)
        node = argument._grad_fn
        assert node is not None
        number = argument._output_nr
        self._called = node._name_at(number), node._output_name(number)

    def _name(self) -> str:
        return self._called[0]

    def _output_name(self, number: int) -> str:
        return self._called[1]

    def apply(self, gradients: Gradients) -> Gradients:
        recorder, run = context.recorder, context.backward_run
        if run is None or run.wanted is not None:  # it was asked for here, and stays here
            return super().apply(gradients)
        assert recorder is not None
        recorder.run_op_by_op(
            "a backward() in it goes on into the history of an argument, outside, by "
            f"{self._short_name()}"
        )

    def _hooks_at(self, index: int) -> dict[int, Callable[..., Any]] | None:
        return Node._hooks_at(self, index)

    def _retain(self, index: int, tensor: TensorCore) -> None:
        """The argument's own history does that."""


@dataclass(frozen=True, slots=True)
class Output:
    """A result that requires grad.

    Attributes:
        positions: the numbers of this and others with the same history among flattened results.
        name: its name in eager mode's messages: `output 0 of Mul`.
        history: its node's name in its text: `MulBackward`.
        root: the edge where walks from it begin.
    """

    positions: tuple[int, ...]
    name: str
    history: str
    root: Edge


@dataclass(slots=True)
class Layer:
    """Results that don't depend on one another.

    Attributes:
        upstream: results of earlier layers that they are computed from, as (layer, number in it).
        leaves: the leaves that they are computed from otherwise.
        ends: the edges where walks end: those of the upstream results, then of the leaves.
        types: the types of the outputs.
    """

    outputs: list[Output]
    upstream: list[tuple[int, int]]
    leaves: list[Leaf]
    ends: list[Edge] = field(default_factory=list)
    types: tuple[TensorType, ...] = ()


def joined(layers: Sequence[Layer]) -> tuple[Layer, list[tuple[int, int]]]:
    """Layers as one, whose results may depend on one another; and which of their ends it has."""
    ends: dict[Edge, tuple[int, int]] = {}
    leaves: list[Leaf] = []
    for number, layer in enumerate(layers):
        for index, leaf in enumerate(layer.leaves, len(layer.upstream)):
            if layer.ends[index] not in ends:
                ends[layer.ends[index]] = number, index
                leaves.append(leaf)
    outputs = [output for layer in layers for output in layer.outputs]
    types = tuple([type for layer in layers for type in layer.types])
    return Layer(outputs, [], leaves, [*ends], types), [*ends.values()]


class History(NamedTuple):
    """What a program needs to give its results a history.

    Attributes:
        layers: the results that require grad; each layer depends on earlier ones only.
        tape: the nodes behind them.
        counters: the version counters of state that a call notes.
        users: the traced function, where a walk runs code of the user's; else None.
    """

    layers: list[Layer]
    tape: Tape
    counters: list[VersionCounter]
    users: Callable[..., Any] | None


class Histories:
    """The autograd graph behind the results of a trace.

    Version counters are numbered as each call finds them again: first those of the arguments, then
    of the results, and of state.

    Args:
        results: the flattened results.
        handles: what stands for the arguments.
        moved: tensors of the state whose memory each call finds.
    """

    def __init__(
        self,
        recorder: TracedMemory,
        results: Sequence[TensorCore],
        handles: Sequence[TensorCore],
        moved: Sequence[TensorCore],
    ) -> None:
        self._recorder = recorder
        self._outer = recorder.ends
        self._arguments = {id(handle): i for i, handle in reversed([*enumerate(handles)])}
        self._ends = {id(tensor): i for i, tensor in enumerate(recorder.ends.values())}
        found = [getattr(x, "_counter", None) for x in (*handles, *results)]  # or an array
        numbers = {x: i for i, x in reversed([*enumerate(found)]) if x is not None}
        self._numbers: dict[VersionCounter, int] = numbers
        self._count = len(found)
        self._of_state: list[VersionCounter] = []
        for cell in recorder.cells.values():
            if cell.kind == "state" and cell.counter is not None:
                self._number_of_state(cell.counter)
        for tensor in moved:
            self._number_of_state(tensor._counter)
        self._calls_users = False

    def behind(
        self,
        outputs: Sequence[tuple[int, TensorCore]],
        slots: Mapping[Any, int],
        function: Callable[..., Any],
        hidden: Collection[int],
    ) -> History:
        """The history of results that require grad, given with their positions.

        slots: numbers of the program's outputs, by their memory; function: the traced one; hidden:
            ids of those that are but bases of others, so nobody asks for their gradients.
        """
        layers = self._layers(outputs, hidden)
        self.slots = slots
        made = [output for layer in layers for output in layer.outputs]
        tape = Tape(self._recorder, [output.root for output in made], self._outer, self)
        users = function if self._calls_users else None
        return History(layers, tape, self._of_state, users)

    def _layers(
        self, outputs: Sequence[tuple[int, TensorCore]], hidden: Collection[int]
    ) -> list[Layer]:
        """Sort results that require grad, with their positions, by what they are computed from."""
        same: dict[Edge, list[tuple[int, TensorCore]]] = {}
        for position, tensor in outputs:
            same.setdefault(_edge(tensor), []).append((position, tensor))
        places: dict[Edge, tuple[int, int]] = {}
        layers: list[Layer] = []
        for edge in sorted(same, key=lambda edge: edge[0]._sequence):
            nodes = nodes_behind([edge], self._outer)
            self._calls_users = self._calls_users or any(map(calls_users, nodes))
            found = {inner for node in nodes for inner in node._edges}
            upstream = [place for earlier, place in places.items() if earlier in found]
            depth = 1 + max((number for number, _ in upstream), default=-1)
            if depth == len(layers):
                layers.append(Layer([], [], []))
            layer = layers[depth]
            if any(id(tensor) not in hidden for _, tensor in same[edge]):
                places[edge] = depth, len(layer.outputs)
            layer.outputs.append(self._output(edge, tuple(i for i, _ in same[edge])))
            layer.types += (same[edge][0][1]._type,)
            layer.upstream += [place for place in upstream if place not in layer.upstream]
        for layer in layers:
            layer.ends = [layers[k].outputs[number].root for k, number in layer.upstream]
            leaves = self._leaves([output.root for output in layer.outputs], {*layer.ends})
            layer.leaves = [leaf for leaf, _ in leaves.values()]
            layer.ends += [edge for _, edge in leaves.values()]
        self._refuse_divided(layers)
        return layers

    def _refuse_divided(self, layers: Sequence[Layer]) -> None:
        """Give the trace up where one object has hooks in several layers, that run separately.

        What one hook keeps for another, as those around a module do, would be lost.
        """
        found: dict[int, int] = {}
        for number, layer in enumerate(layers if len(layers) > 1 else ()):
            roots = [output.root for output in layer.outputs]
            for node in nodes_behind(roots, {*self._outer, *layer.ends}):
                owners = [getattr(hook, "__self__", None) for hook in hooks_of(node)]
                for owner in () if isinstance(node, AccumulateGrad) else owners:
                    if owner is not None and found.setdefault(id(owner), number) != number:
                        self._recorder.run_op_by_op(
                            "it keeps a tensor that a module's hooks on gradients are around"
                        )

    def _output(self, root: Edge, positions: tuple[int, ...]) -> Output:
        node, number = root
        if node._pre_hooks or node._hooks_at(number):
            self._recorder.run_op_by_op(
                f"it registers a hook on a result, {node._output_name(number)}, or on its node"
                f"{node._place()}"
            )
        return Output(positions, node._output_name(number), node._name_at(number), root)

    def _leaves(
        self, roots: Sequence[Edge], ends: Collection[Edge]
    ) -> dict[object, tuple[Leaf, Edge]]:
        """The leaves that walks lead to, but for those that the step made and keeps."""
        outer = self._outer
        nodes = nodes_behind(roots, {*outer, *ends})
        edges = [*roots, *(edge for node in nodes for edge in node._edges)]
        found: dict[object, tuple[Leaf, Edge]] = {}
        for edge in edges:
            if edge is None or edge in ends:
                continue
            tensor = outer.get(edge)
            if tensor is None and isinstance(edge[0], AccumulateGrad):
                tensor = edge[0].variable
            leaf = None if tensor is None else self._leaf(tensor)
            if leaf is not None:
                found.setdefault(id(leaf) if leaf is tensor else leaf, (leaf, edge))
        return found

    def _leaf(self, tensor: TensorCore) -> Leaf | None:
        if id(tensor) in self._ends:
            return EndOf(self._ends[id(tensor)])
        if id(tensor) in self._arguments:
            return self._arguments[id(tensor)]
        return tensor if self._recorder.is_outside(tensor) else None

    def counter_number(self, tensor: TensorCore) -> int | None:
        """The number of a tensor's version counter in a call; None: calls can't find it."""
        counter = tensor._counter
        if tensor._storage in self._recorder.grad_leaf_of:
            self._recorder.run_op_by_op(
                "its results have a history, and are computed from a .grad that it finds"
            )
        if tensor._array is not None and self._recorder.is_outside(tensor):
            return self._number_of_state(counter)
        return self._numbers.get(counter)

    def _number_of_state(self, counter: VersionCounter) -> int:
        """The number of the counter of a tensor from outside, which stays the same."""
        if counter not in self._numbers:
            self._numbers[counter] = self._count + len(self._of_state)
            self._of_state.append(counter)
        return self._numbers[counter]

    def argument_of(self, tensor: TensorCore) -> int:
        """The position of an argument; -1 for other tensors."""
        return self._arguments.get(id(tensor), -1)


def calls_users(node: Node) -> bool:
    """Whether a walk through a node runs code of the user's: a backward method, a hook."""
    forward = getattr(node, "_forward_cls", None)
    is_users = forward is not None and not is_librarys(forward)
    return is_users or bool(node._tensor_hooks or node._pre_hooks or node._post_hooks)


def _edge(tensor: TensorCore) -> Edge:
    edge = edge_of(tensor)
    assert edge is not None
    return edge


class OwnLeaves:
    """The leaves of a layer of results, if they are all tensors of the step's state.

    Args:
        leaves: all that the results lead to, besides other results.

    Attributes:
        tensors: the leaves; none where there are others.
        nodes: the leaves' nodes; edges: where their gradients go; every: the numbers of the edges.
        native: the tables of the leaves for native code, once they are made.
    """

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.native: Any = None
        found = [leaf for leaf in leaves if isinstance(leaf, TensorCore) and leaf.is_leaf]
        self.tensors = found if len(found) == len(leaves) else []
        self.nodes: list[Node] = [accumulator_of(leaf) for leaf in self.tensors]
        self.edges: tuple[Edge, ...] = tuple([(node, 0) for node in self.nodes])
        self.every = tuple(range(len(self.edges)))

    def leads_to(self, edges: Sequence[Edge | None]) -> bool:
        """Whether there are some, and edges lead to them."""
        nodes = [None if edge is None else edge[0] for edge in edges]
        return bool(nodes) and nodes == self.nodes

    @property
    def are_leaves(self) -> bool:
        """Whether there are any, and all are still leaves."""
        tensors = self.tensors
        has_history = any(map(_grad_fn, tensors)) or any(map(_view_chain, tensors))
        return bool(tensors) and not has_history


def leaf_edge(leaf: TensorCore) -> Edge:
    """The edge to a leaf, which may begin to require grad at the step's end only."""
    if leaf._grad_fn is not None or leaf._base is not None:
        edge = edge_of(leaf)
        if edge is not None:
            return edge
    return accumulator_of(leaf), 0
