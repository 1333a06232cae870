"""The end of a trace: what Python holds by then becomes outputs and writes of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.autograd.node import OpNode
from lucid.compiler.cells import Cell, GradUse
from lucid.compiler.data_pointers import DataPointer
from lucid.compiler.left_hooks import left_hooks
from lucid.compiler.outcomes import (
    Address,
    Alias,
    Copied,
    FromArgument,
    FromNumbers,
    FromProgram,
    GivenContainer,
    GivenObject,
    GradBefore,
    NewLeaf,
    Outcome,
    PartOfProgram,
    Past,
    Rebased,
    Retaining,
    Same,
    Shown,
    View,
)
from lucid.compiler.rebinding import Rebinding
from lucid.compiler.recorder import Recorder
from lucid.compiler.results import Again, Differentiable, Histories
from lucid.compiler.results_backward import lost_backward
from lucid.compiler.scalars import is_live
from lucid.compiler.tree import map_tree
from lucid.ir.errors import TraceError
from lucid.ir.graph import Value
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage, VersionCounter


@dataclass(slots=True, eq=False)
class GradOutcome:
    """What a leaf's `.grad` is after the step; `outcome` None: nothing."""

    use: GradUse
    outcome: Outcome | None


class Finisher:
    """Turns results, gradients and written state into outcomes.

    Attributes:
        result: the returned tree with an `Outcome` in place of each leaf.
        grads: the gradients that were set.
        counters: (argument number, use of a gradient or version counter, how far it moves).
        rebased: the arguments that get a new history.
        differentiable: what results need that can be differentiated outside.
        left_hooks: what the step registered on its arguments.
    """

    def __init__(
        self, recorder: Recorder, handles: list[TensorCore], arguments: Sequence[TensorCore]
    ) -> None:
        self._recorder = recorder
        self._handles = handles
        self.left_hooks = left_hooks(handles, arguments)
        self._slots: dict[Any, int] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._owners: dict[Storage, tuple[FromProgram, VersionCounter]] = {}
        self._originals = {
            id(use.original): use for use in recorder.grads.values() if use.original is not None
        }
        self.result: Any = None
        self.grads: list[GradOutcome] = []
        self.counters: list[tuple[int | GradUse | VersionCounter, int]] = []
        self.rebased: list[Rebased] = []
        self.differentiable: Differentiable | None = None

    def finish(self, result: Any, function: Callable[..., Any]) -> Finisher:
        """Take down everything; the graph gets its outputs and writes."""
        recorder = self._recorder
        leaves: list[tuple[Any, Outcome]] = []

        def note(leaf: Any, path: str) -> Outcome:
            outcome = self._outcome(leaf)
            leaves.append((leaf, outcome))
            return outcome

        self.result = map_tree(note, result, leaves=recorder.containers)
        self.rebased = self._rebased_arguments()
        leaves += ((self._handles[outcome.position], outcome) for outcome in self.rebased)
        self._find_differentiable(leaves, function)
        for use in recorder.grads.values():
            assert use.leaf is not None
            is_known = use.was_read and use.now is use.original
            if use.was_set and not is_known:
                grad = use.now
                self.grads.append(GradOutcome(use, None if grad is None else self._outcome(grad)))
        for storage, cell in recorder.cells.items():
            if cell.is_written:
                assert storage.value is not None
                recorder.graph.writes.append((cell.value, storage.value))
        self._count_versions()
        self._handles = []
        self._originals = {}
        return self

    def _rebased_arguments(self) -> list[Rebased]:
        """The arguments whose history the step has changed, by writing to them."""
        recorder = self._recorder
        written = (tensor for tensor, _ in recorder.histories.values() if tensor._grad_fn)
        return [
            Rebased(recorder.positions[id(handle)], lost_backward(handle))
            for handle in written
            if id(handle) in recorder.rebasable
        ]

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
        if isinstance(leaf, DataPointer):
            return Address(self._outcome(leaf.tensor))
        if isinstance(leaf, np.ndarray):
            environment = self._recorder.environment
            known = environment is not None and environment.holds_memory_of(leaf)
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
            if leaf.requires_grad and not (base.grad_fn is None and type(leaf.grad_fn) is OpNode):
                return self._shown(leaf, cell)
            return self._retaining(leaf, View(self._outcome(base), leaf._view_chain))
        if leaf.requires_grad and leaf.grad_fn is not None:
            return self._shown(leaf, cell)
        shared = Alias(cell, leaf._chain, self._counter_of(leaf, cell))
        return self._new_leaf(leaf, shared) if leaf.requires_grad else shared

    def _shown(self, leaf: TensorCore, cell: Cell) -> Outcome | None:
        """How to make a tensor on memory from outside that has a history of the step's own."""
        if cell.kind == "grad":
            return None
        counter = self._counter_of(leaf, cell)
        return self._retaining(leaf, Shown(cell, leaf._chain, counter, _past(leaf)))

    def _counter_of(self, leaf: TensorCore, cell: Cell) -> VersionCounter | None:
        """The version counter that an alias shares."""
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
        past = _past(leaf)
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

    def _find_differentiable(
        self, leaves: list[tuple[Any, Outcome]], function: Callable[..., Any]
    ) -> None:
        """Note which results can be differentiated outside, and with respect to what."""
        tensors = [pair for pair in leaves if isinstance(pair[0], (TensorCore, np.ndarray))]
        outputs = [
            (i, tensor) for i, (tensor, outcome) in enumerate(tensors) if _is_open(tensor, outcome)
        ]
        if not outputs:
            return
        results = [tensor for tensor, _ in tensors]
        layers = Histories(self._recorder, results, self._handles).layers(outputs)
        cells = list(self._recorder.cells.values())
        state = [cell for cell in cells if cell.kind == "state"]
        flags = function.flags if isinstance(function, Rebinding) else []
        written = [cell.storage for cell in state if cell.is_written]
        self.differentiable = Differentiable(
            Again(function, layers, written, flags, [outcome.position for outcome in self.rebased]),
            [cell.position for cell in cells if cell.kind == "arg" and cell.is_written],
            [(c.storage, c.counter) for c in state if c.counter is not None and not c.is_written],
        )

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


def _past(result: TensorCore) -> Past | None:
    lost = lost_backward(result)
    guard = result._guard if result.requires_grad else None
    return None if lost is None and guard is None else Past(lost, guard)


def _is_open(tensor: Any, outcome: Outcome) -> bool:
    """Whether a result can be differentiated outside, with respect to what the step found."""
    if isinstance(outcome, Rebased):
        return outcome.lost is None
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


def refuse_growing_histories(recorder: Recorder) -> None:
    """Raise when a tensor from outside got a history that each call would make longer."""
    for tensor, history in recorder.histories.values():
        cell = recorder.cells.get(tensor._storage)
        is_outside = cell is not None and not cell.is_inside
        if not is_outside or id(tensor) in recorder.rebasable:
            continue
        if history[0] is not None and tensor._grad_fn is None:
            raise TraceError(
                "a tensor from outside of the compiled function was cut from its history, which "
                f"can't be compiled\n  {tensor._describe()}\nhint: use detach(), or clone() it "
                "before it is overwritten"
            )
        is_new = tensor._requires_grad and tensor._grad_fn is not history[0]
        if is_new and id(tensor) in recorder.positions:
            raise TraceError(
                "an argument that is a view was written with a value that requires grad, which "
                f"would rewrite the history of its base\n  {tensor._describe()}\n"
                "hint: pass the base and take the view inside of the compiled function, or clone() "
                "it"
            )
        if is_new:
            raise TraceError(
                "a tensor from outside of the compiled function was written with a value that "
                f"requires grad, so its history would grow with every call\n"
                f"  {tensor._describe()}\n"
                "hint: write under lucid.no_grad(), or detach() the value"
            )
