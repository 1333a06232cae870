"""The history of a compiled step's results, for programs that differentiate them outside.

The backward of a compiled function is a compiled function as well: it runs the recorded function
again, from the state that the call found, and returns the gradients. Its own results have a history
of the same kind, so derivatives of any order come without a further rule.

Results that others are computed from are a layer of their own, nearer to the leaves, with a node of
its own: there hooks see their gradients. A walk passes over a layer that nobody looks at, so that
the function runs again only once.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lucid.autograd.entry_points import find_gradients
from lucid.autograd.modes import enable_grad, set_grad_enabled
from lucid.autograd.node import Edge, GradientEdge, accumulator_of, edge_of
from lucid.autograd.saved import with_history_of
from lucid.compiler.inputs.objects import visit_leaves
from lucid.compiler.inputs.tree import map_tree
from lucid.compiler.inputs.watches import Guard, hooks_of, remove_hooks, remove_hooks_at
from lucid.compiler.results.argument_contents import holding
from lucid.compiler.results.histories import (
    FlagBefore,
    Further,
    GradientOf,
    Layer,
    Leaf,
    Made,
    key_of,
    tensor_of,
)
from lucid.compiler.results.leading import lead_to
from lucid.compiler.results.recorded import Recorded, Root, twins_of, walked
from lucid.compiler.surroundings.codes import not_noted
from lucid.compiler.surroundings.restoring import as_expected
from lucid.ir.types import TensorType
from lucid.tensor.context import context, epoch
from lucid.tensor.core import TensorCore, of_array
from lucid.tensor.storage import Storage, VersionCounter

if TYPE_CHECKING:
    from lucid.compiler.compiled import Compiled
    from lucid.compiler.programs.program import Program

WARM_UP = 2  # backwards of a program, from which on it keeps residuals


@dataclass(frozen=True, slots=True)
class Before:
    """What the backward needs as it was before the call, besides the arguments.

    Attributes:
        written: buffers that the program writes, with their counters; their contents are kept for
            the backward.
        written_args: arguments that it writes, which are copied for the backward.
        rewritten: tensors from outside that get another history.
        gradients: those that it finds in a `.grad`, and whether it writes them.
        flags: what the call found in `requires_grad` where the function changes it.
        sets_gradients: whether it leaves something in a `.grad`.
        entries: of dicts of the library's: hyper-parameters that the function reads.
        arrays: the memory of NumPy arrays that eager mode copies.
        followed: tensors from outside whose histories a backward in the step may have followed.
        read: buffers that it only reads, with the numbers of their version counters.
    """

    flags: list[FlagBefore]
    written: list[tuple[Storage, VersionCounter | None]]
    written_args: list[int]
    rewritten: list[TensorCore]
    gradients: list[tuple[GradientOf, bool]]
    sets_gradients: bool
    entries: list[tuple[dict[str, Any], str]]
    arrays: list[Storage]
    followed: list[TensorCore]
    read: list[tuple[Storage, int]]

    def state(self) -> list[TensorCore]:
        """What is in the buffers, at the versions of now."""
        found: list[TensorCore] = []
        for storage, counter in self.written:
            content = of_array(np.array(storage.array))
            if counter is not None:
                content._counter.now = counter.now
            found.append(content)
        return found

    def histories(self) -> list[TensorCore]:
        """For each tensor that gets another history one that has its present one, and no data."""
        return [with_history_of(tensor, no_data(tensor._type)) for tensor in self.rewritten]

    def numbers(self) -> list[Any]:
        """What the hyper-parameters are now."""
        found = [dict.__getitem__(owner, key) for owner, key in self.entries]
        return [copy.copy(value) for value in found]

    def found(self, arguments: Sequence[TensorCore]) -> list[TensorCore | None]:
        """The gradients of now."""
        pairs = [(use.found(arguments), is_written) for use, is_written in self.gradients]
        return [copied(gradient) if is_written else gradient for gradient, is_written in pairs]


def no_data(type: TensorType) -> TensorCore:
    """A tensor of which only the history matters."""
    return of_array(np.broadcast_to(np.zeros((), type.dtype.numpy), type.shape))


def copied(tensor: TensorCore | None) -> TensorCore | None:
    """The same numbers in memory of their own, with the same history."""
    if tensor is None:
        return None
    return with_history_of(tensor, of_array(np.array(tensor._array)))


class Rest(NamedTuple):
    """What few calls give a backward, besides the arguments.

    Attributes:
        bases: of which several arguments are views, and which are none themselves.
        gradients: those that the call found in `.grad`.
        state: contents of the buffers that it writes.
        histories: tensors with those of `Before.rewritten`.
        numbers: hyper-parameters of the call, those of `Before.entries`.
        arrays: contents of `Before.arrays`.
        kept: contents of buffers in `Before.read` that were written since, by their place in it.
        present: what containers and objects among the arguments hold by now, as backward methods
            of the user's find them, by number; only where that has changed.
        written: arguments that are given as copies, by position, as such methods find them.
    """

    bases: Sequence[TensorCore] = ()
    gradients: Sequence[TensorCore | None] = ()
    state: Sequence[TensorCore] = ()
    histories: Sequence[TensorCore] = ()
    numbers: Sequence[Any] = ()
    arrays: Sequence[TensorCore] = ()
    kept: dict[int, TensorCore] | None = None
    present: dict[int, Any] | None = None
    written: dict[int, TensorCore] | None = None


NO_REST = Rest()


class Given(NamedTuple):
    """What a backward runs the function from; short, since it is part of a signature."""

    args: tuple[Any, ...]
    named: dict[str, Any] | None
    more: Rest | None

    @property
    def kwargs(self) -> dict[str, Any]:
        """Arguments given by name."""
        return self.named or {}

    @property
    def rest(self) -> Rest:
        """All else."""
        return self.more or NO_REST

    def but(self, **changed: Any) -> Given:
        """The same with other entries in the rest."""
        return self._replace(more=self.rest._replace(**changed))


class Differentiable:
    """What a program needs to give its results a history.

    Attributes:
        layers: the results that require grad; each layer depends on earlier ones only.
        before: what must be kept of the call.
        count: of results; what else requires grad is numbered after them.
        further: that.
        counters: the version counters of state that a call notes.
        memory: of state that it only reads.
        needs_more: whether a backward needs more than the arguments.
        calls_users: whether a walk runs code of the user's.
        saving: per result the nodes behind it that saved something.
        kept: numbers of those whose tensors they saved.
        again: the functions that compute gradients and call hooks.
        program: the one whose results these are; None once it knows its backward.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        layers: list[Layer],
        before: Before,
        count: int,
        further: list[Further],
        counters: list[VersionCounter],
        calls_users: bool,
    ) -> None:
        self.layers = layers
        self.before = before
        self.count = count
        self.further = further
        self.counters = counters
        self.calls_users = calls_users
        self.saving = [output.saving for layer in layers for output in layer.outputs]
        self.kept = [{x.counter for node in nodes for x in node.kept} for nodes in self.saving]
        lists = (before.gradients, before.written, before.rewritten, before.entries, before.arrays)
        self.needs_more = any(lists)
        self.memory = {storage for storage, _ in before.read}
        self._leaves: list[list[tuple[Any, bool]]] = [
            [(leaf, isinstance(leaf, TensorCore)) for leaf in layer.leaves] for layer in layers
        ]
        self._walks: dict[object, list[Recorded]] = {}
        self.again = Again(function, layers, before, count, further)
        self._compiled: dict[str, Compiled] = {}
        self.program: weakref.ref[Program] | None = None
        self._walked = 0

    @property
    def writes(self) -> bool:
        """Whether the function writes what it computes from."""
        before = self.before
        return bool(before.written or before.written_args or before.sets_gradients)

    def walk(
        self,
        number: int,
        sent: tuple[bool, ...],
        cut: tuple[int, ...],
        wanted: tuple[int, ...] | None,
    ) -> list[Recorded]:
        """The nodes with something saved that a walk comes to, from the results of a layer.

        sent: for each of these whether it has a gradient. cut: upstream results at which another
        walk goes on. wanted: the leaves that are asked for; None: the walk goes everywhere.
        """
        key = number, sent, cut, wanted
        found = self._walks.get(key)
        if found is None:
            layer = self.layers[number]
            roots = [y.root for y, is_sent in zip(layer.outputs, sent, strict=True) if is_sent]
            upstream = [layer.upstream[i] for i in cut]
            ends = [self.layers[k].outputs[index].root for k, index in upstream]
            keys = None if wanted is None else {key_of(layer.leaves[i]) for i in wanted}
            found = self._walks[key] = walked(roots, ends, keys)
        return found

    def is_over(self, freed: frozenset[Recorded]) -> bool:
        """Whether all is freed that was saved behind the results, and walks need it."""
        return all(
            saving and freed.issuperset(saving) and all(node.is_read for node in saving)
            for saving in self.saving
        )

    def edges(self, arguments: Sequence[TensorCore]) -> list[list[Edge | None]]:
        """Per layer where gradients of its leaves go; None for one that the step is to make."""
        return [
            [
                leaf_edge(leaf) if is_state else _edge_of(leaf, arguments)
                for leaf, is_state in leaves
            ]
            for leaves in self._leaves
        ]

    def is_worth_joining(self) -> bool:
        """Whether it is time to compile program and backward as one: it costs as much as they did.

        Asked once for each backward.
        """
        self._walked += 1
        return self._walked >= WARM_UP and self.program is not None

    def backward(self) -> Compiled:
        """The compiled function that computes the gradients."""
        return self.compiled(self.again.gradients)

    def compiled(self, method: Callable[..., Any]) -> Compiled:
        """One of `again`, compiled."""
        from lucid.compiler.compiled import Compiled

        name = method.__name__
        if name not in self._compiled:
            self._compiled[name] = Compiled(method, "native", is_pure=True)
        return self._compiled[name]


def leaf_edge(leaf: TensorCore) -> Edge:
    """Where its gradient goes. The step may ask for it: the flag is set at the end."""
    if leaf._grad_fn is not None or leaf._base is not None:
        edge = edge_of(leaf)
        if edge is not None:
            return edge
    reference = leaf._accumulator
    node = None if reference is None else reference()
    return accumulator_of(leaf) if node is None else node, 0


def _edge_of(leaf: Leaf, arguments: Sequence[TensorCore]) -> Edge | None:
    return None if isinstance(leaf, Made) else leaf_edge(tensor_of(leaf, arguments, ()))


def _gradient_edge(result: TensorCore) -> GradientEdge:
    edge = edge_of(result)
    assert edge is not None
    return GradientEdge(*edge)


class Again:
    """A recorded function that is to run again; what it refers to doesn't refer to it.

    Attributes:
        guard: what the calls have found around the function.
        ctx_change: what a backward of the user's changes in its ctx, for messages.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        layers: list[Layer],
        before: Before,
        count: int,
        further: list[Further],
    ) -> None:
        self.guard = Guard([])
        self.ctx_change: str | None = None
        self._epoch = -1
        self._function = function
        self._layers = layers
        self._before = before
        self._count = count
        self._further = further

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The user's function: what its backward methods read is watched."""
        return getattr(self._function, "function", self._function)

    def gradients(
        self,
        given: Given,
        cotangents: tuple[TensorCore | None, ...],
        create_graph: bool,
        number: int,
        cut: tuple[int, ...],
        wanted: tuple[int, ...],
        stand_ins: dict[int, TensorCore] | None,
    ) -> tuple[Any, ...]:
        """Run the function again from what was given, and differentiate a layer's results.

        Gradients end at the upstream results in `cut`, and pass over the others, which have None.
        Of the leaves, those in `wanted` have one. Hooks of what it returns are left to the walk
        that asks: it goes on from here. With a graph, `stand_ins` are what stands for results, by
        position, and has their histories outside.
        """
        layer = self._layers[number]
        with self._run(given, layer) as (edges, results):
            pairs = zip(layer.outputs, cotangents, strict=True)
            sent = [(_gradient_edge(results[y.position]), g) for y, g in pairs if g is not None]
            for output in layer.outputs:
                if output.hooks:  # the walk that asks has called them
                    remove_hooks_at(edge_of(results[output.position]))
            outputs, seeds = [edge for edge, _ in sent], [g for _, g in sent]
            twins = twins_of(self._roots(results))
            if create_graph and context.recorder is not None:
                context.recorder.twins.update(twins)
            if stand_ins:
                lead_to(stand_ins, results, outputs)
            places = [layer.upstream[i] for i in cut]
            ends = [results[self._layers[k].outputs[index].position] for k, index in places]
            leaves = [
                GradientEdge(*(edges[i] or leaf_edge(tensor_of(layer.leaves[i], (), results))))
                for i in wanted
            ]
            with holding((given.args, given.kwargs), given.rest.present or {}):
                found = find_gradients(
                    outputs, [*ends, *leaves], seeds, create_graph, create_graph, is_part=True
                )
        for node, recorded in twins.items():
            recorded.note_reads(node)
        if context.recorder is not None and context.recorder.ctx_change is not None:
            self.ctx_change = context.recorder.ctx_change
        at_ends = dict(zip(cut, found, strict=False))
        at_leaves = dict(zip(wanted, found[len(ends) :], strict=True))
        upstream = [at_ends.get(i) for i in range(len(layer.upstream))]
        return (*upstream, *(at_leaves.get(i) for i in range(len(layer.leaves))))

    def hooked(
        self,
        given: Given,
        gradient: TensorCore,
        create_graph: bool,
        number: int,
        index: int,
        place: int,
        stand_ins: dict[int, TensorCore],
    ) -> Any:
        """Run the function again, and call a hook that it registers on a result of a layer.

        place: the hook's, among those of the result.
        """
        layer = self._layers[number]
        with self._run(given, layer) as (_, results):
            node, output_nr = _gradient_edge(results[layer.outputs[index].position])
            hooks = node._hooks_at(output_nr)
            assert hooks is not None
            if stand_ins:
                tensors = [x for x in results if isinstance(x, TensorCore) and x.requires_grad]
                lead_to(stand_ins, results, [*map(_gradient_edge, tensors)])
            with (
                set_grad_enabled(create_graph),
                holding((given.args, given.kwargs), given.rest.present or {}),
            ):
                return list(hooks.values())[place](gradient)

    def _roots(self, results: Sequence[Any]) -> list[tuple[Root, Edge]]:
        """Where walks from the results begin, in their history and in that of this run."""
        outputs = [output for layer in self._layers for output in layer.outputs]
        edges = [(output.root, edge_of(results[output.position])) for output in outputs]
        return [(root, edge) for root, edge in edges if edge is not None]

    @contextmanager
    def _run(self, given: Given, layer: Layer) -> Iterator[tuple[list[Edge | None], list[Any]]]:
        """Yields where gradients of a layer's leaves go, and the results of the function."""
        arguments = flat_tensors((given.args, given.kwargs, given.rest.bases), in_objects=True)
        flagged = [known for known, _ in self._before.flags]
        with enable_grad(), _kept([*arguments, *layer.leaves, *flagged]):
            self._put_back(given, arguments, layer)
            edges = [_edge_of(leaf, arguments) for leaf in layer.leaves]
            yield edges, self._results(given, arguments)

    def _put_back(self, given: Given, arguments: Sequence[TensorCore], layer: Layer) -> None:
        """Let there be what the call found; in a trace, which puts the present things back."""
        for leaf in layer.leaves:  # one may have been asked for no more gradients since
            if isinstance(leaf, (int, TensorCore)):
                tensor = tensor_of(leaf, arguments, ())
                tensor._requires_grad = tensor.requires_grad or tensor._grad_fn is None
        for known, flag in self._before.flags:
            tensor_of(known, arguments, ())._requires_grad = flag
        recorder, before = context.recorder, self._before
        if recorder is None:
            return  # nothing is written then
        recorder.ctx_change = None
        for (storage, counter), content in zip(before.written, given.rest.state, strict=True):
            recorder.replace_cell(storage, content)
            if counter is not None:
                counter.value = content._counter.value
        for storage, content in zip(before.arrays, given.rest.arrays, strict=True):
            recorder.arrays.replace(storage, content)
        for number, content in (given.rest.kept or {}).items():
            recorder.replace_cell(before.read[number][0], content)
        for (use, _), gradient in zip(before.gradients, given.rest.gradients, strict=True):
            tensor_of(use.leaf, arguments, ()).grad = gradient
        for tensor, earlier in zip(before.rewritten, given.rest.histories, strict=True):
            recorder.note_history(tensor)
            tensor._grad_fn, tensor._output_nr = earlier._grad_fn, earlier._output_nr
            tensor._requires_grad = earlier.requires_grad
            tensor._epoch += 1

    def _results(self, given: Given, arguments: Sequence[TensorCore]) -> list[Any]:
        """What the function returns, and after that what else requires grad."""
        with _unnoticed(), self._as_called(), self._given(given.rest.numbers):
            found: list[Any] = flat_tensors(self._function(*given.args, **given.kwargs))
        if context.recorder is not None:
            for storage in self._before.arrays:
                context.recorder.arrays.release(storage)
            for number in given.rest.kept or {}:  # methods of the backward may look at it
                storage = self._before.read[number][0]
                del context.recorder.cells[storage]
                storage.value = storage.recorder = None  # whoever reads it finds what is there now
                storage.generation += 1
            for position, tensor in (given.rest.written or {}).items():
                if tensor._type == arguments[position]._type:
                    context.recorder.write(arguments[position], tensor)
        found += [None] * (self._count - len(found))  # properties that arguments would get
        return found + [tensor_of(known, arguments, ()) for known in self._further]

    @contextmanager
    def _given(self, numbers: Sequence[Any]) -> Iterator[None]:
        """Let hyper-parameters be what the call has found, or what stands for it in a trace."""
        entries, recorder = self._before.entries, context.recorder
        if not entries:
            yield
            return
        now = [dict.__getitem__(owner, key) for owner, key in entries]
        identities = [(id(owner), key) for owner, key in entries]
        if recorder is not None:
            recorder.given_entries.update(identities)
            if recorder.environment is not None:
                recorder.environment.leave(identities, self.__wrapped__, {})
        try:
            for (owner, key), number in zip(entries, numbers, strict=True):
                dict.__setitem__(owner, key, number)
            yield
        finally:
            for (owner, key), number in zip(entries, now, strict=True):
                dict.__setitem__(owner, key, number)
            if recorder is not None:
                recorder.given_entries.difference_update(identities)

    def _as_called(self) -> AbstractContextManager[None]:
        """Let what the calls found around the function be there, where it has changed since."""
        before = epoch.count
        if self.guard.failure() is not None:
            return as_expected([*self.guard.watches, *self.guard.gated])
        if self._epoch != before and self.guard.gated_failure() is not None:
            return as_expected([*self.guard.watches, *self.guard.gated])
        self._epoch = before
        return nullcontext()


@contextmanager
def _unnoticed() -> Iterator[None]:
    """Let a trace take no notice of what the code in the block reads and writes around it.

    It reads what its call has found, and wrote then.
    """
    recorder = context.recorder
    if recorder is None:
        yield
        return
    logs = [(log, log.count) for log in recorder.logs]
    with not_noted():
        yield
    for log, count in logs:
        log.forget_since(count)


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


def flat_tensors(tree: Any, in_objects: bool = False) -> list[TensorCore]:
    """The tensors of a tree, in order; also those in objects of plain data, where asked for."""
    if isinstance(tree, TensorCore):
        return [tree]
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
