"""How each call makes what a step leaves: results, gradients and what Python keeps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lucid.compiler.inputs.cells import Cell, GradUse
from lucid.compiler.inputs.scalars import Formula
from lucid.compiler.inputs.signature import Call
from lucid.compiler.results.histories import LostGraph
from lucid.compiler.results.replayed_effects import Entries
from lucid.ir.classes import isinstance
from lucid.ir.extents import Extent, is_open, replaced
from lucid.ir.types import TensorType, type_of_array
from lucid.runtime.entry.words import A_CONSTANT, A_VIEW
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, ViewChain, _new
from lucid.tensor.storage import Storage, VersionCounter, ViewGuard
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import replay

NO_COUNTER = VersionCounter()  # of an array: NumPy writes unnoticed


class Run:
    """One call of a program.

    Attributes:
        outputs: what the native step returned; tells whether it has run.
        inputs: what it was given.
        done: results that are made, by identity: what was one object while tracing stays one; so
            do version counters.
        versions: what version counters are to be afterwards.
        changed: what dicts that effects change are to have in them afterwards.
        appended: what additions to lists have returned so far.
        calls: what is to be called after the step; told: how many of these have begun.
    """

    __slots__ = (
        *("appended", "call", "calls", "changed", "done", "inputs", "outputs", "told", "versions"),
    )

    def __init__(self, call: Call, outputs: Any) -> None:
        self.call = call
        self.outputs = outputs
        self.inputs: Any = ()
        self.done: dict[OutputSpec | VersionCounter, Any] = {}
        self.versions: dict[VersionCounter, int] = {}
        self.changed: Sequence[Entries] = ()
        self.appended: list[None] = []
        self.calls: list[Any] = []
        self.told = 0

    def counter(self, traced: VersionCounter, version: int) -> VersionCounter:
        """That of a result which counts its versions apart, by the one in the trace."""
        counter: VersionCounter = self.done.setdefault(traced, VersionCounter())
        counter.now = version
        return counter


@dataclass(slots=True, eq=False)
class Part:
    """What machine code makes of other values of a call.

    Attributes:
        kind: of `entry.words`: a constant, a tuple, a dict, a view, or what a callable makes.
        what: the constant, the keys, the view, or the callable.
        values: what it is made of: the numbers of outputs, or `~n` for the n-th part.
    """

    kind: int
    what: Any = None
    values: Sequence[int] = ()


class Assembly:
    """What machine code makes of a call's outputs: tensors, and then parts of those.

    Args:
        outputs: numbers of those that each call has in memory of its own.

    Attributes:
        tensors: the outputs that become tensors.
        places: what is made, as in `Part.values`; None: it is Python's.
    """

    def __init__(self, outputs: Collection[int]) -> None:
        self._outputs = outputs
        self.tensors: list[GraphOutput] = []
        self.parts: list[Part] = []
        self.places: dict[OutputSpec, int | None] = {}

    def of(self, spec: OutputSpec) -> int | None:
        """Where a value is."""
        if spec not in self.places:
            self.places[spec] = spec.assemble(self)
        return self.places[spec]

    def tensor(self, output: GraphOutput) -> int | None:
        """The tensor that owns an output."""
        if output.slot not in self._outputs or not output.has_equal_history:
            return None
        self.tensors.append(output)
        return output.slot

    @property
    def made(self) -> dict[OutputSpec, int]:
        """What is made, and where."""
        return {spec: place for spec, place in self.places.items() if place is not None}

    def part(self, kind: int, what: Any, specs: Sequence[OutputSpec] = ()) -> int | None:
        """A part of what is made for others."""
        values = [place for spec in specs if (place := self.of(spec)) is not None]
        if len(values) < len(specs):
            return None
        self.parts.append(Part(kind, what, values))
        return ~(len(self.parts) - 1)


class OutputSpec:
    """How each call makes one value."""

    __slots__ = ()

    def assemble(self, assembly: Assembly) -> int | None:
        """Where machine code has the value; None: it is Python's."""
        return None

    def make(self, run: Run) -> Any:
        """The value for this call."""
        raise NotImplementedError

    def of(self, run: Run) -> Any:
        """The value for this call, made once."""
        if self in run.done:
            return run.done[self]
        made = run.done[self] = self.make(run)
        return made


@dataclass(frozen=True, slots=True)
class Views:
    """The views that lead from a tensor to one on its memory, as each call has them.

    Attributes:
        chain: of the trace; slots: the outputs that say the open sizes in it.
    """

    chain: ViewChain
    slots: Mapping[Extent, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.chain)

    def of(self, tensor: Any, run: Run | None) -> Any:
        """The view of a tensor, without a history."""
        chain = self.chain
        if self.slots and run is not None:
            chain = replaced(chain, lambda size: run.outputs[self.slots[size]].item())
        before = context.grad_enabled
        context.grad_enabled = False
        try:
            return replay(tensor, chain)
        finally:
            context.grad_enabled = before


@dataclass(eq=False, slots=True)
class Constant(OutputSpec):
    """What doesn't depend on the call."""

    value: Any

    def make(self, run: Run) -> Any:
        return self.value

    def assemble(self, assembly: Assembly) -> int | None:
        return assembly.part(A_CONSTANT, self.value)


@dataclass(eq=False, slots=True)
class Found(OutputSpec):
    """What each call finds, or makes of that.

    Attributes:
        what: "argument", "array", "container", "iterator", "copy" or "rows"; or what is to be taken
            before the step runs, a "number" that follows from those of the call, or the "gradient"
            of a leaf.
        find: gives it.
    """

    what: str
    find: Callable[[Run], Any]

    def make(self, run: Run) -> Any:
        return self.find(run)


class GradMetadata(NamedTuple):
    """What is special about a result: its graph is lost, it is a guarded view, or a new leaf.

    Attributes:
        lost: what was behind it, if that was freed or lost in the step.
        guard: against writes, for a view that a custom Function returned.
        leaf: of one without a history that requires grad, or is a `Parameter`: its class and flag.
        gradient: of a leaf that has one.
    """

    lost: LostGraph | None
    guard: ViewGuard | None
    leaf: tuple[type[TensorCore], bool] | None
    gradient: OutputSpec | None

    def leave_on(self, result: TensorCore, run: Run | None) -> None:
        """Give a result of this call what it had in the trace; None: it is the same in each."""
        if self.lost is not None:
            result._grad_fn = self.lost.node(() if run is None else run.call.tensors)
            result._output_nr, result._requires_grad = 0, True
        if self.gradient is not None and run is not None:
            result._grad = self.gradient.of(run)
        if self.leaf is not None:
            result.__class__, result._requires_grad = self.leaf
        if self.guard is not None:
            result._guard = self.guard._replace(version=result._counter.value)


@dataclass(eq=False, slots=True)
class GraphOutput(OutputSpec):
    """One of the program's outputs, as the tensor that owns it."""

    slot: int
    type: TensorType
    version: int
    past: GradMetadata | None

    @property
    def has_equal_history(self) -> bool:
        """Whether what is special about it is the same in all calls."""
        past = self.past
        leaves = () if past is None or past.lost is None else past.lost.leaves
        has_own = past is not None and past.gradient is not None
        return not (has_own or any(isinstance(leaf, int) for leaf in leaves))

    def make(self, run: Run) -> Tensor:
        return self.with_history(self.on(run.outputs[self.slot]), run)

    def assemble(self, assembly: Assembly) -> int | None:
        return assembly.tensor(self)

    def with_history(self, result: Tensor, run: Run | None = None) -> Tensor:
        """The result with what is special about its history."""
        if self.past is not None:
            self.past.leave_on(result, run)
        return result

    def on(self, array: np.ndarray) -> Tensor:
        """The tensor that owns the output's array."""
        type = type_of_array(array) if any(map(is_open, self.type.shape)) else self.type
        storage = Storage(type)
        storage.array = array
        root = _new(storage, type, array, ())
        if self.version:
            root._counter.now = self.version
        return root


class GraphOutputView(GraphOutput):
    """An alias or a view of one of the program's outputs.

    Attributes:
        own: of what `.data` gave, its version counter in the trace, and what that had come to.
    """

    __slots__ = ("own", "owner", "views")

    def __init__(
        self,
        owner: GraphOutput,
        views: Views,
        past: GradMetadata | None,
        own: tuple[VersionCounter, int] | None,
    ) -> None:
        super().__init__(owner.slot, owner.type, owner.version, past)
        self.owner = owner
        self.views = views
        self.own = own

    def make(self, run: Run) -> Tensor:
        result = self._view(self.owner.of(run), run)
        if self.own is not None:
            result._counter = run.counter(*self.own)
        return self.with_history(result, run)

    def assemble(self, assembly: Assembly) -> int | None:
        if self.own is not None or self.views.slots or not self.has_equal_history:
            return None
        return assembly.part(A_VIEW, self, [self.owner])

    def made_of(self, root: Tensor) -> Tensor:
        """The view, of the tensor that owns the memory."""
        return self.with_history(self._view(root))

    def _view(self, root: Tensor, run: Run | None = None) -> Tensor:
        result: Tensor = self.views.of(root, run) if self.views else root._alias()
        result._spot = None  # as that of other results
        return result


@dataclass(eq=False, slots=True)
class LateOutput(OutputSpec):
    """A Python number or text that follows from outputs of the step and from what a call finds.

    Attributes:
        formula: of those, by their keys.
        slots: the outputs; early: what is taken before the step runs.
    """

    formula: Formula
    slots: dict[Any, int]
    early: dict[Any, OutputSpec]

    def make(self, run: Run) -> Any:
        known: Any = {key: run.outputs[slot] for key, slot in self.slots.items()}
        known |= {key: spec.of(run) for key, spec in self.early.items()}
        return self.formula(known)


@dataclass(eq=False, slots=True)
class InputView(OutputSpec):
    """A view of a tensor from outside; a history it gets as results of the program do."""

    base: OutputSpec
    views: Views

    def make(self, run: Run) -> Tensor:
        result: Tensor = self.views.of(self.base.of(run), run)
        return result


@dataclass(eq=False, slots=True)
class MemoryAlias(OutputSpec):
    """A tensor without history on the memory of an argument, of state or of a gradient.

    Attributes:
        counter: the version counter, as each call finds it.
        version: of one that `.data` gave, what it had come to; each call makes such a one.
    """

    cell: Cell
    views: Views
    counter: int | GradUse | VersionCounter
    version: int | None

    def make(self, run: Run) -> Tensor:
        cell = self.cell
        base: Tensor
        if cell.kind == "arg":
            base = run.call.tensors[cell.position]._alias()
        else:
            storage = storage_of(cell, run.call)
            base = _new(storage, storage.root_type, storage.array, ())
        base._counter = counter_of(self.counter, run.call)
        if self.version is not None:
            base._counter = run.counter(base._counter, self.version)
        return self.views.of(base, run) if self.views else base


def is_early(spec: OutputSpec) -> bool:
    """Whether a result is of what the call finds: a number, a gradient, or a view of one."""
    if isinstance(spec, InputView):
        return is_early(spec.base)
    if isinstance(spec, MemoryAlias):
        return spec.cell.kind == "grad"
    return isinstance(spec, Found) and spec.what in ("number", "gradient")


def leaf_of(use: GradUse, arguments: Sequence[TensorCore]) -> TensorCore:
    """The leaf whose gradient is meant, in this call."""
    if use.position >= 0:
        return arguments[use.position]
    assert use.leaf is not None
    return use.leaf


def counter_of(target: int | GradUse | VersionCounter, call: Call) -> VersionCounter:
    """The version counter of an argument or of the gradient that the call found, or itself."""
    if isinstance(target, VersionCounter):
        return target
    tensor = (
        call.tensors[target] if isinstance(target, int) else leaf_of(target, call.tensors)._grad
    )
    assert tensor is not None
    return tensor._counter


def storage_of(cell: Cell, call: Call) -> Storage:
    """The memory behind an input of the program, in this call."""
    if cell.kind == "arg":
        return call.tensors[cell.position]._storage
    if cell.kind != "grad":
        return cell.storage
    leaf = call.tensors[cell.position] if cell.leaf is None else cell.leaf
    assert leaf._grad is not None
    return leaf._grad._storage
