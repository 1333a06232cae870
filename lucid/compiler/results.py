"""The history of a compiled step's results, for programs that differentiate them outside.

The backward of a compiled function is a compiled function as well: it runs the recorded function
again, from the state that the call found, and returns the gradients. Its own results have a history
of the same kind, so derivatives of any order come without a further rule.

Results that others are computed from are a layer of their own, nearer to the leaves, with a node of
its own: there hooks see their gradients. A walk passes over a layer that nobody looks at, so that
the function runs again only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lucid.autograd.entry_points import find_gradients
from lucid.autograd.modes import enable_grad
from lucid.autograd.node import AccumulateGrad, Edge, GradientEdge, Node, edge_of, iterate_graph
from lucid.autograd.saved import SavedTensor
from lucid.compiler.objects import visit_leaves
from lucid.compiler.tree import map_tree
from lucid.compiler.watches import hooks_of, remove_hooks
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, of_array
from lucid.tensor.storage import Storage, VersionCounter

if TYPE_CHECKING:
    from lucid.compiler.compiled import Compiled
    from lucid.compiler.recorder import Recorder


class Made(NamedTuple):
    """A leaf that the step made and returned, by its position among the flattened results."""

    position: int


Leaf = int | Made | TensorCore  # an argument by position, a result, or a tensor from outside
FlagBefore = tuple[int | TensorCore, bool]
"""An argument, by number, or a tensor from outside, and whether it required grad."""


class Saving(NamedTuple):
    """A recorded node that saved something.

    Attributes:
        sequence: of its recording; a walk comes to later ones first.
        function: the custom Function that it is the node of.
    """

    sequence: int
    function: str | None
    line: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class Output:
    """A result that requires grad.

    Attributes:
        position: among the flattened results.
        name: what it is, in eager mode: `output 0 of Mul`.
        saving: the nodes behind it that saved something: it can't be differentiated once one of
            them is freed.
        saved: positions of results that those nodes saved, so that writes to them are errors.
    """

    position: int
    name: str
    saving: frozenset[Saving]
    saved: frozenset[int]


@dataclass(frozen=True, slots=True)
class Layer:
    """Results that don't depend on one another.

    Attributes:
        upstream: results of earlier layers that they depend on, as (layer, number in it).
        leaves: what they depend on besides.
    """

    outputs: list[Output]
    upstream: list[tuple[int, int]]
    leaves: list[Leaf]


class Histories:
    """The autograd graph behind the results of a trace.

    Args:
        results: the flattened results.
        handles: what stands for the arguments.
    """

    def __init__(
        self, recorder: Recorder, results: Sequence[TensorCore], handles: Sequence[TensorCore]
    ) -> None:
        self._recorder = recorder
        self._arguments = {id(handle): i for i, handle in enumerate(handles)}
        self._made = {id(result): i for i, result in reversed([*enumerate(results)])}
        memory = [getattr(result, "_storage", None) for result in results]  # arrays have none
        self._memory = {i: m for i, m in enumerate(memory) if m and m not in recorder.cells}

    def layers(self, outputs: Sequence[tuple[int, TensorCore]]) -> list[Layer]:
        """Sort results that require grad, with their positions, by what they are computed from."""
        edges: dict[Edge, int] = {}
        for i, (_, tensor) in enumerate(outputs):
            edges.setdefault(_edge(tensor), i)
        behind = [self._behind(tensor) for _, tensor in outputs]
        order = sorted(edges.values(), key=lambda i: _edge(outputs[i][1])[0]._sequence)
        depths: dict[int, int] = {}
        uses: dict[int, list[int]] = {}
        for i in order:
            found = {edge for node in behind[i] for edge in node._edges if edge is not None}
            uses[i] = [j for edge, j in edges.items() if edge in found and j in depths]
            depths[i] = 1 + max((depths[j] for j in uses[i]), default=-1)
        places: dict[int, tuple[int, int]] = {}
        layers = [Layer([], [], []) for _ in set(depths.values())]
        for i, depth in depths.items():
            layer = layers[depth]
            places[i] = depth, len(layer.outputs)
            layer.outputs.append(self._output(*outputs[i], behind[i]))
            layer.upstream.extend(places[j] for j in uses[i] if places[j] not in layer.upstream)
            known = {id(leaf) if isinstance(leaf, TensorCore) else leaf for leaf in layer.leaves}
            for leaf in self._leaves(behind[i]):
                if (id(leaf) if isinstance(leaf, TensorCore) else leaf) not in known:
                    layer.leaves.append(leaf)
        return layers

    def _behind(self, tensor: TensorCore) -> list[Node]:
        return list(iterate_graph([_edge(tensor)[0]]))

    def _output(self, position: int, tensor: TensorCore, behind: list[Node]) -> Output:
        node, number = _edge(tensor)
        saving = [earlier for earlier in behind if getattr(earlier, "saved", _saved(earlier))]
        kept = {memory for earlier in saving for memory in _memory_saved_by(earlier)}
        return Output(
            position,
            node._output_name(number),
            frozenset(Saving(n._sequence, n._owner(), n._line) for n in saving),
            frozenset(i for i, memory in self._memory.items() if memory in kept),
        )

    def _leaves(self, behind: list[Node]) -> list[Leaf]:
        """The leaves that nodes lead to; one that the step made and keeps is none."""
        found: list[Leaf] = []
        for node in behind:
            if not isinstance(node, AccumulateGrad):
                continue
            variable = node.variable
            if id(variable) in self._arguments:
                found.append(self._arguments[id(variable)])
            elif self._recorder.is_outside(variable):
                found.append(variable)
            elif id(variable) in self._made:
                found.append(Made(self._made[id(variable)]))
        return found


def _saved(node: Node) -> Any:
    return getattr(node, "_saved", None)


def _memory_saved_by(node: Node) -> Iterator[Storage]:
    """Where the tensors lie that a node saved and that must not be written."""
    saved = getattr(node, "saved", None)
    for entry in _saved(node) or () if saved is None else saved.values():
        if isinstance(entry, SavedTensor) and entry.tensor is not None:
            yield entry.tensor._storage


def _edge(tensor: TensorCore) -> Edge:
    edge = edge_of(tensor)
    assert edge is not None
    return edge


class Differentiable:
    """What a program needs to give its results a history.

    Attributes:
        layers: the results that require grad; each layer depends on earlier ones only.
        written: buffers that the program writes; their contents are kept for the backward.
        written_args: arguments that it writes, which are copied for the backward.
        read: buffers that it only reads, and which must not change until then.
        gradients: the function that computes the gradients; `backward` is it compiled.
    """

    def __init__(
        self,
        again: Again,
        written_args: list[int],
        read: list[tuple[Storage, VersionCounter]],
    ) -> None:
        self.read = read
        self.layers = again.layers
        self.written = again.written
        self.written_args = written_args
        self.again = again
        self.gradients = again.gradients
        self._backward: Compiled | None = None

    @property
    def writes(self) -> bool:
        """Whether the function writes what it computes from."""
        return bool(self.written or self.written_args)

    def backward(self) -> Compiled:
        """The compiled function that computes the gradients."""
        from lucid.compiler.compiled import Compiled

        if self._backward is None:
            self._backward = Compiled(self.gradients, "native", is_pure=True)
        return self._backward


class Again:
    """A recorded function that is to run again; what it refers to doesn't refer to it.

    Attributes:
        rebased: numbers of the arguments that it gives a new history, and which are results.
        ctx_change: what a backward of the user's changes in its ctx, for messages.

    Args:
        flags: what the call found in `requires_grad` where the function changes it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        layers: list[Layer],
        written: list[Storage],
        flags: list[FlagBefore],
        rebased: list[int],
    ) -> None:
        self._function = function
        self._flags = flags
        self.rebased = rebased
        self.ctx_change: str | None = None
        self.layers = layers
        self.written = written

    def gradients(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        cotangents: tuple[TensorCore | None, ...],
        before: tuple[TensorCore, ...],
        create_graph: bool,
        number: int,
        cut: tuple[int, ...],
        wanted: tuple[int, ...],
    ) -> tuple[Any, ...]:
        """Run the function again from the state `before`, and differentiate a layer's results.

        Gradients end at the upstream results in `cut`, and pass over the others, which have None.
        Of the leaves, those in `wanted` have one. Hooks of what it returns are left to the walk
        that asks: it goes on from here.
        """
        recorder = context.recorder
        if recorder is not None:
            recorder.ctx_change = None
            for storage, snapshot in zip(self.written, before, strict=True):
                recorder.replace_cell(storage, snapshot)
        layer = self.layers[number]
        handles = flat_tensors((args, kwargs), in_objects=True)
        with (
            enable_grad(),
            _kept([*handles, *layer.leaves, *(key for key, _ in self._flags)]),
        ):
            for tensor, flag in self._flags:
                (handles[tensor] if isinstance(tensor, int) else tensor)._requires_grad = flag
            starts = [_start(leaf, handles) for leaf in layer.leaves]
            results = flat_tensors(self._function(*args, **kwargs))
            results += [handles[position] for position in self.rebased]
            pairs = zip(layer.outputs, cotangents, strict=True)
            given = [(results[y.position], g) for y, g in pairs if g is not None]
            places = [layer.upstream[i] for i in cut]
            ends = [results[self.layers[k].outputs[index].position] for k, index in places]
            leaves = [tensor_of(leaf, handles, results) for leaf in layer.leaves]
            for leaf in leaves:  # the function may have asked for no more gradients meanwhile
                if leaf._grad_fn is None:
                    leaf._requires_grad = True
            asked = [*ends, *(starts[i] or leaves[i] for i in wanted)]
            outputs, seeds = [y for y, _ in given], [g for _, g in given]
            found = find_gradients(outputs, asked, seeds, create_graph, create_graph, is_part=True)
        if recorder is not None and recorder.ctx_change is not None:
            self.ctx_change = recorder.ctx_change
        at_ends = dict(zip(cut, found, strict=False))
        at_leaves = dict(zip(wanted, found[len(ends) :], strict=True))
        upstream = [at_ends.get(i) for i in range(len(layer.upstream))]
        return (*upstream, *(at_leaves.get(i) for i in range(len(leaves))))


def _start(leaf: Leaf, handles: Sequence[TensorCore]) -> GradientEdge | None:
    """Where the gradient of an argument ends, whatever is written to it."""
    edge = edge_of(handles[leaf]) if isinstance(leaf, int) else None
    return None if edge is None else GradientEdge(*edge)


@contextmanager
def _kept(leaves: Sequence[Leaf]) -> Iterator[None]:
    """Put flags, histories and hooks of those that are tensors back, unnoticed by a trace."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, TensorCore)]
    before = [
        (x, hooks_of(x).keys(), (x._requires_grad, x._grad_fn, x._output_nr)) for x in tensors
    ]
    try:
        yield
    finally:
        for tensor, hooks, history in before:
            tensor._requires_grad, tensor._grad_fn, tensor._output_nr = history
            remove_hooks(tensor, besides=hooks)


def tensor_of(
    leaf: Leaf, arguments: Sequence[TensorCore], results: Sequence[TensorCore]
) -> TensorCore:
    """The leaf, in one call."""
    if isinstance(leaf, int):
        return arguments[leaf]
    return results[leaf.position] if isinstance(leaf, Made) else leaf


def flat_tensors(tree: Any, in_objects: bool = False) -> list[TensorCore]:
    """The tensors of a tree, in order; also those in objects of plain data, where asked for."""
    found: list[TensorCore] = []

    def collect(leaf: Any, _: str) -> None:
        if isinstance(leaf, np.ndarray):
            leaf = of_array(leaf)
        if isinstance(leaf, TensorCore):
            found.append(leaf)

    if in_objects:
        visit_leaves(collect, tree)
    else:
        map_tree(collect, tree)
    return found
