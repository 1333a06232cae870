"""The end of a trace: what Python holds by then becomes outputs and writes of the graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.autograd.node import CopySlices, Edge, OpNode
from lucid.compiler.guards.guard import SCALARS
from lucid.compiler.inputs.cells import Cell, GradUse, base_of
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.inputs.signature import Call
from lucid.compiler.recording.recorder import Recorder
from lucid.compiler.results.backward import Differentiable
from lucid.compiler.results.ended import lost_backward
from lucid.compiler.results.histories import Ended, Further, Given, GradientOf, Histories
from lucid.compiler.results.left_hooks import refuse_left_hooks
from lucid.compiler.results.made import Made, made_like, values_in
from lucid.compiler.results.outcomes import (
    Alias,
    Copied,
    FromArgument,
    FromNumbers,
    FromProgram,
    GivenContainer,
    GivenObject,
    GradBefore,
    NewCounter,
    NewLeaf,
    Outcome,
    PartOfProgram,
    Past,
    Retaining,
    Same,
    Shown,
    View,
)
from lucid.compiler.results.parts import parts_of
from lucid.compiler.results.rebinding import Rebinding
from lucid.ir.errors import EagerOnlyError, TraceError
from lucid.ir.graph import Value
from lucid.tensor.core import TensorCore
from lucid.tensor.size import Size
from lucid.tensor.storage import Storage, VersionCounter

_CONSTANT_TUPLES = (tuple, Size)


@dataclass(slots=True, eq=False)
class GradOutcome:
    """What a leaf's `.grad` is after the step.

    Attributes:
        outcome: None: nothing.
        is_open: whether it can be differentiated outside.
    """

    use: GradUse
    outcome: Outcome | None
    is_open: bool = False


class Finisher:
    """Turns results, gradients and written state into outcomes.

    Attributes:
        result: what the function returns; finals: what it leaves in its places.
        leaves: what is in those besides containers that are made; tensors: those of them that
            are tensors or arrays.
        grads: the gradients that were set.
        counters: (argument number, use of a gradient or version counter, how far it moves).
        ended: tensors whose history ends in the step; rewritten: those that get another one.
        differentiable: what results need that can be differentiated outside.
    """

    def __init__(self, recorder: Recorder, handles: list[TensorCore], call: Call) -> None:
        arguments = call.tensors
        self._recorder = recorder
        self._handles = handles
        refuse_left_hooks(handles, arguments)
        self._positions = {id(handle): i for i, handle in reversed([*enumerate(handles)])}
        self._arguments = arguments
        self._slots: dict[Any, int] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._owners: dict[Storage, tuple[FromProgram, VersionCounter]] = {}
        self._originals = {
            id(use.original): use for use in recorder.grads.values() if use.original is not None
        }
        self._made: dict[int, Made] = {}
        self._open: list[Made] = []
        self._found: set[int] = set()
        self.result: Outcome = Same(None)
        self.finals: list[Outcome] = []
        self._leaves: list[tuple[Any, Outcome]] = []
        self.leaves: list[Outcome] = []
        self.tensors: list[Outcome] = []
        self.grads: list[GradOutcome] = []
        self.ended: list[Ended] = []
        self.rewritten: list[Given] = []
        self.counters: list[tuple[int | GradUse | VersionCounter, int]] = []
        self.differentiable: Differentiable | None = None

    def finish(self, result: Any, finals: Sequence[Any], rebinding: Rebinding) -> Finisher:
        """Take down everything; the graph gets its outputs and writes.

        finals: what the places of `rebinding` are bound to.
        """
        recorder = self._recorder
        self.result = self._tree(result)
        self.finals = [self._tree(final) for final in finals]
        rebinding.found = frozenset(self._found)
        further = [*self._gradients(), *self._written()]
        written = [known for known, _ in further if not isinstance(known, GradientOf)]
        self.rewritten = [*written, *(entry.tensor for entry in self.ended)]
        self._find_differentiable(further, rebinding)
        for storage, cell in recorder.cells.items():
            if cell.is_written:
                assert storage.value is not None
                recorder.graph.writes.append((cell.value, storage.value))
        self._count_versions()
        self._note_shared_gradients()
        self._handles, self._made, self._leaves = [], {}, []
        self._originals = {}
        return self

    def _tree(self, value: Any) -> Outcome:
        """How to make a result: one that is there twice is made once."""
        known = self._made.get(id(value))
        if known in self._open:
            raise EagerOnlyError(
                f"it makes a container that holds itself, a {type(value).__name__}"
            )
        if known is not None:
            known.is_shared = True
            return known
        parts = parts_of(value)
        parts = None if parts is not None and self._is_found(value) else parts
        if parts is None:
            outcome = self._outcome(value)
            self._leaves.append((value, outcome))
            return outcome
        made = self._made[id(value)] = made_like(value, parts)
        count = len(self._leaves)
        self._open.append(made)
        made.parts = [self._tree(part) for part in values_in(made, parts)]
        self._open.pop()
        if isinstance(value, (set, frozenset)):
            self._refuse_order(self._leaves[count:])
        if not _is_constant(made, value):
            return made
        del self._made[id(value)]
        return self._outcome(value)

    def _is_found(self, value: Any) -> bool:
        """Whether a container or an object was there before: it is itself a result then."""
        recorder, collector = self._recorder, self._recorder.collector
        assert collector is not None
        is_given = id(value) in recorder.containers or id(value) in recorder.given
        if is_given or not collector.was_there(value):
            return is_given
        self._found.add(id(value))
        return True

    def _slot(self, key: Any, value: Value) -> int:
        if key not in self._slots:
            self._slots[key] = len(self._recorder.graph.outputs)
            self._recorder.graph.outputs.append(value)
        return self._slots[key]

    def _outcome(self, leaf: Any) -> Outcome:
        known = self._outcomes.get(id(leaf))
        if known is None:
            known = self._outcomes[id(leaf)] = self._new_outcome(leaf)
        return known

    def _new_outcome(self, leaf: Any) -> Outcome:
        if is_live(leaf):
            return FromNumbers(leaf.formula)
        if isinstance(leaf, TensorCore):
            return self._outside(leaf) or self._inside(leaf)
        if isinstance(leaf, np.ndarray):
            collector = self._recorder.collector
            known = collector is not None and collector.was_there(leaf)
            return Same(leaf) if known else Copied(leaf)
        if id(leaf) in self._recorder.containers:
            return GivenContainer(self._recorder.containers[id(leaf)])
        if id(leaf) in self._recorder.given:
            return GivenObject(self._recorder.given[id(leaf)])
        _refuse_lazy(leaf)
        return Same(leaf)

    def _outside(self, leaf: TensorCore) -> Outcome | None:
        """How to get at a tensor that is from outside, or shows memory from there."""
        recorder, storage = self._recorder, leaf._storage
        if id(leaf) in recorder.positions:
            return FromArgument(recorder.positions[id(leaf)])
        if id(leaf) in self._originals:
            return GradBefore(self._originals[id(leaf)])
        if id(leaf) in recorder.aliases:
            recorder.value_of(leaf)  # it is new at each call, though no op has read its memory
        cell = recorder.cells.get(storage)
        if cell is None:
            met = storage.recorder is recorder or leaf._array is None
            return None if met else Same(leaf)
        if cell.is_inside or (leaf.requires_grad and leaf._lost_history()):
            return None
        if leaf._array is not None and id(leaf) not in recorder.aliases:
            return Same(leaf)
        base = leaf._base
        if base is not None and base._storage is storage:
            if leaf.requires_grad and not (
                type(leaf.grad_fn) is OpNode and self._has_history_outside(base)
            ):
                return self._shown(leaf, cell)
            return self._retaining(leaf, View(self._outcome(base), leaf._view_chain))
        if leaf.requires_grad and leaf.grad_fn is not None:
            return self._shown(leaf, cell)
        shared = Alias(cell, leaf._chain, self._counter_of(leaf, cell))
        return self._new_leaf(leaf, shared) if leaf.requires_grad else shared

    def _has_history_outside(self, base: TensorCore) -> bool:
        """Whether what is derived from the history of `base` can be derived after the call."""
        recorder = self._recorder
        is_given = id(base) in self._positions or recorder.is_outside(base)
        return base.is_leaf or is_given

    def _shown(self, leaf: TensorCore, cell: Cell) -> Outcome | None:
        """How to make a tensor on memory from outside that has a history of the step's own."""
        if cell.kind == "grad":
            return None
        counter, past = self._counter_of(leaf, cell), _past(leaf, self._recorder.outer)
        return self._retaining(leaf, Shown(cell, leaf._chain, counter, past))

    def _counter_of(self, leaf: TensorCore, cell: Cell) -> VersionCounter | NewCounter | None:
        """The version counter that an alias shares."""
        if leaf._counter in self._recorder.own_counters:
            return NewCounter(leaf._counter, leaf._counter.value)
        if cell.kind != "arg":
            return leaf._counter
        is_handles = any(leaf._counter is handle._counter for handle in self._handles)
        return None if is_handles else leaf._counter

    def _inside(self, leaf: TensorCore) -> Outcome:
        """How to make a tensor of the step's own: one with a history, a leaf, or neither."""
        tensor = self._computed(leaf)
        if leaf._grad_fn is None and leaf.requires_grad:
            return self._new_leaf(leaf, tensor)
        return self._retaining(leaf, tensor)

    def _retaining(self, leaf: TensorCore, tensor: Outcome) -> Outcome:
        return Retaining(tensor, self._grad_of(leaf)) if leaf._retains_grad else tensor

    def _new_leaf(self, leaf: TensorCore, tensor: Outcome) -> NewLeaf:
        return NewLeaf(tensor, self._grad_of(leaf))

    def _grad_of(self, tensor: TensorCore) -> Outcome | None:
        grad = tensor._grad
        return None if grad is None else self._outcome(grad)

    def _computed(self, leaf: TensorCore) -> FromProgram:
        """An output of the program: the tensor that owns it, or one that shares its memory."""
        self._recorder.value_of(leaf)
        storage = leaf._storage
        assert storage.value is not None
        past = _past(leaf, self._recorder.outer)
        version = leaf._counter.value
        if storage not in self._owners:
            slot = self._slot(storage, storage.value)
            of_owner = None if leaf._chain else past
            made = FromProgram(slot, storage.value.type, version, of_owner)
            self._owners[storage] = made, leaf._counter
            if not leaf._chain:
                return made
        owner, counter = self._owners[storage]
        own = None if leaf._counter is counter else leaf._counter
        return PartOfProgram(owner, leaf._chain, past, version, own)

    def _gradients(self) -> Iterator[tuple[Further, TensorCore]]:
        """Take down gradients; those that can be differentiated outside."""
        for use in self._recorder.grads.values():
            assert use.leaf is not None
            grad = use.now
            is_known = use.was_read and grad is use.original
            if use.was_set and not is_known:
                outcome = None if grad is None else self._outcome(grad)
                is_open = outcome is not None and _is_open(grad, outcome)
                self.grads.append(GradOutcome(use, outcome, is_open))
                if is_open:
                    assert grad is not None
                    yield GradientOf.use(use), grad

    def _written(self) -> Iterator[tuple[Further, TensorCore]]:
        """Tensors from outside that got another history; those that can be differentiated."""
        for tensor, (node, number, _, epoch) in self._recorder.histories.values():
            is_same = tensor._grad_fn is node and tensor._output_nr == number
            if tensor._base is not None or is_same:  # a view has its base's
                continue
            known: Given = self._positions.get(id(tensor), tensor)
            self._refuse_shared(tensor)
            lost = lost_backward(tensor, self._recorder.outer)
            if lost is not None or tensor._grad_fn is None:
                self.ended.append(Ended(known, lost, tensor._epoch != epoch))
            else:
                yield known, tensor

    def _refuse_shared(self, written: TensorCore) -> None:
        """Raise `EagerOnlyError` where another argument would get another history as well.

        What stands for it knows nothing of that; one that is state stands for itself.
        """
        position = self._positions.get(id(written))
        base = base_of(written if position is None else self._arguments[position])
        for i, (other, handle) in enumerate(zip(self._arguments, self._handles, strict=True)):
            is_state = handle is other
            if base_of(other) is base and (is_state or handle is not written):
                how = "is read from elsewhere as well" if is_state else "shares its memory"
                raise EagerOnlyError(
                    f"{_writer(written)}: a tensor gets a history by being written, and argument "
                    f"{i}, which is this tensor or a view of it, {how}"
                )

    def _find_differentiable(
        self, further: Sequence[tuple[Further, TensorCore]], rebinding: Rebinding
    ) -> None:
        """Note which results can be differentiated outside, and with respect to what."""
        tensors = [pair for pair in self._leaves if isinstance(pair[0], (TensorCore, np.ndarray))]
        self.leaves = [outcome for _, outcome in self._leaves]
        self.tensors = [outcome for _, outcome in tensors]
        outputs = [
            (i, tensor) for i, (tensor, outcome) in enumerate(tensors) if _is_open(tensor, outcome)
        ]
        outputs += [(len(tensors) + i, tensor) for i, (_, tensor) in enumerate(further)]
        if not outputs:
            return
        recorder = self._recorder
        results = [*(tensor for tensor, _ in tensors), *(tensor for _, tensor in further)]
        histories = Histories(recorder, results, self._handles)
        layers = histories.layers(outputs)
        self.differentiable = Differentiable(
            rebinding.function,
            layers,
            histories.tape(layers, self._slots),
            [known for known, _ in further],
            [GradientOf.use(use) for use in recorder.grads.values() if use.was_read],
            histories.counters.state,
            histories.calls_users,
        )

    def _refuse_order(self, leaves: Sequence[tuple[Any, Outcome]]) -> None:
        """Raise for a set of results that can be differentiated: they can't be told apart."""
        if sum(_is_open(leaf, outcome) for leaf, outcome in leaves) > 1:
            raise TraceError(
                "the compiled function returns or keeps a set of several tensors that require "
                "grad, which can't be told apart\nhint: return a list, or detach them"
            )

    def _note_shared_gradients(self) -> None:
        """Note which gradients the step meets elsewhere, too."""
        collector, cells = self._recorder.collector, self._recorder.cells
        assert collector is not None
        known = {tensor._storage for _, tensor in collector.tensors()}
        known.update(storage for storage, cell in cells.items() if cell.kind == "state")
        known.update(use.leaf._storage for use in self._originals.values() if use.leaf is not None)
        for use in self._originals.values():
            if use.original is not None and use.original._storage in known:
                use.storage = use.original._storage

    def _count_versions(self) -> None:
        known: dict[VersionCounter, int | GradUse] = {
            use.original._counter: use
            for use in self._originals.values()
            if use.original is not None
        }
        known |= {handle._counter: i for i, handle in reversed([*enumerate(self._handles)])}
        for counter, before in self._recorder.counters.items():
            delta = counter.value - before
            if delta:
                self.counters.append((known.get(counter, counter), delta))


def _is_constant(made: Made, value: Any) -> bool:
    """Whether it is a tuple of numbers, names and such tuples: all calls may share it."""
    return type(value) in _CONSTANT_TUPLES and all(
        type(part) is Same and (isinstance(item, SCALARS) or type(item) in _CONSTANT_TUPLES)
        for part, item in zip(made.parts, value, strict=True)
    )


def _writer(written: TensorCore) -> str:
    """The op that wrote a tensor, and the user's line."""
    node = written._grad_fn
    while isinstance(node, CopySlices) and node._edges[1] is not None:
        node = node._edges[1][0]
    return "detach_" if node is None else f"{node._short_name()}{node._place()}"


def _past(result: TensorCore, outer: Collection[Edge]) -> Past | None:
    lost = lost_backward(result, outer)
    guard = result._guard if result.requires_grad else None
    return None if lost is None and guard is None else Past(lost, guard)


def _is_open(tensor: Any, outcome: Outcome) -> bool:
    """Whether a result can be differentiated outside, with respect to what the step found."""
    made = outcome.tensor if isinstance(outcome, Retaining) else outcome
    if isinstance(made, (FromProgram, Shown)) and made.is_lost:
        return False
    return isinstance(made, (FromProgram, Shown, View)) and tensor.grad_fn is not None


def _refuse_lazy(leaf: Any) -> None:
    """Raise for a result whose computation has not happened yet."""
    if hasattr(type(leaf), "__next__"):
        raise TraceError(
            f"the compiled function returns a {type(leaf).__name__}, whose items are computed "
            "after the call\nhint: return a list"
        )
