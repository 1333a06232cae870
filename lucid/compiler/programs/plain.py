"""The short way through a call whose arguments are plain tensors of the types that were traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lucid.codegen.entry_words import MOST_ARGUMENTS
from lucid.compiler.guards.age import owner_of
from lucid.compiler.guards.table import GuardTable
from lucid.compiler.inputs.scalars import Formula, Number
from lucid.compiler.inputs.sharing import Sharing
from lucid.compiler.inputs.signature import Call
from lucid.compiler.programs.native import NativeCalls, native_calls
from lucid.compiler.programs.plain_places import PlainPlaces
from lucid.compiler.results.backward import Record
from lucid.compiler.results.gradients import Gradients
from lucid.compiler.results.outcomes import FromProgram, Outcome, Run
from lucid.ir.errors import LucidError
from lucid.ir.types import DType, Shape, TensorType
from lucid.runtime.context import Context
from lucid.runtime.entry import LONG_WAY
from lucid.runtime.executable import Executable, Results
from lucid.tensor.claims import Keys, held, lock, unlocked, wait_for
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lucid.compiler.inputs.cells import FormulaGuard, ValueGuard
    from lucid.compiler.results.backward import Differentiable
    from lucid.tensor.promises import Batch


@dataclass(slots=True, eq=False)
class PlainCalls:
    """Runs a program for arguments that are plain tensors, with as little Python as possible.

    It does what `Program.failed_guard` and `Program.run_plain` do, for programs that need none of
    their rarer parts. Arrays that the context of an earlier call still holds are not looked at
    again.

    Attributes:
        arguments: of each one type, strides in bytes, and the number of the step's input that it
            is; None for one that isn't used.
        state: memory that no argument may be on.
        readers: live numbers, by the number of their input.
        counters: version counters, and how far they move.
        claims: the state that the step writes; written: the arguments, by position. Those may not
            be views, and there is no native form then.
        moved: arguments whose version counters move, and how far.
        numbers: those that follow from what the places hold, by the number of their input.
        formulas: what the step asked live numbers, and is specialized on.
        places: what it reads and binds; None: nothing.
        rule: how results get their history; None: they have none.
        tensors: the tensors among the results.
        in_grad_mode, default_dtype: what was in force while tracing.
        counted: a counter of the calls that native code runs.
        native: the native form of all this, once a call has bound the state, and the function to
            call; None: there is none.
        is_simple: whether a call has nothing to do after the step but to return its result.
        left: leaves that results are the gradients of, and go to; `tensor_count`: the arguments
            after these are arrays. Of the native form alone.
    """

    executable: Executable
    guard: GuardTable
    values: list[ValueGuard]
    arguments: list[tuple[TensorType, Shape, int | None]]
    state: set[Storage]
    readers: list[tuple[int, Callable[[], Any]]]
    sharing: Sharing
    gradients: Gradients
    counters: list[tuple[VersionCounter, int]]
    result: Outcome
    output_count: int
    claims: Keys
    written: list[int]
    moved: list[tuple[int, int]]
    numbers: list[tuple[int, Formula]]
    formulas: list[FormulaGuard]
    places: PlainPlaces | None
    rule: Differentiable | None
    tensors: Sequence[Outcome]
    in_grad_mode: bool
    default_dtype: DType
    counted: np.ndarray
    native: NativeCalls | None = None
    enter: Callable[..., Any] | None = None
    left: Sequence[tuple[TensorCore, FromProgram]] = ()
    tensor_count: int = MOST_ARGUMENTS
    is_simple: bool = False
    _places: Sequence[tuple[int, int]] = ()
    _is_prepared: bool = False

    def __post_init__(self) -> None:
        is_bound = self.places is not None and self.places.is_bound
        self.is_simple = not (self.gradients.others or is_bound)
        places = [(place, i) for i, (_, _, place) in enumerate(self.arguments)]
        self._places = [(place, i) for place, i in places if place is not None]

    def call(self, args: Sequence[Any]) -> Any:
        """The result, or `LONG_WAY`: then nothing has happened yet."""
        if not (self.claims or self.written):
            return self._call(args)
        with lock:
            if held and self.written:
                return LONG_WAY
            if held:
                wait_for(self.claims)
            return self._call(args)

    def _call(self, args: Sequence[Any]) -> Any:
        held: Sequence[Number] = ()
        if self.places is not None:
            found = self.places.found()
            if found is None:
                return LONG_WAY
            args, held = (*args, *found[0]), found[1]
        storages = {tensor._storage for tensor in args if tensor.__class__ is Tensor}
        if len(args) != len(self.arguments) or len(storages) != len(args):
            return LONG_WAY
        if self.guard.failure() is not None or not storages.isdisjoint(self.state):
            return LONG_WAY
        for guard in self.values:
            if guard.failure() is not None:
                return LONG_WAY
        for question in self.formulas:
            if question.failure(held) is not None:
                return LONG_WAY
        if self.places is not None and self.places.early:
            self.places.begin(held, self.output_count)
        buffers = self.executable.ready()
        if buffers is None:
            return LONG_WAY
        changed = self._changed(buffers.bound, args)
        try:
            is_fit = changed is not None and self._read(buffers, held)
        except BaseException:
            self.executable.put_back(buffers)
            raise
        if changed is None or not is_fit:
            self.executable.put_back(buffers)
            return LONG_WAY
        if changed or self.written:
            try:
                self.sharing.check(self._inputs(args) if self.written else changed)
            except LucidError:
                self.executable.put_back(buffers)
                raise
            for place, array in changed:
                buffers.replace(place, array)
        self._prepare(buffers)
        return self._run(buffers, args)

    def _prepare(self, buffers: Context) -> None:
        """Let native code run the calls from now on, where it can."""
        if self.native is not None:
            self.native.rearm()
        elif not self._is_prepared:
            self._is_prepared = True
            self.native = native_calls(self, buffers)
            self.enter = None if self.native is None else self.native.function

    def _read(self, buffers: Context, held: Sequence[Number]) -> bool:
        """Enter the live numbers; whether all are of the types that were traced, and fit."""
        return all(
            buffers.enter_number(place, formula(held)) for place, formula in self.numbers
        ) and all(buffers.enter_number(place, read()) for place, read in self.readers)

    def _changed(
        self, bound: Sequence[object], args: Sequence[Tensor]
    ) -> list[tuple[int, np.ndarray]] | None:
        """The arguments that are not bound yet; None if one is not what was traced."""
        changed = []
        for tensor, (type, strides, place) in zip(args, self.arguments, strict=True):
            found = tensor._type
            if (found is not type and found != type) or tensor._requires_grad:
                return None
            if tensor._base is not None and (self.written or tensor.requires_grad):
                return None
            array = tensor._array
            if place is None or array is not bound[place]:
                if array is None or array.strides != strides:
                    return None
                if place is not None:
                    changed.append((place, array))
        return changed

    def _inputs(self, args: Sequence[TensorCore]) -> list[tuple[int, Any]]:
        """Arrays of arguments by the number of their input."""
        return [(place, args[position]._array) for place, position in self._places]

    def _run(self, buffers: Context, args: Sequence[TensorCore]) -> Any:
        gradients, outputs = self.gradients, Results()
        versions = [(counter, counter.now + delta) for counter, delta in self.counters]
        for position, delta in self.moved:
            counter = args[position]._counter
            versions.append((counter, counter.now + delta))
        batch = gradients.begin() if gradients.are_promised else None
        memory = None if batch is None else batch.outputs
        try:
            if (self.claims or self.written) and not self.executable.is_short:
                owners = [owner_of(cast(Any, args[position]._array)) for position in self.written]
                native = partial(self.executable.run, buffers, memory, outputs)
                unlocked(self.claims.union(map(id, owners)), native)
            else:
                self.executable.run(buffers, memory, outputs)
            return self._deliver(versions, batch, outputs, args)
        except BaseException:
            if outputs.have_run:
                self._deliver(versions, batch, outputs, args)
            elif batch is not None:
                gradients.retire(batch)
            raise

    def _deliver(
        self,
        versions: Sequence[tuple[VersionCounter, int]],
        batch: Batch | None,
        outputs: list[Any],
        args: Sequence[TensorCore],
    ) -> Any:
        """Put everything in its place; all of it again, when somebody has interrupted it."""
        if batch is not None:
            self.gradients.leave(batch)
        for counter, version in versions:
            counter.now = version
        return self.outcomes(outputs, args)

    def outcomes(self, outputs: list[Any], args: Sequence[TensorCore]) -> Any:
        """What the call returns; gradients that can't be promised are set.

        Where there are places it can be done again after an interrupt.

        outputs: arrays; a tensor where native code has made the only result already.
        """
        result, rule = self.result, self.rule
        if type(result) is FromProgram and self.is_simple:
            made = outputs[result.slot]
            if isinstance(made, np.ndarray):
                made = result.with_history(result.on(made))
            if rule is not None:
                outputs[result.slot] = made._array
                self._record(rule, outputs, args, [made])
            return made
        if self.places is None:
            run = Run(Call.of_tensors(args), self.output_count)
        else:
            run = self.places.run(self.output_count, args)
        run.outputs = outputs
        for leaf, outcome in self.gradients.others:
            leaf._grad = None if outcome is None else outcome.of(run)
        made = result.of(run)
        if rule is not None:
            self._record(rule, outputs, args, [outcome.of(run) for outcome in self.tensors])
        if self.places is not None:
            is_fit = self.places.deliver(run)
            if is_fit and self.native is not None:
                self.native.rearm()
            self.places.ready = None
        return made

    def _record(
        self,
        rule: Differentiable,
        outputs: Sequence[np.ndarray],
        args: Sequence[TensorCore],
        results: Sequence[TensorCore],
    ) -> None:
        """Give results their history."""
        inputs = {}
        for place, position in self._places:
            inputs[place] = args[position]._array
        Record(rule, args, ()).attach(args, outputs, inputs, results)

    def leaving(self, leaves: Sequence[TensorCore], tensor_count: int) -> NativeCalls | None:
        """The native form for which results, one for each leaf, are the leaves' gradients.

        It takes calls for which none of them has one; the arguments after the first ones are
        arrays. None: there is no such form, or not yet.
        """
        native = self.native
        if native is None or native.leaving is not None:
            return None if native is None else native.leaving
        left = _gradients_of(leaves, self.tensors)
        if left is None or self.rule is not None or self.claims or not self.is_simple:
            return None
        with lock:
            if native.leaving is None:
                claims = frozenset(map(id, leaves))
                native.leave_on(replace(self, left=left, tensor_count=tensor_count, claims=claims))
            return native.leaving


def _gradients_of(
    leaves: Sequence[TensorCore], outcomes: Sequence[Outcome]
) -> list[tuple[TensorCore, FromProgram]] | None:
    """Which result is the gradient of each leaf; None where they have no memory of their own."""
    own = [x for x in outcomes if type(x) is FromProgram and x.past is None]
    if not len(leaves) == len(outcomes) == len({x.slot for x in own}):
        return None
    pairs = [*zip(leaves, own, strict=True)]
    return pairs if all(leaf._type == x.type for leaf, x in pairs) else None
