"""Recording a step: arguments become inputs, Python runs once, the outcome becomes a program."""

from __future__ import annotations

import functools
import gc
import inspect
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from lucid.compiler.hosts.recording import LeavesTrace
from lucid.compiler.inputs.bound_to_tensors import noticing
from lucid.compiler.inputs.cells import (
    ArgumentIsState,
    Cell,
    FormulaGuard,
    GradUse,
    ValueGuard,
)
from lucid.compiler.inputs.live_math import live_math
from lucid.compiler.inputs.scalars import LiveSource
from lucid.compiler.inputs.signature import Call, objects_by_name
from lucid.compiler.inputs.watches import Guard
from lucid.compiler.recording.arguments import StandIns
from lucid.compiler.recording.finishing import Finisher, GradOutcome
from lucid.compiler.recording.names import name_inputs
from lucid.compiler.recording.recorder import Recorder, recording, undo_all
from lucid.compiler.results.backward import Differentiable
from lucid.compiler.results.gradients import shared_gradients
from lucid.compiler.results.histories import Ended, Given
from lucid.compiler.results.left_hooks import LeftHook
from lucid.compiler.results.outcomes import Outcome
from lucid.compiler.results.rebinding import Rebinding, Rebinds
from lucid.compiler.surroundings.codes import Executed, executed_codes
from lucid.compiler.surroundings.environment import Environment
from lucid.compiler.surroundings.generators import Generators
from lucid.compiler.surroundings.iterators import Iterators
from lucid.compiler.surroundings.logs import IsRead, Log
from lucid.compiler.surroundings.memos import forget
from lucid.compiler.surroundings.places import Identity, Place, bound
from lucid.ir.errors import TraceError
from lucid.ir.graph import Graph, Value
from lucid.ir.location import Location
from lucid.ir.strides import Strides, is_contiguous
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage, VersionCounter


@dataclass(slots=True, eq=False)
class Trace:
    """A recorded step: the graph, and how its inputs and outputs connect to Python.

    Attributes:
        cells: buffers that are inputs of the graph, with their strides where not contiguous.
        pinned: tensor arguments that are state of the step as well, by position.
        result: what the function returns; finals: what it leaves in its places.
        leaves: what is in them besides containers that the step makes; tensors: those of them
            that are numbered as flattened results.
        ended: tensors whose history ends in the step.
        rewritten: those that get another one.
        rebinding: the places that the step reads and binds itself; None if there are none.
        grads_shared: for each of the gradients that are read whose memory it is on.
        keys: of each place that is read, what kind of value it holds.
        training: modules' attributes whose "training" the step sets, and to what.
        grad_enabled: the grad mode that the step leaves; None: the one it found.
        undo: takes back the Python state that was created for the step.
    """

    graph: Graph
    guard: Guard
    values: list[ValueGuard]
    live: list[tuple[Value, LiveSource]]
    formulas: list[FormulaGuard]
    cells: list[tuple[Cell, Strides | None]]
    pinned: dict[int, TensorCore]
    grads_read: list[GradUse]
    grads_shared: list[int]
    result: Outcome
    finals: list[Outcome]
    leaves: list[Outcome]
    tensors: list[Outcome]
    grads: list[GradOutcome]
    ended: list[Ended]
    counters: list[tuple[int | GradUse | VersionCounter, int]]
    effects: list[tuple[Callable[[], object], str]]
    training: list[tuple[Any, bool]]
    grad_enabled: bool | None
    differentiable: Differentiable | None
    left_hooks: list[LeftHook]
    rebinding: Rebinding | None
    keys: list[tuple[Any, ...]]
    rewritten: list[Given]
    undo: Callable[[], None]
    seconds: float = 0.0


def trace(
    function: Callable[..., Any],
    call: Call,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    places: dict[Identity, Place],
) -> Trace:
    """Run `function` once on traced stand-ins for its arguments, and record what it does.

    Nothing that is concrete changes: state, `.grad`, versions and flags are put back, and what the
    step changed is in the trace. Only one thread may do this at a time. Raises what the function
    raises, and `TraceError`.

    places: what earlier traces have found that the function binds; new ones are entered.
    """
    start = time.perf_counter()
    try:
        found = _traced(function, call, args, kwargs, places)
    except (TypeError, AttributeError):
        if not any(isinstance(place, Log) for place in places.values()):
            raise
        found = _traced_without_logs(function, call, args, kwargs, places)
    found.seconds = time.perf_counter() - start
    return found


def _traced_without_logs(
    function: Callable[..., Any],
    call: Call,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    places: dict[Identity, Place],
) -> Trace:
    """A trace in which lists are what they are, as code in C may ask for.

    Called while an error is handled; raises that one if this trace fails as well.
    """
    known = {key: x.as_state(True) if isinstance(x, Log) else x for key, x in places.items()}
    try:
        found = _traced(function, call, args, kwargs, known)
    except Exception:
        found = None
    if found is None:
        raise
    places.update(known)
    return found


def _traced(
    function: Callable[..., Any],
    call: Call,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    places: dict[Identity, Place],
) -> Trace:
    """The trace, begun again as often as it turns out to need something from its start."""
    state: set[Storage] = set()
    leaving: set[object] = set()
    no_logs: set[Identity] = set()
    while True:
        rebinding = Rebinding(function, places.values(), no_logs)
        try:
            recorder = Recorder(_name_of(function), frozenset(leaving))
            return _record(recorder, rebinding, call, args, kwargs, state, frozenset(leaving))
        except ArgumentIsState as error:
            state.add(error.storage)
        except LeavesTrace as error:
            leaving |= error.codes
        except Rebinds as error:
            places.update({place.identity: place for place in error.places})
            bound.update(places)
        except IsRead as error:
            no_logs.add(error.place.identity)
            if error.is_state:
                places[error.place.identity] = error.place
            else:  # others than what is traced write it
                del places[error.place.identity]


@dataclass(slots=True, eq=False)
class _Ran:
    """What is left of the run on traced tensors.

    Attributes:
        handles: what stood for the arguments; nobody should hold it any more.
    """

    outcome: Finisher
    handles: list[weakref.ref[TensorCore]]
    pinned: dict[int, TensorCore]
    training: list[tuple[Any, bool]]
    grad_enabled: bool | None


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _record(
    recorder: Recorder,
    rebinding: Rebinding,
    call: Call,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    state: set[Storage],
    leaving: frozenset[object],
) -> Trace:
    function = rebinding.function
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        recorder.graph.location = Location(code.co_filename, code.co_firstlineno)
    objects = objects_by_name(function, args, kwargs)
    read = rebinding.unwatched
    environment = recorder.environment = Environment(function, objects, leaving, read)
    call.take(rebinding.values())
    try:
        ran = _run(recorder, environment, rebinding, call, args, kwargs, state)
        rebinding.forget()
        try:
            _refuse_escaped(recorder, ran.handles)
        except BaseException:
            environment.put_back()
            undo_all(recorder.undo)
            raise
        name_inputs(recorder, environment)
        return _trace_of(recorder, environment, ran, rebinding, call)
    finally:
        recorder.end()


def _trace_of(
    recorder: Recorder, environment: Environment, ran: _Ran, rebinding: Rebinding, call: Call
) -> Trace:
    grads_read = [use for use in recorder.grads.values() if use.was_read]
    return Trace(
        recorder.graph,
        Guard(environment.watches),
        list(recorder.guards.values()),
        list(recorder.live_inputs.values()),
        list(recorder.formulas.values()),
        [(cell, _strides_of(cell)) for cell in recorder.cells.values() if _is_input(cell)],
        ran.pinned,
        grads_read,
        shared_gradients(grads_read, call),
        ran.outcome.result,
        ran.outcome.finals,
        ran.outcome.leaves,
        ran.outcome.tensors,
        ran.outcome.grads,
        ran.outcome.ended,
        ran.outcome.counters,
        recorder.effects,
        ran.training,
        ran.grad_enabled,
        ran.outcome.differentiable,
        ran.outcome.left_hooks,
        None if rebinding.is_empty else rebinding,
        call.keys,
        ran.outcome.rewritten,
        functools.partial(undo_all, recorder.undo),
    )


def _run(
    recorder: Recorder,
    environment: Environment,
    rebinding: Rebinding,
    call: Call,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    state: set[Storage],
) -> _Ran:
    """Run the function, in a frame of its own: no frame may hold a traced tensor afterwards."""
    generators = Generators(environment.generators, environment.drawing)
    recorder.iterators = Iterators(environment.iterators)
    function, places = rebinding.function, [place.path for place in rebinding.read]
    stand_ins = StandIns(recorder, call, function, args, kwargs, state, places)
    grad_enabled = context.grad_enabled
    ran = environment.ran = Executed()
    failed = True
    try:
        rebinding.enter(stand_ins.values, recorder)
        stand_ins.fill()
        with (
            recorder.iterators.refusing_moves(ran),
            recording(recorder),
            noticing(recorder.positions, call.asked),
            executed_codes(ran),
            live_math(environment.watches),
        ):
            result = function(*stand_ins.args, **stand_ins.kwargs)
        result = rebinding.without_stand_ins(result)
        left = None if context.grad_enabled == grad_enabled else context.grad_enabled
        recorder.raise_caught()
        recorder.hosts.put_back()
        training = environment.settle_training()
        with recording(recorder):
            of_arguments = stand_ins.changes()
            finals = rebinding.leave(environment, recorder, of_arguments)
        environment.keep_read(ran.codes, recorder.arrays.live)
        rebinding.take_up_logs(environment.watches, recorder.hosts.written)
        recorder.guard_histories()
        stand_ins.put_back()
        generators.refuse_use(ran)
        with recording(recorder):
            outcome = Finisher(recorder, stand_ins.handles, call)
            outcome.finish(result, finals, rebinding)
        failed = False
    finally:
        context.grad_enabled = grad_enabled
        recorder.restore(failed)
        stand_ins.cut()
        forget(environment.memos)
        if failed:
            recorder.hosts.put_back(failed=True)
            stand_ins.put_back()
            rebinding.put_back()
            environment.put_back()
            generators.put_back(ran)
    pinned = stand_ins.pinned
    handles = [weakref.ref(h) for i, h in enumerate(stand_ins.handles) if i not in pinned]
    return _Ran(outcome, handles, pinned, training, left)


def _is_input(cell: Cell) -> bool:
    return cell.value.producer is None and cell.kind != "replaced"


def _strides_of(cell: Cell) -> Strides | None:
    strides = cell.storage.strides
    return None if is_contiguous(cell.storage.root_type.shape, strides) else strides


def _refuse_escaped(recorder: Recorder, handles: list[weakref.ref[TensorCore]]) -> None:
    """Raise when a traced tensor is still held by somebody."""
    recorder.forget_arguments()
    references = [*handles, *recorder.made]
    if _alive(references, recorder.on_tape):
        gc.collect()
        escaped = _alive(references, recorder.on_tape)
        if escaped:
            lines = "\n".join(f"  {tensor._describe()}" for tensor in escaped[:4])
            count = "a traced tensor" if len(escaped) == 1 else f"{len(escaped)} traced tensors"
            raise TraceError(
                f"{count} escaped from the compiled function, kept in a list, an attribute or a "
                f"global:\n{lines}\n"
                "hint: return them, or keep tensor.detach() of a result outside"
            )
    recorder.made.clear()


def _alive(
    references: Sequence[weakref.ref[TensorCore]], besides: Collection[int]
) -> list[TensorCore]:
    """The tensors that are still there, but for those with the given identities."""
    tensors = [reference() for reference in references]
    return [tensor for tensor in tensors if tensor is not None and id(tensor) not in besides]
