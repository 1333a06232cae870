"""What native code is to do in a call with plain tensors of the types that were traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.codegen.entry_words import MOST_ARGUMENTS
from lucid.compiler.guards.table import GuardTable
from lucid.compiler.inputs.scalars import Formula
from lucid.compiler.inputs.sharing import Sharing
from lucid.compiler.inputs.signature import Call
from lucid.compiler.programs.native import NativeCalls, has_native_calls
from lucid.compiler.programs.plain_places import PlainPlaces
from lucid.compiler.results.backward import Record
from lucid.compiler.results.gradients import Gradients
from lucid.compiler.results.outcomes import FromProgram, Outcome, Run
from lucid.ir.types import DType, Shape, TensorType
from lucid.runtime.executable import Executable
from lucid.tensor.claims import Keys, lock
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage, VersionCounter

if TYPE_CHECKING:
    from lucid.compiler.inputs.cells import FormulaGuard
    from lucid.compiler.results.backward import Differentiable


@dataclass(slots=True, eq=False)
class PlainCalls:
    """The calls of a program that needs none of its rarer parts, for native code to make.

    It does what `Program.run` does, of which nothing but results, gradients and what is bound is
    left to Python.

    Attributes:
        arguments: of each one type, strides in bytes, and the number of the step's input that it
            is; None for one that isn't used.
        state: memory that no argument may be on.
        readers: live numbers, by the number of their input.
        counters: version counters, and how far they move.
        claims: the state that the step writes.
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
            after these are arrays.
    """

    executable: Executable
    guard: GuardTable
    arguments: list[tuple[TensorType, Shape, int | None]]
    state: set[Storage]
    readers: list[tuple[int, Callable[[], Any]]]
    sharing: Sharing
    gradients: Gradients
    counters: list[tuple[VersionCounter, int]]
    result: Outcome
    output_count: int
    claims: Keys
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

    def __post_init__(self) -> None:
        is_bound = self.places is not None and self.places.is_bound
        self.is_simple = not (self.gradients.others or is_bound)
        places = [(place, i) for i, (_, _, place) in enumerate(self.arguments)]
        self._places = [(place, i) for place, i in places if place is not None]

    def prepare(self) -> None:
        """Let native code run the calls from now on, after one that has bound the state."""
        if self.native is None and has_native_calls():
            buffers = self.executable.ready()
            if buffers is not None:
                self.native = NativeCalls(self, buffers)
                self.enter = self.native.function
                self.executable.put_back(buffers)

    def outcomes(self, outputs: list[Any], args: Sequence[TensorCore]) -> Any:
        """What the call returns; gradients that can't be promised are set.

        Where there are places it can be done again after an interrupt.

        outputs: arrays; a tensor where native code has made the only result already.
        """
        result, rule = self.result, self.rule
        if type(result) is FromProgram and self.is_simple:
            made = outputs[result.slot]
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
        if self.places is not None and self.places.deliver(run) and self.native is not None:
            self.native.rearm()
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
